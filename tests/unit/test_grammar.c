// SPDX-License-Identifier: Apache-2.0
/* Grammars: what is accepted, what is refused and where, limits. Expectations by hand. */
#include "compiler/tok/token_trie.h"
#include "runtime/abi/trie_format.h"
#include "runtime/grammar/grammar.h"
#include "tests/tok/fixture.h"

static struct gr_grammar *compile(enum gr_kind kind, const char *text)
{
    struct gr_grammar *g;
    struct gr_error e;
    if (!gr_compile(kind, text, strlen(text), NULL, &g, &e))
        fail_msg("%s: %s %zu: %s", text, e.pointer, e.offset, e.message);
    return g;
}

static bool accepts(struct gr_grammar *g, const char *text)
{
    struct gr_state *s = gr_state_create(g);
    assert_non_null(s);
    bool ok = gr_advance(s, text, strlen(text)) && gr_is_accepting(s);
    gr_state_destroy(s);
    /* byte by byte, on copies, it is the same */
    s = gr_state_create(g);
    bool again = true;
    for (size_t i = 0; i < strlen(text) && again; i++) {
        struct gr_state *next = gr_state_copy(s);
        gr_state_destroy(s);
        s = next;
        again = gr_advance(s, text + i, 1);
    }
    assert_int_equal(ok, again && gr_is_accepting(s));
    gr_state_destroy(s);
    return ok;
}

/* yes and no: texts, each ended by a NUL, all by an empty one. "\1" stands for the empty text. */
static void check(enum gr_kind kind, const char *grammar, const char *yes, const char *no)
{
    struct gr_grammar *g = compile(kind, grammar);
    for (; *yes; yes += strlen(yes) + 1)
        if (!accepts(g, *yes == 1 ? "" : yes)) fail_msg("%s refuses '%s'", grammar, yes);
    for (; *no; no += strlen(no) + 1)
        if (accepts(g, *no == 1 ? "" : no)) fail_msg("%s accepts '%s'", grammar, no);
    gr_destroy(g);
}

static void refused(enum gr_kind kind, const char *text, const char *pointer, const char *message)
{
    struct gr_grammar *g;
    struct gr_error e;
    if (gr_compile(kind, text, strlen(text), NULL, &g, &e)) fail_msg("%s is not refused", text);
    assert_null(g);
    if (pointer) assert_string_equal(e.pointer, pointer);
    if (!strstr(e.message, message)) fail_msg("%s: '%s', not '%s'", text, e.message, message);
}

static void regex(void **state)
{
    (void)state;
    check(GR_REGEX, "[a-z]{2,4}(foo|bar)?", "ab\0abcd\0abfoo\0", "a\0abcde\0ab-\0\1\0");
    check(GR_REGEX, "^a$|b", "a\0b\0", "aa\0ab\0\1\0");
    check(GR_REGEX, "(a?){20}a{3}", "aaa\0aaaaaaaaaaaaaaaaaaaaaaa\0",
          "aa\0aaaaaaaaaaaaaaaaaaaaaaaa\0");
    check(GR_REGEX, "(a*)*", "\1\0aaa\0", "b\0");
    check(GR_REGEX, "\\d+\\.\\d{2}", "1.00\0" "12.34\0", "1.0\0.00\0");
    check(GR_REGEX, ".", "a\0\xc3\xa9\0\xf0\x9f\x98\x80\0", "\n\0\xc3\0ab\0\1\0");
    check(GR_REGEX, "[^\\x00-\\x7f]", "\xc3\xa9\0\xe2\x82\xac\0", "a\0\xed\xa0\x80\0");
    check(GR_REGEX, "(?i:abc)d", "ABCd\0aBcd\0", "ABCD\0");
    check(GR_REGEX, "a{,2}", "a{,2}\0", "aa\0");
    check(GR_REGEX, "(?P<x>a|b)+?", "ab\0", "\1\0");
    refused(GR_REGEX, "(a", NULL, "a group has no end");
    refused(GR_REGEX, "a)", NULL, "without its '('");
    refused(GR_REGEX, "(?=a)", NULL, "look-around");
    refused(GR_REGEX, "(a)\\1", NULL, "back-references");
    refused(GR_REGEX, "a{3,2}", NULL, "below its beginning");
    refused(GR_REGEX, "[b-a]", NULL, "backwards");
    refused(GR_REGEX, "[]", NULL, "no text matches");
}

static void choice(void **state)
{
    (void)state;
    check(GR_CHOICE, "[\"abc\", \"abd\", \"x\"]", "abc\0abd\0x\0", "ab\0xx\0\1\0");
    refused(GR_CHOICE, "[]", NULL, "at least one");
    refused(GR_CHOICE, "[\"a\", 1]", NULL, "number 1 is not a string");
}

