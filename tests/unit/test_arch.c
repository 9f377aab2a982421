// SPDX-License-Identifier: Apache-2.0
/*
 * Architectures: tiny models with random weights (tests/gguf/make_tiny.py) through importer and evaluator, against
 * outputs of other implementations on the same weights (tests/gguf/make_reference.py made tests/gguf/tiny.txt).
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compiler/emit_plan.h"
#include "compiler/import/import.h"
#include "ir/support/str.h"
#include "ir/text.h"
#include "passes/lower.h"
#include "passes/pass.h"
#include "tests/gguf/lm_eval.h"
#include "tests/unit/plan_races.h"

#define MAX_ROWS 128
#define MAX_WANTED 8
#define MAX_WIDTH 64

struct expected {
    char name[64];
    int n_rows, n_wanted, width;
    struct lm_row rows[MAX_ROWS];
    struct {
        int seq, pos;
        double v[MAX_WIDTH];
    } wanted[MAX_WANTED];
};

static const struct target_level levels[] = {
    {.name = "v2", .isa = INFR_ISA_V2, .vector_bytes = 16, .n_vector_regs = 16},
    {.name = "v4", .isa = INFR_ISA_V4, .vector_bytes = 64, .n_vector_regs = 32, .has_fma = true, .has_masks = true},
};
static const struct target test_target = {.name = "test", .levels = levels, .n_levels = 2};

static char src[1024], folder[1024];
static struct strbuf table, kv_table;
static bool no_python;

static int setup(void **state)
{
    char path[4096], part[4096];
    const char *s = getenv("INFC_SRC"), *tmp = getenv("TMP"), *python = getenv("INFC_PYTHON");
    (void)state;
    snprintf(src, sizeof src, "%s", s ? s : ".");
    snprintf(folder, sizeof folder, "%s", tmp ? tmp : "/tmp");
    snprintf(path, sizeof path, "%s '%s/tests/gguf/make_tiny.py' --all '%s'", python && *python ? python : "python3", src, folder);
    no_python = system(path) != 0;
    struct strbuf *const tables[] = {&table, &kv_table};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/tests/gguf/%s.txt", src, i ? "kv" : "tiny");
        FILE *f = fopen(path, "rb");
        if (!f) return -1;
        for (size_t n; (n = fread(part, 1, sizeof part, f)) > 0;) strbuf_putn(tables[i], part, n);
        fclose(f);
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    strbuf_deinit(&table);
    strbuf_deinit(&kv_table);
    return 0;
}

/* The entry at *p: "model NAME", "tokens SEQ T T T ...", "row SEQ POS V V V ...". */
static bool next_expected(const char **p, struct expected *e)
{
    memset(e, 0, sizeof *e);
    if (sscanf(*p, "model %63s", e->name) != 1) return false;
    *p += strcspn(*p, "\n") + 1;
    while (**p && strncmp(*p, "model ", 6)) {
        char *end;
        if (!strncmp(*p, "tokens ", 7)) {
            int seq = (int)strtol(*p + 7, &end, 10);
            for (int pos = 0; *end != '\n' && e->n_rows < MAX_ROWS; pos++)
                e->rows[e->n_rows++] = (struct lm_row){.seq = seq, .pos = pos, .token = (int)strtol(end, &end, 10)};
        } else if (!strncmp(*p, "row ", 4) && e->n_wanted < MAX_WANTED) {
            e->wanted[e->n_wanted].seq = (int)strtol(*p + 4, &end, 10);
            e->wanted[e->n_wanted].pos = (int)strtol(end, &end, 10);
            for (e->width = 0; *end != '\n' && e->width < MAX_WIDTH; e->width++) e->wanted[e->n_wanted].v[e->width] = strtod(end, &end);
            e->n_wanted++;
        }
        *p += strcspn(*p, "\n") + 1;
    }
    for (int i = 0; i < e->n_wanted; i++)
        for (int t = 0; t < e->n_rows; t++)
            if (e->rows[t].seq == e->wanted[i].seq && e->rows[t].pos == e->wanted[i].pos) e->rows[t].wanted = true;
    return true;
}

static double spread(const struct expected *e)
{
    double sum = 0, square = 0, n = (double)(e->n_wanted * e->width);
    for (int i = 0; i < e->n_wanted; i++)
        for (int k = 0; k < e->width; k++) {
            sum += e->wanted[i].v[k];
            square += e->wanted[i].v[k] * e->wanted[i].v[k];
        }
    return sqrt(square / n - sum / n * (sum / n));
}

