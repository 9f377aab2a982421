// SPDX-License-Identifier: Apache-2.0
/*
 * Float arithmetic. f32 with the common rounding runs as loops over rows; everything else goes through
 * double, one lane at a time, with one correct rounding at the end (float.h). Approximate functions are
 * computed with the C library: hardware promises an error bound, not bits, and tests compare with one.
 */
#include "tests/ptx/interp/float.h"

#include <math.h>

#include "tests/ptx/interp/lanes.h"

static float flush(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x; }

/* NaN loses against a number unless the instruction says .NaN; -0 is below +0. */
static double min_max(double x, double y, bool max, bool nan)
{
    if (isnan(x) || isnan(y)) {
        if (nan || (isnan(x) && isnan(y))) return NAN;
        return isnan(x) ? y : x;
    }
    if (x == y) return signbit(x) == max ? y : x;
    return (x < y) == max ? y : x;
}

/* a op b (op c), exact or rounded to odd. */
static double exact(const struct ptx_insn *in, double a, double b, double c)
{
    switch (in->op) {
    case PTX_OP_ADD: return ptx_add_odd(a, b);
    case PTX_OP_SUB: return ptx_add_odd(a, -b);
    case PTX_OP_MUL: return a * b;
    case PTX_OP_MAD:
    case PTX_OP_FMA: return ptx_add_odd(a * b, c);
    case PTX_OP_DIV: return ptx_div_odd(a, b);
    case PTX_OP_RCP: return ptx_div_odd(1, a);
    case PTX_OP_SQRT: return ptx_sqrt_odd(a);
    case PTX_OP_RSQRT: return 1 / sqrt(a);
    case PTX_OP_EX2: return exp2(a);
    case PTX_OP_LG2: return log2(a);
    case PTX_OP_SIN: return sin(a);
    case PTX_OP_COS: return cos(a);
    case PTX_OP_TANH: return tanh(a);
    case PTX_OP_NEG: return -a;
    case PTX_OP_ABS: return fabs(a);
    case PTX_OP_COPYSIGN: return copysign(b, a); /* sign of the first source */
    case PTX_OP_MIN:
    case PTX_OP_MAX: {
        bool max = in->op == PTX_OP_MAX, nan = in->flags & PTX_F_NAN;
        double v = min_max(a, b, max, nan);
        return in->n_ops == 4 ? min_max(v, c, max, nan) : v;
    }
    default: return NAN;
    }
}

static double clamp(const struct ptx_insn *in, double v)
{
    if (in->flags & PTX_F_SAT) return isnan(v) || v < 0 ? 0 : v > 1 ? 1 : v;
    if (in->flags & PTX_F_RELU && (v < 0 || (v == 0 && signbit(v)))) return 0;
    return v;
}

static bool sign_only(const struct ptx_insn *in)
{
    return in->op == PTX_OP_NEG || in->op == PTX_OP_ABS || in->op == PTX_OP_COPYSIGN;
}

/* One element of a type below 64 bits. */
static uint32_t element(const struct ptx_insn *in, unsigned type, uint32_t a, uint32_t b, uint32_t c)
{
    double x = ptx_widen(type, a), y = ptx_widen(type, b), z = ptx_widen(type, c);
    bool ftz = in->flags & PTX_F_FTZ && type == PTX_F32;
    if (sign_only(in)) { /* on bits, so that NaN payloads stay */
        uint32_t top = ptx_types[type].bytes == 4 ? 1u << 31 : 1u << 15;
        uint32_t v = in->op == PTX_OP_NEG   ? a ^ top
                     : in->op == PTX_OP_ABS ? a & ~top
                                            : (b & ~top) | (a & top);
        return ftz ? ptx_bits32(flush(ptx_f32(v))) : v;
    }
    if (ftz) {
        x = flush((float)x);
        y = flush((float)y);
        z = flush((float)z);
    }
    double v = clamp(in, exact(in, x, y, z));
    if (in->flags & PTX_F_XORSIGN) v = signbit(x) != signbit(y) ? -fabs(v) : fabs(v);
    uint32_t bits = ptx_narrow(type, v, (enum ptx_round)in->round, false);
    return ftz ? ptx_bits32(flush(ptx_f32(bits))) : bits;
}