static void gbnf(void **state)
{
    (void)state;
    check(GR_GBNF, "root ::= \"a\" (root | \"\") \"b\"", "ab\0aabb\0", "aab\0abb\0\1\0");
    check(GR_GBNF, "root ::= (\"a\"*)*", "\1\0aaa\0", "b\0");
    check(GR_GBNF, "root ::= root \"+\" num | num # sums\nnum ::= [0-9]+", "1\0" "1+22+3\0",
          "+1\0" "1+\0\1\0");
    check(GR_GBNF, "root ::= e\ne ::= e e | \"a\" | \"(\" e \")\"", "a\0aa(a)\0", "(a\0()\0\1\0");
    check(GR_GBNF, "root ::= x{2,3} \"-\" x{2,} \"-\" x{1}\nx ::= [^-]", "ab-abcd-a\0",
          "a-ab-a\0abcd-ab-a\0ab-a-a\0");
    check(GR_GBNF, "root ::= \"a\"\n | \"b\"\n\n", "a\0b\0", "ab\0");
    check(GR_GBNF, "root ::= opt \"x\" opt\nopt ::= \"y\"?", "x\0yx\0xy\0yxy\0", "yy\0\1\0");
    check(GR_GBNF, "root ::= root \"a\" | \"\"", "\1\0a\0aa\0", "b\0");
    check(GR_GBNF, "root ::= \"\\u00e9\" . [\\x41-\\x42\\]]", "\xc3\xa9zA\0\xc3\xa9\xc3\xa9]\0",
          "\xc3\xa9zz\0");
    refused(GR_GBNF, "root ::= \"a\"{5,0}", NULL, "below its beginning");
    refused(GR_GBNF, "root ::= x", NULL, "'x' is used and not defined");
    refused(GR_GBNF, "x ::= \"a\"", NULL, "'root' is used and not defined");
    refused(GR_GBNF, "root ::= root \"a\"", NULL, "never end");
    refused(GR_GBNF, "root ::= a \"x\" | \"y\"\na ::= b \"z\"\nb ::= root", NULL,
            "begins with itself");
    refused(GR_GBNF, "root ::= \"a", NULL, "has no end");
    refused(GR_GBNF, "root ::= \"a\"\nroot ::= \"b\"", NULL, "defined twice");
}

static void json_values(void **state)
{
    (void)state;
    check(GR_JSON_SCHEMA, "true",
          "null\0[1, 2.5e-3, {\"a\": \"\\u00e9\\n\"}]\0\"\\ud83d\\ude00\"\0-0.5E+2\0[]\0{}\0",
          "nul\0[1,]\0{\"a\"}\0\"\\ud83d\"\0" "01\0\"\n\"\0'a'\0\"\xff\"\0" "1.\0[\0\1\0");
    check(GR_JSON_OBJECT, "", "{}\0{\"a\": {\"b\": []}}\0", "[]\0{\"a\":1,}\0");
    check(GR_JSON_SCHEMA, "{\"type\": \"string\", \"minLength\": 2, \"maxLength\": 3}",
          "\"ab\"\0\"\xc3\xa9\xc3\xa9\xc3\xa9\"\0\"\\u00e9\\n\"\0\"\\ud83d\\ude00x\"\0",
          "\"a\"\0\"abcd\"\0\"\\ud83d\\ude00\"\0");
    check(GR_JSON_SCHEMA, "{\"type\": \"string\", \"pattern\": \"^[ab]+$\"}",
          "\"ab\"\0\"\\u0061\"\0", "\"\"\0\"abc\"\0\"\\u0063\"\0");
    check(GR_JSON_SCHEMA, "{\"const\": {\"a\": [1, null]}}", "{\"a\": [1.0, null]}\0",
          "{\"a\": [1]}\0{}\0{\"a\": [1, null], \"b\": 1}\0");
}

static void json_numbers(void **state)
{
    (void)state;
    check(GR_JSON_SCHEMA, "{\"type\": \"integer\", \"minimum\": -5, \"exclusiveMaximum\": 120}",
          "-5\0" "119\0-0\0" "7.00\0", "-6\0" "120\0" "119.5\0" "1000\0-5.1\0");
    check(GR_JSON_SCHEMA, "{\"minimum\": 0.05, \"maximum\": 1.5, \"type\": \"number\"}",
          "0.05\0" "1.5\0" "1\0" "0.050001\0", "0.0499\0" "1.51\0" "2\0-1\0" "0\0");
    check(GR_JSON_SCHEMA, "{\"multipleOf\": 0.25, \"type\": \"number\"}",
          "0\0" "1.75\0-2.5\0" "3.000\0", "0.3\0" "1.125\0");
    check(GR_JSON_SCHEMA, "{\"type\": \"number\", \"not\": {\"enum\": [1, 2]}}", "3\0" "1.5\0",
          "1\0" "2.0\0");
    refused(GR_JSON_SCHEMA, "{\"a\": 1, \"multipleOf\": 0.123456789}", "#/multipleOf", "digits");
    /* what is no double is not written with an exponent */
    check(GR_JSON_SCHEMA, "{\"type\": \"number\"}",
          "-0.5E-400\0" "1e308\0" "1.7976931348623157e+308\0" "9.99e307\0" "12345678901234567890123456789012345678901e259\0" "0e0\0",
          "1e309\0" "2e308\0" "1.8e308\0" "10e307\0" "1e1000\0" "0.1e999\0");
}

