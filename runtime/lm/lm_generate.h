// SPDX-License-Identifier: Apache-2.0
/*
 * Generation: requests in, tokens and text out, many at a time over one model.
 *
 * A step is one call of the model. Its batch has the next token of every answer that is being
 * written, and then prompt tokens of the oldest prompts, `chunk` tokens in all at most: a long
 * prompt delays running answers by no more than a chunk. When pages run out the youngest request
 * gives its pages back and waits; it is computed again later (mostly from shared pages), and
 * its answer goes on as if nothing had happened: what a request draws depends on its own tokens,
 * seed and place alone.
 *
 * Context full: with LM_FULL_STOP the answer ends there (LM_FINISH_CONTEXT). With LM_FULL_SLIDE the
 * first n_keep tokens stay, half of the rest is dropped, oldest first, and what remains is computed
 * anew at its new positions: exactly as if it had been the prompt. A prompt that does not fit
 * is refused in any case.
 *
 * One thread at a time. Nothing is allocated between submission and the end of a request.
 */
#ifndef INFC_RUNTIME_LM_GENERATE_H
#define INFC_RUNTIME_LM_GENERATE_H

#include "runtime/grammar/grammar.h"
#include "runtime/lm/lm_model.h"
#include "runtime/lm/lm_sampler.h"
#include "runtime/lm/lm_stop.h"

enum lm_finish {
    LM_RUNNING,
    LM_FINISH_EOS,     /* a token that ends generation */
    LM_FINISH_STOP,    /* a stop string or stop token */
    LM_FINISH_LENGTH,  /* max_tokens */
    LM_FINISH_CONTEXT, /* the context is full */
    LM_FINISH_CANCELLED,
    LM_FINISH_ERROR, /* lm_request_error says what */
};

enum lm_on_full { LM_FULL_STOP, LM_FULL_SLIDE };

struct lm_request;

/* One a generated token. Text may belong to earlier tokens too, and may be empty. */
struct lm_event {
    struct lm_request *request;
    uint32_t token; /* LM_NO_TOKEN: none, the request ended without one */
    const char *text;
    size_t n_text;
    float logprob; /* with n_logprobs >= 0 */
    const struct lm_logprob *top;
    uint32_t n_top;
    bool of_prompt; /* a prompt token's log probability, or progress; no text */
    bool progress;  /* no token: so many tokens of the prompt are there, n_cached of them were found */
    uint32_t n_computed, n_cached;
    enum lm_finish finish;
    int stopped; /* number of the stop string that ended the answer, else -1 */
};

typedef void lm_event_fn(void *user, const struct lm_event *e);

#define LM_MAX_MARK 16u

/* Thinking aloud is between the tokens of begin and of end. When it has had its budget, end is written
 * in place of what would be drawn. */
struct lm_thinking {
    bool limited; /* false: nothing of this holds */
    bool open;    /* the prompt ends inside of it */
    uint32_t budget, n_begin, n_end;
    uint32_t begin[LM_MAX_MARK], end[LM_MAX_MARK];
};

struct lm_request_desc {
    const uint32_t *prompt; /* at least one token */
    uint32_t n_prompt;
    uint64_t salt; /* keeps its pages apart from those of other salts */
    int32_t priority; /* lower ones are served first, and take the place of higher ones */
    struct lm_sampling sampling;
    const struct lm_stop_text *stops;
    size_t n_stops;
    bool include_stop;
    const uint32_t *stop_tokens;
    size_t n_stop_tokens;
    uint32_t max_tokens; /* 0: the prompt is computed and nothing drawn */
    uint32_t min_tokens; /* before that nothing ends the answer but max_tokens and the context */
    bool ignore_eos;     /* tokens that end generation are never drawn */
    bool show_special;   /* control tokens are part of the text */
    int n_logprobs;      /* -1: none; else so many alternatives */
    bool post_sampling;  /* log probabilities are those of the draw: what the sampler's chain left */
    bool prompt_logprobs;
    bool report_progress; /* of the prompt: an event when it gets its place and after each step */
    enum lm_on_full on_full;
    uint32_t n_keep;
    /* What the answer must be: a state, which is copied (its grammar must outlive the request), and
     * the vocabulary's trie. The answer ends where the grammar does; min_tokens does not hold then. */
    const struct gr_state *grammar; /* NULL: anything */
    struct gr_vocab *grammar_vocab;
    bool jumps; /* where the grammar forces what follows, a step tries several tokens (lm_jump.c) */
    struct lm_thinking thinking; /* not with a grammar */
    lm_event_fn *on_event; /* may cancel requests, not submit or destroy any */
    void *user;
};

