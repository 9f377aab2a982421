// SPDX-License-Identifier: Apache-2.0
/*
 * Trigonometric functions. Arguments are reduced by multiples of pi/2: with pi/2 in four exact pieces up to 2^20, beyond
 * that by an integer product with enough bits of 2/pi, so that huge arguments keep full accuracy.
 */
#include <math.h>

#include "ir/math_bits.h"
#include "ir/math_ref.h"
#include "ir/support/compiler.h"

static const struct ref_dd k_half_pi = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54};

/* Bits [at, at + 32) of a little-endian number of 9 limbs; bits below 0 are 0. */
static uint32_t bits_at(const uint32_t *limbs, int at)
{
    if (at <= -32) return 0;
    if (at < 0) return limbs[0] << -at;
    uint64_t lo = limbs[at / 32], hi = at / 32 + 1 < 9 ? limbs[at / 32 + 1] : 0;
    return (uint32_t)((hi << 32 | lo) >> (at % 32));
}

/*
 * |x| >= 1: x = m 2^e. Bits of 2/pi whose product with m 2^e is a multiple of 4 are skipped; the next 224 bits leave an
 * error below 2^-130. Returns x - n pi/2 in [-pi/4, pi/4] and n mod 4.
 */
static struct ref_dd reduce_big(double x, int *quadrant)
{
    static const uint32_t two_over_pi[] = {
        0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB, 0xDEBBC561,
        0xB7246E3A, 0x424DD2E0, 0x06492EEA, 0x09D1921C, 0xFE1DEB1C, 0xB129A73E, 0xE88235F5, 0x2EBB4484,
        0xE99C7026, 0xB45F7E41, 0x3991D639, 0x835339F4, 0x9C845F8B, 0xBDF9283B, 0x1FF897FF, 0xDE05980F,
        0xEF2F118B, 0x5A0A6D1F, 0x6D367ECF, 0x27CB09B7, 0x4F463F66, 0x9E5FEA2D, 0x7527BAC7, 0xEBE5F17B,
        0x3D0739F7, 0x8A5292EA, 0x6BFB5FB1, 0x1F8D5D08, 0x56033046, 0xFC7B6BAB, 0xF0CFBC20, 0x9AF4361D,
        0xA9E39161, 0x5EE61B08, 0x6599855F, 0x14A06840,
    };
    uint64_t u = ref_bits(x);
    uint64_t m = (u & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1) << 52;
    int e = (int)(u >> 52 & 0x7FF) - 1023 - 52;
    int skip = e > 2 ? (e - 2) / 32 : 0;
    e -= 32 * skip;
    uint32_t limbs[9] = {0}, half[2] = {(uint32_t)m, (uint32_t)(m >> 32)};
    for (int j = 0; j < 2; j++) {
        uint64_t carry = 0;
        for (int i = 0; i < 7; i++) {
            uint64_t t = (uint64_t)two_over_pi[skip + 6 - i] * half[j] + limbs[i + j] + carry;
            limbs[i + j] = (uint32_t)t;
            carry = t >> 32;
        }
        limbs[7 + j] = (uint32_t)carry;
    }
    int point = 224 - e; /* the bit of weight 1 */
    int n = (int)(bits_at(limbs, point) & 3);
    uint32_t frac[5];
    for (int i = 0; i < 5; i++) frac[i] = bits_at(limbs, point - 32 * (i + 1));
    double sign = 1;
    if (frac[0] >> 31) { /* above 1/2: count from the next multiple */
        n++;
        sign = -1;
        uint64_t carry = 1;
        for (int i = 4; i >= 0; i--) {
            carry += (uint32_t)~frac[i];
            frac[i] = (uint32_t)carry;
            carry >>= 32;
        }
    }
    struct ref_dd sum = {0, 0};
    for (int i = 0; i < 5; i++) {
        struct ref_dd t = ref_two_sum(sum.hi, frac[i] * ref_pow2(-32 * (i + 1)));
        sum = (struct ref_dd){t.hi, sum.lo + t.lo};
    }
    sum = ref_dd_mul(ref_fast_sum(sum.hi, sum.lo), k_half_pi);
    if (x < 0) {
        sign = -sign;
        n = -n;
    }
    *quadrant = n & 3;
    return (struct ref_dd){sign * sum.hi, sign * sum.lo};
}

