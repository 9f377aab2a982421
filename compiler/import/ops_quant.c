// SPDX-License-Identifier: Apache-2.0
/*
 * QuantizeLinear, DequantizeLinear and the operators on quantised operands. Integer types from 2
 * bits; 8-bit floats come later. A zero point that is left out is 0.
 */
#include "compiler/import/onnx_int.h"

struct ir_value *onnx_conv_value(struct onode *n, struct ir_value *x, struct ir_value *w,
                                 struct ir_value *bias);

static bool integer_range(enum dtype t, double *lo, double *hi)
{
    unsigned bits = dtype_bits(t);
    if (!dtype_is_int(t) || bits > 32) return false;
    double all = (double)((int64_t)1 << bits);
    *lo = dtype_class(t) == DTC_SINT ? -all / 2 : 0;
    *hi = dtype_class(t) == DTC_SINT ? all / 2 - 1 : all - 1;
    return true;
}

/* round(x) + zero, saturated into t; x and zero (may be NULL) are floats. */
static struct ir_value *saturate(struct onode *n, struct ir_value *x, struct ir_value *zero,
                                 enum dtype t)
{
    double lo, hi;
    if (!x) return NULL;
    if (!integer_range(t, &lo, &hi)) {
        on_fail(n, DIAG_DTYPE_UNSUPPORTED, "%s to %s is not supported", n->row->op, dtype_name(t));
        return NULL;
    }
    struct ir_value *r = e_un(n, IR_OP_ROUND, x);
    if (zero) r = e_add(n, r, e_cast(n, zero, x->type.dtype));
    return e_cast(n, e_min(n, e_max(n, r, e_like(n, x, lo)), e_like(n, x, hi)), t);
}

/* A scale or zero point as it broadcasts against x: one for all, one per index of `axis`, or one
 * per block along it. */
static struct ir_value *spread(struct onode *n, struct ir_value *p, struct ir_value *x, int axis,
                               int64_t block)
{
    int rank = rank_of(x);
    int64_t elems;
    if (!p) return NULL;
    if (block == 0) {
        if (rank_of(p) == 0) return p;
        if (rank_of(p) == 1 && ir_type_static_elems(&p->type, &elems) && elems == 1)
            return e_reshape(n, p, 0, NULL);
        if (rank_of(p) == 1 && axis < rank) return e_channel(n, p, axis, rank);
        on_fail(n, DIAG_SHAPE_MISMATCH, "%s: the scale is neither one number nor a vector",
                n->row->op);
        return NULL;
    }
    if (rank_of(p) != rank || rank >= IR_MAX_RANK) {
        on_fail(n, DIAG_SHAPE_MISMATCH, "%s: a blocked scale needs the input's rank", n->row->op);
        return NULL;
    }
    const struct dim *in[IR_MAX_RANK], *out[IR_MAX_RANK], *flat[IR_MAX_RANK],
        *b = dim_const(n->d, block);
    for (int i = 0, r = 0; i < rank; i++) {
        in[r] = out[r] = flat[i] = dim_of(p, i);
        r++;
        if (i != axis) continue;
        in[r] = dim_const(n->d, 1);
        out[r++] = b;
        flat[i] = dim_mul(n->d, dim_of(p, i), b);
    }
    struct ir_value *y =
        e_reshape(n, e_broadcast(n, e_reshape(n, p, rank + 1, in), rank + 1, out), rank, flat);
    return flat[axis] == dim_of(x, axis)
               ? y
               : e_slice1(n, y, axis, dim_const(n->d, 0), dim_of(x, axis));
}

static bool quant_axis(struct onode *n, struct ir_value *x, int *axis, int64_t *block)
{
    *block = n->version >= 21 ? at_int(n, "block_size", 0) : 0;
    int64_t a = n->version >= 13 ? at_int(n, "axis", 1) : 0;
    if (n->failed || *block < 0 || *block > 1 << 30)
        return on_fail(n, DIAG_ONNX_ATTR, "attribute 'block_size' is out of range");
    /* Per-tensor scales do not use the axis, whose default need not fit then. */
    if (rank_of(on_in(n, 1)) == 0 || rank_of(x) == 0 || (rank_of(x) == 1 && !at_has(n, "axis"))) {
        *axis = 0;
        return true;
    }
    return on_axis(n, a, rank_of(x), false, axis);
}

