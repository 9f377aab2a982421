// SPDX-License-Identifier: Apache-2.0
/*
 * What generation asks of a model: one function over ragged batches, and a few numbers.
 * lm_model_open makes one from an engine; tests make their own.
 */
#ifndef INFC_RUNTIME_LM_MODEL_H
#define INFC_RUNTIME_LM_MODEL_H

#include "runtime/abi/text_format.h"
#include "runtime/lm/lm_batch.h"

struct lm_output {
    const float *logits;     /* [n_rows, vocab], or NULL */
    const float *embeddings; /* [n_rows, embedding_dims], or NULL */
};

struct lm_model {
    uint32_t vocab;          /* columns of the logits; 0: none */
    uint32_t embedding_dims; /* 0: none */
    uint32_t page_tokens;    /* 0: no KV cache; a prompt is fed whole */
    uint32_t n_pages;        /* of the KV cache: see lm_model_set_pages */
    uint32_t window, ctx_train;
    uint64_t page_bytes; /* of the KV cache, all layers */
    bool causal;
    enum infr_text_pooling pooling;
    /* Runs the batch; the output's memory is the model's and holds until the next call. */
    int (*forward)(struct lm_model *m, const struct lm_batch *b, struct lm_output *out,
                   struct infr_status *st);
    /*
     * The same in parts, with forward in between: begins with b, or goes on (b is NULL) with the batch of the call before, until the
     * clock (ns of CLOCK_MONOTONIC; 0: to the end). *done: the output is there; else the batch and the pages it writes must stay as they
     * are until it is, or until another one is begun, which drops it. NULL: the model does batches whole.
     */
    int (*advance)(struct lm_model *m, const struct lm_batch *b, uint64_t until, bool *done, struct lm_output *out,
                   struct infr_status *st);
    void (*destroy)(struct lm_model *m);
};

struct infr_engine;

/*
 * The model of an engine with a text section. The KV cache is sized by lm_model_set_pages, before
 * the first forward; its memory is the system's until a page is first written to.
 */
int lm_model_open(struct infr_engine *e, const struct infr_text_header *text, struct lm_model **out,
                  struct infr_status *st);
int lm_model_set_pages(struct lm_model *m, uint32_t n_pages, struct infr_status *st);
/* The session behind a model of lm_model_open. */
struct infr_session *lm_model_session(struct lm_model *m);
void lm_model_destroy(struct lm_model *m);

#endif
