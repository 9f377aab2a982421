// SPDX-License-Identifier: Apache-2.0
/* Slice, Pad, Gather*, Scatter*, ReverseSequence, Compress, TensorScatter. */
#include <string.h>

#include "compiler/import/onnx_int.h"

/* ---- Slice ---- */

/* A bound as the user gave it, negative counting from the end. Of unknown sign: e + size * [e < 0].
 */
static const struct dim *from_end(struct dim_ctx *d, const struct dim *e, const struct dim *size)
{
    if (e->lo >= 0) return e;
    if (e->hi < 0)
        return e->lo == INT64_MIN || (dim_is_const(e) && e->value < -(INT64_MAX / 2))
                   ? dim_const(d, -1 - (INT64_MAX / 4))
                   : dim_add(d, e, size);
    const struct dim *negative =
        dim_min(d, dim_const(d, 1), dim_max(d, dim_const(d, 0), dim_mulc(d, e, -1)));
    return dim_add(d, e, dim_mul(d, negative, size));
}

static const struct dim *clamp(struct dim_ctx *d, const struct dim *e, const struct dim *lo,
                               const struct dim *hi)
{
    /* Sentinels such as INT64_MAX must not enter arithmetic. */
    if (dim_is_const(e) && e->value > INT64_MAX / 4) return hi;
    if (dim_is_const(e) && e->value < -(INT64_MAX / 4)) return lo;
    return dim_max(d, lo, dim_min(d, e, hi));
}

static void slice_axis(struct dim_ctx *d, const struct dim *start, const struct dim *end,
                       int64_t step, const struct dim *size, const struct dim **out_start,
                       const struct dim **out_size)
{
    const struct dim *zero = dim_const(d, 0), *minus = dim_const(d, -1),
                     *last = dim_addc(d, size, -1);
    const struct dim *s = from_end(d, start, size), *e = from_end(d, end, size), *span;
    if (step > 0) {
        s = clamp(d, s, zero, size);
        e = clamp(d, e, zero, size);
        span = dim_sub(d, e, s);
    } else {
        s = clamp(d, s, minus, last);
        e = clamp(d, e, minus, last);
        span = dim_sub(d, s, e);
    }
    int64_t stride = step > 0 ? step : step == INT64_MIN ? INT64_MAX : -step;
    *out_size = dim_max(d, zero, stride == 1 ? span : dim_ceildiv(d, span, dim_const(d, stride)));
    *out_start = s;
}

static bool slice_params(struct onode *n, int rank, const struct dim *const **starts,
                         const struct dim *const **ends, int64_t *axes, int64_t *steps, int *count)
{
    int c_starts, c_ends, c_axes = 0, c_steps = 0;
    const int64_t *given_axes = NULL, *given_steps = NULL;
    if (n->version >= 10) {
        *starts = on_dims(n, 1, &c_starts);
        *ends = on_dims(n, 2, &c_ends);
        if (!*starts || !*ends) return false;
        if (on_in(n, 3) && !(given_axes = on_ints(n, 3, &c_axes))) return false;
        if (on_in(n, 4) && !(given_steps = on_ints(n, 4, &c_steps))) return false;
    } else {
        const int64_t *s = at_ints(n, "starts", &c_starts), *e = at_ints(n, "ends", &c_ends);
        given_axes = at_ints(n, "axes", &c_axes);
        const struct dim **sd = on_alloc(n, (size_t)c_starts, sizeof *sd),
                         **ed = on_alloc(n, (size_t)c_ends, sizeof *ed);
        for (int i = 0; i < c_starts; i++) sd[i] = dim_const(n->d, s[i]);
        for (int i = 0; i < c_ends; i++) ed[i] = dim_const(n->d, e[i]);
        *starts = sd;
        *ends = ed;
    }
    if (n->failed) return false;
    if (c_starts != c_ends || c_starts > rank || (given_axes && c_axes != c_starts) ||
        (given_steps && c_steps != c_starts))
        return on_fail(
            n, DIAG_ONNX_INPUT,
            "Slice: starts, ends, axes and steps differ in length, or are more than the rank");
    unsigned seen = 0;
    for (int i = 0; i < c_starts; i++) {
        int a = i;
        if (given_axes && !on_axis(n, given_axes[i], rank, false, &a)) return false;
        if (seen & 1u << a) return on_fail(n, DIAG_ONNX_INPUT, "Slice names axis %d twice", a);
        seen |= 1u << a;
        axes[i] = a;
        steps[i] = given_steps ? given_steps[i] : 1;
        if (steps[i] == 0) return on_fail(n, DIAG_ONNX_INPUT, "Slice with a step of 0");
    }
    *count = c_starts;
    return true;
}

