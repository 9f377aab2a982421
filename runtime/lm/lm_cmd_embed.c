// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <string.h>

#include "runtime/lm/lm_cli.h"
#include "runtime/lm/lm_embed.h"

static int pooling_of(const struct lm_cli *c, const struct lm_model *m, enum infr_text_pooling *out)
{
    static const char *const names[] = {"none", "mean", "cls", "last", "rank"};
    *out = m->pooling;
    if (m->pooling == INFR_POOLING_RANK) return cli_usage("the model makes no vectors, it ranks texts: POST /v1/rerank to `serve`");
    for (int i = INFR_POOLING_MEAN; c->pooling && i <= INFR_POOLING_LAST; i++)
        if (!strcmp(c->pooling, names[i])) return *out = (enum infr_text_pooling)i, INFR_OK;
    if (c->pooling) return cli_usage("--pooling: '%s' is not mean, cls or last", c->pooling);
    if (*out < INFR_POOLING_MEAN || *out > INFR_POOLING_LAST)
        return cli_usage("the model does not say how to pool (%s): give --pooling", names[*out]);
    return INFR_OK;
}

static void print_vector(struct lm_cli *c, struct json *j, const float *v, uint32_t n,
                         int64_t index, uint32_t n_tokens)
{
    if (!c->json) {
        for (uint32_t i = 0; i < n; i++) printf(i ? " %.9g" : "%.9g", (double)v[i]);
        putchar('\n');
        return;
    }
    json_open(j, NULL, '{');
    json_int(j, "index", index);
    json_int(j, "tokens", n_tokens);
    json_open(j, "embedding", '[');
    for (uint32_t i = 0; i < n; i++) json_number(j, NULL, (double)v[i]);
    json_close(j, ']');
    json_close(j, '}');
}

static int embed_one(struct lm_cli *c, struct lm_open *x, struct lm_embedder *e, struct json *j,
                     enum infr_text_pooling pooling, const char *text, size_t n, int64_t index)
{
    struct infr_status st;
    uint32_t *ids;
    size_t n_ids;
    float *v = malloc((x->model->embedding_dims + 1u) * sizeof *v);
    if (!v) return cli_usage("no memory for a vector");
    int code = lm_text_encode(&x->text, text, n, TOK_ENCODE_BOS | TOK_ENCODE_EOS, &ids, &n_ids,
                              &st);
    if (!code)
        code = lm_embedder_run(e, ids, n_ids > UINT32_MAX ? UINT32_MAX : (uint32_t)n_ids, pooling,
                               !c->no_normalize, v, &st);
    if (!code) print_vector(c, j, v, x->model->embedding_dims, index, (uint32_t)n_ids);
    free(ids);
    free(v);
    return code ? cli_error(&st) : INFR_OK;
}

/* -p is one text whatever is in it, a file has one a line. */
static int embed_all(struct lm_cli *c, struct lm_open *x, struct lm_embedder *e, const char *text,
                     size_t n)
{
    struct json j = {.f = stdout};
    enum infr_text_pooling pooling;
    int64_t index = 0;
    int code = pooling_of(c, x->model, &pooling);
    if (code) return code;
    if (c->json) {
        json_open(&j, NULL, '{');
        json_string(&j, "model", rt_text(x->e, x->e->h.model_name));
        json_open(&j, "data", '[');
    }
    for (size_t at = 0; !code && at < n;) {
        const char *newline = c->prompt ? NULL : memchr(text + at, '\n', n - at);
        size_t len = newline ? (size_t)(newline - (text + at)) : n - at;
        code = embed_one(c, x, e, &j, pooling, text + at, len, index++);
        at += len + 1;
    }
    if (c->json) {
        json_close(&j, ']');
        json_close(&j, '}');
        putchar('\n');
    }
    return code;
}

int lm_cmd_embed(struct lm_cli *c)
{
    struct lm_open x = {0};
    struct lm_embedder e = {0};
    struct infr_status st;
    char *text = NULL;
    size_t n;
    int code = lm_cli_read_text(c, &text, &n);
    if (!code) code = lm_open_model(c, &x, 1, 0);
    if (!code && !x.model->embedding_dims)
        code = cli_usage("this engine's model has no embeddings; generate and chat use it");
    if (!code) {
        uint32_t ctx = x.n_ctx ? x.n_ctx : x.model->ctx_train ? x.model->ctx_train : 512;
        if (lm_embedder_init(&e, x.model, ctx, (uint32_t)c->chunk, &st)) code = cli_error(&st);
    }
    if (!code) code = embed_all(c, &x, &e, text, n);
    lm_embedder_deinit(&e);
    free(text);
    lm_close(&x);
    return code;
}
