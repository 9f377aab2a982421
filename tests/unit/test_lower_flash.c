// SPDX-License-Identifier: Apache-2.0
/*
 * Attention on tensor units (passes/lower_flash.c) in the loop-IR evaluator, against the tensor evaluator: prompts, single rows, both
 * in one batch, over every kind of cache. What is not to be seen of a page is NaN. And a row's bits must be the same
 * in every batch, whichever kernels compute it.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ir/eval.h"
#include "ir/plan_eval.h"
#include "ir/smallfloat.h"
#include "ir/text.h"
#include "passes/lower.h"
#include "passes/pass.h"
#include "runtime/abi/random.h"

enum { MAX_ROWS = 80, MAX_SEQS = 8, TABLE = 16 };

struct run_of {
    int rows, first; /* of a sequence: positions first, first + 1, .. */
};

struct attention_case {
    const char *cache; /* f16, bf16, i8 */
    int heads, kv_heads, d, dv, page, window;
    double softcap;
    struct run_of batch[MAX_SEQS]; /* a sequence each; rows 0 ends */
    const char *schedule;
};

static const struct attention_case cases[] = {
    /* tiles of 64 rows: 16 rows of 4 heads; the batch is too large to be split */
    {"f16", 8, 2, 64, 64, 32, 0, 0, {{40, 0}, {1, 70}, {1, 5}}, "attention"},
    {"f16", 8, 2, 64, 64, 32, 0, 0, {{3, 0}, {34, 11}}, "attention"}, /* a tile of two sequences */
    /* split: chunks of 256 positions */
    {"f16", 8, 2, 64, 64, 32, 0, 0, {{1, 300}, {1, 0}, {1, 31}}, "attention"},
    {"f16", 8, 2, 64, 64, 32, 0, 0, {{1, 255}, {1, 256}, {1, 511}}, "attention"},
    {"f16", 8, 2, 64, 64, 32, 0, 0, {{16, 250}}, "attention"},
    {"f16", 3, 1, 16, 16, 32, 0, 0, {{23, 0}}, "attention"},   /* 21 rows of 3 heads: one row of the tile is nobody's */
    {"f16", 6, 2, 80, 80, 16, 0, 0, {{24, 3}, {1, 130}}, "attention"},
    {"f16", 2, 2, 128, 128, 32, 0, 0, {{33, 30}, {2, 290}}, "attention"}, /* two warps a tile */
    {"f16", 16, 1, 32, 32, 32, 0, 0, {{5, 0}, {1, 64}}, "attention"},
    {"f16", 7, 1, 48, 48, 16, 0, 0, {{9, 120}, {1, 3}}, "attention"},
    {"f16", 4, 2, 192, 128, 32, 0, 0, {{8, 20}}, "attention"},
    {"f16", 4, 2, 96, 32, 64, 0, 0, {{20, 500}, {4, 0}}, "attention"},
    {"f16", 4, 2, 64, 64, 32, 5, 0, {{20, 0}, {1, 200}}, "attention"}, /* windows: within a page, over pages, over chunks */
    {"f16", 4, 2, 64, 64, 32, 40, 0, {{3, 290}, {1, 10}}, "attention"},
    {"f16", 4, 2, 64, 64, 16, 300, 0, {{18, 100}, {1, 255}}, "attention"},
    {"f16", 4, 2, 64, 64, 32, 0, 2.0, {{4, 0}, {1, 99}}, "attention"},
    {"f16", 4, 2, 64, 64, 32, 0, 0, {{4, 0}, {1, -1}, {2, 7}}, "attention"}, /* a row that sees nothing */
    {"bf16", 8, 2, 64, 64, 32, 0, 0, {{40, 0}, {1, 70}}, "attention"},
    {"bf16", 4, 4, 32, 48, 16, 0, 0, {{2, 140}, {1, 0}}, "attention"},
    {"bf16", 9, 3, 64, 64, 32, 33, 1.5, {{22, 10}, {1, 300}}, "attention"},
    {"i8", 8, 2, 64, 64, 32, 0, 0, {{40, 0}, {1, 70}}, "attention"},
    {"i8", 4, 2, 128, 128, 32, 0, 0, {{1, 300}, {2, 30}}, "attention"},
    {"i8", 6, 2, 96, 64, 16, 20, 0, {{14, 5}, {1, 180}}, "attention"},
    {"i8", 3, 1, 32, 32, 64, 0, 3.0, {{17, 0}, {1, 600}}, "attention"},
    /* shapes that the units do not take: a thread a row */
    {"f16", 4, 2, 24, 24, 32, 0, 0, {{3, 10}}, NULL},
    {"f32", 4, 2, 32, 32, 32, 0, 0, {{3, 10}}, NULL},
    {"f16", 40, 1, 32, 32, 32, 0, 0, {{3, 10}}, NULL},
};

