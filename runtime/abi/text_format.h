// SPDX-License-Identifier: Apache-2.0
/*
 * The text section of a language model's engine: tokenizer, chat templates, and what the runtime
 * must know of the model to feed it. The compiler writes it (compiler/text_section.h) into the
 * plan's blob; infr_header says where. Little endian; every reference is an offset from the
 * section's start, which is 64-byte aligned.
 *
 *   struct infr_text_header | rows of templates | tokenizer block | trie | compiled templates and strings,
 * each 8-byte aligned
 *
 * A later minor version appends fields; header_bytes tells what the writer knew. Readers check
 * every span before they use it.
 */
#ifndef INFC_RUNTIME_ABI_TEXT_FORMAT_H
#define INFC_RUNTIME_ABI_TEXT_FORMAT_H

#include <stdint.h>

#define INFR_TEXT_MAGIC 0x54585449u /* "ITXT" */
#define INFR_TEXT_VERSION_MAJOR 1
#define INFR_TEXT_VERSION_MINOR 1
#define INFR_TEXT_MAX_TEMPLATES 64u

struct infr_text_span {
    uint32_t offset, bytes; /* bytes 0: there is none */
};

struct infr_text_template {
    struct infr_text_span name;   /* "default", "tool_use", ... */
    struct infr_text_span source; /* Jinja as the model file has it */
    struct infr_text_span code;   /* compiled (runtime/text/jinja.h) */
    struct infr_text_span error;  /* why there is no code */
};

enum infr_text_flag {
    INFR_TEXT_CAUSAL =
        1u << 0, /* a token sees only tokens before it: prompts may be fed in chunks and extended */
    INFR_TEXT_ODDS = 1u << 1, /* of INFR_POOLING_RANK: scores are log odds, of which people want the probability */
};

/* How rows of the output `embeddings` become one vector. GGUF's numbers. */
enum infr_text_pooling {
    INFR_POOLING_NONE,
    INFR_POOLING_MEAN,
    INFR_POOLING_CLS,
    INFR_POOLING_LAST,
    INFR_POOLING_RANK,
    INFR_POOLING_COUNT
};

struct infr_text_header {
    uint32_t magic;
    uint16_t major, minor;
    uint32_t header_bytes, total_bytes;
    struct infr_text_span tokenizer; /* runtime/abi/tok_format.h */
    uint32_t templates, n_templates; /* offset of the rows; row 0 is the default one */
    uint32_t flags;                  /* enum infr_text_flag */
    uint32_t vocab;       /* columns of the logits: at least the tokenizer's tokens; 0: no logits */
    uint32_t page_tokens; /* P; 0: no KV cache */
    uint32_t ctx_train;   /* positions the model was trained for; 0: unknown */
    uint32_t window;  /* the largest window where every layer has one: older pages are never read
                         again. 0: none */
    uint32_t pooling; /* enum infr_text_pooling */
    uint32_t embedding_dims; /* columns of the embeddings; 0: none */
    uint32_t pad;
    /* What the model's makers recommend; NaN or, for top_k, negative: nothing. */
    float temp, top_p, min_p, repeat_penalty;
    int32_t top_k;
    uint32_t pad2;
    struct infr_text_span trie; /* runtime/abi/trie_format.h; none where the model gives no logits */
};

#endif
