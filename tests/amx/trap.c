// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "tests/amx/trap.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

#include "runtime/cpu.h"
#include "tests/amx/tiles.h"

static _Thread_local struct amx_unit unit;
static enum amx_way way;
static struct sigaction before;

static bool read_here(void *ctx, uint64_t at, void *out, size_t n)
{
    (void)ctx;
    memcpy(out, (const void *)(uintptr_t)at, n);
    return true;
}

static bool write_here(void *ctx, uint64_t at, const void *in, size_t n)
{
    (void)ctx;
    memcpy((void *)(uintptr_t)at, in, n);
    return true;
}

static void say(const char *text)
{
    ssize_t n = write(2, text, strlen(text));
    (void)n;
}

/* What handled SIGILL before gets it when the instruction runs once more. */
static void pass_on(int sig, const char *why)
{
    if (why) say("tile unit: "), say(why), say("\n");
    sigaction(SIGILL, &before, NULL);
    if (sig != SIGILL) raise(sig);
}

static void on_sigill(int sig, siginfo_t *info, void *context)
{
    static const int regs[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                 REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    static const struct amx_memory here = {NULL, read_here, write_here};
    (void)sig, (void)info;
    greg_t *g = ((ucontext_t *)context)->uc_mcontext.gregs;
    uint64_t gpr[16], rip = (uint64_t)g[REG_RIP];
    for (int i = 0; i < 16; i++) gpr[i] = (uint64_t)g[regs[i]];
    uint8_t code[AMX_LONGEST];
    /* By the kernel, because the page behind a short instruction may be missing. */
    struct iovec to = {code, sizeof code}, from[2] = {{(void *)(uintptr_t)rip, 4096 - rip % 4096}};
    if (from[0].iov_len > sizeof code) from[0].iov_len = sizeof code;
    from[1] = (struct iovec){(char *)from[0].iov_base + from[0].iov_len, sizeof code - from[0].iov_len};
    ssize_t n = process_vm_readv(getpid(), &to, 1, from, 2, 0);
    struct amx_result r = amx_step(&unit, code, n > 0 ? (size_t)n : 0, rip, gpr, &here);
    if (r.outcome == AMX_DONE) g[REG_RIP] += r.length;
    else pass_on(r.outcome == AMX_GP ? SIGSEGV : SIGILL, r.why);
}

static void find_way(void)
{
    unsigned levels = rt_cpu_levels();
    if (levels >> INFR_ISA_AMX & 1 && !rt_cpu_allow_amx()) {
        way = AMX_NATIVE;
        return;
    }
    if (levels >> INFR_ISA_VNNI & 1) way = AMX_EMULATED;
}

enum amx_way amx_ready(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_way);
    struct sigaction act = {.sa_sigaction = on_sigill, .sa_flags = SA_SIGINFO}, was;
    sigemptyset(&act.sa_mask);
    if (way == AMX_EMULATED && !sigaction(SIGILL, &act, &was) && was.sa_sigaction != on_sigill) before = was;
    return way;
}
