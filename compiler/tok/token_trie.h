// SPDX-License-Identifier: Apache-2.0
/* Writes the trie of a compiled tokenizer's tokens (runtime/abi/trie_format.h). */
#ifndef INFC_COMPILER_TOK_TOKEN_TRIE_H
#define INFC_COMPILER_TOK_TOKEN_TRIE_H

#include <stddef.h>
#include <stdint.h>

#include "ir/support/arena.h"

/* blob: what tok_build made. The trie lives in the arena, 8-byte aligned; the same tokenizer gives
 * the same bytes. */
void token_trie_build(struct arena *a, const uint8_t *blob, const uint8_t **out, size_t *n_bytes);

#endif
