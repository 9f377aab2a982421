// SPDX-License-Identifier: Apache-2.0
/*
 * Lark's EBNF. The text is what `start` says.
 *
 * There is no lexer between text and grammar: a terminal is a rule without ignored text inside, and
 * %ignore'd terminals may stand behind every terminal and at the beginning. So where Lark's lexer
 * would insist on the longest or the first terminal, every reading counts.
 */
#include <string.h>

#include "runtime/grammar/gr_build.h"
#include "runtime/text/unicode_utf8.h"

enum { MAX_DEPTH = 100, MAX_REPEAT = 10000 };

static const char IGNORED[] = "%ignore";

struct reader {
    struct gr_build *b;
    struct gr_rules *rules;
    const char *text;
    size_t at, n;
    unsigned depth;
    bool in_terminal;
    struct gr_node *ignored; /* alternatives */
};

GR_NORETURN static void refuse(struct reader *r, const char *what)
{
    gr_fail(r->b, r->at, "%s", what);
}

static char peek(const struct reader *r) { return r->at < r->n ? r->text[r->at] : '\0'; }
static bool take(struct reader *r, const char *s)
{
    size_t n = strlen(s);
    if (r->n - r->at < n || memcmp(r->text + r->at, s, n)) return false;
    r->at += n;
    return true;
}

static void skip_space(struct reader *r, bool lines)
{
    for (; r->at < r->n; r->at++) {
        char c = r->text[r->at];
        if (c == '#' || (c == '/' && r->at + 1 < r->n && r->text[r->at + 1] == '/')) {
            while (r->at < r->n && r->text[r->at] != '\n') r->at++;
            if (r->at == r->n) return;
            c = '\n';
        }
        if (c != ' ' && c != '\t' && c != '\r' && !(lines && c == '\n')) return;
    }
}

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static size_t take_name(struct reader *r)
{
    size_t begin = r->at;
    while (is_name_char(peek(r))) r->at++;
    if (r->at == begin) refuse(r, "a name is expected");
    return r->at - begin;
}

static bool is_terminal(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n && s[i] == '_') i++;
    return i < n && s[i] >= 'A' && s[i] <= 'Z';
}

static struct gr_node *call(struct reader *r, const char *name, size_t n)
{
    struct gr_node *c = gr_node_new(r->b, GR_CALL);
    c->index = gr_rules_get(r->b, r->rules, name, n, r->at);
    return c;
}

/* A terminal in a rule: ignored text may follow. */
static struct gr_node *token(struct reader *r, struct gr_node *n)
{
    if (r->in_terminal) return n;
    return gr_node_cat(r->b, n, call(r, IGNORED, sizeof IGNORED - 1));
}

/* ---- literals ---- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if ((c | 32) >= 'a' && (c | 32) <= 'f') return (c | 32) - 'a' + 10;
    return -1;
}

static uint32_t take_escape(struct reader *r)
{
    static const char from[] = "nrtfv0", means[] = "\n\r\t\f\v";
    char c = peek(r);
    const char *at = c ? strchr(from, c) : NULL;
    unsigned digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    uint32_t x = 0;
    r->at++;
    if (at) return (uint8_t)means[at - from];
    for (unsigned i = 0; i < digits; i++, r->at++) {
        if (hex_digit(peek(r)) < 0) refuse(r, "a hexadecimal digit is expected");
        x = x << 4 | (uint32_t)hex_digit(peek(r));
    }
    if (digits && (x > GR_UNICODE_MAX || (x >= 0xd800 && x <= 0xdfff))) refuse(r, "not a character");
    return digits ? x : (uint8_t)c;
}

/* The text of "...", its escapes resolved. */
static const char *take_string(struct reader *r, uint32_t *n)
{
    char *out = gr_alloc(r->b, r->n - r->at + 4);
    r->at++;
    for (*n = 0; peek(r) != '"';) {
        if (r->at >= r->n || peek(r) == '\n') refuse(r, "a string has no end");
        uint8_t bytes[4];
        unsigned len = 1;
        bytes[0] = (uint8_t)r->text[r->at++];
        if (bytes[0] == '\\') len = utf8_put(bytes, take_escape(r));
        memcpy(out + *n, bytes, len);
        *n += len;
    }
    r->at++;
    return out;
}

