// SPDX-License-Identifier: Apache-2.0
/* Inference for ops that move elements: reshape to scatter. */
#include <string.h>

#include "ir/infer.h"

bool infer_reshape(struct ir_module *m, struct ir_op *op)
{
    const struct ir_type *x = infer_type(op, 0);
    const struct dim *dims[IR_MAX_RANK];
    int rank;
    if (!infer_dims(m, op, "dims", -1, dims, &rank) || !infer_set(m, op, 0, x->dtype, rank, dims))
        return false;
    return infer_eq(m, op, ir_type_elems(m, x), ir_type_elems(m, &op->results[0].type),
                    "number of elements");
}

bool infer_transpose(struct ir_module *m, struct ir_op *op)
{
    const struct ir_type *x = infer_type(op, 0);
    const struct dim *dims[IR_MAX_RANK];
    int64_t perm[2 * IR_MAX_RANK];
    unsigned seen = 0;
    if (!infer_ints(m, op, "perm", x->rank, 0, x->rank - 1, 0, perm)) return false;
    for (int i = 0; i < x->rank; i++) {
        if (seen >> perm[i] & 1)
            return infer_fail(m, op, DIAG_IR_VERIFY, "attribute `perm` names axis %d twice",
                              (int)perm[i]);
        seen |= 1u << perm[i];
        dims[i] = x->dims[perm[i]];
    }
    return infer_set(m, op, 0, x->dtype, x->rank, dims);
}

static bool broadcast_to(struct ir_module *m, struct ir_op *op, int rank,
                         const struct dim *const *dims, int operand)
{
    const struct ir_type *x = infer_type(op, operand);
    if (x->rank > rank)
        return infer_fail(m, op, DIAG_SHAPE_MISMATCH,
                          "operand %d of rank %d cannot broadcast to rank %d", operand, x->rank,
                          rank);
    for (int i = 0; i < x->rank; i++) {
        const struct dim *to = dims[rank - x->rank + i];
        if (!dim_is(x->dims[i], 1) && !infer_eq(m, op, x->dims[i], to, "dims of a broadcast"))
            return false;
    }
    return true;
}

bool infer_broadcast(struct ir_module *m, struct ir_op *op)
{
    const struct dim *dims[IR_MAX_RANK];
    int rank;
    return infer_dims(m, op, "dims", -1, dims, &rank) && broadcast_to(m, op, rank, dims, 0) &&
           infer_set(m, op, 0, infer_type(op, 0)->dtype, rank, dims);
}

/*
 * Slices stay inside. For size 0 both rules hold for every start that a clamped range can give, so
 * they need no case of their own: upwards start <= dim + step - 1, downwards 0 <= start + |step|.
 */
static bool slice_inside(struct ir_module *m, struct ir_op *op, const struct dim *start,
                         int64_t step, const struct dim *size, const struct dim *dim)
{
    struct dim_ctx *c = m->dims;
    if (dim_is(size, 0)) return true;
    const struct dim *last = dim_add(c, start, dim_mulc(c, dim_addc(c, size, -1), step));
    const struct dim *zero = dim_const(c, 0);
    if (step > 0)
        return infer_le(m, op, zero, start, "first index of a slice") &&
               infer_le(m, op, dim_addc(c, last, 1), dim, "end of a slice");
    return infer_le(m, op, dim_addc(c, start, 1), dim, "start of a slice") &&
           infer_le(m, op, zero, last, "last index of a slice");
}

bool infer_slice(struct ir_module *m, struct ir_op *op)
{
    const struct ir_type *x = infer_type(op, 0);
    const struct dim *starts[IR_MAX_RANK], *sizes[IR_MAX_RANK];
    int64_t steps[2 * IR_MAX_RANK];
    if (!infer_dims(m, op, "starts", x->rank, starts, NULL) ||
        !infer_dims(m, op, "sizes", x->rank, sizes, NULL) ||
        !infer_ints(m, op, "steps", x->rank, -INT64_MAX, INT64_MAX, 1, steps))
        return false;
    for (int i = 0; i < x->rank; i++) {
        if (steps[i] == 0)
            return infer_fail(m, op, DIAG_IR_VERIFY, "attribute `steps`[%d] is 0", i);
        if (!slice_inside(m, op, starts[i], steps[i], sizes[i], x->dims[i])) return false;
    }
    return infer_set(m, op, 0, x->dtype, x->rank, sizes);
}

