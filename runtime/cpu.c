// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "runtime/cpu.h"

#include <cpuid.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- instruction levels ---- */

static const char *const isa_names[INFR_ISA_COUNT] = {"v2", "v3", "v4", "vnni", "amx"};

const char *rt_isa_name(int isa)
{
    return isa >= 0 && isa < INFR_ISA_COUNT ? isa_names[isa] : "none";
}

int rt_isa_find(const char *name)
{
    for (int i = 0; i < INFR_ISA_COUNT; i++)
        if (!strcmp(name, isa_names[i])) return i;
    return -1;
}

enum { LEAF1_C, LEAF7_B, LEAF7_C, LEAF7_D, LEAF7_1_A, EXT1_C, N_WORDS };

#define BIT(n) (1u << (n))
#define XCR0_YMM 0x6u       /* SSE and AVX state */
#define XCR0_ZMM 0xE6u      /* and opmask, upper halves, high 16 */
#define XCR0_TILE 0x600E6u  /* and tile configuration, tile data */

/* What a level needs beyond the one below it. */
static const struct level_need {
    unsigned xcr0;
    unsigned bits[N_WORDS];
} needs[INFR_ISA_COUNT] = {
    /* sse3 ssse3 cx16 sse4.1 sse4.2 popcnt; lahf */
    [INFR_ISA_V2] =
        {0,
         {[LEAF1_C] = BIT(0) | BIT(9) | BIT(13) | BIT(19) | BIT(20) | BIT(23), [EXT1_C] = BIT(0)}},
    /* fma movbe osxsave avx f16c; bmi1 avx2 bmi2; lzcnt */
    [INFR_ISA_V3] = {XCR0_YMM,
                     {[LEAF1_C] = BIT(12) | BIT(22) | BIT(27) | BIT(28) | BIT(29),
                      [LEAF7_B] = BIT(3) | BIT(5) | BIT(8),
                      [EXT1_C] = BIT(5)}},
    /* avx512 f dq cd bw vl */
    [INFR_ISA_V4] = {XCR0_ZMM, {[LEAF7_B] = BIT(16) | BIT(17) | BIT(28) | BIT(30) | BIT(31)}},
    /* avx512 vnni, bf16 */
    [INFR_ISA_VNNI] = {XCR0_ZMM, {[LEAF7_C] = BIT(11), [LEAF7_1_A] = BIT(5)}},
    /* amx bf16 tile int8 */
    [INFR_ISA_AMX] = {XCR0_TILE, {[LEAF7_D] = BIT(22) | BIT(24) | BIT(25)}},
};

static unsigned read_xcr0(void)
{
    unsigned lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return lo;
}

unsigned rt_cpu_levels(void)
{
    unsigned have[N_WORDS] = {0}, a, b, c, d, xcr0 = 0;
    if (__get_cpuid(1, &a, &b, &c, &d)) have[LEAF1_C] = c;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        have[LEAF7_B] = b, have[LEAF7_C] = c, have[LEAF7_D] = d;
        if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) have[LEAF7_1_A] = a;
    }
    if (__get_cpuid(0x80000001u, &a, &b, &c, &d)) have[EXT1_C] = c;
    if (have[LEAF1_C] & BIT(27)) xcr0 = read_xcr0();
    unsigned levels = 0;
    for (int l = 0; l < INFR_ISA_COUNT; l++) {
        bool ok = (xcr0 & needs[l].xcr0) == needs[l].xcr0;
        for (int w = 0; w < N_WORDS; w++)
            ok = ok && (have[w] & needs[l].bits[w]) == needs[l].bits[w];
        if (!ok) break; /* levels are nested */
        levels |= 1u << l;
    }
    return levels;
}

int rt_cpu_allow_amx(void)
{
    enum { REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, REQ_XCOMP_PERM, TILE_DATA) ? errno : 0;
}

/* ---- number of CPUs ---- */

/* Up to cap - 1 bytes of a small file; false when it cannot be read. */
static bool read_small(const char *path, char *out, size_t cap)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t n = read(fd, out, cap - 1);
    close(fd);
    out[n > 0 ? n : 0] = 0;
    return n > 0;
}

/* CPUs of quota / period rounded up, or INT_MAX's worth when unlimited. */
static long quota_cpus(long quota, long period)
{
    return quota > 0 && period > 0 ? (quota + period - 1) / period : 1L << 30;
}

static long quota_of(const char *root, const char *dir, bool v2)
{
    char path[512], text[64];
    if (v2) {
        snprintf(path, sizeof path, "%s%s/cpu.max", root, dir);
        char *rest;
        if (!read_small(path, text, sizeof text)) return 1L << 30;
        long quota = strtol(text, &rest, 10); /* "max 100000" gives 0 */
        return rest == text ? 1L << 30 : quota_cpus(quota, strtol(rest, NULL, 10));
    }
    snprintf(path, sizeof path, "%s%s/cpu.cfs_quota_us", root, dir);
    if (!read_small(path, text, sizeof text)) return 1L << 30;
    long quota = strtol(text, NULL, 10);
    snprintf(path, sizeof path, "%s%s/cpu.cfs_period_us", root, dir);
    return read_small(path, text, sizeof text) ? quota_cpus(quota, strtol(text, NULL, 10))
                                               : 1L << 30;
}

/* A group is bound by its own quota and by those of all groups above it. */
static long quota_up(const char *root, char *dir, bool v2)
{
    long least = 1L << 30;
    for (;;) {
        long q = quota_of(root, dir, v2);
        if (q < least) least = q;
        char *slash = strrchr(dir, '/');
        if (!slash) return least;
        *slash = 0;
    }
}

/* Does the comma-separated list hold "cpu"? */
static bool lists_cpu(const char *list)
{
    for (const char *p = list; *p;) {
        size_t n = strcspn(p, ",");
        if (n == 3 && !memcmp(p, "cpu", 3)) return true;
        p += n + (p[n] == ',');
    }
    return false;
}

static long cgroup_cpus(void)
{
    char text[4096], *save = NULL;
    long least = 1L << 30;
    if (!read_small("/proc/self/cgroup", text, sizeof text)) return least;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *list = strchr(line, ':'),
             *dir = list ? strchr(list + 1, ':') : NULL; /* "4:cpu,cpuacct:/path" */
        if (!dir || strlen(dir) > 256) continue;
        *dir++ = 0;
        list++;
        if (!strcmp(dir, "/")) dir++;
        long q = 1L << 30;
        if (!*list) q = quota_up("/sys/fs/cgroup", dir, true);
        else if (lists_cpu(list)) q = quota_up("/sys/fs/cgroup/cpu", dir, false);
        if (q < least) least = q;
    }
    return least;
}

int rt_cpu_count(void)
{
    enum { MASK_BYTES = 8192 / 8 };
    unsigned char mask[MASK_BYTES] = {0};
    long n = 0, bytes = syscall(SYS_sched_getaffinity, 0, sizeof mask, mask);
    for (long i = 0; i < bytes; i++) n += __builtin_popcount(mask[i]);
    long quota = cgroup_cpus();
    if (quota < n) n = quota;
    return n < 1 ? 1 : (int)n;
}
