// SPDX-License-Identifier: Apache-2.0
/*
 * Kernels of the x86-64 target: tiles, bounds, control flow and memory, on each level of this machine. Expected values
 * come from plain C here, or from the loop-IR evaluator, which shares nothing with the target. Every buffer ends at a
 * page that faults.
 */
#include "tests/unit/cpu_kernel.h"
#include "tests/unit/loop_fixture.h"

#include <math.h>
#include <pthread.h>

#include "ir/loop_cell.h"

#define MAX_BUFS 8

static struct lp_kernel *parse(struct fixture *f, const char *text)
{
    struct lp_kernel *k = lp_parse(text, strlen(text), "t.lp", f->ctx, &f->diag);
    if (!k || !lp_verify(k, &f->diag)) diag_print_text(&f->diag, stderr);
    assert_non_null(k);
    assert_int_equal(f->diag.error_count, 0);
    return k;
}

static uint64_t rng = 1234567;
static uint64_t next_random(void)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return rng;
}

/* Small values: sums of them stay exact or nearly so. limit: integers lie in [0, limit) when not 0. */
static void fill(enum dtype d, char *p, size_t n, int64_t limit)
{
    for (size_t i = 0; i < n; i++) {
        union lp_cell c;
        int64_t v = (int64_t)(next_random() % 2001) - 1000;
        if (dtype_is_float(d)) c.f = lp_cell_round(d, (double)v / 256.0);
        else c.i = limit ? (int64_t)(next_random() % (uint64_t)limit) : v;
        uint64_t bits = lp_cell_bits(d, lp_cell_cast(dtype_is_float(d) ? d : DT_I64, d, c));
        memcpy(p + i * dtype_bytes(d), &bits, dtype_bytes(d));
    }
}

static union lp_cell cell_at(enum dtype d, const char *p, size_t i)
{
    uint64_t bits = 0;
    memcpy(&bits, p + i * dtype_bytes(d), dtype_bytes(d));
    return lp_cell_from_bits(d, bits);
}

static bool close_to(enum dtype d, union lp_cell a, union lp_cell b)
{
    if (!dtype_is_float(d)) return a.i == b.i;
    double tolerance = d == DT_F64 ? 1e-12 : d == DT_F32 ? 2e-6 : 1e-2;
    if (a.f != a.f || b.f != b.f) return a.f != a.f && b.f != b.f;
    if (a.f == b.f) return true; /* infinities, too */
    return fabs(a.f - b.f) <= tolerance * (1.0 + fabs(a.f) + fabs(b.f));
}

struct setting {
    const int64_t *syms;
    int64_t index_limit;  /* for i64 buffers: valid indices */
};

/* Runs one kernel natively and in the evaluator on the same random data; all buffers must agree. */
static void compare_level(struct fixture *f, const char *text, struct setting s, const struct target_level *level)
{
    struct lp_kernel *k = parse(f, text);
    int n = k->n_arg_bufs;
    struct guarded native[MAX_BUFS], oracle[MAX_BUFS];
    void *a[MAX_BUFS], *b[MAX_BUFS];
    size_t count[MAX_BUFS];
    enum dtype types[MAX_BUFS];
    assert_true(n <= MAX_BUFS);
    for (int i = 0; i < n; i++) {
        const struct lp_buf *buf = &k->bufs.v[i];
        count[i] = 1;
        for (int r = 0; r < buf->rank; r++) {
            int64_t v;
            assert_true(dim_eval(f->ctx, buf->dims[r], s.syms, &v));
            count[i] *= (size_t)v;
        }
        types[i] = buf->dtype;
        native[i] = guarded_alloc(count[i] * dtype_bytes(buf->dtype));
        oracle[i] = guarded_alloc(count[i] * dtype_bytes(buf->dtype));
        if (buf->dtype == DT_I64 && s.index_limit) /* distinct as long as they can be */
            for (size_t j = 0; j < count[i]; j++) ((int64_t *)native[i].data)[j] = (int64_t)((j * 7 + 3) % (size_t)s.index_limit);
        else
            fill(buf->dtype, native[i].data, count[i], buf->dtype == DT_BOOL ? 2 : 0);
        memcpy(oracle[i].data, native[i].data, count[i] * dtype_bytes(buf->dtype));
        a[i] = native[i].data;
        b[i] = oracle[i].data;
    }
    int64_t dims[16], slices;
    for (size_t i = 0; i < k->dims.n; i++) assert_true(dim_eval(f->ctx, k->dims.v[i], s.syms, &dims[i]));
    assert_true(dim_eval(f->ctx, k->slices, s.syms, &slices));
    bool ok = lp_eval(k, b, s.syms, &f->diag);
    struct target_object o;
    ok = ok && target_find("x86-64")->emit(target_find("x86-64"), level, k, "f", &o, &f->diag);
    if (!ok) diag_print_text(&f->diag, stderr);
    assert_true(ok);
    struct loaded l = load_object(&o, "f");
    void *scratch = o.scratch_bytes ? aligned_alloc(64, o.scratch_bytes) : NULL;
    /* Two shares, as two workers would. */
    l.fn(a, dims, 0, slices / 2, scratch);
    l.fn(a, dims, slices / 2, slices, scratch);
    free(scratch);
    int wrong = 0;
    for (int i = 0; i < n; i++)
        for (size_t j = 0; j < count[i]; j++) {
            union lp_cell x = cell_at(types[i], native[i].data, j), y = cell_at(types[i], oracle[i].data, j);
            if (close_to(types[i], x, y) || wrong++ > 4) continue;
            print_error("%s %s: buffer %d[%zu]: got %g / %lld, want %g / %lld\n", k->name, level->name, i, j, x.f,
                        (long long)x.i, y.f, (long long)y.i);
        }
    for (int i = 0; i < n; i++) {
        guarded_free(&native[i]);
        guarded_free(&oracle[i]);
    }
    munmap(l.mem, l.n_bytes + 1);
    free(o.data);
    lp_kernel_destroy(k);
    assert_int_equal(wrong, 0);
}

