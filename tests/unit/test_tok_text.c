// SPDX-License-Identifier: Apache-2.0
/* Patterns and normalizers: hand-made splits, and normal forms against utf8proc. */
#include <utf8proc.h>

#include "runtime/text/tok_internal.h"
#include "tests/tok/fixture.h"

/* ---- patterns
 * ------------------------------------------------------------------------------------- */

struct pieces {
    char text[8192];
    size_t n;
};

static bool add_piece(void *user, const uint8_t *p, size_t n)
{
    struct pieces *out = user;
    if (out->n > 0) out->text[out->n++] = '|';
    memcpy(out->text + out->n, p, n);
    out->n += n;
    out->text[out->n] = '\0';
    return true;
}

static void begin_bytes(struct fixture *f)
{
    static const char *const tokens[] = {"a", "b", "ab"}, *const merges[] = {"a b"};
    fixture_begin(f, "gpt2", "gpt-2");
    fixture_tokens(f, tokens, 3);
    fixture_merges(f, merges, 1);
}

static void expect_split(const char *const *patterns, size_t n, const char *text,
                         const char *expected)
{
    struct fixture f;
    struct pieces got = {.n = 0};
    begin_bytes(&f);
    f.desc.patterns = patterns;
    f.desc.n_patterns = n;
    fixture_build(&f);
    size_t len = strlen(text), need = tok_pre_work(&f.tok, len);
    struct tok_work w = {malloc(need + 8), 0, need};
    assert_true(tok_pre_split(&f.tok, (const uint8_t *)text, len, &w, add_piece, &got));
    assert_string_equal(got.text, expected);
    free(w.p);
    fixture_end(&f);
}

static void one_pattern(const char *pattern, const char *text, const char *expected)
{
    expect_split(&pattern, 1, text, expected);
}

static void patterns_alternatives_in_order(void **state)
{
    (void)state;
    one_pattern("ab|abc|c", "abc", "ab|c");
    one_pattern("abc|ab|c", "abcab", "abc|ab");
    one_pattern("a*?b", "aab", "aab");
    one_pattern("a+?", "aa", "a|a");
    one_pattern("(?:a|ab)(?:c|bcd)", "abcd", "abcd");
    one_pattern("a{2}", "aaaaa", "aa|aa|a");
    one_pattern("a{2,3}", "aaaaaaa", "aaa|aaa|a");
    one_pattern("a{2,3}?", "aaaaa", "aa|aa|a");
    one_pattern("x(?:ab)?", "xabxa", "xab|x|a");
}

static void patterns_gaps_are_pieces(void **state)
{
    (void)state;
    one_pattern("b", "aabaa", "aa|b|aa");
    one_pattern("zz", "abc", "abc");
    one_pattern("\\s+$", "a  b  ", "a  b|  ");
    one_pattern("(?=b)", "abab", "a|ba|b"); /* an empty match divides */
}

static void patterns_classes(void **state)
{
    (void)state;
    one_pattern("[a-c\\-]+", "ab-d", "ab-|d");
    one_pattern("[^a-c]+", "abxyc", "ab|xy|c");
    one_pattern("[\\p{L}&&[^\\p{Han}]]+",
                "ab\xe4\xb8\xad"
                "c",
                "ab|\xe4\xb8\xad|c");
    one_pattern("\\p{Lu}\\p{Ll}+", "HelloWORLDAb", "Hello|WORLD|Ab");
    one_pattern("\\P{L}+", "a1!b", "a|1!|b");
    one_pattern("[]a]+", "x]ax", "x|]a|x");
    one_pattern("\\d+",
                "a\xd9\xa3"
                "1b",
                "a|\xd9\xa3"
                "1|b"); /* Arabic-Indic three */
    one_pattern("\\u4e2d|\\x{4e2d}|\\x41", "A\xe4\xb8\xad", "A|\xe4\xb8\xad");
}

