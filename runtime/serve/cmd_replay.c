// SPDX-License-Identifier: Apache-2.0
/*
 * `replay`: the request of a receipt once more, through the server's own code and a connection to itself, and
 * the hashes of the answer's tokens against those of the receipt.
 */
#define _GNU_SOURCE
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "runtime/serve/api.h"

struct replay {
    struct jinja_arena *arena, *reply_arena;
    const struct jinja_dict *receipt;
    const struct jinja_value *request;
    struct bufferevent *client;
    char *body;
    size_t n_body;
    int code;
};

static bool same(const struct jinja_value *x, const struct jinja_value *y)
{
    if (!x || !y || x->kind != y->kind) return false;
    if (x->kind == JINJA_INT) return x->u.i == y->u.i;
    return x->kind == JINJA_STR && x->len == y->len && !memcmp(x->u.s, y->u.s, x->len);
}

static const struct jinja_dict *dict(const struct jinja_value *v) { return v && v->kind == JINJA_DICT ? v->u.dict : NULL; }

static const struct jinja_list *list(const struct jinja_dict *d, const char *name)
{
    const struct jinja_value *v = d ? api_field(d, name) : NULL;
    return v && v->kind == JINJA_LIST ? v->u.list : NULL;
}

/* How many answers are not those of the receipt. */
static uint32_t differing(const struct jinja_list *was, const struct jinja_list *is)
{
    uint32_t n = was && is && was->count == is->count ? 0 : 1;
    for (uint32_t i = 0; !n && i < was->count; i++) {
        const struct jinja_dict *x = dict(&was->items[i]), *y = dict(&is->items[i]);
        n += !x || !y || !same(api_field(x, "tokens"), api_field(y, "tokens")) || !same(api_field(x, "hash"), api_field(y, "hash"));
    }
    return n;
}

/* The reply's body: prints the texts and compares. */
static int judge(struct replay *r, const char *text, size_t n)
{
    struct json_read_error e;
    struct jinja_value v;
    r->reply_arena = jinja_arena_create(64 * n + (1u << 20));
    if (!r->reply_arena || !json_read(r->reply_arena, text, n, &v, &e) || v.kind != JINJA_DICT)
        return cli_usage("no memory for the answer"), INFR_ENVIRONMENT;
    const struct jinja_dict *error = dict(api_field(v.u.dict, "error"));
    const struct jinja_value *why = error ? api_field(error, "message") : NULL;
    if (why) return cli_usage("the receipt's request: %.*s", (int)why->len, why->u.s);
    const struct jinja_list *choices = list(v.u.dict, "choices");
    for (uint32_t i = 0; choices && i < choices->count; i++) {
        const struct jinja_value *t = api_field(choices->items[i].u.dict, "text");
        if (t) fwrite(t->u.s, 1, t->len, stdout);
    }
    uint32_t bad = differing(list(r->receipt, "answers"), list(dict(api_field(v.u.dict, "receipt")), "answers"));
    fflush(stdout);
    fprintf(stderr, bad ? "\nthe answer is not that of the receipt\n" : "\nthe answer is that of the receipt\n");
    return bad ? INFR_GATE : INFR_OK;
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
    struct server *s = arg;
    struct replay *r = s->replay;
    struct evbuffer *in = bufferevent_get_input(bev);
    (void)what;
    size_t n = evbuffer_get_length(in);
    const char *text = (const char *)evbuffer_pullup(in, -1), *body = text ? memmem(text, n, "\r\n\r\n", 4) : NULL;
    r->code = body ? judge(r, body + 4, n - (size_t)(body + 4 - text)) : INFR_ENVIRONMENT;
    bufferevent_free(bev);
    event_base_loopbreak(s->base);
}

static int ask(struct server *s)
{
    struct replay *r = s->replay;
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends)) return INFR_ENVIRONMENT;
    http_accept(&s->http, ends[0], NULL);
    r->client = bufferevent_socket_new(s->base, ends[1], BEV_OPT_CLOSE_ON_FREE);
    if (!r->client) return INFR_ENVIRONMENT;
    evbuffer_add_printf(bufferevent_get_output(r->client),
                        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n", r->n_body);
    bufferevent_write(r->client, r->body, r->n_body);
    bufferevent_setcb(r->client, NULL, NULL, on_event, s);
    bufferevent_enable(r->client, EV_READ | EV_WRITE);
    return INFR_OK;
}

static int read_receipt(struct lm_cli *c, struct replay *r)
{
    struct json_read_error e;
    struct jinja_value v;
    struct json j = {0};
    char *text;
    size_t n;
    int code = lm_cli_read_text(c, &text, &n);
    if (code) return code;
    r->arena = jinja_arena_create(64 * n + (1u << 20));
    bool ok = r->arena && json_read(r->arena, text, n, &v, &e) && v.kind == JINJA_DICT;
    free(text);
    if (!ok) return cli_usage("the receipt is not a JSON object");
    const struct jinja_dict *inside = dict(api_field(v.u.dict, "receipt")); /* a whole reply */
    r->receipt = inside ? inside : v.u.dict;
    r->request = api_field(r->receipt, "request");
    if (!dict(r->request) || !list(r->receipt, "answers")) return cli_usage("there is no receipt: it has `request` and `answers`");
    j.f = open_memstream(&r->body, &r->n_body);
    if (!j.f) return INFR_ENVIRONMENT;
    api_json_value(&j, NULL, r->request);
    return fclose(j.f) ? INFR_ENVIRONMENT : INFR_OK;
}

/* The engine and what else decides. */
static int check_engine(struct server *s)
{
    const struct jinja_dict *d = ((struct replay *)s->replay)->receipt;
    const char *isa = infr_engine_isa(s->x.e);
    if (!api_is(api_field(d, "engine"), s->fingerprint))
        return cli_usage("the receipt is another engine's: this one is %s", s->fingerprint);
    if (!api_is(api_field(d, "isa"), isa)) {
        const struct jinja_value *v = api_field(d, "isa");
        return cli_usage("the answer was computed at level %.*s: give --isa", v && v->kind == JINJA_STR ? (int)v->len : 0,
                         v ? v->u.s : "");
    }
    return INFR_OK;
}

static int on_opened(struct server *s)
{
    int code = check_engine(s);
    return code ? code : ask(s);
}

int lm_cmd_replay(struct lm_cli *c)
{
    struct replay r = {.code = INFR_ENVIRONMENT};
    int code = read_receipt(c, &r);
    const struct jinja_value *ctx = code ? NULL : api_field(r.receipt, "ctx");
    if (ctx && ctx->kind == JINJA_INT && ctx->u.i > 0 && ctx->u.i <= 1 << 30 && !c->ctx_given) c->ctx = ctx->u.i, c->ctx_given = true;
    c->on_full = !code && api_is(api_field(r.receipt, "on_full"), "slide") ? LM_FULL_SLIDE : LM_FULL_STOP;
    c->receipts = c->any_model = true;
    c->positional.n = 0;
    c->replay = &r, c->replay_opened = on_opened;
    if (!code) code = lm_cmd_serve(c);
    if (!code) code = r.code;
    free(r.body);
    jinja_arena_destroy(r.arena);
    jinja_arena_destroy(r.reply_arena);
    return code;
}
