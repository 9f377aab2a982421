// SPDX-License-Identifier: Apache-2.0
/*
 * Resampling is separable: each axis has a table of taps (source index and weight) for every result coordinate, and one
 * axis after another is contracted in f64. Axes that stay as they are are skipped.
 */
#include <math.h>

#include "ir/eval_impl.h"
#include "ir/eval_table.h"

enum coord { HALF_PIXEL, HALF_PIXEL_SYMMETRIC, PYTORCH_HALF_PIXEL, ALIGN_CORNERS, ASYMMETRIC, CROP_AND_RESIZE, COORD_COUNT };
enum mode { NEAREST, LINEAR, CUBIC, MODE_COUNT };
enum nearest { ROUND_PREFER_FLOOR, ROUND_PREFER_CEIL, FLOOR, CEIL, NEAREST_COUNT };

struct resize {
    enum coord coord;
    enum mode mode;
    enum nearest nearest;
    double cubic_a;
    bool exclude_outside, antialias;
};

/* Taps of one axis: n a result coordinate. */
struct taps {
    int64_t n;
    int64_t *index;
    double *weight;
    bool *outside; /* tf_crop_and_resize: takes the extrapolation value */
};

static bool read_word(struct eval_call *c, const char *name, const char *const *words, int n, int *out)
{
    const char *word = ir_attr_string(c->op, name, words[0]);
    for (*out = 0; *out < n; (*out)++)
        if (!strcmp(words[*out], word)) return true;
    return eval_fail(c, DIAG_IR_VERIFY, "unknown %s %.40s", name, word);
}

/* Source coordinate of result coordinate x. length: scale * n, in general no integer. */
static double source(const struct resize *r, double x, double scale, double length, int64_t n, int64_t out, const double *roi)
{
    double half = (x + 0.5) / scale - 0.5, last = (double)(n - 1);
    switch (r->coord) {
    case HALF_PIXEL: return half;
    case HALF_PIXEL_SYMMETRIC: return (double)n / 2 * (1 - (double)out / length) + half;
    case PYTORCH_HALF_PIXEL: return out > 1 ? half : 0;
    case ALIGN_CORNERS: return length == 1 ? 0 : x * last / (length - 1);
    case ASYMMETRIC: return x / scale;
    default:
        if (out > 1) return roi[0] * last + x * (roi[1] - roi[0]) * last / (length - 1);
        return 0.5 * (roi[0] + roi[1]) * last;
    }
}

static double linear_weight(double d)
{
    d = fabs(d);
    return d < 1 ? 1 - d : 0;
}

static double cubic_weight(double a, double d)
{
    d = fabs(d);
    if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
    if (d < 2) return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
    return 0;
}

/* Taps around coordinate at, which lies in (base, base + 1]: unclamped indices base + first + i. */
static void fill_taps(const struct resize *r, double at, double shrink, int64_t first, int64_t n, int64_t in, int64_t *index,
                      double *weight)
{
    double base = ceil(at) - 1, ratio = at - base, sum = 0;
    if (r->mode == NEAREST) {
        bool up = r->nearest == ROUND_PREFER_FLOOR  ? ratio > 0.5
                  : r->nearest == ROUND_PREFER_CEIL ? ratio >= 0.5
                                                    : ratio == 1 || r->nearest == CEIL;
        base += up;
    }
    bool normalise = r->antialias && r->mode != NEAREST;
    for (int64_t i = 0; i < n; i++) {
        double pos = base + (double)(first + i), d = (pos - at) * shrink;
        weight[i] = r->mode == NEAREST ? 1 : r->mode == LINEAR ? linear_weight(d) : cubic_weight(r->cubic_a, d);
        bool outside = pos < 0 || pos > (double)(in - 1);
        if (outside && r->exclude_outside && r->mode != NEAREST) {
            weight[i] = 0;
            normalise = true;
        }
        sum += weight[i];
        index[i] = pos < 0 ? 0 : outside ? in - 1 : (int64_t)pos;
    }
    for (int64_t i = 0; normalise && sum != 0 && i < n; i++) weight[i] /= sum;
}

static bool make_taps(struct eval_call *c, const struct resize *r, double scale, int64_t in, int64_t out, double length,
                      const double *roi, struct taps *t)
{
    double shrink = r->antialias && scale < 1 ? scale : 1;
    double reach = (r->mode == CUBIC ? 2 : 1) / shrink; /* as far as a weight is not 0 */
    if (!(reach < 0x1p31)) return eval_fail(c, DIAG_SHAPE_MISMATCH, "a scale of %g is out of range", scale);
    int64_t first = r->mode == NEAREST ? 0 : (int64_t)floor(-reach) + 1;
    t->n = r->mode == NEAREST ? 1 : 2 - 2 * first;
    int64_t count;
    /* scale * in is at least 1/2 for any size that comes from the scale; then n stays below this. */
    if (t->n / 8 > in + 1 || !i64_mul(out, t->n, &count)) return eval_fail(c, DIAG_SHAPE_MISMATCH, "too many taps");
    t->index = eval_scratch(c, count, sizeof *t->index);
    t->weight = eval_scratch(c, count, sizeof *t->weight);
    t->outside = eval_scratch(c, out, sizeof *t->outside);
    if (!t->index || !t->weight || !t->outside) return false;
    for (int64_t x = 0; x < out; x++) {
        double at = source(r, (double)x, scale, length, in, out, roi);
        t->outside[x] = r->coord == CROP_AND_RESIZE && !(at >= 0 && at <= (double)(in - 1));
        if (!(at > -0x1p50)) at = -0x1p50;
        if (at > 0x1p50) at = 0x1p50;
        fill_taps(r, at, shrink, first, t->n, in, t->index + x * t->n, t->weight + x * t->n);
    }
    return true;
}

