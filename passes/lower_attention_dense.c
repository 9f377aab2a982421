// SPDX-License-Identifier: Apache-2.0
/*
 * Attention of passes/attention.h on CPUs: a slice is some query rows of one head, which see blocks of KEYS keys one after the
 * other with a running maximum, sum and weighted values (online softmax: Milakov and Gimelshein 2018; FlashAttention, Dao et al. 2022).
 * Scores never leave the first-level cache.
 *
 * Query rows are the lanes of vectors: scores are kept as [keys, rows], results as [E, rows]. So k and v are read where they lie, in
 * any order of axes, an element at a time for all lanes; maxima and sums need no lanes' exchange; only q and the results, which are
 * few, change their order. The transposes in front and behind are the places that q, k, v and the result are addressed by.
 *
 * A row's bits do not depend on slices or threads: each lane does the same for every key, in order. A row whose scores are all -inf, or
 * that holds a NaN, gives NaN as the plain ops do; no keys at all give zeros.
 */
#include <math.h>
#include <string.h>

#include "passes/attention.h"
#include "passes/lower.h"

#define KEYS 96 /* a multiple of every MR */

/* An operand where it lies: which of the logical value's axes each of its own is. */
struct view {
    int buf, rank, axis[IR_MAX_RANK];
    const struct ir_type *type;
};

struct dense {
    struct lower_ctx *l;
    struct expr_ctx *e;
    struct attention_ops ops;
    const struct ir_value *scaled; /* scores behind the factors that q takes */
    double scale;
    struct view q, k, v, out;
    bool trans_b;
    int rank; /* of the scores */
    int64_t d, dv;
    const struct dim *n_rows, *n_keys;
    int mr, width, q_buf, s_buf, acc_buf, inv_buf; /* width: rows of a slice */
    struct lp_value *at[IR_MAX_RANK];              /* coordinates of the first score */
    struct lp_value *there;                        /* rows of the slice, NULL: all */
};

static struct lp_value *f32(const struct dense *a, double v) { return lp_const_f(&a->e->b, lp_scalar(DT_F32), v); }

static struct lp_value *add(const struct dense *a, struct lp_value *x, struct lp_value *y) { return lp_binary(&a->e->b, LP_OP_ADD, x, y); }

static struct lp_value *sub(const struct dense *a, struct lp_value *x, struct lp_value *y) { return lp_binary(&a->e->b, LP_OP_SUB, x, y); }

/* ---- places ---- */

static bool view_of(const struct dense *a, const struct ir_value *v, struct view *out)
{
    int rank = v->type.rank, axis[IR_MAX_RANK];
    for (int i = 0; i < rank; i++) axis[i] = i;
    for (; v->def && v->def->code == IR_OP_TRANSPOSE; v = ir_operand(v->def, 0)) {
        int n, upper[IR_MAX_RANK];
        const int64_t *perm = ir_attr_ints(v->def, "perm", &n);
        for (int i = 0; i < rank; i++) upper[perm[i]] = axis[i];
        memcpy(axis, upper, sizeof axis);
    }
    *out = (struct view){.buf = lower_operand_of(a->l, v), .rank = rank, .type = &v->type};
    memcpy(out->axis, axis, sizeof axis);
    return out->buf >= 0;
}

static int axis_in(const struct view *v, int logical)
{
    for (int i = 0; i < v->rank; i++)
        if (v->axis[i] == logical) return i;
    return 0;
}

/* The buffer's indices for row and column of the operand's matrix of this slice's head. */
static void place(const struct dense *a, const struct view *v, struct lp_value *row, struct lp_value *col, struct lp_value **idx)
{
    for (int i = 0; i < v->rank; i++) {
        int axis = v->axis[i];
        if (axis >= v->rank - 2) idx[i] = axis == v->rank - 1 ? col : row;
        else idx[i] = dim_is(v->type->dims[i], 1) ? a->e->zero : a->at[axis + a->rank - v->rank];
    }
}

/* ---- q ---- */

