// SPDX-License-Identifier: Apache-2.0
/* Processes of engines: when they start, when they stop, and what happens when they end. */
#define _GNU_SOURCE
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compiler/serve/front.h"

enum { HIGH_FD = 64, BACKLOG = 1024, STOP_S = 10 /* seconds that engines get at the end */ };

/* A model that waits takes the place of one that is never idle after so many seconds. */
static const double PATIENCE_S = 1;

const char *engine_state_name(const struct front_engine *e)
{
    return e->state == ENGINE_STOPPED ? "stopped" : e->state == ENGINE_STOPPING ? "stopping" : e->ready ? "running" : "starting";
}

/* ---- sockets ---- */

static int bind_unix(const char *path, int type)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    strcpy(a.sun_path, path); /* its size is that of socket_path */
    if (!bind(fd, (struct sockaddr *)&a, sizeof a) && (type == SOCK_DGRAM || !listen(fd, BACKLOG))) {
        int high = fcntl(fd, F_DUPFD_CLOEXEC, HIGH_FD);
        close(fd);
        return high;
    }
    close(fd);
    return -1;
}

bool engines_open_socket(struct front *f, struct front_engine *e)
{
    if (e->fd > 0) return true; /* of the engine that had this place before */
    snprintf(e->socket_path, sizeof e->socket_path, "%s/%u", f->folder, (unsigned)(e - f->engines));
    e->fd = bind_unix(e->socket_path, SOCK_STREAM);
    return e->fd >= 0;
}

static bool open_sockets(struct front *f)
{
    snprintf(f->notify_path, sizeof f->notify_path, "%s/notify", f->folder);
    f->notify_fd = bind_unix(f->notify_path, SOCK_DGRAM);
    int fd = keys_share(&f->s);
    f->accounts_fd = fcntl(fd, F_DUPFD_CLOEXEC, HIGH_FD);
    if (fd >= 0) close(fd);
    if (f->notify_fd < 0 || f->accounts_fd < 0) return false;
    for (uint32_t i = 0; i < f->n_engines; i++)
        if (!engines_open_socket(f, &f->engines[i])) return false;
    return true;
}

bool engines_open(struct front *f)
{
    const char *tmp = getenv("TMPDIR");
    int n = snprintf(f->folder, sizeof f->folder, "%s/infc-serve.XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (n >= (int)sizeof f->folder) {
        cli_usage("TMPDIR=%s is too long for the paths of sockets", tmp);
        return false;
    }
    if (mkdtemp(f->folder) && open_sockets(f)) return true;
    cli_usage("cannot make sockets in %s: %s", f->folder, strerror(errno));
    return false;
}

/* ---- start ---- */

static bool is_var(const char *entry, const char *name)
{
    size_t n = strlen(name);
    return !strncmp(entry, name, n) && entry[n] == '=';
}

static char **make_env(char *notify)
{
    static char fds[] = "LISTEN_FDS=1", accounts[] = SERVE_ACCOUNTS "=60";
    static const char *const ours[] = {"LISTEN_FDS", "LISTEN_PID", "NOTIFY_SOCKET", SERVE_SWAP, SERVE_ACCOUNTS};
    _Static_assert(SERVE_ACCOUNTS_FD == 60, "the text above");
    size_t n = 0, k = 0;
    while (environ[n]) n++;
    char **env = malloc((n + 4) * sizeof *env);
    for (size_t i = 0; env && i < n; i++) {
        bool drop = false;
        for (size_t v = 0; v < sizeof ours / sizeof *ours; v++) drop = drop || is_var(environ[i], ours[v]);
        if (!drop) env[k++] = environ[i];
    }
    if (env) env[k++] = fds, env[k++] = notify, env[k++] = accounts, env[k] = NULL;
    return env;
}

/*
 * The child runs in our memory until it has become the engine: system calls only. LISTEN_PID is left out, as it is not known
 * before. An engine whose front process is gone ends.
 */
static pid_t become(const struct front_engine *e, int accounts, char *const *env, pid_t front)
{
    pid_t pid = vfork();
    if (pid) return pid;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != front || dup2(e->fd, 3) < 0 || dup2(accounts, SERVE_ACCOUNTS_FD) < 0) _exit(127);
    execve(e->path, e->argv, env);
    _exit(127);
}

static pid_t launch(const struct front *f, const struct front_engine *e)
{
    char notify[128];
    snprintf(notify, sizeof notify, "NOTIFY_SOCKET=%s", f->notify_path);
    char **env = make_env(notify);
    pid_t pid = env ? become(e, f->accounts_fd, env, getpid()) : -1;
    free(env);
    return pid;
}