/* One axis: src[outer][in][inner] to dst[outer][out][inner]. */
static void contract(const struct taps *t, int64_t outer, int64_t in, int64_t out, int64_t inner, bool extrapolate,
                     double extrapolation, const double *src, double *dst)
{
    for (int64_t o = 0; o < outer; o++)
        for (int64_t x = 0; x < out; x++) {
            double *row = dst + (o * out + x) * inner;
            for (int64_t k = 0; k < t->n; k++) {
                const double *from = src + (o * in + t->index[x * t->n + k]) * inner;
                double w = t->weight[x * t->n + k];
                if (t->n == 1) {
                    memcpy(row, from, sizeof *row * (size_t)inner);
                } else if (w != 0) {
                    for (int64_t i = 0; i < inner; i++) row[i] += w * from[i];
                }
            }
            for (int64_t i = 0; extrapolate && t->outside[x] && i < inner; i++) row[i] = extrapolation;
        }
}

static bool read_resize(struct eval_call *c, struct resize *r)
{
    static const char *const coords[] = {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
                                         "asymmetric", "tf_crop_and_resize"};
    static const char *const modes[] = {"nearest", "linear", "cubic"};
    static const char *const nearests[] = {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"};
    int coord, mode, nearest;
    if (!read_word(c, "coord", coords, COORD_COUNT, &coord) || !read_word(c, "mode", modes, MODE_COUNT, &mode) ||
        !read_word(c, "nearest", nearests, NEAREST_COUNT, &nearest))
        return false;
    *r = (struct resize){.coord = coord, .mode = mode, .nearest = nearest};
    r->cubic_a = ir_attr_float(c->op, "cubic_a", -0.75);
    r->exclude_outside = ir_attr_int(c->op, "exclude_outside", 0) != 0;
    r->antialias = ir_attr_int(c->op, "antialias", 0) != 0;
    return true;
}

bool eval_resize(struct eval_call *c)
{
    struct resize r;
    int64_t dims[IR_MAX_RANK], sizes[IR_MAX_RANK];
    int n_scales, n_roi;
    if (!eval_need(c, 0, EVAL_FLOAT | EVAL_INT, -1) || !read_resize(c, &r)) return false;
    const struct ir_tensor *x = &c->in[0];
    struct ir_tensor *out = &c->out[0];
    int rank = x->rank;
    if (!eval_dims(c, "sizes", rank, 0, sizes) || !eval_expect(c, 0, x->dtype, rank, sizes)) return false;
    const double *scales = ir_attr_floats(c->op, "scales", &n_scales), *roi = ir_attr_floats(c->op, "roi", &n_roi);
    if ((n_scales && n_scales != rank) || (n_roi && n_roi != 2 * rank))
        return eval_fail(c, DIAG_IR_VERIFY, "scales or roi of the wrong length");
    if (eval_count(out) == 0) return true;
    if (eval_count(x) == 0) return eval_fail(c, DIAG_SHAPE_MISMATCH, "nothing to resample");
    double extrapolation = ir_attr_float(c->op, "extrapolation", 0);
    memcpy(dims, x->dims, sizeof dims);
    double *cur = eval_scratch(c, eval_count(x), sizeof *cur);
    if (!cur) return false;
    for (int64_t i = 0; i < eval_count(x); i++) cur[i] = eval_get_f(x, i);
    for (int a = 0; a < rank; a++) {
        double given = n_scales ? scales[a] : 0;
        double scale = given > 0 ? given : (double)sizes[a] / (double)dims[a];
        double length = given > 0 ? given * (double)dims[a] : (double)sizes[a];
        double region[2] = {n_roi ? roi[a] : 0, n_roi ? roi[rank + a] : 1};
        if (scale == 1 && sizes[a] == dims[a] && (r.coord != CROP_AND_RESIZE || (region[0] == 0 && region[1] == 1))) continue;
        struct taps t = {0};
        if (!make_taps(c, &r, scale, dims[a], sizes[a], length, region, &t)) return false;
        int64_t outer = eval_product(dims, 0, a), inner = eval_product(dims, a + 1, rank);
        double *next = eval_scratch(c, outer * sizes[a] * inner, sizeof *next);
        if (!next) return false;
        contract(&t, outer, dims[a], sizes[a], inner, r.coord == CROP_AND_RESIZE, extrapolation, cur, next);
        dims[a] = sizes[a];
        cur = next;
    }
    for (int64_t i = 0; i < eval_count(out); i++) eval_set_f(out, i, cur[i]);
    return true;
}
