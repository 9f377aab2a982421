// SPDX-License-Identifier: Apache-2.0
/*
 * Seeded inputs for golden vectors, `--random=SEED`, benchmarks and tests: the compiler's evaluator and an engine make
 * the same tensors. Counter-based (SplitMix64 of Steele, Lea and Flood, "Fast splittable pseudorandom number
 * generators", OOPSLA 2014): element i of input k depends only on (seed, k, i).
 *   floats: uniform in [-1, 1), multiples of 2^-20 (exact in f32)
 *   integers: uniform in [0, 128) or, for types below 8 bits and int_limit, in [0, limit)
 *   bool: 0 or 1
 */
#ifndef INFC_RUNTIME_ABI_RANDOM_H
#define INFC_RUNTIME_ABI_RANDOM_H

#include <stdint.h>

static inline uint64_t infr_random_u64(uint64_t seed, uint32_t stream, uint64_t i)
{
    uint64_t z = seed + (uint64_t)stream * 0xD1B54A32D192ED03ull + (i + 1) * 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

static inline double infr_random_float(uint64_t seed, uint32_t stream, uint64_t i)
{
    return (double)(infr_random_u64(seed, stream, i) >> 43) / 1048576.0 - 1.0;
}

static inline int64_t infr_random_int(uint64_t seed, uint32_t stream, uint64_t i, int64_t limit)
{
    return (int64_t)(infr_random_u64(seed, stream, i) >> 33) % limit;
}

#endif