static bool single(const char *s, uint32_t n, uint32_t *c)
{
    if (!n || utf8_length((uint8_t)s[0]) != n) return false;
    *c = utf8_get((const uint8_t *)s);
    return true;
}

static struct gr_node *take_literal(struct reader *r)
{
    uint32_t n, m, lo, hi;
    const char *s = take_string(r, &n);
    if (take(r, "..")) {
        struct gr_set set = {0};
        if (peek(r) != '"') refuse(r, "a range ends with a string");
        const char *t = take_string(r, &m);
        if (!single(s, n, &lo) || !single(t, m, &hi) || hi < lo) refuse(r, "not a range of characters");
        gr_set_add(r->b, &set, lo, hi);
        return gr_node_set(r->b, &set);
    }
    return gr_node_literal(r->b, s, n, take(r, "i"));
}

static struct gr_node *take_regex(struct reader *r)
{
    struct gr_regex_flags f = {0};
    size_t begin = ++r->at;
    while (r->at < r->n && peek(r) != '/') r->at += peek(r) == '\\' && r->at + 1 < r->n ? 2 : 1;
    if (r->at >= r->n) refuse(r, "a regular expression has no end");
    size_t n = r->at++ - begin;
    for (char c = peek(r); c && strchr("imslux", c); c = peek(r)) {
        f.fold |= c == 'i', f.dot_all |= c == 's', f.extended |= c == 'x';
        r->at++;
    }
    return gr_regex_parse(r->b, r->text + begin, n, begin, f);
}

/* %json and a JSON object: its end is where its braces close. */
static struct gr_node *take_json(struct reader *r)
{
    skip_space(r, true);
    size_t begin = r->at, depth = 0;
    for (; r->at < r->n; r->at++) {
        char c = r->text[r->at];
        if (c == '"') {
            for (r->at++; r->at < r->n && r->text[r->at] != '"'; r->at++)
                r->at += r->text[r->at] == '\\';
        } else if (c == '{') {
            depth++;
        } else if (c == '}' && --depth == 0) {
            break;
        }
        if (!depth) break;
    }
    if (r->at >= r->n || peek(r) != '}') refuse(r, "%json is followed by a schema in braces");
    r->at++;
    struct gr_node *n = gr_node_new(r->b, GR_CALL);
    n->index = GR_CALL_JSON |
               gr_schema(r->b, gr_read_json(r->b, r->text + begin, r->at - begin, begin));
    return n;
}

/* ---- expansions ---- */

static struct gr_node *take_expansions(struct reader *r, bool nested);

static struct gr_node *take_group(struct reader *r, char end)
{
    if (++r->depth > MAX_DEPTH) refuse(r, "nested too deeply");
    r->at++;
    struct gr_node *n = take_expansions(r, true);
    if (peek(r) != end) refuse(r, end == ')' ? "')' is expected" : "']' is expected");
    r->at++;
    r->depth--;
    return n;
}

static struct gr_node *take_atom(struct reader *r)
{
    char c = peek(r);
    if (c == '(') return take_group(r, ')');
    if (c == '[') return gr_node_repeat(r->b, take_group(r, ']'), 0, 1);
    if (c == '"') return token(r, take_literal(r));
    if (c == '/') return token(r, take_regex(r));
    if (take(r, "%json")) return token(r, take_json(r));
    if (c == '<') refuse(r, "references to tokens are not supported");
    size_t begin = r->at, n = take_name(r);
    if (peek(r) == '{') refuse(r, "templates are not supported");
    struct gr_node *x = call(r, r->text + begin, n);
    return is_terminal(r->text + begin, n) ? token(r, x) : x;
}

