// SPDX-License-Identifier: Apache-2.0
/*
 * State of language models: kv_write and attention over a paged cache.
 *
 * Layout inside a page is ours to choose: the runtime moves whole pages. On CPUs K is kept transposed, [H, D, P], so that the scores of a
 * page are vectors over its positions; V as [P, H, D]. A state that serves as K and V at once stays [P, H, D]. Scales of
 * caches in blocks lie like their caches. Blocks are read as they are: the scores of a block's elements are summed before its scale
 * multiplies them; a block of V becomes f32 in registers (q * scale is exact there).
 *
 * Attention: a slice is one row of the batch and one kv head, with all its query heads as the rows of a tile. It walks the pages of its
 * sequence in order, keeping the running maximum, sum and weighted values (online softmax: Milakov and Gimelshein 2018;
 * FlashAttention, Dao et al. 2022). Pages start at absolute multiples of P and each is reduced in one fixed order, so a
 * row's bits do not depend on the batch, on chunks of the prompt, or on threads.
 */
#include <math.h>
#include <string.h>

#include "ir/smallfloat.h"
#include "passes/lower.h"
#include "passes/lower_attention.h"

struct attention {
    struct attention_cache c; /* first: what load_q is given leads to the rest */
    int p_buf;                /* stack: weights of a page, [heads, P] */
    int n_parts;
    struct attention_part part[ATTENTION_MAX_PARTS];
    struct lp_value *row, *pos, *seq, *first; /* first: least visible position */
};

/* ---- attention ---- */

/* q[row, heads, d] as a column, scaled. */
static struct lp_value *load_q(const struct attention_cache *c, const struct attention_step *s, struct lp_value *d)
{
    const struct attention *a = (const struct attention *)c;
    struct lp_builder *b = &c->e->b;
    struct lp_value *idx[3] = {a->row, c->head, d};
    struct lp_value *q = lp_cast(b, lp_load_tile(b, c->q, idx, s->rows, 1, 1, 2, NULL, NULL), DT_F32);
    return lp_binary(b, LP_OP_MUL, q, attention_f32(c, ir_attr_float(c->op, "scale", 1)));
}

/* Scores of all positions of a page: heads x P. */
static struct lp_value *scores(struct attention *a, struct lp_value *page, struct lp_value *page_no)
{
    struct attention_step s = {.load_q = load_q, .page = page, .position = a->c.e->zero, .rows = a->c.s.heads, .width = (int)a->c.s.page};
    return attention_seen(&a->c, attention_dots(&a->c, &s), page_no, a->pos);
}

/* acc + sum over the page's positions [0, count) of p[:, j] v[j, :], for each part. */
static void add_values(struct attention *a, struct lp_value *page, struct lp_value *count, struct lp_value **acc)
{
    struct expr_ctx *e = a->c.e;
    struct lp_builder *b = &e->b;
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, count, 1, a->n_parts, acc);
    struct lp_value *j = loop->regions[0]->args[0], *at[2] = {e->zero, j};
    struct lp_value *p = lp_load_tile(b, a->p_buf, at, a->c.s.heads, 1, 0, 1, NULL, NULL), *next[ATTENTION_MAX_PARTS];
    for (int i = 0; i < a->n_parts; i++) next[i] = lp_mma(b, loop->regions[0]->args[1 + i], p, attention_load_v(&a->c, page, j, &a->part[i], NULL), 1);
    expr_for_end(e, loop, next);
    for (int i = 0; i < a->n_parts; i++) acc[i] = loop->results[i];
}

/* One page. carry: running maximum and sum (a value a head), weighted values (heads x width, a tile a part). */
static void one_page(struct attention *a, struct lp_value *page_no, struct lp_value **carry)
{
    struct expr_ctx *e = a->c.e;
    struct lp_builder *b = &e->b;
    struct lp_value *zero[2] = {e->zero, e->zero}, *page = attention_page(&a->c, a->seq, page_no);
    struct lp_value *start = lp_binary(b, LP_OP_MUL, page_no, lp_index(b, a->c.s.page));
    struct lp_value *count = lp_binary(b, LP_OP_SUB, lp_binary(b, LP_OP_ADD, a->pos, e->one), start);
    count = lp_binary(b, LP_OP_MIN, count, lp_index(b, a->c.s.page));
    struct lp_value *s = scores(a, page, page_no);
    struct lp_value *m = lp_binary(b, LP_OP_MAX, carry[0], lp_reduce(b, LP_RED_MAX, s));
    /* A page that a window hides wholly leaves m at -inf: count from 0 then, all its weights are 0. */
    struct lp_value *base = lp_select(b, lp_binary(b, LP_OP_EQ, m, attention_f32(&a->c, -(double)INFINITY)), attention_f32(&a->c, 0), m);
    struct lp_value *c = lp_unary(b, LP_OP_EXP, lp_binary(b, LP_OP_SUB, carry[0], base));
    struct lp_value *w = lp_unary(b, LP_OP_EXP, lp_binary(b, LP_OP_SUB, s, base));
    lp_store_tile(b, a->p_buf, zero, w, 0, 1, NULL, NULL);
    carry[1] = lp_binary(b, LP_OP_ADD, lp_binary(b, LP_OP_MUL, carry[1], c), lp_reduce(b, LP_RED_ADD, w));
    for (int i = 0; i < a->n_parts; i++) carry[2 + i] = lp_binary(b, LP_OP_MUL, carry[2 + i], c);
    add_values(a, page, count, carry + 2);
    carry[0] = m;
}

