// SPDX-License-Identifier: Apache-2.0
/*
 * Products by block-quantised weights (qmatmul_int) on a GPU's tensor units: a slice is a tile of 64 rows and the 32 columns of a
 * panel, the work of a CTA. A step of K is a group of blocks, whose sum is exact in the units: words of 12 bits and weights of 8 are
 * exact in f16, and no sum of a group leaves the 24 bits of an f32. What follows is the f32 arithmetic that the op table states, a
 * group after the other, so that a row's bits are those of CPUs, whatever is beside it.
 *
 * The stream of a panel (ir/blocks.h) is read as it is, once for 64 rows. Engines with code for CPUs and GPUs share it.
 */
#include "passes/blocks.h"
#include "passes/lower.h"

#define ROWS 64
#define CTA_THREADS 128
#define MAX_WORD 2047 /* 12 bits with sign */
#define MAX_EXACT_SUM (1 << 24)

struct dot_blocks {
    struct lower_ctx *l;
    struct blocks d;
    int words, sum, step, w; /* buffers */
    int64_t groups;
    const struct dim *m, *n;
    int rank;
};

static bool is_exact(const struct blocks *d, int64_t most)
{
    return most <= MAX_WORD && (d->nibbles || !d->zero) && most * (d->nibbles ? (16 << d->high) - 1 : 128) * d->group <= MAX_EXACT_SUM;
}

static bool is_mine(struct dot_blocks *t)
{
    struct lower_ctx *l = t->l;
    const struct ir_op *op = l->anchor;
    if (!l->level->gpu || !(l->level->gpu->mma >> DT_F16 & 1) || !op || op->code != IR_OP_QMATMUL_INT || l->yield->n_operands != 1) return false;
    if (!lower_tile_epilogue_ok(l) || !lower_epilogue_is_flat(l)) return false;
    int *const bufs[] = {&t->words, &t->sum, &t->step, &t->w};
    for (int i = 0; i < 4; i++)
        if ((*bufs[i] = lower_operand_of(l, ir_operand(op, i))) < 0) return false;
    t->d = blocks_of(op);
    t->groups = ir_operand(op, 3)->type.dims[1]->value;
    t->rank = op->results[0].type.rank;
    t->n = op->results[0].type.dims[t->rank - 1];
    bool fits = t->d.group == 16 || t->d.group == 32 || t->d.group == 64 || t->d.group == 128;
    fits = fits && (!t->d.high || (t->d.nibbles && t->d.group / 2 * t->d.high == 16));
    return fits && t->rank >= 2 && is_exact(&t->d, ir_attr_int(op, "max", INT16_MAX));
}

static struct lp_value *product(struct dot_blocks *t, struct lp_value *row, struct lp_value *panel, struct lp_value *nrows)
{
    struct expr_ctx *e = &t->l->e;
    struct lp_builder *b = &e->b;
    struct lp_value *acc = lp_const_f(b, lp_tile(DT_F32, ROWS, BLOCKS_COLS), 0);
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, lp_index(b, t->groups), 1, 1, &acc);
    struct lp_value *g = loop->regions[0]->args[0], *at[3] = {row, lp_binary(b, LP_OP_MUL, g, lp_index(b, t->d.group))};
    struct lp_value *words = lp_load_tile(b, t->words, at, ROWS, t->d.group, 0, 1, nrows, NULL);
    at[1] = g;
    struct lp_value *sum = lp_load_tile(b, t->sum, at, ROWS, 1, 0, 1, nrows, NULL);
    at[0] = panel, at[2] = e->zero;
    struct lp_value *units = lp_load_tile(b, t->w, at, 1, blocks_units(&t->d), 0, 2, NULL, NULL);
    struct lp_value *next = lp_dot_blocks(b, loop->regions[0]->args[1], words, sum, units, blocks_code(&t->d));
    expr_for_end(e, loop, &next);
    return loop->results[0];
}

enum lower_result lower_dot_blocks(struct lower_ctx *l)
{
    struct dot_blocks t = {.l = l};
    if (!is_mine(&t)) return LOWER_NOT_MINE;
    struct expr_ctx *e = &l->e;
    struct lp_builder *b = &e->b;
    struct dim_ctx *dc = l->m->dims;
    t.m = lower_flatten(l);
    lower_set_2d(l, t.words, t.m, dim_const(dc, t.groups * t.d.group));
    lower_set_2d(l, t.sum, t.m, dim_const(dc, t.groups));
    lower_set_2d(l, t.step, t.m, dim_const(dc, 1));
    l->k->bufs.v[t.w].align_bytes = 64;
    l->k->cta_threads = CTA_THREADS, l->k->cta_warp_rows = true;
    const struct dim *panels = dim_ceildiv(dc, t.n, dim_const(dc, BLOCKS_COLS)), *blocks = dim_ceildiv(dc, t.m, dim_const(dc, ROWS));
    lower_set_slices(l, dim_mul(dc, panels, blocks));
    struct lp_value *panel = lp_binary(b, LP_OP_FLOORDIV, lower_slice(l), expr_dim(e, blocks)); /* row blocks of one panel are neighbours */
    struct lp_value *block = lp_binary(b, LP_OP_MOD, lower_slice(l), expr_dim(e, blocks));
    struct lp_value *row = lp_binary(b, LP_OP_MUL, block, lp_index(b, ROWS)), *col = lp_binary(b, LP_OP_MUL, panel, lp_index(b, BLOCKS_COLS));
    struct lp_value *nrows = lp_binary(b, LP_OP_SUB, expr_dim(e, t.m), row), *at[2] = {row, e->zero}, *wide[IR_MAX_RANK];
    struct lp_value *ncols = dim_is_const(t.n) && t.n->value % BLOCKS_COLS == 0 ? NULL : lp_binary(b, LP_OP_SUB, expr_dim(e, t.n), col);
    struct lp_value *v = product(&t, row, panel, nrows);
    v = lp_binary(b, LP_OP_MUL, v, lp_load_tile(b, t.step, at, ROWS, 1, 0, 1, nrows, NULL));
    for (int i = 0; i < t.rank - 2; i++) wide[i] = e->zero;
    wide[t.rank - 2] = row, wide[t.rank - 1] = col;
    v = lower_tile_epilogue(l, v, wide, t.rank - 2, nrows, ncols);
    at[1] = col;
    lp_store_tile(b, lower_result_buf(l, 0), at, v, 0, 1, nrows, ncols);
    l->k->schedule = "dot-blocks";
    return LOWER_DONE;
}
