// SPDX-License-Identifier: Apache-2.0
/*
 * Conversations to text. The template sees messages as the client sent them, but for what libraries
 * that render templates do as well: content that is a list of texts becomes one text, the arguments
 * of earlier tool calls become objects, and an empty list of tool calls is left out. Where a
 * template knows nothing of tools, it gets them, calls and results as text.
 */
#define _GNU_SOURCE
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

const char *api_template_source(const struct server *s, size_t *n)
{
    const struct lm_text *t = &s->x.text;
    *n = t->own_source_bytes;
    if (t->own_source) return t->own_source;
    const char *source = lm_text_template_source(t, NULL, n);
    return source ? source : "";
}

static bool template_has(const struct api_call *a, const char *word)
{
    size_t n;
    const char *source = api_template_source(a->s, &n);
    return memmem(source, n, word, strlen(word)) != NULL;
}

/* Text out of what is written to *j, in the arena. */
static bool take_text(struct api_call *a, struct json *j, char **text, size_t *n,
                      struct jinja_value *out)
{
    fclose(j->f);
    char *copy = *text ? api_copy(a->arena, *text, *n) : NULL;
    free(*text);
    return (copy && jinja_str_view(copy, *n, out)) || no_memory(a);
}

/* The content with the calls behind it. */
static bool calls_as_text(struct api_call *a, const struct jinja_value *calls,
                          struct jinja_value *content)
{
    char *text = NULL;
    size_t n = 0;
    struct json j = {.f = open_memstream(&text, &n)};
    if (!j.f) return no_memory(a);
    if (content->kind == JINJA_STR && content->len)
        fprintf(j.f, "%.*s\n", (int)content->len, content->u.s);
    for (uint32_t i = 0; i < calls->u.list->count; i++) {
        const struct jinja_value *f = api_field(calls->u.list->items[i].u.dict, "function");
        const struct jinja_value *name = api_field(f->u.dict, "name");
        const struct jinja_value *args = api_field(f->u.dict, "arguments");
        if (i) fputc('\n', j.f);
        j.comma = false;
        json_open(&j, NULL, '{');
        if (name) api_json_value(&j, "name", name);
        if (args) api_json_value(&j, "arguments", args);
        json_close(&j, '}');
    }
    return take_text(a, &j, &text, &n, content);
}