static void emit_row(struct attention *a)
{
    struct expr_ctx *e = a->c.e;
    struct lp_builder *b = &e->b;
    struct lp_value *lo = lp_binary(b, LP_OP_FLOORDIV, a->first, lp_index(b, a->c.s.page));
    struct lp_value *hi = lp_binary(b, LP_OP_FLOORDIV, lp_binary(b, LP_OP_ADD, a->pos, lp_index(b, a->c.s.page)), lp_index(b, a->c.s.page));
    struct lp_type column = lp_tile(DT_F32, a->c.s.heads, 1);
    struct lp_value *carry[2 + ATTENTION_MAX_PARTS] = {lp_const_f(b, column, -(double)INFINITY), lp_const_f(b, column, 0)};
    for (int i = 0; i < a->n_parts; i++) carry[2 + i] = lp_const_f(b, lp_tile(DT_F32, a->c.s.heads, a->part[i].width), 0);
    struct lp_op *pages = expr_for_begin(e, LP_LOOP_SERIAL, lo, hi, 1, 2 + a->n_parts, carry);
    struct lp_value **args = pages->regions[0]->args;
    memcpy(carry, args + 1, sizeof *carry * (size_t)(2 + a->n_parts));
    one_page(a, args[0], carry);
    expr_for_end(e, pages, carry);
    struct lp_value *inv = attention_inverse(&a->c, pages->results[1]);
    for (int i = 0; i < a->n_parts; i++) {
        const struct attention_part *p = &a->part[i];
        int64_t n = a->c.s.dv - p->from < p->n ? a->c.s.dv - p->from : p->n;
        struct lp_value *v = lp_binary(b, LP_OP_MUL, pages->results[2 + i], inv), *idx[3] = {a->row, a->c.head, lp_index(b, p->from)};
        struct lp_value *ncols = p->width != n ? lp_index(b, n) : NULL;
        lp_store_tile(b, a->c.out, idx, lp_cast(b, v, a->c.op->results[0].type.dtype), 1, 2, NULL, ncols);
    }
}

enum lower_result lower_attention(struct lower_ctx *l)
{
    struct attention a = {0};
    if (!attention_cache_of(l, &a.c)) return LOWER_NOT_MINE;
    a.n_parts = attention_parts(&a.c.s, a.c.s.dv, a.part);
    if (!a.n_parts) return LOWER_NOT_MINE;
    const struct ir_op *op = l->anchor;
    struct expr_ctx *e = &l->e;
    struct lp_builder *b = &e->b;
    const struct ir_type *qt = &ir_operand(op, 0)->type, *kt = &ir_operand(op, 1)->type;
    int64_t p_dims[] = {a.c.s.heads, a.c.s.page};
    a.p_buf = lp_add_stack(l->k, "weights", DT_F32, 2, p_dims);
    const struct dim *axes[2] = {qt->dims[0], kt->dims[2]};
    lower_set_slices(l, dim_mul(l->m->dims, axes[0], axes[1]));
    struct lp_value *coord[2];
    expr_delinear(e, lower_slice(l), 2, axes, coord);
    a.row = coord[0], a.c.kv_head = coord[1];
    a.c.head = lp_binary(b, LP_OP_MUL, a.c.kv_head, lp_index(b, a.c.s.heads));
    a.pos = attention_load_i64(&a.c, a.c.positions, a.row), a.seq = attention_load_i64(&a.c, a.c.seq_of, a.row);
    a.first = attention_first_seen(&a.c, a.pos);
    emit_row(&a);
    l->k->schedule = "attention";
    l->k->claim = 1; /* rows further on see more positions */
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
    /* a row and head: lines of a transposed page are far apart, and nobody had them lately */
    const struct dim *axes[2] = {rt->dims[0], rt->dims[1]};
    struct lp_value *coord[2];
    lower_set_slices(l, dim_mul(l->m->dims, axes[0], axes[1]));
    expr_delinear(e, lower_slice(l), 2, axes, coord);
    if (!l->level->gpu && !attention_read_as_v(l, ir_operand(l->group, state->index))) attention_transpose_view(l, lower_result_buf(l, 0));
    struct lp_value *slot_at[1] = {coord[0]}, *page = expr_dim(e, st->dims[1]);
    struct lp_value *slot = lp_cast(b, expr_at(e, ir_operand(op, 2), slot_at), DT_I64);
    struct lp_op *branch = lp_if_begin(b, lp_binary(b, LP_OP_GE, slot, e->zero), 0, NULL);
    size_t mark = expr_scope_push(e);
    struct lp_value *to[4] = {lp_binary(b, LP_OP_FLOORDIV, slot, page), lp_binary(b, LP_OP_MOD, slot, page)}, *from[3] = {coord[0], coord[1]};
    to[2] = coord[1];
    struct lp_op *elems = expr_for_begin(e, LP_LOOP_VECTOR, e->zero, expr_dim(e, rt->dims[2]), 1, 0, NULL);
    to[3] = from[2] = elems->regions[0]->args[0];
    struct lp_value *x = expr_at(e, rows, from);
    if (st->dtype == DT_F8E4M3FN) {
        struct lp_type type = lp_scalar(rt->dtype);
        x = lp_binary(b, LP_OP_MAX, lp_binary(b, LP_OP_MIN, x, lp_const_f(b, type, F8E4M3FN_MAX)), lp_const_f(b, type, -F8E4M3FN_MAX));
    }
    lp_store(b, lower_result_buf(l, 0), to, lp_cast(b, x, st->dtype));
    expr_for_end(e, elems, NULL);
    expr_scope_pop(e, mark);
    lp_if_else(b, branch, NULL);
    lp_if_end(b, branch, NULL);
    l->k->schedule = "kv-write";
    return LOWER_DONE;
}
