// SPDX-License-Identifier: Apache-2.0
/* Shared parts of math_ref*.c: bits of a double, sums of two doubles. Must not be compiled with contraction. */
#ifndef INFC_IR_MATH_BITS_H
#define INFC_IR_MATH_BITS_H

#include <stdint.h>
#include <string.h>

static inline uint64_t ref_bits(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline double ref_of_bits(uint64_t u)
{
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}

#define REF_INF (ref_of_bits(UINT64_C(0x7FF) << 52))
#define REF_NAN (ref_of_bits(UINT64_C(0x7FF8) << 48))

static inline double ref_fabs(double x) { return ref_of_bits(ref_bits(x) & ~(UINT64_C(1) << 63)); }
static inline double ref_copysign(double x, double s)
{
    return ref_of_bits((ref_bits(x) & ~(UINT64_C(1) << 63)) | (ref_bits(s) & UINT64_C(1) << 63));
}
/* 2^k for a normal result. */
static inline double ref_pow2(int k) { return ref_of_bits((uint64_t)(k + 1023) << 52); }
/* Nearest integer, ties to even, for |x| < 2^51. */
static inline double ref_rint(double x) { return (x + 0x1.8p52) - 0x1.8p52; }

/* hi + lo, |lo| <= ulp(hi) / 2: about 106 bits. */
struct ref_dd {
    double hi, lo;
};

/* Exact sum; any order of magnitude. */
static inline struct ref_dd ref_two_sum(double a, double b)
{
    double s = a + b, t = s - a;
    return (struct ref_dd){s, (a - (s - t)) + (b - t)};
}

/* Exact sum when |a| >= |b|. */
static inline struct ref_dd ref_fast_sum(double a, double b)
{
    double s = a + b;
    return (struct ref_dd){s, b - (s - a)};
}

/* Exact product (Dekker); operands below 2^996. */
static inline struct ref_dd ref_two_prod(double a, double b)
{
    double ca = 134217729.0 * a, ah = ca - (ca - a), al = a - ah;
    double cb = 134217729.0 * b, bh = cb - (cb - b), bl = b - bh;
    double p = a * b;
    return (struct ref_dd){p, ((ah * bh - p) + ah * bl + al * bh) + al * bl};
}

static inline struct ref_dd ref_dd_add(struct ref_dd a, struct ref_dd b)
{
    struct ref_dd s = ref_two_sum(a.hi, b.hi);
    return ref_fast_sum(s.hi, s.lo + (a.lo + b.lo));
}

static inline struct ref_dd ref_dd_mul(struct ref_dd a, struct ref_dd b)
{
    struct ref_dd p = ref_two_prod(a.hi, b.hi);
    return ref_fast_sum(p.hi, p.lo + (a.hi * b.lo + a.lo * b.hi));
}

#endif
