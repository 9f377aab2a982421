// SPDX-License-Identifier: Apache-2.0
/*
 * Depthwise convolution of images [N, H, W, C] with padding: a slice is an output row, a tile MR of its pixels by a vector of channels.
 *
 * Taps above and below the image are left out by the bounds of a loop. Along the row, the first tile and the last one, which begins
 * where it ends with the row and so may make some pixels again, know at build time which taps of which pixel are there: they are
 * unrolled without the others. Tiles between see the whole image. Rows too short for that, of a width that only a call knows, go pixel by pixel.
 * Every pixel sums its taps in the same order wherever it is.
 */
#include "passes/depthwise.h"

#include <string.h>

#include "ir/build.h"
#include "passes/lower.h"

#define MAX_TAPS 7 /* of a row, unrolled */
#define MAX_MR 16

struct depthwise {
    struct lower_ctx *l;
    struct expr_ctx *e;
    const struct ir_type *x, *out;
    int xb, wb, bias;      /* buffers; bias -1: none */
    int64_t kh, kw, sh, s; /* s: of the row */
    int64_t top, left, right;
    int64_t channels;
    int mr, nr;
    struct lp_value *n, *oy, *first, *lo, *hi; /* first: row of the image of tap 0; taps [lo, hi) are there */
    struct lp_value *col, *ncols;
};

bool conv_padding(const struct ir_op *op, const struct dim **pads)
{
    const struct ir_op *pad = ir_operand(op, 0)->def;
    int n;
    const struct dim *const *own = ir_attr_dims(op, "pads", &n);
    for (int i = 0; i < n; i++)
        if (!dim_is(own[i], 0)) return false;
    if (!pad || pad->code != IR_OP_PAD || ir_operand(pad, 1) || strcmp(ir_attr_string(pad, "mode", "constant"), "constant")) return false;
    if (!ir_value_has_one_use(ir_operand(op, 0)) || ir_operand(pad, 0)->type.rank != 4) return false;
    const struct dim *const *lo = ir_attr_dims(pad, "lo", &n), *const *hi = ir_attr_dims(pad, "hi", &n);
    const struct ir_type *x = &ir_operand(pad, 0)->type;
    for (int i = 0; i < 4; i++) {
        bool spatial = i == 1 || i == 2;
        if (spatial ? lo[i]->lo < 0 || hi[i]->lo < 0 || x->dims[i]->lo < 1 : !dim_is(lo[i], 0) || !dim_is(hi[i], 0)) return false;
    }
    pads[0] = lo[1], pads[1] = lo[2], pads[2] = hi[1], pads[3] = hi[2];
    return true;
}

void conv_take_padding(struct ir_module *m, struct ir_op *op, const struct dim *const *pads)
{
    struct ir_op *pad = ir_operand(op, 0)->def;
    ir_op_set_attr(m, op, ir_a_dims("pads", 4, pads));
    ir_op_set_operand(op, 0, ir_operand(pad, 0));
    ir_op_erase(pad);
}

static int64_t attr_at(const struct ir_op *op, const char *name, int i)
{
    int n;
    const int64_t *v = ir_attr_ints(op, name, &n);
    return v && i < n ? v[i] : 1;
}

bool depthwise_fits(const struct ir_op *op, const struct dim *const *pads)
{
    if (op->code != IR_OP_CONV || !ir_attr_int(op, "channels_last", 0) || ir_attr_find(op, "winograd")) return false;
    const struct ir_type *x = &ir_operand(op, 0)->type, *w = &ir_operand(op, 1)->type;
    if (x->rank != 4 || x->dtype != DT_F32 || w->dtype != DT_F32 || op->results[0].type.dtype != DT_F32) return false;
    int64_t groups = ir_attr_int(op, "groups", 1);
    if (groups < 2 || !dim_is(x->dims[3], groups) || !dim_is(w->dims[0], groups) || !dim_is(w->dims[1], 1)) return false;
    bool any = false;
    for (int i = 0; i < 2; i++) {
        if (!dim_is_const(w->dims[2 + i]) || w->dims[2 + i]->value < 1 || w->dims[2 + i]->value > MAX_TAPS || attr_at(op, "dilations", i) != 1) return false;
        if (attr_at(op, "strides", i) < 1 || attr_at(op, "strides", i) > 4) return false;
        for (int k = i; k < 4; k += 2) {
            if (!dim_is_const(pads[k]) || pads[k]->value < 0 || pads[k]->value >= w->dims[2 + i]->value) return false;
            any = any || pads[k]->value > 0;
        }
    }
    return any && (attr_at(op, "strides", 1) == 1 || (dim_is_const(x->dims[2]) && dim_is_const(op->results[0].type.dims[2])));
}

/* ---- places ---- */

