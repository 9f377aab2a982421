// SPDX-License-Identifier: Apache-2.0
/*
 * The roofline (Williams, Waterman, Patterson 2009) with three losses that are known before anything runs:
 *
 *  - CTAs do not divide evenly among multiprocessors: the busiest one decides;
 *  - too few bytes in flight leave bandwidth unused (Little's law: bytes in flight = bandwidth x latency);
 *  - too few warps leave the arithmetic units waiting for their own results.
 *
 * How many CTAs are resident follows the occupancy rules of the CUDA programming guide: registers are given to a warp in
 * units of 256, each CTA takes 1 KiB of shared memory beside its own.
 */
#include "passes/gpu_predict.h"

#include <math.h>

#define LATENCY_NS 700.0 /* of a load from device memory under load */
#define LAUNCH_US 1.3    /* between two kernels of one graph */
/* Warps of a multiprocessor (it has four schedulers) that keep its units busy without parallelism within a warp. */
#define WARPS_FMA 16.0
#define WARPS_TENSOR 4.0

static double peak_tflops(const struct target_gpu_device *d, enum target_gpu_unit unit, uint64_t types)
{
    /* One opcode serves tf32 and 16-bit operands: it is tf32 when nothing but f32 and indices goes in. */
    const uint64_t wide = 1ull << DT_F32 | 1ull << DT_I32 | 1ull << DT_I64 | 1ull << DT_BOOL;
    switch (unit) {
    case TARGET_GPU_FP8: return d->fp8_tflops;
    case TARGET_GPU_INT8: return d->int8_tops;
    case TARGET_GPU_HALF: return types & ~wide ? d->f16_tflops : d->tf32_tflops;
    default: return d->f32_tflops;
    }
}

/* CTAs that are on a multiprocessor at once; at least 1, for what does not fit is not launched. */
static double resident(const struct target_gpu *gpu, const struct target_gpu_code *c)
{
    int warps = (c->threads + 31) / 32, regs = (c->regs * 32 + 255) / 256 * 256 * warps;
    int n = gpu->device.ctas_sm, by_threads = gpu->threads_sm / (warps * 32), by_shared = gpu->shared_sm_bytes / (c->shared_bytes + 1024);
    if (n > by_threads) n = by_threads;
    if (n > by_shared) n = by_shared;
    if (regs > 0 && n > gpu->regs_sm / regs) n = gpu->regs_sm / regs;
    return n > 0 ? n : 1;
}

void gpu_predict(const struct target_gpu *gpu, const struct target_gpu_code *c, const struct gpu_work *w, uint64_t types, struct gpu_prediction *out)
{
    const struct target_gpu_device *d = &gpu->device;
    double peak = 1e6 * peak_tflops(d, c->unit, types), rate = 1e3 * d->gb_s; /* FLOPs and bytes a us */
    double ctas = fmax(1, ceil(w->slices / c->slices_cta)), each = ctas / d->sms, fit = resident(gpu, c);
    double busiest = ceil(each), warps = fmin(fit, busiest) * ((c->threads + 31) / 32), sms = fmin(ctas, d->sms);
    double flight = sms * fmax(warps * 32 * (w->is_generic ? 4 : 16), fmin(fit, busiest) * c->shared_bytes * (c->unit ? 1 : 0));
    double memory = w->bytes / fmin(rate, flight / (1e-3 * LATENCY_NS));
    double compute = w->flops / peak * (busiest / each) / fmin(1, warps / (c->unit ? WARPS_TENSOR : WARPS_FMA));
    *out = (struct gpu_prediction){.us = fmax(memory, compute) + LAUNCH_US, .ideal_us = fmax(w->bytes / rate, w->flops / peak), .ctas = ctas,
                                   .occupancy = fit * c->threads / gpu->threads_sm,
                                   .bound = compute > memory ? c->unit ? "tensor" : "fma" : "memory"};
    if (fmax(memory, compute) < LAUNCH_US) out->bound = "launch";
}
