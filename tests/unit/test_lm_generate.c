// SPDX-License-Identifier: Apache-2.0
/*
 * Generation over a fake model. The reference is a loop of a few lines: logits of the whole
 * history, draw, append. Whatever the batch, the chunks, sharing or preemption, every request must
 * get its tokens, log probabilities and text.
 */
#include <math.h>

#include "tests/lm/fake_model.h"
#include "tests/lm/vocab.h"

#include "compiler/tok/token_trie.h"
#include "runtime/grammar/grammar.h"
#include "runtime/lm/lm_generate.h"

enum { P = 8, N_PROMPTS = 16, MOST_TOKENS = 60, CTX = 256 };

static struct fixture fx;
static uint32_t per_part; /* of the generators made: prompts are computed apart, so many tokens a step; 0: together with answers */

static double read_clock(void) { return 1; }

struct answer {
    uint32_t tokens[CTX];
    float logprobs[CTX];
    uint32_t n, n_text;
    char text[4096];
    enum lm_finish finish;
    uint32_t prompt_tokens[CTX];
    float prompt_logprobs[CTX];
    uint32_t n_prompt;
    struct lm_logprob top[2];
};

static void collect(void *user, const struct lm_event *e)
{
    struct answer *a = user;
    if (e->of_prompt) {
        a->prompt_tokens[a->n_prompt] = e->token;
        a->prompt_logprobs[a->n_prompt++] = e->logprob;
        return;
    }
    if (e->token != LM_NO_TOKEN) {
        a->tokens[a->n] = e->token;
        a->logprobs[a->n++] = e->logprob;
        for (uint32_t i = 0; i < e->n_top && i < 2; i++) a->top[i] = e->top[i];
    }
    assert_true(a->n_text + e->n_text < sizeof a->text);
    memcpy(a->text + a->n_text, e->text, e->n_text);
    a->n_text += (uint32_t)e->n_text;
    a->text[a->n_text] = 0;
    assert_int_equal(a->finish, LM_RUNNING); /* nothing after the end */
    a->finish = e->finish;
}

static struct lm_generator *make(struct fake_model *f, uint32_t n_ctx, uint32_t max_seqs,
                                 uint32_t chunk, bool no_sharing)
{
    struct lm_generator_options o = {n_ctx, max_seqs, chunk, 99, no_sharing, false};
    struct lm_generator *g;
    struct infr_status st;
    if (per_part) fake_in_parts(f, per_part);
    if (lm_generator_create(&f->m, &fx.tok, &o, &g, &st)) fail_msg("%s", st.note);
    assert_int_equal(lm_generator_set_slice(g, 1, read_clock), per_part > 0);
    return g;
}

static struct lm_request *submit(struct lm_generator *g, struct lm_request_desc *d,
                                 struct answer *a)
{
    struct lm_request *r;
    struct infr_status st;
    memset(a, 0, sizeof *a);
    d->on_event = collect, d->user = a;
    if (lm_generator_submit(g, d, &r, &st)) fail_msg("%s", st.note);
    return r;
}

static void run(struct lm_generator *g)
{
    struct infr_status st;
    if (lm_generator_run(g, &st)) fail_msg("%s", st.note);
}

/* Nothing held, and everything can be forgotten. */
static void close_all(struct lm_generator *g, struct lm_request **r, int n)
{
    struct lm_counts c;
    for (int i = 0; i < n; i++) lm_request_destroy(r[i]);
    lm_generator_get_counts(g, &c);
    assert_int_equal(c.running + c.waiting, 0);
    assert_int_equal(c.pages.held, 0);
    lm_generator_destroy(g);
}

/* ---- the matrix ---- */

static uint32_t prompts[N_PROMPTS][128], prompt_n[N_PROMPTS];
static struct answer want[2][N_PROMPTS]; /* without and with a window */

/* Lengths from 1 to over 100; groups of them begin alike, two are equal. */
static void make_prompts(void)
{
    for (uint32_t i = 0; i < N_PROMPTS; i++) {
        prompt_n[i] = i < 4 ? 1 + i * 7 : 20 + i * 6;
        for (uint32_t k = 0; k < prompt_n[i]; k++)
            prompts[i][k] = V_WORDS + (k < 30 && i % 2 ? k * 7 : k * 5 + i * 11) % N_WORDS;
    }
    prompt_n[14] = prompt_n[15];
    memcpy(prompts[14], prompts[15], sizeof prompts[14]);
}

