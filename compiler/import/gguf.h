// SPDX-License-Identifier: Apache-2.0
/*
 * GGUF files, versions 2 and 3, of either byte order, in one part or split into several. A file is mapped and checked
 * as a whole when it is opened: afterwards every key, value and tensor lies inside of it, names are unique, shapes and
 * byte counts fit, and offsets are aligned. Nothing is copied, but for the tensors and numbers of big-endian files.
 *
 * Strings are not NUL-terminated and may hold any bytes. Everything lives until gguf_close.
 */
#ifndef INFC_COMPILER_IMPORT_GGUF_H
#define INFC_COMPILER_IMPORT_GGUF_H

#include "ir/encoding.h"
#include "ir/support/diag.h"
#include "ir/support/map.h"

#define GGUF_MAX_RANK 4

enum gguf_kind {
    GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL, GGUF_STRING, GGUF_ARRAY,
    GGUF_U64, GGUF_I64, GGUF_F64,
    GGUF_KIND_COUNT
};

struct gguf_string {
    const char *data;
    size_t len;
};

struct gguf_value {
    enum gguf_kind kind;
    enum gguf_kind element; /* of an array */
    uint64_t count;         /* of an array's elements, else 1 */
    const uint8_t *data;    /* of the (first element's) bytes; of a string: its 8 bytes of length */
    bool swapped;           /* bytes are in big-endian order */
};

struct gguf_kv {
    struct gguf_string key;
    struct gguf_value value;
};

struct gguf_tensor {
    const char *name; /* NUL-terminated copy without control characters */
    const struct ir_encoding *enc;
    int rank;
    int64_t dims[GGUF_MAX_RANK]; /* as in the file: innermost first */
    const void *data;            /* little-endian */
    size_t n_bytes;
};

struct gguf {
    struct arena arena;
    const char *path;
    uint32_t version, alignment;
    bool big_endian;
    size_t n_parts, n_file_bytes;
    VEC(struct gguf_kv) kvs;        /* of the first part */
    VEC(struct gguf_tensor *) tensors; /* in order of the file(s) */
    struct map keys, names;         /* to struct gguf_kv, struct gguf_tensor */
    VEC(struct gguf_map) maps;      /* private */
};

struct gguf_map {
    const void *data;
    size_t len;
};

/* Starts with the magic? */
bool gguf_looks_like(const void *data, size_t len);
/* NULL after diagnostics. The first part of a split model opens all of them, which lie beside it. */
struct gguf *gguf_open(const char *path, struct diag_sink *diag);
/* One part from memory that outlives it. */
struct gguf *gguf_open_bytes(const void *data, size_t len, const char *name, struct diag_sink *diag);
void gguf_close(struct gguf *g);

/* NULL when there is none of that name. */
const struct gguf_value *gguf_find(const struct gguf *g, const char *key);
const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name);

/* A scalar of any number kind or bool, if its value is one; false otherwise. */
bool gguf_get_int(const struct gguf_value *v, int64_t *out);
bool gguf_get_float(const struct gguf_value *v, double *out);
bool gguf_get_string(const struct gguf_value *v, struct gguf_string *out);
/* Elements of an array of numbers or bools; false when v is none or i is beyond it. */
bool gguf_array_int(const struct gguf_value *v, uint64_t i, int64_t *out);
bool gguf_array_float(const struct gguf_value *v, uint64_t i, double *out);
/*
 * The strings of an array, in order, from a zeroed cursor; false at the end, or when v is no array of strings.
 *   for (struct gguf_cursor at = {0}; gguf_next_string(v, &at, &s);)
 */
struct gguf_cursor {
    uint64_t i, bytes;
};
bool gguf_next_string(const struct gguf_value *v, struct gguf_cursor *at, struct gguf_string *out);
const char *gguf_kind_name(enum gguf_kind k);

/* Metadata and tensors for `infc inspect`: text or JSON. */
void gguf_print(const struct gguf *g, bool json, FILE *out);

#endif
