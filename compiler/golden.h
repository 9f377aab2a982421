// SPDX-License-Identifier: Apache-2.0
/*
 * Golden vectors: the evaluator's answers on seeded inputs at the smallest shapes that the contract allows, for the engine's
 * `selftest`. Made from the imported model, before any pass touches it; where activations are rounded (--act), the evaluator's are, too.
 * Where there are probes (language models), each stretch between two of them is tested by itself: runtime/abi/golden_text.h.
 */
#ifndef INFC_COMPILER_GOLDEN_H
#define INFC_COMPILER_GOLDEN_H

#include "compiler/emit_plan.h"

#define GOLDEN_SEED 1
#define GOLDEN_VALUES 2048 /* of an output at most */
#define GOLDEN_PROBES_VALUES 3072 /* of all probes together ... */
#define GOLDEN_PROBE_LEAST 16     /* ... but of each at least so many */
#define GOLDEN_STATES 2         /* caches: values of two layers */
#define GOLDEN_STATE_VALUES 64 /* of each */
#define GOLDEN_LOGITS 256       /* beside them: engines of language models have a limit to their size */
#define GOLDEN_TOLERANCE_F32 1e-3
#define GOLDEN_TOLERANCE_F16 5e-2    /* of outputs in half precision, through a whole network */
#define GOLDEN_TOLERANCE_CACHED 8e-3 /* caches of 16 bits: two steps of f16 where values are large beside their spread */
#define GOLDEN_TOLERANCE_STEPS 2e-2  /* one rounding to 8 bits or fewer that went the other way */

/* Probes of the entry. */
size_t golden_n_probes(const struct ir_module *m);
/* NULL when no small shape satisfies the model's checks (the engine then has no golden vector). In m's arena. */
struct golden *golden_make(struct ir_module *m, int n_threads);

#endif
