// SPDX-License-Identifier: Apache-2.0
/*
 * lp_vectorize and lp_simplify: shapes of results on small kernels, and random kernels whose results must not change.
 */
#include <math.h>
#include <string.h>

#include "tests/unit/loop_fixture.h"
#include "tests/unit/test_loop_random.h"

static void must(struct fixture *f, bool good, const struct lp_kernel *k)
{
    if (good) return;
    diag_print_text(&f->diag, stderr);
    if (k) {
        struct strbuf s = {0};
        lp_print(&s, k, false);
        fputs(strbuf_get(&s), stderr);
        strbuf_deinit(&s);
    }
    fail();
}

/* x, y: f32[n]; z: f32[n] writable; a: i64[n]. */
static struct lp_kernel *parse(struct fixture *f, const char *body)
{
    struct strbuf s = {0};
    strbuf_puts(&s, "sym n in [0, 1000]\nkernel \"k\" loc \"\" schedule \"\" slices 1 claim 0 {\n"
                    "arg @0 \"x\" : f32[n] align 4\narg @1 \"y\" : f32[n, 3] align 4\n"
                    "arg @2 \"z\" : f32[n] align 4 writable\narg @3 \"a\" : i64[n] align 8\nparam n\nbody(%0) {\n");
    strbuf_puts(&s, body);
    strbuf_puts(&s, "}\n}\n");
    struct lp_kernel *k = lp_parse(s.data, s.len, "t.lp", f->ctx, &f->diag);
    strbuf_deinit(&s);
    must(f, k != NULL, NULL);
    return k;
}

static int count(const struct lp_block *b, enum lp_opcode code)
{
    int n = 0;
    for (const struct lp_op *op = b->first; op; op = op->next) {
        n += op->code == code;
        for (int i = 0; i < op->n_regions; i++) n += count(op->regions[i], code);
    }
    return n;
}

static const struct lp_op *first(const struct lp_block *b, enum lp_opcode code)
{
    for (const struct lp_op *op = b->first; op; op = op->next) {
        if (op->code == code) return op;
        for (int i = 0; i < op->n_regions; i++) {
            const struct lp_op *found = first(op->regions[i], code);
            if (found) return found;
        }
    }
    return NULL;
}

/* Evaluates over n elements. */
static void eval(struct fixture *f, const struct lp_kernel *k, int64_t n, float *z)
{
    static float x[1000], y[3000];
    static int64_t a[1000];
    fill(x, 1000);
    fill(y, 3000);
    for (int i = 0; i < 1000; i++) {
        z[i] = -1;
        a[i] = n ? i * 7 % n : 0;
    }
    void *bufs[] = {x, y, z, a};
    must(f, lp_eval(k, bufs, &n, &f->diag), k);
}

/* The kernel after the rewrites computes the same for several sizes; sums may differ by `slack`. */
static void check_same(struct fixture *f, const char *body, int want_vectorized, double slack)
{
    static const int64_t sizes[] = {0, 1, 2, 3, 7, 8, 15, 16, 17, 64, 100, 129, 400};
    float want[1000], got[1000];
    for (int bytes = 16; bytes <= 64; bytes *= 2)
        for (int masked = 0; masked < 2; masked++) {
            struct lp_kernel *k = parse(f, body), *old = parse(f, body);
            lp_vectorize_as(k, bytes, masked);
            must(f, lp_verify(k, &f->diag), k);
            assert_int_equal(k->n_vectorized, want_vectorized);
            lp_simplify(k);
            must(f, lp_verify(k, &f->diag), k);
            for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
                eval(f, old, sizes[s], want);
                eval(f, k, sizes[s], got);
                for (int i = 0; i < 1000; i++)
                    if (want[i] != got[i] && !(fabs((double)want[i] - (double)got[i]) <= slack)) {
                        print_error("%d bytes, masked %d, n = %d: z[%d] is %g, want %g\n", bytes, masked, (int)sizes[s],
                                    i, (double)got[i], (double)want[i]);
                        must(f, false, k);
                    }
            }
            lp_kernel_destroy(k);
            lp_kernel_destroy(old);
        }
}

