// SPDX-License-Identifier: Apache-2.0
/*
 * A model for tests of generation. Its "keys and values" are the tokens themselves with their
 * positions, in pages as the generator places them; a row's logits are made from a hash of all that
 * the row sees through its page table. So they are right only if every page, slot and position is.
 * fake_logits says from a plain list of tokens what they must be.
 */
#ifndef INFC_TESTS_LM_FAKE_MODEL_H
#define INFC_TESTS_LM_FAKE_MODEL_H

#include <stdlib.h>
#include <string.h>

#include "runtime/lm/lm_model.h"

struct fake_model {
    struct lm_model m;
    uint64_t *cache; /* [n_pages * page_tokens]: position << 32 | token */
    float *logits;
    uint64_t calls;
    uint32_t most_rows, most_tokens;
    int fail_at; /* call number that fails; 0: none */
    /* Batches in parts (fake_in_parts): so many tokens a call reach the cache, the rest waits. */
    uint32_t per_part, at;
    const struct lm_batch *parted;
    float *parted_logits;
};

static inline uint64_t fake_mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * 0xff51afd7ed558ccdull;
    return h ^ h >> 29;
}

/* Token i gets a logit in [-6, 6), some tokens more than others. */
static inline void fake_row(uint64_t h, uint32_t vocab, float *out)
{
    for (uint32_t i = 0; i < vocab; i++) {
        h = h * 6364136223846793005ull + 1442695040888963407ull;
        out[i] = (float)(h >> 40) / (float)(1 << 24) * 12 - 6;
    }
}

static inline void fake_logits(const struct lm_model *m, const uint32_t *tokens, uint32_t n,
                               float *out)
{
    uint64_t h = 1;
    uint32_t from = m->window && n > m->window ? n - m->window : 0;
    for (uint32_t i = from; i < n; i++) h = fake_mix(h, (uint64_t)i << 32 | tokens[i]);
    fake_row(h, m->vocab, out);
}

static inline void fake_write(struct fake_model *f, const struct lm_batch *b, uint32_t begin, uint32_t end)
{
    for (uint32_t t = begin; t < end; t++)
        f->cache[b->slots[t]] = (uint64_t)b->positions[t] << 32 | (uint32_t)b->tokens[t];
}

static inline void fake_rows(const struct fake_model *f, const struct lm_batch *b, float *logits)
{
    const struct lm_model *m = &f->m;
    uint32_t P = m->page_tokens;
    for (uint32_t row = 0; row < b->n_rows; row++) {
        int32_t t = b->logit_rows[row], at = b->positions[t];
        const int32_t *table = b->page_table + (size_t)b->seq_of[t] * b->width;
        int32_t from = m->window && at >= (int32_t)m->window ? at - (int32_t)m->window + 1 : 0;
        uint64_t h = 1;
        for (int32_t i = from; i <= at; i++)
            h = fake_mix(h, f->cache[(size_t)table[i / (int32_t)P] * P + (uint32_t)i % P]);
        fake_row(h, m->vocab, logits + (size_t)row * m->vocab);
    }
}

static inline int fake_forward(struct lm_model *m, const struct lm_batch *b, struct lm_output *out,
                               struct infr_status *st)
{
    struct fake_model *f = (struct fake_model *)m;
    (void)st;
    if (f->fail_at && (int)++f->calls == f->fail_at) return INFR_ENVIRONMENT;
    if (b->n_rows > f->most_rows) {
        f->most_rows = b->n_rows;
        free(f->logits);
        f->logits = malloc((size_t)b->n_rows * m->vocab * sizeof *f->logits);
    }
    if (b->n_tokens > f->most_tokens) f->most_tokens = b->n_tokens;
    fake_write(f, b, 0, b->n_tokens);
    fake_rows(f, b, f->logits);
    out->logits = f->logits;
    return INFR_OK;
}

/* The whole batch where there is no time to stop at. */
static inline int fake_advance(struct lm_model *m, const struct lm_batch *b, uint64_t until, bool *done, struct lm_output *out,
                               struct infr_status *st)
{
    struct fake_model *f = (struct fake_model *)m;
    (void)st;
    if (b) f->parted = b, f->at = 0;
    *done = false;
    if (f->fail_at && (int)++f->calls == f->fail_at) return INFR_ENVIRONMENT;
    uint32_t n = f->parted->n_tokens, end = until && n - f->at > f->per_part ? f->at + f->per_part : n;
    fake_write(f, f->parted, f->at, end);
    f->at = end;
    if (end < n) return INFR_OK;
    free(f->parted_logits);
    f->parted_logits = malloc((size_t)(f->parted->n_rows + 1) * m->vocab * sizeof(float));
    fake_rows(f, f->parted, f->parted_logits);
    out->logits = f->parted_logits;
    *done = true;
    return INFR_OK;
}

static inline void fake_init(struct fake_model *f, uint32_t vocab, uint32_t n_pages,
                             uint32_t page_tokens, uint32_t window)
{
    *f = (struct fake_model){.m = {.vocab = vocab,
                                   .page_tokens = page_tokens,
                                   .n_pages = n_pages,
                                   .window = window,
                                   .causal = true,
                                   .forward = fake_forward}};
    f->cache = calloc((size_t)n_pages * page_tokens, sizeof *f->cache);
}

static inline void fake_in_parts(struct fake_model *f, uint32_t tokens)
{
    f->m.advance = fake_advance;
    f->per_part = tokens;
}

static inline void fake_deinit(struct fake_model *f)
{
    free(f->parted_logits);
    free(f->cache);
    free(f->logits);
}

#endif
