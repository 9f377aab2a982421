// SPDX-License-Identifier: Apache-2.0
/* Sampling at given places: ONNX GridSample in any number of dimensions, and RoiAlign. */
#include <math.h>

#include "ir/eval_impl.h"
#include "ir/eval_table.h"

/* ---- grid_sample ---- */

enum padding { PAD_ZEROS, PAD_BORDER, PAD_REFLECTION };
enum mode { MODE_LINEAR, MODE_NEAREST, MODE_CUBIC };

struct grid_job {
    const struct ir_tensor *x, *grid;
    struct ir_tensor *out;
    enum padding padding;
    enum mode mode;
    bool align_corners;
    int rank; /* spatial */
    int64_t in[IR_MAX_RANK], points, image, channels;
};

/* Mirrors v at the borders until it lies within. */
static double reflect(double v, double lo, double hi)
{
    double range = hi - lo;
    if (range <= 0) return lo;
    if (v >= lo && v <= hi) return v;
    double d = fmod(fabs(v - lo), 2 * range); /* mirror images repeat after twice the range */
    return d <= range ? lo + d : hi - (d - range);
}

/* A point's coordinate in elements of an axis of n, brought into the image as the padding mode wants. */
static double place(const struct grid_job *job, double v, int64_t n)
{
    double lo = job->align_corners ? 0 : -0.5, hi = (double)(n - 1) - lo;
    v = job->align_corners ? (v + 1) / 2 * (double)(n - 1) : ((v + 1) * (double)n - 1) / 2;
    if (v != v) v = -0x1p40; /* like far outside */
    v = fmin(fmax(v, -0x1p40), 0x1p40);
    if (job->mode == MODE_NEAREST) v = rint(v);
    if (job->mode == MODE_CUBIC) return v; /* only its neighbours are brought in */
    if (job->padding == PAD_BORDER) v = fmin(fmax(v, 0), (double)(n - 1));
    if (job->padding == PAD_REFLECTION) v = reflect(v, lo, hi);
    return v;
}

/* Element index of neighbour i, or -1 for zero. */
static int64_t neighbour(const struct grid_job *job, int64_t i, int64_t n)
{
    if (i >= 0 && i < n) return i;
    if (job->padding == PAD_ZEROS) return -1;
    if (job->padding == PAD_BORDER) return i < 0 ? 0 : n - 1;
    double lo = job->align_corners ? 0 : -0.5;
    i = (int64_t)reflect((double)i, lo, (double)(n - 1) - lo);
    return i < 0 ? 0 : i >= n ? n - 1 : i;
}

static void cubic_weights(double d, double *w)
{
    const double a = -0.75;
    double e = 1 - d;
    w[0] = ((a * (d + 1) - 5 * a) * (d + 1) + 8 * a) * (d + 1) - 4 * a;
    w[1] = ((a + 2) * d - (a + 3)) * d * d + 1;
    w[2] = ((a + 2) * e - (a + 3)) * e * e + 1;
    w[3] = ((a * (e + 1) - 5 * a) * (e + 1) + 8 * a) * (e + 1) - 4 * a;
}

/* Taps of one axis: index (-1: zero) and weight of up to four neighbours. */
struct axis_taps {
    int n;
    int64_t index[4];
    double weight[4];
};

static void axis_taps(const struct grid_job *job, double at, int64_t n, struct axis_taps *t)
{
    double base = floor(at), d = at - base;
    int64_t first = (int64_t)base;
    t->n = 1;
    t->weight[0] = 1;
    if (job->mode == MODE_LINEAR) {
        t->n = 2;
        t->weight[0] = 1 - d;
        t->weight[1] = d;
    } else if (job->mode == MODE_CUBIC) {
        t->n = 4;
        first--;
        cubic_weights(d, t->weight);
    }
    for (int i = 0; i < t->n; i++) t->index[i] = neighbour(job, first + i, n);
}

/* Sum over the taps of axes from d on; offset is the element reached so far. */
static double grid_sum(const struct grid_job *job, const struct axis_taps *t, int d, int64_t offset)
{
    if (d == job->rank) return eval_get_f(job->x, offset);
    double sum = 0;
    for (int i = 0; i < t[d].n; i++) {
        double v = t[d].index[i] < 0 ? 0 : grid_sum(job, t, d + 1, offset * job->in[d] + t[d].index[i]);
        sum += t[d].weight[i] * v;
    }
    return sum;
}

