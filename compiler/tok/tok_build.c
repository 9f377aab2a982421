// SPDX-License-Identifier: Apache-2.0
/* From a description to the finished block: strings, attributes, hashes; the sections' own files do
 * the rest. */
#include "compiler/tok/tok_build.h"

#include <stdio.h>
#include <string.h>

#include "compiler/tok/blob.h"
#include "compiler/tok/strings.h"

struct build {
    struct arena *arena;
    const struct tok_vocab_desc *d;
    struct diag_sink *sink;
    const char *loc;
    struct tok_strings s;
    struct tok_header h;
    struct tok_bytes section[TOK_SEC_COUNT];
};

/* Settings that mean nothing to a model are dropped, so that the runtime need not ask. */
static uint32_t useful_flags(const struct tok_vocab_desc *d)
{
    uint32_t f = d->flags & ~(uint32_t)TOK_F_SPLIT_SPACES;
    if (d->model != TOK_MODEL_SPM && d->model != TOK_MODEL_UNIGRAM)
        f &= ~(uint32_t)(TOK_F_SPACE_PREFIX | TOK_F_SPACE_SUFFIX | TOK_F_MERGE_SPACES);
    if (d->byte_form != TOK_BYTES_NONE) f &= ~(uint32_t)TOK_F_ESCAPE_SPACES;
    if (d->model == TOK_MODEL_WORDPIECE || (f & TOK_F_SPACE_PREFIX && !(f & TOK_F_SPACE_SUFFIX)))
        f |= TOK_F_STRIP_LEADING;
    return f;
}

static bool check_description(struct build *b)
{
    const struct tok_vocab_desc *d = b->d;
    static const char *const names[TOK_SPECIAL_COUNT] = {
        "bos", "eos",     "unknown", "separator", "padding", "mask",    "eot",
        "eom", "fim_pre", "fim_suf", "fim_mid",   "fim_pad", "fim_rep", "fim_sep"};
    if (d->n_tokens == 0 || d->n_tokens > TOK_MAX_TOKENS || d->n_merges > TOK_MAX_TOKENS)
        return diag_report(b->sink, DIAG_TOKENIZER, b->loc,
                           "a vocabulary of %zu tokens and %zu merges", d->n_tokens, d->n_merges);
    for (size_t i = 0; i < d->n_tokens; i++)
        if (d->tokens[i].n > TOK_MAX_TOKEN_BYTES)
            return diag_report(b->sink, DIAG_TOKENIZER, b->loc,
                               "token %zu has %zu bytes, more than %u", i, d->tokens[i].n,
                               TOK_MAX_TOKEN_BYTES);
    for (size_t i = 0; i < d->n_merges; i++)
        if (d->merges[i].n > 2 * TOK_MAX_TOKEN_BYTES)
            return diag_report(b->sink, DIAG_TOKENIZER, b->loc, "merge %zu has %zu bytes", i,
                               d->merges[i].n);
    if (d->scores != NULL)
        for (size_t i = 0; i < d->n_tokens; i++)
            if (!(d->scores[i] > -1e30f && d->scores[i] < 1e30f))
                return diag_report(b->sink, DIAG_TOKENIZER, b->loc,
                                   "the score of token %zu is not a number", i);
    if (d->scores == NULL && (d->model == TOK_MODEL_SPM || d->model == TOK_MODEL_UNIGRAM))
        return diag_report(b->sink, DIAG_TOKENIZER, b->loc, "this kind of tokenizer needs scores");
    if (d->n_merges == 0 && d->model == TOK_MODEL_BPE && strcmp(d->pre, "kimi-k2") != 0)
        return diag_report(b->sink, DIAG_TOKENIZER, b->loc, "this kind of tokenizer needs merges");
    if (d->n_merges == 0 && d->model == TOK_MODEL_BPE)
        return diag_report(b->sink, DIAG_TOKENIZER_UNSUPPORTED, b->loc,
                           "a byte-pair vocabulary whose merges must be guessed from its ranks");
    for (size_t i = 0; i < TOK_SPECIAL_COUNT; i++) {
        uint32_t id = d->special[i];
        b->h.special[i] = id;
        if (id == TOK_NONE || id < d->n_tokens) continue;
        b->h.special[i] = TOK_NONE;
        if (d->given >> i & 1)
            diag_warn(b->sink, DIAG_TOKENIZER, b->loc,
                      "the %s token's id %u is outside the vocabulary", names[i], id);
    }
    return true;
}

