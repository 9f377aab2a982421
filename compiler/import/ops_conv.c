// SPDX-License-Identifier: Apache-2.0
/* Conv, ConvTranspose, and what reads their attributes. */
#include "compiler/import/onnx_window.h"

#define WINDOW_MAX ((int64_t)1 << 30)

static bool read_positive(struct onode *n, const char *name, int count, int64_t *out)
{
    int c;
    const int64_t *v = at_ints(n, name, &c);
    if (n->failed) return false;
    if (v && c != count)
        return on_fail(n, DIAG_ONNX_ATTR, "attribute '%s' has %d entries, not %d", name, c, count);
    for (int i = 0; i < count; i++) {
        out[i] = v ? v[i] : 1;
        if (out[i] < 1 || out[i] > WINDOW_MAX)
            return on_fail(n, DIAG_ONNX_ATTR, "attribute '%s' is out of range", name);
    }
    return true;
}

static bool read_kernel(struct onode *n, struct ir_value *w, struct window *out)
{
    int c;
    const int64_t *v = at_ints(n, "kernel_shape", &c);
    if (n->failed) return false;
    if (v && c != out->n)
        return on_fail(n, DIAG_ONNX_ATTR, "kernel_shape has %d entries, not %d", c, out->n);
    if (!v && !w) return on_fail(n, DIAG_ONNX_ATTR, "attribute 'kernel_shape' is missing");
    for (int i = 0; i < out->n; i++) {
        const struct dim *d = w ? dim_of(w, 2 + i) : NULL;
        if (!v && !dim_is_const(d))
            return on_fail(n, DIAG_ONNX_DYNAMIC, "the kernel's size is not known");
        out->kernel[i] = v ? v[i] : d->value;
        if (out->kernel[i] < 1 || out->kernel[i] > WINDOW_MAX)
            return on_fail(n, DIAG_ONNX_ATTR, "kernel_shape is out of range");
        if (v && w && !ir_require_equal(n->m, n->b->loc, d, dim_const(n->d, v[i]), "kernel_shape"))
            return false;
    }
    return true;
}

static void same_pads(struct onode *n, struct ir_value *x, struct window *w)
{
    for (int i = 0; i < w->n; i++) {
        const struct dim *in = dim_of(x, 2 + i), *zero = dim_const(n->d, 0),
                         *two = dim_const(n->d, 2);
        const struct dim *positions = dim_ceildiv(n->d, in, dim_const(n->d, w->strides[i]));
        const struct dim *reach = dim_addc(
            n->d, dim_mulc(n->d, dim_addc(n->d, positions, -1), w->strides[i]), window_span(w, i));
        const struct dim *total = dim_max(n->d, zero, dim_sub(n->d, reach, in)),
                         *half = dim_floordiv(n->d, total, two);
        bool upper = w->auto_pad == PAD_SAME_UPPER;
        w->pads[i] = upper ? half : dim_sub(n->d, total, half);
        w->pads[w->n + i] = upper ? dim_sub(n->d, total, half) : half;
    }
}

bool window_read(struct onode *n, struct ir_value *x, struct ir_value *w, bool has_dilations,
                 struct window *out)
{
    static const char *const names[] = {"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"};
    if (!on_rank(n, x, 3, IR_MAX_RANK - 2, "the input")) return false;
    out->n = rank_of(x) - 2;
    if (w && rank_of(w) != rank_of(x))
        return on_fail(n, DIAG_SHAPE_MISMATCH, "%s: the kernel has another rank than the input",
                       n->row->op);
    int mode = at_choice(n, "auto_pad", 0, 4, names), c;
    if (mode < 0 || !read_kernel(n, w, out) || !read_positive(n, "strides", out->n, out->strides))
        return false;
    for (int i = 0; i < out->n; i++) out->dilations[i] = 1;
    if (has_dilations && !read_positive(n, "dilations", out->n, out->dilations)) return false;
    for (int i = 0; i < out->n; i++)
        if (window_span(out, i) > WINDOW_MAX)
            return on_fail(n, DIAG_ONNX_ATTR, "the dilated kernel is too large");
    out->auto_pad = (enum auto_pad)mode;
    const int64_t *pads = at_ints(n, "pads", &c);
    if (n->failed) return false;
    if (pads && c != 2 * out->n)
        return on_fail(n, DIAG_ONNX_ATTR, "attribute 'pads' has %d entries, not %d", c, 2 * out->n);
    for (int i = 0; i < 2 * out->n; i++) {
        int64_t p = pads && mode == PAD_NOTSET ? pads[i] : 0;
        if (p < -WINDOW_MAX || p > WINDOW_MAX)
            return on_fail(n, DIAG_ONNX_ATTR, "attribute 'pads' is out of range");
        out->pads[i] = dim_const(n->d, p);
    }
    if (mode == PAD_SAME_UPPER || mode == PAD_SAME_LOWER) same_pads(n, x, out);
    return true;
}

