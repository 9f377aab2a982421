// SPDX-License-Identifier: Apache-2.0
/* A request for text: from its prompts to jobs of the worker, and from their events to the reply. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/serve/api.h"
#include "runtime/status.h"
#include "runtime/xxh64.h"

/* ---- life ---- */

void api_destroy(struct api_call *a)
{
    for (uint32_t i = 0; i < a->n_choices; i++) {
        work_job_deinit(&a->choices[i].work);
        free(a->choices[i].events.p);
        api_answer_deinit(&a->choices[i].answer);
    }
    api_grammar_leave(a->s, a->grammar);
    for (uint32_t i = 0; i < a->n_prompts; i++) free(a->prompts[i].ids);
    free(a->choices);
    free(a->prompts);
    free(a->forced);
    jinja_arena_destroy(a->arena);
    free(a);
}

void api_refuse(struct api_call *a, int status, const char *param, const char *format, ...)
{
    char text[600];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    struct http_conn *c = a->c;
    server_error(c, status, param, "%s", text);
    api_destroy(a);
}

void api_reply_tokens(struct api_call *a, const char *object)
{
    struct http_conn *c = a->c;
    struct json *j = server_json(a->s);
    json_open(j, NULL, '{');
    if (object) json_string(j, "object", object);
    json_int(j, "input_tokens", a->prompts[0].n);
    json_close(j, '}');
    api_destroy(a);
    server_reply_json(c, 200);
}

struct api_call *api_begin(struct server *s, struct http_conn *c, const struct api_kind *kind)
{
    struct jinja_value body;
    struct api_call *a = calloc(1, sizeof *a);
    if (!a) {
        server_error(c, 503, NULL, "no memory for the request");
        return NULL;
    }
    a->s = s, a->c = c, a->kind = kind;
    a->payer = c->payer;
    a->began = serve_clock();
    a->created = (int64_t)time(NULL);
    if (api_read_body(s, c, &a->arena, &body)) {
        if (!s->o.parallel)
            server_error(c, 501, NULL, "this engine's model does not generate text");
        else if (api_read_params(a, body.u.dict))
            return a;
    }
    api_destroy(a);
    return NULL;
}

/* ---- prompts ---- */

bool api_add_tokens(struct api_call *a, uint32_t *ids, size_t n, const char *text, size_t n_text)
{
    struct infr_status st;
    struct api_prompt *p = realloc(a->prompts, (a->n_prompts + 1) * sizeof *p);
    if (!p) {
        free(ids);
        api_refuse(a, 503, NULL, "no memory for the request");
        return false;
    }
    a->prompts = p;
    a->prompts[a->n_prompts++] =
        (struct api_prompt){ids, n > UINT32_MAX ? UINT32_MAX : (uint32_t)n, text, n_text};
    a->p.d.prompt = ids, a->p.d.n_prompt = (uint32_t)n;
    if (!lm_generator_check(a->s->x.g, &a->p.d, &st)) return true;
    if (n >= a->s->x.n_ctx) {
        a->c->n_prompt_tokens = (uint32_t)n;
        api_refuse(a, 400, "prompt",
                   "the prompt has %zu tokens and exceeds the available context size of %u tokens, the "
                   "answer included",
                   n, a->s->x.n_ctx);
    } else api_refuse(a, 400, "prompt", "%s", st.note);
    return false;
}

bool api_add_text(struct api_call *a, const char *text, size_t n, unsigned encode_flags)
{
    struct infr_status st;
    uint32_t *ids;
    size_t n_ids;
    if (lm_text_encode(&a->s->x.text, text, n, encode_flags, &ids, &n_ids, &st)) {
        api_refuse(a, 400, "prompt", "%s", st.note);
        return false;
    }
    return api_add_tokens(a, ids, n_ids, text, n);
}

/* ---- submission ---- */

/* The peer is gone: its jobs end with the next step. */
static void on_abort(struct http_conn *c)
{
    struct api_call *a = c->call;
    a->c = NULL;
    for (uint32_t i = 0; i < a->n_choices; i++)
        if (!a->choices[i].ended) worker_cancel(&a->choices[i].work);
}

static void begin_stream(struct api_call *a)
{
    if (a->streaming || !a->c) return;
    a->streaming = true;
    http_header(a->c, "Cache-Control: no-cache");
    http_stream_begin(a->c, 200, "text/event-stream; charset=utf-8");
    if (a->kind->begin) a->kind->begin(a);
}

