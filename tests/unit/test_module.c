// SPDX-License-Identifier: Apache-2.0
/* The graph: building, uses, insertion, erasure, attributes, locations, constants and their
 * elements. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <string.h>

#include <cmocka.h>

#include "ir/build.h"
#include "ir/smallfloat.h"

static struct diag_sink sink;
static struct ir_module *m;
static struct ir_builder b;
static struct ir_func *f;

static int setup(void **state)
{
    (void)state;
    diag_init(&sink);
    m = ir_module_create("t", &sink);
    f = ir_func_create(m, "main");
    b = (struct ir_builder){.m = m, .block = f->body, .loc = ir_loc_make(m, "here")};
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ir_module_destroy(m);
    diag_deinit(&sink);
    return 0;
}

static struct ir_value *input(enum dtype dtype, int rank, const int64_t *dims)
{
    return ir_func_add_input(f, "in", ir_type_static(m, dtype, rank, dims));
}

static void test_uses_and_order(void **state)
{
    (void)state;
    struct ir_value *x = input(DT_F32, 2, (int64_t[]){2, 3}), *y = input(DT_F32, 1, (int64_t[]){3});
    struct ir_value *s = ir_build_binary(&b, IR_OP_ADD, x, y),
                    *t = ir_build_binary(&b, IR_OP_MUL, s, s);
    assert_non_null(t);
    assert_ptr_equal(f->body->first, s->def);
    assert_ptr_equal(f->body->last, t->def);
    assert_false(ir_value_has_one_use(s)); /* used twice */
    assert_true(ir_value_has_one_use(x));
    b.before = t->def;
    struct ir_value *n = ir_build_unary(&b, IR_OP_NEG, s);
    assert_ptr_equal(s->def->next, n->def);
    ir_op_set_operand(t->def, 1, n);
    assert_ptr_equal(ir_operand(t->def, 1), n);
    ir_value_replace_uses(s, x); /* n and t operand 0 */
    assert_null(s->uses);
    ir_op_erase(s->def);
    assert_ptr_equal(f->body->first, n->def);
    assert_null(y->uses);
    assert_ptr_equal(ir_operand(t->def, 0), x);
    ir_op_unlink(n->def);
    ir_block_insert_after(t->def, n->def);
    assert_ptr_equal(f->body->last, n->def);
    assert_null(ir_operand(t->def, 2));
}

static void test_null_propagates(void **state)
{
    (void)state;
    struct ir_value *x = input(DT_F32, 2, (int64_t[]){2, 3}), *i = input(DT_I32, 1, (int64_t[]){3});
    struct ir_value *bad = ir_build_binary(&b, IR_OP_ADD, x, i);
    assert_null(bad);
    assert_int_equal(sink.error_count, 1);
    assert_string_equal(sink.items.v[0].loc, "here");
    assert_string_equal(sink.items.v[0].message,
                        "add(f32[2, 3], i32[3]): operands 0 and 1 must have one element type");
    assert_null(ir_build_unary(&b, IR_OP_EXP, bad));
    assert_null(ir_build_cast(&b, bad, DT_F16));
    assert_null(ir_build_transpose(&b, bad, NULL));
    assert_int_equal(sink.error_count, 1); /* reported once */
    assert_null(x->uses);                  /* what failed leaves no use behind */
    assert_ptr_equal(ir_build_cast(&b, x, DT_F32), x);
    struct ir_value *missing[2] = {x, NULL};
    struct ir_attr a[2] = {
        ir_a_dims("lo", 2, (const struct dim *[]){dim_const(m->dims, 1), dim_const(m->dims, 0)}),
        ir_a_dims("hi", 2, (const struct dim *[]){dim_const(m->dims, 1), dim_const(m->dims, 0)})};
    assert_non_null(ir_build(&b, IR_OP_PAD, 2, missing, 2, a, -1)); /* optional operand left out */
}