bool onnx_slice(struct onode *n)
{
    struct ir_value *x = on_in(n, 0);
    const struct dim *const *starts, *const *ends;
    int64_t axes[IR_MAX_RANK], steps[IR_MAX_RANK], all_steps[IR_MAX_RANK];
    int count = 0, rank = rank_of(x);
    if (!slice_params(n, rank, &starts, &ends, axes, steps, &count)) return false;
    const struct dim *from[IR_MAX_RANK], *size[IR_MAX_RANK];
    for (int i = 0; i < rank; i++) {
        from[i] = dim_const(n->d, 0);
        size[i] = dim_of(x, i);
        all_steps[i] = 1;
    }
    bool whole = true;
    for (int i = 0; i < count; i++) {
        int a = (int)axes[i];
        const struct dim *full = dim_of(x, a);
        slice_axis(n->d, starts[i], ends[i], steps[i], full, &from[a], &size[a]);
        all_steps[a] = steps[i];
        if (dim_is(size[a], 0)) from[a] = dim_const(n->d, 0), all_steps[a] = 1;
        whole = whole && size[a] == full && steps[i] == 1;
    }
    return on_out(n, 0, whole ? x : ir_build_slice(n->b, x, from, all_steps, size));
}

/* ---- Pad ---- */

static bool pad_amounts(struct onode *n, int rank, const struct dim **lo, const struct dim **hi)
{
    int count = 0, n_axes = rank;
    const struct dim *const *pads;
    const int64_t *axes = NULL;
    if (n->version >= 11) {
        pads = on_dims(n, 1, &count);
        if (pads && n->version >= 18 && on_in(n, 3) && !(axes = on_ints(n, 3, &n_axes)))
            return false;
    } else {
        const int64_t *ints = at_ints(n, "pads", &count);
        const struct dim **d = on_alloc(n, (size_t)count, sizeof *d);
        for (int i = 0; i < count; i++) d[i] = dim_const(n->d, ints[i]);
        pads = ints ? d : NULL;
        if (!ints && !n->failed) return on_fail(n, DIAG_ONNX_ATTR, "attribute 'pads' is missing");
    }
    if (!pads || n->failed) return false;
    if (count != 2 * n_axes || n_axes > rank)
        return on_fail(n, DIAG_ONNX_INPUT, "Pad: %d amounts for %d axes", count, n_axes);
    for (int i = 0; i < rank; i++) lo[i] = hi[i] = dim_const(n->d, 0);
    for (int i = 0; i < n_axes; i++) {
        int a = i;
        if (axes && !on_axis(n, axes[i], rank, false, &a)) return false;
        lo[a] = pads[i];
        hi[a] = pads[n_axes + i];
    }
    return true;
}

bool onnx_pad(struct onode *n)
{
    static const char *const names[] = {"constant", "edge", "reflect", "wrap"};
    struct ir_value *x = on_in(n, 0), *fill = NULL;
    int mode = at_choice(n, "mode", 0, n->version >= 19 ? 4 : 3, names), rank = rank_of(x);
    const struct dim *lo[IR_MAX_RANK], *hi[IR_MAX_RANK];
    if (mode < 0 || !pad_amounts(n, rank, lo, hi)) return false;
    if (n->version < 11) {
        fill = at_has(n, "value") ? e_like(n, x, at_float(n, "value", 0)) : NULL;
    } else if (on_in(n, 2)) {
        fill = e_reshape(n, on_in(n, 2), 0, NULL);
        if (!fill) return false;
    }
    if (rank == 0) return on_out(n, 0, x);
    bool is_bool = x->type.dtype == DT_BOOL;
    if (is_bool) x = e_cast(n, x, DT_U8), fill = fill ? e_cast(n, fill, DT_U8) : NULL;
    struct ir_attr a[3] = {ir_a_dims("lo", rank, lo), ir_a_dims("hi", rank, hi),
                           ir_a_string("mode", names[mode])};
    struct ir_value *operands[2] = {x, mode == 0 ? fill : NULL};
    struct ir_value *y = e_op(n, IR_OP_PAD, operands[1] ? 2 : 1, operands, 3, a, 1, 0);
    return on_out(n, 0, is_bool ? e_cast(n, y, DT_BOOL) : y);
}