/* q of the slice's rows, scaled, as [D, rows]; rows that are not there are 0. */
static void stage_q(struct dense *a)
{
    struct expr_ctx *e = a->e;
    struct lp_builder *b = &e->b;
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, lp_index(b, a->d), 1, 0, NULL);
    struct lp_value *d = loop->regions[0]->args[0], *idx[IR_MAX_RANK], *to[2] = {d, e->zero};
    place(a, &a->q, a->at[a->rank - 2], d, idx);
    struct lp_value *q = lp_load_tile(b, a->q.buf, idx, 1, a->width, 0, axis_in(&a->q, a->q.rank - 2), NULL, a->there);
    if (a->scale != 1) q = lp_binary(b, LP_OP_MUL, q, f32(a, a->scale));
    lp_store_tile(b, a->q_buf, to, q, 0, 1, NULL, NULL);
    expr_for_end(e, loop, NULL);
}

/* ---- scores ---- */

/* Scores of keys [first + i, + n) to rows [i, + n) of the buffer; the maxima with them. */
static struct lp_value *score_tile(struct dense *a, struct lp_value *first, struct lp_value *i, int n, struct lp_value *max)
{
    struct expr_ctx *e = a->e;
    struct lp_builder *b = &e->b;
    struct lp_value *key = add(a, first, i), *acc = lp_const_f(b, lp_tile(DT_F32, n, a->width), 0), *idx[IR_MAX_RANK], *to[2] = {i, e->zero};
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, lp_index(b, a->d), 1, 1, &acc);
    struct lp_value *d = loop->regions[0]->args[0], *from[2] = {d, e->zero};
    place(a, &a->k, a->trans_b ? key : d, a->trans_b ? d : key, idx);
    int key_axis = axis_in(&a->k, a->k.rank - (a->trans_b ? 2 : 1));
    struct lp_value *k = lp_load_tile(b, a->k.buf, idx, n, 1, key_axis, a->k.rank - 1, NULL, NULL);
    struct lp_value *next = lp_mma(b, loop->regions[0]->args[1], k, lp_load_tile(b, a->q_buf, from, 1, a->width, 0, 1, NULL, NULL), 1);
    expr_for_end(e, loop, &next);
    memcpy(idx, a->at, sizeof idx);
    idx[a->rank - 1] = key;
    struct lp_value *s = lower_tile_between(a->l, a->scaled, loop->results[0], ir_operand(a->ops.softmax, 0), idx, a->rank - 1, a->rank - 2, NULL, a->there);
    lp_store_tile(b, a->s_buf, to, s, 0, 1, NULL, NULL);
    for (int r = 0; r < n; r++) { /* a NaN, which loses here, makes the sum one */
        struct lp_value *x = n > 1 ? lp_extract(b, s, r) : s;
        max = lp_select(b, lp_binary(b, LP_OP_GT, x, max), x, max);
    }
    return max;
}

/* Whole tiles; the last one begins where it ends with the keys, and makes some scores again. */
static struct lp_value *many_scores(struct dense *a, struct lp_value *first, struct lp_value *count, struct lp_value *max)
{
    struct expr_ctx *e = a->e;
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, count, a->mr, 1, &max);
    struct lp_value *i = lp_binary(&e->b, LP_OP_MIN, loop->regions[0]->args[0], sub(a, count, lp_index(&e->b, a->mr)));
    struct lp_value *next = score_tile(a, first, i, a->mr, loop->regions[0]->args[1]);
    expr_for_end(e, loop, &next);
    return loop->results[0];
}

static struct lp_value *few_scores(struct dense *a, struct lp_value *first, struct lp_value *count, struct lp_value *max)
{
    struct lp_op *loop = expr_for_begin(a->e, LP_LOOP_SERIAL, a->e->zero, count, 1, 1, &max);
    struct lp_value *next = score_tile(a, first, loop->regions[0]->args[0], 1, loop->regions[0]->args[1]);
    expr_for_end(a->e, loop, &next);
    return loop->results[0];
}

static struct lp_value *scores(struct dense *a, struct lp_value *first, struct lp_value *count, struct lp_value *max)
{
    struct expr_ctx *e = a->e;
    struct lp_builder *b = &e->b;
    if (dim_is_const(a->n_keys)) { /* of every block? */
        int64_t n = a->n_keys->value, last = n % KEYS ? n % KEYS : KEYS;
        if (last >= a->mr) return many_scores(a, first, count, max);
        if (n < a->mr) return few_scores(a, first, count, max);
    }
    struct lp_op *many = lp_if_begin(b, lp_binary(b, LP_OP_GE, count, lp_index(b, a->mr)), 1, &max->type);
    size_t mark = expr_scope_push(e);
    struct lp_value *m = many_scores(a, first, count, max);
    expr_scope_pop(e, mark);
    lp_if_else(b, many, &m);
    mark = expr_scope_push(e);
    m = few_scores(a, first, count, max);
    expr_scope_pop(e, mark);
    lp_if_end(b, many, &m);
    return many->results[0];
}

