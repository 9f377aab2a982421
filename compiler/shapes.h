// SPDX-License-Identifier: Apache-2.0
/* Example shapes for a model with symbolic dims. */
#ifndef INFC_COMPILER_SHAPES_H
#define INFC_COMPILER_SHAPES_H

#include "ir/module.h"

/*
 * Small values for all symbols (dim_sym_at order), within their ranges, that satisfy the module's checks. attempt 0: and
 * those of every branch; 1: the module's alone; 2, 3, ..: the first, second, .. size that serves for all symbols. False
 * where an attempt finds none: the search changes one symbol at a time and is not exhaustive.
 */
bool shapes_smallest(const struct ir_module *m, int attempt, int64_t *syms);

#endif
