// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE /* memmem */
/* Methods of strings, lists, dicts and the loop object. */
#include <string.h>

#include "runtime/text/jinja_builtins.h"
#include "runtime/text/jinja_format.h"
#include "runtime/text/jinja_unicode.h"

#define METHOD(name) bool jinja_method_##name(JINJA_PARAMS)

/* ---- case and classes ---------------------------------------------------------------------- */

METHOD(lower)
{
    JINJA_UNUSED;
    return jinja_lower(rt, self, out);
}

METHOD(upper)
{
    JINJA_UNUSED;
    return jinja_upper(rt, self, out);
}

METHOD(capitalize)
{
    JINJA_UNUSED;
    return jinja_capitalize(rt, self, out);
}

METHOD(casefold)
{
    JINJA_UNUSED;
    return jinja_casefold(rt, self, out);
}

METHOD(title)
{
    JINJA_UNUSED;
    return jinja_title_words(rt, self, out);
}

METHOD(swapcase)
{
    JINJA_UNUSED;
    return jinja_swapcase(rt, self, out);
}

static bool all_class(struct jinja_rt *rt, const struct jinja_value *v, enum jinja_class cls,
                      struct jinja_value *out)
{
    size_t at = 0;
    uint32_t cp;
    bool all = v->len != 0;

    while (all && at < v->len) {
        at += jinja_utf8_decode(v->u.s + at, &cp);
        all = jinja_is_class(cp, cls);
    }
    *out = jinja_bool(all);
    return jinja_charge(rt, (size_t)v->len * JINJA_COST_CHAR);
}

#define CLASS_METHOD(name, cls)               \
    METHOD(name)                              \
    {                                         \
        JINJA_UNUSED;                         \
        return all_class(rt, self, cls, out); \
    }
CLASS_METHOD(isalnum, JINJA_CLASS_ALNUM)
CLASS_METHOD(isalpha, JINJA_CLASS_ALPHA)
CLASS_METHOD(isdecimal, JINJA_CLASS_DECIMAL)
CLASS_METHOD(isdigit, JINJA_CLASS_DIGIT)
CLASS_METHOD(isnumeric, JINJA_CLASS_NUMERIC)
CLASS_METHOD(isspace, JINJA_CLASS_SPACE)

METHOD(isascii)
{
    JINJA_UNUSED;
    *out = jinja_bool((self->flags & JINJA_F_ASCII) != 0);
    return true;
}

METHOD(isupper)
{
    JINJA_UNUSED;
    *out = jinja_bool(jinja_is_all_case(self, true));
    return jinja_charge(rt, (size_t)self->len * JINJA_COST_CHAR);
}

METHOD(islower)
{
    JINJA_UNUSED;
    *out = jinja_bool(jinja_is_all_case(self, false));
    return jinja_charge(rt, (size_t)self->len * JINJA_COST_CHAR);
}

METHOD(istitle)
{
    size_t at = 0;
    uint32_t cp;
    bool cased = false, previous = false, upper, lower;

    JINJA_UNUSED;
    while (at < self->len) {
        at += jinja_utf8_decode(self->u.s + at, &cp);
        upper = jinja_is_class(cp, JINJA_CLASS_UPPER) || jinja_is_class(cp, JINJA_CLASS_TITLE);
        lower = jinja_is_class(cp, JINJA_CLASS_LOWER);
        if ((upper && previous) || (lower && !previous)) {
            *out = jinja_bool(false);
            return true;
        }
        previous = upper || lower;
        cased |= previous;
    }
    *out = jinja_bool(cased);
    return jinja_charge(rt, (size_t)self->len * JINJA_COST_CHAR);
}

METHOD(isprintable)
{
    size_t at = 0;
    uint32_t cp;
    bool all = true;

    JINJA_UNUSED;
    while (all && at < self->len) {
        at += jinja_utf8_decode(self->u.s + at, &cp);
        all = jinja_is_printable(cp);
    }
    *out = jinja_bool(all);
    return jinja_charge(rt, (size_t)self->len * JINJA_COST_CHAR);
}

/* ---- strip, pad, replace ------------------------------------------------------------------- */

METHOD(strip)
{
    JINJA_UNUSED;
    return jinja_strip(rt, self, &arg[0], 3, out);
}

