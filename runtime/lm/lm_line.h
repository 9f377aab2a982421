// SPDX-License-Identifier: Apache-2.0
/*
 * Reads lines: from a terminal with editing and history, else as they come. Everything that the
 * editor shows goes to standard error. The terminal is in raw mode only inside of lm_line_read.
 *
 *   left right home end ctrl-a ctrl-e   move          up down        history
 *   backspace delete ctrl-w -u -k       delete        ctrl-l         clear the screen
 *   alt-enter, or a \ at the end        a line feed   ctrl-c         give the line up
 *   enter                               done          ctrl-d         end, on an empty line
 */
#ifndef INFC_RUNTIME_LM_LINE_H
#define INFC_RUNTIME_LM_LINE_H

#include <stdbool.h>
#include <stddef.h>

enum { LM_LINE_HISTORY = 100, LM_LINE_MOST = 1 << 20 };

struct lm_line {
    char *text; /* UTF-8 as typed, NUL behind it */
    size_t n, cap, at;
    char *history[LM_LINE_HISTORY];
    int n_history;
    int fd;
    bool edits; /* a terminal */
};

enum lm_line_result { LM_LINE_TEXT, LM_LINE_END, LM_LINE_GIVEN_UP };

void lm_line_init(struct lm_line *l, int fd);
void lm_line_deinit(struct lm_line *l);
/* The line is l->text, without its end, until the next call. */
enum lm_line_result lm_line_read(struct lm_line *l, const char *prompt);

/* ---- for tests: the editor without a terminal ---- */

enum lm_key {
    LM_KEY_NONE = 0x110000, /* below: a character to insert */
    LM_KEY_LEFT,
    LM_KEY_RIGHT,
    LM_KEY_HOME,
    LM_KEY_END,
    LM_KEY_UP,
    LM_KEY_DOWN,
    LM_KEY_BACKSPACE,
    LM_KEY_DELETE,
    LM_KEY_WORD_BACK,
    LM_KEY_TO_START,
    LM_KEY_TO_END,
    LM_KEY_CLEAR,
    LM_KEY_ENTER,
    LM_KEY_BREAK,
    LM_KEY_EOF,
    LM_KEY_PASTE
};

/* Next key of bytes[*at..n); false when they end inside of it. */
bool lm_line_key(const unsigned char *bytes, size_t n, size_t *at, unsigned *out_key);
/* Applies a key that changes the text or the place in it. */
void lm_line_edit(struct lm_line *l, unsigned key);
/* Columns that n bytes of UTF-8 take on a terminal. */
size_t lm_line_columns(const char *text, size_t n);

#endif