static void describe(uint32_t i, struct lm_request_desc *d)
{
    lm_request_desc_init(d);
    d->prompt = prompts[i], d->n_prompt = prompt_n[i];
    d->max_tokens = MOST_TOKENS;
    d->n_logprobs = 0;
    d->sampling.seed = i;
    if (i % 3 == 0) d->sampling.temp = 0;
    if (i % 3 == 1) d->sampling.top_k = 20, d->sampling.repeat_penalty = 1.3;
    if (i % 3 == 2) d->sampling.dry_multiplier = 0.5, d->sampling.mirostat = i % 2;
    d->sampling.stream = i == 14; /* of two equal prompts */
}

static bool ends(uint32_t token) { return token == V_EOS || token == V_IM_END; }

static void reference(const struct lm_model *m, uint32_t i, struct answer *a)
{
    struct lm_request_desc d;
    struct lm_draw *draw;
    struct lm_sampler *s;
    uint32_t tokens[CTX], n = prompt_n[i];
    float *l = malloc(m->vocab * sizeof *l);
    describe(i, &d);
    memset(a, 0, sizeof *a);
    memcpy(tokens, prompts[i], n * sizeof *tokens);
    assert_int_equal(lm_draw_create(m->vocab, CTX, &draw, NULL), 0);
    assert_int_equal(lm_sampler_create(&d.sampling, &fx.tok, m->vocab, &s, NULL), 0);
    while (a->n < MOST_TOKENS) {
        fake_logits(m, tokens, n, l);
        uint32_t t = lm_sampler_pick(s, draw, l, tokens, n, a->n, NULL);
        a->logprobs[a->n] = lm_logprobs(draw, l, t, NULL, 0);
        a->tokens[a->n++] = tokens[n++] = t;
        if (ends(t)) break;
    }
    a->finish = ends(tokens[n - 1]) ? LM_FINISH_EOS : LM_FINISH_LENGTH;
    size_t n_text;
    uint32_t n_shown = a->n - (a->finish == LM_FINISH_EOS);
    assert_int_equal(tok_decode(&fx.tok, a->tokens, n_shown, TOK_DECODE_CONTINUED, a->text,
                                sizeof a->text, &n_text),
                     TOK_OK);
    a->n_text = (uint32_t)n_text;
    lm_sampler_destroy(s);
    lm_draw_destroy(draw);
    free(l);
}

static void same(const struct answer *a, const struct answer *b)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->tokens, b->tokens, a->n * sizeof *a->tokens);
    assert_memory_equal(a->logprobs, b->logprobs, a->n * sizeof *a->logprobs);
    assert_int_equal(a->n_text, b->n_text);
    assert_memory_equal(a->text, b->text, a->n_text);
    assert_int_equal(a->finish, b->finish);
}

/* One cell: `batch` at a time; preempt: after every so many steps; n_pages little: it preempts
 * itself. */
static void cell(uint32_t batch, uint32_t chunk, bool sharing, uint32_t preempt, uint32_t window,
                 uint32_t n_pages, uint64_t *preemptions)
{
    struct fake_model f;
    struct lm_request *r[N_PROMPTS];
    static struct answer got[N_PROMPTS];
    fake_init(&f, N_VOCAB, n_pages, P, window);
    struct lm_generator *g = make(&f, CTX, batch, chunk, !sharing);
    for (uint32_t i = 0; i < N_PROMPTS; i++) {
        struct lm_request_desc d;
        describe(i, &d);
        r[i] = submit(g, &d, &got[i]);
    }
    bool more = true;
    for (uint32_t step = 1; more; step++) {
        assert_int_equal(lm_generator_step(g, &more, NULL), 0);
        if (preempt && step % preempt == 0 && step < 500)
            lm_generator_preempt(g); /* not for ever */
        assert_true(step < 40000);
    }
    for (uint32_t i = 0; i < N_PROMPTS; i++) same(&got[i], &want[window > 0][i]);
    assert_true(f.most_tokens <= (chunk > batch ? chunk : batch + 1));
    struct lm_counts c;
    lm_generator_get_counts(g, &c);
    if (sharing)
        assert_true(c.pages.tokens_found > 0);
    else
        assert_int_equal(c.pages.tokens_found + c.pages.cached, 0);
    if (preempt)
        assert_true(c.preemptions > 0);
    else
        *preemptions += c.preemptions;
    close_all(g, r, N_PROMPTS);
    fake_deinit(&f);
}

