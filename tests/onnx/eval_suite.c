// SPDX-License-Identifier: Apache-2.0
/*
 * Runs ONNX backend tests (folders with model.onnx and test_data_set_*) through importer and
 * evaluator and compares the outputs with the expected ones. Inputs that decide shapes (axes, new
 * shapes, bounds) are given at build time where the importer asks for them. One line a test,
 * "pass", "fail", "unsupported" (with the first diagnostic), "eval" (the evaluator refused) or
 * "crash", and a summary. Each test runs in a process of its own.
 *
 *   eval_suite [--rtol=R] [--atol=A] [--scaled=S] [--plan=v2|v3|v4] FOLDER...
 *
 * --scaled: an output is right when max|d| / max(std, 1e-3 max|expected|) is at most S; the figure
 * is printed. With --plan the model goes through the tensor passes and lowering first, and its plan
 * runs in the loop-IR evaluator, which checks every access of every kernel.
 */
#define _XOPEN_SOURCE 700 /* fork, alarm */

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compiler/import/import.h"
#include "compiler/import/wire.h"
#include "compiler/emit_plan.h"
#include "ir/eval.h"
#include "ir/plan_eval.h"
#include "passes/lower.h"
#include "passes/pass.h"

static double g_rtol = 1e-3, g_atol = 1e-7, g_scaled; /* set once from the command line */
static int g_level = -1;                              /* --plan: enum infr_isa */

static const struct target_level levels[] = {
    {.name = "v2", .isa = INFR_ISA_V2, .vector_bytes = 16, .n_vector_regs = 16},
    {.name = "v3", .isa = INFR_ISA_V3, .vector_bytes = 32, .n_vector_regs = 16, .has_fma = true},
    {.name = "v4",
     .isa = INFR_ISA_V4,
     .vector_bytes = 64,
     .n_vector_regs = 32,
     .has_fma = true,
     .has_masks = true},
};
static const struct target plan_target = {.name = "test", .levels = levels, .n_levels = 3};

enum outcome { PASS, FAIL, UNSUPPORTED, EVAL, CRASH, N_OUTCOMES };
static const char *const outcome_names[] = {"pass", "fail", "unsupported", "eval", "crash"};

static uint8_t *read_file(const char *path, size_t *len)
{
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    long n = ftell(f);
    rewind(f);
    uint8_t *p = malloc((size_t)n + 1);
    *len = fread(p, 1, (size_t)n, f);
    fclose(f);
    return p;
}

static void put_len(struct strbuf *s, size_t n)
{
    for (; n >= 0x80; n >>= 7) strbuf_putc(s, (char)(n | 0x80));
    strbuf_putc(s, (char)n);
}

static void put_field(struct strbuf *s, char tag, const void *data, size_t n)
{
    strbuf_putc(s, tag);
    put_len(s, n);
    strbuf_putn(s, data, n);
}

/* A serialised TensorProto as a tensor: wrapped into a model with one initialiser, which the
 * importer then reads. */
static bool read_tensor(const char *path, struct ir_tensor *out, struct diag_sink *diag)
{
    size_t len;
    uint8_t *bytes = read_file(path, &len);
    if (!bytes) return false;
    struct strbuf tensor = {0}, graph = {0}, model = {0};
    struct wire_reader r = {bytes, bytes + len, false};
    struct wire_field f;
    for (const uint8_t *at = r.p; wire_next(&r, &f); at = r.p)
        if (f.number != 8) strbuf_putn(&tensor, (const char *)at, (size_t)(r.p - at));
    put_field(&tensor, 0x42, "t", 1);
    put_field(&graph, 0x2a, strbuf_get(&tensor), tensor.len);
    put_field(&graph, 0x62, "\x0a\x01t", 3);
    strbuf_putn(&model, "\x08\x08\x42\x02\x10\x11", 6);
    put_field(&model, 0x3a, strbuf_get(&graph), graph.len);
    struct ir_module *m = import_onnx_bytes(model.data, model.len, path, NULL, diag);
    if (!m) return false;
    const struct ir_const *c = m->consts.v[0];
    *out = (struct ir_tensor){.dtype = c->type.dtype,
                              .rank = c->type.rank,
                              .data = malloc(c->n_bytes + 1),
                              .n_bytes = c->n_bytes};
    for (int i = 0; i < c->type.rank; i++) out->dims[i] = c->type.dims[i]->value;
    memcpy(out->data, c->data, c->n_bytes);
    ir_module_destroy(m);
    strbuf_deinit(&tensor);
    strbuf_deinit(&graph);
    strbuf_deinit(&model);
    free(bytes);
    return true;
}

