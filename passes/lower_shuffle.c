// SPDX-License-Identifier: Apache-2.0
/*
 * A transpose whose result has a few elements last, each from another row of the operand: the shuffle of channels between groups.
 *
 *   x[.., G, C] -> y[.., C, G]       G in 2..8, any axes in front
 *
 * Tiles of G rows by a vector of columns are interleaved in registers and stored as they lie, where a walk over either side alone
 * would gather or scatter. The last tile of a row begins where it ends with it, and so stores some elements again.
 */
#include "passes/lower.h"

#define MAX_GROUPS 8

struct shuffle {
    const struct ir_type *x, *y;
    const int64_t *perm;
    int xb;
    int64_t groups, columns;
};

static bool setup(const struct lower_ctx *l, struct shuffle *s)
{
    const struct ir_op *op = l->body->first;
    int n;
    if (l->level->gpu || op->code != IR_OP_TRANSPOSE || op->next != l->yield || l->yield->n_operands != 1 || l->pitch) return false;
    s->x = &ir_operand(op, 0)->type, s->y = &op->results[0].type, s->perm = ir_attr_ints(op, "perm", &n);
    s->xb = lower_operand_of(l, ir_operand(op, 0));
    if (s->xb < 0 || n < 2 || (s->y->dtype != DT_F32 && s->y->dtype != DT_I32)) return false;
    const struct dim *g = s->y->dims[n - 1], *c = s->y->dims[n - 2];
    if (s->perm[n - 2] != n - 1 || !dim_is_const(g) || !dim_is_const(c)) return false;
    s->groups = g->value, s->columns = c->value;
    return s->groups >= 2 && s->groups <= MAX_GROUPS && s->columns >= l->level->vector_bytes / 4;
}

/* y's last two axes as one. */
static void set_flat_rows(struct lower_ctx *l, const struct shuffle *s)
{
    struct lp_buf *b = &l->k->bufs.v[lower_result_buf(l, 0)];
    const struct dim **dims = arena_dup(&l->k->arena, b->dims, (size_t)b->rank * sizeof *dims);
    const struct dim **strides = arena_dup(&l->k->arena, b->strides, (size_t)b->rank * sizeof *strides);
    dims[b->rank - 2] = dim_const(l->m->dims, s->groups * s->columns), strides[b->rank - 2] = strides[b->rank - 1];
    b->rank--, b->dims = dims, b->strides = strides;
}

enum lower_result lower_shuffle(struct lower_ctx *l)
{
    struct shuffle s = {0};
    if (!setup(l, &s)) return LOWER_NOT_MINE;
    struct expr_ctx *e = &l->e;
    struct lp_builder *b = &e->b;
    int rank = s.y->rank, lanes = l->level->vector_bytes / 4, outer = rank - 2, loops = outer > 1 ? outer - 1 : outer;
    struct lp_value *at[IR_MAX_RANK] = {NULL}, *from[IR_MAX_RANK];
    const struct dim *slices = dim_const(l->m->dims, 1);
    for (int i = 0; i < loops; i++) slices = dim_mul(l->m->dims, slices, s.y->dims[i]);
    lower_set_slices(l, slices);
    expr_delinear(e, lower_slice(l), loops, s.y->dims, at);
    set_flat_rows(l, &s);
    struct lp_op *rows = NULL;
    if (loops < outer) {
        rows = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, expr_dim(e, s.y->dims[loops]), 1, 0, NULL);
        at[loops] = rows->regions[0]->args[0];
    }
    struct lp_op *tiles = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, lp_index(b, s.columns), lanes, 0, NULL);
    struct lp_value *col = lp_binary(b, LP_OP_MIN, tiles->regions[0]->args[0], lp_index(b, s.columns - lanes));
    for (int i = 0; i < outer; i++) from[s.perm[i]] = at[i];
    from[rank - 1] = col, from[s.perm[rank - 1]] = e->zero;
    struct lp_value *v = lp_load_tile(b, s.xb, from, (int)s.groups, lanes, (int)s.perm[rank - 1], rank - 1, NULL, NULL);
    at[outer] = lp_binary(b, LP_OP_MUL, col, lp_index(b, s.groups));
    lp_store_tile(b, lower_result_buf(l, 0), at, lp_interleave(b, v), 0, outer, NULL, NULL);
    expr_for_end(e, tiles, NULL);
    if (rows) expr_for_end(e, rows, NULL);
    l->k->schedule = "pointwise";
    return LOWER_DONE;
}
