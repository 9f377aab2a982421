// SPDX-License-Identifier: Apache-2.0
/* f64 forms of the MATH ops; f32 forms that nobody waits for are these, rounded. See ir/loop_math.c for the bounds. */
#include "ir/loop_math.h"

#include <math.h>

#include "ir/loop_math_tables.h"

static const double infinity = (double)INFINITY;

/* ---- sums and products with their rounding error ---- */

struct pair {
    struct lp_value *hi, *lo;
};

/* |x| >= |y| or x = 0 */
static struct pair fast_sum(struct lm *m, struct lp_value *x, struct lp_value *y)
{
    struct pair r = {.hi = lm_add(m, x, y)};
    r.lo = lm_sub(m, y, lm_sub(m, r.hi, x));
    return r;
}

static struct pair exact_sum(struct lm *m, struct lp_value *x, struct lp_value *y)
{
    struct pair r = {.hi = lm_add(m, x, y)};
    struct lp_value *t = lm_sub(m, r.hi, x);
    r.lo = lm_add(m, lm_sub(m, x, lm_sub(m, r.hi, t)), lm_sub(m, y, t));
    return r;
}

/* The upper 26 bits; |x| < 2^996. */
static struct pair split_bits(struct lm *m, struct lp_value *x)
{
    struct lp_value *t = lm_mulc(m, x, 0x1.0000002p27);
    struct pair r = {.hi = lm_sub(m, t, lm_sub(m, t, x))};
    r.lo = lm_sub(m, x, r.hi);
    return r;
}

/* Without fma: not every target has it. */
static struct pair exact_product(struct lm *m, struct lp_value *x, struct lp_value *y)
{
    struct pair a = split_bits(m, x), b = split_bits(m, y), r = {.hi = lm_mul(m, x, y)};
    struct lp_value *e = lm_sub(m, lm_mul(m, a.hi, b.hi), r.hi);
    e = lm_add(m, e, lm_mul(m, a.hi, b.lo));
    e = lm_add(m, e, lm_mul(m, a.lo, b.hi));
    r.lo = lm_add(m, e, lm_mul(m, a.lo, b.lo));
    return r;
}

static struct pair product(struct lm *m, struct pair x, struct pair y)
{
    struct pair p = exact_product(m, x.hi, y.hi);
    struct lp_value *cross = lm_add(m, lm_mul(m, x.hi, y.lo), lm_mul(m, x.lo, y.hi));
    return fast_sum(m, p.hi, lm_add(m, p.lo, cross));
}

/* |x.hi| >= |y.hi| */
static struct pair sum(struct lm *m, struct pair x, struct pair y)
{
    struct pair s = exact_sum(m, x.hi, y.hi);
    return fast_sum(m, s.hi, lm_add(m, s.lo, lm_add(m, x.lo, y.lo)));
}

static struct pair pair_c(struct lm *m, double hi, double lo)
{
    return (struct pair){lm_c(m, hi), lm_c(m, lo)};
}

/* ---- logarithms ---- */

/* x > 0, finite; c is added to the result near the end, where it loses nothing. */
static struct lp_value *log_core(struct lm *m, struct lp_value *x, struct lp_value *c)
{
    struct lp_value *e, *f = lm_subc(m, lm_split(m, x, &e), 1);
    struct lp_value *s = lm_div(m, f, lm_addc(m, f, 2)), *z = lm_mul(m, s, s);
    struct lp_value *r = lm_mul(m, z, LM_POLY(m, z, fit_log_f64));
    struct lp_value *half = lm_mul(m, lm_mulc(m, f, 0.5), f);
    /* log(1 + f) = f - (f^2/2 - s (f^2/2 + r)) */
    struct lp_value *low = lm_mul(m, s, lm_add(m, half, r));
    low = lm_fma(m, e, lm_c(m, 0x1.a39ef35793c76p-33), low);
    if (c) low = lm_add(m, low, c);
    low = lm_sub(m, f, lm_sub(m, half, low));
    return lm_fma(m, e, lm_c(m, 0x1.62e42feep-1), low);
}

