// SPDX-License-Identifier: Apache-2.0
/* UTF-8: checking, repairing, stepping. No tables. */
#ifndef INFC_RUNTIME_TEXT_UNICODE_UTF8_H
#define INFC_RUNTIME_TEXT_UNICODE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Looks at the bytes [p, p + n), n > 0. Returns the length of the well-formed character there and
 * sets *valid to 1; otherwise the length of the maximal ill-formed part, *valid 0. An incomplete
 * but so far well-formed character at the very end sets *valid to -1. */
unsigned utf8_scan(const uint8_t *p, size_t n, int *valid);

bool utf8_is_valid(const uint8_t *p, size_t n);
/* Length after every ill-formed part has become U+FFFD. */
size_t utf8_repaired_size(const uint8_t *p, size_t n);
/* Writes that; returns its length. */
size_t utf8_repair(const uint8_t *p, size_t n, uint8_t *out);

/* The functions below want well-formed text. */
static inline unsigned utf8_length(uint8_t lead)
{
    return lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

static inline uint32_t utf8_get(const uint8_t *p)
{
    if (p[0] < 0x80) return p[0];
    if (p[0] < 0xe0) return (uint32_t)(p[0] & 0x1f) << 6 | (p[1] & 0x3f);
    if (p[0] < 0xf0)
        return (uint32_t)(p[0] & 0x0f) << 12 | (uint32_t)(p[1] & 0x3f) << 6 | (p[2] & 0x3f);
    return (uint32_t)(p[0] & 0x07) << 18 | (uint32_t)(p[1] & 0x3f) << 12 |
           (uint32_t)(p[2] & 0x3f) << 6 | (p[3] & 0x3f);
}

static inline unsigned utf8_size(uint32_t c)
{
    return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
}

static inline unsigned utf8_put(uint8_t *out, uint32_t c)
{
    if (c < 0x80) {
        out[0] = (uint8_t)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (uint8_t)(0xc0 | c >> 6);
        out[1] = (uint8_t)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (uint8_t)(0xe0 | c >> 12);
        out[1] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
        out[2] = (uint8_t)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (uint8_t)(0xf0 | c >> 18);
    out[1] = (uint8_t)(0x80 | (c >> 12 & 0x3f));
    out[2] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
    out[3] = (uint8_t)(0x80 | (c & 0x3f));
    return 4;
}

#endif