static uint32_t take_number(struct reader *r)
{
    uint32_t x = 0;
    skip_space(r, false);
    if (peek(r) < '0' || peek(r) > '9') refuse(r, "a number is expected");
    for (; peek(r) >= '0' && peek(r) <= '9'; r->at++) {
        x = x * 10 + (uint32_t)(peek(r) - '0');
        if (x > MAX_REPEAT) refuse(r, "a repetition of more than 10000");
    }
    return x;
}

static struct gr_node *take_repeated(struct reader *r, bool nested)
{
    struct gr_node *n = take_atom(r);
    for (unsigned times = 0; times < MAX_DEPTH; times++) {
        uint32_t min = 0, max = GR_MANY;
        if (take(r, "*")) {
        } else if (take(r, "+")) {
            min = 1;
        } else if (take(r, "?")) {
            max = 1;
        } else {
            struct reader look = *r;
            skip_space(&look, nested);
            if (!take(&look, "~")) return n;
            r->at = look.at;
            min = max = take_number(r);
            if (take(r, "..")) max = take_number(r);
            if (max < min) refuse(r, "a repetition whose end is below its beginning");
        }
        n = gr_node_repeat(r->b, n, min, max);
    }
    refuse(r, "nested too deeply");
}

static struct gr_node *take_sequence(struct reader *r, bool nested)
{
    struct {
        struct gr_node **v;
        uint32_t n, cap;
    } row = {0};
    struct gr_node *n = NULL;
    for (;;) {
        skip_space(r, nested);
        char c = peek(r);
        if (!c || c == '|' || c == ')' || c == ']' || c == '\n') break;
        if (take(r, "->")) {
            skip_space(r, false);
            take_name(r);
            continue;
        }
        GR_PUSH(r->b, &row, take_repeated(r, nested));
    }
    while (row.n > 0) n = gr_node_cat(r->b, row.v[--row.n], n);
    return n ? n : gr_node_new(r->b, GR_EMPTY);
}

static struct gr_node *take_expansions(struct reader *r, bool nested)
{
    struct gr_node *all = NULL;
    for (;;) {
        all = gr_node_alt(r->b, all, take_sequence(r, nested));
        struct reader look = *r; /* the next line may begin with | */
        skip_space(&look, true);
        if (peek(&look) != '|') return all;
        r->at = look.at + 1;
    }
}

/* ---- statements ---- */

static void define(struct reader *r, const char *name, size_t n, struct gr_node *body, size_t at)
{
    uint32_t i = gr_rules_get(r->b, r->rules, name, n, at);
    struct gr_rule *rule = &r->rules->v[i];
    if (rule->body)
        gr_fail(r->b, at, "'%.*s' is defined twice", (int)(n < 60 ? n : 60), name);
    rule->body = body;
    rule->offset = at;
}

/* Lark's own library of terminals. */
static const struct {
    const char *name, *pattern;
} common[] = {
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[0-9a-fA-F]"},
    {"INT", "[0-9]+"},
    {"SIGNED_INT", "[+-]?[0-9]+"},
    {"DECIMAL", "(?:[0-9]+\\.[0-9]*|\\.[0-9]+)"},
    {"FLOAT", "(?:[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"},
    {"SIGNED_FLOAT",
     "[+-]?(?:[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"},
    {"NUMBER", "(?:[0-9]+(?:\\.[0-9]*)?|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?"},
    {"SIGNED_NUMBER", "[+-]?(?:[0-9]+(?:\\.[0-9]*)?|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?"},
    {"ESCAPED_STRING", "\"(?:[^\"\\\\\\n]|\\\\[^\\n])*\""},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[a-zA-Z]"},
    {"WORD", "[a-zA-Z]+"},
    {"CNAME", "[_a-zA-Z][_a-zA-Z0-9]*"},
    {"WS_INLINE", "[ \\t]+"},
    {"WS", "[ \\t\\f\\r\\n]+"},
    {"CR", "\\r"},
    {"LF", "\\n"},
    {"NEWLINE", "(?:\\r?\\n)+"},
    {"SH_COMMENT", "#[^\\n]*"},
    {"CPP_COMMENT", "//[^\\n]*"},
    {"C_COMMENT", "/\\*(?:[^*]|\\*+[^*/])*\\*+/"},
    {"SQL_COMMENT", "--[^\\n]*"},
};

