// SPDX-License-Identifier: Apache-2.0
/*
 * Conversations to text. The template sees messages as the client sent them, but for what libraries
 * that render templates do as well: content that is a list of texts becomes one text, the arguments
 * of earlier tool calls become objects, and an empty list of tool calls is left out.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/serve/api.h"

enum { MAX_MESSAGES = 4096, MOST_BEHIND = 1024 /* bytes of a template behind a message */ };

struct at {
    struct api_call *a;
    uint32_t message;
};

static bool bad(const struct at *m, const char *what)
{
    char param[48];
    snprintf(param, sizeof param, "messages[%u]", m->message);
    api_refuse(m->a, 400, param, "%s: %s", param, what);
    return false;
}

static bool no_memory(struct api_call *a)
{
    api_refuse(a, 503, NULL, "no memory for the conversation");
    return false;
}

/* [{"type": "text", "text": ...}, ...] joined by line feeds. */
static bool join_parts(const struct at *m, const struct jinja_list *parts, struct jinja_value *out)
{
    size_t n = 0;
    for (uint32_t i = 0; i < parts->count; i++) {
        const struct jinja_value *p = &parts->items[i];
        const struct jinja_value *type = p->kind == JINJA_DICT ? api_field(p->u.dict, "type") : NULL;
        const struct jinja_value *text = p->kind == JINJA_DICT ? api_field(p->u.dict, "text") : NULL;
        if (!api_is(type, "text") && !api_is(type, "input_text") && !api_is(type, "output_text"))
            return bad(m, "this model reads text alone: parts have the type \"text\"");
        if (!text || text->kind != JINJA_STR) return bad(m, "a part has no text");
        n += text->len + 1;
    }
    char *joined = jinja_arena_alloc(m->a->arena, n + 1, 1);
    if (!joined) return no_memory(m->a);
    n = 0;
    for (uint32_t i = 0; i < parts->count; i++) {
        const struct jinja_value *text = api_field(parts->items[i].u.dict, "text");
        if (i) joined[n++] = '\n';
        memcpy(joined + n, text->u.s, text->len);
        n += text->len;
    }
    if (!jinja_str_view(joined, n, out)) return bad(m, "the content is too long");
    return true;
}

/* Arguments that are JSON as text become what the text says. */
static bool open_arguments(const struct at *m, const struct jinja_value *call)
{
    struct jinja_arena *arena = m->a->arena;
    const struct jinja_value *f =
        call->kind == JINJA_DICT ? api_field(call->u.dict, "function") : NULL;
    struct json_read_error error;
    struct jinja_value parsed;
    if (!f || f->kind != JINJA_DICT) return bad(m, "a tool call has no function");
    const struct jinja_value *args = api_field(f->u.dict, "arguments");
    if (!args || args->kind != JINJA_STR) return true;
    if (!json_read(arena, args->u.s, args->len, &parsed, &error))
        return bad(m, "the arguments of a tool call are not JSON");
    return jinja_dict_put_name(arena, f->u.dict, "arguments", parsed) || no_memory(m->a);
}

static bool copy_message(const struct at *m, const struct jinja_dict *from, struct jinja_value *out)
{
    struct jinja_arena *arena = m->a->arena;
    const struct jinja_value *role = api_field(from, "role");
    if (!role || role->kind != JINJA_STR) return bad(m, "a message has a role");
    if (!jinja_dict_init(arena, from->count + 1, out)) return no_memory(m->a);
    for (uint32_t i = 0; i < from->count; i++) {
        struct jinja_value key = from->pairs[i].key, v = from->pairs[i].value;
        if (api_is(&key, "content")) {
            if (v.kind == JINJA_LIST && !join_parts(m, v.u.list, &v)) return false;
            if (v.kind != JINJA_STR && v.kind != JINJA_NONE)
                return bad(m, "content is text, a list of parts, or null");
        }
        if (api_is(&key, "tool_calls")) {
            if (v.kind == JINJA_NONE || (v.kind == JINJA_LIST && !v.u.list->count)) continue;
            if (v.kind != JINJA_LIST) return bad(m, "tool_calls is a list");
            for (uint32_t k = 0; k < v.u.list->count; k++)
                if (!open_arguments(m, &v.u.list->items[k])) return false;
        }
        if (!jinja_dict_put(arena, out->u.dict, key, v)) return no_memory(m->a);
    }
    if (!api_field(from, "content") && !jinja_dict_find_str(from, "content", 7) &&
        !jinja_dict_put_name(arena, out->u.dict, "content", jinja_none()))
        return no_memory(m->a);
    return true;
}

