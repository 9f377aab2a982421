// SPDX-License-Identifier: Apache-2.0
/* Reduce*, ArgMax and ArgMin, TopK, cumulative sums and products, global pools. */
#include <string.h>

#include "compiler/import/onnx_int.h"

enum { R_SUM, R_MEAN, R_MAX, R_MIN, R_PROD, R_L1, R_L2, R_LOGSUM, R_LOGSUMEXP, R_SUMSQUARE };

static struct ir_value *log_sum_exp(struct onode *n, struct ir_value *x, int c, const int64_t *axes,
                                    bool keep)
{
    /* Shifted by the maximum, where that is finite. */
    struct ir_value *top = e_red(n, IR_OP_REDUCE_MAX, x, c, axes, true), *zero = e_like(n, x, 0);
    struct ir_attr both[2] = {ir_a_int("negative", 1), ir_a_int("positive", 1)};
    struct ir_value *shift = e_sel(n, e_op1(n, IR_OP_ISINF, top, 2, both), zero, top);
    struct ir_value *sum =
        e_red(n, IR_OP_REDUCE_SUM, e_un(n, IR_OP_EXP, e_sub(n, x, shift)), c, axes, true);
    struct ir_value *y = e_add(n, e_un(n, IR_OP_LOG, sum), shift);
    if (keep || !y) return y;
    const struct dim *dims[IR_MAX_RANK];
    int r = 0;
    for (int i = 0, a = 0; i < rank_of(y); i++) {
        bool drop = a < c && axes[a] == i;
        if (drop) a++;
        else dims[r++] = dim_of(y, i);
    }
    return e_reshape(n, y, r, dims);
}

static struct ir_value *reduced(struct onode *n, int kind, struct ir_value *x, int c,
                                const int64_t *axes, bool keep)
{
    switch (kind) {
    case R_SUM: return e_red(n, IR_OP_REDUCE_SUM, x, c, axes, keep);
    case R_MEAN: return e_mean(n, x, c, axes, keep);
    case R_MAX: return e_red(n, IR_OP_REDUCE_MAX, x, c, axes, keep);
    case R_MIN: return e_red(n, IR_OP_REDUCE_MIN, x, c, axes, keep);
    case R_PROD: return e_red(n, IR_OP_REDUCE_PROD, x, c, axes, keep);
    case R_L1: return e_red(n, IR_OP_REDUCE_SUM, e_un(n, IR_OP_ABS, x), c, axes, keep);
    case R_SUMSQUARE: return e_red(n, IR_OP_REDUCE_SUM, e_mul(n, x, x), c, axes, keep);
    case R_L2: {
        struct ir_value *f = x && !dtype_is_float(x->type.dtype) ? e_cast(n, x, DT_F32) : x;
        return e_un(n, IR_OP_SQRT, e_red(n, IR_OP_REDUCE_SUM, e_mul(n, f, f), c, axes, keep));
    }
    case R_LOGSUM: return e_un(n, IR_OP_LOG, e_red(n, IR_OP_REDUCE_SUM, x, c, axes, keep));
    default: return log_sum_exp(n, x, c, axes, keep);
    }
}

bool onnx_reduce(struct onode *n)
{
    struct ir_value *x = on_in(n, 0);
    enum dtype t = x->type.dtype;
    int64_t axes[IR_MAX_RANK];
    int count, kind = n->row->arg;
    bool given, keep = at_int(n, "keepdims", 1);
    if (!on_axes(n, kind == R_SUM ? 13 : 18, 1, rank_of(x), &count, axes, &given)) return false;
    bool noop = n->version >= (kind == R_SUM ? 13 : 18) && at_int(n, "noop_with_empty_axes", 0);
    if (count == 0 && !noop)
        for (; count < rank_of(x); count++) axes[count] = count;
    if (t == DT_BOOL && kind != R_MAX && kind != R_MIN)
        return on_fail(n, DIAG_DTYPE_MISMATCH, "%s of bool", n->row->op);
    bool logs = kind == R_LOGSUM || kind == R_LOGSUMEXP;
    x = t == DT_BOOL                 ? e_cast(n, x, DT_U8)
        : logs && !dtype_is_float(t) ? e_cast(n, x, DT_F32)
                                     : e_wide(n, x);
    return on_out(n, 0, e_cast(n, reduced(n, kind, x, count, axes, keep), t));
}

