// SPDX-License-Identifier: Apache-2.0
/*
 * The worker pool of an engine. A run is SPMD: every worker, the caller among them as number 0,
 * calls the same function and they meet at barriers. Between runs the threads sleep.
 */
#ifndef INFC_RUNTIME_WORKERS_H
#define INFC_RUNTIME_WORKERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/infr.h"

struct rt_pool;

enum { RT_MAX_WORKERS = 1024 };

/* Must not fail; called with worker in [0, n_workers). */
typedef void rt_worker_fn(void *ctx, int worker, int n_workers);

/*
 * n_workers: 1 or more, the caller included; scratch_bytes: memory of each worker. Where not all
 * threads start: fails if `exact`, else the pool has fewer.
 */
int rt_pool_create(int n_workers, bool exact, size_t scratch_bytes, struct rt_pool **out,
                   struct infr_status *st);
void rt_pool_destroy(struct rt_pool *pool);
int rt_pool_size(const struct rt_pool *pool);

/*
 * Runs fn on n_workers (at most the pool's size) and returns when all are done. Calls from several
 * threads wait for each other. Floating-point control is the default one inside fn and the caller's
 * again afterwards.
 */
void rt_pool_run(struct rt_pool *pool, int n_workers, rt_worker_fn *fn, void *ctx);

/* 64-byte aligned memory of one worker. */
void *rt_pool_scratch(struct rt_pool *pool, int worker);

/*
 * A barrier of the running call. All n_workers call rt_meet; in the last to arrive it returns true
 * at once, and that one must call rt_release, which lets the others return (false). What it writes
 * in between all of them see.
 */
bool rt_meet(struct rt_pool *pool, int n_workers);
void rt_release(struct rt_pool *pool);

#endif
