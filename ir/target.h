// SPDX-License-Identifier: Apache-2.0
/*
 * What passes and the compiler know about hardware: data and two functions. Targets register in targets/registry.c.
 */
#ifndef INFC_IR_TARGET_H
#define INFC_IR_TARGET_H

#include "ir/loop.h"
#include "runtime/abi/kernel.h"

/* One instruction level of a target: the same engine may hold several; the runtime chooses one at start. */
struct target_level {
    const char *name;     /* "v2", "v3", "v4", "vnni", "amx": the name of --isa */
    enum infr_isa isa;
    const char *features; /* LLVM feature string */
    int vector_bytes;     /* 16, 32, 64 */
    int n_vector_regs;    /* 16 or 32 */
    bool has_fma, has_masks, has_vnni, has_bf16, has_amx;
    const struct target_gpu *gpu; /* NULL: a CPU */
};

/* A GPU architecture. A target for one has a single level, at index 0 of a plan's levels. */
struct target_gpu {
    int sm;                 /* compute capability: 80, 90 */
    const char *arch;       /* as NVRTC spells it: "80", "90a" */
    int shared_bytes;       /* of shared memory a CTA can have */
    int shared_sm_bytes;    /* of shared memory a multiprocessor has */
    int regs_sm;            /* 32-bit registers of a multiprocessor */
    int threads_sm;         /* threads of a multiprocessor */
    unsigned mma;           /* bits 1 << dtype: element types of mma.sync */
    bool has_cp_async, has_tma, has_wgmma, has_clusters;
    struct target_gpu_device {
        const char *name;
        int sms, ctas_sm;   /* multiprocessors, and CTAs that one of them holds */
        double gb_s;        /* of device memory */
        double f32_tflops, tf32_tflops, f16_tflops, fp8_tflops, int8_tops; /* dense, f32 sums; 0: it has none */
    } device;               /* a common device of the architecture, for predictions */
};

enum target_gpu_unit { TARGET_GPU_FMA, TARGET_GPU_HALF, TARGET_GPU_FP8, TARGET_GPU_INT8 };

/* What machine code for a GPU takes; threads is 0 where there is none. */
struct target_gpu_code {
    int threads, slices_cta, shared_bytes, regs, local_bytes;
    enum target_gpu_unit unit; /* what multiplies: tensor units by their widest operands, else FMA units */
};

struct target;
struct target_data;

struct target_object {
    void *data; /* malloc'd ELF relocatable object */
    size_t n_bytes;
    int n_spills_in_loops; /* what the register allocator reported for this kernel */
    size_t scratch_bytes;  /* of private memory a worker that the kernel needs (STACK buffers too large for a stack) */
};

struct target {
    const char *name; /* "x86-64" */
    const char *doc;
    const struct target_level *levels;
    int n_levels;
    /* emit is not for several threads of one process: its jobs go to processes of their own. */
    bool emits_in_processes;
    /* Says what is missing on this machine when code cannot be generated; NULL: nothing ever is. */
    bool (*available)(struct diag_sink *diag);
    /* What an object depends on besides kernel and level, for cache keys: the code generator's name and version. */
    void (*toolchain)(struct strbuf *out);
    /*
     * Compiles one kernel to one object that defines the global function `symbol` (runtime/abi/kernel.h). Runs
     * lp_expand_math, lp_vectorize, lp_simplify itself on a private copy or on k (k may be changed). Thread safe for different kernels.
     */
    bool (*emit)(const struct target *t, const struct target_level *level, struct lp_kernel *k, const char *symbol,
                 struct target_object *out, struct diag_sink *diag);
    /* Kernel as text for --emit=llvm|asm; NULL when the target has no such form. */
    bool (*emit_text)(const struct target *t, const struct target_level *level, struct lp_kernel *k,
                      const char *symbol, const char *form, struct strbuf *out, struct diag_sink *diag);
    /* What an object's machine code takes; false when it is no such object. NULL: not a GPU. */
    bool (*read_code)(const void *object, size_t n_bytes, struct target_gpu_code *out);
    /*
     * Object with the engine's data: constant bytes and tables of kernel addresses, as global symbols.
     */
    bool (*emit_data)(const struct target *t, const struct target_data *data, int n, struct target_object *out,
                      struct diag_sink *diag);
};

/* A read-only global: raw bytes, or (when symbols is not NULL) n_symbols addresses (NULL entry = null pointer). */
struct target_data {
    const char *name;
    const void *bytes;
    size_t n_bytes;
    const char *const *symbols;
    size_t n_symbols;
    int align_bytes;
};

const struct target *target_find(const char *name); /* NULL when unknown */
const struct target *target_at(int i);              /* NULL past the end */
const struct target_level *target_level_find(const struct target *t, const char *name);

#endif
