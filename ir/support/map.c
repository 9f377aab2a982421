// SPDX-License-Identifier: Apache-2.0
#include "ir/support/map.h"

#include <string.h>

uint64_t hash_bytes(const void *p, size_t n, uint64_t seed)
{
    const unsigned char *b = p;
    uint64_t h = 1469598103934665603u ^ seed;
    for (size_t i = 0; i < n; i++) h = (h ^ b[i]) * 1099511628211u;
    h ^= h >> 32; /* FNV's low bits are good, its high bits weak: fold once for the table mask */
    return h;
}

void map_init(struct map *m, struct arena *a) { *m = (struct map){.arena = a}; }

static void rehash(struct map *m, size_t slot_count)
{
    m->slots = ARENA_ARRAY(m->arena, uint32_t, slot_count);
    m->slot_count = slot_count;
    for (size_t i = 0; i < m->n; i++) {
        size_t s = m->entries[i].hash & (slot_count - 1);
        while (m->slots[s]) s = (s + 1) & (slot_count - 1);
        m->slots[s] = (uint32_t)(i + 1);
    }
}

static struct map_entry *find_entry(const struct map *m, const void *key, size_t len, uint64_t h)
{
    if (!m->slot_count) return NULL;
    for (size_t s = h & (m->slot_count - 1); m->slots[s]; s = (s + 1) & (m->slot_count - 1)) {
        struct map_entry *e = &m->entries[m->slots[s] - 1];
        if (e->hash == h && e->key_len == len && !memcmp(e->key, key, len)) return e;
    }
    return NULL;
}

void *map_put(struct map *m, const void *key, size_t key_len, void *value)
{
    uint64_t h = hash_bytes(key, key_len, 0);
    struct map_entry *e = find_entry(m, key, key_len, h);
    if (e) {
        void *old = e->value;
        e->value = value;
        return old;
    }
    if (m->n == m->cap) m->entries = arena_grow(m->arena, m->entries, &m->cap, sizeof *m->entries);
    m->entries[m->n++] = (struct map_entry){
        .key = arena_strndup(m->arena, key, key_len), .key_len = key_len, .hash = h, .value = value};
    if (2 * m->n > m->slot_count) {
        rehash(m, m->slot_count ? 2 * m->slot_count : 16);
    } else {
        size_t s = h & (m->slot_count - 1);
        while (m->slots[s]) s = (s + 1) & (m->slot_count - 1);
        m->slots[s] = (uint32_t)m->n;
    }
    return NULL;
}

void *map_find(const struct map *m, const void *key, size_t key_len)
{
    struct map_entry *e = find_entry(m, key, key_len, hash_bytes(key, key_len, 0));
    return e ? e->value : NULL;
}

void *map_puts(struct map *m, const char *key, void *value) { return map_put(m, key, strlen(key), value); }

void *map_finds(const struct map *m, const char *key) { return map_find(m, key, strlen(key)); }
