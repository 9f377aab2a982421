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
 * A row's positions are dealt out to LANES lanes in slices of SLICE, by their absolute places: lane i takes slices i, i + LANES, ..
 * Each lane has a running maximum, sum and values of its own, and lanes are merged in order. Where the batch has few rows, as in
 * decoding, lanes of a row are slices of the launch, whose sums a second kernel merges (the split of Flash-Decoding, Dao et al. 2023).
 *
 * Bits: a row's tree of operations is the same in every case: lane by lane, page by page, scores by ascending element, weights, then
 * values by ascending position. So they do not depend on the batch, on chunks of the prompt, or on threads. A page that a window
 * hides from some rows of a group adds zeros to them.
 *
 * Scores, weights and sums live in stack buffers between the steps of a page: tiles of the steps differ in shape.
 */
#include <math.h>

#include "passes/lower.h"
#include "passes/lower_attention.h"

#define MAX_GROUP 8
#define SLICE 256   /* positions that a lane takes at a time; a merge costs as much as some 8 of them */
#define LANES 8     /* of a row: as many threads can share a kv head */
#define SPARE_REGS 4 /* of the vector registers, beside a tile's sums */

/* Stack buffers: of each tile row the maximum, the sum of weights, the weighted values. */
struct sums {
    int m, l, acc;
};

struct rows {
    struct attention_cache c;  /* first: what load_q is given leads to the rest */
    int q_buf, s_buf;          /* stack: scaled q, scores then weights */
    int base_buf, c_buf;       /* of each tile row: the page's maximum, then what scores count from; factor */
    struct sums lane, total;
    int between;               /* shared with the second kernel: [rows, heads, LANES, cols + 2] */
    int64_t cols;              /* of acc */
    int64_t slice;             /* pages of a slice */
    int group;                 /* rows of the batch that go together */
    struct lp_value *row, *seq, *last; /* row: first of those at work; last: page number to stop at */
};

static struct lp_op *loop_begin(struct rows *a, int64_t n)
{
    return expr_for_begin(a->c.e, LP_LOOP_SERIAL, a->c.e->zero, lp_index(&a->c.e->b, n), 1, 0, NULL);
}

/* Of tile row i: the row of the batch, and the query head. */
static struct lp_value *batch_row(struct rows *a, struct lp_value *i)
{
    struct lp_builder *b = &a->c.e->b;
    return lp_binary(b, LP_OP_ADD, a->row, lp_binary(b, LP_OP_FLOORDIV, i, lp_index(b, a->c.s.heads)));
}

static struct lp_value *query_head(struct rows *a, struct lp_value *i)
{
    struct lp_builder *b = &a->c.e->b;
    return lp_binary(b, LP_OP_ADD, a->c.head, lp_binary(b, LP_OP_MOD, i, lp_index(b, a->c.s.heads)));
}

static void store_f32(struct rows *a, int buf, struct lp_value *i, struct lp_value *v)
{
    struct lp_value *idx[1] = {i};
    lp_store(&a->c.e->b, buf, idx, v);
}

static struct lp_value *load_f32(struct rows *a, int buf, struct lp_value *i)
{
    struct lp_value *idx[1] = {i};
    return lp_load(&a->c.e->b, buf, idx);
}

/* Widest power of two of columns that so many rows have registers for, at most `most`. */
static int columns_for(const struct rows *a, int rows, int64_t most)
{
    const struct target_level *level = a->c.l->level;
    int lanes = level->vector_bytes / 4, vectors = (level->n_vector_regs - SPARE_REGS) / rows, width = lanes;
    while (width * 2 <= lanes * vectors) width *= 2;
    while (width > most) width /= 2;
    return width;
}

/* Rows of a tile: all `rows`, or as many as have registers for a vector of columns each. */
static int tile_rows(const struct rows *a, int rows)
{
    int most = a->c.l->level->n_vector_regs - SPARE_REGS;
    while (rows > most) rows = (rows + 1) / 2;
    return rows;
}

/* ---- scores ---- */

static struct lp_value *load_q(const struct attention_cache *c, const struct attention_step *s, struct lp_value *d)
{
    const struct rows *a = (const struct rows *)c;
    struct lp_value *idx[2] = {s->first_row, d};
    return lp_load_tile(&c->e->b, a->q_buf, idx, s->rows, 1, 0, 1, NULL, NULL);
}

