// SPDX-License-Identifier: Apache-2.0
/* /v1/embeddings, and what it has in common with /v1/rerank. */
#include "runtime/serve/api_embed.h"

#include <stdlib.h>
#include <string.h>

void embed_destroy(struct embed_call *e)
{
    for (uint32_t i = 0; e->ids && i < e->n; i++) free(e->ids[i]);
    for (uint32_t i = 0; e->jobs && i < e->n; i++) work_job_deinit(&e->jobs[i]);
    jinja_arena_destroy(e->arena);
    free(e->ids);
    free(e->jobs);
    free(e->list);
    free(e->vectors);
    free(e);
}

/* ---- the reply ---- */

static void base64(struct json *j, const char *key, const uint8_t *p, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    lm_json_begin_text(j, key);
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)p[i] << 16;
        if (i + 1 < n) v |= (uint32_t)p[i + 1] << 8;
        if (i + 2 < n) v |= p[i + 2];
        char four[4] = {digits[v >> 18], digits[v >> 12 & 63], i + 1 < n ? digits[v >> 6 & 63] : '=',
                        i + 2 < n ? digits[v & 63] : '='};
        lm_json_add_text(j, four, 4);
    }
    lm_json_end_text(j);
}

static void reply(struct embed_call *e)
{
    struct server *s = e->s;
    struct json *j = server_json(s);
    uint32_t dims = s->x.model->embedding_dims;
    json_open(j, NULL, '{');
    json_string(j, "object", "list");
    json_open(j, "data", '[');
    for (uint32_t i = 0; i < e->n; i++) {
        const float *v = e->vectors + (size_t)i * dims;
        json_open(j, NULL, '{');
        json_string(j, "object", "embedding");
        json_int(j, "index", i);
        if (e->base64) {
            base64(j, "embedding", (const uint8_t *)v, dims * sizeof *v);
        } else {
            json_open(j, "embedding", '[');
            for (uint32_t k = 0; k < dims; k++) json_number(j, NULL, (double)v[k]);
            json_close(j, ']');
        }
        json_close(j, '}');
    }
    json_close(j, ']');
    json_string(j, "model", s->o.model_name);
    json_open(j, "usage", '{');
    json_int(j, "prompt_tokens", (int64_t)e->n_tokens);
    json_int(j, "total_tokens", (int64_t)e->n_tokens);
    json_close(j, '}');
    json_close(j, '}');
    server_reply_json(e->c, 200);
}

void api_on_vector(struct work_job *job)
{
    struct embed_call *e = job->user;
    struct server *s = e->s;
    if (!job->ended) return;
    if (job->job.end == SCHED_DONE) e->n_tokens += job->job.n_prompt;
    if (job->job.end != SCHED_DONE && e->c && !e->failed) {
        struct http_conn *c = e->c;
        e->failed = true, e->c = NULL;
        c->on_abort = NULL;
        server_error(c, job->job.end == SCHED_CANCELLED ? 503 : 500, NULL, "%s (%s)",
                     job->job.error ? job->job.error : "the request was stopped", c->id);
    }
    if (--e->n_live) return;
    keys_charge(s, &e->payer, e->n_tokens); /* who has left pays for what was made */
    if (e->c) {
        s->metrics.prompt_tokens_sum += e->n_tokens;
        e->c->on_abort = NULL;
        e->reply(e);
    }
    s->calls--;
    embed_destroy(e);
    if (s->draining) server_check_drained(s);
}

static void on_abort(struct http_conn *c)
{
    struct embed_call *e = c->call;
    e->c = NULL;
    for (uint32_t i = 0; i < e->n; i++) worker_cancel(&e->jobs[i]);
}

/* ---- the request ---- */

/* A text, or a token's id, behind the *n ids that are there. False: replied. */
static bool add_ids(struct embed_call *e, const struct jinja_value *x, uint32_t at, unsigned flags, size_t *n)
{
    struct server *s = e->s;
    struct infr_status st;
    uint32_t id = 0, *ids = &id;
    size_t k = 1;
    bool text = x->kind == JINJA_STR;
    if (text && lm_text_encode(&s->x.text, x->u.s, x->len, flags, &ids, &k, &st)) {
        server_error(e->c, 400, "input", "%s", st.note);
        return false;
    }
    if (!text && (x->kind != JINJA_INT || x->u.i < 0 || x->u.i >= tok_count(&s->x.text.tok))) {
        server_error(e->c, 400, "input", "input[%u] is neither a text nor token ids", at);
        return false;
    }
    if (!text) id = (uint32_t)x->u.i;
    uint32_t *more = realloc(e->ids[at], (*n + k + 1) * sizeof *more);
    if (more) {
        e->ids[at] = more;
        memcpy(more + *n, ids, k * sizeof *more);
        *n += k;
    } else
        server_error(e->c, 503, NULL, "no memory for the request");
    if (text) free(ids);
    return more;
}

