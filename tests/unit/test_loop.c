// SPDX-License-Identifier: Apache-2.0
/* Loop IR: folding, text, verifier, evaluator. Expected values are worked out by hand or by plain C loops. */
#include <string.h>

#include "tests/unit/loop_fixture.h"

static struct lp_kernel *parse(struct fixture *f, const char *text)
{
    struct lp_kernel *k = lp_parse(text, strlen(text), "t.lp", f->ctx, &f->diag);
    if (!k) diag_print_text(&f->diag, stderr);
    assert_non_null(k);
    return k;
}

/* y[M] = a[M, 20] * b[20, N], one row a slice, 16 columns a step. */
static const char matmul_text[] =
    "sym M in [1, 64]\n"
    "sym N in [1, inf]\n"
    "kernel \"mm\" loc \"net.onnx:/MatMul\" schedule \"matmul\" slices M claim 0 flops 40*M*N {\n"
    "  arg @0 \"a\" : f32[M, 20] align 4\n"
    "  arg @1 \"b\" : f32[20, N] align 64\n"
    "  arg @2 \"y\" : f32[M, N] align 64 writable\n"
    "  param N\n"
    "  body(%0) {\n"
    "    %1 = const 0 : i64\n"
    "    %2 = const 20 : i64\n"
    "    %3 = dim #0 : i64\n"
    "    for serial %4 in %1 .. %3 step 16 {\n"
    "      %5 = sub %3, %4 : i64\n"
    "      prefetch @1[%1, %4]\n"
    "      prefetch @1[%2, %4] far\n"
    "      %6 = const 0 : f32<1x16>\n"
    "      %7 = for serial %8 in %1 .. %2 step 1 carry (%9 = %6) {\n"
    "        %10 = load @0[%0, %8] : f32\n"
    "        %11 = load @1[%8, %4] cols 1 ncols %5 : f32<1x16>\n"
    "        %12 = fma %10, %11, %9 : f32<1x16>\n"
    "        yield %12\n"
    "      }\n"
    "      store @2[%0, %4], %7 cols 1 ncols %5\n"
    "    }\n"
    "  }\n"
    "}\n";

static void assert_prints(const struct lp_kernel *k, bool canonical, const char *text)
{
    struct strbuf s = {0};
    lp_print(&s, k, canonical);
    assert_string_equal(strbuf_get(&s), text);
    strbuf_deinit(&s);
}

static void test_round_trip(void **state)
{
    struct fixture *f = *state;
    struct lp_kernel *k = parse(f, matmul_text);
    assert_prints(k, false, matmul_text);
    lp_kernel_destroy(k);
}

static void test_round_trip_all(void **state)
{
    struct fixture *f = *state;
    const char *text =
        "kernel \"odd \\\"name\" loc \"\" schedule \"\" slices 1 claim 7 {\n"
        "  arg @0 \"x\" : i8[4, 8] strides [16, 2] align 1 writable\n"
        "  arg @1 \"s\" : f64[] align 8\n"
        "  stack @2 \"t\" : bf16[64] align 64\n"
        "  shared @3 \"u\" : u8[16] align 64\n"
        "  body(%0) {\n"
        "    %1 = const 1 : i64\n"
        "    %2 = iota : i64<1x8>\n"
        "    %3 = load @0[%1, %2] : i8<1x8>\n"
        "    %4 = load @0[%1, %1] rows 0 cols 1 nrows %1 : i8<2x4>\n"
        "    %5 = const 0.1 : f32<4x1>\n"
        "    %6 = const -inf : f64\n"
        "    %7 = const nan : f16<1x2>\n"
        "    %8 = const -128 : i8\n"
        "    %9 = const 0.30000000000000004 : f64\n"
        "    %10 = extract 1, %4 : i8<1x4>\n"
        "    %11 = reduce max %4 : i8<2x1>\n"
        "    %12 = splat %11 : i8<2x4>\n"
        "    %13 = lt %12, %4 : bool<2x4>\n"
        "    %14 = select %13, %12, %8 : i8<2x4>\n"
        "    %15 = const 0 : i32<2x2>\n"
        "    %16 = mma 4, %15, %4, %3 : i32<2x2>\n"
        "    store @0[%1, %2], %8\n"
        "    store @0[%1, %1], %14 rows 0 cols 1 nrows %1 ncols %1\n"
        "    %17 = lt %1, %0 : bool\n"
        "    %18, %19 = if %17 -> (i64, f64) {\n"
        "      yield %1, %6\n"
        "    } else {\n"
        "      %20 = cast %1 : f64\n"
        "      yield %0, %20\n"
        "    }\n"
        "    if %17 {\n"
        "      barrier\n"
        "    } else {\n"
        "    }\n"
        "    %21, %22 = for vector %23 in %0 .. %1 step 3 carry (%24 = %18, %25 = %19) {\n"
        "      %26 = exp %25 : f64\n"
        "      yield %23, %26\n"
        "    }\n"
        "    for unroll %27 in %1 .. %1 step 1 {\n"
        "    }\n"
        "    %28 = interleave %4 : i8<1x8>\n"
        "  }\n"
        "}\n";
    struct lp_kernel *k = parse(f, text);
    assert_prints(k, false, text);
    lp_kernel_destroy(k);
}