static uint64_t element64(const struct ptx_insn *in, double a, double b, double c)
{
    switch (in->op) { /* the rounding of the host is that of .rn */
    case PTX_OP_ADD: return ptx_bits64(a + b);
    case PTX_OP_SUB: return ptx_bits64(a - b);
    case PTX_OP_MAD:
    case PTX_OP_FMA: return ptx_bits64(fma(a, b, c));
    case PTX_OP_DIV: return ptx_bits64(a / b);
    case PTX_OP_RCP: return ptx_bits64(1 / a);
    case PTX_OP_SQRT: return ptx_bits64(sqrt(a));
    default: return ptx_bits64(exact(in, a, b, c));
    }
}

static void lanes64(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    if (in->round != PTX_ROUND_NONE && in->round != PTX_ROUND_RN) {
        ptx_unsupported(w, in);
        return;
    }
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        double s[3] = {0};
        for (int i = 1; i < in->n_ops; i++) s[i - 1] = ptx_f64(ptx_get(w, in->ops[i].reg, l));
        ptx_set(w, in->ops[0].reg, l, element64(in, s[0], s[1], s[2]));
    }
}

/* f16x2, bf16x2 (halves of 16 bits) and f32x2 (halves of 32). */
static void lanes_packed(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    unsigned type = in->types[0] == PTX_F16X2 ? PTX_F16 : in->types[0] == PTX_BF16X2 ? PTX_BF16 : PTX_F32;
    unsigned bits = type == PTX_F32 ? 32 : 16;
    uint64_t keep = type == PTX_F32 ? UINT32_MAX : 0xffff;
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        uint64_t s[3] = {0}, v = 0;
        for (int i = 1; i < in->n_ops; i++) s[i - 1] = ptx_get(w, in->ops[i].reg, l);
        for (unsigned h = 0; h < 64 && h < bits * 2; h += bits)
            v |= (element(in, type, (uint32_t)(s[0] >> h & keep), (uint32_t)(s[1] >> h & keep),
                          (uint32_t)(s[2] >> h & keep)) &
                  keep)
                 << h;
        ptx_set(w, in->ops[0].reg, l, v);
    }
}

/* f32, nearest, no flags: rows. False when the operation has no row form. */
static bool rows_f32(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    const struct ptx_operand *o = in->ops;
    const uint32_t *a = ptx_row32(w, &o[1]);
    const uint32_t *b = in->n_ops > 2 ? ptx_row32(w, &o[2]) : a;
    const uint32_t *c = in->n_ops > 3 ? ptx_row32(w, &o[3]) : a;
    uint32_t v[32];
    switch (in->op) {
    case PTX_OP_ADD:
        for (int l = 0; l < 32; l++) v[l] = ptx_bits32(ptx_f32(a[l]) + ptx_f32(b[l]));
        break;
    case PTX_OP_SUB:
        for (int l = 0; l < 32; l++) v[l] = ptx_bits32(ptx_f32(a[l]) - ptx_f32(b[l]));
        break;
    case PTX_OP_MUL:
        for (int l = 0; l < 32; l++) v[l] = ptx_bits32(ptx_f32(a[l]) * ptx_f32(b[l]));
        break;
    case PTX_OP_FMA:
        for (int l = 0; l < 32; l++) v[l] = ptx_bits32(fmaf(ptx_f32(a[l]), ptx_f32(b[l]), ptx_f32(c[l])));
        break;
    case PTX_OP_DIV:
        for (int l = 0; l < 32; l++) v[l] = ptx_bits32(ptx_f32(a[l]) / ptx_f32(b[l]));
        break;
    case PTX_OP_EX2:
        for (int l = 0; l < 32; l++) v[l] = mask >> l & 1 ? ptx_bits32(exp2f(ptx_f32(a[l]))) : 0;
        break;
    default: return false;
    }
    /* Devices make one NaN, so that a test may compare bits. */
    for (int l = 0; l < 32; l++)
        if ((v[l] & 0x7fffffff) > 0x7f800000) v[l] = 0x7fffffff;
    ptx_commit32(w, &o[0], v, mask);
    return true;
}

