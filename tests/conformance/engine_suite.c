// SPDX-License-Identifier: Apache-2.0
/*
 * Runs the ONNX backend node tests through built engines: `infc build`, `ENGINE run` on the test's input files, and the
 * output files compared with the expected ones. Nothing of the compiler is linked in here but the walker that finds the
 * model's input and output names.
 *
 *   engine_suite --infc=PATH --expected=FILE [--levels=v3[,v4]] [--jobs=N] [--stride=N] [--only=GLOB] [--write=FILE] [--driver=DIR] FOLDER
 *
 * FILE lists every test, its tag and what is expected of it:
 *
 *   test_abs union pass
 *   test_bernoulli - unsupported E203 the operator Bernoulli ...
 *   test_x union fail output y[3]: 1, expected 2
 *
 * A test whose outcome (for `unsupported` with its code) differs from the list is reported as `not ok`, a pass that was not
 * expected too; the others are counted, one `ok` line for 50 tests. --stride=N runs the tests whose name's hash is a multiple
 * of N. Inputs that a diagnostic asks for (`--const NAME=FILE for a, b`) are given to a second build.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS */

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <math.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compiler/import/wire.h"
#include "runtime/io.h"

#define MAX_IO 64
#define MAX_TESTS 4096
#define WHY_BYTES 300
/* A program that does not end is stopped by the time that it computes: a machine that is busy with other work makes no
 * test fail. Only one that waits for ever meets the limit on the clock. */
#define CPU_LIMIT_S 120
#define WAIT_LIMIT_S 1800

enum outcome { NOT_RUN, PASS, UNSUPPORTED, FAIL, N_OUTCOMES };
static const char *const outcome_names[] = {"-", "pass", "unsupported", "fail"};

struct result {
    int outcome;
    char why[WHY_BYTES];
};

struct test {
    char *name, *tag, *why;
    enum outcome expected;
};

struct suite {
    const char *infc, *folder, *levels, *only;
    const char *driver; /* folder of a libcuda.so.1 for engines with code for GPUs, or NULL */
    struct test tests[MAX_TESTS];
    int n, jobs, stride;
    struct result *results; /* shared with the workers */
    atomic_int *next;
};

/* One test being run; its files lie in a folder of the worker. */
struct job {
    const struct suite *s;
    const struct test *t;
    struct result *r;
    char dir[512];
    char *in[MAX_IO], *out[MAX_IO]; /* names in the graph's order */
    int n_in, n_out;
    bool fixed[MAX_IO]; /* inputs that were given at build time */
};

static bool end(struct job *j, enum outcome o, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(j->r->why, WHY_BYTES, fmt, ap);
    va_end(ap);
    for (char *p = j->r->why; *p; p++)
        if ((unsigned char)*p < ' ') *p = ' ';
    j->r->outcome = (int)o;
    return false;
}

/* ---- processes ---- */

struct args {
    char *v[2 * MAX_IO + 16];
    int n;
};

static void arg(struct args *a, const char *fmt, ...)
{
    char text[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (a->n < (int)(sizeof a->v / sizeof *a->v) - 1) a->v[a->n++] = strdup(text);
}

static void free_args(struct args *a)
{
    for (int i = 0; i < a->n; i++) free(a->v[i]);
    *a = (struct args){0};
}

/* Output of both streams in DIR/log. Returns waitpid's status. */
static int run(const struct job *j, struct args *a, const char *library_path)
{
    char log[600];
    int status = -1;
    snprintf(log, sizeof log, "%s/log", j->dir);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0644), null = open("/dev/null", O_RDONLY);
        struct rlimit none = {0, 0}, busy = {CPU_LIMIT_S, CPU_LIMIT_S};
        setrlimit(RLIMIT_CORE, &none);
        dup2(null, 0);
        dup2(fd, 1);
        dup2(fd, 2);
        setrlimit(RLIMIT_CPU, &busy);
        alarm(WAIT_LIMIT_S);
        if (library_path) setenv("LD_LIBRARY_PATH", library_path, 1);
        execv(a->v[0], a->v);
        _exit(126);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    free_args(a);
    return status;
}

