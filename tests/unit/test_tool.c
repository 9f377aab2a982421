// SPDX-License-Identifier: Apache-2.0
/* Tool calls by family: answers written by hand, at once and in pieces of every size. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/grammar/grammar.h"
#include "runtime/grammar/tool.h"

/* Events as text: c[...] content, r[...] reasoning, NAME(arguments). Pieces of one kind join. */
struct log {
    char text[4096];
    size_t n;
    int kind;
};

static void add(struct log *l, const char *s, size_t n)
{
    assert_true(l->n + n < sizeof l->text);
    memcpy(l->text + l->n, s, n);
    l->n += n;
    l->text[l->n] = 0;
}

static void close_kind(struct log *l)
{
    if (l->kind == TOOL_CONTENT || l->kind == TOOL_REASONING) add(l, "]", 1);
    l->kind = -1;
}

static void on_event(void *user, const struct tool_event *e)
{
    struct log *l = user;
    if (l->kind != (int)e->kind || e->kind == TOOL_BEGIN) {
        close_kind(l);
        if (e->kind == TOOL_CONTENT) add(l, "c[", 2);
        if (e->kind == TOOL_REASONING) add(l, "r[", 2);
    }
    l->kind = (int)e->kind;
    add(l, e->text, e->n);
    if (e->kind == TOOL_BEGIN) add(l, "(", 1);
    if (e->kind == TOOL_END) add(l, ")", 1);
}

static void parse(enum tool_family f, const char *answer, size_t piece, unsigned flags,
                  struct log *l)
{
    struct tool_parser *p = tool_parser_create(f, flags & 1, flags >> 1 & 1, on_event, l);
    assert_non_null(p);
    *l = (struct log){.kind = -1};
    for (size_t at = 0, n = strlen(answer); at < n; at += piece)
        assert_true(tool_parser_push(p, answer + at, n - at < piece ? n - at : piece));
    assert_true(tool_parser_finish(p));
    close_kind(l);
    tool_parser_destroy(p);
}

static void expect(enum tool_family f, unsigned flags, const char *answer, const char *want)
{
    struct log l;
    for (size_t piece = 1; piece <= strlen(answer) + 1; piece++) {
        parse(f, answer, piece, flags, &l);
        if (strcmp(l.text, want))
            fail_msg("%s, pieces of %zu: %s\n gives %s\n not   %s", tool_family_name(f), piece,
                     answer, l.text, want);
    }
}

static void hermes(void **state)
{
    (void)state;
    expect(TOOL_HERMES, 0, "Hello <b>.", "c[Hello <b>.]");
    expect(TOOL_HERMES, 0,
           "Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, \"}\"]}}\n</tool_call>",
           "c[Let me see.]f({\"a\": [1, \"}\"]})");
    expect(TOOL_HERMES, 0,
           "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n"
           "{\"arguments\": {\"x\": \"\\\"\"}, \"name\": \"g\"}\n</tool_call>\n",
           "f({})g({\"x\": \"\\\"\"})");
    expect(TOOL_HERMES, 1, "<think>\nhm </thin\n</think>\n\n<tool_call>{\"name\": \"f\"}</tool_call>",
           "r[\nhm </thin\n]f({})");
    expect(TOOL_HERMES, 3, "hm</think>yes", "r[hm]c[yes]");
    expect(TOOL_HERMES, 0, "<tool_call>no json", "c[<tool_call>no json]");
    expect(TOOL_HERMES, 0, "<tool_call>{\"nam\": 1}</tool_call>x", "c[<tool_call>{\"nam\": 1}</tool_call>x]");
    /* cut off by the length */
    expect(TOOL_HERMES, 0, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"b", "f({\"a\": \"b)");
}

static void json_families(void **state)
{
    (void)state;
    expect(TOOL_LLAMA3, 0, "{\"name\": \"f\", \"parameters\": {\"q\": \"x\"}}", "f({\"q\": \"x\"})");
    expect(TOOL_LLAMA3, 0, "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", "
                           "\"parameters\": {\"a\": 1}}", "f({})g({\"a\": 1})");
    expect(TOOL_LLAMA3, 0, "It is 4.", "c[It is 4.]");
    expect(TOOL_LLAMA3, 0, "{\"answer\": 4}", "c[{\"answer\": 4}]");
    expect(TOOL_JSON, 0, "[{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"type\": \"function\", "
                         "\"function\": {\"name\": \"g\", \"arguments\": {}}}]",
           "f({\"a\": 1})g({})");
    expect(TOOL_MISTRAL, 0, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"id\": "
                            "\"abcdefghi\"}, {\"name\": \"g\", \"arguments\": {}}]",
           "f({\"a\": 1})g({})");
    expect(TOOL_MISTRAL, 0, "plain [text]", "c[plain [text]]");
    expect(TOOL_MISTRAL_ARGS, 0, "so[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g[CALL_ID]123[ARGS]{}",
           "c[so]f({\"a\": 1})g({})");
    expect(TOOL_MISTRAL_ARGS, 0, "[TOOL_CALLS]f{\"a\": 1}", "f({\"a\": 1})");
    expect(TOOL_FUNCTOOLS, 0, "so functools[{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", \"arguments\": {}}]",
           "c[so]f({\"a\": 1})g({})");
    expect(TOOL_FUNCTOOLS, 0, "functools are [nothing]", "c[functools are [nothing]]");
}