/* ---- merges
 * -------------------------------------------------------------------------------------- */

/*
 * Taking a whole pre-token without merging belongs to vocabularies that were made as ranked lists
 * of tokens: their merges were derived afterwards, several for a token, and do not reach every
 * token. GGUF tells it by the pre-tokenizer's name alone; where merges make each token of two or
 * more bytes exactly once, they are the model and are followed.
 */
static bool merges_are_complete(const struct build *b, const struct tok_merge *table, size_t slots)
{
    uint8_t *made = ARENA_ARRAY(b->arena, uint8_t, b->s.n);
    for (size_t i = 0; i < slots; i++) {
        if (table[i].left == TOK_NONE) continue;
        if (made[table[i].result]++ > 0) return false;
    }
    for (size_t i = 0; i < b->d->n_tokens; i++)
        if (!made[i] && b->s.v[i].n > 1 && !tok_strings_is_added(&b->s, i) &&
            tok_strings_matches_text(&b->s, i))
            return false;
    return true;
}

static bool put_merges(struct build *b)
{
    const struct tok_vocab_desc *d = b->d;
    size_t slots = d->n_merges + d->n_merges / 3 + 8;
    struct tok_merge *table = ARENA_ARRAY(b->arena, struct tok_merge, slots);
    for (size_t i = 0; i < slots; i++) table[i].left = TOK_NONE;
    for (size_t i = 0; i < d->n_merges; i++) {
        struct tok_text m = d->merges[i];
        const char *space = m.n > 1 ? memchr(m.p + 1, ' ', m.n - 1) : NULL;
        if (space == NULL || space + 1 == m.p + m.n) {
            diag_warn(b->sink, DIAG_TOKENIZER, b->loc, "merge %zu is not a pair and is left out",
                      i);
            continue;
        }
        struct tok_text left = {m.p, (size_t)(space - m.p)}, right = {space + 1, m.n - left.n - 1};
        uint32_t l = tok_strings_get(&b->s, left), r = tok_strings_get(&b->s, right);
        uint32_t result = tok_strings_joined(&b->s, left, right);
        if (l == TOK_NONE || r == TOK_NONE || result == TOK_NONE)
            return diag_report(b->sink, DIAG_TOKENIZER, b->loc,
                               "merge %zu makes a token of more than %u bytes", i,
                               TOK_MAX_TOKEN_BYTES);
        size_t at = (size_t)((uint64_t)tok_hash_pair(l, r) * slots >> 32);
        while (table[at].left != TOK_NONE && !(table[at].left == l && table[at].right == r))
            at = (at + 1) % slots;
        if (table[at].left == TOK_NONE) table[at] = (struct tok_merge){l, r, (uint32_t)i, result};
    }
    if (merges_are_complete(b, table, slots)) b->h.flags &= ~(uint32_t)TOK_F_IGNORE_MERGES;
    tok_bytes_add(b->arena, &b->section[TOK_SEC_MERGES], table, slots * sizeof table[0], 8);
    return true;
}

/* ---- strings, hash, tries
 * ------------------------------------------------------------------------ */

static void put_strings(struct build *b)
{
    struct tok_bytes *offsets = &b->section[TOK_SEC_OFFSETS], *bytes = &b->section[TOK_SEC_BYTES];
    uint32_t at = 0;
    for (size_t i = 0; i < b->s.n; i++) {
        tok_bytes_add(b->arena, offsets, &at, 4, 1);
        tok_bytes_add(b->arena, bytes, b->s.v[i].p, b->s.v[i].n, 1);
        at += (uint32_t)b->s.v[i].n;
        if (b->s.v[i].n > b->h.max_token_bytes) b->h.max_token_bytes = (uint32_t)b->s.v[i].n;
    }
    tok_bytes_add(b->arena, offsets, &at, 4, 1);
    b->h.n_strings = (uint32_t)b->s.n;
    b->h.n_tokens = (uint32_t)b->d->n_tokens;
    tok_bytes_add(b->arena, &b->section[TOK_SEC_ATTRS], b->s.attrs, b->d->n_tokens, 1);
    if (b->d->scores != NULL)
        tok_bytes_add(b->arena, &b->section[TOK_SEC_SCORES], b->d->scores, b->d->n_tokens * 4, 4);
}

