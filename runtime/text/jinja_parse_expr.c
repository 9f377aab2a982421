// SPDX-License-Identifier: Apache-2.0
/*
 * Expressions, by recursive descent over the grammar of jinja2 (weakest first): inline if, or, and,
 * not, comparisons and in, + -, ~, * / // %, **, unary, then postfixes, filters and tests.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/text/jinja_compile.h"

static bool parse_unary(struct jinja_parser *p, bool with_filter, uint32_t *out);
static bool parse_postfix(struct jinja_parser *p, uint32_t *node);

static bool words_drop(struct jinja_words *w)
{
    free(w->v);
    *w = (struct jinja_words){0};
    return false;
}

static bool node1(struct jinja_parser *p, enum jinja_node_kind kind, uint32_t line, uint32_t a,
                  uint32_t *out)
{
    return jinja_build_node(p->b, (struct jinja_ast_node){.kind = kind, .line = line, .a = a}, out);
}

static bool node2(struct jinja_parser *p, enum jinja_node_kind kind, uint32_t line, uint32_t a,
                  uint32_t b, uint32_t *out)
{
    return jinja_build_node(
        p->b, (struct jinja_ast_node){.kind = kind, .line = line, .a = a, .b = b}, out);
}

/* ---- primaries ---------------------------------------------------------------------------- */

static bool parse_items(struct jinja_parser *p, bool is_dict, uint32_t *out)
{
    enum jinja_token_kind close = is_dict ? TOK_RBRACE : TOK_RBRACKET;
    struct jinja_words w = {0};
    uint32_t line = p->tok->line, node, list;

    p->tok++;
    while (p->tok->kind != (uint32_t)close) {
        if (w.count && !jinja_parser_expect(p, TOK_COMMA))
            return words_drop(&w);
        if (p->tok->kind == (uint32_t)close)
            break;
        if (!jinja_parse_expression(p, true, &node) || !jinja_words_push(p, &w, node))
            return words_drop(&w);
        if (is_dict && (!jinja_parser_expect(p, TOK_COLON) ||
                        !jinja_parse_expression(p, true, &node) || !jinja_words_push(p, &w, node)))
            return words_drop(&w);
    }
    p->tok++;
    return jinja_words_finish(p, &w, &list) &&
           node1(p, is_dict ? JN_DICT : JN_LIST, line, list, out);
}

static bool parse_string(struct jinja_parser *p, uint32_t *out)
{
    uint32_t line = p->tok->line, str = p->tok->str;
    size_t total = 0;
    const struct jinja_token *first = p->tok, *t;
    char *joined, *w;
    bool ok;

    while (p->tok->kind == TOK_STRING)
        total += p->b->strs[p->tok++->str].len;
    if (p->tok > first + 1) {
        joined = w = malloc(total + 1);
        if (!joined)
            return jinja_build_no_memory(p->b);
        for (t = first; t < p->tok; t++) {
            memcpy(w, p->b->bytes + p->b->strs[t->str].offset, p->b->strs[t->str].len);
            w += p->b->strs[t->str].len;
        }
        ok = jinja_build_str(p->b, joined, total, &str);
        free(joined);
        if (!ok)
            return false;
    }
    return node1(p, JN_STR, line, str, out);
}

static bool parse_name(struct jinja_parser *p, bool with_namespace, uint32_t *out)
{
    static const struct {
        const char *name;
        uint8_t kind;
    } constants[] = {{"true", JN_TRUE},   {"True", JN_TRUE}, {"false", JN_FALSE},
                     {"False", JN_FALSE}, {"none", JN_NONE}, {"None", JN_NONE}};
    const struct jinja_token *t = p->tok++;
    uint32_t name;
    size_t i;

    for (i = 0; i < sizeof(constants) / sizeof(constants[0]); i++)
        if (jinja_build_str_is(p->b, t->str, constants[i].name))
            return node1(p, constants[i].kind, t->line, 0, out);
    if (!node1(p, JN_NAME, t->line, t->str, &name))
        return false;
    if (with_namespace && p->tok->kind == TOK_DOT) {
        p->tok++;
        if (p->tok->kind != TOK_NAME)
            return jinja_parser_expect(p, TOK_NAME);
        return node2(p, JN_NSREF, t->line, name, p->tok++->str, out);
    }
    *out = name;
    return true;
}

