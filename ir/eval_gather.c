// SPDX-License-Identifier: Apache-2.0
/* Gathers (negative indices count from the end, out of range is clamped) and scatters (out of range is an error). */
#include "ir/encoding.h"
#include "ir/eval_impl.h"
#include "ir/eval_table.h"

/* Row of an axis of n >= 1 entries. */
static int64_t clamp_index(int64_t i, int64_t n)
{
    if (i < 0) i += n;
    return i < 0 ? 0 : i >= n ? n - 1 : i;
}

/* Rows of blocks, unpacked one by one. */
static bool gather_encoded(struct eval_call *c, int64_t outer, int64_t n, size_t row)
{
    const struct ir_tensor *x = &c->in[0], *idx = &c->in[1];
    int64_t count = eval_count(idx);
    size_t row_bytes;
    float *dst = c->out[0].data;
    if (!encoding_bytes(x->enc, 1, (int64_t)row, &row_bytes)) return eval_fail(c, DIAG_SHAPE_MISMATCH, "rows are not whole blocks");
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < count; i++, dst += row)
            encoding_unpack(x->enc, (const char *)x->data + (size_t)(o * n + clamp_index(eval_get_i(idx, i), n)) * row_bytes, (int64_t)row, dst);
    return true;
}

bool eval_gather(struct eval_call *c)
{
    int axis, rank = 0;
    if (!eval_need(c, 0, EVAL_ANY, -1) || !eval_need(c, 1, EVAL_INT, -1)) return false;
    const struct ir_tensor *x = &c->in[0], *idx = &c->in[1];
    if (!eval_axis(c, "axis", 0, x->rank, &axis)) return false;
    int64_t dims[2 * IR_MAX_RANK];
    for (int i = 0; i < axis; i++) dims[rank++] = x->dims[i];
    for (int i = 0; i < idx->rank; i++) dims[rank++] = idx->dims[i];
    for (int i = axis + 1; i < x->rank; i++) dims[rank++] = x->dims[i];
    if (!eval_expect(c, 0, x->dtype, rank, dims)) return false;
    if (eval_count(&c->out[0]) == 0) return true;
    int64_t n = x->dims[axis], count = eval_count(idx), outer = eval_product(x->dims, 0, axis);
    if (n == 0) return eval_fail(c, DIAG_SHAPE_MISMATCH, "axis %d is empty", axis);
    size_t row = (size_t)eval_product(x->dims, axis + 1, x->rank) * dtype_bytes(x->dtype);
    char *dst = c->out[0].data;
    if (x->enc) return gather_encoded(c, outer, n, row / sizeof(float));
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < count; i++, dst += row)
            memcpy(dst, (const char *)x->data + (size_t)(o * n + clamp_index(eval_get_i(idx, i), n)) * row, row);
    return true;
}

/*
 * Offset in x, less the axis' own part, of element i of a tensor of shape dims that lies in x's corner; the axis
 * coordinate itself counts nothing.
 */
static int64_t offset_without_axis(const struct ir_tensor *x, const int64_t *dims, int axis, int64_t i)
{
    int64_t offset = 0, stride = 1;
    for (int d = x->rank - 1; d >= 0; d--) {
        if (d != axis) offset += i % dims[d] * stride;
        i /= dims[d];
        stride *= x->dims[d];
    }
    return offset;
}

/* Shapes of an elementwise gather or scatter: indices no greater than x but along axis. */
static bool check_corner(struct eval_call *c, const struct ir_tensor *x, const struct ir_tensor *idx, int axis)
{
    for (int d = 0; d < x->rank; d++)
        if (d != axis && idx->dims[d] > x->dims[d])
            return eval_fail(c, DIAG_SHAPE_MISMATCH, "axis %d: %lld indices for %lld", d, (long long)idx->dims[d],
                             (long long)x->dims[d]);
    if (x->dims[axis] == 0 && eval_count(idx) > 0) return eval_fail(c, DIAG_SHAPE_MISMATCH, "axis %d is empty", axis);
    return true;
}