/* Rows of one call against what is expected of them; the greatest difference. */
static double compare(const struct expected *e, const struct lm_row *rows, int n, const struct ir_tensor *out)
{
    double worst = 0;
    const float *x = out->data;
    if (out->rank != 2 || out->dims[1] != e->width) fail_msg("%s: the output has width %lld", e->name, (long long)out->dims[1]);
    for (int t = 0; t < n; t++) {
        if (!rows[t].wanted) continue;
        for (int i = 0; i < e->n_wanted; i++)
            for (int k = 0; k < e->width && e->wanted[i].seq == rows[t].seq && e->wanted[i].pos == rows[t].pos; k++) {
                double d = fabs((double)x[k] - e->wanted[i].v[k]);
                worst = d > worst || d != d ? d : worst;
            }
        x += e->width;
    }
    return worst;
}

static struct ir_module *import_tiny(const char *name, enum dtype kv, struct diag_sink *sink)
{
    char path[4096];
    struct import_options o = {.kv_dtype = kv};
    snprintf(path, sizeof path, "%s/%s.gguf", folder, name);
    struct ir_module *m = import_model(path, &o, sink);
    if (!m) {
        diag_print_text(sink, stderr);
        fail_msg("%s was refused", name);
    }
    return m;
}

static void read_const(const struct plan_buf *b, void *dst, size_t n)
{
    struct weight w = {.cst = b->cst, .pack = b->pack, .n_bytes = n};
    weight_read(&w, 0, dst, n);
}

/* Rows of one call, or first those at even counts (a part of each sequence), then the rest; by m, or by its plan if there is one. */
static double run_plan(const struct expected *e, struct ir_module *m, const struct plan *plan, enum infr_isa level, bool in_parts,
                       struct diag_sink *sink)
{
    static struct lm l;
    struct arena arena;
    struct ir_tensor out;
    double worst = 0;
    arena_init(&arena);
    assert_true(lm_init(&l, m));
    l.plan = plan, l.level = level, l.read_const = read_const;
    struct lm_row parts[2][MAX_ROWS];
    int n[2] = {0, 0};
    for (int t = 0; t < e->n_rows; t++) {
        int later = in_parts && e->rows[t].pos >= 3 + 20 * (1 - e->rows[t].seq);
        parts[later][n[later]++] = e->rows[t];
    }
    for (int k = 0; k < 2; k++) {
        if (n[k] == 0) continue;
        if (!lm_run(&l, parts[k], n[k], &out, &arena, sink)) {
            diag_print_text(sink, stderr);
            fail_msg("%s cannot be evaluated", e->name);
        }
        double d = compare(e, parts[k], n[k], &out);
        worst = d > worst || d != d ? d : worst;
    }
    lm_deinit(&l);
    arena_deinit(&arena);
    return worst;
}

static double run(const struct expected *e, struct ir_module *m, bool in_parts, struct diag_sink *sink)
{
    return run_plan(e, m, NULL, INFR_ISA_V2, in_parts, sink);
}

static bool is_encoder(const char *name) { return strstr(name, "bert") != NULL; }

static void check_model(const struct expected *e)
{
    struct diag_sink sink;
    double limit = 1e-4 * spread(e); /* ten times better than what is asked for */
    diag_init(&sink);
    struct ir_module *m = import_tiny(e->name, DT_F32, &sink);
    double whole = run(e, m, false, &sink), parts = is_encoder(e->name) ? 0 : run(e, m, true, &sink);
    if (getenv("INFC_TEST_VERBOSE")) print_message("%-16s std %.4f, difference %.2e of it\n", e->name, limit * 1e4, whole / limit * 1e-4);
    if (!(whole <= limit) || !(parts <= limit)) fail_msg("%s: %g and %g differ from the reference by more than %g", e->name, whole, parts, limit);
    ir_module_destroy(m);
    diag_deinit(&sink);
}

static void test_models(void **state)
{
    const char *p = strbuf_get(&table), *only = getenv("INFC_TEST_MODEL");
    static struct expected e;
    int n = 0;
    (void)state;
    if (no_python) skip();
    for (; next_expected(&p, &e); n++)
        if (!only || !strcmp(only, e.name)) check_model(&e);
    assert_true(n >= 30);
}

