// SPDX-License-Identifier: Apache-2.0
/* Inside of ir/encoding*.c: the functions that the rows name, and what they share. */
#ifndef INFC_IR_ENCODING_INT_H
#define INFC_IR_ENCODING_INT_H

#include <string.h>

#include "ir/encoding.h"

#define PLAIN(ID, name, gguf, DTYPE)
#define ENC(ID, name, gguf, block, bytes, group, fields, pack) \
    void split_##ID(const uint8_t *b, int8_t *q, float *scale, float *min);
#include "ir/encoding.def"
#undef ENC
#undef PLAIN

void pack_q4_0(const float *x, uint8_t *b);
void pack_q4_1(const float *x, uint8_t *b);
void pack_int4_g64(const float *x, uint8_t *b);
void pack_int4_g128(const float *x, uint8_t *b);
void pack_q5_0(const float *x, uint8_t *b);
void pack_q5_1(const float *x, uint8_t *b);
void pack_q8_0(const float *x, uint8_t *b);
void pack_tq2_0(const float *x, uint8_t *b);

static inline float enc_f32_from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint16_t enc_u16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }

static inline uint32_t enc_u32(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Exact; NaNs keep their payload. */
static inline float enc_f16_bits(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exp = h >> 10 & 31, man = h & 1023;
    if (exp == 31) return enc_f32_from_bits(sign | 0x7F800000 | man << 13);
    if (exp) return enc_f32_from_bits(sign | (exp + 112) << 23 | man << 13);
    float f = (float)man * 0x1p-24f;
    return sign ? -f : f;
}

static inline float enc_f16(const uint8_t *p) { return enc_f16_bits(enc_u16(p)); }

#endif
