// SPDX-License-Identifier: Apache-2.0
/*
 * A request on its way to an engine and its reply on the way back. A reply of a known length is passed on when it is complete, so
 * that an engine that dies in the middle of it can be asked again; a stream as it comes.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "compiler/serve/front.h"
#include "runtime/serve/api.h"

enum body { BODY_HEAD, BODY_LENGTH, BODY_CHUNKS, BODY_NONE };
enum { MAX_REPLY_BODY = 1 << 30 };

struct relay {
    struct front *f;
    struct front_engine *e;
    struct http_conn *c;
    struct relay *next, *prev;
    struct bufferevent *up; /* NULL: held */
    double since;
    unsigned tries;
    size_t n_extra; /* of the reply's fields, that are server.c's */
    /* the reply */
    enum body body;
    int status;
    uint64_t left;
    char type[128];
    struct http_chunks chunks;
};

/* ---- life ---- */

static void unsend(struct relay *r)
{
    if (!r->up) return;
    bufferevent_free(r->up);
    r->up = NULL;
    r->e->n_sent--, r->e->n_held++;
}

/* The client's connection is another's from now on. */
static struct http_conn *destroy(struct relay *r)
{
    struct http_conn *c = r->c;
    struct front *f = r->f;
    struct front_engine *e = r->e;
    unsend(r);
    e->n_held--;
    if (r->prev) r->prev->next = r->next;
    else e->relays = r->next;
    if (r->next) r->next->prev = r->prev;
    free(r);
    f->s.calls--;
    c->call = NULL, c->on_abort = NULL;
    e->used = serve_clock();
    if (!e->n_sent) engines_schedule_soon(f);
    return c;
}

static void on_abort(struct http_conn *c) { destroy(c->call); }

static void refuse(struct relay *r, int status, const char *why)
{
    char text[400];
    snprintf(text, sizeof text, "the engine of '%s' did not answer: %s", r->e->name, why);
    struct http_conn *c = destroy(r);
    if (status == 503) http_header(c, "Retry-After: 1");
    server_error(c, status, NULL, "%s", text);
}

void relay_refuse(struct front_engine *e, bool all, double before, const char *why)
{
    struct relay *r;
    do { /* from the beginning each time: a reply may bring other requests */
        r = e->relays;
        while (r && !(all ? r->body == BODY_HEAD : !r->up && r->since < before)) r = r->next;
        if (r) refuse(r, 503, why);
    } while (r);
}

double relay_held_since(const struct front_engine *e)
{
    double since = serve_clock();
    for (const struct relay *r = e->relays; r; r = r->next)
        if (!r->up && r->since < since) since = r->since;
    return since;
}

/* The engine is gone, or has said what is no reply. */
static void lost(struct relay *r)
{
    static const char sorry[] = "{\"error\":{\"message\":\"the engine ended in the middle of its answer\","
                                "\"type\":\"server_error\",\"param\":null,\"code\":502}}\n\n";
    if (r->body == BODY_CHUNKS) {
        bool named = !strncmp(r->c->head.path.p, "/v1/messages", 12);
        struct http_conn *c = destroy(r);
        struct http_span parts[] = {{"event: error\n", named ? 13 : 0}, {"data: ", 6}, {sorry, sizeof sorry - 1}};
        if (http_stream_writev(c, parts, 3)) http_stream_end(c);
        return;
    }
    unsend(r);
    r->c->extra[r->n_extra] = 0;
    if (++r->tries >= MAX_TRIES) {
        refuse(r, 502, "it ended while it worked on this request");
        return;
    }
    r->body = BODY_HEAD;
    engines_schedule_soon(r->f);
}

/* ---- the reply ---- */

static bool starts(struct http_span s, const char *lower)
{
    size_t n = strlen(lower);
    return s.n >= n && http_is_word((struct http_span){s.p, n}, lower);
}

/* Fields that are between the engine and us, or that server.c writes. */
static bool stays_here(struct http_span name)
{
    static const char *const names[] = {"connection", "keep-alive", "transfer-encoding", "content-length", "content-type", "date",
                                        "x-request-id", "vary", NULL};
    for (int i = 0; names[i]; i++)
        if (http_is_word(name, names[i])) return true;
    return starts(name, "access-control-");
}

static void take_field(struct relay *r, struct http_span name, struct http_span value)
{
    if (http_is_word(name, "content-type") && value.n < sizeof r->type) {
        memcpy(r->type, value.p, value.n);
        r->type[value.n] = 0;
    } else if (!stays_here(name))
        http_header(r->c, "%.*s: %.*s", (int)name.n, name.p, (int)value.n, value.p);
}

/* The head of a reply. Its bytes, 0: it is not complete, negative: there is no sense in it. */
static int take_head(struct relay *r, const char *text, size_t n)
{
    struct http_head h;
    int used = http_parse_reply(text, n, &h);
    if (used <= 0) return used;
    if (h.status < 200 || h.length > MAX_REPLY_BODY) return -1;
    r->status = h.status, r->left = h.length;
    for (size_t i = 0; i < h.n_fields; i++) take_field(r, h.fields[i].name, h.fields[i].value);
    bool none = http_is(r->c->head.method, "HEAD") || h.status == 304 || h.status == 204;
    r->body = none ? BODY_NONE : h.chunked ? BODY_CHUNKS : h.has_length ? BODY_LENGTH : BODY_NONE;
    return used;
}

