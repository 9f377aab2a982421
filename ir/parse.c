// SPDX-License-Identifier: Apache-2.0
/*
 * Text to modules (grammar: docs/ir.md). Text is hostile: nesting is bounded, memory is
 * proportional to the text, every count is checked against the type it belongs to, and resources
 * against their size.
 */
#include <string.h>

#include "ir/encoding.h"
#include "ir/number_text.h"
#include "ir/parse_internal.h"
#include "ir/text.h"

#define RESOURCE_ALIGN 16
#define MAX_CHECKS 10000 /* finding one is linear */

struct ir_const *parse_const_ref(struct parser *p)
{
    if (!lex_expect(&p->x, '@')) return NULL;
    const char *name = lex_name(&p->x);
    struct ir_const *c = name ? map_finds(&p->consts, name) : NULL;
    if (name && !c) lex_fail(&p->x, "constant @%s is not defined before", name);
    return c;
}

/* ---- constants ---- */

static bool parse_element(struct parser *p, enum dtype dtype, unsigned char *bytes)
{
    const char *s = lex_number(&p->x);
    return s && (ir_read_element(dtype, s, bytes) ||
                 lex_fail(&p->x, "`%s` is not a %s", s, dtype_name(dtype)));
}

static bool parse_list(struct parser *p, const struct ir_type *t, int64_t elems, const void **data,
                       size_t *n_bytes)
{
    struct strbuf bytes = {0};
    enum dtype dtype = t->enc ? DT_U8 : t->dtype; /* of an encoding: the bytes of its blocks */
    size_t element = dtype_bytes(dtype);
    int64_t n = 0;
    bool ok = true;
    while (ok && !lex_accept(&p->x, ']')) {
        unsigned char one[8];
        ok = (n == 0 || lex_expect(&p->x, ',')) && parse_element(p, dtype, one);
        if (ok) strbuf_putn(&bytes, (const char *)one, element);
        n++;
    }
    ok = ok && (n == elems || lex_fail(&p->x, "%lld elements for a type of %lld", (long long)n,
                                       (long long)elems));
    *n_bytes = bytes.len;
    *data = arena_dup(&p->m->arena, bytes.len ? bytes.data : "", bytes.len);
    strbuf_deinit(&bytes);
    return ok;
}

/* want: the bytes it must have; SIZE_MAX: any. */
static bool parse_resource(struct parser *p, size_t want, const void **data, size_t *n_bytes)
{
    int64_t offset, bytes;
    struct lexer *x = &p->x;
    if (!lex_expect(x, '(') || !lex_expect_word(x, "offset") || !lex_expect(x, '=') ||
        !lex_int(x, &offset) || !lex_expect(x, ',') || !lex_expect_word(x, "bytes") ||
        !lex_expect(x, '=') || !lex_int(x, &bytes) || !lex_expect(x, ')'))
        return false;
    if (bytes < 0 || (want != SIZE_MAX && (size_t)bytes != want))
        return lex_fail(x, "the type does not take %lld bytes", (long long)bytes);
    if (offset < 0 || offset % RESOURCE_ALIGN)
        return lex_fail(x, "offset must be a multiple of %d", RESOURCE_ALIGN);
    if (!p->resources || (uint64_t)offset > p->resource_bytes ||
        (uint64_t)bytes > p->resource_bytes - (uint64_t)offset)
        return lex_fail(x, "the resource lies outside of the %zu bytes that were given",
                        p->resource_bytes);
    *data = p->resources + offset;
    *n_bytes = (size_t)bytes;
    return true;
}

