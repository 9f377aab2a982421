// SPDX-License-Identifier: Apache-2.0
/*
 * Encodings: storage formats of constants that the IR sees as f32 (ir/encoding.def has one row each). A type with an
 * encoding prints as `q4_1 f32[1536, 576]`; blocks run along the innermost dim, which is a multiple of the block; the
 * constant's data is the raw blocks, one row after the other without padding, always little-endian.
 *
 * Every block format takes apart into one shape, `element = scale[group] * q + min[group]`, computed in f32 in two
 * steps (product rounded, then sum rounded). That is exactly what the format's own reference decoder gives; kernels may
 * repack q and the scales as they like.
 */
#ifndef INFC_IR_ENCODING_H
#define INFC_IR_ENCODING_H

#include "ir/type.h"

#define ENCODING_MAX_BLOCK 256
#define ENCODING_MAX_GROUPS 16

struct ir_encoding {
    const char *name;
    int gguf;            /* number of the type in GGUF files; -1: in none */
    enum dtype plain;    /* element type of a PLAIN row, else DT_NONE */
    int block_elems, block_bytes;
    int group_elems;     /* 0 for plain rows */
    const char *fields;  /* see encoding.def; NULL for plain rows */
    /* q[block_elems], scale and min[block_elems / group_elems]; NULL for plain rows. */
    void (*split)(const uint8_t *block, int8_t *q, float *scale, float *min);
    void (*pack)(const float *x, uint8_t *block); /* NULL: no encoder here */
};

struct ir_const;

int encoding_count(void);
const struct ir_encoding *encoding_at(int i);
/* NULL when unknown. */
const struct ir_encoding *encoding_find(const char *name, size_t len);
const struct ir_encoding *encoding_from_gguf(uint32_t type);

/* A constant's encoding, or the plain row of its float type; NULL for other types. */
const struct ir_encoding *ir_const_encoding(const struct ir_const *c);

/* Bytes of `rows` rows of `row_elems` elements; false when the row is no whole number of blocks or on overflow. */
bool encoding_bytes(const struct ir_encoding *e, int64_t rows, int64_t row_elems, size_t *out);
/* Bytes of a constant of this type (with or without an encoding; dims constant); false as above. */
bool ir_type_bytes(const struct ir_type *t, size_t *out);
/* n elements (a multiple of the block) from blocks at data, which need not be aligned. */
void encoding_unpack(const struct ir_encoding *e, const void *data, int64_t n, float *out);
/* n elements to blocks; false when the row has no encoder. */
bool encoding_pack(const struct ir_encoding *e, const float *x, int64_t n, void *data);
/* Swaps the bytes of every field wider than a byte in n_bytes of whole blocks, in place. */
void encoding_swap(const struct ir_encoding *e, void *data, size_t n_bytes);

#endif
