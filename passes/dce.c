// SPDX-License-Identifier: Apache-2.0
/*
 * Dead code: removes ops without uses, last to first, also in regions. Requires and preserves verified IR; breaks nothing.
 * What has an effect (ir_op_has_effect) stays. Cost: linear.
 */
#include "ir/op.h"
#include "passes/pass.h"

static void clean(struct ir_block *b)
{
    for (struct ir_op *op = b->last, *prev; op; op = prev) {
        prev = op->prev;
        for (int r = 0; r < op->n_regions; r++) clean(op->regions[r]);
        bool used = (ir_op_traits(op) & IR_T_TERM) != 0 || ir_op_has_effect(op);
        for (int i = 0; i < op->n_results; i++) used = used || op->results[i].uses;
        if (used) continue;
        /* The ops of a dead region hold uses of outer values: drop them too. */
        for (int r = 0; r < op->n_regions; r++)
            while (op->regions[r]->last) ir_op_erase(op->regions[r]->last);
        ir_op_erase(op);
    }
}

bool pass_dce(struct ir_module *m, struct diag_sink *diag)
{
    (void)diag;
    for (size_t i = 0; i < m->funcs.n; i++) clean(m->funcs.v[i]->body);
    return true;
}
