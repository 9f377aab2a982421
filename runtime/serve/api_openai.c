// SPDX-License-Identifier: Apache-2.0
/* /v1/completions and /v1/chat/completions, whole and streamed. */
#include <stdlib.h>
#include <string.h>

#include "runtime/serve/api.h"
#include "runtime/text/unicode_utf8.h"

/* ---- log probabilities ---- */

/* The token's own bytes, which may be part of a character. */
static void json_bytes(struct json *j, const struct tok *t, uint32_t id)
{
    struct tok_info info;
    if (tok_token_info(t, id, &info)) info.n_bytes = 0;
    json_open(j, "bytes", '[');
    for (size_t i = 0; i < info.n_bytes; i++) json_int(j, NULL, info.bytes[i]);
    json_close(j, ']');
}

static void chat_logprob(struct api_call *a, struct json *j, const struct work_event *e,
                         const struct lm_logprob *top)
{
    const struct tok *t = &a->s->x.text.tok;
    json_open(j, NULL, '{');
    lm_json_token(j, "token", t, e->token);
    json_number(j, "logprob", (double)e->logprob);
    json_bytes(j, t, e->token);
    json_open(j, "top_logprobs", '[');
    for (uint32_t i = 0; i < e->n_top && (int64_t)i < a->p.top_logprobs; i++) {
        json_open(j, NULL, '{');
        lm_json_token(j, "token", t, top[i].token);
        json_number(j, "logprob", (double)top[i].logprob);
        json_bytes(j, t, top[i].token);
        json_close(j, '}');
    }
    json_close(j, ']');
    json_close(j, '}');
}

static void open_chat_logprobs(struct json *j)
{
    json_open(j, "logprobs", '{');
    json_open(j, "content", '[');
}

static void close_chat_logprobs(struct json *j)
{
    json_close(j, ']');
    json_null(j, "refusal");
    json_close(j, '}');
}

/* Do tokens read alike? Different bytes that are no characters alone do, too. */
static bool same_text(const struct tok *t, uint32_t x, uint32_t y)
{
    struct tok_info a, b;
    uint8_t u[64], v[64];
    if (tok_token_info(t, x, &a) || tok_token_info(t, y, &b)) return false;
    size_t n = utf8_repaired_size(a.bytes, a.n_bytes);
    if (n != utf8_repaired_size(b.bytes, b.n_bytes)) return false;
    if (n > sizeof u) return a.n_bytes == b.n_bytes && !memcmp(a.bytes, b.bytes, a.n_bytes);
    utf8_repair(a.bytes, a.n_bytes, u);
    utf8_repair(b.bytes, b.n_bytes, v);
    return !memcmp(u, v, n);
}

/* Which of the four lists of a completion's logprobs. */
enum list { TOKENS, TOKEN_LOGPROBS, TOP_LOGPROBS, TEXT_OFFSET };

static void list_item(struct api_call *a, struct json *j, enum list which,
                      const struct work_event *e, const struct lm_logprob *top, uint32_t offset,
                      bool first_of_prompt)
{
    const struct tok *t = &a->s->x.text.tok;
    switch (which) {
    case TOKENS: lm_json_token(j, NULL, t, e->token); break;
    case TOKEN_LOGPROBS:
        if (first_of_prompt) json_null(j, NULL);
        else json_number(j, NULL, (double)e->logprob);
        break;
    case TEXT_OFFSET: json_int(j, NULL, offset); break;
    case TOP_LOGPROBS:
        if (first_of_prompt || !e->n_top || !a->p.logprobs) {
            json_null(j, NULL);
            break;
        }
        json_open(j, NULL, '{');
        for (uint32_t i = 0; i < e->n_top && (int64_t)i < a->p.logprobs; i++) {
            /* of tokens that read alike the best one: a key is there once */
            uint32_t k = 0;
            while (k < i && !same_text(t, top[k].token, top[i].token)) k++;
            if (k < i) continue;
            /* as a key: the text of the token, written as a value and given a colon */
            lm_json_token(j, NULL, t, top[i].token);
            fputc(':', j->f);
            j->comma = false;
            json_number(j, NULL, (double)top[i].logprob);
        }
        json_close(j, '}');
        break;
    }
}