/* q . k of tile rows [0, rows) and all positions of a page, to s_buf. Columns that have no registers side by side go by in a loop. */
static void emit_scores(struct rows *a, struct lp_value *page, struct lp_value *next, int rows)
{
    struct expr_ctx *e = a->c.e;
    struct lp_builder *b = &e->b;
    int tile = tile_rows(a, rows), width = columns_for(a, tile, a->c.s.page);
    for (int64_t first = 0; first < rows; first += tile) {
        size_t mark = expr_scope_push(e);
        struct lp_op *loop = width < a->c.s.page ? expr_for_begin(e, LP_LOOP_SERIAL, e->zero, lp_index(b, a->c.s.page), width, 0, NULL) : NULL;
        struct attention_step s = {.load_q = load_q, .page = page, .next = first ? NULL : next, .first_row = lp_index(b, first), .width = width,
                                   .position = loop ? loop->regions[0]->args[0] : e->zero, .rows = (int)(rows - first < tile ? rows - first : tile)};
        struct lp_value *idx[2] = {s.first_row, s.position};
        lp_store_tile(b, a->s_buf, idx, attention_dots(&a->c, &s), 0, 1, NULL, NULL);
        if (loop) expr_for_end(e, loop, NULL);
        expr_scope_pop(e, mark);
    }
}

/* The scores of tile row i. */
static struct lp_value *row_scores(struct rows *a, struct lp_value *page_no, struct lp_value *i)
{
    struct expr_ctx *e = a->c.e;
    struct lp_value *idx[2] = {i, e->zero}, *pos = attention_load_i64(&a->c, a->c.positions, batch_row(a, i));
    struct lp_value *dots = lp_load_tile(&e->b, a->s_buf, idx, 1, (int)a->c.s.page, 0, 1, NULL, NULL);
    return attention_seen(&a->c, dots, page_no, pos);
}

/* Of all tile rows at once: running maxima, what the sums so far are multiplied by, and the sums by it. */
static void emit_maxima(struct rows *a, int rows)
{
    struct expr_ctx *e = a->c.e;
    struct lp_builder *b = &e->b;
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_VECTOR, e->zero, lp_index(b, rows), 1, 0, NULL);
    struct lp_value *i = loop->regions[0]->args[0], *to[2] = {e->zero, i}, *old = load_f32(a, a->lane.m, i);
    struct lp_value *m = lp_binary(b, LP_OP_MAX, old, load_f32(a, a->base_buf, i));
    /* A page that a window hides wholly leaves m at -inf: count from 0 then, all its weights are 0. */
    struct lp_value *base = lp_select(b, lp_binary(b, LP_OP_EQ, m, attention_f32(&a->c, -(double)INFINITY)), attention_f32(&a->c, 0), m);
    struct lp_value *c = lp_unary(b, LP_OP_EXP, lp_binary(b, LP_OP_SUB, old, base));
    store_f32(a, a->lane.m, i, m);
    store_f32(a, a->base_buf, i, base);
    lp_store(b, a->c_buf, to, c);
    store_f32(a, a->lane.l, i, lp_binary(b, LP_OP_MUL, load_f32(a, a->lane.l, i), c));
    expr_for_end(e, loop, NULL);
}

/* Scores to weights; the running maxima and sums. Steps for all tile rows, so that one row need not wait for another. */
static void emit_weights(struct rows *a, struct lp_value *page_no, int rows)
{
    struct expr_ctx *e = a->c.e;
    struct lp_builder *b = &e->b;
    struct lp_op *loop = loop_begin(a, rows);
    struct lp_value *i = loop->regions[0]->args[0], *idx[2] = {i, e->zero}, *s = row_scores(a, page_no, i);
    lp_store_tile(b, a->s_buf, idx, s, 0, 1, NULL, NULL);
    store_f32(a, a->base_buf, i, lp_reduce(b, LP_RED_MAX, s));
    expr_for_end(e, loop, NULL);
    emit_maxima(a, rows);
    loop = loop_begin(a, rows);
    i = idx[0] = loop->regions[0]->args[0];
    s = lp_load_tile(b, a->s_buf, idx, 1, (int)a->c.s.page, 0, 1, NULL, NULL);
    struct lp_value *w = lp_unary(b, LP_OP_EXP, lp_binary(b, LP_OP_SUB, s, load_f32(a, a->base_buf, i)));
    lp_store_tile(b, a->s_buf, idx, w, 0, 1, NULL, NULL);
    store_f32(a, a->lane.l, i, lp_binary(b, LP_OP_ADD, load_f32(a, a->lane.l, i), lp_reduce(b, LP_RED_ADD, w)));
    expr_for_end(e, loop, NULL);
}

/* ---- values ---- */

/* Columns of the buffer of sums, whatever the parts' width. */
static int64_t sum_columns(const struct rows *a)
{
    struct attention_part parts[ATTENTION_MAX_PARTS];
    int64_t most = 0;
    for (int width = a->c.l->level->vector_bytes / 4; width <= 1024; width *= 2) {
        int n = attention_parts(&a->c.s, width, parts);
        if (n && parts[n - 1].at + parts[n - 1].width > most) most = parts[n - 1].at + parts[n - 1].width;
    }
    return most;
}

