// SPDX-License-Identifier: Apache-2.0
#include "compiler/text_section.h"

#include <math.h>
#include <string.h>

#include "compiler/tok/token_trie.h"
#include "ir/support/str.h"
#include "runtime/text/jinja.h"

#define ALIGN 8
#define MAX_SECTION_BYTES ((size_t)1 << 31) /* no vocabulary comes near it; spans are 32 bits */

struct section {
    struct arena *arena;
    struct strbuf bytes;
    struct diag_sink *sink;
    const char *loc;
};

void text_section_desc_init(struct text_section_desc *d)
{
    *d = (struct text_section_desc){.causal = true,
                                    .temp = NAN,
                                    .top_p = NAN,
                                    .min_p = NAN,
                                    .repeat_penalty = NAN,
                                    .top_k = -1};
}

static struct infr_text_span put(struct section *s, const void *data, size_t n)
{
    while (s->bytes.len % ALIGN) strbuf_putc(&s->bytes, 0);
    struct infr_text_span span = {(uint32_t)s->bytes.len, (uint32_t)n};
    strbuf_putn(&s->bytes, data, n);
    return span;
}

static bool fits(const struct section *s, size_t n)
{
    size_t all;
    return size_add(s->bytes.len, n, &all) && all < MAX_SECTION_BYTES - ALIGN;
}

static bool refuse(const struct section *s, const char *what)
{
    return diag_report(s->sink, DIAG_TEXT_MODEL, s->loc, "%s", what);
}

/* ---- templates ---- */

static bool put_template(struct section *s, const struct text_template *t,
                         struct infr_text_template *row)
{
    struct jinja_blob blob;
    struct jinja_error error;
    if (!fits(s, t->name.n) || !fits(s, t->source.n))
        return refuse(s, "a chat template is too long");
    row->name = put(s, t->name.p, t->name.n);
    row->source = put(s, t->source.p, t->source.n);
    if (!jinja_compile(t->source.p, t->source.n, &blob, &error)) {
        const char *text = arena_printf(s->arena, "line %u: %s", error.line, error.message);
        diag_warn(s->sink, DIAG_CHAT_TEMPLATE, s->loc, "chat template '%.*s', %s",
                  (int)(t->name.n < 100 ? t->name.n : 100), t->name.p, text);
        row->error = put(s, text, strlen(text));
        return true;
    }
    bool ok = fits(s, blob.size_bytes);
    if (ok) row->code = put(s, blob.data, blob.size_bytes);
    jinja_blob_deinit(&blob);
    return ok || refuse(s, "the compiled chat templates are too large");
}

static bool put_templates(struct section *s, const struct text_section_desc *d,
                          struct infr_text_header *h)
{
    struct infr_text_template rows[INFR_TEXT_MAX_TEMPLATES] = {0};
    if (d->n_templates > INFR_TEXT_MAX_TEMPLATES)
        return refuse(s, "there are more chat templates than 64");
    h->n_templates = (uint32_t)d->n_templates;
    h->templates = put(s, rows, d->n_templates * sizeof *rows).offset;
    for (size_t i = 0; i < d->n_templates; i++)
        if (!put_template(s, &d->templates[i], &rows[i])) return false;
    if (d->n_templates) memcpy(s->bytes.data + h->templates, rows, d->n_templates * sizeof *rows);
    return true;
}

/* ---- numbers ---- */

static bool take(const struct section *s, const char *what, int64_t value, int64_t max,
                 uint32_t *out)
{
    if (value < 0 || value > max)
        return diag_report(s->sink, DIAG_TEXT_MODEL, s->loc, "%s is %lld; it may be 0 to %lld",
                           what, (long long)value, (long long)max);
    *out = (uint32_t)value;
    return true;
}

