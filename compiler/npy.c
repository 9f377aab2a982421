// SPDX-License-Identifier: Apache-2.0
#include "compiler/npy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ir/smallfloat.h"
#include "runtime/abi/random.h"

#define MAX_HEADER 65536

static const struct {
    const char *descr;
    enum dtype dtype;
} types[] = {{"|b1", DT_BOOL}, {"|i1", DT_I8}, {"|u1", DT_U8}, {"<i2", DT_I16}, {"<u2", DT_U16}, {"<i4", DT_I32}, {"<u4", DT_U32},
             {"<i8", DT_I64}, {"<u8", DT_U64}, {"<f2", DT_F16}, {"<f4", DT_F32}, {"<f8", DT_F64}, {"|V2", DT_BF16}, {"<V2", DT_BF16}};

static enum dtype find_type(const char *descr)
{
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (!strcmp(descr, types[i].descr)) return types[i].dtype;
    return DT_NONE;
}

/* ---- the header: a Python dict with exactly the keys descr, fortran_order and shape ---- */

static bool take(const char **p, const char *word)
{
    *p += strspn(*p, " \t\n");
    size_t n = strlen(word);
    if (strncmp(*p, word, n)) return false;
    *p += n;
    return true;
}

/* In quotes, without escapes. */
static bool take_string(const char **p, char *out, size_t cap)
{
    if (!take(p, "'") && !take(p, "\"")) return false;
    size_t n = strcspn(*p, (char[]){(*p)[-1], '\\', 0});
    if (n >= cap || (*p)[n] != (*p)[-1]) return false;
    memcpy(out, *p, n);
    out[n] = 0;
    *p += n + 1;
    return true;
}

static bool take_shape(const char **p, struct ir_tensor *t)
{
    if (!take(p, "(")) return false;
    for (t->rank = 0; !take(p, ")");) {
        char *end;
        *p += strspn(*p, " \t\n");
        if (t->rank == IR_MAX_RANK || **p < '0' || **p > '9') return false;
        errno = 0;
        t->dims[t->rank++] = strtoll(*p, &end, 10);
        *p = end + (*end == 'L'); /* Python 2 wrote it */
        if (errno) return false;
        if (!take(p, ",")) return take(p, ")");
    }
    return true;
}

static bool parse_header(const char *p, struct ir_tensor *t)
{
    unsigned seen = 0, bit;
    char key[16], descr[16];
    if (!take(&p, "{")) return false;
    while (!take(&p, "}")) {
        if (!take_string(&p, key, sizeof key) || !take(&p, ":")) return false;
        if (!strcmp(key, "descr")) {
            bit = 1;
            if (!take_string(&p, descr, sizeof descr)) return false;
        } else if (!strcmp(key, "fortran_order")) {
            bit = 2;
            if (!take(&p, "False")) return false;
        } else {
            bit = 4;
            if (strcmp(key, "shape") || !take_shape(&p, t)) return false;
        }
        if (seen & bit) return false;
        seen |= bit;
        if (take(&p, ",")) continue;
        if (!take(&p, "}")) return false;
        break;
    }
    if (seen != 7 || p[strspn(p, " \t\n")]) return false;
    t->dtype = find_type(descr);
    return t->dtype != DT_NONE;
}

static bool read_header(FILE *f, struct ir_tensor *t)
{
    unsigned char fixed[12];
    if (fread(fixed, 1, 10, f) != 10 || memcmp(fixed, "\x93NUMPY", 6) || fixed[6] < 1 || fixed[6] > 3) return false;
    size_t len = fixed[8] | (size_t)fixed[9] << 8;
    if (fixed[6] >= 2) {
        if (fread(fixed + 10, 1, 2, f) != 2) return false;
        len |= (size_t)fixed[10] << 16 | (size_t)fixed[11] << 24;
    }
    if (len > MAX_HEADER) return false;
    char *header = calloc(1, len + 1);
    bool ok = header && fread(header, 1, len, f) == len;
    *t = (struct ir_tensor){0};
    ok = ok && !memchr(header, 0, len) && parse_header(header, t);
    free(header);
    return ok;
}

bool npy_read(const char *path, struct ir_tensor *out, struct arena *arena, struct diag_sink *diag)
{
    FILE *f = fopen(path, "rb");
    if (!f) return diag_report(diag, DIAG_FILE_READ, path, "cannot read the file");
    struct stat st;
    size_t bytes;
    bool ok = fstat(fileno(f), &st) == 0 && read_header(f, out);
    bytes = ok ? dtype_bytes(out->dtype) : 0;
    for (int i = 0; ok && i < out->rank; i++) ok = size_mul(bytes, (size_t)out->dims[i], &bytes);
    ok = ok && st.st_size >= 0 && bytes <= (size_t)st.st_size;
    if (ok) {
        out->n_bytes = bytes;
        out->data = arena_alloc(arena, bytes);
        ok = fread(out->data, 1, bytes, f) == bytes;
        for (size_t i = 0; out->dtype == DT_BOOL && i < bytes; i++) ((unsigned char *)out->data)[i] = ((unsigned char *)out->data)[i] != 0;
    }
    fclose(f);
    return ok || diag_report(diag, DIAG_FILE_READ, path, "not a .npy file of a supported type, or cut short");
}

bool npy_write(const char *path, const struct ir_tensor *t, struct diag_sink *diag)
{
    const char *descr = NULL;
    for (size_t i = 0; i < ARRAY_LEN(types) && !descr; i++)
        if (types[i].dtype == t->dtype) descr = types[i].descr;
    if (!descr) return diag_report(diag, DIAG_DTYPE_UNSUPPORTED, path, "type %s has no .npy form", dtype_name(t->dtype));
    struct strbuf h = {0};
    strbuf_printf(&h, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (int i = 0; i < t->rank; i++) strbuf_printf(&h, "%lld, ", (long long)t->dims[i]);
    strbuf_puts(&h, "), }");
    while ((10 + h.len + 1) % 64) strbuf_putc(&h, ' ');
    strbuf_putc(&h, '\n');
    unsigned char fixed[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)(h.len & 255), (unsigned char)(h.len >> 8)};
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(fixed, 1, 10, f) == 10 && fwrite(h.data, 1, h.len, f) == h.len && fwrite(t->data, 1, t->n_bytes, f) == t->n_bytes;
    if (f && fclose(f)) ok = false;
    strbuf_deinit(&h);
    return ok || diag_report(diag, DIAG_FILE_WRITE, path, "cannot write the file");
}

bool npy_fill_random(struct ir_tensor *t, uint64_t seed, uint32_t stream)
{
    size_t elem = dtype_bytes(t->dtype), n = elem ? t->n_bytes / elem : 0;
    enum dtype_class cls = dtype_class(t->dtype);
    if (cls == DTC_STRING || cls == DTC_NONE) return false;
    unsigned bits = dtype_bits(t->dtype);
    int64_t limit = cls == DTC_BOOL ? 2 : bits >= 8 ? 128 : (int64_t)1 << (bits - (cls == DTC_SINT));
    for (size_t i = 0; i < n; i++) {
        char *p = (char *)t->data + i * elem;
        if (cls != DTC_FLOAT) {
            int64_t v = infr_random_int(seed, stream, i, limit);
            memcpy(p, &v, elem); /* little endian: the low bytes */
            continue;
        }
        float_encode(t->dtype, infr_random_float(seed, stream, i), true, p);
    }
    return true;
}