static bool parse_primary(struct jinja_parser *p, bool with_namespace, uint32_t *out)
{
    const struct jinja_token *t = p->tok;
    char buf[64];

    switch (t->kind) {
    case TOK_NAME:
        return parse_name(p, with_namespace, out);
    case TOK_STRING:
        return parse_string(p, out);
    case TOK_INTEGER:
    case TOK_FLOAT:
        p->tok++;
        return node2(p, t->kind == TOK_INTEGER ? JN_INT : JN_FLOAT, t->line, (uint32_t)t->bits,
                     (uint32_t)(t->bits >> 32), out);
    case TOK_LPAREN:
        p->tok++;
        return jinja_parse_tuple(p, JINJA_TUPLE_PARENS, NULL, out) &&
               jinja_parser_expect(p, TOK_RPAREN);
    case TOK_LBRACKET:
        return parse_items(p, false, out);
    case TOK_LBRACE:
        return parse_items(p, true, out);
    default:
        return jinja_parser_fail(p, "unexpected '%s'", jinja_parser_describe(p, buf));
    }
}

static bool tuple_ends(const struct jinja_parser *p, const char *end_name)
{
    return p->tok->kind == TOK_VAR_END || p->tok->kind == TOK_BLOCK_END ||
           p->tok->kind == TOK_RPAREN || (end_name && jinja_parser_is_name(p, end_name));
}

bool jinja_parse_tuple(struct jinja_parser *p, unsigned flags, const char *end_name, uint32_t *out)
{
    struct jinja_words w = {0};
    uint32_t line = p->tok->line, node, list;
    bool is_tuple = false, ok;
    char buf[64];

    for (;;) {
        if (w.count && !jinja_parser_expect(p, TOK_COMMA))
            return words_drop(&w);
        if (tuple_ends(p, end_name))
            break;
        if (flags & JINJA_TUPLE_SIMPLE)
            ok = jinja_parser_enter(p) &&
                 parse_primary(p, (flags & JINJA_TUPLE_NAMESPACE) != 0, &node);
        else
            ok = jinja_parser_enter(p) &&
                 jinja_parse_expression(p, !(flags & JINJA_TUPLE_NO_COND), &node);
        if (!ok || !jinja_words_push(p, &w, node))
            return words_drop(&w);
        p->depth--;
        if (p->tok->kind != TOK_COMMA)
            break;
        is_tuple = true;
        line = p->tok->line;
    }
    if (!is_tuple && w.count) {
        *out = w.v[0];
        words_drop(&w);
        return true;
    }
    if (!is_tuple && !(flags & JINJA_TUPLE_PARENS)) {
        words_drop(&w);
        return jinja_parser_fail(p, "Expected an expression, got '%s'",
                                 jinja_parser_describe(p, buf));
    }
    return jinja_words_finish(p, &w, &list) && node1(p, JN_TUPLE, line, list, out);
}

/* ---- postfixes: subscripts, calls, filters, tests ------------------------------------------ */

