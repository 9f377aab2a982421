// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/bench_loop.h"
#include "runtime/cli.h"

enum { WARM_UP_RUNS = 3, MAX_RUNS = 1000000 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int one_run(struct cli_engine *x)
{
    struct infr_status st;
    for (uint32_t o = 0; o < x->e->n_outputs; o++) x->out[o].data = NULL;
    return infr_session_run(x->s, x->in, x->out, &st) ? cli_error(&st) : INFR_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Nearest rank: the smallest time that at least p of 100 runs did not exceed. */
static double percentile(const double *sorted, size_t n, double p)
{
    size_t rank = (size_t)(p / 100 * (double)n + 0.999999);
    return sorted[rank < 1 ? 0 : rank > n ? n - 1 : rank - 1];
}

struct times {
    double *ms; /* sorted */
    size_t n;
    double mean, total_s;
};

static int measure(struct cli *c, struct cli_engine *x, struct times *t)
{
    size_t most = c->repeat_given ? (size_t)c->repeat : MAX_RUNS;
    int code = 0;
    if (most > MAX_RUNS) most = MAX_RUNS;
    t->ms = malloc(most * sizeof *t->ms);
    if (!t->ms) return INFR_ENVIRONMENT;
    double warm = now();
    for (int i = 0;
         !code && (i < WARM_UP_RUNS || now() - warm < (c->repeat_given ? 0 : c->seconds / 10)); i++)
        code = one_run(x);
    double start = now();
    while (!code && t->n < most && (c->repeat_given || !t->n || now() - start < c->seconds)) {
        double a = now();
        code = one_run(x);
        t->ms[t->n++] = 1e3 * (now() - a);
    }
    t->total_s = now() - start;
    for (size_t i = 0; i < t->n; i++) t->mean += t->ms[i] / (double)t->n;
    qsort(t->ms, t->n, sizeof *t->ms, by_value);
    return code;
}

/* "x f32[1,8], y i64[1]" */
static void inputs_text(const struct cli_engine *x, char *out, size_t cap)
{
    size_t n = 0;
    out[0] = 0;
    for (uint32_t i = 0; i < x->e->n_inputs && n < cap; i++) {
        char text[128];
        if (!x->in[i].data) continue;
        rt_tensor_text(x->in[i].dtype, x->in[i].rank, x->in[i].dims, text, sizeof text);
        n += (size_t)snprintf(out + n, cap - n, "%s%s %s", n ? ", " : "",
                              rt_text(x->e, x->e->inputs[i].name), text);
    }
}

static void report(struct cli *c, const struct cli_engine *x, const struct times *t)
{
    static const struct {
        const char *name;
        double p;
    } rows[] = {{"min", 0}, {"p50", 50}, {"p90", 90}, {"p99", 99}, {"max", 100}};
    char inputs[512];
    struct json j = {.f = stdout};
    inputs_text(x, inputs, sizeof inputs);
    if (!c->json) {
        printf("%s: %s, %u threads, %zu runs\ninputs: %s\n", rt_text(x->e, x->e->h.model_name),
               infr_engine_isa(x->e), infr_engine_threads(x->e), t->n, inputs);
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
            printf("%-5s %10.4f ms\n", rows[i].name, percentile(t->ms, t->n, rows[i].p));
        printf("mean  %10.4f ms\n%.1f runs a second\n", t->mean, (double)t->n / t->total_s);
        return;
    }
    json_open(&j, NULL, '{');
    json_string(&j, "model", rt_text(x->e, x->e->h.model_name));
    json_string(&j, "level", infr_engine_isa(x->e));
    json_int(&j, "threads", infr_engine_threads(x->e));
    json_string(&j, "inputs", inputs);
    json_int(&j, "runs", (int64_t)t->n);
    json_open(&j, "latency_ms", '{');
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        json_number(&j, rows[i].name, percentile(t->ms, t->n, rows[i].p));
    json_number(&j, "mean", t->mean);
    json_close(&j, '}');
    json_number(&j, "runs_per_second", (double)t->n / t->total_s);
    json_close(&j, '}');
    putchar('\n');
}

static int timed_run(void *context, double *ms)
{
    double a = now();
    int code = one_run(context);
    *ms = 1e3 * (now() - a);
    return code;
}

int cmd_bench(struct cli *c)
{
    struct cli_engine x;
    struct times t = {0};
    int code = cli_open(c, &x);
    if (code) return code;
    code = cli_load_inputs(c, &x, true);
    if (!code && c->loop) {
        code = bench_loop("latency_ms:lower", 1, timed_run, &x);
    } else {
        if (!code) code = measure(c, &x, &t);
        if (!code) report(c, &x, &t);
    }
    free(t.ms);
    cli_close(&x);
    return code;
}
