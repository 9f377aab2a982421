// SPDX-License-Identifier: Apache-2.0
/*
 * Constrained decoding: a grammar says which texts are answers; a state says, after each token,
 * which tokens may follow.
 *
 *   gr_compile(GR_JSON_SCHEMA, text, n, NULL, &grammar, &error)
 *   gr_state_create(grammar, &state)
 *   gr_mask(state, vocab, bits)      which tokens may follow
 *   gr_advance(state, bytes, n)      the token that was drawn
 *   gr_is_accepting(state)           may the text end here?
 *
 * Promise: a text that a state accepts is in the language, always. What cannot be enforced exactly
 * is refused when it is compiled, with its place. A state never offers a token after which no byte
 * fits; a few combinations (docs/structured-output.md) can lead into a dead end, which shows as an
 * empty mask and never as a wrong acceptance.
 *
 * How: rules, regular expressions, strings, numbers and keys are deterministic automata over bytes;
 * rules, objects and arrays are frames on hash-consed stacks, so that equal continuations are one.
 * A state is the set of all configurations the text so far may be in.
 *
 * A grammar is immutable but for its cache of masks: one thread at a time may use a grammar and
 * the states that it made. Nothing here is global.
 */
#ifndef INFC_RUNTIME_GRAMMAR_GRAMMAR_H
#define INFC_RUNTIME_GRAMMAR_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gr_kind {
    GR_JSON_SCHEMA, /* a JSON Schema: 2020-12, and older drafts where "$schema" says so */
    GR_JSON_OBJECT, /* any JSON object; the text is ignored */
    GR_REGEX,       /* the whole text matches */
    GR_GBNF,        /* llama.cpp's notation, from the rule `root` */
    GR_CHOICE,      /* a JSON array of strings: one of them */
    GR_LARK,        /* Lark's EBNF, from the rule `start` */
    GR_STRUCTURAL_TAG, /* free text with tagged parts (docs/structured-output.md) */
};

/* How JSON may be spaced out. */
enum gr_space {
    GR_SPACE_FLEXIBLE, /* white space wherever JSON has it, at most max_space bytes at a time */
    GR_SPACE_NONE,     /* none at all */
};

/* Zeroed members mean the default, which is in brackets. */
struct gr_options {
    size_t max_memory_bytes; /* of compiling and of what is compiled [64 MiB] */
    uint32_t max_states;     /* of all automata [200000] */
    uint64_t max_work;       /* steps of compiling [20 million] */
    uint32_t max_configs;    /* alternatives that a state holds at a time [2000] */
    uint32_t max_text_bytes; /* of an answer [1 MiB]; more is refused. At most 1 MiB */
    uint32_t max_space;      /* [32] at most 200 */
    enum gr_space space;
    bool formats_annotate; /* JSON Schema's "format" is not enforced, as 2020-12 has it */
    bool few_escapes; /* printable ASCII is not written as \u0041: for answers, not for checking */
};

#define GR_MESSAGE_BYTES 256u
#define GR_POINTER_BYTES 256u

/* Where and what. offset: byte of the text; pointer: JSON pointer of the keyword ("#/..."), or "".
 */
struct gr_error {
    size_t offset;
    char pointer[GR_POINTER_BYTES];
    char message[GR_MESSAGE_BYTES];
};

struct gr_grammar;
struct gr_state;
struct gr_vocab;

/* False: *out_error says why. options may be NULL. */
bool gr_compile(enum gr_kind kind, const char *text, size_t n, const struct gr_options *options,
                struct gr_grammar **out, struct gr_error *out_error);
void gr_destroy(struct gr_grammar *g);

/* The state before the first byte. NULL without memory. The grammar must outlive it. */
struct gr_state *gr_state_create(struct gr_grammar *g);
struct gr_state *gr_state_copy(const struct gr_state *s);
void gr_state_destroy(struct gr_state *s);

/* Takes bytes. False: they do not fit (or memory or a limit ran out), and the state is as before.
 */
bool gr_advance(struct gr_state *s, const char *bytes, size_t n);
/* How many of the bytes fit. The state is as before. */
size_t gr_try(struct gr_state *s, const char *bytes, size_t n);
/* The text so far is a complete answer. */
bool gr_is_accepting(struct gr_state *s);
/* Nothing but the end can follow. */
bool gr_is_finished(struct gr_state *s);
/* The bytes that must follow whatever is drawn, at most cap of them; returns how many. */
size_t gr_forced(struct gr_state *s, char *out, size_t cap);

/* ---- tokens ---- */

/* A view of a token trie (runtime/abi/trie_format.h) with what is derived from it; the blob must
 * outlive it. NULL: damaged, or no memory. */
struct gr_vocab *gr_vocab_create(const void *trie, size_t n_bytes);
void gr_vocab_destroy(struct gr_vocab *v);
/* Bits a mask has. */
uint32_t gr_vocab_tokens(const struct gr_vocab *v);
/* Is there a token that begins with the text and is longer? */
bool gr_vocab_extends(const struct gr_vocab *v, const char *text, size_t n);

/*
 * Sets bit i where token i may follow; others are cleared. (vocab + 63) / 64 words. Tokens without
 * text (control tokens) are never set: the caller adds the end-of-text tokens where
 * gr_is_accepting. False without memory.
 */
bool gr_mask(struct gr_state *s, struct gr_vocab *v, uint64_t *bits);

/* 128 bits that tell compiled grammars apart: for the caller's cache. */
void gr_hash(enum gr_kind kind, const char *text, size_t n, const struct gr_options *options,
             uint64_t out[2]);

#endif
