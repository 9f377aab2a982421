// SPDX-License-Identifier: Apache-2.0
/* Text to blocks and ops. */
#include <string.h>

#include "ir/build.h"
#include "ir/number_text.h"
#include "ir/parse_internal.h"
#include "ir/quote.h"
#include "ir/text.h"

#define MAX_ATTRS 64 /* no op has as many; finding one is linear */

/* ---- values ---- */

bool parse_value_name(struct parser *p, const char **name, const char **hint)
{
    struct lexer *x = &p->x;
    if (!lex_expect(x, '%')) return false;
    if (x->p < x->end && *x->p >= '0' && *x->p <= '9') {
        *hint = NULL;
        *name = lex_number(x);
        if (*name && (*name)[strspn(*name, "0123456789")])
            return lex_fail(x, "`%%%s` is not a value's name", *name);
    } else {
        *name = *hint = lex_name(x);
    }
    return *name != NULL;
}

bool parse_define(struct parser *p, struct scope *s, const char *name, struct ir_value *v)
{
    if (map_puts(&s->values, name, v)) return lex_fail(&p->x, "%%%s is defined twice", name);
    return true;
}

static struct ir_value *find_value(const struct scope *s, const char *name)
{
    for (; s; s = s->isolated ? NULL : s->outer) {
        struct ir_value *v = map_finds(&s->values, name);
        if (v) return v;
    }
    return NULL;
}

static bool parse_operand(struct parser *p, struct scope *s, struct ir_value **out)
{
    const char *name, *hint;
    *out = NULL;
    if (lex_accept_word(&p->x, "none")) return true;
    if (!parse_value_name(p, &name, &hint)) return false;
    *out = find_value(s, name);
    return *out || lex_fail(&p->x, "%%%s is not defined here", name);
}

struct operand_list {
    VEC(struct ir_value *) values;
};

/* Is `none` next as an operand, rather than as the name of an attribute? */
static bool none_is_next(struct lexer *x)
{
    struct lexer saved = *x;
    bool yes = lex_accept_word(x, "none") && lex_peek(x) != '=';
    x->p = saved.p;
    return yes;
}

static bool parse_operands(struct parser *p, struct scope *s, struct operand_list *list)
{
    if (lex_peek(&p->x) != '%' && !none_is_next(&p->x)) return true;
    do {
        struct ir_value *v;
        if (!parse_operand(p, s, &v)) return false;
        vec_push(&p->m->arena, &list->values, v);
    } while (lex_accept(&p->x, ','));
    return true;
}

/* ---- attributes ---- */

static bool parse_int_list(struct parser *p, struct ir_attr *a)
{
    VEC(int64_t) v = {0};
    while (!lex_accept(&p->x, ']')) {
        int64_t i;
        if ((v.n && !lex_expect(&p->x, ',')) || !lex_int(&p->x, &i)) return false;
        vec_push(&p->m->arena, &v, i);
    }
    a->kind = IR_ATTR_INTS;
    a->count = (int)v.n;
    a->ints = v.v;
    return true;
}

static bool parse_float_list(struct parser *p, struct ir_attr *a)
{
    VEC(double) v = {0};
    if (!lex_expect(&p->x, '[')) return false;
    while (!lex_accept(&p->x, ']')) {
        double d;
        const char *s;
        if ((v.n && !lex_expect(&p->x, ',')) || !(s = lex_number(&p->x))) return false;
        if (!ir_read_double(s, &d)) return lex_fail(&p->x, "`%s` is not a float", s);
        vec_push(&p->m->arena, &v, d);
    }
    a->kind = IR_ATTR_FLOATS;
    a->count = (int)v.n;
    a->floats = v.v;
    return true;
}

static bool parse_dim_list(struct parser *p, struct ir_attr *a)
{
    VEC(const struct dim *) v = {0};
    while (!lex_accept(&p->x, ')')) {
        if (v.n && !lex_expect(&p->x, ',')) return false;
        const struct dim *d = lex_dim(&p->x, p->m->dims);
        if (!d) return false;
        vec_push(&p->m->arena, &v, d);
    }
    a->kind = IR_ATTR_DIMS;
    a->count = (int)v.n;
    a->dims = v.v;
    return true;
}

