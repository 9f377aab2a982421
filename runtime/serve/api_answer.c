// SPDX-License-Identifier: Apache-2.0
/* Answers of conversations, told apart into reasoning, content and calls of tools. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "runtime/serve/api.h"

static bool is_tool(void *user, const char *name, size_t n)
{
    const struct api_answer *w = user;
    return api_is_tool(w->of, name, n);
}

static struct api_answer_call *add_call(struct api_answer *w)
{
    if (w->n_calls == w->cap_calls) {
        uint32_t cap = 2 * w->cap_calls + 2;
        struct api_answer_call *v = realloc(w->calls, cap * sizeof *v);
        if (!v) return NULL;
        w->calls = v, w->cap_calls = cap;
    }
    w->calls[w->n_calls] = (struct api_answer_call){0};
    return &w->calls[w->n_calls++];
}

static void on_event(void *user, const struct tool_event *e)
{
    struct api_answer *w = user;
    uint32_t most = w->of->p.parallel_calls ? API_MAX_CALLS : 1;
    struct work_bytes *to = NULL;
    switch (e->kind) {
    case TOOL_CONTENT:
        if (!w->of->forced) to = &w->content; /* else the beginning of a call that was cut off */
        break;
    case TOOL_REASONING: to = &w->reasoning; break;
    case TOOL_BEGIN: {
        w->dropping = w->n_calls == most;
        struct api_answer_call *c = w->dropping ? NULL : add_call(w);
        w->no_memory |= !c && !w->dropping;
        to = c ? &c->name : NULL;
        break;
    }
    case TOOL_ARGUMENTS:
        if (w->n_calls && !w->dropping) to = &w->calls[w->n_calls - 1].arguments;
        break;
    case TOOL_END: break;
    }
    if (to) w->no_memory |= !work_append(to, e->text, e->n);
}

static bool begin(struct api_call *a, struct api_answer *w)
{
    /* without tools nothing is a call, but gpt-oss's channels are there always */
    enum tool_family f = a->tools || a->family == TOOL_GPT_OSS ? a->family : TOOL_NONE;
    w->of = a;
    w->parser = tool_parser_create(f, a->reasoning, a->in_reasoning, on_event, w);
    if (!w->parser) return false;
    tool_parser_names(w->parser, is_tool);
    return !a->forced || tool_parser_push(w->parser, a->forced, strlen(a->forced));
}

bool api_answer_push(struct api_call *a, struct api_choice *x, const char *text, size_t n)
{
    struct api_answer *w = &x->answer;
    size_t before = w->reasoning.n;
    if (!w->parser && !begin(a, w)) return false;
    bool ok = tool_parser_push(w->parser, text, n);
    w->n_reasoning_tokens += w->reasoning.n > before;
    return ok && !w->no_memory;
}

void api_answer_finish(struct api_call *a, struct api_choice *x)
{
    if (!x->answer.parser && !begin(a, &x->answer)) return;
    tool_parser_finish(x->answer.parser);
}

void api_answer_whole(struct api_call *a, struct api_choice *x)
{
    struct api_events i = {x->events.p, x->events.n, 0};
    const struct lm_logprob *top;
    const char *text;
    struct work_event e;
    while (api_next(&i, &e, &top, &text))
        if (!e.of_prompt && !api_answer_push(a, x, text, e.n_text)) break;
    api_answer_finish(a, x);
}

/* ---- streams ---- */

static void be_in(struct api_call *a, struct api_choice *x, int32_t part)
{
    if (a->c && x->part != part) a->kind->be_in(a, x, part);
}

static void send_text(struct api_call *a, struct api_choice *x, int32_t part,
                      const struct work_bytes *text, size_t *sent)
{
    size_t from = *sent;
    if (from >= text->n) return;
    be_in(a, x, part);
    if (!a->c) return;
    *sent = text->n;
    a->kind->delta(a, x, text->p + from, text->n - from);
}

static void send_new(struct api_call *a, struct api_choice *x)
{
    struct api_answer *w = &x->answer;
    send_text(a, x, API_REASONING, &w->reasoning, &w->reasoning_sent);
    send_text(a, x, API_CONTENT, &w->content, &w->content_sent);
    for (uint32_t i = 0; i < w->n_calls; i++) {
        struct api_answer_call *c = &w->calls[i];
        if (!c->told) be_in(a, x, API_CALL + (int32_t)i);
        c->told = true;
        send_text(a, x, API_CALL + (int32_t)i, &c->arguments, &c->sent);
    }
}

void api_answer_event(struct api_call *a, struct api_choice *x, const struct work_event *e,
                      const struct lm_logprob *top, const char *text)
{
    (void)top;
    if (!api_answer_push(a, x, text, e->n_text)) x->work.no_memory = true;
    send_new(a, x);
}

void api_answer_end(struct api_call *a, struct api_choice *x)
{
    api_answer_finish(a, x);
    send_new(a, x);
    if (!x->parts) be_in(a, x, API_CONTENT);
}

/* ---- what is said of an answer ---- */

void api_answer_deinit(struct api_answer *w)
{
    tool_parser_destroy(w->parser);
    for (uint32_t i = 0; i < w->n_calls; i++) {
        free(w->calls[i].name.p);
        free(w->calls[i].arguments.p);
    }
    free(w->calls);
    free(w->reasoning.p);
    free(w->content.p);
}

bool api_answer_calls(const struct api_choice *x)
{
    return x->answer.n_calls && !strcmp(api_finish(x), "stop");
}

void api_call_id(const struct api_call *a, const struct api_choice *x, uint32_t i, char *out,
                 size_t cap)
{
    snprintf(out, cap, "call_%s_%u_%u", a->id + strlen(a->kind->id_prefix), x->index, i);
}

void api_json_arguments(struct json *j, const char *key, const struct api_answer_call *c)
{
    struct json_read_error error;
    struct jinja_value v;
    struct jinja_arena *arena = jinja_arena_create(64 * c->arguments.n + (1u << 16));
    bool ok = arena && json_read(arena, c->arguments.p ? c->arguments.p : "", c->arguments.n, &v,
                                 &error) && v.kind == JINJA_DICT;
    if (ok) {
        api_json_value(j, key, &v);
    } else {
        json_open(j, key, '{');
        lm_json_text(j, "INVALID_JSON", c->arguments.p ? c->arguments.p : "", c->arguments.n);
        json_close(j, '}');
    }
    jinja_arena_destroy(arena);
}