static void json_objects(void **state)
{
    (void)state;
    const char *person = "{\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\"},"
                         "\"age\": {\"type\": \"integer\"}}, \"required\": [\"name\"],"
                         "\"additionalProperties\": false}";
    check(GR_JSON_SCHEMA, person, "{\"age\": 3, \"name\": \"x\"}\0{\"name\": \"\"}\0",
          "{\"age\": 3}\0{\"name\": \"\", \"name\": \"\"}\0{\"name\": \"\", \"x\": 1}\0");
    check(GR_JSON_SCHEMA,
          "{\"type\": \"object\", \"minProperties\": 2, \"maxProperties\": 3}",
          "{\"a\": 1, \"b\": 2}\0", "{\"a\": 1}\0{\"a\": 1, \"a\": 2}\0{\"a\": 1, \"\\u0061\": 2}\0"
          "{\"a\": 1, \"b\": 2, \"c\": 3, \"d\": 4}\0");
    check(GR_JSON_SCHEMA, "{\"$defs\": {\"t\": {\"type\": \"object\", \"properties\": {\"l\": "
                          "{\"$ref\": \"#/$defs/t\"}}, \"additionalProperties\": false}},"
                          "\"$ref\": \"#/$defs/t\"}",
          "{\"l\": {\"l\": {}}}\0", "{\"l\": {\"l\": {\"r\": {}}}}\0");
    check(GR_JSON_SCHEMA, "{\"type\": \"array\", \"uniqueItems\": true}",
          "[1, \"1\", true, {\"a\": 1, \"b\": 2}, {\"a\": 2}]\0[1, 12]\0",
          "[1, 1]\0[1, 1.0]\0[10, 1e1]\0[{\"a\": 1, \"b\": 2}, {\"b\": 2, \"a\": 1.0}]\0");
    refused(GR_JSON_SCHEMA, "{\"properties\": {\"a/b\": {\"pattern\": \"(?=x)\"}}}",
            "#/properties/a~1b/pattern", "look-around");
    refused(GR_JSON_SCHEMA, "{\"items\": {\"format\": \"path\"}}", "#/items/format", "'path'");
    refused(GR_JSON_SCHEMA, "{\"$ref\": \"http://x/y\"}", "#/$ref", "nothing is fetched");
    refused(GR_JSON_SCHEMA, "{\"allOf\": [{\"$ref\": \"#\"}]}", "#", "without end");
    refused(GR_JSON_SCHEMA, "{\"type\": \"strin\"}", "#/type", "unknown type");
    refused(GR_JSON_SCHEMA, "{\"type\": \"string\", \"minLength\": 3, \"maxLength\": 2}", "#",
            "no value");
}

static void forced(void **state)
{
    (void)state;
    struct gr_options o = {.space = GR_SPACE_NONE};
    const char *schema = "{\"type\": \"object\", \"properties\": {\"answer\": {\"type\": "
                         "\"boolean\"}}, \"required\": [\"answer\"], \"additionalProperties\": "
                         "false}";
    struct gr_grammar *g;
    struct gr_error e;
    char out[64];
    assert_true(gr_compile(GR_JSON_SCHEMA, schema, strlen(schema), &o, &g, &e));
    struct gr_state *s = gr_state_create(g);
    size_t n = gr_forced(s, out, sizeof out);
    assert_int_equal(n, 2); /* the key's letters may be written as escapes */
    assert_memory_equal(out, "{\"", 2);
    assert_true(gr_advance(s, "{\"a", 3));
    assert_true(gr_advance(s, "nswer\"", 6));
    n = gr_forced(s, out, sizeof out);
    assert_int_equal(n, 1);
    assert_memory_equal(out, ":", 1);
    assert_true(gr_advance(s, ":t", 2));
    n = gr_forced(s, out, sizeof out);
    assert_int_equal(n, 4);
    assert_memory_equal(out, "rue}", 4);
    assert_false(gr_is_finished(s));
    assert_true(gr_advance(s, "rue}", 4));
    assert_true(gr_is_finished(s));
    assert_int_equal(gr_try(s, " ", 1), 0);
    gr_state_destroy(s);
    gr_destroy(g);
}

/* What made others crash or hang: refused, or compiled within bounds. */
static void formats(void **state)
{
    (void)state;
    check(GR_JSON_SCHEMA, "{\"type\": \"string\", \"format\": \"regex\"}",
          "\"\"\0\"^[a-z0-9_-]+$\"\0\"^((a|b)*|(?:c(d)){2,4}?)$\"\0\"(?=x)\\\\d+\\\\.\"\0",
          "\"(\"\0\"a**\"\0\"[z-a]\"\0\"[]\"\0\"a{3,2}\"\0\"\\\\\"\0\"+\"\0\"^*\"\0\"a)\"\0");
    check(GR_JSON_SCHEMA, "{\"type\": \"string\", \"format\": \"byte\"}",
          "\"\"\0\"Zg==\"\0\"Zm8=\"\0\"Zm9v\"\0", "\"Zg\"\0\"Z===\"\0\"Zm8=Zm8=\"\0\"Zm9-\"\0");
    check(GR_JSON_SCHEMA, "{\"format\": \"utc-millisec\"}", "1\0" "1.5\0", "");
    /* leap seconds are enforced narrowly: what is not a time must not be one either */
    check(GR_JSON_SCHEMA, "{\"type\": \"string\", \"format\": \"time\"}", "\"23:59:60Z\"\0\"22:00:01+01:00\"\0",
          "\"22:59:61Z\"\0\"24:00:00Z\"\0");
    check(GR_JSON_SCHEMA, "{\"type\": \"string\", \"not\": {\"format\": \"time\"}}", "\"x\"\0\"24:00:00Z\"\0",
          "\"23:59:60Z\"\0\"22:59:60-01:00\"\0");
    refused(GR_JSON_SCHEMA, "{\"type\": \"string\", \"not\": {\"format\": \"regex\"}}", "#", "no value");
}

