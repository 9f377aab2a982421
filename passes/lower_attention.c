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

#define MAX_PARTS 64

/* Columns of V that are summed together: a block or, of nibbles, half of one. */
struct v_part {
    int64_t from, n; /* elements of a head */
    int width;       /* n rounded up to a power of two */
};

struct attention {
    struct lower_ctx *l;
    struct expr_ctx *e;
    const struct ir_op *op;
    int q, k, v, positions, seq_of, table, k_scale, v_scale, out; /* buffers */
    int p_buf;                                  /* stack: weights of a page, [heads, P] */
    int64_t page, d, dv;
    int heads;                                  /* query heads a kv head: the tile's rows */
    bool nibbles;                               /* both caches: two elements a byte */
    int64_t k_block, v_block;                   /* elements that share a scale; 0: the cache holds floats */
    int n_parts;
    struct v_part part[MAX_PARTS];
    struct lp_value *row, *head, *kv_head, *pos, *seq, *first; /* head: first of the group; first: least visible position */
};

/* ---- layout of states ---- */

/* The function's input that a state value goes back to. */
static const struct ir_value *state_root(const struct ir_value *v)
{
    while (v->def) {
        const struct ir_op *group = v->def, *op = group->regions[0]->first;
        while (op && !(ir_op_traits(op) & IR_T_STATE)) op = op->next;
        INFC_ASSERT(op != NULL);
        v = ir_operand(group, ir_operand(op, 0)->index);
    }
    return v;
}

/* Is the state behind v read as V by any attention? Then it keeps its natural layout. */
static bool read_as_v(const struct lower_ctx *l, const struct ir_value *v)
{
    const struct ir_value *root = state_root(v);
    for (const struct ir_op *g = l->group->block->first; g; g = g->next) {
        if (g->code != IR_OP_GROUP) continue;
        for (const struct ir_op *op = g->regions[0]->first; op; op = op->next)
            if (op->code == IR_OP_PAGED_ATTENTION)
                for (int i = 2; i < op->n_operands; i += 5) /* V and its scales */
                    if (state_root(ir_operand(g, ir_operand(op, i)->index)) == root) return true;
    }
    return false;
}

/* Views buffer buf ([NP, P, H, D]) so that positions lie side by side: D * H rows of P elements a page. */
static void transpose_view(struct lower_ctx *l, int buf)
{
    struct lp_buf *b = &l->k->bufs.v[buf];
    struct dim_ctx *dc = l->m->dims;
    const struct dim **strides = ARENA_ARRAY(&l->k->arena, const struct dim *, 4);
    strides[0] = b->strides[0];
    strides[1] = dim_const(dc, 1);
    strides[2] = dim_mul(dc, b->dims[3], b->dims[1]);
    strides[3] = b->dims[1];
    b->strides = strides;
}

/* ---- attention ---- */

static int pow2_at_least(int64_t n)
{
    int p = 1;
    while (p < n) p *= 2;
    return p;
}

static struct lp_value *f32(struct attention *a, double v) { return lp_const_f(&a->e->b, lp_scalar(DT_F32), v); }

static struct lp_value *load_i64(struct attention *a, int buf, struct lp_value *i)
{
    struct lp_value *idx[1] = {i};
    return lp_cast(&a->e->b, lp_load(&a->e->b, buf, idx), DT_I64);
}

/* q[row, heads, d] as a column, scaled. */
static struct lp_value *load_q(struct attention *a, struct lp_value *d)
{
    struct lp_builder *b = &a->e->b;
    struct lp_value *idx[3] = {a->row, a->head, d};
    struct lp_value *q = lp_cast(b, lp_load_tile(b, a->q, idx, a->heads, 1, 1, 2, NULL, NULL), DT_F32);
    return lp_binary(b, LP_OP_MUL, q, f32(a, ir_attr_float(a->op, "scale", 1)));
}

/* What bytes of a cache hold, as f32: numbers, or one in each half. */
enum half { ALL, LOW, HIGH };

