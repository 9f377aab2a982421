// SPDX-License-Identifier: Apache-2.0
/* Reading values: attributes, items, slices, iteration; making lists and undefined values. */
#include <string.h>

#include "runtime/text/jinja_rt.h"
#include "runtime/text/jinja_unicode.h"

/* ---- making values ------------------------------------------------------------------------- */

bool jinja_make_list(struct jinja_rt *rt, uint32_t cap, struct jinja_value *out)
{
    return jinja_list_init(rt->arena, cap, out) || jinja_fail_memory(rt);
}

bool jinja_push(struct jinja_rt *rt, struct jinja_list *list, const struct jinja_value *v)
{
    return jinja_list_append(rt->arena, list, *v) || jinja_fail_memory(rt);
}

bool jinja_make_tuple2(struct jinja_rt *rt, const struct jinja_value *a,
                       const struct jinja_value *b, struct jinja_value *out)
{
    struct jinja_value x = *a, y = *b;

    if (!jinja_make_list(rt, 2, out))
        return false;
    out->kind = JINJA_TUPLE;
    out->u.list->items[0] = x;
    out->u.list->items[1] = y;
    out->u.list->count = 2;
    return true;
}

bool jinja_make_gen(struct jinja_rt *rt, struct jinja_list *list, const char *type_name,
                    struct jinja_value *out)
{
    struct jinja_gen *gen = jinja_alloc(rt, sizeof(*gen));

    if (!gen)
        return false;
    *gen = (struct jinja_gen){.list = list, .type_name = type_name};
    *out = (struct jinja_value){.kind = JINJA_GEN, .u.gen = gen};
    return true;
}

static bool charge_key(struct jinja_rt *rt, const struct jinja_value *v, int depth)
{
    uint32_t i;

    if (v->kind == JINJA_STR)
        return jinja_charge(rt, v->len);
    /* Deeper tuples are no keys, so their inside does not matter. */
    if (v->kind != JINJA_TUPLE || depth > 16)
        return true;
    for (i = 0; i < v->u.list->count; i++)
        if (!jinja_charge(rt, 0) || !charge_key(rt, &v->u.list->items[i], depth + 1))
            return false;
    return true;
}

bool jinja_check_key(struct jinja_rt *rt, const struct jinja_value *v, bool *out_hashable)
{
    if (!charge_key(rt, v, 0))
        return false;
    *out_hashable = jinja_hashable(v);
    return true;
}

bool jinja_dict_set(struct jinja_rt *rt, struct jinja_dict *dict, const struct jinja_value *key,
                    const struct jinja_value *value)
{
    bool hashable;

    if (!jinja_check_key(rt, key, &hashable))
        return false;
    if (!hashable)
        return jinja_fail(rt, JINJA_ERR_TYPE, "unhashable type: '%s'", jinja_type_name(key));
    return jinja_dict_put(rt->arena, dict, *key, *value) || jinja_fail_memory(rt);
}

struct jinja_value jinja_undefined_name(const char *name, uint32_t len)
{
    return (struct jinja_value){
        .kind = JINJA_UNDEFINED, .id = JINJA_UNDEF_NAME, .len = len, .u.s = name};
}

struct jinja_value jinja_undefined_hint(const char *literal)
{
    return (struct jinja_value){.kind = JINJA_UNDEFINED,
                                .id = JINJA_UNDEF_HINT,
                                .len = (uint32_t)strlen(literal),
                                .u.s = literal};
}

static struct jinja_value undefined_attr(const struct jinja_value *obj,
                                         const struct jinja_value *name)
{
    return (struct jinja_value){.kind = JINJA_UNDEFINED,
                                .id = (uint16_t)(JINJA_UNDEF_ATTR | obj->kind << 8),
                                .len = name->len,
                                .u.s = name->u.s};
}

static bool undefined_item(struct jinja_rt *rt, const struct jinja_value *obj,
                           const struct jinja_value *key, struct jinja_value *out)
{
    struct jinja_sb sb = {.rt = rt};
    const char *type = obj->kind == JINJA_NONE ? "None" : jinja_type_name(obj);
    struct jinja_value text;

    if (key->kind == JINJA_STR) {
        *out = undefined_attr(obj, key);
        return true;
    }
    if (!jinja_sb_put(&sb, type, strlen(type)) ||
        (obj->kind != JINJA_NONE && !jinja_sb_put(&sb, " object", 7)) ||
        !jinja_sb_put(&sb, " has no element ", 16) || !jinja_put_repr(&sb, key))
        return false;
    text = jinja_sb_finish(&sb, 0);
    *out = (struct jinja_value){
        .kind = JINJA_UNDEFINED, .id = JINJA_UNDEF_HINT, .len = text.len, .u.s = text.u.s};
    return true;
}