static void test_canonical(void **state)
{
    struct fixture *f = *state;
    struct lp_kernel *k = parse(f, matmul_text);
    struct strbuf want = {0}, got = {0};
    lp_print(&want, k, true);
    assert_null(strstr(want.data, "mm"));
    assert_null(strstr(want.data, "net.onnx"));
    assert_non_null(strstr(want.data, "$1"));
    assert_null(strstr(want.data, "inf]")); /* no code depends on ranges */
    lp_kernel_destroy(k);
    /* The same kernel under other names. */
    strbuf_puts(&got, matmul_text);
    for (char *p = got.data; *p; p++) {
        if ((*p == 'M' || *p == 'N') && (p[1] == ',' || p[1] == ']' || p[1] == ' ' || p[1] == '\n' || p[1] == '*'))
            *p = *p == 'M' ? 'Q' : 'R';
        if (*p == '"' && p[1] == 'y') p[1] = 'z';
    }
    k = parse(f, got.data);
    struct strbuf again = {0};
    lp_print(&again, k, true);
    assert_string_equal(want.data, again.data);
    lp_kernel_destroy(k);
    strbuf_deinit(&want);
    strbuf_deinit(&got);
    strbuf_deinit(&again);
}

static void test_folding(void **state)
{
    struct fixture *f = *state;
    struct lp_kernel *k = lp_kernel_create(f->ctx, "k", "", "");
    struct lp_builder b = {.k = k, .block = k->body};
    struct lp_value *x = k->body->args[0], *v;
    int64_t c;
    assert_ptr_equal(lp_binary(&b, LP_OP_ADD, x, lp_index(&b, 0)), x);
    assert_ptr_equal(lp_binary(&b, LP_OP_MUL, lp_index(&b, 1), x), x);
    assert_true(lp_is_const(lp_binary(&b, LP_OP_MUL, x, lp_index(&b, 0)), &c) && c == 0);
    v = lp_binary(&b, LP_OP_ADD, x, lp_index(&b, 3));
    v = lp_binary(&b, LP_OP_SUB, v, lp_index(&b, 1));
    assert_int_equal(v->def->code, LP_OP_ADD);
    assert_ptr_equal(v->def->operands[0], x);
    assert_true(lp_is_const(v->def->operands[1], &c) && c == 2);
    assert_ptr_equal(lp_binary(&b, LP_OP_SUB, v, lp_index(&b, 2)), x);
    assert_true(lp_is_const(lp_binary(&b, LP_OP_FLOORDIV, lp_index(&b, -7), lp_index(&b, 2)), &c) && c == -4);
    assert_true(lp_is_const(lp_binary(&b, LP_OP_MOD, lp_index(&b, -7), lp_index(&b, 4)), &c) && c == 1);
    assert_true(lp_is_const(lp_binary(&b, LP_OP_MOD, lp_index(&b, 7), lp_index(&b, -4)), &c) && c == -1);
    assert_true(lp_is_const(lp_binary(&b, LP_OP_MIN, lp_index(&b, 7), lp_index(&b, -4)), &c) && c == -4);
    /* An overflow stays an op. */
    v = lp_binary(&b, LP_OP_ADD, lp_index(&b, INT64_MAX), lp_index(&b, 1));
    assert_int_equal(v->def->code, LP_OP_ADD);
    /* Constants take their type's range. */
    assert_true(lp_is_const(lp_const_i(&b, lp_scalar(DT_I8), 200), &c) && c == -56);
    assert_true(lp_is_const(lp_cast(&b, lp_index(&b, 300), DT_U8), &c) && c == 44);
    assert_true(lp_const_f(&b, lp_scalar(DT_F32), 0.1)->def->fimm == (double)0.1f);
    assert_true(lp_verify(k, &f->diag));
    lp_kernel_destroy(k);
}

