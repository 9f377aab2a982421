// SPDX-License-Identifier: Apache-2.0
/* What the schedules of attention over a paged cache share: passes/lower_attention.c (GPUs), lower_attention_rows.c (CPUs). */
#ifndef INFC_PASSES_LOWER_ATTENTION_H
#define INFC_PASSES_LOWER_ATTENTION_H

#include "passes/lower.h"

struct attention_shape {
    int64_t page, d, dv;
    int heads;                /* query heads a kv head */
    bool nibbles;             /* both caches: two elements a byte */
    int64_t k_block, v_block; /* elements that share a scale; 0: the cache holds floats */
};

/* False: not all sizes are known, or none that schedules serve. */
bool attention_shape_of(const struct ir_op *op, struct attention_shape *out);

/* Views the buffers of K and of its scales (-1: none) as they lie in a page. */
void attention_layout(struct lower_ctx *l, int k, int k_scale);

#endif