METHOD(lstrip)
{
    JINJA_UNUSED;
    return jinja_strip(rt, self, &arg[0], 1, out);
}

METHOD(rstrip)
{
    JINJA_UNUSED;
    return jinja_strip(rt, self, &arg[0], 2, out);
}

static bool justify(struct jinja_rt *rt, const struct jinja_value *self,
                    const struct jinja_value *arg, char align, struct jinja_value *out)
{
    int64_t width;

    return jinja_arg_int(rt, &arg[0], 0, &width) &&
           jinja_justify(rt, self, width, &arg[1], align, out);
}

METHOD(ljust)
{
    JINJA_UNUSED;
    return justify(rt, self, arg, '<', out);
}

METHOD(rjust)
{
    JINJA_UNUSED;
    return justify(rt, self, arg, '>', out);
}

METHOD(center)
{
    JINJA_UNUSED;
    return justify(rt, self, arg, '^', out);
}

METHOD(zfill)
{
    struct jinja_sb sb = {.rt = rt};
    size_t sign = self->len && (self->u.s[0] == '-' || self->u.s[0] == '+');
    int64_t width, len;

    JINJA_UNUSED;
    if (!jinja_arg_int(rt, &arg[0], 0, &width) || !jinja_length(rt, self, &len))
        return false;
    if (!jinja_sb_put(&sb, self->u.s, sign) ||
        (width > len && !jinja_sb_pad(&sb, "0", 1, (size_t)(width - len))) ||
        !jinja_sb_put(&sb, self->u.s + sign, self->len - sign))
        return false;
    *out = jinja_sb_finish(&sb, self->flags & JINJA_F_MARKUP);
    return true;
}

METHOD(expandtabs)
{
    struct jinja_sb sb = {.rt = rt};
    int64_t size, column = 0;
    size_t at = 0, n;
    uint32_t cp;
    bool ok;

    JINJA_UNUSED;
    if (!jinja_arg_int(rt, &arg[0], 8, &size) || !jinja_charge(rt, self->len))
        return false;
    for (; at < self->len; at += n) {
        n = jinja_utf8_decode(self->u.s + at, &cp);
        if (cp == '\t') {
            int64_t pad = size > 0 ? size - column % size : 0;

            ok = jinja_sb_pad(&sb, " ", 1, (size_t)pad);
            column += pad;
        } else {
            ok = jinja_sb_put(&sb, self->u.s + at, n);
            column = cp == '\n' || cp == '\r' ? 0 : column + 1;
        }
        if (!ok)
            return false;
    }
    *out = jinja_sb_finish(&sb, self->flags & JINJA_F_MARKUP);
    return true;
}

METHOD(replace)
{
    struct jinja_value with;
    int64_t max;

    JINJA_UNUSED;
    if (!jinja_arg_str(rt, &arg[0], "replace() argument 1") ||
        !jinja_arg_str(rt, &arg[1], "replace() argument 2") ||
        !jinja_arg_int(rt, &arg[2], -1, &max))
        return false;
    with = arg[1];
    if (self->flags & JINJA_F_MARKUP && !jinja_escape(rt, &arg[1], &with))
        return false;
    return jinja_replace(rt, self, &arg[0], &with, max, out);
}

static bool starts_with(const struct jinja_value *v, const struct jinja_value *part)
{
    return v->len >= part->len && memcmp(v->u.s, part->u.s, part->len) == 0;
}

static bool ends_with(const struct jinja_value *v, const struct jinja_value *part)
{
    return v->len >= part->len && memcmp(v->u.s + v->len - part->len, part->u.s, part->len) == 0;
}

METHOD(removeprefix)
{
    JINJA_UNUSED;
    if (!jinja_arg_str(rt, &arg[0], "removeprefix() argument"))
        return false;
    *out = starts_with(self, &arg[0]) ? jinja_substr(self, arg[0].len, self->len) : *self;
    return true;
}

METHOD(removesuffix)
{
    JINJA_UNUSED;
    if (!jinja_arg_str(rt, &arg[0], "removesuffix() argument"))
        return false;
    *out = ends_with(self, &arg[0]) ? jinja_substr(self, 0, self->len - arg[0].len) : *self;
    return true;
}

/* ---- searching ----------------------------------------------------------------------------- */

/* self[start:end], and the character number of its start; *out is MISSING when start lies behind
 * the end of self, where nothing is found, not even the empty string. */
