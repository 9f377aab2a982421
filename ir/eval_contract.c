// SPDX-License-Identifier: Apache-2.0
/* matmul and conv on the blocked product; conv gathers its columns from the image on the fly. */
#include "ir/encoding.h"
#include "ir/eval_gemm.h"
#include "ir/eval_table.h"
#include "ir/eval_window.h"

/* Dtype of the sum and of the result: attribute `acc`, else operand 0's. Integers and floats do not mix. */
static bool acc_type(struct eval_call *c)
{
    const struct ir_attr *a = ir_attr_find(c->op, "acc");
    enum dtype x = c->in[0].dtype, w = c->in[1].dtype, want = a ? (enum dtype)a->i : x;
    if (dtype_is_float(x) != dtype_is_float(w) || dtype_is_float(x) != dtype_is_float(want))
        return eval_fail(c, DIAG_DTYPE_MISMATCH, "%s by %s summed in %s", dtype_name(x), dtype_name(w), dtype_name(want));
    if (c->out[0].dtype != want)
        return eval_fail(c, DIAG_DTYPE_MISMATCH, "the result is %s, not %s", dtype_name(c->out[0].dtype), dtype_name(want));
    return true;
}

static void load(const struct ir_tensor *t, bool in_f64, int64_t offset, int64_t stride, int64_t n, union eval_lane *out)
{
    if (in_f64)
        eval_load_f(t->dtype, t->data, offset, stride, n, out);
    else
        eval_load(t->dtype, t->data, offset, stride, n, out);
}

/* Sums to elements of the result; exact integers in f64 become words first. */
static void store(struct ir_tensor *t, bool in_f64, int64_t offset, int64_t n, union eval_lane *sums)
{
    if (in_f64 && !dtype_is_float(t->dtype))
        for (int64_t i = 0; i < n; i++) sums[i].i = (int64_t)sums[i].f;
    eval_store(t->dtype, t->data, offset, 1, n, sums);
}

/* ---- matmul ---- */

struct matmul {
    const struct ir_tensor *a, *w;
    struct ir_tensor *out;
    bool in_f64;
    int64_t m, n, row_a, col_a, row_w, col_w; /* strides */
    int64_t first;                            /* element of the result where c[0][0][0] goes */
    const int64_t *at_a, *at_w;               /* offset of each batch */
};

static void matmul_a(const void *arg, int64_t b, int64_t i, int64_t k0, int64_t n, union eval_lane *out)
{
    const struct matmul *p = arg;
    load(p->a, p->in_f64, p->at_a[b] + i * p->row_a + k0 * p->col_a, p->col_a, n, out);
}

static void matmul_w(const void *arg, int64_t b, int64_t k, int64_t j0, int64_t n, union eval_lane *out)
{
    const struct matmul *p = arg;
    load(p->w, p->in_f64, p->at_w[b] + k * p->row_w + j0 * p->col_w, p->col_w, n, out);
}

static void matmul_store(const void *arg, int64_t b, int64_t i, int64_t j0, int64_t n, union eval_lane *sums)
{
    const struct matmul *p = arg;
    store(p->out, p->in_f64, p->first + (b * p->m + i) * p->n + j0, n, sums);
}

/* Offsets of a tensor's matrices for each batch of the result. */
static int64_t *batch_offsets(struct eval_call *c, const struct ir_tensor *t, int rank, const int64_t *dims)
{
    int64_t n = eval_product(dims, 0, rank);
    int64_t *at = eval_scratch(c, n, sizeof *at);
    struct eval_view v = eval_view_dense(t);
    v.rank -= 2;
    if (!at) return NULL;
    if (!eval_view_broadcast(&v, rank, dims)) {
        eval_fail(c, DIAG_SHAPE_MISMATCH, "batch dims do not broadcast");
        return NULL;
    }
    for (int64_t b = 0; b < n; b++) {
        int64_t rest = b;
        for (int i = rank - 1; i >= 0; i--) {
            at[b] += rest % dims[i] * v.strides[i];
            rest /= dims[i];
        }
    }
    return at;
}

/* Elements of w that are unpacked at a time. */
#define UNPACKED_ELEMS (INT64_C(1) << 22)

