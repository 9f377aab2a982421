// SPDX-License-Identifier: Apache-2.0
/*
 * Channels-last convolution as an implicit matmul, without im2col: the input buffer gets an overlapping view
 *
 *   x'[n, oy.., ky.., ox, kx, c],  strides: ox steps `stride` pixels, kx `dilation` pixels, c one element
 *
 * (one pair (oy, ky) for each outer spatial axis), so that an output row of MR pixels is a column of the view and the
 * taps are the K loop. Undilated taps of the last axis and the channels are one contiguous run of kw * C elements. Weights
 * are packed at build time into panels of P output channels: w'[group][O/P][taps, c][P]. Every output element is
 * one chain over (ky, kx, c) in order, or where that is long a chain of partial sums.
 *
 * A slice is one output row by one panel, or as many short rows as a tile holds: the tile then has a part a row, and each
 * weight that is loaded serves all parts. Spatial axes of one pixel and one tap are dropped first, so that an image of
 * height N and width 1 has rows of N pixels. Depthwise convolutions (one input channel a group) are vectors over channels.
 */
#include "passes/lower.h"
#include "passes/tile_shape.h"

#define PREFETCH_BYTES 2048 /* how far ahead of the K loop packed weights are asked for, unless tuned */
#define ROW_TILES 8 /* of a slice, where the image is one row: work for every thread */
#define MAX_UNROLLED 7 /* taps of a depthwise convolution's row */
#define MANY_ROWS 4096 /* the tile for so many is the machine's largest */
#define SOME_WIDTH 56 /* stands for one that only a call knows */
#define FEW_PIXELS 4
#define MAX_PARTS 4 /* output rows of a tile: 14 pixels are two rows of 7, three of 4 */

struct conv {
    struct lower_ctx *l;
    struct expr_ctx *e;
    const struct ir_type *x, *w, *out;
    int n, axis[3];            /* spatial axes that count, and which of the operands' they are */
    int64_t groups, cg, og;    /* channels in and out a group */
    int64_t kernel[3], strides[3], dilations[3];
    int xb, wb, bias;          /* buffers; bias -1: none */
    int panel, nr, mr, parts;  /* a tile: `parts` output rows by mr pixels */
    int block;                 /* pixels of a slice, 0: the whole row */
    int64_t prefetch;          /* bytes ahead, 0: none */
    bool merged;               /* the view's last axes (kx, c) are one */
    enum dtype acc;
};

static bool read_attrs(struct conv *c)
{
    int n;
    const int64_t *s = ir_attr_ints(c->l->anchor, "strides", &n), *d = ir_attr_ints(c->l->anchor, "dilations", &n);
    int all = c->x->rank - 2;
    for (int i = 0; i < all; i++) {
        if (!dim_is_const(c->w->dims[2 + i])) return false;
        bool counts = !dim_is(c->out->dims[1 + i], 1) || !dim_is(c->w->dims[2 + i], 1);
        if (!counts && c->n + all - i > 1) continue; /* one axis at least stays */
        c->axis[c->n] = i;
        c->kernel[c->n] = c->w->dims[2 + i]->value;
        c->strides[c->n] = s ? s[i] : 1;
        c->dilations[c->n++] = d ? d[i] : 1;
    }
    return true;
}

static const struct dim *out_size(const struct conv *c, int i) { return c->out->dims[1 + c->axis[i]]; }

/*
 * The view of x: [n, (o, k) a spatial axis.., c] with o and k of the last axis last but c. merged: (kx, c) as one axis.
 */
static void set_view(struct conv *c)
{
    struct lower_ctx *l = c->l;
    struct dim_ctx *dc = l->m->dims;
    struct lp_buf *b = &l->k->bufs.v[c->xb];
    int rank = 2 + 2 * c->n - (c->merged ? 1 : 0), at = 0;
    const struct dim **dims = ARENA_ARRAY(&l->k->arena, const struct dim *, rank);
    const struct dim **strides = ARENA_ARRAY(&l->k->arena, const struct dim *, rank);
    int all = c->x->rank - 2;
    const struct dim *one = dim_const(dc, 1), *pixel[3]; /* elements between neighbours along an axis of x */
    const struct dim *step = c->x->dims[all + 1];
    for (int i = all - 1; i >= 0; i--) pixel[i] = step, step = dim_mul(dc, step, c->x->dims[1 + i]);
    dims[at] = c->x->dims[0], strides[at++] = step;
    for (int i = 0; i < c->n; i++) {
        dims[at] = out_size(c, i), strides[at++] = dim_mulc(dc, pixel[c->axis[i]], c->strides[i]);
        if (i == c->n - 1 && c->merged) break;
        dims[at] = dim_const(dc, c->kernel[i]), strides[at++] = dim_mulc(dc, pixel[c->axis[i]], c->dilations[i]);
    }
    dims[at] = c->merged ? dim_mulc(dc, c->x->dims[all + 1], c->kernel[c->n - 1]) : c->x->dims[all + 1];
    strides[at++] = one;
    INFC_ASSERT(at == rank);
    b->rank = rank, b->dims = dims, b->strides = strides;
    for (int i = 0; i < rank; i++)
        if (!dim_is_const(strides[i])) lp_dim_param(l->k, strides[i]);
}