static void test_eval_matmul(void **state)
{
    struct fixture *f = *state;
    struct lp_kernel *k = parse(f, matmul_text);
    int64_t syms[2] = {0};
    enum { M = 5, N = 37 };
    for (size_t i = 0; i < dim_sym_count(f->ctx); i++) syms[i] = dim_sym_at(f->ctx, i)->name[0] == 'M' ? M : N;
    float a[M][20], bm[20][N];
    for (int i = 0; i < M * 20; i++) a[i / 20][i % 20] = (float)(i * 7 % 31 - 15);
    for (int i = 0; i < 20 * N; i++) bm[i / N][i % N] = (float)(i * 11 % 27 - 13);
    float dense[M * N];
    void *bufs[] = {a, bm, dense};
    assert_true(lp_eval(k, bufs, syms, &f->diag));
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            float sum = 0; /* small integers: exact */
            for (int l = 0; l < 20; l++) sum += a[i][l] * bm[l][j];
            assert_true(dense[i * N + j] == sum);
        }
    lp_kernel_destroy(k);
}

/* Whether evaluating this body (over x: f32[8], y: f32[8] writable, stack t: i32[4]) is refused, and the message. */
static void assert_faults(struct fixture *f, int slices, const char *body, const char *message)
{
    struct strbuf s = {0};
    strbuf_printf(&s, "kernel \"k\" loc \"\" schedule \"\" slices %d claim 0 {\n"
                      "arg @0 \"x\" : f32[8] align 4\narg @1 \"y\" : f32[8] align 4 writable\n"
                      "stack @2 \"t\" : i32[4] align 64\nbody(%%0) {\n%s}\n}\n", slices, body);
    struct lp_kernel *k = parse(f, s.data);
    float x[8] = {0}, y[8] = {0};
    void *bufs[] = {x, y};
    size_t before = f->diag.items.n;
    bool good = lp_eval(k, bufs, NULL, &f->diag);
    assert_true(good == !message);
    if (message) {
        assert_int_equal(f->diag.items.n, before + 1);
        if (!strstr(f->diag.items.v[before].message, message)) fail_msg("%s", f->diag.items.v[before].message);
    }
    lp_kernel_destroy(k);
    strbuf_deinit(&s);
}

static void test_eval_checks(void **state)
{
    struct fixture *f = *state;
    assert_faults(f, 8, "%1 = load @0[%0] : f32\nstore @1[%0], %1\n", NULL);
    assert_faults(f, 9, "%1 = load @0[%0] : f32\n", "index 8 of axis 0");
    assert_faults(f, 1, "%1 = const -1 : i64\n%2 = load @0[%1] : f32\n", "index -1 of axis 0");
    assert_faults(f, 1, "%1 = const 5 : i64\n%2 = load @0[%1] cols 0 : f32<1x4>\n", "index 8 of axis 0");
    assert_faults(f, 1, "%1 = const 5 : i64\n%3 = const 3 : i64\n%2 = load @0[%1] cols 0 ncols %3 : f32<1x4>\n", NULL);
    assert_faults(f, 1, "%1 = const 5 : i64\n%3 = const 3 : i64\n%2 = load @0[%1] rows 0 nrows %3 : f32<4x1>\n", NULL);
    assert_faults(f, 1, "%1 = const 8 : i64\n%3 = const 0 : i64\n%2 = load @0[%1] rows 0 nrows %3 : f32<4x1>\n",
                  "nrows is less than 1");
    assert_faults(f, 2, "%1 = const 3 : i64\n%2 = const 1 : f32\nstore @1[%1], %2\n", "another slice writes");
    assert_faults(f, 2, "%1 = const 0 : i64\n%2 = load @1[%1] : f32\nstore @1[%0], %2\n", "another slice writes");
    assert_faults(f, 2, "%1 = const 1 : i64\n%2 = load @1[%1] : f32\nstore @1[%0], %2\n", "another slice reads");
    assert_faults(f, 1, "%1 = load @2[%0] : i32\n", "never written");
    assert_faults(f, 2, "%3 = const 0 : i64\n%4 = gt %0, %3 : bool\nif %4 {\n%1 = load @2[%3] : i32\n} else {\n"
                        "%5 = const 7 : i32\nstore @2[%3], %5\n}\n", "slice 1: load: reads an element of a private");
    assert_faults(f, 1, "%1 = floordiv %0, %0 : i64\n", "division by 0");
    assert_faults(f, 1, "%1 = const 1 : f32\n%2 = const 2 : i64<1x4>\nstore @1[%2], %1\n", "indices are equal");
}

