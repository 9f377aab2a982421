// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "runtime/lm/lm_text.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/grammar/grammar.h"
#include "runtime/status.h"
#include "runtime/text/json_read.h"

#define CONTEXT_BYTES ((size_t)256 << 20)

/* ---- the section ---- */

static bool span_ok(const struct infr_text_header *h, struct infr_text_span s)
{
    return !s.bytes ||
           (s.offset % 8 == 0 && s.bytes <= h->total_bytes && s.offset <= h->total_bytes - s.bytes);
}

static const struct infr_text_template *templates(const struct lm_text *t)
{
    return (const struct infr_text_template *)(const void *)(t->base + t->h.templates);
}

static bool numbers_ok(const struct infr_text_header *h)
{
    uint64_t rows = (uint64_t)h->n_templates * sizeof(struct infr_text_template);
    return h->n_templates <= INFR_TEXT_MAX_TEMPLATES && h->templates % 8 == 0 &&
           rows <= h->total_bytes && h->templates <= h->total_bytes - rows &&
           span_ok(h, h->tokenizer) && span_ok(h, h->trie) && h->vocab <= TOK_MAX_TOKENS && h->page_tokens <= 1u << 16 &&
           h->ctx_train <= INT32_MAX && h->window <= INT32_MAX && h->pooling < INFR_POOLING_COUNT &&
           h->embedding_dims <= 1u << 24;
}

int lm_text_open(const void *section, uint64_t n_bytes, struct lm_text *t, struct infr_status *st)
{
    *t = (struct lm_text){.base = section};
    if (!n_bytes) return rt_fail(st, INFR_BAD_INPUT, "this engine has no tokenizer");
    if (n_bytes >= sizeof t->h) memcpy(&t->h, section, sizeof t->h);
    if (t->h.magic != INFR_TEXT_MAGIC || t->h.header_bytes < sizeof t->h ||
        t->h.total_bytes > n_bytes || t->h.header_bytes > t->h.total_bytes || !numbers_ok(&t->h))
        return rt_fail(st, INFR_ENVIRONMENT, "the engine is damaged: its text section");
    if (t->h.major != INFR_TEXT_VERSION_MAJOR)
        return rt_fail(st, INFR_ENVIRONMENT, "the text section has version %u.%u; this reads %d.x",
                       t->h.major, t->h.minor, INFR_TEXT_VERSION_MAJOR);
    for (uint32_t i = 0; i < t->h.n_templates; i++) {
        const struct infr_text_template *x = &templates(t)[i];
        if (!span_ok(&t->h, x->name) || !span_ok(&t->h, x->source) || !span_ok(&t->h, x->code) ||
            !span_ok(&t->h, x->error))
            return rt_fail(st, INFR_ENVIRONMENT, "the engine is damaged: chat template %u", i);
    }
    enum tok_status s = tok_open(t->base + t->h.tokenizer.offset, t->h.tokenizer.bytes, &t->tok);
    if (s) return rt_fail(st, INFR_ENVIRONMENT, "the engine is damaged: %s", tok_status_text(s));
    if (t->h.vocab && tok_count(&t->tok) > t->h.vocab)
        return rt_fail(st, INFR_ENVIRONMENT, "the engine is damaged: more tokens than logits");
    return INFR_OK;
}

int lm_text_vocab(const struct lm_text *t, struct gr_vocab **out, struct infr_status *st)
{
    *out = t->h.trie.bytes ? gr_vocab_create(t->base + t->h.trie.offset, t->h.trie.bytes) : NULL;
    if (*out) return INFR_OK;
    return rt_fail(st, INFR_ENVIRONMENT, "the engine has no usable trie of its vocabulary");
}

/* ---- tokens ---- */

