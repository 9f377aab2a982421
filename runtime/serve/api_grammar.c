// SPDX-License-Identifier: Apache-2.0
/*
 * Answers that must fit a grammar: from response_format, structured_outputs, json_schema and
 * grammar. Compiled ones are kept by their hash, the last MOST_KEPT that nobody uses.
 *
 * A grammar and its states belong to one thread at a time: after it is compiled here only the
 * worker touches it (a request copies the state before the first byte), until no job has it.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "runtime/serve/api.h"

enum { MOST_KEPT = 64 };

struct api_grammar {
    uint64_t hash[2];
    struct gr_grammar *grammar;
    struct gr_state *state; /* before the first byte */
    uint32_t n_users;
    enum gr_kind kind;
    char *text; /* for receipts; else NULL */
    size_t n_text;
    struct api_grammar *next; /* the last used one first */
};

static void destroy(struct api_grammar *g)
{
    gr_state_destroy(g->state);
    gr_destroy(g->grammar);
    free(g->text);
    free(g);
}

/* Forgets the longest unused of those that nobody uses. */
static void trim(struct server *s, uint32_t most)
{
    uint32_t n = 0;
    for (struct api_grammar **link = &s->grammars, *g; (g = *link);) {
        if (!g->n_users && ++n > most) {
            *link = g->next;
            destroy(g);
        } else
            link = &g->next;
    }
}

void api_grammars_deinit(struct server *s)
{
    trim(s, 0);
    gr_vocab_destroy(s->vocab);
    s->vocab = NULL;
}

void api_json_grammar(struct json *j, const struct api_grammar *g)
{
    static const char *const names[] = {"json", "json_object", "regex", "grammar", "choice", "grammar", "structural_tag"};
    if (!g || !g->text) return;
    json_open(j, "structured_outputs", '{');
    if (g->kind == GR_JSON_OBJECT) json_bool(j, names[g->kind], true);
    else if (g->kind == GR_CHOICE) api_json_raw(j, names[g->kind], g->text, g->n_text);
    else lm_json_text(j, names[g->kind], g->text, g->n_text);
    json_close(j, '}');
}

void api_grammar_leave(struct server *s, struct api_grammar *g)
{
    if (!g) return;
    g->n_users--;
    trim(s, MOST_KEPT);
}

static struct api_grammar *find(struct server *s, const uint64_t hash[2])
{
    for (struct api_grammar **link = &s->grammars, *g; (g = *link); link = &g->next) {
        if (g->hash[0] != hash[0] || g->hash[1] != hash[1]) continue;
        *link = g->next; /* to the front */
        g->next = s->grammars;
        return s->grammars = g;
    }
    return NULL;
}

static bool refuse(struct api_call *a, const char *param, const struct gr_error *e)
{
    if (e->pointer[0]) server_error(a->c, 400, param, "%s, %s: %s", param, e->pointer, e->message);
    else server_error(a->c, 400, param, "%s, byte %zu: %s", param, e->offset, e->message);
    return false;
}

bool api_take_grammar(struct api_call *a, enum gr_kind kind, const char *text, size_t n,
                      const char *param)
{
    struct server *s = a->s;
    struct infr_status st;
    struct gr_error error = {0};
    static const struct gr_options options = {.few_escapes = true};
    uint64_t hash[2];
    if (a->grammar) {
        server_error(a->c, 400, param, "%s: the answer is constrained twice", param);
        return false;
    }
    if (!s->vocab && lm_text_vocab(&s->x.text, &s->vocab, &st)) {
        server_error(a->c, 501, param, "%s", st.note);
        return false;
    }
    gr_hash(kind, text, n, &options, hash);
    struct api_grammar *g = find(s, hash);
    if (!g) {
        g = calloc(1, sizeof *g);
        if (g && !gr_compile(kind, text, n, &options, &g->grammar, &error)) {
            free(g);
            return refuse(a, param, &error);
        }
        if (g) g->state = gr_state_create(g->grammar);
        if (g && s->o.receipts) g->text = malloc(n + 1);
        if (!g || !g->state || (s->o.receipts && !g->text)) {
            if (g) destroy(g);
            server_error(a->c, 503, param, "no memory for the grammar");
            return false;
        }
        memcpy(g->hash, hash, sizeof hash);
        g->kind = kind, g->n_text = n;
        if (g->text) memcpy(g->text, text, n);
        g->next = s->grammars, s->grammars = g;
    }
    g->n_users++;
    a->grammar = g;
    a->p.d.grammar = g->state, a->p.d.grammar_vocab = s->vocab;
    return true;
}

