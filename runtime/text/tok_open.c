// SPDX-License-Identifier: Apache-2.0
/* Opening a compiled tokenizer and looking things up in it. */
#include <string.h>

#include "runtime/text/tok_internal.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "compiled tokenizers are read in place and are little endian"
#endif

const char *tok_status_text(enum tok_status s)
{
    switch (s) {
    case TOK_OK: return "ok";
    case TOK_ERR_BLOB: return "the tokenizer is damaged";
    case TOK_ERR_VERSION: return "the tokenizer was made by another version of the compiler";
    case TOK_ERR_WORK: return "the tokenizer's workspace is too small";
    case TOK_ERR_SPACE: return "the output does not fit";
    case TOK_ERR_SIZE: return "the text is too long";
    case TOK_ERR_ID: return "a token id is outside the vocabulary";
    }
    return "unknown status";
}

/* A section of elements of a size; *n gets their number. NULL when it is empty. */
static const void *section(const struct tok *t, enum tok_section s, size_t elem, uint32_t *n)
{
    uint32_t bytes = t->h->section[s].bytes;
    *n = bytes / (uint32_t)elem;
    return bytes == 0 ? NULL : t->blob + t->h->section[s].offset;
}

static struct tok_trie trie_section(const struct tok *t, enum tok_section s)
{
    struct tok_trie trie;
    trie.units = section(t, s, sizeof(struct tok_unit), &trie.n);
    return trie;
}

static bool header_fits(const struct tok_header *h, size_t n_bytes)
{
    if (h->header_bytes < sizeof *h || h->total_bytes > n_bytes) return false;
    for (size_t i = 0; i < TOK_SEC_COUNT; i++) {
        uint32_t at = h->section[i].offset, bytes = h->section[i].bytes;
        if (at % 8 != 0 || at > h->total_bytes || bytes > h->total_bytes - at) return false;
    }
    if (h->n_tokens == 0 || h->n_tokens > h->n_strings || h->n_strings > 4 * TOK_MAX_TOKENS)
        return false;
    for (size_t i = 0; i < TOK_SPECIAL_COUNT; i++)
        if (h->special[i] != TOK_NONE && h->special[i] >= h->n_tokens) return false;
    return h->max_token_bytes <= TOK_MAX_TOKEN_BYTES;
}

static bool open_charsmap(struct tok *t)
{
    uint32_t n;
    const uint8_t *s = section(t, TOK_SEC_CHARSMAP, 1, &n);
    struct tok_charsmap_header h;
    if (s == NULL) return true;
    if (n < sizeof h) return false;
    memcpy(&h, s, sizeof h);
    if (h.units % 8 != 0 || h.units > n || h.n_units > (n - h.units) / sizeof(struct tok_unit))
        return false;
    if (h.text > n || h.text_bytes > n - h.text) return false;
    if (h.text_bytes > 0 && s[h.text + h.text_bytes - 1] != 0)
        return false; /* every replacement ends */
    if (h.n_units == 0) return true;
    t->charsmap.units = (const struct tok_unit *)(const void *)(s + h.units);
    t->charsmap.n = h.n_units;
    t->charsmap_text = s + h.text;
    t->charsmap_text_bytes = h.text_bytes;
    return true;
}

/* Do the tables that this model needs exist, in the right sizes? */
static bool tables_fit(struct tok *t, uint32_t n_offsets, uint32_t n_attrs, uint32_t n_scores,
                       uint32_t n_hash, uint32_t n_byte_ids)
{
    const struct tok_header *h = t->h;
    if (t->bytes == NULL) t->bytes = t->blob; /* no token has bytes */
    if (n_offsets != h->n_strings + 1 || n_attrs != h->n_tokens || n_byte_ids != 256) return false;
    if (t->scores != NULL && n_scores != h->n_tokens) return false;
    if (n_hash & (n_hash - 1)) return false;
    t->hash_mask = n_hash > 0 ? n_hash - 1 : 0;
    switch ((enum tok_model)h->model) {
    case TOK_MODEL_BPE: return t->merges != NULL && n_hash > 0;
    case TOK_MODEL_SPM: return t->scores != NULL && n_hash > 0;
    case TOK_MODEL_UNIGRAM: return t->scores != NULL && h->special[TOK_SPECIAL_UNK] != TOK_NONE;
    case TOK_MODEL_WORDPIECE:
    case TOK_MODEL_GREEDY: return true;
    }
    return false;
}

