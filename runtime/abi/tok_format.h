// SPDX-License-Identifier: Apache-2.0
/*
 * The compiled tokenizer: one position-independent, little-endian block that the compiler writes
 * and the runtime reads in place. Every reference is an offset, so the block may be mapped anywhere
 * that is 8-byte aligned.
 *
 *   struct tok_header | sections, each 8-byte aligned, in the order of enum tok_section
 *
 * A section that a tokenizer does not need has size 0. Readers trust nothing: small tables are
 * checked once when the block is opened, large ones at each access.
 */
#ifndef INFC_RUNTIME_ABI_TOK_FORMAT_H
#define INFC_RUNTIME_ABI_TOK_FORMAT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define TOK_MAGIC 0x4b4f5449u /* "ITOK" */
#define TOK_VERSION_MAJOR 1u  /* readers refuse another major version */
#define TOK_VERSION_MINOR 0u  /* newer minor versions only add */

#define TOK_NONE 0xffffffffu /* no such token, no such entry */

/* Sizes of hostile input that no real tokenizer reaches. */
#define TOK_MAX_TOKENS (1u << 24)
#define TOK_MAX_TOKEN_BYTES 65535u
#define TOK_MAX_PASSES 8u
#define TOK_MAX_LOOKS 4u /* general lookaheads a pattern */

enum tok_model {
    TOK_MODEL_BPE = 1,   /* merge ranks; byte-level or, with TOK_F_CHARS, on characters */
    TOK_MODEL_SPM = 2,   /* SentencePiece BPE: highest score of a neighbouring pair first */
    TOK_MODEL_UNIGRAM,   /* best sum of scores */
    TOK_MODEL_WORDPIECE, /* greedy longest match inside words */
    TOK_MODEL_GREEDY,    /* greedy longest match over the whole text (RWKV) */
};

enum tok_flag {
    TOK_F_ADD_BOS = 1u << 0,
    TOK_F_ADD_EOS = 1u << 1,
    TOK_F_ADD_SEP = 1u << 2,
    TOK_F_SPACE_PREFIX = 1u << 3, /* a space before text at the start and after a special token */
    TOK_F_SPACE_SUFFIX = 1u << 4, /* the space goes behind instead */
    TOK_F_MERGE_SPACES = 1u << 5, /* runs of spaces become one, none at either end */
    TOK_F_ESCAPE_SPACES =
        1u << 6, /* U+2581 in the input means a space (vocabulary stores spaces) */
    TOK_F_IGNORE_MERGES = 1u << 7, /* a whole pre-token found in the vocabulary is taken as it is */
    TOK_F_CHARS = 1u << 8,         /* BPE starts from characters, not from bytes */
    TOK_F_BYTE_FALLBACK = 1u << 9, /* what the vocabulary lacks is spelled with byte tokens */
    TOK_F_NEWLINE_WHOLE =
        1u << 10, /* a pre-token of line feeds only is looked up as a whole first */
    TOK_F_KEEP_MATCHES = 1u << 11,  /* text between matches of the pre-tokenizer is dropped */
    TOK_F_STRIP_LEADING = 1u << 12, /* decoding drops one leading space */
    TOK_F_SPLIT_SPACES = 1u << 13,  /* no token has a space behind another character */
};

/* Token types have GGUF's numbers. */
enum tok_type {
    TOK_TYPE_UNDEFINED = 0,
    TOK_TYPE_NORMAL = 1,
    TOK_TYPE_UNKNOWN = 2,
    TOK_TYPE_CONTROL = 3,
    TOK_TYPE_USER_DEFINED = 4,
    TOK_TYPE_UNUSED = 5,
    TOK_TYPE_BYTE = 6,
};
#define TOK_ATTR_TYPE 0x07u   /* mask of the type in an attribute byte */
#define TOK_ATTR_LSTRIP 0x08u /* matching it swallows white space before it */
#define TOK_ATTR_RSTRIP 0x10u /* and behind it */
#define TOK_ATTR_EOG 0x20u    /* generation ends with it */

enum tok_special {
    TOK_SPECIAL_BOS,
    TOK_SPECIAL_EOS,
    TOK_SPECIAL_UNK,
    TOK_SPECIAL_SEP,
    TOK_SPECIAL_PAD,
    TOK_SPECIAL_MASK,
    TOK_SPECIAL_EOT,
    TOK_SPECIAL_EOM,
    TOK_SPECIAL_FIM_PRE,
    TOK_SPECIAL_FIM_SUF,
    TOK_SPECIAL_FIM_MID,
    TOK_SPECIAL_FIM_PAD,
    TOK_SPECIAL_FIM_REP,
    TOK_SPECIAL_FIM_SEP,
    TOK_SPECIAL_COUNT,
};

enum tok_section {
    TOK_SEC_OFFSETS,  /* u32[n_strings + 1]: where a string's bytes begin in TOK_SEC_BYTES */
    TOK_SEC_BYTES,    /* what each token stands for: already unescaped, spaces as spaces */
    TOK_SEC_ATTRS,    /* u8[n_tokens] */
    TOK_SEC_SCORES,   /* f32[n_tokens], only where the model has scores */
    TOK_SEC_HASH,     /* u32[2^k]: string number + 1 or 0; open addressing by tok_hash_bytes */
    TOK_SEC_MERGES,   /* struct tok_merge[]: open addressing by tok_hash_pair */
    TOK_SEC_BYTE_IDS, /* u32[256]: the token of a byte, or TOK_NONE */
    TOK_SEC_TRIE,     /* struct tok_unit[]: the vocabulary, for the models that match prefixes */
    TOK_SEC_ADDED,    /* struct tok_unit[]: control, unknown and user-defined tokens */
    TOK_SEC_PRE,      /* struct tok_pre_header and its tables */
    TOK_SEC_NORM,     /* struct tok_norm_header and its tables */
    TOK_SEC_CHARSMAP, /* struct tok_charsmap_header and its tables */
    TOK_SEC_COUNT,
};

