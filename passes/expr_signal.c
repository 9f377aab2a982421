// SPDX-License-Identifier: Apache-2.0
/* Indexed expressions of col2im, dft and det. */
#include <math.h>
#include <string.h>

#include "passes/expr_num.h"

/* ---- col2im ---- */

static struct lp_value *times(struct expr_ctx *c, struct lp_value *v, int64_t k)
{
    return k == 1 ? v : expr_imul(c, v, lp_index(&c->b, k));
}

/* Adding counterpart of a window walk: element p of the image lies under tap t of position q when q * stride = p + pad - t * dilation. */
struct lp_value *expr_col2im(struct expr_ctx *c, const struct ir_op *op, int r, struct lp_value *const *idx)
{
    (void)r;
    struct lp_builder *b = &c->b;
    struct dim_ctx *dc = c->m->dims;
    const struct ir_value *x = ir_operand(op, 0);
    int n, unused;
    const struct dim *const *image = ir_attr_dims(op, "image", &n);
    const int64_t *block = ir_attr_ints(op, "block", &unused), *strides = ir_attr_ints(op, "strides", &unused);
    const int64_t *dilations = ir_attr_ints(op, "dilations", &unused), *pads = ir_attr_ints(op, "pads", &unused);
    enum dtype t = op->results[0].type.dtype, acc_t = dtype_is_float(t) ? num_acc(t) : t;
    struct lp_type s = lp_scalar(acc_t);
    struct lp_value *zero = dtype_is_float(acc_t) ? lp_const_f(b, s, 0) : lp_const_i(b, s, 0), *acc = zero;
    struct lp_op *loops[IR_MAX_RANK];
    struct lp_value *taps = c->zero, *positions = c->zero, *inside = NULL;
    for (int i = 0; i < n; i++) {
        int64_t size = block ? block[i] : 1;
        loops[i] = expr_for_begin(c, LP_LOOP_SERIAL, c->zero, lp_index(b, size), 1, 1, &acc);
        taps = expr_iadd(c, times(c, taps, size), loops[i]->regions[0]->args[0]);
        acc = loops[i]->regions[0]->args[1];
    }
    for (int i = 0; i < n; i++) {
        int64_t size = block ? block[i] : 1, stride = strides ? strides[i] : 1, dilation = dilations ? dilations[i] : 1;
        int64_t lo = pads ? pads[i] : 0, hi = pads ? pads[n + i] : 0;
        const struct dim *room = dim_addc(dc, image[i], lo + hi - dilation * (size - 1) - 1);
        const struct dim *count = dim_addc(dc, dim_floordiv(dc, room, dim_const(dc, stride)), 1);
        struct lp_value *p = expr_iadd(c, idx[2 + i], lp_index(b, lo));
        p = lp_binary(b, LP_OP_SUB, p, times(c, loops[i]->regions[0]->args[0], dilation));
        struct lp_value *q = stride == 1 ? p : lp_binary(b, LP_OP_FLOORDIV, p, lp_index(b, stride));
        struct lp_value *in = expr_in_bounds(c, q, count);
        if (stride != 1) in = lp_binary(b, LP_OP_AND, in, lp_binary(b, LP_OP_EQ, times(c, q, stride), p));
        inside = inside ? lp_binary(b, LP_OP_AND, inside, in) : in;
        positions = expr_iadd(c, expr_imul(c, positions, expr_dim(c, count)), expr_clamp(c, q, count));
    }
    int64_t n_taps = 1;
    for (int i = 0; i < n; i++) n_taps *= block ? block[i] : 1;
    struct lp_value *sub[3] = {idx[0], expr_iadd(c, times(c, idx[1], n_taps), taps), positions}, *v;
    if (x->type.dims[2]->lo < 1) { /* there may be no position at all */
        struct lp_op *branch = lp_if_begin(b, inside, 1, &s);
        size_t mark = expr_scope_push(c);
        v = lp_cast(b, expr_at(c, x, sub), acc_t);
        expr_scope_pop(c, mark);
        lp_if_else(b, branch, &v);
        lp_if_end(b, branch, &zero);
        v = branch->results[0];
    } else {
        v = lp_select(b, inside, lp_cast(b, expr_at(c, x, sub), acc_t), zero);
    }
    acc = lp_binary(b, LP_OP_ADD, acc, v);
    for (int i = n - 1; i >= 0; i--) {
        expr_for_end(c, loops[i], &acc);
        acc = loops[i]->results[0];
    }
    return lp_cast(b, acc, t);
}

/* ---- dft ---- */

/*
 * The direct sum, each turn computed: right for every length. Constant lengths become matrix products before this
 * (passes/patterns.c). Angles are reduced in integers, (j * k) mod n, and turned in f64.
 */
