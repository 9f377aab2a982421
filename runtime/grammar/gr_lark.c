// SPDX-License-Identifier: Apache-2.0
/*
 * Lark's EBNF. The text is what `start` says.
 *
 * There is no lexer between text and grammar: a terminal is a rule without ignored text inside, and
 * %ignore'd terminals may stand behind every terminal and at the beginning. So where Lark's lexer
 * would insist on the longest or the first terminal, every reading counts.
 */
#include "runtime/grammar/gr_reader.h"
#include "runtime/text/unicode_utf8.h"

static const char IGNORED[] = "%ignore";

struct lark {
    struct gr_reader r;
    bool in_terminal;
    struct gr_node *ignored; /* alternatives */
};

static void skip_space(struct gr_reader *r, bool lines)
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

static bool is_terminal(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n && s[i] == '_') i++;
    return i < n && s[i] >= 'A' && s[i] <= 'Z';
}

/* A terminal in a rule: ignored text may follow. */
static struct gr_node *token(struct lark *l, struct gr_node *n)
{
    if (l->in_terminal) return n;
    return gr_node_cat(l->r.b, n, gr_call(&l->r, IGNORED, sizeof IGNORED - 1, l->r.at));
}

/* ---- literals ---- */

static uint32_t take_escape(struct gr_reader *r)
{
    static const char from[] = "nrtfv0", means[] = "\n\r\t\f\v";
    char c = gr_peek(r);
    const char *at = c ? strchr(from, c) : NULL;
    unsigned digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    r->at++;
    if (at) return (uint8_t)means[at - from];
    return digits ? gr_take_hex(r, digits) : (uint8_t)c;
}

