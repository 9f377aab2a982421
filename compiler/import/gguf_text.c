// SPDX-License-Identifier: Apache-2.0
/* Tokenizer, chat templates and limits of a GGUF file: the description that compiler/text_section.c compiles. */
#include <string.h>

#include "compiler/import/arch.h"
#include "compiler/text_section.h"

#define MAX_TEMPLATES 64

static const char *string_of(struct arch *a, const char *key)
{
    struct gguf_string s;
    return gguf_get_string(gguf_find(a->g, key), &s) ? arena_strndup(&a->g->arena, s.data, s.len) : NULL;
}

static bool wrong(struct arch *a, const char *key, const char *what) { return diag_report(a->diag, DIAG_TOKENIZER, a->loc, "%s %s", key, what); }

/* NULL and *n = 0 when the file has no such array. */
static bool strings_of(struct arch *a, const char *key, const struct tok_text **out, size_t *n)
{
    const struct gguf_value *v = gguf_find(a->g, key);
    struct gguf_string s;
    *out = NULL;
    *n = 0;
    if (!v) return true;
    if (v->kind != GGUF_ARRAY || v->element != GGUF_STRING) return wrong(a, key, "is no array of strings");
    struct tok_text *t = ARENA_ARRAY(&a->g->arena, struct tok_text, v->count);
    for (struct gguf_cursor at = {0}; gguf_next_string(v, &at, &s); ++*n) t[*n] = (struct tok_text){s.data, s.len};
    *out = t;
    return true;
}

/* Scores and types: one for each token. */
static bool read_numbers(struct arch *a, struct tok_vocab_desc *d)
{
    const struct gguf_value *scores = gguf_find(a->g, "tokenizer.ggml.scores"), *types = gguf_find(a->g, "tokenizer.ggml.token_type");
    float *s = NULL;
    int32_t *t = NULL;
    if ((scores && scores->count != d->n_tokens) || (types && types->count != d->n_tokens))
        return wrong(a, "tokenizer.ggml.tokens", "and its scores or types differ in number");
    if (scores) d->scores = s = ARENA_ARRAY(&a->g->arena, float, d->n_tokens);
    if (types) d->types = t = ARENA_ARRAY(&a->g->arena, int32_t, d->n_tokens);
    for (size_t i = 0; i < d->n_tokens; i++) {
        double score;
        int64_t type;
        if (s && !gguf_array_float(scores, i, &score)) return wrong(a, "tokenizer.ggml.scores", "is no array of numbers");
        if (t && (!gguf_array_int(types, i, &type) || type < 0 || type > INT32_MAX)) return wrong(a, "tokenizer.ggml.token_type", "is no array of types");
        if (s) s[i] = (float)score;
        if (t) t[i] = (int32_t)type;
    }
    return true;
}

static bool read_charsmap(struct arch *a, struct tok_vocab_desc *d)
{
    const char *key = "tokenizer.ggml.precompiled_charsmap";
    const struct gguf_value *v = gguf_find(a->g, key);
    if (!v) return true;
    if (v->kind != GGUF_ARRAY || (v->element != GGUF_U8 && v->element != GGUF_I8)) return wrong(a, key, "is no array of bytes");
    d->charsmap = v->data;
    d->charsmap_bytes = (size_t)v->count;
    return true;
}

static void read_scalars(struct arch *a, struct tok_vocab_desc *d)
{
    static const char prefix[] = "tokenizer.ggml.";
    for (size_t i = 0; i < a->g->kvs.n; i++) {
        const struct gguf_kv *kv = &a->g->kvs.v[i];
        int64_t v;
        if (kv->key.len < sizeof prefix || memcmp(kv->key.data, prefix, sizeof prefix - 1) || !gguf_get_int(&kv->value, &v) || v < 0) continue;
        tok_desc_key(d, arena_strndup(&a->g->arena, kv->key.data, kv->key.len), (uint64_t)v);
    }
}

static bool read_vocab(struct arch *a, struct tok_vocab_desc *d)
{
    if (!tok_desc_init(d, string_of(a, "tokenizer.ggml.model"), string_of(a, "tokenizer.ggml.pre"), a->diag, a->loc)) return false;
    d->model_name = string_of(a, "general.name");
    d->architecture = a->row->name;
    read_scalars(a, d);
    return strings_of(a, "tokenizer.ggml.tokens", &d->tokens, &d->n_tokens) && strings_of(a, "tokenizer.ggml.merges", &d->merges, &d->n_merges) &&
           read_numbers(a, d) && read_charsmap(a, d);
}

/* tokenizer.chat_template, then every tokenizer.chat_template.NAME. */
static void read_templates(struct arch *a, struct text_section_desc *d)
{
    static const char key[] = "tokenizer.chat_template";
    struct text_template *t = ARENA_ARRAY(&a->g->arena, struct text_template, MAX_TEMPLATES);
    struct gguf_string s;
    size_t n = 0, len = sizeof key - 1;
    if (gguf_get_string(gguf_find(a->g, key), &s)) t[n++] = (struct text_template){{"default", 7}, {s.data, s.len}};
    for (size_t i = 0; i < a->g->kvs.n && n < MAX_TEMPLATES; i++) {
        const struct gguf_kv *kv = &a->g->kvs.v[i];
        if (kv->key.len <= len + 1 || memcmp(kv->key.data, key, len) || kv->key.data[len] != '.' || !gguf_get_string(&kv->value, &s)) continue;
        t[n++] = (struct text_template){{kv->key.data + len + 1, kv->key.len - len - 1}, {s.data, s.len}};
    }
    d->templates = t;
    d->n_templates = n;
}

static void read_sampling(struct arch *a, struct text_section_desc *d)
{
    gguf_get_float(gguf_find(a->g, "general.sampling.temp"), &d->temp);
    gguf_get_float(gguf_find(a->g, "general.sampling.top_p"), &d->top_p);
    gguf_get_float(gguf_find(a->g, "general.sampling.min_p"), &d->min_p);
    gguf_get_float(gguf_find(a->g, "general.sampling.penalty_repeat"), &d->repeat_penalty);
    gguf_get_int(gguf_find(a->g, "general.sampling.top_k"), &d->top_k);
}

bool arch_add_text(struct arch *a)
{
    struct text_section_desc d;
    const uint8_t *blob;
    bool pooled = arch_is_pooled(a);
    if (!gguf_find(a->g, "tokenizer.ggml.model")) return true; /* an engine without text commands */
    text_section_desc_init(&d);
    if (!read_vocab(a, &d.vocab)) return false;
    read_templates(a, &d);
    read_sampling(a, &d);
    d.causal = a->h.causal;
    d.odds = a->h.odds;
    d.vocab_rows = pooled ? 0 : a->h.vocab;
    d.embedding_dims = !pooled ? 0 : a->h.pooling == INFR_POOLING_RANK ? 1 : a->h.width;
    d.page_tokens = ARCH_PAGE;
    d.ctx_train = a->h.ctx_train;
    d.pooling = a->h.pooling;
    for (int il = 0; il < a->h.layers; il++) {
        int64_t w = a->h.layer[il].window;
        d.window = w == 0 ? 0 : il == 0 || (d.window && w > d.window) ? w : d.window;
        if (w == 0) break;
    }
    if (!text_section_build(&a->m->arena, &d, a->diag, a->loc, &blob, &a->m->n_text_bytes)) return false;
    a->m->text = blob;
    return true;
}
