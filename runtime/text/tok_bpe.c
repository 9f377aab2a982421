// SPDX-License-Identifier: Apache-2.0
/*
 * Byte-pair encoding by merge rank: the lowest rank first, the leftmost of equals.
 *
 * A short piece (nearly all are) keeps the rank of each neighbouring pair and merges the lowest
 * again and again. A long one uses a heap of (rank, position); an entry that no longer describes
 * the pair at its position is skipped when it comes up. n log n; the two give the same result.
 */
#include <string.h>

#include "runtime/text/tok_heap.h"
#include "runtime/text/tok_internal.h"

#define SHORT_PIECE 32u

struct symbol {
    uint32_t id;         /* string, or TOK_NONE */
    uint32_t begin;      /* in the piece */
    uint32_t prev, next; /* TOK_NONE at the ends */
    uint32_t merge;      /* slot of the merge with the next symbol, or TOK_NONE */
};

struct bpe {
    const struct tok *t;
    struct tok_work *work;
    struct tok_out *out;
};

static const struct tok_merge *find_merge(const struct tok *t, uint32_t left, uint32_t right)
{
    if (left == TOK_NONE || right == TOK_NONE) return NULL;
    uint32_t at = (uint32_t)((uint64_t)tok_hash_pair(left, right) * t->n_merges >> 32);
    for (uint32_t steps = 0; steps < t->n_merges; steps++) {
        const struct tok_merge *m = &t->merges[at];
        if (m->left == TOK_NONE) return NULL;
        if (m->left == left && m->right == right) return m;
        if (++at == t->n_merges) at = 0;
    }
    return NULL;
}

/* A finished symbol: its token, or what spells it. */
static void put_symbol(struct bpe *b, uint32_t id, const uint8_t *p, size_t n)
{
    if (id < b->t->h->n_tokens)
        tok_put(b->out, id);
    else
        tok_put_fallback(b->t, p, n, NULL, b->out);
}

/* The symbol that a piece begins with, and its length. */
static uint32_t first_symbol(const struct tok *t, const uint8_t *p, unsigned *len)
{
    if (t->h->flags & TOK_F_CHARS) {
        *len = utf8_length(p[0]);
        return tok_find_string(t, p, *len);
    }
    *len = 1;
    return t->byte_ids[p[0]];
}

static void encode_short(struct bpe *b, const uint8_t *p, size_t n)
{
    uint32_t id[SHORT_PIECE], begin[SHORT_PIECE + 1];
    const struct tok_merge *merge[SHORT_PIECE]; /* of symbol i with the next */
    unsigned count = 0, len;
    for (size_t i = 0; i < n; i += len) {
        begin[count] = (uint32_t)i;
        id[count++] = first_symbol(b->t, p + i, &len);
    }
    begin[count] = (uint32_t)n;
    for (unsigned i = 0; i + 1 < count; i++) merge[i] = find_merge(b->t, id[i], id[i + 1]);
    for (;;) {
        unsigned best = SHORT_PIECE;
        for (unsigned i = 0; i + 1 < count; i++)
            if (merge[i] != NULL && (best == SHORT_PIECE || merge[i]->rank < merge[best]->rank))
                best = i;
        if (best == SHORT_PIECE) break;
        id[best] = merge[best]->result;
        count--;
        for (unsigned i = best + 1; i < count; i++) {
            id[i] = id[i + 1];
            begin[i] = begin[i + 1];
            merge[i] = i + 1 < count ? merge[i + 1] : NULL;
        }
        begin[count] = (uint32_t)n;
        merge[best] = best + 1 < count ? find_merge(b->t, id[best], id[best + 1]) : NULL;
        if (best > 0) merge[best - 1] = find_merge(b->t, id[best - 1], id[best]);
    }
    for (unsigned i = 0; i < count; i++)
        put_symbol(b, id[i], p + begin[i], begin[i + 1] - begin[i]);
}

/* Finds the merge of symbol i with the next and queues it. */
static void offer(const struct tok *t, struct symbol *s, uint32_t i, struct tok_heap *heap)
{
    const struct tok_merge *m =
        s[i].next != TOK_NONE ? find_merge(t, s[i].id, s[s[i].next].id) : NULL;
    s[i].merge = m != NULL ? (uint32_t)(m - t->merges) : TOK_NONE;
    if (m != NULL) tok_heap_push(heap, tok_heap_key(m->rank, i));
}

static bool encode_long(struct bpe *b, const uint8_t *p, size_t n)
{
    const struct tok *t = b->t;
    size_t mark = b->work->n;
    struct symbol *s = tok_work_take(b->work, n * sizeof *s);
    /* One key for each pair at first; each merge takes one out and puts at most two in. */
    struct tok_heap heap = {tok_work_take(b->work, 2 * n * sizeof(uint64_t)), 0};
    if (s == NULL || heap.v == NULL) return false;
    uint32_t count = 0;
    unsigned len;
    for (size_t i = 0; i < n; i += len, count++)
        s[count] = (struct symbol){first_symbol(t, p + i, &len), (uint32_t)i, count - 1, count + 1,
                                   TOK_NONE};
    s[count - 1].next = TOK_NONE; /* s[0].prev is 0 - 1, TOK_NONE as well */
    for (uint32_t i = 0; i + 1 < count; i++) offer(t, s, i, &heap);
    while (heap.n > 0) {
        uint64_t key = tok_heap_pop(&heap);
        uint32_t at = (uint32_t)key;
        struct symbol *left = &s[at];
        if (left->merge == TOK_NONE || t->merges[left->merge].rank != key >> 32)
            continue; /* stale */
        struct symbol *right = &s[left->next];
        left->id = t->merges[left->merge].result;
        left->next = right->next;
        right->merge = TOK_NONE;
        if (left->next != TOK_NONE) s[left->next].prev = at;
        offer(t, s, at, &heap);
        if (left->prev != TOK_NONE) offer(t, s, left->prev, &heap);
    }
    for (uint32_t i = 0; i != TOK_NONE; i = s[i].next) {
        size_t end = s[i].next != TOK_NONE ? s[s[i].next].begin : n;
        put_symbol(b, s[i].id, p + s[i].begin, end - s[i].begin);
    }
    b->work->n = mark;
    return true;
}

static bool only_line_feeds(const uint8_t *p, size_t n)
{
    size_t i = 0;
    while (i < n && p[i] == '\n') i++;
    return i == n;
}

static bool encode_piece(void *user, const uint8_t *p, size_t n)
{
    struct bpe *b = user;
    uint32_t flags = b->t->h->flags;
    if ((flags & TOK_F_IGNORE_MERGES) || ((flags & TOK_F_NEWLINE_WHOLE) && only_line_feeds(p, n))) {
        uint32_t id = tok_find_token(b->t, p, n);
        if (id != TOK_NONE) {
            tok_put(b->out, id);
            return true;
        }
    }
    if (n > SHORT_PIECE) return encode_long(b, p, n);
    encode_short(b, p, n);
    return true;
}

bool tok_encode_bpe(const struct tok *t, const uint8_t *p, size_t n, struct tok_work *w,
                    struct tok_out *out)
{
    struct bpe b = {t, w, out};
    return tok_pre_split(t, p, n, w, encode_piece, &b);
}

size_t tok_bpe_work(const struct tok *t, size_t n)
{
    return tok_pre_work(t, n) + n * (sizeof(struct symbol) + 2 * sizeof(uint64_t)) + 32;
}