/* CenterCropPad: to given sizes, the odd element of a crop or pad at the end */
bool onnx_centercroppad(struct onode *n)
{
    struct ir_value *x = on_in(n, 0);
    int rank = rank_of(x), count, n_axes;
    const struct dim *const *want = on_dims(n, 1, &count);
    const int64_t *axes = at_ints(n, "axes", &n_axes);
    if (!want || n->failed) return false;
    if (count != (axes ? n_axes : rank) || rank == 0)
        return on_fail(n, DIAG_ONNX_INPUT, "CenterCropPad: %d sizes do not fit the axes", count);
    const struct dim *start[IR_MAX_RANK], *size[IR_MAX_RANK], *lo[IR_MAX_RANK], *hi[IR_MAX_RANK];
    int64_t steps[IR_MAX_RANK];
    const struct dim *zero = dim_const(n->d, 0), *two = dim_const(n->d, 2);
    for (int i = 0; i < rank; i++) {
        start[i] = lo[i] = hi[i] = zero;
        size[i] = dim_of(x, i);
        steps[i] = 1;
    }
    for (int i = 0; i < count; i++) {
        int a = i;
        if (axes && !on_axis(n, axes[i], rank, false, &a)) return false;
        const struct dim *full = dim_of(x, a),
                         *crop = dim_max(n->d, zero, dim_sub(n->d, full, want[i]));
        const struct dim *pad = dim_max(n->d, zero, dim_sub(n->d, want[i], full));
        start[a] = dim_floordiv(n->d, crop, two);
        size[a] = dim_sub(n->d, full, crop);
        lo[a] = dim_floordiv(n->d, pad, two);
        hi[a] = dim_sub(n->d, pad, lo[a]);
    }
    struct ir_attr at[3] = {ir_a_dims("lo", rank, lo), ir_a_dims("hi", rank, hi),
                            ir_a_string("mode", "constant")};
    return on_out(n, 0, e_op1(n, IR_OP_PAD, ir_build_slice(n->b, x, start, steps, size), 3, at));
}

/* ---- Gather and Scatter ---- */

static bool index_type(struct onode *n, int i)
{
    enum dtype t = on_in(n, i)->type.dtype;
    if (t == DT_I32 || t == DT_I64) return true;
    return on_fail(n, DIAG_DTYPE_MISMATCH, "%s: the indices are %s, not i32 or i64", n->row->op,
                   dtype_name(t));
}

bool onnx_gather(struct onode *n)
{
    int axis;
    if (!index_type(n, 1) || !on_axis(n, at_int(n, "axis", 0), rank_of(on_in(n, 0)), false, &axis))
        return false;
    return on_out(n, 0, ir_build_gather(n->b, on_in(n, 0), on_in(n, 1), axis));
}

bool onnx_gatherelements(struct onode *n)
{
    int axis;
    if (!index_type(n, 1) || !on_axis(n, at_int(n, "axis", 0), rank_of(on_in(n, 0)), false, &axis))
        return false;
    struct ir_attr a = ir_a_int("axis", axis);
    return on_out(n, 0, e_op(n, IR_OP_GATHER_ELEMENTS, 2, n->in, 1, &a, 1, 0));
}

bool onnx_gathernd(struct onode *n)
{
    int64_t batch = at_int(n, "batch_dims", 0);
    if (!index_type(n, 1)) return false;
    if (batch < 0 || batch >= rank_of(on_in(n, 0)) || batch >= rank_of(on_in(n, 1)))
        return on_fail(n, DIAG_ONNX_ATTR, "attribute 'batch_dims' is out of range");
    struct ir_attr a = ir_a_int("batch_dims", batch);
    return on_out(n, 0, e_op(n, IR_OP_GATHER_ND, 2, n->in, 1, &a, 1, 0));
}

static const char *reduction(struct onode *n)
{
    static const char *const names[] = {"none", "add", "mul", "min", "max"};
    int r = n->version >= 16 ? at_choice(n, "reduction", 0, n->version >= 18 ? 5 : 3, names) : 0;
    return r < 0 ? NULL : names[r];
}

/* Scatter (9, 10) and ScatterElements */
bool onnx_scatterelements(struct onode *n)
{
    int axis;
    const char *r = n->row->op[7] ? reduction(n) : "none";
    if (!r || !index_type(n, 1) ||
        !on_axis(n, at_int(n, "axis", 0), rank_of(on_in(n, 0)), false, &axis))
        return false;
    struct ir_attr a[2] = {ir_a_int("axis", axis), ir_a_string("reduction", r)};
    return on_out(n, 0, e_op(n, IR_OP_SCATTER_ELEMENTS, 3, n->in, 2, a, 1, 0));
}