/* What add_values is about: tile rows [first, first + rows) and a part of V's columns, `from` where a loop goes over parts. */
struct values {
    struct lp_value *page, *next, *count, *first, *from;
    int rows;
    bool ahead; /* asks for the next page */
    const struct attention_part *part;
};

/* Their sums times what the maximum's change makes, plus weights times values of positions [0, count). */
static void add_values(struct rows *a, const struct values *v)
{
    struct expr_ctx *e = a->c.e;
    struct lp_builder *b = &e->b;
    const struct attention_part *p = v->part;
    struct lp_value *column = v->from ? v->from : lp_index(b, p->at), *idx[2] = {v->first, column}, *at[2] = {e->zero, v->first};
    struct lp_value *acc = lp_load_tile(b, a->lane.acc, idx, v->rows, p->width, 0, 1, NULL, NULL);
    acc = lp_binary(b, LP_OP_MUL, acc, lp_load_tile(b, a->c_buf, at, v->rows, 1, 1, 0, NULL, NULL));
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, v->count, 1, 1, &acc);
    struct lp_value *j = loop->regions[0]->args[0], *w[2] = {v->first, j};
    if (v->ahead) attention_prefetch(&a->c, a->c.v, v->next, j, v->from ? v->from : e->zero, v->from ? p->n : a->c.s.dv, false);
    struct lp_value *weights = lp_load_tile(b, a->s_buf, w, v->rows, 1, 0, 1, NULL, NULL);
    acc = lp_mma(b, loop->regions[0]->args[1], weights, attention_load_v(&a->c, v->page, j, p, v->from), 1);
    expr_for_end(e, loop, &acc);
    lp_store_tile(b, a->lane.acc, idx, loop->results[0], 0, 1, NULL, NULL);
}

/* The same for each tile and part. */
static void emit_values(struct rows *a, struct lp_value *page, struct lp_value *next, struct lp_value *base, int rows, struct lp_value *count)
{
    struct expr_ctx *e = a->c.e;
    struct lp_builder *b = &e->b;
    struct attention_part parts[ATTENTION_MAX_PARTS];
    int tile = tile_rows(a, rows), n = attention_parts(&a->c.s, columns_for(a, tile, 1024), parts);
    bool loops = n > 1 && attention_parts_alike(&a->c.s, parts, n);
    for (int64_t first = 0; first < rows; first += tile)
        for (int i = 0; i < (loops ? 1 : n); i++) {
            size_t mark = expr_scope_push(e);
            struct values v = {.page = page, .next = next, .count = count, .first = lp_binary(b, LP_OP_ADD, base, lp_index(b, first)),
                               .rows = (int)(rows - first < tile ? rows - first : tile), .ahead = !first && !i, .part = &parts[i]};
            struct lp_op *loop = loops ? expr_for_begin(e, LP_LOOP_SERIAL, e->zero, lp_index(b, n * parts[0].n), parts[0].n, 0, NULL) : NULL;
            if (loop) v.from = loop->regions[0]->args[0];
            add_values(a, &v);
            if (loop) expr_for_end(e, loop, NULL);
            expr_scope_pop(e, mark);
        }
}

/* ---- lanes ---- */

/* Pages of a lane whose number is below x. */
static struct lp_value *lane_pages(struct rows *a, struct lp_value *lane, struct lp_value *x)
{
    struct lp_builder *b = &a->c.e->b;
    struct lp_value *each = lp_index(b, a->slice), *round = lp_index(b, a->slice * LANES);
    struct lp_value *rest = lp_binary(b, LP_OP_SUB, lp_binary(b, LP_OP_MOD, x, round), lp_binary(b, LP_OP_MUL, lane, each));
    rest = lp_binary(b, LP_OP_MIN, lp_binary(b, LP_OP_MAX, rest, a->c.e->zero), each);
    return lp_binary(b, LP_OP_ADD, lp_binary(b, LP_OP_MUL, lp_binary(b, LP_OP_FLOORDIV, x, round), each), rest);
}

/* Number of the lane's page i. */
static struct lp_value *lane_page(struct rows *a, struct lp_value *lane, struct lp_value *i)
{
    struct lp_builder *b = &a->c.e->b;
    struct lp_value *each = lp_index(b, a->slice), *slice = lp_binary(b, LP_OP_FLOORDIV, i, each);
    slice = lp_binary(b, LP_OP_ADD, lp_binary(b, LP_OP_MUL, slice, lp_index(b, LANES)), lane);
    return lp_binary(b, LP_OP_ADD, lp_binary(b, LP_OP_MUL, slice, each), lp_binary(b, LP_OP_MOD, i, each));
}

/* How many lanes have pages, for rows that see positions up to page `last` (below 0: none). */
static struct lp_value *lanes_used(struct rows *a)
{
    struct lp_builder *b = &a->c.e->b;
    struct lp_value *slices = lp_binary(b, LP_OP_ADD, lp_binary(b, LP_OP_FLOORDIV, a->last, lp_index(b, a->slice)), a->c.e->one);
    return lp_binary(b, LP_OP_MIN, slices, lp_index(b, LANES));
}

