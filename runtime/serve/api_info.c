// SPDX-License-Identifier: Apache-2.0
/* Routes of language models; and what needs no answer of the model: models, tokens, templates. */
#include <stdlib.h>
#include <string.h>

#include "runtime/serve/api.h"

const struct api_route api_routes[] = {
    {"GET", "/health", api_health, true, "200 while the server runs"},
    {"GET", "/v1/health", api_health, true, "the same"},
    {"GET", "/live", api_live, true, "200 while the process runs"},
    {"GET", "/ready", api_ready, true, "200 while requests are accepted, else 503"},
    {"GET", "/", api_page, true, "a page to talk to the model"},
    {"GET", "/openapi.json", api_openapi, false, "this list"},
    {"GET", "/version", api_version, false, "versions of compiler and engine"},
    {"GET", "/metrics", api_metrics, false, "counters for Prometheus"},
    {"GET", "/v1/models", api_models, false, "the model"},
    {"GET", "/models", api_models, false, "the same"},
    {"GET", "/v1/models/*", api_model, false, "the model, by its name"},
    {"POST", "/v1/completions", api_completions, false, "continue a text"},
    {"POST", "/v1/chat/completions", api_chat, false, "answer a conversation"},
    {"POST", "/chat/completions", api_chat, false, "the same"},
    {"POST", "/v1/chat/completions/input_tokens", api_chat_tokens, false, "tokens of a conversation"},
    {"POST", "/chat/completions/input_tokens", api_chat_tokens, false, "the same"},
    {"POST", "/v1/responses/input_tokens", api_responses_tokens, false, "tokens of a conversation"},
    {"POST", "/responses/input_tokens", api_responses_tokens, false, "the same"},
    {"POST", "/responses", api_responses, false, "answer a conversation, OpenAI's newer way"},
    {"POST", "/v1/responses", api_responses, false, "answer a conversation, OpenAI's newer way"},
    {"POST", "/v1/messages", api_messages, false, "answer a conversation, Anthropic's way"},
    {"POST", "/v1/messages/count_tokens", api_count_tokens, false, "tokens of a conversation"},
    {"POST", "/v1/embeddings", api_embeddings, false, "texts to vectors"},
    {"POST", "/embeddings", api_embeddings, false, "the same"},
    {"POST", "/v1/rerank", api_rerank, false, "texts by how well they answer a question"},
    {"POST", "/v2/rerank", api_rerank, false, "the same"},
    {"POST", "/rerank", api_rerank, false, "the same"},
    {"POST", "/v1/reranking", api_rerank, false, "the same"},
    {"POST", "/reranking", api_rerank, false, "the same"},
    {"POST", "/tokenize", api_tokenize, false, "text to tokens"},
    {"POST", "/detokenize", api_detokenize, false, "tokens to text"},
    {"POST", "/apply-template", api_apply_template, false, "a conversation as the model reads it"},
    {"POST", "/completion", api_llama_completion, false, "continue a text, llama-server's way"},
    {"POST", "/completions", api_llama_completion, false, "the same"},
    {"POST", "/infill", api_infill, false, "the middle of a text"},
    {"GET", "/props", api_props, false, "what the server is"},
    {"GET", "/slots", api_slots, false, "who is busy"},
};
const size_t n_api_routes = sizeof api_routes / sizeof *api_routes;

/* ---- models ---- */

static void json_model(struct server *s, struct json *j, const char *key)
{
    const struct lm_model *m = s->x.model;
    json_open(j, key, '{');
    json_string(j, "id", s->o.model_name);
    json_string(j, "object", "model");
    json_int(j, "created", (int64_t)s->started);
    json_string(j, "owned_by", "infc");
    json_int(j, "max_model_len", s->x.n_ctx);
    json_open(j, "meta", '{');
    json_int(j, "n_vocab", m->vocab);
    json_int(j, "n_ctx_train", m->ctx_train);
    json_int(j, "embedding_dims", m->embedding_dims);
    json_close(j, '}');
    json_close(j, '}');
}

void api_models(struct server *s, struct http_conn *c)
{
    struct json *j = server_json(s);
    json_open(j, NULL, '{');
    json_string(j, "object", "list");
    json_open(j, "data", '[');
    json_model(s, j, NULL);
    json_close(j, ']');
    json_close(j, '}');
    server_reply_json(c, 200);
}

void api_model(struct server *s, struct http_conn *c)
{
    static const char prefix[] = "/v1/models/";
    struct http_span name = {c->head.path.p + sizeof prefix - 1,
                             c->head.path.n - (sizeof prefix - 1)};
    if (!s->o.any_model && !http_is(name, s->o.model_name)) {
        server_error(c, 404, "model", "there is no such model here, there is '%s'",
                     s->o.model_name);
        return;
    }
    json_model(s, server_json(s), NULL);
    server_reply_json(c, 200);
}

/* ---- tokens ---- */

/* A field that is true or false; absent: its default. -1: replied. */
static int flag(struct http_conn *c, const struct jinja_dict *d, const char *name, bool otherwise)
{
    const struct jinja_value *v = api_field(d, name);
    if (!v) return otherwise;
    if (v->kind == JINJA_BOOL) return v->u.b;
    server_error(c, 400, name, "%s: is true or false", name);
    return -1;
}

