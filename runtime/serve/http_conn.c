// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "runtime/serve/http_conn.h"

#include <arpa/inet.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { HEAD, BODY, BUSY, STREAM, LINGER };
enum { AHEAD = 256 << 10, PROGRESS = 16 << 10, MOST_PENDING = 256 << 10, LINGER_S = 2 };

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

const char *http_status_text(int status)
{
    static const struct {
        int status;
        const char *text;
    } rows[] = {
        {200, "OK"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].status == status) return rows[i].text;
    return "Status";
}

/* ---- life ---- */

static void arm(struct http_conn *c, double seconds)
{
    struct timeval t = {(time_t)seconds, (suseconds_t)((seconds - (double)(time_t)seconds) * 1e6)};
    if (seconds > 0)
        evtimer_add(c->timer, &t);
    else
        evtimer_del(c->timer);
}

static void forget_request(struct http_conn *c)
{
    c->server->body_bytes -= c->cap_body;
    free(c->head_text);
    free(c->body);
    c->head_text = c->body = NULL;
    c->n_body = c->cap_body = c->marked = 0;
    c->chunks = (struct http_chunks){0};
    c->extra[0] = 0;
    c->call = NULL, c->n_prompt_tokens = 0, c->quota_spent = false, c->on_abort = NULL, c->on_idle = NULL;
    c->chunked_reply = c->sse = c->headers_sent = false;
}

static void destroy(struct http_conn *c)
{
    struct http_server *s = c->server;
    if (c->processing) {
        c->dead = true;
        return;
    }
    if (c->prev) c->prev->next = c->next;
    else s->conns = c->next;
    if (c->next) c->next->prev = c->prev;
    s->n_conns--;
    if (c->timer) event_free(c->timer);
    bufferevent_free(c->bev);
    forget_request(c);
    free(c);
}

/* The peer is gone or dropped. */
static void drop(struct http_conn *c)
{
    if (c->dead) return;
    if (c->state == BUSY || c->state == STREAM) {
        c->server->n_busy--;
        c->status = 499; /* in the log: the client closed the request */
        if (c->on_abort) c->on_abort(c);
        if (c->server->on_done) c->server->on_done(c, c->server->user);
        c->state = LINGER;
    }
    destroy(c);
}

static size_t pending(const struct http_conn *c)
{
    return evbuffer_get_length(bufferevent_get_output(c->bev));
}

/* Output is written: says goodbye, and reads what is on its way so that no reset overtakes the reply. */
static void say_goodbye(struct http_conn *c)
{
    if (!c->linger) {
        destroy(c);
        return;
    }
    c->state = LINGER;
    shutdown(bufferevent_getfd(c->bev), SHUT_WR);
    arm(c, LINGER_S);
}

/* Closes when all output is written. */
static void close_soon(struct http_conn *c)
{
    c->closing = true;
    c->state = LINGER;
    if (!pending(c)) say_goodbye(c);
    else arm(c, 0); /* the write timeout watches now */
}

/* ---- replies ---- */

void http_header(struct http_conn *c, const char *format, ...)
{
    size_t n = strlen(c->extra);
    va_list ap;
    va_start(ap, format);
    int k = vsnprintf(c->extra + n, sizeof c->extra - n - 2, format, ap);
    va_end(ap);
    if (k < 0 || (size_t)k >= sizeof c->extra - n - 2)
        c->extra[n] = 0; /* does not fit: none of it */
    else
        memcpy(c->extra + n + k, "\r\n", 3);
}

static void write_head(struct http_conn *c, int status, const char *type, bool has_length, size_t n)
{
    struct evbuffer *out = bufferevent_get_output(c->bev);
    /* what was sent ahead is answered, too */
    bool more = c->server->grace_s > 0 && evbuffer_get_length(bufferevent_get_input(c->bev));
    if (c->server->draining && !more) c->head.keep_alive = false;
    evbuffer_add_printf(out, "HTTP/1.1 %d %s\r\n", status, http_status_text(status));
    if (type) evbuffer_add_printf(out, "Content-Type: %s\r\n", type);
    if (has_length) evbuffer_add_printf(out, "Content-Length: %zu\r\n", n);
    else if (c->chunked_reply) evbuffer_add_printf(out, "Transfer-Encoding: chunked\r\n");
    if (c->id[0]) evbuffer_add_printf(out, "X-Request-Id: %s\r\n", c->id);
    evbuffer_add_printf(out, "%sConnection: %s\r\n\r\n", c->extra,
                        c->head.keep_alive ? "keep-alive" : "close");
    c->status = status;
    c->headers_sent = true;
}

static void process(struct http_conn *c);

