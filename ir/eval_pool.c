// SPDX-License-Identifier: Apache-2.0
/* Window ops that are no product in the window: pools, and conv_transpose, which scatters products into windows. */
#include <math.h>

#include "ir/eval_gemm.h"
#include "ir/eval_table.h"
#include "ir/eval_window.h"

/* Elements of one window along one axis: first, step and number of those inside the image; and in image or pads. */
struct span {
    int64_t first, n, n_padded;
};

static struct span window_span(const struct eval_window *w, int d, int64_t out)
{
    int64_t start = out * w->strides[d] - w->lo[d], step = w->dilations[d], n = w->kernel[d];
    int64_t skip = start < 0 ? (-start + step - 1) / step : 0, limit = w->in[d] + w->hi[d];
    int64_t inside = start < w->in[d] ? (w->in[d] - 1 - start) / step + 1 : 0;
    int64_t padded = start < limit ? (limit - 1 - start) / step + 1 : 0;
    if (inside > n) inside = n;
    if (padded > n) padded = n;
    return (struct span){start + skip * step, inside > skip ? inside - skip : 0, padded > 0 ? padded : 0};
}

struct pool_job {
    enum ir_opcode code;
    struct eval_window w;
    const struct ir_tensor *x;
    struct ir_tensor *out, *index;
    bool count_pads, column_major;
};

/* One window over the image at x[base ..): walks its elements in row-major order. */
struct pool_state {
    union eval_lane best;
    int64_t best_at; /* in the image, row-major; -1: none yet */
    double sum;
    uint64_t words;
};

static void pool_take(const struct pool_job *job, struct pool_state *s, int64_t base, int64_t at)
{
    union eval_lane v;
    enum dtype t = job->x->dtype;
    eval_load(t, job->x->data, base + at, 1, 1, &v);
    if (job->code != IR_OP_POOL_MAX) {
        if (dtype_is_float(t))
            s->sum += v.f;
        else
            s->words += v.u;
        return;
    }
    bool better = s->best_at < 0;
    if (dtype_is_float(t))
        better = better || v.f > s->best.f || (v.f != v.f && s->best.f == s->best.f);
    else
        better = better || (t == DT_U64 ? v.u > s->best.u : v.i > s->best.i);
    if (better) {
        s->best = v;
        s->best_at = at;
    }
}

static int64_t to_column_major(const struct eval_window *w, int64_t at)
{
    int64_t result = 0, coord[IR_MAX_RANK];
    for (int d = w->rank - 1; d >= 0; d--) {
        coord[d] = at % w->in[d];
        at /= w->in[d];
    }
    for (int d = w->rank - 1; d >= 0; d--) result = result * w->in[d] + coord[d];
    return result;
}

static void pool_finish(const struct pool_job *job, struct pool_state *s, int64_t o, int64_t base, int64_t divisor)
{
    enum dtype t = job->x->dtype;
    union eval_lane v = {.f = s->sum};
    if (job->code == IR_OP_POOL_MAX) {
        v = s->best;
        int64_t at = s->best_at < 0 ? -1 : base + (job->column_major ? to_column_major(&job->w, s->best_at) : s->best_at);
        if (job->index) ((int64_t *)job->index->data)[o] = at;
    } else if (!dtype_is_float(t)) {
        v.u = s->words;
    } else if (job->code == IR_OP_POOL_AVG) {
        v.f = s->sum / (double)divisor;
    }
    eval_store(t, job->out->data, o, 1, 1, &v);
}

static union eval_lane least(enum dtype t)
{
    union eval_lane l = {0};
    if (dtype_is_float(t))
        l.f = -INFINITY;
    else if (dtype_class(t) == DTC_SINT)
        l.i = -(int64_t)((UINT64_C(1) << (dtype_bits(t) - 1)) - 1) - 1;
    return l;
}

static void run_pool(void *arg, int64_t from, int64_t to)
{
    const struct pool_job *job = arg;
    const struct eval_window *w = &job->w;
    for (int64_t o = from; o < to; o++) {
        struct span span[IR_MAX_RANK];
        int64_t rest = o, n = 1, padded = 1, base = o / w->positions * w->image, at[IR_MAX_RANK] = {0};
        for (int d = w->rank - 1; d >= 0; d--) {
            span[d] = window_span(w, d, rest % w->out[d]);
            rest /= w->out[d];
            n *= span[d].n;
            padded *= span[d].n_padded;
        }
        struct pool_state s = {.best = least(job->x->dtype), .best_at = -1};
        for (int64_t i = 0; i < n; i++) {
            int64_t pos = 0;
            for (int d = 0; d < w->rank; d++) pos = pos * w->in[d] + span[d].first + at[d] * w->dilations[d];
            pool_take(job, &s, base, pos);
            for (int d = w->rank - 1; d >= 0 && ++at[d] == span[d].n; d--) at[d] = 0;
        }
        pool_finish(job, &s, o, base, job->count_pads ? padded : n);
    }
}