static struct ref_dd reduce(double x, int *quadrant)
{
    double a = ref_fabs(x);
    *quadrant = 0;
    if (a <= 0x1.921fb54442d18p-1) return (struct ref_dd){x, 0};
    if (a > 0x1p20) return reduce_big(x, quadrant);
    double n = ref_rint(x * 0x1.45f306dc9c883p-1);
    double t = x - n * 0x1.921fb54400000p+0; /* exact, and so are the next two products */
    struct ref_dd s = ref_two_sum(t, -n * 0x1.0b4611a600000p-34);
    struct ref_dd s2 = ref_two_sum(s.hi, -n * 0x1.3198a2e000000p-69);
    *quadrant = (int)((int64_t)n & 3);
    return ref_fast_sum(s2.hi, s.lo + s2.lo - n * 0x1.b839a252049c1p-104);
}

/* sin(r.hi + r.lo), |r| <= pi/4 */
static double sin_core(struct ref_dd r)
{
    double z = r.hi * r.hi, p = 0;
    for (int n = 9; n >= 2; n--) p = (1 + p) * -z / ((2 * n) * (2 * n + 1));
    /* sin x = x - x^3/6 (1 + p): the small part is added last */
    double cubic = r.hi * z * (1.0 / 6) * (1 + p);
    return r.hi - (cubic - r.lo * (1 - 0.5 * z));
}

static double cos_core(struct ref_dd r)
{
    double z = r.hi * r.hi, p = 0;
    for (int n = 9; n >= 3; n--) p = (1 + p) * -z / ((2 * n - 1) * (2 * n));
    double h = 0.5 * z, w = 1 - h;
    return w + (((1 - w) - h) + (z * z * (1.0 / 24) * (1 + p) - r.hi * r.lo));
}

double ref_sin(double x)
{
    if (!(ref_fabs(x) < REF_INF)) return REF_NAN;
    if (x == 0) return x;
    int q;
    struct ref_dd r = reduce(x, &q);
    double v = q & 1 ? cos_core(r) : sin_core(r);
    return q & 2 ? -v : v;
}

double ref_cos(double x)
{
    if (!(ref_fabs(x) < REF_INF)) return REF_NAN;
    int q;
    struct ref_dd r = reduce(x, &q);
    double v = q & 1 ? sin_core(r) : cos_core(r);
    return (q + 1) & 2 ? -v : v;
}

double ref_tan(double x)
{
    if (!(ref_fabs(x) < REF_INF)) return REF_NAN;
    if (x == 0) return x;
    int q;
    struct ref_dd r = reduce(x, &q);
    double s = sin_core(r), c = cos_core(r);
    return q & 1 ? -c / s : s / c;
}

/* atan(t) = atan(c) + atan((t - c) / (1 + t c)), c the multiple of 1/8 nearest to t in [0, 1]. */
static struct ref_dd atan_core(double t)
{
    static const struct ref_dd table[] = {
        {0, 0},
        {0x1.fd5ba9aac2f6ep-4, -0x1.cd37686760c17p-59},
        {0x1.f5b75f92c80ddp-3, 0x1.8ab6e3cf7afbdp-57},
        {0x1.6f61941e4def1p-2, -0x1.c63aae6f6e918p-56},
        {0x1.dac670561bb4fp-2, 0x1.a2b7f222f65e2p-56},
        {0x1.1e00babdefeb4p-1, -0x1.928df287a668fp-58},
        {0x1.4978fa3269ee1p-1, 0x1.2419a87f2a458p-56},
        {0x1.700a7c5784634p-1, -0x1.8c34d25aadef6p-56},
        {0x1.921fb54442d18p-1, 0x1.1a62633145c07p-55},
    };
    int i = (int)(t * 8 + 0.5);
    double c = i * 0.125, u = (t - c) / (1 + t * c), z = u * u, p = 0;
    for (int n = 7; n >= 1; n--) p = (1.0 / (2 * n + 1) - p) * z;
    return ref_two_sum(table[i].hi, table[i].lo + (u - u * p));
}

double ref_atan(double x)
{
    double a = ref_fabs(x);
    if (x != x || x == 0) return x;
    if (a <= 1) return ref_copysign(atan_core(a).hi, x);
    struct ref_dd t = atan_core(1 / a);
    return ref_copysign(k_half_pi.hi - (t.hi - (k_half_pi.lo - t.lo)), x);
}

double ref_asin(double x)
{
    double a = ref_fabs(x);
    if (x != x || x == 0) return x;
    if (a > 1) return REF_NAN;
    if (a == 1) return ref_copysign(k_half_pi.hi, x);
    return ref_copysign(ref_atan(a / sqrt((1 - a) * (1 + a))), x);
}

double ref_acos(double x)
{
    if (x != x) return x;
    if (ref_fabs(x) > 1) return REF_NAN;
    if (x == -1) return 2 * k_half_pi.hi;
    return 2 * ref_atan(sqrt((1 - x) / (1 + x)));
}
