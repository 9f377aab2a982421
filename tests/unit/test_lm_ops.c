// SPDX-License-Identifier: Apache-2.0
/* kv_write, paged_attention, matmul_experts: values worked out by hand, what the verifier refuses,
 * rope frequencies. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compiler/import/arch.h"
#include "ir/eval.h"
#include "ir/text.h"

static struct diag_sink sink;
static struct arena arena;

static int setup(void **state)
{
    (void)state;
    diag_init(&sink);
    arena_init(&arena);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    diag_deinit(&sink);
    arena_deinit(&arena);
    return 0;
}

static struct ir_module *parse(const char *text)
{
    struct ir_module *m = ir_parse_module(text, strlen(text), "t.ir", NULL, 0, &sink);
    if (!m) diag_print_text(&sink, stderr);
    assert_non_null(m);
    return m;
}

static struct ir_tensor tensor(enum dtype d, void *data, int rank, const int64_t *dims)
{
    struct ir_tensor t = {.dtype = d, .rank = rank, .data = data, .n_bytes = dtype_bytes(d)};
    for (int i = 0; i < rank; i++) {
        t.dims[i] = dims[i];
        t.n_bytes *= (size_t)dims[i];
    }
    return t;
}
#define T(d, data, rank, ...) tensor(d, data, rank, (const int64_t[]){__VA_ARGS__})

/* Pages of two rows; one head of one element. Row 1 goes nowhere, rows 0 and 2 into pages 2 and 0,
 * rounded to f16. */
static void test_write(void **state)
{
    static const char text[] = "model \"m\" { sym n in [0, 9] func @main(%s: f16[3, 2, 1, 1] "
                               "state, %r: f32[n, 1, 1], %at: i64[n]) -> (y: f16[3, 2, 1, 1]) {"
                               " %w = kv_write %s, %r, %at return %w } }";
    uint16_t cache[6] = {1, 2, 3, 4, 5, 6};
    float rows[3] = {0.5f, 7, 1.0f + 0x1p-11f}; /* the last one lies between two f16 */
    int64_t at[3] = {5, -1, 0};
    struct ir_tensor in[3] = {T(DT_F16, cache, 4, 3, 2, 1, 1), T(DT_F32, rows, 3, 3, 1, 1),
                              T(DT_I64, at, 1, 3)},
                     out;
    (void)state;
    struct ir_module *m = parse(text);
    assert_true(ir_verify_module(m, &sink));
    assert_true(ir_eval_func(m->funcs.v[0], in, &out, &arena, &sink));
    static const uint16_t want[6] = {0x3C00, 2, 3, 4, 5, 0x3800};
    assert_memory_equal(cache, want, sizeof want); /* in place */
    assert_memory_equal(out.data, want, sizeof want);
    at[0] = 6; /* beyond the state */
    assert_false(ir_eval_func(m->funcs.v[0], in, &out, &arena, &sink));
    ir_module_destroy(m);
}

#define ATTENTION(attrs)                                                                         \
    "model \"m\" { func @main(%k: f32[2, 2, 1, 2] state, %v: f32[2, 2, 1, 2] state, %q: f32[2, " \
    "2, 2], %p: i32[2], %s: i32[2], %t: i32[2, 2]) "                                             \
    "-> (y: f32[2, 2, 2]) { %y = paged_attention %q, %k, %v, %p, %s, %t " attrs " return %y } }"

/* Sequence 0 lies in page 1, then 0; sequence 1 has no page. K is what makes scores 0, ln 2, ln 4
 * with q = (1, 0). */
static void check_attention(const char *text, const int32_t *positions, const double *want)
{
    double ln2 = log(2);
    float k[8] = {(float)(2 * ln2), 0, 9, 9, 0, 0, (float)ln2, 0},
          v[8] = {10, 1, 99, 99, 1, 1, 4, 1}, q[8] = {1, 0, 0, 1, 1, 0, 1, 0};
    int32_t p[2] = {positions[0], positions[1]}, s[2] = {0, 0}, pages[4] = {1, 0, -1, -1};
    struct ir_tensor in[6] = {T(DT_F32, k, 4, 2, 2, 1, 2), T(DT_F32, v, 4, 2, 2, 1, 2),
                              T(DT_F32, q, 3, 2, 2, 2),    T(DT_I32, p, 1, 2),
                              T(DT_I32, s, 1, 2),          T(DT_I32, pages, 2, 2, 2)},
                     out;
    struct ir_module *m = parse(text);
    assert_true(ir_verify_module(m, &sink));
    for (int n_threads = 1; n_threads < 4; n_threads++) {
        assert_true(ir_eval_func_threads(m->funcs.v[0], in, &out, &arena, &sink, n_threads));
        for (int i = 0; i < 8; i++)
            if (fabs((double)((float *)out.data)[i] - want[i]) > 1e-6 * (1 + fabs(want[i])))
                fail_msg("element %d is %g, not %g", i, (double)((float *)out.data)[i], want[i]);
    }
    s[0] = 1; /* a sequence without pages */
    assert_false(ir_eval_func(m->funcs.v[0], in, &out, &arena, &sink));
    ir_module_destroy(m);
}

