// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE /* localtime_r */
/* Methods of lists, tuples, dicts and the loop object; global functions. */
#include <string.h>
#include <time.h>

#include "runtime/text/jinja_builtins.h"
#include "runtime/text/jinja_unicode.h"

#define METHOD(name) bool jinja_method_##name(JINJA_PARAMS)
#define GLOBAL(name) bool jinja_global_##name(JINJA_PARAMS)

/* The sandbox of jinja2 has the same limit. */
#define MAX_RANGE 100000

/* ---- lists --------------------------------------------------------------------------------- */

METHOD(list_copy)
{
    uint32_t i;

    JINJA_UNUSED;
    if (!jinja_charge(rt, self->u.list->count * sizeof(*self)) ||
        !jinja_make_list(rt, self->u.list->count, out))
        return false;
    for (i = 0; i < self->u.list->count; i++)
        if (!jinja_push(rt, out->u.list, &self->u.list->items[i]))
            return false;
    return true;
}

METHOD(list_count)
{
    int64_t n = 0;
    uint32_t i;
    bool same;

    JINJA_UNUSED;
    for (i = 0; i < self->u.list->count; i++) {
        if (!jinja_equal(rt, &self->u.list->items[i], &arg[0], &same))
            return false;
        n += same;
    }
    *out = jinja_int(n);
    return true;
}

METHOD(list_index)
{
    int64_t start, stop, n = self->u.list->count, i;
    bool same;

    JINJA_UNUSED;
    if (!jinja_arg_int(rt, &arg[1], 0, &start) || !jinja_arg_int(rt, &arg[2], n, &stop))
        return false;
    start = start < 0 ? (start < -n ? 0 : start + n) : start;
    stop = stop < 0 ? (stop < -n ? 0 : stop + n) : stop;
    for (i = start; i < stop && i < n; i++) {
        if (!jinja_equal(rt, &self->u.list->items[i], &arg[0], &same))
            return false;
        if (same) {
            *out = jinja_int(i);
            return true;
        }
    }
    return jinja_fail(rt, JINJA_ERR_TYPE, "value is not in %s", jinja_type_name(self));
}

/* ---- dicts --------------------------------------------------------------------------------- */

METHOD(dict_get)
{
    const struct jinja_value *v;
    bool hashable;

    JINJA_UNUSED;
    if (!jinja_check_key(rt, &arg[0], &hashable))
        return false;
    if (!hashable)
        return jinja_fail(rt, JINJA_ERR_TYPE, "unhashable type: '%s'", jinja_type_name(&arg[0]));
    v = jinja_dict_find(self->u.dict, &arg[0]);
    if (v)
        *out = *v;
    else
        *out = arg[1].kind == JINJA_MISSING ? jinja_none() : arg[1];
    return true;
}

static bool dict_view(struct jinja_rt *rt, const struct jinja_dict *dict, enum jinja_kind kind,
                      struct jinja_value *out)
{
    struct jinja_value item;
    uint32_t i;

    if (!jinja_charge(rt, dict->count * sizeof(item)) || !jinja_make_list(rt, dict->count, out))
        return false;
    for (i = 0; i < dict->count; i++) {
        const struct jinja_pair *pair = &dict->pairs[i];

        item = kind == JINJA_KEYS ? pair->key : pair->value;
        if (kind == JINJA_ITEMS && !jinja_make_tuple2(rt, &pair->key, &pair->value, &item))
            return false;
        out->u.list->items[i] = item;
    }
    out->u.list->count = dict->count;
    out->kind = (uint8_t)kind;
    return true;
}

METHOD(dict_items)
{
    JINJA_UNUSED;
    return dict_view(rt, self->u.dict, JINJA_ITEMS, out);
}

METHOD(dict_keys)
{
    JINJA_UNUSED;
    return dict_view(rt, self->u.dict, JINJA_KEYS, out);
}

METHOD(dict_values)
{
    JINJA_UNUSED;
    return dict_view(rt, self->u.dict, JINJA_VALUES, out);
}

