// SPDX-License-Identifier: Apache-2.0
/*
 * Golden vectors: the evaluator's answers on seeded inputs at the smallest shapes that the contract allows, for the engine's
 * `selftest`. Made from the imported model, before any pass touches it; where activations are rounded (--act), the evaluator's are, too.
 */
#ifndef INFC_COMPILER_GOLDEN_H
#define INFC_COMPILER_GOLDEN_H

#include "compiler/emit_plan.h"

#define GOLDEN_SEED 1
#define GOLDEN_VALUES 2048 /* of an output at most */
#define GOLDEN_STATES 2         /* caches: values of two layers */
#define GOLDEN_STATE_VALUES 256 /* of each */
#define GOLDEN_LOGITS 512       /* beside them: engines of language models have a limit to their size */
#define GOLDEN_TOLERANCE_F32 1e-3
#define GOLDEN_TOLERANCE_F16 5e-2
#define GOLDEN_TOLERANCE_I12 2e-1       /* logits of --act=i12 */
#define GOLDEN_TOLERANCE_I8 1.5         /* logits of --act=i8 and --kv=q4: unrelated ones differ by 4 to 5 */
#define GOLDEN_TOLERANCE_STATE_F16 8e-3 /* two steps of f16 where values are large beside their spread */
#define GOLDEN_TOLERANCE_STATE_I12 2e-2 /* of a second layer behind --act=i12 */

/* NULL when no small shape satisfies the model's checks (the engine then has no golden vector). In m's arena. */
struct golden *golden_make(struct ir_module *m, int n_threads);

#endif