static bool undefined_unsafe(struct jinja_rt *rt, const struct jinja_value *obj,
                             const struct jinja_value *name, struct jinja_value *out)
{
    struct jinja_sb sb = {.rt = rt};
    const char *type = jinja_type_name(obj);
    struct jinja_value text;

    if (!jinja_sb_put(&sb, "access to attribute '", 21) ||
        !jinja_sb_put(&sb, name->u.s, name->len) || !jinja_sb_put(&sb, "' of '", 6) ||
        !jinja_sb_put(&sb, type, strlen(type)) || !jinja_sb_put(&sb, "' object is unsafe.", 19))
        return false;
    text = jinja_sb_finish(&sb, 0);
    *out = (struct jinja_value){
        .kind = JINJA_UNDEFINED, .id = JINJA_UNDEF_UNSAFE, .len = text.len, .u.s = text.u.s};
    return true;
}

/* ---- lengths and iteration ----------------------------------------------------------------- */

bool jinja_length(struct jinja_rt *rt, const struct jinja_value *v, int64_t *out)
{
    switch (v->kind) {
    case JINJA_UNDEFINED:
        *out = 0;
        return true;
    case JINJA_STR:
        *out = v->flags & JINJA_F_ASCII ? v->len : (int64_t)jinja_utf8_count(v->u.s, v->len);
        return jinja_charge(rt, v->flags & JINJA_F_ASCII ? 0 : v->len);
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_KEYS:
    case JINJA_VALUES:
    case JINJA_ITEMS:
        *out = v->u.list->count;
        return true;
    case JINJA_DICT:
        *out = v->u.dict->count;
        return true;
    case JINJA_RANGE:
        *out = v->u.range->count;
        return true;
    case JINJA_LOOP:
        return jinja_loop_length(rt, v->u.loop, out);
    default:
        return jinja_fail(rt, JINJA_ERR_TYPE, "object of type '%s' has no len()",
                          jinja_type_name(v));
    }
}

bool jinja_iterable(const struct jinja_value *v)
{
    switch (v->kind) {
    case JINJA_UNDEFINED:
    case JINJA_STR:
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_DICT:
    case JINJA_KEYS:
    case JINJA_VALUES:
    case JINJA_ITEMS:
    case JINJA_GEN:
    case JINJA_RANGE:
        return true;
    default:
        return false;
    }
}

static bool string_items(struct jinja_rt *rt, const struct jinja_value *v, struct jinja_list *list)
{
    size_t at = 0, n;
    uint32_t cp;
    struct jinja_value c;

    for (; at < v->len; at += n) {
        n = jinja_utf8_decode(v->u.s + at, &cp);
        c = jinja_str_trusted(v->u.s + at, (uint32_t)n);
        if (!jinja_push(rt, list, &c))
            return false;
    }
    return true;
}

bool jinja_items(struct jinja_rt *rt, const struct jinja_value *v, struct jinja_list **out)
{
    struct jinja_value made, item;
    uint32_t i;

    switch (v->kind) {
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_KEYS:
    case JINJA_VALUES:
    case JINJA_ITEMS:
        *out = v->u.list;
        return jinja_charge(rt, v->u.list->count);
    default:
        break;
    }
    if (!jinja_iterable(v))
        return jinja_fail(rt, JINJA_ERR_TYPE, "'%s' object is not iterable", jinja_type_name(v));
    if (!jinja_make_list(rt, 0, &made))
        return false;
    *out = made.u.list;
    switch (v->kind) {
    case JINJA_STR:
        return jinja_charge(rt, (size_t)v->len * 8) && string_items(rt, v, made.u.list);
    case JINJA_DICT:
        for (i = 0; i < v->u.dict->count; i++)
            if (!jinja_push(rt, made.u.list, &v->u.dict->pairs[i].key))
                return false;
        return jinja_charge(rt, (size_t)i * 8);
    case JINJA_GEN:
        made.u.list->items = v->u.gen->list->items + v->u.gen->pos;
        made.u.list->count = v->u.gen->list->count - v->u.gen->pos;
        /* Full, so that an append would copy and not write behind. */
        made.u.list->cap = made.u.list->count;
        v->u.gen->pos = v->u.gen->list->count;
        return jinja_charge(rt, made.u.list->count);
    case JINJA_RANGE:
        for (i = 0; i < v->u.range->count; i++) {
            item = jinja_int(v->u.range->start + v->u.range->step * (int64_t)i);
            if (!jinja_push(rt, made.u.list, &item))
                return false;
        }
        return jinja_charge(rt, (size_t)i * 8);
    default: /* undefined: empty */
        return true;
    }
}

