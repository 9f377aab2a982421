// SPDX-License-Identifier: Apache-2.0
#include "compiler/bench/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/abi/random.h"

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

void stats_sort(double *v, size_t n) { qsort(v, n, sizeof *v, by_value); }

double stats_percentile(const double *sorted, size_t n, double p)
{
    double rank = ceil(p / 100 * (double)n);
    size_t i = rank < 1 ? 0 : (size_t)rank - 1;
    return sorted[i < n ? i : n - 1];
}

double stats_median(double *v, size_t n)
{
    stats_sort(v, n);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

double stats_geometric_mean(const double *v, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += log(v[i]);
    return n ? exp(sum / (double)n) : 0;
}

struct stats_interval stats_median_interval(const double *v, size_t n, double confidence, size_t resamples, uint64_t seed, double *scratch)
{
    double *sample = scratch, *medians = scratch + n;
    for (size_t r = 0; r < resamples; r++) {
        for (size_t i = 0; i < n; i++) sample[i] = v[infr_random_int(seed, (uint32_t)r, i, (int64_t)n)];
        medians[r] = stats_median(sample, n);
    }
    stats_sort(medians, resamples);
    memcpy(sample, v, n * sizeof *v);
    double tail = 100 * (1 - confidence) / 2;
    return (struct stats_interval){stats_median(sample, n), stats_percentile(medians, resamples, tail),
                                   stats_percentile(medians, resamples, 100 - tail)};
}
