// SPDX-License-Identifier: Apache-2.0
/*
 * Compiles a vocabulary into the block of runtime/abi/tok_format.h, so that an engine starts
 * tokenizing without parsing or building anything. An importer fills a description in four steps:
 *
 *   tok_desc_init(&d, model, pre)           defaults that go with the file's tokenizer names
 *   tok_desc_key(&d, key, value)            each scalar metadata key (others are ignored)
 *   d.tokens = ... d.merges = ... d.scores  arrays, which stay the importer's
 *   tok_build(arena, &d, sink, loc, &blob, &n_bytes)
 *
 * Everything in a description may be hostile: problems become diagnostics, never crashes, and
 * memory is bounded by a constant times the size of the description.
 */
#ifndef INFC_COMPILER_TOK_BUILD_H
#define INFC_COMPILER_TOK_BUILD_H

#include "ir/support/arena.h"
#include "ir/support/diag.h"
#include "runtime/abi/tok_format.h"

struct tok_text {
    const char *p; /* not terminated */
    size_t n;
};

enum tok_normalizer {
    TOK_NORMALIZER_NONE,
    TOK_NORMALIZER_NFC,
    TOK_NORMALIZER_NFD,
    TOK_NORMALIZER_NFKC,
    TOK_NORMALIZER_NFKD,
    TOK_NORMALIZER_BERT, /* clean up, isolate Han; strip accents and lower-case as the fields say */
    TOK_NORMALIZER_LOWER,
};

enum tok_byte_form {
    TOK_BYTES_NONE,
    TOK_BYTES_GPT2, /* a token's characters stand for bytes as GPT-2 writes them */
    TOK_BYTES_RWKV, /* backslash escapes */
};

struct tok_vocab_desc {
    enum tok_model model;
    uint32_t flags; /* enum tok_flag */
    enum tok_normalizer normalizer;
    bool lower, strip_accents;
    enum tok_byte_form byte_form;

    size_t n_tokens;
    const struct tok_text *tokens;
    const float *scores;  /* NULL: all 0 */
    const int32_t *types; /* enum tok_type; NULL: all normal */
    size_t n_merges;
    const struct tok_text *merges; /* "left right"; the first space after the first byte divides */

    const char *const
        *patterns;           /* pre-tokenizer, applied one after the other; set by tok_desc_init, */
    size_t n_patterns;       /* may be replaced */
    const uint8_t *charsmap; /* SentencePiece's precompiled_charsmap, or NULL */
    size_t charsmap_bytes;

    uint32_t special[TOK_SPECIAL_COUNT]; /* TOK_NONE where the model has none */
    uint32_t given;                      /* bit set of those that the file names */
    uint32_t max_word_chars;             /* WordPiece; 0: no limit */
    const char *pre; /* as given to tok_desc_init; decides attributes of a few models */
    const char *model_name, *architecture; /* likewise; NULL when unknown */
};

/* Defaults for GGUF's tokenizer.ggml.model and tokenizer.ggml.pre (NULL or "" when the file has
 * none). False, with a diagnostic, for a model or pre-tokenizer that is not supported. */
bool tok_desc_init(struct tok_vocab_desc *d, const char *model, const char *pre,
                   struct diag_sink *sink, const char *loc);

/* A scalar `tokenizer.ggml.*` key; true when it was one of the tokenizer's. An id outside the
 * vocabulary is reported by tok_build. */
bool tok_desc_key(struct tok_vocab_desc *d, const char *key, uint64_t value);

/* The names that tok_desc_init accepts as pre-tokenizers, not terminated; NULL past the end. */
const char *tok_pre_name(size_t i, size_t *len);

/* On success *blob lives in the arena, aligned to 16 bytes; the same description gives the same
 * bytes. */
bool tok_build(struct arena *a, const struct tok_vocab_desc *d, struct diag_sink *sink,
               const char *loc, const uint8_t **blob, size_t *n_bytes);

#endif
