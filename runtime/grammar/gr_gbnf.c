// SPDX-License-Identifier: Apache-2.0
/* GBNF: name ::= alternatives, one rule after the other; the text is what `root` says. */
#include <string.h>

#include "runtime/grammar/gr_build.h"
#include "runtime/text/unicode_utf8.h"

enum { MAX_DEPTH = 100, MAX_REPEAT = 10000 };

struct reader {
    struct gr_build *b;
    struct gr_rules *rules;
    const char *text;
    size_t at, n;
    unsigned depth;
};

GR_NORETURN static void refuse(struct reader *r, const char *what)
{
    gr_fail(r->b, r->at, "%s", what);
}

static char peek(const struct reader *r) { return r->at < r->n ? r->text[r->at] : '\0'; }
static bool looking_at(const struct reader *r, const char *s)
{
    size_t n = strlen(s);
    return r->n - r->at >= n && !memcmp(r->text + r->at, s, n);
}

static void skip_space(struct reader *r, bool lines)
{
    for (; r->at < r->n; r->at++) {
        char c = r->text[r->at];
        if (c == '#') {
            while (r->at < r->n && r->text[r->at] != '\n' && r->text[r->at] != '\r') r->at++;
            if (r->at == r->n) return;
            c = r->text[r->at];
        }
        if (c != ' ' && c != '\t' && !(lines && (c == '\n' || c == '\r'))) return;
    }
}

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '-' || c == '_';
}

static size_t take_name(struct reader *r)
{
    size_t begin = r->at;
    while (is_name_char(peek(r))) r->at++;
    if (r->at == begin) refuse(r, "a rule's name is expected");
    return r->at - begin;
}

static uint32_t take_hex(struct reader *r, unsigned digits)
{
    uint32_t c = 0;
    for (unsigned i = 0; i < digits; i++, r->at++) {
        char d = peek(r);
        if (d >= '0' && d <= '9')
            c = c << 4 | (uint32_t)(d - '0');
        else if ((d | 32) >= 'a' && (d | 32) <= 'f')
            c = c << 4 | (uint32_t)((d | 32) - 'a' + 10);
        else
            refuse(r, "a hexadecimal digit is expected");
    }
    if (c > GR_UNICODE_MAX || (c >= 0xd800 && c <= 0xdfff)) refuse(r, "not a character");
    return c;
}

/* One character of a literal or class, with its escapes. The text was checked to be UTF-8. */
static uint32_t take_char(struct reader *r)
{
    if (r->at >= r->n) refuse(r, "a literal or class has no end");
    uint8_t c = (uint8_t)r->text[r->at];
    if (c == '\\') {
        char e = r->at + 1 < r->n ? r->text[r->at + 1] : '\0';
        r->at += 2;
        switch (e) {
        case 'x': return take_hex(r, 2);
        case 'u': return take_hex(r, 4);
        case 'U': return take_hex(r, 8);
        case 't': return '\t';
        case 'r': return '\r';
        case 'n': return '\n';
        case '\\':
        case '"':
        case '[':
        case ']':
        case '-':
        case '^': return (uint8_t)e;
        default: r->at -= 2; refuse(r, "unknown escape");
        }
    }
    const uint8_t *p = (const uint8_t *)r->text + r->at;
    r->at += utf8_length(*p);
    return utf8_get(p);
}

static struct gr_node *one_char(struct reader *r, uint32_t c)
{
    struct gr_set s = {0};
    gr_set_add(r->b, &s, c, c);
    return gr_node_set(r->b, &s);
}

struct row {
    struct gr_node **v;
    uint32_t n, cap;
};

static struct gr_node *join(struct gr_build *b, struct row *row)
{
    struct gr_node *n = NULL;
    while (row->n > 0) n = gr_node_cat(b, row->v[--row->n], n);
    return n ? n : gr_node_new(b, GR_EMPTY);
}

static struct gr_node *take_literal(struct reader *r)
{
    struct row row = {0};
    r->at++;
    while (peek(r) != '"') GR_PUSH(r->b, &row, one_char(r, take_char(r)));
    r->at++;
    return join(r->b, &row);
}

static struct gr_node *take_class(struct reader *r)
{
    struct gr_set s = {0};
    r->at++;
    bool negate = peek(r) == '^';
    r->at += negate;
    while (peek(r) != ']') {
        uint32_t lo = take_char(r), hi = lo;
        if (peek(r) == '-' && r->at + 1 < r->n && r->text[r->at + 1] != ']') {
            r->at++;
            hi = take_char(r);
            if (hi < lo) refuse(r, "a range runs backwards");
        }
        gr_set_add(r->b, &s, lo, hi);
    }
    r->at++;
    if (negate)
        gr_set_invert(r->b, &s);
    else
        gr_set_tidy(&s);
    return gr_node_set(r->b, &s);
}

static struct gr_node *take_alternatives(struct reader *r, bool nested);