/* A tree whose nodes are what the schema that extends it says. */
static void dynamic_references(void **state)
{
    (void)state;
    check(GR_JSON_SCHEMA,
          "{\"$id\": \"http://x/strict\", \"$dynamicAnchor\": \"node\", \"$ref\": \"tree\", \"unevaluatedProperties\": false,"
          "\"$defs\": {\"t\": {\"$id\": \"tree\", \"$dynamicAnchor\": \"node\", \"type\": \"object\", \"properties\": "
          "{\"v\": true, \"c\": {\"type\": \"array\", \"items\": {\"$dynamicRef\": \"#node\"}}}}}}",
          "{\"c\": [{\"v\": 1}]}\0", "{\"c\": [{\"w\": 1}]}\0{\"w\": 1}\0[]\0");
    /* the same list twice, by two ways */
    const char *lists =
        "{\"$id\": \"http://x/root\", \"prefixItems\": [{\"$ref\": \"numbers\"}, {\"$ref\": \"texts\"}], \"$defs\": {"
        "\"n\": {\"$id\": \"numbers\", \"$ref\": \"list\", \"$defs\": {\"i\": {\"$dynamicAnchor\": \"item\", \"type\": \"number\"}}},"
        "\"t\": {\"$id\": \"texts\", \"$ref\": \"list\", \"$defs\": {\"i\": {\"$dynamicAnchor\": \"item\", \"type\": \"string\"}}},"
        "\"l\": {\"$id\": \"list\", \"type\": \"array\", \"items\": {\"$dynamicRef\": \"#item\"}, \"$defs\": {\"any\": "
        "{\"$dynamicAnchor\": \"item\"}}}}}";
    check(GR_JSON_SCHEMA, lists, "[[1, 2], [\"a\"]]\0[[], []]\0", "[[1, \"a\"]]\0[[], [1]]\0[[\"a\"]]\0");
    /* a plain $ref to a dynamic anchor is one */
    check(GR_JSON_SCHEMA, "{\"$id\": \"http://x/a\", \"$dynamicAnchor\": \"n\", \"properties\": {\"b\": {\"$ref\": \"b\"}}, \"$defs\": {"
                          "\"b\": {\"$id\": \"b\", \"$dynamicAnchor\": \"n\", \"type\": \"array\", \"items\": {\"$ref\": \"#n\"}}}}",
          "{\"b\": [[[]]]}\0", "{\"b\": [1]}\0{\"b\": [{}]}\0");
    const char *recursive =
        "{\"$schema\": \"https://json-schema.org/draft/2019-09/schema\", \"$id\": \"http://x/strict\", \"$recursiveAnchor\": %s,"
        "\"$ref\": \"tree\", \"unevaluatedProperties\": false, \"$defs\": {\"t\": {\"$id\": \"tree\", \"$recursiveAnchor\": true,"
        "\"type\": \"object\", \"properties\": {\"v\": true, \"c\": {\"$recursiveRef\": \"#\"}}}}}";
    char text[1000];
    snprintf(text, sizeof text, recursive, "true");
    check(GR_JSON_SCHEMA, text, "{\"c\": {\"v\": 1}}\0", "{\"c\": {\"w\": 1}}\0{\"w\": 1}\0");
    snprintf(text, sizeof text, recursive, "false");
    check(GR_JSON_SCHEMA, text, "{\"c\": {\"w\": 1}}\0", "{\"w\": 1}\0");
}

static void unevaluated_items(void **state)
{
    (void)state;
    check(GR_JSON_SCHEMA, "{\"type\": \"array\", \"prefixItems\": [true], \"contains\": {\"type\": \"string\"}, \"unevaluatedItems\": {\"type\": \"null\"}}",
          "[1, \"a\", null, \"b\"]\0[\"a\"]\0[true, \"a\"]\0", "[1]\0[1, 2, \"a\"]\0[\"a\", 1]\0");
    /* in 2019-09 contains evaluates nothing */
    check(GR_JSON_SCHEMA, "{\"$schema\": \"https://json-schema.org/draft/2019-09/schema\", \"type\": \"array\", \"items\": [true],"
                          "\"contains\": {\"type\": \"string\"}, \"unevaluatedItems\": false}",
          "[\"a\"]\0", "[\"a\", \"b\"]\0[1, \"a\"]\0");
}

/* Identifiers that are given twice matter where one of them is meant. */
static void twice(void **state)
{
    (void)state;
    check(GR_JSON_SCHEMA, "{\"properties\": {\"a\": {\"$id\": \"http://x/y\", \"type\": \"null\"}, \"b\": {\"$id\": \"http://x/y\", \"type\": \"array\"}}}",
          "{\"a\": null, \"b\": []}\0", "{\"a\": []}\0");
    refused(GR_JSON_SCHEMA, "{\"$ref\": \"http://x/y\", \"properties\": {\"a\": {\"$id\": \"http://x/y\"}, \"b\": {\"$id\": \"http://x/y\"}}}", "#/$ref",
            "two schemas with the same identifier");
}

/* Schemas that lead from one to the next take stack: 20,000 of them once ended the process. */
static void long_chains(void **state)
{
    (void)state;
    static const char *const links[] = {"{\"$ref\": \"#/$defs/%u\"}", "{\"allOf\": [{\"$ref\": \"#/$defs/%u\"}]}",
                                        "{\"not\": {\"$ref\": \"#/$defs/%u\"}}", "{\"if\": {\"$ref\": \"#/$defs/%u\"}, \"then\": true}"};
    enum { CHAIN = 30000, ROOM = 80 };
    char *text = malloc((size_t)CHAIN * ROOM);
    assert_non_null(text);
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        char *at = text + sprintf(text, "{\"$ref\": \"#/$defs/0\", \"$defs\": {");
        for (unsigned k = 0; k < CHAIN; k++) {
            at += sprintf(at, "\"%u\": ", k);
            at += sprintf(at, links[i], k + 1);
            at += sprintf(at, ", ");
        }
        sprintf(at, "\"%u\": true}}", CHAIN);
        refused(GR_JSON_SCHEMA, text, NULL, "schemas that lead from one to the next");
    }
    free(text);
}

