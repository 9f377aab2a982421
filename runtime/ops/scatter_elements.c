// SPDX-License-Identifier: Apache-2.0
/* A slice is one combination of coordinates before the axis: a contiguous block of x, which no
 * other slice's updates reach. */
#include "runtime/infr.h"
#include "runtime/ops/scatter.h"

/* Where block o of x lies among the blocks of the indices; -1 when beyond them. */
OP_INLINE int64_t index_block(int64_t o, int64_t axis, const int64_t *x_dims, const int64_t *i_dims)
{
    int64_t block = 0, stride = 1;
    for (int64_t a = axis; a-- > 0;) {
        int64_t at = o % x_dims[a];
        o /= x_dims[a];
        if (at >= i_dims[a]) return -1;
        block += at * stride;
        stride *= i_dims[a];
    }
    return block;
}

OP_INLINE void scatter_elements(enum dtype d, enum reduction r, void *const *bufs,
                                const int64_t *dims, int64_t begin, int64_t end)
{
    int64_t index_bytes = dims[0], rank = dims[1], axis = dims[2], inner = 1, i_inner = 1;
    const int64_t *x_dims = dims + 3, *i_dims = dims + 3 + rank;
    for (int64_t a = axis + 1; a < rank; a++) inner *= x_dims[a], i_inner *= i_dims[a];
    int64_t n = x_dims[axis], block = n * inner, i_block = i_dims[axis] * i_inner;
    if (bufs[3] != bufs[0] && begin < end && block)
        memcpy((char *)bufs[3] + begin * block * op_bytes(d),
               (const char *)bufs[0] + begin * block * op_bytes(d),
               (size_t)((end - begin) * block * op_bytes(d)));
    if (!i_block) return;
    for (int64_t o = begin; o < end; o++) {
        int64_t first = index_block(o, axis, x_dims, i_dims), at[INFR_MAX_RANK] = {0}, offset = 0;
        if (first < 0) continue;
        first *= i_block;
        for (int64_t i = 0; i < i_block;
             i++) { /* offset: of the coordinates behind the axis, in x */
            int64_t v = scatter_index(bufs[1], index_bytes, first + i, n);
            if (v >= 0) combine(d, r, bufs[3], o * block + v * inner + offset, bufs[2], first + i);
            int64_t stride = 1;
            for (int64_t a = rank - 1; a > axis; stride *= x_dims[a--]) {
                offset += stride;
                if (++at[a] < i_dims[a]) break;
                offset -= at[a] * stride;
                at[a] = 0;
            }
        }
    }
}

#define DEFINE(t, id) SCATTER_ALL(scatter_elements, t, id)
INFR_LIB_DTYPES(DEFINE)
