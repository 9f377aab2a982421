// SPDX-License-Identifier: Apache-2.0
/*
 * 3x3 convolutions made of tiles of m x m outputs (ir/winograd.h), channels-last:
 *
 *   input     V[p][tile][c] = (B' d B)[p]     of the tile's (m + 2)^2 pixels d; vectors over channels, zeros beyond the image
 *   product   M[p][tile][o] = sum over c of V[p][tile][c] * U[p][c][o], for each of the (m + 2)^2 points p: register tiles as in
 *             lower_matmul.c, partial sums as elsewhere; U, the weights' transforms, is packed at build time in panels
 *   output    Y = A' M A, bias, epilogue, store
 *
 * In blocks (passes/winograd.h) a slice does all three for some tiles, with V and, a panel at a time, M on its stack; U is then
 * [panel][p][c][P]. Else these are three launches with V and M in scratch memory, and U is [p][panel][c][P]. Tiles are numbered
 * in one line over images, rows and columns. An output's value depends on its tile alone: not on slices, blocks or threads.
 */
#include "passes/lower.h"
#include "passes/tile_shape.h"
#include "passes/winograd.h"

#define SLICE_TILES 8        /* of a slice of the transforms' launches */
#define PREFETCH_BYTES 1024  /* ahead in the panel */

struct wino {
    struct lower_ctx *l;
    struct expr_ctx *e;
    struct winograd w;
    const struct ir_type *x, *out;
    const struct dim *pad[2], *axes[3], *tiles; /* zeros before; images, rows and columns of tiles */
    int64_t c, o, panels;
    int points, panel, nr, mr, lanes;
    bool blocked;
    int64_t block;               /* tiles of a slice, blocked */
    int xb, ub, bias, vb, mb;    /* buffers; bias -1: none */
};

static struct lp_value *index_add(struct wino *c, struct lp_value *x, int64_t y) { return lp_binary(&c->e->b, LP_OP_ADD, x, lp_index(&c->e->b, y)); }

/* ---- one-dimensional transforms ---- */

/* x * k + sum; sum NULL: x * k. */
static struct lp_value *add_times(struct wino *c, struct lp_value *sum, struct lp_value *x, double k)
{
    struct lp_builder *b = &c->e->b;
    if (k == 1) return sum ? lp_binary(b, LP_OP_ADD, sum, x) : x;
    if (k == -1 && sum) return lp_binary(b, LP_OP_SUB, sum, x);
    struct lp_value *f = lp_const_f(b, lp_scalar(DT_F32), k);
    return sum ? lp_fma(b, x, f, sum) : lp_binary(b, LP_OP_MUL, x, f);
}

/* Sum of the terms with factors scale * k[i], those of 1 first, so that the others are fused multiply-adds. */
static struct lp_value *combine(struct wino *c, int n, const double *k, struct lp_value *const *x, double scale)
{
    struct lp_value *sum = NULL;
    for (int i = 0; i < n; i++)
        if (k[i] != 0 && k[i] * scale == 1) sum = add_times(c, sum, x[i], 1);
    for (int i = 0; i < n; i++)
        if (k[i] != 0 && k[i] * scale != 1) sum = add_times(c, sum, x[i], k[i] * scale);
    return sum;
}

/* y = B' x: the rows of points +p and -p are even +- p * odd, odd scaled so that its last factor is 1. */
static void transform_input(struct wino *c, struct lp_value *const *x, struct lp_value **y)
{
    int t = c->w.t;
    y[0] = combine(c, t, c->w.bt[0], x, 1);
    for (int r = 1; r + 1 < t; r += 2) {
        double even[WINOGRAD_MAX_T] = {0}, odd[WINOGRAD_MAX_T] = {0}, p = 0;
        for (int i = 0; i < t; i++) {
            double a = c->w.bt[r][i], b = c->w.bt[r + 1][i];
            INFC_ASSERT(a == b || a == -b);
            if (a == b) even[i] = a;
            else odd[i] = p = a;
        }
        struct lp_value *e = combine(c, t, even, x, 1), *d = combine(c, t, odd, x, 1 / p);
        y[r] = add_times(c, e, d, p);
        y[r + 1] = add_times(c, e, d, -p);
    }
    y[t - 1] = combine(c, t, c->w.bt[t - 1], x, 1);
}

