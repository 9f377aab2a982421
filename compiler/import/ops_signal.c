// SPDX-License-Identifier: Apache-2.0
/* DFT, STFT, MelWeightMatrix. */
#include "compiler/import/onnx_int.h"

/*
 * The real signal of `length` whose one-sided spectrum x is: bins beyond the middle are the
 * conjugates of those before it, x[length - j], and only the real part of the inverse transform is
 * wanted.
 */
static struct ir_value *inverse_real(struct onode *n, struct ir_value *x, int axis,
                                     const struct dim *length)
{
    int rank = rank_of(x);
    const struct dim *half = dim_addc(n->d, dim_floordiv(n->d, length, dim_const(n->d, 2)), 1),
                     *have = dim_of(x, axis);
    const struct dim *missing = dim_max(n->d, dim_const(n->d, 0), dim_sub(n->d, half, have));
    if (!dim_is(missing, 0)) { /* bins that are not given are 0 */
        const struct dim *lo[IR_MAX_RANK], *hi[IR_MAX_RANK];
        for (int i = 0; i < rank; i++)
            lo[i] = dim_const(n->d, 0), hi[i] = i == axis ? missing : lo[i];
        struct ir_attr p[3] = {ir_a_dims("lo", rank, lo), ir_a_dims("hi", rank, hi),
                               ir_a_string("mode", "constant")};
        x = e_op1(n, IR_OP_PAD, x, 3, p);
    }
    struct ir_value *j = e_iota(n, DT_I64, length), *mirror = e_sub(n, e_dim(n, length, DT_I64), j);
    struct ir_value *all = ir_build_gather(n->b, x, e_min(n, j, mirror), axis);
    struct ir_value *sign =
        e_sel(n, e_bin(n, IR_OP_LE, j, mirror), e_like(n, x, 1), e_like(n, x, -1));
    struct ir_value *parts[2];
    for (int i = 0; i < 2; i++)
        parts[i] = e_slice1(n, all, rank - 1, dim_const(n->d, i), dim_const(n->d, 1));
    parts[1] = e_mul(n, parts[1], e_channel(n, sign, axis, rank));
    struct ir_value *full = parts[0] && parts[1] ? ir_build_concat(n->b, 2, parts, rank - 1) : NULL;
    struct ir_attr a[4] = {ir_a_int("axis", axis), ir_a_dims("length", 1, &length),
                           ir_a_int("inverse", 1), ir_a_int("onesided", 0)};
    return e_slice1(n, e_op1(n, IR_OP_DFT, full, 4, a), rank - 1, dim_const(n->d, 0),
                    dim_const(n->d, 1));
}

bool onnx_dft(struct onode *n)
{
    struct ir_value *x = on_in(n, 0);
    int axis, count;
    int64_t given = n->version >= 20 ? -2 : at_int(n, "axis", 1);
    if (n->version >= 20 && on_in(n, 2)) {
        const int64_t *v = on_ints(n, 2, &count);
        if (!v || count != 1)
            return n->failed ? false
                             : on_fail(n, DIAG_ONNX_INPUT, "DFT: the axis has to be one number");
        given = v[0];
    }
    if (!on_rank(n, x, 2, IR_MAX_RANK, "the input") || !on_axis(n, given, rank_of(x), false, &axis))
        return false;
    if (axis == rank_of(x) - 1)
        return on_fail(n, DIAG_ONNX_ATTR, "DFT along the axis of real and imaginary parts");
    bool inverse = at_int(n, "inverse", 0), onesided = at_int(n, "onesided", 0);
    const struct dim *length = dim_of(x, axis);
    if (inverse && onesided) length = dim_mulc(n->d, dim_addc(n->d, length, -1), 2);
    if (on_in(n, 1)) {
        const struct dim *const *d = on_dims(n, 1, &count);
        if (!d || count != 1)
            return n->failed ? false
                             : on_fail(n, DIAG_ONNX_INPUT, "DFT: the length has to be one number");
        length = d[0];
    }
    struct ir_attr a[4] = {ir_a_int("axis", axis), ir_a_dims("length", 1, &length),
                           ir_a_int("inverse", inverse), ir_a_int("onesided", onesided)};
    struct ir_value *y;
    if (inverse && onesided) {
        if (!dim_is(dim_of(x, rank_of(x) - 1), 2))
            return on_fail(n, DIAG_SHAPE_MISMATCH,
                           "DFT: an inverse one-sided transform needs complex numbers");
        y = inverse_real(n, e_wide(n, x), axis, length);
    } else {
        y = e_op1(n, IR_OP_DFT, e_wide(n, x), 4, a);
    }
    return on_out(n, 0, e_cast(n, y, x->type.dtype));
}