void ptx_float_arith(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    unsigned t = in->types[0];
    bool plain = !(in->flags & (PTX_F_FTZ | PTX_F_SAT | PTX_F_RELU | PTX_F_XORSIGN | PTX_F_NAN | PTX_F_ABS)) &&
                 (in->round == PTX_ROUND_NONE || in->round == PTX_ROUND_RN);
    if (t == PTX_F64) {
        lanes64(w, in, mask);
        return;
    }
    if (t == PTX_F16X2 || t == PTX_BF16X2 || t == PTX_F32X2) {
        lanes_packed(w, in, mask);
        return;
    }
    if (t != PTX_F32 && t != PTX_F16 && t != PTX_BF16) {
        ptx_unsupported(w, in);
        return;
    }
    if (t == PTX_F32 && plain && rows_f32(w, in, mask)) return;
    uint32_t v[32];
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        uint32_t s[3] = {0};
        for (int i = 1; i < in->n_ops; i++) s[i - 1] = (uint32_t)ptx_get(w, in->ops[i].reg, l);
        v[l] = element(in, t, s[0], s[1], s[2]);
    }
    for (int l = 0; l < 32; l++)
        if (!(mask >> l & 1)) v[l] = 0;
    ptx_commit32(w, &in->ops[0], v, mask);
}

void ptx_x_fma(struct ptx_warp *w, const struct ptx_insn *in, uint32_t m) { ptx_float_arith(w, in, m); }
void ptx_x_copysign(struct ptx_warp *w, const struct ptx_insn *in, uint32_t m) { ptx_float_arith(w, in, m); }
void ptx_x_rcp(struct ptx_warp *w, const struct ptx_insn *in, uint32_t m) { ptx_float_arith(w, in, m); }
void ptx_x_sqrt(struct ptx_warp *w, const struct ptx_insn *in, uint32_t m) { ptx_float_arith(w, in, m); }
void ptx_x_rsqrt(struct ptx_warp *w, const struct ptx_insn *in, uint32_t m) { ptx_float_arith(w, in, m); }
void ptx_x_ex2(struct ptx_warp *w, const struct ptx_insn *in, uint32_t m) { ptx_float_arith(w, in, m); }
void ptx_x_lg2(struct ptx_warp *w, const struct ptx_insn *in, uint32_t m) { ptx_float_arith(w, in, m); }
void ptx_x_sin(struct ptx_warp *w, const struct ptx_insn *in, uint32_t m) { ptx_float_arith(w, in, m); }
void ptx_x_cos(struct ptx_warp *w, const struct ptx_insn *in, uint32_t m) { ptx_float_arith(w, in, m); }
void ptx_x_tanh(struct ptx_warp *w, const struct ptx_insn *in, uint32_t m) { ptx_float_arith(w, in, m); }

/* ---- comparisons and selections ---- */

static bool compare_floats(unsigned cmp, double x, double y)
{
    bool nan = isnan(x) || isnan(y);
    switch (cmp) {
    case PTX_CMP_EQ: return x == y;
    case PTX_CMP_NE: return !nan && x != y;
    case PTX_CMP_LT: return x < y;
    case PTX_CMP_LE: return x <= y;
    case PTX_CMP_GT: return x > y;
    case PTX_CMP_GE: return x >= y;
    case PTX_CMP_EQU: return nan || x == y;
    case PTX_CMP_NEU: return nan || x != y;
    case PTX_CMP_LTU: return nan || x < y;
    case PTX_CMP_LEU: return nan || x <= y;
    case PTX_CMP_GTU: return nan || x > y;
    case PTX_CMP_GEU: return nan || x >= y;
    case PTX_CMP_NUM: return !nan;
    case PTX_CMP_NAN: return nan;
    default: return false;
    }
}

