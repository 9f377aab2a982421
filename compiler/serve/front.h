// SPDX-License-Identifier: Apache-2.0
/*
 * `infc serve`: one process in front of many engines, each a process of its own.
 *
 *   cmd_serve   options                           relay   a request to its engine, the reply back
 *   list        which engines there are           own     what is answered here
 *   engines     processes: started, stopped
 *
 * The front process makes every engine's listening socket, in a folder that only its user can enter,
 * and passes it on as systemd would. So a request can be sent at once, whether the engine runs, starts
 * or has just died: it waits in the socket's queue for whoever accepts it next.
 *
 * Everything runs on the event loop of runtime/serve/server.h.
 */
#ifndef INFC_COMPILER_SERVE_FRONT_H
#define INFC_COMPILER_SERVE_FRONT_H

#include <sys/types.h>

#include "ir/support/diag.h"
#include "runtime/serve/server.h"

enum { MAX_ENGINES = 256, MAX_TRIES = 2 /* a request that its engine died of is asked so often */ };

struct bufferevent;
struct relay;

enum engine_state { ENGINE_STOPPED, ENGINE_RUNNING, ENGINE_STOPPING };

/* A file that is another one, or was written again, differs in one of these. */
struct file_id {
    uint64_t device, inode, bytes;
    int64_t seconds, nanoseconds;
};

struct front_engine {
    struct arena strings; /* name, path, argv */
    char *name, *path;
    char **argv; /* NULL-terminated */
    char socket_path[108];
    int fd; /* listens */
    struct file_id file;
    bool gone; /* from the list: it ends with its last request, and its place is free */
    /* the process */
    pid_t pid;
    enum engine_state state;
    bool ready;  /* it has said so */
    bool retire; /* others wait for its memory: it gets no more requests */
    unsigned failures; /* processes in a row that ended before they were ready */
    double retry_at;   /* no new process before */
    int last_status;   /* of waitpid */
    uint64_t bytes;    /* resident memory, the most that was seen */
    double used;       /* when it last had a request */
    /* its requests */
    struct relay *relays; /* oldest last */
    uint32_t n_held, n_sent; /* not sent yet, and sent */
    uint64_t n_starts, n_crashes, n_requests;
};

struct front {
    struct server s; /* first: handlers get this */
    struct front_engine *engines;
    uint32_t n_engines;
    const char *from, *engine_args, *usual_name; /* of the command line: folder or file; or NULL */
    struct front_engine *usual; /* of requests that name no model; or NULL */
    uint64_t memory;            /* bytes of all engines; 0: any */
    double idle_s, wait_s;      /* 0: engines are never idle for too long */
    char folder[64];
    char notify_path[108];
    int notify_fd, accounts_fd;
    struct event *child, *tick, *notify, *soon;
};

/* ---- list.c ---- */

/*
 * Reads the list, at first or again. Again: what is still there goes on, what changed in file or options is started anew when its
 * requests are answered, what is gone gets no more of them. False: the diagnostics say why, and nothing has changed.
 * Costs an execution of `FILE --help` for each file that was not there before.
 */
bool list_read(struct front *f, struct diag_sink *diag);
void list_free(struct front *f);

/* ---- engines.c ---- */

/* Folder and sockets. False: said. */
bool engines_open(struct front *f);
/* With the event loop there: watches processes. False: no memory. */
bool engines_watch(struct front *f);
/* Before the event loop goes. */
void engines_unwatch(struct front *f);
/* The socket of one that came later. */
bool engines_open_socket(struct front *f, struct front_engine *e);
/* Stops all and waits for them. */
void engines_close(struct front *f);
/* Starts and stops what the requests that wait want, and sends what can be sent. */
void engines_schedule(struct front *f);
void engines_schedule_soon(struct front *f); /* from the loop, whatever the caller is in */
const char *engine_state_name(const struct front_engine *e);

/* ---- relay.c ---- */

/* Any request that is not answered here. */
api_handler front_relay;
/* Sends those of e that are held. */
void relay_send_held(struct front *f, struct front_engine *e);
/* Answers with 503 those of e that are held since before that time, or all of them. */
void relay_refuse(struct front_engine *e, bool all, double before, const char *why);
/* When the oldest request came that is held. */
double relay_held_since(const struct front_engine *e);
/* NULL: there is none. */
struct front_engine *front_find(struct front *f, const char *name, size_t n);

/* ---- own.c ---- */

extern const struct api_route front_routes[];
extern const size_t n_front_routes;
void front_metrics(struct server *s, FILE *out);

#endif
