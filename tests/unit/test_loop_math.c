// SPDX-License-Identifier: Apache-2.0
/*
 * lp_expand_math against libm in long double: samples over all bit patterns and dense ones where it matters, bounds in
 * ulp, with fma and with fma taken apart (as on processors without it). Special values are compared exactly.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ir/dim.h"
#include "ir/loop.h"
#include "ir/loop_rewrite.h"

#define LANES 256

/* ---- kernels ---- */

static struct lp_kernel *unary_kernel(struct dim_ctx *ctx, enum lp_opcode code, enum dtype d, int64_t n, bool binary)
{
    struct lp_kernel *k = lp_kernel_create(ctx, lp_op_name(code), "", "");
    struct lp_builder b = {.k = k, .block = k->body};
    const struct dim *size = dim_const(ctx, n);
    for (int i = 0; i < 3; i++) lp_add_arg(k, "v", d, 1, &size, i == 2, 8);
    k->slices = dim_const(ctx, n / LANES);
    struct lp_value *at = lp_binary(&b, LP_OP_MUL, k->body->args[0], lp_index(&b, LANES));
    struct lp_value *x = lp_load_tile(&b, 0, &at, 1, LANES, -1, 0, NULL, NULL), *y = NULL;
    if (binary) y = lp_load_tile(&b, 1, &at, 1, LANES, -1, 0, NULL, NULL);
    y = binary ? lp_binary(&b, code, x, y) : lp_unary(&b, code, x);
    lp_store_tile(&b, 2, &at, y, -1, 0, NULL, NULL);
    return k;
}

/* As a target without fma computes it. */
static void take_fma_apart(struct lp_kernel *k)
{
    for (struct lp_op *op = k->body->first; op; op = op->next) {
        if (op->code != LP_OP_FMA) continue;
        struct lp_block fresh = {0};
        struct lp_builder b = {.k = k, .block = &fresh};
        lp_binary(&b, LP_OP_MUL, op->operands[0], op->operands[1]);
        struct lp_value *product = fresh.last->results[0];
        lp_splice_before(op, &fresh);
        op->code = LP_OP_ADD;
        op->n_operands = 2;
        op->operands[0] = product;
        op->operands[1] = op->operands[2];
    }
}

static void run_kernel(struct lp_kernel *k, void *x, void *y, void *out, bool fma)
{
    struct diag_sink diag;
    diag_init(&diag);
    lp_expand_math(k);
    if (!fma) take_fma_apart(k);
    for (struct lp_op *op = k->body->first; op; op = op->next) assert_false(lp_op_flags(op->code) & LP_F_MATH);
    void *bufs[] = {x, y, out};
    bool good = lp_verify(k, &diag) && lp_eval(k, bufs, NULL, &diag);
    if (!good) diag_print_text(&diag, stderr);
    assert_true(good);
    lp_kernel_destroy(k);
    diag_deinit(&diag);
}

static void run(struct dim_ctx *ctx, enum lp_opcode code, enum dtype d, int64_t n, void *x, void *y, void *out, bool fma)
{
    run_kernel(unary_kernel(ctx, code, d, n, y != NULL), x, y, out, fma);
}

/* ---- references ---- */

static long double sigmoidl(long double x) { return 1 / (1 + expl(-x)); }

struct row {
    enum lp_opcode code;
    long double (*ref)(long double);
    double f32_ulp, f64_ulp;
    double dense_lo, dense_hi; /* where half of the samples lie */
};

static const struct row rows[] = {
    {LP_OP_EXP, expl, 1.1, 1.5, -10, 10},      {LP_OP_LOG, logl, 1.0, 1.5, 0, 4},
    {LP_OP_TANH, tanhl, 1.5, 4, -10, 10},      {LP_OP_SIGMOID, sigmoidl, 2.4, 4, -20, 20},
    {LP_OP_ERF, erfl, 1.3, 2, -4.5, 4.5},      {LP_OP_SIN, sinl, 1.6, 1.5, -100, 100},
    {LP_OP_COS, cosl, 1.6, 1.5, -100, 100},    {LP_OP_TAN, tanl, 0.6, 3, -10, 10},
    {LP_OP_ASIN, asinl, 0.6, 3, -1, 1},        {LP_OP_ACOS, acosl, 0.6, 3, -1, 1},
    {LP_OP_ATAN, atanl, 0.6, 3, -5, 5},        {LP_OP_SINH, sinhl, 0.6, 4, -10, 10},
    {LP_OP_COSH, coshl, 0.6, 4, -10, 10},      {LP_OP_ASINH, asinhl, 0.6, 4, -10, 10},
    {LP_OP_ACOSH, acoshl, 0.6, 4, 1, 10},      {LP_OP_ATANH, atanhl, 0.6, 4, -1, 1},
};