/* The passes keep what a model computes, its cache writes included; weights stay whole here, for the evaluator knows no parts. */
static void test_passes(void **state)
{
    static const char *const models[] = {"llama", "gemma3", "qwen2moe", "deepseek2"};
    const char *p = strbuf_get(&table);
    static struct expected e;
    (void)state;
    if (no_python) skip();
    while (next_expected(&p, &e)) {
        for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
            if (strcmp(models[i], e.name)) continue;
            struct diag_sink sink;
            struct pass_options options = {.stop_after = "dce-2"};
            diag_init(&sink);
            struct ir_module *m = import_tiny(e.name, DT_F32, &sink);
            if (!pass_run_all(m, &options, &sink)) {
                diag_print_text(&sink, stderr);
                fail_msg("%s: a pass failed", e.name);
            }
            assert_true(run(&e, m, true, &sink) <= 1e-3 * spread(&e));
            ir_module_destroy(m);
            diag_deinit(&sink);
        }
    }
}

/* Whatever the sizes: one row, rows that some launches cut and others do not, many. */
static void check_races(const char *name, const struct plan *p)
{
    static const int64_t values[] = {1, 2, 3, 5, 7, 40, 600};
    int64_t sizes[32];
    char note[512];
    for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
        for (int i = 0; i < 32; i++) sizes[i] = values[v];
        if (plan_races(p, INFR_ISA_V4, sizes, note, sizeof note)) fail_msg("%s, sizes of %d: %s", name, (int)values[v], note);
    }
}

/* Lowered to kernels, every model computes what the other implementations do. The loop-IR evaluator runs the kernels and checks each access. */
static void check_lowered(const struct expected *e)
{
    struct diag_sink sink;
    struct pass_options options = {0};
    double limit = 1e-3 * spread(e);
    diag_init(&sink);
    struct ir_module *m = import_tiny(e->name, DT_F32, &sink);
    struct plan *p = pass_run_all(m, &options, &sink) ? lower_module(m, &test_target, 1u << INFR_ISA_V2 | 1u << INFR_ISA_V4, &sink) : NULL;
    if (!p) {
        diag_print_text(&sink, stderr);
        fail_msg("%s: no lowering", e->name);
    }
    check_races(e->name, p);
    double v4 = run_plan(e, m, p, INFR_ISA_V4, false, &sink);
    double v2 = is_encoder(e->name) ? 0 : run_plan(e, m, p, INFR_ISA_V2, true, &sink);
    if (getenv("INFC_TEST_VERBOSE")) print_message("%-16s lowered: difference %.2e and %.2e of the spread\n", e->name, v4 / limit * 1e-3, v2 / limit * 1e-3);
    if (!(v4 <= limit) || !(v2 <= limit)) fail_msg("%s: %g and %g differ from the reference by more than %g", e->name, v4, v2, limit);
    plan_destroy(p);
    ir_module_destroy(m);
    diag_deinit(&sink);
}

static void test_lowered(void **state)
{
    const char *p = strbuf_get(&table), *only = getenv("INFC_TEST_MODEL");
    static struct expected e;
    (void)state;
    if (no_python) skip();
    while (next_expected(&p, &e))
        if (!only || strstr(only, e.name)) check_lowered(&e);
}

/* The outputs of all of sequence 0 fed in chunks of this many rows, the last of a chunk wanted: bits by position. */
static void run_chunks(const struct expected *e, int chunk, struct ir_module *m, const struct plan *p, float (*out)[MAX_WIDTH], struct diag_sink *sink)
{
    static struct lm l;
    struct arena arena;
    arena_init(&arena);
    assert_true(lm_init(&l, m));
    l.plan = p, l.level = INFR_ISA_V4, l.read_const = read_const;
    int n = 0;
    struct lm_row rows[MAX_ROWS];
    for (int t = 0; t < e->n_rows; t++)
        if (e->rows[t].seq == 0) rows[n++] = e->rows[t];
    for (int from = 0; from < n; from += chunk) {
        int count = n - from < chunk ? n - from : chunk;
        struct ir_tensor logits;
        for (int t = 0; t < count; t++) rows[from + t].wanted = true;
        assert_true(lm_run(&l, rows + from, count, &logits, &arena, sink));
        assert_int_equal(logits.dims[1], e->width);
        for (int t = 0; t < count; t++) memcpy(out[from + t], (const float *)logits.data + t * e->width, sizeof(float) * (size_t)e->width);
    }
    lm_deinit(&l);
    arena_deinit(&arena);
}

