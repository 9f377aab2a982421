// SPDX-License-Identifier: Apache-2.0
#include "passes/tile_shape.h"

#define MAX_MR 14
#define UNKNOWN_ROWS 4096 /* stands for a number of rows that only a call knows */

/*
 * Cost of one row of v vectors for one k: the multiply-adds of the tile (at least the eight that hide their latency), plus a
 * share of its loads: they go to other ports, but wait for the second-level cache now and then.
 */
static double step_cost(int mr, int v)
{
    double fmas = mr * v, loads = mr + v, latency = 8.0;
    return ((fmas > latency ? fmas : latency) + 0.35 * loads) / (mr * v);
}

/* Cost of n rows by tiles of m. */
static double rows_cost(int64_t n, int m, int v)
{
    double tail = n % m ? step_cost((int)(n % m), v) * (double)(n % m) : 0;
    return step_cost(m, v) * (double)(n - n % m) + tail;
}

static int64_t row_count(const struct dim *rows) { return dim_is_const(rows) ? rows->value : UNKNOWN_ROWS; }

/* The most rows that go with v vectors. */
static int most_rows(const struct target_level *level, int v, bool pairwise)
{
    int regs = level->n_vector_regs, most = pairwise ? (regs - 2) / (2 * v) : (regs - 2 - v) / v;
    return most > MAX_MR ? MAX_MR : most;
}

void tile_shape(const struct target_level *level, int elem_bytes, int panel, const struct dim *rows, bool pairwise, int *mr,
                int *nr)
{
    int lanes = level->vector_bytes / elem_bytes;
    int64_t n = row_count(rows);
    double best = 0;
    *mr = 1, *nr = panel < lanes ? panel : lanes;
    for (int v = 1; v <= 4 && v * lanes <= panel; v *= 2)
        for (int m = 1; m <= most_rows(level, v, pairwise) && (m <= n || m == 1); m++) {
            double cost = rows_cost(n, m, v);
            if (best != 0 && cost >= best * 0.995) continue;
            best = cost, *mr = m, *nr = v * lanes;
        }
}

int tile_shapes(const struct target_level *level, int elem_bytes, int panel, const struct dim *rows, bool pairwise,
                struct tile_choice *out, int most)
{
    int lanes = level->vector_bytes / elem_bytes, count = 0;
    int64_t n = row_count(rows);
    for (int v = 1; v <= 4 && v * lanes <= panel; v *= 2)
        for (int m = 1; m <= most_rows(level, v, pairwise) && (m <= n || m == 1); m++) {
            struct tile_choice c = {m, v * lanes, rows_cost(n, m, v)};
            int at = count < most ? count++ : most;
            for (; at > 0 && out[at - 1].cost > c.cost; at--)
                if (at < most) out[at] = out[at - 1];
            if (at < most) out[at] = c;
        }
    while (count > 1 && out[count - 1].cost > 1.5 * out[0].cost) count--;
    return count;
}

bool tile_fits(const struct target_level *level, int elem_bytes, int panel, const struct dim *rows, bool pairwise, int mr, int nr)
{
    int lanes = level->vector_bytes / elem_bytes, v = nr / lanes;
    if (mr < 1 || v < 1 || v > 4 || nr % lanes || panel % nr) return false;
    return mr <= most_rows(level, v, pairwise) && (mr == 1 || mr <= row_count(rows));
}
