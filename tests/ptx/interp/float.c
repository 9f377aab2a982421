// SPDX-License-Identifier: Apache-2.0
#include "tests/ptx/interp/float.h"

#include <math.h>

#include "tests/ptx/interp/machine.h"

struct format {
    int exponent_bits, mantissa_bits;
    uint32_t nan, max, infinity; /* infinity == nan: there is none */
    int shift;                   /* tf32 lies in the upper bits of a word */
};

static const struct format *format_of(unsigned type)
{
    static const struct format f16 = {5, 10, 0x7fff, 0x7bff, 0x7c00, 0};
    static const struct format bf16 = {8, 7, 0x7fff, 0x7f7f, 0x7f80, 0};
    static const struct format tf32 = {8, 10, 0x3ffff, 0x3fbff, 0x3fc00, 13};
    static const struct format e4m3 = {4, 3, 0x7f, 0x7e, 0x7f, 0};
    static const struct format e5m2 = {5, 2, 0x7f, 0x7b, 0x7c, 0};
    static const struct format f32 = {8, 23, 0x7fffffff, 0x7f7fffff, 0x7f800000, 0};
    switch (type) {
    case PTX_F16:
    case PTX_F16X2: return &f16;
    case PTX_BF16:
    case PTX_BF16X2: return &bf16;
    case PTX_TF32: return &tf32;
    case PTX_E4M3:
    case PTX_E4M3X2: return &e4m3;
    case PTX_E5M2:
    case PTX_E5M2X2: return &e5m2;
    default: return &f32;
    }
}

float ptx_f16_to_f32(uint32_t h)
{
    uint32_t sign = (h & 0x8000) << 16, rest = (h & 0x7fff) << 13;
    if (rest >= 0x7c00u << 13) return ptx_f32(sign | 0x7f800000 | (rest & 0x7fffff));
    return ptx_f32(ptx_bits32(ptx_f32(rest) * 0x1p112f) | sign);
}
float ptx_bf16_to_f32(uint32_t h) { return ptx_f32(h << 16); }
float ptx_e4m3_to_f32(uint32_t v)
{
    uint32_t sign = (v & 0x80) << 24;
    if ((v & 0x7f) == 0x7f) return ptx_f32(sign | 0x7fc00000);
    return ptx_f32(ptx_bits32(ptx_f32((v & 0x7f) << 20) * 0x1p120f) | sign);
}
float ptx_e5m2_to_f32(uint32_t v) { return ptx_f16_to_f32((v & 0xff) << 8); }
float ptx_tf32_in(uint32_t bits) { return ptx_f32(bits & 0xffffe000u); }

double ptx_widen(unsigned type, uint64_t bits)
{
    switch (type) {
    case PTX_F16:
    case PTX_F16X2: return (double)ptx_f16_to_f32((uint32_t)bits & 0xffff);
    case PTX_BF16:
    case PTX_BF16X2: return (double)ptx_bf16_to_f32((uint32_t)bits & 0xffff);
    case PTX_E4M3:
    case PTX_E4M3X2: return (double)ptx_e4m3_to_f32((uint32_t)bits & 0xff);
    case PTX_E5M2:
    case PTX_E5M2X2: return (double)ptx_e5m2_to_f32((uint32_t)bits & 0xff);
    case PTX_F64: return ptx_f64(bits);
    default: return (double)ptx_f32((uint32_t)bits);
    }
}

/* Whether the magnitude n + fraction is rounded up to n + 1. */
static bool rounds_up(double n, double fraction, bool negative, enum ptx_round round)
{
    switch (round) {
    case PTX_ROUND_RZ: return false;
    case PTX_ROUND_RM: return negative && fraction > 0;
    case PTX_ROUND_RP: return !negative && fraction > 0;
    case PTX_ROUND_RNA: return fraction >= 0.5;
    default: return fraction > 0.5 || (fraction == 0.5 && fmod(n, 2) != 0);
    }
}

uint32_t ptx_narrow(unsigned type, double x, enum ptx_round round, bool satfinite)
{
    const struct format *f = format_of(type);
    if (type == PTX_F32 && round <= PTX_ROUND_RN && !satfinite) { /* the common one: the host rounds alike */
        float v = (float)x;
        return isnan(v) ? f->nan : ptx_bits32(v);
    }
    int bits = f->exponent_bits + f->mantissa_bits, bias = (1 << (f->exponent_bits - 1)) - 1;
    uint32_t sign = signbit(x) ? 1u << bits : 0, v;
    if (isnan(x)) return f->nan << f->shift;
    double a = fabs(x);
    if (a == 0) return sign << f->shift;
    int e = 0;
    if (isinf(a)) {
        v = satfinite ? f->max : f->infinity;
        return (sign | v) << f->shift;
    }
    frexp(a, &e);
    e--;
    if (e < 1 - bias) e = 1 - bias;
    double q = ldexp(a, f->mantissa_bits - e), n = floor(q);
    if (rounds_up(n, q - n, sign != 0, round)) n += 1;
    if (n >= ldexp(2, f->mantissa_bits)) {
        n /= 2;
        e++;
    }
    if (e > bias + 1) v = UINT32_MAX;
    else if (n < ldexp(1, f->mantissa_bits)) v = (uint32_t)n;
    else v = (uint32_t)(e + bias) << f->mantissa_bits | ((uint32_t)n & ((1u << f->mantissa_bits) - 1));
    if (v > f->max) {
        bool towards_zero = round == PTX_ROUND_RZ || (round == PTX_ROUND_RM && !sign) ||
                            (round == PTX_ROUND_RP && sign);
        v = satfinite || towards_zero ? f->max : f->infinity;
    }
    return (sign | v) << f->shift;
}

/* s is the nearest double to a value that lies `err` away: the odd neighbour of the two around it. */
static double to_odd(double s, double err)
{
    uint64_t bits = ptx_bits64(s);
    if (err == 0 || bits & 1 || !isfinite(s) || isnan(err)) return s;
    if (s == 0) return s;
    return ptx_f64((err > 0) == (s > 0) ? bits + 1 : bits - 1);
}

double ptx_add_odd(double a, double b)
{
    double s = a + b, bb = s - a;
    return to_odd(s, (a - (s - bb)) + (b - bb));
}

double ptx_div_odd(double a, double b)
{
    double q = a / b;
    if (!isfinite(q) || q == 0) return q;
    double r = fma(-q, b, a); /* the sign of (a/b - q) is that of r/b */
    return to_odd(q, b > 0 ? r : -r);
}

double ptx_sqrt_odd(double a)
{
    double q = sqrt(a);
    if (!isfinite(q) || q == 0) return q;
    return to_odd(q, fma(-q, q, a));
}
