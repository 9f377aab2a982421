// SPDX-License-Identifier: Apache-2.0
/* Command lines of infc and infc-opt, table-driven (options.def). */
#ifndef INFC_COMPILER_OPTIONS_H
#define INFC_COMPILER_OPTIONS_H

#include <stdio.h>

#include "ir/support/diag.h"

enum {
    CMD_BUILD = 1, CMD_CHECK = 2, CMD_INSPECT = 4, CMD_VERIFY = 8, CMD_OPT = 16,
    CMD_TARGETS = 32, CMD_OPS = 64, CMD_PASSES = 128, CMD_EXPLAIN = 256, CMD_DOCS = 512, CMD_BENCH = 1024, CMD_SERVE = 2048,
    CMD_MODEL = CMD_BUILD | CMD_CHECK | CMD_INSPECT | CMD_VERIFY,
    CMD_LIST = CMD_TARGETS | CMD_OPS | CMD_PASSES | CMD_EXPLAIN,
    CMD_ALL = 0xFFF
};

enum option_id {
#define OPT(ID, name, arg, commands, help) OPT_##ID,
#include "compiler/options.def"
#undef OPT
    OPT_COUNT
};

struct options {
    struct arena arena;
    unsigned command;
    VEC(const char *) args;            /* what is no option: model, engine */
    VEC(const char *) values[OPT_COUNT]; /* every value given, in order; "" for flags and bare =FILE options */
};

/* Parses argv (after the command's name). Unknown options and missing values are diagnostics with the nearest name. */
bool options_parse(struct options *o, unsigned command, int argc, char **argv, struct diag_sink *diag);
void options_deinit(struct options *o);
bool option_given(const struct options *o, enum option_id id);
const char *option_value(const struct options *o, enum option_id id, const char *dflt); /* the last one */
/* Decimal integer in [lo, hi]; dflt when absent; a diagnostic and false when malformed. */
bool option_int(const struct options *o, enum option_id id, int64_t lo, int64_t hi, int64_t dflt, int64_t *out,
                struct diag_sink *diag);
/* "Did you mean": the name of those offered that is nearest to what was given, NULL when none is near. */
struct nearest {
    const char *given, *name;
    size_t best;
};
struct nearest nearest_begin(const char *given);
void nearest_offer(struct nearest *n, const char *name); /* kept, not copied */
/* The options of a command, one a line, for --help. */
void options_help(FILE *out, unsigned command);
/* docs/options.md */
void options_markdown(FILE *out);

#endif
