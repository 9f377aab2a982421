// SPDX-License-Identifier: Apache-2.0
/* What a cubin says of a kernel. Read without NVIDIA's tools; every offset is checked. */
#ifndef INFC_TARGETS_CUDA_CUBIN_H
#define INFC_TARGETS_CUDA_CUBIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cubin_info {
    int sm;
    int regs;          /* registers of a thread */
    int frame_bytes;   /* local memory of a thread: arrays and spills */
    int shared_bytes;  /* static shared memory */
    size_t code_bytes;
    int n_qmma, n_qgmma, n_imma; /* of n_mma and n_wgmma those on fp8, and on integers */
    /* instructions by kind, from the low 12 bits of their words */
    int n_instrs, n_local, n_mma, n_wgmma, n_ldmatrix, n_async, n_tma;
};

/* False when the bytes are no cubin with that kernel. */
bool cubin_read(const void *data, size_t n_bytes, const char *kernel, struct cubin_info *out);

#endif
