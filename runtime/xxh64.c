// SPDX-License-Identifier: Apache-2.0
#include "runtime/xxh64.h"

#include <string.h>

#define P1 0x9E3779B185EBCA87ull
#define P2 0xC2B2AE3D27D4EB4Full
#define P3 0x165667B19E3779F9ull
#define P4 0x85EBCA77C2B2AE63ull
#define P5 0x27D4EB2F165667C5ull

static uint64_t rotate(uint64_t x, int n) { return x << n | x >> (64 - n); }

static uint64_t read64(const unsigned char *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

static uint32_t read32(const unsigned char *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

static uint64_t lane(uint64_t acc, uint64_t input) { return rotate(acc + input * P2, 31) * P1; }
static uint64_t merge(uint64_t h, uint64_t acc) { return (h ^ lane(0, acc)) * P1 + P4; }

uint64_t rt_xxh64(const void *data, size_t n)
{
    const unsigned char *p = data, *end = p + n;
    uint64_t h = P5;
    if (n >= 32) {
        uint64_t a[4] = {P1 + P2, P2, 0, 0 - P1};
        for (; end - p >= 32; p += 32)
            for (int i = 0; i < 4; i++) a[i] = lane(a[i], read64(p + 8 * i));
        h = rotate(a[0], 1) + rotate(a[1], 7) + rotate(a[2], 12) + rotate(a[3], 18);
        for (int i = 0; i < 4; i++) h = merge(h, a[i]);
    }
    h += n;
    for (; end - p >= 8; p += 8) h = rotate(h ^ lane(0, read64(p)), 27) * P1 + P4;
    for (; end - p >= 4; p += 4) h = rotate(h ^ read32(p) * P1, 23) * P2 + P3;
    for (; p < end; p++) h = rotate(h ^ *p * P5, 11) * P1;
    h = (h ^ h >> 33) * P2;
    h = (h ^ h >> 29) * P3;
    return h ^ h >> 32;
}
