// SPDX-License-Identifier: Apache-2.0
/*
 * Tools. The template shows them to the model. With tool_choice auto the answer is read for calls in
 * the ways that model families write them:
 *
 *   <tool_call>{"name": ..., "arguments": ...}</tool_call> ...      Hermes, Qwen and others
 *   <function=NAME>{...}</function> ...                             Llama 3, Functionary
 *   {"name": ..., "parameters" or "arguments": ...}, or a list      Llama 3, Mistral, generic
 *
 * An answer that is none of these is text, as it came. With required the answer is constrained to a
 * list of calls whose arguments fit their schemas, with a named tool to that tool's arguments.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "runtime/serve/api.h"

enum { MAX_TOOLS = 128 };

static const char TOOL_CALL[] = "<tool_call>", TOOL_CALL_END[] = "</tool_call>";
static const char FUNCTION[] = "<function=", FUNCTION_END[] = "</function>";

/* ---- the request ---- */

static bool bad(struct api_call *a, const char *param, const char *what)
{
    server_error(a->c, 400, param, "%s: %s", param, what);
    return false;
}

static const struct jinja_dict *function_of(const struct jinja_value *tool)
{
    const struct jinja_value *f =
        tool->kind == JINJA_DICT ? api_field(tool->u.dict, "function") : NULL;
    return f && f->kind == JINJA_DICT ? f->u.dict : NULL;
}

static const struct jinja_dict *find_tool(const struct jinja_value *tools, const char *name, size_t n)
{
    for (uint32_t i = 0; tools && i < tools->u.list->count; i++) {
        const struct jinja_dict *f = function_of(&tools->u.list->items[i]);
        const struct jinja_value *x = api_field(f, "name");
        if (x->len == n && !memcmp(x->u.s, name, n)) return f;
    }
    return NULL;
}

static bool check_tools(struct api_call *a, const struct jinja_value *tools)
{
    if (tools->kind != JINJA_LIST) return bad(a, "tools", "is a list");
    if (tools->u.list->count > MAX_TOOLS) return bad(a, "tools", "there can be 128");
    for (uint32_t i = 0; i < tools->u.list->count; i++) {
        const struct jinja_value *t = &tools->u.list->items[i];
        const struct jinja_value *type = t->kind == JINJA_DICT ? api_field(t->u.dict, "type") : NULL;
        const struct jinja_dict *f = function_of(t);
        const struct jinja_value *name = f ? api_field(f, "name") : NULL;
        const struct jinja_value *parameters = f ? api_field(f, "parameters") : NULL;
        if (!api_is(type, "function") || !name || name->kind != JINJA_STR || !name->len ||
            name->len > 64)
            return bad(a, "tools", "each is {\"type\": \"function\", \"function\": {\"name\": ...}}");
        for (uint32_t k = 0; k < name->len; k++)
            if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.",
                        name->u.s[k]))
                return bad(a, "tools", "a name has letters, digits, _ - and . alone");
        if (parameters && parameters->kind != JINJA_DICT)
            return bad(a, "tools", "parameters are a JSON Schema");
    }
    return true;
}

static void json_parameters(struct json *j, const char *key, const struct jinja_dict *f, bool alone)
{
    const struct jinja_value *p = api_field(f, "parameters");
    static const char none[] = "{\"type\":\"object\",\"additionalProperties\":false}";
    if (!p || !p->u.dict->count) { /* no parameters: no arguments */
        api_json_raw(j, key, none, sizeof none - 1);
        return;
    }
    if (alone) {
        api_json_value(j, key, p);
        return;
    }
    /* inside of another schema: references to its own root need a base of its own */
    const struct jinja_value *name = api_field(f, "name");
    char id[96];
    snprintf(id, sizeof id, "tool:%.*s", (int)name->len, name->u.s);
    json_open(j, key, '{');
    if (!api_field(p->u.dict, "$id")) json_string(j, "$id", id);
    for (uint32_t i = 0; i < p->u.dict->count; i++) {
        const struct jinja_pair *pair = &p->u.dict->pairs[i];
        lm_json_text(j, NULL, pair->key.u.s, pair->key.len);
        fputc(':', j->f);
        j->comma = false;
        api_json_value(j, NULL, &pair->value);
    }
    json_close(j, '}');
}