struct lp_value *expr_dft(struct expr_ctx *c, const struct ir_op *op, int r, struct lp_value *const *idx)
{
    (void)r;
    struct lp_builder *b = &c->b;
    struct dim_ctx *dc = c->m->dims;
    const struct ir_value *x = ir_operand(op, 0);
    const struct ir_type *t = &x->type;
    int rank = t->rank, n_len;
    int axis = (int)ir_attr_int(op, "axis", rank - 2);
    bool inverse = ir_attr_int(op, "inverse", 0), real = dim_is(t->dims[rank - 1], 1);
    const struct dim *n_in = t->dims[axis], *const *length = ir_attr_dims(op, "length", &n_len), *n = n_len ? length[0] : n_in;
    struct lp_value *nv = expr_dim(c, n), *zero = num_f(c, 0), *sub[IR_MAX_RANK];
    struct lp_value *is_im = lp_binary(b, LP_OP_EQ, idx[rank - 1], c->one);
    memcpy(sub, idx, (size_t)rank * sizeof *sub);
    struct lp_op *loop = expr_for_begin(c, LP_LOOP_SERIAL, c->zero, expr_dim(c, dim_min(dc, n_in, n)), 1, 1, &zero);
    struct lp_value *j = sub[axis] = loop->regions[0]->args[0];
    struct lp_value *turn = lp_binary(b, LP_OP_MOD, lp_binary(b, LP_OP_MUL, j, idx[axis]), nv);
    struct lp_value *angle = num_opc(c, LP_OP_MUL, lp_cast(b, turn, DT_F64), 2 * 0x1.921fb54442d18p+1);
    angle = lp_binary(b, LP_OP_DIV, angle, lp_cast(b, nv, DT_F64));
    struct lp_value *cosine = lp_unary(b, LP_OP_COS, angle), *sine = lp_unary(b, LP_OP_SIN, angle);
    if (!inverse) sine = lp_unary(b, LP_OP_NEG, sine);
    sub[rank - 1] = c->zero;
    struct lp_value *re = lp_cast(b, expr_at(c, x, sub), DT_F64), *im = NULL;
    if (!real) {
        sub[rank - 1] = c->one;
        im = lp_cast(b, expr_at(c, x, sub), DT_F64);
    }
    struct lp_value *re_part = lp_binary(b, LP_OP_MUL, re, cosine), *im_part = lp_binary(b, LP_OP_MUL, re, sine);
    if (im) {
        re_part = lp_binary(b, LP_OP_SUB, re_part, lp_binary(b, LP_OP_MUL, im, sine));
        im_part = lp_binary(b, LP_OP_ADD, im_part, lp_binary(b, LP_OP_MUL, im, cosine));
    }
    struct lp_value *next = lp_binary(b, LP_OP_ADD, loop->regions[0]->args[1], lp_select(b, is_im, im_part, re_part)), *v;
    expr_for_end(c, loop, &next);
    v = loop->results[0];
    if (inverse) v = lp_binary(b, LP_OP_DIV, v, lp_cast(b, nv, DT_F64));
    return lp_cast(b, v, t->dtype);
}

/* ---- det ---- */

#define DET_MAX 512 /* of a side: 2 MiB of private memory */

struct det {
    struct expr_ctx *c;
    int a;             /* the matrix, f64, destroyed */
    struct lp_value *n;
};

static struct lp_value *elem(struct det *d, struct lp_value *i, struct lp_value *j)
{
    struct lp_value *idx[2] = {i, j};
    return lp_load(&d->c->b, d->a, idx);
}

static void set(struct det *d, struct lp_value *i, struct lp_value *j, struct lp_value *v)
{
    struct lp_value *idx[2] = {i, j};
    lp_store(&d->c->b, d->a, idx, v);
}

/* The row at or below k with the greatest |a[row][k]|. */
static struct lp_value *find_pivot(struct det *d, struct lp_value *k)
{
    struct expr_ctx *c = d->c;
    struct lp_builder *b = &c->b;
    struct lp_value *init[2] = {lp_unary(b, LP_OP_ABS, elem(d, k, k)), k};
    struct lp_op *loop = expr_for_begin(c, LP_LOOP_SERIAL, lp_binary(b, LP_OP_ADD, k, c->one), d->n, 1, 2, init);
    struct lp_value *i = loop->regions[0]->args[0], *best = loop->regions[0]->args[1], *at = loop->regions[0]->args[2];
    struct lp_value *v = lp_unary(b, LP_OP_ABS, elem(d, i, k)), *better = lp_binary(b, LP_OP_GT, v, best);
    struct lp_value *next[2] = {lp_select(b, better, v, best), lp_select(b, better, i, at)};
    expr_for_end(c, loop, next);
    return loop->results[1];
}