bool api_add_message(struct api_call *a, struct jinja_value *list, const char *role,
                     const struct jinja_value *content)
{
    struct jinja_value dict, name;
    return (jinja_dict_init(a->arena, 2, &dict) && jinja_str_view(role, strlen(role), &name) &&
            jinja_dict_put_name(a->arena, dict.u.dict, "role", name) &&
            jinja_dict_put_name(a->arena, dict.u.dict, "content", *content) &&
            jinja_list_append(a->arena, list->u.list, dict)) ||
           no_memory(a);
}

static bool copy_messages(struct api_call *a, const struct jinja_value *messages,
                          struct jinja_value *out)
{
    if (!messages || messages->kind != JINJA_LIST || !messages->u.list->count) {
        api_refuse(a, 400, "messages", "messages is a list of at least one message");
        return false;
    }
    if (messages->u.list->count > MAX_MESSAGES) {
        api_refuse(a, 400, "messages", "%u messages; there can be %d", messages->u.list->count,
                   MAX_MESSAGES);
        return false;
    }
    if (!jinja_list_init(a->arena, messages->u.list->count, out)) return no_memory(a);
    for (uint32_t i = 0; i < messages->u.list->count; i++) {
        struct at m = {a, i};
        struct jinja_value copy;
        const struct jinja_value *v = &messages->u.list->items[i];
        if (v->kind != JINJA_DICT) return bad(&m, "a message is an object");
        if (!copy_message(&m, v->u.dict, &copy)) return false;
        if (!jinja_list_append(a->arena, out->u.list, copy)) return no_memory(a);
    }
    return true;
}

static bool put_kwargs(struct api_call *a, struct jinja_dict *context)
{
    const struct jinja_value *k = a->p.template_kwargs;
    if (!k) return true;
    if (k->kind != JINJA_DICT) {
        api_refuse(a, 400, "chat_template_kwargs", "chat_template_kwargs is an object");
        return false;
    }
    for (uint32_t i = 0; i < k->u.dict->count; i++)
        if (!jinja_dict_put(a->arena, context, k->u.dict->pairs[i].key, k->u.dict->pairs[i].value))
            return no_memory(a);
    return true;
}

/* The prompt of an answer that goes on where the last message ends: cut behind that message. */
static bool cut_behind(struct api_call *a, const struct jinja_value *messages, char *text, size_t *n)
{
    const struct jinja_list *l = messages->u.list;
    const struct jinja_dict *last = l->items[l->count - 1].u.dict;
    const struct jinja_value *content = api_field(last, "content");
    if (!api_is(api_field(last, "role"), "assistant") || !content || content->kind != JINJA_STR) {
        api_refuse(a, 400, "continue_final_message",
                   "continue_final_message: the last message is the assistant's, with text");
        return false;
    }
    size_t len = content->len;
    while (len && strchr(" \t\r\n", content->u.s[len - 1])) len--;
    size_t first = *n > MOST_BEHIND + len ? *n - MOST_BEHIND : len;
    for (size_t end = *n; len && end >= first; end--)
        if (!memcmp(text + end - len, content->u.s, len)) {
            *n = end;
            return true;
        }
    if (!len) return true;
    api_refuse(a, 400, "continue_final_message",
               "continue_final_message: the template changes the last message");
    return false;
}

bool api_render(struct api_call *a, const struct jinja_value *messages,
                const struct jinja_value *tools, char **out, size_t *n)
{
    struct jinja_value context, copies;
    struct jinja_output text = {0};
    struct infr_status st;
    if (!copy_messages(a, messages, &copies)) return false;
    if (!jinja_dict_init(a->arena, 16, &context) ||
        !jinja_dict_put_name(a->arena, context.u.dict, "messages", copies) ||
        !jinja_dict_put_name(a->arena, context.u.dict, "add_generation_prompt",
                             jinja_bool(a->p.add_generation_prompt)) ||
        (tools && !jinja_dict_put_name(a->arena, context.u.dict, "tools", *tools)))
        return no_memory(a);
    if (!put_kwargs(a, context.u.dict)) return false;
    if (lm_text_render(&a->s->x.text, NULL, a->arena, &context, &text, &st)) {
        api_refuse(a, 400, "messages", "%s", st.note);
        return false;
    }
    *out = text.data, *n = text.len_bytes;
    if (a->p.continue_final && !cut_behind(a, &copies, *out, n)) {
        free(text.data);
        return false;
    }
    if (*n) return true;
    free(text.data);
    api_refuse(a, 400, "messages", "the chat template writes nothing");
    return false;
}
