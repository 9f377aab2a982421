// SPDX-License-Identifier: Apache-2.0
/* Norms and softmax that are written out. Laws and list: passes/patterns.c. */
#include "passes/patterns.h"

#include <math.h>

/* v * x or x * v, x / v: what is beside the operand number i of a binary op. */
static struct ir_value *other(const struct ir_op *op, int i) { return ir_operand(op, 1 - i); }

static const struct dim *count_of(struct rewriter *r, const struct ir_type *t, unsigned axes)
{
    const struct dim *n = dim_const(r->m->dims, 1);
    for (int i = 0; i < t->rank; i++)
        if (axes >> i & 1) n = dim_mul(r->m->dims, n, t->dims[i]);
    return n;
}

/* Is v the number n: a constant, or the cast of a dim? */
static bool is_count(const struct ir_value *v, const struct dim *n)
{
    double f;
    if (pat_splat(v, &f)) return dim_is_const(n) && f == (double)n->value;
    const struct ir_op *cast = pat_def(v, IR_OP_CAST), *dims = cast ? pat_def(ir_operand(cast, 0), IR_OP_DIMVEC) : NULL;
    int count;
    const struct dim *const *d = dims ? ir_attr_dims(dims, "dims", &count) : NULL;
    return d && count == 1 && d[0] == n;
}

static bool is_reciprocal(const struct ir_value *v, const struct dim *n)
{
    double f;
    return pat_splat(v, &f) && dim_is_const(n) && n->value > 0 && (float)f == (float)(1.0 / (double)n->value);
}

/* v is the mean of x over `axes`, in any shape that differs from x's kept one by axes of 1. */
static bool match_mean(struct rewriter *r, struct ir_value *v, struct ir_value **x, unsigned *axes)
{
    v = pat_strip(v);
    struct ir_op *div = pat_def(v, IR_OP_DIV), *mul = pat_def(v, IR_OP_MUL), *sum = NULL;
    struct ir_value *n = NULL;
    if (div) {
        sum = pat_def(pat_strip(ir_operand(div, 0)), IR_OP_REDUCE_SUM);
        n = ir_operand(div, 1);
    }
    for (int i = 0; mul && !sum && i < 2; i++) {
        sum = pat_def(pat_strip(ir_operand(mul, i)), IR_OP_REDUCE_SUM);
        n = other(mul, i);
    }
    if (!sum) return false;
    *x = ir_operand(sum, 0);
    *axes = pat_axes(sum);
    const struct dim *count = count_of(r, &(*x)->type, *axes);
    return dtype_is_float((*x)->type.dtype) && (div ? is_count(n, count) : is_reciprocal(n, count));
}

/* v = x * x or pow(x, 2) */
static struct ir_value *match_square(const struct ir_value *v)
{
    struct ir_op *mul = pat_def(v, IR_OP_MUL), *pow = pat_def(v, IR_OP_POW);
    double e;
    if (mul && ir_operand(mul, 0) == ir_operand(mul, 1)) return ir_operand(mul, 0);
    return pow && pat_splat(ir_operand(pow, 1), &e) && e == 2 ? ir_operand(pow, 0) : NULL;
}

/* v = var + eps; returns var. */
static struct ir_value *match_eps(struct ir_value *v, double *eps)
{
    struct ir_op *add = pat_def(pat_strip(v), IR_OP_ADD);
    for (int i = 0; add && i < 2; i++)
        if (pat_splat(ir_operand(add, i), eps) && *eps >= 0) return other(add, i);
    return NULL;
}

/* v = sqrt(var + eps) or, when inverse, 1 / that; returns var. */
static struct ir_value *match_deviation(struct ir_value *v, bool inverse, double *eps)
{
    double e;
    v = pat_strip(v);
    struct ir_op *pow = pat_def(v, IR_OP_POW), *root = pat_def(v, IR_OP_SQRT), *div = pat_def(v, IR_OP_DIV);
    if (pow && pat_splat(ir_operand(pow, 1), &e) && e == (inverse ? -0.5 : 0.5)) return match_eps(ir_operand(pow, 0), eps);
    if (!inverse) return root ? match_eps(ir_operand(root, 0), eps) : NULL;
    if (!div || !pat_splat(ir_operand(div, 0), &e) || e != 1) return NULL;
    return match_deviation(ir_operand(div, 1), false, eps);
}