/* llama-server's objects: {"prompt_string": text}, or {"content": [{"type": "text", "text": text}, ...]}, one text. False: neither. */
static bool read_object(const struct jinja_dict *d, struct work_bytes *out)
{
    const struct jinja_value *one = api_field(d, "prompt_string"), *parts = api_field(d, "content");
    if (d->count != 1) return false;
    if (one) return one->kind == JINJA_STR && work_append(out, one->u.s, one->len);
    if (!parts || parts->kind != JINJA_LIST || !parts->u.list->count) return false;
    for (uint32_t i = 0; i < parts->u.list->count; i++) {
        const struct jinja_value *x = &parts->u.list->items[i];
        const struct jinja_value *type = x->kind == JINJA_DICT ? api_field(x->u.dict, "type") : NULL;
        const struct jinja_value *text = type && type->kind == JINJA_STR && api_is(type, "text") ? api_field(x->u.dict, "text") : NULL;
        if (!text || text->kind != JINJA_STR || !work_append(out, text->u.s, text->len)) return false;
    }
    return true;
}

/* Tokens of one input, a string, an object with one, or a list of ids and strings, which is one text then. False: replied. */
static bool take_input(struct embed_call *e, const struct jinja_value *v, uint32_t at)
{
    size_t n = 0;
    if (v->kind == JINJA_DICT) {
        struct work_bytes text = {0};
        bool ok = read_object(v->u.dict, &text);
        struct jinja_value whole = {.kind = JINJA_STR, .len = (uint32_t)text.n, .u.s = text.p ? text.p : ""};
        if (!ok) server_error(e->c, 400, "input", "input[%u] is an object without a text: prompt_string, or content of texts", at);
        ok = ok && take_input(e, &whole, at);
        free(text.p);
        return ok;
    }
    /* an empty text has a vector where tokens stand around texts */
    if (v->kind == JINJA_STR && !add_ids(e, v, at, TOK_ENCODE_BOS | TOK_ENCODE_EOS, &n)) return false;
    for (uint32_t i = 0; v->kind == JINJA_LIST && i < v->u.list->count; i++)
        if (!add_ids(e, &v->u.list->items[i], at, i ? TOK_ENCODE_CONTINUED : 0, &n)) return false;
    if (!n) {
        server_error(e->c, 400, "input", "input[%u] is neither a text nor token ids, or is empty",
                     at);
        return false;
    }
    uint32_t *ids = e->ids[at];
    e->ids[at] = NULL;
    return embed_set(e, at, ids, n, "input");
}

bool embed_set(struct embed_call *e, uint32_t at, uint32_t *ids, size_t n, const char *field)
{
    struct server *s = e->s;
    struct work_job *j = &e->jobs[at];
    e->ids[at] = ids;
    if (n > s->embedder.n_ctx) {
        server_error(e->c, 400, field, "%s[%u] is too large: %zu tokens; the model reads %u", field, at, n, s->embedder.n_ctx);
        return false;
    }
    lm_request_desc_init(&j->job.desc);
    j->job.desc.prompt = ids, j->job.desc.n_prompt = (uint32_t)n;
    j->vector = e->vectors + (size_t)at * s->x.model->embedding_dims;
    j->normalize = s->o.pooling != INFR_POOLING_RANK, j->pooling = s->o.pooling;
    j->user = e;
    e->list[at] = j;
    return true;
}

bool embed_model(struct embed_call *e, const struct jinja_value *v)
{
    if (e->s->o.any_model || api_is(v, e->s->o.model_name)) return true;
    server_error(e->c, 404, "model", "there is no such model here, there is '%s'", e->s->o.model_name);
    return false;
}

bool embed_unknown(struct embed_call *e, const struct jinja_value *key)
{
    char name[100];
    snprintf(name, sizeof name, "%.*s", key->len < 99 ? (int)key->len : 0, key->u.s);
    server_error(e->c, 400, name, "this server does not support the field '%s'", name);
    return false;
}

