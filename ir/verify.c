// SPDX-License-Identifier: Apache-2.0
/*
 * The invariants of tensor IR:
 *
 *  1. A module has a function; function names differ. Symbols have ranges that are not empty; the
 *     dims of checks do not overflow.
 *  2. A function has as many inputs as its body has arguments and as many outputs as its `return`
 *     has operands; names of inputs differ, so do those of outputs; a default has its input's
 *     dtype and rank.
 *  3. Blocks, ops, values and uses point at each other consistently; value ids are unique and below
 *     next_id.
 *  4. A block ends in its only terminator: `return` in a function's body, `yield` in a region.
 *  5. An operand is defined earlier in the same block or in an enclosing one; inside a `group`,
 *     only in its own block.
 *  6. Counts of operands, results and regions and the attributes are what the op table says.
 *  7. Types have a known dtype, at most IR_MAX_RANK dims, and are what the op's infer function
 *     says.
 *  8. A state input is not optional; `kv_write` writes to one, or to the result of another kv_write,
 *     through group arguments; what it writes to has no other use.
 *  9. Constants that are referred to belong to the module, have constant dims, and as many bytes as
 *     their type takes.
 *
 * Linear in the size of the module but for inference. Result types and the module's checks are left as they were.
 */
#include <stdlib.h>
#include <string.h>

#include "ir/op.h"
#include "ir/parse_internal.h"
#include "ir/text.h"

#define MAX_DEPTH 64

struct verifier {
    struct ir_module *m;
    struct diag_sink *diag;
    struct arena scratch;
    uint32_t
        *level; /* by value id: 1 + region depth of its definition while it is visible, else 0 */
    bool *seen; /* by value id: defined somewhere already */
    uint32_t barrier; /* values of a lower level are hidden by a group */
};

static bool fail(struct verifier *v, const struct ir_op *op, const char *what)
{
    if (!op) return diag_report(v->diag, DIAG_IR_VERIFY, v->m->name, "%s", what);
    struct strbuf s = {0};
    ir_print_op(&s, op);
    diag_report(v->diag, DIAG_IR_VERIFY, op->loc ? op->loc->text : NULL, "%s, in `%.300s`", what,
                strbuf_get(&s));
    strbuf_deinit(&s);
    return false;
}

/* ---- values ---- */

static bool check_type(struct verifier *v, const struct ir_op *op, const struct ir_type *t)
{
    if ((unsigned)t->dtype >= DT_COUNT || t->dtype == DT_NONE)
        return fail(v, op, "a value has no element type");
    if (t->rank < 0 || t->rank > IR_MAX_RANK) return fail(v, op, "a value's rank is out of range");
    for (int i = 0; i < t->rank; i++) {
        if (!t->dims[i] || t->dims[i]->kind == DIM_OVERFLOW)
            return fail(v, op, "a value's dim overflows");
        if (t->dims[i]->hi < 0) return fail(v, op, "a value's dim is negative");
    }
    return true;
}

static bool define(struct verifier *v, const struct ir_op *op, const struct ir_value *x,
                   uint32_t level)
{
    if (x->id >= v->m->next_id) return fail(v, op, "a value's id is beyond the module's next_id");
    if (v->seen[x->id]) return fail(v, op, "two values have one id");
    v->seen[x->id] = true;
    v->level[x->id] = level;
    return check_type(v, op, &x->type);
}

static bool check_operand(struct verifier *v, const struct ir_op *op, int i)
{
    const struct ir_use *u = &op->operands[i];
    if (!u->value) return true; /* whether it may be left out is the op table's business */
    if (u->user != op || (u->prev ? u->prev->next != u : u->value->uses != u) ||
        (u->next && u->next->prev != u))
        return fail(v, op, "an operand is not on its value's list of uses");
    if (u->value->id >= v->m->next_id || v->level[u->value->id] == 0)
        return fail(v, op, "an operand is not defined before its use");
    if (v->level[u->value->id] < v->barrier)
        return fail(v, op, "a group uses a value from outside of its block");
    return true;
}

/* ---- state ---- */

/* Does v hold state: an input that is marked so, or what a kv_write made of one? */
static bool is_state(const struct ir_value *v, int depth)
{
    for (; depth < MAX_DEPTH; depth++) {
        if (v->def) {
            if (v->def->code == IR_OP_KV_WRITE) return true;
            if (v->def->code != IR_OP_GROUP) return false;
            const struct ir_op *yield = v->def->regions[0]->last;
            if (!yield || v->index >= yield->n_operands || !(v = ir_operand(yield, v->index))) return false;
        } else if (v->block->parent_op) {
            const struct ir_op *group = v->block->parent_op;
            if (group->code != IR_OP_GROUP || v->index >= group->n_operands) return false;
            if (!(v = ir_operand(group, v->index))) return false;
        } else {
            return v->index < v->block->func->n_inputs && v->block->func->input_state[v->index];
        }
    }
    return false;
}