static bool part(struct jinja_rt *rt, const struct jinja_value *self,
                 const struct jinja_value *start, const struct jinja_value *end,
                 struct jinja_value *out, int64_t *first)
{
    struct jinja_value step = {.kind = JINJA_MISSING};
    int64_t len, from = 0;

    if (!jinja_length(rt, self, &len))
        return false;
    if (start->kind != JINJA_MISSING && start->kind != JINJA_NONE &&
        !jinja_arg_int(rt, start, 0, &from))
        return false;
    if (from < 0)
        from = from < -len ? 0 : from + len;
    *first = from;
    if (from > len) {
        *out = step;
        return true;
    }
    return jinja_slice(rt, self, start, end, &step, out);
}

static bool match_affix(struct jinja_rt *rt, const struct jinja_value *self,
                        const struct jinja_value *arg, bool prefix, struct jinja_value *out)
{
    const struct jinja_value *one = &arg[0];
    struct jinja_value text;
    uint32_t i, n = 1;
    int64_t first;
    bool hit = false;

    if (!part(rt, self, &arg[1], &arg[2], &text, &first))
        return false;
    if (arg[0].kind == JINJA_TUPLE) {
        one = arg[0].u.list->items;
        n = arg[0].u.list->count;
    }
    for (i = 0; i < n && !hit; i++) {
        if (!jinja_arg_str(rt, &one[i], prefix ? "startswith argument" : "endswith argument"))
            return false;
        if (text.kind == JINJA_STR)
            hit = prefix ? starts_with(&text, &one[i]) : ends_with(&text, &one[i]);
    }
    *out = jinja_bool(hit);
    return true;
}

METHOD(startswith)
{
    JINJA_UNUSED;
    return match_affix(rt, self, arg, true, out);
}

METHOD(endswith)
{
    JINJA_UNUSED;
    return match_affix(rt, self, arg, false, out);
}

/* The last match; memmem finds the first only. Linear in text times sub at worst, and charged so.
 */
static const char *find_last(struct jinja_rt *rt, const struct jinja_value *text,
                             const struct jinja_value *sub)
{
    const char *p;
    size_t work = 0;

    if (sub->len > text->len)
        return NULL;
    for (p = text->u.s + text->len - sub->len;; p--) {
        work++;
        if (sub->len == 0 ||
            (*p == *sub->u.s && (work += sub->len, memcmp(p, sub->u.s, sub->len) == 0)))
            break;
        if (p == text->u.s || work / 64 > rt->lim.max_steps) {
            p = NULL;
            break;
        }
    }
    rt->steps += work / 64;
    return p;
}

/* Character number of the match, -1 for none. */
static bool find(struct jinja_rt *rt, const struct jinja_value *self, const struct jinja_value *arg,
                 bool last, int64_t *out)
{
    struct jinja_value text;
    const char *hit;
    int64_t first;

    *out = -1;
    if (!jinja_arg_str(rt, &arg[0], "argument") || !part(rt, self, &arg[1], &arg[2], &text, &first))
        return false;
    if (text.kind != JINJA_STR)
        return true;
    hit = last ? find_last(rt, &text, &arg[0]) : memmem(text.u.s, text.len, arg[0].u.s, arg[0].len);
    if (hit)
        *out = first + (int64_t)jinja_utf8_count(text.u.s, (size_t)(hit - text.u.s));
    return jinja_charge(rt, (size_t)text.len * JINJA_COST_SEARCH);
}

static bool find_method(struct jinja_rt *rt, const struct jinja_value *self,
                        const struct jinja_value *arg, bool last, bool must,
                        struct jinja_value *out)
{
    int64_t at;

    if (!find(rt, self, arg, last, &at))
        return false;
    if (at < 0 && must)
        return jinja_fail(rt, JINJA_ERR_TYPE, "substring not found");
    *out = jinja_int(at);
    return true;
}

METHOD(find)
{
    JINJA_UNUSED;
    return find_method(rt, self, arg, false, false, out);
}

METHOD(rfind)
{
    JINJA_UNUSED;
    return find_method(rt, self, arg, true, false, out);
}

METHOD(index)
{
    JINJA_UNUSED;
    return find_method(rt, self, arg, false, true, out);
}

