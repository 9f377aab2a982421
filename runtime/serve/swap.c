// SPDX-License-Identifier: Apache-2.0
/*
 * SIGUSR2: another process, of the file that is now where ours was started from, takes over. It gets
 * the listeners, with the connections that wait in them, and says through a pipe that it is ready; then
 * this one ends as on SIGTERM. If it ends without saying so, nothing has changed here.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/serve/server.h"

enum { START_S = 300, /* a new process has so long to be ready */
       HIGH_FD = 64 /* descriptors are put here first, beyond where they shall be in the end */ };

/* ---- this process is ready ---- */

/* sd_notify(3), for units of Type=notify. */
static void notify_manager(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    const char *path = getenv("NOTIFY_SOCKET");
    char text[64];
    size_t n = path ? strlen(path) : 0;
    if (!n || n >= sizeof a.sun_path) return;
    memcpy(a.sun_path, path, n);
    if (*path == '@') a.sun_path[0] = 0;
    int k = snprintf(text, sizeof text, "READY=1\nMAINPID=%ld", (long)getpid());
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return;
    sendto(fd, text, (size_t)k, 0, (struct sockaddr *)&a,
           (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
    close(fd);
}

void server_say_ready(struct server *s)
{
    notify_manager();
    if (!s->ready_fd) return;
    if (write(s->ready_fd, "+", 1) < 0) {} /* who asked is gone: we are the only one */
    close(s->ready_fd);
    s->ready_fd = 0;
}

/* ---- the next one ---- */

struct start {
    char *argv_text, **argv, **env;
    char fds_text[32], swap_text[64];
    int fds[MAX_LISTENERS + 1], n;
};

/* The words of /proc/self/cmdline. */
static bool read_argv(struct start *t)
{
    size_t n = 0, cap = 4096, words = 0;
    ssize_t k;
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    t->argv_text = malloc(cap + 1);
    while (t->argv_text && (k = read(fd, t->argv_text + n, cap - n)) > 0) {
        n += (size_t)k;
        if (n < cap) continue;
        char *more = realloc(t->argv_text, 2 * (cap *= 2) + 1);
        if (!more) break;
        t->argv_text = more;
    }
    close(fd);
    if (!t->argv_text || !n) return false;
    t->argv_text[n] = 0;
    for (size_t i = 0; i < n; i++) words += !t->argv_text[i];
    t->argv = calloc(words + 2, sizeof *t->argv);
    char *p = t->argv_text;
    for (size_t i = 0; t->argv && i < words; i++, p += strlen(p) + 1) t->argv[i] = p;
    return t->argv;
}

static bool is_var(const char *entry, const char *name)
{
    size_t n = strlen(name);
    return !strncmp(entry, name, n) && entry[n] == '=';
}

static bool make_env(struct start *t)
{
    size_t n = 0, k = 0;
    while (environ[n]) n++;
    t->env = malloc((n + 3) * sizeof *t->env);
    if (!t->env) return false;
    for (size_t i = 0; i < n; i++)
        if (!is_var(environ[i], "LISTEN_FDS") && !is_var(environ[i], "LISTEN_PID") &&
            !is_var(environ[i], SERVE_SWAP))
            t->env[k++] = environ[i];
    t->env[k++] = t->fds_text, t->env[k++] = t->swap_text, t->env[k] = NULL;
    return true;
}

/* The descriptors, the pipe behind the listeners, and what says so. */
static bool collect(struct server *s, struct start *t, int pipe_fd)
{
    unsigned ours = 0;
    bool ok = true;
    for (int i = 0; i <= MAX_LISTENERS; i++) {
        if (i < MAX_LISTENERS && !s->listeners[i]) continue;
        int fd = i < MAX_LISTENERS ? evconnlistener_get_fd(s->listeners[i]) : pipe_fd;
        if (i < MAX_LISTENERS && s->unlink_paths[i]) ours |= 1u << t->n;
        t->fds[t->n] = fcntl(fd, F_DUPFD_CLOEXEC, HIGH_FD);
        ok = ok && t->fds[t->n++] >= 0;
    }
    snprintf(t->fds_text, sizeof t->fds_text, "LISTEN_FDS=%d", t->n - 1);
    snprintf(t->swap_text, sizeof t->swap_text, SERVE_SWAP "=%d %u", 3 + t->n - 1, ours);
    return ok && read_argv(t) && make_env(t);
}

/* The child runs in our memory until it has become the other program: system calls only. */
static pid_t launch(const struct start *t)
{
    const char *file = (const char *)getauxval(AT_EXECFN);
    pid_t pid = vfork();
    if (pid) return pid;
    for (int i = 0; i < t->n; i++)
        if (dup2(t->fds[i], 3 + i) < 0) _exit(127);
    execve(file, t->argv, t->env);
    _exit(127);
}

/* ---- its answer ---- */

static void forget(struct server *s)
{
    event_free(s->swap);
    close(s->swap_fd);
    s->swap = NULL;
}

static void on_answer(evutil_socket_t fd, short what, void *arg)
{
    struct server *s = arg;
    char byte;
    int status = 0;
    bool ready = (what & EV_READ) && read(fd, &byte, 1) == 1;
    forget(s);
    if (ready) {
        fprintf(stderr, "process %ld takes over\n", (long)s->swap_pid);
        s->replaced = true;
        server_drain(s, SWAP_GRACE_S);
        return;
    }
    if (what & EV_TIMEOUT) kill(s->swap_pid, SIGKILL);
    waitpid(s->swap_pid, &status, 0);
    fprintf(stderr, "the new process %ld did not become ready (%s %d): this one goes on\n",
            (long)s->swap_pid, WIFSIGNALED(status) ? "signal" : "exit code",
            WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

static const char *start(struct server *s)
{
    struct start t = {0};
    struct timeval most = {START_S, 0};
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) return strerror(errno);
    const char *why = "no memory or descriptors";
    if (collect(s, &t, ends[1]) && (s->swap = event_new(s->base, ends[0], EV_READ, on_answer, s))) {
        s->swap_fd = ends[0];
        s->swap_pid = launch(&t);
        why = s->swap_pid < 0 ? strerror(errno) : NULL;
        if (why || event_add(s->swap, &most)) forget(s);
    } else
        close(ends[0]);
    close(ends[1]);
    for (int i = 0; i < t.n; i++)
        if (t.fds[i] >= 0) close(t.fds[i]);
    free(t.argv_text);
    free(t.argv);
    free(t.env);
    return why;
}

void server_on_swap(evutil_socket_t fd, short what, void *arg)
{
    struct server *s = arg;
    (void)fd, (void)what;
    const char *why = s->draining ? "this one is shutting down"
                      : s->swap   ? "one is starting"
                                  : start(s);
    if (why) fprintf(stderr, "no new process: %s\n", why);
    else fprintf(stderr, "process %ld starts\n", (long)s->swap_pid);
}

void server_stop_swap(struct server *s)
{
    if (!s->swap) return;
    kill(s->swap_pid, SIGTERM);
    forget(s);
}
