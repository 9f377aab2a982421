// SPDX-License-Identifier: Apache-2.0
/* Indexed expressions of contractions and pooling windows. f16 and bf16 sums accumulate in f32. */
#include <math.h>
#include <string.h>

#include "passes/expr.h"

static enum dtype sum_dtype(const struct ir_op *op)
{
    enum dtype t = op->results[0].type.dtype;
    return t == DT_F16 || t == DT_BF16 ? DT_F32 : t;
}

static struct lp_value *zero_as(struct expr_ctx *c, enum dtype t)
{
    return dtype_is_float(t) ? lp_const_f(&c->b, lp_scalar(t), 0) : lp_const_i(&c->b, lp_scalar(t), 0);
}

static struct lp_value *mul_add(struct expr_ctx *c, struct lp_value *acc, struct lp_value *x, struct lp_value *y)
{
    enum dtype t = acc->type.dtype;
    x = lp_cast(&c->b, x, t), y = lp_cast(&c->b, y, t);
    if (dtype_is_float(t)) return lp_fma(&c->b, x, y, acc);
    return lp_binary(&c->b, LP_OP_ADD, acc, lp_binary(&c->b, LP_OP_MUL, x, y));
}

struct lp_value *expr_matmul(struct expr_ctx *c, const struct ir_op *op, int r, struct lp_value *const *idx)
{
    (void)r;
    const struct ir_value *x = ir_operand(op, 0), *y = ir_operand(op, 1);
    const struct ir_type *t = &op->results[0].type;
    bool ta = ir_attr_int(op, "trans_a", 0), tb = ir_attr_int(op, "trans_b", 0);
    int rx = x->type.rank, ry = y->type.rank, rank = t->rank;
    struct lp_value *xi[IR_MAX_RANK], *yi[IR_MAX_RANK];
    for (int i = 0; i < rx - 2; i++) xi[i] = dim_is(x->type.dims[i], 1) ? c->zero : idx[rank - rx + i];
    for (int i = 0; i < ry - 2; i++) yi[i] = dim_is(y->type.dims[i], 1) ? c->zero : idx[rank - ry + i];
    const struct dim *k = x->type.dims[ta ? rx - 2 : rx - 1];
    struct lp_value *init = zero_as(c, sum_dtype(op));
    enum lp_loop_kind kind = !ta && tb ? LP_LOOP_VECTOR : LP_LOOP_SERIAL; /* both run along k */
    struct lp_op *loop = expr_for_begin(c, kind, c->zero, expr_dim(c, k), 1, 1, &init);
    struct lp_value *kk = loop->regions[0]->args[0];
    xi[ta ? rx - 2 : rx - 1] = kk, xi[ta ? rx - 1 : rx - 2] = idx[rank - 2];
    yi[tb ? ry - 1 : ry - 2] = kk, yi[tb ? ry - 2 : ry - 1] = idx[rank - 1];
    struct lp_value *acc = mul_add(c, loop->regions[0]->args[1], expr_at(c, x, xi), expr_at(c, y, yi));
    expr_for_end(c, loop, &acc);
    return lp_cast(&c->b, loop->results[0], t->dtype);
}

/* Weights that are no constant: those that are become parts (passes/quant.c). */
struct lp_value *expr_matmul_experts(struct expr_ctx *c, const struct ir_op *op, int r, struct lp_value *const *idx)
{
    (void)r;
    const struct ir_value *x = ir_operand(op, 0), *w = ir_operand(op, 1), *ids = ir_operand(op, 2);
    int last = x->type.rank - 1;
    struct lp_value *init = zero_as(c, sum_dtype(op)), *id = lp_cast(&c->b, expr_at(c, ids, idx), DT_I64);
    id = expr_clamp(c, id, w->type.dims[0]);
    struct lp_op *loop = expr_for_begin(c, LP_LOOP_VECTOR, c->zero, expr_dim(c, x->type.dims[last]), 1, 1, &init);
    struct lp_value *k = loop->regions[0]->args[0], *xi[3] = {idx[0], idx[1], k}, *wi[3] = {id, idx[2], k};
    xi[last] = k;
    struct lp_value *acc = mul_add(c, loop->regions[0]->args[1], expr_at(c, x, xi), expr_at(c, w, wi));
    expr_for_end(c, loop, &acc);
    return lp_cast(&c->b, loop->results[0], op->results[0].type.dtype);
}

