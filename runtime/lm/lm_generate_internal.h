// SPDX-License-Identifier: Apache-2.0
/* What the files of generation share: lm_generate.c makes batches, lm_request.c makes answers. */
#ifndef INFC_RUNTIME_LM_GENERATE_INTERNAL_H
#define INFC_RUNTIME_LM_GENERATE_INTERNAL_H

#include "runtime/lm/lm_generate.h"

enum lm_state { LM_WAITING, LM_ACTIVE, LM_DONE };

struct lm_request {
    struct lm_generator *g;
    struct lm_request_desc d; /* pointers into it are not valid any more, but those below */
    struct lm_seq seq;
    struct lm_sampler *sampler;
    struct lm_stop stop;
    struct tok_stream stream;
    uint32_t *banned; /* stop tokens, then those that end generation */
    size_t n_stop_tokens, n_banned;
    struct lm_logprob *top;
    uint32_t *post_tokens; /* [vocab], with post_sampling */
    double *post_probs;
    struct gr_state *grammar; /* after the tokens so far; NULL: none */
    uint64_t *allowed;        /* [vocab bits] */
    enum lm_state state;
    enum lm_finish finish;
    const char *error;
    bool cancel;
    uint32_t n_prompt, n_cached, n_generated;
    uint32_t most_draft; /* tokens of the next one: a power of two */
    uint32_t n_draft; /* tokens behind the sequence's that a grammar will likely have next */
    uint32_t n_thought, n_forced; /* tokens of thinking; of its end that were put in */
    bool thought;                 /* thinking has ended */
    uint32_t n_reported; /* prompt tokens whose log probability was told */
    uint64_t arrival;
    struct lm_request *next; /* waiting, in order of turn */
};

struct entry {
    struct lm_request *r;
    uint32_t begin, end, rows_from, first_row;
};

/* A batch and whose it is. */
struct step {
    struct lm_batch batch;
    struct entry *plan; /* [max_seqs] */
    uint32_t n_plan;
};

struct lm_generator {
    struct lm_model *model;
    const struct tok *tok;
    struct lm_generator_options o;
    struct lm_pages *pages;
    struct step now;
    struct step apart;  /* prompts in a batch of their own that goes on over steps; a request that left it is NULL there */
    bool begun;         /* the model has seen that batch */
    uint32_t *pinned, n_pinned; /* the pages it writes, which stay held until it ends */
    double slice_s, (*clock)(void); /* clock NULL: answers and prompts are one batch */
    struct lm_draw *draw;
    struct lm_request **active; /* [max_seqs], in order of turn */
    uint32_t n_active, n_waiting;
    uint32_t chunk; /* at most the options' */
    struct lm_request *waiting;
    char *text; /* of an event */
    uint32_t *eog;
    uint32_t n_eog;
    uint64_t arrivals;
    struct lm_counts counts;
};

/* Whose turn is first: by priority, then by arrival. */
static inline bool lm_request_before(const struct lm_request *a, const struct lm_request *b)
{
    if (a->d.priority != b->d.priority) return a->d.priority < b->d.priority;
    return a->arrival < b->arrival;
}

/* Puts it into the list of waiting requests at its turn. */
void lm_generator_wait(struct lm_generator *g, struct lm_request *r);

/* Rows of prompt log probabilities that a step computes at most: they are vocab floats each. */
#define LM_PROMPT_ROWS 64u
/* Tokens of an answer beside the drawn one that a step tries. */
#define LM_MOST_DRAFT 16u

/* Uses the logits of an entry's rows: tells log probabilities, draws, ends the request. */
void lm_request_rows(struct lm_request *r, const struct entry *e, const float *logits);
/* Writes tokens that the grammar forces next behind those of the sequence: at most `most`. */
uint32_t lm_draft(struct lm_request *r, uint32_t most);
/* Ends it with a last event without a token; its pages are given back. */
void lm_request_end(struct lm_request *r, enum lm_finish finish, const char *error);
/* An event of how far the prompt is. */
void lm_request_progress(struct lm_request *r, uint32_t n_computed);
/* Takes it out of the generator's lists. */
void lm_generator_forget(struct lm_generator *g, struct lm_request *r);

#endif
