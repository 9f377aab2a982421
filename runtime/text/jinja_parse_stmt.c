// SPDX-License-Identifier: Apache-2.0
/*
 * Statements and template text. Each block parser starts after its tag name and leaves the current
 * token at the BLOCK_END of its last tag.
 */
#include <stdlib.h>

#include "runtime/text/jinja_compile.h"

static bool parse_body(struct jinja_parser *p, const char *const *ends, uint32_t *out_list,
                       uint32_t *out_end);

static bool stmt(struct jinja_parser *p, struct jinja_ast_node n, uint32_t *out)
{
    return jinja_build_node(p->b, n, out);
}

/* The rest of an opening tag, then statements up to one of `ends` (NULL-terminated), whose name
 * token is consumed and told by its position in `ends`. */
static bool parse_block(struct jinja_parser *p, const char *const *ends, uint32_t *out_list,
                        uint32_t *out_end)
{
    if (p->tok->kind == TOK_COLON)
        p->tok++;
    return jinja_parser_expect(p, TOK_BLOCK_END) && parse_body(p, ends, out_list, out_end);
}

static bool parse_block_until(struct jinja_parser *p, const char *end, uint32_t *out_list)
{
    const char *const ends[] = {end, NULL};
    uint32_t which;

    return parse_block(p, ends, out_list, &which);
}

/* A name, a tuple of targets, or with `namespaces` also ns.attr. */
static bool check_target(struct jinja_parser *p, uint32_t node, bool namespaces, int depth)
{
    const struct jinja_ast_node *n = &p->b->nodes[node];
    uint32_t list = n->a, i;

    if (n->kind == JN_NAME || (n->kind == JN_NSREF && namespaces))
        return true;
    if (n->kind != JN_TUPLE || depth > 8)
        return jinja_parser_fail(p, "can't assign to this expression");
    for (i = 0; i < p->b->lists[list]; i++)
        if (!check_target(p, p->b->lists[list + 1 + i], namespaces, depth + 1))
            return false;
    return true;
}

static bool parse_target_name(struct jinja_parser *p, uint32_t *out)
{
    const struct jinja_token *t = p->tok;
    static const char *const reserved[] = {"true", "false", "none", "True", "False", "None"};
    size_t i;

    if (!jinja_parser_expect(p, TOK_NAME))
        return false;
    for (i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++)
        if (jinja_build_str_is(p->b, t->str, reserved[i]))
            return jinja_parser_fail(p, "can't assign to '%s'", reserved[i]);
    return stmt(p, (struct jinja_ast_node){.kind = JN_NAME, .line = t->line, .a = t->str}, out);
}

static bool parse_set(struct jinja_parser *p, uint32_t line, uint32_t *out)
{
    struct jinja_ast_node n = {.kind = JN_SET, .line = line};

    if (!jinja_parse_tuple(p, JINJA_TUPLE_SIMPLE | JINJA_TUPLE_NAMESPACE, NULL, &n.a) ||
        !check_target(p, n.a, true, 0))
        return false;
    if (p->tok->kind == TOK_ASSIGN) {
        p->tok++;
        return jinja_parse_tuple(p, 0, NULL, &n.b) && stmt(p, n, out);
    }
    n.kind = JN_SETBLOCK;
    return jinja_parse_filter(p, 0, false, &n.b) && parse_block_until(p, "endset", &n.c) &&
           stmt(p, n, out);
}

/* The loop filter assigns its target in another scope than the body: it gets its own names. */
static bool clone_target(struct jinja_parser *p, uint32_t node, uint32_t *out)
{
    struct jinja_ast_node n = p->b->nodes[node];
    struct jinja_words w = {0};
    uint32_t i, item;

    if (n.kind == JN_TUPLE) {
        for (i = 0; i < p->b->lists[n.a]; i++)
            if (!clone_target(p, p->b->lists[n.a + 1 + i], &item) ||
                !jinja_words_push(p, &w, item)) {
                free(w.v);
                return false;
            }
        if (!jinja_words_finish(p, &w, &n.a))
            return false;
    }
    return stmt(p, n, out);
}

