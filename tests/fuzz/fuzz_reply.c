// SPDX-License-Identifier: Apache-2.0
/*
 * Replies of engines, as the front process reads them: heads at every length, then bodies by length, in chunks or none.
 * However a reply is cut, what is read from it is the same, and what is passed on to a client cannot begin a line of its own.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/serve/http_parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool right)
{
    if (!right) abort();
}

static bool within(struct http_span s, const char *text, size_t n) { return s.p >= text && s.p <= text + n && s.n <= (size_t)(text + n - s.p); }

static void check_head(const struct http_head *h, const char *text, size_t n)
{
    check(h->status >= 100 && h->status <= 599);
    check(!(h->chunked && h->has_length));
    check(h->n_fields <= HTTP_MAX_FIELDS);
    for (size_t i = 0; i < h->n_fields; i++) {
        struct http_span name = h->fields[i].name, value = h->fields[i].value;
        check(name.n && within(name, text, n) && within(value, text, n));
        check(!memchr(name.p, ':', name.n) && !memchr(name.p, '\n', name.n) && !memchr(name.p, '\r', name.n));
        check(!memchr(value.p, '\n', value.n) && !memchr(value.p, '\r', value.n) && !memchr(value.p, 0, value.n));
    }
}

/* The body's bytes into out[n]; what ended it into *code. */
static size_t read_chunks(const char *in, size_t n, size_t piece, char *out, int *code)
{
    struct http_chunks c = {0};
    struct http_span part;
    size_t at = 0, n_out = 0, used;
    *code = HTTP_CHUNK_MORE;
    while (at < n && *code >= 0 && *code != HTTP_CHUNK_END) {
        size_t k = n - at < piece ? n - at : piece;
        *code = http_chunks_feed(&c, in + at, k, UINT64_MAX, &used, &part);
        if (*code < 0) break;
        check(used <= k);
        if (*code == HTTP_CHUNK_DATA) {
            check(part.p >= in + at && part.p + part.n <= in + at + used && n_out + part.n <= n);
            memcpy(out + n_out, part.p, part.n);
            n_out += part.n;
        }
        at += used;
    }
    return n_out;
}

static bool goes_on(int code) { return code >= 0 && code != HTTP_CHUNK_END; }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct http_head h;
    const char *text = (const char *)data;
    if (size > 4096) return 0;
    for (size_t n = 0; n < size; n++) {
        struct http_head part;
        int whole = http_parse_reply(text, size, &h), some = http_parse_reply(text, n, &part);
        check(some == 0 || some == whole || (some < 0 && whole < 0));
    }
    int head = http_parse_reply(text, size, &h);
    check(head <= (int)size);
    if (head <= 0) return 0;
    check_head(&h, text, (size_t)head);
    size_t n = size - (size_t)head;
    char *a = malloc(n + 1), *b = malloc(n + 1);
    int code_a, code_b;
    size_t n_a = read_chunks(text + head, n, n + 1, a, &code_a);
    for (size_t piece = 1; piece < 8; piece += 3) {
        size_t n_b = read_chunks(text + head, n, piece, b, &code_b);
        check(n_a == n_b && !memcmp(a, b, n_a));
        check(code_a == code_b || (goes_on(code_a) && goes_on(code_b)));
    }
    free(a);
    free(b);
    return 0;
}
