// SPDX-License-Identifier: Apache-2.0
/*
 * Attention over a paged cache on a GPU's tensor units (FlashAttention, Dao et al. 2022; splitting K and V as Flash-Decoding does).
 *
 * A slice is a tile of 16 rows a warp: query rows of one sequence, each with all query heads of one kv head. Pages are walked in
 * order with a running maximum, sum and weighted values, in chunks of CHUNK_PAGES pages that begin at absolute positions: each chunk
 * starts from nothing and is then merged into what came before. A row's bits are those of this arithmetic alone, whoever does it:
 *
 *   tiles   rows that begin at a multiple of the tile's and are of one sequence (prompts), four warps or fewer, chunks one by one
 *   split   any other rows of a small batch: a slice a chunk, whose result goes to scratch memory ...
 *   merge   ... where the chunks of a row are merged
 *   single  any other rows of a larger batch: a slice a row, chunks one by one
 *
 * A page or chunk that a row does not see changes nothing: exp(0) = 1, exp(-inf) = 0, and zeros added to sums (-0 becomes 0 at the end).
 * Only rows of one sequence share a tile, and no position beyond the greatest of them is read: an infinity in V reaches rows
 * before it in the tile, but never another sequence.
 *
 * Operands of the units are f16 or bf16. q (over a power of two that brings its row below 2) and the weights (times 2^14) are
 * split into parts, two of f16 or three of bf16, so that products have the bits of f32 as elsewhere. Elements of f8 (e4m3) are exact in
 * f16, those of blocks in bf16; the scale of a block of K multiplies the scores, that of V the weights. A block of nibbles is two
 * tiles: the low halves of its bytes are its first elements, the high ones the others.
 */
#include <math.h>
#include <string.h>

#include "passes/lower.h"
#include "passes/lower_attention.h"

enum { CHUNK_PAGES = 8, SPLIT_ROWS = 16, WARP_ROWS = 16, MAX_WARPS = 4, MAX_HEADS = 16, MAX_DV = 128, MAX_BLOCKS = 8, MAX_TERMS = 3 };
#define SHARED_BYTES (48 * 1024)
#define WEIGHT_SCALE 0x1p14

enum part { TILES, SPLIT, SINGLE };

struct flash {
    struct lower_ctx *l;
    struct expr_ctx *e;
    const struct ir_op *op;
    enum part part;
    int q, k, v, positions, seq_of, table, k_scale, v_scale, out, scratch; /* buffers */
    int q_buf[MAX_TERMS];
    int64_t page, d, dv, k_block, v_block, window;
    int64_t k_cols, v_cols;                  /* of a tile: the whole row, a block, or half of one */
    int heads, kv_heads, rows, group, terms; /* rows of the tile, of the batch in it; terms a number is split into */
    int n_values, halves;                    /* tiles of V's columns; tiles of a block */
    enum dtype type;                         /* of the units' operands */
    const struct dim *n_split, *n_single, *chunks;
    /* of the slice: */
    struct lp_value *base, *kv_head, *seq, *most, *least; /* first batch row; greatest and least position */
    struct lp_value *q_row, *pos, *unit;                  /* columns: row of q, position, the power of two taken out of q */
};

static struct lp_value *f32(struct flash *f, double v) { return lp_const_f(&f->e->b, lp_scalar(DT_F32), v); }
static struct lp_value *add(struct flash *f, struct lp_value *x, struct lp_value *y) { return lp_binary(&f->e->b, LP_OP_ADD, x, y); }
static struct lp_value *sub(struct flash *f, struct lp_value *x, struct lp_value *y) { return lp_binary(&f->e->b, LP_OP_SUB, x, y); }
static struct lp_value *mul(struct flash *f, struct lp_value *x, struct lp_value *y) { return lp_binary(&f->e->b, LP_OP_MUL, x, y); }
static struct lp_value *max(struct flash *f, struct lp_value *x, struct lp_value *y) { return lp_binary(&f->e->b, LP_OP_MAX, x, y); }
static struct lp_value *min(struct flash *f, struct lp_value *x, struct lp_value *y) { return lp_binary(&f->e->b, LP_OP_MIN, x, y); }
static struct lp_value *quotient(struct flash *f, struct lp_value *x, int64_t n) { return lp_binary(&f->e->b, LP_OP_FLOORDIV, x, lp_index(&f->e->b, n)); }

