// SPDX-License-Identifier: Apache-2.0
/* What endpoints that generate text share: fields, prompts, calls. */
#ifndef INFC_RUNTIME_SERVE_API_H
#define INFC_RUNTIME_SERVE_API_H

#include "runtime/grammar/tool.h"
#include "runtime/serve/server.h"
#include "runtime/text/json_read.h"

/* Endpoints, as bits of a field's row. */
enum api_endpoint {
    API_COMPLETIONS = 1,
    API_CHAT = 2,
    API_LLAMA = 4,
    API_MESSAGES = 8,
    API_RESPONSES = 16,
    API_ANY = 31,
};

/* The fields of a request. Arrays lie in the call's arena. */
struct api_params {
    struct lm_request_desc d;
    const struct jinja_dict *body;
    const struct jinja_value *prompt, *messages, *tools, *tool_choice, *template_kwargs,
        *stream_options;
    bool parallel_calls;
    bool usage_so_far; /* vLLM's continuous_usage_stats: with every part of a stream */
    bool stream, include_usage, echo, continue_final, add_special, return_tokens;
    bool verbose, timings_per_token;
    bool generation_prompt_given;
    const struct jinja_list *response_fields;
    int64_t prompt_logprobs; /* -1: none */
    bool logprobs_on, add_generation_prompt, cache_prompt;
    bool max_tokens_given;
    int64_t n, best_of, logprobs, top_logprobs, max_tokens, seed, n_probs, top_k, thinking_budget;
    bool no_thinking; /* the template is told so */
    const char *reasoning_format, *reasoning_effort;
    bool n_given, seed_given, logprobs_given;
    double timeout_s;
    int64_t priority;
    const char *user, *cache_salt; /* NUL-terminated; NULL: not given */
};

enum api_tools { API_TOOLS_NONE, API_TOOLS_AUTO, API_TOOLS_REQUIRED, API_TOOLS_NAMED };
enum { API_MAX_CALLS = 32 };

struct api_call;
struct api_grammar;

struct api_answer_call {
    struct work_bytes name, arguments; /* the JSON text that the model wrote */
    size_t sent;                       /* of the arguments, to a stream */
    bool told;
};

/* An answer told apart; the *_sent bytes of each part were written to a stream. */
struct api_answer {
    struct tool_parser *parser; /* NULL: not begun */
    const struct api_call *of;
    struct work_bytes reasoning, content;
    size_t reasoning_sent, content_sent;
    struct api_answer_call *calls;
    uint32_t n_calls, cap_calls, n_reasoning_tokens;
    bool dropping; /* a call that is one too many */
    bool no_memory;
};

struct api_choice {
    struct work_job work;
    struct api_call *call;
    uint32_t index, prompt;
    struct work_bytes events; /* all of them, unless they are streamed */
    int32_t stopped;          /* number of the stop string that ended it, or -1 */
    uint32_t n_chars;         /* of the text so far, for text_offset */
    double score;             /* sum of log probabilities */
    uint32_t n_scored;
    double prompt_began, first_token, last_token; /* clock of events */
    uint32_t n_tokens;
    uint64_t token_hash; /* of a receipt */
    struct api_answer answer;
    int32_t part;   /* what a stream is in the middle of: enum api_part */
    uint32_t parts; /* that were begun */
    bool new_line; /* of a stream: there was one */
    bool begun, ended;
};

struct api_prompt {
    uint32_t *ids;
    uint32_t n;
    const char *text; /* NULL: tokens were given */
    size_t n_text;
};

/* Of an answer; the call i is API_CALL + i. */
enum api_part { API_NO_PART, API_REASONING, API_CONTENT, API_CALL };

/* How an endpoint writes. All but `whole` are called for streams only; NULL: nothing to write. */
struct api_kind {
    enum api_endpoint endpoint;
    const char *id_prefix, *object;
    void (*begin)(struct api_call *a);
    void (*event)(struct api_call *a, struct api_choice *x, const struct work_event *e,
                  const struct lm_logprob *top, const char *text);
    void (*choice_end)(struct api_call *a, struct api_choice *x);
    void (*progress)(struct api_call *a, struct api_choice *x, const struct work_event *e);
    /* for api_answer_event and api_answer_end: */
    void (*be_in)(struct api_call *a, struct api_choice *x, int32_t part); /* x->part is another */
    void (*delta)(struct api_call *a, struct api_choice *x, const char *text, size_t n); /* of it */
    void (*end)(struct api_call *a);
    void (*whole)(struct api_call *a);
};

