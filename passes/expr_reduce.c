// SPDX-License-Identifier: Apache-2.0
/*
 * Indexed expressions of reductions and of the norms built from them. Each element recomputes its reduction: right
 * everywhere, and fast enough where the group's output is the reduction itself; softmax and the norms have a row schedule
 * (passes/lower_rows.c) for the rest. f16 and bf16 sums accumulate in f32.
 */
#include <math.h>
#include <string.h>

#include "passes/expr.h"

static enum dtype acc_dtype(enum dtype t) { return t == DT_F16 || t == DT_BF16 ? DT_F32 : t; }

static struct lp_value *const_of(struct expr_ctx *c, enum dtype t, double f)
{
    return dtype_is_float(t) ? lp_const_f(&c->b, lp_scalar(t), f) : lp_const_i(&c->b, lp_scalar(t), (int64_t)f);
}

/* Least or greatest value of a dtype: the identity of max (sign -1) or min (sign +1). */
static struct lp_value *extreme(struct expr_ctx *c, enum dtype t, int sign)
{
    if (dtype_is_float(t)) return lp_const_f(&c->b, lp_scalar(t), sign * (double)INFINITY);
    unsigned bits = t == DT_BOOL ? 1 : dtype_bits(t);
    bool is_signed = dtype_class(t) == DTC_SINT;
    int64_t v;
    if (sign < 0) v = is_signed ? (int64_t)(UINT64_MAX << (bits - 1)) : 0;
    else v = is_signed ? (int64_t)(((uint64_t)1 << (bits - 1)) - 1) : bits == 64 ? -1 : (int64_t)(((uint64_t)1 << bits) - 1);
    return lp_const_i(&c->b, lp_scalar(t), v);
}

/*
 * Nested loops over the axes in `mask` of x, folding map(x[idx]) into *acc. The innermost axis may be vectorised when it is
 * the last one, whose elements lie side by side.
 */
struct fold {
    struct expr_ctx *c;
    const struct ir_value *x;
    unsigned mask;
    enum lp_opcode op;
    enum dtype acc;
    struct lp_value *(*map)(struct expr_ctx *c, struct lp_value *v, void *arg);
    void *arg;
};

/*
 * A sum of floats along an axis is taken in parts of this many elements, so that its error grows with the part and the
 * number of parts, not with the axis: E[x^2] - E[x]^2 of a few hundred elements loses digits otherwise.
 */
static int64_t part_of(const struct fold *f, const struct dim *n, enum lp_loop_kind kind)
{
    int64_t part = 16;
    if (f->op != LP_OP_ADD || !dtype_is_float(f->acc) || kind != LP_LOOP_SERIAL) return 0;
    if (!dim_is_const(n)) return 32;
    while (part < 256 && part * part < n->value) part *= 2;
    return n->value > 2 * part ? part : 0;
}

#define UNROLLED 64 /* elements that tiny axes write out together: nested, their product counts */

/* Is the axis written out, and all folded axes after it? */
static bool is_unrolled(const struct fold *f, int axis)
{
    int64_t n = 1;
    for (int i = axis; i < f->x->type.rank; i++) {
        const struct dim *d = f->x->type.dims[i];
        if (!(f->mask >> i & 1)) continue;
        if (!dim_is_const(d) || d->value >= EXPR_TINY || (n *= d->value) > UNROLLED) return false;
    }
    return true;
}

static struct lp_value *fold_axes(const struct fold *f, int axis, struct lp_value **idx, struct lp_value *acc);

/* Folds axis from lo to hi and the axes after it, starting from acc. */
static struct lp_value *fold_range(const struct fold *f, int axis, enum lp_loop_kind kind, struct lp_value *lo, struct lp_value *hi,
                                   struct lp_value **idx, struct lp_value *acc)
{
    struct expr_ctx *c = f->c;
    struct lp_op *loop = expr_for_begin(c, kind, lo, hi, 1, 1, &acc);
    idx[axis] = loop->regions[0]->args[0];
    struct lp_value *next = fold_axes(f, axis + 1, idx, loop->regions[0]->args[1]);
    expr_for_end(c, loop, &next);
    return loop->results[0];
}

