// SPDX-License-Identifier: Apache-2.0
/* What text commands share: engine, tokenizer, model, cache sizes, requests by options. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/engine.h"
#include "runtime/io.h"
#include "runtime/lm/lm_cli.h"
#include "runtime/status.h"

enum { CTX_UNKNOWN = 4096 }; /* where the model file does not say what it was trained for */

double lm_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- opening ---- */

int lm_open_text(struct lm_cli *c, struct lm_open *x)
{
    struct infr_status st = {0};
    *x = (struct lm_open){0};
    (void)c;
    struct infr_image image;
    int code = rt_self_image(&image, &st);
    struct infr_engine plan = {0};
    if (!code) code = rt_plan_load(&plan, image.plan, image.plan_bytes, &st);
    /* the plan's tables are not needed: tokenizing starts no threads and reads no weights */
    for (int i = 0; i < plan.n_copies; i++) free(plan.copies[i]);
    if (!code && (plan.h.text_offset % 64 || plan.h.text_bytes > plan.blob_bytes ||
                  plan.h.text_offset > plan.blob_bytes - plan.h.text_bytes))
        code = rt_fail(&st, INFR_ENVIRONMENT, "the engine is damaged: its text section");
    if (!code)
        code = lm_text_open((const uint8_t *)image.plan + plan.h.text_offset, plan.h.text_bytes,
                            &x->text, &st);
    return code ? cli_error(&st) : INFR_OK;
}

/* Pages for n_seqs sequences, by --ctx and --kv-memory; lowers the context where it may. */
static int size_cache(struct lm_cli *c, struct lm_open *x, uint32_t n_seqs, uint32_t default_ctx,
                      uint64_t *out_pages, struct infr_status *st)
{
    const struct lm_model *m = x->model;
    uint64_t P = m->page_tokens, trained = m->ctx_train ? m->ctx_train : CTX_UNKNOWN;
    uint64_t ctx = c->ctx ? (uint64_t)c->ctx : trained;
    if (!c->ctx && default_ctx && default_ctx < trained) ctx = default_ctx;
    if (ctx > trained && m->ctx_train)
        fprintf(stderr, "note: this model was trained for %" PRIu64 " tokens of context\n",
                trained);
    uint64_t each = (ctx + P - 1) / P, pages = each * n_seqs, most = UINT32_MAX >> 4;
    uint64_t memory = (uint64_t)c->kv_memory;
    if (!memory) memory = infr_session_memory(lm_model_session(x->model)) / 2;
    if (m->page_bytes && memory / m->page_bytes < most) most = memory / m->page_bytes;
    if (c->kv_memory && !c->ctx_given && each > most && most)
        ctx = most * P; /* asked for */
    else if (each > most) {
        if (c->ctx_given || !most)
            return rt_fail(st, INFR_BAD_INPUT,
                           "a context of %" PRIu64 " tokens takes %" PRIu64
                           " bytes of KV cache, more than the %" PRIu64 " there are",
                           ctx, each * m->page_bytes, memory);
        ctx = most * P;
        fprintf(stderr, "note: context of %" PRIu64 " tokens, what fits into half of the memory\n",
                ctx);
    }
    x->n_ctx = (uint32_t)ctx;
    *out_pages = pages < most && !c->kv_memory ? pages : most; /* memory given is memory used */
    return INFR_OK;
}

int lm_open_model(struct lm_cli *c, struct lm_open *x, uint32_t n_seqs, uint32_t default_ctx)
{
    struct infr_status st = {0};
    int code = lm_open_text(c, x);
    uint64_t pages = 0;
    if (code) return code;
    code = infr_engine_open_self(&c->engine_options, &x->e, &st);
    if (!code && infr_engine_note(x->e))
        fprintf(stderr, "note: %s; running on the CPU\n", infr_engine_note(x->e));
    if (!code) code = lm_model_open(x->e, &x->text.h, &x->model, &st);
    if (!code && x->model->page_tokens) code = size_cache(c, x, n_seqs, default_ctx, &pages, &st);
    if (!code && pages) code = lm_model_set_pages(x->model, (uint32_t)pages, &st);
    return code ? cli_error(&st) : INFR_OK;
}

