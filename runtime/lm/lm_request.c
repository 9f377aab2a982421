// SPDX-License-Identifier: Apache-2.0
/* One request: its memory, and what becomes of a drawn token. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/lm/lm_generate_internal.h"
#include "runtime/status.h"

static const char NO_WAY_ON[] =
    "the grammar has no way on from here: no token of the vocabulary fits";
static const char NO_MASK[] =
    "no memory for the grammar, or the answer is too ambiguous or too long for it";
static const char NOT_A_NUMBER[] =
    "no token is possible: what the model computed is not a number, or everything is banned";

const char *lm_finish_name(enum lm_finish f)
{
    static const char *const names[] = {"running", "stop",      "stop", "length",
                                        "context", "cancelled", "error"};
    return names[f];
}

enum lm_finish lm_request_finish(const struct lm_request *r) { return r->finish; }
const char *lm_request_error(const struct lm_request *r) { return r->error; }

void lm_request_usage(const struct lm_request *r, uint32_t *n_prompt, uint32_t *n_cached,
                      uint32_t *n_generated)
{
    *n_prompt = r->n_prompt, *n_cached = r->n_cached, *n_generated = r->n_generated;
}

void lm_request_cancel(struct lm_request *r) { r->cancel = true; }

void lm_request_desc_init(struct lm_request_desc *d)
{
    *d = (struct lm_request_desc){.max_tokens = UINT32_MAX, .n_logprobs = -1};
    lm_sampling_init(&d->sampling);
}

/* ---- creation ---- */

int lm_generator_check(const struct lm_generator *g, const struct lm_request_desc *d,
                       struct infr_status *st)
{
    if (!d->n_prompt) return rt_fail(st, INFR_BAD_INPUT, "the prompt is empty");
    if (d->n_prompt > g->o.n_ctx || (d->n_prompt == g->o.n_ctx && d->max_tokens))
        return rt_fail(st, INFR_BAD_INPUT,
                       "the prompt has %u tokens; the context holds %u, the answer included",
                       d->n_prompt, g->o.n_ctx);
    for (uint32_t i = 0; i < d->n_prompt; i++)
        if (d->prompt[i] >= g->model->vocab)
            return rt_fail(st, INFR_BAD_INPUT, "token %u of the prompt is %u; tokens are below %u",
                           i, d->prompt[i], g->model->vocab);
    if (d->n_logprobs > (int)LM_MAX_LOGPROBS)
        return rt_fail(st, INFR_BAD_INPUT, "%d alternatives a token; there can be %u",
                       d->n_logprobs, LM_MAX_LOGPROBS);
    if (d->n_stop_tokens > LM_MAX_BIAS)
        return rt_fail(st, INFR_BAD_INPUT, "%zu stop tokens; there can be %u", d->n_stop_tokens,
                       LM_MAX_BIAS);
    if (d->on_full == LM_FULL_SLIDE && d->n_keep >= g->o.n_ctx - 1)
        return rt_fail(st, INFR_BAD_INPUT, "%u tokens to keep leave nothing of a context of %u",
                       d->n_keep, g->o.n_ctx);
    const struct lm_thinking *t = &d->thinking;
    if (t->limited && (d->grammar || !t->n_end || t->n_end > LM_MAX_MARK || t->n_begin > LM_MAX_MARK))
        return rt_fail(st, INFR_BAD_INPUT, "this budget for thinking is not possible");
    return lm_sampling_check(&d->sampling, g->model->vocab, st);
}

static int fill_grammar(struct lm_request *r, const struct lm_request_desc *d,
                        struct infr_status *st)
{
    if (!d->grammar) return INFR_OK;
    if (gr_vocab_tokens(d->grammar_vocab) > r->g->model->vocab)
        return rt_fail(st, INFR_BAD_INPUT,
                       "the grammar's vocabulary has more tokens than the model");
    r->grammar = gr_state_copy(d->grammar);
    r->allowed = calloc(r->g->model->vocab / 64 + 1, sizeof *r->allowed);
    if (r->grammar && r->allowed) return INFR_OK;
    return rt_fail_memory(st, "a grammar", r->g->model->vocab / 8);
}