/* exp(score - base) in place of the scores; their sums. */
static struct lp_value *weights(struct dense *a, struct lp_value *count, struct lp_value *base)
{
    struct expr_ctx *e = a->e;
    struct lp_builder *b = &e->b;
    struct lp_value *sum = lp_const_f(b, lp_vector(DT_F32, a->width), 0);
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, count, 1, 1, &sum);
    struct lp_value *at[2] = {loop->regions[0]->args[0], e->zero};
    struct lp_value *w = lp_unary(b, LP_OP_EXP, sub(a, lp_load_tile(b, a->s_buf, at, 1, a->width, 0, 1, NULL, NULL), base));
    lp_store_tile(b, a->s_buf, at, w, 0, 1, NULL, NULL);
    sum = add(a, loop->regions[0]->args[1], w);
    expr_for_end(e, loop, &sum);
    return loop->results[0];
}

/* ---- values ---- */

/* Elements [from, from + n) of E: what is there times `factor`, and the block's weighted values. */
static void value_tile(struct dense *a, struct lp_value *first, struct lp_value *count, struct lp_value *factor, int64_t from, int n)
{
    struct expr_ctx *e = a->e;
    struct lp_builder *b = &e->b;
    struct lp_value *acc = lp_const_f(b, lp_tile(DT_F32, n, a->width), 0), *idx[IR_MAX_RANK], *to[2] = {lp_index(b, from), e->zero};
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, count, 1, 1, &acc);
    struct lp_value *i = loop->regions[0]->args[0], *at[2] = {i, e->zero};
    place(a, &a->v, add(a, first, i), lp_index(b, from), idx);
    struct lp_value *v = lp_load_tile(b, a->v.buf, idx, n, 1, axis_in(&a->v, a->v.rank - 1), a->v.rank - 1, NULL, NULL);
    struct lp_value *next = lp_mma(b, loop->regions[0]->args[1], v, lp_load_tile(b, a->s_buf, at, 1, a->width, 0, 1, NULL, NULL), 1);
    expr_for_end(e, loop, &next);
    struct lp_value *old = lp_load_tile(b, a->acc_buf, to, n, a->width, 0, 1, NULL, NULL);
    lp_store_tile(b, a->acc_buf, to, add(a, lp_binary(b, LP_OP_MUL, old, factor), loop->results[0]), 0, 1, NULL, NULL);
}

static void values(struct dense *a, struct lp_value *first, struct lp_value *count, struct lp_value *factor)
{
    int64_t tiles = (a->dv + a->mr - 1) / a->mr;
    for (int64_t t = 0, from = 0; t < tiles; t++) {
        int n = (int)((a->dv - from + tiles - t - 1) / (tiles - t));
        value_tile(a, first, count, factor, from, n);
        from += n;
    }
}

static void clear_values(struct dense *a)
{
    struct expr_ctx *e = a->e;
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, lp_index(&e->b, a->dv), 1, 0, NULL);
    struct lp_value *at[2] = {loop->regions[0]->args[0], e->zero};
    lp_store_tile(&e->b, a->acc_buf, at, lp_const_f(&e->b, lp_vector(DT_F32, a->width), 0), 0, 1, NULL, NULL);
    expr_for_end(e, loop, NULL);
}

/* ---- results ---- */

/* Row by row, over their sums, in pieces of as many elements as a vector has, then halves. */
static void results(struct dense *a, struct lp_value *sum)
{
    struct expr_ctx *e = a->e;
    struct lp_builder *b = &e->b;
    struct lp_value *zero[1] = {e->zero}, *idx[IR_MAX_RANK];
    lp_store_tile(b, a->inv_buf, zero, lp_binary(b, LP_OP_DIV, f32(a, 1), sum), 0, 0, NULL, NULL);
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, a->there ? a->there : lp_index(b, a->width), 1, 0, NULL);
    struct lp_value *i = loop->regions[0]->args[0], *inv = lp_load(b, a->inv_buf, &i), *row = add(a, a->at[a->rank - 2], i);
    int64_t most = a->l->level->vector_bytes / 4;
    for (int64_t from = 0, n; from < a->dv; from += n) {
        for (n = most; n > a->dv - from;) n /= 2;
        struct lp_value *at[2] = {lp_index(b, from), i};
        struct lp_value *v = lp_binary(b, LP_OP_MUL, lp_load_tile(b, a->acc_buf, at, 1, (int)n, 1, 0, NULL, NULL), inv);
        place(a, &a->out, row, at[0], idx);
        lp_store_tile(b, a->out.buf, idx, v, 0, axis_in(&a->out, a->rank - 1), NULL, NULL);
    }
    expr_for_end(e, loop, NULL);
}