static bool check_state(struct verifier *v, const struct ir_op *op)
{
    const struct ir_value *to = op->code == IR_OP_KV_WRITE ? ir_operand(op, 0) : NULL;
    if (!to) return true;
    if (!is_state(to, 0)) return fail(v, op, "operand 0 is not state");
    while (ir_value_has_one_use(to)) {
        const struct ir_op *group = to->def ? NULL : to->block->parent_op;
        if (!group || group->code != IR_OP_GROUP) return true;
        to = ir_operand(group, to->index);
    }
    return fail(v, op, "the state that is written to has another use");
}

/* ---- ops ---- */

static bool check_consts(struct verifier *v, const struct ir_op *op)
{
    for (int i = 0; i < op->n_attrs; i++) {
        const struct ir_const *c = op->attrs[i].kind == IR_ATTR_CONST ? op->attrs[i].c : NULL;
        if (op->attrs[i].kind != IR_ATTR_CONST) continue;
        if (!c || c->id >= v->m->consts.n || v->m->consts.v[c->id] != c)
            return fail(v, op, "a constant does not belong to the module");
    }
    return true;
}

/* Infers again and compares; the op keeps its types. */
static bool check_inference(struct verifier *v, struct ir_op *op)
{
    struct ir_type *kept = ARENA_ARRAY(&v->scratch, struct ir_type, op->n_results);
    for (int i = 0; i < op->n_results; i++) kept[i] = op->results[i].type;
    size_t errors = v->diag->error_count;
    struct diag_sink *own = v->m->diag;
    v->m->diag = v->diag;
    bool ok = ir_op_info(op->code)->infer(v->m, op);
    v->m->diag = own;
    INFC_ASSERT(ok || v->diag->error_count > errors);
    for (int i = 0; i < op->n_results; i++) {
        struct ir_type inferred = op->results[i].type;
        op->results[i].type = kept[i];
        if (ok && !parse_same_type(v->m, &inferred, &kept[i])) {
            struct strbuf s = {0};
            strbuf_printf(&s, "result %d should be ", i);
            ir_print_type(&s, &inferred);
            ok = fail(v, op, strbuf_get(&s));
            strbuf_deinit(&s);
        }
    }
    return ok;
}

static bool check_block(struct verifier *v, struct ir_block *b, const struct ir_func *f,
                        struct ir_op *parent, uint32_t depth);

static bool check_regions(struct verifier *v, struct ir_op *op, const struct ir_func *f,
                          uint32_t depth)
{
    uint32_t outer = v->barrier;
    bool ok = true;
    if (op->code == IR_OP_GROUP) v->barrier = depth + 2; /* the level of its own block's values */
    for (int r = 0; r < op->n_regions && ok; r++)
        ok = check_block(v, op->regions[r], f, op, depth + 1);
    v->barrier = outer;
    return ok;
}

static bool check_op(struct verifier *v, struct ir_op *op, const struct ir_func *f, uint32_t depth)
{
    bool ok = true;
    for (int i = 0; i < op->n_operands; i++) ok = check_operand(v, op, i) && ok;
    for (int i = 0; i < op->n_results; i++)
        if (op->results[i].def != op || op->results[i].index != i)
            return fail(v, op, "a result does not point back at its op");
    /* Inside first: inference looks at what regions yield. */
    ok = ok && check_consts(v, op) && check_regions(v, op, f, depth) && check_inference(v, op) &&
         check_state(v, op);
    for (int i = 0; i < op->n_results; i++) ok = define(v, op, &op->results[i], depth + 1) && ok;
    return ok;
}

static void hide(struct verifier *v, const struct ir_value *x)
{
    if (x->id < v->m->next_id) v->level[x->id] = 0;
}

