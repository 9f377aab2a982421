// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/jinja_unicode.h"

#include <string.h>

/* The classes of RUN rows, as make_unicode.py numbers them. */
enum run_class {
    RUN_OTHER,     /* not printable */
    RUN_PRINT,     /* printable and nothing below */
    RUN_IGNORABLE, /* Case_Ignorable, and printable: marks, some punctuation */
    RUN_FORMAT,    /* Case_Ignorable, not printable */
    RUN_UPPER,
    RUN_LOWER,
    RUN_TITLE,
    RUN_MODIFIER, /* Case_Ignorable letter */
    RUN_LETTER,   /* other letter */
    RUN_DECIMAL,
    RUN_NUMBER,     /* other number */
    RUN_EVEN_UPPER, /* upper case at even characters, lower at odd */
    RUN_ODD_UPPER,
    RUN_SMALL_MODIFIER, /* as RUN_MODIFIER, and counts as lower case */
    RUN_SMALL_LETTER,   /* as RUN_LETTER, and counts as lower case */
    RUN_NUMBER_LETTER,  /* as RUN_LETTER, and has a numeric value */
};

/* first << 4 | class, ascending */
static const uint32_t class_runs[] = {
#define RUN(first, cls) (uint32_t)(first) << 4 | (cls),
#define UPPER(...)
#define LOWER(...)
#define TITLE(...)
#define SPECIAL(...)
#include "runtime/text/jinja_unicode.def"
#undef RUN
#undef UPPER
#undef LOWER
#undef TITLE
#undef SPECIAL
};

struct case_run {
    uint32_t first, last, step;
    int32_t delta;
};

#define RUN(...)
#define SPECIAL(...)
#define LOWER(...)
#define TITLE(...)
#define UPPER(first, last, step, delta) {first, last, step, delta},
static const struct case_run upper_runs[] = {
#include "runtime/text/jinja_unicode.def"
};
#undef UPPER
#undef LOWER
#define UPPER(...)
#define LOWER(first, last, step, delta) {first, last, step, delta},
static const struct case_run lower_runs[] = {
#include "runtime/text/jinja_unicode.def"
};
#undef LOWER
#undef TITLE
#define LOWER(...)
#define TITLE(first, last, step, delta) {first, last, step, delta},
static const struct case_run title_runs[] = {
#include "runtime/text/jinja_unicode.def"
};
#undef TITLE
#undef SPECIAL
#define TITLE(...)

struct special_case {
    uint32_t cp;
    uint16_t upper[3], title[3];
};

#define SPECIAL(cp, u1, u2, u3, t1, t2, t3) {cp, {u1, u2, u3}, {t1, t2, t3}},
static const struct special_case special_cases[] = {
#include "runtime/text/jinja_unicode.def"
};
#undef SPECIAL
#undef UPPER
#undef LOWER
#undef TITLE
#undef RUN

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

bool jinja_is_ascii(const char *text, size_t len)
{
    const char *end = text + len;
    uint64_t w;

    for (; end - text >= 8; text += 8) {
        memcpy(&w, text, 8);
        if (w & 0x8080808080808080u)
            return false;
    }
    for (; text < end; text++)
        if ((unsigned char)*text & 0x80)
            return false;
    return true;
}

size_t jinja_utf8_count(const char *text, size_t len)
{
    size_t n = 0, i;

    for (i = 0; i < len; i++)
        n += ((unsigned char)text[i] & 0xc0) != 0x80;
    return n;
}

static enum run_class class_of(uint32_t cp)
{
    size_t lo = 0, hi = COUNT(class_runs);
    enum run_class c;

    while (hi - lo > 1) { /* the run that begins at or before cp */
        size_t mid = (lo + hi) / 2;

        if (class_runs[mid] >> 4 <= cp)
            lo = mid;
        else
            hi = mid;
    }
    c = (enum run_class)(class_runs[lo] & 15);
    if (c == RUN_EVEN_UPPER)
        return cp & 1 ? RUN_LOWER : RUN_UPPER;
    if (c == RUN_ODD_UPPER)
        return cp & 1 ? RUN_UPPER : RUN_LOWER;
    return c;
}

