// SPDX-License-Identifier: Apache-2.0
/* Core of the indexed expressions: dispatch, memo, index arithmetic, pointwise ops, constants. */
#include "passes/expr.h"

#include <math.h>
#include <string.h>

struct expr_memo {
    const struct ir_value *value;
    struct lp_value *idx[IR_MAX_RANK];
    struct lp_value *result;
};

void expr_init(struct expr_ctx *c, struct ir_module *m, struct lp_kernel *k, const struct target_level *level,
               struct diag_sink *diag)
{
    *c = (struct expr_ctx){.m = m, .k = k, .b = {k, k->body}, .diag = diag, .level = level};
    map_init(&c->bufs, &k->arena);
    c->zero = lp_index(&c->b, 0);
    c->one = lp_index(&c->b, 1);
}

void expr_bind(struct expr_ctx *c, const struct ir_value *v, int buf)
{
    map_put(&c->bufs, &v->id, sizeof v->id, (void *)(intptr_t)(buf + 1));
}

int expr_buf(const struct expr_ctx *c, const struct ir_value *v)
{
    return (int)(intptr_t)map_find(&c->bufs, &v->id, sizeof v->id) - 1;
}

void expr_override(struct expr_ctx *c, const struct ir_value *v,
                   struct lp_value *(*fn)(void *, struct lp_value *const *), void *ctx)
{
    struct expr_override o = {v, fn, ctx};
    vec_push(&c->k->arena, &c->overrides, o);
}

size_t expr_scope_push(struct expr_ctx *c) { return c->memo.n; }

void expr_scope_pop(struct expr_ctx *c, size_t mark) { c->memo.n = mark; }

struct lp_op *expr_for_begin(struct expr_ctx *c, enum lp_loop_kind kind, struct lp_value *lo, struct lp_value *hi,
                             int64_t step, int n_carried, struct lp_value *const *init)
{
    struct lp_op *loop = lp_for_begin(&c->b, kind, lo, hi, step, n_carried, init);
    loop->imm = step;
    /* The mark rides on the counter's aux: loops nest, so no other pass sees it. */
    loop->regions[0]->args[0]->aux = (void *)(uintptr_t)expr_scope_push(c);
    return loop;
}

void expr_for_end(struct expr_ctx *c, struct lp_op *loop, struct lp_value *const *yields)
{
    expr_scope_pop(c, (size_t)(uintptr_t)loop->regions[0]->args[0]->aux);
    loop->regions[0]->args[0]->aux = NULL;
    lp_for_end(&c->b, loop, yields);
}

/* ---- index arithmetic ---- */

struct lp_value *expr_dim(struct expr_ctx *c, const struct dim *d)
{
    if (dim_is(d, 0)) return c->zero;
    if (dim_is(d, 1)) return c->one;
    return lp_dim(&c->b, d);
}

struct lp_value *expr_iadd(struct expr_ctx *c, struct lp_value *a, struct lp_value *b)
{
    if (a == c->zero) return b;
    if (b == c->zero) return a;
    return lp_binary(&c->b, LP_OP_ADD, a, b);
}

struct lp_value *expr_imul(struct expr_ctx *c, struct lp_value *a, struct lp_value *b)
{
    if (a == c->zero || b == c->zero) return c->zero;
    if (a == c->one) return b;
    if (b == c->one) return a;
    return lp_binary(&c->b, LP_OP_MUL, a, b);
}

struct lp_value *expr_linear(struct expr_ctx *c, int rank, const struct dim *const *dims, struct lp_value *const *idx)
{
    struct lp_value *lin = c->zero;
    for (int i = 0; i < rank; i++) lin = expr_iadd(c, expr_imul(c, lin, expr_dim(c, dims[i])), idx[i]);
    return lin;
}

void expr_delinear(struct expr_ctx *c, struct lp_value *linear, int rank, const struct dim *const *dims,
                   struct lp_value **idx)
{
    for (int i = rank - 1; i >= 0; i--) {
        if (dim_is(dims[i], 1)) {
            idx[i] = c->zero;
            continue;
        }
        bool last = true; /* all outer dims are 1: no quotient needed */
        for (int j = 0; j < i; j++) last = last && dim_is(dims[j], 1);
        if (last) {
            idx[i] = linear;
            linear = c->zero;
            continue;
        }
        struct lp_value *d = expr_dim(c, dims[i]);
        idx[i] = lp_binary(&c->b, LP_OP_MOD, linear, d);
        linear = lp_binary(&c->b, LP_OP_FLOORDIV, linear, d);
    }
}

