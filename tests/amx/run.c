// SPDX-License-Identifier: Apache-2.0
/*
 * run PROGRAM ARGS..: an engine on a CPU without tiles as if it had them. Tile instructions raise SIGILL, which the tracer takes and
 * lets the model (unit/tiles.h) execute, one unit a thread. The engine asks CPUID and Linux for tiles by two functions of its runtime;
 * breakpoints at these answer for the CPU: all levels it has, and amx.
 *
 * Exits as the program does; 125: could not be run here. With AMX_COUNT=1 it says at the end how many instructions it executed.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/cpu.h"
#include "tests/amx/unit/tiles.h"

enum { MAX_THREADS = 256, CANNOT = 125 };

static struct thread {
    pid_t tid; /* 0: free */
    struct amx_unit unit;
} threads[MAX_THREADS];

static struct answer {
    const char *symbol;
    uint64_t at, value;
} answers[] = {{"rt_cpu_levels", 0, 0}, {"rt_cpu_allow_amx", 0, 0}};

enum { N_ANSWERS = sizeof answers / sizeof *answers };

static unsigned long long n_executed;

__attribute__((noreturn)) static void cannot(const char *what)
{
    fprintf(stderr, "tests/amx/run: %s: %s\n", what, errno ? strerror(errno) : "no such thing");
    exit(CANNOT);
}

/* ---- where the engine asks ---- */

/* The engine is ours and whole; a file of another kind is refused. */
static void find_symbols(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st)) cannot(path);
    const char *file = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (file == MAP_FAILED) cannot(path);
    const Elf64_Ehdr *h = (const Elf64_Ehdr *)file;
    if ((size_t)st.st_size < sizeof *h || memcmp(h->e_ident, ELFMAG, SELFMAG) || h->e_type != ET_EXEC) errno = 0, cannot("not an engine");
    const Elf64_Shdr *s = (const Elf64_Shdr *)(file + h->e_shoff);
    for (int i = 0; i < h->e_shnum; i++) {
        const Elf64_Sym *y = (const Elf64_Sym *)(file + s[i].sh_offset);
        if (s[i].sh_type != SHT_SYMTAB) continue;
        for (size_t j = 0; j < s[i].sh_size / sizeof *y; j++)
            for (int a = 0; a < N_ANSWERS; a++)
                if (!strcmp(file + s[s[i].sh_link].sh_offset + y[j].st_name, answers[a].symbol)) answers[a].at = y[j].st_value;
    }
    for (int a = 0; a < N_ANSWERS; a++)
        if (!answers[a].at) errno = 0, cannot(answers[a].symbol);
    munmap((void *)file, (size_t)st.st_size);
}

static void set_breakpoints(pid_t pid)
{
    for (int a = 0; a < N_ANSWERS; a++) {
        errno = 0;
        long word = ptrace(PTRACE_PEEKTEXT, pid, answers[a].at, 0);
        if (errno || ptrace(PTRACE_POKETEXT, pid, answers[a].at, (word & ~0xFFL) | 0xCC)) cannot("a breakpoint");
    }
}

/* ---- stops ---- */

static bool read_there(void *ctx, uint64_t at, void *out, size_t n)
{
    struct iovec to = {out, n}, from = {(void *)(uintptr_t)at, n};
    return process_vm_readv(*(pid_t *)ctx, &to, 1, &from, 1, 0) == (ssize_t)n;
}

static bool write_there(void *ctx, uint64_t at, const void *in, size_t n)
{
    struct iovec from = {(void *)(uintptr_t)in, n}, to = {(void *)(uintptr_t)at, n};
    return process_vm_writev(*(pid_t *)ctx, &from, 1, &to, 1, 0) == (ssize_t)n;
}

static struct thread *thread_of(pid_t tid)
{
    struct thread *empty = NULL;
    for (int i = 0; i < MAX_THREADS; i++) {
        if (threads[i].tid == tid) return &threads[i];
        if (!threads[i].tid && !empty) empty = &threads[i];
    }
    if (!empty) errno = 0, cannot("room for more threads");
    memset(empty, 0, sizeof *empty);
    empty->tid = tid;
    return empty;
}