/* The logarithm's values beyond positive finite numbers. */
static struct lp_value *log_ends(struct lm *m, struct lp_value *x, struct lp_value *y)
{
    struct lp_value *odd = lm_select(m, lm_eqc(m, x, 0), lm_c(m, -infinity),
                                     lm_select(m, lm_ltc(m, x, 0), lm_c(m, (double)NAN), lm_add(m, x, x)));
    return lm_select(m, lm_and(m, lm_gtc(m, x, 0), lm_ltc(m, x, infinity)), y, odd);
}

struct lp_value *lm_log_f64(struct lm *m, struct lp_value *x) { return log_ends(m, x, log_core(m, x, NULL)); }

/* log(1 + u) for u >= -1: the rounding error of 1 + u comes back as a correction. */
static struct lp_value *log_1_plus(struct lm *m, struct lp_value *u)
{
    struct lp_value *y = lm_addc(m, u, 1);
    struct lp_value *c = lm_div(m, lm_sub(m, u, lm_subc(m, y, 1)), y);
    struct lp_value *plain = lm_and(m, lm_gtc(m, y, 0), lm_ltc(m, y, infinity));
    return log_ends(m, y, log_core(m, y, lm_select(m, plain, c, lm_c(m, 0))));
}

/* asinh and acosh of a >= 0 beyond 2^28, where their argument's square matters no more: log a + ln 2. */
static struct lp_value *log_big_or(struct lm *m, struct lp_value *a, struct lp_value *u)
{
    struct lp_value *big = lm_gtc(m, a, 0x1p28);
    struct lp_value *far = lm_addc(m, lm_log_f64(m, a), 0x1.62e42fefa39efp-1);
    return lm_select(m, big, far, log_1_plus(m, lm_select(m, big, lm_c(m, 1), u)));
}

static struct lp_value *asinh_f64(struct lm *m, struct lp_value *x)
{
    struct lp_value *a = lm_abs(m, x), *a2 = lm_mul(m, a, a), *one = lm_c(m, 1);
    struct lp_value *root = lm_sqrt(m, lm_add(m, a2, one));
    struct lp_value *u = lm_add(m, a, lm_div(m, a2, lm_add(m, root, one)));
    return lm_with_sign(m, log_big_or(m, a, u), x);
}

static struct lp_value *acosh_f64(struct lm *m, struct lp_value *x)
{
    struct lp_value *t = lm_subc(m, x, 1);
    struct lp_value *u = lm_add(m, t, lm_sqrt(m, lm_fma(m, t, t, lm_add(m, t, t))));
    return lm_select(m, lm_ltc(m, x, 1), lm_c(m, (double)NAN), log_big_or(m, x, u));
}

static struct lp_value *atanh_f64(struct lm *m, struct lp_value *x)
{
    struct lp_value *a = lm_abs(m, x);
    struct lp_value *u = lm_div(m, lm_add(m, a, a), lm_sub(m, lm_c(m, 1), a));
    /* Beyond 1: u < -2, and the logarithm is NaN. */
    return lm_with_sign(m, lm_mulc(m, log_1_plus(m, u), 0.5), x);
}

/* ---- exponentials ---- */

static struct lp_value *at_most(struct lm *m, struct lp_value *x, double hi)
{
    return lm_select(m, lm_gtc(m, x, hi), lm_c(m, hi), x);
}

/* e^a - 1 for 0 <= a < 60. */
static struct lp_value *exp_minus_1(struct lm *m, struct lp_value *a)
{
    struct lm_exp e = lm_exp_parts(m, a, NULL);
    struct lp_value *s = lm_pow2(m, e.n_bits);
    return lm_fma(m, s, e.q, lm_subc(m, s, 1));
}

static struct lp_value *tanh_f64(struct lm *m, struct lp_value *x)
{
    struct lp_value *a = at_most(m, lm_abs(m, x), 20);
    struct lp_value *z = exp_minus_1(m, lm_add(m, a, a));
    return lm_with_sign(m, lm_div(m, z, lm_addc(m, z, 2)), x);
}