static bool parse_number_attr(struct parser *p, struct ir_attr *a)
{
    const char *s = lex_number(&p->x);
    if (!s) return false;
    a->kind = IR_ATTR_INT;
    if (ir_read_int(s, &a->i)) return true;
    a->kind = IR_ATTR_FLOAT;
    return ir_read_double(s, &a->f) || lex_fail(&p->x, "`%s` is not a number", s);
}

static bool parse_attr_value(struct parser *p, struct ir_attr *a)
{
    struct lexer *x = &p->x;
    char c = lex_peek(x);
    if (lex_accept(x, '[')) return parse_int_list(p, a);
    if (lex_accept(x, '(')) return parse_dim_list(p, a);
    if (c == '"') {
        a->kind = IR_ATTR_STRING;
        return (a->s = lex_string(x)) != NULL;
    }
    if (c == '@') {
        a->kind = IR_ATTR_CONST;
        return (a->c = parse_const_ref(p)) != NULL;
    }
    if (lex_accept_word(x, "f")) return parse_float_list(p, a);
    if (!ir_is_name_start(c)) return parse_number_attr(p, a);
    const char *word = lex_word(x);
    enum dtype d = word ? dtype_find(word, strlen(word)) : DT_NONE;
    if (d != DT_NONE) {
        a->kind = IR_ATTR_DTYPE;
        a->i = d;
        return true;
    }
    a->kind = IR_ATTR_FLOAT;
    return word && (ir_read_double(word, &a->f) ||
                    lex_fail(x, "`%s` is not the value of an attribute", word));
}

/* Is `name =` next? Consumes it. */
static const char *attr_name(struct parser *p)
{
    struct lexer *x = &p->x;
    char c = lex_peek(x);
    const char *before = x->p;
    if (x->failed || (c != '"' && !ir_is_name_start(c))) return NULL;
    const char *name = lex_name(x);
    if (name && lex_accept(x, '=')) return name;
    x->p = before;
    return NULL;
}

static bool parse_attrs(struct parser *p, struct ir_op *op)
{
    const char *name;
    while ((name = attr_name(p)) != NULL) {
        struct ir_attr a = {0};
        if (op->n_attrs == MAX_ATTRS) return lex_fail(&p->x, "more than %d attributes", MAX_ATTRS);
        if (ir_attr_find(op, name)) return lex_fail(&p->x, "attribute `%s` is given twice", name);
        if (!parse_attr_value(p, &a)) return false;
        a.name = name;
        ir_op_set_attr(p->m, op, a);
    }
    return !p->x.failed;
}

/* ---- ops ---- */

struct result_name {
    const char *name, *hint;
};

struct result_list {
    VEC(struct result_name) names;
};

/* `%a, %b =`; nothing when the statement starts with an op's name. */
static bool parse_results(struct parser *p, struct result_list *list)
{
    if (lex_peek(&p->x) != '%') return true;
    do {
        struct result_name r;
        if (!parse_value_name(p, &r.name, &r.hint)) return false;
        vec_push(&p->m->arena, &list->names, r);
    } while (lex_accept(&p->x, ','));
    return lex_expect(&p->x, '=');
}

static bool parse_region_args(struct parser *p, struct ir_block *b, struct scope *s)
{
    if (!lex_accept(&p->x, '(')) return true;
    while (!lex_accept(&p->x, ')')) {
        const char *name, *hint;
        struct ir_type type;
        if ((b->n_args && !lex_expect(&p->x, ',')) || !parse_value_name(p, &name, &hint) ||
            !lex_expect(&p->x, ':') || !lex_type(&p->x, p->m, &type) ||
            !parse_define(p, s, name, ir_block_add_arg(p->m, b, type, hint)))
            return false;
    }
    return true;
}

static bool parse_regions(struct parser *p, struct ir_op *op, struct ir_block *outer,
                          struct scope *s)
{
    while (lex_accept(&p->x, '{')) {
        struct scope inner = {
            .outer = s, .isolated = op->code == IR_OP_GROUP, .depth = s->depth + 1};
        if (inner.depth > IR_PARSE_MAX_DEPTH)
            return lex_fail(&p->x, "regions are nested too deeply");
        if (op->n_regions == 2)
            return lex_fail(&p->x, "%s has too many regions", ir_op_name(op->code));
        map_init(&inner.values, p->x.arena);
        struct ir_block *b = ir_block_create(p->m, outer->func, op);
        ir_op_add_region(p->m, op, b);
        size_t checks = p->m->checks.n;
        if (!parse_region_args(p, b, &inner) || !parse_block(p, b, &inner)) return false;
        struct ir_builder in_branch = {.m = p->m, .block = b};
        if (op->code == IR_OP_IF) ir_build_branch_checks(&in_branch, checks);
    }
    return !p->x.failed;
}

