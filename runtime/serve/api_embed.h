// SPDX-License-Identifier: Apache-2.0
/* Requests whose texts go through an encoder: embeddings, and scores of /v1/rerank. */
#ifndef INFC_RUNTIME_SERVE_API_EMBED_H
#define INFC_RUNTIME_SERVE_API_EMBED_H

#include "runtime/serve/api.h"

enum { MAX_TEXTS = 2048 };

struct embed_call {
    struct server *s;
    struct http_conn *c; /* NULL: the peer is gone */
    struct serve_payer payer;
    struct jinja_arena *arena; /* of the body */
    struct work_job *jobs;
    struct work_job **list;
    float *vectors; /* [n][embedding_dims] */
    uint32_t **ids;
    uint32_t n, n_live;
    uint64_t n_tokens; /* of texts that are done */
    bool failed;
    void (*reply)(struct embed_call *e);
    bool base64; /* of embeddings */
    /* of scores: */
    const struct jinja_value *documents; /* [n], in the arena */
    uint32_t top_n;
    bool bare, with_texts, sigmoid; /* bare: a list alone */
};

/* Reads the body; ranks: for scores. NULL: replied. */
struct embed_call *embed_begin(struct server *s, struct http_conn *c, bool ranks, struct jinja_value *body);
/* Room for n texts. False: replied. */
bool embed_open(struct embed_call *e, uint32_t n);
/* Text `at` has these n ids, memory for free() that is e's from now on. field: of the request. False: replied. */
bool embed_set(struct embed_call *e, uint32_t at, uint32_t *ids, size_t n, const char *field);
/* Gives it to the worker, or replies; e is no longer the caller's. */
void embed_submit(struct embed_call *e);
void embed_destroy(struct embed_call *e);
/* "model" of the request. False: replied. */
bool embed_model(struct embed_call *e, const struct jinja_value *v);
bool embed_unknown(struct embed_call *e, const struct jinja_value *key);

#endif