/* Scaled q of tile rows [0, rows). */
static void emit_q(struct rows *a, int rows)
{
    struct expr_ctx *e = a->c.e;
    struct lp_builder *b = &e->b;
    struct lp_op *loop = loop_begin(a, rows);
    struct lp_value *i = loop->regions[0]->args[0], *t = batch_row(a, i), *h = query_head(a, i);
    struct lp_op *elems = expr_for_begin(e, LP_LOOP_VECTOR, e->zero, lp_index(b, a->c.s.d), 1, 0, NULL);
    struct lp_value *d = elems->regions[0]->args[0], *from[3] = {t, h, d}, *to[2] = {i, d};
    struct lp_value *q = lp_cast(b, lp_load(b, a->c.q, from), DT_F32);
    lp_store(b, a->q_buf, to, lp_binary(b, LP_OP_MUL, q, attention_f32(&a->c, ir_attr_float(a->c.op, "scale", 1))));
    expr_for_end(e, elems, NULL);
    expr_for_end(e, loop, NULL);
}

/* Sums of tile rows [0, rows): nothing seen yet. */
static void emit_clear(struct rows *a, const struct sums *s, int rows)
{
    struct expr_ctx *e = a->c.e;
    struct lp_builder *b = &e->b;
    struct lp_op *loop = loop_begin(a, rows);
    struct lp_value *i = loop->regions[0]->args[0], *to[2] = {i};
    store_f32(a, s->m, i, attention_f32(&a->c, -(double)INFINITY));
    store_f32(a, s->l, i, attention_f32(&a->c, 0));
    struct lp_op *elems = expr_for_begin(e, LP_LOOP_VECTOR, e->zero, lp_index(b, a->cols), 1, 0, NULL);
    to[1] = elems->regions[0]->args[0];
    lp_store(b, s->acc, to, attention_f32(&a->c, 0));
    expr_for_end(e, elems, NULL);
    expr_for_end(e, loop, NULL);
}

/* A lane's sums are added to the row's; the first one's as they are, but for the sign of zeros. */
static void emit_merge(struct rows *a, int rows)
{
    struct expr_ctx *e = a->c.e;
    struct lp_builder *b = &e->b;
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_VECTOR, e->zero, lp_index(b, rows), 1, 0, NULL);
    struct lp_value *i = loop->regions[0]->args[0], *to[2] = {e->zero, i}, *factor[2], *none = attention_f32(&a->c, -(double)INFINITY);
    struct lp_value *old = load_f32(a, a->total.m, i), *new = load_f32(a, a->lane.m, i), *m = lp_binary(b, LP_OP_MAX, old, new);
    struct lp_value *base = lp_select(b, lp_binary(b, LP_OP_EQ, m, none), attention_f32(&a->c, 0), m);
    factor[0] = lp_unary(b, LP_OP_EXP, lp_binary(b, LP_OP_SUB, old, base));
    factor[1] = lp_unary(b, LP_OP_EXP, lp_binary(b, LP_OP_SUB, new, base));
    store_f32(a, a->total.m, i, m);
    lp_store(b, a->c_buf, to, factor[0]);
    store_f32(a, a->base_buf, i, factor[1]);
    struct lp_value *l = lp_binary(b, LP_OP_MUL, load_f32(a, a->total.l, i), factor[0]);
    store_f32(a, a->total.l, i, lp_binary(b, LP_OP_ADD, l, lp_binary(b, LP_OP_MUL, load_f32(a, a->lane.l, i), factor[1])));
    expr_for_end(e, loop, NULL);
    loop = loop_begin(a, rows);
    i = to[1] = loop->regions[0]->args[0];
    factor[0] = lp_load(b, a->c_buf, to), factor[1] = load_f32(a, a->base_buf, i);
    struct lp_op *elems = expr_for_begin(e, LP_LOOP_VECTOR, e->zero, lp_index(b, a->cols), 1, 0, NULL);
    struct lp_value *at[2] = {i, elems->regions[0]->args[0]};
    struct lp_value *sum = lp_binary(b, LP_OP_MUL, lp_load(b, a->total.acc, at), factor[0]);
    lp_store(b, a->total.acc, at, lp_binary(b, LP_OP_ADD, sum, lp_binary(b, LP_OP_MUL, lp_load(b, a->lane.acc, at), factor[1])));
    expr_for_end(e, elems, NULL);
    expr_for_end(e, loop, NULL);
}

