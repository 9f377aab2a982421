// SPDX-License-Identifier: Apache-2.0
/*
 * Matmul schedule: register tiles of MR rows by NR columns, K innermost, epilogue in the tile's registers (the
 * register-blocked inner kernel of Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008).
 *
 *   result[.., M, N] = a[.., M, K] b[.., K, N]
 *
 * A constant 2-D b is packed at build time into panels of P columns, b'[N/P][K][P] (zero-filled), P = 64, 32 or 16 by N:
 * one packing for all levels; each level reads it in pieces of its own NR. Other b are read as they are, row by row, or from a
 * copy of the panel that a slice makes first. With a
 * 2-D b all batch axes of a count as rows. Every output element is one chain over k in order, for a long K a chain of
 * partial sums: results do not depend on M, on slices or threads.
 */
#include <string.h>

#include "passes/lower_matmul.h"
#include "passes/tile_shape.h"

#define PREFETCH_BYTES 2048 /* how far ahead of the K loop a packed panel is asked for, unless tuned */
#define QUANT_PREFETCH_BYTES 8192 /* the same for encoded weights, which few rows read at the speed of memory */
#define QUANT_ROW_BLOCK 192
#define STAGED_ROWS 48 /* by which a panel is used for the copy to pay */
#define STAGED_DEPTH 128 /* K that makes a b of a width that only a call knows too large for the first-level cache */
#define STAGED_ROW_BLOCK 264
#define MAX_STAGED_BYTES (1 << 20)
#define CACHED_BYTES (32 << 10)
#define FEW_ROWS 4 /* tiles of fewer read memory at its speed anyway */
#define ROW_BLOCK 96 /* most rows a slice does with one panel, rounded down to a multiple of MR ... */
#define SLICE_PRODUCTS (1 << 19) /* ... and no more than make so many: some 10 us, by which shares of threads may differ */

struct tile {
    struct lp_value *row, *panel, *nrows, *ncols;
    int rows, col;
};

static bool is_full(const struct ir_type *t, const struct ir_type *of)
{
    if (t->rank != of->rank) return false;
    for (int i = 0; i < t->rank; i++)
        if (t->dims[i] != of->dims[i]) return false;
    return true;
}

bool lower_epilogue_is_flat(const struct lower_ctx *l)
{
    const struct ir_type *t = &l->anchor->results[0].type;
    for (int i = 0; i < l->body->n_args; i++) {
        const struct ir_value *v = l->body->args[i];
        bool feeds_anchor = false;
        for (int k = 0; k < l->anchor->n_operands; k++) feeds_anchor = feeds_anchor || v == ir_operand(l->anchor, k);
        bool elsewhere = false;
        for (const struct ir_use *u = v->uses; u; u = u->next) elsewhere = elsewhere || u->user != l->anchor;
        if (feeds_anchor && !elsewhere) continue;
        if (feeds_anchor) return false;
        if (is_full(&v->type, t)) continue;
        for (int k = 0; k < v->type.rank - 1; k++)
            if (!dim_is(v->type.dims[k], 1)) return false;
    }
    return true;
}

void lower_set_2d(struct lower_ctx *l, int buf, const struct dim *rows, const struct dim *cols)
{
    struct lp_kernel *k = l->k;
    struct lp_buf *b = &k->bufs.v[buf];
    const struct dim **dims = ARENA_ARRAY(&k->arena, const struct dim *, 2);
    const struct dim **strides = ARENA_ARRAY(&k->arena, const struct dim *, 2);
    dims[0] = rows, dims[1] = cols;
    strides[0] = l->pitch && buf == lower_result_buf(l, 0) ? l->pitch : cols, strides[1] = dim_const(l->m->dims, 1);
    b->rank = 2, b->dims = dims, b->strides = strides;
    if (!dim_is_const(strides[0])) lp_dim_param(k, strides[0]);
}

