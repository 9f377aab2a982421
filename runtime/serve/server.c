// SPDX-License-Identifier: Apache-2.0
/* The event loop: signals, routes, the way from the worker back to calls. */
#define _GNU_SOURCE
#include "runtime/serve/server.h"

#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/serve/api.h"
#include "runtime/xxh64.h"

/* ---- JSON ---- */

struct json *server_json(struct server *s)
{
    rewind(s->json.f);
    s->json.comma = false;
    return &s->json;
}

const char *server_json_end(struct server *s, size_t *n)
{
    /* the size that the stream reports is that of the longest text so far: ours ends here */
    off_t end = ftello(s->json.f);
    fflush(s->json.f);
    *n = end > 0 ? (size_t)end : 0;
    return s->json_text;
}

void server_reply_json(struct http_conn *c, int status)
{
    struct server *s = c->server->user;
    size_t n;
    const char *text = server_json_end(s, &n);
    http_reply(c, status, "application/json; charset=utf-8", text, n);
}

const char *server_error_type(int status)
{
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    case 501: return "not_supported_error";
    case 504: return "timeout_error";
    default: return status < 500 ? "invalid_request_error" : "server_error";
    }
}

void server_error(struct http_conn *c, int status, const char *param, const char *format, ...)
{
    struct server *s = c->server->user;
    char message[1024];
    va_list ap;
    va_start(ap, format);
    vsnprintf(message, sizeof message, format, ap);
    va_end(ap);
    size_t n = strlen(message); /* a cut may go through a character */
    while (n && n == sizeof message - 1 && ((unsigned char)message[n - 1] & 0x80)) message[--n] = 0;
    struct json *j = server_json(s);
    bool anthropic = c->head_text && !strncmp(c->head.path.p, "/v1/messages", 12);
    json_open(j, NULL, '{');
    if (anthropic) json_string(j, "type", "error");
    json_open(j, "error", '{');
    json_string(j, "message", message);
    bool too_long = status == 400 && c->n_prompt_tokens; /* llama-server's word, and the numbers */
    bool spent = c->quota_spent && !anthropic; /* OpenAI's word for what waiting does not end, and its code too */
    json_string(j, "type", too_long && !anthropic ? "exceed_context_size_error" : spent ? "insufficient_quota" : server_error_type(status));
    if (param) json_string(j, "param", param);
    else json_null(j, "param");
    if (spent) json_string(j, "code", "insufficient_quota");
    else json_int(j, "code", status);
    if (too_long) {
        json_int(j, "n_prompt_tokens", c->n_prompt_tokens);
        json_int(j, "n_ctx", s->x.n_ctx);
    }
    json_close(j, '}');
    if (anthropic) json_string(j, "request_id", c->id);
    json_close(j, '}');
    server_reply_json(c, status);
}

/* ---- routes ---- */

/* "*" at the end of a route's path stands for anything. */
static bool path_is(struct http_span path, const char *route)
{
    size_t n = strlen(route);
    if (route[n - 1] == '*') return path.n >= n && !memcmp(path.p, route, n - 1);
    return http_is(path, route);
}

/* May pages of this origin read replies? "localhost" is any port of this machine. */
static bool allows(const char *allowed, struct http_span origin)
{
    static const char *const here[] = {"http://localhost", "http://127.0.0.1", "http://[::1]",
                                       "https://localhost"};
    if (!strcmp(allowed, "*") || http_is(origin, allowed)) return true;
    for (size_t i = 0; !strcmp(allowed, "localhost") && i < sizeof here / sizeof *here; i++) {
        size_t n = strlen(here[i]), k = n + 1;
        if (origin.n < n || memcmp(origin.p, here[i], n)) continue;
        if (origin.n == n) return true;
        while (k < origin.n && origin.p[k] >= '0' && origin.p[k] <= '9') k++;
        if (origin.p[n] == ':' && k == origin.n && k > n + 1) return true;
    }
    return false;
}

