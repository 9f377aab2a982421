// SPDX-License-Identifier: Apache-2.0
/*
 * Unicode facts that Python's str has and templates can see: white space, case mapping, printable
 * characters, character classes. The tables are jinja_unicode.def, about 18 KB.
 *
 * Text is valid UTF-8 with its length in bytes, except where a function checks it.
 */
#ifndef INFC_RUNTIME_TEXT_JINJA_UNICODE_H
#define INFC_RUNTIME_TEXT_JINJA_UNICODE_H

#include "runtime/text/unicode_utf8.h"

static inline bool jinja_utf8_valid(const char *text, size_t len)
{
    return utf8_is_valid((const uint8_t *)text, len);
}
/* Decodes the character at p; returns its bytes, 1 to 4. */
static inline unsigned jinja_utf8_decode(const char *p, uint32_t *out_cp)
{
    *out_cp = utf8_get((const uint8_t *)p);
    return utf8_length((uint8_t)*p);
}
/* Encodes a scalar value into 1 to 4 bytes. */
static inline unsigned jinja_utf8_encode(uint32_t cp, char out[4])
{
    return utf8_put((uint8_t *)out, cp);
}
/* The start of the character before p, which is not at the start of its text. */
static inline const char *jinja_utf8_prev(const char *p)
{
    do
        p--;
    while (((unsigned char)*p & 0xc0) == 0x80);
    return p;
}
bool jinja_is_ascii(const char *text, size_t len);
size_t jinja_utf8_count(const char *text, size_t len);

/* str.isspace of one character. */
bool jinja_is_space(uint32_t cp);
/* str.isprintable of one character: what repr() leaves as it is. */
bool jinja_is_printable(uint32_t cp);
/* \w of Python's re: letters, numbers, underscore. */
bool jinja_is_word(uint32_t cp);

enum jinja_class {
    JINJA_CLASS_ALPHA,
    JINJA_CLASS_DECIMAL,
    JINJA_CLASS_DIGIT,
    JINJA_CLASS_NUMERIC,
    JINJA_CLASS_ALNUM,
    JINJA_CLASS_SPACE,
    JINJA_CLASS_UPPER,
    JINJA_CLASS_LOWER,
    JINJA_CLASS_TITLE,
};
bool jinja_is_class(uint32_t cp, enum jinja_class cls);
/* Has upper, lower or title case. */
bool jinja_is_cased(uint32_t cp);

/* General categories of letters and numbers, as bits. */
enum jinja_category {
    JINJA_LU = 1,
    JINJA_LL = 2,
    JINJA_LT = 4,
    JINJA_LM = 8,
    JINJA_LO = 16,
    JINJA_ND = 32,
    JINJA_OTHER_N = 64, /* Nl and No */
};
/* Calls fn for runs of characters of the categories, ascending. */
void jinja_category_runs(unsigned categories, void (*fn)(void *user, uint32_t first, uint32_t last), void *user);

enum jinja_case { JINJA_UPPER, JINJA_LOWER, JINJA_TITLE };
/* Full case mapping of one character: 1 to 3 characters into out; returns how many. The rule for a
 * final sigma needs its surroundings and is the caller's (jinja_final_sigma). */
unsigned jinja_map_case(uint32_t cp, enum jinja_case to, uint32_t out[3]);
/* Whether the capital sigma at [at, at + 2) is lowered to final sigma. */
bool jinja_final_sigma(const char *text, size_t len, size_t at);

#endif