/* |got - want| in units of the last place of a type with `digits` digits and least exponent `least`. */
static double ulps(double got, long double want, int digits, int least)
{
    if (isnan(got) || isnan(want)) return isnan(got) && isnan(want) ? 0 : INFINITY;
    long double max = digits == 24 ? (long double)FLT_MAX : (long double)DBL_MAX;
    /* A result that rounds beyond the range is infinity, and the last finite number is one ulp below it. */
    long double half = ldexpl(1, (digits == 24 ? 128 : 1024) - digits - 1);
    if (isinf(got)) return !signbit(got) == !signbit(want) && (isinf(want) || fabsl(want) >= max - half) ? 0 : INFINITY;
    if (isinf(want) || fabsl(want) > max + half) return INFINITY;
    int e;
    frexpl(want, &e);
    e -= digits;
    if (e < least || want == 0) e = least;
    return (double)ldexpl(fabsl((long double)got - want), -e);
}

static uint64_t random_bits(uint64_t *seed)
{
    *seed += 0x9e3779b97f4a7c15;
    uint64_t z = *seed;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static double uniform(uint64_t *seed, double lo, double hi)
{
    return lo + (hi - lo) * ((double)(random_bits(seed) >> 11) * 0x1p-53);
}

static const double special[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1, -1, 0.5, -0.5, 2, -2, 1e-45, -1e-45, 1e-40, 88.7228, 89,
                                 -87.3, -103.9, -104.5, 1e5, -1e5, 1e10, 3e38, -3e38, 709.7, 710.5, -745, -746, 0.925, 4, 10,
                                 1e-310, -1e-310, 5e-324, 1e300, -1e300};

/* ---- f32 ---- */

static void fill_f32(const struct row *r, float *x, int64_t n)
{
    uint64_t seed = 7;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)(i * (INT64_C(0x100000000) / n)) + (uint32_t)(random_bits(&seed) % 997);
        if (i < (int64_t)ARRAY_LEN(special)) x[i] = (float)special[i];
        else if (i % 2) x[i] = (float)uniform(&seed, r->dense_lo, r->dense_hi);
        else memcpy(&x[i], &bits, 4);
    }
}

static void check_f32(struct dim_ctx *ctx, const struct row *r, int64_t n, bool fma)
{
    float *x = malloc((size_t)n * 4), *y = malloc((size_t)n * 4);
    fill_f32(r, x, n);
    run(ctx, r->code, DT_F32, n, x, NULL, y, fma);
    double worst = 0;
    for (int64_t i = 0; i < n; i++) {
        long double want = r->ref((long double)x[i]);
        /* Stated: exp and sigmoid flush what lies below the least normal number. */
        bool flushes = r->code == LP_OP_EXP || r->code == LP_OP_SIGMOID;
        if (flushes && y[i] == 0 && want < 0x1.0001p-126L) continue;
        double e = ulps((double)y[i], want, 24, -149);
        if (want == 0 && !signbit(want) != !signbit(y[i])) e = INFINITY;
        if (e > worst) worst = e;
        if (e > r->f32_ulp)
            fail_msg("%s(%a = %g) in f32%s is %a, %g ulp from %La", lp_op_name(r->code), (double)x[i], (double)x[i],
                     fma ? "" : " without fma", (double)y[i], e, want);
    }
    print_message("    f32 %-8s %s %.3f ulp\n", lp_op_name(r->code), fma ? "fma" : "   ", worst);
    free(x);
    free(y);
}

static int64_t samples(int64_t n)
{
    const char *more = getenv("INFC_TEST_SAMPLES"); /* a factor, for a longer search */
    return n * (more ? atoi(more) : 1);
}