static struct lp_value *load_i64(struct flash *f, int buf, struct lp_value *i) { return lp_cast(&f->e->b, lp_load(&f->e->b, buf, &i), DT_I64); }

/* x, or what counts in its place when nothing was seen yet. */
static struct lp_value *base_of(struct flash *f, struct lp_value *m)
{
    struct lp_builder *b = &f->e->b;
    return lp_select(b, lp_binary(b, LP_OP_EQ, m, f32(f, -(double)INFINITY)), f32(f, 0), m);
}

static struct lp_value *exp_of(struct flash *f, struct lp_value *x, struct lp_value *base) { return lp_unary(&f->e->b, LP_OP_EXP, sub(f, x, base)); }

/* The parts of x, greatest first. */
static void split(struct flash *f, struct lp_value *x, struct lp_value **out)
{
    struct lp_builder *b = &f->e->b;
    for (int i = 0; i < f->terms; i++) {
        out[i] = lp_cast(b, x, f->type);
        if (i + 1 < f->terms) x = sub(f, x, lp_cast(b, out[i], DT_F32));
    }
}

/* ---- q ---- */

enum { Q_COLS = 16 };

/* Columns [c, c + Q_COLS) of the tile's rows of q, scaled. */
static struct lp_value *load_q(struct flash *f, struct lp_value *c)
{
    struct lp_builder *b = &f->e->b;
    struct lp_value *idx[2] = {f->q_row, c};
    struct lp_value *q = lp_cast(b, lp_load_tile(b, f->q, idx, f->rows, Q_COLS, 0, 1, NULL, NULL), DT_F32);
    return mul(f, q, f32(f, ir_attr_float(f->op, "scale", 1)));
}

/* q into shared memory. */
static void emit_q(struct flash *f)
{
    struct expr_ctx *e = f->e;
    struct lp_builder *b = &e->b;
    struct lp_value *most = lp_const_f(b, lp_tile(DT_F32, f->rows, 1), 0), *parts[MAX_TERMS];
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, lp_index(b, f->d), Q_COLS, 1, &most);
    most = lp_reduce(b, LP_RED_MAX, lp_unary(b, LP_OP_ABS, load_q(f, loop->regions[0]->args[0])));
    most = max(f, loop->regions[0]->args[1], most);
    expr_for_end(e, loop, &most);
    struct lp_value *bits = lp_bitcast(b, loop->results[0], DT_U32);
    struct lp_value *power = lp_bitcast(b, lp_binary(b, LP_OP_AND, bits, lp_const_i(b, lp_scalar(DT_U32), 0x7f800000)), DT_F32);
    f->unit = lp_select(b, lp_binary(b, LP_OP_EQ, power, f32(f, 0)), f32(f, 1), power);
    loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, lp_index(b, f->d), Q_COLS, 0, NULL);
    struct lp_value *at[2] = {e->zero, loop->regions[0]->args[0]};
    split(f, lp_binary(b, LP_OP_DIV, load_q(f, at[1]), f->unit), parts);
    for (int i = 0; i < f->terms; i++) lp_store_tile(b, f->q_buf[i], at, parts[i], 0, 1, NULL, NULL);
    expr_for_end(e, loop, NULL);
}

/* ---- a page ---- */

/* acc + q[:, from .. from + n) k, k being n x page. */
static struct lp_value *add_scores(struct flash *f, struct lp_value *acc, int64_t from, int64_t n, struct lp_value *k)
{
    struct lp_builder *b = &f->e->b;
    struct lp_value *at[2] = {f->e->zero, lp_index(b, from)};
    for (int i = 0; i < f->terms; i++) acc = lp_dot(b, acc, lp_load_tile(b, f->q_buf[i], at, f->rows, (int)n, 0, 1, NULL, NULL), k);
    return acc;
}