static struct lp_value *stored(struct attention *a, struct lp_value *bytes, enum half half)
{
    struct lp_builder *b = &a->e->b;
    struct lp_type u8 = lp_scalar(DT_U8);
    if (half == ALL) return lp_cast(b, bytes, DT_F32);
    bytes = half == LOW ? lp_binary(b, LP_OP_AND, bytes, lp_const_i(b, u8, 15)) : lp_binary(b, LP_OP_SHR, bytes, lp_const_i(b, u8, 4));
    return lp_binary(b, LP_OP_SUB, lp_cast(b, bytes, DT_F32), f32(a, 8));
}

/* acc + q . k over elements [from, from + n) of a head, for all positions of a page; they lie in n (of nibbles n / 2) rows from `row`. */
static struct lp_value *add_scores(struct attention *a, struct lp_value *page, struct lp_value *from, struct lp_value *row, int64_t n,
                                   struct lp_value *acc)
{
    struct expr_ctx *e = a->e;
    struct lp_builder *b = &e->b;
    struct lp_value *rows = lp_index(b, a->nibbles ? n / 2 : n);
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, rows, 1, 1, &acc);
    struct lp_value *i = loop->regions[0]->args[0], *next = loop->regions[0]->args[1];
    struct lp_value *idx[4] = {page, e->zero, a->kv_head, expr_iadd(e, row, i)}, *d = expr_iadd(e, from, i);
    struct lp_value *k = lp_load_tile(b, a->k, idx, 1, (int)a->page, 0, 1, NULL, NULL);
    next = lp_mma(b, next, load_q(a, d), stored(a, k, a->nibbles ? LOW : ALL), 1);
    if (a->nibbles) next = lp_mma(b, next, load_q(a, expr_iadd(e, d, rows)), stored(a, k, HIGH), 1);
    expr_for_end(e, loop, &next);
    return loop->results[0];
}

/* q . k of all positions of a page. */
static struct lp_value *dots(struct attention *a, struct lp_value *page)
{
    struct expr_ctx *e = a->e;
    struct lp_builder *b = &e->b;
    int width = (int)a->page;
    struct lp_value *none = lp_const_f(b, lp_tile(DT_F32, a->heads, width), 0), *sum = none;
    if (!a->k_block) return add_scores(a, page, e->zero, e->zero, a->d, none);
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, lp_index(b, a->d / a->k_block), 1, 1, &sum);
    struct lp_value *block = loop->regions[0]->args[0], *idx[4] = {page, e->zero, a->kv_head, block};
    struct lp_value *row = expr_imul(e, block, lp_index(b, a->nibbles ? a->k_block / 2 : a->k_block));
    struct lp_value *dot = add_scores(a, page, expr_imul(e, block, lp_index(b, a->k_block)), row, a->k_block, none);
    struct lp_value *scale = lp_cast(b, lp_load_tile(b, a->k_scale, idx, 1, width, 0, 1, NULL, NULL), DT_F32);
    struct lp_value *next = lp_binary(b, LP_OP_ADD, loop->regions[0]->args[1], lp_binary(b, LP_OP_MUL, dot, scale));
    expr_for_end(e, loop, &next);
    return loop->results[0];
}

/* Scores of all positions of a page: heads x P. */
static struct lp_value *scores(struct attention *a, struct lp_value *page, struct lp_value *start)
{
    struct lp_builder *b = &a->e->b;
    int width = (int)a->page;
    struct lp_value *s = dots(a, page);
    double cap = ir_attr_float(a->op, "softcap", 0);
    if (cap > 0) s = lp_binary(b, LP_OP_MUL, lp_unary(b, LP_OP_TANH, lp_binary(b, LP_OP_MUL, s, f32(a, 1 / cap))), f32(a, cap));
    struct lp_value *p = lp_binary(b, LP_OP_ADD, lp_iota(b, DT_I64, width), start);
    struct lp_value *seen = lp_binary(b, LP_OP_AND, lp_binary(b, LP_OP_LE, p, a->pos), lp_binary(b, LP_OP_GE, p, a->first));
    /* What lies in unseen slots of the page may be anything, NaN too: selected away, never multiplied. */
    return lp_select(b, seen, s, f32(a, -(double)INFINITY));
}

