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

#include "passes/lower.h"
#include "passes/tile_shape.h"

#define PREFETCH_BYTES 2048 /* how far ahead of the K loop a packed panel is asked for, unless tuned */
#define QUANT_PREFETCH_BYTES 8192 /* the same for encoded weights, which few rows read at the speed of memory */
#define MAX_UNPACKED_BYTES (8 << 20) /* of an encoded panel taken apart in a worker's scratch memory */
#define QUANT_ROW_BLOCK 192
#define STAGED_ROWS 48 /* by which a panel is used for the copy to pay */
#define STAGED_DEPTH 128 /* K that makes a b of a width that only a call knows too large for the first-level cache */
#define STAGED_ROW_BLOCK 264
#define MAX_STAGED_BYTES (1 << 20)
#define CACHED_BYTES (32 << 10)
#define FEW_ROWS 4 /* tiles of fewer read memory at its speed anyway */
#define ROW_BLOCK 96 /* most rows a slice does with one panel, rounded down to a multiple of MR ... */
#define SLICE_PRODUCTS (1 << 19) /* ... and no more than make so many: some 10 us, by which shares of threads may differ */

struct mm {
    struct lower_ctx *l;
    int a, b;                        /* operand numbers */
    bool packed, flat;               /* b is packed; batch axes are rows */
    int rank;                        /* of the result */
    const struct dim *m, *n, *k;     /* m: all rows when flat */
    int panel;                       /* P, or NR when b is not packed */
    int width;                       /* columns of a panel that are computed: P, fewer in the last panel of an N that it exceeds by far */
    bool quant, nibbles;             /* b is an encoded constant's parts (qmatmul, qmatmul_experts) */
    int scale, min, zero;            /* buffers of the parts, -1: none */
    int64_t group;                   /* k of one scale */
    const struct ir_type *qt;        /* type of part q */
    int64_t matrix_panels;           /* panels of one matrix, when b holds several ... */
    struct lp_value *matrix;         /* ... and which one to read, else NULL */
    int ids;                         /* buffer of the choices (op qmatmul_experts), -1: none */
    int unpacked_buf;                /* stack buffer [K, 64]: the panel's weights while many rows use them */
    bool unpacked;                   /* they are in it */
    int staged_buf;                  /* stack buffer [K, panel]: columns of a b that is no constant, -1: it is read where it lies */
    bool staged;                     /* they are in it */
    bool whole;                      /* all columns of the panels at hand are there */
    int mr, nr;
    int64_t prefetch;                /* bytes ahead, 0: none */
    enum dtype acc;
    struct lp_value *walk_row;       /* first row of the walk over the panels that the slice belongs to, NULL: 0 */
    struct lp_value *batch[IR_MAX_RANK]; /* coordinates of the batch axes, when not flat */
};

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
    strides[0] = cols, strides[1] = dim_const(l->m->dims, 1);
    b->rank = 2, b->dims = dims, b->strides = strides;
    if (!dim_is_const(cols)) lp_dim_param(k, cols);
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
static struct lp_value *load_a(struct mm *t, struct lp_value *row, struct lp_value *k, int rows, struct lp_value *nrows)
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
    } else if (t->staged) {
        idx[0] = k, idx[1] = lp_index(&e->b, col);
        return lp_load_tile(&e->b, t->staged_buf, idx, 1, t->nr, 0, 1, NULL, NULL);
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

static struct lp_value *zero_tile(struct mm *t, int rows)
{
    struct lp_type ty = lp_tile(t->acc, rows, t->nr);
    return dtype_is_float(t->acc) ? lp_const_f(&t->l->e.b, ty, 0) : lp_const_i(&t->l->e.b, ty, 0);
}

/* Stored q of the panel at k (or the pair k, k + 1 when nibbles) as f32 rows w[0], w[1]. */
static void load_q(struct mm *t, struct lp_value *panel, int col, struct lp_value *g, struct lp_value *i, struct lp_value **w)
{
    struct lp_builder *b = &t->l->e.b;
    struct lp_value *idx[4] = {panel, g, i, lp_index(b, col)};
    struct lp_value *q = lp_load_tile(b, t->b, idx, 1, t->nr, 0, 3, NULL, NULL);
    int n = 1;
    w[0] = q;
    if (t->nibbles) { /* widened first: the load itself does that, and no lane has to cross over */
        struct lp_type wide = lp_vector(DT_I32, t->nr);
        q = lp_cast(b, q, DT_I32);
        w[0] = lp_binary(b, LP_OP_AND, q, lp_const_i(b, wide, 15));
        w[1] = lp_binary(b, LP_OP_SHR, q, lp_const_i(b, wide, 4));
        n = 2;
    }
    for (int k = 0; k < n; k++) {
        w[k] = lp_cast(b, w[k], DT_F32);
        if (t->zero) w[k] = lp_binary(b, LP_OP_SUB, w[k], lp_const_f(b, lp_vector(DT_F32, t->nr), t->zero));
    }
}

static struct lp_value *load_group(struct mm *t, int buf, struct lp_value *panel, int col, struct lp_value *g)
{
    struct lp_builder *b = &t->l->e.b;
    struct lp_value *idx[3] = {panel, g, lp_index(b, col)};
    return lp_cast(b, lp_load_tile(b, buf, idx, 1, t->nr, 0, 2, NULL, NULL), DT_F32);
}

static struct lp_value *decode(struct mm *t, struct lp_value *q, struct lp_value *scale, struct lp_value *min)
{
    struct lp_builder *b = &t->l->e.b;
    if (!scale) return q;
    return min ? lp_fma(b, q, scale, min) : lp_binary(b, LP_OP_MUL, q, scale);
}

/* Number of a matrix's panel in b. */
static struct lp_value *panel_in_b(struct mm *t, struct lp_value *panel)
{
    struct expr_ctx *e = &t->l->e;
    return t->matrix ? lp_binary(&e->b, LP_OP_ADD, expr_imul(e, t->matrix, lp_index(&e->b, t->matrix_panels)), panel) : panel;
}

/* The panel's weights as f32 into the stack buffer; the same operations as in contract_quant, so the same bits. */
static void unpack_panel(struct mm *t, struct lp_value *panel)
{
    struct expr_ctx *e = &t->l->e;
    struct lp_builder *b = &e->b;
    const struct ir_type *q = t->qt;
    panel = panel_in_b(t, panel);
    struct lp_op *pieces = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, lp_index(b, q->dims[1]->value), 1, 0, NULL);
    struct lp_value *g = pieces->regions[0]->args[0];
    for (int col = 0; col < t->panel; col += t->nr) {
        struct lp_value *scale = t->scale >= 0 ? load_group(t, t->scale, panel, col, g) : NULL, *w[2];
        struct lp_value *min = t->min >= 0 ? load_group(t, t->min, panel, col, g) : NULL;
        struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, lp_index(b, q->dims[2]->value), 1, 0, NULL);
        struct lp_value *i = loop->regions[0]->args[0], *base = expr_imul(e, g, lp_index(b, t->group));
        load_q(t, panel, col, g, i, w);
        for (int k = 0; k < (t->nibbles ? 2 : 1); k++) {
            struct lp_value *at = t->nibbles ? lp_binary(b, LP_OP_MUL, i, lp_index(b, 2)) : i;
            if (k) at = lp_binary(b, LP_OP_ADD, at, e->one);
            struct lp_value *idx[2] = {lp_binary(b, LP_OP_ADD, base, at), lp_index(b, col)};
            lp_store_tile(b, t->unpacked_buf, idx, decode(t, w[k], scale, min), 0, 1, NULL, NULL);
        }
        expr_for_end(e, loop, NULL);
    }
    expr_for_end(e, pieces, NULL);
}