int lm_text_encode(const struct lm_text *t, const char *text, size_t n, unsigned flags,
                   uint32_t **out_ids, size_t *out_n, struct infr_status *st)
{
    size_t work_bytes, max_ids;
    *out_ids = NULL;
    enum tok_status s = tok_encode_plan(&t->tok, text, n, &work_bytes, &max_ids);
    if (s) return rt_fail(st, INFR_BAD_INPUT, "%s", tok_status_text(s));
    void *work = malloc(work_bytes + 1);
    uint32_t *ids = malloc((max_ids + 1) * sizeof *ids);
    if (work && ids) s = tok_encode(&t->tok, text, n, flags, work, work_bytes, ids, max_ids, out_n);
    bool have = work && ids;
    free(work);
    if (have && !s) {
        uint32_t *less = realloc(ids, (*out_n + 1) * sizeof *ids);
        *out_ids = less ? less : ids;
        return INFR_OK;
    }
    free(ids);
    if (!have) return rt_fail_memory(st, "tokens", work_bytes + max_ids * sizeof *ids);
    return rt_fail(st, INFR_BAD_INPUT, "%s", tok_status_text(s));
}

int lm_text_decode(const struct lm_text *t, const uint32_t *ids, size_t n, unsigned flags,
                   char **out_text, size_t *out_n, struct infr_status *st)
{
    char none[1];
    *out_text = NULL;
    enum tok_status s = tok_decode(&t->tok, ids, n, flags, none, 0, out_n);
    if (s && s != TOK_ERR_SPACE) return rt_fail(st, INFR_BAD_INPUT, "%s", tok_status_text(s));
    char *text = malloc(*out_n + 1);
    if (!text) return rt_fail_memory(st, "text", *out_n);
    s = tok_decode(&t->tok, ids, n, flags, text, *out_n, out_n);
    if (s) {
        free(text);
        return rt_fail(st, INFR_BAD_INPUT, "%s", tok_status_text(s));
    }
    text[*out_n] = 0;
    *out_text = text;
    return INFR_OK;
}

/* ---- templates ---- */

static void names(const struct lm_text *t, char *out, size_t cap)
{
    size_t n = 0;
    out[0] = 0;
    for (uint32_t i = 0; i < t->h.n_templates && n + 3 < cap; i++) {
        const struct infr_text_span *s = &templates(t)[i].name;
        size_t len = s->bytes < cap - n - 3 ? s->bytes : cap - n - 3;
        if (i) out[n++] = ' ';
        memcpy(out + n, t->base + s->offset, len);
        out[n += len] = 0;
    }
}

static const struct infr_text_template *find_template(const struct lm_text *t, const char *name)
{
    const struct infr_text_template *x = NULL;
    for (uint32_t i = 0; !x && i < t->h.n_templates; i++) {
        const struct infr_text_template *c = &templates(t)[i];
        if (!name || (strlen(name) == c->name.bytes &&
                      !memcmp(name, t->base + c->name.offset, c->name.bytes)))
            x = c;
    }
    return x;
}

const char *lm_text_template_source(const struct lm_text *t, const char *name, size_t *n)
{
    const struct infr_text_template *x = find_template(t, name);
    *n = x ? x->source.bytes : 0;
    return x ? (const char *)t->base + x->source.offset : NULL;
}

int lm_text_template(const struct lm_text *t, const char *name, struct jinja_template *out,
                     struct infr_status *st)
{
    char all[200];
    struct jinja_error error;
    const struct infr_text_template *x = find_template(t, name);
    if (!name && t->own_template.data)
        return jinja_template_open(t->own_template.data, t->own_template.size_bytes, out, &error)
                   ? INFR_OK
                   : rt_fail(st, INFR_ENVIRONMENT, "the template: %.400s", error.message);
    if (!t->h.n_templates)
        return rt_fail(st, INFR_BAD_INPUT, "this model has no chat template; use generate");
    names(t, all, sizeof all);
    if (!x)
        return rt_fail(st, INFR_BAD_INPUT, "no chat template '%.100s'; there are: %s", name, all);
    if (!x->code.bytes)
        return rt_fail(st, INFR_BAD_INPUT, "the model's chat template does not compile: %.*s",
                       (int)(x->error.bytes < 400 ? x->error.bytes : 400),
                       (const char *)t->base + x->error.offset);
    if (!jinja_template_open(t->base + x->code.offset, x->code.bytes, out, &error))
        return rt_fail(st, INFR_ENVIRONMENT, "the engine is damaged: %.400s", error.message);
    return INFR_OK;
}

