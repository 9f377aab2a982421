// SPDX-License-Identifier: Apache-2.0
#define _POSIX_C_SOURCE 200809L
#include "compiler/bench/sweep.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compiler/bench/engine.h"
#include "compiler/commands.h"
#include "ir/support/str.h"

enum { MAX_POINTS = 64 };

struct sweep {
    const struct options *o;
    const struct bench_options *b;
    struct arena *a;
    struct diag_sink *diag;
    char symbol[64];
    int64_t lo, hi, points[MAX_POINTS];
    int n_points;
    char *dir; /* of static builds; NULL: engines against the first */
};

/* "seq=1..512" */
static bool read_range(struct sweep *w)
{
    const char *text = option_value(w->o, OPT_SWEEP, "");
    long long lo, hi;
    int end = 0;
    if (sscanf(text, "%63[A-Za-z0-9_.]=%lld..%lld%n", w->symbol, &lo, &hi, &end) != 3 || text[end] || lo < 1 || hi < lo || hi > 1 << 24)
        return diag_report(w->diag, DIAG_OPTION, NULL, "--sweep=%s: expected SYMBOL=LO..HI such as seq=1..512", text);
    w->lo = lo, w->hi = hi;
    return true;
}

static void add_point(struct sweep *w, int64_t v)
{
    if (v < w->lo || v > w->hi || w->n_points == MAX_POINTS || (w->n_points && w->points[w->n_points - 1] >= v)) return;
    w->points[w->n_points++] = v;
}

/* Both ends, powers of two and what lies between them: 3/4 of each, and one more than it. */
static void make_points(struct sweep *w)
{
    add_point(w, w->lo);
    for (int64_t p = 1; p <= w->hi; p *= 2) {
        add_point(w, p);
        if (p >= 16) add_point(w, p + 1);
        if (p >= 4) add_point(w, p + p / 2);
    }
    add_point(w, w->hi);
}

/* --shape for every input that has the symbol as a dim: "NAME:1,128"; NULL when there is none. */
static int static_shapes(struct sweep *w, const char *engine, int64_t value, const char **out, int most)
{
    const char *argv[] = {engine, "info", "--json", NULL};
    json_t *j = engine_json(argv, w->diag), *list = json_object_get(j, "inputs");
    int n = 0;
    for (size_t i = 0; i < json_array_size(list) && n < most; i++) {
        json_t *in = json_array_get(list, i), *dims = json_object_get(in, "dims");
        struct strbuf s = {0};
        bool has = false;
        strbuf_printf(&s, "%s:", json_string_value(json_object_get(in, "name")));
        for (size_t k = 0; k < json_array_size(dims); k++) {
            const char *dim = json_string_value(json_object_get(json_array_get(dims, k), "dim"));
            bool is_it = dim && !strcmp(dim, w->symbol);
            has = has || is_it;
            if (is_it) strbuf_printf(&s, "%s%lld", k ? "," : "", (long long)value);
            else strbuf_printf(&s, "%s%s", k ? "," : "", dim ? dim : "1");
        }
        if (has) out[n++] = arena_strdup(w->a, strbuf_get(&s));
        strbuf_deinit(&s);
    }
    json_decref(j);
    if (!n) diag_report(w->diag, DIAG_OPTION, engine, "no input has a dim '%s' of its own", w->symbol);
    return n;
}

static const char *build_static(struct sweep *w, const char *engine, int64_t value)
{
    const char *shapes[16], *model = option_value(w->o, OPT_SWEEP_MODEL, NULL), *outputs[1];
    int n = static_shapes(w, engine, value, shapes, 16);
    if (!n) return NULL;
    char *path = arena_printf(w->a, "%s/static-%lld", w->dir, (long long)value);
    struct options o = {.command = CMD_BUILD};
    const char *args[] = {model};
    outputs[0] = path;
    o.args.v = args, o.args.n = 1;
    o.values[OPT_OUTPUT].v = outputs, o.values[OPT_OUTPUT].n = 1;
    o.values[OPT_SHAPE].v = shapes, o.values[OPT_SHAPE].n = (size_t)n;
    return cmd_build(&o, w->diag) == 0 && !w->diag->error_count ? path : NULL;
}