static void hostile(void **state)
{
    (void)state;
    struct gr_grammar *g;
    struct gr_error e;
    size_t n = 60000;
    char *nested = malloc(2 * n + 100);
    assert_non_null(nested);
    memset(nested, '(', n);
    memset(nested + n, ')', n);
    nested[2 * n] = 0;
    refused(GR_REGEX, nested, NULL, "nested too deeply");
    memcpy(nested, "root ::= ", 9);
    refused(GR_GBNF, nested, NULL, "nested too deeply");
    free(nested);
    refused(GR_REGEX, "((((a{999}){999}){999}){999}){999}", NULL, "too large");
    refused(GR_REGEX, "(.*a){30}.{30}b.*[ab]{14}(a|b)*a(a|b){25}", NULL, "too large");
    const char *deep = "{\"oneOf\": [{\"$ref\": \"#/$defs/a\"}, {\"$ref\": \"#/$defs/b\"}], "
                       "\"$defs\": {\"a\": {\"oneOf\": [{\"$ref\": \"#/$defs/b\"}, {\"$ref\": "
                       "\"#/$defs/b\"}]}, \"b\": {\"oneOf\": [{\"required\": [\"x\"]}, "
                       "{\"required\": [\"y\"]}, {\"required\": [\"z\"]}, {\"required\": "
                       "[\"w\"]}]}}}";
    if (gr_compile(GR_JSON_SCHEMA, deep, strlen(deep), NULL, &g, &e)) gr_destroy(g);
    struct gr_options small = {.max_memory_bytes = 2000};
    assert_false(gr_compile(GR_REGEX, "[a-z]{20}", 9, &small, &g, &e));
    /* ambiguity: sets of equal stacks are one */
    g = compile(GR_GBNF, "root ::= e\ne ::= e e | \"a\"");
    char as[400];
    memset(as, 'a', sizeof as);
    struct gr_state *s = gr_state_create(g);
    assert_int_equal(gr_try(s, as, sizeof as), sizeof as);
    gr_state_destroy(s);
    gr_destroy(g);
}

static void hashes(void **state)
{
    (void)state;
    uint64_t a[2], b[2];
    struct gr_options none = {.space = GR_SPACE_NONE};
    gr_hash(GR_REGEX, "abc", 3, NULL, a);
    gr_hash(GR_REGEX, "abc", 3, NULL, b);
    assert_memory_equal(a, b, sizeof a);
    gr_hash(GR_REGEX, "abd", 3, NULL, b);
    assert_true(a[0] != b[0] && a[1] != b[1]);
    gr_hash(GR_GBNF, "abc", 3, NULL, b);
    assert_true(a[0] != b[0]);
    gr_hash(GR_REGEX, "abc", 3, &none, b);
    assert_true(a[0] != b[0]);
}

static void lark(void **state)
{
    (void)state;
    check(GR_LARK,
          "start: sum // sums\n?sum: product | sum \"+\" product -> add\n?product: atom\n"
          "  | product \"*\" atom\n?atom: NUMBER | \"-\" atom | NAME | \"(\" sum \")\"\n"
          "%import common.CNAME -> NAME\n%import common (NUMBER, WS_INLINE)\n%ignore WS_INLINE\n",
          "1 + 2*x\0(a)\0 --1 \0", "1 ++ 2\0(1\0+\0\1\0");
    check(GR_LARK, "start: \"a\"..\"c\" ~ 2..3 [X] /\\d/\nX.2: /x+/i | \"y\"i\n",
          "ab7\0abcXx5\0baY1\0", "a7\0ab\0adx7\0abcc7\0");
    check(GR_LARK, "start: \"<\" %json {\"type\": \"integer\", \"minimum\": 5} \">\"", "<5>\0",
          "<4>\0<>\0");
    refused(GR_LARK, "start: x", NULL, "'x' is used and not defined");
    refused(GR_LARK, "start: /a", NULL, "has no end");
    refused(GR_LARK, "%import python.NAME\nstart: \"a\"", NULL, "common terminals");
    refused(GR_LARK, "start: a{b}", NULL, "templates");
}

static void tags(void **state)
{
    (void)state;
    check(GR_STRUCTURAL_TAG,
          "{\"structures\": [{\"begin\": \"<f=a>\", \"schema\": {\"type\": \"integer\"}, \"end\": "
          "\"</f>\"}, {\"begin\": \"<f=b>\", \"schema\": {\"type\": \"null\"}, \"end\": "
          "\"</f>\"}], \"triggers\": [\"<f=\"]}",
          "hello\0\1\0hi <f=a>1</f> and <f=b>null</f>\0<<f <f=a>1</f>\0",
          "<f=\0<f=c>1</f>\0<f=a>null</f>\0<f=a>1\0");
    check(GR_STRUCTURAL_TAG,
          "{\"format\": {\"type\": \"sequence\", \"elements\": [{\"type\": \"tag\", \"begin\": "
          "\"<t>\", \"content\": {\"type\": \"any_text\"}, \"end\": \"</t>\"}, {\"type\": \"or\", "
          "\"elements\": [{\"type\": \"const_string\", \"value\": \"x\"}, {\"type\": \"regex\", "
          "\"pattern\": \"[0-9]+\"}]}]}}",
          "<t>a </ </t>12\0<t></t>x\0", "<t>a</t>\0<t>a</t></t>x\0x\0");
    check(GR_STRUCTURAL_TAG,
          "{\"format\": {\"type\": \"tags_with_separator\", \"separator\": \", \", \"tags\": "
          "[{\"begin\": \"[\", \"content\": {\"type\": \"json_schema\", \"json_schema\": {\"enum\": "
          "[1, 2]}}, \"end\": \"]\"}], \"at_least_one\": true}}",
          "[1]\0[1], [2], [1]\0", "\1\0[1],[2]\0[3]\0");
    refused(GR_STRUCTURAL_TAG, "{\"structures\": [{\"begin\": \"a\", \"schema\": {}, \"end\": \"b\"}], "
                               "\"triggers\": [\"x\"]}", NULL, "no trigger begins tag number 0");
}