static struct lp_value *contract_unpacked(struct mm *t, struct lp_value *row, int rows, struct lp_value *nrows, int col)
{
    struct expr_ctx *e = &t->l->e;
    struct lp_builder *b = &e->b;
    struct lp_value *acc = zero_tile(t, rows);
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, expr_dim(e, t->k), 1, 1, &acc);
    struct lp_value *k = loop->regions[0]->args[0], *idx[2] = {k, lp_index(b, col)};
    struct lp_value *w = lp_load_tile(b, t->unpacked_buf, idx, 1, t->nr, 0, 1, NULL, NULL);
    struct lp_value *next = lp_mma(b, loop->regions[0]->args[1], load_a(t, row, k, rows, nrows), w, 1);
    expr_for_end(e, loop, &next);
    return loop->results[0];
}

/*
 * K loop over an encoded b: groups, then their k; each weight is taken apart in registers (q * scale + min) and used once a
 * tile. The chain of every output element is over k in order, for every number of rows.
 */
static struct lp_value *contract_quant(struct mm *t, struct lp_value *row, int rows, struct lp_value *nrows, struct lp_value *panel, int col)
{
    struct expr_ctx *e = &t->l->e;
    struct lp_builder *b = &e->b;
    const struct ir_type *q = t->qt;
    struct lp_value *acc = zero_tile(t, rows), *scale = NULL, *min = NULL, *w[2];
    panel = panel_in_b(t, panel);
    struct lp_op *groups = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, lp_index(b, q->dims[1]->value), 1, 1, &acc);
    struct lp_value *g = groups->regions[0]->args[0];
    if (t->scale >= 0) scale = load_group(t, t->scale, panel, col, g);
    if (t->min >= 0) min = load_group(t, t->min, panel, col, g);
    acc = groups->regions[0]->args[1];
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, lp_index(b, q->dims[2]->value), 1, 1, &acc);
    struct lp_value *i = loop->regions[0]->args[0];
    acc = loop->regions[0]->args[1];
    int elem = (int)dtype_bytes(q->dtype);
    struct lp_value *ahead[4] = {panel, g, lp_binary(b, LP_OP_ADD, i, lp_index(b, t->prefetch / (64 * elem))), lp_index(b, col)};
    if (t->prefetch) lp_prefetch(b, t->b, ahead);
    load_q(t, panel, col, g, i, w);
    struct lp_value *base = expr_imul(e, g, lp_index(b, t->group));
    for (int k = 0; k < (t->nibbles ? 2 : 1); k++) {
        struct lp_value *x = decode(t, w[k], scale, min);
        struct lp_value *at = t->nibbles ? lp_binary(b, LP_OP_MUL, i, lp_index(b, 2)) : i;
        if (k) at = lp_binary(b, LP_OP_ADD, at, e->one);
        at = lp_binary(b, LP_OP_ADD, base, at);
        acc = lp_mma(b, acc, load_a(t, row, at, rows, nrows), x, 1);
    }
    expr_for_end(e, loop, &acc);
    expr_for_end(e, groups, loop->results);
    return groups->results[0];
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
    struct lp_value *a = load_a(t, at->row, k, at->rows, at->nrows), *b = load_b(t, at->panel, at->col, k, at->ncols);
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
    struct lp_value *acc = zero_tile(t, rows), *size = expr_dim(e, t->k);
    int64_t part = lower_part(t->k->hi);
    if (!dtype_is_float(t->acc) || t->k->hi < 3 * part) return contract_range(t, &at, e->zero, size, acc);
    struct lp_op *parts = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, size, part, 1, &acc);
    struct lp_value *lo = parts->regions[0]->args[0];
    struct lp_value *hi = lp_binary(b, LP_OP_MIN, lp_binary(b, LP_OP_ADD, lo, lp_index(b, part)), size);
    struct lp_value *sum = lp_binary(b, LP_OP_ADD, parts->regions[0]->args[1], contract_range(t, &at, lo, hi, zero_tile(t, rows)));
    expr_for_end(e, parts, &sum);
    return parts->results[0];
}

