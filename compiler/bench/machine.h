// SPDX-License-Identifier: Apache-2.0
/* What this machine can do, measured: the rate at which memory is read, and f32 multiply-adds. */
#ifndef INFC_COMPILER_BENCH_MACHINE_H
#define INFC_COMPILER_BENCH_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct machine_peaks {
    double read_bytes_s; /* of a buffer of that size, all threads together; 0: not measured */
    double flops_s;      /* independent fused multiply-adds on the widest registers, all threads; 0 without FMA */
    const char *vectors; /* "512-bit" ... */
};

/* About `seconds` for each of the two; the best of many short runs. false: no memory or no threads. */
bool machine_measure(int threads, size_t buffer_bytes, double seconds, struct machine_peaks *out);

/* Energy that the packages have used since some moment, in joules; -1 where the kernel does not tell. */
double machine_energy_joules(void);

#endif
