// SPDX-License-Identifier: Apache-2.0
/*
 * Source text to tokens, with jinja2's rules for white space: trim_blocks and lstrip_blocks on, one
 * trailing newline of the source dropped, `-` strips, `+` keeps. Line numbers count newlines of the
 * source after \r\n and \r became \n.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/text/jinja_compile.h"
#include "runtime/text/jinja_number.h"
#include "runtime/text/jinja_unicode.h"

struct lexer {
    struct jinja_build *b;
    const char *src, *end, *p;
    const char *line_at; /* lines are counted up to here */
    uint32_t line;
    bool line_starting; /* the last match ended with a newline */
};

static uint32_t line_of(struct lexer *lx, const char *at)
{
    for (; lx->line_at < at; lx->line_at++)
        lx->line += *lx->line_at == '\n';
    return lx->line;
}

static bool fail(struct lexer *lx, const char *at, const char *message)
{
    return jinja_build_fail(lx->b, JINJA_ERR_SYNTAX, line_of(lx, at), "%s", message);
}

static bool emit(struct lexer *lx, enum jinja_token_kind kind, const char *at)
{
    return jinja_build_token(lx->b, (struct jinja_token){.kind = kind, .line = line_of(lx, at)});
}

static bool emit_text(struct lexer *lx, enum jinja_token_kind kind, const char *at,
                      const char *text, size_t len)
{
    struct jinja_token t = {.kind = kind, .line = line_of(lx, at)};

    return jinja_build_str(lx->b, text, len, &t.str) && jinja_build_token(lx->b, t);
}

static bool emit_data(struct lexer *lx, const char *text, const char *text_end)
{
    return text == text_end || emit_text(lx, TOK_DATA, text, text, (size_t)(text_end - text));
}

static const char *skip_space(const char *p, const char *end)
{
    uint32_t cp;

    while (p < end) {
        unsigned n = jinja_utf8_decode(p, &cp);

        if (!jinja_is_space(cp))
            break;
        p += n;
    }
    return p;
}

static const char *rstrip(const char *start, const char *end)
{
    uint32_t cp;

    while (end > start) {
        const char *p = jinja_utf8_prev(end);

        jinja_utf8_decode(p, &cp);
        if (!jinja_is_space(cp))
            break;
        end = p;
    }
    return end;
}

static bool starts(const struct lexer *lx, const char *p, const char *what)
{
    size_t n = strlen(what);

    return (size_t)(lx->end - p) >= n && memcmp(p, what, n) == 0;
}

/* Applies lstrip_blocks or an explicit sign to the text before a tag; returns its new end. */
static const char *strip_before(const struct lexer *lx, const char *text, const char *tag,
                                char sign, bool is_variable)
{
    const char *line;

    if (sign == '-')
        return rstrip(text, tag);
    if (sign == '+' || is_variable)
        return tag;
    for (line = tag; line > text && line[-1] != '\n'; line--)
        ;
    if ((line > text || lx->line_starting) && skip_space(line, tag) == tag)
        return line;
    return tag;
}

/* `raw` directly after a block start (and its sign): returns the position after the tag, or NULL.
 */
static const char *match_raw(const struct lexer *lx, const char *p, const char *word, bool may_trim)
{
    if (p < lx->end && (*p == '-' || *p == '+'))
        p++;
    p = skip_space(p, lx->end);
    if (!starts(lx, p, word))
        return NULL;
    p = skip_space(p + strlen(word), lx->end);
    if (starts(lx, p, "-%}"))
        return skip_space(p + 3, lx->end);
    if (may_trim && starts(lx, p, "+%}"))
        return p + 3;
    if (!starts(lx, p, "%}"))
        return NULL;
    p += 2;
    return may_trim && p < lx->end && *p == '\n' ? p + 1 : p;
}

static void advance(struct lexer *lx, const char *to)
{
    if (to > lx->p)
        lx->line_starting = to[-1] == '\n';
    lx->p = to;
}

static bool lex_raw(struct lexer *lx)
{
    const char *text = lx->p, *q, *after;

    for (q = text; q < lx->end; q++) {
        if (!starts(lx, q, "{%"))
            continue;
        after = match_raw(lx, q + 2, "endraw", true);
        if (after) {
            if (!emit_data(lx, text, strip_before(lx, text, q, q[2], false)))
                return false;
            advance(lx, after);
            return true;
        }
    }
    return fail(lx, text, "Missing end of raw directive");
}

static bool lex_comment(struct lexer *lx)
{
    const char *q;

    for (q = lx->p; q < lx->end; q++) {
        if (starts(lx, q, "-#}")) {
            advance(lx, skip_space(q + 3, lx->end));
            return true;
        }
        if (starts(lx, q, "+#}")) {
            advance(lx, q + 3);
            return true;
        }
        if (starts(lx, q, "#}")) {
            q += 2;
            advance(lx, q < lx->end && *q == '\n' ? q + 1 : q);
            return true;
        }
    }
    return fail(lx, lx->p, "Missing end of comment tag");
}

