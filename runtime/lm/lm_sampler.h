// SPDX-License-Identifier: Apache-2.0
/*
 * From logits to a token. The chain, each link off by default, in the order that llama.cpp has by
 * default:
 *
 *   1 logit bias, then the mask and the banned tokens (not allowed: not a candidate)
 *   2 penalties: repetition (divides a positive, multiplies a negative logit), then frequency
 *     (times the count) and presence, over the last penalty_last_n tokens of the history
 *   3 DRY
 *   4 top-n-sigma: logits at least max - n * standard deviation
 *   5 top-k    6 typical    7 top-p    8 min-p    9 XTC    10 temperature, then the draw
 *
 * With mirostat 2, links 4 to 9 are left out: temperature, then mirostat cuts and draws. With
 * temperature 0 the first of the candidates that the chain leaves is taken, nothing is drawn.
 * Links 6 to 9 look at the softmax of the candidates that are left at temperature 1. Candidates
 * are ordered by logit, then by token id, so that equal logits have one result.
 *
 * History is prompt and answer, as far as they are in the context. Random numbers come from a
 * counter: they depend on seed, stream (the number of the answer when a prompt has several) and
 * the number of the token, so no result depends on what else runs or was preempted. All sums are
 * in double and in one order.
 */
#ifndef INFC_RUNTIME_LM_SAMPLER_H
#define INFC_RUNTIME_LM_SAMPLER_H

#include "runtime/infr.h"
#include "runtime/text/tok.h"

#define LM_MAX_BIAS 65536u
#define LM_MAX_BREAKERS 128u
#define LM_MAX_BREAKER_BYTES 64u
#define LM_MAX_LOGPROBS 256u

struct lm_bias {
    uint32_t token;
    float bias; /* -infinity: never */
};

struct lm_breaker {
    const char *text;
    size_t n;
};

/* What lm_sampling_init leaves: temperature 1, everything else off. */
struct lm_sampling {
    double temp;
    int32_t top_k;                                              /* 0: off */
    double top_p, min_p, typical_p, top_n_sigma;                /* off: 1, 0, 1, 0 */
    double repeat_penalty, frequency_penalty, presence_penalty; /* off: 1, 0, 0 */
    int32_t penalty_last_n;                                     /* 64; -1: the whole history */
    /* DRY: a token that would continue a repetition of m tokens loses
     * multiplier * base^(m - allowed_length), for m from allowed_length on. */
    double dry_multiplier, dry_base;        /* 0 (off), 1.75 */
    int32_t dry_allowed_length, dry_last_n; /* 2, -1: the whole history */
    const struct lm_breaker *breakers;      /* repetitions do not reach back across these texts */
    size_t n_breakers;                      /* set to \n : " * */
    double xtc_probability, xtc_threshold;  /* 0 (off), 0.1 */
    bool mirostat;
    double mirostat_tau, mirostat_eta; /* 5, 0.1 */
    uint64_t seed;
    uint32_t stream;
    const struct lm_bias *bias;
    size_t n_bias;
};

void lm_sampling_init(struct lm_sampling *s);
/* INFR_BAD_INPUT with the parameter, its value and what is possible. */
int lm_sampling_check(const struct lm_sampling *s, uint32_t vocab, struct infr_status *st);

/* Memory for one draw at a time, shared by all samplers of a model. */
struct lm_draw;
int lm_draw_create(uint32_t vocab, uint32_t max_history, struct lm_draw **out,
                   struct infr_status *st);
void lm_draw_destroy(struct lm_draw *d);

/* One answer's sampler. Copies what it needs of the parameters; tok may be NULL without DRY. */
struct lm_sampler;
int lm_sampler_create(const struct lm_sampling *s, const struct tok *tok, uint32_t vocab,
                      struct lm_sampler **out, struct infr_status *st);
void lm_sampler_destroy(struct lm_sampler *s);

struct lm_mask {
    const uint64_t *allowed; /* a bit a token; NULL: all */
    const uint32_t *banned;
    size_t n_banned;
};

#define LM_NO_TOKEN UINT32_MAX

/*
 * The token after the history, as number `at` of the answer. LM_NO_TOKEN when no candidate is
 * left, or a logit is not a number. mask may be NULL.
 */
uint32_t lm_sampler_pick(struct lm_sampler *s, struct lm_draw *d, const float *logits,
                         const uint32_t *history, uint32_t n_history, uint64_t at,
                         const struct lm_mask *mask);

struct lm_logprob {
    uint32_t token;
    float logprob; /* of the model's own distribution: no link of the chain changes it */
};

/* Log probability of the token; the n most probable ones go to top[], in order. */
float lm_logprobs(struct lm_draw *d, const float *logits, uint32_t token, struct lm_logprob *top,
                  uint32_t n);

/* ---- for tests ---- */

/* The candidates that the chain leaves, in order of their probabilities, which sum to 1. Returns
 * how many. */
uint32_t lm_sampler_distribution(struct lm_sampler *s, struct lm_draw *d, const float *logits,
                                 const uint32_t *history, uint32_t n_history, uint64_t at,
                                 const struct lm_mask *mask, uint32_t *tokens, double *probs,
                                 uint32_t cap);
/* Uniform in [0, 1): number `which` of token `at`. */
double lm_random(uint64_t seed, uint32_t stream, uint64_t at, uint32_t which);

#endif