/* w[O, C/g, K..] -> [g][O/g/P][K.., C/g][P]; the axes of K and C/g stay apart for the reader's sake. */
static void pack_weights(struct conv *c)
{
    struct plan_pack p = {.in_rank = c->w->rank};
    int at = 0;
    p.dims[at] = c->groups, p.in_axis[at] = 0, p.stride[at++] = c->og;
    p.dims[at] = (c->og + c->panel - 1) / c->panel, p.in_axis[at] = 0, p.stride[at++] = c->panel;
    for (int i = 0; i < c->n; i++) p.dims[at] = c->kernel[i], p.in_axis[at] = 2 + c->axis[i], p.stride[at++] = 1;
    p.dims[at] = c->cg, p.in_axis[at] = 1, p.stride[at++] = 1;
    p.dims[at] = c->panel, p.in_axis[at] = 0, p.stride[at++] = 1;
    p.rank = at;
    for (int i = 0; i < c->w->rank; i++) p.in_dims[i] = c->w->dims[i]->value;
    lower_set_pack(c->l, c->wb, &p, 64);
    if (!c->merged) return;
    /* the reader sees (kx, c) as one axis: same bytes, one rank less */
    struct lp_buf *b = &c->l->k->bufs.v[c->wb];
    const struct dim **dims = arena_dup(&c->l->k->arena, b->dims, (size_t)b->rank * sizeof *dims);
    const struct dim **strides = arena_dup(&c->l->k->arena, b->strides, (size_t)b->rank * sizeof *strides);
    dims[at - 3] = dim_const(c->l->m->dims, c->kernel[c->n - 1] * c->cg);
    strides[at - 3] = strides[at - 2];
    dims[at - 2] = dims[at - 1], strides[at - 2] = strides[at - 1];
    b->rank = at - 1, b->dims = dims, b->strides = strides;
}

/* Coordinates of a tile of output pixels. */
struct place {
    struct lp_value *n, *o[3]; /* batch, outer spatial; o[last] = first pixel of the tile */
    struct lp_value *group, *panel, *col; /* col: first output channel of the tile, within the group */
    struct lp_value *nrows, *ncols;
    struct lp_value *first; /* pixel of the slice */
    struct lp_value *unit;  /* number of the row, or stack of rows, in its walk over the panels */
    struct lp_value *pass;  /* number of the tile in the walk */
    int rows, piece, parts; /* pixels of a part; first column within the panel; output rows from o[n - 2] on */
};

/* Coordinate of part `part` along axis i. */
static struct lp_value *at_part(struct conv *c, const struct place *p, int i, int part)
{
    return i == c->n - 2 && part ? lp_binary(&c->e->b, LP_OP_ADD, p->o[i], lp_index(&c->e->b, part)) : p->o[i];
}

static struct lp_value *load_pixels(struct conv *c, const struct place *p, int part, struct lp_value *const *k, struct lp_value *ch)
{
    struct lp_value *idx[8];
    int at = 0, row_axis = 0;
    idx[at++] = p->n;
    for (int i = 0; i < c->n; i++) {
        row_axis = at;
        idx[at++] = at_part(c, p, i, part);
        if (i == c->n - 1 && c->merged) break;
        idx[at++] = k[i];
    }
    idx[at++] = c->groups == 1 ? ch : expr_iadd(c->e, expr_imul(c->e, p->group, lp_index(&c->e->b, c->cg)), ch);
    struct lp_value *v = lp_load_tile(&c->e->b, c->xb, idx, p->rows, 1, row_axis, at - 1, p->nrows, NULL);
    return lp_cast(&c->e->b, v, c->acc);
}