static void test_matrix(void **state)
{
    (void)state;
    static const uint32_t batches[] = {1, 2, 8}, chunks[] = {1, 7, 64, 512}, windows[] = {0, 13};
    uint64_t roomy = 0, tight = 0;
    for (int w = 0; w < 2; w++) {
        struct fake_model f;
        fake_init(&f, N_VOCAB, CTX / P, P, windows[w]);
        for (uint32_t i = 0; i < N_PROMPTS; i++) reference(&f.m, i, &want[w][i]);
        fake_deinit(&f);
        for (int b = 0; b < 6; b++)
            for (int c = 0; c < 4; c++)
                for (int s = 0; s < 2; s++) {
                    per_part = b < 3 ? 0 : (uint32_t)(3 * c + s + 1);
                    cell(batches[b % 3], chunks[c], s, 0, windows[w], 400, &roomy);
                    cell(batches[b % 3], chunks[c], s, 23, windows[w], 400, &roomy);
                    cell(batches[b % 3], chunks[c], s, 0, windows[w], CTX / P, &tight);
                }
    }
    per_part = 0;
    assert_int_equal(roomy, 0);
    assert_true(tight > 0);
}

/*
 * A prompt that is under way when its request goes: what is still written of it may not reach pages that others have by then. The pool
 * holds little more than the two that stay, and others come and go at every point of a batch of 60 tokens.
 */
static void test_prompts_that_leave(void **state)
{
    (void)state;
    for (uint32_t at = 0; at < 14; at++)
        for (int sharing = 0; sharing < 2; sharing++) {
            struct fake_model f;
            struct lm_request *r[4];
            static struct answer got[4];
            struct lm_request_desc d;
            struct infr_status st;
            bool more = true;
            per_part = 5;
            fake_init(&f, N_VOCAB, CTX / P + 12, P, 0);
            struct lm_generator *g = make(&f, CTX, 3, 64, !sharing);
            describe(1, &d);
            r[0] = submit(g, &d, &got[0]);
            for (int i = 0; i < 6; i++) lm_generator_step(g, &more, &st); /* an answer that goes on */
            describe(12, &d);
            r[1] = submit(g, &d, &got[1]);
            describe(7, &d);
            r[2] = submit(g, &d, &got[2]); /* in one batch with the one that leaves */
            for (uint32_t i = 0; i < at; i++) lm_generator_step(g, &more, &st);
            if (at % 2) lm_request_cancel(r[1]);
            lm_request_destroy(r[1]);
            describe(9, &d);
            r[1] = submit(g, &d, &got[3]);
            run(g);
            same(&got[0], &want[0][1]);
            same(&got[2], &want[0][7]);
            same(&got[3], &want[0][9]);
            close_all(g, r, 3);
            fake_deinit(&f);
        }
    per_part = 0;
}

/* Answers go on at every step while a prompt is under way, and the prompt gets its part of each. */
static void test_apart(void **state)
{
    (void)state;
    struct fake_model f;
    struct lm_request *r[2];
    static struct answer got[2];
    struct lm_request_desc d;
    struct infr_status st;
    bool more;
    per_part = 10;
    fake_init(&f, N_VOCAB, 400, P, 0);
    struct lm_generator *g = make(&f, CTX, 2, 512, true);
    describe(1, &d);
    d.ignore_eos = true;
    r[0] = submit(g, &d, &got[0]);
    lm_generator_step(g, &more, &st);
    describe(15, &d);
    r[1] = submit(g, &d, &got[1]);
    uint32_t n = got[0].n, steps = 0;
    while (!got[1].n) {
        struct lm_counts c;
        lm_generator_step(g, &more, &st);
        lm_generator_get_counts(g, &c);
        assert_int_equal(got[0].n, n + ++steps);
        assert_int_equal(c.step_answers, 1);
        assert_int_equal(c.step_apart, prompt_n[15]);
    }
    assert_int_equal(steps, (prompt_n[15] + 9) / 10);
    run(g);
    same(&got[1], &want[0][15]);
    close_all(g, r, 2);
    fake_deinit(&f);
    per_part = 0;
}

/*
 * Prompts in slices between the steps of answers: whatever is cancelled, destroyed or preempted while its batch is paused, and
 * whoever gets its pages, every other answer is right, and no page is lost.
 */