/* ---- inside tags -------------------------------------------------------------------------- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* (\d+_)*\d+ : digits with single underscores between; returns the end, or p when there are none.
 */
static const char *scan_digits(const struct lexer *lx, const char *p)
{
    if (p >= lx->end || !is_digit(*p))
        return p;
    while (p < lx->end && (is_digit(*p) || (*p == '_' && p + 1 < lx->end && is_digit(p[1]))))
        p++;
    return p;
}

/* The end of a float literal at lx->p, or NULL. */
static const char *match_float(const struct lexer *lx)
{
    const char *p = scan_digits(lx, lx->p), *q, *e;
    bool is_float = false;

    if (p == lx->p || (lx->p > lx->src && lx->p[-1] == '.'))
        return NULL;
    if (p < lx->end && *p == '.') {
        q = scan_digits(lx, p + 1);
        if (q > p + 1) {
            p = q;
            is_float = true;
        }
    }
    if (p < lx->end && (*p == 'e' || *p == 'E')) {
        q = p + 1;
        if (q < lx->end && (*q == '+' || *q == '-'))
            q++;
        e = scan_digits(lx, q);
        if (e > q) {
            p = e;
            is_float = true;
        }
    }
    return is_float ? p : NULL;
}

static bool lex_float(struct lexer *lx, const char *end)
{
    struct jinja_token t = {.kind = TOK_FLOAT, .line = line_of(lx, lx->p)};
    char *buf = malloc((size_t)(end - lx->p) + 1), *w = buf;
    const char *p;
    double f;
    bool ok;

    if (!buf)
        return jinja_build_no_memory(lx->b);
    for (p = lx->p; p < end; p++)
        if (*p != '_')
            *w++ = *p;
    ok = jinja_number_double(buf, (size_t)(w - buf), &f);
    free(buf);
    if (!ok)
        return jinja_build_no_memory(lx->b);
    memcpy(&t.bits, &f, sizeof(f));
    advance(lx, end);
    return jinja_build_token(lx->b, t);
}

static int digit_value(char c)
{
    if (is_digit(c))
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return 99;
}

static bool lex_integer(struct lexer *lx)
{
    struct jinja_token t = {.kind = TOK_INTEGER, .line = line_of(lx, lx->p)};
    const char *p = lx->p, *q;
    int base = 10, d;
    uint64_t n = 0;

    if (*p == '0' && p + 2 < lx->end) {
        char c = p[1];

        base = c == 'x' || c == 'X' ? 16 : c == 'o' || c == 'O' ? 8 : c == 'b' || c == 'B' ? 2 : 10;
        q = p + 2 + (p[2] == '_');
        if (base != 10 && q < lx->end && digit_value(*q) < base)
            p += 2;
        else
            base = 10;
    }
    for (q = p; q < lx->end; q++) {
        if (*q == '_' && q + 1 < lx->end && digit_value(q[1]) < base && (q > lx->p || base != 10))
            continue;
        d = digit_value(*q);
        if (d >= base)
            break;
        if (*p == '0' && base == 10 && d != 0)
            break; /* "007" is the integers 00 and 7 */
        if (n > (uint64_t)INT64_MAX / (unsigned)base ||
            n * (unsigned)base > (uint64_t)INT64_MAX - (unsigned)d)
            return jinja_build_fail(lx->b, JINJA_ERR_UNSUPPORTED, t.line,
                                    "integer literal does not fit 64 bits");
        n = n * (unsigned)base + (unsigned)d;
    }
    t.bits = n;
    advance(lx, q);
    return jinja_build_token(lx->b, t);
}

static bool lex_name(struct lexer *lx)
{
    const char *p = lx->p, *q = p;
    uint32_t cp;

    while (q < lx->end) {
        unsigned n = jinja_utf8_decode(q, &cp);

        if (!jinja_is_word(cp))
            break;
        q += n;
    }
    jinja_utf8_decode(p, &cp);
    if (cp != '_' && !jinja_is_class(cp, JINJA_CLASS_ALPHA))
        return fail(lx, p, "Invalid character in identifier");
    if (!emit_text(lx, TOK_NAME, p, p, (size_t)(q - p)))
        return false;
    advance(lx, q);
    return true;
}

