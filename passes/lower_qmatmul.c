// SPDX-License-Identifier: Apache-2.0
/*
 * Integer products with block-quantised weights (qmatmul_int): signed words of the activations times words taken from the blocks
 * (ir/blocks.h), by multiply-adds of neighbouring pairs.
 *
 * A slice is a panel of 32 columns and a block of rows. Few rows read the stream at the speed of memory and take it apart in
 * registers. Nibbles are not shifted where a mask will do: the pair in bits 4..7 counts 16 times, that in bits 8..11 256
 * times, each in an accumulator of its own, whose sum is shifted back (exactly: it is a multiple). Many rows take the panel
 * apart once, into a stack buffer of words. Where the level has tiles, many rows take it apart into bytes: a word of the activations is two bytes,
 * unsigned below and signed above, so that a tile of words meets a tile of (w, 0) pairs of bytes and one of (0, w), and the second sum counts
 * 256 times.
 *
 * Bits: within a group all is exact; the f32 operations behind it are, group by group, those that the op table states. So one
 * row, few and many give the same bits.
 */
#include "passes/blocks.h"
#include "passes/lower.h"

#define PREFETCH_BYTES 8192 /* how far ahead the stream is asked for: past the panel into what the next slice reads */
#define ROW_BLOCK 192       /* rows a slice does with one panel */
#define DIRECT_TILE 4       /* rows that are multiplied straight from the stream at a time */
#define MAX_DIRECT 12       /* rows of a block that are multiplied so, tile by tile: taking the panel apart pays for more */
#define MAX_UNROLL 8        /* rows of q in a group that are written out where one row is multiplied */
#define PAIR_UNROLL 4       /* pairs of words that are written out: enough to hide the loop, and a quarter of the code of a group */
#define MAX_REST 4          /* rows of the smaller of two tiles for what is left: 16 rows are 6 + 6 + 4 */
#define TILE 16             /* rows, and columns, of a tile */
#define AHEAD_TILES 3       /* tiles of rows that together ask for the whole next panel: 16 rows are so many */
#define MAX_PANEL_BYTES (8 << 20)
#define STREAMS 2                 /* places that weights of STREAMED_BYTES and more are read from at once: memory gives more then */
#define STREAMED_BYTES (64 << 20) /* no cache holds them */

struct qmm {
    struct lower_ctx *l;
    struct blocks d;
    int q, sum, step, w;         /* buffers */
    int words;                   /* stack buffer [K / 2, 64]: a panel taken apart */
    bool tiles;                  /* many rows go by tiles of bytes */
    int above;                   /* then words holds w in the low bytes, and this one, of the same shape, in the high bytes */
    int max_direct;
    const struct dim *m, *n;
    int64_t groups;
    int rank;
    int lanes;                   /* 32-bit lanes of a register */
    int mr, nr;                  /* tile over a panel that was taken apart */
    struct lp_value *next[STREAMS]; /* panels of the slices that follow */
    int streams;                 /* parts of the matrix whose panels come by turns */
};

/* ---- the stream ---- */

static struct lp_value *offset(struct lp_builder *b, struct lp_value *at, int by) { return by ? lp_binary(b, LP_OP_ADD, at, lp_index(b, by)) : at; }

static struct lp_value *load_units(struct qmm *t, struct lp_value *panel, struct lp_value *g, struct lp_value *at, int n)
{
    struct lp_builder *b = &t->l->e.b;
    struct lp_value *idx[3] = {panel, g, at};
    return lp_load_tile(b, t->w, idx, 1, n, 0, 2, NULL, NULL);
}

static void prefetch(struct qmm *t, struct lp_value *panel, struct lp_value *g, struct lp_value *at, int n_units)
{
    struct lp_builder *b = &t->l->e.b;
    int n = t->streams;
    if (n > 1) { /* of the next panel its last part, of the one behind it the part before, .. : a group of each by turns */
        struct lp_value *turn = lp_binary(b, LP_OP_MOD, g, lp_index(b, n)), *part = lp_binary(b, LP_OP_SUB, lp_index(b, n - 1), turn);
        panel = t->next[n - 1];
        for (int i = n - 2; i >= 0; i--) panel = lp_select(b, lp_binary(b, LP_OP_EQ, turn, lp_index(b, i)), t->next[i], panel);
        g = lp_binary(b, LP_OP_ADD, lp_binary(b, LP_OP_MUL, part, lp_index(b, t->groups / n)), lp_binary(b, LP_OP_FLOORDIV, g, lp_index(b, n)));
    }
    for (int i = 0; i < n_units; i += 32) {
        if (n > 1) {
            struct lp_value *idx[3] = {panel, g, offset(b, at, i)};
            lp_prefetch_far(b, t->w, idx);
            continue;
        }
        struct lp_value *idx[3] = {panel, g, lp_binary(b, LP_OP_ADD, at, lp_index(b, PREFETCH_BYTES / 2 + i))};
        lp_prefetch(b, t->w, idx);
    }
}

