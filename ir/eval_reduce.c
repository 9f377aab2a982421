// SPDX-License-Identifier: Apache-2.0
/* Reductions, running sums and top-k. The reduced axes are moved last, so that each result reads one stretch of a view. */
#include <math.h>
#include <stdlib.h>

#include "ir/eval_impl.h"
#include "ir/eval_table.h"

struct reduce_job {
    enum ir_opcode code;
    struct eval_view view; /* kept axes, then reduced axes */
    int64_t n;             /* elements reduced into one */
    struct ir_tensor *out;
    union eval_lane init;
    bool last;
    int64_t *index; /* arg ops: result */
};

static void fold_f(enum ir_opcode code, int64_t n, const union eval_lane *x, double *acc)
{
    double a = *acc;
    switch (code) {
    case IR_OP_REDUCE_SUM: for (int64_t i = 0; i < n; i++) a += x[i].f; break;
    case IR_OP_REDUCE_PROD: for (int64_t i = 0; i < n; i++) a *= x[i].f; break;
    case IR_OP_REDUCE_MAX:
        for (int64_t i = 0; i < n; i++)
            if (x[i].f > a || x[i].f != x[i].f || (x[i].f == a && signbit(a))) a = a != a ? a : x[i].f;
        break;
    default:
        for (int64_t i = 0; i < n; i++)
            if (x[i].f < a || x[i].f != x[i].f || (x[i].f == a && !signbit(a))) a = a != a ? a : x[i].f;
        break;
    }
    *acc = a;
}

static void fold_i(enum ir_opcode code, bool is_u64, int64_t n, const union eval_lane *x, union eval_lane *acc)
{
    union eval_lane a = *acc;
    switch (code) {
    case IR_OP_REDUCE_SUM: for (int64_t i = 0; i < n; i++) a.u += x[i].u; break;
    case IR_OP_REDUCE_PROD: for (int64_t i = 0; i < n; i++) a.u *= x[i].u; break;
    case IR_OP_REDUCE_MAX:
        for (int64_t i = 0; i < n; i++)
            if (is_u64 ? x[i].u > a.u : x[i].i > a.i) a = x[i];
        break;
    default:
        for (int64_t i = 0; i < n; i++)
            if (is_u64 ? x[i].u < a.u : x[i].i < a.i) a = x[i];
        break;
    }
    *acc = a;
}

static void run_reduce(void *arg, int64_t from, int64_t to)
{
    const struct reduce_job *job = arg;
    union eval_lane block[EVAL_BLOCK];
    enum dtype t = job->view.dtype;
    for (int64_t o = from; o < to; o++) {
        union eval_lane acc = job->init;
        for (int64_t at = 0; at < job->n; at += EVAL_BLOCK) {
            int64_t n = job->n - at < EVAL_BLOCK ? job->n - at : EVAL_BLOCK;
            eval_view_load(&job->view, o * job->n + at, n, block);
            if (dtype_is_float(t))
                fold_f(job->code, n, block, &acc.f);
            else
                fold_i(job->code, t == DT_U64, n, block, &acc);
        }
        eval_store(job->out->dtype, job->out->data, o, 1, 1, &acc);
    }
}

/* The greatest (sign 1) or least (sign -1) value of a type; infinite for floats. */
static union eval_lane extreme(enum dtype t, int sign)
{
    unsigned bits = t == DT_BOOL ? 1 : dtype_bits(t);
    union eval_lane l = {0};
    if (dtype_is_float(t))
        l.f = sign * INFINITY;
    else if (dtype_class(t) == DTC_SINT)
        l.i = sign > 0 ? (int64_t)((UINT64_C(1) << (bits - 1)) - 1) : -(int64_t)((UINT64_C(1) << (bits - 1)) - 1) - 1;
    else if (sign > 0)
        l.u = bits == 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;
    return l;
}

static union eval_lane reduce_init(enum ir_opcode code, enum dtype t)
{
    union eval_lane l = {0};
    if (code == IR_OP_REDUCE_MAX) return extreme(t, -1);
    if (code == IR_OP_REDUCE_MIN) return extreme(t, 1);
    if (code == IR_OP_REDUCE_PROD) {
        if (dtype_is_float(t))
            l.f = 1;
        else
            l.i = 1;
    }
    return l;
}

/* The operand's view with the axes of the mask last, and the shape that is left. */
static bool reduce_axes(struct eval_call *c, unsigned mask, struct eval_view *v, int64_t *n)
{
    const struct ir_tensor *x = &c->in[0];
    bool keep = ir_attr_int(c->op, "keepdims", 0) != 0;
    int64_t dims[IR_MAX_RANK];
    int rank = 0, at = 0, perm[IR_MAX_RANK];
    *n = 1;
    for (int i = 0; i < x->rank; i++) {
        if (mask >> i & 1)
            *n *= x->dims[i];
        else
            perm[at++] = i;
        if (!(mask >> i & 1) || keep) dims[rank++] = mask >> i & 1 ? 1 : x->dims[i];
    }
    for (int i = 0; i < x->rank; i++)
        if (mask >> i & 1) perm[at++] = i;
    *v = eval_view_dense(x);
    eval_view_permute(v, perm);
    eval_view_collapse(v);
    return eval_expect(c, 0, DT_NONE, rank, dims);
}

