// SPDX-License-Identifier: Apache-2.0
/*
 * Conversions between dtypes. All are exact or rounded once, to nearest even; none becomes a library call. Float
 * subnormals of the small formats are made and read by integer-to-float conversion and by addition of a
 * power of two, never through f32 subnormals, so that results do not depend on MXCSR's flush bits.
 *
 * Float to integer: NaN is 0; else the low bits of the value truncated to 64 bits, where [2^63, 2^64) counts as
 * unsigned and everything beyond is the least i64 (whose low bits are 0).
 */
#include "targets/cpu/emit.h"

#define BIN(op, lhs, rhs) LLVMBuild##op(g->b, (lhs), (rhs), "")

static LLVMValueRef bits_of(struct cg *g, LLVMValueRef x, LLVMTypeRef elem, int n)
{
    return LLVMBuildBitCast(g->b, x, cg_vec(elem, n), "");
}

/* ---- small float formats ---- */

/* Formats of at most 8 bits, and the software form of f16. */
struct small_format {
    int exp_bits, man_bits, bias;
    int64_t max, inf, nan; /* bits without sign; inf -1: none; nan -1: none */
    bool unsigned_zero;    /* FNUZ: nan is the sign bit, zero has no sign */
};

static struct small_format small_format(enum dtype d)
{
    switch (d) {
    case DT_F16: return (struct small_format){5, 10, 15, 0x7bff, 0x7c00, 0x7e00, false};
    case DT_F8E4M3FN: return (struct small_format){4, 3, 7, 0x7e, -1, 0x7f, false};
    case DT_F8E4M3FNUZ: return (struct small_format){4, 3, 8, 0x7f, -1, 0x80, true};
    case DT_F8E5M2: return (struct small_format){5, 2, 15, 0x7b, 0x7c, 0x7e, false};
    case DT_F8E5M2FNUZ: return (struct small_format){5, 2, 16, 0x7f, -1, 0x80, true};
    default: return (struct small_format){2, 1, 1, 0x7, -1, -1, false}; /* F4E2M1 */
    }
}

static double power_of_two(int e)
{
    double v = 1.0;
    for (; e > 0; e--) v *= 2.0;
    for (; e < 0; e++) v *= 0.5;
    return v;
}

/* x: the format's bits, zero-extended to i32. */
static LLVMValueRef decode_small(struct cg *g, struct small_format f, int n, LLVMValueRef x)
{
    int width = f.exp_bits + f.man_bits, up = 23 - f.man_bits;
    LLVMTypeRef fv = cg_vec(g->f32, n);
    LLVMValueRef magnitude = BIN(And, x, cg_int(g->i32, n, ((int64_t)1 << width) - 1));
    LLVMValueRef sign = BIN(Shl, BIN(LShr, x, cg_int(g->i32, n, width)), cg_int(g->i32, n, 31));
    LLVMValueRef normal = BIN(Add, BIN(Shl, magnitude, cg_int(g->i32, n, up)),
                              cg_int(g->i32, n, (int64_t)(127 - f.bias) << 23));
    LLVMValueRef tiny = BIN(FMul, LLVMBuildSIToFP(g->b, magnitude, fv, ""),
                            cg_real(g->f32, n, power_of_two(1 - f.bias - f.man_bits)));
    LLVMValueRef is_tiny = cg_icmp(g, LLVMIntULT, magnitude, cg_int(g->i32, n, (int64_t)1 << f.man_bits));
    LLVMValueRef r = cg_select(g, is_tiny, bits_of(g, tiny, g->i32, n), normal);
    if (f.inf >= 0) { /* all ones in the exponent: infinity, or NaN with its mantissa kept and made quiet */
        LLVMValueRef top = BIN(Or, BIN(Shl, magnitude, cg_int(g->i32, n, up)), cg_int(g->i32, n, 0x7f800000));
        LLVMValueRef quiet = BIN(Or, top, cg_int(g->i32, n, 0x400000));
        top = cg_select(g, cg_icmp(g, LLVMIntUGT, magnitude, cg_int(g->i32, n, f.inf)), quiet, top);
        r = cg_select(g, cg_icmp(g, LLVMIntUGE, magnitude, cg_int(g->i32, n, f.inf)), top, r);
    } else if (f.nan >= 0 && !f.unsigned_zero) {
        r = cg_select(g, cg_icmp(g, LLVMIntEQ, magnitude, cg_int(g->i32, n, f.nan)), cg_int(g->i32, n, 0x7fc00000), r);
    }
    r = BIN(Or, r, sign);
    if (f.unsigned_zero)
        r = cg_select(g, cg_icmp(g, LLVMIntEQ, x, cg_int(g->i32, n, f.nan)), cg_int(g->i32, n, 0x7fc00000), r);
    return bits_of(g, r, g->f32, n);
}

