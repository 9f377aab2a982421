// SPDX-License-Identifier: Apache-2.0
/*
 * Inputs of a language model in a golden vector, by the names of docs/gguf.md: one sequence from
 * its beginning, in pages in order, all rows wanted; states are zeros. The compiler's evaluator and
 * an engine's selftest make the same ones.
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

#endif
