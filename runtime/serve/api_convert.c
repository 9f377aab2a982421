// SPDX-License-Identifier: Apache-2.0
/* Conversations in Anthropic's and Responses' forms as messages of chat completions. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "runtime/serve/api.h"

struct to {
    struct api_call *a;
    struct jinja_value *all; /* a list of messages */
    const char *param;
    uint32_t item;
};

static bool bad(const struct to *t, const char *what)
{
    char param[64];
    snprintf(param, sizeof param, "%s[%u]", t->param, t->item);
    api_refuse(t->a, 400, param, "%s: %s", param, what);
    return false;
}

static bool no_memory(struct api_call *a)
{
    api_refuse(a, 503, NULL, "no memory for the conversation");
    return false;
}

static bool put(const struct to *t, struct jinja_value *dict, const char *name,
                struct jinja_value v)
{
    return jinja_dict_put_name(t->a->arena, dict->u.dict, name, v) || no_memory(t->a);
}

static bool begin(const struct to *t, const char *role, struct jinja_value *message)
{
    struct jinja_value v;
    if (!jinja_dict_init(t->a->arena, 4, message) || !jinja_str_view(role, strlen(role), &v))
        return no_memory(t->a);
    return put(t, message, "role", v);
}

static bool end(const struct to *t, struct jinja_value message)
{
    return jinja_list_append(t->a->arena, t->all->u.list, message) || no_memory(t->a);
}

/* {"id", "type": "function", "function": {"name", "arguments"}} */
static bool add_call(const struct to *t, struct jinja_value *calls, const struct jinja_value *id,
                     const struct jinja_value *name, const struct jinja_value *arguments)
{
    struct jinja_value call, f, type;
    struct jinja_arena *arena = t->a->arena;
    if (!name || name->kind != JINJA_STR || !arguments) return bad(t, "a call has a name and arguments");
    if (!jinja_dict_init(arena, 3, &call) || !jinja_dict_init(arena, 2, &f) ||
        !jinja_str_view("function", 8, &type))
        return no_memory(t->a);
    if (id && !put(t, &call, "id", *id)) return false;
    return put(t, &f, "name", *name) && put(t, &f, "arguments", *arguments) &&
           put(t, &call, "type", type) && put(t, &call, "function", f) &&
           (jinja_list_append(arena, calls->u.list, call) || no_memory(t->a));
}

/* A call of its own message, or of the last one where that is the assistant's with calls. */
static bool add_call_message(const struct to *t, const struct jinja_value *id,
                             const struct jinja_value *name, const struct jinja_value *arguments)
{
    struct jinja_list *l = t->all->u.list;
    struct jinja_value message, calls;
    const struct jinja_value *last = l->count ? &l->items[l->count - 1] : NULL;
    const struct jinja_value *old = last ? api_field(last->u.dict, "tool_calls") : NULL;
    if (old) {
        calls = *old;
        return add_call(t, &calls, id, name, arguments);
    }
    if (!jinja_list_init(t->a->arena, 2, &calls)) return no_memory(t->a);
    return begin(t, "assistant", &message) && add_call(t, &calls, id, name, arguments) &&
           put(t, &message, "tool_calls", calls) && end(t, message);
}

static bool add_result(const struct to *t, const struct jinja_value *id,
                       const struct jinja_value *content)
{
    struct jinja_value message, none;
    if (!jinja_str_view("", 0, &none)) return no_memory(t->a);
    return begin(t, "tool", &message) && (!id || put(t, &message, "tool_call_id", *id)) &&
           put(t, &message, "content", content ? *content : none) && end(t, message);
}

/* ---- Anthropic ---- */

struct blocks {
    struct jinja_value texts, calls; /* lists */
    const struct jinja_value *thinking;
};

static bool take_block(const struct to *t, const struct jinja_value *b, struct blocks *x)
{
    const struct jinja_value *type = b->kind == JINJA_DICT ? api_field(b->u.dict, "type") : NULL;
    struct jinja_arena *arena = t->a->arena;
    if (!type) return bad(t, "a block of content has a type");
    const struct jinja_dict *d = b->u.dict;
    if (api_is(type, "text"))
        return jinja_list_append(arena, x->texts.u.list, *b) || no_memory(t->a);
    if (api_is(type, "thinking")) {
        x->thinking = api_field(d, "thinking");
        return true;
    }
    if (api_is(type, "redacted_thinking")) return true; /* nobody here can read it */
    if (api_is(type, "tool_use"))
        return add_call(t, &x->calls, api_field(d, "id"), api_field(d, "name"), api_field(d, "input"));
    if (api_is(type, "tool_result"))
        return add_result(t, api_field(d, "tool_use_id"), api_field(d, "content"));
    return bad(t, "this model reads text alone: blocks are text, thinking, tool_use and tool_result");
}