/* Scales (or minima) of columns [col, + nr) of a group. */
static struct lp_value *load_floats(struct qmm *t, struct lp_value *panel, struct lp_value *g, int from, struct lp_value *col, int nr)
{
    struct lp_builder *b = &t->l->e.b;
    struct lp_value *low = load_units(t, panel, g, offset(b, col, from), nr);
    if (!t->d.wide) return lp_cast(b, lp_bitcast(b, low, DT_F16), DT_F32);
    struct lp_value *high = lp_cast(b, load_units(t, panel, g, offset(b, col, from + BLOCKS_COLS), nr), DT_U32);
    high = lp_binary(b, LP_OP_SHL, high, lp_const_i(b, lp_vector(DT_U32, nr), 16));
    return lp_bitcast(b, lp_binary(b, LP_OP_OR, lp_cast(b, low, DT_U32), high), DT_F32);
}

/* The bits above nibbles of a group's columns [at / 2, + nr); NULL where there are none. */
static struct lp_value *load_high(struct qmm *t, struct lp_value *panel, struct lp_value *g, struct lp_value *at, int n)
{
    return t->d.high ? load_units(t, panel, g, offset(&t->l->e.b, at, blocks_high_at(&t->d)), n) : NULL;
}

/* The same with those of the next row of q lowest. */
static struct lp_value *next_high(struct qmm *t, struct lp_value *high)
{
    struct lp_builder *b = &t->l->e.b;
    return lp_binary(b, LP_OP_SHR, high, lp_const_i(b, high->type, blocks_step(&t->d) / 2 * t->d.high));
}

/* Nibble s of u, shifted right by `shift`, with its high bits over it; mask: where it then lies, 0 for alone. */
static struct lp_value *masked(struct qmm *t, struct lp_value *u, struct lp_value *high, int s, int mask, int shift)
{
    struct lp_builder *b = &t->l->e.b;
    struct lp_type ty = u->type;
    if (shift) u = lp_binary(b, LP_OP_SHR, u, lp_const_i(b, ty, shift));
    if (mask) u = lp_binary(b, LP_OP_AND, u, lp_const_i(b, ty, mask));
    if (high) {
        int to = 4 * s - shift + 4, by = to - s * t->d.high;
        if (by) high = lp_binary(b, by > 0 ? LP_OP_SHL : LP_OP_SHR, high, lp_const_i(b, ty, by > 0 ? by : -by));
        u = lp_binary(b, LP_OP_OR, u, lp_binary(b, LP_OP_AND, high, lp_const_i(b, ty, ((1 << t->d.high) - 1) << to)));
    }
    return lp_bitcast(b, u, DT_I16);
}

static struct lp_value *high_bytes(struct lp_builder *b, struct lp_value *u)
{
    struct lp_value *s = lp_bitcast(b, u, DT_I16);
    return lp_binary(b, LP_OP_SHR, s, lp_const_i(b, s->type, 8));
}

static struct lp_value *low_bytes(struct lp_builder *b, struct lp_value *u)
{
    struct lp_value *s = lp_bitcast(b, lp_binary(b, LP_OP_SHL, u, lp_const_i(b, u->type, 8)), DT_I16);
    return lp_binary(b, LP_OP_SHR, s, lp_const_i(b, s->type, 8));
}

/* Pair s of a row of q as words of their own value. */
static struct lp_value *pair(struct qmm *t, struct lp_value *u, struct lp_value *high, int s)
{
    struct lp_builder *b = &t->l->e.b;
    if (!t->d.nibbles) return s ? high_bytes(b, u) : low_bytes(b, u);
    return masked(t, u, high, s, s == 3 ? 0 : 15, 4 * s);
}

/* ---- products ---- */

/* Words k, k + 1 of the rows. */
static struct lp_value *load_pair(struct qmm *t, struct lp_value *row, int rows, struct lp_value *nrows, struct lp_value *k)
{
    struct lp_value *idx[2] = {row, k};
    return lp_load_tile(&t->l->e.b, t->q, idx, rows, 2, 0, 1, nrows, NULL);
}