static char *read_text(const char *path)
{
    struct rt_bytes b;
    struct infr_status st;
    if (rt_file_read(path, &b, &st)) return strdup("");
    char *s = malloc(b.n + 1);
    memcpy(s, b.data, b.n);
    s[b.n] = 0;
    free(b.data);
    return s;
}

/* ---- the model's names ---- */

static void add_name(char **names, int *n, const struct wire_field *info)
{
    struct wire_reader r = {info->data, info->data + info->len, false};
    struct wire_field f;
    while (*n < MAX_IO && wire_next(&r, &f))
        if (f.number == 1 && f.type == WIRE_LEN) names[(*n)++] = strndup((const char *)f.data, f.len);
}

/* ModelProto.graph is field 7; its inputs are field 11, its outputs field 12, a name field 1. */
static bool read_names(struct job *j, const char *path)
{
    struct rt_bytes b;
    struct infr_status st;
    if (rt_file_read(path, &b, &st)) return end(j, FAIL, "no model.onnx");
    struct wire_reader m = {b.data, b.data + b.n, false};
    struct wire_field f, g;
    while (wire_next(&m, &f)) {
        if (f.number != 7 || f.type != WIRE_LEN) continue;
        struct wire_reader graph = {f.data, f.data + f.len, false};
        while (wire_next(&graph, &g)) {
            if (g.number == 11) add_name(j->in, &j->n_in, &g);
            if (g.number == 12) add_name(j->out, &j->n_out, &g);
        }
    }
    free(b.data);
    return true;
}

/* ---- building ---- */

/* "... --const NAME=FILE for a, b": marks those inputs; true when there is a new one. */
static bool take_needs(struct job *j, const char *log)
{
    const char *p = strstr(log, "--const NAME=FILE for ");
    bool added = false;
    if (!p) return false;
    p += strlen("--const NAME=FILE for ");
    size_t len = strcspn(p, "\n");
    for (int i = 0; i < j->n_in; i++) {
        const char *at = memmem(p, len, j->in[i], strlen(j->in[i]));
        size_t n = strlen(j->in[i]);
        if (!at || j->fixed[i] || (at > p && at[-1] != ' ') || (at[n] != ',' && at[n] != '\n')) continue;
        j->fixed[i] = added = true;
    }
    return added;
}

static bool build(struct job *j)
{
    for (;;) {
        struct args a = {0};
        char path[600];
        arg(&a, "%s", j->s->infc);
        arg(&a, "build");
        arg(&a, "--no-golden");
        arg(&a, "-j1");
        arg(&a, "--target=%s", j->s->levels);
        arg(&a, "--output=%s/engine", j->dir);
        for (int i = 0; i < j->n_in; i++)
            if (j->fixed[i]) arg(&a, "--const=%s=%s/%s/test_data_set_0/input_%d.pb", j->in[i], j->s->folder, j->t->name, i);
        arg(&a, "%s/%s/model.onnx", j->s->folder, j->t->name);
        int status = run(j, &a, NULL);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
        snprintf(path, sizeof path, "%s/log", j->dir);
        char *log = read_text(path), *e = strstr(log, "error[");
        if (WIFSIGNALED(status)) {
            end(j, FAIL, "infc: signal %d", WTERMSIG(status));
        } else if (WEXITSTATUS(status) != 2 || !e) {
            end(j, FAIL, "infc: exit status %d: %s", WEXITSTATUS(status), log);
        } else if (take_needs(j, log)) {
            free(log);
            continue;
        } else {
            char *text = strstr(e, "] ") ? strstr(e, "] ") + 2 : e, *location = strstr(text, ": ");
            const char *message = location && strstr(text, "onnx") && strstr(text, "onnx") < location ? location + 2 : text;
            end(j, UNSUPPORTED, "%.4s %.*s", e + 6, (int)strcspn(message, "\n"), message);
        }
        free(log);
        return false;
    }
}

