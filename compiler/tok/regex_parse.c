// SPDX-License-Identifier: Apache-2.0
/* Text of a pattern to a syntax tree; recursive descent, one function a level of precedence. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "compiler/tok/regex.h"

struct parser {
    struct rx *rx;
    struct rx_pattern *pattern;
    const char *text;
    size_t pos, len;
    unsigned depth;
    bool fold;    /* inside (?i:...) */
    bool in_look; /* a lookahead inside a lookahead must be one character */
};

bool rx_fail(struct rx *rx, const char *fmt, ...)
{
    char buf[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(buf, sizeof buf, fmt, ap);
    va_end(ap);
    if (rx->error == NULL) rx->error = arena_strdup(rx->arena, buf);
    return false;
}

static struct rx_node *fail_at(struct parser *p, const char *what)
{
    rx_fail(p->rx, "pattern offset %zu: %s", p->pos, what);
    return NULL;
}

static struct rx_node *node(struct parser *p, enum rx_node_kind kind)
{
    struct rx_node *n = ARENA_NEW(p->rx->arena, struct rx_node);
    n->kind = kind;
    return n;
}

static struct rx_node *cat(struct parser *p, struct rx_node *a, struct rx_node *b)
{
    if (a == NULL || a->kind == RX_EMPTY) return b;
    if (b == NULL || b->kind == RX_EMPTY) return a;
    struct rx_node *n = node(p, RX_CAT);
    n->kid[0] = a;
    n->kid[1] = b;
    return n;
}

static uint32_t intern_set(struct rx *rx, const struct uniset *s)
{
    for (size_t i = 0; i < rx->sets.n; i++)
        if (uniset_equal(&rx->sets.v[i], s)) return (uint32_t)i;
    vec_push(rx->arena, &rx->sets, *s);
    return (uint32_t)rx->sets.n - 1;
}

static struct rx_node *set_node(struct parser *p, struct uniset *s)
{
    uniset_tidy(s);
    if (p->fold) uniset_fold_case(p->rx->arena, s);
    struct rx_node *n = node(p, RX_SET);
    n->index = intern_set(p->rx, s);
    return n;
}

static bool more(const struct parser *p) { return p->pos < p->len; }
static char peek(const struct parser *p) { return p->pos < p->len ? p->text[p->pos] : '\0'; }
static bool take(struct parser *p, const char *s)
{
    size_t n = strlen(s);
    if (p->len - p->pos < n || memcmp(p->text + p->pos, s, n) != 0) return false;
    p->pos += n;
    return true;
}

/* One code point of the pattern's UTF-8. */
static bool take_char(struct parser *p, uint32_t *out)
{
    const uint8_t *s = (const uint8_t *)p->text + p->pos;
    size_t left = p->len - p->pos;
    unsigned n = s[0] < 0x80 ? 1 : s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    uint32_t c = n == 1 ? s[0] : s[0] & (0xffu >> (n + 1));
    if (n > left || (s[0] >= 0x80 && s[0] < 0xc2) || s[0] > 0xf4)
        return rx_fail(p->rx, "pattern is not UTF-8");
    for (unsigned i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80) return rx_fail(p->rx, "pattern is not UTF-8");
        c = c << 6 | (s[i] & 0x3fu);
    }
    if (c > UNI_MAX) return rx_fail(p->rx, "pattern is not UTF-8");
    p->pos += n;
    *out = c;
    return true;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* \xHH, \x{H...}, \uHHHH; the letter has been taken. */
static bool take_hex(struct parser *p, char letter, uint32_t *out)
{
    bool braces = letter == 'x' && take(p, "{");
    unsigned limit = braces ? 6 : letter == 'x' ? 2 : 4, n = 0;
    uint32_t c = 0;
    while (n < limit && hex_digit(peek(p)) >= 0) {
        c = c << 4 | (uint32_t)hex_digit(peek(p));
        p->pos++;
        n++;
    }
    if (n == 0 || (braces && !take(p, "}")) || c > UNI_MAX)
        return rx_fail(p->rx, "bad hexadecimal escape");
    *out = c;
    return true;
}

/* \p{...}, \P{...}, \p{^...}; the letter has been taken. */
static bool take_property(struct parser *p, bool negate, struct uniset *out)
{
    if (!take(p, "{")) return rx_fail(p->rx, "\\p without {");
    if (take(p, "^")) negate = !negate;
    size_t begin = p->pos;
    while (more(p) && peek(p) != '}') p->pos++;
    size_t n = p->pos - begin;
    if (!take(p, "}")) return rx_fail(p->rx, "\\p without }");
    if (!uni_add_property(p->rx->arena, out, p->text + begin, n))
        return rx_fail(p->rx, "unknown property '%.*s'", (int)(n < 40 ? n : 40), p->text + begin);
    if (negate) uniset_invert(p->rx->arena, out);
    return true;
}

/* What follows a backslash, when it stands for a set or a character. Afterwards *single says
 * whether it was one character (which may begin a range). */
static bool take_escape(struct parser *p, struct uniset *out, bool *single, uint32_t *c)
{
    static const char plain[] = "tnrfve", means[] = "\t\n\r\f\v\x1b";
    struct arena *a = p->rx->arena;
    if (!more(p)) return rx_fail(p->rx, "pattern ends with a backslash");
    char letter = peek(p);
    const char *name = letter == 's' || letter == 'S'   ? "White_Space"
                       : letter == 'd' || letter == 'D' ? "Nd"
                       : letter == 'w' || letter == 'W' ? "Word"
                                                        : NULL;
    *single = false;
    if (name != NULL) {
        p->pos++;
        uni_add_property(a, out, name, strlen(name));
        if (letter < 'a') uniset_invert(a, out);
        return true;
    }
    if (letter == 'p' || letter == 'P') {
        p->pos++;
        return take_property(p, letter == 'P', out);
    }
    *single = true;
    const char *at = strchr(plain, letter);
    if (at != NULL) {
        p->pos++;
        *c = (uint8_t)means[at - plain];
    } else if (letter == 'x' || letter == 'u') {
        p->pos++;
        if (!take_hex(p, letter, c)) return false;
    } else if ((letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') ||
               (letter >= 'A' && letter <= 'Z')) {
        return rx_fail(p->rx, "pattern offset %zu: escape \\%c is not supported", p->pos, letter);
    } else if (!take_char(p, c)) {
        return false;
    }
    uniset_add(a, out, *c, *c);
    return true;
}

static bool take_class(struct parser *p, struct uniset *out);

/* One member of a class: a character, a range, an escape or a nested class. */
static bool take_member(struct parser *p, struct uniset *out)
{
    struct uniset item = {0};
    bool single = true;
    uint32_t lo = 0, hi = 0;
    if (take(p, "[")) {
        if (!take_class(p, &item)) return false;
        uniset_add_set(p->rx->arena, out, &item);
        return true;
    }
    if (take(p, "\\")) {
        if (!take_escape(p, &item, &single, &lo)) return false;
    } else if (!take_char(p, &lo)) {
        return false;
    }
    bool range =
        single && p->len - p->pos >= 2 && p->text[p->pos] == '-' && p->text[p->pos + 1] != ']';
    if (!range) {
        if (single) uniset_add(p->rx->arena, &item, lo, lo);
        uniset_add_set(p->rx->arena, out, &item);
        return true;
    }
    p->pos++;
    if (take(p, "\\")) {
        struct uniset end = {0};
        if (!take_escape(p, &end, &single, &hi)) return false;
        if (!single) return rx_fail(p->rx, "a range ends with a set");
    } else if (!take_char(p, &hi)) {
        return false;
    }
    if (hi < lo) return rx_fail(p->rx, "a range runs backwards");
    uniset_add(p->rx->arena, out, lo, hi);
    return true;
}

/* The rest of a class whose '[' has been taken. */
static bool take_class(struct parser *p, struct uniset *out)
{
    struct uniset all = {0}, part = {0};
    bool have_all = false, negate = take(p, "^"), first = true;
    if (++p->depth > RX_MAX_DEPTH) return rx_fail(p->rx, "pattern is nested too deeply");
    for (;; first = false) {
        if (!more(p)) return rx_fail(p->rx, "a class has no end");
        if (!first && take(p, "]")) break;
        if (take(p, "&&")) {
            uniset_tidy(&part);
            if (have_all)
                uniset_intersect(p->rx->arena, &all, &part);
            else
                all = part;
            have_all = true;
            part = (struct uniset){0};
        } else if (!take_member(p, &part)) {
            return false;
        }
    }
    uniset_tidy(&part);
    if (have_all)
        uniset_intersect(p->rx->arena, &all, &part);
    else
        all = part;
    /* The fold must come before the negation: [^a] without case excludes A as well. */
    if (p->fold) uniset_fold_case(p->rx->arena, &all);
    if (negate) uniset_invert(p->rx->arena, &all);
    *out = all;
    p->depth--;
    return true;
}

static struct rx_node *take_alternatives(struct parser *p);

static struct rx_node *assert_node(struct parser *p, enum rx_assert_kind kind, struct uniset *s,
                                   bool at_edge)
{
    struct rx_node *n = node(p, RX_ASSERT);
    n->assertion = kind;
    n->at_edge = at_edge;
    if (s != NULL) {
        uniset_tidy(s);
        n->index = intern_set(p->rx, s);
    }
    return n;
}

/* A lookaround whose introducer has been taken. One character needs no machinery; a longer
 * lookahead gets a DFA. */
static struct rx_node *take_look(struct parser *p, bool behind, bool negate)
{
    bool nested = p->in_look;
    p->in_look = true;
    struct rx_node *body = take_alternatives(p);
    p->in_look = nested;
    if (body == NULL) return NULL;
    if (!take(p, ")")) return fail_at(p, "a lookaround has no end");
    if (body->kind == RX_SET) {
        struct uniset s = {0};
        uniset_add_set(p->rx->arena, &s, &p->rx->sets.v[body->index]);
        uniset_tidy(&s);
        if (negate) uniset_invert(p->rx->arena, &s);
        return assert_node(p, behind ? RX_PREV_IN : RX_NEXT_IN, &s, negate);
    }
    if (behind) return fail_at(p, "a lookbehind longer than one character is not supported");
    if (nested) return fail_at(p, "a lookahead inside a lookahead is not supported");
    if (p->pattern->n_looks == TOK_MAX_LOOKS) return fail_at(p, "too many lookaheads");
    struct rx_node *n = assert_node(p, RX_LOOK, NULL, false);
    n->index = p->pattern->n_looks;
    n->negate = negate;
    p->pattern->look[p->pattern->n_looks++] = body;
    return n;
}

static struct rx_node *take_group(struct parser *p)
{
    bool fold = p->fold;
    struct rx_node *n;
    if (++p->depth > RX_MAX_DEPTH) return fail_at(p, "pattern is nested too deeply");
    if (take(p, "?="))
        n = take_look(p, false, false);
    else if (take(p, "?!"))
        n = take_look(p, false, true);
    else if (take(p, "?<="))
        n = take_look(p, true, false);
    else if (take(p, "?<!"))
        n = take_look(p, true, true);
    else {
        if (take(p, "?i:"))
            p->fold = true;
        else if (take(p, "?-i:"))
            p->fold = false;
        else if (!take(p, "?:") && peek(p) == '?')
            return fail_at(p, "this kind of group is not supported");
        n = take_alternatives(p);
        p->fold = fold;
        if (n != NULL && !take(p, ")")) return fail_at(p, "a group has no end");
    }
    p->depth--;
    return n;
}

static struct rx_node *word_edge(struct parser *p, bool negate)
{
    struct rx *rx = p->rx;
    struct uniset word = {0};
    uni_add_property(rx->arena, &word, "Word", 4);
    rx->word_set = intern_set(rx, &word);
    struct rx_node *n = assert_node(p, RX_WORD_EDGE, NULL, false);
    n->index = rx->word_set;
    n->negate = negate;
    return n;
}

static struct rx_node *take_atom(struct parser *p)
{
    struct uniset s = {0}, line_feed = {0};
    bool single;
    uint32_t c = 0;
    uniset_add(p->rx->arena, &line_feed, '\n', '\n');
    if (take(p, "(")) return take_group(p);
    if (take(p, "[")) {
        bool fold = p->fold;
        if (!take_class(p, &s)) return NULL;
        p->fold = false; /* take_class has folded */
        struct rx_node *n = set_node(p, &s);
        p->fold = fold;
        return n;
    }
    if (take(p, ".")) {
        uniset_invert(p->rx->arena, &line_feed);
        return set_node(p, &line_feed);
    }
    if (take(p, "^")) return assert_node(p, RX_PREV_IN, &line_feed, true);
    if (take(p, "$")) return assert_node(p, RX_NEXT_IN, &line_feed, true);
    if (take(p, "\\A")) return assert_node(p, RX_PREV_IN, &s, true);
    if (take(p, "\\z")) return assert_node(p, RX_NEXT_IN, &s, true);
    if (take(p, "\\b")) return word_edge(p, false);
    if (take(p, "\\B")) return word_edge(p, true);
    if (take(p, "\\")) {
        if (!take_escape(p, &s, &single, &c)) return NULL;
        return set_node(p, &s);
    }
    if (strchr("*+?{", peek(p)) != NULL) return fail_at(p, "a repetition of nothing");
    if (!take_char(p, &c)) return NULL;
    uniset_add(p->rx->arena, &s, c, c);
    return set_node(p, &s);
}

/* {m}, {m,}, {,n} or {m,n}; the brace has been taken. */
static bool take_bounds(struct parser *p, uint32_t *min, uint32_t *max)
{
    uint32_t n[2] = {0, 0};
    bool given[2] = {false, false}, comma = false;
    for (int i = 0; i < 2; i++) {
        while (peek(p) >= '0' && peek(p) <= '9') {
            n[i] = n[i] * 10 + (uint32_t)(peek(p) - '0');
            given[i] = true;
            p->pos++;
            if (n[i] > 4096) return rx_fail(p->rx, "a repetition count is too large");
        }
        if (i == 0 && !(comma = take(p, ","))) break;
    }
    if (!take(p, "}") || (!given[0] && !given[1])) return rx_fail(p->rx, "bad repetition count");
    *min = n[0];
    *max = !comma ? n[0] : given[1] ? n[1] : RX_MANY;
    return *min <= *max ? true : rx_fail(p->rx, "a repetition count runs backwards");
}

static struct rx_node *take_repeated(struct parser *p)
{
    struct rx_node *n = take_atom(p);
    for (unsigned count = 0; n != NULL && more(p); count++) {
        uint32_t min = 0, max = RX_MANY;
        if (take(p, "*"))
            min = 0;
        else if (take(p, "+"))
            min = 1;
        else if (take(p, "?"))
            max = 1;
        else if (take(p, "{")) {
            if (!take_bounds(p, &min, &max)) return NULL;
        } else {
            break;
        }
        if (count == 8) return fail_at(p, "too many repetitions of one thing");
        struct rx_node *r = node(p, RX_REPEAT);
        r->kid[0] = n;
        r->min = min;
        r->max = max;
        r->lazy = take(p, "?");
        if (peek(p) == '+') return fail_at(p, "possessive repetition is not supported");
        n = r;
    }
    return n;
}

static struct rx_node *take_alternatives(struct parser *p)
{
    struct rx_node *alt = NULL, **tail = &alt;
    for (;;) {
        struct rx_node *seq = node(p, RX_EMPTY);
        while (more(p) && peek(p) != '|' && peek(p) != ')') {
            struct rx_node *n = take_repeated(p);
            if (n == NULL) return NULL;
            seq = cat(p, seq, n);
        }
        if (!take(p, "|")) {
            *tail = seq;
            return alt;
        }
        struct rx_node *n = node(p, RX_ALT);
        n->kid[0] = seq;
        *tail = n;
        tail = &n->kid[1];
    }
}

bool rx_parse(struct rx *rx, const char *text, size_t len, struct rx_pattern *out)
{
    struct parser p = {.rx = rx, .pattern = out, .text = text, .len = len};
    *out = (struct rx_pattern){0};
    if (rx->sets.n == 0) rx->word_set = RX_MANY;
    if (len > 16384) return rx_fail(rx, "pattern is too long");
    out->root = take_alternatives(&p);
    if (out->root == NULL) return false;
    if (more(&p)) return rx_fail(rx, "pattern offset %zu: unexpected ')'", p.pos);
    return true;
}
