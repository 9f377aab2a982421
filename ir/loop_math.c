// SPDX-License-Identifier: Apache-2.0
/*
 * lp_expand_math: every MATH op becomes branch-free arithmetic (mul, add, fma, select, shifts, at most one division or
 * square root on the hot paths), so that a target vectorises it like anything else and no kernel calls a library.
 *
 * Requires: a verified kernel. Establishes: no op has LP_F_MATH. Linear. The same formulas serve every target; where it
 * has no fma the bounds below still hold (the reductions use constants short enough for exact products).
 *
 * Greatest errors in ulp of the result (tests/unit/test_loop_math.c asserts them over dense samples, with and without
 * fma); subnormal results are within as many units of the least one:
 *
 *   f32   exp 1.1 (0 below the least normal number; sigmoid likewise)   log 1   tanh 1.5   sigmoid 2.4   erf 1.3   sin cos 1.6 (every finite x)
 *         1 + erf 1.8 of the numbers near 1, so absolute ones of 2.2e-7
 *         others 0.6: computed in f64 and rounded; pow 0.51, for small constant exponents by multiplication: 2
 *   f64   exp log 1.5   sin cos 1.5 for |x| <= 2^40, beyond it the result only stays in range   tan asin acos atan 3
 *         sinh cosh tanh asinh acosh atanh sigmoid 4   erf 2   pow 1.2
 *   f16, bf16, f8: computed in f32 and rounded
 *
 * Special values (infinities, NaN, signed zeros, poles) are those of C's Annex F. Integer pow wraps; a negative exponent
 * gives the truncated reciprocal.
 */
#include "ir/loop_math.h"

#include <math.h>

#include "ir/loop_math_tables.h"
#include "ir/loop_rewrite.h"

/* ---- shared pieces ---- */

struct lp_value *lm_poly(struct lm *m, struct lp_value *x, const double *c, size_t n)
{
    struct lp_value *p = lm_c(m, c[n - 1]);
    for (size_t i = n - 1; i-- > 0;) p = lm_fma(m, p, x, lm_c(m, c[i]));
    return p;
}

static struct lp_value *sign_bit(struct lm *m, struct lp_value *x)
{
    return lm_and(m, lm_bits(m, x), lm_ci(m, m->f == DT_F32 ? INT32_MIN : INT64_MIN));
}

struct lp_value *lm_with_sign(struct lm *m, struct lp_value *y, struct lp_value *s)
{
    return lm_float(m, lm_or(m, lm_bits(m, y), sign_bit(m, s)));
}

struct lm_exp lm_exp_parts(struct lm *m, struct lp_value *x, struct lp_value *x_low)
{
    bool f32 = m->f == DT_F32;
    /* Adding 1.5 * 2^(digits - 1) rounds to an integer, which then stands in the low bits. */
    double magic = f32 ? 0x1.8p23 : 0x1.8p52;
    struct lp_value *t = lm_fma(m, x, lm_c(m, 0x1.71547652b82fep+0), lm_c(m, magic)); /* 1 / ln 2 */
    struct lm_exp e = {.n = lm_subc(m, t, magic), .n_bits = lm_bits(m, t)};
    if (f32) e.n_bits = lm_sub(m, e.n_bits, lm_ci(m, 0x4b400000));
    else e.n_bits = lm_sub(m, e.n_bits, lm_ci(m, 0x4338000000000000));
    /* ln 2 in two parts; the first is short, so that its product with n is exact. */
    struct lp_value *r = lm_fma(m, e.n, lm_c(m, f32 ? -0x1.62e4p-1 : -0x1.62e42feep-1), x);
    r = lm_fma(m, e.n, lm_c(m, f32 ? -0x1.7f7d1cp-20 : -0x1.a39ef35793c76p-33), r);
    if (x_low) r = lm_add(m, r, x_low);
    struct lp_value *q = f32 ? LM_POLY(m, r, fit_exp_f32) : LM_POLY(m, r, fit_exp_f64);
    e.q = lm_fma(m, lm_mul(m, r, r), q, r);
    return e;
}

