// SPDX-License-Identifier: Apache-2.0
/* Inference for constants and structure. */
#include "ir/encoding.h"
#include "ir/infer.h"

bool infer_none(struct ir_module *m, struct ir_op *op)
{
    (void)m;
    (void)op;
    return true;
}

bool infer_check_op(struct ir_module *m, struct ir_op *op)
{
    static const char *const sides[] = {"a", "b"};
    bool is_le;
    for (int i = 0; i < 2; i++) {
        int n;
        const struct dim *const *d = ir_attr_dims(op, sides[i], &n);
        if (!d || n != 1) return infer_fail(m, op, DIAG_IR_VERIFY, "attribute %s is not one dim", sides[i]);
        if (d[0]->kind == DIM_OVERFLOW) return infer_fail(m, op, DIAG_IR_VERIFY, "dim %s overflows", sides[i]);
    }
    return infer_flag(m, op, "is_le", false, &is_le);
}

bool infer_probe(struct ir_module *m, struct ir_op *op)
{
    enum dtype t = ir_operand(op, 0)->type.dtype;
    int64_t base;
    if (!infer_int(m, op, "base", 0, INT32_MAX, 0, &base)) return false;
    return t == DT_F32 || infer_fail(m, op, DIAG_IR_VERIFY, "a probe looks at f32, not at %s", dtype_name(t));
}

bool infer_constant(struct ir_module *m, struct ir_op *op)
{
    const struct ir_const *c = ir_attr_const(op, "value");
    int64_t elems;
    size_t want;
    if (!ir_type_static_elems(&c->type, &elems))
        return infer_fail(m, op, DIAG_IR_VERIFY, "constant @%s must have constant dims", c->name);
    size_t element = dtype_bytes(c->type.dtype);
    if (c->type.enc && (c->splat || !ir_type_bytes(&c->type, &want) || want != c->n_bytes))
        return infer_fail(m, op, DIAG_IR_VERIFY, "constant @%s: %zu bytes are not the blocks of its type",
                          c->name, c->n_bytes);
    if (element && !c->type.enc &&
        (!size_mul(c->splat ? 1 : (size_t)elems, element, &want) || want != c->n_bytes))
        return infer_fail(m, op, DIAG_IR_VERIFY,
                          "constant @%s holds %zu bytes, which does not fit its type", c->name,
                          c->n_bytes);
    op->results[0].type = c->type;
    return true;
}

bool infer_dimvec(struct ir_module *m, struct ir_op *op)
{
    int n;
    bool scalar;
    const struct dim *const *dims = ir_attr_dims(op, "dims", &n);
    if (!infer_flag(m, op, "scalar", false, &scalar)) return false;
    if (scalar && n != 1)
        return infer_fail(m, op, DIAG_IR_VERIFY, "a scalar takes one dim, not %d", n);
    for (int i = 0; i < n; i++)
        if (dims[i]->kind == DIM_OVERFLOW)
            return infer_fail(m, op, DIAG_IR_VERIFY, "dim %d overflows", i);
    const struct dim *length = dim_const(m->dims, n);
    return infer_set(m, op, 0, DT_I64, scalar ? 0 : 1, &length);
}

bool infer_iota(struct ir_module *m, struct ir_op *op)
{
    const struct dim *dims[IR_MAX_RANK];
    int rank, axis;
    enum dtype type = (enum dtype)ir_attr_int(op, "type", DT_NONE);
    if (!dtype_is_int(type) && !dtype_is_float(type))
        return infer_fail(m, op, DIAG_DTYPE_UNSUPPORTED, "cannot count in %s", dtype_name(type));
    return infer_dims(m, op, "dims", -1, dims, &rank) && infer_axis(m, op, "axis", rank, &axis) &&
           infer_set(m, op, 0, type, rank, dims);
}

/* The yield that ends region r, with as many operands as the op has results. */
static struct ir_op *find_yield(struct ir_module *m, struct ir_op *op, int r)
{
    struct ir_op *last = op->regions[r]->last;
    if (!last || last->code != IR_OP_YIELD) {
        infer_fail(m, op, DIAG_IR_VERIFY, "region %d does not end in yield", r);
        return NULL;
    }
    if (last->n_operands != op->n_results) {
        infer_fail(m, op, DIAG_IR_VERIFY, "region %d yields %d values for %d results", r,
                   last->n_operands, op->n_results);
        return NULL;
    }
    for (int i = 0; i < last->n_operands; i++) {
        if (last->operands[i].value) continue;
        infer_fail(m, op, DIAG_IR_VERIFY, "region %d yields nothing for result %d", r, i);
        return NULL;
    }
    return last;
}

bool infer_if(struct ir_module *m, struct ir_op *op)
{
    const struct ir_type *cond = infer_type(op, 0);
    int64_t elems;
    if (!infer_dtype(m, op, 0, DT_BOOL)) return false;
    if (!ir_type_static_elems(cond, &elems) || elems != 1)
        return infer_fail(m, op, DIAG_SHAPE_MISMATCH, "the condition must have one element");
    struct ir_op *yields[2];
    for (int r = 0; r < 2; r++) {
        if (op->regions[r]->n_args)
            return infer_fail(m, op, DIAG_IR_VERIFY, "region %d must not have arguments", r);
        if (!(yields[r] = find_yield(m, op, r))) return false;
    }
    for (int i = 0; i < op->n_results; i++) {
        const struct ir_type *a = infer_type(yields[0], i), *b = infer_type(yields[1], i);
        if (!ir_type_equal(a, b))
            return infer_fail(m, op, DIAG_SHAPE_MISMATCH,
                              "both regions must yield the same type for result %d", i);
        op->results[i].type = *a;
    }
    return true;
}

bool infer_group(struct ir_module *m, struct ir_op *op)
{
    struct ir_block *b = op->regions[0];
    if (b->n_args != op->n_operands)
        return infer_fail(m, op, DIAG_IR_VERIFY, "the region has %d arguments for %d operands",
                          b->n_args, op->n_operands);
    for (int i = 0; i < b->n_args; i++)
        if (!ir_type_equal(&b->args[i]->type, infer_type(op, i)))
            return infer_fail(m, op, DIAG_IR_VERIFY,
                              "argument %d of the region does not have its operand's type", i);
    struct ir_op *yield = find_yield(m, op, 0);
    if (!yield) return false;
    for (int i = 0; i < op->n_results; i++) op->results[i].type = *infer_type(yield, i);
    return true;
}
