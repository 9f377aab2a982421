// SPDX-License-Identifier: Apache-2.0
/* Families of tool calls: which one a template has, and what an answer that is a call looks like. */
#include <stdlib.h>
#include <string.h>

#include "runtime/grammar/tool.h"

static bool has(const char *s, size_t n, const char *mark)
{
    size_t m = strlen(mark);
    for (size_t i = 0; i + m <= n; i++)
        if (s[i] == mark[0] && !memcmp(s + i, mark, m)) return true;
    return false;
}

enum tool_family tool_family_of(const char *s, size_t n)
{
    if (has(s, n, "<|channel|>") && has(s, n, "<|message|>")) return TOOL_GPT_OSS;
    if (has(s, n, "[TOOL_CALLS]")) return has(s, n, "[ARGS]") ? TOOL_MISTRAL_ARGS : TOOL_MISTRAL;
    if (has(s, n, "<\xef\xbd\x9ctool\xe2\x96\x81""call\xe2\x96\x81""begin\xef\xbd\x9c>"))
        return has(s, n, "```json") ? TOOL_DEEPSEEK_FENCED : TOOL_DEEPSEEK;
    if (has(s, n, "functools[")) return TOOL_FUNCTOOLS;
    if (has(s, n, ">>>all") || has(s, n, ">>>${recipient}")) return TOOL_FUNCTIONARY;
    if (has(s, n, "<parameter=") || has(s, n, "<arg_key>") || has(s, n, "<tool_calls>"))
        return TOOL_NONE;
    if (has(s, n, "<tool_call>")) return TOOL_HERMES;
    if (has(s, n, "<function=")) return TOOL_FUNCTION_TAG;
    if (has(s, n, "<|python_tag|>") || has(s, n, "\"parameters\": dictionary")) return TOOL_LLAMA3;
    return TOOL_JSON;
}

const char *tool_family_name(enum tool_family f)
{
    static const char *const names[] = {"none",     "json",         "hermes",   "llama3",
                                        "mistral",  "mistral-args", "deepseek", "deepseek-fenced",
                                        "functionary", "function-tag", "functools", "gpt-oss"};
    return names[f];
}

const char *tool_family_mark(enum tool_family f)
{
    switch (f) {
    case TOOL_HERMES: return "<tool_call>";
    case TOOL_LLAMA3: return "<|python_tag|>";
    case TOOL_MISTRAL:
    case TOOL_MISTRAL_ARGS: return "[TOOL_CALLS]";
    case TOOL_DEEPSEEK:
    case TOOL_DEEPSEEK_FENCED: return "<\xef\xbd\x9ctool\xe2\x96\x81""calls\xe2\x96\x81""begin\xef\xbd\x9c>";
    case TOOL_GPT_OSS: return "<|channel|>";
    default: return NULL;
    }
}

/* What stands before the first function's name, between name and arguments, and behind them. */
struct shape {
    const char *prefix, *before, *between, *after;
    bool quoted; /* the name is inside a JSON string */
    const char *between_calls, *close; /* NULL: one call alone; behind the last one */
};

#define BAR "\xef\xbd\x9c"
#define LOW "\xe2\x96\x81"
#define CALLS_BEGIN "<" BAR "tool" LOW "calls" LOW "begin" BAR ">"
#define CALL_BEGIN "<" BAR "tool" LOW "call" LOW "begin" BAR ">"
#define TOOL_SEP "<" BAR "tool" LOW "sep" BAR ">"

#define CALL_END "<" BAR "tool" LOW "call" LOW "end" BAR ">\n"

static const struct shape shapes[] = {
    [TOOL_JSON] = {"", "{\"name\":\"", "\",\"arguments\":", "}", true, "\n", ""},
    [TOOL_HERMES] = {"<tool_call>\n", "{\"name\": \"", "\", \"arguments\": ", "}", true,
                     "\n</tool_call>\n<tool_call>\n", ""},
    [TOOL_LLAMA3] = {"", "{\"name\": \"", "\", \"parameters\": ", "}", true, "; ", ""},
    [TOOL_MISTRAL] = {"[TOOL_CALLS][", "{\"name\": \"", "\", \"arguments\": ", "}", true, ", ", "]"},
    [TOOL_MISTRAL_ARGS] = {"[TOOL_CALLS]", "", "[ARGS]", "", false, "[TOOL_CALLS]", ""},
    [TOOL_DEEPSEEK] = {CALLS_BEGIN CALL_BEGIN, "", TOOL_SEP, "", false, CALL_END CALL_BEGIN, ""},
    [TOOL_DEEPSEEK_FENCED] = {CALLS_BEGIN CALL_BEGIN "function" TOOL_SEP, "", "\n```json\n", "\n```",
                              false, CALL_END CALL_BEGIN "function" TOOL_SEP, ""},
    [TOOL_FUNCTIONARY] = {"", "", "\n", "", false, "\n>>>", ""},
    [TOOL_FUNCTION_TAG] = {"", "<function=", ">", "</function>", false, "\n", ""},
    [TOOL_FUNCTOOLS] = {"functools[", "{\"name\": \"", "\", \"arguments\": ", "}", true, ", ", "]"},
    [TOOL_GPT_OSS] = {"<|channel|>commentary to=functions.", "", " <|constrain|>json<|message|>", "",
                      false, NULL, ""},
};

