// SPDX-License-Identifier: Apache-2.0
/*
 * The vocabulary as a trie of bytes, for masks of tokens (runtime/grammar). The compiler writes it
 * into the text section (compiler/tok/token_trie.h). Little endian, 8-byte aligned:
 *
 *   struct trie_header | struct trie_node[n_nodes] | u32[n_same]
 *
 * Nodes stand in preorder, children in order of their bytes; the root, the empty text, has none.
 * So skipping `size` nodes skips a subtree, and one pass over the array is a walk over all tokens.
 * Tokens without text and those that are no text (control, unknown, unused) are not in it.
 */
#ifndef INFC_RUNTIME_ABI_TRIE_FORMAT_H
#define INFC_RUNTIME_ABI_TRIE_FORMAT_H

#include <stdint.h>

#define TRIE_MAGIC 0x49525449u /* "ITRI" */
#define TRIE_MAX_DEPTH 255u    /* longer tokens are left out: a mask never allows them */

struct trie_header {
    uint32_t magic;
    uint32_t n_tokens; /* of the vocabulary: ids are below */
    uint32_t n_nodes, n_same;
    uint32_t max_depth; /* bytes of the longest token */
    uint32_t pad;
};

struct trie_node {
    uint32_t size_byte; /* nodes of the subtree, itself included << 8 | byte */
    uint32_t token;     /* TRIE_NO_TOKEN, an id, or TRIE_SAME | place in the list of same ones */
};

#define TRIE_NO_TOKEN 0xffffffffu
/* Several tokens stand for the same text: at the place, how many, then their ids. */
#define TRIE_SAME 0x80000000u

static inline uint32_t trie_size(const struct trie_node *n) { return n->size_byte >> 8; }
static inline uint8_t trie_byte(const struct trie_node *n) { return (uint8_t)n->size_byte; }

#endif
