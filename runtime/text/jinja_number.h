// SPDX-License-Identifier: Apache-2.0
/* Numbers from and to text, independent of the process locale. */
#ifndef INFC_RUNTIME_TEXT_JINJA_NUMBER_H
#define INFC_RUNTIME_TEXT_JINJA_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An optional '-' and decimal digits; false when it does not fit 64 bits. */
bool jinja_number_int(const char *text, size_t len, int64_t *out);
/* Decimal text ('.' as sign of the fraction, or inf, nan), correctly rounded. False when the text
 * is not one number, or without memory. */
bool jinja_number_double(const char *text, size_t len, double *out);
/* Python's repr() of a float: the shortest text that reads back as it. Returns the length. */
size_t jinja_float_repr(double f, char out[40]);

#endif