/* One op on one pair of elements; returns the result's bits. */
static uint64_t eval1(struct fixture *f, const char *op, enum dtype in, enum dtype out, uint64_t x, uint64_t y)
{
    struct dim_ctx *ctx = f->ctx;
    struct lp_kernel *k = lp_kernel_create(ctx, op, "", "");
    struct lp_builder b = {.k = k, .block = k->body};
    lp_add_arg(k, "x", in, 0, NULL, false, 1);
    lp_add_arg(k, "y", in, 0, NULL, false, 1);
    lp_add_arg(k, "z", out, 0, NULL, true, 1);
    struct lp_value *vx = lp_load(&b, 0, NULL), *vy = lp_load(&b, 1, NULL), *r;
    enum lp_opcode code = lp_opcode_find(op, strlen(op));
    if (code == LP_OP_CAST) r = lp_cast(&b, vx, out);
    else if (code == LP_OP_BITCAST) r = lp_bitcast(&b, vx, out);
    else if (code < LP_OP_CAST && code != LP_OP_POW) r = lp_unary(&b, code, vx);
    else r = lp_binary(&b, code, vx, vy);
    lp_store(&b, 2, NULL, r);
    uint64_t z = 0;
    void *bufs[] = {&x, &y, &z};
    assert_true(lp_verify(k, &f->diag) && lp_eval(k, bufs, NULL, &f->diag));
    lp_kernel_destroy(k);
    return z;
}

static uint64_t f32_bits(float v)
{
    uint32_t b;
    memcpy(&b, &v, sizeof b);
    return b;
}