static void import_one(struct reader *r, const char *name, size_t n, const char *as, size_t n_as)
{
    for (size_t i = 0; i < sizeof common / sizeof *common; i++) {
        const char *p = common[i].pattern;
        if (strlen(common[i].name) != n || memcmp(common[i].name, name, n)) continue;
        struct gr_regex_flags f = {0};
        define(r, as, n_as, gr_regex_parse(r->b, p, strlen(p), r->at, f), r->at);
        return;
    }
    refuse(r, "%import: only Lark's common terminals can be imported");
}

static void take_import(struct reader *r)
{
    skip_space(r, false);
    if (!take(r, "common")) refuse(r, "%import: only Lark's common terminals can be imported");
    skip_space(r, false);
    if (take(r, ".")) {
        size_t begin = r->at, n = take_name(r), as = begin, n_as = n;
        skip_space(r, false);
        if (take(r, "->")) {
            skip_space(r, false);
            as = r->at, n_as = take_name(r);
        }
        import_one(r, r->text + begin, n, r->text + as, n_as);
        return;
    }
    if (!take(r, "(")) refuse(r, "%import: '.' or '(' is expected");
    do {
        skip_space(r, true);
        size_t begin = r->at, n = take_name(r);
        import_one(r, r->text + begin, n, r->text + begin, n);
        skip_space(r, true);
    } while (take(r, ","));
    if (!take(r, ")")) refuse(r, "')' is expected");
}

static void take_statement(struct reader *r)
{
    size_t at = r->at;
    if (take(r, "%import")) {
        take_import(r);
    } else if (take(r, "%ignore")) {
        r->in_terminal = true;
        struct gr_node *n = take_expansions(r, false);
        r->ignored = r->ignored ? gr_node_alt(r->b, r->ignored, n) : n;
    } else if (peek(r) == '%') {
        refuse(r, "this directive is not supported");
    } else {
        while (take(r, "?") || take(r, "!")) {}
        size_t begin = r->at, n = take_name(r);
        if (take(r, ".")) take_number(r); /* a priority: every reading counts anyway */
        skip_space(r, false);
        if (!take(r, ":")) refuse(r, "':' is expected");
        r->in_terminal = is_terminal(r->text + begin, n);
        struct gr_node *body = take_expansions(r, false);
        define(r, r->text + begin, n, body, at);
    }
    skip_space(r, false);
    if (r->at < r->n && peek(r) != '\n') refuse(r, "the end of the line is expected");
}

void gr_lark(struct gr_build *b, const char *text, size_t n)
{
    struct gr_rules rules = {0};
    struct reader r = {.b = b, .rules = &rules, .text = text, .n = n};
    static const char ROOT[] = "%root";
    uint32_t start = gr_rules_get(b, &rules, "start", 5, 0);
    uint32_t root = gr_rules_get(b, &rules, ROOT, sizeof ROOT - 1, 0);
    uint32_t ignored = gr_rules_get(b, &rules, IGNORED, sizeof IGNORED - 1, 0);
    for (skip_space(&r, true); r.at < n; skip_space(&r, true)) take_statement(&r);
    struct gr_node *first = gr_node_new(b, GR_CALL), *rest = gr_node_new(b, GR_CALL);
    first->index = ignored, rest->index = start;
    rules.v[root].body = gr_node_cat(b, first, rest);
    rules.v[ignored].body =
        r.ignored ? gr_node_repeat(b, r.ignored, 0, GR_MANY) : gr_node_new(b, GR_EMPTY);
    gr_rules_finish(b, &rules, root);
}
