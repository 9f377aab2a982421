// SPDX-License-Identifier: Apache-2.0
#define _POSIX_C_SOURCE 200809L
#include "compiler/bench/child.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { READY_SECONDS = 300 }; /* a big model may be read from a slow disk */

double bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool failed(const struct bench_child *c, struct diag_sink *diag, const char *what)
{
    return diag_report(diag, DIAG_ENVIRONMENT, c->name, "%s", what);
}

static pid_t start(const struct bench_child *c, int in, int out)
{
    pid_t pid = fork();
    if (pid) return pid;
    if (in >= 0) dup2(in, 0);
    if (out >= 0) dup2(out, 1);
    if (c->run_once) execl("/bin/sh", "sh", "-c", c->run_once, (char *)NULL);
    else execvp(c->argv[0], (char *const *)(uintptr_t)c->argv);
    _exit(127);
}

/* "infc-bench 1 latency_ms:lower ..." */
static bool read_metrics(struct bench_child *c, char *line)
{
    static const char head[] = "infc-bench 1 ";
    if (strncmp(line, head, sizeof head - 1)) return false;
    char *save = NULL;
    for (char *w = strtok_r(line + sizeof head - 1, " \n", &save); w; w = strtok_r(NULL, " \n", &save)) {
        char *colon = strchr(w, ':');
        if (!colon || c->n_metrics == BENCH_MAX_METRICS) return false;
        struct bench_metric *m = &c->metrics[c->n_metrics++];
        size_t n = (size_t)(colon - w);
        if (!n || n >= sizeof m->name) return false;
        memcpy(m->name, w, n);
        m->name[n] = 0;
        m->higher_is_better = !strcmp(colon, ":higher");
        if (!m->higher_is_better && strcmp(colon, ":lower")) return false;
    }
    return c->n_metrics > 0;
}

bool child_open(struct bench_child *c, struct diag_sink *diag)
{
    int to[2], from[2];
    char line[512];
    c->peak_kb = c->private_kb = -1;
    if (c->run_once) {
        c->n_metrics = 1;
        c->metrics[0] = (struct bench_metric){.name = "latency_ms"};
        return true;
    }
    if (pipe(to)) return failed(c, diag, strerror(errno));
    if (pipe(from)) {
        close(to[0]), close(to[1]);
        return failed(c, diag, strerror(errno));
    }
    fcntl(to[1], F_SETFD, FD_CLOEXEC);
    fcntl(from[0], F_SETFD, FD_CLOEXEC);
    c->pid = start(c, to[0], from[1]);
    close(to[0]), close(from[1]);
    c->in = fdopen(to[1], "w"), c->out = fdopen(from[0], "r");
    if (c->pid < 0 || !c->in || !c->out) return failed(c, diag, strerror(errno));
    /* No calls, please: something that only copies its input shows itself at once. */
    fputs("0\n", c->in);
    fflush(c->in);
    struct pollfd ready = {.fd = from[0], .events = POLLIN};
    if (poll(&ready, 1, READY_SECONDS * 1000) == 0) {
        kill(c->pid, SIGTERM);
        return diag_report(diag, DIAG_ENVIRONMENT, c->name, "it was not ready after %d seconds", READY_SECONDS);
    }
    if (!fgets(line, sizeof line, c->out) || !read_metrics(c, line))
        return diag_report_remedy(diag, DIAG_ENVIRONMENT, c->name, "see docs/bench.md; a command that is to be run once a call is given with --peer",
                                  "it did not start, or does not speak the protocol of `bench --loop`");
    return true;
}

/* One run of the command; its output goes nowhere. */
static bool run_command(struct bench_child *c, double *ms, struct diag_sink *diag)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC), status = 0;
    double begin = bench_now();
    pid_t pid = start(c, null, null);
    if (pid > 0)
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    *ms = 1e3 * (bench_now() - begin);
    if (null >= 0) close(null);
    if (pid < 0) return failed(c, diag, strerror(errno));
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        return diag_report(diag, DIAG_ENVIRONMENT, c->name, "the command failed (%s %d)", WIFSIGNALED(status) ? "signal" : "exit status",
                           WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return true;
}

bool child_calls(struct bench_child *c, size_t n, double *figures, struct diag_sink *diag)
{
    if (c->run_once) {
        for (size_t i = 0; i < n; i++)
            if (!run_command(c, &figures[i], diag)) return false;
        return true;
    }
    if (fprintf(c->in, "%zu\n", n) < 0 || fflush(c->in)) return failed(c, diag, "it ended");
    for (size_t i = 0; i < n; i++) {
        char line[256], *p = line, *end;
        if (!fgets(line, sizeof line, c->out)) return failed(c, diag, "it ended while it was measured");
        for (int k = 0; k < c->n_metrics; k++, p = end) {
            double v = strtod(p, &end);
            if (end == p || !isfinite(v) || v <= 0) return failed(c, diag, "it answered with something that is no positive figure");
            figures[i * (size_t)c->n_metrics + (size_t)k] = v;
        }
    }
    return true;
}

void child_memory(struct bench_child *c)
{
    char path[64], line[256];
    if (c->pid <= 0) return;
    snprintf(path, sizeof path, "/proc/%ld/status", (long)c->pid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) {
        sscanf(line, "VmHWM: %ld", &c->peak_kb);
        sscanf(line, "RssAnon: %ld", &c->private_kb);
    }
    if (f) fclose(f);
}

void child_close(struct bench_child *c)
{
    if (c->in) fclose(c->in); /* the end of its input ends it */
    if (c->out) fclose(c->out);
    c->in = c->out = NULL;
    if (c->pid > 0)
        while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR) {}
    c->pid = 0;
}
