// SPDX-License-Identifier: Apache-2.0
/*
 * infc-opt: tensor IR text in, passes over it, tensor IR text out. For tests of single passes, for replaying what a crash
 * left, and for looking at what a pass does.
 *
 * With --equal the module before and after is evaluated on random inputs (its symbols take small values of their ranges);
 * a difference is exit code 4.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/npy.h"
#include "ir/text.h"
#include "passes/pass.h"

#define MAX_IO 256

struct opt {
    const char *path, *run; /* run: comma separated passes, NULL: the whole pipeline */
    bool equal, quiet;
    uint64_t seed;
    double tolerance;
};

static const char usage[] =
    "usage: infc-opt [OPTION]... [FILE]\n\n"
    "Runs passes over tensor IR text (FILE, or standard input) and prints the result.\n\n"
    "options:\n"
    "  --run=PASS,PASS      these passes, in this order [all of the pipeline; `infc passes` lists them]\n"
    "  --equal[=SEED]       also evaluate before and after on random inputs; exit code 4 when they differ\n"
    "  --tolerance=X        of floats for --equal: |d| <= X * (1 + |value|) [1e-4]\n"
    "  --quiet              print no IR\n"
    "  --help               this text\n\n"
    "examples:\n"
    "  infc-opt --run=patterns,dce net.ir\n"
    "  infc build model.onnx --stop-after=import -o net.ir && infc-opt net.ir\n";

static char *read_all(const char *path, size_t *len)
{
    FILE *f = strcmp(path, "-") ? fopen(path, "rb") : stdin;
    if (!f) return NULL;
    struct strbuf s = {0};
    char buf[65536];
    size_t n;
    while ((n = fread(buf, 1, sizeof buf, f)) > 0) strbuf_putn(&s, buf, n);
    bool ok = !ferror(f);
    if (f != stdin) fclose(f);
    *len = s.len;
    char *text = malloc(s.len + 1);
    if (ok && text) memcpy(text, strbuf_get(&s), s.len + 1);
    strbuf_deinit(&s);
    if (ok) return text;
    free(text);
    return NULL;
}

static struct ir_module *parse(const struct opt *o, const char *text, size_t len, const char *data, size_t data_len, struct diag_sink *diag)
{
    const char *name = strcmp(o->path, "-") ? o->path : "<stdin>";
    struct ir_module *m = ir_parse_module(text, len, name, data, data_len, diag);
    if (!m || ir_verify_module(m, diag)) return m;
    ir_module_destroy(m);
    return NULL;
}

static bool run_passes(const struct opt *o, struct ir_module *m, struct diag_sink *diag)
{
    if (!o->run) {
        struct pass_options all = {0};
        return pass_run_all(m, &all, diag);
    }
    for (const char *p = o->run; *p;) {
        size_t n = strcspn(p, ",");
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)(n < 63 ? n : 63), p);
        if (!pass_find(name)) return diag_report(diag, DIAG_OPTION, NULL, "unknown pass '%s'; `infc passes` lists them", name);
        struct pass_options one = {.start_at = name, .stop_after = name};
        if (!pass_run_all(m, &one, diag)) return false;
        p += n + (p[n] == ',');
    }
    return true;
}

/* Small values within the symbols' ranges, different ones where there is a choice. */
static void choose_symbols(const struct dim_ctx *dims, int64_t *out)
{
    for (size_t i = 0; i < dim_sym_count(dims); i++) {
        const struct dim *s = dim_sym_at(dims, i);
        int64_t lo = s->lo > 0 ? s->lo : s->hi >= 1 ? 1 : s->lo;
        out[i] = lo + 2 + (int64_t)(i % 3) <= s->hi ? lo + 2 + (int64_t)(i % 3) : lo;
    }
}

static bool make_inputs(const struct opt *o, struct ir_module *m, struct ir_tensor *in, struct arena *arena, struct diag_sink *diag)
{
    struct ir_func *f = m->funcs.v[0];
    int64_t *syms = ARENA_ARRAY(arena, int64_t, dim_sym_count(m->dims) + 1);
    choose_symbols(m->dims, syms);
    for (int i = 0; i < f->n_inputs; i++) {
        const struct ir_type *t = &f->body->args[i]->type;
        struct ir_tensor *x = &in[i];
        int64_t n = (int64_t)dtype_bytes(t->dtype);
        *x = (struct ir_tensor){.dtype = t->dtype, .rank = t->rank};
        for (int k = 0; k < t->rank; k++)
            if (!dim_eval(m->dims, t->dims[k], syms, &x->dims[k]) || x->dims[k] < 0 || !i64_mul(n, x->dims[k], &n) || n > 1 << 28)
                return diag_report(diag, DIAG_SHAPE_MISMATCH, NULL, "input %d has no size that could be tried", i);
        x->n_bytes = (size_t)n;
        x->data = arena_alloc(arena, x->n_bytes + 1);
        if (!npy_fill_random(x, o->seed, (uint32_t)i))
            return diag_report(diag, DIAG_SHAPE_MISMATCH, NULL, "input %d has a type without random values", i);
    }
    return true;
}