struct lp_value *lm_pow2(struct lm *m, struct lp_value *n_bits)
{
    int mantissa = m->f == DT_F32 ? 23 : 52, bias = m->f == DT_F32 ? 127 : 1023;
    struct lp_value *shifted = lm_shlc(m, n_bits, mantissa);
    return lm_float(m, lm_add(m, shifted, lm_ci(m, (int64_t)bias << mantissa)));
}

struct lp_value *lm_exp_scale(struct lm *m, const struct lm_exp *e, int bias)
{
    struct lp_value *n = bias ? lm_addc(m, e->n_bits, bias) : e->n_bits;
    struct lp_value *half = lm_shrc(m, n, 1);
    /* Two factors, each a normal number: only the last product rounds. */
    struct lp_value *s = lm_pow2(m, half), *y = lm_fma(m, s, e->q, s);
    return lm_mul(m, y, lm_pow2(m, lm_sub(m, n, half)));
}

static struct lp_value *clamp(struct lm *m, struct lp_value *x, double lo, double hi)
{
    /* Comparisons in this form let a NaN through. */
    x = lm_select(m, lm_ltc(m, x, lo), lm_c(m, lo), x);
    return lm_select(m, lm_gtc(m, x, hi), lm_c(m, hi), x);
}

/*
 * e^x of f32 is 0 below the least normal number: a denormal result costs a microcode assist of some 150 cycles, and the
 * masked elements of a softmax all give one.
 */
#define EXP_LEAST_F32 (-0x1.5d589ep+6)

static struct lp_value *exp_flushed(struct lm *m, struct lp_value *x)
{
    struct lp_value *tiny = lm_ltc(m, x, EXP_LEAST_F32);
    x = lm_select(m, tiny, lm_c(m, EXP_LEAST_F32), x);
    x = lm_select(m, lm_gtc(m, x, 89), lm_c(m, 89), x);
    struct lm_exp e = lm_exp_parts(m, x, NULL);
    return lm_select(m, tiny, lm_c(m, 0), lm_exp_scale(m, &e, 0));
}

struct lp_value *lm_exp(struct lm *m, struct lp_value *x)
{
    if (m->f == DT_F32) return exp_flushed(m, x);
    struct lm_exp e = lm_exp_parts(m, clamp(m, x, -746, 710), NULL);
    return lm_exp_scale(m, &e, 0);
}

struct lp_value *lm_split(struct lm *m, struct lp_value *x, struct lp_value **e)
{
    bool f32 = m->f == DT_F32;
    int mantissa = f32 ? 23 : 52;
    struct lp_value *tiny = lm_ltc(m, x, f32 ? 0x1p-126 : 0x1p-1022);
    x = lm_select(m, tiny, lm_mulc(m, x, f32 ? 0x1p23 : 0x1p52), x);
    struct lp_value *bits = lm_bits(m, x);
    /* The exponent rounded so that the mantissa lies around 1. */
    struct lp_value *n = lm_sub(m, bits, lm_ci(m, f32 ? 0x3f3504f3 : 0x3fe6a09e667f3bcd));
    n = lm_shrc(m, n, mantissa);
    struct lp_value *f = lm_float(m, lm_sub(m, bits, lm_shlc(m, n, mantissa)));
    *e = lp_cast(&m->b, n, m->f);
    *e = lm_sub(m, *e, lm_select(m, tiny, lm_c(m, mantissa), lm_c(m, 0)));
    return f;
}

/* ---- f32 ---- */