static void finish(struct relay *r, const void *body, size_t n)
{
    char type[sizeof r->type];
    int status = r->status;
    memcpy(type, r->type, sizeof type);
    struct http_conn *c = r->c;
    /* the body lies in the buffer of `up`, which must live until it is copied */
    struct bufferevent *up = r->up;
    r->up = NULL;
    r->e->n_sent--, r->e->n_held++;
    destroy(r);
    http_reply(c, status, type[0] ? type : NULL, body, n);
    bufferevent_free(up);
}

/* True: there may be more in the buffer. */
static bool take_chunk(struct relay *r, struct evbuffer *in)
{
    struct http_span data = {NULL, 0};
    size_t n = evbuffer_get_length(in), used = 0;
    if (!n) return false;
    if (n > 65536) n = 65536;
    const char *p = (const char *)evbuffer_pullup(in, (ev_ssize_t)n);
    int code = http_chunks_feed(&r->chunks, p, n, UINT64_MAX, &used, &data);
    if (code < 0) {
        lost(r);
        return false;
    }
    if (data.n && !http_stream_write(r->c, data.p, data.n)) return false; /* the client is gone, and r with it */
    evbuffer_drain(in, used);
    if (code != HTTP_CHUNK_END) return true;
    http_stream_end(destroy(r));
    return false;
}

static void on_read(struct bufferevent *bev, void *arg)
{
    struct relay *r = arg;
    struct evbuffer *in = bufferevent_get_input(bev);
    if (r->body == BODY_HEAD) {
        size_t n = evbuffer_get_length(in);
        if (n > HTTP_MAX_HEAD) n = HTTP_MAX_HEAD;
        const char *text = (const char *)evbuffer_pullup(in, (ev_ssize_t)n);
        int used = text ? take_head(r, text, n) : -1;
        if (!used) return;
        if (used < 0) {
            lost(r);
            return;
        }
        evbuffer_drain(in, (size_t)used);
        if (r->body == BODY_CHUNKS) http_stream_begin(r->c, r->status, r->type);
    }
    if (r->body == BODY_NONE) finish(r, NULL, 0);
    else if (r->body == BODY_LENGTH && evbuffer_get_length(in) >= r->left)
        finish(r, r->left ? evbuffer_pullup(in, (ev_ssize_t)r->left) : NULL, (size_t)r->left);
    else if (r->body == BODY_CHUNKS)
        while (take_chunk(r, in)) {}
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
    struct relay *r = arg;
    (void)bev;
    if (what & (BEV_EVENT_EOF | BEV_EVENT_ERROR)) lost(r);
}

/* ---- the request ---- */

static bool passes(const struct front *f, struct http_span name)
{
    static const char *const ours[] = {"connection", "keep-alive", "transfer-encoding", "content-length", "expect", "te", "upgrade",
                                       "trailer", "proxy-authorization", "proxy-connection", "host", "x-request-id", "x-forwarded-for",
                                       "origin", "x-infc-account", NULL};
    for (int i = 0; ours[i]; i++)
        if (http_is_word(name, ours[i])) return false;
    /* the keys are this process's */
    return !f->s.o.key_path || (!http_is_word(name, "authorization") && !http_is_word(name, "x-api-key"));
}

static void write_request(struct relay *r)
{
    struct evbuffer *out = bufferevent_get_output(r->up);
    const struct http_head *h = &r->c->head;
    evbuffer_add_printf(out, "%.*s %.*s%s%.*s HTTP/1.1\r\nHost: engine\r\nConnection: close\r\nX-Request-Id: %s\r\nX-Forwarded-For: %s\r\n",
                        (int)h->method.n, h->method.p, (int)h->path.n, h->path.p, h->query.n ? "?" : "", (int)h->query.n, h->query.p, r->c->id,
                        r->c->peer);
    for (size_t i = 0; i < h->n_fields; i++)
        if (passes(r->f, h->fields[i].name))
            evbuffer_add_printf(out, "%.*s: %.*s\r\n", (int)h->fields[i].name.n, h->fields[i].name.p, (int)h->fields[i].value.n,
                                h->fields[i].value.p);
    if (r->c->payer.account) evbuffer_add_printf(out, "X-Infc-Account: %u\r\n", r->c->payer.account);
    if (r->c->n_body || http_is(h->method, "POST")) evbuffer_add_printf(out, "Content-Length: %zu\r\n", r->c->n_body);
    evbuffer_add(out, "\r\n", 2);
    evbuffer_add(out, r->c->body, r->c->n_body);
}

