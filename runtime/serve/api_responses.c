// SPDX-License-Identifier: Apache-2.0
/* OpenAI's /v1/responses, without state: a request brings its whole conversation. */
#include <stdlib.h>
#include <string.h>

#include "runtime/serve/api.h"

static bool complete(const struct api_choice *x)
{
    return x->ended && !strcmp(api_finish(x), "stop");
}

/* Items of the output are the answer's parts: reasoning, the message, calls. */

static void item_id(const struct api_call *a, int32_t item, char *out, size_t n)
{
    const char *kind = item == API_REASONING ? "rs" : item == API_CONTENT ? "msg" : "fc";
    if (item < API_CALL) snprintf(out, n, "%s_%s", kind, a->id + 5);
    else snprintf(out, n, "%s_%s_%d", kind, a->id + 5, item - API_CALL);
}

static void json_bytes(struct json *j, const char *key, const struct work_bytes *b, bool whole)
{
    lm_json_text(j, key, whole && b->p ? b->p : "", whole ? b->n : 0);
}

static void json_empty(struct json *j, const char *key)
{
    json_open(j, key, '[');
    json_close(j, ']');
}

static void json_part(struct json *j, const char *key, const struct api_choice *x, int32_t item,
                      bool whole)
{
    json_open(j, key, '{');
    json_string(j, "type", item == API_REASONING ? "reasoning_text" : "output_text");
    json_bytes(j, "text", item == API_REASONING ? &x->answer.reasoning : &x->answer.content, whole);
    if (item == API_CONTENT) json_empty(j, "annotations");
    if (item == API_CONTENT) json_empty(j, "logprobs");
    json_close(j, '}');
}

/* whole: with all it has; else empty, as a stream begins. */
static void json_item(struct api_call *a, struct json *j, const char *key, int32_t item, bool whole)
{
    struct api_choice *x = &a->choices[0];
    char id[80], call[80];
    item_id(a, item, id, sizeof id);
    json_open(j, key, '{');
    json_string(j, "id", id);
    json_string(j, "type", item == API_REASONING ? "reasoning" : item == API_CONTENT ? "message" : "function_call");
    json_string(j, "status", !whole ? "in_progress" : !x->ended || complete(x) ? "completed" : "incomplete");
    if (item >= API_CALL) {
        const struct api_answer_call *c = &x->answer.calls[item - API_CALL];
        api_call_id(a, x, (uint32_t)(item - API_CALL), call, sizeof call);
        json_string(j, "call_id", call);
        json_bytes(j, "name", &c->name, true);
        json_bytes(j, "arguments", &c->arguments, whole);
    } else {
        if (item == API_CONTENT) json_string(j, "role", "assistant");
        else json_empty(j, "summary");
        json_open(j, "content", '[');
        if (whole) json_part(j, NULL, x, item, true);
        json_close(j, ']');
    }
    json_close(j, '}');
}

static void json_output(struct api_call *a, struct json *j)
{
    const struct api_choice *x = &a->choices[0];
    const struct api_answer *w = &x->answer;
    json_open(j, "output", '[');
    if (x->ended) {
        if (w->reasoning.n) json_item(a, j, NULL, API_REASONING, true);
        if (w->content.n || !w->n_calls) json_item(a, j, NULL, API_CONTENT, true);
        for (uint32_t i = 0; i < w->n_calls; i++) json_item(a, j, NULL, API_CALL + (int32_t)i, true);
    }
    json_close(j, ']');
}

static void json_usage(struct api_call *a, struct json *j)
{
    uint64_t prompt, cached, answer;
    api_usage(a, &prompt, &cached, &answer);
    json_open(j, "usage", '{');
    json_int(j, "input_tokens", (int64_t)prompt);
    json_open(j, "input_tokens_details", '{');
    json_int(j, "cached_tokens", (int64_t)cached);
    json_close(j, '}');
    json_int(j, "output_tokens", (int64_t)answer);
    json_open(j, "output_tokens_details", '{');
    json_int(j, "reasoning_tokens", (int64_t)api_reasoning_tokens(a));
    json_close(j, '}');
    json_int(j, "total_tokens", (int64_t)(prompt + answer));
    json_close(j, '}');
}