static bool parse_for(struct jinja_parser *p, uint32_t line, uint32_t *out)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    struct jinja_ast_node n = {.kind = JN_FOR, .line = line};
    uint32_t rec[JINJA_REC_F] = {0}, end;

    if (!jinja_parse_tuple(p, JINJA_TUPLE_SIMPLE, "in", &n.a) || !check_target(p, n.a, false, 0) ||
        !jinja_parser_expect_name(p, "in") ||
        !jinja_parse_tuple(p, JINJA_TUPLE_NO_COND, "recursive", &n.b))
        return false;
    if (jinja_parser_skip_name(p, "if") &&
        (!jinja_parse_expression(p, true, &rec[2]) || !clone_target(p, n.a, &rec[3])))
        return false;
    if (jinja_parser_is_name(p, "recursive"))
        return jinja_build_fail(p->b, JINJA_ERR_UNSUPPORTED, line,
                                "recursive loops are not supported");
    p->loops++;
    if (!parse_block(p, ends, &rec[0], &end))
        return false;
    p->loops--;
    /* A break in the else part belongs to the loop around. */
    if (end == 1 && !parse_block_until(p, "endfor", &rec[1]))
        return false;
    return jinja_build_list(p->b, rec, JINJA_REC_F, &n.c) && stmt(p, n, out);
}

static bool parse_if(struct jinja_parser *p, uint32_t line, uint32_t *out)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    struct jinja_ast_node n = {.kind = JN_IF, .line = line}, branch;
    struct jinja_words elifs = {0};
    uint32_t end, node;
    bool ok;

    ok = jinja_parse_tuple(p, JINJA_TUPLE_NO_COND, NULL, &n.a) && parse_block(p, ends, &n.b, &end);
    while (ok && end == 0) {
        branch = (struct jinja_ast_node){.kind = JN_IF, .line = p->tok->line};
        ok = jinja_parse_tuple(p, JINJA_TUPLE_NO_COND, NULL, &branch.a) &&
             parse_block(p, ends, &branch.b, &end) && stmt(p, branch, &node) &&
             jinja_words_push(p, &elifs, node);
    }
    if (ok && end == 1)
        ok = parse_block_until(p, "endif", &n.d);
    if (!ok) {
        free(elifs.v);
        return false;
    }
    return jinja_words_finish(p, &elifs, &n.c) && stmt(p, n, out);
}

/* (name, name=default, ...) into a macro record's first two lists */
static bool parse_signature(struct jinja_parser *p, uint32_t rec[JINJA_REC_M])
{
    struct jinja_words args = {0}, defaults = {0};
    uint32_t node;
    bool ok = jinja_parser_expect(p, TOK_LPAREN);

    while (ok && p->tok->kind != TOK_RPAREN) {
        ok = (!args.count || jinja_parser_expect(p, TOK_COMMA)) && parse_target_name(p, &node) &&
             jinja_words_push(p, &args, node);
        if (ok && p->tok->kind == TOK_ASSIGN) {
            p->tok++;
            ok = jinja_parse_expression(p, true, &node) && jinja_words_push(p, &defaults, node);
        } else if (ok && defaults.count) {
            ok = jinja_parser_fail(p, "non-default argument follows default argument");
        }
    }
    if (!ok) {
        free(args.v);
        free(defaults.v);
        return false;
    }
    p->tok++;
    ok = jinja_words_finish(p, &args, &rec[0]);
    return jinja_words_finish(p, &defaults, &rec[1]) && ok;
}

/* The body of a macro-like block: break and continue cannot leave it. */
static bool parse_macro_body(struct jinja_parser *p, const char *end, uint32_t rec[JINJA_REC_M],
                             uint32_t *out_rec)
{
    uint32_t loops = p->loops;

    p->loops = 0;
    if (!parse_block_until(p, end, &rec[2]))
        return false;
    p->loops = loops;
    return jinja_build_list(p->b, rec, JINJA_REC_M, out_rec);
}

