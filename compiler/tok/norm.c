// SPDX-License-Identifier: Apache-2.0
/* Tables of a normalizer: which characters it changes, and only those. */
#include <string.h>

#include "compiler/tok/blob.h"

struct norm_builder {
    struct arena *arena;
    VEC(struct tok_char) records;
    VEC(uint32_t) pool;
    uint16_t *record_of; /* [UNI_COUNT] */
    uint16_t *shared;    /* [65536]: record + 1 by class << 8 | flags */
};

static void put_sequence(struct norm_builder *b, const uint32_t *seq, unsigned n, uint32_t *at,
                         uint8_t *len)
{
    *at = (uint32_t)b->pool.n;
    *len = (uint8_t)n;
    for (unsigned i = 0; i < n; i++) vec_push(b->arena, &b->pool, seq[i]);
}

/* Each mapped character has a record of its own; others share one for each class and set of flags.
 */
static uint16_t put_record(struct norm_builder *b, struct tok_char r)
{
    uint16_t *shared =
        r.decomp_len == 0 && r.lower_len == 0 ? &b->shared[r.ccc << 8 | r.flags] : NULL;
    if (shared != NULL && *shared != 0) return (uint16_t)(*shared - 1);
    vec_push(b->arena, &b->records, r);
    INFC_ASSERT(b->records.n < 65536);
    if (shared != NULL) *shared = (uint16_t)b->records.n;
    return (uint16_t)(b->records.n - 1);
}

#define PLAIN \
    0x80u /* while building: for BERT the character has no property and no decomposition */

static void set_flag(struct norm_builder *b, uint8_t *flags, const char *property, uint8_t flag)
{
    struct uniset s = {0};
    uni_add_property(b->arena, &s, property, strlen(property));
    for (size_t i = 0; i < s.r.n; i++)
        for (uint32_t c = s.r.v[i].lo; c <= s.r.v[i].hi; c++)
            flags[c] = flag == PLAIN ? PLAIN : flags[c] | flag;
}

/* The blocks that BERT puts spaces around. One starts late there (U+2B920, not U+2B820), in its
 * models too. */
static const struct uni_range bert_han[] = {
    {0x4e00, 0x9fff},   {0x3400, 0x4dbf},   {0x20000, 0x2a6df}, {0x2a700, 0x2b73f},
    {0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf}, {0xf900, 0xfaff},   {0x2f800, 0x2fa1f}};

static void set_flags(struct norm_builder *b, const struct tok_norm_plan *plan, uint8_t *flags)
{
    if (plan->clean) {
        set_flag(b, flags, "Cc", TOK_CHAR_DROP);
        set_flag(b, flags, "Cf", TOK_CHAR_DROP);
        set_flag(b, flags, "Co", TOK_CHAR_DROP);
        flags[0xfffd] |= TOK_CHAR_DROP;
        flags['\t'] = flags['\n'] = flags['\r'] = 0;
        set_flag(b, flags, "White_Space", TOK_CHAR_SPACE);
    }
    if (plan->isolate_han)
        for (size_t i = 0; i < ARRAY_LEN(bert_han); i++)
            for (uint32_t c = bert_han[i].lo; c <= bert_han[i].hi; c++)
                flags[c] |= TOK_CHAR_ISOLATE;
    if (plan->strip_marks) set_flag(b, flags, "Mn", TOK_CHAR_STRIP);
    if (plan->punct) {
        set_flag(b, flags, "P", TOK_CHAR_PUNCT);
        for (uint32_t c = 0x21; c < 0x7f; c++)
            if (!(c >= '0' && c <= '9') && !((c | 32) >= 'a' && (c | 32) <= 'z'))
                flags[c] |= TOK_CHAR_PUNCT;
        set_flag(b, flags, "BertPlain", PLAIN);
        set_flag(b, flags, "BertPunct", TOK_CHAR_PUNCT);
        if (plan->strip_marks) set_flag(b, flags, "BertStrip", TOK_CHAR_STRIP);
    }
}

