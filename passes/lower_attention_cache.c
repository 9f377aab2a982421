// SPDX-License-Identifier: Apache-2.0
/* Reading the states of attention: see passes/lower_attention.c for how they lie, lower_attention.h for what is here. */
#include <math.h>

#include "passes/lower_attention.h"

/* ---- layout ---- */

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

bool attention_read_as_v(const struct lower_ctx *l, const struct ir_value *v)
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

void attention_transpose_view(struct lower_ctx *l, int buf)
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

bool attention_cache_of(struct lower_ctx *l, struct attention_cache *c)
{
    const struct ir_op *op = l->anchor;
    if (!op || op->code != IR_OP_PAGED_ATTENTION || ir_operand(l->yield, 0) != &op->results[0]) return false;
    *c = (struct attention_cache){.l = l, .e = &l->e, .op = op, .out = lower_result_buf(l, 0)};
    int *const bufs[] = {&c->q, &c->k, &c->v, &c->positions, &c->seq_of, &c->table, &c->k_scale, &c->v_scale};
    for (int i = 0; i < op->n_operands; i++)
        if ((*bufs[i] = lower_operand_of(l, ir_operand(op, i))) < 0) return false;
    if (!attention_shape_of(op, &c->s)) return false;
    if (l->level->gpu) return true; /* tensor units take K as it comes, too (lower_flash.c) */
    if (!attention_read_as_v(l, ir_operand(l->group, c->k))) attention_transpose_view(l, c->k);
    if (c->s.k_block && !attention_read_as_v(l, ir_operand(l->group, c->k_scale))) attention_transpose_view(l, c->k_scale);
    return true;
}

/* ---- small change ---- */

struct lp_value *attention_f32(const struct attention_cache *c, double v) { return lp_const_f(&c->e->b, lp_scalar(DT_F32), v); }

struct lp_value *attention_load_i64(const struct attention_cache *c, int buf, struct lp_value *i)
{
    struct lp_value *idx[1] = {i};
    return lp_cast(&c->e->b, lp_load(&c->e->b, buf, idx), DT_I64);
}

struct lp_value *attention_page(const struct attention_cache *c, struct lp_value *seq, struct lp_value *page_no)
{
    struct lp_value *entry[2] = {seq, page_no};
    return lp_cast(&c->e->b, lp_load(&c->e->b, c->table, entry), DT_I64);
}

struct lp_value *attention_first_seen(const struct attention_cache *c, struct lp_value *pos)
{
    struct lp_builder *b = &c->e->b;
    int64_t window = ir_attr_int(c->op, "window", 0);
    if (window <= 0) return c->e->zero;
    return lp_binary(b, LP_OP_MAX, c->e->zero, lp_binary(b, LP_OP_SUB, pos, lp_index(b, window - 1)));
}

struct lp_value *attention_inverse(const struct attention_cache *c, struct lp_value *sum)
{
    struct lp_builder *b = &c->e->b;
    struct lp_value *one = attention_f32(c, 1);
    return lp_binary(b, LP_OP_DIV, one, lp_select(b, lp_binary(b, LP_OP_EQ, sum, attention_f32(c, 0)), one, sum));
}

/* What bytes of a cache hold, as f32: numbers, or one in each half. */
enum half { ALL, LOW, HIGH };

static struct lp_value *stored(const struct attention_cache *c, struct lp_value *bytes, enum half half)
{
    struct lp_builder *b = &c->e->b;
    struct lp_type u8 = lp_scalar(DT_U8);
    if (half == ALL) return lp_cast(b, bytes, DT_F32);
    bytes = half == LOW ? lp_binary(b, LP_OP_AND, bytes, lp_const_i(b, u8, 15)) : lp_binary(b, LP_OP_SHR, bytes, lp_const_i(b, u8, 4));
    return lp_binary(b, LP_OP_SUB, lp_cast(b, bytes, DT_F32), attention_f32(c, 8));
}

/* ---- scores ---- */

void attention_prefetch(const struct attention_cache *c, int buf, struct lp_value *next, struct lp_value *position, struct lp_value *element, int64_t n,
                        bool along)
{
    struct lp_builder *b = &c->e->b;
    int64_t line = 64 / (int64_t)dtype_bytes(c->l->k->bufs.v[buf].dtype);
    for (int64_t i = 0; i < n; i += line) {
        struct lp_value *at = along ? position : element, *moved = i ? lp_binary(b, LP_OP_ADD, at, lp_index(b, i)) : at;
        struct lp_value *idx[4] = {next, along ? moved : position, c->kv_head, along ? element : moved};
        lp_prefetch(b, buf, idx);
    }
}

/* acc + q . k over elements [from, from + n) of a head; they lie in n (of nibbles n / 2) rows from `row`. */
static struct lp_value *add_scores(const struct attention_cache *c, const struct attention_step *s, struct lp_value *from, struct lp_value *row, int64_t n, struct lp_value *acc)
{
    struct expr_ctx *e = c->e;
    struct lp_builder *b = &e->b;
    struct lp_value *count = lp_index(b, c->s.nibbles ? n / 2 : n);
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, count, 1, 1, &acc);
    struct lp_value *i = loop->regions[0]->args[0], *next = loop->regions[0]->args[1];
    struct lp_value *idx[4] = {s->page, s->position, c->kv_head, expr_iadd(e, row, i)}, *d = expr_iadd(e, from, i);
    if (s->next) attention_prefetch(c, c->k, s->next, s->position, idx[3], s->width, true);
    struct lp_value *k = lp_load_tile(b, c->k, idx, 1, s->width, 0, 1, NULL, NULL);
    next = lp_mma(b, next, s->load_q(c, s, d), stored(c, k, c->s.nibbles ? LOW : ALL), 1);
    if (c->s.nibbles) next = lp_mma(b, next, s->load_q(c, s, expr_iadd(e, d, count)), stored(c, k, HIGH), 1);
    expr_for_end(e, loop, &next);
    return loop->results[0];
}