static void test_attention(void **state)
{
    static const int32_t two[2] = {2, 0}, none[2] = {2, -1};
    (void)state;
    /* Row 0, head 0: weights 1/7, 2/7, 4/7 of 1, 4, 10; head 1: thirds. Row 1 sees position 0
     * alone. */
    check_attention(ATTENTION("scale=1.0"), two, (const double[]){49.0 / 7, 1, 5, 1, 1, 1, 1, 1});
    check_attention(ATTENTION("scale=1.0 window=2"), two,
                    (const double[]){(4 + 20) / 3.0, 1, 7, 1, 1, 1, 1, 1});
    check_attention(ATTENTION("scale=1.0 window=1"), none,
                    (const double[]){10, 1, 10, 1, 0, 0, 0, 0});
    /* scale 2: weights 1, 4, 16 */
    check_attention(ATTENTION("scale=2.0"), two,
                    (const double[]){(1 + 16 + 160) / 21.0, 1, 5, 1, 1, 1, 1, 1});
    /* A small cap makes all scores nearly equal: cap * tanh(s / cap) is 0, 0.01, 0.01 here, to
     * eight digits. */
    double e = exp(0.01), mean = (1 + 4 * e + 10 * e) / (1 + 2 * e);
    check_attention(ATTENTION("scale=1.0 softcap=0.01"), two,
                    (const double[]){mean, 1, 5, 1, 1, 1, 1, 1});
}

static void test_experts(void **state)
{
    static const char text[] = "model \"m\" { func @main(%x: f32[2, 2], %w: f32[3, 2, 2], %i: "
                               "i64[2, 2]) -> (y: f32[2, 2, 2]) {"
                               " %y = matmul_experts %x, %w, %i return %y } }";
    float x[4] = {1, 2, 3, 4}, w[12] = {1, 0, 0, 1, 2, 0, 0, 2, 1, 1, 1, -1};
    int64_t ids[4] = {0, 2, 1, 1};
    struct ir_tensor in[3] = {T(DT_F32, x, 2, 2, 2), T(DT_F32, w, 3, 3, 2, 2),
                              T(DT_I64, ids, 2, 2, 2)},
                     out;
    (void)state;
    struct ir_module *m = parse(text);
    assert_true(ir_eval_func(m->funcs.v[0], in, &out, &arena, &sink));
    static const float want[8] = {1, 2, 3, -1, 6, 8, 6, 8};
    assert_memory_equal(out.data, want, sizeof want);
    ids[3] = 3;
    assert_false(ir_eval_func(m->funcs.v[0], in, &out, &arena, &sink));
    ir_module_destroy(m);
}

/* One position: the result is the row of V, taken out of its blocks by hand. q is anything. */
static void check_blocks(const char *stored, int width, enum dtype dtype, const uint8_t *bytes, const double *want)
{
    char text[600];
    uint16_t scales[2] = {0x3800, 0xC000}; /* 0.5 and -2 */
    float q[4] = {1, 2, 3, 4};
    int32_t zero[1] = {0};
    (void)snprintf(text, sizeof text,
                   "model \"m\" { func @main(%%v: %s[1, 1, 1, %d] state, %%d: f16[1, 1, 1, 2] state, %%q: f32[1, 1, 4], %%p: i32[1], %%t: "
                   "i32[1, 1]) -> (y: f32[1, 1, 4]) { %%y = paged_attention %%q, %%v, %%v, %%p, %%p, %%t, %%d, %%d scale=1.0 return %%y } }",
                   stored, width);
    struct ir_tensor in[5] = {T(dtype, (void *)(uintptr_t)bytes, 4, 1, 1, 1, width), T(DT_F16, scales, 4, 1, 1, 1, 2), T(DT_F32, q, 3, 1, 1, 4),
                              T(DT_I32, zero, 1, 1), T(DT_I32, zero, 2, 1, 1)},
                     out;
    struct ir_module *m = parse(text);
    assert_true(ir_verify_module(m, &sink));
    assert_true(ir_eval_func(m->funcs.v[0], in, &out, &arena, &sink));
    for (int i = 0; i < 4; i++) assert_true((double)((float *)out.data)[i] == want[i]);
    ir_module_destroy(m);
}

