// SPDX-License-Identifier: Apache-2.0
/*
 * Pre-tokenizer: the compiled patterns, one after the other, each splitting the pieces of the one
 * before.
 *
 * Linear time: a match is found in one pass of a DFA. Where a pattern could read far without
 * finding anything, the compiler has added a filter, a DFA that runs once backwards over the piece
 * and marks where a match can begin; long lookaheads are marked in the same way beforehand.
 */
#include <string.h>

#include "runtime/text/tok_internal.h"

#define STAGE1_COUNT 0x1100u
#define FILTER_BIT (1u << TOK_MAX_LOOKS)
#define NEVER ((size_t)-1)

/* ---- checking
 * ------------------------------------------------------------------------------------ */

static bool table_fits(uint32_t at, uint64_t count, uint32_t elem, size_t n_bytes)
{
    return at % 8 == 0 && at <= n_bytes && count <= (n_bytes - at) / elem;
}

static bool dfa_fits(const uint8_t *s, size_t n_bytes, const struct tok_dfa *d, uint32_t n_classes,
                     uint32_t n_cols)
{
    if (d->n_states == 0) return true;
    if (d->n_states >= TOK_DFA_MATCH || d->n_cols != n_cols) return false;
    if (!table_fits(d->trans, (uint64_t)d->n_states * n_cols, 2, n_bytes)) return false;
    if (!table_fits(d->start, (uint64_t)n_classes + 1, 2, n_bytes)) return false;
    const uint16_t *trans = (const uint16_t *)(const void *)(s + d->trans);
    const uint16_t *start = (const uint16_t *)(const void *)(s + d->start);
    for (size_t i = 0; i < (size_t)d->n_states * n_cols; i++)
        if ((trans[i] & ~TOK_DFA_MATCH) >= d->n_states) return false;
    for (uint32_t i = 0; i <= n_classes; i++)
        if (start[i] >= d->n_states) return false;
    return true;
}

bool tok_pre_check(const uint8_t *s, size_t n_bytes)
{
    const struct tok_pre_header *h = (const void *)s;
    if (n_bytes < sizeof *h || h->n_classes == 0 || h->n_classes > 255 ||
        h->n_passes > TOK_MAX_PASSES)
        return false;
    if (!table_fits(h->stage1, STAGE1_COUNT, 2, n_bytes)) return false;
    if (!table_fits(h->stage2, (uint64_t)h->n_blocks * 256, 1, n_bytes)) return false;
    const uint16_t *stage1 = (const uint16_t *)(const void *)(s + h->stage1);
    for (uint32_t i = 0; i < STAGE1_COUNT; i++)
        if (stage1[i] >= h->n_blocks) return false;
    for (size_t i = 0; i < (size_t)h->n_blocks * 256; i++)
        if (s[h->stage2 + i] >= h->n_classes) return false;
    for (uint32_t i = 0; i < h->n_passes; i++) {
        const struct tok_pass *p = &h->pass[i];
        if (p->n_looks > TOK_MAX_LOOKS || p->match.n_states == 0) return false;
        uint32_t cols = h->n_classes + 1, wide = cols << p->n_looks;
        if (!dfa_fits(s, n_bytes, &p->match, h->n_classes, wide)) return false;
        if (!dfa_fits(s, n_bytes, &p->filter, h->n_classes, wide)) return false;
        for (uint32_t k = 0; k < p->n_looks; k++)
            if (p->look[k].n_states == 0 || !dfa_fits(s, n_bytes, &p->look[k], h->n_classes, cols))
                return false;
    }
    return true;
}

/* ---- splitting
 * ------------------------------------------------------------------------------------ */

struct splitter {
    const uint8_t *section;
    const struct tok_pre_header *h;
    const uint16_t *stage1;
    const uint8_t *stage2;
    bool keep_matches;
    struct tok_work *work;
    tok_piece_fn *piece;
    void *user;
};

static uint32_t class_at(const struct splitter *s, const uint8_t *p)
{
    uint32_t c = utf8_get(p);
    return s->stage2[(uint32_t)s->stage1[c >> 8] << 8 | (c & 255)];
}

static const uint16_t *table(const struct splitter *s, uint32_t at)
{
    return (const uint16_t *)(const void *)(s->section + at);
}

/* Runs a DFA backwards over the piece; sets `bit` at each position where it holds. */
static void mark_backwards(const struct splitter *s, const struct tok_dfa *d, const uint8_t *p,
                           size_t n, uint32_t look_bits, uint8_t bit, uint8_t *marks)
{
    const uint16_t *trans = table(s, d->trans);
    uint32_t edge = s->h->n_classes, state = table(s, d->start)[edge], mask = (1u << look_bits) - 1;
    for (size_t pos = n;;) {
        size_t before = pos;
        while (before > 0 && (p[--before] & 0xc0) == 0x80) {}
        uint32_t col =
            (pos > 0 ? class_at(s, p + before) : edge) << look_bits | (marks[pos] & mask);
        uint16_t t = trans[(size_t)state * d->n_cols + col];
        if (t & TOK_DFA_MATCH) marks[pos] |= bit;
        if (pos == 0) return;
        state = t & ~TOK_DFA_MATCH;
        pos = before;
    }
}