/* False: the socket's queue is full; it stays held. */
static bool send_one(struct relay *r)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    memcpy(a.sun_path, r->e->socket_path, sizeof a.sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    if (connect(fd, (struct sockaddr *)&a, sizeof a) || !(r->up = bufferevent_socket_new(r->f->s.base, fd, BEV_OPT_CLOSE_ON_FREE))) {
        close(fd);
        return false;
    }
    r->e->n_sent++, r->e->n_held--;
    r->e->n_requests++;
    r->e->used = serve_clock();
    r->body = BODY_HEAD, r->chunks = (struct http_chunks){0};
    bufferevent_setcb(r->up, on_read, NULL, on_event, r);
    write_request(r);
    bufferevent_enable(r->up, EV_READ | EV_WRITE);
    return true;
}

void relay_send_held(struct front *f, struct front_engine *e)
{
    struct relay *r = e->relays;
    (void)f;
    while (r && r->next) r = r->next;
    for (; r; r = r->prev)
        if (!r->up && !send_one(r)) return;
}

/* ---- which engine ---- */

struct front_engine *front_find(struct front *f, const char *name, size_t n)
{
    for (uint32_t i = 0; i < f->n_engines; i++)
        if (!f->engines[i].gone && strlen(f->engines[i].name) == n && !memcmp(f->engines[i].name, name, n)) return &f->engines[i];
    return NULL;
}

static int hex(char c) { return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1; }

/* %XX decoded into out[cap]; the length, SIZE_MAX: too long. */
static size_t decode(struct http_span s, char *out, size_t cap)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) {
        if (n == cap) return SIZE_MAX;
        bool coded = s.p[i] == '%' && i + 2 < s.n && hex(s.p[i + 1]) >= 0 && hex(s.p[i + 2]) >= 0;
        out[n++] = coded ? (char)(hex(s.p[i + 1]) * 16 + hex(s.p[i + 2])) : s.p[i];
        if (coded) i += 2;
    }
    return n;
}

/* model=NAME of the query, or what follows /v2/models/. Empty: neither. */
static struct http_span named_by_target(const struct http_head *h)
{
    static const char prefix[] = "/v2/models/", field[] = "model=";
    const char *p = h->query.p, *end = p + h->query.n;
    while (p < end) {
        const char *amp = memchr(p, '&', (size_t)(end - p));
        size_t n = amp ? (size_t)(amp - p) : (size_t)(end - p);
        if (n >= sizeof field - 1 && !memcmp(p, field, sizeof field - 1)) return (struct http_span){p + sizeof field - 1, n - (sizeof field - 1)};
        p += n + 1;
    }
    if (h->path.n <= sizeof prefix - 1 || memcmp(h->path.p, prefix, sizeof prefix - 1)) return (struct http_span){"", 0};
    struct http_span name = {h->path.p + sizeof prefix - 1, h->path.n - (sizeof prefix - 1)};
    const char *slash = memchr(name.p, '/', name.n);
    if (slash) name.n = (size_t)(slash - name.p);
    return name;
}

static void list_models(struct front *f, char *out, size_t cap)
{
    size_t n = 0;
    out[0] = 0;
    for (uint32_t i = 0; i < f->n_engines && n < cap; i++)
        if (!f->engines[i].gone) n += (size_t)snprintf(out + n, cap - n, "%s%s", n ? ", " : "", f->engines[i].name);
}

/* NULL: replied. */
static struct front_engine *choose(struct front *f, struct http_conn *c)
{
    char name[512], known[600];
    size_t n = decode(named_by_target(&c->head), name, sizeof name);
    if (!n && http_is(c->head.method, "POST")) {
        struct jinja_arena *arena = NULL;
        struct jinja_value body;
        if (!api_read_body(&f->s, c, &arena, &body)) return NULL;
        const struct jinja_value *v = api_field(body.u.dict, "model");
        bool fine = !v || (v->kind == JINJA_STR && v->len <= sizeof name);
        if (v) n = fine ? v->len : SIZE_MAX;
        if (v && fine) memcpy(name, v->u.s, n);
        jinja_arena_destroy(arena);
    }
    struct front_engine *e = n == SIZE_MAX ? NULL : n ? front_find(f, name, n) : f->usual;
    if (e) return e;
    list_models(f, known, sizeof known);
    if (n) server_error(c, 404, "model", "there is no such model here; there are: %s", known);
    else server_error(c, 400, "model", "the request must name its model; there are: %s", known);
    return NULL;
}

void front_relay(struct server *s, struct http_conn *c)
{
    struct front *f = (struct front *)(void *)s;
    struct front_engine *e = choose(f, c);
    if (!e) return;
    struct relay *r = e->n_held >= s->o.max_queue ? NULL : calloc(1, sizeof *r);
    if (!r) {
        http_header(c, "Retry-After: 1");
        server_error(c, 429, NULL, "too many requests wait for '%s'", e->name);
        return;
    }
    *r = (struct relay){.f = f, .e = e, .c = c, .since = serve_clock(), .n_extra = strlen(c->extra), .next = e->relays};
    if (e->relays) e->relays->prev = r;
    e->relays = r;
    e->n_held++;
    s->calls++;
    c->call = r, c->on_abort = on_abort;
    engines_schedule_soon(f);
}