struct inputs {
    struct ir_tensor t[8];
    int n;
};

struct setting {
    struct arena arena;
    struct diag_sink diag;
    const struct attention_case *c;
    enum dtype cache;
    int n_pages, blocks[2];
    int32_t table[MAX_SEQS * TABLE], pos[MAX_ROWS], seq[MAX_ROWS];
    float q[MAX_ROWS * 4096];
    int rows, seqs;
    struct inputs in;
};

static float number(uint32_t stream, int64_t i) { return (float)infr_random_float(21, stream, (uint64_t)i); }

static struct ir_tensor tensor(enum dtype d, void *data, int rank, const int64_t *dims)
{
    struct ir_tensor t = {.dtype = d, .rank = rank, .data = data, .n_bytes = dtype_bytes(d)};
    for (int i = 0; i < rank; i++) t.dims[i] = dims[i], t.n_bytes *= (size_t)dims[i];
    return t;
}

/* A cache (which: 0 K, 1 V) or its scales: random where a sequence has been, NaN elsewhere (bytes: 0x81). */
static struct ir_tensor cache(struct setting *s, int which, bool scales)
{
    const struct attention_case *c = s->c;
    int64_t width = which ? c->dv : c->d, cols = scales ? s->blocks[which] : width, dims[4] = {s->n_pages, c->page, c->kv_heads, cols};
    enum dtype type = scales ? DT_F16 : s->cache;
    size_t elem = dtype_bytes(type), n = (size_t)(s->n_pages * c->page * c->kv_heads * cols);
    char *data = arena_alloc(&s->arena, n * elem);
    for (size_t i = 0; i < n; i++)
        if (type == DT_I8) data[i] = (char)0x81;
        else float_encode(type, (double)NAN, false, data + i * elem);
    for (int q = 0; q < s->seqs; q++)
        for (int p = 0; p < c->batch[q].first + c->batch[q].rows; p++)
            for (int64_t i = 0; i < c->kv_heads * cols; i++) {
                int64_t at = ((int64_t)s->table[q * TABLE + p / c->page] * c->page + p % c->page) * c->kv_heads * cols + i;
                double v = (double)number((uint32_t)(which * 2 + scales), at);
                if (type == DT_I8) data[at] = (char)lrint(v * 127);
                else float_encode(type, scales ? fabs(v) * 0.02 : v, false, data + (size_t)at * elem);
            }
    return tensor(type, data, 4, dims);
}

static void set(struct setting *s, const struct attention_case *c)
{
    memset(s, 0, sizeof *s);
    arena_init(&s->arena);
    diag_init(&s->diag);
    s->c = c;
    s->cache = !strcmp(c->cache, "f16") ? DT_F16 : !strcmp(c->cache, "bf16") ? DT_BF16 : !strcmp(c->cache, "i8") ? DT_I8 : DT_F32;
    s->blocks[0] = c->d / 32, s->blocks[1] = c->dv / 32;
    for (int q = 0; q < MAX_SEQS && c->batch[q].rows; q++, s->seqs++)
        for (int i = 0; i < c->batch[q].rows; i++, s->rows++) s->pos[s->rows] = c->batch[q].first + i, s->seq[s->rows] = q;
    assert_true(s->rows <= MAX_ROWS && s->rows * c->heads * c->d <= (int)(sizeof s->q / sizeof *s->q));
    /* pages in no order */
    for (int q = 0; q < s->seqs; q++)
        for (int p = 0; p * c->page < c->batch[q].first + c->batch[q].rows; p++) assert_true(p < TABLE), s->table[q * TABLE + p] = s->n_pages++;
    if (!s->n_pages) s->n_pages = 1;
    for (int i = 0; i < s->seqs * TABLE; i++) s->table[i] = s->n_pages - 1 - s->table[i];
    for (int i = 0; i < s->rows * c->heads * c->d; i++) s->q[i] = number(9, i) * 3;
}

/* The inputs of rows [first, first + rows). */
static void take(struct setting *s, int first, int rows)
{
    const struct attention_case *c = s->c;
    s->in.t[0] = tensor(DT_F32, s->q + (int64_t)first * c->heads * c->d, 3, (const int64_t[]){rows, c->heads, c->d});
    if (!s->in.n) {
        s->in.t[1] = cache(s, 0, false), s->in.t[2] = cache(s, 1, false);
        if (s->cache == DT_I8) s->in.t[6] = cache(s, 0, true), s->in.t[7] = cache(s, 1, true);
    }
    s->in.n = s->cache == DT_I8 ? 8 : 6;
    s->in.t[3] = tensor(DT_I32, s->pos + first, 1, (const int64_t[]){rows});
    s->in.t[4] = tensor(DT_I32, s->seq + first, 1, (const int64_t[]){rows});
    s->in.t[5] = tensor(DT_I32, s->table, 2, (const int64_t[]){s->seqs, TABLE});
}