static bool compare_ints(unsigned cmp, bool less, bool equal)
{
    switch (cmp) {
    case PTX_CMP_EQ: return equal;
    case PTX_CMP_NE: return !equal;
    case PTX_CMP_LT: return less;
    case PTX_CMP_LE: return less || equal;
    case PTX_CMP_GT: return !less && !equal;
    case PTX_CMP_GE: return !less;
    default: return false;
    }
}

static bool compare(const struct ptx_insn *in, unsigned type, uint64_t x, uint64_t y)
{
    if (ptx_is_float(type)) {
        double a = ptx_widen(type, x), b = ptx_widen(type, y);
        if (in->flags & PTX_F_FTZ && type == PTX_F32) {
            a = flush((float)a);
            b = flush((float)b);
        }
        return compare_floats(in->cmp, a, b);
    }
    unsigned bytes = ptx_types[type].bytes;
    if (ptx_is_signed(type)) {
        int64_t a = ptx_sign_extend(x, bytes), b = ptx_sign_extend(y, bytes);
        return compare_ints(in->cmp, a < b, a == b);
    }
    return compare_ints(in->cmp, x < y, x == y);
}

static uint32_t compare_lanes(struct ptx_warp *w, const struct ptx_insn *in, unsigned type, uint32_t mask)
{
    uint32_t bits = 0;
    if (ptx_types[type].bytes == 4 && !ptx_is_float(type)) { /* loop counters and bounds */
        const uint32_t *a = ptx_row32(w, &in->ops[1]), *b = ptx_row32(w, &in->ops[2]);
        bool sign = ptx_is_signed(type);
        for (int l = 0; l < 32; l++) {
            bool less = sign ? (int32_t)a[l] < (int32_t)b[l] : a[l] < b[l];
            bits |= (uint32_t)compare_ints(in->cmp, less, a[l] == b[l]) << l;
        }
        return bits;
    }
    for (int l = 0; l < 32; l++)
        if (mask >> l & 1)
            bits |= (uint32_t)compare(in, type, ptx_get(w, in->ops[1].reg, l), ptx_get(w, in->ops[2].reg, l)) << l;
    return bits;
}

static uint32_t combine(const struct ptx_insn *in, uint32_t c, uint32_t p)
{
    return in->sub == PTX_SUB_AND ? c & p : in->sub == PTX_SUB_OR ? c | p : in->sub == PTX_SUB_XOR ? c ^ p : c;
}

/* p gets the comparison combined with the third source, q its complement combined with it. Packed
 * halves go to p and q. */
void ptx_x_setp(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    unsigned t = in->types[0];
    uint32_t third = in->n_ops > 3 ? ptx_pred_bits(w, &in->ops[3]) : 0;
    if (t == PTX_F16X2 || t == PTX_BF16X2) {
        unsigned half = t == PTX_F16X2 ? PTX_F16 : PTX_BF16;
        uint32_t bits[2] = {0, 0};
        for (int l = 0; l < 32; l++)
            for (int h = 0; h < 2; h++)
                bits[h] |= (uint32_t)compare(in, half, ptx_get(w, in->ops[1].reg, l) >> (16 * h) & 0xffff,
                                             ptx_get(w, in->ops[2].reg, l) >> (16 * h) & 0xffff)
                           << l;
        ptx_commit_pred(w, in->ops[0].reg, combine(in, bits[0], third), mask);
        ptx_commit_pred(w, in->ops[0].reg2, combine(in, bits[1], third), mask);
        return;
    }
    uint32_t bits = compare_lanes(w, in, t, mask);
    ptx_commit_pred(w, in->ops[0].reg, combine(in, bits, third), mask);
    ptx_commit_pred(w, in->ops[0].reg2, combine(in, ~bits, third), mask);
}