/* f32 to the format's bits in i32. Beyond the range: infinity for f16, else the greatest finite value. */
static LLVMValueRef encode_small(struct cg *g, struct small_format f, bool saturate, int n, LLVMValueRef x)
{
    int down = 23 - f.man_bits, width = f.exp_bits + f.man_bits;
    LLVMValueRef u = bits_of(g, x, g->i32, n);
    LLVMValueRef a = BIN(And, u, cg_int(g->i32, n, 0x7fffffff));
    LLVMValueRef sign = BIN(Shl, BIN(LShr, u, cg_int(g->i32, n, 31)), cg_int(g->i32, n, width));
    LLVMValueRef odd = BIN(And, BIN(LShr, a, cg_int(g->i32, n, down)), cg_int(g->i32, n, 1));
    LLVMValueRef half = cg_int(g->i32, n, ((int64_t)1 << (down - 1)) - 1);
    LLVMValueRef normal = BIN(LShr, BIN(Add, BIN(Add, a, half), odd), cg_int(g->i32, n, down));
    normal = BIN(Sub, normal, cg_int(g->i32, n, (int64_t)(127 - f.bias) << f.man_bits));
    /* Added to this power of two, a value below the least normal one rounds at the format's last place. */
    double magic = power_of_two(1 - f.bias - f.man_bits + 23);
    LLVMValueRef shifted = BIN(FAdd, bits_of(g, a, g->f32, n), cg_real(g->f32, n, magic));
    LLVMValueRef tiny = BIN(Sub, bits_of(g, shifted, g->i32, n), bits_of(g, cg_real(g->f32, n, magic), g->i32, n));
    LLVMValueRef is_tiny = cg_icmp(g, LLVMIntULT, a, cg_int(g->i32, n, (int64_t)(128 - f.bias) << 23));
    LLVMValueRef r = cg_select(g, is_tiny, tiny, normal);
    LLVMValueRef over = cg_icmp(g, LLVMIntUGT, r, cg_int(g->i32, n, f.max));
    over = BIN(And, over, BIN(Xor, is_tiny, cg_int(g->i1, n, 1)));
    r = cg_select(g, over, cg_int(g->i32, n, saturate ? f.max : f.inf), r);
    if (f.unsigned_zero) sign = cg_select(g, cg_icmp(g, LLVMIntEQ, r, cg_int(g->i32, n, 0)), cg_int(g->i32, n, 0), sign);
    r = BIN(Or, r, sign);
    LLVMValueRef is_nan = cg_icmp(g, LLVMIntUGT, a, cg_int(g->i32, n, 0x7f800000));
    return cg_select(g, is_nan, cg_int(g->i32, n, f.nan >= 0 ? f.nan : f.max), r);
}

/* f8e8m0: powers of two. Sign is dropped, ties go to the even exponent, 255 is NaN. */
static LLVMValueRef decode_e8m0(struct cg *g, int n, LLVMValueRef x)
{
    LLVMValueRef r = BIN(Shl, x, cg_int(g->i32, n, 23));
    r = cg_select(g, cg_icmp(g, LLVMIntEQ, x, cg_int(g->i32, n, 0)), cg_int(g->i32, n, 0x400000), r);
    r = cg_select(g, cg_icmp(g, LLVMIntEQ, x, cg_int(g->i32, n, 255)), cg_int(g->i32, n, 0x7fc00000), r);
    return bits_of(g, r, g->f32, n);
}