/* The arguments of a call, also without parentheses: then empty. Gives a record A. */
static bool parse_args(struct jinja_parser *p, uint32_t *out)
{
    struct jinja_words pos = {0}, kw = {0}, rec = {0};
    uint32_t node, dyn[2] = {0, 0}, k;
    bool comma = false, ok = true;
    const struct jinja_token *start = p->tok;
    size_t i;

    p->tok++;
    while (ok && p->tok->kind != TOK_RPAREN) {
        if (comma) {
            if (!(ok = jinja_parser_expect(p, TOK_COMMA)))
                break;
            if (p->tok->kind == TOK_RPAREN)
                break;
        }
        comma = true;
        if (p->tok->kind == TOK_MUL || p->tok->kind == TOK_POW) {
            k = p->tok->kind == TOK_POW;
            if (dyn[k] || dyn[1])
                goto invalid;
            p->tok++;
            ok = jinja_parse_expression(p, true, &dyn[k]);
        } else if (p->tok->kind == TOK_NAME && p->tok[1].kind == TOK_ASSIGN) {
            if (dyn[1])
                goto invalid;
            ok = jinja_words_push(p, &kw, p->tok->str);
            p->tok += 2;
            ok = ok && jinja_parse_expression(p, true, &node) && jinja_words_push(p, &kw, node);
        } else {
            if (dyn[0] || dyn[1] || kw.count)
                goto invalid;
            ok = jinja_parse_expression(p, true, &node) && jinja_words_push(p, &pos, node);
        }
    }
    if (ok)
        p->tok++;
    ok = ok && jinja_words_push(p, &rec, (uint32_t)pos.count) &&
         jinja_words_push(p, &rec, (uint32_t)kw.count / 2) && jinja_words_push(p, &rec, dyn[0]) &&
         jinja_words_push(p, &rec, dyn[1]);
    for (i = 0; ok && i < pos.count; i++)
        ok = jinja_words_push(p, &rec, pos.v[i]);
    for (i = 0; ok && i < kw.count; i++)
        ok = jinja_words_push(p, &rec, kw.v[i]);
    ok = ok && jinja_build_list(p->b, rec.v, rec.count, out);
    words_drop(&pos);
    words_drop(&kw);
    words_drop(&rec);
    return ok;

invalid:
    words_drop(&pos);
    words_drop(&kw);
    p->tok = start;
    return jinja_parser_fail(p, "invalid syntax for function call expression");
}

/* A record A of at most one positional argument (0: none). */
static bool make_args(struct jinja_parser *p, uint32_t arg, uint32_t *out)
{
    const uint32_t rec[5] = {arg ? 1 : 0, 0, 0, 0, arg};

    return jinja_build_list(p->b, rec, arg ? 5 : 4, out);
}

static bool parse_call(struct jinja_parser *p, uint32_t *node)
{
    uint32_t line = p->tok->line, args;

    return parse_args(p, &args) && node2(p, JN_CALL, line, *node, args, node);
}

/* Between the brackets: an expression, or a slice of *object. */
static bool parse_bracket(struct jinja_parser *p, uint32_t line, uint32_t object, uint32_t *out)
{
    struct jinja_words keys = {0};
    uint32_t part[3] = {0, 0, 0}, key, list;
    unsigned i;

    if (p->tok->kind != TOK_COLON) {
        if (!jinja_parse_expression(p, true, &key))
            return false;
        if (p->tok->kind == TOK_RBRACKET)
            return node2(p, JN_GETITEM, line, object, key, out);
        if (p->tok->kind == TOK_COMMA) { /* x[1, 2] is x[(1, 2)] */
            if (!jinja_words_push(p, &keys, key))
                return words_drop(&keys);
            while (p->tok->kind == TOK_COMMA) {
                p->tok++;
                if (!jinja_parse_expression(p, true, &key) || !jinja_words_push(p, &keys, key))
                    return words_drop(&keys);
            }
            return jinja_words_finish(p, &keys, &list) && node1(p, JN_TUPLE, line, list, &key) &&
                   node2(p, JN_GETITEM, line, object, key, out);
        }
        part[0] = key;
    }
    for (i = 1; i < 3 && p->tok->kind == TOK_COLON; i++) {
        p->tok++;
        if (p->tok->kind != TOK_COLON && p->tok->kind != TOK_RBRACKET &&
            !jinja_parse_expression(p, true, &part[i]))
            return false;
    }
    return jinja_build_node(
        p->b,
        (struct jinja_ast_node){
            .kind = JN_SLICE, .line = line, .a = object, .b = part[0], .c = part[1], .d = part[2]},
        out);
}