static struct lp_value *sinh_f64(struct lm *m, struct lp_value *x)
{
    struct lp_value *a = lm_abs(m, x);
    struct lp_value *z = exp_minus_1(m, at_most(m, a, 24));
    struct lp_value *near = lm_mulc(m, lm_add(m, z, lm_div(m, z, lm_addc(m, z, 1))), 0.5);
    struct lm_exp e = lm_exp_parts(m, at_most(m, a, 712), NULL);
    struct lp_value *far = lm_exp_scale(m, &e, -1);
    return lm_with_sign(m, lm_select(m, lm_ltc(m, a, 22), near, far), x);
}

static struct lp_value *cosh_f64(struct lm *m, struct lp_value *x)
{
    struct lm_exp e = lm_exp_parts(m, at_most(m, lm_abs(m, x), 712), NULL);
    struct lp_value *half = lm_exp_scale(m, &e, -1);
    return lm_add(m, half, lm_div(m, lm_c(m, 0.25), half));
}

static struct lp_value *erf_f64(struct lm *m, struct lp_value *x)
{
    struct lp_value *a = lm_abs(m, x);
    struct lp_value *near = lm_fma(m, x, LM_POLY(m, lm_mul(m, x, x), fit_erf_small_f64), x);
    struct lp_value *g = LM_POLY(m, at_most(m, a, 6), fit_erf_large_f64);
    struct lm_exp e = lm_exp_parts(m, lm_neg(m, g), NULL);
    struct lp_value *s = lm_pow2(m, e.n_bits);
    struct lp_value *far = lm_sub(m, lm_c(m, 1), lm_fma(m, s, e.q, s));
    return lm_select(m, lm_ltc(m, a, 1), near, lm_with_sign(m, far, x));
}

/* ---- trigonometry ---- */

/*
 * |x| - n pi/2 as a pair; *n: the number of quarter turns n in its low bits. pi/2 in parts of 32 bits and n in two of 21
 * make every product exact; the first differences are exact too, so that an angle close to a multiple of pi/2 keeps its
 * digits. |x| above 2^40 counts as 2^40.
 */
static struct pair reduce_angle(struct lm *m, struct lp_value *a, struct lp_value **n)
{
    static const double parts[] = {0x1.921fb544p+0, 0x1.0b4611ap-34, 0x1.898cc516p-64, 0x1.01b839a25204ap-96};
    struct lp_value *nan = lm_c(m, (double)NAN);
    a = lm_select(m, lm_ltc(m, a, infinity), at_most(m, a, 0x1p40), nan);
    struct lp_value *whole = lm_round(m, lm_mulc(m, a, 0x1.45f306dc9c883p-1));
    *n = lm_bits(m, lm_addc(m, whole, 0x1.8p52));
    struct lp_value *high = lm_mulc(m, lm_round(m, lm_mulc(m, whole, 0x1p-20)), 0x1p20);
    struct lp_value *low = lm_sub(m, whole, high);
    struct pair r = {lm_sub(m, a, lm_mulc(m, high, parts[0])), lm_c(m, 0)};
    r.hi = lm_sub(m, r.hi, lm_mulc(m, low, parts[0]));
    for (size_t i = 2; i < 2 * ARRAY_LEN(parts); i++) {
        struct pair s = exact_sum(m, r.hi, lm_mulc(m, i & 1 ? low : high, -parts[i / 2]));
        r = (struct pair){s.hi, i > 2 ? lm_add(m, r.lo, s.lo) : s.lo};
    }
    return fast_sum(m, r.hi, r.lo);
}

struct sin_cos {
    struct lp_value *sin, *cos;
};

/* Of an angle in [-pi/4, pi/4]. */
static struct sin_cos sin_cos_core(struct lm *m, struct pair r)
{
    struct sin_cos out;
    struct lp_value *r2 = lm_mul(m, r.hi, r.hi), *half = lm_mulc(m, r2, 0.5);
    struct lp_value *s = lm_mul(m, lm_mul(m, r2, r.hi), LM_POLY(m, r2, fit_sin_f64));
    /* sin(r + e) = sin r + e cos r, cos(r + e) = cos r - e sin r */
    s = lm_add(m, s, lm_mul(m, r.lo, lm_sub(m, lm_c(m, 1), half)));
    out.sin = lm_add(m, r.hi, s);
    struct lp_value *c = lm_mul(m, lm_mul(m, r2, r2), LM_POLY(m, r2, fit_cos_f64));
    struct lp_value *top = lm_sub(m, lm_c(m, 1), half);
    struct lp_value *lost = lm_sub(m, lm_sub(m, lm_c(m, 1), top), half);
    c = lm_add(m, lost, lm_sub(m, c, lm_mul(m, r.hi, r.lo)));
    out.cos = lm_add(m, top, c);
    return out;
}

