// SPDX-License-Identifier: Apache-2.0
/*
 * Sampling at given places as indexed expressions: grid_sample and roi_align. Coordinates are f64, values are summed in
 * f32 (f64 for f64), corners are written out.
 */
#include <math.h>
#include <string.h>

#include "passes/expr_num.h"

static struct lp_value *bin(struct expr_ctx *c, enum lp_opcode code, struct lp_value *a, struct lp_value *b)
{
    return num_op(c, code, a, b);
}

static struct lp_value *binc(struct expr_ctx *c, enum lp_opcode code, struct lp_value *a, double b)
{
    return num_opc(c, code, a, b);
}

/* ---- grid_sample ---- */

enum padding { ZEROS, BORDER, REFLECTION };
enum mode { LINEAR, NEAREST, CUBIC };

struct grid {
    struct expr_ctx *c;
    const struct ir_value *x;
    enum padding padding;
    enum mode mode;
    bool align;
    enum dtype acc;
};

/* Neighbours of a point along one axis; inside NULL: always. */
struct taps {
    int n;
    struct lp_value *index[4], *weight[4], *inside[4];
};

/* Mirrors v at lo and lo + range until it lies between them. Exact: v and range are halves below 2^41. */
static struct lp_value *reflect(struct grid *g, struct lp_value *v, const struct dim *d)
{
    struct expr_ctx *c = g->c;
    struct lp_builder *b = &c->b;
    double lo = g->align ? 0 : -0.5;
    struct lp_value *range = binc(c, LP_OP_SUB, num_of_dim(c, d), g->align ? 1 : 0), *zero = num_f(c, 0);
    if (g->align && d->hi <= 1) return zero;
    struct lp_value *safe = binc(c, LP_OP_MAX, range, 0.5); /* a range of 0 gives lo: selected below */
    struct lp_value *twice = binc(c, LP_OP_MUL, safe, 2), *hi = binc(c, LP_OP_ADD, range, lo);
    struct lp_value *far = lp_unary(b, LP_OP_ABS, binc(c, LP_OP_SUB, v, lo));
    struct lp_value *turns = lp_unary(b, LP_OP_FLOOR, bin(c, LP_OP_DIV, far, twice));
    struct lp_value *rest = bin(c, LP_OP_SUB, far, bin(c, LP_OP_MUL, turns, twice));
    rest = lp_select(b, lp_binary(b, LP_OP_LT, rest, zero), bin(c, LP_OP_ADD, rest, twice), rest); /* rounded up */
    struct lp_value *up = binc(c, LP_OP_ADD, rest, lo), *down = bin(c, LP_OP_SUB, hi, bin(c, LP_OP_SUB, rest, safe));
    struct lp_value *m = lp_select(b, lp_binary(b, LP_OP_LE, rest, safe), up, down);
    struct lp_value *in = lp_binary(b, LP_OP_AND, lp_binary(b, LP_OP_GE, v, num_f(c, lo)), lp_binary(b, LP_OP_LE, v, hi));
    m = lp_select(b, in, v, m);
    if (!g->align || d->lo > 1) return m;
    return lp_select(b, lp_binary(b, LP_OP_LE, range, zero), zero, m);
}

/* The point's coordinate v in [-1, 1] in elements of the axis, brought into the image as the padding wants. */
static struct lp_value *place(struct grid *g, struct lp_value *v, const struct dim *d)
{
    struct expr_ctx *c = g->c;
    struct lp_builder *b = &c->b;
    struct lp_value *n = num_of_dim(c, d), *last = binc(c, LP_OP_SUB, n, 1);
    v = lp_cast(b, v, DT_F64);
    struct lp_value *v1 = binc(c, LP_OP_ADD, v, 1);
    struct lp_value *p = g->align ? bin(c, LP_OP_MUL, binc(c, LP_OP_MUL, v1, 0.5), last)
                                  : binc(c, LP_OP_MUL, binc(c, LP_OP_SUB, bin(c, LP_OP_MUL, v1, n), 1), 0.5);
    p = lp_select(b, lp_binary(b, LP_OP_NE, p, p), num_f(c, -0x1p40), p); /* like far outside */
    p = binc(c, LP_OP_MIN, binc(c, LP_OP_MAX, p, -0x1p40), 0x1p40);
    if (g->mode == NEAREST) p = lp_unary(b, LP_OP_ROUND, p);
    if (g->mode == CUBIC) return p; /* only its neighbours are brought in */
    if (g->padding == BORDER) p = bin(c, LP_OP_MIN, binc(c, LP_OP_MAX, p, 0), last);
    if (g->padding == REFLECTION) p = reflect(g, p, d);
    return p;
}

