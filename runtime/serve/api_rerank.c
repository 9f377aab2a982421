// SPDX-License-Identifier: Apache-2.0
/*
 * /v1/rerank, in Jina's, Cohere's and vLLM's words, and Hugging Face's `texts`: each document behind the question, as the model
 * was trained on pairs of texts, and the score that it gives them. The best first; equal ones in the order they came in.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/lm/lm_rank.h"
#include "runtime/serve/api_embed.h"

struct place {
    float score;
    uint32_t index;
};

static int by_score(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->score > y->score) return -1;
    if (x->score < y->score) return 1;
    return x->index < y->index ? -1 : 1;
}

/* ---- the reply ---- */

/* A document's text. NULL: it is none. */
static const struct jinja_value *text_of(const struct jinja_value *v)
{
    if (v->kind == JINJA_DICT) v = api_field(v->u.dict, "text");
    return v && v->kind == JINJA_STR ? v : NULL;
}

static void json_text(struct json *j, const struct jinja_value *v)
{
    lm_json_begin_text(j, "text");
    lm_json_add_text(j, v->u.s, v->len);
    lm_json_end_text(j);
}

static void json_place(struct json *j, const struct embed_call *e, const struct place *p)
{
    double score = (double)p->score;
    if (e->sigmoid) score = lm_rank_probability(score);
    json_open(j, NULL, '{');
    json_int(j, "index", p->index);
    json_number(j, e->bare ? "score" : "relevance_score", score);
    if (e->with_texts && !e->bare) json_open(j, "document", '{');
    if (e->with_texts) json_text(j, text_of(&e->documents[p->index]));
    if (e->with_texts && !e->bare) json_close(j, '}');
    json_close(j, '}');
}

static void reply(struct embed_call *e)
{
    struct server *s = e->s;
    struct json *j = server_json(s);
    struct place *places = calloc(e->n, sizeof *places);
    if (!places) {
        server_error(e->c, 503, NULL, "no memory for the answer");
        return;
    }
    for (uint32_t i = 0; i < e->n; i++) places[i] = (struct place){e->vectors[i], i};
    qsort(places, e->n, sizeof *places, by_score);
    if (!e->bare) {
        json_open(j, NULL, '{');
        json_string(j, "id", e->c->id);
        json_string(j, "object", "list");
        json_string(j, "model", s->o.model_name);
        json_open(j, "usage", '{');
        json_int(j, "prompt_tokens", (int64_t)e->n_tokens);
        json_int(j, "total_tokens", (int64_t)e->n_tokens);
        json_close(j, '}');
    }
    json_open(j, e->bare ? NULL : "results", '[');
    for (uint32_t i = 0; i < e->n && i < e->top_n; i++) json_place(j, e, &places[i]);
    json_close(j, ']');
    if (!e->bare) json_close(j, '}');
    free(places);
    server_reply_json(e->c, 200);
}

/* ---- the request ---- */

static bool take_flag(struct embed_call *e, const char *name, const struct jinja_value *v, bool *out)
{
    if (v->kind == JINJA_BOOL) return *out = v->u.b, true;
    server_error(e->c, 400, name, "%s is true or false", name);
    return false;
}

static bool take_field(struct embed_call *e, const struct jinja_value *key, const struct jinja_value *v)
{
    static const char *const elsewhere[] = {"query", "documents", "texts", "user"};
    if (v->kind == JINJA_NONE) return true;
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        if (api_is(key, elsewhere[i])) return true;
    if (api_is(key, "model")) return embed_model(e, v);
    if (api_is(key, "return_documents")) return take_flag(e, "return_documents", v, &e->with_texts);
    if (api_is(key, "return_text")) return take_flag(e, "return_text", v, &e->with_texts);
    if (api_is(key, "use_activation")) return take_flag(e, "use_activation", v, &e->sigmoid);
    if (!api_is(key, "top_n")) return embed_unknown(e, key);
    if (v->kind == JINJA_INT && v->u.i >= 1) return e->top_n = v->u.i < MAX_TEXTS ? (uint32_t)v->u.i : MAX_TEXTS, true;
    server_error(e->c, 400, "top_n", "top_n is a number from 1 on");
    return false;
}

/* Document `at` with the question. */
static bool take_pair(struct embed_call *e, const struct jinja_value *query, uint32_t at, const char *field)
{
    const struct jinja_value *text = text_of(&e->documents[at]);
    struct infr_status st;
    uint32_t *ids;
    size_t n;
    if (!text) {
        server_error(e->c, 400, field, "%s[%u] is neither a text nor an object with one", field, at);
        return false;
    }
    struct lm_text_view question = {query->u.s, query->len}, document = {text->u.s, text->len};
    int code = lm_rank_encode(&e->s->x.text, question, document, &ids, &n, &st);
    if (!code) return embed_set(e, at, ids, n, field);
    server_error(e->c, code == INFR_BAD_INPUT ? 400 : 503, field, "%s", st.note);
    return false;
}

static bool take(struct embed_call *e, const struct jinja_dict *d)
{
    const struct jinja_value *query = api_field(d, "query"), *documents = api_field(d, "documents");
    const char *field = documents ? "documents" : "texts";
    e->top_n = MAX_TEXTS, e->bare = !documents, e->sigmoid = lm_rank_is_odds(&e->s->x.text);
    if (!documents) documents = api_field(d, "texts");
    for (uint32_t i = 0; i < d->count; i++)
        if (!take_field(e, &d->pairs[i].key, &d->pairs[i].value)) return false;
    if (!query || query->kind != JINJA_STR) {
        server_error(e->c, 400, "query", "query is a text");
        return false;
    }
    uint32_t n = documents && documents->kind == JINJA_LIST ? documents->u.list->count : 0;
    if (!n || n > MAX_TEXTS) {
        server_error(e->c, 400, "documents", "documents is a list of 1 to %d texts", MAX_TEXTS);
        return false;
    }
    e->documents = documents->u.list->items;
    if (!embed_open(e, n)) return false;
    bool ok = true;
    for (uint32_t i = 0; ok && i < n; i++) ok = take_pair(e, query, i, field);
    return ok;
}

void api_rerank(struct server *s, struct http_conn *c)
{
    struct jinja_value body;
    struct embed_call *e = embed_begin(s, c, true, &body);
    if (!e) return;
    e->reply = reply;
    if (take(e, body.u.dict)) embed_submit(e);
    else embed_destroy(e);
}
