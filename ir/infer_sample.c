// SPDX-License-Identifier: Apache-2.0
/* Inference for ops that resample or rearrange by coordinates. */
#include <math.h>
#include <string.h>

#include "ir/infer.h"

/* Attribute of floats: absent, or count finite entries within [lo, hi]. */
static bool reals(struct ir_module *m, struct ir_op *op, const char *name, int count, double lo,
                  double hi)
{
    int n;
    const double *v = ir_attr_floats(op, name, &n);
    if (v && n != count)
        return infer_fail(m, op, DIAG_IR_VERIFY, "attribute `%s` has %d entries, but must have %d",
                          name, n, count);
    for (int i = 0; i < n; i++)
        if (!isfinite(v[i]) || v[i] < lo || v[i] > hi)
            return infer_fail(m, op, DIAG_IR_VERIFY,
                              "attribute `%s`[%d] is %g, but must be in [%g, %g]", name, i, v[i],
                              lo, hi);
    return true;
}

bool infer_resize(struct ir_module *m, struct ir_op *op)
{
    const struct ir_type *x = infer_type(op, 0);
    const struct dim *sizes[IR_MAX_RANK], *one = dim_const(m->dims, 1);
    bool flag;
    if (!infer_class(m, op, 0, INFER_NUMBER) || !infer_dims(m, op, "sizes", x->rank, sizes, NULL) ||
        !reals(m, op, "scales", x->rank, 0.0, 1e9) ||
        !reals(m, op, "roi", 2 * x->rank, -1e9, 1e9) ||
        !infer_word(m, op, "mode", "nearest linear cubic") ||
        !infer_word(m, op, "coord",
                    "half_pixel half_pixel_symmetric pytorch_half_pixel align_corners asymmetric "
                    "tf_crop_and_resize") ||
        !infer_word(m, op, "nearest", "round_prefer_floor round_prefer_ceil floor ceil") ||
        !infer_real(m, op, "cubic_a", -1e9, 1e9) ||
        !infer_real(m, op, "extrapolation", -1e38, 1e38) ||
        !infer_flag(m, op, "exclude_outside", false, &flag) ||
        !infer_flag(m, op, "antialias", false, &flag))
        return false;
    const char *coord = ir_attr_string(op, "coord", "half_pixel");
    if (!strcmp(coord, "tf_crop_and_resize") && !ir_attr_find(op, "roi"))
        return infer_fail(m, op, DIAG_IR_VERIFY, "tf_crop_and_resize needs attribute `roi`");
    for (int i = 0; i < x->rank; i++)
        if (sizes[i] != x->dims[i] && !dim_is(sizes[i], 0) &&
            !infer_le(m, op, one, x->dims[i], "a resampled axis"))
            return false;
    return infer_set(m, op, 0, x->dtype, x->rank, sizes);
}

bool infer_reverse_sequence(struct ir_module *m, struct ir_op *op)
{
    const struct ir_type *x = infer_type(op, 0);
    int time, batch;
    if (!infer_axis(m, op, "time_axis", x->rank, &time) ||
        !infer_axis(m, op, "batch_axis", x->rank, &batch) || !infer_rank(m, op, 1, 1) ||
        !infer_dtype(m, op, 1, DT_I64))
        return false;
    if (time == batch)
        return infer_fail(m, op, DIAG_IR_VERIFY, "time_axis and batch_axis are both %d", time);
    return infer_eq(m, op, infer_type(op, 1)->dims[0], x->dims[batch],
                    "number of lengths and batch") &&
           infer_set(m, op, 0, x->dtype, x->rank, x->dims);
}

bool infer_grid_sample(struct ir_module *m, struct ir_op *op)
{
    const struct ir_type *x = infer_type(op, 0), *g = infer_type(op, 1);
    const struct dim *dims[IR_MAX_RANK];
    bool flag;
    if (!infer_class(m, op, 0, INFER_FLOAT) || !infer_class(m, op, 1, INFER_FLOAT) ||
        !infer_word(m, op, "mode", "linear nearest cubic") ||
        !infer_word(m, op, "padding", "zeros border reflection") ||
        !infer_flag(m, op, "align_corners", false, &flag))
        return false;
    if (x->rank < 3)
        return infer_fail(m, op, DIAG_SHAPE_MISMATCH, "operand 0 must be [N, C, D...]");
    if (!infer_rank(m, op, 1, x->rank) ||
        !infer_eq(m, op, x->dims[0], g->dims[0], "batch of x and grid") ||
        !infer_eq(m, op, g->dims[x->rank - 1], dim_const(m->dims, x->rank - 2),
                  "coordinates of a grid point"))
        return false;
    for (int k = 2; k < x->rank; k++)
        if (!infer_le(m, op, dim_const(m->dims, 1), x->dims[k], "a sampled axis")) return false;
    dims[0] = x->dims[0];
    dims[1] = x->dims[1];
    for (int k = 2; k < x->rank; k++) dims[k] = g->dims[k - 1];
    return infer_set(m, op, 0, x->dtype, x->rank, dims);
}