struct lp_value *expr_clamp(struct expr_ctx *c, struct lp_value *x, const struct dim *d)
{
    if (dim_is(d, 1)) return c->zero;
    struct lp_value *top = lp_dim(&c->b, dim_addc(c->m->dims, d, -1));
    return lp_binary(&c->b, LP_OP_MIN, lp_binary(&c->b, LP_OP_MAX, x, c->zero), top);
}

struct lp_value *expr_in_bounds(struct expr_ctx *c, struct lp_value *x, const struct dim *d)
{
    return lp_binary(&c->b, LP_OP_AND, lp_binary(&c->b, LP_OP_GE, x, c->zero),
                     lp_binary(&c->b, LP_OP_LT, x, expr_dim(c, d)));
}

struct lp_value *expr_wrap_index(struct expr_ctx *c, struct lp_value *i, const struct dim *d)
{
    i = lp_cast(&c->b, i, DT_I64);
    struct lp_value *neg = lp_binary(&c->b, LP_OP_LT, i, c->zero);
    i = lp_select(&c->b, neg, lp_binary(&c->b, LP_OP_ADD, i, expr_dim(c, d)), i);
    return expr_clamp(c, i, d);
}

void expr_broadcast_idx(struct expr_ctx *c, const struct ir_type *t, int r, const struct dim *const *rdims,
                        struct lp_value *const *idx, struct lp_value **out)
{
    for (int i = 0; i < t->rank; i++) {
        int j = r - t->rank + i;
        if (dim_is(t->dims[i], 1) && !dim_is(rdims[j], 1)) out[i] = c->zero;
        else out[i] = idx[j];
    }
}

/* ---- dispatch ---- */

expr_fn *expr_find(enum ir_opcode code)
{
    static expr_fn *const table[IR_OP_COUNT] = {
#define EXPR(ID, name) [IR_OP_##ID] = expr_##name,
#include "passes/expr.def"
#undef EXPR
    };
    return table[code];
}

static struct lp_value *zero_of(struct expr_ctx *c, enum dtype d)
{
    if (dtype_is_float(d)) return lp_const_f(&c->b, lp_scalar(d), 0.0);
    return lp_const_i(&c->b, lp_scalar(d), 0);
}

static struct lp_value *pointwise_at(struct expr_ctx *c, const struct ir_op *op, struct lp_value *const *idx)
{
    const struct ir_type *t = &op->results[0].type;
    struct lp_value *args[4];
    INFC_ASSERT(op->n_operands <= 4);
    for (int i = 0; i < op->n_operands; i++) {
        const struct ir_value *v = ir_operand(op, i);
        struct lp_value *sub[IR_MAX_RANK];
        expr_broadcast_idx(c, &v->type, t->rank, t->dims, idx, sub);
        args[i] = expr_at(c, v, sub);
    }
    return expr_pointwise(c, op, args);
}

struct lp_value *expr_at(struct expr_ctx *c, const struct ir_value *v, struct lp_value *const *idx)
{
    int rank = v->type.rank;
    for (size_t i = c->overrides.n; i-- > 0;)
        if (c->overrides.v[i].value == v) return c->overrides.v[i].fn(c->overrides.v[i].ctx, idx);
    for (size_t i = c->memo.n; i-- > 0;) {
        const struct expr_memo *e = &c->memo.v[i];
        if (e->value == v && !memcmp(e->idx, idx, (size_t)rank * sizeof *idx)) return e->result;
    }
    struct expr_memo e = {.value = v};
    if (rank) memcpy(e.idx, idx, (size_t)rank * sizeof *idx);
    int buf = expr_buf(c, v);
    const struct ir_op *op = v->def;
    if (buf >= 0) {
        e.result = lp_load(&c->b, buf, idx);
    } else if (op && (ir_op_traits(op) & IR_T_PW)) {
        e.result = pointwise_at(c, op, idx);
    } else if (op && expr_find(op->code)) {
        e.result = expr_find(op->code)(c, op, v->index, idx);
    } else {
        diag_report(c->diag, DIAG_NO_LOWERING, op && op->loc ? op->loc->text : NULL,
                    "operation '%s' has no lowering", op ? ir_op_name(op->code) : "argument");
        c->failed = true;
        e.result = zero_of(c, v->type.dtype);
    }
    vec_push(&c->k->arena, &c->memo, e);
    return e.result;
}

/* ---- pointwise ---- */