struct lp_value *attention_dots(const struct attention_cache *c, const struct attention_step *s)
{
    struct expr_ctx *e = c->e;
    struct lp_builder *b = &e->b;
    struct lp_value *none = lp_const_f(b, lp_tile(DT_F32, s->rows, s->width), 0), *sum = none;
    if (!c->s.k_block) return add_scores(c, s, e->zero, e->zero, c->s.d, none);
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, lp_index(b, c->s.d / c->s.k_block), 1, 1, &sum);
    struct lp_value *block = loop->regions[0]->args[0], *idx[4] = {s->page, s->position, c->kv_head, block};
    struct lp_value *row = expr_imul(e, block, lp_index(b, c->s.nibbles ? c->s.k_block / 2 : c->s.k_block));
    struct lp_value *dot = add_scores(c, s, expr_imul(e, block, lp_index(b, c->s.k_block)), row, c->s.k_block, none);
    struct lp_value *scale = lp_cast(b, lp_load_tile(b, c->k_scale, idx, 1, s->width, 0, 1, NULL, NULL), DT_F32);
    struct lp_value *next = lp_binary(b, LP_OP_ADD, loop->regions[0]->args[1], lp_binary(b, LP_OP_MUL, dot, scale));
    expr_for_end(e, loop, &next);
    return loop->results[0];
}

struct lp_value *attention_seen(const struct attention_cache *c, struct lp_value *dots, struct lp_value *page_no, struct lp_value *pos)
{
    struct lp_builder *b = &c->e->b;
    struct lp_value *s = dots;
    double cap = ir_attr_float(c->op, "softcap", 0);
    if (cap > 0) s = lp_binary(b, LP_OP_MUL, lp_unary(b, LP_OP_TANH, lp_binary(b, LP_OP_MUL, s, attention_f32(c, 1 / cap))), attention_f32(c, cap));
    struct lp_value *start = lp_binary(b, LP_OP_MUL, page_no, lp_index(b, c->s.page));
    struct lp_value *p = lp_binary(b, LP_OP_ADD, lp_iota(b, DT_I64, (int)c->s.page), start);
    struct lp_value *seen = lp_binary(b, LP_OP_AND, lp_binary(b, LP_OP_LE, p, pos), lp_binary(b, LP_OP_GE, p, attention_first_seen(c, pos)));
    /* What lies in unseen slots of the page may be anything, NaN too: selected away, never multiplied. */
    return lp_select(b, seen, s, attention_f32(c, -(double)INFINITY));
}

/* ---- values ---- */

int attention_parts(const struct attention_shape *s, int64_t width, struct attention_part *parts)
{
    int64_t n = !s->v_block ? width : s->nibbles ? s->v_block / 2 : s->v_block, at = 0;
    int count = 0;
    for (int64_t from = 0; from < s->dv; from += n) {
        int64_t here = !s->v_block && s->dv - from < n ? s->dv - from : n;
        int w = 1;
        while (w < here) w *= 2;
        if (count == ATTENTION_MAX_PARTS || w > 1024) return 0;
        parts[count++] = (struct attention_part){from, here, w, at};
        at += w;
    }
    return count;
}

bool attention_parts_alike(const struct attention_shape *s, const struct attention_part *parts, int n)
{
    for (int i = 0; i < n; i++)
        if (s->nibbles || parts[i].width != parts[0].n || parts[i].n != parts[0].n) return false;
    return true;
}

struct lp_value *attention_load_v(const struct attention_cache *c, struct lp_value *page, struct lp_value *j, const struct attention_part *p,
                                  struct lp_value *from)
{
    struct lp_builder *b = &c->e->b;
    int64_t block = c->s.v_block ? p->from / c->s.v_block : 0, first = p->from;
    enum half half = ALL;
    if (c->s.nibbles) {
        half = p->from % c->s.v_block ? HIGH : LOW;
        first = block * (c->s.v_block / 2);
    }
    struct lp_value *idx[4] = {page, j, c->kv_head, from ? from : lp_index(b, first)}, *at[4] = {page, j, c->kv_head, NULL};
    struct lp_value *ncols = p->width != p->n ? lp_index(b, p->n) : NULL;
    struct lp_value *v = stored(c, lp_load_tile(b, c->v, idx, 1, p->width, 0, 3, NULL, ncols), half);
    if (!c->s.v_block) return v;
    at[3] = from ? lp_binary(b, LP_OP_FLOORDIV, from, lp_index(b, c->s.v_block)) : lp_index(b, block);
    return lp_binary(b, LP_OP_MUL, v, lp_cast(b, lp_load(b, c->v_scale, at), DT_F32));
}
