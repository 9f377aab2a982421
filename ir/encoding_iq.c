// SPDX-License-Identifier: Apache-2.0
/*
 * Blocks whose elements come from codebooks (ir/encoding_grid.def: part of the formats' definition). A codebook's entry
 * is 16 bits: eight digits of two bits, or four of four bits, that a short table turns into magnitudes.
 */
#include "ir/encoding_int.h"

#define GRID(name, n, ...) static const uint16_t grid_##name[n] = {__VA_ARGS__};
#include "ir/encoding_grid.def"
#undef GRID

static const int8_t levels_iq2[4] = {8, 25, 43, 0};
static const int8_t levels_iq3_xxs[16] = {4, 12, 20, 28, 36, 44, 52, 62};
static const int8_t levels_iq3_s[16] = {1, 3, 5, 7, 9, 11, 13, 15};
static const int8_t levels_iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

/* Seven sign bits; the eighth makes their number even. */
static unsigned even_signs(unsigned seven)
{
    unsigned parity = seven ^ seven >> 4;
    parity ^= parity >> 2;
    parity ^= parity >> 1;
    return seven | (parity & 1) << 7;
}

static void eight(uint16_t entry, unsigned signs, int8_t *q)
{
    for (int i = 0; i < 8; i++) {
        int8_t v = levels_iq2[entry >> 2 * i & 3];
        q[i] = (int8_t)(signs >> i & 1 ? -v : v);
    }
}

static void four(uint16_t entry, const int8_t *levels, unsigned signs, int8_t *q)
{
    for (int i = 0; i < 4; i++) {
        int8_t v = levels[entry >> 4 * i & 15];
        q[i] = (int8_t)(signs >> i & 1 ? -v : v);
    }
}

void split_IQ2_XXS(const uint8_t *b, int8_t *q, float *scale, float *min)
{
    float d = enc_f16(b);
    (void)min;
    for (int g = 0; g < 8; g++) {
        const uint8_t *index = b + 2 + 8 * g;
        uint32_t rest = enc_u32(index + 4);
        scale[g] = d * (0.5f + (float)(rest >> 28)) * 0.25f;
        for (int k = 0; k < 4; k++, q += 8) eight(grid_iq2_xxs[index[k]], even_signs(rest >> 7 * k & 127), q);
    }
}

void split_IQ2_XS(const uint8_t *b, int8_t *q, float *scale, float *min)
{
    float d = enc_f16(b);
    (void)min;
    for (int g = 0; g < 16; g++) {
        int s = b[66 + g / 2] >> (g % 2 * 4) & 15;
        scale[g] = d * (0.5f + (float)s) * 0.25f;
        for (int k = 0; k < 2; k++, q += 8) {
            unsigned w = enc_u16(b + 2 + 2 * (2 * g + k));
            eight(grid_iq2_xs[w & 511], even_signs(w >> 9), q);
        }
    }
}

void split_IQ2_S(const uint8_t *b, int8_t *q, float *scale, float *min)
{
    float d = enc_f16(b);
    (void)min;
    for (int g = 0; g < 16; g++) {
        int s = b[74 + g / 2] >> (g % 2 * 4) & 15;
        scale[g] = d * (0.5f + (float)s) * 0.25f;
        for (int k = 2 * g; k < 2 * g + 2; k++, q += 8) {
            unsigned high = b[66 + k / 4] >> (k % 4 * 2) & 3;
            eight(grid_iq2_s[b[2 + k] | high << 8], b[34 + k], q);
        }
    }
}

void split_IQ3_XXS(const uint8_t *b, int8_t *q, float *scale, float *min)
{
    float d = enc_f16(b);
    (void)min;
    for (int g = 0; g < 8; g++) {
        uint32_t rest = enc_u32(b + 66 + 4 * g);
        scale[g] = d * (0.5f + (float)(rest >> 28)) * 0.5f;
        for (int k = 0; k < 8; k++, q += 4) {
            unsigned signs = even_signs(rest >> 7 * (k / 2) & 127) >> (k % 2 * 4);
            four(grid_iq3_xxs[b[2 + 8 * g + k]], levels_iq3_xxs, signs, q);
        }
    }
}

void split_IQ3_S(const uint8_t *b, int8_t *q, float *scale, float *min)
{
    float d = enc_f16(b);
    (void)min;
    for (int g = 0; g < 8; g++) {
        scale[g] = d * (float)(1 + 2 * (b[106 + g / 2] >> (g % 2 * 4) & 15));
        for (int k = 0; k < 8; k++, q += 4) {
            unsigned index = b[2 + 8 * g + k] | (unsigned)(b[66 + g] >> k & 1) << 8;
            four(grid_iq3_s[index], levels_iq3_s, (unsigned)b[74 + 4 * g + k / 2] >> (k % 2 * 4), q);
        }
    }
}

/* Elements are -1, 0, 1 plus or minus an eighth: q counts eighths. */
static void eighths(uint16_t entry, bool minus, int8_t *q)
{
    for (int i = 0; i < 8; i++) q[i] = (int8_t)(8 * ((entry >> 2 * i & 3) - 1) + (minus ? -1 : 1));
}

void split_IQ1_S(const uint8_t *b, int8_t *q, float *scale, float *min)
{
    float d = enc_f16(b);
    (void)min;
    for (int g = 0; g < 8; g++) {
        unsigned h = enc_u16(b + 34 + 2 * g);
        scale[g] = d * (float)(2 * (h >> 12 & 7) + 1) * 0.125f;
        for (int k = 0; k < 4; k++, q += 8) eighths(grid_iq1[b[2 + 4 * g + k] | (h >> 3 * k & 7) << 8], h >> 15, q);
    }
}

void split_IQ1_M(const uint8_t *b, int8_t *q, float *scale, float *min)
{
    const uint8_t *s = b + 48;
    unsigned bits = 0; /* the f16 lies in the top nibbles of the four words of scales */
    (void)min;
    for (int i = 0; i < 4; i++) bits |= (unsigned)(enc_u16(s + 2 * i) >> 12) << 4 * i;
    float d = enc_f16_bits((uint16_t)bits);
    for (int g = 0; g < 16; g++) {
        unsigned h = b[32 + g];
        scale[g] = d * (float)(2 * (enc_u16(s + g / 4 * 2) >> (g % 4 * 3) & 7) + 1) * 0.125f;
        for (int k = 0; k < 2; k++, q += 8, h >>= 4) eighths(grid_iq1[b[2 * g + k] | (h & 7) << 8], h & 8, q);
    }
}

void split_IQ4_NL(const uint8_t *b, int8_t *q, float *scale, float *min)
{
    (void)min;
    scale[0] = enc_f16(b);
    for (int i = 0; i < 16; i++) {
        q[i] = levels_iq4[b[2 + i] & 15];
        q[i + 16] = levels_iq4[b[2 + i] >> 4];
    }
}

void split_IQ4_XS(const uint8_t *b, int8_t *q, float *scale, float *min)
{
    float d = enc_f16(b);
    unsigned high = enc_u16(b + 2);
    (void)min;
    for (int g = 0; g < 8; g++, q += 32) {
        int s = (b[4 + g / 2] >> (g % 2 * 4) & 15) | (int)(high >> 2 * g & 3) << 4;
        scale[g] = d * (float)(s - 32);
        for (int i = 0; i < 16; i++) {
            q[i] = levels_iq4[b[8 + 16 * g + i] & 15];
            q[i + 16] = levels_iq4[b[8 + 16 * g + i] >> 4];
        }
    }
}