static struct lp_value *column(struct qmm *t, int buf, struct lp_value *row, int rows, struct lp_value *nrows, struct lp_value *g)
{
    struct lp_value *idx[2] = {row, g};
    return lp_load_tile(&t->l->e.b, buf, idx, rows, 1, 0, 1, nrows, NULL);
}

struct tile {
    struct lp_value *row, *nrows, *panel, *ncols;
    struct lp_value *col, *unit; /* first column in the panel, and the first of its units in a row of q */
    struct lp_value *share;      /* the number of the tile among those of its rows' block */
    int rows, nr;
};

/* One row of q at units `at`, with its high bits: its pairs times those of the rows at k; acc: value, 16 times, 256 times. */
static void stream_step(struct qmm *t, const struct tile *x, struct lp_value *g, struct lp_value *at, struct lp_value *k, struct lp_value *high,
                        struct lp_value **acc)
{
    static const struct {
        int mask, shift, acc;
    } fields[4] = {{0x000F, 0, 0}, {0x00F0, 0, 1}, {0x0F00, 0, 2}, {0, 12, 0}};
    struct lp_builder *b = &t->l->e.b;
    struct lp_value *u = load_units(t, x->panel, g, at, 2 * x->nr);
    prefetch(t, x->panel, g, at, 2 * x->nr);
    for (int s = 0; s < blocks_step(&t->d) / 2; s++) {
        struct lp_value *w = t->d.nibbles ? masked(t, u, high, s, fields[s].mask, fields[s].shift) : pair(t, u, NULL, s);
        struct lp_value *a = load_pair(t, x->row, x->rows, x->nrows, lp_binary(b, LP_OP_ADD, k, lp_index(b, 2 * s)));
        int i = t->d.nibbles ? fields[s].acc : s;
        acc[i] = lp_mma(b, acc[i], a, w, 2);
    }
}

/* The exact sum of a group from the stream. */
static struct lp_value *stream_group(struct qmm *t, const struct tile *x, struct lp_value *g)
{
    struct expr_ctx *e = &t->l->e;
    struct lp_builder *b = &e->b;
    struct lp_type ty = lp_tile(DT_I32, x->rows, x->nr);
    struct lp_value *zero = lp_const_i(b, ty, 0), *acc[4] = {zero, zero, zero};
    int n = t->d.group / blocks_step(&t->d), n_acc = t->d.nibbles ? 3 : 2, q_at = blocks_q_at(&t->d);
    struct lp_value *base = lp_binary(b, LP_OP_MUL, g, lp_index(b, t->d.group));
    enum lp_loop_kind kind = x->rows == 1 && n <= MAX_UNROLL ? LP_LOOP_UNROLL : LP_LOOP_SERIAL;
    int n_carried = n_acc + (t->d.high ? 1 : 0);
    if (t->d.high) acc[n_acc] = load_high(t, x->panel, g, x->unit, 2 * x->nr);
    struct lp_op *loop = expr_for_begin(e, kind, e->zero, lp_index(b, n), 1, n_carried, acc);
    struct lp_value *i = loop->regions[0]->args[0];
    for (int a = 0; a < n_carried; a++) acc[a] = loop->regions[0]->args[1 + a];
    struct lp_value *at = lp_binary(b, LP_OP_ADD, lp_binary(b, LP_OP_MUL, i, lp_index(b, 2 * BLOCKS_COLS)), offset(b, x->unit, q_at));
    struct lp_value *k = lp_binary(b, LP_OP_ADD, base, lp_binary(b, LP_OP_MUL, i, lp_index(b, blocks_step(&t->d))));
    stream_step(t, x, g, at, k, t->d.high ? acc[n_acc] : NULL, acc);
    if (t->d.high) acc[n_acc] = next_high(t, acc[n_acc]);
    expr_for_end(e, loop, acc);
    struct lp_value *c = loop->results[0];
    if (!t->d.nibbles) return lp_binary(b, LP_OP_ADD, c, loop->results[1]);
    for (int a = 1; a < 3; a++) c = lp_binary(b, LP_OP_ADD, c, lp_binary(b, LP_OP_SHR, loop->results[a], lp_const_i(b, ty, 4 * a)));
    return c;
}

/*
 * The panel behind this one, asked for while this one is multiplied: the loop that takes it apart would wait for memory, and the
 * multiplying leaves memory idle. Tile number i of the rows asks for the i-th share of the group's lines, of which AHEAD_TILES
 * have all; `at` counts the loops over its pairs.
 */
