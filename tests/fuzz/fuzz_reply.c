// SPDX-License-Identifier: Apache-2.0
/*
 * Replies of engines, as the front process reads them: heads at every length, then bodies by length, in chunks or none.
 * However a reply is cut, what is read from it is the same, and what is passed on to a client cannot begin a line of its own.
 */
#include <string.h>

#include "tests/fuzz/chunks.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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
    check_cuts(text + head, size - (size_t)head, UINT64_MAX);
    return 0;
}
