// SPDX-License-Identifier: Apache-2.0
#include "passes/flops.h"

#include "ir/op.h"

static const struct dim *times(struct ir_module *m, const struct dim *a, const struct dim *b) { return dim_mul(m->dims, a, b); }

static const struct dim *elems(struct ir_module *m, const struct ir_value *v) { return ir_type_elems(m, &v->type); }

/* Product of w's dims from `first` on: what one output element of a convolution sums over. */
static const struct dim *taps(struct ir_module *m, const struct ir_value *w, int first)
{
    const struct dim *n = dim_const(m->dims, 1);
    for (int i = first; i < w->type.rank; i++) n = times(m, n, w->type.dims[i]);
    return n;
}

static const struct dim *window(struct ir_module *m, const struct ir_op *op)
{
    int n;
    const int64_t *kernel = ir_attr_ints(op, "kernel", &n);
    const struct dim *p = dim_const(m->dims, 1);
    for (int i = 0; i < n; i++) p = dim_mulc(m->dims, p, kernel[i]);
    return p;
}

/* Every step multiplies x and the state by the weights of all gates. */
static const struct dim *recurrent(struct ir_module *m, const struct ir_op *op)
{
    const struct ir_type *x = &ir_operand(op, 0)->type;
    const struct dim *weights = dim_add(m->dims, elems(m, ir_operand(op, 1)), elems(m, ir_operand(op, 2)));
    return dim_mulc(m->dims, times(m, times(m, x->dims[0], x->dims[1]), weights), 2);
}

static const struct dim *op_flops(struct ir_module *m, const struct ir_op *op)
{
    struct dim_ctx *dc = m->dims;
    const struct dim *out = op->n_results ? elems(m, ir_result(op, 0)) : dim_const(dc, 0);
    const struct ir_value *x = ir_operand(op, 0), *w = ir_operand(op, 1);
    switch (op->code) {
    case IR_OP_MATMUL: {
        bool ta = ir_attr_int(op, "trans_a", 0);
        return dim_mulc(dc, times(m, out, x->type.dims[x->type.rank - (ta ? 2 : 1)]), 2);
    }
    case IR_OP_QMATMUL_INT:
    case IR_OP_QMATMUL: return dim_mulc(dc, times(m, out, x->type.dims[x->type.rank - 1]), 2);
    case IR_OP_CONV: return dim_mulc(dc, times(m, out, taps(m, w, 1)), 2);
    case IR_OP_CONV_TRANSPOSE: return dim_mulc(dc, times(m, elems(m, x), taps(m, w, 1)), 2);
    case IR_OP_POOL_MAX: case IR_OP_POOL_AVG: case IR_OP_POOL_SUM: return times(m, out, window(m, op));
    case IR_OP_SOFTMAX: case IR_OP_LOG_SOFTMAX: return dim_mulc(dc, out, 5);
    case IR_OP_LAYER_NORM: return dim_mulc(dc, out, 8);
    case IR_OP_RMS_NORM: return dim_mulc(dc, out, 4);
    case IR_OP_LSTM: case IR_OP_GRU: case IR_OP_RNN: return recurrent(m, op);
    case IR_OP_DFT: return dim_mulc(dc, times(m, out, x->type.dims[ir_attr_int(op, "axis", 0)]), 4);
    case IR_OP_RESIZE: case IR_OP_GRID_SAMPLE: case IR_OP_ROI_ALIGN: return dim_mulc(dc, out, 8);
    default: break;
    }
    if (ir_op_traits(op) & IR_T_RED) return elems(m, x);
    bool pointwise = (ir_op_traits(op) & IR_T_PW) && x && dtype_is_float(x->type.dtype);
    return pointwise ? out : dim_const(dc, 0);
}

const struct dim *group_flops(struct ir_module *m, const struct ir_block *body)
{
    const struct dim *sum = dim_const(m->dims, 0);
    for (const struct ir_op *op = body->first; op; op = op->next) sum = dim_add(m->dims, sum, op_flops(m, op));
    return sum;
}
