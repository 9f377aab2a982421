// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE /* getrandom */
#include "runtime/text/jinja_value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "runtime/text/jinja_unicode.h"

#define MAX_STR_BYTES (UINT32_MAX / 2)
#define MAX_ITEMS (UINT32_MAX / 64)
#define KEY_DEPTH 16
#define SMALL_DICT 8u

/* ---- arena -------------------------------------------------------------------------------- */

struct chunk {
    struct chunk *next;
    size_t size_bytes;
};

struct jinja_arena {
    struct chunk *chunks;
    char *cur, *end;
    size_t used_bytes, cap_bytes;
    size_t next_chunk_bytes;
    uint64_t hash_key[2];
    bool capped;
};

#define FIRST_CHUNK ((size_t)16 << 10)
#define MAX_CHUNK ((size_t)1 << 20)
#define CHUNK_HEADER ((sizeof(struct chunk) + 15u) & ~(size_t)15u)

struct jinja_arena *jinja_arena_create(size_t cap_bytes)
{
    struct jinja_arena *arena = calloc(1, sizeof(*arena));

    if (!arena)
        return NULL;
    arena->cap_bytes = cap_bytes;
    arena->next_chunk_bytes = FIRST_CHUNK;
    /* Without entropy the address still varies; only resistance to chosen keys depends on this. */
    if (getrandom(arena->hash_key, sizeof(arena->hash_key), GRND_NONBLOCK) !=
        (ssize_t)sizeof(arena->hash_key)) {
        arena->hash_key[0] = (uint64_t)(uintptr_t)arena * 0x9e3779b97f4a7c15u;
        arena->hash_key[1] = (uint64_t)(uintptr_t)&arena;
    }
    return arena;
}

void jinja_arena_destroy(struct jinja_arena *arena)
{
    struct chunk *c, *next;

    if (!arena)
        return;
    for (c = arena->chunks; c; c = next) {
        next = c->next;
        free(c);
    }
    free(arena);
}

static bool arena_grow(struct jinja_arena *arena, size_t need_bytes)
{
    size_t room = arena->cap_bytes - arena->used_bytes;
    size_t size = arena->next_chunk_bytes;
    struct chunk *c;

    if (need_bytes > room || room - need_bytes < CHUNK_HEADER) {
        arena->capped = true;
        return false;
    }
    if (size < need_bytes + need_bytes / 2)
        size = need_bytes + need_bytes / 2; /* leave room to extend a growing string */
    if (size > room - CHUNK_HEADER)
        size = room - CHUNK_HEADER;
    c = malloc(CHUNK_HEADER + size);
    if (!c)
        return false;
    c->next = arena->chunks;
    c->size_bytes = size;
    arena->chunks = c;
    arena->cur = (char *)c + CHUNK_HEADER;
    arena->end = arena->cur + size;
    arena->used_bytes += CHUNK_HEADER + size;
    if (arena->next_chunk_bytes < MAX_CHUNK)
        arena->next_chunk_bytes *= 2;
    return true;
}

void *jinja_arena_alloc(struct jinja_arena *arena, size_t size_bytes, size_t align)
{
    size_t pad;
    void *p;

    if (size_bytes > SIZE_MAX / 4) {
        arena->capped = true;
        return NULL;
    }
    pad = (size_t)(-(uintptr_t)arena->cur) & (align - 1);
    if (!arena->cur || (size_t)(arena->end - arena->cur) < size_bytes + pad) {
        if (!arena_grow(arena, size_bytes + align))
            return NULL;
        pad = (size_t)(-(uintptr_t)arena->cur) & (align - 1);
    }
    p = arena->cur + pad;
    arena->cur += pad + size_bytes;
    return p;
}

bool jinja_arena_extend(struct jinja_arena *arena, const void *end, size_t extra_bytes)
{
    if (!arena->cur || end != arena->cur || (size_t)(arena->end - arena->cur) < extra_bytes)
        return false;
    arena->cur += extra_bytes;
    return true;
}

void jinja_arena_trim(struct jinja_arena *arena, const void *end, const void *new_end)
{
    if (arena->cur && end == arena->cur)
        arena->cur -= (const char *)end - (const char *)new_end;
}