static struct lp_value *load_weights(struct conv *c, const struct place *p, struct lp_value *const *k, struct lp_value *ch)
{
    struct lp_value *idx[8];
    int at = 0;
    idx[at++] = p->group, idx[at++] = p->panel;
    for (int i = 0; i < c->n - (c->merged ? 1 : 0); i++) idx[at++] = k[i];
    idx[at++] = ch;
    idx[at++] = p->piece ? lp_index(&c->e->b, p->piece) : c->e->zero;
    struct lp_value *v = lp_load_tile(&c->e->b, c->wb, idx, 1, c->nr, 0, at - 1, NULL, NULL);
    return lp_cast(&c->e->b, v, c->acc);
}

/* The weights some steps ahead; near the end of a run these are the next tap's or the next panel's. */
static void prefetch_weights(struct conv *c, const struct place *p, struct lp_value *const *k, struct lp_value *ch)
{
    struct lp_builder *b = &c->e->b;
    struct lp_value *idx[8];
    int at = 0, elem = (int)dtype_bytes(c->w->dtype), ahead = (int)c->prefetch / (c->panel * elem);
    idx[at++] = p->group, idx[at++] = p->panel;
    for (int i = 0; i < c->n - (c->merged ? 1 : 0); i++) idx[at++] = k[i];
    idx[at++] = lp_binary(b, LP_OP_ADD, ch, lp_index(b, ahead));
    for (int x = 0; x < c->nr; x += 64 / elem) {
        idx[at] = lp_index(b, p->piece + x);
        lp_prefetch(b, c->wb, idx);
    }
}

/* Half of the next panel's rows, far: see next_panel_pass in passes/lower_matmul.c. */
static void prefetch_next_panel(struct conv *c, const struct place *p, struct lp_value *const *k, struct lp_value *ch)
{
    struct lp_builder *b = &c->e->b;
    struct lp_value *idx[8];
    int at = 0, elem = (int)dtype_bytes(c->w->dtype), lines = c->panel * elem / 64;
    if (lines < 1) return;
    struct lp_value *pass = lp_binary(b, LP_OP_MIN, p->pass, lp_index(b, 2 * lines - 1));
    idx[at++] = p->group, idx[at++] = lp_binary(b, LP_OP_ADD, p->panel, c->e->one);
    for (int i = 0; i < c->n - (c->merged ? 1 : 0); i++) idx[at++] = k[i];
    idx[at++] = lower_half_row(b, pass, ch, c->merged ? c->cg * c->kernel[c->n - 1] : c->cg), idx[at++] = lower_half_line(b, pass, elem);
    lp_prefetch_far(b, c->wb, idx);
}

/* How many tiles of the walk come before this one, about. */
static struct lp_value *pass_of(struct conv *c, const struct place *p)
{
    struct lp_builder *b = &c->e->b;
    struct lp_value *pass = lp_binary(b, LP_OP_FLOORDIV, p->o[c->n - 1], lp_index(b, c->mr));
    return lp_binary(b, LP_OP_ADD, pass, p->unit);
}

/* The products of taps k and channels [lo, hi), added to acc[parts]. */
static void contract_run(struct conv *c, const struct place *p, struct lp_value *const *k, struct lp_value *lo, struct lp_value *hi,
                         struct lp_value **acc)
{
    struct expr_ctx *e = c->e;
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, lo, hi, 1, p->parts, acc);
    struct lp_value *ch = loop->regions[0]->args[0], *next[MAX_PARTS];
    if (c->prefetch) prefetch_weights(c, p, k, ch), prefetch_next_panel(c, p, k, ch);
    struct lp_value *w = load_weights(c, p, k, ch);
    for (int i = 0; i < p->parts; i++)
        next[i] = lp_mma(&e->b, loop->regions[0]->args[1 + i], load_pixels(c, p, i, k, ch), w, 1);
    expr_for_end(e, loop, next);
    for (int i = 0; i < p->parts; i++) acc[i] = loop->results[i];
}

static void zero_parts(struct conv *c, const struct place *p, struct lp_value **acc)
{
    for (int i = 0; i < p->parts; i++) acc[i] = lp_const_f(&c->e->b, lp_tile(c->acc, p->rows, c->nr), 0);
}

