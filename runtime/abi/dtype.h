// SPDX-License-Identifier: Apache-2.0
/* Element types: shared by the compiler and the runtime. Includes nothing of ours but its table. */
#ifndef INFC_RUNTIME_ABI_DTYPE_H
#define INFC_RUNTIME_ABI_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum dtype {
#define DTYPE(id, name, bits, cls, onnx) DT_##id,
#include "runtime/abi/dtype.def"
#undef DTYPE
    DT_COUNT
};

enum dtype_class { DTC_NONE, DTC_FLOAT, DTC_SINT, DTC_UINT, DTC_BOOL, DTC_STRING };

static inline const char *dtype_name(enum dtype d)
{
    static const char *const names[] = {
#define DTYPE(id, name, bits, cls, onnx) name,
#include "runtime/abi/dtype.def"
#undef DTYPE
    };
    return (unsigned)d < DT_COUNT ? names[d] : "?";
}

static inline unsigned dtype_bits(enum dtype d)
{
    static const unsigned char bits_of[] = {
#define DTYPE(id, name, bits, cls, onnx) bits,
#include "runtime/abi/dtype.def"
#undef DTYPE
    };
    return (unsigned)d < DT_COUNT ? bits_of[d] : 0;
}

/* Bytes one element takes as a plain tensor in memory at run time (sub-byte types: 1; string: 0). */
static inline size_t dtype_bytes(enum dtype d) { return (dtype_bits(d) + 7) / 8; }

static inline enum dtype_class dtype_class(enum dtype d)
{
    static const unsigned char classes[] = {
#define DTYPE(id, name, bits, cls, onnx) DTC_##cls,
#include "runtime/abi/dtype.def"
#undef DTYPE
    };
    return (unsigned)d < DT_COUNT ? (enum dtype_class)classes[d] : DTC_NONE;
}

static inline int dtype_onnx(enum dtype d)
{
    static const unsigned char codes[] = {
#define DTYPE(id, name, bits, cls, onnx) onnx,
#include "runtime/abi/dtype.def"
#undef DTYPE
    };
    return (unsigned)d < DT_COUNT ? codes[d] : 0;
}

/* DT_NONE when the code is unknown. */
static inline enum dtype dtype_from_onnx(int code)
{
    for (int d = 1; d < DT_COUNT; d++)
        if (dtype_onnx((enum dtype)d) == code) return (enum dtype)d;
    return DT_NONE;
}

/* DT_NONE when the name (len bytes) is unknown. */
static inline enum dtype dtype_find(const char *name, size_t len)
{
    for (int d = 1; d < DT_COUNT; d++) {
        const char *n = dtype_name((enum dtype)d);
        if (strlen(n) == len && !memcmp(n, name, len)) return (enum dtype)d;
    }
    return DT_NONE;
}

static inline bool dtype_is_float(enum dtype d) { return dtype_class(d) == DTC_FLOAT; }
static inline bool dtype_is_int(enum dtype d)
{
    return dtype_class(d) == DTC_SINT || dtype_class(d) == DTC_UINT;
}
static inline bool dtype_is_signed(enum dtype d) { return dtype_class(d) == DTC_SINT || dtype_is_float(d); }

#endif
