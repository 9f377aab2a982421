// SPDX-License-Identifier: Apache-2.0
/* Embeddings: a text's tokens through the model, its rows pooled into one vector. */
#ifndef INFC_RUNTIME_LM_EMBED_H
#define INFC_RUNTIME_LM_EMBED_H

#include "runtime/lm/lm_model.h"

struct lm_embedder {
    struct lm_model *model;
    struct lm_pages *pages;
    struct lm_seq seq;
    struct lm_batch batch;
    uint32_t n_ctx, chunk;
    double *sum; /* [embedding_dims] */
};

/* Texts of up to n_ctx tokens. chunk: tokens a call; a model that is not causal gets texts whole.
 */
int lm_embedder_init(struct lm_embedder *e, struct lm_model *model, uint32_t n_ctx, uint32_t chunk,
                     struct infr_status *st);
void lm_embedder_deinit(struct lm_embedder *e);
/* The vector of n tokens into out[embedding_dims]. pooling: MEAN, CLS (the first row), LAST, or RANK: the
 * first row, of a causal model the last one, which is a score. */
int lm_embedder_run(struct lm_embedder *e, const uint32_t *ids, uint32_t n,
                    enum infr_text_pooling pooling, bool normalize, float *out,
                    struct infr_status *st);

#endif