/* y = A' x: sums and differences of what belongs to +p and -p. */
static void transform_output(struct wino *c, struct lp_value *const *x, struct lp_value **y)
{
    struct lp_value *terms[WINOGRAD_MAX_T];
    int t = c->w.t;
    for (int i = 0; i < c->w.m; i++) {
        double k[WINOGRAD_MAX_T] = {0};
        terms[0] = x[0], k[0] = c->w.at[i][0];
        terms[t - 1] = x[t - 1], k[t - 1] = c->w.at[i][t - 1];
        for (int r = 1; r + 1 < t; r += 2) {
            double a = c->w.at[i][r], b = c->w.at[i][r + 1];
            INFC_ASSERT(a == b || a == -b);
            terms[r] = lp_binary(&c->e->b, a == b ? LP_OP_ADD : LP_OP_SUB, x[r], x[r + 1]), k[r] = a;
            terms[r + 1] = NULL;
        }
        y[i] = combine(c, t, k, terms, 1);
    }
}

/* ---- input ---- */

/* Where a tile lies: image, first output row and column. */
struct spot {
    struct lp_value *n, *y, *x;
};

static struct spot spot_of(struct wino *c, struct lp_value *tile)
{
    struct lp_value *coord[3], *m = lp_index(&c->e->b, c->w.m);
    expr_delinear(c->e, tile, 3, c->axes, coord);
    return (struct spot){coord[0], lp_binary(&c->e->b, LP_OP_MUL, coord[1], m), lp_binary(&c->e->b, LP_OP_MUL, coord[2], m)};
}

/* The pixels of a tile along an axis: coordinates, and which of them are in the image (NULL: all). */
struct line {
    struct lp_value *at[WINOGRAD_MAX_T], *in[WINOGRAD_MAX_T];
};

static void make_line(struct wino *c, struct lp_value *first, const struct dim *size, bool border, struct line *line)
{
    for (int i = 0; i < c->w.t; i++) {
        struct lp_value *at = index_add(c, first, i);
        line->in[i] = border ? expr_in_bounds(c->e, at, size) : NULL;
        line->at[i] = border ? expr_clamp(c->e, at, size) : at;
    }
}

static void input_channels(struct wino *c, const struct spot *s, const struct line *ys, const struct line *xs, struct lp_value *row,
                           struct lp_value *channel, struct lp_value *ncols)
{
    struct lp_builder *b = &c->e->b;
    int t = c->w.t;
    struct lp_value *d[WINOGRAD_MAX_T], *v[WINOGRAD_MAX_T], *half[WINOGRAD_MAX_T][WINOGRAD_MAX_T];
    for (int j = 0; j < t; j++) {
        for (int i = 0; i < t; i++) {
            struct lp_value *idx[4] = {s->n, ys->at[i], xs->at[j], channel};
            d[i] = lp_load_tile(b, c->xb, idx, 1, c->lanes, 0, 3, NULL, ncols);
            if (!ys->in[i]) continue;
            d[i] = lp_select(b, lp_binary(b, LP_OP_AND, ys->in[i], xs->in[j]), d[i], lp_const_f(b, lp_vector(DT_F32, c->lanes), 0));
        }
        transform_input(c, d, v);
        for (int i = 0; i < t; i++) half[i][j] = v[i];
    }
    for (int i = 0; i < t; i++) {
        transform_input(c, half[i], v);
        for (int j = 0; j < t; j++) {
            struct lp_value *idx[3] = {lp_index(b, i * t + j), row, channel};
            lp_store_tile(b, c->vb, idx, v[j], 0, 2, NULL, ncols);
        }
    }
}

static void input_pixels(struct wino *c, const struct spot *s, struct lp_value *y, struct lp_value *x, struct lp_value *row, bool border)
{
    struct expr_ctx *e = c->e;
    struct line ys, xs;
    make_line(c, y, c->x->dims[1], border, &ys);
    make_line(c, x, c->x->dims[2], border, &xs);
    int64_t full = c->c / c->lanes * c->lanes;
    if (full) {
        struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, lp_index(&e->b, full), c->lanes, 0, NULL);
        input_channels(c, s, &ys, &xs, row, loop->regions[0]->args[0], NULL);
        expr_for_end(e, loop, NULL);
    }
    if (full < c->c) input_channels(c, s, &ys, &xs, row, lp_index(&e->b, full), lp_index(&e->b, c->c - full));
}