/* The numbers of a tile of bytes; half: of nibbles, 0 low, 1 high. */
static struct lp_value *numbers(struct flash *f, struct lp_value *x, int64_t half)
{
    struct lp_builder *b = &f->e->b;
    if (f->halves == 2) {
        struct lp_value *by = lp_const_i(b, lp_scalar(DT_U8), half ? 4 : 15);
        x = lp_cast(b, lp_binary(b, half ? LP_OP_SHR : LP_OP_AND, x, by), DT_I8);
        x = sub(f, x, lp_const_i(b, lp_scalar(DT_I8), 8));
    }
    return lp_cast(b, x, f->type);
}

/* Operands of the units from a page: they are on their way from here on, and waited for where they are used. */
struct page_tiles {
    struct lp_value *k[MAX_BLOCKS], *v[MAX_BLOCKS];
};

static void load_page(struct flash *f, struct lp_value *page, struct lp_value *count, struct page_tiles *t)
{
    struct expr_ctx *e = f->e;
    struct lp_builder *b = &e->b;
    /* Beyond the last position there may be anything, NaN too: K reads as zeros, V as the last position, whose weight is 0 there. */
    struct lp_value *rows = min(f, lp_iota_rows(b, DT_I64, (int)f->page), sub(f, count, e->one));
    for (int64_t i = 0; i < f->d / f->k_cols; i++) {
        struct lp_value *at[4] = {page, e->zero, f->kv_head, lp_index(b, i / f->halves * f->k_cols)};
        t->k[i] = numbers(f, lp_load_tile(b, f->k, at, (int)f->k_cols, (int)f->page, 3, 1, NULL, count), i % f->halves);
    }
    for (int64_t i = 0; i < f->n_values; i++) {
        struct lp_value *at[4] = {page, rows, f->kv_head, lp_index(b, i / f->halves * f->v_cols)};
        t->v[i] = numbers(f, lp_load_tile(b, f->v, at, (int)f->page, (int)f->v_cols, 1, 3, NULL, NULL), i % f->halves);
    }
}

/* Scales of block i of all positions of a page, 1 x page. */
static struct lp_value *scales(struct flash *f, int buf, struct lp_value *page, struct lp_value *count, int64_t i)
{
    struct lp_builder *b = &f->e->b;
    struct lp_value *at[4] = {page, f->e->zero, f->kv_head, lp_index(b, i)};
    return lp_cast(b, lp_load_tile(b, buf, at, 1, (int)f->page, 0, 1, NULL, count), DT_F32);
}

static struct lp_value *scores(struct flash *f, const struct page_tiles *t, struct lp_value *page, struct lp_value *start, struct lp_value *count)
{
    struct lp_builder *b = &f->e->b;
    struct lp_value *none = lp_const_f(b, lp_tile(DT_F32, f->rows, (int)f->page), 0), *s = none;
    if (!f->k_block) s = add_scores(f, none, 0, f->d, t->k[0]);
    for (int64_t i = 0; f->k_block && i < f->d / f->k_block; i++) {
        struct lp_value *part = none;
        for (int64_t h = i * f->halves; h < (i + 1) * f->halves; h++) part = add_scores(f, part, h * f->k_cols, f->k_cols, t->k[h]);
        s = add(f, s, mul(f, part, scales(f, f->k_scale, page, count, i)));
    }
    s = mul(f, s, f->unit);
    double cap = ir_attr_float(f->op, "softcap", 0);
    if (cap > 0) s = mul(f, lp_unary(b, LP_OP_TANH, mul(f, s, f32(f, 1 / cap))), f32(f, cap));
    struct lp_value *p = add(f, lp_iota(b, DT_I32, (int)f->page), lp_cast(b, start, DT_I32));
    struct lp_value *seen = lp_binary(b, LP_OP_LE, p, f->pos);
    if (f->window) {
        struct lp_value *first = sub(f, f->pos, lp_const_i(b, lp_scalar(DT_I32), f->window - 1));
        seen = lp_binary(b, LP_OP_AND, seen, lp_binary(b, LP_OP_GE, p, first));
    }
    return lp_select(b, seen, s, f32(f, -(double)INFINITY));
}

