// SPDX-License-Identifier: Apache-2.0
/*
 * Weights in memory of the process's own, on huge pages, in place of the file's mapping (--hugepages=copy): for file systems
 * that keep a file in pages of 4 KiB, where a stream of weights waits for the translation of addresses. Costs the weights'
 * size in memory and the time to copy them.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/engine.h"
#include "runtime/status.h"

enum { HUGE_PAGE = 2 << 20 };

/* Bytes of the weights that huge pages hold, as the kernel counts them; 0 when it does not say. */
uint64_t rt_weights_huge_bytes(const struct infr_engine *e)
{
    FILE *f = fopen("/proc/self/smaps", "re");
    char line[512], *end;
    uint64_t sum = 0, at = (uintptr_t)e->weights;
    bool inside = false;
    while (f && fgets(line, sizeof line, f)) {
        /* "lo-hi ..." begins a mapping, "Name: value kB" tells of it; sscanf would be 60 KB of code in every engine */
        uint64_t lo = strtoull(line, &end, 16);
        const char *kib = strchr(line, ':');
        if (end > line && *end == '-') inside = lo <= at && at < strtoull(end + 1, NULL, 16);
        else if (inside && kib && (!strncmp(line, "AnonHugePages:", 14) || !strncmp(line, "FilePmdMapped:", 14)))
            sum += (uint64_t)strtoull(kib + 1, NULL, 10) << 10;
    }
    if (f) fclose(f);
    return sum < e->weights_bytes ? sum : e->weights_bytes; /* the last page has room behind them */
}

int rt_weights_copy(struct infr_engine *e, struct infr_status *st)
{
    uint64_t n = e->weights_bytes, room = ((n + HUGE_PAGE - 1) & ~(uint64_t)(HUGE_PAGE - 1)) + HUGE_PAGE;
    char *base = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return rt_fail_memory(st, "a copy of the weights", room);
    e->weights_copy = base, e->weights_copy_bytes = room;
    char *start = base + (-(uintptr_t)base & (HUGE_PAGE - 1));
    madvise(start, room - HUGE_PAGE, MADV_HUGEPAGE); /* what came of it is counted below */
    memcpy(start, e->weights, n);
    mprotect(base, room, PROT_READ);
    e->weights = (const unsigned char *)start;
    if (n < HUGE_PAGE || rt_weights_huge_bytes(e)) return INFR_OK;
    return rt_fail(st, INFR_ENVIRONMENT,
                   "--hugepages=copy: the kernel gives no huge pages; allow them in "
                   "/sys/kernel/mm/transparent_hugepage/enabled, or leave the option out");
}

void rt_weights_release(struct infr_engine *e)
{
    if (e->weights_copy) munmap(e->weights_copy, e->weights_copy_bytes);
    e->weights_copy = NULL;
}