/* The transforms of a tile's pixels into row `row` of V. */
static void input_tile(struct wino *c, struct lp_value *tile, struct lp_value *row)
{
    struct expr_ctx *e = c->e;
    struct lp_builder *b = &e->b;
    struct spot s = spot_of(c, tile);
    struct lp_value *y = lp_binary(b, LP_OP_SUB, s.y, expr_dim(e, c->pad[0])), *x = lp_binary(b, LP_OP_SUB, s.x, expr_dim(e, c->pad[1]));
    struct lp_value *in = lp_binary(b, LP_OP_LE, index_add(c, y, c->w.t), expr_dim(e, c->x->dims[1]));
    in = lp_binary(b, LP_OP_AND, in, lp_binary(b, LP_OP_LE, index_add(c, x, c->w.t), expr_dim(e, c->x->dims[2])));
    if (!dim_is(c->pad[0], 0)) in = lp_binary(b, LP_OP_AND, in, lp_binary(b, LP_OP_GE, y, e->zero));
    if (!dim_is(c->pad[1], 0)) in = lp_binary(b, LP_OP_AND, in, lp_binary(b, LP_OP_GE, x, e->zero));
    struct lp_op *inside = lp_if_begin(b, in, 0, NULL);
    size_t mark = expr_scope_push(e);
    input_pixels(c, &s, y, x, row, false);
    expr_scope_pop(e, mark);
    lp_if_else(b, inside, NULL);
    mark = expr_scope_push(e);
    input_pixels(c, &s, y, x, row, true);
    expr_scope_pop(e, mark);
    lp_if_end(b, inside, NULL);
}

/* ---- products ---- */

/* A register tile: rows of V at a point by a piece of a panel. */
struct tile {
    struct lp_value *point, *panel, *row, *pass; /* pass: its number among those of the panel */
    struct lp_value *nrows;                      /* NULL: all rows are there */
    int rows, piece;
    int passes; /* of a panel, at least; 0: many */
};

static void weight_index(struct wino *c, const struct tile *t, struct lp_value *k, struct lp_value *col, struct lp_value **idx)
{
    idx[0] = c->blocked ? t->panel : t->point, idx[1] = c->blocked ? t->point : t->panel;
    idx[2] = k, idx[3] = col;
}

/* The panel some steps ahead, and the share of the next panel that falls to this pass, into the second-level cache. */
static void prefetch(struct wino *c, const struct tile *t, struct lp_value *k)
{
    struct lp_builder *b = &c->e->b;
    struct lp_value *idx[4];
    int lines = c->panel / 16, ahead = PREFETCH_BYTES / 4 / c->panel;
    for (int i = 0; i < c->nr; i += 16) {
        weight_index(c, t, index_add(c, k, ahead), lp_index(b, t->piece + i), idx);
        lp_prefetch(b, c->ub, idx);
    }
    if (t->piece) return;
    int each = t->passes && t->passes < lines ? (lines + t->passes - 1) / t->passes : 1;
    struct lp_value *pass = t->pass, *row = k;
    if (!t->passes || t->passes >= 2 * lines) { /* half of a column of lines a pass */
        pass = lp_binary(b, LP_OP_MIN, pass, lp_index(b, 2 * lines - 1));
        row = lower_half_row(b, pass, k, c->c);
        pass = lp_binary(b, LP_OP_FLOORDIV, pass, lp_index(b, 2));
    }
    for (int i = 0; i < each; i++) {
        struct lp_value *line = lp_binary(b, LP_OP_ADD, lp_binary(b, LP_OP_MUL, pass, lp_index(b, each)), lp_index(b, i));
        line = lp_binary(b, LP_OP_MIN, line, lp_index(b, lines - 1));
        weight_index(c, t, row, lp_binary(b, LP_OP_MUL, line, lp_index(b, 16)), idx);
        idx[1] = index_add(c, idx[1], 1);
        lp_prefetch_far(b, c->ub, idx);
    }
}

