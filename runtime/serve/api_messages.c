// SPDX-License-Identifier: Apache-2.0
/* Anthropic's /v1/messages, whole and streamed, and /v1/messages/count_tokens. */
#include <stdlib.h>
#include <string.h>

#include "runtime/serve/api.h"

static const char *stop_reason(const struct api_choice *x)
{
    if (x->stopped >= 0) return "stop_sequence";
    if (api_answer_calls(x)) return "tool_use";
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

static void json_block(struct json *j, const char *key, const char *type, const char *field,
                       const struct work_bytes *text)
{
    json_open(j, key, '{');
    json_string(j, "type", type);
    lm_json_text(j, field, text && text->p ? text->p : "", text ? text->n : 0);
    if (!strcmp(type, "thinking")) json_string(j, "signature", "");
    json_close(j, '}');
}

/* c NULL: as it begins, without input */
static void json_call(struct api_call *a, struct json *j, const char *key,
                      const struct api_choice *x, uint32_t i, bool input)
{
    const struct api_answer_call *c = &x->answer.calls[i];
    char id[80];
    api_call_id(a, x, i, id, sizeof id);
    json_open(j, key, '{');
    json_string(j, "type", "tool_use");
    json_string(j, "id", id);
    lm_json_text(j, "name", c->name.p ? c->name.p : "", c->name.n);
    if (input) {
        api_json_arguments(j, "input", c);
    } else {
        json_open(j, "input", '{');
        json_close(j, '}');
    }
    json_close(j, '}');
}

static void json_message(struct api_call *a, struct json *j, const char *key)
{
    struct api_choice *x = &a->choices[0];
    const struct api_answer *w = &x->answer;
    json_open(j, key, '{');
    json_string(j, "id", a->id);
    json_string(j, "type", "message");
    json_string(j, "role", "assistant");
    json_string(j, "model", a->s->o.model_name);
    json_open(j, "content", '[');
    if (x->ended) {
        if (w->reasoning.n) json_block(j, NULL, "thinking", "thinking", &w->reasoning);
        if (w->content.n || !w->n_calls) json_block(j, NULL, "text", "text", &w->content);
        for (uint32_t i = 0; i < w->n_calls; i++) json_call(a, j, NULL, x, i, true);
    }
    json_close(j, ']');
    json_stop(a, j, x);
    json_usage(a, j, x->ended ? x->work.job.n_generated : 0);
    if (x->ended) api_json_receipt(a, j);
    json_close(j, '}');
}

/* ---- streams ---- */

static struct json *open_event(struct api_call *a, const char *type)
{
    struct json *j = server_json(a->s);
    json_open(j, NULL, '{');
    json_string(j, "type", type);
    return j;
}

static struct json *open_delta(struct api_call *a, const struct api_choice *x, const char *type)
{
    struct json *j = open_event(a, "content_block_delta");
    json_int(j, "index", x->parts - 1);
    json_open(j, "delta", '{');
    json_string(j, "type", type);
    return j;
}

static void close_delta(struct api_call *a, struct json *j)
{
    json_close(j, '}');
    json_close(j, '}');
    api_send(a, "content_block_delta");
}

static void begin(struct api_call *a)
{
    struct json *j = open_event(a, "message_start");
    json_message(a, j, "message");
    json_close(j, '}');
    api_send(a, "message_start");
}

static void end_block(struct api_call *a, struct api_choice *x)
{
    if (x->part == API_NO_PART || !a->c) return;
    if (x->part == API_REASONING) {
        struct json *j = open_delta(a, x, "signature_delta");
        json_string(j, "signature", "");
        close_delta(a, j);
    }
    x->part = API_NO_PART;
    if (!a->c) return;
    struct json *j = open_event(a, "content_block_stop");
    json_int(j, "index", x->parts - 1);
    json_close(j, '}');
    api_send(a, "content_block_stop");
}

static void be_in(struct api_call *a, struct api_choice *x, int32_t part)
{
    end_block(a, x);
    if (!a->c) return;
    x->part = part;
    struct json *j = open_event(a, "content_block_start");
    json_int(j, "index", x->parts++);
    if (part == API_REASONING) json_block(j, "content_block", "thinking", "thinking", NULL);
    else if (part == API_CONTENT) json_block(j, "content_block", "text", "text", NULL);
    else json_call(a, j, "content_block", x, (uint32_t)(part - API_CALL), false);
    json_close(j, '}');
    api_send(a, "content_block_start");
}

static void delta(struct api_call *a, struct api_choice *x, const char *text, size_t n)
{
    int32_t part = x->part;
    const char *type = part == API_REASONING ? "thinking_delta" : part == API_CONTENT ? "text_delta" : "input_json_delta";
    struct json *j = open_delta(a, x, type);
    lm_json_text(j, part == API_REASONING ? "thinking" : part == API_CONTENT ? "text" : "partial_json", text, n);
    close_delta(a, j);
}

static void end(struct api_call *a)
{
    struct api_choice *x = &a->choices[0];
    api_answer_end(a, x);
    end_block(a, x);
    if (!a->c) return;
    struct json *j = open_event(a, "message_delta");
    json_open(j, "delta", '{');
    json_stop(a, j, x);
    json_close(j, '}');
    json_usage(a, j, x->work.job.n_generated);
    api_json_receipt(a, j);
    json_close(j, '}');
    if (!api_send(a, "message_delta")) return;
    j = open_event(a, "message_stop");
    json_close(j, '}');
    api_send(a, "message_stop");
}

static void whole(struct api_call *a)
{
    api_answer_whole(a, &a->choices[0]);
    json_message(a, server_json(a->s), NULL);
}

static const struct api_kind messages = {.endpoint = API_MESSAGES,
                                         .id_prefix = "msg_",
                                         .object = "message",
                                         .begin = begin,
                                         .event = api_answer_event,
                                         .be_in = be_in,
                                         .delta = delta,
                                         .end = end,
                                         .whole = whole};

static struct api_call *make(struct server *s, struct http_conn *c)
{
    struct api_call *a = api_begin(s, c, &messages);
    struct jinja_value all;
    return a && api_from_anthropic(a, &all) && api_add_conversation(a, &all) ? a : NULL;
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
    if (a) api_reply_tokens(a, NULL);
}