/* acc += the sum of one run that starts from 0. */
static void add_run(struct conv *c, const struct place *p, struct lp_value *const *k, struct lp_value *lo, struct lp_value *hi,
                    struct lp_value **acc)
{
    struct lp_value *sum[MAX_PARTS];
    zero_parts(c, p, sum);
    contract_run(c, p, k, lo, hi, sum);
    for (int i = 0; i < p->parts; i++) acc[i] = lp_binary(&c->e->b, LP_OP_ADD, acc[i], sum[i]);
}

/* All channels of taps k, added to acc, as partial sums of at most `part` steps; 0: as one. */
static void contract_channels(struct conv *c, const struct place *p, struct lp_value *const *k, int64_t run, int64_t part,
                              struct lp_value **acc)
{
    struct expr_ctx *e = c->e;
    struct lp_builder *b = &e->b;
    if (!part) {
        contract_run(c, p, k, e->zero, lp_index(b, run), acc);
        return;
    }
    if (run < 2 * part) {
        add_run(c, p, k, e->zero, lp_index(b, run), acc);
        return;
    }
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, lp_index(b, run), part, p->parts, acc);
    struct lp_value *lo = loop->regions[0]->args[0], *hi = lp_binary(b, LP_OP_ADD, lo, lp_index(b, part)), *sum[MAX_PARTS];
    if (run % part) hi = lp_binary(b, LP_OP_MIN, hi, lp_index(b, run));
    for (int i = 0; i < p->parts; i++) sum[i] = loop->regions[0]->args[1 + i];
    add_run(c, p, k, lo, hi, sum);
    expr_for_end(e, loop, sum);
    for (int i = 0; i < p->parts; i++) acc[i] = loop->results[i];
}

/* acc[parts] after the loops over taps and channels. */
static void contract(struct conv *c, const struct place *p, struct lp_value **acc)
{
    struct expr_ctx *e = c->e;
    struct lp_value *k[3] = {e->zero, e->zero, e->zero};
    struct lp_op *loops[4];
    int n_loops = 0, n_taps = c->n - (c->merged ? 1 : 0);
    int64_t run = c->merged ? c->cg * c->kernel[c->n - 1] : c->cg, total = run;
    zero_parts(c, p, acc);
    for (int i = 0; i < n_taps; i++) {
        if (c->kernel[i] == 1) continue;
        struct lp_op *loop = loops[n_loops++] =
            expr_for_begin(e, LP_LOOP_SERIAL, e->zero, lp_index(&e->b, c->kernel[i]), 1, p->parts, acc);
        k[i] = loop->regions[0]->args[0];
        for (int j = 0; j < p->parts; j++) acc[j] = loop->regions[0]->args[1 + j];
        total *= c->kernel[i];
    }
    int64_t part = lower_part(total);
    contract_channels(c, p, k, run, run >= part / 2 && total >= 3 * part ? part : 0, acc);
    while (n_loops) {
        expr_for_end(e, loops[--n_loops], acc);
        for (int j = 0; j < p->parts; j++) acc[j] = loops[n_loops]->results[j];
    }
}

/* Bias, epilogue, store of a part whose first output channel (over all groups) is `channel`. */
static void finish_part(struct conv *c, const struct place *p, int part, struct lp_value *acc, struct lp_value *channel)
{
    struct expr_ctx *e = c->e;
    if (c->bias >= 0) {
        struct lp_value *idx[1] = {channel};
        struct lp_value *b = lp_load_tile(&e->b, c->bias, idx, 1, c->nr, 0, 0, NULL, p->ncols);
        acc = lp_binary(&e->b, LP_OP_ADD, acc, lp_cast(&e->b, b, c->acc));
    }
    struct lp_value *v = lp_cast(&e->b, acc, c->out->dtype), *idx[5] = {p->n, e->zero, e->zero, e->zero};
    int col_axis = c->out->rank - 1, row_axis = 1 + c->axis[c->n - 1];
    for (int i = 0; i < c->n; i++) idx[1 + c->axis[i]] = at_part(c, p, i, part);
    idx[col_axis] = channel;
    v = lower_tile_epilogue(c->l, v, idx, row_axis, p->nrows, p->ncols);
    lp_store_tile(&e->b, lower_result_buf(c->l, 0), idx, v, row_axis, col_axis, p->nrows, p->ncols);
}

