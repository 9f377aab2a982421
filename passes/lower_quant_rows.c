// SPDX-License-Identifier: Apache-2.0
/*
 * quant_rows: a slice is one row: its greatest magnitude, then group by group the steps and their sum. A step is found by adding
 * 1.5 * 2^23, whose f32 neighbours lie 1 apart: the addition rounds to nearest even and leaves the integer in the low bits.
 */
#include "passes/lower.h"

#define MAGIC 12582912.0 /* 1.5 * 2^23 */

enum lower_result lower_quant_rows(struct lower_ctx *l)
{
    const struct ir_op *op = l->anchor;
    if (!op || op->code != IR_OP_QUANT_ROWS || l->yield->n_operands != 3) return LOWER_NOT_MINE;
    struct expr_ctx *e = &l->e;
    struct lp_builder *b = &e->b;
    const struct ir_value *x = ir_operand(op, 0);
    int last = x->type.rank - 1;
    int64_t k = x->type.dims[last]->value, group = ir_attr_int(op, "group", 4);
    const struct dim *rows = dim_const(l->m->dims, 1);
    for (int i = 0; i < last; i++) rows = dim_mul(l->m->dims, rows, x->type.dims[i]);
    lower_set_slices(l, rows);
    struct lp_value *idx[IR_MAX_RANK], *at[IR_MAX_RANK];
    expr_delinear(e, lower_slice(l), last, x->type.dims, idx);
    for (int i = 0; i < last; i++) at[i] = idx[i];
    struct lp_type f = lp_scalar(DT_F32);
    struct lp_value *most = lp_const_f(b, f, 0);
    struct lp_op *scan = expr_for_begin(e, LP_LOOP_VECTOR, e->zero, lp_index(b, k), 1, 1, &most);
    idx[last] = scan->regions[0]->args[0];
    most = lp_binary(b, LP_OP_MAX, scan->regions[0]->args[1], lp_unary(b, LP_OP_ABS, expr_at(e, x, idx)));
    expr_for_end(e, scan, &most);
    most = scan->results[0];
    struct lp_value *top = lp_const_f(b, f, (double)ir_attr_int(op, "max", 1)), *zero = lp_const_f(b, f, 0);
    struct lp_value *tiny = lp_binary(b, LP_OP_LT, most, lp_const_f(b, f, 0x1p-100));
    struct lp_value *per_step = lp_select(b, tiny, zero, lp_binary(b, LP_OP_DIV, top, most));
    at[last] = e->zero;
    lp_store(b, lower_result_buf(l, 2), at, lp_binary(b, LP_OP_DIV, most, top));
    struct lp_op *groups = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, lp_index(b, k / group), 1, 0, NULL);
    struct lp_value *g = groups->regions[0]->args[0], *lo = lp_binary(b, LP_OP_MUL, g, lp_index(b, group));
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_VECTOR, lo, lp_binary(b, LP_OP_ADD, lo, lp_index(b, group)), 1, 1, &zero);
    idx[last] = loop->regions[0]->args[0];
    struct lp_value *magic = lp_const_f(b, f, MAGIC);
    struct lp_value *shifted = lp_binary(b, LP_OP_ADD, lp_binary(b, LP_OP_MUL, expr_at(e, x, idx), per_step), magic);
    lp_store(b, lower_result_buf(l, 0), idx, lp_cast(b, lp_bitcast(b, shifted, DT_I32), DT_I16));
    struct lp_value *sum = lp_binary(b, LP_OP_ADD, loop->regions[0]->args[1], lp_binary(b, LP_OP_SUB, shifted, magic));
    expr_for_end(e, loop, &sum);
    at[last] = g;
    lp_store(b, lower_result_buf(l, 1), at, loop->results[0]);
    expr_for_end(e, groups, NULL);
    l->k->schedule = "quant-rows";
    return LOWER_DONE;
}