static void crowd(uint32_t slice, uint32_t chunk, uint32_t n_pages, uint32_t window, uint32_t preempt, uint64_t *n_paused)
{
    enum { N_MORE = 24 };
    struct fake_model f;
    struct lm_request *r[N_PROMPTS + N_MORE];
    static struct answer got[N_PROMPTS + N_MORE];
    struct lm_request_desc d;
    fake_init(&f, N_VOCAB, n_pages, P, window);
    per_part = slice;
    struct lm_generator *g = make(&f, CTX, 6, chunk, false);
    for (uint32_t i = 0, more = 0; i < N_PROMPTS; i++) {
        describe(i, &d);
        r[i] = submit(g, &d, &got[i]);
        for (; more < N_MORE * (i + 1) / N_PROMPTS; more++) { /* to be given up */
            describe((more * 5 + 3) % N_PROMPTS, &d);
            d.salt = more;
            r[N_PROMPTS + more] = submit(g, &d, &got[N_PROMPTS + more]);
        }
    }
    bool more = true;
    for (uint32_t step = 1; more; step++) {
        assert_int_equal(lm_generator_step(g, &more, NULL), 0);
        *n_paused += f.parted && f.at < f.parted->n_tokens;
        if (preempt && step % preempt == 0 && step < 300) lm_generator_preempt(g);
        for (uint32_t k = N_PROMPTS; step % 3 == 0 && k < N_PROMPTS + N_MORE; k++) {
            if (!r[k] || lm_request_finish(r[k]) != LM_RUNNING || (k + step) % 5) continue;
            if (k % 2) lm_request_cancel(r[k]);
            else lm_request_destroy(r[k]), r[k] = NULL;
            break;
        }
        assert_true(step < 40000);
    }
    for (uint32_t i = 0; i < N_PROMPTS; i++) same(&got[i], &want[window > 0][i]);
    close_all(g, r, N_PROMPTS + N_MORE);
    fake_deinit(&f);
}

static void test_crowd_that_leaves(void **state)
{
    static const uint32_t slices[] = {1, 5, 33}, chunks[] = {7, 64, 512};
    uint64_t n_paused = 0;
    (void)state;
    for (int s = 0; s < 3; s++)
        for (int c = 0; c < 3; c++)
            for (uint32_t window = 0; window <= 13; window += 13)
                for (uint32_t preempt = 0; preempt <= 11; preempt += 11) {
                    crowd(slices[s], chunks[c], 400, window, preempt, &n_paused);
                    crowd(slices[s], chunks[c], CTX / P, window, preempt, &n_paused);
                }
    per_part = 0;
    assert_true(n_paused > 1000);
}

/* ---- ends ---- */

static void test_stops(void **state)
{
    (void)state;
    struct fake_model f;
    struct lm_request *r[8];
    struct answer all, a;
    struct lm_request_desc d;
    fake_init(&f, N_VOCAB, CTX / P, P, 0);
    struct lm_generator *g = make(&f, CTX, 4, 64, false);
    lm_request_desc_init(&d);
    d.prompt = prompts[5], d.n_prompt = prompt_n[5], d.max_tokens = 50, d.sampling.seed = 4;
    d.ignore_eos = true;
    /* all but text tokens are left out, so that there is something to stop at */
    static struct lm_bias bias[V_WORDS];
    for (uint32_t i = 0; i < V_WORDS; i++) bias[i] = (struct lm_bias){i, -INFINITY};
    d.sampling.bias = bias, d.sampling.n_bias = V_WORDS;
    r[0] = submit(g, &d, &all);
    run(g);
    assert_int_equal(all.n, 50);
    assert_int_equal(all.finish, LM_FINISH_LENGTH);
    /* any part of the text is a stop string: what is before its first place is shown */
    for (uint32_t at = 1; at + 6 < all.n_text; at += 5) {
        char stop[8] = {0};
        uint32_t begin = at;
        while ((all.text[begin] & 0xc0) == 0x80) begin++;
        uint32_t end = begin + 4;
        while ((all.text[end] & 0xc0) == 0x80) end--;
        memcpy(stop, all.text + begin, end - begin);
        struct lm_stop_text t = {stop, strlen(stop)};
        size_t shown = (size_t)(strstr(all.text, stop) - all.text);
        for (int include = 0; include < 2; include++) {
            d.stops = &t, d.n_stops = 1, d.include_stop = include;
            r[1] = submit(g, &d, &a);
            run(g);
            lm_request_destroy(r[1]);
            assert_int_equal(a.finish, LM_FINISH_STOP);
            assert_int_equal(a.n_text, shown + (include ? t.n : 0));
            assert_memory_equal(a.text, all.text, a.n_text);
            assert_true(a.n <= 50);
        }
    }
    d.n_stops = 0, d.include_stop = false;
    /* a stop token, whose text is not shown */
    uint32_t stop_token = all.tokens[9], first = 0, n_text = 0;
    while (all.tokens[first] != stop_token) first++;
    d.stop_tokens = &stop_token, d.n_stop_tokens = 1;
    r[1] = submit(g, &d, &a);
    run(g);
    assert_int_equal(a.finish, LM_FINISH_STOP);
    assert_int_equal(a.n, first + 1);
    for (uint32_t i = 0; i < first; i++)
        n_text += (uint32_t)strlen(vocab_words[all.tokens[i] - V_WORDS]);
    /* the first word is written as U+2581, three bytes, and is a space */
    for (uint32_t i = 0; i < first; i++)
        n_text -= 2 * !strncmp(vocab_words[all.tokens[i] - V_WORDS], "\u2581", 3);
    assert_int_equal(a.n_text, n_text);
    /* min_tokens: never drawn before */
    d.min_tokens = 20;
    r[2] = submit(g, &d, &a);
    run(g);
    assert_true(a.n > 20);
    for (uint32_t i = 0; i < 20; i++) assert_int_not_equal(a.tokens[i], stop_token);
    /* max_tokens 1 and 0 */
    d.min_tokens = 0, d.n_stop_tokens = 0, d.max_tokens = 1;
    r[3] = submit(g, &d, &a);
    run(g);
    assert_int_equal(a.n, 1);
    d.max_tokens = 0;
    r[4] = submit(g, &d, &a);
    run(g);
    assert_int_equal(a.n, 0);
    assert_int_equal(a.finish, LM_FINISH_LENGTH);
    close_all(g, r, 5);
    fake_deinit(&f);
}