/* A window walk: nested loops over kernel taps; at the bottom, sub holds the input coordinates and inside whether they
 * lie in the image (NULL = always). */
struct window {
    struct expr_ctx *c;
    int n;                       /* spatial axes */
    int first;                   /* first spatial axis of x and of the output */
    const struct ir_value *x;
    const struct dim *const *kernel;
    const int64_t *strides, *dilations;
    const struct dim *const *pads;
    struct lp_value *taps[IR_MAX_RANK];
    struct lp_value *sub[IR_MAX_RANK]; /* input coordinates, unclamped */
};

/* Input coordinate of output position o and tap k along spatial axis i: o * stride + k * dilation - pad. */
static struct lp_value *window_coord(struct window *w, int i, struct lp_value *o, struct lp_value *tap)
{
    struct expr_ctx *c = w->c;
    struct lp_value *p = expr_imul(c, o, w->strides && w->strides[i] != 1 ? lp_index(&c->b, w->strides[i]) : c->one);
    struct lp_value *q = expr_imul(c, tap, w->dilations && w->dilations[i] != 1 ? lp_index(&c->b, w->dilations[i]) : c->one);
    p = expr_iadd(c, p, q);
    if (w->pads && !dim_is(w->pads[i], 0)) p = lp_binary(&c->b, LP_OP_SUB, p, expr_dim(c, w->pads[i]));
    return p;
}

/* AND of all bounds checks that are not provably true, NULL when none is needed; clamps sub. */
static struct lp_value *window_clamp(struct window *w)
{
    struct expr_ctx *c = w->c;
    struct lp_value *inside = NULL;
    for (int i = 0; i < w->n; i++) {
        const struct dim *d = w->x->type.dims[w->first + i];
        struct lp_value *p = w->sub[w->first + i];
        bool no_pad = !w->pads || (dim_is(w->pads[i], 0) && dim_is(w->pads[w->n + i], 0));
        if (no_pad) continue;
        struct lp_value *in = expr_in_bounds(c, p, d);
        inside = inside ? lp_binary(&c->b, LP_OP_AND, inside, in) : in;
        w->sub[w->first + i] = expr_clamp(c, p, d);
    }
    return inside;
}

