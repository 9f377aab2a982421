// SPDX-License-Identifier: Apache-2.0
/* Jobs in processes, for code generators that a process can have only one of at work. */
#ifndef INFC_COMPILER_OBJECTS_FORK_H
#define INFC_COMPILER_OBJECTS_FORK_H

#include <stdbool.h>

#include "ir/support/str.h"

/*
 * Runs work(context, i, out) for every i below n in up to n_processes children; what each writes to `out` is handed to
 * done(context, i, out) in the order of i, in this process. A job whose process died before it could answer gets out NULL.
 * The caller has no other thread. False (errno) when not a single process could be started.
 */
bool fork_jobs(int n_processes, size_t n, void (*work)(void *context, size_t i, struct strbuf *out),
               void (*done)(void *context, size_t i, const struct strbuf *out), void *context);

#endif