static void run_grid(void *arg, int64_t from, int64_t to)
{
    const struct grid_job *job = arg;
    for (int64_t p = from; p < to; p++) { /* p: batch and point */
        struct axis_taps t[IR_MAX_RANK];
        int64_t b = p / job->points;
        for (int d = 0; d < job->rank; d++) /* the grid's last axis counts x, y, z: the image's axes backwards */
            axis_taps(job, place(job, eval_get_f(job->grid, p * job->rank + job->rank - 1 - d), job->in[d]), job->in[d], &t[d]);
        for (int64_t ch = 0; ch < job->channels; ch++)
            eval_set_f(job->out, (b * job->channels + ch) * job->points + p % job->points,
                       grid_sum(job, t, 0, b * job->channels + ch));
    }
}

bool eval_grid_sample(struct eval_call *c)
{
    struct grid_job job = {.align_corners = ir_attr_int(c->op, "align_corners", 0) != 0};
    const char *mode = ir_attr_string(c->op, "mode", "linear"), *padding = ir_attr_string(c->op, "padding", "zeros");
    if (!eval_need(c, 0, EVAL_FLOAT, -1) || !eval_need(c, 1, EVAL_FLOAT, c->in[0].rank)) return false;
    const struct ir_tensor *x = job.x = &c->in[0], *grid = job.grid = &c->in[1];
    job.mode = !strcmp(mode, "nearest") ? MODE_NEAREST : !strcmp(mode, "cubic") ? MODE_CUBIC : MODE_LINEAR;
    job.padding = !strcmp(padding, "border") ? PAD_BORDER : !strcmp(padding, "reflection") ? PAD_REFLECTION : PAD_ZEROS;
    if ((job.mode == MODE_LINEAR && strcmp(mode, "linear")) || (job.padding == PAD_ZEROS && strcmp(padding, "zeros")))
        return eval_fail(c, DIAG_IR_VERIFY, "unknown mode %.40s or padding %.40s", mode, padding);
    job.rank = x->rank - 2;
    if (job.rank < 1 || grid->dims[0] != x->dims[0] || grid->dims[x->rank - 1] != job.rank)
        return eval_fail(c, DIAG_SHAPE_MISMATCH, "the grid does not fit the image");
    int64_t dims[IR_MAX_RANK] = {x->dims[0], x->dims[1]};
    for (int d = 0; d < job.rank; d++) {
        dims[2 + d] = grid->dims[1 + d];
        job.in[d] = x->dims[2 + d];
    }
    if (!eval_expect(c, 0, x->dtype, x->rank, dims)) return false;
    job.out = &c->out[0];
    if (eval_count(job.out) == 0) return true;
    job.points = eval_product(dims, 2, x->rank);
    job.image = eval_product(job.in, 0, job.rank);
    job.channels = x->dims[1];
    if (job.image == 0) return eval_fail(c, DIAG_SHAPE_MISMATCH, "the image is empty");
    eval_parallel(c, dims[0] * job.points, 256, run_grid, &job);
    return true;
}

/* ---- roi_align ---- */

struct roi_job {
    const struct ir_tensor *x, *rois, *batch;
    struct ir_tensor *out;
    bool max, half_pixel;
    double scale;
    int64_t ratio, height, width; /* of the image */
};

/* Position on one axis of n: the two elements and the second one's weight; false when beyond the image. */
static bool roi_axis(double v, int64_t n, int64_t *low, int64_t *high, double *weight)
{
    if (!(v >= -1 && v <= (double)n)) return false;
    v = fmax(v, 0);
    *low = (int64_t)v;
    *high = *low + 1;
    if (*low >= n - 1) {
        *low = *high = n - 1;
        v = (double)(n - 1);
    }
    *weight = v - (double)*low;
    return true;
}

/* One bin: mean of the bilinear samples, or the greatest of all weighted corners (as ONNX has it). */
static double roi_bin(const struct roi_job *job, int64_t base, double y0, double x0, double bin_h, double bin_w, int64_t grid_h,
                      int64_t grid_w)
{
    double sum = 0, top = 0;
    bool any = false;
    for (int64_t i = 0; i < grid_h; i++)
        for (int64_t j = 0; j < grid_w; j++) {
            int64_t y[2], x[2];
            double wy, wx;
            double v[4] = {0};
            if (roi_axis(y0 + ((double)i + 0.5) * bin_h / (double)grid_h, job->height, &y[0], &y[1], &wy) &&
                roi_axis(x0 + ((double)j + 0.5) * bin_w / (double)grid_w, job->width, &x[0], &x[1], &wx))
                for (int k = 0; k < 4; k++)
                    v[k] = (k / 2 ? wy : 1 - wy) * (k % 2 ? wx : 1 - wx) *
                           eval_get_f(job->x, base + y[k / 2] * job->width + x[k % 2]);
            double greatest = eval_max_f64(eval_max_f64(v[0], v[1]), eval_max_f64(v[2], v[3]));
            top = any ? eval_max_f64(top, greatest) : greatest;
            any = true;
            sum += v[0] + v[1] + v[2] + v[3];
        }
    if (job->max) return top;
    return any ? sum / (double)(grid_h * grid_w) : 0;
}