struct lp_value *expr_conv(struct expr_ctx *c, const struct ir_op *op, int r, struct lp_value *const *idx)
{
    (void)r;
    struct lp_builder *b = &c->b;
    const struct ir_value *x = ir_operand(op, 0), *wt = ir_operand(op, 1), *bias = ir_operand(op, 2);
    int n = x->type.rank - 2, unused;
    bool last = ir_attr_int(op, "channels_last", 0);
    int ch = last ? n + 1 : 1, sp = last ? 1 : 2; /* channel axis, first spatial axis */
    int64_t groups = ir_attr_int(op, "groups", 1);
    const struct dim *cg = wt->type.dims[1], *og = dim_floordiv(c->m->dims, wt->type.dims[0], dim_const(c->m->dims, groups));
    struct window w = {.c = c, .n = n, .first = sp, .x = x, .kernel = wt->type.dims + 2,
                       .strides = ir_attr_ints(op, "strides", &unused), .dilations = ir_attr_ints(op, "dilations", &unused),
                       .pads = ir_attr_dims(op, "pads", &unused)};
    struct lp_value *wi[IR_MAX_RANK] = {idx[ch]}, *acc = zero_as(c, sum_dtype(op));
    struct lp_value *base = groups == 1 ? c->zero
                                        : expr_imul(c, lp_binary(b, LP_OP_FLOORDIV, idx[ch], expr_dim(c, og)), expr_dim(c, cg));
    struct lp_op *loops[IR_MAX_RANK];
    for (int i = 0; i <= n; i++) { /* channel loop, then taps */
        const struct dim *extent = i == 0 ? cg : w.kernel[i - 1];
        loops[i] = expr_for_begin(c, LP_LOOP_SERIAL, c->zero, expr_dim(c, extent), 1, 1, &acc);
        wi[1 + i] = loops[i]->regions[0]->args[0];
        acc = loops[i]->regions[0]->args[1];
    }
    w.sub[0] = idx[0];
    w.sub[ch] = expr_iadd(c, base, wi[1]);
    for (int i = 0; i < n; i++) w.sub[sp + i] = window_coord(&w, i, idx[sp + i], wi[2 + i]);
    struct lp_value *inside = window_clamp(&w);
    struct lp_value *v = lp_cast(b, expr_at(c, x, w.sub), acc->type.dtype);
    if (inside) v = lp_select(b, inside, v, zero_as(c, acc->type.dtype));
    acc = mul_add(c, acc, v, expr_at(c, wt, wi));
    for (int i = n; i >= 0; i--) {
        expr_for_end(c, loops[i], &acc);
        acc = loops[i]->results[0];
    }
    if (bias) acc = lp_binary(b, LP_OP_ADD, acc, lp_cast(b, expr_at(c, bias, &idx[ch]), acc->type.dtype));
    return lp_cast(b, acc, op->results[0].type.dtype);
}

/* out[o] sums x[i] * w[k] over taps k with o + pad = i * stride + k * dilation: i exists when the division is exact. */
struct lp_value *expr_conv_transpose(struct expr_ctx *c, const struct ir_op *op, int r, struct lp_value *const *idx)
{
    (void)r;
    struct lp_builder *b = &c->b;
    const struct ir_value *x = ir_operand(op, 0), *wt = ir_operand(op, 1), *bias = ir_operand(op, 2);
    int n = x->type.rank - 2, unused;
    int64_t groups = ir_attr_int(op, "groups", 1);
    const int64_t *strides = ir_attr_ints(op, "strides", &unused), *dilations = ir_attr_ints(op, "dilations", &unused);
    const struct dim *const *pads = ir_attr_dims(op, "pads", &unused);
    const struct dim *og = wt->type.dims[1];
    const struct dim *cg = dim_floordiv(c->m->dims, wt->type.dims[0], dim_const(c->m->dims, groups));
    struct lp_value *group = groups == 1 ? c->zero : lp_binary(b, LP_OP_FLOORDIV, idx[1], expr_dim(c, og));
    struct lp_value *wi[IR_MAX_RANK], *xi[IR_MAX_RANK], *acc = zero_as(c, sum_dtype(op));
    struct lp_op *loops[IR_MAX_RANK];
    wi[1] = groups == 1 ? idx[1] : lp_binary(b, LP_OP_MOD, idx[1], expr_dim(c, og));
    for (int i = 0; i <= n; i++) {
        const struct dim *extent = i == 0 ? cg : wt->type.dims[1 + i];
        loops[i] = expr_for_begin(c, LP_LOOP_SERIAL, c->zero, expr_dim(c, extent), 1, 1, &acc);
        wi[i == 0 ? 0 : 1 + i] = loops[i]->regions[0]->args[0];
        acc = loops[i]->regions[0]->args[1];
    }
    xi[0] = idx[0];
    xi[1] = wi[0] = expr_iadd(c, expr_imul(c, group, expr_dim(c, cg)), wi[0]);
    struct lp_value *inside = NULL;
    for (int i = 0; i < n; i++) {
        struct lp_value *p = idx[2 + i];
        if (!dim_is(pads[i], 0)) p = expr_iadd(c, p, expr_dim(c, pads[i]));
        struct lp_value *tap = expr_imul(c, wi[2 + i], dilations && dilations[i] != 1 ? lp_index(b, dilations[i]) : c->one);
        p = lp_binary(b, LP_OP_SUB, p, tap);
        struct lp_value *ok = NULL;
        if (strides && strides[i] != 1) {
            struct lp_value *s = lp_index(b, strides[i]);
            ok = lp_binary(b, LP_OP_EQ, lp_binary(b, LP_OP_MOD, p, s), c->zero);
            p = lp_binary(b, LP_OP_FLOORDIV, p, s);
        }
        struct lp_value *in = expr_in_bounds(c, p, x->type.dims[2 + i]);
        if (ok) in = lp_binary(b, LP_OP_AND, in, ok);
        inside = inside ? lp_binary(b, LP_OP_AND, inside, in) : in;
        xi[2 + i] = expr_clamp(c, p, x->type.dims[2 + i]);
    }
    struct lp_value *v = lp_cast(b, expr_at(c, x, xi), acc->type.dtype);
    if (inside) v = lp_select(b, inside, v, zero_as(c, acc->type.dtype));
    acc = mul_add(c, acc, v, expr_at(c, wt, wi));
    for (int i = n; i >= 0; i--) {
        expr_for_end(c, loops[i], &acc);
        acc = loops[i]->results[0];
    }
    if (bias) acc = lp_binary(b, LP_OP_ADD, acc, lp_cast(b, expr_at(c, bias, &idx[1]), acc->type.dtype));
    return lp_cast(b, acc, op->results[0].type.dtype);
}