/* A comparison as a number: all ones, or 1.0. Types: of the result, then of the sources. */
void ptx_x_set(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    unsigned dt = in->types[0], st = in->types[1];
    bool packed = st == PTX_F16X2 || st == PTX_BF16X2;
    unsigned half = st == PTX_F16X2 ? PTX_F16 : PTX_BF16;
    uint32_t third = in->n_ops > 3 ? ptx_pred_bits(w, &in->ops[3]) : 0;
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        uint64_t x = ptx_get(w, in->ops[1].reg, l), y = ptx_get(w, in->ops[2].reg, l), v = 0;
        for (int h = 0; h < (packed ? 2 : 1); h++) {
            uint64_t a = packed ? x >> (16 * h) & 0xffff : x, b = packed ? y >> (16 * h) & 0xffff : y;
            bool c = combine(in, compare(in, packed ? half : st, a, b), third >> l & 1) & 1;
            uint64_t one = dt == PTX_F32 ? 0x3f800000 : dt == PTX_F16 || dt == PTX_F16X2 ? 0x3c00
                           : dt == PTX_BF16 || dt == PTX_BF16X2                          ? 0x3f80
                           : packed ? 0xffff : ptx_zero_extend(UINT64_MAX, ptx_types[dt].bytes);
            v |= (c ? one : 0) << (16 * h);
        }
        ptx_set(w, in->ops[0].reg, l, v);
    }
}

void ptx_x_selp(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    uint32_t p = ptx_pred_bits(w, &in->ops[3]);
    if (ptx_types[in->types[0]].bytes == 8) {
        const uint64_t *a = ptx_row64(w, &in->ops[1]), *b = ptx_row64(w, &in->ops[2]);
        uint64_t v[32];
        for (int l = 0; l < 32; l++) v[l] = p >> l & 1 ? a[l] : b[l];
        ptx_commit64(w, &in->ops[0], v, mask);
    } else {
        const uint32_t *a = ptx_row32(w, &in->ops[1]), *b = ptx_row32(w, &in->ops[2]);
        uint32_t v[32];
        for (int l = 0; l < 32; l++) v[l] = p >> l & 1 ? a[l] : b[l];
        ptx_commit32(w, &in->ops[0], v, mask);
    }
    /* Only what was chosen has to be defined. */
    uint32_t da = w->def[in->ops[1].reg], db = w->def[in->ops[2].reg];
    ptx_mark(w, in->ops[0].reg, mask, w->def[in->ops[3].reg] & ((p & da) | (~p & db)));
}

void ptx_x_slct(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        uint64_t c = ptx_get(w, in->ops[3].reg, l);
        bool first = in->types[1] == PTX_F32 ? ptx_f32((uint32_t)c) >= 0 : (int32_t)c >= 0;
        ptx_set(w, in->ops[0].reg, l, ptx_get(w, in->ops[first ? 1 : 2].reg, l));
    }
}

void ptx_x_testp(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    uint32_t bits = 0;
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        uint64_t raw = ptx_get(w, in->ops[1].reg, l);
        double v = ptx_widen(in->types[0], raw);
        double least = in->types[0] == PTX_F32 ? 0x1p-126 : 0x1p-1022;
        bool normal = isfinite(v) && fabs(v) >= least, b;
        switch (in->sub) {
        case PTX_SUB_FINITE: b = isfinite(v); break;
        case PTX_SUB_INFINITE: b = isinf(v); break;
        case PTX_SUB_NUMBER: b = !isnan(v); break;
        case PTX_SUB_NOTANUMBER: b = isnan(v); break;
        case PTX_SUB_NORMAL: b = normal; break;
        default: b = isfinite(v) && v != 0 && !normal; break;
        }
        bits |= (uint32_t)b << l;
    }
    ptx_commit_pred(w, in->ops[0].reg, bits, mask);
}