static void roi_run(const struct roi_job *job, int64_t r)
{
    int64_t channels = job->x->dims[1], oh = job->out->dims[2], ow = job->out->dims[3], b = eval_get_i(job->batch, r);
    double at[4], offset = job->half_pixel ? 0.5 : 0;
    for (int k = 0; k < 4; k++) at[k] = eval_get_f(job->rois, r * 4 + k) * job->scale - offset;
    double w = at[2] - at[0], h = at[3] - at[1];
    if (!job->half_pixel) { /* a malformed region counts as 1 x 1 */
        w = fmax(w, 1);
        h = fmax(h, 1);
    }
    double bin_h = h / (double)oh, bin_w = w / (double)ow;
    int64_t grid_h = job->ratio > 0 ? job->ratio : (int64_t)fmin(ceil(bin_h), 0x1p20);
    int64_t grid_w = job->ratio > 0 ? job->ratio : (int64_t)fmin(ceil(bin_w), 0x1p20);
    for (int64_t ch = 0; ch < channels; ch++)
        for (int64_t y = 0; y < oh; y++)
            for (int64_t x = 0; x < ow; x++)
                eval_set_f(job->out, ((r * channels + ch) * oh + y) * ow + x,
                           roi_bin(job, (b * channels + ch) * job->height * job->width, at[1] + (double)y * bin_h,
                                   at[0] + (double)x * bin_w, bin_h, bin_w, grid_h, grid_w));
}

static void run_rois(void *arg, int64_t from, int64_t to)
{
    for (int64_t r = from; r < to; r++) roi_run(arg, r);
}

bool eval_roi_align(struct eval_call *c)
{
    if (!eval_need(c, 0, EVAL_FLOAT, 4) || !eval_need(c, 1, EVAL_FLOAT, 2) || !eval_need(c, 2, EVAL_INT, 1)) return false;
    struct roi_job job = {.x = &c->in[0], .rois = &c->in[1], .batch = &c->in[2], .out = &c->out[0]};
    const char *mode = ir_attr_string(c->op, "mode", "avg"), *coord = ir_attr_string(c->op, "coord", "half_pixel");
    job.max = !strcmp(mode, "max");
    job.half_pixel = !strcmp(coord, "half_pixel");
    if ((!job.max && strcmp(mode, "avg")) || (!job.half_pixel && strcmp(coord, "output_half_pixel")))
        return eval_fail(c, DIAG_IR_VERIFY, "unknown mode %.40s or coord %.40s", mode, coord);
    job.scale = ir_attr_float(c->op, "spatial_scale", 1);
    job.ratio = ir_attr_int(c->op, "sampling_ratio", 0);
    job.height = job.x->dims[2];
    job.width = job.x->dims[3];
    int64_t n = job.rois->dims[0];
    int64_t dims[4] = {n, job.x->dims[1], ir_attr_int(c->op, "output_height", 1), ir_attr_int(c->op, "output_width", 1)};
    if (job.rois->dims[1] != 4 || job.batch->dims[0] != n || job.ratio < 0 || job.ratio > 1 << 20)
        return eval_fail(c, DIAG_SHAPE_MISMATCH, "regions, batch indices or the sampling ratio do not fit");
    if (!eval_expect(c, 0, job.x->dtype, 4, dims)) return false;
    if (eval_count(job.out) == 0) return true;
    if (eval_count(job.x) == 0) return eval_fail(c, DIAG_SHAPE_MISMATCH, "the image is empty");
    for (int64_t r = 0; r < n; r++) {
        int64_t b = eval_get_i(job.batch, r);
        if (b < 0 || b >= job.x->dims[0])
            return eval_fail(c, DIAG_SHAPE_MISMATCH, "batch index %lld of %lld", (long long)b, (long long)job.x->dims[0]);
        for (int k = 0; k < 4; k++)
            if (!isfinite(eval_get_f(job.rois, r * 4 + k))) return eval_fail(c, DIAG_SHAPE_MISMATCH, "region %lld is not finite", (long long)r);
    }
    eval_parallel(c, n, 1, run_rois, &job);
    return true;
}
