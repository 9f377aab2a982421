// SPDX-License-Identifier: Apache-2.0
/*
 * Padding of channels-last images with a constant, in front of convolutions: a slice is one padded row. Whether it lies in the
 * image is asked once; within it the pixels left and right of the image have loops of their own, so that no element is
 * asked. What only copies walks a row's pixels and channels as one axis.
 *
 *   y[n, oy.., ox, c] = x(n, oy - lo, ox - lo, c) inside, else fill      x: an operand, or pointwise and moving ops on some
 */
#include <string.h>

#include "passes/lower.h"

struct pad {
    struct lower_ctx *l;
    struct expr_ctx *e;
    const struct ir_op *op;
    const struct ir_type *x, *out;
    const struct dim *const *lo, *const *hi;
    int rank, copied;         /* copied: the operand that is copied as it is, -1: none */
    struct lp_value *idx[IR_MAX_RANK], *fill;
};

static bool setup(struct pad *p)
{
    struct lower_ctx *l = p->l;
    if (l->anchor || l->yield->n_operands != 1) return false;
    p->op = ir_operand(l->yield, 0)->def;
    if (!p->op || p->op->code != IR_OP_PAD || p->op->block != l->body || ir_operand(p->op, 1)) return false;
    if (strcmp(ir_attr_string(p->op, "mode", "constant"), "constant")) return false;
    p->x = &ir_operand(p->op, 0)->type, p->out = &p->op->results[0].type, p->rank = p->out->rank;
    int n;
    p->lo = ir_attr_dims(p->op, "lo", &n), p->hi = ir_attr_dims(p->op, "hi", &n);
    if (p->rank < 4 || !dim_is(p->lo[p->rank - 1], 0) || !dim_is(p->hi[p->rank - 1], 0)) return false;
    for (int i = 0; i < p->rank; i++)
        if (p->lo[i]->lo < 0 || p->hi[i]->lo < 0) return false; /* crops: the generic lowering's */
    p->copied = lower_operand_of(l, ir_operand(p->op, 0));
    return true;
}

/* The last two axes of a row-major buffer as one. */
static void merge_last(struct pad *p, int buf)
{
    struct lp_kernel *k = p->l->k;
    struct lp_buf *b = &k->bufs.v[buf];
    const struct dim **dims = arena_dup(&k->arena, b->dims, (size_t)b->rank * sizeof *dims);
    const struct dim **strides = arena_dup(&k->arena, b->strides, (size_t)b->rank * sizeof *strides);
    int last = b->rank - 1;
    dims[last - 1] = dim_mul(p->l->m->dims, dims[last - 1], dims[last]);
    strides[last - 1] = strides[last];
    b->rank = last, b->dims = dims, b->strides = strides;
}

/* Elements [begin, end) of the row (or pixels of them); inside: of the image, which starts at `start`. */
static void emit_part(struct pad *p, struct lp_value *begin, struct lp_value *end, bool inside)
{
    struct expr_ctx *e = p->e;
    struct lp_builder *b = &e->b;
    int x_axis = p->rank - 2, n = p->copied >= 0 ? p->rank - 1 : p->rank;
    struct lp_op *pixels = expr_for_begin(e, p->copied >= 0 ? LP_LOOP_VECTOR : LP_LOOP_SERIAL, begin, end, 1, 0, NULL), *channels = NULL;
    p->idx[x_axis] = pixels->regions[0]->args[0];
    if (p->copied < 0) {
        channels = expr_for_begin(e, LP_LOOP_VECTOR, e->zero, expr_dim(e, p->out->dims[n - 1]), 1, 0, NULL);
        p->idx[n - 1] = channels->regions[0]->args[0];
    }
    struct lp_value *v = p->fill, *sub[IR_MAX_RANK];
    if (inside) {
        for (int i = 0; i < p->rank - 1; i++) {
            const struct dim *lo = i == x_axis && p->copied >= 0 ? dim_mul(p->l->m->dims, p->lo[i], p->x->dims[p->rank - 1]) : p->lo[i];
            sub[i] = dim_is(lo, 0) ? p->idx[i] : lp_binary(b, LP_OP_SUB, p->idx[i], expr_dim(e, lo));
        }
        sub[p->rank - 1] = p->idx[p->rank - 1];
        v = p->copied >= 0 ? lp_load(b, p->copied, sub) : expr_at(e, ir_operand(p->op, 0), sub);
    }
    lp_store(b, lower_result_buf(p->l, 0), p->idx, v);
    if (channels) expr_for_end(e, channels, NULL);
    expr_for_end(e, pixels, NULL);
}

/* Does the row lie in the image along the outer axes? NULL: always. */
static struct lp_value *row_inside(struct pad *p)
{
    struct expr_ctx *e = p->e;
    struct lp_value *inside = NULL;
    for (int i = 0; i < p->rank - 2; i++) {
        if (dim_is(p->lo[i], 0) && dim_is(p->hi[i], 0)) continue;
        struct lp_value *in = expr_in_bounds(e, lp_binary(&e->b, LP_OP_SUB, p->idx[i], expr_dim(e, p->lo[i])), p->x->dims[i]);
        inside = inside ? lp_binary(&e->b, LP_OP_AND, inside, in) : in;
    }
    return inside;
}

enum lower_result lower_pad(struct lower_ctx *l)
{
    struct pad p = {.l = l, .e = &l->e};
    if (!setup(&p)) return LOWER_NOT_MINE;
    struct expr_ctx *e = &l->e;
    struct dim_ctx *dc = l->m->dims;
    int x_axis = p.rank - 2;
    const struct dim *slices = dim_const(dc, 1), *left = p.lo[x_axis], *right = dim_add(dc, left, p.x->dims[x_axis]), *end = p.out->dims[x_axis];
    for (int i = 0; i < x_axis; i++) slices = dim_mul(dc, slices, p.out->dims[i]);
    lower_set_slices(l, slices);
    if (p.copied >= 0) {
        const struct dim *channels = p.x->dims[p.rank - 1];
        left = dim_mul(dc, left, channels), right = dim_mul(dc, right, channels), end = dim_mul(dc, end, channels);
        merge_last(&p, p.copied);
        merge_last(&p, lower_result_buf(l, 0));
    }
    expr_delinear(e, lower_slice(l), x_axis, p.out->dims, p.idx);
    struct lp_type t = lp_scalar(p.x->dtype);
    p.fill = dtype_is_float(t.dtype) ? lp_const_f(&e->b, t, 0) : lp_const_i(&e->b, t, 0);
    struct lp_value *first = expr_dim(e, left), *last = expr_dim(e, right), *size = expr_dim(e, end), *inside = row_inside(&p);
    struct lp_op *branch = inside ? lp_if_begin(&e->b, inside, 0, NULL) : NULL;
    size_t mark = expr_scope_push(e);
    if (!dim_is(left, 0)) emit_part(&p, e->zero, first, false);
    emit_part(&p, first, last, true);
    if (end != right) emit_part(&p, last, size, false);
    expr_scope_pop(e, mark);
    if (branch) {
        lp_if_else(&e->b, branch, NULL);
        mark = expr_scope_push(e);
        emit_part(&p, e->zero, size, false);
        expr_scope_pop(e, mark);
        lp_if_end(&e->b, branch, NULL);
    }
    l->k->schedule = "pad";
    return LOWER_DONE;
}
