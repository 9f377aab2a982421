// SPDX-License-Identifier: Apache-2.0
/*
 * Regular expressions to trees. The compiler has an engine of its own for pre-tokenizers
 * (compiler/tok/regex.h); that one prefers alternatives by their order and looks around, over
 * classes of code points and from tables of its own. Here only membership counts, over bytes, and
 * the automata are combined with others.
 */
#include <string.h>

#include "runtime/grammar/gr_build.h"
#include "runtime/text/jinja_unicode.h"

enum { MAX_DEPTH = 100, MAX_REPEAT = 65535 };

struct reader {
    struct gr_build *b;
    const char *text;
    size_t at, n, base;
    struct gr_regex_flags f;
    unsigned depth;
    bool finished; /* a $ was read: a ^ behind it is refused */
};

GR_NORETURN static void refuse(struct reader *r, const char *what)
{
    gr_fail(r->b, r->base + r->at, "regular expression, offset %zu: %s", r->at, what);
}

static bool more(const struct reader *r) { return r->at < r->n; }
static char peek(const struct reader *r) { return r->at < r->n ? r->text[r->at] : '\0'; }
static bool take(struct reader *r, const char *s)
{
    size_t n = strlen(s);
    if (r->n - r->at < n || memcmp(r->text + r->at, s, n)) return false;
    r->at += n;
    return true;
}

/* The text was checked to be UTF-8. */
static uint32_t take_char(struct reader *r)
{
    const uint8_t *p = (const uint8_t *)r->text + r->at;
    r->at += utf8_length(*p);
    return utf8_get(p);
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if ((c | 32) >= 'a' && (c | 32) <= 'f') return (c | 32) - 'a' + 10;
    return -1;
}

static uint32_t take_hex(struct reader *r, unsigned digits)
{
    uint32_t c = 0;
    for (unsigned i = 0; i < digits; i++, r->at++) {
        if (hex_digit(peek(r)) < 0) refuse(r, "bad hexadecimal escape");
        c = c << 4 | (uint32_t)hex_digit(peek(r));
    }
    return c;
}

/* \uHHHH, a pair of them for a surrogate pair, or \u{H...}; the letter has been taken. */
static uint32_t take_unicode(struct reader *r)
{
    uint32_t c = 0;
    if (take(r, "{")) {
        unsigned n = 0;
        while (hex_digit(peek(r)) >= 0 && n++ < 6) c = c << 4 | (uint32_t)hex_digit(r->text[r->at++]);
        if (!n || !take(r, "}") || c > GR_UNICODE_MAX) refuse(r, "bad hexadecimal escape");
        return c;
    }
    c = take_hex(r, 4);
    if (c >= 0xd800 && c <= 0xdbff && take(r, "\\u")) {
        uint32_t low = take_hex(r, 4);
        if (low < 0xdc00 || low > 0xdfff) refuse(r, "a surrogate without its other half");
        return 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    }
    if (c >= 0xd800 && c <= 0xdfff) refuse(r, "a surrogate without its other half");
    return c;
}