/* state: maximum, sum, values (a tile a block). */
static void one_page(struct flash *f, struct lp_value *number, struct lp_value **state)
{
    struct expr_ctx *e = f->e;
    struct lp_builder *b = &e->b;
    struct lp_value *entry[2] = {f->seq, number}, *page = lp_cast(b, lp_load(b, f->table, entry), DT_I64), *parts[MAX_TERMS];
    struct lp_value *start = mul(f, number, lp_index(b, f->page));
    struct lp_value *count = min(f, sub(f, add(f, f->most, e->one), start), lp_index(b, f->page));
    struct page_tiles t;
    load_page(f, page, count, &t);
    struct lp_value *s = scores(f, &t, page, start, count);
    struct lp_value *m = max(f, state[0], lp_reduce(b, LP_RED_MAX, s)), *base = base_of(f, m);
    struct lp_value *c = exp_of(f, state[0], base), *w = exp_of(f, s, base);
    state[0] = m;
    state[1] = add(f, mul(f, state[1], c), lp_reduce(b, LP_RED_ADD, w));
    w = mul(f, w, f32(f, WEIGHT_SCALE));
    if (!f->v_block) split(f, w, parts);
    for (int i = 0; i < f->n_values; i++) {
        if (f->v_block && i % f->halves == 0) split(f, mul(f, w, scales(f, f->v_scale, page, count, i / f->halves)), parts);
        state[2 + i] = mul(f, state[2 + i], c);
        for (int j = 0; j < f->terms; j++) state[2 + i] = lp_dot(b, state[2 + i], parts[j], t.v[i]);
    }
}

/* ---- chunks ---- */

static void nothing(struct flash *f, int rows, int cols, struct lp_value **state)
{
    struct lp_builder *b = &f->e->b;
    state[0] = lp_const_f(b, lp_tile(DT_F32, rows, 1), -(double)INFINITY);
    state[1] = lp_const_f(b, lp_tile(DT_F32, rows, 1), 0);
    for (int i = 0; i < f->n_values; i++) state[2 + i] = lp_const_f(b, lp_tile(DT_F32, rows, cols), 0);
}

static void merge(struct flash *f, struct lp_value *const *chunk, struct lp_value **state, int n_values)
{
    struct lp_value *m = max(f, state[0], chunk[0]), *base = base_of(f, m);
    struct lp_value *x = exp_of(f, state[0], base), *y = exp_of(f, chunk[0], base);
    state[0] = m;
    for (int i = 1; i < 2 + n_values; i++) state[i] = add(f, mul(f, state[i], x), mul(f, chunk[i], y));
}

/* Values over their sum. */
static struct lp_value *result(struct flash *f, struct lp_value *sum, struct lp_value *values)
{
    struct lp_builder *b = &f->e->b;
    struct lp_value *one = f32(f, 1), *inv = lp_binary(b, LP_OP_DIV, one, lp_select(b, lp_binary(b, LP_OP_EQ, sum, f32(f, 0)), one, sum));
    struct lp_value *r = add(f, mul(f, mul(f, values, f32(f, 1 / WEIGHT_SCALE)), inv), f32(f, 0));
    return lp_cast(b, r, f->op->results[0].type.dtype);
}

/* The first position that any row sees, and the pages and chunks that hold what the rows see: [lo, hi). */
struct reach {
    struct lp_value *page_lo, *page_hi, *chunk_lo, *chunk_hi;
};

static struct reach reach_of(struct flash *f)
{
    struct expr_ctx *e = f->e;
    struct lp_builder *b = &e->b;
    struct lp_value *first = f->window ? max(f, e->zero, sub(f, f->least, lp_index(b, f->window - 1))) : e->zero;
    struct reach r = {.page_lo = quotient(f, first, f->page), .page_hi = quotient(f, add(f, f->most, lp_index(b, f->page)), f->page)};
    r.chunk_lo = quotient(f, r.page_lo, CHUNK_PAGES);
    r.chunk_hi = quotient(f, add(f, r.page_hi, lp_index(b, CHUNK_PAGES - 1)), CHUNK_PAGES);
    return r;
}

