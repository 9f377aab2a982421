// SPDX-License-Identifier: Apache-2.0
#include "runtime/grammar/gr_vocab.h"

#include <stdlib.h>
#include <string.h>

/* Every node's subtree lies inside its parent's, depths and ids are possible. */
static bool is_sound(const struct gr_vocab *v)
{
    uint32_t end[TRIE_MAX_DEPTH + 1], depth = 0;
    for (uint32_t i = 0; i < v->all.n; i++) {
        const struct trie_node *x = &v->all.v[i];
        uint32_t size = trie_size(x), t = x->token;
        while (depth && end[depth - 1] == i) depth--;
        uint32_t limit = depth ? end[depth - 1] : v->all.n;
        if (!size || size > limit - i || depth >= v->h.max_depth) return false;
        end[depth++] = i + size;
        if (t == TRIE_NO_TOKEN) continue;
        if (!(t & TRIE_SAME)) {
            if (t >= v->h.n_tokens) return false;
            continue;
        }
        t &= ~TRIE_SAME;
        if (t >= v->h.n_same || !v->same[t] || v->same[t] > v->h.n_same - t - 1) return false;
        for (uint32_t k = 1; k <= v->same[t]; k++)
            if (v->same[t + k] >= v->h.n_tokens) return false;
    }
    return true;
}

static bool find_large(struct gr_vocab *v)
{
    uint32_t words = v->all.n / 64 + 1;
    v->large = calloc(words, sizeof *v->large);
    v->rank = calloc(words, sizeof *v->rank);
    if (!v->large || !v->rank) return false;
    for (uint32_t i = 0; i < v->all.n; i++) {
        if (i % 64 == 0) v->rank[i / 64] = v->n_large;
        if (trie_size(&v->all.v[i]) < GR_LARGE) continue;
        gr_bit_set(v->large, i);
        v->n_large++;
    }
    return true;
}

/* Where a walk over all nodes is. */
struct place {
    uint32_t node, end, large;
    uint32_t state, chars; /* of the slice; GR_SLICE_OUT: not of it */
    uint32_t whole;        /* characters that have ended */
    uint32_t longest;      /* characters of its tokens down here */
};

static void leave(struct gr_slice_of *s, struct place *p, uint32_t n_tokens)
{
    if (p->longest > p[-1].longest) p[-1].longest = p->longest;
    if (p->large == GR_NONE) return;
    struct gr_below *b = &s->below[p->large];
    b->n_tokens = n_tokens - b->tokens;
    b->chars = p->longest > p->whole ? p->longest - p->whole : 0;
    b->inside = p->state != GR_SLICE_BETWEEN && p->state != GR_SLICE_OUT;
    if (p->state == GR_SLICE_OUT) b->chars = GR_ROOM_MAX + 1;
}

static bool is_token(const struct trie_node *x) { return x->token != TRIE_NO_TOKEN; }

/* Lists the slice's tokens; marks nodes: 1, they lead to others; 2, they are the slice's. Returns
 * how many are in the list. */
static uint32_t find_tokens(struct gr_vocab *v, enum gr_slice which, uint8_t *marks)
{
    struct place path[TRIE_MAX_DEPTH + 2] = {{.end = v->all.n}};
    struct gr_slice_of *s = &v->slice[which];
    uint32_t depth = 0, n = 0;
    for (uint32_t i = 0; i <= v->all.n; i++) {
        while (depth && path[depth].end == i) leave(s, &path[depth--], n);
        if (i == v->all.n) break;
        const struct trie_node *x = &v->all.v[i];
        struct place *p = &path[depth + 1];
        uint8_t c = trie_byte(x);
        *p = path[depth++];
        p->node = i, p->end = i + trie_size(x);
        p->large = gr_large_number(v, i);
        p->chars += (c & 0xc0) != 0x80;
        p->longest = 0;
        enum gr_slice first = depth == 1 && c < 0x80 ? GR_PLAIN : which;
        if (p->state != GR_SLICE_OUT) p->state = gr_slice_next(first, p->state, c);
        if (p->state == GR_SLICE_BETWEEN) p->whole = p->chars;
        bool ours = p->state == GR_SLICE_BETWEEN && p->chars <= GR_ROOM_MAX;
        if (is_token(x) && ours) {
            s->tokens[n++] = x->token;
            p->longest = p->chars;
            marks[i] |= 2;
        }
        /* The node's own token is not below it. */
        if (p->large != GR_NONE) s->below[p->large].tokens = n;
        for (uint32_t k = depth; is_token(x) && !ours && k && !(marks[path[k].node] & 1);)
            marks[path[k--].node] |= 1;
    }
    return n;
}

