// SPDX-License-Identifier: Apache-2.0
/* If. A condition that is known while importing chooses its branch; the other one is not looked at. */
#include "compiler/import/onnx_int.h"

static bool inline_branch(struct onode *n, const Onnx__Graph *branch)
{
    int outputs = (int)n->p->n_output;
    struct ir_value **values = on_alloc(n, (size_t)outputs + 1, sizeof *values);
    bool ok = onnx_import_branch(n, branch, n->b, outputs, values);
    for (int i = 0; i < outputs; i++) n->out[i] = values[i];
    if (!ok) n->failed = true;
    return true;
}

static struct ir_block *import_region(struct onode *n, struct ir_op *op, const Onnx__Graph *graph, struct ir_value **values)
{
    struct ir_block *block = ir_block_create(n->m, n->b->block->func, op);
    struct ir_builder b = {.m = n->m, .block = block, .loc = n->b->loc};
    if (!onnx_import_branch(n, graph, &b, (int)n->p->n_output, values)) n->failed = true;
    return block;
}

static bool same_types(struct onode *n, struct ir_value *a, struct ir_value *b, size_t i)
{
    bool same = a->type.dtype == b->type.dtype && a->type.rank == b->type.rank;
    for (int k = 0; same && k < a->type.rank; k++) same = a->type.dims[k] == b->type.dims[k];
    if (same) return true;
    struct strbuf s = {0};
    for (int side = 0; side < 2; side++) {
        const struct ir_type *t = side ? &b->type : &a->type;
        strbuf_printf(&s, "%s%s[", side ? " and " : "", dtype_name(t->dtype));
        for (int k = 0; k < t->rank; k++) {
            strbuf_puts(&s, k ? "," : "");
            dim_print(&s, t->dims[k]);
        }
        strbuf_putc(&s, ']');
    }
    on_fail(n, DIAG_ONNX_DYNAMIC, "If: the branches give output %zu ('%s') different types: %s", i, n->p->output[i], strbuf_get(&s));
    strbuf_deinit(&s);
    return false;
}

bool onnx_if(struct onode *n)
{
    const Onnx__Graph *branch[2] = {at_graph(n, "then_branch"), at_graph(n, "else_branch")};
    struct ir_value *cond = on_in(n, 0);
    if (n->failed) return false;
    if (!branch[0] || !branch[1]) return on_fail(n, DIAG_ONNX_ATTR, "If without two branches");
    if (cond->type.dtype != DT_BOOL) return on_fail(n, DIAG_DTYPE_MISMATCH, "If: the condition is %s", dtype_name(cond->type.dtype));
    const struct known *k = known_of(n->im, cond);
    if (k && k->n == 1 && k->e[0].num && dim_is_const(k->e[0].num))
        return inline_branch(n, branch[k->e[0].num->value ? 0 : 1]);
    struct ir_op *op = ir_op_create(n->m, IR_OP_IF, 1, &cond, (int)n->p->n_output, n->b->loc);
    struct ir_value **values[2];
    struct ir_block *blocks[2];
    for (int i = 0; i < 2; i++) {
        values[i] = on_alloc(n, n->p->n_output + 1, sizeof *values[i]);
        blocks[i] = import_region(n, op, branch[i], values[i]);
        ir_op_add_region(n->m, op, blocks[i]);
    }
    if (n->failed) return false;
    bool ok = true;
    for (size_t i = 0; i < n->p->n_output; i++) ok = same_types(n, values[0][i], values[1][i], i) && ok;
    if (!ok) return false;
    for (int i = 0; i < 2; i++)
        ir_block_append(blocks[i], ir_op_create(n->m, IR_OP_YIELD, (int)n->p->n_output, values[i], 0, n->b->loc));
    for (size_t i = 0; i < n->p->n_output; i++) {
        ir_result(op, (int)i)->type = values[0][i]->type;
        n->out[i] = ir_result(op, (int)i);
    }
    ir_block_append(n->b->block, op);
    return true;
}