/* One tile: K loop, epilogue, store. nrows NULL: all rows are there. */
static void emit_tile(struct mm *t, struct lp_value *row, int rows, struct lp_value *nrows, struct lp_value *panel, int col)
{
    struct lower_ctx *l = t->l;
    struct expr_ctx *e = &l->e;
    struct lp_value *first_col = first_column(t, panel, col), *ncols = columns_there(t, panel, col);
    struct lp_value *acc = t->unpacked ? contract_unpacked(t, row, rows, nrows, col) : t->quant ? contract_quant(t, row, rows, nrows, panel, col) : contract_dense(t, row, rows, nrows, panel, col, ncols);
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

static void emit_columns(struct mm *t, struct lp_value *row, int rows, struct lp_value *nrows, struct lp_value *panel)
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
    emit_columns(t, row, 1, NULL, panel);
    expr_scope_pop(e, mark);
    lp_if_else(b, one, NULL);
    if (t->mr > 4) {
        struct lp_op *few = lp_if_begin(b, lp_binary(b, LP_OP_LE, rest, lp_index(b, 4)), 0, NULL);
        mark = expr_scope_push(e);
        emit_columns(t, row, 4, rest, panel);
        expr_scope_pop(e, mark);
        lp_if_else(b, few, NULL);
        mark = expr_scope_push(e);
        emit_columns(t, row, t->mr, rest, panel);
        expr_scope_pop(e, mark);
        lp_if_end(b, few, NULL);
    } else {
        mark = expr_scope_push(e);
        emit_columns(t, row, t->mr, rest, panel);
        expr_scope_pop(e, mark);
    }
    lp_if_end(b, one, NULL);
}

