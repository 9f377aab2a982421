// SPDX-License-Identifier: Apache-2.0
/* Resize, Upsample, GridSample, AffineGrid, RoiAlign, Col2Im, Det. */
#include <math.h>
#include <string.h>

#include "compiler/import/onnx_int.h"

struct resample {
    const struct dim *sizes[IR_MAX_RANK];
    double scales[IR_MAX_RANK]; /* 0: derive from the sizes */
    int64_t axes[IR_MAX_RANK];
    int n_axes;
};

static bool scaled_size(struct onode *n, const struct dim *in, struct kelem e,
                        const struct dim **size, double *scale)
{
    const struct dim *den = e.den ? e.den : dim_const(n->d, 1);
    if (e.num->hi < 1 || den->lo < 1)
        return on_fail(n, DIAG_ONNX_INPUT, "Resize: a scale is not positive");
    *size = dim_floordiv(n->d, dim_mul(n->d, in, e.num), den);
    *scale = dim_is_const(e.num) && dim_is_const(den)
                 ? (double)(float)((double)e.num->value / (double)den->value)
                 : 0;
    return true;
}

/* A scale that no small fraction comes near: only of constants. */
static bool odd_scale(struct onode *n, const struct dim *in, double f, const struct dim **size,
                      double *scale)
{
    if (!(f > 0 && f < 1e9) || !dim_is_const(in) || in->value > 1 << 24)
        return on_fail(n, DIAG_ONNX_INPUT, "Resize: a scale is out of range");
    *size = dim_const(n->d, (int64_t)floorf((float)in->value * (float)f));
    *scale = f;
    return true;
}

static bool from_scales(struct onode *n, int input, struct resample *r)
{
    struct ir_value *x = on_in(n, 0), *v = on_in(n, input);
    const struct known *k = known_of(n->im, v);
    struct ir_const *c = ir_value_const(v);
    if (rank_of(v) != 1 || !ir_require_equal(n->m, n->b->loc, dim_of(v, 0),
                                             dim_const(n->d, r->n_axes), "number of scales"))
        return false;
    for (int i = 0; i < r->n_axes; i++) {
        int a = (int)r->axes[i];
        double f;
        bool ok = k && i < k->n && k->e[i].num
                      ? scaled_size(n, dim_of(x, a), k->e[i], &r->sizes[a], &r->scales[a])
                  : c && ir_const_get_float(c, i, &f)
                      ? odd_scale(n, dim_of(x, a), f, &r->sizes[a], &r->scales[a])
                      : on_dynamic(n, input,
                                   "holds the scales, which are not known before the engine runs");
        if (!ok) return false;
    }
    return true;
}

/* keep_aspect_ratio_policy: one scale for all the axes, the smaller or the larger one. */
static bool keep_ratio(struct onode *n, bool larger, struct resample *r)
{
    double best = 0;
    for (int i = 0; i < r->n_axes; i++) {
        const struct dim *in = dim_of(on_in(n, 0), (int)r->axes[i]), *out = r->sizes[r->axes[i]];
        if (!dim_is_const(in) || !dim_is_const(out) || in->value < 1)
            return on_fail(n, DIAG_ONNX_DYNAMIC,
                           "Resize: keep_aspect_ratio_policy needs fixed sizes");
        double s = (double)out->value / (double)in->value;
        if (i == 0 || (larger ? s > best : s < best)) best = s;
    }
    for (int i = 0; i < r->n_axes; i++) {
        int a = (int)r->axes[i];
        r->sizes[a] =
            dim_const(n->d, (int64_t)floor((double)dim_of(on_in(n, 0), a)->value * best + 0.5));
        r->scales[a] = best;
    }
    return true;
}

static bool from_sizes(struct onode *n, int input, struct resample *r)
{
    static const char *const policies[] = {"stretch", "not_larger", "not_smaller"};
    int count,
        policy = n->version >= 18 ? at_choice(n, "keep_aspect_ratio_policy", 0, 3, policies) : 0;
    const struct dim *const *d = on_dims(n, input, &count);
    if (!d || policy < 0) return false;
    if (count != r->n_axes)
        return on_fail(n, DIAG_ONNX_INPUT, "Resize: %d sizes for %d axes", count, r->n_axes);
    for (int i = 0; i < count; i++) {
        if (d[i]->hi < 0) return on_fail(n, DIAG_ONNX_INPUT, "Resize: a size is negative");
        r->sizes[r->axes[i]] = d[i];
        r->scales[r->axes[i]] = 0;
    }
    return policy == 0 || keep_ratio(n, policy == 2, r);
}

static bool is_empty_list(struct ir_value *v)
{
    int64_t elems;
    return !v || (ir_type_static_elems(&v->type, &elems) && elems == 0);
}