static void pack_b(struct mm *t)
{
    struct lower_ctx *l = t->l;
    const struct ir_type *bt = &ir_operand(l->anchor, 1)->type;
    bool tb = ir_attr_int(l->anchor, "trans_b", 0);
    int n_axis = bt->rank - (tb ? 2 : 1), k_axis = bt->rank - (tb ? 1 : 2);
    int64_t n = t->n->value, k = t->k->value;
    struct plan_pack p = {.rank = 3, .dims = {(n + t->panel - 1) / t->panel, k, t->panel}, .in_axis = {n_axis, k_axis, n_axis},
                          .stride = {t->panel, 1, 1}, .in_rank = bt->rank};
    for (int i = 0; i < bt->rank; i++) p.in_dims[i] = bt->dims[i]->value;
    lower_set_pack(l, t->b, &p, 64);
}

/* Tile of a: rows x 1 at [row.., k]. */
struct lp_value *matmul_load_a(struct mm *t, struct lp_value *row, struct lp_value *k, int rows, struct lp_value *nrows)
{
    struct expr_ctx *e = &t->l->e;
    const struct ir_type *at = &ir_operand(t->l->anchor, 0)->type;
    struct lp_value *idx[IR_MAX_RANK];
    int rank = t->flat ? 2 : at->rank;
    for (int i = 0; i < rank - 2; i++) idx[i] = dim_is(at->dims[i], 1) ? e->zero : t->batch[t->rank - rank + i];
    idx[rank - 2] = t->ids >= 0 && rank == 2 ? t->batch[0] : row, idx[rank - 1] = k; /* a row of x serves all its choices */
    struct lp_value *v = lp_load_tile(&e->b, t->a, idx, rows, 1, rank - 2, rank - 1, nrows, NULL);
    return lp_cast(&e->b, v, t->acc);
}

static struct lp_value *first_column(struct mm *t, struct lp_value *panel, int col)
{
    struct lp_builder *b = &t->l->e.b;
    return lp_binary(b, LP_OP_ADD, lp_binary(b, LP_OP_MUL, panel, lp_index(b, t->panel)), lp_index(b, col));
}

/* How many of N lie from there on; NULL: more than a tile has. */
static struct lp_value *columns_there(struct mm *t, struct lp_value *panel, int col)
{
    struct expr_ctx *e = &t->l->e;
    if (t->whole || (dim_is_const(t->n) && t->n->value % t->panel == 0)) return NULL;
    return lp_binary(&e->b, LP_OP_MAX, lp_binary(&e->b, LP_OP_SUB, expr_dim(e, t->n), first_column(t, panel, col)), e->zero);
}

/* Row k of b, columns [panel * P + col, + nr). */
static struct lp_value *load_b(struct mm *t, struct lp_value *panel, int col, struct lp_value *k, struct lp_value *ncols)
{
    struct expr_ctx *e = &t->l->e;
    const struct ir_type *bt = &ir_operand(t->l->anchor, 1)->type;
    struct lp_value *idx[IR_MAX_RANK], *v;
    if (t->packed) {
        idx[0] = panel, idx[1] = k, idx[2] = col ? lp_index(&e->b, col) : e->zero;
        v = lp_load_tile(&e->b, t->b, idx, 1, t->nr, 0, 2, NULL, NULL);
    } else if (t->copied) {
        idx[0] = k, idx[1] = lp_index(&e->b, col);
        return lp_load_tile(&e->b, t->copy_buf, idx, 1, t->nr, 0, 1, NULL, NULL);
    } else {
        for (int i = 0; i < bt->rank - 2; i++)
            idx[i] = dim_is(bt->dims[i], 1) ? e->zero : t->batch[t->rank - bt->rank + i];
        idx[bt->rank - 2] = k, idx[bt->rank - 1] = first_column(t, panel, col);
        v = lp_load_tile(&e->b, t->b, idx, 1, t->nr, 0, bt->rank - 1, NULL, ncols);
    }
    return lp_cast(&e->b, v, t->acc);
}

/* Row k + PREFETCH_BYTES of the panel: runs on into the next panel, which the next slice reads. */
static void prefetch_b(struct mm *t, struct lp_value *panel, int col, struct lp_value *k)
{
    struct lp_builder *b = &t->l->e.b;
    int elem = (int)dtype_bytes(ir_operand(t->l->anchor, 1)->type.dtype), ahead = (int)t->prefetch / (t->panel * elem);
    struct lp_value *idx[3] = {panel, lp_binary(b, LP_OP_ADD, k, lp_index(b, ahead)), NULL};
    for (int c = 0; c < t->nr; c += 64 / elem) {
        idx[2] = lp_index(b, col + c);
        lp_prefetch(b, t->b, idx);
    }
}