/* ---- slices ---- */

static void emit_rows(struct dense *a)
{
    struct expr_ctx *e = a->e;
    struct lp_builder *b = &e->b;
    struct lp_type row = lp_vector(DT_F32, a->width);
    struct lp_value *n = expr_dim(e, a->n_keys), *none = f32(a, -(double)INFINITY);
    stage_q(a);
    clear_values(a);
    struct lp_value *carry[2] = {lp_const_f(b, row, -(double)INFINITY), lp_const_f(b, row, 0)};
    if (a->n_keys->lo < 1) { /* nothing over one */
        struct lp_value *no_keys = lp_binary(b, LP_OP_EQ, n, e->zero);
        carry[1] = lp_splat(b, lp_select(b, no_keys, f32(a, 1), f32(a, 0)), 1, a->width);
    }
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, n, KEYS, 2, carry);
    struct lp_value *first = loop->regions[0]->args[0], *old = loop->regions[0]->args[1], *sum = loop->regions[0]->args[2];
    struct lp_value *count = lp_binary(b, LP_OP_MIN, sub(a, n, first), lp_index(b, KEYS));
    struct lp_value *max = scores(a, first, count, old);
    /* Where all so far is -inf, weights are 0 and count from 0. */
    struct lp_value *base = lp_select(b, lp_binary(b, LP_OP_EQ, max, none), f32(a, 0), max);
    struct lp_value *factor = lp_unary(b, LP_OP_EXP, sub(a, old, base));
    carry[1] = add(a, lp_binary(b, LP_OP_MUL, sum, factor), weights(a, count, base));
    carry[0] = max;
    values(a, first, count, factor);
    expr_for_end(e, loop, carry);
    results(a, loop->results[1]);
}

/* The rows from at[rank - 2] on; those of a block that is not full have half a block's vectors where these suffice. */
static void emit_block(struct dense *a, int lanes)
{
    struct expr_ctx *e = a->e;
    struct lp_builder *b = &e->b;
    int wide = a->width;
    if (dim_is_const(a->n_rows) && a->n_rows->value % wide == 0) {
        emit_rows(a);
        return;
    }
    struct lp_value *rest = sub(a, expr_dim(e, a->n_rows), a->at[a->rank - 2]);
    if (wide == lanes) {
        a->there = lp_binary(b, LP_OP_MIN, rest, lp_index(b, wide));
        emit_rows(a);
        return;
    }
    struct lp_op *narrow = lp_if_begin(b, lp_binary(b, LP_OP_LE, rest, lp_index(b, lanes)), 0, NULL);
    size_t mark = expr_scope_push(e);
    a->width = lanes, a->there = rest;
    emit_rows(a);
    expr_scope_pop(e, mark);
    lp_if_else(b, narrow, NULL);
    mark = expr_scope_push(e);
    a->width = wide, a->there = lp_binary(b, LP_OP_MIN, rest, lp_index(b, wide));
    emit_rows(a);
    expr_scope_pop(e, mark);
    lp_if_end(b, narrow, NULL);
}

/* ---- setup ---- */

static bool factor_of(const struct ir_op *op, const struct ir_value *v, double *scale)
{
    if ((op->code != IR_OP_MUL && op->code != IR_OP_DIV) || (op->code == IR_OP_DIV && ir_operand(op, 0) != v)) return false;
    const struct ir_value *other = ir_operand(op, ir_operand(op, 0) == v ? 1 : 0);
    const struct ir_const *c = ir_value_const(other);
    int64_t n;
    double x;
    if (other == v || !c || c->type.dtype != DT_F32 || !ir_type_static_elems(&c->type, &n) || n != 1 || !ir_const_get_float(c, 0, &x)) return false;
    *scale = op->code == IR_OP_MUL ? *scale * x : *scale / x;
    return fabs(*scale) > 0x1p-30 && fabs(*scale) < 0x1p30;
}

