// SPDX-License-Identifier: Apache-2.0
/* XXH64 with seed 0, by the specification of xxHash: the hash of the weights segment. */
#ifndef INFC_RUNTIME_XXH64_H
#define INFC_RUNTIME_XXH64_H

#include <stddef.h>
#include <stdint.h>

uint64_t rt_xxh64(const void *data, size_t n);

#endif