static int fill(struct lm_request *r, const struct lm_request_desc *d, struct infr_status *st)
{
    struct lm_generator *g = r->g;
    int code = lm_seq_init(g->pages, &r->seq, st);
    if (!code) code = lm_sampler_create(&d->sampling, g->tok, g->model->vocab, &r->sampler, st);
    if (!code) code = fill_grammar(r, d, st);
    if (!code) code = lm_stop_init(&r->stop, d->stops, d->n_stops, d->include_stop, st);
    if (code) return code;
    size_t n_top = d->n_logprobs > 0 ? (size_t)d->n_logprobs : 0;
    if (n_top > g->model->vocab) r->d.n_logprobs = (int)(n_top = g->model->vocab);
    r->banned = malloc((d->n_stop_tokens + g->n_eog + 1) * sizeof *r->banned);
    r->top = malloc((n_top + 1) * sizeof *r->top);
    if (d->post_sampling) {
        r->post_tokens = malloc(g->model->vocab * sizeof *r->post_tokens);
        r->post_probs = malloc(g->model->vocab * sizeof *r->post_probs);
        if (!r->post_tokens || !r->post_probs)
            return rt_fail_memory(st, "a request", g->model->vocab * sizeof *r->post_probs);
    }
    if (!r->banned || !r->top) return rt_fail_memory(st, "a request", n_top * sizeof *r->top);
    if (d->n_stop_tokens) memcpy(r->banned, d->stop_tokens, d->n_stop_tokens * sizeof *r->banned);
    if (g->n_eog) memcpy(r->banned + d->n_stop_tokens, g->eog, g->n_eog * sizeof *r->banned);
    r->n_stop_tokens = d->n_stop_tokens;
    r->n_banned = d->n_stop_tokens + g->n_eog;
    unsigned flags = TOK_DECODE_CONTINUED | (d->show_special ? TOK_DECODE_SPECIAL : 0);
    tok_stream_init(&r->stream, g->tok, flags);
    memcpy(r->seq.tokens, d->prompt, d->n_prompt * sizeof *d->prompt);
    r->seq.n_tokens = r->n_prompt = d->n_prompt;
    r->seq.salt = d->salt;
    r->seq.unpublished = g->o.no_sharing;
    return INFR_OK;
}

int lm_generator_submit(struct lm_generator *g, const struct lm_request_desc *d,
                        struct lm_request **out, struct infr_status *st)
{
    *out = NULL;
    int code = lm_generator_check(g, d, st);
    if (code) return code;
    struct lm_request *r = calloc(1, sizeof *r);
    if (!r) return rt_fail_memory(st, "a request", sizeof *r);
    r->g = g;
    r->d = *d;
    r->d.prompt = NULL, r->d.stops = NULL, r->d.stop_tokens = NULL; /* the caller's */
    r->d.grammar = NULL;
    r->d.sampling.bias = NULL, r->d.sampling.breakers = NULL;
    r->most_draft = 4;
    r->state = LM_DONE;
    if ((code = fill(r, d, st))) {
        lm_request_destroy(r);
        return code;
    }
    r->arrival = g->arrivals++;
    lm_generator_wait(g, r);
    *out = r;
    return INFR_OK;
}

void lm_request_destroy(struct lm_request *r)
{
    if (!r) return;
    if (r->state != LM_DONE) lm_generator_forget(r->g, r);
    lm_seq_deinit(&r->seq);
    lm_sampler_destroy(r->sampler);
    lm_stop_deinit(&r->stop);
    gr_state_destroy(r->grammar);
    free(r->allowed);
    free(r->banned);
    free(r->top);
    free(r->post_tokens);
    free(r->post_probs);
    free(r);
}

/* ---- answers ---- */

