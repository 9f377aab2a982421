// SPDX-License-Identifier: Apache-2.0
/* A slice is 16 columns of the inner block: each worker makes all updates, in order, but only to
 * its own columns. */
#include "runtime/ops/scatter.h"

/* Row that tuple t names; -1 when one of its indices is out of range. */
OP_INLINE int64_t tuple_row(const void *indices, int64_t index_bytes, int64_t depth, int64_t t,
                            const int64_t *x_dims)
{
    int64_t row = 0;
    for (int64_t a = 0; a < depth; a++) {
        int64_t i = scatter_index(indices, index_bytes, t * depth + a, x_dims[a]);
        if (i < 0) return -1;
        row = row * x_dims[a] + i;
    }
    return row;
}

OP_INLINE void scatter_nd(enum dtype d, enum reduction r, void *const *bufs, const int64_t *dims,
                          int64_t begin, int64_t end)
{
    int64_t index_bytes = dims[0], depth = dims[1], tuples = dims[2], inner = dims[3], rows = 1,
            bytes = op_bytes(d);
    const int64_t *x_dims = dims + 4;
    int64_t from = begin * INFR_LIB_SCATTER_ND_COLUMNS, to = end * INFR_LIB_SCATTER_ND_COLUMNS;
    if (to > inner) to = inner;
    if (from >= to) return;
    for (int64_t a = 0; a < depth; a++) rows *= x_dims[a];
    if (bufs[3] != bufs[0])
        for (int64_t row = 0; row < rows; row++)
            memcpy((char *)bufs[3] + (row * inner + from) * bytes,
                   (const char *)bufs[0] + (row * inner + from) * bytes,
                   (size_t)((to - from) * bytes));
    for (int64_t t = 0; t < tuples; t++) {
        int64_t row = tuple_row(bufs[1], index_bytes, depth, t, x_dims);
        for (int64_t c = from; row >= 0 && c < to; c++)
            combine(d, r, bufs[3], row * inner + c, bufs[2], t * inner + c);
    }
}

#define DEFINE(t, id) SCATTER_ALL(scatter_nd, t, id)
INFR_LIB_DTYPES(DEFINE)
