// SPDX-License-Identifier: Apache-2.0
/* Listeners: addresses of --listen, or those that were passed on by whoever started the process. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <event2/listener.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/serve/server.h"

static void on_accept(struct evconnlistener *l, evutil_socket_t fd, struct sockaddr *peer, int n,
                      void *arg)
{
    struct server *s = arg;
    (void)l, (void)n;
    http_accept(&s->http, fd, peer);
}

/* Out of descriptors: the loop must not spin on it; the tick listens again. */
static void on_accept_error(struct evconnlistener *l, void *arg)
{
    (void)arg;
    struct timespec pause = {0, 1000000};
    (void)l;
    nanosleep(&pause, NULL);
}

static int next_listener(const struct server *s)
{
    int i = 0;
    while (i < MAX_LISTENERS && s->listeners[i]) i++;
    if (i == MAX_LISTENERS) return -cli_usage("--listen: at most %d addresses", MAX_LISTENERS);
    return i;
}

/* The path of a Unix socket is removed at the end, if it is ours. */
static int took(struct server *s, int i, bool ours)
{
    struct sockaddr_storage a = {0};
    socklen_t n = sizeof a;
    char text[64];
    evconnlistener_set_error_cb(s->listeners[i], on_accept_error);
    if (getsockname(evconnlistener_get_fd(s->listeners[i]), (struct sockaddr *)&a, &n))
        return INFR_OK;
    if (a.ss_family == AF_UNIX) {
        const char *path = ((const struct sockaddr_un *)(const void *)&a)->sun_path;
        if (ours) s->unlink_paths[i] = strdup(path);
        fprintf(stderr, "listening on unix:%s\n", path);
        return INFR_OK;
    }
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)&a;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)&a;
    bool six = a.ss_family == AF_INET6;
    inet_ntop(a.ss_family, six ? (const void *)&v6->sin6_addr : (const void *)&v4->sin_addr, text,
              sizeof text);
    fprintf(stderr, six ? "listening on http://[%s]:%u\n" : "listening on http://%s:%u\n", text,
            ntohs(six ? v6->sin6_port : v4->sin_port));
    return INFR_OK;
}

static int add_listener(struct server *s, const struct sockaddr *address, size_t n,
                        const char *text)
{
    int i = next_listener(s);
    if (i < 0) return -i;
    unsigned flags = LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC;
    if (address->sa_family != AF_UNIX) flags |= LEV_OPT_REUSEABLE;
    s->listeners[i] = evconnlistener_new_bind(s->base, on_accept, s, flags, 511, address, (int)n);
    if (s->listeners[i]) return took(s, i, true);
    cli_usage("cannot listen on %s: %s", text, strerror(errno));
    return INFR_ENVIRONMENT;
}

static int listen_unix(struct server *s, const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct stat info;
    if (!*path || strlen(path) >= sizeof a.sun_path)
        return cli_usage("--listen: the path '%s' is not possible for a socket", path);
    strcpy(a.sun_path, path);
    /* a socket that a dead server left behind; one that answers is in use */
    if (!stat(path, &info) && S_ISSOCK(info.st_mode)) {
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        bool used = fd >= 0 && !connect(fd, (struct sockaddr *)&a, sizeof a);
        if (fd >= 0) close(fd);
        if (!used) unlink(path);
    }
    return add_listener(s, (struct sockaddr *)&a, sizeof a, path);
}

static int listen_tcp(struct server *s, const char *host, uint16_t port, const char *text)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    if (inet_pton(AF_INET, host, &v4.sin_addr) == 1)
        return add_listener(s, (struct sockaddr *)&v4, sizeof v4, text);
    if (inet_pton(AF_INET6, host, &v6.sin6_addr) == 1)
        return add_listener(s, (struct sockaddr *)&v6, sizeof v6, text);
    return cli_usage("--listen: '%s' is neither a numeric address nor localhost", host);
}

/* "HOST:PORT", "[V6]:PORT", "unix:PATH" */
static int listen_on(struct server *s, const char *text)
{
    char host[64], *end;
    if (!strncmp(text, "unix:", 5)) return listen_unix(s, text + 5);
    const char *colon = strrchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : 0;
    unsigned long port = colon ? strtoul(colon + 1, &end, 10) : 0;
    bool bracket = n > 1 && text[0] == '[' && text[n - 1] == ']';
    if (!colon || end == colon + 1 || *end || port > 65535 || n - 2 * bracket >= sizeof host)
        return cli_usage("--listen: '%s' is not ADDRESS:PORT or unix:PATH", text);
    memcpy(host, text + bracket, n - 2 * bracket);
    host[n - 2 * bracket] = 0;
    if (!strcmp(host, "localhost")) strcpy(host, "127.0.0.1");
    if (!*host || !strcmp(host, "*")) strcpy(host, "0.0.0.0");
    return listen_tcp(s, host, (uint16_t)port, text);
}

/* ---- listeners of who started us ---- */

/*
 * As systemd passes sockets on: LISTEN_FDS of them, from descriptor 3 on. Paths of Unix sockets are
 * whose who made them; SERVE_SWAP says which a process passed on that makes place for this one.
 */
static int inherit(struct server *s, unsigned long n)
{
    unsigned long ours = 0;
    char *end;
    const char *swap = getenv(SERVE_SWAP);
    if (n > MAX_LISTENERS) return cli_usage("LISTEN_FDS: at most %d addresses", MAX_LISTENERS);
    if (swap) {
        s->ready_fd = (int)strtoul(swap, &end, 10);
        ours = strtoul(end, NULL, 10);
        fcntl(s->ready_fd, F_SETFD, FD_CLOEXEC);
    }
    for (unsigned long i = 0; i < n; i++) {
        int fd = 3 + (int)i;
        if (fcntl(fd, F_SETFD, FD_CLOEXEC) || fcntl(fd, F_SETFL, O_NONBLOCK) ||
            !(s->listeners[i] = evconnlistener_new(s->base, on_accept, s, LEV_OPT_CLOSE_ON_FREE, 0, fd))) {
            cli_usage("LISTEN_FDS: descriptor %d is no socket that listens", fd);
            return INFR_ENVIRONMENT;
        }
        took(s, (int)i, ours >> i & 1);
    }
    return INFR_OK;
}

int server_listen(struct server *s)
{
    const char *n = getenv("LISTEN_FDS"), *pid = getenv("LISTEN_PID");
    if (n && (!pid || strtoul(pid, NULL, 10) == (unsigned long)getpid()))
        return inherit(s, strtoul(n, NULL, 10));
    int code = INFR_OK;
    for (size_t i = 0; !code && i < s->o.n_listen; i++) code = listen_on(s, s->o.listen[i]);
    return code;
}

void server_close_listeners(struct server *s)
{
    for (int i = 0; i < MAX_LISTENERS; i++) {
        if (s->listeners[i]) evconnlistener_free(s->listeners[i]);
        if (s->unlink_paths[i] && !s->replaced) unlink(s->unlink_paths[i]);
        free(s->unlink_paths[i]);
        s->listeners[i] = NULL, s->unlink_paths[i] = NULL;
    }
}