static struct lp_value *turn(struct lm *m, const struct sin_cos *v, struct lp_value *n, struct lp_value *sign_of)
{
    struct lp_value *y = lm_select(m, lm_nec(m, lm_andc(m, n, 1), 0), v->cos, v->sin);
    struct lp_value *sign = lm_shlc(m, lm_andc(m, n, 2), 62);
    if (sign_of) sign = lm_xor(m, sign, lm_and(m, lm_bits(m, sign_of), lm_ci(m, INT64_MIN)));
    return lm_float(m, lm_xor(m, lm_bits(m, y), sign));
}

/* sin and tan of a tiny x are x; the reduction's products would underflow. */
static struct lp_value *or_tiny(struct lm *m, struct lp_value *y, struct lp_value *x)
{
    return lm_select(m, lm_ltc(m, lm_abs(m, x), 0x1p-40), x, y);
}

static struct lp_value *sin_f64(struct lm *m, struct lp_value *x)
{
    struct lp_value *n;
    struct sin_cos v = sin_cos_core(m, reduce_angle(m, lm_abs(m, x), &n));
    return or_tiny(m, turn(m, &v, n, x), x);
}

static struct lp_value *cos_f64(struct lm *m, struct lp_value *x)
{
    struct lp_value *n;
    struct sin_cos v = sin_cos_core(m, reduce_angle(m, lm_abs(m, x), &n));
    return turn(m, &v, lm_addc(m, n, 1), NULL);
}

static struct lp_value *tan_turned(struct lm *m, struct pair r, struct lp_value *odd, struct lp_value *x)
{
    struct sin_cos v = sin_cos_core(m, r);
    struct lp_value *num = lm_select(m, odd, lm_neg(m, v.cos), v.sin), *den = lm_select(m, odd, v.sin, v.cos);
    struct lp_value *y = lm_bits(m, lm_div(m, num, den));
    y = lm_float(m, lm_xor(m, y, lm_and(m, lm_bits(m, x), lm_ci(m, INT64_MIN))));
    return or_tiny(m, y, x);
}

struct lp_value *lm_tan_reduced(struct lm *m, struct lp_value *r, struct lp_value *odd, struct lp_value *x)
{
    return tan_turned(m, (struct pair){r, lm_c(m, 0)}, odd, x);
}

static struct lp_value *tan_f64(struct lm *m, struct lp_value *x)
{
    struct lp_value *n;
    struct pair r = reduce_angle(m, lm_abs(m, x), &n);
    return tan_turned(m, r, lm_nec(m, lm_andc(m, n, 1), 0), x);
}

/* asin of sqrt(u), u in [0, 1/4], given s = sqrt(u). */
static struct lp_value *asin_core(struct lm *m, struct lp_value *s, struct lp_value *u)
{
    return lm_fma(m, lm_mul(m, s, u), LM_POLY(m, u, fit_asin_f64), s);
}

/* Above 1/2: asin x = pi/2 - 2 asin sqrt((1 - x) / 2). */
static struct lp_value *asin_acos_f64(struct lm *m, struct lp_value *x, bool cosine)
{
    struct lp_value *a = lm_abs(m, x), *big = lm_gtc(m, a, 0.5);
    struct lp_value *u = lm_select(m, big, lm_mulc(m, lm_sub(m, lm_c(m, 1), a), 0.5), lm_mul(m, a, a));
    struct lp_value *s = lm_select(m, big, lm_sqrt(m, u), a);
    struct lp_value *r = asin_core(m, s, u), *twice = lm_add(m, r, r);
    struct lp_value *top = lm_c(m, 0x1.921fb54442d18p+0), *low = lm_c(m, 0x1.1a62633145c07p-54);
    if (!cosine) return lm_with_sign(m, lm_select(m, big, lm_sub(m, top, lm_sub(m, twice, low)), r), x);
    struct lp_value *negative = lm_ltc(m, x, 0);
    struct lp_value *below = lm_sub(m, lm_add(m, top, top), lm_sub(m, twice, lm_add(m, low, low)));
    struct lp_value *far = lm_select(m, negative, below, twice);
    struct lp_value *signed_r = lm_select(m, negative, lm_neg(m, r), r);
    return lm_select(m, big, far, lm_sub(m, top, lm_sub(m, signed_r, low)));
}