/* The bits of a row do not depend on how many rows a call has: quantised weights, a cache in f16, experts. */
static void test_chunks(void **state)
{
    static const char *const models[] = {"llama-quantised", "mixtral", "qwen2moe", "deepseek2"};
    const char *p = strbuf_get(&table);
    static struct expected e;
    static float whole[MAX_ROWS][MAX_WIDTH], parts[MAX_ROWS][MAX_WIDTH];
    (void)state;
    if (no_python) skip();
    while (next_expected(&p, &e)) {
        bool mine = false;
        for (size_t i = 0; i < sizeof models / sizeof *models; i++) mine = mine || !strcmp(models[i], e.name);
        if (!mine) continue;
        struct diag_sink sink;
        struct pass_options options = {0};
        diag_init(&sink);
        struct ir_module *m = import_tiny(e.name, DT_F16, &sink);
        assert_true(pass_run_all(m, &options, &sink));
        struct plan *plan = lower_module(m, &test_target, 1u << INFR_ISA_V4, &sink);
        if (!plan) diag_print_text(&sink, stderr);
        assert_non_null(plan);
        run_chunks(&e, MAX_ROWS, m, plan, whole, &sink);
        for (int chunk = 1; chunk <= 7; chunk += 6) {
            memset(parts, 0, sizeof parts);
            run_chunks(&e, chunk, m, plan, parts, &sink);
            if (memcmp(whole, parts, sizeof parts)) fail_msg("%s: chunks of %d rows change the bits", e.name, chunk);
        }
        plan_destroy(plan);
        ir_module_destroy(m);
        diag_deinit(&sink);
    }
}

/* ---- caches in other forms ---- */

static const struct {
    const char *name;
    enum dtype dtype;
} cache_forms[] = {{"f32", DT_F32}, {"bf16", DT_BF16}, {"q8", DT_I8}, {"q4", DT_I4}, {"f8", DT_F8E4M3FN}};

/*
 * A row of K that lies on the border between two steps may round either way, so outputs cannot agree to the last bits. They must
 * agree to half of what the form itself does to them, which no other rounding would: it is noise.
 */
static double noise(const struct expected *e, const struct expected *exact)
{
    double sum = 0;
    for (int i = 0; i < e->n_wanted; i++)
        for (int k = 0; k < e->width; k++) sum += (e->wanted[i].v[k] - exact->wanted[i].v[k]) * (e->wanted[i].v[k] - exact->wanted[i].v[k]);
    return sqrt(sum / (e->n_wanted * e->width));
}

/* "MODEL:FORM" of tests/gguf/kv.txt, a simulation in numpy (tests/gguf/kv_reference.py): evaluated and lowered. */
static void check_cache(struct expected *e, const struct expected *exact)
{
    char *form = strchr(e->name, ':');
    enum dtype kv = DT_NONE;
    assert_non_null(form);
    *form++ = 0;
    for (size_t i = 0; i < ARRAY_LEN(cache_forms); i++)
        if (!strcmp(form, cache_forms[i].name)) kv = cache_forms[i].dtype;
    assert_true(kv != DT_NONE);
    struct diag_sink sink;
    struct pass_options options = {0};
    double limit = 1e-4 * spread(e) + noise(e, exact) / 2;
    diag_init(&sink);
    struct ir_module *m = import_tiny(e->name, kv, &sink);
    double whole = run(e, m, false, &sink), parts = run(e, m, true, &sink);
    struct plan *p = pass_run_all(m, &options, &sink) ? lower_module(m, &test_target, 1u << INFR_ISA_V2 | 1u << INFR_ISA_V4, &sink) : NULL;
    if (!p) diag_print_text(&sink, stderr);
    assert_non_null(p);
    double v4 = run_plan(e, m, p, INFR_ISA_V4, false, &sink), v2 = run_plan(e, m, p, INFR_ISA_V2, true, &sink);
    if (getenv("INFC_TEST_VERBOSE"))
        print_message("%s %s: evaluated %.2e, lowered %.2e and %.2e; limit %.2e\n", e->name, form, whole, v4, v2, limit);
    if (!(whole <= limit && parts <= limit && v4 <= limit && v2 <= limit))
        fail_msg("%s, cache in %s: %g %g %g %g differ from the simulation by more than %g", e->name, form, whole, parts, v4, v2, limit);
    plan_destroy(p);
    ir_module_destroy(m);
    diag_deinit(&sink);
}

