// SPDX-License-Identifier: Apache-2.0
/* The ONNX importer on models written here byte by byte: what becomes of names, dims, faults and
 * hostile files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "compiler/import/import.h"
#include "compiler/import/wire.h"
#include "ir/text.h"

/* ---- a writer of protobuf messages ---- */

static void put_varint(struct strbuf *s, uint64_t v)
{
    for (; v >= 0x80; v >>= 7) strbuf_putc(s, (char)(v | 0x80));
    strbuf_putc(s, (char)v);
}

static void put_int(struct strbuf *s, int field, int64_t v)
{
    put_varint(s, (uint64_t)field << 3);
    put_varint(s, (uint64_t)v);
}

static void put_bytes(struct strbuf *s, int field, const void *data, size_t n)
{
    put_varint(s, (uint64_t)field << 3 | 2);
    put_varint(s, n);
    strbuf_putn(s, data, n);
}

static void put_text(struct strbuf *s, int field, const char *text)
{
    put_bytes(s, field, text, strlen(text));
}

/* Appends the message and empties it. */
static void put_message(struct strbuf *s, int field, struct strbuf *m)
{
    put_bytes(s, field, strbuf_get(m), m->len);
    strbuf_deinit(m);
    *m = (struct strbuf){0};
}

/* A value of f32 whose dims are words: numbers, symbols or "-" for an unnamed dim. */
static void put_value(struct strbuf *graph, int field, const char *name, int elem_type,
                      const char *dims)
{
    struct strbuf shape = {0}, dim = {0}, tensor = {0}, type = {0}, info = {0};
    for (const char *p = dims; *p;) {
        size_t n = strcspn(p, " ");
        char word[32] = {0};
        memcpy(word, p, n);
        int number = 0;
        if (sscanf(word, "%d", &number) == 1 && strcmp(word, "-")) put_int(&dim, 1, number);
        else if (strcmp(word, "-")) put_text(&dim, 2, word);
        put_message(&shape, 1, &dim);
        p += n + (p[n] == ' ');
    }
    put_int(&tensor, 1, elem_type);
    put_message(&tensor, 2, &shape);
    put_message(&type, 1, &tensor);
    put_text(&info, 1, name);
    put_message(&info, 2, &type);
    put_message(graph, field, &info);
}

/* A node: operands and results are lists of words. attr: NULL, or the name of an INT attribute. */
static void put_node(struct strbuf *graph, const char *op, const char *in, const char *out,
                     const char *attr, int64_t value)
{
    struct strbuf node = {0}, a = {0};
    for (int side = 0; side < 2; side++)
        for (const char *p = side ? out : in; *p;) {
            size_t n = strcspn(p, " ");
            put_bytes(&node, 1 + side, p, n);
            p += n + (p[n] == ' ');
        }
    put_text(&node, 4, op);
    if (attr) {
        put_text(&a, 1, attr);
        put_int(&a, 3, value);
        put_int(&a, 20, 2);
        put_message(&node, 5, &a);
    }
    put_message(graph, 1, &node);
}

static void put_floats(struct strbuf *graph, const char *name, int count, const float *v)
{
    struct strbuf t = {0};
    put_int(&t, 1, count);
    put_int(&t, 2, 1);
    put_text(&t, 8, name);
    put_bytes(&t, 9, v, (size_t)count * 4);
    put_message(graph, 5, &t);
}

static void wrap(struct strbuf *model, struct strbuf *graph, int ir_version, int opset)
{
    struct strbuf set = {0};
    put_int(model, 1, ir_version);
    put_message(model, 7, graph);
    put_int(&set, 2, opset);
    put_message(model, 8, &set);
}

static struct diag_sink sink;

static struct ir_module *import(struct strbuf *graph, int ir_version, int opset,
                                const struct import_options *o)
{
    struct strbuf model = {0};
    wrap(&model, graph, ir_version, opset);
    diag_deinit(&sink);
    diag_init(&sink);
    /* The bytes outlive the module: constants point into them. */
    static char bytes[1 << 16];
    assert_true(model.len <= sizeof bytes);
    memcpy(bytes, model.data, model.len);
    size_t len = model.len;
    strbuf_deinit(&model);
    return import_onnx_bytes(bytes, len, "dir/net.onnx", o, &sink);
}