/* x as [n, y, pixel / s, pixel % s + taps, c]. */
static void set_view(struct depthwise *d)
{
    struct lower_ctx *l = d->l;
    struct dim_ctx *dc = l->m->dims;
    struct lp_buf *b = &l->k->bufs.v[d->xb];
    const struct dim **dims = ARENA_ARRAY(&l->k->arena, const struct dim *, 5), **strides = ARENA_ARRAY(&l->k->arena, const struct dim *, 5);
    const struct dim *c = d->x->dims[3], *row = dim_mul(dc, c, d->x->dims[2]);
    dims[0] = d->x->dims[0], strides[0] = dim_mul(dc, row, d->x->dims[1]);
    dims[1] = d->x->dims[1], strides[1] = row;
    dims[2] = dim_ceildiv(dc, d->x->dims[2], dim_const(dc, d->s)), strides[2] = dim_mulc(dc, c, d->s);
    dims[3] = dim_const(dc, d->kw + d->s), strides[3] = c;
    dims[4] = c, strides[4] = dim_const(dc, 1);
    b->rank = 5, b->dims = dims, b->strides = strides;
    for (int i = 0; i < 5; i++)
        if (!dim_is_const(strides[i])) lp_dim_param(l->k, strides[i]);
}

/* w[C, 1, KH, KW] -> [KH][KW][C] */
static void pack(struct depthwise *d)
{
    struct plan_pack p = {.rank = 3, .in_rank = 4, .dims = {d->kh, d->kw, d->channels}, .in_axis = {2, 3, 0}, .stride = {1, 1, 1},
                          .in_dims = {d->channels, 1, d->kh, d->kw}};
    lower_set_pack(d->l, d->wb, &p, 64);
}

static struct lp_value *load_w(struct depthwise *d, struct lp_value *ky, struct lp_value *kx)
{
    struct lp_value *idx[3] = {ky, kx, d->col};
    return lp_load_tile(&d->e->b, d->wb, idx, 1, d->nr, 0, 2, NULL, d->ncols);
}

/* `rows` pixels of the image, s apart, from that pixel and that tap on. */
static struct lp_value *load_x(struct depthwise *d, struct lp_value *ky, struct lp_value *pixel, struct lp_value *tap, int rows)
{
    struct lp_builder *b = &d->e->b;
    struct lp_value *idx[5] = {d->n, lp_binary(b, LP_OP_ADD, d->first, ky), pixel, tap, d->col};
    return lp_load_tile(b, d->xb, idx, rows, d->nr, 2, 4, NULL, d->ncols);
}

static void finish(struct depthwise *d, struct lp_value *ox, struct lp_value *acc)
{
    struct lp_builder *b = &d->e->b;
    struct lp_value *idx[4] = {d->n, d->oy, ox, d->col}, *channel[1] = {d->col};
    if (d->bias >= 0) acc = lp_binary(b, LP_OP_ADD, acc, lp_load_tile(b, d->bias, channel, 1, d->nr, 0, 0, NULL, d->ncols));
    struct lp_value *v = lower_tile_epilogue(d->l, acc, idx, 2, NULL, d->ncols);
    lp_store_tile(b, lower_result_buf(d->l, 0), idx, v, 2, 3, NULL, d->ncols);
}

/* ---- tiles ---- */

/* All taps of all pixels are there. */
static void inner_tile(struct depthwise *d, struct lp_value *ox)
{
    struct expr_ctx *e = d->e;
    struct lp_builder *b = &e->b;
    int64_t back = (d->left + d->s - 1) / d->s; /* pixel ox s + kx - left is s (ox - back) + a tap that is not negative */
    struct lp_value *acc = lp_const_f(b, lp_tile(DT_F32, d->mr, d->nr), 0), *pixel = lp_binary(b, LP_OP_SUB, ox, lp_index(b, back));
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, d->lo, d->hi, 1, 1, &acc);
    struct lp_value *ky = loop->regions[0]->args[0];
    acc = loop->regions[0]->args[1];
    for (int64_t kx = 0; kx < d->kw; kx++)
        acc = lp_fma(b, load_x(d, ky, pixel, lp_index(b, kx - d->left + back * d->s), d->mr), load_w(d, ky, lp_index(b, kx)), acc);
    expr_for_end(e, loop, &acc);
    finish(d, ox, loop->results[0]);
}

/*
 * Pixels ox = from + j for j in [0, rows). at: pixel of the image of tap 0 of the first one, less `base`, a value (0 or the image's
 * width); taps at [least, most) from base on are there.
 */
