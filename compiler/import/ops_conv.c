// SPDX-License-Identifier: Apache-2.0
/* Conv, ConvTranspose, and what reads their attributes. */
#include "compiler/import/onnx_window.h"

#define WINDOW_MAX ((int64_t)1 << 30)

static bool read_positive(struct onode *n, const char *name, int count, int64_t *out)
{
    int c;
    const int64_t *v = at_ints(n, name, &c);
    if (n->failed) return false;
    if (v && c != count) return on_fail(n, DIAG_ONNX_ATTR, "attribute '%s' has %d entries, not %d", name, c, count);
    for (int i = 0; i < count; i++) {
        out[i] = v ? v[i] : 1;
        if (out[i] < 1 || out[i] > WINDOW_MAX) return on_fail(n, DIAG_ONNX_ATTR, "attribute '%s' is out of range", name);
    }
    return true;
}

static bool read_kernel(struct onode *n, struct ir_value *w, struct window *out)
{
    int c;
    const int64_t *v = at_ints(n, "kernel_shape", &c);
    if (n->failed) return false;
    if (v && c != out->n) return on_fail(n, DIAG_ONNX_ATTR, "kernel_shape has %d entries, not %d", c, out->n);
    if (!v && !w) return on_fail(n, DIAG_ONNX_ATTR, "attribute 'kernel_shape' is missing");
    for (int i = 0; i < out->n; i++) {
        const struct dim *d = w ? dim_of(w, 2 + i) : NULL;
        if (!v && !dim_is_const(d)) return on_fail(n, DIAG_ONNX_DYNAMIC, "the kernel's size is not known");
        out->kernel[i] = v ? v[i] : d->value;
        if (out->kernel[i] < 1 || out->kernel[i] > WINDOW_MAX) return on_fail(n, DIAG_ONNX_ATTR, "kernel_shape is out of range");
        if (v && w && !ir_require_equal(n->m, n->b->loc, d, dim_const(n->d, v[i]), "kernel_shape")) return false;
    }
    return true;
}

static void same_pads(struct onode *n, struct ir_value *x, struct window *w)
{
    for (int i = 0; i < w->n; i++) {
        const struct dim *in = dim_of(x, 2 + i), *zero = dim_const(n->d, 0), *two = dim_const(n->d, 2);
        const struct dim *positions = dim_ceildiv(n->d, in, dim_const(n->d, w->strides[i]));
        const struct dim *reach = dim_addc(n->d, dim_mulc(n->d, dim_addc(n->d, positions, -1), w->strides[i]), window_span(w, i));
        const struct dim *total = dim_max(n->d, zero, dim_sub(n->d, reach, in)), *half = dim_floordiv(n->d, total, two);
        bool upper = w->auto_pad == PAD_SAME_UPPER;
        w->pads[i] = upper ? half : dim_sub(n->d, total, half);
        w->pads[w->n + i] = upper ? dim_sub(n->d, total, half) : half;
    }
}

bool window_read(struct onode *n, struct ir_value *x, struct ir_value *w, bool has_dilations, struct window *out)
{
    static const char *const names[] = {"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"};
    if (!on_rank(n, x, 3, IR_MAX_RANK - 2, "the input")) return false;
    out->n = rank_of(x) - 2;
    if (w && rank_of(w) != rank_of(x)) return on_fail(n, DIAG_SHAPE_MISMATCH, "%s: the kernel has another rank than the input", n->row->op);
    int mode = at_choice(n, "auto_pad", 0, 4, names), c;
    if (mode < 0 || !read_kernel(n, w, out) || !read_positive(n, "strides", out->n, out->strides)) return false;
    for (int i = 0; i < out->n; i++) out->dilations[i] = 1;
    if (has_dilations && !read_positive(n, "dilations", out->n, out->dilations)) return false;
    for (int i = 0; i < out->n; i++)
        if (window_span(out, i) > WINDOW_MAX) return on_fail(n, DIAG_ONNX_ATTR, "the dilated kernel is too large");
    out->auto_pad = (enum auto_pad)mode;
    const int64_t *pads = at_ints(n, "pads", &c);
    if (n->failed) return false;
    if (pads && c != 2 * out->n) return on_fail(n, DIAG_ONNX_ATTR, "attribute 'pads' has %d entries, not %d", c, 2 * out->n);
    for (int i = 0; i < 2 * out->n; i++) {
        int64_t p = pads && mode == PAD_NOTSET ? pads[i] : 0;
        if (p < -WINDOW_MAX || p > WINDOW_MAX) return on_fail(n, DIAG_ONNX_ATTR, "attribute 'pads' is out of range");
        out->pads[i] = dim_const(n->d, p);
    }
    if (mode == PAD_SAME_UPPER || mode == PAD_SAME_LOWER) same_pads(n, x, out);
    return true;
}