/* ---- attributes and items ------------------------------------------------------------------ */

static bool loop_attr(struct jinja_rt *rt, struct jinja_loop *loop, const struct jinja_value *name,
                      struct jinja_value *out, bool *found)
{
#define IS(text) (name->len == sizeof(text) - 1 && memcmp(name->u.s, text, sizeof(text) - 1) == 0)
    int64_t n;

    *found = true;
    if (IS("index0")) {
        *out = jinja_int(loop->index0);
    } else if (IS("index")) {
        *out = jinja_int(loop->index0 + 1);
    } else if (IS("first")) {
        *out = jinja_bool(loop->index0 == 0);
    } else if (IS("last")) {
        if (!jinja_loop_peek(rt, loop, out))
            return false;
        *out = jinja_bool(out->kind == JINJA_MISSING);
    } else if (IS("length") || IS("revindex") || IS("revindex0")) {
        if (!jinja_loop_length(rt, loop, &n))
            return false;
        *out = jinja_int(IS("length") ? n : n - loop->index0 - (name->len == 9));
    } else if (IS("previtem")) {
        *out = loop->index0 == 0 ? jinja_undefined_hint("there is no previous item") : loop->before;
    } else if (IS("nextitem")) {
        if (!jinja_loop_peek(rt, loop, out))
            return false;
        if (out->kind == JINJA_MISSING)
            *out = jinja_undefined_hint("there is no next item");
    } else if (IS("depth")) {
        *out = jinja_int(1);
    } else if (IS("depth0")) {
        *out = jinja_int(0);
    } else {
        *found = false;
    }
    return true;
#undef IS
}

/* The Python attributes of a value: methods, and fields of our own objects. *found false: none. */
static bool own_attr(struct jinja_rt *rt, const struct jinja_value *obj,
                     const struct jinja_value *name, struct jinja_value *out, bool *found)
{
    const struct jinja_row *row;
    const struct jinja_value *v;
    struct jinja_method *method;

    *found = true;
    if (obj->kind == JINJA_NAMESPACE) {
        v = jinja_dict_find(obj->u.dict, name);
        *found = v != NULL;
        if (v)
            *out = *v;
        return true;
    }
    if (obj->kind == JINJA_LOOP) {
        if (!loop_attr(rt, obj->u.loop, name, out, found) || *found)
            return *found;
    }
    if (obj->flags & JINJA_F_GROUP && obj->kind == JINJA_TUPLE) {
        if (name->len == 7 && memcmp(name->u.s, "grouper", 7) == 0) {
            *out = obj->u.list->items[0];
            return true;
        }
        if (name->len == 4 && memcmp(name->u.s, "list", 4) == 0) {
            *out = obj->u.list->items[1];
            return true;
        }
    }
    row = jinja_find_method(obj, name->u.s, name->len);
    *found = row != NULL;
    if (!row)
        return true;
    if (row->unsafe)
        return undefined_unsafe(rt, obj, name, out);
    method = jinja_alloc(rt, sizeof(*method));
    if (!method)
        return false;
    method->self = *obj;
    method->row = row;
    *out = (struct jinja_value){.kind = JINJA_METHOD, .u.method = method};
    return true;
}

/* *out is NULL when there is no such item. */
static bool dict_item(struct jinja_rt *rt, const struct jinja_value *obj,
                      const struct jinja_value *key, const struct jinja_value **out)
{
    bool hashable;

    *out = NULL;
    if (obj->kind != JINJA_DICT)
        return true;
    if (!jinja_check_key(rt, key, &hashable))
        return false;
    if (hashable)
        *out = jinja_dict_find(obj->u.dict, key);
    return true;
}

