// SPDX-License-Identifier: Apache-2.0
#include "ir/support/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ARENA_ALIGN ((size_t)16)
#define ARENA_CHUNK_BYTES ((size_t)64 * 1024)

struct arena_chunk {
    struct arena_chunk *next;
    size_t cap_bytes, used_bytes;
    /* Data follows, aligned because malloc aligns to 16 and the header is a multiple of 16. */
};
#define CHUNK_HEADER ((sizeof(struct arena_chunk) + ARENA_ALIGN - 1) & ~(ARENA_ALIGN - 1))

void infc_bug(const char *file, int line, const char *what)
{
    fprintf(stderr, "infc: internal error at %s:%d: %s\n", file, line, what);
    abort();
}

INFC_NORETURN static void out_of_memory(void)
{
    static const char msg[] = "infc: out of memory\n";
    ssize_t ignored = write(STDERR_FILENO, msg, sizeof msg - 1);
    (void)ignored;
    _exit(3);
}

void arena_init(struct arena *a) { *a = (struct arena){0}; }

void arena_deinit(struct arena *a) { arena_reset(a); }

void arena_reset(struct arena *a)
{
    for (struct arena_chunk *c = a->head, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    *a = (struct arena){0};
}

static struct arena_chunk *chunk_create(size_t data_bytes)
{
    size_t total;
    if (!size_add(CHUNK_HEADER, data_bytes, &total)) out_of_memory();
    struct arena_chunk *c = calloc(1, total);
    if (!c) out_of_memory();
    c->cap_bytes = data_bytes;
    return c;
}

void *arena_alloc(struct arena *a, size_t n_bytes)
{
    size_t need;
    if (!size_add(n_bytes ? n_bytes : 1, ARENA_ALIGN - 1, &need)) out_of_memory();
    need &= ~(ARENA_ALIGN - 1);
    a->used_bytes += need;
    struct arena_chunk *c = a->head;
    if (c && c->cap_bytes - c->used_bytes >= need) {
        void *p = (char *)c + CHUNK_HEADER + c->used_bytes;
        c->used_bytes += need;
        return p;
    }
    if (need > ARENA_CHUNK_BYTES / 4) { /* big blocks get a chunk of their own behind the head */
        struct arena_chunk *big = chunk_create(need);
        big->used_bytes = need;
        if (c) {
            big->next = c->next;
            c->next = big;
        } else {
            a->head = big;
        }
        return (char *)big + CHUNK_HEADER;
    }
    struct arena_chunk *fresh = chunk_create(ARENA_CHUNK_BYTES);
    fresh->next = c;
    a->head = fresh;
    fresh->used_bytes = need;
    return (char *)fresh + CHUNK_HEADER;
}

void *arena_calloc(struct arena *a, size_t count, size_t elem_bytes)
{
    size_t n;
    if (!size_mul(count, elem_bytes, &n)) out_of_memory();
    return arena_alloc(a, n);
}

void *arena_dup(struct arena *a, const void *src, size_t n_bytes)
{
    void *p = arena_alloc(a, n_bytes);
    if (n_bytes) memcpy(p, src, n_bytes);
    return p;
}

char *arena_strndup(struct arena *a, const char *s, size_t len)
{
    char *p = arena_alloc(a, len + 1);
    if (len) memcpy(p, s, len);
    p[len] = 0;
    return p;
}

char *arena_strdup(struct arena *a, const char *s) { return arena_strndup(a, s, strlen(s)); }

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int len = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    INFC_ASSERT(len >= 0);
    char *p = arena_alloc(a, (size_t)len + 1);
    vsnprintf(p, (size_t)len + 1, fmt, again);
    va_end(again);
    return p;
}

void *arena_grow(struct arena *a, const void *old, size_t *cap, size_t elem_bytes)
{
    size_t new_cap = *cap ? *cap * 2 : 8;
    INFC_ASSERT(new_cap > *cap);
    void *p = arena_calloc(a, new_cap, elem_bytes);
    if (*cap) memcpy(p, old, *cap * elem_bytes);
    *cap = new_cap;
    return p;
}