/* Eos ends an answer without text of its own; ignored, it is never drawn. */
static void test_eos(void **state)
{
    (void)state;
    struct fake_model f;
    struct lm_request *r[3];
    struct answer a;
    struct lm_request_desc d;
    const struct lm_bias likely = {V_EOS, 9};
    fake_init(&f, N_VOCAB, CTX / P, P, 0);
    struct lm_generator *g = make(&f, CTX, 4, 64, false);
    lm_request_desc_init(&d);
    d.prompt = prompts[5], d.n_prompt = prompt_n[5], d.max_tokens = 50;
    d.sampling.bias = &likely, d.sampling.n_bias = 1;
    r[0] = submit(g, &d, &a);
    run(g);
    assert_int_equal(a.finish, LM_FINISH_EOS);
    assert_int_equal(a.tokens[a.n - 1], V_EOS);
    assert_true(a.n < 20);
    d.min_tokens = 30;
    r[1] = submit(g, &d, &a);
    run(g);
    assert_int_equal(a.finish, LM_FINISH_EOS);
    assert_true(a.n > 30);
    for (uint32_t i = 0; i < 30; i++) assert_int_not_equal(a.tokens[i], V_EOS);
    d.ignore_eos = true;
    r[2] = submit(g, &d, &a);
    run(g);
    assert_int_equal(a.finish, LM_FINISH_LENGTH);
    for (uint32_t i = 0; i < a.n; i++) assert_int_not_equal(a.tokens[i], V_EOS);
    close_all(g, r, 3);
    fake_deinit(&f);
}

/* Bytes of a character that is never completed show as U+FFFD, at the end alone. */
static void test_half_character(void **state)
{
    (void)state;
    struct fake_model f;
    struct lm_request *r;
    struct answer a;
    struct lm_request_desc d;
    static struct lm_bias bias[N_VOCAB];
    for (uint32_t i = 0; i < N_VOCAB; i++)
        bias[i] = (struct lm_bias){i, i == V_BYTES + 0xf0 ? 0 : -INFINITY};
    fake_init(&f, N_VOCAB, CTX / P, P, 0);
    struct lm_generator *g = make(&f, CTX, 4, 64, false);
    lm_request_desc_init(&d);
    d.prompt = prompts[5], d.n_prompt = prompt_n[5], d.max_tokens = 1;
    d.sampling.bias = bias, d.sampling.n_bias = N_VOCAB;
    r = submit(g, &d, &a);
    run(g);
    assert_string_equal(a.text, "\ufffd");
    close_all(g, &r, 1);
    fake_deinit(&f);
}

/* ---- context ---- */

