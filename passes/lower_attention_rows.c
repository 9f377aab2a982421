// SPDX-License-Identifier: Apache-2.0
/*
 * Attention over a paged cache on CPUs: several rows of the batch walk the pages of their sequence together, with all query
 * heads of a kv head, so that a page is read and widened once for all of them. See passes/lower_attention.c for the layout of
 * states and for the algorithm, which is the same: online softmax, a page at a time.
 *
 * A slice is a row and a kv head. Rows come in groups of G neighbours in the batch: where all of a group belong to one sequence
 * and see the same last page (a prompt, an encoder's input), the slice of the first does the work of all, and those of the
 * others nothing; else each does its own. A group goes over the pages before the last as one tile; on the last page each row
 * adds the values of the positions that it sees.
 *
 * Bits: a row's chain of operations is the same either way: scores by ascending element, weights, then values by ascending
 * position, page by page. So they do not depend on the batch, on chunks of the prompt, or on threads. A page that a window
 * hides from some rows of a group adds zeros to them.
 *
 * Scores, weights and sums live in stack buffers between the steps of a page: tiles of the steps differ in shape.
 */
#include <math.h>

#include "passes/lower.h"
#include "passes/lower_attention.h"

#define MAX_PARTS 64
#define MAX_GROUP 8
#define SPARE_REGS 4 /* of the vector registers, beside a tile's sums */

/* Columns of V that are summed together: some, or a block, or of nibbles half of one. */
struct v_part {
    int64_t from, n; /* elements of a head */
    int width;       /* n rounded up to a power of two */
    int64_t at;      /* in the buffer of sums */
};

struct rows {
    struct lower_ctx *l;
    struct expr_ctx *e;
    const struct ir_op *op;
    int q, k, v, positions, seq_of, table, k_scale, v_scale, out; /* buffers */
    int q_buf, s_buf, acc_buf;             /* stack: scaled q, scores then weights, values */
    int m_buf, l_buf, base_buf, c_buf;     /* of each tile row: maximum, sum; the page's maximum, then what scores count from; factor */
    int64_t page, d, dv, k_block, v_block;
    int heads, group; /* query heads a kv head; rows of the batch that go together */
    bool nibbles;
    struct lp_value *row, *head, *kv_head, *seq, *last; /* row: first of those at work; last: page number to stop at */
};

static struct lp_value *f32(struct rows *a, double v) { return lp_const_f(&a->e->b, lp_scalar(DT_F32), v); }

static struct lp_value *load_i64(struct rows *a, int buf, struct lp_value *i)
{
    struct lp_value *idx[1] = {i};
    return lp_cast(&a->e->b, lp_load(&a->e->b, buf, idx), DT_I64);
}

static struct lp_op *loop_begin(struct rows *a, int64_t n)
{
    return expr_for_begin(a->e, LP_LOOP_SERIAL, a->e->zero, lp_index(&a->e->b, n), 1, 0, NULL);
}

/* Of tile row i: the row of the batch, and the query head. */
static struct lp_value *batch_row(struct rows *a, struct lp_value *i)
{
    struct lp_builder *b = &a->e->b;
    return lp_binary(b, LP_OP_ADD, a->row, lp_binary(b, LP_OP_FLOORDIV, i, lp_index(b, a->heads)));
}

static struct lp_value *query_head(struct rows *a, struct lp_value *i)
{
    struct lp_builder *b = &a->e->b;
    return lp_binary(b, LP_OP_ADD, a->head, lp_binary(b, LP_OP_MOD, i, lp_index(b, a->heads)));
}

static struct lp_value *first_seen(struct rows *a, struct lp_value *pos)
{
    struct lp_builder *b = &a->e->b;
    int64_t window = ir_attr_int(a->op, "window", 0);
    if (window <= 0) return a->e->zero;
    return lp_binary(b, LP_OP_MAX, a->e->zero, lp_binary(b, LP_OP_SUB, pos, lp_index(b, window - 1)));
}

static void store_f32(struct rows *a, int buf, struct lp_value *i, struct lp_value *v)
{
    struct lp_value *idx[1] = {i};
    lp_store(&a->e->b, buf, idx, v);
}