static void emit_panel(struct conv *c, struct place *p)
{
    struct expr_ctx *e = c->e;
    struct lp_builder *b = &e->b;
    for (p->piece = 0; p->piece < c->panel; p->piece += c->nr) {
        size_t mark = expr_scope_push(e);
        p->pass = pass_of(c, p);
        struct lp_value *col = expr_iadd(e, expr_imul(e, p->panel, lp_index(b, c->panel)), p->piece ? lp_index(b, p->piece) : e->zero);
        p->ncols = NULL;
        if (c->og % c->panel) p->ncols = lp_binary(b, LP_OP_MAX, lp_binary(b, LP_OP_SUB, lp_index(b, c->og), col), e->zero);
        struct lp_value *channel = expr_iadd(e, expr_imul(e, p->group, lp_index(b, c->og)), col);
        struct lp_value *acc[MAX_PARTS];
        contract(c, p, acc);
        for (int i = 0; i < p->parts; i++) finish_part(c, p, i, acc[i], channel);
        expr_scope_pop(e, mark);
    }
}

/* Depthwise: acc[pixel, channel] += x * w, both vectors over channels. */
static struct lp_value *contract_depthwise(struct conv *c, const struct place *p)
{
    struct expr_ctx *e = c->e;
    struct lp_value *acc = lp_const_f(&e->b, lp_tile(c->acc, p->rows, c->nr), 0), *k[3] = {e->zero, e->zero, e->zero};
    struct lp_op *loops[3];
    for (int i = 0; i < c->n; i++) {
        bool unroll = i == c->n - 1 && c->kernel[i] <= MAX_UNROLLED;
        loops[i] = expr_for_begin(e, unroll ? LP_LOOP_UNROLL : LP_LOOP_SERIAL, e->zero, lp_index(&e->b, c->kernel[i]), 1, 1, &acc);
        k[i] = loops[i]->regions[0]->args[0], acc = loops[i]->regions[0]->args[1];
    }
    struct lp_value *idx[8], *wi[5];
    int at = 0, row_axis = 0;
    idx[at++] = p->n;
    for (int i = 0; i < c->n; i++) row_axis = at, idx[at++] = p->o[i], idx[at++] = k[i], wi[i] = k[i];
    idx[at] = wi[c->n] = p->col;
    struct lp_value *x = lp_load_tile(&e->b, c->xb, idx, p->rows, c->nr, row_axis, at, p->nrows, p->ncols);
    struct lp_value *w = lp_load_tile(&e->b, c->wb, wi, 1, c->nr, 0, c->n, NULL, p->ncols);
    acc = lp_fma(&e->b, lp_cast(&e->b, x, c->acc), lp_cast(&e->b, w, c->acc), acc);
    for (int i = c->n - 1; i >= 0; i--) {
        expr_for_end(e, loops[i], &acc);
        acc = loops[i]->results[0];
    }
    return acc;
}

/* w[C, 1, K..] -> [K..][C] */
static void pack_depthwise(struct conv *c)
{
    struct plan_pack p = {.rank = c->n + 1, .in_rank = c->w->rank};
    for (int i = 0; i < c->n; i++) p.dims[i] = c->kernel[i], p.in_axis[i] = 2 + c->axis[i], p.stride[i] = 1;
    p.dims[c->n] = c->groups, p.in_axis[c->n] = 0, p.stride[c->n] = 1;
    for (int i = 0; i < c->w->rank; i++) p.in_dims[i] = c->w->dims[i]->value;
    lower_set_pack(c->l, c->wb, &p, 64);
}

static void emit_depthwise(struct conv *c, struct place *p)
{
    finish_part(c, p, 0, contract_depthwise(c, p), p->col);
}

/* The last pixels of a row, fewer than a tile has; how many only a call knows: a line's few (streams of sound) have a tile of their own. */
static void emit_unknown_rest(struct conv *c, struct place *p, struct lp_value *rest, void (*emit)(struct conv *, struct place *))
{
    struct lp_builder *b = &c->e->b;
    p->nrows = rest;
    struct lp_op *few = NULL;
    size_t mark = 0;
    if (c->n == 1 && c->mr > FEW_PIXELS) {
        few = lp_if_begin(b, lp_binary(b, LP_OP_LE, rest, lp_index(b, FEW_PIXELS)), 0, NULL);
        mark = expr_scope_push(c->e);
        p->rows = FEW_PIXELS;
        emit(c, p);
        expr_scope_pop(c->e, mark);
        lp_if_else(b, few, NULL);
        mark = expr_scope_push(c->e);
    }
    p->rows = c->mr;
    emit(c, p);
    if (!few) return;
    expr_scope_pop(c->e, mark);
    lp_if_end(b, few, NULL);
}