/* The other fields. False: replied. */
static bool take_fields(struct embed_call *e, const struct jinja_dict *d)
{
    for (uint32_t i = 0; i < d->count; i++) {
        const struct jinja_value *key = &d->pairs[i].key, *v = &d->pairs[i].value;
        if (api_is(key, "input") || api_is(key, "user") || v->kind == JINJA_NONE) continue;
        if (api_is(key, "model")) {
            if (embed_model(e, v)) continue;
        } else if (api_is(key, "encoding_format")) {
            e->base64 = api_is(v, "base64");
            if (e->base64 || api_is(v, "float")) continue;
            server_error(e->c, 400, "encoding_format", "encoding_format: float or base64");
        } else if (api_is(key, "dimensions")) {
            if (v->kind == JINJA_INT && v->u.i == e->s->x.model->embedding_dims) continue;
            server_error(e->c, 400, "dimensions", "dimensions: this model's vectors have %u",
                         e->s->x.model->embedding_dims);
        } else
            embed_unknown(e, key);
        return false;
    }
    return true;
}

/* Is the list one text? It has ids, if only beside strings. */
static bool is_one(const struct jinja_list *l)
{
    bool ids = false;
    for (uint32_t i = 0; i < l->count; i++) {
        if (l->items[i].kind == JINJA_LIST) return false;
        ids = ids || l->items[i].kind == JINJA_INT;
    }
    return ids;
}

static bool take(struct embed_call *e, const struct jinja_dict *d)
{
    const struct jinja_value *input = api_field(d, "input");
    const struct jinja_value *items = input;
    uint32_t n = 1;
    if (!take_fields(e, d)) return false;
    if (input && input->kind == JINJA_LIST && input->u.list->count && !is_one(input->u.list))
        items = input->u.list->items, n = input->u.list->count;
    if (!input || (input->kind != JINJA_STR && input->kind != JINJA_LIST && input->kind != JINJA_DICT) || n > MAX_TEXTS) {
        server_error(e->c, 400, "input", "input is a text, token ids, or a list of at most %d",
                     MAX_TEXTS);
        return false;
    }
    if (!embed_open(e, n)) return false;
    for (uint32_t i = 0; i < n; i++)
        if (!take_input(e, &items[i], i)) return false;
    return true;
}

/* ---- both ---- */

bool embed_open(struct embed_call *e, uint32_t n)
{
    size_t dims = e->s->x.model->embedding_dims;
    e->jobs = calloc(n, sizeof *e->jobs);
    e->list = calloc(n, sizeof(struct work_job *));
    e->ids = calloc(n, sizeof(uint32_t *));
    e->vectors = calloc(n * dims, sizeof *e->vectors);
    if (!e->jobs || !e->list || !e->ids || !e->vectors) {
        server_error(e->c, 503, NULL, "no memory for the request");
        return false;
    }
    e->n = e->n_live = n;
    return true;
}

struct embed_call *embed_begin(struct server *s, struct http_conn *c, bool ranks, struct jinja_value *body)
{
    if (!s->embedder.model || ranks != (s->x.model->pooling == INFR_POOLING_RANK)) {
        server_error(c, 501, NULL, !s->embedder.model ? "this engine's model has no embeddings" : ranks
                                       ? "this engine's model makes vectors: /v1/embeddings" : "this engine's model ranks texts: /v1/rerank");
        return NULL;
    }
    struct embed_call *e = calloc(1, sizeof *e);
    if (!e) {
        server_error(c, 503, NULL, "no memory for the request");
        return NULL;
    }
    e->s = s, e->c = c, e->payer = c->payer;
    if (api_read_body(s, c, &e->arena, body)) return e;
    embed_destroy(e);
    return NULL;
}

void embed_submit(struct embed_call *e)
{
    struct server *s = e->s;
    struct http_conn *c = e->c;
    enum sched_verdict v = worker_submit(s->worker, e->list, e->n);
    if (v == SCHED_ACCEPTED) {
        s->calls++;
        c->call = e, c->on_abort = on_abort;
        return;
    }
    embed_destroy(e);
    http_header(c, "Retry-After: 1");
    if (v == SCHED_FULL) s->metrics.busy_refused++;
    server_error(c, v == SCHED_FULL ? 429 : 503, NULL, "%s",
                 v == SCHED_FULL ? "too many requests are waiting: try again later"
                                 : "the server is shutting down");
}

void api_embeddings(struct server *s, struct http_conn *c)
{
    struct jinja_value body;
    struct embed_call *e = embed_begin(s, c, false, &body);
    if (!e) return;
    e->reply = reply;
    if (take(e, body.u.dict)) embed_submit(e);
    else embed_destroy(e);
}
