// SPDX-License-Identifier: Apache-2.0
/*
 * numpy's .npy: magic, version, header length, a Python dict literal with exactly the keys descr,
 * fortran_order and shape, then the elements.
 */
#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "runtime/io.h"
#include "runtime/status.h"

/* ---- the header's dict ---- */

struct scan {
    const char *p, *end;
};

static void skip_space(struct scan *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\t')) s->p++;
}

static bool take(struct scan *s, char c)
{
    skip_space(s);
    if (s->p == s->end || *s->p != c) return false;
    s->p++;
    return true;
}

static bool take_word(struct scan *s, const char *word)
{
    size_t n = strlen(word);
    skip_space(s);
    if ((size_t)(s->end - s->p) < n || memcmp(s->p, word, n)) return false;
    s->p += n;
    return true;
}

/* A quoted string without escapes. */
static bool take_string(struct scan *s, char *out, size_t cap)
{
    skip_space(s);
    if (s->p == s->end || (*s->p != '\'' && *s->p != '"')) return false;
    char quote = *s->p++;
    size_t n = 0;
    while (s->p < s->end && *s->p != quote) {
        if (n + 1 >= cap || *s->p == '\\') return false;
        out[n++] = *s->p++;
    }
    out[n] = 0;
    return s->p < s->end && *s->p++ == quote;
}

static bool take_number(struct scan *s, int64_t *out)
{
    skip_space(s);
    if (s->p == s->end || !isdigit((unsigned char)*s->p)) return false;
    for (*out = 0; s->p < s->end && isdigit((unsigned char)*s->p); s->p++)
        if (__builtin_mul_overflow(*out, 10, out) || __builtin_add_overflow(*out, *s->p - '0', out))
            return false;
    if (s->p < s->end && *s->p == 'L') s->p++; /* written by Python 2 */
    return true;
}

struct header {
    char descr[16];
    bool fortran;
    uint32_t rank;
    int64_t dims[INFR_MAX_RANK];
};

static bool take_shape(struct scan *s, struct header *h)
{
    if (!take(s, '(')) return false;
    for (h->rank = 0; !take(s, ')');) {
        if (h->rank == INFR_MAX_RANK || !take_number(s, &h->dims[h->rank])) return false;
        h->rank++;
        if (!take(s, ',')) return take(s, ')');
    }
    return true;
}

static bool parse_header(const char *text, size_t n, struct header *h)
{
    struct scan s = {text, text + n};
    unsigned seen = 0;
    char key[16];
    if (!take(&s, '{')) return false;
    while (!take(&s, '}')) {
        unsigned bit;
        if (!take_string(&s, key, sizeof key) || !take(&s, ':')) return false;
        if (!strcmp(key, "descr")) {
            bit = 1;
            if (!take_string(&s, h->descr, sizeof h->descr)) return false;
        } else if (!strcmp(key, "fortran_order")) {
            bit = 2;
            h->fortran = take_word(&s, "True");
            if (!h->fortran && !take_word(&s, "False")) return false;
        } else if (!strcmp(key, "shape")) {
            bit = 4;
            if (!take_shape(&s, h)) return false;
        } else {
            return false;
        }
        if (seen & bit) return false;
        seen |= bit;
        if (!take(&s, ',')) {
            if (!take(&s, '}')) return false;
            break;
        }
    }
    skip_space(&s);
    return seen == 7 && s.p == s.end;
}

/* ---- element types ---- */

static const struct npy_type {
    char kind;
    unsigned bytes;
    enum dtype dtype;
} npy_types[] = {
    {'f', 8, DT_F64}, {'f', 4, DT_F32}, {'f', 2, DT_F16}, {'i', 1, DT_I8},
    {'i', 2, DT_I16}, {'i', 4, DT_I32}, {'i', 8, DT_I64}, {'u', 1, DT_U8},
    {'u', 2, DT_U16}, {'u', 4, DT_U32}, {'u', 8, DT_U64}, {'b', 1, DT_BOOL},
};

/* Types that numpy lacks: kind they are written as (void for floats, whose bits a reader must not
 * take for numbers). */
static char stand_in(enum dtype d)
{
    switch (d) {
    case DT_BF16:
    case DT_F8E4M3FN:
    case DT_F8E4M3FNUZ:
    case DT_F8E5M2:
    case DT_F8E5M2FNUZ:
    case DT_F8E8M0:
    case DT_F4E2M1: return 'V';
    case DT_I2: case DT_I4: return 'i';
    case DT_U2: case DT_U4: return 'u';
    default: return 0;
    }
}

/* "<f4" -> type; *swap: the bytes are the wrong way round. */
static enum dtype find_type(const char *descr, enum dtype want, bool *swap)
{
    char order = descr[0], kind = order ? descr[1] : 0;
    const char *digits = descr + 2;
    if (!kind || !strchr("<>|=", order) || !isdigit((unsigned char)digits[0]) || digits[1])
        return DT_NONE;
    unsigned bytes = (unsigned)(digits[0] - '0');
    *swap = order == '>' && bytes > 1;
    char other = want < DT_COUNT ? stand_in(want) : 0;
    if (other && dtype_bytes(want) == bytes && (kind == other || kind == 'V')) return want;
    for (size_t i = 0; i < sizeof npy_types / sizeof *npy_types; i++)
        if (npy_types[i].kind == kind && npy_types[i].bytes == bytes) return npy_types[i].dtype;
    return DT_NONE;
}

