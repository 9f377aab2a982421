// SPDX-License-Identifier: Apache-2.0
/*
 * Golden vectors: the evaluator's answers on seeded inputs at the smallest shapes that the contract allows, for the engine's
 * `selftest`. Made from the imported model, before any pass touches it.
 */
#ifndef INFC_COMPILER_GOLDEN_H
#define INFC_COMPILER_GOLDEN_H

#include "compiler/emit_plan.h"

#define GOLDEN_SEED 1
#define GOLDEN_VALUES 2048 /* of an output at most */
#define GOLDEN_TOLERANCE_F32 1e-3
#define GOLDEN_TOLERANCE_F16 5e-2

/* NULL when no small shape satisfies the model's checks (the engine then has no golden vector). In m's arena. */
struct golden *golden_make(struct ir_module *m, int n_threads);

#endif