/* Results become messages of their own, in front of what else the message says. */
static bool add_blocks(const struct to *t, const char *role, const struct jinja_list *content)
{
    struct blocks x = {0};
    struct jinja_value message;
    struct jinja_arena *arena = t->a->arena;
    uint32_t before = t->all->u.list->count;
    if (!jinja_list_init(arena, content->count + 1, &x.texts) ||
        !jinja_list_init(arena, content->count + 1, &x.calls))
        return no_memory(t->a);
    for (uint32_t i = 0; i < content->count; i++)
        if (!take_block(t, &content->items[i], &x)) return false;
    bool results = t->all->u.list->count > before;
    if (results && !x.texts.u.list->count && !x.calls.u.list->count) return true;
    if (!begin(t, role, &message) || !put(t, &message, "content", x.texts)) return false;
    if (x.thinking && !put(t, &message, "reasoning_content", *x.thinking)) return false;
    if (x.calls.u.list->count && !put(t, &message, "tool_calls", x.calls)) return false;
    return end(t, message);
}

bool api_from_anthropic(struct api_call *a, struct jinja_value *all)
{
    const struct jinja_value *system = api_field(a->p.body, "system"), *m = a->p.messages;
    struct to t = {a, all, "messages", 0};
    if (!m || m->kind != JINJA_LIST || !m->u.list->count) {
        api_refuse(a, 400, "messages", "messages is a list of at least one message");
        return false;
    }
    if (!jinja_list_init(a->arena, m->u.list->count + 2, all)) return no_memory(a);
    if (system && !api_add_message(a, all, "system", system)) return false;
    for (uint32_t i = 0; i < m->u.list->count; i++) {
        const struct jinja_value *v = &m->u.list->items[i];
        const struct jinja_value *role = v->kind == JINJA_DICT ? api_field(v->u.dict, "role") : NULL;
        const struct jinja_value *content =
            v->kind == JINJA_DICT ? api_field(v->u.dict, "content") : NULL;
        t.item = i;
        if (!role || role->kind != JINJA_STR) return bad(&t, "a message has a role");
        char *name = api_copy(a->arena, role->u.s, role->len);
        if (!name) return no_memory(a);
        if (!content) return bad(&t, "a message has content");
        bool ok = content->kind == JINJA_LIST ? add_blocks(&t, name, content->u.list)
                                              : api_add_message(a, all, name, content);
        if (!ok) return false;
    }
    return true;
}

/* ---- Responses ---- */

static bool add_item(const struct to *t, const struct jinja_value *v)
{
    if (v->kind != JINJA_DICT) return bad(t, "an item is an object");
    const struct jinja_dict *d = v->u.dict;
    const struct jinja_value *type = api_field(d, "type"), *role = api_field(d, "role");
    if (api_is(type, "reasoning")) return true; /* is not shown to the model again */
    if (api_is(type, "function_call"))
        return add_call_message(t, api_field(d, "call_id"), api_field(d, "name"),
                                api_field(d, "arguments"));
    if (api_is(type, "function_call_output"))
        return add_result(t, api_field(d, "call_id"), api_field(d, "output"));
    const struct jinja_value *content = api_field(d, "content");
    if ((type && !api_is(type, "message")) || !role || role->kind != JINJA_STR || !content)
        return bad(t, "an item is a message, a function_call or a function_call_output");
    bool developer = api_is(role, "developer");
    char *name = developer ? api_copy(t->a->arena, "system", 6)
                           : api_copy(t->a->arena, role->u.s, role->len);
    if (!name) return no_memory(t->a);
    return api_add_message(t->a, t->all, name, content);
}

bool api_from_responses(struct api_call *a, struct jinja_value *all)
{
    const struct jinja_value *input = api_field(a->p.body, "input");
    const struct jinja_value *instructions = api_field(a->p.body, "instructions");
    struct to t = {a, all, "input", 0};
    if (!jinja_list_init(a->arena, 8, all)) return no_memory(a);
    if (!input || (input->kind != JINJA_STR && input->kind != JINJA_LIST)) {
        api_refuse(a, 400, "input", "input is a text or a list of messages");
        return false;
    }
    if (instructions && instructions->kind != JINJA_STR) {
        api_refuse(a, 400, "instructions", "instructions is a text");
        return false;
    }
    if (instructions && !api_add_message(a, all, "system", instructions)) return false;
    if (input->kind == JINJA_STR) return api_add_message(a, all, "user", input);
    for (; t.item < input->u.list->count; t.item++)
        if (!add_item(&t, &input->u.list->items[t.item])) return false;
    return true;
}
