// SPDX-License-Identifier: Apache-2.0
/* `infc bench --sweep`: the same comparison at many values of a symbol. */
#ifndef INFC_COMPILER_BENCH_SWEEP_H
#define INFC_COMPILER_BENCH_SWEEP_H

#include "compiler/bench/session.h"
#include "compiler/options.h"

/*
 * One engine and --model: against an engine built for each value alone. Several engines: each against the first. Prints a
 * table with geometric mean and worst value of static time / dynamic time (1: as fast as the static build).
 */
bool bench_sweep(const struct options *o, const struct bench_options *b, struct arena *a, struct diag_sink *diag);

#endif
