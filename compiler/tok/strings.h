// SPDX-License-Identifier: Apache-2.0
/* A vocabulary's strings while it is compiled: what the file writes, what that stands for, and
 * attributes. */
#ifndef INFC_COMPILER_TOK_STRINGS_H
#define INFC_COMPILER_TOK_STRINGS_H

#include "compiler/tok/tok_build.h"

#define GPT2_CHARS 0x144u /* the byte alphabet's characters are below this */
#define TOK_NO_BYTE 0xffffu

struct tok_strings {
    struct arena *arena;
    const struct tok_vocab_desc *d;
    size_t n;             /* tokens first, then intermediate strings of merges */
    struct tok_text *v;   /* the bytes each stands for */
    struct tok_text *raw; /* as the file writes it */
    size_t cap;
    uint8_t *attrs;  /* [n_tokens] */
    uint32_t *index; /* hash of raw: number + 1 */
    size_t index_size;
    uint16_t byte_of_char[GPT2_CHARS];
};

/* Decodes tokens and sets attributes; fills special ids that go by a token's text. */
void tok_strings_init(struct tok_strings *s, struct arena *a, const struct tok_vocab_desc *d,
                      uint32_t *special);
/* Number of a raw string as plain text; an intermediate string is made where no such token is.
 * TOK_NONE: too long. */
uint32_t tok_strings_get(struct tok_strings *s, struct tok_text raw);
uint32_t tok_strings_joined(struct tok_strings *s, struct tok_text left, struct tok_text right);
/* May plain text turn into this string? Never into control, unknown and byte tokens. */
bool tok_strings_matches_text(const struct tok_strings *s, size_t i);
/* Is the token cut out of the text before anything else? */
bool tok_strings_is_added(const struct tok_strings *s, size_t i);
/* The token of a byte, or TOK_NONE. */
uint32_t tok_strings_byte(const struct tok_strings *s, uint8_t byte);

#endif
