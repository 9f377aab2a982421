// SPDX-License-Identifier: Apache-2.0
/*
 * Tokenizer: text to token ids and back, from a block that the compiler made
 * (runtime/abi/tok_format.h).
 *
 * Opening reads a header and checks small tables; nothing is parsed, built or allocated. A struct
 * tok is immutable after tok_open and may be shared by any number of threads. The block stays the
 * caller's and must outlive it.
 *
 * Encoding needs memory in proportion to the text, which the caller gives (tok_encode_plan says how
 * much). Time is at most n log n in the length of the text, whatever the text is; the constants are
 * small, a megabyte takes a fraction of a second.
 *
 * Text is UTF-8. Bytes that are not are read as U+FFFD, one for each maximal ill-formed part (as
 * web browsers do), in both directions: ids never produce invalid UTF-8.
 */
#ifndef INFC_RUNTIME_TEXT_TOK_H
#define INFC_RUNTIME_TEXT_TOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/abi/tok_format.h"

enum tok_status {
    TOK_OK = 0,
    TOK_ERR_BLOB,    /* not a compiled tokenizer, cut short or damaged */
    TOK_ERR_VERSION, /* made by a compiler of another major version */
    TOK_ERR_WORK,    /* the workspace is smaller than tok_encode_plan said */
    TOK_ERR_SPACE,   /* the output does not fit; the count says what it takes */
    TOK_ERR_SIZE,    /* text of 1 GiB or more */
    TOK_ERR_ID,      /* a token id outside the vocabulary */
};

/* A double array inside the block. */
struct tok_trie {
    const struct tok_unit *units;
    uint32_t n;
};

/* Fields are the implementation's; copy it freely. */
struct tok {
    const uint8_t *blob;
    const struct tok_header *h;
    const uint32_t *offsets; /* [n_strings + 1] */
    const uint8_t *bytes;
    uint32_t n_bytes;
    const uint8_t *attrs;
    const float *scores; /* NULL when the model has none */
    const uint32_t *hash;
    uint32_t hash_mask; /* 0: no hash */
    const struct tok_merge *merges;
    uint32_t n_merges; /* slots */
    const uint32_t *byte_ids;
    struct tok_trie trie, added, charsmap;
    const uint8_t *charsmap_text;
    uint32_t charsmap_text_bytes;
    const uint8_t *pre, *norm; /* sections, or NULL */
    uint8_t added_first[32];   /* bit set of bytes that begin an added token */
};

/* blob must be 8-byte aligned. On failure *t is unusable and nothing is held. */
enum tok_status tok_open(const void *blob, size_t n_bytes, struct tok *t);
/* "ok", "the tokenizer is damaged"...: a short phrase without a full stop. */
const char *tok_status_text(enum tok_status s);

/* ---- text to ids
 * --------------------------------------------------------------------------------- */

enum tok_encode_flag {
    TOK_ENCODE_SPECIAL =
        1u << 0, /* control tokens in the text are recognised: for templates, not for users */
    TOK_ENCODE_BOS = 1u << 1,       /* a bos token in front, if the model wants one */
    TOK_ENCODE_EOS = 1u << 2,       /* an eos or separator behind, if the model wants one */
    TOK_ENCODE_CONTINUED = 1u << 3, /* the text follows other text: no space is put before it */
};

/* How much workspace and how many ids `text` takes at most. Reads the text once. */
enum tok_status tok_encode_plan(const struct tok *t, const char *text, size_t len,
                                size_t *work_bytes, size_t *max_ids);

/* Writes up to cap ids and their number to *count. TOK_ERR_SPACE: *count is the number there are,
 * the first cap are written. work may be any memory of the planned size; its contents mean nothing
 * afterwards. */
enum tok_status tok_encode(const struct tok *t, const char *text, size_t len, unsigned flags,
                           void *work, size_t work_bytes, uint32_t *ids, size_t cap, size_t *count);

/* The longest added token that p begins with, control tokens among them with TOK_ENCODE_SPECIAL; its length, 0 when there is
 * none. */
size_t tok_match_added(const struct tok *t, const uint8_t *p, size_t n, unsigned flags, uint32_t *id);

/* ---- ids to text
 * --------------------------------------------------------------------------------- */

enum tok_decode_flag {
    TOK_DECODE_SPECIAL =
        1u << 0, /* control and unknown tokens are written out; else they are left out */
    TOK_DECODE_CONTINUED = 1u << 1, /* the ids follow other ids: a leading space is kept */
};

/* Writes UTF-8 (no terminator) and its length to *n_out. TOK_ERR_SPACE: *n_out is the length there
 * is, the text written is cut at cap. */
enum tok_status tok_decode(const struct tok *t, const uint32_t *ids, size_t n_ids, unsigned flags,
                           char *out, size_t cap, size_t *n_out);

/* Text that arrives id by id. Each chunk is whole characters: bytes of a character that is not
 * complete yet wait for the ids that follow. A plain struct, no memory behind it. */
struct tok_stream {
    const struct tok *t;
    unsigned flags;
    uint8_t pending[4];
    uint8_t n_pending;
    bool at_start;
};

void tok_stream_init(struct tok_stream *s, const struct tok *t, unsigned flags);
/* What one push or finish writes at most. */
size_t tok_stream_max(const struct tok *t);
/* out has room for tok_stream_max bytes. Returns how many were written: 0 while a character is
 * incomplete and for ids that have no text or are not in the vocabulary. */
size_t tok_stream_push(struct tok_stream *s, uint32_t id, char *out);
/* The end of the text: an incomplete character becomes U+FFFD. */
size_t tok_stream_finish(struct tok_stream *s, char *out);

/* ---- the vocabulary
 * --------------------------------------------------------------------------------- */

struct tok_info {
    const uint8_t
        *bytes; /* what the token stands for; may be part of a character. Inside the block */
    size_t n_bytes;
    enum tok_type type;
    float score;
    bool ends_generation;
};

static inline uint32_t tok_count(const struct tok *t) { return t->h->n_tokens; }
enum tok_status tok_token_info(const struct tok *t, uint32_t id, struct tok_info *out);
/* The id of a special token, or TOK_NONE. */
uint32_t tok_special_id(const struct tok *t, enum tok_special which);
/* The control, unknown or user-defined token with exactly this text, or TOK_NONE. */
uint32_t tok_find_added(const struct tok *t, const char *text, size_t len);
/* Does the model's own setting ask for bos (eos, separator)? */
static inline bool tok_wants(const struct tok *t, enum tok_flag f)
{
    return (t->h->flags & (uint32_t)f) != 0;
}

#endif
