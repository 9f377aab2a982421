// SPDX-License-Identifier: Apache-2.0
/* Containers and diagnostics of ir/support. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ir/quote.h"
#include "ir/support/diag.h"
#include "ir/support/map.h"
#include "ir/support/str.h"

static void test_arena(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a);
    unsigned char *small = arena_alloc(&a, 5), *none = arena_alloc(&a, 0),
                  *big = arena_alloc(&a, 1 << 20);
    assert_int_equal((uintptr_t)small % 16, 0);
    assert_int_equal((uintptr_t)big % 16, 0);
    assert_non_null(none);
    assert_ptr_not_equal(small, none);
    for (int i = 0; i < 5; i++) assert_int_equal(small[i], 0);
    assert_int_equal(big[(1 << 20) - 1], 0);
    assert_string_equal(arena_printf(&a, "%s-%d", "x", 42), "x-42");
    assert_string_equal(arena_strndup(&a, "abcdef", 3), "abc");
    VEC(int) v = {0};
    for (int i = 0; i < 1000; i++) vec_push(&a, &v, i * i);
    assert_int_equal(v.n, 1000);
    for (int i = 0; i < 1000; i++) assert_int_equal(v.v[i], i * i);
    arena_reset(&a);
    assert_int_equal(a.used_bytes, 0);
    arena_deinit(&a);
}

static void test_map(void **state)
{
    (void)state;
    struct arena a;
    struct map m;
    int values[500];
    arena_init(&a);
    map_init(&m, &a);
    assert_null(map_finds(&m, "absent"));
    for (int i = 0; i < 500; i++) {
        char key[16];
        snprintf(key, sizeof key, "key%d", i);
        assert_null(map_puts(&m, key, &values[i]));
    }
    assert_ptr_equal(map_finds(&m, "key123"), &values[123]);
    assert_ptr_equal(map_puts(&m, "key123", &values[0]), &values[123]); /* the old value */
    assert_ptr_equal(map_finds(&m, "key123"), &values[0]);
    assert_int_equal(m.n, 500);
    assert_string_equal(m.entries[7].key, "key7"); /* insertion order */
    assert_null(map_put(&m, "a\0b", 3, &values[1]));
    assert_ptr_equal(map_find(&m, "a\0b", 3), &values[1]);
    assert_null(map_find(&m, "a\0c", 3));
    assert_null(map_finds(&m, "a"));
    arena_deinit(&a);
}

static void test_checked_arithmetic(void **state)
{
    (void)state;
    size_t s;
    int64_t i;
    assert_true(size_add(SIZE_MAX - 1, 1, &s) && s == SIZE_MAX);
    assert_false(size_add(SIZE_MAX, 1, &s));
    assert_false(size_mul(SIZE_MAX / 2 + 1, 2, &s));
    assert_false(i64_add(INT64_MAX, 1, &i));
    assert_false(i64_sub(INT64_MIN, 1, &i));
    assert_false(i64_mul(INT64_MIN, -1, &i));
    assert_true(i64_mul(-3, 7, &i) && i == -21);
}

static void test_json_numbers_and_quotes(void **state)
{
    (void)state;
    struct strbuf s = {0};
    assert_string_equal(strbuf_get(&s), "");
    strbuf_put_json(&s, "a\"\\\n\x01\xc3\xa4\xff\xed\xa0\x80");
    /* a lone 0xff is one bad byte; an encoded surrogate is three */
    assert_string_equal(strbuf_get(&s),
                        "\"a\\\"\\\\\\n\\u0001\xc3\xa4\\ufffd\\ufffd\\ufffd\\ufffd\"");
    s.len = 0;
    static const uint64_t numbers[] = {0, 9, 10, 4294967296, UINT64_MAX};
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        strbuf_putu(&s, numbers[i]);
        strbuf_putc(&s, ' ');
    }
    assert_string_equal(strbuf_get(&s), "0 9 10 4294967296 18446744073709551615 ");
    strbuf_deinit(&s);
    struct arena a;
    arena_init(&a);
    static const char *const strings[] = {"", "plain", "a b", "\"\\\n\t\x01\x7f\xc3\xff"};
    for (size_t i = 0; i < ARRAY_LEN(strings); i++) {
        ir_put_quoted(&s, strings[i]);
        const char *p = s.data, *end = s.data + s.len;
        assert_string_equal(ir_read_quoted(&a, &p, end), strings[i]);
        assert_ptr_equal(p, end);
        s.len = 0;
    }
    static const char *const bad[] = {"\"",       "\"a",       "\"\\\"",    "\"\\q\"",
                                      "\"\\x0\"", "\"\\x00\"", "\"\\xzz\"", "\"a\nb\""};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        const char *p = bad[i];
        assert_null(ir_read_quoted(&a, &p, p + strlen(p)));
    }
    assert_true(ir_is_plain_name("_a.b9"));
    assert_false(ir_is_plain_name("9a"));
    assert_false(ir_is_plain_name(""));
    assert_false(ir_is_plain_name("a-b"));
    strbuf_deinit(&s);
    arena_deinit(&a);
}

static void test_diagnostics(void **state)
{
    (void)state;
    struct diag_sink s;
    diag_init(&s);
    assert_int_equal(diag_exit_code(&s), 0);
    diag_warn(&s, DIAG_ONNX_OP, NULL, "only a warning");
    assert_int_equal(diag_exit_code(&s), 0);
    char text[3000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    assert_false(diag_report(&s, DIAG_FILE_WRITE, "out", "%s", text));
    assert_int_equal(strlen(s.items.v[1].message), sizeof text - 1);
    assert_int_equal(diag_exit_code(&s), 3); /* environment */
    diag_report_remedy(&s, DIAG_SHAPE_MISMATCH, "net.onnx:/a", "do this", "2 and 3");
    assert_string_equal(s.items.v[2].remedy, "do this");
    assert_int_equal(diag_exit_code(&s), 3); /* the first error's kind */
    assert_string_equal(diag_code(DIAG_SHAPE_MISMATCH), "E403");
    for (int i = 0; i < 2000; i++) diag_report(&s, DIAG_IR_VERIFY, NULL, "again");
    assert_int_equal(s.items.n, 1001); /* the limit, and the warning */
    assert_int_equal(s.error_count, 2002);
    diag_deinit(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arena),
        cmocka_unit_test(test_map),
        cmocka_unit_test(test_checked_arithmetic),
        cmocka_unit_test(test_json_numbers_and_quotes),
        cmocka_unit_test(test_diagnostics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
