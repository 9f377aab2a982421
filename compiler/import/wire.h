// SPDX-License-Identifier: Apache-2.0
/*
 * The bounded walker over protobuf wire bytes, and readers for the parts it leaves in the file.
 *
 * protobuf-c recurses without bound and copies every byte field, so it never sees a file from
 * outside. The walker reads the file once, checks every tag, length, nesting depth and count, and
 * writes a skeleton: the same messages without bulk data and without fields that the importer does
 * not use. Messages that hold bulk data carry the position of their own bytes instead (fields 2001
 * and 2002), so that data is read from the mapped file, where it is.
 *
 * Memory: the skeleton, and what protobuf-c makes of it, each take at most
 * records * WIRE_RECORD_BYTES + 1 MiB, a record being a message or a string that is kept.
 */
#ifndef INFC_COMPILER_IMPORT_WIRE_H
#define INFC_COMPILER_IMPORT_WIRE_H

#include "ir/support/diag.h"
#include "ir/support/str.h"

#define WIRE_MAX_DEPTH 64
#define WIRE_MAX_DIMS 64
#define WIRE_RECORD_BYTES 512u
#define WIRE_SLACK_BYTES ((size_t)1 << 20)

enum wire_type { WIRE_VARINT = 0, WIRE_I64 = 1, WIRE_LEN = 2, WIRE_I32 = 5 };

/* A cursor over wire bytes; `bad` is set once by whatever does not fit, and reading then ends. */
struct wire_reader {
    const uint8_t *p, *end;
    bool bad;
};

struct wire_field {
    uint32_t number;
    enum wire_type type;
    uint64_t varint;     /* VARINT, I64, I32: the bits */
    const uint8_t *data; /* LEN: the payload */
    size_t len;
};

/* The next field; false at the end or when bad. Groups and unknown wire types are bad. */
bool wire_next(struct wire_reader *r, struct wire_field *f);
bool wire_varint(struct wire_reader *r, uint64_t *out);

struct wire_skeleton {
    struct strbuf bytes; /* the caller frees it */
    size_t records;
};

/* Whether the bytes begin like an ONNX model (a plausible first field of ModelProto). */
bool wire_looks_like_model(const void *data, size_t len);

/*
 * Makes the skeleton of a ModelProto. On failure reports one diagnostic at loc (the file's name)
 * that says at which byte what is wrong, and returns false; the skeleton is then to be freed all
 * the same.
 */
bool wire_make_skeleton(const void *data, size_t len, const char *loc, struct diag_sink *diag,
                        struct wire_skeleton *out);

#endif