static void json_settings(struct api_call *a, struct json *j)
{
    const struct jinja_value *instructions = api_field(a->p.body, "instructions");
    if (instructions && instructions->kind == JINJA_STR)
        lm_json_text(j, "instructions", instructions->u.s, instructions->len);
    else json_null(j, "instructions");
    if (a->p.max_tokens_given) json_int(j, "max_output_tokens", a->p.max_tokens);
    else json_null(j, "max_output_tokens");
    json_number(j, "temperature", a->p.d.sampling.temp);
    json_number(j, "top_p", a->p.d.sampling.top_p);
    json_bool(j, "parallel_tool_calls", a->p.parallel_calls);
    json_bool(j, "store", false);
    const struct jinja_value *choice = api_field(a->p.body, "tool_choice");
    if (choice) api_json_value(j, "tool_choice", choice);
    else json_string(j, "tool_choice", "auto");
    const struct jinja_value *tools = api_field(a->p.body, "tools");
    if (tools) api_json_value(j, "tools", tools);
    else json_empty(j, "tools");
    json_string(j, "truncation", "disabled");
    json_null(j, "previous_response_id");
    json_open(j, "text", '{');
    const struct jinja_value *text = api_field(a->p.body, "text");
    const struct jinja_value *format = text ? api_field(text->u.dict, "format") : NULL;
    static const char plain[] = "{\"type\":\"text\"}";
    if (format) api_json_value(j, "format", format);
    else api_json_raw(j, "format", plain, sizeof plain - 1);
    json_close(j, '}');
}

static void json_response(struct api_call *a, struct json *j, const char *key)
{
    struct api_choice *x = &a->choices[0];
    json_open(j, key, '{');
    json_string(j, "id", a->id);
    json_string(j, "object", "response");
    json_int(j, "created_at", a->created);
    json_string(j, "model", a->s->o.model_name);
    json_string(j, "status", !x->ended ? "in_progress" : complete(x) ? "completed" : "incomplete");
    json_null(j, "error");
    if (x->ended && !complete(x)) {
        json_open(j, "incomplete_details", '{');
        json_string(j, "reason", "max_output_tokens");
        json_close(j, '}');
    } else
        json_null(j, "incomplete_details");
    json_output(a, j);
    if (x->ended) json_usage(a, j);
    else json_null(j, "usage");
    json_settings(a, j);
    if (x->ended) api_json_receipt(a, j);
    json_close(j, '}');
}

/* ---- streams ---- */

static struct json *open_event(struct api_call *a, const char *type)
{
    struct json *j = server_json(a->s);
    json_open(j, NULL, '{');
    json_string(j, "type", type);
    json_int(j, "sequence_number", a->sequence++);
    return j;
}

static bool send_response(struct api_call *a, const char *type)
{
    struct json *j = open_event(a, type);
    json_response(a, j, "response");
    if (a->choices[0].ended && a->p.timings_per_token) api_json_timings(j, &a->choices[0].work.job);
    json_close(j, '}');
    return api_send(a, type);
}

/* An event about the item that the stream is in. */
static struct json *open_item_event(struct api_call *a, const char *type)
{
    const struct api_choice *x = &a->choices[0];
    struct json *j = open_event(a, type);
    char id[80];
    item_id(a, x->part, id, sizeof id);
    json_string(j, "item_id", id);
    json_int(j, "output_index", x->parts - 1);
    if (x->part < API_CALL) json_int(j, "content_index", 0);
    return j;
}

static bool send_item(struct api_call *a, const char *type, bool whole)
{
    struct json *j = open_event(a, type);
    json_int(j, "output_index", a->choices[0].parts - 1);
    json_item(a, j, "item", a->choices[0].part, whole);
    json_close(j, '}');
    return api_send(a, type);
}