/* The pages of one chunk. */
static void one_chunk(struct flash *f, const struct reach *r, struct lp_value *chunk, struct lp_value **state)
{
    struct expr_ctx *e = f->e;
    struct lp_builder *b = &e->b;
    struct lp_value *first = mul(f, chunk, lp_index(b, CHUNK_PAGES));
    nothing(f, f->rows, (int)(f->dv / f->n_values), state);
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, max(f, first, r->page_lo), min(f, add(f, first, lp_index(b, CHUNK_PAGES)), r->page_hi), 1,
                                        2 + f->n_values, state);
    memcpy(state, loop->regions[0]->args + 1, sizeof *state * (size_t)(2 + f->n_values));
    one_page(f, loop->regions[0]->args[0], state);
    expr_for_end(e, loop, state);
    memcpy(state, loop->results, sizeof *state * (size_t)(2 + f->n_values));
}

static void emit_chunks(struct flash *f)
{
    struct expr_ctx *e = f->e;
    struct lp_builder *b = &e->b;
    struct lp_value *state[2 + MAX_BLOCKS], *chunk[2 + MAX_BLOCKS], *at[2] = {f->q_row, NULL};
    struct reach r = reach_of(f);
    int cols = (int)(f->dv / f->n_values);
    nothing(f, f->rows, cols, state);
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, r.chunk_lo, r.chunk_hi, 1, 2 + f->n_values, state);
    memcpy(state, loop->regions[0]->args + 1, sizeof *state * (size_t)(2 + f->n_values));
    one_chunk(f, &r, loop->regions[0]->args[0], chunk);
    merge(f, chunk, state, f->n_values);
    expr_for_end(e, loop, state);
    struct lp_value *nrows = f->group * f->heads < f->rows ? lp_index(b, f->group * f->heads) : NULL;
    for (int i = 0; i < f->n_values; i++) {
        at[1] = lp_index(b, (int64_t)i * cols);
        lp_store_tile(b, f->out, at, result(f, loop->results[1], loop->results[2 + i]), 0, 1, nrows, NULL);
    }
}

/* One chunk to scratch: its values, then maximum and sum. */
static void emit_split(struct flash *f, struct lp_value *chunk)
{
    struct expr_ctx *e = f->e;
    struct lp_builder *b = &e->b;
    struct lp_value *state[2 + MAX_BLOCKS];
    struct reach r = reach_of(f);
    struct lp_value *there = lp_binary(b, LP_OP_AND, lp_binary(b, LP_OP_GE, chunk, r.chunk_lo), lp_binary(b, LP_OP_LT, chunk, r.chunk_hi));
    struct lp_op *branch = lp_if_begin(b, there, 0, NULL);
    size_t mark = expr_scope_push(e);
    emit_q(f);
    one_chunk(f, &r, chunk, state);
    struct lp_value *row = add(f, mul(f, f->q_row, expr_dim(e, f->chunks)), chunk), *at[2] = {row, NULL};
    struct lp_value *nrows = f->heads < f->rows ? lp_index(b, f->heads) : NULL;
    for (int i = 0; i < 2 + f->n_values; i++) {
        at[1] = lp_index(b, i < 2 ? f->dv + i : (i - 2) * (f->dv / f->n_values));
        lp_store_tile(b, f->scratch, at, state[i], 0, 1, nrows, NULL);
    }
    expr_scope_pop(e, mark);
    lp_if_else(b, branch, NULL);
    lp_if_end(b, branch, NULL);
}

/* ---- whose rows ---- */

/* Are the rows of the tile that holds `row` of one sequence, and none beyond the batch? Their greatest and least positions. */
static struct lp_value *is_tile(struct flash *f, struct lp_value *row, int64_t group)
{
    struct expr_ctx *e = f->e;
    struct lp_builder *b = &e->b;
    struct lp_value *n = expr_dim(e, ir_operand(f->op, 0)->type.dims[0]), *size = lp_index(b, group);
    struct lp_value *first = mul(f, quotient(f, row, group), size);
    struct lp_value *whole = lp_binary(b, LP_OP_LE, add(f, first, size), n);
    struct lp_value *seq = load_i64(f, f->seq_of, first), *pos = load_i64(f, f->positions, first);
    struct lp_value *carry[3] = {whole, pos, pos};
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->one, lp_select(b, whole, size, e->one), 1, 3, carry);
    struct lp_value *const *args = loop->regions[0]->args;
    struct lp_value *i = add(f, first, args[0]);
    pos = load_i64(f, f->positions, i);
    carry[0] = lp_binary(b, LP_OP_AND, args[1], lp_binary(b, LP_OP_EQ, load_i64(f, f->seq_of, i), seq));
    carry[1] = max(f, args[2], pos), carry[2] = min(f, args[3], pos);
    expr_for_end(e, loop, carry);
    if (f->part == TILES) f->most = loop->results[1], f->least = loop->results[2];
    return loop->results[0];
}