static void test_context_full(void **state)
{
    (void)state;
    struct fake_model f;
    struct lm_request *r[3];
    struct answer a;
    struct lm_request_desc d;
    struct infr_status st;
    fake_init(&f, N_VOCAB, CTX / P, P, 0);
    struct lm_generator *g = make(&f, 61, 2, 64, false);
    lm_request_desc_init(&d);
    d.prompt = prompts[5], d.n_prompt = 50, d.ignore_eos = true, d.sampling.temp = 0;
    r[0] = submit(g, &d, &a);
    run(g);
    assert_int_equal(a.finish, LM_FINISH_CONTEXT);
    assert_int_equal(a.n, 11);
    d.n_prompt = 61;
    assert_int_equal(lm_generator_submit(g, &d, &r[1], &st), INFR_BAD_INPUT);
    assert_string_equal(st.note,
                        "the prompt has 61 tokens; the context holds 61, the answer included");
    d.max_tokens = 0; /* but its log probabilities can be had */
    r[1] = submit(g, &d, &a);
    run(g);
    assert_int_equal(a.finish, LM_FINISH_LENGTH);
    /* sliding: as if what is left had been the prompt */
    uint32_t tokens[61], n = 50;
    float *l = malloc(f.m.vocab * sizeof *l);
    d.on_full = LM_FULL_SLIDE, d.n_keep = 3, d.max_tokens = 100, d.n_prompt = 50;
    r[2] = submit(g, &d, &a);
    run(g);
    assert_int_equal(a.n, 100);
    assert_int_equal(a.finish, LM_FINISH_LENGTH);
    memcpy(tokens, prompts[5], sizeof *tokens * 50);
    for (uint32_t i = 0; i < 100; i++) {
        uint32_t best = 0;
        fake_logits(&f.m, tokens, n, l);
        for (uint32_t k = 1; k < N_VOCAB; k++)
            if (!ends(k) && l[k] > l[best]) best = k;
        assert_int_equal(a.tokens[i], best);
        tokens[n++] = best;
        if (n < 61) continue;
        /* 3 stay, of 58 the older 29 go */
        memmove(tokens + 3, tokens + 32, 29 * sizeof *tokens);
        n = 32;
    }
    struct lm_counts c;
    lm_generator_get_counts(g, &c);
    assert_int_equal(c.slides, 4); /* at 11, 40, 69 and 98 tokens */
    close_all(g, r, 3);
    free(l);
    fake_deinit(&f);
}

/* ---- sharing ---- */

static void test_sharing(void **state)
{
    (void)state;
    struct fake_model f;
    struct lm_request *r[5];
    struct answer a[5];
    struct lm_request_desc d;
    struct lm_counts c;
    uint32_t n_prompt, n_cached, n_generated;
    fake_init(&f, N_VOCAB, 200, P, 0);
    struct lm_generator *g = make(&f, CTX, 8, 512, false);
    lm_request_desc_init(&d);
    d.prompt = prompts[15], d.n_prompt = 100, d.max_tokens = 4, d.ignore_eos = true;
    for (uint32_t i = 0; i < 4; i++) { /* n = 4 */
        d.sampling.stream = i;
        r[i] = submit(g, &d, &a[i]);
    }
    run(g);
    for (uint32_t i = 0; i < 4; i++) {
        lm_request_usage(r[i], &n_prompt, &n_cached, &n_generated);
        assert_int_equal(n_prompt, 100);
        assert_int_equal(n_cached, i ? 96 : 0); /* the prompt is computed once */
        assert_int_equal(n_generated, 4);
    }
    lm_generator_get_counts(g, &c);
    assert_int_equal(c.tokens_computed, 100 + 3 * 4 + 4 * 3);
    assert_true(memcmp(a[0].tokens, a[1].tokens, 16) != 0);
    d.salt = 1; /* nothing in common */
    d.sampling.stream = 0;
    r[4] = submit(g, &d, &a[4]);
    run(g);
    lm_request_usage(r[4], &n_prompt, &n_cached, &n_generated);
    assert_int_equal(n_cached, 0);
    same(&a[4], &a[0]);
    close_all(g, r, 5);
    fake_deinit(&f);
}

static void test_prompt_logprobs(void **state)
{
    (void)state;
    struct fake_model f;
    struct lm_request *r[2];
    struct answer a;
    struct lm_request_desc d;
    fake_init(&f, N_VOCAB, 200, P, 0);
    struct lm_generator *g = make(&f, CTX, 3, 512, false);
    struct lm_draw *draw;
    float *l = malloc(f.m.vocab * sizeof *l);
    assert_int_equal(lm_draw_create(N_VOCAB, 0, &draw, NULL), 0);
    lm_request_desc_init(&d);
    d.prompt = prompts[15], d.n_prompt = 100, d.max_tokens = 1, d.n_logprobs = 2;
    r[0] = submit(g, &d, &a); /* fills the shared pages */
    run(g);
    d.prompt_logprobs = true;
    for (int preempt = 0; preempt < 2; preempt++) {
        bool more = true;
        r[1] = submit(g, &d, &a);
        for (int step = 0; more; step++) {
            if (preempt && step == 1) lm_generator_preempt(g);
            assert_int_equal(lm_generator_step(g, &more, NULL), 0);
        }
        assert_int_equal(a.n_prompt, 99);
        for (uint32_t i = 0; i < 99; i++) {
            fake_logits(&f.m, prompts[15], i + 1, l);
            assert_int_equal(a.prompt_tokens[i], prompts[15][i + 1]);
            assert_true(a.prompt_logprobs[i] == lm_logprobs(draw, l, prompts[15][i + 1], NULL, 0));
        }
        assert_int_equal(a.n, 1);
        assert_true(a.top[0].logprob >= a.top[1].logprob && a.top[0].logprob >= a.logprobs[0]);
        lm_request_destroy(r[1]);
    }
    close_all(g, r, 1);
    lm_draw_destroy(draw);
    free(l);
    fake_deinit(&f);
}