static bool parse_const(struct parser *p)
{
    struct lexer *x = &p->x;
    struct ir_type t;
    int64_t elems;
    size_t all;
    if (!lex_expect(x, '@')) return false;
    const char *name = lex_name(x);
    if (!name || !lex_expect(x, ':') || !lex_type(x, p->m, &t)) return false;
    if (!ir_type_static_elems(&t, &elems)) return lex_fail(x, "a constant needs constant dims");
    if (!ir_type_bytes(&t, &all)) return lex_fail(x, "rows of %s are whole blocks", t.enc ? t.enc->name : "bytes");
    if (dtype_bytes(t.dtype) == 0)
        return lex_fail(x, "constants of %s have no text form", dtype_name(t.dtype));
    const void *data = NULL;
    size_t n_bytes = dtype_bytes(t.dtype);
    bool splat = false, ok = lex_expect(x, '=');
    if (ok && lex_accept(x, '[')) {
        ok = parse_list(p, &t, t.enc ? (int64_t)all : elems, &data, &n_bytes);
    } else if (ok && !t.enc && lex_accept_word(x, "splat")) {
        unsigned char one[8];
        splat = true;
        ok = lex_expect(x, '(') && parse_element(p, t.dtype, one) && lex_expect(x, ')');
        if (ok) data = arena_dup(&p->m->arena, one, n_bytes);
    } else if (ok && lex_accept_word(x, "resource")) {
        ok = parse_resource(p, all, &data, &n_bytes);
    } else if (ok) {
        ok = lex_fail(x, "expected `[`, `splat` or `resource`: a constant needs data");
    }
    if (!ok) return false;
    if (map_finds(&p->consts, name)) return lex_fail(x, "constant @%s is defined twice", name);
    map_puts(&p->consts, name, ir_const_make(p->m, name, t, data, n_bytes, splat));
    return true;
}

/* ---- symbols, checks, metadata ---- */

static bool parse_bound(struct parser *p, int64_t *out)
{
    const char *s = lex_number(&p->x);
    if (!s) return false;
    if (!strcmp(s, "inf")) *out = DIM_INF;
    else if (!strcmp(s, "-inf")) *out = INT64_MIN;
    else return ir_read_int(s, out) || lex_fail(&p->x, "`%s` is not a bound", s);
    return true;
}

static bool parse_sym(struct parser *p)
{
    struct lexer *x = &p->x;
    int64_t lo, hi;
    const char *name = lex_name(x);
    if (!name || !lex_expect_word(x, "in") || !lex_expect(x, '[') || !parse_bound(p, &lo) ||
        !lex_expect(x, ',') || !parse_bound(p, &hi) || !lex_expect(x, ']'))
        return false;
    if (lo > hi) return lex_fail(x, "the range of `%s` is empty", name);
    if (dim_find_sym(p->m->dims, name))
        return lex_fail(x, "symbol `%s` is declared twice or after its use", name);
    dim_sym(p->m->dims, name, lo, hi);
    return true;
}

static bool parse_check(struct parser *p)
{
    struct lexer *x = &p->x;
    struct ir_check c = {0};
    if (p->m->checks.n == MAX_CHECKS) return lex_fail(x, "more than %d checks", MAX_CHECKS);
    if (!(c.a = lex_dim(x, p->m->dims))) return false;
    c.is_le = lex_accept(x, '<');
    if ((!c.is_le && !lex_expect(x, '=')) || !lex_expect(x, '=') || !(c.b = lex_dim(x, p->m->dims)))
        return false;
    const char *message = lex_string(x);
    if (!message) return false;
    c.message = arena_strdup(&p->m->arena, message);
    vec_push(&p->m->arena, &p->m->checks, c);
    return true;
}

/* A language model's text section, as it goes into the engine. */
static bool parse_text_section(struct parser *p)
{
    if (p->m->text) return lex_fail(&p->x, "a second text section");
    return lex_expect(&p->x, '=') && lex_expect_word(&p->x, "resource") && parse_resource(p, SIZE_MAX, &p->m->text, &p->m->n_text_bytes);
}

static bool parse_meta(struct parser *p)
{
    const char *key = lex_string(&p->x);
    if (!key || !lex_expect(&p->x, '=')) return false;
    const char *value = lex_string(&p->x);
    if (!value) return false;
    vec_push(&p->m->arena, &p->m->meta_keys, arena_strdup(&p->m->arena, key));
    vec_push(&p->m->arena, &p->m->meta_values, arena_strdup(&p->m->arena, value));
    return true;
}

/* ---- functions ---- */

static bool parse_input(struct parser *p, struct ir_func *f, struct scope *s)
{
    struct lexer *x = &p->x;
    const char *name, *hint, *user;
    struct ir_type type;
    if (!parse_value_name(p, &name, &hint)) return false;
    user = lex_accept_word(x, "as") ? lex_string(x) : name;
    if (!user || !lex_expect(x, ':') || !lex_type(x, p->m, &type)) return false;
    struct ir_value *v = ir_func_add_input(f, user, type);
    int i = f->n_inputs - 1;
    v->name = hint ? arena_strdup(&p->m->arena, hint) : NULL;
    f->input_state[i] = lex_accept_word(x, "state");
    f->input_optional[i] = lex_accept_word(x, "optional");
    if (lex_accept(x, '=') && !(f->input_default[i] = parse_const_ref(p))) return false;
    return !x->failed && parse_define(p, s, name, v);
}