struct api_call {
    struct server *s;
    struct http_conn *c; /* NULL: the peer is gone */
    const struct api_kind *kind;
    struct jinja_arena *arena;
    struct api_params p;
    struct api_prompt *prompts;
    struct api_choice *choices;
    uint32_t n_prompts, n_choices, n_live;
    char id[48];
    struct serve_payer payer;
    uint64_t charged; /* tokens so far */
    int64_t created;
    bool streaming, failed;
    double began;
    int64_t sequence; /* of the events of a stream */
    struct api_grammar *grammar; /* NULL: none */
    enum api_tools tools;
    const struct jinja_value *named; /* the tool that must be called */
    enum tool_family family;
    bool reasoning, in_reasoning; /* the model thinks aloud; the prompt ends inside of it */
    char *forced;                 /* what the prompt ends with: the beginning of a call */
};

/* ---- api_params.c ---- */

/* Reads the body as a JSON object. False: replied. */
bool api_read_body(struct server *s, struct http_conn *c, struct jinja_arena **arena,
                   struct jinja_value *out);
/* Fields of an endpoint into a->p. False: replied, naming the field. */
bool api_read_params(struct api_call *a, const struct jinja_dict *body);
/* Parameters by their names, as a request to /v1/completions has them, but for lists and those that are no field of a's own. */
void api_json_settings(struct json *j, const struct api_params *p);
/* The fields of an endpoint as properties of a JSON Schema. */
void api_json_fields(struct json *j, unsigned endpoint);
/* A field of a dict, NULL when it is absent or null. */
const struct jinja_value *api_field(const struct jinja_dict *d, const char *name);
bool api_is(const struct jinja_value *v, const char *text);
/* A NUL-terminated copy in the arena; NULL: no memory. */
char *api_copy(struct jinja_arena *arena, const char *text, size_t n);

/* ---- api_value.c ---- */

void api_json_value(struct json *j, const char *key, const struct jinja_value *v);
/* The shortest decimal that reads back as the same number. */
void api_json_real(struct json *j, const char *key, double x);
/* Text that is JSON. */
void api_json_raw(struct json *j, const char *key, const char *text, size_t n);

/* ---- api_grammar.c: false: replied, naming param ---- */

bool api_take_grammar(struct api_call *a, enum gr_kind kind, const char *text, size_t n,
                      const char *param);
/* The value as JSON text. */
bool api_take_value(struct api_call *a, enum gr_kind kind, const struct jinja_value *v,
                    const char *param);
bool api_take_format(struct api_call *a, const struct jinja_value *v, const char *param);
/* what: json, regex, choice, grammar or json_object */
bool api_take_structure(struct api_call *a, const char *what, const struct jinja_value *v,
                        const char *param);
bool api_take_structures(struct api_call *a, const struct jinja_value *v, const char *param);
/* "structured_outputs": {...}; g NULL: nothing. Texts are there with --receipts alone. */
void api_json_grammar(struct json *j, const struct api_grammar *g);
void api_grammar_leave(struct server *s, struct api_grammar *g);
void api_grammars_deinit(struct server *s);

/* ---- api_tools.c ---- */

/* tools, tool_choice and parallel_tool_calls together, in the endpoint's words. False: replied. */
bool api_settle_tools(struct api_call *a);
bool api_is_tool(const struct api_call *a, const char *name, size_t n);

/* ---- api_answer.c ---- */

/* Text of the answer; false: no memory. */
bool api_answer_push(struct api_call *a, struct api_choice *x, const char *text, size_t n);
/* The answer is complete. */
void api_answer_finish(struct api_call *a, struct api_choice *x);
/* All of it from the events that were kept. */
void api_answer_whole(struct api_call *a, struct api_choice *x);
void api_answer_deinit(struct api_answer *w);
/* A kind's `event` where a stream tells the answer part by part. */
void api_answer_event(struct api_call *a, struct api_choice *x, const struct work_event *e,
                      const struct lm_logprob *top, const char *text);
