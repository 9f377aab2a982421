// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE /* memmem */
/* String work that filters and methods share: case, stripping, replacing, padding, number parsing.
 */
#include <string.h>

#include "runtime/text/jinja_builtins.h"
#include "runtime/text/jinja_number.h"
#include "runtime/text/jinja_unicode.h"

static unsigned markup_of(const struct jinja_value *v)
{
    return v->flags & JINJA_F_MARKUP;
}

bool jinja_str_is(const struct jinja_value *v, const char *text)
{
    return v->kind == JINJA_STR && strlen(text) == v->len && memcmp(v->u.s, text, v->len) == 0;
}

/* ---- case ---------------------------------------------------------------------------------- */

static bool put_case(struct jinja_sb *sb, const struct jinja_value *v, size_t at, uint32_t cp,
                     enum jinja_case to)
{
    uint32_t map[3];
    unsigned n, i;

    if (cp == 0x3a3 && to == JINJA_LOWER)
        return jinja_sb_put_cp(sb, jinja_final_sigma(v->u.s, v->len, at) ? 0x3c2 : 0x3c3);
    n = jinja_map_case(cp, to, map);
    for (i = 0; i < n; i++)
        if (!jinja_sb_put_cp(sb, map[i]))
            return false;
    return true;
}

/* first: for the first character; rest: for the others. */
static bool map_string(struct jinja_rt *rt, const struct jinja_value *v, enum jinja_case first,
                       enum jinja_case rest, struct jinja_value *out)
{
    struct jinja_sb sb = {.rt = rt};
    size_t at = 0, n;
    uint32_t cp;

    if (!jinja_charge(rt, (size_t)v->len * JINJA_COST_CHAR))
        return false;
    for (; at < v->len; at += n) {
        n = jinja_utf8_decode(v->u.s + at, &cp);
        if (!put_case(&sb, v, at, cp, at ? rest : first))
            return false;
    }
    *out = jinja_sb_finish(&sb, markup_of(v));
    return true;
}

bool jinja_lower(struct jinja_rt *rt, const struct jinja_value *v, struct jinja_value *out)
{
    return map_string(rt, v, JINJA_LOWER, JINJA_LOWER, out);
}

bool jinja_upper(struct jinja_rt *rt, const struct jinja_value *v, struct jinja_value *out)
{
    return map_string(rt, v, JINJA_UPPER, JINJA_UPPER, out);
}

bool jinja_capitalize(struct jinja_rt *rt, const struct jinja_value *v, struct jinja_value *out)
{
    return map_string(rt, v, JINJA_TITLE, JINJA_LOWER, out);
}

bool jinja_title_words(struct jinja_rt *rt, const struct jinja_value *v, struct jinja_value *out)
{
    struct jinja_sb sb = {.rt = rt};
    bool in_word = false;
    size_t at = 0, n;
    uint32_t cp;

    if (!jinja_charge(rt, (size_t)v->len * JINJA_COST_CHAR))
        return false;
    for (; at < v->len; at += n) {
        n = jinja_utf8_decode(v->u.s + at, &cp);
        if (!put_case(&sb, v, at, cp, in_word ? JINJA_LOWER : JINJA_TITLE))
            return false;
        in_word = jinja_is_cased(cp);
    }
    *out = jinja_sb_finish(&sb, markup_of(v));
    return true;
}

bool jinja_swapcase(struct jinja_rt *rt, const struct jinja_value *v, struct jinja_value *out)
{
    struct jinja_sb sb = {.rt = rt};
    size_t at = 0, n;
    uint32_t cp;
    bool ok;

    if (!jinja_charge(rt, (size_t)v->len * JINJA_COST_CHAR))
        return false;
    for (; at < v->len; at += n) {
        n = jinja_utf8_decode(v->u.s + at, &cp);
        if (jinja_is_class(cp, JINJA_CLASS_UPPER))
            ok = put_case(&sb, v, at, cp, JINJA_LOWER);
        else if (jinja_is_class(cp, JINJA_CLASS_LOWER))
            ok = put_case(&sb, v, at, cp, JINJA_UPPER);
        else
            ok = jinja_sb_put_cp(&sb, cp);
        if (!ok)
            return false;
    }
    *out = jinja_sb_finish(&sb, markup_of(v));
    return true;
}

/* Case folding is the lower case of the upper case, but for Cherokee, which folds to upper case,
 * and two letters. */
static bool put_folded(struct jinja_sb *sb, uint32_t cp)
{
    bool cherokee = (cp >= 0x13a0 && cp <= 0x13fd) || (cp >= 0xab70 && cp <= 0xabbf);
    uint32_t up[3], low[3];
    unsigned n, m, i, k;

    if (cp == 0x131)
        return jinja_sb_put_cp(sb, cp);
    if (cp == 0x1e9e)
        return jinja_sb_put(sb, "ss", 2);
    n = jinja_map_case(cp, JINJA_UPPER, up);
    for (i = 0; i < n; i++) {
        m = cherokee ? 0 : jinja_map_case(up[i], JINJA_LOWER, low);
        if (cherokee && !jinja_sb_put_cp(sb, up[i]))
            return false;
        for (k = 0; k < m; k++)
            if (!jinja_sb_put_cp(sb, low[k]))
                return false;
    }
    return true;
}