/* Columns of the tile: which row of q, whose position. */
static void set_rows(struct flash *f)
{
    struct lp_builder *b = &f->e->b;
    struct lp_value *i = min(f, lp_iota_rows(b, DT_I64, f->rows), lp_index(b, f->group * f->heads - 1));
    struct lp_value *row = add(f, f->base, quotient(f, i, f->heads)), *head = lp_binary(b, LP_OP_MOD, i, lp_index(b, f->heads));
    f->q_row = add(f, mul(f, row, lp_index(b, (int64_t)f->heads * f->kv_heads)), add(f, mul(f, f->kv_head, lp_index(b, f->heads)), head));
    f->pos = lp_cast(b, lp_load_tile(b, f->positions, &row, f->rows, 1, 0, 0, NULL, NULL), DT_I32);
}

/* Shared memory of a page's tiles, whose rows are 16 bytes longer than they need be. */
static int64_t page_bytes(const struct flash *f)
{
    return f->page * ((2 * f->k_cols + 16) * (f->d / f->k_cols) + (2 * f->v_cols + 16) * (f->dv / f->v_cols));
}

static void tile_sizes(const struct flash *f, int64_t *group, int *rows)
{
    int64_t widest = page_bytes(f);
    for (*rows = WARP_ROWS * MAX_WARPS; *rows > WARP_ROWS && widest + *rows * (2 * f->d + 16) * f->terms > SHARED_BYTES; *rows /= 2) {}
    *group = *rows / f->heads;
}

/* l->k as the kernel of one part. */
static void emit_part(struct flash *f, enum part part, int64_t tile_group, int tile_rows)
{
    struct lower_ctx *l = f->l;
    struct expr_ctx *e = f->e;
    struct lp_builder *b = &e->b;
    const struct ir_type *qt = &ir_operand(f->op, 0)->type;
    struct dim_ctx *dc = l->m->dims;
    f->part = part;
    f->rows = part == TILES ? tile_rows : WARP_ROWS, f->group = part == TILES ? (int)tile_group : 1;
    const struct dim *units = part == TILES ? dim_ceildiv(dc, qt->dims[0], dim_const(dc, tile_group)) : part == SPLIT ? f->n_split : f->n_single;
    const struct dim *axes[3] = {units, dim_const(dc, f->kv_heads), f->chunks};
    int n_axes = part == SPLIT ? 3 : 2;
    struct lp_value *coord[3];
    const struct dim *slices = axes[0];
    for (int i = 1; i < n_axes; i++) slices = dim_mul(dc, slices, axes[i]);
    lower_set_slices(l, slices);
    l->k->cta_threads = f->rows / WARP_ROWS * 32, l->k->cta_warp_rows = true;
    l->k->schedule = "attention";
    int64_t q_dims[2] = {f->rows, f->d};
    for (int i = 0; i < f->terms; i++) f->q_buf[i] = lp_add_stack(l->k, "q", f->type, 2, q_dims);
    lower_set_2d(l, f->q, dim_mulc(dc, qt->dims[0], (int64_t)f->heads * f->kv_heads), qt->dims[2]);
    lower_set_2d(l, f->out, dim_mulc(dc, qt->dims[0], (int64_t)f->heads * f->kv_heads), f->op->results[0].type.dims[2]);
    expr_delinear(e, lower_slice(l), n_axes, axes, coord);
    f->base = part == TILES ? mul(f, coord[0], lp_index(b, tile_group)) : coord[0];
    f->kv_head = coord[1];
    /* Without tiles every row is by itself. */
    struct lp_value *mine = tile_group < 2 ? lp_const_i(b, lp_scalar(DT_BOOL), 1) : is_tile(f, f->base, tile_group);
    if (part != TILES && tile_group >= 2) mine = lp_unary(b, LP_OP_NOT, mine);
    struct lp_op *branch = lp_if_begin(b, mine, 0, NULL);
    size_t mark = expr_scope_push(e);
    f->seq = load_i64(f, f->seq_of, f->base);
    if (part != TILES) f->most = f->least = load_i64(f, f->positions, f->base);
    set_rows(f);
    if (part == SPLIT) {
        emit_split(f, coord[2]);
    } else {
        emit_q(f);
        emit_chunks(f);
    }
    expr_scope_pop(e, mark);
    lp_if_else(b, branch, NULL);
    lp_if_end(b, branch, NULL);
}

