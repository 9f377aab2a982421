// SPDX-License-Identifier: Apache-2.0
/*
 * Division. Integers: x/0 and x rem 0 are 0 and the least value / -1 wraps, so the divisor is replaced where the
 * hardware would trap. Vectors of up to 32 bits divide in floats (exact: see quotient_in_floats), because x86 has no
 * integer vector division. Float remainders are exact and are computed here, because LLVM would call fmod.
 */
#include <math.h>

#include "targets/cpu/emit.h"

LLVMValueRef cg_wrap(struct cg *g, enum dtype d, int n, LLVMValueRef x)
{
    unsigned bits = dtype_bits(d);
    if (bits >= 8) return x;
    if (!dtype_is_signed(d)) return LLVMBuildAnd(g->b, x, cg_int(g->i8, n, (1 << bits) - 1), "");
    LLVMValueRef by = cg_int(g->i8, n, 8 - (int)bits);
    return LLVMBuildAShr(g->b, LLVMBuildShl(g->b, x, by, ""), by, "");
}

/* ---- integers ---- */

/* The constant all lanes share, when there is one. */
static bool const_divisor(LLVMValueRef v, int n, int64_t *out)
{
    if (n > 1) {
        if (!LLVMIsConstant(v) || !(LLVMIsAConstantDataVector(v) || LLVMIsAConstantVector(v))) return false;
        LLVMValueRef first = LLVMGetAggregateElement(v, 0);
        for (int i = 1; i < n; i++)
            if (LLVMGetAggregateElement(v, (unsigned)i) != first) return false;
        v = first;
    }
    if (!v || !LLVMIsAConstantInt(v)) return false;
    *out = LLVMConstIntGetSExtValue(v);
    return true;
}

/*
 * Truncated quotient by float division: for operands of up to 16 bits in f32, up to 32 in f64. Exact, because two
 * different quotients of w-bit numbers that matter (k and the next below) differ by at least 2^-w relative, far
 * above the format's rounding error, so rounding never reaches the next integer.
 */
static LLVMValueRef quotient_in_floats(struct cg *g, enum dtype d, int n, LLVMValueRef a, LLVMValueRef b)
{
    bool is_signed = dtype_is_signed(d);
    LLVMTypeRef e = cg_elem_type(g, d);
    unsigned bits = LLVMGetIntTypeWidth(e);
    LLVMTypeRef i32v = cg_vec(g->i32, n), fv = cg_vec(bits <= 16 ? g->f32 : g->f64, n);
    if (bits < 32) {
        a = is_signed ? LLVMBuildSExt(g->b, a, i32v, "") : LLVMBuildZExt(g->b, a, i32v, "");
        b = is_signed ? LLVMBuildSExt(g->b, b, i32v, "") : LLVMBuildZExt(g->b, b, i32v, "");
    }
    LLVMValueRef q = LLVMBuildFDiv(g->b, LLVMBuildSIToFP(g->b, a, fv, ""), LLVMBuildSIToFP(g->b, b, fv, ""), "");
    q = LLVMBuildFPToSI(g->b, q, i32v, "");
    return bits < 32 ? LLVMBuildTrunc(g->b, q, cg_vec(e, n), "") : q;
}

static LLVMValueRef quotient(struct cg *g, enum dtype d, int n, LLVMValueRef a, LLVMValueRef b, bool constant)
{
    bool narrow = dtype_bits(d) < 32 || d == DT_I32;
    if (n > 1 && narrow && !constant) return quotient_in_floats(g, d, n, a, b);
    return dtype_is_signed(d) ? LLVMBuildSDiv(g->b, a, b, "") : LLVMBuildUDiv(g->b, a, b, "");
}

/* Floored quotient by a positive constant c without a branch: x < 0 goes through ~x, which is -1 - x. */
static LLVMValueRef floor_by_const(struct cg *g, enum dtype d, int n, LLVMValueRef a, int64_t c)
{
    LLVMTypeRef e = cg_elem_type(g, d);
    int bits = (int)LLVMGetIntTypeWidth(e);
    if ((c & (c - 1)) == 0) {
        int shift = 0;
        while (((int64_t)1 << shift) < c) shift++;
        return LLVMBuildAShr(g->b, a, cg_int(e, n, shift), "");
    }
    LLVMValueRef s = LLVMBuildAShr(g->b, a, cg_int(e, n, bits - 1), "");
    LLVMValueRef q = LLVMBuildUDiv(g->b, LLVMBuildXor(g->b, a, s, ""), cg_int(e, n, c), "");
    return LLVMBuildXor(g->b, q, s, "");
}