static LLVMValueRef encode_e8m0(struct cg *g, int n, LLVMValueRef x)
{
    LLVMValueRef a = BIN(And, bits_of(g, x, g->i32, n), cg_int(g->i32, n, 0x7fffffff));
    LLVMValueRef exp = BIN(LShr, a, cg_int(g->i32, n, 23)), zero = cg_int(g->i32, n, 0), one = cg_int(g->i32, n, 1);
    LLVMValueRef sub = cg_icmp(g, LLVMIntEQ, exp, zero); /* from 2^-127 on, one place further left */
    LLVMValueRef man = BIN(And, BIN(Shl, a, cg_select(g, sub, one, zero)), cg_int(g->i32, n, 0x7fffff));
    LLVMValueRef half = cg_int(g->i32, n, 0x400000);
    LLVMValueRef even = cg_icmp(g, LLVMIntEQ, BIN(And, exp, one), zero); /* 127 - bias is odd: an odd exponent */
    LLVMValueRef tie = BIN(And, cg_icmp(g, LLVMIntEQ, man, half), even);
    LLVMValueRef up = BIN(Or, cg_icmp(g, LLVMIntUGT, man, half), tie);
    LLVMValueRef r = BIN(Add, exp, cg_select(g, up, one, zero));
    r = cg_select(g, cg_icmp(g, LLVMIntULT, a, half), zero, r);
    LLVMValueRef top[2] = {r, cg_int(g->i32, n, 254)};
    r = cg_call(g, "llvm.umin", cg_vec(g->i32, n), top, 2);
    return cg_select(g, cg_icmp(g, LLVMIntUGT, a, cg_int(g->i32, n, 0x7f800000)), cg_int(g->i32, n, 255), r);
}

static LLVMValueRef encode_bf16(struct cg *g, int n, LLVMValueRef x)
{
    LLVMValueRef u = bits_of(g, x, g->i32, n);
    LLVMValueRef odd = BIN(And, BIN(LShr, u, cg_int(g->i32, n, 16)), cg_int(g->i32, n, 1));
    LLVMValueRef r = BIN(LShr, BIN(Add, BIN(Add, u, cg_int(g->i32, n, 0x7fff)), odd), cg_int(g->i32, n, 16));
    LLVMValueRef quiet = BIN(Or, BIN(LShr, u, cg_int(g->i32, n, 16)), cg_int(g->i32, n, 0x40));
    return cg_select(g, cg_fcmp(g, LLVMRealUNO, x, x), quiet, r);
}

/* v3 and above convert f16 in one instruction (F16C). */
static bool has_f16c(const struct cg *g) { return g->level->isa >= INFR_ISA_V3; }

LLVMValueRef cg_to_f32(struct cg *g, enum dtype d, int n, LLVMValueRef x)
{
    if (d == DT_F32) return x;
    if (d == DT_F16 && has_f16c(g)) {
        LLVMValueRef half = bits_of(g, x, LLVMHalfTypeInContext(g->c), n);
        return LLVMBuildFPExt(g->b, half, cg_vec(g->f32, n), "");
    }
    LLVMValueRef u = LLVMBuildZExt(g->b, x, cg_vec(g->i32, n), "");
    if (d == DT_BF16) return bits_of(g, BIN(Shl, u, cg_int(g->i32, n, 16)), g->f32, n);
    if (d == DT_F8E8M0) return decode_e8m0(g, n, u);
    return decode_small(g, small_format(d), n, u);
}

LLVMValueRef cg_from_f32(struct cg *g, enum dtype d, int n, LLVMValueRef x)
{
    if (d == DT_F32) return x;
    if (d == DT_F16 && has_f16c(g))
        return bits_of(g, LLVMBuildFPTrunc(g->b, x, cg_vec(LLVMHalfTypeInContext(g->c), n), ""), g->i16, n);
    LLVMValueRef r;
    if (d == DT_BF16) r = encode_bf16(g, n, x);
    else if (d == DT_F8E8M0) r = encode_e8m0(g, n, x);
    else r = encode_small(g, small_format(d), d != DT_F16, n, x);
    return LLVMBuildTrunc(g->b, r, cg_vec(cg_elem_type(g, d), n), "");
}

/*
 * f64 to an f32 that rounds on to a narrower format as f64 itself would: towards zero, and the last bit set when
 * anything was lost ("round to odd"; 24 bits hold two more than any target needs).
 */
static LLVMValueRef round_to_odd(struct cg *g, int n, LLVMValueRef x)
{
    LLVMTypeRef dv = cg_vec(g->f64, n), fv = cg_vec(g->f32, n);
    LLVMValueRef near = LLVMBuildFPTrunc(g->b, x, fv, ""), back = LLVMBuildFPExt(g->b, near, dv, "");
    LLVMValueRef ax = cg_call(g, "llvm.fabs", dv, &x, 1), ab = cg_call(g, "llvm.fabs", dv, &back, 1);
    LLVMValueRef one = cg_int(g->i32, n, 1), zero = cg_int(g->i32, n, 0), u = bits_of(g, near, g->i32, n);
    u = BIN(Sub, u, cg_select(g, cg_fcmp(g, LLVMRealOGT, ab, ax), one, zero));
    u = BIN(Or, u, cg_select(g, cg_fcmp(g, LLVMRealONE, ab, ax), one, zero));
    return bits_of(g, u, g->f32, n);
}

