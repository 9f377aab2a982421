// SPDX-License-Identifier: Apache-2.0
/*
 * The generic lowering: right for every group on every target. The last axis of the root is the inner, vectorised loop;
 * the outer axes, in row-major order, are the slices; a long or only last axis is cut into chunks. Several results are
 * stored by one pass over their shared coordinates when their shapes agree, else each has slices of its own.
 */
#include "passes/lower.h"

#define CHUNK 2048 /* elements of the last axis a slice does at most */

static struct lp_value *element_count(struct lower_ctx *l, const struct dim *d) { return expr_dim(&l->e, d); }

/* Axes from the right that form one contiguous run in every value of the group: pointwise groups whose operands all have
 * the root's shape (or one element) run as one axis. */
static bool is_flat(const struct lower_ctx *l)
{
    const struct ir_type *t = &ir_operand(l->yield, 0)->type;
    if (l->yield->n_operands != 1 || t->rank < 2) return false;
    for (const struct ir_op *op = l->body->first; op != l->yield; op = op->next) {
        if (op->code == IR_OP_CONSTANT) continue;
        if (!(ir_op_traits(op) & IR_T_PW)) return false;
    }
    for (int i = 0; i < l->body->n_args; i++) {
        const struct ir_type *s = &l->body->args[i]->type;
        bool one = true, same = s->rank == t->rank;
        for (int k = 0; k < s->rank; k++) {
            one = one && dim_is(s->dims[k], 1);
            same = same && s->dims[k] == t->dims[k];
        }
        if (!one && !same) return false;
    }
    return true;
}

/* Gives every buffer of the root's shape the flat shape [n], so that index arithmetic is one addition. */
static void flatten_bufs(struct lower_ctx *l, const struct dim *n)
{
    struct lp_kernel *k = l->k;
    const struct ir_type *t = &ir_operand(l->yield, 0)->type;
    for (size_t i = 0; i < k->bufs.n; i++) {
        struct lp_buf *b = &k->bufs.v[i];
        bool same = b->rank == t->rank;
        for (int j = 0; same && j < t->rank; j++) same = b->dims[j] == t->dims[j];
        const struct dim **dims = ARENA_ARRAY(&k->arena, const struct dim *, 1);
        const struct dim **strides = ARENA_ARRAY(&k->arena, const struct dim *, 1);
        dims[0] = same ? n : dim_const(l->m->dims, 1);
        strides[0] = dim_const(l->m->dims, 1);
        b->rank = 1, b->dims = dims, b->strides = strides;
    }
}

/* Element of an operand of a flat group: its one coordinate is the flat one or 0. */
struct flat_operand {
    struct lower_ctx *l;
    int buf;
    bool one;
    struct lp_value *at;
};

static struct lp_value *flat_load(void *ctx, struct lp_value *const *idx)
{
    (void)idx;
    struct flat_operand *f = ctx;
    struct lp_value *i[1] = {f->one ? f->l->e.zero : f->at};
    return lp_load(&f->l->e.b, f->buf, i);
}

static enum lower_result lower_flat(struct lower_ctx *l)
{
    struct expr_ctx *e = &l->e;
    struct ir_value *root = ir_operand(l->yield, 0);
    const struct dim *n = ir_type_elems(l->m, &root->type);
    flatten_bufs(l, n);
    lower_set_slices(l, dim_ceildiv(l->m->dims, n, dim_const(l->m->dims, CHUNK)));
    struct lp_value *lo = lp_binary(&e->b, LP_OP_MUL, lower_slice(l), lp_index(&e->b, CHUNK));
    struct lp_value *hi = lp_binary(&e->b, LP_OP_MIN, lp_binary(&e->b, LP_OP_ADD, lo, lp_index(&e->b, CHUNK)), element_count(l, n));
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_VECTOR, lo, hi, 1, 0, NULL);
    struct lp_value *at[1] = {loop->regions[0]->args[0]}, *idx[IR_MAX_RANK];
    struct flat_operand *ops = ARENA_ARRAY(&l->k->arena, struct flat_operand, l->body->n_args);
    for (int i = 0; i < l->body->n_args; i++) {
        ops[i] = (struct flat_operand){l, i, dim_is(l->k->bufs.v[i].dims[0], 1) && !dim_is(n, 1), at[0]};
        expr_override(e, l->body->args[i], flat_load, &ops[i]);
    }
    for (int i = 0; i < root->type.rank; i++) idx[i] = e->zero; /* unused: every leaf is overridden */
    lp_store(&e->b, lower_result_buf(l, 0), at, expr_at(e, root, idx));
    expr_for_end(e, loop, NULL);
    l->k->schedule = "pointwise";
    return LOWER_DONE;
}

