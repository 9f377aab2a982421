// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE /* memrchr */
/* Filters that work on text and numbers. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/text/jinja_builtins.h"
#include "runtime/text/jinja_format.h"
#include "runtime/text/jinja_unicode.h"

#define FILTER(name) bool jinja_filter_##name(JINJA_PARAMS)

static bool given(const struct jinja_value *v)
{
    return v->kind != JINJA_MISSING && v->kind != JINJA_NONE;
}

static bool plain_str(struct jinja_rt *rt, const struct jinja_value *v, struct jinja_value *out)
{
    if (!jinja_to_str(rt, v, out))
        return false;
    out->flags &= (uint8_t)~JINJA_F_MARKUP;
    return true;
}

/* ---- case, strip, layout ------------------------------------------------------------------- */

FILTER(lower)
{
    struct jinja_value s;

    JINJA_UNUSED;
    return jinja_to_str(rt, self, &s) && jinja_lower(rt, &s, out);
}

FILTER(upper)
{
    struct jinja_value s;

    JINJA_UNUSED;
    return jinja_to_str(rt, self, &s) && jinja_upper(rt, &s, out);
}

FILTER(capitalize)
{
    struct jinja_value s;

    JINJA_UNUSED;
    return jinja_to_str(rt, self, &s) && jinja_capitalize(rt, &s, out);
}

/* Words begin after white space and any of - ( { [ < ; the separators keep their place. */
FILTER(title)
{
    struct jinja_sb sb = {.rt = rt};
    struct jinja_value s, word, rest;
    size_t at = 0, start = 0, first, n;
    uint32_t cp;
    bool sep, ok;

    JINJA_UNUSED;
    if (!jinja_to_str(rt, self, &s))
        return false;
    for (;; at += n) {
        sep = at == s.len;
        n = 0;
        if (!sep) {
            n = jinja_utf8_decode(s.u.s + at, &cp);
            sep = jinja_is_space(cp) || (cp < 0x80 && memchr("-({[<", (int)cp, 5) != NULL);
        }
        if (!sep)
            continue;
        if (at > start) {
            first = jinja_utf8_decode(s.u.s + start, &cp);
            word = jinja_substr(&s, start, start + first);
            rest = jinja_substr(&s, start + first, at);
            ok = jinja_upper(rt, &word, &word) && jinja_lower(rt, &rest, &rest) &&
                 jinja_sb_put(&sb, word.u.s, word.len) && jinja_sb_put(&sb, rest.u.s, rest.len);
            if (!ok)
                return false;
        }
        if (at == s.len)
            break;
        if (!jinja_sb_put(&sb, s.u.s + at, n))
            return false;
        start = at + n;
    }
    *out = jinja_sb_finish(&sb, 0);
    return true;
}

FILTER(trim)
{
    struct jinja_value s;

    JINJA_UNUSED;
    return jinja_to_str(rt, self, &s) && jinja_strip(rt, &s, &arg[0], 3, out);
}

FILTER(center)
{
    struct jinja_value s, fill = {.kind = JINJA_MISSING};
    int64_t width;

    JINJA_UNUSED;
    return jinja_arg_int(rt, &arg[0], 80, &width) && jinja_to_str(rt, self, &s) &&
           jinja_justify(rt, &s, width, &fill, '^', out);
}

FILTER(replace)
{
    struct jinja_value s, old, with;
    int64_t max = -1;

    JINJA_UNUSED;
    return (!given(&arg[2]) || jinja_arg_int(rt, &arg[2], -1, &max)) && plain_str(rt, self, &s) &&
           plain_str(rt, &arg[0], &old) && plain_str(rt, &arg[1], &with) &&
           jinja_replace(rt, &s, &old, &with, max, out);
}

FILTER(string)
{
    JINJA_UNUSED;
    return jinja_to_str(rt, self, out);
}

FILTER(safe)
{
    JINJA_UNUSED;
    if (!jinja_to_str(rt, self, out))
        return false;
    out->flags |= JINJA_F_MARKUP;
    return true;
}

FILTER(escape)
{
    JINJA_UNUSED;
    return jinja_escape(rt, self, out);
}

FILTER(forceescape)
{
    struct jinja_value s;

    JINJA_UNUSED;
    return plain_str(rt, self, &s) && jinja_escape(rt, &s, out);
}