/* A constant factor of all scores is one of q. */
static void take_scale(struct dense *a)
{
    double scale = 1;
    a->scale = 1, a->scaled = &a->ops.qk->results[0];
    while (a->scaled != ir_operand(a->ops.softmax, 0) && ir_value_has_one_use(a->scaled) && factor_of(a->scaled->uses->user, a->scaled, &scale)) {
        a->scaled = &a->scaled->uses->user->results[0];
        a->scale = (double)(float)scale;
    }
}

static bool setup(struct dense *a)
{
    struct lower_ctx *l = a->l;
    struct ir_op *softmax = NULL;
    if (!l->anchor || l->anchor->code != IR_OP_MATMUL || l->yield->n_operands != 1) return false;
    for (struct ir_op *op = l->body->first; op; op = op->next)
        if (op->code == IR_OP_SOFTMAX) softmax = op;
    if (!softmax || !attention_match(softmax, &a->ops) || a->ops.root != ir_operand(l->yield, 0) || a->ops.pv != l->anchor) return false;
    const struct ir_op *qk = a->ops.qk;
    if (!view_of(a, ir_operand(qk, 0), &a->q) || !view_of(a, ir_operand(qk, 1), &a->k) || !view_of(a, ir_operand(l->anchor, 1), &a->v)) return false;
    const struct ir_type *s = &qk->results[0].type, *q = &ir_operand(qk, 0)->type;
    a->rank = s->rank, a->trans_b = ir_attr_int(qk, "trans_b", 0);
    a->n_rows = s->dims[s->rank - 2], a->n_keys = s->dims[s->rank - 1];
    a->d = q->dims[q->rank - 1]->value, a->dv = l->anchor->results[0].type.dims[s->rank - 1]->value;
    a->out = (struct view){.buf = lower_result_buf(l, 0), .rank = s->rank, .type = &a->ops.root->type};
    int n;
    const int64_t *perm = a->ops.root->def == l->anchor ? NULL : ir_attr_ints(a->ops.root->def, "perm", &n);
    for (int i = 0; i < s->rank; i++) a->out.axis[i] = perm ? (int)perm[i] : i;
    take_scale(a);
    return true;
}

enum lower_result lower_attention_dense(struct lower_ctx *l)
{
    struct dense a = {.l = l, .e = &l->e};
    if (!setup(&a)) return LOWER_NOT_MINE;
    struct dim_ctx *dc = l->m->dims;
    const struct ir_type *s = &a.ops.qk->results[0].type;
    int lanes = l->level->vector_bytes / 4;
    a.mr = l->level->n_vector_regs >= 32 ? 12 : 6;
    a.width = dim_is_const(a.n_rows) && a.n_rows->value <= lanes ? lanes : 2 * lanes;
    int64_t q_dims[] = {a.d, a.width}, s_dims[] = {KEYS, a.width}, acc_dims[] = {a.dv, a.width}, inv_dims[] = {a.width};
    a.q_buf = lp_add_stack(l->k, "q", DT_F32, 2, q_dims), a.s_buf = lp_add_stack(l->k, "scores", DT_F32, 2, s_dims);
    a.acc_buf = lp_add_stack(l->k, "values", DT_F32, 2, acc_dims), a.inv_buf = lp_add_stack(l->k, "inverse", DT_F32, 1, inv_dims);
    const struct dim *axes[IR_MAX_RANK], *slices = dim_const(dc, 1);
    for (int i = 0; i < a.rank - 1; i++) axes[i] = i < a.rank - 2 ? s->dims[i] : dim_ceildiv(dc, a.n_rows, dim_const(dc, a.width));
    for (int i = 0; i < a.rank - 1; i++) slices = dim_mul(dc, slices, axes[i]);
    lower_set_slices(l, slices);
    expr_delinear(a.e, lower_slice(l), a.rank - 1, axes, a.at);
    a.at[a.rank - 2] = lp_binary(&a.e->b, LP_OP_MUL, a.at[a.rank - 2], lp_index(&a.e->b, a.width));
    emit_block(&a, lanes);
    l->k->schedule = "attention";
    return LOWER_DONE;
}