static struct ir_module *module_of(struct setting *s)
{
    const struct attention_case *c = s->c;
    char text[2000], scales[300] = "", attrs[100] = "";
    bool blocks = s->cache == DT_I8;
    if (blocks)
        snprintf(scales, sizeof scales, ", %%ks: f16[pages, %d, %d, %d] state, %%vs: f16[pages, %d, %d, %d] state", c->page, c->kv_heads, s->blocks[0],
                 c->page, c->kv_heads, s->blocks[1]);
    if (c->window) snprintf(attrs, sizeof attrs, "window=%d ", c->window);
    if (c->softcap > 0) snprintf(attrs + strlen(attrs), sizeof attrs - strlen(attrs), "softcap=%.1f ", c->softcap);
    snprintf(text, sizeof text,
             "model \"m\" { sym n in [1, 512] sym pages in [1, 512] sym seqs in [1, 64] sym width in [1, 512]\n"
             "func @main(%%q: f32[n, %d, %d], %%k: %s[pages, %d, %d, %d] state, %%v: %s[pages, %d, %d, %d] state, %%p: i32[n], %%s: i32[n], "
             "%%t: i32[seqs, width]%s) -> (y: f32[n, %d, %d]) {\n"
             "%%y = paged_attention %%q, %%k, %%v, %%p, %%s, %%t%s scale=0.2 %s return %%y } }",
             c->heads, c->d, c->cache, c->page, c->kv_heads, c->d, c->cache, c->page, c->kv_heads, c->dv, scales, c->heads, c->dv, blocks ? ", %ks, %vs" : "",
             attrs);
    struct ir_module *m = ir_parse_module(text, strlen(text), "t.ir", NULL, 0, &s->diag);
    if (!m) diag_print_text(&s->diag, stderr);
    assert_non_null(m);
    return m;
}

static void compare(const struct attention_case *c, size_t number, const struct ir_tensor *want, const struct ir_tensor *got)
{
    (void)c;
    assert_int_equal(want->n_bytes, got->n_bytes);
    for (size_t i = 0; i < want->n_bytes / 4; i++) {
        float a = ((const float *)want->data)[i], b = ((const float *)got->data)[i];
        if (!(fabsf(a - b) <= 5e-6f)) fail_msg("case %zu, element %zu: want %g, got %g", number, i, (double)a, (double)b);
    }
}

static bool has_schedule(const struct plan *p, const char *name)
{
    for (size_t i = 0; i < p->kernels.n; i++)
        if (!strcmp(p->kernels.v[i].name, name)) return true;
    return false;
}

static void check_case(size_t number)
{
    static struct setting s;
    const struct attention_case *c = &cases[number];
    struct ir_tensor want = {0}, got = {0}, alone = {0};
    set(&s, c);
    struct ir_module *m = module_of(&s);
    take(&s, 0, s.rows);
    bool ok = ir_eval_func(m->funcs.v[0], s.in.t, &want, &s.arena, &s.diag) && pass_group(m, &s.diag);
    struct plan *p = ok ? lower_module(m, target_find("sm80"), 1, &s.diag) : NULL;
    if (!p) diag_print_text(&s.diag, stderr);
    assert_non_null(p);
    for (size_t i = 0; i < p->kernels.n; i++) assert_true(lp_verify(p->kernels.v[i].levels[0], &s.diag));
    assert_int_equal(has_schedule(p, "paged_attention_split"), c->schedule != NULL);
    ok = plan_eval(p, 0, s.in.t, &got, NULL, &s.arena, &s.diag);
    if (!ok) diag_print_text(&s.diag, stderr);
    assert_true(ok);
    compare(c, number, &want, &got);
    /* first, last and a middle row by themselves, and rows without their neighbours before */
    size_t row = (size_t)c->heads * (size_t)c->dv * 4;
    const int first[] = {0, s.rows - 1, s.rows / 2, s.rows > 6 ? 5 : 0}, n[] = {1, 1, 1, s.rows > 6 ? s.rows - 6 : 1};
    for (int i = 0; i < 4; i++) {
        take(&s, first[i], n[i]);
        assert_true(plan_eval(p, 0, s.in.t, &alone, NULL, &s.arena, &s.diag));
        if (memcmp(alone.data, (const char *)got.data + row * (size_t)first[i], row * (size_t)n[i]) != 0) fail_msg("case %zu: rows from %d on depend on the batch", number, first[i]);
    }
    plan_destroy(p);
    ir_module_destroy(m);
    arena_deinit(&s.arena);
    diag_deinit(&s.diag);
}

static void test_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_case(i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
