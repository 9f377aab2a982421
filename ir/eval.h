// SPDX-License-Identifier: Apache-2.0
/*
 * The reference evaluator: executes any tensor IR plainly. It is the constant folder, the oracle of `infc verify` and
 * what passes and kernels are tested against. Independent of lowering: it shares no code with indexed expressions or
 * generated kernels. Float arithmetic of f16/bf16 rounds after every op; sums accumulate in f64; built with
 * -ffp-contract=off and own transcendental functions (never libm), so the same bits result on every machine.
 */
#ifndef INFC_IR_EVAL_H
#define INFC_IR_EVAL_H

#include "ir/module.h"

struct ir_tensor {
    enum dtype dtype;
    int rank;
    int64_t dims[IR_MAX_RANK];
    void *data; /* dense row-major; owned by whoever made it */
    size_t n_bytes;
    const struct ir_encoding *enc; /* of a constant whose data is blocks; else NULL */
};

/* A state input's data is written to in place: the caller finds the new state there. */
/* Runs func with inputs[i] for its arguments (data NULL: an optional input left out); outputs are allocated in `arena`. Symbols are bound from the inputs'
 * dims; a contract violation or failed check is a diagnostic and false. */
bool ir_eval_func(struct ir_func *f, const struct ir_tensor *inputs, struct ir_tensor *outputs,
                  struct arena *arena, struct diag_sink *diag);
/* The same on up to n_threads threads; the bits of the results do not depend on their number. */
bool ir_eval_func_threads(struct ir_func *f, const struct ir_tensor *inputs, struct ir_tensor *outputs,
                          struct arena *arena, struct diag_sink *diag, int n_threads);
/* What happens at a probe: its number, its base (or -1) and the value, which may be changed where it is. */
struct ir_eval_probe {
    void (*seen)(void *ctx, int number, int base, struct ir_tensor *value);
    void *ctx;
};
/* The same with a look at the probes of f's body; probe NULL: none. */
bool ir_eval_func_probed(struct ir_func *f, const struct ir_tensor *inputs, struct ir_tensor *outputs, struct arena *arena,
                         struct diag_sink *diag, int n_threads, const struct ir_eval_probe *probe);
/* One op without regions on constant operands (operands[i].data NULL = left out): used by folding. sym_values binds
 * symbols (may be NULL when no attribute dim is symbolic). */
bool ir_eval_op(const struct ir_op *op, struct ir_module *m, const struct ir_tensor *operands,
                struct ir_tensor *results, const int64_t *sym_values, struct arena *arena,
                struct diag_sink *diag);

#endif