bool jinja_getattr(struct jinja_rt *rt, const struct jinja_value *obj,
                   const struct jinja_value *name, struct jinja_value *out)
{
    const struct jinja_value o = *obj, *v;
    bool found;

    if (o.kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(rt, &o);
    if (!own_attr(rt, &o, name, out, &found))
        return false;
    if (found)
        return true;
    if (!dict_item(rt, &o, name, &v))
        return false;
    *out = v ? *v : undefined_attr(&o, name);
    return true;
}

/* Byte range of character `index` (may be negative); false when out of range. */
static bool char_at(const struct jinja_value *v, int64_t index, size_t *from, size_t *to)
{
    int64_t n;
    const char *p, *end = v->u.s + v->len;
    uint32_t cp;

    if (v->flags & JINJA_F_ASCII) {
        n = index < 0 ? index + v->len : index;
        if (n < 0 || n >= v->len)
            return false;
        *from = (size_t)n;
        *to = *from + 1;
        return true;
    }
    if (index < 0) {
        for (p = end, n = 0; n > index && p > v->u.s; n--)
            p = jinja_utf8_prev(p);
        if (n > index)
            return false;
    } else {
        for (p = v->u.s, n = 0; n < index && p < end; n++)
            p += jinja_utf8_decode(p, &cp);
        if (p >= end)
            return false;
    }
    *from = (size_t)(p - v->u.s);
    *to = *from + jinja_utf8_decode(p, &cp);
    return true;
}

/* obj[key] of Python where the object has it; *found false for TypeError and LookupError. */
static bool raw_item(struct jinja_rt *rt, const struct jinja_value *obj,
                     const struct jinja_value *key, struct jinja_value *out, bool *found)
{
    const struct jinja_value *v;
    int64_t i;
    size_t from, to;

    *found = false;
    switch (obj->kind) {
    case JINJA_DICT:
        if (!dict_item(rt, obj, key, &v))
            return false;
        *found = v != NULL;
        if (v)
            *out = *v;
        return true;
    case JINJA_LIST:
    case JINJA_TUPLE:
        if (!jinja_as_int(key, &i))
            return true;
        if (i < 0)
            i += obj->u.list->count;
        *found = i >= 0 && i < obj->u.list->count;
        if (*found)
            *out = obj->u.list->items[i];
        return true;
    case JINJA_STR:
        if (!jinja_as_int(key, &i))
            return true;
        *found = char_at(obj, i, &from, &to);
        if (*found)
            *out = jinja_substr(obj, from, to);
        return jinja_charge(rt, obj->flags & JINJA_F_ASCII ? 0 : obj->len);
    case JINJA_RANGE:
        if (!jinja_as_int(key, &i))
            return true;
        if (i < 0)
            i += obj->u.range->count;
        *found = i >= 0 && i < obj->u.range->count;
        if (*found)
            *out = jinja_int(obj->u.range->start + obj->u.range->step * i);
        return true;
    default:
        return true;
    }
}

bool jinja_getitem(struct jinja_rt *rt, const struct jinja_value *obj,
                   const struct jinja_value *key, struct jinja_value *out)
{
    const struct jinja_value o = *obj, k = *key;
    bool found;

    if (o.kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(rt, &o);
    if (!raw_item(rt, &o, &k, out, &found))
        return false;
    if (!found && k.kind == JINJA_STR && !own_attr(rt, &o, &k, out, &found))
        return false;
    return found || undefined_item(rt, &o, &k, out);
}

/* ---- slices -------------------------------------------------------------------------------- */

static bool slice_index(struct jinja_rt *rt, const struct jinja_value *v, bool *given, int64_t *out)
{
    *given = v->kind != JINJA_MISSING && v->kind != JINJA_NONE;
    if (!*given || jinja_as_int(v, out))
        return true;
    if (v->kind == JINJA_UNDEFINED)
        return jinja_fail(rt, JINJA_ERR_TYPE,
                          "slice indices must be integers or None or have an __index__ method");
    return jinja_fail(rt, JINJA_ERR_TYPE,
                      "slice indices must be integers or None or have an __index__ method, not %s",
                      jinja_type_name(v));
}

static int64_t clamp(int64_t i, int64_t n, int64_t lo, int64_t hi)
{
    if (i < 0)
        i = i < -n ? lo : i + n;
    return i < lo ? lo : i > hi ? hi : i;
}

struct span {
    int64_t start, step, count;
};

/* Python's slice.indices for a length n. */
static bool slice_span(struct jinja_rt *rt, const struct jinja_value *start,
                       const struct jinja_value *stop, const struct jinja_value *step, int64_t n,
                       struct span *out)
{
    int64_t a = 0, b = 0, s = 1;
    bool has_a, has_b, has_s;

    if (!slice_index(rt, start, &has_a, &a) || !slice_index(rt, stop, &has_b, &b) ||
        !slice_index(rt, step, &has_s, &s))
        return false;
    if (has_s && s == 0)
        return jinja_fail(rt, JINJA_ERR_TYPE, "slice step cannot be zero");
    if (s < -INT64_MAX)
        s = -INT64_MAX;
    if (s > 0) {
        a = has_a ? clamp(a, n, 0, n) : 0;
        b = has_b ? clamp(b, n, 0, n) : n;
        out->count = b > a ? (b - a - 1) / s + 1 : 0;
    } else {
        a = has_a ? clamp(a, n, -1, n - 1) : n - 1;
        b = has_b ? clamp(b, n, -1, n - 1) : -1;
        out->count = a > b ? (a - b - 1) / -s + 1 : 0;
    }
    out->start = a;
    out->step = s;
    return true;
}

static bool slice_string(struct jinja_rt *rt, const struct jinja_value *v, const struct span *span,
                         struct jinja_value *out)
{
    struct jinja_sb sb = {.rt = rt};
    size_t from = 0, to = v->len;
    struct jinja_list *chars;
    int64_t i;

    if (!jinja_charge(rt, v->len))
        return false;
    if (span->count == 0) {
        *out = jinja_substr(v, 0, 0);
        return true;
    }
    if (v->flags & JINJA_F_ASCII && span->step == 1) {
        *out = jinja_substr(v, (size_t)span->start, (size_t)(span->start + span->count));
        return true;
    }
    if (span->step == 1) {
        size_t unused;

        char_at(v, span->start, &from, &unused);
        char_at(v, span->start + span->count - 1, &unused, &to);
        *out = jinja_substr(v, from, to);
        return true;
    }
    if (!jinja_items(rt, v, &chars))
        return false;
    for (i = 0; i < span->count; i++) {
        const struct jinja_value *c = &chars->items[span->start + span->step * i];

        if (!jinja_sb_put(&sb, c->u.s, c->len))
            return false;
    }
    *out = jinja_sb_finish(&sb, v->flags & JINJA_F_MARKUP);
    return true;
}

bool jinja_slice(struct jinja_rt *rt, const struct jinja_value *obj,
                 const struct jinja_value *start, const struct jinja_value *stop,
                 const struct jinja_value *step, struct jinja_value *out)
{
    const struct jinja_value o = *obj;
    struct span span = {0};
    int64_t n, i;

    if (o.kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(rt, &o);
    if (o.kind == JINJA_DICT)
        return jinja_fail(rt, JINJA_ERR_TYPE, "unhashable type: 'slice'");
    if (o.kind != JINJA_STR && o.kind != JINJA_LIST && o.kind != JINJA_TUPLE &&
        o.kind != JINJA_RANGE)
        return jinja_fail(rt, JINJA_ERR_TYPE, "'%s' object is not subscriptable",
                          jinja_type_name(&o));
    if (!jinja_length(rt, &o, &n) || !slice_span(rt, start, stop, step, n, &span))
        return false;
    if (o.kind == JINJA_STR)
        return slice_string(rt, &o, &span, out);
    if (o.kind == JINJA_RANGE)
        return jinja_fail(rt, JINJA_ERR_UNSUPPORTED, "slices of a range are not supported");
    if (!jinja_charge(rt, (size_t)span.count * sizeof(o)) ||
        !jinja_make_list(rt, (uint32_t)span.count, out))
        return false;
    for (i = 0; i < span.count; i++)
        out->u.list->items[i] = o.u.list->items[span.start + span.step * i];
    out->u.list->count = (uint32_t)span.count;
    out->kind = o.kind;
    return true;
}