static void swap_rows(struct det *d, struct lp_value *k, struct lp_value *with)
{
    struct expr_ctx *c = d->c;
    struct lp_op *loop = expr_for_begin(c, LP_LOOP_SERIAL, k, d->n, 1, 0, NULL);
    struct lp_value *j = loop->regions[0]->args[0], *x = elem(d, k, j), *y = elem(d, with, j);
    set(d, k, j, y);
    set(d, with, j, x);
    expr_for_end(c, loop, NULL);
}

/* Rows below k minus their multiple of row k. */
static void eliminate(struct det *d, struct lp_value *k, struct lp_value *pivot)
{
    struct expr_ctx *c = d->c;
    struct lp_builder *b = &c->b;
    struct lp_value *below = lp_binary(b, LP_OP_ADD, k, c->one);
    struct lp_op *rows = expr_for_begin(c, LP_LOOP_SERIAL, below, d->n, 1, 0, NULL);
    struct lp_value *i = rows->regions[0]->args[0], *f = lp_binary(b, LP_OP_DIV, elem(d, i, k), pivot);
    struct lp_op *cols = expr_for_begin(c, LP_LOOP_SERIAL, below, d->n, 1, 0, NULL);
    struct lp_value *j = cols->regions[0]->args[0];
    set(d, i, j, lp_binary(b, LP_OP_SUB, elem(d, i, j), lp_binary(b, LP_OP_MUL, f, elem(d, k, j))));
    expr_for_end(c, cols, NULL);
    expr_for_end(c, rows, NULL);
}

/* Elimination with column pivots in f64, on a private copy of the matrix. */
struct lp_value *expr_det(struct expr_ctx *c, const struct ir_op *op, int r, struct lp_value *const *idx)
{
    (void)r;
    struct lp_builder *b = &c->b;
    const struct ir_value *x = ir_operand(op, 0);
    int rank = x->type.rank;
    const struct dim *n = x->type.dims[rank - 1];
    if (n->hi > DET_MAX) {
        diag_report(c->diag, DIAG_NO_LOWERING, op->loc ? op->loc->text : NULL,
                    "determinants of matrices above %d x %d, or of a size that may exceed it, have no lowering", DET_MAX, DET_MAX);
        c->failed = true;
        return lp_const_f(b, lp_scalar(x->type.dtype), 0);
    }
    int64_t side = n->hi > 0 ? n->hi : 1, dims[2] = {side, side};
    struct det d = {c, lp_add_stack(c->k, "matrix", DT_F64, 2, dims), expr_dim(c, n)};
    struct lp_value *sub[IR_MAX_RANK];
    if (rank > 2) memcpy(sub, idx, (size_t)(rank - 2) * sizeof *idx);
    struct lp_op *fill = expr_for_begin(c, LP_LOOP_SERIAL, c->zero, d.n, 1, 0, NULL);
    struct lp_op *row = expr_for_begin(c, LP_LOOP_SERIAL, c->zero, d.n, 1, 0, NULL);
    sub[rank - 2] = fill->regions[0]->args[0], sub[rank - 1] = row->regions[0]->args[0];
    set(&d, sub[rank - 2], sub[rank - 1], lp_cast(b, expr_at(c, x, sub), DT_F64));
    expr_for_end(c, row, NULL);
    expr_for_end(c, fill, NULL);
    struct lp_value *zero = num_f(c, 0), *one = num_f(c, 1), *init[2] = {one, lp_const_i(b, lp_scalar(DT_BOOL), 0)};
    struct lp_op *loop = expr_for_begin(c, LP_LOOP_SERIAL, c->zero, d.n, 1, 2, init);
    struct lp_value *k = loop->regions[0]->args[0], *det = loop->regions[0]->args[1], *singular = loop->regions[0]->args[2];
    struct lp_value *p = find_pivot(&d, k);
    swap_rows(&d, k, p);
    struct lp_value *pivot = elem(&d, k, k), *none = lp_binary(b, LP_OP_EQ, pivot, zero);
    struct lp_value *sign = lp_select(b, lp_binary(b, LP_OP_EQ, p, k), det, lp_unary(b, LP_OP_NEG, det));
    eliminate(&d, k, lp_select(b, none, one, pivot));
    struct lp_value *next[2] = {lp_binary(b, LP_OP_MUL, sign, pivot), lp_binary(b, LP_OP_OR, singular, none)};
    expr_for_end(c, loop, next);
    return lp_cast(b, lp_select(b, loop->results[1], zero, loop->results[0]), x->type.dtype);
}