/* Pairs that compose, in a hash twice their number. */
static void put_compositions(struct norm_builder *b, struct tok_norm_header *h,
                             struct tok_bytes *out)
{
    h->compose_slots = 4096;
    struct tok_compose *slots = ARENA_ARRAY(b->arena, struct tok_compose, h->compose_slots);
    uint32_t pair[2];
    for (uint32_t c = 0xc0; c < 0x30000; c++) {
        if (!uni_composes(c, pair)) continue;
        uint32_t s = tok_hash_pair(pair[0], pair[1]) & (h->compose_slots - 1);
        while (slots[s].first != 0) s = (s + 1) & (h->compose_slots - 1);
        slots[s] = (struct tok_compose){pair[0], pair[1], c};
    }
    h->compose = tok_bytes_add(b->arena, out, slots, h->compose_slots * sizeof slots[0], 8);
}

static void put_index(struct norm_builder *b, struct tok_norm_header *h, struct tok_bytes *out)
{
    enum { BLOCKS = UNI_COUNT >> 7 };
    uint16_t *stage1 = ARENA_ARRAY(b->arena, uint16_t, BLOCKS);
    uint16_t *stage2 = ARENA_ARRAY(b->arena, uint16_t, UNI_COUNT);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        uint32_t k = 0;
        while (k < h->n_blocks && memcmp(stage2 + (k << 7), b->record_of + (i << 7), 256) != 0) k++;
        if (k == h->n_blocks) memcpy(stage2 + (h->n_blocks++ << 7), b->record_of + (i << 7), 256);
        stage1[i] = (uint16_t)k;
    }
    h->stage1 = tok_bytes_add(b->arena, out, stage1, BLOCKS * sizeof stage1[0], 8);
    h->stage2 = tok_bytes_add(b->arena, out, stage2, (size_t)h->n_blocks * 256, 8);
}

void tok_norm_build(struct arena *a, const struct tok_norm_plan *plan, struct tok_bytes *out)
{
    struct norm_builder b = {.arena = a,
                             .record_of = ARENA_ARRAY(a, uint16_t, UNI_COUNT),
                             .shared = ARENA_ARRAY(a, uint16_t, 65536)};
    struct tok_norm_header h = {0};
    uint8_t *flags = ARENA_ARRAY(a, uint8_t, UNI_COUNT);
    h.flags = (plan->decompose ? TOK_NORM_DECOMPOSE : 0u) |
              (plan->compose ? TOK_NORM_COMPOSE : 0u) |
              (plan->strip_marks || plan->lower ? TOK_NORM_POST : 0u) |
              (plan->clean || plan->isolate_han ? TOK_NORM_CLEAN : 0u);
    tok_bytes_add(a, out, NULL, sizeof h, 8);
    set_flags(&b, plan, flags);
    put_record(&b, (struct tok_char){0});
    for (uint32_t c = 0; c < UNI_COUNT; c++) {
        struct tok_char r = {.flags = flags[c] & (uint8_t)~PLAIN};
        uint32_t seq[UNI_DECOMP_MAX];
        if (plan->decompose && !(flags[c] & PLAIN)) {
            r.ccc = uni_combining_class(c);
            /* Hangul is computed by the runtime, which saves 11,172 records. */
            unsigned n = c >= 0xac00 && c < 0xd7a4 ? 0 : uni_decompose(c, plan->compat, seq);
            if (n > 0) put_sequence(&b, seq, n, &r.decomp, &r.decomp_len);
        }
        if (plan->lower && c < UNI_CASED_END) {
            unsigned n = uni_to_lower(c, seq);
            if (n != 1 || seq[0] != c) put_sequence(&b, seq, n, &r.lower, &r.lower_len);
        }
        b.record_of[c] = put_record(&b, r);
    }
    put_index(&b, &h, out);
    h.n_records = (uint32_t)b.records.n;
    h.records = tok_bytes_add(a, out, b.records.v, b.records.n * sizeof b.records.v[0], 8);
    h.n_pool = (uint32_t)b.pool.n;
    h.pool = tok_bytes_add(a, out, b.pool.v, b.pool.n * sizeof b.pool.v[0], 8);
    if (plan->compose) put_compositions(&b, &h, out);
    memcpy(out->v, &h, sizeof h);
}
