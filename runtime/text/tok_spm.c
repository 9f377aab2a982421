// SPDX-License-Identifier: Apache-2.0
/*
 * SentencePiece's byte-pair encoding: two neighbours merge when what they make together is in the
 * vocabulary; the highest score first, the leftmost of equals. Characters that stay alone and are
 * in no vocabulary are spelled with byte tokens. n log n with a queue; where the vocabulary allows
 * (TOK_F_SPLIT_SPACES) each word has its own.
 */
#include <string.h>

#include "runtime/text/tok_heap.h"
#include "runtime/text/tok_internal.h"

struct symbol {
    uint32_t begin, len;
    uint32_t prev, next; /* TOK_NONE at the ends */
    uint32_t order;      /* of the merge with the next symbol, or NO_MERGE */
};
#define NO_MERGE 0xffffffffu /* the order of a NaN, which no score is */

struct spm {
    const struct tok *t;
    const uint8_t *p;
    struct symbol *s;
    struct tok_heap heap;
    bool in_unknown;
};

/* Higher scores first: the bits of a float sort like integers once the sign is dealt with. */
static uint32_t order_of(float score)
{
    uint32_t bits;
    memcpy(&bits, &score, 4);
    if (bits == 0x80000000u) bits = 0; /* -0 is 0 */
    return ~(bits & 0x80000000u ? ~bits : bits | 0x80000000u);
}

/* Considers merging symbol i with the next. */
static void offer(struct spm *m, uint32_t i)
{
    struct symbol *s = &m->s[i];
    s->order = NO_MERGE;
    if (s->next == TOK_NONE) return;
    uint32_t id = tok_find_token(m->t, m->p + s->begin, (size_t)s->len + m->s[s->next].len);
    if (id == TOK_NONE) return;
    s->order = order_of(m->t->scores[id]);
    if (s->order != NO_MERGE) tok_heap_push(&m->heap, tok_heap_key(s->order, i));
}

static void merge_all(struct spm *m)
{
    while (m->heap.n > 0) {
        uint64_t key = tok_heap_pop(&m->heap);
        uint32_t at = (uint32_t)key;
        struct symbol *left = &m->s[at];
        if (left->order != key >> 32) continue; /* stale: that pair is no more */
        struct symbol *right = &m->s[left->next];
        left->len += right->len;
        left->next = right->next;
        right->order = NO_MERGE;
        if (left->next != TOK_NONE) m->s[left->next].prev = at;
        offer(m, at);
        if (left->prev != TOK_NONE) offer(m, left->prev);
    }
}

/* The bytes [begin, end) of the text, from which no merge reaches out. */
static void encode_part(struct spm *m, size_t begin, size_t end, struct tok_out *out)
{
    uint32_t count = 0;
    for (size_t i = begin; i < end; count++) {
        unsigned len = utf8_length(m->p[i]);
        m->s[count] = (struct symbol){(uint32_t)i, len, count - 1, count + 1, NO_MERGE};
        i += len;
    }
    m->s[count - 1].next = TOK_NONE;
    for (uint32_t i = 0; i + 1 < count; i++) offer(m, i);
    merge_all(m);
    for (uint32_t i = 0; i != TOK_NONE; i = m->s[i].next) {
        const uint8_t *p = m->p + m->s[i].begin;
        uint32_t id = tok_find_token(m->t, p, m->s[i].len);
        if (id == TOK_NONE) {
            tok_put_fallback(m->t, p, m->s[i].len, &m->in_unknown, out);
        } else {
            tok_put(out, id);
            m->in_unknown = false;
        }
    }
}

bool tok_encode_spm(const struct tok *t, const uint8_t *p, size_t n, struct tok_work *w,
                    struct tok_out *out)
{
    size_t mark = w->n, begin = 0;
    struct spm m = {.t = t, .p = p, .s = tok_work_take(w, n * sizeof m.s[0])};
    /* One key for each pair at first; each merge takes one out and puts at most two in. */
    m.heap.v = tok_work_take(w, 2 * n * sizeof(uint64_t));
    if (m.s == NULL || m.heap.v == NULL) return false;
    bool words = tok_wants(t, TOK_F_SPLIT_SPACES);
    for (size_t i = 1; words && i < n; i++) {
        if (p[i] != ' ' || p[i - 1] == ' ') continue;
        encode_part(&m, begin, i, out);
        begin = i;
    }
    if (begin < n) encode_part(&m, begin, n, out);
    w->n = mark;
    return true;
}

size_t tok_spm_work(const struct tok *t, size_t n)
{
    (void)t;
    return n * (sizeof(struct symbol) + 2 * sizeof(uint64_t)) + 32;
}
