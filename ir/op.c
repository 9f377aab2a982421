// SPDX-License-Identifier: Apache-2.0
/* The op table as data. */
#include "ir/op.h"

#include <string.h>

#include "ir/infer.h"

#define OP(ID, name, min_operands, max_operands, n_results, traits, infer, doc)                    \
    static bool run_infer_##ID(struct ir_module *m, struct ir_op *op)                              \
    {                                                                                              \
        return infer_check(m, op) && infer_##infer(m, op);                                         \
    }
#include "ir/ops.def"
#undef OP

static const struct ir_op_info table[] = {
#define OP(ID, name, min_operands, max_operands, n_results, traits, infer, doc)                    \
    {#name, min_operands, max_operands, n_results, traits, doc, run_infer_##ID},
#include "ir/ops.def"
#undef OP
};

_Static_assert(ARRAY_LEN(table) == IR_OP_COUNT, "one row an opcode");

const struct ir_op_info *ir_op_info(enum ir_opcode code)
{
    INFC_ASSERT((unsigned)code < IR_OP_COUNT);
    return &table[code];
}

bool ir_op_has_effect(const struct ir_op *op)
{
    if ((ir_op_traits(op) & IR_T_STATE) || op->code == IR_OP_CHECK || op->code == IR_OP_PROBE) return true;
    for (int r = 0; r < op->n_regions; r++)
        for (const struct ir_op *inner = op->regions[r]->first; inner; inner = inner->next)
            if (ir_op_has_effect(inner)) return true;
    return false;
}

enum ir_opcode ir_opcode_find(const char *name, size_t len)
{
    for (int i = 0; i < IR_OP_COUNT; i++)
        if (strlen(table[i].name) == len && !memcmp(table[i].name, name, len))
            return (enum ir_opcode)i;
    return IR_OP_COUNT;
}