/* |x| > tan 3pi/8: pi/2 + atan(-1/|x|); above tan pi/8: pi/4 + atan((|x| - 1) / (|x| + 1)). */
static struct lp_value *atan_f64(struct lm *m, struct lp_value *x)
{
    struct lp_value *a = lm_abs(m, x), *one = lm_c(m, 1), *zero = lm_c(m, 0);
    struct lp_value *far = lm_gtc(m, a, 0x1.3504f333f9de6p+1), *mid = lm_gtc(m, a, 0x1.a827999fcef32p-2);
    struct lp_value *num = lm_select(m, far, lm_c(m, -1), lm_select(m, mid, lm_sub(m, a, one), a));
    struct lp_value *den = lm_select(m, far, a, lm_select(m, mid, lm_add(m, a, one), one));
    struct lp_value *t = lm_div(m, num, den), *u = lm_mul(m, t, t);
    struct lp_value *p = lm_mul(m, lm_mul(m, t, u), LM_POLY(m, u, fit_atan_f64));
    struct lp_value *base = lm_select(m, far, lm_c(m, 0x1.921fb54442d18p+0),
                                      lm_select(m, mid, lm_c(m, 0x1.921fb54442d18p-1), zero));
    struct lp_value *low = lm_select(m, far, lm_c(m, 0x1.1a62633145c07p-54),
                                     lm_select(m, mid, lm_c(m, 0x1.1a62633145c07p-55), zero));
    return lm_with_sign(m, lm_add(m, base, lm_add(m, t, lm_add(m, p, low))), x);
}

struct lp_value *lm_unary_f64(struct lm *m, enum lp_opcode code, struct lp_value *x)
{
    switch (code) {
    case LP_OP_EXP: return lm_exp(m, x);
    case LP_OP_LOG: return lm_log_f64(m, x);
    case LP_OP_SIN: return sin_f64(m, x);
    case LP_OP_COS: return cos_f64(m, x);
    case LP_OP_TAN: return tan_f64(m, x);
    case LP_OP_ASIN: return asin_acos_f64(m, x, false);
    case LP_OP_ACOS: return asin_acos_f64(m, x, true);
    case LP_OP_ATAN: return atan_f64(m, x);
    case LP_OP_SINH: return sinh_f64(m, x);
    case LP_OP_COSH: return cosh_f64(m, x);
    case LP_OP_TANH: return tanh_f64(m, x);
    case LP_OP_ASINH: return asinh_f64(m, x);
    case LP_OP_ACOSH: return acosh_f64(m, x);
    case LP_OP_ATANH: return atanh_f64(m, x);
    case LP_OP_ERF: return erf_f64(m, x);
    default: INFC_UNREACHABLE("a MATH op without an expansion");
    }
}

/* ---- powers ---- */

/*
 * log a, a > 0 finite, to about 2^-65: with s = f/(2+f), log(1+f) = 2 s + 2/3 s^3 + s^5 q; the first two terms as pairs.
 */
