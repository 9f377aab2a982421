// SPDX-License-Identifier: Apache-2.0
/* Bodies in chunks, for fuzz targets of requests and of replies: however they are cut, what is read is the same. */
#ifndef INFC_TESTS_FUZZ_CHUNKS_H
#define INFC_TESTS_FUZZ_CHUNKS_H

#include <stdlib.h>
#include <string.h>

#include "runtime/serve/http_parse.h"

static inline void check(bool right)
{
    if (!right) abort();
}

/* The body's bytes into out[n], at most `limit` of them; what ended it into *code. */
static inline size_t read_chunks(const char *in, size_t n, size_t piece, uint64_t limit, char *out, int *code)
{
    struct http_chunks c = {0};
    struct http_span part;
    size_t at = 0, n_out = 0, used;
    *code = HTTP_CHUNK_MORE;
    while (at < n && *code >= 0 && *code != HTTP_CHUNK_END) {
        size_t k = n - at < piece ? n - at : piece;
        *code = http_chunks_feed(&c, in + at, k, limit, &used, &part);
        if (*code < 0) break;
        check(used <= k);
        if (*code == HTTP_CHUNK_DATA) {
            check(part.p >= in + at && part.p + part.n <= in + at + used && n_out + part.n <= n);
            memcpy(out + n_out, part.p, part.n);
            n_out += part.n;
        }
        at += used;
    }
    check(n_out <= limit);
    return n_out;
}

static inline bool chunks_go_on(int code) { return code >= 0 && code != HTTP_CHUNK_END; }

/* In one piece, and in pieces of 1, 4 and 7 bytes. */
static inline void check_cuts(const char *in, size_t n, uint64_t limit)
{
    char *a = malloc(n + 1), *b = malloc(n + 1);
    int code_a, code_b;
    size_t n_a = read_chunks(in, n, n + 1, limit, a, &code_a);
    for (size_t piece = 1; piece < 8; piece += 3) {
        size_t n_b = read_chunks(in, n, piece, limit, b, &code_b);
        check(n_a == n_b && !memcmp(a, b, n_a));
        check(code_a == code_b || (chunks_go_on(code_a) && chunks_go_on(code_b)));
    }
    free(a);
    free(b);
}

#endif
