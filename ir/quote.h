// SPDX-License-Identifier: Apache-2.0
/*
 * Names and strings in text IR. A plain name is [A-Za-z_][A-Za-z0-9_.]*; anything else is quoted:
 * "..." with \" \\ \n \t and \xHH for bytes below 0x20, 0x7F and above. Any byte string without NUL
 * survives.
 */
#ifndef INFC_IR_QUOTE_H
#define INFC_IR_QUOTE_H

#include "ir/support/arena.h"
#include "ir/support/str.h"

bool ir_is_plain_name(const char *s);
static inline bool ir_is_name_start(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
static inline bool ir_is_name_char(char c)
{
    return ir_is_name_start(c) || (c >= '0' && c <= '9') || c == '.';
}
void ir_put_quoted(struct strbuf *out, const char *s);
/* As it is when plain, else quoted. */
void ir_put_name(struct strbuf *out, const char *s);
/* Reads a quoted string at *p (which points at the opening quote) and moves *p behind it. NULL when
 * malformed. */
char *ir_read_quoted(struct arena *a, const char **p, const char *end);

#endif
