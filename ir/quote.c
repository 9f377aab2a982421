// SPDX-License-Identifier: Apache-2.0
#include "ir/quote.h"

bool ir_is_plain_name(const char *s)
{
    if (!ir_is_name_start(*s)) return false;
    while (*++s)
        if (!ir_is_name_char(*s)) return false;
    return true;
}

void ir_put_quoted(struct strbuf *out, const char *s)
{
    strbuf_putc(out, '"');
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\') strbuf_printf(out, "\\%c", c);
        else if (c == '\n') strbuf_puts(out, "\\n");
        else if (c == '\t') strbuf_puts(out, "\\t");
        else if (c < 0x20 || c >= 0x7F) strbuf_printf(out, "\\x%02x", c);
        else strbuf_putc(out, (char)c);
    }
    strbuf_putc(out, '"');
}

void ir_put_name(struct strbuf *out, const char *s)
{
    if (ir_is_plain_name(s)) strbuf_puts(out, s);
    else ir_put_quoted(out, s);
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* One escape behind the backslash; the byte or -1. */
static int read_escape(const char **p, const char *end)
{
    if (*p == end) return -1;
    char c = *(*p)++;
    if (c == '"' || c == '\\') return c;
    if (c == 'n') return '\n';
    if (c == 't') return '\t';
    if (c != 'x' || end - *p < 2) return -1;
    int high = hex_digit((*p)[0]), low = hex_digit((*p)[1]);
    *p += 2;
    return high < 0 || low < 0 || (high | low) == 0 ? -1 : high * 16 + low;
}

char *ir_read_quoted(struct arena *a, const char **p, const char *end)
{
    const char *at = *p + 1;
    struct strbuf s = {0};
    char *result = NULL;
    int c = 0;
    while (c >= 0 && at < end && *at != '"' && *at != '\n' && *at) {
        c = (unsigned char)*at++;
        if (c == '\\') c = read_escape(&at, end);
        if (c >= 0) strbuf_putc(&s, (char)c);
    }
    if (c >= 0 && at < end && *at == '"') {
        result = arena_strndup(a, strbuf_get(&s), s.len);
        *p = at + 1;
    }
    strbuf_deinit(&s);
    return result;
}