static void test_blocks(void **state)
{
    (void)state;
    /* two blocks of two elements each */
    check_blocks("i8", 4, DT_I8, (const uint8_t[]){3, 0x81, 127, 0xFF}, (const double[]){1.5, -63.5, -254, 2});
    /* the same, a byte each: low half first; 8 is zero */
    check_blocks("u8", 2, DT_U8, (const uint8_t[]){0xF0, 0x9A}, (const double[]){-4, 3.5, -4, -2});
}

/* f8 saturates; a NaN stays one. */
static void test_write_f8(void **state)
{
    static const char text[] = "model \"m\" { func @main(%s: f8e4m3fn[1, 4, 1, 1] state, %r: f32[4, 1, 1], %at: i64[4]) -> "
                               "(y: f8e4m3fn[1, 4, 1, 1]) { %w = kv_write %s, %r, %at return %w } }";
    uint8_t cache[4] = {0};
    float rows[4] = {1, 1e9f, -449, NAN};
    int64_t at[4] = {0, 1, 2, 3};
    struct ir_tensor in[3] = {T(DT_F8E4M3FN, cache, 4, 1, 4, 1, 1), T(DT_F32, rows, 3, 4, 1, 1), T(DT_I64, at, 1, 4)}, out;
    (void)state;
    struct ir_module *m = parse(text);
    assert_true(ir_verify_module(m, &sink) && ir_eval_func(m->funcs.v[0], in, &out, &arena, &sink));
    assert_int_equal(cache[0], 0x38);
    assert_int_equal(cache[1], 0x7E);
    assert_int_equal(cache[2], 0xFE);
    assert_int_equal(cache[3] & 0x7F, 0x7F);
    ir_module_destroy(m);
}