static void neighbour(struct grid *g, struct lp_value *pos, const struct dim *d, struct lp_value **index, struct lp_value **inside)
{
    struct expr_ctx *c = g->c;
    struct lp_builder *b = &c->b;
    *inside = NULL;
    if (g->padding == ZEROS)
        *inside = lp_binary(b, LP_OP_AND, lp_binary(b, LP_OP_GE, pos, num_f(c, 0)),
                            lp_binary(b, LP_OP_LT, pos, num_of_dim(c, d)));
    if (g->padding == REFLECTION) pos = reflect(g, pos, d);
    *index = num_to_index(c, pos, d);
}

static void cubic_weights(struct expr_ctx *c, struct lp_value *d, struct lp_value **w)
{
    const double a = -0.75;
    struct lp_value *e = bin(c, LP_OP_SUB, num_f(c, 1), d), *side[2] = {d, e};
    for (int s = 0; s < 2; s++) {
        struct lp_value *t = side[s], *u = binc(c, LP_OP_ADD, t, 1);
        struct lp_value *far = binc(c, LP_OP_SUB, binc(c, LP_OP_MUL, u, a), 5 * a);
        far = binc(c, LP_OP_ADD, bin(c, LP_OP_MUL, far, u), 8 * a);
        w[s ? 3 : 0] = binc(c, LP_OP_SUB, bin(c, LP_OP_MUL, far, u), 4 * a);
        struct lp_value *near = binc(c, LP_OP_SUB, binc(c, LP_OP_MUL, t, a + 2), a + 3);
        w[s ? 2 : 1] = binc(c, LP_OP_ADD, bin(c, LP_OP_MUL, bin(c, LP_OP_MUL, near, t), t), 1);
    }
}

static void axis_taps(struct grid *g, struct lp_value *at, const struct dim *d, struct taps *t)
{
    struct expr_ctx *c = g->c;
    struct lp_value *base = lp_unary(&c->b, LP_OP_FLOOR, at), *frac = bin(c, LP_OP_SUB, at, base);
    int first = 0;
    t->n = 1;
    t->weight[0] = NULL;
    if (g->mode == LINEAR) {
        t->n = 2;
        t->weight[0] = bin(c, LP_OP_SUB, num_f(c, 1), frac);
        t->weight[1] = frac;
    } else if (g->mode == CUBIC) {
        t->n = 4;
        first = -1;
        cubic_weights(c, frac, t->weight);
    }
    for (int i = 0; i < t->n; i++) {
        neighbour(g, binc(c, LP_OP_ADD, base, first + i), d, &t->index[i], &t->inside[i]);
        if (t->weight[i]) t->weight[i] = lp_cast(&c->b, t->weight[i], g->acc);
    }
}

/* Sum over the taps of axes d and up; inside: all outer taps exist (NULL: sure). */
static struct lp_value *grid_sum(struct grid *g, const struct taps *t, int d, int rank, struct lp_value **sub, struct lp_value *inside)
{
    struct expr_ctx *c = g->c;
    struct lp_builder *b = &c->b;
    if (d == rank) {
        struct lp_value *v = lp_cast(b, expr_at(c, g->x, sub), g->acc);
        return inside ? lp_select(b, inside, v, lp_const_f(b, lp_scalar(g->acc), 0)) : v;
    }
    struct lp_value *acc = NULL;
    for (int i = 0; i < t[d].n; i++) {
        struct lp_value *in = t[d].inside[i];
        if (inside && in) in = lp_binary(b, LP_OP_AND, inside, in);
        sub[2 + d] = t[d].index[i];
        struct lp_value *v = grid_sum(g, t, d + 1, rank, sub, in ? in : inside);
        if (t[d].weight[i]) v = lp_binary(b, LP_OP_MUL, t[d].weight[i], v);
        acc = acc ? lp_binary(b, LP_OP_ADD, acc, v) : v;
    }
    return acc;
}

