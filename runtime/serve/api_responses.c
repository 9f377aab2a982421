// SPDX-License-Identifier: Apache-2.0
/* OpenAI's /v1/responses, without state: a request brings its whole conversation. */
#include <stdlib.h>
#include <string.h>

#include "runtime/serve/api.h"

static bool complete(const struct api_choice *x)
{
    return x->ended && !strcmp(api_finish(x), "stop");
}

static void json_part(struct json *j, const char *key, const struct api_choice *x)
{
    json_open(j, key, '{');
    json_string(j, "type", "output_text");
    if (x->ended) api_json_text(j, "text", x);
    else json_string(j, "text", "");
    json_open(j, "annotations", '[');
    json_close(j, ']');
    json_open(j, "logprobs", '[');
    json_close(j, ']');
    json_close(j, '}');
}

/* part: with its text, else empty as a stream begins. */
static void json_item(struct api_call *a, struct json *j, const char *key, bool part)
{
    struct api_choice *x = &a->choices[0];
    char id[64];
    snprintf(id, sizeof id, "msg_%s", a->id + 5);
    json_open(j, key, '{');
    json_string(j, "id", id);
    json_string(j, "type", "message");
    json_string(j, "status", !x->ended ? "in_progress" : complete(x) ? "completed" : "incomplete");
    json_string(j, "role", "assistant");
    json_open(j, "content", '[');
    if (part) json_part(j, NULL, x);
    json_close(j, ']');
    json_close(j, '}');
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
    json_int(j, "reasoning_tokens", 0);
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
    json_bool(j, "parallel_tool_calls", true);
    json_bool(j, "store", false);
    json_string(j, "tool_choice", "none");
    json_open(j, "tools", '[');
    json_close(j, ']');
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
    json_open(j, "output", '[');
    if (x->ended) json_item(a, j, NULL, true);
    json_close(j, ']');
    if (x->ended) json_usage(a, j);
    else json_null(j, "usage");
    json_settings(a, j);
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
    json_close(j, '}');
    return api_send(a, type);
}

/* Where in the output an event belongs. */
static void json_place(struct api_call *a, struct json *j)
{
    char id[64];
    snprintf(id, sizeof id, "msg_%s", a->id + 5);
    json_string(j, "item_id", id);
    json_int(j, "output_index", 0);
    json_int(j, "content_index", 0);
}

static bool send_item(struct api_call *a, const char *type, bool part)
{
    struct json *j = open_event(a, type);
    json_int(j, "output_index", 0);
    json_item(a, j, "item", part);
    json_close(j, '}');
    return api_send(a, type);
}

static bool send_part(struct api_call *a, const char *type)
{
    struct json *j = open_event(a, type);
    json_place(a, j);
    json_part(j, "part", &a->choices[0]);
    json_close(j, '}');
    return api_send(a, type);
}

static void begin(struct api_call *a)
{
    if (!send_response(a, "response.created") || !send_response(a, "response.in_progress") ||
        !send_item(a, "response.output_item.added", false))
        return;
    send_part(a, "response.content_part.added");
}

static void event(struct api_call *a, struct api_choice *x, const struct work_event *e,
                  const struct lm_logprob *top, const char *text)
{
    static const char type[] = "response.output_text.delta";
    (void)x, (void)top;
    if (!e->n_text) return;
    struct json *j = open_event(a, type);
    json_place(a, j);
    lm_json_text(j, "delta", text, e->n_text);
    json_open(j, "logprobs", '[');
    json_close(j, ']');
    json_close(j, '}');
    api_send(a, type);
}

static void end(struct api_call *a)
{
    static const char done[] = "response.output_text.done";
    struct json *j = open_event(a, done);
    json_place(a, j);
    api_json_text(j, "text", &a->choices[0]);
    json_open(j, "logprobs", '[');
    json_close(j, ']');
    json_close(j, '}');
    if (!api_send(a, done) || !send_part(a, "response.content_part.done") ||
        !send_item(a, "response.output_item.done", true))
        return;
    send_response(a, complete(&a->choices[0]) ? "response.completed" : "response.incomplete");
}

static void whole(struct api_call *a) { json_response(a, server_json(a->s), NULL); }

static const struct api_kind responses = {API_RESPONSES, "resp_", "response", begin, event, NULL,
                                          end,           whole,   true};

/* ---- input ---- */

/* Items of `input` as messages: {"type": "message", "role", "content"}. */
static bool add_items(struct api_call *a, const struct jinja_list *items, struct jinja_value *all)
{
    for (uint32_t i = 0; i < items->count; i++) {
        const struct jinja_value *v = &items->items[i];
        const struct jinja_value *type = v->kind == JINJA_DICT ? api_field(v->u.dict, "type") : NULL;
        const struct jinja_value *role = v->kind == JINJA_DICT ? api_field(v->u.dict, "role") : NULL;
        const struct jinja_value *content =
            v->kind == JINJA_DICT ? api_field(v->u.dict, "content") : NULL;
        if ((type && !api_is(type, "message")) || !role || role->kind != JINJA_STR || !content) {
            api_refuse(a, 400, "input", "input[%u]: this server takes messages alone", i);
            return false;
        }
        char *name = api_copy(a->arena, role->u.s, role->len);
        if (!name) {
            api_refuse(a, 503, NULL, "no memory for the conversation");
            return false;
        }
        if (!strcmp(name, "developer")) name = api_copy(a->arena, "system", 6);
        if (!name || !api_add_message(a, all, name, content)) return false;
    }
    return true;
}

static bool render(struct api_call *a, char **text, size_t *n)
{
    const struct jinja_value *input = api_field(a->p.body, "input");
    const struct jinja_value *instructions = api_field(a->p.body, "instructions");
    struct jinja_value all;
    if (!jinja_list_init(a->arena, 8, &all)) {
        api_refuse(a, 503, NULL, "no memory for the conversation");
        return false;
    }
    if (!input || (input->kind != JINJA_STR && input->kind != JINJA_LIST)) {
        api_refuse(a, 400, "input", "input is a text or a list of messages");
        return false;
    }
    if (instructions && instructions->kind != JINJA_STR) {
        api_refuse(a, 400, "instructions", "instructions is a text");
        return false;
    }
    if (instructions && !api_add_message(a, &all, "system", instructions)) return false;
    bool ok = input->kind == JINJA_STR ? api_add_message(a, &all, "user", input)
                                       : add_items(a, input->u.list, &all);
    return ok && api_render(a, &all, NULL, text, n);
}

void api_responses(struct server *s, struct http_conn *c)
{
    struct api_call *a = api_begin(s, c, &responses);
    char *text;
    size_t n;
    if (!a || !render(a, &text, &n)) return;
    bool ok = api_add_text(a, text, n, TOK_ENCODE_SPECIAL);
    free(text);
    if (!ok) return;
    a->prompts[0].text = NULL;
    api_start(a);
}