static void test_caches(void **state)
{
    const char *p = strbuf_get(&kv_table);
    static struct expected e, exact;
    int n = 0;
    (void)state;
    if (no_python) skip();
    for (; next_expected(&p, &e); n++) {
        if (strstr(e.name, ":f32")) exact = e;
        check_cache(&e, &exact);
    }
    assert_int_equal(n, 10);
}

/* The outputs of a model's evaluator with caches in that form. */
static void evaluate_form(const struct expected *e, enum dtype kv, float (*out)[MAX_WIDTH])
{
    struct diag_sink sink;
    diag_init(&sink);
    struct ir_module *m = import_tiny(e->name, kv, &sink);
    run_chunks(e, MAX_ROWS, m, NULL, out, &sink);
    ir_module_destroy(m);
    diag_deinit(&sink);
}

/* Root of the mean square of the differences. */
static double distance(float (*a)[MAX_WIDTH], float (*b)[MAX_WIDTH], int width)
{
    double sum = 0;
    int n = 0;
    for (; n < MAX_ROWS && (a[n][0] != 0 || b[n][0] != 0); n++)
        for (int k = 0; k < width; k++) sum += ((double)a[n][k] - (double)b[n][k]) * ((double)a[n][k] - (double)b[n][k]);
    return sqrt(sum / (n * width));
}

/* Every kind of attention reads every form: lowered as evaluated, and chunks change no bits. */
static void check_cache_kind(const struct expected *e, enum dtype kv, float (*exact)[MAX_WIDTH])
{
    static float whole[MAX_ROWS][MAX_WIDTH], parts[MAX_ROWS][MAX_WIDTH], lowered[MAX_ROWS][MAX_WIDTH];
    struct diag_sink sink;
    struct pass_options options = {0};
    diag_init(&sink);
    memset(whole, 0, sizeof whole), memset(parts, 0, sizeof parts), memset(lowered, 0, sizeof lowered);
    evaluate_form(e, kv, whole);
    struct ir_module *m = import_tiny(e->name, kv, &sink);
    struct plan *p = pass_run_all(m, &options, &sink) ? lower_module(m, &test_target, 1u << INFR_ISA_V4, &sink) : NULL;
    if (!p) diag_print_text(&sink, stderr);
    assert_non_null(p);
    run_chunks(e, MAX_ROWS, m, p, lowered, &sink);
    run_chunks(e, 7, m, p, parts, &sink);
    double off = distance(whole, lowered, e->width), limit = 1e-4 * spread(e) + distance(whole, exact, e->width) / 2;
    if (getenv("INFC_TEST_VERBOSE")) print_message("%s, %s: %.2e, limit %.2e\n", e->name, dtype_name(kv), off, limit);
    if (!(off <= limit)) fail_msg("%s: lowered caches of %s differ by %g", e->name, dtype_name(kv), off);
    if (memcmp(lowered, parts, sizeof parts)) fail_msg("%s: chunks change the bits of caches of %s", e->name, dtype_name(kv));
    plan_destroy(p);
    ir_module_destroy(m);
    diag_deinit(&sink);
}

static void test_cache_kinds(void **state)
{
    static const char *const models[] = {"gemma3", "gemma2", "phi3", "deepseek2", "deepseek2-lite", "llama-quantised"};
    static float exact[MAX_ROWS][MAX_WIDTH];
    const char *p = strbuf_get(&table);
    static struct expected e;
    int n = 0;
    (void)state;
    if (no_python) skip();
    while (next_expected(&p, &e))
        for (size_t i = 0; i < ARRAY_LEN(models); i++) {
            if (strcmp(models[i], e.name)) continue;
            memset(exact, 0, sizeof exact);
            evaluate_form(&e, DT_F32, exact);
            for (size_t k = 2; k < ARRAY_LEN(cache_forms); k++, n++) check_cache_kind(&e, cache_forms[k].dtype, exact);
        }
    assert_int_equal(n, 18);
}