static const unsigned char same_code[IR_OP_COUNT] = {
#define SAME(ID) [IR_OP_##ID] = LP_OP_##ID
    SAME(NEG),   SAME(ABS),  SAME(FLOOR), SAME(CEIL), SAME(ROUND), SAME(SQRT), SAME(EXP),   SAME(LOG),
    SAME(SIN),   SAME(COS),  SAME(TAN),   SAME(ASIN), SAME(ACOS),  SAME(ATAN), SAME(SINH),  SAME(COSH),
    SAME(TANH),  SAME(ASINH), SAME(ACOSH), SAME(ATANH), SAME(ERF), SAME(SIGMOID), SAME(NOT), SAME(ADD),
    SAME(SUB),   SAME(MUL),  SAME(DIV),   SAME(REM),  SAME(MOD),   SAME(MIN),  SAME(MAX),   SAME(AND),
    SAME(OR),    SAME(XOR),  SAME(SHL),   SAME(SHR),  SAME(EQ),    SAME(NE),   SAME(LT),    SAME(LE),
    SAME(GT),    SAME(GE),
#undef SAME
};

static struct lp_value *const_like(struct expr_ctx *c, const struct lp_value *x, double f)
{
    return dtype_is_float(x->type.dtype) ? lp_const_f(&c->b, x->type, f) : lp_const_i(&c->b, x->type, (int64_t)f);
}

static struct lp_value *sign_of(struct expr_ctx *c, struct lp_value *x)
{
    struct lp_value *zero = const_like(c, x, 0), *one = const_like(c, x, 1);
    struct lp_value *r = lp_select(&c->b, lp_binary(&c->b, LP_OP_GT, x, zero), one, zero);
    if (dtype_is_signed(x->type.dtype))
        r = lp_select(&c->b, lp_binary(&c->b, LP_OP_LT, x, zero), const_like(c, x, -1), r);
    if (!dtype_is_float(x->type.dtype)) return r;
    return lp_select(&c->b, lp_binary(&c->b, LP_OP_NE, x, x), x, r);
}

static struct lp_value *is_inf(struct expr_ctx *c, const struct ir_op *op, struct lp_value *x)
{
    struct lp_value *inf = const_like(c, x, (double)INFINITY), *ninf = const_like(c, x, (double)-INFINITY);
    struct lp_value *r = lp_const_i(&c->b, (struct lp_type){DT_BOOL, x->type.rows, x->type.cols}, 0);
    if (ir_attr_int(op, "positive", 1)) r = lp_binary(&c->b, LP_OP_OR, r, lp_binary(&c->b, LP_OP_EQ, x, inf));
    if (ir_attr_int(op, "negative", 1)) r = lp_binary(&c->b, LP_OP_OR, r, lp_binary(&c->b, LP_OP_EQ, x, ninf));
    return r;
}

/* Integer power by squaring, wrapping; negative exponents give 1/x truncated: 0 except for base 1 and -1. */
static struct lp_value *int_pow(struct expr_ctx *c, struct lp_value *x, struct lp_value *e)
{
    struct lp_builder *b = &c->b;
    struct lp_type ti = {DT_I64, x->type.rows, x->type.cols};
    struct lp_value *base = lp_cast(b, x, DT_I64), *exp = lp_cast(b, e, DT_I64);
    struct lp_value *one = lp_const_i(b, ti, 1), *zero = lp_const_i(b, ti, 0);
    struct lp_value *neg = lp_binary(b, LP_OP_LT, exp, zero);
    struct lp_value *abs_exp = lp_select(b, neg, zero, exp);
    struct lp_value *init[] = {lp_splat(b, one, ti.rows, ti.cols), base, abs_exp};
    struct lp_op *loop = lp_for_begin(b, LP_LOOP_SERIAL, lp_index(b, 0), lp_index(b, 63), 1, 3, init);
    struct lp_value *acc = loop->regions[0]->args[1], *sq = loop->regions[0]->args[2], *left = loop->regions[0]->args[3];
    struct lp_value *odd = lp_binary(b, LP_OP_NE, lp_binary(b, LP_OP_AND, left, one), zero);
    struct lp_value *yields[] = {lp_select(b, odd, lp_binary(b, LP_OP_MUL, acc, sq), acc), lp_binary(b, LP_OP_MUL, sq, sq),
                                 lp_binary(b, LP_OP_SHR, left, one)};
    lp_for_end(b, loop, yields);
    struct lp_value *minus = lp_const_i(b, ti, -1);
    struct lp_value *even = lp_binary(b, LP_OP_EQ, lp_binary(b, LP_OP_AND, exp, one), zero);
    struct lp_value *inv = lp_select(b, lp_binary(b, LP_OP_EQ, base, one), one,
                                     lp_select(b, lp_binary(b, LP_OP_EQ, base, minus), lp_select(b, even, one, minus), zero));
    return lp_cast(b, lp_select(b, neg, inv, loop->results[0]), x->type.dtype);
}

