// SPDX-License-Identifier: Apache-2.0
/* MaxPool, AveragePool, LpPool, MaxUnpool, LRN. */
#include "compiler/import/onnx_window.h"

static struct ir_op *pool(struct onode *n, enum ir_opcode op, struct ir_value *x,
                          const struct window *w, bool ceil_mode, const char *flag,
                          int64_t flag_value)
{
    const struct dim *sizes[IR_MAX_RANK];
    if (!x) return NULL;
    for (int i = 0; i < w->n; i++) sizes[i] = window_positions(n, w, x, i, ceil_mode);
    struct ir_attr a[6] = {
        ir_a_ints("kernel", w->n, w->kernel),       ir_a_ints("strides", w->n, w->strides),
        ir_a_ints("dilations", w->n, w->dilations), ir_a_dims("pads", 2 * w->n, w->pads),
        ir_a_dims("output", w->n, sizes),           ir_a_int(flag ? flag : "", flag_value)};
    return ir_build(n->b, op, 1, &x, flag ? 6 : 5, a, op == IR_OP_POOL_MAX ? 2 : 1);
}

bool onnx_maxpool(struct onode *n)
{
    struct ir_value *x = on_in(n, 0);
    struct window w;
    if (!window_read(n, x, NULL, n->version >= 10, &w)) return false;
    bool ceil_mode = n->version >= 10 && at_int(n, "ceil_mode", 0);
    int64_t order = n->version >= 8 ? at_int(n, "storage_order", 0) : 0;
    struct ir_op *op = pool(n, IR_OP_POOL_MAX, x, &w, ceil_mode, "column_major", order != 0);
    if (!op || !on_out(n, 0, ir_result(op, 0))) return false;
    return !on_wants_out(n, 1) || on_out(n, 1, ir_result(op, 1));
}

bool onnx_averagepool(struct onode *n)
{
    struct ir_value *x = on_in(n, 0);
    struct window w;
    if (!window_read(n, x, NULL, n->version >= 19, &w)) return false;
    bool ceil_mode = n->version >= 10 && at_int(n, "ceil_mode", 0);
    struct ir_op *op = pool(n, IR_OP_POOL_AVG, e_wide(n, x), &w, ceil_mode, "count_include_pad",
                            at_int(n, "count_include_pad", 0) != 0);
    return op && on_out(n, 0, e_cast(n, ir_result(op, 0), x->type.dtype));
}

bool onnx_lppool(struct onode *n)
{
    struct ir_value *x = on_in(n, 0), *wide = e_wide(n, x);
    struct window w;
    if (!window_read(n, x, NULL, n->version >= 18, &w)) return false;
    bool ceil_mode = n->version >= 18 && at_int(n, "ceil_mode", 0);
    int64_t p = at_int(n, "p", 2);
    if (p < 1) return on_fail(n, DIAG_ONNX_ATTR, "attribute 'p' is out of range");
    struct ir_value *pow =
        e_bin(n, IR_OP_POW, e_un(n, IR_OP_ABS, wide), e_like(n, wide, (double)p));
    struct ir_op *op = pool(n, IR_OP_POOL_SUM, pow, &w, ceil_mode, NULL, 0);
    struct ir_value *y =
        op ? e_bin(n, IR_OP_POW, ir_result(op, 0), e_like(n, wide, 1.0 / (double)p)) : NULL;
    return on_out(n, 0, e_cast(n, y, x->type.dtype));
}

/*
 * MaxUnpool: X scattered into zeros at flat positions in the unpooled tensor. Another output_shape
 * places that tensor in the corner of a larger one.
 */