static uint32_t token_chars(const struct api_call *a, uint32_t token)
{
    struct tok_info info;
    if (tok_token_info(&a->s->x.text.tok, token, &info)) return 0;
    return api_chars((const char *)info.bytes, info.n_bytes);
}

/* One of the lists over all events of a buffer; x->n_chars is where its text begins. */
static void logprob_list(struct api_call *a, struct json *j, const char *key, enum list which,
                         struct api_choice *x, struct api_events i, bool whole)
{
    const struct lm_logprob *top;
    const char *text;
    struct work_event e;
    const struct api_prompt *p = &a->prompts[x->prompt];
    uint32_t at = whole ? 0 : x->n_chars;
    json_open(j, key, '[');
    if (whole && a->p.echo && p->n) {
        struct work_event first = {.token = p->ids[0]};
        list_item(a, j, which, &first, NULL, 0, true);
        at += p->n_text ? token_chars(a, first.token) : 0;
    }
    while (api_next(&i, &e, &top, &text)) {
        if (e.token == LM_NO_TOKEN || (e.of_prompt && !a->p.echo)) continue;
        list_item(a, j, which, &e, top, at, false);
        at += e.of_prompt ? token_chars(a, e.token) : api_chars(text, e.n_text);
    }
    json_close(j, ']');
}

static void completion_logprobs(struct api_call *a, struct json *j, struct api_choice *x,
                                struct api_events i, bool whole)
{
    if (!a->p.logprobs_given) {
        json_null(j, "logprobs");
        return;
    }
    json_open(j, "logprobs", '{');
    logprob_list(a, j, "text_offset", TEXT_OFFSET, x, i, whole);
    logprob_list(a, j, "token_logprobs", TOKEN_LOGPROBS, x, i, whole);
    logprob_list(a, j, "tokens", TOKENS, x, i, whole);
    logprob_list(a, j, "top_logprobs", TOP_LOGPROBS, x, i, whole);
    json_close(j, '}');
}

/* vLLM's: a row for each token of the prompt, by token ids; nothing comes before the first one. */
static void json_prompt_logprobs(struct api_call *a, struct json *j, const struct api_choice *x)
{
    struct api_events i = {x->events.p, x->events.n, 0};
    const struct tok *t = &a->s->x.text.tok;
    const struct lm_logprob *top;
    struct work_event e;
    const char *text;
    char id[16];
    if (a->p.prompt_logprobs < 0) return;
    json_open(j, "prompt_logprobs", '[');
    json_null(j, NULL);
    while (api_next(&i, &e, &top, &text)) {
        if (!e.of_prompt) continue;
        uint32_t n = e.n_top < (uint32_t)a->p.prompt_logprobs ? e.n_top : (uint32_t)a->p.prompt_logprobs;
        uint32_t rank = 0;
        while (rank < e.n_top && top[rank].token != e.token) rank++;
        json_open(j, NULL, '{');
        for (uint32_t k = 0; k <= n; k++) {
            bool own = k == n; /* the prompt's token, unless it is one of the best */
            if (own && rank < n) continue;
            snprintf(id, sizeof id, "%u", own ? e.token : top[k].token);
            json_open(j, id, '{');
            json_number(j, "logprob", (double)(own ? e.logprob : top[k].logprob));
            if (!own || rank < e.n_top) json_int(j, "rank", (own ? rank : k) + 1);
            else json_null(j, "rank");
            lm_json_token(j, "decoded_token", t, own ? e.token : top[k].token);
            json_close(j, '}');
        }
        json_close(j, '}');
    }
    json_close(j, ']');
}

/* ---- what all objects begin with ---- */

static struct json *open_object(struct api_call *a, const char *object)
{
    struct json *j = server_json(a->s);
    json_open(j, NULL, '{');
    json_string(j, "id", a->id);
    json_string(j, "object", object);
    json_int(j, "created", a->created);
    json_string(j, "model", a->s->o.model_name);
    json_string(j, "system_fingerprint", a->s->fingerprint);
    return j;
}