static void assert_type(const struct ir_type *t, const char *want)
{
    struct strbuf s = {0};
    ir_print_type(&s, t);
    assert_string_equal(strbuf_get(&s), want);
    strbuf_deinit(&s);
}

static bool has_diag(enum diag_id id, const char *loc, const char *part)
{
    for (size_t i = 0; i < sink.items.n; i++) {
        const struct diag *d = &sink.items.v[i];
        if (d->id == id && !strcmp(d->loc, loc) && strstr(d->message, part)) return true;
    }
    diag_print_text(&sink, stderr);
    return false;
}

/* ---- tests ---- */

static void test_dims(void **state)
{
    (void)state;
    struct strbuf g = {0};
    put_value(&g, 11, "in/put", 1, "batch 3 - ? batch max");
    put_value(&g, 12, "y", 1, "");
    put_node(&g, "Relu", "in/put", "y", NULL, 0);
    struct ir_module *m = import(&g, 8, 18, NULL);
    assert_non_null(m);
    const struct ir_func *f = m->funcs.v[0];
    assert_string_equal(f->input_names[0], "in/put");
    assert_string_equal(f->output_names[0], "y");
    /* one symbol for one name; unnamed ones get their own; a reserved word is changed */
    assert_type(&f->body->args[0]->type, "f32[batch, 3, in_put_d2, in_put_d3, batch, max_]");
    assert_int_equal(f->body->args[0]->type.dims[0]->lo, 1);
    assert_string_equal(f->body->last->prev->loc->text, "net.onnx:/Relu_0");
    ir_module_destroy(m);
}

static void test_shape_options(void **state)
{
    (void)state;
    static const char *const good[] = {"x:rows,3", "n:7"}, *const bad[] = {"x:2,m", "nothing:1",
                                                                           "x"};
    struct import_options o = {.shapes = good, .n_shapes = 1};
    for (int k = 0; k < 3; k++) {
        struct strbuf g = {0};
        put_value(&g, 11, "x", 1, "n 3");
        put_value(&g, 12, "y", 1, "");
        put_node(&g, "Neg", "x", "y", NULL, 0);
        if (k == 1) o.shapes = good + 1;
        if (k == 2) o.shapes = bad, o.n_shapes = 3;
        struct ir_module *m = import(&g, 8, 18, &o);
        if (k == 0) {
            assert_non_null(m);
            assert_type(&m->funcs.v[0]->body->args[0]->type, "f32[rows, 3]");
        } else if (k == 1) {
            assert_type(&m->funcs.v[0]->body->args[0]->type, "f32[7, 3]");
        } else {
            assert_null(m);
            assert_true(has_diag(DIAG_OPTION, "--shape", "dim 1 of input 'x' is fixed"));
            assert_true(
                has_diag(DIAG_OPTION, "--shape", "no input and no symbolic dim named 'nothing'"));
            assert_true(has_diag(DIAG_OPTION, "--shape", "'x' is not NAME:DIMS"));
        }
        ir_module_destroy(m);
    }
}

/* From IR version 4 on an initialiser that is an input may be overridden; before, it is a constant.
 */
static void test_default_inputs(void **state)
{
    (void)state;
    static const float v[2] = {2, 3};
    for (int version = 3; version <= 4; version++) {
        struct strbuf g = {0};
        put_value(&g, 11, "x", 1, "2");
        put_value(&g, 11, "k", 1, "2");
        put_floats(&g, "k", 2, v);
        put_value(&g, 12, "y", 1, "");
        put_node(&g, "Mul", "x k", "y", NULL, 0);
        struct ir_module *m = import(&g, version, 9, NULL);
        assert_non_null(m);
        const struct ir_func *f = m->funcs.v[0];
        assert_int_equal(f->n_inputs, version - 2);
        if (version == 4) {
            double got;
            assert_true(f->input_optional[1] && !f->input_optional[0]);
            assert_true(ir_const_get_float(f->input_default[1], 1, &got) && got == 3);
        }
        ir_module_destroy(m);
    }
}

