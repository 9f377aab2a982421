// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/lm/lm_cli.h"

/* One answer as it is written. Log probabilities are kept only where they are wanted. */
struct answer {
    struct lm_cli *c;
    const struct tok *tok;
    struct lm_request *r;
    bool stream; /* text goes out at once */
    double *first, start;
    char *text;
    size_t n_text, cap_text;
    uint32_t *tokens;
    size_t n_tokens, cap_tokens;
    struct json_token {
        uint32_t token;
        float logprob;
        bool of_prompt;
        uint32_t n_top;
        struct lm_logprob *top;
    } * logprobs;
    size_t n_logprobs, cap_logprobs;
    bool no_memory;
};

static bool grow(struct answer *a, void **v, size_t *cap, size_t want, size_t each)
{
    if (want <= *cap) return true;
    size_t more = *cap ? 2 * *cap : 64;
    if (more < want) more = want;
    void *p = realloc(*v, more * each);
    if (!p) {
        a->no_memory = true;
        return false;
    }
    *v = p, *cap = more;
    return true;
}

static void keep_logprob(struct answer *a, const struct lm_event *e)
{
    struct json_token t = {e->token, e->logprob, e->of_prompt, e->n_top, NULL};
    if (!grow(a, (void **)&a->logprobs, &a->cap_logprobs, a->n_logprobs + 1, sizeof t)) return;
    if (e->n_top) {
        t.top = malloc(e->n_top * sizeof *t.top);
        if (!t.top)
            t.n_top = 0, a->no_memory = true;
        else
            memcpy(t.top, e->top, e->n_top * sizeof *t.top);
    }
    a->logprobs[a->n_logprobs++] = t;
}

static void on_event(void *user, const struct lm_event *e)
{
    struct answer *a = user;
    if (*a->first <= 0 && !e->of_prompt) *a->first = lm_now();
    if (a->stream && e->n_text) {
        fwrite(e->text, 1, e->n_text, stdout);
        fflush(stdout);
    }
    if (!a->stream && e->n_text &&
        grow(a, (void **)&a->text, &a->cap_text, a->n_text + e->n_text, 1)) {
        memcpy(a->text + a->n_text, e->text, e->n_text);
        a->n_text += e->n_text;
    }
    if (e->token == LM_NO_TOKEN) return;
    if (a->c->json && !e->of_prompt &&
        grow(a, (void **)&a->tokens, &a->cap_tokens, a->n_tokens + 1, sizeof *a->tokens))
        a->tokens[a->n_tokens++] = e->token;
    if (a->c->logprobs >= 0 || a->c->prompt_logprobs) keep_logprob(a, e);
}

/* ---- output ---- */