/* The text of "...", its escapes resolved. */
static const char *take_string(struct gr_reader *r, uint32_t *n)
{
    char *out = gr_alloc(r->b, r->n - r->at + 4);
    r->at++;
    for (*n = 0; gr_peek(r) != '"';) {
        if (r->at >= r->n || gr_peek(r) == '\n') gr_refuse(r, "a string has no end");
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

static struct gr_node *take_literal(struct gr_reader *r)
{
    uint32_t n, m, lo, hi;
    const char *s = take_string(r, &n);
    if (gr_take(r, "..")) {
        struct gr_set set = {0};
        if (gr_peek(r) != '"') gr_refuse(r, "a range ends with a string");
        const char *t = take_string(r, &m);
        if (!single(s, n, &lo) || !single(t, m, &hi) || hi < lo) gr_refuse(r, "not a range of characters");
        gr_set_add(r->b, &set, lo, hi);
        return gr_node_set(r->b, &set);
    }
    return gr_node_literal(r->b, s, n, gr_take(r, "i"));
}

static struct gr_node *take_regex(struct gr_reader *r)
{
    struct gr_regex_flags f = {0};
    size_t begin = ++r->at;
    while (r->at < r->n && gr_peek(r) != '/') r->at += gr_peek(r) == '\\' && r->at + 1 < r->n ? 2 : 1;
    if (r->at >= r->n) gr_refuse(r, "a regular expression has no end");
    size_t n = r->at++ - begin;
    for (char c = gr_peek(r); c && strchr("imslux", c); c = gr_peek(r)) {
        f.fold |= c == 'i', f.dot_all |= c == 's', f.extended |= c == 'x';
        r->at++;
    }
    return gr_regex_parse(r->b, r->text + begin, n, begin, f);
}

/* %json and a JSON object: its end is where its braces close. */
static struct gr_node *take_json(struct gr_reader *r)
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
    if (r->at >= r->n || gr_peek(r) != '}') gr_refuse(r, "%json is followed by a schema in braces");
    r->at++;
    struct gr_node *n = gr_node_new(r->b, GR_CALL);
    n->index = GR_CALL_JSON |
               gr_schema(r->b, gr_read_json(r->b, r->text + begin, r->at - begin, begin));
    return n;
}

/* ---- expansions ---- */

static struct gr_node *take_expansions(struct lark *l, bool nested);

static struct gr_node *take_group(struct lark *l, char end)
{
    struct gr_reader *r = &l->r;
    if (++r->depth > GR_MAX_DEPTH) gr_refuse(r, "nested too deeply");
    r->at++;
    struct gr_node *n = take_expansions(l, true);
    if (gr_peek(r) != end) gr_refuse(r, end == ')' ? "')' is expected" : "']' is expected");
    r->at++;
    r->depth--;
    return n;
}

static struct gr_node *take_atom(struct lark *l)
{
    struct gr_reader *r = &l->r;
    char c = gr_peek(r);
    if (c == '(') return take_group(l, ')');
    if (c == '[') return gr_node_repeat(r->b, take_group(l, ']'), 0, 1);
    if (c == '"') return token(l, take_literal(r));
    if (c == '/') return token(l, take_regex(r));
    if (gr_take(r, "%json")) return token(l, take_json(r));
    if (c == '<') gr_refuse(r, "references to tokens are not supported");
    size_t begin = r->at, n = gr_take_name(r);
    if (gr_peek(r) == '{') gr_refuse(r, "templates are not supported");
    struct gr_node *x = gr_call(r, r->text + begin, n, begin);
    return is_terminal(r->text + begin, n) ? token(l, x) : x;
}

static struct gr_node *take_repeated(struct lark *l, bool nested)
{
    struct gr_reader *r = &l->r;
    struct gr_node *n = take_atom(l);
    for (unsigned times = 0; times < GR_MAX_DEPTH; times++) {
        uint32_t min = 0, max = GR_MANY;
        if (gr_take(r, "*")) {
        } else if (gr_take(r, "+")) {
            min = 1;
        } else if (gr_take(r, "?")) {
            max = 1;
        } else {
            struct gr_reader look = *r;
            skip_space(&look, nested);
            if (!gr_take(&look, "~")) return n;
            r->at = look.at;
            skip_space(r, false);
            min = max = gr_take_number(r);
            if (gr_take(r, "..")) {
                skip_space(r, false);
                max = gr_take_number(r);
            }
            if (max < min) gr_refuse(r, "a repetition whose end is below its beginning");
        }
        n = gr_node_repeat(r->b, n, min, max);
    }
    gr_refuse(r, "nested too deeply");
}

static struct gr_node *take_sequence(struct lark *l, bool nested)
{
    struct gr_reader *r = &l->r;
    struct gr_row row = {0};
    for (;;) {
        skip_space(r, nested);
        char c = gr_peek(r);
        if (!c || c == '|' || c == ')' || c == ']' || c == '\n') break;
        if (gr_take(r, "->")) {
            skip_space(r, false);
            gr_take_name(r);
            continue;
        }
        GR_PUSH(r->b, &row, take_repeated(l, nested));
    }
    return gr_row_join(r->b, &row);
}

static struct gr_node *take_expansions(struct lark *l, bool nested)
{
    struct gr_reader *r = &l->r;
    struct gr_node *all = NULL;
    for (;;) {
        all = gr_node_alt(r->b, all, take_sequence(l, nested));
        struct gr_reader look = *r; /* the next line may begin with | */
        skip_space(&look, true);
        if (gr_peek(&look) != '|') return all;
        r->at = look.at + 1;
    }
}

/* ---- statements ---- */

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

static void import_one(struct gr_reader *r, const char *name, size_t n, const char *as, size_t n_as)
{
    for (size_t i = 0; i < sizeof common / sizeof *common; i++) {
        const char *p = common[i].pattern;
        if (strlen(common[i].name) != n || memcmp(common[i].name, name, n)) continue;
        struct gr_regex_flags f = {0};
        gr_define(r, as, n_as, gr_regex_parse(r->b, p, strlen(p), r->at, f), r->at);
        return;
    }
    gr_refuse(r, "%import: only Lark's common terminals can be imported");
}

static void take_import(struct gr_reader *r)
{
    skip_space(r, false);
    if (!gr_take(r, "common")) gr_refuse(r, "%import: only Lark's common terminals can be imported");
    skip_space(r, false);
    if (gr_take(r, ".")) {
        size_t begin = r->at, n = gr_take_name(r), as = begin, n_as = n;
        skip_space(r, false);
        if (gr_take(r, "->")) {
            skip_space(r, false);
            as = r->at, n_as = gr_take_name(r);
        }
        import_one(r, r->text + begin, n, r->text + as, n_as);
        return;
    }
    if (!gr_take(r, "(")) gr_refuse(r, "%import: '.' or '(' is expected");
    do {
        skip_space(r, true);
        size_t begin = r->at, n = gr_take_name(r);
        import_one(r, r->text + begin, n, r->text + begin, n);
        skip_space(r, true);
    } while (gr_take(r, ","));
    if (!gr_take(r, ")")) gr_refuse(r, "')' is expected");
}

static void take_statement(struct lark *l)
{
    struct gr_reader *r = &l->r;
    size_t at = r->at;
    if (gr_take(r, "%import")) {
        take_import(r);
    } else if (gr_take(r, "%ignore")) {
        l->in_terminal = true;
        struct gr_node *n = take_expansions(l, false);
        l->ignored = l->ignored ? gr_node_alt(r->b, l->ignored, n) : n;
    } else if (gr_peek(r) == '%') {
        gr_refuse(r, "this directive is not supported");
    } else {
        while (gr_take(r, "?") || gr_take(r, "!")) {}
        size_t begin = r->at, n = gr_take_name(r);
        if (gr_take(r, ".")) gr_take_number(r); /* a priority: every reading counts anyway */
        skip_space(r, false);
        if (!gr_take(r, ":")) gr_refuse(r, "':' is expected");
        l->in_terminal = is_terminal(r->text + begin, n);
        struct gr_node *body = take_expansions(l, false);
        gr_define(r, r->text + begin, n, body, at);
    }
    skip_space(r, false);
    if (r->at < r->n && gr_peek(r) != '\n') gr_refuse(r, "the end of the line is expected");
}

void gr_lark(struct gr_build *b, const char *text, size_t n)
{
    struct gr_rules rules = {0};
    struct lark l = {.r = {.b = b, .rules = &rules, .text = text, .n = n}};
    static const char ROOT[] = "%root";
    uint32_t start = gr_rules_get(b, &rules, "start", 5, 0);
    uint32_t root = gr_rules_get(b, &rules, ROOT, sizeof ROOT - 1, 0);
    uint32_t ignored = gr_rules_get(b, &rules, IGNORED, sizeof IGNORED - 1, 0);
    for (skip_space(&l.r, true); l.r.at < n; skip_space(&l.r, true)) take_statement(&l);
    struct gr_node *first = gr_node_new(b, GR_CALL), *rest = gr_node_new(b, GR_CALL);
    first->index = ignored, rest->index = start;
    rules.v[root].body = gr_node_cat(b, first, rest);
    rules.v[ignored].body =
        l.ignored ? gr_node_repeat(b, l.ignored, 0, GR_MANY) : gr_node_new(b, GR_EMPTY);
    gr_rules_finish(b, &rules, root);
}
