// SPDX-License-Identifier: Apache-2.0
/* NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss. */
#include "compiler/import/onnx_int.h"

/* -x[n, target[n, d..], d..] with weights and ignored targets; x [N, C, d..] holds log
 * probabilities. */
static struct ir_value *loss(struct onode *n, struct ir_value *x, struct ir_value *target,
                             struct ir_value *weight)
{
    static const char *const names[] = {"mean", "sum", "none"};
    int reduction = at_choice(n, "reduction", 0, 3, names);
    bool ignores = at_has(n, "ignore_index");
    int64_t ignored = at_int(n, "ignore_index", 0);
    if (reduction < 0 || !on_rank(n, x, 2, IR_MAX_RANK, "the input")) return NULL;
    if (rank_of(target) != rank_of(x) - 1) {
        on_fail(n, DIAG_SHAPE_MISMATCH, "%s: the target has rank %d", n->row->op, rank_of(target));
        return NULL;
    }
    target = e_cast(n, target, DT_I64);
    struct ir_value *skip =
        ignores ? e_bin(n, IR_OP_EQ, target, e_like(n, target, (double)ignored)) : NULL;
    struct ir_value *at = skip ? e_sel(n, skip, e_like(n, target, 0), target) : target;
    struct ir_attr axis = ir_a_int("axis", 1);
    struct ir_value *operands[2] = {x, e_unsqueeze(n, at, 1)};
    if (!operands[1]) return NULL;
    struct ir_value *picked =
        e_squeeze(n, e_op(n, IR_OP_GATHER_ELEMENTS, 2, operands, 1, &axis, 1, 0), 1);
    struct ir_value *y = e_un(n, IR_OP_NEG, picked), *w = NULL;
    if (weight) w = ir_build_gather(n->b, e_cast(n, weight, x->type.dtype), at, 0);
    else if (skip) w = e_like(n, x, 1);
    if (skip) w = e_sel(n, skip, e_like(n, x, 0), w);
    if (w) y = e_mul(n, y, w);
    int64_t axes[IR_MAX_RANK];
    int c = rank_of(target);
    for (int i = 0; i < c; i++) axes[i] = i;
    if (!y || reduction == 2) return y;
    if (reduction == 0 && !w) return e_mean(n, y, c, axes, false);
    struct ir_value *sum = e_red(n, IR_OP_REDUCE_SUM, y, c, axes, false);
    return reduction == 1 ? sum
                          : e_div(n, sum,
                                  e_red(n, IR_OP_REDUCE_SUM,
                                        e_broadcast(n, w, c, target->type.dims), c, axes, false));
}

bool onnx_nllloss(struct onode *n)
{
    struct ir_value *x = on_in(n, 0);
    return on_out(n, 0, e_cast(n, loss(n, e_wide(n, x), on_in(n, 1), on_in(n, 2)), x->type.dtype));
}

bool onnx_crossentropy(struct onode *n)
{
    struct ir_value *x = on_in(n, 0);
    if (!on_rank(n, x, 2, IR_MAX_RANK, "the input")) return false;
    struct ir_attr axis = ir_a_int("axis", 1);
    struct ir_value *log = e_op1(n, IR_OP_LOG_SOFTMAX, e_wide(n, x), 1, &axis);
    if (on_wants_out(n, 1) && !on_out(n, 1, e_cast(n, log, x->type.dtype))) return false;
    return on_out(n, 0,
                  e_cast(n, log ? loss(n, log, on_in(n, 1), on_in(n, 2)) : NULL, x->type.dtype));
}
