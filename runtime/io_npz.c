// SPDX-License-Identifier: Apache-2.0
/* numpy's .npz: a zip file of .npy members, stored or deflated. Names and sizes come from the
 * central directory. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "runtime/io.h"
#include "runtime/status.h"

enum { MAX_MEMBERS = 65536, END_BYTES = 22, CENTRAL_BYTES = 46, LOCAL_BYTES = 30 };

static uint32_t u16(const unsigned char *p) { return p[0] | (uint32_t)p[1] << 8; }
static uint32_t u32(const unsigned char *p) { return u16(p) | u16(p + 2) << 16; }
static uint64_t u64(const unsigned char *p) { return u32(p) | (uint64_t)u32(p + 4) << 32; }

static int cut_off(struct infr_status *st)
{
    return rt_fail(st, INFR_BAD_INPUT, "the .npz file is damaged or cut off");
}

/* The end record may be followed by a comment of up to 64 KiB. */
static const unsigned char *find_end(const unsigned char *p, size_t n)
{
    for (size_t back = END_BYTES; back <= n && back <= END_BYTES + 65535; back++)
        if (!memcmp(p + n - back, "PK\5\6", 4) && u16(p + n - back + 20) + END_BYTES <= back)
            return p + n - back;
    return NULL;
}

/* Sizes and offset that do not fit in 32 bits lie in an extra field, in this order, each only if
 * its short form is all ones. */
static bool take_zip64(const unsigned char *extra, size_t n, uint64_t *bytes, uint64_t *packed,
                       uint64_t *offset)
{
    uint64_t *fields[3] = {bytes, packed, offset};
    while (n >= 4) {
        size_t len = u16(extra + 2);
        if (len > n - 4) return false;
        if (u16(extra) == 1) {
            const unsigned char *p = extra + 4, *end = p + len;
            for (int i = 0; i < 3; i++) {
                if (*fields[i] != UINT32_MAX) continue;
                if (end - p < 8) return false;
                *fields[i] = u64(p);
                p += 8;
            }
            return true;
        }
        extra += 4 + len;
        n -= 4 + len;
    }
    return true;
}

/* One row of the central directory at *at. */
static bool take_member(const struct rt_npz *z, uint64_t *at, struct rt_npz_member *m)
{
    if (*at > z->n || z->n - *at < CENTRAL_BYTES) return false;
    const unsigned char *c = z->p + *at;
    uint64_t name_len = u16(c + 28), extra_len = u16(c + 30), comment_len = u16(c + 32),
             offset = u32(c + 42);
    if (memcmp(c, "PK\1\2", 4) || name_len + extra_len + comment_len > z->n - *at - CENTRAL_BYTES)
        return false;
    *m = (struct rt_npz_member){.name = (const char *)c + CENTRAL_BYTES,
                                .name_len = name_len,
                                .method = u16(c + 10),
                                .crc = u32(c + 16),
                                .packed_bytes = u32(c + 20),
                                .bytes = u32(c + 24)};
    if (u16(c + 8) & 1) return false; /* encrypted */
    if (!take_zip64(c + CENTRAL_BYTES + name_len, extra_len, &m->bytes, &m->packed_bytes, &offset))
        return false;
    *at += CENTRAL_BYTES + name_len + extra_len + comment_len;
    if (offset > z->n || z->n - offset < LOCAL_BYTES) return false;
    const unsigned char *l = z->p + offset;
    uint64_t head = LOCAL_BYTES + (uint64_t)u16(l + 26) + u16(l + 28);
    if (memcmp(l, "PK\3\4", 4) || head > z->n - offset || m->packed_bytes > z->n - offset - head)
        return false;
    m->packed = l + head;
    if (m->name_len > 4 && !memcmp(m->name + m->name_len - 4, ".npy", 4)) m->name_len -= 4;
    return true;
}

