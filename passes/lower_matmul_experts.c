// SPDX-License-Identifier: Apache-2.0
/* Matmul by the chosen ones of several encoded matrices (op qmatmul_experts): see passes/lower_matmul.c for the tiles. */
#include "passes/lower_matmul.h"

/* The choice (row, pick) by the panel: the expert's number is clamped, so that no id reads beyond the weights. */
static struct lp_value *expert_of(struct mm *t, struct lp_value *row, struct lp_value *pick)
{
    struct expr_ctx *e = &t->l->e;
    struct lp_value *idx[2] = {row, pick};
    struct lp_value *id = lp_cast(&e->b, lp_load(&e->b, t->ids, idx), DT_I64);
    return expr_clamp(e, id, dim_const(t->l->m->dims, ir_attr_int(t->l->anchor, "experts", 1)));
}

static void emit_choice(struct mm *t, struct lp_value *row, struct lp_value *pick, struct lp_value *expert, struct lp_value *panel)
{
    t->batch[0] = row;
    t->matrix = expert;
    matmul_emit_columns(t, pick, 1, NULL, panel);
}

struct choices {
    const struct dim *const *dims; /* rows, picks */
    struct lp_op *rows, *picks, *mine;
    struct lp_value *row, *pick;
    size_t mark;
};

/* Opens a walk over the choices of `expert`; what is emitted until choices_end runs for each. */
static struct choices choices_begin(struct mm *t, const struct dim *const *dims, struct lp_value *expert)
{
    struct expr_ctx *e = &t->l->e;
    struct choices c = {.dims = dims};
    c.rows = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, expr_dim(e, dims[0]), 1, 0, NULL);
    c.row = c.rows->regions[0]->args[0];
    c.picks = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, expr_dim(e, dims[1]), 1, 0, NULL);
    c.pick = c.picks->regions[0]->args[0];
    c.mine = lp_if_begin(&e->b, lp_binary(&e->b, LP_OP_EQ, expert_of(t, c.row, c.pick), expert), 0, NULL);
    c.mark = expr_scope_push(e);
    return c;
}

static void choices_end(struct mm *t, struct choices *c)
{
    struct expr_ctx *e = &t->l->e;
    expr_scope_pop(e, c->mark);
    lp_if_else(&e->b, c->mine, NULL);
    lp_if_end(&e->b, c->mine, NULL);
    expr_for_end(e, c->picks, NULL);
    expr_for_end(e, c->rows, NULL);
}

/* Every choice of one expert, by a panel that is taken apart once. */
static void emit_expert(struct mm *t, const struct dim *const *dims, struct lp_value *expert, struct lp_value *panel)
{
    if (t->copy_buf >= 0) {
        t->matrix = expert;
        matmul_encoded_unpack(t, panel);
        t->copied = true;
    }
    struct choices c = choices_begin(t, dims, expert);
    emit_choice(t, c.row, c.pick, expert, panel);
    choices_end(t, &c);
    t->copied = false;
}

/*
 * Each choice [t, a] is a row by its expert's matrix. No more choices than experts (decoding): a slice is a choice and a panel.
 * More (a prompt): a slice is an expert and a panel, and looks for the choices that are its. Every output element is the
 * same chain over k in order either way, so the number of rows does not show in the bits.
 */
enum lower_result matmul_experts(struct mm *t)
{
    struct lower_ctx *l = t->l;
    if (!lower_tile_epilogue_ok(l) || !matmul_encoded_parts(t, 2)) return LOWER_NOT_MINE;
    struct expr_ctx *e = &l->e;
    struct lp_builder *b = &e->b;
    struct dim_ctx *dc = l->m->dims;
    t->ids = lower_operand_of(l, ir_operand(l->anchor, 1));
    t->m = dim_const(dc, 1), t->panel = t->width = 64;
    lower_tile(l, 4, t->panel, t->m, false, &t->mr, &t->nr);
    t->prefetch = matmul_prefetch_bytes(t);
    const struct dim *const *dims = ir_operand(l->anchor, 1)->type.dims;
    const struct dim *choices = dim_mul(dc, dims[0], dims[1]), *experts = dim_const(dc, ir_attr_int(l->anchor, "experts", 1));
    lower_set_slices(l, dim_mulc(dc, dim_min(dc, choices, experts), t->matrix_panels));
    struct lp_value *s = lower_slice(l), *panels = lp_index(b, t->matrix_panels);
    struct lp_value *at = lp_binary(b, LP_OP_FLOORDIV, s, panels), *panel = lp_binary(b, LP_OP_MOD, s, panels);
    matmul_encoded_buffer(t);
    struct lp_op *few = lp_if_begin(b, lp_binary(b, LP_OP_LE, expr_dim(e, choices), expr_dim(e, experts)), 0, NULL);
    size_t mark = expr_scope_push(e);
    struct lp_value *coord[2];
    expr_delinear(e, at, 2, dims, coord);
    emit_choice(t, coord[0], coord[1], expert_of(t, coord[0], coord[1]), panel);
    expr_scope_pop(e, mark);
    lp_if_else(b, few, NULL);
    mark = expr_scope_push(e);
    emit_expert(t, dims, at, panel);
    expr_scope_pop(e, mark);
    lp_if_end(b, few, NULL);
    l->k->schedule = "matmul-experts";
    l->k->claim = 1; /* experts are chosen unevenly */
    l->k->flops = dim_mulc(dc, dim_mul(dc, ir_type_elems(l->m, &l->anchor->results[0].type), t->k), 2);
    return LOWER_DONE;
}
