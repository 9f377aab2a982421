// SPDX-License-Identifier: Apache-2.0
/*
 * TensorProto -> constant. Data stays where it is in the mapped file, except: elements below 8 bits
 * (unpacked to one byte each), typed fields whose wire form is not the element's (varints), bools
 * that are not 0 or 1, and tensors of up to a page that are not aligned to their element (copied,
 * so that only large ones are unaligned).
 */
#define _XOPEN_SOURCE 700 /* open flags, realpath */

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/import/onnx_int.h"
#include "compiler/import/wire.h"

#define SMALL_BYTES 4096

struct reading {
    struct imp *im;
    const Onnx__Tensor *t;
    const char *loc, *name;
    enum dtype dtype;
    size_t elems, packed_bytes; /* as stored in a file */
};

enum dtype onnx_dtype(struct diag_sink *diag, int code, const char *loc, const char *what)
{
    enum dtype d = dtype_from_onnx(code);
    if (d == DT_NONE) {
        diag_report(diag, DIAG_ONNX_TENSOR, loc, "%s has the unknown element type %d", what, code);
    } else if (d == DT_STRING) {
        diag_report_remedy(diag, DIAG_DTYPE_UNSUPPORTED, loc,
                           "strings come later; give the model numbers", "%s holds strings", what);
        d = DT_NONE;
    }
    return d;
}

static bool complain(const struct reading *r, const char *what, size_t have)
{
    return diag_report(r->im->diag, DIAG_ONNX_TENSOR, r->loc,
                       "tensor '%s' (%s, %zu elements, %zu bytes): %s (%zu)", r->name,
                       dtype_name(r->dtype), r->elems, r->packed_bytes, what, have);
}

static bool size_up(struct reading *r, int64_t *dims)
{
    const Onnx__Tensor *t = r->t;
    if (t->n_dims > IR_MAX_RANK)
        return diag_report(r->im->diag, DIAG_ONNX_LIMIT, r->loc,
                           "tensor '%s' has %zu dims; at most %d are supported", r->name, t->n_dims,
                           IR_MAX_RANK);
    r->elems = 1;
    for (size_t i = 0; i < t->n_dims; i++) {
        dims[i] = t->dims[i];
        if (dims[i] < 0)
            return diag_report(r->im->diag, DIAG_ONNX_TENSOR, r->loc,
                               "tensor '%s' has the negative dim %lld", r->name,
                               (long long)dims[i]);
        if (!size_mul(r->elems, (size_t)dims[i], &r->elems) || r->elems > SIZE_MAX / 64)
            return diag_report(r->im->diag, DIAG_ONNX_LIMIT, r->loc,
                               "tensor '%s' has too many elements", r->name);
    }
    r->packed_bytes = (r->elems * dtype_bits(r->dtype) + 7) / 8;
    return true;
}

/* ---- raw bytes -> data ---- */

static const void *unpack_bits(struct reading *r, const uint8_t *raw)
{
    unsigned bits = dtype_bits(r->dtype), mask = (1u << bits) - 1;
    uint8_t *out = arena_alloc(&r->im->m->arena, r->elems);
    bool is_signed = dtype_class(r->dtype) == DTC_SINT;
    for (size_t i = 0; i < r->elems; i++) {
        unsigned v = raw[i * bits / 8] >> (i * bits % 8) & mask;
        if (is_signed && v >> (bits - 1)) v |= ~mask;
        out[i] = (uint8_t)v;
    }
    return out;
}

static const void *from_raw(struct reading *r, const uint8_t *raw)
{
    unsigned bits = dtype_bits(r->dtype);
    if (bits < 8) return unpack_bits(r, raw);
    size_t n = r->packed_bytes;
    bool copy = n <= SMALL_BYTES && (uintptr_t)raw % dtype_bytes(r->dtype);
    if (r->dtype == DT_BOOL)
        for (size_t i = 0; i < n && !copy; i++) copy = raw[i] > 1;
    if (!copy) return raw;
    uint8_t *out = arena_dup(&r->im->m->arena, raw, n);
    if (r->dtype == DT_BOOL)
        for (size_t i = 0; i < n; i++) out[i] = out[i] != 0;
    return out;
}

/* ---- typed fields ---- */

static uint32_t typed_field(enum dtype d)
{
    switch (d) {
    case DT_F32: return 4;
    case DT_F64: return 10;
    case DT_I64: return 7;
    case DT_U32:
    case DT_U64: return 11;
    default: return 5;
    }
}

/* One stored number: its bits land in slot i of out, which has `bytes` each. */
static void put_number(uint8_t *out, size_t i, size_t bytes, uint64_t bits)
{
    memcpy(out + i * bytes, &bits, bytes);
}

/*
 * Walks the typed field's entries. With out == NULL only counts; *single is the payload when there
 * is exactly one packed chunk of fixed-width numbers.
 */