const struct dim *window_positions(struct onode *n, const struct window *w, struct ir_value *x,
                                   int axis, bool ceil_mode)
{
    const struct dim *in = dim_of(x, 2 + axis), *lo = w->pads[axis], *hi = w->pads[w->n + axis];
    const struct dim *stride = dim_const(n->d, w->strides[axis]);
    if (w->auto_pad == PAD_SAME_UPPER || w->auto_pad == PAD_SAME_LOWER)
        return dim_ceildiv(n->d, in, stride);
    const struct dim *room =
        dim_addc(n->d, dim_add(n->d, in, dim_add(n->d, lo, hi)), -window_span(w, axis));
    if (!ceil_mode || w->auto_pad == PAD_VALID)
        return dim_addc(n->d, dim_floordiv(n->d, room, stride), 1);
    const struct dim *most = dim_floordiv(n->d, dim_addc(n->d, dim_add(n->d, in, lo), -1), stride);
    return dim_addc(n->d, dim_min(n->d, dim_ceildiv(n->d, room, stride), most), 1);
}

struct ir_value *onnx_conv_value(struct onode *n, struct ir_value *x, struct ir_value *w,
                                 struct ir_value *bias);

struct ir_value *onnx_conv_value(struct onode *n, struct ir_value *x, struct ir_value *w,
                                 struct ir_value *bias)
{
    struct window win;
    if (!x || !w || !window_read(n, x, w, true, &win)) return NULL;
    int64_t groups = at_int(n, "group", 1);
    if (groups < 1 || groups > WINDOW_MAX) {
        on_fail(n, DIAG_ONNX_ATTR, "attribute 'group' is out of range");
        return NULL;
    }
    struct ir_attr a[4] = {ir_a_ints("strides", win.n, win.strides),
                           ir_a_ints("dilations", win.n, win.dilations),
                           ir_a_dims("pads", 2 * win.n, win.pads), ir_a_int("groups", groups)};
    struct ir_value *operands[3] = {x, w, bias};
    return e_op(n, IR_OP_CONV, bias ? 3 : 2, operands, 4, a, 1, 0);
}

bool onnx_conv(struct onode *n)
{
    return on_out(n, 0, onnx_conv_value(n, on_in(n, 0), on_in(n, 1), on_in(n, 2)));
}

/* ---- ConvTranspose ---- */