static bool same_dim(struct ir_module *m, const struct dim *a, const struct dim *b)
{
    return a == b || dim_subst(m->dims, a, NULL, 0) == dim_subst(m->dims, b, NULL, 0);
}

bool parse_same_type(struct ir_module *m, const struct ir_type *a, const struct ir_type *b)
{
    if (a->dtype != b->dtype || a->rank != b->rank || a->enc != b->enc) return false;
    for (int i = 0; i < a->rank; i++)
        if (!same_dim(m, a->dims[i], b->dims[i])) return false;
    return true;
}

/* `: type, type`, remembered until the types are inferred. */
static bool parse_written_types(struct parser *p, int n, struct ir_type **out)
{
    *out = NULL;
    if (!lex_accept(&p->x, ':')) return true;
    *out = ARENA_ARRAY(&p->m->arena, struct ir_type, n);
    for (int i = 0; i < n; i++)
        if ((i && !lex_expect(&p->x, ',')) || !lex_type(&p->x, p->m, &(*out)[i])) return false;
    return true;
}

static bool parse_loc(struct parser *p, struct ir_op *op)
{
    if (!lex_accept_word(&p->x, "loc")) return !p->x.failed;
    if (!lex_expect(&p->x, '(')) return false;
    const char *text = lex_string(&p->x);
    if (!text || !lex_expect(&p->x, ')')) return false;
    op->loc = ir_loc_make(p->m, text);
    return true;
}

/* Infers the types with a location to complain about: the written one, else the place in the text.
 */
static bool infer_types(struct parser *p, struct ir_op *op, const struct ir_type *written,
                        const char *start)
{
    struct ir_loc place = {0};
    const struct ir_loc *loc = op->loc;
    if (!loc) {
        place.text = lex_where(&p->x, start);
        op->loc = &place;
    }
    bool ok = ir_op_info(op->code)->infer(p->m, op);
    op->loc = loc;
    if (!ok) p->x.failed = true; /* it is reported */
    for (int i = 0; ok && written && i < op->n_results; i++) {
        if (parse_same_type(p->m, &written[i], &op->results[i].type)) continue;
        struct strbuf s = {0};
        ir_print_type(&s, &op->results[i].type);
        ok = lex_fail(&p->x, "result %d is %s", i, strbuf_get(&s));
        strbuf_deinit(&s);
    }
    return ok;
}

static bool parse_op(struct parser *p, struct ir_block *b, struct scope *s)
{
    struct result_list results = {0};
    struct operand_list operands = {0};
    struct ir_type *written;
    lex_peek(&p->x);
    const char *start = p->x.p;
    if (!parse_results(p, &results)) return false;
    const char *word = lex_word(&p->x);
    enum ir_opcode code = word ? ir_opcode_find(word, strlen(word)) : IR_OP_COUNT;
    if (code == IR_OP_COUNT) return lex_fail(&p->x, "unknown op `%.60s`", word ? word : "");
    if (!parse_operands(p, s, &operands)) return false;
    if (operands.values.n > INT32_MAX || results.names.n > INT32_MAX)
        return lex_fail(&p->x, "too many values");
    struct ir_op *op = ir_op_create(p->m, code, (int)operands.values.n, operands.values.v,
                                    (int)results.names.n, NULL);
    if (!parse_attrs(p, op) || !parse_written_types(p, op->n_results, &written) ||
        !parse_loc(p, op) || !parse_regions(p, op, b, s) || !infer_types(p, op, written, start))
        return false;
    ir_block_append(b, op);
    for (int i = 0; i < op->n_results; i++) {
        op->results[i].name =
            results.names.v[i].hint ? arena_strdup(&p->m->arena, results.names.v[i].hint) : NULL;
        if (!parse_define(p, s, results.names.v[i].name, &op->results[i])) return false;
    }
    return true;
}

bool parse_block(struct parser *p, struct ir_block *b, struct scope *s)
{
    while (!lex_accept(&p->x, '}')) {
        if (p->x.failed) return false;
        if (lex_peek(&p->x) == 0) return lex_fail(&p->x, "expected `}`");
        if (!parse_op(p, b, s)) return false;
    }
    return true;
}