bool jinja_casefold(struct jinja_rt *rt, const struct jinja_value *v, struct jinja_value *out)
{
    struct jinja_sb sb = {.rt = rt};
    size_t at = 0;
    uint32_t cp;

    if (!jinja_charge(rt, (size_t)v->len * JINJA_COST_CHAR))
        return false;
    while (at < v->len) {
        at += jinja_utf8_decode(v->u.s + at, &cp);
        if (!put_folded(&sb, cp))
            return false;
    }
    *out = jinja_sb_finish(&sb, markup_of(v));
    return true;
}

bool jinja_is_all_case(const struct jinja_value *v, bool upper)
{
    size_t at = 0;
    uint32_t cp;
    bool cased = false;

    while (at < v->len) {
        at += jinja_utf8_decode(v->u.s + at, &cp);
        if (jinja_is_class(cp, JINJA_CLASS_TITLE) ||
            jinja_is_class(cp, upper ? JINJA_CLASS_LOWER : JINJA_CLASS_UPPER))
            return false;
        cased |= jinja_is_class(cp, upper ? JINJA_CLASS_UPPER : JINJA_CLASS_LOWER);
    }
    return cased;
}

/* ---- strip, replace, justify --------------------------------------------------------------- */

static bool strips(const struct jinja_value *chars, const char *p, size_t n, uint32_t cp)
{
    if (chars->kind != JINJA_STR)
        return jinja_is_space(cp);
    /* Characters are whole in valid UTF-8: a byte search finds no false match. */
    return memmem(chars->u.s, chars->len, p, n) != NULL;
}

bool jinja_strip(struct jinja_rt *rt, const struct jinja_value *v, const struct jinja_value *chars,
                 int sides, struct jinja_value *out)
{
    const char *from = v->u.s, *to = from + v->len, *p;
    size_t n;
    uint32_t cp;

    if (chars->kind == JINJA_UNDEFINED)
        return jinja_fail(rt, JINJA_ERR_TYPE, "strip arg must be None or str");
    if (chars->kind != JINJA_MISSING && chars->kind != JINJA_NONE &&
        !jinja_arg_str(rt, chars, "strip arg"))
        return false;
    while ((sides & 1) && from < to) {
        n = jinja_utf8_decode(from, &cp);
        if (!strips(chars, from, n, cp))
            break;
        from += n;
        if (chars->kind == JINJA_STR && !jinja_charge(rt, chars->len))
            return false;
    }
    while ((sides & 2) && from < to) {
        p = jinja_utf8_prev(to);
        n = jinja_utf8_decode(p, &cp);
        if (!strips(chars, p, n, cp))
            break;
        to = p;
        if (chars->kind == JINJA_STR && !jinja_charge(rt, chars->len))
            return false;
    }
    *out = jinja_substr(v, (size_t)(from - v->u.s), (size_t)(to - v->u.s));
    return jinja_charge(rt, v->len);
}

bool jinja_replace(struct jinja_rt *rt, const struct jinja_value *v, const struct jinja_value *old,
                   const struct jinja_value *with, int64_t max, struct jinja_value *out)
{
    struct jinja_sb sb = {.rt = rt};
    const char *p = v->u.s, *end = p + v->len, *hit;
    uint32_t cp;
    unsigned n;

    if (!jinja_charge(rt, (size_t)v->len * JINJA_COST_SEARCH))
        return false;
    if (max < 0) /* no limit */
        max = INT64_MAX;
    if (old->len == 0) { /* between all characters and at both ends */
        for (; max; max--) {
            if (!jinja_sb_put(&sb, with->u.s, with->len))
                return false;
            if (p == end)
                break;
            n = jinja_utf8_decode(p, &cp);
            if (!jinja_sb_put(&sb, p, n))
                return false;
            p += n;
        }
    } else {
        for (; max && p < end; max--) {
            hit = memmem(p, (size_t)(end - p), old->u.s, old->len);
            if (!hit)
                break;
            if (!jinja_sb_put(&sb, p, (size_t)(hit - p)) ||
                !jinja_sb_put(&sb, with->u.s, with->len))
                return false;
            p = hit + old->len;
        }
        if (p == v->u.s) {
            *out = *v;
            return true;
        }
    }
    if (!jinja_sb_put(&sb, p, (size_t)(end - p)))
        return false;
    *out = jinja_sb_finish(&sb, markup_of(v));
    return true;
}