int lm_text_use_template(struct lm_text *t, const char *source, size_t n, struct infr_status *st)
{
    struct jinja_error error;
    lm_text_deinit(t);
    if (!jinja_compile(source, n, &t->own_template, &error))
        return rt_fail(st, INFR_BAD_INPUT, "the chat template, line %u: %.400s", error.line,
                       error.message);
    t->own_source = malloc(n + 1);
    if (!t->own_source) return rt_fail_memory(st, "the chat template", n);
    memcpy(t->own_source, source, n);
    t->own_source_bytes = n;
    return INFR_OK;
}

void lm_text_deinit(struct lm_text *t)
{
    free(t->own_source);
    jinja_blob_deinit(&t->own_template);
    t->own_source = NULL, t->own_source_bytes = 0;
    t->own_template = (struct jinja_blob){0};
}

/* ---- conversations ---- */

int lm_chat_add(struct lm_chat *c, const char *role, const char *content, size_t n,
                struct infr_status *st)
{
    if (c->n == c->cap) {
        size_t cap = c->cap ? 2 * c->cap : 8;
        struct lm_message *v = realloc(c->v, cap * sizeof *v);
        if (!v) return rt_fail_memory(st, "the conversation", cap * sizeof *v);
        c->v = v, c->cap = cap;
    }
    struct lm_message m = {strdup(role), malloc(n + 1), n};
    if (!m.role || !m.content) {
        free(m.role);
        free(m.content);
        return rt_fail_memory(st, "the conversation", n);
    }
    memcpy(m.content, content, n);
    m.content[n] = 0;
    c->v[c->n++] = m;
    return INFR_OK;
}

void lm_chat_drop(struct lm_chat *c, size_t at, size_t count)
{
    for (size_t i = at; i < at + count; i++) {
        free(c->v[i].role);
        free(c->v[i].content);
    }
    memmove(c->v + at, c->v + at + count, (c->n - at - count) * sizeof *c->v);
    c->n -= count;
}

void lm_chat_cut(struct lm_chat *c, size_t n)
{
    if (n < c->n) lm_chat_drop(c, n, c->n - n);
}

void lm_chat_deinit(struct lm_chat *c)
{
    if (c->n) lm_chat_cut(c, 0);
    free(c->v);
    *c = (struct lm_chat){0};
}

static bool put_messages(struct jinja_arena *a, struct jinja_dict *context, const struct lm_chat *c)
{
    struct jinja_value list, dict, role, content;
    if (!jinja_list_init(a, (uint32_t)c->n, &list)) return false;
    for (size_t i = 0; i < c->n; i++) {
        const struct lm_message *m = &c->v[i];
        if (!jinja_dict_init(a, 2, &dict) || !jinja_str_view(m->role, strlen(m->role), &role) ||
            !jinja_str_view(m->content, m->n_content, &content) ||
            !jinja_dict_put_name(a, dict.u.dict, "role", role) ||
            !jinja_dict_put_name(a, dict.u.dict, "content", content) ||
            !jinja_list_append(a, list.u.list, dict))
            return false;
    }
    return jinja_dict_put_name(a, context, "messages", list);
}

/* bos_token and so on: the tokens' own text, "" where the model has none. */
static bool put_special(const struct lm_text *t, struct jinja_arena *a, struct jinja_dict *context)
{
    static const struct {
        const char *name;
        enum tok_special which;
    } rows[] = {{"bos_token", TOK_SPECIAL_BOS},
                {"eos_token", TOK_SPECIAL_EOS},
                {"unk_token", TOK_SPECIAL_UNK},
                {"pad_token", TOK_SPECIAL_PAD}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tok_info info = {.bytes = (const uint8_t *)"", .n_bytes = 0};
        uint32_t id = tok_special_id(&t->tok, rows[i].which);
        struct jinja_value v;
        if (id != TOK_NONE && tok_token_info(&t->tok, id, &info)) return false;
        if (!jinja_str_view((const char *)info.bytes, info.n_bytes, &v) ||
            !jinja_dict_put_name(a, context, rows[i].name, v))
            return false;
    }
    return true;
}

