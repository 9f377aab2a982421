// SPDX-License-Identifier: Apache-2.0
/*
 * `text % values` and `text.format(...)`. Both reduce a value to digits and a sign, or to a string,
 * and lay it out by one layout: fill, alignment, sign, width, grouping.
 */
#include "runtime/text/jinja_format.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/text/jinja_builtins.h"
#include "runtime/text/jinja_number.h"
#include "runtime/text/jinja_unicode.h"

#define MAX_PRECISION 300
#define NUMBER_BYTES 700 /* a double with MAX_PRECISION digits after its point */

struct layout {
    const char *fill; /* one character */
    size_t fill_len;
    char align; /* < > ^ = or 0 for the default */
    char sign;  /* + - or space */
    bool alternate, zero, negative_precision;
    int64_t width;
    int64_t precision; /* -1: not given */
    char grouping;     /* , or _ or 0 */
    char type;         /* 0: default */
};

static bool put_laid_out(struct jinja_sb *sb, const struct layout *f, const char *head,
                         size_t head_len, const char *body, size_t body_len, char default_align)
{
    char align = f->align ? f->align : default_align;
    size_t len = jinja_utf8_count(head, head_len) + jinja_utf8_count(body, body_len);
    size_t pad = f->width > 0 && (uint64_t)f->width > len ? (size_t)f->width - len : 0;
    size_t left = align == '>' ? pad : align == '^' ? pad / 2 : 0;
    size_t middle = align == '=' ? pad : 0;

    return jinja_sb_pad(sb, f->fill, f->fill_len, left) && jinja_sb_put(sb, head, head_len) &&
           jinja_sb_pad(sb, f->fill, f->fill_len, middle) && jinja_sb_put(sb, body, body_len) &&
           jinja_sb_pad(sb, f->fill, f->fill_len, pad - left - middle);
}

static bool put_string(struct jinja_sb *sb, const struct layout *f, const struct jinja_value *s)
{
    struct jinja_value cut = *s, none = {.kind = JINJA_MISSING}, stop = jinja_int(f->precision);

    if (f->precision >= 0 && !jinja_slice(sb->rt, s, &none, &stop, &none, &cut))
        return false;
    return put_laid_out(sb, f, "", 0, cut.u.s, cut.len, '<');
}

/* Digits of n in base, with grouping; returns the length. */
static size_t digits_of(uint64_t n, unsigned base, bool upper, char grouping, char out[96])
{
    const char *set = upper ? "0123456789ABCDEF" : "0123456789abcdef";
    char tmp[96];
    size_t len = 0, i, every = base == 10 ? 3 : 4, digits = 0;

    do {
        if (grouping && digits && digits % every == 0)
            tmp[len++] = grouping;
        tmp[len++] = set[n % base];
        n /= base;
        digits++;
    } while (n);
    for (i = 0; i < len; i++)
        out[i] = tmp[len - 1 - i];
    return len;
}

static size_t put_sign(char *out, bool negative, char sign)
{
    if (!negative && sign != '+' && sign != ' ')
        return 0;
    *out = negative ? '-' : sign;
    return 1;
}

static bool put_int(struct jinja_sb *sb, const struct layout *f, int64_t n, bool percent)
{
    char head[8], digits[96];
    uint64_t u = n < 0 ? 0 - (uint64_t)n : (uint64_t)n;
    unsigned base = f->type == 'x' || f->type == 'X' ? 16
                    : f->type == 'o'                 ? 8
                    : f->type == 'b'                 ? 2
                                                     : 10;
    size_t head_len = put_sign(head, n < 0, f->sign), len;
    struct jinja_sb body = {.rt = sb->rt};
    struct jinja_value text;

    if (f->alternate && base != 10) {
        head[head_len++] = '0';
        head[head_len++] = f->type;
    }
    len = digits_of(u, base, f->type == 'X', f->grouping, digits);
    if (percent && f->precision > (int64_t)len &&
        !jinja_sb_pad(&body, "0", 1, (size_t)(f->precision - (int64_t)len)))
        return false;
    if (!jinja_sb_put(&body, digits, len))
        return false;
    text = jinja_sb_finish(&body, 0);
    return put_laid_out(sb, f, head, head_len, text.u.s, text.len, '>');
}

