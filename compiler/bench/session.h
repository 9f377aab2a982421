// SPDX-License-Identifier: Apache-2.0
/*
 * One session of `infc bench`: variants are measured in turn, in short bursts, so that whatever changes on the machine
 * meanwhile meets all of them. A round is a burst of each; the order is turned around from round to round. Ratios are taken
 * within rounds and only then summarised.
 */
#ifndef INFC_COMPILER_BENCH_SESSION_H
#define INFC_COMPILER_BENCH_SESSION_H

#include "compiler/bench/child.h"
#include "compiler/bench/machine.h"
#include "compiler/bench/stats.h"

enum bench_scenario { BENCH_SINGLE_STREAM, BENCH_MULTI_STREAM, BENCH_OFFLINE, BENCH_SERVER };

enum { BENCH_MAX_VARIANTS = 8, BENCH_RESAMPLES = 2000 };
#define BENCH_CONFIDENCE 0.95

typedef VEC(double) bench_samples;

struct bench_variant {
    struct bench_child child;
    const char *path;  /* of the engine's file, NULL for other commands */
    const char *const *words; /* further arguments of the engine, n_words */
    int n_words;
    int n_metrics;     /* of the scenario: those of the child, or one of our own */
    struct bench_metric metrics[BENCH_MAX_METRICS];
    bench_samples samples[BENCH_MAX_METRICS]; /* all of them, in the order of measuring */
    bench_samples rounds[BENCH_MAX_METRICS];  /* a round: the median of its samples */
    double call_s;     /* of one call, about; from the warm-up */
    double joules;     /* over all its bursts; -1: not known */
    uint64_t calls;
    uint64_t file_bytes;
    double error;      /* greatest |difference| from the first variant's outputs / their scale; -1: not compared */
    const char *error_note; /* why not compared */
    /* time of this variant / time of the first one, > 1 is slower; a metric */
    struct stats_interval slower[BENCH_MAX_METRICS];
    double achieved_flops_s, achieved_bytes_s; /* --roofline, 0: not known */
};

struct bench_options {
    enum bench_scenario scenario;
    double seconds;   /* a variant */
    double burst_s, warm_up_s;
    int64_t min_rounds, max_rounds;
    uint64_t seed;
    int64_t per_query; /* samples of a query of the multi-stream scenario */
    double qps;        /* of the server scenario; 0: look for the most */
    double bound_ms;   /* latency that 99 of 100 queries must keep; 0: ten times the median */
};

struct bench_session {
    const struct bench_options *o;
    struct diag_sink *diag;
    struct arena *arena;
    struct bench_variant v[BENCH_MAX_VARIANTS];
    int n, rounds;
    double bound_ms; /* server: that was asked for */
};

/* Opens all variants, warms them up, measures, summarises, closes them. False after a diagnostic. */
bool bench_measure(struct bench_session *s);

/*
 * The queue of the server scenario by itself: queries arrive at `qps` (exponential gaps, seeded), wait for those before them, and
 * each is a call. latency_ms gets n values.
 */
bool bench_server(struct bench_child *c, double qps, size_t n, uint64_t seed, uint32_t stream, double *latency_ms, struct diag_sink *diag);

#endif
