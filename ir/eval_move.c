// SPDX-License-Identifier: Apache-2.0
/* Ops that make or move elements without computing on them. All but pad copy one strided view. */
#include "ir/eval_impl.h"
#include "ir/eval_table.h"

bool eval_dimvec(struct eval_call *c)
{
    int n;
    const struct dim *const *dims = ir_attr_dims(c->op, "dims", &n);
    bool scalar = ir_attr_int(c->op, "scalar", 0) != 0;
    int64_t shape[1] = {n};
    if (scalar && n != 1) return eval_fail(c, DIAG_SHAPE_MISMATCH, "a scalar takes one dim, not %d", n);
    if (!eval_expect(c, 0, DT_I64, scalar ? 0 : 1, shape)) return false;
    for (int i = 0; i < n; i++)
        if (!eval_dim(c, dims[i], (int64_t *)c->out[0].data + i)) return false;
    return true;
}

bool eval_iota(struct eval_call *c)
{
    struct ir_tensor *out = &c->out[0];
    int64_t dims[IR_MAX_RANK];
    int axis;
    if (!eval_dims(c, "dims", out->rank, 0, dims) || !eval_expect(c, 0, DT_NONE, out->rank, dims)) return false;
    if (!eval_axis(c, "axis", 0, out->rank, &axis)) return false;
    int64_t inner = eval_product(dims, axis + 1, out->rank), n = dims[axis], total = eval_count(out);
    bool is_float = dtype_is_float(out->dtype);
    union eval_lane block[EVAL_BLOCK];
    for (int64_t at = 0; at < total; at += EVAL_BLOCK) {
        int64_t count = total - at < EVAL_BLOCK ? total - at : EVAL_BLOCK;
        for (int64_t i = 0; i < count; i++) {
            int64_t v = (at + i) / inner % n;
            if (is_float)
                block[i].f = (double)v;
            else
                block[i].i = v;
        }
        eval_store(out->dtype, out->data, at, 1, count, block);
    }
    return true;
}

bool eval_reshape(struct eval_call *c)
{
    int64_t dims[IR_MAX_RANK];
    int rank = c->out[0].rank;
    if (!eval_need(c, 0, EVAL_ANY, -1) || !eval_dims(c, "dims", rank, 0, dims)) return false;
    if (!eval_expect(c, 0, c->in[0].dtype, rank, dims)) return false;
    if (eval_count(&c->in[0]) != eval_count(&c->out[0]))
        return eval_fail(c, DIAG_SHAPE_MISMATCH, "%lld elements do not become %lld", (long long)eval_count(&c->in[0]),
                         (long long)eval_count(&c->out[0]));
    /* The driver gives the operand's own memory where it can. */
    if (c->out[0].data != c->in[0].data) memcpy(c->out[0].data, c->in[0].data, c->out[0].n_bytes);
    return true;
}

bool eval_transpose(struct eval_call *c)
{
    int64_t perm[IR_MAX_RANK], dims[IR_MAX_RANK];
    int order[IR_MAX_RANK];
    unsigned seen = 0;
    if (!eval_need(c, 0, EVAL_ANY, -1)) return false;
    int rank = c->in[0].rank;
    if (!eval_ints(c, "perm", rank, 0, perm)) return false;
    for (int i = 0; i < rank; i++) {
        if (perm[i] < 0 || perm[i] >= rank || seen >> perm[i] & 1)
            return eval_fail(c, DIAG_SHAPE_MISMATCH, "perm is not a permutation");
        seen |= 1u << perm[i];
        order[i] = (int)perm[i];
        dims[i] = c->in[0].dims[perm[i]];
    }
    if (!eval_expect(c, 0, c->in[0].dtype, rank, dims)) return false;
    struct eval_view v = eval_view_dense(&c->in[0]);
    eval_view_permute(&v, order);
    eval_view_copy(&v, c->out[0].data);
    return true;
}

bool eval_broadcast(struct eval_call *c)
{
    int64_t dims[IR_MAX_RANK];
    int rank = c->out[0].rank;
    if (!eval_need(c, 0, EVAL_ANY, -1) || !eval_dims(c, "dims", rank, 0, dims)) return false;
    if (!eval_expect(c, 0, c->in[0].dtype, rank, dims)) return false;
    struct eval_view v = eval_view_dense(&c->in[0]);
    if (!eval_view_broadcast(&v, rank, dims))
        return eval_fail(c, DIAG_SHAPE_MISMATCH, "the operand does not broadcast to the result");
    eval_view_copy(&v, c->out[0].data);
    return true;
}