bool onnx_quantizelinear(struct onode *n)
{
    struct ir_value *x = on_in(n, 0), *scale = on_in(n, 1), *zero = on_in(n, 2);
    enum dtype t = zero ? zero->type.dtype : DT_U8, wide;
    int axis;
    int64_t block;
    if (!quant_axis(n, x, &axis, &block)) return false;
    if (n->version >= 19) at_ignore(n, "saturate"); /* for 8-bit floats only */
    if (n->version >= 21 && !zero) t = at_dtype(n, "output_dtype", DT_U8);
    else if (n->version >= 21) at_ignore(n, "output_dtype");
    wide = n->version >= 23 ? at_dtype(n, "precision", DT_F32) : DT_F32;
    if (n->failed) return false;
    if (wide != DT_F64) wide = DT_F32;
    struct ir_value *s = spread(n, e_cast(n, scale, wide), x, axis, block);
    struct ir_value *z = zero ? spread(n, zero, x, axis, block) : NULL;
    if (!s || (zero && !z)) return false;
    return on_out(n, 0, saturate(n, e_div(n, e_cast(n, x, wide), s), z, t));
}

bool onnx_dequantizelinear(struct onode *n)
{
    struct ir_value *x = on_in(n, 0), *scale = on_in(n, 1), *zero = on_in(n, 2);
    int axis;
    int64_t block;
    enum dtype t = scale->type.dtype;
    if (!dtype_is_int(x->type.dtype))
        return on_fail(n, DIAG_DTYPE_UNSUPPORTED, "DequantizeLinear of %s is not supported yet",
                       dtype_name(x->type.dtype));
    if (!quant_axis(n, x, &axis, &block)) return false;
    if (n->version >= 23) t = at_dtype(n, "output_dtype", t);
    if (n->failed) return false;
    struct ir_value *s = spread(n, scale, x, axis, block), *q = e_cast(n, x, DT_I32);
    if (!s) return false;
    if (zero) {
        struct ir_value *z = spread(n, zero, x, axis, block);
        q = e_sub(n, q, e_cast(n, z, DT_I32));
    }
    struct ir_value *w = e_wide(n, s);
    return w && on_out(n, 0, e_cast(n, e_mul(n, e_cast(n, q, w->type.dtype), w), t));
}

bool onnx_dynamicquantizelinear(struct onode *n)
{
    struct ir_value *x = on_in(n, 0);
    int64_t axes[IR_MAX_RANK];
    for (int i = 0; i < rank_of(x); i++) axes[i] = i;
    struct ir_value *zero = e_like(n, x, 0), *one = e_like(n, x, 1);
    struct ir_value *hi = e_max(n, e_red(n, IR_OP_REDUCE_MAX, x, rank_of(x), axes, false), zero);
    struct ir_value *lo = e_min(n, e_red(n, IR_OP_REDUCE_MIN, x, rank_of(x), axes, false), zero);
    struct ir_value *span = e_sub(n, hi, lo);
    struct ir_value *scale =
        e_sel(n, e_bin(n, IR_OP_EQ, span, zero), one, e_div(n, span, e_like(n, x, 255)));
    struct ir_value *point = saturate(n, e_div(n, e_sub(n, zero, lo), scale), NULL, DT_U8);
    struct ir_value *y = saturate(n, e_div(n, x, scale), point, DT_U8);
    return on_out(n, 0, y) && on_out(n, 1, scale) && on_out(n, 2, point);
}

/* ---- integer products ---- */

/* A zero point for rows of A (side 0) or columns of B (side 1): a scalar, a vector of them, or
 * already of full rank. */
static struct ir_value *point_for(struct onode *n, struct ir_value *z, struct ir_value *m, int side)
{
    int64_t elems;
    if (!z) return NULL;
    if (ir_type_static_elems(&z->type, &elems) && elems == 1) return e_reshape(n, z, 0, NULL);
    if (rank_of(z) != 1) return z;
    return side == 0 && rank_of(m) > 1 ? e_unsqueeze(n, z, 1) : z;
}

/*
 * sum over k of (a - az) * (b - bz) in i32. Written as a * b - az * sum(b) - bz * sum(a) + K * az *
 * bz, so that the product itself stays one of 8-bit operands.
 */