/*
 * While the first tiles read this panel, the next one comes from memory into the second-level cache: the first tile of a
 * panel would wait for all of it. Each pass over the panel asks for half of the rows of one of its columns of lines, that
 * is for a line every other step: more in flight would keep this tile's own loads waiting.
 */
static struct lp_value *next_panel_pass(struct mm *t, const struct tile *at)
{
    struct lp_builder *b = &t->l->e.b;
    int elem = (int)dtype_bytes(ir_operand(t->l->anchor, 1)->type.dtype), lines = t->panel * elem / 64;
    if (!t->packed || !t->prefetch || at->rows < FEW_ROWS || lines < 1 || t->width < t->panel) return NULL;
    struct lp_value *row = t->walk_row ? lp_binary(b, LP_OP_SUB, at->row, t->walk_row) : at->row;
    struct lp_value *tile = lp_binary(b, LP_OP_FLOORDIV, row, lp_index(b, t->mr));
    struct lp_value *pass = lp_binary(b, LP_OP_ADD, lp_binary(b, LP_OP_MUL, tile, lp_index(b, t->panel / t->nr)), lp_index(b, at->col / t->nr));
    return lp_binary(b, LP_OP_MIN, pass, lp_index(b, 2 * lines - 1));
}

static void prefetch_next_panel(struct mm *t, const struct tile *at, struct lp_value *pass, struct lp_value *k)
{
    struct lp_builder *b = &t->l->e.b;
    int elem = (int)dtype_bytes(ir_operand(t->l->anchor, 1)->type.dtype);
    struct lp_value *idx[3] = {lp_binary(b, LP_OP_ADD, at->panel, t->l->e.one), lower_half_row(b, pass, k, t->k->value),
                               lower_half_line(b, pass, elem)};
    lp_prefetch_far(b, t->b, idx);
}

struct lp_value *matmul_zero_tile(struct mm *t, int rows)
{
    struct lp_type ty = lp_tile(t->acc, rows, t->nr);
    return dtype_is_float(t->acc) ? lp_const_f(&t->l->e.b, ty, 0) : lp_const_i(&t->l->e.b, ty, 0);
}

/* The tile's products for k in [lo, hi), added to acc. */
static struct lp_value *contract_range(struct mm *t, const struct tile *at, struct lp_value *lo, struct lp_value *hi, struct lp_value *acc)
{
    struct expr_ctx *e = &t->l->e;
    struct lp_value *pass = next_panel_pass(t, at);
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, lo, hi, 1, 1, &acc);
    struct lp_value *k = loop->regions[0]->args[0];
    if (t->packed && t->prefetch) prefetch_b(t, at->panel, at->col, k);
    if (pass) prefetch_next_panel(t, at, pass, k);
    struct lp_value *a = matmul_load_a(t, at->row, k, at->rows, at->nrows), *b = load_b(t, at->panel, at->col, k, at->ncols);
    struct lp_value *next = lp_mma(&e->b, loop->regions[0]->args[1], a, b, 1);
    expr_for_end(e, loop, &next);
    return loop->results[0];
}

static struct lp_value *contract_dense(struct mm *t, struct lp_value *row, int rows, struct lp_value *nrows, struct lp_value *panel, int col,
                                       struct lp_value *ncols)
{
    struct expr_ctx *e = &t->l->e;
    struct lp_builder *b = &e->b;
    struct tile at = {row, panel, nrows, ncols, rows, col};
    struct lp_value *acc = matmul_zero_tile(t, rows), *size = expr_dim(e, t->k);
    int64_t part = lower_part(t->k->hi);
    if (!dtype_is_float(t->acc) || t->k->hi < 3 * part) return contract_range(t, &at, e->zero, size, acc);
    struct lp_op *parts = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, size, part, 1, &acc);
    struct lp_value *lo = parts->regions[0]->args[0];
    struct lp_value *hi = lp_binary(b, LP_OP_MIN, lp_binary(b, LP_OP_ADD, lo, lp_index(b, part)), size);
    struct lp_value *sum = lp_binary(b, LP_OP_ADD, parts->regions[0]->args[1], contract_range(t, &at, lo, hi, matmul_zero_tile(t, rows)));
    expr_for_end(e, parts, &sum);
    return parts->results[0];
}

