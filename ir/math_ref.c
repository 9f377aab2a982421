// SPDX-License-Identifier: Apache-2.0
/*
 * Exponential family. Each function reduces its argument to a short interval and sums the Taylor series there; the
 * last term kept is below 2^-56 of the sum. Logarithms use the series of atanh, pow does so in double-double.
 */
#include "ir/math_ref.h"

#include <math.h>

#include "ir/math_bits.h"
#include "ir/support/compiler.h"

static const double k_ln2_hi = 0x1.62e42fee00000p-1, k_ln2_lo = 0x1.a39ef35793c76p-33;
static const struct ref_dd k_ln2 = {0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56};

/* v * 2^k, v about 1: rounds once, also into the subnormals. */
static double scale(double v, int k)
{
    if (k > 1023) return v * ref_pow2(k - 1) * 2;
    if (k < -1021) return v * ref_pow2(k + 200) * ref_pow2(-200);
    return v * ref_pow2(k);
}

/* e^(x + lo) for finite x in the range of finite or subnormal results, |lo| tiny. */
static double exp_core(double x, double lo)
{
    static const double inv_factorial[] = {
        1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320, 1.0 / 362880, 1.0 / 3628800,
        1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800.0,
    };
    double n = ref_rint(x * 0x1.71547652b82fep+0);
    struct ref_dd t = ref_two_sum(x - n * k_ln2_hi, lo - n * k_ln2_lo);
    double r = t.hi, p = 0;
    for (int i = (int)ARRAY_LEN(inv_factorial) - 1; i >= 0; i--) p = p * r + inv_factorial[i];
    double v = 1 + (r + (t.lo + r * r * (0.5 + r * p)));
    return scale(v, (int)n);
}

double ref_exp(double x)
{
    if (x != x) return x;
    if (x > 709.79) return REF_INF;
    if (x < -745.2) return 0;
    return exp_core(x, 0);
}

/* x > 0 and finite as m * 2^k with m in [sqrt(1/2), sqrt(2)); returns m - 1, exactly. */
static double split(double x, int *k)
{
    int e = 0;
    if (x < 0x1p-1022) {
        x *= 0x1p54;
        e = -54;
    }
    uint64_t u = ref_bits(x);
    uint64_t man = u & ((UINT64_C(1) << 52) - 1);
    int up = man >= (UINT64_C(0x6A09E667F3BCD)); /* the fraction of sqrt(2) */
    *k = e + (int)(u >> 52) - 1023 + up;
    return ref_of_bits((uint64_t)(1023 - up) << 52 | man) - 1;
}

/* log(1 + f) = 2 atanh(s), s = f / (2 + f), plus k ln 2; c is a correction to add. */
static double log_core(double f, int k, double c)
{
    double s = f / (2 + f), z = s * s, r = 0;
    for (int n = 11; n >= 1; n--) r = (r + 2.0 / (2 * n + 1)) * z;
    /* 2s = f - s f: the leading term stays exact. */
    return k * k_ln2_hi + (f - (s * (f - r) - (k * k_ln2_lo + c)));
}

double ref_log(double x)
{
    if (x != x) return x;
    if (x == 0) return -REF_INF;
    if (x < 0) return REF_NAN;
    if (x == REF_INF) return x;
    int k;
    double f = split(x, &k);
    return log_core(f, k, 0);
}

double ref_log1p(double x)
{
    if (x != x || x == 0 || x == REF_INF) return x;
    if (x == -1) return -REF_INF;
    if (x < -1) return REF_NAN;
    if (ref_fabs(x) < 0.25) return log_core(x, 0, 0);
    struct ref_dd w = ref_two_sum(1, x);
    int k;
    double f = split(w.hi, &k);
    return log_core(f, k, w.lo / w.hi);
}

/* log(x) to about 2^-66 relative, x > 0 finite. */
static struct ref_dd log_dd(double x)
{
    /* 1 / (2n + 1) as double-doubles, n = 0 .. 6 */
    static const struct ref_dd inv[] = {
        {1, 0},
        {0x1.5555555555555p-2, 0x1.5555555555555p-56},
        {0x1.999999999999ap-3, -0x1.999999999999ap-57},
        {0x1.2492492492492p-3, 0x1.2492492492492p-57},
        {0x1.c71c71c71c71cp-4, 0x1.c71c71c71c71cp-58},
        {0x1.745d1745d1746p-4, -0x1.745d1745d1746p-59},
        {0x1.3b13b13b13b14p-4, -0x1.3b13b13b13b14p-58},
    };
    int k;
    double f = split(x, &k);
    struct ref_dd den = ref_two_sum(2, f);
    double q = f / den.hi;
    struct ref_dd p = ref_two_prod(q, den.hi);
    double rest = ((f - p.hi) - p.lo) - q * den.lo;
    struct ref_dd s = ref_fast_sum(q, rest / den.hi), z = ref_dd_mul(s, s);
    double tail = 0;
    for (int n = 15; n >= 7; n--) tail = tail * z.hi + 1.0 / (2 * n + 1);
    struct ref_dd sum = {tail, 0};
    for (int n = (int)ARRAY_LEN(inv) - 1; n >= 0; n--) sum = ref_dd_add(inv[n], ref_dd_mul(z, sum));
    sum = ref_dd_mul(s, sum);
    sum.hi *= 2;
    sum.lo *= 2;
    return k ? ref_dd_add(ref_dd_mul(k_ln2, (struct ref_dd){k, 0}), sum) : sum;
}