/* The slice's pixels of an output row: full tiles, then, at the row's end, the rest. */
static void emit_row(struct conv *c, struct place *p, void (*emit)(struct conv *, struct place *))
{
    struct expr_ctx *e = c->e;
    struct lp_builder *b = &e->b;
    const struct dim *w = out_size(c, c->n - 1);
    struct lp_value *total = expr_dim(e, w), *rest = lp_binary(b, LP_OP_MOD, total, lp_index(b, c->mr));
    struct lp_value *full = lp_binary(b, LP_OP_SUB, total, rest), *end = full;
    if (c->block) end = lp_binary(b, LP_OP_MIN, full, lp_binary(b, LP_OP_ADD, p->first, lp_index(b, c->block)));
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, p->first, end, c->mr, 0, NULL);
    p->o[c->n - 1] = loop->regions[0]->args[0], p->rows = c->mr, p->nrows = NULL;
    emit(c, p);
    expr_for_end(e, loop, NULL);
    if (c->mr == 1 || (dim_is_const(w) && w->value % c->mr == 0)) return;
    struct lp_value *mine = dim_is_const(w) ? NULL : lp_binary(b, LP_OP_GT, rest, e->zero);
    if (c->block) {
        struct lp_value *last = lp_binary(b, LP_OP_LT, full, lp_binary(b, LP_OP_ADD, p->first, lp_index(b, c->block)));
        mine = mine ? lp_binary(b, LP_OP_AND, mine, last) : last;
    }
    struct lp_op *branch = mine ? lp_if_begin(b, mine, 0, NULL) : NULL;
    size_t mark = expr_scope_push(e);
    p->o[c->n - 1] = full;
    if (dim_is_const(w)) {
        p->rows = (int)(w->value % c->mr), p->nrows = NULL;
        emit(c, p);
    } else {
        emit_unknown_rest(c, p, rest, emit);
    }
    expr_scope_pop(e, mark);
    if (!branch) return;
    lp_if_else(b, branch, NULL);
    lp_if_end(b, branch, NULL);
}

/* Depthwise: the row for some channels after the other, so that the pixels which neighbouring tiles share are still there. */
static void emit_channels(struct conv *c, struct place *p)
{
    struct expr_ctx *e = c->e;
    struct lp_builder *b = &e->b;
    int64_t full = c->groups / c->nr * c->nr;
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, lp_index(b, full), c->nr, 0, NULL);
    p->col = loop->regions[0]->args[0], p->ncols = NULL;
    emit_row(c, p, emit_depthwise);
    expr_for_end(e, loop, NULL);
    if (full == c->groups) return;
    p->col = lp_index(b, full), p->ncols = lp_index(b, c->groups - full);
    emit_row(c, p, emit_depthwise);
}

/* A slice's output rows: c->parts of them together, where the image ends fewer. */
static void emit_rows(struct conv *c, struct place *p)
{
    struct expr_ctx *e = c->e;
    struct lp_builder *b = &e->b;
    p->parts = c->parts;
    if (c->parts == 1) {
        emit_row(c, p, emit_panel);
        return;
    }
    const struct dim *h = out_size(c, c->n - 2);
    struct lp_value *first = p->o[c->n - 2] = lp_binary(b, LP_OP_MUL, p->o[c->n - 2], lp_index(b, c->parts));
    if (dim_is_const(h) && h->value % c->parts == 0) {
        emit_row(c, p, emit_panel);
        return;
    }
    struct lp_value *end = lp_binary(b, LP_OP_ADD, first, lp_index(b, c->parts)), *height = expr_dim(e, h);
    struct lp_op *full = lp_if_begin(b, lp_binary(b, LP_OP_LE, end, height), 0, NULL);
    size_t mark = expr_scope_push(e);
    emit_row(c, p, emit_panel);
    expr_scope_pop(e, mark);
    lp_if_else(b, full, NULL);
    mark = expr_scope_push(e);
    if (dim_is_const(h)) {
        p->parts = (int)(h->value % c->parts);
        emit_row(c, p, emit_panel);
    } else { /* row by row */
        struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, first, height, 1, 0, NULL);
        p->o[c->n - 2] = loop->regions[0]->args[0], p->parts = 1;
        emit_row(c, p, emit_panel);
        expr_for_end(e, loop, NULL);
    }
    expr_scope_pop(e, mark);
    lp_if_end(b, full, NULL);
}