/* The lane's sums of a row's heads to (or from) the buffer between the kernels. */
static void emit_transfer(struct rows *a, struct lp_value *lane, bool out)
{
    struct expr_ctx *e = a->c.e;
    struct lp_builder *b = &e->b;
    struct lp_op *loop = loop_begin(a, a->c.s.heads);
    struct lp_value *i = loop->regions[0]->args[0], *at[4] = {a->row, lp_binary(b, LP_OP_ADD, a->c.head, i), lane, NULL}, *here[2] = {i, NULL};
    const int bufs[2] = {a->lane.m, a->lane.l};
    for (int k = 0; k < 2; k++) {
        at[3] = lp_index(b, a->cols + k);
        if (out) lp_store(b, a->between, at, load_f32(a, bufs[k], i));
        else store_f32(a, bufs[k], i, lp_load(b, a->between, at));
    }
    struct lp_op *elems = expr_for_begin(e, LP_LOOP_VECTOR, e->zero, lp_index(b, a->cols), 1, 0, NULL);
    at[3] = here[1] = elems->regions[0]->args[0];
    if (out) lp_store(b, a->between, at, lp_load(b, a->lane.acc, here));
    else lp_store(b, a->lane.acc, here, lp_load(b, a->between, at));
    expr_for_end(e, elems, NULL);
    expr_for_end(e, loop, NULL);
}

/* ---- rows ---- */

static void emit_results(struct rows *a, int rows)
{
    struct expr_ctx *e = a->c.e;
    struct lp_builder *b = &e->b;
    struct attention_part parts[ATTENTION_MAX_PARTS];
    int n = attention_parts(&a->c.s, columns_for(a, 1, 64), parts);
    struct lp_op *loop = loop_begin(a, rows);
    struct lp_value *i = loop->regions[0]->args[0], *t = batch_row(a, i), *h = query_head(a, i);
    struct lp_value *inv = attention_inverse(&a->c, load_f32(a, a->total.l, i));
    for (int k = 0; k < n; k++) {
        struct lp_value *from[2] = {i, lp_index(b, parts[k].at)}, *to[3] = {t, h, lp_index(b, parts[k].from)};
        int64_t there = a->c.s.dv - parts[k].from < parts[k].n ? a->c.s.dv - parts[k].from : parts[k].n;
        struct lp_value *v = lp_binary(b, LP_OP_MUL, lp_load_tile(b, a->total.acc, from, 1, parts[k].width, 0, 1, NULL, NULL), inv);
        v = lp_cast(b, v, a->c.op->results[0].type.dtype);
        lp_store_tile(b, a->c.out, to, v, 0, 2, NULL, parts[k].width != there ? lp_index(b, there) : NULL);
    }
    expr_for_end(e, loop, NULL);
}

/* A walk over the lane's pages [from, to). */
struct walk {
    struct lp_op *loop;
    struct lp_value *page_no, *page, *next; /* next: the page that follows in the lane, or the last one */
};

static struct walk walk_begin(struct rows *a, struct lp_value *lane, struct lp_value *from, struct lp_value *to)
{
    struct lp_builder *b = &a->c.e->b;
    struct walk w = {.loop = expr_for_begin(a->c.e, LP_LOOP_SERIAL, lane_pages(a, lane, from), lane_pages(a, lane, to), 1, 0, NULL)};
    struct lp_value *i = w.loop->regions[0]->args[0], *next = lane_page(a, lane, lp_binary(b, LP_OP_ADD, i, a->c.e->one));
    w.page_no = lane_page(a, lane, i);
    w.page = attention_page(&a->c, a->seq, w.page_no);
    w.next = attention_page(&a->c, a->seq, lp_binary(b, LP_OP_MIN, next, a->last));
    return w;
}

/* A row's pages of one lane, into the lane's sums. */
static void emit_lane(struct rows *a, struct lp_value *lane, struct lp_value *pos)
{
    struct expr_ctx *e = a->c.e;
    struct lp_builder *b = &e->b;
    int rows = a->c.s.heads;
    struct lp_value *size = lp_index(b, a->c.s.page), *lo = lp_binary(b, LP_OP_FLOORDIV, attention_first_seen(&a->c, pos), size);
    emit_clear(a, &a->lane, rows);
    struct walk w = walk_begin(a, lane, lo, lp_binary(b, LP_OP_ADD, a->last, e->one));
    emit_scores(a, w.page, w.next, rows);
    emit_weights(a, w.page_no, rows);
    struct lp_value *count = lp_binary(b, LP_OP_SUB, lp_binary(b, LP_OP_ADD, pos, e->one), lp_binary(b, LP_OP_MUL, w.page_no, size));
    emit_values(a, w.page, w.next, e->zero, rows, lp_binary(b, LP_OP_MIN, count, size));
    expr_for_end(e, w.loop, NULL);
}

/*
 * The row by itself. Split: lanes `first`, `first` + number of items, .. to the buffer between the kernels; else all, merged.
 */
