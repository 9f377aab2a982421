// SPDX-License-Identifier: Apache-2.0
/* Statistics of `infc bench` on samples whose answers are computed by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "compiler/bench/stats.h"
#include "runtime/abi/random.h"

#define CLOSE(a, b) assert_true(fabs((a) - (double)(b)) <= 1e-12 * (1 + fabs((double)(b))))

static void test_percentiles(void **state)
{
    (void)state;
    const double v[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    CLOSE(stats_percentile(v, 10, 0), 1);
    CLOSE(stats_percentile(v, 10, 50), 5);  /* rank 5 of 10 */
    CLOSE(stats_percentile(v, 10, 51), 6);  /* rank ceil(5.1) = 6 */
    CLOSE(stats_percentile(v, 10, 90), 9);
    CLOSE(stats_percentile(v, 10, 99), 10); /* rank ceil(9.9) = 10 */
    CLOSE(stats_percentile(v, 10, 100), 10);
    CLOSE(stats_percentile(v, 1, 50), 1);
}

static void test_median(void **state)
{
    (void)state;
    double odd[] = {5, 1, 3}, even[] = {4, 1, 3, 2}, one[] = {7};
    CLOSE(stats_median(odd, 3), 3);
    CLOSE(stats_median(even, 4), 2.5);
    CLOSE(stats_median(one, 1), 7);
}

static void test_geometric_mean(void **state)
{
    (void)state;
    const double v[] = {1, 4, 16}; /* cube root of 64 */
    CLOSE(stats_geometric_mean(v, 3), 4);
    CLOSE(stats_geometric_mean(v, 0), 0);
}

/*
 * Of three values {1, 2, 3} the median of a resample is 1 when two or three draws are 1: (1 + 3 * 2) / 27 = 7/27; likewise 3; and 2
 * in 13/27. With tails of 2.5% the interval is [1, 3]; with tails of 30% (> 7/27 = 25.9%) it is [2, 2].
 */
static void test_bootstrap_of_three(void **state)
{
    (void)state;
    static double scratch[3 + 20000];
    const double v[] = {3, 1, 2};
    struct stats_interval i = stats_median_interval(v, 3, 0.95, 20000, 1, scratch);
    CLOSE(i.estimate, 2);
    CLOSE(i.low, 1);
    CLOSE(i.high, 3);
    i = stats_median_interval(v, 3, 0.40, 20000, 1, scratch);
    CLOSE(i.low, 2);
    CLOSE(i.high, 2);
    CLOSE(v[0], 3); /* v is left alone */
}

static void test_bootstrap_is_seeded(void **state)
{
    (void)state;
    double v[40], scratch[40 + 200];
    for (int i = 0; i < 40; i++) v[i] = infr_random_float(3, 0, (uint64_t)i);
    struct stats_interval a = stats_median_interval(v, 40, 0.95, 200, 9, scratch), b = stats_median_interval(v, 40, 0.95, 200, 9, scratch);
    CLOSE(a.low, b.low);
    CLOSE(a.high, b.high);
    assert_true(a.low <= a.estimate && a.estimate <= a.high);
}

static void test_bootstrap_of_equal_values(void **state)
{
    (void)state;
    double v[10], scratch[10 + 100];
    for (int i = 0; i < 10; i++) v[i] = 1.25;
    struct stats_interval a = stats_median_interval(v, 10, 0.99, 100, 1, scratch);
    CLOSE(a.low, 1.25);
    CLOSE(a.high, 1.25);
}

/* Coverage: the 95% interval of the median of uniform values in [0, 2) holds 1 about 95 times in a hundred. */
static void test_bootstrap_coverage(void **state)
{
    (void)state;
    double v[51], scratch[51 + 400];
    int inside = 0;
    for (uint32_t t = 0; t < 400; t++) {
        for (int i = 0; i < 51; i++) v[i] = 1 + infr_random_float(77, t, (uint64_t)i);
        struct stats_interval a = stats_median_interval(v, 51, 0.95, 400, t, scratch);
        inside += a.low <= 1 && 1 <= a.high;
    }
    assert_in_range(inside, 400 * 90 / 100, 400 * 99 / 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_percentiles),       cmocka_unit_test(test_median),
        cmocka_unit_test(test_geometric_mean),    cmocka_unit_test(test_bootstrap_of_three),
        cmocka_unit_test(test_bootstrap_is_seeded), cmocka_unit_test(test_bootstrap_of_equal_values),
        cmocka_unit_test(test_bootstrap_coverage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