static void cancel_other(void *user, const struct lm_event *e)
{
    struct lm_request **other = user;
    if (e->finish == LM_RUNNING && *other) lm_request_cancel(*other);
}

static void test_cancel_and_failure(void **state)
{
    (void)state;
    struct fake_model f;
    struct lm_request *r[3];
    struct answer a, b;
    struct lm_request_desc d;
    struct infr_status st;
    bool more;
    fake_init(&f, N_VOCAB, 200, P, 0);
    struct lm_generator *g = make(&f, CTX, 2, 16, false);
    lm_request_desc_init(&d);
    d.prompt = prompts[15], d.n_prompt = 100, d.max_tokens = 100, d.ignore_eos = true;
    r[0] = submit(g, &d, &a);
    r[1] = submit(g, &d, &b);
    d.n_prompt = 3, d.on_event = cancel_other, d.user = &r[1], d.max_tokens = 3;
    assert_int_equal(lm_generator_submit(g, &d, &r[2], &st), 0);
    lm_generator_step(g, &more, &st);
    lm_request_cancel(r[0]);
    run(g);
    assert_int_equal(a.finish, LM_FINISH_CANCELLED);
    assert_int_equal(a.n, 0);
    assert_int_equal(b.finish, LM_FINISH_CANCELLED);
    assert_int_equal(lm_request_finish(r[2]), LM_FINISH_LENGTH);
    for (int i = 0; i < 3; i++) lm_request_destroy(r[i]);
    /* the model fails: every request ends, the generator goes on */
    f.fail_at = (int)f.calls + 5;
    d.n_prompt = 100, d.max_tokens = 30;
    r[0] = submit(g, &d, &a);
    r[1] = submit(g, &d, &b);
    assert_int_equal(lm_generator_run(g, &st), INFR_ENVIRONMENT);
    assert_int_equal(a.finish, LM_FINISH_ERROR);
    assert_int_equal(b.finish, LM_FINISH_ERROR);
    r[2] = submit(g, &d, &a);
    run(g);
    assert_int_equal(a.n, 30);
    close_all(g, r, 3);
    fake_deinit(&f);
}

static void test_refused(void **state)
{
    (void)state;
    struct fake_model f;
    struct lm_request *r;
    struct lm_request_desc d;
    struct infr_status st;
    struct lm_generator *g;
    struct lm_generator_options o = {CTX, 1, 1, 0, false, false};
    fake_init(&f, N_VOCAB, 2, P, 0);
    assert_int_equal(lm_generator_create(&f.m, &fx.tok, &o, &g, &st), INFR_BAD_INPUT);
    assert_string_equal(st.note, "the KV cache holds 16 tokens, less than a context of 256");
    g = make(&f, 16, 1, 1, false);
    lm_request_desc_init(&d);
    assert_int_equal(lm_generator_submit(g, &d, &r, &st), INFR_BAD_INPUT);
    assert_string_equal(st.note, "the prompt is empty");
    const uint32_t bad = N_VOCAB;
    d.prompt = &bad, d.n_prompt = 1;
    assert_int_equal(lm_generator_submit(g, &d, &r, &st), INFR_BAD_INPUT);
    const uint32_t good = 1;
    d.prompt = &good;
    d.sampling.temp = -1;
    assert_int_equal(lm_generator_submit(g, &d, &r, &st), INFR_BAD_INPUT);
    d.sampling.temp = 1, d.n_logprobs = 1000;
    assert_int_equal(lm_generator_submit(g, &d, &r, &st), INFR_BAD_INPUT);
    assert_null(r);
    lm_generator_destroy(g);
    fake_deinit(&f);
}

/* ---- grammars ---- */

