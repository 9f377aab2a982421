// SPDX-License-Identifier: Apache-2.0
/*
 * A small vocabulary for tests of generation: SentencePiece with all bytes, control tokens, ASCII
 * and a few words, so that any text has ids and any ids a text.
 */
#ifndef INFC_TESTS_LM_VOCAB_H
#define INFC_TESTS_LM_VOCAB_H

#include "tests/tok/fixture.h"

enum { V_UNK, V_BOS, V_EOS, V_IM_START, V_IM_END, V_BYTES, V_WORDS = V_BYTES + 256 };

static const char *const vocab_words[] = {
    "\u2581",      "a",   "b",  "c",  "d",  "e",    "h",      "l",      "o",         "w",
    "r",           ":",   "*",  "\"", "\n", "lo",   "llo",    "he",     "hello",     "\u2581w",
    "\u2581world", "wor", "ld", "st", "op", "stop", "\u00e9", "\u20ac", "\U0001f600"};
enum { N_WORDS = sizeof vocab_words / sizeof *vocab_words, N_VOCAB = V_WORDS + N_WORDS };

static inline void vocab_describe(struct fixture *f)
{
    static const char *const control[] = {"<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"};
    struct tok_text *t = arena_calloc(&f->arena, N_VOCAB, sizeof *t);
    int32_t *types = arena_calloc(&f->arena, N_VOCAB, sizeof *types);
    float *scores = arena_calloc(&f->arena, N_VOCAB, sizeof *scores);
    for (int i = 0; i < N_VOCAB; i++) {
        const char *s = i < V_BYTES   ? control[i]
                        : i < V_WORDS ? arena_printf(&f->arena, "<0x%02X>", i - V_BYTES)
                                      : vocab_words[i - V_WORDS];
        t[i] = (struct tok_text){s, strlen(s)};
        types[i] = i == V_UNK    ? TOK_TYPE_UNKNOWN
                   : i < V_BYTES ? TOK_TYPE_CONTROL
                   : i < V_WORDS ? TOK_TYPE_BYTE
                                 : TOK_TYPE_NORMAL;
        scores[i] = (float)(i < V_WORDS ? -1000 : (int)t[i].n);
    }
    f->desc.tokens = t, f->desc.n_tokens = N_VOCAB, f->desc.types = types, f->desc.scores = scores;
    tok_desc_key(&f->desc, "bos_token_id", V_BOS);
    tok_desc_key(&f->desc, "eos_token_id", V_EOS);
    tok_desc_key(&f->desc, "unknown_token_id", V_UNK);
    tok_desc_key(&f->desc, "add_bos_token", 1);
}

static inline void vocab_begin(struct fixture *f)
{
    fixture_begin(f, "llama", NULL);
    vocab_describe(f);
    fixture_build(f);
}

static inline uint32_t vocab_id(const char *word)
{
    for (uint32_t i = 0; i < N_WORDS; i++)
        if (!strcmp(vocab_words[i], word)) return V_WORDS + i;
    fail_msg("no token '%s'", word);
    return 0;
}

#endif