static void compare_with(struct fixture *f, const char *text, struct setting s)
{
    const struct target *t = target_find("x86-64");
    for (int i = 0; i < t->n_levels; i++)
        if (machine_has(t->levels[i].isa)) compare_level(f, text, s, &t->levels[i]);
}

static void compare(struct fixture *f, const char *text, const int64_t *syms)
{
    compare_with(f, text, (struct setting){.syms = syms});
}

/* ---- against plain C ---- */

/* One row a slice, 16 columns a step with a masked tail: max(x * w + b, 0). */
static const char relu_text[] =
    "sym M in [0, 64]\n"
    "sym N in [0, inf]\n"
    "kernel \"relu\" loc \"n\" schedule \"generic\" slices M claim 0 {\n"
    "  arg @0 \"x\" : f32[M, N] align 4\n"
    "  arg @1 \"w\" : f32[N] align 4\n"
    "  arg @2 \"b\" : f32[N] align 4\n"
    "  arg @3 \"y\" : f32[M, N] align 4 writable\n"
    "  param N\n"
    "  body(%0) {\n"
    "    %1 = const 0 : i64\n"
    "    %2 = dim #0 : i64\n"
    "    %3 = const 0 : f32\n"
    "    for serial %4 in %1 .. %2 step 16 {\n"
    "      %5 = sub %2, %4 : i64\n"
    "      %6 = load @0[%0, %4] cols 1 ncols %5 : f32<1x16>\n"
    "      %7 = load @1[%4] cols 0 ncols %5 : f32<1x16>\n"
    "      %8 = load @2[%4] cols 0 ncols %5 : f32<1x16>\n"
    "      %9 = fma %6, %7, %8 : f32<1x16>\n"
    "      %10 = max %9, %3 : f32<1x16>\n"
    "      store @3[%0, %4], %10 cols 1 ncols %5\n"
    "    }\n"
    "  }\n"
    "}\n";

static void test_relu(void **state)
{
    struct fixture *f = *state;
    const struct target *t = target_find("x86-64");
    for (int lv = 0; lv < t->n_levels; lv++) {
        if (!machine_has(t->levels[lv].isa)) continue;
        struct lp_kernel *k = parse(f, relu_text);
        struct target_object o;
        assert_true(t->emit(t, &t->levels[lv], k, "f", &o, &f->diag));
        struct loaded l = load_object(&o, "f");
        for (int64_t n = 0; n < 50; n++) {
            size_t m = 3, cells = m * (size_t)n;
            struct guarded x = guarded_alloc(cells * 4), w = guarded_alloc((size_t)n * 4), b = guarded_alloc((size_t)n * 4),
                           y = guarded_alloc(cells * 4);
            fill(DT_F32, x.data, cells, 0);
            fill(DT_F32, w.data, (size_t)n, 0);
            fill(DT_F32, b.data, (size_t)n, 0);
            if (n > 2) ((float *)x.data)[2] = NAN;
            void *bufs[4] = {x.data, w.data, b.data, y.data};
            l.fn(bufs, &n, 0, (int64_t)m, NULL);
            for (size_t i = 0; i < cells; i++) {
                float v = ((float *)x.data)[i] * ((float *)w.data)[i % (size_t)n] + ((float *)b.data)[i % (size_t)n];
                float got = ((float *)y.data)[i];
                if (v != v) assert_true(got != got);
                else assert_true(fabsf(got - (v > 0 ? v : 0)) <= 1e-6f * (1 + fabsf(v)));
            }
            guarded_free(&x);
            guarded_free(&w);
            guarded_free(&b);
            guarded_free(&y);
        }
        munmap(l.mem, l.n_bytes + 1);
        free(o.data);
        lp_kernel_destroy(k);
    }
}