#define BAR "\xef\xbd\x9c"
#define LOW "\xe2\x96\x81"
#define DS(x) "<" BAR "tool" LOW x BAR ">"

static void marked_families(void **state)
{
    (void)state;
    expect(TOOL_DEEPSEEK, 0,
           "ok" DS("calls" LOW "begin") DS("call" LOW "begin") "f" DS("sep") "{\"a\": 1}" DS(
               "call" LOW "end") DS("call" LOW "begin") "g" DS("sep") "{}" DS("call" LOW "end")
               DS("calls" LOW "end"),
           "c[ok]f({\"a\": 1})g({})");
    expect(TOOL_DEEPSEEK_FENCED, 1,
           "<think>a</think>" DS("calls" LOW "begin") DS("call" LOW "begin") "function" DS(
               "sep") "f\n```json\n{\"a\": 1}\n```" DS("call" LOW "end") DS("calls" LOW "end"),
           "r[a]f({\"a\": 1})");
    expect(TOOL_FUNCTIONARY, 0, "all\nHi >> there", "c[Hi >> there]");
    expect(TOOL_FUNCTIONARY, 0, "all\nHi\n>>>f\n{\"a\": 1}>>>g\n{}", "c[Hi]f({\"a\": 1})g({})");
    expect(TOOL_FUNCTION_TAG, 0, "So: <function=f>{\"a\": \"<\"}</function> <function=g>{}</function>",
           "c[So:]f({\"a\": \"<\"})g({})");
    expect(TOOL_GPT_OSS, 0,
           "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
           "to=functions.f <|constrain|>json<|message|>{\"a\": 1}<|call|>",
           "r[Hm.]f({\"a\": 1})");
    expect(TOOL_GPT_OSS, 0, "<|channel|>final<|message|>Hello<|return|>", "c[Hello]");
    expect(TOOL_GPT_OSS, 0, "<|channel|>analysis<|message|>x<|end|><|start|>assistant<|channel|>final"
                            "<|message|>y", "r[x]c[y]");
}

