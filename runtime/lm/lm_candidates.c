// SPDX-License-Identifier: Apache-2.0
/* Candidates sorted as far as needed: a heap sort that stops. n to build, log n each. */
#include <math.h>

#include "runtime/lm/lm_sampler_internal.h"

static inline bool before(const struct cand *a, const struct cand *b, bool by_key)
{
    if (by_key) return a->p > b->p || (a->p == b->p && a->id < b->id);
    return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

static void sift(struct cand *v, uint32_t n, uint32_t i, bool by_key)
{
    struct cand x = v[i];
    for (uint32_t kid; (kid = 2 * i + 1) < n; i = kid) {
        if (kid + 1 < n && before(&v[kid + 1], &v[kid], by_key)) kid++;
        if (!before(&v[kid], &x, by_key)) break;
        v[i] = v[kid];
    }
    v[i] = x;
}

void cands_set(struct cands *c, struct cand *v, uint32_t n) { *c = (struct cands){.v = v, .n = n}; }

void cands_sort(struct cands *c, uint32_t k)
{
    if (k > c->n) k = c->n;
    if (k <= c->n_sorted) return;
    uint32_t heap = c->n - c->n_sorted;
    if (!c->heaped)
        for (uint32_t i = heap / 2; i-- > 0;) sift(c->v, heap, i, c->by_key);
    c->heaped = true;
    while (c->n_sorted < k) {
        struct cand best = c->v[0];
        heap--;
        c->v[0] = c->v[heap];
        sift(c->v, heap, 0, c->by_key);
        c->v[heap] = best;
        c->n_sorted++;
    }
}

void cands_reorder(struct cands *c, bool by_key)
{
    c->n_sorted = 0;
    c->heaped = false;
    c->by_key = by_key;
}

void cands_keep(struct cands *c, uint32_t k)
{
    c->v += c->n - k;
    c->n = c->n_sorted = k;
    c->heaped = true;
}

/* v[0..k) as a heap with the worst on top: every other logit is compared with that alone. */
void cands_take(struct cands *c, struct cand *v, uint32_t k, const float *logits, uint32_t n)
{
    uint32_t kept = 0;
    float least = -INFINITY;
    for (uint32_t id = 0; id < n; id++) {
        if (logits[id] <= least) continue; /* of equal ones the first stays */
        struct cand x = {logits[id], id, 0};
        uint32_t i = 0;
        if (kept < k) {
            for (i = kept++; i && before(&v[(i - 1) / 2], &x, false); i = (i - 1) / 2)
                v[i] = v[(i - 1) / 2];
        } else {
            for (uint32_t kid; (kid = 2 * i + 1) < k; i = kid) {
                if (kid + 1 < k && before(&v[kid], &v[kid + 1], false)) kid++;
                if (!before(&x, &v[kid], false)) break;
                v[i] = v[kid];
            }
        }
        v[i] = x;
        if (kept == k) least = v[0].logit;
    }
    cands_set(c, v, kept);
    cands_sort(c, kept);
}