static void test_eval_scalars(void **state)
{
    struct fixture *f = *state;
    const struct {
        const char *op;
        enum dtype in, out;
        uint64_t x, y, want;
    } rows[] = {
        {"add", DT_I8, DT_I8, 100, 100, 200},
        {"div", DT_I8, DT_I8, 0x80, 0xff, 0x80},
        {"div", DT_I32, DT_I32, 7, 0, 0},
        {"div", DT_I32, DT_I32, (uint32_t)-7, 2, (uint32_t)-3},
        {"floordiv", DT_I32, DT_I32, (uint32_t)-7, 2, (uint32_t)-4},
        {"rem", DT_I32, DT_I32, (uint32_t)-7, 2, (uint32_t)-1},
        {"mod", DT_I32, DT_I32, (uint32_t)-7, 2, 1},
        {"mod", DT_I32, DT_I32, 7, (uint32_t)-2, (uint32_t)-1},
        {"lt", DT_U32, DT_BOOL, 0xffffffff, 1, 0},
        {"lt", DT_I32, DT_BOOL, 0xffffffff, 1, 1},
        {"shl", DT_U8, DT_U8, 3, 7, 0x80},
        {"shl", DT_U8, DT_U8, 3, 8, 0},
        {"shr", DT_I8, DT_I8, 0x80, 9, 0xff},
        {"shr", DT_U8, DT_U8, 0x80, 9, 0},
        {"not", DT_BOOL, DT_BOOL, 1, 0, 0},
        {"not", DT_U16, DT_U16, 0xff, 0, 0xff00},
        {"pow", DT_I32, DT_I32, (uint32_t)-3, 3, (uint32_t)-27},
        {"pow", DT_I32, DT_I32, 2, (uint32_t)-1, 0},
        {"cast", DT_I32, DT_U8, 300, 0, 44},
        {"cast", DT_F32, DT_I32, 0xc0200000, 0, (uint32_t)-2},    /* -2.5 */
        {"cast", DT_F32, DT_I32, 0x7fc00000, 0, 0},               /* NaN */
        {"cast", DT_F32, DT_U8, 0x43960000, 0, 44},               /* 300 */
        {"cast", DT_F32, DT_F16, 0x3f801000, 0, 0x3c00},          /* 1 + 2^-11: tie to even */
        {"cast", DT_F32, DT_F16, 0x47800000, 0, 0x7c00},          /* 65536: infinity */
        {"cast", DT_F32, DT_BF16, 0x3f818000, 0, 0x3f82},         /* 1 + 3*2^-8: tie to even */
        {"cast", DT_F32, DT_BOOL, 0x7fc00000, 0, 1},
        {"cast", DT_I64, DT_F32, 0x1000001000000001, 0, 0x5d800001}, /* just above a tie: rounds once */
        {"add", DT_F16, DT_F16, 0x3c00, 0x1000, 0x3c00},          /* 1 + 2^-11 */
        {"add", DT_BF16, DT_BF16, 0x3f80, 0x3c00, 0x3f81},        /* 1 + 2^-7 */
        {"min", DT_F32, DT_F32, 0x7fc00000, 0x3f800000, 0x7fc00000},
        {"ne", DT_F32, DT_BOOL, 0x7fc00000, 0x7fc00000, 1},
        {"round", DT_F32, DT_F32, 0x40200000, 0, 0x40000000},     /* 2.5 -> 2 */
        {"bitcast", DT_F32, DT_U32, 0x3f800000, 0, 0x3f800000},
        {"rem", DT_F32, DT_F32, 0xc0b00000, 0x40000000, 0xbfc00000}, /* -5.5 rem 2 = -1.5 */
        {"mod", DT_F32, DT_F32, 0xc0b00000, 0x40000000, 0x3f000000}, /* -5.5 mod 2 = 0.5 */
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint64_t got = eval1(f, rows[i].op, rows[i].in, rows[i].out, rows[i].x, rows[i].y);
        if (got != rows[i].want)
            fail_msg("row %zu: %s gave %llx, want %llx", i, rows[i].op, (unsigned long long)got,
                     (unsigned long long)rows[i].want);
    }
    assert_int_equal(eval1(f, "exp", DT_F32, DT_F32, f32_bits(1), 0), f32_bits(2.7182817f));
}

/* A float sum whose value depends on its order: the reduce is by halving. */
static void test_eval_reduce(void **state)
{
    struct fixture *f = *state;
    assert_faults(f, 1,
                  "%1 = const 0 : i64\n%2 = load @0[%1] cols 0 : f32<1x8>\n%3 = reduce add %2 : f32\nstore @1[%1], %3\n",
                  NULL);
    struct lp_kernel *k = parse(f,
        "kernel \"k\" loc \"\" schedule \"\" slices 1 claim 0 {\narg @0 \"x\" : f32[4] align 4\n"
        "arg @1 \"y\" : f32[1] align 4 writable\nbody(%0) {\n%2 = load @0[%0] cols 0 : f32<1x4>\n"
        "%3 = reduce add %2 : f32\nstore @1[%0], %3\n}\n}\n");
    float x[4] = {1, 1e8f, 0, -1e8f}, y = 0;
    void *bufs[] = {x, &y};
    assert_true(lp_eval(k, bufs, NULL, &f->diag));
    assert_true(y == 1.0f); /* (1 + 0) + (1e8 - 1e8); from left to right it would be 0 */
    lp_kernel_destroy(k);
}