static struct lp_value *fold_axes(const struct fold *f, int axis, struct lp_value **idx, struct lp_value *acc)
{
    struct expr_ctx *c = f->c;
    struct lp_builder *b = &c->b;
    int rank = f->x->type.rank;
    while (axis < rank && !(f->mask >> axis & 1)) axis++;
    if (axis == rank) {
        struct lp_value *v = expr_at(c, f->x, idx);
        v = lp_cast(b, v, f->acc);
        if (f->map) v = f->map(c, v, f->arg);
        return lp_binary(b, f->op, acc, v);
    }
    const struct dim *n = f->x->type.dims[axis];
    /* A last axis too short for a vector leaves the vector loop to the result's axes. */
    enum lp_loop_kind kind = is_unrolled(f, axis) ? LP_LOOP_UNROLL : axis == rank - 1 ? LP_LOOP_VECTOR : LP_LOOP_SERIAL;
    int64_t part = part_of(f, n, kind);
    if (!part) return fold_range(f, axis, kind, c->zero, expr_dim(c, n), idx, acc);
    struct lp_value *zero = const_of(c, f->acc, 0), *size = expr_dim(c, n);
    struct lp_op *loop = expr_for_begin(c, LP_LOOP_SERIAL, c->zero, size, part, 1, &acc);
    struct lp_value *lo = loop->regions[0]->args[0];
    struct lp_value *hi = lp_binary(b, LP_OP_MIN, lp_binary(b, LP_OP_ADD, lo, lp_index(b, part)), size);
    struct lp_value *sum = lp_binary(b, LP_OP_ADD, loop->regions[0]->args[1], fold_range(f, axis, kind, lo, hi, idx, zero));
    expr_for_end(c, loop, &sum);
    return loop->results[0];
}

static unsigned axes_mask(const struct ir_op *op, int rank)
{
    int n;
    const int64_t *axes = ir_attr_ints(op, "axes", &n);
    unsigned mask = 0;
    for (int i = 0; i < n; i++) mask |= 1u << axes[i];
    (void)rank;
    return mask;
}

struct lp_value *expr_reduce(struct expr_ctx *c, const struct ir_op *op, int r, struct lp_value *const *idx)
{
    (void)r;
    const struct ir_value *x = ir_operand(op, 0);
    int rank = x->type.rank;
    unsigned mask = axes_mask(op, rank);
    bool keep = ir_attr_int(op, "keepdims", 0);
    struct lp_value *sub[IR_MAX_RANK];
    for (int i = 0, j = 0; i < rank; i++) {
        bool reduced = mask >> i & 1;
        if (!reduced) sub[i] = idx[j];
        if (!reduced || keep) j++;
    }
    enum dtype t = x->type.dtype;
    struct fold f = {c, x, mask, LP_OP_ADD, acc_dtype(t), NULL, NULL};
    struct lp_value *init;
    switch (op->code) {
    case IR_OP_REDUCE_SUM: init = const_of(c, f.acc, 0); break;
    case IR_OP_REDUCE_PROD: f.op = LP_OP_MUL, init = const_of(c, f.acc, 1); break;
    case IR_OP_REDUCE_MAX: f.op = LP_OP_MAX, f.acc = t, init = extreme(c, t, -1); break;
    default: f.op = LP_OP_MIN, f.acc = t, init = extreme(c, t, 1); break;
    }
    if (t == DT_BOOL && op->code == IR_OP_REDUCE_MAX) f.op = LP_OP_OR;
    if (t == DT_BOOL && op->code == IR_OP_REDUCE_MIN) f.op = LP_OP_AND;
    return lp_cast(&c->b, fold_axes(&f, 0, sub, init), op->results[0].type.dtype);
}

