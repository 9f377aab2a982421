// SPDX-License-Identifier: Apache-2.0
#define _POSIX_C_SOURCE 200809L
#include "compiler/bench/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compiler/bench/report.h"
#include "compiler/error_figures.h"
#include "compiler/npy.h"

enum { MAX_WORDS = 64, MAX_OUTPUTS = 32 };

static pid_t start(const char *const *argv, int out)
{
    pid_t pid = fork();
    if (pid) return pid;
    int null = open("/dev/null", O_RDWR);
    dup2(null, 0);
    dup2(out >= 0 ? out : null, 1);
    if (out < 0) dup2(null, 2);
    execv(argv[0], (char *const *)(uintptr_t)argv);
    _exit(127);
}

static int finish(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int engine_run(const char *const *argv)
{
    pid_t pid = start(argv, -1);
    return pid > 0 ? finish(pid) : -1;
}

json_t *engine_json(const char *const *argv, struct diag_sink *diag)
{
    int fd[2];
    if (pipe(fd)) {
        diag_report(diag, DIAG_ENVIRONMENT, argv[0], "%s", strerror(errno));
        return NULL;
    }
    fcntl(fd[0], F_SETFD, FD_CLOEXEC);
    pid_t pid = start(argv, fd[1]);
    close(fd[1]);
    FILE *f = fdopen(fd[0], "r");
    json_error_t e;
    json_t *j = f ? json_loadf(f, 0, &e) : NULL;
    if (f) fclose(f);
    else close(fd[0]);
    int status = pid > 0 ? finish(pid) : -1;
    if (j && status == 0) return j;
    json_decref(j);
    diag_report(diag, DIAG_ENVIRONMENT, argv[0], "`%s` of the engine gave no JSON (exit status %d)", argv[1], status);
    return NULL;
}

bool engine_facts(const char *engine, bool *is_text, int *threads, struct diag_sink *diag)
{
    const char *argv[] = {engine, "info", "--json", NULL};
    json_t *j = engine_json(argv, diag);
    if (!j) return false;
    *is_text = json_is_object(json_object_get(j, "text"));
    *threads = (int)json_integer_value(json_object_get(j, "threads"));
    json_decref(j);
    return true;
}

/* Words of `bench` that `run`, `generate` and `profile` understand in the same way, "--name=value" or "--name value". */
static int keep_words(const struct bench_variant *v, const char *const *names, const char **out)
{
    int n = 0;
    for (int i = 0; i < v->n_words && n < MAX_WORDS - 2; i++)
        for (int k = 0; names[k]; k++) {
            size_t len = strlen(names[k]);
            if (strncmp(v->words[i], names[k], len)) continue;
            if (v->words[i][len] == '=') out[n++] = v->words[i];
            else if (!v->words[i][len] && i + 1 < v->n_words) out[n++] = v->words[i], out[n++] = v->words[++i];
            break;
        }
    return n;
}

/* ---- outputs ---- */

struct outputs {
    int n;
    struct ir_tensor t[MAX_OUTPUTS];
    const char *note; /* why there are none */
};

static struct outputs run_outputs(struct bench_session *s, const struct bench_variant *v, const char *dir)
{
    static const char *const shared[] = {"--shape", "--input", "--isa", "--threads", NULL};
    const char *info[] = {v->path, "info", "--json", NULL}, *argv[MAX_WORDS + MAX_OUTPUTS + 4] = {v->path, "run"};
    struct outputs o = {.note = "`info` failed"};
    json_t *j = engine_json(info, s->diag), *list = json_object_get(j, "outputs");
    int at = 2 + keep_words(v, shared, argv + 2), n = (int)json_array_size(list);
    argv[at++] = arena_printf(s->arena, "--random=%llu", (unsigned long long)s->o->seed);
    if (n > MAX_OUTPUTS) n = MAX_OUTPUTS;
    for (int i = 0; i < n; i++)
        argv[at++] = arena_printf(s->arena, "--output=%s=%s/out%d.npy", json_string_value(json_object_get(json_array_get(list, (size_t)i), "name")), dir, i);
    json_decref(j);
    if (!n) return o;
    o.note = "`run --random` failed";
    bool ok = engine_run(argv) == 0;
    for (int i = 0; i < n; i++) {
        char *path = arena_printf(s->arena, "%s/out%d.npy", dir, i);
        struct diag_sink quiet;
        diag_init(&quiet);
        ok = ok && npy_read(path, &o.t[i], s->arena, &quiet);
        diag_deinit(&quiet);
        unlink(path);
    }
    if (ok) o.n = n;
    return o;
}

/* Log probabilities of a fixed text's tokens, as one tensor. */
static struct outputs text_outputs(struct bench_session *s, const struct bench_variant *v)
{
    static const char *const shared[] = {"--isa", "--threads", "--ctx", "--kv-memory", NULL};
    static const char text[] = "In the beginning nobody believed that the bridge across the river would ever be finished. 3 + 4 = 7, and 12 * 12 = 144.";
    const char *argv[MAX_WORDS + 8] = {v->path, "generate"};
    struct outputs o = {.note = "`generate --prompt-logprobs` failed"};
    int at = 2 + keep_words(v, shared, argv + 2);
    const char *tail[] = {"-p", text, "-n", "1", "--temp=0", "--prompt-logprobs", "--json", NULL};
    memcpy(argv + at, tail, sizeof tail);
    json_t *j = engine_json(argv, s->diag);
    json_t *list = json_object_get(json_array_get(json_object_get(j, "choices"), 0), "prompt_logprobs");
    size_t n = json_array_size(list);
    if (n) {
        double *values = ARENA_ARRAY(s->arena, double, n);
        for (size_t i = 0; i < n; i++) values[i] = json_number_value(json_object_get(json_array_get(list, i), "logprob"));
        o.t[0] = (struct ir_tensor){.dtype = DT_F64, .rank = 1, .dims = {(int64_t)n}, .data = values, .n_bytes = n * sizeof *values};
        o.n = 1;
    }
    json_decref(j);
    return o;
}

static void compare(struct bench_variant *v, const struct outputs *a, const struct outputs *b, bool absolute)
{
    if (!a->n || !b->n) {
        v->error_note = a->n ? b->note : a->note;
        return;
    }
    if (a->n != b->n) {
        v->error_note = "other outputs";
        return;
    }
    double worst = 0;
    for (int i = 0; i < a->n; i++) {
        struct error_figures e = error_figures(&a->t[i], &b->t[i]);
        if (!e.comparable) {
            v->error_note = "types or shapes differ";
            return;
        }
        worst = fmax(worst, absolute ? e.max_abs : e.relative);
    }
    v->error = worst;
}

void bench_compare_outputs(struct bench_session *s)
{
    const char *tmp = getenv("TMPDIR");
    char *dir = mkdtemp(arena_printf(s->arena, "%s/infc-bench-XXXXXX", tmp && tmp[0] ? tmp : "/tmp"));
    struct outputs *o = ARENA_ARRAY(s->arena, struct outputs, s->n);
    bool first_is_text = false;
    for (int i = 0; i < s->n; i++) {
        struct bench_variant *v = &s->v[i];
        bool is_text = false;
        int threads;
        v->error = -1;
        o[i].note = "not an engine";
        if (!v->path || !dir || !engine_facts(v->path, &is_text, &threads, s->diag)) continue;
        o[i] = is_text ? text_outputs(s, v) : run_outputs(s, v, dir);
        if (i == 0) first_is_text = is_text;
    }
    for (int i = 1; i < s->n; i++) compare(&s->v[i], &o[0], &o[i], first_is_text);
    if (dir) rmdir(dir);
}

/* ---- work ---- */

/* FLOP and operand bytes of one run, summed over the launches. */
static void add_work(const json_t *profile, double *flops, double *bytes)
{
    size_t i;
    json_t *l;
    double runs = json_number_value(json_object_get(profile, "runs"));
    json_array_foreach(json_object_get(profile, "launches"), i, l) {
        double calls = runs > 0 ? json_number_value(json_object_get(l, "calls")) / runs : 0;
        *flops += calls * json_number_value(json_object_get(l, "flops"));
        *bytes += calls * json_number_value(json_object_get(l, "bytes"));
    }
}

/* Value of "--batch=4" or "--batch 4" among the words, 1 without. */
static double batch_of(const struct bench_variant *v)
{
    static const char *const name[] = {"--batch", NULL};
    const char *word[MAX_WORDS];
    int n = keep_words(v, name, word);
    const char *eq = n ? strchr(word[n - 1], '=') : NULL;
    double batch = n ? atof(eq ? eq + 1 : word[n - 1]) : 1;
    return batch >= 1 ? batch : 1;
}

void bench_find_work(struct bench_session *s)
{
    static const char *const shared[] = {"--shape", "--input", "--isa", "--threads", "--batch", "--prompt-tokens", NULL};
    for (int i = 0; i < s->n; i++) {
        struct bench_variant *v = &s->v[i];
        bool is_text = false;
        int threads;
        if (!v->path || !engine_facts(v->path, &is_text, &threads, s->diag)) continue;
        const char *argv[MAX_WORDS + 8] = {v->path, "profile"};
        int at = 2 + keep_words(v, shared, argv + 2);
        argv[at++] = "--json";
        argv[at++] = is_text ? "-n" : "--repeat";
        argv[at++] = is_text ? "16" : "3";
        json_t *j = engine_json(argv, s->diag);
        double flops = 0, bytes = 0, median = stats_percentile(bench_sorted(s, v, 0), v->samples[0].n, 50);
        add_work(j, &flops, &bytes);
        json_decref(j);
        double runs_s = is_text ? median / batch_of(v) : 1e3 / median; /* decode steps, calls */
        v->achieved_flops_s = flops * runs_s, v->achieved_bytes_s = bytes * runs_s;
    }
}
