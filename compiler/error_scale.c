// SPDX-License-Identifier: Apache-2.0
#include "compiler/error_scale.h"

#include <math.h>

#define FEW_ELEMENTS 16

double tensor_element(const struct ir_tensor *t, int64_t i)
{
    size_t size = dtype_bytes(t->dtype);
    struct ir_const c = {.data = (const char *)t->data + (size_t)i * size, .n_bytes = size, .type = {.dtype = t->dtype}};
    double f = 0;
    int64_t v = 0;
    if (dtype_is_float(t->dtype)) ir_const_get_float(&c, 0, &f);
    else if (ir_const_get_int(&c, 0, &v)) f = (double)v;
    return f;
}

double error_scale(const struct ir_tensor *t)
{
    int64_t n = 1, finite = 0;
    for (int i = 0; i < t->rank; i++) n *= t->dims[i];
    double mean = 0, spread = 0, top = 0; /* Welford's update: no cancellation where all are nearly equal */
    for (int64_t i = 0; i < n; i++) {
        double x = tensor_element(t, i);
        if (!isfinite(x)) continue;
        double d = x - mean;
        mean += d / (double)++finite;
        spread += d * (x - mean);
        if (fabs(x) > top) top = fabs(x);
    }
    double std = finite ? sqrt(spread / (double)finite) : 0;
    if (finite < FEW_ELEMENTS || std == 0) return top;
    return std > 1e-3 * top ? std : 1e-3 * top;
}