int rt_npz_open(const unsigned char *p, size_t n, struct rt_npz *out, struct infr_status *st)
{
    *out = (struct rt_npz){.p = p, .n = n};
    const unsigned char *end = n >= END_BYTES ? find_end(p, n) : NULL;
    if (!end) return rt_fail(st, INFR_BAD_INPUT, "not a .npz file");
    uint64_t count = u16(end + 10), at = u32(end + 16);
    if (end - p >= 20 && !memcmp(end - 20, "PK\6\7", 4) && (count == 0xffff || at == UINT32_MAX)) {
        uint64_t wide = u64(end - 20 + 8);
        if (wide > n || n - wide < 56 || memcmp(p + wide, "PK\6\6", 4)) return cut_off(st);
        count = u64(p + wide + 32);
        at = u64(p + wide + 48);
    }
    if (count > MAX_MEMBERS || count > n / CENTRAL_BYTES) return cut_off(st);
    out->members = calloc(count + 1, sizeof *out->members);
    if (!out->members) return rt_fail_memory(st, "a .npz directory", count * sizeof *out->members);
    for (uint64_t i = 0; i < count; i++) {
        if (!take_member(out, &at, &out->members[i])) {
            rt_npz_close(out);
            return cut_off(st);
        }
        out->n_members++;
    }
    return INFR_OK;
}

void rt_npz_close(struct rt_npz *z)
{
    free(z->members);
    *z = (struct rt_npz){0};
}

int rt_npz_read(const struct rt_npz *z, size_t member, enum dtype want, struct infr_tensor *out,
                struct infr_status *st)
{
    const struct rt_npz_member *m = &z->members[member];
    const unsigned char *data = m->packed;
    unsigned char *unpacked = NULL;
    size_t used;
    *out = (struct infr_tensor){0};
    if (m->method != 0 && m->method != 8)
        return rt_fail(st, INFR_BAD_INPUT, "zip method %u is not known", m->method);
    if (m->method == 0 && m->bytes != m->packed_bytes) return cut_off(st);
    if (m->method == 8) {
        if (m->bytes / 1032 > m->packed_bytes)
            return cut_off(st); /* deflate shrinks no more than that */
        unpacked = malloc(m->bytes + 1);
        if (!unpacked) return rt_fail_memory(st, "a .npz member", m->bytes);
        if (!rt_inflate(m->packed, m->packed_bytes, unpacked, m->bytes)) {
            free(unpacked);
            return cut_off(st);
        }
        data = unpacked;
    }
    int code = rt_crc32(0, data, m->bytes) != m->crc
                   ? rt_fail(st, INFR_BAD_INPUT, "a .npz member has a wrong check sum")
                   : rt_npy_read(data, m->bytes, want, out, &used, st);
    free(unpacked);
    return code;
}

/* ---- writing ---- */

static void put16(unsigned char *p, uint32_t v)
{
    p[0] = (unsigned char)v, p[1] = (unsigned char)(v >> 8);
}
static void put32(unsigned char *p, uint64_t v)
{
    put16(p, v & 0xffff), put16(p + 2, v >> 16 & 0xffff);
}
static void put64(unsigned char *p, uint64_t v) { put32(p, v), put32(p + 4, v >> 32); }

/* The .npy bytes of a member, in memory: its check sum and length precede it in the file. */
struct member_text {
    char *text;
    size_t n;
    uint32_t crc;
};

static bool make_member(const struct infr_tensor *t, struct member_text *m)
{
    FILE *f = open_memstream(&m->text, &m->n);
    if (!f) return false;
    bool ok = rt_npy_write(f, t) == INFR_OK;
    if (fclose(f) || !ok) return false;
    m->crc = rt_crc32(0, m->text, m->n);
    return true;
}

/* Fields that local and central headers share, and a zip64 extra field of 20 bytes (sizes) or 28
 * (with the offset). */