/* ---- text that grows ---- */

struct out {
    char *v;
    size_t n, cap;
    bool failed;
};

static void put(struct out *o, const char *s, size_t n)
{
    if (o->failed) return;
    if (o->n + n + 1 > o->cap) {
        size_t cap = 2 * (o->n + n + 64);
        char *v = realloc(o->v, cap);
        if (!v) {
            o->failed = true;
            return;
        }
        o->v = v, o->cap = cap;
    }
    if (n) memcpy(o->v + o->n, s, n);
    o->n += n;
    o->v[o->n] = '\0';
}

static void put_text(struct out *o, const char *s) { put(o, s, strlen(s)); }

/* The inside of a JSON string. */
static void put_escaped(struct out *o, const char *s, size_t n)
{
    static const char hex[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        char code[] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
        if (c == '"' || c == '\\')
            put(o, (char[]){'\\', (char)c}, 2);
        else if (c < 0x20)
            put(o, code, 6);
        else
            put(o, s + i, 1);
    }
}

/* The text in front of a function's arguments. */
static void put_head(struct out *o, const struct shape *s, const struct tool_function *f)
{
    put_text(o, s->before);
    if (s->quoted)
        put_escaped(o, f->name, f->n_name);
    else
        put(o, f->name, f->n_name);
    put_text(o, s->between);
}

static void put_string(struct out *o, const char *s, size_t n)
{
    put_text(o, "\"");
    put_escaped(o, s, n);
    put_text(o, "\"");
}

static void put_const(struct out *o, const char *s)
{
    put_text(o, "{\"type\": \"const_string\", \"value\": ");
    put_string(o, s, strlen(s));
    put_text(o, "}");
}

/* A tag: the head, unless the prefix has it; arguments by the schema; what is behind. */
static void put_function(struct out *o, const struct shape *s, const struct tool_function *f,
                         bool with_head)
{
    struct out head = {0};
    if (with_head) put_head(&head, s, f);
    put_text(o, "{\"type\": \"tag\", \"begin\": ");
    put_string(o, head.v ? head.v : "", head.n);
    o->failed |= head.failed;
    free(head.v);
    put_text(o, ", \"content\": {\"type\": \"json_schema\", \"json_schema\": ");
    if (f->parameters)
        put(o, f->parameters, f->n_parameters);
    else
        put_text(o, "{\"type\": \"object\"}");
    put_text(o, "}, \"end\": ");
    put_string(o, s->after, strlen(s->after));
    put_text(o, "}");
}

bool tool_forced(enum tool_family f, const struct tool_function *functions, size_t n, bool several,
                 char **out_prefix, char **out_grammar)
{
    const struct shape *s = &shapes[f];
    struct out prefix = {0}, grammar = {0};
    *out_prefix = *out_grammar = NULL;
    if (f == TOOL_NONE || !n) return false;
    several = several && s->between_calls;
    bool in_prefix = n == 1 && !several; /* the head of each further call is the grammar's */
    put_text(&prefix, s->prefix);
    if (in_prefix) put_head(&prefix, s, &functions[0]);
    put_text(&grammar, "{\"format\": {\"type\": \"sequence\", \"elements\": [");
    if (several) {
        put_text(&grammar, "{\"type\": \"tags_with_separator\", \"at_least_one\": true, "
                           "\"separator\": ");
        put_string(&grammar, s->between_calls, strlen(s->between_calls));
        put_text(&grammar, ", \"tags\": [");
    } else {
        put_text(&grammar, "{\"type\": \"or\", \"elements\": [");
    }
    for (size_t i = 0; i < n; i++) {
        if (i) put_text(&grammar, ", ");
        put_function(&grammar, s, &functions[i], !in_prefix);
    }
    put_text(&grammar, "]}, ");
    put_const(&grammar, s->close);
    put_text(&grammar, "]}}");
    if (prefix.failed || grammar.failed) {
        free(prefix.v);
        free(grammar.v);
        return false;
    }
    *out_prefix = prefix.v, *out_grammar = grammar.v;
    return true;
}
