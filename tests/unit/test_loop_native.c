// SPDX-License-Identifier: Apache-2.0
/*
 * Kernels after all rewrites, compiled for every level of this machine, against the evaluator on the kernel as it was
 * written: random ones bit for bit (but for NaN), elementary functions within their bounds.
 */
#include "tests/unit/cpu_kernel.h"

#include <math.h>

#include "tests/unit/test_loop_random.h"

static struct loaded compile(struct lp_kernel *k, const struct target *t, const struct target_level *level)
{
    struct target_object o = {0};
    struct diag_sink diag;
    diag_init(&diag);
    bool good = t->emit(t, level, k, "kernel", &o, &diag);
    if (!good) diag_print_text(&diag, stderr);
    assert_true(good);
    struct loaded l = load_object(&o, "kernel");
    free(o.data);
    diag_deinit(&diag);
    return l;
}

static void call(struct loaded l, void *const *bufs, int64_t slices)
{
    void *scratch = aligned_alloc(64, 1 << 16);
    l.fn(bufs, NULL, 0, slices, scratch);
    free(scratch);
    munmap(l.mem, l.n_bytes + 1);
}

static void check_random(uint64_t seed, const struct target *t, const struct target_level *level)
{
    static float x[1000], y[3000], want[1001], got[1001];
    static int64_t a[1000];
    struct dim_ctx *ctx = dim_ctx_create();
    struct diag_sink diag;
    diag_init(&diag);
    int64_t lo = (int64_t)(seed % 5), hi = lo + (int64_t)(seed * 13 % 70);
    struct lp_kernel *k = gen_kernel(ctx, seed, lo, hi);
    void *bufs[] = {x, y, want, a, want + 1000};
    fill_random(x, y, want, a);
    assert_true(lp_eval(k, bufs, NULL, &diag));
    fill_random(x, y, got, a);
    bufs[2] = got;
    bufs[4] = got + 1000;
    /* Half of them with bounded last steps, which the target then finds done. */
    if (seed % 2) lp_vectorize_as(k, level->vector_bytes, true);
    call(compile(k, t, level), bufs, 1);
    for (int i = 0; i <= 1000; i++)
        if (want[i] != got[i] && !(isnan(want[i]) && isnan(got[i])))
            fail_msg("seed %d, %s: z[%d] is %g, want %g", (int)seed, level->name, i, (double)got[i], (double)want[i]);
    lp_kernel_destroy(k);
    diag_deinit(&diag);
    dim_ctx_destroy(ctx);
}

static void test_random(void **state)
{
    (void)state;
    const struct target *t = target_find("x86-64");
    assert_non_null(t);
    for (int l = 0; l < t->n_levels; l++)
        for (uint64_t seed = 0; seed < 40 && machine_has(t->levels[l].isa); seed++)
            check_random(seed * 7 + (uint64_t)l, t, &t->levels[l]);
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static const struct {
    enum lp_opcode code;
    double (*ref)(double);
    double ulp;
} functions[] = {
    {LP_OP_EXP, exp, 1.1},  {LP_OP_LOG, log, 1},     {LP_OP_TANH, tanh, 1.5},   {LP_OP_SIGMOID, sigmoid, 2.4},
    {LP_OP_ERF, erf, 1.3},  {LP_OP_SIN, sin, 1.6},   {LP_OP_COS, cos, 1.6},     {LP_OP_TAN, tan, 0.6},
    {LP_OP_ASIN, asin, 0.6}, {LP_OP_ACOS, acos, 0.6}, {LP_OP_ATAN, atan, 0.6},  {LP_OP_SINH, sinh, 0.6},
    {LP_OP_COSH, cosh, 0.6}, {LP_OP_ASINH, asinh, 0.6}, {LP_OP_ACOSH, acosh, 0.6}, {LP_OP_ATANH, atanh, 0.6},
};

enum { BATCH = 1 << 14 };

static struct lp_kernel *function_kernel(struct dim_ctx *ctx, enum lp_opcode code)
{
    struct lp_kernel *k = lp_kernel_create(ctx, lp_op_name(code), "", "");
    const struct dim *n = dim_const(ctx, BATCH);
    lp_add_arg(k, "x", DT_F32, 1, &n, false, 4);
    lp_add_arg(k, "y", DT_F32, 1, &n, true, 4);
    struct lp_builder b = {.k = k, .block = k->body};
    struct lp_op *loop = lp_for_begin(&b, LP_LOOP_VECTOR, lp_index(&b, 0), lp_index(&b, BATCH), 1, 0, NULL);
    struct lp_value **i = loop->regions[0]->args;
    lp_store(&b, 1, i, lp_unary(&b, code, lp_load(&b, 0, i)));
    lp_for_end(&b, loop, NULL);
    return k;
}

/* Error in ulp of f32; the reference is rounded to f64, which is exact enough. */
static double ulps(float got, double want)
{
    if (isnan(want) || isnan(got)) return isnan(want) && isnan(got) ? 0 : (double)INFINITY;
    if (isinf(got)) return fabs(want) >= 0x1.ffffffp127 && (want > 0) == (got > 0) ? 0 : (double)INFINITY;
    int e;
    frexp(want, &e);
    e = e - 24 < -149 || want == 0 ? -149 : e - 24;
    return ldexp(fabs((double)got - want), -e);
}

/* Every 20011th f32, or every INFC_TEST_F32_STEPth; 1 takes some minutes a function and level. */
static void check_function(size_t f, const struct target *t, const struct target_level *level)
{
    static float x[BATCH], y[BATCH];
    struct dim_ctx *ctx = dim_ctx_create();
    struct lp_kernel *k = function_kernel(ctx, functions[f].code);
    struct loaded l = compile(k, t, level);
    const char *wanted = getenv("INFC_TEST_F32_STEP");
    uint64_t step = wanted && atoi(wanted) > 0 ? (uint64_t)atoi(wanted) : 20011, next = 0;
    void *bufs[] = {x, y};
    double worst = 0;
    while (next < (uint64_t)1 << 32) {
        for (int i = 0; i < BATCH; i++, next += step) {
            uint32_t bits = (uint32_t)next;
            memcpy(&x[i], &bits, 4);
        }
        l.fn(bufs, NULL, 0, 1, NULL);
        for (int i = 0; i < BATCH; i++) {
            double want = functions[f].ref((double)x[i]), e = ulps(y[i], want);
            /* Stated: exp and sigmoid flush what lies below the least normal number. */
            bool flushes = functions[f].code == LP_OP_EXP || functions[f].code == LP_OP_SIGMOID;
            if (flushes && y[i] == 0 && want < 0x1.0001p-126) continue;
            if (want == 0 && !signbit(want) != !signbit(y[i])) e = (double)INFINITY;
            if (e > worst) worst = e;
            if (e > functions[f].ulp)
                fail_msg("%s(%a) on %s is %a, %g ulp from %a", lp_op_name(functions[f].code), (double)x[i], level->name,
                         (double)y[i], e, want);
        }
    }
    print_message("    %-8s %s %.3f ulp\n", lp_op_name(functions[f].code), level->name, worst);
    munmap(l.mem, l.n_bytes + 1);
    lp_kernel_destroy(k);
    dim_ctx_destroy(ctx);
}

static void test_functions(void **state)
{
    (void)state;
    const struct target *t = target_find("x86-64");
    for (size_t f = 0; f < ARRAY_LEN(functions); f++)
        for (int l = 0; l < t->n_levels; l++)
            if (machine_has(t->levels[l].isa)) check_function(f, t, &t->levels[l]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random), cmocka_unit_test(test_functions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