struct lp_value *expr_arg(struct expr_ctx *c, const struct ir_op *op, int r, struct lp_value *const *idx)
{
    (void)r;
    struct lp_builder *b = &c->b;
    const struct ir_value *x = ir_operand(op, 0);
    int rank = x->type.rank, axis = (int)ir_attr_int(op, "axis", 0);
    bool keep = ir_attr_int(op, "keepdims", 0), last = ir_attr_int(op, "last", 0), max = op->code == IR_OP_ARG_MAX;
    struct lp_value *sub[IR_MAX_RANK];
    for (int i = 0, j = 0; i < rank; i++) {
        if (i != axis) sub[i] = idx[j];
        if (i != axis || keep) j++;
    }
    sub[axis] = c->zero;
    /* The first element starts as the best, so that no identity is needed; NaN counts as best, the first one wins. */
    size_t mark = expr_scope_push(c);
    struct lp_value *init[] = {expr_at(c, x, sub), c->zero};
    struct lp_op *loop = expr_for_begin(c, LP_LOOP_SERIAL, c->one, expr_dim(c, x->type.dims[axis]), 1, 2, init);
    struct lp_value *i = loop->regions[0]->args[0], *best = loop->regions[0]->args[1], *at = loop->regions[0]->args[2];
    sub[axis] = i;
    struct lp_value *v = expr_at(c, x, sub);
    enum lp_opcode strict = max ? LP_OP_GT : LP_OP_LT, loose = max ? LP_OP_GE : LP_OP_LE;
    struct lp_value *better = lp_binary(b, last ? loose : strict, v, best);
    if (dtype_is_float(x->type.dtype)) {
        struct lp_value *vnan = lp_binary(b, LP_OP_NE, v, v), *bnan = lp_binary(b, LP_OP_NE, best, best);
        struct lp_value *wins = last ? vnan : lp_binary(b, LP_OP_AND, vnan, lp_unary(b, LP_OP_NOT, bnan));
        better = lp_binary(b, LP_OP_OR, better, wins);
    }
    struct lp_value *yields[] = {lp_select(b, better, v, best), lp_select(b, better, i, at)};
    expr_for_end(c, loop, yields);
    expr_scope_pop(c, mark);
    return loop->results[1];
}

/* Element idx of a running sum folds its own prefix: quadratic; the row schedule does it in one pass. */
struct lp_value *expr_cum(struct expr_ctx *c, const struct ir_op *op, int r, struct lp_value *const *idx)
{
    (void)r;
    struct lp_builder *b = &c->b;
    const struct ir_value *x = ir_operand(op, 0);
    int axis = (int)ir_attr_int(op, "axis", 0);
    bool exclusive = ir_attr_int(op, "exclusive", 0), reverse = ir_attr_int(op, "reverse", 0);
    enum dtype acc = acc_dtype(x->type.dtype);
    struct lp_value *sub[IR_MAX_RANK], *lo = c->zero, *hi = expr_dim(c, x->type.dims[axis]);
    memcpy(sub, idx, (size_t)x->type.rank * sizeof *idx);
    struct lp_value *next = lp_binary(b, LP_OP_ADD, idx[axis], c->one);
    if (reverse) lo = exclusive ? next : idx[axis];
    else hi = exclusive ? idx[axis] : next;
    bool sum = op->code == IR_OP_CUM_SUM;
    struct lp_value *init = const_of(c, acc, sum ? 0 : 1);
    struct lp_op *loop = expr_for_begin(c, LP_LOOP_SERIAL, lo, hi, 1, 1, &init);
    sub[axis] = loop->regions[0]->args[0];
    struct lp_value *v = lp_cast(b, expr_at(c, x, sub), acc);
    v = lp_binary(b, sum ? LP_OP_ADD : LP_OP_MUL, loop->regions[0]->args[1], v);
    expr_for_end(c, loop, &v);
    return lp_cast(b, loop->results[0], x->type.dtype);
}

static struct lp_value *map_exp_minus(struct expr_ctx *c, struct lp_value *v, void *max)
{
    return lp_unary(&c->b, LP_OP_EXP, lp_binary(&c->b, LP_OP_SUB, v, max));
}

