// SPDX-License-Identifier: Apache-2.0
/*
 * Values of the template engine and the arena they live in.
 *
 * A value is 16 bytes, copied freely; strings, lists and dicts point into an arena (or, for string
 * views, into memory of the caller that must outlive every use). Nothing is freed singly: destroy
 * the arena. Values that a template can see are never changed once built, except namespaces, which
 * only a render makes; so a context can serve several renders and threads at once.
 *
 * Strings are valid UTF-8 always: the constructors check. Dicts keep insertion order and are hashed
 * with a per-arena random key, so hostile keys cost no more than others; no result depends on it.
 */
#ifndef INFC_RUNTIME_TEXT_JINJA_VALUE_H
#define INFC_RUNTIME_TEXT_JINJA_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum jinja_kind {
    JINJA_MISSING = 0, /* internal: a slot without a value, an argument not given */
    JINJA_UNDEFINED,
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    JINJA_BIGINT, /* an integer outside 64 bits, as its decimal text: prints, does not calculate */
    JINJA_FLOAT,
    JINJA_STR,
    JINJA_LIST,
    JINJA_TUPLE,
    JINJA_DICT,
    /* The rest are made by a render only. */
    JINJA_KEYS, /* dict views: a struct jinja_list */
    JINJA_VALUES,
    JINJA_ITEMS,
    JINJA_GEN, /* one-shot iterator */
    JINJA_RANGE,
    JINJA_NAMESPACE, /* a struct jinja_dict that `set ns.x` may change */
    JINJA_MACRO,
    JINJA_METHOD,
    JINJA_FUNC,
    JINJA_LOOP,
    JINJA_CYCLER,
    JINJA_JOINER,
    JINJA_KIND_COUNT
};

/* flags */
#define JINJA_F_ASCII 1u  /* string: every byte below 0x80, so bytes are characters */
#define JINJA_F_MARKUP 2u /* string: marked safe; `+` escapes its other side (markupsafe) */
#define JINJA_F_GROUP 4u  /* tuple: a groupby result with .grouper and .list */

struct jinja_value {
    uint8_t kind;
    uint8_t flags;
    uint16_t id;  /* undefined: enum of the message form; function: index of its table row */
    uint32_t len; /* string, big integer: bytes of its text */
    union {
        bool b;
        int64_t i;
        double f;
        const char *s;
        struct jinja_list *list;
        struct jinja_dict *dict;
        struct jinja_gen *gen;
        struct jinja_range *range;
        struct jinja_macro *macro;
        struct jinja_method *method;
        struct jinja_loop *loop;
        struct jinja_cycler *cycler;
    } u;
};

struct jinja_list {
    uint32_t count, cap;
    struct jinja_value *items;
};

struct jinja_pair {
    struct jinja_value key, value;
};

/* index is an open-addressing table of pair numbers + 1, made once there are more than 8 pairs. */
struct jinja_dict {
    uint32_t count, cap;
    uint32_t index_cap;
    struct jinja_pair *pairs;
    uint32_t *index;
};

struct jinja_arena;

/* cap_bytes bounds the sum of all allocations. NULL when there is no memory. */
struct jinja_arena *jinja_arena_create(size_t cap_bytes);
void jinja_arena_destroy(struct jinja_arena *arena);
/* NULL when the cap is reached or there is no memory. align is 1 or 8. */
void *jinja_arena_alloc(struct jinja_arena *arena, size_t size_bytes, size_t align);
/* If the allocation ending at `end` is the newest and there is room behind it, grows it in place.
 */
bool jinja_arena_extend(struct jinja_arena *arena, const void *end, size_t extra_bytes);
/* Gives back the tail of the newest allocation, which ended at `end` and now ends at `new_end`. */
void jinja_arena_trim(struct jinja_arena *arena, const void *end, const void *new_end);
/* Whether an allocation failed because of the cap, not for want of memory. */
bool jinja_arena_capped(const struct jinja_arena *arena);

static inline struct jinja_value jinja_none(void)
{
    return (struct jinja_value){.kind = JINJA_NONE};
}
static inline struct jinja_value jinja_bool(bool b)
{
    return (struct jinja_value){.kind = JINJA_BOOL, .u.b = b};
}
static inline struct jinja_value jinja_int(int64_t i)
{
    return (struct jinja_value){.kind = JINJA_INT, .u.i = i};
}
static inline struct jinja_value jinja_float(double f)
{
    return (struct jinja_value){.kind = JINJA_FLOAT, .u.f = f};
}

/* Every constructor below returns false when memory or the cap runs out, when a string is not valid
 * UTF-8 or is longer than UINT32_MAX / 2 bytes; *out is then JINJA_MISSING. */

/* Copies the text. */
bool jinja_str_init(struct jinja_arena *arena, const char *text, size_t len_bytes,
                    struct jinja_value *out);
/* Points at the caller's text, which must outlive the value. */
bool jinja_str_view(const char *text, size_t len_bytes, struct jinja_value *out);
/* For text already known to be valid UTF-8: never fails. */
struct jinja_value jinja_str_trusted(const char *text, uint32_t len_bytes);

bool jinja_list_init(struct jinja_arena *arena, uint32_t cap, struct jinja_value *out);
bool jinja_list_append(struct jinja_arena *arena, struct jinja_list *list, struct jinja_value v);

bool jinja_dict_init(struct jinja_arena *arena, uint32_t cap, struct jinja_value *out);
/* Adds or replaces; a replaced key keeps its place. key must be hashable (see jinja_hash). */
bool jinja_dict_put(struct jinja_arena *arena, struct jinja_dict *dict, struct jinja_value key,
                    struct jinja_value value);
/* Convenience for building contexts: a NUL-terminated key of the caller that outlives the dict. */
bool jinja_dict_put_name(struct jinja_arena *arena, struct jinja_dict *dict, const char *key,
                         struct jinja_value value);
/* NULL when absent. */
const struct jinja_value *jinja_dict_find(const struct jinja_dict *dict,
                                          const struct jinja_value *key);
const struct jinja_value *jinja_dict_find_str(const struct jinja_dict *dict, const char *key,
                                              size_t len_bytes);

/* Python equality of two hashable values (numbers across types, strings, None, flat or nested
 * tuples of them up to a fixed depth); false for any other pair. */
bool jinja_key_equal(const struct jinja_value *a, const struct jinja_value *b);
/* Whether the value may be a dict key. */
bool jinja_hashable(const struct jinja_value *v);

#endif