static void emit_rows(struct mm *t, struct lp_value *lo, struct lp_value *hi, struct lp_value *panel);

/* An encoded panel: taken apart once when two tiles or more use it, else in registers. */
static void emit_rows_quant(struct mm *t, struct lp_value *lo, struct lp_value *hi, struct lp_value *panel)
{
    struct expr_ctx *e = &t->l->e;
    struct lp_builder *b = &e->b;
    struct lp_value *count = lp_binary(b, LP_OP_SUB, hi, lo);
    struct lp_op *many = lp_if_begin(b, lp_binary(b, LP_OP_GE, count, lp_index(b, 2 * t->mr)), 0, NULL);
    size_t mark = expr_scope_push(e);
    unpack_panel(t, panel);
    t->unpacked = true;
    emit_rows(t, lo, hi, panel);
    t->unpacked = false;
    expr_scope_pop(e, mark);
    lp_if_else(b, many, NULL);
    mark = expr_scope_push(e);
    emit_rows(t, lo, hi, panel);
    expr_scope_pop(e, mark);
    lp_if_end(b, many, NULL);
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
    emit_columns(t, loop->regions[0]->args[0], t->mr, NULL, panel);
    expr_for_end(e, loop, NULL);
    if (t->mr == 1 || (dim_is_const(t->m) && t->m->value % t->mr == 0)) return; /* blocks are multiples of MR */
    struct lp_op *branch = lp_if_begin(b, lp_binary(b, LP_OP_GT, rest, e->zero), 0, NULL);
    size_t mark = expr_scope_push(e);
    if (dim_is_const(t->m)) emit_columns(t, full, (int)(t->m->value % t->mr), NULL, panel);
    else emit_rest(t, full, rest, panel);
    expr_scope_pop(e, mark);
    lp_if_else(b, branch, NULL);
    lp_if_end(b, branch, NULL);
}

