// SPDX-License-Identifier: Apache-2.0
/*
 * What is compared: a process that runs calls on command (docs/bench.md has the protocol: engines speak it with `bench
 * --loop`), or a command that is run once a call and whose wall time counts.
 */
#ifndef INFC_COMPILER_BENCH_CHILD_H
#define INFC_COMPILER_BENCH_CHILD_H

#include <stdio.h>
#include <sys/types.h>

#include "ir/support/diag.h"

enum { BENCH_MAX_METRICS = 4 };

struct bench_metric {
    char name[32];
    bool higher_is_better;
};

struct bench_child {
    const char *name;        /* for messages and tables */
    const char *const *argv; /* of the process; NULL: run_once */
    const char *run_once;    /* a shell command, run once a call */
    pid_t pid;
    FILE *in, *out;          /* its standard input and output, as we see them: we write in, read out */
    int n_metrics;
    struct bench_metric metrics[BENCH_MAX_METRICS];
    long peak_kb, private_kb; /* memory, -1: not known; filled by child_close and child_memory */
};

/* Starts the process and waits until it is ready. */
bool child_open(struct bench_child *c, struct diag_sink *diag);
/* n calls: figures gets n * n_metrics values. */
bool child_calls(struct bench_child *c, size_t n, double *figures, struct diag_sink *diag);
/* Reads its memory from /proc while it lives. */
void child_memory(struct bench_child *c);
/* Ends it; fine on one that was never opened. */
void child_close(struct bench_child *c);
/* Seconds of a clock that only goes forward. */
double bench_now(void);

#endif