/* A slice: four neighbouring values of one query head. */
static void emit_merge(struct flash *f, int64_t tile_group)
{
    enum { COLS = 4 };
    struct lower_ctx *l = f->l;
    struct expr_ctx *e = f->e;
    struct lp_builder *b = &e->b;
    struct dim_ctx *dc = l->m->dims;
    const struct ir_type *qt = &ir_operand(f->op, 0)->type;
    const struct dim *heads = dim_const(dc, (int64_t)f->heads * f->kv_heads), *axes[3] = {f->n_split, heads, dim_const(dc, f->dv / COLS)};
    struct lp_value *coord[3], *state[3], *chunk[3], *at[2];
    f->part = SPLIT, f->rows = 1, f->n_values = 1;
    lower_set_slices(l, dim_mul(dc, dim_mul(dc, axes[0], axes[1]), axes[2]));
    l->k->schedule = "attention-merge";
    lower_set_2d(l, f->out, dim_mul(dc, qt->dims[0], heads), f->op->results[0].type.dims[2]);
    expr_delinear(e, lower_slice(l), 3, axes, coord);
    struct lp_value *mine = lp_const_i(b, lp_scalar(DT_BOOL), 1), *col = mul(f, coord[2], lp_index(b, COLS));
    if (tile_group >= 2) mine = lp_unary(b, LP_OP_NOT, is_tile(f, coord[0], tile_group));
    struct lp_op *branch = lp_if_begin(b, mine, 0, NULL);
    size_t mark = expr_scope_push(e);
    struct lp_value *row = add(f, mul(f, coord[0], expr_dim(e, heads)), coord[1]), *first = mul(f, row, expr_dim(e, f->chunks));
    f->most = f->least = load_i64(f, f->positions, coord[0]);
    struct reach r = reach_of(f);
    nothing(f, 1, COLS, state);
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, r.chunk_lo, r.chunk_hi, 1, 3, state);
    memcpy(state, loop->regions[0]->args + 1, sizeof state);
    at[0] = add(f, first, loop->regions[0]->args[0]);
    for (int i = 0; i < 2; i++) {
        at[1] = lp_index(b, f->dv + i);
        chunk[i] = lp_load(b, f->scratch, at);
    }
    at[1] = col;
    chunk[2] = lp_load_tile(b, f->scratch, at, 1, COLS, 0, 1, NULL, NULL);
    merge(f, chunk, state, 1);
    expr_for_end(e, loop, state);
    at[0] = row, at[1] = col;
    lp_store_tile(b, f->out, at, result(f, loop->results[1], loop->results[2]), 0, 1, NULL, NULL);
    expr_scope_pop(e, mark);
    lp_if_else(b, branch, NULL);
    lp_if_end(b, branch, NULL);
}

/* ---- setup ---- */

static bool types_fit(struct flash *f)
{
    enum dtype k = ir_operand(f->op, 1)->type.dtype, v = ir_operand(f->op, 2)->type.dtype;
    unsigned mma = f->l->level->gpu->mma;
    f->type = k == DT_I8 || k == DT_U8 ? DT_BF16 : k == DT_F8E4M3FN ? DT_F16 : k;
    f->terms = f->type == DT_F16 ? 2 : 3;
    return k == v && (f->type == DT_F16 || f->type == DT_BF16) && (mma >> f->type & 1) && ir_operand(f->op, 0)->type.dtype == DT_F32;
}

