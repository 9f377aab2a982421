// SPDX-License-Identifier: Apache-2.0
/*
 * Speed of a model: a batch of prompts of made-up tokens is read (prefill, and the time to the
 * first token of all), then answers are written (decode). Each run is on fresh pages.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/abi/random.h"
#include "runtime/lm/lm_cli.h"

struct run {
    double prefill_s, decode_s;
    uint64_t decoded; /* tokens behind the first of each answer */
};

struct progress {
    uint64_t tokens;
};

static void on_event(void *user, const struct lm_event *e)
{
    struct progress *p = user;
    if (e->token != LM_NO_TOKEN) p->tokens++;
}

static int run_once(struct lm_cli *c, struct lm_open *x, uint32_t *prompt, uint64_t seed,
                    struct run *out)
{
    size_t n = (size_t)c->batch, len = (size_t)c->bench_prompt;
    struct infr_status st;
    struct progress p = {0};
    struct lm_request_desc d;
    struct lm_request **r = calloc(n, sizeof(struct lm_request *));
    int code = r ? 0 : INFR_ENVIRONMENT;
    bool more = true;
    lm_request_desc_init(&d);
    d.sampling.temp = 0;
    d.prompt = prompt, d.n_prompt = (uint32_t)len;
    d.max_tokens = (uint32_t)c->predict + 1, d.ignore_eos = true;
    d.on_event = on_event, d.user = &p;
    for (size_t i = 0; !code && i < n; i++) {
        for (size_t k = 0; k < len; k++)
            prompt[k] = (uint32_t)infr_random_int(seed, (uint32_t)i, k, tok_count(&x->text.tok));
        code = lm_generator_submit(x->g, &d, &r[i], &st);
    }
    double start = lm_now();
    while (!code && more && p.tokens < n) code = lm_generator_step(x->g, &more, &st);
    double first = lm_now();
    uint64_t before = p.tokens;
    while (!code && more) code = lm_generator_step(x->g, &more, &st);
    *out = (struct run){first - start, lm_now() - first, p.tokens - before};
    for (size_t i = 0; r && i < n; i++) lm_request_destroy(r[i]);
    free(r);
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

static int measure(struct lm_cli *c, struct lm_open *x, uint32_t *prompt, double *values)
{
    size_t n = (size_t)c->repeat;
    double *prefill = values, *decode = values + n, *ttft = values + 2 * n;
    struct run r;
    int code = run_once(c, x, prompt, 1, &r); /* warm */
    for (size_t i = 0; !code && i < n; i++) {
        code = run_once(c, x, prompt, 2 + i, &r);
        prefill[i] = (double)(c->batch * c->bench_prompt) / (r.prefill_s > 0 ? r.prefill_s : 1e-9);
        decode[i] = (double)r.decoded / (r.decode_s > 0 ? r.decode_s : 1e-9);
        ttft[i] = 1e3 * r.prefill_s;
    }
    if (!code) report(c, x, median(prefill, n), median(decode, n), median(ttft, n));
    return code;
}

int lm_cmd_bench(struct lm_cli *c)
{
    struct lm_open x = {0};
    if (c->positional.n) return cli_usage("bench takes no text");
    if (!c->predict_given) c->predict = 128;
    uint32_t need = (uint32_t)(c->bench_prompt + c->predict + 2);
    if (!c->ctx) c->ctx = need;
    uint32_t *prompt = calloc((size_t)c->bench_prompt, sizeof *prompt);
    double *values = calloc(3 * (size_t)c->repeat, sizeof *values);
    int code = prompt && values ? 0 : cli_usage("no memory for the prompt");
    if (!code) code = lm_open_generator(c, &x, (uint32_t)c->batch, 0, true);
    if (!code) code = measure(c, &x, prompt, values);
    free(prompt);
    free(values);
    lm_close(&x);
    return code;
}
