// SPDX-License-Identifier: Apache-2.0
/*
 * Common subexpressions: equal opcode, operands and attributes give one op. Scoped by block: an `if` branch sees the
 * enclosing block's ops. Constants of equal type and content are one. Requires and preserves verified IR. Cost: linear in
 * ops plus the bytes of constants below 64 KiB (bigger ones only compare by address).
 */
#include <string.h>

#include "ir/op.h"
#include "passes/pass.h"

#define MAX_CONST_BYTES ((size_t)64 * 1024)

static void key_const(struct strbuf *k, const struct ir_const *c)
{
    strbuf_printf(k, "c%d e%p r%d ", (int)c->type.dtype, (const void *)c->type.enc, c->type.rank);
    for (int i = 0; i < c->type.rank; i++) strbuf_printf(k, "%p ", (const void *)c->type.dims[i]);
    if (c->part) strbuf_printf(k, "part %u", c->id); /* has no bytes yet */
    else if (c->n_bytes > MAX_CONST_BYTES) strbuf_printf(k, "at %p", c->data);
    else strbuf_putn(k, c->data, c->n_bytes);
    strbuf_printf(k, " s%d", c->splat);
}

static void key_attr(struct strbuf *k, const struct ir_attr *a)
{
    strbuf_printf(k, "|%s:%d:%d=", a->name, (int)a->kind, a->count);
    switch (a->kind) {
    case IR_ATTR_INT: case IR_ATTR_DTYPE: strbuf_printf(k, "%lld", (long long)a->i); break;
    case IR_ATTR_FLOAT: strbuf_putn(k, (const char *)&a->f, sizeof a->f); break;
    case IR_ATTR_STRING: strbuf_puts(k, a->s); break;
    case IR_ATTR_INTS: strbuf_putn(k, (const char *)a->ints, (size_t)a->count * sizeof *a->ints); break;
    case IR_ATTR_FLOATS: strbuf_putn(k, (const char *)a->floats, (size_t)a->count * sizeof *a->floats); break;
    case IR_ATTR_DIMS: strbuf_putn(k, (const char *)a->dims, (size_t)a->count * sizeof *a->dims); break;
    case IR_ATTR_CONST: key_const(k, a->c); break;
    }
}

/* The map of one scope: block op keys to ops; lookups go outwards. */
struct scope {
    struct map ops;
    struct scope *outer;
};

static void run_block(struct arena *a, struct ir_block *b, struct scope *outer)
{
    struct scope s = {.outer = outer};
    map_init(&s.ops, a);
    struct strbuf k = {0};
    for (struct ir_op *op = b->first, *next; op; op = next) {
        next = op->next;
        for (int r = 0; r < op->n_regions; r++) run_block(a, op->regions[r], &s);
        if (op->n_regions || (ir_op_traits(op) & IR_T_TERM) || ir_op_has_effect(op)) continue;
        k.len = 0;
        strbuf_printf(&k, "%d", (int)op->code);
        for (int i = 0; i < op->n_operands; i++) strbuf_printf(&k, ",%d", ir_operand(op, i) ? (int)ir_operand(op, i)->id : -1);
        for (int i = 0; i < op->n_attrs; i++) key_attr(&k, &op->attrs[i]);
        struct ir_op *same = NULL;
        for (struct scope *o = &s; o && !same; o = o->outer) same = map_find(&o->ops, k.data, k.len);
        if (!same) {
            map_put(&s.ops, k.data, k.len, op);
            continue;
        }
        for (int i = 0; i < op->n_results; i++) ir_value_replace_uses(&op->results[i], &same->results[i]);
        ir_op_erase(op);
    }
    strbuf_deinit(&k);
}

bool pass_cse(struct ir_module *m, struct diag_sink *diag)
{
    (void)diag;
    struct arena a;
    arena_init(&a);
    for (size_t i = 0; i < m->funcs.n; i++) run_block(&a, m->funcs.v[i]->body, NULL);
    arena_deinit(&a);
    return true;
}