/* Remainder (of truncation) and quotient to floored ones: both change where signs differ and r is not 0. */
static LLVMValueRef floored(struct cg *g, enum lp_opcode op, LLVMTypeRef e, int n, LLVMValueRef q, LLVMValueRef r,
                            LLVMValueRef b)
{
    LLVMValueRef zero = cg_int(e, n, 0);
    LLVMValueRef differ = cg_icmp(g, LLVMIntSLT, LLVMBuildXor(g->b, r, b, ""), zero);
    LLVMValueRef adjust = LLVMBuildAnd(g->b, differ, cg_icmp(g, LLVMIntNE, r, zero), "");
    if (op == LP_OP_MOD) return LLVMBuildAdd(g->b, r, cg_select(g, adjust, b, zero), "");
    return LLVMBuildAdd(g->b, q, cg_select(g, adjust, cg_int(e, n, -1), zero), "");
}

LLVMValueRef cg_int_div(struct cg *g, enum lp_opcode op, enum dtype d, int n, LLVMValueRef a, LLVMValueRef b)
{
    LLVMTypeRef e = cg_elem_type(g, d);
    bool is_signed = dtype_is_signed(d);
    LLVMValueRef zero = cg_int(e, n, 0), one = cg_int(e, n, 1), is_zero = NULL, safe = b;
    int64_t c = 0;
    bool constant = const_divisor(b, n, &c) && c != 0 && !(is_signed && c == -1);
    if (!is_signed && op == LP_OP_MOD) op = LP_OP_REM;
    if (!is_signed && op == LP_OP_FLOORDIV) op = LP_OP_DIV;
    if (constant && is_signed && c > 0 && (op == LP_OP_MOD || op == LP_OP_FLOORDIV)) {
        LLVMValueRef q = floor_by_const(g, d, n, a, c);
        return op == LP_OP_FLOORDIV ? q : LLVMBuildSub(g->b, a, LLVMBuildMul(g->b, q, b, ""), "");
    }
    if (!constant) {
        is_zero = cg_icmp(g, LLVMIntEQ, b, zero);
        LLVMValueRef bad = is_zero;
        if (is_signed) {
            int64_t least = -((int64_t)1 << (LLVMGetIntTypeWidth(e) - 2)) * 2;
            LLVMValueRef wraps = LLVMBuildAnd(g->b, cg_icmp(g, LLVMIntEQ, a, cg_int(e, n, least)),
                                              cg_icmp(g, LLVMIntEQ, b, cg_int(e, n, -1)), "");
            bad = LLVMBuildOr(g->b, bad, wraps, "");
        }
        safe = cg_select(g, bad, one, b);
    }
    LLVMValueRef q = quotient(g, d, n, a, safe, constant), r = q;
    if (op != LP_OP_DIV) {
        LLVMValueRef rem = LLVMBuildSub(g->b, a, LLVMBuildMul(g->b, q, safe, ""), "");
        r = op == LP_OP_REM ? rem : floored(g, op, e, n, q, rem, safe);
    }
    r = cg_wrap(g, d, n, r);
    return is_zero ? cg_select(g, is_zero, zero, r) : r;
}

/* ---- float remainders ---- */

/*
 * f32 in f64: while some |x| >= |y|, x -= trunc(x / m) * m with m = y * 2^k chosen so that x / m < 2^29. The product
 * has 29 + 24 bits and the difference is a multiple of y's last bit: both are exact. The quotient may have been
 * rounded up to the next integer; then the difference is negative and m is added back. At most ten rounds.
 */
