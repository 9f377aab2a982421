// SPDX-License-Identifier: Apache-2.0
/*
 * Tools of a request. The template shows them to the model, which writes calls in the way of its
 * family (runtime/grammar/tool.h); with tool_choice required or a named tool the answer is held to a
 * call whose arguments fit the schema. Anthropic's and Responses' forms become those of chat
 * completions first.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "runtime/serve/api.h"

enum { MAX_TOOLS = 128 };

static bool bad(struct api_call *a, const char *param, const char *what)
{
    server_error(a->c, 400, param, "%s: %s", param, what);
    return false;
}

static bool no_memory(struct api_call *a)
{
    server_error(a->c, 503, NULL, "no memory for the request");
    return false;
}

static const struct jinja_dict *function_of(const struct jinja_value *tool)
{
    const struct jinja_value *f =
        tool->kind == JINJA_DICT ? api_field(tool->u.dict, "function") : NULL;
    return f && f->kind == JINJA_DICT ? f->u.dict : NULL;
}

static const struct jinja_value *find_tool(const struct jinja_value *tools, const char *name,
                                           size_t n)
{
    for (uint32_t i = 0; tools && i < tools->u.list->count; i++) {
        const struct jinja_value *x = api_field(function_of(&tools->u.list->items[i]), "name");
        if (x->len == n && !memcmp(x->u.s, name, n)) return &tools->u.list->items[i];
    }
    return NULL;
}

bool api_is_tool(const struct api_call *a, const char *name, size_t n)
{
    return find_tool(a->p.tools, name, n) != NULL;
}

/* ---- forms ---- */

/* {"name", "description", "input_schema" or "parameters"} as {"type": "function", "function": ...} */
static bool wrap(struct api_call *a, const struct jinja_dict *from, struct jinja_value *out)
{
    static const char *const skipped[] = {"type", "cache_control", "strict", "eager_input_streaming"};
    struct jinja_value f, type;
    if (!jinja_dict_init(a->arena, from->count + 1, &f) || !jinja_dict_init(a->arena, 2, out) ||
        !jinja_str_view("function", 8, &type))
        return false;
    for (uint32_t i = 0; i < from->count; i++) {
        const struct jinja_pair *p = &from->pairs[i];
        size_t k = 0;
        while (k < 4 && !api_is(&p->key, skipped[k])) k++;
        if (k < 4) continue;
        bool ok = api_is(&p->key, "input_schema")
                      ? jinja_dict_put_name(a->arena, f.u.dict, "parameters", p->value)
                      : jinja_dict_put(a->arena, f.u.dict, p->key, p->value);
        if (!ok) return false;
    }
    return jinja_dict_put_name(a->arena, out->u.dict, "type", type) &&
           jinja_dict_put_name(a->arena, out->u.dict, "function", f);
}

static bool wrap_tools(struct api_call *a)
{
    const struct jinja_value *from = a->p.tools;
    struct jinja_value *out = jinja_arena_alloc(a->arena, sizeof *out, 8), one;
    if (from->kind != JINJA_LIST) return true; /* is refused later */
    if (!out || !jinja_list_init(a->arena, from->u.list->count + 1, out)) return no_memory(a);
    for (uint32_t i = 0; i < from->u.list->count; i++) {
        const struct jinja_value *t = &from->u.list->items[i];
        const struct jinja_value *type = t->kind == JINJA_DICT ? api_field(t->u.dict, "type") : NULL;
        if (t->kind != JINJA_DICT || (type && !api_is(type, "function") && !api_is(type, "custom")))
            return bad(a, "tools", "this server runs no tools of its own: each is a function");
        if (!wrap(a, t->u.dict, &one) || !jinja_list_append(a->arena, out->u.list, one))
            return no_memory(a);
    }
    a->p.tools = out;
    return true;
}

static bool check_name(struct api_call *a, const struct jinja_value *name)
{
    for (uint32_t k = 0; k < name->len; k++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.",
                    name->u.s[k]))
            return bad(a, "tools", "a name has letters, digits, _ - and . alone");
    return true;
}

static bool check_tools(struct api_call *a)
{
    const struct jinja_value *tools = a->p.tools;
    if (tools->kind != JINJA_LIST) return bad(a, "tools", "is a list");
    if (tools->u.list->count > MAX_TOOLS) return bad(a, "tools", "there can be 128");
    for (uint32_t i = 0; i < tools->u.list->count; i++) {
        const struct jinja_value *t = &tools->u.list->items[i];
        const struct jinja_value *type = t->kind == JINJA_DICT ? api_field(t->u.dict, "type") : NULL;
        const struct jinja_dict *f = function_of(t);
        const struct jinja_value *name = f ? api_field(f, "name") : NULL;
        const struct jinja_value *parameters = f ? api_field(f, "parameters") : NULL;
        if (!api_is(type, "function") || !name || name->kind != JINJA_STR || !name->len ||
            name->len > 128)
            return bad(a, "tools", "each is {\"type\": \"function\", \"function\": {\"name\": ...}}");
        if (!check_name(a, name)) return false;
        if (parameters && parameters->kind != JINJA_DICT)
            return bad(a, "tools", "parameters are a JSON Schema");
    }
    return true;
}

/* ---- answers that must be a call ---- */