struct lp_value *expr_grid_sample(struct expr_ctx *c, const struct ir_op *op, int r, struct lp_value *const *idx)
{
    (void)r;
    const struct ir_value *x = ir_operand(op, 0), *points = ir_operand(op, 1);
    const char *mode = ir_attr_string(op, "mode", "linear"), *padding = ir_attr_string(op, "padding", "zeros");
    struct grid g = {.c = c, .x = x, .align = ir_attr_int(op, "align_corners", 0), .acc = num_acc(x->type.dtype)};
    g.mode = !strcmp(mode, "nearest") ? NEAREST : !strcmp(mode, "cubic") ? CUBIC : LINEAR;
    g.padding = !strcmp(padding, "border") ? BORDER : !strcmp(padding, "reflection") ? REFLECTION : ZEROS;
    int rank = x->type.rank - 2;
    struct lp_value *at[IR_MAX_RANK], *sub[IR_MAX_RANK];
    struct taps taps[IR_MAX_RANK];
    at[0] = sub[0] = idx[0];
    sub[1] = idx[1];
    for (int d = 0; d < rank; d++) at[1 + d] = idx[2 + d];
    for (int d = 0; d < rank; d++) { /* a point counts its coordinates from the last axis on */
        at[1 + rank] = lp_index(&c->b, rank - 1 - d);
        struct lp_value *p = place(&g, expr_at(c, points, at), x->type.dims[2 + d]);
        axis_taps(&g, p, x->type.dims[2 + d], &taps[d]);
    }
    return lp_cast(&c->b, grid_sum(&g, taps, 0, rank, sub, NULL), x->type.dtype);
}

/* ---- roi_align ---- */

/* Position v on an axis: the two elements, their weights, and whether it is near the image at all. */
struct roi_axis {
    struct lp_value *index[2], *weight[2], *inside;
};

static void roi_axis(struct expr_ctx *c, struct lp_value *v, const struct dim *d, enum dtype acc, struct roi_axis *a)
{
    struct lp_builder *b = &c->b;
    struct lp_value *n = num_of_dim(c, d), *last = binc(c, LP_OP_SUB, n, 1);
    a->inside = lp_binary(b, LP_OP_AND, lp_binary(b, LP_OP_GE, v, num_f(c, -1)), lp_binary(b, LP_OP_LE, v, n));
    v = bin(c, LP_OP_MIN, binc(c, LP_OP_MAX, v, 0), last);
    struct lp_value *low = lp_unary(b, LP_OP_FLOOR, v), *w = lp_cast(b, bin(c, LP_OP_SUB, v, low), acc);
    a->index[0] = num_to_index(c, low, d);
    a->index[1] = num_to_index(c, binc(c, LP_OP_ADD, low, 1), d);
    a->weight[0] = lp_binary(b, LP_OP_SUB, lp_const_f(b, lp_scalar(acc), 1), w);
    a->weight[1] = w;
}

/* Side of a bin, and number of samples along it. */
struct bins {
    struct lp_value *start, *side, *step, *count; /* step: between samples */
};

static void roi_bins(struct expr_ctx *c, const struct ir_op *op, struct lp_value *from, struct lp_value *to, int64_t n, struct bins *o)
{
    struct lp_builder *b = &c->b;
    double scale = ir_attr_float(op, "spatial_scale", 1);
    bool half = !strcmp(ir_attr_string(op, "coord", "half_pixel"), "half_pixel");
    int64_t ratio = ir_attr_int(op, "sampling_ratio", 0);
    from = binc(c, LP_OP_SUB, binc(c, LP_OP_MUL, lp_cast(b, from, DT_F64), scale), half ? 0.5 : 0);
    to = binc(c, LP_OP_SUB, binc(c, LP_OP_MUL, lp_cast(b, to, DT_F64), scale), half ? 0.5 : 0);
    struct lp_value *size = bin(c, LP_OP_SUB, to, from);
    if (!half) size = binc(c, LP_OP_MAX, size, 1); /* a malformed region counts as 1 x 1 */
    o->start = from;
    o->side = binc(c, LP_OP_DIV, size, (double)n);
    if (ratio > 0) {
        o->count = lp_index(b, ratio);
        o->step = binc(c, LP_OP_DIV, o->side, (double)ratio);
        return;
    }
    struct lp_value *count = binc(c, LP_OP_MIN, lp_unary(b, LP_OP_CEIL, o->side), 0x1p20);
    count = binc(c, LP_OP_MAX, count, 0); /* an empty or turned region has no samples */
    o->count = lp_cast(b, count, DT_I64);
    o->step = bin(c, LP_OP_DIV, o->side, binc(c, LP_OP_MAX, count, 1));
}