/* Every bit of the masks on the way through a text is what trying the token says. */
static void check_masks(struct gr_vocab *v, const struct tok *t, enum gr_kind kind,
                        const char *grammar, const char *text)
{
    struct gr_grammar *g = compile(kind, grammar);
    struct gr_state *s = gr_state_create(g);
    uint64_t bits[32];
    for (size_t at = 0;; at++) {
        assert_true(gr_mask(s, v, bits));
        for (uint32_t i = 0; i < tok_count(t); i++) {
            struct tok_info info;
            assert_int_equal(tok_token_info(t, i, &info), TOK_OK);
            bool fits = info.type == TOK_TYPE_NORMAL && info.n_bytes &&
                        gr_try(s, (const char *)info.bytes, info.n_bytes) == info.n_bytes;
            if (fits != (bits[i / 64] >> i % 64 & 1))
                fail_msg("%s after %.*s: token %u", grammar, (int)at, text, i);
        }
        if (!text[at]) break;
        if (!gr_advance(s, text + at, 1)) fail_msg("%s does not take %s at %zu", grammar, text, at);
    }
    gr_state_destroy(s);
    gr_destroy(g);
}

/* n <= 4096 texts, of which the first three are <unk> and two control tokens. Lives as long as the fixture. */
static struct gr_vocab *make_vocab(struct fixture *f, const char *const *tokens, size_t n,
                                   const uint8_t **trie, size_t *n_trie)
{
    enum { MOST = 4096 };
    static const float scores[MOST];
    static int32_t types[MOST];
    assert_in_range(n, 3, MOST);
    for (size_t i = 0; i < n; i++) types[i] = i == 0 ? TOK_TYPE_UNKNOWN : i < 3 ? TOK_TYPE_CONTROL : TOK_TYPE_NORMAL;
    fixture_begin(f, "llama", "default");
    fixture_tokens(f, tokens, n);
    f->desc.types = types;
    f->desc.scores = scores;
    fixture_build(f);
    token_trie_build(&f->arena, f->blob, trie, n_trie);
    struct gr_vocab *v = gr_vocab_create(*trie, *n_trie);
    assert_non_null(v);
    return v;
}

static void masks(void **state)
{
    (void)state;
    static const char *const tokens[] = {
        "<unk>", "<s>", "</s>", "{", "}", "\"", "a", "b", "ab", "abc", ":", "{\"", "\":", "1", "12", "123", ",",
        " ", "\":1", "\":1}", "\\", "\\n", "\\u", "u0061", "[", "]", "],", "true", "tr", "ue", "null",
        "-", ".5", "1.5", "e3", "\xc3\xa9", "e\xcc\x81", "\",\"", "a\"", "b\",", "}}", "]}", "ab",
        "0", "x", "xx", "abcabcabcabcabcabcabcabcabcabcabcabcabc", "\n", "  ", "(", ")", "+"};
    enum { N = sizeof tokens / sizeof *tokens };
    struct fixture f;
    const uint8_t *trie;
    size_t n;
    struct gr_vocab *v = make_vocab(&f, tokens, N, &trie, &n);
    assert_int_equal(gr_vocab_tokens(v), N);

    /* by hand: the beginning of an object, white space before it, nothing else */
    struct gr_grammar *g = compile(GR_JSON_OBJECT, "");
    struct gr_state *s = gr_state_create(g);
    uint64_t bits[1];
    assert_true(gr_mask(s, v, bits));
    assert_int_equal(bits[0], UINT64_C(1) << 3 | UINT64_C(1) << 11 | UINT64_C(1) << 17 |
                                  UINT64_C(1) << 47 | UINT64_C(1) << 48);
    gr_state_destroy(s);
    gr_destroy(g);

    check_masks(v, &f.tok, GR_JSON_SCHEMA, "true", "{\"ab\": [1.5, \"\\u0061b\", null], \"a\": {}}");
    check_masks(v, &f.tok, GR_JSON_SCHEMA,
                "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\", \"minimum\": "
                "10}, \"ab\": {\"enum\": [\"a\", \"abc\"]}}, \"required\": [\"a\"], "
                "\"additionalProperties\": false}",
                "{\"ab\":\"abc\",\"a\":123}");
    check_masks(v, &f.tok, GR_JSON_SCHEMA,
                "{\"type\": \"array\", \"uniqueItems\": true, \"items\": {\"type\": \"string\", "
                "\"minLength\": 2, \"maxLength\": 5}}",
                "[\"ab\",\"abc\", \"\\u0061\\u0062x\"]");
    check_masks(v, &f.tok, GR_JSON_SCHEMA,
                "{\"minProperties\": 2, \"type\": \"object\", \"patternProperties\": {\"^a\": "
                "{\"type\": \"number\"}}}",
                "{\"a\":1,\"ab\":2}");
    check_masks(v, &f.tok, GR_JSON_SCHEMA,
                "{\"anyOf\": [{\"type\": \"string\", \"pattern\": \"^[^b]*$\"}, {\"type\": \"string\", "
                "\"maxLength\": 3}]}",
                "\"abc\"");
    check_masks(v, &f.tok, GR_GBNF, "root ::= \"(\" e \")\"\ne ::= e \"+\" e | [ab]+ | root", "(ab+(a))");
    check_masks(v, &f.tok, GR_REGEX, "(a|b|c)*[^x]{0,3}x*", "abcabcabxx");
    gr_vocab_destroy(v);

    /* damage is noticed or harmless */
    uint8_t *copy = malloc(n);
    assert_non_null(copy);
    for (size_t i = 0; i < n; i += 3) {
        memcpy(copy, trie, n);
        copy[i] ^= 0x81;
        gr_vocab_destroy(gr_vocab_create(copy, n));
    }
    assert_null(gr_vocab_create(trie, n - 4));
    assert_null(gr_vocab_create(trie, 3));
    free(copy);
    fixture_end(&f);
}