static void prefetch_panel(struct qmm *t, const struct tile *x, struct lp_value *g, struct lp_value *at, int n_loops)
{
    struct lp_builder *b = &t->l->e.b;
    int lines = (blocks_units(&t->d) + 31) / 32, each = (lines + AHEAD_TILES * n_loops - 1) / (AHEAD_TILES * n_loops);
    struct lp_value *line = lp_binary(b, LP_OP_ADD, lp_binary(b, LP_OP_MUL, x->share, lp_index(b, n_loops)), at);
    for (int i = 0; i < each; i++) {
        struct lp_value *unit = lp_binary(b, LP_OP_MUL, offset(b, lp_binary(b, LP_OP_MUL, line, lp_index(b, each)), i), lp_index(b, 32));
        struct lp_value *idx[3] = {t->next[0], g, unit};
        lp_prefetch_far(b, t->w, idx);
    }
}

/* The same from the words. */
static struct lp_value *words_group(struct qmm *t, const struct tile *x, struct lp_value *g)
{
    struct expr_ctx *e = &t->l->e;
    struct lp_builder *b = &e->b;
    struct lp_value *acc = lp_const_i(b, lp_tile(DT_I32, x->rows, x->nr), 0);
    int pairs = t->d.group / 2;
    int each = pairs % PAIR_UNROLL ? 1 : t->l->level->n_vector_regs >= 32 ? PAIR_UNROLL : PAIR_UNROLL / 2;
    struct lp_value *first = lp_binary(b, LP_OP_MUL, g, lp_index(b, pairs));
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, first, lp_binary(b, LP_OP_ADD, first, lp_index(b, pairs)), each, 1, &acc);
    acc = loop->regions[0]->args[1];
    struct lp_value *done = lp_binary(b, LP_OP_SUB, loop->regions[0]->args[0], first);
    if (x->nr == BLOCKS_COLS) prefetch_panel(t, x, g, lp_binary(b, LP_OP_FLOORDIV, done, lp_index(b, each)), pairs / each);
    for (int i = 0; i < each; i++) {
        struct lp_value *p = offset(b, loop->regions[0]->args[0], i), *idx[2] = {p, x->unit};
        struct lp_value *w = lp_load_tile(b, t->words, idx, 1, 2 * x->nr, 0, 1, NULL, NULL);
        struct lp_value *a = load_pair(t, x->row, x->rows, x->nrows, lp_binary(b, LP_OP_MUL, p, lp_index(b, 2)));
        acc = lp_mma(b, acc, a, w, 2);
    }
    expr_for_end(e, loop, &acc);
    return loop->results[0];
}

/* The same by tiles. */
static struct lp_value *tiles_group(struct qmm *t, const struct tile *x, struct lp_value *g)
{
    struct lp_builder *b = &t->l->e.b;
    enum dtype weights = t->d.nibbles ? DT_U8 : DT_I8;
    struct lp_value *zero = lp_const_i(b, lp_tile(DT_I32, x->rows, x->nr), 0), *below = zero, *above = zero;
    int each = t->d.group < 2 * TILE ? t->d.group : 2 * TILE; /* words of a row of a tile */
    struct lp_value *first = lp_binary(b, LP_OP_MUL, g, lp_index(b, t->d.group));
    for (int k = 0; k < t->d.group; k += each) {
        struct lp_value *at_a[2] = {x->row, offset(b, first, k)}, *at_w[2] = {lp_binary(b, LP_OP_FLOORDIV, at_a[1], lp_index(b, 2)), x->unit};
        struct lp_value *a = lp_load_tile(b, t->q, at_a, x->rows, each, 0, 1, NULL, NULL);
        struct lp_value *w = lp_load_tile(b, t->words, at_w, each / 2, 2 * x->nr, 0, 1, NULL, NULL);
        struct lp_value *w_above = lp_load_tile(b, t->above, at_w, each / 2, 2 * x->nr, 0, 1, NULL, NULL);
        below = lp_mma(b, below, lp_bytes(b, a, DT_U8), lp_bytes(b, w, weights), 4);
        above = lp_mma(b, above, lp_bytes(b, a, DT_I8), lp_bytes(b, w_above, weights), 4);
    }
    return lp_binary(b, LP_OP_ADD, below, lp_binary(b, LP_OP_SHL, above, lp_const_i(b, above->type, 8)));
}

