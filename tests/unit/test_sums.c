// SPDX-License-Identifier: Apache-2.0
/*
 * Sums in front of a logarithm: whole pipelines on inputs whose terms cancel, against values worked out by hand or by plain loops
 * over doubles. Sums in f32 lose all digits here.
 */
#include "test_equiv.h"

/* Runs all passes and the plan of every level on x; y must be `want` to a relative 1e-6. */
static void check(const char *text, const float *x, size_t n_x, const double *want, size_t n_want)
{
    struct equiv e;
    equiv_init(&e);
    equiv_start_text(&e, text, 0, NULL);
    assert_int_equal(e.in[0].n_bytes, n_x * sizeof *x);
    memcpy(e.in[0].data, x, e.in[0].n_bytes);
    assert_int_equal(e.want[0].n_bytes, n_want * sizeof(float));
    for (size_t i = 0; i < n_want; i++) ((float *)e.want[0].data)[i] = (float)want[i];
    e.tolerance = 1e-6;
    assert_true(pass_run_all(e.m, &(struct pass_options){0}, &e.diag));
    equiv_check_plan(&e, NULL);
    equiv_end(&e);
}

#define FOUR "const @w: f32[2, 1, 4] = [1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 2.0]\n"
static const float four[] = {3e7f, 0.25f, -3e7f, 0.5f, 3e7f, 0.25f, -3e7f, 0.5f};

static void test_conv(void **state)
{
    (void)state;
    static const double want[] = {0.5625, 0.5625, 1, 1}; /* (1/4 + 1/2)^2, (2 * 1/2)^2 */
    double logs[4];
    for (int i = 0; i < 4; i++) logs[i] = log(want[i]);
    check("model \"t\" { " FOUR "func @main(%x: f32[1, 1, 8]) -> (y: f32[1, 2, 2]) {\n"
          " %w = constant value=@w\n %c = conv %x, %w strides=[4]\n %p = mul %c, %c\n %y = log %p\n return %y\n} }\n",
          four, 8, logs, 4);
}

static void test_matmul(void **state)
{
    (void)state;
    const double want[] = {log(0.75), log(1), log(0.75), log(1)};
    check("model \"t\" { const @w: f32[4, 2] = [1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 2.0]\n"
          "func @main(%x: f32[2, 4]) -> (y: f32[2, 2]) {\n"
          " %w = constant value=@w\n %c = matmul %x, %w\n %p = abs %c\n %y = log %p\n return %y\n} }\n",
          four, 8, want, 4);
}

static void test_reduce(void **state)
{
    (void)state;
    const double want[] = {log(0.75), log(0.75)};
    check("model \"t\" { func @main(%x: f32[2, 4]) -> (y: f32[2]) {\n"
          " %s = reduce_sum %x axes=[1]\n %p = mul %s, %s\n %q = sqrt %p\n %y = log %q\n return %y\n} }\n",
          four, 8, want, 2);
}

/* A level of 1e7 that the second filter takes away again: between the filters, f32 would round to whole numbers. */
static void test_chain(void **state)
{
    (void)state;
    float x[20];
    double d[19], want[18];
    const float a = 0.3f, b = 0.7f;
    for (int i = 0; i < 20; i++) x[i] = 1e7f + (float)(i * i % 7);
    for (int i = 0; i < 19; i++) d[i] = (double)a * (double)x[i] + (double)b * (double)x[i + 1];
    for (int i = 0; i < 18; i++) want[i] = log((d[i] - d[i + 1]) * (d[i] - d[i + 1]));
    check("model \"t\" { const @a: f32[1, 1, 2] = [0.3, 0.7]\nconst @b: f32[1, 1, 2] = [1.0, -1.0]\n"
          "func @main(%x: f32[1, 1, 20]) -> (y: f32[1, 1, 18]) {\n %a = constant value=@a\n %b = constant value=@b\n"
          " %d = conv %x, %a\n %e = conv %d, %b\n %p = mul %e, %e\n %y = log %p\n return %y\n} }\n",
          x, 20, want, 18);
}

/* --acc=f32 leaves them alone; otherwise the module says which they are, for the report. */
static void test_plain_sums(void **state)
{
    (void)state;
    struct diag_sink diag;
    diag_init(&diag);
    static const char text[] = "model \"t\" { func @main(%x: f32[2, 4]) -> (y: f32[2]) {\n"
                               " %s = reduce_sum %x axes=[1]\n %p = mul %s, %s\n %y = log %p\n return %y\n} }\n";
    for (int plain = 0; plain < 2; plain++) {
        struct ir_module *m = ir_parse_module(text, sizeof text - 1, "t.ir", NULL, 0, &diag);
        assert_non_null(m);
        m->plain_sums = plain;
        assert_true(pass_sums(m, &diag));
        assert_int_equal(m->wide_sums.n, plain ? 0 : 1);
        ir_module_destroy(m);
    }
    diag_deinit(&diag);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_conv), cmocka_unit_test(test_matmul), cmocka_unit_test(test_reduce),
                                       cmocka_unit_test(test_chain), cmocka_unit_test(test_plain_sums)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