static size_t walk_typed(struct reading *r, struct wire_reader w, uint8_t *out, size_t bytes,
                         const uint8_t **single)
{
    uint32_t field = typed_field(r->dtype);
    bool fixed = field == 4 || field == 10;
    size_t width = field == 10 ? 8 : 4, n = 0, chunks = 0;
    struct wire_field f;
    while (wire_next(&w, &f)) {
        if (f.number != field) continue;
        chunks++;
        if (f.type != WIRE_LEN) {
            if (out) put_number(out, n, bytes, f.varint);
            n++;
            *single = NULL;
        } else if (fixed) {
            if (f.len % width) return SIZE_MAX;
            if (out) memcpy(out + n * width, f.data, f.len);
            n += f.len / width;
            *single = chunks == 1 ? f.data : NULL;
        } else {
            struct wire_reader in = {f.data, f.data + f.len, false};
            uint64_t v;
            for (; in.p < in.end; n++) {
                if (!wire_varint(&in, &v)) return SIZE_MAX;
                if (out) put_number(out, n, bytes, v);
            }
        }
    }
    return w.bad ? SIZE_MAX : n;
}

static const void *from_typed(struct reading *r, struct wire_reader w)
{
    unsigned bits = dtype_bits(r->dtype);
    size_t want = bits < 8 ? r->packed_bytes : r->elems,
           bytes = bits < 8 ? 1 : dtype_bytes(r->dtype);
    const uint8_t *single = NULL;
    size_t have = walk_typed(r, w, NULL, bytes, &single);
    if (have != want) {
        complain(r, have == SIZE_MAX ? "its data is broken" : "another number of values is stored",
                 have == SIZE_MAX ? 0 : have);
        return NULL;
    }
    if (single) return from_raw(r, single);
    uint8_t *out = arena_alloc(&r->im->m->arena, want * bytes);
    walk_typed(r, w, out, bytes, &single);
    return bits < 8 || r->dtype == DT_BOOL ? from_raw(r, out) : out;
}

static const void *read_inline(struct reading *r)
{
    const Onnx__Tensor *t = r->t;
    struct wire_reader w = {r->im->base + t->wire_offset,
                            r->im->base + t->wire_offset + t->wire_length, false};
    struct wire_reader scan = w;
    struct wire_field f;
    const uint8_t *raw = NULL;
    size_t raw_len = 0;
    while (wire_next(&scan, &f)) {
        if (f.number != 9) continue;
        if (f.type != WIRE_LEN || raw) {
            complain(r, "its raw data is broken", 0);
            return NULL;
        }
        raw = f.data;
        raw_len = f.len;
    }
    if (!raw) return from_typed(r, w);
    if (raw_len != r->packed_bytes) {
        complain(r, "another number of bytes is stored", raw_len);
        return NULL;
    }
    return from_raw(r, raw);
}

/* ---- external data ---- */

static bool name_is_inside(const char *s)
{
    if (!*s || *s == '/' || strchr(s, '\\')) return false;
    for (const char *p = s; p;) {
        const char *end = strchr(p, '/');
        size_t n = end ? (size_t)(end - p) : strlen(p);
        if (n == 2 && p[0] == '.' && p[1] == '.') return false;
        p = end ? end + 1 : NULL;
    }
    return true;
}

/* The real path of folder/name, or NULL when it is missing or leaves the folder by a link. */
static char *resolve(const char *model_path, const char *name)
{
    const char *slash = strrchr(model_path, '/');
    struct strbuf joined = {0};
    if (slash) strbuf_putn(&joined, model_path, (size_t)(slash - model_path) + 1);
    else strbuf_puts(&joined, "./");
    char *folder = realpath(strbuf_get(&joined), NULL);
    strbuf_puts(&joined, name);
    char *full = realpath(strbuf_get(&joined), NULL);
    strbuf_deinit(&joined);
    size_t n = folder ? strlen(folder) : 0;
    bool ok = folder && full && !strncmp(folder, full, n) &&
              (full[n] == '/' || (n == 1 && folder[0] == '/'));
    if (!ok && full) {
        free(full);
        full = NULL;
    }
    free(folder);
    return full;
}

static bool external_fault(const struct reading *r, const char *file, const char *what)
{
    return diag_report(r->im->diag, DIAG_ONNX_EXTERNAL, r->loc,
                       "tensor '%s': external data '%s' %s", r->name, file, what);
}

static struct onnx_file *external_file(struct reading *r, const char *file)
{
    struct imp *im = r->im;
    struct onnx_file *f = map_finds(&im->external, file);
    if (f) return f;
    if (!im->path) {
        external_fault(r, file, "cannot be read: the model does not come from a folder");
    } else if (!name_is_inside(file)) {
        external_fault(r, file, "may not leave the model's folder");
    } else {
        char *full = resolve(im->path, file);
        if (!full) external_fault(r, file, "is missing or leaves the model's folder");
        else f = onnx_map_file(full, r->loc, DIAG_ONNX_EXTERNAL, im->diag);
        free(full);
    }
    if (f) map_puts(&im->external, file, f);
    return f;
}