/* The text of |d| by an e, f, g or % conversion as Python writes it. */
static bool float_text(struct jinja_rt *rt, const struct layout *f, double d,
                       char out[NUMBER_BYTES], size_t *out_len)
{
    char format[16], type = f->type, *w;
    int64_t precision = f->precision;
    int n;

    d = fabs(d);
    if (!jinja_charge(rt, JINJA_COST_FLOAT))
        return false;
    if (isnan(d) || isinf(d)) {
        n = snprintf(out, NUMBER_BYTES, "%s%s",
                     isnan(d) ? (type >= 'A' && type <= 'Z' ? "NAN" : "nan")
                              : (type >= 'A' && type <= 'Z' ? "INF" : "inf"),
                     type == '%' ? "%" : "");
        *out_len = (size_t)n;
        return true;
    }
    if (type == 0 && precision < 0) {
        *out_len = jinja_float_repr(d, out);
        return true;
    }
    if (precision < 0)
        precision = 6;
    if (precision > MAX_PRECISION)
        return jinja_fail(rt, JINJA_ERR_LIMIT, "precision too large");
    if (type == '%')
        d *= 100;
    snprintf(format, sizeof(format), "%%%s.*%c", f->alternate ? "#" : "",
             type == '%'                ? 'f'
             : type == 0 || type == 'n' ? 'g'
                                        : type);
    n = snprintf(out, NUMBER_BYTES - 4, format, (int)precision, d);
    if (n < 0 || n >= NUMBER_BYTES - 4)
        return jinja_fail(rt, JINJA_ERR_LIMIT, "formatted number too long");
    *out_len = (size_t)n;
    /* The locale's decimal sign, if any other, is the one thing that is neither digit nor letter.
     */
    for (w = out; *w; w++)
        if (!((*w >= '0' && *w <= '9') || *w == '+' || *w == '-' || (*w | 32) == 'e'))
            *w = '.';
    if (type == 0 && !memchr(out, '.', *out_len) && !memchr(out, 'e', *out_len)) {
        memcpy(out + *out_len, ".0", 2); /* format(1.0, '.3') is '1.0' */
        *out_len += 2;
    }
    if (type == '%')
        out[(*out_len)++] = '%';
    return true;
}

static bool put_float(struct jinja_sb *sb, const struct layout *f, double d)
{
    char head[2], text[NUMBER_BYTES], grouped[NUMBER_BYTES + NUMBER_BYTES / 3];
    size_t head_len = put_sign(head, signbit(d) != 0 && !isnan(d), f->sign), len = 0, whole, i,
           n = 0;

    if (!float_text(sb->rt, f, d, text, &len))
        return false;
    if (!f->grouping)
        return put_laid_out(sb, f, head, head_len, text, len, '>');
    for (whole = 0; whole < len && text[whole] >= '0' && text[whole] <= '9'; whole++)
        ;
    for (i = 0; i < len; i++) {
        if (i && i < whole && (whole - i) % 3 == 0)
            grouped[n++] = f->grouping;
        grouped[n++] = text[i];
    }
    return put_laid_out(sb, f, head, head_len, grouped, n, '>');
}

/* ---- % ------------------------------------------------------------------------------------- */

struct percent {
    struct jinja_sb sb;
    const char *p, *end;
    const struct jinja_value *values;
    uint32_t next;
    bool keyed; /* %(name)s was used: leftovers are no error */
};

/* The value of the next conversion. */
static bool next_value(struct percent *c, struct jinja_value *out)
{
    const struct jinja_value *v = c->values;

    if (v->kind == JINJA_TUPLE) {
        if (c->next >= v->u.list->count)
            return jinja_fail(c->sb.rt, JINJA_ERR_TYPE, "not enough arguments for format string");
        *out = v->u.list->items[c->next++];
        return true;
    }
    if (c->next++)
        return jinja_fail(c->sb.rt, JINJA_ERR_TYPE, "not enough arguments for format string");
    *out = *v;
    return true;
}