/* Nothing was said for a while: from now on comments keep the connection alive. */
static void on_idle(struct http_conn *c)
{
    struct api_call *a = c->call;
    if (a->p.stream && !a->failed) begin_stream(a);
}

static void make_choices(struct api_call *a)
{
    const char *who = a->p.user ? a->p.user : a->c->peer;
    uint64_t client = rt_xxh64(who, strlen(who));
    double timeout = a->s->o.timeout_s;
    if (a->p.timeout_s > 0 && (!timeout || a->p.timeout_s < timeout)) timeout = a->p.timeout_s;
    for (uint32_t i = 0; i < a->n_choices; i++) {
        struct api_choice *x = &a->choices[i];
        struct lm_request_desc *d = &x->work.job.desc;
        uint32_t each = a->n_choices / a->n_prompts;
        x->call = a, x->index = i, x->stopped = -1, x->prompt = i / each;
        *d = a->p.d;
        d->prompt = a->prompts[x->prompt].ids, d->n_prompt = a->prompts[x->prompt].n;
        d->sampling.stream = i % each;
        x->work.job.client = client;
        x->work.job.deadline = timeout > 0 ? a->began + timeout : 0;
        x->work.user = x;
    }
}

void api_start(struct api_call *a)
{
    uint64_t n = (uint64_t)a->n_prompts * (uint64_t)a->p.best_of;
    if (n > MAX_CHOICES + MAX_PROMPTS) {
        api_refuse(a, 400, "n", "%llu answers at once; there can be %d", (unsigned long long)n,
                   MAX_CHOICES + MAX_PROMPTS);
        return;
    }
    a->choices = calloc((size_t)n, sizeof *a->choices);
    struct work_job **jobs = malloc((size_t)n * sizeof(struct work_job *));
    if (!a->choices || !jobs) {
        free(jobs);
        api_refuse(a, 503, NULL, "no memory for the request");
        return;
    }
    a->n_choices = a->n_live = (uint32_t)n;
    snprintf(a->id, sizeof a->id, "%s%016llx", a->kind->id_prefix,
             (unsigned long long)(lm_entropy() ^ ++a->s->ids));
    make_choices(a);
    for (uint32_t i = 0; i < a->n_choices; i++) jobs[i] = &a->choices[i].work;
    enum sched_verdict v = worker_submit(a->s->worker, jobs, a->n_choices);
    free(jobs);
    if (v != SCHED_ACCEPTED) {
        http_header(a->c, "Retry-After: 1");
        if (v == SCHED_FULL) {
            a->s->metrics.busy_refused++;
            api_refuse(a, 429, NULL, "too many requests are waiting: try again later");
        } else
            api_refuse(a, 503, NULL, "the server is shutting down");
        return;
    }
    a->s->calls++;
    a->c->call = a, a->c->on_abort = on_abort, a->c->on_idle = on_idle;
}

/* ---- events ---- */

bool api_next(struct api_events *i, struct work_event *e, const struct lm_logprob **top,
              const char **text)
{
    if (i->at + sizeof *e > i->n) return false;
    memcpy(e, i->p + i->at, sizeof *e);
    *top = (const struct lm_logprob *)(const void *)(i->p + i->at + sizeof *e);
    *text = (const char *)(*top + e->n_top);
    i->at += sizeof *e + e->n_top * sizeof **top + (e->n_text + 7u) / 8 * 8;
    return true;
}

uint32_t api_chars(const char *text, size_t n)
{
    uint32_t chars = 0;
    for (size_t i = 0; i < n; i++) chars += ((unsigned char)text[i] & 0xc0) != 0x80;
    return chars;
}

const char *api_finish(const struct api_choice *x)
{
    return x->work.job.finish == LM_FINISH_EOS || x->work.job.finish == LM_FINISH_STOP ? "stop"
                                                                                      : "length";
}

void api_json_text(struct json *j, const char *key, const struct api_choice *x)
{
    struct api_events i = {x->events.p, x->events.n, 0};
    const struct lm_logprob *top;
    struct work_event e;
    const char *text;
    lm_json_begin_text(j, key);
    while (api_next(&i, &e, &top, &text))
        if (!e.of_prompt) lm_json_add_text(j, text, e.n_text);
    lm_json_end_text(j);
}

void api_usage(const struct api_call *a, uint64_t *prompt, uint64_t *cached, uint64_t *answer)
{
    *prompt = *cached = *answer = 0;
    uint32_t each = a->n_choices / a->n_prompts;
    for (uint32_t i = 0; i < a->n_choices; i++) {
        const struct sched_job *j = &a->choices[i].work.job;
        if (i % each == 0) *prompt += j->n_prompt, *cached += j->n_cached;
        *answer += j->n_generated;
    }
}

