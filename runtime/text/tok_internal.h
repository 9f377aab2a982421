// SPDX-License-Identifier: Apache-2.0
/* What the tokenizer's files share. */
#ifndef INFC_RUNTIME_TEXT_TOK_INTERNAL_H
#define INFC_RUNTIME_TEXT_TOK_INTERNAL_H

#include "runtime/text/tok.h"
#include "runtime/text/unicode_utf8.h"

/* Workspace: allocations follow each other and go together when the mark is set back. */
struct tok_work {
    uint8_t *p;
    size_t n, cap;
};
/* NULL when it does not fit. Aligned to 8. */
void *tok_work_take(struct tok_work *w, size_t n_bytes);
#define TOK_WORK_ALIGN(n) (((n) + 7u) & ~(size_t)7)

/* Ids on their way to the caller; counts on when the room is used up. */
struct tok_out {
    uint32_t *ids;
    size_t cap, n;
};
static inline void tok_put(struct tok_out *o, uint32_t id)
{
    if (o->n < o->cap) o->ids[o->n] = id;
    o->n++;
}

/* The bytes of string i; empty when the block is damaged there. */
static inline const uint8_t *tok_string(const struct tok *t, uint32_t i, size_t *n)
{
    *n = 0;
    if (i >= t->h->n_strings) return t->bytes;
    uint32_t begin = t->offsets[i], end = t->offsets[i + 1];
    if (begin > end || end > t->n_bytes) return t->bytes;
    *n = end - begin;
    return t->bytes + begin;
}

/* String (token or intermediate) with these bytes, or TOK_NONE. */
uint32_t tok_find_string(const struct tok *t, const uint8_t *p, size_t n);
/* The same, tokens only. */
static inline uint32_t tok_find_token(const struct tok *t, const uint8_t *p, size_t n)
{
    uint32_t i = tok_find_string(t, p, n);
    return i < t->h->n_tokens ? i : TOK_NONE;
}

/* One step down a trie; TOK_NONE when there is no such child. label: byte + 1, or 0 for the leaf.
 */
static inline uint32_t tok_trie_step(const struct tok_trie *trie, uint32_t node, unsigned label)
{
    uint32_t next = trie->units[node].base + label;
    return next < trie->n && trie->units[next].check == node ? next : TOK_NONE;
}
/* Value at a node, or TOK_NONE when no key ends there. */
static inline uint32_t tok_trie_value(const struct tok_trie *trie, uint32_t node)
{
    uint32_t leaf = tok_trie_step(trie, node, 0);
    return leaf == TOK_NONE || leaf == 0 ? TOK_NONE : trie->units[leaf].base;
}

/* A piece that no token covers, byte by byte or as the unknown token. in_unknown: whether the last
 * thing written was the unknown token, which is not repeated; may be NULL. */
void tok_put_fallback(const struct tok *t, const uint8_t *p, size_t n, bool *in_unknown,
                      struct tok_out *out);

/* The models. Text is valid UTF-8, normalised, spaces as spaces. False: the workspace is too small.
 */
bool tok_encode_bpe(const struct tok *t, const uint8_t *p, size_t n, struct tok_work *w,
                    struct tok_out *out);
bool tok_encode_spm(const struct tok *t, const uint8_t *p, size_t n, struct tok_work *w,
                    struct tok_out *out);
bool tok_encode_unigram(const struct tok *t, const uint8_t *p, size_t n, struct tok_work *w,
                        struct tok_out *out);
bool tok_encode_wordpiece(const struct tok *t, const uint8_t *p, size_t n, struct tok_work *w,
                          struct tok_out *out);
bool tok_encode_greedy(const struct tok *t, const uint8_t *p, size_t n, struct tok_work *w,
                       struct tok_out *out);
/* What they take from the workspace for n bytes. */
size_t tok_bpe_work(const struct tok *t, size_t n);
size_t tok_spm_work(const struct tok *t, size_t n);
size_t tok_unigram_work(const struct tok *t, size_t n);
size_t tok_wordpiece_work(const struct tok *t, size_t n);

/* Pre-tokenizer: calls piece for each part of the text, in order. */
typedef bool tok_piece_fn(void *user, const uint8_t *p, size_t n);
bool tok_pre_split(const struct tok *t, const uint8_t *p, size_t n, struct tok_work *w,
                   tok_piece_fn *piece, void *user);
size_t tok_pre_work(const struct tok *t, size_t n);
bool tok_pre_check(const uint8_t *section, size_t n_bytes);

/* Normalizer. The size of the result of one character in any surroundings is at most what the plan
 * says. */
struct tok_norm_size {
    size_t bytes, chars;
};
void tok_norm_plan_char(const struct tok *t, uint32_t c, struct tok_norm_size *size);
/* Nothing in the text is changed by the normalizer; may say false when that is so. */
bool tok_norm_is_identity(const struct tok *t, const uint8_t *p, size_t n);
/* Needs TOK_NORM_WORK(chars) bytes of workspace. False: that or cap is too small. */
bool tok_norm_run(const struct tok *t, const uint8_t *p, size_t n, struct tok_work *w, uint8_t *out,
                  size_t cap, size_t *n_out);
#define TOK_NORM_WORK(chars) (2 * TOK_WORK_ALIGN(4 * (chars)) + 16)
bool tok_norm_check(const uint8_t *section, size_t n_bytes);
/* Flags of a character (enum tok_char_flag), 0 without a normalizer. */
uint8_t tok_norm_flags(const struct tok *t, uint32_t c);
/* SentencePiece's map. The plan: what a match that begins with p becomes at most, at least the
 * character itself. */
size_t tok_charsmap_plan_char(const struct tok *t, const uint8_t *p, size_t n);
bool tok_charsmap_run(const struct tok *t, const uint8_t *p, size_t n, uint8_t *out, size_t cap,
                      size_t *n_out);

#endif
