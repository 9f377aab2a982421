// SPDX-License-Identifier: Apache-2.0
/* What the sampler's files share. */
#ifndef INFC_RUNTIME_LM_SAMPLER_INTERNAL_H
#define INFC_RUNTIME_LM_SAMPLER_INTERNAL_H

#include "runtime/lm/lm_sampler.h"

struct cand {
    float logit;
    uint32_t id;
    double p; /* probability, or the key of a sort */
};

/*
 * Candidates. The best n_sorted stand at the end, best last; the others before them, as a heap
 * (heaped) or in any order. Sorting is done as far as somebody looks, and taking the best k is
 * moving the beginning.
 */
struct cands {
    struct cand *v;
    uint32_t n, n_sorted;
    bool heaped, by_key;
};

static inline struct cand *cands_at(struct cands *c, uint32_t i) { return &c->v[c->n - 1 - i]; }

void cands_set(struct cands *c, struct cand *v, uint32_t n);
/* The best k of logits[n] by one look at each, sorted, into v[k]; -infinity is left out. */
void cands_take(struct cands *c, struct cand *v, uint32_t k, const float *logits, uint32_t n);
/* Makes the best k (at most n) sorted. */
void cands_sort(struct cands *c, uint32_t k);
/* Forgets any order; by_key: the order from now on is that of the keys, greatest first. */
void cands_reorder(struct cands *c, bool by_key);
/* Keeps the best k, which are sorted. */
void cands_keep(struct cands *c, uint32_t k);

struct lm_draw {
    uint32_t vocab, max_history;
    struct cand *memory; /* [vocab] */
    float *logits;       /* [vocab]: after the links that go by token id */
    uint32_t *counts;    /* [vocab], all 0 between calls */
    uint32_t *lengths;   /* [vocab], likewise */
    uint32_t *z;         /* [max_history] */
};

/* Texts that stop a repetition, prepared for a vocabulary. */
struct lm_breakers {
    const struct tok *tok;
    struct lm_breaker *v;
    size_t n;
    uint8_t *bits; /* 2 a token: ends one by itself; may end one begun before it */
};

int lm_breakers_init(struct lm_breakers *b, const struct lm_sampling *s, const struct tok *tok,
                     struct infr_status *st);
void lm_breakers_deinit(struct lm_breakers *b);

/* Lowers the logits (by token id) of what would continue a repetition. */
void lm_dry_apply(const struct lm_sampling *s, const struct lm_breakers *b, struct lm_draw *d,
                  const uint32_t *history, uint32_t n, float *logits);

#endif