static bool check_block(struct verifier *v, struct ir_block *b, const struct ir_func *f,
                        struct ir_op *parent, uint32_t depth)
{
    enum ir_opcode terminator = parent ? IR_OP_YIELD : IR_OP_RETURN;
    bool ok = true;
    if (depth > MAX_DEPTH) return fail(v, parent, "regions are nested too deeply");
    if (b->parent_op != parent || b->func != f)
        return fail(v, parent, "a block does not point back at its owner");
    for (int i = 0; i < b->n_args; i++) {
        if (b->args[i]->block != b || b->args[i]->index != i || b->args[i]->def)
            return fail(v, parent, "a block argument does not point back at its block");
        ok = define(v, parent, b->args[i], depth + 1) && ok;
    }
    if (!b->last || b->last->code != terminator)
        ok = fail(v, b->last ? b->last : parent, "a block does not end in its terminator");
    for (struct ir_op *op = b->first, *prev = NULL; op; prev = op, op = op->next) {
        if (op->block != b || op->prev != prev || (!op->next && b->last != op) ||
            (unsigned)op->code >= IR_OP_COUNT)
            return fail(v, parent, "a block's list of ops is broken");
        if (op != b->last && ir_op_traits(op) & IR_T_TERM)
            ok = fail(v, op, "a terminator is not at the end");
        if (op->code == IR_OP_PROBE && parent) ok = fail(v, op, "a probe is not in a function's body");
        ok = check_op(v, op, f, depth) && ok;
    }
    for (int i = 0; i < b->n_args; i++) hide(v, b->args[i]);
    for (struct ir_op *op = b->first; op; op = op->next)
        for (int i = 0; i < op->n_results; i++) hide(v, &op->results[i]);
    return ok;
}

/* ---- functions and the module ---- */

static bool names_differ(struct verifier *v, int n, const char *const *names)
{
    struct map seen;
    map_init(&seen, &v->scratch);
    for (int i = 0; i < n; i++)
        if (!names[i] || map_puts(&seen, names[i], v)) return false;
    return true;
}

static bool check_inputs(struct verifier *v, const struct ir_func *f)
{
    if (f->n_inputs != f->body->n_args)
        return fail(v, NULL, "a function's inputs are not its body's arguments");
    if (!names_differ(v, f->n_inputs, f->input_names))
        return fail(v, NULL, "two inputs have one name");
    if (!names_differ(v, f->n_outputs, f->output_names))
        return fail(v, NULL, "two outputs have one name");
    for (int i = 0; i < f->n_inputs; i++) {
        const struct ir_const *c = f->input_default[i];
        if (f->input_state[i] && (f->input_optional[i] || c)) return fail(v, NULL, "a state input has a default");
        if (f->input_optional[i] && !c) return fail(v, NULL, "an optional input has no default");
        if (!c) continue;
        if (c->id >= v->m->consts.n || v->m->consts.v[c->id] != c)
            return fail(v, NULL, "an input's default does not belong to the module");
        if (c->type.dtype != f->body->args[i]->type.dtype ||
            c->type.rank != f->body->args[i]->type.rank)
            return fail(v, NULL, "an input's default does not have its type");
    }
    return true;
}

static bool check_func(struct verifier *v, struct ir_func *f)
{
    if (f->module != v->m) return fail(v, NULL, "a function does not point back at its module");
    bool ok = check_inputs(v, f);
    if (!check_block(v, f->body, f, NULL, 0)) return false;
    if (f->body->last->n_operands != f->n_outputs)
        return fail(v, f->body->last,
                    "a function does not return as many values as it has outputs");
    return ok;
}

static bool check_header(struct verifier *v)
{
    const struct ir_module *m = v->m;
    bool ok = true;
    if (m->funcs.n == 0) return fail(v, NULL, "the module has no function");
    for (size_t i = 0; i < dim_sym_count(m->dims); i++) {
        const struct dim *s = dim_sym_at(m->dims, i);
        if (s->lo > s->hi)
            ok = diag_report(v->diag, DIAG_IR_VERIFY, m->name, "the range of symbol `%s` is empty",
                             s->name);
    }
    for (size_t i = 0; i < m->checks.n; i++)
        if (m->checks.v[i].a->kind == DIM_OVERFLOW || m->checks.v[i].b->kind == DIM_OVERFLOW)
            ok = diag_report(v->diag, DIAG_IR_VERIFY, m->name, "a check overflows: %s",
                             m->checks.v[i].message);
    struct map seen;
    map_init(&seen, &v->scratch);
    for (size_t i = 0; i < m->funcs.n; i++)
        if (map_puts(&seen, m->funcs.v[i]->name, v))
            ok = fail(v, NULL, "two functions have one name");
    return ok;
}

bool ir_verify_module(struct ir_module *m, struct diag_sink *diag)
{
    struct verifier v = {.m = m, .diag = diag};
    arena_init(&v.scratch);
    v.level = ARENA_ARRAY(&v.scratch, uint32_t, m->next_id);
    v.seen = ARENA_ARRAY(&v.scratch, bool, m->next_id);
    size_t n_checks = m->checks.n;
    bool ok = check_header(&v);
    for (size_t i = 0; i < m->funcs.n; i++) ok = check_func(&v, m->funcs.v[i]) && ok;
    m->checks.n = n_checks; /* infer finds again what is checked already, here or in a branch */
    arena_deinit(&v.scratch);
    return ok;
}
