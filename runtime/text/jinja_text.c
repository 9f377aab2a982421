// SPDX-License-Identifier: Apache-2.0
/* Building strings; str(), repr() and json.dumps() as Python writes them. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/text/jinja_number.h"
#include "runtime/text/jinja_rt.h"
#include "runtime/text/jinja_unicode.h"

#define MAX_STR_BYTES ((size_t)UINT32_MAX / 2)

/* ---- string builder ------------------------------------------------------------------------ */

/* Makes room for `more` bytes. While the text is the newest thing in the arena it grows in place.
 */
static bool sb_room(struct jinja_sb *sb, size_t more)
{
    size_t cap;
    char *p;

    if (sb->cap - sb->len >= more)
        return true;
    if (more > MAX_STR_BYTES - sb->len)
        return jinja_fail(sb->rt, JINJA_ERR_LIMIT, "string too long");
    cap = sb->len + more;
    if (cap < sb->cap * 2)
        cap = sb->cap * 2;
    if (cap < 64)
        cap = 64;
    if (sb->cap && jinja_arena_extend(sb->rt->arena, sb->p + sb->cap, cap - sb->cap)) {
        sb->cap = cap;
        return true;
    }
    p = jinja_arena_alloc(sb->rt->arena, cap, 1);
    if (!p)
        return jinja_fail_memory(sb->rt);
    if (sb->len)
        memcpy(p, sb->p, sb->len);
    sb->p = p;
    sb->cap = cap;
    return true;
}

bool jinja_sb_put(struct jinja_sb *sb, const char *text, size_t len)
{
    if (!len)
        return true;
    if (!jinja_charge(sb->rt, len) || !sb_room(sb, len))
        return false;
    memcpy(sb->p + sb->len, text, len);
    sb->len += len;
    return true;
}

bool jinja_sb_putc(struct jinja_sb *sb, char c)
{
    if (sb->len == sb->cap && !sb_room(sb, 1))
        return false;
    sb->p[sb->len++] = c;
    return true;
}

bool jinja_sb_put_cp(struct jinja_sb *sb, uint32_t cp)
{
    char buf[4];
    unsigned n = jinja_utf8_encode(cp, buf);

    if (!sb_room(sb, n))
        return false;
    memcpy(sb->p + sb->len, buf, n);
    sb->len += n;
    return true;
}

bool jinja_sb_put_fmt(struct jinja_sb *sb, const char *fmt, ...)
{
    char buf[128];
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(buf, sizeof(buf), fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof(buf))
        return jinja_fail(sb->rt, JINJA_ERR_LIMIT, "formatted text too long");
    return jinja_sb_put(sb, buf, (size_t)n);
}

bool jinja_sb_pad(struct jinja_sb *sb, const char *fill, size_t fill_len, size_t times)
{
    size_t i;

    if (fill_len && times > MAX_STR_BYTES / fill_len)
        return jinja_fail(sb->rt, JINJA_ERR_LIMIT, "string too long");
    if (!jinja_charge(sb->rt, fill_len * times) || !sb_room(sb, fill_len * times))
        return false;
    for (i = 0; i < times; i++, sb->len += fill_len)
        memcpy(sb->p + sb->len, fill, fill_len);
    return true;
}

struct jinja_value jinja_sb_finish(struct jinja_sb *sb, unsigned flags)
{
    struct jinja_value v;

    if (sb->cap)
        jinja_arena_trim(sb->rt->arena, sb->p + sb->cap, sb->p + sb->len);
    v = jinja_str_trusted(sb->p ? sb->p : "", (uint32_t)sb->len);
    v.flags |= (uint8_t)flags;
    return v;
}

struct jinja_value jinja_substr(const struct jinja_value *v, size_t from, size_t to)
{
    struct jinja_value s = *v;

    s.u.s += from;
    s.len = (uint32_t)(to - from);
    if (!(v->flags & JINJA_F_ASCII))
        s.flags |= jinja_is_ascii(s.u.s, s.len) ? JINJA_F_ASCII : 0;
    return s;
}

