// SPDX-License-Identifier: Apache-2.0
/* Blocks with uniform steps taken apart: 32-element formats, K formats of 256 elements, ternary and 4-bit float ones. */
#include "ir/encoding_int.h"

/* ---- 32 elements: element i in the low, i + 16 in the high half of byte i ---- */

static void nibbles(const uint8_t *p, int n, int8_t *q)
{
    for (int i = 0; i < n; i++) {
        q[i] = (int8_t)(p[i] & 15);
        q[i + n] = (int8_t)(p[i] >> 4);
    }
}

static void add_bit4(const uint8_t *bits, int8_t *q)
{
    for (int i = 0; i < 32; i++) q[i] = (int8_t)(q[i] | (bits[i / 8] >> i % 8 & 1) << 4);
}

static void shift(int8_t *q, int n, int by)
{
    for (int i = 0; i < n; i++) q[i] = (int8_t)(q[i] + by);
}

void split_Q4_0(const uint8_t *b, int8_t *q, float *scale, float *min)
{
    (void)min;
    scale[0] = enc_f16(b);
    nibbles(b + 2, 16, q);
    shift(q, 32, -8);
}

/* Elements i and i + n of one scale and minimum in byte i, 0 <= i < n. */
static void scaled_nibbles(const uint8_t *b, int n, int8_t *q, float *scale, float *min)
{
    scale[0] = enc_f16(b);
    min[0] = enc_f16(b + 2);
    nibbles(b + 4, n, q);
}

void split_Q4_1(const uint8_t *b, int8_t *q, float *scale, float *min) { scaled_nibbles(b, 16, q, scale, min); }
void split_INT4_G64(const uint8_t *b, int8_t *q, float *scale, float *min) { scaled_nibbles(b, 32, q, scale, min); }
void split_INT4_G128(const uint8_t *b, int8_t *q, float *scale, float *min) { scaled_nibbles(b, 64, q, scale, min); }

void split_Q5_0(const uint8_t *b, int8_t *q, float *scale, float *min)
{
    (void)min;
    scale[0] = enc_f16(b);
    nibbles(b + 6, 16, q);
    add_bit4(b + 2, q);
    shift(q, 32, -16);
}

void split_Q5_1(const uint8_t *b, int8_t *q, float *scale, float *min)
{
    scale[0] = enc_f16(b);
    min[0] = enc_f16(b + 2);
    nibbles(b + 8, 16, q);
    add_bit4(b + 4, q);
}

void split_Q8_0(const uint8_t *b, int8_t *q, float *scale, float *min)
{
    (void)min;
    scale[0] = enc_f16(b);
    memcpy(q, b + 2, 32);
}

/* ---- 256 elements, scales of 4 or 6 bits under one f16 ---- */

