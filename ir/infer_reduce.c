// SPDX-License-Identifier: Apache-2.0
/* Inference for reductions, selections, contractions, normalisations and transforms. */
#include <float.h>

#include "ir/infer.h"

/* x without the axes of the bit set, or with 1 in their place. */
static bool set_reduced(struct ir_module *m, struct ir_op *op, enum dtype dtype, unsigned axes,
                        bool keepdims)
{
    const struct ir_type *x = infer_type(op, 0);
    const struct dim *dims[IR_MAX_RANK];
    int n = 0;
    for (int k = 0; k < x->rank; k++) {
        if (!(axes >> k & 1)) dims[n++] = x->dims[k];
        else if (keepdims) dims[n++] = dim_const(m->dims, 1);
    }
    return infer_set(m, op, 0, dtype, n, dims);
}

bool infer_reduce(struct ir_module *m, struct ir_op *op)
{
    const struct ir_type *x = infer_type(op, 0);
    int64_t axes[2 * IR_MAX_RANK];
    bool extreme = op->code == IR_OP_REDUCE_MAX || op->code == IR_OP_REDUCE_MIN, keepdims;
    unsigned set = 0;
    int n;
    ir_attr_ints(op, "axes", &n);
    if (n > x->rank)
        return infer_fail(m, op, DIAG_IR_VERIFY, "attribute `axes` has more entries than the rank");
    if (!infer_class(m, op, 0, extreme ? INFER_NUMBER | INFER_BOOL : INFER_NUMBER) ||
        !infer_ints(m, op, "axes", n, 0, x->rank - 1, 0, axes) ||
        !infer_flag(m, op, "keepdims", false, &keepdims))
        return false;
    for (int i = 0; i < n; i++) {
        if (set >> axes[i] & 1)
            return infer_fail(m, op, DIAG_IR_VERIFY, "attribute `axes` names axis %d twice",
                              (int)axes[i]);
        set |= 1u << axes[i];
    }
    return set_reduced(m, op, x->dtype, set, keepdims);
}

bool infer_arg(struct ir_module *m, struct ir_op *op)
{
    const struct ir_type *x = infer_type(op, 0);
    bool keepdims, last;
    int axis;
    return infer_class(m, op, 0, INFER_NUMBER) && infer_axis(m, op, "axis", x->rank, &axis) &&
           infer_flag(m, op, "keepdims", false, &keepdims) &&
           infer_flag(m, op, "last", false, &last) &&
           infer_le(m, op, dim_const(m->dims, 1), x->dims[axis], "the axis to choose from") &&
           set_reduced(m, op, DT_I64, 1u << axis, keepdims);
}

bool infer_topk(struct ir_module *m, struct ir_op *op)
{
    const struct ir_type *x = infer_type(op, 0);
    const struct dim *k, *dims[IR_MAX_RANK];
    bool largest;
    int axis;
    if (!infer_class(m, op, 0, INFER_NUMBER) || !infer_axis(m, op, "axis", x->rank, &axis) ||
        !infer_dims(m, op, "k", 1, &k, NULL) || !infer_flag(m, op, "largest", true, &largest) ||
        !infer_le(m, op, k, x->dims[axis], "k of topk"))
        return false;
    for (int i = 0; i < x->rank; i++) dims[i] = i == axis ? k : x->dims[i];
    return infer_set(m, op, 0, x->dtype, x->rank, dims) &&
           infer_set(m, op, 1, DT_I64, x->rank, dims);
}

bool infer_acc(struct ir_module *m, struct ir_op *op, enum dtype *out)
{
    enum dtype a = infer_type(op, 0)->dtype, b = infer_type(op, 1)->dtype;
    *out = (enum dtype)ir_attr_int(op, "acc", a);
    if (!infer_class(m, op, 0, INFER_NUMBER)) return false;
    if (dtype_class(*out) != DTC_FLOAT && !dtype_is_int(*out))
        return infer_fail(m, op, DIAG_DTYPE_UNSUPPORTED, "cannot sum in %s", dtype_name(*out));
    if (dtype_is_float(a) != dtype_is_float(*out) || dtype_bits(*out) < dtype_bits(a))
        return infer_fail(m, op, DIAG_DTYPE_MISMATCH, "sums of %s cannot be %s", dtype_name(a),
                          dtype_name(*out));
    /* u8 times i8 is fine when the sum's type is wider than both. */
    bool mixed = dtype_is_int(a) && dtype_is_int(b) && dtype_bits(*out) > dtype_bits(a) &&
                 dtype_bits(*out) > dtype_bits(b);
    if (a != b && !mixed)
        return infer_fail(m, op, DIAG_DTYPE_MISMATCH,
                          "operands 0 and 1 must have one element type");
    return true;
}

