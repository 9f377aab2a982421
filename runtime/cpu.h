// SPDX-License-Identifier: Apache-2.0
/* Which instruction levels this CPU and this operating system offer, and how many CPUs we may use.
 */
#ifndef INFC_RUNTIME_CPU_H
#define INFC_RUNTIME_CPU_H

#include "runtime/abi/kernel.h"

/* Bit i: level i (enum infr_isa). By CPUID and XCR0 bits only: under a hypervisor a model's name
 * proves nothing. */
unsigned rt_cpu_levels(void);

/* Asks Linux for the AMX tile registers; needed once before a thread uses them. Returns 0 or an
 * errno value. */
int rt_cpu_allow_amx(void);

const char *rt_isa_name(int isa);
/* -1 when there is no such level. */
int rt_isa_find(const char *name);

/* The smaller of affinity mask and cgroup CPU quota (rounded up), at least 1. */
int rt_cpu_count(void);

#endif
