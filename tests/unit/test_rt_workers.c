// SPDX-License-Identifier: Apache-2.0
/* The worker pool: barriers keep order, nothing is lost, floating-point control is kept. Bounded
 * work, no clock. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <xmmintrin.h>

#include <cmocka.h>

#include "runtime/workers.h"

enum { MOST = 8, ROUNDS = 300 };

struct stress {
    struct rt_pool *pool;
    int cells[MOST]; /* one a worker; plain memory: a missing barrier is a race */
    int shared;      /* written between meet and release */
    int wrong;
    _Atomic int calls;
};

/* In each round every worker adds one to its cell, and all must then see the same sum. */
static void stress_worker(void *ctx, int worker, int n)
{
    struct stress *s = ctx;
    unsigned char *scratch = rt_pool_scratch(s->pool, worker);
    bool bad = (uintptr_t)scratch % 64 != 0;
    memset(scratch, worker, 200);
    atomic_fetch_add(&s->calls, 1);
    for (int round = 0; round < ROUNDS; round++) {
        s->cells[worker]++;
        if (n == 1 || rt_meet(s->pool, n)) {
            s->shared = round;
            if (n > 1) rt_release(s->pool);
        }
        for (int i = 0; i < n; i++) bad = bad || s->cells[i] != round + 1;
        bad = bad || s->shared != round;
        if (n > 1 && rt_meet(s->pool, n))
            rt_release(s->pool); /* nobody counts on before all have looked */
    }
    for (int i = 0; i < 200; i++) bad = bad || scratch[i] != worker;
    if (bad) __atomic_store_n(&s->wrong, 1, __ATOMIC_SEQ_CST);
}

static void test_barriers(void **state)
{
    (void)state;
    for (int n = 1; n <= MOST; n++) {
        struct rt_pool *pool;
        assert_int_equal(rt_pool_create(n, true, 200, &pool, NULL), 0);
        assert_int_equal(rt_pool_size(pool), n);
        for (int active = 1; active <= n + 1; active += 2) { /* also more than there are */
            struct stress s = {.pool = pool};
            rt_pool_run(pool, active, stress_worker, &s);
            assert_int_equal(s.wrong, 0);
            assert_int_equal(s.calls, active < n ? active : n);
        }
        rt_pool_destroy(pool);
    }
}

static void count(void *ctx, int worker, int n)
{
    (void)worker;
    (void)n;
    atomic_fetch_add((_Atomic int *)ctx, 1);
}

/* Many short runs: wake-ups and sleeps in every order. */
static void test_short_runs(void **state)
{
    (void)state;
    struct rt_pool *pool;
    _Atomic int calls = 0;
    assert_int_equal(rt_pool_create(4, true, 0, &pool, NULL), 0);
    for (int i = 0; i < 2000; i++) rt_pool_run(pool, 1 + i % 4, count, &calls);
    assert_int_equal(calls, 500 * (1 + 2 + 3 + 4));
    rt_pool_destroy(pool);
}

static void *run_many(void *pool)
{
    static _Atomic int calls;
    for (int i = 0; i < 200; i++) rt_pool_run(pool, 3, count, &calls);
    return NULL;
}

static void test_two_callers(void **state)
{
    (void)state;
    struct rt_pool *pool;
    pthread_t other;
    assert_int_equal(rt_pool_create(3, true, 0, &pool, NULL), 0);
    assert_int_equal(pthread_create(&other, NULL, run_many, pool), 0);
    run_many(pool);
    pthread_join(other, NULL);
    rt_pool_destroy(pool);
}

static void look(void *ctx, int worker, int n)
{
    (void)n;
    ((unsigned *)ctx)[worker] = _mm_getcsr() & ~0x3Fu; /* without the exception flags */
}

static void test_float_control(void **state)
{
    (void)state;
    struct rt_pool *pool;
    unsigned seen[2] = {0}, before = _mm_getcsr(),
             odd = (before & ~0x3Fu) | 0x8000 | 0x6000; /* flush to zero, round to zero */
    assert_int_equal(rt_pool_create(2, true, 0, &pool, NULL), 0);
    _mm_setcsr(odd);
    rt_pool_run(pool, 2, look, seen);
    unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    assert_int_equal(after & ~0x3Fu, odd & ~0x3Fu);
    assert_int_equal(seen[0], 0x9FC0);
    assert_int_equal(seen[1], 0x9FC0);
    rt_pool_destroy(pool);
}

static void test_refused(void **state)
{
    (void)state;
    struct rt_pool *pool;
    struct infr_status st;
    assert_int_equal(rt_pool_create(0, true, 0, &pool, &st), INFR_BAD_INPUT);
    assert_int_equal(rt_pool_create(RT_MAX_WORKERS + 1, true, 0, &pool, &st), INFR_BAD_INPUT);
    assert_null(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_barriers),    cmocka_unit_test(test_short_runs),
        cmocka_unit_test(test_two_callers), cmocka_unit_test(test_float_control),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
