// SPDX-License-Identifier: Apache-2.0
/* The models that take the longest token that fits: WordPiece inside words, RWKV over the whole
 * text. */
#include <string.h>

#include "runtime/text/tok_internal.h"

/* Longest key that p begins with: its value and length; TOK_NONE when there is none. */
static uint32_t longest(const struct tok *t, uint32_t node, const uint8_t *p, size_t n, size_t *len)
{
    uint32_t found = TOK_NONE;
    for (size_t i = 0; i < n; i++) {
        node = tok_trie_step(&t->trie, node, p[i] + 1u);
        if (node == TOK_NONE) break;
        uint32_t id = tok_trie_value(&t->trie, node);
        if (id >= t->h->n_tokens) continue;
        found = id;
        *len = i + 1;
    }
    return found;
}

bool tok_encode_greedy(const struct tok *t, const uint8_t *p, size_t n, struct tok_work *w,
                       struct tok_out *out)
{
    (void)w;
    bool in_unknown = false;
    for (size_t i = 0; i < n;) {
        size_t len = 1;
        uint32_t id = longest(t, 0, p + i, n - i, &len);
        if (id == TOK_NONE) {
            tok_put_fallback(t, p + i, 1, &in_unknown, out);
        } else {
            tok_put(out, id);
            in_unknown = false;
        }
        i += len;
    }
    return true;
}

/* A word is one or more tokens, the first of which begins with a space, or the unknown token as a
 * whole. */
static void encode_word(const struct tok *t, const uint8_t *p, size_t n, struct tok_out *out)
{
    size_t before = out->n, chars = 0;
    uint32_t limit = t->h->max_word_chars, unknown = t->h->special[TOK_SPECIAL_UNK];
    for (size_t i = 0; i < n; i++) chars += (p[i] & 0xc0) != 0x80;
    bool good = limit == 0 || chars <= limit;
    for (size_t i = 0; good && i < n;) {
        uint32_t root = i == 0 ? tok_trie_step(&t->trie, 0, ' ' + 1u) : 0;
        size_t len = 0;
        uint32_t id = root == TOK_NONE ? TOK_NONE : longest(t, root, p + i, n - i, &len);
        if (id == TOK_NONE)
            good = false;
        else
            tok_put(out, id);
        i += len;
    }
    if (good) return;
    out->n = before;
    if (unknown != TOK_NONE) tok_put(out, unknown);
}

bool tok_encode_wordpiece(const struct tok *t, const uint8_t *p, size_t n, struct tok_work *w,
                          struct tok_out *out)
{
    (void)w;
    size_t begin = 0;
    for (size_t i = 0; i < n;) {
        unsigned len = utf8_length(p[i]);
        bool punct = (tok_norm_flags(t, utf8_get(p + i)) & TOK_CHAR_PUNCT) != 0;
        if (p[i] == ' ' || punct) {
            if (i > begin) encode_word(t, p + begin, i - begin, out);
            if (punct) encode_word(t, p + i, len, out);
            begin = i + len;
        }
        i += len;
    }
    if (n > begin) encode_word(t, p + begin, n - begin, out);
    return true;
}

size_t tok_wordpiece_work(const struct tok *t, size_t n)
{
    (void)t;
    (void)n;
    return 0;
}