static bool parse_macro(struct jinja_parser *p, uint32_t line, uint32_t *out)
{
    struct jinja_ast_node n = {.kind = JN_MACRO, .line = line};
    uint32_t rec[JINJA_REC_M] = {0};

    if (!parse_target_name(p, &n.b))
        return false;
    n.a = p->b->nodes[n.b].a;
    return parse_signature(p, rec) && parse_macro_body(p, "endmacro", rec, &n.c) && stmt(p, n, out);
}

static bool parse_call_block(struct jinja_parser *p, uint32_t line, uint32_t *out)
{
    struct jinja_ast_node n = {.kind = JN_CALLBLOCK, .line = line};
    uint32_t rec[JINJA_REC_M] = {0};

    if (p->tok->kind == TOK_LPAREN && !parse_signature(p, rec))
        return false;
    if (!jinja_parse_expression(p, true, &n.b))
        return false;
    if (p->b->nodes[n.b].kind != JN_CALL)
        return jinja_parser_fail(p, "expected call");
    n.a = p->b->nodes[n.b].a;
    return parse_macro_body(p, "endcall", rec, &n.c) && stmt(p, n, out);
}

static bool parse_generation(struct jinja_parser *p, uint32_t line, uint32_t *out)
{
    struct jinja_ast_node n = {.kind = JN_GENERATION, .line = line};
    uint32_t rec[JINJA_REC_M] = {0};

    return parse_macro_body(p, "endgeneration", rec, &n.c) && stmt(p, n, out);
}

static bool parse_filter_block(struct jinja_parser *p, uint32_t line, uint32_t *out)
{
    struct jinja_ast_node n = {.kind = JN_FILTERBLOCK, .line = line};

    return jinja_parse_filter(p, 0, true, &n.a) && parse_block_until(p, "endfilter", &n.c) &&
           stmt(p, n, out);
}

static bool parse_with(struct jinja_parser *p, uint32_t line, uint32_t *out)
{
    struct jinja_ast_node n = {.kind = JN_WITH, .line = line};
    struct jinja_words targets = {0}, values = {0};
    uint32_t node;
    bool ok = true;

    while (ok && p->tok->kind != TOK_BLOCK_END && p->tok->kind != TOK_EOF) {
        ok = (!targets.count || jinja_parser_expect(p, TOK_COMMA)) &&
             jinja_parse_tuple(p, JINJA_TUPLE_SIMPLE, NULL, &node) &&
             check_target(p, node, false, 0) && jinja_words_push(p, &targets, node) &&
             jinja_parser_expect(p, TOK_ASSIGN) && jinja_parse_expression(p, true, &node) &&
             jinja_words_push(p, &values, node);
    }
    if (!ok) {
        free(targets.v);
        free(values.v);
        return false;
    }
    ok = jinja_words_finish(p, &targets, &n.a);
    ok = jinja_words_finish(p, &values, &n.b) && ok;
    return ok && parse_block_until(p, "endwith", &n.c) && stmt(p, n, out);
}

static bool parse_jump(struct jinja_parser *p, uint32_t line, enum jinja_node_kind kind,
                       uint32_t *out)
{
    if (!p->loops)
        return jinja_build_fail(p->b, JINJA_ERR_SYNTAX, line, "'%s' outside loop",
                                kind == JN_BREAK ? "break" : "continue");
    return stmt(p, (struct jinja_ast_node){.kind = kind, .line = line}, out);
}