/* Text of the characters that are complete by now, or (end) of all. */
static size_t show(struct lm_request *r, uint32_t token, bool end, bool armed, int *stopped)
{
    char *raw = r->g->text, *out = raw + 2 * tok_stream_max(r->g->tok);
    size_t n = token == LM_NO_TOKEN ? 0 : tok_stream_push(&r->stream, token, raw), n_out;
    *stopped = -1;
    if (end) n += tok_stream_finish(&r->stream, raw + n);
    n_out = lm_stop_push(&r->stop, raw, n, armed, out, stopped);
    if (end && *stopped < 0) n_out += lm_stop_flush(&r->stop, out + n_out);
    memmove(raw, out, n_out);
    return n_out;
}

static void tell(struct lm_request *r, const struct lm_event *e)
{
    if (r->d.on_event) r->d.on_event(r->d.user, e);
}

void lm_request_end(struct lm_request *r, enum lm_finish finish, const char *error)
{
    int stopped;
    if (r->state == LM_DONE) return;
    lm_generator_forget(r->g, r);
    r->state = LM_DONE;
    r->finish = finish;
    r->error = error;
    size_t n = show(r, LM_NO_TOKEN, true, false, &stopped);
    struct lm_event e = {.request = r,
                         .token = LM_NO_TOKEN,
                         .text = r->g->text,
                         .n_text = n,
                         .finish = finish,
                         .stopped = -1};
    tell(r, &e);
}

void lm_request_progress(struct lm_request *r, uint32_t n_computed)
{
    struct lm_event e = {.request = r, .token = LM_NO_TOKEN, .text = "", .of_prompt = true,
                         .progress = true, .n_cached = r->n_cached, .stopped = -1};
    e.n_computed = n_computed < r->n_prompt ? n_computed : r->n_prompt;
    if (r->d.report_progress && !r->n_generated) tell(r, &e);
}

static bool among(const uint32_t *ids, size_t n, uint32_t id)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

/* Drops the older half of what is behind the kept tokens; the rest waits to be computed. */
static void slide(struct lm_request *r)
{
    struct lm_seq *s = &r->seq;
    uint32_t keep = r->d.n_keep < s->n_tokens ? r->d.n_keep : s->n_tokens - 1;
    uint32_t drop = (s->n_tokens - keep + 1) / 2;
    lm_seq_release(r->g->pages, s);
    memmove(s->tokens + keep, s->tokens + keep + drop,
            (s->n_tokens - keep - drop) * sizeof *s->tokens);
    s->n_tokens -= drop;
    lm_seq_search(r->g->pages, s);
    r->g->counts.slides++;
}

/* The token is drawn; why does the answer end with it, apart from stop strings? */
static enum lm_finish take(struct lm_request *r, uint32_t token, bool may_end)
{
    const size_t n = r->n_stop_tokens;
    if (may_end && among(r->banned, n, token)) return LM_FINISH_STOP;
    if (!r->d.ignore_eos && may_end && among(r->banned + n, r->n_banned - n, token))
        return LM_FINISH_EOS;
    lm_seq_append(&r->seq, token); /* there is room: else it would have ended before */
    if (r->n_generated >= r->d.max_tokens) return LM_FINISH_LENGTH;
    if (r->seq.n_tokens < r->g->o.n_ctx) return LM_RUNNING;
    if (r->d.on_full == LM_FULL_STOP) return LM_FINISH_CONTEXT;
    slide(r);
    return LM_RUNNING;
}

/* The tokens that the grammar allows, and those that end an answer where it may end. NULL, or why
 * there are none. */
static const char *constrain(struct lm_request *r, struct lm_mask *mask)
{
    size_t n = r->g->model->vocab / 64 + 1;
    uint64_t any = 0;
    if (!gr_mask(r->grammar, r->d.grammar_vocab, r->allowed)) return NO_MASK;
    if (gr_is_accepting(r->grammar))
        for (size_t i = r->n_stop_tokens; i < r->n_banned; i++)
            r->allowed[r->banned[i] / 64] |= UINT64_C(1) << r->banned[i] % 64;
    for (size_t i = 0; i < n; i++) any |= r->allowed[i];
    mask->allowed = r->allowed;
    return any ? NULL : NO_WAY_ON;
}