static bool send_part(struct api_call *a, const char *type, bool whole)
{
    struct json *j = open_item_event(a, type);
    json_part(j, "part", &a->choices[0], a->choices[0].part, whole);
    json_close(j, '}');
    return api_send(a, type);
}

static void begin(struct api_call *a)
{
    if (send_response(a, "response.created")) send_response(a, "response.in_progress");
}

static void end_item(struct api_call *a, struct api_choice *x)
{
    static const char *const done[] = {"", "response.reasoning_text.done", "response.output_text.done",
                                       "response.function_call_arguments.done"};
    int32_t item = x->part;
    if (item == API_NO_PART || !a->c) return;
    const char *type = done[item < API_CALL ? item : API_CALL];
    struct json *j = open_item_event(a, type);
    if (item >= API_CALL) {
        json_bytes(j, "name", &x->answer.calls[item - API_CALL].name, true);
        json_bytes(j, "arguments", &x->answer.calls[item - API_CALL].arguments, true);
    } else {
        json_bytes(j, "text", item == API_REASONING ? &x->answer.reasoning : &x->answer.content, true);
        if (item == API_CONTENT) json_empty(j, "logprobs");
    }
    json_close(j, '}');
    if (!api_send(a, type)) return;
    if (item < API_CALL && !send_part(a, "response.content_part.done", true)) return;
    send_item(a, "response.output_item.done", true);
    x->part = API_NO_PART;
}

static void be_in(struct api_call *a, struct api_choice *x, int32_t item)
{
    end_item(a, x);
    if (!a->c) return;
    x->part = item, x->parts++;
    if (send_item(a, "response.output_item.added", false) && item < API_CALL)
        send_part(a, "response.content_part.added", false);
}

static void delta(struct api_call *a, struct api_choice *x, const char *text, size_t n)
{
    static const char *const types[] = {"", "response.reasoning_text.delta",
                                        "response.output_text.delta",
                                        "response.function_call_arguments.delta"};
    const char *type = types[x->part < API_CALL ? x->part : API_CALL];
    struct json *j = open_item_event(a, type);
    lm_json_text(j, "delta", text, n);
    if (x->part == API_CONTENT) json_empty(j, "logprobs");
    api_json_seen(a, j, x);
    json_close(j, '}');
    api_send(a, type);
}

static void end(struct api_call *a)
{
    struct api_choice *x = &a->choices[0];
    api_answer_end(a, x);
    end_item(a, x);
    if (a->c) send_response(a, complete(x) ? "response.completed" : "response.incomplete");
}

static void whole(struct api_call *a)
{
    api_answer_whole(a, &a->choices[0]);
    json_response(a, server_json(a->s), NULL);
}

static void progress(struct api_call *a, struct api_choice *x, const struct work_event *e)
{
    struct json *j = open_event(a, "response.in_progress");
    json_response(a, j, "response");
    api_json_progress(a, j, x, e);
    json_close(j, '}');
    api_send(a, "response.in_progress");
}

static const struct api_kind responses = {.endpoint = API_RESPONSES,
                                          .id_prefix = "resp_",
                                          .object = "response",
                                          .begin = begin,
                                          .event = api_answer_event,
                                          .be_in = be_in,
                                          .delta = delta,
                                          .progress = progress,
                                          .end = end,
                                          .whole = whole};

void api_responses_tokens(struct server *s, struct http_conn *c)
{
    struct api_call *a = api_begin(s, c, &responses);
    struct jinja_value all;
    if (a && api_from_responses(a, &all) && api_add_conversation(a, &all))
        api_reply_tokens(a, "response.input_tokens");
}

void api_responses(struct server *s, struct http_conn *c)
{
    struct api_call *a = api_begin(s, c, &responses);
    struct jinja_value all;
    if (a && api_from_responses(a, &all) && api_add_conversation(a, &all)) api_start(a);
}