uint64_t api_reasoning_tokens(const struct api_call *a)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < a->n_choices; i++) n += a->choices[i].answer.n_reasoning_tokens;
    return n;
}

void api_json_usage(struct api_call *a, struct json *j)
{
    uint64_t prompt, cached, answer;
    api_usage(a, &prompt, &cached, &answer);
    json_open(j, "usage", '{');
    json_int(j, "prompt_tokens", (int64_t)prompt);
    json_int(j, "completion_tokens", (int64_t)answer);
    json_int(j, "total_tokens", (int64_t)(prompt + answer));
    json_open(j, "prompt_tokens_details", '{');
    json_int(j, "cached_tokens", (int64_t)cached);
    json_close(j, '}');
    if (a->reasoning) {
        json_open(j, "completion_tokens_details", '{');
        json_int(j, "reasoning_tokens", (int64_t)api_reasoning_tokens(a));
        json_close(j, '}');
    }
    json_close(j, '}');
}

bool api_send(struct api_call *a, const char *name)
{
    char head[80];
    size_t n;
    const char *text = server_json_end(a->s, &n);
    int k = name ? snprintf(head, sizeof head, "event: %s\ndata: ", name)
                 : snprintf(head, sizeof head, "data: ");
    if (!a->c) return false;
    struct http_span parts[] = {{head, (size_t)k}, {text, n}, {"\n\n", 2}};
    return http_stream_writev(a->c, parts, 3);
}

void api_send_done(struct api_call *a) { http_stream_write(a->c, "data: [DONE]\n\n", 14); }

void api_json_seen(const struct api_call *a, struct json *j, const struct api_choice *x)
{
    /* the job itself is the worker's until it has ended */
    struct sched_job seen = {.n_prompt = a->prompts[x->prompt].n, .n_generated = x->n_tokens,
                             .started = a->began, .first_token = x->first_token,
                             .ended = x->last_token};
    if (a->p.timings_per_token) api_json_timings(j, &seen);
}

/* "prompt_progress": {...} and where the times are asked for these */
void api_json_progress(struct api_call *a, struct json *j, struct api_choice *x,
                       const struct work_event *e)
{
    double now = serve_clock();
    uint32_t computed = e->n_computed - e->n_cached;
    if (!(x->prompt_began > 0)) x->prompt_began = now;
    struct sched_job seen = {.n_prompt = e->n_computed, .n_cached = e->n_cached,
                             .started = x->prompt_began, .first_token = computed ? now : 0,
                             .ended = now};
    json_open(j, "prompt_progress", '{');
    json_int(j, "total", a->prompts[x->prompt].n);
    json_int(j, "cache", e->n_cached);
    json_int(j, "processed", e->n_computed);
    json_int(j, "time_ms", (int64_t)((now - x->prompt_began) * 1e3));
    json_close(j, '}');
    if (a->p.timings_per_token) api_json_timings(j, &seen);
}

/*
 * What is streamed is charged as it comes: should this process be killed, the front process's accounts have
 * it. A whole reply is charged when it is there, as one whose engine was killed is asked for again.
 */
static void charge_seen(struct api_call *a, const struct api_choice *x)
{
    bool first = x->n_tokens == 1 && x->index % (a->n_choices / a->n_prompts) == 0;
    uint64_t n = 1 + (first ? (uint64_t)a->prompts[x->prompt].n : 0);
    keys_charge(a->s, &a->payer, n);
    a->charged += n;
}

static void measure(struct api_call *a, struct api_choice *x, const struct work_event *e)
{
    struct metrics *m = &a->s->metrics;
    double now = serve_clock();
    if (e->of_prompt || e->token == LM_NO_TOKEN) return;
    if (x->last_token > 0) histogram_add(&m->between, now - x->last_token);
    else {
        histogram_add(&m->ttft, now - a->began);
        x->first_token = now;
    }
    x->last_token = now, x->n_tokens++;
    if (a->p.stream) charge_seen(a, x);
    if (a->s->o.receipts) api_receipt_add(x, e->token);
    if (a->p.d.n_logprobs >= 0) x->score += (double)e->logprob, x->n_scored++;
}