static struct lp_value *log_f32(struct lm *m, struct lp_value *x)
{
    struct lp_value *e, *f = lm_subc(m, lm_split(m, x, &e), 1);
    struct lp_value *f2 = lm_mul(m, f, f);
    struct lp_value *y = lm_mul(m, lm_mul(m, f2, f), LM_POLY(m, f, fit_log_f32));
    y = lm_fma(m, e, lm_c(m, 0x1.7f7d1cp-20), y);
    y = lm_fma(m, f2, lm_c(m, -0.5), y);
    y = lm_add(m, f, y);
    y = lm_fma(m, e, lm_c(m, 0x1.62e4p-1), y);
    /* x + x: infinity for infinity, and for NaN itself. */
    struct lp_value *odd = lm_select(m, lm_eqc(m, x, 0), lm_c(m, -(double)INFINITY),
                                     lm_select(m, lm_ltc(m, x, 0), lm_c(m, (double)NAN), lm_add(m, x, x)));
    struct lp_value *plain = lm_and(m, lm_gtc(m, x, 0), lm_ltc(m, x, (double)INFINITY));
    return lm_select(m, plain, y, odd);
}

/* Near 0: |x| + |x|^3 p(x^2). Further out 1 - 2 / (e^2|x| + 1), where the exponential's error shrinks. */
static struct lp_value *tanh_f32(struct lm *m, struct lp_value *x)
{
    struct lp_value *a = lm_abs(m, x), *u = lm_mul(m, x, x);
    struct lp_value *near = lm_fma(m, lm_mul(m, a, u), LM_POLY(m, u, fit_tanh_f32), a);
    struct lp_value *far = lm_select(m, lm_gtc(m, a, 10), lm_c(m, 10), a);
    struct lm_exp e = lm_exp_parts(m, lm_add(m, far, far), NULL);
    struct lp_value *s = lm_pow2(m, e.n_bits);
    far = lm_addc(m, lm_fma(m, s, e.q, s), 1);
    far = lm_sub(m, lm_c(m, 1), lm_div(m, lm_c(m, 2), far));
    return lm_with_sign(m, lm_select(m, lm_ltc(m, a, 0.55), near, far), x);
}

/* With z = e^-|x| both halves are a division of numbers in [0, 2]: 1 / (1 + z) and z / (1 + z). */
static struct lp_value *sigmoid(struct lm *m, struct lp_value *x)
{
    struct lp_value *a = lm_neg(m, lm_abs(m, x)), *one = lm_c(m, 1);
    struct lp_value *z;
    if (m->f == DT_F32) {
        z = exp_flushed(m, a);
    } else {
        a = lm_select(m, lm_ltc(m, a, -746), lm_c(m, -746), a);
        struct lm_exp e = lm_exp_parts(m, a, NULL);
        z = lm_exp_scale(m, &e, 0);
    }
    return lm_div(m, lm_select(m, lm_ltc(m, x, 0), z, one), lm_add(m, z, one));
}

/* Near 0: x + x p(x^2). Further out 1 - e^-g(|x|); the error of the exponential shrinks with its size. */
static struct lp_value *erf_f32(struct lm *m, struct lp_value *x)
{
    struct lp_value *a = lm_abs(m, x);
    struct lp_value *near = LM_POLY(m, lm_mul(m, x, x), fit_erf_small_f32);
    near = lm_fma(m, x, near, x);
    struct lp_value *far = lm_select(m, lm_gtc(m, a, 4), lm_c(m, 4), a);
    struct lm_exp e = lm_exp_parts(m, lm_neg(m, LM_POLY(m, far, fit_erf_large_f32)), NULL);
    struct lp_value *s = lm_pow2(m, e.n_bits);
    far = lm_sub(m, lm_c(m, 1), lm_fma(m, s, e.q, s));
    return lm_select(m, lm_ltc(m, a, 0.925), near, lm_with_sign(m, far, x));
}

/*
 * 1 + erf x, as GELU has it: only the sum's error counts, so that one polynomial over all of [-4, 4] serves, and takes half
 * of erf's time. Beyond, it is exactly 0 and 2, as at the ends: x is 4 and the polynomial 1/4 there.
 */
static struct lp_value *one_plus_erf_f32(struct lm *m, struct lp_value *x)
{
    x = lm_select(m, lm_gtc(m, x, 4), lm_c(m, 4), x);
    x = lm_select(m, lm_ltc(m, x, -4), lm_c(m, -4), x);
    struct lp_value *u = lm_fma(m, lm_mul(m, x, x), lm_c(m, 0.125), lm_c(m, -1));
    return lm_fma(m, x, LM_POLY(m, u, fit_erf_wide_f32), lm_c(m, 1));
}

