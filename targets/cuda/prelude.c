// SPDX-License-Identifier: Apache-2.0
/*
 * Device functions that every kernel's text begins with. Several strings, because C promises no more than 4095 characters
 * of one. NVRTC has the CUDA built-ins without a header; what is not used costs nothing in the machine code.
 */
#include "targets/cuda/cuda.h"

static const char types[] =
    "typedef signed char i8; typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32;\n"
    "typedef long long i64; typedef unsigned long long u64;\n"
    "#define METHOD __device__ __forceinline__\n"
    "#define DEVICE static METHOD\n";

/* Division by 0 gives 0 and the least value by -1 wraps. */
static const char integers[] =
    "template <class T> DEVICE T int_min(T a, T b) { return a < b ? a : b; }\n"
    "template <class T> DEVICE T int_max(T a, T b) { return a < b ? b : a; }\n"
    "template <class T> DEVICE bool is_minus_one(T b) { return T(-1) < T(0) && b == T(-1); }\n"
    "template <class T> DEVICE T int_div(T a, T b) { return b == 0 ? T(0) : is_minus_one(b) ? T(0 - (u64)a) : T(a / b); }\n"
    "template <class T> DEVICE T int_rem(T a, T b) { return b == 0 || is_minus_one(b) ? T(0) : T(a % b); }\n"
    "template <class T> DEVICE T int_mod(T a, T b) { T r = int_rem(a, b); return r != 0 && (r < 0) != (b < 0) ? T(r + b) : r; }\n"
    "template <class T> DEVICE T int_floordiv(T a, T b)\n"
    "{\n"
    "    T q = int_div(a, b), r = int_rem(a, b);\n"
    "    return r != 0 && (r < 0) != (b < 0) ? T(q - 1) : q;\n"
    "}\n"
    "template <class T> DEVICE T int_shl(T a, T b, u32 bits) { return (u64)b >= bits ? T(0) : T((u64)a << (u32)b); }\n"
    "template <class T> DEVICE T int_shr(T a, T b, u32 bits)\n"
    "{\n"
    "    return (u64)b < bits ? T(a >> (u32)b) : T(-1) < T(0) && a < 0 ? T(-1) : T(0);\n"
    "}\n";

static const char floats[] =
    "DEVICE float fmin_nan(float a, float b) { float m = a < b ? a : b; return a != a ? a : m; }\n"
    "DEVICE float fmax_nan(float a, float b) { float m = a > b ? a : b; return a != a ? a : m; }\n"
    "DEVICE double fmin_nan(double a, double b) { double m = a < b ? a : b; return a != a ? a : m; }\n"
    "DEVICE double fmax_nan(double a, double b) { double m = a > b ? a : b; return a != a ? a : m; }\n"
    "DEVICE float float_rem(float a, float b) { return fmodf(a, b); }\n"
    "DEVICE double float_rem(double a, double b) { return fmod(a, b); }\n"
    "template <class T> DEVICE T float_mod(T a, T b)\n"
    "{\n"
    "    T r = float_rem(a, b);\n"
    "    if (r == 0) return b < 0 || (b == 0 && 1 / b < 0) ? T(-0.0) : T(0);\n"
    "    return (r < 0) != (b < 0) ? r + b : r;\n"
    "}\n"
    /* NaN is 0, [2^63, 2^64) counts as unsigned, everything beyond is the least i64. */
    "DEVICE i64 truncate64(double v)\n"
    "{\n"
    "    if (v != v) return 0;\n"
    "    if (v >= 0x1p63) return v < 0x1p64 ? (i64)(u64)v : (i64)(1ull << 63);\n"
    "    return v >= -0x1p63 ? (i64)v : (i64)(1ull << 63);\n"
    "}\n"
    "DEVICE i64 truncate32(float v) { return fabsf(v) < 0x1p31f ? (i64)(int)v : truncate64((double)v); }\n"
    /* f64 to f32, to odd where not exact: rounding that to a narrower type rounds once. */
    "DEVICE float f32_odd(double v)\n"
    "{\n"
    "    float f = __double2float_rz(v);\n"
    "    return (double)f == v || v != v ? f : __int_as_float(__float_as_int(f) | 1);\n"
    "}\n";

static const char halves[] =
    "DEVICE float f32_of_f16(u16 x) { float f; asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(f) : \"h\"(x)); return f; }\n"
    "DEVICE u16 f16_of_f32(float f) { u16 x; asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(x) : \"f\"(f)); return x; }\n"
    "DEVICE float f32_of_bf16(u16 x) { return __int_as_float((int)((u32)x << 16)); }\n"
    "DEVICE u16 bf16_of_f32(float f)\n"
    "{\n"
    "    u32 u = (u32)__float_as_int(f);\n"
    "    return f != f ? (u16)(u >> 16 | 0x40) : (u16)((u + 0x7fff + (u >> 16 & 1)) >> 16);\n"
    "}\n";

/*
 * Formats of 8 bits and fewer. E, M: bits of exponent and mantissa; INF, NAN_: bits without sign, or -1; FNUZ: the sign bit
 * alone is NaN. Encoding rounds to nearest even and saturates.
 */
