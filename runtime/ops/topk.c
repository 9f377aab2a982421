// SPDX-License-Identifier: Apache-2.0
/*
 * The k best of each row, in order. The indices' place in the output holds a heap of the best k so
 * far, the worst on top; sorting it in place leaves the result, so that no other memory is needed.
 */
#include "runtime/ops/element.h"

/* An unsigned number that grows with rank among values: greater is better. */
OP_INLINE uint64_t key_of(enum dtype d, bool largest, const void *x, int64_t i)
{
    uint64_t key;
    if (op_is_float(d)) {
        double v = load_float(d, x, i) + 0.0; /* one zero */
        memcpy(&key, &v, 8);
        key = v != v ? UINT64_MAX : key >> 63 ? ~key : key | UINT64_C(1) << 63;
    } else {
        key = load_int(d, x, i);
        if (!op_is_unsigned(d)) key ^= UINT64_C(1) << 63;
    }
    return largest ? key : ~key;
}

struct row {
    const void *x;
    int64_t x_first, stride; /* of x's row and of the outputs' */
    int64_t *index;
};

/* Does element a rank behind b? */
OP_INLINE bool behind(enum dtype d, bool largest, const struct row *r, int64_t a, int64_t b)
{
    uint64_t ka = key_of(d, largest, r->x, r->x_first + a * r->stride),
             kb = key_of(d, largest, r->x, r->x_first + b * r->stride);
    return ka != kb ? ka < kb : a > b;
}

/* Restores the heap of n below `at`. */
OP_INLINE void sift(enum dtype d, bool largest, const struct row *r, int64_t at, int64_t n)
{
    int64_t s = r->stride, moved = r->index[at * s];
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= n) break;
        if (child + 1 < n && behind(d, largest, r, r->index[(child + 1) * s], r->index[child * s]))
            child++;
        if (!behind(d, largest, r, r->index[child * s], moved)) break;
        r->index[at * s] = r->index[child * s];
        at = child;
    }
    r->index[at * s] = moved;
}

OP_INLINE void topk_row(enum dtype d, bool largest, const struct row *r, int64_t n, int64_t k)
{
    int64_t s = r->stride;
    for (int64_t i = 0; i < k; i++) r->index[i * s] = i;
    for (int64_t i = k / 2; i-- > 0;) sift(d, largest, r, i, k);
    for (int64_t i = k; i < n; i++) {
        if (!behind(d, largest, r, r->index[0], i)) continue;
        r->index[0] = i;
        sift(d, largest, r, 0, k);
    }
    for (int64_t end = k - 1; end > 0; end--) { /* the worst goes to the end */
        int64_t worst = r->index[0];
        r->index[0] = r->index[end * s];
        r->index[end * s] = worst;
        sift(d, largest, r, 0, end);
    }
}

OP_INLINE void topk(enum dtype d, void *const *bufs, const int64_t *dims, int64_t begin,
                    int64_t end)
{
    int64_t n = dims[1], inner = dims[2], k = dims[3], bytes = op_bytes(d);
    if (k == 0) return;
    for (int64_t i = begin; i < end; i++) {
        int64_t outer = i / inner, column = i % inner, out_first = outer * k * inner + column;
        struct row r = {bufs[0], outer * n * inner + column, inner, (int64_t *)bufs[2] + out_first};
        if (dims[4]) topk_row(d, true, &r, n, k);
        else topk_row(d, false, &r, n, k);
        for (int64_t j = 0; j < k; j++)
            memcpy((char *)bufs[1] + (out_first + j * inner) * bytes,
                   (const char *)bufs[0] + (r.x_first + r.index[j * inner] * inner) * bytes,
                   (size_t)bytes);
    }
}

#define TOPK(t, id)                                                                           \
    void infr_op_topk_##t(void *const *bufs, const int64_t *dims, int64_t begin, int64_t end, \
                          void *scratch)                                                      \
    {                                                                                         \
        (void)scratch;                                                                        \
        topk(id, bufs, dims, begin, end);                                                     \
    }
INFR_LIB_DTYPES(TOPK)