bool eval_reduce(struct eval_call *c)
{
    int n_axes;
    const int64_t *axes = ir_attr_ints(c->op, "axes", &n_axes);
    unsigned mask = 0;
    if (!eval_need(c, 0, EVAL_ANY, -1)) return false;
    const struct ir_tensor *x = &c->in[0];
    for (int i = 0; i < n_axes; i++) {
        if (axes[i] < 0 || axes[i] >= x->rank || mask >> axes[i] & 1)
            return eval_fail(c, DIAG_SHAPE_MISMATCH, "axis %lld of rank %d", (long long)axes[i], x->rank);
        mask |= 1u << axes[i];
    }
    struct reduce_job job = {.code = c->op->code, .out = &c->out[0], .init = reduce_init(c->op->code, x->dtype)};
    if (!reduce_axes(c, mask, &job.view, &job.n)) return false;
    if (c->out[0].dtype != x->dtype)
        return eval_fail(c, DIAG_DTYPE_MISMATCH, "the result cannot be %s", dtype_name(c->out[0].dtype));
    eval_parallel(c, eval_count(&c->out[0]), 1 + (1 << 15) / (job.n + 1), run_reduce, &job);
    return true;
}

/* ---- index of the extreme ---- */

static void run_arg(void *arg, int64_t from, int64_t to)
{
    const struct reduce_job *job = arg;
    union eval_lane block[EVAL_BLOCK];
    enum dtype t = job->view.dtype;
    bool is_float = dtype_is_float(t), max = job->code == IR_OP_ARG_MAX;
    for (int64_t o = from; o < to; o++) {
        union eval_lane best = {0};
        int64_t index = 0;
        for (int64_t at = 0; at < job->n; at++) {
            int64_t k = at % EVAL_BLOCK;
            if (k == 0) eval_view_load(&job->view, o * job->n + at, job->n - at < EVAL_BLOCK ? job->n - at : EVAL_BLOCK, block);
            union eval_lane v = block[k];
            int cmp; /* v against best, positive: better; a NaN is better than everything but a NaN */
            if (is_float && (v.f != v.f || best.f != best.f))
                cmp = (v.f != v.f) - (best.f != best.f);
            else if (is_float)
                cmp = max ? (v.f > best.f) - (v.f < best.f) : (v.f < best.f) - (v.f > best.f);
            else if (t == DT_U64)
                cmp = max ? (v.u > best.u) - (v.u < best.u) : (v.u < best.u) - (v.u > best.u);
            else
                cmp = max ? (v.i > best.i) - (v.i < best.i) : (v.i < best.i) - (v.i > best.i);
            if (at == 0 || cmp > 0 || (cmp == 0 && job->last)) {
                best = v;
                index = at;
            }
        }
        job->index[o] = index;
    }
}

bool eval_arg(struct eval_call *c)
{
    int axis;
    if (!eval_need(c, 0, EVAL_ANY, -1) || !eval_axis(c, "axis", 0, c->in[0].rank, &axis)) return false;
    struct reduce_job job = {.code = c->op->code, .last = ir_attr_int(c->op, "last", 0) != 0, .index = c->out[0].data};
    if (!reduce_axes(c, 1u << axis, &job.view, &job.n)) return false;
    if (c->out[0].dtype != DT_I64) return eval_fail(c, DIAG_DTYPE_MISMATCH, "the result must be i64");
    if (job.n == 0 && eval_count(&c->out[0]) > 0) return eval_fail(c, DIAG_SHAPE_MISMATCH, "axis %d is empty", axis);
    eval_parallel(c, eval_count(&c->out[0]), 1 + (1 << 15) / (job.n + 1), run_arg, &job);
    return true;
}

/* ---- running sum and product ---- */