METHOD(rindex)
{
    JINJA_UNUSED;
    return find_method(rt, self, arg, true, true, out);
}

METHOD(count)
{
    struct jinja_value text;
    const char *p, *end;
    int64_t first, n = 0;

    JINJA_UNUSED;
    if (!jinja_arg_str(rt, &arg[0], "argument") || !part(rt, self, &arg[1], &arg[2], &text, &first))
        return false;
    if (text.kind == JINJA_STR && arg[0].len == 0) {
        n = (int64_t)jinja_utf8_count(text.u.s, text.len) + 1;
    } else if (text.kind == JINJA_STR) {
        for (p = text.u.s, end = p + text.len;
             (p = memmem(p, (size_t)(end - p), arg[0].u.s, arg[0].len)) != NULL; p += arg[0].len)
            n++;
    }
    *out = jinja_int(n);
    return jinja_charge(rt, (size_t)self->len * JINJA_COST_SEARCH);
}

/* ---- splitting and joining ----------------------------------------------------------------- */

static bool push_part(struct jinja_rt *rt, struct jinja_list *list, const struct jinja_value *v,
                      const char *from, const char *to)
{
    struct jinja_value s = jinja_substr(v, (size_t)(from - v->u.s), (size_t)(to - v->u.s));

    return jinja_charge(rt, 0) && jinja_push(rt, list, &s);
}

static bool split_space(struct jinja_rt *rt, const struct jinja_value *v, int64_t max,
                        struct jinja_list *list)
{
    const char *p = v->u.s, *end = p + v->len, *start;
    uint32_t cp;
    unsigned n;

    for (;;) {
        while (p < end && (n = jinja_utf8_decode(p, &cp), jinja_is_space(cp)))
            p += n;
        if (p == end)
            return true;
        start = p;
        if (max-- == 0) /* the rest as it is */
            return push_part(rt, list, v, start, end);
        while (p < end && (n = jinja_utf8_decode(p, &cp), !jinja_is_space(cp)))
            p += n;
        if (!push_part(rt, list, v, start, p))
            return false;
    }
}

static bool split_sep(struct jinja_rt *rt, const struct jinja_value *v,
                      const struct jinja_value *sep, int64_t max, struct jinja_list *list)
{
    const char *p = v->u.s, *end = p + v->len, *hit;

    while (max-- != 0 && (hit = memmem(p, (size_t)(end - p), sep->u.s, sep->len)) != NULL) {
        if (!push_part(rt, list, v, p, hit))
            return false;
        p = hit + sep->len;
    }
    return push_part(rt, list, v, p, end);
}

/* From the right; the parts come in reverse and are turned round by the caller. */
static bool rsplit_space(struct jinja_rt *rt, const struct jinja_value *v, int64_t max,
                         struct jinja_list *list)
{
    const char *start = v->u.s, *p = start + v->len, *end;
    uint32_t cp;

    for (;;) {
        while (p > start && (jinja_utf8_decode(jinja_utf8_prev(p), &cp), jinja_is_space(cp)))
            p = jinja_utf8_prev(p);
        if (p == start)
            return true;
        end = p;
        if (max-- == 0)
            return push_part(rt, list, v, start, end);
        while (p > start && (jinja_utf8_decode(jinja_utf8_prev(p), &cp), !jinja_is_space(cp)))
            p = jinja_utf8_prev(p);
        if (!push_part(rt, list, v, p, end))
            return false;
    }
}

static bool rsplit_sep(struct jinja_rt *rt, const struct jinja_value *v,
                       const struct jinja_value *sep, int64_t max, struct jinja_list *list)
{
    struct jinja_value rest = *v;
    const char *hit;

    while (max-- != 0 && (hit = find_last(rt, &rest, sep)) != NULL) {
        if (!push_part(rt, list, v, hit + sep->len, rest.u.s + rest.len))
            return false;
        rest.len = (uint32_t)(hit - rest.u.s);
    }
    return push_part(rt, list, v, rest.u.s, rest.u.s + rest.len);
}

