// SPDX-License-Identifier: Apache-2.0
/*
 * Random walks through grammars: wherever the accepted bytes lead, some byte or the end must be
 * possible. Bytes of escapes are drawn often, so that keys and strings are spelled in every way.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/grammar/grammar.h"

enum { WALKS = 300, STEPS = 400 };

static uint64_t next_random(uint64_t *x)
{
    *x ^= *x << 13, *x ^= *x >> 7, *x ^= *x << 17;
    return *x;
}

/* A byte that fits, or -1: those of escapes first when the coin says so. */
static int pick(struct gr_state *s, uint64_t *seed)
{
    static const char favourites[] = "\\\\\\uuuud8dcDFdf019aAbeE\"\"\",:}";
    uint8_t fits[256];
    unsigned n = 0;
    if (next_random(seed) % 4) {
        char c = favourites[next_random(seed) % (sizeof favourites - 1)];
        if (gr_try(s, &c, 1)) return (uint8_t)c;
    }
    for (unsigned b = 0; b < 256; b++) {
        char c = (char)b;
        bool space = c == ' ' || c == '\n' || c == '\t' || c == '\r';
        if (!space && gr_try(s, &c, 1)) fits[n++] = (uint8_t)b;
    }
    return n ? fits[next_random(seed) % n] : -1;
}

static void walk(const char *schema)
{
    struct gr_grammar *g;
    struct gr_error error;
    uint64_t seed = 88172645463325252u;
    if (!gr_compile(GR_JSON_SCHEMA, schema, strlen(schema), NULL, &g, &error))
        fail_msg("%s: %s %s", schema, error.pointer, error.message);
    for (int w = 0; w < WALKS; w++) {
        struct gr_state *s = gr_state_create(g);
        char text[STEPS + 1];
        int n = 0;
        assert_non_null(s);
        for (; n < STEPS && !gr_is_finished(s); n++) {
            int c = pick(s, &seed);
            if (c < 0 && gr_is_accepting(s)) break;
            if (c < 0) fail_msg("%s: a dead end behind %.*s", schema, n, text);
            text[n] = (char)c;
            assert_true(gr_advance(s, text + n, 1));
        }
        gr_state_destroy(s);
    }
    gr_destroy(g);
}

static void test_walks(void **state)
{
    static const char *const schemas[] = {
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"ab\":{\"type\":\"null\"}},"
        "\"required\":[\"a\"],\"additionalProperties\":false}",
        "{\"type\":\"object\",\"properties\":{\"\\u00e9t\\u00e9\":{\"type\":\"integer\"},\"\\ud83d\\ude00\":{"
        "\"type\":\"null\"},\"\\ud83d\\ude01x\":{\"type\":\"null\"}},\"additionalProperties\":false,"
        "\"minProperties\":2}",
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{\"type\":\"null\"}},"
        "\"additionalProperties\":{\"type\":\"null\"},\"maxProperties\":3,\"required\":[\"a\",\"b\"]}",
        "{\"type\":\"object\",\"propertyNames\":{\"maxLength\":3,\"minLength\":2},\"minProperties\":2,"
        "\"maxProperties\":4,\"additionalProperties\":{\"type\":\"null\"}}",
        "{\"type\":\"object\",\"patternProperties\":{\"^[\\u0430-\\u044f]{2,3}$\":{\"type\":\"null\"}},"
        "\"additionalProperties\":false,\"minProperties\":2,\"maxProperties\":5}",
        "{\"type\":\"object\",\"patternProperties\":{\"^[a-c]$\":{\"type\":\"null\"}},"
        "\"additionalProperties\":false,\"minProperties\":2}",
        "{\"type\":\"object\",\"propertyNames\":{\"enum\":[\"a\",\"\\\\\",\"\\\"\",\"\\u0001\","
        "\"\\ud800\\udc00\"]},\"additionalProperties\":{\"type\":\"null\"},\"minProperties\":3}",
        "{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[^a-z]+$\"},"
        "\"additionalProperties\":{\"type\":\"null\"},\"maxProperties\":3}",
        "{\"type\":\"object\",\"properties\":{\"ab\":false,\"ac\":{\"type\":\"null\"}},"
        "\"propertyNames\":{\"pattern\":\"^a\"},\"additionalProperties\":{\"type\":\"null\"},"
        "\"maxProperties\":2,\"minProperties\":1}",
        "{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[\\ud83d\\ude00-\\ud83d\\ude4f]$\"},"
        "\"additionalProperties\":{\"type\":\"null\"},\"maxProperties\":3}",
        "{\"type\":\"string\",\"pattern\":\"^[\\ud83d\\ude00-\\ud83d\\ude4f]{2}$\"}",
        "{\"type\":\"string\",\"pattern\":\"^[\\ue000-\\ue010]{2}$\"}",
        "{\"enum\":[\"\\ud7ff\",\"\\ue000\",\"\\uffff\",\"\\ud800\\udc00\",\"\\udbff\\udfff\"]}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) walk(schemas[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_walks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