static struct lp_value *sample_at(struct expr_ctx *c, const struct bins *k, struct lp_value *bin_no, struct lp_value *i)
{
    struct lp_value *origin = bin(c, LP_OP_ADD, k->start, bin(c, LP_OP_MUL, lp_cast(&c->b, bin_no, DT_F64), k->side));
    struct lp_value *within = bin(c, LP_OP_MUL, binc(c, LP_OP_ADD, lp_cast(&c->b, i, DT_F64), 0.5), k->step);
    return bin(c, LP_OP_ADD, origin, within);
}

/* One sample: the sum of its weighted corners, or the greatest of them. */
static struct lp_value *sample(struct expr_ctx *c, const struct ir_value *x, struct lp_value **sub, const struct roi_axis *y,
                               const struct roi_axis *h, enum dtype acc, bool max)
{
    struct lp_builder *b = &c->b;
    struct lp_value *inside = lp_binary(b, LP_OP_AND, y->inside, h->inside), *r = NULL, *zero = lp_const_f(b, lp_scalar(acc), 0);
    for (int k = 0; k < 4; k++) {
        sub[2] = y->index[k / 2], sub[3] = h->index[k % 2];
        struct lp_value *w = lp_binary(b, LP_OP_MUL, y->weight[k / 2], h->weight[k % 2]);
        struct lp_value *v = lp_binary(b, LP_OP_MUL, w, lp_cast(b, expr_at(c, x, sub), acc));
        v = lp_select(b, inside, v, zero);
        r = r ? lp_binary(b, max ? LP_OP_MAX : LP_OP_ADD, r, v) : v;
    }
    return r;
}

struct lp_value *expr_roi_align(struct expr_ctx *c, const struct ir_op *op, int r, struct lp_value *const *idx)
{
    (void)r;
    struct lp_builder *b = &c->b;
    const struct ir_value *x = ir_operand(op, 0), *rois = ir_operand(op, 1);
    const struct ir_type *t = &op->results[0].type;
    enum dtype acc = num_acc(t->dtype);
    bool max = !strcmp(ir_attr_string(op, "mode", "avg"), "max");
    struct lp_value *edge[4], *sub[4] = {NULL, idx[1]}, *at[2] = {idx[0]};
    sub[0] = expr_clamp(c, lp_cast(b, expr_at(c, ir_operand(op, 2), idx), DT_I64), x->type.dims[0]);
    for (int k = 0; k < 4; k++) {
        at[1] = lp_index(b, k);
        edge[k] = expr_at(c, rois, at);
    }
    struct bins ky, kx;
    roi_bins(c, op, edge[1], edge[3], t->dims[2]->value, &ky);
    roi_bins(c, op, edge[0], edge[2], t->dims[3]->value, &kx);
    struct lp_value *zero = lp_const_f(b, lp_scalar(acc), 0);
    struct lp_value *init = max ? lp_const_f(b, lp_scalar(acc), -(double)INFINITY) : zero;
    struct lp_op *rows = expr_for_begin(c, LP_LOOP_SERIAL, c->zero, ky.count, 1, 1, &init);
    struct roi_axis y, h;
    roi_axis(c, sample_at(c, &ky, idx[2], rows->regions[0]->args[0]), x->type.dims[2], acc, &y);
    struct lp_op *cols = expr_for_begin(c, LP_LOOP_SERIAL, c->zero, kx.count, 1, 1, &rows->regions[0]->args[1]);
    roi_axis(c, sample_at(c, &kx, idx[3], cols->regions[0]->args[0]), x->type.dims[3], acc, &h);
    struct lp_value *v = sample(c, x, sub, &y, &h, acc, max);
    v = lp_binary(b, max ? LP_OP_MAX : LP_OP_ADD, cols->regions[0]->args[1], v);
    expr_for_end(c, cols, &v);
    v = cols->results[0];
    expr_for_end(c, rows, &v);
    v = rows->results[0];
    struct lp_value *count = lp_binary(b, LP_OP_MUL, ky.count, kx.count);
    if (!max) return lp_cast(b, lp_binary(b, LP_OP_DIV, v, lp_cast(b, lp_binary(b, LP_OP_MAX, count, c->one), acc)), t->dtype);
    return lp_cast(b, lp_select(b, lp_binary(b, LP_OP_GT, count, c->zero), v, zero), t->dtype);
}