/* One statement; *out is 0 when it leaves no node (print gives several to `body`). */
static bool parse_statement(struct jinja_parser *p, struct jinja_words *body,
                            const char *const *ends)
{
    static const char *const unsupported[] = {"extends", "block", "include",
                                              "import",  "from",  "autoescape"};
    uint32_t line = p->tok->line, node = 0;
    char buf[64];
    size_t i;
    bool ok;

    if (p->tok->kind != TOK_NAME)
        return jinja_parser_fail(p, "tag name expected");
    if (jinja_parser_skip_name(p, "set")) {
        ok = parse_set(p, line, &node);
    } else if (jinja_parser_skip_name(p, "if")) {
        ok = parse_if(p, line, &node);
    } else if (jinja_parser_skip_name(p, "for")) {
        ok = parse_for(p, line, &node);
    } else if (jinja_parser_skip_name(p, "macro")) {
        ok = parse_macro(p, line, &node);
    } else if (jinja_parser_skip_name(p, "call")) {
        ok = parse_call_block(p, line, &node);
    } else if (jinja_parser_skip_name(p, "filter")) {
        ok = parse_filter_block(p, line, &node);
    } else if (jinja_parser_skip_name(p, "with")) {
        ok = parse_with(p, line, &node);
    } else if (jinja_parser_skip_name(p, "generation")) {
        ok = parse_generation(p, line, &node);
    } else if (jinja_parser_skip_name(p, "break")) {
        ok = parse_jump(p, line, JN_BREAK, &node);
    } else if (jinja_parser_skip_name(p, "continue")) {
        ok = parse_jump(p, line, JN_CONTINUE, &node);
    } else if (jinja_parser_skip_name(p, "print")) {
        for (ok = true, i = 0; ok && p->tok->kind != TOK_BLOCK_END; i++)
            ok = (i == 0 || jinja_parser_expect(p, TOK_COMMA)) &&
                 jinja_parse_expression(p, true, &node) &&
                 stmt(p, (struct jinja_ast_node){.kind = JN_OUTPUT, .line = line, .a = node},
                      &node) &&
                 jinja_words_push(p, body, node);
        return ok;
    } else {
        for (i = 0; i < sizeof(unsupported) / sizeof(unsupported[0]); i++)
            if (jinja_parser_is_name(p, unsupported[i]))
                return jinja_build_fail(p->b, JINJA_ERR_UNSUPPORTED, line,
                                        "the tag '%s' is not supported", unsupported[i]);
        jinja_parser_describe(p, buf);
        if (ends)
            return jinja_parser_fail(
                p, "Encountered unknown tag '%s'. Jinja was looking for '%s'%s%s%s", buf, ends[0],
                ends[1] ? " or '" : "", ends[1] ? ends[1] : "", ends[1] ? "'." : ".");
        return jinja_parser_fail(p, "Encountered unknown tag '%s'.", buf);
    }
    return ok && jinja_words_push(p, body, node);
}

static bool body_step(struct jinja_parser *p, struct jinja_words *body, const char *const *ends,
                      uint32_t *out_end, bool *out_done)
{
    const struct jinja_token *t = p->tok;
    struct jinja_ast_node n = {.line = t->line};
    uint32_t node, i;

    *out_done = false;
    switch (t->kind) {
    case TOK_DATA:
        p->tok++;
        n.kind = JN_DATA;
        n.a = t->str;
        return stmt(p, n, &node) && jinja_words_push(p, body, node);
    case TOK_VAR_BEGIN:
        p->tok++;
        n.kind = JN_OUTPUT;
        return jinja_parse_tuple(p, 0, NULL, &n.a) && jinja_parser_expect(p, TOK_VAR_END) &&
               stmt(p, n, &node) && jinja_words_push(p, body, node);
    case TOK_BLOCK_BEGIN:
        p->tok++;
        for (i = 0; ends && ends[i]; i++) {
            if (jinja_parser_skip_name(p, ends[i])) {
                *out_end = i;
                *out_done = true;
                return true;
            }
        }
        return parse_statement(p, body, ends) && jinja_parser_expect(p, TOK_BLOCK_END);
    default:
        if (ends)
            return jinja_parser_fail(p, "Unexpected end of template. Jinja was looking for '%s'.",
                                     ends[0]);
        *out_done = true;
        return true;
    }
}

static bool parse_body(struct jinja_parser *p, const char *const *ends, uint32_t *out_list,
                       uint32_t *out_end)
{
    struct jinja_words body = {0};
    bool done = false, ok;

    ok = jinja_parser_enter(p);
    while (ok && !done)
        ok = body_step(p, &body, ends, out_end, &done);
    p->depth--;
    if (!ok) {
        free(body.v);
        return false;
    }
    return jinja_words_finish(p, &body, out_list);
}

bool jinja_parse(struct jinja_build *b)
{
    struct jinja_parser p = {.b = b, .tok = b->tokens};
    uint32_t end;

    return parse_body(&p, NULL, &b->root_body, &end);
}
