// SPDX-License-Identifier: Apache-2.0
/* Statistics of measurements: order statistics and the bootstrap. Nothing here measures. */
#ifndef INFC_COMPILER_BENCH_STATS_H
#define INFC_COMPILER_BENCH_STATS_H

#include <stddef.h>
#include <stdint.h>

/* Sorts in place. */
void stats_sort(double *v, size_t n);
/* Nearest rank: the smallest value that at least p of 100 values do not exceed. v sorted, n > 0. */
double stats_percentile(const double *sorted, size_t n, double p);
/* Sorts v; the mean of the two middle values when n is even. n > 0. */
double stats_median(double *v, size_t n);
double stats_geometric_mean(const double *v, size_t n);

struct stats_interval {
    double estimate, low, high;
};

/*
 * Median of v with its bootstrap percentile interval (Efron 1979): `resamples` samples of n values drawn with replacement
 * by a counter-based generator, so that the same seed gives the same interval. confidence such as 0.95. scratch: n +
 * resamples doubles. n > 0. O(resamples * n log n).
 */
struct stats_interval stats_median_interval(const double *v, size_t n, double confidence, size_t resamples, uint64_t seed, double *scratch);

#endif
