// SPDX-License-Identifier: Apache-2.0
#include "ir/support/float.h"

/* What a narrow IEEE-like format looks like. Codes are without the sign bit. */
struct narrow {
    int man_bits, bias, sign_shift;
    uint32_t max_code; /* greatest finite */
    uint32_t inf_code; /* what an overflow becomes; equal to nan_code when there is no infinity */
    uint32_t nan_code;
    bool unsigned_zero; /* the fnuz kinds: no -0, one NaN at the sign bit */
};

static const struct narrow k_f16 = {10, 15, 15, 0x7BFF, 0x7C00, 0x7E00, false};
static const struct narrow k_bf16 = {7, 127, 15, 0x7F7F, 0x7F80, 0x7FC0, false};
static const struct narrow k_e4m3fn = {3, 7, 7, 0x7E, 0x7F, 0x7F, false};
static const struct narrow k_e4m3fnuz = {3, 8, 7, 0x7F, 0x80, 0x80, true};
static const struct narrow k_e5m2 = {2, 15, 7, 0x7B, 0x7C, 0x7E, false};
static const struct narrow k_e5m2fnuz = {2, 16, 7, 0x7F, 0x80, 0x80, true};
static const struct narrow k_e2m1 = {1, 1, 3, 0x7, 0x7, 0, false};

static uint64_t f64_bits(double v)
{
    uint64_t u;
    memcpy(&u, &v, sizeof u);
    return u;
}

static double f64_of_bits(uint64_t u)
{
    double v;
    memcpy(&v, &u, sizeof v);
    return v;
}

#define F64_MAN_MASK ((UINT64_C(1) << 52) - 1)

static uint32_t encode(const struct narrow *k, double v, bool saturate)
{
    uint64_t bits = f64_bits(v);
    uint32_t sign = (uint32_t)(bits >> 63) << k->sign_shift;
    int biased = (int)(bits >> 52 & 0x7FF);
    uint64_t man = bits & F64_MAN_MASK;
    if (biased == 0x7FF) {
        if (man) return k->unsigned_zero ? k->nan_code : sign | k->nan_code;
        uint32_t code = saturate ? k->max_code : k->inf_code;
        return k->unsigned_zero && !saturate ? k->nan_code : sign | code;
    }
    uint32_t code = 0;
    if (biased) { /* subnormal f64 are below half of any format's least value */
        int e = biased - 1023, e_min = 1 - k->bias;
        int shift = 52 - k->man_bits + (e < e_min ? e_min - e : 0);
        man |= UINT64_C(1) << 52;
        if (shift < 54) {
            uint64_t q = man >> shift, rest = man & ((UINT64_C(1) << shift) - 1);
            uint64_t half = UINT64_C(1) << (shift - 1);
            q += rest > half || (rest == half && (q & 1));
            /* The implicit bit in q adds one to the exponent field, and so does a carry. */
            code = (uint32_t)q + ((uint32_t)(e < e_min ? 0 : e - e_min) << k->man_bits);
        }
    }
    if (code > k->max_code) {
        if (!saturate && k->unsigned_zero) return k->nan_code;
        code = saturate ? k->max_code : k->inf_code;
    }
    return code == 0 && k->unsigned_zero ? 0 : sign | code;
}

static double decode(const struct narrow *k, uint32_t bits)
{
    uint32_t code = bits & ((1u << k->sign_shift) - 1);
    uint64_t sign = (uint64_t)(bits >> k->sign_shift & 1) << 63;
    if (k->unsigned_zero && bits == k->nan_code) return f64_of_bits(UINT64_C(0x7FF8) << 48);
    if (code > k->max_code) {
        bool inf = code == k->inf_code && k->inf_code != k->nan_code;
        return f64_of_bits(sign | UINT64_C(0x7FF) << 52 | (inf ? 0 : UINT64_C(1) << 51));
    }
    int e = (int)(code >> k->man_bits);
    uint64_t man = code & ((1u << k->man_bits) - 1);
    if (e == 0) {
        /* man * 2^(1 - bias - man_bits): both factors are exact. */
        double unit = f64_of_bits((uint64_t)(1023 + 1 - k->bias - k->man_bits) << 52);
        return f64_of_bits(f64_bits((double)man * unit) | sign);
    }
    return f64_of_bits(sign | (uint64_t)(e - k->bias + 1023) << 52 | man << (52 - k->man_bits));
}

uint16_t f16_from_f64(double v) { return (uint16_t)encode(&k_f16, v, false); }
double f16_to_f64(uint16_t bits) { return decode(&k_f16, bits); }
uint16_t bf16_from_f64(double v) { return (uint16_t)encode(&k_bf16, v, false); }

double bf16_to_f64(uint16_t bits)
{
    uint32_t u = (uint32_t)bits << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static const struct narrow *f8_kind(enum dtype kind)
{
    switch (kind) {
    case DT_F8E4M3FN: return &k_e4m3fn;
    case DT_F8E4M3FNUZ: return &k_e4m3fnuz;
    case DT_F8E5M2: return &k_e5m2;
    case DT_F8E5M2FNUZ: return &k_e5m2fnuz;
    case DT_F4E2M1: return &k_e2m1;
    default: INFC_UNREACHABLE("not an 8-bit float kind");
    }
}

uint8_t f8_from_f64(enum dtype kind, double v, bool saturate)
{
    if (kind == DT_F4E2M1) return v != v ? 8 : (uint8_t)encode(&k_e2m1, v, true);
    return (uint8_t)encode(f8_kind(kind), v, saturate);
}

double f8_to_f64(enum dtype kind, uint8_t bits)
{
    return decode(f8_kind(kind), kind == DT_F4E2M1 ? bits & 15u : bits);
}

uint8_t e8m0_from_f64(double v, bool saturate, enum float_round mode)
{
    uint64_t bits = f64_bits(v);
    int biased = (int)(bits >> 52 & 0x7FF);
    uint64_t man = bits & F64_MAN_MASK;
    if (v == 0) return 0;
    if (bits >> 63 || (biased == 0x7FF && man)) return 255;
    if (biased == 0x7FF) return 255; /* infinity is NaN here, saturating or not (ONNX) */
    int e = biased - 1023 + 127;
    if (mode == FLOAT_ROUND_UP) e += man != 0;
    if (mode == FLOAT_ROUND_NEAREST) e += man >= UINT64_C(1) << 51; /* ties up (ONNX) */
    if (e < 0 || biased == 0) return 0;
    if (e > 254) return saturate ? 254 : 255;
    return (uint8_t)e;
}

double e8m0_to_f64(uint8_t bits)
{
    if (bits == 255) return f64_of_bits(UINT64_C(0x7FF8) << 48);
    return f64_of_bits((uint64_t)(bits - 127 + 1023) << 52);
}

uint16_t float_narrow(enum dtype kind, double v)
{
    switch (kind) {
    case DT_F16: return f16_from_f64(v);
    case DT_BF16: return bf16_from_f64(v);
    case DT_F8E8M0: return e8m0_from_f64(v, true, FLOAT_ROUND_UP);
    default: return f8_from_f64(kind, v, true);
    }
}

double float_widen(enum dtype kind, uint16_t bits)
{
    switch (kind) {
    case DT_F16: return f16_to_f64(bits);
    case DT_BF16: return bf16_to_f64(bits);
    case DT_F8E8M0: return e8m0_to_f64((uint8_t)bits);
    default: return f8_to_f64(kind, (uint8_t)bits);
    }
}