/* Executes the instruction that the CPU refused; the signal that the thread gets instead: 0, or what a CPU would give. */
static int on_sigill(pid_t tid)
{
    struct user_regs_struct r;
    if (ptrace(PTRACE_GETREGS, tid, 0, &r)) cannot("registers");
    const uint64_t gpr[16] = {r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15};
    uint8_t code[AMX_LONGEST];
    size_t n = sizeof code;
    while (n && !read_there(&tid, r.rip, code, n)) n--;
    struct amx_memory there = {&tid, read_there, write_there};
    struct amx_result res = amx_step(&thread_of(tid)->unit, code, n, r.rip, gpr, &there);
    if (res.why) fprintf(stderr, "tile unit: %s, at %llx\n", res.why, r.rip);
    if (res.outcome != AMX_DONE) return res.outcome == AMX_GP || res.outcome == AMX_PAGE_FAULT ? SIGSEGV : SIGILL;
    n_executed++;
    r.rip += (unsigned long long)res.length;
    if (ptrace(PTRACE_SETREGS, tid, 0, &r)) cannot("registers");
    return 0;
}

/* Behind a breakpoint: the function returns its answer at once. */
static bool on_breakpoint(pid_t tid)
{
    struct user_regs_struct r;
    if (ptrace(PTRACE_GETREGS, tid, 0, &r)) cannot("registers");
    for (int a = 0; a < N_ANSWERS; a++) {
        if (r.rip != answers[a].at + 1) continue;
        uint64_t back;
        if (!read_there(&tid, r.rsp, &back, sizeof back)) cannot("the stack");
        r.rax = answers[a].value, r.rip = back, r.rsp += sizeof back;
        if (ptrace(PTRACE_SETREGS, tid, 0, &r)) cannot("registers");
        return true;
    }
    return false;
}

static int on_stop(pid_t tid, int status)
{
    int sig = WSTOPSIG(status);
    if (status >> 16) return 0; /* a new thread; it stops by itself, too */
    if (sig == SIGILL) return on_sigill(tid);
    if (sig == SIGTRAP) return on_breakpoint(tid) ? 0 : sig;
    if (sig == SIGSTOP) { /* the first stop of a thread */
        bool known = false;
        for (int i = 0; i < MAX_THREADS && !known; i++) known = threads[i].tid == tid;
        thread_of(tid);
        return known ? sig : 0;
    }
    return sig;
}

static int watch(pid_t first)
{
    for (;;) {
        int status;
        pid_t tid = waitpid(-1, &status, __WALL);
        if (tid < 0) cannot("waitpid");
        if (WIFSTOPPED(status)) {
            ptrace(PTRACE_CONT, tid, 0, on_stop(tid, status)); /* fails where the thread was killed meanwhile */
            continue;
        }
        for (int i = 0; i < MAX_THREADS; i++)
            if (threads[i].tid == tid) threads[i].tid = 0;
        if (tid == first) return status;
    }
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: run ENGINE ARGS..\n");
        return 2;
    }
    answers[0].value = rt_cpu_levels();
    if (answers[0].value >> INFR_ISA_AMX & 1) {
        execv(argv[1], argv + 1); /* nothing to do */
        cannot(argv[1]);
    }
    if (!(answers[0].value >> INFR_ISA_VNNI & 1)) errno = 0, cannot("a CPU with what stands below tiles");
    answers[0].value |= 1u << INFR_ISA_AMX;
    find_symbols(argv[1]);
    pid_t pid = fork();
    if (pid < 0) cannot("fork");
    if (!pid) {
        if (!ptrace(PTRACE_TRACEME, 0, 0, 0)) execv(argv[1], argv + 1);
        perror(argv[1]);
        _exit(CANNOT);
    }
    int status;
    if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) cannot(argv[1]);
    if (ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL)) cannot("ptrace");
    thread_of(pid);
    set_breakpoints(pid);
    ptrace(PTRACE_CONT, pid, 0, 0);
    status = watch(pid);
    if (getenv("AMX_COUNT")) fprintf(stderr, "%llu tile instructions\n", n_executed);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
