// SPDX-License-Identifier: Apache-2.0
/* GBNF: name ::= alternatives, one rule after the other; the text is what `root` says. */
#include "runtime/grammar/gr_reader.h"
#include "runtime/text/unicode_utf8.h"

static void skip_space(struct gr_reader *r, bool lines)
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

/* One character of a literal or class, with its escapes. The text was checked to be UTF-8. */
static uint32_t take_char(struct gr_reader *r)
{
    if (r->at >= r->n) gr_refuse(r, "a literal or class has no end");
    uint8_t c = (uint8_t)r->text[r->at];
    if (c == '\\') {
        char e = r->at + 1 < r->n ? r->text[r->at + 1] : '\0';
        r->at += 2;
        switch (e) {
        case 'x': return gr_take_hex(r, 2);
        case 'u': return gr_take_hex(r, 4);
        case 'U': return gr_take_hex(r, 8);
        case 't': return '\t';
        case 'r': return '\r';
        case 'n': return '\n';
        case '\\':
        case '"':
        case '[':
        case ']':
        case '-':
        case '^': return (uint8_t)e;
        default: r->at -= 2; gr_refuse(r, "unknown escape");
        }
    }
    const uint8_t *p = (const uint8_t *)r->text + r->at;
    r->at += utf8_length(*p);
    return utf8_get(p);
}

static struct gr_node *one_char(struct gr_reader *r, uint32_t c)
{
    struct gr_set s = {0};
    gr_set_add(r->b, &s, c, c);
    return gr_node_set(r->b, &s);
}

static struct gr_node *take_literal(struct gr_reader *r)
{
    struct gr_row row = {0};
    r->at++;
    while (gr_peek(r) != '"') GR_PUSH(r->b, &row, one_char(r, take_char(r)));
    r->at++;
    return gr_row_join(r->b, &row);
}

static struct gr_node *take_class(struct gr_reader *r)
{
    struct gr_set s = {0};
    r->at++;
    bool negate = gr_peek(r) == '^';
    r->at += negate;
    while (gr_peek(r) != ']') {
        uint32_t lo = take_char(r), hi = lo;
        if (gr_peek(r) == '-' && r->at + 1 < r->n && r->text[r->at + 1] != ']') {
            r->at++;
            hi = take_char(r);
            if (hi < lo) gr_refuse(r, "a range runs backwards");
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

static struct gr_node *take_alternatives(struct gr_reader *r, bool nested);

static struct gr_node *take_atom(struct gr_reader *r)
{
    char c = gr_peek(r);
    if (c == '"') return take_literal(r);
    if (c == '[') return take_class(r);
    if (c == '.') {
        r->at++;
        return gr_node_any(r->b);
    }
    if (c == '(') {
        if (++r->depth > GR_MAX_DEPTH) gr_refuse(r, "nested too deeply");
        r->at++;
        skip_space(r, true);
        struct gr_node *n = take_alternatives(r, true);
        if (gr_peek(r) != ')') gr_refuse(r, "')' is expected");
        r->at++;
        r->depth--;
        return n;
    }
    if (c == '<' || c == '!') gr_refuse(r, "references to tokens are not supported");
    size_t begin = r->at, n = gr_take_name(r);
    return gr_call(r, r->text + begin, n, begin);
}

static void take_braces(struct gr_reader *r, uint32_t *min, uint32_t *max)
{
    r->at++;
    skip_space(r, true);
    *min = gr_peek(r) == ',' ? 0 : gr_take_number(r);
    *max = *min;
    skip_space(r, true);
    if (gr_peek(r) == ',') {
        r->at++;
        skip_space(r, true);
        *max = gr_peek(r) == '}' ? GR_MANY : gr_take_number(r);
        skip_space(r, true);
    }
    if (gr_peek(r) != '}') gr_refuse(r, "'}' is expected");
    if (*max < *min) gr_refuse(r, "a repetition whose end is below its beginning");
    r->at++;
}

static struct gr_node *take_repeated(struct gr_reader *r, bool nested)
{
    struct gr_node *n = take_atom(r);
    for (unsigned times = 0;; times++) {
        uint32_t min = 0, max = GR_MANY;
        skip_space(r, nested);
        char c = gr_peek(r);
        if (c == '{') {
            take_braces(r, &min, &max);
        } else if (c == '*' || c == '+' || c == '?') {
            r->at++;
            min = c == '+', max = c == '?' ? 1 : GR_MANY;
        } else {
            return n;
        }
        if (times > GR_MAX_DEPTH) gr_refuse(r, "nested too deeply");
        n = gr_node_repeat(r->b, n, min, max);
    }
}

/* Is a new rule beginning here? */
static bool at_rule(const struct gr_reader *r)
{
    struct gr_reader look = *r;
    if (!gr_is_name_char(&look, gr_peek(&look))) return false;
    while (gr_is_name_char(&look, gr_peek(&look))) look.at++;
    skip_space(&look, false);
    return gr_looking_at(&look, "::=");
}

static struct gr_node *take_sequence(struct gr_reader *r, bool nested)
{
    struct gr_row row = {0};
    for (;;) {
        char c = gr_peek(r);
        if (c == '\0' || c == '|' || c == ')' || c == '\n' || c == '\r') break;
        GR_PUSH(r->b, &row, take_repeated(r, nested));
        skip_space(r, nested);
    }
    return gr_row_join(r->b, &row);
}

static struct gr_node *take_alternatives(struct gr_reader *r, bool nested)
{
    struct gr_node *all = NULL;
    for (;;) {
        all = gr_node_alt(r->b, all, take_sequence(r, nested));
        struct gr_reader look = *r; /* the next line may begin with | */
        skip_space(&look, true);
        if (gr_peek(&look) != '|') return all;
        r->at = look.at + 1;
        skip_space(r, true);
    }
}

void gr_gbnf(struct gr_build *b, const char *text, size_t n)
{
    struct gr_rules rules = {0};
    struct gr_reader r = {.b = b, .rules = &rules, .text = text, .n = n, .dashes = true};
    uint32_t root = gr_rules_get(b, &rules, "root", 4, 0);
    for (skip_space(&r, true); r.at < n; skip_space(&r, true)) {
        size_t begin = r.at;
        if (!at_rule(&r)) gr_refuse(&r, "NAME ::= is expected");
        size_t len = gr_take_name(&r);
        skip_space(&r, false);
        r.at += 3;
        skip_space(&r, true);
        struct gr_node *body = take_alternatives(&r, false);
        gr_define(&r, text + begin, len, body, begin);
        skip_space(&r, false);
        if (r.at < n && gr_peek(&r) != '\n' && gr_peek(&r) != '\r') gr_refuse(&r, "the end of the rule is expected");
    }
    gr_rules_finish(b, &rules, root);
}