static struct lp_value *load_f32(struct rows *a, int buf, struct lp_value *i)
{
    struct lp_value *idx[1] = {i};
    return lp_load(&a->e->b, buf, idx);
}

/* ---- what caches hold ---- */

enum half { ALL, LOW, HIGH };

static struct lp_value *stored(struct rows *a, struct lp_value *bytes, enum half half)
{
    struct lp_builder *b = &a->e->b;
    struct lp_type u8 = lp_scalar(DT_U8);
    if (half == ALL) return lp_cast(b, bytes, DT_F32);
    bytes = half == LOW ? lp_binary(b, LP_OP_AND, bytes, lp_const_i(b, u8, 15)) : lp_binary(b, LP_OP_SHR, bytes, lp_const_i(b, u8, 4));
    return lp_binary(b, LP_OP_SUB, lp_cast(b, bytes, DT_F32), f32(a, 8));
}

/* Widest power of two of columns that so many rows have registers for, at most `most`. */
static int columns_for(const struct rows *a, int rows, int64_t most)
{
    const struct target_level *level = a->l->level;
    int lanes = level->vector_bytes / 4, vectors = (level->n_vector_regs - SPARE_REGS) / rows, width = lanes;
    while (width * 2 <= lanes * vectors) width *= 2;
    while (width > most) width /= 2;
    return width;
}

/* Rows of a tile: all `rows`, or as many as have registers for a vector of columns each. */
static int tile_rows(const struct rows *a, int rows)
{
    int most = a->l->level->n_vector_regs - SPARE_REGS;
    while (rows > most) rows = (rows + 1) / 2;
    return rows;
}

/* ---- scores ---- */

/* The lines that the next page is read from, while this one is. */
static void prefetch(struct rows *a, int buf, struct lp_value *next, struct lp_value *position, struct lp_value *element, int64_t n)
{
    struct lp_builder *b = &a->e->b;
    int64_t line = 64 / (int64_t)dtype_bytes(a->l->k->bufs.v[buf].dtype);
    bool along = position == a->e->zero; /* K: positions lie side by side */
    for (int64_t i = 0; i < n; i += line) {
        struct lp_value *at = along ? position : element, *moved = i ? lp_binary(b, LP_OP_ADD, at, lp_index(b, i)) : at;
        struct lp_value *idx[4] = {next, along ? moved : position, a->kv_head, along ? element : moved};
        lp_prefetch(b, buf, idx);
    }
}

struct step {
    struct lp_value *page, *next, *first_row; /* tile row that the tile begins with */
    int rows, width;
    int64_t position; /* first of the columns */
};

static struct lp_value *load_q(struct rows *a, const struct step *s, struct lp_value *d)
{
    struct lp_value *idx[2] = {s->first_row, d};
    return lp_load_tile(&a->e->b, a->q_buf, idx, s->rows, 1, 0, 1, NULL, NULL);
}

/* acc + q . k over elements [from, from + n) of a head; they lie in n (of nibbles n / 2) rows from `row`. */
static struct lp_value *add_scores(struct rows *a, const struct step *s, struct lp_value *from, struct lp_value *row, int64_t n, struct lp_value *acc)
{
    struct expr_ctx *e = a->e;
    struct lp_builder *b = &e->b;
    struct lp_value *count = lp_index(b, a->nibbles ? n / 2 : n);
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, count, 1, 1, &acc);
    struct lp_value *i = loop->regions[0]->args[0], *next = loop->regions[0]->args[1];
    struct lp_value *idx[4] = {s->page, lp_index(b, s->position), a->kv_head, expr_iadd(e, row, i)}, *d = expr_iadd(e, from, i);
    if (s->position == 0) prefetch(a, a->k, s->next, e->zero, idx[3], a->page);
    struct lp_value *k = lp_load_tile(b, a->k, idx, 1, s->width, 0, 1, NULL, NULL);
    next = lp_mma(b, next, load_q(a, s, d), stored(a, k, a->nibbles ? LOW : ALL), 1);
    if (a->nibbles) next = lp_mma(b, next, load_q(a, s, expr_iadd(e, d, count)), stored(a, k, HIGH), 1);
    expr_for_end(e, loop, &next);
    return loop->results[0];
}

