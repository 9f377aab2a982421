// SPDX-License-Identifier: Apache-2.0
/* How the server is: for every engine. */
#include "runtime/serve/server.h"

static void say(struct server *s, struct http_conn *c, int status, const char *text)
{
    struct json *j = server_json(s);
    json_open(j, NULL, '{');
    json_string(j, "status", text);
    json_close(j, '}');
    server_reply_json(c, status);
}

void api_health(struct server *s, struct http_conn *c) { say(s, c, 200, "ok"); }
void api_live(struct server *s, struct http_conn *c) { say(s, c, 200, "ok"); }

void api_ready(struct server *s, struct http_conn *c)
{
    bool ok = !s->draining || s->replaced; /* then the next one asked is ready */
    say(s, c, ok ? 200 : 503, ok ? "ok" : "draining");
}

void api_version(struct server *s, struct http_conn *c)
{
    struct json *j = server_json(s);
    json_open(j, NULL, '{');
    json_string(j, "version", rt_text(s->x.e, s->x.e->h.compiler_version));
    json_string(j, "isa", infr_engine_isa(s->x.e));
    json_int(j, "threads", infr_engine_threads(s->x.e));
    json_close(j, '}');
    server_reply_json(c, 200);
}
