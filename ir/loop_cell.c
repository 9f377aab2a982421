// SPDX-License-Identifier: Apache-2.0
#include "ir/loop_cell.h"

#include <math.h>
#include <string.h>

#include "ir/loop_rewrite.h"
#include "ir/math_ref.h"
#include "ir/smallfloat.h"

/* ---- representation ---- */

/* The f8 and f4 types take the greatest finite value beyond their range, as casts do by default; f16 and bf16 infinity. */
static uint64_t narrow_bits(enum dtype d, double v)
{
    uint16_t bits = 0;
    float_encode(d, v, dtype_bits(d) <= 8, &bits);
    return bits;
}

static double widen_bits(enum dtype d, uint64_t v)
{
    uint16_t bits = (uint16_t)v;
    return float_decode(d, &bits);
}

double lp_cell_round(enum dtype d, double v)
{
    if (d == DT_F64) return v;
    if (d == DT_F32) return (double)(float)v;
    return widen_bits(d, narrow_bits(d, v));
}

uint64_t lp_cell_bits(enum dtype d, union lp_cell c)
{
    if (d == DT_F64) {
        uint64_t bits;
        memcpy(&bits, &c.f, sizeof bits);
        return bits;
    }
    if (d == DT_F32) {
        float v = (float)c.f;
        uint32_t bits;
        memcpy(&bits, &v, sizeof bits);
        return bits;
    }
    if (dtype_is_float(d)) return narrow_bits(d, c.f);
    unsigned bits = (unsigned)dtype_bytes(d) * 8;
    return bits == 64 ? (uint64_t)c.i : (uint64_t)c.i & (((uint64_t)1 << bits) - 1);
}

union lp_cell lp_cell_from_bits(enum dtype d, uint64_t bits)
{
    union lp_cell c;
    if (d == DT_F64) {
        memcpy(&c.f, &bits, sizeof c.f);
    } else if (d == DT_F32) {
        uint32_t low = (uint32_t)bits;
        float v;
        memcpy(&v, &low, sizeof v);
        c.f = (double)v;
    } else if (dtype_is_float(d)) {
        c.f = widen_bits(d, bits);
    } else {
        c.i = lp_wrap_int(d, (int64_t)bits);
    }
    return c;
}

static union lp_cell of_int(enum dtype d, uint64_t v)
{
    return (union lp_cell){.i = lp_wrap_int(d, (int64_t)v)};
}

static union lp_cell of_float(enum dtype d, double v) { return (union lp_cell){.f = lp_cell_round(d, v)}; }

/* ---- conversion ---- */

static int64_t truncate(double v)
{
    if (v != v) return 0;
    if (v >= 0x1p63) return v < 0x1p64 ? (int64_t)(uint64_t)v : INT64_MIN;
    return v >= -0x1p63 ? (int64_t)v : INT64_MIN;
}

union lp_cell lp_cell_cast(enum dtype from, enum dtype to, union lp_cell c)
{
    if (to == DT_BOOL) return (union lp_cell){.i = dtype_is_float(from) ? c.f != 0 : c.i != 0};
    if (dtype_is_float(to)) {
        if (dtype_is_float(from)) return of_float(to, c.f);
        /* f32 rounds once, from the integer. */
        if (to == DT_F32)
            return (union lp_cell){.f = from == DT_U64 ? (double)(float)(uint64_t)c.i : (double)(float)c.i};
        return of_float(to, from == DT_U64 ? (double)(uint64_t)c.i : (double)c.i);
    }
    return of_int(to, (uint64_t)(dtype_is_float(from) ? truncate(c.f) : c.i));
}

/* ---- one operand ---- */