static void emit_single(struct rows *a, struct lp_value *first, struct lp_value *items, struct lp_value *split)
{
    struct expr_ctx *e = a->c.e;
    struct lp_builder *b = &e->b;
    struct lp_value *pos = attention_load_i64(&a->c, a->c.positions, a->row);
    a->last = lp_binary(b, LP_OP_FLOORDIV, pos, lp_index(b, a->c.s.page));
    struct lp_value *mine = lp_binary(b, LP_OP_SUB, lp_binary(b, LP_OP_ADD, lanes_used(a), lp_binary(b, LP_OP_SUB, items, first)), e->one);
    mine = lp_binary(b, LP_OP_FLOORDIV, mine, items);
    struct lp_op *any = lp_if_begin(b, lp_binary(b, LP_OP_OR, lp_binary(b, LP_OP_GT, mine, e->zero), lp_unary(b, LP_OP_NOT, split)), 0, NULL);
    size_t mark = expr_scope_push(e);
    emit_q(a, a->c.s.heads);
    emit_clear(a, &a->total, a->c.s.heads);
    struct lp_op *lanes = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, mine, 1, 0, NULL);
    struct lp_value *lane = lp_binary(b, LP_OP_ADD, first, lp_binary(b, LP_OP_MUL, lanes->regions[0]->args[0], items));
    emit_lane(a, lane, pos);
    struct lp_op *apart = lp_if_begin(b, split, 0, NULL);
    size_t inner = expr_scope_push(e);
    emit_transfer(a, lane, true);
    expr_scope_pop(e, inner);
    lp_if_else(b, apart, NULL);
    inner = expr_scope_push(e);
    emit_merge(a, a->c.s.heads);
    expr_scope_pop(e, inner);
    lp_if_end(b, apart, NULL);
    expr_for_end(e, lanes, NULL);
    struct lp_op *whole = lp_if_begin(b, lp_unary(b, LP_OP_NOT, split), 0, NULL);
    inner = expr_scope_push(e);
    emit_results(a, a->c.s.heads);
    expr_scope_pop(e, inner);
    lp_if_else(b, whole, NULL);
    lp_if_end(b, whole, NULL);
    expr_scope_pop(e, mark);
    lp_if_else(b, any, NULL);
    lp_if_end(b, any, NULL);
}

/* What the lanes of a split row gave. */
static void emit_parts(struct rows *a)
{
    struct expr_ctx *e = a->c.e;
    struct lp_builder *b = &e->b;
    a->last = lp_binary(b, LP_OP_FLOORDIV, attention_load_i64(&a->c, a->c.positions, a->row), lp_index(b, a->c.s.page));
    emit_clear(a, &a->total, a->c.s.heads);
    struct lp_op *lanes = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, lanes_used(a), 1, 0, NULL);
    emit_transfer(a, lanes->regions[0]->args[0], false);
    emit_merge(a, a->c.s.heads);
    expr_for_end(e, lanes, NULL);
    emit_results(a, a->c.s.heads);
}

/* The last page of a group: every row by the positions that it sees. */
static void emit_last_page(struct rows *a)
{
    struct expr_ctx *e = a->c.e;
    struct lp_builder *b = &e->b;
    struct lp_value *page = attention_page(&a->c, a->seq, a->last);
    emit_scores(a, page, page, a->c.s.heads * a->group);
    emit_weights(a, a->last, a->c.s.heads * a->group);
    struct lp_op *loop = loop_begin(a, a->group);
    struct lp_value *r = loop->regions[0]->args[0], *pos = attention_load_i64(&a->c, a->c.positions, lp_binary(b, LP_OP_ADD, a->row, r));
    struct lp_value *start = lp_binary(b, LP_OP_MUL, a->last, lp_index(b, a->c.s.page));
    struct lp_value *count = lp_binary(b, LP_OP_SUB, lp_binary(b, LP_OP_ADD, pos, e->one), start);
    emit_values(a, page, page, lp_binary(b, LP_OP_MUL, r, lp_index(b, a->c.s.heads)), a->c.s.heads, count);
    expr_for_end(e, loop, NULL);
}

/* A group's pages of one lane; the last page of all is the last of its lane. */
static void emit_group_lane(struct rows *a, struct lp_value *lane, struct lp_value *lo)
{
    struct expr_ctx *e = a->c.e;
    struct lp_builder *b = &e->b;
    int rows = a->c.s.heads * a->group;
    emit_clear(a, &a->lane, rows);
    struct walk w = walk_begin(a, lane, lo, a->last);
    emit_scores(a, w.page, w.next, rows);
    emit_weights(a, w.page_no, rows);
    emit_values(a, w.page, w.next, e->zero, rows, lp_index(b, a->c.s.page));
    expr_for_end(e, w.loop, NULL);
    struct lp_value *last_lane = lp_binary(b, LP_OP_MOD, lp_binary(b, LP_OP_FLOORDIV, a->last, lp_index(b, a->slice)), lp_index(b, LANES));
    struct lp_op *ends = lp_if_begin(b, lp_binary(b, LP_OP_EQ, lane, last_lane), 0, NULL);
    size_t mark = expr_scope_push(e);
    emit_last_page(a);
    expr_scope_pop(e, mark);
    lp_if_else(b, ends, NULL);
    lp_if_end(b, ends, NULL);
}

