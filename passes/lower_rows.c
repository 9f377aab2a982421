// SPDX-License-Identifier: Apache-2.0
/*
 * Row schedule: softmax, log-softmax and the norms along the last axis. A slice is one row: its statistics in vector
 * loops, then one pass that stores the row through the group's epilogue. Producers of the row are inlined and recomputed in each pass;
 * a plain softmax writes exp(x - max) to the result first and scales it in place, so that each exponential is taken once.
 */
#include <math.h>
#include <string.h>

#include "passes/lower.h"

/*
 * Longest partial sum. Where one of 18,710 exponentials is 1 and the others are 1e-8, a lane that holds the 1 loses the
 * others that follow: 1.7e-5 of the sum in one piece.
 */
#define SUM_PART 512

struct row {
    struct lower_ctx *l;
    const struct ir_value *x;
    enum dtype acc;
    struct lp_value *idx[IR_MAX_RANK]; /* coordinates of the row; the last one moves */
    struct lp_value *n;                /* elements of the row */
    struct lp_value *a, *b;            /* statistics: max and 1/sum or log(sum); mean and 1/deviation */
};

static bool is_row_op(const struct ir_op *op)
{
    if (!op) return false;
    int last = op->results[0].type.rank - 1;
    switch (op->code) {
    case IR_OP_SOFTMAX: case IR_OP_LOG_SOFTMAX: return ir_attr_int(op, "axis", last) == last;
    case IR_OP_LAYER_NORM: case IR_OP_RMS_NORM: return ir_attr_int(op, "axis", last) == last;
    default: return false;
    }
}

/* Folds fn(x[j]) over j in [lo, hi). */
static struct lp_value *fold_range(struct row *r, enum lp_opcode op, double init, struct lp_value *lo, struct lp_value *hi,
                                   struct lp_value *(*fn)(struct row *, struct lp_value *x, struct lp_value *j))
{
    struct expr_ctx *e = &r->l->e;
    int last = r->x->type.rank - 1;
    struct lp_value *acc = lp_const_f(&e->b, lp_scalar(r->acc), init);
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_VECTOR, lo, hi, 1, 1, &acc);
    struct lp_value *j = r->idx[last] = loop->regions[0]->args[0];
    struct lp_value *v = lp_cast(&e->b, expr_at(e, r->x, r->idx), r->acc);
    if (fn) v = fn(r, v, j);
    v = lp_binary(&e->b, op, loop->regions[0]->args[1], v);
    expr_for_end(e, loop, &v);
    return loop->results[0];
}

/* Folds fn(x[j]) over the row; sums as partial sums of SUM_PART. */
static struct lp_value *fold_row(struct row *r, enum lp_opcode op, double init,
                                 struct lp_value *(*fn)(struct row *, struct lp_value *x, struct lp_value *j))
{
    struct expr_ctx *e = &r->l->e;
    struct lp_builder *b = &e->b;
    const struct dim *n = r->x->type.dims[r->x->type.rank - 1];
    if (op != LP_OP_ADD || n->hi <= SUM_PART) return fold_range(r, op, init, e->zero, r->n, fn);
    struct lp_value *acc = lp_const_f(b, lp_scalar(r->acc), 0);
    struct lp_op *parts = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, r->n, SUM_PART, 1, &acc);
    struct lp_value *lo = parts->regions[0]->args[0];
    struct lp_value *hi = lp_binary(b, LP_OP_MIN, lp_binary(b, LP_OP_ADD, lo, lp_index(b, SUM_PART)), r->n);
    acc = lp_binary(b, LP_OP_ADD, parts->regions[0]->args[1], fold_range(r, op, init, lo, hi, fn));
    expr_for_end(e, parts, &acc);
    return parts->results[0];
}

static struct lp_value *minus_a(struct row *r, struct lp_value *x) { return lp_binary(&r->l->e.b, LP_OP_SUB, x, r->a); }

static struct lp_value *exp_minus(struct row *r, struct lp_value *x, struct lp_value *j)
{
    (void)j;
    return lp_unary(&r->l->e.b, LP_OP_EXP, minus_a(r, x));
}

static struct lp_value *exp_minus_stored(struct row *r, struct lp_value *x, struct lp_value *j)
{
    struct lp_value *v = exp_minus(r, x, j);
    lp_store(&r->l->e.b, lower_result_buf(r->l, 0), r->idx, v);
    return v;
}

static struct lp_value *square(struct row *r, struct lp_value *x, struct lp_value *j)
{
    (void)j;
    return lp_binary(&r->l->e.b, LP_OP_MUL, x, x);
}

static struct lp_value *square_minus(struct row *r, struct lp_value *x, struct lp_value *j)
{
    return square(r, minus_a(r, x), j);
}

