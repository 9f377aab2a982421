// SPDX-License-Identifier: Apache-2.0
/* Writers of the compiled tokenizer's sections (runtime/abi/tok_format.h); internal to
 * compiler/tok. */
#ifndef INFC_COMPILER_TOK_BLOB_H
#define INFC_COMPILER_TOK_BLOB_H

#include "compiler/tok/regex.h"
#include "compiler/tok/tok_build.h"

/* Growing bytes of one section; offsets inside it are stable. */
struct tok_bytes {
    uint8_t *v;
    size_t n, cap;
};
/* Appends n bytes (zeros when src is NULL) at the next multiple of align; returns where. */
uint32_t tok_bytes_add(struct arena *a, struct tok_bytes *b, const void *src, size_t n,
                       size_t align);

struct trie_key {
    const uint8_t *p;
    uint32_t len, value;
};
/* Double array of the keys, which it sorts; of equal keys the first given wins. Empty keys are left
 * out. */
void tok_trie_build(struct arena *a, struct trie_key *keys, size_t n, struct tok_bytes *out);

/* Patterns of the tokenizer into TOK_SEC_PRE. */
bool tok_pre_build(struct rx *rx, const char *const *patterns, size_t n, struct tok_bytes *out);

/* What a normalizer does, into TOK_SEC_NORM. */
struct tok_norm_plan {
    bool decompose, compat, compose; /* NFC: decompose, compose; NFKD: decompose, compat */
    bool clean, isolate_han, strip_marks, lower, punct;
};
void tok_norm_build(struct arena *a, const struct tok_norm_plan *plan, struct tok_bytes *out);

/* SentencePiece's precompiled_charsmap into TOK_SEC_CHARSMAP; *error is set when it is damaged. */
bool tok_charsmap_build(struct arena *a, const uint8_t *p, size_t n, struct tok_bytes *out,
                        const char **error);

#endif
