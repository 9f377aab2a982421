// SPDX-License-Identifier: Apache-2.0
/* The command line of text commands: options by a table, opening engine, text and model. */
#ifndef INFC_RUNTIME_LM_CLI_H
#define INFC_RUNTIME_LM_CLI_H

#include "runtime/cli.h"
#include "runtime/lm/lm_generate.h"
#include "runtime/lm/lm_text.h"

struct server;

/* Arguments of an option that may be repeated. */
struct lm_list {
    const char **v;
    size_t n;
};

struct lm_cli {
    const char *program, *command;
    unsigned bit;
    struct infr_options engine_options;
    bool json, ignore_eos, show_special, prompt_logprobs, no_bos, no_eos, parse_special, quiet, loop;
    bool no_normalize, seed_given, ctx_given, temp_given, top_k_given, top_p_given, min_p_given,
        repeat_given, predict_given, all_rows, raw, warm;
    const char *trace; /* profile: file for one, NULL: none */
    const char *json_schema, *grammar, *regex;
    bool json_object, jumps;
    const char *prompt, *file, *system, *template_name, *template_args, *pooling;
    int64_t predict, min_tokens, logprobs, chunk, ctx, kv_memory, keep, choices, bench_prompt,
        batch, repeat, stride, preempt;
    enum lm_on_full on_full;
    struct lm_sampling sampling;
    /* of serve */
    const char *model_name, *log_file, *api_key_file, *template_file, *reasoning, *reasoning_format, *config;
    bool any_model, prefill, verbose, receipts;
    void *replay; /* of replay, whose command is serve without listeners */
    int (*replay_opened)(struct server *s);
    int64_t parallel, queue, max_body;
    double timeout_s, drain_s, stretch;
    struct lm_list stops, stop_tokens, biases, breakers, listen, disabled, origins, positional;
    const char **memory; /* of the lists */
};

enum lm_command_bit {
    LM_GENERATE = 1,
    LM_CHAT = 2,
    LM_PERPLEXITY = 4,
    LM_TOKENIZE = 8,
    LM_DETOKENIZE = 16,
    LM_EMBED = 32,
    LM_BENCH = 64,
    LM_PROFILE = 128,
    LM_SERVE = 256,
    LM_LOGITS = 512,
    LM_REPLAY = 1024,
    LM_RANK = 2048,
};

struct lm_command {
    const char *name, *summary;
    unsigned bit;
    int (*run)(struct lm_cli *c);
    const char *text, *examples;
};

int lm_cmd_generate(struct lm_cli *c);
int lm_cmd_chat(struct lm_cli *c);
int lm_cmd_perplexity(struct lm_cli *c);
int lm_cmd_tokenize(struct lm_cli *c);
int lm_cmd_detokenize(struct lm_cli *c);
int lm_cmd_embed(struct lm_cli *c);
int lm_cmd_rank(struct lm_cli *c);
int lm_cmd_bench(struct lm_cli *c);
int lm_cmd_profile(struct lm_cli *c);
int lm_cmd_serve(struct lm_cli *c); /* runtime/serve */
int lm_cmd_replay(struct lm_cli *c);
int lm_cmd_logits(struct lm_cli *c);

/* Parses and runs. */
int lm_cli_run(const struct lm_command *cmd, int argc, char **argv);
/* Applies one option of a command ("temp", "0.5") after the parse, as `chat` does with /set. Prints
 * what is wrong. */
int lm_cli_set(struct lm_cli *c, const char *name, const char *value);

/* ---- what commands have in common ---- */

struct lm_open {
    struct infr_engine *e;
    struct lm_text text;
    struct lm_model *model;
    struct lm_generator *g;
    uint32_t n_ctx;
};

/* Prints what is wrong; lm_close in any case. */
int lm_open_text(struct lm_cli *c, struct lm_open *x);
/* The above, the model and a KV cache by --ctx and --kv-memory for this many sequences; default_ctx
 * is the context without --ctx (0: what the model was trained for). */
int lm_open_model(struct lm_cli *c, struct lm_open *x, uint32_t n_seqs, uint32_t default_ctx);
/* The above, and a generator. */
int lm_open_generator(struct lm_cli *c, struct lm_open *x, uint32_t n_seqs, uint32_t default_ctx,
                      bool no_sharing);
void lm_close(struct lm_open *x);

/* A request by the options, but for prompt and events: stop strings and lists are in *lists, which
 * must live as long as *d. */
struct lm_request_lists {
    struct lm_stop_text *stops;
    uint32_t *stop_tokens;
    struct lm_bias *biases;
    struct lm_breaker *breakers;
    struct gr_vocab *vocab;
    struct gr_grammar *grammar;
    struct gr_state *state;
    void *memory;
};
int lm_cli_request(struct lm_cli *c, const struct lm_open *x, struct lm_request_desc *d,
                   struct lm_request_lists *lists);
void lm_cli_lists_deinit(struct lm_request_lists *lists);
/* Sampling as the model's makers recommend and the options say; draws a seed where none is given.
 */
void lm_cli_sampling(struct lm_cli *c, const struct lm_text *t);

/* The text of -p, of -f or the bare argument, or of standard input, into memory for free(). */
int lm_cli_read_text(struct lm_cli *c, char **out_text, size_t *out_n);

double lm_now(void);
uint64_t lm_entropy(void);

/* JSON string of text that may have any byte but is UTF-8. */
void lm_json_text(struct json *j, const char *key, const char *text, size_t n);
/* The same from pieces. */
void lm_json_begin_text(struct json *j, const char *key);
void lm_json_add_text(struct json *j, const char *text, size_t n);
void lm_json_end_text(struct json *j);
/* The text of one token; bytes that are not UTF-8 alone as U+FFFD. */
void lm_json_token(struct json *j, const char *key, const struct tok *t, uint32_t id);

#endif