static void start(struct front *f, struct front_engine *e)
{
    e->pid = launch(f, e);
    if (e->pid < 0) {
        e->failures++, e->retry_at = serve_clock() + 1;
        relay_refuse(e, true, 0, "its process cannot be started");
        return;
    }
    e->state = ENGINE_RUNNING, e->ready = false, e->retire = e->gone;
    e->used = serve_clock();
    e->n_starts++;
    fprintf(stderr, "%s: process %ld starts\n", e->name, (long)e->pid);
}

static void stop(struct front_engine *e)
{
    kill(e->pid, SIGTERM);
    e->state = ENGINE_STOPPING;
    fprintf(stderr, "%s: process %ld stops\n", e->name, (long)e->pid);
}

/* ---- memory ---- */

static void measure(struct front_engine *e)
{
    char path[64];
    unsigned long long all, resident;
    snprintf(path, sizeof path, "/proc/%ld/statm", (long)e->pid);
    FILE *f = fopen(path, "re");
    if (f && fscanf(f, "%llu %llu", &all, &resident) == 2 && resident * 4096 > e->bytes) e->bytes = resident * 4096;
    if (f) fclose(f);
}

/* What an engine takes: its file, whose weights it reads, or what was seen of it. */
static uint64_t takes(const struct front_engine *e) { return e->bytes > e->file.bytes ? e->bytes : e->file.bytes; }

/* The one that was used longest ago, of those that run and are (not) busy. */
static struct front_engine *least_used(struct front *f, bool busy)
{
    struct front_engine *found = NULL;
    for (uint32_t i = 0; i < f->n_engines; i++) {
        struct front_engine *e = &f->engines[i];
        bool works = e->n_sent || (e->n_held && !e->retire);
        if (e->state == ENGINE_RUNNING && works == busy && (!found || e->used < found->used)) found = e;
    }
    return found;
}

/* True: `more` bytes fit now. Else engines that are idle were told to stop. */
static bool make_room(struct front *f, uint64_t more, double waited)
{
    uint64_t sum = more, leaving = 0;
    if (!f->memory) return true;
    for (uint32_t i = 0; i < f->n_engines; i++) {
        const struct front_engine *e = &f->engines[i];
        if (e->state != ENGINE_STOPPED) sum += takes(e);
        if (e->state == ENGINE_STOPPING || (e->state == ENGINE_RUNNING && e->retire)) leaving += takes(e);
    }
    if (sum <= f->memory) return true;
    while (sum - leaving > f->memory) {
        struct front_engine *e = least_used(f, false);
        if (!e) break;
        leaving += e->retire ? 0 : takes(e);
        stop(e);
    }
    if (sum - leaving > f->memory && waited > PATIENCE_S) {
        struct front_engine *e = least_used(f, true);
        if (e && !e->retire) e->retire = true;
    }
    return false;
}

/* ---- what is wanted ---- */

/* Of the engines that are not there and have requests, the one whose request is oldest. */
static struct front_engine *next_wanted(struct front *f)
{
    struct front_engine *found = NULL;
    for (uint32_t i = 0; i < f->n_engines; i++) {
        struct front_engine *e = &f->engines[i];
        if (e->state == ENGINE_STOPPED && e->n_held && (!found || relay_held_since(e) < relay_held_since(found)))
            found = e;
    }
    return found;
}

static void refuse_failing(struct front_engine *e)
{
    char why[160];
    snprintf(why, sizeof why, "its process ended with %s %d before it was ready",
             WIFSIGNALED(e->last_status) ? "signal" : "exit code",
             WIFSIGNALED(e->last_status) ? WTERMSIG(e->last_status) : WEXITSTATUS(e->last_status));
    relay_refuse(e, true, 0, why);
}

void engines_schedule(struct front *f)
{
    struct front_engine *e;
    double now = serve_clock();
    for (uint32_t i = 0; i < f->n_engines; i++) {
        e = &f->engines[i];
        if (e->state == ENGINE_STOPPED && e->n_held && now < e->retry_at) refuse_failing(e);
        if (e->state == ENGINE_RUNNING && e->retire && !e->n_sent) stop(e);
        /* what was sent waits in the socket of a process that is gone */
        if (e->state == ENGINE_STOPPED && e->n_sent && now >= e->retry_at) start(f, e);
    }
    while ((e = next_wanted(f)) && make_room(f, takes(e), now - relay_held_since(e))) {
        start(f, e);
        if (e->state == ENGINE_RUNNING) relay_send_held(f, e);
    }
    for (uint32_t i = 0; i < f->n_engines; i++) {
        e = &f->engines[i];
        if (e->state == ENGINE_RUNNING && !e->retire && e->n_held) relay_send_held(f, e);
    }
}

