// SPDX-License-Identifier: Apache-2.0
/*
 * Channels-last pooling: a slice is one output row; each pixel's window is walked with its bounds clipped to the image, so
 * that no tap is masked, as vectors over channels.
 */
#include <math.h>

#include "passes/lower.h"

struct pool {
    struct lower_ctx *l;
    struct expr_ctx *e;
    const struct ir_type *x, *out;
    int n, xb, nr;
    enum dtype acc;
    bool max, avg, include_pad;
    const int64_t *kernel, *strides, *dilations;
    const struct dim *const *pads;
    struct lp_value *idx[5];           /* output coordinates; last: first channel */
    struct lp_value *lo[3], *hi[3], *start[3];
    struct lp_value *count;            /* taps that count for a mean, i64 */
};

static int64_t at_or_one(const int64_t *v, int i) { return v ? v[i] : 1; }

static struct lp_value *ceil_div(struct pool *p, struct lp_value *a, int64_t d)
{
    struct lp_builder *b = &p->e->b;
    if (d == 1) return a;
    return lp_binary(b, LP_OP_FLOORDIV, lp_binary(b, LP_OP_ADD, a, lp_index(b, d - 1)), lp_index(b, d));
}

/* Taps [lo, hi) of spatial axis i that lie in the image, for output coordinate idx[1 + i]. */
static void clip_axis(struct pool *p, int i)
{
    struct expr_ctx *e = p->e;
    struct lp_builder *b = &e->b;
    int64_t s = at_or_one(p->strides, i), d = at_or_one(p->dilations, i), k = p->kernel[i];
    struct lp_value *start = expr_imul(e, p->idx[1 + i], lp_index(b, s)), *size = expr_dim(e, p->x->dims[1 + i]);
    struct lp_value *kernel = lp_index(b, k), *pad_end = size;
    if (p->pads) {
        start = lp_binary(b, LP_OP_SUB, start, expr_dim(e, p->pads[i]));
        pad_end = lp_binary(b, LP_OP_ADD, size, expr_dim(e, p->pads[p->n + i]));
    }
    struct lp_value *minus = lp_binary(b, LP_OP_SUB, e->zero, start);
    p->lo[i] = ceil_div(p, lp_binary(b, LP_OP_MAX, minus, e->zero), d);
    p->hi[i] = lp_binary(b, LP_OP_MIN, kernel, ceil_div(p, lp_binary(b, LP_OP_SUB, size, start), d));
    p->start[i] = start;
    if (!p->avg) return;
    struct lp_value *n;
    if (p->include_pad) n = lp_binary(b, LP_OP_MIN, kernel, ceil_div(p, lp_binary(b, LP_OP_SUB, pad_end, start), d));
    else n = lp_binary(b, LP_OP_MAX, lp_binary(b, LP_OP_SUB, p->hi[i], p->lo[i]), e->zero);
    p->count = p->count ? lp_binary(b, LP_OP_MUL, p->count, n) : n;
}

static struct lp_value *first_value(struct pool *p)
{
    struct lp_type t = lp_vector(p->acc, p->nr);
    if (!p->max) return dtype_is_float(p->acc) ? lp_const_f(&p->e->b, t, 0) : lp_const_i(&p->e->b, t, 0);
    if (dtype_is_float(p->acc)) return lp_const_f(&p->e->b, t, -(double)INFINITY);
    return lp_const_i(&p->e->b, t, dtype_class(p->acc) == DTC_SINT ? (int64_t)(UINT64_MAX << (dtype_bits(p->acc) - 1)) : 0);
}