bool onnx_maxunpool(struct onode *n)
{
    struct ir_value *x = on_in(n, 0), *at = on_in(n, 1);
    struct window w;
    if (!window_read(n, x, NULL, false, &w)) return false;
    const struct dim *dims[IR_MAX_RANK], *flat = dim_const(n->d, 1),
                                         *count = e_size(n, x, 0, rank_of(x));
    int rank = rank_of(x), c;
    for (int i = 0; i < rank; i++) {
        dims[i] = dim_of(x, i);
        if (i >= 2) {
            const struct dim *full =
                dim_addc(n->d, dim_mulc(n->d, dim_addc(n->d, dims[i], -1), w.strides[i - 2]),
                         w.kernel[i - 2]);
            dims[i] = dim_sub(n->d, full, dim_add(n->d, w.pads[i - 2], w.pads[w.n + i - 2]));
        }
    }
    for (int i = 0; i < rank; i++) flat = dim_mul(n->d, flat, dims[i]);
    struct ir_value *zeros = e_broadcast(n, e_like(n, x, 0), 1, &flat);
    struct ir_value *operands[3] = {zeros, e_reshape(n, at, 1, &count), e_reshape(n, x, 1, &count)};
    struct ir_attr a[2] = {ir_a_int("axis", 0), ir_a_string("reduction", "none")};
    struct ir_value *y =
        e_reshape(n, e_op(n, IR_OP_SCATTER_ELEMENTS, 3, operands, 2, a, 1, 0), rank, dims);
    if (!on_in(n, 2)) return on_out(n, 0, y);
    const struct dim *const *shape = on_dims(n, 2, &c), *lo[IR_MAX_RANK], *hi[IR_MAX_RANK];
    if (!shape) return false;
    if (c != rank)
        return on_fail(n, DIAG_ONNX_INPUT, "MaxUnpool: output_shape has %d entries for rank %d", c,
                       rank);
    for (int i = 0; i < rank; i++)
        lo[i] = dim_const(n->d, 0), hi[i] = dim_sub(n->d, shape[i], dims[i]);
    struct ir_attr p[3] = {ir_a_dims("lo", rank, lo), ir_a_dims("hi", rank, hi),
                           ir_a_string("mode", "constant")};
    return on_out(n, 0, e_op1(n, IR_OP_PAD, y, 3, p));
}

/* x / (bias + alpha/size * sum of squares over `size` neighbouring channels) ^ beta */
bool onnx_lrn(struct onode *n)
{
    struct ir_value *x = on_in(n, 0), *wide = e_wide(n, x);
    int64_t size = at_int(n, "size", 0);
    double alpha = at_float(n, "alpha", 0.0001), beta = at_float(n, "beta", 0.75),
           bias = at_float(n, "bias", 1);
    if (!on_rank(n, x, 2, IR_MAX_RANK, "the input")) return false;
    if (size < 1 || size > 1 << 20)
        return on_fail(n, DIAG_ONNX_ATTR, "attribute 'size' is missing or out of range");
    /* As a window sum over axis 2 of [N, 1, C, rest]. */
    const struct dim *one = dim_const(n->d, 1), *zero = dim_const(n->d, 0),
                     *rest = e_size(n, x, 2, rank_of(x));
    const struct dim *image[4] = {dim_of(x, 0), one, dim_of(x, 1), rest},
                     *out[2] = {image[2], rest};
    const struct dim *pads[4] = {dim_const(n->d, (size - 1) / 2), zero,
                                 dim_const(n->d, size - 1 - (size - 1) / 2), zero};
    int64_t kernel[2] = {size, 1}, ones[2] = {1, 1};
    struct ir_attr a[5] = {ir_a_ints("kernel", 2, kernel), ir_a_ints("strides", 2, ones),
                           ir_a_ints("dilations", 2, ones), ir_a_dims("pads", 4, pads),
                           ir_a_dims("output", 2, out)};
    struct ir_value *sum =
        e_op1(n, IR_OP_POOL_SUM, e_reshape(n, e_mul(n, wide, wide), 4, image), 5, a);
    struct ir_value *scaled = e_mul(n, e_reshape(n, sum, rank_of(x), x->type.dims),
                                    e_like(n, wide, alpha / (double)size));
    struct ir_value *den =
        e_bin(n, IR_OP_POW, e_add(n, scaled, e_like(n, wide, bias)), e_like(n, wide, beta));
    return on_out(n, 0, e_cast(n, e_div(n, wide, den), x->type.dtype));
}