/* The anchor's element at idx, from the statistics. */
static struct lp_value *row_element(void *ctx, struct lp_value *const *idx)
{
    struct row *r = ctx;
    struct lower_ctx *l = r->l;
    struct expr_ctx *e = &l->e;
    const struct ir_op *op = l->anchor;
    const struct ir_type *t = &op->results[0].type;
    struct lp_value *v = lp_cast(&e->b, expr_at(e, r->x, idx), r->acc);
    switch (op->code) {
    case IR_OP_SOFTMAX: v = lp_binary(&e->b, LP_OP_MUL, lp_unary(&e->b, LP_OP_EXP, minus_a(r, v)), r->b); break;
    case IR_OP_LOG_SOFTMAX: v = lp_binary(&e->b, LP_OP_SUB, minus_a(r, v), r->b); break;
    case IR_OP_LAYER_NORM: v = lp_binary(&e->b, LP_OP_MUL, minus_a(r, v), r->b); break;
    default: v = lp_binary(&e->b, LP_OP_MUL, v, r->b); break;
    }
    v = lp_cast(&e->b, v, t->dtype);
    for (int i = 1; i < op->n_operands; i++) { /* scale, bias of the norms */
        const struct ir_value *w = ir_operand(op, i);
        if (!w) continue;
        struct lp_value *sub[IR_MAX_RANK];
        expr_broadcast_idx(e, &w->type, t->rank, t->dims, idx, sub);
        v = lp_binary(&e->b, i == 1 ? LP_OP_MUL : LP_OP_ADD, v, lp_cast(&e->b, expr_at(e, w, sub), t->dtype));
    }
    return v;
}

static void statistics(struct row *r, bool store_exp)
{
    struct expr_ctx *e = &r->l->e;
    const struct ir_op *op = r->l->anchor;
    struct lp_type s = lp_scalar(r->acc);
    if (op->code == IR_OP_SOFTMAX || op->code == IR_OP_LOG_SOFTMAX) {
        r->a = fold_row(r, LP_OP_MAX, -(double)INFINITY, NULL);
        struct lp_value *sum = fold_row(r, LP_OP_ADD, 0, store_exp ? exp_minus_stored : exp_minus);
        if (op->code == IR_OP_SOFTMAX) r->b = lp_binary(&e->b, LP_OP_DIV, lp_const_f(&e->b, s, 1), sum);
        else r->b = lp_unary(&e->b, LP_OP_LOG, sum);
        return;
    }
    struct lp_value *n = lp_cast(&e->b, r->n, r->acc), *var;
    if (op->code == IR_OP_LAYER_NORM) {
        r->a = lp_binary(&e->b, LP_OP_DIV, fold_row(r, LP_OP_ADD, 0, NULL), n);
        var = fold_row(r, LP_OP_ADD, 0, square_minus);
    } else {
        var = fold_row(r, LP_OP_ADD, 0, square);
    }
    struct lp_value *eps = lp_const_f(&e->b, s, ir_attr_float(op, "eps", 1e-5));
    struct lp_value *dev = lp_unary(&e->b, LP_OP_SQRT, lp_binary(&e->b, LP_OP_ADD, lp_binary(&e->b, LP_OP_DIV, var, n), eps));
    r->b = lp_binary(&e->b, LP_OP_DIV, lp_const_f(&e->b, s, 1), dev);
}

enum lower_result lower_rows(struct lower_ctx *l)
{
    if (!is_row_op(l->anchor) || l->yield->n_operands != 1) return LOWER_NOT_MINE;
    const struct ir_value *root = ir_operand(l->yield, 0);
    const struct ir_type *t = &l->anchor->results[0].type;
    if (root->type.rank != t->rank || !dtype_is_float(t->dtype)) return LOWER_NOT_MINE;
    for (int i = 0; i < t->rank; i++)
        if (root->type.dims[i] != t->dims[i]) return LOWER_NOT_MINE;
    struct expr_ctx *e = &l->e;
    int last = t->rank - 1;
    struct row r = {.l = l, .x = ir_operand(l->anchor, 0), .acc = t->dtype == DT_F64 ? DT_F64 : DT_F32, .n = expr_dim(e, t->dims[last])};
    const struct dim *rows = dim_const(l->m->dims, 1);
    for (int i = 0; i < last; i++) rows = dim_mul(l->m->dims, rows, t->dims[i]);
    lower_set_slices(l, rows);
    expr_delinear(e, lower_slice(l), last, t->dims, r.idx);
    bool in_place = l->anchor->code == IR_OP_SOFTMAX && root == &l->anchor->results[0] && t->dtype == r.acc;
    statistics(&r, in_place);
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_VECTOR, e->zero, r.n, 1, 0, NULL);
    r.idx[last] = loop->regions[0]->args[0];
    struct lp_value *v;
    if (in_place) {
        v = lp_binary(&e->b, LP_OP_MUL, lp_load(&e->b, lower_result_buf(l, 0), r.idx), r.b);
    } else {
        expr_override(e, &l->anchor->results[0], row_element, &r);
        v = expr_at(e, root, r.idx);
    }
    lp_store(&e->b, lower_result_buf(l, 0), r.idx, v);
    expr_for_end(e, loop, NULL);
    l->k->schedule = "rows";
    return LOWER_DONE;
}
