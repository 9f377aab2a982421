// SPDX-License-Identifier: Apache-2.0
/*
 * Arenas: memory by lifetime (context, module, scratch). Nothing is freed singly; a reset or deinit
 * frees everything. Memory is zeroed and aligned to 16 bytes. Not thread safe: one arena per thread.
 * Out of memory ends the process with exit code 3 (an environment error); no caller checks for NULL.
 */
#ifndef INFC_IR_SUPPORT_ARENA_H
#define INFC_IR_SUPPORT_ARENA_H

#include "ir/support/compiler.h"

struct arena_chunk;

struct arena {
    struct arena_chunk *head; /* newest chunk */
    size_t used_bytes;        /* sum of all allocations since init/reset */
};

void arena_init(struct arena *a);
void arena_deinit(struct arena *a);
/* Frees all allocations; keeps nothing. */
void arena_reset(struct arena *a);
/* n_bytes may be 0 (a unique non-NULL pointer results). */
void *arena_alloc(struct arena *a, size_t n_bytes);
/* count * elem_bytes with overflow check. */
void *arena_calloc(struct arena *a, size_t count, size_t elem_bytes);
void *arena_dup(struct arena *a, const void *src, size_t n_bytes);
char *arena_strdup(struct arena *a, const char *s);
char *arena_strndup(struct arena *a, const char *s, size_t len);
char *arena_printf(struct arena *a, const char *fmt, ...) INFC_PRINTF(2, 3);

#define ARENA_NEW(a, type) ((type *)arena_alloc((a), sizeof(type)))
#define ARENA_ARRAY(a, type, n) ((type *)arena_calloc((a), (size_t)(n), sizeof(type)))

/* Growable array inside an arena: VEC(int) v = {0}; vec_push(arena, &v, 3); v.v[i], v.n. */
#define VEC(type)         \
    struct {              \
        type *v;          \
        size_t n, cap;    \
    }
#define vec_push(arena_, vec_, x_)                                                                 \
    do {                                                                                           \
        if ((vec_)->n == (vec_)->cap)                                                              \
            (vec_)->v = arena_grow((arena_), (vec_)->v, &(vec_)->cap, sizeof(*(vec_)->v));         \
        (vec_)->v[(vec_)->n++] = (x_);                                                             \
    } while (0)
/* Doubles *cap (at least 8) and copies the old contents; helper of vec_push. */
void *arena_grow(struct arena *a, const void *old, size_t *cap, size_t elem_bytes);

#endif