/* Start value of a window maximum. */
static struct lp_value *least(struct expr_ctx *c, enum dtype t)
{
    if (dtype_is_float(t)) return lp_const_f(&c->b, lp_scalar(t), -(double)INFINITY);
    int64_t v = dtype_class(t) == DTC_SINT ? (int64_t)(UINT64_MAX << (dtype_bits(t) - 1)) : 0;
    return lp_const_i(&c->b, lp_scalar(t), v);
}

/*
 * The three pools. Carried: the fold; for max with the index wanted, also the flat index of the winner; for a mean that
 * does not count padding, the number of taps inside.
 */
struct lp_value *expr_pool(struct expr_ctx *c, const struct ir_op *op, int r, struct lp_value *const *idx)
{
    struct lp_builder *b = &c->b;
    const struct ir_value *x = ir_operand(op, 0);
    const struct ir_type *xt = &x->type;
    int n = xt->rank - 2, unused;
    bool last = ir_attr_int(op, "channels_last", 0);
    int sp = last ? 1 : 2, ch = last ? n + 1 : 1;
    bool max = op->code == IR_OP_POOL_MAX, avg = op->code == IR_OP_POOL_AVG;
    const int64_t *kernel = ir_attr_ints(op, "kernel", &unused);
    struct window w = {.c = c, .n = n, .first = sp, .x = x, .strides = ir_attr_ints(op, "strides", &unused),
                       .dilations = ir_attr_ints(op, "dilations", &unused), .pads = ir_attr_dims(op, "pads", &unused)};
    enum dtype acc_t = max ? xt->dtype : sum_dtype(op);
    struct lp_value *carried[2] = {max ? least(c, acc_t) : zero_as(c, acc_t), c->zero};
    struct lp_op *loops[IR_MAX_RANK];
    struct lp_value *taps[IR_MAX_RANK];
    w.sub[0] = idx[0], w.sub[ch] = idx[ch];
    for (int i = 0; i < n; i++) {
        loops[i] = expr_for_begin(c, LP_LOOP_SERIAL, c->zero, lp_index(b, kernel[i]), 1, 2, carried);
        taps[i] = loops[i]->regions[0]->args[0];
        carried[0] = loops[i]->regions[0]->args[1], carried[1] = loops[i]->regions[0]->args[2];
    }
    bool include_pad = ir_attr_int(op, "count_include_pad", 0);
    struct lp_value *counted = NULL;
    for (int i = 0; i < n; i++) {
        struct lp_value *p = w.sub[sp + i] = window_coord(&w, i, idx[sp + i], taps[i]);
        if (avg && include_pad) { /* positions beyond the padded image (ceil mode) never count */
            const struct dim *end = dim_add(c->m->dims, xt->dims[sp + i], w.pads ? w.pads[n + i] : dim_const(c->m->dims, 0));
            struct lp_value *in = lp_binary(b, LP_OP_LT, p, expr_dim(c, end));
            counted = counted ? lp_binary(b, LP_OP_AND, counted, in) : in;
        }
    }
    /* A window may leave the image without padding too (ceil mode): always check. */
    struct lp_value *inside = NULL;
    for (int i = 0; i < n; i++) {
        struct lp_value *in = expr_in_bounds(c, w.sub[sp + i], xt->dims[sp + i]);
        inside = inside ? lp_binary(b, LP_OP_AND, inside, in) : in;
        w.sub[sp + i] = expr_clamp(c, w.sub[sp + i], xt->dims[sp + i]);
    }
    struct lp_value *v = lp_cast(b, expr_at(c, x, w.sub), acc_t), *next[2];
    if (max) {
        struct lp_value *better = lp_binary(b, LP_OP_GT, v, carried[0]);
        if (dtype_is_float(acc_t)) better = lp_binary(b, LP_OP_OR, better, lp_binary(b, LP_OP_NE, v, v));
        better = inside ? lp_binary(b, LP_OP_AND, better, inside) : better;
        struct lp_value *flat;
        if (ir_attr_int(op, "column_major", 0)) {
            flat = c->zero;
            for (int i = n - 1; i >= 0; i--)
                flat = expr_iadd(c, expr_imul(c, flat, expr_dim(c, xt->dims[sp + i])), w.sub[sp + i]);
            const struct dim *nc_dims[2] = {xt->dims[0], xt->dims[ch]};
            struct lp_value *nc_at[2] = {idx[0], idx[ch]}, *nc = expr_linear(c, 2, nc_dims, nc_at);
            for (int i = 0; i < n; i++) nc = expr_imul(c, nc, expr_dim(c, xt->dims[sp + i]));
            flat = expr_iadd(c, nc, flat);
        } else { /* in [N, C, D..] order, whatever the layout */
            struct lp_value *at[IR_MAX_RANK] = {w.sub[0], w.sub[ch]};
            const struct dim *dims[IR_MAX_RANK] = {xt->dims[0], xt->dims[ch]};
            for (int i = 0; i < n; i++) at[2 + i] = w.sub[sp + i], dims[2 + i] = xt->dims[sp + i];
            flat = expr_linear(c, xt->rank, dims, at);
        }
        next[0] = lp_select(b, better, v, carried[0]);
        next[1] = r == 1 ? lp_select(b, better, flat, carried[1]) : carried[1];
    } else {
        if (inside) v = lp_select(b, inside, v, zero_as(c, acc_t));
        next[0] = lp_binary(b, LP_OP_ADD, carried[0], v);
        struct lp_value *in = include_pad ? counted : inside;
        struct lp_value *one = in ? lp_select(b, in, c->one, c->zero) : c->one;
        next[1] = avg ? lp_binary(b, LP_OP_ADD, carried[1], one) : carried[1];
    }
    for (int i = n - 1; i >= 0; i--) {
        expr_for_end(c, loops[i], next);
        next[0] = loops[i]->results[0], next[1] = loops[i]->results[1];
    }
    if (max) return r == 1 ? next[1] : next[0];
    if (avg) next[0] = lp_binary(b, LP_OP_DIV, next[0], lp_cast(b, lp_binary(b, LP_OP_MAX, next[1], c->one), acc_t));
    return lp_cast(b, next[0], op->results[0].type.dtype);
}