/* y[M, N] = x[M, K] * w[K, N]: 6 x 16 tiles, bounds on both sides. */
static const char matmul_text[] =
    "sym M in [1, 64]\n"
    "sym K in [0, inf]\n"
    "sym N in [1, inf]\n"
    "kernel \"mm\" loc \"n\" schedule \"matmul\" slices floordiv(M + 5, 6) claim 0 {\n"
    "  arg @0 \"x\" : f32[M, K] align 4\n"
    "  arg @1 \"w\" : f32[K, N] align 4\n"
    "  arg @2 \"y\" : f32[M, N] align 4 writable\n"
    "  param K\n"
    "  param N\n"
    "  param M\n"
    "  body(%0) {\n"
    "    %1 = const 0 : i64\n"
    "    %2 = dim #0 : i64\n"
    "    %3 = dim #1 : i64\n"
    "    %4 = dim #2 : i64\n"
    "    %5 = const 6 : i64\n"
    "    %6 = mul %0, %5 : i64\n"
    "    %7 = sub %4, %6 : i64\n"
    "    for serial %8 in %1 .. %3 step 16 {\n"
    "      %9 = sub %3, %8 : i64\n"
    "      %10 = const 0 : f32<6x16>\n"
    "      %11 = for serial %12 in %1 .. %2 step 1 carry (%13 = %10) {\n"
    "        %14 = load @0[%6, %12] rows 0 nrows %7 : f32<6x1>\n"
    "        %15 = load @1[%12, %8] cols 1 ncols %9 : f32<1x16>\n"
    "        %16 = mma 1, %13, %14, %15 : f32<6x16>\n"
    "        yield %16\n"
    "      }\n"
    "      store @2[%6, %8], %11 rows 0 cols 1 nrows %7 ncols %9\n"
    "    }\n"
    "  }\n"
    "}\n";

static void matmul_case(struct loaded *l, int64_t m, int64_t kk, int64_t n)
{
    struct guarded x = guarded_alloc((size_t)(m * kk) * 4), w = guarded_alloc((size_t)(kk * n) * 4),
                   y = guarded_alloc((size_t)(m * n) * 4);
    float *xp = (float *)x.data, *wp = (float *)w.data, *yp = (float *)y.data;
    fill(DT_F32, x.data, (size_t)(m * kk), 0);
    fill(DT_F32, w.data, (size_t)(kk * n), 0);
    void *bufs[3] = {xp, wp, yp};
    int64_t dims[3] = {kk, n, m};
    l->fn(bufs, dims, 0, (m + 5) / 6, NULL);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t c = 0; c < kk; c++) sum += (double)xp[i * kk + c] * (double)wp[c * n + j];
            assert_true(fabs(sum - (double)yp[i * n + j]) <= 1e-4 * (1 + fabs(sum)));
        }
    guarded_free(&x);
    guarded_free(&w);
    guarded_free(&y);
}

static void test_matmul(void **state)
{
    struct fixture *f = *state;
    const struct target *t = target_find("x86-64");
    static const int64_t sizes[][3] = {{6, 8, 16}, {1, 1, 1}, {7, 33, 17}, {13, 5, 31}, {12, 0, 16}, {5, 64, 48}, {3, 2, 15}};
    for (int lv = 0; lv < t->n_levels; lv++) {
        if (!machine_has(t->levels[lv].isa)) continue;
        struct lp_kernel *k = parse(f, matmul_text);
        struct target_object o;
        assert_true(t->emit(t, &t->levels[lv], k, "f", &o, &f->diag));
        struct loaded l = load_object(&o, "f");
        for (size_t i = 0; i < ARRAY_LEN(sizes); i++) matmul_case(&l, sizes[i][0], sizes[i][1], sizes[i][2]);
        munmap(l.mem, l.n_bytes + 1);
        free(o.data);
        lp_kernel_destroy(k);
    }
}

/* ---- against the evaluator ---- */

static char *format(const char *text, const char *type, int cols)
{
    /* $T: element type, $C: columns */
    char *out = calloc(1, strlen(text) * 3 + 64), *p = out;
    for (; *text; text++) {
        if (text[0] == '$' && text[1] == 'T') p += sprintf(p, "%s", type), text++;
        else if (text[0] == '$' && text[1] == 'C') p += sprintf(p, "%d", cols), text++;
        else *p++ = *text;
    }
    return out;
}