static struct lp_value *contract(struct qmm *t, const struct tile *x, bool words)
{
    struct expr_ctx *e = &t->l->e;
    struct lp_builder *b = &e->b;
    struct lp_type ty = lp_tile(DT_F32, x->rows, x->nr);
    struct lp_value *acc = lp_const_f(b, ty, 0);
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, lp_index(b, t->groups), 1, 1, &acc);
    struct lp_value *g = loop->regions[0]->args[0];
    if (!words) prefetch(t, x->panel, g, e->zero, blocks_q_at(&t->d));
    struct lp_value *c = !words ? stream_group(t, x, g) : t->tiles ? tiles_group(t, x, g) : words_group(t, x, g);
    c = lp_cast(b, c, DT_F32);
    acc = loop->regions[0]->args[1];
    struct lp_value *sum = t->d.zero || t->d.has_min ? column(t, t->sum, x->row, x->rows, x->nrows, g) : NULL;
    if (t->d.zero) c = lp_fma(b, sum, lp_const_f(b, lp_vector(DT_F32, x->nr), -t->d.zero), c);
    if (t->d.has_min) acc = lp_fma(b, sum, load_floats(t, x->panel, g, blocks_min_at(&t->d), x->col, x->nr), acc);
    acc = lp_fma(b, c, load_floats(t, x->panel, g, 0, x->col, x->nr), acc);
    expr_for_end(e, loop, &acc);
    return lp_binary(b, LP_OP_MUL, loop->results[0], column(t, t->step, x->row, x->rows, x->nrows, e->zero));
}

/* Pairs of words to row p of the stack buffer, or of both. */
static void keep(struct qmm *t, struct lp_value *p, struct lp_value *w)
{
    struct lp_builder *b = &t->l->e.b;
    struct lp_value *idx[2] = {p, t->l->e.zero};
    if (t->tiles) {
        lp_store_tile(b, t->above, idx, lp_binary(b, LP_OP_SHL, w, lp_const_i(b, w->type, 8)), 0, 1, NULL, NULL);
        if (!t->d.nibbles) w = lp_binary(b, LP_OP_AND, w, lp_const_i(b, w->type, 255));
    }
    lp_store_tile(b, t->words, idx, w, 0, 1, NULL, NULL);
}

/* The panel's words to the stack buffer. */
static void take_apart(struct qmm *t, struct lp_value *panel)
{
    struct expr_ctx *e = &t->l->e;
    struct lp_builder *b = &e->b;
    int n = t->d.group / blocks_step(&t->d), pairs = blocks_step(&t->d) / 2;
    struct lp_op *groups = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, lp_index(b, t->groups), 1, 0, NULL);
    struct lp_value *g = groups->regions[0]->args[0];
    struct lp_value *high = load_high(t, panel, g, e->zero, 2 * BLOCKS_COLS);
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, lp_index(b, n), 1, high ? 1 : 0, &high);
    struct lp_value *i = loop->regions[0]->args[0];
    if (high) high = loop->regions[0]->args[1];
    struct lp_value *at = lp_binary(b, LP_OP_ADD, lp_binary(b, LP_OP_MUL, i, lp_index(b, 2 * BLOCKS_COLS)), lp_index(b, blocks_q_at(&t->d)));
    struct lp_value *u = load_units(t, panel, g, at, 2 * BLOCKS_COLS);
    prefetch(t, panel, g, at, 2 * BLOCKS_COLS);
    struct lp_value *p = lp_binary(b, LP_OP_ADD, lp_binary(b, LP_OP_MUL, g, lp_index(b, n)), i);
    p = lp_binary(b, LP_OP_MUL, p, lp_index(b, pairs));
    for (int s = 0; s < pairs; s++) keep(t, lp_binary(b, LP_OP_ADD, p, lp_index(b, s)), pair(t, u, high, s));
    if (high) high = next_high(t, high);
    expr_for_end(e, loop, high ? &high : NULL);
    expr_for_end(e, groups, NULL);
}

/* ---- rows and columns ---- */

static void emit_tile(struct qmm *t, struct tile *x, bool words)
{
    struct lower_ctx *l = t->l;
    struct expr_ctx *e = &l->e;
    struct lp_builder *b = &e->b;
    struct lp_value *first = lp_binary(b, LP_OP_ADD, lp_binary(b, LP_OP_MUL, x->panel, lp_index(b, BLOCKS_COLS)), x->col);
    x->ncols = NULL;
    if (t->n->value % BLOCKS_COLS) x->ncols = lp_binary(b, LP_OP_MAX, lp_binary(b, LP_OP_SUB, expr_dim(e, t->n), first), e->zero);
    struct lp_value *v = contract(t, x, words), *wide[IR_MAX_RANK], *idx[2] = {x->row, first};
    for (int i = 0; i < t->rank - 2; i++) wide[i] = e->zero;
    wide[t->rank - 2] = x->row, wide[t->rank - 1] = first;
    v = lower_tile_epilogue(l, v, wide, t->rank - 2, x->nrows, x->ncols);
    lp_store_tile(b, lower_result_buf(l, 0), idx, v, 0, 1, x->nrows, x->ncols);
}

