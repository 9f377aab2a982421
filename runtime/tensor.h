// SPDX-License-Identifier: Apache-2.0
/* Tensors that own their memory, and their elements one at a time: for files, printing, random
 * inputs and tests. */
#ifndef INFC_RUNTIME_TENSOR_H
#define INFC_RUNTIME_TENSOR_H

#include <stdio.h>

#include "runtime/abi/dtype.h"
#include "runtime/infr.h"

/*
 * Zeroed memory, 64-byte aligned, for these dims. Refuses negative dims, ranks above INFR_MAX_RANK,
 * types without a size and more than max_bytes (what a hostile header may make us allocate).
 */
int rt_tensor_alloc(uint32_t dtype, uint32_t rank, const int64_t *dims, uint64_t max_bytes,
                    struct infr_tensor *out, struct infr_status *st);
void rt_tensor_free(struct infr_tensor *t);
uint64_t rt_tensor_elems(const struct infr_tensor *t);

/* Element i as a number; 64-bit integers lose what a double cannot hold. */
double rt_tensor_get(const struct infr_tensor *t, uint64_t i);

/* A float of up to 16 bits: its bits from a double (round to nearest, ties to even) and back. */
uint32_t rt_small_encode(enum dtype d, double v);
double rt_small_decode(enum dtype d, uint32_t bits);

/* Fills t by the rules of runtime/abi/random.h. */
void rt_tensor_random(struct infr_tensor *t, uint64_t seed, uint32_t stream);

/* Nested brackets, one row a line; with more than `most` elements only the ends of each axis. */
void rt_tensor_print(FILE *f, const struct infr_tensor *t, uint64_t most);

#endif
