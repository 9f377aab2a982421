// SPDX-License-Identifier: Apache-2.0
/* A sound module verifies; each invariant, broken by hand, is reported. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ir/build.h"
#include "ir/text.h"

static const char text[] =
    "model \"t\" { sym n in [1, 9] const @k: f32[4] = [1.0, 2.0, 3.0, 4.0]\n"
    "func @main(%x: f32[n, 4], %c: bool[], %d: f32[4] optional = @k) -> (a: f32[n, 4], b: f32[n, 4]) {\n"
    "  %k = constant value=@k\n"
    "  %s = add %x, %k\n"
    "  %r = if %c { %t = neg %s yield %t } { yield %s }\n"
    "  %g = group %r { (%p: f32[n, 4]) %e = exp %p yield %e }\n"
    "  return %g, %s\n"
    "} }";

static struct diag_sink sink;
static struct ir_module *m;
static struct ir_func *f;

static int setup(void **state)
{
    (void)state;
    diag_init(&sink);
    m = ir_parse_module(text, sizeof text - 1, "t", NULL, 0, &sink);
    assert_non_null(m);
    f = m->funcs.v[0];
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ir_module_destroy(m);
    diag_deinit(&sink);
    return 0;
}

static struct ir_op *op_at(struct ir_block *b, int i)
{
    struct ir_op *op = b->first;
    while (i-- > 0) op = op->next;
    return op;
}

static void expect(const char *message)
{
    assert_false(ir_verify_module(m, &sink));
    for (size_t i = 0; i < sink.items.n; i++)
        if (strstr(sink.items.v[i].message, message)) return;
    fail_msg("no \"%s\"; first is \"%s\"", message, sink.items.v[0].message);
}

static void test_sound(void **state)
{
    (void)state;
    assert_true(ir_verify_module(m, &sink));
    assert_true(ir_verify_module(m, &sink)); /* and changes nothing */
    assert_int_equal(sink.items.n, 0);
}

static void test_order(void **state)
{
    (void)state;
    struct ir_op *add = op_at(f->body, 1);
    ir_op_unlink(add);
    ir_block_insert_after(op_at(f->body, 1), add); /* behind its user */
    expect("an operand is not defined before its use");
}

static void test_escape_from_region(void **state)
{
    (void)state;
    struct ir_value *inner = ir_result(op_at(f->body, 2)->regions[0]->first, 0);
    ir_op_set_operand(f->body->last, 0, inner);
    expect("an operand is not defined before its use");
}

static void test_group_isolation(void **state)
{
    (void)state;
    struct ir_op *exp = op_at(f->body, 3)->regions[0]->first;
    ir_op_set_operand(exp, 0, f->body->args[0]);
    expect("a group uses a value from outside of its block");
}

static void test_types(void **state)
{
    (void)state;
    op_at(f->body, 1)->results[0].type.dtype = DT_F16;
    expect("result 0 should be f32[n, 4]");
}

static void test_terminators(void **state)
{
    (void)state;
    struct ir_op *yield = ir_op_create(m, IR_OP_YIELD, 0, NULL, 0, NULL);
    ir_block_insert_before(f->body->last, yield);
    expect("a terminator is not at the end");
    ir_op_unlink(f->body->last);
    expect("a block does not end in its terminator");
}

static void test_uses(void **state)
{
    (void)state;
    op_at(f->body, 1)->operands[0].value = f->body->args[2]; /* behind the API's back */
    expect("an operand is not on its value's list of uses");
}

static void test_outputs_and_names(void **state)
{
    (void)state;
    f->input_names[0] = "c";
    expect("two inputs have one name");
    f->input_names[0] = "x";
    f->output_names[0] = "b";
    expect("two outputs have one name");
    f->output_names[0] = "a";
    f->n_outputs = 1;
    expect("does not return as many values as it has outputs");
}

static void test_input_default(void **state)
{
    (void)state;
    f->input_default[2] = NULL;
    expect("an optional input has no default");
}

static void test_ids_and_owners(void **state)
{
    (void)state;
    op_at(f->body, 1)->results[0].id = f->body->args[0]->id;
    expect("two values have one id");
    op_at(f->body, 1)->results[0].id = m->next_id;
    expect("beyond the module's next_id");
}

static void test_header(void **state)
{
    (void)state;
    dim_sym(m->dims, "n", 20, 30);
    expect("the range of symbol `n` is empty");
    struct ir_check c = {dim_overflow(m->dims), dim_const(m->dims, 1), false, "why"};
    vec_push(&m->arena, &m->checks, c);
    expect("a check overflows: why");
}

static void test_attribute(void **state)
{
    (void)state;
    ir_op_set_attr(m, op_at(f->body, 1), ir_a_int("axis", 1));
    expect("has no attribute `axis`");
}

static void test_foreign_constant(void **state)
{
    (void)state;
    static const float data[4];
    struct ir_module *other = ir_module_create("other", &sink);
    struct ir_const *c = ir_const_make(other, "k", ir_type_static(other, DT_F32, 1, (int64_t[]){4}),
                                       data, 16, false);
    ir_op_set_attr(m, op_at(f->body, 0), ir_a_const("value", c));
    expect("a constant does not belong to the module");
    ir_module_destroy(other);
}

static void test_constant_size(void **state)
{
    (void)state;
    m->consts.v[0]->n_bytes = 12;
    expect("holds 12 bytes, which does not fit its type");
}

/* A range that narrows after ops were built does not invalidate them. */
static void test_narrowing(void **state)
{
    (void)state;
    const struct dim *h = dim_sym(m->dims, "h", 0, 99), *one = dim_const(m->dims, 1);
    const struct dim *at_least_1 = dim_max(m->dims, h, one);
    struct ir_builder b = {.m = m, .before = f->body->last};
    assert_non_null(ir_build_unary(&b, IR_OP_NEG, ir_build_iota(&b, DT_F32, 1, &at_least_1, 0)));
    dim_sym(m->dims, "h", 1, 99);
    assert_true(ir_verify_module(m, &sink));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_sound, setup, teardown),
        cmocka_unit_test_setup_teardown(test_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_escape_from_region, setup, teardown),
        cmocka_unit_test_setup_teardown(test_group_isolation, setup, teardown),
        cmocka_unit_test_setup_teardown(test_types, setup, teardown),
        cmocka_unit_test_setup_teardown(test_terminators, setup, teardown),
        cmocka_unit_test_setup_teardown(test_uses, setup, teardown),
        cmocka_unit_test_setup_teardown(test_outputs_and_names, setup, teardown),
        cmocka_unit_test_setup_teardown(test_input_default, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ids_and_owners, setup, teardown),
        cmocka_unit_test_setup_teardown(test_header, setup, teardown),
        cmocka_unit_test_setup_teardown(test_attribute, setup, teardown),
        cmocka_unit_test_setup_teardown(test_foreign_constant, setup, teardown),
        cmocka_unit_test_setup_teardown(test_constant_size, setup, teardown),
        cmocka_unit_test_setup_teardown(test_narrowing, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
