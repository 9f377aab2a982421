// SPDX-License-Identifier: Apache-2.0
/*
 * Children take the next number from a counter in shared memory and answer through a pipe each:
 *
 *   size_t number | size_t bytes | bytes
 *
 * A child that takes a signal loses the job it was at; the others go on.
 */
#define _GNU_SOURCE
#include "compiler/objects_fork.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

#include "ir/support/fd.h"

#define MAX_PROCESSES 256

struct child {
    pid_t pid;
    int fd;
    struct strbuf said;
};

static void run_child(int fd, atomic_size_t *next, size_t n, void (*work)(void *, size_t, struct strbuf *), void *context)
{
    bool ok = true;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (ok) {
        struct strbuf out = {0};
        size_t head[2] = {atomic_fetch_add(next, 1), 0};
        if (head[0] >= n) break;
        work(context, head[0], &out);
        head[1] = out.len;
        ok = fd_write_all(fd, head, sizeof head) && fd_write_all(fd, strbuf_get(&out), out.len);
        strbuf_deinit(&out);
    }
    _exit(ok ? 0 : 1);
}

/* Reads from all until all have closed. */
static void collect(struct child *children, int n)
{
    struct pollfd fds[MAX_PROCESSES];
    int open = n;
    char buffer[65536];
    for (int i = 0; i < n; i++) fds[i] = (struct pollfd){.fd = children[i].fd, .events = POLLIN};
    while (open > 0) {
        if (poll(fds, (nfds_t)n, -1) < 0 && errno != EINTR) return;
        for (int i = 0; i < n; i++) {
            if (fds[i].fd < 0 || !fds[i].revents) continue;
            ssize_t k = read(fds[i].fd, buffer, sizeof buffer);
            if (k < 0 && errno == EINTR) continue;
            if (k > 0) {
                strbuf_putn(&children[i].said, buffer, (size_t)k);
                continue;
            }
            close(fds[i].fd);
            fds[i].fd = -1;
            open--;
        }
    }
}

/* Places of all answers, by number; those that are missing stay NULL. */
static void find_answers(const struct child *c, const char **answer, size_t *bytes, size_t n)
{
    size_t at = 0, head[2];
    while (c->said.len - at >= sizeof head) {
        memcpy(head, c->said.data + at, sizeof head);
        at += sizeof head;
        if (head[0] >= n || head[1] > c->said.len - at) return;
        answer[head[0]] = c->said.data + at;
        bytes[head[0]] = head[1];
        at += head[1];
    }
}

static bool start_child(struct child *c, struct child *others, int n_others, atomic_size_t *next, size_t n,
                        void (*work)(void *, size_t, struct strbuf *), void *context)
{
    int pipes[2];
    *c = (struct child){.fd = -1};
    if (pipe(pipes)) return false;
    c->pid = fork();
    if (c->pid == 0) {
        close(pipes[0]);
        for (int i = 0; i < n_others; i++) close(others[i].fd);
        run_child(pipes[1], next, n, work, context);
    }
    close(pipes[1]);
    if (c->pid > 0) c->fd = pipes[0];
    else close(pipes[0]);
    return c->pid > 0;
}

bool fork_jobs(int n_processes, size_t n, void (*work)(void *, size_t, struct strbuf *),
               void (*done)(void *, size_t, const struct strbuf *), void *context)
{
    struct child children[MAX_PROCESSES];
    int started = 0, limit = n_processes < MAX_PROCESSES ? n_processes : MAX_PROCESSES;
    if (!n) return true;
    atomic_size_t *next = mmap(NULL, sizeof *next, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const char **answer = calloc(n, sizeof *answer);
    size_t *bytes = calloc(n, sizeof *bytes);
    if (next != MAP_FAILED && answer && bytes) {
        atomic_init(next, 0);
        while (started < limit && (size_t)started < n &&
               start_child(&children[started], children, started, next, n, work, context))
            started++;
    }
    collect(children, started);
    for (int i = 0; i < started; i++) {
        while (waitpid(children[i].pid, NULL, 0) < 0 && errno == EINTR) {}
        find_answers(&children[i], answer, bytes, n);
    }
    for (size_t i = 0; started && i < n; i++) {
        struct strbuf out = {.data = (char *)(uintptr_t)answer[i], .len = bytes[i]};
        done(context, i, answer[i] ? &out : NULL);
    }
    for (int i = 0; i < started; i++) strbuf_deinit(&children[i].said);
    free(answer);
    free(bytes);
    if (next != MAP_FAILED) munmap(next, sizeof *next);
    return started > 0;
}
