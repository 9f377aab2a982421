// SPDX-License-Identifier: Apache-2.0
/*
 * Kernels to objects: many jobs on several threads, through a cache on disk. Objects and diagnostics do not depend on
 * the number of threads, on their timing, or on what the cache held.
 */
#ifndef INFC_COMPILER_OBJECTS_H
#define INFC_COMPILER_OBJECTS_H

#include "compiler/object_cache.h"
#include "ir/target.h"

struct object_job {
    struct lp_kernel *kernel; /* changed by compiling it */
    const struct target_level *level;
    const char *symbol;       /* at most OBJECT_SYMBOL_MAX bytes */
    struct target_object object; /* result; the caller frees object.data */
    bool from_cache;
};

#define OBJECT_SYMBOL_MAX 127

struct objects_options {
    const struct target *target;
    int n_threads;              /* 0: as many as there are CPUs */
    struct object_cache *cache; /* NULL: none */
};

/*
 * Compiles all jobs. Diagnostics are merged in the order of the jobs. False when any failed; the others' objects are
 * there all the same.
 */
bool objects_compile(const struct objects_options *o, struct object_job *jobs, size_t n_jobs, struct diag_sink *diag);
/* Bytes of machine code in it; 0 when it is no object of the kind that targets make. */
uint64_t object_code_bytes(const struct target_object *o);
void objects_free(struct object_job *jobs, size_t n_jobs);

#endif