/* Text that must not become a valid module. */
static void test_refused(void **state)
{
    static const char *const bad[] = {
        /* what is written to is no state, has another use, or is optional */
        "model \"m\" { func @main(%s: f16[3, 2, 1, 1], %r: f32[1, 1, 1], %at: i64[1]) -> () { %w = "
        "kv_write %s, %r, %at return } }",
        "model \"m\" { func @main(%s: f16[3, 2, 1, 1] state, %r: f32[1, 1, 1], %at: i64[1]) -> (y: "
        "f16[3, 2, 1, 1]) "
        "{ %w = kv_write %s, %r, %at %y = neg %s return %y } }",
        "model \"m\" { const @c: f16[1, 2, 1, 1] = splat(0.0) func @main(%s: f16[1, 2, 1, 1] state "
        "optional = @c) -> () { return } }",
        /* shapes */
        "model \"m\" { func @main(%s: f16[3, 2, 1, 1] state, %r: f32[1, 1, 2], %at: i64[1]) -> () "
        "{ %w = kv_write %s, %r, %at return } }",
        "model \"m\" { func @main(%s: f16[3, 2, 1, 1] state, %r: f32[1, 1, 1], %at: i64[2]) -> () "
        "{ %w = kv_write %s, %r, %at return } }",
        "model \"m\" { sym p in [1, 9] func @main(%s: f16[3, p, 1, 1] state, %r: f32[1, 1, 1], "
        "%at: i64[1]) -> () { %w = kv_write %s, %r, %at return } }",
        "model \"m\" { func @main(%k: f32[2, 2, 2, 2], %q: f32[2, 3, 2], %p: i32[2], %t: i32[2, "
        "2]) -> () "
        "{ %y = paged_attention %q, %k, %k, %p, %p, %t scale=1.0 return } }",
        "model \"m\" { func @main(%k: f32[2, 2, 1, 2], %q: f32[2, 2, 2], %p: i32[2], %t: i32[2, "
        "2]) -> () "
        "{ %y = paged_attention %q, %k, %k, %p, %p, %t scale=1.0 v_dim=3 return } }",
        "model \"m\" { func @main(%k: f32[2, 2, 1, 2], %q: f32[2, 2, 2], %p: i32[2], %t: i32[2, "
        "2]) -> () "
        "{ %y = paged_attention %q, %k, %k, %p, %p, %t return } }",
        "model \"m\" { func @main(%k: f32[2, 2, 1, 2], %q: f32[2, 2, 2], %p: i64[2], %t: i32[2, "
        "2]) -> () "
        "{ %y = paged_attention %q, %k, %k, %p, %p, %t scale=1.0 return } }",
        /* caches of integers: rows of another type, no scales, scales of floats, rows that are no whole blocks, wrong width */
        "model \"m\" { func @main(%s: i8[3, 2, 1, 1] state, %r: f32[1, 1, 1], %at: i64[1]) -> () { %w = kv_write %s, %r, %at return } }",
        "model \"m\" { func @main(%k: i8[2, 2, 1, 2], %q: f32[2, 2, 2], %p: i32[2], %t: i32[2, 2]) -> () "
        "{ %y = paged_attention %q, %k, %k, %p, %p, %t scale=1.0 return } }",
        "model \"m\" { func @main(%k: f32[2, 2, 1, 2], %d: f16[2, 2, 1, 1], %q: f32[2, 2, 2], %p: i32[2], %t: i32[2, 2]) -> () "
        "{ %y = paged_attention %q, %k, %k, %p, %p, %t, %d, %d scale=1.0 return } }",
        "model \"m\" { func @main(%k: i8[2, 2, 1, 2], %d: f16[2, 2, 1, 3], %q: f32[2, 2, 2], %p: i32[2], %t: i32[2, 2]) -> () "
        "{ %y = paged_attention %q, %k, %k, %p, %p, %t, %d, %d scale=1.0 return } }",
        "model \"m\" { func @main(%k: u8[2, 2, 1, 2], %d: f16[2, 2, 1, 1], %q: f32[2, 2, 2], %p: i32[2], %t: i32[2, 2]) -> () "
        "{ %y = paged_attention %q, %k, %k, %p, %p, %t, %d, %d scale=1.0 return } }",
        "model \"m\" { func @main(%x: f32[2, 2], %w: f32[3, 2, 3], %i: i64[2, 2]) -> () { %y = "
        "matmul_experts %x, %w, %i return } }",
        "model \"m\" { func @main(%x: f32[2, 2], %w: f32[3, 2, 2], %i: f32[2, 2]) -> () { %y = "
        "matmul_experts %x, %w, %i return } }",
        "model \"m\" { func @main(%x: f32[2, 3, 2], %w: f32[3, 2, 2], %i: i64[2, 2]) -> () { %y = "
        "matmul_experts %x, %w, %i return } }",
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        size_t before = sink.error_count;
        struct ir_module *m = ir_parse_module(bad[i], strlen(bad[i]), "t.ir", NULL, 0, &sink);
        if (m && ir_verify_module(m, &sink)) fail_msg("number %zu is taken", i);
        assert_true(sink.error_count > before);
        if (m) ir_module_destroy(m);
    }
}

/* Divisors of a file's rope_freqs.weight: cos and sin at position 12345 (tests/gguf/rope_freqs.txt,
 * computed in f64). */
static void test_rope_freqs(void **state)
{
    static struct arch a;
    char path[2048];
    const char *src = getenv("INFC_SRC");
    double position, c, s;
    (void)state;
    snprintf(path, sizeof path, "%s/tests/gguf/rope_freqs.gguf", src ? src : ".");
    memset(&a, 0, sizeof a);
    a.g = gguf_open(path, &sink);
    assert_non_null(a.g);
    a.row = arch_find("llama", 5);
    a.diag = &sink;
    a.loc = "rope_freqs.gguf";
    a.h.rot = 64;
    map_init(&a.used, &a.g->arena);
    assert_true(arch_make_freqs(&a));
    assert_int_equal(a.freqs.n, 32);
    snprintf(path, sizeof path, "%s/tests/gguf/rope_freqs.txt", src ? src : ".");
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "position %lf", &position), 1);
    for (int i = 0; i < 32; i++) {
        assert_int_equal(fscanf(f, "%lf %lf", &c, &s), 2);
        double angle = position * a.freqs.inv_freq[i] * a.freqs.scale;
        if (fabs(cos(angle) - c) > 1e-9 || fabs(sin(angle) - s) > 1e-9)
            fail_msg("pair %d: %.12g %.12g", i, cos(angle), sin(angle));
    }
    fclose(f);
    gguf_close(a.g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_write, setup, teardown),
        cmocka_unit_test_setup_teardown(test_write_f8, setup, teardown),
        cmocka_unit_test_setup_teardown(test_attention, setup, teardown),
        cmocka_unit_test_setup_teardown(test_blocks, setup, teardown),
        cmocka_unit_test_setup_teardown(test_experts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rope_freqs, setup, teardown),
    };
    return cmocka_run_group_tests_name("lm_ops", tests, NULL, NULL);
}