/* Without case, s is also the long s and K also the Kelvin sign. */
static void patterns_fold_case(void **state)
{
    (void)state;
    one_pattern("(?i:'s)",
                "a's'S'\xc5\xbf"
                "b",
                "a|'s|'S|'\xc5\xbf|b");
    one_pattern("(?i:[a-k])+", "AK\xe2\x84\xaaz", "AK\xe2\x84\xaa|z");
    one_pattern("(?i:a)b", "AbAB", "Ab|AB");
}

static void patterns_look_around(void **state)
{
    (void)state;
    one_pattern("\\s+(?!\\S)|\\s+", "a   b ", "a|  | |b| ");
    one_pattern("a(?=b)", "abac", "a|bac");
    one_pattern("(?<=x)a", "axaa", "ax|a|a");
    one_pattern("(?<!x)a", "axaa", "a|xa|a");
    one_pattern("\\bcat\\b", "cat concat cat.", "cat| concat |cat|.");
    one_pattern("\\Bb", "ab b", "a|b| b");
    one_pattern("^a|a$", "aaa", "a|a|a");
    one_pattern("a(?!bc)", "abcabd", "abc|a|bd");
    /* Digits in threes from the right. */
    one_pattern("\\d{1,3}(?=(?:\\d{3})*\\b)", "1234567 12 1234x", "1|234|567| |12| 1234x");
    one_pattern("(?=(\\d{3})+(?!\\d))", "1234567", "1|234|567");
}

static void patterns_one_after_the_other(void **state)
{
    (void)state;
    static const char *const two[] = {"[\\r\\n]", "\\s?\\p{L}+"}, *const three[] = {
                                                                      "\\p{N}+",
                                                                      "(?=(\\d{3})+(?!\\d))"};
    expect_split(two, 2, "a b\ncd e1", "a| b|\n|cd| e|1");
    expect_split(three, 2, "ab12345", "ab|12|345");
}

static void patterns_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"(a",          "a)",
                                      "[a",          "a{3,2}",
                                      "*a",          "(?<=ab)c",
                                      "(?>a)",       "a++",
                                      "\\1",         "\\p{Nonsense}",
                                      "(?=a(?=bc))", "a{9999}",
                                      "[b-a]",       "\\",
                                      "\\x{110000}", "(?P<n>a)",
                                      "\xff",        "(((((a{90}){90}){90}){90}){90})"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct fixture f;
        begin_bytes(&f);
        f.desc.patterns = &bad[i];
        f.desc.n_patterns = 1;
        assert_false(tok_build(&f.arena, &f.desc, &f.sink, "test", &f.blob, &f.n_blob));
        assert_int_equal(f.sink.items.n, 1);
        assert_int_equal(f.sink.items.v[0].id, DIAG_TOKENIZER_UNSUPPORTED);
        fixture_end(&f);
    }
}

static bool count_piece(void *user, const uint8_t *p, size_t n)
{
    (void)p;
    (void)n;
    ++*(size_t *)user;
    return true;
}

/* Every named pre-tokenizer compiles, and texts that would make a backtracking matcher quadratic
 * are split in a time that this test can wait for. */
static void patterns_of_all_names(void **state)
{
    (void)state;
    static const char *const units[] = {" ", "\n",           "a",  "1",         "\t ",
                                        "'", "\xe4\xb8\xad", "aA", " \xcc\x81", "\r\n"};
    enum { LONG = 200000 };
    char *text = malloc(LONG + 16);
    size_t len, names = 0;
    for (const char *name; (name = tok_pre_name(names, &len)) != NULL; names++) {
        struct fixture f;
        char pre[64];
        snprintf(pre, sizeof pre, "%.*s", (int)len, name);
        begin_bytes(&f);
        fixture_end(&f);
        fixture_begin(&f, "gpt2", pre);
        static const char *const tokens[] = {"a", "b", "ab"}, *const merges[] = {"a b"};
        fixture_tokens(&f, tokens, 3);
        fixture_merges(&f, merges, 1);
        fixture_build(&f);
        for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
            size_t n = 0, pieces = 0, k = strlen(units[u]);
            while (n + k < LONG) {
                memcpy(text + n, units[u], k);
                n += k;
            }
            text[n++] = 'x';
            size_t need = tok_pre_work(&f.tok, n);
            struct tok_work w = {malloc(need + 8), 0, need};
            assert_true(tok_pre_split(&f.tok, (const uint8_t *)text, n, &w, count_piece, &pieces));
            assert_true(pieces >= 1 && pieces <= n);
            free(w.p);
        }
        fixture_end(&f);
    }
    assert_true(names >= 80);
    free(text);
}

