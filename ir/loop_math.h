// SPDX-License-Identifier: Apache-2.0
/*
 * Private to ir/loop_math*.c: a small language for writing branch-free formulas over loop-IR values. All functions
 * append to m->b. Constants are scalars and broadcast against tiles.
 */
#ifndef INFC_IR_LOOP_MATH_H
#define INFC_IR_LOOP_MATH_H

#include "ir/loop.h"

struct lm {
    struct lp_builder b;
    enum dtype f;    /* type of the computation: DT_F32 or DT_F64 */
    enum dtype bits; /* integers of that width: DT_I32 or DT_I64 */
};

static inline struct lp_value *lm_c(struct lm *m, double v) { return lp_const_f(&m->b, lp_scalar(m->f), v); }
static inline struct lp_value *lm_ci(struct lm *m, int64_t v) { return lp_const_i(&m->b, lp_scalar(m->bits), v); }

#define LM_BINARY(name, CODE)                                                                                         \
    static inline struct lp_value *lm_##name(struct lm *m, struct lp_value *x, struct lp_value *y)                    \
    {                                                                                                                 \
        return lp_binary(&m->b, LP_OP_##CODE, x, y);                                                                  \
    }                                                                                                                 \
    static inline struct lp_value *lm_##name##c(struct lm *m, struct lp_value *x, double c)                           \
    {                                                                                                                 \
        return lp_binary(&m->b, LP_OP_##CODE, x, dtype_is_float(x->type.dtype) ? lm_c(m, c) : lm_ci(m, (int64_t)c));  \
    }
LM_BINARY(add, ADD)
LM_BINARY(sub, SUB)
LM_BINARY(mul, MUL)
LM_BINARY(div, DIV)
LM_BINARY(and, AND)
LM_BINARY(or, OR)
LM_BINARY(xor, XOR)
LM_BINARY(shl, SHL)
LM_BINARY(shr, SHR)
LM_BINARY(eq, EQ)
LM_BINARY(ne, NE)
LM_BINARY(lt, LT)
LM_BINARY(gt, GT)
LM_BINARY(ge, GE)
#undef LM_BINARY

static inline struct lp_value *lm_fma(struct lm *m, struct lp_value *x, struct lp_value *y, struct lp_value *z)
{
    return lp_fma(&m->b, x, y, z);
}
static inline struct lp_value *lm_select(struct lm *m, struct lp_value *c, struct lp_value *x, struct lp_value *y)
{
    return lp_select(&m->b, c, x, y);
}
static inline struct lp_value *lm_abs(struct lm *m, struct lp_value *x) { return lp_unary(&m->b, LP_OP_ABS, x); }
static inline struct lp_value *lm_neg(struct lm *m, struct lp_value *x) { return lp_unary(&m->b, LP_OP_NEG, x); }
static inline struct lp_value *lm_sqrt(struct lm *m, struct lp_value *x) { return lp_unary(&m->b, LP_OP_SQRT, x); }
static inline struct lp_value *lm_round(struct lm *m, struct lp_value *x) { return lp_unary(&m->b, LP_OP_ROUND, x); }
static inline struct lp_value *lm_bits(struct lm *m, struct lp_value *x) { return lp_bitcast(&m->b, x, m->bits); }
static inline struct lp_value *lm_float(struct lm *m, struct lp_value *x) { return lp_bitcast(&m->b, x, m->f); }

/* c[0] + c[1] x + .. by Horner's rule. */
struct lp_value *lm_poly(struct lm *m, struct lp_value *x, const double *c, size_t n);
#define LM_POLY(m, x, table) lm_poly((m), (x), (table), ARRAY_LEN(table))
/* y with its sign bit taken from s (y's own is clear). */
struct lp_value *lm_with_sign(struct lm *m, struct lp_value *y, struct lp_value *s);

/*
 * e^x = 2^n (1 + q), |q| < 0.42, for |x| < 2^9 (f32) or 2^11 (f64): n both as a float and as an integer. NaN gives a
 * NaN q.
 */
struct lm_exp {
    struct lp_value *n, *n_bits, *q;
};
struct lm_exp lm_exp_parts(struct lm *m, struct lp_value *x, struct lp_value *x_low /* added to x; may be NULL */);
/* 2^n for integers n in the range of normal numbers. */
struct lp_value *lm_pow2(struct lm *m, struct lp_value *n_bits);
/* (1 + q) 2^(n + bias) with gradual underflow and overflow to infinity; n + bias within about twice the exponent range. */
struct lp_value *lm_exp_scale(struct lm *m, const struct lm_exp *e, int bias);
struct lp_value *lm_exp(struct lm *m, struct lp_value *x);
/* x >= 0 = 2^e f with f in [sqrt 1/2, sqrt 2); subnormal x too. */
struct lp_value *lm_split(struct lm *m, struct lp_value *x, struct lp_value **e);

/* ir/loop_math_f64.c: f64 forms; NULL when code is not one of them. m->f is DT_F64. */
struct lp_value *lm_unary_f64(struct lm *m, enum lp_opcode code, struct lp_value *x);
struct lp_value *lm_log_f64(struct lm *m, struct lp_value *x);
/* tan x from |x| = n pi/2 + r, whether n is odd, and x (for its sign). */
struct lp_value *lm_tan_reduced(struct lm *m, struct lp_value *r, struct lp_value *odd, struct lp_value *x);
/* precise: errors stay about 1 ulp of f64; else about 2^-42, enough for f32. */
struct lp_value *lm_pow_f64(struct lm *m, struct lp_value *x, struct lp_value *y, bool precise);

#endif
