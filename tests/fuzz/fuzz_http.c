// SPDX-License-Identifier: Apache-2.0
/*
 * Framing of HTTP requests. However a stream is cut, what is read from it is the same: heads are
 * tried at every length, bodies are fed in pieces of several sizes, and the outcomes compared.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/serve/http_parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool right)
{
    if (!right) abort();
}

/* The body's bytes into out[size]; what ended it into *code. */
static size_t body(const char *in, size_t n, size_t piece, char *out, int *code)
{
    struct http_chunks c = {0};
    struct http_span data;
    size_t at = 0, n_out = 0, used;
    *code = HTTP_CHUNK_MORE;
    while (at < n && *code >= 0 && *code != HTTP_CHUNK_END) {
        size_t k = n - at < piece ? n - at : piece;
        *code = http_chunks_feed(&c, in + at, k, 1000, &used, &data);
        if (*code < 0) break;
        check(used <= k);
        if (*code == HTTP_CHUNK_DATA) {
            check(data.p >= in + at && data.p + data.n <= in + at + used);
            memcpy(out + n_out, data.p, data.n);
            n_out += data.n;
        }
        at += used;
    }
    check(n_out <= 1000);
    return n_out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    static struct http_head h;
    if (size > 4096) return 0;
    int whole = http_parse_head(text, size, &h);
    check(whole <= (int)size);
    for (size_t n = 0; n < size; n++) {
        int part = http_parse_head(text, n, &h);
        /* a prefix is incomplete, or already what the whole is */
        check(part == 0 || part == whole || (part < 0 && whole < 0));
    }
    size_t from = whole > 0 ? (size_t)whole : 0;
    char *a = malloc(size + 1), *b = malloc(size + 1);
    int code_a, code_b;
    size_t n_a = body(text + from, size - from, size + 1, a, &code_a);
    for (size_t piece = 1; piece < 8; piece += 3) {
        size_t n_b = body(text + from, size - from, piece, b, &code_b);
        check(n_a == n_b && !memcmp(a, b, n_a));
        check(code_a == code_b || (code_a >= 0 && code_b >= 0 && code_a != HTTP_CHUNK_END &&
                                   code_b != HTTP_CHUNK_END));
    }
    free(a);
    free(b);
    return 0;
}
