// SPDX-License-Identifier: Apache-2.0
/* Raw deflate, RFC 1951, from memory to memory. Small rather than fast: it reads what
 * numpy.savez_compressed writes. */
#include <string.h>

#include "runtime/io.h"

enum { MAX_BITS = 15, MAX_SYMBOLS = 288 };

struct bits {
    const unsigned char *p, *end;
    uint32_t hold;
    int n; /* valid bits of hold */
    bool bad; /* read past the end */
};

static unsigned take(struct bits *b, int count)
{
    while (b->n < count) {
        if (b->p == b->end) {
            b->bad = true;
            return 0;
        }
        b->hold |= (uint32_t)*b->p++ << b->n;
        b->n += 8;
    }
    unsigned v = b->hold & ((1u << count) - 1);
    b->hold >>= count;
    b->n -= count;
    return v;
}

/* A canonical code: how many codes have each length, and the symbols in order of their codes. */
struct code {
    uint16_t count[MAX_BITS + 1];
    uint16_t symbol[MAX_SYMBOLS];
};

/* False when the lengths fit no code; an incomplete code is allowed only for one symbol (RFC
 * 1951, 3.2.7). */
static bool code_init(struct code *c, const unsigned char *lengths, int n)
{
    uint16_t at[MAX_BITS + 2] = {0};
    memset(c, 0, sizeof *c);
    for (int i = 0; i < n; i++) c->count[lengths[i]]++;
    int used = n - c->count[0], left = 1;
    c->count[0] = 0;
    for (int len = 1; len <= MAX_BITS; len++) {
        left = 2 * left - c->count[len];
        if (left < 0) return false;
        at[len + 1] = (uint16_t)(at[len] + c->count[len]);
    }
    for (int i = 0; i < n; i++)
        if (lengths[i]) c->symbol[at[lengths[i]]++] = (uint16_t)i;
    return left == 0 || used <= 1;
}

/* -1 when no code matches. */
static int decode(struct bits *b, const struct code *c)
{
    int code = 0, first = 0, index = 0; /* of the codes of this length */
    for (int len = 1; len <= MAX_BITS; len++) {
        code |= (int)take(b, 1);
        if (b->bad) return -1;
        int count = c->count[len];
        if (code - count < first) return c->symbol[index + code - first];
        index += count;
        first = (first + count) << 1;
        code <<= 1;
    }
    return -1;
}

struct sink {
    unsigned char *p;
    size_t n, cap;
};

static bool stored(struct bits *b, struct sink *out)
{
    b->hold = 0, b->n = 0; /* to the next byte */
    if (b->end - b->p < 4) return false;
    size_t len = b->p[0] | (size_t)b->p[1] << 8, check = b->p[2] | (size_t)b->p[3] << 8;
    b->p += 4;
    if (len != (check ^ 0xffff) || len > (size_t)(b->end - b->p) || len > out->cap - out->n)
        return false;
    if (len) memcpy(out->p + out->n, b->p, len);
    b->p += len;
    out->n += len;
    return true;
}

static bool compressed(struct bits *b, struct sink *out, const struct code *lit,
                       const struct code *dist)
{
    static const uint16_t len_base[] = {3,  4,  5,  6,   7,   8,   9,   10,  11, 13,
                                        15, 17, 19, 23,  27,  31,  35,  43,  51, 59,
                                        67, 83, 99, 115, 131, 163, 195, 227, 258};
    static const unsigned char len_extra[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                              2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
    static const uint16_t dist_base[] = {
        1,   2,   3,   4,   5,   7,    9,    13,   17,   25,   33,   49,   65,    97,    129,
        193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
    for (;;) {
        int s = decode(b, lit);
        if (s < 0 || s > 285) return false;
        if (s == 256) return true;
        if (s < 256) {
            if (out->n == out->cap) return false;
            out->p[out->n++] = (unsigned char)s;
            continue;
        }
        size_t len = len_base[s - 257] + take(b, len_extra[s - 257]);
        int d = decode(b, dist);
        if (d < 0 || d > 29) return false;
        size_t back = dist_base[d] + take(b, d < 2 ? 0 : (d - 2) / 2);
        if (b->bad || back > out->n || len > out->cap - out->n) return false;
        for (size_t i = 0; i < len; i++, out->n++) out->p[out->n] = out->p[out->n - back];
    }
}

static bool fixed(struct bits *b, struct sink *out)
{
    unsigned char lengths[MAX_SYMBOLS];
    struct code lit, dist;
    for (int i = 0; i < MAX_SYMBOLS; i++) lengths[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
    code_init(&lit, lengths, MAX_SYMBOLS);
    memset(lengths, 5, 30);
    code_init(&dist, lengths, 30); /* two codes stay unused: incomplete, and so meant */
    return compressed(b, out, &lit, &dist);
}

static bool dynamic(struct bits *b, struct sink *out)
{
    static const unsigned char order[19] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                            11, 4,  12, 3, 13, 2, 14, 1, 15};
    unsigned char lengths[MAX_SYMBOLS + 32] = {0};
    struct code lit, dist;
    int n_lit = (int)take(b, 5) + 257, n_dist = (int)take(b, 5) + 1, n_len = (int)take(b, 4) + 4;
    if (n_lit > 286 || n_dist > 30) return false;
    for (int i = 0; i < n_len; i++) lengths[order[i]] = (unsigned char)take(b, 3);
    if (b->bad || !code_init(&lit, lengths, 19)) return false;
    memset(lengths, 0, sizeof lengths);
    for (int i = 0; i < n_lit + n_dist;) {
        int s = decode(b, &lit), repeat = 1;
        unsigned char value = 0;
        if (s < 0 || (s == 16 && i == 0)) return false;
        if (s < 16) value = (unsigned char)s;
        else if (s == 16) value = lengths[i - 1], repeat = 3 + (int)take(b, 2);
        else if (s == 17) repeat = 3 + (int)take(b, 3);
        else repeat = 11 + (int)take(b, 7);
        if (b->bad || i + repeat > n_lit + n_dist) return false;
        while (repeat--) lengths[i++] = value;
    }
    if (!lengths[256] || !code_init(&dist, lengths + n_lit, n_dist)) return false;
    return code_init(&lit, lengths, n_lit) && compressed(b, out, &lit, &dist);
}

bool rt_inflate(const unsigned char *p, size_t n, unsigned char *out, size_t out_n)
{
    struct bits b = {.p = p, .end = p + n};
    struct sink sink = {.p = out, .cap = out_n};
    bool last = false;
    while (!last) {
        last = take(&b, 1);
        unsigned type = take(&b, 2);
        if (b.bad) return false;
        bool ok = type == 0   ? stored(&b, &sink)
                  : type == 1 ? fixed(&b, &sink)
                              : type == 2 && dynamic(&b, &sink);
        if (!ok) return false;
    }
    return sink.n == out_n;
}

uint32_t rt_crc32(uint32_t crc, const void *p, size_t n)
{
    static const uint32_t nibble[16] = {
        /* of the reversed polynomial 0xEDB88320 */
        0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
        0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
        0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
    };
    const unsigned char *b = p;
    crc = ~crc;
    for (size_t i = 0; i < n; i++) {
        crc ^= b[i];
        crc = crc >> 4 ^ nibble[crc & 15];
        crc = crc >> 4 ^ nibble[crc & 15];
    }
    return ~crc;
}