bool eval_slice(struct eval_call *c)
{
    int64_t starts[IR_MAX_RANK], steps[IR_MAX_RANK], sizes[IR_MAX_RANK];
    if (!eval_need(c, 0, EVAL_ANY, -1)) return false;
    int rank = c->in[0].rank;
    if (!eval_dims(c, "starts", rank, 0, starts) || !eval_ints(c, "steps", rank, 1, steps) ||
        !eval_dims(c, "sizes", rank, 0, sizes) || !eval_expect(c, 0, c->in[0].dtype, rank, sizes))
        return false;
    struct eval_view v = eval_view_dense(&c->in[0]);
    for (int i = 0; i < rank; i++) {
        if (sizes[i] == 0) return true;
        int64_t last;
        if (steps[i] == 0 || !i64_mul(sizes[i] - 1, steps[i], &last) || !i64_add(last, starts[i], &last) ||
            starts[i] < 0 || starts[i] >= v.dims[i] || last < 0 || last >= v.dims[i])
            return eval_fail(c, DIAG_SHAPE_MISMATCH, "axis %d: start %lld, step %lld and size %lld leave the operand's %lld",
                             i, (long long)starts[i], (long long)steps[i], (long long)sizes[i], (long long)v.dims[i]);
    }
    for (int i = 0; i < rank; i++) {
        v.offset += starts[i] * v.strides[i];
        v.dims[i] = sizes[i];
        v.strides[i] *= steps[i];
    }
    eval_view_copy(&v, c->out[0].data);
    return true;
}

/* ---- pad ---- */

enum pad_mode { PAD_CONSTANT, PAD_EDGE, PAD_REFLECT, PAD_WRAP };

/* Coordinate of the operand for coordinate i of the padded axis, or -1 for a constant. n >= 1 unless constant. */
static int64_t pad_source(enum pad_mode mode, int64_t i, int64_t n)
{
    if (i >= 0 && i < n) return i;
    switch (mode) {
    case PAD_EDGE: return i < 0 ? 0 : n - 1;
    case PAD_WRAP: return (i % n + n) % n;
    case PAD_REFLECT: {
        if (n == 1) return 0;
        int64_t period = 2 * (n - 1);
        i = (i % period + period) % period;
        return i < n ? i : period - i;
    }
    default: return -1;
    }
}

static bool pad_attributes(struct eval_call *c, int64_t *lo, enum pad_mode *mode)
{
    static const char *const names[] = {"constant", "edge", "reflect", "wrap"};
    int64_t hi[IR_MAX_RANK], dims[IR_MAX_RANK];
    const struct ir_tensor *x = &c->in[0];
    const char *name = ir_attr_string(c->op, "mode", "constant");
    *mode = PAD_CONSTANT;
    while (*mode <= PAD_WRAP && strcmp(names[*mode], name)) (*mode)++;
    if (*mode > PAD_WRAP) return eval_fail(c, DIAG_SHAPE_MISMATCH, "unknown mode %s", name);
    if (!eval_dims(c, "lo", x->rank, 0, lo) || !eval_dims(c, "hi", x->rank, 0, hi)) return false;
    for (int i = 0; i < x->rank; i++) {
        if (!i64_add(x->dims[i], lo[i], &dims[i]) || !i64_add(dims[i], hi[i], &dims[i]) || dims[i] < 0)
            return eval_fail(c, DIAG_SHAPE_MISMATCH, "axis %d: the pads do not fit", i);
        if (*mode != PAD_CONSTANT && x->dims[i] == 0 && dims[i] > 0)
            return eval_fail(c, DIAG_SHAPE_MISMATCH, "axis %d is empty: nothing to repeat", i);
    }
    return eval_expect(c, 0, x->dtype, x->rank, dims);
}

bool eval_pad(struct eval_call *c)
{
    int64_t lo[IR_MAX_RANK], at[IR_MAX_RANK] = {0};
    enum pad_mode mode;
    if (!eval_need(c, 0, EVAL_ANY, -1) || !pad_attributes(c, lo, &mode)) return false;
    const struct ir_tensor *x = &c->in[0], *fill = eval_in(c, 1);
    struct ir_tensor *out = &c->out[0];
    size_t esize = dtype_bytes(x->dtype);
    static const char zero[8];
    if (fill && (fill->dtype != x->dtype || eval_count(fill) != 1))
        return eval_fail(c, DIAG_DTYPE_MISMATCH, "the fill value must be one %s", dtype_name(x->dtype));
    const char *value = fill ? fill->data : zero;
    int64_t total = eval_count(out);
    if (total == 0) return true;
    /* Per axis: where each coordinate comes from, in elements of the operand. */
    int64_t *source[IR_MAX_RANK], stride = 1;
    for (int i = x->rank - 1; i >= 0; i--) {
        source[i] = eval_scratch(c, out->dims[i], sizeof **source);
        if (!source[i]) return false;
        for (int64_t k = 0; k < out->dims[i]; k++) {
            int64_t s = pad_source(mode, k - lo[i], x->dims[i]);
            source[i][k] = s < 0 ? -1 : s * stride;
        }
        stride *= x->dims[i];
    }
    char *dst = out->data;
    const char *src = x->data;
    int last = x->rank - 1;
    if (last < 0) {
        memcpy(dst, src, esize);
        return true;
    }
    for (int64_t row = 0; row < total / out->dims[last]; row++) {
        int64_t base = 0;
        for (int i = 0; i < last; i++) base = base < 0 || source[i][at[i]] < 0 ? -1 : base + source[i][at[i]];
        for (int64_t k = 0; k < out->dims[last]; k++, dst += esize) {
            int64_t s = source[last][k];
            memcpy(dst, base < 0 || s < 0 ? value : src + (size_t)(base + s) * esize, esize);
        }
        for (int i = last - 1; i >= 0 && ++at[i] == out->dims[i]; i--) at[i] = 0;
    }
    return true;
}