/* Adds all pairs of a dict, or of an iterable of pairs. */
static bool dict_update(struct jinja_rt *rt, struct jinja_dict *dict,
                        const struct jinja_value *from)
{
    struct jinja_list *list, *pair;
    uint32_t i;

    if (from->kind == JINJA_DICT) {
        for (i = 0; i < from->u.dict->count; i++)
            if (!jinja_dict_set(rt, dict, &from->u.dict->pairs[i].key,
                                &from->u.dict->pairs[i].value))
                return false;
        return jinja_charge(rt, (size_t)i * 32);
    }
    if (!jinja_items(rt, from, &list))
        return false;
    for (i = 0; i < list->count; i++) {
        if (!jinja_items(rt, &list->items[i], &pair))
            return false;
        if (pair->count != 2)
            return jinja_fail(rt, JINJA_ERR_TYPE,
                              "dictionary update sequence element #%u has length %u; 2 is required",
                              i, pair->count);
        if (!jinja_dict_set(rt, dict, &pair->items[0], &pair->items[1]))
            return false;
    }
    return true;
}

static bool make_dict(struct jinja_rt *rt, const char *what, const struct jinja_args *args,
                      struct jinja_value *out)
{
    uint32_t i;

    if (args->npos > 1)
        return jinja_fail(rt, JINJA_ERR_TYPE, "%s expected at most 1 argument, got %u", what,
                          args->npos);
    if (!jinja_dict_init(rt->arena, args->nkw, out))
        return jinja_fail_memory(rt);
    if (args->npos && !dict_update(rt, out->u.dict, &args->pos[0]))
        return false;
    for (i = 0; i < args->nkw; i++)
        if (!jinja_dict_set(rt, out->u.dict, &args->kw[i].key, &args->kw[i].value))
            return false;
    return true;
}

METHOD(dict_copy)
{
    JINJA_UNUSED;
    if (!jinja_dict_init(rt->arena, self->u.dict->count, out))
        return jinja_fail_memory(rt);
    return dict_update(rt, out->u.dict, self);
}

/* ---- loop ---------------------------------------------------------------------------------- */

METHOD(loop_cycle)
{
    JINJA_UNUSED;
    if (!args->npos || args->nkw)
        return jinja_fail(rt, JINJA_ERR_TYPE, "no items for cycling given");
    *out = args->pos[self->u.loop->index0 % args->npos];
    return true;
}

METHOD(loop_changed)
{
    struct jinja_value now;
    bool same = false;
    uint32_t i;

    JINJA_UNUSED;
    if (!jinja_make_list(rt, args->npos, &now))
        return false;
    now.kind = JINJA_TUPLE;
    for (i = 0; i < args->npos; i++)
        if (!jinja_push(rt, now.u.list, &args->pos[i]))
            return false;
    if (self->u.loop->changed.kind != JINJA_MISSING &&
        !jinja_equal(rt, &self->u.loop->changed, &now, &same))
        return false;
    self->u.loop->changed = now;
    *out = jinja_bool(!same);
    return true;
}

/* ---- global functions ---------------------------------------------------------------------- */

GLOBAL(range)
{
    struct jinja_range *r;
    int64_t a, b, step;
    uint64_t distance, count = 0;

    JINJA_UNUSED;
    if (!jinja_arg_int(rt, &arg[0], 0, &a) || !jinja_arg_int(rt, &arg[1], 0, &b) ||
        !jinja_arg_int(rt, &arg[2], 1, &step))
        return false;
    if (arg[1].kind == JINJA_MISSING) {
        b = a;
        a = 0;
    }
    if (step == 0)
        return jinja_fail(rt, JINJA_ERR_TYPE, "range() arg 3 must not be zero");
    if (step > 0 ? a < b : a > b) {
        distance = step > 0 ? (uint64_t)b - (uint64_t)a : (uint64_t)a - (uint64_t)b;
        count = (distance - 1) / (step > 0 ? (uint64_t)step : 0 - (uint64_t)step) + 1;
    }
    if (count > MAX_RANGE)
        return jinja_fail(rt, JINJA_ERR_LIMIT,
                          "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
                          MAX_RANGE);
    r = jinja_alloc(rt, sizeof(*r));
    if (!r)
        return false;
    *r = (struct jinja_range){.start = a, .stop = b, .step = step, .count = (uint32_t)count};
    *out = (struct jinja_value){.kind = JINJA_RANGE, .u.range = r};
    return true;
}

GLOBAL(dict)
{
    JINJA_UNUSED;
    return make_dict(rt, "dict", args, out);
}