/* acc + the products of channels [lo, hi). */
static struct lp_value *multiply_run(struct wino *c, const struct tile *t, struct lp_value *lo, struct lp_value *hi, struct lp_value *acc)
{
    struct expr_ctx *e = c->e;
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, lo, hi, 1, 1, &acc);
    struct lp_value *k = loop->regions[0]->args[0], *vi[3] = {t->point, t->row, k}, *ui[4];
    prefetch(c, t, k);
    weight_index(c, t, k, lp_index(&e->b, t->piece), ui);
    struct lp_value *a = lp_load_tile(&e->b, c->vb, vi, t->rows, 1, 1, 2, t->nrows, NULL);
    struct lp_value *u = lp_load_tile(&e->b, c->ub, ui, 1, c->nr, 0, 3, NULL, NULL);
    struct lp_value *next = lp_mma(&e->b, loop->regions[0]->args[1], a, u, 1);
    expr_for_end(e, loop, &next);
    return loop->results[0];
}

static void multiply_tile(struct wino *c, const struct tile *t)
{
    struct expr_ctx *e = c->e;
    struct lp_builder *b = &e->b;
    struct lp_value *acc = lp_const_f(b, lp_tile(DT_F32, t->rows, c->nr), 0), *size = lp_index(b, c->c);
    int64_t part = lower_part(c->c);
    if (c->c < 3 * part) {
        acc = multiply_run(c, t, e->zero, size, acc);
    } else {
        struct lp_op *parts = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, size, part, 1, &acc);
        struct lp_value *lo = parts->regions[0]->args[0], *hi = lp_binary(b, LP_OP_MIN, index_add(c, lo, part), size);
        struct lp_value *sum = multiply_run(c, t, lo, hi, lp_const_f(b, lp_tile(DT_F32, t->rows, c->nr), 0));
        sum = lp_binary(b, LP_OP_ADD, parts->regions[0]->args[1], sum);
        expr_for_end(e, parts, &sum);
        acc = parts->results[0];
    }
    struct lp_value *col = lp_index(b, t->piece);
    if (!c->blocked) col = lp_binary(b, LP_OP_ADD, lp_binary(b, LP_OP_MUL, t->panel, lp_index(b, c->panel)), col);
    struct lp_value *idx[3] = {t->point, t->row, col};
    lp_store_tile(b, c->mb, idx, acc, 1, 2, t->nrows, NULL);
}

static void multiply_row(struct wino *c, struct tile *t)
{
    for (t->piece = 0; t->piece < c->panel; t->piece += c->nr) {
        size_t mark = expr_scope_push(c->e);
        multiply_tile(c, t);
        expr_scope_pop(c->e, mark);
    }
}

/* Rows [0, count) of V at a point by a panel; known: count is that many, 0: only a call knows. */
static void multiply_panel(struct wino *c, struct lp_value *point, struct lp_value *panel, struct lp_value *count, int64_t known)
{
    struct expr_ctx *e = c->e;
    struct lp_builder *b = &e->b;
    struct lp_value *mr = lp_index(b, c->mr), *rest = lp_binary(b, LP_OP_MOD, count, mr), *full = lp_binary(b, LP_OP_SUB, count, rest);
    struct tile t = {.point = point, .panel = panel, .rows = c->mr};
    t.passes = known ? (int)((known + c->mr - 1) / c->mr) : c->blocked ? (int)(c->block / c->mr) : 0;
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, full, c->mr, 0, NULL);
    t.row = loop->regions[0]->args[0];
    t.pass = lp_binary(b, LP_OP_FLOORDIV, t.row, mr);
    multiply_row(c, &t);
    expr_for_end(e, loop, NULL);
    if (known && known % c->mr == 0) return;
    struct lp_op *left = known ? NULL : lp_if_begin(b, lp_binary(b, LP_OP_GT, rest, e->zero), 0, NULL);
    size_t mark = expr_scope_push(e);
    t.row = full, t.pass = lp_binary(b, LP_OP_FLOORDIV, full, mr);
    if (known) t.rows = (int)(known % c->mr);
    else t.nrows = rest;
    multiply_row(c, &t);
    expr_scope_pop(e, mark);
    if (!left) return;
    lp_if_else(b, left, NULL);
    lp_if_end(b, left, NULL);
}

/* ---- output ---- */

