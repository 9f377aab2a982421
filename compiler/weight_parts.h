// SPDX-License-Identifier: Apache-2.0
/* The bytes of constants that are parts of encoded ones (struct ir_const_part), unpacked panel by panel as they are written. */
#ifndef INFC_COMPILER_WEIGHT_PARTS_H
#define INFC_COMPILER_WEIGHT_PARTS_H

#include "ir/module.h"

/* Bytes [at, at + n_bytes) of the part into dst. Cost: decodes every panel that the range touches, 64 rows each. */
void weight_part_read(const struct ir_const *c, uint64_t at, void *dst, size_t n_bytes);

#endif
