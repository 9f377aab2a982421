// SPDX-License-Identifier: Apache-2.0
/* Golden vectors kept in the kernel cache: building a model again does not evaluate it again. */
#ifndef INFC_COMPILER_GOLDEN_CACHE_H
#define INFC_COMPILER_GOLDEN_CACHE_H

#include "compiler/golden.h"

/* golden_make by way of the cache; use_cache false: not. The key is the module: its text and hashes of its constants. */
struct golden *golden_make_cached(struct ir_module *m, int n_threads, bool use_cache, struct diag_sink *diag);

#endif