enum tok_status tok_open(const void *blob, size_t n_bytes, struct tok *t)
{
    static const struct tok_unit no_units[1] = {{0, TOK_NONE}};
    uint32_t n_offsets, n_attrs, n_scores, n_hash, n_byte_ids, n_pre, n_norm;
    memset(t, 0, sizeof *t);
    if (blob == NULL || ((uintptr_t)blob & 7) != 0 || n_bytes < sizeof(struct tok_header))
        return TOK_ERR_BLOB;
    t->blob = blob;
    t->h = blob;
    if (t->h->magic != TOK_MAGIC) return TOK_ERR_BLOB;
    if (t->h->version_major != TOK_VERSION_MAJOR) return TOK_ERR_VERSION;
    if (!header_fits(t->h, n_bytes)) return TOK_ERR_BLOB;

    t->offsets = section(t, TOK_SEC_OFFSETS, 4, &n_offsets);
    t->bytes = section(t, TOK_SEC_BYTES, 1, &t->n_bytes);
    t->attrs = section(t, TOK_SEC_ATTRS, 1, &n_attrs);
    t->scores = section(t, TOK_SEC_SCORES, 4, &n_scores);
    t->hash = section(t, TOK_SEC_HASH, 4, &n_hash);
    t->merges = section(t, TOK_SEC_MERGES, sizeof(struct tok_merge), &t->n_merges);
    t->byte_ids = section(t, TOK_SEC_BYTE_IDS, 4, &n_byte_ids);
    t->trie = trie_section(t, TOK_SEC_TRIE);
    t->added = trie_section(t, TOK_SEC_ADDED);
    t->pre = section(t, TOK_SEC_PRE, 1, &n_pre);
    t->norm = section(t, TOK_SEC_NORM, 1, &n_norm);
    if (t->trie.n == 0) t->trie = (struct tok_trie){no_units, 1};
    if (t->added.n == 0) t->added = (struct tok_trie){no_units, 1};
    if (!tables_fit(t, n_offsets, n_attrs, n_scores, n_hash, n_byte_ids) || !open_charsmap(t))
        return TOK_ERR_BLOB;
    if (t->merges != NULL && t->n_merges == 0) return TOK_ERR_BLOB;
    if (t->pre != NULL && !tok_pre_check(t->pre, n_pre)) return TOK_ERR_BLOB;
    if (t->norm != NULL && !tok_norm_check(t->norm, n_norm)) return TOK_ERR_BLOB;
    for (unsigned b = 0; b < 256; b++)
        if (tok_trie_step(&t->added, 0, b + 1) != TOK_NONE)
            t->added_first[b >> 3] |= (uint8_t)(1u << (b & 7));
    return TOK_OK;
}

uint32_t tok_find_string(const struct tok *t, const uint8_t *p, size_t n)
{
    if (n > t->h->max_token_bytes || t->hash_mask == 0) return TOK_NONE;
    uint32_t at = tok_hash_bytes(p, n) & t->hash_mask;
    /* A damaged table may be full: no more steps than slots. */
    for (uint32_t steps = 0; steps <= t->hash_mask && t->hash[at] != 0; steps++) {
        size_t len;
        const uint8_t *s = tok_string(t, t->hash[at] - 1, &len);
        if (len == n && memcmp(s, p, n) == 0) return t->hash[at] - 1;
        at = (at + 1) & t->hash_mask;
    }
    return TOK_NONE;
}

enum tok_status tok_token_info(const struct tok *t, uint32_t id, struct tok_info *out)
{
    if (id >= t->h->n_tokens) return TOK_ERR_ID;
    out->bytes = tok_string(t, id, &out->n_bytes);
    out->type = (enum tok_type)(t->attrs[id] & TOK_ATTR_TYPE);
    out->score = t->scores != NULL ? t->scores[id] : 0.0f;
    out->ends_generation = (t->attrs[id] & TOK_ATTR_EOG) != 0;
    return TOK_OK;
}

uint32_t tok_special_id(const struct tok *t, enum tok_special which)
{
    return (unsigned)which < TOK_SPECIAL_COUNT ? t->h->special[which] : TOK_NONE;
}

uint32_t tok_find_added(const struct tok *t, const char *text, size_t len)
{
    uint32_t node = 0;
    for (size_t i = 0; i < len && node != TOK_NONE; i++)
        node = tok_trie_step(&t->added, node, (uint8_t)text[i] + 1u);
    uint32_t id = node == TOK_NONE || len == 0 ? TOK_NONE : tok_trie_value(&t->added, node);
    return id < t->h->n_tokens ? id : TOK_NONE;
}
