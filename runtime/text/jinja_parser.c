// SPDX-License-Identifier: Apache-2.0
/* What the expression and the statement parser share: the token cursor, word lists, messages. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/text/jinja_compile.h"

/* Nested parentheses, lists, nots and statements; bounds the C stack of the parser. */
#define MAX_PARSE_DEPTH 200u

bool jinja_parser_fail(struct jinja_parser *p, const char *fmt, ...)
{
    char text[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return jinja_build_fail(p->b, JINJA_ERR_SYNTAX, p->tok->line, "%s", text);
}

bool jinja_parser_enter(struct jinja_parser *p)
{
    if (++p->depth > MAX_PARSE_DEPTH)
        return jinja_build_fail(p->b, JINJA_ERR_LIMIT, p->tok->line, "template nested too deeply");
    return true;
}

const char *jinja_parser_describe(const struct jinja_parser *p, char buf[64])
{
    static const char *const names[] = {
        [TOK_EOF] = "end of template",
        [TOK_DATA] = "template text",
        [TOK_VAR_BEGIN] = "{{",
        [TOK_VAR_END] = "}}",
        [TOK_BLOCK_BEGIN] = "{%",
        [TOK_BLOCK_END] = "%}",
        [TOK_STRING] = "string",
        [TOK_INTEGER] = "integer",
        [TOK_FLOAT] = "float",
        [TOK_ADD] = "+",
        [TOK_SUB] = "-",
        [TOK_DIV] = "/",
        [TOK_FLOORDIV] = "//",
        [TOK_MUL] = "*",
        [TOK_MOD] = "%",
        [TOK_POW] = "**",
        [TOK_TILDE] = "~",
        [TOK_LBRACKET] = "[",
        [TOK_RBRACKET] = "]",
        [TOK_LPAREN] = "(",
        [TOK_RPAREN] = ")",
        [TOK_LBRACE] = "{",
        [TOK_RBRACE] = "}",
        [TOK_EQ] = "==",
        [TOK_NE] = "!=",
        [TOK_GT] = ">",
        [TOK_GE] = ">=",
        [TOK_LT] = "<",
        [TOK_LE] = "<=",
        [TOK_ASSIGN] = "=",
        [TOK_DOT] = ".",
        [TOK_COLON] = ":",
        [TOK_PIPE] = "|",
        [TOK_COMMA] = ",",
        [TOK_SEMICOLON] = ";",
    };

    if (p->tok->kind == TOK_NAME) {
        const struct jinja_ast_str *s = &p->b->strs[p->tok->str];

        snprintf(buf, 64, "%.*s", s->len < 60 ? (int)s->len : 60, p->b->bytes + s->offset);
    } else {
        snprintf(buf, 64, "%s", names[p->tok->kind]);
    }
    return buf;
}

bool jinja_parser_expect(struct jinja_parser *p, enum jinja_token_kind kind)
{
    char buf[64], want[64];
    struct jinja_token t = {.kind = kind};
    struct jinja_parser q = {.b = p->b, .tok = &t};

    if (p->tok->kind == (uint32_t)kind) {
        if (kind != TOK_EOF)
            p->tok++;
        return true;
    }
    if (kind == TOK_NAME)
        snprintf(want, sizeof(want), "name");
    else
        jinja_parser_describe(&q, want);
    return jinja_parser_fail(p, "expected token '%s', got '%s'", want,
                             jinja_parser_describe(p, buf));
}

bool jinja_parser_is_name(const struct jinja_parser *p, const char *name)
{
    return p->tok->kind == TOK_NAME && jinja_build_str_is(p->b, p->tok->str, name);
}

bool jinja_parser_skip_name(struct jinja_parser *p, const char *name)
{
    if (!jinja_parser_is_name(p, name))
        return false;
    p->tok++;
    return true;
}

bool jinja_parser_expect_name(struct jinja_parser *p, const char *name)
{
    char buf[64];

    if (jinja_parser_skip_name(p, name))
        return true;
    return jinja_parser_fail(p, "expected token '%s', got '%s'", name,
                             jinja_parser_describe(p, buf));
}

bool jinja_words_push(struct jinja_parser *p, struct jinja_words *w, uint32_t word)
{
    if (w->count == w->cap) {
        size_t cap = w->cap ? w->cap * 2 : 8;
        uint32_t *v = realloc(w->v, cap * sizeof(*v));

        if (!v)
            return jinja_build_no_memory(p->b);
        w->v = v;
        w->cap = cap;
    }
    w->v[w->count++] = word;
    return true;
}

bool jinja_words_finish(struct jinja_parser *p, struct jinja_words *w, uint32_t *out)
{
    bool ok = jinja_build_list(p->b, w->v, w->count, out);

    free(w->v);
    *w = (struct jinja_words){0};
    return ok;
}
