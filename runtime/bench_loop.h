// SPDX-License-Identifier: Apache-2.0
/*
 * The measuring side of `infc bench`: a process that is ready says so in one line, and for every
 * line with a number N makes N calls and answers with N lines of figures. docs/bench.md has the protocol.
 */
#ifndef INFC_RUNTIME_BENCH_LOOP_H
#define INFC_RUNTIME_BENCH_LOOP_H

/*
 * metrics: "name:lower name:higher ..", n_metrics of them, better when lower or higher. call fills
 * that many figures and returns a status. Returns at the end of standard input.
 */
int bench_loop(const char *metrics, int n_metrics, int (*call)(void *context, double *figures),
               void *context);

#endif