static void on_soon(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    engines_schedule(arg);
}

void engines_schedule_soon(struct front *f)
{
    if (f->soon) event_active(f->soon, EV_TIMEOUT, 0);
}

/* ---- events ---- */

/* "READY=1\nMAINPID=n" */
static void on_notify(evutil_socket_t fd, short what, void *arg)
{
    struct front *f = arg;
    char text[256];
    ssize_t n;
    (void)what;
    while ((n = recv(fd, text, sizeof text - 1, 0)) > 0) {
        text[n] = 0;
        const char *pid = strstr(text, "MAINPID=");
        for (uint32_t i = 0; pid && i < f->n_engines; i++) {
            struct front_engine *e = &f->engines[i];
            if (e->state == ENGINE_STOPPED || strtol(pid + 8, NULL, 10) != e->pid) continue;
            e->ready = true, e->failures = 0;
        }
    }
}

static void ended(struct front_engine *e, int status)
{
    bool expected = e->state == ENGINE_STOPPING;
    e->state = ENGINE_STOPPED, e->pid = 0, e->last_status = status, e->retire = false;
    fprintf(stderr, "%s: the process ended (%s %d)\n", e->name, WIFSIGNALED(status) ? "signal" : "exit code",
            WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    if (expected) return;
    e->n_crashes++;
    if (e->ready) return;
    /* it cannot start: seconds, twice as many each time, until the next attempt */
    double pause = e->failures < 5 ? 1 << e->failures : 30;
    e->failures++;
    e->retry_at = serve_clock() + pause;
    refuse_failing(e);
}

static void on_child(evutil_socket_t fd, short what, void *arg)
{
    struct front *f = arg;
    (void)fd, (void)what;
    on_notify(f->notify_fd, 0, f); /* ready, and ended at once */
    for (uint32_t i = 0; i < f->n_engines; i++) {
        int status;
        struct front_engine *e = &f->engines[i];
        if (e->pid > 0 && waitpid(e->pid, &status, WNOHANG) == e->pid) ended(e, status);
    }
    engines_schedule(f);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    struct front *f = arg;
    double now = serve_clock();
    (void)fd, (void)what;
    for (uint32_t i = 0; i < f->n_engines; i++) {
        struct front_engine *e = &f->engines[i];
        if (e->pid > 0) measure(e);
        if (e->n_held) relay_refuse(e, false, now - f->wait_s, "there was no memory for it in time");
        if (f->idle_s > 0 && e->state == ENGINE_RUNNING && !e->n_sent && !e->n_held && now - e->used > f->idle_s) stop(e);
    }
    engines_schedule(f);
    if (!next_wanted(f)) make_room(f, 0, 0);
}

bool engines_watch(struct front *f)
{
    struct timeval often = {0, 200000};
    f->child = evsignal_new(f->s.base, SIGCHLD, on_child, f);
    f->tick = event_new(f->s.base, -1, EV_PERSIST, on_tick, f);
    f->notify = event_new(f->s.base, f->notify_fd, EV_READ | EV_PERSIST, on_notify, f);
    f->soon = event_new(f->s.base, -1, 0, on_soon, f);
    return f->child && f->tick && f->notify && f->soon && !event_add(f->child, NULL) && !event_add(f->tick, &often) &&
           !event_add(f->notify, NULL);
}

void engines_unwatch(struct front *f)
{
    struct event **const events[] = {&f->child, &f->tick, &f->notify, &f->soon};
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        if (*events[i]) event_free(*events[i]);
        *events[i] = NULL;
    }
}

void engines_close(struct front *f)
{
    bool any = true;
    for (uint32_t i = 0; i < f->n_engines; i++)
        if (f->engines[i].pid > 0) kill(f->engines[i].pid, SIGTERM);
    for (double until = serve_clock() + STOP_S; any;) {
        struct timespec pause = {0, 5000000};
        any = false;
        for (uint32_t i = 0; i < f->n_engines; i++) {
            struct front_engine *e = &f->engines[i];
            if (e->pid > 0 && serve_clock() > until) kill(e->pid, SIGKILL);
            if (e->pid > 0 && waitpid(e->pid, NULL, WNOHANG)) e->pid = 0;
            any = any || e->pid > 0;
        }
        if (any) nanosleep(&pause, NULL);
    }
    for (uint32_t i = 0; i < f->n_engines; i++) {
        if (f->engines[i].fd > 0) close(f->engines[i].fd);
        unlink(f->engines[i].socket_path);
    }
    if (f->notify_fd > 0) close(f->notify_fd);
    if (f->accounts_fd > 0) close(f->accounts_fd);
    unlink(f->notify_path);
    rmdir(f->folder);
}
