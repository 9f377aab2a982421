// SPDX-License-Identifier: Apache-2.0
/* Which CPU this is, for tuning databases: "GenuineIntel-6-143", or "unknown" where it does not say. */
#ifndef INFC_RUNTIME_ABI_CPU_NAME_H
#define INFC_RUNTIME_ABI_CPU_NAME_H

#include <cpuid.h>
#include <stdio.h>
#include <string.h>

enum { INFR_CPU_NAME_BYTES = 48 };

static inline void infr_cpu_name(char out[INFR_CPU_NAME_BYTES])
{
    unsigned a, b, c, d;
    char vendor[13] = "";
    snprintf(out, INFR_CPU_NAME_BYTES, "unknown");
    if (!__get_cpuid(0, &a, &b, &c, &d)) return;
    memcpy(vendor, &b, 4);
    memcpy(vendor + 4, &d, 4);
    memcpy(vendor + 8, &c, 4);
    for (char *p = vendor; *p; p++)
        if ((*p < 'A' || *p > 'Z') && (*p < 'a' || *p > 'z')) *p = '_'; /* one word */
    if (!__get_cpuid(1, &a, &b, &c, &d)) return;
    unsigned family = a >> 8 & 15, model = a >> 4 & 15;
    if (family == 6 || family == 15) model += (a >> 16 & 15) << 4;
    if (family == 15) family += a >> 20 & 255;
    snprintf(out, INFR_CPU_NAME_BYTES, "%s-%u-%u", vendor, family, model);
}

#endif
