// SPDX-License-Identifier: Apache-2.0
/* Numbers of attributes and constants as text: decimal digits that read back as the same bits. */
#ifndef INFC_IR_NUMBER_TEXT_H
#define INFC_IR_NUMBER_TEXT_H

#include "ir/support/str.h"
#include "runtime/abi/dtype.h"

/* Always with a point or an exponent, or inf, -inf, nan. */
void ir_put_double(struct strbuf *out, double v);
/* One element as it lies in memory (dtype_bytes bytes). Floats whose value does not give back all
 * bits: 0x and hex. */
void ir_put_element(struct strbuf *out, enum dtype dtype, const unsigned char *p);
/* The reverse; text is NUL-terminated. False when it is not a number of that type. */
bool ir_read_double(const char *text, double *out);
bool ir_read_int(const char *text, int64_t *out);
bool ir_read_element(enum dtype dtype, const char *text, unsigned char *p);

#endif
