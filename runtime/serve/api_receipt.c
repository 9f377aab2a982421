// SPDX-License-Identifier: Apache-2.0
/*
 * Receipts (--receipts): what an answer was made from, complete enough to make it again. `request` is one to
 * /v1/completions with the prompt's tokens and every parameter by name, so that nothing depends on
 * defaults or templates; the hash of an answer's tokens is a chain, h = XXH64(h as 8 bytes, token as 4),
 * little-endian, from 0.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/serve/api.h"
#include "runtime/xxh64.h"

void api_receipt_add(struct api_choice *x, uint32_t token)
{
    unsigned char link[12];
    memcpy(link, &x->token_hash, 8);
    memcpy(link + 8, &token, 4);
    x->token_hash = rt_xxh64(link, sizeof link);
}

static void json_prompts(const struct api_call *a, struct json *j)
{
    json_open(j, "prompt", '[');
    for (uint32_t i = 0; i < a->n_prompts; i++) {
        if (a->n_prompts > 1) json_open(j, NULL, '[');
        for (uint32_t k = 0; k < a->prompts[i].n; k++) json_int(j, NULL, a->prompts[i].ids[k]);
        if (a->n_prompts > 1) json_close(j, ']');
    }
    json_close(j, ']');
}

static void json_lists(const struct lm_request_desc *d, struct json *j)
{
    const struct lm_sampling *s = &d->sampling;
    json_open(j, "stop", '[');
    for (size_t i = 0; i < d->n_stops; i++) lm_json_text(j, NULL, d->stops[i].text, d->stops[i].n);
    json_close(j, ']');
    json_open(j, "stop_token_ids", '[');
    for (size_t i = 0; i < d->n_stop_tokens; i++) json_int(j, NULL, d->stop_tokens[i]);
    json_close(j, ']');
    json_open(j, "dry_sequence_breakers", '[');
    for (size_t i = 0; i < s->n_breakers; i++) lm_json_text(j, NULL, s->breakers[i].text, s->breakers[i].n);
    json_close(j, ']');
    json_open(j, "logit_bias", '[');
    for (size_t i = 0; i < s->n_bias; i++) {
        json_open(j, NULL, '[');
        json_int(j, NULL, s->bias[i].token);
        /* -100 is never, as without a number */
        api_json_real(j, NULL, isinf(s->bias[i].bias) ? -100 : (double)s->bias[i].bias);
        json_close(j, ']');
    }
    json_close(j, ']');
}

static void json_request(struct api_call *a, struct json *j)
{
    const struct lm_request_desc *d = &a->p.d;
    json_open(j, "request", '{');
    json_prompts(a, j);
    json_int(j, "n", a->n_choices / a->n_prompts);
    if (d->max_tokens) json_int(j, "n_predict", d->max_tokens == UINT32_MAX ? -1 : (int64_t)d->max_tokens);
    else json_int(j, "max_tokens", 0), json_bool(j, "echo", true);
    json_int(j, "seed", (int64_t)d->sampling.seed);
    json_int(j, "top_k", d->sampling.top_k);
    json_int(j, "mirostat", d->sampling.mirostat ? 2 : 0);
    api_json_settings(j, &a->p);
    json_lists(d, j);
    api_json_grammar(j, a->grammar);
    if (d->thinking.limited) json_int(j, "thinking_budget_tokens", d->thinking.budget);
    json_close(j, '}');
}

void api_json_receipt(struct api_call *a, struct json *j)
{
    struct server *s = a->s;
    if (!s->o.receipts) return;
    json_open(j, "receipt", '{');
    json_string(j, "engine", s->fingerprint);
    json_string(j, "isa", infr_engine_isa(s->x.e));
    json_int(j, "ctx", s->x.n_ctx);
    json_string(j, "on_full", a->p.d.on_full == LM_FULL_SLIDE ? "slide" : "stop");
    json_request(a, j);
    json_open(j, "answers", '[');
    for (uint32_t i = 0; i < a->n_choices; i++) {
        char hash[20];
        snprintf(hash, sizeof hash, "%016llx", (unsigned long long)a->choices[i].token_hash);
        json_open(j, NULL, '{');
        json_int(j, "tokens", a->choices[i].n_tokens);
        json_string(j, "hash", hash);
        json_close(j, '}');
    }
    json_close(j, ']');
    json_close(j, '}');
}
