// SPDX-License-Identifier: Apache-2.0
/* Tensors as NumPy .npy files (format version 1.0, 2.0) and seeded random tensors, for `infc verify`. */
#ifndef INFC_COMPILER_NPY_H
#define INFC_COMPILER_NPY_H

#include "ir/eval.h"

/* Data is allocated in the arena. Little-endian, C order; dtypes bool, ints, f16 f32 f64, and bf16 as V2. */
bool npy_read(const char *path, struct ir_tensor *out, struct arena *arena, struct diag_sink *diag);
bool npy_write(const char *path, const struct ir_tensor *t, struct diag_sink *diag);
/* By the rules of runtime/abi/random.h; false for types without a rule. */
bool npy_fill_random(struct ir_tensor *t, uint64_t seed, uint32_t stream);

#endif
