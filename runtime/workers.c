// SPDX-License-Identifier: Apache-2.0
/*
 * Waiting is spinning for about 20 microseconds, then sleeping in futex(2): most launches are
 * shorter than a sleep and a wake-up take. Sleepers announce themselves before they look a last
 * time, and wakers look for sleepers after they changed the word, both sequentially consistent, so
 * that no wake-up is lost and none is paid for nobody.
 */
#define _GNU_SOURCE
#include "runtime/workers.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <xmmintrin.h>

#include "runtime/status.h"

/*
 * Round to nearest; denormal operands and results count as zero (FTZ, DAZ): one of them costs a microcode assist of some
 * 150 cycles, and dead channels are full of them. Numbers below 2^-126 (f32) are lost, nothing else changes.
 */
enum { LINE = 64, STACK_BYTES = 1 << 20, SPIN_CYCLES = 250000, MXCSR_KERNELS = 0x9FC0 };

/* A word that is waited for, alone in its cache line. */
struct gate {
    alignas(LINE) _Atomic uint32_t word;
    _Atomic uint32_t sleepers;
};

struct worker {
    struct gate go; /* one step up: a new run */
    struct rt_pool *pool;
    int number;
    pthread_t thread;
};

struct rt_pool {
    alignas(LINE) _Atomic uint32_t arrived;
    struct gate generation; /* of the barrier */
    pthread_mutex_t run_lock;
    rt_worker_fn *fn;
    void *ctx;
    int n_active;
    bool quit;
    int n_workers;
    size_t scratch_stride, scratch_bytes;
    unsigned char *scratch;
    struct worker *workers; /* [0] is the caller's and has no thread */
};

static void gate_wait(struct gate *g, uint32_t old)
{
    unsigned long long start = __builtin_ia32_rdtsc();
    do {
        for (int i = 0; i < 16; i++) {
            if (atomic_load_explicit(&g->word, memory_order_acquire) != old) return;
            _mm_pause();
        }
    } while (__builtin_ia32_rdtsc() - start < SPIN_CYCLES);
    atomic_fetch_add(&g->sleepers, 1);
    while (atomic_load(&g->word) == old)
        syscall(SYS_futex, &g->word, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
    atomic_fetch_sub(&g->sleepers, 1);
}

static void gate_step(struct gate *g)
{
    atomic_fetch_add(&g->word, 1);
    if (atomic_load(&g->sleepers))
        syscall(SYS_futex, &g->word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

bool rt_meet(struct rt_pool *pool, int n_workers)
{
    uint32_t generation = atomic_load_explicit(&pool->generation.word, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&pool->arrived, 1, memory_order_acq_rel) + 1 ==
        (uint32_t)n_workers)
        return true;
    gate_wait(&pool->generation, generation);
    return false;
}

void rt_release(struct rt_pool *pool)
{
    atomic_store_explicit(&pool->arrived, 0, memory_order_relaxed);
    gate_step(&pool->generation);
}

static void work(struct rt_pool *pool, int number)
{
    unsigned saved = _mm_getcsr();
    _mm_setcsr(MXCSR_KERNELS); /* round to nearest, denormals count as zero: results may not depend on the caller */
    pool->fn(pool->ctx, number, pool->n_active);
    _mm_setcsr(saved);
    if (pool->n_active > 1 && rt_meet(pool, pool->n_active)) rt_release(pool);
}

static void *thread_main(void *arg)
{
    struct worker *w = arg;
    for (uint32_t seen = 0;; seen++) {
        gate_wait(&w->go, seen);
        if (w->pool->quit) return NULL;
        work(w->pool, w->number);
    }
}

void rt_pool_run(struct rt_pool *pool, int n_workers, rt_worker_fn *fn, void *ctx)
{
    pthread_mutex_lock(&pool->run_lock);
    pool->fn = fn;
    pool->ctx = ctx;
    pool->n_active = n_workers < 1 ? 1 : n_workers > pool->n_workers ? pool->n_workers : n_workers;
    for (int i = 1; i < pool->n_active; i++) gate_step(&pool->workers[i].go);
    work(pool, 0);
    pthread_mutex_unlock(&pool->run_lock);
}

int rt_pool_size(const struct rt_pool *pool) { return pool->n_workers; }

void *rt_pool_scratch(struct rt_pool *pool, int worker)
{
    return pool->scratch + pool->scratch_stride * (size_t)worker;
}

static void pool_free(struct rt_pool *pool)
{
    if (pool->scratch) munmap(pool->scratch, pool->scratch_bytes);
    free(pool->workers);
    pthread_mutex_destroy(&pool->run_lock);
    free(pool);
}

void rt_pool_destroy(struct rt_pool *pool)
{
    if (!pool) return;
    pool->quit = true;
    for (int i = 1; i < pool->n_workers; i++) gate_step(&pool->workers[i].go);
    for (int i = 1; i < pool->n_workers; i++) pthread_join(pool->workers[i].thread, NULL);
    pool_free(pool);
}

/* Returns how many workers there are, the caller included. Signals stay with the program's own
 * threads. */
static int start_threads(struct rt_pool *pool, int n_workers)
{
    sigset_t all, before;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int n = 1;
    for (; n < n_workers; n++) {
        struct worker *w = &pool->workers[n];
        w->pool = pool, w->number = n;
        if (pthread_create(&w->thread, &attr, thread_main, w)) break;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return n;
}

int rt_pool_create(int n_workers, bool exact, size_t scratch_bytes, struct rt_pool **out,
                   struct infr_status *st)
{
    *out = NULL;
    if (n_workers < 1 || n_workers > RT_MAX_WORKERS)
        return rt_fail(st, INFR_BAD_INPUT, "threads: %d is not between 1 and %d", n_workers,
                       RT_MAX_WORKERS);
    struct rt_pool *pool = aligned_alloc(LINE, sizeof *pool);
    if (!pool) return rt_fail_memory(st, "the worker pool", sizeof *pool);
    memset(pool, 0, sizeof *pool);
    pthread_mutex_init(&pool->run_lock, NULL);
    pool->scratch_stride = (scratch_bytes + 4095) & ~(size_t)4095;
    if (!pool->scratch_stride) pool->scratch_stride = LINE;
    pool->scratch_bytes = pool->scratch_stride * (size_t)n_workers;
    pool->workers = aligned_alloc(LINE, sizeof *pool->workers * (size_t)n_workers);
    pool->scratch = mmap(NULL, pool->scratch_bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pool->scratch == MAP_FAILED) pool->scratch = NULL;
    if (!pool->workers || !pool->scratch) {
        uint64_t bytes = pool->scratch_bytes;
        pool_free(pool);
        return rt_fail_memory(st, "the workers' scratch memory", bytes);
    }
    memset(pool->workers, 0, sizeof *pool->workers * (size_t)n_workers);
    pool->n_workers = start_threads(pool, n_workers);
    if (exact && pool->n_workers < n_workers) {
        int n = pool->n_workers;
        rt_pool_destroy(pool);
        return rt_fail(st, INFR_ENVIRONMENT,
                       "%d threads asked for, but the system lets only %d start", n_workers, n);
    }
    *out = pool;
    return INFR_OK;
}
