// SPDX-License-Identifier: Apache-2.0
/*
 * Hash map from byte strings to pointers. Keys are copied into the arena. Iteration (map_next) is in
 * insertion order, so that nothing in the compiler depends on hashes or addresses.
 */
#ifndef INFC_IR_SUPPORT_MAP_H
#define INFC_IR_SUPPORT_MAP_H

#include "ir/support/arena.h"

struct map_entry {
    const char *key; /* NUL-terminated copy; key_len bytes without the NUL */
    size_t key_len;
    uint64_t hash;
    void *value;
};

struct map {
    struct arena *arena;
    struct map_entry *entries; /* in insertion order */
    uint32_t *slots;           /* index + 1 into entries, 0 = free */
    size_t n, cap, slot_count;
};

void map_init(struct map *m, struct arena *a);
/* Sets or replaces; returns the old value or NULL. */
void *map_put(struct map *m, const void *key, size_t key_len, void *value);
void *map_find(const struct map *m, const void *key, size_t key_len); /* NULL when absent */
void *map_puts(struct map *m, const char *key, void *value);
void *map_finds(const struct map *m, const char *key);
/* 64-bit FNV-1a style hash, fixed for ever (may be stored in files). */
uint64_t hash_bytes(const void *p, size_t n, uint64_t seed);

#endif
