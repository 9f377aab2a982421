// SPDX-License-Identifier: Apache-2.0
/* Scales of errors, and example shapes. Expected values are by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "compiler/error_scale.h"
#include "compiler/shapes.h"
#include "ir/text.h"

static double scale_of(const float *v, int64_t n)
{
    struct ir_tensor t = {.dtype = DT_F32, .rank = 1, .dims = {n}, .data = (void *)(uintptr_t)v, .n_bytes = (size_t)n * 4};
    return error_scale(&t);
}

static void test_scales(void **state)
{
    (void)state;
    float v[32];
    const float one = -0.25f, two[] = {1e-3f, 1.0001e-3f}, special[] = {INFINITY, 2, NAN};
    assert_true(scale_of(&one, 1) == 0.25);
    assert_true(scale_of(two, 2) == (double)two[1]); /* a few: their greatest, however close they are */
    assert_true(scale_of(special, 3) == 2);
    assert_true(scale_of(v, 0) == 0);
    for (int i = 0; i < 32; i++) v[i] = 3;
    assert_true(scale_of(v, 32) == 3); /* all equal */
    for (int i = 0; i < 32; i++) v[i] = i % 2 ? 1 : -3;
    assert_true(fabs(scale_of(v, 32) - 2) < 1e-12); /* the deviation */
    for (int i = 0; i < 32; i++) v[i] = i % 2 ? 1000 : 1000.5f;
    assert_true(fabs(scale_of(v, 32) - 1.0005) < 1e-9); /* nearly equal: a thousandth of the greatest */
}

static const char branches[] =
    "model \"m\" {\n"
    "  sym a in [1, 4096]\n  sym b in [1, 4096]\n  sym n in [1, 4096]\n"
    "  check a == b \"equal\"\n"
    "  func @main(%x: f32[a, n], %y: f32[b, 3], %c: bool[]) -> (z: f32[a, n]) {\n"
    "    %r = if %c {\n"
    "      check a=(floordiv(n + 64, 128)) b=(2) is_le=0 message=\"first\"\n"
    "      %t = sqrt %x\n      yield %t\n"
    "    } {\n"
    "      check a=(200) b=(n) is_le=1 message=\"second\"\n"
    "      %u = neg %x\n      yield %u\n"
    "    }\n    return %r\n  }\n}\n";

/* The least sizes that every branch takes: (n + 64) / 128 == 2 holds from 192 to 319, and n is at least 200. */
static void test_shapes(void **state)
{
    (void)state;
    struct diag_sink diag;
    int64_t syms[3];
    diag_init(&diag);
    struct ir_module *m = ir_parse_module(branches, sizeof branches - 1, "m", NULL, 0, &diag);
    if (!m) diag_print_text(&diag, stderr);
    assert_non_null(m);
    assert_int_equal(dim_sym_count(m->dims), 3);
    assert_true(shapes_smallest(m, 0, syms));
    assert_int_equal(syms[0], 1);
    assert_int_equal(syms[1], 1);
    assert_int_equal(syms[2], 200);
    assert_true(shapes_smallest(m, 1, syms)); /* the module's checks alone */
    assert_int_equal(syms[2], 1);
    ir_module_destroy(m);
    diag_deinit(&diag);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_scales), cmocka_unit_test(test_shapes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
