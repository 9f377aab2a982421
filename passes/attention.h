// SPDX-License-Identifier: Apache-2.0
/*
 * Attention in plain ops, as ONNX graphs say it:
 *
 *   %s = matmul %q, %k          q [.., M, D], k [.., D, N] (or trans_b)
 *   %t = .. %s ..               pointwise ops of s's shape: scale, mask, soft cap
 *   %p = softmax %t             along the last axis
 *   %y = matmul %p, %v          v [.., N, E]
 *
 * with transposes on the way in of q, k and v and on the way out of y that nothing else reads. passes/group.c makes one group
 * of it for CPUs (ir_module.for_cpus), which passes/lower_attention_dense.c lowers: the two must agree on what fits.
 */
#ifndef INFC_PASSES_ATTENTION_H
#define INFC_PASSES_ATTENTION_H

#include "ir/module.h"

#define ATTENTION_MAX_OPS 32
#define ATTENTION_MAX_DEPTH 256 /* D and E, whose sums lie in a worker's memory */
#define ATTENTION_MIN_ROWS 4    /* M: rows are the lanes of a vector */

struct attention_ops {
    struct ir_op *qk, *softmax, *pv;
    struct ir_value *root;                /* y, or what its transpose makes of it */
    struct ir_op *all[ATTENTION_MAX_OPS]; /* operands before users */
    int n;
};

/* The pattern around a softmax; false: it is none, or not one for this schedule. */
bool attention_match(struct ir_op *softmax, struct attention_ops *out);

#endif
