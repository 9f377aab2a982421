// SPDX-License-Identifier: Apache-2.0
/*
 * Offsets of arena buffers by first fit, shared by the compiler's report and the runtime. Buffers are placed in order of
 * decreasing size (ties: lower number first), each at the lowest 64-byte aligned offset where it overlaps no placed buffer whose
 * lifetime [first, last] intersects its own. O(n^2) in the number of buffers; done once a shape.
 */
#ifndef INFC_RUNTIME_ABI_FIRST_FIT_H
#define INFC_RUNTIME_ABI_FIRST_FIT_H

#include <stddef.h>
#include <stdint.h>

struct infr_placement {
    uint64_t bytes;       /* in */
    uint32_t first, last; /* in */
    uint64_t offset;      /* out */
};

/*
 * order and placed: n entries of scratch each. Returns the arena size, or UINT64_MAX on overflow.
 */
static inline uint64_t infr_first_fit(struct infr_placement *b, size_t n, uint32_t *order, uint32_t *placed)
{
    for (size_t i = 0; i < n; i++) { /* insertion sort by size: n is a few hundred */
        size_t j = i;
        for (; j > 0 && b[order[j - 1]].bytes < b[i].bytes; j--) order[j] = order[j - 1];
        order[j] = (uint32_t)i;
    }
    uint64_t total = 0;
    size_t n_placed = 0; /* placed[] is kept sorted by offset */
    for (size_t i = 0; i < n; i++) {
        struct infr_placement *x = &b[order[i]];
        if (x->bytes > UINT64_MAX / 2) return UINT64_MAX;
        uint64_t at = 0;
        for (size_t j = 0; j < n_placed; j++) {
            const struct infr_placement *y = &b[placed[j]];
            if (y->last < x->first || x->last < y->first || y->bytes == 0) continue;
            if (x->bytes <= y->offset && at <= y->offset - x->bytes) break;
            uint64_t end = (y->offset + y->bytes + 63) & ~(uint64_t)63;
            if (end > at) at = end;
        }
        x->offset = at;
        if (at > UINT64_MAX / 2) return UINT64_MAX;
        if (at + x->bytes > total) total = at + x->bytes;
        size_t j = n_placed++;
        for (; j > 0 && b[placed[j - 1]].offset > at; j--) placed[j] = placed[j - 1];
        placed[j] = order[i];
    }
    return total;
}

#endif
