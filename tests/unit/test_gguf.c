// SPDX-License-Identifier: Apache-2.0
/* The GGUF reader on small files that it must take or refuse (tests/gguf/make_cases.py), whole and cut short. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compiler/import/gguf.h"
#include "ir/support/str.h"

static char folder[2048];

static int setup(void **state)
{
    const char *src = getenv("INFC_SRC");
    (void)state;
    snprintf(folder, sizeof folder, "%s/tests/gguf/cases", src ? src : ".");
    return 0;
}

static void read_whole(const char *name, struct strbuf *out)
{
    char path[4096], part[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("cannot read %s", path);
    for (size_t n; (n = fread(part, 1, sizeof part, f)) > 0;) strbuf_putn(out, part, n);
    fclose(f);
}

static struct gguf *open_case(const char *name, struct diag_sink *sink)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.gguf", folder, name);
    return gguf_open(path, sink);
}

/* "TENSOR=V,V,V" */
static void check_tensor(const struct gguf *g, const char *text)
{
    char name[400];
    size_t len = strcspn(text, "=");
    assert_true(len < sizeof name);
    memcpy(name, text, len);
    name[len] = 0;
    const struct gguf_tensor *t = gguf_find_tensor(g, name);
    assert_non_null(t);
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->dims[i];
    float x[64];
    assert_true(n <= 64);
    encoding_unpack(t->enc, t->data, n, x);
    const char *p = text + len;
    for (int64_t i = 0; i < n; i++) {
        assert_true(*p == (i ? ',' : '='));
        assert_float_equal(x[i], strtod(p + 1, (char **)&p), 0);
    }
    assert_int_equal(*p, 0);
}

static void check_case(char *line)
{
    char *name = strtok(line, " "), *verdict = strtok(NULL, " ");
    struct diag_sink sink;
    diag_init(&sink);
    struct gguf *g = open_case(name, &sink);
    if (!strcmp(verdict, "ok")) {
        if (!g) fail_msg("%s: refused: %s", name, sink.items.v[0].message);
        size_t n = 0;
        for (char *t; (t = strtok(NULL, " ")) != NULL; n++) check_tensor(g, t);
        assert_int_equal(g->tensors.n, n);
    } else {
        if (g) fail_msg("%s: taken", name);
        if (sink.error_count != 1 || strcmp(diag_code(sink.items.v[0].id), verdict))
            fail_msg("%s: %zu errors, the first %s", name, sink.error_count, sink.error_count ? diag_code(sink.items.v[0].id) : "-");
    }
    gguf_close(g);
    diag_deinit(&sink);
}

static void test_cases(void **state)
{
    struct strbuf list = {0};
    int n = 0;
    (void)state;
    read_whole("cases.txt", &list);
    for (char *p = list.data; *p; n++) {
        char *end = p + strcspn(p, "\n");
        *end = 0;
        check_case(p);
        p = end + 1;
    }
    assert_int_equal(n, 59);
    strbuf_deinit(&list);
}

static int64_t int_of(const struct gguf *g, const char *key)
{
    int64_t v = 0;
    if (!gguf_get_int(gguf_find(g, key), &v)) fail_msg("%s is no integer", key);
    return v;
}

/* Every kind of metadata, in both versions and byte orders. */
static void test_values(void **state)
{
    static const char *const files[] = {"all_little_3", "all_little_2", "all_big_3", "all_big_2"};
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct diag_sink sink;
        struct gguf_string s;
        struct gguf_cursor at = {0};
        int64_t v;
        double d;
        diag_init(&sink);
        struct gguf *g = open_case(files[i], &sink);
        assert_non_null(g);
        assert_int_equal(g->big_endian, i >= 2);
        assert_int_equal(g->version, i % 2 ? 2 : 3);
        assert_int_equal(int_of(g, "k.u8"), 200);
        assert_int_equal(int_of(g, "k.i8"), -100);
        assert_int_equal(int_of(g, "k.u16"), 60000);
        assert_int_equal(int_of(g, "k.i16"), -30000);
        assert_int_equal(int_of(g, "k.u32"), 4000000000);
        assert_int_equal(int_of(g, "k.i32"), -2000000000);
        assert_int_equal(int_of(g, "k.bool"), 1);
        assert_int_equal(int_of(g, "k.i64"), -(INT64_C(1) << 62));
        assert_false(gguf_get_int(gguf_find(g, "k.u64"), &v)); /* beyond int64 */
        assert_true(gguf_get_float(gguf_find(g, "k.f32"), &d) && d == 1.5);
        assert_true(gguf_get_float(gguf_find(g, "k.f64"), &d) && d == -0.1);
        assert_false(gguf_get_int(gguf_find(g, "k.f64"), &v));
        assert_true(gguf_get_string(gguf_find(g, "k.string"), &s));
        assert_int_equal(s.len, 9);
        assert_memory_equal(s.data, "gr\xc3\xbc\xc3\x9f" "e\0x", 9);
        const struct gguf_value *ints = gguf_find(g, "k.ints"), *strings = gguf_find(g, "k.strings");
        assert_true(gguf_array_int(ints, 1, &v) && v == -2);
        assert_true(gguf_array_float(ints, 2, &d) && d == 3);
        assert_false(gguf_array_int(ints, 3, &v));
        assert_false(gguf_array_int(strings, 0, &v));
        assert_true(gguf_next_string(strings, &at, &s) && s.len == 1 && s.data[0] == 'a');
        assert_true(gguf_next_string(strings, &at, &s) && s.len == 0);
        assert_true(gguf_next_string(strings, &at, &s) && s.len == 3 && !memcmp(s.data, "cde", 3));
        assert_false(gguf_next_string(strings, &at, &s));
        assert_null(gguf_find(g, "k.absent"));
        assert_false(gguf_get_int(NULL, &v) || gguf_get_string(gguf_find(g, "k.u8"), &s));
        assert_int_equal(gguf_find(g, "k.nested")->count, 2);
        gguf_close(g);
        diag_deinit(&sink);
    }
}

/* Every prefix of a good file is refused, but those that only lack padding at the end. */
static void test_prefixes(void **state)
{
    struct strbuf file = {0};
    (void)state;
    read_whole("all_little_3.gguf", &file);
    size_t padding = 30; /* the last tensor has 34 bytes in 64 */
    for (size_t n = 0; n < file.len; n++) {
        struct diag_sink sink;
        char *copy = malloc(n ? n : 1); /* so that sanitizers see the end */
        assert_non_null(copy);
        memcpy(copy, file.data, n);
        diag_init(&sink);
        struct gguf *g = gguf_open_bytes(copy, n, "prefix", &sink);
        if ((g != NULL) != (n >= file.len - padding)) fail_msg("%zu of %zu bytes: %s", n, file.len, g ? "taken" : "refused");
        assert_int_equal(sink.error_count, g ? 0 : 1);
        gguf_close(g);
        diag_deinit(&sink);
        free(copy);
    }
    strbuf_deinit(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases), cmocka_unit_test(test_values), cmocka_unit_test(test_prefixes)};
    return cmocka_run_group_tests_name("gguf", tests, setup, NULL);
}