/* The drawn token is part of the text; true when nothing but the end can follow. */
static bool follow_grammar(struct lm_request *r, uint32_t token)
{
    struct tok_info info;
    if (tok_token_info(r->g->tok, token, &info)) return true;
    if (!gr_advance(r->grammar, (const char *)info.bytes, info.n_bytes)) return true;
    return gr_is_finished(r->grammar);
}

/* ---- thinking ---- */

/* The token that ends it, or LM_NO_TOKEN: one is drawn. */
static uint32_t end_of_thinking(struct lm_request *r)
{
    const struct lm_thinking *t = &r->d.thinking;
    if (!t->limited || !t->open || r->thought) return LM_NO_TOKEN;
    if (!r->n_forced && r->n_thought < t->budget) return LM_NO_TOKEN;
    return t->end[r->n_forced++];
}

static bool ends_with(const struct lm_seq *s, const uint32_t *tokens, uint32_t n)
{
    return n && n <= s->n_tokens && !memcmp(s->tokens + s->n_tokens - n, tokens, n * sizeof *tokens);
}

/* The newest token of the sequence: does thinking begin or end with it? */
static void follow_thinking(struct lm_request *r)
{
    struct lm_thinking *t = &r->d.thinking;
    if (!t->limited || r->thought) return;
    if (!t->open) {
        t->open = ends_with(&r->seq, t->begin, t->n_begin) && r->n_generated >= t->n_begin;
    } else {
        r->n_thought++;
        r->thought = ends_with(&r->seq, t->end, t->n_end);
    }
}

/* The best of the n tokens that could have been drawn, and the one that was. */
static void tell_draw(struct lm_request *r, uint32_t n, struct lm_event *e)
{
    uint32_t most = r->d.n_logprobs > 0 ? (uint32_t)r->d.n_logprobs : 0;
    e->logprob = -INFINITY;
    e->top = r->top;
    for (uint32_t i = 0; i < n; i++) {
        if (!(r->post_probs[i] > 0)) continue;
        float p = (float)log(r->post_probs[i]);
        if (r->post_tokens[i] == e->token) e->logprob = p;
        if (e->n_top < most) r->top[e->n_top++] = (struct lm_logprob){r->post_tokens[i], p};
    }
}

static bool may_end(const struct lm_request *r) { return r->n_generated >= r->d.min_tokens; }

/* The event's token is the answer's next one. */
static void put(struct lm_request *r, struct lm_event *e)
{
    bool ends = may_end(r);
    r->n_generated++;
    e->finish = take(r, e->token, ends);
    if (e->finish != LM_FINISH_EOS && e->finish != LM_FINISH_STOP) follow_thinking(r);
    bool silent = e->finish == LM_FINISH_EOS || (e->finish == LM_FINISH_STOP && !r->d.include_stop);
    if (r->grammar && !silent && follow_grammar(r, e->token) && e->finish == LM_RUNNING)
        e->finish = LM_FINISH_EOS;
    e->n_text = show(r, silent ? LM_NO_TOKEN : e->token, e->finish != LM_RUNNING, ends, &e->stopped);
    if (e->stopped >= 0) e->finish = LM_FINISH_STOP;
    if (e->finish != LM_RUNNING) {
        lm_generator_forget(r->g, r);
        r->state = LM_DONE;
        r->finish = e->finish;
    }
    tell(r, e);
}