static bool parse_size(const char *s, size_t *out)
{
    if (*s < '0' || *s > '9') return false;
    char *end;
    unsigned long long v = strtoull(s, &end, 10);
    *out = (size_t)v;
    return !*end && v < SIZE_MAX / 2;
}

static const void *read_external(struct reading *r)
{
    const char *file = "", *offset_text = NULL, *length_text = NULL;
    for (size_t i = 0; i < r->t->n_external_data; i++) {
        const Onnx__StringPair *e = r->t->external_data[i];
        if (!e->key || !e->value) continue;
        if (!strcmp(e->key, "location")) file = e->value;
        if (!strcmp(e->key, "offset")) offset_text = e->value;
        if (!strcmp(e->key, "length")) length_text = e->value;
    }
    size_t offset = 0, length = r->packed_bytes;
    if ((offset_text && !parse_size(offset_text, &offset)) ||
        (length_text && !parse_size(length_text, &length))) {
        external_fault(r, file, "has an offset or length that is not a number");
        return NULL;
    }
    struct onnx_file *f = external_file(r, file);
    if (!f) return NULL;
    if (offset > f->len || length > f->len - offset) {
        external_fault(r, file, "is shorter than its offset and length say");
        return NULL;
    }
    if (length != r->packed_bytes) {
        if (length_text) complain(r, "another length is given", length);
        return NULL;
    }
    return from_raw(r, length ? f->data + offset : (const uint8_t *)"");
}

struct ir_const *onnx_tensor(struct imp *im, const Onnx__Tensor *t, const char *loc)
{
    struct reading r = {.im = im, .t = t, .loc = loc, .name = t->name ? t->name : ""};
    const char *what = arena_printf(&im->m->arena, "tensor '%s'", r.name);
    r.dtype = onnx_dtype(im->diag, t->data_type, loc, what);
    int64_t dims[IR_MAX_RANK];
    if (r.dtype == DT_NONE || !size_up(&r, dims)) return NULL;
    const void *data = t->data_location == 1 ? read_external(&r) : read_inline(&r);
    if (!data) return NULL;
    size_t n_bytes = r.elems * dtype_bytes(r.dtype);
    struct ir_type type = ir_type_static(im->m, r.dtype, (int)t->n_dims, dims);
    return ir_const_make(im->m, arena_strdup(&im->m->arena, r.name), type, data, n_bytes, false);
}

struct ir_const *onnx_sparse_tensor(struct imp *im, const Onnx__SparseTensor *t, const char *loc)
{
    if (!t->values || !t->indices || t->n_dims > IR_MAX_RANK) {
        diag_report(im->diag, DIAG_ONNX_TENSOR, loc, "a sparse tensor without values or indices");
        return NULL;
    }
    struct ir_const *v = onnx_tensor(im, t->values, loc), *ix = onnx_tensor(im, t->indices, loc);
    if (!v || !ix) return NULL;
    size_t elems = 1, esize = dtype_bytes(v->type.dtype), n = v->n_bytes / esize;
    bool ok = ix->type.dtype == DT_I64 && (ix->type.rank == 1 || ix->type.rank == 2);
    for (size_t i = 0; i < t->n_dims; i++)
        ok = ok && t->dims[i] >= 0 && size_mul(elems, (size_t)t->dims[i], &elems);
    size_t rank = ix->type.rank == 2 ? t->n_dims : 1;
    /* A dense form far larger than what the file holds is not built: it would be a memory bomb. */
    if (!ok || ix->n_bytes != n * rank * 8 || elems > (n + 1024) * 1024) {
        diag_report(im->diag, DIAG_ONNX_TENSOR, loc,
                    "a sparse tensor that is not valid, or too sparse to make dense");
        return NULL;
    }
    uint8_t *out = arena_calloc(&im->m->arena, elems, esize);
    for (size_t i = 0; i < n; i++) {
        size_t at = 0;
        for (size_t a = 0; a < rank; a++) {
            int64_t c, bound = rank == 1 ? (int64_t)elems : t->dims[a];
            if (!ir_const_get_int(ix, (int64_t)(i * rank + a), &c) || c < 0 || c >= bound) {
                diag_report(im->diag, DIAG_ONNX_TENSOR, loc,
                            "a sparse tensor's index is out of range");
                return NULL;
            }
            at = at * (size_t)(rank == 1 ? 1 : bound) + (size_t)c;
        }
        memcpy(out + at * esize, (const uint8_t *)v->data + i * esize, esize);
    }
    return ir_const_make(im->m, v->name,
                         ir_type_static(im->m, v->type.dtype, (int)t->n_dims, t->dims), out,
                         elems * esize, false);
}