static struct lp_value *dots(struct rows *a, const struct step *s)
{
    struct expr_ctx *e = a->e;
    struct lp_builder *b = &e->b;
    struct lp_value *none = lp_const_f(b, lp_tile(DT_F32, s->rows, s->width), 0), *sum = none;
    if (!a->k_block) return add_scores(a, s, e->zero, e->zero, a->d, none);
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, lp_index(b, a->d / a->k_block), 1, 1, &sum);
    struct lp_value *block = loop->regions[0]->args[0], *idx[4] = {s->page, lp_index(b, s->position), a->kv_head, block};
    struct lp_value *row = expr_imul(e, block, lp_index(b, a->nibbles ? a->k_block / 2 : a->k_block));
    struct lp_value *dot = add_scores(a, s, expr_imul(e, block, lp_index(b, a->k_block)), row, a->k_block, none);
    struct lp_value *scale = lp_cast(b, lp_load_tile(b, a->k_scale, idx, 1, s->width, 0, 1, NULL, NULL), DT_F32);
    struct lp_value *next = lp_binary(b, LP_OP_ADD, loop->regions[0]->args[1], lp_binary(b, LP_OP_MUL, dot, scale));
    expr_for_end(e, loop, &next);
    return loop->results[0];
}

/* q . k of tile rows [0, rows) and all positions of a page, to s_buf. */
static void emit_scores(struct rows *a, struct lp_value *page, struct lp_value *next, int rows)
{
    struct lp_builder *b = &a->e->b;
    int tile = tile_rows(a, rows), width = columns_for(a, tile, a->page);
    for (int64_t first = 0; first < rows; first += tile)
        for (int64_t position = 0; position < a->page; position += width) {
            size_t mark = expr_scope_push(a->e);
            struct step s = {.page = page, .next = next, .first_row = lp_index(b, first), .width = width, .position = position,
                             .rows = (int)(rows - first < tile ? rows - first : tile)};
            struct lp_value *idx[2] = {s.first_row, lp_index(b, position)};
            lp_store_tile(b, a->s_buf, idx, dots(a, &s), 0, 1, NULL, NULL);
            expr_scope_pop(a->e, mark);
        }
}

/* The scores of tile row i that count; unseen ones are -inf. */
static struct lp_value *seen_scores(struct rows *a, struct lp_value *page_no, struct lp_value *i)
{
    struct expr_ctx *e = a->e;
    struct lp_builder *b = &e->b;
    struct lp_value *idx[2] = {i, e->zero}, *pos = load_i64(a, a->positions, batch_row(a, i));
    struct lp_value *s = lp_load_tile(b, a->s_buf, idx, 1, (int)a->page, 0, 1, NULL, NULL);
    double cap = ir_attr_float(a->op, "softcap", 0);
    if (cap > 0) s = lp_binary(b, LP_OP_MUL, lp_unary(b, LP_OP_TANH, lp_binary(b, LP_OP_MUL, s, f32(a, 1 / cap))), f32(a, cap));
    struct lp_value *start = lp_binary(b, LP_OP_MUL, page_no, lp_index(b, a->page));
    struct lp_value *p = lp_binary(b, LP_OP_ADD, lp_iota(b, DT_I64, (int)a->page), start);
    struct lp_value *seen = lp_binary(b, LP_OP_AND, lp_binary(b, LP_OP_LE, p, pos), lp_binary(b, LP_OP_GE, p, first_seen(a, pos)));
    /* What lies in unseen slots of the page may be anything, NaN too: selected away, never multiplied. */
    return lp_select(b, seen, s, f32(a, -(double)INFINITY));
}