static struct ir_value *integer_matmul(struct onode *n, struct ir_value *a, struct ir_value *az,
                                       struct ir_value *b, struct ir_value *bz)
{
    if (!dtype_is_int(a->type.dtype) || !dtype_is_int(b->type.dtype) ||
        dtype_bits(a->type.dtype) > 8 || dtype_bits(b->type.dtype) > 8) {
        on_fail(n, DIAG_DTYPE_MISMATCH, "%s of %s and %s", n->row->op, dtype_name(a->type.dtype),
                dtype_name(b->type.dtype));
        return NULL;
    }
    if (rank_of(a) < 1 || rank_of(b) < 1) {
        on_fail(n, DIAG_SHAPE_MISMATCH, "%s of a scalar", n->row->op);
        return NULL;
    }
    bool va = rank_of(a) == 1, vb = rank_of(b) == 1; /* a vector gains a dim that is dropped again */
    if (va) a = e_unsqueeze(n, a, 0);
    if (vb) b = e_unsqueeze(n, b, 1);
    if (!a || !b) return NULL;
    struct ir_value *y = ir_build_matmul(n->b, a, b, false, false, DT_I32);
    int ka = rank_of(a) - 1, kb = rank_of(b) - 2;
    struct ir_value *z0 = az ? e_cast(n, point_for(n, az, a, 0), DT_I32) : NULL;
    struct ir_value *z1 = bz ? e_cast(n, point_for(n, bz, b, 1), DT_I32) : NULL;
    if (z0)
        y = e_sub(n, y, e_mul(n, z0, e_red1(n, IR_OP_REDUCE_SUM, e_cast(n, b, DT_I32), kb, true)));
    if (z1)
        y = e_sub(n, y, e_mul(n, z1, e_red1(n, IR_OP_REDUCE_SUM, e_cast(n, a, DT_I32), ka, true)));
    if (z0 && z1) y = e_add(n, y, e_mul(n, e_mul(n, z0, z1), e_dim(n, dim_of(a, ka), DT_I32)));
    if (vb) y = e_squeeze(n, y, rank_of(y) - 1);
    if (va) y = e_squeeze(n, y, rank_of(y) - (vb ? 1 : 2));
    return y;
}

bool onnx_matmulinteger(struct onode *n)
{
    return on_out(n, 0, integer_matmul(n, on_in(n, 0), on_in(n, 2), on_in(n, 1), on_in(n, 3)));
}

/* a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero */
bool onnx_qlinearmatmul(struct onode *n)
{
    struct ir_value *a = on_in(n, 0), *b = on_in(n, 3), *zero = on_in(n, 7);
    for (int i = 0; i < 8; i++)
        if (!on_in(n, i))
            return on_fail(n, DIAG_ONNX_INPUT, "QLinearMatMul: input %d is missing", i);
    struct ir_value *y = integer_matmul(n, a, on_in(n, 2), b, on_in(n, 5));
    struct ir_value *sa = e_cast(n, point_for(n, on_in(n, 1), a, 0), DT_F32),
                    *sb = e_cast(n, point_for(n, on_in(n, 4), b, 1), DT_F32);
    struct ir_value *sy = e_cast(n, point_for(n, on_in(n, 6), a, 0), DT_F32);
    struct ir_value *scaled = e_mul(n, e_cast(n, y, DT_F32), e_div(n, e_mul(n, sa, sb), sy));
    return on_out(n, 0, saturate(n, scaled, point_for(n, zero, a, 0), zero->type.dtype));
}

/* x - zero in i32; the zero point of a kernel may be one per output channel. */
static struct ir_value *centred(struct onode *n, struct ir_value *x, struct ir_value *zero,
                                bool kernel)
{
    struct ir_value *y = e_cast(n, x, DT_I32);
    int64_t elems;
    if (!zero || !y) return y;
    struct ir_value *z = zero;
    if (ir_type_static_elems(&z->type, &elems) && elems == 1) z = e_reshape(n, z, 0, NULL);
    else if (kernel && rank_of(z) == 1) z = e_channel(n, z, 0, rank_of(x));
    return e_sub(n, y, e_cast(n, z, DT_I32));
}

bool onnx_convinteger(struct onode *n)
{
    struct ir_value *x = centred(n, on_in(n, 0), on_in(n, 2), false),
                    *w = centred(n, on_in(n, 1), on_in(n, 3), true);
    return on_out(n, 0, onnx_conv_value(n, x, w, NULL));
}

/* x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias (i32, of scale x_scale * w_scale)
 */
bool onnx_qlinearconv(struct onode *n)
{
    for (int i = 0; i < 8; i++)
        if (!on_in(n, i)) return on_fail(n, DIAG_ONNX_INPUT, "QLinearConv: input %d is missing", i);
    struct ir_value *x = centred(n, on_in(n, 0), on_in(n, 2), false),
                    *w = centred(n, on_in(n, 3), on_in(n, 5), true);
    struct ir_value *y = onnx_conv_value(n, x, w, on_in(n, 8)), *zero = on_in(n, 7),
                    *sw = on_in(n, 4);
    if (!y) return false;
    int64_t elems;
    if (ir_type_static_elems(&sw->type, &elems) && elems == 1) sw = e_reshape(n, sw, 0, NULL);
    else sw = e_channel(n, sw, 1, rank_of(y));
    struct ir_value *sx = e_reshape(n, on_in(n, 1), 0, NULL),
                    *sy = e_reshape(n, on_in(n, 6), 0, NULL);
    struct ir_value *scaled = e_mul(n, e_cast(n, y, DT_F32), e_div(n, e_mul(n, sx, sw), sy));
    return on_out(n, 0, saturate(n, scaled, e_reshape(n, zero, 0, NULL), zero->type.dtype));
}
