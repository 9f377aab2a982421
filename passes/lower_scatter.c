// SPDX-License-Identifier: Apache-2.0
/*
 * scatter_elements and scatter_nd: one slice copies the data, then applies the updates in order (later ones win, and
 * reductions are in a fixed order). Indices wrap when negative and are clamped into range, as the gather ops do.
 */
#include <string.h>

#include "passes/lower.h"

struct scatter {
    struct lower_ctx *l;
    const struct ir_value *data, *indices, *updates;
    const char *reduction;
};

/* Nested loops over dims[0..rank): fills idx; returns the loops, to be closed by nest_end. */
static void nest_begin(struct expr_ctx *e, int rank, const struct dim *const *dims, struct lp_value **idx, struct lp_op **loops)
{
    for (int i = 0; i < rank; i++) {
        loops[i] = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, expr_dim(e, dims[i]), 1, 0, NULL);
        idx[i] = loops[i]->regions[0]->args[0];
    }
}

static void nest_end(struct expr_ctx *e, int rank, struct lp_op **loops)
{
    for (int i = rank - 1; i >= 0; i--) expr_for_end(e, loops[i], NULL);
}

static void copy_data(struct scatter *s)
{
    struct expr_ctx *e = &s->l->e;
    const struct ir_type *t = &s->data->type;
    struct lp_value *idx[IR_MAX_RANK];
    struct lp_op *loops[IR_MAX_RANK];
    nest_begin(e, t->rank, t->dims, idx, loops);
    lp_store(&e->b, lower_result_buf(s->l, 0), idx, expr_at(e, s->data, idx));
    nest_end(e, t->rank, loops);
}

static void update(struct scatter *s, struct lp_value *const *at, struct lp_value *v)
{
    struct expr_ctx *e = &s->l->e;
    int out = lower_result_buf(s->l, 0);
    bool is_bool = v->type.dtype == DT_BOOL;
    if (strcmp(s->reduction, "none")) {
        struct lp_value *old = lp_load(&e->b, out, at);
        enum lp_opcode op = !strcmp(s->reduction, "add") ? LP_OP_ADD : !strcmp(s->reduction, "mul") ? LP_OP_MUL
                          : !strcmp(s->reduction, "min") ? LP_OP_MIN : LP_OP_MAX;
        if (is_bool) op = op == LP_OP_ADD || op == LP_OP_MAX ? LP_OP_OR : LP_OP_AND;
        v = lp_binary(&e->b, op, old, v);
    }
    lp_store(&e->b, out, at, v);
}

static void update_elements(struct scatter *s)
{
    struct expr_ctx *e = &s->l->e;
    const struct ir_type *t = &s->indices->type;
    int axis = (int)ir_attr_int(s->l->anchor, "axis", 0);
    struct lp_value *idx[IR_MAX_RANK], *at[IR_MAX_RANK];
    struct lp_op *loops[IR_MAX_RANK];
    nest_begin(e, t->rank, t->dims, idx, loops);
    memcpy(at, idx, sizeof at);
    at[axis] = expr_wrap_index(e, expr_at(e, s->indices, idx), s->data->type.dims[axis]);
    update(s, at, expr_at(e, s->updates, idx));
    nest_end(e, t->rank, loops);
}

static void update_nd(struct scatter *s)
{
    struct expr_ctx *e = &s->l->e;
    const struct ir_type *t = &s->indices->type, *d = &s->data->type;
    int q = t->rank, depth = (int)t->dims[q - 1]->value, tail = d->rank - depth;
    struct lp_value *idx[2 * IR_MAX_RANK], *at[IR_MAX_RANK], *src[IR_MAX_RANK];
    struct lp_op *loops[2 * IR_MAX_RANK];
    nest_begin(e, q - 1, t->dims, idx, loops);
    for (int i = 0; i < depth; i++) {
        idx[q - 1] = i == 0 ? e->zero : lp_index(&e->b, i);
        at[i] = expr_wrap_index(e, expr_at(e, s->indices, idx), d->dims[i]);
    }
    nest_begin(e, tail, d->dims + depth, at + depth, loops + q - 1);
    for (int i = 0; i < q - 1; i++) src[i] = idx[i];
    for (int i = 0; i < tail; i++) src[q - 1 + i] = at[depth + i];
    update(s, at, expr_at(e, s->updates, src));
    nest_end(e, q - 1 + tail, loops);
}

enum lower_result lower_scatter(struct lower_ctx *l)
{
    const struct ir_op *op = l->anchor;
    if (!op || (op->code != IR_OP_SCATTER_ELEMENTS && op->code != IR_OP_SCATTER_ND)) return LOWER_NOT_MINE;
    if (ir_operand(l->yield, 0) != &op->results[0]) return LOWER_NOT_MINE;
    struct scatter s = {l, ir_operand(op, 0), ir_operand(op, 1), ir_operand(op, 2), ir_attr_string(op, "reduction", "none")};
    lower_set_slices(l, dim_const(l->m->dims, 1));
    copy_data(&s);
    if (op->code == IR_OP_SCATTER_ELEMENTS) update_elements(&s);
    else update_nd(&s);
    l->k->schedule = "scatter";
    return LOWER_DONE;
}
