// SPDX-License-Identifier: Apache-2.0
/*
 * The inference server of an engine: what its parts share.
 *
 *   cmd_serve   options, opening                   api_params  fields of requests
 *   server      signals, routes                    api_call    a request from prompt to answer
 *   listen      listeners; swap: who takes them over
 *   http_*      connections, framing               api_*       what each endpoint reads and writes
 *   worker      the model's thread                 metrics     counters, log
 *   sched       who is served when
 *
 * Everything but the worker runs on the event loop's thread.
 */
#ifndef INFC_RUNTIME_SERVE_SERVER_H
#define INFC_RUNTIME_SERVE_SERVER_H

#include <stdio.h>

#include "runtime/lm/lm_cli.h"
#include "runtime/serve/http_conn.h"
#include "runtime/serve/keys.h"
#include "runtime/serve/worker.h"

/* How a process tells the one that takes over where to say that it is ready, and which paths are its own. */
#define SERVE_SWAP "INFC_SWAP"

enum { SWAP_GRACE_S = 5 /* for connections on which nothing is asked */ };
enum { MAX_LISTENERS = 16, MAX_CHOICES = 128, MAX_PROMPTS = 1024 };

struct server_options {
    const char *const *listen; /* "127.0.0.1:8080", "[::1]:80", "localhost:8080", "unix:/path" */
    size_t n_listen;
    const char *model_name; /* what clients call it */
    const char *log_path;   /* NULL: none; "-": standard error */
    const char *key_path;   /* API keys, one a line; NULL: none are asked for */
    bool any_model; /* or anything */
    bool receipts;  /* every answer has one */
    const char *const *disabled; /* paths */
    size_t n_disabled;
    const char *const *origins; /* of pages that may ask */
    size_t n_origins;
    bool thinking, no_thinking, thinking_is_text, prefill, verbose; /* of requests that do not say */
    enum infr_text_pooling pooling;
    const struct jinja_value *template_kwargs; /* NULL: none */
    double timeout_s; /* of a request; 0: none */
    double drain_s;   /* 0: as long as it takes */
    uint32_t parallel, max_queue, chunk;
    /* Of requests that do not say: */
    int64_t predict; /* -1: until the model ends */
    bool seed_given;
    enum lm_on_full on_full;
    double stretch;
    struct http_options http;
};

/* Upper ends of a histogram's buckets; a last one has the rest. */
struct histogram {
    const double *ends;
    uint64_t counts[24], n;
    double sum;
};

struct metrics {
    struct histogram ttft, between, e2e, queue, prefill, decode, prompt_tokens, answer_tokens;
    uint64_t by_finish[8];           /* enum lm_finish */
    uint64_t by_status[6];           /* 1xx to 5xx; the client closed: 0 */
    uint64_t prompt_tokens_sum, cached_tokens_sum, answer_tokens_sum; /* what usage said */
    uint64_t busy_refused, auth_refused, limit_refused, most_tokens;
};

struct server {
    struct server_options o;
    struct lm_open x;
    struct lm_embedder embedder;
    struct lm_sampling sampling; /* defaults of requests */
    struct worker *worker;
    struct gr_vocab *vocab;       /* for grammars; made when the first one comes */
    struct api_grammar *grammars; /* compiled ones */
    struct tensor_worker *tensors; /* of engines that are no language models */
    /* What the loop asks of either worker. */
    const struct api_route *routes;
    size_t n_routes;
    int wake_fd;
    void (*on_wake)(struct server *s); /* takes all that is done */
    void (*drain)(struct server *s);   /* no job is accepted from now on */
    void (*reload)(struct server *s);  /* on SIGHUP, when keys were read; or NULL */
    int (*opened)(struct server *s); /* in place of listeners, when the loop is there; or NULL */
    void *replay;                    /* its */
    void (*more_metrics)(struct server *s, FILE *out); /* or NULL */
    struct event_base *base;
    struct http_server http;
    struct evconnlistener *listeners[MAX_LISTENERS];
    char *unlink_paths[MAX_LISTENERS];
    struct event *wake, *sigterm, *sigint, *sighup, *sigusr2, *tick;
    struct event *swap; /* the new process's answer is awaited; or NULL */
    int swap_fd, swap_pid, ready_fd;
    struct json json;
    char *json_text;
    size_t json_n;
    struct metrics metrics;
    FILE *log;
    struct serve_key *keys;
    uint32_t n_keys, n_former, n_accounts; /* keys of the file, then those that were in it */
    _Atomic uint64_t *accounts; /* NULL: none */
    bool shares;                /* they are this process's, and others add to them */
    uint64_t key_salt, ids, calls; /* calls: that have not ended */
    time_t started;
    char fingerprint[24]; /* "b" and a hash of the engine */
    bool draining, replaced; /* replaced: another process has the listeners */
    bool told_to_stop;
    double drain_began;
};

/* Prints what is wrong; the exit code. Runs until it is told to stop. */
int server_run(struct server *s);
/* Ends the loop when everything that was accepted has been answered. */
void server_check_drained(struct server *s);
/* Nothing new is accepted; the loop ends when what was is answered. */
void server_drain(struct server *s, double grace_s);

/* ---- listen.c ---- */

int server_listen(struct server *s);
void server_close_listeners(struct server *s);

/* ---- swap.c ---- */

/* To who waits for this process to be ready. */
void server_say_ready(struct server *s);
void server_on_swap(int fd, short what, void *server);
/* One that is starting is told to stop. */
void server_stop_swap(struct server *s);

/* ---- JSON out: one text at a time ---- */

struct json *server_json(struct server *s);
/* What was written since server_json. */
const char *server_json_end(struct server *s, size_t *n);
/* The same as a reply. */
void server_reply_json(struct http_conn *c, int status);

/* ---- errors ---- */

/* type by the status; param NULL: of no field. */
__attribute__((format(printf, 4, 5))) void server_error(struct http_conn *c, int status,
                                                        const char *param, const char *format, ...);
const char *server_error_type(int status);

/* ---- routes (api_*.c) ---- */

typedef void api_handler(struct server *s, struct http_conn *c);

api_handler api_health, api_live, api_ready, api_version, api_models, api_model, api_metrics;
api_handler api_tokenize, api_detokenize, api_apply_template, api_embeddings, api_rerank;
api_handler api_completions, api_chat, api_llama_completion, api_props, api_slots, api_infill;
api_handler api_chat_tokens, api_responses_tokens;
api_handler api_messages, api_count_tokens, api_responses, api_openapi, api_page;

struct api_route {
    const char *method, *path;
    api_handler *handler;
    bool open; /* without a key */
    const char *summary;
};
/* Of language models. */
extern const struct api_route api_routes[];
extern const size_t n_api_routes;
void api_wake(struct server *s);
void api_drain(struct server *s);

/* ---- metrics.c ---- */

void metrics_init(struct metrics *m);
void histogram_add(struct histogram *h, double x);
/* A reply is complete: counters and the log. */
void metrics_on_done(struct http_conn *c, void *server);

#endif
