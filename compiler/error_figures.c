// SPDX-License-Identifier: Apache-2.0
#include "compiler/error_figures.h"

#include <math.h>

#include "compiler/error_scale.h"

struct error_figures error_figures(const struct ir_tensor *want, const struct ir_tensor *got)
{
    struct error_figures e = {.comparable = want->dtype == got->dtype && want->rank == got->rank};
    int64_t n = 1;
    for (int k = 0; e.comparable && k < want->rank; k++) e.comparable = want->dims[k] == got->dims[k], n *= want->dims[k];
    if (!e.comparable) return e;
    double sum2 = 0, noise = 0, dot = 0, got2 = 0, scale = error_scale(want);
    for (int64_t i = 0; i < n; i++) {
        double a = tensor_element(want, i), b = tensor_element(got, i), d = fabs(a - b);
        if ((isnan(a) && isnan(b)) || a == b) d = 0;
        else if (isnan(a) || isnan(b)) d = (double)INFINITY;
        if (d > e.max_abs) e.max_abs = d;
        if (!isfinite(a) || !isfinite(b)) continue;
        sum2 += a * a, noise += d * d, dot += a * b, got2 += b * b;
    }
    e.relative = e.max_abs == 0 ? 0 : scale > 0 ? e.max_abs / scale : (double)INFINITY;
    e.sqnr_db = noise > 0 ? 10 * log10(sum2 / noise) : (double)INFINITY;
    e.cosine = sum2 > 0 && got2 > 0 ? dot / sqrt(sum2 * got2) : sum2 == got2;
    return e;
}