static void add(struct sweep *w, struct bench_session *s, const char *engine, int64_t value, bool is_static)
{
    struct bench_variant *v = &s->v[s->n++];
    const char **argv = ARENA_ARRAY(w->a, const char *, 64);
    int at = 0;
    char *save = NULL, *words = arena_strdup(w->a, option_value(w->o, OPT_ARGS, ""));
    v->path = v->child.name = argv[at++] = strchr(engine, '/') ? engine : arena_printf(w->a, "./%s", engine);
    argv[at++] = "bench", argv[at++] = "--loop";
    if (!is_static) argv[at++] = arena_printf(w->a, "--shape=%s:%lld", w->symbol, (long long)value);
    for (char *x = strtok_r(words, " ", &save); x && at < 62; x = strtok_r(NULL, " ", &save)) argv[at++] = x;
    v->child.argv = argv;
    if (is_static) v->child.name = "static";
}

/* Prints a row; *share: time of the first (static) / time of the dynamic engine. */
static bool one_point(struct sweep *w, int64_t value, double *share, bool json, bool first)
{
    struct bench_session *s = ARENA_NEW(w->a, struct bench_session);
    *s = (struct bench_session){.o = w->b, .diag = w->diag, .arena = w->a};
    if (w->dir) {
        const char *fixed = build_static(w, w->o->args.v[0], value);
        if (!fixed) return false;
        add(w, s, fixed, value, true);
    }
    for (size_t i = 0; i < w->o->args.n && s->n < BENCH_MAX_VARIANTS; i++) add(w, s, w->o->args.v[i], value, false);
    bool ok = bench_measure(s);
    if (w->dir) unlink(s->v[0].path);
    if (!ok) return false;
    *share = 1 / s->v[1].slower[0].estimate;
    if (json) printf("%s\n  {\"value\": %lld", first ? "" : ",", (long long)value);
    else printf("%8lld", (long long)value);
    for (int i = 0; i < s->n; i++) {
        double median = stats_median(s->v[i].samples[0].v, s->v[i].samples[0].n);
        if (json) printf(", \"%s%d\": %.6g", s->v[0].metrics[0].name, i, median);
        else printf(" %12.5g", median);
    }
    if (json) printf(", \"share\": %.6g}", *share);
    else printf(" %10.3f\n", *share);
    fflush(stdout);
    return true;
}

static bool run(struct sweep *w)
{
    bool json = option_given(w->o, OPT_JSON), ok = true;
    double share[MAX_POINTS];
    int n = 0;
    if (json) printf("{\"symbol\": \"%s\", \"points\": [", w->symbol);
    else if (w->dir) printf("%8s %12s %12s %10s\n", w->symbol, "static", "engine", "static/engine");
    else printf("%8s  medians of the engines in order, and time of the first / time of the second\n", w->symbol);
    for (int i = 0; ok && i < w->n_points; i++) {
        ok = one_point(w, w->points[i], &share[n], json, i == 0);
        n += ok;
    }
    if (!ok) return false;
    double worst = INFINITY, mean = stats_geometric_mean(share, (size_t)n);
    for (int i = 0; i < n; i++) worst = fmin(worst, share[i]);
    if (json) printf("\n], \"geometric_mean\": %.6g, \"worst\": %.6g}\n", mean, worst);
    else printf("geometric mean %.3f, worst %.3f\n", mean, worst);
    return true;
}

bool bench_sweep(const struct options *o, const struct bench_options *b, struct arena *a, struct diag_sink *diag)
{
    struct sweep w = {.o = o, .b = b, .a = a, .diag = diag};
    const char *tmp = getenv("TMPDIR");
    bool has_model = option_given(o, OPT_SWEEP_MODEL);
    if (!read_range(&w)) return false;
    if (o->args.n != 1 && has_model) return diag_report(diag, DIAG_OPTION, NULL, "--sweep with --model takes one engine");
    if (o->args.n < 2 && !has_model)
        return diag_report(diag, DIAG_OPTION, NULL, "--sweep needs --model=MODEL for static builds, or several engines");
    make_points(&w);
    if (has_model) w.dir = mkdtemp(arena_printf(a, "%s/infc-sweep-XXXXXX", tmp && tmp[0] ? tmp : "/tmp"));
    if (has_model && !w.dir) return diag_report(diag, DIAG_FILE_WRITE, NULL, "cannot make a temporary folder: %s", strerror(errno));
    bool ok = run(&w);
    if (w.dir) rmdir(w.dir);
    return ok;
}