struct tok_header {
    uint32_t magic;
    uint16_t version_major, version_minor;
    uint32_t header_bytes; /* sizeof of what the writer knew: fields are only added behind */
    uint32_t total_bytes;
    uint32_t model;
    uint32_t flags;
    uint32_t n_tokens;        /* ids are below this */
    uint32_t n_strings;       /* n_tokens and the intermediate strings of merges */
    uint32_t max_token_bytes; /* of any string */
    uint32_t max_word_chars;  /* WordPiece: longer words are unknown; 0 means no limit */
    float unknown_score;      /* unigram: of a character that no token covers */
    uint32_t reserved;
    uint32_t special[TOK_SPECIAL_COUNT];
    struct {
        uint32_t offset, bytes;
    } section[TOK_SEC_COUNT];
};

struct tok_merge {
    uint32_t left, right; /* string numbers; left is TOK_NONE in an empty slot */
    uint32_t rank, result;
};

/* Double array: the child of node n by label l is base[n] + l when check of that unit is n. Labels
 * are byte + 1; label 0 leads to a leaf whose base is the value. Node 0 is the root. */
struct tok_unit {
    uint32_t base, check;
};

/* A DFA over character classes. Column `class << look_bits | bits`, class n_classes is the end of
 * the text. Bit 15 of a transition: a match ends (in a reverse DFA: holds) before this character.
 * State 0 is dead in a forward DFA. start[c] is the state after class c, or at the text's edge
 * (n_classes). */
#define TOK_DFA_MATCH 0x8000u
struct tok_dfa {
    uint32_t n_states, n_cols;
    uint32_t trans; /* offset in the section: u16[n_states * n_cols] */
    uint32_t start; /* offset in the section: u16[n_classes + 1] */
};

struct tok_pass {
    struct tok_dfa match;
    struct tok_dfa filter; /* n_states 0: not needed. Reverse: can a match begin here? */
    uint32_t n_looks;
    struct tok_dfa look[TOK_MAX_LOOKS]; /* reverse: does lookahead i hold here? */
};

/* Class of a character: stage2[stage1[c >> 8] << 8 | (c & 255)]. */
struct tok_pre_header {
    uint32_t n_classes, n_passes;
    uint32_t stage1;           /* u16[0x1100] */
    uint32_t n_blocks, stage2; /* u8[n_blocks * 256] */
    struct tok_pass pass[TOK_MAX_PASSES];
};

enum tok_norm_flag {
    TOK_NORM_DECOMPOSE = 1u << 0, /* map and put marks in canonical order */
    TOK_NORM_COMPOSE = 1u << 1,
    TOK_NORM_POST = 1u << 2,  /* strip and lower-case after the above */
    TOK_NORM_CLEAN = 1u << 3, /* drop, space and isolate before the above */
};
enum tok_char_flag {
    TOK_CHAR_DROP = 1u << 0,
    TOK_CHAR_SPACE = 1u << 1,   /* becomes U+0020 */
    TOK_CHAR_ISOLATE = 1u << 2, /* a space on either side */
    TOK_CHAR_STRIP = 1u << 3,   /* removed after decomposition */
    TOK_CHAR_PUNCT = 1u << 4,   /* a word of its own in WordPiece */
};
struct tok_char {
    uint32_t decomp, lower; /* first in the pool of code points */
    uint8_t decomp_len, lower_len, ccc, flags;
};
struct tok_compose {
    uint32_t first, second, result; /* first 0: empty slot */
};
/* Record of a character: records[stage2[stage1[c >> 7] << 7 | (c & 127)]]; record 0 is "nothing".
 */
struct tok_norm_header {
    uint32_t flags;
    uint32_t stage1;           /* u16[0x2200] */
    uint32_t n_blocks, stage2; /* u16[n_blocks * 128] */
    uint32_t n_records, records;
    uint32_t n_pool, pool;           /* u32[] */
    uint32_t compose_slots, compose; /* a power of two, or 0 */
};

/* SentencePiece's precompiled map: longest prefix in the trie, replaced by zero-terminated bytes.
 */
struct tok_charsmap_header {
    uint32_t n_units, units;
    uint32_t text_bytes, text;
};

static inline uint64_t tok_mix(uint64_t h)
{
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93u;
    h ^= h >> 32;
    return h;
}

static inline uint32_t tok_hash_pair(uint32_t a, uint32_t b)
{
    return (uint32_t)(tok_mix(((uint64_t)a << 32 | b) + 0x9e3779b97f4a7c15u) >> 7);
}

static inline uint32_t tok_hash_bytes(const uint8_t *p, size_t n)
{
    uint64_t h = 0x9e3779b97f4a7c15u ^ n;
    while (n >= 8) {
        uint64_t w;
        memcpy(&w, p, 8);
        h = tok_mix(h ^ w) * 0x9fb21c651e98df25u;
        p += 8;
        n -= 8;
    }
    uint64_t w = 0;
    for (size_t i = 0; i < n; i++) w |= (uint64_t)p[i] << (8 * i);
    return (uint32_t)(tok_mix(h ^ w) >> 5);
}

#endif
