// SPDX-License-Identifier: Apache-2.0
/* What the choice of Winograd convolutions (winograd.c) and their schedule (lower_winograd.c) agree on. */
#ifndef INFC_PASSES_WINOGRAD_H
#define INFC_PASSES_WINOGRAD_H

#include "ir/winograd.h"
#include "passes/pass.h"

/* Does the schedule take such a convolution? channels-last, f32, 3x3 taps of constant weights, stride 1, one group. */
bool winograd_fits(const struct ir_op *conv);

/* Tiles of m x m outputs that cover the result; a size that only a call knows is worth its symbols at 512, or the nearest they can be. */
int64_t winograd_tiles(struct ir_module *m, const struct ir_op *conv, int size);

/*
 * How the three steps follow each other. In blocks: a slice transforms some tiles, multiplies them by all weights and writes
 * its outputs; what it makes in between stays in the second-level cache, the weights are read once a block. Else each step is a
 * launch over all tiles: the weights are read once, the transforms go through memory.
 */
bool winograd_in_blocks(int size, int64_t tiles, int64_t c, int64_t o);

/* Columns of a panel of weights, and the most tiles of a block, a multiple of mr. */
int winograd_panel(int64_t o);
int64_t winograd_block(int size, int64_t c, int64_t o, int64_t mr);

#endif