/* The group that begins with the row. */
static void emit_group(struct rows *a)
{
    struct expr_ctx *e = a->c.e;
    struct lp_builder *b = &e->b;
    struct lp_value *size = lp_index(b, a->c.s.page), *lo = NULL;
    int rows = a->c.s.heads * a->group;
    for (int r = 0; r < a->group; r++) {
        struct lp_value *pos = attention_load_i64(&a->c, a->c.positions, lp_binary(b, LP_OP_ADD, a->row, lp_index(b, r)));
        struct lp_value *first = attention_first_seen(&a->c, pos);
        lo = lo ? lp_binary(b, LP_OP_MIN, lo, first) : first;
    }
    emit_q(a, rows);
    emit_clear(a, &a->total, rows);
    a->last = lp_binary(b, LP_OP_FLOORDIV, attention_load_i64(&a->c, a->c.positions, a->row), size);
    struct lp_op *lanes = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, lanes_used(a), 1, 0, NULL);
    emit_group_lane(a, lanes->regions[0]->args[0], lp_binary(b, LP_OP_FLOORDIV, lo, size));
    emit_merge(a, rows);
    expr_for_end(e, lanes, NULL);
    emit_results(a, rows);
}

/* Do rows [begin, begin + group) go together? Rows beyond the batch are looked at in its last one's place. */
static struct lp_value *together(struct rows *a, struct lp_value *begin)
{
    struct expr_ctx *e = a->c.e;
    struct lp_builder *b = &e->b;
    struct lp_value *size = lp_index(b, a->c.s.page), *n = expr_dim(e, ir_operand(a->c.op, 0)->type.dims[0]);
    struct lp_value *yes = lp_binary(b, LP_OP_LE, lp_binary(b, LP_OP_ADD, begin, lp_index(b, a->group)), n);
    struct lp_value *seq = attention_load_i64(&a->c, a->c.seq_of, begin), *page = lp_binary(b, LP_OP_FLOORDIV, attention_load_i64(&a->c, a->c.positions, begin), size);
    for (int r = 1; r < a->group; r++) {
        struct lp_value *t = lp_binary(b, LP_OP_MIN, lp_binary(b, LP_OP_ADD, begin, lp_index(b, r)), lp_binary(b, LP_OP_SUB, n, e->one));
        yes = lp_binary(b, LP_OP_AND, yes, lp_binary(b, LP_OP_EQ, attention_load_i64(&a->c, a->c.seq_of, t), seq));
        struct lp_value *its = lp_binary(b, LP_OP_FLOORDIV, attention_load_i64(&a->c, a->c.positions, t), size);
        yes = lp_binary(b, LP_OP_AND, yes, lp_binary(b, LP_OP_EQ, its, page));
    }
    return yes;
}

/* Item `item` of the row. */
static void emit_row(struct rows *a, struct lp_value *item, struct lp_value *items, struct lp_value *split)
{
    struct expr_ctx *e = a->c.e;
    struct lp_builder *b = &e->b;
    if (a->group == 1) {
        emit_single(a, item, items, split);
        return;
    }
    struct lp_value *place = lp_binary(b, LP_OP_MOD, a->row, lp_index(b, a->group));
    struct lp_op *grouped = lp_if_begin(b, together(a, lp_binary(b, LP_OP_SUB, a->row, place)), 0, NULL);
    size_t mark = expr_scope_push(e);
    struct lp_op *leads = lp_if_begin(b, lp_binary(b, LP_OP_EQ, lp_binary(b, LP_OP_ADD, place, item), e->zero), 0, NULL);
    size_t inner = expr_scope_push(e);
    emit_group(a);
    expr_scope_pop(e, inner);
    lp_if_else(b, leads, NULL);
    lp_if_end(b, leads, NULL);
    expr_scope_pop(e, mark);
    lp_if_else(b, grouped, NULL);
    mark = expr_scope_push(e);
    emit_single(a, item, items, split);
    expr_scope_pop(e, mark);
    lp_if_end(b, grouped, NULL);
}

/* The second kernel: of rows that were split and are in no group. */
static void emit_second(struct rows *a, struct lp_value *split)
{
    struct expr_ctx *e = a->c.e;
    struct lp_builder *b = &e->b;
    struct lp_value *mine = split;
    if (a->group > 1) {
        struct lp_value *begin = lp_binary(b, LP_OP_SUB, a->row, lp_binary(b, LP_OP_MOD, a->row, lp_index(b, a->group)));
        mine = lp_binary(b, LP_OP_AND, split, lp_unary(b, LP_OP_NOT, together(a, begin)));
    }
    struct lp_op *apart = lp_if_begin(b, mine, 0, NULL);
    size_t mark = expr_scope_push(e);
    emit_parts(a);
    expr_scope_pop(e, mark);
    lp_if_else(b, apart, NULL);
    lp_if_end(b, apart, NULL);
}

