// SPDX-License-Identifier: Apache-2.0
/* Example shapes for a model with symbolic dims. */
#ifndef INFC_COMPILER_SHAPES_H
#define INFC_COMPILER_SHAPES_H

#include "ir/module.h"

/*
 * Values for all symbols (dim_sym_at order): one small size for all of them, within their ranges, that satisfies every check
 * of the module. attempt 0, 1, .. gives the first, second, .. such size. False when there is none left.
 */
bool shapes_smallest(const struct ir_module *m, int attempt, int64_t *syms);

#endif
