// SPDX-License-Identifier: Apache-2.0
/*
 * Code for GPUs in an engine file. An engine has an image an architecture that it was built for:
 *
 *   header | the plan (engine_format.h) of this architecture | a code an kernel, in the plan's order | table of codes
 *
 * Every reference is an offset from the image's start. INFR_SYM_GPU_IMAGES is an array of addresses of images that ends with
 * NULL. The plan's constants lie in the engine's weights, which all plans share; its levels have index 0 only.
 *
 * A code is machine code (a cubin) for one architecture and, behind it, the PTX it was made from, which newer
 * architectures of the same kind of code can translate. The kernel's parameters are the launch's buffers, its dim
 * parameters and the number of slices.
 */
#ifndef INFC_RUNTIME_ABI_GPU_FORMAT_H
#define INFC_RUNTIME_ABI_GPU_FORMAT_H

#include <stdint.h>

#define INFR_GPU_MAGIC 0x3155504743464E49ull /* "INFCGPU1" */
#define INFR_GPU_CODE_MAGIC 0x31444F4347464E49ull
#define INFR_GPU_PTX_MARK "INFCPTX" /* with its NUL: 8 bytes between a cubin and its PTX, then a 64-bit size */
#define INFR_GPU_SYMBOL_MAX 95

#define INFR_SYM_GPU_IMAGES "infr_gpu_images"
/* Refers to the driver's part of the runtime, which makes the linker take it from the archive. */
#define INFR_SYM_GPU_LINK "infr_gpu_link"
#define INFR_SYM_GPU_DEVICE "infr_cuda_device"

struct infr_gpu_image {
    uint64_t magic, image_bytes;
    uint32_t header_bytes;
    uint32_t sm;       /* 80, 90 */
    uint32_t exact;    /* 1: the code has instructions that only this architecture has (sm_90a) */
    uint32_t n_codes;
    uint64_t plan_offset, plan_bytes;
    uint64_t codes;    /* n_codes struct infr_gpu_range */
    char name[16];     /* "sm90" */
};

struct infr_gpu_range {
    uint64_t offset, bytes;
};

struct infr_gpu_code {
    uint64_t magic;
    uint32_t header_bytes;
    uint32_t threads;       /* of a CTA */
    uint32_t slices_cta;    /* slices that one CTA does */
    uint32_t shared_bytes;  /* dynamic shared memory */
    uint32_t regs, local_bytes; /* of a thread, as the compiler reported */
    uint32_t sm;
    uint32_t toolkit;       /* version of the compiler, 13000: drivers of an older CUDA cannot load it */
    uint64_t cubin_offset, cubin_bytes; /* from this header's start */
    uint64_t ptx_offset, ptx_bytes;     /* with its NUL */
    char symbol[INFR_GPU_SYMBOL_MAX + 1];
};

#endif