bool onnx_arg(struct onode *n)
{
    struct ir_value *x = on_in(n, 0);
    int axis;
    if (!on_axis(n, at_int(n, "axis", 0), rank_of(x), false, &axis)) return false;
    struct ir_attr a[3] = {ir_a_int("axis", axis),
                           ir_a_int("keepdims", at_int(n, "keepdims", 1) != 0),
                           ir_a_int("last", n->version >= 12 && at_int(n, "select_last_index", 0))};
    return on_out(n, 0, e_op1(n, (enum ir_opcode)n->row->arg, x, 3, a));
}

bool onnx_topk(struct onode *n)
{
    struct ir_value *x = on_in(n, 0);
    int axis, count = 1;
    const struct dim *k = NULL;
    if (n->version >= 10) {
        const struct dim *const *d = on_dims(n, 1, &count);
        if (!d) return false;
        if (count != 1) return on_fail(n, DIAG_ONNX_INPUT, "TopK: K has to be one number");
        k = d[0];
    } else {
        k = dim_const(n->d, at_int(n, "k", -1));
    }
    if (!on_axis(n, at_int(n, "axis", -1), rank_of(x), false, &axis)) return false;
    if (k->hi < 0 || dim_known_le(n->d, dim_addc(n->d, dim_of(x, axis), 1), k))
        return on_fail(n, DIAG_ONNX_INPUT, "TopK: K is out of range");
    int64_t largest = n->version >= 11 ? at_int(n, "largest", 1) : 1;
    if (n->version >= 11) at_ignore(n, "sorted"); /* always sorted */
    struct ir_attr a[3] = {ir_a_dims("k", 1, &k), ir_a_int("axis", axis),
                           ir_a_int("largest", largest != 0)};
    struct ir_op *op = ir_build(n->b, IR_OP_TOPK, 1, &x, 3, a, 2);
    return op && on_out(n, 0, ir_result(op, 0)) && on_out(n, 1, ir_result(op, 1));
}

bool onnx_cumulative(struct onode *n)
{
    int count, axis;
    const int64_t *given = on_ints(n, 1, &count);
    if (!given) return false;
    if (count != 1)
        return on_fail(n, DIAG_ONNX_INPUT, "%s: the axis has to be one number", n->row->op);
    if (!on_axis(n, given[0], rank_of(on_in(n, 0)), false, &axis)) return false;
    struct ir_attr a[3] = {ir_a_int("axis", axis),
                           ir_a_int("exclusive", at_int(n, "exclusive", 0) != 0),
                           ir_a_int("reverse", at_int(n, "reverse", 0) != 0)};
    return on_out(n, 0, e_op1(n, (enum ir_opcode)n->row->arg, on_in(n, 0), 3, a));
}

/* ---- pools over all spatial axes ---- */

static int spatial_axes(struct ir_value *x, int64_t *axes)
{
    for (int i = 2; i < rank_of(x); i++) axes[i - 2] = i;
    return rank_of(x) - 2;
}

bool onnx_globalpool(struct onode *n)
{
    struct ir_value *x = on_in(n, 0), *w = e_wide(n, x);
    int64_t axes[IR_MAX_RANK];
    if (!on_rank(n, x, 2, IR_MAX_RANK, "the input")) return false;
    int c = spatial_axes(x, axes);
    struct ir_value *y =
        n->row->arg ? e_red(n, IR_OP_REDUCE_MAX, w, c, axes, true) : e_mean(n, w, c, axes, true);
    return on_out(n, 0, e_cast(n, y, x->type.dtype));
}

bool onnx_globallppool(struct onode *n)
{
    struct ir_value *x = on_in(n, 0), *w = e_wide(n, x);
    int64_t axes[IR_MAX_RANK], p = at_int(n, "p", 2);
    if (!on_rank(n, x, 2, IR_MAX_RANK, "the input")) return false;
    int c = spatial_axes(x, axes);
    struct ir_value *pow = e_bin(n, IR_OP_POW, e_un(n, IR_OP_ABS, w), e_like(n, w, (double)p));
    struct ir_value *y = e_bin(n, IR_OP_POW, e_red(n, IR_OP_REDUCE_SUM, pow, c, axes, true),
                               e_like(n, w, 1.0 / (double)p));
    return on_out(n, 0, e_cast(n, y, x->type.dtype));
}
