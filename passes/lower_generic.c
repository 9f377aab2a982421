// SPDX-License-Identifier: Apache-2.0
/*
 * The generic lowering: right for every group on every target. See struct walk for how axes become slices and loops. Several
 * results are stored by one pass over their shared coordinates when their shapes agree, else each has slices of its own.
 */
#include "passes/lower.h"

#define CHUNK 2048 /* elements of the vector axis a slice does at most */
#define GPU_CHUNK 8 /* of a flat group where a slice is one thread */

static int64_t flat_chunk(const struct lower_ctx *l) { return l->level->gpu ? GPU_CHUNK : CHUNK; }

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
    int64_t chunk = flat_chunk(l);
    lower_set_slices(l, dim_ceildiv(l->m->dims, n, dim_const(l->m->dims, chunk)));
    struct lp_value *lo = lp_binary(&e->b, LP_OP_MUL, lower_slice(l), lp_index(&e->b, chunk));
    struct lp_value *hi = lp_binary(&e->b, LP_OP_MIN, lp_binary(&e->b, LP_OP_ADD, lo, lp_index(&e->b, chunk)), element_count(l, n));
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

/*
 * How the coordinates of a result are walked. Axes of size 1 are left out; of the others, from the outside in:
 *
 *   slices      axes 0 .. first - 1, then blocks of axis `first`, then chunks of the vector axis
 *   serial      the block of axis `first`, and the axes up to the vector axis
 *   vector      one axis: the last one, or, when that is tiny, the one before the tiny ones
 *   unrolled    tiny axes behind the vector axis
 *
 * A slice has about WORK elements, so that its index arithmetic does not show. On a GPU all axes are slices.
 */
struct walk {
    int axes[IR_MAX_RANK], n; /* those of more than one element */
    int first, vector;        /* positions in axes; first == vector: no serial axes */
    const struct dim *block;  /* elements of axis `first` a slice does; NULL: all */
    int64_t chunk;            /* of the vector axis; 0: all */
};

#define WORK 1024       /* elements a slice does at least, if there are as many */
#define REDUCED_WORK 64 /* the same when each is a reduction: they are the parallelism there is */
#define MAX_UNROLLED 16

static bool has_op(const struct lower_ctx *l, enum ir_opcode code)
{
    for (const struct ir_op *op = l->body->first; op; op = op->next)
        if (op->code == code) return true;
    return false;
}

/* The vector axis: tiny last axes leave it to the one before when a transpose makes that one contiguous somewhere, or when they
 * are too short for any vector. */
static int choose_vector(const struct lower_ctx *l, const struct walk *w, const struct ir_type *t)
{
    int v = w->n - 1;
    int64_t unrolled = 1;
    if (l->anchor) return v;
    while (v > 0) {
        const struct dim *d = t->dims[w->axes[v]];
        if (!dim_is_const(d) || d->value >= EXPR_TINY || unrolled * d->value > MAX_UNROLLED) break;
        if (d->value * unrolled > 3 && !has_op(l, IR_OP_TRANSPOSE)) break;
        unrolled *= d->value;
        v--;
    }
    const struct dim *d = t->dims[w->axes[v]];
    return dim_is_const(d) && d->value < EXPR_TINY ? w->n - 1 : v; /* all are tiny */
}

static void plan_walk(struct lower_ctx *l, const struct ir_type *t, struct walk *w)
{
    struct dim_ctx *dc = l->m->dims;
    *w = (struct walk){.n = 0};
    for (int i = 0; i < t->rank; i++)
        if (!dim_is(t->dims[i], 1)) w->axes[w->n++] = i;
    if (!w->n) return;
    if (l->level->gpu) { /* a thread an element: neighbours in a warp are neighbours in memory */
        w->first = w->vector = w->n;
        return;
    }
    w->first = w->vector = choose_vector(l, w, t);
    const struct dim *inner = dim_const(dc, 1);
    for (int i = w->vector; i < w->n; i++) inner = dim_mul(dc, inner, t->dims[w->axes[i]]);
    bool reduces = l->anchor && (ir_op_traits(l->anchor) & IR_T_RED);
    int64_t chunk = reduces ? REDUCED_WORK : CHUNK;
    if (t->dims[w->axes[w->vector]]->hi > chunk) w->chunk = chunk;
    if (l->anchor || inner->lo >= WORK || inner->lo < 1) return; /* an empty one has no number of blocks */
    while (w->first > 0 && dim_is_const(inner) && inner->value < WORK) {
        const struct dim *d = t->dims[w->axes[--w->first]];
        if (dim_is_const(d) && d->value * inner->value <= 2 * WORK) {
            inner = dim_mul(dc, inner, d);
            continue;
        }
        w->block = dim_const(dc, (WORK + inner->value - 1) / inner->value);
        return;
    }
    if (w->first == 0 || dim_is_const(inner) || w->first != w->vector) return;
    w->first--; /* symbolic rows: as many as make up the work */
    w->block = dim_ceildiv(dc, dim_const(dc, WORK), inner);
}

