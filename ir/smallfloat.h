// SPDX-License-Identifier: Apache-2.0
/* Float elements of any dtype to and from double; encoding rounds to nearest, ties to even, once.
 */
#ifndef INFC_IR_SMALLFLOAT_H
#define INFC_IR_SMALLFLOAT_H

#include "runtime/abi/dtype.h"

#define F8E4M3FN_MAX 448.0

/* p: dtype_bytes(d) bytes (f4: the low half of one byte). d must be a float type. */
double float_decode(enum dtype d, const void *p);
/*
 * Beyond the finite range: infinity where the type has one; with saturate (or where it has neither
 * infinity nor NaN) the greatest finite value; otherwise NaN. f8e8m0 holds powers of two: sign is
 * dropped, 0 gives the least.
 */
void float_encode(enum dtype d, double v, bool saturate, void *p);

#endif
