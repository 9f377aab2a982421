// SPDX-License-Identifier: Apache-2.0
/* Times of an engine's launches, by its own `profile`, here or on another machine. */
#ifndef INFC_COMPILER_TUNE_MEASURE_H
#define INFC_COMPILER_TUNE_MEASURE_H

#include "ir/support/diag.h"

struct measure_options {
    const char *on;    /* a command that runs its last argument in a shell elsewhere, such as "ssh host"; NULL: here */
    const char *args;  /* options of `profile`, such as "--shape x:1x128" */
    const char *level; /* --isa */
    bool is_text;      /* a language model: a prompt and an answer are profiled, weighed as 256 and 64 tokens */
};

/* us gets microseconds of n launches (of a call; of a language model of a prompt and its answer). False after a diagnostic. */
bool measure_engine(const char *path, const struct measure_options *o, double *us, size_t n, struct diag_sink *diag);
/* The name of the CPU there; false when the engine does not run there at that level. */
bool measure_cpu(const char *path, const struct measure_options *o, char *out, size_t size);

#endif