static void common_fields(unsigned char *p, const struct member_text *m, size_t name_len,
                          size_t extra)
{
    put16(p, 45); /* version that knows zip64 */
    put16(p + 8, 0x21), put16(p + 6, 0); /* 1980-01-01: equal runs give equal files */
    put32(p + 10, m->crc);
    put32(p + 14, UINT32_MAX), put32(p + 18, UINT32_MAX);
    put16(p + 22, (uint32_t)name_len), put16(p + 24, (uint32_t)extra);
}

static void zip64_field(unsigned char *p, const struct member_text *m, size_t extra)
{
    put16(p, 1), put16(p + 2, (uint32_t)extra - 4);
    put64(p + 4, m->n), put64(p + 12, m->n);
}

static bool put_bytes(FILE *f, const void *p, size_t n) { return !n || fwrite(p, 1, n, f) == n; }

static bool write_local(FILE *f, const char *name, const struct member_text *m)
{
    unsigned char h[LOCAL_BYTES] = "PK\3\4", x[20];
    common_fields(h + 4, m, strlen(name) + 4, sizeof x);
    zip64_field(x, m, sizeof x);
    return put_bytes(f, h, sizeof h) && put_bytes(f, name, strlen(name)) &&
           put_bytes(f, ".npy", 4) && put_bytes(f, x, sizeof x) && put_bytes(f, m->text, m->n);
}

static bool write_central(FILE *f, const char *name, const struct member_text *m, uint64_t offset)
{
    unsigned char h[CENTRAL_BYTES] = "PK\1\2", x[28];
    put16(h + 4, 45);
    common_fields(h + 6, m, strlen(name) + 4, sizeof x);
    put32(h + 42, UINT32_MAX);
    zip64_field(x, m, sizeof x);
    put64(x + 20, offset);
    return put_bytes(f, h, sizeof h) && put_bytes(f, name, strlen(name)) &&
           put_bytes(f, ".npy", 4) && put_bytes(f, x, sizeof x);
}

static bool write_end(FILE *f, size_t n, uint64_t at, uint64_t bytes)
{
    unsigned char wide[56] = "PK\6\6", locator[20] = "PK\6\7", end[END_BYTES] = "PK\5\6";
    put64(wide + 4, 44), put16(wide + 12, 45), put16(wide + 14, 45);
    put64(wide + 24, n), put64(wide + 32, n), put64(wide + 40, bytes), put64(wide + 48, at);
    put64(locator + 8, at + bytes), put32(locator + 16, 1);
    put16(end + 8, 0xffff), put16(end + 10, 0xffff), put32(end + 12, UINT32_MAX),
        put32(end + 16, UINT32_MAX);
    return put_bytes(f, wide, sizeof wide) && put_bytes(f, locator, sizeof locator) &&
           put_bytes(f, end, sizeof end);
}

int rt_npz_write(FILE *f, size_t n, const char *const *names, const struct infr_tensor *tensors,
                 struct infr_status *st)
{
    struct member_text *m = calloc(n + 1, sizeof *m);
    uint64_t *offsets = calloc(n + 1, sizeof *offsets), at = 0, central = 0;
    bool ok = m && offsets;
    for (size_t i = 0; ok && i < n; i++) {
        ok = strlen(names[i]) < 60000 && make_member(&tensors[i], &m[i]) &&
             write_local(f, names[i], &m[i]);
        offsets[i] = at;
        at += LOCAL_BYTES + strlen(names[i]) + 4 + 20 + m[i].n;
        free(m[i].text); /* its length and check sum are still needed */
        m[i].text = NULL;
    }
    for (size_t i = 0; ok && i < n; i++) {
        ok = write_central(f, names[i], &m[i], offsets[i]);
        central += CENTRAL_BYTES + strlen(names[i]) + 4 + 28;
    }
    ok = ok && write_end(f, n, at, central);
    free(m);
    free(offsets);
    return ok ? INFR_OK : rt_fail(st, INFR_ENVIRONMENT, "cannot write the .npz file");
}
