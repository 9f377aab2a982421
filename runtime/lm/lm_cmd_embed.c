// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <string.h>

#include "runtime/lm/lm_cli.h"
#include "runtime/lm/lm_embed.h"
#include "runtime/lm/lm_rank.h"

static int pooling_of(const struct lm_cli *c, const struct lm_model *m, enum infr_text_pooling *out)
{
    static const char *const names[] = {"none", "mean", "cls", "last", "rank"};
    *out = m->pooling;
    if (m->pooling == INFR_POOLING_RANK) return cli_usage("the model makes no vectors, it ranks texts: use rank");
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

/* ---- rank ---- */

struct ranked {
    struct lm_text_view line;
    double score;
    uint32_t n_tokens;
    size_t index;
};

static int by_score(const void *pa, const void *pb)
{
    const struct ranked *a = pa, *b = pb;
    return a->score > b->score ? -1 : a->score < b->score ? 1 : a->index < b->index ? -1 : 1;
}

static int rank_one(struct lm_open *x, struct lm_embedder *e, struct lm_text_view query, struct ranked *r)
{
    struct infr_status st;
    uint32_t *ids;
    size_t n;
    float score = 0;
    int code = lm_rank_encode(&x->text, query, r->line, &ids, &n, &st);
    if (!code) code = lm_embedder_run(e, ids, n > UINT32_MAX ? UINT32_MAX : (uint32_t)n, INFR_POOLING_RANK, false, &score, &st);
    free(ids);
    r->score = lm_rank_is_odds(&x->text) ? lm_rank_probability((double)score) : (double)score;
    r->n_tokens = (uint32_t)n;
    return code ? cli_error(&st) : INFR_OK;
}

static void print_ranks(const struct lm_cli *c, const struct lm_open *x, const struct ranked *r, size_t n)
{
    struct json j = {.f = stdout};
    for (size_t i = 0; !c->json && i < n; i++) {
        printf("%.9g\t", r[i].score);
        fwrite(r[i].line.s, 1, r[i].line.n, stdout);
        putchar('\n');
    }
    if (!c->json) return;
    json_open(&j, NULL, '{');
    json_string(&j, "model", rt_text(x->e, x->e->h.model_name));
    json_open(&j, "results", '[');
    for (size_t i = 0; i < n; i++) {
        json_open(&j, NULL, '{');
        json_int(&j, "index", (int64_t)r[i].index);
        json_number(&j, "relevance_score", r[i].score);
        json_int(&j, "tokens", r[i].n_tokens);
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_close(&j, '}');
    putchar('\n');
}

static int rank_all(struct lm_cli *c, struct lm_open *x, struct lm_embedder *e, const char *query, const char *text, size_t n)
{
    struct lm_text_view question = {query, strlen(query)};
    size_t lines = 0, count = 0;
    int code = INFR_OK;
    for (size_t i = 0; i < n; i++) lines += text[i] == '\n';
    struct ranked *r = calloc(lines + 1, sizeof *r);
    if (!r) return cli_usage("no memory for the lines");
    for (size_t at = 0; !code && at < n; count++) {
        const char *newline = memchr(text + at, '\n', n - at);
        size_t len = newline ? (size_t)(newline - (text + at)) : n - at;
        r[count] = (struct ranked){.line = {text + at, len}, .index = count};
        code = rank_one(x, e, question, &r[count]);
        at += len + 1;
    }
    qsort(r, count, sizeof *r, by_score);
    if (!code) print_ranks(c, x, r, count);
    free(r);
    return code;
}

/* ---- both ---- */

static int is_for(const struct lm_model *m, bool rank)
{
    if (!m->embedding_dims) return cli_usage("this engine's model has no embeddings; generate and chat use it");
    if (rank && m->pooling != INFR_POOLING_RANK) return cli_usage("this engine's model makes vectors: use embed");
    return INFR_OK;
}

static int run(struct lm_cli *c, const char *query)
{
    struct lm_open x = {0};
    struct lm_embedder e = {0};
    struct infr_status st;
    char *text = NULL;
    size_t n;
    int code = lm_cli_read_text(c, &text, &n);
    if (!code) code = lm_open_model(c, &x, 1, 0);
    if (!code) code = is_for(x.model, query);
    if (!code) {
        uint32_t ctx = x.n_ctx ? x.n_ctx : x.model->ctx_train ? x.model->ctx_train : 512;
        if (lm_embedder_init(&e, x.model, ctx, (uint32_t)c->chunk, &st)) code = cli_error(&st);
    }
    if (!code) code = query ? rank_all(c, &x, &e, query, text, n) : embed_all(c, &x, &e, text, n);
    lm_embedder_deinit(&e);
    free(text);
    lm_close(&x);
    return code;
}

int lm_cmd_embed(struct lm_cli *c) { return run(c, NULL); }

int lm_cmd_rank(struct lm_cli *c)
{
    const char *query = c->prompt;
    if (!query) return cli_usage("rank: give the question, -p TEXT");
    c->prompt = NULL; /* the text that is read are the documents */
    return run(c, query);
}
