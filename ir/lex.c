// SPDX-License-Identifier: Apache-2.0
#include "ir/lex.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ir/encoding.h"
#include "ir/number_text.h"
#include "ir/quote.h"

const char *lex_where(struct lexer *x, const char *p)
{
    if (!x->line_at || p < x->line_at) {
        x->line_at = x->start;
        x->line = 1;
    }
    const char *line_start = x->line_at;
    for (const char *q = x->line_at; q < p; q++)
        if (*q == '\n') x->line++, line_start = q + 1;
    x->line_at = line_start;
    return arena_printf(x->arena, "%s:%u:%zu", x->file, x->line, (size_t)(p - line_start) + 1);
}

bool lex_fail(struct lexer *x, const char *fmt, ...)
{
    if (x->failed) return false;
    x->failed = true;
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return diag_report(x->diag, DIAG_IR_SYNTAX, lex_where(x, x->p), "%s", text);
}

char lex_peek(struct lexer *x)
{
    for (; x->p < x->end; x->p++) {
        char c = *x->p;
        if (c == '/' && x->end - x->p > 1 && x->p[1] == '/') {
            while (x->p < x->end && *x->p != '\n') x->p++;
            if (x->p == x->end) break;
        } else if (c != ' ' && c != '\t' && c != '\n' && c != '\r') {
            return c;
        }
    }
    return 0;
}

bool lex_accept(struct lexer *x, char c)
{
    if (x->failed || lex_peek(x) != c || x->p == x->end) return false;
    x->p++;
    return true;
}

bool lex_expect(struct lexer *x, char c)
{
    return lex_accept(x, c) || lex_fail(x, "expected `%c`", c);
}

/* Length of the plain word at p, or 0. */
static size_t word_len(struct lexer *x)
{
    lex_peek(x);
    if (x->p == x->end || !ir_is_name_start(*x->p)) return 0;
    size_t n = 1;
    while (x->p + n < x->end && ir_is_name_char(x->p[n])) n++;
    return n;
}

bool lex_accept_word(struct lexer *x, const char *word)
{
    size_t n = word_len(x);
    if (x->failed || n == 0 || strlen(word) != n || memcmp(x->p, word, n)) return false;
    x->p += n;
    return true;
}

bool lex_expect_word(struct lexer *x, const char *word)
{
    return lex_accept_word(x, word) || lex_fail(x, "expected `%s`", word);
}

const char *lex_word(struct lexer *x)
{
    size_t n = word_len(x);
    if (x->failed || n == 0) return NULL;
    x->p += n;
    return arena_strndup(x->arena, x->p - n, n);
}

const char *lex_string(struct lexer *x)
{
    if (x->failed) return NULL;
    const char *s = lex_peek(x) == '"' ? ir_read_quoted(x->arena, &x->p, x->end) : NULL;
    if (!s) lex_fail(x, "expected a string in quotes");
    return s;
}

const char *lex_name(struct lexer *x)
{
    if (lex_peek(x) == '"') return lex_string(x);
    const char *s = lex_word(x);
    if (!s) lex_fail(x, "expected a name");
    return s;
}

const char *lex_number(struct lexer *x)
{
    lex_peek(x);
    size_t n = 0;
    while (!x->failed && x->p + n < x->end && n < 64 &&
           (ir_is_name_char(x->p[n]) || x->p[n] == '-' || x->p[n] == '+'))
        n++;
    if (n == 0) {
        lex_fail(x, "expected a number");
        return NULL;
    }
    x->p += n;
    return arena_strndup(x->arena, x->p - n, n);
}

bool lex_int(struct lexer *x, int64_t *out)
{
    const char *s = lex_number(x);
    return s && (ir_read_int(s, out) || lex_fail(x, "`%s` is not an integer of 64 bits", s));
}

const struct dim *lex_dim(struct lexer *x, struct dim_ctx *ctx)
{
    lex_peek(x);
    const struct dim *d = x->failed ? NULL : dim_parse(ctx, &x->p, x->end);
    if (!d) lex_fail(x, "expected a dim");
    return d;
}

bool lex_dims(struct lexer *x, struct dim_ctx *ctx, char close, int max, const struct dim **out,
              int *n)
{
    *n = 0;
    while (!lex_accept(x, close)) {
        if (*n && !lex_expect(x, ',')) return false;
        if (*n == max) return lex_fail(x, "more than %d dims", max);
        if (!(out[*n] = lex_dim(x, ctx))) return false;
        ++*n;
    }
    return true;
}

bool lex_type(struct lexer *x, struct ir_module *m, struct ir_type *out)
{
    const char *word = lex_word(x);
    const struct ir_encoding *enc = NULL;
    if (word && lex_peek(x) != '[' && (enc = encoding_find(word, strlen(word))) != NULL)
        word = lex_word(x);
    enum dtype dtype = word ? dtype_find(word, strlen(word)) : DT_NONE;
    const struct dim *dims[IR_MAX_RANK];
    int rank;
    if (dtype == DT_NONE) return lex_fail(x, "expected an element type");
    if (!lex_expect(x, '[') || !lex_dims(x, m->dims, ']', IR_MAX_RANK, dims, &rank)) return false;
    if (enc && dtype != DT_F32) return lex_fail(x, "an encoding stores f32 elements");
    *out = ir_type_make(m, dtype, rank, dims);
    out->enc = enc;
    return true;
}
