// SPDX-License-Identifier: Apache-2.0
/*
 * Writes the text section of an engine (runtime/abi/text_format.h): the tokenizer and the chat
 * templates compiled, and the few numbers of the model that the runtime needs. An importer fills a
 * description; zeroed fields mean "none" unless said otherwise, and text_section_desc_init sets
 * those whose "none" is not zero:
 *
 *   text_section_desc_init(&d);
 *   tok_desc_init(&d.vocab, ...) and what compiler/tok/tok_build.h asks for
 *   d.templates = ...; d.vocab_rows = ...; ...
 *   text_section_build(arena, &d, sink, "model.gguf", &blob, &n_bytes);
 *
 * Everything in a description may be hostile; problems become diagnostics. A chat template that
 * does not compile is a warning: the engine is built, and its `chat` fails with the template's own
 * message (and so it does where there is no template).
 */
#ifndef INFC_COMPILER_TEXT_SECTION_H
#define INFC_COMPILER_TEXT_SECTION_H

#include "compiler/tok/tok_build.h"
#include "runtime/abi/text_format.h"

struct text_template {
    struct tok_text
        name; /* "default" for GGUF's tokenizer.chat_template, X for tokenizer.chat_template.X */
    struct tok_text source;
};

struct text_section_desc {
    struct tok_vocab_desc vocab;
    size_t n_templates;
    const struct text_template *templates; /* [0] is the default one */
    bool causal;                           /* false: an encoder (BERT class), fed whole */
    bool odds;                             /* scores are log odds */
    int64_t vocab_rows;                    /* columns of the logits; 0: the model gives none */
    int64_t page_tokens;                   /* P of the KV cache; 0: the model has no cache */
    int64_t ctx_train;                     /* 0: unknown */
    int64_t window; /* the largest sliding window, when every layer has one; else 0 */
    enum infr_text_pooling pooling;
    int64_t embedding_dims; /* 0: no embeddings output */
    /* general.sampling.*: NaN (top_k: -1) when the file has none */
    double temp, top_p, min_p, repeat_penalty;
    int64_t top_k;
};

void text_section_desc_init(struct text_section_desc *d);

/* On success *blob lives in the arena, aligned to 16 bytes; the same description gives the same
 * bytes. */
bool text_section_build(struct arena *a, const struct text_section_desc *d, struct diag_sink *sink,
                        const char *loc, const uint8_t **blob, size_t *n_bytes);

#endif
