// SPDX-License-Identifier: Apache-2.0
/* Filters that work on sequences and mappings. */
#include <string.h>

#include "runtime/text/jinja_builtins.h"
#include "runtime/text/jinja_table.h"
#include "runtime/text/jinja_unicode.h"

#define FILTER(name) bool jinja_filter_##name(JINJA_PARAMS)

/* ---- attribute paths: "a.b.0", an index, or none ------------------------------------------- */

static bool ignore_case(struct jinja_rt *rt, const struct jinja_value *v, struct jinja_value *out)
{
    if (v->kind == JINJA_STR)
        return jinja_lower(rt, v, out);
    *out = *v;
    return true;
}

/* One part of a path: a number where it is all digits. */
static bool path_part(struct jinja_rt *rt, const struct jinja_value *path, size_t from, size_t to,
                      struct jinja_value *out)
{
    int64_t n;
    bool overflow;
    size_t i;

    *out = jinja_substr(path, from, to);
    for (i = 0; i < out->len; i++)
        if (out->u.s[i] < '0' || out->u.s[i] > '9')
            return true;
    if (out->len && jinja_parse_int(out, 10, &n, &overflow)) {
        if (overflow)
            return jinja_fail(rt, JINJA_ERR_UNSUPPORTED, "integer does not fit 64 bits");
        *out = jinja_int(n);
    }
    return true;
}

static bool follow_path(struct jinja_rt *rt, const struct jinja_value *item,
                        const struct jinja_value *path, size_t from, size_t end,
                        struct jinja_value *out)
{
    const char *dot;
    struct jinja_value part;
    size_t to;

    *out = *item;
    for (;; from = to + 1) {
        dot = memchr(path->u.s + from, '.', end - from);
        to = dot ? (size_t)(dot - path->u.s) : end;
        if (!path_part(rt, path, from, to, &part) || !jinja_getitem(rt, out, &part, out))
            return false;
        if (!dot)
            return true;
    }
}

/* item by attribute (MISSING or None: the item itself). */
static bool get_attr(struct jinja_rt *rt, const struct jinja_value *item,
                     const struct jinja_value *attribute, struct jinja_value *out)
{
    if (attribute->kind == JINJA_MISSING || attribute->kind == JINJA_NONE) {
        *out = *item;
        return true;
    }
    if (attribute->kind == JINJA_STR)
        return follow_path(rt, item, attribute, 0, attribute->len, out);
    return jinja_getitem(rt, item, attribute, out);
}

static bool get_key(struct jinja_rt *rt, const struct jinja_value *item,
                    const struct jinja_value *attribute, bool case_sensitive,
                    struct jinja_value *out)
{
    return get_attr(rt, item, attribute, out) && (case_sensitive || ignore_case(rt, out, out));
}

static bool copy_items(struct jinja_rt *rt, const struct jinja_value *v, struct jinja_value *out)
{
    struct jinja_list *list;

    if (!jinja_items(rt, v, &list) || !jinja_charge(rt, list->count * sizeof(*v)) ||
        !jinja_make_list(rt, list->count, out))
        return false;
    if (list->count)
        memcpy(out->u.list->items, list->items, list->count * sizeof(*v));
    out->u.list->count = list->count;
    return true;
}

/* ---- simple ones --------------------------------------------------------------------------- */

FILTER(default)
{
    JINJA_UNUSED;
    if (self->kind == JINJA_UNDEFINED || (jinja_truthy(&arg[1]) && !jinja_truthy(self)))
        *out = arg[0].kind == JINJA_MISSING ? jinja_str_trusted("", 0) : arg[0];
    else
        *out = *self;
    return true;
}

FILTER(length)
{
    int64_t n;

    JINJA_UNUSED;
    if (!jinja_length(rt, self, &n))
        return false;
    *out = jinja_int(n);
    return true;
}

FILTER(list)
{
    JINJA_UNUSED;
    return copy_items(rt, self, out);
}

FILTER(items)
{
    struct jinja_args no_args = {0};

    JINJA_UNUSED;
    if (self->kind == JINJA_UNDEFINED)
        return jinja_make_list(rt, 0, out) && jinja_make_gen(rt, out->u.list, "generator", out);
    if (self->kind != JINJA_DICT)
        return jinja_fail(rt, JINJA_ERR_TYPE, "Can only get item pairs from a mapping.");
    return jinja_method_dict_items(rt, self, &no_args, NULL, out) &&
           jinja_make_gen(rt, out->u.list, "generator", out);
}