static unsigned category_of(enum run_class c)
{
    switch (c) {
    case RUN_UPPER: return JINJA_LU;
    case RUN_LOWER: return JINJA_LL;
    case RUN_TITLE: return JINJA_LT;
    case RUN_MODIFIER:
    case RUN_SMALL_MODIFIER: return JINJA_LM;
    case RUN_LETTER:
    case RUN_SMALL_LETTER:
    case RUN_NUMBER_LETTER: return JINJA_LO;
    case RUN_DECIMAL: return JINJA_ND;
    case RUN_NUMBER: return JINJA_OTHER_N;
    case RUN_EVEN_UPPER:
    case RUN_ODD_UPPER: return JINJA_LU | JINJA_LL;
    default: return 0;
    }
}

void jinja_category_runs(unsigned categories, void (*fn)(void *user, uint32_t first, uint32_t last), void *user)
{
    for (size_t i = 0; i < COUNT(class_runs); i++) {
        uint32_t first = class_runs[i] >> 4, end = i + 1 < COUNT(class_runs) ? class_runs[i + 1] >> 4 : 0x110000;
        unsigned all = category_of((enum run_class)(class_runs[i] & 15)), some = all & categories;
        if (some == all) {
            if (some)
                fn(user, first, end - 1);
            continue;
        }
        for (uint32_t cp = first; some && cp < end; cp++) /* every other one */
            if (category_of(class_of(cp)) & categories)
                fn(user, cp, cp);
    }
}

bool jinja_is_space(uint32_t cp)
{
    if (cp < 0x80)
        return (cp >= 9 && cp <= 13) || (cp >= 28 && cp <= 32);
    return cp == 0x85 || cp == 0xa0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) ||
           cp == 0x2028 || cp == 0x2029 || cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

bool jinja_is_printable(uint32_t cp)
{
    enum run_class c;

    if (cp < 0x7f)
        return cp >= 0x20;
    c = class_of(cp);
    return c != RUN_OTHER && c != RUN_FORMAT;
}

static bool is_letter(enum run_class c)
{
    return (c >= RUN_UPPER && c <= RUN_LETTER) || c >= RUN_SMALL_MODIFIER;
}

bool jinja_is_word(uint32_t cp)
{
    enum run_class c;

    if (cp < 0x80)
        return (cp >= 'a' && cp <= 'z') || (cp >= 'A' && cp <= 'Z') || (cp >= '0' && cp <= '9') ||
               cp == '_';
    c = class_of(cp);
    return is_letter(c) || c == RUN_DECIMAL || c == RUN_NUMBER;
}

/* Superscripts, subscripts, circled and similar digits: other numbers that have a digit value. */
static bool is_other_digit(uint32_t cp)
{
    return cp == 0xb2 || cp == 0xb3 || cp == 0xb9 || (cp >= 0x1369 && cp <= 0x1371) ||
           cp == 0x19da || cp == 0x2070 || (cp >= 0x2074 && cp <= 0x2079) ||
           (cp >= 0x2080 && cp <= 0x2089) || (cp >= 0x2460 && cp <= 0x2468) ||
           (cp >= 0x2474 && cp <= 0x247c) || (cp >= 0x2488 && cp <= 0x2490) || cp == 0x24ea ||
           (cp >= 0x24f5 && cp <= 0x24fd) || cp == 0x24ff || (cp >= 0x2776 && cp <= 0x277e) ||
           (cp >= 0x2780 && cp <= 0x2788) || (cp >= 0x278a && cp <= 0x2792) ||
           (cp >= 0x10a40 && cp <= 0x10a43) || (cp >= 0x10e60 && cp <= 0x10e68) ||
           (cp >= 0x11052 && cp <= 0x1105a) || (cp >= 0x1f100 && cp <= 0x1f10a);
}

/* Besides the categories: Roman numerals, circled and squared capitals. */
static bool is_upper(enum run_class c, uint32_t cp)
{
    return c == RUN_UPPER || (cp >= 0x2160 && cp <= 0x216f) || (cp >= 0x24b6 && cp <= 0x24cf) ||
           (cp >= 0x1f130 && cp <= 0x1f149) || (cp >= 0x1f150 && cp <= 0x1f169) ||
           (cp >= 0x1f170 && cp <= 0x1f189);
}