/* One tile: K loop, epilogue, store. nrows NULL: all rows are there. */
static void emit_tile(struct mm *t, struct lp_value *row, int rows, struct lp_value *nrows, struct lp_value *panel, int col)
{
    struct lower_ctx *l = t->l;
    struct expr_ctx *e = &l->e;
    struct lp_value *first_col = first_column(t, panel, col), *ncols = columns_there(t, panel, col);
    struct lp_value *acc = t->quant ? matmul_encoded_contract(t, row, rows, nrows, panel, col)
                                    : contract_dense(t, row, rows, nrows, panel, col, ncols);
    struct lp_value *v = lp_cast(&e->b, acc, l->anchor->results[0].type.dtype);
    struct lp_value *idx[IR_MAX_RANK];
    int rank = t->flat ? 2 : t->rank;
    for (int i = 0; i < rank - 2; i++) idx[i] = t->batch[i];
    idx[rank - 2] = row, idx[rank - 1] = first_col;
    if (t->flat && t->rank != 2) { /* the epilogue's operands are addressed by their own ranks */
        struct lp_value *wide[IR_MAX_RANK];
        for (int i = 0; i < t->rank - 2; i++) wide[i] = e->zero;
        wide[t->rank - 2] = row, wide[t->rank - 1] = first_col;
        v = lower_tile_epilogue(l, v, wide, t->rank - 2, nrows, ncols);
    } else {
        v = lower_tile_epilogue(l, v, idx, t->rank - 2, nrows, ncols);
    }
    lp_store_tile(&e->b, lower_result_buf(l, 0), idx, v, rank - 2, rank - 1, nrows, ncols);
}

void matmul_emit_columns(struct mm *t, struct lp_value *row, int rows, struct lp_value *nrows, struct lp_value *panel)
{
    int pieces = t->width / t->nr;
    for (int p = 0; p < pieces; p++) {
        size_t mark = expr_scope_push(&t->l->e);
        emit_tile(t, row, rows, nrows, panel, p * t->nr);
        expr_scope_pop(&t->l->e, mark);
    }
}

/* 1 .. MR - 1 rows, known at run time: one row (decoding) and up to four have tiles of their own. */
static void emit_rest(struct mm *t, struct lp_value *row, struct lp_value *rest, struct lp_value *panel)
{
    struct expr_ctx *e = &t->l->e;
    struct lp_builder *b = &e->b;
    struct lp_op *one = lp_if_begin(b, lp_binary(b, LP_OP_EQ, rest, e->one), 0, NULL);
    size_t mark = expr_scope_push(e);
    matmul_emit_columns(t, row, 1, NULL, panel);
    expr_scope_pop(e, mark);
    lp_if_else(b, one, NULL);
    if (t->mr > 4) {
        struct lp_op *few = lp_if_begin(b, lp_binary(b, LP_OP_LE, rest, lp_index(b, 4)), 0, NULL);
        mark = expr_scope_push(e);
        matmul_emit_columns(t, row, 4, rest, panel);
        expr_scope_pop(e, mark);
        lp_if_else(b, few, NULL);
        mark = expr_scope_push(e);
        matmul_emit_columns(t, row, t->mr, rest, panel);
        expr_scope_pop(e, mark);
        lp_if_end(b, few, NULL);
    } else {
        mark = expr_scope_push(e);
        matmul_emit_columns(t, row, t->mr, rest, panel);
        expr_scope_pop(e, mark);
    }
    lp_if_end(b, one, NULL);
}