static void add_class(struct reader *r, char letter, struct gr_set *s)
{
    static const struct gr_range space[] = {
        {9, 13},          {32, 32},         {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
        {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
    static const struct gr_range word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    struct gr_set one = {0};
    const struct gr_range *v = word;
    size_t n = (letter | 32) == 'd' ? 1 : 4;
    if ((letter | 32) == 's') v = space, n = sizeof space / sizeof *space;
    for (size_t i = 0; i < n; i++) gr_set_add(r->b, &one, v[i].lo, v[i].hi);
    if (letter < 'a') gr_set_invert(r->b, &one);
    for (uint32_t i = 0; i < one.n; i++) gr_set_add(r->b, s, one.v[i].lo, one.v[i].hi);
}

struct property_set {
    struct gr_build *b;
    struct gr_set *s;
};

static void add_run(void *user, uint32_t first, uint32_t last)
{
    struct property_set *p = user;
    gr_set_add(p->b, p->s, first, last);
}

/* Behind \p or \P: {L}, {Letter}, {gc=L}, {General_Category=L}; categories of letters and numbers. */
static void take_property(struct reader *r, bool opposite, struct gr_set *s)
{
    static const struct {
        const char *names[3];
        unsigned categories;
    } known[] = {
        {{"L", "Letter", ""}, JINJA_LU | JINJA_LL | JINJA_LT | JINJA_LM | JINJA_LO},
        {{"LC", "Cased_Letter", ""}, JINJA_LU | JINJA_LL | JINJA_LT},
        {{"Lu", "Uppercase_Letter", ""}, JINJA_LU},
        {{"Ll", "Lowercase_Letter", ""}, JINJA_LL},
        {{"Lt", "Titlecase_Letter", ""}, JINJA_LT},
        {{"Lm", "Modifier_Letter", ""}, JINJA_LM},
        {{"Lo", "Other_Letter", ""}, JINJA_LO},
        {{"N", "Number", ""}, JINJA_ND | JINJA_OTHER_N},
        {{"Nd", "Decimal_Number", "digit"}, JINJA_ND},
    };
    struct gr_set one = {0};
    struct property_set p = {r->b, &one};
    size_t begin = r->at;
    if (take(r, "{") && (take(r, "gc=") || take(r, "General_Category=") || true)) {
        for (size_t i = 0; i < 3 * (sizeof known / sizeof *known); i++) {
            const char *name = known[i / 3].names[i % 3];
            size_t n = strlen(name);
            if (!n || r->n - r->at <= n || r->text[r->at + n] != '}' || !take(r, name)) continue;
            r->at++;
            jinja_category_runs(known[i / 3].categories, add_run, &p);
            gr_set_tidy(&one);
            if (opposite) gr_set_invert(r->b, &one);
            for (uint32_t k = 0; k < one.n; k++) gr_set_add(r->b, s, one.v[k].lo, one.v[k].hi);
            gr_work(r->b, one.n);
            return;
        }
    }
    r->at = begin - 1;
    refuse(r, "of Unicode properties only the categories of letters and numbers are supported");
}

/* Behind a backslash. True: one character, in *c; false: a class, added to *s. */
static bool take_escape(struct reader *r, bool in_class, struct gr_set *s, uint32_t *c)
{
    static const char plain[] = "tnrfv0", means[] = "\t\n\r\f\v";
    if (!more(r)) refuse(r, "a backslash at the end");
    char letter = peek(r);
    const char *at;
    if (letter && strchr("dDwWsS", letter)) {
        r->at++;
        add_class(r, letter, s);
        return false;
    }
    if (letter && (at = strchr(plain, letter)) != NULL) {
        r->at++;
        if (letter == '0' && peek(r) >= '0' && peek(r) <= '9') refuse(r, "octal escape");
        *c = (uint8_t)means[at - plain];
        return true;
    }
    if (letter == 'b' && in_class) {
        r->at++;
        *c = 8;
        return true;
    }
    if (letter == 'x' || letter == 'u') {
        r->at++;
        *c = letter == 'x' ? take_hex(r, 2) : take_unicode(r);
        return true;
    }
    if (letter == 'c' && r->at + 1 < r->n && ((r->text[r->at + 1] | 32) >= 'a') &&
        ((r->text[r->at + 1] | 32) <= 'z')) {
        *c = (uint32_t)r->text[r->at + 1] & 31u;
        r->at += 2;
        return true;
    }
    if (letter == 'p' || letter == 'P') {
        r->at++;
        take_property(r, letter == 'P', s);
        return false;
    }
    if (letter == 'b' || letter == 'B') refuse(r, "word boundaries are not supported");
    if ((letter >= '1' && letter <= '9') || letter == 'k')
        refuse(r, "back-references are not supported");
    if ((letter | 32) >= 'a' && (letter | 32) <= 'z' && !(letter & 0x80))
        refuse(r, "unknown escape");
    *c = take_char(r);
    return true;
}

/* Behind the '['. */
static struct gr_node *take_class(struct reader *r)
{
    struct gr_set s = {0};
    bool negate = take(r, "^"), first = true;
    for (;; first = false) {
        uint32_t lo = 0, hi;
        bool single = true;
        if (!more(r)) refuse(r, "a class has no end");
        if (take(r, "]") && !(first && r->f.extended)) break;
        if (take(r, "\\"))
            single = take_escape(r, true, &s, &lo);
        else
            lo = take_char(r);
        bool range = r->n - r->at >= 2 && r->text[r->at] == '-' && r->text[r->at + 1] != ']';
        if (!single) {
            if (range) refuse(r, "a range begins with a class");
            continue;
        }
        hi = lo;
        if (range) {
            struct gr_set end = {0};
            r->at++;
            if (!take(r, "\\"))
                hi = take_char(r);
            else if (!take_escape(r, true, &end, &hi))
                refuse(r, "a range ends with a class");
            if (hi < lo) refuse(r, "a range runs backwards");
        }
        gr_set_add(r->b, &s, lo, hi);
        gr_work(r->b, 1);
    }
    if (r->f.fold) gr_set_fold(r->b, &s);
    if (negate)
        gr_set_invert(r->b, &s);
    else
        gr_set_tidy(&s);
    return gr_node_set(r->b, &s);
}

static struct gr_node *one_char(struct reader *r, uint32_t c)
{
    struct gr_set s = {0};
    gr_set_add(r->b, &s, c, c);
    if (r->f.fold) {
        if (c >= 0x80) refuse(r, "case-insensitive matching beyond ASCII is not supported");
        gr_set_fold(r->b, &s);
    }
    return gr_node_set(r->b, &s);
}

static struct gr_node *take_alternatives(struct reader *r);

/* Behind "(?": flags and kinds of groups. True: flags that hold from here on, without a body. */
static bool take_group_kind(struct reader *r)
{
    if (take(r, ":")) return false;
    if (take(r, "=") || take(r, "!") || take(r, "<=") || take(r, "<!"))
        refuse(r, "look-around is not supported");
    if (take(r, "P<") || take(r, "<")) {
        while (more(r) && peek(r) != '>') r->at++;
        if (!take(r, ">")) refuse(r, "a group's name has no end");
        return false;
    }
    bool on = true;
    for (; more(r); r->at++) {
        char c = peek(r);
        if (c == '-')
            on = false;
        else if (c == 'i')
            r->f.fold = on;
        else if (c == 's')
            r->f.dot_all = on;
        else if (c == 'x')
            r->f.extended = on;
        else
            break;
    }
    if (take(r, ":")) return false;
    if (take(r, ")")) return true;
    refuse(r, "this kind of group is not supported");
}

static struct gr_node *take_group(struct reader *r)
{
    struct gr_regex_flags was = r->f;
    if (++r->depth > MAX_DEPTH) refuse(r, "nested too deeply");
    if (take(r, "?") && take_group_kind(r)) {
        r->depth--;
        return gr_node_new(r->b, GR_EMPTY);
    }
    struct gr_node *n = take_alternatives(r);
    if (!take(r, ")")) refuse(r, "a group has no end");
    r->f = was;
    r->depth--;
    return n;
}

static struct gr_node *take_dot(struct reader *r)
{
    struct gr_set s = {0};
    if (r->f.dot_all) return gr_node_any(r->b);
    gr_set_add(r->b, &s, '\n', '\n');
    gr_set_add(r->b, &s, '\r', '\r');
    gr_set_add(r->b, &s, 0x2028, 0x2029);
    gr_set_invert(r->b, &s);
    return gr_node_set(r->b, &s);
}

static struct gr_node *take_anchor(struct reader *r, enum gr_node_kind kind)
{
    if (!r->f.anchors) refuse(r, "^ and $ mean nothing here");
    if (kind == GR_BEGIN && r->finished) refuse(r, "^ behind $ is not supported");
    if (kind == GR_FINISH) r->finished = true;
    return gr_node_new(r->b, kind);
}

static struct gr_node *take_atom(struct reader *r)
{
    struct gr_set s = {0};
    uint32_t c;
    if (take(r, "(")) return take_group(r);
    if (take(r, "[")) return take_class(r);
    if (take(r, ".")) return take_dot(r);
    if (take(r, "^")) return take_anchor(r, GR_BEGIN);
    if (take(r, "$")) return take_anchor(r, GR_FINISH);
    if (strchr("*+?", peek(r)) && more(r) && peek(r)) refuse(r, "nothing to repeat");
    if (take(r, "\\")) {
        if (take_escape(r, false, &s, &c)) return one_char(r, c);
        gr_set_tidy(&s);
        return gr_node_set(r->b, &s);
    }
    return one_char(r, take_char(r));
}

static bool take_number(struct reader *r, uint32_t *out)
{
    size_t begin = r->at;
    *out = 0;
    while (peek(r) >= '0' && peek(r) <= '9') {
        *out = *out * 10 + (uint32_t)(r->text[r->at++] - '0');
        if (*out > MAX_REPEAT) refuse(r, "a repetition of more than 65535");
    }
    return r->at > begin;
}

/* {n}, {n,}, {n,m}; anything else that begins so is plain text. */
static bool take_braces(struct reader *r, uint32_t *min, uint32_t *max)
{
    size_t begin = r->at;
    r->at++;
    if (take_number(r, min)) {
        *max = *min;
        if (take(r, ",") && !take_number(r, max)) *max = GR_MANY;
        if (take(r, "}")) {
            if (*max < *min) refuse(r, "a repetition whose end is below its beginning");
            return true;
        }
    }
    r->at = begin;
    return false;
}

static void skip_extended(struct reader *r)
{
    while (r->f.extended && more(r)) {
        if (strchr(" \t\n\r\f\v", peek(r)) && peek(r)) {
            r->at++;
        } else if (peek(r) == '#') {
            while (more(r) && peek(r) != '\n') r->at++;
        } else {
            break;
        }
    }
}

static struct gr_node *take_repeated(struct reader *r)
{
    struct gr_node *n = take_atom(r);
    for (;;) {
        uint32_t min, max;
        skip_extended(r);
        if (take(r, "*"))
            min = 0, max = GR_MANY;
        else if (take(r, "+"))
            min = 1, max = GR_MANY;
        else if (take(r, "?"))
            min = 0, max = 1;
        else if (peek(r) != '{' || !take_braces(r, &min, &max))
            return n;
        if (!take(r, "?") && peek(r) == '+') refuse(r, "possessive repetition is not supported");
        if (n->kind == GR_BEGIN || n->kind == GR_FINISH) refuse(r, "an anchor is repeated");
        if (n->kind == GR_REPEAT && ++r->depth > MAX_DEPTH) refuse(r, "nested too deeply");
        n = gr_node_repeat(r->b, n, min, max);
    }
}

static struct gr_node *take_alternatives(struct reader *r)
{
    struct gr_node *all = NULL;
    bool finished = r->finished, any_finished = finished;
    do {
        struct {
            struct gr_node **v;
            uint32_t n, cap;
        } row = {0};
        struct gr_node *n = NULL;
        r->finished = finished;
        for (skip_extended(r); more(r) && peek(r) != '|' && peek(r) != ')'; skip_extended(r))
            GR_PUSH(r->b, &row, take_repeated(r));
        while (row.n > 0) n = gr_node_cat(r->b, row.v[--row.n], n);
        any_finished |= r->finished;
        all = gr_node_alt(r->b, all, n ? n : gr_node_new(r->b, GR_EMPTY));
    } while (take(r, "|"));
    r->finished = any_finished;
    return all;
}

struct gr_node *gr_regex_parse(struct gr_build *b, const char *text, size_t n, size_t base,
                               struct gr_regex_flags flags)
{
    struct reader r = {.b = b, .text = text, .n = n, .base = base, .f = flags};
    struct gr_node *out = take_alternatives(&r);
    if (more(&r)) refuse(&r, "a ')' without its '('");
    return out;
}
