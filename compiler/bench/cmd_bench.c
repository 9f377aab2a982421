// SPDX-License-Identifier: Apache-2.0
/* `infc bench`: options, variants, what is printed and the gate. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compiler/bench/engine.h"
#include "compiler/bench/report.h"
#include "compiler/bench/sweep.h"
#include "compiler/commands.h"

static bool number(const struct options *o, enum option_id id, const char *name, double lo, double hi, double dflt, double *out, struct diag_sink *diag)
{
    const char *text = option_value(o, id, NULL);
    char *end;
    *out = dflt;
    if (!text) return true;
    *out = strtod(text, &end);
    if (end != text && *end == '%') end++;
    if (end == text || *end || !(*out >= lo && *out <= hi))
        return diag_report(diag, DIAG_OPTION, NULL, "--%s=%s: expected a number from %g to %g", name, text, lo, hi);
    return true;
}

static bool read_options(const struct options *o, struct bench_options *b, struct diag_sink *diag)
{
    double burst_ms = 20;
    int64_t seed = 1, rounds = 0;
    bool ok = number(o, OPT_SECONDS, "seconds", 0.01, 86400, 5, &b->seconds, diag);
    ok = number(o, OPT_BURST, "burst", 0, 60000, 20, &burst_ms, diag) && ok;
    ok = number(o, OPT_WARM_UP, "warm-up", 0, 3600, 0.5, &b->warm_up_s, diag) && ok;
    ok = number(o, OPT_QPS, "qps", 1e-3, 1e7, 0, &b->qps, diag) && ok;
    ok = number(o, OPT_LATENCY, "latency", 1e-3, 1e7, 0, &b->bound_ms, diag) && ok;
    ok = option_int(o, OPT_SEED, 0, INT64_MAX, 1, &seed, diag) && ok;
    ok = option_int(o, OPT_ROUNDS, 3, 1000000, 0, &rounds, diag) && ok;
    ok = option_int(o, OPT_PER_QUERY, 1, 10000, 8, &b->per_query, diag) && ok;
    b->burst_s = 1e-3 * burst_ms, b->seed = (uint64_t)seed;
    b->min_rounds = rounds ? rounds : 5, b->max_rounds = rounds ? rounds : 1000000;
    const char *name = option_value(o, OPT_SCENARIO, "single-stream");
    for (int i = BENCH_SINGLE_STREAM; i <= BENCH_SERVER; i++)
        if (!strcmp(name, bench_scenario_name((enum bench_scenario)i))) {
            b->scenario = (enum bench_scenario)i;
            return ok;
        }
    return diag_report(diag, DIAG_OPTION, NULL, "--scenario=%s: expected single-stream, multi-stream, offline or server", name);
}

/* ---- variants ---- */

static int split(struct arena *a, const char *text, const char **out, int most)
{
    int n = 0;
    char *save = NULL;
    for (char *w = strtok_r(arena_strdup(a, text), " \t\n", &save); w && n < most; w = strtok_r(NULL, " \t\n", &save)) out[n++] = w;
    return n;
}

enum { MAX_WORDS = 48 };

/* "ENGINE [OPTION]..": the engine and its own options, behind those of --args. */
static bool add_engine(struct bench_session *s, const char *text, const char *args, bool whole)
{
    if (s->n == BENCH_MAX_VARIANTS) return diag_report(s->diag, DIAG_OPTION, NULL, "at most %d variants", BENCH_MAX_VARIANTS);
    struct bench_variant *v = &s->v[s->n];
    const char **argv = ARENA_ARRAY(s->arena, const char *, 2 * MAX_WORDS + 8), **words = ARENA_ARRAY(s->arena, const char *, 2 * MAX_WORDS);
    struct stat st;
    bool whole_path = stat(text, &st) == 0;
    argv[0] = text;
    int own = whole_path ? 0 : split(s->arena, text, argv, MAX_WORDS) - 1, n = split(s->arena, args, words, MAX_WORDS);
    for (int i = 0; i < own; i++) words[n++] = argv[1 + i];
    v->path = strchr(argv[0], '/') ? argv[0] : arena_printf(s->arena, "./%s", argv[0]);
    if (own < 0 || stat(v->path, &st) || !S_ISREG(st.st_mode) || access(v->path, X_OK))
        return diag_report_remedy(s->diag, DIAG_FILE_READ, text, "build it with `infc build`; other commands are given with --peer or --loop-peer",
                                  "it is no engine that can be run");
    v->file_bytes = (uint64_t)st.st_size;
    v->words = words, v->n_words = n;
    v->child.name = text;
    argv[0] = v->path, argv[1] = "bench", argv[2] = "--loop";
    memcpy(argv + 3, words, (size_t)n * sizeof *words);
    argv[3 + n] = NULL;
    v->child.argv = argv;
    if (whole) {
        struct strbuf cmd = {0};
        bool is_text = false;
        int threads;
        if (!engine_facts(v->path, &is_text, &threads, s->diag)) return false;
        strbuf_printf(&cmd, "exec '%s' %s", v->path, is_text ? "generate -p 'Once upon a time' -n 32 --ignore-eos --temp=0" : "run --random=1");
        for (int i = 0; i < n; i++) strbuf_printf(&cmd, " '%s'", words[i]);
        v->child.run_once = arena_strdup(s->arena, strbuf_get(&cmd));
        strbuf_deinit(&cmd);
    }
    s->n++;
    return true;
}