/* Has v the shape of t with the axes of the mask reduced to 1? */
static bool is_kept_shape(const struct ir_value *v, const struct ir_type *t, unsigned axes)
{
    if (v->type.rank != t->rank) return false;
    for (int i = 0; i < t->rank; i++)
        if (axes >> i & 1 ? !dim_is(v->type.dims[i], 1) : v->type.dims[i] != t->dims[i]) return false;
    return true;
}

/* The first of axes first .. rank - 1 when the mask is just those; -1 else. */
static int trailing(unsigned axes, int rank)
{
    for (int first = 0; first < rank; first++)
        if (axes == ((1u << rank) - 1u) - ((1u << first) - 1u)) return first;
    return -1;
}

/* op = d / sqrt(mean(d^2) + eps): a layer_norm when d = x - mean(x), else an rms_norm of d. */
static bool build_norm(struct rewriter *r, struct ir_op *op, struct ir_value *d, struct ir_value *deviation, bool inverse)
{
    double eps;
    unsigned axes, mean_axes;
    struct ir_value *var = match_deviation(deviation, inverse, &eps), *square, *x;
    if (!var || !match_mean(r, var, &square, &axes) || match_square(square) != d) return false;
    int first = trailing(axes, d->type.rank);
    if (first < 0 || !is_kept_shape(deviation, &d->type, axes) || !pat_same_dims(&op->results[0].type, &d->type)) return false;
    struct ir_op *sub = pat_def(d, IR_OP_SUB);
    bool centred = sub && match_mean(r, ir_operand(sub, 1), &x, &mean_axes) && x == ir_operand(sub, 0) && mean_axes == axes &&
                   is_kept_shape(ir_operand(sub, 1), &x->type, axes);
    struct ir_value *in = centred ? x : d;
    struct ir_attr attrs[2] = {ir_a_int("axis", first), ir_a_float("eps", eps)};
    struct ir_op *norm = ir_build(&r->b, centred ? IR_OP_LAYER_NORM : IR_OP_RMS_NORM, 1, &in, 2, attrs, 1);
    if (!norm) return false;
    rewrite_replace1(r, op, &norm->results[0]);
    return true;
}

bool pat_norm(struct rewriter *r, struct ir_op *op)
{
    if (op->code == IR_OP_DIV) return build_norm(r, op, ir_operand(op, 0), ir_operand(op, 1), false);
    for (int i = 0; i < 2; i++)
        if (build_norm(r, op, ir_operand(op, i), other(op, i), true)) return true;
    return false;
}

/* A norm at operand i of op that nothing else reads and that lacks operand number `slot`. */
static struct ir_op *open_norm(const struct ir_op *op, int i, int slot)
{
    struct ir_value *v = ir_operand(op, i);
    struct ir_op *norm = pat_def(v, IR_OP_LAYER_NORM);
    if (!norm && slot == 1) norm = pat_def(v, IR_OP_RMS_NORM);
    if (!norm || !ir_value_has_one_use(v) || ir_operand(norm, slot)) return NULL;
    return pat_same_dims(&op->results[0].type, &v->type) ? norm : NULL;
}

/* The norm with operand `slot` in addition; a bias comes after a scale only. */
static bool extend_norm(struct rewriter *r, struct ir_op *op, int slot)
{
    for (int i = 0; i < 2; i++) {
        struct ir_op *norm = open_norm(op, i, slot);
        struct ir_value *w = other(op, i);
        if (!norm || w == ir_operand(op, i)) continue;
        struct ir_value *operands[3] = {ir_operand(norm, 0), ir_operand(norm, 1), NULL};
        operands[slot] = w;
        if (slot == 2 && !operands[1]) return false;
        struct ir_attr attrs[2] = {ir_a_int("axis", ir_attr_int(norm, "axis", 0)), ir_a_float("eps", ir_attr_float(norm, "eps", 1e-5))};
        struct ir_op *n = ir_build(&r->b, norm->code, slot + 1, operands, 2, attrs, 1);
        if (!n) return false;
        rewrite_replace1(r, op, &n->results[0]);
        return true;
    }
    return false;
}