bool eval_concat(struct eval_call *c)
{
    int axis;
    if (!eval_need(c, 0, EVAL_ANY, -1)) return false;
    const struct ir_tensor *first = &c->in[0];
    if (!eval_axis(c, "axis", 0, first->rank, &axis)) return false;
    int64_t dims[IR_MAX_RANK];
    memcpy(dims, first->dims, sizeof dims);
    for (int i = 1; i < c->n_in; i++) {
        if (!eval_need(c, i, EVAL_ANY, first->rank)) return false;
        const struct ir_tensor *t = &c->in[i];
        bool same = t->dtype == first->dtype && i64_add(dims[axis], t->dims[axis], &dims[axis]);
        for (int d = 0; d < t->rank; d++) same = same && (d == axis || t->dims[d] == first->dims[d]);
        if (!same) return eval_fail(c, DIAG_SHAPE_MISMATCH, "operand %d does not fit operand 0", i);
    }
    if (!eval_expect(c, 0, first->dtype, first->rank, dims)) return false;
    size_t esize = dtype_bytes(first->dtype);
    size_t outer = (size_t)eval_product(dims, 0, axis), inner = (size_t)eval_product(dims, axis + 1, first->rank) * esize;
    size_t row = (size_t)dims[axis] * inner, at = 0;
    for (int i = 0; i < c->n_in; i++) {
        size_t part = (size_t)c->in[i].dims[axis] * inner;
        for (size_t o = 0; o < outer && part; o++)
            memcpy((char *)c->out[0].data + o * row + at, (const char *)c->in[i].data + o * part, part);
        at += part;
    }
    return true;
}

bool eval_reverse_sequence(struct eval_call *c)
{
    int time, batch;
    if (!eval_need(c, 0, EVAL_ANY, -1) || !eval_need(c, 1, EVAL_INT, 1)) return false;
    const struct ir_tensor *x = &c->in[0], *lens = &c->in[1];
    if (!eval_axis(c, "time_axis", 0, x->rank, &time) || !eval_axis(c, "batch_axis", 1, x->rank, &batch) ||
        !eval_expect(c, 0, x->dtype, x->rank, x->dims))
        return false;
    if (time == batch || lens->dims[0] != x->dims[batch])
        return eval_fail(c, DIAG_SHAPE_MISMATCH, "%lld lengths for a batch of %lld", (long long)lens->dims[0],
                         (long long)x->dims[batch]);
    int lo = time < batch ? time : batch, hi = time < batch ? batch : time;
    int64_t outer = eval_product(x->dims, 0, lo), mid = eval_product(x->dims, lo + 1, hi);
    size_t inner = (size_t)eval_product(x->dims, hi + 1, x->rank) * dtype_bytes(x->dtype);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < x->dims[lo]; i++)
            for (int64_t m = 0; m < mid; m++)
                for (int64_t k = 0; k < x->dims[hi]; k++) {
                    int64_t t = time == lo ? i : k, len = eval_get_i(lens, time == lo ? k : i);
                    if (len < 0 || len > x->dims[time])
                        return eval_fail(c, DIAG_SHAPE_MISMATCH, "length %lld of %lld", (long long)len,
                                         (long long)x->dims[time]);
                    int64_t from = t < len ? len - 1 - t : t;
                    int64_t i2 = time == lo ? from : i, k2 = time == lo ? k : from;
                    size_t dst = (size_t)(((o * x->dims[lo] + i) * mid + m) * x->dims[hi] + k) * inner;
                    size_t src = (size_t)(((o * x->dims[lo] + i2) * mid + m) * x->dims[hi] + k2) * inner;
                    memcpy((char *)c->out[0].data + dst, (const char *)x->data + src, inner);
                }
    return true;
}
