// SPDX-License-Identifier: Apache-2.0
/*
 * The phases of a build, each of which can be the last one or the first one:
 *
 *   import    model file or text IR -> tensor IR
 *   tensor    passes of passes/passes.def, the last of which forms the kernels' groups
 *   lower     groups -> loop IR a level, plan
 *   target    loop IR -> objects (in parallel, cached)
 *   link      objects, plan, weights, runtime -> engine
 */
#ifndef INFC_COMPILER_PIPELINE_H
#define INFC_COMPILER_PIPELINE_H

#include "compiler/options.h"
#include "ir/plan.h"
#include "ir/target.h"

/* The model for one of the engine's targets: all levels of the CPU together, each GPU architecture by itself. */
struct build_part {
    const struct target *target;
    unsigned isa_mask;
    bool whole; /* the target was named without a level: lowering adds levels that suit the model */
    struct plan *plan;
};

#define BUILD_MAX_PARTS 16

struct build {
    const struct options *o;
    struct diag_sink *diag;
    const char *model_path;
    struct ir_module *m;
    struct build_part parts[BUILD_MAX_PARTS]; /* the CPU's first, if there is one */
    int n_parts;
    bool wants_golden;
    const struct golden *golden; /* NULL: none */
    double golden_tolerance;     /* of a lowered precision; 0: the golden vector's own */
};

/* Import by the options' --shape; NULL after diagnostics. */
struct ir_module *pipeline_import(const struct options *o, const char *path, struct diag_sink *diag);
/* True when the pipeline should go on after tensor passes (no --stop-after); IR text was written otherwise. */
bool pipeline_tensor(struct build *b, bool *out_stopped);
bool pipeline_select_target(struct build *b);
bool pipeline_lower(struct build *b);
/* The golden vector of the module as it is now. */
void pipeline_golden(struct build *b);
/* Objects and link; writes output_path. */
bool pipeline_engine(struct build *b, const char *output_path);
void build_deinit(struct build *b);

#endif
