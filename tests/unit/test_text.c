// SPDX-License-Identifier: Apache-2.0
/* Text IR: parse, print is the identity on a hand-written file with every op; resources; errors at
 * their place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ir/build.h"
#include "ir/text.h"

static struct diag_sink sink;

static int setup(void **state)
{
    (void)state;
    diag_init(&sink);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    diag_deinit(&sink);
    return 0;
}

static struct ir_module *parse(const char *text)
{
    return ir_parse_module(text, strlen(text), "t.ir", NULL, 0, &sink);
}

static void read_file(const char *name, struct strbuf *out)
{
    char path[4096], part[4096];
    const char *src = getenv("INFC_SRC");
    snprintf(path, sizeof path, "%s/tests/ir/%s", src ? src : ".", name);
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    for (size_t n; (n = fread(part, 1, sizeof part, in)) > 0;) strbuf_putn(out, part, n);
    fclose(in);
}

static void mark_ops(const struct ir_block *b, bool *seen)
{
    for (const struct ir_op *op = b->first; op; op = op->next) {
        seen[op->code] = true;
        for (int i = 0; i < op->n_regions; i++) mark_ops(op->regions[i], seen);
    }
}

static void test_every_op(void **state)
{
    (void)state;
    struct strbuf text = {0}, again = {0};
    bool seen[IR_OP_COUNT] = {false};
    read_file("all_ops.ir", &text);
    struct ir_module *m = ir_parse_module(text.data, text.len, "all_ops.ir", NULL, 0, &sink);
    diag_print_text(&sink, stderr);
    assert_non_null(m);
    assert_true(ir_verify_module(m, &sink));
    ir_print_module(&again, m, NULL);
    assert_string_equal(strbuf_get(&again), strbuf_get(&text));
    for (size_t i = 0; i < m->funcs.n; i++) mark_ops(m->funcs.v[i]->body, seen);
    for (int i = 0; i < IR_OP_COUNT; i++)
        if (!seen[i]) fail_msg("%s is not in all_ops.ir", ir_op_name((enum ir_opcode)i));
    ir_module_destroy(m);
    strbuf_deinit(&text);
    strbuf_deinit(&again);
}

/* What the builder makes, with names that clash, must survive, too; big constants go through the
 * side file. */
static void test_built_module(void **state)
{
    (void)state;
    struct ir_module *m = ir_module_create("built", &sink);
    struct ir_func *f = ir_func_create(m, "main");
    struct ir_builder b = {.m = m, .block = f->body};
    const struct dim *late = dim_sym(m->dims, "late", 0, DIM_INF);
    const struct dim *bounded =
        dim_max(m->dims, late, dim_const(m->dims, 1)); /* is `late` once that is >= 1 */
    static float data[40];
    for (int i = 0; i < 40; i++) data[i] = (float)i / 3;
    struct ir_value *x = ir_func_add_input(f, "x", ir_type_make(m, DT_F32, 1, &bounded));
    struct ir_value *y = ir_func_add_input(f, "17", ir_type_make(m, DT_F32, 1, &late));
    dim_sym(m->dims, "late", 1, 9);
    struct ir_const *c1 = ir_const_make(m, "w", ir_type_static(m, DT_F32, 1, (int64_t[]){40}), data,
                                        sizeof data, false);
    struct ir_const *c2 = ir_const_make(m, "w", ir_type_static(m, DT_F32, 1, (int64_t[]){39}),
                                        data + 1, sizeof data - sizeof *data, false);
    ir_const_make(m, "unused", ir_type_static(m, DT_F32, 1, (int64_t[]){40}), data, sizeof data,
                  false);
    struct ir_value *k1 = ir_build_constant(&b, c1), *k2 = ir_build_constant(&b, c2);
    struct ir_value *sum = ir_build_binary(&b, IR_OP_ADD, x, y);
    sum->name = "x"; /* the input's name again */
    struct ir_value *all[3] = {sum, k1, k2};
    ir_func_set_outputs(f, 3, all, (const char *[]){"o", "w1", "w2"});
    assert_true(ir_verify_module(m, &sink));
    struct strbuf text = {0}, raw = {0}, again = {0}, raw_again = {0};
    ir_print_module(&text, m, &raw);
    assert_string_equal(
        strbuf_get(&text),
        "model \"built\" {\n"
        "  sym late in [1, 9]\n"
        "  const @w: f32[40] = resource(offset=0, bytes=160)\n"
        "  const @w_1: f32[39] = resource(offset=192, bytes=156)\n"
        "  func @main(%x: f32[late], %0 as \"17\": f32[late]) -> (o: f32[late], w1: f32[40], w2: f32[39]) {\n"
        "    %1 = constant value=@w : f32[40]\n"
        "    %2 = constant value=@w_1 : f32[39]\n"
        "    %3 = add %x, %0 : f32[late]\n"
        "    return %3, %1, %2\n"
        "  }\n"
        "}\n");
    struct ir_module *back = ir_parse_module(text.data, text.len, "t.ir", raw.data, raw.len, &sink);
    assert_non_null(back);
    double v;
    assert_true(ir_const_get_float(back->consts.v[1], 38, &v) && v == (double)(39.0f / 3));
    assert_string_equal(back->funcs.v[0]->input_names[1], "17");
    ir_print_module(&again, back, &raw_again);
    assert_string_equal(strbuf_get(&again), strbuf_get(&text));
    assert_int_equal(raw_again.len, raw.len);
    assert_memory_equal(raw_again.data, raw.data, raw.len);
    ir_module_destroy(back);
    assert_null(
        ir_parse_module(text.data, text.len, "t.ir", raw.data, raw.len - 1, &sink)); /* too short */
    ir_module_destroy(m);
    strbuf_deinit(&text);
    strbuf_deinit(&raw);
    strbuf_deinit(&again);
    strbuf_deinit(&raw_again);
}