static bool parse_subscript(struct jinja_parser *p, uint32_t *node)
{
    const struct jinja_token *t = p->tok++, *number;
    uint32_t key;

    if (t->kind == TOK_LBRACKET)
        return parse_bracket(p, t->line, *node, node) && jinja_parser_expect(p, TOK_RBRACKET);
    if (p->tok->kind == TOK_NAME)
        return node2(p, JN_GETATTR, t->line, *node, p->tok++->str, node);
    if (p->tok->kind != TOK_INTEGER)
        return jinja_parser_fail(p, "expected name or number");
    number = p->tok++;
    return node2(p, JN_INT, number->line, (uint32_t)number->bits, (uint32_t)(number->bits >> 32),
                 &key) &&
           node2(p, JN_GETITEM, t->line, *node, key, node);
}

static bool parse_postfix(struct jinja_parser *p, uint32_t *node)
{
    for (;;) {
        if (p->tok->kind == TOK_DOT || p->tok->kind == TOK_LBRACKET) {
            if (!parse_subscript(p, node))
                return false;
        } else if (p->tok->kind == TOK_LPAREN) {
            if (!parse_call(p, node))
                return false;
        } else {
            return true;
        }
    }
}

/* name(.name)*, as filters and tests are named */
static bool parse_dotted(struct jinja_parser *p, uint32_t *out)
{
    uint32_t str;
    char buf[128];
    int n;

    if (p->tok->kind != TOK_NAME)
        return jinja_parser_expect(p, TOK_NAME);
    str = p->tok++->str;
    while (p->tok->kind == TOK_DOT) {
        p->tok++;
        if (p->tok->kind != TOK_NAME)
            return jinja_parser_expect(p, TOK_NAME);
        n = snprintf(buf, sizeof(buf), "%.*s.%.*s", (int)p->b->strs[str].len,
                     p->b->bytes + p->b->strs[str].offset, (int)p->b->strs[p->tok->str].len,
                     p->b->bytes + p->b->strs[p->tok->str].offset);
        if (n < 0 || (size_t)n >= sizeof(buf))
            return jinja_parser_fail(p, "name too long");
        if (!jinja_build_str(p->b, buf, (size_t)n, &str))
            return false;
        p->tok++;
    }
    *out = str;
    return true;
}

bool jinja_parse_filter(struct jinja_parser *p, uint32_t value, bool start_inline, uint32_t *out)
{
    struct jinja_ast_node n;

    while (start_inline || p->tok->kind == TOK_PIPE) {
        if (!start_inline)
            p->tok++;
        start_inline = false;
        n = (struct jinja_ast_node){.kind = JN_FILTER, .line = p->tok->line, .a = value};
        if (!parse_dotted(p, &n.d))
            return false;
        if (!(p->tok->kind == TOK_LPAREN ? parse_args(p, &n.b) : make_args(p, 0, &n.b)))
            return false;
        if (!jinja_build_node(p->b, n, &value))
            return false;
    }
    *out = value;
    return true;
}

static bool test_takes_argument(const struct jinja_parser *p)
{
    switch (p->tok->kind) {
    case TOK_NAME:
        return !jinja_parser_is_name(p, "else") && !jinja_parser_is_name(p, "or") &&
               !jinja_parser_is_name(p, "and");
    case TOK_STRING:
    case TOK_INTEGER:
    case TOK_FLOAT:
    case TOK_LBRACKET:
    case TOK_LBRACE:
        return true;
    default:
        return false;
    }
}