static void compare_types(struct fixture *f, const char *text, struct setting s, const char *const *types, int cols)
{
    for (; *types; types++) {
        char *t = format(text, *types, cols);
        compare_with(f, t, s);
        free(t);
    }
}

static const char *const all_types[] = {"f64", "f32", "f16", "bf16", "i8", "u16", "i32", "u64", "bool", NULL};

static void test_bounds(void **state)
{
    const char *text =
        "sym M in [1, inf]\n"
        "sym N in [1, inf]\n"
        "kernel \"bounds\" loc \"n\" schedule \"g\" slices 2 claim 0 {\n"
        "  arg @0 \"x\" : $T[2, M, N] align 8\n"
        "  arg @1 \"y\" : $T[2, M, N] align 8 writable\n"
        "  param N\n"
        "  param M*N\n"
        "  param M\n"
        "  body(%0) {\n"
        "    %1 = const 0 : i64\n"
        "    %2 = dim #0 : i64\n"
        "    %3 = dim #2 : i64\n"
        "    for serial %4 in %1 .. %3 step 3 {\n"
        "      %5 = sub %3, %4 : i64\n"
        "      for serial %6 in %1 .. %2 step $C {\n"
        "        %7 = sub %2, %6 : i64\n"
        "        %8 = load @0[%0, %4, %6] rows 1 cols 2 nrows %5 ncols %7 : $T<3x$C>\n"
        "        store @1[%0, %4, %6], %8 rows 1 cols 2 nrows %5 ncols %7\n"
        "      }\n"
        "    }\n"
        "  }\n"
        "}\n";
    static const int64_t sizes[][2] = {{1, 1}, {3, 16}, {4, 17}, {5, 31}};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        compare_types(*state, text, (struct setting){.syms = sizes[i]}, all_types, 16);
        compare_types(*state, text, (struct setting){.syms = sizes[i]}, all_types, 5);
    }
}

static void test_strided_columns(void **state)
{
    const char *text =
        "sym N in [1, inf]\n"
        "kernel \"transpose\" loc \"n\" schedule \"g\" slices 3 claim 0 {\n"
        "  arg @0 \"x\" : $T[N, 3] align 8\n"
        "  arg @1 \"y\" : $T[3, N] align 8 writable\n"
        "  arg @2 \"z\" : $T[N, 3] align 8 writable\n"
        "  param N\n"
        "  body(%0) {\n"
        "    %1 = const 0 : i64\n"
        "    %2 = dim #0 : i64\n"
        "    for serial %3 in %1 .. %2 step $C {\n"
        "      %4 = sub %2, %3 : i64\n"
        "      %5 = load @0[%3, %0] cols 0 ncols %4 : $T<1x$C>\n"
        "      store @1[%0, %3], %5 cols 1 ncols %4\n"
        "      store @2[%3, %0], %5 cols 0 ncols %4\n"
        "    }\n"
        "  }\n"
        "}\n";
    static const int64_t sizes[] = {1, 8, 29};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) compare_types(*state, text, (struct setting){.syms = &sizes[i]}, all_types, 8);
}

static void test_gather_scatter(void **state)
{
    const char *text =
        "kernel \"gather\" loc \"n\" schedule \"g\" slices 1 claim 0 {\n"
        "  arg @0 \"i\" : i64[16] align 8\n"
        "  arg @1 \"x\" : $T[2, 16] align 8\n"
        "  arg @2 \"y\" : $T[16] align 8 writable\n"
        "  arg @3 \"z\" : $T[16] align 8 writable\n"
        "  body(%0) {\n"
        "    %1 = const 0 : i64\n"
        "    %2 = const 1 : i64\n"
        "    %3 = const 8 : i64\n"
        "    %4 = load @0[%1] cols 0 : i64<1x8>\n"
        "    %5 = load @1[%2, %4] : $T<1x8>\n"
        "    store @2[%4], %5\n"
        "    store @3[%3], %5 cols 0\n"
        "  }\n"
        "}\n";
    compare_types(*state, text, (struct setting){.index_limit = 16}, all_types, 8);
}