/* End of the match that begins at pos, or NEVER. prev: class of the character before. */
static size_t match_end(const struct splitter *s, const struct tok_pass *pass, const uint8_t *p,
                        size_t n, size_t pos, uint32_t prev, const uint8_t *marks)
{
    const uint16_t *trans = table(s, pass->match.trans);
    uint32_t state = table(s, pass->match.start)[prev], looks = pass->n_looks,
             mask = (1u << looks) - 1;
    size_t end = NEVER;
    while (state != 0) {
        uint32_t col = pos < n ? class_at(s, p + pos) : s->h->n_classes;
        if (looks > 0) col = col << looks | (marks[pos] & mask);
        uint16_t t = trans[(size_t)state * pass->match.n_cols + col];
        if (t & TOK_DFA_MATCH) end = pos;
        if (pos >= n) break;
        state = t & ~TOK_DFA_MATCH;
        pos += utf8_length(p[pos]);
    }
    return end;
}

static bool needs_marks(const struct tok_pass *p)
{
    return p->n_looks > 0 || p->filter.n_states > 0;
}

static bool split(const struct splitter *s, uint32_t level, const uint8_t *p, size_t n);

static bool split_with(const struct splitter *s, uint32_t level, const uint8_t *p, size_t n,
                       const uint8_t *marks)
{
    const struct tok_pass *pass = &s->h->pass[level];
    bool filtered = pass->filter.n_states > 0;
    uint32_t prev = s->h->n_classes;
    size_t pos = 0, gap = 0;
    while (pos < n) {
        size_t end = filtered && !(marks[pos] & FILTER_BIT)
                         ? NEVER
                         : match_end(s, pass, p, n, pos, prev, marks);
        if (end == NEVER || end == pos) { /* an empty match still divides */
            if (end == pos && pos > gap) {
                if (!s->keep_matches && !split(s, level + 1, p + gap, pos - gap)) return false;
                gap = pos;
            }
            prev = class_at(s, p + pos);
            pos += utf8_length(p[pos]);
            continue;
        }
        if (pos > gap && !s->keep_matches && !split(s, level + 1, p + gap, pos - gap)) return false;
        if (!split(s, level + 1, p + pos, end - pos)) return false;
        size_t last = end - 1;
        while ((p[last] & 0xc0) == 0x80) last--;
        prev = class_at(s, p + last);
        pos = gap = end;
    }
    return gap == n || s->keep_matches || split(s, level + 1, p + gap, n - gap);
}

/* Recursion is as deep as there are passes. */
static bool split(const struct splitter *s, uint32_t level, const uint8_t *p, size_t n)
{
    if (level == s->h->n_passes) return s->piece(s->user, p, n);
    const struct tok_pass *pass = &s->h->pass[level];
    size_t mark = s->work->n;
    uint8_t *marks = NULL;
    if (needs_marks(pass)) {
        marks = tok_work_take(s->work, n + 1);
        if (marks == NULL) return false;
        memset(marks, 0, n + 1);
        for (uint32_t k = 0; k < pass->n_looks; k++)
            mark_backwards(s, &pass->look[k], p, n, 0, (uint8_t)(1u << k), marks);
        if (pass->filter.n_states > 0)
            mark_backwards(s, &pass->filter, p, n, pass->n_looks, FILTER_BIT, marks);
    }
    bool good = split_with(s, level, p, n, marks);
    s->work->n = mark;
    return good;
}

bool tok_pre_split(const struct tok *t, const uint8_t *p, size_t n, struct tok_work *w,
                   tok_piece_fn *piece, void *user)
{
    if (n == 0) return true;
    if (t->pre == NULL) return piece(user, p, n);
    struct splitter s = {
        .section = t->pre, .h = (const void *)t->pre, .work = w, .piece = piece, .user = user};
    s.stage1 = table(&s, s.h->stage1);
    s.stage2 = t->pre + s.h->stage2;
    s.keep_matches = (t->h->flags & TOK_F_KEEP_MATCHES) != 0;
    return split(&s, 0, p, n);
}

size_t tok_pre_work(const struct tok *t, size_t n)
{
    size_t bytes = 0;
    const struct tok_pre_header *h = (const void *)t->pre;
    for (uint32_t i = 0; h != NULL && i < h->n_passes; i++)
        if (needs_marks(&h->pass[i])) bytes += TOK_WORK_ALIGN(n + 1);
    return bytes;
}
