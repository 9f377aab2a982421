// SPDX-License-Identifier: Apache-2.0
/*
 * Matmul by constant weights on a GPU's tensor units: a slice is a tile of 64 rows and 64 columns of the result, which the
 * threads of a CTA make together. K goes by in steps of 64 bytes; the epilogue works on the tile before it is stored.
 *
 *   result[.., M, N] = a[.., M, K] b[K, N]
 *
 * b is packed at build time as [N/64][64][K], zero-filled: both operands of the tensor units then run along K. Batch axes of a
 * count as rows. Which rows share a tile does not show in any of them, and K is summed in one order for every M.
 */
#include "passes/lower.h"

#define TILE 64
#define STEP_BYTES 64
#define CTA_THREADS 128

struct dot {
    struct lower_ctx *l;
    const struct ir_op *op;
    int a, b;
    enum dtype da, db, acc;
    const struct dim *m, *n, *k;
    int64_t step; /* elements of K */
};

/* Every other operand has the result's shape, one row, or one column: then flattened rows serve in the epilogue. */
static bool epilogue_is_flat(const struct dot *t)
{
    const struct lower_ctx *l = t->l;
    const struct ir_type *rt = &t->op->results[0].type;
    for (int i = 0; i < l->body->n_args; i++) {
        const struct ir_type *v = &l->body->args[i]->type;
        if (i == t->a || i == t->b) continue;
        bool one_row = true, all_rows = v->rank == rt->rank;
        for (int k = 0; k < v->rank - 1; k++) {
            one_row = one_row && dim_is(v->dims[k], 1);
            all_rows = all_rows && v->dims[k] == rt->dims[k];
        }
        if (one_row) continue;
        if (!all_rows || (rt->rank > 2 && dim_is(rt->dims[rt->rank - 2], 1))) return false; /* rows would look like one */
    }
    return true;
}

static bool types_fit(const struct dot *t)
{
    unsigned mma = t->l->level->gpu->mma;
    if (t->acc == DT_I32) return (t->da == DT_I8 || t->da == DT_U8) && t->db == DT_I8 && (mma >> DT_I8 & 1);
    bool wide = t->da == DT_F16 || t->da == DT_BF16, narrow = t->da == DT_F8E4M3FN || t->da == DT_F8E5M2;
    return t->acc == DT_F32 && t->da == t->db && (wide || narrow) && (mma >> t->da & 1);
}

static bool is_mine(struct dot *t)
{
    struct lower_ctx *l = t->l;
    const struct ir_op *op = l->anchor;
    if (!l->level->gpu || !op || op->code != IR_OP_MATMUL || l->yield->n_operands != 1) return false;
    t->op = op;
    t->a = lower_operand_of(l, ir_operand(op, 0)), t->b = lower_operand_of(l, ir_operand(op, 1));
    if (t->a < 0 || t->b < 0 || t->a == t->b || !l->operand_consts[t->b] || ir_attr_int(op, "trans_a", 0)) return false;
    const struct ir_type *at = &ir_operand(op, 0)->type, *bt = &ir_operand(op, 1)->type, *rt = &op->results[0].type;
    bool tb = ir_attr_int(op, "trans_b", 0);
    t->da = at->dtype, t->db = bt->dtype, t->acc = rt->dtype;
    if (bt->rank != 2 || !types_fit(t) || !lower_tile_epilogue_ok(l) || !epilogue_is_flat(t)) return false;
    t->k = at->dims[at->rank - 1], t->n = bt->dims[tb ? 0 : 1];
    if (!dim_is_const(t->k) || !dim_is_const(t->n)) return false;
    t->m = dim_const(l->m->dims, 1);
    for (int i = 0; i < rt->rank - 1; i++) t->m = dim_mul(l->m->dims, t->m, rt->dims[i]);
    int64_t bytes = (int64_t)dtype_bytes(t->da);
    t->step = STEP_BYTES / bytes;
    return t->k->value * bytes % 16 == 0; /* rows of a are read in pieces of 16 bytes */
}

static void set_2d(struct lower_ctx *l, int buf, const struct dim *rows, const struct dim *cols)
{
    struct lp_buf *b = &l->k->bufs.v[buf];
    const struct dim **dims = ARENA_ARRAY(&l->k->arena, const struct dim *, 2);
    const struct dim **strides = ARENA_ARRAY(&l->k->arena, const struct dim *, 2);
    dims[0] = rows, dims[1] = cols;
    strides[0] = cols, strides[1] = dim_const(l->m->dims, 1);
    b->rank = 2, b->dims = dims, b->strides = strides;
}