bool jinja_make_str(struct jinja_rt *rt, const char *text, size_t len, struct jinja_value *out)
{
    struct jinja_sb sb = {.rt = rt};

    if (!jinja_sb_put(&sb, text, len))
        return false;
    *out = jinja_sb_finish(&sb, 0);
    return true;
}

/* ---- repr and str -------------------------------------------------------------------------- */

static bool put_str_repr(struct jinja_sb *sb, const struct jinja_value *v)
{
    const char *p = v->u.s, *end = p + v->len;
    char quote = '\'';
    uint32_t cp;

    if (v->len && memchr(p, '\'', v->len) && !memchr(p, '"', v->len))
        quote = '"';
    if (!jinja_charge(sb->rt, (size_t)v->len * JINJA_COST_SEARCH) || !jinja_sb_putc(sb, quote))
        return false;
    while (p < end) {
        const char *start = p;
        bool ok;

        p += jinja_utf8_decode(p, &cp);
        if (cp == (unsigned char)quote || cp == '\\')
            ok = jinja_sb_putc(sb, '\\') && jinja_sb_putc(sb, (char)cp);
        else if (cp == '\n')
            ok = jinja_sb_put(sb, "\\n", 2);
        else if (cp == '\r')
            ok = jinja_sb_put(sb, "\\r", 2);
        else if (cp == '\t')
            ok = jinja_sb_put(sb, "\\t", 2);
        else if (jinja_is_printable(cp))
            ok = jinja_sb_put(sb, start, (size_t)(p - start));
        else
            ok = jinja_sb_put_fmt(sb,
                                  cp < 0x100     ? "\\x%02x"
                                  : cp < 0x10000 ? "\\u%04x"
                                                 : "\\U%08x",
                                  cp);
        if (!ok)
            return false;
    }
    return jinja_sb_putc(sb, quote);
}

static bool put_items(struct jinja_sb *sb, const struct jinja_list *list, const char *open,
                      const char *close)
{
    uint32_t i;

    if (!jinja_sb_put(sb, open, strlen(open)))
        return false;
    for (i = 0; i < list->count; i++)
        if ((i && !jinja_sb_put(sb, ", ", 2)) || !jinja_put_repr(sb, &list->items[i]))
            return false;
    return jinja_sb_put(sb, close, strlen(close));
}

static bool put_dict(struct jinja_sb *sb, const struct jinja_dict *dict)
{
    uint32_t i;

    if (!jinja_sb_putc(sb, '{'))
        return false;
    for (i = 0; i < dict->count; i++)
        if ((i && !jinja_sb_put(sb, ", ", 2)) || !jinja_put_repr(sb, &dict->pairs[i].key) ||
            !jinja_sb_put(sb, ": ", 2) || !jinja_put_repr(sb, &dict->pairs[i].value))
            return false;
    return jinja_sb_putc(sb, '}');
}

static bool put_macro(struct jinja_sb *sb, const struct jinja_macro *macro)
{
    const struct jinja_ast_node *n = jinja_node(sb->rt, macro->node);
    struct jinja_value name = {.kind = JINJA_STR};

    if (n->kind != JN_MACRO)
        return jinja_sb_put(sb, "<Macro anonymous>", 17);
    name.u.s = jinja_ast_text(sb->rt, n->a, &name.len);
    return jinja_sb_put(sb, "<Macro ", 7) && put_str_repr(sb, &name) && jinja_sb_putc(sb, '>');
}

static bool put_range(struct jinja_sb *sb, const struct jinja_range *r)
{
    if (r->step == 1)
        return jinja_sb_put_fmt(sb, "range(%lld, %lld)", (long long)r->start, (long long)r->stop);
    return jinja_sb_put_fmt(sb, "range(%lld, %lld, %lld)", (long long)r->start, (long long)r->stop,
                            (long long)r->step);
}