/* Headers for pages of other origins. True: the request was a question about that, and is answered. */
static bool cross_origin(struct server *s, struct http_conn *c)
{
    const struct http_span *origin = http_find(&c->head, "origin");
    bool asks = http_is(c->head.method, "OPTIONS"), ok = false;
    if (!s->o.n_origins || !origin || origin->n > 300) return false;
    for (size_t i = 0; i < s->o.n_origins; i++) ok = ok || allows(s->o.origins[i], *origin);
    http_header(c, "Vary: Origin");
    if (ok) {
        http_header(c, "Access-Control-Allow-Origin: %.*s", (int)origin->n, origin->p);
        http_header(c, "Access-Control-Allow-Credentials: true");
    }
    if (!asks) return false;
    if (ok) {
        http_header(c, "Access-Control-Allow-Methods: GET, POST, DELETE, OPTIONS");
        http_header(c, "Access-Control-Allow-Headers: *");
    }
    http_reply(c, 200, "text/plain", "", 0);
    return true;
}

static bool is_disabled(const struct server *s, const struct http_conn *c)
{
    for (size_t i = 0; i < s->o.n_disabled; i++)
        if (http_is(c->head.path, s->o.disabled[i])) return true;
    return false;
}

static bool known_method(struct http_span m)
{
    static const char *const known[] = {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (http_is(m, known[i])) return true;
    return false;
}

static void handle(struct http_conn *c, void *user)
{
    struct server *s = user;
    const struct api_route *other = NULL;
    if (!known_method(c->head.method)) {
        c->head.keep_alive = false; /* who speaks another protocol has said enough */
        server_error(c, 501, NULL, "this server does not know the method %.*s",
                     c->head.method.n < 40 ? (int)c->head.method.n : 40, c->head.method.p);
        return;
    }
    if (cross_origin(s, c)) return;
    for (size_t i = 0; i < s->n_routes; i++) {
        const struct api_route *r = &s->routes[i];
        if (!path_is(c->head.path, r->path)) continue;
        bool head = http_is(c->head.method, "HEAD") && !strcmp(r->method, "GET");
        if (!head && !http_is(c->head.method, r->method)) {
            other = r;
            continue;
        }
        if (!r->open && !keys_authorize(s, c)) return;
        if (is_disabled(s, c))
            server_error(c, r->path[1] ? 501 : 404, NULL, "%s is disabled on this server", r->path);
        else if (strcmp(r->method, "POST") || keys_admit(s, c))
            r->handler(s, c);
        return;
    }
    if (!other && !keys_authorize(s, c)) return; /* which routes there are is nobody's business either */
    if (other) {
        http_header(c, "Allow: %s", other->method);
        server_error(c, 405, NULL, "%s: use %s", other->path, other->method);
    } else
        server_error(c, 404, NULL, "there is nothing at %.*s",
                     c->head.path.n < 200 ? (int)c->head.path.n : 200, c->head.path.p);
}

/* ---- events ---- */

static void on_wake(evutil_socket_t fd, short what, void *arg)
{
    struct server *s = arg;
    (void)fd, (void)what;
    s->on_wake(s);
}

void server_check_drained(struct server *s)
{
    if (s->draining && !s->calls && !s->http.n_busy && !s->http.n_conns)
        event_base_loopexit(s->base, NULL);
}

void server_drain(struct server *s, double grace_s)
{
    struct timeval soon = {0, 20000};
    s->draining = true;
    s->drain_began = serve_clock();
    fprintf(stderr, "shutting down: %llu requests to finish\n", (unsigned long long)s->calls);
    server_close_listeners(s);
    http_server_drain(&s->http, grace_s);
    event_del(s->tick);
    event_add(s->tick, &soon);
    server_check_drained(s);
}

/* The first one lets requests of connections that are there come to their end, a second one stops at
 * once. */
static void on_stop(evutil_socket_t fd, short what, void *arg)
{
    struct server *s = arg;
    (void)fd, (void)what;
    server_stop_swap(s);
    if (s->told_to_stop) event_base_loopbreak(s->base);
    else if (!s->draining) server_drain(s, 0);
    s->told_to_stop = true;
}

static void on_reload(evutil_socket_t fd, short what, void *arg)
{
    struct server *s = arg;
    (void)fd, (void)what;
    keys_load(s);
    if (s->reload && !s->draining) s->reload(s);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    struct server *s = arg;
    (void)fd, (void)what;
    if (!s->draining) return;
    if (s->o.drain_s > 0 && serve_clock() - s->drain_began > s->o.drain_s)
        event_base_loopbreak(s->base);
    server_check_drained(s);
}

/* ---- life ---- */

static bool watch_signals(struct server *s)
{
    s->sigterm = evsignal_new(s->base, SIGTERM, on_stop, s);
    s->sigint = evsignal_new(s->base, SIGINT, on_stop, s);
    s->sighup = evsignal_new(s->base, SIGHUP, on_reload, s);
    s->sigusr2 = evsignal_new(s->base, SIGUSR2, server_on_swap, s);
    signal(SIGPIPE, SIG_IGN);
    return s->sigterm && s->sigint && s->sighup && s->sigusr2 && !event_add(s->sigterm, NULL) &&
           !event_add(s->sigint, NULL) && !event_add(s->sighup, NULL) &&
           !event_add(s->sigusr2, NULL);
}

static int open_log(struct server *s)
{
    if (!s->o.log_path) return INFR_OK;
    if (!strcmp(s->o.log_path, "-")) s->log = stderr;
    else s->log = fopen(s->o.log_path, "ae");
    if (s->log) return INFR_OK;
    cli_usage("--log: cannot write '%s': %s", s->o.log_path, strerror(errno));
    return INFR_ENVIRONMENT;
}

static int begin(struct server *s)
{
    struct timeval second = {1, 0};
    s->started = time(NULL);
    s->key_salt = lm_entropy();
    if (s->x.e)
        snprintf(s->fingerprint, sizeof s->fingerprint, "b%016llx",
                 (unsigned long long)rt_xxh64(s->x.e->blob, s->x.e->blob_bytes));
    metrics_init(&s->metrics);
    s->json.f = open_memstream(&s->json_text, &s->json_n);
    s->base = event_base_new();
    if (!s->json.f || !s->base) return cli_usage("no memory for the server"), INFR_ENVIRONMENT;
    s->http.base = s->base, s->http.o = s->o.http;
    s->http.handler = handle, s->http.on_done = metrics_on_done, s->http.user = s;
    s->http.id_seed = lm_entropy();
    s->wake = event_new(s->base, s->wake_fd, EV_READ | EV_PERSIST, on_wake, s);
    s->tick = event_new(s->base, -1, EV_PERSIST, on_tick, s);
    if (!s->wake || !s->tick || event_add(s->wake, NULL) || event_add(s->tick, &second) ||
        !http_server_init(&s->http) || !watch_signals(s))
        return cli_usage("no memory for the server"), INFR_ENVIRONMENT;
    int code = keys_inherit(s);
    if (!code) code = keys_load(s);
    if (!code) code = open_log(s);
    if (!code && s->opened) return s->opened(s);
    if (!code) code = server_listen(s);
    if (!code) server_say_ready(s);
    return code;
}

/* Calls whose peers are gone are there still: the worker ends them. */
static void finish(struct server *s)
{
    struct event *const events[] = {s->wake, s->tick, s->sigterm, s->sigint, s->sighup,
                                   s->sigusr2};
    if (s->base) http_server_deinit(&s->http);
    s->drain(s);
    for (double until = serve_clock() + 30; s->calls && serve_clock() < until;) {
        struct timespec pause = {0, 1000000};
        s->on_wake(s);
        if (s->calls) nanosleep(&pause, NULL);
    }
    server_close_listeners(s);
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        if (events[i]) event_free(events[i]);
    if (s->base) event_base_free(s->base);
    if (s->json.f) fclose(s->json.f);
    free(s->json_text);
    free(s->keys);
    keys_unmap(s);
    if (s->log && s->log != stderr) fclose(s->log);
}

int server_run(struct server *s)
{
    int code = begin(s);
    if (!code && event_base_dispatch(s->base) < 0)
        code = cli_usage("the event loop failed"), code = INFR_ENVIRONMENT;
    finish(s);
    return code;
}