/* Its end, but for that of the last part; there is one, if only an empty one. */
void api_answer_end(struct api_call *a, struct api_choice *x);
/* The end's name: calls, a stop, or a limit. */
bool api_answer_calls(const struct api_choice *x);
/* call_..., as far as it fits. */
void api_call_id(const struct api_call *a, const struct api_choice *x, uint32_t i, char *out,
                 size_t cap);
/* The arguments as a JSON object; {"INVALID_JSON": text} where they are none. */
void api_json_arguments(struct json *j, const char *key, const struct api_answer_call *c);

/* ---- api_receipt.c ---- */

void api_receipt_add(struct api_choice *x, uint32_t token);
/* "receipt": {...}, where the server gives them. */
void api_json_receipt(struct api_call *a, struct json *j);

/* ---- api_call.c ---- */

/* Begins a call: reads the body and the fields. NULL: replied. */
struct api_call *api_begin(struct server *s, struct http_conn *c, const struct api_kind *kind);
/* Adds a prompt: text (tokens NULL) or tokens. False: replied. */
bool api_add_text(struct api_call *a, const char *text, size_t n, unsigned encode_flags);
bool api_add_tokens(struct api_call *a, uint32_t *ids, size_t n, const char *text, size_t n_text);
/* All prompts are there: makes the choices and hands them to the worker. Replies if it cannot. */
void api_start(struct api_call *a);
/* Replies with an error and forgets the call, before api_start. */
__attribute__((format(printf, 4, 5))) void api_refuse(struct api_call *a, int status,
                                                      const char *param, const char *format, ...);
void api_destroy(struct api_call *a);
/* Replies with the count of the prompt's tokens and forgets the call; object may be NULL. */
void api_reply_tokens(struct api_call *a, const char *object);
/* The worker has something for this job. */
void api_on_work(struct work_job *j);
/* The same, of an embedding (api_embed.c). */
void api_on_vector(struct work_job *j);
/* Streams: one event of server-sent events, "data: JSON"; name NULL: without an event line. */
bool api_send(struct api_call *a, const char *name);
struct api_events {
    const char *p;
    size_t n, at;
};
/* The next event of a buffer; false at its end. */
bool api_next(struct api_events *i, struct work_event *e, const struct lm_logprob **top,
              const char **text);
/* "stop", "length" */
const char *api_finish(const struct api_choice *x);
/* The whole text of a choice's events, without those of the prompt, as a JSON string. */
void api_json_text(struct json *j, const char *key, const struct api_choice *x);
void api_usage(const struct api_call *a, uint64_t *prompt, uint64_t *cached, uint64_t *answer);
/* "usage": {...} in OpenAI's words. */
void api_json_usage(struct api_call *a, struct json *j);
uint64_t api_reasoning_tokens(const struct api_call *a);
uint32_t api_chars(const char *text, size_t n);

/* "timings": {...}, llama-server's */
void api_json_timings(struct json *j, const struct sched_job *x);
/* The same of an answer that is being written, where the request asks for it. */
void api_json_progress(struct api_call *a, struct json *j, struct api_choice *x,
                       const struct work_event *e);
void api_json_seen(const struct api_call *a, struct json *j, const struct api_choice *x);
/* "data: [DONE]" */
void api_send_done(struct api_call *a);

/* ---- api_prompt.c ---- */

/* {"role": role, "content": content} appended to a list. False: no memory, replied. */
bool api_add_message(struct api_call *a, struct jinja_value *list, const char *role,
                     const struct jinja_value *content);

/* The conversation as the prompt of the call, with what makes the answer be a call. False: replied. */
bool api_add_conversation(struct api_call *a, const struct jinja_value *messages);
/* A conversation through the model's template into memory for free(). False: replied. */
bool api_render(struct api_call *a, const struct jinja_value *messages, char **out, size_t *n);
/* The conversations of Anthropic's and Responses' requests (api_convert.c). False: replied. */
bool api_from_anthropic(struct api_call *a, struct jinja_value *out_list);
bool api_from_responses(struct api_call *a, struct jinja_value *out_list);
/* The source of the model's chat template; n 0: there is none. */
const char *api_template_source(const struct server *s, size_t *n);

#endif
