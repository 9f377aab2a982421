// SPDX-License-Identifier: Apache-2.0
/*
 * Hashes of JSON values by what they mean, for arrays of different items. The text is JSON that a
 * state has accepted, with no key twice in an object. Two equal hashes count as equal values: a
 * collision refuses a text that was right, and never accepts one that was not.
 */
#include "runtime/grammar/gr_internal.h"
#include "runtime/text/unicode_utf8.h"

enum { MAX_DEPTH = 400 };

struct reader {
    const uint8_t *p, *end;
};

static uint64_t mix(uint64_t h, uint64_t x) { return gr_mix(h * 0x9e3779b97f4a7c15u + x); }

static void skip_space(struct reader *r)
{
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\n' || *r->p == '\r' || *r->p == '\t'))
        r->p++;
}

static uint32_t hex4(struct reader *r)
{
    uint32_t x = 0;
    for (int i = 0; i < 4 && r->p < r->end; i++, r->p++)
        x = x << 4 | (uint32_t)(*r->p <= '9' ? *r->p - '0' : (*r->p | 32) - 'a' + 10);
    return x;
}

static uint32_t escape(struct reader *r)
{
    switch (*r->p++) {
    case 'b': return '\b';
    case 'f': return '\f';
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    case 'u': break;
    default: return r->p[-1];
    }
    uint32_t c = hex4(r);
    if (c >= 0xd800 && c <= 0xdbff && r->end - r->p >= 6) {
        r->p += 2;
        c = 0x10000 + ((c - 0xd800) << 10) + (hex4(r) - 0xdc00);
    }
    return c;
}

/* Behind the opening quote, up to the closing one or the end. */
static uint64_t hash_string(struct reader *r)
{
    uint64_t h = 1;
    while (r->p < r->end && *r->p != '"') {
        uint8_t bytes[4];
        unsigned n = 1;
        bytes[0] = *r->p++;
        if (bytes[0] == '\\' && r->p < r->end) n = utf8_put(bytes, escape(r));
        for (unsigned i = 0; i < n; i++) h = mix(h, bytes[i]);
    }
    if (r->p < r->end) r->p++;
    return h;
}

uint64_t gr_string_hash(const uint8_t *text, size_t n)
{
    struct reader r = {text, text + n};
    return hash_string(&r);
}

/* Sign, digits without zeros around them, and the exponent of the first one. */
static uint64_t hash_number(struct reader *r)
{
    bool negative = *r->p == '-', point = false, any = false;
    int64_t exponent = 0, shift = 0;
    uint64_t h = 2, zeros = 0;
    for (r->p += negative; r->p < r->end; r->p++) {
        uint8_t c = *r->p;
        if (c == '.') {
            point = true;
            continue;
        }
        if (c < '0' || c > '9') break;
        if (point ? !any : any) exponent += point ? -1 : 1;
        if (c == '0') {
            zeros += any;
            continue;
        }
        if (!any) any = true, zeros = 0;
        for (; zeros; zeros--) h = mix(h, '0');
        h = mix(h, c);
    }
    if (r->p < r->end && (*r->p | 32) == 'e') {
        r->p++;
        bool down = *r->p == '-';
        for (r->p += down || *r->p == '+'; r->p < r->end && *r->p >= '0' && *r->p <= '9'; r->p++)
            if (shift < INT64_MAX / 20) shift = shift * 10 + (*r->p - '0');
        if (down) shift = -shift;
    }
    if (!any) return 3;
    return mix(mix(h, negative), (uint64_t)(exponent + shift));
}

static uint64_t hash_value(struct reader *r, unsigned depth);

/* Members in any order: a sum. */
static uint64_t hash_members(struct reader *r, unsigned depth, bool object)
{
    uint64_t h = object ? 5 : 6, sum = 0;
    for (r->p++; r->p < r->end;) {
        skip_space(r);
        if (r->p == r->end || *r->p == '}' || *r->p == ']') break;
        if (*r->p == ',') {
            r->p++;
            continue;
        }
        uint64_t key = 0;
        if (object) {
            r->p++;
            key = hash_string(r);
            skip_space(r);
            r->p++;
        }
        uint64_t value = hash_value(r, depth + 1);
        sum = object ? sum + mix(mix(7, key), value) : mix(sum, value);
        h++;
    }
    if (r->p < r->end) r->p++;
    return mix(h, sum);
}

static uint64_t hash_value(struct reader *r, unsigned depth)
{
    skip_space(r);
    if (r->p >= r->end) return 0;
    if (depth > MAX_DEPTH) { /* all that is deeper counts as equal */
        r->p = r->end;
        return 8;
    }
    switch (*r->p) {
    case '"': r->p++; return mix(9, hash_string(r));
    case '{': return hash_members(r, depth, true);
    case '[': return hash_members(r, depth, false);
    case 't': r->p += 4; return 10;
    case 'f': r->p += 5; return 11;
    case 'n': r->p += 4; return 12;
    default: return hash_number(r);
    }
}

uint64_t gr_json_hash(const uint8_t *text, size_t n)
{
    struct reader r = {text, text + n};
    return hash_value(&r, 0);
}
