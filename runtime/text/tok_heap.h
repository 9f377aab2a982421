// SPDX-License-Identifier: Apache-2.0
/*
 * Priority queue of merge candidates: 64-bit keys, the smallest first. A key is the candidate's
 * order in its upper half and its place in the text in its lower, so that of equal candidates the
 * leftmost comes first. Four children a node: half the depth of a binary heap, and a node's
 * children share a cache line.
 */
#ifndef INFC_RUNTIME_TEXT_TOK_HEAP_H
#define INFC_RUNTIME_TEXT_TOK_HEAP_H

#include <stddef.h>
#include <stdint.h>

struct tok_heap {
    uint64_t *v;
    size_t n;
};

static inline uint64_t tok_heap_key(uint32_t order, uint32_t at)
{
    return (uint64_t)order << 32 | at;
}

static inline void tok_heap_push(struct tok_heap *h, uint64_t key)
{
    size_t i = h->n++;
    while (i > 0 && key < h->v[(i - 1) / 4]) {
        h->v[i] = h->v[(i - 1) / 4];
        i = (i - 1) / 4;
    }
    h->v[i] = key;
}

/* The hole left by the root sinks to a leaf, then the last key rises from there: it came from a
 * leaf, and nearly always stays low. */
static inline uint64_t tok_heap_pop(struct tok_heap *h)
{
    uint64_t top = h->v[0], last = h->v[--h->n];
    size_t i = 0;
    for (;;) {
        size_t kid = 4 * i + 1, best = kid;
        if (kid >= h->n) break;
        size_t end = kid + 4 < h->n ? kid + 4 : h->n;
        for (size_t k = kid + 1; k < end; k++)
            if (h->v[k] < h->v[best]) best = k;
        h->v[i] = h->v[best];
        i = best;
    }
    while (i > 0 && last < h->v[(i - 1) / 4]) {
        h->v[i] = h->v[(i - 1) / 4];
        i = (i - 1) / 4;
    }
    h->v[i] = last;
    return top;
}

#endif
