// SPDX-License-Identifier: Apache-2.0
/*
 * Stop strings. The random test cuts a text at every kind of border and compares with a search in
 * the whole text.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/abi/random.h"
#include "runtime/lm/lm_stop.h"

struct shown {
    char text[8192];
    size_t n;
    int stopped;
};

static void start(struct lm_stop *s, const char *const *strings, size_t n, bool include)
{
    struct lm_stop_text t[8];
    struct infr_status st;
    for (size_t i = 0; i < n; i++) t[i] = (struct lm_stop_text){strings[i], strlen(strings[i])};
    if (lm_stop_init(s, t, n, include, &st)) fail_msg("%s", st.note);
}

static void push(struct lm_stop *s, const char *text, size_t n, bool armed, struct shown *out)
{
    size_t got = lm_stop_push(s, text, n, armed, out->text + out->n, &out->stopped);
    assert_true(got <= lm_stop_max(s, n));
    out->n += got;
    out->text[out->n] = 0;
}

static void test_by_hand(void **state)
{
    (void)state;
    struct lm_stop s;
    struct shown o = {.n = 0};
    const char *const one[] = {"DEFGHIJ"};
    start(&s, one, 1, false);
    push(&s, "ABC", 3, true, &o);
    assert_string_equal(o.text, "ABC");
    push(&s, "DEF", 3, true, &o);
    push(&s, "GHI", 3, true, &o);
    assert_string_equal(o.text, "ABC"); /* nothing of it leaks */
    push(&s, "X", 1, true, &o);
    assert_string_equal(o.text, "ABCDEFGHIX");
    push(&s, "DEFDEFG", 7, true, &o);
    assert_string_equal(o.text, "ABCDEFGHIXDEF");
    push(&s, "HIJ and more", 12, true, &o);
    assert_int_equal(o.stopped, 0);
    assert_string_equal(o.text, "ABCDEFGHIXDEF");
    lm_stop_deinit(&s);

    o = (struct shown){.n = 0};
    start(&s, one, 1, true);
    push(&s, "aDEFGHI", 7, true, &o);
    push(&s, "Jb", 2, true, &o);
    assert_string_equal(o.text, "aDEFGHIJ");
    lm_stop_deinit(&s);

    /* complete first wins; of those complete at once the longest */
    const char *const several[] = {"bcd", "cd", "bc!"};
    o = (struct shown){.n = 0};
    start(&s, several, 3, false);
    push(&s, "abcd", 4, true, &o);
    assert_int_equal(o.stopped, 0);
    assert_string_equal(o.text, "a");
    lm_stop_deinit(&s);

    /* not armed: passes; the end of the text: shown */
    const char *const x[] = {"xyz"};
    o = (struct shown){.n = 0};
    start(&s, x, 1, false);
    push(&s, "1xyz2xy", 7, false, &o);
    assert_int_equal(o.stopped, -1);
    assert_string_equal(o.text, "1xyz2");
    o.n += lm_stop_flush(&s, o.text + o.n);
    o.text[o.n] = 0;
    assert_string_equal(o.text, "1xyz2xy");
    push(&s, "z", 1, true, &o); /* forgotten by the flush */
    assert_int_equal(o.stopped, -1);
    lm_stop_deinit(&s);
}

static void test_refused(void **state)
{
    (void)state;
    struct lm_stop s;
    struct infr_status st;
    static char long_text[5000];
    memset(long_text, 'a', sizeof long_text);
    const struct lm_stop_text bad[] = {{"", 0}, {long_text, 4097}, {"a\xc3", 2}};
    for (int i = 0; i < 3; i++)
        assert_int_equal(lm_stop_init(&s, &bad[i], 1, false, &st), INFR_BAD_INPUT);
    static struct lm_stop_text many[200];
    for (int i = 0; i < 200; i++) many[i] = (struct lm_stop_text){"a", 1};
    assert_int_equal(lm_stop_init(&s, many, 200, false, &st), INFR_BAD_INPUT);
    assert_int_equal(lm_stop_init(&s, NULL, 0, false, &st), 0);
    lm_stop_deinit(&s);
    const struct lm_stop_text limit = {long_text, 4096};
    assert_int_equal(lm_stop_init(&s, &limit, 1, false, &st), 0);
    lm_stop_deinit(&s);
}

/* End of the first stop string to be complete, its beginning and number. */
static bool find(const char *text, const char *const *strings, size_t n, size_t *begin, int *which)
{
    for (size_t end = 1; end <= strlen(text); end++) {
        *which = -1;
        for (size_t i = 0; i < n; i++) {
            size_t len = strlen(strings[i]);
            if (len > end || memcmp(text + end - len, strings[i], len)) continue;
            if (*which < 0 || len > strlen(strings[*which])) *which = (int)i, *begin = end - len;
        }
        if (*which >= 0) return true;
    }
    return false;
}

static void test_random(void **state)
{
    (void)state;
    static const char *const sets[][3] = {{"aab", "ba", "abab"},
                                          {"aaaa", "aab", "b"},
                                          {"abba", "bb", "aaaaaab"},
                                          {"\xc3\xa9\xc3\xa9", "a\xc3\xa9", "bbbb"}};
    static const char *const letters[] = {"a", "b", "\xc3\xa9"};
    uint64_t k = 0;
    for (int round = 0; round < 4000; round++) {
        char text[256] = "";
        const char *const *set = sets[round % 4];
        int n = (int)infr_random_int(9, 0, k++, 40);
        for (int i = 0; i < n; i++) strcat(text, letters[infr_random_int(9, 0, k++, 3)]);
        struct lm_stop s;
        struct shown o = {.stopped = -1};
        start(&s, set, 3, false);
        size_t at = 0, len = strlen(text), begin = len;
        int which = -1;
        bool stops = find(text, set, 3, &begin, &which);
        while (at < len && o.stopped < 0) {
            size_t piece = 1 + (size_t)infr_random_int(9, 0, k++, 5);
            if (at + piece > len) piece = len - at;
            while (((unsigned char)text[at + piece] & 0xc0) == 0x80) piece++;
            push(&s, text + at, piece, true, &o);
            at += piece;
            assert_true(o.n <= begin); /* never a byte too many */
            if (o.n < len)
                assert_true(((unsigned char)text[o.n] & 0xc0) != 0x80); /* whole characters */
        }
        if (!stops) o.n += lm_stop_flush(&s, o.text + o.n);
        assert_int_equal(o.stopped, stops ? which : -1);
        assert_int_equal(o.n, begin);
        assert_memory_equal(o.text, text, begin);
        lm_stop_deinit(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_by_hand),
                                       cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_random)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
