// SPDX-License-Identifier: Apache-2.0
#include "passes/expr_num.h"

#include <math.h>

struct lp_value *num_f(struct expr_ctx *c, double v) { return lp_const_f(&c->b, lp_scalar(DT_F64), v); }

bool num_is_const(const struct lp_value *v, double *out)
{
    if (!v->def || v->def->code != LP_OP_CONST || !dtype_is_float(v->type.dtype)) return false;
    *out = v->def->fimm;
    return true;
}

static double fold(enum lp_opcode code, double a, double b)
{
    switch (code) {
    case LP_OP_ADD: return a + b;
    case LP_OP_SUB: return a - b;
    case LP_OP_MUL: return a * b;
    case LP_OP_DIV: return a / b;
    case LP_OP_MIN: return a < b ? a : b;
    default: return a > b ? a : b;
    }
}

struct lp_value *num_op(struct expr_ctx *c, enum lp_opcode code, struct lp_value *a, struct lp_value *b)
{
    double x = 0, y = 0;
    bool ka = num_is_const(a, &x), kb = num_is_const(b, &y);
    if (ka && kb && a->type.dtype == DT_F64) return num_f(c, fold(code, x, y));
    if (kb && y == 0 && code == LP_OP_SUB) return a;
    if (kb && y == 1 && (code == LP_OP_MUL || code == LP_OP_DIV)) return a;
    if (ka && x == 1 && code == LP_OP_MUL) return b;
    if (kb && code == LP_OP_DIV) { /* by a power of two: exact as a product */
        int e;
        if (fabs(frexp(y, &e)) == 0.5 && e > -100 && e < 100)
            return lp_binary(&c->b, LP_OP_MUL, a, lp_const_f(&c->b, b->type, 1 / y));
    }
    return lp_binary(&c->b, code, a, b);
}

struct lp_value *num_opc(struct expr_ctx *c, enum lp_opcode code, struct lp_value *a, double b)
{
    return num_op(c, code, a, lp_const_f(&c->b, lp_scalar(a->type.dtype), b));
}

/* i32 converts to and from floats in vectors on every level, i64 does not. */
static bool fits_i32(const struct dim *d) { return d->lo >= 0 && d->hi <= INT32_MAX; }

struct lp_value *num_of_index(struct expr_ctx *c, struct lp_value *i, const struct dim *d)
{
    int64_t k;
    if (lp_is_const(i, &k)) return num_f(c, (double)k);
    if (fits_i32(d)) i = lp_cast(&c->b, i, DT_I32);
    return lp_cast(&c->b, i, DT_F64);
}

struct lp_value *num_of_dim(struct expr_ctx *c, const struct dim *d)
{
    if (dim_is_const(d)) return num_f(c, (double)d->value);
    return lp_cast(&c->b, expr_dim(c, d), DT_F64);
}

struct lp_value *num_to_index(struct expr_ctx *c, struct lp_value *v, const struct dim *d)
{
    if (dim_is(d, 1)) return c->zero;
    v = lp_binary(&c->b, LP_OP_MAX, v, lp_const_f(&c->b, lp_scalar(v->type.dtype), 0));
    v = lp_binary(&c->b, LP_OP_MIN, v, lp_cast(&c->b, num_opc(c, LP_OP_SUB, num_of_dim(c, d), 1), v->type.dtype));
    if (fits_i32(d)) v = lp_cast(&c->b, v, DT_I32);
    return lp_cast(&c->b, v, DT_I64);
}

enum dtype num_acc(enum dtype t)
{
    if (!dtype_is_float(t) || t == DT_F64) return DT_F64;
    return DT_F32;
}
