// SPDX-License-Identifier: Apache-2.0
/*
 * exp, log and log2 for sampling: the same bits on every machine, which libm's variants for each
 * CPU do not promise. A few units in the last place, far below what a probability is good for.
 */
#ifndef INFC_RUNTIME_LM_MATH_H
#define INFC_RUNTIME_LM_MATH_H

#include <stdint.h>
#include <string.h>

#define LM_LN2 0.693147180559945309417

static inline double lm_pow2(int k) /* k in [-1022, 1023] */
{
    uint64_t bits = (uint64_t)(k + 1023) << 52;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

enum { LM_EXP_BLOCK = 8 };

/*
 * exp of each, in place; 0 below -708, infinity above 709. exp(x) = 2^k exp(r), |r| <= ln2 / 2:
 * Taylor to r^13. Eight at a time because one after the other waits for every multiplication.
 */
static inline void lm_exp_block(double x[LM_EXP_BLOCK])
{
    static const double inverse[] = {
        1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320,
        1.0 / 5040,       1.0 / 720,       1.0 / 120,      1.0 / 24,      1.0 / 6,      1.0 / 2};
    double r[LM_EXP_BLOCK], p[LM_EXP_BLOCK];
    int k[LM_EXP_BLOCK];
    for (int j = 0; j < LM_EXP_BLOCK; j++) {
        double in = x[j] > -708 ? x[j] : -708, scaled;
        if (in > 709) in = 709;
        scaled = in * (1 / LM_LN2);
        k[j] = (int)(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
        /* ln2 in two parts: the first has zeros behind, so that its product with k is exact */
        r[j] = (in - k[j] * 0x1.62e42feep-1) - k[j] * 0x1.a39ef35793c76p-33;
        p[j] = inverse[0];
    }
    for (int i = 1; i < 12; i++)
        for (int j = 0; j < LM_EXP_BLOCK; j++) p[j] = p[j] * r[j] + inverse[i];
    for (int j = 0; j < LM_EXP_BLOCK; j++) {
        double y = (1 + r[j] + r[j] * r[j] * p[j]) * lm_pow2(k[j]);
        if (!(x[j] >= -708)) y = x[j] < -708 ? 0 : x[j]; /* a nan stays one */
        x[j] = x[j] > 709 ? 1e308 * 10 : y;
    }
}

static inline double lm_exp(double x)
{
    double block[LM_EXP_BLOCK] = {x};
    lm_exp_block(block);
    return block[0];
}

/* x positive and normal. log(x) = e ln2 + 2 atanh(s), s = (m - 1) / (m + 1). */
static inline double lm_log(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int e = (int)(bits >> 52) - 1023;
    bits = (bits & 0xfffffffffffff) | (uint64_t)1023 << 52;
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m > 1.41421356237309504880) m /= 2, e++;
    double s = (m - 1) / (m + 1), s2 = s * s, sum = 0;
    for (int i = 23; i >= 3; i -= 2) sum = (sum + 1.0 / i) * s2;
    return e * LM_LN2 + 2 * s * (1 + sum);
}

#endif