static struct lp_value *fold_window(struct pool *p, struct lp_value *ncols)
{
    struct expr_ctx *e = p->e;
    struct lp_builder *b = &e->b;
    struct lp_value *acc = first_value(p), *in[5] = {p->idx[0]};
    struct lp_op *loops[3];
    for (int i = 0; i < p->n; i++) {
        loops[i] = expr_for_begin(e, LP_LOOP_SERIAL, p->lo[i], p->hi[i], 1, 1, &acc);
        struct lp_value *k = loops[i]->regions[0]->args[0];
        acc = loops[i]->regions[0]->args[1];
        in[1 + i] = lp_binary(b, LP_OP_ADD, p->start[i], expr_imul(e, k, lp_index(b, at_or_one(p->dilations, i))));
    }
    in[1 + p->n] = p->idx[1 + p->n];
    struct lp_value *v = lp_load_tile(b, p->xb, in, 1, p->nr, 0, 1 + p->n, NULL, ncols);
    acc = lp_binary(b, p->max ? LP_OP_MAX : LP_OP_ADD, acc, lp_cast(b, v, p->acc));
    for (int i = p->n - 1; i >= 0; i--) {
        expr_for_end(e, loops[i], &acc);
        acc = loops[i]->results[0];
    }
    if (p->avg) {
        struct lp_value *n = lp_cast(b, lp_binary(b, LP_OP_MAX, p->count, e->one), p->acc);
        acc = lp_binary(b, LP_OP_DIV, acc, lp_splat(b, n, 1, p->nr));
    }
    return lp_cast(b, acc, p->out->dtype);
}

enum lower_result lower_pool(struct lower_ctx *l)
{
    const struct ir_op *op = l->anchor;
    if (!op || (op->code != IR_OP_POOL_MAX && op->code != IR_OP_POOL_AVG && op->code != IR_OP_POOL_SUM)) return LOWER_NOT_MINE;
    if (!ir_attr_int(op, "channels_last", 0) || !lower_tile_epilogue_ok(l)) return LOWER_NOT_MINE;
    int unused;
    struct expr_ctx *e = &l->e;
    struct pool p = {.l = l, .e = e, .x = &ir_operand(op, 0)->type, .out = &op->results[0].type, .xb = lower_operand_of(l, ir_operand(op, 0)),
                     .max = op->code == IR_OP_POOL_MAX, .avg = op->code == IR_OP_POOL_AVG, .kernel = ir_attr_ints(op, "kernel", &unused),
                     .strides = ir_attr_ints(op, "strides", &unused), .dilations = ir_attr_ints(op, "dilations", &unused),
                     .pads = ir_attr_dims(op, "pads", &unused), .include_pad = ir_attr_int(op, "count_include_pad", 0)};
    p.n = p.x->rank - 2;
    enum dtype t = p.x->dtype;
    p.acc = !p.max && (t == DT_F16 || t == DT_BF16) ? DT_F32 : t;
    if (p.n > 3 || p.xb < 0) return LOWER_NOT_MINE;
    p.nr = l->level->vector_bytes / (int)dtype_bytes(p.acc);
    const struct dim *slices = dim_const(l->m->dims, 1), *channels = p.x->dims[1 + p.n];
    for (int i = 0; i < p.n; i++) slices = dim_mul(l->m->dims, slices, p.out->dims[i]);
    lower_set_slices(l, slices);
    expr_delinear(e, lower_slice(l), p.n, p.out->dims, p.idx);
    for (int i = 0; i < p.n - 1; i++) clip_axis(&p, i);
    struct lp_value *rows_count = p.count;
    struct lp_op *pixel = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, expr_dim(e, p.out->dims[p.n]), 1, 0, NULL);
    p.idx[p.n] = pixel->regions[0]->args[0];
    p.count = rows_count;
    clip_axis(&p, p.n - 1);
    struct lp_value *total = expr_dim(e, channels);
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, total, p.nr, 0, NULL);
    p.idx[1 + p.n] = loop->regions[0]->args[0];
    bool cut = !(dim_is_const(channels) && channels->value % p.nr == 0);
    struct lp_value *ncols = cut ? lp_binary(&e->b, LP_OP_SUB, total, p.idx[1 + p.n]) : NULL;
    struct lp_value *v = lower_tile_epilogue(l, fold_window(&p, ncols), p.idx, p.n, NULL, ncols);
    lp_store_tile(&e->b, lower_result_buf(l, 0), p.idx, v, 0, 1 + p.n, NULL, ncols);
    expr_for_end(e, loop, NULL);
    expr_for_end(e, pixel, NULL);
    l->k->schedule = "pool";
    return LOWER_DONE;
}
