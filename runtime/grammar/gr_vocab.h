// SPDX-License-Identifier: Apache-2.0
/*
 * A vocabulary's trie, and what is derived from it for each slice (gr_slice.h):
 *
 * - for each node of the whole trie with a large subtree: the slice's tokens below it as a list,
 *   how many characters they have at most, and where the other tokens below it are;
 * - a trie of those others;
 * - of plain tokens, for each length the set of those of at most so many characters.
 *
 * A token whose first character is another plain one of ASCII counts as the slice's: of ` word` all
 * but the root's list is about `word`. The root has no list.
 */
#ifndef INFC_RUNTIME_GRAMMAR_VOCAB_H
#define INFC_RUNTIME_GRAMMAR_VOCAB_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/abi/trie_format.h"
#include "runtime/grammar/gr_internal.h"
#include "runtime/grammar/gr_slice.h"

/* Nodes of smaller subtrees are walked. */
enum { GR_LARGE = 12 };

struct gr_nodes {
    const struct trie_node *v;
    uint32_t n;
};

/* Below a large node, without itself. */
struct gr_below {
    uint32_t tokens, n_tokens; /* in slice_of.tokens */
    uint32_t rest, n_rest;     /* in slice_of.rest */
    uint32_t chars;            /* of the longest, behind the last whole character up to the node;
                                  more than GR_ROOM_MAX: ask the node's children */
    bool inside;               /* the node ends inside a character */
};

struct gr_vocab {
    struct trie_header h;
    struct gr_nodes all;
    const uint32_t *same;
    uint32_t n_words; /* of a set of tokens */
    uint64_t *large;  /* bits of all.v */
    uint32_t *rank;   /* large nodes before each word of bits */
    uint32_t n_large;
    uint64_t *plain; /* [GR_ROOM_MAX + 1][n_words] */
    struct gr_slice_of {
        uint32_t *tokens; /* as nodes have them */
        struct gr_below *below; /* [n_large] */
        struct gr_nodes rest;
        struct trie_node *memory;
    } slice[GR_SLICES];
};

/* The number of node i among the large ones, or GR_NONE. */
static inline uint32_t gr_large_number(const struct gr_vocab *v, uint32_t i)
{
    uint64_t bits = v->large[i / 64], bit = UINT64_C(1) << i % 64;
    if (!(bits & bit)) return GR_NONE;
    bits &= bit - 1;
    bits -= bits >> 1 & 0x5555555555555555u;
    bits = (bits & 0x3333333333333333u) + (bits >> 2 & 0x3333333333333333u);
    bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0fu;
    return v->rank[i / 64] + (uint32_t)(bits * 0x0101010101010101u >> 56);
}

static inline void gr_set_tokens(const struct gr_vocab *v, uint32_t token, uint64_t *bits)
{
    if (token == TRIE_NO_TOKEN) return;
    if (!(token & TRIE_SAME)) {
        gr_bit_set(bits, token);
        return;
    }
    const uint32_t *same = v->same + (token & ~TRIE_SAME);
    for (uint32_t k = 1; k <= same[0]; k++) gr_bit_set(bits, same[k]);
}

#endif