static void test_reduce(void **state)
{
    const char *text =
        "kernel \"reduce\" loc \"n\" schedule \"g\" slices 2 claim 0 {\n"
        "  arg @0 \"x\" : $T[2, 3, $C] align 8\n"
        "  arg @1 \"y\" : $T[2, 4, 3] align 8 writable\n"
        "  body(%0) {\n"
        "    %1 = const 0 : i64\n"
        "    %2 = const 1 : i64\n"
        "    %3 = const 2 : i64\n"
        "    %4 = const 3 : i64\n"
        "    %5 = load @0[%0, %1, %1] rows 1 cols 2 : $T<3x$C>\n"
        "    %6 = reduce add %5 : $T<3x1>\n"
        "    %7 = reduce min %5 : $T<3x1>\n"
        "    %8 = reduce max %5 : $T<3x1>\n"
        "    %9 = reduce mul %5 : $T<3x1>\n"
        "    store @1[%0, %1, %1], %6 rows 2\n"
        "    store @1[%0, %2, %1], %7 rows 2\n"
        "    store @1[%0, %3, %1], %8 rows 2\n"
        "    store @1[%0, %4, %1], %9 rows 2\n"
        "  }\n"
        "}\n";
    static const char *const types[] = {"f64", "f32", "f16", "i8", "i32", "u64", NULL};
    compare_types(*state, text, (struct setting){0}, types, 16);
    compare_types(*state, text, (struct setting){0}, types, 2);
    const char *bools =
        "kernel \"any\" loc \"n\" schedule \"g\" slices 4 claim 0 {\n"
        "  arg @0 \"x\" : bool[4, $C] align 1\n"
        "  arg @1 \"y\" : bool[4, 2] align 1 writable\n"
        "  body(%0) {\n"
        "    %1 = const 0 : i64\n"
        "    %2 = const 1 : i64\n"
        "    %3 = load @0[%0, %1] cols 1 : bool<1x$C>\n"
        "    %4 = reduce and %3 : bool\n"
        "    %5 = reduce or %3 : bool\n"
        "    store @1[%0, %1], %4\n"
        "    store @1[%0, %2], %5\n"
        "  }\n"
        "}\n";
    static const char *const none[] = {"", NULL};
    for (int c = 2; c <= 32; c *= 2) compare_types(*state, bools, (struct setting){0}, none, c);
}

/* Carried values that change places, loops of dynamic length (also 0), IF with results, UNROLL, broadcasts. */
static void test_control(void **state)
{
    const char *text =
        "sym N in [0, inf]\n"
        "kernel \"control\" loc \"n\" schedule \"g\" slices 4 claim 0 {\n"
        "  arg @0 \"x\" : f32[4, 8] align 4\n"
        "  arg @1 \"y\" : f32[4, 8] align 4 writable\n"
        "  arg @2 \"z\" : i64[4] align 8 writable\n"
        "  param N\n"
        "  body(%0) {\n"
        "    %1 = const 0 : i64\n"
        "    %2 = const 1 : i64\n"
        "    %3 = dim #0 : i64\n"
        "    %4 = load @0[%0, %1] cols 1 : f32<1x8>\n"
        "    %5 = const 1 : f32<1x8>\n"
        "    %6 = const 5 : i64\n"
        "    %7 = add %3, %0 : i64\n"
        "    %8, %9, %10 = for serial %11 in %0 .. %7 step 2 carry (%12 = %4, %13 = %5, %14 = %1) {\n"
        "      %15 = lt %11, %6 : bool\n"
        "      %16, %17 = if %15 -> (f32<1x8>, i64) {\n"
        "        %18 = add %12, %13 : f32<1x8>\n"
        "        yield %18, %11\n"
        "      } else {\n"
        "        %19 = for unroll %20 in %1 .. %6 step 2 carry (%21 = %13) {\n"
        "          %22 = cast %20 : f32\n"
        "          %23 = mul %21, %22 : f32<1x8>\n"
        "          %24 = sub %23, %12 : f32<1x8>\n"
        "          yield %24\n"
        "        }\n"
        "        %25 = mod %11, %6 : i64\n"
        "        yield %19, %25\n"
        "      }\n"
        "      %26 = add %14, %17 : i64\n"
        "      yield %16, %12, %26\n"
        "    }\n"
        "    %27 = add %8, %9 : f32<1x8>\n"
        "    store @1[%0, %1], %27 cols 1\n"
        "    store @2[%0], %10\n"
        "  }\n"
        "}\n";
    static const int64_t sizes[] = {0, 1, 2, 7, 12};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) compare(*state, text, &sizes[i]);
}

/* $C elements a row: on the stack, or in the worker's scratch memory when they are too many. */
static void test_private_buffers(void **state)
{
    const char *text =
        "kernel \"private\" loc \"n\" schedule \"g\" slices 2 claim 0 {\n"
        "  arg @0 \"x\" : i32[2, 8] align 4\n"
        "  arg @1 \"y\" : i32[2, 8] align 4 writable\n"
        "  stack @2 \"a\" : i32[2, $C] align 64\n"
        "  stack @3 \"b\" : i64[8] align 64\n"
        "  body(%0) {\n"
        "    %1 = const 0 : i64\n"
        "    %2 = const 8 : i64\n"
        "    %3 = const 1 : i64\n"
        "    %4 = const 7 : i64\n"
        "    %5 = load @0[%0, %1] cols 1 : i32<1x8>\n"
        "    store @2[%3, %1], %5 cols 1\n"
        "    for serial %6 in %1 .. %2 step 1 {\n"
        "      %7 = load @2[%3, %6] : i32\n"
        "      %8 = cast %7 : i64\n"
        "      %9 = sub %4, %6 : i64\n"
        "      store @3[%9], %8\n"
        "    }\n"
        "    %10 = load @3[%1] cols 0 : i64<1x8>\n"
        "    %11 = cast %10 : i32<1x8>\n"
        "    store @1[%0, %1], %11 cols 1\n"
        "  }\n"
        "}\n";
    static const char *const none[] = {"", NULL};
    compare_types(*state, text, (struct setting){0}, none, 8);
    compare_types(*state, text, (struct setting){0}, none, 100000);
}

