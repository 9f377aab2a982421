// SPDX-License-Identifier: Apache-2.0
/*
 * What a launch would take on a GPU, from its work, the resources of its machine code and a table of devices. A prediction:
 * nothing here was measured, and reports say so.
 */
#ifndef INFC_PASSES_GPU_PREDICT_H
#define INFC_PASSES_GPU_PREDICT_H

#include "ir/target.h"

/* A launch's work at given sizes. bytes: operands and results, each once. */
struct gpu_work {
    double slices, flops, bytes;
    bool is_generic; /* its threads read an element at a time, not 16 bytes */
};

struct gpu_prediction {
    double us, ideal_us;  /* ideal: the slower of all bytes at full bandwidth and all FLOPs at the peak of their unit */
    double occupancy;     /* threads that can be resident, of those a multiprocessor has room for */
    double ctas;
    const char *bound;    /* "memory", "tensor", "fma" or "launch" */
};

/* types: 1 << dtype for each buffer of the launch, which tell tf32 from 16-bit operands. */
void gpu_predict(const struct target_gpu *gpu, const struct target_gpu_code *code, const struct gpu_work *work, uint64_t types,
                 struct gpu_prediction *out);

#endif