/* The reply is complete: on to the next request, or goodbye. */
static void end_exchange(struct http_conn *c)
{
    struct http_server *s = c->server;
    if (c->state == BUSY || c->state == STREAM) s->n_busy--;
    if (s->on_done) s->on_done(c, s->user);
    bool keep = c->head.keep_alive && (!s->draining || s->grace_s > 0);
    c->n_replies++;
    forget_request(c);
    if (!keep) {
        close_soon(c);
        return;
    }
    c->state = HEAD;
    c->scanned = 0;
    arm(c, s->draining ? s->grace_s : s->o.idle_s);
    if (!c->processing) process(c);
}

static bool head_only(const struct http_conn *c) { return http_is(c->head.method, "HEAD"); }

void http_reply(struct http_conn *c, int status, const char *type, const void *body, size_t n)
{
    write_head(c, status, type, true, n);
    if (n && !head_only(c)) bufferevent_write(c->bev, body, n);
    c->bytes_out = n;
    end_exchange(c);
}

/* The frame is not understood, so nothing behind it can be. */
static void refuse(struct http_conn *c, int status)
{
    char body[160];
    int n = snprintf(body, sizeof body, "{\"error\":{\"message\":\"%s\",\"type\":\"%s\",\"code\":%d}}",
                     http_status_text(status),
                     status < 500 ? "invalid_request_error" : "server_error", status);
    c->head.keep_alive = false;
    c->linger = true;
    if (c->state == HEAD) /* what was read of it points nowhere */
        c->head.method = c->head.path = c->head.query = (struct http_span){"", 0};
    c->state = BODY; /* not one of those that work */
    http_reply(c, status, "application/json", body, (size_t)n);
}

bool http_stream_begin(struct http_conn *c, int status, const char *type)
{
    c->chunked_reply = c->head.minor > 0;
    if (!c->chunked_reply) c->head.keep_alive = false;
    write_head(c, status, type, false, 0);
    c->state = STREAM;
    c->sse = !strncmp(type, "text/event-stream", 17);
    c->last_write = now_s();
    c->bytes_out = 0;
    return true;
}

bool http_stream_writev(struct http_conn *c, const struct http_span *parts, int n_parts)
{
    struct evbuffer *out = bufferevent_get_output(c->bev);
    size_t n = 0;
    for (int i = 0; i < n_parts; i++) n += parts[i].n;
    if (!n) return true;
    if (pending(c) + n > c->server->o.max_output) {
        drop(c);
        return false;
    }
    if (c->chunked_reply) evbuffer_add_printf(out, "%zx\r\n", n);
    for (int i = 0; i < n_parts; i++) evbuffer_add(out, parts[i].p, parts[i].n);
    if (c->chunked_reply) evbuffer_add(out, "\r\n", 2);
    c->bytes_out += n;
    c->last_write = now_s();
    return true;
}

bool http_stream_write(struct http_conn *c, const void *data, size_t n)
{
    struct http_span all = {data, n};
    return http_stream_writev(c, &all, 1);
}

void http_stream_end(struct http_conn *c)
{
    if (c->chunked_reply) bufferevent_write(c->bev, "0\r\n\r\n", 5);
    end_exchange(c);
}

/* ---- requests ---- */

static void set_id(struct http_conn *c)
{
    struct http_server *s = c->server;
    const struct http_span *given = http_find(&c->head, "x-request-id");
    bool fine = given && given->n && given->n < sizeof c->id;
    for (size_t i = 0; fine && i < given->n; i++) {
        unsigned char x = (unsigned char)given->p[i];
        fine = x > 0x20 && x < 0x7f && x != '"' && x != '\\';
    }
    if (fine) {
        memcpy(c->id, given->p, given->n);
        c->id[given->n] = 0;
    } else {
        uint64_t x = (s->id_seed + ++s->ids) * 0x9e3779b97f4a7c15u;
        x ^= x >> 31;
        snprintf(c->id, sizeof c->id, "req-%016llx", (unsigned long long)x);
    }
}

/* Who speaks through a Unix socket is one of ours, and may speak for another. */
static void name_forwarded(struct http_conn *c)
{
    const struct http_span *from = http_find(&c->head, "x-forwarded-for");
    bool fine = from && from->n && from->n < sizeof c->peer;
    strcpy(c->peer, "unix");
    for (size_t i = 0; fine && i < from->n; i++) fine = from->p[i] > 0x20 && from->p[i] < 0x7f;
    if (fine) snprintf(c->peer, sizeof c->peer, "%.*s", (int)from->n, from->p);
}

