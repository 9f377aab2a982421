// SPDX-License-Identifier: Apache-2.0
/* Register tile shapes of matmul and convolution. */
#ifndef INFC_PASSES_TILE_SHAPE_H
#define INFC_PASSES_TILE_SHAPE_H

#include "ir/target.h"

/*
 * MR rows by NR columns for `rows` rows (a dim) and panels of `panel` columns (NR divides it), accumulators of elem_bytes.
 * One accumulator row takes NR / lanes registers; the right operand takes as many again, the left one a register, and one
 * is left over: MR * v + v + 1 <= registers - 1, else the register allocator spills. Among the shapes that fit, the one
 * with the least work: padded rows times the loads and multiply-adds of one step. pairwise: no left broadcast (depthwise), both
 * operands are tiles of that shape.
 */
void tile_shape(const struct target_level *level, int elem_bytes, int panel, const struct dim *rows, bool pairwise, int *mr,
                int *nr);

struct tile_choice {
    int mr, nr;
    double cost;
};

/* The shapes that the same model holds for the best, cheapest first: at most `most` of those within a half more of the least cost. */
int tile_shapes(const struct target_level *level, int elem_bytes, int panel, const struct dim *rows, bool pairwise,
                struct tile_choice *out, int most);

/* Does this shape fit into the registers of the level, the panel and the number of rows? */
bool tile_fits(const struct target_level *level, int elem_bytes, int panel, const struct dim *rows, bool pairwise, int mr, int nr);

#endif