/* Pixels and rows of a tile: rows of a known small width go together where that fills the registers better. */
static void choose_tile(struct conv *c, bool depthwise)
{
    const struct dim *w = out_size(c, c->n - 1);
    int elem = (int)dtype_bytes(c->acc), most, nr;
    int64_t parts = 1;
    if (!depthwise && c->n > 1 && dim_is_const(w) && w->value > 0) {
        const struct dim *h = out_size(c, c->n - 2);
        tile_shape(c->l->level, elem, c->panel, dim_const(c->l->m->dims, MANY_ROWS), false, &most, &nr);
        parts = most / w->value;
        if (dim_is_const(h) && parts > h->value) parts = h->value;
        if (parts > MAX_PARTS) parts = MAX_PARTS;
    }
    c->parts = parts < 2 ? 1 : (int)parts;
    if (parts < 2) lower_tile(c->l, elem, c->panel, w, depthwise, &c->mr, &c->nr);
    else c->mr = (int)w->value, c->nr = nr;
    if (c->n == 1 && (!dim_is_const(w) || w->value > ROW_TILES * c->mr)) c->block = ROW_TILES * c->mr;
}

static bool setup(struct conv *c)
{
    struct lower_ctx *l = c->l;
    const struct ir_op *op = l->anchor;
    if (!op || op->code != IR_OP_CONV || !ir_attr_int(op, "channels_last", 0) || !lower_tile_epilogue_ok(l)) return false;
    int n_pads;
    const struct dim *const *pads = ir_attr_dims(op, "pads", &n_pads);
    for (int i = 0; i < n_pads; i++)
        if (!dim_is(pads[i], 0)) return false;
    c->x = &ir_operand(op, 0)->type, c->w = &ir_operand(op, 1)->type, c->out = &op->results[0].type;
    if (c->x->rank > 5) return false;
    c->xb = lower_operand_of(l, ir_operand(op, 0)), c->wb = lower_operand_of(l, ir_operand(op, 1));
    c->bias = ir_operand(op, 2) ? lower_operand_of(l, ir_operand(op, 2)) : -1;
    if (c->xb < 0 || c->wb < 0 || (ir_operand(op, 2) && c->bias < 0)) return false;
    if (ir_operand(op, 0)->uses->next || ir_operand(op, 1)->uses->next || !l->operand_consts[c->wb]) return false;
    if (!dim_is_const(c->w->dims[0]) || !dim_is_const(c->w->dims[1]) || !read_attrs(c)) return false;
    c->groups = ir_attr_int(op, "groups", 1);
    c->cg = c->w->dims[1]->value, c->og = c->w->dims[0]->value / c->groups;
    c->acc = c->out->dtype == DT_F64 ? DT_F64 : DT_F32;
    return c->cg > 0 && c->og > 0;
}

/* ---- slices ---- */

/* Sets the number of slices and gives the coordinates of this one. */
static void slice_coords(struct conv *c, int n, const struct dim *const *axes, struct lp_value **coord)
{
    const struct dim *slices = dim_const(c->l->m->dims, 1);
    for (int i = 0; i < n; i++) slices = dim_mul(c->l->m->dims, slices, axes[i]);
    lower_set_slices(c->l, slices);
    expr_delinear(c->e, lower_slice(c->l), n, axes, coord);
}

/* Blocks of an image of one row. */
static const struct dim *row_blocks(const struct conv *c)
{
    struct dim_ctx *dc = c->l->m->dims;
    return c->block ? dim_ceildiv(dc, out_size(c, 0), dim_const(dc, c->block)) : dim_const(dc, 1);
}

/* A slice is an output row, or a block of it. */
static void place_depthwise(struct conv *c, struct place *p)
{
    const struct dim *axes[4] = {c->out->dims[0]};
    struct lp_value *coord[4];
    int n = 1;
    for (int i = 0; i < c->n - 1; i++) axes[n++] = out_size(c, i);
    axes[n++] = row_blocks(c);
    slice_coords(c, n, axes, coord);
    p->n = coord[0];
    for (int i = 0; i < c->n - 1; i++) p->o[i] = coord[1 + i];
    if (c->block) p->first = lp_binary(&c->e->b, LP_OP_MUL, coord[n - 1], lp_index(&c->e->b, c->block));
}