/* Of all tile rows at once: running maxima, what the sums so far are multiplied by, and the sums by it. */
static void emit_maxima(struct rows *a, int rows)
{
    struct expr_ctx *e = a->e;
    struct lp_builder *b = &e->b;
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_VECTOR, e->zero, lp_index(b, rows), 1, 0, NULL);
    struct lp_value *i = loop->regions[0]->args[0], *to[2] = {e->zero, i}, *old = load_f32(a, a->m_buf, i);
    struct lp_value *m = lp_binary(b, LP_OP_MAX, old, load_f32(a, a->base_buf, i));
    /* A page that a window hides wholly leaves m at -inf: count from 0 then, all its weights are 0. */
    struct lp_value *base = lp_select(b, lp_binary(b, LP_OP_EQ, m, f32(a, -(double)INFINITY)), f32(a, 0), m);
    struct lp_value *c = lp_unary(b, LP_OP_EXP, lp_binary(b, LP_OP_SUB, old, base));
    store_f32(a, a->m_buf, i, m);
    store_f32(a, a->base_buf, i, base);
    lp_store(b, a->c_buf, to, c);
    store_f32(a, a->l_buf, i, lp_binary(b, LP_OP_MUL, load_f32(a, a->l_buf, i), c));
    expr_for_end(e, loop, NULL);
}

/* Scores to weights; the running maxima and sums. Steps for all tile rows, so that one row need not wait for another. */
static void emit_weights(struct rows *a, struct lp_value *page_no, int rows)
{
    struct expr_ctx *e = a->e;
    struct lp_builder *b = &e->b;
    struct lp_op *loop = loop_begin(a, rows);
    struct lp_value *i = loop->regions[0]->args[0], *idx[2] = {i, e->zero}, *s = seen_scores(a, page_no, i);
    lp_store_tile(b, a->s_buf, idx, s, 0, 1, NULL, NULL);
    store_f32(a, a->base_buf, i, lp_reduce(b, LP_RED_MAX, s));
    expr_for_end(e, loop, NULL);
    emit_maxima(a, rows);
    loop = loop_begin(a, rows);
    i = idx[0] = loop->regions[0]->args[0];
    s = lp_load_tile(b, a->s_buf, idx, 1, (int)a->page, 0, 1, NULL, NULL);
    struct lp_value *w = lp_unary(b, LP_OP_EXP, lp_binary(b, LP_OP_SUB, s, load_f32(a, a->base_buf, i)));
    lp_store_tile(b, a->s_buf, idx, w, 0, 1, NULL, NULL);
    store_f32(a, a->l_buf, i, lp_binary(b, LP_OP_ADD, load_f32(a, a->l_buf, i), lp_reduce(b, LP_RED_ADD, w)));
    expr_for_end(e, loop, NULL);
}

/* ---- values ---- */

/* The parts that hold the first dv elements of a row, of `width` columns where V's format leaves the choice; their number, 0: too many. */
static int parts_of(const struct rows *a, int width, struct v_part *parts)
{
    int64_t n = !a->v_block ? width : a->nibbles ? a->v_block / 2 : a->v_block, at = 0;
    int count = 0;
    for (int64_t from = 0; from < a->dv; from += n) {
        int64_t here = !a->v_block && a->dv - from < n ? a->dv - from : n;
        int w = 1;
        while (w < here) w *= 2;
        if (count == MAX_PARTS || w > 1024) return 0;
        parts[count++] = (struct v_part){from, here, w, at};
        at += w;
    }
    return count;
}

/* Columns of the buffer of sums, whatever the parts' width. */
static int64_t sum_columns(const struct rows *a)
{
    struct v_part parts[MAX_PARTS];
    int64_t most = 0;
    for (int width = a->l->level->vector_bytes / 4; width <= 1024; width *= 2) {
        int n = parts_of(a, width, parts);
        if (n && parts[n - 1].at + parts[n - 1].width > most) most = parts[n - 1].at + parts[n - 1].width;
    }
    return most;
}