const struct dim *window_positions(struct onode *n, const struct window *w, struct ir_value *x, int axis, bool ceil_mode)
{
    const struct dim *in = dim_of(x, 2 + axis), *lo = w->pads[axis], *hi = w->pads[w->n + axis];
    const struct dim *stride = dim_const(n->d, w->strides[axis]);
    if (w->auto_pad == PAD_SAME_UPPER || w->auto_pad == PAD_SAME_LOWER) return dim_ceildiv(n->d, in, stride);
    const struct dim *room = dim_addc(n->d, dim_add(n->d, in, dim_add(n->d, lo, hi)), -window_span(w, axis));
    if (!ceil_mode || w->auto_pad == PAD_VALID) return dim_addc(n->d, dim_floordiv(n->d, room, stride), 1);
    const struct dim *most = dim_floordiv(n->d, dim_addc(n->d, dim_add(n->d, in, lo), -1), stride);
    return dim_addc(n->d, dim_min(n->d, dim_ceildiv(n->d, room, stride), most), 1);
}

struct ir_value *onnx_conv_value(struct onode *n, struct ir_value *x, struct ir_value *w, struct ir_value *bias);

struct ir_value *onnx_conv_value(struct onode *n, struct ir_value *x, struct ir_value *w, struct ir_value *bias)
{
    struct window win;
    if (!x || !w || !window_read(n, x, w, true, &win)) return NULL;
    int64_t groups = at_int(n, "group", 1);
    if (groups < 1 || groups > WINDOW_MAX) {
        on_fail(n, DIAG_ONNX_ATTR, "attribute 'group' is out of range");
        return NULL;
    }
    struct ir_attr a[4] = {ir_a_ints("strides", win.n, win.strides), ir_a_ints("dilations", win.n, win.dilations),
                           ir_a_dims("pads", 2 * win.n, win.pads), ir_a_int("groups", groups)};
    struct ir_value *operands[3] = {x, w, bias};
    return e_op(n, IR_OP_CONV, bias ? 3 : 2, operands, 4, a, 1, 0);
}

bool onnx_conv(struct onode *n) { return on_out(n, 0, onnx_conv_value(n, on_in(n, 0), on_in(n, 1), on_in(n, 2))); }

/* ---- ConvTranspose ---- */

static bool transpose_sizes(struct onode *n, struct ir_value *x, struct window *w, const struct dim **sizes)
{
    int c_shape, c_pad;
    const int64_t *shape = at_ints(n, "output_shape", &c_shape), *extra = at_ints(n, "output_padding", &c_pad);
    if (n->failed) return false;
    if ((shape && c_shape != w->n && c_shape != w->n + 2) || (extra && c_pad != w->n))
        return on_fail(n, DIAG_ONNX_ATTR, "output_shape or output_padding has the wrong number of entries");
    if (shape && c_shape == w->n + 2) shape += 2;
    bool same = w->auto_pad == PAD_SAME_UPPER || w->auto_pad == PAD_SAME_LOWER;
    for (int i = 0; i < w->n; i++) {
        const struct dim *in = dim_of(x, 2 + i);
        int64_t more = extra ? extra[i] : 0;
        if (more < 0 || more > WINDOW_MAX) return on_fail(n, DIAG_ONNX_ATTR, "output_padding is out of range");
        const struct dim *full = dim_addc(n->d, dim_mulc(n->d, dim_addc(n->d, in, -1), w->strides[i]), window_span(w, i) + more);
        if (!shape && !same) {
            sizes[i] = dim_sub(n->d, full, dim_add(n->d, w->pads[i], w->pads[w->n + i]));
            continue;
        }
        if (shape && (shape[i] < 0 || shape[i] > WINDOW_MAX)) return on_fail(n, DIAG_ONNX_ATTR, "output_shape is out of range");
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
    if (!window_read(n, x, on_in(n, 1), true, &w) || !transpose_sizes(n, x, &w, sizes)) return false;
    int64_t groups = at_int(n, "group", 1);
    if (groups < 1 || groups > WINDOW_MAX) return on_fail(n, DIAG_ONNX_ATTR, "attribute 'group' is out of range");
    struct ir_attr a[5] = {ir_a_ints("strides", w.n, w.strides), ir_a_ints("dilations", w.n, w.dilations),
                           ir_a_dims("pads", 2 * w.n, w.pads), ir_a_dims("output", w.n, sizes), ir_a_int("groups", groups)};
    struct ir_value *operands[3] = {x, on_in(n, 1), on_in(n, 2)};
    return on_out(n, 0, e_op(n, IR_OP_CONV_TRANSPOSE, operands[2] ? 3 : 2, operands, 5, a, 1, 0));
}