static void test_errors(void **state)
{
    (void)state;
    static const struct {
        const char *text, *loc, *message;
    } cases[] = {
        {"", "t.ir:1:1", "expected `model`"},
        {"model \"a\" {\n  func", "t.ir:2:7", "expected `@`"},
        {"model \"a\" { } x", "t.ir:1:15", "text behind the end of the model"},
        {"model \"a\" {\n func @f() -> () {\n  %a = nonsense\n }}", "t.ir:3:16",
         "unknown op `nonsense`"},
        {"model \"a\" {\n func @f() -> () {\n  %a = neg %b\n }}", "t.ir:3:14",
         "%b is not defined here"},
        {"model \"a\" { func @f(%x: f32[2]) -> () { %x = neg %x return } }", "t.ir:1:53",
         "%x is defined twice"},
        {"model \"a\" { func @f(%x: f32[2]) -> () {\n %y = neg %x : f32[3] return } }", "t.ir:2:23",
         "result 0 is f32[2]"},
        {"model \"a\" { func @f(%x: f32[2]) -> () {\n %y = concat %x return } }", "t.ir:2:2",
         "concat(f32[2]): attribute `axis` is missing"},
        {"model \"a\" { func @f(%x: f32[2]) -> (o: f32[3]) { return %x } }", "t.ir:1:61",
         "output 0 is returned with another type"},
        {"model \"a\" { func @f(%x: f32[2]) -> (o: f32[2]) { %y = neg %x } }", "t.ir:1:63",
         "the function does not end in return"},
        {"model \"a\" { const @c: f32[2] = [1.0] }", "t.ir:1:37", "1 elements for a type of 2"},
        {"model \"a\" { const @c: u8[1] = [256] }", "t.ir:1:35", "`256` is not a u8"},
        {"model \"a\" { const @c: f32[9999999999, 9999999999] = splat(1.0) }", "t.ir:1:50",
         "a constant needs constant dims"},
        {"model \"a\" { const @c: f32[4] = resource(offset=0, bytes=16) }", "t.ir:1:60",
         "the resource lies outside of the 0 bytes that were given"},
        {"model \"a\" { const @c: f32[4] = resource(offset=3, bytes=16) }", "t.ir:1:60",
         "offset must be a multiple of 16"},
        {"model \"a\" { sym n in [3, 2] }", "t.ir:1:28", "the range of `n` is empty"},
        {"model \"a\" { func @f(%x: f32[1,1,1,1,1,1,1,1,1,1,1,1,1]) -> () { return } }",
         "t.ir:1:53", "more than 12 dims"},
        {"model \"a\" { func @f(%x: f32[2]) -> () { %y = neg %x a=1 a=2 return } }", "t.ir:1:59",
         "attribute `a` is given twice"},
        {"model \"a\" { func @f(%x: f32[2]) -> () { %y = group %x { (%a: f32[2]) %z = neg %x yield %z } return } }",
         "t.ir:1:81", "%x is not defined here"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_null(parse(cases[i].text));
        assert_int_equal(sink.items.n, 1);
        assert_string_equal(sink.items.v[0].message, cases[i].message);
        assert_string_equal(sink.items.v[0].loc, cases[i].loc);
        diag_deinit(&sink);
        diag_init(&sink);
    }
}

static void test_deep_regions(void **state)
{
    (void)state;
    struct strbuf s = {0};
    strbuf_puts(&s, "model \"a\" { func @f(%c: bool[]) -> () {");
    for (int i = 0; i < 1000; i++) strbuf_puts(&s, "if %c {");
    assert_null(parse(s.data));
    assert_string_equal(sink.items.v[0].message, "regions are nested too deeply");
    strbuf_deinit(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_op, setup, teardown),
        cmocka_unit_test_setup_teardown(test_built_module, setup, teardown),
        cmocka_unit_test_setup_teardown(test_errors, setup, teardown),
        cmocka_unit_test_setup_teardown(test_deep_regions, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
