// SPDX-License-Identifier: Apache-2.0
/* The only place for compiler extensions: attributes and checked arithmetic builtins. */
#ifndef INFC_IR_SUPPORT_COMPILER_H
#define INFC_IR_SUPPORT_COMPILER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define INFC_PRINTF(fmt_arg, first_arg) __attribute__((format(printf, fmt_arg, first_arg)))
#define INFC_NORETURN __attribute__((noreturn))
#define INFC_UNUSED __attribute__((unused))
/* Before a loop: its body n times in a row. */
#define INFC_UNROLL(n) INFC_PRAGMA(GCC unroll n)
#define INFC_PRAGMA(text) _Pragma(#text)
/* The function may use these CPU features; whoever calls it has asked for them. */
#define INFC_TARGET(features) __attribute__((target(features)))
#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* Checked arithmetic: true when the exact result fits into *out, else false and *out is unspecified. */
static inline bool size_add(size_t a, size_t b, size_t *out) { return !__builtin_add_overflow(a, b, out); }
static inline bool size_mul(size_t a, size_t b, size_t *out) { return !__builtin_mul_overflow(a, b, out); }
static inline bool i64_add(int64_t a, int64_t b, int64_t *out) { return !__builtin_add_overflow(a, b, out); }
static inline bool i64_sub(int64_t a, int64_t b, int64_t *out) { return !__builtin_sub_overflow(a, b, out); }
static inline bool i64_mul(int64_t a, int64_t b, int64_t *out) { return !__builtin_mul_overflow(a, b, out); }

/* Two doubles added or multiplied at once; element by element the same bits as one by one. */
typedef double f64x2 __attribute__((vector_size(16)));

/* Does this very machine run x86-64-v3 / -v4 code? By feature bits, operating system included. */
static inline bool cpu_has_level_v3(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
}
static inline bool cpu_has_level_v4(void)
{
    return cpu_has_level_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

/* Our own bug: prints where and aborts; the driver turns SIGABRT into a reproducer and exit code 70. */
INFC_NORETURN void infc_bug(const char *file, int line, const char *what);
#define INFC_ASSERT(cond) ((cond) ? (void)0 : infc_bug(__FILE__, __LINE__, #cond))
#define INFC_UNREACHABLE(what) infc_bug(__FILE__, __LINE__, what)

#endif