static void test_attributes(void **state)
{
    (void)state;
    struct ir_value *x = input(DT_F32, 2, (int64_t[]){2, 3});
    struct ir_op *op = ir_build_unary(&b, IR_OP_NEG, x)->def;
    int64_t ints[3] = {4, 5, 6};
    int n;
    ir_op_set_attr(m, op, ir_a_ints("x_list", 3, ints));
    ints[0] = 99; /* it was copied */
    assert_int_equal(ir_attr_ints(op, "x_list", &n)[0], 4);
    assert_int_equal(n, 3);
    ir_op_set_attr(m, op, ir_a_int("x_list", 7)); /* replaced, with another kind */
    assert_int_equal(op->n_attrs, 1);
    assert_null(ir_attr_ints(op, "x_list", &n));
    assert_int_equal(n, 0);
    assert_int_equal(ir_attr_int(op, "x_list", 1), 7);
    assert_int_equal(ir_attr_int(op, "absent", 5), 5);
    assert_true(ir_attr_float(op, "absent", 0.5) == 0.5);
    ir_op_set_attr(m, op, ir_a_string("x_s", "text"));
    assert_string_equal(ir_attr_string(op, "x_s", "d"), "text");
    assert_string_equal(ir_attr_string(op, "x_t", "d"), "d");
    ir_op_set_attr(m, op, ir_a_dtype("x_d", DT_F16));
    assert_int_equal(ir_attr_int(op, "x_d", 0), DT_F16);
}

static void test_locations(void **state)
{
    (void)state;
    const struct ir_loc *a = ir_loc_make(m, "a"), *ab = ir_loc_join(m, a, ir_loc_make(m, "b"));
    assert_string_equal(ab->text, "a + b");
    assert_ptr_equal(ir_loc_join(m, ab, a), ab);
    assert_string_equal(ir_loc_join(m, ab, ir_loc_make(m, "b + c"))->text, "a + b + c");
    assert_ptr_equal(ir_loc_join(m, NULL, a), a);
    assert_ptr_equal(ir_loc_join(m, a, NULL), a);
}

static void test_constants(void **state)
{
    (void)state;
    static const int8_t bytes[4] = {-1, 2, -128, 127};
    struct ir_const *c =
        ir_const_make(m, "k", ir_type_static(m, DT_I8, 2, (int64_t[]){2, 2}), bytes, 4, false);
    int64_t i;
    double v;
    assert_true(ir_const_get_int(c, 2, &i) && i == -128);
    assert_true(ir_const_get_float(c, 3, &v) && v == 127.0);
    assert_false(ir_const_get_int(c, 4, &i));
    assert_false(ir_const_get_int(c, -1, &i));
    struct ir_value *s = ir_build_scalar_f(&b, DT_F16, 0.1), *u = ir_build_scalar_i(&b, DT_U64, -1);
    assert_true(ir_const_get_float(ir_value_const(s), 0, &v) &&
                v == 0.0999755859375); /* f16 0x2E66 */
    assert_true(ir_const_get_float(ir_value_const(u), 0, &v) && v == 18446744073709551615.0);
    assert_null(ir_build_scalar_i(&b, DT_STRING, 1));
    struct ir_value *ints = ir_build_ints(&b, 3, (int64_t[]){7, -8, 9});
    assert_int_equal(ints->type.dtype, DT_I64);
    assert_true(dim_is(ints->type.dims[0], 3));
    assert_true(ir_const_get_int(ir_value_const(ints), 1, &i) && i == -8);
    float one = 1.5f;
    struct ir_const *splat =
        ir_const_make(m, NULL, ir_type_static(m, DT_F32, 1, (int64_t[]){1000}), &one, 4, true);
    assert_true(ir_const_get_float(splat, 999, &v) && v == 1.5);
    assert_true(ir_const_get_int(splat, 0, &i) && i == 1);
    assert_false(ir_const_get_float(splat, 1000, &v));
    assert_null(ir_value_const(input(DT_F32, 0, NULL)));
}