bool jinja_arena_capped(const struct jinja_arena *arena)
{
    return arena->capped;
}

/* ---- strings and lists -------------------------------------------------------------------- */

struct jinja_value jinja_str_trusted(const char *text, uint32_t len_bytes)
{
    struct jinja_value v = {.kind = JINJA_STR, .len = len_bytes, .u.s = text};

    if (jinja_is_ascii(text, len_bytes))
        v.flags = JINJA_F_ASCII;
    return v;
}

bool jinja_str_view(const char *text, size_t len_bytes, struct jinja_value *out)
{
    *out = (struct jinja_value){.kind = JINJA_MISSING};
    if (len_bytes > MAX_STR_BYTES || !jinja_utf8_valid(text, len_bytes))
        return false;
    *out = jinja_str_trusted(text, (uint32_t)len_bytes);
    return true;
}

bool jinja_str_init(struct jinja_arena *arena, const char *text, size_t len_bytes,
                    struct jinja_value *out)
{
    char *copy;

    if (!jinja_str_view(text, len_bytes, out))
        return false;
    copy = jinja_arena_alloc(arena, len_bytes, 1);
    if (!copy) {
        *out = (struct jinja_value){.kind = JINJA_MISSING};
        return false;
    }
    if (len_bytes)
        memcpy(copy, text, len_bytes);
    out->u.s = copy;
    return true;
}

bool jinja_list_init(struct jinja_arena *arena, uint32_t cap, struct jinja_value *out)
{
    struct jinja_list *list;

    *out = (struct jinja_value){.kind = JINJA_MISSING};
    if (cap > MAX_ITEMS)
        return false;
    list = jinja_arena_alloc(arena, sizeof(*list), 8);
    if (!list)
        return false;
    *list = (struct jinja_list){.cap = cap};
    if (cap) {
        list->items = jinja_arena_alloc(arena, cap * sizeof(list->items[0]), 8);
        if (!list->items)
            return false;
    }
    *out = (struct jinja_value){.kind = JINJA_LIST, .u.list = list};
    return true;
}

bool jinja_list_append(struct jinja_arena *arena, struct jinja_list *list, struct jinja_value v)
{
    if (list->count == list->cap) {
        uint32_t cap = list->cap ? list->cap * 2 : 4;
        struct jinja_value *items;

        if (cap > MAX_ITEMS)
            return false;
        if (list->cap && jinja_arena_extend(arena, list->items + list->cap,
                                            (cap - list->cap) * sizeof(*items))) {
            list->cap = cap;
        } else {
            items = jinja_arena_alloc(arena, cap * sizeof(*items), 8);
            if (!items)
                return false;
            if (list->count)
                memcpy(items, list->items, list->count * sizeof(*items));
            list->items = items;
            list->cap = cap;
        }
    }
    list->items[list->count++] = v;
    return true;
}

/* ---- dicts: keys follow Python's equality and hash rules ---------------------------------- */