static bool take_head(struct http_conn *c)
{
    struct evbuffer *in = bufferevent_get_input(c->bev);
    size_t n = evbuffer_get_length(in), most = n < HTTP_MAX_HEAD ? n : HTTP_MAX_HEAD;
    const char *text = (const char *)evbuffer_pullup(in, (ev_ssize_t)most);
    if (!text) return false;
    if (!c->scanned) arm(c, c->server->o.head_s), c->began = now_s();
    /* a head is looked at again when another line has come, which its fields bound */
    bool line = memchr(text + (c->scanned < most ? c->scanned : most), '\n',
                       most - (c->scanned < most ? c->scanned : most)) != NULL;
    c->scanned = most;
    if (!line && most < HTTP_MAX_TARGET + 1) return false;
    c->id[0] = 0;
    int code = http_parse_head(text, most, &c->head);
    if (!code) return false;
    if (code < 0) {
        refuse(c, -code);
        return false;
    }
    c->head_text = malloc((size_t)code);
    if (!c->head_text) {
        drop(c);
        return false;
    }
    memcpy(c->head_text, text, (size_t)code);
    http_parse_head(c->head_text, (size_t)code, &c->head);
    if (c->local) name_forwarded(c);
    evbuffer_drain(in, (size_t)code);
    set_id(c);
    if (c->head.has_length && c->head.length > c->server->o.max_body) {
        refuse(c, 413);
        return false;
    }
    if (c->head.expect_continue && !evbuffer_get_length(in) &&
        (c->head.chunked || c->head.length))
        bufferevent_write(c->bev, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    c->state = BODY;
    arm(c, c->server->o.body_s);
    return true;
}

static bool append(struct http_conn *c, const char *p, size_t n)
{
    struct http_server *s = c->server;
    if (c->n_body + n > c->cap_body) {
        size_t cap = c->cap_body ? 2 * c->cap_body : 4096;
        while (cap < c->n_body + n) cap *= 2;
        char *body = s->body_bytes - c->cap_body + cap > s->o.max_bodies
                         ? NULL
                         : realloc(c->body, cap + 1);
        if (!body) return false;
        s->body_bytes += cap - c->cap_body;
        c->body = body, c->cap_body = cap;
    }
    memcpy(c->body + c->n_body, p, n);
    c->n_body += n;
    if (c->n_body - c->marked >= PROGRESS) {
        c->marked = c->n_body;
        arm(c, s->o.body_s);
    }
    return true;
}

/* True: the body is complete. */
static bool take_body(struct http_conn *c)
{
    struct evbuffer *in = bufferevent_get_input(c->bev);
    for (;;) {
        size_t n = evbuffer_get_length(in), used = 0;
        struct http_span data = {NULL, 0};
        int code = HTTP_CHUNK_END;
        if (!c->head.chunked && c->n_body >= c->head.length) return true;
        if (!n) return false;
        if (n > 65536) n = 65536;
        const char *p = (const char *)evbuffer_pullup(in, (ev_ssize_t)n);
        if (c->head.chunked) {
            code = http_chunks_feed(&c->chunks, p, n, c->server->o.max_body, &used, &data);
        } else {
            used = c->head.length - c->n_body < n ? (size_t)(c->head.length - c->n_body) : n;
            data = (struct http_span){p, used};
        }
        if (code < 0) {
            refuse(c, -code);
            return false;
        }
        if (data.n && !append(c, data.p, data.n)) {
            refuse(c, 503);
            return false;
        }
        evbuffer_drain(in, used);
        if (c->head.chunked && code == HTTP_CHUNK_END) return true;
    }
}

static void process(struct http_conn *c)
{
    struct evbuffer *in = bufferevent_get_input(c->bev);
    c->processing = true;
    while (!c->dead && !c->closing && pending(c) < MOST_PENDING) {
        if (c->state == HEAD && (!evbuffer_get_length(in) || !take_head(c))) break;
        if (c->state == BODY && !take_body(c)) break;
        if (c->dead || c->closing || c->state != BODY) break;
        if (c->body) c->body[c->n_body] = 0;
        arm(c, 0);
        c->state = BUSY;
        c->last_write = now_s();
        c->server->n_busy++;
        c->server->handler(c, c->server->user);
        if (c->state == BUSY || c->state == STREAM) break;
    }
    c->processing = false;
    if (c->dead) destroy(c);
}

/* ---- events ---- */

static void on_read(struct bufferevent *bev, void *arg)
{
    struct http_conn *c = arg;
    if (c->state == LINGER)
        evbuffer_drain(bufferevent_get_input(bev), evbuffer_get_length(bufferevent_get_input(bev)));
    else if (c->state == HEAD || c->state == BODY)
        process(c);
}

static void on_write(struct bufferevent *bev, void *arg)
{
    struct http_conn *c = arg;
    (void)bev;
    if (c->closing) say_goodbye(c);
    else if (c->state == HEAD || c->state == BODY) process(c);
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
    struct http_conn *c = arg;
    (void)bev;
    /* the request was answered and the reply is on its way: it is written to the end */
    if ((what & BEV_EVENT_EOF) && !(what & BEV_EVENT_ERROR) && pending(c) &&
        (c->closing || c->state == HEAD)) {
        c->linger = false;
        c->closing = true;
        return;
    }
    drop(c);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct http_conn *c = arg;
    (void)fd, (void)what;
    bool begun = c->state == BODY || (c->state == HEAD && c->scanned);
    if (begun) refuse(c, 408);
    else drop(c);
}

static void on_ping(evutil_socket_t fd, short what, void *arg)
{
    struct http_server *s = arg;
    double now = now_s();
    (void)fd, (void)what;
    for (struct http_conn *c = s->conns, *next; c; c = next) {
        next = c->next;
        if (now - c->last_write < s->o.ping_s) continue;
        if (c->state == STREAM && c->sse) http_stream_write(c, ": ping\n\n", 8);
        if (c->state == BUSY && c->on_idle) c->on_idle(c);
    }
}

/* ---- the server ---- */

bool http_server_init(struct http_server *s)
{
    struct http_options *o = &s->o;
    if (o->head_s <= 0) o->head_s = 10;
    if (o->body_s <= 0) o->body_s = 20;
    if (o->idle_s <= 0) o->idle_s = 75;
    if (o->write_s <= 0) o->write_s = 30;
    if (o->ping_s <= 0) o->ping_s = 15;
    if (!o->max_body) o->max_body = 16 << 20;
    if (!o->max_bodies) o->max_bodies = 256 << 20;
    if (!o->max_conns) o->max_conns = 1024;
    if (!o->max_output) o->max_output = 4 << 20;
    struct timeval t = {1, 0};
    s->ping = event_new(s->base, -1, EV_PERSIST, on_ping, s);
    return s->ping && !event_add(s->ping, &t);
}

static void name_peer(struct http_conn *c, const struct sockaddr *peer)
{
    const void *address = NULL;
    if (peer && peer->sa_family == AF_INET)
        address = &((const struct sockaddr_in *)(const void *)peer)->sin_addr;
    if (peer && peer->sa_family == AF_INET6)
        address = &((const struct sockaddr_in6 *)(const void *)peer)->sin6_addr;
    if (!address || !inet_ntop(peer->sa_family, address, c->peer, sizeof c->peer))
        strcpy(c->peer, "unix"), c->local = true;
}

void http_accept(struct http_server *s, int fd, const struct sockaddr *peer)
{
    static const char busy[] = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n"
                               "Retry-After: 1\r\nConnection: close\r\n\r\n";
    int yes = 1;
    struct http_conn *c = s->n_conns < s->o.max_conns ? calloc(1, sizeof *c) : NULL;
    if (c) c->bev = bufferevent_socket_new(s->base, fd, BEV_OPT_CLOSE_ON_FREE);
    if (!c || !c->bev) {
        if (write(fd, busy, sizeof busy - 1) < 0) {} /* the peer may be gone: no matter */
        close(fd);
        free(c);
        s->turned_away++;
        return;
    }
    c->server = s;
    c->next = s->conns;
    if (s->conns) s->conns->prev = c;
    s->conns = c;
    s->n_conns++;
    s->accepted++;
    name_peer(c, peer);
    if (peer && peer->sa_family != AF_UNIX) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    c->timer = evtimer_new(s->base, on_timer, c);
    if (!c->timer) {
        destroy(c);
        return;
    }
    struct timeval write_time = {(time_t)s->o.write_s, 0};
    bufferevent_setcb(c->bev, on_read, on_write, on_event, c);
    bufferevent_set_timeouts(c->bev, NULL, &write_time);
    bufferevent_setwatermark(c->bev, EV_READ, 0, AHEAD);
    bufferevent_enable(c->bev, EV_READ | EV_WRITE);
    arm(c, s->o.head_s);
}

void http_server_drain(struct http_server *s, double grace_s)
{
    s->draining = true;
    s->grace_s = grace_s;
    for (struct http_conn *c = s->conns, *next; c; c = next) {
        next = c->next;
        if (c->state != HEAD || c->scanned || c->processing) continue;
        if (c->n_replies && !(grace_s > 0)) close_soon(c);
        else arm(c, grace_s > 1 ? grace_s : 1);
    }
}

void http_server_deinit(struct http_server *s)
{
    while (s->conns) drop(s->conns);
    if (s->ping) event_free(s->ping);
    s->ping = NULL;
}
