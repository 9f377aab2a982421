// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/lm/lm_cli.h"
#include "runtime/lm/lm_math.h"

/* A window has this many tokens where --ctx does not say. */
enum { DEFAULT_WINDOW = 2048 };

struct score {
    double sum, squares; /* of negative log probabilities */
    uint64_t n;
    uint32_t skip; /* tokens of the window that count already */
    uint32_t seen;
};

static void on_event(void *user, const struct lm_event *e)
{
    struct score *s = user;
    if (!e->of_prompt || s->seen++ < s->skip) return;
    double nll = -(double)e->logprob;
    s->sum += nll;
    s->squares += nll * nll;
    s->n++;
}

static int score_window(struct lm_open *x, const uint32_t *ids, uint32_t n, struct score *s)
{
    struct lm_request_desc d;
    struct lm_request *r;
    struct infr_status st;
    lm_request_desc_init(&d);
    d.prompt = ids, d.n_prompt = n, d.max_tokens = 0;
    d.prompt_logprobs = true, d.n_logprobs = 0;
    d.on_event = on_event, d.user = s;
    s->seen = 0;
    int code = lm_generator_submit(x->g, &d, &r, &st);
    if (!code) code = lm_generator_run(x->g, &st);
    if (!code && lm_request_finish(r) == LM_FINISH_ERROR)
        code = cli_usage("%s", lm_request_error(r));
    else if (code)
        cli_error(&st);
    lm_request_destroy(r);
    return code;
}

/* Windows of n_ctx tokens, bos included, begin every `stride` tokens; what an earlier one had is
 * context only. */
static int score_all(struct lm_cli *c, struct lm_open *x, const uint32_t *ids, size_t n,
                     struct score *s, uint64_t *windows)
{
    uint32_t bos = tok_special_id(&x->text.tok, TOK_SPECIAL_BOS);
    bool with_bos = !c->no_bos && bos != TOK_NONE && tok_wants(&x->text.tok, TOK_F_ADD_BOS);
    size_t room = x->n_ctx - with_bos, stride = c->stride ? (size_t)c->stride : room, done = 0;
    if (stride > room) return cli_usage("--stride is larger than a window of %zu tokens", room);
    uint32_t *w = malloc((room + 1) * sizeof *w);
    int code = w ? 0 : cli_usage("no memory for a window");
    for (size_t at = 0; !code && done < n; at += stride, ++*windows) {
        size_t len = n - at < room ? n - at : room;
        w[0] = bos;
        memcpy(w + with_bos, ids + at, len * sizeof *w);
        /* row i tells of token i + 1; without bos a window's first token is not told of */
        s->skip = (uint32_t)(done > at ? done - at - !with_bos : 0);
        code = score_window(x, w, (uint32_t)(len + with_bos), s);
        done = at + len;
    }
    free(w);
    return code;
}

static void report(struct lm_cli *c, const struct lm_open *x, const struct score *s,
                   uint64_t windows, double seconds)
{
    double mean = s->sum / (double)s->n, var = s->squares / (double)s->n - mean * mean;
    double ppl = lm_exp(mean), error = sqrt(var > 0 ? var / (double)s->n : 0) * ppl;
    if (!c->json) {
        printf("perplexity %.6f +- %.6f (%llu tokens in %llu windows of %u, %.6f nats a token)\n",
               ppl, error, (unsigned long long)s->n, (unsigned long long)windows, x->n_ctx, mean);
        fprintf(stderr, "%.1f tokens a second\n", (double)s->n / seconds);
        return;
    }
    struct json j = {.f = stdout};
    json_open(&j, NULL, '{');
    json_string(&j, "model", rt_text(x->e, x->e->h.model_name));
    json_number(&j, "perplexity", ppl);
    json_number(&j, "standard_error", error);
    json_number(&j, "nll", mean);
    json_int(&j, "tokens", (int64_t)s->n);
    json_int(&j, "windows", (int64_t)windows);
    json_int(&j, "ctx", x->n_ctx);
    json_number(&j, "tokens_per_second", (double)s->n / seconds);
    json_close(&j, '}');
    putchar('\n');
}

static int measure(struct lm_cli *c, struct lm_open *x, const uint32_t *ids, size_t n)
{
    struct score s = {0};
    uint64_t windows = 0;
    double start = lm_now();
    int code = score_all(c, x, ids, n, &s, &windows);
    if (!code && !s.n) code = cli_usage("the text has %zu tokens: too few to predict one", n);
    if (!code) report(c, x, &s, windows, lm_now() - start);
    return code;
}

int lm_cmd_perplexity(struct lm_cli *c)
{
    struct lm_open x = {0};
    struct infr_status st;
    char *text = NULL;
    size_t n, n_ids;
    uint32_t *ids = NULL;
    int code = lm_cli_read_text(c, &text, &n);
    if (!code) code = lm_open_generator(c, &x, 1, DEFAULT_WINDOW, true);
    if (!code && x.n_ctx < 2) code = cli_usage("--ctx: a window has two tokens at least");
    if (!code && lm_text_encode(&x.text, text, n, c->parse_special ? TOK_ENCODE_SPECIAL : 0, &ids,
                                &n_ids, &st))
        code = cli_error(&st);
    if (!code) code = measure(c, &x, ids, n_ids);
    free(ids);
    free(text);
    lm_close(&x);
    return code;
}