/* Python's unicode-escape decoding. out has room for 10 bytes per byte of input. */
static const char *unescape(const char *s, const char *end, char *out, size_t *out_len)
{
    char *w = out;
    uint32_t cp;
    int i, digits, d;

    while (s < end) {
        if (*s != '\\') {
            *w++ = *s++;
            continue;
        }
        if (++s == end)
            return "\\ at end of string";
        switch (*s) {
        case '\n':
            s++;
            continue;
        case '\\':
        case '\'':
        case '"':
            *w++ = *s++;
            continue;
        case 'a':
            cp = 7, s++;
            break;
        case 'b':
            cp = 8, s++;
            break;
        case 'f':
            cp = 12, s++;
            break;
        case 'n':
            cp = 10, s++;
            break;
        case 'r':
            cp = 13, s++;
            break;
        case 't':
            cp = 9, s++;
            break;
        case 'v':
            cp = 11, s++;
            break;
        case 'x':
        case 'u':
        case 'U':
            digits = *s == 'x' ? 2 : *s == 'u' ? 4 : 8;
            for (i = 0, cp = 0, s++; i < digits; i++, s++) {
                d = s < end ? digit_value(*s) : 99;
                if (d > 15)
                    return "truncated \\xXX, \\uXXXX or \\UXXXXXXXX escape";
                cp = cp << 4 | (uint32_t)d;
            }
            if (cp > 0x10ffff)
                return "illegal Unicode character";
            if (cp >= 0xd800 && cp <= 0xdfff)
                return "escape of a lone surrogate";
            break;
        case 'N':
            return "\\N escapes are not supported";
        default:
            if (*s >= '0' && *s <= '7') {
                for (i = 0, cp = 0; i < 3 && s < end && *s >= '0' && *s <= '7'; i++, s++)
                    cp = cp << 3 | (uint32_t)(*s - '0');
                break;
            }
            *w++ = '\\';
            if ((unsigned char)*s >= 0x80) {
                /* jinja2 turns the character into an escape first, and the backslash before it
                 * makes that escape literal text. */
                static const char hex[] = "0123456789abcdef";
                int shift;

                s += jinja_utf8_decode(s, &cp);
                *w++ = cp < 0x100 ? 'x' : cp < 0x10000 ? 'u' : 'U';
                for (shift = cp < 0x100 ? 4 : cp < 0x10000 ? 12 : 28; shift >= 0; shift -= 4)
                    *w++ = hex[cp >> shift & 15];
            }
            continue;
        }
        w += jinja_utf8_encode(cp, w);
    }
    *out_len = (size_t)(w - out);
    return NULL;
}

static bool lex_string(struct lexer *lx)
{
    const char *q = lx->p + 1, *message;
    char quote = *lx->p, *buf;
    size_t len;
    bool ok;

    while (q < lx->end && *q != quote)
        q += *q == '\\' ? 2 : 1;
    if (q >= lx->end)
        return fail(lx, lx->p, "string without an end");
    buf = malloc((size_t)(q - lx->p) * 10 + 1);
    if (!buf)
        return jinja_build_no_memory(lx->b);
    message = unescape(lx->p + 1, q, buf, &len);
    ok = message ? fail(lx, lx->p, message) : emit_text(lx, TOK_STRING, lx->p, buf, len);
    free(buf);
    advance(lx, q + 1);
    return ok;
}

static const struct {
    char text[3];
    uint8_t kind;
} operators[] = {
    /* two characters first */
    {"//", TOK_FLOORDIV}, {"**", TOK_POW},      {"==", TOK_EQ},    {"!=", TOK_NE},
    {">=", TOK_GE},       {"<=", TOK_LE},       {"+", TOK_ADD},    {"-", TOK_SUB},
    {"/", TOK_DIV},       {"*", TOK_MUL},       {"%", TOK_MOD},    {"~", TOK_TILDE},
    {"[", TOK_LBRACKET},  {"]", TOK_RBRACKET},  {"(", TOK_LPAREN}, {")", TOK_RPAREN},
    {"{", TOK_LBRACE},    {"}", TOK_RBRACE},    {">", TOK_GT},     {"<", TOK_LT},
    {"=", TOK_ASSIGN},    {".", TOK_DOT},       {":", TOK_COLON},  {"|", TOK_PIPE},
    {",", TOK_COMMA},     {";", TOK_SEMICOLON},
};

#define MAX_BRACKETS 256u

/* Brackets that are open inside a tag; its end is only seen when there are none. */
struct brackets {
    char open[MAX_BRACKETS];
    uint32_t count;
};