static bool resample_axes(struct onode *n, struct resample *r)
{
    struct ir_value *x = on_in(n, 0);
    int c, rank = rank_of(x);
    const int64_t *given = n->version >= 18 ? at_ints(n, "axes", &c) : NULL;
    if (n->failed) return false;
    r->n_axes = given ? c : rank;
    if (r->n_axes > rank) return on_fail(n, DIAG_ONNX_ATTR, "Resize: more axes than dims");
    for (int i = 0; i < rank; i++) {
        r->sizes[i] = dim_of(x, i);
        r->scales[i] = 1;
    }
    for (int i = 0; i < r->n_axes; i++) {
        int a = i;
        if (given && !on_axis(n, given[i], rank, false, &a)) return false;
        r->axes[i] = a;
    }
    return true;
}

static bool read_roi(struct onode *n, const struct resample *r, double *roi)
{
    int rank = rank_of(on_in(n, 0));
    for (int i = 0; i < rank; i++) roi[i] = 0, roi[rank + i] = 1;
    struct ir_const *c = on_in(n, 1) ? ir_value_const(on_in(n, 1)) : NULL;
    if (!c) return on_dynamic(n, 1, "holds the region of interest, which has to be constant");
    for (int i = 0; i < r->n_axes; i++)
        if (!ir_const_get_float(c, i, &roi[r->axes[i]]) ||
            !ir_const_get_float(c, r->n_axes + i, &roi[rank + r->axes[i]]))
            return on_fail(n, DIAG_ONNX_INPUT,
                           "Resize: the region of interest has too few numbers");
    return true;
}

static bool resample(struct onode *n, const struct resample *r, int extra,
                     const struct ir_attr *more)
{
    int rank = rank_of(on_in(n, 0));
    struct ir_attr a[12] = {ir_a_dims("sizes", rank, r->sizes),
                            ir_a_floats("scales", rank, r->scales)};
    for (int i = 0; i < extra; i++) a[2 + i] = more[i];
    return on_out(n, 0, e_op1(n, IR_OP_RESIZE, on_in(n, 0), 2 + extra, a));
}

/* Upsample 9 and Resize 10: positions x / scale, nearest rounds down. */
bool onnx_upsample(struct onode *n)
{
    static const char *const modes[] = {"nearest", "linear", "bilinear"};
    int mode = at_choice(n, "mode", 0, 3, modes);
    struct resample r;
    n->failed = n->failed || mode < 0;
    r.n_axes = rank_of(on_in(n, 0));
    for (int i = 0; i < r.n_axes; i++) r.axes[i] = i;
    if (n->failed || !from_scales(n, 1, &r)) return false;
    struct ir_attr a[3] = {ir_a_string("mode", mode ? "linear" : "nearest"),
                           ir_a_string("coord", "asymmetric"), ir_a_string("nearest", "floor")};
    return resample(n, &r, 3, a);
}

bool onnx_resize(struct onode *n)
{
    static const char *const modes[] = {"nearest", "linear", "cubic"};
    static const char *const coords[] = {"half_pixel",         "pytorch_half_pixel",
                                         "align_corners",      "asymmetric",
                                         "tf_crop_and_resize", "half_pixel_symmetric"};
    static const char *const nearest[] = {"round_prefer_floor", "round_prefer_ceil", "floor",
                                          "ceil"};
    int mode = at_choice(n, "mode", 0, 3, modes),
        near = at_choice(n, "nearest_mode", 0, 4, nearest);
    int coord = at_choice(n, "coordinate_transformation_mode", 0, n->version >= 19 ? 6 : 5, coords);
    struct resample r;
    double roi[2 * IR_MAX_RANK];
    if (mode < 0 || near < 0 || coord < 0 || !resample_axes(n, &r)) return false;
    bool scales = !is_empty_list(on_in(n, 2)), sizes = !is_empty_list(on_in(n, 3));
    if (scales == sizes) return on_fail(n, DIAG_ONNX_INPUT, "Resize needs either scales or sizes");
    if (!(scales ? from_scales(n, 2, &r) : from_sizes(n, 3, &r))) return false;
    if (scales && n->version >= 18) at_ignore(n, "keep_aspect_ratio_policy");
    struct ir_attr a[8] = {ir_a_string("mode", modes[mode]),
                           ir_a_string("coord", coords[coord]),
                           ir_a_string("nearest", nearest[near]),
                           ir_a_float("cubic_a", at_float(n, "cubic_coeff_a", -0.75)),
                           ir_a_int("exclude_outside", at_int(n, "exclude_outside", 0) != 0),
                           ir_a_float("extrapolation", at_float(n, "extrapolation_value", 0)),
                           ir_a_int("antialias", n->version >= 18 && at_int(n, "antialias", 0))};
    int k = 7;
    if (coord == 4) {
        if (!read_roi(n, &r, roi)) return false;
        a[k++] = ir_a_floats("roi", 2 * rank_of(on_in(n, 0)), roi);
    }
    return resample(n, &r, k, a);
}

bool onnx_gridsample(struct onode *n)
{
    static const char *const old[] = {"bilinear", "nearest", "bicubic"}, *const now[] = {"linear",
                                                                                         "nearest",
                                                                                         "cubic"};
    static const char *const pads[] = {"zeros", "border", "reflection"};
    int mode = at_choice(n, "mode", 0, 3, n->version >= 20 ? now : old),
        pad = at_choice(n, "padding_mode", 0, 3, pads);
    if (mode < 0 || pad < 0) return false;
    struct ir_attr a[3] = {ir_a_string("mode", now[mode]), ir_a_string("padding", pads[pad]),
                           ir_a_int("align_corners", at_int(n, "align_corners", 0) != 0)};
    return on_out(n, 0, e_op(n, IR_OP_GRID_SAMPLE, 2, n->in, 3, a, 1, 0));
}