static void test_f32(void **state)
{
    (void)state;
    struct dim_ctx *ctx = dim_ctx_create();
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        check_f32(ctx, &rows[i], samples(1 << 17), true);
        check_f32(ctx, &rows[i], samples(1 << 16), false);
    }
    dim_ctx_destroy(ctx);
}

/* 1 + erf x, in either order and also where erf itself is used: absolute errors, exact where erf is +-1 in f32. */
static void test_one_plus_erf(void **state)
{
    (void)state;
    struct dim_ctx *ctx = dim_ctx_create();
    enum { N = 1 << 16 };
    float *x = malloc(N * 4), *y = malloc(N * 4);
    assert_true(x && y);
    fill_f32(&(struct row){.dense_lo = -4.5, .dense_hi = 4.5}, x, N);
    for (int variant = 0; variant < 4; variant++) {
        struct lp_kernel *k = unary_kernel(ctx, LP_OP_ERF, DT_F32, N, false);
        struct lp_op *store = k->body->last;
        struct lp_block fresh = {0};
        struct lp_builder b = {.k = k, .block = &fresh};
        struct lp_value *erf = store->operands[0], *one = lp_const_f(&b, lp_scalar(DT_F32), 1);
        store->operands[0] = variant % 2 ? lp_binary(&b, LP_OP_ADD, one, erf) : lp_binary(&b, LP_OP_ADD, erf, one);
        if (variant == 3) store->operands[0] = lp_binary(&b, LP_OP_SUB, store->operands[0], erf);
        lp_splice_before(store, &fresh);
        run_kernel(k, x, NULL, y, variant < 2);
        for (int i = 0; i < N; i++) {
            long double want = variant == 3 ? 1 : 1 + erfl((long double)x[i]);
            if (isnan(x[i])) assert_true(isnan(y[i]));
            else if (fabsf(x[i]) >= 4 && variant < 3) assert_true(y[i] == (x[i] > 0 ? 2.0f : 0.0f));
            else if (fabsl((long double)y[i] - want) > (variant == 3 ? 3e-7L : 2.2e-7L))
                fail_msg("1 + erf(%g) is %a, off by %Lg", (double)x[i], (double)y[i], fabsl((long double)y[i] - want));
        }
    }
    free(x);
    free(y);
    dim_ctx_destroy(ctx);
}

/* ---- f64 ---- */

static void fill_f64(const struct row *r, double *x, int64_t n)
{
    uint64_t seed = 11;
    bool angle = r->code == LP_OP_SIN || r->code == LP_OP_COS || r->code == LP_OP_TAN;
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits = random_bits(&seed);
        if (i < (int64_t)ARRAY_LEN(special)) x[i] = special[i];
        else if (i % 4) x[i] = uniform(&seed, r->dense_lo, r->dense_hi);
        else memcpy(&x[i], &bits, 8);
        /* The stated range. */
        if (angle && fabs(x[i]) > 0x1p40 && !isinf(x[i])) x[i] = uniform(&seed, -0x1p40, 0x1p40);
        if (i % 4 == 1 && r->code != LP_OP_ACOSH) x[i] *= ldexp(1, -(int)(bits % 60));
        if (angle && i % 4 == 3) x[i] = nearbyint(x[i] * 0.6) * 1.5707963267948966;
    }
}

static void check_f64(struct dim_ctx *ctx, const struct row *r, int64_t n, bool fma)
{
    double *x = malloc((size_t)n * 8), *y = malloc((size_t)n * 8);
    fill_f64(r, x, n);
    run(ctx, r->code, DT_F64, n, x, NULL, y, fma);
    double worst = 0;
    for (int64_t i = 0; i < n; i++) {
        long double want = r->ref((long double)x[i]);
        double e = ulps(y[i], want, 53, -1074);
        if (want == 0 && !signbit(want) != !signbit(y[i])) e = INFINITY;
        if (e > worst) worst = e;
        if (e > r->f64_ulp)
            fail_msg("%s(%a = %g) in f64%s is %a, %g ulp from %La", lp_op_name(r->code), x[i], x[i],
                     fma ? "" : " without fma", y[i], e, want);
    }
    print_message("    f64 %-8s %s %.3f ulp\n", lp_op_name(r->code), fma ? "fma" : "   ", worst);
    free(x);
    free(y);
}