/* A recommendation that makes no sense is left out: the model works without it. */
static float recommended(const struct section *s, const char *what, double value, double lo,
                         double hi)
{
    if (isnan(value)) return NAN;
    if (value >= lo && value <= hi) return (float)value;
    diag_warn(s->sink, DIAG_TEXT_MODEL, s->loc,
              "the recommended %s, %g, is not between %g and %g and is left out", what, value, lo,
              hi);
    return NAN;
}

static bool put_numbers(const struct section *s, const struct text_section_desc *d,
                        struct infr_text_header *h)
{
    bool ok = take(s, "the number of columns of the logits", d->vocab_rows, TOK_MAX_TOKENS,
                   &h->vocab);
    ok = take(s, "the page size", d->page_tokens, 1 << 16, &h->page_tokens) && ok;
    ok = take(s, "the trained context length", d->ctx_train, INT32_MAX, &h->ctx_train) && ok;
    ok = take(s, "the sliding window", d->window, INT32_MAX, &h->window) && ok;
    ok = take(s, "the pooling type", (int64_t)d->pooling, INFR_POOLING_COUNT - 1, &h->pooling) &&
         ok;
    ok = take(s, "the size of the embeddings", d->embedding_dims, 1 << 24, &h->embedding_dims) &&
         ok;
    if (!ok) return false;
    if (h->vocab && h->vocab < d->vocab.n_tokens)
        return diag_report(s->sink, DIAG_TEXT_MODEL, s->loc,
                           "the tokenizer has %zu tokens, the logits have %u columns",
                           d->vocab.n_tokens, h->vocab);
    if (d->causal) h->flags |= INFR_TEXT_CAUSAL;
    if (d->odds) h->flags |= INFR_TEXT_ODDS;
    h->temp = recommended(s, "temperature", d->temp, 0, 100);
    h->top_p = recommended(s, "top_p", d->top_p, 0, 1);
    h->min_p = recommended(s, "min_p", d->min_p, 0, 1);
    h->repeat_penalty = recommended(s, "repetition penalty", d->repeat_penalty, 0.01, 100);
    h->top_k = d->top_k < 0 || d->top_k > TOK_MAX_TOKENS ? -1 : (int32_t)d->top_k;
    return true;
}

/* ---- entry ---- */

static bool put_tokenizer(struct section *s, const struct text_section_desc *d,
                          struct infr_text_header *h)
{
    const uint8_t *blob;
    size_t n;
    if (!tok_build(s->arena, &d->vocab, s->sink, s->loc, &blob, &n)) return false;
    if (!fits(s, n)) return refuse(s, "the compiled tokenizer is too large");
    h->tokenizer = put(s, blob, n);
    if (!h->vocab) return true;
    const uint8_t *trie;
    size_t n_trie;
    token_trie_build(s->arena, blob, &trie, &n_trie);
    if (!fits(s, n_trie)) return refuse(s, "the vocabulary's trie is too large");
    h->trie = put(s, trie, n_trie);
    return true;
}

bool text_section_build(struct arena *a, const struct text_section_desc *d, struct diag_sink *sink,
                        const char *loc, const uint8_t **blob, size_t *n_bytes)
{
    struct infr_text_header h = {.magic = INFR_TEXT_MAGIC,
                                 .major = INFR_TEXT_VERSION_MAJOR,
                                 .minor = INFR_TEXT_VERSION_MINOR,
                                 .header_bytes = sizeof h};
    struct section s = {.arena = a, .sink = sink, .loc = loc};
    strbuf_putn(&s.bytes, (const char *)&h, sizeof h);
    bool ok = put_numbers(&s, d, &h) && put_templates(&s, d, &h) && put_tokenizer(&s, d, &h);
    if (ok) {
        put(&s, "", 0);
        h.total_bytes = (uint32_t)s.bytes.len;
        memcpy(s.bytes.data, &h, sizeof h);
        *blob = arena_dup(a, s.bytes.data, s.bytes.len);
        *n_bytes = s.bytes.len;
    }
    strbuf_deinit(&s.bytes);
    return ok;
}