static void test_verify_rejects(void **state)
{
    struct fixture *f = *state;
    const char *bodies[] = {
        "%1 = add %0, %9 : i64",
        "%1 = const 1 : i64\n%1 = const 2 : i64",
        "%1 = const 300 : i8",
        "%1 = const 1 : string",
        "%1 = const 1 : i64<1000x1000>",
        "%1 = const 1 : i64<0x1>",
        "%1 = const 1 : f32\n%2 = add %0, %1 : i64",
        "%1 = add %0 : i64",
        "%1 = lt %0, %0 : i64",
        "%1 = load @7[%0] : f32",
        "%1 = load @0[%0, %0] : f32",
        "%1 = load @0[%0] : f64",
        "%1 = load @0[%0] : f32<1x4>",
        "%1 = load @0[%0] cols 1 : f32<1x4>",
        "%1 = const 1 : f32\nstore @0[%0], %1",
        "%1 = dim #0 : i64",
        "%1 = const 0 : i32<1x3>\n%2 = reduce add %1 : i32",
        "%1 = for serial %2 in %0 .. %0 step 1 carry (%3 = %0) {\n}",
        "%1 = for serial %2 in %0 .. %0 step 1 carry (%3 = %0) {\nyield %2, %2\n}",
        "%1 = for serial %2 in %0 .. %0 step 1 carry (%3 = %0) {\nyield %1\n}",
        "for serial %2 in %0 .. %0 step 0 {\n}",
        "for unroll %2 in %0 .. %0 step 1 {\n}",
        "for serial %2 in %0 .. %0 step 1 {\n%3 = const 1 : i64\n}\n%4 = add %3, %0 : i64",
        "%1 = eq %0, %0 : bool\n%2 = if %1 -> (i64) {\nyield %0\n} else {\nyield %1\n}",
        "yield",
        "%1 = exp %0 : i64",
        "%1 = floop %0 : i64",
        "}",
    };
    for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
        struct strbuf s = {0};
        strbuf_printf(&s, "kernel \"k\" loc \"\" schedule \"\" slices 1 claim 0 {\narg @0 \"x\" : f32[8] align 4\n"
                          "body(%%0) {\n%s\n}\n}\n", bodies[i]);
        struct lp_kernel *k = lp_parse(s.data, s.len, "t.lp", f->ctx, &f->diag);
        if (k) fail_msg("accepted: %s", bodies[i]);
        strbuf_deinit(&s);
    }
    assert_true(f->diag.error_count >= ARRAY_LEN(bodies));
}

/* Text with bytes changed, doubled or cut out: any answer but a crash will do, and what is accepted prints back. */
static void test_hostile_text(void **state)
{
    struct fixture *f = *state;
    uint64_t seed = 12345;
    static const char bits[] = "%@[](){}<>:,.-#=0123456789x \nfiq\"";
    for (int round = 0; round < 3000; round++) {
        char text[sizeof matmul_text];
        size_t n = sizeof matmul_text - 1;
        memcpy(text, matmul_text, n);
        for (int e = 0; e < 3; e++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            size_t at = (size_t)(seed >> 33) % n;
            switch (seed >> 20 & 3) {
            case 0: n = n > 10 ? at + 1 : n; break;
            case 1: memmove(text + at, text + at + 1, n - at - 1); n--; break;
            default: text[at] = bits[(seed >> 24) % (sizeof bits - 1)];
            }
        }
        struct dim_ctx *ctx = dim_ctx_create();
        struct diag_sink diag;
        diag_init(&diag);
        struct lp_kernel *k = lp_parse(text, n, "t.lp", ctx, &diag);
        assert_true(k || diag.error_count);
        if (k) {
            struct strbuf once = {0}, twice = {0};
            lp_print(&once, k, false);
            struct lp_kernel *again = lp_parse(once.data, once.len, "t.lp", ctx, &diag);
            assert_non_null(again);
            lp_print(&twice, again, false);
            assert_string_equal(once.data, twice.data);
            strbuf_deinit(&once);
            strbuf_deinit(&twice);
            lp_kernel_destroy(again);
        }
        lp_kernel_destroy(k);
        diag_deinit(&diag);
        dim_ctx_destroy(ctx);
    }
    (void)f;
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_round_trip),  T(test_round_trip_all), T(test_canonical),   T(test_folding),        T(test_eval_matmul),
        T(test_eval_checks), T(test_eval_scalars),   T(test_eval_reduce), T(test_verify_rejects), T(test_hostile_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