static struct gr_node *take_atom(struct reader *r)
{
    char c = peek(r);
    if (c == '"') return take_literal(r);
    if (c == '[') return take_class(r);
    if (c == '.') {
        r->at++;
        return gr_node_any(r->b);
    }
    if (c == '(') {
        if (++r->depth > MAX_DEPTH) refuse(r, "nested too deeply");
        r->at++;
        skip_space(r, true);
        struct gr_node *n = take_alternatives(r, true);
        if (peek(r) != ')') refuse(r, "')' is expected");
        r->at++;
        r->depth--;
        return n;
    }
    if (c == '<' || c == '!') refuse(r, "references to tokens are not supported");
    size_t begin = r->at, n = take_name(r);
    struct gr_node *call = gr_node_new(r->b, GR_CALL);
    call->index = gr_rules_get(r->b, r->rules, r->text + begin, n, begin);
    return call;
}

static uint32_t take_number(struct reader *r)
{
    uint32_t x = 0;
    if (peek(r) < '0' || peek(r) > '9') refuse(r, "a number is expected");
    for (; peek(r) >= '0' && peek(r) <= '9'; r->at++) {
        x = x * 10 + (uint32_t)(peek(r) - '0');
        if (x > MAX_REPEAT) refuse(r, "a repetition of more than 10000");
    }
    return x;
}

static void take_braces(struct reader *r, uint32_t *min, uint32_t *max)
{
    r->at++;
    skip_space(r, true);
    *min = peek(r) == ',' ? 0 : take_number(r);
    *max = *min;
    skip_space(r, true);
    if (peek(r) == ',') {
        r->at++;
        skip_space(r, true);
        *max = peek(r) == '}' ? GR_MANY : take_number(r);
        skip_space(r, true);
    }
    if (peek(r) != '}') refuse(r, "'}' is expected");
    if (*max < *min) refuse(r, "a repetition whose end is below its beginning");
    r->at++;
}

static struct gr_node *take_repeated(struct reader *r, bool nested)
{
    struct gr_node *n = take_atom(r);
    for (unsigned times = 0;; times++) {
        uint32_t min = 0, max = GR_MANY;
        skip_space(r, nested);
        char c = peek(r);
        if (c == '{') {
            take_braces(r, &min, &max);
        } else if (c == '*' || c == '+' || c == '?') {
            r->at++;
            min = c == '+', max = c == '?' ? 1 : GR_MANY;
        } else {
            return n;
        }
        if (times > MAX_DEPTH) refuse(r, "nested too deeply");
        n = gr_node_repeat(r->b, n, min, max);
    }
}

/* Is a new rule beginning here? */
static bool at_rule(const struct reader *r)
{
    struct reader look = *r;
    if (!is_name_char(peek(&look))) return false;
    while (is_name_char(peek(&look))) look.at++;
    skip_space(&look, false);
    return looking_at(&look, "::=");
}

static struct gr_node *take_sequence(struct reader *r, bool nested)
{
    struct row row = {0};
    for (;;) {
        char c = peek(r);
        if (c == '\0' || c == '|' || c == ')' || c == '\n' || c == '\r') break;
        GR_PUSH(r->b, &row, take_repeated(r, nested));
        skip_space(r, nested);
    }
    return join(r->b, &row);
}

static struct gr_node *take_alternatives(struct reader *r, bool nested)
{
    struct gr_node *all = NULL;
    for (;;) {
        all = gr_node_alt(r->b, all, take_sequence(r, nested));
        struct reader look = *r; /* the next line may begin with | */
        skip_space(&look, true);
        if (peek(&look) != '|') return all;
        r->at = look.at + 1;
        skip_space(r, true);
    }
}

void gr_gbnf(struct gr_build *b, const char *text, size_t n)
{
    struct gr_rules rules = {0};
    struct reader r = {.b = b, .rules = &rules, .text = text, .n = n};
    uint32_t root = gr_rules_get(b, &rules, "root", 4, 0);
    for (skip_space(&r, true); r.at < n; skip_space(&r, true)) {
        size_t begin = r.at;
        if (!at_rule(&r)) refuse(&r, "NAME ::= is expected");
        size_t len = take_name(&r);
        uint32_t i = gr_rules_get(b, &rules, text + begin, len, begin);
        skip_space(&r, false);
        r.at += 3;
        skip_space(&r, true);
        if (rules.v[i].body) gr_fail(b, begin, "rule '%.*s' is defined twice", (int)(len < 60 ? len : 60), text + begin);
        rules.v[i].offset = begin;
        struct gr_node *body = take_alternatives(&r, false);
        rules.v[i].body = body;
        skip_space(&r, false);
        if (r.at < n && peek(&r) != '\n' && peek(&r) != '\r') refuse(&r, "the end of the rule is expected");
    }
    gr_rules_finish(b, &rules, root);
}
