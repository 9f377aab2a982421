// SPDX-License-Identifier: Apache-2.0
/*
 * State of language models: kv_write and attention over a paged cache.
 *
 * Attention: a slice is one row of the batch and one query head. It walks the pages of its sequence in order, keeping the
 * running maximum, sum and weighted values (online softmax: Milakov and Gimelshein 2018; FlashAttention, Dao et al. 2022). Pages
 * start at absolute multiples of P and each is reduced in one fixed order, so a row's bits do not depend on the
 * batch, on chunks of the prompt, or on threads.
 */
#include <math.h>

#include "passes/lower.h"

struct attention {
    struct lower_ctx *l;
    struct expr_ctx *e;
    const struct ir_op *op;
    int q, k, v, positions, seq_of, table, out; /* buffers */
    int s_buf, acc_buf;                         /* stack: scores of a page, weighted values */
    int64_t page, group, d, dv;                 /* group: query heads a kv head */
    int dw, vw;                                 /* vector widths: d and dv rounded up to powers of two */
    struct lp_value *row, *head, *kv_head, *pos, *seq, *first; /* first: least visible position */
};

static int pow2_at_least(int64_t n)
{
    int p = 1;
    while (p < n) p *= 2;
    return p;
}

static struct lp_value *f32(struct attention *a, double v) { return lp_const_f(&a->e->b, lp_scalar(DT_F32), v); }

static struct lp_value *vector_at(struct attention *a, int buf, struct lp_value *const *idx, int rank, int width, int64_t n)
{
    struct lp_builder *b = &a->e->b;
    struct lp_value *ncols = width != n ? lp_index(b, n) : NULL;
    return lp_cast(b, lp_load_tile(b, buf, idx, 1, width, 0, rank - 1, NULL, ncols), DT_F32);
}

static struct lp_value *load_i64(struct attention *a, int buf, struct lp_value *i)
{
    struct lp_value *idx[1] = {i};
    return lp_cast(&a->e->b, lp_load(&a->e->b, buf, idx), DT_I64);
}

/* Scaled score of position j of a page, -inf where the row does not see it. */
static struct lp_value *score(struct attention *a, struct lp_value *q, struct lp_value *page, struct lp_value *j, struct lp_value *p)
{
    struct lp_builder *b = &a->e->b;
    struct lp_value *idx[4] = {page, j, a->kv_head, a->e->zero};
    struct lp_value *k = vector_at(a, a->k, idx, 4, a->dw, a->d);
    struct lp_value *s = lp_reduce(b, LP_RED_ADD, lp_binary(b, LP_OP_MUL, q, k));
    s = lp_binary(b, LP_OP_MUL, s, f32(a, ir_attr_float(a->op, "scale", 1)));
    double cap = ir_attr_float(a->op, "softcap", 0);
    if (cap > 0) s = lp_binary(b, LP_OP_MUL, lp_unary(b, LP_OP_TANH, lp_binary(b, LP_OP_MUL, s, f32(a, 1 / cap))), f32(a, cap));
    struct lp_value *seen = lp_binary(b, LP_OP_AND, lp_binary(b, LP_OP_LE, p, a->pos), lp_binary(b, LP_OP_GE, p, a->first));
    return lp_select(b, seen, s, f32(a, -(double)INFINITY));
}

/* acc = acc * c, then + p[j] * v[j] over the page's positions [0, count). */
static void add_values(struct attention *a, struct lp_value *page, struct lp_value *count, struct lp_value *c)
{
    struct expr_ctx *e = a->e;
    struct lp_builder *b = &e->b;
    struct lp_value *zero[1] = {e->zero};
    struct lp_value *acc = lp_load_tile(b, a->acc_buf, zero, 1, a->vw, 0, 0, NULL, NULL);
    acc = lp_binary(b, LP_OP_MUL, acc, c);
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, count, 1, 1, &acc);
    struct lp_value *j = loop->regions[0]->args[0], *idx[4] = {page, j, a->kv_head, e->zero}, *at[1] = {j};
    struct lp_value *v = vector_at(a, a->v, idx, 4, a->vw, a->dv), *p = lp_load(b, a->s_buf, at);
    struct lp_value *next = lp_fma(b, p, v, loop->regions[0]->args[1]);
    expr_for_end(e, loop, &next);
    lp_store_tile(b, a->acc_buf, zero, loop->results[0], 0, 0, NULL, NULL);
}

