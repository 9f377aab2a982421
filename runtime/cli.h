// SPDX-License-Identifier: Apache-2.0
/* The command line of an engine: options, inputs and outputs, JSON. Each cmd_*.c is one command. */
#ifndef INFC_RUNTIME_CLI_H
#define INFC_RUNTIME_CLI_H

#include "runtime/engine.h"
#include "runtime/session.h"
#include "runtime/tensor.h"

struct cli {
    const char *program;  /* argv[0] */
    const char *command;
    bool json, print, random, repeat_given, loop;
    uint64_t seed;
    long repeat;
    double seconds;
    const char *trace; /* profile: file for a trace, NULL: none */
    struct infr_options engine_options;
    /* arguments of --input, --output, --shape as given */
    char **inputs, **outputs, **shapes;
    int n_inputs, n_outputs, n_shapes;
};

struct command {
    const char *name, *summary;
    unsigned bit;        /* in option rows */
    int (*run)(struct cli *c);
    const char *text;    /* help: what it does */
    const char *examples; /* one a line, without the program's name */
};

/*
 * Commands that only some engines have. Engines with a text section refer to `infr_text_commands`
 * (runtime/lm/lm_commands.c), so that the linker takes it and all it needs from the archive; in
 * others main.c's weak reference to it stays null. Likewise `infr_serve_commands`
 * (runtime/serve/cmd_tensors.c) of engines that were built with --serve.
 */
struct cli_extra_command {
    const char *name, *summary;
    int (*run)(int argc, char **argv); /* argv[1] is the command's name */
};
struct cli_extra {
    const struct cli_extra_command *rows;
    int n;
};

int cmd_run(struct cli *c);
int cmd_info(struct cli *c);
int cmd_selftest(struct cli *c);
int cmd_bench(struct cli *c);
int cmd_profile(struct cli *c);
int cmd_licenses(struct cli *c);

/* Prints "error: NOTE" and returns the code. */
int cli_error(const struct infr_status *st);
/* The same from a format; the code is INFR_BAD_INPUT. */
__attribute__((format(printf, 1, 2))) int cli_usage(const char *format, ...);

/* ---- the engine and its tensors ---- */

struct cli_engine {
    struct infr_engine *e;
    struct infr_session *s;
    struct infr_tensor *in, *out; /* an input, an output */
    bool *given;                  /* an input: from a file */
};

/* Prints what is wrong. */
int cli_open(struct cli *c, struct cli_engine *x);
void cli_close(struct cli_engine *x);

/*
 * Reads the files of --input and, with --random, makes the missing inputs; prints what is wrong.
 * make_missing: missing inputs are made even without --random.
 */
int cli_load_inputs(struct cli *c, struct cli_engine *x, bool make_missing);
/* Are the --output arguments right? Asked before the run, so that a slip does not cost one. Prints
 * what is wrong. */
int cli_check_outputs(const struct cli *c, const struct infr_engine *e);
/* Writes the files of --output; without any, or with --print, the outputs are printed. */
int cli_store_outputs(struct cli *c, struct cli_engine *x);

/* "input  x  f32[batch, 8]" lines for all inputs. */
void cli_list_inputs(FILE *f, const struct infr_engine *e);
/* "f32[batch, 8]" */
void cli_io_text(const struct infr_io_info *io, char *out, size_t out_bytes);

/* From here on the session's runs are measured. */
int cli_profile_start(struct infr_session *s, bool trace, struct infr_status *st);
/* Prints where the time of these runs went, by the shape of the last one. */
int cli_profile_report(struct infr_session *s, long runs, bool json);
/* Writes the events of the first measured runs for chrome://tracing and Perfetto. */
int cli_profile_trace(struct infr_session *s, const char *path);

/* ---- JSON on standard output ---- */

/* Opens and closes with brackets; json_key writes commas where needed. */
struct json {
    FILE *f;
    bool comma;
};

void json_open(struct json *j, const char *key,
               char bracket); /* key NULL: an element of an array, or the root */
void json_close(struct json *j, char bracket);
void json_string(struct json *j, const char *key, const char *value);
void json_int(struct json *j, const char *key, int64_t value);
void json_number(struct json *j, const char *key, double value);
void json_bool(struct json *j, const char *key, bool value);
void json_null(struct json *j, const char *key);

#endif