struct lp_value *expr_softmax(struct expr_ctx *c, const struct ir_op *op, int r, struct lp_value *const *idx)
{
    (void)r;
    struct lp_builder *b = &c->b;
    const struct ir_value *x = ir_operand(op, 0);
    int axis = (int)ir_attr_int(op, "axis", 0);
    enum dtype t = acc_dtype(x->type.dtype);
    struct lp_value *sub[IR_MAX_RANK];
    memcpy(sub, idx, (size_t)x->type.rank * sizeof *idx);
    struct fold max = {c, x, 1u << axis, LP_OP_MAX, t, NULL, NULL};
    struct lp_value *m = fold_axes(&max, 0, sub, extreme(c, t, -1));
    struct fold sum = {c, x, 1u << axis, LP_OP_ADD, t, map_exp_minus, m};
    struct lp_value *s = fold_axes(&sum, 0, sub, const_of(c, t, 0));
    struct lp_value *d = lp_binary(b, LP_OP_SUB, lp_cast(b, expr_at(c, x, idx), t), m);
    if (op->code == IR_OP_LOG_SOFTMAX) d = lp_binary(b, LP_OP_SUB, d, lp_unary(b, LP_OP_LOG, s));
    else d = lp_binary(b, LP_OP_DIV, lp_unary(b, LP_OP_EXP, d), s);
    return lp_cast(b, d, x->type.dtype);
}

static struct lp_value *map_square_minus(struct expr_ctx *c, struct lp_value *v, void *mean)
{
    if (mean) v = lp_binary(&c->b, LP_OP_SUB, v, mean);
    return lp_binary(&c->b, LP_OP_MUL, v, v);
}

struct lp_value *expr_layer_norm(struct expr_ctx *c, const struct ir_op *op, int r, struct lp_value *const *idx)
{
    (void)r;
    struct lp_builder *b = &c->b;
    const struct ir_value *x = ir_operand(op, 0);
    const struct ir_type *t = &x->type;
    int axis = (int)ir_attr_int(op, "axis", t->rank - 1);
    enum dtype acc = acc_dtype(t->dtype);
    unsigned mask = 0;
    const struct dim *count = dim_const(c->m->dims, 1);
    for (int i = axis; i < t->rank; i++) mask |= 1u << i, count = dim_mul(c->m->dims, count, t->dims[i]);
    struct lp_value *sub[IR_MAX_RANK], *n = lp_cast(b, expr_dim(c, count), acc), *mean = NULL;
    memcpy(sub, idx, (size_t)t->rank * sizeof *idx);
    if (op->code == IR_OP_LAYER_NORM) {
        struct fold f = {c, x, mask, LP_OP_ADD, acc, NULL, NULL};
        mean = lp_binary(b, LP_OP_DIV, fold_axes(&f, 0, sub, const_of(c, acc, 0)), n);
    }
    struct fold f = {c, x, mask, LP_OP_ADD, acc, map_square_minus, mean};
    struct lp_value *var = lp_binary(b, LP_OP_DIV, fold_axes(&f, 0, sub, const_of(c, acc, 0)), n);
    struct lp_value *eps = lp_const_f(b, lp_scalar(acc), ir_attr_float(op, "eps", 1e-5));
    struct lp_value *dev = lp_unary(b, LP_OP_SQRT, lp_binary(b, LP_OP_ADD, var, eps));
    struct lp_value *v = lp_cast(b, expr_at(c, x, idx), acc);
    if (mean) v = lp_binary(b, LP_OP_SUB, v, mean);
    v = lp_cast(b, lp_binary(b, LP_OP_DIV, v, dev), t->dtype);
    for (int i = 1; i < op->n_operands; i++) { /* scale, bias */
        const struct ir_value *w = ir_operand(op, i);
        if (!w) continue;
        struct lp_value *widx[IR_MAX_RANK];
        expr_broadcast_idx(c, &w->type, t->rank, t->dims, idx, widx);
        v = lp_binary(b, i == 1 ? LP_OP_MUL : LP_OP_ADD, v, lp_cast(b, expr_at(c, w, widx), t->dtype));
    }
    return v;
}