/* The elements of part p of V's row j of a page, as f32. */
static struct lp_value *load_v(struct rows *a, struct lp_value *page, struct lp_value *j, const struct v_part *p)
{
    struct lp_builder *b = &a->e->b;
    int64_t block = a->v_block ? p->from / a->v_block : 0, first = p->from;
    enum half half = ALL;
    if (a->nibbles) {
        half = p->from % a->v_block ? HIGH : LOW;
        first = block * (a->v_block / 2);
    }
    struct lp_value *idx[4] = {page, j, a->kv_head, lp_index(b, first)}, *at[4] = {page, j, a->kv_head, lp_index(b, block)};
    struct lp_value *ncols = p->width != p->n ? lp_index(b, p->n) : NULL;
    struct lp_value *v = stored(a, lp_load_tile(b, a->v, idx, 1, p->width, 0, 3, NULL, ncols), half);
    return a->v_block ? lp_binary(b, LP_OP_MUL, v, lp_cast(b, lp_load(b, a->v_scale, at), DT_F32)) : v;
}

/* Tile rows [first, first + rows): their sums times what the maximum's change makes, plus weights times values of [0, count). */
static void add_values(struct rows *a, struct lp_value *page, struct lp_value *next, struct lp_value *first, int rows, struct lp_value *count,
                       const struct v_part *p, bool ahead)
{
    struct expr_ctx *e = a->e;
    struct lp_builder *b = &e->b;
    struct lp_value *idx[2] = {first, lp_index(b, p->at)}, *at[2] = {e->zero, first};
    struct lp_value *acc = lp_load_tile(b, a->acc_buf, idx, rows, p->width, 0, 1, NULL, NULL);
    acc = lp_binary(b, LP_OP_MUL, acc, lp_load_tile(b, a->c_buf, at, rows, 1, 1, 0, NULL, NULL));
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, count, 1, 1, &acc);
    struct lp_value *j = loop->regions[0]->args[0], *w[2] = {first, j};
    if (ahead) prefetch(a, a->v, next, j, e->zero, a->dv);
    acc = lp_mma(b, loop->regions[0]->args[1], lp_load_tile(b, a->s_buf, w, rows, 1, 0, 1, NULL, NULL), load_v(a, page, j, p), 1);
    expr_for_end(e, loop, &acc);
    lp_store_tile(b, a->acc_buf, idx, loop->results[0], 0, 1, NULL, NULL);
}

/* The same for each tile and part. */
static void emit_values(struct rows *a, struct lp_value *page, struct lp_value *next, struct lp_value *base, int rows, struct lp_value *count)
{
    struct v_part parts[MAX_PARTS];
    int tile = tile_rows(a, rows), n = parts_of(a, columns_for(a, tile, 1024), parts);
    for (int64_t first = 0; first < rows; first += tile)
        for (int i = 0; i < n; i++) {
            size_t mark = expr_scope_push(a->e);
            struct lp_value *from = lp_binary(&a->e->b, LP_OP_ADD, base, lp_index(&a->e->b, first));
            add_values(a, page, next, from, (int)(rows - first < tile ? rows - first : tile), count, &parts[i], !first && !i);
            expr_scope_pop(a->e, mark);
        }
}

/* ---- rows ---- */

/* Scaled q of tile rows [0, rows); nothing seen yet. */
static void emit_start(struct rows *a, int rows, int64_t acc_cols)
{
    struct expr_ctx *e = a->e;
    struct lp_builder *b = &e->b;
    struct lp_op *loop = loop_begin(a, rows);
    struct lp_value *i = loop->regions[0]->args[0], *t = batch_row(a, i), *h = query_head(a, i);
    struct lp_op *elems = expr_for_begin(e, LP_LOOP_VECTOR, e->zero, lp_index(b, a->d), 1, 0, NULL);
    struct lp_value *d = elems->regions[0]->args[0], *from[3] = {t, h, d}, *to[2] = {i, d};
    struct lp_value *q = lp_cast(b, lp_load(b, a->q, from), DT_F32);
    lp_store(b, a->q_buf, to, lp_binary(b, LP_OP_MUL, q, f32(a, ir_attr_float(a->op, "scale", 1))));
    expr_for_end(e, elems, NULL);
    store_f32(a, a->m_buf, i, f32(a, -(double)INFINITY));
    store_f32(a, a->l_buf, i, f32(a, 0));
    elems = expr_for_begin(e, LP_LOOP_VECTOR, e->zero, lp_index(b, acc_cols), 1, 0, NULL);
    to[1] = elems->regions[0]->args[0];
    lp_store(b, a->acc_buf, to, f32(a, 0));
    expr_for_end(e, elems, NULL);
    expr_for_end(e, loop, NULL);
}

