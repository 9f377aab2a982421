// SPDX-License-Identifier: Apache-2.0
/*
 * Framing of HTTP requests. However a stream is cut, what is read from it is the same: heads are
 * tried at every length, bodies are fed in pieces of several sizes, and the outcomes compared.
 */
#include <string.h>

#include "tests/fuzz/chunks.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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
    check_cuts(text + from, size - from, 1000);
    return 0;
}