static void json_logprobs(struct json *j, const struct answer *a, bool of_prompt)
{
    json_open(j, of_prompt ? "prompt_logprobs" : "logprobs", '[');
    for (size_t i = 0; i < a->n_logprobs; i++) {
        const struct json_token *t = &a->logprobs[i];
        if (t->of_prompt != of_prompt) continue;
        json_open(j, NULL, '{');
        json_int(j, "id", t->token);
        lm_json_token(j, "token", a->tok, t->token);
        json_number(j, "logprob", (double)t->logprob);
        json_open(j, "top", '[');
        for (uint32_t k = 0; k < t->n_top; k++) {
            json_open(j, NULL, '{');
            json_int(j, "id", t->top[k].token);
            lm_json_token(j, "token", a->tok, t->top[k].token);
            json_number(j, "logprob", (double)t->top[k].logprob);
            json_close(j, '}');
        }
        json_close(j, ']');
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void json_answer(struct json *j, const struct answer *a, int64_t index)
{
    json_open(j, NULL, '{');
    json_int(j, "index", index);
    lm_json_text(j, "text", a->text ? a->text : "", a->n_text);
    json_string(j, "finish_reason", lm_finish_name(lm_request_finish(a->r)));
    json_open(j, "tokens", '[');
    for (size_t i = 0; i < a->n_tokens; i++) json_int(j, NULL, a->tokens[i]);
    json_close(j, ']');
    if (a->c->logprobs >= 0) json_logprobs(j, a, false);
    if (a->c->prompt_logprobs) json_logprobs(j, a, true);
    json_close(j, '}');
}

/* Lines of "logprob token" on standard error. */
static void print_logprobs(const struct answer *a)
{
    for (size_t i = 0; i < a->n_logprobs; i++) {
        const struct json_token *t = &a->logprobs[i];
        struct json j = {.f = stderr};
        fprintf(stderr, "%s%10.5f ", t->of_prompt ? "prompt " : "", (double)t->logprob);
        lm_json_token(&j, NULL, a->tok, t->token);
        for (uint32_t k = 0; k < t->n_top; k++) {
            fprintf(stderr, "  %.5f ", (double)t->top[k].logprob);
            j.comma = false;
            lm_json_token(&j, NULL, a->tok, t->top[k].token);
        }
        fputc('\n', stderr);
    }
}

struct figures {
    uint32_t n_prompt, n_cached, n_generated;
    double ttft_s, decode_s;
};

static struct figures figures_of(const struct answer *a, size_t n, double start, double first,
                                 double end)
{
    struct figures f = {.ttft_s = first - start, .decode_s = end - first};
    for (size_t i = 0; i < n; i++) {
        uint32_t generated;
        lm_request_usage(a[i].r, &f.n_prompt, &f.n_cached, &generated);
        f.n_generated += generated;
    }
    return f;
}

static double rate(double n, double s) { return s > 0 && n > 0 ? n / s : 0; }

static void print_json(struct lm_cli *c, const struct lm_open *x, const struct answer *a, size_t n,
                       const struct figures *f)
{
    struct json j = {.f = stdout};
    json_open(&j, NULL, '{');
    json_string(&j, "model", rt_text(x->e, x->e->h.model_name));
    json_int(&j, "seed", (int64_t)c->sampling.seed);
    json_open(&j, "choices", '[');
    for (size_t i = 0; i < n; i++) json_answer(&j, &a[i], (int64_t)i);
    json_close(&j, ']');
    json_open(&j, "usage", '{');
    json_int(&j, "prompt_tokens", f->n_prompt);
    json_int(&j, "completion_tokens", f->n_generated);
    json_int(&j, "total_tokens", (int64_t)f->n_prompt + f->n_generated);
    json_close(&j, '}');
    json_open(&j, "timings", '{');
    json_number(&j, "ttft_ms", 1e3 * f->ttft_s);
    json_number(&j, "prefill_tok_s", rate(f->n_prompt, f->ttft_s));
    json_number(&j, "decode_tok_s", rate((double)f->n_generated - (double)n, f->decode_s));
    json_close(&j, '}');
    json_close(&j, '}');
    putchar('\n');
}

static int print_end(struct lm_cli *c, const struct lm_open *x, struct answer *a, size_t n,
                     const struct figures *f)
{
    int code = INFR_OK;
    if (c->json) {
        print_json(c, x, a, n, f);
    } else {
        for (size_t i = 0; i < n && n > 1; i++) {
            fprintf(stderr, "answer %zu:\n", i + 1);
            fwrite(a[i].text, 1, a[i].n_text, stdout);
            putchar('\n');
            fflush(stdout);
        }
        if (n == 1) putchar('\n');
        fflush(stdout);
        for (size_t i = 0; i < n; i++) print_logprobs(&a[i]);
        if (!c->quiet)
            fprintf(stderr,
                    "\n%u prompt tokens in %.1f ms (%.1f a second), %u generated in %.1f ms (%.1f "
                    "a second); seed %llu, %s, %u threads\n",
                    f->n_prompt, 1e3 * f->ttft_s, rate(f->n_prompt, f->ttft_s), f->n_generated,
                    1e3 * f->decode_s, rate((double)f->n_generated - (double)n, f->decode_s),
                    (unsigned long long)c->sampling.seed, infr_engine_isa(x->e),
                    infr_engine_threads(x->e));
    }
    for (size_t i = 0; i < n; i++) {
        enum lm_finish finish = lm_request_finish(a[i].r);
        if (finish == LM_FINISH_ERROR)
            code = cli_usage("%s", lm_request_error(a[i].r)), code = INFR_ENVIRONMENT;
        if (finish == LM_FINISH_CONTEXT)
            code = cli_usage("the context of %u tokens is full and the answer is not at its end: "
                             "give --ctx or --on-full=slide",
                             x->n_ctx);
        if (a[i].no_memory) code = cli_usage("no memory for the answer"), code = INFR_ENVIRONMENT;
    }
    return code;
}

/* ---- entry ---- */

static int answer_all(struct lm_cli *c, struct lm_open *x, struct lm_request_desc *d,
                      struct answer *a, size_t n)
{
    struct infr_status st;
    double first = 0, start = lm_now();
    int code = 0;
    for (size_t i = 0; !code && i < n; i++) {
        a[i] = (struct answer){
            .c = c, .tok = &x->text.tok, .stream = !c->json && n == 1, .first = &first};
        d->sampling.stream = (uint32_t)i;
        d->on_event = on_event, d->user = &a[i];
        code = lm_generator_submit(x->g, d, &a[i].r, &st);
    }
    if (!code) code = lm_generator_run(x->g, &st);
    if (code) return cli_error(&st);
    double end = lm_now();
    struct figures f = figures_of(a, n, start, first > 0 ? first : end, end);
    return print_end(c, x, a, n, &f);
}

static int generate(struct lm_cli *c, struct lm_open *x, const uint32_t *ids, size_t n_ids)
{
    struct lm_request_desc d;
    struct lm_request_lists lists;
    size_t n = (size_t)c->choices;
    struct answer *a = calloc(n, sizeof *a);
    int code = lm_cli_request(c, x, &d, &lists);
    if (!a) code = INFR_ENVIRONMENT;
    d.prompt = ids, d.n_prompt = n_ids > UINT32_MAX ? UINT32_MAX : (uint32_t)n_ids;
    if (!code) code = answer_all(c, x, &d, a, n);
    for (size_t i = 0; a && i < n; i++) {
        lm_request_destroy(a[i].r);
        for (size_t k = 0; k < a[i].n_logprobs; k++) free(a[i].logprobs[k].top);
        free(a[i].logprobs);
        free(a[i].tokens);
        free(a[i].text);
    }
    free(a);
    lm_cli_lists_deinit(&lists);
    return code;
}

int lm_cmd_generate(struct lm_cli *c)
{
    struct lm_open x = {0};
    struct infr_status st;
    char *text = NULL;
    size_t n, n_ids = 0;
    uint32_t *ids = NULL;
    int code = lm_cli_read_text(c, &text, &n);
    if (!code) code = lm_open_generator(c, &x, (uint32_t)c->choices, 0, false);
    if (!code) {
        unsigned flags = (c->no_bos ? 0 : TOK_ENCODE_BOS) |
                         (c->parse_special ? TOK_ENCODE_SPECIAL : 0);
        lm_cli_sampling(c, &x.text);
        if (lm_text_encode(&x.text, text, n, flags, &ids, &n_ids, &st)) code = cli_error(&st);
    }
    if (!code) code = generate(c, &x, ids, n_ids);
    free(ids);
    free(text);
    lm_close(&x);
    return code;
}