/* ---- elements ---- */

static void copy_swapped(unsigned char *out, const unsigned char *in, uint64_t elems, size_t size)
{
    for (uint64_t i = 0; i < elems; i++)
        for (size_t b = 0; b < size; b++) out[i * size + b] = in[i * size + size - 1 - b];
}

/* From column-major to row-major. */
static void copy_fortran(const struct infr_tensor *t, const unsigned char *in, uint64_t elems,
                         size_t size, bool swap)
{
    uint64_t at[INFR_MAX_RANK] = {0}, stride[INFR_MAX_RANK], s = 1;
    for (uint32_t i = 0; i < t->rank; i++) stride[i] = s, s *= (uint64_t)t->dims[i];
    unsigned char *out = t->data;
    for (uint64_t i = 0; i < elems; i++, out += size) {
        uint64_t from = 0;
        for (uint32_t a = 0; a < t->rank; a++) from += at[a] * stride[a];
        if (swap) copy_swapped(out, in + from * size, 1, size);
        else memcpy(out, in + from * size, size);
        for (uint32_t a = t->rank; a-- > 0 && ++at[a] == (uint64_t)t->dims[a];) at[a] = 0;
    }
}

/* Kernels may rely on bools being 0 or 1 and on small integers being in range. */
static bool settle_values(struct infr_tensor *t)
{
    unsigned bits = dtype_bits((enum dtype)t->dtype);
    unsigned char *p = t->data;
    if (t->dtype == DT_BOOL)
        for (uint64_t i = 0; i < t->bytes; i++) p[i] = p[i] != 0;
    if (bits >= 8) return true;
    bool is_signed = dtype_class((enum dtype)t->dtype) == DTC_SINT;
    int lo = is_signed ? -(1 << (bits - 1)) : 0, hi = lo + (1 << bits) - 1;
    for (uint64_t i = 0; i < t->bytes; i++) {
        int v = is_signed ? (signed char)p[i] : p[i];
        if (v < lo || v > hi) return false;
    }
    return true;
}

int rt_npy_read(const unsigned char *p, size_t n, enum dtype want, struct infr_tensor *out,
                size_t *used, struct infr_status *st)
{
    *out = (struct infr_tensor){0};
    if (n < 12 || memcmp(p, "\x93NUMPY", 6)) return rt_fail(st, INFR_BAD_INPUT, "not a .npy file");
    if (p[6] < 1 || p[6] > 3)
        return rt_fail(st, INFR_BAD_INPUT, ".npy version %u.%u is not known", p[6], p[7]);
    size_t start = p[6] == 1 ? 10 : 12, len = p[8] | (size_t)p[9] << 8;
    if (p[6] > 1) len |= (size_t)p[10] << 16 | (size_t)p[11] << 24;
    if (len > n - start) return rt_fail(st, INFR_BAD_INPUT, "the .npy header is cut off");
    struct header h = {0};
    bool swap = false;
    if (!parse_header((const char *)p + start, len, &h))
        return rt_fail(st, INFR_BAD_INPUT, "the .npy header cannot be read");
    enum dtype d = find_type(h.descr, want, &swap);
    if (!d)
        return rt_fail(st, INFR_BAD_INPUT, "the .npy element type '%s' cannot be used", h.descr);
    const unsigned char *data = p + start + len;
    int code = rt_tensor_alloc(d, h.rank, h.dims, n - start - len, out, st);
    if (code) return code;
    size_t size = dtype_bytes(d);
    uint64_t elems = rt_tensor_elems(out);
    if (h.fortran && h.rank > 1) copy_fortran(out, data, elems, size, swap);
    else if (swap) copy_swapped(out->data, data, elems, size);
    else memcpy(out->data, data, out->bytes);
    *used = start + len + out->bytes;
    if (settle_values(out)) return INFR_OK;
    rt_tensor_free(out);
    return rt_fail(st, INFR_BAD_INPUT, "an element is out of range of %s", dtype_name(d));
}

int rt_npy_write(FILE *f, const struct infr_tensor *t)
{
    enum dtype d = (enum dtype)t->dtype;
    char kind = stand_in(d), text[512];
    size_t size = dtype_bytes(d), n = 0;
    for (size_t i = 0; i < sizeof npy_types / sizeof *npy_types; i++)
        if (npy_types[i].dtype == d) kind = npy_types[i].kind;
    n += (size_t)snprintf(text + n, sizeof text - n,
                          "{'descr': '%c%c%zu', 'fortran_order': False, 'shape': (",
                          size == 1 ? '|' : '<', kind, size);
    for (uint32_t i = 0; i < t->rank; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, i ? ", %" PRId64 : "%" PRId64, t->dims[i]);
    n += (size_t)snprintf(text + n, sizeof text - n, t->rank == 1 ? ",), }" : "), }");
    while ((10 + n + 1) % 64) text[n++] = ' '; /* elements begin at a multiple of 64 */
    text[n++] = '\n';
    unsigned char head[10] = {
        0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)n, (unsigned char)(n >> 8)};
    bool ok = fwrite(head, 1, sizeof head, f) == sizeof head && fwrite(text, 1, n, f) == n;
    return ok && (!t->bytes || fwrite(t->data, 1, t->bytes, f) == t->bytes) ? INFR_OK
                                                                            : INFR_ENVIRONMENT;
}