static uint64_t rotl(uint64_t x, int b)
{
    return (x << b) | (x >> (64 - b));
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = rotl(v[1], 13) ^ v[0];
    v[0] = rotl(v[0], 32);
    v[2] += v[3];
    v[3] = rotl(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotl(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotl(v[1], 17) ^ v[2];
    v[2] = rotl(v[2], 32);
}

/* SipHash-1-3 (Aumasson and Bernstein): cheap, and keyed so that keys cannot be chosen to collide.
 */
static uint64_t sip13(const uint64_t key[2], const void *data, size_t len)
{
    uint64_t v[4] = {key[0] ^ 0x736f6d6570736575u, key[1] ^ 0x646f72616e646f6du,
                     key[0] ^ 0x6c7967656e657261u, key[1] ^ 0x7465646279746573u};
    const unsigned char *p = data;
    uint64_t m;
    size_t i;

    for (; len - (size_t)(p - (const unsigned char *)data) >= 8; p += 8) {
        memcpy(&m, p, 8);
        v[3] ^= m;
        sip_round(v);
        v[0] ^= m;
    }
    m = (uint64_t)len << 56;
    for (i = 0; i < (len & 7); i++)
        m |= (uint64_t)p[i] << (8 * i);
    v[3] ^= m;
    sip_round(v);
    v[0] ^= m;
    v[2] ^= 0xff;
    for (i = 0; i < 3; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

static bool hashable_at(const struct jinja_value *v, int depth)
{
    uint32_t i;

    if (v->kind == JINJA_TUPLE) {
        if (depth >= KEY_DEPTH)
            return false;
        for (i = 0; i < v->u.list->count; i++)
            if (!hashable_at(&v->u.list->items[i], depth + 1))
                return false;
        return true;
    }
    return v->kind == JINJA_NONE || v->kind == JINJA_BOOL || v->kind == JINJA_INT ||
           v->kind == JINJA_FLOAT || v->kind == JINJA_STR || v->kind == JINJA_BIGINT ||
           v->kind == JINJA_UNDEFINED;
}

bool jinja_hashable(const struct jinja_value *v)
{
    return hashable_at(v, 0);
}

static bool is_number(const struct jinja_value *v)
{
    return v->kind == JINJA_BOOL || v->kind == JINJA_INT || v->kind == JINJA_FLOAT;
}

static bool float_is_int(double f, int64_t *out)
{
    if (!(f >= -9223372036854775808.0 && f < 9223372036854775808.0) || f != floor(f))
        return false;
    *out = (int64_t)f;
    return true;
}

static bool number_equal(const struct jinja_value *a, const struct jinja_value *b)
{
    int64_t x = 0, y = 0;

    if (a->kind == JINJA_FLOAT && b->kind == JINJA_FLOAT)
        return a->u.f == b->u.f;
    if (a->kind == JINJA_FLOAT) {
        if (!float_is_int(a->u.f, &x))
            return false;
    } else {
        x = a->kind == JINJA_BOOL ? a->u.b : a->u.i;
    }
    if (b->kind == JINJA_FLOAT) {
        if (!float_is_int(b->u.f, &y))
            return false;
    } else {
        y = b->kind == JINJA_BOOL ? b->u.b : b->u.i;
    }
    return x == y;
}

bool jinja_key_equal(const struct jinja_value *a, const struct jinja_value *b)
{
    uint32_t i;

    if (is_number(a) && is_number(b))
        return number_equal(a, b);
    if (a->kind != b->kind)
        return false;
    if (a->kind == JINJA_STR || a->kind == JINJA_BIGINT)
        return a->len == b->len && (!a->len || memcmp(a->u.s, b->u.s, a->len) == 0);
    if (a->kind == JINJA_TUPLE) {
        if (a->u.list->count != b->u.list->count)
            return false;
        for (i = 0; i < a->u.list->count; i++)
            if (!jinja_key_equal(&a->u.list->items[i], &b->u.list->items[i]))
                return false;
        return true;
    }
    return a->kind == JINJA_NONE || a->kind == JINJA_UNDEFINED;
}

static uint64_t hash_value(const uint64_t key[2], const struct jinja_value *v)
{
    uint64_t h = v->kind, part;
    int64_t n;
    uint32_t i;

    switch (v->kind) {
    case JINJA_STR:
    case JINJA_BIGINT:
        return sip13(key, v->u.s, v->len);
    case JINJA_BOOL:
        n = v->u.b;
        return sip13(key, &n, sizeof(n));
    case JINJA_INT:
        return sip13(key, &v->u.i, sizeof(v->u.i));
    case JINJA_FLOAT:
        if (float_is_int(v->u.f, &n))
            return sip13(key, &n, sizeof(n));
        return sip13(key, &v->u.f, sizeof(v->u.f));
    case JINJA_TUPLE:
        for (i = 0; i < v->u.list->count; i++) {
            part = hash_value(key, &v->u.list->items[i]);
            h = sip13(key, &part, sizeof(part)) ^ rotl(h, 7);
        }
        return h;
    default:
        return h;
    }
}

/* The index carries its own key, so a dict can be read without its arena: two words in front. */
static const uint64_t *index_key(const struct jinja_dict *dict)
{
    return (const uint64_t *)(const void *)dict->index - 2;
}

static bool build_index(struct jinja_arena *arena, struct jinja_dict *dict)
{
    uint32_t cap = 32, i, at;
    uint64_t *mem;

    while (cap < dict->cap * 2)
        cap *= 2;
    mem = jinja_arena_alloc(arena, 16 + (size_t)cap * sizeof(uint32_t), 8);
    if (!mem)
        return false;
    memcpy(mem, arena->hash_key, 16);
    dict->index = (uint32_t *)(void *)(mem + 2);
    dict->index_cap = cap;
    memset(dict->index, 0, (size_t)cap * sizeof(uint32_t));
    for (i = 0; i < dict->count; i++) {
        at = (uint32_t)hash_value(mem, &dict->pairs[i].key) & (cap - 1);
        while (dict->index[at])
            at = (at + 1) & (cap - 1);
        dict->index[at] = i + 1;
    }
    return true;
}

static struct jinja_pair *find_pair(const struct jinja_dict *dict, const struct jinja_value *key)
{
    uint32_t i, at;

    if (!dict->index) {
        for (i = 0; i < dict->count; i++)
            if (jinja_key_equal(&dict->pairs[i].key, key))
                return &dict->pairs[i];
        return NULL;
    }
    at = (uint32_t)hash_value(index_key(dict), key) & (dict->index_cap - 1);
    for (; dict->index[at]; at = (at + 1) & (dict->index_cap - 1))
        if (jinja_key_equal(&dict->pairs[dict->index[at] - 1].key, key))
            return &dict->pairs[dict->index[at] - 1];
    return NULL;
}

bool jinja_dict_init(struct jinja_arena *arena, uint32_t cap, struct jinja_value *out)
{
    struct jinja_dict *dict;

    *out = (struct jinja_value){.kind = JINJA_MISSING};
    if (cap > MAX_ITEMS)
        return false;
    dict = jinja_arena_alloc(arena, sizeof(*dict), 8);
    if (!dict)
        return false;
    *dict = (struct jinja_dict){.cap = cap};
    if (cap) {
        dict->pairs = jinja_arena_alloc(arena, cap * sizeof(dict->pairs[0]), 8);
        if (!dict->pairs)
            return false;
    }
    *out = (struct jinja_value){.kind = JINJA_DICT, .u.dict = dict};
    return true;
}

bool jinja_dict_put(struct jinja_arena *arena, struct jinja_dict *dict, struct jinja_value key,
                    struct jinja_value value)
{
    struct jinja_pair *pair = find_pair(dict, &key);
    uint32_t at;

    if (pair) {
        pair->value = value;
        return true;
    }
    if (dict->count == dict->cap) {
        uint32_t cap = dict->cap ? dict->cap * 2 : 4;
        struct jinja_pair *pairs;

        if (cap > MAX_ITEMS)
            return false;
        pairs = jinja_arena_alloc(arena, cap * sizeof(*pairs), 8);
        if (!pairs)
            return false;
        if (dict->count)
            memcpy(pairs, dict->pairs, dict->count * sizeof(*pairs));
        dict->pairs = pairs;
        dict->cap = cap;
        dict->index = NULL;
    }
    if (!dict->index && dict->count >= SMALL_DICT && !build_index(arena, dict))
        return false;
    dict->pairs[dict->count++] = (struct jinja_pair){.key = key, .value = value};
    if (dict->index) {
        at = (uint32_t)hash_value(index_key(dict), &key) & (dict->index_cap - 1);
        while (dict->index[at])
            at = (at + 1) & (dict->index_cap - 1);
        dict->index[at] = dict->count;
    }
    return true;
}

bool jinja_dict_put_name(struct jinja_arena *arena, struct jinja_dict *dict, const char *key,
                         struct jinja_value value)
{
    struct jinja_value k;

    return jinja_str_view(key, strlen(key), &k) && jinja_dict_put(arena, dict, k, value);
}

const struct jinja_value *jinja_dict_find(const struct jinja_dict *dict,
                                          const struct jinja_value *key)
{
    const struct jinja_pair *pair = find_pair(dict, key);

    return pair ? &pair->value : NULL;
}

const struct jinja_value *jinja_dict_find_str(const struct jinja_dict *dict, const char *key,
                                              size_t len_bytes)
{
    struct jinja_value k = {.kind = JINJA_STR, .u.s = key};

    if (len_bytes > MAX_STR_BYTES)
        return NULL;
    k.len = (uint32_t)len_bytes;
    return jinja_dict_find(dict, &k);
}