static bool parse_test(struct jinja_parser *p, uint32_t *node)
{
    struct jinja_ast_node n = {.kind = JN_TEST, .line = p->tok++->line, .a = *node};
    bool negated = jinja_parser_skip_name(p, "not");
    uint32_t arg = 0;

    if (!parse_dotted(p, &n.d))
        return false;
    if (p->tok->kind == TOK_LPAREN) {
        if (!parse_args(p, &n.b))
            return false;
    } else {
        if (test_takes_argument(p)) {
            if (jinja_parser_is_name(p, "is"))
                return jinja_parser_fail(p, "You cannot chain multiple tests with is");
            if (!parse_primary(p, false, &arg) || !parse_postfix(p, &arg))
                return false;
        }
        if (!make_args(p, arg, &n.b))
            return false;
    }
    return jinja_build_node(p->b, n, node) && (!negated || node1(p, JN_NOT, n.line, *node, node));
}

static bool parse_filters_and_tests(struct jinja_parser *p, uint32_t *node)
{
    for (;;) {
        if (p->tok->kind == TOK_PIPE) {
            if (!jinja_parse_filter(p, *node, false, node))
                return false;
        } else if (jinja_parser_is_name(p, "is")) {
            if (!parse_test(p, node))
                return false;
        } else if (p->tok->kind == TOK_LPAREN) {
            if (!parse_call(p, node))
                return false;
        } else {
            return true;
        }
    }
}

/* ---- operators ---------------------------------------------------------------------------- */

static bool parse_unary(struct jinja_parser *p, bool with_filter, uint32_t *out)
{
    uint32_t line = p->tok->line, kind = p->tok->kind;
    bool ok;

    if (!jinja_parser_enter(p))
        return false;
    if (kind == TOK_SUB || kind == TOK_ADD) {
        p->tok++;
        ok = parse_unary(p, false, out) &&
             node1(p, kind == TOK_SUB ? JN_NEG : JN_POS, line, *out, out);
    } else {
        ok = parse_primary(p, false, out);
    }
    ok = ok && parse_postfix(p, out) && (!with_filter || parse_filters_and_tests(p, out));
    p->depth--;
    return ok;
}

static bool parse_pow(struct jinja_parser *p, uint32_t *out)
{
    uint32_t line = p->tok->line, right;

    if (!parse_unary(p, true, out))
        return false;
    while (p->tok->kind == TOK_POW) {
        p->tok++;
        if (!parse_unary(p, true, &right) || !node2(p, JN_POW, line, *out, right, out))
            return false;
    }
    return true;
}

static bool parse_product(struct jinja_parser *p, uint32_t *out)
{
    uint32_t line = p->tok->line, right;
    enum jinja_node_kind kind;

    if (!parse_pow(p, out))
        return false;
    for (;;) {
        switch (p->tok->kind) {
        case TOK_MUL:
            kind = JN_MUL;
            break;
        case TOK_DIV:
            kind = JN_DIV;
            break;
        case TOK_FLOORDIV:
            kind = JN_FLOORDIV;
            break;
        case TOK_MOD:
            kind = JN_MOD;
            break;
        default:
            return true;
        }
        p->tok++;
        if (!parse_pow(p, &right) || !node2(p, kind, line, *out, right, out))
            return false;
    }
}

static bool parse_concat(struct jinja_parser *p, uint32_t *out)
{
    struct jinja_words w = {0};
    uint32_t line = p->tok->line, node, list;

    if (!parse_product(p, out))
        return false;
    if (p->tok->kind != TOK_TILDE)
        return true;
    if (!jinja_words_push(p, &w, *out))
        return words_drop(&w);
    while (p->tok->kind == TOK_TILDE) {
        p->tok++;
        if (!parse_product(p, &node) || !jinja_words_push(p, &w, node))
            return words_drop(&w);
    }
    return jinja_words_finish(p, &w, &list) && node1(p, JN_CONCAT, line, list, out);
}