/* Operand i, when given, holds one element of x's type. */
static bool fill_value(struct ir_module *m, struct ir_op *op, int i)
{
    int64_t elems;
    if (!ir_operand(op, i)) return true;
    if (!infer_dtype(m, op, i, infer_type(op, 0)->dtype)) return false;
    if (ir_type_static_elems(infer_type(op, i), &elems) && elems == 1) return true;
    return infer_fail(m, op, DIAG_SHAPE_MISMATCH, "operand %d must have one element", i);
}

bool infer_pad(struct ir_module *m, struct ir_op *op)
{
    const struct ir_type *x = infer_type(op, 0);
    const struct dim *lo[IR_MAX_RANK], *hi[IR_MAX_RANK], *dims[IR_MAX_RANK];
    const char *mode = ir_attr_string(op, "mode", "constant");
    if (!infer_word(m, op, "mode", "constant edge reflect wrap") || !fill_value(m, op, 1) ||
        !infer_dims(m, op, "lo", x->rank, lo, NULL) || !infer_dims(m, op, "hi", x->rank, hi, NULL))
        return false;
    for (int i = 0; i < x->rank; i++) {
        const struct dim *d = x->dims[i], *one = dim_const(m->dims, 1);
        dims[i] = dim_add(m->dims, dim_add(m->dims, d, lo[i]), hi[i]);
        if (!strcmp(mode, "constant") || (dim_is(lo[i], 0) && dim_is(hi[i], 0))) continue;
        if (!infer_le(m, op, one, d, "an axis that is padded with its own elements")) return false;
        if (!strcmp(mode, "reflect") &&
            (!infer_le(m, op, dim_addc(m->dims, lo[i], 1), d,
                       "reflected elements before an axis") ||
             !infer_le(m, op, dim_addc(m->dims, hi[i], 1), d, "reflected elements behind an axis")))
            return false;
    }
    return infer_set(m, op, 0, x->dtype, x->rank, dims);
}

bool infer_concat(struct ir_module *m, struct ir_op *op)
{
    const struct ir_type *x = infer_type(op, 0);
    const struct dim *dims[IR_MAX_RANK];
    int axis;
    if (!infer_axis(m, op, "axis", x->rank, &axis)) return false;
    for (int k = 0; k < x->rank; k++) dims[k] = x->dims[k];
    for (int i = 1; i < op->n_operands; i++) {
        const struct ir_type *y = infer_type(op, i);
        if (!infer_rank(m, op, i, x->rank) || !infer_dtype(m, op, i, x->dtype)) return false;
        for (int k = 0; k < x->rank; k++) {
            if (k == axis) dims[k] = dim_add(m->dims, dims[k], y->dims[k]);
            else if (!infer_eq(m, op, dims[k], y->dims[k], "dims off the axis of concat"))
                return false;
            else if (dim_is_const(y->dims[k])) dims[k] = y->dims[k];
        }
    }
    return infer_set(m, op, 0, x->dtype, x->rank, dims);
}

/* Something is there to gather from, unless nothing is gathered: clamped indices need a least
 * element. */
static bool not_empty(struct ir_module *m, struct ir_op *op, const struct dim *d,
                      const struct ir_type *indices)
{
    if (dim_is(ir_type_elems(m, indices), 0)) return true;
    return infer_le(m, op, dim_const(m->dims, 1), d, "elements along the gathered axis");
}

bool infer_gather(struct ir_module *m, struct ir_op *op)
{
    const struct ir_type *x = infer_type(op, 0), *ix = infer_type(op, 1);
    const struct dim *dims[2 * IR_MAX_RANK];
    int axis, n = 0;
    if (!infer_axis(m, op, "axis", x->rank, &axis) || !infer_class(m, op, 1, INFER_INT) ||
        !not_empty(m, op, x->dims[axis], ix))
        return false;
    if (x->enc && axis == x->rank - 1)
        return infer_fail(m, op, DIAG_DTYPE_UNSUPPORTED, "only whole rows can be taken from an encoded constant");
    for (int k = 0; k < axis; k++) dims[n++] = x->dims[k];
    for (int k = 0; k < ix->rank; k++) dims[n++] = ix->dims[k];
    for (int k = axis + 1; k < x->rank; k++) dims[n++] = x->dims[k];
    return infer_set(m, op, 0, x->dtype, n, dims);
}

/* indices (operand 1) has x's rank and off `axis` no more elements than x. */
static bool elements_fit(struct ir_module *m, struct ir_op *op, int axis)
{
    const struct ir_type *x = infer_type(op, 0), *ix = infer_type(op, 1);
    if (!infer_class(m, op, 1, INFER_INT) || !infer_rank(m, op, 1, x->rank)) return false;
    for (int k = 0; k < x->rank; k++)
        if (k != axis && !infer_le(m, op, ix->dims[k], x->dims[k], "dims of indices off the axis"))
            return false;
    return not_empty(m, op, x->dims[axis], ix);
}

