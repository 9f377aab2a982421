// SPDX-License-Identifier: Apache-2.0
/*
 * SentencePiece's precompiled_charsmap: a length, a compact double array ("darts-clone") and the
 * replacements. It is taken apart into its keys and made into a trie of ours, so that the runtime
 * meets only tables whose shape it can check. The array is hostile: it may have cycles, so the walk
 * is bounded in depth and size.
 *
 *   unit: bits 0-7 label (and bit 31), bit 8 "has a leaf", bits 10-30 offset to the children, bit 9
 * scales it; a leaf has bit 31 set and the value in the rest
 */
#include <string.h>

#include "compiler/tok/blob.h"

#define KEY_MAX 64u
#define KEYS_MAX 2000000u

struct charsmap {
    struct arena *arena;
    const uint8_t *units;
    uint32_t n_units;
    uint32_t text_bytes;
    VEC(struct trie_key) keys;
    const char *error;
    uint64_t steps;
};

static uint32_t unit_at(const struct charsmap *m, uint32_t i)
{
    const uint8_t *p = m->units + (size_t)i * 4;
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint32_t children_of(uint32_t unit) { return unit >> 10 << ((unit & 1u << 9) >> 6); }

/* Every key below the node whose children begin at base; key holds the depth bytes that lead to it.
 */
static bool collect(struct charsmap *m, uint32_t base, uint8_t *key, uint32_t depth)
{
    if (depth >= KEY_MAX) {
        m->error = "its trie is too deep";
        return false;
    }
    for (uint32_t c = 1; c < 256; c++) {
        uint32_t at = base ^ c;
        if (at >= m->n_units) continue;
        uint32_t unit = unit_at(m, at);
        if ((unit & (1u << 31 | 0xff)) != c) continue;
        if (++m->steps > 16 * (uint64_t)m->n_units || m->keys.n > KEYS_MAX) {
            m->error = "its trie has a cycle";
            return false;
        }
        key[depth] = (uint8_t)c;
        uint32_t below = at ^ children_of(unit);
        if (unit >> 8 & 1) {
            if (below >= m->n_units || (unit_at(m, below) & 0x7fffffff) >= m->text_bytes) {
                m->error = "a replacement lies outside it";
                return false;
            }
            struct trie_key k = {arena_dup(m->arena, key, depth + 1), depth + 1,
                                 unit_at(m, below) & 0x7fffffff};
            vec_push(m->arena, &m->keys, k);
        }
        if (!collect(m, below, key, depth + 1)) return false;
    }
    return true;
}

bool tok_charsmap_build(struct arena *a, const uint8_t *p, size_t n, struct tok_bytes *out,
                        const char **error)
{
    struct charsmap m = {.arena = a};
    struct tok_charsmap_header h = {0};
    uint8_t key[KEY_MAX];
    size_t trie_bytes =
        n >= 4 ? p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 | (size_t)p[3] << 24 : 0;
    *error = NULL;
    if (n < 4 || trie_bytes > n - 4 || trie_bytes % 4 != 0 || trie_bytes == 0) {
        *error = "its length does not fit";
        return false;
    }
    if (trie_bytes < n - 4 && p[n - 1] != 0) {
        *error = "its last replacement has no end";
        return false;
    }
    m.units = p + 4;
    m.n_units = (uint32_t)(trie_bytes / 4);
    m.text_bytes = (uint32_t)(n - 4 - trie_bytes);
    if (!collect(&m, children_of(unit_at(&m, 0)), key, 0)) {
        *error = m.error;
        return false;
    }
    struct tok_bytes units = {0};
    tok_trie_build(a, m.keys.v, m.keys.n, &units);
    tok_bytes_add(a, out, NULL, sizeof h, 8);
    h.n_units = (uint32_t)(units.n / sizeof(struct tok_unit));
    h.units = tok_bytes_add(a, out, units.v, units.n, 8);
    h.text_bytes = m.text_bytes;
    h.text = tok_bytes_add(a, out, p + 4 + trie_bytes, m.text_bytes, 8);
    memcpy(out->v, &h, sizeof h);
    return true;
}