static bool put_repr(struct jinja_sb *sb, const struct jinja_value *v)
{
    char buf[40];
    int64_t n;

    switch (v->kind) {
    case JINJA_UNDEFINED:
        return jinja_sb_put(sb, "Undefined", 9);
    case JINJA_NONE:
        return jinja_sb_put(sb, "None", 4);
    case JINJA_BOOL:
        return v->u.b ? jinja_sb_put(sb, "True", 4) : jinja_sb_put(sb, "False", 5);
    case JINJA_INT:
        return jinja_sb_put_fmt(sb, "%lld", (long long)v->u.i);
    case JINJA_BIGINT:
        return jinja_sb_put(sb, v->u.s, v->len);
    case JINJA_FLOAT:
        return jinja_charge(sb->rt, JINJA_COST_FLOAT) &&
               jinja_sb_put(sb, buf, jinja_float_repr(v->u.f, buf));
    case JINJA_STR:
        if (!(v->flags & JINJA_F_MARKUP))
            return put_str_repr(sb, v);
        return jinja_sb_put(sb, "Markup(", 7) && put_str_repr(sb, v) && jinja_sb_putc(sb, ')');
    case JINJA_LIST:
        return put_items(sb, v->u.list, "[", "]");
    case JINJA_TUPLE:
        return put_items(sb, v->u.list, "(", v->u.list->count == 1 ? ",)" : ")");
    case JINJA_KEYS:
        return put_items(sb, v->u.list, "dict_keys([", "])");
    case JINJA_VALUES:
        return put_items(sb, v->u.list, "dict_values([", "])");
    case JINJA_ITEMS:
        return put_items(sb, v->u.list, "dict_items([", "])");
    case JINJA_DICT:
        return put_dict(sb, v->u.dict);
    case JINJA_NAMESPACE:
        return jinja_sb_put(sb, "<Namespace ", 11) && put_dict(sb, v->u.dict) &&
               jinja_sb_putc(sb, '>');
    case JINJA_RANGE:
        return put_range(sb, v->u.range);
    case JINJA_MACRO:
        return put_macro(sb, v->u.macro);
    case JINJA_LOOP:
        return jinja_loop_length(sb->rt, v->u.loop, &n) &&
               jinja_sb_put_fmt(sb, "<LoopContext %lld/%lld>", (long long)v->u.loop->index0 + 1,
                                (long long)n);
    default:
        /* Python would print a memory address. */
        return jinja_fail(sb->rt, JINJA_ERR_UNSUPPORTED, "a '%s' object has no text form here",
                          jinja_type_name(v));
    }
}

bool jinja_put_repr(struct jinja_sb *sb, const struct jinja_value *v)
{
    bool ok = jinja_enter(sb->rt) && put_repr(sb, v);

    jinja_leave(sb->rt);
    return ok;
}

bool jinja_put_str(struct jinja_sb *sb, const struct jinja_value *v)
{
    if (v->kind == JINJA_STR)
        return jinja_sb_put(sb, v->u.s, v->len);
    if (v->kind == JINJA_UNDEFINED)
        return true;
    return jinja_put_repr(sb, v);
}