static bool keyed_value(struct percent *c, struct jinja_value *out)
{
    const char *start = ++c->p;
    const struct jinja_value *v;
    int depth = 1;

    for (; c->p < c->end && depth; c->p++)
        depth += *c->p == '(' ? 1 : *c->p == ')' ? -1 : 0;
    if (depth)
        return jinja_fail(c->sb.rt, JINJA_ERR_TYPE, "incomplete format key");
    if (c->values->kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(c->sb.rt, c->values);
    if (c->values->kind != JINJA_DICT)
        return jinja_fail(c->sb.rt, JINJA_ERR_TYPE, "format requires a mapping");
    v = jinja_dict_find_str(c->values->u.dict, start, (size_t)(c->p - 1 - start));
    if (!v)
        return jinja_fail(c->sb.rt, JINJA_ERR_TYPE, "key '%.*s' is missing",
                          (int)(c->p - 1 - start), start);
    c->keyed = true;
    *out = *v;
    return true;
}

/* Decimal digits, or `*` for the next value. */
static bool percent_number(struct percent *c, int64_t *out, bool *given)
{
    struct jinja_value v;

    *given = true;
    if (c->p < c->end && *c->p == '*') {
        c->p++;
        return next_value(c, &v) && jinja_arg_int(c->sb.rt, &v, 0, out);
    }
    *given = c->p < c->end && *c->p >= '0' && *c->p <= '9';
    for (*out = 0; c->p < c->end && *c->p >= '0' && *c->p <= '9'; c->p++) {
        *out = *out * 10 + (*c->p - '0');
        if (*out > INT32_MAX)
            return jinja_fail(c->sb.rt, JINJA_ERR_LIMIT, "width too large");
    }
    return true;
}

static bool percent_text(struct percent *c, const struct layout *f, const struct jinja_value *v)
{
    struct jinja_sb text = {.rt = c->sb.rt};
    struct jinja_value s;

    if (!(f->type == 's' ? jinja_put_str(&text, v) : jinja_put_repr(&text, v)))
        return false;
    s = jinja_sb_finish(&text, 0);
    return put_string(&c->sb, f, &s);
}

static bool percent_char(struct percent *c, struct layout *f, const struct jinja_value *v)
{
    char buf[4];
    struct jinja_value s = *v;
    int64_t n;

    if (jinja_as_int(v, &n)) {
        if (n < 0 || n > 0x10ffff || (n >= 0xd800 && n <= 0xdfff))
            return jinja_fail(c->sb.rt, JINJA_ERR_TYPE, "%%c arg not in range(0x110000)");
        s = jinja_str_trusted(buf, jinja_utf8_encode((uint32_t)n, buf));
    } else if (v->kind != JINJA_STR || jinja_utf8_count(v->u.s, v->len) != 1) {
        return jinja_fail(c->sb.rt, JINJA_ERR_TYPE, "%%c requires int or char");
    }
    f->precision = -1;
    return put_string(&c->sb, f, &s);
}

static bool percent_convert(struct percent *c, struct layout *f, const struct jinja_value *v)
{
    struct jinja_rt *rt = c->sb.rt;
    int64_t n;

    if (v->kind == JINJA_UNDEFINED && !strchr("sra", f->type))
        return jinja_fail_undefined(rt, v);
    switch (f->type) {
    case 's':
    case 'r':
        return percent_text(c, f, v);
    case 'c':
        return percent_char(c, f, v);
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
        if (v->kind == JINJA_FLOAT && strchr("diu", f->type) && fabs(v->u.f) < 9e18)
            n = (int64_t)v->u.f;
        else if (!jinja_as_int(v, &n))
            return jinja_fail(rt, JINJA_ERR_TYPE, "%%%c format: a%s is required, not %s", f->type,
                              strchr("diu", f->type) ? " real number" : "n integer",
                              jinja_type_name(v));
        if (f->zero && f->align != '<') {
            f->fill = "0";
            f->align = '=';
        }
        return put_int(&c->sb, f, n, true);
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
        if (!jinja_is_number(v))
            return jinja_fail(rt, JINJA_ERR_TYPE, "must be real number, not %s",
                              jinja_type_name(v));
        if (f->zero && f->align != '<') {
            f->fill = "0";
            f->align = '=';
        }
        return put_float(&c->sb, f, jinja_as_double(v));
    default:
        return jinja_fail(rt, JINJA_ERR_TYPE, "unsupported format character '%c'",
                          f->type >= 32 && f->type < 127 ? f->type : '?');
    }
}

/* One conversion, after its %. */
static bool percent_spec(struct percent *c)
{
    struct layout f = {.fill = " ", .fill_len = 1, .precision = -1};
    struct jinja_value v;
    bool keyed = false, given;

    if (c->p < c->end && *c->p == '(') {
        if (!keyed_value(c, &v))
            return false;
        keyed = true;
    }
    for (; c->p < c->end && strchr("#0- +", *c->p) && *c->p; c->p++) {
        f.alternate |= *c->p == '#';
        f.zero |= *c->p == '0';
        if (*c->p == '-')
            f.align = '<';
        if (*c->p == '+' || (*c->p == ' ' && f.sign != '+'))
            f.sign = *c->p;
    }
    if (!percent_number(c, &f.width, &given))
        return false;
    if (f.width < 0) {
        f.align = '<';
        f.width = f.width < -INT32_MAX ? INT32_MAX : -f.width;
    }
    if (c->p < c->end && *c->p == '.') {
        c->p++;
        if (!percent_number(c, &f.precision, &given))
            return false;
        if (f.precision < 0)
            f.precision = 0;
    }
    while (c->p < c->end && *c->p && strchr("hlL", *c->p))
        c->p++;
    if (c->p == c->end)
        return jinja_fail(c->sb.rt, JINJA_ERR_TYPE, "incomplete format");
    f.type = *c->p++;
    if (f.type == '%')
        return jinja_sb_putc(&c->sb, '%');
    if (!f.align)
        f.align = '>';
    if (!keyed && !next_value(c, &v))
        return false;
    return percent_convert(c, &f, &v);
}

/* A single value that Python takes for a mapping may be left over. */
static bool has_items(const struct jinja_value *v)
{
    return v->kind == JINJA_DICT || v->kind == JINJA_LIST || v->kind == JINJA_RANGE ||
           v->kind == JINJA_UNDEFINED;
}

bool jinja_format_percent(struct jinja_rt *rt, const struct jinja_value *text,
                          const struct jinja_value *values, struct jinja_value *out)
{
    const struct jinja_value v = *values;
    struct percent c = {
        .sb = {.rt = rt}, .p = text->u.s, .end = text->u.s + text->len, .values = &v};
    const char *mark;

    if (text->flags & JINJA_F_MARKUP)
        return jinja_fail(rt, JINJA_ERR_UNSUPPORTED, "%% on markup text is not supported");
    while (c.p < c.end) {
        mark = memchr(c.p, '%', (size_t)(c.end - c.p));
        if (!jinja_sb_put(&c.sb, c.p, (size_t)((mark ? mark : c.end) - c.p)))
            return false;
        if (!mark)
            break;
        c.p = mark + 1;
        if (!percent_spec(&c))
            return false;
    }
    if ((v.kind == JINJA_TUPLE && c.next < v.u.list->count && !c.keyed) ||
        (v.kind != JINJA_TUPLE && !has_items(&v) && !c.next))
        return jinja_fail(rt, JINJA_ERR_TYPE,
                          "not all arguments converted during string formatting");
    *out = jinja_sb_finish(&c.sb, 0);
    return true;
}

/* ---- str.format ---------------------------------------------------------------------------- */

struct braces {
    struct jinja_sb sb;
    const struct jinja_args *args;
    uint32_t next;
    bool manual, automatic;
};

static bool parse_align(const char *p, const char *end, size_t *fill_len, char *align)
{
    uint32_t cp;
    size_t n;

    *fill_len = 0;
    *align = 0;
    if (p == end)
        return false;
    n = jinja_utf8_decode(p, &cp);
    if (p + n < end && p[n] && strchr("<>=^", p[n])) {
        *fill_len = n;
        *align = p[n];
        return true;
    }
    if (*p && strchr("<>=^", *p)) {
        *align = *p;
        return true;
    }
    return false;
}

static bool spec_number(struct jinja_rt *rt, const char **p, const char *end, int64_t *out)
{
    for (*out = 0; *p < end && **p >= '0' && **p <= '9'; (*p)++) {
        *out = *out * 10 + (**p - '0');
        if (*out > INT32_MAX)
            return jinja_fail(rt, JINJA_ERR_LIMIT, "width too large");
    }
    return true;
}

/* [[fill]align][sign][#][0][width][grouping][.precision][type] */
static bool parse_spec(struct jinja_rt *rt, const char *p, const char *end, struct layout *f)
{
    size_t fill_len;

    *f = (struct layout){.fill = " ", .fill_len = 1, .precision = -1};
    if (parse_align(p, end, &fill_len, &f->align)) {
        if (fill_len) {
            f->fill = p;
            f->fill_len = fill_len;
        }
        p += fill_len + 1;
    }
    if (p < end && *p && strchr("+- ", *p))
        f->sign = *p++;
    if (p < end && *p == '#') {
        f->alternate = true;
        p++;
    }
    if (p < end && *p == '0') {
        f->zero = true;
        if (!f->align) {
            f->fill = "0";
            f->fill_len = 1;
            f->align = '=';
        }
        p++;
    }
    if (!spec_number(rt, &p, end, &f->width))
        return false;
    if (p < end && (*p == ',' || *p == '_'))
        f->grouping = *p++;
    if (p < end && *p == '.') {
        p++;
        if (p == end || *p < '0' || *p > '9')
            return jinja_fail(rt, JINJA_ERR_TYPE, "Format specifier missing precision");
        if (!spec_number(rt, &p, end, &f->precision))
            return false;
    }
    if (p < end)
        f->type = *p++;
    return p == end || jinja_fail(rt, JINJA_ERR_TYPE, "Invalid format specifier");
}

static bool bad_code(struct jinja_rt *rt, char type, const struct jinja_value *v)
{
    return jinja_fail(rt, JINJA_ERR_TYPE, "Unknown format code '%c' for object of type '%s'",
                      type >= 32 && type < 127 ? type : '?', jinja_type_name(v));
}

static bool put_formatted(struct jinja_sb *sb, const struct jinja_value *v, const char *spec,
                          const char *spec_end)
{
    struct layout f;
    int64_t n;
    char buf[4];
    struct jinja_value s;

    if (spec == spec_end)
        return jinja_put_str(sb, v);
    if (!parse_spec(sb->rt, spec, spec_end, &f))
        return false;
    if (v->kind == JINJA_STR) {
        if (f.type != 0 && f.type != 's')
            return bad_code(sb->rt, f.type, v);
        if (f.align == '=' && f.zero) {
            f.align = '<';
        } else if (f.align == '=' || f.sign || f.grouping || f.alternate) {
            return jinja_fail(sb->rt, JINJA_ERR_TYPE, "format specifier not allowed for strings");
        }
        return put_string(sb, &f, v);
    }
    if (!jinja_is_number(v))
        return jinja_fail(sb->rt, JINJA_ERR_TYPE,
                          "unsupported format string passed to %s.__format__", jinja_type_name(v));
    if (jinja_as_int(v, &n) && (f.type == 0 || strchr("bcdoxXn", f.type))) {
        if (f.precision >= 0)
            return jinja_fail(sb->rt, JINJA_ERR_TYPE,
                              "Precision not allowed in integer format specifier");
        if (f.type != 'c')
            return put_int(sb, &f, n, false);
        if (n < 0 || n > 0x10ffff || (n >= 0xd800 && n <= 0xdfff))
            return jinja_fail(sb->rt, JINJA_ERR_TYPE, "%%c arg not in range(0x110000)");
        s = jinja_str_trusted(buf, jinja_utf8_encode((uint32_t)n, buf));
        return put_laid_out(sb, &f, "", 0, s.u.s, s.len, '<');
    }
    if (f.type != 0 && !strchr("eEfFgGn%", f.type))
        return bad_code(sb->rt, f.type, v);
    return put_float(sb, &f, jinja_as_double(v));
}

/* The first part of a field name: an argument by number, by name, or the next one. */
static bool field_start(struct braces *b, const char *p, const char *end, struct jinja_value *out)
{
    struct jinja_rt *rt = b->sb.rt;
    int64_t n = 0;
    uint32_t i;

    if (p == end) {
        b->automatic = true;
        n = b->next++;
    } else if (*p >= '0' && *p <= '9') {
        b->manual = true;
        if (!spec_number(rt, &p, end, &n))
            return false;
        if (p != end)
            n = INT64_MAX;
    } else {
        for (i = 0; i < b->args->nkw; i++) {
            const struct jinja_value *key = &b->args->kw[i].key;

            if (key->len == (size_t)(end - p) && memcmp(key->u.s, p, key->len) == 0) {
                *out = b->args->kw[i].value;
                return true;
            }
        }
        return jinja_fail(rt, JINJA_ERR_TYPE, "format has no argument '%.*s'", (int)(end - p), p);
    }
    if (b->manual && b->automatic)
        return jinja_fail(
            rt, JINJA_ERR_TYPE,
            "cannot switch between manual field specification and automatic field numbering");
    if (n >= b->args->npos)
        return jinja_fail(rt, JINJA_ERR_TYPE,
                          "Replacement index %lld out of range for positional args tuple",
                          (long long)n);
    *out = b->args->pos[n];
    return true;
}

/* first(.attr | [key])*, through the sandboxed lookups */
static bool field_value(struct braces *b, const char *p, const char *end, struct jinja_value *out)
{
    struct jinja_rt *rt = b->sb.rt;
    const char *q = p;
    struct jinja_value key;
    int64_t n;
    bool digits, attr;

    while (q < end && *q != '.' && *q != '[')
        q++;
    if (!field_start(b, p, q, out))
        return false;
    while (q < end) {
        attr = *q == '.';
        p = ++q;
        while (q < end && (attr ? *q != '.' && *q != '[' : *q != ']'))
            q++;
        if ((!attr && q == end) || q == p)
            return jinja_fail(rt, JINJA_ERR_TYPE, "Empty attribute in format string");
        if (!jinja_make_str(rt, p, (size_t)(q - p), &key))
            return false;
        digits = !attr;
        for (; p < q && digits; p++)
            digits = *p >= '0' && *p <= '9';
        if (digits) {
            p = key.u.s;
            if (!spec_number(rt, &p, key.u.s + key.len, &n))
                return false;
            key = jinja_int(n);
        }
        if (!(attr ? jinja_getattr(rt, out, &key, out) : jinja_getitem(rt, out, &key, out)))
            return false;
        q += !attr;
        if (q < end && *q != '.' && *q != '[')
            return jinja_fail(rt, JINJA_ERR_TYPE,
                              "Only '.' or '[' may follow ']' in format field specifier");
    }
    return true;
}

/* A replacement field between its braces: name[!conversion][:spec] */
static bool put_field(struct braces *b, const char *p, const char *end)
{
    struct jinja_rt *rt = b->sb.rt;
    const char *colon, *bang, *name_end;
    struct jinja_sb repr = {.rt = rt};
    struct jinja_value v;
    int brackets = 0;

    for (colon = p; colon < end && (brackets || *colon != ':'); colon++)
        brackets += *colon == '[' ? 1 : *colon == ']' && brackets ? -1 : 0;
    bang = memchr(p, '!', (size_t)(colon - p));
    name_end = bang ? bang : colon;
    if (!field_value(b, p, name_end, &v))
        return false;
    if (bang) {
        if (bang + 2 != colon || (bang[1] != 'r' && bang[1] != 's'))
            return jinja_fail(rt, JINJA_ERR_TYPE, "Unknown conversion specifier");
        if (!(bang[1] == 'r' ? jinja_put_repr(&repr, &v) : jinja_put_str(&repr, &v)))
            return false;
        v = jinja_sb_finish(&repr, 0);
    }
    if (colon < end && memchr(colon, '{', (size_t)(end - colon)))
        return jinja_fail(rt, JINJA_ERR_UNSUPPORTED, "nested format fields are not supported");
    if (v.kind == JINJA_UNDEFINED && colon + 1 < end)
        return jinja_fail_undefined(rt, &v);
    return put_formatted(&b->sb, &v, colon < end ? colon + 1 : end, end);
}

bool jinja_format_braces(struct jinja_rt *rt, const struct jinja_value *text,
                         const struct jinja_args *args, struct jinja_value *out)
{
    const struct jinja_value t = *text;
    struct braces b = {.sb = {.rt = rt}, .args = args};
    const char *p = t.u.s, *end = p + t.len, *q;
    int depth;

    if (t.flags & JINJA_F_MARKUP)
        return jinja_fail(rt, JINJA_ERR_UNSUPPORTED, "format on markup text is not supported");
    while (p < end) {
        for (q = p; q < end && *q != '{' && *q != '}'; q++)
            ;
        if (!jinja_sb_put(&b.sb, p, (size_t)(q - p)))
            return false;
        if (q == end)
            break;
        if (q + 1 < end && q[1] == *q) {
            if (!jinja_sb_putc(&b.sb, *q))
                return false;
            p = q + 2;
            continue;
        }
        if (*q == '}')
            return jinja_fail(rt, JINJA_ERR_TYPE, "Single '}' encountered in format string");
        p = ++q;
        for (depth = 1; q < end; q++) {
            depth += *q == '{' ? 1 : *q == '}' ? -1 : 0;
            if (!depth)
                break;
        }
        if (q == end)
            return jinja_fail(rt, JINJA_ERR_TYPE, "expected '}' before end of string");
        if (!put_field(&b, p, q))
            return false;
        p = q + 1;
    }
    *out = jinja_sb_finish(&b.sb, 0);
    return true;
}