FILTER(indent)
{
    struct jinja_sb sb = {.rt = rt};
    bool first = jinja_truthy(&arg[1]), blank = jinja_truthy(&arg[2]), inside;
    struct jinja_value lines, text = *self;
    size_t spaces = 0;
    int64_t width;
    uint32_t i;

    JINJA_UNUSED;
    if (self->kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(rt, self);
    if (self->kind != JINJA_STR)
        return jinja_fail(rt, JINJA_ERR_TYPE, "unsupported operand type(s) for +=: '%s' and 'str'",
                          jinja_type_name(self));
    if (arg[0].kind != JINJA_STR) {
        if (!jinja_arg_int(rt, &arg[0], 4, &width))
            return false;
        spaces = width > 0 ? (size_t)width : 0;
    }
#define PUT_INDENT()                                                      \
    (arg[0].kind == JINJA_STR ? jinja_sb_put(&sb, arg[0].u.s, arg[0].len) \
                              : jinja_sb_pad(&sb, " ", 1, spaces))
    /* jinja2 adds a newline first, so a trailing line end gives one more, empty line. */
    if (!jinja_make_list(rt, 0, &lines) || !jinja_splitlines(rt, &text, false, lines.u.list))
        return false;
    if (!text.len || text.u.s[text.len - 1] == '\n' || lines.u.list->count == 0) {
        struct jinja_value empty = jinja_str_trusted("", 0);

        if (!jinja_push(rt, lines.u.list, &empty))
            return false;
    } else {
        /* Another line end than \n at the very end (\r joins the added \n to one). */
        const struct jinja_value *last = &lines.u.list->items[lines.u.list->count - 1];

        if (last->u.s + last->len != text.u.s + text.len && text.u.s[text.len - 1] != '\r') {
            struct jinja_value empty = jinja_str_trusted("", 0);

            if (!jinja_push(rt, lines.u.list, &empty))
                return false;
        }
    }
    if (first && !PUT_INDENT())
        return false;
    for (i = 0; i < lines.u.list->count; i++) {
        const struct jinja_value *line = &lines.u.list->items[i];

        inside = i > 0 && (blank || line->len);
        if ((i && !jinja_sb_putc(&sb, '\n')) || (inside && !PUT_INDENT()) ||
            !jinja_sb_put(&sb, line->u.s, line->len))
            return false;
    }
#undef PUT_INDENT
    *out = jinja_sb_finish(&sb, self->flags & JINJA_F_MARKUP);
    return true;
}

FILTER(truncate)
{
    struct jinja_sb sb = {.rt = rt};
    struct jinja_value end = jinja_str_trusted("...", 3), s = *self, head,
                       none = {.kind = JINJA_MISSING};
    struct jinja_value stop;
    int64_t length, leeway = 5, n, end_len;
    const char *space;

    JINJA_UNUSED;
    if (!jinja_arg_int(rt, &arg[0], 255, &length) ||
        (given(&arg[3]) && !jinja_arg_int(rt, &arg[3], 5, &leeway)))
        return false;
    if (arg[2].kind != JINJA_MISSING) {
        if (!jinja_arg_str(rt, &arg[2], "truncate end"))
            return false;
        end = arg[2];
    }
    if (!jinja_length(rt, &s, &n) || !jinja_length(rt, &end, &end_len))
        return false;
    if (length < end_len)
        return jinja_fail(rt, JINJA_ERR_TYPE, "expected length >= %lld, got %lld",
                          (long long)end_len, (long long)length);
    if (leeway < 0)
        return jinja_fail(rt, JINJA_ERR_TYPE, "expected leeway >= 0, got %lld", (long long)leeway);
    if (n <= length || n - length <= leeway) {
        *out = s; /* whatever has a length */
        return true;
    }
    if (!jinja_arg_str(rt, self, "truncate value"))
        return false;
    stop = jinja_int(length - end_len);
    if (!jinja_slice(rt, &s, &none, &stop, &none, &head))
        return false;
    space = head.len ? memrchr(head.u.s, ' ', head.len) : NULL;
    if (!jinja_truthy(&arg[1]) && space)
        head = jinja_substr(&head, 0, (size_t)(space - head.u.s));
    if (!jinja_sb_put(&sb, head.u.s, head.len) || !jinja_sb_put(&sb, end.u.s, end.len))
        return false;
    *out = jinja_sb_finish(&sb, 0);
    return true;
}

FILTER(wordcount)
{
    struct jinja_value s;
    size_t at = 0;
    uint32_t cp;
    bool in_word = false, word;
    int64_t n = 0;

    JINJA_UNUSED;
    if (!jinja_to_str(rt, self, &s) || !jinja_charge(rt, (size_t)s.len * JINJA_COST_CHAR))
        return false;
    while (at < s.len) {
        at += jinja_utf8_decode(s.u.s + at, &cp);
        word = jinja_is_word(cp);
        n += word && !in_word;
        in_word = word;
    }
    *out = jinja_int(n);
    return true;
}

static bool put_quoted(struct jinja_sb *sb, const struct jinja_value *v, bool query)
{
    static const char hex[] = "0123456789ABCDEF";
    struct jinja_value s;
    uint32_t i;
    bool ok = jinja_to_str(sb->rt, v, &s) && jinja_charge(sb->rt, s.len);

    for (i = 0; ok && i < s.len; i++) {
        unsigned char c = (unsigned char)s.u.s[i];

        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
            (c && strchr("_.-~", c)) || (c == '/' && !query))
            ok = jinja_sb_putc(sb, (char)c);
        else if (c == ' ' && query)
            ok = jinja_sb_putc(sb, '+');
        else
            ok = jinja_sb_putc(sb, '%') && jinja_sb_putc(sb, hex[c >> 4]) &&
                 jinja_sb_putc(sb, hex[c & 15]);
    }
    return ok;
}