/* ---- vectorize ---- */

static const char pointwise_body[] =
    "%1 = const 0 : i64\n%2 = dim #0 : i64\nfor vector %3 in %1 .. %2 step 1 {\n"
    "%4 = load @0[%3] : f32\n%5 = const 2 : f32\n%6 = fma %4, %5, %4 : f32\n"
    "%7 = cast %3 : f32\n%8 = add %6, %7 : f32\nstore @2[%3], %8\n}\n";

static void test_pointwise(void **state)
{
    struct fixture *f = *state;
    check_same(f, pointwise_body, 1, 0);
    struct lp_kernel *k = parse(f, pointwise_body);
    lp_vectorize(k, 64);
    const struct lp_op *load = first(k->body, LP_OP_LOAD);
    assert_int_equal(load->results[0]->type.cols, 16);
    assert_int_equal(load->col_axis, 0);
    assert_int_equal(count(k->body, LP_OP_FOR), 2); /* whole steps, then the old loop */
    assert_false(load->has_ncols);
    lp_kernel_destroy(k);
    k = parse(f, pointwise_body);
    lp_vectorize_as(k, 32, true);
    assert_int_equal(count(k->body, LP_OP_FOR), 1);
    assert_int_equal(count(k->body, LP_OP_IF), 1);
    assert_true(first(first(k->body, LP_OP_IF)->regions[0], LP_OP_STORE)->has_ncols);
    lp_kernel_destroy(k);
}

static void test_no_tail(void **state)
{
    struct fixture *f = *state;
    struct lp_kernel *k = parse(f, "%1 = const 0 : i64\n%2 = const 48 : i64\nfor vector %3 in %1 .. %2 step 1 {\n"
                                   "%4 = load @0[%3] : f32\nstore @2[%3], %4\n}\n");
    lp_vectorize(k, 64);
    lp_simplify(k);
    assert_int_equal(count(k->body, LP_OP_FOR), 1);
    assert_int_equal(first(k->body, LP_OP_FOR)->imm, 16);
    lp_kernel_destroy(k);
}

static void test_reductions(void **state)
{
    struct fixture *f = *state;
    /* sum, maximum and a difference of products in one loop */
    check_same(f,
               "%1 = const 0 : i64\n%2 = dim #0 : i64\n%9 = const 0.5 : f32\n%10 = const -inf : f32\n"
               "%3, %4, %5 = for vector %6 in %1 .. %2 step 1 carry (%7 = %9, %8 = %10, %11 = %9) {\n"
               "%12 = load @0[%6] : f32\n%13 = add %12, %7 : f32\n%14 = max %8, %12 : f32\n"
               "%15 = fma %12, %12, %11 : f32\nyield %13, %14, %15\n}\n"
               "%20 = ge %2, %2 : bool\n%21 = gt %2, %1 : bool\nif %21 {\n%22 = min %4, %9 : f32\n"
               "%16 = add %3, %22 : f32\n%17 = add %16, %5 : f32\nstore @2[%1], %17\n} else {\n}\n",
               1, 0.02);
    /* integers are exact in any order */
    check_same(f,
               "%1 = const 0 : i64\n%2 = dim #0 : i64\n%3 = for vector %6 in %1 .. %2 step 1 carry (%7 = %2) {\n"
               "%12 = load @3[%6] : i64\n%13 = sub %7, %12 : i64\nyield %13\n}\n%4 = cast %3 : f32\n"
               "%21 = gt %2, %1 : bool\nif %21 {\nstore @2[%1], %4\n} else {\n}\n",
               1, 0);
}

