// SPDX-License-Identifier: Apache-2.0
#include "ir/support/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void strbuf_deinit(struct strbuf *s)
{
    free(s->data);
    *s = (struct strbuf){0};
}

static void reserve(struct strbuf *s, size_t more)
{
    size_t need, cap = s->cap ? s->cap : 128;
    INFC_ASSERT(size_add(s->len, more, &need) && need < SIZE_MAX / 2);
    if (s->data && need < s->cap) return;
    while (cap <= need) cap *= 2;
    char *p = realloc(s->data, cap);
    INFC_ASSERT(p != NULL);
    s->data = p;
    s->cap = cap;
}

void strbuf_putn(struct strbuf *s, const char *text, size_t len)
{
    reserve(s, len);
    if (len) memcpy(s->data + s->len, text, len);
    s->len += len;
    s->data[s->len] = 0;
}

void strbuf_putc(struct strbuf *s, char c) { strbuf_putn(s, &c, 1); }

void strbuf_puts(struct strbuf *s, const char *text) { strbuf_putn(s, text, strlen(text)); }

void strbuf_putu(struct strbuf *s, uint64_t v)
{
    char text[20];
    size_t at = sizeof text;
    do text[--at] = (char)('0' + v % 10);
    while (v /= 10);
    strbuf_putn(s, text + at, sizeof text - at);
}

void strbuf_printf(struct strbuf *s, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    reserve(s, 64);
    size_t room = s->cap - s->len; /* mostly enough, and then formatted only once */
    int len = vsnprintf(s->data + s->len, room, fmt, ap);
    va_end(ap);
    INFC_ASSERT(len >= 0);
    if ((size_t)len >= room) {
        reserve(s, (size_t)len);
        vsnprintf(s->data + s->len, (size_t)len + 1, fmt, again);
    }
    va_end(again);
    s->len += (size_t)len;
}

/* Length of the valid UTF-8 sequence at p (1..4), or 0. */
static size_t utf8_len(const unsigned char *p)
{
    if (p[0] < 0x80) return 1;
    if (p[0] >= 0xC2 && p[0] <= 0xDF) return (p[1] & 0xC0) == 0x80 ? 2 : 0;
    if ((p[0] & 0xF0) == 0xE0) {
        if ((p[1] & 0xC0) != 0x80 || (p[2] & 0xC0) != 0x80) return 0;
        if (p[0] == 0xE0 && p[1] < 0xA0) return 0;
        return p[0] == 0xED && p[1] > 0x9F ? 0 : 3;
    }
    if (p[0] >= 0xF0 && p[0] <= 0xF4) {
        if ((p[1] & 0xC0) != 0x80 || (p[2] & 0xC0) != 0x80 || (p[3] & 0xC0) != 0x80) return 0;
        if (p[0] == 0xF0 && p[1] < 0x90) return 0;
        return p[0] == 0xF4 && p[1] > 0x8F ? 0 : 4;
    }
    return 0;
}

void strbuf_put_json(struct strbuf *s, const char *text)
{
    strbuf_putc(s, '"');
    for (const unsigned char *p = (const unsigned char *)text; *p;) {
        size_t len = utf8_len(p);
        if (len == 0) {
            strbuf_puts(s, "\\ufffd");
            p++;
        } else if (len > 1) {
            strbuf_putn(s, (const char *)p, len);
            p += len;
        } else {
            if (*p == '"' || *p == '\\') strbuf_printf(s, "\\%c", *p);
            else if (*p == '\n') strbuf_puts(s, "\\n");
            else if (*p == '\t') strbuf_puts(s, "\\t");
            else if (*p < 0x20 || *p == 0x7F) strbuf_printf(s, "\\u%04x", *p);
            else strbuf_putc(s, (char)*p);
            p++;
        }
    }
    strbuf_putc(s, '"');
}

const char *strbuf_get(const struct strbuf *s) { return s->data ? s->data : ""; }