/* Element i as a double; integers of 64 bits are compared exactly elsewhere. */
static double element(const struct ir_tensor *t, int64_t i)
{
    struct ir_const c = {.data = t->data, .n_bytes = t->n_bytes, .type = {.dtype = t->dtype}};
    double f = 0;
    int64_t v = 0;
    int64_t n = (int64_t)(t->n_bytes / dtype_bytes(t->dtype));
    c.type.rank = 0;
    size_t size = dtype_bytes(t->dtype);
    if (i >= n) return NAN;
    c.data = (const char *)t->data + (size_t)i * size;
    c.n_bytes = size;
    if (dtype_is_float(t->dtype)) ir_const_get_float(&c, 0, &f);
    else if (ir_const_get_int(&c, 0, &v)) f = (double)v;
    return f;
}

static bool compare_scaled(const char *name, const struct ir_tensor *got,
                           const struct ir_tensor *want, int64_t n)
{
    double top = 0, sum = 0, squares = 0, worst = 0;
    for (int64_t i = 0; i < n; i++) {
        double b = element(want, i), d = fabs(element(got, i) - b);
        top = fmax(top, fabs(b));
        sum += b;
        squares += b * b;
        if (!(d <= worst)) worst = d;
    }
    double var = n ? squares / (double)n - sum / (double)n * (sum / (double)n) : 0,
           scale = fmax(sqrt(fmax(var, 0)), 1e-3 * top);
    double figure = worst == 0 ? 0 : worst / scale;
    printf("  %s: %lld elements, scaled error %.3g\n", name, (long long)n, figure);
    return figure <= g_scaled;
}

static bool compare(const char *name, const struct ir_tensor *got, const struct ir_tensor *want)
{
    if (got->dtype != want->dtype || got->rank != want->rank) {
        printf("  %s: %s rank %d, expected %s rank %d\n", name, dtype_name(got->dtype), got->rank,
               dtype_name(want->dtype), want->rank);
        return false;
    }
    int64_t n = 1;
    for (int i = 0; i < got->rank; i++) {
        n *= got->dims[i];
        if (got->dims[i] == want->dims[i]) continue;
        printf("  %s: dim %d is %lld, expected %lld\n", name, i, (long long)got->dims[i],
               (long long)want->dims[i]);
        return false;
    }
    if (!dtype_is_float(got->dtype)) {
        size_t size = dtype_bytes(got->dtype);
        for (int64_t i = 0; i < n; i++) {
            const char *a = (const char *)got->data + (size_t)i * size,
                       *b = (const char *)want->data + (size_t)i * size;
            if (!memcmp(a, b, size)) continue;
            printf("  %s[%lld]: %.17g, expected %.17g\n", name, (long long)i, element(got, i),
                   element(want, i));
            return false;
        }
        return true;
    }
    if (g_scaled > 0) return compare_scaled(name, got, want, n);
    double rtol = got->dtype == DT_BF16 ? 1.0 / 64 : g_rtol;
    for (int64_t i = 0; i < n; i++) {
        double a = element(got, i), b = element(want, i);
        if ((isnan(a) && isnan(b)) || a == b || fabs(a - b) <= g_atol + rtol * fabs(b)) continue;
        printf("  %s[%lld]: %.9g, expected %.9g\n", name, (long long)i, a, b);
        return false;
    }
    return true;
}

/* The graph's input names in file order: what input_<i>.pb belongs to. */
struct names {
    const char *v[64];
    int n;
};

static int file_of(const struct names *names, const char *name)
{
    for (int i = 0; i < names->n; i++)
        if (!strcmp(names->v[i], name)) return i;
    return -1;
}

static void read_const(const struct plan_buf *b, void *dst, size_t n)
{
    struct weight w = {.cst = b->cst, .pack = b->pack, .n_bytes = n};
    weight_read(&w, 0, dst, n);
}

static bool run_plan(struct plan *p, const struct ir_tensor *in, struct ir_tensor *out,
                     struct arena *arena, struct diag_sink *diag)
{
    return plan_eval(p, (enum infr_isa)g_level, in, out, read_const, arena, diag);
}

static enum outcome run_set(struct ir_module *m, struct plan *plan, const struct names *names,
                            const char *folder, int set, struct diag_sink *diag)
{
    struct ir_func *f = m->funcs.v[0];
    struct ir_tensor in[64] = {{0}}, out[64] = {{0}}, want;
    char path[4096];
    if (f->n_inputs > 64 || f->n_outputs > 64) return EVAL;
    for (int i = 0; i < f->n_inputs; i++) {
        snprintf(path, sizeof path, "%s/test_data_set_%d/input_%d.pb", folder, set,
                 file_of(names, f->input_names[i]));
        if (!read_tensor(path, &in[i], diag)) return EVAL;
    }
    struct arena arena;
    arena_init(&arena);
    bool ran =
        plan ? run_plan(plan, in, out, &arena, diag) : ir_eval_func(f, in, out, &arena, diag);
    enum outcome o = ran ? PASS : EVAL;
    for (int i = 0; i < f->n_outputs && (o == PASS || o == FAIL); i++) {
        snprintf(path, sizeof path, "%s/test_data_set_%d/output_%d.pb", folder, set, i);
        if (!read_tensor(path, &want, diag)) return EVAL;
        if (!compare(f->output_names[i], &out[i], &want)) o = FAIL;
    }
    arena_deinit(&arena);
    return o;
}