static bool transpose_sizes(struct onode *n, struct ir_value *x, struct window *w,
                            const struct dim **sizes)
{
    int c_shape, c_pad;
    const int64_t *shape = at_ints(n, "output_shape", &c_shape),
                  *extra = at_ints(n, "output_padding", &c_pad);
    if (n->failed) return false;
    if ((shape && c_shape != w->n && c_shape != w->n + 2) || (extra && c_pad != w->n))
        return on_fail(n, DIAG_ONNX_ATTR,
                       "output_shape or output_padding has the wrong number of entries");
    if (shape && c_shape == w->n + 2) shape += 2;
    bool same = w->auto_pad == PAD_SAME_UPPER || w->auto_pad == PAD_SAME_LOWER;
    for (int i = 0; i < w->n; i++) {
        const struct dim *in = dim_of(x, 2 + i);
        int64_t more = extra ? extra[i] : 0;
        if (more < 0 || more > WINDOW_MAX)
            return on_fail(n, DIAG_ONNX_ATTR, "output_padding is out of range");
        const struct dim *full = dim_addc(
            n->d, dim_mulc(n->d, dim_addc(n->d, in, -1), w->strides[i]), window_span(w, i) + more);
        if (!shape && !same) {
            sizes[i] = dim_sub(n->d, full, dim_add(n->d, w->pads[i], w->pads[w->n + i]));
            continue;
        }
        if (shape && (shape[i] < 0 || shape[i] > WINDOW_MAX))
            return on_fail(n, DIAG_ONNX_ATTR, "output_shape is out of range");
        sizes[i] = shape ? dim_const(n->d, shape[i]) : dim_mulc(n->d, in, w->strides[i]);
        const struct dim *total = dim_max(n->d, dim_const(n->d, 0), dim_sub(n->d, full, sizes[i]));
        const struct dim *half = dim_floordiv(n->d, total, dim_const(n->d, 2));
        bool upper = w->auto_pad == PAD_SAME_UPPER;
        w->pads[i] = upper ? half : dim_sub(n->d, total, half);
        w->pads[w->n + i] = upper ? dim_sub(n->d, total, half) : half;
    }
    return true;
}

bool onnx_convtranspose(struct onode *n)
{
    struct ir_value *x = on_in(n, 0);
    struct window w;
    const struct dim *sizes[IR_MAX_RANK];
    if (!window_read(n, x, on_in(n, 1), true, &w) || !transpose_sizes(n, x, &w, sizes))
        return false;
    int64_t groups = at_int(n, "group", 1);
    if (groups < 1 || groups > WINDOW_MAX)
        return on_fail(n, DIAG_ONNX_ATTR, "attribute 'group' is out of range");
    struct ir_attr a[5] = {ir_a_ints("strides", w.n, w.strides),
                           ir_a_ints("dilations", w.n, w.dilations),
                           ir_a_dims("pads", 2 * w.n, w.pads), ir_a_dims("output", w.n, sizes),
                           ir_a_int("groups", groups)};
    struct ir_value *operands[3] = {x, on_in(n, 1), on_in(n, 2)};
    return on_out(n, 0, e_op(n, IR_OP_CONV_TRANSPOSE, operands[2] ? 3 : 2, operands, 5, a, 1, 0));
}

/*
 * DeformConv(x, w, offset, bias, mask): every output position samples x at its own places, one set
 * for each of the offset groups. The samples [N, C, K, positions] come from one grid_sample over [N
 * * offset groups, C / offset groups, ..], then the convolution is a matmul for each group. Two
 * spatial axes.
 */
static struct ir_value *deform_grid(struct onode *n, struct ir_value *x, const struct window *w,
                                    struct ir_value *offset, const struct dim *const *out,
                                    const struct dim *groups)
{
    const struct dim *k = dim_const(n->d, w->kernel[0] * w->kernel[1]), *one = dim_const(n->d, 1);
    const struct dim *batch = dim_mul(n->d, dim_of(x, 0), groups),
                     *dims[5] = {batch, k, dim_const(n->d, 2), out[0], out[1]};
    const struct dim *line[4] = {one, dim_const(n->d, w->kernel[0]), dim_const(n->d, w->kernel[1]),
                                 one},
                     *flat[4] = {one, k, one, one};
    struct ir_value *given = e_reshape(n, offset, 5, dims), *parts[2];
    enum dtype t = DT_F64;        /* so that normalising and back is exact enough */
    for (int a = 0; a < 2; a++) { /* rows, then columns; grid_sample wants columns first */
        struct ir_value *d = e_squeeze(n, e_slice1(n, given, 2, dim_const(n->d, a), one), 2);
        struct ir_value *kernel = e_mul(n, ir_build_iota(n->b, t, 4, line, 1 + a),
                                        e_scalar(n, t, (double)w->dilations[a]));
        struct ir_value *start =
            e_mul(n, e_iota(n, t, out[a]), e_scalar(n, t, (double)w->strides[a]));
        start = e_sub(n, e_channel(n, start, 2 + a, 4), e_dim(n, w->pads[a], t));
        struct ir_value *at =
            e_add(n, e_add(n, e_reshape(n, kernel, 4, flat), start), e_cast(n, d, t));
        /* to [-1, 1] between the outer edges of the first and last element */
        struct ir_value *size = e_dim(n, dim_of(x, 2 + a), t), *two = e_scalar(n, t, 2),
                        *unit = e_scalar(n, t, 1);
        at = e_sub(n, e_div(n, e_add(n, e_mul(n, at, two), unit), size), unit);
        if (!(parts[1 - a] = e_unsqueeze(n, at, 4))) return NULL;
    }
    const struct dim *grid[4] = {batch, dim_mul(n->d, k, out[0]), out[1], dim_const(n->d, 2)};
    return e_reshape(n, ir_build_concat(n->b, 2, parts, 4), 4, grid);
}