/* Every independent fault is reported; what depends on a faulty node is not. */
static void test_all_faults_at_once(void **state)
{
    (void)state;
    struct strbuf g = {0};
    put_value(&g, 11, "x", 1, "n 3");
    put_value(&g, 12, "y", 1, "");
    put_node(&g, "Frobnicate", "x", "a", NULL, 0);
    put_node(&g, "Add", "a x", "b", NULL, 0);      /* silent: a is poisoned */
    put_node(&g, "Softmax", "x", "c", "axis", 5);  /* axis out of range */
    put_node(&g, "Relu", "x", "d", "slope", 1);    /* no such attribute */
    put_node(&g, "Relu", "nowhere", "e", NULL, 0); /* undefined */
    put_node(&g, "Mish", "x", "y", NULL, 0);       /* newer than the operator set */
    assert_null(import(&g, 8, 13, NULL));
    assert_int_equal(sink.error_count, 5);
    assert_true(has_diag(DIAG_ONNX_OP, "net.onnx:/Frobnicate_0", "f32[n,3]"));
    assert_true(has_diag(DIAG_ONNX_ATTR, "net.onnx:/Softmax_2", "axis 5 is out of range"));
    assert_true(has_diag(DIAG_ONNX_ATTR, "net.onnx:/Relu_3", "has no attribute 'slope'"));
    assert_true(has_diag(DIAG_ONNX_INPUT, "net.onnx:/Relu_4", "'nowhere'"));
    assert_true(has_diag(DIAG_ONNX_OPSET, "net.onnx:/Mish_5", "operator set 13"));
}

/* Shapes computed by nodes are dims again: reshape(x, [shape(x)[0], -1]). */
static void test_symbolic_shapes(void **state)
{
    (void)state;
    struct strbuf g = {0};
    put_value(&g, 11, "x", 1, "n 4 m");
    put_value(&g, 12, "y", 1, "");
    put_node(&g, "Shape", "x", "s", NULL, 0);
    put_node(&g, "Constant", "", "zero", "value_int", 0);
    put_node(&g, "Constant", "", "minus", "value_int", -1);
    put_node(&g, "Constant", "", "axis", "value_int", 0);
    put_node(&g, "Gather", "s zero", "n0", "axis", 0);
    put_node(&g, "Unsqueeze", "n0 axis", "n1", NULL, 0);
    put_node(&g, "Unsqueeze", "minus axis", "m1", NULL, 0);
    put_node(&g, "Concat", "n1 m1", "t", "axis", 0);
    put_node(&g, "Reshape", "x t", "y", NULL, 0);
    struct ir_module *m = import(&g, 8, 18, NULL);
    assert_non_null(m);
    assert_type(&ir_operand(m->funcs.v[0]->body->last, 0)->type, "f32[n, 4*m]");
    assert_int_equal(m->checks.n, 0);
    ir_module_destroy(m);
}

/* An input that decides a shape: named among the needs; with a value the model is static. */
static void test_needs(void **state)
{
    (void)state;
    struct import_needs needs = {0};
    static const int64_t shape[2] = {3, 2};
    struct import_value value = {.name = "t",
                                 .dtype = DT_I64,
                                 .rank = 1,
                                 .dims = {2},
                                 .data = shape,
                                 .n_bytes = sizeof shape};
    struct import_options o = {.needs = &needs, .values = &value};
    arena_init(&needs.arena);
    for (o.n_values = 0; o.n_values < 2; o.n_values++) {
        struct strbuf g = {0};
        put_value(&g, 11, "x", 1, "6");
        put_value(&g, 11, "t", 7, "2");
        put_value(&g, 12, "y", 1, "");
        put_node(&g, "Reshape", "x t", "y", NULL, 0);
        struct ir_module *m = import(&g, 8, 18, &o);
        if (o.n_values == 0) {
            assert_null(m);
            assert_true(has_diag(DIAG_ONNX_DYNAMIC, "net.onnx:/Reshape_0", "input 1 ('t')"));
            assert_int_equal(needs.inputs.n, 1);
            assert_string_equal(needs.inputs.v[0], "t");
        } else {
            assert_non_null(m);
            assert_int_equal(m->funcs.v[0]->n_inputs, 1);
            assert_type(&ir_operand(m->funcs.v[0]->body->last, 0)->type, "f32[3, 2]");
        }
        ir_module_destroy(m);
    }
    arena_deinit(&needs.arena);
}

/* ---- hostile bytes ---- */