static bool add_peer(struct bench_session *s, const char *command, bool loop)
{
    if (s->n == BENCH_MAX_VARIANTS) return diag_report(s->diag, DIAG_OPTION, NULL, "at most %d variants", BENCH_MAX_VARIANTS);
    struct bench_variant *v = &s->v[s->n++];
    v->child.name = command;
    if (loop) {
        const char **argv = ARENA_ARRAY(s->arena, const char *, 4);
        argv[0] = "/bin/sh", argv[1] = "-c", argv[2] = arena_printf(s->arena, "exec %s", command);
        v->child.argv = argv;
    } else {
        v->child.run_once = command;
    }
    return true;
}

static bool add_variants(struct bench_session *s, const struct options *o)
{
    const char *args = option_value(o, OPT_ARGS, "");
    bool ok = true, whole = option_given(o, OPT_PEER);
    if (whole && option_given(o, OPT_LOOP_PEER))
        return diag_report(s->diag, DIAG_OPTION, NULL, "--peer measures whole processes and --loop-peer calls: the two cannot be compared");
    for (size_t i = 0; ok && i < o->args.n; i++) ok = add_engine(s, o->args.v[i], args, whole);
    for (size_t i = 0; ok && i < o->values[OPT_PEER].n; i++) ok = add_peer(s, o->values[OPT_PEER].v[i], false);
    for (size_t i = 0; ok && i < o->values[OPT_LOOP_PEER].n; i++) ok = add_peer(s, o->values[OPT_LOOP_PEER].v[i], true);
    if (ok && !s->n) return diag_report(s->diag, DIAG_OPTION, NULL, "expected engines to compare; see `infc bench --help`");
    return ok;
}

/* ---- results ---- */

static bool write_page(const struct bench_session *s, const struct machine_peaks *peaks, const char *path)
{
    struct strbuf h = {0};
    bench_report_html(s, peaks, &h);
    FILE *f = fopen(path, "w");
    bool ok = f && fwrite(h.data, 1, h.len, f) == h.len;
    if (f && fclose(f)) ok = false;
    strbuf_deinit(&h);
    return ok || diag_report(s->diag, DIAG_FILE_WRITE, path, "cannot write: %s", strerror(errno));
}

/* As many threads and bytes as the first engine uses. */
static bool measure_machine(struct bench_session *s, struct machine_peaks *peaks)
{
    bool is_text;
    int threads = 1;
    for (int i = 0; i < s->n; i++)
        if (s->v[i].path) {
            if (!engine_facts(s->v[i].path, &is_text, &threads, s->diag)) return false;
            for (int k = 0; k < s->v[i].n_words; k++) {
                if (!strncmp(s->v[i].words[k], "--threads=", 10)) threads = atoi(s->v[i].words[k] + 10);
                else if (!strcmp(s->v[i].words[k], "--threads") && k + 1 < s->v[i].n_words) threads = atoi(s->v[i].words[k + 1]);
            }
            break;
        }
    return machine_measure(threads, (size_t)256 << 20, 1, peaks) || diag_report(s->diag, DIAG_ENVIRONMENT, NULL, "no memory for --roofline");
}

static bool gate(const struct bench_session *s, double threshold)
{
    bool ok = true;
    for (int i = 1; threshold >= 0 && i < s->n; i++)
        if (bench_is_slower(s, i, threshold))
            ok = diag_report(s->diag, DIAG_GATE, s->v[i].child.name, "slower than %s by more than %g%%", s->v[0].child.name, 100 * threshold);
    return ok;
}

static bool run(struct bench_session *s, const struct options *o)
{
    struct machine_peaks peaks, *p = NULL;
    double percent = -100;
    if (!number(o, OPT_FAIL_IF_SLOWER, "fail-if-slower", 0, 1000, -100, &percent, s->diag)) return false;
    if (!add_variants(s, o)) return false;
    bench_compare_outputs(s);
    if (option_given(o, OPT_ROOFLINE)) {
        if (!measure_machine(s, &peaks)) return false;
        p = &peaks;
    }
    if (s->diag->error_count || !bench_measure(s)) return false;
    if (p) bench_find_work(s);
    if (option_given(o, OPT_JSON)) bench_report_json(s, p, percent / 100, stdout);
    else bench_report_text(s, p, stdout);
    const char *page = option_value(o, OPT_HTML, NULL);
    if (page && !write_page(s, p, page)) return false;
    return gate(s, percent / 100);
}

int cmd_bench(const struct options *o, struct diag_sink *diag)
{
    struct arena a;
    struct bench_options b = {0};
    arena_init(&a);
    if (read_options(o, &b, diag)) {
        if (option_given(o, OPT_SWEEP)) {
            bench_sweep(o, &b, &a, diag);
        } else {
            struct bench_session *s = ARENA_NEW(&a, struct bench_session);
            *s = (struct bench_session){.o = &b, .diag = diag, .arena = &a};
            run(s, o);
        }
    }
    arena_deinit(&a);
    return 0;
}