struct jumps {
    const char *grammar; /* GBNF */
    bool none;           /* no jumps */
    int n_logprobs;
    uint32_t batch, chunk, preempt;
};

/* Answers of N_JUMPS requests; returns what the generator counted. */
enum { N_JUMPS = 6 };
static struct lm_counts answers_of(const struct jumps *j, struct answer *a)
{
    const uint8_t *trie;
    size_t n_trie;
    struct fake_model f;
    struct lm_request *r[N_JUMPS];
    struct lm_request_desc d;
    struct gr_grammar *grammar;
    struct gr_error error;
    struct lm_counts c;
    struct infr_status st;
    token_trie_build(&fx.arena, fx.blob, &trie, &n_trie);
    struct gr_vocab *v = gr_vocab_create(trie, n_trie);
    assert_non_null(v);
    assert_true(gr_compile(GR_GBNF, j->grammar, strlen(j->grammar), NULL, &grammar, &error));
    struct gr_state *s = gr_state_create(grammar);
    fake_init(&f, N_VOCAB, N_JUMPS * CTX / P, P, 0);
    struct lm_generator *g = make(&f, CTX, j->batch, j->chunk, false);
    for (uint32_t i = 0; i < N_JUMPS; i++) {
        lm_request_desc_init(&d);
        d.prompt = prompts[i], d.n_prompt = prompt_n[i], d.max_tokens = MOST_TOKENS;
        d.sampling.seed = i;
        d.grammar = s, d.grammar_vocab = v;
        d.jumps = !j->none, d.n_logprobs = j->n_logprobs;
        r[i] = submit(g, &d, &a[i]);
    }
    bool more = true;
    for (uint32_t step = 1; more; step++) {
        if (lm_generator_step(g, &more, &st)) fail_msg("%s", st.note);
        if (j->preempt && step % j->preempt == 0) lm_generator_preempt(g);
    }
    lm_generator_get_counts(g, &c);
    close_all(g, r, N_JUMPS);
    fake_deinit(&f);
    gr_state_destroy(s);
    gr_destroy(grammar);
    gr_vocab_destroy(v);
    return c;
}

static void test_jumps(void **state)
{
    (void)state;
    struct answer with[N_JUMPS], without[N_JUMPS];
    static const char *const grammars[] = {
        "root ::= \"hello world stop hello\"",
        "root ::= \"hello wor\" (\"ld\" | \"stop\") \" world\" [a-e] \"hello hello\" [a-e]*",
        "root ::= (\"hello \" [a-e] \" world \" [lo]){6}"};
    static const struct jumps ways[] = {{NULL, false, -1, N_JUMPS, 64, 0}, {NULL, false, -1, 1, 64, 0},
                                        {NULL, false, -1, 3, 1, 0},        {NULL, false, -1, N_JUMPS, 7, 2},
                                        {NULL, false, 2, 4, 16, 3}};
    for (size_t k = 0; k < sizeof grammars / sizeof *grammars; k++) {
        struct jumps single = {grammars[k], true, 2, N_JUMPS, 64, 0};
        struct lm_counts c_single = answers_of(&single, without);
        assert_int_equal(c_single.drafted, 0);
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            struct jumps j = ways[i];
            j.grammar = grammars[k];
            struct lm_counts c = answers_of(&j, with);
            assert_true(c.jumped > 0 && c.jumped < c.drafted);
            if (!i) assert_true(c.steps < c_single.steps);
            for (int r = 0; r < N_JUMPS; r++) { /* all as from single steps, to the bit */
                assert_string_equal(with[r].text, without[r].text);
                assert_int_equal(with[r].finish, without[r].finish);
                assert_int_equal(with[r].n, without[r].n);
                assert_memory_equal(with[r].tokens, without[r].tokens, with[r].n * sizeof *with[r].tokens);
                if (j.n_logprobs >= 0)
                    assert_memory_equal(with[r].logprobs, without[r].logprobs, with[r].n * sizeof *with[r].logprobs);
            }
        }
    }
}

static int setup(void **state)
{
    (void)state;
    vocab_begin(&fx);
    make_prompts();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fixture_end(&fx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matrix), cmocka_unit_test(test_prompts_that_leave), cmocka_unit_test(test_crowd_that_leaves),
        cmocka_unit_test(test_apart),
        cmocka_unit_test(test_stops),
        cmocka_unit_test(test_eos),
        cmocka_unit_test(test_half_character),
        cmocka_unit_test(test_context_full),
        cmocka_unit_test(test_sharing),
        cmocka_unit_test(test_prompt_logprobs),
        cmocka_unit_test(test_cancel_and_failure),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_jumps),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