bool eval_gather_elements(struct eval_call *c)
{
    int axis;
    if (!eval_need(c, 0, EVAL_ANY, -1) || !eval_need(c, 1, EVAL_INT, c->in[0].rank)) return false;
    const struct ir_tensor *x = &c->in[0], *idx = &c->in[1];
    if (!eval_axis(c, "axis", 0, x->rank, &axis) || !eval_expect(c, 0, x->dtype, idx->rank, idx->dims) ||
        !check_corner(c, x, idx, axis))
        return false;
    int64_t total = eval_count(idx), stride = eval_product(x->dims, axis + 1, x->rank);
    size_t esize = dtype_bytes(x->dtype);
    char *dst = c->out[0].data;
    for (int64_t i = 0; i < total; i++, dst += esize) {
        int64_t at = offset_without_axis(x, idx->dims, axis, i) + clamp_index(eval_get_i(idx, i), x->dims[axis]) * stride;
        memcpy(dst, (const char *)x->data + (size_t)at * esize, esize);
    }
    return true;
}

bool eval_gather_nd(struct eval_call *c)
{
    if (!eval_need(c, 0, EVAL_ANY, -1) || !eval_need(c, 1, EVAL_INT, -1)) return false;
    const struct ir_tensor *x = &c->in[0], *idx = &c->in[1];
    int64_t batch_dims = ir_attr_int(c->op, "batch_dims", 0), dims[2 * IR_MAX_RANK];
    int rank = 0;
    if (idx->rank < 1 || batch_dims < 0 || batch_dims >= idx->rank || batch_dims > x->rank ||
        idx->dims[idx->rank - 1] < 0 || idx->dims[idx->rank - 1] > x->rank - batch_dims)
        return eval_fail(c, DIAG_SHAPE_MISMATCH, "batch_dims or the last dim of the indices is out of range");
    int b = (int)batch_dims, k = (int)idx->dims[idx->rank - 1];
    for (int i = 0; i < idx->rank - 1; i++) dims[rank++] = idx->dims[i];
    for (int i = b + k; i < x->rank; i++) dims[rank++] = x->dims[i];
    if (!eval_expect(c, 0, x->dtype, rank, dims)) return false;
    for (int i = 0; i < b; i++)
        if (x->dims[i] != idx->dims[i]) return eval_fail(c, DIAG_SHAPE_MISMATCH, "batch dim %d differs", i);
    if (eval_count(&c->out[0]) == 0) return true;
    for (int i = b; i < b + k; i++)
        if (x->dims[i] == 0) return eval_fail(c, DIAG_SHAPE_MISMATCH, "axis %d is empty", i);
    int64_t batches = eval_product(x->dims, 0, b), tuples = eval_product(idx->dims, b, idx->rank - 1);
    int64_t image = eval_product(x->dims, b, x->rank);
    int64_t inner = eval_product(x->dims, b + k, x->rank);
    size_t esize = dtype_bytes(x->dtype), row = (size_t)inner * esize;
    char *dst = c->out[0].data;
    for (int64_t t = 0; t < batches * tuples; t++, dst += row) {
        int64_t at = 0;
        for (int i = 0; i < k; i++) at = at * x->dims[b + i] + clamp_index(eval_get_i(idx, t * k + i), x->dims[b + i]);
        memcpy(dst, (const char *)x->data + (size_t)(t / tuples * image + at * inner) * esize, row);
    }
    return true;
}

/* ---- scatter ---- */

enum reduction { SCATTER_NONE, SCATTER_ADD, SCATTER_MUL, SCATTER_MIN, SCATTER_MAX };

static bool read_reduction(struct eval_call *c, enum reduction *r)
{
    static const char *const names[] = {"none", "add", "mul", "min", "max"};
    const char *name = ir_attr_string(c->op, "reduction", "none");
    for (*r = SCATTER_NONE; *r <= SCATTER_MAX; (*r)++)
        if (!strcmp(names[*r], name)) return true;
    return eval_fail(c, DIAG_IR_VERIFY, "unknown reduction %s", name);
}

