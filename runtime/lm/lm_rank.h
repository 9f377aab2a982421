// SPDX-License-Identifier: Apache-2.0
/* Rerankers: a question and a document as the model was trained to see them together, and what its number means. */
#ifndef INFC_RUNTIME_LM_RANK_H
#define INFC_RUNTIME_LM_RANK_H

#include "runtime/lm/lm_text.h"

struct lm_text_view {
    const char *s;
    size_t n;
};

/*
 * Tokens for free(). By the model's template "rerank", if it has one, in which {query} and {document} stand for the texts: what these
 * say is never a control token, else a document could end its place and speak for the model. Else as a pair with the tokens around
 * that the vocabulary wants.
 */
int lm_rank_encode(const struct lm_text *t, struct lm_text_view query, struct lm_text_view document, uint32_t **out_ids, size_t *out_n,
                   struct infr_status *st);

/* Probabilities are asked for where nobody says otherwise. */
static inline bool lm_rank_is_odds(const struct lm_text *t) { return t->h.flags & INFR_TEXT_ODDS; }
double lm_rank_probability(double score);

#endif
