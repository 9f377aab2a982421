// SPDX-License-Identifier: Apache-2.0
/* Inside the CUDA targets: loop IR to CUDA C++ text, text to machine code. */
#ifndef INFC_TARGETS_CUDA_CUDA_H
#define INFC_TARGETS_CUDA_CUDA_H

#include "ir/target.h"

/* Threads of a CTA of kernels whose slices are one thread each. */
#define CUDA_THREADS 128
/* Bytes of STACK buffers a thread can have in local memory. */
#define CUDA_LOCAL_BYTES ((size_t)256 << 10)
/* Operations of a kernel's text: what NVRTC can digest in reasonable time. */
#define CUDA_OP_LIMIT 200000

/* Bytes of shared memory that a CTA has without asking for more. */
#define CUDA_SHARED_STATIC ((size_t)48 << 10)
/* Operands of DOT that are on their way to shared memory at once. */
#define CUDA_STAGED 32

/* How a kernel is launched. */
struct cuda_launch {
    int threads;        /* of a CTA */
    int slices_cta;     /* slices that one CTA does */
    int shared_bytes;   /* dynamic shared memory */
};

/*
 * Writes the whole translation unit that defines the kernel `symbol`: no #include, everything NVRTC has built in. The kernel's
 * parameters are its ARG buffers, its dim parameters, the number of slices. Runs the shared rewrites on k first.
 */
bool cuda_print(struct lp_kernel *k, const struct target_level *level, const char *symbol, struct strbuf *out,
                struct cuda_launch *launch, struct diag_sink *diag);

/* The device functions that printed kernels call. */
extern const char *const cuda_prelude[];

/* Text compiled by NVRTC for an architecture ("90a"): PTX when `ptx`, else a cubin. what: for messages. */
bool cuda_compile(const char *source, const char *arch, bool ptx, const char *name, const char *loc, struct strbuf *out,
                  struct diag_sink *diag);

bool cuda_available(struct diag_sink *diag);
void cuda_toolchain(struct strbuf *out);
/* 13000 for NVRTC 13.0, as the driver counts; 0 before it was opened. */
int cuda_toolkit_version(void);
bool cuda_emit(const struct target *t, const struct target_level *level, struct lp_kernel *k, const char *symbol,
               struct target_object *out, struct diag_sink *diag);
bool cuda_read_code(const void *code, size_t n_bytes, struct target_gpu_code *out);
bool cuda_emit_text(const struct target *t, const struct target_level *level, struct lp_kernel *k, const char *symbol,
                    const char *form, struct strbuf *out, struct diag_sink *diag);

#endif