/*
 * |x| in quarter turns, exactly enough for every f32: 1/(2 pi) in chunks of 29 bits, whose products with 24 bits are
 * exact in f64; whole turns drop out of each product. The angle left, in [-pi/4, pi/4], is returned as f64; *n: quarter
 * turns, in the low bits.
 */
static struct lp_value *reduce_angle(struct lm *m, struct lp_value *a, struct lp_value **n)
{
    static const double chunks[] = {0x1.45f306dp-3,    0x1.9391054p-32,   0x1.4fe13abp-61,  0x1.d1f534dp-90,
                                    0x1.b81b6c5p-119,  0x1.5993c4p-150,   0x1.c820ff2p-177};
    struct lm d = {.b = m->b, .f = DT_F64, .bits = DT_I64};
    struct lp_value *x = lp_cast(&d.b, a, DT_F64), *turns = NULL;
    for (size_t i = ARRAY_LEN(chunks); i-- > 0;) {
        struct lp_value *p = lm_mulc(&d, x, chunks[i]);
        p = lm_sub(&d, p, lm_round(&d, p));
        turns = turns ? lm_add(&d, turns, p) : p;
    }
    struct lp_value *quarters = lm_mulc(&d, turns, 4), *whole = lm_round(&d, quarters);
    /* At most 13 quarters: the integer shows in the low bits of an f32 just as well. */
    *n = lm_bits(m, lm_addc(m, lp_cast(&m->b, whole, DT_F32), 0x1.8p23));
    return lm_mulc(&d, lm_sub(&d, quarters, whole), 0x1.921fb54442d18p+0);
}

static struct lp_value *sin_cos_f32(struct lm *m, struct lp_value *x, bool cosine)
{
    struct lp_value *n, *r = lp_cast(&m->b, reduce_angle(m, lm_abs(m, x), &n), DT_F32);
    struct lp_value *r2 = lm_mul(m, r, r);
    struct lp_value *s = lm_mul(m, lm_mul(m, r2, r), LM_POLY(m, r2, fit_sin_f32));
    s = lm_add(m, r, s);
    struct lp_value *c = lm_mul(m, lm_mul(m, r2, r2), LM_POLY(m, r2, fit_cos_f32));
    c = lm_add(m, lm_fma(m, r2, lm_c(m, -0.5), c), lm_c(m, 1));
    if (cosine) n = lm_addc(m, n, 1);
    struct lp_value *y = lm_select(m, lm_nec(m, lm_andc(m, n, 1), 0), c, s);
    struct lp_value *sign = lm_shlc(m, lm_andc(m, n, 2), 30);
    if (!cosine) sign = lm_xor(m, sign, sign_bit(m, x));
    return lm_float(m, lm_xor(m, lm_bits(m, y), sign));
}

static struct lp_value *tan_f32(struct lm *m, struct lp_value *x)
{
    struct lp_value *n, *r = reduce_angle(m, lm_abs(m, x), &n);
    struct lp_value *odd = lm_nec(m, lm_andc(m, n, 1), 0);
    struct lm d = {.b = m->b, .f = DT_F64, .bits = DT_I64};
    return lp_cast(&m->b, lm_tan_reduced(&d, r, odd, lp_cast(&d.b, x, DT_F64)), DT_F32);
}

static struct lp_value *unary_f32(struct lm *m, enum lp_opcode code, struct lp_value *x)
{
    switch (code) {
    case LP_OP_EXP: return lm_exp(m, x);
    case LP_OP_LOG: return log_f32(m, x);
    case LP_OP_TANH: return tanh_f32(m, x);
    case LP_OP_SIGMOID: return sigmoid(m, x);
    case LP_OP_ERF: return erf_f32(m, x);
    case LP_OP_SIN: return sin_cos_f32(m, x, false);
    case LP_OP_COS: return sin_cos_f32(m, x, true);
    case LP_OP_TAN: return tan_f32(m, x);
    default: break;
    }
    struct lm d = {.b = m->b, .f = DT_F64, .bits = DT_I64};
    return lp_cast(&m->b, lm_unary_f64(&d, code, lp_cast(&d.b, x, DT_F64)), DT_F32);
}

