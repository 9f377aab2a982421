// SPDX-License-Identifier: Apache-2.0
/*
 * Jumps: where a grammar leaves one text to go on with, several tokens take one step.
 *
 * The forced text is cut into tokens as the tokenizer cuts it, from the newest token on: a draft. The
 * next step computes the answer's newest token and the draft behind it, and draws from each row in
 * turn, as it would have one by one; as long as what is drawn is the draft's token, the next row is
 * that of the next step. So tokens, probabilities and text are those of single steps; only their
 * number falls. A model that cuts the text otherwise costs the rows behind that place.
 *
 * Where the forced text ends the next token may begin inside of it (`"` and then `"a`): from the first
 * place on from which some longer token of the vocabulary could go past the end, nothing is drafted.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/lm/lm_generate_internal.h"

enum { MOST_BYTES = 256 };

/* Whole characters at the beginning of the n bytes; 0 where they begin inside one. */
static size_t whole_characters(const char *s, size_t n)
{
    size_t at = n;
    if (n && ((uint8_t)s[0] & 0xc0) == 0x80) return 0;
    while (at && ((uint8_t)s[at - 1] & 0xc0) == 0x80) at--;
    if (!at) return 0;
    uint8_t lead = (uint8_t)s[at - 1];
    size_t need = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    return n - at + 1 >= need ? n : at - 1;
}

/* The tokens before the first that a longer one could take the place of. */
static size_t settled(const struct lm_request *r, const char *text, size_t n, bool finishes,
                      const uint32_t *ids, size_t n_ids)
{
    size_t at = 0, i = 0;
    for (; i < n_ids; i++) {
        struct tok_info info;
        if (tok_token_info(r->g->tok, ids[i], &info) || !info.n_bytes || info.ends_generation ||
            (info.type != TOK_TYPE_NORMAL && info.type != TOK_TYPE_USER_DEFINED) ||
            info.n_bytes > n - at || memcmp(info.bytes, text + at, info.n_bytes))
            break;
        if (!finishes && gr_vocab_extends(r->d.grammar_vocab, text + at, n - at)) break;
        at += info.n_bytes;
    }
    return i;
}

static bool finishes_with(const struct lm_request *r, const char *text, size_t n)
{
    struct gr_state *s = gr_state_copy(r->grammar);
    bool end = s && gr_advance(s, text, n) && gr_is_finished(s);
    gr_state_destroy(s);
    return end;
}

uint32_t lm_draft(struct lm_request *r, uint32_t most)
{
    char text[MOST_BYTES];
    size_t work_bytes, max_ids, n, n_ids = 0;
    if (!r->d.jumps || most > r->seq.capacity - r->seq.n_tokens) return 0;
    if (r->seq.n_tokens + most + 1 >= r->g->o.n_ctx) return 0;
    /* Tokens have few bytes: more than this is not needed, and each takes a while to find. */
    size_t cap = 8 * (size_t)most + 8;
    size_t forced = gr_forced(r->grammar, text, cap < sizeof text ? cap : sizeof text);
    if (!(n = whole_characters(text, forced))) return 0;
    if (tok_encode_plan(r->g->tok, text, n, &work_bytes, &max_ids)) return 0;
    void *work = malloc(work_bytes + 1);
    uint32_t *ids = malloc((max_ids + 1) * sizeof *ids);
    if (!work || !ids ||
        tok_encode(r->g->tok, text, n, TOK_ENCODE_CONTINUED, work, work_bytes, ids, max_ids, &n_ids))
        n_ids = 0;
    n_ids = settled(r, text, n, n == forced && finishes_with(r, text, n), ids, n_ids);
    if (n_ids > most) n_ids = most;
    memcpy(r->seq.tokens + r->seq.n_tokens, ids ? ids : (uint32_t[]){0}, n_ids * sizeof *ids);
    free(work);
    free(ids);
    return (uint32_t)n_ids;
}
