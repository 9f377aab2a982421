// SPDX-License-Identifier: Apache-2.0
/*
 * NVIDIA GPUs: one target an architecture, each with one level. Numbers are those of the CUDA programming guide's table
 * of compute capabilities. sm90 is compiled as sm_90a, whose instructions no other architecture has; sm100 and sm120 take
 * the path that all have (mma.sync).
 */
#include "targets/cuda/cuda.h"
#include "targets/target.h"

#define BIT(d) (1u << DT_##d)
#define MMA_80 (BIT(F16) | BIT(BF16) | BIT(F32) | BIT(I8) | BIT(U8))
#define MMA_89 (MMA_80 | BIT(F8E4M3FN) | BIT(F8E5M2))

/*
 * Devices as their data sheets state them: name, multiprocessors, CTAs of one, GB/s, and TFLOP/s (dense, f32 sums) in
 * f32, tf32, f16, fp8 and int8.
 */
#define DEVICE_80 {"A100 SXM 80 GB", 108, 32, 2039, 19.5, 156, 312, 0, 624}
#define DEVICE_86 {"A10", 72, 16, 600, 31.2, 62.5, 125, 0, 250}
#define DEVICE_87 {"Jetson AGX Orin 64 GB", 16, 16, 204.8, 5.3, 21, 42.5, 0, 85}
#define DEVICE_89 {"L40S", 142, 24, 864, 91.6, 183, 362, 733, 733}
#define DEVICE_90 {"H100 SXM", 132, 32, 3352, 66.9, 494.7, 989.4, 1978.9, 1978.9}
#define DEVICE_100 {"B200", 148, 32, 8000, 75, 1100, 2250, 4500, 4500}
#define DEVICE_120 {"RTX 5090", 170, 24, 1792, 104.8, 104.8, 209.5, 419, 838}

/* GPU(sm, arch, doc, shared memory of a CTA and of a multiprocessor in KiB, threads, mma, more fields) */
#define GPU(N, ARCH, DOC, CTA_KIB, SM_KIB, THREADS, MMA, ...)                                                          \
    static const struct target_gpu gpu_##N = {.sm = N, .arch = ARCH, .shared_bytes = (CTA_KIB) * 1024,                 \
                                              .shared_sm_bytes = (SM_KIB) * 1024, .regs_sm = 65536,                    \
                                              .threads_sm = THREADS, .mma = MMA, .has_cp_async = true,                 \
                                              .device = DEVICE_##N, __VA_ARGS__};                                      \
    static const struct target_level level_##N = {.name = "sm" #N, .isa = INFR_ISA_V2, .features = "sm_" ARCH,         \
                                                  .vector_bytes = 16, .n_vector_regs = 32, .has_fma = true,            \
                                                  .gpu = &gpu_##N};                                                    \
    const struct target target_sm##N = {.name = "sm" #N, .doc = DOC, .levels = &level_##N, .n_levels = 1,              \
                                        .emits_in_processes = true, .available = cuda_available,  \
                                        .toolchain = cuda_toolchain, .emit = cuda_emit,    \
                                        .emit_text = cuda_emit_text, .read_code = cuda_read_code};

GPU(80, "80", "NVIDIA A100, A30", 163, 164, 2048, MMA_80, .has_tma = false)
GPU(86, "86", "NVIDIA A10, A40, RTX 30", 99, 100, 1536, MMA_80, .has_tma = false)
GPU(87, "87", "NVIDIA Jetson Orin", 163, 164, 1536, MMA_80, .has_tma = false)
GPU(89, "89", "NVIDIA L4, L40, RTX 40", 99, 100, 1536, MMA_89, .has_tma = false)
GPU(90, "90a", "NVIDIA H100, H200", 227, 228, 2048, MMA_89, .has_tma = true, .has_wgmma = true, .has_clusters = true)
GPU(100, "100", "NVIDIA B200, GB200", 227, 228, 2048, MMA_89, .has_tma = true, .has_clusters = true)
GPU(120, "120", "NVIDIA RTX 50, RTX PRO Blackwell", 99, 100, 1536, MMA_89, .has_tma = true, .has_clusters = true)