static void test_gather_and_stride(void **state)
{
    struct fixture *f = *state;
    /* x[a[i]] + y[i, 1] + y[n - 1 - i, 2] -> z[i] */
    check_same(f,
               "%1 = const 0 : i64\n%2 = dim #0 : i64\n%20 = const 1 : i64\n%21 = const 2 : i64\n"
               "for vector %3 in %1 .. %2 step 1 {\n"
               "%4 = load @3[%3] : i64\n%5 = load @0[%4] : f32\n%6 = load @1[%3, %20] : f32\n"
               "%7 = sub %2, %3 : i64\n%8 = sub %7, %20 : i64\n%9 = load @1[%8, %21] : f32\n"
               "%10 = add %5, %6 : f32\n%11 = add %10, %9 : f32\nstore @2[%3], %11\n}\n",
               1, 0);
    /* scatter: z[n - 1 - i] */
    check_same(f,
               "%1 = const 0 : i64\n%2 = dim #0 : i64\n%20 = const 1 : i64\nfor vector %3 in %1 .. %2 step 1 {\n"
               "%4 = load @0[%3] : f32\n%7 = sub %2, %3 : i64\n%8 = sub %7, %20 : i64\nstore @2[%8], %4\n}\n",
               1, 0);
}

/* z[i] = x[min(max(i - 20, 0), n - 1)] + y[i / 2, 1]: tile, one element and gather. */
static void test_stepping(void **state)
{
    struct fixture *f = *state;
    const char *body =
        "%1 = const 0 : i64\n%2 = dim #0 : i64\n%20 = const 20 : i64\n%21 = const 1 : i64\n%22 = const 2 : i64\n"
        "%23 = sub %2, %21 : i64\nfor vector %3 in %1 .. %2 step 1 {\n"
        "%4 = sub %3, %20 : i64\n%5 = max %4, %1 : i64\n%6 = min %5, %23 : i64\n%7 = load @0[%6] : f32\n"
        "%8 = floordiv %3, %22 : i64\n%9 = load @1[%8, %21] : f32\n%10 = cast %6 : f32\n%11 = add %7, %9 : f32\n"
        "%12 = add %11, %10 : f32\nstore @2[%3], %12\n}\n";
    check_same(f, body, 1, 0);
    struct lp_kernel *k = parse(f, body);
    lp_vectorize_as(k, 32, true);
    const struct lp_op *branch = first(first(k->body, LP_OP_FOR)->regions[0], LP_OP_IF);
    assert_int_equal(first(branch->regions[0], LP_OP_LOAD)->col_axis, 0);
    branch = first(branch->regions[1], LP_OP_IF);
    assert_int_equal(first(branch->regions[0], LP_OP_LOAD)->results[0]->type.cols, 1);
    assert_int_equal(first(branch->regions[1], LP_OP_LOAD)->operands[0]->type.cols, 8);
    lp_kernel_destroy(k);
}

static void test_nested(void **state)
{
    struct fixture *f = *state;
    /* An inner serial sum, a branch that becomes a select and one that stays. */
    check_same(f,
               "%1 = const 0 : i64\n%2 = dim #0 : i64\n%20 = const 3 : i64\n%30 = const 0 : f32\n%31 = const 9 : i64\n"
               "%32 = gt %2, %31 : bool\n"
               "for vector %3 in %1 .. %2 step 1 {\n"
               "%4 = for serial %5 in %1 .. %20 step 1 carry (%6 = %30) {\n"
               "%7 = load @1[%3, %5] : f32\n%8 = add %6, %7 : f32\nyield %8\n}\n"
               "%9 = gt %4, %30 : bool\n"
               "%10 = if %9 -> (f32) {\n%11 = mul %4, %4 : f32\nyield %11\n} else {\nyield %30\n}\n"
               "%12 = if %32 -> (f32) {\n%13 = load @0[%3] : f32\nyield %13\n} else {\nyield %10\n}\n"
               "%14 = add %12, %10 : f32\nstore @2[%3], %14\n}\n",
               1, 0);
}