static void draw(struct lm_request *r, const float *logits)
{
    struct lm_generator *g = r->g;
    struct lm_mask mask = {.banned = r->banned, .n_banned = r->n_banned};
    if (may_end(r)) { /* only ignore_eos bans, and not the stop tokens */
        mask.banned += r->n_stop_tokens;
        mask.n_banned = r->d.ignore_eos ? r->n_banned - r->n_stop_tokens : 0;
    }
    const char *why = r->grammar ? constrain(r, &mask) : NULL;
    if (why) {
        lm_request_end(r, LM_FINISH_ERROR, why);
        return;
    }
    uint32_t n_left = r->d.post_sampling
                          ? lm_sampler_distribution(r->sampler, g->draw, logits, r->seq.tokens,
                                                    r->seq.n_tokens, r->n_generated, &mask,
                                                    r->post_tokens, r->post_probs, g->model->vocab)
                          : 0;
    uint32_t token = end_of_thinking(r);
    if (token == LM_NO_TOKEN)
        token = lm_sampler_pick(r->sampler, g->draw, logits, r->seq.tokens, r->seq.n_tokens,
                                r->n_generated, &mask);
    if (token == LM_NO_TOKEN) {
        lm_request_end(r, LM_FINISH_ERROR, NOT_A_NUMBER);
        return;
    }
    struct lm_event e = {.request = r, .token = token, .text = g->text};
    if (r->d.n_logprobs >= 0 && r->d.post_sampling) {
        tell_draw(r, n_left, &e);
    } else if (r->d.n_logprobs >= 0) {
        e.n_top = (uint32_t)r->d.n_logprobs;
        e.logprob = lm_logprobs(g->draw, logits, token, r->top, e.n_top);
        e.top = r->top;
    }
    put(r, &e);
}

static void report_prompt(struct lm_request *r, uint32_t position, const float *logits)
{
    struct lm_event e = {
        .request = r, .token = r->seq.tokens[position + 1], .text = "", .of_prompt = true,
        .stopped = -1};
    e.n_top = r->d.n_logprobs > 0 ? (uint32_t)r->d.n_logprobs : 0;
    e.logprob = lm_logprobs(r->g->draw, logits, e.token, r->top, e.n_top);
    e.top = r->top;
    if (isnan(e.logprob)) {
        lm_request_end(r, LM_FINISH_ERROR, NOT_A_NUMBER);
        return;
    }
    r->n_reported = position + 1;
    tell(r, &e);
}

/* Draws the next token. True when it is the draft's, so that the next row is right, too. */
static bool draw_row(struct lm_request *r, const float *logits, bool drafted)
{
    uint32_t next = r->seq.n_tokens, token = drafted ? r->seq.tokens[next] : LM_NO_TOKEN;
    if (drafted) r->g->counts.drafted++;
    draw(r, logits);
    if (!drafted || r->state != LM_ACTIVE || r->cancel || r->seq.n_tokens != next + 1) return false;
    if (r->seq.tokens[next] != token) return false;
    r->g->counts.jumped++;
    return true;
}

void lm_request_rows(struct lm_request *r, const struct entry *e, const float *logits)
{
    size_t vocab = r->g->model->vocab;
    uint32_t position = e->rows_from > e->begin ? e->rows_from : e->begin, n_drawn = 0;
    for (uint32_t row = e->first_row; position < e->end; position++, row++) {
        const float *l = logits + row * vocab;
        if (r->d.prompt_logprobs && position + 1 < r->n_prompt && position >= r->n_reported)
            report_prompt(r, position, l);
        if (r->state == LM_DONE) return;
        if (position + 1 < r->seq.n_tokens) continue;
        if (!r->d.max_tokens) {
            lm_request_end(r, LM_FINISH_LENGTH, NULL);
            return;
        }
        n_drawn++;
        if (!draw_row(r, l, position + 1 < e->end)) break;
    }
    if (!n_drawn || !r->grammar || r->state != LM_ACTIVE) return;
    /* What a draft had right is computed. A context that slides has no draft. */
    if (n_drawn > 1) lm_seq_commit(r->g->pages, &r->seq, r->seq.n_tokens - 1);
    /* Rows behind a wrong token are lost: longer drafts where they are right, shorter ones else. */
    uint32_t right = n_drawn - 1, tried = right + e->end - position - 1;
    if (tried && right == tried && r->most_draft < LM_MOST_DRAFT) r->most_draft *= 2;
    if (right < tried / 2 + tried % 2 && r->most_draft > 1) r->most_draft /= 2;
    r->n_draft = lm_draft(r, r->most_draft);
}