/* ---- powers ---- */

/* x^n by squaring, n >= 1. */
static struct lp_value *power(struct lm *m, struct lp_value *x, int n)
{
    struct lp_value *r = NULL;
    for (; n; n >>= 1) {
        if (n & 1) r = r ? lm_mul(m, r, x) : x;
        if (n > 1) x = lm_mul(m, x, x);
    }
    return r;
}

/* A constant exponent, also through splat and casts of floats. */
static bool const_exponent(const struct lp_value *y, double *out)
{
    while (y->def && (y->def->code == LP_OP_SPLAT || y->def->code == LP_OP_CAST)) y = y->def->operands[0];
    if (!y->def || y->def->code != LP_OP_CONST) return false;
    *out = dtype_is_float(y->type.dtype) ? y->def->fimm : (double)y->def->imm;
    return true;
}

/* x to a small constant integer or to 1/2; NULL for other exponents. */
static struct lp_value *pow_const(struct lm *m, struct lp_value *x, double e)
{
    if (e == 0.5) {
        /* Unlike the square root: infinity at -infinity, +0 at -0. */
        struct lp_value *low = lm_eqc(m, x, -(double)INFINITY);
        return lm_select(m, low, lm_c(m, (double)INFINITY), lm_sqrt(m, lm_addc(m, x, 0)));
    }
    if (e == -1) return lm_div(m, lm_c(m, 1), x);
    if (e == -2) return lm_div(m, lm_c(m, 1), lm_mul(m, x, x));
    return e == 1 || e == 2 || e == 3 || e == 4 ? power(m, x, (int)e) : NULL;
}

static struct lp_value *pow_float(struct lm *m, struct lp_value *x, struct lp_value *y)
{
    double e;
    struct lp_type t;
    bool fits = lp_broadcast(x->type, y->type, &t);
    INFC_ASSERT(fits);
    struct lp_value *r = const_exponent(y, &e) ? pow_const(m, x, e) : NULL;
    if (r) return lp_splat(&m->b, r, t.rows, t.cols);
    if (m->f == DT_F64) return lm_pow_f64(m, x, y, true);
    struct lm d = {.b = m->b, .f = DT_F64, .bits = DT_I64};
    r = lm_pow_f64(&d, lp_cast(&d.b, x, DT_F64), lp_cast(&d.b, y, DT_F64), false);
    return lp_cast(&m->b, r, DT_F32);
}

/* By squaring over the exponent's bits; all lanes take as many steps as the type has bits. */
static struct lp_value *pow_int(struct lp_builder *b, struct lp_value *x, struct lp_value *y)
{
    enum dtype d = x->type.dtype;
    struct lp_type t = {.dtype = d};
    bool fits = lp_broadcast(x->type, y->type, &t);
    INFC_ASSERT(fits);
    struct lp_value *one = lp_const_i(b, lp_scalar(d), 1), *zero = lp_const_i(b, lp_scalar(d), 0);
    struct lp_value *init[3] = {lp_splat(b, one, t.rows, t.cols), lp_splat(b, x, t.rows, t.cols),
                                lp_splat(b, y, t.rows, t.cols)};
    struct lp_op *loop = lp_for_begin(b, LP_LOOP_SERIAL, lp_index(b, 0), lp_index(b, (int64_t)dtype_bits(d)), 1, 3, init);
    struct lp_value **v = loop->regions[0]->args + 1, *next[3];
    struct lp_value *odd = lp_binary(b, LP_OP_NE, lp_binary(b, LP_OP_AND, v[2], one), zero);
    next[0] = lp_select(b, odd, lp_binary(b, LP_OP_MUL, v[0], v[1]), v[0]);
    next[1] = lp_binary(b, LP_OP_MUL, v[1], v[1]);
    next[2] = lp_binary(b, LP_OP_SHR, v[2], one);
    lp_for_end(b, loop, next);
    struct lp_value *r = loop->results[0];
    if (dtype_class(d) != DTC_SINT) return r;
    /* A negative exponent: 1 and -1 stay what they are (but for the sign), all else is 0. */
    struct lp_value *minus = lp_const_i(b, lp_scalar(d), -1);
    struct lp_value *odd_y = lp_binary(b, LP_OP_NE, lp_binary(b, LP_OP_AND, y, one), zero);
    struct lp_value *flip = lp_select(b, odd_y, minus, one);
    struct lp_value *inv = lp_select(b, lp_binary(b, LP_OP_EQ, x, minus), flip, zero);
    inv = lp_select(b, lp_binary(b, LP_OP_EQ, x, one), one, inv);
    return lp_select(b, lp_binary(b, LP_OP_LT, y, zero), inv, r);
}