static void test_every_cut(void **state)
{
    (void)state;
    static const float v[2] = {2, 3};
    struct strbuf g = {0}, model = {0};
    put_value(&g, 11, "x", 1, "n 2");
    put_floats(&g, "k", 2, v);
    put_value(&g, 12, "y", 1, "");
    put_node(&g, "Mul", "x k", "y", NULL, 0);
    wrap(&model, &g, 8, 18);
    for (size_t len = 0; len < model.len; len++) {
        struct diag_sink cut;
        diag_init(&cut);
        /* Cutting after a whole field can leave a message that is complete but lacks something. */
        struct ir_module *m = import_onnx_bytes(model.data, len, "cut.onnx", NULL, &cut);
        assert_null(m);
        assert_int_equal(diag_exit_code(&cut), 2);
        diag_deinit(&cut);
    }
    strbuf_deinit(&model);
}

static bool skeleton(const struct strbuf *bytes, enum diag_id *id, size_t *skeleton_bytes)
{
    struct wire_skeleton s;
    diag_deinit(&sink);
    diag_init(&sink);
    bool ok = wire_make_skeleton(strbuf_get(bytes), bytes->len, "w", &sink, &s);
    *id = sink.items.n ? sink.items.v[0].id : DIAG_COUNT;
    *skeleton_bytes = s.bytes.len;
    strbuf_deinit(&s.bytes);
    return ok;
}

static void test_wire_limits(void **state)
{
    (void)state;
    struct strbuf inner = {0}, attr = {0}, node = {0};
    enum diag_id id;
    size_t n;
    /* graph in attribute in node in graph ...: 3 levels each, 64 allowed in all */
    for (int depth = 0; depth < 30; depth++) {
        put_message(&attr, 6, &inner);
        put_message(&node, 5, &attr);
        put_message(&inner, 1, &node);
    }
    struct strbuf model = {0};
    put_message(&model, 7, &inner);
    assert_false(skeleton(&model, &id, &n));
    assert_int_equal(id, DIAG_ONNX_LIMIT);
    strbuf_deinit(&model);

    /* 4 MiB of raw data leave no trace in the skeleton; 4 MiB of name are refused. */
    struct strbuf tensor = {0}, graph = {0};
    static char big[1 << 22];
    memset(big, 'a', sizeof big);
    put_bytes(&tensor, 9, big, sizeof big);
    put_message(&graph, 5, &tensor);
    model = (struct strbuf){0};
    put_message(&model, 7, &graph);
    assert_true(skeleton(&model, &id, &n));
    assert_true(n < 64);
    strbuf_deinit(&model);
    put_bytes(&tensor, 8, big, sizeof big);
    put_message(&graph, 5, &tensor);
    model = (struct strbuf){0};
    put_message(&model, 7, &graph);
    assert_false(skeleton(&model, &id, &n));
    assert_int_equal(id, DIAG_ONNX_LIMIT);
    strbuf_deinit(&model);
}

static void test_wire_faults(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t len;
    } faults[] = {
        {"\x08", 1},                                          /* a varint that ends */
        {"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 11}, /* more than 64 bits */
        {"\x3a\x05\x0a", 3},                                  /* a length beyond the end */
        {"\x0b", 1},                                          /* a group */
        {"\x00\x00", 2},                                      /* field 0 */
        {"\x3a\x00\x3a\x00", 4},                              /* two graphs */
        {"\x0a\x00", 2},                                      /* ir_version as bytes */
        {"\x3a\x04\x12\x02"
         "a\0",
         6}, /* a name with a zero byte */
    };
    for (size_t i = 0; i < ARRAY_LEN(faults); i++) {
        struct strbuf s = {0};
        enum diag_id id;
        size_t n;
        strbuf_putn(&s, faults[i].bytes, faults[i].len);
        assert_false(skeleton(&s, &id, &n));
        assert_int_equal(id, DIAG_ONNX_CORRUPT);
        strbuf_deinit(&s);
    }
}

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_dims, setup, teardown),
        cmocka_unit_test_setup_teardown(test_shape_options, setup, teardown),
        cmocka_unit_test_setup_teardown(test_default_inputs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_all_faults_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_symbolic_shapes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_needs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_every_cut, setup, teardown),
        cmocka_unit_test_setup_teardown(test_wire_limits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_wire_faults, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