static bool shape_fits(struct flash *f)
{
    struct attention_shape s;
    if (!attention_shape_of(f->op, &s) || s.heads > MAX_HEADS || s.dv > MAX_DV) return false;
    f->page = s.page, f->d = s.d, f->dv = s.dv, f->heads = s.heads, f->k_block = s.k_block, f->v_block = s.v_block;
    f->kv_heads = (int)ir_operand(f->op, 1)->type.dims[2]->value;
    f->window = ir_attr_int(f->op, "window", 0);
    if (f->window < 0 || f->window > INT32_MAX) return false;
    /* whole fragments and whole pieces of 16 bytes */
    for (int i = 1; i < 3; i++)
        if (ir_operand(f->op, i)->type.dims[3]->kind != DIM_CONST || ir_operand(f->op, i)->type.dims[3]->value % 16) return false;
    f->halves = s.nibbles ? 2 : 1;
    f->k_cols = f->k_block ? f->k_block / f->halves : f->d, f->v_cols = f->v_block ? f->v_block / f->halves : f->dv;
    if ((s.nibbles && !f->k_block) || !f->k_cols || !f->v_cols || f->k_block % f->halves || f->v_block % f->halves) return false;
    if (f->d % 16 || f->dv % 16 || f->k_cols % 16 || f->v_cols % 16 || f->page % 16 || f->page > 64) return false;
    if (f->k_block && (f->d % f->k_block || f->dv % f->v_block)) return false;
    if (f->d / f->k_cols > MAX_BLOCKS || f->dv / f->v_cols > MAX_BLOCKS) return false;
    f->n_values = (int)(f->dv / f->v_cols);
    return page_bytes(f) + WARP_ROWS * (2 * f->d + 16) * f->terms <= SHARED_BYTES;
}

static void add_scratch(struct flash *f)
{
    struct dim_ctx *dc = f->l->m->dims;
    const struct dim *rows = dim_mul(dc, dim_mulc(dc, f->n_split, (int64_t)f->heads * f->kv_heads), f->chunks);
    const struct dim *dims[2] = {rows, dim_const(dc, f->dv + 4)}; /* rows of whole pieces of 16 bytes */
    f->scratch = lp_add_arg(f->l->k, "chunks", DT_F32, 2, dims, true, 4);
}

enum lower_result lower_flash(struct lower_ctx *l)
{
    const struct ir_op *op = l->anchor;
    if (!l->level->gpu || !op || op->code != IR_OP_PAGED_ATTENTION || ir_operand(l->yield, 0) != &op->results[0] || l->yield->n_operands != 1) return LOWER_NOT_MINE;
    struct flash f = {.l = l, .e = &l->e, .op = op, .out = lower_result_buf(l, 0)};
    int *const bufs[] = {&f.q, &f.k, &f.v, &f.positions, &f.seq_of, &f.table, &f.k_scale, &f.v_scale};
    for (int i = 0; i < op->n_operands; i++)
        if ((*bufs[i] = lower_operand_of(l, ir_operand(op, i))) < 0) return LOWER_NOT_MINE;
    if (!types_fit(&f) || !shape_fits(&f)) return LOWER_NOT_MINE;
    struct dim_ctx *dc = l->m->dims;
    const struct dim *t = ir_operand(op, 0)->type.dims[0], *zero = dim_const(dc, 0), *one = dim_const(dc, 1);
    /* 1 for batches of more than SPLIT_ROWS rows */
    const struct dim *many = dim_max(dc, zero, dim_min(dc, one, dim_addc(dc, t, -SPLIT_ROWS)));
    f.n_single = dim_mul(dc, t, many), f.n_split = dim_mul(dc, t, dim_sub(dc, one, many));
    f.chunks = dim_ceildiv(dc, ir_operand(op, 5)->type.dims[1], dim_const(dc, CHUNK_PAGES));
    int64_t group;
    int rows;
    tile_sizes(&f, &group, &rows);
    if (group >= 2) {
        emit_part(&f, TILES, group, rows);
        lower_next(l, "tiles");
    }
    emit_part(&f, SINGLE, group, rows);
    lower_next(l, "single");
    add_scratch(&f);
    emit_part(&f, SPLIT, group, rows);
    lower_next(l, "split");
    add_scratch(&f);
    emit_merge(&f, group);
    l->k->name = lower_part_name(l, "merge");
    return LOWER_DONE;
}