static bool split(struct jinja_rt *rt, const struct jinja_value *self,
                  const struct jinja_value *arg, bool right, struct jinja_value *out)
{
    bool space = arg[0].kind == JINJA_MISSING || arg[0].kind == JINJA_NONE, ok;
    struct jinja_list *list;
    struct jinja_value t;
    int64_t max;
    uint32_t i;

    if (!jinja_arg_int(rt, &arg[1], -1, &max) ||
        (!space && !jinja_arg_str(rt, &arg[0], "separator")))
        return false;
    if (!space && arg[0].len == 0)
        return jinja_fail(rt, JINJA_ERR_TYPE, "empty separator");
    if (!jinja_charge(rt, (size_t)self->len * JINJA_COST_SEARCH) || !jinja_make_list(rt, 0, out))
        return false;
    list = out->u.list;
    if (max < 0) /* no limit, and nothing to count down from the least number */
        max = INT64_MAX;
    if (!right)
        return space ? split_space(rt, self, max, list) : split_sep(rt, self, &arg[0], max, list);
    ok = space ? rsplit_space(rt, self, max, list) : rsplit_sep(rt, self, &arg[0], max, list);
    for (i = 0; i < list->count / 2; i++) {
        t = list->items[i];
        list->items[i] = list->items[list->count - 1 - i];
        list->items[list->count - 1 - i] = t;
    }
    return ok;
}

METHOD(split)
{
    JINJA_UNUSED;
    return split(rt, self, arg, false, out);
}

METHOD(rsplit)
{
    JINJA_UNUSED;
    return split(rt, self, arg, true, out);
}

METHOD(splitlines)
{
    JINJA_UNUSED;
    return jinja_make_list(rt, 0, out) &&
           jinja_splitlines(rt, self, jinja_truthy(&arg[0]), out->u.list);
}

static bool partition(struct jinja_rt *rt, const struct jinja_value *self,
                      const struct jinja_value *sep, bool last, struct jinja_value *out)
{
    const char *hit;
    struct jinja_value empty = jinja_substr(self, 0, 0), part3[3];
    size_t at;
    int i;

    if (!jinja_arg_str(rt, sep, "separator"))
        return false;
    if (sep->len == 0)
        return jinja_fail(rt, JINJA_ERR_TYPE, "empty separator");
    hit = last ? find_last(rt, self, sep) : memmem(self->u.s, self->len, sep->u.s, sep->len);
    at = hit ? (size_t)(hit - self->u.s) : 0;
    part3[0] = hit ? jinja_substr(self, 0, at) : last ? empty : *self;
    part3[1] = hit ? jinja_substr(self, at, at + sep->len) : empty;
    part3[2] = hit ? jinja_substr(self, at + sep->len, self->len) : last ? *self : empty;
    if (!jinja_charge(rt, (size_t)self->len * JINJA_COST_SEARCH) || !jinja_make_list(rt, 3, out))
        return false;
    out->kind = JINJA_TUPLE;
    for (i = 0; i < 3; i++)
        out->u.list->items[i] = part3[i];
    out->u.list->count = 3;
    return true;
}

METHOD(partition)
{
    JINJA_UNUSED;
    return partition(rt, self, &arg[0], false, out);
}

METHOD(rpartition)
{
    JINJA_UNUSED;
    return partition(rt, self, &arg[0], true, out);
}

METHOD(join)
{
    struct jinja_sb sb = {.rt = rt};
    bool markup = (self->flags & JINJA_F_MARKUP) != 0;
    struct jinja_list *list;
    struct jinja_value item;
    uint32_t i;

    JINJA_UNUSED;
    if (!jinja_iterable(&arg[0]))
        return jinja_fail(rt, JINJA_ERR_TYPE, "can only join an iterable");
    if (!jinja_items(rt, &arg[0], &list))
        return false;
    for (i = 0; i < list->count; i++) {
        item = list->items[i];
        if (item.kind != JINJA_STR && !markup)
            return jinja_fail(rt, JINJA_ERR_TYPE,
                              "sequence item %u: expected str instance, %s found", i,
                              jinja_type_name(&item));
        if (markup && !jinja_escape(rt, &list->items[i], &item))
            return false;
        if ((i && !jinja_sb_put(&sb, self->u.s, self->len)) ||
            !jinja_sb_put(&sb, item.u.s, item.len))
            return false;
    }
    *out = jinja_sb_finish(&sb, self->flags & JINJA_F_MARKUP);
    return true;
}

METHOD(format)
{
    JINJA_UNUSED;
    return jinja_format_braces(rt, self, args, out);
}