/* All columns of a panel, nr at a time: a loop, whose code is that of one tile. From the stream, or, with a share, from the words. */
static void emit_columns(struct qmm *t, struct lp_value *row, int rows, struct lp_value *nrows, struct lp_value *panel, int nr, struct lp_value *share)
{
    struct expr_ctx *e = &t->l->e;
    struct tile x = {.row = row, .nrows = nrows, .panel = panel, .share = share, .col = e->zero, .unit = e->zero, .rows = rows, .nr = nr};
    struct lp_op *loop = nr < BLOCKS_COLS ? expr_for_begin(e, LP_LOOP_SERIAL, e->zero, lp_index(&e->b, BLOCKS_COLS), nr, 0, NULL) : NULL;
    size_t mark = expr_scope_push(e);
    if (loop) x.col = loop->regions[0]->args[0], x.unit = lp_binary(&e->b, LP_OP_MUL, x.col, lp_index(&e->b, 2));
    emit_tile(t, &x, share != NULL);
    expr_scope_pop(e, mark);
    if (loop) expr_for_end(e, loop, NULL);
}

/* Columns that `rows` rows take straight from the stream at a time: three accumulators each, and one for the sums. */
static int direct_nr(const struct qmm *t, int rows)
{
    int regs = t->l->level->n_vector_regs - 4, per = rows * (t->d.nibbles ? 4 : 3), nr = BLOCKS_COLS;
    while (nr > t->lanes && per * (nr / t->lanes) > regs) nr /= 2;
    return nr;
}

struct branch {
    struct lp_op *op;
    size_t mark;
};

static struct branch branch_begin(struct expr_ctx *e, struct lp_value *cond)
{
    struct branch br = {.op = lp_if_begin(&e->b, cond, 0, NULL)};
    br.mark = expr_scope_push(e);
    return br;
}

static void branch_else(struct expr_ctx *e, struct branch *br)
{
    expr_scope_pop(e, br->mark);
    lp_if_else(&e->b, br->op, NULL);
    br->mark = expr_scope_push(e);
}

static void branch_end(struct expr_ctx *e, struct branch *br)
{
    expr_scope_pop(e, br->mark);
    lp_if_end(&e->b, br->op, NULL);
}

/* 1 .. DIRECT_TILE rows. */
static void emit_tile_of_few(struct qmm *t, struct lp_value *row, struct lp_value *count, struct lp_value *panel)
{
    struct expr_ctx *e = &t->l->e;
    struct lp_builder *b = &e->b;
    struct branch one = branch_begin(e, lp_binary(b, LP_OP_EQ, count, e->one));
    emit_columns(t, row, 1, NULL, panel, direct_nr(t, 1), NULL);
    branch_else(e, &one);
    if (t->l->level->n_vector_regs >= 32) {
        struct branch two = branch_begin(e, lp_binary(b, LP_OP_EQ, count, lp_index(b, 2)));
        emit_columns(t, row, 2, NULL, panel, direct_nr(t, 2), NULL);
        branch_else(e, &two);
        emit_columns(t, row, DIRECT_TILE, count, panel, direct_nr(t, DIRECT_TILE), NULL);
        branch_end(e, &two);
    } else { /* as in emit_many */
        emit_columns(t, row, DIRECT_TILE, count, panel, direct_nr(t, DIRECT_TILE), NULL);
    }
    branch_end(e, &one);
}

/* 1 .. MAX_DIRECT rows: the panel stays in the first-level cache for the tiles behind the first. */
static void emit_few(struct qmm *t, struct lp_value *lo, struct lp_value *hi, struct lp_value *panel)
{
    struct expr_ctx *e = &t->l->e;
    struct lp_builder *b = &e->b;
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, lo, hi, DIRECT_TILE, 0, NULL);
    struct lp_value *row = loop->regions[0]->args[0], *left = lp_binary(b, LP_OP_SUB, hi, row);
    emit_tile_of_few(t, row, lp_binary(b, LP_OP_MIN, left, lp_index(b, DIRECT_TILE)), panel);
    expr_for_end(e, loop, NULL);
}

