// SPDX-License-Identifier: Apache-2.0
/* If. A condition that is known while importing chooses its branch; the other one is not looked at.
 */
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

static struct ir_block *import_region(struct onode *n, struct ir_op *op, const Onnx__Graph *graph,
                                      struct ir_value **values)
{
    struct ir_block *block = ir_block_create(n->m, n->b->block->func, op);
    struct ir_builder b = {.m = n->m, .block = block, .loc = n->b->loc};
    size_t checks = n->m->checks.n;
    if (!onnx_import_branch(n, graph, &b, (int)n->p->n_output, values)) n->failed = true;
    ir_build_branch_checks(&b, checks);
    return block;
}

static bool same_type(const struct ir_value *a, const struct ir_value *b)
{
    bool same = a->type.dtype == b->type.dtype && a->type.rank == b->type.rank;
    for (int k = 0; same && k < a->type.rank; k++) same = a->type.dims[k] == b->type.dims[k];
    return same;
}

static bool say_different(struct onode *n, struct ir_value *a, struct ir_value *b, size_t i)
{
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
    on_fail(n, DIAG_ONNX_DYNAMIC, "If: the branches give output %zu ('%s') different types: %s", i,
            n->p->output[i], strbuf_get(&s));
    strbuf_deinit(&s);
    return false;
}

/*
 * A condition on shapes alone, as a check that it has the value `sense`. Only what an equality or
 * an order of two dims can say: "not equal" has no such form.
 */
static bool condition_check(struct onode *n, struct ir_value *v, bool sense, struct ir_check *out)
{
    while (v->def && (v->def->code == IR_OP_NOT || v->def->code == IR_OP_RESHAPE ||
                      v->def->code == IR_OP_CAST)) {
        if (v->def->code == IR_OP_NOT) sense = !sense;
        v = ir_operand(v->def, 0);
    }
    if (!v->def || v->def->n_operands != 2) return false;
    enum ir_opcode op = v->def->code;
    const struct known *a = known_of(n->im, ir_operand(v->def, 0)),
                       *b = known_of(n->im, ir_operand(v->def, 1));
    if (!a || !b || a->n != 1 || b->n != 1 || !a->e[0].num || !b->e[0].num || a->e[0].den ||
        b->e[0].den)
        return false;
    const struct dim *x = a->e[0].num, *y = b->e[0].num;
    if (op == IR_OP_GT || op == IR_OP_GE) { /* x > y is y < x */
        const struct dim *swap = x;
        x = y, y = swap;
        op = op == IR_OP_GT ? IR_OP_LT : IR_OP_LE;
    }
    *out = (struct ir_check){.a = x, .b = y, .is_le = op == IR_OP_LE || op == IR_OP_LT};
    if (op == IR_OP_EQ || op == IR_OP_NE) return sense == (op == IR_OP_EQ);
    if (op != IR_OP_LT && op != IR_OP_LE) return false;
    if (sense) out->a = op == IR_OP_LT ? dim_addc(n->d, x, 1) : x;
    else out->a = op == IR_OP_LT ? y : dim_addc(n->d, y, 1), out->b = x;
    return true;
}

/*
 * Branches of different types whose condition is about shapes: one of them is meant by the rest of
 * the graph. Takes the branch that this attempt of the import is to try, and makes the condition
 * part of the engine's contract.
 */
static bool specialise(struct onode *n, struct ir_value *cond, const Onnx__Graph *const *branch)
{
    struct ir_check c;
    bool can[2] = {condition_check(n, cond, true, &c), condition_check(n, cond, false, &c)};
    if (!can[0] && !can[1]) return false;
    int choice = can[0] && can[1] ? onnx_choose(n->im) : can[0] ? 0 : 1;
    condition_check(n, cond, choice == 0, &c);
    struct strbuf s = {0};
    dim_print(&s, c.a);
    strbuf_puts(&s, c.is_le ? " <= " : " == ");
    dim_print(&s, c.b);
    c.message = arena_printf(&n->m->arena, "%s: only %s is compiled", n->loc, strbuf_get(&s));
    diag_warn(
        n->im->diag, DIAG_ONNX_DYNAMIC, n->loc,
        "If: the branches give different types; only the %s_branch is compiled, for shapes with %s",
        choice ? "else" : "then", strbuf_get(&s));
    strbuf_deinit(&s);
    vec_push(&n->m->arena, &n->m->checks, c);
    return inline_branch(n, branch[choice]);
}

bool onnx_if(struct onode *n)
{
    const Onnx__Graph *branch[2] = {at_graph(n, "then_branch"), at_graph(n, "else_branch")};
    struct ir_value *cond = on_in(n, 0);
    if (n->failed) return false;
    if (!branch[0] || !branch[1]) return on_fail(n, DIAG_ONNX_ATTR, "If without two branches");
    if (cond->type.dtype != DT_BOOL)
        return on_fail(n, DIAG_DTYPE_MISMATCH, "If: the condition is %s",
                       dtype_name(cond->type.dtype));
    int64_t elems;
    if (!ir_type_static_elems(&cond->type, &elems) || elems != 1)
        return on_fail(n, DIAG_SHAPE_MISMATCH, "If: the condition must have one element, whatever the inputs' sizes are");
    const struct known *k = known_of(n->im, cond);
    if (k && k->n == 1 && k->e[0].num && dim_is_const(k->e[0].num))
        return inline_branch(n, branch[k->e[0].num->value ? 0 : 1]);
    struct ir_op *op = ir_op_create(n->m, IR_OP_IF, 1, &cond, (int)n->p->n_output, n->b->loc);
    struct ir_value **values[2];
    struct ir_block *blocks[2];
    size_t checks = n->m->checks.n;
    for (int i = 0; i < 2; i++) {
        values[i] = on_alloc(n, n->p->n_output + 1, sizeof *values[i]);
        blocks[i] = import_region(n, op, branch[i], values[i]);
        ir_op_add_region(n->m, op, blocks[i]);
    }
    if (n->failed) return false;
    for (size_t i = 0; i < n->p->n_output; i++) {
        if (same_type(values[0][i], values[1][i])) continue;
        n->m->checks.n = checks;
        return specialise(n, cond, branch) || say_different(n, values[0][i], values[1][i], i);
    }
    for (int i = 0; i < 2; i++)
        ir_block_append(blocks[i], ir_op_create(n->m, IR_OP_YIELD, (int)n->p->n_output, values[i],
                                                0, n->b->loc));
    for (size_t i = 0; i < n->p->n_output; i++) {
        ir_result(op, (int)i)->type = values[0][i]->type;
        n->out[i] = ir_result(op, (int)i);
    }
    ir_block_append(n->b->block, op);
    return true;
}