FILTER(urlencode)
{
    struct jinja_sb sb = {.rt = rt};
    struct jinja_list *list, *pair;
    struct jinja_args no_args = {0};
    struct jinja_value items = *self;
    uint32_t i;

    JINJA_UNUSED;
    if (self->kind == JINJA_STR || !jinja_iterable(self)) {
        if (!put_quoted(&sb, self, false))
            return false;
        *out = jinja_sb_finish(&sb, 0);
        return true;
    }
    if (self->kind == JINJA_DICT && !jinja_method_dict_items(rt, self, &no_args, NULL, &items))
        return false;
    if (!jinja_items(rt, &items, &list))
        return false;
    for (i = 0; i < list->count; i++) {
        if (!jinja_items(rt, &list->items[i], &pair))
            return false;
        if (pair->count != 2)
            return jinja_fail(rt, JINJA_ERR_TYPE, "urlencode needs pairs");
        if ((i && !jinja_sb_putc(&sb, '&')) || !put_quoted(&sb, &pair->items[0], true) ||
            !jinja_sb_putc(&sb, '=') || !put_quoted(&sb, &pair->items[1], true))
            return false;
    }
    *out = jinja_sb_finish(&sb, 0);
    return true;
}

FILTER(format)
{
    struct jinja_value s, values;
    uint32_t i;

    JINJA_UNUSED;
    if (args->npos && args->nkw)
        return jinja_fail(rt, JINJA_ERR_TYPE,
                          "can't handle positional and keyword arguments at the same time");
    if (!jinja_to_str(rt, self, &s))
        return false;
    if (args->nkw) {
        if (!jinja_dict_init(rt->arena, args->nkw, &values))
            return jinja_fail_memory(rt);
        for (i = 0; i < args->nkw; i++)
            if (!jinja_dict_set(rt, values.u.dict, &args->kw[i].key, &args->kw[i].value))
                return false;
    } else {
        if (!jinja_make_list(rt, args->npos, &values))
            return false;
        values.kind = JINJA_TUPLE;
        for (i = 0; i < args->npos; i++)
            if (!jinja_push(rt, values.u.list, &args->pos[i]))
                return false;
    }
    return jinja_format_percent(rt, &s, &values, out);
}

/* ---- JSON ---------------------------------------------------------------------------------- */

FILTER(tojson)
{
    struct jinja_sb sb = {.rt = rt}, pad = {.rt = rt};
    struct jinja_json_style style = {
        .ensure_ascii = jinja_truthy(&arg[0]),
        .pretty = given(&arg[1]),
        .sort_keys = jinja_truthy(&arg[3]),
        .indent = jinja_str_trusted("", 0),
        .item_sep = jinja_str_trusted(", ", 2),
        .key_sep = jinja_str_trusted(": ", 2),
    };
    struct jinja_list *seps;
    int64_t width;

    JINJA_UNUSED;
    if (style.pretty) {
        style.item_sep = jinja_str_trusted(",", 1);
        if (arg[1].kind == JINJA_STR) {
            style.indent = arg[1];
        } else {
            if (!jinja_arg_int(rt, &arg[1], 0, &width) ||
                !jinja_sb_pad(&pad, " ", 1, width > 0 ? (size_t)width : 0))
                return false;
            style.indent = jinja_sb_finish(&pad, 0);
        }
    }
    if (given(&arg[2])) {
        if (!jinja_items(rt, &arg[2], &seps))
            return false;
        if (seps->count != 2 || seps->items[0].kind != JINJA_STR ||
            seps->items[1].kind != JINJA_STR)
            return jinja_fail(rt, JINJA_ERR_TYPE, "separators must be two strings");
        style.item_sep = seps->items[0];
        style.key_sep = seps->items[1];
    }
    if (!jinja_put_json(&sb, self, &style))
        return false;
    *out = jinja_sb_finish(&sb, 0);
    return true;
}