/* x^e with special constant exponents kept exact and cheap. */
static struct lp_value *power(struct expr_ctx *c, struct lp_value *x, struct lp_value *e)
{
    enum dtype t = x->type.dtype;
    if (!dtype_is_float(t)) {
        if (!dtype_is_float(e->type.dtype)) return int_pow(c, x, e);
        struct lp_value *r = lp_binary(&c->b, LP_OP_POW, lp_cast(&c->b, x, DT_F64), lp_cast(&c->b, e, DT_F64));
        return lp_cast(&c->b, r, t);
    }
    if (e->def && e->def->code == LP_OP_CONST) {
        double v = dtype_is_float(e->type.dtype) ? e->def->fimm : (double)e->def->imm;
        if (v == 2.0) return lp_binary(&c->b, LP_OP_MUL, x, x);
        if (v == 1.0) return x;
        if (v == 0.5) return lp_unary(&c->b, LP_OP_SQRT, x);
        if (v == 3.0) return lp_binary(&c->b, LP_OP_MUL, lp_binary(&c->b, LP_OP_MUL, x, x), x);
        if (v == -1.0) return lp_binary(&c->b, LP_OP_DIV, const_like(c, x, 1), x);
    }
    return lp_binary(&c->b, LP_OP_POW, x, lp_cast(&c->b, e, t));
}

struct lp_value *expr_pointwise(struct expr_ctx *c, const struct ir_op *op, struct lp_value *const *a)
{
    switch (op->code) {
    case IR_OP_SIGN: return sign_of(c, a[0]);
    case IR_OP_ISNAN: return lp_binary(&c->b, LP_OP_NE, a[0], a[0]);
    case IR_OP_ISINF: return is_inf(c, op, a[0]);
    case IR_OP_CAST: return lp_cast(&c->b, a[0], op->results[0].type.dtype);
    case IR_OP_BITCAST: { /* a bool's byte is 0 or 1: reading it as a number is the cast */
        enum dtype to = op->results[0].type.dtype;
        if (a[0]->type.dtype == DT_BOOL || to == DT_BOOL) return lp_cast(&c->b, a[0], to);
        return lp_bitcast(&c->b, a[0], to);
    }
    case IR_OP_POW: return power(c, a[0], a[1]);
    case IR_OP_SELECT: return lp_select(&c->b, a[0], a[1], a[2]);
    default: break;
    }
    enum lp_opcode code = (enum lp_opcode)same_code[op->code];
    INFC_ASSERT(code != LP_OP_CONST);
    return op->n_operands == 1 ? lp_unary(&c->b, code, a[0]) : lp_binary(&c->b, code, a[0], a[1]);
}

/* ---- constants and indices ---- */

struct lp_value *expr_constant(struct expr_ctx *c, const struct ir_op *op, int r, struct lp_value *const *idx)
{
    (void)r, (void)idx;
    const struct ir_const *k = ir_attr_const(op, "value");
    struct lp_type t = lp_scalar(k->type.dtype);
    int64_t i = 0;
    double f = 0;
    int64_t elems;
    INFC_ASSERT(k->splat || (ir_type_static_elems(&k->type, &elems) && elems == 1));
    if (dtype_is_float(t.dtype)) {
        ir_const_get_float(k, 0, &f);
        return lp_const_f(&c->b, t, f);
    }
    ir_const_get_int(k, 0, &i);
    return lp_const_i(&c->b, t, i);
}

struct lp_value *expr_dimvec(struct expr_ctx *c, const struct ir_op *op, int r, struct lp_value *const *idx)
{
    (void)r;
    int n;
    const struct dim *const *dims = ir_attr_dims(op, "dims", &n);
    if (op->results[0].type.rank == 0) return lp_dim(&c->b, dims[0]);
    struct lp_value *v = n ? lp_dim(&c->b, dims[0]) : c->zero;
    for (int i = 1; i < n; i++)
        v = lp_select(&c->b, lp_binary(&c->b, LP_OP_EQ, idx[0], lp_index(&c->b, i)), lp_dim(&c->b, dims[i]), v);
    return v;
}

struct lp_value *expr_iota(struct expr_ctx *c, const struct ir_op *op, int r, struct lp_value *const *idx)
{
    (void)r;
    return lp_cast(&c->b, idx[ir_attr_int(op, "axis", 0)], op->results[0].type.dtype);
}
