// SPDX-License-Identifier: Apache-2.0
/* `serve`: options, the model and its caches, then the server. */
#include <stdlib.h>
#include <string.h>

#include "runtime/serve/api.h"
#include "runtime/status.h"

static int use_template(struct lm_cli *c, struct server *s)
{
    struct infr_status st;
    struct lm_cli file = {.file = c->template_file};
    char *text;
    size_t n;
    if (!c->template_file) return INFR_OK;
    int code = lm_cli_read_text(&file, &text, &n);
    if (code) return code;
    code = lm_text_use_template(&s->x.text, text, n, &st) ? cli_error(&st) : INFR_OK;
    free(text);
    return code;
}

/* --template-args: chat_template_kwargs of requests that have none. */
static int take_kwargs(struct lm_cli *c, struct server *s, struct jinja_arena **arena)
{
    struct json_read_error error;
    struct jinja_value *v;
    size_t n = c->template_args ? strlen(c->template_args) : 0;
    if (!n) return INFR_OK;
    *arena = jinja_arena_create(64 * n + (1u << 16));
    v = *arena ? jinja_arena_alloc(*arena, sizeof *v, 8) : NULL;
    if (!v) return cli_usage("no memory for --template-args"), INFR_ENVIRONMENT;
    if (!json_read(*arena, c->template_args, n, v, &error) || v->kind != JINJA_DICT)
        return cli_usage("--template-args is a JSON object");
    s->o.template_kwargs = v;
    return INFR_OK;
}

static int open_texts(struct lm_cli *c, struct server *s)
{
    struct infr_status st;
    int code = use_template(c, s);
    if (code) return code;
    struct lm_generator_options o = {.n_ctx = s->x.n_ctx,
                                     .max_seqs = s->o.parallel,
                                     .chunk = s->o.chunk,
                                     .hash_seed = lm_entropy(),
                                     .keep_others = true};
    lm_cli_sampling(c, &s->x.text);
    s->sampling = c->sampling;
    return lm_generator_create(s->x.model, &s->x.text.tok, &o, &s->x.g, &st) ? cli_error(&st)
                                                                             : INFR_OK;
}

static int open_vectors(struct server *s)
{
    const struct lm_model *m = s->x.model;
    struct infr_status st;
    uint32_t ctx = s->x.n_ctx ? s->x.n_ctx : m->ctx_train ? m->ctx_train : 512;
    if (s->o.pooling && m->pooling == INFR_POOLING_RANK) return cli_usage("--pooling: the model ranks texts");
    if (!s->o.pooling) s->o.pooling = m->pooling;
    if (s->o.pooling < INFR_POOLING_MEAN || s->o.pooling > INFR_POOLING_RANK)
        return cli_usage("the model does not say how its rows become a vector");
    s->x.n_ctx = ctx;
    s->o.parallel = 0;
    return lm_embedder_init(&s->embedder, s->x.model, ctx, s->o.chunk, &st) ? cli_error(&st)
                                                                          : INFR_OK;
}

static int serve(struct lm_cli *c, struct server *s)
{
    struct infr_status st;
    int code = lm_open_model(c, &s->x, (uint32_t)c->parallel, 0);
    if (code) return code;
    bool texts = s->x.model->vocab && s->x.model->causal && s->x.model->page_tokens;
    if (!texts && !s->x.model->embedding_dims)
        return cli_usage("this engine's model neither writes text nor makes vectors");
    if (!s->o.model_name) s->o.model_name = rt_text(s->x.e, s->x.e->h.model_name);
    code = texts ? open_texts(c, s) : open_vectors(s);
    if (code) return code;
    struct worker_options o = {
        .sched = {s->o.max_queue, s->o.parallel ? s->o.parallel : 1, s->o.chunk, s->o.stretch},
        .generator = s->x.g,
        .embedder = texts ? NULL : &s->embedder};
    if (worker_create(&o, &s->worker, &st)) return cli_error(&st);
    s->routes = api_routes, s->n_routes = n_api_routes;
    s->wake_fd = worker_wake_fd(s->worker);
    s->on_wake = api_wake, s->drain = api_drain;
    return server_run(s);
}

/* One of the words, or the first one without any. False: said. */
static bool word(const char *option, const char *text, const char *const *words, int *out)
{
    for (*out = 0; text && words[*out] && strcmp(text, words[*out]); ++*out) {}
    if (!text || words[*out]) return true;
    return cli_usage("%s: '%s' is not possible", option, text), false;
}

static int take_words(const struct lm_cli *c, struct server_options *o)
{
    static const char *const thinks[] = {"auto", "on", "off", NULL};
    static const char *const formats[] = {"auto", "deepseek", "none", NULL};
    static const char *const pools[] = {"", "mean", "cls", "last", NULL};
    static const enum infr_text_pooling how[] = {INFR_POOLING_NONE, INFR_POOLING_MEAN,
                                                 INFR_POOLING_CLS, INFR_POOLING_LAST};
    int think, format, pool;
    if (!word("--reasoning", c->reasoning, thinks, &think) ||
        !word("--reasoning-format", c->reasoning_format, formats, &format) ||
        !word("--pooling", c->pooling, pools, &pool))
        return INFR_BAD_INPUT;
    o->thinking = think == 1, o->no_thinking = think == 2, o->thinking_is_text = format == 2, o->pooling = how[pool];
    return INFR_OK;
}

int lm_cmd_serve(struct lm_cli *c)
{
    static const char *const usual[] = {"127.0.0.1:8080"};
    struct server *s = calloc(1, sizeof *s);
    if (!s) return cli_usage("no memory for the server"), INFR_ENVIRONMENT;
    if (c->positional.n) {
        free(s);
        return cli_usage("serve takes options alone");
    }
    s->o = (struct server_options){.listen = c->listen.n ? c->listen.v : usual,
                                   .n_listen = c->listen.n ? c->listen.n : 1,
                                   .model_name = c->model_name,
                                   .any_model = c->any_model,
                                   .receipts = c->receipts,
                                   .prefill = c->prefill,
                                   .verbose = c->verbose,
                                   .predict = c->predict,
                                   .seed_given = c->seed_given,
                                   .disabled = c->disabled.v,
                                   .n_disabled = c->disabled.n,
                                   .origins = c->origins.v,
                                   .n_origins = c->origins.n,
                                   .on_full = c->on_full,
                                   .log_path = c->log_file,
                                   .key_path = c->api_key_file,
                                   .timeout_s = c->timeout_s,
                                   .drain_s = c->drain_s,
                                   .parallel = (uint32_t)c->parallel,
                                   .max_queue = (uint32_t)c->queue,
                                   .chunk = (uint32_t)c->chunk,
                                   .stretch = c->stretch,
                                   .http = {.max_body = (uint64_t)c->max_body}};
    s->opened = c->replay_opened, s->replay = c->replay;
    struct jinja_arena *arena = NULL;
    int code = take_words(c, &s->o);
    if (!code) code = take_kwargs(c, s, &arena);
    if (!code) code = serve(c, s);
    worker_destroy(s->worker);
    api_grammars_deinit(s);
    lm_embedder_deinit(&s->embedder);
    lm_close(&s->x);
    jinja_arena_destroy(arena);
    free(s);
    return code;
}