/* ---- numbers ------------------------------------------------------------------------------- */

static bool too_large(struct jinja_rt *rt)
{
    return jinja_fail(rt, JINJA_ERR_UNSUPPORTED, "integer does not fit 64 bits");
}

FILTER(abs)
{
    int64_t n;

    JINJA_UNUSED;
    if (self->kind == JINJA_FLOAT) {
        *out = jinja_float(fabs(self->u.f));
        return true;
    }
    if (self->kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(rt, self);
    if (self->kind == JINJA_BIGINT)
        return too_large(rt);
    if (!jinja_as_int(self, &n))
        return jinja_fail(rt, JINJA_ERR_TYPE, "bad operand type for abs(): '%s'",
                          jinja_type_name(self));
    *out = jinja_int(n);
    return n >= 0 || jinja_negate(rt, out, false, out);
}

static bool int_of_double(struct jinja_rt *rt, double f, const struct jinja_value *fallback,
                          struct jinja_value *out)
{
    if (isnan(f) || isinf(f)) {
        *out = *fallback;
        return true;
    }
    f = trunc(f);
    if (!(f >= -9223372036854775808.0 && f < 9223372036854775808.0))
        return too_large(rt);
    *out = jinja_int((int64_t)f);
    return true;
}

FILTER(int)
{
    struct jinja_value fallback = arg[0].kind == JINJA_MISSING ? jinja_int(0) : arg[0];
    int64_t base, n;
    bool overflow;
    double f;

    JINJA_UNUSED;
    if (!jinja_arg_int(rt, &arg[1], 10, &base))
        return false;
    if (self->kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(rt, self);
    if (self->kind == JINJA_FLOAT)
        return int_of_double(rt, self->u.f, &fallback, out);
    if (jinja_as_int(self, &n)) {
        *out = jinja_int(n);
        return true;
    }
    *out = self->kind == JINJA_BIGINT ? *self : fallback;
    if (self->kind != JINJA_STR)
        return true;
    if (jinja_parse_int(self, base, &n, &overflow)) {
        if (overflow)
            return too_large(rt);
        *out = jinja_int(n);
        return true;
    }
    return !jinja_parse_float(self, &f) || int_of_double(rt, f, &fallback, out);
}

FILTER(float)
{
    double f;

    JINJA_UNUSED;
    if (self->kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(rt, self);
    if (jinja_is_number(self))
        *out = jinja_float(jinja_as_double(self));
    else if ((self->kind == JINJA_STR || self->kind == JINJA_BIGINT) && jinja_parse_float(self, &f))
        *out = jinja_float(f);
    else
        *out = arg[0].kind == JINJA_MISSING ? jinja_float(0) : arg[0];
    return true;
}

FILTER(round)
{
    const char *method = "common";
    int64_t precision, n;
    char buf[512], *p;
    double f, scale;

    JINJA_UNUSED;
    if (!jinja_arg_int(rt, &arg[0], 0, &precision))
        return false;
    if (arg[1].kind != JINJA_MISSING) {
        method = jinja_str_is(&arg[1], "common") ? "common"
                 : jinja_str_is(&arg[1], "ceil") ? "ceil"
                                                 : "floor";
        if (!jinja_str_is(&arg[1], method))
            return jinja_fail(rt, JINJA_ERR_TYPE, "method must be common, ceil or floor");
    }
    if (self->kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(rt, self);
    if (self->kind == JINJA_BIGINT && method[0] == 'c' && method[1] == 'o') {
        *out = *self;
        return true;
    }
    if (self->kind == JINJA_BIGINT)
        return too_large(rt);
    if (!jinja_is_number(self))
        return jinja_fail(rt, JINJA_ERR_TYPE, "type %s doesn't define __round__ method",
                          jinja_type_name(self));
    if (precision < 0 || precision > 300)
        return jinja_fail(rt, JINJA_ERR_UNSUPPORTED, "round to that precision is not supported");
    if (method[0] == 'c' && method[1] == 'o' && jinja_as_int(self, &n)) {
        *out = jinja_int(n);
        return true;
    }
    f = jinja_as_double(self);
    if (method[0] != 'c' || method[1] != 'o') {
        scale = pow(10, (double)precision);
        f *= scale;
        *out = jinja_float((method[0] == 'c' ? ceil(f) : floor(f)) / scale);
        return true;
    }
    /* printf rounds the exact binary value half to even, as Python does; strtod reads it back in
     * the same locale. */
    if (!isfinite(f) || snprintf(buf, sizeof(buf), "%.*f", (int)precision, f) >= (int)sizeof(buf)) {
        *out = jinja_float(f);
        return true;
    }
    *out = jinja_float(strtod(buf, &p));
    return true;
}