static bool settle_message(const struct at *m, struct jinja_dict *d)
{
    struct jinja_arena *arena = m->a->arena;
    const struct jinja_value *calls = api_field(d, "tool_calls"), *old = api_field(d, "content");
    struct jinja_value content = old ? *old : jinja_none(), role;
    if (api_is(api_field(d, "role"), "developer") && !template_has(m->a, "developer"))
        return (jinja_str_view("system", 6, &role) && jinja_dict_put_name(arena, d, "role", role)) ||
               no_memory(m->a);
    if (api_is(api_field(d, "role"), "tool") && !template_has(m->a, "tool"))
        return (jinja_str_view("user", 4, &role) && jinja_dict_put_name(arena, d, "role", role)) ||
               no_memory(m->a);
    if (!calls || template_has(m->a, "tool_calls")) return true;
    return calls_as_text(m->a, calls, &content) &&
           (jinja_dict_put_name(arena, d, "content", content) || no_memory(m->a));
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
    return settle_message(m, out->u.dict);
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

/* The tools as text behind the system's message, for a template that does not show them. */
static bool tools_as_text(struct api_call *a, struct jinja_list *messages)
{
    char *text = NULL;
    size_t n = 0;
    struct json j = {.f = open_memstream(&text, &n)};
    struct jinja_value content, message, role;
    struct jinja_value *first = messages->count ? &messages->items[0] : NULL;
    bool system = first && api_is(api_field(first->u.dict, "role"), "system");
    const struct jinja_value *old = system ? api_field(first->u.dict, "content") : NULL;
    if (!j.f) return no_memory(a);
    if (old && old->kind == JINJA_STR) fprintf(j.f, "%.*s\n\n", (int)old->len, old->u.s);
    fputs("These functions can be called:\n", j.f);
    for (uint32_t i = 0; i < a->p.tools->u.list->count; i++) {
        j.comma = false;
        api_json_value(&j, NULL, api_field(a->p.tools->u.list->items[i].u.dict, "function"));
        fputc('\n', j.f);
    }
    fputs("To call one, answer {\"name\": its name, \"arguments\": {...}} and nothing else.", j.f);
    if (!take_text(a, &j, &text, &n, &content)) return false;
    if (system) return jinja_dict_put_name(a->arena, first->u.dict, "content", content) || no_memory(a);
    if (!jinja_dict_init(a->arena, 2, &message) || !jinja_str_view("system", 6, &role) ||
        !jinja_dict_put_name(a->arena, message.u.dict, "role", role) ||
        !jinja_dict_put_name(a->arena, message.u.dict, "content", content) ||
        !jinja_list_append(a->arena, messages, message))
        return no_memory(a);
    message = messages->items[messages->count - 1];
    memmove(messages->items + 1, messages->items, (messages->count - 1) * sizeof message);
    messages->items[0] = message;
    return true;
}

/* FireFunction's templates want their tools as JSON text, under the name `functions`, also where there are none. */
static bool put_functions(struct api_call *a, struct jinja_dict *context)
{
    char *text = NULL;
    size_t n = 0;
    struct json j = {.f = open_memstream(&text, &n)};
    struct jinja_value v;
    if (!j.f) return no_memory(a);
    json_open(&j, NULL, '[');
    for (uint32_t i = 0; a->p.tools && i < a->p.tools->u.list->count; i++)
        api_json_value(&j, NULL, api_field(a->p.tools->u.list->items[i].u.dict, "function"));
    json_close(&j, ']');
    return take_text(a, &j, &text, &n, &v) && (jinja_dict_put_name(a->arena, context, "functions", v) || no_memory(a));
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

static bool put_context(struct api_call *a, const struct jinja_value *copies,
                        struct jinja_value *context)
{
    struct jinja_value effort;
    if (!jinja_dict_init(a->arena, 16, context) ||
        !jinja_dict_put_name(a->arena, context->u.dict, "messages", *copies) ||
        !jinja_dict_put_name(a->arena, context->u.dict, "add_generation_prompt",
                             jinja_bool(a->p.add_generation_prompt)) ||
        (a->p.tools && !jinja_dict_put_name(a->arena, context->u.dict, "tools", *a->p.tools)) ||
        ((a->p.no_thinking || a->s->o.thinking) &&
         !jinja_dict_put_name(a->arena, context->u.dict, "enable_thinking",
                              jinja_bool(!a->p.no_thinking))))
        return no_memory(a);
    const char *e = a->p.reasoning_effort;
    if (e && strcmp(e, "none") &&
        (!jinja_str_view(e, strlen(e), &effort) ||
         !jinja_dict_put_name(a->arena, context->u.dict, "reasoning_effort", effort)))
        return no_memory(a);
    if (a->family == TOOL_FUNCTOOLS && !put_functions(a, context->u.dict)) return false;
    return put_kwargs(a, context->u.dict);
}

static bool append(struct api_call *a, char **text, size_t *n, const char *more)
{
    size_t k = strlen(more);
    char *p = realloc(*text, *n + k + 1);
    if (!p) {
        free(*text);
        return no_memory(a);
    }
    memcpy(p + *n, more, k + 1);
    *text = p, *n += k;
    return true;
}

static bool mark_tokens(struct api_call *a, const char *mark, uint32_t *out, uint32_t *n)
{
    struct infr_status st;
    uint32_t *ids;
    size_t k;
    if (lm_text_encode(&a->s->x.text, mark, strlen(mark), TOK_ENCODE_SPECIAL | TOK_ENCODE_CONTINUED,
                       &ids, &k, &st))
        return false;
    bool ok = k > 0 && k <= LM_MAX_MARK;
    if (ok) memcpy(out, ids, k * sizeof *ids);
    *n = (uint32_t)k;
    free(ids);
    return ok;
}

static bool limit_thinking(struct api_call *a, bool open)
{
    struct lm_thinking *t = &a->p.d.thinking;
    if (a->family == TOOL_GPT_OSS || !template_has(a, "<think>")) return false;
    t->limited = true, t->open = open;
    t->budget = (uint32_t)a->p.thinking_budget;
    return mark_tokens(a, "<think>", t->begin, &t->n_begin) &&
           mark_tokens(a, "</think>", t->end, &t->n_end);
}

/* Does the model think first, and where is the prompt in that? Who is not to think, or has to write
 * what a grammar says, has thought already. */
static bool settle_thinking(struct api_call *a, char **text, size_t *n)
{
    static const char OPEN[] = "<think>";
    size_t end = *n;
    bool hidden = a->p.reasoning_format && !strcmp(a->p.reasoning_format, "none");
    a->reasoning = !hidden && (a->family == TOOL_GPT_OSS || template_has(a, OPEN));
    while (end && strchr(" \t\r\n", (*text)[end - 1])) end--;
    bool open = end >= sizeof OPEN - 1 &&
                !memcmp(*text + end - (sizeof OPEN - 1), OPEN, sizeof OPEN - 1);
    if (open && (a->p.no_thinking || a->grammar || !a->p.thinking_budget))
        return append(a, text, n, &"\n</think>\n\n"[end < *n]);
    a->in_reasoning = a->reasoning && open;
    if (a->p.thinking_budget < 0 || a->p.no_thinking || a->grammar || limit_thinking(a, open))
        return true;
    if (!a->reasoning) return true; /* it does not think: no budget is exceeded */
    free(*text);
    api_refuse(a, 400, "thinking_budget_tokens", "thinking_budget_tokens: this model's thinking has no such end");
    return false;
}

/* A last message of the assistant's is the beginning of the answer: Anthropic's way, and
 * llama-server's where the server was told so. False: replied. */
static bool settle_prefill(struct api_call *a, const struct jinja_list *l)
{
    bool theirs = a->kind->endpoint == API_MESSAGES;
    const struct jinja_value *last = &l->items[l->count - 1];
    if ((!theirs && !a->s->o.prefill) || a->p.generation_prompt_given || a->p.continue_final)
        return true;
    if (!api_is(api_field(last->u.dict, "role"), "assistant") || api_field(last->u.dict, "tool_calls"))
        return true;
    if (!theirs && l->count > 1 && api_is(api_field(l->items[l->count - 2].u.dict, "role"), "assistant")) {
        api_refuse(a, 400, "messages", "messages: two of the assistant's at the end");
        return false;
    }
    a->p.continue_final = true, a->p.add_generation_prompt = false;
    return true;
}

bool api_render(struct api_call *a, const struct jinja_value *messages, char **out, size_t *n)
{
    struct jinja_value context, copies;
    struct jinja_output text = {0};
    struct infr_status st;
    if (!copy_messages(a, messages, &copies) || !settle_prefill(a, copies.u.list)) return false;
    if (a->p.tools && !template_has(a, "tools") && !tools_as_text(a, copies.u.list)) return false;
    if (!put_context(a, &copies, &context)) return false;
    if (lm_text_render(&a->s->x.text, NULL, a->arena, &context, &text, &st)) {
        api_refuse(a, 400, "messages", "%s", st.note);
        return false;
    }
    *out = text.data, *n = text.len_bytes;
    if (a->p.continue_final && !cut_behind(a, &copies, *out, n)) {
        free(text.data);
        return false;
    }
    if (!*n) {
        free(text.data);
        api_refuse(a, 400, "messages", "the chat template writes nothing");
        return false;
    }
    return settle_thinking(a, out, n);
}

bool api_add_conversation(struct api_call *a, const struct jinja_value *messages)
{
    char *text;
    size_t n;
    if (!api_render(a, messages, &text, &n)) return false;
    if (a->forced && !append(a, &text, &n, a->forced)) return false;
    bool ok = api_add_text(a, text, n, TOK_ENCODE_SPECIAL);
    free(text);
    if (ok) a->prompts[0].text = NULL;
    return ok;
}