struct output {
    const char *name;
    struct ir_type type;
};

struct output_list {
    VEC(struct output) v;
};

static bool parse_outputs(struct parser *p, struct output_list *list)
{
    struct lexer *x = &p->x;
    if (!lex_expect(x, '-') || !lex_expect(x, '>') || !lex_expect(x, '(')) return false;
    while (!lex_accept(x, ')')) {
        struct output o;
        if ((list->v.n && !lex_expect(x, ',')) || !(o.name = lex_name(x)) || !lex_expect(x, ':') ||
            !lex_type(x, p->m, &o.type))
            return false;
        vec_push(&p->m->arena, &list->v, o);
    }
    return true;
}

/* The body must end in a return that fits the outputs written down. */
static bool match_return(struct parser *p, struct ir_func *f, const struct output_list *outputs)
{
    struct ir_op *ret = f->body->last;
    struct arena *a = &p->m->arena;
    if (!ret || ret->code != IR_OP_RETURN)
        return lex_fail(&p->x, "the function does not end in return");
    if ((size_t)ret->n_operands != outputs->v.n)
        return lex_fail(&p->x, "returns %d values for %zu outputs", ret->n_operands, outputs->v.n);
    f->n_outputs = ret->n_operands;
    f->output_names = ARENA_ARRAY(a, const char *, f->n_outputs);
    for (int i = 0; i < f->n_outputs; i++) {
        f->output_names[i] = arena_strdup(a, outputs->v.v[i].name);
        if (!parse_same_type(p->m, &outputs->v.v[i].type, &ret->operands[i].value->type))
            return lex_fail(&p->x, "output %d is returned with another type", i);
    }
    return true;
}

static bool parse_func(struct parser *p)
{
    struct lexer *x = &p->x;
    struct output_list outputs = {0};
    struct scope scope = {0};
    map_init(&scope.values, x->arena);
    if (!lex_expect(x, '@')) return false;
    const char *name = lex_name(x);
    if (!name || !lex_expect(x, '(')) return false;
    for (size_t i = 0; i < p->m->funcs.n; i++)
        if (!strcmp(p->m->funcs.v[i]->name, name))
            return lex_fail(x, "function @%s is defined twice", name);
    struct ir_func *f = ir_func_create(p->m, name);
    while (!lex_accept(x, ')'))
        if ((f->n_inputs && !lex_expect(x, ',')) || !parse_input(p, f, &scope)) return false;
    return parse_outputs(p, &outputs) && lex_expect(x, '{') && parse_block(p, f->body, &scope) &&
           match_return(p, f, &outputs);
}

static bool parse_items(struct parser *p)
{
    struct lexer *x = &p->x;
    while (!lex_accept(x, '}')) {
        bool ok;
        if (lex_accept_word(x, "func")) ok = parse_func(p);
        else if (lex_accept_word(x, "const")) ok = parse_const(p);
        else if (lex_accept_word(x, "sym")) ok = parse_sym(p);
        else if (lex_accept_word(x, "check")) ok = parse_check(p);
        else if (lex_accept_word(x, "meta")) ok = parse_meta(p);
        else if (lex_accept_word(x, "text")) ok = parse_text_section(p);
        else ok = lex_fail(x, "expected func, const, sym, check, meta, text or `}`");
        if (!ok) return false;
    }
    return lex_peek(x) == 0 && x->p == x->end ? true
                                              : lex_fail(x, "text behind the end of the model");
}

struct ir_module *ir_parse_module(const char *text, size_t len, const char *file,
                                  const void *resources, size_t resource_bytes,
                                  struct diag_sink *diag)
{
    struct arena names;
    arena_init(&names);
    struct parser p = {
        .x = {.start = text,
              .p = text,
              .end = text + len,
              .file = file,
              .diag = diag,
              .arena = &names},
        .resources = resources,
        .resource_bytes = resource_bytes,
    };
    map_init(&p.consts, &names);
    p.m = ir_module_create("", diag);
    bool ok = lex_expect_word(&p.x, "model");
    const char *name = ok ? lex_string(&p.x) : NULL;
    if (name) p.m->name = arena_strdup(&p.m->arena, name);
    ok = name && lex_expect(&p.x, '{') && parse_items(&p);
    if (!ok) {
        ir_module_destroy(p.m);
        p.m = NULL;
    }
    arena_deinit(&names);
    return p.m;
}