static void test_f64(void **state)
{
    (void)state;
    struct dim_ctx *ctx = dim_ctx_create();
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        check_f64(ctx, &rows[i], samples(1 << 16), true);
        check_f64(ctx, &rows[i], samples(1 << 15), false);
    }
    dim_ctx_destroy(ctx);
}

/* ---- narrow floats: the f32 result, rounded ---- */

static void test_f16(void **state)
{
    (void)state;
    struct dim_ctx *ctx = dim_ctx_create();
    static uint16_t x[1 << 16], y[1 << 16];
    for (int i = 0; i < 1 << 16; i++) x[i] = (uint16_t)i;
    const struct row *r = &rows[0];
    run(ctx, r->code, DT_BF16, 1 << 16, x, NULL, y, true);
    for (int i = 0; i < 1 << 16; i++) {
        uint32_t bx = (uint32_t)x[i] << 16, by = (uint32_t)y[i] << 16;
        float fx, fy;
        memcpy(&fx, &bx, 4);
        memcpy(&fy, &by, 4);
        double want = exp((double)fx);
        if (isnan(want) || want > 0x1.ffp127) assert_true(isnan(want) ? isnan(fy) : isinf(fy) || want < 0x1.ffp127);
        else if (fy != 0 || want > 0x1.0001p-126) /* f32's exp, on which it stands, flushes */
            assert_true(ulps((double)fy, (long double)want, 8, -133) <= 0.502);
    }
    dim_ctx_destroy(ctx);
}

/* ---- powers ---- */

static const double pow_values[] = {0.0, -0.0, 1, -1, 2, -2, 3, -3, 0.5, -0.5, 1.5, -1.5, 10, -10, 1e-3, 1e30, -1e30, 1e-30, 4097,
                                    INFINITY, -INFINITY, NAN, 100, -100, 127, 1023, 0.999, 1.001, 0x1p53, 8388609, 1e-44, 7};

static void check_pow(struct dim_ctx *ctx, enum dtype d, int64_t n, double bound, bool fma)
{
    size_t bytes = dtype_bytes(d);
    void *x = malloc((size_t)n * bytes), *y = malloc((size_t)n * bytes), *z = malloc((size_t)n * bytes);
    uint64_t seed = 5;
    const int64_t m = ARRAY_LEN(pow_values);
    for (int64_t i = 0; i < n; i++) {
        double a = i < m * m ? pow_values[i / m] : exp(uniform(&seed, -40, 40));
        double b = i < m * m ? pow_values[i % m] : i % 3 ? uniform(&seed, -4, 4) : uniform(&seed, -200, 200);
        if (i >= m * m && i % 5 == 0) a = -a, b = nearbyint(b);
        if (i >= m * m && i % 7 == 0) a = uniform(&seed, 0.5, 1.5), b = uniform(&seed, -700, 700);
        if (d == DT_F32) ((float *)x)[i] = (float)a, ((float *)y)[i] = (float)b;
        else ((double *)x)[i] = a, ((double *)y)[i] = b;
    }
    run(ctx, LP_OP_POW, d, n, x, y, z, fma);
    double worst = 0;
    for (int64_t i = 0; i < n; i++) {
        double a = d == DT_F32 ? (double)((float *)x)[i] : ((double *)x)[i];
        double b = d == DT_F32 ? (double)((float *)y)[i] : ((double *)y)[i];
        double got = d == DT_F32 ? (double)((float *)z)[i] : ((double *)z)[i];
        long double want = powl((long double)a, (long double)b);
        double e = d == DT_F32 ? ulps(got, want, 24, -149) : ulps(got, want, 53, -1074);
        if (want == 0 && !signbit(want) != !signbit(got)) e = INFINITY;
        if (e > worst) worst = e;
        if (e > bound) fail_msg("pow(%a, %a) in %s is %a, %g ulp from %La", a, b, dtype_name(d), got, e, want);
    }
    print_message("    %s pow      %s %.3f ulp\n", dtype_name(d), fma ? "fma" : "   ", worst);
    free(x);
    free(y);
    free(z);
}