void split_Q2_K(const uint8_t *b, int8_t *q, float *scale, float *min)
{
    const uint8_t *bits = b + 16;
    float d = enc_f16(b + 80), dmin = enc_f16(b + 82);
    for (int g = 0; g < 16; g++) {
        scale[g] = d * (float)(b[g] & 15);
        min[g] = -(dmin * (float)(b[g] >> 4));
    }
    for (int i = 0; i < 256; i++) q[i] = (int8_t)(bits[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3);
}

void split_Q3_K(const uint8_t *b, int8_t *q, float *scale, float *min)
{
    const uint8_t *high = b, *bits = b + 32, *s = b + 96;
    float d = enc_f16(b + 108);
    (void)min;
    for (int g = 0; g < 16; g++) {
        int lo = g < 8 ? s[g] & 15 : s[g - 8] >> 4, hi = s[8 + g % 4] >> (g / 4 * 2) & 3;
        scale[g] = d * (float)((lo | hi << 4) - 32);
    }
    for (int i = 0; i < 256; i++) {
        int lo = bits[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
        q[i] = (int8_t)(lo - (high[i % 32] >> i / 32 & 1 ? 0 : 4));
    }
}

/* The 12 bytes of eight scales and eight minima of 6 bits. */
static void scales_k(const uint8_t *s, float d, float dmin, float *scale, float *min)
{
    for (int g = 0; g < 8; g++) {
        int sc = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | (s[g - 4] >> 6) << 4;
        int mn = g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | (s[g] >> 6) << 4;
        scale[g] = d * (float)sc;
        min[g] = -(dmin * (float)mn);
    }
}

void split_Q4_K(const uint8_t *b, int8_t *q, float *scale, float *min)
{
    scales_k(b + 4, enc_f16(b), enc_f16(b + 2), scale, min);
    for (int c = 0; c < 4; c++) nibbles(b + 16 + 32 * c, 32, q + 64 * c);
}

void split_Q5_K(const uint8_t *b, int8_t *q, float *scale, float *min)
{
    scales_k(b + 4, enc_f16(b), enc_f16(b + 2), scale, min);
    for (int c = 0; c < 4; c++) nibbles(b + 48 + 32 * c, 32, q + 64 * c);
    for (int i = 0; i < 256; i++) q[i] = (int8_t)(q[i] | (b[16 + i % 32] >> i / 32 & 1) << 4);
}

void split_Q6_K(const uint8_t *b, int8_t *q, float *scale, float *min)
{
    float d = enc_f16(b + 208);
    (void)min;
    for (int g = 0; g < 16; g++) scale[g] = d * (float)(int8_t)b[192 + g];
    for (int c = 0; c < 2; c++) nibbles(b + 64 * c, 64, q + 128 * c);
    for (int i = 0; i < 256; i++)
        q[i] = (int8_t)((q[i] | (b[128 + i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3) << 4) - 32);
}

/* ---- ternary ---- */

/* Five (or four) trits a byte: multiplied by a power of three modulo 256, the leading trit is the product's top. */
static int8_t *trits(const uint8_t *p, int n, int per_byte, int8_t *q)
{
    static const uint8_t pow3[5] = {1, 3, 9, 27, 81};
    for (int t = 0; t < per_byte; t++)
        for (int i = 0; i < n; i++) *q++ = (int8_t)(((uint8_t)(p[i] * pow3[t]) * 3 >> 8) - 1);
    return q;
}

void split_TQ1_0(const uint8_t *b, int8_t *q, float *scale, float *min)
{
    (void)min;
    scale[0] = enc_f16(b + 52);
    q = trits(b, 32, 5, q);
    q = trits(b + 32, 16, 5, q);
    trits(b + 48, 4, 4, q);
}

void split_TQ2_0(const uint8_t *b, int8_t *q, float *scale, float *min)
{
    (void)min;
    scale[0] = enc_f16(b + 64);
    for (int i = 0; i < 256; i++) q[i] = (int8_t)((b[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3) - 1);
}

/* ---- 4-bit floats: q is twice the value, the scale half of it ---- */

static const int8_t e2m1_doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static void floats4(const uint8_t *p, int n, int8_t *q)
{
    nibbles(p, n, q);
    for (int i = 0; i < 2 * n; i++) q[i] = e2m1_doubled[q[i]];
}

void split_MXFP4(const uint8_t *b, int8_t *q, float *scale, float *min)
{
    (void)min;
    scale[0] = enc_f32_from_bits(b[0] < 2 ? UINT32_C(0x00200000) << b[0] : (uint32_t)(b[0] - 1) << 23);
    floats4(b + 1, 16, q);
}

/* Half of an f8e4m3 without sign; its NaN counts as zero. */
static float half_ue4m3(uint8_t x)
{
    int exp = x >> 3 & 15, man = x & 7;
    if (x == 0x7F) return 0;
    if (exp == 0) return (float)man * 0x1p-10f;
    return enc_f32_from_bits((uint32_t)(exp - 7 + 127 - 1) << 23 | (uint32_t)man << 20);
}

void split_NVFP4(const uint8_t *b, int8_t *q, float *scale, float *min)
{
    (void)min;
    for (int g = 0; g < 4; g++) {
        scale[g] = half_ue4m3(b[g]);
        floats4(b + 4 + 8 * g, 8, q + 16 * g);
    }
}
