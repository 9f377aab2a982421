// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "runtime/lm/lm_cli.h"

uint64_t lm_entropy(void)
{
    uint64_t x;
    if (getrandom(&x, sizeof x, GRND_NONBLOCK) == sizeof x) return x;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_nsec * 0x9e3779b97f4a7c15u ^ (uint64_t)t.tv_sec ^
           (uint64_t)getpid() << 32;
}