int lm_open_generator(struct lm_cli *c, struct lm_open *x, uint32_t n_seqs, uint32_t default_ctx,
                      bool no_sharing)
{
    struct infr_status st = {0};
    int code = lm_open_model(c, x, n_seqs, default_ctx);
    if (code) return code;
    struct lm_generator_options o = {.n_ctx = x->n_ctx,
                                     .max_seqs = n_seqs,
                                     .chunk = (uint32_t)c->chunk,
                                     .hash_seed = lm_entropy(),
                                     .no_sharing = no_sharing};
    code = lm_generator_create(x->model, &x->text.tok, &o, &x->g, &st);
    return code ? cli_error(&st) : INFR_OK;
}

void lm_close(struct lm_open *x)
{
    lm_generator_destroy(x->g);
    lm_model_destroy(x->model);
    lm_text_deinit(&x->text);
    infr_engine_close(x->e);
    *x = (struct lm_open){0};
}

/* ---- requests ---- */

void lm_cli_sampling(struct lm_cli *c, const struct lm_text *t)
{
    const struct infr_text_header *h = &t->h;
    struct lm_sampling *s = &c->sampling;
    if (!c->temp_given) s->temp = isnan(h->temp) ? 0.8 : (double)h->temp;
    if (!c->top_k_given) s->top_k = h->top_k < 0 ? 40 : h->top_k;
    if (!c->top_p_given) s->top_p = isnan(h->top_p) ? 0.95 : (double)h->top_p;
    if (!c->min_p_given) s->min_p = isnan(h->min_p) ? 0.05 : (double)h->min_p;
    if (!c->repeat_given && !isnan(h->repeat_penalty))
        s->repeat_penalty = (double)h->repeat_penalty;
    if (!c->seed_given) s->seed = lm_entropy() >> 32; /* short enough to type */
}

static bool take_id(const char *text, char **end, uint32_t *out)
{
    unsigned long v = strtoul(text, end, 10);
    *out = (uint32_t)v;
    return *end != text && *text >= '0' && *text <= '9' && v < UINT32_MAX;
}

static int take_lists(struct lm_cli *c, struct lm_request_lists *l)
{
    char *end;
    for (size_t i = 0; i < c->stops.n; i++)
        l->stops[i] = (struct lm_stop_text){c->stops.v[i], strlen(c->stops.v[i])};
    for (size_t i = 0; i < c->breakers.n; i++)
        l->breakers[i] = (struct lm_breaker){c->breakers.v[i], strlen(c->breakers.v[i])};
    for (size_t i = 0; i < c->stop_tokens.n; i++)
        if (!take_id(c->stop_tokens.v[i], &end, &l->stop_tokens[i]) || *end)
            return cli_usage("--stop-token: '%s' is not a token id", c->stop_tokens.v[i]);
    for (size_t i = 0; i < c->biases.n; i++) {
        const char *text = c->biases.v[i];
        bool ok = take_id(text, &end, &l->biases[i].token) && *end == '=';
        if (ok) {
            text = end + 1;
            l->biases[i].bias = strtof(text, &end);
            ok = end != text && !*end;
        }
        if (!ok) return cli_usage("--logit-bias: '%s' is not ID=NUMBER", c->biases.v[i]);
    }
    return INFR_OK;
}

void lm_cli_lists_deinit(struct lm_request_lists *l)
{
    gr_state_destroy(l->state);
    gr_destroy(l->grammar);
    gr_vocab_destroy(l->vocab);
    free(l->memory);
}

/* The file of the option that has one. */
static int read_grammar(struct lm_cli *c, enum gr_kind *kind, struct rt_bytes *text)
{
    const char *path = c->json_schema ? c->json_schema : c->grammar;
    struct infr_status st;
    *text = (struct rt_bytes){0};
    *kind = c->json_object   ? GR_JSON_OBJECT
            : c->json_schema ? GR_JSON_SCHEMA
            : c->regex       ? GR_REGEX
                             : GR_GBNF;
    size_t n = c->grammar ? strlen(c->grammar) : 0;
    if (n > 5 && !strcmp(c->grammar + n - 5, ".lark")) *kind = GR_LARK;
    if (!path) return INFR_OK;
    return rt_file_read(path, text, &st) ? cli_error(&st) : INFR_OK;
}

