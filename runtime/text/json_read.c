// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/json_read.h"

#include <math.h>
#include <string.h>

#include "runtime/text/jinja_number.h"
#include "runtime/text/jinja_unicode.h"

struct reader {
    struct jinja_arena *arena;
    const char *text, *p, *end;
    struct json_read_error *err;
};

static bool read_value(struct reader *r, unsigned depth, struct jinja_value *out);

static bool fail(struct reader *r, const char *message)
{
    r->err->offset_bytes = (size_t)(r->p - r->text);
    r->err->message = message;
    return false;
}

static bool no_memory(struct reader *r)
{
    return fail(r, "out of memory");
}

static void skip_space(struct reader *r)
{
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\t' || *r->p == '\n' || *r->p == '\r'))
        r->p++;
}

static bool hex4(struct reader *r, uint32_t *out)
{
    int i;

    *out = 0;
    if (r->end - r->p < 4)
        return fail(r, "short \\u escape");
    for (i = 0; i < 4; i++, r->p++) {
        char c = *r->p;

        *out <<= 4;
        if (c >= '0' && c <= '9')
            *out |= (uint32_t)(c - '0');
        else if ((c | 32) >= 'a' && (c | 32) <= 'f')
            *out |= (uint32_t)((c | 32) - 'a' + 10);
        else
            return fail(r, "bad \\u escape");
    }
    return true;
}

/* After the backslash. */
static bool read_escape(struct reader *r, char **w)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *at;
    uint32_t cp, low;

    if (r->p == r->end)
        return fail(r, "string without an end");
    if (*r->p != 'u') {
        at = *r->p ? strchr(from, *r->p) : NULL;
        if (!at)
            return fail(r, "unknown escape");
        *(*w)++ = to[at - from];
        r->p++;
        return true;
    }
    r->p++;
    if (!hex4(r, &cp))
        return false;
    if (cp >= 0xdc00 && cp <= 0xdfff)
        return fail(r, "lone surrogate");
    if (cp >= 0xd800 && cp <= 0xdbff) {
        if (r->end - r->p < 2 || r->p[0] != '\\' || r->p[1] != 'u')
            return fail(r, "lone surrogate");
        r->p += 2;
        if (!hex4(r, &low))
            return false;
        if (low < 0xdc00 || low > 0xdfff)
            return fail(r, "lone surrogate");
        cp = 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00);
    }
    *w += jinja_utf8_encode(cp, *w);
    return true;
}

/* At the opening quote. The whole text was checked to be UTF-8, and escapes never grow. */
static bool read_string(struct reader *r, struct jinja_value *out)
{
    const char *close = ++r->p;
    char *buf, *w;
    size_t room;

    while (close < r->end && *close != '"')
        close += *close == '\\' ? 2 : 1;
    if (close >= r->end)
        return fail(r, "string without an end");
    room = (size_t)(close - r->p);
    if (room > UINT32_MAX / 2)
        return fail(r, "string too long");
    buf = w = jinja_arena_alloc(r->arena, room, 1);
    if (!buf)
        return no_memory(r);
    while (*r->p != '"') {
        if ((unsigned char)*r->p < 0x20)
            return fail(r, "control character in a string");
        if (*r->p != '\\') {
            *w++ = *r->p++;
            continue;
        }
        r->p++;
        if (!read_escape(r, &w))
            return false;
    }
    r->p++;
    jinja_arena_trim(r->arena, buf + room, w);
    *out = jinja_str_trusted(buf, (uint32_t)(w - buf));
    return true;
}

static bool is_digit(const struct reader *r)
{
    return r->p < r->end && *r->p >= '0' && *r->p <= '9';
}