/* w in blocks: unpacked a few rows of one matrix at a time, which give columns (trans_b) or parts of sums of the result. */
static bool matmul_encoded(struct eval_call *c, struct matmul *p, int rank, const int64_t *dims, bool trans)
{
    const struct ir_tensor *w = p->w;
    int64_t batch = eval_product(dims, 0, rank), rows = w->dims[w->rank - 2], row = w->dims[w->rank - 1], zero = 0;
    int64_t step = trans && row < UNPACKED_ELEMS ? UNPACKED_ELEMS / row : rows;
    size_t row_bytes;
    struct ir_tensor part = {.dtype = DT_F32, .rank = 2};
    if (!encoding_bytes(w->enc, 1, row, &row_bytes)) return eval_fail(c, DIAG_SHAPE_MISMATCH, "rows are not whole blocks");
    if (step > rows) step = rows;
    if (step < 1) step = 1;
    int64_t *at_a = batch_offsets(c, p->a, rank, dims), *at_w = at_a ? batch_offsets(c, w, rank, dims) : NULL;
    part.data = at_w ? eval_scratch(c, step * row, sizeof(float)) : NULL;
    if (!part.data) return false;
    struct matmul q = *p;
    q.w = &part;
    q.at_w = &zero;
    for (int64_t b = 0; b < batch; b++)
        for (int64_t at = 0; at < rows; at += step) {
            int64_t n = rows - at < step ? rows - at : step;
            encoding_unpack(w->enc, (const char *)w->data + (size_t)(at_w[b] / row + at) * row_bytes, n * row, part.data);
            q.at_a = &at_a[b];
            q.first = b * p->m * p->n + (trans ? at : 0);
            struct gemm g = {1, p->m, trans ? n : p->n, trans ? row : n, false, &q, matmul_a, matmul_w, matmul_store};
            if (!eval_gemm(c, &g)) return false;
        }
    return true;
}

bool eval_matmul(struct eval_call *c)
{
    if (!eval_need(c, 0, EVAL_FLOAT | EVAL_INT, -1) || !eval_need(c, 1, EVAL_FLOAT | EVAL_INT, -1) || !acc_type(c))
        return false;
    const struct ir_tensor *a = &c->in[0], *w = &c->in[1];
    if (a->rank < 2 || w->rank < 2) return eval_fail(c, DIAG_SHAPE_MISMATCH, "ranks %d and %d", a->rank, w->rank);
    bool ta = ir_attr_int(c->op, "trans_a", 0) != 0, tw = ir_attr_int(c->op, "trans_b", 0) != 0;
    int64_t m = a->dims[a->rank - 2 + ta], k = a->dims[a->rank - 1 - ta];
    int64_t k2 = w->dims[w->rank - 2 + tw], n = w->dims[w->rank - 1 - tw];
    if (k != k2) return eval_fail(c, DIAG_SHAPE_MISMATCH, "inner dims %lld and %lld", (long long)k, (long long)k2);
    int rank = a->rank > w->rank ? a->rank : w->rank;
    int64_t dims[IR_MAX_RANK];
    for (int i = 0; i < rank - 2; i++) {
        int64_t da = i < rank - a->rank ? 1 : a->dims[i - (rank - a->rank)];
        int64_t dw = i < rank - w->rank ? 1 : w->dims[i - (rank - w->rank)];
        dims[i] = da == 1 ? dw : da;
    }
    dims[rank - 2] = m;
    dims[rank - 1] = n;
    if (!eval_expect(c, 0, DT_NONE, rank, dims)) return false;
    struct matmul p = {.a = a, .w = w, .out = &c->out[0], .in_f64 = eval_gemm_in_f64(a, w, k), .m = m, .n = n};
    p.row_a = ta ? 1 : k;
    p.col_a = ta ? m : 1;
    p.row_w = tw ? 1 : n;
    p.col_w = tw ? k : 1;
    if (w->enc) return matmul_encoded(c, &p, rank - 2, dims, tw);
    p.at_a = batch_offsets(c, a, rank - 2, dims);
    p.at_w = p.at_a ? batch_offsets(c, w, rank - 2, dims) : NULL;
    if (!p.at_w) return false;
    struct gemm g = {eval_product(dims, 0, rank - 2), m, n, k, !p.in_f64, &p, matmul_a, matmul_w, matmul_store};
    return eval_gemm(c, &g);
}

/* ---- conv ---- */

struct conv {
    const struct ir_tensor *x, *w, *bias;
    struct ir_tensor *out;
    bool in_f64;
    struct eval_window win;
    int64_t groups, in_channels, out_channels; /* channels a group */
    int64_t k;                                 /* in_channels * taps */
};

static void conv_a(const void *arg, int64_t b, int64_t i, int64_t k0, int64_t n, union eval_lane *out)
{
    const struct conv *p = arg;
    load(p->w, p->in_f64, (b % p->groups * p->out_channels + i) * p->k + k0, 1, n, out);
}