static void test_pow(void **state)
{
    (void)state;
    struct dim_ctx *ctx = dim_ctx_create();
    check_pow(ctx, DT_F32, samples(1 << 15), 0.51, true);
    check_pow(ctx, DT_F32, samples(1 << 14), 0.51, false);
    check_pow(ctx, DT_F64, samples(1 << 15), 1.2, true);
    check_pow(ctx, DT_F64, samples(1 << 14), 1.2, false);
    dim_ctx_destroy(ctx);
}

/* Constant exponents take shorter ways. */
static void test_pow_const(void **state)
{
    (void)state;
    struct dim_ctx *ctx = dim_ctx_create();
    static const double exponents[] = {0.5, -1, -2, 1, 2, 3, 4, 0, 2.5};
    static float x[LANES], y[LANES];
    uint64_t seed = 3;
    for (size_t i = 0; i < LANES; i++)
        x[i] = i < ARRAY_LEN(special) ? (float)special[i] : (float)uniform(&seed, i % 2 ? 0 : -30, 30);
    for (size_t j = 0; j < ARRAY_LEN(exponents); j++) {
        struct diag_sink diag;
        diag_init(&diag);
        struct lp_kernel *k = lp_kernel_create(ctx, "pow", "", "");
        struct lp_builder b = {.k = k, .block = k->body};
        const struct dim *size = dim_const(ctx, LANES);
        for (int i = 0; i < 2; i++) lp_add_arg(k, "v", DT_F32, 1, &size, i, 4);
        struct lp_value *v = lp_load_tile(&b, 0, k->body->args, 1, LANES, -1, 0, NULL, NULL);
        struct lp_value *e = lp_splat(&b, lp_const_f(&b, lp_scalar(DT_F32), exponents[j]), 1, LANES);
        lp_store_tile(&b, 1, k->body->args, lp_binary(&b, LP_OP_POW, v, e), -1, 0, NULL, NULL);
        lp_expand_math(k);
        void *bufs[] = {x, y};
        assert_true(lp_verify(k, &diag) && lp_eval(k, bufs, NULL, &diag));
        for (size_t i = 0; i < LANES; i++) {
            long double want = powl((long double)x[i], (long double)exponents[j]);
            double err = ulps((double)y[i], want, 24, -149);
            if (err > 2 || (want == 0 && !signbit(want) != !signbit(y[i])))
                fail_msg("pow(%g, %g) is %g, %g ulp from %Lg", (double)x[i], exponents[j], (double)y[i], err, want);
        }
        lp_kernel_destroy(k);
        diag_deinit(&diag);
    }
    dim_ctx_destroy(ctx);
}

static void test_pow_int(void **state)
{
    (void)state;
    struct dim_ctx *ctx = dim_ctx_create();
    static int32_t x[LANES], y[LANES], z[LANES];
    for (int i = 0; i < LANES; i++) {
        x[i] = i % 16 - 5;
        y[i] = i / 16 - 3;
    }
    run(ctx, LP_OP_POW, DT_I32, LANES, x, y, z, true);
    for (int i = 0; i < LANES; i++) {
        uint32_t want = 1;
        for (int j = 0; j < y[i]; j++) want *= (uint32_t)x[i];
        if (y[i] < 0) want = x[i] == 1 ? 1 : x[i] == -1 ? (y[i] % 2 ? (uint32_t)-1 : 1) : 0;
        assert_int_equal((uint32_t)z[i], want);
    }
    static uint8_t a[LANES], b[LANES], c[LANES];
    for (int i = 0; i < LANES; i++) {
        a[i] = (uint8_t)(i % 7);
        b[i] = (uint8_t)i;
    }
    run(ctx, LP_OP_POW, DT_U8, LANES, a, b, c, true);
    for (int i = 0; i < LANES; i++) {
        uint8_t want = 1;
        for (int j = 0; j < b[i]; j++) want = (uint8_t)(want * a[i]);
        assert_int_equal(c[i], want);
    }
    dim_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f32), cmocka_unit_test(test_one_plus_erf), cmocka_unit_test(test_f64),       cmocka_unit_test(test_f16),
        cmocka_unit_test(test_pow), cmocka_unit_test(test_pow_const), cmocka_unit_test(test_pow_int),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
