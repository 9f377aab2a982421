// SPDX-License-Identifier: Apache-2.0
/* The functions behind the tables of filters, tests, methods and globals, and what they share. */
#ifndef INFC_RUNTIME_TEXT_JINJA_BUILTINS_H
#define INFC_RUNTIME_TEXT_JINJA_BUILTINS_H

#include "runtime/text/jinja_rt.h"

#define JINJA_PARAMS                                                                    \
    struct jinja_rt *rt, const struct jinja_value *self, const struct jinja_args *args, \
        const struct jinja_value *arg, struct jinja_value *out

/* The prototypes come from the tables. `(void)` markers keep unused parameters quiet. */
#define LACK(...)
#define UNSAFE(...)
#define FILTER(name, fn, sig, required) bool jinja_filter_##fn(JINJA_PARAMS);
#include "runtime/text/jinja_filters.def"
#undef FILTER
#define TEST(name, fn, sig, required) bool jinja_test_##fn(JINJA_PARAMS);
#include "runtime/text/jinja_tests.def"
#undef TEST
#define METHOD(type, name, fn, sig, required) bool jinja_method_##fn(JINJA_PARAMS);
#include "runtime/text/jinja_methods.def"
#undef METHOD
#define GLOBAL(name, fn, sig, required) bool jinja_global_##fn(JINJA_PARAMS);
#include "runtime/text/jinja_globals.def"
#undef GLOBAL
#undef UNSAFE
#undef LACK

bool jinja_str_is(const struct jinja_value *v, const char *text);

#define JINJA_UNUSED (void)rt, (void)self, (void)args, (void)arg, (void)out

/* String work shared by filters and methods (jinja_str.c); v is a string. */
bool jinja_lower(struct jinja_rt *rt, const struct jinja_value *v, struct jinja_value *out);
bool jinja_upper(struct jinja_rt *rt, const struct jinja_value *v, struct jinja_value *out);
bool jinja_capitalize(struct jinja_rt *rt, const struct jinja_value *v, struct jinja_value *out);
bool jinja_title_words(struct jinja_rt *rt, const struct jinja_value *v, struct jinja_value *out);
bool jinja_casefold(struct jinja_rt *rt, const struct jinja_value *v, struct jinja_value *out);
bool jinja_swapcase(struct jinja_rt *rt, const struct jinja_value *v, struct jinja_value *out);
/* sides: 1 left, 2 right, 3 both; chars: a string, or MISSING or None for white space. */
bool jinja_strip(struct jinja_rt *rt, const struct jinja_value *v, const struct jinja_value *chars,
                 int sides, struct jinja_value *out);
/* At most max replacements; negative: all. */
bool jinja_replace(struct jinja_rt *rt, const struct jinja_value *v, const struct jinja_value *old,
                   const struct jinja_value *with, int64_t max, struct jinja_value *out);
/* align: '<', '>' or '^' as str.ljust, rjust and center have it. */
bool jinja_justify(struct jinja_rt *rt, const struct jinja_value *v, int64_t width,
                   const struct jinja_value *fill, char align, struct jinja_value *out);
/* str.splitlines: appends the lines, with their ends if keep. */
bool jinja_splitlines(struct jinja_rt *rt, const struct jinja_value *v, bool keep,
                      struct jinja_list *lines);
/* str.isupper and islower: at least one cased character and none of another case. */
bool jinja_is_all_case(const struct jinja_value *v, bool upper);
/* int(text, base) and float(text); false without an error when the text is no number. */
bool jinja_parse_int(const struct jinja_value *v, int64_t base, int64_t *out, bool *overflow);
bool jinja_parse_float(const struct jinja_value *v, double *out);

#endif