/* Operands `first` on are an encoded constant's parts, in panels of 64 columns. */
static bool setup_parts(struct mm *t, int first)
{
    struct lower_ctx *l = t->l;
    const struct ir_op *op = l->anchor;
    for (int i = 0; i < op->n_operands; i++)
        if (ir_operand(op, i) && lower_operand_of(l, ir_operand(op, i)) < 0) return false;
    const struct ir_type *xt = &ir_operand(op, 0)->type;
    if (xt->dtype != DT_F32 || xt->rank < 2) return false;
    t->a = lower_operand_of(l, ir_operand(op, 0)), t->b = lower_operand_of(l, ir_operand(op, first));
    t->scale = lower_operand_of(l, ir_operand(op, first + 1)), t->min = lower_operand_of(l, ir_operand(op, first + 2));
    t->qt = &ir_operand(op, first)->type;
    t->rank = op->results[0].type.rank, t->acc = DT_F32;
    t->quant = t->packed = true;
    t->nibbles = ir_attr_int(op, "nibbles", 0);
    t->zero = (int)ir_attr_int(op, "zero", 0);
    t->group = t->qt->dims[2]->value * (t->nibbles ? 2 : 1);
    t->k = dim_const(l->m->dims, t->qt->dims[1]->value * t->group);
    t->n = op->results[0].type.dims[t->rank - 1];
    t->matrix_panels = (t->n->value + 63) / 64;
    return true;
}

/* A qmatmul: flat, unless each plane of x has a matrix of its own. */
static bool setup_quant(struct mm *t)
{
    struct lower_ctx *l = t->l;
    const struct ir_op *op = l->anchor;
    if (!op || op->code != IR_OP_QMATMUL || !lower_tile_epilogue_ok(l)) return false;
    t->flat = ir_attr_int(op, "batch", 1) == 1;
    if (t->flat && !lower_epilogue_is_flat(l)) return false;
    if (!setup_parts(t, 1)) return false;
    t->m = op->results[0].type.dims[t->rank - 2];
    return true;
}