/* Rows [lo, hi): full tiles, then what is left (hi - lo) mod MR: known at build time or bounded at run time. */
static void emit_rows(struct mm *t, struct lp_value *lo, struct lp_value *hi, struct lp_value *panel)
{
    struct expr_ctx *e = &t->l->e;
    struct lp_builder *b = &e->b;
    struct lp_value *mr = lp_index(b, t->mr);
    struct lp_value *count = lp_binary(b, LP_OP_SUB, hi, lo);
    struct lp_value *rest = lp_binary(b, LP_OP_MOD, count, mr), *full = lp_binary(b, LP_OP_SUB, hi, rest);
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, lo, full, t->mr, 0, NULL);
    matmul_emit_columns(t, loop->regions[0]->args[0], t->mr, NULL, panel);
    expr_for_end(e, loop, NULL);
    if (t->mr == 1 || (dim_is_const(t->m) && t->m->value % t->mr == 0)) return; /* blocks are multiples of MR */
    struct lp_op *branch = lp_if_begin(b, lp_binary(b, LP_OP_GT, rest, e->zero), 0, NULL);
    size_t mark = expr_scope_push(e);
    if (dim_is_const(t->m)) matmul_emit_columns(t, full, (int)(t->m->value % t->mr), NULL, panel);
    else emit_rest(t, full, rest, panel);
    expr_scope_pop(e, mark);
    lp_if_else(b, branch, NULL);
    lp_if_end(b, branch, NULL);
}

static bool setup(struct mm *t)
{
    struct lower_ctx *l = t->l;
    const struct ir_op *op = l->anchor;
    if (matmul_encoded_setup(t)) return true;
    if (!op || op->code != IR_OP_MATMUL || !lower_tile_epilogue_ok(l)) return false;
    const struct ir_type *at = &ir_operand(op, 0)->type, *bt = &ir_operand(op, 1)->type;
    t->a = lower_operand_of(l, ir_operand(op, 0)), t->b = lower_operand_of(l, ir_operand(op, 1));
    if (t->a < 0 || t->b < 0 || t->a == t->b || ir_attr_int(op, "trans_a", 0)) return false;
    bool tb = ir_attr_int(op, "trans_b", 0);
    t->rank = op->results[0].type.rank;
    t->m = at->dims[at->rank - 2], t->k = at->dims[at->rank - 1], t->n = bt->dims[bt->rank - (tb ? 2 : 1)];
    enum dtype rt = op->results[0].type.dtype;
    t->acc = rt == DT_F16 || rt == DT_BF16 ? DT_F32 : rt;
    if (dtype_bytes(t->acc) < 4) return false;
    bool b_2d = true;
    for (int i = 0; i < bt->rank - 2; i++) b_2d = b_2d && dim_is(bt->dims[i], 1);
    bool b_used_once = !ir_operand(op, 1)->uses->next;
    t->packed = b_2d && b_used_once && l->operand_consts[t->b] && dim_is_const(t->k) && dim_is_const(t->n) && t->k->value > 0 &&
                t->n->value > 0 && at->rank == t->rank;
    if (!t->packed && tb) return false;
    t->flat = t->packed && lower_epilogue_is_flat(l);
    return true;
}

const struct dim *lower_flatten(struct lower_ctx *l)
{
    const struct ir_type *rt = &l->anchor->results[0].type;
    const struct dim *m = dim_const(l->m->dims, 1);
    for (int i = 0; i < rt->rank - 1; i++) m = dim_mul(l->m->dims, m, rt->dims[i]);
    lower_set_2d(l, lower_result_buf(l, 0), m, rt->dims[rt->rank - 1]);
    for (int i = 0; i < l->body->n_args && rt->rank > 2; i++) {
        const struct ir_value *v = l->body->args[i];
        bool anchors = false;
        for (int k = 0; k < l->anchor->n_operands; k++) anchors = anchors || v == ir_operand(l->anchor, k);
        if (anchors || !is_full(&v->type, rt)) continue;
        struct lp_buf *b = &l->k->bufs.v[i];
        const struct dim **dims = arena_dup(&l->k->arena, b->dims, (size_t)b->rank * sizeof *dims);
        for (int k = 0; k < rt->rank - 2; k++) dims[k] = dim_const(l->m->dims, 1);
        dims[rt->rank - 2] = m;
        b->dims = dims;
    }
    return m;
}