/* Bias, epilogue and store of row y of a tile's outputs, which lie on the stack. */
static void output_row(struct wino *c, const struct spot *s, struct lp_value *y, int stack, struct lp_value *channel, struct lp_value *nrows,
                       struct lp_value *ncols)
{
    struct expr_ctx *e = c->e;
    struct lp_builder *b = &e->b;
    struct lp_value *from[3] = {y, e->zero, e->zero}, *to[4] = {s->n, lp_binary(b, LP_OP_ADD, s->y, y), s->x, channel};
    struct lp_value *v = lp_load_tile(b, stack, from, c->w.m, c->nr, 1, 2, NULL, NULL);
    if (c->bias >= 0) v = lp_binary(b, LP_OP_ADD, v, lp_load_tile(b, c->bias, &channel, 1, c->nr, 0, 0, NULL, ncols));
    v = lower_tile_epilogue(c->l, v, to, 2, nrows, ncols);
    lp_store_tile(b, lower_result_buf(c->l, 0), to, v, 2, 3, nrows, ncols);
}

/* Outputs of row `row` of M, columns [col, + nr): the channels from `channel` on. */
static void output_columns(struct wino *c, const struct spot *s, int stack, struct lp_value *row, struct lp_value *col, struct lp_value *channel)
{
    struct expr_ctx *e = c->e;
    struct lp_builder *b = &e->b;
    int t = c->w.t, m = c->w.m;
    struct lp_value *x[WINOGRAD_MAX_T], *y[WINOGRAD_MAX_T], *half[WINOGRAD_MAX_M][WINOGRAD_MAX_T];
    for (int piece = 0; piece < c->nr; piece += c->lanes) {
        for (int j = 0; j < t; j++) {
            for (int i = 0; i < t; i++) {
                struct lp_value *idx[3] = {lp_index(b, i * t + j), row, index_add(c, col, piece)};
                x[i] = lp_load_tile(b, c->mb, idx, 1, c->lanes, 0, 2, NULL, NULL);
            }
            transform_output(c, x, y);
            for (int i = 0; i < m; i++) half[i][j] = y[i];
        }
        for (int i = 0; i < m; i++) {
            transform_output(c, half[i], y);
            for (int j = 0; j < m; j++) {
                struct lp_value *idx[3] = {lp_index(b, i), lp_index(b, j), lp_index(b, piece)};
                lp_store_tile(b, stack, idx, y[j], 0, 2, NULL, NULL);
            }
        }
    }
    struct lp_value *ncols = NULL, *nrows = NULL, *height = lp_index(b, m);
    if (c->o % c->nr) ncols = lp_binary(b, LP_OP_SUB, lp_index(b, c->o), channel);
    const struct dim *h = c->out->dims[1], *w = c->out->dims[2];
    if (!dim_is_const(w) || w->value % m) nrows = lp_binary(b, LP_OP_SUB, expr_dim(e, w), s->x);
    if (!dim_is_const(h) || h->value % m) height = lp_binary(b, LP_OP_MIN, height, lp_binary(b, LP_OP_SUB, expr_dim(e, h), s->y));
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, height, 1, 0, NULL);
    output_row(c, s, loop->regions[0]->args[0], stack, channel, nrows, ncols);
    expr_for_end(e, loop, NULL);
}

/* Columns [0, n) of M's row, which belong to the channels from `first` on. */
static void output_tile(struct wino *c, int stack, struct lp_value *tile, struct lp_value *row, struct lp_value *n, struct lp_value *first)
{
    struct expr_ctx *e = c->e;
    struct spot s = spot_of(c, tile);
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, n, c->nr, 0, NULL);
    struct lp_value *col = loop->regions[0]->args[0];
    output_columns(c, &s, stack, row, col, expr_iadd(e, first, col));
    expr_for_end(e, loop, NULL);
}

static int output_stack(struct wino *c)
{
    int64_t dims[] = {c->w.m, c->w.m, c->nr};
    return lp_add_stack(c->l->k, "outputs", DT_F32, 3, dims);
}

/* ---- kernels ---- */

/* w[O, C, 3, 3], transformed -> [panel][p][C][P] or [p][panel][C][P]. */
static void pack(struct wino *c)
{
    struct plan_pack p = {.rank = 4, .in_rank = 3, .winograd = c->w.m, .in_dims = {c->o, c->c, c->points}};
    int panel = c->blocked ? 0 : 1, point = 1 - panel;
    p.dims[panel] = c->panels, p.in_axis[panel] = 0, p.stride[panel] = c->panel;
    p.dims[point] = c->points, p.in_axis[point] = 2, p.stride[point] = 1;
    p.dims[2] = c->c, p.in_axis[2] = 1, p.stride[2] = 1;
    p.dims[3] = c->panel, p.in_axis[3] = 0, p.stride[3] = 1;
    lower_set_pack(c->l, c->ub, &p, 64);
}