static int put_kwargs(struct jinja_arena *a, struct jinja_dict *context, const char *kwargs,
                      struct infr_status *st)
{
    struct json_read_error error;
    struct jinja_value v;
    if (!json_read(a, kwargs, strlen(kwargs), &v, &error))
        return rt_fail(st, INFR_BAD_INPUT, "template arguments: %s at byte %zu", error.message,
                       error.offset_bytes);
    if (v.kind != JINJA_DICT)
        return rt_fail(st, INFR_BAD_INPUT, "template arguments are a JSON object");
    for (uint32_t i = 0; i < v.u.dict->count; i++)
        if (!jinja_dict_put(a, context, v.u.dict->pairs[i].key, v.u.dict->pairs[i].value))
            return rt_fail_memory(st, "the conversation", CONTEXT_BYTES);
    return INFR_OK;
}

int lm_text_render(const struct lm_text *t, const char *template_name, struct jinja_arena *a,
                   struct jinja_value *context, struct jinja_output *out, struct infr_status *st)
{
    struct jinja_template template;
    struct jinja_error error;
    int code = lm_text_template(t, template_name, &template, st);
    if (code) return code;
    if (!put_special(t, a, context->u.dict))
        return rt_fail_memory(st, "the conversation", CONTEXT_BYTES);
    if (jinja_render(&template, context, NULL, out, &error)) return INFR_OK;
    if (error.code == JINJA_ERR_RAISED)
        return rt_fail(st, INFR_BAD_INPUT, "the chat template says: %.400s", error.message);
    return rt_fail(st, INFR_BAD_INPUT, "the chat template fails in line %u: %.400s", error.line,
                   error.message);
}

static int make_context(struct jinja_arena *a, const struct lm_chat *c, const char *kwargs,
                        struct jinja_value *out, struct infr_status *st)
{
    for (size_t i = 0; i < c->n; i++) {
        struct jinja_value v;
        if (!jinja_str_view(c->v[i].content, c->v[i].n_content, &v))
            return rt_fail(st, INFR_BAD_INPUT, "message %zu is not UTF-8", i + 1);
    }
    if (!jinja_dict_init(a, 16, out) || !put_messages(a, out->u.dict, c) ||
        !jinja_dict_put_name(a, out->u.dict, "add_generation_prompt", jinja_bool(true)))
        return rt_fail_memory(st, "the conversation", CONTEXT_BYTES);
    return kwargs ? put_kwargs(a, out->u.dict, kwargs, st) : INFR_OK;
}

int lm_chat_tokens(const struct lm_text *t, const char *template_name, const struct lm_chat *c,
                   const char *kwargs, uint32_t **out_ids, size_t *out_n, struct infr_status *st)
{
    struct jinja_output text = {0};
    struct jinja_value context;
    *out_ids = NULL;
    struct jinja_arena *a = jinja_arena_create(CONTEXT_BYTES);
    if (!a) return rt_fail_memory(st, "the conversation", CONTEXT_BYTES);
    int code = make_context(a, c, kwargs, &context, st);
    if (!code) code = lm_text_render(t, template_name, a, &context, &text, st);
    if (!code)
        code = lm_text_encode(t, text.data, text.len_bytes, TOK_ENCODE_SPECIAL, out_ids, out_n, st);
    if (!code && !*out_n) {
        free(*out_ids);
        *out_ids = NULL;
        code = rt_fail(st, INFR_BAD_INPUT, "the chat template writes nothing");
    }
    jinja_output_deinit(&text);
    jinja_arena_destroy(a);
    return code;
}