static bool lex_operator(struct lexer *lx, struct brackets *br)
{
    size_t i;
    char c = *lx->p;

    for (i = 0; i < sizeof(operators) / sizeof(operators[0]); i++)
        if (starts(lx, lx->p, operators[i].text))
            break;
    if (i == sizeof(operators) / sizeof(operators[0]))
        return jinja_build_fail(lx->b, JINJA_ERR_SYNTAX, line_of(lx, lx->p),
                                "unexpected char '%.*s'",
                                (int)jinja_utf8_decode(lx->p, &(uint32_t){0}), lx->p);
    if (c == '(' || c == '[' || c == '{') {
        if (br->count == MAX_BRACKETS)
            return fail(lx, lx->p, "brackets nested too deeply");
        br->open[br->count++] = c;
    } else if (c == ')' || c == ']' || c == '}') {
        char want = c == ')' ? '(' : c == ']' ? '[' : '{';

        if (!br->count || br->open[--br->count] != want)
            return jinja_build_fail(lx->b, JINJA_ERR_SYNTAX, line_of(lx, lx->p), "unexpected '%c'",
                                    c);
    }
    if (!emit(lx, operators[i].kind, lx->p))
        return false;
    advance(lx, lx->p + strlen(operators[i].text));
    return true;
}

/* The end of the tag at lx->p, or NULL when there is none here. */
static const char *match_tag_end(const struct lexer *lx, bool is_variable)
{
    const char *p = lx->p;

    if (is_variable) {
        if (starts(lx, p, "-}}"))
            return skip_space(p + 3, lx->end);
        return starts(lx, p, "}}") ? p + 2 : NULL;
    }
    if (starts(lx, p, "-%}"))
        return skip_space(p + 3, lx->end);
    if (starts(lx, p, "+%}"))
        return p + 3;
    if (!starts(lx, p, "%}"))
        return NULL;
    p += 2;
    return p < lx->end && *p == '\n' ? p + 1 : p;
}

static bool lex_tag(struct lexer *lx, bool is_variable)
{
    struct brackets br = {.count = 0};
    const char *end;
    uint32_t cp;
    bool ok;

    while (lx->p < lx->end) {
        if (!br.count && (end = match_tag_end(lx, is_variable)) != NULL) {
            ok = emit(lx, is_variable ? TOK_VAR_END : TOK_BLOCK_END, lx->p);
            advance(lx, end);
            return ok;
        }
        end = skip_space(lx->p, lx->end);
        if (end > lx->p) {
            advance(lx, end);
            continue;
        }
        jinja_utf8_decode(lx->p, &cp);
        end = match_float(lx);
        if (end)
            ok = lex_float(lx, end);
        else if (cp < 0x80 && is_digit((char)cp))
            ok = lex_integer(lx);
        else if (jinja_is_word(cp))
            ok = lex_name(lx);
        else if (cp == '\'' || cp == '"')
            ok = lex_string(lx);
        else
            ok = lex_operator(lx, &br);
        if (!ok)
            return false;
    }
    return fail(lx, lx->p,
                is_variable ? "unexpected end of template, expected '}}'"
                            : "unexpected end of template, expected '%}'");
}

static bool lex_root(struct lexer *lx)
{
    const char *text = lx->p, *tag, *after;
    char kind, sign;

    for (tag = text; tag < lx->end; tag++)
        if (*tag == '{' && tag + 1 < lx->end && (tag[1] == '{' || tag[1] == '%' || tag[1] == '#'))
            break;
    if (tag >= lx->end) {
        lx->p = lx->end;
        return emit_data(lx, text, lx->end);
    }
    kind = tag[1];
    sign = tag + 2 < lx->end ? tag[2] : 0;
    if (!emit_data(lx, text, strip_before(lx, text, tag, sign, kind == '{')))
        return false;
    if (kind == '%' && (after = match_raw(lx, tag + 2, "raw", false)) != NULL) {
        advance(lx, after);
        return lex_raw(lx);
    }
    after = tag + 2 + (sign == '-' || sign == '+');
    if (kind != '#' && !emit(lx, kind == '{' ? TOK_VAR_BEGIN : TOK_BLOCK_BEGIN, tag))
        return false;
    advance(lx, after);
    return kind == '#' ? lex_comment(lx) : lex_tag(lx, kind == '{');
}

bool jinja_lex(struct jinja_build *b, const char *source, size_t len)
{
    char *src = malloc(len + 1);
    struct lexer lx;
    size_t i, n = 0;
    bool ok = true;

    if (!src)
        return jinja_build_no_memory(b);
    for (i = 0; i < len; i++) {
        if (source[i] == '\r') {
            src[n++] = '\n';
            if (i + 1 < len && source[i + 1] == '\n')
                i++;
        } else {
            src[n++] = source[i];
        }
    }
    if (n && src[n - 1] == '\n')
        n--;
    lx = (struct lexer){.b = b,
                        .src = src,
                        .end = src + n,
                        .p = src,
                        .line_at = src,
                        .line = 1,
                        .line_starting = true};
    while (ok && lx.p < lx.end)
        ok = lex_root(&lx);
    if (ok)
        ok = emit(&lx, TOK_EOF, lx.end);
    free(src);
    return ok;
}