static bool setup(struct mm *t)
{
    struct lower_ctx *l = t->l;
    const struct ir_op *op = l->anchor;
    if (setup_quant(t)) return true;
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

/* ---- what a tuner may change ---- */

static int64_t prefetch_bytes(struct mm *t)
{
    static const int64_t dense[] = {0, 1024, 4096, 8192}, quant[] = {4096, 12288, 16384, 0};
    return lower_knob(t->l, KNOB_PREFETCH, t->quant ? QUANT_PREFETCH_BYTES : PREFETCH_BYTES, t->quant ? quant : dense, 4);
}

/* A multiple of MR; the cut decides only who does which rows. */
static int64_t row_block_rows(struct mm *t)
{
    static const int64_t others[] = {48, 192, 384};
    int64_t dflt = t->quant ? QUANT_ROW_BLOCK : t->staged_buf >= 0 ? STAGED_ROW_BLOCK : ROW_BLOCK;
    if (t->staged_buf >= 0 && dim_is_const(t->m)) { /* blocks of one size */
        int64_t n = (t->m->value + dflt - 1) / dflt, each = (t->m->value + n - 1) / n;
        dflt = (each + t->mr - 1) / t->mr * t->mr;
    } else if (!t->quant && t->staged_buf < 0 && dim_is_const(t->k) && t->k->value > 0) {
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

/* ---- experts ---- */

/* The choice (row, pick) by the panel: the expert's number is clamped, so that no id reads beyond the weights. */
static struct lp_value *expert_of(struct mm *t, struct lp_value *row, struct lp_value *pick)
{
    struct expr_ctx *e = &t->l->e;
    struct lp_value *idx[2] = {row, pick};
    struct lp_value *id = lp_cast(&e->b, lp_load(&e->b, t->ids, idx), DT_I64);
    return expr_clamp(e, id, dim_const(t->l->m->dims, ir_attr_int(t->l->anchor, "experts", 1)));
}

static void emit_choice(struct mm *t, struct lp_value *row, struct lp_value *pick, struct lp_value *expert, struct lp_value *panel)
{
    t->batch[0] = row;
    t->matrix = expert;
    emit_columns(t, pick, 1, NULL, panel);
}

struct choices {
    const struct dim *const *dims; /* rows, picks */
    struct lp_op *rows, *picks, *mine;
    struct lp_value *row, *pick;
    size_t mark;
};

/* Opens a walk over the choices of `expert`; what is emitted until choices_end runs for each. */
static struct choices choices_begin(struct mm *t, const struct dim *const *dims, struct lp_value *expert)
{
    struct expr_ctx *e = &t->l->e;
    struct choices c = {.dims = dims};
    c.rows = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, expr_dim(e, dims[0]), 1, 0, NULL);
    c.row = c.rows->regions[0]->args[0];
    c.picks = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, expr_dim(e, dims[1]), 1, 0, NULL);
    c.pick = c.picks->regions[0]->args[0];
    c.mine = lp_if_begin(&e->b, lp_binary(&e->b, LP_OP_EQ, expert_of(t, c.row, c.pick), expert), 0, NULL);
    c.mark = expr_scope_push(e);
    return c;
}

static void choices_end(struct mm *t, struct choices *c)
{
    struct expr_ctx *e = &t->l->e;
    expr_scope_pop(e, c->mark);
    lp_if_else(&e->b, c->mine, NULL);
    lp_if_end(&e->b, c->mine, NULL);
    expr_for_end(e, c->picks, NULL);
    expr_for_end(e, c->rows, NULL);
}

/* Every choice of one expert, by a panel that is taken apart once. */
static void emit_expert(struct mm *t, const struct dim *const *dims, struct lp_value *expert, struct lp_value *panel, bool unpack)
{
    if (unpack) {
        t->matrix = expert;
        unpack_panel(t, panel);
        t->unpacked = true;
    }
    struct choices c = choices_begin(t, dims, expert);
    emit_choice(t, c.row, c.pick, expert, panel);
    choices_end(t, &c);
    t->unpacked = false;
}

/*
 * Each choice [t, a] is a row by its expert's matrix. No more choices than experts (decoding): a slice is a choice and a panel.
 * More (a prompt): a slice is an expert and a panel, and looks for the choices that are its. Every output element is the
 * same chain over k in order either way, so the number of rows does not show in the bits.
 */
static enum lower_result lower_experts(struct mm *t)
{
    struct lower_ctx *l = t->l;
    if (!lower_tile_epilogue_ok(l) || !setup_parts(t, 2)) return LOWER_NOT_MINE;
    struct expr_ctx *e = &l->e;
    struct lp_builder *b = &e->b;
    struct dim_ctx *dc = l->m->dims;
    t->ids = lower_operand_of(l, ir_operand(l->anchor, 1));
    t->m = dim_const(dc, 1), t->panel = t->width = 64;
    lower_tile(l, 4, t->panel, t->m, false, &t->mr, &t->nr);
    t->prefetch = prefetch_bytes(t);
    const struct dim *const *dims = ir_operand(l->anchor, 1)->type.dims;
    const struct dim *choices = dim_mul(dc, dims[0], dims[1]), *experts = dim_const(dc, ir_attr_int(l->anchor, "experts", 1));
    lower_set_slices(l, dim_mulc(dc, dim_min(dc, choices, experts), t->matrix_panels));
    struct lp_value *s = lower_slice(l), *panels = lp_index(b, t->matrix_panels);
    struct lp_value *at = lp_binary(b, LP_OP_FLOORDIV, s, panels), *panel = lp_binary(b, LP_OP_MOD, s, panels);
    int64_t unpacked_dims[] = {t->k->value, t->panel};
    bool unpack = t->k->value * t->panel * 4 <= MAX_UNPACKED_BYTES;
    if (unpack) t->unpacked_buf = lp_add_stack(l->k, "unpacked", DT_F32, 2, unpacked_dims);
    struct lp_op *few = lp_if_begin(b, lp_binary(b, LP_OP_LE, expr_dim(e, choices), expr_dim(e, experts)), 0, NULL);
    size_t mark = expr_scope_push(e);
    struct lp_value *coord[2];
    expr_delinear(e, at, 2, dims, coord);
    emit_choice(t, coord[0], coord[1], expert_of(t, coord[0], coord[1]), panel);
    expr_scope_pop(e, mark);
    lp_if_else(b, few, NULL);
    mark = expr_scope_push(e);
    emit_expert(t, dims, at, panel, unpack);
    expr_scope_pop(e, mark);
    lp_if_end(b, few, NULL);
    l->k->schedule = "matmul-experts";
    l->k->claim = 1; /* experts are chosen unevenly */
    l->k->flops = dim_mulc(dc, dim_mul(dc, ir_type_elems(l->m, &l->anchor->results[0].type), t->k), 2);
    return LOWER_DONE;
}

/* ---- slices ---- */

/*
 * A last panel with few columns is computed by narrow tiles, of as many more rows a slice: t's tile and width become theirs.
 * False: the last panel is like the others.
 */
static bool narrow_last(struct mm *t)
{
    if ((!t->packed && t->staged_buf < 0) || t->quant || !dim_is_const(t->n) || t->n->value <= t->panel) return false;
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
        lp_store_tile(b, t->staged_buf, idx, load_b(t, panel, col, k, columns_there(t, panel, col)), 0, 1, NULL, NULL);
    }
    expr_for_end(e, loop, NULL);
}