bool eval_cum(struct eval_call *c)
{
    int axis;
    if (!eval_need(c, 0, EVAL_FLOAT | EVAL_INT, -1) || !eval_axis(c, "axis", 0, c->in[0].rank, &axis)) return false;
    const struct ir_tensor *x = &c->in[0];
    if (!eval_expect(c, 0, x->dtype, x->rank, x->dims)) return false;
    bool exclusive = ir_attr_int(c->op, "exclusive", 0) != 0, reverse = ir_attr_int(c->op, "reverse", 0) != 0;
    bool prod = c->op->code == IR_OP_CUM_PROD, is_float = dtype_is_float(x->dtype);
    int64_t n = x->dims[axis], total = eval_count(x);
    if (total == 0) return true;
    struct eval_view in = eval_view_dense(x), out = eval_view_dense(&c->out[0]);
    eval_view_axis_last(&in, axis);
    eval_view_axis_last(&out, axis);
    union eval_lane *row = eval_scratch(c, n, sizeof *row);
    if (!row) return false;
    for (int64_t o = 0; o < total / n; o++) {
        union eval_lane acc = reduce_init(prod ? IR_OP_REDUCE_PROD : IR_OP_REDUCE_SUM, x->dtype);
        eval_view_load(&in, o * n, n, row);
        for (int64_t k = 0; k < n; k++) {
            int64_t i = reverse ? n - 1 - k : k;
            union eval_lane before = acc;
            if (is_float)
                acc.f = prod ? acc.f * row[i].f : acc.f + row[i].f;
            else
                acc.u = prod ? acc.u * row[i].u : acc.u + row[i].u;
            row[i] = exclusive ? before : acc;
        }
        eval_view_store(&out, o * n, n, row);
    }
    return true;
}

/* ---- top-k ---- */

struct ranked {
    union eval_lane v;
    int64_t index;
};

/* Sorted order: better first, equal ones by index; a NaN counts as the greatest. */
static int by_float_least(const void *pa, const void *pb)
{
    const struct ranked *a = pa, *b = pb;
    bool na = a->v.f != a->v.f, nb = b->v.f != b->v.f;
    if (na != nb) return na ? 1 : -1;
    if (!na && a->v.f != b->v.f) return a->v.f < b->v.f ? -1 : 1;
    return a->index < b->index ? -1 : 1;
}

static int by_float(const void *pa, const void *pb)
{
    const struct ranked *a = pa, *b = pb;
    bool na = a->v.f != a->v.f, nb = b->v.f != b->v.f;
    if (na != nb) return na ? -1 : 1;
    if (!na && a->v.f != b->v.f) return a->v.f > b->v.f ? -1 : 1;
    return a->index < b->index ? -1 : 1;
}

static int by_word(const void *pa, const void *pb)
{
    const struct ranked *a = pa, *b = pb;
    if (a->v.i != b->v.i) return a->v.i > b->v.i ? -1 : 1;
    return a->index < b->index ? -1 : 1;
}

/* Words: makes "least" into "greatest" and u64 into i64 order. An involution. */
static void to_order(enum dtype t, bool largest, union eval_lane *v)
{
    if (dtype_is_float(t)) return;
    if (t == DT_U64) v->u ^= UINT64_C(1) << 63;
    if (!largest) v->u = ~v->u;
}

bool eval_topk(struct eval_call *c)
{
    int axis;
    int64_t k, dims[IR_MAX_RANK];
    if (!eval_need(c, 0, EVAL_FLOAT | EVAL_INT, -1) || !eval_axis(c, "axis", -1, c->in[0].rank, &axis) ||
        !eval_dims(c, "k", 1, 0, &k))
        return false;
    const struct ir_tensor *x = &c->in[0];
    bool largest = ir_attr_int(c->op, "largest", 1) != 0;
    memcpy(dims, x->dims, sizeof dims);
    if (k < 0 || k > dims[axis])
        return eval_fail(c, DIAG_SHAPE_MISMATCH, "k is %lld of %lld", (long long)k, (long long)dims[axis]);
    dims[axis] = k;
    if (!eval_expect(c, 0, x->dtype, x->rank, dims) || !eval_expect(c, 1, DT_I64, x->rank, dims)) return false;
    int64_t n = x->dims[axis], rows = n ? eval_count(x) / n : 0;
    if (k == 0) return true;
    struct eval_view in = eval_view_dense(x), values = eval_view_dense(&c->out[0]), indices = eval_view_dense(&c->out[1]);
    eval_view_axis_last(&in, axis);
    eval_view_axis_last(&values, axis);
    eval_view_axis_last(&indices, axis);
    union eval_lane *row = eval_scratch(c, n, sizeof *row);
    struct ranked *sorted = eval_scratch(c, n, sizeof *sorted);
    int (*order)(const void *, const void *) = !dtype_is_float(x->dtype) ? by_word : largest ? by_float : by_float_least;
    if (!row || !sorted) return false;
    for (int64_t o = 0; o < rows; o++) {
        eval_view_load(&in, o * n, n, row);
        for (int64_t i = 0; i < n; i++) {
            to_order(x->dtype, largest, &row[i]);
            sorted[i] = (struct ranked){row[i], i};
        }
        qsort(sorted, (size_t)n, sizeof *sorted, order);
        for (int64_t i = 0; i < k; i++) {
            row[i] = sorted[i].v;
            to_order(x->dtype, largest, &row[i]);
        }
        eval_view_store(&values, o * k, k, row);
        for (int64_t i = 0; i < k; i++) row[i].i = sorted[i].index;
        eval_view_store(&indices, o * k, k, row);
    }
    return true;
}