bool infer_matmul(struct ir_module *m, struct ir_op *op)
{
    const struct ir_type *a = infer_type(op, 0), *b = infer_type(op, 1);
    const struct dim *dims[IR_MAX_RANK];
    enum dtype acc;
    bool trans_a, trans_b;
    int rank;
    if (!infer_acc(m, op, &acc) || !infer_flag(m, op, "trans_a", false, &trans_a) ||
        !infer_flag(m, op, "trans_b", false, &trans_b))
        return false;
    if (a->rank < 2 || b->rank < 2)
        return infer_fail(m, op, DIAG_SHAPE_MISMATCH, "both operands must have rank 2 or more");
    struct ir_type batch_a = *a, batch_b = *b;
    batch_a.rank -= 2;
    batch_b.rank -= 2;
    const struct dim *const *ma = a->dims + batch_a.rank, *const *mb = b->dims + batch_b.rank;
    if (!infer_eq(m, op, ma[!trans_a], mb[trans_b], "the dims that are summed over") ||
        !infer_join(m, op, &batch_a, &batch_b, dims, &rank))
        return false;
    dims[rank] = ma[trans_a];
    dims[rank + 1] = mb[!trans_b];
    return infer_set(m, op, 0, acc, rank + 2, dims);
}

bool infer_layer_norm(struct ir_module *m, struct ir_op *op)
{
    const struct ir_type *x = infer_type(op, 0);
    int axis;
    if (!infer_class(m, op, 0, INFER_FLOAT) || !infer_axis(m, op, "axis", x->rank, &axis) ||
        !infer_real(m, op, "eps", 0.0, DBL_MAX))
        return false;
    for (int i = 1; i < op->n_operands; i++) {
        if (!ir_operand(op, i)) continue;
        const struct ir_type *s = infer_type(op, i);
        if (!infer_dtype(m, op, i, x->dtype)) return false;
        if (s->rank > x->rank)
            return infer_fail(m, op, DIAG_SHAPE_MISMATCH, "operand %d must broadcast to operand 0",
                              i);
        for (int k = 0; k < s->rank; k++)
            if (!dim_is(s->dims[k], 1) &&
                !infer_eq(m, op, s->dims[k], x->dims[x->rank - s->rank + k],
                          "dims of scale or bias"))
                return false;
    }
    return infer_set(m, op, 0, x->dtype, x->rank, x->dims);
}

bool infer_dft(struct ir_module *m, struct ir_op *op)
{
    const struct ir_type *x = infer_type(op, 0);
    const struct dim *dims[IR_MAX_RANK], *length;
    bool inverse, onesided;
    int axis;
    if (!infer_class(m, op, 0, INFER_FLOAT)) return false;
    if (x->rank < 2)
        return infer_fail(m, op, DIAG_SHAPE_MISMATCH, "operand 0 must have rank 2 or more");
    const struct dim *last = x->dims[x->rank - 1];
    if (!dim_is(last, 1) && !dim_is(last, 2))
        return infer_fail(m, op, DIAG_SHAPE_MISMATCH,
                          "the last dim must be 1 (real) or 2 (complex)");
    if (!infer_axis(m, op, "axis", x->rank - 1, &axis) ||
        !infer_dims(m, op, "length", 1, &length, NULL) ||
        !infer_flag(m, op, "inverse", false, &inverse) ||
        !infer_flag(m, op, "onesided", false, &onesided))
        return false;
    if (onesided && (inverse || dim_is(last, 2)))
        return infer_fail(m, op, DIAG_IR_VERIFY,
                          "onesided needs a forward transform of real numbers");
    if (!ir_attr_find(op, "length")) length = x->dims[axis];
    if (!infer_le(m, op, dim_const(m->dims, 1), length, "length of a transform")) return false;
    for (int k = 0; k < x->rank - 1; k++) dims[k] = x->dims[k];
    dims[axis] = onesided
                     ? dim_addc(m->dims, dim_floordiv(m->dims, length, dim_const(m->dims, 2)), 1)
                     : length;
    dims[x->rank - 1] = dim_const(m->dims, 2);
    return infer_set(m, op, 0, x->dtype, x->rank, dims);
}

bool infer_det(struct ir_module *m, struct ir_op *op)
{
    const struct ir_type *x = infer_type(op, 0);
    if (!infer_class(m, op, 0, INFER_FLOAT)) return false;
    if (x->rank < 2)
        return infer_fail(m, op, DIAG_SHAPE_MISMATCH, "operand 0 must have rank 2 or more");
    return infer_eq(m, op, x->dims[x->rank - 2], x->dims[x->rank - 1], "sides of a matrix") &&
           infer_set(m, op, 0, x->dtype, x->rank - 2, x->dims);
}