/* 0: not an integer; 1: odd; 2: even. */
static int integer_kind(double y)
{
    double a = ref_fabs(y);
    if (a >= 0x1p53) return 2;
    double t = floor(a);
    if (t != a) return 0;
    return floor(t / 2) * 2 == t ? 2 : 1;
}

double ref_pow(double x, double y)
{
    if (y == 0 || x == 1) return 1;
    if (x != x || y != y) return x + y;
    if (y == 1) return x;
    if (y == 2) return x * x;
    if (y == 3) return x * x * x; /* what activations use; x * x leaves the range only where the cube does */
    if (y == -1) return 1 / x;
    double ax = ref_fabs(x), ay = ref_fabs(y);
    int kind = integer_kind(y);
    if (ay == REF_INF) {
        if (ax == 1) return 1;
        return (ax > 1) == (y > 0) ? REF_INF : 0;
    }
    double sign = x < 0 || ref_bits(x) >> 63 ? (kind == 1 ? -1 : 1) : 1;
    if (ax == 0) return y > 0 ? sign * 0.0 : sign * REF_INF;
    if (ax == REF_INF) return y > 0 ? sign * REF_INF : sign * 0.0;
    if (x < 0 && kind == 0) return REF_NAN;
    if (y == 0.5) return sqrt(x);
    if (ax == 1) return sign;
    if (ay > 0x1p70) return (ax > 1) == (y > 0) ? sign * REF_INF : sign * 0.0;
    struct ref_dd l = log_dd(ax);
    struct ref_dd t = ref_dd_mul(l, (struct ref_dd){y, 0});
    if (t.hi > 709.79) return sign * REF_INF;
    if (t.hi < -745.2) return sign * 0.0;
    return sign * exp_core(t.hi, t.lo);
}

/* Odd series x + x^3/3! + ..., |x| <= 1. */
static double sinh_series(double x)
{
    double z = x * x, p = 0;
    for (int n = 9; n >= 1; n--) p = (p + 1) * z / ((2 * n) * (2 * n + 1));
    return x + x * p;
}

double ref_sinh(double x)
{
    double a = ref_fabs(x);
    if (a < 1) return x == 0 ? x : sinh_series(x);
    if (!(a < 40)) { /* e^-a no longer counts; halved first, for the last octave before overflow */
        double e = ref_exp(a / 2);
        return ref_copysign(e / 2 * e, x);
    }
    double e = ref_exp(a);
    return ref_copysign((e - 1 / e) / 2, x);
}

double ref_cosh(double x)
{
    double a = ref_fabs(x);
    if (!(a < 40)) {
        double e = ref_exp(a / 2);
        return e / 2 * e;
    }
    double e = ref_exp(a);
    return (e + 1 / e) / 2;
}

double ref_tanh(double x)
{
    double a = ref_fabs(x);
    if (x != x || x == 0) return x;
    if (a > 22) return ref_copysign(1, x);
    if (a < 1) {
        double s = sinh_series(x), h = sinh_series(x / 2);
        return s / (1 + 2 * h * h); /* cosh x = 1 + 2 sinh^2(x/2) */
    }
    return ref_copysign(1 - 2 / (ref_exp(2 * a) + 1), x);
}

double ref_asinh(double x)
{
    double a = ref_fabs(x), r;
    if (x != x || x == 0 || a == REF_INF) return x;
    if (a > 0x1p30) {
        int k;
        double f = split(a, &k);
        r = log_core(f, k + 1, 0);
    } else {
        r = ref_log1p(a + a * a / (1 + sqrt(1 + a * a)));
    }
    return ref_copysign(r, x);
}

double ref_acosh(double x)
{
    if (x != x || x == REF_INF) return x;
    if (x < 1) return REF_NAN;
    if (x > 0x1p30) {
        int k;
        double f = split(x, &k);
        return log_core(f, k + 1, 0);
    }
    double t = x - 1;
    return ref_log1p(t + sqrt(t * (t + 2)));
}