static void test_refused(void **state)
{
    struct fixture *f = *state;
    /* A recurrence; a step that is not 1; all iterations into one element. */
    check_same(f, "%1 = const 0 : i64\n%2 = dim #0 : i64\n%9 = const 1 : f32\n"
                  "%3 = for vector %6 in %1 .. %2 step 1 carry (%7 = %9) {\n%12 = load @0[%6] : f32\n"
                  "%13 = min %7, %12 : f32\n%14 = add %13, %9 : f32\nstore @2[%6], %14\nyield %14\n}\n", 0, 0);
    check_same(f, "%1 = const 0 : i64\n%2 = dim #0 : i64\nfor vector %6 in %1 .. %2 step 2 {\n%12 = load @0[%6] : f32\n"
                  "store @2[%6], %12\n}\n", 0, 0);
    check_same(f, "%1 = const 0 : i64\n%2 = dim #0 : i64\nfor vector %6 in %1 .. %2 step 1 {\n%12 = load @0[%6] : f32\n"
                  "store @2[%1], %12\n}\n", 0, 0);
}

static void test_short_loops(void **state)
{
    struct fixture *f = *state;
    for (int n = 0; n < 20; n++) {
        struct strbuf s = {0};
        strbuf_printf(&s, "%%1 = const 3 : i64\n%%2 = const %d : i64\n%%30 = const 0 : f32\n%%40 = dim #0 : i64\n"
                          "%%41 = const 100 : i64\n%%42 = eq %%40, %%41 : bool\nif %%42 {\n"
                          "%%9 = for vector %%3 in %%1 .. %%2 step 1 carry (%%6 = %%30) {\n%%4 = load @0[%%3] : f32\n"
                          "store @2[%%3], %%4\n%%8 = add %%4, %%6 : f32\nyield %%8\n}\nstore @2[%%1], %%9\n} else {\n}\n",
                      n + 3);
        check_same(f, s.data, n >= 2, 1e-3);
        strbuf_deinit(&s);
    }
}

/* ---- simplify ---- */

static void test_simplify(void **state)
{
    struct fixture *f = *state;
    struct lp_kernel *k = parse(f,
        "%1 = const 0 : i64\n%2 = dim #0 : i64\n%3 = dim #0 : i64\n"
        "for serial %4 in %1 .. %2 step 1 {\n"
        "  %5 = const 5 : i64\n  %6 = const 3 : i64\n  %7 = mul %5, %6 : i64\n  %8 = add %3, %7 : i64\n"
        "  %9 = add %2, %7 : i64\n  %10 = sub %8, %9 : i64\n  %11 = add %10, %4 : i64\n"
        "  %12 = load @0[%1] : f32\n  %13 = exp %12 : f32\n  %14 = exp %12 : f32\n  %15 = load @0[%4] : f32\n"
        "  %16 = load @0[%4] : f32\n  %17 = add %15, %16 : f32\n  %18 = add %13, %17 : f32\n  store @2[%11], %18\n"
        "  %19 = for serial %20 in %1 .. %2 step 1 carry (%21 = %13) {\n    %22 = add %21, %14 : f32\n    yield %22\n  }\n"
        "}\n"
        "for serial %30 in %2 .. %2 step 1 {\n}\n");
    lp_simplify(k);
    must(f, lp_verify(k, &f->diag), k);
    const struct lp_op *loop = first(k->body, LP_OP_FOR);
    assert_int_equal(count(k->body, LP_OP_FOR), 1); /* no effect, no use: gone */
    assert_int_equal(count(k->body, LP_OP_EXP), 1);
    assert_int_equal(count(k->body, LP_OP_MUL), 0);
    assert_int_equal(count(k->body, LP_OP_LOAD), 2);
    assert_int_equal(count(loop->regions[0], LP_OP_LOAD), 2); /* the loop may not run at all */
    assert_int_equal(count(loop->regions[0], LP_OP_SUB), 0);  /* moved out */
    assert_int_equal(count(loop->regions[0], LP_OP_CONST), 0);
    assert_int_equal(count(k->body, LP_OP_DIM), 1);
    lp_kernel_destroy(k);
}