/* One page: scores, their maximum, exponentials, sum, values. carry: m (running maximum), l (running sum). */
static void one_page(struct attention *a, struct lp_value *q, struct lp_value *page_no, struct lp_value **carry)
{
    struct expr_ctx *e = a->e;
    struct lp_builder *b = &e->b;
    struct lp_value *entry[2] = {a->seq, page_no};
    struct lp_value *page = lp_cast(b, lp_load(b, a->table, entry), DT_I64);
    struct lp_value *start = lp_binary(b, LP_OP_MUL, page_no, lp_index(b, a->page));
    struct lp_value *count = lp_binary(b, LP_OP_SUB, lp_binary(b, LP_OP_ADD, a->pos, e->one), start);
    count = lp_binary(b, LP_OP_MIN, count, lp_index(b, a->page));
    struct lp_op *fill = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, lp_index(b, a->page), 1, 0, NULL);
    struct lp_value *at[1] = {fill->regions[0]->args[0]};
    struct lp_value *j = lp_binary(b, LP_OP_MIN, at[0], lp_binary(b, LP_OP_SUB, count, e->one)); /* never past what was written */
    struct lp_value *p = lp_binary(b, LP_OP_ADD, start, at[0]);
    lp_store(b, a->s_buf, at, score(a, q, page, j, p));
    expr_for_end(e, fill, NULL);
    struct lp_value *zero[1] = {e->zero};
    int width = (int)a->page;
    struct lp_value *s = lp_load_tile(b, a->s_buf, zero, 1, width, 0, 0, NULL, NULL);
    struct lp_value *m = lp_binary(b, LP_OP_MAX, carry[0], lp_reduce(b, LP_RED_MAX, s));
    /* A page that a window hides wholly leaves m at -inf: count from 0 then, all its weights are 0. */
    struct lp_value *base = lp_select(b, lp_binary(b, LP_OP_EQ, m, f32(a, -(double)INFINITY)), f32(a, 0), m);
    struct lp_value *c = lp_unary(b, LP_OP_EXP, lp_binary(b, LP_OP_SUB, carry[0], base));
    struct lp_value *w = lp_unary(b, LP_OP_EXP, lp_binary(b, LP_OP_SUB, s, base));
    lp_store_tile(b, a->s_buf, zero, w, 0, 0, NULL, NULL);
    struct lp_value *l = lp_binary(b, LP_OP_ADD, lp_binary(b, LP_OP_MUL, carry[1], c), lp_reduce(b, LP_RED_ADD, w));
    add_values(a, page, count, c);
    carry[0] = m, carry[1] = l;
}

static void emit_row(struct attention *a)
{
    struct expr_ctx *e = a->e;
    struct lp_builder *b = &e->b;
    struct lp_value *qi[3] = {a->row, a->head, e->zero}, *zero[1] = {e->zero};
    struct lp_value *q = vector_at(a, a->q, qi, 3, a->dw, a->d);
    lp_store_tile(b, a->acc_buf, zero, lp_const_f(b, lp_vector(DT_F32, a->vw), 0), 0, 0, NULL, NULL);
    struct lp_value *lo = lp_binary(b, LP_OP_FLOORDIV, a->first, lp_index(b, a->page));
    struct lp_value *hi = lp_binary(b, LP_OP_FLOORDIV, lp_binary(b, LP_OP_ADD, a->pos, lp_index(b, a->page)), lp_index(b, a->page));
    struct lp_value *init[2] = {f32(a, -(double)INFINITY), f32(a, 0)};
    struct lp_op *pages = expr_for_begin(e, LP_LOOP_SERIAL, lo, hi, 1, 2, init);
    struct lp_value *carry[2] = {pages->regions[0]->args[1], pages->regions[0]->args[2]};
    one_page(a, q, pages->regions[0]->args[0], carry);
    expr_for_end(e, pages, carry);
    struct lp_value *sum = pages->results[1];
    struct lp_value *inv = lp_binary(b, LP_OP_DIV, f32(a, 1), lp_select(b, lp_binary(b, LP_OP_EQ, sum, f32(a, 0)), f32(a, 1), sum));
    struct lp_value *acc = lp_binary(b, LP_OP_MUL, lp_load_tile(b, a->acc_buf, zero, 1, a->vw, 0, 0, NULL, NULL), inv);
    struct lp_value *ncols = a->vw != a->dv ? lp_index(b, a->dv) : NULL;
    lp_store_tile(b, a->out, qi, lp_cast(b, acc, a->op->results[0].type.dtype), 0, 2, NULL, ncols);
}