static void emit_results(struct rows *a, int rows)
{
    struct expr_ctx *e = a->e;
    struct lp_builder *b = &e->b;
    struct v_part parts[MAX_PARTS];
    int n = parts_of(a, columns_for(a, 1, 64), parts);
    struct lp_op *loop = loop_begin(a, rows);
    struct lp_value *i = loop->regions[0]->args[0], *t = batch_row(a, i), *h = query_head(a, i), *sum = load_f32(a, a->l_buf, i), *one = f32(a, 1);
    struct lp_value *inv = lp_binary(b, LP_OP_DIV, one, lp_select(b, lp_binary(b, LP_OP_EQ, sum, f32(a, 0)), one, sum));
    for (int k = 0; k < n; k++) {
        struct lp_value *from[2] = {i, lp_index(b, parts[k].at)}, *to[3] = {t, h, lp_index(b, parts[k].from)};
        int64_t there = a->dv - parts[k].from < parts[k].n ? a->dv - parts[k].from : parts[k].n;
        struct lp_value *v = lp_binary(b, LP_OP_MUL, lp_load_tile(b, a->acc_buf, from, 1, parts[k].width, 0, 1, NULL, NULL), inv);
        lp_store_tile(b, a->out, to, lp_cast(b, v, a->op->results[0].type.dtype), 0, 2, NULL, parts[k].width != there ? lp_index(b, there) : NULL);
    }
    expr_for_end(e, loop, NULL);
}

static struct lp_value *page_at(struct rows *a, struct lp_value *page_no)
{
    struct lp_value *entry[2] = {a->seq, page_no};
    return lp_cast(&a->e->b, lp_load(&a->e->b, a->table, entry), DT_I64);
}

/* Number of the page that follows, or of the last one. */
static struct lp_value *page_after(struct rows *a, struct lp_value *page_no)
{
    struct lp_builder *b = &a->e->b;
    return page_at(a, lp_binary(b, LP_OP_MIN, lp_binary(b, LP_OP_ADD, page_no, a->e->one), a->last));
}

/* The row by itself. */
static void emit_single(struct rows *a, int64_t acc_cols)
{
    struct expr_ctx *e = a->e;
    struct lp_builder *b = &e->b;
    struct lp_value *size = lp_index(b, a->page), *pos = load_i64(a, a->positions, a->row);
    emit_start(a, a->heads, acc_cols);
    a->last = lp_binary(b, LP_OP_FLOORDIV, pos, size);
    struct lp_value *lo = lp_binary(b, LP_OP_FLOORDIV, first_seen(a, pos), size);
    struct lp_op *pages = expr_for_begin(e, LP_LOOP_SERIAL, lo, lp_binary(b, LP_OP_ADD, a->last, e->one), 1, 0, NULL);
    struct lp_value *page_no = pages->regions[0]->args[0], *page = page_at(a, page_no), *next = page_after(a, page_no);
    emit_scores(a, page, next, a->heads);
    emit_weights(a, page_no, a->heads);
    struct lp_value *count = lp_binary(b, LP_OP_SUB, lp_binary(b, LP_OP_ADD, pos, e->one), lp_binary(b, LP_OP_MUL, page_no, size));
    emit_values(a, page, next, e->zero, a->heads, lp_binary(b, LP_OP_MIN, count, size));
    expr_for_end(e, pages, NULL);
    emit_results(a, a->heads);
}