static bool pool_init(struct eval_call *c, struct pool_job *job)
{
    int64_t kernel[IR_MAX_RANK], dims[IR_MAX_RANK];
    unsigned classes = job->code == IR_OP_POOL_AVG ? EVAL_FLOAT : EVAL_FLOAT | EVAL_INT;
    if (!eval_need(c, 0, classes, -1)) return false;
    const struct ir_tensor *x = job->x = &c->in[0];
    if (x->rank < 2 || !eval_ints(c, "kernel", x->rank - 2, 1, kernel) || !eval_window(c, x, kernel, true, &job->w))
        return x->rank < 2 ? eval_fail(c, DIAG_SHAPE_MISMATCH, "rank %d", x->rank) : false;
    dims[0] = x->dims[0];
    dims[1] = x->dims[1];
    for (int d = 0; d < job->w.rank; d++) dims[2 + d] = job->w.out[d];
    job->out = &c->out[0];
    return eval_expect(c, 0, x->dtype, x->rank, dims) &&
           (job->code != IR_OP_POOL_MAX || c->n_out < 2 || eval_expect(c, 1, DT_I64, x->rank, dims));
}

static bool pool_max_first(struct eval_call *c)
{
    struct pool_job job = {.code = c->op->code, .column_major = ir_attr_int(c->op, "column_major", 0) != 0};
    if (!pool_init(c, &job)) return false;
    job.index = c->n_out > 1 ? &c->out[1] : NULL;
    eval_parallel(c, eval_count(job.out), 1 + (1 << 14) / (job.w.taps + 1), run_pool, &job);
    return true;
}

static bool pool_sum_first(struct eval_call *c)
{
    struct pool_job job = {.code = c->op->code, .count_pads = ir_attr_int(c->op, "count_include_pad", 0) != 0};
    if (!pool_init(c, &job)) return false;
    eval_parallel(c, eval_count(job.out), 1 + (1 << 14) / (job.w.taps + 1), run_pool, &job);
    return true;
}

bool eval_pool_max(struct eval_call *c)
{
    return eval_is_channels_last(c) ? eval_channels_last(c, pool_max_first) : pool_max_first(c);
}

bool eval_pool_sum(struct eval_call *c)
{
    return eval_is_channels_last(c) ? eval_channels_last(c, pool_sum_first) : pool_sum_first(c);
}

/* ---- conv_transpose ---- */

/*
 * x positions take the part of conv's output and result positions that of its input: rows of the product are (channel,
 * tap), columns positions of x; each product goes to the one result position that its tap reaches.
 */
struct transposed {
    const struct ir_tensor *x, *w;
    bool in_f64;
    struct eval_window win; /* in: result sizes, out: x sizes */
    int64_t groups, in_channels, out_channels;
    union eval_lane *sums; /* all results */
};

static void load(const struct ir_tensor *t, bool in_f64, int64_t offset, int64_t stride, int64_t n, union eval_lane *out)
{
    if (in_f64)
        eval_load_f(t->dtype, t->data, offset, stride, n, out);
    else
        eval_load(t->dtype, t->data, offset, stride, n, out);
}

/* Row i = (o, tap) of the weights over input channels k. */
static void transposed_a(const void *arg, int64_t b, int64_t i, int64_t k0, int64_t n, union eval_lane *out)
{
    const struct transposed *p = arg;
    int64_t stride = p->out_channels * p->win.taps;
    load(p->w, p->in_f64, (b % p->groups * p->in_channels + k0) * stride + i, stride, n, out);
}

static void transposed_w(const void *arg, int64_t b, int64_t k, int64_t j0, int64_t n, union eval_lane *out)
{
    const struct transposed *p = arg;
    load(p->x, p->in_f64, (b * p->in_channels + k) * p->win.positions + j0, 1, n, out);
}

