// SPDX-License-Identifier: Apache-2.0
/* Softmax and normalisations: one row at a time in f64, rounded once at the end. */
#include <math.h>

#include "ir/eval_impl.h"
#include "ir/eval_table.h"
#include "ir/math_ref.h"

/* Each share of the rows has two rows of mem for itself. */
struct norm_job {
    enum ir_opcode code;
    struct eval_view in, out, scale, bias;
    bool has_scale, has_bias;
    int64_t rows, n, shares;
    double eps;
    union eval_lane *mem;
};

static void softmax_row(bool log, int64_t n, union eval_lane *x)
{
    double top = x[0].f, sum = 0;
    for (int64_t i = 1; i < n; i++) top = eval_max_f64(top, x[i].f);
    for (int64_t i = 0; i < n; i++) {
        x[i].f -= top;
        double e = ref_exp(x[i].f);
        sum += e;
        if (!log) x[i].f = e;
    }
    double lg = log ? ref_log(sum) : 0;
    for (int64_t i = 0; i < n; i++) x[i].f = log ? x[i].f - lg : x[i].f / sum;
}

static void norm_row(const struct norm_job *job, int64_t n, union eval_lane *x)
{
    double mean = 0, var = 0;
    if (job->code == IR_OP_LAYER_NORM) {
        for (int64_t i = 0; i < n; i++) mean += x[i].f;
        mean /= (double)n;
    }
    for (int64_t i = 0; i < n; i++) {
        x[i].f -= mean;
        var += x[i].f * x[i].f;
    }
    double root = sqrt(var / (double)n + job->eps);
    for (int64_t i = 0; i < n; i++) x[i].f /= root;
}

static void run_rows(void *arg, int64_t from, int64_t to)
{
    const struct norm_job *job = arg;
    int64_t n = job->n;
    for (int64_t s = from; s < to; s++) {
        union eval_lane *x = job->mem + s * 2 * n, *y = x + n;
        for (int64_t r = job->rows * s / job->shares; r < job->rows * (s + 1) / job->shares; r++) {
            eval_view_load(&job->in, r * n, n, x);
            if (job->code == IR_OP_SOFTMAX || job->code == IR_OP_LOG_SOFTMAX)
                softmax_row(job->code == IR_OP_LOG_SOFTMAX, n, x);
            else
                norm_row(job, n, x);
            if (job->has_scale) {
                eval_view_load(&job->scale, r * n, n, y);
                for (int64_t i = 0; i < n; i++) x[i].f *= y[i].f;
            }
            if (job->has_bias) {
                eval_view_load(&job->bias, r * n, n, y);
                for (int64_t i = 0; i < n; i++) x[i].f += y[i].f;
            }
            eval_view_store(&job->out, r * n, n, x);
        }
    }
}

static bool start(struct eval_call *c, struct norm_job *job)
{
    int64_t total = eval_count(&c->out[0]);
    if (total == 0) return true;
    job->rows = total / job->n;
    job->shares = total < 1 << 14 || c->n_threads < 1 ? 1 : c->n_threads < 64 ? c->n_threads : 64;
    if (job->shares > job->rows) job->shares = job->rows;
    job->mem = eval_scratch(c, 2 * job->n * job->shares, sizeof *job->mem);
    if (!job->mem) return false;
    eval_parallel(c, job->shares, 1, run_rows, job);
    return true;
}

bool eval_softmax(struct eval_call *c)
{
    int axis;
    if (!eval_need(c, 0, EVAL_FLOAT, -1) || !eval_axis(c, "axis", -1, c->in[0].rank, &axis) ||
        !eval_expect(c, 0, c->in[0].dtype, c->in[0].rank, c->in[0].dims))
        return false;
    struct norm_job job = {.code = c->op->code, .n = c->in[0].dims[axis]};
    job.in = eval_view_dense(&c->in[0]);
    job.out = eval_view_dense(&c->out[0]);
    eval_view_axis_last(&job.in, axis);
    eval_view_axis_last(&job.out, axis);
    return start(c, &job);
}

/* Optional operand i, broadcast to the result. */
static bool factor(struct eval_call *c, int i, bool *has, struct eval_view *v)
{
    const struct ir_tensor *t = eval_in(c, i), *x = &c->in[0];
    *has = t != NULL;
    if (!t) return true;
    if (!eval_need(c, i, EVAL_FLOAT, -1)) return false;
    *v = eval_view_dense(t);
    if (!eval_view_broadcast(v, x->rank, x->dims))
        return eval_fail(c, DIAG_SHAPE_MISMATCH, "operand %d does not broadcast to operand 0", i);
    eval_view_collapse(v);
    return true;
}

bool eval_norm(struct eval_call *c)
{
    int axis;
    if (!eval_need(c, 0, EVAL_FLOAT, -1) || !eval_axis(c, "axis", -1, c->in[0].rank, &axis) ||
        !eval_expect(c, 0, c->in[0].dtype, c->in[0].rank, c->in[0].dims))
        return false;
    const struct ir_tensor *x = &c->in[0];
    struct norm_job job = {.code = c->op->code, .n = eval_product(x->dims, axis, x->rank), .eps = ir_attr_float(c->op, "eps", 1e-5)};
    if (!factor(c, 1, &job.has_scale, &job.scale) || !factor(c, 2, &job.has_bias, &job.bias)) return false;
    job.in = eval_view_dense(x);
    job.out = eval_view_dense(&c->out[0]);
    return start(c, &job);
}