static LLVMValueRef fmod_in_f64(struct cg *g, int n, LLVMValueRef a, LLVMValueRef b)
{
    LLVMTypeRef dv = cg_vec(g->f64, n), iv = cg_vec(g->i64, n);
    LLVMValueRef x0 = cg_call(g, "llvm.fabs", dv, &a, 1), y = cg_call(g, "llvm.fabs", dv, &b, 1);
    LLVMValueRef inf = cg_real(g->f64, n, (double)INFINITY), zero = cg_real(g->f64, n, 0.0);
    /* Lanes without a remainder to compute stand still: x infinite or NaN, y 0, infinite or NaN. */
    LLVMValueRef ok = LLVMBuildAnd(g->b, cg_fcmp(g, LLVMRealOLT, x0, inf), cg_fcmp(g, LLVMRealOGT, y, zero), "");
    LLVMValueRef x1 = cg_select(g, ok, x0, zero);
    LLVMBasicBlockRef before = LLVMGetInsertBlock(g->b), head = cg_block(g), body = cg_block(g), done = cg_block(g);
    LLVMBuildBr(g->b, head);
    LLVMPositionBuilderAtEnd(g->b, head);
    LLVMValueRef x = LLVMBuildPhi(g->b, dv, "");
    LLVMAddIncoming(x, &x1, &before, 1);
    LLVMValueRef active = cg_fcmp(g, LLVMRealOGE, x, y), any = active;
    if (n > 1) any = cg_call(g, "llvm.vector.reduce.or", cg_vec(g->i1, n), &active, 1);
    LLVMBuildCondBr(g->b, any, body, done);
    LLVMPositionBuilderAtEnd(g->b, body);
    LLVMValueRef mask = cg_int(g->i64, n, (int64_t)0x7ff << 52);
    LLVMValueRef ex = LLVMBuildAnd(g->b, LLVMBuildBitCast(g->b, x, iv, ""), mask, "");
    LLVMValueRef ey = LLVMBuildAnd(g->b, LLVMBuildBitCast(g->b, y, iv, ""), mask, "");
    LLVMValueRef gap = LLVMBuildSub(g->b, LLVMBuildSub(g->b, ex, ey, ""), cg_int(g->i64, n, (int64_t)28 << 52), "");
    LLVMValueRef far = cg_icmp(g, LLVMIntSGT, gap, cg_int(g->i64, n, 0));
    LLVMValueRef up = cg_select(g, far, gap, cg_int(g->i64, n, 0));
    LLVMValueRef m = LLVMBuildBitCast(g->b, LLVMBuildAdd(g->b, LLVMBuildBitCast(g->b, y, iv, ""), up, ""), dv, "");
    LLVMValueRef ratio = LLVMBuildFDiv(g->b, x, m, "");
    LLVMValueRef whole = cg_call(g, "llvm.trunc", dv, &ratio, 1);
    LLVMValueRef rest = LLVMBuildFSub(g->b, x, LLVMBuildFMul(g->b, whole, m, ""), "");
    rest = cg_select(g, cg_fcmp(g, LLVMRealOLT, rest, zero), LLVMBuildFAdd(g->b, rest, m, ""), rest);
    rest = cg_select(g, active, rest, x);
    LLVMBasicBlockRef latch = LLVMGetInsertBlock(g->b);
    LLVMBuildBr(g->b, head);
    LLVMAddIncoming(x, &rest, &latch, 1);
    LLVMPositionBuilderAtEnd(g->b, done);
    LLVMValueRef sign[2] = {x, a};
    LLVMValueRef r = cg_call(g, "llvm.copysign", dv, sign, 2);
    return cg_select(g, ok, r, cg_real(g->f64, n, (double)NAN));
}

/*
 * One f64 by integer arithmetic: x and y as mantissa * 2^exponent, then mantissas are divided with eleven more bits
 * of x at a time. A function of the module, because it is long and rare.
 *
 *   fmod(ax, ay) of positive finite bits, ay not 0:
 *     ex, mx; ey, my;  if ex < ey: return x;  mx %= my;
 *     for (n = ex - ey; n > 0; n -= s) { s = min(n, 11); mx = (mx << s) % my; }
 *     return mx * 2^ey
 */
static LLVMValueRef normal_mantissa(struct cg *g, LLVMValueRef bits, LLVMValueRef *exponent)
{
    LLVMValueRef man = LLVMBuildAnd(g->b, bits, cg_i64(g, ((int64_t)1 << 52) - 1), "");
    LLVMValueRef exp = LLVMBuildLShr(g->b, bits, cg_i64(g, 52), "");
    LLVMValueRef tiny = cg_icmp(g, LLVMIntEQ, exp, cg_i64(g, 0));
    *exponent = cg_select(g, tiny, cg_i64(g, 1), exp);
    return cg_select(g, tiny, man, LLVMBuildOr(g->b, man, cg_i64(g, (int64_t)1 << 52), ""));
}