/* Words can be encoded one by one when no token reaches over the beginning of one. */
static void note_word_borders(struct build *b)
{
    for (size_t i = 0; i < b->d->n_tokens; i++) {
        if (!tok_strings_matches_text(&b->s, i)) continue;
        struct tok_text t = b->s.v[i];
        for (size_t k = 1; k < t.n; k++)
            if (t.p[k] == ' ' && t.p[k - 1] != ' ') return;
    }
    b->h.flags |= TOK_F_SPLIT_SPACES;
}

static void put_hash(struct build *b)
{
    size_t slots = 16;
    while (slots < 2 * b->s.n) slots *= 2;
    uint32_t *table = ARENA_ARRAY(b->arena, uint32_t, slots);
    for (size_t i = 0; i < b->s.n; i++) {
        if (!tok_strings_matches_text(&b->s, i)) continue;
        struct tok_text t = b->s.v[i];
        size_t at = tok_hash_bytes((const uint8_t *)t.p, t.n) & (slots - 1);
        bool known = false;
        while (table[at] != 0 && !known) {
            struct tok_text o = b->s.v[table[at] - 1];
            known = o.n == t.n && memcmp(o.p, t.p, t.n) == 0;
            if (!known) at = (at + 1) & (slots - 1);
        }
        if (!known) table[at] = (uint32_t)i + 1;
    }
    tok_bytes_add(b->arena, &b->section[TOK_SEC_HASH], table, slots * 4, 8);
}

/* The vocabulary's trie, or that of the tokens that are cut out of the text before anything else.
 */
static void put_trie(struct build *b, enum tok_section section)
{
    VEC(struct trie_key) keys = {0};
    for (size_t i = 0; i < b->d->n_tokens; i++) {
        bool added = tok_strings_is_added(&b->s, i);
        if (section == TOK_SEC_ADDED ? !added : !tok_strings_matches_text(&b->s, i)) continue;
        struct trie_key k = {(const uint8_t *)b->s.v[i].p, (uint32_t)b->s.v[i].n, (uint32_t)i};
        vec_push(b->arena, &keys, k);
    }
    if (keys.n > 0) tok_trie_build(b->arena, keys.v, keys.n, &b->section[section]);
}

static void put_byte_ids(struct build *b)
{
    uint32_t ids[256];
    size_t found = 0;
    for (unsigned i = 0; i < 256; i++) {
        ids[i] = tok_strings_byte(&b->s, (uint8_t)i);
        found += ids[i] != TOK_NONE;
    }
    if (b->d->byte_form != TOK_BYTES_GPT2 && found < 256)
        b->h.flags &= ~(uint32_t)TOK_F_BYTE_FALLBACK;
    if (b->d->model == TOK_MODEL_UNIGRAM && found == 256) b->h.flags |= TOK_F_BYTE_FALLBACK;
    tok_bytes_add(b->arena, &b->section[TOK_SEC_BYTE_IDS], ids, sizeof ids, 8);
}

/* ---- text: patterns and normalizers
 * -------------------------------------------------------------- */

static bool put_pre(struct build *b)
{
    const struct tok_vocab_desc *d = b->d;
    struct arena scratch;
    if (d->model != TOK_MODEL_BPE || d->n_patterns == 0) return true;
    arena_init(&scratch);
    struct rx rx = {.arena = &scratch};
    struct tok_bytes made = {0};
    bool good = tok_pre_build(&rx, d->patterns, d->n_patterns, &made);
    if (good)
        tok_bytes_add(b->arena, &b->section[TOK_SEC_PRE], made.v, made.n, 8);
    else
        diag_report(b->sink, DIAG_TOKENIZER_UNSUPPORTED, b->loc,
                    "the pre-tokenizer cannot be compiled: %s", rx.error);
    arena_deinit(&scratch);
    return good;
}

static void put_norm(struct build *b)
{
    struct tok_norm_plan plan = {0};
    switch (b->d->normalizer) {
    case TOK_NORMALIZER_NONE: return;
    case TOK_NORMALIZER_NFC: plan.decompose = plan.compose = true; break;
    case TOK_NORMALIZER_NFD: plan.decompose = true; break;
    case TOK_NORMALIZER_NFKC: plan.decompose = plan.compat = plan.compose = true; break;
    case TOK_NORMALIZER_NFKD: plan.decompose = plan.compat = true; break;
    case TOK_NORMALIZER_BERT:
        plan.clean = plan.isolate_han = plan.punct = true;
        plan.decompose = plan.strip_marks = b->d->strip_accents;
        plan.lower = b->d->lower;
        break;
    case TOK_NORMALIZER_LOWER:
        if (!b->d->lower) return;
        plan.lower = true;
        break;
    }
    struct arena scratch;
    struct tok_bytes made = {0};
    arena_init(&scratch);
    tok_norm_build(&scratch, &plan, &made);
    tok_bytes_add(b->arena, &b->section[TOK_SEC_NORM], made.v, made.n, 8);
    arena_deinit(&scratch);
}

