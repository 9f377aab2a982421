// SPDX-License-Identifier: Apache-2.0
/*
 * topk: a slice is one row. Each of the k results is the best element that comes after the previous result in the order
 * (value, then lower index first; NaN is the greatest value): O(n k), no scratch memory, vector-free; meant for small k.
 */
#include <math.h>
#include <string.h>

#include "passes/lower.h"

/* a comes before b: by value in the wanted direction, then by index. NaN counts as greater than every number. */
static struct lp_value *before(struct expr_ctx *e, bool largest, struct lp_value *va, struct lp_value *ia, struct lp_value *vb,
                               struct lp_value *ib)
{
    struct lp_builder *b = &e->b;
    struct lp_value *less = lp_binary(b, largest ? LP_OP_GT : LP_OP_LT, va, vb), *equal = lp_binary(b, LP_OP_EQ, va, vb);
    if (dtype_is_float(va->type.dtype)) {
        struct lp_value *na = lp_binary(b, LP_OP_NE, va, va), *nb = lp_binary(b, LP_OP_NE, vb, vb);
        struct lp_value *only_a = lp_binary(b, LP_OP_AND, na, lp_unary(b, LP_OP_NOT, nb));
        struct lp_value *only_b = lp_binary(b, LP_OP_AND, nb, lp_unary(b, LP_OP_NOT, na));
        less = lp_binary(b, LP_OP_OR, less, largest ? only_a : only_b);
        equal = lp_binary(b, LP_OP_OR, equal, lp_binary(b, LP_OP_AND, na, nb));
    }
    return lp_binary(b, LP_OP_OR, less, lp_binary(b, LP_OP_AND, equal, lp_binary(b, LP_OP_LT, ia, ib)));
}

enum lower_result lower_topk(struct lower_ctx *l)
{
    const struct ir_op *op = l->anchor;
    if (!op || op->code != IR_OP_TOPK || l->yield->n_operands != 2 || ir_operand(l->yield, 0) != &op->results[0])
        return LOWER_NOT_MINE;
    struct expr_ctx *e = &l->e;
    struct lp_builder *b = &e->b;
    const struct ir_value *x = ir_operand(op, 0);
    const struct ir_type *t = &x->type, *rt = &op->results[0].type;
    int axis = (int)ir_attr_int(op, "axis", 0);
    bool largest = ir_attr_int(op, "largest", 1);
    const struct dim *outer[IR_MAX_RANK], *slices = dim_const(l->m->dims, 1);
    struct lp_value *coord[IR_MAX_RANK], *idx[IR_MAX_RANK], *out[IR_MAX_RANK];
    int n_outer = 0;
    for (int i = 0; i < t->rank; i++)
        if (i != axis) outer[n_outer++] = t->dims[i], slices = dim_mul(l->m->dims, slices, t->dims[i]);
    lower_set_slices(l, slices);
    expr_delinear(e, lower_slice(l), n_outer, outer, coord);
    for (int i = 0, k = 0; i < t->rank; i++)
        if (i != axis) idx[i] = out[i] = coord[k++];
    /* The previous result starts before everything: index -1 and "no value yet". */
    bool is_float = dtype_is_float(t->dtype);
    struct lp_type s = lp_scalar(t->dtype);
    struct lp_value *zero = is_float ? lp_const_f(b, s, 0) : lp_const_i(b, s, 0), *none = lp_index(b, -1);
    struct lp_value *init[] = {zero, none};
    struct lp_op *outer_loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, expr_dim(e, rt->dims[axis]), 1, 2, init);
    struct lp_value *rank_no = outer_loop->regions[0]->args[0];
    struct lp_value *pv = outer_loop->regions[0]->args[1], *pi = outer_loop->regions[0]->args[2];
    struct lp_value *start[] = {zero, none};
    struct lp_op *scan = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, expr_dim(e, t->dims[axis]), 1, 2, start);
    struct lp_value *i = scan->regions[0]->args[0], *bv = scan->regions[0]->args[1], *bi = scan->regions[0]->args[2];
    idx[axis] = i;
    struct lp_value *v = expr_at(e, x, idx);
    struct lp_value *first = lp_binary(b, LP_OP_LT, pi, e->zero), *no_best = lp_binary(b, LP_OP_LT, bi, e->zero);
    struct lp_value *eligible = lp_binary(b, LP_OP_OR, first, before(e, largest, pv, pi, v, i));
    struct lp_value *better = lp_binary(b, LP_OP_OR, no_best, before(e, largest, v, i, bv, bi));
    struct lp_value *take = lp_binary(b, LP_OP_AND, eligible, better);
    struct lp_value *next[] = {lp_select(b, take, v, bv), lp_select(b, take, i, bi)};
    expr_for_end(e, scan, next);
    out[axis] = rank_no;
    lp_store(b, lower_result_buf(l, 0), out, scan->results[0]);
    lp_store(b, lower_result_buf(l, 1), out, scan->results[1]);
    struct lp_value *carry[] = {scan->results[0], scan->results[1]};
    expr_for_end(e, outer_loop, carry);
    l->k->schedule = "topk";
    return LOWER_DONE;
}
