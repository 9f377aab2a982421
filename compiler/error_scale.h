// SPDX-License-Identifier: Apache-2.0
/* What an output's error is measured by, the same for `infc verify` and for golden vectors. */
#ifndef INFC_COMPILER_ERROR_SCALE_H
#define INFC_COMPILER_ERROR_SCALE_H

#include "ir/eval.h"

/* Element i of a tensor, integers and bools as numbers. */
double tensor_element(const struct ir_tensor *t, int64_t i);

/*
 * max(std, 1e-3 max|x|) over the finite elements. Of fewer than 16 elements, or equal ones, a deviation says nothing (one
 * probability has none): max|x| then. 0 when all are 0.
 */
double error_scale(const struct ir_tensor *t);

#endif