static void fail(struct api_call *a, const struct api_choice *x)
{
    const struct sched_job *j = &x->work.job;
    int status = j->end == SCHED_TIMEOUT ? 504 : j->end == SCHED_CANCELLED ? 503 : 500;
    const char *why = j->error ? j->error : "the request was stopped";
    if (x->work.no_memory) status = 503, why = "no memory for the answer";
    if (a->failed || !a->c) return;
    a->failed = true;
    for (uint32_t i = 0; i < a->n_choices; i++)
        if (!a->choices[i].ended) worker_cancel(&a->choices[i].work);
    if (a->streaming) {
        struct json *out = server_json(a->s);
        json_open(out, NULL, '{');
        json_open(out, "error", '{');
        json_string(out, "message", why);
        json_string(out, "type", server_error_type(status));
        json_int(out, "code", status);
        json_close(out, '}');
        json_close(out, '}');
        if (!api_send(a, a->kind->endpoint == API_MESSAGES ? "error" : NULL)) return;
    }
    struct http_conn *c = a->c;
    a->c = NULL;
    c->on_abort = NULL;
    if (a->streaming) http_stream_end(c);
    else server_error(c, status, NULL, "%s (%s)", why, c->id);
}

static void count(struct api_call *a)
{
    struct metrics *m = &a->s->metrics;
    double now = serve_clock();
    uint64_t prompt, cached, answer;
    api_usage(a, &prompt, &cached, &answer);
    if (prompt + answer > a->charged) keys_charge(a->s, &a->payer, prompt + answer - a->charged);
    m->prompt_tokens_sum += prompt, m->cached_tokens_sum += cached, m->answer_tokens_sum += answer;
    histogram_add(&m->e2e, now - a->began);
    for (uint32_t i = 0; i < a->n_choices; i++) {
        const struct sched_job *j = &a->choices[i].work.job;
        m->by_finish[j->end == SCHED_TIMEOUT ? LM_FINISH_ERROR : j->finish]++;
        if (j->n_prompt + (uint64_t)j->n_generated > m->most_tokens) m->most_tokens = j->n_prompt + j->n_generated;
        if (!(j->started > 0)) continue;
        histogram_add(&m->queue, j->started - j->submitted);
        histogram_add(&m->prompt_tokens, j->n_prompt);
        histogram_add(&m->answer_tokens, j->n_generated);
        if (!(j->first_token > 0)) continue;
        histogram_add(&m->prefill, j->first_token - j->started);
        histogram_add(&m->decode, j->ended - j->first_token);
    }
}

/* All choices have ended. */
static void finish(struct api_call *a)
{
    struct server *s = a->s;
    count(a);
    if (a->c && !a->failed) {
        struct http_conn *c = a->c;
        if (a->p.stream) {
            begin_stream(a);
            if (a->c && a->kind->end) a->kind->end(a);
            if (a->c) {
                c->on_abort = NULL;
                http_stream_end(c);
            }
        } else {
            a->kind->whole(a);
            c->on_abort = NULL;
            server_reply_json(c, 200);
        }
    }
    s->calls--;
    api_destroy(a);
    if (s->draining) server_check_drained(s);
}

void api_on_work(struct work_job *job)
{
    if (job->vector) {
        api_on_vector(job);
        return;
    }
    struct api_choice *x = job->user;
    struct api_call *a = x->call;
    struct api_events i = {job->events.p, job->events.n, 0};
    const struct lm_logprob *top;
    struct work_event e;
    const char *text;
    while (api_next(&i, &e, &top, &text)) {
        if (e.progress) {
            if (!a->c || a->failed || !a->p.stream || !a->kind->progress) continue;
            begin_stream(a);
            if (a->c) a->kind->progress(a, x, &e);
            continue;
        }
        measure(a, x, &e);
        if (e.stopped >= 0) x->stopped = e.stopped;
        if (!a->c || a->failed || !a->p.stream || e.finish == LM_FINISH_ERROR) continue;
        begin_stream(a);
        if (a->c && a->kind->event) a->kind->event(a, x, &e, top, text);
    }
    if (a->c && !a->p.stream && !work_append(&x->events, job->events.p, job->events.n)) {
        job->no_memory = true;
        if (!job->ended) worker_cancel(job);
    }
    if (!job->ended) return;
    x->ended = true;
    if (job->job.end != SCHED_DONE || job->no_memory) fail(a, x);
    else if (a->c && a->p.stream) {
        begin_stream(a);
        if (a->c && a->kind->choice_end) a->kind->choice_end(a, x);
    }
    if (!--a->n_live) finish(a);
}

void api_wake(struct server *s)
{
    struct work_job *j;
    while ((j = worker_take(s->worker))) api_on_work(j);
}

void api_drain(struct server *s) { worker_drain(s->worker); }
