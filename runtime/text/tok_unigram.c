// SPDX-License-Identifier: Apache-2.0
/*
 * Unigram model: the split with the highest sum of scores, by dynamic programming over the
 * positions of the text. Sums are double, additions go from left to right and only a strictly
 * better path replaces another, so that equal sums are decided as in SentencePiece. Time: length of
 * the text times length of the longest token.
 */
#include <float.h>

#include "runtime/text/tok_internal.h"

struct best {
    double score;
    uint32_t id, from; /* id TOK_NONE: a character that no token covers */
};

static double score_of(const struct tok *t, uint32_t id)
{
    return (t->attrs[id] & TOK_ATTR_TYPE) == TOK_TYPE_USER_DEFINED ? 0.0 : (double)t->scores[id];
}

static void improve(struct best *b, double score, uint32_t id, size_t from)
{
    if (score > b->score) *b = (struct best){score, id, (uint32_t)from};
}

static void fill(const struct tok *t, const uint8_t *p, size_t n, struct best *best)
{
    for (size_t i = 1; i <= n; i++) best[i] = (struct best){-DBL_MAX, TOK_NONE, 0};
    best[0] = (struct best){0.0, TOK_NONE, 0};
    for (size_t i = 0; i < n; i += utf8_length(p[i])) {
        unsigned char_len = utf8_length(p[i]);
        bool covered = false;
        uint32_t node = 0;
        for (size_t k = i; k < n; k++) {
            node = tok_trie_step(&t->trie, node, p[k] + 1u);
            if (node == TOK_NONE) break;
            uint32_t id = tok_trie_value(&t->trie, node);
            if (id >= t->h->n_tokens) continue;
            covered |= k + 1 - i == char_len;
            improve(&best[k + 1], best[i].score + score_of(t, id), id, i);
        }
        if (!covered)
            improve(&best[i + char_len], best[i].score + (double)t->h->unknown_score, TOK_NONE, i);
    }
}

bool tok_encode_unigram(const struct tok *t, const uint8_t *p, size_t n, struct tok_work *w,
                        struct tok_out *out)
{
    if (n == 0) return true;
    size_t mark = w->n;
    struct best *best = tok_work_take(w, (n + 1) * sizeof *best);
    if (best == NULL) return false;
    fill(t, p, n, best);
    /* Turn the path round: from[] becomes "next" on it. */
    uint32_t next = (uint32_t)n;
    for (uint32_t at = (uint32_t)n; at != 0;) {
        uint32_t from = best[at].from;
        best[at].from = next;
        next = at;
        at = from < at ? from : 0; /* always smaller, unless the block is damaged */
    }
    bool in_unknown = false;
    for (uint32_t begin = 0, end = next; begin < n; begin = end, end = best[end].from) {
        if (best[end].id != TOK_NONE) {
            tok_put(out, best[end].id);
            in_unknown = false;
        } else {
            tok_put_fallback(t, p + begin, end - begin, &in_unknown, out);
        }
    }
    w->n = mark;
    return true;
}

size_t tok_unigram_work(const struct tok *t, size_t n)
{
    (void)t;
    return (n + 1) * sizeof(struct best) + 16;
}
