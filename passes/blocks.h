// SPDX-License-Identifier: Apache-2.0
/* What passes/act.c and passes/quant.c agree on, and how the schedule reads an op's blocks. */
#ifndef INFC_PASSES_BLOCKS_H
#define INFC_PASSES_BLOCKS_H

#include "ir/blocks.h"
#include "ir/module.h"

/* A matmul by a constant in a block format that an integer product can take. */
bool blocks_fit(const struct ir_op *op);

/* The description in the attributes of qmatmul_int and qgather_blocks. */
static inline struct blocks blocks_of(const struct ir_op *op)
{
    return (struct blocks){.group = (int)ir_attr_int(op, "group", 32), .nibbles = ir_attr_int(op, "nibbles", 0),
                           .wide = ir_attr_int(op, "wide", 0), .has_min = ir_attr_int(op, "min", 0),
                           .zero = (int)ir_attr_int(op, "zero", 0), .high = (int)ir_attr_int(op, "high", 0)};
}

#endif