static void test_simplify_stays(void **state)
{
    struct fixture *f = *state;
    /* Stored buffers are read again; -0 is not 0; a division by 0 is not made to happen. */
    struct lp_kernel *k = parse(f,
        "%1 = const 0 : i64\n%2 = dim #0 : i64\n%3 = load @2[%1] : f32\nstore @2[%1], %3\n%4 = load @2[%1] : f32\n"
        "%5 = const 0 : f32\n%6 = const -0 : f32\n%7 = add %4, %5 : f32\n%8 = add %7, %6 : f32\nstore @2[%1], %8\n"
        "for serial %9 in %1 .. %2 step 1 {\n%10 = load @3[%1] : i64\n%11 = floordiv %2, %10 : i64\n"
        "%12 = load @0[%11] : f32\nstore @2[%9], %12\n}\n");
    lp_simplify(k);
    must(f, lp_verify(k, &f->diag), k);
    assert_int_equal(count(k->body, LP_OP_LOAD), 4);
    assert_int_equal(count(k->body, LP_OP_ADD), 2);
    assert_int_equal(count(first(k->body, LP_OP_FOR)->regions[0], LP_OP_FLOORDIV), 1);
    lp_kernel_destroy(k);
}

static void test_simplify_hoists_loads(void **state)
{
    struct fixture *f = *state;
    struct lp_kernel *k = parse(f,
        "%1 = const 0 : i64\n%2 = const 4 : i64\nfor serial %3 in %1 .. %2 step 1 {\n%4 = load @0[%1] : f32\n"
        "%5 = load @2[%1] : f32\n%6 = add %4, %5 : f32\nstore @2[%3], %6\n}\n");
    lp_simplify(k);
    assert_int_equal(count(first(k->body, LP_OP_FOR)->regions[0], LP_OP_LOAD), 1);
    lp_kernel_destroy(k);
}

/* ---- random kernels ---- */

static void eval_random(struct fixture *f, const struct lp_kernel *k, float *z /* [1001] */)
{
    static float x[1000], y[3000];
    static int64_t a[1000];
    fill_random(x, y, z, a);
    void *bufs[] = {x, y, z, a, z + 1000};
    must(f, lp_eval(k, bufs, NULL, &f->diag), k);
}

static void test_random(void **state)
{
    struct fixture *f = *state;
    float want[1001], got[1001];
    int widened = 0;
    for (uint64_t seed = 0; seed < 1500; seed++) {
        int64_t lo = (int64_t)(seed % 5), hi = lo + (int64_t)(seed * 13 % 70);
        struct lp_kernel *k = gen_kernel(f->ctx, seed, lo, hi);
        must(f, lp_verify(k, &f->diag), k);
        eval_random(f, k, want);
        int order = (int)(seed % 3);
        if (order != 1) lp_simplify(k);
        must(f, lp_verify(k, &f->diag), k);
        if (order) lp_vectorize_as(k, 16 << seed % 3, seed / 3 % 2);
        must(f, lp_verify(k, &f->diag), k);
        if (order == 1) lp_simplify(k);
        must(f, lp_verify(k, &f->diag), k);
        widened += k->n_vectorized;
        eval_random(f, k, got);
        for (int i = 0; i <= 1000; i++)
            if (memcmp(&want[i], &got[i], 4) != 0 && !(isnan(want[i]) && isnan(got[i])) && want[i] != got[i]) {
                print_error("seed %d: z[%d] is %g, want %g\n", (int)seed, i, (double)got[i], (double)want[i]);
                must(f, false, k);
            }
        lp_kernel_destroy(k);
    }
    assert_true(widened > 400); /* the test would be idle otherwise */
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_pointwise), T(test_no_tail),        T(test_reductions), T(test_gather_and_stride),     T(test_stepping), T(test_nested),
        T(test_refused),   T(test_short_loops),    T(test_simplify),   T(test_simplify_stays), T(test_simplify_hoists_loads),
        T(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