/* No sampling but temperature 1, no limit, no log probabilities. */
void lm_request_desc_init(struct lm_request_desc *d);

struct lm_generator_options {
    uint32_t n_ctx;    /* tokens of one sequence at most */
    uint32_t max_seqs; /* running at a time */
    uint32_t chunk;    /* tokens a step at most, but at least one for each running answer */
    uint64_t hash_seed;
    bool no_sharing; /* prompts are always computed */
    bool keep_others; /* a call of the model that fails ends the requests in it, not all */
};

struct lm_generator;

/* model and tok must outlive it. The model's n_pages must hold n_ctx tokens. */
int lm_generator_create(struct lm_model *model, const struct tok *tok,
                        const struct lm_generator_options *o, struct lm_generator **out,
                        struct infr_status *st);
/* All requests must have been destroyed. */
void lm_generator_destroy(struct lm_generator *g);

/* Would submit take it? Reads nothing that steps change: any thread may ask. */
int lm_generator_check(const struct lm_generator *g, const struct lm_request_desc *d,
                       struct infr_status *st);
/* Copies everything of *d but prompt logic's user pointer. The request is the caller's to destroy.
 */
int lm_generator_submit(struct lm_generator *g, const struct lm_request_desc *d,
                        struct lm_request **out, struct infr_status *st);
/* Takes effect with the next step, with a last event. */
void lm_request_cancel(struct lm_request *r);
void lm_request_destroy(struct lm_request *r);

/* Tokens a step at most from now on: 1 to the options' chunk. Results do not depend on it. */
void lm_generator_set_chunk(struct lm_generator *g, uint32_t chunk);
/*
 * From now on a step calls the model for the next tokens of answers alone, then lets it work for `seconds` on a batch of prompts, which
 * goes on with the next step; longer where there are no answers. clock: seconds, CLOCK_MONOTONIC's for a real model; NULL: answers and
 * prompts are one batch, as from the beginning. Results do not depend on it. False, with nothing changed: the model does batches whole.
 */
bool lm_generator_set_slice(struct lm_generator *g, double seconds, double (*clock)(void));
/* One call of the model. *more false: there is nothing left to do. An error ends all requests, or
 * with keep_others those that the call was for (LM_FINISH_ERROR). */
int lm_generator_step(struct lm_generator *g, bool *more, struct infr_status *st);
/* Steps until there is nothing left to do. */
int lm_generator_run(struct lm_generator *g, struct infr_status *st);

enum lm_finish lm_request_finish(const struct lm_request *r);
const char *lm_request_error(const struct lm_request *r);
/* Of the prompt, found in shared pages, generated. */
void lm_request_usage(const struct lm_request *r, uint32_t *n_prompt, uint32_t *n_cached,
                      uint32_t *n_generated);
/* "stop", "length"...: a word for JSON */
const char *lm_finish_name(enum lm_finish f);

struct lm_counts {
    struct lm_page_counts pages;
    uint64_t steps, tokens_computed, preemptions, slides;
    uint64_t drafted, jumped; /* tokens that grammars forced: tried in a step; that needed none */
    uint32_t running, waiting;
    uint32_t step_tokens, step_answers; /* of the last step: all tokens, but those of prompts apart; those of answers */
    uint32_t step_apart;                /* tokens of the batch of prompts apart that was under way in it */
    double answers_s;                   /* with prompts apart, of the last step: what the answers took */
};
void lm_generator_get_counts(const struct lm_generator *g, struct lm_counts *out);

/* For tests: the youngest running request gives its pages back now. */
void lm_generator_preempt(struct lm_generator *g);

#endif