/* ---- floats and integers ---- */

static LLVMValueRef from_f64(struct cg *g, enum dtype to, int n, LLVMValueRef x)
{
    if (to == DT_F64) return x;
    if (to == DT_F32) return LLVMBuildFPTrunc(g->b, x, cg_vec(g->f32, n), "");
    return cg_from_f32(g, to, n, round_to_odd(g, n, x));
}

static LLVMValueRef int_to_float(struct cg *g, enum dtype from, enum dtype to, int n, LLVMValueRef x)
{
    bool is_signed = dtype_is_signed(from);
    /* Up to 16 bits are exact in f32, up to 32 in f64: what is rounded is rounded once. */
    bool wide = to == DT_F64 || (to != DT_F32 && dtype_bits(from) > 16);
    LLVMTypeRef t = cg_vec(wide ? g->f64 : g->f32, n);
    LLVMValueRef r = is_signed ? LLVMBuildSIToFP(g->b, x, t, "") : LLVMBuildUIToFP(g->b, x, t, "");
    return wide ? from_f64(g, to, n, r) : cg_from_f32(g, to, n, r);
}

/* f32 or f64 truncated to i64; operands of fptosi are kept in range, because it is undefined outside. */
static LLVMValueRef trunc_to_i64(struct cg *g, LLVMTypeRef elem, int n, LLVMValueRef x)
{
    LLVMTypeRef iv = cg_vec(g->i64, n), fv = cg_vec(elem, n);
    LLVMValueRef two63 = cg_real(elem, n, 9223372036854775808.0), zero = cg_real(elem, n, 0.0);
    LLVMValueRef a = cg_call(g, "llvm.fabs", fv, &x, 1);
    LLVMValueRef inside = cg_fcmp(g, LLVMRealOLT, a, two63), above = cg_fcmp(g, LLVMRealOGE, x, two63);
    LLVMValueRef rest = cg_select(g, above, LLVMBuildFSub(g->b, x, two63, ""), x);
    LLVMValueRef ok = cg_fcmp(g, LLVMRealOLT, cg_call(g, "llvm.fabs", fv, &rest, 1), two63);
    LLVMValueRef least = cg_int(g->i64, n, INT64_MIN), none = cg_int(g->i64, n, 0);
    LLVMValueRef r = LLVMBuildFPToSI(g->b, cg_select(g, ok, rest, zero), iv, "");
    /* Above 2^63 bit 63 is added; what is out of range altogether converts 0 and gets bit 63 too; NaN stays 0. */
    LLVMValueRef number = cg_fcmp(g, LLVMRealORD, x, x);
    LLVMValueRef top = BIN(And, number, BIN(Xor, inside, cg_int(g->i1, n, 1)));
    return BIN(Xor, r, cg_select(g, top, least, none));
}

/*
 * f32 to at most 32 bits without 64-bit conversions, which no level below v4 has for vectors. Beyond 2^31 the value is
 * mantissa << (exponent - 150), of which the low 32 bits remain.
 */
static LLVMValueRef f32_to_i32(struct cg *g, int n, LLVMValueRef x, bool small_range)
{
    LLVMTypeRef iv = cg_vec(g->i32, n), fv = cg_vec(g->f32, n);
    LLVMValueRef zero = cg_real(g->f32, n, 0.0);
    if (small_range)
        return LLVMBuildFPToSI(g->b, cg_select(g, cg_fcmp(g, LLVMRealORD, x, x), x, zero), iv, "");
    LLVMValueRef a = cg_call(g, "llvm.fabs", fv, &x, 1);
    LLVMValueRef near = cg_fcmp(g, LLVMRealOLT, a, cg_real(g->f32, n, 2147483648.0));
    LLVMValueRef simple = LLVMBuildFPToSI(g->b, cg_select(g, near, x, zero), iv, "");
    LLVMValueRef u = bits_of(g, x, g->i32, n), none = cg_int(g->i32, n, 0);
    LLVMValueRef man = BIN(Or, BIN(And, u, cg_int(g->i32, n, 0x7fffff)), cg_int(g->i32, n, 0x800000));
    LLVMValueRef exp = BIN(And, BIN(LShr, u, cg_int(g->i32, n, 23)), cg_int(g->i32, n, 255));
    LLVMValueRef by = BIN(Sub, exp, cg_int(g->i32, n, 150));
    LLVMValueRef fits = cg_icmp(g, LLVMIntULT, by, cg_int(g->i32, n, 32));
    LLVMValueRef low = cg_select(g, fits, BIN(Shl, man, cg_select(g, fits, by, none)), none);
    LLVMValueRef negative = cg_icmp(g, LLVMIntSLT, u, none);
    low = cg_select(g, negative, LLVMBuildNeg(g->b, low, ""), low);
    return cg_select(g, near, simple, low);
}