/* ---- the pass ---- */

static struct lp_value *expand(struct lp_builder *b, const struct lp_op *op)
{
    struct lp_value *x = op->operands[0];
    enum dtype d = x->type.dtype;
    if (dtype_is_int(d)) return pow_int(b, x, op->operands[1]);
    struct lm m = {.b = *b, .f = d == DT_F64 ? DT_F64 : DT_F32};
    m.bits = m.f == DT_F64 ? DT_I64 : DT_I32;
    x = lp_cast(b, x, m.f);
    struct lp_value *r;
    if (op->code == LP_OP_POW) r = pow_float(&m, x, lp_cast(b, op->operands[1], m.f));
    else if (m.f == DT_F32) r = unary_f32(&m, op->code, x);
    else if (op->code == LP_OP_SIGMOID) r = sigmoid(&m, x);
    else r = lm_unary_f64(&m, op->code, x);
    return lp_cast(b, r, d);
}

static bool is_one(const struct lp_value *v)
{
    double one;
    return const_exponent(v, &one) && one == 1;
}

/* The operand of erf, when op is 1 + erf x in f32; erf itself then may have no use left. */
static struct lp_value *erf_plus_one(const struct lp_op *op)
{
    if (op->code != LP_OP_ADD || op->results[0]->type.dtype != DT_F32) return NULL;
    for (int i = 0; i < 2; i++) {
        const struct lp_value *v = op->operands[i], *t = op->results[0];
        bool same = v->type.rows == t->type.rows && v->type.cols == t->type.cols;
        if (same && v->def && v->def->code == LP_OP_ERF && is_one(op->operands[1 - i])) return v->def->operands[0];
    }
    return NULL;
}

static void expand_block(struct lp_kernel *k, struct lp_block *block)
{
    for (int i = 0; i < block->n_args; i++) block->args[i]->aux = NULL;
    for (struct lp_op *op = block->first, *next; op; op = next) {
        next = op->next;
        struct lp_value *erf_of = erf_plus_one(op);
        /* aux of a value: what stands in its place. */
        for (int i = 0; i < op->n_operands; i++)
            if (op->operands[i]->aux) op->operands[i] = op->operands[i]->aux;
        for (int i = 0; i < op->n_results; i++) op->results[i]->aux = NULL;
        for (int i = 0; i < op->n_regions; i++) expand_block(k, op->regions[i]);
        if (!(lp_op_flags(op->code) & LP_F_MATH) && !erf_of) continue;
        struct lp_block fresh = {0};
        struct lp_builder b = {.k = k, .block = &fresh};
        struct lm m = {.b = b, .f = DT_F32, .bits = DT_I32};
        op->results[0]->aux = erf_of ? one_plus_erf_f32(&m, erf_of) : expand(&b, op);
        lp_splice_before(op, &fresh);
        lp_unlink(op);
    }
}

void lp_expand_math(struct lp_kernel *k) { expand_block(k, k->body); }
