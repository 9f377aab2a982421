// SPDX-License-Identifier: Apache-2.0
/*
 * Minimal filtering (Winograd; for convolutions Lavin & Gray, "Fast Algorithms for Convolutional Neural Networks", 2015): m outputs
 * of a filter of 3 taps from m + 2 products, and, nested, a tile of m x m outputs of 3x3 taps from (m + 2)^2.
 *
 *   Y = A' [ (G g G') o (B' d B) ] A       d: the tile's (m + 2)^2 pixels, g: the taps, o: elementwise, summed over channels
 *
 * Made by interpolation (Toom and Cook) through m + 1 points and infinity. Points for m = 4 are 0, +-5/8, +-3/2: A' and B'
 * are exact in f32, points come in pairs of either sign, which share half of their work, and rounding errors (rms, of sums of
 * 256 channels) are 4.4 times those of a direct sum, where 0, +-1, +-2 make it 9.3. For m = 2: 0, +-1; 1.5 times.
 */
#ifndef INFC_IR_WINOGRAD_H
#define INFC_IR_WINOGRAD_H

#include "ir/support/compiler.h"

#include <stdbool.h>
#include <stdint.h>

enum { WINOGRAD_MAX_M = 4, WINOGRAD_MAX_T = 6, WINOGRAD_TAPS = 3 };

struct winograd {
    int m, t; /* outputs and pixels of a tile along an axis, t = m + 2: also the number of points */
    double at[WINOGRAD_MAX_M][WINOGRAD_MAX_T], g[WINOGRAD_MAX_T][WINOGRAD_TAPS], bt[WINOGRAD_MAX_T][WINOGRAD_MAX_T];
};

/* m: 2 or 4. Rows 1 and 2 of bt (3 and 4 with m = 4), and columns of at, belong to points +p and -p. */
struct winograd winograd_make(int m);

/* The weight of products at point (a, b), number a * t + b, from 3x3 taps: rounded to f32 once. */
float winograd_weight(const struct winograd *w, int point, const float *taps);

/*
 * What the transforms cost in accuracy, measured: greatest errors of some outputs by F(m x m) in f32 and by direct sums in f32 against
 * f64, over the greatest output. weights f32[o, c, 3, 3]; pixels are random (normal about 0, of unit variance, the negative ones 0:
 * behind a ReLU). m = 0: only the direct sums. Deterministic. Cost: some 10^6 products for 256 channels.
 */
void winograd_error(int m, const float *weights, int64_t o, int64_t c, double *by_tiles, double *direct);

#endif