static const char small_decode[] =
    "template <int E, int M, int BIAS, int INF, int NAN_, bool FNUZ> DEVICE float small_decode(u32 x)\n"
    "{\n"
    "    const int width = E + M;\n"
    "    u32 magnitude = x & ((1u << width) - 1), sign = (x >> width) << 31;\n"
    "    u32 r = (magnitude << (23 - M)) + ((u32)(127 - BIAS) << 23);\n"
    "    if (magnitude < 1u << M) r = (u32)__float_as_int((float)magnitude * __int_as_float((127 + 1 - BIAS - M) << 23));\n"
    "    if (INF >= 0 && (int)magnitude >= INF) r = (int)magnitude > INF ? 0x7fc00000u : 0x7f800000u;\n"
    "    if (NAN_ >= 0 && !FNUZ && (int)magnitude == NAN_) r = 0x7fc00000u;\n"
    "    if (FNUZ && x == 1u << width) r = 0x7fc00000u, sign = 0;\n"
    "    return __int_as_float((int)(r | sign));\n"
    "}\n";

static const char small_encode[] =
    "template <int E, int M, int BIAS, int MAX, int NAN_, bool FNUZ> DEVICE u8 small_encode(float f)\n"
    "{\n"
    "    u32 u = (u32)__float_as_int(f), a = u & 0x7fffffffu, sign = (u >> 31) << (E + M), r;\n"
    "    if (a > 0x7f800000u) return (u8)(NAN_ >= 0 ? NAN_ : MAX | (int)sign);\n"
    "    if (a < (u32)(128 - BIAS) << 23) {\n"
    "        const int magic = (127 + 1 - BIAS - M + 23) << 23;\n"
    "        r = (u32)__float_as_int(__fadd_rn(__int_as_float((int)a), __int_as_float(magic))) - (u32)magic;\n"
    "    } else {\n"
    "        r = ((a + ((1u << (22 - M)) - 1) + (a >> (23 - M) & 1)) >> (23 - M)) - ((u32)(127 - BIAS) << M);\n"
    "        if (r > (u32)MAX) r = MAX;\n"
    "    }\n"
    "    return (u8)(FNUZ && r == 0 ? 0 : r | sign);\n"
    "}\n";

static const char small_formats[] =
    "#define SMALL(name, E, M, BIAS, MAX, INF, NAN_, FNUZ) \\\n"
    "    DEVICE float f32_of_##name(u8 x) { return small_decode<E, M, BIAS, INF, NAN_, FNUZ>(x); } \\\n"
    "    DEVICE u8 name##_of_f32(float f) { return small_encode<E, M, BIAS, MAX, NAN_, FNUZ>(f); }\n"
    "SMALL(f8e4m3fn, 4, 3, 7, 0x7e, -1, 0x7f, false)\n"
    "SMALL(f8e4m3fnuz, 4, 3, 8, 0x7f, -1, 0x80, true)\n"
    "SMALL(f8e5m2, 5, 2, 15, 0x7b, 0x7c, 0x7e, false)\n"
    "SMALL(f8e5m2fnuz, 5, 2, 16, 0x7f, -1, 0x80, true)\n"
    "SMALL(f4e2m1, 2, 1, 1, 7, -1, -1, false)\n"
    "DEVICE float f32_of_f8e8m0(u8 x)\n"
    "{\n"
    "    return __int_as_float(x == 0 ? 0x400000 : x == 255 ? 0x7fc00000 : (int)x << 23);\n"
    "}\n"
    "DEVICE u8 f8e8m0_of_f32(float f)\n"
    "{\n"
    "    u32 a = (u32)__float_as_int(f) & 0x7fffffffu, e = a >> 23, m = (a << (e ? 0 : 1)) & 0x7fffffu;\n"
    "    if (a > 0x7f800000u) return 255;\n"
    "    if (e == 255) return 254;\n"
    "    u32 r = e + (m > 0x400000u || (m == 0x400000u && !(e & 1)));\n"
    "    if (e == 0) r = a <= 0x400000u ? 0 : r;\n"
    "    return (u8)int_min(r, 254u);\n"
    "}\n";

/* N elements that follow each other; the address decides, and is the same in all lanes as a rule. */
static const char rows[] =
    "template <int N, class T> DEVICE void read_row(T *out, const T *p)\n"
    "{\n"
    "    if ((u64)p % 16 == 0) {\n"
    "        #pragma unroll\n"
    "        for (int i = 0; i < (int)(N * sizeof(T) / 16); i++) ((int4 *)out)[i] = ((const int4 *)p)[i];\n"
    "    } else {\n"
    "        #pragma unroll\n"
    "        for (int i = 0; i < N; i++) out[i] = p[i];\n"
    "    }\n"
    "}\n"
    "template <int N, class T> DEVICE void write_row(T *p, const T *v)\n"
    "{\n"
    "    if ((u64)p % 16 == 0) {\n"
    "        #pragma unroll\n"
    "        for (int i = 0; i < (int)(N * sizeof(T) / 16); i++) ((int4 *)p)[i] = ((const int4 *)v)[i];\n"
    "    } else {\n"
    "        #pragma unroll\n"
    "        for (int i = 0; i < N; i++) p[i] = v[i];\n"
    "    }\n"
    "}\n";

const char *const cuda_prelude[] = {types, integers, floats, halves, small_decode, small_encode, small_formats, rows, NULL};