static void transposed_store(const void *arg, int64_t b, int64_t i, int64_t j0, int64_t n, union eval_lane *c)
{
    const struct transposed *p = arg;
    const struct eval_window *w = &p->win;
    union eval_lane *image = p->sums + (b * p->out_channels + i / w->taps) * w->image;
    int64_t tap = i % w->taps, tap_at[IR_MAX_RANK];
    for (int d = w->rank - 1; d >= 0; d--) {
        tap_at[d] = tap % w->kernel[d] * w->dilations[d] - w->lo[d];
        tap /= w->kernel[d];
    }
    for (int64_t j = 0; j < n; j++) {
        int64_t rest = j0 + j, at = 0, stride = 1;
        bool inside = true;
        for (int d = w->rank - 1; d >= 0; d--) {
            int64_t pos = rest % w->out[d] * w->strides[d] + tap_at[d];
            rest /= w->out[d];
            inside = inside && pos >= 0 && pos < w->in[d];
            at += pos * stride;
            stride *= w->in[d];
        }
        if (!inside) continue;
        if (p->in_f64)
            image[at].f += c[j].f;
        else
            image[at].u += c[j].u;
    }
}

static bool transposed_init(struct eval_call *c, struct transposed *p, const struct ir_tensor *bias)
{
    const struct ir_tensor *x = p->x, *w = p->w;
    int64_t dims[IR_MAX_RANK];
    p->groups = ir_attr_int(c->op, "groups", 1);
    if (x->rank < 2 || x->dtype != w->dtype || p->groups < 1 || w->dims[0] != x->dims[1] || w->dims[0] % p->groups)
        return eval_fail(c, DIAG_SHAPE_MISMATCH, "operands do not fit: channels, groups or types");
    if (!eval_window(c, x, w->dims + 2, true, &p->win)) return false;
    dims[0] = x->dims[0];
    dims[1] = w->dims[1] * p->groups;
    for (int d = 0; d < p->win.rank; d++) {
        int64_t reach;
        if (!i64_mul(x->dims[2 + d], p->win.strides[d], &reach) || reach > INT64_MAX / 4)
            return eval_fail(c, DIAG_SHAPE_MISMATCH, "spatial axis %d: the stride is out of range", d);
        dims[2 + d] = p->win.out[d];
        p->win.in[d] = p->win.out[d];
        p->win.out[d] = x->dims[2 + d];
    }
    int64_t image = p->win.positions;
    p->win.positions = p->win.image;
    p->win.image = image;
    if (!eval_expect(c, 0, x->dtype, x->rank, dims)) return false;
    if (bias && (bias->rank != 1 || bias->dims[0] != dims[1] || bias->dtype != x->dtype))
        return eval_fail(c, DIAG_SHAPE_MISMATCH, "the bias must be %s[%lld]", dtype_name(x->dtype), (long long)dims[1]);
    p->in_channels = w->dims[0] / p->groups;
    p->out_channels = w->dims[1];
    p->in_f64 = eval_gemm_in_f64(x, w, p->in_channels * p->win.taps) && dtype_is_float(x->dtype);
    return true;
}

bool eval_conv_transpose(struct eval_call *c)
{
    if (!eval_need(c, 0, EVAL_FLOAT | EVAL_INT, -1) || !eval_need(c, 1, EVAL_FLOAT | EVAL_INT, c->in[0].rank)) return false;
    struct transposed p = {.x = &c->in[0], .w = &c->in[1]};
    const struct ir_tensor *bias = eval_in(c, 2);
    struct ir_tensor *out = &c->out[0];
    if (!transposed_init(c, &p, bias)) return false;
    p.sums = eval_scratch(c, eval_count(out), sizeof *p.sums);
    if (!p.sums) return false;
    struct gemm g = {p.x->dims[0] * p.groups, p.out_channels * p.win.taps, p.win.positions, p.in_channels, !p.in_f64,
                     &p, transposed_a, transposed_w, transposed_store};
    int n_threads = c->n_threads;
    c->n_threads = 1; /* taps of one channel add to the same results */
    bool ok = eval_gemm(c, &g);
    c->n_threads = n_threads;
    if (!ok) return false;
    int64_t channels = out->dims[0] * out->dims[1], image = p.win.image;
    for (int64_t i = 0; i < channels; i++) {
        union eval_lane b = {0};
        if (bias) load(bias, p.in_f64, i % out->dims[1], 1, 1, &b);
        for (int64_t j = 0; bias && j < image; j++) {
            if (p.in_f64)
                p.sums[i * image + j].f += b.f;
            else
                p.sums[i * image + j].u += b.u;
        }
    }
    eval_store(out->dtype, out->data, 0, 1, channels * image, p.sums);
    return true;
}
