// SPDX-License-Identifier: Apache-2.0
/* What a compiled GPU kernel is said to be like: an ELF file of a toolchain that is not ours. */
#include <stdint.h>
#include <stdlib.h>

#include "targets/cuda/cubin.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cubin_info c;
    if (!cubin_read(data, size, "k", &c)) return 0;
    if (c.code_bytes > size || c.n_instrs < 0 || (size_t)c.n_instrs > size / 16) abort();
    if (c.n_mma + c.n_wgmma + c.n_local + c.n_ldmatrix + c.n_async + c.n_tma > c.n_instrs) abort();
    return 0;
}
