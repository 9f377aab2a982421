// SPDX-License-Identifier: Apache-2.0
/*
 * Reading of tensor IR text character by character. White space and `//` comments separate;
 * newlines mean nothing. The first error is reported as "file:line:column" and sticks: afterwards
 * everything fails quietly.
 */
#ifndef INFC_IR_LEX_H
#define INFC_IR_LEX_H

#include "ir/module.h"

struct lexer {
    const char *start, *p, *end;
    const char *file;
    struct diag_sink *diag;
    struct arena *arena; /* for names and strings */
    bool failed;
    /* Lines are counted lazily, from the last place asked for. */
    const char *line_at;
    unsigned line;
};

bool lex_fail(struct lexer *x, const char *fmt, ...) INFC_PRINTF(2, 3);
/* "file:line:column" of p, in the arena. */
const char *lex_where(struct lexer *x, const char *p);
/* Skips space; the next character, or 0 at the end. */
char lex_peek(struct lexer *x);
bool lex_accept(struct lexer *x, char c);
bool lex_expect(struct lexer *x, char c);
/* A plain word is next and equals word: consumes it. */
bool lex_accept_word(struct lexer *x, const char *word);
bool lex_expect_word(struct lexer *x, const char *word);
/* A plain word, or NULL without an error when something else is next. */
const char *lex_word(struct lexer *x);
/* A name: plain or quoted. NULL after an error. */
const char *lex_name(struct lexer *x);
const char *lex_string(struct lexer *x);
/* The characters of a number, inf or nan (possibly negative), for ir_read_*. NULL after an error.
 */
const char *lex_number(struct lexer *x);
bool lex_int(struct lexer *x, int64_t *out);
const struct dim *lex_dim(struct lexer *x, struct dim_ctx *ctx);
/* Dims up to the closing character (consumed); at most max of them. */
bool lex_dims(struct lexer *x, struct dim_ctx *ctx, char close, int max, const struct dim **out,
              int *n);
bool lex_type(struct lexer *x, struct ir_module *m, struct ir_type *out);

#endif