/* A list of calls. */
static bool require_calls(struct api_call *a)
{
    struct json *j = server_json(a->s);
    const struct jinja_list *l = a->p.tools->u.list;
    size_t n;
    json_open(j, NULL, '{');
    json_string(j, "type", "array");
    json_int(j, "minItems", 1);
    json_int(j, "maxItems", a->p.parallel_calls ? API_MAX_CALLS : 1);
    json_open(j, "items", '{');
    json_open(j, "anyOf", '[');
    for (uint32_t i = 0; i < l->count; i++) {
        const struct jinja_dict *f = function_of(&l->items[i]);
        json_open(j, NULL, '{');
        json_string(j, "type", "object");
        json_open(j, "properties", '{');
        json_open(j, "name", '{');
        api_json_value(j, "const", api_field(f, "name"));
        json_close(j, '}');
        json_parameters(j, "arguments", f, false);
        json_close(j, '}');
        static const char required[] = "[\"name\",\"arguments\"]";
        api_json_raw(j, "required", required, sizeof required - 1);
        json_bool(j, "additionalProperties", false);
        json_close(j, '}');
    }
    json_close(j, ']');
    json_close(j, '}');
    json_close(j, '}');
    const char *text = server_json_end(a->s, &n);
    return api_take_grammar(a, GR_JSON_SCHEMA, text, n, "tools");
}

static bool require_tool(struct api_call *a, const struct jinja_value *choice)
{
    const struct jinja_value *f = choice->kind == JINJA_DICT ? api_field(choice->u.dict, "function")
                                                             : NULL;
    const struct jinja_value *name = f && f->kind == JINJA_DICT ? api_field(f->u.dict, "name") : NULL;
    const struct jinja_dict *tool =
        name && name->kind == JINJA_STR ? find_tool(a->p.tools, name->u.s, name->len) : NULL;
    size_t n;
    if (!tool) return bad(a, "tool_choice", "names none of the tools");
    a->named = api_copy(a->arena, name->u.s, name->len);
    struct json *j = server_json(a->s);
    json_parameters(j, NULL, tool, true);
    const char *text = server_json_end(a->s, &n);
    return api_take_grammar(a, GR_JSON_SCHEMA, text, n, "tools");
}

bool api_settle_tools(struct api_call *a)
{
    const struct jinja_value *choice = a->p.tool_choice;
    if (a->p.tools && !check_tools(a, a->p.tools)) return false;
    if (a->p.tools && !a->p.tools->u.list->count) a->p.tools = NULL;
    if (!a->p.tools) {
        if (!choice || api_is(choice, "none") || api_is(choice, "auto")) return true;
        return bad(a, "tool_choice", "there are no tools");
    }
    if (api_is(choice, "none")) {
        a->p.tools = NULL;
        return true;
    }
    if (a->p.logprobs_on && a->p.stream)
        return bad(a, "logprobs", "with tools is not for streams");
    if (!choice || api_is(choice, "auto")) return a->tools = API_TOOLS_AUTO, true;
    if (api_is(choice, "required")) return a->tools = API_TOOLS_REQUIRED, require_calls(a);
    return a->tools = API_TOOLS_NAMED, require_tool(a, choice);
}

/* ---- the answer ---- */

static bool add(struct api_tool_calls *out, const struct jinja_value *name,
                const struct jinja_value *arguments)
{
    if (out->n == API_MAX_CALLS) return false;
    out->name[out->n] = *name, out->arguments[out->n++] = *arguments;
    return true;
}

/* {"name": ..., "arguments": ...}; tools: the name must be one of theirs. */
static bool add_object(struct api_tool_calls *out, const struct jinja_value *v,
                       const struct jinja_value *tools)
{
    if (v->kind != JINJA_DICT) return false;
    const struct jinja_value *name = api_field(v->u.dict, "name");
    const struct jinja_value *args = api_field(v->u.dict, "arguments");
    if (!args) args = api_field(v->u.dict, "parameters");
    if (!name || name->kind != JINJA_STR || !name->len || !args || args->kind != JINJA_DICT)
        return false;
    return (!tools || find_tool(tools, name->u.s, name->len)) && add(out, name, args);
}

static bool read_json(struct api_tool_calls *out, const char *p, size_t n, struct jinja_value *v)
{
    struct json_read_error error;
    return json_read(out->arena, p, n, v, &error);
}

/* The whole text is one call or a list of them. */
static bool bare(struct api_call *a, struct api_tool_calls *out, const char *p, size_t n)
{
    struct jinja_value v;
    if (!n || (p[0] != '{' && p[0] != '[') || !read_json(out, p, n, &v)) return false;
    if (v.kind == JINJA_DICT) return add_object(out, &v, a->p.tools);
    for (uint32_t i = 0; i < v.u.list->count; i++)
        if (!add_object(out, &v.u.list->items[i], a->p.tools)) return false;
    return v.u.list->count > 0;
}

