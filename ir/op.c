// SPDX-License-Identifier: Apache-2.0
/* The op table as data. */
#include "ir/op.h"

#include <string.h>

static const struct ir_op_info table[] = {
#define OP(ID, name, min_operands, max_operands, n_results, traits, infer, doc) \
    {#name, min_operands, max_operands, n_results, traits, doc, NULL},
#include "ir/ops.def"
#undef OP
};

_Static_assert(ARRAY_LEN(table) == IR_OP_COUNT, "one row an opcode");

const struct ir_op_info *ir_op_info(enum ir_opcode code)
{
    INFC_ASSERT((unsigned)code < IR_OP_COUNT);
    return &table[code];
}

enum ir_opcode ir_opcode_find(const char *name, size_t len)
{
    for (int i = 0; i < IR_OP_COUNT; i++)
        if (strlen(table[i].name) == len && !memcmp(table[i].name, name, len)) return (enum ir_opcode)i;
    return IR_OP_COUNT;
}