static void edge_tile(struct depthwise *d, struct lp_value *from, int rows, struct lp_value *base, int64_t at, int64_t least, int64_t most)
{
    struct expr_ctx *e = d->e;
    struct lp_builder *b = &e->b;
    struct lp_value *acc[MAX_MR];
    for (int j = 0; j < rows; j++) acc[j] = lp_const_f(b, lp_vector(DT_F32, d->nr), 0);
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, d->lo, d->hi, 1, rows, acc);
    struct lp_value *ky = loop->regions[0]->args[0];
    memcpy(acc, loop->regions[0]->args + 1, (size_t)rows * sizeof *acc);
    for (int64_t kx = 0; kx < d->kw; kx++) {
        struct lp_value *w = load_w(d, ky, lp_index(b, kx));
        for (int j = 0; j < rows; j++) {
            int64_t pixel = at + j * d->s + kx;
            if (pixel < least || pixel >= most) continue;
            struct lp_value *x = lp_binary(b, LP_OP_ADD, base, lp_index(b, pixel)), *size = lp_index(b, d->s), *tap = e->zero;
            if (d->s > 1) tap = lp_binary(b, LP_OP_MOD, x, size), x = lp_binary(b, LP_OP_FLOORDIV, x, size);
            acc[j] = lp_fma(b, load_x(d, ky, x, tap, 1), w, acc[j]);
        }
    }
    expr_for_end(e, loop, acc);
    for (int j = 0; j < rows; j++) finish(d, lp_binary(b, LP_OP_ADD, from, lp_index(b, j)), loop->results[j]);
}

/* Pixel by pixel, taps by the bounds of a loop: for rows whose width a call knows, which are short. */
static void short_row(struct depthwise *d, struct lp_value *width)
{
    struct expr_ctx *e = d->e;
    struct lp_builder *b = &e->b;
    struct lp_op *pixels = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, width, 1, 0, NULL);
    struct lp_value *ox = pixels->regions[0]->args[0], *at = lp_binary(b, LP_OP_SUB, ox, lp_index(b, d->left));
    struct lp_value *from = lp_binary(b, LP_OP_MAX, lp_binary(b, LP_OP_SUB, e->zero, at), e->zero);
    struct lp_value *to = lp_binary(b, LP_OP_MIN, lp_index(b, d->kw), lp_binary(b, LP_OP_SUB, expr_dim(e, d->x->dims[2]), at));
    struct lp_value *acc = lp_const_f(b, lp_vector(DT_F32, d->nr), 0);
    struct lp_op *rows = expr_for_begin(e, LP_LOOP_SERIAL, d->lo, d->hi, 1, 1, &acc);
    struct lp_value *ky = rows->regions[0]->args[0];
    struct lp_op *taps = expr_for_begin(e, LP_LOOP_SERIAL, from, to, 1, 1, &rows->regions[0]->args[1]);
    struct lp_value *kx = taps->regions[0]->args[0];
    acc = lp_fma(b, load_x(d, ky, lp_binary(b, LP_OP_ADD, at, kx), e->zero, 1), load_w(d, ky, kx), taps->regions[0]->args[1]);
    expr_for_end(e, taps, &acc);
    expr_for_end(e, rows, taps->results);
    finish(d, ox, rows->results[0]);
    expr_for_end(e, pixels, NULL);
}

/* ---- rows ---- */

/* Inner tiles over [mr, width - mr); the last one where the right edge begins at the latest. */
static void inner_tiles(struct depthwise *d, struct lp_value *width)
{
    struct expr_ctx *e = d->e;
    struct lp_builder *b = &e->b;
    struct lp_value *mr = lp_index(b, d->mr);
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, mr, lp_binary(b, LP_OP_SUB, width, mr), d->mr, 0, NULL);
    struct lp_value *last = lp_binary(b, LP_OP_SUB, width, lp_index(b, d->mr + d->right));
    inner_tile(d, lp_binary(b, LP_OP_MIN, loop->regions[0]->args[0], last));
    expr_for_end(e, loop, NULL);
}

static void known_row(struct depthwise *d, int64_t width)
{
    struct expr_ctx *e = d->e;
    struct lp_builder *b = &e->b;
    int64_t pixels = d->x->dims[2]->value;
    int rows = width < d->mr ? (int)width : d->mr;
    bool inner = width > 2 * d->mr && width >= d->mr + d->left + d->right;
    for (int64_t from = 0, last = width - rows;;) {
        edge_tile(d, lp_index(b, from), rows, e->zero, from * d->s - d->left, 0, pixels);
        if (from == last) return;
        if (from == 0 && inner) inner_tiles(d, lp_index(b, width));
        from = inner || from + rows > last ? last : from + rows;
    }
}

