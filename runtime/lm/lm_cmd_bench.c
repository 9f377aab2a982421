// SPDX-License-Identifier: Apache-2.0
/*
 * Speed of a model: a batch of prompts of made-up tokens is read (prefill, until each answer has
 * its first token), then answers are written (decode). The time to the first token is the mean over
 * the batch. Each run is on fresh pages.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/abi/random.h"
#include "runtime/bench_loop.h"
#include "runtime/lm/lm_cli.h"
#include "runtime/status.h"

struct run {
    double prefill_s, decode_s, ttft_s;
    uint64_t decoded; /* tokens while all answers were written */
};

struct progress {
    uint64_t tokens, begun;
    double start, ttft_s; /* ttft_s: sum over the answers that have begun */
};

struct answer {
    struct progress *p;
    bool begun;
};

static void on_event(void *user, const struct lm_event *e)
{
    struct answer *a = user;
    if (e->token == LM_NO_TOKEN) return;
    a->p->tokens++;
    if (a->begun) return;
    a->begun = true;
    a->p->begun++;
    a->p->ttft_s += lm_now() - a->p->start;
}

/* The requests of one run. */
struct batch {
    struct lm_request **r;
    struct answer *a;
};

static int submit(struct lm_cli *c, struct lm_open *x, uint32_t *prompt, uint64_t seed,
                  struct progress *p, struct batch *b, struct infr_status *st)
{
    size_t n = (size_t)c->batch, len = (size_t)c->bench_prompt;
    struct lm_request_desc d;
    int code = 0;
    b->r = calloc(n, sizeof(struct lm_request *));
    b->a = calloc(n, sizeof *b->a);
    if (!b->r || !b->a) return rt_fail_memory(st, "the answers", n * sizeof *b->a);
    lm_request_desc_init(&d);
    d.sampling.temp = 0;
    d.prompt = prompt, d.n_prompt = (uint32_t)len;
    d.max_tokens = (uint32_t)c->predict + 1, d.ignore_eos = true;
    d.on_event = on_event;
    for (size_t i = 0; !code && i < n; i++) {
        for (size_t k = 0; k < len; k++)
            prompt[k] = (uint32_t)infr_random_int(seed, (uint32_t)i, k, tok_count(&x->text.tok));
        b->a[i].p = p;
        d.user = &b->a[i];
        code = lm_generator_submit(x->g, &d, &b->r[i], st);
    }
    p->start = lm_now();
    return code;
}

static void release(struct batch *b, size_t n)
{
    for (size_t i = 0; b->r && i < n; i++) lm_request_destroy(b->r[i]);
    free(b->r);
    free(b->a);
}