/* The elements of part p of V's row j of a page, as f32. */
static struct lp_value *load_v(struct attention *a, struct lp_value *page, struct lp_value *j, const struct v_part *p)
{
    struct expr_ctx *e = a->e;
    struct lp_builder *b = &e->b;
    int64_t block = a->v_block ? p->from / a->v_block : 0, first = p->from;
    enum half half = ALL;
    if (a->nibbles) {
        half = p->from % a->v_block ? HIGH : LOW;
        first = block * (a->v_block / 2);
    }
    struct lp_value *idx[4] = {page, j, a->kv_head, lp_index(b, first)}, *at[4] = {page, j, a->kv_head, lp_index(b, block)};
    struct lp_value *ncols = p->width != p->n ? lp_index(b, p->n) : NULL;
    struct lp_value *v = stored(a, lp_load_tile(b, a->v, idx, 1, p->width, 0, 3, NULL, ncols), half);
    return a->v_block ? lp_binary(b, LP_OP_MUL, v, lp_cast(b, lp_load(b, a->v_scale, at), DT_F32)) : v;
}

/* acc + sum over the page's positions [0, count) of p[:, j] v[j, :], for each part. */
static void add_values(struct attention *a, struct lp_value *page, struct lp_value *count, struct lp_value **acc)
{
    struct expr_ctx *e = a->e;
    struct lp_builder *b = &e->b;
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, count, 1, a->n_parts, acc);
    struct lp_value *j = loop->regions[0]->args[0], *at[2] = {e->zero, j};
    struct lp_value *p = lp_load_tile(b, a->p_buf, at, a->heads, 1, 0, 1, NULL, NULL), *next[MAX_PARTS];
    for (int i = 0; i < a->n_parts; i++) next[i] = lp_mma(b, loop->regions[0]->args[1 + i], p, load_v(a, page, j, &a->part[i]), 1);
    expr_for_end(e, loop, next);
    for (int i = 0; i < a->n_parts; i++) acc[i] = loop->results[i];
}

/* One page. carry: running maximum and sum (a value a head), weighted values (heads x width, a tile a part). */
static void one_page(struct attention *a, struct lp_value *page_no, struct lp_value **carry)
{
    struct expr_ctx *e = a->e;
    struct lp_builder *b = &e->b;
    struct lp_value *entry[2] = {a->seq, page_no}, *zero[2] = {e->zero, e->zero};
    struct lp_value *page = lp_cast(b, lp_load(b, a->table, entry), DT_I64);
    struct lp_value *start = lp_binary(b, LP_OP_MUL, page_no, lp_index(b, a->page));
    struct lp_value *count = lp_binary(b, LP_OP_SUB, lp_binary(b, LP_OP_ADD, a->pos, e->one), start);
    count = lp_binary(b, LP_OP_MIN, count, lp_index(b, a->page));
    struct lp_value *s = scores(a, page, start);
    struct lp_value *m = lp_binary(b, LP_OP_MAX, carry[0], lp_reduce(b, LP_RED_MAX, s));
    /* A page that a window hides wholly leaves m at -inf: count from 0 then, all its weights are 0. */
    struct lp_value *base = lp_select(b, lp_binary(b, LP_OP_EQ, m, f32(a, -(double)INFINITY)), f32(a, 0), m);
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
    struct expr_ctx *e = a->e;
    struct lp_builder *b = &e->b;
    struct lp_value *lo = lp_binary(b, LP_OP_FLOORDIV, a->first, lp_index(b, a->page));
    struct lp_value *hi = lp_binary(b, LP_OP_FLOORDIV, lp_binary(b, LP_OP_ADD, a->pos, lp_index(b, a->page)), lp_index(b, a->page));
    struct lp_type column = lp_tile(DT_F32, a->heads, 1);
    struct lp_value *carry[2 + MAX_PARTS] = {lp_const_f(b, column, -(double)INFINITY), lp_const_f(b, column, 0)};
    for (int i = 0; i < a->n_parts; i++) carry[2 + i] = lp_const_f(b, lp_tile(DT_F32, a->heads, a->part[i].width), 0);
    struct lp_op *pages = expr_for_begin(e, LP_LOOP_SERIAL, lo, hi, 1, 2 + a->n_parts, carry);
    struct lp_value **args = pages->regions[0]->args;
    memcpy(carry, args + 1, sizeof *carry * (size_t)(2 + a->n_parts));
    one_page(a, args[0], carry);
    expr_for_end(e, pages, carry);
    struct lp_value *sum = pages->results[1], *one = f32(a, 1);
    struct lp_value *inv = lp_binary(b, LP_OP_DIV, one, lp_select(b, lp_binary(b, LP_OP_EQ, sum, f32(a, 0)), one, sum));
    for (int i = 0; i < a->n_parts; i++) {
        const struct v_part *p = &a->part[i];
        int64_t n = a->dv - p->from < p->n ? a->dv - p->from : p->n;
        struct lp_value *v = lp_binary(b, LP_OP_MUL, pages->results[2 + i], inv), *idx[3] = {a->row, a->head, lp_index(b, p->from)};
        struct lp_value *ncols = p->width != n ? lp_index(b, n) : NULL;
        lp_store_tile(b, a->out, idx, lp_cast(b, v, a->op->results[0].type.dtype), 1, 2, NULL, ncols);
    }
}

