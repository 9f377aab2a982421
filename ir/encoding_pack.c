// SPDX-License-Identifier: Apache-2.0
/*
 * Encoders of the simple formats: the nearest step of a range that the block's extreme values fix. All arithmetic is in
 * f32 in the order written, so that the same floats give the same bytes as in other tools.
 */
#include <math.h>

#include "ir/encoding_int.h"
#include "ir/support/float.h"

static void put_f16(uint8_t *p, float v)
{
    uint16_t h = f16_from_f64(v);
    p[0] = (uint8_t)h;
    p[1] = (uint8_t)(h >> 8);
}

/* trunc(v) in [0, top]; NaN gives 0. */
static uint8_t step(float v, int top)
{
    if (!(v > 0)) return 0;
    return v >= (float)top ? (uint8_t)top : (uint8_t)v;
}

/* The element of greatest magnitude, the first of equals. */
static float extreme(const float *x, int n)
{
    float best = x[0];
    for (int i = 1; i < n; i++)
        if (fabsf(x[i]) > fabsf(best)) best = x[i];
    return best;
}

/* Steps around zero: 2 * half of them, the extreme value on the last negative one. */
static float steps_signed(const float *x, int half, uint8_t *q)
{
    float d = extreme(x, 32) / (float)-half, inv = d != 0 ? 1 / d : 0;
    for (int i = 0; i < 32; i++) q[i] = step(x[i] * inv + ((float)half + 0.5f), 2 * half - 1);
    return d;
}

static float steps_from_min(const float *x, int n, int top, uint8_t *q, float *out_min)
{
    float lo = x[0], hi = x[0];
    for (int i = 1; i < n; i++) {
        if (x[i] < lo) lo = x[i];
        if (x[i] > hi) hi = x[i];
    }
    float d = (hi - lo) / (float)top, inv = d != 0 ? 1 / d : 0;
    for (int i = 0; i < n; i++) q[i] = step((x[i] - lo) * inv + 0.5f, top);
    *out_min = lo;
    return d;
}

static void put_nibbles(uint8_t *p, int n, const uint8_t *q)
{
    for (int i = 0; i < n; i++) p[i] = (uint8_t)((q[i] & 15) | q[i + n] << 4);
}

static void put_bit4(uint8_t *p, const uint8_t *q)
{
    memset(p, 0, 4);
    for (int i = 0; i < 32; i++) p[i / 8] = (uint8_t)(p[i / 8] | (q[i] >> 4) << i % 8);
}

void pack_q4_0(const float *x, uint8_t *b)
{
    uint8_t q[32];
    put_f16(b, steps_signed(x, 8, q));
    put_nibbles(b + 2, 16, q);
}

static void pack_scaled_nibbles(const float *x, int n, uint8_t *b)
{
    uint8_t q[ENCODING_MAX_BLOCK];
    float min;
    put_f16(b, steps_from_min(x, n, 15, q, &min));
    put_f16(b + 2, min);
    put_nibbles(b + 4, n / 2, q);
}

void pack_q4_1(const float *x, uint8_t *b) { pack_scaled_nibbles(x, 32, b); }
void pack_int4_g64(const float *x, uint8_t *b) { pack_scaled_nibbles(x, 64, b); }
void pack_int4_g128(const float *x, uint8_t *b) { pack_scaled_nibbles(x, 128, b); }

void pack_q5_0(const float *x, uint8_t *b)
{
    uint8_t q[32];
    put_f16(b, steps_signed(x, 16, q));
    put_bit4(b + 2, q);
    put_nibbles(b + 6, 16, q);
}

void pack_q5_1(const float *x, uint8_t *b)
{
    uint8_t q[32];
    float min;
    put_f16(b, steps_from_min(x, 32, 31, q, &min));
    put_f16(b + 2, min);
    put_bit4(b + 4, q);
    put_nibbles(b + 8, 16, q);
}

void pack_q8_0(const float *x, uint8_t *b)
{
    float d = fabsf(extreme(x, 32)) / 127, inv = d != 0 ? 1 / d : 0;
    put_f16(b, d);
    for (int i = 0; i < 32; i++) b[2 + i] = (uint8_t)(int8_t)roundf(x[i] * inv);
}

void pack_tq2_0(const float *x, uint8_t *b)
{
    float d = fabsf(extreme(x, 256)), inv = d != 0 ? 1 / d : 0;
    memset(b, 0, 64);
    for (int i = 0; i < 256; i++) {
        int t = (int)roundf(x[i] * inv) + 1;
        uint8_t *p = &b[i / 128 * 32 + i % 32];
        *p = (uint8_t)(*p | t << (i / 32 % 4 * 2));
    }
    put_f16(b + 64, d);
}
