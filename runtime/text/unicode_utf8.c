// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/unicode_utf8.h"

#include <string.h>

unsigned utf8_scan(const uint8_t *p, size_t n, int *valid)
{
    uint8_t b = p[0], lo = 0x80, hi = 0xbf;
    unsigned len;
    *valid = 1;
    if (b < 0x80) return 1;
    if (b >= 0xc2 && b <= 0xdf)
        len = 2;
    else if (b >= 0xe0 && b <= 0xef)
        len = 3;
    else if (b >= 0xf0 && b <= 0xf4)
        len = 4;
    else {
        *valid = 0;
        return 1;
    }
    /* The second byte excludes overlong forms, surrogates and what lies above U+10FFFF. */
    if (b == 0xe0) lo = 0xa0;
    if (b == 0xed) hi = 0x9f;
    if (b == 0xf0) lo = 0x90;
    if (b == 0xf4) hi = 0x8f;
    for (unsigned i = 1; i < len; i++) {
        if (i == n) {
            *valid = -1;
            return i;
        }
        if (p[i] < lo || p[i] > hi) {
            *valid = 0;
            return i;
        }
        lo = 0x80;
        hi = 0xbf;
    }
    return len;
}

bool utf8_is_valid(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n;) {
        if (p[i] < 0x80) {
            i++;
            continue;
        }
        int valid;
        unsigned len = utf8_scan(p + i, n - i, &valid);
        if (valid != 1) return false;
        i += len;
    }
    return true;
}

size_t utf8_repaired_size(const uint8_t *p, size_t n)
{
    size_t size = 0;
    for (size_t i = 0; i < n;) {
        if (p[i] < 0x80) {
            i++;
            size++;
            continue;
        }
        int valid;
        unsigned len = utf8_scan(p + i, n - i, &valid);
        size += valid == 1 ? len : 3;
        i += len;
    }
    return size;
}

size_t utf8_repair(const uint8_t *p, size_t n, uint8_t *out)
{
    size_t size = 0;
    for (size_t i = 0; i < n;) {
        int valid;
        unsigned len = utf8_scan(p + i, n - i, &valid);
        if (valid == 1)
            memcpy(out + size, p + i, len);
        else
            memcpy(out + size, "\xef\xbf\xbd", 3);
        size += valid == 1 ? len : 3;
        i += len;
    }
    return size;
}