static LLVMValueRef float_to_int(struct cg *g, enum dtype from, enum dtype to, int n, LLVMValueRef x, bool small)
{
    LLVMTypeRef tv = cg_vec(cg_elem_type(g, to), n);
    if (cg_is_soft(from)) {
        x = cg_to_f32(g, from, n, x);
        from = DT_F32;
    }
    LLVMValueRef r;
    unsigned have = 64;
    if (from == DT_F32 && dtype_bits(to) <= 32) {
        r = f32_to_i32(g, n, x, small);
        have = 32;
    } else {
        r = trunc_to_i64(g, from == DT_F32 ? g->f32 : g->f64, n, x);
    }
    if (dtype_bytes(to) * 8 < have) r = LLVMBuildTrunc(g->b, r, tv, "");
    return cg_wrap(g, to, n, r);
}

static LLVMValueRef int_to_int(struct cg *g, enum dtype from, enum dtype to, int n, LLVMValueRef x)
{
    LLVMTypeRef tv = cg_vec(cg_elem_type(g, to), n);
    size_t a = dtype_bytes(from), b = dtype_bytes(to);
    if (b < a) x = LLVMBuildTrunc(g->b, x, tv, "");
    else if (b > a) x = dtype_is_signed(from) ? LLVMBuildSExt(g->b, x, tv, "") : LLVMBuildZExt(g->b, x, tv, "");
    return cg_wrap(g, to, n, x);
}

static LLVMValueRef to_bool(struct cg *g, enum dtype from, int n, LLVMValueRef x)
{
    if (cg_is_soft(from)) {
        x = cg_to_f32(g, from, n, x);
        from = DT_F32;
    }
    LLVMTypeRef e = cg_elem_type(g, from);
    if (dtype_is_float(from)) return cg_fcmp(g, LLVMRealUNE, x, cg_real(e, n, 0.0));
    return cg_icmp(g, LLVMIntNE, x, cg_int(e, n, 0));
}

static LLVMValueRef from_bool(struct cg *g, enum dtype to, int n, LLVMValueRef x)
{
    LLVMTypeRef e = cg_elem_type(g, to);
    if (!dtype_is_float(to)) return cg_wrap(g, to, n, LLVMBuildZExt(g->b, x, cg_vec(e, n), ""));
    LLVMTypeRef wide = to == DT_F64 ? g->f64 : g->f32;
    LLVMValueRef one = cg_real(wide, n, 1.0), zero = cg_real(wide, n, 0.0);
    if (cg_is_soft(to)) {
        one = cg_from_f32(g, to, n, one);
        zero = cg_from_f32(g, to, n, zero);
    }
    return cg_select(g, x, one, zero);
}

LLVMValueRef cg_cast(struct cg *g, enum dtype from, enum dtype to, int n, LLVMValueRef x, bool small_range)
{
    if (from == to) return x;
    if (to == DT_BOOL) return to_bool(g, from, n, x);
    if (from == DT_BOOL) return from_bool(g, to, n, x);
    bool ff = dtype_is_float(from), ft = dtype_is_float(to);
    if (!ff && !ft) return int_to_int(g, from, to, n, x);
    if (!ff) return int_to_float(g, from, to, n, x);
    if (!ft) return float_to_int(g, from, to, n, x, small_range);
    if (from == DT_F64) return from_f64(g, to, n, x);
    LLVMValueRef f = cg_to_f32(g, from, n, x);
    return to == DT_F64 ? LLVMBuildFPExt(g->b, f, cg_vec(g->f64, n), "") : cg_from_f32(g, to, n, f);
}