/* The last page of a group: every row by the positions that it sees. */
static void emit_last_page(struct rows *a)
{
    struct expr_ctx *e = a->e;
    struct lp_builder *b = &e->b;
    struct lp_value *page = page_at(a, a->last);
    emit_scores(a, page, page, a->heads * a->group);
    emit_weights(a, a->last, a->heads * a->group);
    struct lp_op *loop = loop_begin(a, a->group);
    struct lp_value *r = loop->regions[0]->args[0], *pos = load_i64(a, a->positions, lp_binary(b, LP_OP_ADD, a->row, r));
    struct lp_value *count = lp_binary(b, LP_OP_SUB, lp_binary(b, LP_OP_ADD, pos, e->one), lp_binary(b, LP_OP_MUL, a->last, lp_index(b, a->page)));
    emit_values(a, page, page, lp_binary(b, LP_OP_MUL, r, lp_index(b, a->heads)), a->heads, count);
    expr_for_end(e, loop, NULL);
}

/* The group that begins with the row. */
static void emit_group(struct rows *a, int64_t acc_cols)
{
    struct expr_ctx *e = a->e;
    struct lp_builder *b = &e->b;
    struct lp_value *size = lp_index(b, a->page), *lo = NULL;
    int rows = a->heads * a->group;
    for (int r = 0; r < a->group; r++) {
        struct lp_value *first = first_seen(a, load_i64(a, a->positions, lp_binary(b, LP_OP_ADD, a->row, lp_index(b, r))));
        lo = lo ? lp_binary(b, LP_OP_MIN, lo, first) : first;
    }
    emit_start(a, rows, acc_cols);
    a->last = lp_binary(b, LP_OP_FLOORDIV, load_i64(a, a->positions, a->row), size);
    struct lp_op *pages = expr_for_begin(e, LP_LOOP_SERIAL, lp_binary(b, LP_OP_FLOORDIV, lo, size), a->last, 1, 0, NULL);
    struct lp_value *page_no = pages->regions[0]->args[0], *page = page_at(a, page_no), *next = page_after(a, page_no);
    emit_scores(a, page, next, rows);
    emit_weights(a, page_no, rows);
    emit_values(a, page, next, e->zero, rows, size);
    expr_for_end(e, pages, NULL);
    struct lp_op *any = lp_if_begin(b, lp_binary(b, LP_OP_GE, a->last, e->zero), 0, NULL);
    size_t mark = expr_scope_push(e);
    emit_last_page(a);
    expr_scope_pop(e, mark);
    lp_if_else(b, any, NULL);
    lp_if_end(b, any, NULL);
    emit_results(a, rows);
}

/* Do rows [begin, begin + group) go together? Rows beyond the batch are looked at in its last one's place. */
static struct lp_value *together(struct rows *a, struct lp_value *begin)
{
    struct expr_ctx *e = a->e;
    struct lp_builder *b = &e->b;
    struct lp_value *size = lp_index(b, a->page), *n = expr_dim(e, ir_operand(a->op, 0)->type.dims[0]);
    struct lp_value *yes = lp_binary(b, LP_OP_LE, lp_binary(b, LP_OP_ADD, begin, lp_index(b, a->group)), n);
    struct lp_value *seq = load_i64(a, a->seq_of, begin), *page = lp_binary(b, LP_OP_FLOORDIV, load_i64(a, a->positions, begin), size);
    for (int r = 1; r < a->group; r++) {
        struct lp_value *t = lp_binary(b, LP_OP_MIN, lp_binary(b, LP_OP_ADD, begin, lp_index(b, r)), lp_binary(b, LP_OP_SUB, n, e->one));
        yes = lp_binary(b, LP_OP_AND, yes, lp_binary(b, LP_OP_EQ, load_i64(a, a->seq_of, t), seq));
        struct lp_value *its = lp_binary(b, LP_OP_FLOORDIV, load_i64(a, a->positions, t), size);
        yes = lp_binary(b, LP_OP_AND, yes, lp_binary(b, LP_OP_EQ, its, page));
    }
    return yes;
}