static bool setup(struct wino *c)
{
    struct lower_ctx *l = c->l;
    const struct ir_op *op = l->anchor;
    if (!op || op->code != IR_OP_CONV || !winograd_fits(op) || !lower_tile_epilogue_ok(l)) return false;
    int64_t m = ir_attr_int(op, "winograd", 0);
    int n;
    if (m != 2 && m != 4) return false;
    c->xb = lower_operand_of(l, ir_operand(op, 0)), c->ub = lower_operand_of(l, ir_operand(op, 1));
    c->bias = ir_operand(op, 2) ? lower_operand_of(l, ir_operand(op, 2)) : -1;
    if (c->xb < 0 || c->ub < 0 || (ir_operand(op, 2) && c->bias < 0)) return false;
    if (ir_operand(op, 1)->uses->next || !l->operand_consts[c->ub]) return false;
    c->w = winograd_make((int)m);
    c->x = &ir_operand(op, 0)->type, c->out = &op->results[0].type;
    const struct ir_type *w = &ir_operand(op, 1)->type;
    c->o = w->dims[0]->value, c->c = w->dims[1]->value, c->points = c->w.t * c->w.t;
    const struct dim *const *pads = ir_attr_dims(op, "pads", &n), *zero = dim_const(l->m->dims, 0), *size = dim_const(l->m->dims, m);
    for (int i = 0; i < 2; i++) {
        c->pad[i] = pads ? pads[i] : zero;
        c->axes[1 + i] = dim_ceildiv(l->m->dims, c->out->dims[1 + i], size);
    }
    c->axes[0] = c->out->dims[0];
    c->tiles = dim_mul(l->m->dims, c->axes[0], dim_mul(l->m->dims, c->axes[1], c->axes[2]));
    c->panel = winograd_panel(c->o), c->panels = (c->o + c->panel - 1) / c->panel;
    int64_t tiles = winograd_tiles(l->m, op, (int)m);
    c->blocked = winograd_in_blocks((int)m, tiles, c->c, c->o);
    c->lanes = l->level->vector_bytes / 4;
    return true;
}

/* Tiles of a block: as many blocks as it takes, of about the same size. */
static void choose_block(struct wino *c)
{
    struct dim_ctx *dc = c->l->m->dims;
    tile_shape(c->l->level, 4, c->panel, dim_const(dc, 4096), false, &c->mr, &c->nr);
    c->block = winograd_block(c->w.m, c->c, c->o, c->mr);
    if (!dim_is_const(c->tiles)) return;
    int64_t n = (c->tiles->value + c->block - 1) / c->block, even = n + n % 2; /* for two threads */
    int64_t each = (c->tiles->value + even - 1) / even;
    c->block = (each + c->mr - 1) / c->mr * c->mr;
}

/* Tiles of slice s, `each` a slice: first and end. */
static struct lp_value *slice_end(struct wino *c, struct lp_value *first, int64_t each)
{
    return lp_binary(&c->e->b, LP_OP_MIN, index_add(c, first, each), expr_dim(c->e, c->tiles));
}

