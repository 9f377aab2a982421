// SPDX-License-Identifier: Apache-2.0
/* What both scatters share. */
#ifndef INFC_RUNTIME_OPS_SCATTER_H
#define INFC_RUNTIME_OPS_SCATTER_H

#include "runtime/ops/element.h"

enum reduction { REDUCE_none, REDUCE_add, REDUCE_mul, REDUCE_min, REDUCE_max };

/* out[at] = out[at] combined with u[from] */
OP_INLINE void combine(enum dtype d, enum reduction r, void *out, int64_t at, const void *u,
                       int64_t from)
{
    if (r == REDUCE_none) {
        memcpy((char *)out + at * op_bytes(d), (const char *)u + from * op_bytes(d),
               (size_t)op_bytes(d));
    } else if (op_is_float(d)) {
        double a = load_float(d, out, at), b = load_float(d, u, from);
        if (r == REDUCE_add) a = a + b;
        else if (r == REDUCE_mul) a = a * b;
        else if (b != b || (r == REDUCE_min ? b < a : b > a))
            a = b; /* a NaN in a stays: no comparison holds */
        store_float(d, out, at, a);
    } else {
        uint64_t a = load_int(d, out, at), b = load_int(d, u, from);
        bool less = op_is_unsigned(d) ? b < a : (int64_t)b < (int64_t)a;
        if (r == REDUCE_add) a += b;
        else if (r == REDUCE_mul) a *= b;
        else if (a != b && less == (r == REDUCE_min)) a = b;
        store_int(d, out, at, a);
    }
}

/* Index i of the list, counted from the front of an axis of n; -1 when out of range. */
OP_INLINE int64_t scatter_index(const void *indices, int64_t index_bytes, int64_t i, int64_t n)
{
    int64_t v = index_bytes == 4 ? ((const int32_t *)indices)[i] : ((const int64_t *)indices)[i];
    if (v < 0) v += n;
    return v >= 0 && v < n ? v : -1;
}

/* Defines infr_op_OP_T_R for all T and R, each calling OP(dtype, reduction, bufs, dims, begin,
 * end). */
#define SCATTER_ONE(op, t, id, r)                                                        \
    void infr_op_##op##_##t##_##r(void *const *bufs, const int64_t *dims, int64_t begin, \
                                  int64_t end, void *scratch)                            \
    {                                                                                    \
        (void)scratch;                                                                   \
        op(id, REDUCE_##r, bufs, dims, begin, end);                                      \
    }
#define SCATTER_ALL(op, t, id)                                                          \
    SCATTER_ONE(op, t, id, none)                                                        \
    SCATTER_ONE(op, t, id, add) SCATTER_ONE(op, t, id, mul) SCATTER_ONE(op, t, id, min) \
        SCATTER_ONE(op, t, id, max)

#endif