static void families_of_templates(void **state)
{
    (void)state;
    static const struct {
        const char *source;
        enum tool_family f;
    } cases[] = {
        {"...<|channel|>final<|message|>...", TOOL_GPT_OSS},
        {"{{ '[TOOL_CALLS][' }}", TOOL_MISTRAL},
        {"'[TOOL_CALLS]' + name + '[ARGS]'", TOOL_MISTRAL_ARGS},
        {"'" DS("call" LOW "begin") "'", TOOL_DEEPSEEK},
        {"'" DS("call" LOW "begin") "' '```json'", TOOL_DEEPSEEK_FENCED},
        {"'>>>all\\n'", TOOL_FUNCTIONARY},
        {"' functools[' + calls", TOOL_FUNCTOOLS},
        {"<tool_call>\\n{\"name\"", TOOL_HERMES},
        {"<tool_call>\\n<function=x>\\n<parameter=y>", TOOL_NONE},
        {"'<function=' + name", TOOL_FUNCTION_TAG},
        {"\"<|python_tag|>\"", TOOL_LLAMA3},
        {"{{ messages }}", TOOL_JSON},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(tool_family_of(cases[i].source, strlen(cases[i].source)), cases[i].f);
}

/* A forced call: the prefix and what the grammar allows parse as the call. */
static void forced(void **state)
{
    (void)state;
    const char *schema = "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}}, "
                         "\"required\": [\"a\"], \"additionalProperties\": false}";
    const struct tool_function fs[] = {{"get_x", 5, schema, strlen(schema)}, {"say \"hi\"", 8, NULL, 0}};
    for (int f = TOOL_JSON; f <= TOOL_GPT_OSS; f++) {
        for (size_t n = 1; n <= 2; n++) {
            char *prefix, *text, answer[512], out[256];
            struct gr_grammar *g;
            struct gr_error e;
            struct log l;
            assert_true(tool_forced((enum tool_family)f, fs, n, false, &prefix, &text));
            if (!gr_compile(GR_STRUCTURAL_TAG, text, strlen(text), NULL, &g, &e))
                fail_msg("%s: %s", text, e.message);
            struct gr_state *s = gr_state_create(g);
            snprintf(answer, sizeof answer, "%s", prefix);
            for (int step = 0; step < 4 && !gr_is_finished(s); step++) {
                static const char *const tries[] = {"get_x", "{\"a\": 7}", "\"a\": 7}"};
                size_t k = gr_forced(s, out, sizeof out - 1);
                out[k] = 0;
                assert_true(gr_advance(s, out, k));
                strcat(answer, out);
                for (int t = 0; t < 3; t++) {
                    if (!gr_advance(s, tries[t], strlen(tries[t]))) continue;
                    strcat(answer, tries[t]);
                    break;
                }
            }
            if (!gr_is_accepting(s)) fail_msg("%s is not all of %s", answer, text);
            gr_state_destroy(s);
            gr_destroy(g);
            parse((enum tool_family)f, answer, 3, 0, &l);
            if (strcmp(l.text, "get_x({\"a\": 7})"))
                fail_msg("%s: %s gives %s", tool_family_name((enum tool_family)f), answer, l.text);
            free(prefix);
            free(text);
        }
    }
    char *prefix, *text;
    assert_false(tool_forced(TOOL_NONE, fs, 1, false, &prefix, &text));
    assert_false(tool_forced(TOOL_JSON, fs, 0, true, &prefix, &text));
}

/* Several calls in a row, written as the family separates them; each can also be the last. */
static void forced_calls(void **state)
{
    (void)state;
    const char *schema = "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}}, "
                         "\"required\": [\"a\"], \"additionalProperties\": false}";
    const struct tool_function fs[] = {{"get_x", 5, schema, strlen(schema)}, {"put_y", 5, schema, strlen(schema)}};
    static const struct {
        enum tool_family f;
        const char *prefix, *first, *second, *close; /* of a call to get_x and one to put_y */
    } cases[] = {
        {TOOL_JSON, "", "{\"name\":\"get_x\",\"arguments\":{\"a\": 7}}",
         "\n{\"name\":\"put_y\",\"arguments\":{\"a\":8}}", ""},
        {TOOL_HERMES, "<tool_call>\n", "{\"name\": \"get_x\", \"arguments\": {\"a\": 7}}",
         "\n</tool_call>\n<tool_call>\n{\"name\": \"put_y\", \"arguments\": {\"a\":8}}", ""},
        {TOOL_LLAMA3, "", "{\"name\": \"get_x\", \"parameters\": {\"a\": 7}}",
         "; {\"name\": \"put_y\", \"parameters\": {\"a\":8}}", ""},
        {TOOL_MISTRAL, "[TOOL_CALLS][", "{\"name\": \"get_x\", \"arguments\": {\"a\": 7}}",
         ", {\"name\": \"put_y\", \"arguments\": {\"a\":8}}", "]"},
        {TOOL_MISTRAL_ARGS, "[TOOL_CALLS]", "get_x[ARGS]{\"a\": 7}", "[TOOL_CALLS]put_y[ARGS]{\"a\":8}", ""},
        {TOOL_DEEPSEEK, DS("calls" LOW "begin") DS("call" LOW "begin"), "get_x" DS("sep") "{\"a\": 7}",
         DS("call" LOW "end") "\n" DS("call" LOW "begin") "put_y" DS("sep") "{\"a\":8}", ""},
        {TOOL_DEEPSEEK_FENCED, DS("calls" LOW "begin") DS("call" LOW "begin") "function" DS("sep"),
         "get_x\n```json\n{\"a\": 7}\n```",
         DS("call" LOW "end") "\n" DS("call" LOW "begin") "function" DS("sep") "put_y\n```json\n{\"a\":8}\n```", ""},
        {TOOL_FUNCTIONARY, "", "get_x\n{\"a\": 7}", "\n>>>put_y\n{\"a\":8}", ""},
        {TOOL_FUNCTOOLS, "functools[", "{\"name\": \"get_x\", \"arguments\": {\"a\": 7}}",
         ", {\"name\": \"put_y\", \"arguments\": {\"a\":8}}", "]"},
        {TOOL_FUNCTION_TAG, "", "<function=get_x>{\"a\": 7}</function>", "\n<function=put_y>{\"a\":8}</function>", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *prefix, *text, answer[512];
        struct gr_grammar *g;
        struct gr_error e;
        struct log l;
        assert_true(tool_forced(cases[i].f, fs, 2, true, &prefix, &text));
        assert_string_equal(prefix, cases[i].prefix);
        assert_true(gr_compile(GR_STRUCTURAL_TAG, text, strlen(text), NULL, &g, &e));
        for (int calls = 1; calls <= 3; calls++) {
            struct gr_state *s = gr_state_create(g);
            snprintf(answer, sizeof answer, "%s%s%s%s%s", prefix, cases[i].first, calls > 1 ? cases[i].second : "",
                     calls > 2 ? cases[i].second : "", cases[i].close);
            if (!gr_advance(s, answer + strlen(prefix), strlen(answer) - strlen(prefix)))
                fail_msg("%s refuses %s", text, answer);
            assert_true(gr_is_accepting(s));
            gr_state_destroy(s);
            parse(cases[i].f, answer, 3, 0, &l);
            static const char *const right[] = {"get_x({\"a\": 7})", "get_x({\"a\": 7})put_y({\"a\":8})",
                                                "get_x({\"a\": 7})put_y({\"a\":8})put_y({\"a\":8})"};
            if (strcmp(l.text, right[calls - 1]))
                fail_msg("%s: %s gives %s", tool_family_name(cases[i].f), answer, l.text);
        }
        gr_destroy(g);
        free(prefix);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forced_calls), cmocka_unit_test(hermes),          cmocka_unit_test(json_families),
        cmocka_unit_test(marked_families), cmocka_unit_test(families_of_templates),
        cmocka_unit_test(forced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