static bool put_charsmap(struct build *b)
{
    const char *error = NULL;
    if (b->d->charsmap == NULL || b->d->charsmap_bytes == 0 || b->d->model != TOK_MODEL_UNIGRAM)
        return true;
    if (tok_charsmap_build(b->arena, b->d->charsmap, b->d->charsmap_bytes,
                           &b->section[TOK_SEC_CHARSMAP], &error))
        return true;
    return diag_report(b->sink, DIAG_TOKENIZER, b->loc, "precompiled_charsmap is damaged: %s",
                       error);
}

/* ---- the whole
 * ------------------------------------------------------------------------------------- */

/* SentencePiece: an unknown character costs 10 more than the worst token. */
static float unknown_score(const struct build *b)
{
    float min = 0;
    bool any = false;
    for (size_t i = 0; i < b->d->n_tokens; i++) {
        if (b->d->scores == NULL || (b->s.attrs[i] & TOK_ATTR_TYPE) != TOK_TYPE_NORMAL) continue;
        if (!any || b->d->scores[i] < min) min = b->d->scores[i];
        any = true;
    }
    return min - 10.0f;
}

static bool put_sections(struct build *b)
{
    const struct tok_vocab_desc *d = b->d;
    if (d->model == TOK_MODEL_BPE && !put_merges(b)) return false;
    put_strings(b);
    if (d->model == TOK_MODEL_SPM) note_word_borders(b);
    if (d->model == TOK_MODEL_BPE || d->model == TOK_MODEL_SPM)
        put_hash(b);
    else
        put_trie(b, TOK_SEC_TRIE);
    put_trie(b, TOK_SEC_ADDED);
    put_byte_ids(b);
    put_norm(b);
    return put_charsmap(b) && put_pre(b);
}

static bool assemble(struct build *b, const uint8_t **blob, size_t *n_bytes)
{
    uint64_t total = (sizeof b->h + 7) / 8 * 8;
    for (size_t i = 0; i < TOK_SEC_COUNT; i++) {
        b->h.section[i].offset = (uint32_t)total;
        b->h.section[i].bytes = (uint32_t)b->section[i].n;
        total += (b->section[i].n + 7) / 8 * 8;
    }
    if (total > UINT32_MAX)
        return diag_report(b->sink, DIAG_TOKENIZER, b->loc,
                           "the compiled tokenizer would exceed 4 GiB");
    b->h.total_bytes = (uint32_t)total;
    uint8_t *out = arena_alloc(b->arena, total);
    memcpy(out, &b->h, sizeof b->h);
    for (size_t i = 0; i < TOK_SEC_COUNT; i++)
        if (b->section[i].n > 0)
            memcpy(out + b->h.section[i].offset, b->section[i].v, b->section[i].n);
    *blob = out;
    *n_bytes = (size_t)total;
    return true;
}

bool tok_build(struct arena *a, const struct tok_vocab_desc *d, struct diag_sink *sink,
               const char *loc, const uint8_t **blob, size_t *n_bytes)
{
    struct arena scratch;
    arena_init(&scratch);
    struct build b = {.arena = &scratch, .d = d, .sink = sink, .loc = loc};
    b.h = (struct tok_header){.magic = TOK_MAGIC,
                              .version_major = TOK_VERSION_MAJOR,
                              .version_minor = TOK_VERSION_MINOR,
                              .header_bytes = sizeof b.h,
                              .model = d->model,
                              .flags = useful_flags(d),
                              .max_word_chars = d->max_word_chars};
    bool good = check_description(&b);
    if (good) {
        tok_strings_init(&b.s, &scratch, d, b.h.special);
        b.h.unknown_score = unknown_score(&b);
        good = put_sections(&b);
    }
    if (good) {
        b.arena = a;
        good = assemble(&b, blob, n_bytes);
    }
    arena_deinit(&scratch);
    return good;
}