static double math_unary(enum lp_opcode code, double x)
{
    switch (code) {
    case LP_OP_FLOOR: return floor(x);
    case LP_OP_CEIL: return ceil(x);
    case LP_OP_ROUND: return nearbyint(x);
    case LP_OP_SQRT: return sqrt(x);
    case LP_OP_EXP: return ref_exp(x);
    case LP_OP_LOG: return ref_log(x);
    case LP_OP_SIN: return ref_sin(x);
    case LP_OP_COS: return ref_cos(x);
    case LP_OP_TAN: return ref_tan(x);
    case LP_OP_ASIN: return ref_asin(x);
    case LP_OP_ACOS: return ref_acos(x);
    case LP_OP_ATAN: return ref_atan(x);
    case LP_OP_SINH: return ref_sinh(x);
    case LP_OP_COSH: return ref_cosh(x);
    case LP_OP_TANH: return ref_tanh(x);
    case LP_OP_ASINH: return ref_asinh(x);
    case LP_OP_ACOSH: return ref_acosh(x);
    case LP_OP_ATANH: return ref_atanh(x);
    case LP_OP_ERF: return ref_erf(x);
    case LP_OP_SIGMOID: return ref_sigmoid(x);
    default: INFC_UNREACHABLE("not a pointwise op of one operand");
    }
}

union lp_cell lp_cell_unary(enum lp_opcode code, enum dtype d, union lp_cell x)
{
    if (dtype_is_float(d)) {
        if (code == LP_OP_NEG) return (union lp_cell){.f = -x.f};
        if (code == LP_OP_ABS) return (union lp_cell){.f = fabs(x.f)};
        return of_float(d, math_unary(code, x.f));
    }
    switch (code) {
    case LP_OP_NEG: return of_int(d, 0 - (uint64_t)x.i);
    case LP_OP_ABS: return dtype_is_signed(d) && x.i < 0 ? of_int(d, 0 - (uint64_t)x.i) : x;
    case LP_OP_NOT: return d == DT_BOOL ? (union lp_cell){.i = !x.i} : of_int(d, ~(uint64_t)x.i);
    default: INFC_UNREACHABLE("not an integer op of one operand");
    }
}

/* ---- two operands ---- */

static double float_mod(double x, double y)
{
    double r = fmod(x, y);
    if (r == 0) return copysign(0, y);
    return (r < 0) != (y < 0) ? r + y : r;
}

static union lp_cell float_binary(enum lp_opcode code, enum dtype d, double x, double y)
{
    bool nan = x != x || y != y;
    switch (code) {
    /* f64 carries more than twice the digits of a narrower type, so rounding twice rounds once. */
    case LP_OP_ADD: return of_float(d, x + y);
    case LP_OP_SUB: return of_float(d, x - y);
    case LP_OP_MUL: return of_float(d, x * y);
    case LP_OP_DIV: return of_float(d, x / y);
    case LP_OP_REM: return of_float(d, fmod(x, y));
    case LP_OP_MOD: return of_float(d, float_mod(x, y));
    case LP_OP_POW: return of_float(d, ref_pow(x, y));
    case LP_OP_MIN: return (union lp_cell){.f = nan ? (double)NAN : x < y || (x == y && signbit(x)) ? x : y};
    case LP_OP_MAX: return (union lp_cell){.f = nan ? (double)NAN : x > y || (x == y && !signbit(x)) ? x : y};
    case LP_OP_EQ: return (union lp_cell){.i = x == y};
    case LP_OP_NE: return (union lp_cell){.i = x != y};
    case LP_OP_LT: return (union lp_cell){.i = x < y};
    case LP_OP_LE: return (union lp_cell){.i = x <= y};
    case LP_OP_GT: return (union lp_cell){.i = x > y};
    case LP_OP_GE: return (union lp_cell){.i = x >= y};
    default: INFC_UNREACHABLE("not a float op of two operands");
    }
}

static bool less(bool is_signed, int64_t x, int64_t y)
{
    return is_signed ? x < y : (uint64_t)x < (uint64_t)y;
}

enum division { DIV_QUOT, DIV_REM, DIV_FLOOR, DIV_MOD };

/* All divisions by 0 give 0. */
static int64_t divide(enum division how, bool is_signed, int64_t x, int64_t y)
{
    if (y == 0) return 0;
    if (!is_signed) {
        uint64_t a = (uint64_t)x, b = (uint64_t)y;
        return (int64_t)(how == DIV_QUOT || how == DIV_FLOOR ? a / b : a % b);
    }
    /* The least value by -1 wraps. */
    int64_t q = y == -1 ? (int64_t)(0 - (uint64_t)x) : x / y, r = y == -1 ? 0 : x % y;
    bool below = r != 0 && (r < 0) != (y < 0);
    switch (how) {
    case DIV_QUOT: return q;
    case DIV_REM: return r;
    case DIV_FLOOR: return below ? q - 1 : q;
    default: return below ? r + y : r;
    }
}

