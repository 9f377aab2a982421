// SPDX-License-Identifier: Apache-2.0
/*
 * Elements for library kernels. Every function takes the dtype as a constant and is inlined, so
 * that each kernel is compiled for its own type.
 */
#ifndef INFC_RUNTIME_OPS_ELEMENT_H
#define INFC_RUNTIME_OPS_ELEMENT_H

#include <stdint.h>
#include <string.h>

#include "runtime/abi/library.h"

#define OP_INLINE static inline __attribute__((always_inline))

OP_INLINE float f32_of_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}

OP_INLINE uint32_t bits_of_f32(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

OP_INLINE float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7fff;
    if (rest >= 0x7c00) return f32_of_bits(sign | 0x7f800000u | (rest & 0x3ff) << 13);
    /* As if the exponent had f32's bias; the product, exact, mends it, also for subnormals. */
    return f32_of_bits(sign | bits_of_f32(f32_of_bits(rest << 13) * 0x1p112f));
}

/* Nearest, ties to even. */
OP_INLINE uint16_t f32_to_f16(float f)
{
    uint32_t u = bits_of_f32(f), sign = u >> 16 & 0x8000;
    u &= 0x7fffffff;
    if (u > 0x7f800000u) return (uint16_t)(sign | 0x7e00);
    if (u >= 0x477ff000u) return (uint16_t)(sign | 0x7c00); /* 65520 and more round to infinity */
    if (u < 0x38800000u) /* subnormal: adding 0.5 moves the last place to 2^-24 and rounds */
        return (uint16_t)(sign | (bits_of_f32(f32_of_bits(u) + 0.5f) - 0x3f000000u));
    u += 0xfff + (u >> 13 & 1);
    return (uint16_t)(sign | (u - 0x38000000u) >> 13);
}

OP_INLINE float bf16_to_f32(uint16_t h) { return f32_of_bits((uint32_t)h << 16); }

OP_INLINE uint16_t f32_to_bf16(float f)
{
    uint32_t u = bits_of_f32(f);
    if ((u & 0x7fffffff) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

OP_INLINE double load_float(enum dtype d, const void *p, int64_t i)
{
    switch (d) {
    case DT_F64: return ((const double *)p)[i];
    case DT_F16: return (double)f16_to_f32(((const uint16_t *)p)[i]);
    case DT_BF16: return (double)bf16_to_f32(((const uint16_t *)p)[i]);
    default: return (double)((const float *)p)[i];
    }
}

/* v must be exact or rounded at most to f64: sums and products of two elements round once this way.
 */
OP_INLINE void store_float(enum dtype d, void *p, int64_t i, double v)
{
    switch (d) {
    case DT_F64: ((double *)p)[i] = v; break;
    case DT_F16: ((uint16_t *)p)[i] = f32_to_f16((float)v); break;
    case DT_BF16: ((uint16_t *)p)[i] = f32_to_bf16((float)v); break;
    default: ((float *)p)[i] = (float)v; break;
    }
}

/* Sign or zero extended. */
OP_INLINE uint64_t load_int(enum dtype d, const void *p, int64_t i)
{
    switch (d) {
    case DT_I8: return (uint64_t)((const int8_t *)p)[i];
    case DT_U8: return ((const uint8_t *)p)[i];
    case DT_I16: return (uint64_t)((const int16_t *)p)[i];
    case DT_U16: return ((const uint16_t *)p)[i];
    case DT_I32: return (uint64_t)((const int32_t *)p)[i];
    case DT_U32: return ((const uint32_t *)p)[i];
    default: return ((const uint64_t *)p)[i];
    }
}

OP_INLINE void store_int(enum dtype d, void *p, int64_t i, uint64_t v)
{
    switch (dtype_bytes(d)) {
    case 1: ((uint8_t *)p)[i] = (uint8_t)v; break;
    case 2: ((uint16_t *)p)[i] = (uint16_t)v; break;
    case 4: ((uint32_t *)p)[i] = (uint32_t)v; break;
    default: ((uint64_t *)p)[i] = v; break;
    }
}

/* dtype_is_float() through a table is no constant to the compiler. */
OP_INLINE bool op_is_float(enum dtype d)
{
    return d == DT_F64 || d == DT_F32 || d == DT_F16 || d == DT_BF16;
}
OP_INLINE bool op_is_unsigned(enum dtype d)
{
    return d == DT_U8 || d == DT_U16 || d == DT_U32 || d == DT_U64;
}
OP_INLINE int64_t op_bytes(enum dtype d)
{
    return d == DT_F64 || d == DT_I64 || d == DT_U64   ? 8
           : d == DT_F32 || d == DT_I32 || d == DT_U32 ? 4
           : d == DT_I8 || d == DT_U8                  ? 1
                                                       : 2;
}

#endif