static void send_usage(struct api_call *a)
{
    if (a->p.include_usage || a->s->o.receipts) {
        struct json *j = open_object(a, a->kind->object);
        json_open(j, "choices", '[');
        json_close(j, ']');
        if (a->p.include_usage) {
            api_json_usage(a, j);
            api_json_timings(j, &a->choices[0].work.job);
        }
        api_json_receipt(a, j);
        json_close(j, '}');
        if (!api_send(a, NULL)) return;
    }
    api_send_done(a);
}

/* All choices together, as the usage behind the last part has them. */
static void usage_so_far(struct api_call *a, struct json *j)
{
    uint64_t prompt = 0, answer = 0;
    if (!a->p.usage_so_far) return;
    for (uint32_t i = 0; i < a->n_prompts; i++) prompt += a->prompts[i].n;
    for (uint32_t i = 0; i < a->n_choices; i++) answer += a->choices[i].n_tokens;
    json_open(j, "usage", '{');
    json_int(j, "prompt_tokens", (int64_t)prompt);
    json_int(j, "completion_tokens", (int64_t)answer);
    json_int(j, "total_tokens", (int64_t)(prompt + answer));
    json_close(j, '}');
}

/* ---- completions ---- */

static void json_echo(struct api_call *a, struct json *j, const struct api_choice *x)
{
    const struct api_prompt *p = &a->prompts[x->prompt];
    char *text;
    size_t n;
    struct infr_status st;
    if (p->text) {
        lm_json_add_text(j, p->text, p->n_text);
    } else if (!lm_text_decode(&a->s->x.text, p->ids, p->n, TOK_DECODE_SPECIAL, &text, &n, &st)) {
        lm_json_add_text(j, text, n);
        free(text);
    }
}

static void completion_event(struct api_call *a, struct api_choice *x, const struct work_event *e,
                             const struct lm_logprob *top, const char *text)
{
    if (e->token == LM_NO_TOKEN && !e->n_text) return;
    struct json *j = open_object(a, "text_completion");
    struct api_events one = {(const char *)top - sizeof *e, SIZE_MAX, 0};
    one.n = sizeof *e + e->n_top * sizeof *top + (e->n_text + 7u) / 8 * 8;
    json_open(j, "choices", '[');
    json_open(j, NULL, '{');
    json_int(j, "index", x->index);
    lm_json_begin_text(j, "text");
    if (a->p.echo && !x->begun) json_echo(a, j, x);
    lm_json_add_text(j, text, e->of_prompt ? 0 : e->n_text);
    lm_json_end_text(j);
    completion_logprobs(a, j, x, one, false);
    json_null(j, "finish_reason");
    json_close(j, '}');
    json_close(j, ']');
    usage_so_far(a, j);
    json_close(j, '}');
    x->n_chars += api_chars(text, e->n_text);
    x->begun = true;
    api_send(a, NULL);
}

static void completion_end(struct api_call *a, struct api_choice *x)
{
    struct json *j = open_object(a, "text_completion");
    json_open(j, "choices", '[');
    json_open(j, NULL, '{');
    json_int(j, "index", x->index);
    lm_json_begin_text(j, "text");
    if (a->p.echo && !x->begun) json_echo(a, j, x);
    lm_json_end_text(j);
    json_null(j, "logprobs");
    json_string(j, "finish_reason", api_finish(x));
    json_close(j, '}');
    json_close(j, ']');
    usage_so_far(a, j);
    json_close(j, '}');
    api_send(a, NULL);
}

