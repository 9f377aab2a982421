// SPDX-License-Identifier: Apache-2.0
/*
 * Inputs of a language model in a golden vector, by the names of docs/gguf.md: one sequence from
 * its beginning, in pages in order, all rows wanted; states are zeros. The compiler's evaluator and
 * an engine's selftest make the same ones.
 *
 * Probes (op `probe`, step PROBE): what a run has there is compared, and then values from the seed take its place. So each
 * half of a layer is tested by itself, from the same input on both sides, and a difference goes no further than the next
 * probe: rounding (of activations, of a cache) feeds on itself through the layers, and behind ten of them nothing tight
 * could be said.
 */
#ifndef INFC_RUNTIME_ABI_GOLDEN_TEXT_H
#define INFC_RUNTIME_ABI_GOLDEN_TEXT_H

#include <stdint.h>
#include <string.h>

#include "runtime/abi/random.h"

#define INFR_GOLDEN_TEXT_TOKENS 4 /* T and R; all other dims that are not fixed are 1 */
#define INFR_GOLDEN_TEXT_IDS 32   /* token ids are below; no vocabulary is smaller */

/* Is the first dim of this input T or R? */
static inline int infr_golden_text_rows(const char *name)
{
    return !strcmp(name, "tokens") || !strcmp(name, "logit_rows");
}

/* Element i. Positions, slots, pages and rows count from 0; seq_of is 0. */
static inline int64_t infr_golden_text_value(const char *name, uint64_t seed, uint64_t i)
{
    if (!strcmp(name, "tokens")) return infr_random_int(seed, 0, i, INFR_GOLDEN_TEXT_IDS);
    return strcmp(name, "seq_of") ? (int64_t)i : 0;
}

/* Element i of what takes the place of a probe's value. */
static inline float infr_golden_probe_value(uint64_t seed, uint32_t probe, uint64_t i)
{
    return (float)infr_random_float(seed, 1 + probe, i);
}

/* The first element that is kept of a probe's, one of every `step`: another column in each layer. */
static inline uint64_t infr_golden_probe_first(uint32_t probe, uint64_t step) { return probe % step; }

#endif