/* Images of one row: a slice is a block of it by a panel. */
static void place_blocks(struct conv *c, struct place *p)
{
    struct dim_ctx *dc = c->l->m->dims;
    const struct dim *axes[4] = {dim_const(dc, c->groups), dim_const(dc, (c->og + c->panel - 1) / c->panel), c->out->dims[0], row_blocks(c)};
    struct lp_value *coord[4];
    slice_coords(c, 4, axes, coord);
    p->group = coord[0], p->panel = coord[1], p->n = coord[2];
    if (c->block) p->first = lp_binary(&c->e->b, LP_OP_MUL, coord[3], lp_index(&c->e->b, c->block));
}

/*
 * A slice is an output row, or a stack of short ones, by a panel. Outermost are batch and outer axes, or, where one walk
 * over the panels serves an image, the panels, for all images.
 */
static void place_rows(struct conv *c, struct place *p)
{
    struct dim_ctx *dc = c->l->m->dims;
    struct lp_builder *b = &c->e->b;
    const struct dim *w = out_size(c, c->n - 1), *rows = dim_ceildiv(dc, out_size(c, c->n - 2), dim_const(dc, c->parts));
    int64_t taps = 1, all_panels = c->groups * ((c->og + c->panel - 1) / c->panel);
    for (int i = 0; i < c->n; i++) taps *= c->kernel[i];
    const struct dim *panels = dim_const(dc, all_panels);
    const struct dim *walks = lower_walks(c->l, rows, dim_is_const(w) ? w->value * c->parts : SOME_WIDTH,
                                          taps * c->cg * c->og * c->groups * (int64_t)dtype_bytes(c->acc), taps * c->og);
    bool one = dim_is(walks, 1);
    const struct dim *axes[4];
    struct lp_value *coord[4], *panel;
    int n = 0;
    if (one) axes[n++] = panels;
    axes[n++] = c->out->dims[0];
    for (int i = 0; i < c->n - 2; i++) axes[n++] = out_size(c, i);
    axes[n++] = one ? rows : dim_mul(dc, rows, panels);
    slice_coords(c, n, axes, coord);
    int at = one;
    p->n = coord[at++];
    for (int i = 0; i < c->n - 2; i++) p->o[i] = coord[at++];
    if (one) {
        panel = coord[0], p->o[c->n - 2] = p->unit = coord[at];
    } else {
        struct walk_place place = lower_walk_place(c->l, coord[at], panels, rows, walks);
        panel = place.panel, p->o[c->n - 2] = place.unit;
        p->unit = lp_binary(b, LP_OP_SUB, place.unit, place.first);
    }
    struct lp_value *of_group = lp_index(b, all_panels / c->groups);
    p->group = lp_binary(b, LP_OP_FLOORDIV, panel, of_group), p->panel = lp_binary(b, LP_OP_MOD, panel, of_group);
    if (c->groups == 1) p->group = c->e->zero, p->panel = panel;
}

enum lower_result lower_conv(struct lower_ctx *l)
{
    struct conv c = {.l = l, .e = &l->e};
    if (!setup(&c)) return LOWER_NOT_MINE;
    struct expr_ctx *e = &l->e;
    bool depthwise = c.groups > 1 && c.cg == 1 && c.og == 1;
    c.merged = !depthwise && c.groups == 1 && c.dilations[c.n - 1] == 1;
    c.panel = c.og > 16 ? 32 : 16;
    if (depthwise) c.panel = c.groups % 64 == 0 ? 64 : c.groups % 32 == 0 ? 32 : 16; /* vectors of channels that are all there */
    choose_tile(&c, depthwise);
    static const int64_t prefetches[] = {0, 1024, 4096, 8192};
    if (!depthwise) c.prefetch = lower_knob(l, KNOB_PREFETCH, PREFETCH_BYTES, prefetches, 4);
    set_view(&c);
    if (depthwise) pack_depthwise(&c);
    else pack_weights(&c);
    struct place p = {.group = e->zero, .panel = e->zero, .first = e->zero, .unit = e->zero};
    if (depthwise) {
        place_depthwise(&c, &p);
        emit_channels(&c, &p);
    } else if (c.n > 1) {
        place_rows(&c, &p);
        emit_rows(&c, &p);
    } else {
        place_blocks(&c, &p);
        emit_rows(&c, &p);
    }
    l->k->schedule = depthwise ? "conv-depthwise" : "conv";
    return LOWER_DONE;
}