static int take_grammar(struct lm_cli *c, const struct lm_open *x, struct lm_request_lists *l)
{
    int given = !!c->json_schema + !!c->grammar + !!c->regex + c->json_object, code;
    struct rt_bytes file;
    struct infr_status st;
    struct gr_error e;
    enum gr_kind kind;
    if (!given) return INFR_OK;
    if (given > 1)
        return cli_usage("give one of --json-schema, --json-object, --grammar and --regex");
    if ((code = read_grammar(c, &kind, &file))) return code;
    const char *text = c->regex ? c->regex : file.n ? (const char *)file.data : "";
    size_t n = c->regex ? strlen(c->regex) : file.n;
    bool ok = gr_compile(kind, text, n, &(struct gr_options){.few_escapes = true},
                         &l->grammar, &e);
    free(file.data);
    if (!ok && e.pointer[0]) return cli_usage("the schema, %s: %s", e.pointer, e.message);
    if (!ok) return cli_usage("the grammar, byte %zu: %s", e.offset, e.message);
    if (lm_text_vocab(&x->text, &l->vocab, &st)) return cli_error(&st);
    l->state = gr_state_create(l->grammar);
    return l->state ? INFR_OK : cli_usage("no memory for the grammar");
}

int lm_cli_request(struct lm_cli *c, const struct lm_open *x, struct lm_request_desc *d,
                   struct lm_request_lists *l)
{
    size_t n = c->stops.n + c->breakers.n + c->stop_tokens.n + c->biases.n + 1;
    *l = (struct lm_request_lists){0};
    char *p = calloc(n, 2 * sizeof(struct lm_stop_text));
    if (!p) return cli_usage("no memory for options");
    l->memory = p;
    l->stops = (struct lm_stop_text *)(void *)p, p += c->stops.n * sizeof *l->stops;
    l->breakers = (struct lm_breaker *)(void *)p, p += c->breakers.n * sizeof *l->breakers;
    l->biases = (struct lm_bias *)(void *)p, p += c->biases.n * sizeof *l->biases;
    l->stop_tokens = (uint32_t *)(void *)p;
    int code = take_lists(c, l);
    if (!code) code = take_grammar(c, x, l);
    if (code) return code;
    lm_request_desc_init(d);
    d->sampling = c->sampling;
    if (c->breakers.n) d->sampling.breakers = l->breakers, d->sampling.n_breakers = c->breakers.n;
    d->sampling.bias = l->biases, d->sampling.n_bias = c->biases.n;
    d->stops = l->stops, d->n_stops = c->stops.n;
    d->stop_tokens = l->stop_tokens, d->n_stop_tokens = c->stop_tokens.n;
    if (c->predict_given) d->max_tokens = (uint32_t)c->predict;
    d->min_tokens = (uint32_t)c->min_tokens;
    d->ignore_eos = c->ignore_eos, d->show_special = c->show_special;
    d->n_logprobs = (int)c->logprobs, d->prompt_logprobs = c->prompt_logprobs;
    if (c->prompt_logprobs && d->n_logprobs < 0) d->n_logprobs = 0;
    d->grammar = l->state, d->grammar_vocab = l->vocab, d->jumps = c->jumps;
    d->on_full = c->on_full;
    d->n_keep = c->keep >= 0 ? (uint32_t)c->keep : tok_wants(&x->text.tok, TOK_F_ADD_BOS);
    return INFR_OK;
}

/* ---- text in ---- */

int lm_cli_read_text(struct lm_cli *c, char **out_text, size_t *out_n)
{
    const char *path = c->file;
    struct infr_status st;
    struct rt_bytes bytes;
    if (!path && c->positional.n) path = c->positional.v[0];
    if (c->positional.n > 1 || (c->prompt && path) || (c->file && c->positional.n))
        return cli_usage("give one text: -p TEXT or a file");
    if (c->prompt) {
        *out_n = strlen(c->prompt);
        *out_text = strdup(c->prompt);
        return *out_text ? INFR_OK : cli_usage("no memory for the text");
    }
    if (!path && isatty(STDIN_FILENO))
        return cli_usage("no text: give -p TEXT or a file; - is standard input");
    if (rt_file_read(path ? path : "-", &bytes, &st)) return cli_error(&st);
    *out_text = (char *)bytes.data;
    *out_n = bytes.n;
    return INFR_OK;
}