static void emit_rows_staged(struct mm *t, struct lp_value *lo, struct lp_value *hi, struct lp_value *panel)
{
    struct expr_ctx *e = &t->l->e;
    struct lp_builder *b = &e->b;
    struct lp_op *many = NULL;
    size_t mark = 0;
    if (!dim_is_const(t->m)) {
        many = lp_if_begin(b, lp_binary(b, LP_OP_GE, lp_binary(b, LP_OP_SUB, hi, lo), lp_index(b, STAGED_ROWS)), 0, NULL);
        mark = expr_scope_push(e);
    }
    stage_panel(t, panel);
    t->staged = true;
    emit_rows(t, lo, hi, panel);
    t->staged = false;
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
    if (t->unpacked_buf >= 0) emit_rows_quant(t, lo, hi, panel);
    else if (t->staged_buf >= 0) emit_rows_staged(t, lo, hi, panel);
    else emit_rows(t, lo, hi, panel);
}

/* Slice s of those of `panels` panels; the row blocks of one panel are neighbours: the panel stays in the cache. */
static void emit_panels(struct mm *t, struct lp_value *s, const struct dim *panels, const struct dim *blocks, int64_t row_block)
{
    struct lp_builder *b = &t->l->e.b;
    struct lp_value *panel = s, *block = t->l->e.zero;
    t->walk_row = NULL;
    if (!dim_is(blocks, 1) && t->staged_buf >= 0) {
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
    struct mm t = {.l = l, .ids = -1, .unpacked_buf = -1, .staged_buf = -1};
    if (l->anchor && l->anchor->code == IR_OP_QMATMUL_EXPERTS) return lower_experts(&t);
    if (!setup(&t)) return LOWER_NOT_MINE;
    struct expr_ctx *e = &l->e;
    struct dim_ctx *dc = l->m->dims;
    if (t.flat) flatten(&t);
    int64_t n = dim_is_const(t.n) ? t.n->value : 64;
    t.panel = n > 32 || t.quant ? 64 : n > 16 ? 32 : 16;
    lower_tile(l, (int)dtype_bytes(t.acc), t.panel, t.m, false, &t.mr, &t.nr);
    if (t.packed) t.prefetch = prefetch_bytes(&t);
    if (t.packed && !t.quant) pack_b(&t);
    else if (!t.packed) t.panel = t.nr;
    t.width = t.panel;
    if (wants_stage(&t)) {
        int64_t dims[] = {t.k->value, t.nr};
        t.staged_buf = lp_add_stack(l->k, "staged", t.acc, 2, dims);
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
    int64_t unpacked_dims[] = {dim_is_const(t.k) ? t.k->value : 0, t.panel};
    t.unpacked_buf = t.quant && unpacked_dims[0] * t.panel * 4 <= MAX_UNPACKED_BYTES ? lp_add_stack(l->k, "unpacked", DT_F32, 2, unpacked_dims) : -1;
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
