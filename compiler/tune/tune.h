// SPDX-License-Identifier: Apache-2.0
/*
 * The tuner: `infc build --tune` lowers the model with other knobs than the cost model's, builds engines of it, measures every
 * launch with `ENGINE profile` here or elsewhere, and keeps what was faster in the database.
 *
 * All kernels are tried at once: trial t gives each kernel its t-th alternative, so that the number of engines does not grow with
 * the model. Knobs are tried one after the other, each with the best values of those before. A trial counts by its ratio to
 * the engine of the best so far, measured right before and after.
 */
#ifndef INFC_COMPILER_TUNE_TUNE_H
#define INFC_COMPILER_TUNE_TUNE_H

#include "compiler/pipeline.h"
#include "compiler/tune/db.h"

struct tune {
    struct build *b;
    struct tune_db db;
    char cpu[48]; /* whose entries count */
    bool frozen;
    size_t missed; /* kernels with knobs and no entry */
};

/* Options --tune-db, --frozen, --tune-cpu; reads the database. False after diagnostics. */
bool tune_open(struct tune *t, struct build *b);
void tune_close(struct tune *t);
/* The chooser that looks into the database. */
struct knob_chooser tune_chooser(struct tune *t);
/* --tune: measures and writes the database. */
bool tune_run(struct tune *t);

#endif