/* Coordinates of the centres (or corners) of `size` cells over [-1, 1]. */
static struct ir_value *grid_line(struct onode *n, const struct dim *size, bool corners)
{
    struct ir_value *i = e_iota(n, DT_F64, size), *count = e_dim(n, size, DT_F64),
                    *one = e_scalar(n, DT_F64, 1), *two = e_scalar(n, DT_F64, 2);
    if (corners) return e_sub(n, e_div(n, e_mul(n, i, two), e_sub(n, count, one)), one);
    return e_sub(n, e_div(n, e_add(n, e_mul(n, i, two), one), count), one);
}

/* theta[N, r, r+1] times (x, y, (z,) 1) for every cell of an image of size [N, C, (D,) H, W] */
bool onnx_affinegrid(struct onode *n)
{
    struct ir_value *theta = on_in(n, 0), *parts[4];
    int count;
    const struct dim *const *size = on_dims(n, 1, &count);
    bool corners = at_int(n, "align_corners", 0);
    if (!size || !on_rank(n, theta, 3, 3, "theta")) return false;
    if (count != 4 && count != 5)
        return on_fail(n, DIAG_ONNX_INPUT, "AffineGrid: the size has %d numbers", count);
    int r = count - 2;
    const struct dim *dims[4], *cells = dim_const(n->d, 1), *one = dim_const(n->d, 1);
    for (int i = 0; i < r; i++) dims[i] = size[2 + i], cells = dim_mul(n->d, cells, dims[i]);
    const struct dim *flat[2] = {cells, one};
    for (int i = 0; i < r; i++) { /* x belongs to the last axis */
        struct ir_value *line = e_channel(n, grid_line(n, dims[r - 1 - i], corners), r - 1 - i, r);
        parts[i] = e_reshape(n, e_broadcast(n, line, r, dims), 2, flat);
    }
    parts[r] = e_broadcast(n, e_scalar(n, DT_F64, 1), 2, flat);
    struct ir_value *points = ir_build_concat(n->b, r + 1, parts, 1); /* [cells, r+1] */
    struct ir_value *y =
        points ? ir_build_matmul(n->b, points, e_cast(n, theta, DT_F64), false, true, DT_NONE)
               : NULL;
    if (!y) return false;
    const struct dim *out[5] = {dim_of(theta, 0)};
    for (int i = 0; i < r; i++) out[1 + i] = dims[i];
    out[r + 1] = dim_const(n->d, r);
    return on_out(n, 0, e_cast(n, e_reshape(n, y, r + 2, out), theta->type.dtype));
}

bool onnx_roialign(struct onode *n)
{
    static const char *const modes[] = {"avg", "max"}, *const coords[] = {"half_pixel",
                                                                          "output_half_pixel"};
    int mode = at_choice(n, "mode", 0, 2, modes),
        coord = n->version >= 16 ? at_choice(n, "coordinate_transformation_mode", 0, 2, coords) : 1;
    if (mode < 0 || coord < 0) return false;
    struct ir_attr a[6] = {ir_a_int("output_height", at_int(n, "output_height", 1)),
                           ir_a_int("output_width", at_int(n, "output_width", 1)),
                           ir_a_int("sampling_ratio", at_int(n, "sampling_ratio", 0)),
                           ir_a_float("spatial_scale", at_float(n, "spatial_scale", 1)),
                           ir_a_string("mode", modes[mode]),
                           ir_a_string("coord", coords[coord])};
    return on_out(n, 0, e_op(n, IR_OP_ROI_ALIGN, 3, n->in, 6, a, 1, 0));
}

bool onnx_col2im(struct onode *n)
{
    int c_image, c_block, c;
    const struct dim *const *image = on_dims(n, 1, &c_image);
    const int64_t *block = image ? on_ints(n, 2, &c_block) : NULL;
    if (!block) return false;
    if (c_image != c_block || c_image < 1 || c_image > IR_MAX_RANK - 2)
        return on_fail(n, DIAG_ONNX_INPUT, "Col2Im: image and block have %d and %d axes", c_image,
                       c_block);
    struct ir_attr a[5] = {ir_a_dims("image", c_image, image), ir_a_ints("block", c_block, block)};
    static const char *const names[] = {"strides", "dilations", "pads"};
    int k = 2;
    for (int i = 0; i < 3; i++) {
        const int64_t *v = at_ints(n, names[i], &c);
        if (v && c != (i == 2 ? 2 : 1) * c_image)
            return on_fail(n, DIAG_ONNX_ATTR, "attribute '%s' has %d entries", names[i], c);
        if (v) a[k++] = ir_a_ints(names[i], c, v);
    }
    return !n->failed && on_out(n, 0, e_op1(n, IR_OP_COL2IM, on_in(n, 0), k, a));
}