/* Besides the categories: Roman numerals, circled letters, the iota subscript. */
static bool is_lower(enum run_class c, uint32_t cp)
{
    return c == RUN_LOWER || c == RUN_SMALL_MODIFIER || c == RUN_SMALL_LETTER ||
           (cp >= 0x2170 && cp <= 0x217f) || (cp >= 0x24d0 && cp <= 0x24e9) || cp == 0x345;
}

bool jinja_is_class(uint32_t cp, enum jinja_class cls)
{
    enum run_class c = class_of(cp);

    switch (cls) {
    case JINJA_CLASS_ALPHA:
        return is_letter(c);
    case JINJA_CLASS_DECIMAL:
        return c == RUN_DECIMAL;
    case JINJA_CLASS_DIGIT:
        return c == RUN_DECIMAL || is_other_digit(cp);
    case JINJA_CLASS_NUMERIC:
        return c == RUN_DECIMAL || c == RUN_NUMBER || c == RUN_NUMBER_LETTER;
    case JINJA_CLASS_ALNUM:
        return is_letter(c) || c == RUN_DECIMAL || c == RUN_NUMBER;
    case JINJA_CLASS_SPACE:
        return jinja_is_space(cp);
    case JINJA_CLASS_UPPER:
        return is_upper(c, cp);
    case JINJA_CLASS_LOWER:
        return is_lower(c, cp);
    case JINJA_CLASS_TITLE:
        return c == RUN_TITLE;
    }
    return false;
}

bool jinja_is_cased(uint32_t cp)
{
    enum run_class c = class_of(cp);

    return is_upper(c, cp) || is_lower(c, cp) || c == RUN_TITLE;
}

static uint32_t map_run(const struct case_run *runs, size_t n, uint32_t cp)
{
    size_t lo = 0, hi = n;

    while (lo < hi) { /* the first run that ends at or after cp */
        size_t mid = (lo + hi) / 2;

        if (runs[mid].last < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == n || cp < runs[lo].first || (cp - runs[lo].first) % runs[lo].step)
        return cp;
    return (uint32_t)((int32_t)cp + runs[lo].delta);
}

static const struct special_case *find_special(uint32_t cp)
{
    size_t lo = 0, hi = COUNT(special_cases);

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;

        if (special_cases[mid].cp == cp)
            return &special_cases[mid];
        if (special_cases[mid].cp < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

unsigned jinja_map_case(uint32_t cp, enum jinja_case to, uint32_t out[3])
{
    const struct special_case *special;
    unsigned n = 0;

    if (cp < 0x80) {
        out[0] = cp;
        if (to == JINJA_LOWER && cp >= 'A' && cp <= 'Z')
            out[0] = cp + 32;
        else if (to != JINJA_LOWER && cp >= 'a' && cp <= 'z')
            out[0] = cp - 32;
        return 1;
    }
    if (to == JINJA_LOWER) {
        if (cp == 0x130) { /* dotted capital I: the one lower case of two characters */
            out[0] = 'i';
            out[1] = 0x307;
            return 2;
        }
        out[0] = map_run(lower_runs, COUNT(lower_runs), cp);
        return 1;
    }
    special = find_special(cp);
    if (special) {
        const uint16_t *map = to == JINJA_UPPER ? special->upper : special->title;

        for (; n < 3 && map[n]; n++)
            out[n] = map[n];
        return n;
    }
    out[0] = to == JINJA_UPPER ? map_run(upper_runs, COUNT(upper_runs), cp)
                               : map_run(title_runs, COUNT(title_runs), cp);
    return 1;
}

static bool is_case_ignorable(uint32_t cp)
{
    enum run_class c = class_of(cp);

    return c == RUN_IGNORABLE || c == RUN_FORMAT || c == RUN_MODIFIER || c == RUN_SMALL_MODIFIER;
}

bool jinja_final_sigma(const char *text, size_t len, size_t at)
{
    const char *p = text + at;
    uint32_t cp = 0;
    bool before = false;

    while (p > text) {
        p = jinja_utf8_prev(p);
        jinja_utf8_decode(p, &cp);
        if (!is_case_ignorable(cp)) {
            before = jinja_is_cased(cp);
            break;
        }
    }
    if (!before)
        return false;
    for (p = text + at + 2; p < text + len;) {
        p += jinja_utf8_decode(p, &cp);
        if (!is_case_ignorable(cp))
            return !jinja_is_cased(cp);
    }
    return true;
}
