// SPDX-License-Identifier: Apache-2.0
/* Anthropic's /v1/messages, whole and streamed, and /v1/messages/count_tokens. */
#include <stdlib.h>
#include <string.h>

#include "runtime/serve/api.h"

static const char *stop_reason(const struct api_choice *x)
{
    if (x->stopped >= 0) return "stop_sequence";
    return !strcmp(api_finish(x), "stop") ? "end_turn" : "max_tokens";
}

static void json_stop(struct api_call *a, struct json *j, const struct api_choice *x)
{
    if (!x->ended) {
        json_null(j, "stop_reason");
        json_null(j, "stop_sequence");
        return;
    }
    json_string(j, "stop_reason", stop_reason(x));
    if (x->stopped >= 0) {
        const struct lm_stop_text *s = &a->p.d.stops[x->stopped];
        lm_json_text(j, "stop_sequence", s->text, s->n);
    } else
        json_null(j, "stop_sequence");
}

static void json_usage(struct api_call *a, struct json *j, uint64_t answer)
{
    json_open(j, "usage", '{');
    json_int(j, "input_tokens", a->prompts[0].n);
    json_int(j, "cache_creation_input_tokens", 0);
    json_int(j, "cache_read_input_tokens", 0); /* shared pages are not priced */
    json_int(j, "output_tokens", (int64_t)answer);
    json_close(j, '}');
}

static void json_message(struct api_call *a, struct json *j, const char *key)
{
    struct api_choice *x = &a->choices[0];
    json_open(j, key, '{');
    json_string(j, "id", a->id);
    json_string(j, "type", "message");
    json_string(j, "role", "assistant");
    json_string(j, "model", a->s->o.model_name);
    json_open(j, "content", '[');
    if (x->ended) {
        json_open(j, NULL, '{');
        json_string(j, "type", "text");
        api_json_text(j, "text", x);
        json_close(j, '}');
    }
    json_close(j, ']');
    json_stop(a, j, x);
    json_usage(a, j, x->ended ? x->work.job.n_generated : 0);
    json_close(j, '}');
}

static struct json *open_event(struct api_call *a, const char *type)
{
    struct json *j = server_json(a->s);
    json_open(j, NULL, '{');
    json_string(j, "type", type);
    return j;
}

static void begin(struct api_call *a)
{
    struct json *j = open_event(a, "message_start");
    json_message(a, j, "message");
    json_close(j, '}');
    if (!api_send(a, "message_start")) return;
    j = open_event(a, "content_block_start");
    json_int(j, "index", 0);
    json_open(j, "content_block", '{');
    json_string(j, "type", "text");
    json_string(j, "text", "");
    json_close(j, '}');
    json_close(j, '}');
    api_send(a, "content_block_start");
}

static void event(struct api_call *a, struct api_choice *x, const struct work_event *e,
                  const struct lm_logprob *top, const char *text)
{
    (void)x, (void)top;
    if (!e->n_text) return;
    struct json *j = open_event(a, "content_block_delta");
    json_int(j, "index", 0);
    json_open(j, "delta", '{');
    json_string(j, "type", "text_delta");
    lm_json_text(j, "text", text, e->n_text);
    json_close(j, '}');
    json_close(j, '}');
    api_send(a, "content_block_delta");
}

static void end(struct api_call *a)
{
    struct json *j = open_event(a, "content_block_stop");
    json_int(j, "index", 0);
    json_close(j, '}');
    if (!api_send(a, "content_block_stop")) return;
    j = open_event(a, "message_delta");
    json_open(j, "delta", '{');
    json_stop(a, j, &a->choices[0]);
    json_close(j, '}');
    json_usage(a, j, a->choices[0].work.job.n_generated);
    json_close(j, '}');
    if (!api_send(a, "message_delta")) return;
    j = open_event(a, "message_stop");
    json_close(j, '}');
    api_send(a, "message_stop");
}

static void whole(struct api_call *a) { json_message(a, server_json(a->s), NULL); }

static const struct api_kind messages = {API_MESSAGES, "msg_", "message", begin, event, NULL, end,
                                         whole,        false};

/* The conversation with `system` as its first message. False: replied. */
static bool render(struct api_call *a, char **text, size_t *n)
{
    const struct jinja_value *system = api_field(a->p.body, "system"), *m = a->p.messages;
    struct jinja_value all;
    if (!m || m->kind != JINJA_LIST || !system)
        return api_render(a, m, NULL, text, n);
    if (!jinja_list_init(a->arena, m->u.list->count + 1, &all)) {
        api_refuse(a, 503, NULL, "no memory for the conversation");
        return false;
    }
    if (!api_add_message(a, &all, "system", system)) return false;
    for (uint32_t i = 0; i < m->u.list->count; i++)
        if (!jinja_list_append(a->arena, all.u.list, m->u.list->items[i])) {
            api_refuse(a, 503, NULL, "no memory for the conversation");
            return false;
        }
    return api_render(a, &all, NULL, text, n);
}

static struct api_call *make(struct server *s, struct http_conn *c)
{
    struct api_call *a = api_begin(s, c, &messages);
    char *text;
    size_t n;
    if (!a || !render(a, &text, &n)) return NULL;
    bool ok = api_add_text(a, text, n, TOK_ENCODE_SPECIAL);
    free(text);
    if (ok) a->prompts[0].text = NULL;
    return ok ? a : NULL;
}

void api_messages(struct server *s, struct http_conn *c)
{
    struct api_call *a = make(s, c);
    if (!a) return;
    if (!a->p.max_tokens_given)
        api_refuse(a, 400, "max_tokens", "max_tokens: say how long the answer may be");
    else
        api_start(a);
}

void api_count_tokens(struct server *s, struct http_conn *c)
{
    struct api_call *a = make(s, c);
    if (!a) return;
    struct json *j = server_json(s);
    json_open(j, NULL, '{');
    json_int(j, "input_tokens", a->prompts[0].n);
    json_close(j, '}');
    api_destroy(a);
    server_reply_json(c, 200);
}