static int run_once(struct lm_cli *c, struct lm_open *x, uint32_t *prompt, uint64_t seed,
                    struct run *out)
{
    struct infr_status st;
    struct progress p = {0};
    struct batch b = {0};
    size_t n = (size_t)c->batch;
    bool more = true;
    int code = submit(c, x, prompt, seed, &p, &b, &st);
    while (!code && more && p.begun < n) code = lm_generator_step(x->g, &more, &st);
    double first = lm_now();
    uint64_t before = p.tokens;
    while (!code && more) code = lm_generator_step(x->g, &more, &st);
    *out = (struct run){first - p.start, lm_now() - first, p.ttft_s / (double)n, p.tokens - before};
    release(&b, n);
    return code ? cli_error(&st) : INFR_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *v, size_t n)
{
    qsort(v, n, sizeof *v, by_value);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static void report(struct lm_cli *c, const struct lm_open *x, double prefill, double decode,
                   double ttft_ms)
{
    struct lm_counts counts;
    lm_generator_get_counts(x->g, &counts);
    if (!c->json) {
        printf("%s: %s, %u threads, batch %lld, median of %lld runs\n",
               rt_text(x->e, x->e->h.model_name), infr_engine_isa(x->e), infr_engine_threads(x->e),
               (long long)c->batch, (long long)c->repeat);
        printf("prefill %10.1f tokens a second (%lld a prompt)\n", prefill,
               (long long)c->bench_prompt);
        printf("decode  %10.1f tokens a second (%lld an answer)\n", decode, (long long)c->predict);
        printf("first token after %.2f ms\n", ttft_ms);
        return;
    }
    struct json j = {.f = stdout};
    json_open(&j, NULL, '{');
    json_string(&j, "model", rt_text(x->e, x->e->h.model_name));
    json_string(&j, "level", infr_engine_isa(x->e));
    json_int(&j, "threads", infr_engine_threads(x->e));
    json_int(&j, "batch", c->batch);
    json_int(&j, "prompt_tokens", c->bench_prompt);
    json_int(&j, "generated_tokens", c->predict);
    json_int(&j, "chunk", c->chunk);
    json_int(&j, "runs", c->repeat);
    json_number(&j, "prefill_tok_s", prefill);
    json_number(&j, "decode_tok_s", decode);
    json_number(&j, "ttft_ms", ttft_ms);
    json_int(&j, "kv_bytes_a_token", (int64_t)(x->model->page_bytes / x->model->page_tokens));
    json_int(&j, "most_pages", counts.pages.most_held);
    json_close(&j, '}');
    putchar('\n');
}

struct loop {
    struct lm_cli *c;
    struct lm_open *x;
    uint32_t *prompt;
    uint64_t seed;
};

static double prefill_rate(const struct lm_cli *c, const struct run *r)
{
    return (double)(c->batch * c->bench_prompt) / (r->prefill_s > 0 ? r->prefill_s : 1e-9);
}

static double decode_rate(const struct run *r)
{
    return (double)r->decoded / (r->decode_s > 0 ? r->decode_s : 1e-9);
}

static int loop_run(void *context, double *figures)
{
    struct loop *l = context;
    struct run r;
    int code = run_once(l->c, l->x, l->prompt, ++l->seed, &r);
    if (code) return code;
    figures[0] = decode_rate(&r), figures[1] = prefill_rate(l->c, &r), figures[2] = 1e3 * r.ttft_s;
    return INFR_OK;
}

static int bench(struct lm_cli *c, struct lm_open *x, uint32_t *prompt)
{
    if (c->loop) {
        struct loop l = {c, x, prompt, 0};
        return bench_loop("decode_tok_s:higher prefill_tok_s:higher ttft_ms:lower", 3, loop_run, &l);
    }
    size_t n = (size_t)c->repeat;
    double *prefill = calloc(3 * n, sizeof *prefill), *decode = prefill + n, *ttft = decode + n;
    struct run r;
    if (!prefill) return cli_usage("no memory for %zu runs", n);
    int code = run_once(c, x, prompt, 1, &r); /* warm */
    for (size_t i = 0; !code && i < n; i++) {
        code = run_once(c, x, prompt, 2 + i, &r);
        prefill[i] = prefill_rate(c, &r);
        decode[i] = decode_rate(&r);
        ttft[i] = 1e3 * r.ttft_s;
    }
    if (!code) report(c, x, median(prefill, n), median(decode, n), median(ttft, n));
    free(prefill);
    return code;
}

/* A generator without shared pages, and room for a prompt. */
static int with_prompt(struct lm_cli *c,
                       int (*run)(struct lm_cli *c, struct lm_open *x, uint32_t *prompt))
{
    struct lm_open x = {0};
    if (c->positional.n) return cli_usage("%s takes no text", c->command);
    if (!c->ctx) c->ctx = c->bench_prompt + c->predict + 2;
    uint32_t *prompt = calloc((size_t)c->bench_prompt, sizeof *prompt);
    int code = prompt ? 0 : cli_usage("no memory for the prompt");
    if (!code) code = lm_open_generator(c, &x, (uint32_t)c->batch, 0, true);
    if (!code) code = run(c, &x, prompt);
    free(prompt);
    lm_close(&x);
    return code;
}

int lm_cmd_bench(struct lm_cli *c)
{
    if (!c->predict_given) c->predict = 128;
    return with_prompt(c, bench);
}

/* ---- profile ---- */

static int profile(struct lm_cli *c, struct lm_open *x, uint32_t *prompt)
{
    struct infr_session *s = lm_model_session(x->model);
    struct infr_status st;
    struct progress p = {0};
    struct lm_counts before, after;
    struct run warm;
    bool more = true;
    int64_t n = c->predict;
    /* a first run touches the weights */
    c->predict = 0;
    int code = run_once(c, x, prompt, 1, &warm);
    if (code) return code;
    struct batch b = {0};
    c->predict = n;
    code = submit(c, x, prompt, 2, &p, &b, &st);
    while (!code && n && more && p.begun < (uint64_t)c->batch)
        code = lm_generator_step(x->g, &more, &st);
    lm_generator_get_counts(x->g, &before);
    if (!code) code = cli_profile_start(s, c->trace, &st);
    while (!code && more) code = lm_generator_step(x->g, &more, &st);
    lm_generator_get_counts(x->g, &after);
    release(&b, (size_t)c->batch);
    if (code) return cli_error(&st);
    code = cli_profile_report(s, (long)(after.steps - before.steps), c->json);
    return !code && c->trace ? cli_profile_trace(s, c->trace) : code;
}

int lm_cmd_profile(struct lm_cli *c)
{
    if (!c->predict_given) c->predict = 32;
    return with_prompt(c, profile);
}