/* The parts that hold the first dv elements of a row. */
static bool add_parts(struct attention *a)
{
    int64_t n = !a->v_block ? a->dv : a->nibbles ? a->v_block / 2 : a->v_block;
    for (int64_t from = 0; from < a->dv; from += n) {
        if (a->n_parts == MAX_PARTS) return false;
        a->part[a->n_parts++] = (struct v_part){from, n, pow2_at_least(n)};
    }
    return n <= 1024;
}

/* Elements of a block of operand i, a cache with scales in operand `scale`; 0 of floats, -1 when sizes are not known. */
static int64_t block_of(const struct ir_op *op, int i, int scale)
{
    const struct ir_type *t = &ir_operand(op, i)->type;
    if (dtype_is_float(t->dtype)) return 0;
    const struct dim *blocks = ir_operand(op, scale)->type.dims[3], *width = t->dims[3];
    if (!dim_is_const(blocks) || !dim_is_const(width)) return -1;
    return width->value / blocks->value * (t->dtype == DT_U8 ? 2 : 1);
}

bool attention_shape_of(const struct ir_op *op, struct attention_shape *s)
{
    const struct ir_type *qt = &ir_operand(op, 0)->type, *kt = &ir_operand(op, 1)->type, *vt = &ir_operand(op, 2)->type, *ot = &op->results[0].type;
    const struct dim *fixed[] = {qt->dims[1], qt->dims[2], kt->dims[1], kt->dims[2], kt->dims[3], ot->dims[2]};
    for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
        if (!dim_is_const(fixed[i])) return false;
    if (kt->dtype != vt->dtype && (!dtype_is_float(kt->dtype) || !dtype_is_float(vt->dtype))) return false;
    s->page = kt->dims[1]->value, s->heads = (int)(qt->dims[1]->value / kt->dims[2]->value);
    s->d = qt->dims[2]->value, s->dv = ot->dims[2]->value;
    s->nibbles = kt->dtype == DT_U8;
    s->k_block = block_of(op, 1, 6), s->v_block = block_of(op, 2, 7);
    if (s->k_block < 0 || s->v_block < 0) return false;
    return (s->page & (s->page - 1)) == 0 && s->page <= 256 && s->heads >= 1 && s->heads <= 128;
}

void attention_layout(struct lower_ctx *l, int k, int k_scale)
{
    if (l->level->gpu) return; /* tensor units take K as it comes, too (lower_flash.c) */
    if (!read_as_v(l, ir_operand(l->group, k))) transpose_view(l, k);
    if (k_scale >= 0 && !read_as_v(l, ir_operand(l->group, k_scale))) transpose_view(l, k_scale);
}

static bool attention_shape(struct attention *a)
{
    struct attention_shape s;
    if (!attention_shape_of(a->op, &s)) return false;
    a->page = s.page, a->d = s.d, a->dv = s.dv, a->heads = s.heads, a->nibbles = s.nibbles, a->k_block = s.k_block, a->v_block = s.v_block;
    return add_parts(a);
}