/* man (below 2^53) times 2^(exp - 1075) as bits: shifted up to bit 52, or as far as the exponent allows. */
static LLVMValueRef pack_f64(struct cg *g, LLVMValueRef man, LLVMValueRef exp)
{
    LLVMValueRef ctlz[2] = {man, LLVMConstInt(g->i1, 0, 0)};
    LLVMValueRef lead = LLVMBuildSub(g->b, cg_call(g, "llvm.ctlz", g->i64, ctlz, 2), cg_i64(g, 11), "");
    LLVMValueRef room = LLVMBuildSub(g->b, exp, cg_i64(g, 1), "");
    LLVMValueRef pair[2] = {lead, room};
    LLVMValueRef up = cg_call(g, "llvm.umin", g->i64, pair, 2), limit[2] = {up, cg_i64(g, 63)};
    up = cg_call(g, "llvm.umin", g->i64, limit, 2);
    LLVMValueRef shifted = LLVMBuildShl(g->b, man, up, "");
    /* Bit 52, when set, adds one to the exponent field. */
    LLVMValueRef field = LLVMBuildShl(g->b, LLVMBuildSub(g->b, room, up, ""), cg_i64(g, 52), "");
    LLVMValueRef zero = cg_icmp(g, LLVMIntEQ, man, cg_i64(g, 0));
    return cg_select(g, zero, cg_i64(g, 0), LLVMBuildAdd(g->b, shifted, field, ""));
}

static void fmod64_body(struct cg *g, LLVMValueRef x, LLVMValueRef y)
{
    LLVMBasicBlockRef big = cg_block(g), small = cg_block(g), head = cg_block(g), step = cg_block(g), done = cg_block(g);
    LLVMBuildCondBr(g->b, cg_icmp(g, LLVMIntULT, x, y), small, big);
    LLVMPositionBuilderAtEnd(g->b, small);
    LLVMBuildRet(g->b, x);
    LLVMPositionBuilderAtEnd(g->b, big);
    LLVMValueRef ex, ey, mx = normal_mantissa(g, x, &ex), my = normal_mantissa(g, y, &ey);
    LLVMValueRef n0 = LLVMBuildSub(g->b, ex, ey, ""), m0 = LLVMBuildURem(g->b, mx, my, "");
    LLVMBuildBr(g->b, head);
    LLVMPositionBuilderAtEnd(g->b, head);
    LLVMValueRef n = LLVMBuildPhi(g->b, g->i64, ""), m = LLVMBuildPhi(g->b, g->i64, "");
    LLVMAddIncoming(n, &n0, &big, 1);
    LLVMAddIncoming(m, &m0, &big, 1);
    LLVMBuildCondBr(g->b, cg_icmp(g, LLVMIntSGT, n, cg_i64(g, 0)), step, done);
    LLVMPositionBuilderAtEnd(g->b, step);
    LLVMValueRef pair[2] = {n, cg_i64(g, 11)}, s = cg_call(g, "llvm.umin", g->i64, pair, 2);
    LLVMValueRef n1 = LLVMBuildSub(g->b, n, s, ""), m1 = LLVMBuildURem(g->b, LLVMBuildShl(g->b, m, s, ""), my, "");
    LLVMBuildBr(g->b, head);
    LLVMAddIncoming(n, &n1, &step, 1);
    LLVMAddIncoming(m, &m1, &step, 1);
    LLVMPositionBuilderAtEnd(g->b, done);
    LLVMBuildRet(g->b, pack_f64(g, m, ey));
}

static LLVMValueRef fmod64_helper(struct cg *g)
{
    if (g->fmod64) return g->fmod64;
    LLVMTypeRef params[2] = {g->i64, g->i64};
    LLVMValueRef fn = LLVMAddFunction(g->m, "infc.fmod64", LLVMFunctionType(g->i64, params, 2, 0)), outer = g->fn;
    LLVMSetLinkage(fn, LLVMInternalLinkage);
    unsigned kind = LLVMGetEnumAttributeKindForName("nounwind", 8);
    LLVMAddAttributeAtIndex(fn, (unsigned)LLVMAttributeFunctionIndex, LLVMCreateEnumAttribute(g->c, kind, 0));
    LLVMBasicBlockRef saved = LLVMGetInsertBlock(g->b);
    g->fn = fn;
    LLVMPositionBuilderAtEnd(g->b, cg_block(g));
    fmod64_body(g, LLVMGetParam(fn, 0), LLVMGetParam(fn, 1));
    g->fn = outer;
    LLVMPositionBuilderAtEnd(g->b, saved);
    return g->fmod64 = fn;
}