bool jinja_justify(struct jinja_rt *rt, const struct jinja_value *v, int64_t width,
                   const struct jinja_value *fill, char align, struct jinja_value *out)
{
    struct jinja_sb sb = {.rt = rt};
    const char *with = " ";
    size_t with_len = 1, left, pad;
    int64_t len;

    if (fill->kind != JINJA_MISSING) {
        if (!jinja_arg_str(rt, fill, "the fill character"))
            return false;
        if (jinja_utf8_count(fill->u.s, fill->len) != 1)
            return jinja_fail(rt, JINJA_ERR_TYPE,
                              "The fill character must be exactly one character long");
        with = fill->u.s;
        with_len = fill->len;
    }
    if (!jinja_length(rt, v, &len))
        return false;
    if (width <= len) {
        *out = *v;
        return true;
    }
    pad = (size_t)(width - len);
    /* str.center puts the odd fill left when both are odd */
    left = align == '<' ? 0 : align == '>' ? pad : pad / 2 + (pad & (size_t)width & 1);
    if (!jinja_sb_pad(&sb, with, with_len, left) || !jinja_sb_put(&sb, v->u.s, v->len) ||
        !jinja_sb_pad(&sb, with, with_len, pad - left))
        return false;
    *out = jinja_sb_finish(&sb, markup_of(v));
    return true;
}

/* The bytes of a line end at p (str.splitlines), 0 when there is none. */
static size_t line_end(const char *p, const char *end)
{
    uint32_t cp;
    size_t n = jinja_utf8_decode(p, &cp);

    if (cp == '\r')
        return p + 1 < end && p[1] == '\n' ? 2 : 1;
    return (cp >= 10 && cp <= 12) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 || cp == 0x2028 ||
                   cp == 0x2029
               ? n
               : 0;
}

bool jinja_splitlines(struct jinja_rt *rt, const struct jinja_value *v, bool keep,
                      struct jinja_list *lines)
{
    const char *p = v->u.s, *end = p + v->len, *start = p;
    struct jinja_value line;
    uint32_t cp;
    size_t n;

    if (!jinja_charge(rt, (size_t)v->len * JINJA_COST_SEARCH))
        return false;
    while (p < end) {
        n = line_end(p, end);
        if (!n) {
            p += jinja_utf8_decode(p, &cp);
            if (p < end)
                continue;
        }
        line = jinja_substr(v, (size_t)(start - v->u.s), (size_t)(p + (keep ? n : 0) - v->u.s));
        if (!jinja_push(rt, lines, &line))
            return false;
        p += n;
        start = p;
    }
    return true;
}

/* ---- numbers ------------------------------------------------------------------------------- */

static int digit_of(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'z' ? c - 'a' + 10
           : c >= 'A' && c <= 'Z' ? c - 'A' + 10
                                  : 99;
}

/* The text of v without white space around it. */
static void trimmed(const struct jinja_value *v, const char **out_p, const char **out_end)
{
    const char *p = v->u.s, *end = p + v->len, *q;
    uint32_t cp;
    unsigned n;

    while (p < end && (n = jinja_utf8_decode(p, &cp), jinja_is_space(cp)))
        p += n;
    while (end > p && (q = jinja_utf8_prev(end), jinja_utf8_decode(q, &cp), jinja_is_space(cp)))
        end = q;
    *out_p = p;
    *out_end = end;
}

bool jinja_parse_int(const struct jinja_value *v, int64_t base, int64_t *out, bool *overflow)
{
    const char *p, *end;
    bool negative = false, digits = false, under = false;
    uint64_t n = 0, limit;
    int d, prefix = 10;

    *overflow = false;
    trimmed(v, &p, &end);
    if (p < end && (*p == '-' || *p == '+'))
        negative = *p++ == '-';
    if (end - p >= 2 && *p == '0') {
        char c = (char)(p[1] | 32);

        prefix = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 10;
        if (prefix != 10 && (base == 0 || base == prefix)) {
            p += 2;
            base = prefix;
            under = p < end && *p == '_';
            p += under;
            under = false;
        }
    }
    if (base == 0)
        base = 10;
    if (base < 2 || base > 36)
        return false;
    limit = (uint64_t)INT64_MAX + negative;
    for (; p < end; p++) {
        if (*p == '_' && digits && !under) {
            under = true;
            continue;
        }
        d = digit_of(*p);
        if (d >= base)
            return false;
        under = false;
        digits = true;
        if (!*overflow && (n > limit / (uint64_t)base || n * (uint64_t)base > limit - (uint64_t)d))
            *overflow = true;
        n = n * (uint64_t)base + (uint64_t)d;
    }
    if (!digits || under)
        return false;
    *out = negative ? (int64_t)(0 - n) : (int64_t)n;
    return true;
}

bool jinja_parse_float(const struct jinja_value *v, double *out)
{
    const char *p, *end, *q;
    char buf[512], *w = buf;

    trimmed(v, &p, &end);
    if (p == end || (size_t)(end - p) >= sizeof(buf))
        return false;
    for (q = p; q < end; q++) {
        bool letter = (*q | 32) >= 'a' && (*q | 32) <= 'z';

        if (*q == '_') { /* only between digits */
            if (q == p || q + 1 == end || digit_of(q[-1]) > 9 || digit_of(q[1]) > 9)
                return false;
            continue;
        }
        /* strtod also reads hexadecimal and nan(...): neither is Python */
        if (*q == 'x' || *q == 'X' ||
            !(letter || digit_of(*q) < 10 || *q == '.' || *q == '-' || *q == '+'))
            return false;
        *w++ = *q;
    }
    return jinja_number_double(buf, (size_t)(w - buf), out);
}