/* out[at .. at + n) combined with u[from .. from + n); rounded to the element type each time. */
static void combine(enum reduction r, struct ir_tensor *out, int64_t at, const struct ir_tensor *u, int64_t from, int64_t n)
{
    enum dtype t = out->dtype;
    size_t esize = dtype_bytes(t);
    if (r == SCATTER_NONE) {
        memcpy((char *)out->data + (size_t)at * esize, (const char *)u->data + (size_t)from * esize, (size_t)n * esize);
        return;
    }
    union eval_lane a, b;
    for (int64_t i = 0; i < n; i++) {
        eval_load(t, out->data, at + i, 1, 1, &a);
        eval_load(t, u->data, from + i, 1, 1, &b);
        if (dtype_is_float(t)) {
            a.f = r == SCATTER_ADD   ? a.f + b.f
                  : r == SCATTER_MUL ? a.f * b.f
                  : r == SCATTER_MIN ? eval_min_f64(a.f, b.f)
                                     : eval_max_f64(a.f, b.f);
        } else if (r == SCATTER_ADD || r == SCATTER_MUL) {
            a.u = r == SCATTER_ADD ? a.u + b.u : a.u * b.u;
        } else {
            bool less = t == DT_U64 ? b.u < a.u : b.i < a.i;
            if (less == (r == SCATTER_MIN)) a = b;
        }
        eval_store(t, out->data, at + i, 1, 1, &a);
    }
}

/* Row of an axis, or false after a diagnostic. */
static bool scatter_index(struct eval_call *c, int64_t i, int64_t n, int64_t *out)
{
    *out = i < 0 ? i + n : i;
    if (*out >= 0 && *out < n) return true;
    return eval_fail(c, DIAG_SHAPE_MISMATCH, "index %lld is out of range for %lld", (long long)i, (long long)n);
}

static bool scatter_types(struct eval_call *c)
{
    if (!eval_need(c, 0, EVAL_ANY, -1) || !eval_need(c, 1, EVAL_INT, -1) || !eval_need(c, 2, EVAL_ANY, -1)) return false;
    if (c->in[2].dtype != c->in[0].dtype)
        return eval_fail(c, DIAG_DTYPE_MISMATCH, "updates of %s for %s", dtype_name(c->in[2].dtype), dtype_name(c->in[0].dtype));
    if (!eval_expect(c, 0, c->in[0].dtype, c->in[0].rank, c->in[0].dims)) return false;
    memcpy(c->out[0].data, c->in[0].data, c->out[0].n_bytes);
    return true;
}

bool eval_scatter_elements(struct eval_call *c)
{
    int axis;
    enum reduction r;
    if (!scatter_types(c) || !read_reduction(c, &r) || !eval_axis(c, "axis", 0, c->in[0].rank, &axis)) return false;
    const struct ir_tensor *x = &c->in[0], *idx = &c->in[1], *u = &c->in[2];
    bool same = idx->rank == x->rank && u->rank == x->rank;
    for (int d = 0; same && d < x->rank; d++) same = idx->dims[d] == u->dims[d];
    if (!same) return eval_fail(c, DIAG_SHAPE_MISMATCH, "indices and updates differ in shape");
    if (!check_corner(c, x, idx, axis)) return false;
    int64_t total = eval_count(idx), stride = eval_product(x->dims, axis + 1, x->rank), at;
    for (int64_t i = 0; i < total; i++) {
        if (!scatter_index(c, eval_get_i(idx, i), x->dims[axis], &at)) return false;
        combine(r, &c->out[0], offset_without_axis(x, idx->dims, axis, i) + at * stride, u, i, 1);
    }
    return true;
}

bool eval_scatter_nd(struct eval_call *c)
{
    enum reduction r;
    if (!scatter_types(c) || !read_reduction(c, &r)) return false;
    const struct ir_tensor *x = &c->in[0], *idx = &c->in[1], *u = &c->in[2];
    if (idx->rank < 1 || idx->dims[idx->rank - 1] > x->rank)
        return eval_fail(c, DIAG_SHAPE_MISMATCH, "the last dim of the indices is out of range");
    int k = (int)idx->dims[idx->rank - 1], lead = idx->rank - 1;
    bool same = u->rank == lead + x->rank - k;
    for (int d = 0; same && d < u->rank; d++) same = u->dims[d] == (d < lead ? idx->dims[d] : x->dims[d - lead + k]);
    if (!same) return eval_fail(c, DIAG_SHAPE_MISMATCH, "the updates' shape does not fit data and indices");
    int64_t tuples = eval_product(idx->dims, 0, lead), inner = eval_product(x->dims, k, x->rank);
    if (eval_count(u) == 0) return true;
    for (int64_t t = 0; t < tuples; t++) {
        int64_t at = 0, i;
        for (int d = 0; d < k; d++) {
            if (!scatter_index(c, eval_get_i(idx, t * k + d), x->dims[d], &i)) return false;
            at = at * x->dims[d] + i;
        }
        combine(r, &c->out[0], at * inner, u, t * inner, inner);
    }
    return true;
}
