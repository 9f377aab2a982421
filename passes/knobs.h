// SPDX-License-Identifier: Apache-2.0
/*
 * The seam between schedules and the tuner. A schedule asks for each of its choices by lower_knob (or lower_tile) and says
 * what its cost model would take; what it asked for is recorded, so that a tuner can offer something else and lower the
 * group once more. Nothing here measures.
 *
 * A knob must not change results nor packing: everything that does (order of sums, panels) is no knob.
 */
#ifndef INFC_PASSES_KNOBS_H
#define INFC_PASSES_KNOBS_H

#include "ir/target.h"

enum knob {
#define KNOB(ID, name, lo, hi, what) KNOB_##ID,
#include "passes/knobs.def"
#undef KNOB
    KNOB_COUNT
};

enum { KNOB_MAX_ALTERNATIVES = 8 };

/* Values of knobs that are decided from outside. */
struct knob_values {
    bool set[KNOB_COUNT];
    int64_t value[KNOB_COUNT];
};

/* A choice that a schedule made. */
struct knob_use {
    enum knob knob;
    int64_t dflt;  /* the cost model's choice */
    int64_t value; /* what was taken */
    int n;         /* alternatives worth a measurement, best first by the cost model; without dflt */
    int64_t alternatives[KNOB_MAX_ALTERNATIVES];
};

struct knob_uses {
    struct knob_values given;
    int n;
    struct knob_use use[KNOB_COUNT];
};

const char *knob_name(enum knob k);
/* Number of a knob by its name, -1 for none. */
int knob_find(const char *name, size_t len);
bool knob_in_range(enum knob k, int64_t value);

/*
 * Decides how a kernel that was lowered with the cost model's choices should be lowered instead: fills `out` and returns
 * true, or leaves it at that. Called once a group and level whose schedule has knobs, in program order.
 */
struct knob_chooser {
    bool (*choose)(void *context, const struct target_level *level, const struct lp_kernel *k, const struct knob_uses *uses,
                   struct knob_values *out);
    void *context;
};

#endif