static bool read_number(struct reader *r, struct jinja_value *out)
{
    const char *start = r->p;
    bool real = false;
    char *copy;
    size_t len;
    int64_t n;
    double f;

    if (*r->p == '-')
        r->p++;
    if (!is_digit(r))
        return fail(r, "unexpected character");
    if (*r->p == '0')
        r->p++;
    else
        while (is_digit(r))
            r->p++;
    if (r->p < r->end && *r->p == '.') {
        real = true;
        r->p++;
        if (!is_digit(r))
            return fail(r, "bad number");
        while (is_digit(r))
            r->p++;
    }
    if (r->p < r->end && (*r->p == 'e' || *r->p == 'E')) {
        real = true;
        r->p++;
        if (r->p < r->end && (*r->p == '+' || *r->p == '-'))
            r->p++;
        if (!is_digit(r))
            return fail(r, "bad number");
        while (is_digit(r))
            r->p++;
    }
    len = (size_t)(r->p - start);
    if (!real && jinja_number_int(start, len, &n)) {
        *out = jinja_int(n);
        return true;
    }
    copy = jinja_arena_alloc(r->arena, len, 1);
    if (!copy)
        return no_memory(r);
    memcpy(copy, start, len);
    if (!real) {
        if (len > UINT32_MAX / 2)
            return fail(r, "number too long");
        *out = jinja_str_trusted(copy, (uint32_t)len);
        out->kind = JINJA_BIGINT;
        return true;
    }
    if (!jinja_number_double(copy, len, &f))
        return no_memory(r);
    if (isinf(f)) /* RFC 8259 leaves the range to the reader; an infinity could not be written again */
        return fail(r, "number out of range");
    *out = jinja_float(f);
    return true;
}

static bool read_array(struct reader *r, unsigned depth, struct jinja_value *out)
{
    struct jinja_value v;

    r->p++;
    if (!jinja_list_init(r->arena, 0, out))
        return no_memory(r);
    skip_space(r);
    if (r->p < r->end && *r->p == ']') {
        r->p++;
        return true;
    }
    for (;;) {
        if (!read_value(r, depth + 1, &v))
            return false;
        if (!jinja_list_append(r->arena, out->u.list, v))
            return no_memory(r);
        skip_space(r);
        if (r->p < r->end && *r->p == ',') {
            r->p++;
            continue;
        }
        if (r->p == r->end || *r->p != ']')
            return fail(r, "expected ',' or ']'");
        r->p++;
        return true;
    }
}

static bool read_object(struct reader *r, unsigned depth, struct jinja_value *out)
{
    struct jinja_value key, v;

    r->p++;
    if (!jinja_dict_init(r->arena, 0, out))
        return no_memory(r);
    skip_space(r);
    if (r->p < r->end && *r->p == '}') {
        r->p++;
        return true;
    }
    for (;;) {
        skip_space(r);
        if (r->p == r->end || *r->p != '"')
            return fail(r, "expected a string as key");
        if (!read_string(r, &key))
            return false;
        skip_space(r);
        if (r->p == r->end || *r->p != ':')
            return fail(r, "expected ':'");
        r->p++;
        if (!read_value(r, depth + 1, &v))
            return false;
        if (!jinja_dict_put(r->arena, out->u.dict, key, v))
            return no_memory(r);
        skip_space(r);
        if (r->p < r->end && *r->p == ',') {
            r->p++;
            continue;
        }
        if (r->p == r->end || *r->p != '}')
            return fail(r, "expected ',' or '}'");
        r->p++;
        return true;
    }
}

static bool read_word(struct reader *r, const char *word, struct jinja_value v,
                      struct jinja_value *out)
{
    size_t n = strlen(word);

    if ((size_t)(r->end - r->p) < n || memcmp(r->p, word, n) != 0)
        return fail(r, "unexpected character");
    r->p += n;
    *out = v;
    return true;
}

static bool read_value(struct reader *r, unsigned depth, struct jinja_value *out)
{
    skip_space(r);
    if (depth > JSON_READ_DEPTH)
        return fail(r, "nested too deeply");
    if (r->p == r->end)
        return fail(r, "unexpected end");
    switch (*r->p) {
    case '{':
        return read_object(r, depth, out);
    case '[':
        return read_array(r, depth, out);
    case '"':
        return read_string(r, out);
    case 't':
        return read_word(r, "true", jinja_bool(true), out);
    case 'f':
        return read_word(r, "false", jinja_bool(false), out);
    case 'n':
        return read_word(r, "null", jinja_none(), out);
    default:
        return read_number(r, out);
    }
}

bool json_read(struct jinja_arena *arena, const char *text, size_t len_bytes,
               struct jinja_value *out, struct json_read_error *out_err)
{
    struct reader r = {
        .arena = arena, .text = text, .p = text, .end = text + len_bytes, .err = out_err};

    *out = (struct jinja_value){.kind = JINJA_MISSING};
    *out_err = (struct json_read_error){0};
    if (!jinja_utf8_valid(text, len_bytes))
        return fail(&r, "not valid UTF-8");
    if (!read_value(&r, 0, out))
        return false;
    skip_space(&r);
    return r.p == r.end || fail(&r, "text after the value");
}