static struct lp_value *share_of(struct qmm *t, struct lp_value *row, struct lp_value *lo)
{
    struct lp_builder *b = &t->l->e.b;
    return lp_binary(b, LP_OP_FLOORDIV, lp_binary(b, LP_OP_SUB, row, lo), lp_index(b, t->mr));
}

/* More: the panel is taken apart once. */
static void emit_many(struct qmm *t, struct lp_value *lo, struct lp_value *hi, struct lp_value *panel)
{
    struct expr_ctx *e = &t->l->e;
    struct lp_builder *b = &e->b;
    take_apart(t, panel);
    struct lp_value *rest = lp_binary(b, LP_OP_MOD, lp_binary(b, LP_OP_SUB, hi, lo), lp_index(b, t->mr));
    struct lp_value *full = lp_binary(b, LP_OP_SUB, hi, rest);
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, lo, full, t->mr, 0, NULL);
    struct lp_value *row = loop->regions[0]->args[0];
    emit_columns(t, row, t->mr, NULL, panel, t->nr, share_of(t, row, lo));
    expr_for_end(e, loop, NULL);
    if (t->tiles) { /* a tile of fewer rows would cost as much as these rows do from the stream */
        emit_few(t, full, hi, panel);
        return;
    }
    struct branch some = branch_begin(e, lp_binary(b, LP_OP_GT, rest, e->zero));
    if (t->l->level->n_vector_regs >= 32) {
        struct branch half = branch_begin(e, lp_binary(b, LP_OP_LE, rest, lp_index(b, MAX_REST)));
        emit_columns(t, full, MAX_REST, rest, panel, t->nr, share_of(t, full, lo));
        branch_else(e, &half);
        emit_columns(t, full, t->mr, rest, panel, t->nr, share_of(t, full, lo));
        branch_end(e, &half);
    } else { /* code for old processors: small rather than best for every count */
        emit_columns(t, full, t->mr, rest, panel, t->nr, share_of(t, full, lo));
    }
    branch_else(e, &some);
    branch_end(e, &some);
}

static void emit_block(struct qmm *t, struct lp_value *lo, struct lp_value *hi, struct lp_value *panel)
{
    struct expr_ctx *e = &t->l->e;
    struct lp_value *count = lp_binary(&e->b, LP_OP_SUB, hi, lo);
    if (t->l->level->gpu) { /* right, and small; tensor cores want a schedule of their own */
        struct lp_op *rows = expr_for_begin(e, LP_LOOP_SERIAL, lo, hi, 1, 0, NULL);
        emit_columns(t, rows->regions[0]->args[0], 1, NULL, panel, t->lanes, NULL);
        expr_for_end(e, rows, NULL);
        return;
    }
    if (dim_is_const(t->m) && t->m->value <= t->max_direct) {
        emit_few(t, lo, hi, panel);
        return;
    }
    struct branch few = branch_begin(e, lp_binary(&e->b, LP_OP_LE, count, lp_index(&e->b, t->max_direct)));
    emit_few(t, lo, hi, panel);
    branch_else(e, &few);
    emit_many(t, lo, hi, panel);
    branch_end(e, &few);
}

static bool setup(struct qmm *t)
{
    struct lower_ctx *l = t->l;
    const struct ir_op *op = l->anchor;
    if (!op || op->code != IR_OP_QMATMUL_INT || !lower_tile_epilogue_ok(l) || !lower_epilogue_is_flat(l)) return false;
    int *const bufs[] = {&t->q, &t->sum, &t->step, &t->w};
    for (int i = 0; i < 4; i++)
        if ((*bufs[i] = lower_operand_of(l, ir_operand(op, i))) < 0) return false;
    const struct ir_type *w = &ir_operand(op, 3)->type;
    t->d = blocks_of(op);
    t->groups = w->dims[1]->value;
    t->rank = op->results[0].type.rank;
    t->n = op->results[0].type.dims[t->rank - 1];
    t->lanes = l->level->vector_bytes / 4;
    return t->rank >= 2 && t->groups * t->d.group * BLOCKS_COLS * 2 <= MAX_PANEL_BYTES;
}

static bool is_of_anchor(const struct lower_ctx *l, const struct ir_value *v)
{
    for (int i = 0; i < l->anchor->n_operands; i++)
        if (ir_operand(l->anchor, i) == v) return true;
    return false;
}