/* ---- comparing ---- */

static double rel_tolerance(enum dtype d) { return d == DT_BF16 ? 1.0 / 64 : 1e-3; }

static double abs_tolerance(const char *test) { return strstr(test, "dft") || strstr(test, "stft") ? 1e-3 : 1e-7; }

static bool same_values(struct job *j, const char *name, const struct infr_tensor *got, const struct infr_tensor *want)
{
    enum dtype d = (enum dtype)want->dtype;
    size_t size = dtype_bytes(d);
    double rtol = rel_tolerance(d), atol = abs_tolerance(j->t->name);
    for (uint64_t i = 0; i < rt_tensor_elems(want); i++) {
        double a = rt_tensor_get(got, i), b = rt_tensor_get(want, i);
        bool same = dtype_is_float(d) ? (isnan(a) && isnan(b)) || a == b || fabs(a - b) <= atol + rtol * fabs(b)
                                      : !memcmp((char *)got->data + i * size, (char *)want->data + i * size, size);
        if (!same) return end(j, FAIL, "output %s[%llu]: %.9g, expected %.9g", name, (unsigned long long)i, a, b);
    }
    return true;
}

static bool compare(struct job *j, const char *name, const struct infr_tensor *got, const struct infr_tensor *want)
{
    if (got->dtype != want->dtype)
        return end(j, FAIL, "output %s: %s, expected %s", name, dtype_name((enum dtype)got->dtype), dtype_name((enum dtype)want->dtype));
    if (got->rank != want->rank) return end(j, FAIL, "output %s: rank %u, expected %u", name, got->rank, want->rank);
    for (uint32_t k = 0; k < want->rank; k++)
        if (got->dims[k] != want->dims[k])
            return end(j, FAIL, "output %s: dim %u is %lld, expected %lld", name, k, (long long)got->dims[k], (long long)want->dims[k]);
    return same_values(j, name, got, want);
}

static bool read_pb(struct job *j, const char *path, struct infr_tensor *t)
{
    struct rt_bytes b;
    struct infr_status st = {0};
    if (rt_file_read(path, &b, &st)) return end(j, FAIL, "%s", st.note);
    int code = rt_pb_read(b.data, b.n, t, &st);
    free(b.data);
    return !code || end(j, FAIL, "%s: %s", path, st.note);
}

static bool run_set(struct job *j, const char *set, const char *level)
{
    struct args a = {0};
    char path[700], want_path[2048];
    arg(&a, "%s/engine", j->dir);
    arg(&a, "run");
    arg(&a, "--threads=2");
    if (j->s->driver) arg(&a, "--device=cuda");
    else arg(&a, "--isa=%s", level);
    for (int i = 0; i < j->n_in; i++)
        if (!j->fixed[i]) arg(&a, "--input=%s=%s/input_%d.pb", j->in[i], set, i);
    for (int i = 0; i < j->n_out; i++) arg(&a, "--output=%s=%s/out_%d.pb", j->out[i], j->dir, i);
    int status = run(j, &a, j->s->driver);
    if (!WIFEXITED(status) || WEXITSTATUS(status)) {
        snprintf(path, sizeof path, "%s/log", j->dir);
        char *log = read_text(path);
        if (WIFSIGNALED(status)) end(j, FAIL, "engine: signal %d", WTERMSIG(status));
        else end(j, FAIL, "engine: exit status %d: %s", WEXITSTATUS(status), log);
        free(log);
        return false;
    }
    bool ok = true;
    for (int i = 0; ok && i < j->n_out; i++) {
        struct infr_tensor got = {0}, want = {0};
        snprintf(path, sizeof path, "%s/out_%d.pb", j->dir, i);
        snprintf(want_path, sizeof want_path, "%s/output_%d.pb", set, i);
        ok = read_pb(j, path, &got) && read_pb(j, want_path, &want) && compare(j, j->out[i], &got, &want);
        rt_tensor_free(&got);
        rt_tensor_free(&want);
        remove(path);
    }
    return ok;
}