static bool take_forced(struct api_call *a, const struct tool_function *f, size_t n)
{
    char *grammar;
    bool several = a->p.parallel_calls && a->tools != API_TOOLS_NAMED; /* that one, once */
    if (!tool_forced(a->family, f, n, several, &a->forced, &grammar)) return no_memory(a);
    bool ok = api_take_grammar(a, GR_STRUCTURAL_TAG, grammar, strlen(grammar), "tools");
    free(grammar);
    return ok;
}

/* One of the tools first..first+n-1. */
static bool require(struct api_call *a, const struct jinja_value *first, size_t n)
{
    static const char none[] = "{\"type\":\"object\",\"additionalProperties\":false}";
    struct tool_function f[MAX_TOOLS];
    char *texts[MAX_TOOLS] = {0};
    bool ok = true;
    for (size_t i = 0; i < n; i++) {
        const struct jinja_dict *d = function_of(&first[i]);
        const struct jinja_value *name = api_field(d, "name"), *p = api_field(d, "parameters");
        f[i] = (struct tool_function){name->u.s, name->len, none, sizeof none - 1};
        if (!p || !p->u.dict->count) continue; /* no parameters: no arguments */
        struct json j = {.f = open_memstream(&texts[i], &f[i].n_parameters)};
        if (!(ok = ok && j.f)) continue;
        api_json_value(&j, NULL, p);
        fclose(j.f);
        f[i].parameters = texts[i];
        ok = texts[i] != NULL;
    }
    ok = ok ? take_forced(a, f, n) : no_memory(a);
    for (size_t i = 0; i < n; i++) free(texts[i]);
    return ok;
}

/* The name in {"type": "function", "function": {"name"}} or {"type": "function" or "tool", "name"}. */
static const struct jinja_value *chosen(const struct jinja_value *choice)
{
    const struct jinja_value *f =
        choice->kind == JINJA_DICT ? api_field(choice->u.dict, "function") : NULL;
    const struct jinja_dict *in = f && f->kind == JINJA_DICT ? f->u.dict
                                  : choice->kind == JINJA_DICT ? choice->u.dict
                                                               : NULL;
    const struct jinja_value *name = in ? api_field(in, "name") : NULL;
    return name && name->kind == JINJA_STR ? name : NULL;
}

/* Marks of calls that are control tokens are to be seen. */
static void show_marks(struct api_call *a)
{
    const char *mark = tool_family_mark(a->family);
    const struct tok *t = &a->s->x.text.tok;
    struct tok_info info;
    uint32_t id = mark ? tok_find_added(t, mark, strlen(mark)) : TOK_NONE;
    if (id != TOK_NONE && !tok_token_info(t, id, &info) && info.type == TOK_TYPE_CONTROL)
        a->p.d.show_special = true;
}

static bool settle_choice(struct api_call *a, const struct jinja_value *choice)
{
    const struct jinja_value *type =
        choice && choice->kind == JINJA_DICT ? api_field(choice->u.dict, "type") : choice;
    if (!choice || api_is(type, "auto")) return a->tools = API_TOOLS_AUTO, true;
    a->tools = API_TOOLS_REQUIRED;
    if (api_is(type, "required") || api_is(type, "any"))
        return require(a, a->p.tools->u.list->items, a->p.tools->u.list->count);
    const struct jinja_value *name = chosen(choice);
    const struct jinja_value *tool = name ? find_tool(a->p.tools, name->u.s, name->len) : NULL;
    if (!tool) return bad(a, "tool_choice", "names none of the tools");
    a->tools = API_TOOLS_NAMED;
    return require(a, tool, 1);
}

static bool is_none(const struct jinja_value *choice)
{
    return choice && (api_is(choice, "none") ||
                      (choice->kind == JINJA_DICT && api_is(api_field(choice->u.dict, "type"), "none")));
}

bool api_settle_tools(struct api_call *a)
{
    const struct jinja_value *choice = a->p.tool_choice;
    size_t n;
    const char *source = api_template_source(a->s, &n);
    a->family = tool_family_of(source, n);
    if (a->family == TOOL_GPT_OSS) a->p.d.show_special = true;
    if (a->p.tools && a->kind->endpoint != API_CHAT && !wrap_tools(a)) return false;
    if (a->p.tools && !check_tools(a)) return false;
    if (a->p.tools && !a->p.tools->u.list->count) a->p.tools = NULL;
    if (choice && choice->kind == JINJA_DICT) { /* Anthropic's place for it */
        const struct jinja_value *one = api_field(choice->u.dict, "disable_parallel_tool_use");
        if (one && one->kind != JINJA_BOOL)
            return bad(a, "tool_choice", "disable_parallel_tool_use is true or false");
        if (one && one->u.b) a->p.parallel_calls = false;
    }
    if (!a->p.tools) {
        if (!choice || is_none(choice) || api_is(choice, "auto") ||
            (choice->kind == JINJA_DICT && api_is(api_field(choice->u.dict, "type"), "auto")))
            return true;
        return bad(a, "tool_choice", "there are no tools");
    }
    if (is_none(choice)) {
        a->p.tools = NULL;
        return true;
    }
    if (a->family == TOOL_NONE)
        return bad(a, "tools", "this model's template writes calls in a way that is not supported");
    show_marks(a);
    return settle_choice(a, choice);
}