static struct pair precise_log(struct lm *m, struct lp_value *a)
{
    struct lp_value *e, *f = lm_subc(m, lm_split(m, a, &e), 1), *two = lm_c(m, 2);
    struct pair den = exact_sum(m, two, f), s = {.hi = lm_div(m, f, den.hi)};
    struct pair back = exact_product(m, s.hi, den.hi);
    struct lp_value *rest = lm_sub(m, lm_sub(m, f, back.hi), back.lo);
    rest = lm_sub(m, rest, lm_mul(m, s.hi, den.lo));
    s.lo = lm_div(m, rest, den.hi);
    struct pair z = product(m, s, s);
    struct pair cube = product(m, product(m, z, s), pair_c(m, 0x1.5555555555555p-1, 0x1.5555555555555p-55));
    struct lp_value *fifth = lm_mul(m, lm_mul(m, z.hi, z.hi), LM_POLY(m, z.hi, fit_log_5_f64));
    fifth = lm_mul(m, s.hi, fifth);
    struct pair r = {lm_add(m, s.hi, s.hi), lm_add(m, s.lo, s.lo)};
    r = sum(m, r, cube);
    r = fast_sum(m, r.hi, lm_add(m, r.lo, fifth));
    /* e ln 2: the first part has 40 bits, so its product is exact. */
    struct pair k = {lm_mulc(m, e, 0x1.62e42fefa2p-1), lm_mulc(m, e, 0x1.9ef35793c7673p-41)};
    struct pair t = exact_sum(m, k.hi, r.hi);
    return fast_sum(m, t.hi, lm_add(m, t.lo, lm_add(m, k.lo, r.lo)));
}

/* y log a as a pair, within the range of the exponential. */
static struct pair scaled_log(struct lm *m, struct lp_value *a, struct lp_value *y, bool precise)
{
    /* Beyond 2^70 the result is 0, 1 or infinity whatever y is. */
    y = lm_select(m, lm_gtc(m, y, 0x1p70), lm_c(m, 0x1p70), y);
    y = lm_select(m, lm_ltc(m, y, -0x1p70), lm_c(m, -0x1p70), y);
    struct pair z;
    if (precise) {
        struct pair l = precise_log(m, a);
        z = exact_product(m, l.hi, y);
        z = fast_sum(m, z.hi, lm_add(m, z.lo, lm_mul(m, l.lo, y)));
    } else {
        z = (struct pair){lm_mul(m, log_core(m, a, NULL), y), lm_c(m, 0)};
    }
    struct lp_value *low = lm_ltc(m, z.hi, -746), *high = lm_gtc(m, z.hi, 710);
    z.lo = lm_select(m, lm_or(m, low, high), lm_c(m, 0), z.lo);
    z.hi = lm_select(m, low, lm_c(m, -746), lm_select(m, high, lm_c(m, 710), z.hi));
    return z;
}

struct lp_value *lm_pow_f64(struct lm *m, struct lp_value *x, struct lp_value *y, bool precise)
{
    struct lp_value *a = lm_abs(m, x), *zero = lm_c(m, 0), *one = lm_c(m, 1), *inf = lm_c(m, infinity);
    struct pair z = scaled_log(m, a, y, precise);
    struct lm_exp e = lm_exp_parts(m, z.hi, precise ? z.lo : NULL);
    struct lp_value *r = lm_exp_scale(m, &e, 0), *falling = lm_lt(m, y, zero);
    r = lm_select(m, lm_eq(m, a, zero), lm_select(m, falling, inf, zero), r);
    r = lm_select(m, lm_eq(m, a, inf), lm_select(m, falling, zero, inf), r);
    /* A negative base: the sign of an odd exponent, NaN for one that is not an integer. */
    struct lp_value *half = lm_mulc(m, y, 0.5);
    struct lp_value *whole = lm_eq(m, lm_round(m, y), y), *even = lm_eq(m, lm_round(m, half), half);
    struct lp_value *odd = lm_and(m, whole, lp_unary(&m->b, LP_OP_NOT, even));
    r = lm_select(m, odd, lm_with_sign(m, r, x), r);
    struct lp_value *bad = lm_and(m, lm_lt(m, x, zero), lm_lt(m, a, inf));
    bad = lm_and(m, bad, lp_unary(&m->b, LP_OP_NOT, whole));
    r = lm_select(m, bad, lm_c(m, (double)NAN), r);
    struct lp_value *unordered = lm_or(m, lm_ne(m, x, x), lm_ne(m, y, y));
    r = lm_select(m, unordered, lm_add(m, x, y), r);
    return lm_select(m, lm_or(m, lm_eq(m, x, one), lm_eq(m, y, zero)), one, r);
}