static void flatten(struct mm *t)
{
    t->m = lower_flatten(t->l);
    lower_set_2d(t->l, t->a, t->m, t->k);
}

/*
 * Columns of a panel. Some 96 are three narrow panels: a wide and a narrow one would be two walks over the rows, of which threads
 * had unlike shares (ppocr-det takes 6% less on two threads, 1% more on one).
 */
static int panel_columns(int64_t n)
{
    if (n > 80 && n <= 96) return 32;
    return n > 32 ? 64 : n > 16 ? 32 : 16;
}

/* ---- what a tuner may change ---- */

int64_t matmul_prefetch_bytes(struct mm *t)
{
    static const int64_t dense[] = {0, 1024, 4096, 8192}, quant[] = {4096, 12288, 16384, 0};
    return lower_knob(t->l, KNOB_PREFETCH, t->quant ? QUANT_PREFETCH_BYTES : PREFETCH_BYTES, t->quant ? quant : dense, 4);
}

/* b is copied from where only a call knows it. */
static bool is_staged(const struct mm *t) { return !t->packed && t->copy_buf >= 0; }

/* A multiple of MR; the cut decides only who does which rows. */
static int64_t row_block_rows(struct mm *t)
{
    static const int64_t others[] = {48, 192, 384};
    int64_t dflt = t->quant ? QUANT_ROW_BLOCK : is_staged(t) ? STAGED_ROW_BLOCK : ROW_BLOCK;
    if (is_staged(t) && dim_is_const(t->m)) { /* blocks of one size */
        int64_t n = (t->m->value + dflt - 1) / dflt, each = (t->m->value + n - 1) / n;
        dflt = (each + t->mr - 1) / t->mr * t->mr;
    } else if (!t->quant && !is_staged(t) && dim_is_const(t->k) && t->k->value > 0) {
        int64_t enough = SLICE_PRODUCTS / t->panel / t->k->value / t->mr * t->mr + t->mr;
        dflt = enough < dflt ? enough : dflt;
    }
    bool cut = !dim_is_const(t->m) || t->m->value > others[0]; /* else none of the others is another cut */
    int64_t rows = cut ? lower_knob(t->l, KNOB_ROW_BLOCK, dflt, others, 3) : dflt;
    return rows < t->mr ? t->mr : rows / t->mr * t->mr;
}

static const struct dim *walks_of(const struct mm *t, int64_t row_block, const struct dim *blocks)
{
    if (!t->packed || t->quant) return dim_const(t->l->m->dims, 1);
    int64_t elem = (int64_t)dtype_bytes(t->acc), bytes = t->k->value * t->n->value * elem;
    /* Rows that share cache lines: threads that wrote columns of one would wait for each other at every row's end. */
    if (t->n->value * elem % 64) bytes = 0;
    return lower_walks(t->l, blocks, row_block, bytes, t->n->value);
}

/* ---- slices ---- */

/*
 * A last panel with few columns is computed by narrow tiles, of as many more rows a slice: t's tile and width become theirs.
 * False: the last panel is like the others.
 */
static bool narrow_last(struct mm *t)
{
    if ((!t->packed && !is_staged(t)) || t->quant || !dim_is_const(t->n) || t->n->value <= t->panel) return false;
    int rest = (int)(t->n->value % t->panel), elem = (int)dtype_bytes(t->acc), width = t->l->level->vector_bytes / elem;
    while (width < rest) width *= 2;
    if (!rest || width > t->panel / 2) return false;
    tile_shape(t->l->level, elem, width, t->m, false, &t->mr, &t->nr);
    t->width = width;
    return true;
}

/*
 * A b that only a call knows, of long rows: tiles would read it a line here and a line there, at one of few places in the
 * caches. Where STAGED_ROWS rows and more use a panel, it is copied once; a b that the first-level cache holds is not.
 */
static bool wants_stage(const struct mm *t)
{
    int64_t elem = (int64_t)dtype_bytes(t->acc);
    if (t->packed || !dim_is_const(t->k) || t->k->value * t->nr * elem > MAX_STAGED_BYTES) return false;
    if (dim_is_const(t->m) && t->m->value < STAGED_ROWS) return false;
    if (!dim_is_const(t->n)) return t->k->value >= STAGED_DEPTH;
    return t->n->value > t->nr && t->k->value * t->n->value * elem > CACHED_BYTES;
}

