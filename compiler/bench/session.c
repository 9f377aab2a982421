// SPDX-License-Identifier: Apache-2.0
#define _POSIX_C_SOURCE 200809L
#include "compiler/bench/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/abi/random.h"

enum { MAX_BURST = 100000, SERVER_QUERIES = 100, SERVER_STEPS = 8, SETTLE_NS = 500000 };

/* Lets the workers of the variant before stop looking for work. */
static void settle(void)
{
    nanosleep(&(struct timespec){.tv_nsec = SETTLE_NS}, NULL);
}

static void wait_until(double t)
{
    double left = t - bench_now();
    if (left > 1e-3) {
        left -= 2e-4; /* the rest is awaited awake */
        nanosleep(&(struct timespec){.tv_sec = (time_t)left, .tv_nsec = (long)(1e9 * (left - floor(left)))}, NULL);
    }
    while (bench_now() < t) {}
}

bool bench_server(struct bench_child *c, double qps, size_t n, uint64_t seed, uint32_t stream, double *latency_ms, struct diag_sink *diag)
{
    double arrival = bench_now(), figures[BENCH_MAX_METRICS];
    for (size_t i = 0; i < n; i++) {
        double u = (infr_random_float(seed, stream, i) + 1) / 2; /* [0, 1) */
        arrival += -log(1 - u) / qps;
        wait_until(arrival);
        if (!child_calls(c, 1, figures, diag)) return false;
        latency_ms[i] = 1e3 * (bench_now() - arrival);
    }
    return true;
}

/* What a variant is judged by in this scenario. */
static void scenario_metrics(const struct bench_session *s, struct bench_variant *v)
{
    v->n_metrics = 1;
    switch (s->o->scenario) {
    case BENCH_SINGLE_STREAM:
        v->n_metrics = v->child.n_metrics;
        memcpy(v->metrics, v->child.metrics, sizeof v->metrics);
        break;
    case BENCH_MULTI_STREAM: v->metrics[0] = (struct bench_metric){.name = "query_ms"}; break;
    case BENCH_OFFLINE: v->metrics[0] = (struct bench_metric){.name = "samples_per_s", .higher_is_better = true}; break;
    case BENCH_SERVER:
        v->metrics[0] = s->o->qps > 0 ? (struct bench_metric){.name = "latency_ms"} : (struct bench_metric){.name = "max_qps", .higher_is_better = true};
        break;
    }
}

/* Calls for about warm_up_s; leaves the time of one call in call_s. */
static bool warm_up(struct bench_session *s, struct bench_variant *v)
{
    double figures[BENCH_MAX_METRICS], start = bench_now(), least = 0;
    for (int i = 0; i < 2 || (bench_now() - start < s->o->warm_up_s && i < 100000); i++) {
        double t = bench_now();
        if (!child_calls(&v->child, 1, figures, s->diag)) return false;
        t = bench_now() - t;
        if (i && (!least || t < least)) least = t; /* the first one touches the weights */
    }
    v->call_s = least > 0 ? least : 1e-6;
    return true;
}

/* The most queries a second whose 99th percentile keeps the bound, within 3%. */
static bool find_qps(struct bench_session *s, struct bench_variant *v, double *qps)
{
    double low = 0, high = 1.1 / v->call_s, ms[SERVER_QUERIES];
    for (int step = 0; step < SERVER_STEPS; step++) {
        double at = low > 0 ? (low + high) / 2 : high / 2;
        if (!bench_server(&v->child, at, SERVER_QUERIES, s->o->seed, (uint32_t)step, ms, s->diag)) return false;
        stats_sort(ms, SERVER_QUERIES);
        if (stats_percentile(ms, SERVER_QUERIES, 99) <= s->bound_ms) low = at;
        else high = at;
        if (high - low < 0.03 * high) break;
    }
    *qps = low > 0 ? low : high / 1e3;
    return true;
}