/* The kernel over bf16 pairs as one over pairs of i16 that add up in i32. */
static void compare_words(void *state, const char *text)
{
    char words[2048], *p = words;
    for (const char *q = text; *q;) {
        if (!strncmp(q, "bf16", 4)) p += sprintf(p, "i16"), q += 4;
        else if (!strncmp(q, "f32", 3)) p += sprintf(p, "i32"), q += 3;
        else *p++ = *q++;
    }
    *p = 0;
    compare(state, words, NULL);
}

/*
 * Products of whole tiles: operands from memory, as the bytes of words, from registers (shifted), from memory that is written before it is
 * used; an accumulator that is not zero, and a sum of sums. $R rows, $G quads, $C columns.
 */
static const char tiles_text[] =
    "kernel \"tiles\" loc \"n\" schedule \"g\" slices 2 claim 0 {\n"
    "  arg @0 \"x\" : i16[2, $R, $W] align 2\n"
    "  arg @1 \"w\" : $B[$G, $Q] align 1\n"
    "  arg @2 \"y\" : i32[2, $R, $C] align 4 writable\n"
    "  stack @3 \"s\" : $B[$G, $Q] align 64\n"
    "  body(%0) {\n"
    "    %1 = const 0 : i64\n"
    "    %2 = const 100000 : i32<$Rx$C>\n"
    "    %3 = load @0[%0, %1, %1] rows 1 cols 2 : i16<$Rx$W>\n"
    "    %4 = load @1[%1, %1] rows 0 cols 1 : $B<$Gx$Q>\n"
    "    %5 = bytes %3 : $A<$Rx$K>\n"
    "    %6 = mma 4, %2, %5, %4 : i32<$Rx$C>\n"
    "    %7 = const 3 : $B\n"
    "    %8 = shr %4, %7 : $B<$Gx$Q>\n"
    "    %9 = mma 4, %6, %5, %8 : i32<$Rx$C>\n"
    "    store @3[%1, %1], %8 rows 0 cols 1\n"
    "    %10 = load @3[%1, %1] rows 0 cols 1 : $B<$Gx$Q>\n"
    "    store @3[%1, %1], %4 rows 0 cols 1\n"
    "    %11 = const 0 : i32<$Rx$C>\n"
    "    %12 = mma 4, %11, %5, %10 : i32<$Rx$C>\n"
    "    %13 = sub %9, %12 : i32<$Rx$C>\n"
    "    store @2[%0, %1, %1], %13 rows 1 cols 2\n"
    "  }\n"
    "}\n";

static void tiles_case(struct fixture *f, const char *a, const char *b, int rows, int quads, int cols)
{
    char text[4096], *p = text;
    for (const char *q = tiles_text; *q; q++) {
        if (*q != '$') *p++ = *q;
        else if (*++q == 'A' || *q == 'B') p += sprintf(p, "%s", *q == 'A' ? a : b);
        else p += sprintf(p, "%d", *q == 'R' ? rows : *q == 'W' ? 2 * quads : *q == 'K' ? 4 * quads : *q == 'G' ? quads : *q == 'Q' ? 4 * cols : cols);
    }
    *p = 0;
    compare(f, text, NULL);
}

static void test_mma_tiles(void **state)
{
    static const char *const types[] = {"i8", "u8"};
    static const int shapes[][3] = {{16, 16, 16}, {2, 16, 16}, {5, 3, 7}, {16, 2, 16}, {16, 16, 2}, {17, 16, 16}, {3, 17, 16}, {3, 4, 20}};
    for (int t = 0; t < 4; t++)
        for (size_t s = 0; s < ARRAY_LEN(shapes); s++) tiles_case(*state, types[t & 1], types[t >> 1], shapes[s][0], shapes[s][1], shapes[s][2]);
}