/* One result: slices over outer axes (and chunks of the last), vector loop inside. */
static void lower_result(struct lower_ctx *l, int i, struct lp_value *slice, const struct dim *chunks)
{
    struct expr_ctx *e = &l->e;
    struct ir_value *root = ir_operand(l->yield, i);
    const struct ir_type *t = &root->type;
    struct lp_value *idx[IR_MAX_RANK] = {NULL};
    if (t->rank == 0) {
        lp_store(&e->b, lower_result_buf(l, i), idx, expr_at(e, root, idx));
        return;
    }
    const struct dim *last = t->dims[t->rank - 1];
    struct lp_value *lo = e->zero, *hi = expr_dim(e, last), *outer = slice;
    if (!dim_is(chunks, 1)) {
        struct lp_value *n_chunks = expr_dim(e, chunks);
        struct lp_value *chunk = t->rank == 1 ? slice : lp_binary(&e->b, LP_OP_MOD, slice, n_chunks);
        outer = t->rank == 1 ? e->zero : lp_binary(&e->b, LP_OP_FLOORDIV, slice, n_chunks);
        lo = lp_binary(&e->b, LP_OP_MUL, chunk, lp_index(&e->b, CHUNK));
        hi = lp_binary(&e->b, LP_OP_MIN, lp_binary(&e->b, LP_OP_ADD, lo, lp_index(&e->b, CHUNK)), hi);
    }
    expr_delinear(e, outer, t->rank - 1, t->dims, idx);
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_VECTOR, lo, hi, 1, 0, NULL);
    idx[t->rank - 1] = loop->regions[0]->args[0];
    lp_store(&e->b, lower_result_buf(l, i), idx, expr_at(e, root, idx));
    expr_for_end(e, loop, NULL);
}

static bool same_shape(const struct ir_type *a, const struct ir_type *b)
{
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i]) return false;
    return true;
}

/* Slices of one result, and chunks of its last axis. */
static const struct dim *result_slices(struct lower_ctx *l, const struct ir_type *t, const struct dim **chunks)
{
    struct dim_ctx *dc = l->m->dims;
    const struct dim *slices = *chunks = dim_const(dc, 1);
    for (int i = 0; i < t->rank - 1; i++) slices = dim_mul(dc, slices, t->dims[i]);
    if (!t->rank) return slices;
    const struct dim *last = t->dims[t->rank - 1];
    if (last->hi > CHUNK) *chunks = dim_ceildiv(dc, last, dim_const(dc, CHUNK));
    return dim_mul(dc, slices, *chunks);
}

/* Results of different shapes: each has a range of slices of its own, one behind the other. */
static void lower_ranges(struct lower_ctx *l)
{
    struct expr_ctx *e = &l->e;
    const struct dim *start = dim_const(l->m->dims, 0), *chunks;
    for (int i = 0; i < l->yield->n_operands; i++) {
        const struct dim *n = result_slices(l, &ir_operand(l->yield, i)->type, &chunks);
        struct lp_value *slice = lp_binary(&e->b, LP_OP_SUB, lower_slice(l), expr_dim(e, start));
        struct lp_op *branch = lp_if_begin(&e->b, expr_in_bounds(e, slice, n), 0, NULL);
        size_t mark = expr_scope_push(e);
        lower_result(l, i, slice, chunks);
        expr_scope_pop(e, mark);
        lp_if_else(&e->b, branch, NULL);
        lp_if_end(&e->b, branch, NULL);
        start = dim_add(l->m->dims, start, n);
    }
    lower_set_slices(l, start);
}

enum lower_result lower_generic(struct lower_ctx *l)
{
    const struct ir_op *a = l->anchor;
    if (a && !(ir_op_traits(a) & IR_T_PW) && !expr_find(a->code)) return LOWER_NOT_MINE;
    if (is_flat(l)) return lower_flat(l);
    const struct ir_type *t = &ir_operand(l->yield, 0)->type;
    bool same = true;
    for (int i = 1; i < l->yield->n_operands; i++) same = same && same_shape(&ir_operand(l->yield, i)->type, t);
    if (same) {
        const struct dim *chunks;
        lower_set_slices(l, result_slices(l, t, &chunks));
        for (int i = 0; i < l->yield->n_operands; i++) lower_result(l, i, lower_slice(l), chunks);
    } else {
        lower_ranges(l);
    }
    l->k->schedule = l->anchor ? "generic" : "pointwise";
    return LOWER_DONE;
}