static void stage_panel(struct mm *t, struct lp_value *panel)
{
    struct expr_ctx *e = &t->l->e;
    struct lp_builder *b = &e->b;
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, expr_dim(e, t->k), 1, 0, NULL);
    struct lp_value *k = loop->regions[0]->args[0];
    for (int col = 0; col < t->width; col += t->nr) {
        struct lp_value *idx[2] = {k, lp_index(b, col)};
        lp_store_tile(b, t->copy_buf, idx, load_b(t, panel, col, k, columns_there(t, panel, col)), 0, 1, NULL, NULL);
    }
    expr_for_end(e, loop, NULL);
}

/* Rows by which a panel must be used for a copy of it to pay: two tiles of encoded weights, which cost more to take apart than to store. */
static int64_t rows_for_copy(const struct mm *t)
{
    if (t->quant) return 2 * t->mr;
    return dim_is_const(t->m) ? 0 : STAGED_ROWS; /* wants_stage has asked */
}

/* From a copy of the panel where enough rows use it, else from where it lies. */
static void emit_rows_copied(struct mm *t, struct lp_value *lo, struct lp_value *hi, struct lp_value *panel)
{
    struct expr_ctx *e = &t->l->e;
    struct lp_builder *b = &e->b;
    struct lp_op *many = NULL;
    size_t mark = 0;
    int64_t enough = rows_for_copy(t);
    if (enough) {
        struct lp_value *count = lp_binary(b, LP_OP_SUB, hi, lo);
        many = lp_if_begin(b, lp_binary(b, LP_OP_GE, count, lp_index(b, enough)), 0, NULL);
        mark = expr_scope_push(e);
    }
    if (t->quant) matmul_encoded_unpack(t, panel);
    else stage_panel(t, panel);
    t->copied = true;
    emit_rows(t, lo, hi, panel);
    t->copied = false;
    if (!many) return;
    expr_scope_pop(e, mark);
    lp_if_else(b, many, NULL);
    mark = expr_scope_push(e);
    emit_rows(t, lo, hi, panel);
    expr_scope_pop(e, mark);
    lp_if_end(b, many, NULL);
}

/* Rows of block number `block` of row_block rows, by a panel. */
static void emit_block(struct mm *t, struct lp_value *block, int64_t row_block, struct lp_value *panel)
{
    struct expr_ctx *e = &t->l->e;
    struct lp_value *size = lp_index(&e->b, row_block), *lo = lp_binary(&e->b, LP_OP_MUL, block, size);
    struct lp_value *hi = lp_binary(&e->b, LP_OP_MIN, lp_binary(&e->b, LP_OP_ADD, lo, size), expr_dim(e, t->m));
    if (t->copy_buf >= 0) emit_rows_copied(t, lo, hi, panel);
    else emit_rows(t, lo, hi, panel);
}

/* Slice s of those of `panels` panels; the row blocks of one panel are neighbours: the panel stays in the cache. */
static void emit_panels(struct mm *t, struct lp_value *s, const struct dim *panels, const struct dim *blocks, int64_t row_block)
{
    struct lp_builder *b = &t->l->e.b;
    struct lp_value *panel = s, *block = t->l->e.zero;
    t->walk_row = NULL;
    if (!dim_is(blocks, 1) && is_staged(t)) {
        panel = lp_binary(b, LP_OP_MOD, s, expr_dim(&t->l->e, panels));
        block = lp_binary(b, LP_OP_FLOORDIV, s, expr_dim(&t->l->e, panels));
    } else if (!dim_is(blocks, 1)) {
        struct walk_place at = lower_walk_place(t->l, s, panels, blocks, walks_of(t, row_block, blocks));
        panel = at.panel, block = at.unit;
        t->walk_row = lp_binary(b, LP_OP_MUL, at.first, lp_index(b, row_block));
    }
    emit_block(t, block, row_block, panel);
}