static void test_mma_pairs_and_quads(void **state)
{
    const char *pairs =
        "kernel \"mma2\" loc \"n\" schedule \"g\" slices 1 claim 0 {\n"
        "  arg @0 \"x\" : bf16[3, 8] align 2\n"
        "  arg @1 \"w\" : bf16[4, 2*$C] align 2\n"
        "  arg @2 \"y\" : f32[3, $C] align 4 writable\n"
        "  body(%0) {\n"
        "    %1 = const 0 : i64\n"
        "    %2 = const 4 : i64\n"
        "    %3 = const 0 : f32<3x$C>\n"
        "    %4 = for serial %5 in %1 .. %2 step 1 carry (%6 = %3) {\n"
        "      %7 = const 2 : i64\n"
        "      %8 = mul %5, %7 : i64\n"
        "      %9 = load @0[%1, %8] rows 0 cols 1 : bf16<3x2>\n"
        "      %10 = load @1[%5, %1] cols 1 : bf16<1x$C>\n"
        "      %11 = mma 2, %6, %9, %10 : f32<3x$C>\n"
        "      yield %11\n"
        "    }\n"
        "    store @2[%1, %1], %4 rows 0 cols 1\n"
        "  }\n"
        "}\n";
    const char *quads =
        "kernel \"mma4\" loc \"n\" schedule \"g\" slices 1 claim 0 {\n"
        "  arg @0 \"x\" : $A[3, 16] align 8\n"
        "  arg @1 \"w\" : $B[4, $Q] align 8\n"
        "  arg @2 \"y\" : i32[3, $C] align 4 writable\n"
        "  body(%0) {\n"
        "    %1 = const 0 : i64\n"
        "    %2 = const 4 : i64\n"
        "    %3 = const 0 : i32<3x$C>\n"
        "    %4 = for serial %5 in %1 .. %2 step 1 carry (%6 = %3) {\n"
        "      %7 = mul %5, %2 : i64\n"
        "      %8 = load @0[%1, %7] rows 0 cols 1 : $A<3x4>\n"
        "      %9 = load @1[%5, %1] cols 1 : $B<1x$Q>\n"
        "      %10 = mma 4, %6, %8, %9 : i32<3x$C>\n"
        "      yield %10\n"
        "    }\n"
        "    store @2[%1, %1], %4 rows 0 cols 1\n"
        "  }\n"
        "}\n";
    (void)pairs;
    static const char *const bytes[] = {"i8", "u8"};
    static const int columns[] = {16, 32, 4, 3};
    for (int a = 0; a < 2; a++)
        for (int b = 0; b < 2; b++)
            for (size_t c = 0; c < ARRAY_LEN(columns); c++) {
                char text[2048], *p = text;
                for (const char *q = quads; *q; q++) {
                    if (*q != '$') *p++ = *q;
                    else if (*++q == 'A') p += sprintf(p, "%s", bytes[a]);
                    else if (*q == 'B') p += sprintf(p, "%s", bytes[b]);
                    else p += sprintf(p, "%d", *q == 'Q' ? 4 * columns[c] : columns[c]);
                }
                *p = 0;
                compare(*state, text, NULL);
            }
    for (size_t c = 0; c < ARRAY_LEN(columns); c++) {
        char text[2048], *p = text;
        for (const char *q = pairs; *q; q++) {
            if (*q != '$') *p++ = *q;
            else p += sprintf(p, "%d", columns[c] * (q >= strstr(pairs, "%10 =") && q < strstr(pairs, "%11") ? 2 : 1)), q++;
        }
        *p = 0;
        compare(*state, text, NULL);
        compare_words(*state, text);
    }
}

/* ---- objects and text ---- */

static void *emit_once(void *context)
{
    struct target_object *o = context;
    struct fixture f = {.ctx = dim_ctx_create()};
    diag_init(&f.diag);
    struct lp_kernel *k = lp_parse(matmul_text, strlen(matmul_text), "t.lp", f.ctx, &f.diag);
    const struct target *t = target_find("x86-64");
    if (!t->emit(t, target_level_find(t, "v3"), k, "kernel_7", o, &f.diag)) o->data = NULL;
    lp_kernel_destroy(k);
    diag_deinit(&f.diag);
    dim_ctx_destroy(f.ctx);
    return NULL;
}

static void test_same_bytes_on_threads(void **state)
{
    (void)state;
    struct target_object o[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, emit_once, &o[i]), 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++) {
        assert_non_null(o[i].data);
        assert_int_equal(o[i].n_bytes, o[0].n_bytes);
        assert_memory_equal(o[i].data, o[0].data, o[0].n_bytes);
    }
    for (int i = 0; i < 4; i++) free(o[i].data);
}

static void test_spills_are_counted(void **state)
{
    struct fixture *f = *state;
    const struct target *t = target_find("x86-64");
    char *text = format(matmul_text, "", 0), *p;
    /* 12 x 16 needs 24 accumulators of the 16 registers that v3 has. */
    while ((p = strstr(text, "<6x16>"))) memcpy(p, "<9x16>", 6);
    while ((p = strstr(text, "<6x1>"))) memcpy(p, "<9x1>", 5);
    struct lp_kernel *k = parse(f, text);
    struct target_object o;
    assert_true(t->emit(t, target_level_find(t, "v3"), k, "f", &o, &f->diag));
    assert_true(o.n_spills_in_loops > 0);
    free(o.data);
    lp_kernel_destroy(k);
    free(text);
}

