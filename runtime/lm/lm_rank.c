// SPDX-License-Identifier: Apache-2.0
#include "runtime/lm/lm_rank.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/status.h"

double lm_rank_probability(double score) { return 1 / (1 + exp(-score)); }

/* Tokens so far, and text behind them that holds no control token. */
struct writing {
    const struct lm_text *t;
    uint32_t *ids;
    size_t n, n_plain;
    char *plain;
    struct infr_status *st;
};

static int put_ids(struct writing *w, const uint32_t *ids, size_t n)
{
    uint32_t *more = realloc(w->ids, (w->n + n + 1) * sizeof *more);
    if (!more) return rt_fail_memory(w->st, "tokens", (w->n + n) * sizeof *more);
    memcpy(more + w->n, ids, n * sizeof *ids);
    w->ids = more, w->n += n;
    return INFR_OK;
}

static int put_text(struct writing *w, const char *text, size_t n, unsigned flags)
{
    uint32_t *ids;
    size_t n_ids;
    int code = lm_text_encode(w->t, text, n, flags, &ids, &n_ids, w->st);
    if (!code) code = put_ids(w, ids, n_ids);
    free(ids);
    return code;
}

static int flush(struct writing *w)
{
    size_t n = w->n_plain;
    w->n_plain = 0;
    return n ? put_text(w, w->plain, n, 0) : INFR_OK;
}

/* ---- by a template ---- */

static bool begins(struct lm_text_view x, const char *word) { return x.n >= strlen(word) && !memcmp(x.s, word, strlen(word)); }

/* What the template has at its beginning: a place for a text, or some of its own. Returns how long it is there. */
static size_t take_step(struct writing *w, struct lm_text_view rest, struct lm_text_view query, struct lm_text_view document, int *code)
{
    static const char *const q = "{query}", *const d = "{document}";
    uint32_t id = 0;
    size_t len = tok_match_added(&w->t->tok, (const uint8_t *)rest.s, rest.n, TOK_ENCODE_SPECIAL, &id);
    struct lm_text_view text = {rest.s, len ? len : 1};
    struct tok_info info;
    if (len && !tok_token_info(&w->t->tok, id, &info) && info.type != TOK_TYPE_USER_DEFINED) {
        *code = flush(w);
        if (!*code) *code = put_ids(w, &id, 1);
        return len;
    }
    if (begins(rest, q)) text = query, len = strlen(q);
    else if (begins(rest, d)) text = document, len = strlen(d);
    else len = text.n;
    if (text.n) memcpy(w->plain + w->n_plain, text.s, text.n);
    w->n_plain += text.n;
    return len;
}

static int by_template(struct writing *w, struct lm_text_view source, struct lm_text_view query, struct lm_text_view document)
{
    size_t room = source.n, most = query.n > document.n ? query.n : document.n;
    int code = INFR_OK;
    for (size_t i = 0; i < source.n; i++) {
        struct lm_text_view rest = {source.s + i, source.n - i};
        if (!begins(rest, "{query}") && !begins(rest, "{document}")) continue;
        if (room > SIZE_MAX / 2 - most) return rt_fail_memory(w->st, "the question and the document", room);
        room += most;
    }
    w->plain = malloc(room + 1);
    if (!w->plain) return rt_fail_memory(w->st, "the question and the document", room);
    for (size_t at = 0; !code && at < source.n;)
        at += take_step(w, (struct lm_text_view){source.s + at, source.n - at}, query, document, &code);
    return code ? code : flush(w);
}

/* ---- as a pair ---- */

/* XLM-RoBERTa's pairs have two separators between them. */
static int as_pair(struct writing *w, struct lm_text_view query, struct lm_text_view document)
{
    uint32_t eos = tok_special_id(&w->t->tok, TOK_SPECIAL_EOS);
    int code = put_text(w, query.s, query.n, TOK_ENCODE_BOS | TOK_ENCODE_EOS);
    if (!code && w->t->tok.h->model == TOK_MODEL_UNIGRAM && eos != TOK_NONE) code = put_ids(w, &eos, 1);
    return code ? code : put_text(w, document.s, document.n, TOK_ENCODE_EOS);
}

int lm_rank_encode(const struct lm_text *t, struct lm_text_view query, struct lm_text_view document, uint32_t **out_ids, size_t *out_n,
                   struct infr_status *st)
{
    struct writing w = {.t = t, .st = st};
    struct lm_text_view source;
    *out_ids = NULL;
    source.s = lm_text_template_source(t, "rerank", &source.n);
    int code = source.s ? by_template(&w, source, query, document) : as_pair(&w, query, document);
    free(w.plain);
    if (code) {
        free(w.ids);
        return code;
    }
    *out_ids = w.ids, *out_n = w.n;
    return INFR_OK;
}