/* best_of: the n choices of a prompt with the best mean log probability, best first. */
static int by_score(const void *p, const void *q)
{
    const struct api_choice *x = *(struct api_choice *const *)p, *y = *(struct api_choice *const *)q;
    double a = x->n_scored ? x->score / x->n_scored : 0, b = y->n_scored ? y->score / y->n_scored : 0;
    if (a != b) return a > b ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

static void completion_choice(struct api_call *a, struct json *j, struct api_choice *x,
                              uint32_t index)
{
    struct api_events all = {x->events.p, x->events.n, 0}, i = all;
    const struct lm_logprob *top;
    const char *text;
    struct work_event e;
    json_open(j, NULL, '{');
    json_int(j, "index", index);
    lm_json_begin_text(j, "text");
    if (a->p.echo) json_echo(a, j, x);
    while (api_next(&i, &e, &top, &text))
        if (!e.of_prompt) lm_json_add_text(j, text, e.n_text);
    lm_json_end_text(j);
    completion_logprobs(a, j, x, all, true);
    json_prompt_logprobs(a, j, x);
    json_string(j, "finish_reason", api_finish(x));
    json_close(j, '}');
}

static void completion_whole(struct api_call *a)
{
    struct api_choice *order[MAX_CHOICES];
    struct json *j = open_object(a, "text_completion");
    uint32_t each = a->n_choices / a->n_prompts, n = 0;
    json_open(j, "choices", '[');
    for (uint32_t p = 0; p < a->n_prompts; p++) {
        for (uint32_t i = 0; i < each; i++) order[i] = &a->choices[p * each + i];
        if (a->p.best_of > a->p.n) qsort(order, each, sizeof(struct api_choice *), by_score);
        for (uint32_t i = 0; i < (uint32_t)a->p.n; i++) completion_choice(a, j, order[i], n++);
    }
    json_close(j, ']');
    api_json_usage(a, j);
    api_json_timings(j, &a->choices[0].work.job);
    api_json_receipt(a, j);
    json_close(j, '}');
}

static const struct api_kind completions = {.endpoint = API_COMPLETIONS,
                                            .id_prefix = "cmpl-",
                                            .object = "text_completion",
                                            .event = completion_event,
                                            .choice_end = completion_end,
                                            .end = send_usage,
                                            .whole = completion_whole};

static bool add_ids(struct api_call *a, const struct jinja_list *l)
{
    uint32_t *ids = malloc((l->count + 1) * sizeof *ids);
    if (!ids) {
        api_refuse(a, 503, NULL, "no memory for the request");
        return false;
    }
    for (uint32_t i = 0; i < l->count; i++) {
        const struct jinja_value *v = &l->items[i];
        if (v->kind != JINJA_INT || v->u.i < 0 || v->u.i >= a->s->x.model->vocab) {
            free(ids);
            api_refuse(a, 400, "prompt", "prompt: token ids are 0 to %u",
                       a->s->x.model->vocab - 1);
            return false;
        }
        ids[i] = (uint32_t)v->u.i;
    }
    return api_add_tokens(a, ids, l->count, NULL, 0);
}

/* A string, tokens, or a list of either. False: replied. */
static bool add_prompts(struct api_call *a)
{
    const struct jinja_value *v = a->p.prompt;
    unsigned flags = TOK_ENCODE_SPECIAL | (a->p.add_special ? TOK_ENCODE_BOS : 0);
    if (v && v->kind == JINJA_STR) return api_add_text(a, v->u.s, v->len, flags);
    if (!v || v->kind != JINJA_LIST || !v->u.list->count) {
        api_refuse(a, 400, "prompt", "prompt is a string, a list of tokens, or a list of these");
        return false;
    }
    const struct jinja_list *l = v->u.list;
    if (l->items[0].kind == JINJA_INT) return add_ids(a, l);
    if (l->count > MAX_PROMPTS) {
        api_refuse(a, 400, "prompt", "%u prompts; there can be %d", l->count, MAX_PROMPTS);
        return false;
    }
    for (uint32_t i = 0; i < l->count; i++) {
        const struct jinja_value *x = &l->items[i];
        if (x->kind != JINJA_STR && x->kind != JINJA_LIST) {
            api_refuse(a, 400, "prompt", "prompt: item %u is neither a string nor tokens", i);
            return false;
        }
        if (x->kind == JINJA_STR ? !api_add_text(a, x->u.s, x->len, flags)
                                 : !add_ids(a, x->u.list))
            return false;
    }
    return true;
}

void api_completions(struct server *s, struct http_conn *c)
{
    struct api_call *a = api_begin(s, c, &completions);
    if (a && add_prompts(a)) api_start(a);
}

/* ---- chat ---- */

static struct json *open_chunk(struct api_call *a, const struct api_choice *x)
{
    struct json *j = open_object(a, "chat.completion.chunk");
    json_open(j, "choices", '[');
    json_open(j, NULL, '{');
    json_int(j, "index", x->index);
    json_open(j, "delta", '{');
    return j;
}

static void close_chunk(struct api_call *a, struct json *j, const struct api_choice *x,
                        const char *finish)
{
    if (finish) json_string(j, "finish_reason", finish);
    else json_null(j, "finish_reason");
    json_close(j, '}');
    json_close(j, ']');
    usage_so_far(a, j);
    if (x->begun) api_json_seen(a, j, x);
    json_close(j, '}');
    api_send(a, NULL);
}

static void chat_role(struct api_call *a, struct api_choice *x)
{
    struct json *j = open_chunk(a, x);
    json_string(j, "role", "assistant");
    json_null(j, "content");
    json_close(j, '}');
    json_null(j, "logprobs");
    close_chunk(a, j, x, NULL);
    x->begun = true;
}

/* One call's delta: its name when it begins, and what is new of its arguments. */
static void chat_call(struct api_call *a, struct json *j, struct api_choice *x, uint32_t i)
{
    struct api_answer_call *c = &x->answer.calls[i];
    char id[80];
    api_call_id(a, x, i, id, sizeof id);
    json_open(j, NULL, '{');
    json_int(j, "index", i);
    if (!c->told) {
        json_string(j, "id", id);
        json_string(j, "type", "function");
    }
    json_open(j, "function", '{');
    if (!c->told) lm_json_text(j, "name", c->name.p ? c->name.p : "", c->name.n);
    lm_json_text(j, "arguments", c->arguments.p ? c->arguments.p + c->sent : "",
                 c->arguments.n - c->sent);
    json_close(j, '}');
    json_close(j, '}');
    c->told = true, c->sent = c->arguments.n;
}

/* What is new of the answer as one delta; force: even when that is nothing. */
static struct json *open_delta(struct api_call *a, struct api_choice *x, bool force)
{
    struct api_answer *w = &x->answer;
    uint32_t first = w->n_calls;
    while (first && (!w->calls[first - 1].told || w->calls[first - 1].sent < w->calls[first - 1].arguments.n))
        first--;
    bool text = w->content.n > w->content_sent, thought = w->reasoning.n > w->reasoning_sent;
    if (!text && !thought && first == w->n_calls && !force) return NULL;
    struct json *j = open_chunk(a, x);
    if (thought)
        lm_json_text(j, "reasoning_content", w->reasoning.p + w->reasoning_sent,
                     w->reasoning.n - w->reasoning_sent);
    if (text)
        lm_json_text(j, "content", w->content.p + w->content_sent, w->content.n - w->content_sent);
    w->reasoning_sent = w->reasoning.n, w->content_sent = w->content.n;
    if (first < w->n_calls) {
        json_open(j, "tool_calls", '[');
        for (; first < w->n_calls; first++) chat_call(a, j, x, first);
        json_close(j, ']');
    }
    json_close(j, '}');
    return j;
}

static void chat_event(struct api_call *a, struct api_choice *x, const struct work_event *e,
                       const struct lm_logprob *top, const char *text)
{
    bool logprobs = a->p.logprobs_on && e->token != LM_NO_TOKEN;
    if (!x->begun) chat_role(a, x);
    if (!a->c) return;
    if (!api_answer_push(a, x, text, e->n_text)) x->work.no_memory = true;
    struct json *j = open_delta(a, x, logprobs);
    if (!j) return;
    if (logprobs) {
        open_chat_logprobs(j);
        chat_logprob(a, j, e, top);
        close_chat_logprobs(j);
    } else
        json_null(j, "logprobs");
    close_chunk(a, j, x, NULL);
}

static void chat_progress(struct api_call *a, struct api_choice *x, const struct work_event *e)
{
    if (!x->begun) chat_role(a, x);
    if (!a->c) return;
    struct json *j = open_object(a, a->kind->object);
    json_open(j, "choices", '[');
    json_open(j, NULL, '{');
    json_int(j, "index", x->index);
    json_open(j, "delta", '{');
    json_close(j, '}');
    json_null(j, "finish_reason");
    json_close(j, '}');
    json_close(j, ']');
    api_json_progress(a, j, x, e);
    json_close(j, '}');
    api_send(a, NULL);
}

static const char *chat_finish(const struct api_choice *x)
{
    return api_answer_calls(x) ? "tool_calls" : api_finish(x);
}

static void chat_end(struct api_call *a, struct api_choice *x)
{
    if (!x->begun) chat_role(a, x);
    api_answer_finish(a, x);
    struct json *j = a->c ? open_delta(a, x, false) : NULL; /* what was held to the end */
    if (j) {
        json_null(j, "logprobs");
        close_chunk(a, j, x, NULL);
    }
    if (!a->c) return;
    j = open_chunk(a, x);
    json_close(j, '}');
    json_null(j, "logprobs");
    close_chunk(a, j, x, chat_finish(x));
}

static void chat_message(struct api_call *a, struct json *j, struct api_choice *x)
{
    const struct api_answer *w = &x->answer;
    json_open(j, "message", '{');
    json_string(j, "role", "assistant");
    if (w->content.n || !w->n_calls)
        lm_json_text(j, "content", w->content.p ? w->content.p : "", w->content.n);
    else json_null(j, "content");
    if (w->reasoning.n) lm_json_text(j, "reasoning_content", w->reasoning.p, w->reasoning.n);
    json_null(j, "refusal");
    if (w->n_calls) {
        json_open(j, "tool_calls", '[');
        for (uint32_t i = 0; i < w->n_calls; i++) {
            const struct api_answer_call *c = &w->calls[i];
            char id[80];
            api_call_id(a, x, i, id, sizeof id);
            json_open(j, NULL, '{');
            json_string(j, "id", id);
            json_string(j, "type", "function");
            json_open(j, "function", '{');
            lm_json_text(j, "name", c->name.p ? c->name.p : "", c->name.n);
            lm_json_text(j, "arguments", c->arguments.p ? c->arguments.p : "", c->arguments.n);
            json_close(j, '}');
            json_close(j, '}');
        }
        json_close(j, ']');
    }
    json_close(j, '}');
}

static void chat_choice(struct api_call *a, struct json *j, struct api_choice *x)
{
    struct api_events i = {x->events.p, x->events.n, 0};
    const struct lm_logprob *top;
    const char *text;
    struct work_event e;
    json_open(j, NULL, '{');
    json_int(j, "index", x->index);
    api_answer_whole(a, x);
    chat_message(a, j, x);
    if (a->p.logprobs_on) {
        open_chat_logprobs(j);
        while (api_next(&i, &e, &top, &text))
            if (e.token != LM_NO_TOKEN && !e.of_prompt) chat_logprob(a, j, &e, top);
        close_chat_logprobs(j);
    } else
        json_null(j, "logprobs");
    json_string(j, "finish_reason", chat_finish(x));
    json_close(j, '}');
}

/* What the model read, for who asks with "verbose". */
static void json_verbose(struct api_call *a, struct json *j)
{
    const struct api_prompt *p = &a->prompts[0];
    struct infr_status st;
    char *text;
    size_t n;
    if (!a->p.verbose) return;
    if (lm_text_decode(&a->s->x.text, p->ids, p->n, TOK_DECODE_SPECIAL, &text, &n, &st)) return;
    json_open(j, "__verbose", '{');
    lm_json_text(j, "prompt", text, n);
    json_close(j, '}');
    free(text);
}

static void chat_whole(struct api_call *a)
{
    struct json *j = open_object(a, "chat.completion");
    json_open(j, "choices", '[');
    for (uint32_t i = 0; i < a->n_choices; i++) chat_choice(a, j, &a->choices[i]);
    json_close(j, ']');
    api_json_usage(a, j);
    api_json_timings(j, &a->choices[0].work.job);
    api_json_receipt(a, j);
    json_prompt_logprobs(a, j, &a->choices[0]);
    json_verbose(a, j);
    json_close(j, '}');
}

static const struct api_kind chat = {.endpoint = API_CHAT,
                                     .id_prefix = "chatcmpl-",
                                     .object = "chat.completion.chunk",
                                     .event = chat_event,
                                     .choice_end = chat_end,
                                     .progress = chat_progress,
                                     .end = send_usage,
                                     .whole = chat_whole};

void api_chat_tokens(struct server *s, struct http_conn *c)
{
    struct api_call *a = api_begin(s, c, &chat);
    if (a && api_add_conversation(a, a->p.messages)) api_reply_tokens(a, NULL);
}

void api_chat(struct server *s, struct http_conn *c)
{
    struct api_call *a = api_begin(s, c, &chat);
    if (a && api_add_conversation(a, a->p.messages)) api_start(a);
}
