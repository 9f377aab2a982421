// SPDX-License-Identifier: Apache-2.0
/* The line editor without a terminal: bytes to keys, keys to text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/lm/lm_line.h"

/* Text after typing these bytes; *at: the cursor. */
static char *typed(const char *bytes, size_t *at)
{
    struct lm_line l;
    static char text[256];
    size_t n = strlen(bytes), used = 0;
    unsigned key;
    lm_line_init(&l, -1);
    while (lm_line_key((const unsigned char *)bytes, n, &used, &key)) lm_line_edit(&l, key);
    assert_int_equal(used, n);
    strcpy(text, l.text ? l.text : "");
    if (at) *at = l.at;
    lm_line_deinit(&l);
    return text;
}

static void test_editing(void **state)
{
    (void)state;
    size_t at;
    assert_string_equal(typed("hello", &at), "hello");
    assert_int_equal(at, 5);
    assert_string_equal(typed("hllo\x1b[D\x1b[D\x1b[D"
                              "e",
                              &at),
                        "hello");
    assert_int_equal(at, 2);
    assert_string_equal(typed("ello\x01h\x05!", NULL), "hello!");
    assert_string_equal(typed("ello\x1b[Hh\x1b[F!", NULL), "hello!");
    assert_string_equal(typed("ello\x1b[1~h\x1b[4~!\x1bOHx", NULL), "xhello!");
    assert_string_equal(typed("abc\x7f\x7f", NULL), "a");
    assert_string_equal(typed("abc\x1b[H\x1b[3~", NULL), "bc");
    assert_string_equal(typed("one two  \x17", NULL), "one ");
    assert_string_equal(typed("one two\x02\x02\x0b", NULL), "one t");
    assert_string_equal(typed("one two\x02\x02\x15", NULL), "wo");
    assert_string_equal(typed("a\x1b\rb", NULL), "a\nb");                  /* alt-enter */
    assert_string_equal(typed("a\x1b[1;5Cb\x1b[99~c\x1fz", NULL), "abcz"); /* no key of ours */
    /* at the edges nothing happens */
    assert_string_equal(typed("\x7f\x1b[D\x1b[3~\x15\x17"
                              "a\x1b[C\x1b[C",
                              &at),
                        "a");
    assert_int_equal(at, 1);
}

static void test_characters(void **state)
{
    (void)state;
    size_t at;
    assert_string_equal(typed("\u00e9\u4e2d\U0001f600\x7f", NULL), "\u00e9\u4e2d");
    assert_string_equal(typed("\u00e9\u4e2d\x1b[D\x7f", &at), "\u4e2d");
    assert_int_equal(at, 0);
    /* a combining mark goes with its letter */
    assert_string_equal(typed("xe\u0301\x7f", NULL), "x");
    assert_string_equal(typed("e\u0301y\x1b[H\x1b[3~", NULL), "y");
    assert_string_equal(typed("a\xff\xc3(b", NULL), "a(b"); /* what is not UTF-8 is left out */
    assert_int_equal(lm_line_columns("a\u4e2de\u0301", 7), 4);
    /* a key that is not complete waits */
    unsigned key;
    size_t used = 0;
    assert_false(lm_line_key((const unsigned char *)"\xe4\xb8", 2, &used, &key));
    assert_false(lm_line_key((const unsigned char *)"\x1b[1", 3, &used, &key));
    assert_int_equal(used, 0);
}

static void test_plain(void **state)
{
    (void)state;
    struct lm_line l;
    int fd[2];
    assert_int_equal(pipe(fd), 0);
    assert_int_equal(write(fd[1], "one\n\ntwo", 8), 8);
    close(fd[1]);
    lm_line_init(&l, fd[0]);
    assert_false(l.edits);
    assert_int_equal(lm_line_read(&l, "> "), LM_LINE_TEXT);
    assert_string_equal(l.text, "one");
    assert_int_equal(lm_line_read(&l, "> "), LM_LINE_TEXT);
    assert_string_equal(l.text, "");
    assert_int_equal(lm_line_read(&l, "> "), LM_LINE_TEXT);
    assert_string_equal(l.text, "two");
    assert_int_equal(lm_line_read(&l, "> "), LM_LINE_END);
    lm_line_deinit(&l);
    close(fd[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_editing),
                                       cmocka_unit_test(test_characters),
                                       cmocka_unit_test(test_plain)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