GLOBAL(namespace)
{
    JINJA_UNUSED;
    if (!make_dict(rt, "namespace", args, out))
        return false;
    out->kind = JINJA_NAMESPACE;
    return true;
}

static bool make_cycler(struct jinja_rt *rt, enum jinja_kind kind, struct jinja_value items,
                        struct jinja_value *out)
{
    struct jinja_cycler *c = jinja_alloc(rt, sizeof(*c));

    if (!c)
        return false;
    *c = (struct jinja_cycler){.items = items};
    *out = (struct jinja_value){.kind = (uint8_t)kind, .u.cycler = c};
    return true;
}

GLOBAL(cycler)
{
    struct jinja_value items;
    uint32_t i;

    JINJA_UNUSED;
    if (!args->npos || args->nkw)
        return jinja_fail(rt, JINJA_ERR_TYPE, "at least one item has to be provided");
    if (!jinja_make_list(rt, args->npos, &items))
        return false;
    for (i = 0; i < args->npos; i++)
        if (!jinja_push(rt, items.u.list, &args->pos[i]))
            return false;
    return make_cycler(rt, JINJA_CYCLER, items, out);
}

METHOD(cycler_next)
{
    struct jinja_cycler *c = self->u.cycler;

    JINJA_UNUSED;
    *out = c->items.u.list->items[c->pos];
    c->pos = (c->pos + 1) % c->items.u.list->count;
    return true;
}

METHOD(cycler_reset)
{
    JINJA_UNUSED;
    self->u.cycler->pos = 0;
    *out = jinja_none();
    return true;
}

GLOBAL(joiner)
{
    JINJA_UNUSED;
    return make_cycler(rt, JINJA_JOINER,
                       arg[0].kind == JINJA_MISSING ? jinja_str_trusted(", ", 2) : arg[0], out);
}

GLOBAL(raise_exception)
{
    struct jinja_value text;

    JINJA_UNUSED;
    if (!jinja_to_str(rt, &arg[0], &text))
        return false;
    return jinja_fail(rt, JINJA_ERR_RAISED, "%.*s", (int)text.len, text.u.s);
}

/* One strftime directive at p ('%' already seen), its end returned; only single letters with at
 * most one flag reach the C library, whose widths could ask for any amount of memory. */
static const char *put_directive(struct jinja_sb *sb, const char *p, const char *end,
                                 const struct tm *tm)
{
    char format[4] = "%", text[256];
    size_t n = 1, len;

    if (p < end && strchr("-_0^#", *p))
        format[n++] = *p++;
    if (p == end || !((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || *p == '%')) {
        jinja_fail(sb->rt, JINJA_ERR_TYPE, "Invalid format string");
        return NULL;
    }
    format[n++] = *p;
    format[n] = 0;
    if (*p == 'f') /* microseconds: Python's own */
        return jinja_sb_put(sb, "000000", 6) ? p + 1 : NULL;
    if (*p == 'z' || *p == 'Z') /* a naive datetime has no zone */
        return p + 1;
    len = strftime(text, sizeof(text), format, tm);
    if (!jinja_utf8_valid(text, len)) {
        jinja_fail(sb->rt, JINJA_ERR_TYPE, "the locale's date text is not UTF-8");
        return NULL;
    }
    return jinja_sb_put(sb, text, len) ? p + 1 : NULL;
}

GLOBAL(strftime_now)
{
    struct jinja_sb sb = {.rt = rt};
    time_t now = rt->have_now ? (time_t)rt->now_unix_s : time(NULL);
    const char *p, *end, *mark;
    struct tm tm;

    JINJA_UNUSED;
    if (!jinja_arg_str(rt, &arg[0], "strftime_now() argument"))
        return false;
    if (!localtime_r(&now, &tm))
        return jinja_fail(rt, JINJA_ERR_TYPE, "the time is out of range");
    for (p = arg[0].u.s, end = p + arg[0].len; p < end;) {
        mark = memchr(p, '%', (size_t)(end - p));
        if (!jinja_sb_put(&sb, p, (size_t)((mark ? mark : end) - p)))
            return false;
        if (!mark)
            break;
        p = put_directive(&sb, mark + 1, end, &tm);
        if (!p)
            return false;
    }
    *out = jinja_sb_finish(&sb, 0);
    return true;
}