/* Frames of the signal (a gather of index frame * step + i), windowed, transformed. */
bool onnx_stft(struct onode *n)
{
    struct ir_value *x = on_in(n, 0), *window = on_in(n, 2);
    int count;
    bool onesided = at_int(n, "onesided", 1);
    const struct dim *const *step = on_dims(n, 1, &count);
    if (!step || count != 1)
        return n->failed ? false
                         : on_fail(n, DIAG_ONNX_INPUT, "STFT: the step has to be one number");
    if (!on_rank(n, x, 2, 3, "the signal")) return false;
    if (rank_of(x) == 2) x = e_unsqueeze(n, x, 2);
    const struct dim *length;
    if (on_in(n, 3)) {
        const struct dim *const *d = on_dims(n, 3, &count);
        if (!d || count != 1)
            return n->failed ? false
                             : on_fail(n, DIAG_ONNX_INPUT, "STFT: the length has to be one number");
        length = d[0];
    } else if (window) {
        if (!on_rank(n, window, 1, 1, "the window")) return false;
        length = dim_of(window, 0);
    } else {
        return on_fail(n, DIAG_ONNX_INPUT, "STFT needs a window or a frame length");
    }
    if (step[0]->lo < 1) return on_fail(n, DIAG_ONNX_DYNAMIC, "STFT: the step may be 0");
    const struct dim *frames =
        dim_addc(n->d, dim_floordiv(n->d, dim_sub(n->d, dim_of(x, 1), length), step[0]), 1);
    const struct dim *dims[2] = {frames, length};
    struct ir_value *start =
        e_mul(n, ir_build_iota(n->b, DT_I64, 2, dims, 0), e_dim(n, step[0], DT_I64));
    struct ir_value *at = e_add(n, start, ir_build_iota(n->b, DT_I64, 2, dims, 1));
    struct ir_value *f = ir_build_gather(n->b, x, at, 1); /* [batch, frames, length, 1 or 2] */
    f = e_wide(n, f);
    if (window && f) f = e_mul(n, f, e_channel(n, e_cast(n, window, f->type.dtype), 2, 4));
    struct ir_attr a[4] = {ir_a_int("axis", 2), ir_a_dims("length", 1, &length),
                           ir_a_int("inverse", 0), ir_a_int("onesided", onesided)};
    return on_out(n, 0, e_cast(n, e_op1(n, IR_OP_DFT, f, 4, a), on_in(n, 0)->type.dtype));
}

static struct ir_value *f64(struct onode *n, double v) { return e_scalar(n, DT_F64, v); }

/* hertz -> mel = 2595 log10(1 + f / 700) and back */
static struct ir_value *to_mel(struct onode *n, struct ir_value *hz)
{
    struct ir_value *r =
        e_add(n, e_div(n, e_cast(n, e_reshape(n, hz, 0, NULL), DT_F64), f64(n, 700)), f64(n, 1));
    return e_mul(n, e_un(n, IR_OP_LOG, r), f64(n, 2595 / 2.30258509299404568402));
}

/* num_mel_bins, dft_length, sample_rate, lower_edge_hertz, upper_edge_hertz -> triangles
 * [dft_length/2 + 1, bins] */
bool onnx_melweightmatrix(struct onode *n)
{
    int count, count_length = 0;
    const struct dim *const *bins = on_dims(n, 0, &count), *const *length =
                                                               bins ? on_dims(n, 1, &count_length)
                                                                    : NULL;
    enum dtype t = at_dtype(n, "output_datatype", DT_F32);
    if (!length || n->failed) return false;
    if (count != 1 || count_length != 1)
        return on_fail(n, DIAG_ONNX_INPUT, "MelWeightMatrix: the sizes have to be one number each");
    const struct dim *edges = dim_addc(n->d, bins[0], 2),
                     *rows = dim_addc(n->d, dim_floordiv(n->d, length[0], dim_const(n->d, 2)), 1);
    struct ir_value *lo = to_mel(n, on_in(n, 3)), *hi = to_mel(n, on_in(n, 4)),
                    *rate = e_cast(n, e_reshape(n, on_in(n, 2), 0, NULL), DT_F64);
    struct ir_value *step = e_div(n, e_sub(n, hi, lo), e_dim(n, edges, DT_F64));
    struct ir_value *mel = e_add(n, e_mul(n, e_iota(n, DT_F64, edges), step), lo);
    struct ir_value *hz = e_un(n, IR_OP_EXP, e_mul(n, mel, f64(n, 2.30258509299404568402 / 2595)));
    hz = e_mul(n, e_sub(n, hz, f64(n, 1)), f64(n, 700));
    struct ir_value *edge =
        e_un(n, IR_OP_FLOOR,
             e_div(n, e_mul(n, hz, e_dim(n, dim_addc(n->d, length[0], 1), DT_F64)), rate));
    struct ir_value *p[3], *row = e_unsqueeze(n, e_iota(n, DT_F64, rows), 1), *zero = f64(n, 0),
                           *one = f64(n, 1);
    for (int i = 0; i < 3; i++) p[i] = e_slice1(n, edge, 0, dim_const(n->d, i), bins[0]);
    struct ir_value *rise = e_sub(n, p[1], p[0]), *fall = e_sub(n, p[2], p[1]);
    struct ir_value *flat = e_bin(n, IR_OP_EQ, rise, zero);
    /* Left of the centre (and on it) the rising side, right of it and on it the falling one where
     * there is one. */
    struct ir_value *up = e_div(n, e_sub(n, row, p[0]), e_sel(n, flat, one, rise));
    struct ir_value *down =
        e_div(n, e_sub(n, p[2], row), e_sel(n, e_bin(n, IR_OP_GT, fall, zero), fall, one));
    struct ir_value *on_left =
        e_bin(n, IR_OP_AND, e_bin(n, IR_OP_GE, row, p[0]), e_bin(n, IR_OP_LE, row, p[1]));
    struct ir_value *on_right =
        e_bin(n, IR_OP_AND, e_bin(n, IR_OP_GE, row, p[1]), e_bin(n, IR_OP_LT, row, p[2]));
    struct ir_value *left = e_sel(n, on_left, e_sel(n, flat, one, up), zero);
    return on_out(n, 0, e_cast(n, e_sel(n, on_right, down, left), t));
}
