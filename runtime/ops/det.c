// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/element.h"

static double magnitude(double v) { return v < 0 ? -v : v; }

/* Elimination; a is destroyed. */
static double determinant(double *a, int64_t n)
{
    double det = 1;
    for (int64_t k = 0; k < n; k++) {
        int64_t pivot = k;
        for (int64_t i = k + 1; i < n; i++)
            if (magnitude(a[i * n + k]) > magnitude(a[pivot * n + k])) pivot = i;
        if (pivot != k) {
            det = -det;
            for (int64_t j = k; j < n; j++) {
                double t = a[k * n + j];
                a[k * n + j] = a[pivot * n + j];
                a[pivot * n + j] = t;
            }
        }
        if (a[k * n + k] == 0) return 0;
        det *= a[k * n + k];
        for (int64_t i = k + 1; i < n; i++) {
            double f = a[i * n + k] / a[k * n + k];
            for (int64_t j = k + 1; j < n; j++) a[i * n + j] -= f * a[k * n + j];
        }
    }
    return det;
}

OP_INLINE void det_all(enum dtype d, void *const *bufs, const int64_t *dims, int64_t begin,
                       int64_t end)
{
    int64_t n = dims[1];
    for (int64_t m = begin; m < end; m++) {
        double *a = (double *)bufs[2] + m * n * n;
        for (int64_t i = 0; i < n * n; i++) a[i] = load_float(d, bufs[0], m * n * n + i);
        store_float(d, bufs[1], m, determinant(a, n));
    }
}

#define DET(t, id)                                                                           \
    void infr_op_det_##t(void *const *bufs, const int64_t *dims, int64_t begin, int64_t end, \
                         void *scratch)                                                      \
    {                                                                                        \
        (void)scratch;                                                                       \
        det_all(id, bufs, dims, begin, end);                                                 \
    }
DET(f64, DT_F64)
DET(f32, DT_F32)
DET(f16, DT_F16)
DET(bf16, DT_BF16)
