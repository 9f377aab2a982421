// SPDX-License-Identifier: Apache-2.0
#include "passes/attention.h"

#include "ir/op.h"

static bool is_f32(const struct ir_value *v) { return v && v->type.dtype == DT_F32 && !v->type.enc; }

static bool same_dims(const struct ir_type *a, const struct ir_type *b)
{
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i]) return false;
    return true;
}

static bool is_listed(const struct attention_ops *a, const struct ir_op *op)
{
    for (int i = 0; i < a->n; i++)
        if (a->all[i] == op) return true;
    return false;
}

static bool add(struct attention_ops *a, struct ir_op *op)
{
    if (a->n == ATTENTION_MAX_OPS) return false;
    a->all[a->n++] = op;
    return true;
}

/* What group bodies would compute again where it is read: tiles of scores only load. */
static bool is_made_again(const struct ir_value *v)
{
    const struct ir_op *d = v->def;
    return d && (d->code == IR_OP_BROADCAST || d->code == IR_OP_IOTA || d->code == IR_OP_DIMVEC || d->code == IR_OP_CONSTANT);
}

static bool is_computed(const struct ir_value *v)
{
    const struct ir_op *d = v->def;
    if (d && d->code == IR_OP_BROADCAST) return is_made_again(ir_operand(d, 0));
    return d && (d->code == IR_OP_IOTA || d->code == IR_OP_DIMVEC);
}

/* The transposes in front of v that nothing else reads. */
static bool add_views(struct attention_ops *a, const struct ir_value *v, const struct ir_block *block)
{
    struct ir_op *views[4];
    int n = 0;
    while (n < 4 && v->def && v->def->code == IR_OP_TRANSPOSE && v->def->block == block && ir_value_has_one_use(v) &&
           !is_made_again(ir_operand(v->def, 0))) {
        views[n++] = v->def;
        v = ir_operand(v->def, 0);
    }
    while (n > 0)
        if (!add(a, views[--n])) return false;
    return true;
}

static bool is_product(const struct ir_op *op)
{
    return op->code == IR_OP_MATMUL && is_f32(ir_operand(op, 0)) && is_f32(ir_operand(op, 1)) && is_f32(&op->results[0]) &&
           !ir_attr_int(op, "trans_a", 0) && !ir_attr_int(op, "tf32", 0);
}

/* Does v come from the product by pointwise ops of its shape? Lists them and the product, operands first. */
static bool collect(struct attention_ops *a, struct ir_value *v, const struct ir_type *type, const struct ir_block *block, int *steps)
{
    struct ir_op *op = v->def;
    if (!op || op->block != block || ++*steps > 4 * ATTENTION_MAX_OPS || !same_dims(&v->type, type)) return false;
    if (is_listed(a, op)) return true;
    if (op->code == IR_OP_MATMUL) {
        if (a->qk || !is_product(op)) return false;
        a->qk = op;
        return add_views(a, ir_operand(op, 0), block) && add_views(a, ir_operand(op, 1), block) && add(a, op);
    }
    if (!(ir_op_traits(op) & IR_T_PW) || op->n_operands > 4) return false;
    bool any = false;
    for (int i = 0; i < op->n_operands; i++) any = collect(a, ir_operand(op, i), type, block, steps) || any;
    return any && add(a, op);
}

/* Each op's result is read by listed ops alone, but for the last one's; what else they read is there, or is loaded. */
static bool is_closed(const struct attention_ops *a)
{
    for (int i = 0; i < a->n; i++) {
        const struct ir_op *op = a->all[i];
        for (const struct ir_use *u = op->results[0].uses; u && &op->results[0] != a->root; u = u->next)
            if (!is_listed(a, u->user)) return false;
        for (int k = 0; k < op->n_operands; k++) {
            const struct ir_value *v = ir_operand(op, k);
            if (!v || ((ir_op_traits(op) & IR_T_PW) && is_computed(v))) return false;
        }
    }
    return true;
}

static bool is_depth(const struct dim *d) { return dim_is_const(d) && d->value > 0 && d->value <= ATTENTION_MAX_DEPTH; }

/* y's leading axes are those of the scores; an operand may have fewer, or ones. */
static bool shapes_fit(const struct attention_ops *a)
{
    const struct ir_type *s = &a->qk->results[0].type, *y = &a->pv->results[0].type, *q = &ir_operand(a->qk, 0)->type;
    if (s->rank < 2 || y->rank != s->rank) return false;
    for (int i = 0; i < s->rank - 1; i++)
        if (y->dims[i] != s->dims[i]) return false;
    const struct dim *rows = s->dims[s->rank - 2];
    return is_depth(q->dims[q->rank - 1]) && is_depth(y->dims[y->rank - 1]) && !(dim_is_const(rows) && rows->value < ATTENTION_MIN_ROWS) &&
           ir_operand(a->pv, 1)->type.dims[ir_operand(a->pv, 1)->type.rank - 2] == s->dims[s->rank - 1];
}

bool attention_match(struct ir_op *softmax, struct attention_ops *out)
{
    *out = (struct attention_ops){.softmax = softmax};
    struct ir_value *p = &softmax->results[0], *t = ir_operand(softmax, 0);
    if (softmax->code != IR_OP_SOFTMAX || !is_f32(t) || ir_attr_int(softmax, "axis", 0) != t->type.rank - 1) return false;
    if (!p->uses || !ir_value_has_one_use(p)) return false;
    struct ir_op *pv = out->pv = p->uses->user;
    if (!is_product(pv) || pv->block != softmax->block || ir_operand(pv, 0) != p || ir_operand(pv, 1) == p || ir_attr_int(pv, "trans_b", 0)) return false;
    int steps = 0;
    if (!collect(out, t, &t->type, softmax->block, &steps) || !out->qk || !add(out, softmax)) return false;
    if (!add_views(out, ir_operand(pv, 1), pv->block) || !add(out, pv)) return false;
    out->root = &pv->results[0];
    if (ir_value_has_one_use(out->root)) {
        struct ir_op *user = out->root->uses->user;
        if (user->code == IR_OP_TRANSPOSE && user->block == pv->block && add(out, user)) out->root = &user->results[0];
    }
    return is_closed(out) && shapes_fit(out);
}