bool pat_norm_scale(struct rewriter *r, struct ir_op *op) { return extend_norm(r, op, 1); }

bool pat_norm_bias(struct rewriter *r, struct ir_op *op) { return extend_norm(r, op, 2); }

/* v = reduce(x) over one axis, kept; a lower bound of -inf (max(-inf, ..)) is looked through. */
static struct ir_op *match_fold(struct ir_value *v, enum ir_opcode code, const struct ir_value *x, unsigned *axes)
{
    if (!is_kept_shape(v, &x->type, 0) && v->type.rank != x->type.rank) return NULL;
    struct ir_value *u = pat_strip(v);
    struct ir_op *max = code == IR_OP_REDUCE_MAX ? pat_def(u, IR_OP_MAX) : NULL;
    for (int i = 0; max && i < 2; i++) {
        double f;
        if (!pat_splat(ir_operand(max, i), &f) || !(f == -(double)INFINITY)) continue;
        u = pat_strip(other(max, i));
        break;
    }
    struct ir_op *fold = pat_def(u, code);
    if (!fold || ir_operand(fold, 0) != x) return NULL;
    *axes = pat_axes(fold);
    return *axes && !(*axes & (*axes - 1)) && is_kept_shape(v, &x->type, *axes) ? fold : NULL;
}

/* d = x - max(x) along one axis */
static struct ir_value *match_shifted(const struct ir_value *d, unsigned *axes)
{
    struct ir_op *sub = pat_def(d, IR_OP_SUB);
    if (!sub || !match_fold(ir_operand(sub, 1), IR_OP_REDUCE_MAX, ir_operand(sub, 0), axes)) return NULL;
    return ir_operand(sub, 0);
}

static bool build_softmax(struct rewriter *r, struct ir_op *op, enum ir_opcode code, struct ir_value *x, unsigned axes)
{
    int axis = 0;
    while (!(axes >> axis & 1)) axis++;
    if (!dtype_is_float(x->type.dtype) || !pat_same_dims(&x->type, &op->results[0].type)) return false;
    struct ir_attr a = ir_a_int("axis", axis);
    struct ir_op *s = ir_build(&r->b, code, 1, &x, 1, &a, 1);
    if (!s) return false;
    rewrite_replace1(r, op, &s->results[0]);
    return true;
}

bool pat_softmax(struct rewriter *r, struct ir_op *op)
{
    unsigned axes, sum_axes;
    struct ir_value *e = ir_operand(op, 0);
    struct ir_op *exp = pat_def(e, IR_OP_EXP);
    struct ir_value *x = exp ? match_shifted(ir_operand(exp, 0), &axes) : NULL;
    if (!x || !match_fold(ir_operand(op, 1), IR_OP_REDUCE_SUM, e, &sum_axes) || sum_axes != axes) return false;
    return build_softmax(r, op, IR_OP_SOFTMAX, x, axes);
}

bool pat_log_softmax(struct rewriter *r, struct ir_op *op)
{
    unsigned axes, sum_axes;
    struct ir_value *d = ir_operand(op, 0), *x = match_shifted(d, &axes);
    struct ir_op *log = x ? pat_def(pat_strip(ir_operand(op, 1)), IR_OP_LOG) : NULL;
    if (!log) return false;
    struct ir_op *sum = pat_def(pat_strip(ir_operand(log, 0)), IR_OP_REDUCE_SUM);
    struct ir_op *exp = sum ? pat_def(ir_operand(sum, 0), IR_OP_EXP) : NULL;
    if (!exp || ir_operand(exp, 0) != d) return false;
    sum_axes = pat_axes(sum);
    if (sum_axes != axes || !is_kept_shape(ir_operand(op, 1), &x->type, axes)) return false;
    return build_softmax(r, op, IR_OP_LOG_SOFTMAX, x, axes);
}
