// SPDX-License-Identifier: Apache-2.0
#include "compiler/tok/token_trie.h"

#include <stdlib.h>
#include <string.h>

#include "compiler/tok/blob.h"
#include "runtime/abi/tok_format.h"
#include "runtime/abi/trie_format.h"

struct token {
    const uint8_t *p;
    uint32_t n, id;
};

static int by_bytes(const void *pa, const void *pb)
{
    const struct token *a = pa, *b = pb;
    uint32_t n = a->n < b->n ? a->n : b->n;
    int c = n > 0 ? memcmp(a->p, b->p, n) : 0;
    if (c != 0) return c;
    if (a->n != b->n) return a->n < b->n ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static const void *section(const uint8_t *blob, const struct tok_header *h, enum tok_section s)
{
    return blob + h->section[s].offset;
}

static size_t take_tokens(const uint8_t *blob, const struct tok_header *h, struct token *out)
{
    const uint32_t *offsets = section(blob, h, TOK_SEC_OFFSETS);
    const uint8_t *bytes = section(blob, h, TOK_SEC_BYTES), *attrs = section(blob, h, TOK_SEC_ATTRS);
    size_t n = 0;
    for (uint32_t i = 0; i < h->n_tokens; i++) {
        unsigned type = attrs[i] & TOK_ATTR_TYPE;
        uint32_t len = offsets[i + 1] - offsets[i];
        bool text = type == TOK_TYPE_NORMAL || type == TOK_TYPE_USER_DEFINED ||
                    type == TOK_TYPE_BYTE || type == TOK_TYPE_UNDEFINED;
        if (text && !(attrs[i] & TOK_ATTR_EOG) && len > 0 && len <= TRIE_MAX_DEPTH)
            out[n++] = (struct token){bytes + offsets[i], len, i};
    }
    qsort(out, n, sizeof out[0], by_bytes);
    return n;
}

struct writer {
    struct arena *arena;
    VEC(struct trie_node) nodes;
    VEC(uint32_t) same;
    uint32_t path[TRIE_MAX_DEPTH + 1]; /* nodes from the first byte on */
    uint32_t depth, max_depth;
};

/* Closes nodes deeper than `depth`: their subtrees are complete. */
static void close_to(struct writer *w, uint32_t depth)
{
    while (w->depth > depth) {
        uint32_t at = w->path[--w->depth];
        w->nodes.v[at].size_byte |= ((uint32_t)w->nodes.n - at) << 8;
    }
}

static void add(struct writer *w, const struct token *v, size_t n, const struct token *before)
{
    uint32_t shared = 0, token = v->id;
    while (before != NULL && shared < before->n && shared < v->n && before->p[shared] == v->p[shared])
        shared++;
    close_to(w, shared);
    for (; w->depth < v->n; w->depth++) {
        w->path[w->depth] = (uint32_t)w->nodes.n;
        vec_push(w->arena, &w->nodes, ((struct trie_node){v->p[w->depth], TRIE_NO_TOKEN}));
    }
    if (w->depth > w->max_depth) w->max_depth = w->depth;
    if (n > 1) {
        token = TRIE_SAME | (uint32_t)w->same.n;
        vec_push(w->arena, &w->same, (uint32_t)n);
        for (size_t i = 0; i < n; i++) vec_push(w->arena, &w->same, v[i].id);
    }
    w->nodes.v[w->path[v->n - 1]].token = token;
}

void token_trie_build(struct arena *a, const uint8_t *blob, const uint8_t **out, size_t *n_bytes)
{
    struct arena scratch;
    struct tok_header h;
    memcpy(&h, blob, sizeof h);
    arena_init(&scratch);
    struct token *tokens = ARENA_ARRAY(&scratch, struct token, h.n_tokens + 1);
    size_t n = take_tokens(blob, &h, tokens);
    struct writer w = {.arena = &scratch};
    for (size_t i = 0, end; i < n; i = end) {
        end = i + 1;
        while (end < n && tokens[end].n == tokens[i].n &&
               memcmp(tokens[end].p, tokens[i].p, tokens[i].n) == 0)
            end++;
        add(&w, &tokens[i], end - i, i > 0 ? &tokens[i - 1] : NULL);
    }
    close_to(&w, 0);
    struct trie_header head = {TRIE_MAGIC,           h.n_tokens,  (uint32_t)w.nodes.n,
                               (uint32_t)w.same.n, w.max_depth, 0};
    size_t nodes = w.nodes.n * sizeof w.nodes.v[0], same = w.same.n * sizeof w.same.v[0];
    uint8_t *p = arena_alloc(a, sizeof head + nodes + same);
    memcpy(p, &head, sizeof head);
    if (nodes > 0) memcpy(p + sizeof head, w.nodes.v, nodes);
    if (same > 0) memcpy(p + sizeof head + nodes, w.same.v, same);
    arena_deinit(&scratch);
    *out = p;
    *n_bytes = sizeof head + nodes + same;
}
