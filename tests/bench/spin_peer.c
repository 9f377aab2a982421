// SPDX-License-Identifier: Apache-2.0
/*
 * A peer for `infc bench --loop-peer` whose work is known: each call is a chain of N dependent multiply-adds. The statistics
 * of infc bench are checked with it (tests/bench/stat_check.sh): N against N, and N against 1.03 N.
 *
 * usage: spin_peer N
 */
#include <stdio.h>
#include <stdlib.h>

#include "compiler/bench/child.h"

static volatile double sink;

static double call(long n)
{
    double t = bench_now(), x = 0.5;
    for (long i = 0; i < n; i++) x = x * 0.999 + 0.001;
    sink = x;
    return 1e3 * (bench_now() - t);
}

int main(int argc, char **argv)
{
    long n = argc == 2 ? atol(argv[1]) : 0;
    char line[64];
    if (n < 1) {
        fputs("usage: spin_peer N\n", stderr);
        return 2;
    }
    puts("infc-bench 1 latency_ms:lower");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        for (long calls = atol(line); calls > 0; calls--) printf("%.9g\n", call(n));
        fflush(stdout);
    }
    return 0;
}