static LLVMValueRef fmod_scalar64(struct cg *g, LLVMValueRef a, LLVMValueRef b)
{
    LLVMValueRef fn = fmod64_helper(g), magnitude = cg_i64(g, INT64_MAX), inf = cg_i64(g, (int64_t)0x7ff << 52);
    LLVMValueRef bits = LLVMBuildBitCast(g->b, a, g->i64, "");
    LLVMValueRef x = LLVMBuildAnd(g->b, bits, magnitude, "");
    LLVMValueRef y = LLVMBuildAnd(g->b, LLVMBuildBitCast(g->b, b, g->i64, ""), magnitude, "");
    LLVMValueRef ok = LLVMBuildAnd(g->b, cg_icmp(g, LLVMIntULT, x, inf), cg_icmp(g, LLVMIntNE, y, cg_i64(g, 0)), "");
    ok = LLVMBuildAnd(g->b, ok, cg_icmp(g, LLVMIntULE, y, inf), "");
    /* Lanes that are not ok compute 0 mod 1; y infinite is greater than any finite x and returns it. */
    LLVMValueRef args[2] = {cg_select(g, ok, x, cg_i64(g, 0)), cg_select(g, ok, y, cg_i64(g, (int64_t)0x3ff << 52))};
    LLVMValueRef r = LLVMBuildCall2(g->b, LLVMGlobalGetValueType(fn), fn, args, 2, "");
    r = LLVMBuildOr(g->b, r, LLVMBuildXor(g->b, bits, x, ""), "");
    return cg_select(g, ok, LLVMBuildBitCast(g->b, r, g->f64, ""), cg_real(g->f64, 1, (double)NAN));
}

static LLVMValueRef fmod_row(struct cg *g, enum dtype d, int n, LLVMValueRef a, LLVMValueRef b)
{
    if (d == DT_F32) {
        LLVMTypeRef dv = cg_vec(g->f64, n);
        LLVMValueRef r = fmod_in_f64(g, n, LLVMBuildFPExt(g->b, a, dv, ""), LLVMBuildFPExt(g->b, b, dv, ""));
        /* The fence keeps LLVM from rounding f64 to f16 in one step, which is a library call. */
        r = LLVMBuildFPTrunc(g->b, r, cg_vec(g->f32, n), "");
        return cg_call(g, "llvm.arithmetic.fence", cg_vec(g->f32, n), &r, 1);
    }
    if (n == 1) return fmod_scalar64(g, a, b);
    LLVMValueRef r = LLVMGetPoison(cg_vec(g->f64, n));
    for (int i = 0; i < n; i++) {
        LLVMValueRef x = LLVMBuildExtractElement(g->b, a, cg_i64(g, i), "");
        LLVMValueRef y = LLVMBuildExtractElement(g->b, b, cg_i64(g, i), "");
        r = LLVMBuildInsertElement(g->b, r, fmod_scalar64(g, x, y), cg_i64(g, i), "");
    }
    return r;
}

LLVMValueRef cg_float_rem(struct cg *g, enum lp_opcode op, enum dtype d, int n, LLVMValueRef a, LLVMValueRef b)
{
    LLVMValueRef r = fmod_row(g, d, n, a, b);
    if (op == LP_OP_REM) return r;
    LLVMTypeRef e = cg_elem_type(g, d), v = cg_vec(e, n);
    LLVMValueRef zero = cg_real(e, n, 0.0);
    LLVMValueRef r_neg = cg_fcmp(g, LLVMRealOLT, r, zero), b_neg = cg_fcmp(g, LLVMRealOLT, b, zero);
    LLVMValueRef moved = cg_select(g, LLVMBuildXor(g->b, r_neg, b_neg, ""), LLVMBuildFAdd(g->b, r, b, ""), r);
    LLVMValueRef sign[2] = {zero, b};
    return cg_select(g, cg_fcmp(g, LLVMRealOEQ, r, zero), cg_call(g, "llvm.copysign", v, sign, 2), moved);
}
