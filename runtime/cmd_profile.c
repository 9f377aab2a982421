// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/cli.h"
#include "runtime/status.h"

enum { WARM_UP_RUNS = 2, MAX_RUNS = 100000, MAX_EVENTS = 1 << 18 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool with_events(struct infr_session *s, struct rt_profile *p)
{
    p->n_workers = (uint32_t)infr_engine_threads(s->e);
    p->event_cap = MAX_EVENTS / p->n_workers;
    p->events = calloc((size_t)p->n_workers * p->event_cap, sizeof *p->events);
    p->n_events = calloc(p->n_workers, sizeof *p->n_events);
    return p->events && p->n_events;
}

int cli_profile_start(struct infr_session *s, bool trace, struct infr_status *st)
{
    struct rt_profile *p = calloc(1, sizeof *p);
    size_t n = (size_t)s->e->n_launches + 1;
    if (p) {
        p->ns = calloc(n, sizeof *p->ns);
        p->calls = calloc(n, sizeof *p->calls);
    }
    if (p && p->ns && p->calls && (!trace || with_events(s, p))) {
        s->profile = p; /* freed with the session */
        return INFR_OK;
    }
    rt_profile_free(p);
    return rt_fail_memory(st, "the profile", n * sizeof(uint64_t));
}

static int one_run(struct cli_engine *x)
{
    struct infr_status st;
    for (uint32_t o = 0; o < x->e->n_outputs; o++) x->out[o].data = NULL;
    return infr_session_run(x->s, x->in, x->out, &st) ? cli_error(&st) : INFR_OK;
}

static int measure(struct cli *c, struct cli_engine *x, long *runs)
{
    struct infr_status st;
    int code = 0;
    for (int i = 0; !code && i < WARM_UP_RUNS; i++) code = one_run(x);
    if (!code && cli_profile_start(x->s, c->trace, &st)) return cli_error(&st);
    double start = now();
    for (*runs = 0; !code && *runs < MAX_RUNS; ++*runs) {
        if (c->repeat_given ? *runs == c->repeat : *runs && now() - start > c->seconds) break;
        code = one_run(x);
    }
    return code;
}

struct row {
    uint32_t launch;
    uint64_t ns;
};

static int by_time(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    if (x->ns != y->ns) return x->ns < y->ns ? 1 : -1;
    return x->launch < y->launch ? -1 : x->launch > y->launch;
}

/* Work of one call at the current shape, or -1 where the compiler does not know. */
static double work_of(const struct cli_engine *x, const struct rt_shape *shape, uint32_t dim_row)
{
    (void)x;
    return dim_row == INFR_NONE ? -1 : (double)shape->dim[dim_row];
}

static const struct rt_shape *last_shape(const struct infr_session *s)
{
    const struct rt_shape *last = &s->shapes[0];
    for (int i = 1; i < RT_KEPT_SHAPES; i++)
        if (s->shapes[i].used > last->used) last = &s->shapes[i];
    return last;
}

static void print_row(const struct cli_engine *x, const struct row *r, uint64_t sum, double us,
                      double gflops, double gbytes)
{
    const struct infr_launch *l = &x->e->launches[r->launch];
    char flops[24] = "-", bytes[24] = "-";
    if (gflops >= 0) snprintf(flops, sizeof flops, "%.1f", gflops);
    if (gbytes >= 0) snprintf(bytes, sizeof bytes, "%.1f", gbytes);
    printf("%5.1f%% %10.1f %9s %9s  %-28s %-16s %.160s\n",
           sum ? 100.0 * (double)r->ns / (double)sum : 0, us, flops, bytes, rt_text(x->e, l->name),
           l->schedule ? rt_text(x->e, l->schedule) : "generic", rt_text(x->e, l->loc));
}

static void json_row(struct json *j, const struct cli_engine *x, const struct row *r, uint64_t sum,
                     double us, double flops, double bytes)
{
    const struct infr_launch *l = &x->e->launches[r->launch];
    json_open(j, NULL, '{');
    json_int(j, "launch", r->launch);
    json_string(j, "name", rt_text(x->e, l->name));
    json_string(j, "kernel", rt_text(x->e, x->e->kernels[l->kernel].symbol));
    json_string(j, "schedule", l->schedule ? rt_text(x->e, l->schedule) : "generic");
    json_string(j, "loc", rt_text(x->e, l->loc));
    json_int(j, "calls", x->s->profile->calls[r->launch]);
    json_number(j, "us_per_call", us);
    json_number(j, "share", sum ? (double)r->ns / (double)sum : 0);
    if (flops >= 0) json_number(j, "flops", flops);
    if (bytes >= 0) json_number(j, "bytes", bytes);
    json_close(j, '}');
}

static void report(const struct cli_engine *x, struct row *rows, long runs, bool json)
{
    const struct rt_profile *p = x->s->profile;
    const struct rt_shape *shape = last_shape(x->s);
    struct json j = {.f = stdout};
    uint64_t sum = 0;
    for (uint32_t i = 0; i < x->e->n_launches; i++) {
        rows[i] = (struct row){i, p->ns[i]};
        sum += p->ns[i];
    }
    qsort(rows, x->e->n_launches, sizeof *rows, by_time);
    double run_us = 1e-3 * (double)p->total_ns / (double)runs;
    if (json) {
        json_open(&j, NULL, '{');
        json_string(&j, "model", rt_text(x->e, x->e->h.model_name));
        json_string(&j, "level", infr_engine_isa(x->e));
        json_int(&j, "threads", infr_engine_threads(x->e));
        json_int(&j, "runs", runs);
        json_number(&j, "us_per_run", run_us);
        json_int(&j, "arena_bytes", (int64_t)shape->arena_bytes);
        json_int(&j, "arena_sum_bytes", (int64_t)shape->sum_bytes);
        json_open(&j, "launches", '[');
    } else {
        printf(
            "%s: %s, %u threads, %ld runs of %.1f us; arena %llu bytes (sum of all buffers %llu)\n",
            rt_text(x->e, x->e->h.model_name), infr_engine_isa(x->e), infr_engine_threads(x->e),
            runs, run_us, (unsigned long long)shape->arena_bytes,
            (unsigned long long)shape->sum_bytes);
        printf("%6s %10s %9s %9s  %-28s %-16s %s\n", "share", "us/call", "GFLOP/s", "GB/s",
               "launch", "schedule", "nodes");
    }
    for (uint32_t i = 0; i < x->e->n_launches; i++) {
        const struct infr_launch *l = &x->e->launches[rows[i].launch];
        uint32_t calls = p->calls[rows[i].launch];
        double us = calls ? 1e-3 * (double)rows[i].ns / calls : 0,
               flops = work_of(x, shape, l->flops), bytes = work_of(x, shape, l->bytes);
        if (json) json_row(&j, x, &rows[i], sum, us, flops, bytes);
        else if (calls)
            print_row(x, &rows[i], sum, us, us > 0 ? flops / us / 1e3 : -1,
                      us > 0 ? bytes / us / 1e3 : -1);
    }
    if (!json) return;
    json_close(&j, ']');
    json_close(&j, '}');
    putchar('\n');
}

int cli_profile_report(struct infr_session *s, long runs, bool json)
{
    struct cli_engine x = {.e = s->e, .s = s};
    struct row *rows = calloc((size_t)x.e->n_launches + 1, sizeof *rows);
    if (!rows) return INFR_ENVIRONMENT;
    report(&x, rows, runs, json);
    free(rows);
    return INFR_OK;
}

static void json_event(struct json *j, const struct infr_engine *e, const struct rt_event *v,
                       uint32_t worker, uint64_t origin)
{
    const struct infr_launch *l = &e->launches[v->launch];
    json_open(j, NULL, '{');
    json_string(j, "name", rt_text(e, l->name));
    json_string(j, "cat", l->schedule ? rt_text(e, l->schedule) : "generic");
    json_string(j, "ph", "X");
    json_int(j, "pid", 1);
    json_int(j, "tid", worker);
    json_number(j, "ts", 1e-3 * (double)(v->start - origin));
    json_number(j, "dur", 1e-3 * (double)(v->end - v->start));
    json_open(j, "args", '{');
    json_string(j, "nodes", rt_text(e, l->loc));
    json_string(j, "kernel", rt_text(e, e->kernels[l->kernel].symbol));
    json_int(j, "launch", v->launch);
    json_close(j, '}');
    json_close(j, '}');
}

int cli_profile_trace(struct infr_session *s, const char *path)
{
    const struct rt_profile *p = s->profile;
    FILE *f = fopen(path, "w");
    struct json j = {.f = f};
    uint64_t origin = UINT64_MAX;
    bool dropped = false;
    if (!f) return cli_usage("%s: %s", path, strerror(errno)), INFR_ENVIRONMENT;
    for (uint32_t w = 0; w < p->n_workers; w++)
        if (p->n_events[w] && p->events[(size_t)w * p->event_cap].start < origin)
            origin = p->events[(size_t)w * p->event_cap].start;
    json_open(&j, NULL, '{');
    json_open(&j, "traceEvents", '[');
    for (uint32_t w = 0; w < p->n_workers; w++) {
        char name[32];
        snprintf(name, sizeof name, "worker %u", w);
        json_open(&j, NULL, '{');
        json_string(&j, "name", "thread_name");
        json_string(&j, "ph", "M");
        json_int(&j, "pid", 1);
        json_int(&j, "tid", w);
        json_open(&j, "args", '{');
        json_string(&j, "name", name);
        json_close(&j, '}');
        json_close(&j, '}');
        for (uint32_t i = 0; i < p->n_events[w]; i++) {
            fputc('\n', f);
            json_event(&j, s->e, &p->events[(size_t)w * p->event_cap + i], w, origin);
        }
        dropped = dropped || p->n_events[w] == p->event_cap;
    }
    json_close(&j, ']');
    json_string(&j, "displayTimeUnit", "ns");
    json_close(&j, '}');
    fputc('\n', f);
    if (dropped) fprintf(stderr, "note: the trace holds the first events alone\n");
    bool failed = ferror(f);
    if (fclose(f) || failed) return cli_usage("%s: %s", path, strerror(errno)), INFR_ENVIRONMENT;
    return INFR_OK;
}

int cmd_profile(struct cli *c)
{
    struct cli_engine x;
    long runs = 0;
    int code = cli_open(c, &x);
    if (code) return code;
    code = cli_load_inputs(c, &x, true);
    if (!code) code = measure(c, &x, &runs);
    if (!code) code = cli_profile_report(x.s, runs, c->json);
    if (!code && c->trace) code = cli_profile_trace(x.s, c->trace);
    cli_close(&x);
    return code;
}