/* ---- normalizers
 * ---------------------------------------------------------------------------------- */

static void build_normalizer(struct fixture *f, enum tok_normalizer kind)
{
    begin_bytes(f);
    f->desc.normalizer = kind;
    fixture_build(f);
}

static size_t normalise(const struct tok *t, const uint8_t *p, size_t n, uint8_t *out, size_t cap)
{
    struct tok_norm_size size = {0, 0};
    for (size_t i = 0; i < n; i += utf8_length(p[i])) tok_norm_plan_char(t, utf8_get(p + i), &size);
    assert_true(size.bytes <= cap);
    size_t need = TOK_NORM_WORK(size.chars), len = 0;
    struct tok_work w = {malloc(need), 0, need};
    assert_true(tok_norm_run(t, p, n, &w, out, size.bytes, &len));
    free(w.p);
    return len;
}

static const struct {
    enum tok_normalizer kind;
    int options;
} forms[] = {
    {TOK_NORMALIZER_NFC, UTF8PROC_STABLE | UTF8PROC_COMPOSE},
    {TOK_NORMALIZER_NFD, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE},
    {TOK_NORMALIZER_NFKC, UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
    {TOK_NORMALIZER_NFKD, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT},
};

/* utf8proc may have older Unicode data: only what it knows is compared. */
static bool known_to_both(uint32_t c)
{
    return c < 0x110000 && !(c >= 0xd800 && c < 0xe000) &&
           utf8proc_category((utf8proc_int32_t)c) != UTF8PROC_CATEGORY_CN;
}

static void expect_like_utf8proc(const struct tok *t, int options, const uint8_t *p, size_t n)
{
    uint8_t got[4096];
    utf8proc_uint8_t *want = NULL;
    utf8proc_ssize_t n_want =
        utf8proc_map(p, (utf8proc_ssize_t)n, &want, (utf8proc_option_t)options);
    assert_true(n_want >= 0);
    size_t len = normalise(t, p, n, got, sizeof got);
    if (len != (size_t)n_want || memcmp(got, want, len) != 0)
        fail_msg("U+%04X and %zu bytes in all: %zu bytes, utf8proc %zu", (unsigned)utf8_get(p), n,
                 len, (size_t)n_want);
    free(want);
}

static void normal_forms_of_all_characters(void **state)
{
    (void)state;
    for (size_t k = 0; k < 4; k++) {
        struct fixture f;
        build_normalizer(&f, forms[k].kind);
        for (uint32_t c = 1; c < 0x110000; c++) {
            uint8_t p[4];
            if (known_to_both(c)) expect_like_utf8proc(&f.tok, forms[k].options, p, utf8_put(p, c));
        }
        fixture_end(&f);
    }
}

static uint32_t random_state = 12345;
static uint32_t next_random(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return random_state >> 8;
}

/* Marks, Hangul parts and letters that compose, in any order. */
static uint32_t random_char(void)
{
    static const uint32_t blocks[][2] = {{0x300, 0x70},  {0x1100, 0x100},  {0xac00, 0x2ba4},
                                         {0xc0, 0x240},  {0x41, 0x3a},     {0x591, 0x30},
                                         {0x900, 0x500}, {0x1e00, 0x200},  {0x2000, 0x200},
                                         {0x3040, 0x60}, {0x11000, 0x800}, {0x1d100, 0x100}};
    uint32_t b = next_random() % 12, c;
    do {
        c = blocks[b][0] + next_random() % blocks[b][1];
    } while (!known_to_both(c));
    return c;
}

/* Decomposed forms are utf8proc's. Composed ones are checked by what they must be: the same text,
 * stable, never longer (utf8proc 2.6 composes some sequences wrongly; tests/tok/diff.py compares
 * with Python's). */
static void normal_forms_of_sequences(void **state)
{
    (void)state;
    struct fixture f[4];
    for (size_t k = 0; k < 4; k++) build_normalizer(&f[k], forms[k].kind);
    for (unsigned i = 0; i < 20000; i++) {
        uint8_t p[256], composed[1024], again[1024], parts[2][1024];
        size_t n = 0;
        for (unsigned m = next_random() % 40 + 1; m > 0; m--) n += utf8_put(p + n, random_char());
        for (size_t compat = 0; compat < 4; compat += 2) {
            const struct tok *compose = &f[compat].tok, *decompose = &f[compat + 1].tok;
            expect_like_utf8proc(decompose, forms[compat + 1].options, p, n);
            size_t len = normalise(compose, p, n, composed, sizeof composed);
            assert_int_equal(normalise(compose, composed, len, again, sizeof again), len);
            assert_memory_equal(composed, again, len);
            size_t n0 = normalise(decompose, p, n, parts[0], sizeof parts[0]);
            size_t n1 = normalise(decompose, composed, len, parts[1], sizeof parts[1]);
            assert_int_equal(n0, n1);
            assert_memory_equal(parts[0], parts[1], n0);
            assert_true(len <= n0);
        }
    }
    for (size_t k = 0; k < 4; k++) fixture_end(&f[k]);
}

/* A long run of marks is ordered by counting; the result must be what utf8proc sorts. */
static void normal_form_of_many_marks(void **state)
{
    (void)state;
    struct fixture f;
    build_normalizer(&f, TOK_NORMALIZER_NFC);
    uint8_t p[1000];
    size_t n = utf8_put(p, 'a');
    for (unsigned i = 0; i < 300; i++) n += utf8_put(p + n, 0x300 + i * 7 % 0x4f);
    expect_like_utf8proc(&f.tok, forms[0].options, p, n);
    fixture_end(&f);
}

static void expect_normalised(const struct tok *t, const char *text, const char *expected)
{
    uint8_t got[256];
    size_t n = normalise(t, (const uint8_t *)text, strlen(text), got, sizeof got - 1);
    got[n] = 0;
    assert_string_equal((char *)got, expected);
}

static void bert_normalizer(void **state)
{
    (void)state;
    struct fixture f;
    build_normalizer(&f, TOK_NORMALIZER_BERT);
    expect_normalised(&f.tok, "H\xc3\xa9llo\tW\xc3\x96RLD", "hello world");
    expect_normalised(&f.tok,
                      "a\xe4\xb8\xad"
                      "b",
                      "a \xe4\xb8\xad b");
    expect_normalised(&f.tok, "x\x01\xe2\x80\x8by\xef\xbf\xbd",
                      "xy");                        /* control, zero width, U+FFFD */
    expect_normalised(&f.tok, "\xc4\xb0", "i");     /* I with a dot */
    expect_normalised(&f.tok, "\xe2\x80\x83", " "); /* em space */
    fixture_end(&f);
    begin_bytes(&f);
    f.desc.normalizer = TOK_NORMALIZER_BERT;
    f.desc.lower = f.desc.strip_accents = false;
    fixture_build(&f);
    expect_normalised(&f.tok, "H\xc3\xa9", "H\xc3\xa9");
    fixture_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_alternatives_in_order),
        cmocka_unit_test(patterns_gaps_are_pieces),
        cmocka_unit_test(patterns_classes),
        cmocka_unit_test(patterns_fold_case),
        cmocka_unit_test(patterns_look_around),
        cmocka_unit_test(patterns_one_after_the_other),
        cmocka_unit_test(patterns_refused),
        cmocka_unit_test(patterns_of_all_names),
        cmocka_unit_test(normal_forms_of_all_characters),
        cmocka_unit_test(normal_forms_of_sequences),
        cmocka_unit_test(normal_form_of_many_marks),
        cmocka_unit_test(bert_normalizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