static bool run_sets(struct job *j)
{
    char set[1400], level[16];
    int n = 0;
    for (;; n++) {
        snprintf(set, sizeof set, "%s/%s/test_data_set_%d", j->s->folder, j->t->name, n);
        if (access(set, F_OK)) break;
        for (const char *p = j->s->levels; *p; p += strspn(p, ",")) {
            size_t len = strcspn(p, ",");
            size_t skip = strncmp(p, "x86-64-", 7) ? 0 : 7;
            snprintf(level, sizeof level, "%.*s", (int)(len - skip), p + skip);
            if (!run_set(j, set, level)) return false;
            p += len;
        }
    }
    return n > 0 || end(j, FAIL, "no test data");
}

static void run_test(const struct suite *s, int index, const char *dir)
{
    struct job j = {.s = s, .t = &s->tests[index], .r = &s->results[index]};
    char path[1400];
    snprintf(j.dir, sizeof j.dir, "%s", dir);
    snprintf(path, sizeof path, "%s/%s/model.onnx", s->folder, j.t->name);
    if (read_names(&j, path) && build(&j) && run_sets(&j)) {
        j.r->outcome = PASS;
        j.r->why[0] = 0;
    }
    for (int i = 0; i < j.n_in; i++) free(j.in[i]);
    for (int i = 0; i < j.n_out; i++) free(j.out[i]);
}

/* ---- the list ---- */

static bool parse_line(struct suite *s, char *line)
{
    char *save, *name = strtok_r(line, " \n", &save), *tag = strtok_r(NULL, " \n", &save), *word = strtok_r(NULL, " \n", &save);
    if (!name || *name == '#') return true;
    char *why = strtok_r(NULL, "\n", &save);
    if (!word || s->n == MAX_TESTS) return false;
    struct test *t = &s->tests[s->n++];
    *t = (struct test){strdup(name), strdup(tag), strdup(why ? why : ""), NOT_RUN};
    for (int o = PASS; o < N_OUTCOMES; o++)
        if (!strcmp(word, outcome_names[o])) t->expected = (enum outcome)o;
    return true;
}

static bool read_list(struct suite *s, const char *path)
{
    char line[1024];
    FILE *f = fopen(path, "r");
    bool ok = f != NULL;
    while (ok && fgets(line, sizeof line, f)) ok = parse_line(s, line);
    if (f) fclose(f);
    return ok && s->n > 0;
}

static bool write_list(const struct suite *s, const char *path)
{
    FILE *f = fopen(path, "w");
    if (!f) return false;
    fputs("# What each ONNX backend node test is expected to do; see engine_suite.c. `union`: uses only operators that the real\n"
          "# models use, and nothing that is left for later.\n", f);
    for (int i = 0; i < s->n; i++) {
        const struct test *t = &s->tests[i];
        const struct result *r = &s->results[i];
        bool ran = r->outcome != NOT_RUN;
        const char *why = ran ? r->why : t->why;
        fprintf(f, "%s %s %s%s%s\n", t->name, t->tag, outcome_names[ran ? r->outcome : (int)t->expected], *why ? " " : "", why);
    }
    return fclose(f) == 0;
}

/* FNV-1a: which tests a stride selects depends on nothing but their names. */
static unsigned hash(const char *s)
{
    unsigned h = 2166136261u;
    for (; *s; s++) h = (h ^ (unsigned char)*s) * 16777619u;
    return h;
}

static bool selected(const struct suite *s, const struct test *t)
{
    return (hash(t->name) >> 8) % (unsigned)s->stride == 0 && (!s->only || !fnmatch(s->only, t->name, 0));
}

/* ---- workers and the report ---- */