/* The result, and what the epilogue reads beside each of its elements: a product with as many columns cuts it in the same way. */
static void set_cuts(struct qmm *t)
{
    struct lower_ctx *l = t->l;
    const struct ir_type *out = &l->anchor->results[0].type;
    char *cut = arena_printf(&l->m->arena, "panels of %lld from %d", (long long)t->n->value, t->streams);
    l->k->bufs.v[lower_result_buf(l, 0)].cut = cut;
    for (int i = 0; i < l->group->n_operands; i++) {
        const struct ir_value *v = l->group->regions[0]->args[i];
        bool same = v->type.rank == out->rank && !is_of_anchor(l, v);
        for (int a = 0; same && a < out->rank; a++) same = v->type.dims[a] == out->dims[a];
        if (same) l->k->bufs.v[i].cut = cut;
    }
}

/* The panel `by` behind the one that comes as number `at`. */
static struct lp_value *panel_of(struct qmm *t, struct lp_value *at, int by, int64_t n)
{
    struct lp_builder *b = &t->l->e.b;
    at = offset(b, at, by);
    if (t->streams == 1) return at;
    struct lp_value *part = lp_binary(b, LP_OP_MUL, lp_binary(b, LP_OP_MOD, at, lp_index(b, t->streams)), lp_index(b, n / t->streams));
    return lp_binary(b, LP_OP_ADD, lp_binary(b, LP_OP_FLOORDIV, at, lp_index(b, t->streams)), part);
}

enum lower_result lower_qmatmul(struct lower_ctx *l)
{
    struct qmm t = {.l = l};
    if (!setup(&t)) return LOWER_NOT_MINE;
    struct expr_ctx *e = &l->e;
    struct lp_builder *b = &e->b;
    struct dim_ctx *dc = l->m->dims;
    t.m = lower_flatten(l);
    int64_t k = t.groups * t.d.group;
    lower_set_2d(l, t.q, t.m, dim_const(dc, k));
    lower_set_2d(l, t.sum, t.m, dim_const(dc, t.groups));
    lower_set_2d(l, t.step, t.m, dim_const(dc, 1));
    l->k->bufs.v[t.w].align_bytes = 64;
    t.mr = 6, t.nr = l->level->n_vector_regs >= 32 ? 2 * t.lanes : t.lanes, t.max_direct = MAX_DIRECT;
    t.tiles = l->level->has_amx && t.d.group % 2 == 0 && (t.d.group <= 2 * TILE || t.d.group % (2 * TILE) == 0);
    if (t.tiles) t.mr = t.nr = TILE, t.max_direct = TILE - 1;
    if (!l->level->gpu && !(dim_is_const(t.m) && t.m->value <= t.max_direct)) {
        int64_t dims[] = {k / 2, 2 * BLOCKS_COLS};
        t.words = lp_add_stack(l->k, "words", DT_I16, 2, dims);
        if (t.tiles) t.above = lp_add_stack(l->k, "above", DT_I16, 2, dims);
    }
    const struct dim *panels = dim_ceildiv(dc, t.n, dim_const(dc, BLOCKS_COLS)), *blocks = dim_ceildiv(dc, t.m, dim_const(dc, ROW_BLOCK));
    struct lp_value *panel = lower_slice(l), *block = e->zero;
    if (!dim_is(blocks, 1)) { /* all row blocks of one panel are neighbours: the panel stays in the cache */
        panel = lp_binary(b, LP_OP_FLOORDIV, lower_slice(l), expr_dim(e, blocks));
        block = lp_binary(b, LP_OP_MOD, lower_slice(l), expr_dim(e, blocks));
    }
    lower_set_slices(l, dim_mul(dc, panels, blocks));
    int64_t n_panels = dim_is_const(panels) ? panels->value : 1;
    bool large = n_panels * t.groups * blocks_units(&t.d) * 2 >= STREAMED_BYTES, even = n_panels % STREAMS == 0 && t.groups % STREAMS == 0;
    static const int64_t both[] = {1, STREAMS};
    t.streams = even && !l->level->gpu ? (int)lower_knob(l, KNOB_STREAMS, large ? STREAMS : 1, both, 2) : 1;
    struct lp_value *number = panel;
    panel = panel_of(&t, number, 0, n_panels);
    for (int i = 0; i < t.streams; i++) t.next[i] = panel_of(&t, number, i + 1, n_panels);
    struct lp_value *lo = lp_binary(b, LP_OP_MUL, block, lp_index(b, ROW_BLOCK));
    struct lp_value *hi = lp_binary(b, LP_OP_MIN, lp_binary(b, LP_OP_ADD, lo, lp_index(b, ROW_BLOCK)), expr_dim(e, t.m));
    emit_block(&t, lo, hi, panel);
    set_cuts(&t);
    l->k->schedule = "matmul-int";
    return LOWER_DONE;
}