/* Row k of the gathered image: one channel and tap, result positions j0 .. j0 + n. */
static void conv_w(const void *arg, int64_t b, int64_t k, int64_t j0, int64_t n, union eval_lane *out)
{
    const struct conv *p = arg;
    const struct eval_window *win = &p->win;
    int r = win->rank, last = r - 1;
    int64_t base = (b * p->in_channels + k / win->taps) * win->image, tap = k % win->taps;
    int64_t tap_at[IR_MAX_RANK], at[IR_MAX_RANK];
    if (r == 0) {
        load(p->x, p->in_f64, base, 1, n, out);
        return;
    }
    for (int d = last; d >= 0; d--) {
        tap_at[d] = tap % win->kernel[d] * win->dilations[d] - win->lo[d];
        tap /= win->kernel[d];
        at[d] = j0 % win->out[d];
        j0 /= win->out[d];
    }
    while (n > 0) {
        int64_t run = win->out[last] - at[last];
        if (run > n) run = n;
        int64_t offset = 0, from, to;
        bool inside = true;
        for (int d = 0; d < last; d++) {
            int64_t pos = at[d] * win->strides[d] + tap_at[d];
            inside = inside && pos >= 0 && pos < win->in[d];
            offset = offset * win->in[d] + pos;
        }
        offset *= win->in[last];
        int64_t s = win->strides[last], first = at[last] * s + tap_at[last];
        /* Those i with 0 <= first + i s < in. */
        from = first >= 0 ? 0 : (-first + s - 1) / s;
        to = first >= win->in[last] ? 0 : (win->in[last] - 1 - first) / s + 1;
        if (!inside) to = 0;
        if (to > run) to = run;
        if (from > to) from = to;
        for (int64_t i = 0; i < from; i++) out[i].u = 0;
        if (to > from) load(p->x, p->in_f64, base + offset + first + from * s, s, to - from, out + from);
        for (int64_t i = to; i < run; i++) out[i].u = 0;
        out += run;
        n -= run;
        at[last] = 0;
        for (int d = last - 1; d >= 0 && ++at[d] == win->out[d]; d--) at[d] = 0;
    }
}

static void conv_store(const void *arg, int64_t b, int64_t i, int64_t j0, int64_t n, union eval_lane *sums)
{
    const struct conv *p = arg;
    int64_t channel = b % p->groups * p->out_channels + i;
    if (p->bias) {
        union eval_lane bias;
        load(p->bias, p->in_f64, channel, 1, 1, &bias);
        for (int64_t j = 0; j < n; j++) {
            if (p->in_f64)
                sums[j].f += bias.f;
            else
                sums[j].u += bias.u;
        }
    }
    store(p->out, p->in_f64, (b * p->out_channels + i) * p->win.positions + j0, n, sums);
}

static bool conv_first(struct eval_call *c)
{
    if (!eval_need(c, 0, EVAL_FLOAT | EVAL_INT, -1) || !eval_need(c, 1, EVAL_FLOAT | EVAL_INT, c->in[0].rank) ||
        !acc_type(c))
        return false;
    struct conv p = {.x = &c->in[0], .w = &c->in[1], .bias = eval_in(c, 2), .out = &c->out[0]};
    const struct ir_tensor *x = p.x, *w = p.w;
    p.groups = ir_attr_int(c->op, "groups", 1);
    if (x->rank < 2 || p.groups < 1 || w->dims[0] % p.groups || x->dims[1] != w->dims[1] * p.groups)
        return eval_fail(c, DIAG_SHAPE_MISMATCH, "channels %lld, weights %lld x %lld, groups %lld",
                         (long long)(x->rank < 2 ? 0 : x->dims[1]), (long long)w->dims[0],
                         (long long)(w->rank < 2 ? 0 : w->dims[1]), (long long)p.groups);
    if (!eval_window(c, x, w->dims + 2, false, &p.win)) return false;
    int64_t dims[IR_MAX_RANK] = {x->dims[0], w->dims[0]};
    for (int d = 0; d < p.win.rank; d++) dims[2 + d] = p.win.out[d];
    if (!eval_expect(c, 0, DT_NONE, x->rank, dims)) return false;
    if (p.bias && (p.bias->rank != 1 || p.bias->dims[0] != w->dims[0] || p.bias->dtype != p.out->dtype))
        return eval_fail(c, DIAG_SHAPE_MISMATCH, "the bias must be %s[%lld]", dtype_name(p.out->dtype), (long long)w->dims[0]);
    p.in_channels = w->dims[1];
    p.out_channels = w->dims[0] / p.groups;
    p.k = p.in_channels * p.win.taps;
    p.in_f64 = eval_gemm_in_f64(x, w, p.k) && (!p.bias || dtype_is_float(x->dtype) || dtype_bits(p.bias->dtype) <= 32);
    struct gemm g = {x->dims[0] * p.groups, p.out_channels, p.win.positions, p.k, !p.in_f64, &p, conv_a, conv_w, conv_store};
    return eval_gemm(c, &g);
}

bool eval_conv(struct eval_call *c) { return eval_is_channels_last(c) ? eval_channels_last(c, conv_first) : conv_first(c); }