/* ---- setup ---- */

static bool setup(struct rows *a, struct lower_ctx *l)
{
    struct attention_part parts[ATTENTION_MAX_PARTS];
    if (!attention_cache_of(l, &a->c) || !attention_parts(&a->c.s, l->level->vector_bytes / 4, parts)) return false;
    /* Two vectors of columns for each row of a tile. */
    int most = (l->level->n_vector_regs - SPARE_REGS) / 2;
    a->group = 1;
    while (a->group < MAX_GROUP && 2 * a->group * a->c.s.heads <= most) a->group *= 2;
    return true;
}

static void add_buffers(struct rows *a)
{
    struct lp_kernel *k = a->c.l->k;
    const struct attention_shape *s = &a->c.s;
    int64_t rows = (int64_t)s->heads * a->group;
    int64_t q_dims[] = {rows, s->d}, s_dims[] = {rows, s->page}, acc_dims[] = {rows, a->cols}, c_dims[] = {1, rows};
    a->q_buf = lp_add_stack(k, "q", DT_F32, 2, q_dims), a->s_buf = lp_add_stack(k, "weights", DT_F32, 2, s_dims);
    a->lane.m = lp_add_stack(k, "maximum", DT_F32, 1, &rows), a->lane.l = lp_add_stack(k, "sum", DT_F32, 1, &rows);
    a->base_buf = lp_add_stack(k, "base", DT_F32, 1, &rows), a->c_buf = lp_add_stack(k, "factor", DT_F32, 2, c_dims);
    a->lane.acc = lp_add_stack(k, "values", DT_F32, 2, acc_dims), a->total.acc = lp_add_stack(k, "total_values", DT_F32, 2, acc_dims);
    a->total.m = lp_add_stack(k, "total_maximum", DT_F32, 1, &rows), a->total.l = lp_add_stack(k, "total_sum", DT_F32, 1, &rows);
}

/* One of the group's two kernels: the lanes (rows that are not split, whole), or what merges those of split rows. */
static void emit_kernel(struct rows *a, bool second)
{
    struct lower_ctx *l = a->c.l;
    struct dim_ctx *dc = l->m->dims;
    struct lp_builder *b = &l->e.b;
    const struct ir_type *q = &ir_operand(a->c.op, 0)->type;
    const struct dim *n_rows = q->dims[0], *few = dim_min(dc, n_rows, dim_const(dc, LANES / 2)), *one = dim_const(dc, 1);
    const struct dim *items = dim_max(dc, dim_floordiv(dc, dim_const(dc, LANES), dim_max(dc, n_rows, one)), one);
    const struct dim *between[] = {few, q->dims[1], dim_const(dc, LANES), dim_const(dc, a->cols + 2)};
    a->between = lp_add_arg(l->k, "lanes", DT_F32, 4, between, true, 4);
    add_buffers(a);
    const struct dim *axes[3] = {second ? one : items, second ? few : n_rows, ir_operand(a->c.op, 1)->type.dims[2]};
    lower_set_slices(l, dim_mul(dc, dim_mul(dc, axes[0], axes[1]), axes[2]));
    struct lp_value *coord[3], *n_items = expr_dim(&l->e, items), *split = lp_binary(b, LP_OP_GT, n_items, l->e.one);
    expr_delinear(&l->e, lower_slice(l), 3, axes, coord);
    a->row = coord[1], a->c.kv_head = coord[2];
    a->c.head = lp_binary(b, LP_OP_MUL, a->c.kv_head, lp_index(b, a->c.s.heads));
    a->seq = attention_load_i64(&a->c, a->c.seq_of, a->row);
    if (second) emit_second(a, split);
    else emit_row(a, coord[0], n_items, split);
    l->k->schedule = second ? "attention-merge" : "attention";
    l->k->claim = 1; /* rows further on see more positions */
}

enum lower_result lower_attention_rows(struct lower_ctx *l)
{
    struct rows a = {0};
    if (!setup(&a, l)) return LOWER_NOT_MINE;
    a.cols = sum_columns(&a);
    a.slice = a.c.s.page < SLICE ? SLICE / a.c.s.page : 1;
    emit_kernel(&a, false);
    lower_next(l, "lanes");
    if (!setup(&a, l)) return LOWER_FAILED; /* the new kernel's buffers */
    emit_kernel(&a, true);
    l->k->name = lower_part_name(l, "merge");
    return LOWER_DONE;
}