bool onnx_deformconv(struct onode *n)
{
    struct ir_value *x = on_in(n, 0), *weight = on_in(n, 1), *offset = on_in(n, 2),
                    *bias = on_in(n, 3), *mask = on_in(n, 4);
    struct window w;
    int64_t groups = at_int(n, "group", 1), og = at_int(n, "offset_group", 1);
    if (!on_rank(n, x, 4, 4, "the input") || !on_rank(n, offset, 4, 4, "the offset") ||
        !window_read(n, x, weight, true, &w))
        return false;
    if (groups < 1 || groups > WINDOW_MAX || og < 1 || og > WINDOW_MAX)
        return on_fail(n, DIAG_ONNX_ATTR, "'group' or 'offset_group' is out of range");
    const struct dim *g = dim_const(n->d, groups), *o = dim_const(n->d, og), *c = dim_of(x, 1),
                     *k = dim_const(n->d, w.kernel[0] * w.kernel[1]);
    const struct dim *c_og = dim_exact_div(n->d, c, o), *c_g = dim_exact_div(n->d, c, g),
                     *m_g = dim_exact_div(n->d, dim_of(weight, 0), g);
    if (!c_og || !c_g || !m_g)
        return on_fail(n, DIAG_SHAPE_MISMATCH, "DeformConv: the groups do not divide the channels");
    const struct dim *out[2] = {window_positions(n, &w, x, 0, false),
                                window_positions(n, &w, x, 1, false)};
    const struct dim *batch = dim_mul(n->d, dim_of(x, 0), o),
                     *image[4] = {batch, c_og, dim_of(x, 2), dim_of(x, 3)};
    struct ir_value *operands[2] = {e_reshape(n, x, 4, image),
                                    deform_grid(n, x, &w, offset, out, o)};
    struct ir_attr a[2] = {ir_a_string("mode", "linear"), ir_a_string("padding", "zeros")};
    if (!operands[0] || !operands[1]) return false;
    struct ir_value *s = e_op(n, IR_OP_GRID_SAMPLE, 2, operands, 2, a, 1, 0);
    const struct dim *sampled[5] = {batch, c_og, k, out[0], out[1]},
                     *masks[5] = {batch, dim_const(n->d, 1), k, out[0], out[1]};
    s = e_reshape(n, s, 5, sampled);
    if (mask) s = e_mul(n, s, e_reshape(n, mask, 5, masks));
    const struct dim *positions = dim_mul(n->d, out[0], out[1]),
                     *columns[4] = {dim_of(x, 0), g, dim_mul(n->d, c_g, k), positions};
    const struct dim *rows[4] = {dim_const(n->d, 1), g, m_g, columns[2]},
                     *result[4] = {dim_of(x, 0), dim_of(weight, 0), out[0], out[1]};
    s = e_reshape(n, s, 4, columns);
    struct ir_value *f = e_reshape(n, weight, 4, rows),
                    *y = s && f ? ir_build_matmul(n->b, f, s, false, false, DT_NONE) : NULL;
    y = e_reshape(n, y, 4, result);
    return on_out(n, 0, bias ? e_add(n, y, e_channel(n, bias, 1, 4)) : y);
}