static void pack_b(struct dot *t)
{
    const struct ir_type *bt = &ir_operand(t->op, 1)->type;
    bool tb = ir_attr_int(t->op, "trans_b", 0);
    int n_axis = tb ? 0 : 1, k_axis = tb ? 1 : 0;
    int64_t steps = (t->k->value + t->step - 1) / t->step;
    struct plan_pack p = {.rank = 3, .dims = {(t->n->value + TILE - 1) / TILE, TILE, steps * t->step}, .in_axis = {n_axis, n_axis, k_axis},
                          .stride = {TILE, 1, 1}, .in_rank = 2, .in_dims = {bt->dims[0]->value, bt->dims[1]->value}};
    lower_set_pack(t->l, t->b, &p, 64);
}

/* Rows of a and the result in one axis; what the epilogue reads keeps its rank, with all rows on the last axis but one. */
static void flatten(struct dot *t)
{
    struct lower_ctx *l = t->l;
    const struct ir_type *rt = &t->op->results[0].type;
    set_2d(l, t->a, t->m, t->k);
    set_2d(l, lower_result_buf(l, 0), t->m, t->n);
    for (int i = 0; i < l->body->n_args; i++) {
        struct lp_buf *b = &l->k->bufs.v[i];
        if (i == t->a || i == t->b || b->rank != rt->rank || rt->rank < 3 || dim_is(b->dims[rt->rank - 2], 1)) continue;
        const struct dim **dims = arena_dup(&l->k->arena, b->dims, (size_t)b->rank * sizeof *dims);
        for (int k = 0; k < rt->rank - 2; k++) dims[k] = dim_const(l->m->dims, 1);
        dims[rt->rank - 2] = t->m;
        b->dims = dims;
    }
}

static struct lp_value *product(struct dot *t, struct lp_value *row, struct lp_value *panel, struct lp_value *nrows)
{
    struct expr_ctx *e = &t->l->e;
    struct lp_builder *b = &e->b;
    struct lp_type ty = lp_tile(t->acc, TILE, TILE);
    struct lp_value *acc = t->acc == DT_F32 ? lp_const_f(b, ty, 0) : lp_const_i(b, ty, 0);
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, lp_index(b, t->k->value), t->step, 1, &acc);
    struct lp_value *k = loop->regions[0]->args[0], *at_a[2] = {row, k}, *at_b[3] = {panel, e->zero, k};
    struct lp_value *left = t->k->value % t->step ? lp_binary(b, LP_OP_SUB, lp_index(b, t->k->value), k) : NULL;
    struct lp_value *x = lp_load_tile(b, t->a, at_a, TILE, (int)t->step, 0, 1, nrows, left);
    struct lp_value *y = lp_load_tile(b, t->b, at_b, (int)t->step, TILE, 2, 1, NULL, NULL);
    struct lp_value *next = lp_dot(b, loop->regions[0]->args[1], x, y);
    expr_for_end(e, loop, &next);
    return loop->results[0];
}

enum lower_result lower_dot(struct lower_ctx *l)
{
    struct dot t = {.l = l};
    if (!is_mine(&t)) return LOWER_NOT_MINE;
    struct expr_ctx *e = &l->e;
    struct lp_builder *b = &e->b;
    int rank = t.op->results[0].type.rank;
    if (rank < 2) return LOWER_NOT_MINE;
    l->k->cta_threads = CTA_THREADS;
    pack_b(&t);
    flatten(&t);
    int64_t panels = (t.n->value + TILE - 1) / TILE;
    lower_set_slices(l, dim_mulc(l->m->dims, dim_ceildiv(l->m->dims, t.m, dim_const(l->m->dims, TILE)), panels));
    struct lp_value *slice = lower_slice(l), *n_panels = lp_index(b, panels), *tile = lp_index(b, TILE);
    struct lp_value *row = lp_binary(b, LP_OP_MUL, lp_binary(b, LP_OP_FLOORDIV, slice, n_panels), tile);
    struct lp_value *panel = lp_binary(b, LP_OP_MOD, slice, n_panels), *col = lp_binary(b, LP_OP_MUL, panel, tile);
    struct lp_value *nrows = lp_binary(b, LP_OP_SUB, expr_dim(e, t.m), row);
    struct lp_value *ncols = t.n->value % TILE ? lp_binary(b, LP_OP_SUB, lp_index(b, t.n->value), col) : NULL;
    struct lp_value *v = product(&t, row, panel, nrows), *at[2] = {row, col}, *wide[IR_MAX_RANK];
    for (int i = 0; i < rank - 2; i++) wide[i] = e->zero;
    wide[rank - 2] = row, wide[rank - 1] = col;
    v = lower_tile_epilogue(l, v, wide, rank - 2, nrows, ncols);
    lp_store_tile(b, lower_result_buf(l, 0), at, v, 0, 1, nrows, ncols);
    l->k->schedule = "dot";
    return LOWER_DONE;
}