bool onnx_scatternd(struct onode *n)
{
    const char *r = reduction(n);
    if (!r || !index_type(n, 1)) return false;
    struct ir_attr a = ir_a_string("reduction", r);
    return on_out(n, 0, e_op(n, IR_OP_SCATTER_ND, 3, n->in, 1, &a, 1, 0));
}

bool onnx_reversesequence(struct onode *n)
{
    struct ir_value *x = on_in(n, 0);
    int64_t time = at_int(n, "time_axis", 0), batch = at_int(n, "batch_axis", 1);
    if (!on_rank(n, x, 2, IR_MAX_RANK, "the input")) return false;
    if (!((time == 0 && batch == 1) || (time == 1 && batch == 0)))
        return on_fail(n, DIAG_ONNX_ATTR, "time_axis and batch_axis have to be 0 and 1");
    struct ir_attr a[2] = {ir_a_int("time_axis", time), ir_a_int("batch_axis", batch)};
    return on_out(n, 0, e_op(n, IR_OP_REVERSE_SEQUENCE, 2, n->in, 2, a, 1, 0));
}

/* Compress: only a condition known at build time gives a known shape. */
bool onnx_compress(struct onode *n)
{
    struct ir_value *x = on_in(n, 0);
    int count, axis = 0, kept = 0;
    bool flat = !at_has(n, "axis");
    const int64_t *c = on_ints(n, 1, &count);
    if (!c || (!flat && !on_axis(n, at_int(n, "axis", 0), rank_of(x), false, &axis))) return false;
    if (flat) {
        const struct dim *all = e_size(n, x, 0, rank_of(x));
        x = e_reshape(n, x, 1, &all);
    }
    int64_t *ix = on_alloc(n, (size_t)count + 1, sizeof *ix);
    for (int i = 0; i < count; i++)
        if (c[i]) ix[kept++] = i;
    return on_out(n, 0, ir_build_gather(n->b, x, ir_build_ints(n->b, kept, ix), axis));
}

/*
 * TensorScatter: a cache of shape [batch, .., size, ..] with `update` written from
 * write_indices[batch] on along `axis`, modulo the size in circular mode. As a select between the
 * cache and a gather from the update: position p takes update[p - start] when 0 <= p - start <
 * count.
 */
bool onnx_tensorscatter(struct onode *n)
{
    static const char *const names[] = {"linear", "circular"};
    struct ir_value *cache = on_in(n, 0), *update = on_in(n, 1), *start = on_in(n, 2);
    int circular = at_choice(n, "mode", 0, 2, names), axis, rank = rank_of(cache);
    if (circular < 0 || !on_axis(n, at_int(n, "axis", -2), rank, false, &axis)) return false;
    if (axis == 0 || rank_of(update) != rank)
        return on_fail(n, DIAG_SHAPE_MISMATCH, "TensorScatter: axis or ranks do not fit");
    const struct dim *dims[IR_MAX_RANK], *column[IR_MAX_RANK];
    for (int i = 0; i < rank; i++) {
        dims[i] = dim_of(cache, i);
        column[i] = i == 0 ? dims[0] : dim_const(n->d, 1);
    }
    struct ir_value *pos = ir_build_iota(n->b, DT_I64, rank, dims, axis),
                    *zero = e_scalar(n, DT_I64, 0);
    if (start) pos = e_sub(n, pos, e_reshape(n, start, rank, column));
    struct ir_value *size = e_dim(n, dims[axis], DT_I64),
                    *count = e_dim(n, dim_of(update, axis), DT_I64);
    if (circular) pos = e_bin(n, IR_OP_MOD, pos, size);
    struct ir_value *inside =
        e_bin(n, IR_OP_AND, e_bin(n, IR_OP_GE, pos, zero), e_bin(n, IR_OP_LT, pos, count));
    struct ir_value *at = e_max(n, zero, e_min(n, pos, e_sub(n, count, e_scalar(n, DT_I64, 1))));
    struct ir_attr a = ir_a_int("axis", axis);
    struct ir_value *operands[2] = {update, at};
    struct ir_value *moved = at ? e_op(n, IR_OP_GATHER_ELEMENTS, 2, operands, 1, &a, 1, 0) : NULL;
    return on_out(n, 0, e_sel(n, inside, moved, cache));
}