static double element(const struct ir_tensor *t, int64_t i)
{
    struct ir_const c = {.type = {.dtype = t->dtype}, .n_bytes = dtype_bytes(t->dtype)};
    double v = 0;
    c.data = (const char *)t->data + (size_t)i * c.n_bytes;
    ir_const_get_float(&c, 0, &v);
    return v;
}

static bool same_tensor(const struct opt *o, const struct ir_tensor *a, const struct ir_tensor *b, int number)
{
    size_t size = dtype_bytes(a->dtype);
    bool ok = a->dtype == b->dtype && a->rank == b->rank && a->n_bytes == b->n_bytes &&
              !memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims);
    if (!ok) {
        fprintf(stderr, "infc-opt: output %d has another type or shape\n", number);
        return false;
    }
    for (int64_t i = 0; size && i < (int64_t)(a->n_bytes / size); i++) {
        if (!memcmp((const char *)a->data + (size_t)i * size, (const char *)b->data + (size_t)i * size, size)) continue;
        double x = element(a, i), y = element(b, i);
        double tol = a->dtype == DT_F16 || a->dtype == DT_BF16 ? 1.0 / 64 : o->tolerance;
        if (dtype_is_float(a->dtype) && ((isnan(x) && isnan(y)) || x == y || fabs(x - y) <= tol * (1 + fabs(x)))) continue;
        fprintf(stderr, "infc-opt: output %d, element %lld: %.9g before, %.9g after\n", number, (long long)i, x, y);
        return false;
    }
    return true;
}

/* 0 equal, 4 different, 2 when one of them cannot be evaluated. */
static int compare(const struct opt *o, struct ir_module *before, struct ir_module *after, struct diag_sink *diag)
{
    struct arena arena;
    struct ir_func *f = before->funcs.v[0], *g = after->funcs.v[0];
    struct ir_tensor in[MAX_IO], a[MAX_IO], b[MAX_IO];
    memset(in, 0, sizeof in);
    if (f->n_inputs > MAX_IO || f->n_outputs > MAX_IO || f->n_outputs != g->n_outputs) return 2;
    arena_init(&arena);
    int code = make_inputs(o, before, in, &arena, diag) && ir_eval_func(f, in, a, &arena, diag) && ir_eval_func(g, in, b, &arena, diag) ? 0 : 2;
    for (int i = 0; code == 0 && i < f->n_outputs; i++)
        if (!same_tensor(o, &a[i], &b[i], i)) code = 4;
    arena_deinit(&arena);
    return code;
}

static int run(const struct opt *o, struct diag_sink *diag)
{
    size_t len = 0, data_len = 0;
    char *text = read_all(o->path, &len), side[4096];
    snprintf(side, sizeof side, "%s.bin", o->path);
    char *data = strcmp(o->path, "-") ? read_all(side, &data_len) : NULL; /* large constants; there need be none */
    int code = 2;
    struct ir_module *m = NULL, *before = NULL;
    if (!text) {
        diag_report(diag, DIAG_FILE_READ, o->path, "cannot be read");
        code = 3;
        goto cleanup;
    }
    m = parse(o, text, len, data, data_len, diag);
    before = m && o->equal ? parse(o, text, len, data, data_len, diag) : NULL;
    if (!m || (o->equal && !before) || !run_passes(o, m, diag)) goto cleanup;
    code = before ? compare(o, before, m, diag) : 0;
    if (!o->quiet) {
        struct strbuf s = {0};
        ir_print_module(&s, m, NULL);
        fputs(strbuf_get(&s), stdout);
        strbuf_deinit(&s);
    }
cleanup:
    if (m) ir_module_destroy(m);
    if (before) ir_module_destroy(before);
    free(text);
    free(data);
    return code;
}

int main(int argc, char **argv)
{
    struct opt o = {.path = "-", .seed = 1, .tolerance = 1e-4};
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];
        if (!strcmp(a, "--help") || !strcmp(a, "-h")) {
            fputs(usage, stdout);
            return 0;
        }
        if (!strncmp(a, "--run=", 6)) o.run = a + 6;
        else if (!strcmp(a, "--equal")) o.equal = true;
        else if (!strncmp(a, "--equal=", 8)) o.equal = true, o.seed = strtoull(a + 8, NULL, 10);
        else if (!strncmp(a, "--tolerance=", 12)) o.tolerance = strtod(a + 12, NULL);
        else if (!strcmp(a, "--quiet")) o.quiet = true;
        else if (a[0] == '-' && a[1]) {
            fprintf(stderr, "infc-opt: unknown option %s\n%s", a, usage);
            return 2;
        } else {
            o.path = a;
        }
    }
    struct diag_sink diag;
    diag_init(&diag);
    int code = run(&o, &diag);
    diag_print_text(&diag, stderr);
    if (code == 0) code = diag_exit_code(&diag);
    diag_deinit(&diag);
    return code;
}
