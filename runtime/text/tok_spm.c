// SPDX-License-Identifier: Apache-2.0
/*
 * SentencePiece's byte-pair encoding: two neighbours merge when what they make together is in the
 * vocabulary; the highest score first, the leftmost of equals. Characters that stay alone and are
 * in no vocabulary are spelled with byte tokens. A heap of (score, position) whose stale entries
 * are recognised by the length they were made for; n log n.
 */
#include "runtime/text/tok_internal.h"

struct symbol {
    uint32_t begin, len; /* len 0: merged into the one before */
    uint32_t prev, next; /* TOK_NONE at the ends */
};

struct heap_entry {
    float score;
    uint32_t at, len; /* len: of the result */
};

struct spm {
    const struct tok *t;
    const uint8_t *p;
    struct symbol *s;
    struct heap_entry *heap;
    size_t heap_n;
};

static bool before(struct heap_entry a, struct heap_entry b)
{
    return a.score != b.score ? a.score > b.score : a.at < b.at;
}

static void heap_push(struct spm *m, struct heap_entry e)
{
    size_t i = m->heap_n++;
    while (i > 0 && before(e, m->heap[(i - 1) / 2])) {
        m->heap[i] = m->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    m->heap[i] = e;
}

static struct heap_entry heap_pop(struct spm *m)
{
    struct heap_entry top = m->heap[0], e = m->heap[--m->heap_n];
    size_t i = 0;
    for (;;) {
        size_t kid = 2 * i + 1;
        if (kid >= m->heap_n) break;
        if (kid + 1 < m->heap_n && before(m->heap[kid + 1], m->heap[kid])) kid++;
        if (!before(m->heap[kid], e)) break;
        m->heap[i] = m->heap[kid];
        i = kid;
    }
    m->heap[i] = e;
    return top;
}

/* Considers merging symbol left with the next. */
static void offer(struct spm *m, uint32_t left)
{
    if (left == TOK_NONE || m->s[left].next == TOK_NONE) return;
    uint32_t len = m->s[left].len + m->s[m->s[left].next].len;
    uint32_t id = tok_find_token(m->t, m->p + m->s[left].begin, len);
    if (id != TOK_NONE) heap_push(m, (struct heap_entry){m->t->scores[id], left, len});
}

bool tok_encode_spm(const struct tok *t, const uint8_t *p, size_t n, struct tok_work *w,
                    struct tok_out *out)
{
    if (n == 0) return true;
    size_t mark = w->n;
    struct spm m = {.t = t, .p = p};
    m.s = tok_work_take(w, n * sizeof m.s[0]);
    m.heap = tok_work_take(w, 2 * n * sizeof m.heap[0]);
    if (m.s == NULL || m.heap == NULL) return false;
    uint32_t count = 0;
    for (size_t i = 0; i < n; count++) {
        unsigned len = utf8_length(p[i]);
        m.s[count] = (struct symbol){(uint32_t)i, len, count - 1, count + 1};
        i += len;
    }
    m.s[count - 1].next = TOK_NONE;
    for (uint32_t i = 0; i + 1 < count; i++) offer(&m, i);
    while (m.heap_n > 0) {
        struct heap_entry e = heap_pop(&m);
        struct symbol *left = &m.s[e.at];
        if (left->len == 0 || left->next == TOK_NONE) continue;
        struct symbol *right = &m.s[left->next];
        if (left->len + right->len != e.len) continue;
        left->len = e.len;
        left->next = right->next;
        right->len = 0;
        if (left->next != TOK_NONE) m.s[left->next].prev = e.at;
        offer(&m, e.at);
        offer(&m, left->prev);
    }
    bool in_unknown = false;
    for (uint32_t i = 0; i != TOK_NONE; i = m.s[i].next) {
        uint32_t id = tok_find_token(t, p + m.s[i].begin, m.s[i].len);
        if (id == TOK_NONE) {
            tok_put_fallback(t, p + m.s[i].begin, m.s[i].len, &in_unknown, out);
            continue;
        }
        tok_put(out, id);
        in_unknown = false;
    }
    w->n = mark;
    return true;
}

size_t tok_spm_work(const struct tok *t, size_t n)
{
    (void)t;
    return n * (sizeof(struct symbol) + 2 * sizeof(struct heap_entry)) + 32;
}
