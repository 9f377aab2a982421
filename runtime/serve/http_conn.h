// SPDX-License-Identifier: Apache-2.0
/*
 * Connections: requests in, replies and streams out, on one event loop.
 *
 * A connection reads one request at a time; what the peer sends ahead waits in a bounded buffer.
 * Times and sizes are bounded everywhere: a head must be complete `head_s` after its first byte, a
 * body must bring 16 KiB (or its end) every `body_s`, a peer that does not read is dropped after
 * `write_s` or when max_output bytes wait for it. A peer that closes its side while its request is
 * being worked on has given up: on_abort.
 *
 * One thread, libevent's. The handler answers at once or later, exactly once: http_reply, or
 * http_stream_begin ... http_stream_end.
 */
#ifndef INFC_RUNTIME_SERVE_HTTP_CONN_H
#define INFC_RUNTIME_SERVE_HTTP_CONN_H

#include <sys/socket.h>

#include "runtime/serve/http_parse.h"
#include "runtime/serve/keys.h"

struct event_base;
struct event;
struct bufferevent;
struct evconnlistener;
struct http_server;

struct http_conn {
    /* the request, from the handler's call to the end of the reply */
    struct http_head head;
    char *body;
    size_t n_body;
    char peer[64]; /* "127.0.0.1", "unix", or whom X-Forwarded-For names through a Unix socket */
    char id[40];   /* of the request: the client's X-Request-Id or made up */
    char extra[768]; /* header lines for the reply, each with CR LF */
    /* the handler's */
    void *call;
    struct serve_payer payer; /* whose limits it counts for */
    uint32_t n_prompt_tokens; /* of a prompt that is too long; 0: none */
    bool quota_spent;         /* the error is not one that waiting ends */
    void (*on_abort)(struct http_conn *c); /* the peer is gone: nobody answers any more */
    void (*on_idle)(struct http_conn *c);  /* no byte was sent for ping_s; or NULL */
    /* the connection's */
    struct http_server *server;
    struct bufferevent *bev;
    struct event *timer;
    struct http_conn *next, *prev;
    char *head_text;
    size_t scanned, cap_body, marked;
    struct http_chunks chunks;
    int state, status;
    bool chunked_reply, sse, processing, dead, closing, linger, headers_sent, local;
    double began, last_write;
    uint64_t bytes_out, n_replies;
};

struct http_options {
    double head_s, body_s, idle_s, write_s, ping_s; /* zero: 10, 20, 75, 30, 15 */
    uint64_t max_body;                              /* zero: 16 MiB */
    uint64_t max_bodies;   /* of all requests together; zero: 256 MiB */
    uint32_t max_conns;    /* zero: 1024 */
    size_t max_output;     /* bytes of a stream that wait; zero: 4 MiB */
};

struct http_server {
    struct event_base *base;
    struct http_options o;
    void (*handler)(struct http_conn *c, void *user);
    void (*on_done)(struct http_conn *c, void *user); /* the reply is complete; or NULL */
    void *user;
    struct http_conn *conns;
    uint32_t n_conns, n_busy;
    uint64_t body_bytes, ids, accepted, turned_away;
    uint64_t id_seed;
    struct event *ping;
    bool draining;
    double grace_s;
};

/* Fills in defaults. base, handler and user are set before; false: no memory. */
bool http_server_init(struct http_server *s);
/* Takes a connected socket, which is not blocking. */
void http_accept(struct http_server *s, int fd, const struct sockaddr *peer);
/* Idle connections are closed after grace_s, others after their reply, which says so; one whose first
 * request may be on its way has a second for it. */
void http_server_drain(struct http_server *s, double grace_s);
/* Drops all connections; on_abort is called for those that work. */
void http_server_deinit(struct http_server *s);

/* type may be NULL without a body. Closes afterwards if the status says that the frame is lost. */
void http_reply(struct http_conn *c, int status, const char *type, const void *body, size_t n);
/* printf of header lines for the reply. */
__attribute__((format(printf, 2, 3))) void http_header(struct http_conn *c, const char *format,
                                                       ...);

/* Server-sent events. Writes return false when the peer is gone; on_abort was called then. */
bool http_stream_begin(struct http_conn *c, int status, const char *type);
bool http_stream_write(struct http_conn *c, const void *data, size_t n);
/* Several pieces as one. */
bool http_stream_writev(struct http_conn *c, const struct http_span *parts, int n_parts);
void http_stream_end(struct http_conn *c);

const char *http_status_text(int status);

#endif