/* One burst: figures gets at most `cap` samples of n_metrics values. */
static bool burst(struct bench_session *s, struct bench_variant *v, size_t cap, double *figures, size_t *n)
{
    const struct bench_options *o = s->o;
    double *sink = NULL;
    size_t calls = (size_t)(o->burst_s / v->call_s);
    if (calls < 1) calls = 1;
    if (calls > cap) calls = cap;
    bool ok = true;
    switch (o->scenario) {
    case BENCH_SINGLE_STREAM: *n = calls; v->calls += calls; return child_calls(&v->child, calls, figures, s->diag);
    case BENCH_SERVER:
        if (o->qps > 0) {
            *n = calls;
            v->calls += calls;
            return bench_server(&v->child, o->qps, calls, o->seed, (uint32_t)s->rounds, figures, s->diag);
        }
        *n = 1;
        return find_qps(s, v, figures);
    case BENCH_OFFLINE: case BENCH_MULTI_STREAM: break;
    }
    size_t per = o->scenario == BENCH_OFFLINE ? calls : (size_t)o->per_query;
    *n = o->scenario == BENCH_OFFLINE ? 1 : (calls + per - 1) / per;
    sink = malloc(per * (size_t)v->child.n_metrics * sizeof *sink);
    for (size_t i = 0; ok && i < *n; i++) {
        double t = bench_now();
        ok = sink && child_calls(&v->child, per, sink, s->diag);
        t = bench_now() - t;
        figures[i] = o->scenario == BENCH_OFFLINE ? (double)per / t : 1e3 * t;
        v->calls += per;
    }
    free(sink);
    return ok;
}

static bool keep_burst(struct bench_session *s, struct bench_variant *v, double *figures)
{
    size_t n = 0;
    double before = machine_energy_joules();
    if (!burst(s, v, MAX_BURST, figures, &n)) return false;
    double used = machine_energy_joules() - before;
    if (before >= 0 && used >= 0 && v->joules >= 0) v->joules += used;
    double *column = malloc(n * sizeof *column);
    if (!column) return diag_report(s->diag, DIAG_ENVIRONMENT, v->child.name, "no memory");
    for (int k = 0; k < v->n_metrics; k++) {
        for (size_t i = 0; i < n; i++) {
            column[i] = figures[i * (size_t)v->n_metrics + (size_t)k];
            vec_push(s->arena, &v->samples[k], column[i]);
        }
        double median = stats_median(column, n);
        vec_push(s->arena, &v->rounds[k], median);
    }
    free(column);
    return true;
}

static bool measure_rounds(struct bench_session *s)
{
    double *figures = malloc((size_t)MAX_BURST * BENCH_MAX_METRICS * sizeof *figures), start = bench_now();
    bool ok = figures || diag_report(s->diag, DIAG_ENVIRONMENT, NULL, "no memory");
    while (ok && s->rounds < s->o->max_rounds && (s->rounds < s->o->min_rounds || bench_now() - start < s->o->seconds * s->n)) {
        for (int i = 0; ok && i < s->n; i++) {
            settle();
            ok = keep_burst(s, &s->v[s->rounds % 2 ? s->n - 1 - i : i], figures);
        }
        s->rounds++;
    }
    free(figures);
    return ok;
}

/* Ratios within rounds, turned so that more is slower. */
static void summarise(struct bench_session *s)
{
    const struct bench_variant *a = &s->v[0];
    size_t n = (size_t)s->rounds;
    double *ratios = ARENA_ARRAY(s->arena, double, n), *scratch = ARENA_ARRAY(s->arena, double, n + BENCH_RESAMPLES);
    for (int i = 1; i < s->n; i++)
        for (int k = 0; k < s->v[i].n_metrics && k < a->n_metrics; k++) {
            for (size_t r = 0; r < n; r++) {
                double x = a->rounds[k].v[r], y = s->v[i].rounds[k].v[r];
                ratios[r] = a->metrics[k].higher_is_better ? x / y : y / x;
            }
            s->v[i].slower[k] = stats_median_interval(ratios, n, BENCH_CONFIDENCE, BENCH_RESAMPLES, s->o->seed, scratch);
        }
}

static bool same_metrics(const struct bench_session *s, const struct bench_variant *v)
{
    const struct bench_variant *a = &s->v[0];
    bool same = a->n_metrics == v->n_metrics;
    for (int k = 0; same && k < a->n_metrics; k++)
        same = !strcmp(a->metrics[k].name, v->metrics[k].name) && a->metrics[k].higher_is_better == v->metrics[k].higher_is_better;
    return same || diag_report(s->diag, DIAG_OPTION, v->child.name, "it measures other things than %s: the two cannot be compared", a->child.name);
}

bool bench_measure(struct bench_session *s)
{
    bool ok = true;
    for (int i = 0; ok && i < s->n; i++) {
        struct bench_variant *v = &s->v[i];
        v->joules = machine_energy_joules() < 0 ? -1 : 0;
        ok = child_open(&v->child, s->diag);
        if (ok) scenario_metrics(s, v);
        ok = ok && same_metrics(s, v) && warm_up(s, v);
    }
    s->bound_ms = s->o->bound_ms > 0 ? s->o->bound_ms : 1e4 * s->v[0].call_s;
    ok = ok && measure_rounds(s);
    if (ok) summarise(s);
    for (int i = 0; i < s->n; i++) {
        child_memory(&s->v[i].child);
        child_close(&s->v[i].child);
    }
    return ok;
}