static bool parse_sum(struct jinja_parser *p, uint32_t *out)
{
    uint32_t line = p->tok->line, right, kind;

    if (!parse_concat(p, out))
        return false;
    while (p->tok->kind == TOK_ADD || p->tok->kind == TOK_SUB) {
        kind = p->tok++->kind;
        if (!parse_concat(p, &right) ||
            !node2(p, kind == TOK_ADD ? JN_ADD : JN_SUB, line, *out, right, out))
            return false;
    }
    return true;
}

/* The comparison at the current token, consumed; -1 when there is none. */
static int take_cmp(struct jinja_parser *p)
{
    static const int8_t ops[] = {
        [TOK_EQ - TOK_EQ] = JINJA_CMP_EQ, [TOK_NE - TOK_EQ] = JINJA_CMP_NE,
        [TOK_GT - TOK_EQ] = JINJA_CMP_GT, [TOK_GE - TOK_EQ] = JINJA_CMP_GE,
        [TOK_LT - TOK_EQ] = JINJA_CMP_LT, [TOK_LE - TOK_EQ] = JINJA_CMP_LE,
    };

    if (p->tok->kind >= TOK_EQ && p->tok->kind <= TOK_LE)
        return ops[p->tok++->kind - TOK_EQ];
    if (jinja_parser_skip_name(p, "in"))
        return JINJA_CMP_IN;
    if (jinja_parser_is_name(p, "not") && p->tok[1].kind == TOK_NAME &&
        jinja_build_str_is(p->b, p->tok[1].str, "in")) {
        p->tok += 2;
        return JINJA_CMP_NOTIN;
    }
    return -1;
}

static bool parse_compare(struct jinja_parser *p, uint32_t *out)
{
    struct jinja_words w = {0};
    uint32_t line = p->tok->line, node, list;
    int op;

    if (!parse_sum(p, out))
        return false;
    while ((op = take_cmp(p)) >= 0)
        if (!parse_sum(p, &node) || !jinja_words_push(p, &w, (uint32_t)op) ||
            !jinja_words_push(p, &w, node))
            return words_drop(&w);
    if (!w.count)
        return true;
    return jinja_words_finish(p, &w, &list) && node2(p, JN_COMPARE, line, *out, list, out);
}

static bool parse_not(struct jinja_parser *p, uint32_t *out)
{
    uint32_t line = p->tok->line;
    bool ok;

    if (!jinja_parser_skip_name(p, "not"))
        return parse_compare(p, out);
    ok = jinja_parser_enter(p) && parse_not(p, out) && node1(p, JN_NOT, line, *out, out);
    p->depth--;
    return ok;
}

static bool parse_and(struct jinja_parser *p, uint32_t *out)
{
    uint32_t line = p->tok->line, right;

    if (!parse_not(p, out))
        return false;
    while (jinja_parser_skip_name(p, "and"))
        if (!parse_not(p, &right) || !node2(p, JN_AND, line, *out, right, out))
            return false;
    return true;
}

static bool parse_or(struct jinja_parser *p, uint32_t *out)
{
    uint32_t line = p->tok->line, right;

    if (!parse_and(p, out))
        return false;
    while (jinja_parser_skip_name(p, "or"))
        if (!parse_and(p, &right) || !node2(p, JN_OR, line, *out, right, out))
            return false;
    return true;
}

bool jinja_parse_expression(struct jinja_parser *p, bool with_cond, uint32_t *out)
{
    uint32_t line = p->tok->line, test, other;
    bool ok;

    if (!jinja_parser_enter(p))
        return false;
    ok = parse_or(p, out);
    while (ok && with_cond && jinja_parser_skip_name(p, "if")) {
        other = 0;
        ok = parse_or(p, &test);
        if (ok && jinja_parser_skip_name(p, "else"))
            ok = jinja_parse_expression(p, true, &other);
        ok = ok &&
             jinja_build_node(p->b,
                              (struct jinja_ast_node){
                                  .kind = JN_COND, .line = line, .a = test, .b = *out, .c = other},
                              out);
    }
    p->depth--;
    return ok;
}
