// SPDX-License-Identifier: Apache-2.0
#define _POSIX_C_SOURCE 200809L
#include "compiler/bench/machine.h"

#include <immintrin.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ir/support/compiler.h"

enum { CHAINS = 12, STEPS = 100000, MAX_THREADS = 256, PIECE_BYTES = 1 << 22 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct job {
    atomic_int *go; /* 1: all threads are there; -1: they will not be */
    double seconds, best; /* best: rate of the fastest run */
    char *buffer;         /* reading: this thread's part */
    size_t bytes;
    double sink;          /* what was computed, so that it is */
};

/* CHAINS independent multiply-adds hide each other's latency; returns something that depends on all of them. */
INFC_TARGET("avx512f") static float fma_512(void)
{
    __m512 a[CHAINS], x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(0.001f);
    for (int i = 0; i < CHAINS; i++) a[i] = _mm512_set1_ps((float)i);
    for (int s = 0; s < STEPS; s++)
        INFC_UNROLL(12) for (int i = 0; i < CHAINS; i++) a[i] = _mm512_fmadd_ps(a[i], x, y);
    for (int i = 1; i < CHAINS; i++) a[0] = _mm512_add_ps(a[0], a[i]);
    return _mm512_reduce_add_ps(a[0]);
}

INFC_TARGET("avx2,fma") static float fma_256(void)
{
    __m256 a[CHAINS], x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(0.001f);
    for (int i = 0; i < CHAINS; i++) a[i] = _mm256_set1_ps((float)i);
    for (int s = 0; s < STEPS; s++)
        INFC_UNROLL(12) for (int i = 0; i < CHAINS; i++) a[i] = _mm256_fmadd_ps(a[i], x, y);
    for (int i = 1; i < CHAINS; i++) a[0] = _mm256_add_ps(a[0], a[i]);
    float lanes[8];
    _mm256_storeu_ps(lanes, a[0]);
    return lanes[0] + lanes[3] + lanes[7];
}

static bool wait_for_all(const struct job *j)
{
    int go;
    while (!(go = atomic_load(j->go))) {}
    return go > 0;
}

static void *compute(void *context)
{
    struct job *j = context;
    bool wide = cpu_has_level_v4();
    if (!wait_for_all(j)) return NULL;
    for (double begin = now(); now() - begin < j->seconds;) {
        double t = now();
        j->sink += (double)(wide ? fma_512() : fma_256());
        double rate = 2.0 * CHAINS * STEPS * (wide ? 16 : 8) / (now() - t);
        if (rate > j->best) j->best = rate;
    }
    return NULL;
}

static void *read_memory(void *context)
{
    struct job *j = context;
    memset(j->buffer, 1, j->bytes); /* pages of its own, near its core */
    if (!wait_for_all(j)) return NULL;
    for (double begin = now(); now() - begin < j->seconds;) {
        double t = now();
        f64x2 sum[8] = {{0}};
        for (size_t i = 0; i + 128 <= j->bytes; i += 128)
            INFC_UNROLL(8) for (int k = 0; k < 8; k++) {
                f64x2 v;
                memcpy(&v, j->buffer + i + 16 * k, 16);
                sum[k] += v;
            }
        for (int k = 0; k < 8; k++) j->sink += sum[k][0] + sum[k][1];
        double rate = (double)j->bytes / (now() - t);
        if (rate > j->best) j->best = rate;
    }
    return NULL;
}

/* Sum of the threads' best rates; 0 when threads cannot be started. */
static double run(void *(*work)(void *), struct job *jobs, int n)
{
    pthread_t threads[MAX_THREADS];
    atomic_int go = 0;
    double sum = 0;
    int started = 0;
    for (int i = 0; i < n; i++) jobs[i].go = &go, jobs[i].best = 0;
    while (started < n - 1 && !pthread_create(&threads[started], NULL, work, &jobs[started + 1])) started++;
    atomic_store(&go, started == n - 1 ? 1 : -1);
    work(&jobs[0]);
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < n; i++) sum += jobs[i].best;
    return sum;
}

bool machine_measure(int threads, size_t buffer_bytes, double seconds, struct machine_peaks *out)
{
    struct job jobs[MAX_THREADS];
    if (threads < 1) threads = 1;
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    if (buffer_bytes < PIECE_BYTES) buffer_bytes = PIECE_BYTES;
    size_t part = buffer_bytes / (size_t)threads / 128 * 128;
    char *buffer = malloc(part * (size_t)threads);
    if (!buffer) return false;
    for (int i = 0; i < threads; i++) jobs[i] = (struct job){.seconds = seconds, .buffer = buffer + part * (size_t)i, .bytes = part};
    out->read_bytes_s = run(read_memory, jobs, threads);
    out->flops_s = cpu_has_level_v3() ? run(compute, jobs, threads) : 0;
    out->vectors = cpu_has_level_v4() ? "512-bit" : cpu_has_level_v3() ? "256-bit" : "none";
    free(buffer);
    return true;
}

double machine_energy_joules(void)
{
    double sum = -1;
    for (int i = 0; i < 16; i++) { /* packages of the powercap interface */
        char path[96];
        unsigned long long uj;
        snprintf(path, sizeof path, "/sys/class/powercap/intel-rapl:%d/energy_uj", i);
        FILE *f = fopen(path, "r");
        if (!f) break;
        if (fscanf(f, "%llu", &uj) == 1) sum = (sum < 0 ? 0 : sum) + 1e-6 * (double)uj;
        fclose(f);
    }
    return sum;
}
