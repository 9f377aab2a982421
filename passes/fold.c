// SPDX-License-Identifier: Apache-2.0
/*
 * Constant folding: an op whose operands are all constant is evaluated (ir/eval.h) and becomes a constant. Requires and
 * preserves verified IR.
 *
 * Left alone: results over MAX_BYTES that are larger than their operands (a broadcast or iota is cheaper as an op than as
 * weights; pointwise ones up to eight times and 64 MiB are folded), ops with symbolic attributes, and moving ops on splats other than reshape.
 */
#include <stdio.h>
#include <string.h>

#include "ir/eval.h"
#include "ir/op.h"
#include "passes/pass.h"

#define MAX_BYTES ((int64_t)1 << 16)
#define MAX_POINTWISE_BYTES ((int64_t)1 << 26)

static bool attrs_static(const struct ir_op *op)
{
    for (int i = 0; i < op->n_attrs; i++)
        for (int k = 0; op->attrs[i].kind == IR_ATTR_DIMS && k < op->attrs[i].count; k++)
            if (!dim_is_const(op->attrs[i].dims[k])) return false;
    return true;
}

static bool worth_folding(const struct ir_op *op)
{
    int64_t in_bytes = 0, out_bytes = 0;
    if (op->code == IR_OP_CONSTANT || op->n_regions || (ir_op_traits(op) & IR_T_TERM) || ir_op_has_effect(op) || !attrs_static(op)) return false;
    for (int i = 0; i < op->n_operands; i++) {
        const struct ir_value *v = ir_operand(op, i);
        if (!v) continue;
        const struct ir_const *c = ir_value_const(v);
        if (!c || c->type.dtype == DT_STRING || c->type.enc) return false;
        in_bytes += (int64_t)c->n_bytes;
    }
    for (int i = 0; i < op->n_results; i++) {
        int64_t n;
        if (!ir_type_static_elems(&op->results[i].type, &n) || op->results[i].type.dtype == DT_STRING) return false;
        out_bytes += n * (int64_t)dtype_bytes(op->results[i].type.dtype);
    }
    /* Integer weights that a recurrent layer reads as floats: larger in the engine, but not computed in every call. */
    bool unpacks = (ir_op_traits(op) & IR_T_PW) && out_bytes / 8 <= in_bytes && out_bytes <= MAX_POINTWISE_BYTES;
    return out_bytes <= MAX_BYTES || out_bytes <= in_bytes || unpacks;
}

/* The constant as the evaluator sees it; splats are expanded into the scratch arena. */
static void as_tensor(struct arena *scratch, const struct ir_const *c, struct ir_tensor *t)
{
    *t = (struct ir_tensor){.dtype = c->type.dtype, .rank = c->type.rank};
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) t->dims[i] = c->type.dims[i]->value, n *= t->dims[i];
    size_t elem = dtype_bytes(t->dtype);
    t->n_bytes = (size_t)n * elem;
    t->data = (void *)(uintptr_t)c->data;
    if (!c->splat) return;
    t->data = arena_alloc(scratch, t->n_bytes);
    for (int64_t i = 0; i < n; i++) memcpy((char *)t->data + (size_t)i * elem, c->data, elem);
}

static bool fold_op(struct ir_module *m, struct ir_op *op, struct arena *scratch, struct diag_sink *diag)
{
    struct ir_tensor *in = ARENA_ARRAY(scratch, struct ir_tensor, op->n_operands);
    struct ir_tensor *out = ARENA_ARRAY(scratch, struct ir_tensor, op->n_results);
    for (int i = 0; i < op->n_operands; i++)
        if (ir_operand(op, i)) as_tensor(scratch, ir_value_const(ir_operand(op, i)), &in[i]);
    if (!ir_eval_op(op, m, in, out, NULL, &m->arena, diag)) return false;
    for (int i = 0; i < op->n_results; i++) {
        struct ir_value *r = &op->results[i];
        if (!r->uses) continue;
        struct ir_const *c = ir_const_make(m, r->name ? r->name : "folded", r->type, out[i].data, out[i].n_bytes, false);
        struct ir_op *k = ir_op_create(m, IR_OP_CONSTANT, 0, NULL, 1, op->loc);
        ir_op_set_attr(m, k, (struct ir_attr){.name = "value", .kind = IR_ATTR_CONST, .c = c});
        k->results[0].type = r->type;
        k->results[0].name = r->name;
        ir_block_insert_before(op, k);
        ir_value_replace_uses(r, &k->results[0]);
    }
    ir_op_erase(op);
    return true;
}

static bool fold_block(struct ir_module *m, struct ir_block *b, struct arena *scratch, struct diag_sink *diag)
{
    for (struct ir_op *op = b->first, *next; op; op = next) {
        next = op->next;
        for (int r = 0; r < op->n_regions; r++)
            if (!fold_block(m, op->regions[r], scratch, diag)) return false;
        if (worth_folding(op) && !fold_op(m, op, scratch, diag)) return false;
        arena_reset(scratch);
    }
    return true;
}

bool pass_fold(struct ir_module *m, struct diag_sink *diag)
{
    struct arena scratch;
    arena_init(&scratch);
    bool ok = true;
    for (size_t i = 0; ok && i < m->funcs.n; i++) ok = fold_block(m, m->funcs.v[i]->body, &scratch, diag);
    arena_deinit(&scratch);
    return ok;
}