static bool attention_shape(struct attention *a)
{
    const struct ir_type *qt = &ir_operand(a->op, 0)->type, *kt = &ir_operand(a->op, 1)->type, *ot = &a->op->results[0].type;
    const struct dim *fixed[] = {qt->dims[1], qt->dims[2], kt->dims[1], kt->dims[2], kt->dims[3], ot->dims[2]};
    for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
        if (!dim_is_const(fixed[i])) return false;
    a->page = kt->dims[1]->value, a->group = qt->dims[1]->value / kt->dims[2]->value;
    a->d = qt->dims[2]->value, a->dv = ot->dims[2]->value;
    a->dw = pow2_at_least(a->d), a->vw = pow2_at_least(a->dv);
    return (a->page & (a->page - 1)) == 0 && a->page <= 256 && a->dw <= 1024 && a->vw <= 1024;
}

enum lower_result lower_attention(struct lower_ctx *l)
{
    const struct ir_op *op = l->anchor;
    if (!op || op->code != IR_OP_PAGED_ATTENTION || ir_operand(l->yield, 0) != &op->results[0]) return LOWER_NOT_MINE;
    struct attention a = {.l = l, .e = &l->e, .op = op, .out = lower_result_buf(l, 0)};
    int *const bufs[] = {&a.q, &a.k, &a.v, &a.positions, &a.seq_of, &a.table};
    for (int i = 0; i < 6; i++)
        if ((*bufs[i] = lower_operand_of(l, ir_operand(op, i))) < 0) return LOWER_NOT_MINE;
    if (!attention_shape(&a)) return LOWER_NOT_MINE;
    struct expr_ctx *e = &l->e;
    struct lp_builder *b = &e->b;
    const struct ir_type *qt = &ir_operand(op, 0)->type;
    int64_t s_dims[] = {a.page}, acc_dims[] = {a.vw};
    a.s_buf = lp_add_stack(l->k, "scores", DT_F32, 1, s_dims);
    a.acc_buf = lp_add_stack(l->k, "values", DT_F32, 1, acc_dims);
    lower_set_slices(l, dim_mul(l->m->dims, qt->dims[0], qt->dims[1]));
    struct lp_value *coord[2];
    expr_delinear(e, lower_slice(l), 2, qt->dims, coord);
    a.row = coord[0], a.head = coord[1];
    a.kv_head = lp_binary(b, LP_OP_FLOORDIV, a.head, lp_index(b, a.group));
    a.pos = load_i64(&a, a.positions, a.row), a.seq = load_i64(&a, a.seq_of, a.row);
    int64_t window = ir_attr_int(op, "window", 0);
    a.first = e->zero;
    if (window > 0) a.first = lp_binary(b, LP_OP_MAX, e->zero, lp_binary(b, LP_OP_SUB, a.pos, lp_index(b, window - 1)));
    emit_row(&a);
    l->k->schedule = "attention";
    l->k->claim = 4; /* rows further on see more positions */
    return LOWER_DONE;
}

enum lower_result lower_kv_write(struct lower_ctx *l)
{
    const struct ir_op *op = l->anchor;
    if (!op || op->code != IR_OP_KV_WRITE) return LOWER_NOT_MINE;
    struct expr_ctx *e = &l->e;
    struct lp_builder *b = &e->b;
    const struct ir_value *state = ir_operand(op, 0), *rows = ir_operand(op, 1);
    const struct ir_type *st = &state->type, *rt = &rows->type;
    lower_set_slices(l, rt->dims[0]);
    struct lp_value *t = lower_slice(l), *slot_at[1] = {t}, *page = expr_dim(e, st->dims[1]);
    struct lp_value *slot = lp_cast(b, expr_at(e, ir_operand(op, 2), slot_at), DT_I64);
    struct lp_op *branch = lp_if_begin(b, lp_binary(b, LP_OP_GE, slot, e->zero), 0, NULL);
    size_t mark = expr_scope_push(e);
    struct lp_value *to[4] = {lp_binary(b, LP_OP_FLOORDIV, slot, page), lp_binary(b, LP_OP_MOD, slot, page)}, *from[3] = {t};
    struct lp_op *heads = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, expr_dim(e, rt->dims[1]), 1, 0, NULL);
    to[2] = from[1] = heads->regions[0]->args[0];
    struct lp_op *elems = expr_for_begin(e, LP_LOOP_VECTOR, e->zero, expr_dim(e, rt->dims[2]), 1, 0, NULL);
    to[3] = from[2] = elems->regions[0]->args[0];
    lp_store(b, lower_result_buf(l, 0), to, lp_cast(b, expr_at(e, rows, from), st->dtype));
    expr_for_end(e, elems, NULL);
    expr_for_end(e, heads, NULL);
    expr_scope_pop(e, mark);
    lp_if_else(b, branch, NULL);
    lp_if_end(b, branch, NULL);
    l->k->schedule = "kv-write";
    return LOWER_DONE;
}
