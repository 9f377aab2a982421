// SPDX-License-Identifier: Apache-2.0
/*
 * Double-array trie. Nodes are placed breadth first; a place for the children of a node is searched
 * from where the array begins to be sparse, and after FIND_LIMIT attempts taken at the end, so that
 * building stays linear in the number of nodes whatever the keys are.
 */
#include <stdlib.h>
#include <string.h>

#include "compiler/tok/blob.h"

#define FIND_LIMIT 2000u

uint32_t tok_bytes_add(struct arena *a, struct tok_bytes *b, const void *src, size_t n,
                       size_t align)
{
    size_t at = (b->n + align - 1) / align * align, end = at + n;
    while (end > b->cap) b->v = arena_grow(a, b->v, &b->cap, 1);
    if (at > b->n) memset(b->v + b->n, 0, at - b->n);
    if (n > 0) {
        if (src != NULL)
            memcpy(b->v + at, src, n);
        else
            memset(b->v + at, 0, n);
    }
    b->n = end;
    return (uint32_t)at;
}

struct trie {
    struct arena *arena;
    const struct trie_key *keys;
    VEC(struct tok_unit) units;
    uint32_t sparse_from; /* below it hardly anything is free */
};

struct pending { /* the keys [lo, hi) share `depth` bytes and lead to unit `at` */
    uint32_t at, depth;
    size_t lo, hi;
};

static int by_bytes(const void *pa, const void *pb)
{
    const struct trie_key *a = pa, *b = pb;
    uint32_t n = a->len < b->len ? a->len : b->len;
    int c = n > 0 ? memcmp(a->p, b->p, n) : 0;
    if (c != 0) return c;
    if (a->len != b->len) return a->len < b->len ? -1 : 1;
    return a->value < b->value ? -1 : a->value > b->value;
}

static bool is_free(const struct trie *t, uint32_t u)
{
    return u >= t->units.n || t->units.v[u].check == TOK_NONE;
}

static void reach(struct trie *t, uint32_t u)
{
    while (t->units.n <= u) vec_push(t->arena, &t->units, ((struct tok_unit){0, TOK_NONE}));
}

/* A base such that base + label is free for each label (ascending). */
static uint32_t find_base(struct trie *t, const uint16_t *labels, unsigned n)
{
    uint32_t first = labels[0], taken = 0,
             from = t->sparse_from > first ? t->sparse_from : first + 1;
    for (uint32_t pos = from;; pos++) {
        bool fits = is_free(t, pos);
        taken += !fits;
        for (unsigned i = 1; i < n && fits; i++) fits = is_free(t, pos - first + labels[i]);
        if (!fits && pos - from < FIND_LIMIT) continue;
        if (!fits) pos = (uint32_t)t->units.n + first;
        if (taken * 20 >= (pos - from + 1) * 19 || pos - from >= FIND_LIMIT) t->sparse_from = pos;
        return pos - first;
    }
}

/* The next label of a key at a depth: 0 at its end. */
static uint16_t label_at(const struct trie_key *k, uint32_t depth)
{
    return depth < k->len ? (uint16_t)(k->p[depth] + 1) : 0;
}

void tok_trie_build(struct arena *a, struct trie_key *keys, size_t n_keys, struct tok_bytes *out)
{
    struct trie t = {.arena = a, .keys = keys, .sparse_from = 1};
    VEC(struct pending) queue = {0};
    if (n_keys > 1) qsort(keys, n_keys, sizeof keys[0], by_bytes);
    size_t lo = 0;
    while (lo < n_keys && keys[lo].len == 0) lo++;
    if (lo == n_keys) return;
    reach(&t, 0);
    t.units.v[0].check = 0;
    vec_push(a, &queue, ((struct pending){0, 0, lo, n_keys}));
    for (size_t q = 0; q < queue.n; q++) {
        struct pending node = queue.v[q];
        uint16_t labels[257];
        unsigned n = 0;
        for (size_t i = node.lo; i < node.hi; i++) {
            uint16_t l = label_at(&keys[i], node.depth);
            if (n == 0 || labels[n - 1] != l) labels[n++] = l;
        }
        uint32_t base = find_base(&t, labels, n);
        t.units.v[node.at].base = base;
        size_t i = node.lo;
        for (unsigned k = 0; k < n; k++) {
            size_t begin = i;
            while (i < node.hi && label_at(&keys[i], node.depth) == labels[k]) i++;
            uint32_t u = base + labels[k];
            reach(&t, u);
            t.units.v[u].check = node.at;
            if (labels[k] == 0)
                t.units.v[u].base = keys[begin].value;
            else
                vec_push(a, &queue, ((struct pending){u, node.depth + 1, begin, i}));
        }
    }
    tok_bytes_add(a, out, t.units.v, t.units.n * sizeof t.units.v[0], 8);
}
