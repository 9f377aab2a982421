// SPDX-License-Identifier: Apache-2.0
/*
 * Blocked matrix product behind matmul, conv and conv_transpose: c[b][i][j] = sum over k of a[b][i][k] * w[b][k][j], one
 * running sum in order of k for each result, whatever the blocking and the number of threads.
 */
#ifndef INFC_IR_EVAL_GEMM_H
#define INFC_IR_EVAL_GEMM_H

#include "ir/eval_impl.h"

struct gemm {
    int64_t batch, m, n, k;
    bool words; /* lanes are words that wrap (.u), else floats (.f) */
    const void *arg;
    /* a[b][i][k0 .. k0 + n), and w[b][k][j0 .. j0 + n); n <= EVAL_BLOCK. */
    void (*load_a)(const void *arg, int64_t b, int64_t i, int64_t k0, int64_t n, union eval_lane *out);
    void (*load_w)(const void *arg, int64_t b, int64_t k, int64_t j0, int64_t n, union eval_lane *out);
    /* Takes c[b][i][j0 .. j0 + n); may change the lanes. */
    void (*store)(const void *arg, int64_t b, int64_t i, int64_t j0, int64_t n, union eval_lane *c);
};

bool eval_gemm(struct eval_call *c, struct gemm *g);

/*
 * Whether a sum of k products of elements of a and w may run in f64: always for floats; for integers when every partial
 * sum stays below 2^53, which the actual elements decide. Then it is exact, and faster.
 */
bool eval_gemm_in_f64(const struct ir_tensor *a, const struct ir_tensor *w, int64_t k);

#endif