static void test_text_forms(void **state)
{
    struct fixture *f = *state;
    const struct target *t = target_find("x86-64");
    struct lp_kernel *k = parse(f, matmul_text);
    struct strbuf s = {0};
    assert_true(t->emit_text(t, target_level_find(t, "v3"), k, "kernel_7", "asm", &s, &f->diag));
    assert_non_null(strstr(strbuf_get(&s), "kernel_7:"));
    assert_non_null(strstr(strbuf_get(&s), "vfmadd"));
    strbuf_deinit(&s);
    s = (struct strbuf){0};
    assert_true(t->emit_text(t, target_level_find(t, "v2"), k, "kernel_7", "llvm", &s, &f->diag));
    assert_non_null(strstr(strbuf_get(&s), "define void @kernel_7"));
    strbuf_deinit(&s);
    s = (struct strbuf){0};
    assert_false(t->emit_text(t, target_level_find(t, "v2"), k, "kernel_7", "ptx", &s, &f->diag));
    assert_int_equal(f->diag.items.v[0].id, DIAG_OPTION);
    lp_kernel_destroy(k);
}

static void test_unsupported_is_reported(void **state)
{
    struct fixture *f = *state;
    struct lp_kernel *k = parse(f, "kernel \"b\" loc \"net:/n\" schedule \"\" slices 1 claim 0 {\n  body(%0) {\n    barrier\n  }\n}\n");
    const struct target *t = target_find("x86-64");
    struct target_object o;
    assert_false(t->emit(t, &t->levels[0], k, "f", &o, &f->diag));
    assert_int_equal(f->diag.items.n, 1);
    assert_int_equal(f->diag.items.v[0].id, DIAG_NO_LOWERING);
    assert_string_equal(f->diag.items.v[0].loc, "net:/n");
    assert_non_null(strstr(f->diag.items.v[0].message, "barrier"));
    lp_kernel_destroy(k);
}

static void test_data(void **state)
{
    struct fixture *f = *state;
    const struct target *t = target_find("x86-64");
    static const char *const symbols[] = {"blob", NULL, "later", "blob"};
    const struct target_data data[] = {
        {.name = "table", .symbols = symbols, .n_symbols = 4, .align_bytes = 8},
        {.name = "blob", .bytes = "a\0b", .n_bytes = 3, .align_bytes = 64},
        {.name = "later", .bytes = "xyz", .n_bytes = 3, .align_bytes = 1},
        {.name = "empty", .bytes = NULL, .n_bytes = 0, .align_bytes = 1},
    };
    struct target_object o, again;
    assert_true(t->emit_data(t, data, 4, &o, &f->diag));
    assert_true(t->emit_data(t, data, 4, &again, &f->diag));
    assert_int_equal(o.n_bytes, again.n_bytes);
    assert_memory_equal(o.data, again.data, o.n_bytes);
    struct loaded l = load_object(&o, "table");
    const char **table;
    memcpy(&table, &l.fn, sizeof table);
    assert_memory_equal(table[0], "a\0b", 3);
    assert_int_equal((uintptr_t)table[0] % 64, 0);
    assert_null(table[1]);
    assert_memory_equal(table[2], "xyz", 3);
    assert_ptr_equal(table[3], table[0]);
    munmap(l.mem, l.n_bytes + 1);
    free(o.data);
    free(again.data);
    const struct target_data twice[] = {data[1], data[1]};
    assert_false(t->emit_data(t, twice, 2, &o, &f->diag));
}

static void test_registry(void **state)
{
    (void)state;
    const struct target *t = target_find("x86-64");
    assert_ptr_equal(target_at(0), t);
    assert_null(target_find("pdp-11"));
    assert_null(target_at(-1));
    assert_null(target_level_find(t, "v5"));
    for (int i = 1; i < t->n_levels; i++) assert_true(t->levels[i].isa > t->levels[i - 1].isa);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_registry),      TEST(test_relu),   TEST(test_matmul),
        TEST(test_bounds),        TEST(test_strided_columns), TEST(test_gather_scatter),
        TEST(test_reduce),        TEST(test_control), TEST(test_private_buffers),
        TEST(test_mma_pairs_and_quads), TEST(test_mma_tiles), TEST(test_same_bytes_on_threads), TEST(test_spills_are_counted),
        TEST(test_text_forms),    TEST(test_unsupported_is_reported), TEST(test_data),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