FILTER(first)
{
    struct jinja_list *list;

    JINJA_UNUSED;
    if (self->kind == JINJA_GEN) { /* takes one item and leaves the rest */
        struct jinja_gen *gen = self->u.gen;

        *out = gen->pos < gen->list->count
                   ? gen->list->items[gen->pos++]
                   : jinja_undefined_hint("No first item, sequence was empty.");
        return true;
    }
    if (!jinja_items(rt, self, &list))
        return false;
    *out =
        list->count ? list->items[0] : jinja_undefined_hint("No first item, sequence was empty.");
    return true;
}

FILTER(last)
{
    struct jinja_list *list;

    JINJA_UNUSED;
    if (self->kind == JINJA_GEN)
        return jinja_fail(rt, JINJA_ERR_TYPE, "'%s' object is not reversible",
                          jinja_type_name(self));
    if (!jinja_items(rt, self, &list))
        return false;
    *out = list->count ? list->items[list->count - 1]
                       : jinja_undefined_hint("No last item, sequence was empty.");
    return true;
}

FILTER(reverse)
{
    struct jinja_value step = jinja_int(-1), none = {.kind = JINJA_MISSING}, t;
    struct jinja_list *list;
    uint32_t i;

    JINJA_UNUSED;
    if (self->kind == JINJA_STR)
        return jinja_slice(rt, self, &none, &none, &step, out);
    if (!jinja_iterable(self))
        return jinja_fail(rt, JINJA_ERR_TYPE, "argument must be iterable");
    if (!copy_items(rt, self, out))
        return false;
    list = out->u.list;
    for (i = 0; i < list->count / 2; i++) {
        t = list->items[i];
        list->items[i] = list->items[list->count - 1 - i];
        list->items[list->count - 1 - i] = t;
    }
    /* What has no reversed() becomes a list in jinja2, the rest an iterator. */
    return self->kind == JINJA_GEN || jinja_make_gen(rt, list, "reversed", out);
}

