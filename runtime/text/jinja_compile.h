// SPDX-License-Identifier: Apache-2.0
/* Private to the template compiler: tokens, the growing AST, and the passes over it. */
#ifndef INFC_RUNTIME_TEXT_JINJA_COMPILE_H
#define INFC_RUNTIME_TEXT_JINJA_COMPILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/text/jinja.h"
#include "runtime/text/jinja_ast.h"

enum jinja_token_kind {
    TOK_EOF = 0,
    TOK_DATA,
    TOK_VAR_BEGIN,
    TOK_VAR_END,
    TOK_BLOCK_BEGIN,
    TOK_BLOCK_END,
    TOK_NAME,
    TOK_STRING,
    TOK_INTEGER,
    TOK_FLOAT,
    TOK_ADD,
    TOK_SUB,
    TOK_DIV,
    TOK_FLOORDIV,
    TOK_MUL,
    TOK_MOD,
    TOK_POW,
    TOK_TILDE,
    TOK_LBRACKET,
    TOK_RBRACKET,
    TOK_LPAREN,
    TOK_RPAREN,
    TOK_LBRACE,
    TOK_RBRACE,
    TOK_EQ,
    TOK_NE,
    TOK_GT,
    TOK_GE,
    TOK_LT,
    TOK_LE,
    TOK_ASSIGN,
    TOK_DOT,
    TOK_COLON,
    TOK_PIPE,
    TOK_COMMA,
    TOK_SEMICOLON,
};

/* str: the text of names, strings and data; bits: integers and floats. */
struct jinja_token {
    uint32_t kind, line;
    uint32_t str;
    uint64_t bits;
};

/* Everything that a compilation grows. Vectors are malloc'ed and freed by jinja_build_deinit. */
struct jinja_build {
    struct jinja_error *err;
    struct jinja_token *tokens;
    size_t token_count, token_cap;
    struct jinja_ast_node *nodes;
    size_t node_count, node_cap;
    uint32_t *lists;
    size_t list_count, list_cap;
    struct jinja_ast_str *strs;
    size_t str_count, str_cap;
    char *bytes;
    size_t byte_count, byte_cap;
    uint32_t *intern; /* open addressing, string number + 1 */
    size_t intern_cap, probes;
    uint32_t root_body, root_scope;
};

/* Sets the error and returns false. */
bool jinja_build_fail(struct jinja_build *b, enum jinja_status code, uint32_t line, const char *fmt,
                      ...) __attribute__((format(printf, 4, 5)));
bool jinja_build_no_memory(struct jinja_build *b);
/* Returns the number of an equal string, or adds it. */
bool jinja_build_str(struct jinja_build *b, const char *text, size_t len, uint32_t *out);
bool jinja_build_node(struct jinja_build *b, struct jinja_ast_node node, uint32_t *out);
/* Adds a list of words; count 0 gives list 0. */
bool jinja_build_list(struct jinja_build *b, const uint32_t *words, size_t count, uint32_t *out);
bool jinja_build_token(struct jinja_build *b, struct jinja_token token);

static inline bool jinja_build_str_is(const struct jinja_build *b, uint32_t str, const char *text)
{
    size_t i, n = b->strs[str].len;
    const char *s = b->bytes + b->strs[str].offset;

    for (i = 0; i < n; i++)
        if (!text[i] || s[i] != text[i])
            return false;
    return text[n] == 0;
}

/* Source (valid UTF-8) to tokens, ending with TOK_EOF. */
bool jinja_lex(struct jinja_build *b, const char *source, size_t len);
/* Tokens to nodes; sets root_body. */
bool jinja_parse(struct jinja_build *b);
/* Gives every name its frame and slot and every scope its record, by the rules of jinja2's
 * compiler; checks filter and test names; sets root_scope. */
bool jinja_resolve(struct jinja_build *b);

/* ---- between the two parser files ---- */

/* A growing list of words while its elements are parsed. */
struct jinja_words {
    uint32_t *v;
    size_t count, cap;
};

struct jinja_parser {
    struct jinja_build *b;
    const struct jinja_token *tok; /* current */
    uint32_t depth;
    uint32_t loops; /* enclosing loops that break and continue can reach */
};

bool jinja_words_push(struct jinja_parser *p, struct jinja_words *w, uint32_t word);
/* Makes the list and frees the words, also on failure. */
bool jinja_words_finish(struct jinja_parser *p, struct jinja_words *w, uint32_t *out);

bool jinja_parser_fail(struct jinja_parser *p, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
bool jinja_parser_enter(struct jinja_parser *p);
bool jinja_parser_expect(struct jinja_parser *p, enum jinja_token_kind kind);
bool jinja_parser_is_name(const struct jinja_parser *p, const char *name);
bool jinja_parser_skip_name(struct jinja_parser *p, const char *name);
bool jinja_parser_expect_name(struct jinja_parser *p, const char *name);
/* A readable form of the current token for messages, in a buffer of the caller. */
const char *jinja_parser_describe(const struct jinja_parser *p, char buf[64]);

#define JINJA_TUPLE_SIMPLE 1u    /* names and literals only */
#define JINJA_TUPLE_NO_COND 2u   /* no inline if */
#define JINJA_TUPLE_PARENS 4u    /* inside parentheses: may be empty */
#define JINJA_TUPLE_NAMESPACE 8u /* `ns.attr` is a target */
/* end_name: a name that also ends the tuple, or NULL. */
bool jinja_parse_tuple(struct jinja_parser *p, unsigned flags, const char *end_name, uint32_t *out);
bool jinja_parse_expression(struct jinja_parser *p, bool with_cond, uint32_t *out);
/* Zero or more `|filter`; start_inline: the first one stands without a bar. */
bool jinja_parse_filter(struct jinja_parser *p, uint32_t value, bool start_inline, uint32_t *out);

#endif