/* The module survives its text form, states and encodings included. */
static void test_text(void **state)
{
    const char *p = strbuf_get(&table);
    static struct expected e;
    (void)state;
    if (no_python) skip();
    while (next_expected(&p, &e)) {
        struct diag_sink sink;
        struct strbuf text = {0}, again = {0}, data = {0}, data_again = {0};
        diag_init(&sink);
        struct ir_module *m = import_tiny(e.name, DT_NONE, &sink);
        ir_print_module(&text, m, &data);
        struct ir_module *read = ir_parse_module(text.data, text.len, "t.ir", data.data, data.len, &sink);
        if (!read) diag_print_text(&sink, stderr);
        assert_non_null(read);
        ir_print_module(&again, read, &data_again);
        assert_string_equal(text.data, again.data);
        assert_true(data.len == data_again.len && !memcmp(data.data, data_again.data, data.len));
        ir_module_destroy(read);
        ir_module_destroy(m);
        strbuf_deinit(&text);
        strbuf_deinit(&again);
        strbuf_deinit(&data);
        strbuf_deinit(&data_again);
        diag_deinit(&sink);
    }
}

/* Where the cached model is; false when it was never fetched. */
static bool find_smollm2(char *path, size_t n)
{
    char command[2200];
    snprintf(command, sizeof command, "'%s/models/fetch' --offline smollm2-gguf 2>/dev/null", src);
    FILE *f = popen(command, "r");
    bool ok = f && fgets(path, (int)n, f);
    if (f) pclose(f);
    if (ok) path[strcspn(path, "\n")] = 0;
    return ok;
}

/* A real model: "row POS LOGSUMEXP ID LOGIT ..." of tests/gguf/smollm2.txt, in two calls. */
static void test_smollm2(void **state)
{
    static struct lm l;
    char path[4096];
    struct strbuf text = {0};
    struct diag_sink sink;
    struct arena arena;
    struct ir_tensor out;
    struct lm_row rows[10];
    char *p;
    (void)state;
    if (!find_smollm2(path, sizeof path)) skip();
    diag_init(&sink);
    arena_init(&arena);
    struct import_options o = {.kv_dtype = DT_F32};
    struct ir_module *m = import_model(path, &o, &sink);
    snprintf(path, sizeof path, "%s/tests/gguf/smollm2.txt", src);
    FILE *f = fopen(path, "rb");
    assert_true(m && f && m->text && m->n_text_bytes > 1000000);
    for (int c; (c = getc(f)) != EOF;) strbuf_putc(&text, (char)c);
    fclose(f);
    assert_true(lm_init(&l, m));
    p = text.data + strlen("tokens");
    for (int t = 0; t < 10; t++) rows[t] = (struct lm_row){.pos = t, .token = (int)strtol(p, &p, 10), .wanted = true};
    double worst = 0, logits_spread = 3.5; /* of these rows, about */
    for (int from = 0; from < 10; from = from ? 10 : 6) {
        int n = from ? 4 : 6;
        assert_true(lm_run(&l, rows + from, n, &out, &arena, &sink));
        assert_int_equal(out.dims[1], 49152);
        for (int t = 0; t < n; t++) {
            const float *x = (const float *)out.data + (size_t)t * 49152;
            p = strstr(p, "row ") + 4;
            assert_int_equal(strtol(p, &p, 10), from + t);
            double want_sum = strtod(p, &p), top = -1e30, sum = 0;
            while (*p == ' ') {
                long id = strtol(p, &p, 10);
                double d = fabs((double)x[id] - strtod(p, &p));
                worst = d > worst || d != d ? d : worst;
            }
            for (int i = 0; i < 49152; i++) top = (double)x[i] > top ? (double)x[i] : top;
            for (int i = 0; i < 49152; i++) sum += exp((double)x[i] - top);
            double d = fabs(top + log(sum) - want_sum);
            worst = d > worst || d != d ? d : worst;
        }
    }
    if (getenv("INFC_TEST_VERBOSE")) print_message("smollm2: greatest difference %.2e\n", worst);
    if (!(worst <= 1e-3 * logits_spread)) fail_msg("logits differ by %g", worst);
    lm_deinit(&l);
    ir_module_destroy(m);
    arena_deinit(&arena);
    diag_deinit(&sink);
    strbuf_deinit(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_models), cmocka_unit_test(test_passes), cmocka_unit_test(test_lowered), cmocka_unit_test(test_chunks),
                                       cmocka_unit_test(test_caches), cmocka_unit_test(test_cache_kinds), cmocka_unit_test(test_text),
                                       cmocka_unit_test(test_smollm2)};
    return cmocka_run_group_tests_name("arch", tests, setup, teardown);
}