static int64_t int_pow(bool is_signed, int64_t x, int64_t e)
{
    if (is_signed && e < 0) return x == 1 ? 1 : x == -1 ? (e & 1 ? -1 : 1) : 0;
    uint64_t r = 1, base = (uint64_t)x;
    for (uint64_t n = (uint64_t)e; n; n >>= 1, base *= base)
        if (n & 1) r *= base;
    return (int64_t)r;
}

static int64_t shift(enum lp_opcode code, enum dtype d, int64_t x, int64_t n)
{
    unsigned bits = dtype_bits(d);
    bool beyond = (uint64_t)n >= bits;
    if (code == LP_OP_SHL) return beyond ? 0 : (int64_t)((uint64_t)x << n);
    if (!dtype_is_signed(d)) return beyond ? 0 : (int64_t)((uint64_t)x >> n);
    return beyond ? (x < 0 ? -1 : 0) : x >> n;
}

static union lp_cell int_binary(enum lp_opcode code, enum dtype d, int64_t x, int64_t y)
{
    bool sgn = dtype_is_signed(d);
    uint64_t a = (uint64_t)x, b = (uint64_t)y;
    switch (code) {
    case LP_OP_ADD: return of_int(d, a + b);
    case LP_OP_SUB: return of_int(d, a - b);
    case LP_OP_MUL: return of_int(d, a * b);
    case LP_OP_DIV: return of_int(d, (uint64_t)divide(DIV_QUOT, sgn, x, y));
    case LP_OP_REM: return of_int(d, (uint64_t)divide(DIV_REM, sgn, x, y));
    case LP_OP_MOD: return of_int(d, (uint64_t)divide(DIV_MOD, sgn, x, y));
    case LP_OP_FLOORDIV: return of_int(d, (uint64_t)divide(DIV_FLOOR, sgn, x, y));
    case LP_OP_POW: return of_int(d, (uint64_t)int_pow(sgn, x, y));
    case LP_OP_MIN: return (union lp_cell){.i = less(sgn, x, y) ? x : y};
    case LP_OP_MAX: return (union lp_cell){.i = less(sgn, x, y) ? y : x};
    case LP_OP_AND: return of_int(d, a & b);
    case LP_OP_OR: return of_int(d, a | b);
    case LP_OP_XOR: return of_int(d, a ^ b);
    case LP_OP_SHL:
    case LP_OP_SHR: return of_int(d, (uint64_t)shift(code, d, x, y));
    case LP_OP_EQ: return (union lp_cell){.i = x == y};
    case LP_OP_NE: return (union lp_cell){.i = x != y};
    case LP_OP_LT: return (union lp_cell){.i = less(sgn, x, y)};
    case LP_OP_LE: return (union lp_cell){.i = !less(sgn, y, x)};
    case LP_OP_GT: return (union lp_cell){.i = less(sgn, y, x)};
    case LP_OP_GE: return (union lp_cell){.i = !less(sgn, x, y)};
    default: INFC_UNREACHABLE("not an integer op of two operands");
    }
}

union lp_cell lp_cell_binary(enum lp_opcode code, enum dtype d, union lp_cell x, union lp_cell y)
{
    return dtype_is_float(d) ? float_binary(code, d, x.f, y.f) : int_binary(code, d, x.i, y.i);
}

union lp_cell lp_cell_fma(enum dtype d, union lp_cell x, union lp_cell y, union lp_cell z)
{
    if (d == DT_F32) return (union lp_cell){.f = (double)fmaf((float)x.f, (float)y.f, (float)z.f)};
    if (dtype_is_float(d)) return of_float(d, fma(x.f, y.f, z.f));
    return of_int(d, (uint64_t)x.i * (uint64_t)y.i + (uint64_t)z.i);
}

union lp_cell lp_cell_reduce(enum lp_reduce_kind kind, enum dtype d, union lp_cell x, union lp_cell y)
{
    static const enum lp_opcode ops[] = {LP_OP_ADD, LP_OP_MUL, LP_OP_MIN, LP_OP_MAX, LP_OP_AND, LP_OP_OR};
    return lp_cell_binary(ops[kind], d, x, y);
}
