// SPDX-License-Identifier: Apache-2.0
/*
 * Activations in whole steps: the left side of every matmul by a block-quantised weight is rounded to 12 bits (or 8) a row, so
 * that passes/quant.c can make an integer product of it. The module's metadata `lm.act` says how many: i12, i8; else nothing
 * is done.
 *
 *   matmul(x, w: q4_1 f32[N, K]) trans_b=1   ->   matmul(round_rows(x) max=2032, w) trans_b=1
 *
 * 2032 = 16 * 127: such a number is also two signed bytes, 16 h + l. One rounding serves all matmuls of a block that read
 * x. Requires: verified IR without groups. Cost: linear.
 */
#include <string.h>

#include "ir/build.h"
#include "ir/encoding.h"
#include "passes/blocks.h"
#include "passes/pass.h"

static int steps(const struct ir_module *m)
{
    for (size_t i = 0; i < m->meta_keys.n; i++) {
        if (strcmp(m->meta_keys.v[i], "lm.act")) continue;
        if (!strcmp(m->meta_values.v[i], "i12")) return 2032;
        if (!strcmp(m->meta_values.v[i], "i8")) return 127;
    }
    return 0;
}

static bool has_rounding(const struct ir_block *b)
{
    for (const struct ir_op *op = b->first; op; op = op->next) {
        if (op->code == IR_OP_ROUND_ROWS) return true;
        for (int r = 0; r < op->n_regions; r++)
            if (has_rounding(op->regions[r])) return true;
    }
    return false;
}

bool blocks_fit(const struct ir_op *op)
{
    if (op->code != IR_OP_MATMUL || !ir_attr_int(op, "trans_b", 0) || ir_attr_int(op, "trans_a", 0)) return false;
    const struct ir_value *x = ir_operand(op, 0);
    const struct ir_const *c = ir_value_const(ir_operand(op, 1));
    if (!c || !c->type.enc || c->type.rank != 2 || x->type.dtype != DT_F32 || x->type.rank < 2 || op->results[0].type.dtype != DT_F32)
        return false;
    const struct ir_encoding *e = ir_const_encoding(c);
    return e && e->group_elems && e->group_elems % 8 == 0 && e->group_elems <= 256;
}

static void run_block(struct ir_module *m, struct ir_block *b, int max, struct arena *scratch)
{
    struct map done; /* value id -> its rounding in this block */
    map_init(&done, scratch);
    for (struct ir_op *op = b->first; op; op = op->next) {
        for (int r = 0; r < op->n_regions; r++) run_block(m, op->regions[r], max, scratch);
        if (!blocks_fit(op)) continue;
        struct ir_value *x = ir_operand(op, 0), *rounded = map_find(&done, &x->id, sizeof x->id);
        if (x->def && x->def->code == IR_OP_ROUND_ROWS) continue; /* text IR of after this pass */
        if (!rounded) {
            struct ir_builder at = {.m = m, .block = b, .before = op, .loc = op->loc};
            struct ir_attr a = ir_a_int("max", max);
            rounded = &ir_build(&at, IR_OP_ROUND_ROWS, 1, &x, 1, &a, 1)->results[0];
            map_put(&done, &x->id, sizeof x->id, rounded);
        }
        ir_op_set_operand(op, 0, rounded);
    }
}

bool pass_act(struct ir_module *m, struct diag_sink *diag)
{
    (void)diag;
    int max = m->precision == DT_NONE ? steps(m) : 0; /* --prec has a rounding of its own */
    if (!max) return true;
    struct arena scratch;
    arena_init(&scratch);
    for (size_t i = 0; i < m->funcs.n; i++) run_block(m, m->funcs.v[i]->body, max, &scratch);
    arena_deinit(&scratch);
    return true;
}

static void undo_block(struct ir_block *b)
{
    for (struct ir_op *op = b->first, *next; op; op = next) {
        next = op->next;
        for (int r = 0; r < op->n_regions; r++) undo_block(op->regions[r]);
        if (op->code != IR_OP_ROUND_ROWS) continue;
        ir_value_replace_uses(&op->results[0], ir_operand(op, 0));
        ir_op_erase(op);
    }
}

void act_undo(struct ir_module *m)
{
    for (size_t i = 0; i < m->funcs.n; i++) undo_block(m->funcs.v[i]->body);
}

bool act_is_done(const struct ir_module *m)
{
    for (size_t i = 0; i < m->funcs.n; i++)
        if (has_rounding(m->funcs.v[i]->body)) return true;
    return false;
}