/* The batch that a slice belongs to, into t->batch: returns the slice's number within it; slices: of one, then of all. */
static struct lp_value *slice_in_batch(struct mm *t, struct lp_value *s, const struct dim **slices)
{
    struct expr_ctx *e = &t->l->e;
    const struct ir_type *rt = &t->l->anchor->results[0].type;
    const struct dim *batches = dim_const(t->l->m->dims, 1);
    for (int i = 0; i < rt->rank - 2; i++) {
        batches = dim_mul(t->l->m->dims, batches, rt->dims[i]);
        t->batch[i] = e->zero;
    }
    if (dim_is(batches, 1)) return s;
    struct lp_value *per = expr_dim(e, *slices);
    expr_delinear(e, lp_binary(&e->b, LP_OP_FLOORDIV, s, per), rt->rank - 2, rt->dims, t->batch);
    if (t->quant) t->matrix = t->batch[0];
    *slices = dim_mul(t->l->m->dims, *slices, batches);
    return lp_binary(&e->b, LP_OP_MOD, s, per);
}

enum lower_result lower_matmul(struct lower_ctx *l)
{
    struct mm t = {.l = l, .ids = -1, .copy_buf = -1};
    if (l->anchor && l->anchor->code == IR_OP_QMATMUL_EXPERTS) return matmul_experts(&t);
    if (!setup(&t)) return LOWER_NOT_MINE;
    struct expr_ctx *e = &l->e;
    struct dim_ctx *dc = l->m->dims;
    if (t.flat) flatten(&t);
    int64_t n = dim_is_const(t.n) ? t.n->value : 64;
    t.panel = t.quant ? 64 : panel_columns(n);
    lower_tile(l, (int)dtype_bytes(t.acc), t.panel, t.m, false, &t.mr, &t.nr);
    if (t.packed) t.prefetch = matmul_prefetch_bytes(&t);
    if (t.packed && !t.quant) pack_b(&t);
    else if (!t.packed) t.panel = t.nr;
    t.width = t.panel;
    if (wants_stage(&t)) {
        int64_t dims[] = {t.k->value, t.nr};
        t.copy_buf = lp_add_stack(l->k, "staged", t.acc, 2, dims);
    }
    int64_t row_block = row_block_rows(&t);
    struct mm narrow = t;
    bool has_narrow = narrow_last(&narrow);
    const struct dim *panels = has_narrow ? dim_const(dc, t.n->value / t.panel) : dim_ceildiv(dc, t.n, dim_const(dc, t.panel));
    const struct dim *blocks = dim_ceildiv(dc, t.m, dim_const(dc, row_block)), *wide = dim_mul(dc, panels, blocks), *slices = wide;
    int64_t narrow_block = has_narrow ? (row_block * (t.panel / narrow.width) + narrow.mr - 1) / narrow.mr * narrow.mr : 0;
    if (has_narrow) slices = dim_add(dc, wide, dim_ceildiv(dc, t.m, dim_const(dc, narrow_block)));
    struct lp_value *s = lower_slice(l);
    if (!t.flat) {
        s = slice_in_batch(&t, s, &slices);
        memcpy(narrow.batch, t.batch, sizeof t.batch);
    }
    lower_set_slices(l, slices);
    if (t.quant) matmul_encoded_buffer(&t);
    if (has_narrow) {
        struct lp_op *last = lp_if_begin(&e->b, lp_binary(&e->b, LP_OP_GE, s, expr_dim(e, wide)), 0, NULL);
        size_t mark = expr_scope_push(e);
        emit_block(&narrow, lp_binary(&e->b, LP_OP_SUB, s, expr_dim(e, wide)), narrow_block, expr_dim(e, panels));
        expr_scope_pop(e, mark);
        lp_if_else(&e->b, last, NULL);
        mark = expr_scope_push(e);
        t.whole = true;
        emit_panels(&t, s, panels, blocks, row_block);
        expr_scope_pop(e, mark);
        lp_if_end(&e->b, last, NULL);
    } else {
        emit_panels(&t, s, panels, blocks, row_block);
    }
    l->k->schedule = t.quant ? "matmul-quantised" : t.packed ? "matmul" : "matmul-dynamic";
    return LOWER_DONE;
}
