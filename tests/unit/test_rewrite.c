// SPDX-License-Identifier: Apache-2.0
/* The pattern driver: fixpoint, dead ops, bisection, the bound. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ir/rewrite.h"
#include "ir/text.h"

static struct diag_sink sink;
static struct ir_module *m;

static void load(const char *body)
{
    struct strbuf s = {0};
    diag_init(&sink);
    strbuf_printf(
        &s, "model \"t\" { func @main(%%x: f32[4], %%c: bool[]) -> (o: f32[4]) {\n%s\n} }", body);
    m = ir_parse_module(s.data, s.len, "t", NULL, 0, &sink);
    strbuf_deinit(&s);
    assert_non_null(m);
}

static void expect_body(const char *body)
{
    struct strbuf s = {0}, want = {0};
    assert_true(ir_verify_module(m, &sink));
    ir_print_module(&s, m, NULL);
    strbuf_printf(
        &want, "model \"t\" {\n  func @main(%%x: f32[4], %%c: bool[]) -> (o: f32[4]) {\n%s  }\n}\n",
        body);
    assert_string_equal(strbuf_get(&s), strbuf_get(&want));
    strbuf_deinit(&s);
    strbuf_deinit(&want);
    ir_module_destroy(m);
    diag_deinit(&sink);
}

/* neg(neg(x)) -> x */
static bool double_neg(struct rewriter *r, struct ir_op *op)
{
    struct ir_op *inner = ir_operand(op, 0)->def;
    if (!inner || inner->code != IR_OP_NEG) return false;
    rewrite_replace1(r, op, ir_operand(inner, 0));
    return true;
}

/* add(x, x) -> neg(neg(x)): makes work for double_neg. */
static bool add_self(struct rewriter *r, struct ir_op *op)
{
    if (ir_operand(op, 0) != ir_operand(op, 1)) return false;
    struct ir_value *v = ir_build_unary(&r->b, IR_OP_NEG, ir_operand(op, 0));
    rewrite_replace1(r, op, ir_build_unary(&r->b, IR_OP_NEG, v));
    return true;
}

static const struct rewrite_pattern rules[] = {
    {"double-neg", IR_OP_NEG, double_neg},
    {"add-self", IR_OP_ADD, add_self},
};

static void test_fixpoint(void **state)
{
    (void)state;
    load("%a = neg %x %b = neg %a %s = add %b, %b loc(\"here\") %d = exp %s %e = neg %s\n"
         "%r = if %c { %t = neg %e yield %t } { yield %s } return %r");
    assert_int_equal(rewrite_func(m->funcs.v[0], rules, ARRAY_LEN(rules), NULL, NULL),
                     REWRITE_CHANGED);
    assert_int_equal(rewrite_func(m->funcs.v[0], rules, ARRAY_LEN(rules), NULL, NULL),
                     REWRITE_SAME);
    expect_body(
        "    %r = if %c : f32[4] {\n      yield %x\n    } {\n      yield %x\n    }\n    return %r\n");
}

static void test_bisect(void **state)
{
    (void)state;
    static const char body[] =
        "%a = neg %x %b = neg %a loc(\"first\") %s = add %b, %b loc(\"second\") return %s";
    struct rewrite_bisect bisect = {.limit = 1};
    load(body);
    rewrite_func(m->funcs.v[0], rules, ARRAY_LEN(rules), &bisect, NULL);
    assert_int_equal(bisect.count, 1);
    assert_string_equal(bisect.last_pattern, "double-neg");
    assert_string_equal(bisect.last_loc->text, "first");
    expect_body("    %s = add %x, %x : f32[4] loc(\"second\")\n    return %s\n");
    bisect = (struct rewrite_bisect){.limit = 2};
    load(body);
    rewrite_func(m->funcs.v[0], rules, ARRAY_LEN(rules), &bisect, NULL);
    assert_string_equal(bisect.last_pattern, "add-self");
    expect_body(
        "    %0 = neg %x : f32[4] loc(\"second\")\n    %1 = neg %0 : f32[4] loc(\"second\")\n    return %1\n");
    bisect = (struct rewrite_bisect){.limit = -1};
    load(body);
    rewrite_func(m->funcs.v[0], rules, ARRAY_LEN(rules), &bisect, NULL);
    assert_int_equal(bisect.count, 3);
    expect_body("    return %x\n");
}

/* Swaps operands for ever. */
static bool ping_pong(struct rewriter *r, struct ir_op *op)
{
    struct ir_value *a = ir_operand(op, 0);
    rewrite_set_operand(r, op, 0, ir_operand(op, 1));
    rewrite_set_operand(r, op, 1, a);
    return true;
}

static void test_bound(void **state)
{
    (void)state;
    static const struct rewrite_pattern bad[] = {{"ping-pong", IR_OP_ADD, ping_pong}};
    struct rewrite_bisect bisect = {.limit = -1};
    load("%n = neg %x %s = add %x, %n return %s");
    assert_int_equal(rewrite_func(m->funcs.v[0], bad, 1, &bisect, NULL), REWRITE_BOUND);
    assert_int_equal(bisect.count, 1000 + 32 * 3); /* three ops */
    for (struct ir_op *op = m->funcs.v[0]->body->first; op; op = op->next) assert_null(op->aux);
    expect_body(
        "    %n = neg %x : f32[4]\n    %s = add %x, %n : f32[4]\n    return %s\n"); /* an even
                                                                                       number of
                                                                                       swaps */
}

static void test_dead_regions(void **state)
{
    (void)state;
    load("%a = neg %x %r = if %c { %t = exp %a yield %t } { yield %a } return %x");
    assert_int_equal(rewrite_func(m->funcs.v[0], NULL, 0, NULL, NULL), REWRITE_CHANGED);
    expect_body("    return %x\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fixpoint),
        cmocka_unit_test(test_bisect),
        cmocka_unit_test(test_bound),
        cmocka_unit_test(test_dead_regions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
