// SPDX-License-Identifier: Apache-2.0
#include "ir/number_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/smallfloat.h"

/* Do the digits give back the value, as a double (bytes NULL) or as an element of dtype? */
static bool reads_back(const char *digits, double v, enum dtype dtype, const unsigned char *bytes)
{
    unsigned char back[8];
    double read = strtod(digits, NULL);
    if (!bytes) return read == v;
    float_encode(dtype, read, false, back);
    return !memcmp(back, bytes, dtype_bytes(dtype));
}

/* Whole numbers in full, others with as few digits as do. False when no digits do. */
static bool put_decimal(struct strbuf *out, double v, enum dtype dtype, const unsigned char *bytes)
{
    char s[40] = "";
    if (isnan(v)) return false;
    if (fabs(v) < 1e15 && floor(v) == v) {
        snprintf(s, sizeof s, "%.1f", v);
    } else {
        for (int digits = 1; digits <= 17; digits++) {
            snprintf(s, sizeof s, "%.*g", digits, v);
            if (reads_back(s, v, dtype, bytes)) break;
        }
    }
    if (!reads_back(s, v, dtype, bytes)) return false;
    strbuf_puts(out, s);
    if (!strpbrk(s, ".en")) strbuf_puts(out, ".0"); /* n: inf */
    return true;
}

void ir_put_double(struct strbuf *out, double v)
{
    if (!put_decimal(out, v, DT_F64, NULL)) strbuf_puts(out, "nan");
}

static void put_float_element(struct strbuf *out, enum dtype dtype, const unsigned char *p)
{
    double v = float_decode(dtype, p);
    unsigned char back[8];
    float_encode(dtype, v, false, back);
    bool exact = !isnan(v) && !memcmp(back, p, dtype_bytes(dtype));
    /* Narrow types get the digits of their exact value: the fewest that do would look like another
     * number. */
    if (exact && put_decimal(out, v, dtype, dtype_bytes(dtype) >= 4 ? p : NULL)) return;
    strbuf_puts(out, "0x");
    for (size_t i = dtype_bytes(dtype); i-- > 0;) strbuf_printf(out, "%02x", p[i]);
}

void ir_put_element(struct strbuf *out, enum dtype dtype, const unsigned char *p)
{
    uint64_t u = 0;
    size_t n = dtype_bytes(dtype);
    if (dtype_is_float(dtype)) {
        put_float_element(out, dtype, p);
        return;
    }
    for (size_t i = n; i-- > 0;) u = u << 8 | p[i];
    if (dtype_class(dtype) == DTC_SINT && n < 8 && u >> (8 * n - 1)) u |= ~UINT64_C(0) << (8 * n);
    if (dtype_class(dtype) == DTC_SINT) strbuf_printf(out, "%lld", (long long)u);
    else strbuf_printf(out, "%llu", (unsigned long long)u);
}

bool ir_read_double(const char *text, double *out)
{
    char *end;
    if (!strcmp(text, "inf") || !strcmp(text, "-inf")) {
        *out = *text == '-' ? -(double)INFINITY : (double)INFINITY;
        return true;
    }
    if (!strcmp(text, "nan")) {
        *out = (double)NAN;
        return true;
    }
    if (!*text || text[strspn(text, "0123456789+-.eE")]) return false;
    *out = strtod(text, &end);
    return !*end && isfinite(*out);
}

/* Digits with an optional minus; false when it does not fit 64 bits (signed, or unsigned without a
 * minus). */
static bool read_digits(const char *text, bool *negative, uint64_t *out)
{
    *negative = *text == '-';
    text += *negative;
    *out = 0;
    if (!*text) return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9') return false;
        uint64_t digit = (uint64_t)(*text - '0');
        if (*out > (UINT64_MAX - digit) / 10) return false;
        *out = *out * 10 + digit;
    }
    return true;
}

bool ir_read_int(const char *text, int64_t *out)
{
    bool negative;
    uint64_t u;
    if (!read_digits(text, &negative, &u) || u > (uint64_t)INT64_MAX + negative) return false;
    *out = (int64_t)(negative ? 0 - u : u);
    return true;
}

static bool read_hex(const char *text, size_t n_bytes, unsigned char *p)
{
    if (strlen(text) != 2 + 2 * n_bytes) return false;
    for (size_t i = 0; i < n_bytes; i++) {
        unsigned byte = 0;
        for (int k = 0; k < 2; k++) {
            char c = text[2 + 2 * (n_bytes - 1 - i) + (size_t)k];
            if (c >= '0' && c <= '9') byte = byte * 16 + (unsigned)(c - '0');
            else if (c >= 'a' && c <= 'f') byte = byte * 16 + (unsigned)(c - 'a' + 10);
            else return false;
        }
        p[i] = (unsigned char)byte;
    }
    return true;
}

bool ir_read_element(enum dtype dtype, const char *text, unsigned char *p)
{
    size_t n = dtype_bytes(dtype);
    bool negative;
    uint64_t u;
    if (dtype_is_float(dtype)) {
        double v;
        if (!strncmp(text, "0x", 2)) return read_hex(text, n, p);
        if (!ir_read_double(text, &v)) return false;
        float_encode(dtype, v, false, p);
        return true;
    }
    if (n == 0 || !read_digits(text, &negative, &u)) return false;
    if (dtype_class(dtype) == DTC_SINT) {
        if (u > (UINT64_C(1) << (8 * n - 1)) - !negative) return false;
        if (negative) u = 0 - u;
    } else if ((negative && u) || (n < 8 && u >> (8 * n))) {
        return false;
    }
    for (size_t i = 0; i < n; i++) p[i] = (unsigned char)(u >> (8 * i));
    return true;
}
