// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "runtime/serve/http_parse.h"

#include <string.h>

/* ---- characters ---- */

static bool is_digit(unsigned char c) { return c >= '0' && c <= '9'; }

/* RFC 9110, 5.6.2 */
static bool is_token(unsigned char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool all_token(struct http_span s)
{
    for (size_t i = 0; i < s.n; i++)
        if (!is_token((unsigned char)s.p[i])) return false;
    return s.n > 0;
}

static unsigned char lower(char c)
{
    return (unsigned char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
}

bool http_is(struct http_span s, const char *text)
{
    return strlen(text) == s.n && !memcmp(s.p, text, s.n);
}

bool http_is_word(struct http_span s, const char *word)
{
    size_t i = 0;
    while (i < s.n && word[i] && lower(s.p[i]) == (unsigned char)word[i]) i++;
    return i == s.n && !word[i];
}

const struct http_span *http_find(const struct http_head *h, const char *name)
{
    const struct http_span *found = NULL;
    for (size_t i = 0; i < h->n_fields; i++) {
        if (!http_is_word(h->fields[i].name, name)) continue;
        if (found) return NULL;
        found = &h->fields[i].value;
    }
    return found;
}

/* ---- request line ---- */

/* "/path?query", "http://authority/path?query", or "*". */
static int take_target(struct http_span t, struct http_head *h)
{
    for (size_t i = 0; i < t.n; i++)
        if ((unsigned char)t.p[i] <= 0x20 || (unsigned char)t.p[i] >= 0x7f || t.p[i] == '#')
            return -400;
    if (t.n > 7 && http_is_word((struct http_span){t.p, 7}, "http://")) {
        const char *slash = memchr(t.p + 7, '/', t.n - 7);
        if (!slash || slash == t.p + 7) return -400;
        t.n -= (size_t)(slash - t.p);
        t.p = slash;
    } else if (!t.n || (t.p[0] != '/' && !http_is(t, "*"))) {
        return -400;
    }
    const char *mark = memchr(t.p, '?', t.n);
    h->path = (struct http_span){t.p, mark ? (size_t)(mark - t.p) : t.n};
    h->query = (struct http_span){t.p + t.n, 0};
    if (mark) h->query = (struct http_span){mark + 1, t.n - h->path.n - 1};
    return 0;
}

static int take_request_line(const char *p, size_t n, struct http_head *h)
{
    const char *a = memchr(p, ' ', n);
    if (!a) return -400;
    const char *b = memchr(a + 1, ' ', n - (size_t)(a + 1 - p));
    if (!b) return -400; /* HTTP/0.9 too */
    h->method = (struct http_span){p, (size_t)(a - p)};
    struct http_span version = {b + 1, n - (size_t)(b + 1 - p)};
    if (!all_token(h->method) || h->method.n > 32) return -400;
    if (version.n != 8 || memcmp(version.p, "HTTP/", 5) || !is_digit((unsigned char)version.p[5]) ||
        version.p[6] != '.' || !is_digit((unsigned char)version.p[7]))
        return -400;
    if (version.p[5] != '1') return -505;
    h->minor = version.p[7] == '0' ? 0 : 1;
    return take_target((struct http_span){a + 1, (size_t)(b - a - 1)}, h);
}

/* "HTTP/1.1 200 Reason". */
static int take_status_line(const char *p, size_t n, struct http_head *h)
{
    if (n < 12 || memcmp(p, "HTTP/1.", 7) || !is_digit((unsigned char)p[7]) || p[8] != ' ') return -400;
    h->minor = p[7] == '0' ? 0 : 1;
    h->status = 0;
    for (size_t i = 9; i < 12; i++) {
        if (!is_digit((unsigned char)p[i])) return -400;
        h->status = h->status * 10 + (p[i] - '0');
    }
    if (n > 12 && p[12] != ' ') return -400;
    for (size_t i = 12; i < n; i++)
        if (((unsigned char)p[i] < 0x20 && p[i] != '\t') || p[i] == 0x7f) return -400;
    return h->status < 100 || h->status > 599 ? -400 : 0;
}

/* ---- fields ---- */

static int take_field(const char *p, size_t n, struct http_head *h)
{
    const char *colon = memchr(p, ':', n);
    if (h->n_fields == HTTP_MAX_FIELDS) return -431;
    if (!colon) return -400;
    struct http_field *f = &h->fields[h->n_fields++];
    f->name = (struct http_span){p, (size_t)(colon - p)};
    f->value = (struct http_span){colon + 1, n - f->name.n - 1};
    if (!all_token(f->name)) return -400; /* and so no folded lines */
    while (f->value.n && (f->value.p[0] == ' ' || f->value.p[0] == '\t')) f->value.p++, f->value.n--;
    while (f->value.n && (f->value.p[f->value.n - 1] == ' ' || f->value.p[f->value.n - 1] == '\t'))
        f->value.n--;
    for (size_t i = 0; i < f->value.n; i++) {
        unsigned char c = (unsigned char)f->value.p[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f) return -400;
    }
    return 0;
}

static int take_length(struct http_span v, struct http_head *h)
{
    if (h->has_length || !v.n || v.n > 18) return -400;
    h->has_length = true;
    for (size_t i = 0; i < v.n; i++) {
        if (!is_digit((unsigned char)v.p[i])) return -400;
        h->length = h->length * 10 + (uint64_t)(v.p[i] - '0');
    }
    return 0;
}

/* Goes through a comma separated list. */
static void take_connection(struct http_span v, struct http_head *h)
{
    for (size_t at = 0; at < v.n;) {
        const char *comma = memchr(v.p + at, ',', v.n - at);
        size_t end = comma ? (size_t)(comma - v.p) : v.n, from = at, to = end;
        while (from < to && (v.p[from] == ' ' || v.p[from] == '\t')) from++;
        while (to > from && (v.p[to - 1] == ' ' || v.p[to - 1] == '\t')) to--;
        struct http_span word = {v.p + from, to - from};
        if (http_is_word(word, "close")) h->keep_alive = false;
        if (http_is_word(word, "keep-alive") && !h->minor) h->keep_alive = true;
        at = end + 1;
    }
}

/* What the fields say of the message's frame. */
static int frame(struct http_head *h, bool reply)
{
    unsigned hosts = 0;
    bool close = false;
    h->keep_alive = h->minor > 0;
    for (size_t i = 0; i < h->n_fields; i++) {
        struct http_span name = h->fields[i].name, v = h->fields[i].value;
        int code = 0;
        if (http_is_word(name, "host")) {
            hosts++;
        } else if (http_is_word(name, "content-length")) {
            code = take_length(v, h);
        } else if (http_is_word(name, "transfer-encoding")) {
            if (h->chunked) return -400;
            if (!http_is_word(v, "chunked")) return -501;
            h->chunked = true;
        } else if (http_is_word(name, "connection")) {
            bool kept = h->keep_alive;
            take_connection(v, h);
            close = close || (kept && !h->keep_alive);
        } else if (!reply && http_is_word(name, "expect")) {
            if (!http_is_word(v, "100-continue")) return -417;
            h->expect_continue = h->minor > 0;
        }
        if (code) return code;
    }
    if (close) h->keep_alive = false;
    if (!reply && (hosts > 1 || (!hosts && h->minor))) return -400;
    if (h->chunked && (h->has_length || !h->minor)) return -400;
    return 0;
}

static int parse(const char *text, size_t n, bool reply, struct http_head *out)
{
    size_t at = 0, most = n < HTTP_MAX_HEAD ? n : HTTP_MAX_HEAD;
    bool first = true;
    if (!reply && most >= 2 && text[0] == '\r' && text[1] == '\n') at = 2; /* RFC 9112, 2.2 */
    out->n_fields = 0;
    out->chunked = out->has_length = out->expect_continue = false;
    out->length = 0;
    for (;;) {
        const char *end = memchr(text + at, '\n', most - at);
        size_t line = end ? (size_t)(end - (text + at)) : most - at;
        int code;
        if (first && line > HTTP_MAX_TARGET) return -414;
        if (!end) return n >= HTTP_MAX_HEAD ? -431 : 0;
        if (!line || text[at + line - 1] != '\r') return -400;
        if (memchr(text + at, '\r', line - 1)) return -400;
        if (line == 1 && !first) {
            code = frame(out, reply);
            return code ? code : (int)(at + 2);
        }
        if (!first) code = take_field(text + at, line - 1, out);
        else code = reply ? take_status_line(text + at, line - 1, out) : take_request_line(text + at, line - 1, out);
        if (code) return code;
        first = false;
        at += line + 1;
    }
}

int http_parse_head(const char *text, size_t n, struct http_head *out) { return parse(text, n, false, out); }

int http_parse_reply(const char *text, size_t n, struct http_head *out) { return parse(text, n, true, out); }

/* ---- chunked bodies ---- */

enum { SIZE, EXTENSION, SIZE_LF, DATA, DATA_CR, DATA_LF, TRAILER, TRAILER_LF, END };

static int hex(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    c |= 32;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* One character outside of data. Negative: a status. */
static int framing(struct http_chunks *c, char x, uint64_t max_body)
{
    unsigned char u = (unsigned char)x;
    switch (c->state) {
    case SIZE:
        if (hex(x) >= 0) {
            if (++c->digits > 16) return -400;
            c->left = c->left << 4 | (uint64_t)hex(x);
            return c->left > max_body ? -413 : 0;
        }
        if (!c->digits) return -400;
        c->line = 0;
        c->state = x == '\r' ? SIZE_LF : EXTENSION;
        return x == '\r' || x == ';' ? 0 : -400;
    case EXTENSION:
        if (x == '\r') return c->state = SIZE_LF, c->line ? 0 : -400; /* a bare semicolon */
        return (u < 0x20 && x != '\t') || u == 0x7f || ++c->line > HTTP_MAX_EXTENSION ? -400 : 0;
    case SIZE_LF:
        if (x != '\n') return -400;
        c->state = c->left ? DATA : TRAILER;
        c->total += c->left;
        c->line = 0, c->empty_line = true;
        return c->total > max_body ? -413 : 0;
    case DATA_CR: return c->state = DATA_LF, x == '\r' ? 0 : -400;
    case DATA_LF:
        c->state = SIZE, c->digits = 0, c->left = 0;
        return x == '\n' ? 0 : -400;
    case TRAILER:
        if (x == '\r') return c->state = TRAILER_LF, 0;
        if ((u < 0x20 && x != '\t') || u == 0x7f) return -400;
        c->empty_line = false;
        return ++c->line > HTTP_MAX_TRAILER ? -431 : 0;
    default: /* TRAILER_LF */
        if (x != '\n') return -400;
        c->state = c->empty_line ? END : TRAILER;
        c->empty_line = true;
        return 0;
    }
}

int http_chunks_feed(struct http_chunks *c, const char *in, size_t n, uint64_t max_body,
                     size_t *used, struct http_span *out)
{
    size_t at = 0;
    while (at < n && c->state != END) {
        if (c->state == DATA) {
            size_t k = c->left < n - at ? (size_t)c->left : n - at;
            *out = (struct http_span){in + at, k};
            c->left -= k;
            if (!c->left) c->state = DATA_CR;
            *used = at + k;
            return HTTP_CHUNK_DATA;
        }
        int code = framing(c, in[at++], max_body);
        if (code) return code;
    }
    *used = at;
    return c->state == END ? HTTP_CHUNK_END : HTTP_CHUNK_MORE;
}