enum lower_result lower_attention(struct lower_ctx *l)
{
    const struct ir_op *op = l->anchor;
    if (!op || op->code != IR_OP_PAGED_ATTENTION || ir_operand(l->yield, 0) != &op->results[0]) return LOWER_NOT_MINE;
    struct attention a = {.l = l, .e = &l->e, .op = op, .out = lower_result_buf(l, 0)};
    int *const bufs[] = {&a.q, &a.k, &a.v, &a.positions, &a.seq_of, &a.table, &a.k_scale, &a.v_scale};
    for (int i = 0; i < op->n_operands; i++)
        if ((*bufs[i] = lower_operand_of(l, ir_operand(op, i))) < 0) return LOWER_NOT_MINE;
    if (!attention_shape(&a)) return LOWER_NOT_MINE;
    struct expr_ctx *e = &l->e;
    struct lp_builder *b = &e->b;
    const struct ir_type *qt = &ir_operand(op, 0)->type, *kt = &ir_operand(op, 1)->type;
    attention_layout(l, a.k, a.k_block ? a.k_scale : -1);
    int64_t p_dims[] = {a.heads, a.page};
    a.p_buf = lp_add_stack(l->k, "weights", DT_F32, 2, p_dims);
    const struct dim *axes[2] = {qt->dims[0], kt->dims[2]};
    lower_set_slices(l, dim_mul(l->m->dims, axes[0], axes[1]));
    struct lp_value *coord[2];
    expr_delinear(e, lower_slice(l), 2, axes, coord);
    a.row = coord[0], a.kv_head = coord[1];
    a.head = lp_binary(b, LP_OP_MUL, a.kv_head, lp_index(b, a.heads));
    a.pos = load_i64(&a, a.positions, a.row), a.seq = load_i64(&a, a.seq_of, a.row);
    int64_t window = ir_attr_int(op, "window", 0);
    a.first = e->zero;
    if (window > 0) a.first = lp_binary(b, LP_OP_MAX, e->zero, lp_binary(b, LP_OP_SUB, a.pos, lp_index(b, window - 1)));
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
    lower_set_slices(l, rt->dims[0]);
    if (!l->level->gpu && !read_as_v(l, ir_operand(l->group, state->index))) transpose_view(l, lower_result_buf(l, 0));
    struct lp_value *t = lower_slice(l), *slot_at[1] = {t}, *page = expr_dim(e, st->dims[1]);
    struct lp_value *slot = lp_cast(b, expr_at(e, ir_operand(op, 2), slot_at), DT_I64);
    struct lp_op *branch = lp_if_begin(b, lp_binary(b, LP_OP_GE, slot, e->zero), 0, NULL);
    size_t mark = expr_scope_push(e);
    struct lp_value *to[4] = {lp_binary(b, LP_OP_FLOORDIV, slot, page), lp_binary(b, LP_OP_MOD, slot, page)}, *from[3] = {t};
    struct lp_op *heads = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, expr_dim(e, rt->dims[1]), 1, 0, NULL);
    to[2] = from[1] = heads->regions[0]->args[0];
    struct lp_op *elems = expr_for_begin(e, LP_LOOP_VECTOR, e->zero, expr_dim(e, rt->dims[2]), 1, 0, NULL);
    to[3] = from[2] = elems->regions[0]->args[0];
    struct lp_value *x = expr_at(e, rows, from);
    if (st->dtype == DT_F8E4M3FN) {
        struct lp_type type = lp_scalar(rt->dtype);
        x = lp_binary(b, LP_OP_MAX, lp_binary(b, LP_OP_MIN, x, lp_const_f(b, type, F8E4M3FN_MAX)), lp_const_f(b, type, -F8E4M3FN_MAX));
    }
    lp_store(b, lower_result_buf(l, 0), to, lp_cast(b, x, st->dtype));
    expr_for_end(e, elems, NULL);
    expr_for_end(e, heads, NULL);
    expr_scope_pop(e, mark);
    lp_if_else(b, branch, NULL);
    lp_if_end(b, branch, NULL);
    l->k->schedule = "kv-write";
    return LOWER_DONE;
}