static void emit_row(struct rows *a, int64_t acc_cols)
{
    struct expr_ctx *e = a->e;
    struct lp_builder *b = &e->b;
    if (a->group == 1) {
        emit_single(a, acc_cols);
        return;
    }
    struct lp_value *place = lp_binary(b, LP_OP_MOD, a->row, lp_index(b, a->group));
    struct lp_op *grouped = lp_if_begin(b, together(a, lp_binary(b, LP_OP_SUB, a->row, place)), 0, NULL);
    size_t mark = expr_scope_push(e);
    struct lp_op *leads = lp_if_begin(b, lp_binary(b, LP_OP_EQ, place, e->zero), 0, NULL);
    size_t inner = expr_scope_push(e);
    emit_group(a, acc_cols);
    expr_scope_pop(e, inner);
    lp_if_else(b, leads, NULL);
    lp_if_end(b, leads, NULL);
    expr_scope_pop(e, mark);
    lp_if_else(b, grouped, NULL);
    mark = expr_scope_push(e);
    emit_single(a, acc_cols);
    expr_scope_pop(e, mark);
    lp_if_end(b, grouped, NULL);
}

/* ---- setup ---- */

static bool shape_of(struct rows *a)
{
    struct attention_shape s;
    if (!attention_shape_of(a->op, &s)) return false;
    a->page = s.page, a->d = s.d, a->dv = s.dv, a->heads = s.heads, a->nibbles = s.nibbles, a->k_block = s.k_block, a->v_block = s.v_block;
    /* Two vectors of columns for each row of a tile. */
    a->group = 1;
    int most = (a->l->level->n_vector_regs - SPARE_REGS) / 2;
    while (a->group < MAX_GROUP && 2 * a->group * a->heads <= most) a->group *= 2;
    struct v_part parts[MAX_PARTS];
    return parts_of(a, a->l->level->vector_bytes / 4, parts) > 0;
}

enum lower_result lower_attention_rows(struct lower_ctx *l)
{
    const struct ir_op *op = l->anchor;
    if (!op || op->code != IR_OP_PAGED_ATTENTION || ir_operand(l->yield, 0) != &op->results[0]) return LOWER_NOT_MINE;
    struct rows a = {.l = l, .e = &l->e, .op = op, .out = lower_result_buf(l, 0)};
    int *const bufs[] = {&a.q, &a.k, &a.v, &a.positions, &a.seq_of, &a.table, &a.k_scale, &a.v_scale};
    for (int i = 0; i < op->n_operands; i++)
        if ((*bufs[i] = lower_operand_of(l, ir_operand(op, i))) < 0) return LOWER_NOT_MINE;
    if (!shape_of(&a)) return LOWER_NOT_MINE;
    attention_layout(l, a.k, a.k_block ? a.k_scale : -1);
    int64_t rows = (int64_t)a.heads * a.group, acc_cols = sum_columns(&a);
    int64_t q_dims[] = {rows, a.d}, s_dims[] = {rows, a.page}, acc_dims[] = {rows, acc_cols}, c_dims[] = {1, rows};
    a.q_buf = lp_add_stack(l->k, "q", DT_F32, 2, q_dims), a.s_buf = lp_add_stack(l->k, "weights", DT_F32, 2, s_dims);
    a.m_buf = lp_add_stack(l->k, "maximum", DT_F32, 1, &rows), a.l_buf = lp_add_stack(l->k, "sum", DT_F32, 1, &rows);
    a.base_buf = lp_add_stack(l->k, "base", DT_F32, 1, &rows);
    a.c_buf = lp_add_stack(l->k, "factor", DT_F32, 2, c_dims), a.acc_buf = lp_add_stack(l->k, "values", DT_F32, 2, acc_dims);
    const struct dim *axes[2] = {ir_operand(op, 0)->type.dims[0], ir_operand(op, 1)->type.dims[2]};
    lower_set_slices(l, dim_mul(l->m->dims, axes[0], axes[1]));
    struct lp_value *coord[2];
    expr_delinear(a.e, lower_slice(l), 2, axes, coord);
    a.row = coord[0], a.kv_head = coord[1];
    a.head = lp_binary(&a.e->b, LP_OP_MUL, a.kv_head, lp_index(&a.e->b, a.heads));
    a.seq = load_i64(&a, a.seq_of, a.row);
    emit_row(&a, acc_cols);
    l->k->schedule = "attention";
    l->k->claim = 1; /* rows further on see more positions */
    return LOWER_DONE;
}
