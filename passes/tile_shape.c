// SPDX-License-Identifier: Apache-2.0
#include "passes/tile_shape.h"

#define MAX_MR 14

/*
 * Cost of one row of v vectors for one k: the multiply-adds of the tile (at least the eight that hide their latency), plus a
 * share of its loads: they go to other ports, but wait for the second-level cache now and then.
 */
static double step_cost(int mr, int v)
{
    double fmas = mr * v, loads = mr + v, latency = 8.0;
    return ((fmas > latency ? fmas : latency) + 0.35 * loads) / (mr * v);
}

void tile_shape(const struct target_level *level, int elem_bytes, int panel, const struct dim *rows, bool pairwise, int *mr,
                int *nr)
{
    int lanes = level->vector_bytes / elem_bytes, regs = level->n_vector_regs;
    double best = 0;
    *mr = 1, *nr = panel < lanes ? panel : lanes;
    for (int v = 1; v <= 4 && v * lanes <= panel; v *= 2) {
        int most = pairwise ? (regs - 2) / (2 * v) : (regs - 2 - v) / v;
        if (most > MAX_MR) most = MAX_MR;
        for (int m = 1; m <= most; m++) {
            int64_t n = dim_is_const(rows) ? rows->value : 4096;
            if (m > n && m > 1) break;
            double tail = dim_is_const(rows) && n % m ? step_cost((int)(n % m), v) * (double)(n % m) : 0;
            double cost = step_cost(m, v) * (double)(n - n % m) + tail;
            if (best != 0 && cost >= best * 0.995) continue;
            best = cost, *mr = m, *nr = v * lanes;
        }
    }
}