static void emit_blocks(struct wino *c)
{
    struct expr_ctx *e = c->e;
    struct lp_builder *b = &e->b;
    struct lower_ctx *l = c->l;
    int64_t v[] = {c->points, c->block, c->c}, m[] = {c->points, c->block, c->panel};
    c->vb = lp_add_stack(l->k, "pixels", DT_F32, 3, v), c->mb = lp_add_stack(l->k, "products", DT_F32, 3, m);
    int stack = output_stack(c);
    lower_set_slices(l, dim_ceildiv(l->m->dims, c->tiles, dim_const(l->m->dims, c->block)));
    struct lp_value *first = lp_binary(b, LP_OP_MUL, lower_slice(l), lp_index(b, c->block)), *end = slice_end(c, first, c->block);
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, first, end, 1, 0, NULL);
    struct lp_value *tile = loop->regions[0]->args[0];
    input_tile(c, tile, lp_binary(b, LP_OP_SUB, tile, first));
    expr_for_end(e, loop, NULL);
    struct lp_op *panels = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, lp_index(b, c->panels), 1, 0, NULL);
    struct lp_value *panel = panels->regions[0]->args[0];
    struct lp_op *points = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, lp_index(b, c->points), 1, 0, NULL);
    bool even = dim_is_const(c->tiles) && c->tiles->value % c->block == 0;
    multiply_panel(c, points->regions[0]->args[0], panel, even ? lp_index(b, c->block) : lp_binary(b, LP_OP_SUB, end, first), even ? c->block : 0);
    expr_for_end(e, points, NULL);
    struct lp_value *channel = lp_binary(b, LP_OP_MUL, panel, lp_index(b, c->panel)), *n = lp_index(b, c->panel);
    if (c->o % c->panel) n = lp_binary(b, LP_OP_MIN, n, lp_binary(b, LP_OP_SUB, lp_index(b, c->o), channel));
    loop = expr_for_begin(e, LP_LOOP_SERIAL, first, end, 1, 0, NULL);
    tile = loop->regions[0]->args[0];
    output_tile(c, stack, tile, lp_binary(b, LP_OP_SUB, tile, first), n, channel);
    expr_for_end(e, loop, NULL);
    expr_for_end(e, panels, NULL);
    l->k->schedule = "winograd-blocks";
}

/* V and M for all tiles, in scratch memory; the packing is said by each kernel. */
static void add_scratch(struct wino *c)
{
    struct dim_ctx *dc = c->l->m->dims;
    const struct dim *rows = c->tiles, *points = dim_const(dc, c->points);
    const struct dim *v[] = {points, rows, dim_const(dc, c->c)}, *m[] = {points, rows, dim_const(dc, c->panels * c->panel)};
    c->vb = lp_add_arg(c->l->k, "pixels", DT_F32, 3, v, true, 4);
    c->mb = lp_add_arg(c->l->k, "products", DT_F32, 3, m, true, 4);
    pack(c);
}

static struct lp_op *tiles_of_slice(struct wino *c)
{
    struct dim_ctx *dc = c->l->m->dims;
    lower_set_slices(c->l, dim_ceildiv(dc, c->tiles, dim_const(dc, SLICE_TILES)));
    struct lp_value *first = lp_binary(&c->e->b, LP_OP_MUL, lower_slice(c->l), lp_index(&c->e->b, SLICE_TILES));
    return expr_for_begin(c->e, LP_LOOP_SERIAL, first, slice_end(c, first, SLICE_TILES), 1, 0, NULL);
}

static void emit_whole(struct wino *c)
{
    struct expr_ctx *e = c->e;
    struct lp_builder *b = &e->b;
    struct lower_ctx *l = c->l;
    struct dim_ctx *dc = l->m->dims;
    tile_shape(l->level, 4, c->panel, c->tiles, false, &c->mr, &c->nr);
    add_scratch(c);
    struct lp_op *loop = tiles_of_slice(c);
    input_tile(c, loop->regions[0]->args[0], loop->regions[0]->args[0]);
    expr_for_end(e, loop, NULL);
    l->k->schedule = "winograd-input";
    lower_next(l, "input");
    add_scratch(c);
    lower_set_slices(l, dim_const(dc, c->points * c->panels));
    struct lp_value *s = lower_slice(l), *panels = lp_index(b, c->panels);
    struct lp_value *point = lp_binary(b, LP_OP_FLOORDIV, s, panels), *panel = lp_binary(b, LP_OP_MOD, s, panels);
    multiply_panel(c, point, panel, expr_dim(e, c->tiles), dim_is_const(c->tiles) ? c->tiles->value : 0);
    l->k->schedule = "winograd-product";
    lower_next(l, "product");
    add_scratch(c);
    int stack = output_stack(c);
    loop = tiles_of_slice(c);
    output_tile(c, stack, loop->regions[0]->args[0], loop->regions[0]->args[0], lp_index(b, c->o), e->zero);
    expr_for_end(e, loop, NULL);
    l->k->schedule = "winograd-output";
}

enum lower_result lower_winograd(struct lower_ctx *l)
{
    struct wino c = {.l = l, .e = &l->e};
    if (!setup(&c)) return LOWER_NOT_MINE;
    if (c.blocked) {
        choose_block(&c);
        pack(&c);
        emit_blocks(&c);
    } else {
        emit_whole(&c);
    }
    return LOWER_DONE;
}