/* Large subtrees of every slice, and of what is just none of it: all texts of one to three pieces. */
static void slices(void **state)
{
    (void)state;
    static const char *const pieces[] = {" ",        "a",        "z",   "Z",       "9", "_", "\xc3\xa9",
                                         "\xe6\x97\xa5", "\xe3\x80\x80", "\"", "\xe3", "\xee\xbb\x80"};
    enum { P = sizeof pieces / sizeof *pieces, N = 3 + P + P * P + P * P * P };
    static char texts[N][16];
    static const char *tokens[N];
    struct fixture f;
    const uint8_t *trie;
    size_t n = 0, n_trie;
    strcpy(texts[n++], "<unk>");
    strcpy(texts[n++], "<s>");
    strcpy(texts[n++], "</s>");
    for (int i = 0; i < P; i++) {
        strcpy(texts[n++], pieces[i]);
        for (int k = 0; k < P; k++) {
            snprintf(texts[n++], 16, "%s%s", pieces[i], pieces[k]);
            for (int m = 0; m < P; m++)
                snprintf(texts[n++], 16, "%s%s%s", pieces[i], pieces[k], pieces[m]);
        }
    }
    for (size_t i = 0; i < n; i++) tokens[i] = texts[i];
    struct gr_vocab *v = make_vocab(&f, tokens, n, &trie, &n_trie);
    static const struct {
        const char *schema, *text;
    } cases[] = {
        {"{\"type\": \"string\"}", "\"a 9\""},
        {"{\"type\": \"string\", \"maxLength\": 4}", "\"\xc3\xa9""a  \""},
        {"{\"type\": \"string\", \"minLength\": 3, \"maxLength\": 4}", "\"\xe6\x97\xa5zz\""},
        {"{\"type\": \"string\", \"pattern\": \"^[a-z_]*$\"}", "\"az_\""},
        {"{\"type\": \"string\", \"pattern\": \"^[a-z]{2,5}$\"}", "\"azaz\""},
        {"{\"type\": \"string\", \"pattern\": \"^[a-zA-Z0-9]{1,4}$\"}", "\"a9Z\""},
        {"{\"type\": \"string\", \"pattern\": \"^[^_\\\\s]+_[^_\\\\s]+$\"}", "\"\xc3\xa9""9_\xee\xbb\x80\""},
        {"{\"type\": \"string\", \"pattern\": \"^(\\\\S+\\\\s+){0,2}\\\\S+$\", \"maxLength\": 6}",
         "\"a z a\""},
        {"{\"type\": \"string\", \"pattern\": \"^(\\\\S+\\\\s+){0,2}\\\\S+$\", \"minLength\": 5}",
         "\"aa zz Z\""},
        {"{\"type\": \"string\", \"pattern\": \"^.{3}$\"}", "\"\xe6\x97\xa5  \""},
        {"{\"type\": \"string\", \"pattern\": \"^(a.*[z9]{3})?$\", \"maxLength\": 6}", "\"a_zzz\""},
        {"{\"anyOf\": [{\"type\": \"string\", \"pattern\": \"^[a-z]*$\"}, {\"type\": \"string\", "
         "\"pattern\": \"^[^a]*$\", \"maxLength\": 5}]}",
         "\"zz\""},
        {"{\"type\": \"object\", \"patternProperties\": {\"^[a-z]{1,4}$\": true}, "
         "\"additionalProperties\": false, \"maxProperties\": 2, \"required\": [\"az\"]}",
         "{\"az\":\"\"}"},
        {"{\"type\": \"object\", \"propertyNames\": {\"pattern\": \"^\\\\S*$\"}, \"minProperties\": 2}",
         "{\"\xc3\xa9""a\":1,\"9\":2}"},
        {"{\"patternProperties\": {\"^(a|z{1,2}|9.*)$\": true}, \"additionalProperties\": false, "
         "\"minProperties\": 5}",
         "{\"a\":\"\",\"zz\":1,\"9z\":2,\"z\":3,\"9\":1}"},
        {"{\"type\": \"array\", \"uniqueItems\": true, \"items\": {\"type\": \"string\", \"pattern\": "
         "\"^[a-z ]*$\"}}",
         "[\"az\",\"a z\"]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_masks(v, &f.tok, GR_JSON_SCHEMA, cases[i].schema, cases[i].text);
    gr_vocab_destroy(v);
    fixture_end(&f);
}

/* Ranges whose ends need other bytes before the last than the rest. */
static void code_points(void **state)
{
    (void)state;
    static const struct {
        const char *pattern;
        uint32_t lo, hi;
    } sets[] = {{"[\\ue000-\\ufefe]", 0xe000, 0xfefe},
                {"[\\u0800-\\u8ffe]", 0x800, 0x8ffe},
                {"[\\u0081-\\u07fe]", 0x81, 0x7fe},
                {"[\\u{10000}-\\u{4ffbe}]", 0x10000, 0x4ffbe},
                {"[\\u{10041}-\\u{fefff}]", 0x10041, 0xfefff}};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        struct gr_grammar *g = compile(GR_REGEX, sets[i].pattern);
        struct gr_state *s = gr_state_create(g);
        assert_non_null(s);
        for (uint32_t c = 0x80; c < 0x110000; c++) {
            char b[4];
            if (c == 0xd800) c = 0xe000;
            size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
            for (size_t k = n; k-- > 1;) b[k] = (char)(0x80 | (c >> 6 * (n - 1 - k) & 0x3f));
            b[0] = (char)((n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0) | c >> 6 * (n - 1));
            bool in = c >= sets[i].lo && c <= sets[i].hi;
            if ((gr_try(s, b, n) == n) != in) fail_msg("%s: U+%X", sets[i].pattern, c);
        }
        gr_state_destroy(s);
        gr_destroy(g);
    }
}

/* In answers printable ASCII stands for itself, so keys and words are forced; the rest is as it was. */
static void few_escapes(void **state)
{
    (void)state;
    static const struct gr_options few = {.few_escapes = true};
    static const struct {
        const char *schema, *text;
        bool fits, fits_with_few;
    } cases[] = {
        {"{\"const\": \"ab\"}", "\"ab\"", true, true},
        {"{\"const\": \"ab\"}", "\"\\u0061b\"", true, false},
        {"{\"const\": \"a\\nb\"}", "\"a\\nb\"", true, true},
        {"{\"const\": \"a\\nb\"}", "\"a\\u000ab\"", true, true},
        {"{\"const\": \"a/\\\"\"}", "\"a\\/\\\"\"", true, true},
        {"{\"const\": \"a/\\\"\"}", "\"a/\\u0022\"", true, false},
        {"{\"const\": \"\xc3\xa9\"}", "\"\\u00e9\"", true, true},
        {"{\"type\": \"string\"}", "\"\\ud83d\\ude00\\u007f\\u0000\"", true, true},
        {"{\"type\": \"string\"}", "\"\\u007e\"", true, false},
        {"{\"type\": \"string\"}", "\"\\u0020\"", true, false},
        {"{\"required\": [\"k\"]}", "{\"\\u006b\": 1}", true, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int k = 0; k < 2; k++) {
            struct gr_grammar *g;
            struct gr_error e;
            const char *t = cases[i].schema;
            assert_true(gr_compile(GR_JSON_SCHEMA, t, strlen(t), k ? &few : NULL, &g, &e));
            struct gr_state *s = gr_state_create(g);
            bool fits = gr_advance(s, cases[i].text, strlen(cases[i].text)) && gr_is_accepting(s);
            if (fits != (k ? cases[i].fits_with_few : cases[i].fits)) fail_msg("%s, %d", cases[i].text, k);
            gr_state_destroy(s);
            gr_destroy(g);
        }
    }
    struct gr_grammar *g;
    struct gr_error e;
    char out[16] = {0};
    assert_true(gr_compile(GR_JSON_SCHEMA, "{\"const\": \"abc\"}", 16, &few, &g, &e));
    struct gr_state *s = gr_state_create(g);
    assert_true(gr_advance(s, "\"a", 2));
    assert_int_equal(gr_forced(s, out, sizeof out), 3);
    assert_string_equal(out, "bc\"");
    gr_state_destroy(s);
    gr_destroy(g);
}

/* Wherever a text comes to, it can go on or is complete, and what is complete is one of the values:
 * keys that must differ, some of whose beginnings run out while others do not. */
static void no_dead_ends(void **state)
{
    (void)state;
    static const char *const names[] = {"^(a|bc*)$", "^x*(a|bb)$", "^[ab]{1,2}$", "^(\\\\u00e9|\\\"|a{1,3}|\\\\\\\\+)$",
                                        "^(ab|ac|a{2}d*e)$", "^(a|b|[0-9]{2}x*)$"};
    static const unsigned keys[] = {4, 5, 6, 5, 4, 5};
    uint64_t random = 7;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        for (int run = 0; run < 400; run++) {
            char schema[300], text[600], all[600];
            struct gr_options o = {.few_escapes = run % 2, .max_space = 1, .space = GR_SPACE_NONE};
            struct gr_grammar *g;
            struct gr_error e;
            size_t n = 0, n_all;
            snprintf(schema, sizeof schema, "{\"type\": \"object\", \"patternProperties\": {\"%s\": {\"const\": 1}}, "
                     "\"additionalProperties\": false, \"minProperties\": %u}", names[k], keys[k]);
            if (!gr_compile(GR_JSON_SCHEMA, schema, strlen(schema), &o, &g, &e)) fail_msg("%s: %s", schema, e.message);
            struct gr_state *s = gr_state_create(g);
            while (n < 500 && !gr_is_accepting(s)) {
                n_all = 0;
                for (unsigned c = 1; c < 256; c++) {
                    char byte = (char)c;
                    if (gr_try(s, &byte, 1)) all[n_all++] = byte;
                }
                if (!n_all) fail_msg("%s: nothing goes on after %.*s", schema, (int)n, text);
                random = random * 6364136223846793005u + 1442695040888963407u;
                text[n] = all[(random >> 33) % n_all];
                /* half of the keys that can end do, so that few are long */
                for (size_t i = 0; i < n_all; i++)
                    if (all[i] == '"' && random >> 62) text[n] = '"';
                assert_true(gr_advance(s, text + n++, 1));
            }
            gr_state_destroy(s);
            gr_destroy(g);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_dead_ends), cmocka_unit_test(few_escapes), cmocka_unit_test(slices), cmocka_unit_test(code_points), cmocka_unit_test(regex),        cmocka_unit_test(choice),
        cmocka_unit_test(gbnf),         cmocka_unit_test(json_values),
        cmocka_unit_test(json_numbers), cmocka_unit_test(json_objects),
        cmocka_unit_test(forced),       cmocka_unit_test(formats), cmocka_unit_test(dynamic_references), cmocka_unit_test(unevaluated_items),
        cmocka_unit_test(twice), cmocka_unit_test(long_chains), cmocka_unit_test(hostile),
        cmocka_unit_test(hashes),       cmocka_unit_test(lark),
        cmocka_unit_test(tags),         cmocka_unit_test(masks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