/* Names of the graph's inputs, straight from the wire: model field 7, graph field 11, value info
 * field 1. */
static void read_names(const char *path, struct names *out)
{
    size_t len;
    uint8_t *bytes = read_file(path, &len);
    struct wire_reader m = {bytes, bytes + (bytes ? len : 0), false};
    struct wire_field f, g, v;
    while (bytes && wire_next(&m, &f)) {
        if (f.number != 7) continue;
        struct wire_reader graph = {f.data, f.data + f.len, false};
        while (wire_next(&graph, &g)) {
            if (g.number != 11 || out->n == 64) continue;
            struct wire_reader info = {g.data, g.data + g.len, false};
            while (wire_next(&info, &v)) {
                if (v.number != 1) continue;
                char *name = calloc(1, v.len + 1);
                memcpy(name, v.data, v.len);
                out->v[out->n++] = name;
            }
        }
    }
    free(bytes);
}

/* Imports; what the importer asks for is given from the first data set. */
static struct ir_module *import(const char *folder, const struct names *names,
                                struct diag_sink *diag)
{
    struct import_needs needs = {0};
    struct import_value values[64];
    struct import_options options = {.values = values, .needs = &needs};
    char path[4096];
    arena_init(&needs.arena);
    for (;;) {
        snprintf(path, sizeof path, "%s/model.onnx", folder);
        struct ir_module *m = import_onnx(path, &options, diag);
        if (m || needs.inputs.n == (size_t)options.n_values || needs.inputs.n > 64) return m;
        diag_deinit(diag);
        diag_init(diag);
        for (size_t i = (size_t)options.n_values; i < needs.inputs.n; i++) {
            struct ir_tensor t;
            snprintf(path, sizeof path, "%s/test_data_set_0/input_%d.pb", folder,
                     file_of(names, needs.inputs.v[i]));
            if (!read_tensor(path, &t, diag)) return NULL;
            values[i] = (struct import_value){.name = needs.inputs.v[i],
                                              .dtype = t.dtype,
                                              .rank = t.rank,
                                              .data = t.data,
                                              .n_bytes = t.n_bytes};
            memcpy(values[i].dims, t.dims, sizeof t.dims);
            printf("  fixed %s\n", values[i].name);
        }
        options.n_values = (int)needs.inputs.n;
    }
}

static enum outcome run_test(const char *folder)
{
    struct diag_sink diag;
    diag_init(&diag);
    char path[4096];
    struct names names = {0};
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    read_names(path, &names);
    struct ir_module *m = import(folder, &names, &diag);
    enum outcome o = m ? PASS : UNSUPPORTED;
    struct plan *plan = NULL;
    if (m && g_level >= 0) {
        struct pass_options po = {0};
        if (pass_run_all(m, &po, &diag)) plan = lower_module(m, &plan_target, 1u << g_level, &diag);
        if (!plan) o = UNSUPPORTED;
    }
    for (int set = 0; m && o == PASS; set++) {
        snprintf(path, sizeof path, "%s/test_data_set_%d", folder, set);
        if (access(path, F_OK)) break;
        o = run_set(m, plan, &names, folder, set, &diag);
    }
    if (diag.items.n)
        printf("  %s %s: %s\n", diag_code(diag.items.v[0].id), diag.items.v[0].loc,
               diag.items.v[0].message);
    plan_destroy(plan);
    if (m) ir_module_destroy(m);
    diag_deinit(&diag);
    return o;
}

int main(int argc, char **argv)
{
    int count[N_OUTCOMES] = {0};
    for (int i = 1; i < argc; i++) {
        if (!strncmp(argv[i], "--rtol=", 7)) g_rtol = atof(argv[i] + 7);
        else if (!strncmp(argv[i], "--atol=", 7)) g_atol = atof(argv[i] + 7);
        else if (!strncmp(argv[i], "--scaled=", 9)) g_scaled = atof(argv[i] + 9);
        else if (!strncmp(argv[i], "--plan=v", 8))
            g_level = argv[i][8] == '2'   ? INFR_ISA_V2
                      : argv[i][8] == '3' ? INFR_ISA_V3
                                          : INFR_ISA_V4;
        else {
            fflush(stdout);
            pid_t child = fork();
            if (child == 0) {
                alarm(600);
                int o = run_test(argv[i]);
                fflush(stdout);
                _exit(o);
            }
            int status = 0;
            waitpid(child, &status, 0);
            int o = WIFEXITED(status) && WEXITSTATUS(status) < CRASH ? WEXITSTATUS(status) : CRASH;
            const char *slash = strrchr(argv[i], '/');
            printf("%s %s\n", outcome_names[o], slash ? slash + 1 : argv[i]);
            count[o]++;
        }
    }
    for (int o = 0; o < N_OUTCOMES; o++)
        printf("%s%s %d", o ? ", " : "# ", outcome_names[o], count[o]);
    printf("\n");
    return count[FAIL] || count[CRASH] ? 1 : 0;
}
