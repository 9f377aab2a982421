// SPDX-License-Identifier: Apache-2.0
/*
 * Counters in Prometheus' text format, under the names that vLLM's and llama-server's dashboards
 * look for, and the log of requests as JSON lines.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/serve/api.h"
#include "runtime/serve/tensors.h"

static const double seconds[] = {0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,
                                 2.5,   5,     10,   30,    60,   120, 300,  0};
static const double tokens[] = {1,   2,    5,    10,   20,   50,    100,   200,
                                500, 1000, 2000, 5000, 10000, 20000, 50000, 0};

void metrics_init(struct metrics *m)
{
    struct histogram *times[] = {&m->ttft, &m->between, &m->e2e, &m->queue, &m->prefill, &m->decode};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) times[i]->ends = seconds;
    m->prompt_tokens.ends = m->answer_tokens.ends = tokens;
}

void histogram_add(struct histogram *h, double x)
{
    int i = 0;
    while (h->ends[i] > 0 && x > h->ends[i]) i++;
    h->counts[i]++;
    h->n++;
    h->sum += x;
}

/* ---- Prometheus ---- */

struct page {
    FILE *f;
    const char *model;
};

static void head(struct page *p, const char *name, const char *type, const char *help)
{
    fprintf(p->f, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void one(struct page *p, const char *name, const char *type, const char *help, double x)
{
    head(p, name, type, help);
    if (!strncmp(name, "vllm:", 5)) fprintf(p->f, "%s{model_name=\"%s\"} %.17g\n", name, p->model, x);
    else fprintf(p->f, "%s %.17g\n", name, x);
}

static void histogram(struct page *p, const char *name, const char *help, const struct histogram *h)
{
    uint64_t sum = 0;
    head(p, name, "histogram", help);
    for (int i = 0; h->ends[i] > 0; i++) {
        sum += h->counts[i];
        fprintf(p->f, "%s_bucket{model_name=\"%s\",le=\"%g\"} %llu\n", name, p->model, h->ends[i],
                (unsigned long long)sum);
    }
    fprintf(p->f, "%s_bucket{model_name=\"%s\",le=\"+Inf\"} %llu\n", name, p->model,
            (unsigned long long)h->n);
    fprintf(p->f, "%s_sum{model_name=\"%s\"} %.17g\n%s_count{model_name=\"%s\"} %llu\n", name,
            p->model, h->sum, name, p->model, (unsigned long long)h->n);
}

static double ratio(double a, double b) { return b > 0 ? a / b : 0; }

static void vllm(struct page *p, struct server *s, const struct worker_counts *w)
{
    const struct metrics *m = &s->metrics;
    const struct lm_counts *g = &w->sched.generator;
    const struct lm_page_counts *k = &g->pages;
    static const struct {
        enum lm_finish finish;
        const char *reason;
    } reasons[] = {{LM_FINISH_EOS, "stop"},          {LM_FINISH_LENGTH, "length"},
                   {LM_FINISH_CANCELLED, "abort"},   {LM_FINISH_ERROR, "error"},
                   {LM_FINISH_CONTEXT, "context"}};
    one(p, "vllm:num_requests_running", "gauge", "Requests with a place in the batch.", g->running);
    one(p, "vllm:num_requests_waiting", "gauge", "Requests that wait for a place.",
        w->sched.queued + g->waiting);
    one(p, "vllm:kv_cache_usage_perc", "gauge", "Pages held by requests, of all; 1 is full.",
        ratio(k->held, (double)k->held + k->cached + k->free));
    one(p, "vllm:prefix_cache_queries_total", "counter", "Prompt tokens looked up.",
        (double)k->tokens_looked_up);
    one(p, "vllm:prefix_cache_hits_total", "counter", "Prompt tokens found in shared pages.",
        (double)k->tokens_found);
    one(p, "vllm:num_preemptions_total", "counter", "Requests that gave their pages back.",
        (double)g->preemptions);
    one(p, "vllm:prompt_tokens_total", "counter", "Prompt tokens of requests that ended.",
        (double)m->prompt_tokens_sum);
    one(p, "vllm:generation_tokens_total", "counter", "Tokens generated for requests that ended.",
        (double)m->answer_tokens_sum);
    head(p, "vllm:request_success_total", "counter", "Answers by how they ended.");
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        uint64_t n = m->by_finish[reasons[i].finish];
        if (reasons[i].finish == LM_FINISH_EOS) n += m->by_finish[LM_FINISH_STOP];
        fprintf(p->f, "vllm:request_success_total{model_name=\"%s\",finished_reason=\"%s\"} %llu\n",
                p->model, reasons[i].reason, (unsigned long long)n);
    }
    histogram(p, "vllm:time_to_first_token_seconds", "From request to first token.", &m->ttft);
    histogram(p, "vllm:inter_token_latency_seconds", "Between tokens of an answer.", &m->between);
    histogram(p, "vllm:e2e_request_latency_seconds", "From request to its end.", &m->e2e);
    histogram(p, "vllm:request_queue_time_seconds", "Waiting for a place.", &m->queue);
    histogram(p, "vllm:request_prefill_time_seconds", "From place to first token.", &m->prefill);
    histogram(p, "vllm:request_decode_time_seconds", "From first token to the end.", &m->decode);
    histogram(p, "vllm:request_prompt_tokens", "Prompt tokens of an answer.", &m->prompt_tokens);
    histogram(p, "vllm:request_generation_tokens", "Tokens of an answer.", &m->answer_tokens);
}

static void llamacpp(struct page *p, struct server *s, const struct worker_counts *w)
{
    const struct metrics *m = &s->metrics;
    const struct lm_counts *g = &w->sched.generator;
    static const char *const drafts[] = {"llamacpp:spec_decode_num_draft_tokens_total",
                                         "llamacpp:spec_decode_num_accepted_tokens_total",
                                         "llamacpp:spec_decode_num_drafts_total"};
    one(p, "llamacpp:prompt_tokens_total", "counter", "Prompt tokens computed.",
        (double)(m->prompt_tokens_sum - m->cached_tokens_sum));
    one(p, "llamacpp:prompt_tokens_cached_total", "counter", "Prompt tokens found in the cache.",
        (double)m->cached_tokens_sum);
    one(p, "llamacpp:prompt_seconds_total", "counter", "Time of steps with prompt tokens.",
        w->prompt_s);
    one(p, "llamacpp:tokens_predicted_total", "counter", "Tokens generated.",
        (double)m->answer_tokens_sum);
    one(p, "llamacpp:tokens_predicted_seconds_total", "counter", "Time of steps of answers alone.",
        w->answer_s);
    one(p, "llamacpp:n_decode_total", "counter", "Calls of the model.",
        (double)(g->steps + w->embeddings));
    one(p, "llamacpp:n_tokens_max", "counter", "Most tokens of a request, answer included.",
        (double)m->most_tokens);
    for (size_t i = 0; i < sizeof drafts / sizeof *drafts; i++)
        one(p, drafts[i], "counter", "Speculation: there is none.", 0);
    one(p, "llamacpp:n_busy_slots_per_decode", "gauge", "Tokens a call, on average.",
        ratio((double)g->tokens_computed, (double)g->steps));
    one(p, "llamacpp:prompt_tokens_seconds", "gauge", "Prompt tokens a second, on average.",
        ratio((double)(m->prompt_tokens_sum - m->cached_tokens_sum), w->prompt_s));
    one(p, "llamacpp:predicted_tokens_seconds", "gauge", "Tokens generated a second, on average.",
        ratio((double)m->answer_tokens_sum, w->answer_s));
    one(p, "llamacpp:requests_processing", "gauge", "Requests with a place.", g->running);
    one(p, "llamacpp:requests_deferred", "gauge", "Requests that wait.",
        w->sched.queued + g->waiting);
}

/* Of every server. */
static void common(struct page *p, struct server *s)
{
    static const char *const classes[] = {"closed", "1xx", "2xx", "3xx", "4xx", "5xx"};
    head(p, "http_requests_total", "counter", "Replies by class of status.");
    for (int i = 0; i < 6; i++)
        fprintf(p->f, "http_requests_total{status=\"%s\"} %llu\n", classes[i],
                (unsigned long long)s->metrics.by_status[i]);
    one(p, "infc_connections", "gauge", "Open connections.", s->http.n_conns);
    one(p, "infc_connections_total", "counter", "Connections accepted.", (double)s->http.accepted);
    one(p, "infc_connections_refused_total", "counter", "Connections beyond the bound.",
        (double)s->http.turned_away);
    one(p, "infc_requests_refused_total", "counter", "Requests refused because the queue was full.",
        (double)s->metrics.busy_refused);
    one(p, "infc_requests_unauthorized_total", "counter", "Requests without a known key.",
        (double)s->metrics.auth_refused);
    one(p, "infc_requests_limited_total", "counter", "Requests of keys that had reached a limit.",
        (double)s->metrics.limit_refused);
    one(p, "process_start_time_seconds", "gauge", "Start of the process.", (double)s->started);
}

static void texts(struct page *p, struct server *s)
{
    struct worker_counts w;
    worker_get_counts(s->worker, &w);
    vllm(p, s, &w);
    llamacpp(p, s, &w);
    one(p, "infc_step_budget_tokens", "gauge", "Tokens that the next step may have.",
        w.sched.step_budget);
    one(p, "infc_pages_held", "gauge", "Pages of the KV cache that requests hold.",
        w.sched.generator.pages.held);
    one(p, "infc_pages_cached", "gauge", "Pages that can be found again.",
        w.sched.generator.pages.cached);
    one(p, "infc_embeddings_total", "counter", "Texts made into vectors.", (double)w.embeddings);
    one(p, "infc_embedded_tokens_total", "counter", "Tokens of these.", (double)w.embedded_tokens);
}

static void tensors(struct page *p, struct server *s)
{
    struct tensor_counts w;
    tensor_get_counts(s->tensors, &w);
    one(p, "infc_runs_total", "counter", "Calls of the model.", (double)w.runs);
    one(p, "infc_run_failures_total", "counter", "Calls that failed.", (double)w.failures);
    one(p, "infc_run_seconds_total", "counter", "Time of calls.", w.busy_s);
    one(p, "infc_requests_waiting", "gauge", "Requests that wait.", w.waiting);
}

/* The model's name inside of a label: quotes, backslashes and line feeds are escaped. */
static char *label(const char *name)
{
    char *out = malloc(2 * strlen(name) + 1), *p = out;
    for (; out && *name; name++) {
        if (*name == '"' || *name == '\\' || *name == '\n') *p++ = '\\';
        *p++ = *name == '\n' ? 'n' : *name;
    }
    if (out) *p = 0;
    return out;
}

void api_metrics(struct server *s, struct http_conn *c)
{
    size_t n;
    char *model = label(s->o.model_name);
    struct page p = {server_json(s)->f, model ? model : ""};
    if (s->worker) texts(&p, s);
    if (s->tensors) tensors(&p, s);
    if (s->more_metrics) s->more_metrics(s, p.f);
    common(&p, s);
    free(model);
    const char *text = server_json_end(s, &n);
    http_header(c, "Process-Start-Time-Unix: %lld", (long long)s->started);
    http_reply(c, 200, "text/plain; version=0.0.4; charset=utf-8", text, n);
}

/* ---- the log ---- */

void metrics_on_done(struct http_conn *c, void *server)
{
    struct server *s = server;
    s->metrics.by_status[c->status == 499 ? 0 : c->status / 100 % 6]++;
    if (!s->log) return;
    struct json j = {.f = s->log};
    struct timespec t;
    char when[40];
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &t);
    gmtime_r(&t.tv_sec, &tm);
    size_t n = strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(when + n, sizeof when - n, ".%03ldZ", t.tv_nsec / 1000000);
    json_open(&j, NULL, '{');
    json_string(&j, "time", when);
    json_string(&j, "id", c->id);
    json_string(&j, "peer", c->peer);
    lm_json_text(&j, "method", c->head.method.p, c->head.method.n);
    lm_json_text(&j, "path", c->head.path.p, c->head.path.n);
    json_int(&j, "status", c->status);
    json_int(&j, "bytes_in", (int64_t)c->n_body);
    json_int(&j, "bytes_out", (int64_t)c->bytes_out);
    json_number(&j, "ms", (serve_clock() - c->began) * 1e3);
    const struct http_span *trace = c->head_text ? http_find(&c->head, "traceparent") : NULL;
    if (trace && trace->n < 256) {
        bool ascii = true;
        for (size_t i = 0; i < trace->n; i++) ascii = ascii && !(trace->p[i] & 0x80);
        if (ascii) lm_json_text(&j, "traceparent", trace->p, trace->n);
    }
    json_close(&j, '}');
    fputc('\n', s->log);
    fflush(s->log);
}