bool jinja_to_str(struct jinja_rt *rt, const struct jinja_value *v, struct jinja_value *out)
{
    struct jinja_sb sb = {.rt = rt};

    if (v->kind == JINJA_STR) {
        *out = *v;
        return true;
    }
    if (!jinja_put_str(&sb, v))
        return false;
    *out = jinja_sb_finish(&sb, 0);
    return true;
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static bool put_json_str(struct jinja_sb *sb, const struct jinja_value *v, bool ensure_ascii)
{
    const char *p = v->u.s, *end = p + v->len, *plain = p;
    static const char short_escape[] = "btn\0fr"; /* for 8, 9, 10, 12, 13 */
    uint32_t cp;
    bool ok = jinja_charge(sb->rt, v->len) && jinja_sb_putc(sb, '"');

    while (ok && p < end) {
        const char *start = p;

        p += jinja_utf8_decode(p, &cp);
        if (cp >= 0x20 && cp != '"' && cp != '\\' && !(ensure_ascii && cp > 0x7e))
            continue;
        ok = jinja_sb_put(sb, plain, (size_t)(start - plain));
        plain = p;
        if (!ok)
            break;
        if (cp == '"' || cp == '\\')
            ok = jinja_sb_putc(sb, '\\') && jinja_sb_putc(sb, (char)cp);
        else if (cp >= 8 && cp <= 13 && cp != 11)
            ok = jinja_sb_putc(sb, '\\') && jinja_sb_putc(sb, short_escape[cp - 8]);
        else if (cp < 0x10000)
            ok = jinja_sb_put_fmt(sb, "\\u%04x", cp);
        else
            ok = jinja_sb_put_fmt(sb, "\\u%04x\\u%04x", 0xd800 + ((cp - 0x10000) >> 10),
                                  0xdc00 + ((cp - 0x10000) & 0x3ff));
    }
    return ok && jinja_sb_put(sb, plain, (size_t)(end - plain)) && jinja_sb_putc(sb, '"');
}

static bool put_json_float(struct jinja_sb *sb, double f)
{
    char buf[40];

    if (isnan(f))
        return jinja_sb_put(sb, "NaN", 3);
    if (isinf(f))
        return f < 0 ? jinja_sb_put(sb, "-Infinity", 9) : jinja_sb_put(sb, "Infinity", 8);
    return jinja_charge(sb->rt, JINJA_COST_FLOAT) &&
           jinja_sb_put(sb, buf, jinja_float_repr(f, buf));
}

static bool put_json_key(struct jinja_sb *sb, const struct jinja_value *key, bool ensure_ascii)
{
    switch (key->kind) {
    case JINJA_STR:
        return put_json_str(sb, key, ensure_ascii);
    case JINJA_BOOL:
        return key->u.b ? jinja_sb_put(sb, "\"true\"", 6) : jinja_sb_put(sb, "\"false\"", 7);
    case JINJA_NONE:
        return jinja_sb_put(sb, "\"null\"", 6);
    case JINJA_INT:
        return jinja_sb_put_fmt(sb, "\"%lld\"", (long long)key->u.i);
    case JINJA_FLOAT:
        return jinja_sb_putc(sb, '"') && put_json_float(sb, key->u.f) && jinja_sb_putc(sb, '"');
    default:
        return jinja_fail(sb->rt, JINJA_ERR_TYPE,
                          "keys must be str, int, float, bool or None, not %s",
                          jinja_type_name(key));
    }
}

static bool put_json(struct jinja_sb *sb, const struct jinja_value *v,
                     const struct jinja_json_style *style, uint32_t level);

static bool json_newline(struct jinja_sb *sb, const struct jinja_json_style *style, uint32_t level)
{
    return !style->pretty || (jinja_sb_putc(sb, '\n') &&
                              jinja_sb_pad(sb, style->indent.u.s, style->indent.len, level));
}

static bool put_json_list(struct jinja_sb *sb, const struct jinja_list *list,
                          const struct jinja_json_style *style, uint32_t level)
{
    uint32_t i;

    if (!list->count)
        return jinja_sb_put(sb, "[]", 2);
    if (!jinja_sb_putc(sb, '['))
        return false;
    for (i = 0; i < list->count; i++)
        if ((i && !jinja_sb_put(sb, style->item_sep.u.s, style->item_sep.len)) ||
            !json_newline(sb, style, level + 1) || !put_json(sb, &list->items[i], style, level + 1))
            return false;
    return json_newline(sb, style, level) && jinja_sb_putc(sb, ']');
}

static bool put_json_dict(struct jinja_sb *sb, const struct jinja_dict *dict,
                          const struct jinja_json_style *style, uint32_t level)
{
    struct jinja_value *keys = NULL, *order = NULL;
    uint32_t i;

    if (!dict->count)
        return jinja_sb_put(sb, "{}", 2);
    if (style->sort_keys) {
        keys = jinja_alloc(sb->rt, dict->count * sizeof(*keys));
        order = jinja_alloc(sb->rt, dict->count * sizeof(*order));
        if (!keys || !order)
            return false;
        for (i = 0; i < dict->count; i++) {
            keys[i] = dict->pairs[i].key;
            order[i] = jinja_int(i);
        }
        if (!jinja_sort(sb->rt, order, keys, dict->count, false))
            return false;
    }
    if (!jinja_sb_putc(sb, '{'))
        return false;
    for (i = 0; i < dict->count; i++) {
        const struct jinja_pair *pair = &dict->pairs[order ? order[i].u.i : i];

        if ((i && !jinja_sb_put(sb, style->item_sep.u.s, style->item_sep.len)) ||
            !json_newline(sb, style, level + 1) ||
            !put_json_key(sb, &pair->key, style->ensure_ascii) ||
            !jinja_sb_put(sb, style->key_sep.u.s, style->key_sep.len) ||
            !put_json(sb, &pair->value, style, level + 1))
            return false;
    }
    return json_newline(sb, style, level) && jinja_sb_putc(sb, '}');
}

static bool put_json(struct jinja_sb *sb, const struct jinja_value *v,
                     const struct jinja_json_style *style, uint32_t level)
{
    bool ok = jinja_enter(sb->rt);

    if (ok) {
        switch (v->kind) {
        case JINJA_NONE:
            ok = jinja_sb_put(sb, "null", 4);
            break;
        case JINJA_BOOL:
            ok = v->u.b ? jinja_sb_put(sb, "true", 4) : jinja_sb_put(sb, "false", 5);
            break;
        case JINJA_INT:
            ok = jinja_sb_put_fmt(sb, "%lld", (long long)v->u.i);
            break;
        case JINJA_BIGINT:
            ok = jinja_sb_put(sb, v->u.s, v->len);
            break;
        case JINJA_FLOAT:
            ok = put_json_float(sb, v->u.f);
            break;
        case JINJA_STR:
            ok = put_json_str(sb, v, style->ensure_ascii);
            break;
        case JINJA_LIST:
        case JINJA_TUPLE:
            ok = put_json_list(sb, v->u.list, style, level);
            break;
        case JINJA_DICT:
            ok = put_json_dict(sb, v->u.dict, style, level);
            break;
        default:
            ok = jinja_fail(sb->rt, JINJA_ERR_TYPE, "Object of type %s is not JSON serializable",
                            jinja_type_name(v));
        }
    }
    jinja_leave(sb->rt);
    return ok;
}

bool jinja_put_json(struct jinja_sb *sb, const struct jinja_value *v,
                    const struct jinja_json_style *style)
{
    return put_json(sb, v, style, 0);
}

/* ---- markup -------------------------------------------------------------------------------- */

bool jinja_put_escaped(struct jinja_sb *sb, const char *text, size_t len)
{
    const char *end = text + len, *plain = text;
    const char *with;

    if (!jinja_charge(sb->rt, len))
        return false;
    for (; text < end; text++) {
        with = *text == '&'    ? "&amp;"
               : *text == '<'  ? "&lt;"
               : *text == '>'  ? "&gt;"
               : *text == '"'  ? "&#34;"
               : *text == '\'' ? "&#39;"
                               : NULL;
        if (!with)
            continue;
        if (!jinja_sb_put(sb, plain, (size_t)(text - plain)) ||
            !jinja_sb_put(sb, with, strlen(with)))
            return false;
        plain = text + 1;
    }
    return jinja_sb_put(sb, plain, (size_t)(end - plain));
}

bool jinja_escape(struct jinja_rt *rt, const struct jinja_value *v, struct jinja_value *out)
{
    struct jinja_sb sb = {.rt = rt};
    struct jinja_value s;

    if (v->kind == JINJA_STR && (v->flags & JINJA_F_MARKUP)) {
        *out = *v;
        return true;
    }
    if (!jinja_to_str(rt, v, &s) || !jinja_put_escaped(&sb, s.u.s, s.len))
        return false;
    *out = jinja_sb_finish(&sb, JINJA_F_MARKUP);
    return true;
}