/* The trie of the other tokens: nodes that lead to them. */
static void make_rest(struct gr_vocab *v, struct gr_slice_of *s, const uint8_t *marks)
{
    struct trie_node *out = s->memory;
    uint32_t n = 0, depth = 0, end[TRIE_MAX_DEPTH + 1], at[TRIE_MAX_DEPTH + 1];
    uint32_t large[TRIE_MAX_DEPTH + 1];
    for (uint32_t i = 0; i <= v->all.n; i++) {
        while (depth && end[depth - 1] == i) {
            depth--;
            out[at[depth]].size_byte |= (n - at[depth]) << 8;
            if (large[depth] != GR_NONE)
                s->below[large[depth]].n_rest = n - s->below[large[depth]].rest;
        }
        if (i == v->all.n) break;
        const struct trie_node *x = &v->all.v[i];
        if (!(marks[i] & 1)) {
            i += trie_size(x) - 1;
            continue;
        }
        uint32_t token = marks[i] & 2 ? TRIE_NO_TOKEN : x->token;
        end[depth] = i + trie_size(x);
        large[depth] = gr_large_number(v, i);
        at[depth] = n;
        out[n++] = (struct trie_node){trie_byte(x), token};
        if (large[depth] != GR_NONE) s->below[large[depth]].rest = n;
        depth++;
    }
    s->rest = (struct gr_nodes){out, n};
}

/* Less memory where most of it is not needed; nothing is lost where that fails. */
static void *shrink(void *p, size_t n)
{
    void *q = realloc(p, n ? n : 1);
    return q ? q : p;
}

static bool derive(struct gr_vocab *v, enum gr_slice which)
{
    struct gr_slice_of *s = &v->slice[which];
    uint8_t *marks = calloc(v->all.n + 1, 1);
    s->tokens = calloc(v->all.n + 1, sizeof *s->tokens);
    s->below = calloc(v->n_large + 1, sizeof *s->below);
    s->memory = calloc(v->all.n + 1, sizeof *s->memory);
    bool ok = marks && s->tokens && s->below && s->memory;
    if (ok) {
        s->tokens = shrink(s->tokens, find_tokens(v, which, marks) * sizeof *s->tokens);
        make_rest(v, s, marks);
        s->rest.v = s->memory = shrink(s->memory, s->rest.n * sizeof *s->memory);
    }
    free(marks);
    return ok;
}

/* By length: the plain tokens once more, now that it is known which they are. */
static bool make_plain(struct gr_vocab *v)
{
    size_t n = (size_t)(GR_ROOM_MAX + 1) * v->n_words;
    struct place path[TRIE_MAX_DEPTH + 2] = {{.end = v->all.n}};
    uint32_t depth = 0;
    if (!(v->plain = calloc(n + 1, sizeof *v->plain))) return false;
    for (uint32_t i = 0; i < v->all.n; i++) {
        const struct trie_node *x = &v->all.v[i];
        while (depth && path[depth].end == i) depth--;
        struct place *p = &path[depth + 1];
        *p = path[depth++];
        p->end = i + trie_size(x);
        p->chars += (trie_byte(x) & 0xc0) != 0x80;
        if (p->state != GR_SLICE_OUT) p->state = gr_slice_next(GR_PLAIN, p->state, trie_byte(x));
        if (p->state == GR_SLICE_BETWEEN && p->chars <= GR_ROOM_MAX)
            gr_set_tokens(v, x->token, v->plain + (size_t)p->chars * v->n_words);
    }
    for (size_t i = v->n_words; i < n; i++) v->plain[i] |= v->plain[i - v->n_words];
    return true;
}

struct gr_vocab *gr_vocab_create(const void *trie, size_t n_bytes)
{
    struct gr_vocab *v = calloc(1, sizeof *v);
    if (!v) return NULL;
    bool ok = n_bytes >= sizeof v->h;
    if (ok) memcpy(&v->h, trie, sizeof v->h);
    size_t nodes = (size_t)v->h.n_nodes * sizeof(struct trie_node), same = 4 * (size_t)v->h.n_same;
    ok = ok && v->h.magic == TRIE_MAGIC && v->h.max_depth <= TRIE_MAX_DEPTH &&
         v->h.n_nodes < 1u << 24 && v->h.n_tokens < 1u << 30 &&
         n_bytes - sizeof v->h >= nodes && n_bytes - sizeof v->h - nodes >= same;
    if (ok) {
        const uint8_t *p = trie;
        v->all.v = (const struct trie_node *)(const void *)(p + sizeof v->h);
        v->all.n = v->h.n_nodes;
        v->same = (const uint32_t *)(const void *)(p + sizeof v->h + nodes);
        v->n_words = (v->h.n_tokens + 63) / 64;
        ok = is_sound(v) && find_large(v) && make_plain(v);
    }
    for (int i = 0; i < GR_SLICES && ok; i++) ok = derive(v, (enum gr_slice)i);
    if (ok) return v;
    gr_vocab_destroy(v);
    return NULL;
}

void gr_vocab_destroy(struct gr_vocab *v)
{
    if (!v) return;
    for (int i = 0; i < GR_SLICES; i++) {
        free(v->slice[i].tokens);
        free(v->slice[i].below);
        free(v->slice[i].memory);
    }
    free(v->large);
    free(v->plain);
    free(v->rank);
    free(v);
}

uint32_t gr_vocab_tokens(const struct gr_vocab *v) { return v->h.n_tokens; }

bool gr_vocab_extends(const struct gr_vocab *v, const char *text, size_t n)
{
    uint32_t i = 0, end = v->all.n;
    for (size_t k = 0; k < n; k++) {
        while (i < end && trie_byte(&v->all.v[i]) != (uint8_t)text[k]) i += trie_size(&v->all.v[i]);
        if (i == end) return false;
        end = i + trie_size(&v->all.v[i]);
        i++;
    }
    return i < end; /* every node leads to a token */
}