static void check_bits(enum dtype d, double v, bool saturate, unsigned want)
{
    unsigned char p[8] = {0};
    float_encode(d, v, saturate, p);
    assert_int_equal(p[0] | (unsigned)p[1] << 8, want);
}

/* Bit patterns from the formats' published tables. */
static void test_small_floats(void **state)
{
    (void)state;
    check_bits(DT_F16, 1.0, false, 0x3C00);
    check_bits(DT_F16, 65504.0, false, 0x7BFF);
    check_bits(DT_F16, 65519.99, false, 0x7BFF);
    check_bits(DT_F16, 65520.0, false, 0x7C00); /* a tie goes to even: infinity */
    check_bits(DT_F16, 65520.0, true, 0x7BFF);
    check_bits(DT_F16, -5.9604644775390625e-8, false, 0x8001);
    check_bits(DT_F16, 2.98e-8, false, 0x0000);
    check_bits(DT_F16, 6.103515625e-05, false, 0x0400);
    check_bits(DT_F16, 6.1e-05, false, 0x03FF); /* 1023.4 steps of 2^-24 */
    check_bits(DT_BF16, 3.0, false, 0x4040);
    check_bits(DT_BF16, 1.00390625, false, 0x3F80); /* 1 + 2^-8: tie to even */
    check_bits(DT_F8E4M3FN, 448.0, false, 0x7E);
    check_bits(DT_F8E4M3FN, 500.0, true, 0x7E);
    check_bits(DT_F8E4M3FN, -500.0, false, 0xFF);
    check_bits(DT_F8E4M3FNUZ, 240.0, false, 0x7F);
    check_bits(DT_F8E4M3FNUZ, -0.0, false, 0x00);
    check_bits(DT_F8E4M3FNUZ, (double)NAN, true, 0x80);
    check_bits(DT_F8E5M2, 57344.0, false, 0x7B);
    check_bits(DT_F8E5M2, 1e6, false, 0x7C);
    check_bits(DT_F4E2M1, 6.0, false, 0x7);
    check_bits(DT_F4E2M1, -100.0, false, 0xF);
    check_bits(DT_F4E2M1, 0.25, false, 0x0); /* tie between 0 and 0.5 */
    check_bits(DT_F8E8M0, 1.0, false, 127);
    check_bits(DT_F8E8M0, 0.5, false, 126);
    static const enum dtype narrow[] = {DT_F8E4M3FN, DT_F8E4M3FNUZ, DT_F8E5M2, DT_F8E5M2FNUZ,
                                        DT_F8E8M0,   DT_F16,        DT_BF16};
    for (size_t k = 0; k < ARRAY_LEN(narrow); k++) {
        unsigned n = 1u << dtype_bits(narrow[k]);
        for (unsigned bits = 0; bits < n;
             bits++) { /* decode, encode is the identity except for NaN payloads */
            unsigned char p[2] = {(unsigned char)bits, (unsigned char)(bits >> 8)};
            double v = float_decode(narrow[k], p);
            if (!isnan(v)) check_bits(narrow[k], v, false, bits);
        }
    }
    assert_true(float_decode(DT_F8E4M3FN, "\x7e") == 448.0);
    assert_true(float_decode(DT_F8E5M2FNUZ, "\x01") == ldexp(1.0, -17));
    assert_true(isinf(float_decode(DT_F8E5M2, "\x7c")));
    assert_true(isnan(float_decode(DT_F8E4M3FN, "\xff")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_uses_and_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_null_propagates, setup, teardown),
        cmocka_unit_test_setup_teardown(test_attributes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_locations, setup, teardown),
        cmocka_unit_test_setup_teardown(test_constants, setup, teardown),
        cmocka_unit_test_setup_teardown(test_small_floats, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