/* Every field is one of names, which end with NULL. False: replied. */
static bool known(struct http_conn *c, const struct jinja_dict *d, const char *const *names)
{
    for (uint32_t i = 0; i < d->count; i++) {
        const char *const *n = names;
        while (*n && !api_is(&d->pairs[i].key, *n)) n++;
        if (*n) continue;
        char name[100];
        snprintf(name, sizeof name, "%.*s", d->pairs[i].key.len < 99 ? (int)d->pairs[i].key.len : 0,
                 d->pairs[i].key.u.s);
        server_error(c, 400, name, "this server does not support the field '%s'", name);
        return false;
    }
    return true;
}

static void reply_tokens(struct server *s, struct http_conn *c, const uint32_t *ids, size_t n,
                         bool pieces)
{
    struct json *j = server_json(s);
    json_open(j, NULL, '{');
    json_int(j, "count", (int64_t)n);
    json_int(j, "max_model_len", s->x.n_ctx);
    json_open(j, "tokens", '[');
    for (size_t i = 0; i < n; i++) {
        if (!pieces) {
            json_int(j, NULL, ids[i]);
            continue;
        }
        json_open(j, NULL, '{');
        json_int(j, "id", ids[i]);
        lm_json_token(j, "piece", &s->x.text.tok, ids[i]);
        json_close(j, '}');
    }
    json_close(j, ']');
    json_close(j, '}');
    server_reply_json(c, 200);
}

static void tokenize(struct server *s, struct http_conn *c, const struct jinja_dict *d)
{
    static const char *const names[] = {"model",         "prompt",     "content",
                                        "add_special",   "with_pieces", "parse_special",
                                        "add_special_tokens", NULL};
    const struct jinja_value *text = api_field(d, "prompt");
    bool llama = !text; /* vLLM: prompt, with special tokens; llama-server: content, without */
    struct infr_status st;
    uint32_t *ids;
    size_t n;
    if (!known(c, d, names)) return;
    if (llama) text = api_field(d, "content");
    int special = flag(c, d, "add_special", !llama);
    int add = special < 0 ? -1 : flag(c, d, "add_special_tokens", special);
    int parse = add < 0 ? -1 : flag(c, d, "parse_special", true);
    int pieces = parse < 0 ? -1 : flag(c, d, "with_pieces", false);
    if (pieces < 0) return;
    if (!text || text->kind != JINJA_STR) {
        server_error(c, 400, "prompt", "prompt (or content) is the text");
        return;
    }
    unsigned flags = (add ? TOK_ENCODE_BOS | TOK_ENCODE_EOS : 0) | (parse ? TOK_ENCODE_SPECIAL : 0);
    if (lm_text_encode(&s->x.text, text->u.s, text->len, flags, &ids, &n, &st)) {
        server_error(c, 400, "prompt", "%s", st.note);
        return;
    }
    reply_tokens(s, c, ids, n, pieces);
    free(ids);
}

void api_tokenize(struct server *s, struct http_conn *c)
{
    struct jinja_arena *arena;
    struct jinja_value body;
    if (!api_read_body(s, c, &arena, &body)) return;
    tokenize(s, c, body.u.dict);
    jinja_arena_destroy(arena);
}

static void detokenize(struct server *s, struct http_conn *c, const struct jinja_dict *d)
{
    static const char *const names[] = {"model", "tokens", NULL};
    const struct jinja_value *v = api_field(d, "tokens");
    struct infr_status st;
    char *text;
    size_t n;
    if (!known(c, d, names)) return;
    uint32_t count = v && v->kind == JINJA_LIST ? v->u.list->count : 0, i = 0;
    uint32_t *ids = malloc((count + 1u) * sizeof *ids);
    for (; ids && i < count; i++) {
        const struct jinja_value *x = &v->u.list->items[i];
        if (x->kind != JINJA_INT || x->u.i < 0 || x->u.i >= tok_count(&s->x.text.tok)) break;
        ids[i] = (uint32_t)x->u.i;
    }
    if (!v || v->kind != JINJA_LIST || i < count) {
        server_error(c, 400, "tokens", "tokens is a list of ids from 0 to %u",
                     tok_count(&s->x.text.tok) - 1);
    } else if (lm_text_decode(&s->x.text, ids, count, TOK_DECODE_SPECIAL, &text, &n, &st)) {
        server_error(c, 400, "tokens", "%s", st.note);
    } else {
        struct json *j = server_json(s);
        json_open(j, NULL, '{');
        lm_json_text(j, "prompt", text, n);
        lm_json_text(j, "content", text, n);
        json_close(j, '}');
        free(text);
        server_reply_json(c, 200);
    }
    free(ids);
}

void api_detokenize(struct server *s, struct http_conn *c)
{
    struct jinja_arena *arena;
    struct jinja_value body;
    if (!api_read_body(s, c, &arena, &body)) return;
    detokenize(s, c, body.u.dict);
    jinja_arena_destroy(arena);
}

static const struct api_kind template_only = {.endpoint = API_CHAT};

void api_apply_template(struct server *s, struct http_conn *c)
{
    struct api_call *a = api_begin(s, c, &template_only);
    char *text;
    size_t n;
    if (!a || !api_render(a, a->p.messages, &text, &n)) return;
    struct json *j = server_json(s);
    json_open(j, NULL, '{');
    lm_json_text(j, "prompt", text, n);
    json_close(j, '}');
    free(text);
    api_destroy(a);
    server_reply_json(c, 200);
}