/* The stride is 1. */
static void unknown_row(struct depthwise *d, const struct dim *w)
{
    struct expr_ctx *e = d->e;
    struct lp_builder *b = &e->b;
    struct lp_value *width = expr_dim(e, w), *pixels = expr_dim(e, d->x->dims[2]);
    struct lp_op *branch = lp_if_begin(b, lp_binary(b, LP_OP_GE, width, lp_index(b, d->mr + d->left + d->right)), 0, NULL);
    size_t mark = expr_scope_push(e);
    edge_tile(d, e->zero, d->mr, e->zero, -d->left, 0, INT64_MAX);
    inner_tiles(d, width);
    edge_tile(d, lp_binary(b, LP_OP_SUB, width, lp_index(b, d->mr)), d->mr, pixels, d->right - d->kw + 1 - d->mr, INT64_MIN, 0);
    expr_scope_pop(e, mark);
    lp_if_else(b, branch, NULL);
    mark = expr_scope_push(e);
    short_row(d, width);
    expr_scope_pop(e, mark);
    lp_if_end(b, branch, NULL);
}

static void emit_row(struct depthwise *d)
{
    const struct dim *w = d->out->dims[2];
    if (dim_is_const(w) && dim_is_const(d->x->dims[2])) known_row(d, w->value);
    else unknown_row(d, w);
}

/* The row for some channels after the other. */
static void emit_channels(struct depthwise *d)
{
    struct expr_ctx *e = d->e;
    struct lp_builder *b = &e->b;
    int64_t full = d->channels / d->nr * d->nr;
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, lp_index(b, full), d->nr, 0, NULL);
    d->col = loop->regions[0]->args[0], d->ncols = NULL;
    emit_row(d);
    expr_for_end(e, loop, NULL);
    if (full == d->channels) return;
    d->col = lp_index(b, full), d->ncols = lp_index(b, d->channels - full);
    emit_row(d);
}

static bool setup(struct depthwise *d)
{
    struct lower_ctx *l = d->l;
    const struct ir_op *op = l->anchor;
    int n;
    if (!op || op->code != IR_OP_CONV || !lower_tile_epilogue_ok(l)) return false;
    const struct dim *const *pads = ir_attr_dims(op, "pads", &n);
    if (!pads || n != 4 || !depthwise_fits(op, pads)) return false;
    d->xb = lower_operand_of(l, ir_operand(op, 0)), d->wb = lower_operand_of(l, ir_operand(op, 1));
    d->bias = ir_operand(op, 2) ? lower_operand_of(l, ir_operand(op, 2)) : -1;
    if (d->xb < 0 || d->wb < 0 || (ir_operand(op, 2) && d->bias < 0) || !l->operand_consts[d->wb]) return false;
    if (ir_operand(op, 0)->uses->next || ir_operand(op, 1)->uses->next) return false;
    d->x = &ir_operand(op, 0)->type, d->out = &op->results[0].type;
    d->kh = ir_operand(op, 1)->type.dims[2]->value, d->kw = ir_operand(op, 1)->type.dims[3]->value;
    d->sh = attr_at(op, "strides", 0), d->s = attr_at(op, "strides", 1);
    d->top = pads[0]->value, d->left = pads[1]->value, d->right = pads[3]->value;
    d->channels = ir_attr_int(op, "groups", 1);
    return true;
}

enum lower_result lower_depthwise(struct lower_ctx *l)
{
    struct depthwise d = {.l = l, .e = &l->e};
    if (!setup(&d)) return LOWER_NOT_MINE;
    struct dim_ctx *dc = l->m->dims;
    struct lp_builder *b = &l->e.b;
    int64_t c = d.channels;
    lower_tile(l, 4, c % 64 == 0 ? 64 : c % 32 == 0 ? 32 : 16, d.out->dims[2], true, &d.mr, &d.nr);
    int64_t edge = d.left > d.right ? d.left : d.right;
    if (d.mr < edge) d.mr = (int)edge; /* an edge is one tile's */
    if (d.mr > MAX_MR) d.mr = MAX_MR;
    set_view(&d);
    pack(&d);
    const struct dim *axes[2] = {d.out->dims[0], d.out->dims[1]};
    struct lp_value *coord[2];
    lower_set_slices(l, dim_mul(dc, axes[0], axes[1]));
    expr_delinear(d.e, lower_slice(l), 2, axes, coord);
    d.n = coord[0], d.oy = coord[1];
    d.first = lp_binary(b, LP_OP_SUB, lp_binary(b, LP_OP_MUL, d.oy, lp_index(b, d.sh)), lp_index(b, d.top));
    d.lo = lp_binary(b, LP_OP_MAX, lp_binary(b, LP_OP_SUB, d.e->zero, d.first), d.e->zero);
    d.hi = lp_binary(b, LP_OP_MIN, lp_index(b, d.kh), lp_binary(b, LP_OP_SUB, expr_dim(d.e, d.x->dims[1]), d.first));
    emit_channels(&d);
    l->k->schedule = "conv-depthwise";
    return LOWER_DONE;
}
