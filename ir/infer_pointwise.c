// SPDX-License-Identifier: Apache-2.0
/* Inference for pointwise ops and the other ops that keep their operand's shape. */
#include "ir/infer.h"

/* The operands' dtypes from..to are one. */
static bool same_dtypes(struct ir_module *m, struct ir_op *op, int from, int to)
{
    for (int i = from + 1; i <= to; i++)
        if (infer_type(op, i)->dtype != infer_type(op, from)->dtype)
            return infer_fail(m, op, DIAG_DTYPE_MISMATCH,
                              "operands %d and %d must have one element type", from, i);
    return true;
}

/* Sets result 0 to the broadcast of all operands. */
static bool set_broadcast(struct ir_module *m, struct ir_op *op, enum dtype dtype)
{
    const struct dim *dims[IR_MAX_RANK], *joined[IR_MAX_RANK];
    struct ir_type sum = *infer_type(op, 0);
    for (int i = 1; i < op->n_operands; i++) {
        int rank;
        if (!infer_join(m, op, &sum, infer_type(op, i), joined, &rank)) return false;
        for (int k = 0; k < rank; k++) dims[k] = joined[k];
        sum.rank = rank;
        sum.dims = dims;
    }
    return infer_set(m, op, 0, dtype, sum.rank, sum.dims);
}

static bool set_like(struct ir_module *m, struct ir_op *op, enum dtype dtype)
{
    const struct ir_type *x = infer_type(op, 0);
    return infer_set(m, op, 0, dtype, x->rank, x->dims);
}

bool infer_same(struct ir_module *m, struct ir_op *op)
{
    bool flag;
    int axis;
    unsigned classes = op->code == IR_OP_NOT ? INFER_INT | INFER_BOOL : INFER_NUMBER;
    if (!infer_class(m, op, 0, classes)) return false;
    if (op->code == IR_OP_CUM_SUM || op->code == IR_OP_CUM_PROD) {
        if (!infer_axis(m, op, "axis", infer_type(op, 0)->rank, &axis) ||
            !infer_flag(m, op, "exclusive", false, &flag) ||
            !infer_flag(m, op, "reverse", false, &flag))
            return false;
    }
    return set_like(m, op, infer_type(op, 0)->dtype);
}

bool infer_float(struct ir_module *m, struct ir_op *op)
{
    int axis;
    if (!infer_class(m, op, 0, INFER_FLOAT)) return false;
    if ((op->code == IR_OP_SOFTMAX || op->code == IR_OP_LOG_SOFTMAX) &&
        !infer_axis(m, op, "axis", infer_type(op, 0)->rank, &axis))
        return false;
    return set_like(m, op, infer_type(op, 0)->dtype);
}

bool infer_test(struct ir_module *m, struct ir_op *op)
{
    bool flag;
    if (!infer_class(m, op, 0, INFER_FLOAT)) return false;
    if (op->code == IR_OP_ISINF && (!infer_flag(m, op, "negative", true, &flag) ||
                                    !infer_flag(m, op, "positive", true, &flag)))
        return false;
    return set_like(m, op, DT_BOOL);
}

/* Attribute `to`, a dtype that holds numbers or truth values. */
static bool target_dtype(struct ir_module *m, struct ir_op *op, enum dtype *to)
{
    *to = (enum dtype)ir_attr_int(op, "to", DT_NONE);
    if (dtype_bits(*to) == 0)
        return infer_fail(m, op, DIAG_DTYPE_UNSUPPORTED, "cannot convert to %s", dtype_name(*to));
    return true;
}

bool infer_cast(struct ir_module *m, struct ir_op *op)
{
    enum dtype to;
    bool saturate;
    return infer_class(m, op, 0, INFER_NUMBER | INFER_BOOL) && target_dtype(m, op, &to) &&
           infer_flag(m, op, "saturate", true, &saturate) && set_like(m, op, to);
}

bool infer_bitcast(struct ir_module *m, struct ir_op *op)
{
    enum dtype to, from = infer_type(op, 0)->dtype;
    if (!infer_class(m, op, 0, INFER_NUMBER | INFER_BOOL) || !target_dtype(m, op, &to))
        return false;
    if (dtype_bits(from) != dtype_bits(to))
        return infer_fail(m, op, DIAG_DTYPE_MISMATCH, "%s has %u bits, %s has %u", dtype_name(from),
                          dtype_bits(from), dtype_name(to), dtype_bits(to));
    return set_like(m, op, to);
}

static unsigned binary_classes(enum ir_opcode code)
{
    switch (code) {
    case IR_OP_AND:
    case IR_OP_OR:
    case IR_OP_XOR: return INFER_INT | INFER_BOOL;
    case IR_OP_SHL:
    case IR_OP_SHR: return INFER_INT;
    default: return INFER_NUMBER;
    }
}

bool infer_binary(struct ir_module *m, struct ir_op *op)
{
    return infer_class(m, op, 0, binary_classes(op->code)) && same_dtypes(m, op, 0, 1) &&
           set_broadcast(m, op, infer_type(op, 0)->dtype);
}

bool infer_pow(struct ir_module *m, struct ir_op *op)
{
    return infer_class(m, op, 0, INFER_NUMBER) && infer_class(m, op, 1, INFER_NUMBER) &&
           set_broadcast(m, op, infer_type(op, 0)->dtype);
}

bool infer_compare(struct ir_module *m, struct ir_op *op)
{
    bool equality = op->code == IR_OP_EQ || op->code == IR_OP_NE;
    return infer_class(m, op, 0, equality ? INFER_NUMBER | INFER_BOOL : INFER_NUMBER) &&
           same_dtypes(m, op, 0, 1) && set_broadcast(m, op, DT_BOOL);
}

bool infer_select(struct ir_module *m, struct ir_op *op)
{
    return infer_dtype(m, op, 0, DT_BOOL) && same_dtypes(m, op, 1, 2) &&
           set_broadcast(m, op, infer_type(op, 1)->dtype);
}