FILTER(attr)
{
    JINJA_UNUSED;
    if (!jinja_arg_str(rt, &arg[0], "attribute name"))
        return false;
    if (self->kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(rt, self);
    /* Attributes only, never items. */
    if (self->kind == JINJA_DICT && !jinja_find_method(self, arg[0].u.s, arg[0].len)) {
        *out = (struct jinja_value){.kind = JINJA_UNDEFINED,
                                    .id = (uint16_t)(JINJA_UNDEF_ATTR | self->kind << 8),
                                    .len = arg[0].len,
                                    .u.s = arg[0].u.s};
        return true;
    }
    return jinja_getattr(rt, self, &arg[0], out);
}

FILTER(join)
{
    struct jinja_sb sb = {.rt = rt};
    struct jinja_value sep = jinja_str_trusted("", 0), item;
    struct jinja_list *list;
    uint32_t i;

    JINJA_UNUSED;
    if (arg[0].kind != JINJA_MISSING && !jinja_to_str(rt, &arg[0], &sep))
        return false;
    if (!jinja_items(rt, self, &list))
        return false;
    for (i = 0; i < list->count; i++)
        if (!get_attr(rt, &list->items[i], &arg[1], &item) ||
            (i && !jinja_sb_put(&sb, sep.u.s, sep.len)) || !jinja_put_str(&sb, &item))
            return false;
    *out = jinja_sb_finish(&sb, 0);
    return true;
}

FILTER(sum)
{
    struct jinja_value total = arg[1].kind == JINJA_MISSING ? jinja_int(0) : arg[1], item;
    struct jinja_list *list;
    uint32_t i;

    JINJA_UNUSED;
    if (total.kind == JINJA_STR)
        return jinja_fail(rt, JINJA_ERR_TYPE, "sum() can't sum strings [use ''.join(seq) instead]");
    if (!jinja_items(rt, self, &list))
        return false;
    for (i = 0; i < list->count; i++)
        if (!get_attr(rt, &list->items[i], &arg[0], &item) ||
            !jinja_binary(rt, JN_ADD, &total, &item, &total))
            return false;
    *out = total;
    return true;
}

/* ---- order --------------------------------------------------------------------------------- */

FILTER(dictsort)
{
    bool sensitive = jinja_truthy(&arg[0]), reverse = jinja_truthy(&arg[2]);
    struct jinja_args no_args = {0};
    struct jinja_value *keys;
    uint32_t i, by = 0;

    JINJA_UNUSED;
    if (arg[1].kind != JINJA_MISSING && !jinja_str_is(&arg[1], "key")) {
        if (!jinja_str_is(&arg[1], "value"))
            return jinja_fail(rt, JINJA_ERR_TYPE,
                              "You can only sort by either \"key\" or \"value\"");
        by = 1;
    }
    if (self->kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(rt, self);
    if (self->kind != JINJA_DICT)
        return jinja_fail(rt, JINJA_ERR_TYPE, "'%s' object has no attribute 'items'",
                          jinja_type_name(self));
    if (!jinja_method_dict_items(rt, self, &no_args, NULL, out))
        return false;
    out->kind = JINJA_LIST;
    keys = jinja_alloc(rt, (out->u.list->count + 1) * sizeof(*keys));
    if (!keys)
        return false;
    for (i = 0; i < out->u.list->count; i++) {
        const struct jinja_value *v = &out->u.list->items[i].u.list->items[by];

        keys[i] = *v;
        if (!sensitive && !ignore_case(rt, v, &keys[i]))
            return false;
    }
    return jinja_sort(rt, out->u.list->items, keys, out->u.list->count, reverse);
}

/* The sort key is a list in jinja2, of one or of several attributes ("a,b"), and lists look for the
 * first difference: equal values need no order, so a list of None sorts and one of None and 1
 * fails. */
static bool sort_key(struct jinja_rt *rt, const struct jinja_value *item,
                     const struct jinja_value *attribute, bool sensitive, struct jinja_value *out)
{
    bool path = attribute->kind == JINJA_STR;
    const char *comma;
    struct jinja_value key;
    size_t from = 0, to;

    if (!jinja_make_list(rt, 1, out))
        return false;
    for (;; from = to + 1) {
        comma = path ? memchr(attribute->u.s + from, ',', attribute->len - from) : NULL;
        to = comma ? (size_t)(comma - attribute->u.s) : attribute->len;
        if (!(path ? follow_path(rt, item, attribute, from, to, &key)
                   : get_attr(rt, item, attribute, &key)))
            return false;
        if ((!sensitive && !ignore_case(rt, &key, &key)) || !jinja_push(rt, out->u.list, &key))
            return false;
        if (!comma)
            return true;
    }
}

FILTER(sort)
{
    struct jinja_value *keys;
    uint32_t i;

    JINJA_UNUSED;
    if (!copy_items(rt, self, out))
        return false;
    keys = jinja_alloc(rt, (out->u.list->count + 1) * sizeof(*keys));
    if (!keys)
        return false;
    for (i = 0; i < out->u.list->count; i++)
        if (!sort_key(rt, &out->u.list->items[i], &arg[2], jinja_truthy(&arg[1]), &keys[i]))
            return false;
    return jinja_sort(rt, out->u.list->items, keys, out->u.list->count, jinja_truthy(&arg[0]));
}

static bool extreme(struct jinja_rt *rt, const struct jinja_value *self,
                    const struct jinja_value *arg, enum jinja_cmp better, struct jinja_value *out)
{
    struct jinja_list *list;
    struct jinja_value key, best;
    uint32_t i;
    bool take;

    if (!jinja_items(rt, self, &list))
        return false;
    if (!list->count) {
        *out = jinja_undefined_hint("No aggregated item, sequence was empty.");
        return true;
    }
    for (i = 0; i < list->count; i++) {
        if (!get_key(rt, &list->items[i], &arg[1], jinja_truthy(&arg[0]), &key))
            return false;
        take = i == 0;
        if (i && !jinja_compare(rt, better, &key, &best, &take))
            return false;
        if (take) {
            best = key;
            *out = list->items[i];
        }
    }
    return true;
}

FILTER(min)
{
    JINJA_UNUSED;
    return extreme(rt, self, arg, JINJA_CMP_LT, out);
}

FILTER(max)
{
    JINJA_UNUSED;
    return extreme(rt, self, arg, JINJA_CMP_GT, out);
}

FILTER(unique)
{
    struct jinja_value seen, key;
    struct jinja_list *list;
    bool hashable;
    uint32_t i;

    JINJA_UNUSED;
    if (!jinja_items(rt, self, &list) || !jinja_make_list(rt, 0, out))
        return false;
    if (!jinja_dict_init(rt->arena, 0, &seen))
        return jinja_fail_memory(rt);
    for (i = 0; i < list->count; i++) {
        if (!get_key(rt, &list->items[i], &arg[1], jinja_truthy(&arg[0]), &key) ||
            !jinja_check_key(rt, &key, &hashable))
            return false;
        if (hashable && jinja_dict_find(seen.u.dict, &key))
            continue;
        if (!jinja_dict_set(rt, seen.u.dict, &key, &key) ||
            !jinja_push(rt, out->u.list, &list->items[i]))
            return false;
    }
    return jinja_make_gen(rt, out->u.list, "generator", out);
}

FILTER(groupby)
{
    struct jinja_value sorted, *keys, group, key, none = {.kind = JINJA_MISSING};
    bool sensitive = jinja_truthy(&arg[2]), same;
    uint32_t i, n;

    JINJA_UNUSED;
    if (!copy_items(rt, self, &sorted) || !jinja_make_list(rt, 0, out))
        return false;
    n = sorted.u.list->count;
    keys = jinja_alloc(rt, (n + 1) * sizeof(*keys));
    if (!keys)
        return false;
    for (i = 0; i < n; i++) {
        if (!get_attr(rt, &sorted.u.list->items[i], &arg[0], &keys[i]))
            return false;
        if (keys[i].kind == JINJA_UNDEFINED && arg[1].kind != JINJA_MISSING &&
            arg[1].kind != JINJA_NONE)
            keys[i] = arg[1];
        if (!sensitive && !ignore_case(rt, &keys[i], &keys[i]))
            return false;
    }
    if (!jinja_sort(rt, sorted.u.list->items, keys, n, false))
        return false;
    for (i = 0; i < n; i++) {
        same = false;
        if (i && !jinja_equal(rt, &keys[i], &keys[i - 1], &same))
            return false;
        if (!same) {
            /* The key shown is the first item's own, not its lower case form. */
            if (!get_attr(rt, &sorted.u.list->items[i], &arg[0], &key))
                return false;
            if (key.kind == JINJA_UNDEFINED && arg[1].kind != JINJA_MISSING &&
                arg[1].kind != JINJA_NONE)
                key = arg[1];
            if (!jinja_make_list(rt, 0, &group) || !jinja_make_tuple2(rt, &key, &group, &none))
                return false;
            none.flags |= JINJA_F_GROUP;
            if (!jinja_push(rt, out->u.list, &none))
                return false;
        }
        if (!jinja_push(rt, group.u.list, &sorted.u.list->items[i]))
            return false;
    }
    return true;
}

/* ---- cutting up ---------------------------------------------------------------------------- */

FILTER(batch)
{
    struct jinja_value row = {.kind = JINJA_MISSING};
    struct jinja_list *list;
    int64_t width;
    uint32_t i;

    JINJA_UNUSED;
    if (!jinja_arg_int(rt, &arg[0], 0, &width) || !jinja_items(rt, self, &list) ||
        !jinja_make_list(rt, 0, out))
        return false;
    for (i = 0; i < list->count; i++) {
        if (row.kind == JINJA_MISSING || row.u.list->count == width)
            if (!jinja_make_list(rt, 0, &row) || !jinja_push(rt, out->u.list, &row))
                return false;
        if (!jinja_push(rt, row.u.list, &list->items[i]))
            return false;
    }
    if (row.kind != JINJA_MISSING && arg[1].kind != JINJA_MISSING && arg[1].kind != JINJA_NONE)
        while (row.u.list->count < width)
            if (!jinja_charge(rt, 0) || !jinja_push(rt, row.u.list, &arg[1]))
                return false;
    return jinja_make_gen(rt, out->u.list, "generator", out);
}

FILTER(slice)
{
    struct jinja_list *list;
    struct jinja_value row;
    int64_t slices, per, extra, s, i;
    uint32_t at = 0;

    JINJA_UNUSED;
    if (!jinja_arg_int(rt, &arg[0], 0, &slices) || !jinja_items(rt, self, &list))
        return false;
    if (slices == 0)
        return jinja_fail(rt, JINJA_ERR_TYPE, "integer division or modulo by zero");
    if (!jinja_make_list(rt, 0, out))
        return false;
    per = slices > 0 ? list->count / slices : 0;
    extra = slices > 0 ? list->count % slices : 0;
    for (s = 0; s < slices; s++) {
        if (!jinja_charge(rt, 0) || !jinja_make_list(rt, 0, &row))
            return false;
        for (i = 0; i < per + (s < extra); i++)
            if (!jinja_push(rt, row.u.list, &list->items[at++]))
                return false;
        if (s >= extra && arg[1].kind != JINJA_MISSING && arg[1].kind != JINJA_NONE &&
            !jinja_push(rt, row.u.list, &arg[1]))
            return false;
        if (!jinja_push(rt, out->u.list, &row))
            return false;
    }
    return jinja_make_gen(rt, out->u.list, "generator", out);
}

/* ---- map and select ------------------------------------------------------------------------ */

static bool map_attribute(struct jinja_rt *rt, const struct jinja_args *args,
                          const struct jinja_value **attribute, const struct jinja_value **fallback)
{
    uint32_t i;

    *attribute = *fallback = NULL;
    for (i = 0; i < args->nkw; i++) {
        if (jinja_str_is(&args->kw[i].key, "attribute"))
            *attribute = &args->kw[i].value;
        else if (jinja_str_is(&args->kw[i].key, "default"))
            *fallback = &args->kw[i].value;
        else
            return jinja_fail(rt, JINJA_ERR_TYPE, "Unexpected keyword argument '%.*s'",
                              (int)args->kw[i].key.len, args->kw[i].key.u.s);
    }
    return *attribute || jinja_fail(rt, JINJA_ERR_TYPE, "map requires a filter argument");
}

FILTER(map)
{
    const struct jinja_value *attribute = NULL, *fallback = NULL, *name = args->pos;
    struct jinja_args rest = *args;
    struct jinja_list *list;
    struct jinja_value v;
    uint32_t i;
    bool ok;

    JINJA_UNUSED;
    if (!jinja_make_list(rt, 0, out))
        return false;
    if (!jinja_truthy(self)) /* jinja2 does not even look at the arguments */
        return jinja_make_gen(rt, out->u.list, "generator", out);
    if (!args->npos && !map_attribute(rt, args, &attribute, &fallback))
        return false;
    if (args->npos) {
        if (!jinja_arg_str(rt, name, "filter name"))
            return false;
        rest.pos++;
        rest.npos--;
    }
    if (!jinja_items(rt, self, &list))
        return false;
    for (i = 0; i < list->count; i++) {
        if (attribute) {
            ok = get_attr(rt, &list->items[i], attribute, &v);
            if (ok && v.kind == JINJA_UNDEFINED && fallback && fallback->kind != JINJA_NONE)
                v = *fallback;
        } else {
            ok = jinja_apply_filter(rt, JINJA_NO_ROW, name->u.s, name->len, &list->items[i], &rest,
                                    &v);
        }
        if (!ok || !jinja_push(rt, out->u.list, &v))
            return false;
    }
    return jinja_make_gen(rt, out->u.list, "generator", out);
}

/* by_attr: the first argument is an attribute; then the name of a test and its arguments. */
static bool select_items(struct jinja_rt *rt, const struct jinja_value *self,
                         const struct jinja_args *args, bool by_attr, bool wanted,
                         struct jinja_value *out)
{
    struct jinja_value none = {.kind = JINJA_MISSING}, v;
    struct jinja_args rest = *args;
    const struct jinja_value *attribute = &none, *name = NULL;
    struct jinja_list *list;
    uint32_t i;
    bool hit;

    if (!jinja_make_list(rt, 0, out))
        return false;
    if (!jinja_truthy(self))
        return jinja_make_gen(rt, out->u.list, "generator", out);
    if (by_attr) {
        if (!rest.npos)
            return jinja_fail(rt, JINJA_ERR_TYPE, "Missing parameter for attribute name");
        attribute = rest.pos++;
        rest.npos--;
    }
    if (rest.npos) {
        name = rest.pos++;
        rest.npos--;
        if (!jinja_arg_str(rt, name, "test name"))
            return false;
    }
    if (!jinja_items(rt, self, &list))
        return false;
    for (i = 0; i < list->count; i++) {
        if (!get_attr(rt, &list->items[i], attribute, &v))
            return false;
        hit = jinja_truthy(&v);
        if (name && !jinja_apply_test(rt, JINJA_NO_ROW, name->u.s, name->len, &v, &rest, &hit))
            return false;
        if (hit == wanted && !jinja_push(rt, out->u.list, &list->items[i]))
            return false;
    }
    return jinja_make_gen(rt, out->u.list, "generator", out);
}

FILTER(select)
{
    JINJA_UNUSED;
    return select_items(rt, self, args, false, true, out);
}

FILTER(reject)
{
    JINJA_UNUSED;
    return select_items(rt, self, args, false, false, out);
}

FILTER(selectattr)
{
    JINJA_UNUSED;
    return select_items(rt, self, args, true, true, out);
}

FILTER(rejectattr)
{
    JINJA_UNUSED;
    return select_items(rt, self, args, true, false, out);
}
