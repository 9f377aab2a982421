// SPDX-License-Identifier: Apache-2.0
/*
 * HTTP/1.1 requests, framed strictly (RFC 9112): whatever two readers could understand differently
 * is refused. That is: lines end in CR LF; no white space around the parts of the request line nor
 * before a colon; no folded lines; one Host; one Content-Length of digits alone; Transfer-Encoding
 * only as `chunked`, in HTTP/1.1, and never beside Content-Length. Nothing is allocated, nothing is
 * copied.
 */
#ifndef INFC_RUNTIME_SERVE_HTTP_PARSE_H
#define INFC_RUNTIME_SERVE_HTTP_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    HTTP_MAX_FIELDS = 100,
    HTTP_MAX_TARGET = 8192,
    HTTP_MAX_HEAD = 65536,
    HTTP_MAX_TRAILER = 8192,
    HTTP_MAX_EXTENSION = 256
};

struct http_span {
    const char *p;
    size_t n;
};

struct http_field {
    struct http_span name, value;
};

struct http_head {
    struct http_span method, path, query; /* path: as it came, not decoded; query without the ? */
    int status;                           /* of a reply, which has none of these three */
    unsigned minor;                       /* HTTP/1.minor, 0 or 1 */
    bool keep_alive, chunked, has_length, expect_continue;
    uint64_t length;
    size_t n_fields;
    struct http_field fields[HTTP_MAX_FIELDS];
};

/*
 * Reads a request's head from the first n bytes. Returns the number of its bytes, 0 when it is not
 * complete, or minus the status to answer with: 400, 414, 417, 431, 501 or 505. *out points into
 * text.
 */
int http_parse_head(const char *text, size_t n, struct http_head *out);
/* The same for a reply's head, from a server of ours; what is wrong with one is always negative. */
int http_parse_reply(const char *text, size_t n, struct http_head *out);
/* NULL when there is none, or several. The name in lower case. */
const struct http_span *http_find(const struct http_head *h, const char *name);
bool http_is(struct http_span s, const char *text);
/* ASCII letters alike. */
bool http_is_word(struct http_span s, const char *lower);

/* ---- chunked bodies ---- */

struct http_chunks {
    uint8_t state;
    uint32_t digits, line; /* of the size; bytes of an extension or of all trailers */
    bool empty_line;
    uint64_t left, total;
};

enum http_chunk_result { HTTP_CHUNK_MORE, HTTP_CHUNK_DATA, HTTP_CHUNK_END };

/*
 * Reads from in[0, n): sets *used, and for HTTP_CHUNK_DATA a piece of the body inside of it.
 * HTTP_CHUNK_MORE: all was used and the body goes on. Negative: minus the status to answer with
 * (400, 413, 431).
 */
int http_chunks_feed(struct http_chunks *c, const char *in, size_t n, uint64_t max_body,
                     size_t *used, struct http_span *out);

#endif