bool api_take_value(struct api_call *a, enum gr_kind kind, const struct jinja_value *v,
                    const char *param)
{
    struct json *j = server_json(a->s);
    size_t n;
    api_json_value(j, NULL, v);
    const char *text = server_json_end(a->s, &n);
    return api_take_grammar(a, kind, text, n, param);
}

static bool bad(struct api_call *a, const char *param, const char *what)
{
    server_error(a->c, 400, param, "%s: %s", param, what);
    return false;
}

/* {"type": "json_schema", "json_schema": {"schema": ...}}; Responses have the schema beside the
 * type. */
bool api_take_format(struct api_call *a, const struct jinja_value *v, const char *param)
{
    static const char *const known[] = {"type", "json_schema", "schema", "name", "strict",
                                        "description"};
    const struct jinja_value *type = v->kind == JINJA_DICT ? api_field(v->u.dict, "type") : NULL;
    if (v->kind != JINJA_DICT || !type) return bad(a, param, "is an object with a type");
    for (uint32_t i = 0; i < v->u.dict->count; i++) {
        int k = 0;
        while (k < 6 && !api_is(&v->u.dict->pairs[i].key, known[k])) k++;
        if (k == 6) return bad(a, param, "has a field that this server does not know");
    }
    const struct jinja_value *in = api_field(v->u.dict, "json_schema");
    const struct jinja_value *schema = api_field(v->u.dict, "schema");
    if (in && in->kind != JINJA_DICT) return bad(a, param, "json_schema is an object");
    if (in) schema = api_field(in->u.dict, "schema");
    if (api_is(type, "text")) return schema ? bad(a, param, "text has no schema") : true;
    if (api_is(type, "json_object"))
        return schema ? api_take_value(a, GR_JSON_SCHEMA, schema, param)
                      : api_take_grammar(a, GR_JSON_OBJECT, "", 0, param);
    if (!api_is(type, "json_schema")) return bad(a, param, "type is text, json_object or json_schema");
    if (!schema) return bad(a, param, "json_schema has no schema");
    return api_take_value(a, GR_JSON_SCHEMA, schema, param);
}

/* GBNF has ::=, Lark does not. */
static bool take_notation(struct api_call *a, const struct jinja_value *v, const char *param)
{
    if (v->kind != JINJA_STR) return bad(a, param, "is a text");
    bool gbnf = memmem(v->u.s, v->len, "::=", 3) != NULL;
    return api_take_grammar(a, gbnf ? GR_GBNF : GR_LARK, v->u.s, v->len, param);
}

bool api_take_structure(struct api_call *a, const char *what, const struct jinja_value *v,
                        const char *param)
{
    if (!strcmp(what, "json")) {
        if (v->kind == JINJA_STR) return api_take_grammar(a, GR_JSON_SCHEMA, v->u.s, v->len, param);
        return api_take_value(a, GR_JSON_SCHEMA, v, param);
    }
    if (!strcmp(what, "regex")) {
        if (v->kind != JINJA_STR) return bad(a, param, "is a text");
        return api_take_grammar(a, GR_REGEX, v->u.s, v->len, param);
    }
    if (!strcmp(what, "choice")) return api_take_value(a, GR_CHOICE, v, param);
    if (!strcmp(what, "grammar")) return take_notation(a, v, param);
    if (!strcmp(what, "json_object")) {
        if (v->kind != JINJA_BOOL) return bad(a, param, "is true or false");
        return !v->u.b || api_take_grammar(a, GR_JSON_OBJECT, "", 0, param);
    }
    if (!strcmp(what, "structural_tag")) {
        if (v->kind != JINJA_STR) return bad(a, param, "is a text");
        return api_take_grammar(a, GR_STRUCTURAL_TAG, v->u.s, v->len, param);
    }
    return bad(a, param, "knows json, regex, choice, grammar, json_object and structural_tag");
}

/* vLLM's structured_outputs: one of the above as a member. */
bool api_take_structures(struct api_call *a, const struct jinja_value *v, const char *param)
{
    if (v->kind != JINJA_DICT) return bad(a, param, "is an object");
    for (uint32_t i = 0; i < v->u.dict->count; i++) {
        const struct jinja_value *key = &v->u.dict->pairs[i].key, *x = &v->u.dict->pairs[i].value;
        char name[32];
        snprintf(name, sizeof name, "%.*s", key->len < 31 ? (int)key->len : 0, key->u.s);
        if (x->kind != JINJA_NONE && !api_take_structure(a, name, x, param)) return false;
    }
    return true;
}