bool infer_roi_align(struct ir_module *m, struct ir_op *op)
{
    const struct ir_type *x = infer_type(op, 0);
    int64_t h, w, ratio;
    if (!infer_class(m, op, 0, INFER_FLOAT) || !infer_rank(m, op, 0, 4) ||
        !infer_rank(m, op, 1, 2) || !infer_dtype(m, op, 1, x->dtype) || !infer_rank(m, op, 2, 1) ||
        !infer_dtype(m, op, 2, DT_I64) || !infer_int(m, op, "output_height", 1, INT32_MAX, 1, &h) ||
        !infer_int(m, op, "output_width", 1, INT32_MAX, 1, &w) ||
        !infer_int(m, op, "sampling_ratio", 0, INT32_MAX, 0, &ratio) ||
        !infer_real(m, op, "spatial_scale", 0.0, 1e9) || !infer_word(m, op, "mode", "avg max") ||
        !infer_word(m, op, "coord", "half_pixel output_half_pixel"))
        return false;
    const struct dim *rois = infer_type(op, 1)->dims[0], *one = dim_const(m->dims, 1);
    if (!infer_eq(m, op, infer_type(op, 1)->dims[1], dim_const(m->dims, 4),
                  "coordinates of a region") ||
        !infer_eq(m, op, infer_type(op, 2)->dims[0], rois, "number of regions and batch indices"))
        return false;
    if (!dim_is(rois, 0))
        for (int k = 0; k < 4; k++)
            if (k != 1 && !infer_le(m, op, one, x->dims[k], "an axis that regions are taken from"))
                return false;
    const struct dim *dims[4] = {rois, x->dims[1], dim_const(m->dims, h), dim_const(m->dims, w)};
    return infer_set(m, op, 0, x->dtype, 4, dims);
}

/* Number of positions of a block along one image axis. */
static const struct dim *block_positions(struct ir_module *m, const struct dim *image, int64_t pads,
                                         int64_t block, int64_t dilation, int64_t stride)
{
    /* All four are at most INT32_MAX in size, so that nothing here overflows an int64. */
    const struct dim *free = dim_addc(m->dims, image, pads - (dilation * (block - 1) + 1));
    return dim_addc(m->dims, dim_floordiv(m->dims, free, dim_const(m->dims, stride)), 1);
}

bool infer_col2im(struct ir_module *m, struct ir_op *op)
{
    const struct ir_type *x = infer_type(op, 0);
    const struct dim *image[IR_MAX_RANK], *dims[IR_MAX_RANK + 2];
    int64_t block[2 * IR_MAX_RANK], strides[2 * IR_MAX_RANK], dilations[2 * IR_MAX_RANK],
        pads[2 * IR_MAX_RANK];
    int n;
    if (!infer_class(m, op, 0, INFER_NUMBER) || !infer_rank(m, op, 0, 3) ||
        !infer_dims(m, op, "image", -1, image, &n) ||
        !infer_ints(m, op, "block", n, 1, INT32_MAX, 1, block) ||
        !infer_ints(m, op, "strides", n, 1, INT32_MAX, 1, strides) ||
        !infer_ints(m, op, "dilations", n, 1, INT32_MAX, 1, dilations) ||
        !infer_ints(m, op, "pads", 2 * n, 0, INT32_MAX, 0, pads))
        return false;
    if (n + 2 > IR_MAX_RANK) return infer_fail(m, op, DIAG_SHAPE_MISMATCH, "too many image axes");
    const struct dim *elems = dim_const(m->dims, 1), *positions = elems;
    for (int i = 0; i < n; i++) {
        const struct dim *at =
            block_positions(m, image[i], pads[i] + pads[n + i], block[i], dilations[i], strides[i]);
        elems = dim_mulc(m->dims, elems, block[i]);
        positions = dim_mul(m->dims, positions, at);
        if (!infer_le(m, op, dim_const(m->dims, 0), at, "positions of a block")) return false;
        dims[i + 2] = image[i];
    }
    const struct dim *channels = dim_exact_div(m->dims, x->dims[1], elems);
    if (!channels) {
        if (elems->kind == DIM_OVERFLOW || dim_is_const(x->dims[1]))
            return infer_fail(m, op, DIAG_SHAPE_MISMATCH,
                              "dim 1 is not a multiple of the block's elements");
        channels = dim_floordiv(m->dims, x->dims[1], elems);
        if (!infer_eq(m, op, dim_mul(m->dims, channels, elems), x->dims[1], "channels times block"))
            return false;
    }
    dims[0] = x->dims[0];
    dims[1] = channels;
    return infer_eq(m, op, x->dims[2], positions, "blocks and positions") &&
           infer_set(m, op, 0, x->dtype, n + 2, dims);
}