/* From the first opening tag on there are calls and white space alone. */
static bool tagged(struct api_tool_calls *out, const char *p, size_t n)
{
    struct jinja_value v, name;
    for (;;) {
        while (n && strchr(" \t\r\n", *p)) p++, n--;
        if (!n) return out->n > 0;
        bool function = n > sizeof FUNCTION && !memcmp(p, FUNCTION, sizeof FUNCTION - 1);
        size_t open = (function ? sizeof FUNCTION : sizeof TOOL_CALL) - 1;
        const char *close = function ? FUNCTION_END : TOOL_CALL_END;
        if (n < open || memcmp(p, function ? FUNCTION : TOOL_CALL, open)) return false;
        p += open, n -= open;
        const char *end = memmem(p, n, close, strlen(close));
        size_t len = end ? (size_t)(end - p) : n; /* an answer may end without it */
        size_t skip = end ? len + strlen(close) : n;
        const char *body = p;
        if (function) {
            const char *gt = memchr(p, '>', len);
            if (!gt || !jinja_str_init(out->arena, p, (size_t)(gt - p), &name)) return false;
            body = gt + 1, len -= (size_t)(body - p);
        }
        if (!read_json(out, body, len, &v)) return false;
        if (function ? v.kind != JINJA_DICT || !add(out, &name, &v) : !add_object(out, &v, NULL))
            return false;
        p += skip, n -= skip;
    }
}

static const char *first_tag(const char *p, size_t n)
{
    const char *x = memmem(p, n, TOOL_CALL, sizeof TOOL_CALL - 1);
    const char *y = memmem(p, n, FUNCTION, sizeof FUNCTION - 1);
    return !x || (y && y < x) ? y : x;
}

bool api_find_calls(struct api_call *a, const char *text, size_t n, struct api_tool_calls *out)
{
    *out = (struct api_tool_calls){.n_content = n};
    if (a->tools == API_TOOLS_NONE) return true;
    out->arena = jinja_arena_create(64 * n + (1u << 16));
    if (!out->arena) return false;
    const char *p = text, *tag = first_tag(text, n);
    size_t len = n;
    while (len && strchr(" \t\r\n", *p)) p++, len--;
    if (a->tools == API_TOOLS_NAMED) {
        struct jinja_value name, v;
        if (read_json(out, p, len, &v) && v.kind == JINJA_DICT &&
            jinja_str_view(a->named, strlen(a->named), &name) && add(out, &name, &v))
            out->n_content = 0;
    } else if (bare(a, out, p, len)) {
        out->n_content = 0;
    } else if (tag) {
        out->n = 0;
        size_t at = (size_t)(tag - text);
        if (tagged(out, tag, n - at)) {
            while (at && strchr(" \t\r\n", text[at - 1])) at--;
            out->n_content = at;
        } else
            out->n = 0;
    } else
        out->n = 0;
    return true;
}

/* How much of the text so far is no call whatever follows. */
size_t api_may_show(const struct api_call *a, const char *text, size_t n)
{
    size_t at = 0;
    if (a->tools == API_TOOLS_NONE) return n;
    if (a->tools != API_TOOLS_AUTO) return 0;
    while (at < n && strchr(" \t\r\n", text[at])) at++;
    if (at == n || text[at] == '{' || text[at] == '[') return 0;
    const char *tag = first_tag(text, n);
    size_t most = tag ? (size_t)(tag - text) : n;
    for (size_t k = sizeof TOOL_CALL - 1; !tag && k > 0; k--) {
        if (k > n) continue;
        const char *end = text + n - k;
        if ((k < sizeof TOOL_CALL && !memcmp(end, TOOL_CALL, k)) ||
            (k < sizeof FUNCTION && !memcmp(end, FUNCTION, k))) {
            most = n - k;
            break;
        }
    }
    while (most && strchr(" \t\r\n", text[most - 1])) most--; /* it goes with the call */
    return most;
}

void api_json_calls(struct api_call *a, struct json *j, const struct api_choice *x,
                    const struct api_tool_calls *calls, bool indices)
{
    json_open(j, "tool_calls", '[');
    for (uint32_t i = 0; i < calls->n; i++) {
        char id[80], *text = NULL;
        size_t n = 0;
        snprintf(id, sizeof id, "call_%s_%u_%u", a->id + strlen(a->kind->id_prefix), x->index, i);
        struct json inner = {.f = open_memstream(&text, &n)};
        if (inner.f) {
            api_json_value(&inner, NULL, &calls->arguments[i]);
            fclose(inner.f);
        }
        json_open(j, NULL, '{');
        if (indices) json_int(j, "index", i);
        json_string(j, "id", id);
        json_string(j, "type", "function");
        json_open(j, "function", '{');
        lm_json_text(j, "name", calls->name[i].u.s, calls->name[i].len);
        lm_json_text(j, "arguments", text ? text : "", text ? n : 0);
        json_close(j, '}');
        json_close(j, '}');
        free(text);
    }
    json_close(j, ']');
}