/* Dims whose product is the number of slices: outer axes, blocks, chunks. */
static int slice_dims(struct lower_ctx *l, const struct ir_type *t, const struct walk *w, const struct dim **dims)
{
    struct dim_ctx *dc = l->m->dims;
    int n = 0;
    for (int i = 0; i < w->first; i++) dims[n++] = t->dims[w->axes[i]];
    if (w->block) dims[n++] = dim_ceildiv(dc, t->dims[w->axes[w->first]], w->block);
    if (w->chunk) dims[n++] = dim_ceildiv(dc, t->dims[w->axes[w->vector]], dim_const(dc, w->chunk));
    return n;
}

/* A loop over the part number `part` (of `size` elements each) of an axis of d elements; part NULL: over all. */
static struct lp_op *part_loop(struct lower_ctx *l, enum lp_loop_kind kind, const struct dim *d, struct lp_value *part, struct lp_value *size)
{
    struct expr_ctx *e = &l->e;
    struct lp_value *lo = e->zero, *hi = expr_dim(e, d);
    if (part) {
        lo = expr_imul(e, part, size);
        hi = lp_binary(&e->b, LP_OP_MIN, lp_binary(&e->b, LP_OP_ADD, lo, size), hi);
    }
    return expr_for_begin(e, kind, lo, hi, 1, 0, NULL);
}

/* One result, the part of it that slice number `slice` of its own does. */
static void lower_result(struct lower_ctx *l, int i, struct lp_value *slice, const struct walk *w)
{
    struct expr_ctx *e = &l->e;
    struct ir_value *root = ir_operand(l->yield, i);
    const struct ir_type *t = &root->type;
    struct lp_value *idx[IR_MAX_RANK] = {NULL}, *at[IR_MAX_RANK + 2];
    for (int k = 0; k < t->rank; k++) idx[k] = e->zero;
    const struct dim *dims[IR_MAX_RANK + 2];
    int n = slice_dims(l, t, w, dims), n_loops = 0;
    expr_delinear(e, slice, n, dims, at);
    for (int k = 0; k < w->first && k < w->n; k++) idx[w->axes[k]] = at[k];
    struct lp_value *chunk = w->chunk ? at[n - 1] : NULL, *block = w->block ? at[w->first] : NULL;
    struct lp_op *loops[IR_MAX_RANK];
    for (int k = w->first; k < w->n; k++) {
        const struct dim *d = t->dims[w->axes[k]];
        enum lp_loop_kind kind = k < w->vector ? LP_LOOP_SERIAL : k == w->vector ? LP_LOOP_VECTOR : LP_LOOP_UNROLL;
        bool first = block && k == w->first, cut = chunk && k == w->vector;
        struct lp_value *size = first ? expr_dim(e, w->block) : cut ? lp_index(&e->b, w->chunk) : NULL;
        loops[n_loops] = part_loop(l, kind, d, first ? block : cut ? chunk : NULL, size);
        idx[w->axes[k]] = loops[n_loops++]->regions[0]->args[0];
    }
    lp_store(&e->b, lower_result_buf(l, i), idx, expr_at(e, root, idx));
    while (n_loops) expr_for_end(e, loops[--n_loops], NULL);
}

static bool same_shape(const struct ir_type *a, const struct ir_type *b)
{
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i]) return false;
    return true;
}

static const struct dim *product(struct lower_ctx *l, int n, const struct dim *const *dims)
{
    const struct dim *p = dim_const(l->m->dims, 1);
    for (int i = 0; i < n; i++) p = dim_mul(l->m->dims, p, dims[i]);
    return p;
}

/* Results of different shapes: each has a range of slices of its own, one behind the other. */
static void lower_ranges(struct lower_ctx *l)
{
    struct expr_ctx *e = &l->e;
    const struct dim *start = dim_const(l->m->dims, 0), *dims[IR_MAX_RANK + 2];
    for (int i = 0; i < l->yield->n_operands; i++) {
        const struct ir_type *t = &ir_operand(l->yield, i)->type;
        struct walk w;
        plan_walk(l, t, &w);
        const struct dim *n = product(l, slice_dims(l, t, &w, dims), dims);
        struct lp_value *slice = lp_binary(&e->b, LP_OP_SUB, lower_slice(l), expr_dim(e, start));
        struct lp_op *branch = lp_if_begin(&e->b, expr_in_bounds(e, slice, n), 0, NULL);
        size_t mark = expr_scope_push(e);
        lower_result(l, i, slice, &w);
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
        const struct dim *dims[IR_MAX_RANK + 2];
        struct walk w;
        plan_walk(l, t, &w);
        lower_set_slices(l, product(l, slice_dims(l, t, &w, dims), dims));
        for (int i = 0; i < l->yield->n_operands; i++) lower_result(l, i, lower_slice(l), &w);
    } else {
        lower_ranges(l);
    }
    l->k->schedule = l->anchor ? "generic" : "pointwise";
    return LOWER_DONE;
}
