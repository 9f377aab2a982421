// SPDX-License-Identifier: Apache-2.0
/*
 * A server in the process of a fuzz target: bytes of a client in, all that it replies out. What is made of a reply is checked: every head
 * parses, bodies have the length or the chunks that it says, JSON and events of JSON parse, and no status says that the server failed.
 */
#ifndef INFC_TESTS_FUZZ_SERVER_H
#define INFC_TESTS_FUZZ_SERVER_H

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "runtime/serve/api.h"
#include "tests/fuzz/chunks.h"

struct client {
    const char *in;
    size_t n;
    bool hangs_up; /* when all is sent: else the request asks for the end of the connection */
    struct evbuffer *replies;
};

static inline void client_on_event(struct bufferevent *bev, short what, void *arg)
{
    struct server *s = arg;
    struct client *c = s->replay;
    (void)what;
    evbuffer_add_buffer(c->replies, bufferevent_get_input(bev));
    bufferevent_free(bev);
    event_base_loopbreak(s->base);
}

static inline void client_on_sent(struct bufferevent *bev, void *arg)
{
    struct server *s = arg;
    struct client *c = s->replay;
    if (c->hangs_up) shutdown(bufferevent_getfd(bev), SHUT_WR);
}

static inline int client_connect(struct server *s)
{
    struct client *c = s->replay;
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends)) exit(3);
    http_accept(&s->http, ends[0], NULL);
    struct bufferevent *bev = bufferevent_socket_new(s->base, ends[1], BEV_OPT_CLOSE_ON_FREE);
    if (!bev) exit(3);
    bufferevent_setcb(bev, NULL, client_on_sent, client_on_event, s);
    bufferevent_enable(bev, EV_READ | EV_WRITE);
    bufferevent_write(bev, c->in, c->n);
    return INFR_OK;
}

/* ---- replies ---- */

static inline void check_value(const char *text, size_t n)
{
    struct jinja_arena *a = jinja_arena_create((size_t)64 << 20);
    struct jinja_value v;
    struct json_read_error e;
    if (!a) exit(3);
    check(json_read(a, text, n, &v, &e));
    jinja_arena_destroy(a);
}

/* data: JSON, or [DONE]; comments and names of events in between */
static inline void check_events(const char *text, size_t n)
{
    for (const char *at = text, *end = text + n; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        check(stop != NULL);
        size_t len = (size_t)(stop - at);
        if (len > 6 && !memcmp(at, "data: ", 6) && (len != 12 || memcmp(at + 6, "[DONE]", 6))) check_value(at + 6, len - 6);
        else check(!len || len == 12 || at[0] == ':' || !strncmp(at, "event: ", 7) || !strncmp(at, "id: ", 4));
        at = stop + 1;
    }
}

static inline bool type_is(const struct http_head *h, const char *type)
{
    const struct http_span *v = http_find(h, "content-type");
    return v && v->n >= strlen(type) && !memcmp(v->p, type, strlen(type));
}

/* One reply; how many bytes it has. */
static inline size_t check_reply(const char *text, size_t n)
{
    struct http_head h;
    int head = http_parse_reply(text, n, &h), code = HTTP_CHUNK_END;
    check(head > 0 && h.status != 500);
    const char *at = text + head;
    size_t left = n - (size_t)head, used = h.has_length ? h.length : left, n_body = used;
    char *body = malloc(left + 1);
    if (!body) exit(3);
    check(used <= left);
    memcpy(body, at, used);
    if (h.chunked) {
        n_body = read_chunks(at, left, left + 1, UINT64_MAX, body, &code);
        check(code == HTTP_CHUNK_END); /* a client that stays gets all of it */
        used = left;
    }
    if (type_is(&h, "application/json") && n_body) check_value(body, n_body);
    if (type_is(&h, "text/event-stream")) check_events(body, n_body);
    free(body);
    return (size_t)head + used;
}

/* ---- the whole ---- */

/* Runs the server, which has its routes and its worker, for one client. Whole: a reply to one request is checked. */
static inline void serve_client(struct server *s, struct client *c, bool whole)
{
    c->replies = evbuffer_new();
    if (!c->replies) exit(3);
    s->opened = client_connect, s->replay = c;
    check(server_run(s) == INFR_OK);
    size_t n = evbuffer_get_length(c->replies);
    const char *text = (const char *)evbuffer_pullup(c->replies, -1);
    if (whole) check(n > 0 && check_reply(text, n) == n);
    evbuffer_free(c->replies);
}

/* A client's request to a path as a text for free(). */
static inline char *request_of(const char *path, const char *headers, const void *body, size_t n_body, size_t *n)
{
    char head[1024];
    int k = snprintf(head, sizeof head, "POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%sContent-Length: %zu\r\n\r\n", path, headers, n_body);
    char *text = malloc((size_t)k + n_body + 1);
    if (!text) exit(3);
    memcpy(text, head, (size_t)k);
    memcpy(text + k, body, n_body);
    *n = (size_t)k + n_body;
    return text;
}

#endif