bool infer_gather_elements(struct ir_module *m, struct ir_op *op)
{
    const struct ir_type *x = infer_type(op, 0), *ix = infer_type(op, 1);
    int axis;
    return infer_axis(m, op, "axis", x->rank, &axis) && elements_fit(m, op, axis) &&
           infer_set(m, op, 0, x->dtype, ix->rank, ix->dims);
}

/* The constant last dim of indices (operand 1): an index tuple's length, in [1, most]. */
static bool tuple_length(struct ir_module *m, struct ir_op *op, int most, int *out)
{
    const struct ir_type *ix = infer_type(op, 1);
    if (!infer_class(m, op, 1, INFER_INT)) return false;
    if (ix->rank < 1)
        return infer_fail(m, op, DIAG_SHAPE_MISMATCH, "operand 1 must not be a scalar");
    const struct dim *last = ix->dims[ix->rank - 1];
    if (!dim_is_const(last) || last->value < 1 || last->value > most)
        return infer_fail(m, op, DIAG_SHAPE_MISMATCH,
                          "the last dim of operand 1 must be a constant in [1, %d]", most);
    *out = (int)last->value;
    return true;
}

bool infer_gather_nd(struct ir_module *m, struct ir_op *op)
{
    const struct ir_type *x = infer_type(op, 0), *ix = infer_type(op, 1);
    const struct dim *dims[2 * IR_MAX_RANK];
    int64_t batch;
    int tuple, least = x->rank < ix->rank ? x->rank : ix->rank, n = 0;
    if (!infer_int(m, op, "batch_dims", 0, least - 1, 0, &batch)) return false;
    if (!tuple_length(m, op, x->rank - (int)batch, &tuple)) return false;
    for (int k = 0; k < batch; k++)
        if (!infer_eq(m, op, x->dims[k], ix->dims[k], "batch dims")) return false;
    for (int k = 0; k < tuple; k++)
        if (!not_empty(m, op, x->dims[batch + k], ix)) return false;
    for (int k = 0; k < ix->rank - 1; k++) dims[n++] = ix->dims[k];
    for (int k = (int)batch + tuple; k < x->rank; k++) dims[n++] = x->dims[k];
    return infer_set(m, op, 0, x->dtype, n, dims);
}

/* Reductions other than `none` need numbers, or bool for what is defined on it. */
static bool reduction(struct ir_module *m, struct ir_op *op)
{
    const char *r = ir_attr_string(op, "reduction", "none");
    return infer_word(m, op, "reduction", "none add mul min max") &&
           (!strcmp(r, "none") || infer_class(m, op, 0, INFER_NUMBER));
}

bool infer_scatter_elements(struct ir_module *m, struct ir_op *op)
{
    const struct ir_type *x = infer_type(op, 0), *ix = infer_type(op, 1), *up = infer_type(op, 2);
    int axis;
    if (!infer_axis(m, op, "axis", x->rank, &axis) || !reduction(m, op) ||
        !elements_fit(m, op, axis) || !infer_dtype(m, op, 2, x->dtype) ||
        !infer_rank(m, op, 2, x->rank))
        return false;
    for (int k = 0; k < x->rank; k++)
        if (!infer_eq(m, op, ix->dims[k], up->dims[k], "dims of indices and updates")) return false;
    return infer_set(m, op, 0, x->dtype, x->rank, x->dims);
}

bool infer_scatter_nd(struct ir_module *m, struct ir_op *op)
{
    const struct ir_type *x = infer_type(op, 0), *ix = infer_type(op, 1), *up = infer_type(op, 2);
    int tuple;
    if (!reduction(m, op) || !tuple_length(m, op, x->rank, &tuple) ||
        !infer_dtype(m, op, 2, x->dtype) || !infer_rank(m, op, 2, ix->rank - 1 + x->rank - tuple))
        return false;
    for (int k = 0; k < ix->rank - 1; k++)
        if (!infer_eq(m, op, ix->dims[k], up->dims[k], "dims of indices and updates")) return false;
    for (int k = tuple; k < x->rank; k++)
        if (!infer_eq(m, op, x->dims[k], up->dims[ix->rank - 1 + k - tuple],
                      "dims of data and updates"))
            return false;
    for (int k = 0; k < tuple; k++)
        if (!not_empty(m, op, x->dims[k], ix)) return false;
    return infer_set(m, op, 0, x->dtype, x->rank, x->dims);
}
