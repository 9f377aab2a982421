// SPDX-License-Identifier: Apache-2.0
/* The pass table (passes.def) and its runner. */
#ifndef INFC_PASSES_PASS_H
#define INFC_PASSES_PASS_H

#include "ir/module.h"

struct pass_info {
    const char *name, *level, *doc;
    bool (*run)(struct ir_module *m, struct diag_sink *diag);
};

/* What happens around passes; zero-initialised = run everything silently. */
struct pass_options {
    const char *print_after;   /* a pass name or "all": IR text to `print_to` after it */
    const char *stop_after;    /* stop behind this pass */
    const char *start_at;      /* skip the passes before this one */
    bool time;                 /* one line a pass to stderr */
    bool no_verify;
    int64_t bisect_limit;      /* stop after this many pass runs; 0 = no limit */
    void (*print)(void *ctx, const char *pass, const struct ir_module *m);
    void *print_ctx;
    void (*seen)(void *ctx, const char *pass, struct ir_module *m); /* behind each pass; NULL: nobody looks */
    void *seen_ctx;
};

int pass_count(void);
const struct pass_info *pass_at(int i);
const struct pass_info *pass_find(const char *name);
/* Runs the pipeline. False after diagnostics (a pass failed or left invalid IR: that is our bug, reported as such). */
bool pass_run_all(struct ir_module *m, const struct pass_options *opt, struct diag_sink *diag);

/* Is there an op of pass_act's, and the way back from it: golden vectors are of the imported model, rounded as the engine rounds. */
bool act_is_done(const struct ir_module *m);
void act_undo(struct ir_module *m);

#define PASS(name, fn, level, doc) bool pass_##fn(struct ir_module *m, struct diag_sink *diag);
#include "passes/passes.def"
#undef PASS

#endif