static void work(struct suite *s, int worker)
{
    char dir[64];
    snprintf(dir, sizeof dir, "worker-%d", worker);
    if (mkdir(dir, 0755) && errno != EEXIST) _exit(1);
    for (int i; (i = atomic_fetch_add(s->next, 1)) < s->n;)
        if (selected(s, &s->tests[i])) run_test(s, i, dir);
    _exit(0);
}

static bool as_expected(const struct test *t, const struct result *r)
{
    if ((int)t->expected != r->outcome) return false;
    return r->outcome != UNSUPPORTED || !strncmp(t->why, r->why, 4);
}

static void report_groups(const struct suite *s)
{
    int in_group = 0, bad = 0, first = 1, seen = 0;
    for (int i = 0; i < s->n; i++) {
        const struct test *t = &s->tests[i];
        const struct result *r = &s->results[i];
        if (r->outcome == NOT_RUN && !selected(s, t)) continue;
        in_group++, seen++;
        if (!as_expected(t, r)) {
            bad++;
            printf("not ok %s: %s %s; the list says %s %s\n", t->name, outcome_names[r->outcome], r->why, outcome_names[t->expected], t->why);
        }
        if (in_group < 50) continue;
        if (!bad) printf("ok %d-%d\n", first, seen);
        first = seen + 1, in_group = bad = 0;
    }
    if (in_group && !bad) printf("ok %d-%d\n", first, seen);
}

static int report(const struct suite *s)
{
    int count[N_OUTCOMES] = {0}, of_union = 0, union_pass = 0, wrong = 0;
    report_groups(s);
    for (int i = 0; i < s->n; i++) {
        const struct result *r = &s->results[i];
        if (r->outcome == NOT_RUN && !selected(s, &s->tests[i])) continue;
        bool in_union = !strcmp(s->tests[i].tag, "union");
        count[r->outcome]++;
        of_union += in_union;
        union_pass += in_union && r->outcome == PASS;
        wrong += !as_expected(&s->tests[i], r);
    }
    printf("# %d pass, %d unsupported, %d fail, %d not run; of the real models' operators: %d of %d\n", count[PASS], count[UNSUPPORTED],
           count[FAIL], count[NOT_RUN], union_pass, of_union);
    return wrong ? 1 : 0;
}

static bool value_of(const char *a, const char *name, const char **out)
{
    size_t n = strlen(name);
    if (strncmp(a, name, n)) return false;
    *out = a + n;
    return true;
}

int main(int argc, char **argv)
{
    static struct suite s;
    const char *list = NULL, *write = NULL, *v;
    s.levels = "x86-64-v3", s.jobs = 2, s.stride = 1;
    for (int i = 1; i < argc; i++) {
        if (value_of(argv[i], "--infc=", &s.infc) || value_of(argv[i], "--expected=", &list) || value_of(argv[i], "--write=", &write) ||
            value_of(argv[i], "--only=", &s.only) || value_of(argv[i], "--levels=", &s.levels) ||
            value_of(argv[i], "--driver=", &s.driver))
            continue;
        if (value_of(argv[i], "--jobs=", &v)) s.jobs = atoi(v);
        else if (value_of(argv[i], "--stride=", &v)) s.stride = atoi(v);
        else s.folder = argv[i];
    }
    if (!s.infc || !list || !s.folder || s.jobs < 1 || s.stride < 1 || !read_list(&s, list)) {
        fprintf(stderr, "usage: engine_suite --infc=PATH --expected=FILE [OPTIONS] FOLDER\n");
        return 2;
    }
    size_t bytes = sizeof *s.results * (size_t)s.n + sizeof *s.next;
    void *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return 3;
    s.results = shared;
    s.next = (atomic_int *)(void *)(s.results + s.n);
    for (int w = 0; w < s.jobs; w++) {
        pid_t pid = fork();
        if (pid == 0) work(&s, w);
    }
    while (wait(NULL) > 0 || errno == EINTR) continue;
    if (write && !write_list(&s, write)) return 3;
    return report(&s);
}