double ref_atanh(double x)
{
    double a = ref_fabs(x);
    if (x != x || x == 0) return x;
    if (a > 1) return REF_NAN;
    if (a == 1) return ref_copysign(REF_INF, x);
    return ref_copysign(0.5 * ref_log1p(2 * a / (1 - a)), x);
}

double ref_sigmoid(double x)
{
    if (x != x) return x;
    if (x >= 0) return 1 / (1 + ref_exp(-x));
    double e = ref_exp(x); /* e^x / (1 + e^x) keeps its precision far to the left */
    return e / (1 + e);
}

/*
 * erf(c + h) = erf(c) + 2/sqrt(pi) e^(-c c) * integral of e^(-2 c t - t t), t = 0 .. h, with c the nearest multiple of 1/4.
 * The integrand's Taylor coefficients follow (n + 1) a[n+1] = -2 c a[n] - 2 a[n-1].
 */
double ref_erf(double x)
{
    static const struct {
        double erf, slope;
    } at[] = {
        {0x0.0p+0, 0x1.20dd750429b6dp+0},
        {0x1.1af54e232d609p-2, 0x1.0f5d1602f7e41p+0},
        {0x1.0a7ef5c18edd2p-1, 0x1.c1efca49a5011p-1},
        {0x1.6c1c9759d0e5fp-1, 0x1.492e42d78d2c5p-1},
        {0x1.af767a741088bp-1, 0x1.a911f096fbc26p-2},
        {0x1.d8865d98abe01p-1, 0x1.e4652fadcb6b2p-3},
        {0x1.eea5557137ae0p-1, 0x1.e723726b824a9p-4},
        {0x1.f92d077f8d56dp-1, 0x1.b055303221015p-5},
        {0x1.fd9ae142795e3p-1, 0x1.529b9e8cf9a1ep-6},
        {0x1.ff404760319b4p-1, 0x1.d4143a9dfe965p-8},
        {0x1.ffcaa8f4c9beap-1, 0x1.1d83170fbf6fbp-9},
        {0x1.fff2cfb0453d9p-1, 0x1.3360ccd23db3ap-11},
        {0x1.fffd1ac4135f9p-1, 0x1.2408e9ba3327fp-13},
        {0x1.ffff6f9f67e55p-1, 0x1.e9b5e8d00ce77p-16},
        {0x1.ffffe710d565ep-1, 0x1.6a597219a93dap-18},
        {0x1.fffffc2f171e3p-1, 0x1.d9371e2ff7c35p-21},
        {0x1.ffffff7b91176p-1, 0x1.10b1488aeb235p-23},
        {0x1.fffffff01a8b6p-1, 0x1.155a09065d4f7p-26},
        {0x1.fffffffe4fa30p-1, 0x1.f1e3523b41d7dp-30},
        {0x1.ffffffffd759dp-1, 0x1.8a61745ec7d1dp-33},
        {0x1.fffffffffc9e8p-1, 0x1.13af4f04f9998p-36},
        {0x1.ffffffffffc05p-1, 0x1.5422ef5d8949dp-40},
        {0x1.fffffffffffbep-1, 0x1.7258610b3b233p-44},
        {0x1.ffffffffffffcp-1, 0x1.63daf8b4b1e0cp-48},
        {0x1.0000000000000p+0, 0x1.2dc119095729fp-52},
    };
    static const double inv[] = {0,       1.0,      1.0 / 2,  1.0 / 3,  1.0 / 4,  1.0 / 5,  1.0 / 6,
                                 1.0 / 7, 1.0 / 8,  1.0 / 9,  1.0 / 10, 1.0 / 11, 1.0 / 12, 1.0 / 13,
                                 1.0 / 14, 1.0 / 15, 1.0 / 16, 1.0 / 17, 1.0 / 18, 1.0 / 19};
    double a = ref_fabs(x);
    if (x != x || x == 0) return x;
    if (a >= 6) return ref_copysign(1, x);
    int i = a < 0.25 ? 0 : (int)(a * 4 + 0.5); /* near 0 nothing may be subtracted from erf(c) */
    double c = i * 0.25, h = a - c, sum = 1, prev = 0, cur = 1;
    /* cur = a[n] h^n; sum of a[n] h^n / (n + 1) */
    for (int n = 0; n < 18; n++) {
        double next = -2 * h * (c * cur + h * prev) * inv[n + 1];
        prev = cur;
        cur = next;
        sum += cur * inv[n + 2];
    }
    return ref_copysign(at[i].erf + at[i].slope * (h * sum), x);
}
