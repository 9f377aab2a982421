// SPDX-License-Identifier: Apache-2.0
/*
 * Name resolution. Requires: a parsed AST. Establishes: frame hops and slot of every NAME, the
 * scope record of every statement that opens a scope, table rows of filters and tests.
 *
 * jinja2 decides at compile time which variable a name means, and templates can see the outcome, so
 * the same rules are followed here:
 *   - a scope (template, loop body, loop else, loop filter, macro, call block, set block, filter
 *     block, with) owns a slot for every name that it stores, and for every name that it loads and
 *     no scope around it knows; `if` opens no scope;
 *   - on entry a slot is a copy of the outer variable if there is one when the scope stores the
 * name; missing when the first thing that happens to the name is an unconditional store; else the
 *     value from the context;
 *   - a store inside a branch of an `if` also begins with the outer value or the context.
 * An example where this shows: with x = 7 in the context
 *     {% for i in [1] %}{{ x }}{% endfor %}{% set x = 3 %}
 * prints nothing, because the template's own x, still missing, hides the context's.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/text/jinja_compile.h"
#include "runtime/text/jinja_table.h"

/* Also bounds nesting of expressions such as a + b + c + ..., whose nodes lean left. */
#define MAX_AST_DEPTH 400u
/* Name searches and copies of symbol tables could be quadratic; no real template comes near. */
#define MAX_WORK ((uint64_t)50000000)

enum action { ACT_MISSING, ACT_PARAM, ACT_RESOLVE, ACT_ALIAS };

struct sym {
    uint32_t name;
    uint32_t slot;
    uint8_t action;
    bool stored;
    uint32_t hops, outer_slot; /* of an alias */
};

/* The symbols of a scope, or a copy of them while a branch is read. */
struct syms {
    struct sym *v;
    size_t count, cap;
};

struct scope {
    struct scope *parent;
    struct syms syms;
};

struct pass {
    struct jinja_build *b;
    uint32_t depth;
    uint64_t work;
};

static bool enter(struct pass *ps, uint32_t line)
{
    if (++ps->depth > MAX_AST_DEPTH)
        return jinja_build_fail(ps->b, JINJA_ERR_LIMIT, line, "template nested too deeply");
    /* Nested loops and macros read their bodies again and again. */
    if (++ps->work > MAX_WORK)
        return jinja_build_fail(ps->b, JINJA_ERR_LIMIT, line, "template too large");
    return true;
}

static const struct jinja_ast_node *node_at(const struct pass *ps, uint32_t node)
{
    return &ps->b->nodes[node];
}

static uint32_t list_len(const struct pass *ps, uint32_t list)
{
    return ps->b->lists[list];
}

static uint32_t list_at(const struct pass *ps, uint32_t list, uint32_t i)
{
    return ps->b->lists[list + 1 + i];
}

/* ---- symbol tables ------------------------------------------------------------------------ */

static struct sym *syms_find(struct pass *ps, const struct syms *s, uint32_t name)
{
    size_t i;

    ps->work += s->count;
    for (i = 0; i < s->count; i++)
        if (s->v[i].name == name)
            return &s->v[i];
    return NULL;
}

static bool syms_add(struct pass *ps, struct syms *s, struct sym sym)
{
    if (s->count == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 8;
        struct sym *v = realloc(s->v, cap * sizeof(*v));

        if (!v)
            return jinja_build_no_memory(ps->b);
        s->v = v;
        s->cap = cap;
    }
    s->v[s->count++] = sym;
    return true;
}

static bool syms_copy(struct pass *ps, const struct syms *from, struct syms *to)
{
    *to = (struct syms){.count = from->count, .cap = from->count};
    ps->work += from->count;
    if (!from->count)
        return true;
    to->v = malloc(from->count * sizeof(*to->v));
    if (!to->v)
        return jinja_build_no_memory(ps->b);
    memcpy(to->v, from->v, from->count * sizeof(*to->v));
    return true;
}

/* The variable that encloses `scope` under this name; hops count from `scope` itself. */
static bool find_outer(struct pass *ps, const struct scope *scope, uint32_t name, uint32_t *hops,
                       uint32_t *slot)
{
    const struct scope *s;
    const struct sym *sym;
    uint32_t n = 1;

    for (s = scope->parent; s; s = s->parent, n++) {
        sym = syms_find(ps, &s->syms, name);
        if (sym) {
            *hops = n;
            *slot = sym->slot;
            return true;
        }
    }
    return false;
}

static bool define(struct pass *ps, struct scope *scope, struct syms *s, uint32_t name,
                   enum action action, bool stored)
{
    struct sym *sym = syms_find(ps, s, name), made = {.name = name, .action = (uint8_t)action};

    made.stored = stored || (sym && sym->stored);
    if (action == ACT_ALIAS)
        find_outer(ps, scope, name, &made.hops, &made.outer_slot);
    if (sym) {
        *sym = made;
        return true;
    }
    return syms_add(ps, s, made);
}

static bool sym_store(struct pass *ps, struct scope *scope, struct syms *s, uint32_t name)
{
    struct sym *sym = syms_find(ps, s, name);
    uint32_t hops, slot;

    if (sym) {
        sym->stored = true;
        return true;
    }
    return define(ps, scope, s, name,
                  find_outer(ps, scope, name, &hops, &slot) ? ACT_ALIAS : ACT_MISSING, true);
}

static bool sym_load(struct pass *ps, struct scope *scope, struct syms *s, uint32_t name)
{
    uint32_t hops, slot;

    if (syms_find(ps, s, name) || find_outer(ps, scope, name, &hops, &slot))
        return true;
    return define(ps, scope, s, name, ACT_RESOLVE, false);
}

/* Takes over what the branches defined. A name stored in some branch only begins with the value
 * from outside, unless the scope stored it before. */
static bool merge_branches(struct pass *ps, struct scope *scope, struct syms *s,
                           const struct syms *br, size_t branches)
{
    size_t k, i;
    struct sym *sym;

    for (k = 0; k < branches; k++) {
        for (i = 0; i < br[k].count; i++) {
            const struct sym *from = &br[k].v[i];

            sym = syms_find(ps, s, from->name);
            if (ps->work > MAX_WORK)
                return jinja_build_fail(ps->b, JINJA_ERR_LIMIT, 0, "template too large");
            if (!sym) {
                if (!syms_add(ps, s, *from))
                    return false;
                sym = &s->v[s->count - 1];
                sym->stored = false;
            }
            if (from->stored && !sym->stored) {
                sym->action = find_outer(ps, scope, from->name, &sym->hops, &sym->outer_slot)
                                  ? ACT_ALIAS
                                  : ACT_RESOLVE;
                sym->stored = true;
            }
        }
    }
    return true;
}

/* Once a scope is read, each of its names has its place as slot. */
static void number_slots(struct scope *scope)
{
    size_t i;

    for (i = 0; i < scope->syms.count; i++)
        scope->syms.v[i].slot = (uint32_t)i;
}

/* ---- walking the children of a node in their order ------------------------------------------ */

/* One pass with what it carries: scan: scope and symbols; free names: f; bind: scope and soft. */
struct visit {
    struct pass *ps;
    struct scope *scope;
    struct syms *syms;
    struct free_names *f;
    bool store, as_param; /* the node is a target; a target that is a parameter */
    bool soft;            /* under an if: unknown filters wait until used */
    bool (*node)(const struct visit *v, uint32_t node);
};

static const char *const node_fields[JN_COUNT] = {
    [JN_INVALID] = "----",
#define NODE(kind, fields, what) [JN_##kind] = fields,
#include "runtime/text/jinja_nodes.def"
#undef NODE
};

static bool visit_list(const struct visit *v, uint32_t list)
{
    uint32_t i;

    for (i = 0; i < list_len(v->ps, list); i++)
        if (!v->node(v, list_at(v->ps, list, i)))
            return false;
    return true;
}

static bool visit_as(const struct visit *v, uint32_t node, bool store, bool as_param)
{
    struct visit w = *v;

    w.store = store;
    w.as_param = as_param;
    return v->node(&w, node);
}

static bool visit_list_as(const struct visit *v, uint32_t list, bool store, bool as_param)
{
    struct visit w = *v;

    w.store = store;
    w.as_param = as_param;
    return visit_list(&w, list);
}

static bool visit_args(const struct visit *v, uint32_t rec)
{
    uint32_t npos = list_at(v->ps, rec, 0), nkw = list_at(v->ps, rec, 1), i;

    for (i = 0; i < npos; i++)
        if (!v->node(v, list_at(v->ps, rec, JINJA_REC_A + i)))
            return false;
    for (i = 0; i < nkw; i++)
        if (!v->node(v, list_at(v->ps, rec, JINJA_REC_A + npos + 2 * i + 1)))
            return false;
    return (!list_at(v->ps, rec, 2) || v->node(v, list_at(v->ps, rec, 2))) &&
           (!list_at(v->ps, rec, 3) || v->node(v, list_at(v->ps, rec, 3)));
}

static bool visit_field(const struct visit *v, char what, uint32_t ref)
{
    uint32_t i;

    switch (what) {
    case 'n':
        return v->node(v, ref);
    case 'N':
        return !ref || v->node(v, ref);
    case 'l':
        return visit_list(v, ref);
    case 'A':
        return visit_args(v, ref);
    case 'P':
        for (i = 1; i < list_len(v->ps, ref); i += 2)
            if (!v->node(v, list_at(v->ps, ref, i)))
                return false;
        return true;
    default:
        return true;
    }
}

/* All children that stand in plain fields; records F and M are not entered. */
static bool visit_children(const struct visit *v, const struct jinja_ast_node n)
{
    const char *fields = node_fields[n.kind];

    return visit_field(v, fields[0], n.a) && visit_field(v, fields[1], n.b) &&
           visit_field(v, fields[2], n.c) && visit_field(v, fields[3], n.d);
}

/* ---- first pass over a scope: which names it loads and stores ------------------------------- */

static bool scan(const struct visit *v, uint32_t node);

static bool scan_if(const struct visit *v, const struct jinja_ast_node n)
{
    const uint32_t lists[3] = {n.b, n.c, n.d};
    struct syms branch[3] = {{0}};
    struct visit w = *v;
    bool ok = scan(v, n.a);
    size_t i;

    for (i = 0; ok && i < 3; i++) {
        w.syms = &branch[i];
        ok = syms_copy(v->ps, v->syms, &branch[i]) && visit_list(&w, lists[i]);
    }
    ok = ok && merge_branches(v->ps, v->scope, v->syms, branch, 3);
    for (i = 0; i < 3; i++)
        free(branch[i].v);
    return ok;
}

/* Statements that open a scope show the scope around only what jinja2 reads there. */
static bool scan_kind(const struct visit *v, const struct jinja_ast_node n)
{
    switch (n.kind) {
    case JN_NAME:
        if (v->as_param)
            return define(v->ps, v->scope, v->syms, n.a, ACT_PARAM, true);
        return v->store ? sym_store(v->ps, v->scope, v->syms, n.a)
                        : sym_load(v->ps, v->scope, v->syms, n.a);
    case JN_NSREF:
        return visit_as(v, n.a, false, false);
    case JN_IF:
        return scan_if(v, n);
    case JN_SET:
        return scan(v, n.b) && visit_as(v, n.a, true, false);
    case JN_SETBLOCK:
        return visit_as(v, n.a, true, false);
    case JN_FOR:
        return scan(v, n.b);
    case JN_MACRO:
        return sym_store(v->ps, v->scope, v->syms, n.a);
    case JN_CALLBLOCK:
        return scan(v, n.b);
    case JN_FILTERBLOCK:
        return scan(v, n.a);
    case JN_WITH:
        return visit_list(v, n.b);
    case JN_GENERATION:
        return true;
    default:
        return visit_children(v, n);
    }
}

static bool scan(const struct visit *v, uint32_t node)
{
    const struct jinja_ast_node n = *node_at(v->ps, node);
    bool ok = enter(v->ps, n.line) && scan_kind(v, n);

    v->ps->depth--;
    return ok;
}

/* ---- names that a body uses without setting them first -------------------------------------- */

/* In document order of jinja2's nodes: a load of a name that was not stored before marks it, a
 * store ends the search for it. */
struct free_names {
    const char *name[3];
    bool found[3], ended[3];
};

static bool free_macro(const struct visit *v, uint32_t rec)
{
    return visit_list_as(v, list_at(v->ps, rec, 0), true, false) &&
           visit_list(v, list_at(v->ps, rec, 1)) && visit_list(v, list_at(v->ps, rec, 2));
}

static void free_name(const struct visit *v, uint32_t str)
{
    struct free_names *f = v->f;
    int i;

    for (i = 0; i < 3; i++)
        if (f->name[i] && !f->ended[i] && jinja_build_str_is(v->ps->b, str, f->name[i])) {
            if (v->store)
                f->ended[i] = true;
            else
                f->found[i] = true;
        }
}

static bool free_kind(const struct visit *v, const struct jinja_ast_node n)
{
    switch (n.kind) {
    case JN_NAME:
        free_name(v, n.a);
        return true;
    case JN_NSREF: /* holds no name node in jinja2 */
        return true;
    case JN_SET:
        return visit_as(v, n.a, true, false) && v->node(v, n.b);
    case JN_SETBLOCK:
        return visit_as(v, n.a, true, false) && (!n.b || v->node(v, n.b)) && visit_list(v, n.c);
    case JN_FOR:
        return visit_as(v, n.a, true, false) && v->node(v, n.b) &&
               visit_list(v, list_at(v->ps, n.c, 0)) && visit_list(v, list_at(v->ps, n.c, 1)) &&
               (!list_at(v->ps, n.c, 2) || v->node(v, list_at(v->ps, n.c, 2)));
    case JN_MACRO:
    case JN_GENERATION:
        return free_macro(v, n.c);
    case JN_CALLBLOCK:
        return v->node(v, n.b) && free_macro(v, n.c);
    case JN_FILTERBLOCK:
        return visit_list(v, n.c) && v->node(v, n.a);
    case JN_WITH:
        return visit_list_as(v, n.a, true, false) && visit_list(v, n.b) && visit_list(v, n.c);
    default:
        return visit_children(v, n);
    }
}

static bool free_in(const struct visit *v, uint32_t node)
{
    const struct jinja_ast_node n = *node_at(v->ps, node);
    bool ok = enter(v->ps, n.line) && free_kind(v, n);

    v->ps->depth--;
    return ok;
}

/* ---- second pass: hops and slots; scopes inside -------------------------------------------- */

static bool bind(const struct visit *v, uint32_t node);

static struct visit scanning(const struct visit *v, struct scope *scope)
{
    return (struct visit){.ps = v->ps, .scope = scope, .syms = &scope->syms, .node = scan};
}

static struct visit binding(const struct visit *v, struct scope *scope)
{
    return (struct visit){.ps = v->ps, .scope = scope, .node = bind};
}

static bool scope_record(struct pass *ps, const struct scope *scope, uint32_t *out)
{
    size_t n = 0, i;
    uint32_t *w = malloc((JINJA_REC_C + 4 * scope->syms.count) * sizeof(*w));
    bool ok;

    if (!w)
        return jinja_build_no_memory(ps->b);
    w[n++] = (uint32_t)scope->syms.count;
    for (i = 0; i < scope->syms.count; i++) {
        const struct sym *s = &scope->syms.v[i];

        if (s->action != ACT_RESOLVE && s->action != ACT_ALIAS)
            continue;
        w[n++] = s->slot;
        w[n++] = s->action == ACT_RESOLVE ? JINJA_LOAD_RESOLVE : JINJA_LOAD_ALIAS;
        w[n++] = s->action == ACT_RESOLVE ? s->name : s->hops;
        w[n++] = s->action == ACT_RESOLVE ? 0 : s->outer_slot;
    }
    ok = jinja_build_list(ps->b, w, n, out);
    free(w);
    return ok;
}

static bool bind_name(const struct visit *v, uint32_t node)
{
    struct jinja_ast_node *n = &v->ps->b->nodes[node];
    const struct sym *sym = syms_find(v->ps, &v->scope->syms, n->a);

    if (sym) {
        n->b = 0;
        n->c = sym->slot;
        return true;
    }
    if (find_outer(v->ps, v->scope, n->a, &n->b, &n->c))
        return true;
    return jinja_build_fail(v->ps->b, JINJA_ERR_SYNTAX, n->line,
                            "name used where it has no meaning");
}

static bool declare(struct pass *ps, struct scope *scope, const char *name, uint32_t *out_str)
{
    return jinja_build_str(ps->b, name, strlen(name), out_str) &&
           define(ps, scope, &scope->syms, *out_str, ACT_PARAM, true);
}

/* Slot + 1 of a name that was declared, after number_slots. */
static uint32_t declared_slot(struct pass *ps, const struct scope *scope, uint32_t str)
{
    return syms_find(ps, &scope->syms, str)->slot + 1;
}

/* The loop filter: its own scope with its own copy of the target. */
static bool bind_for_test(const struct visit *v, uint32_t rec[JINJA_REC_F])
{
    struct scope test = {.parent = v->scope};
    struct visit s = scanning(v, &test), b = binding(v, &test);
    bool ok = true;

    if (rec[2]) {
        ok = visit_as(&s, rec[3], true, true) && scan(&s, rec[2]);
        number_slots(&test);
        ok = ok && bind(&b, rec[3]) && bind(&b, rec[2]);
    }
    ok = ok && scope_record(v->ps, &test, &rec[6]);
    free(test.syms.v);
    return ok;
}

static bool bind_for(const struct visit *v, uint32_t node)
{
    struct pass *ps = v->ps;
    const struct jinja_ast_node n = ps->b->nodes[node];
    uint32_t rec[JINJA_REC_F], loop = 0;
    struct free_names uses = {.name = {"loop"}}, stores = {.name = {"loop"}};
    struct visit f = {.ps = ps, .f = &stores, .node = free_in};
    struct scope body = {.parent = v->scope}, other = {.parent = v->scope};
    struct visit sb = scanning(v, &body), so = scanning(v, &other);
    struct visit bb = binding(v, &body), bo = binding(v, &other);
    bool ok;

    memcpy(rec, &ps->b->lists[n.c + 1], sizeof(rec));
    ok = free_in(&f, node);
    if (ok && stores.ended[0])
        ok = jinja_build_fail(ps->b, JINJA_ERR_SYNTAX, n.line,
                              "Can't assign to special loop variable in for-loop target");
    f.f = &uses;
    ok = ok && visit_list(&f, rec[0]);
    if (ok && uses.found[0])
        ok = declare(ps, &body, "loop", &loop);
    ok = ok && visit_as(&sb, n.a, true, true) && visit_list(&sb, rec[0]) && visit_list(&so, rec[1]);
    number_slots(&body);
    number_slots(&other);
    if (ok && uses.found[0])
        rec[7] = declared_slot(ps, &body, loop);
    ok = ok && bind_for_test(v, rec) && bind(v, n.b) && bind(&bb, n.a) && visit_list(&bb, rec[0]) &&
         visit_list(&bo, rec[1]) && scope_record(ps, &body, &rec[4]) &&
         scope_record(ps, &other, &rec[5]);
    if (ok)
        memcpy(&ps->b->lists[n.c + 1], rec, sizeof(rec));
    free(body.syms.v);
    free(other.syms.v);
    return ok;
}

/* A macro, a call block or a generation block: their record M at n.c. */
static bool bind_macro(const struct visit *v, const struct jinja_ast_node n)
{
    static const char *const special[3] = {"caller", "kwargs", "varargs"};
    struct free_names names = {.name = {special[0], special[1], special[2]}};
    struct pass *ps = v->ps;
    struct scope inner = {.parent = v->scope};
    struct visit f = {.ps = ps, .f = &names, .node = free_in};
    struct visit s = scanning(v, &inner), b = binding(v, &inner);
    uint32_t rec[JINJA_REC_M], declared[3], i, k, required;
    bool given[3] = {false}, ok;

    memcpy(rec, &ps->b->lists[n.c + 1], sizeof(rec));
    ok = visit_list(&f, rec[2]);
    required = list_len(ps, rec[0]) - list_len(ps, rec[1]);
    for (i = 0; ok && i < list_len(ps, rec[0]); i++)
        for (k = 0; k < 3; k++)
            if (jinja_build_str_is(ps->b, node_at(ps, list_at(ps, rec[0], i))->a, special[k])) {
                given[k] = true;
                if (k == 0 && i < required && names.found[0])
                    ok = jinja_build_fail(ps->b, JINJA_ERR_SYNTAX, n.line,
                                          "the special \"caller\" argument must be omitted or be "
                                          "given a default");
            }
    ok = ok && visit_list_as(&s, rec[0], true, true) && visit_list(&s, rec[1]);
    for (k = 0; ok && k < 3; k++)
        if (names.found[k] && !given[k])
            ok = declare(ps, &inner, special[k], &declared[k]);
    ok = ok && visit_list(&s, rec[2]);
    number_slots(&inner);
    for (k = 0; ok && k < 3; k++)
        if (names.found[k] && !given[k])
            rec[4 + k] = declared_slot(ps, &inner, declared[k]);
    ok = ok && visit_list(&b, rec[0]) && visit_list(&b, rec[1]) && visit_list(&b, rec[2]) &&
         scope_record(ps, &inner, &rec[3]);
    if (ok)
        memcpy(&ps->b->lists[n.c + 1], rec, sizeof(rec));
    free(inner.syms.v);
    return ok;
}

/* set, filter and with blocks: a scope around n.c; filter: bound inside, or 0; params: the targets
 * of with, or list 0. */
static bool bind_block(const struct visit *v, uint32_t node, uint32_t filter, uint32_t params)
{
    const struct jinja_ast_node n = v->ps->b->nodes[node];
    struct scope inner = {.parent = v->scope};
    struct visit s = scanning(v, &inner), b = binding(v, &inner);
    uint32_t rec = 0;
    bool ok;

    ok = visit_list_as(&s, params, true, true) && visit_list(&s, n.c) &&
         (!filter || scan(&s, filter));
    number_slots(&inner);
    ok = ok && visit_list(&b, params) && visit_list(&b, n.c) && (!filter || bind(&b, filter)) &&
         scope_record(v->ps, &inner, &rec);
    v->ps->b->nodes[node].d = rec;
    free(inner.syms.v);
    return ok;
}

/* Unknown names are an error now, except where jinja2 waits until they are used: under if. */
static bool bind_table(const struct visit *v, uint32_t node)
{
    struct jinja_ast_node *n = &v->ps->b->nodes[node];
    const struct jinja_ast_str *s = &v->ps->b->strs[n->d];
    const char *name = v->ps->b->bytes + s->offset;
    bool is_filter = n->kind == JN_FILTER;

    n->c = is_filter ? jinja_find_filter(name, s->len) : jinja_find_test(name, s->len);
    if (n->c == JINJA_NO_ROW && !v->soft)
        return jinja_build_fail(v->ps->b, JINJA_ERR_SYNTAX, n->line, "No %s named '%.*s'.",
                                is_filter ? "filter" : "test", (int)s->len, name);
    return true;
}

static bool bind_kind(const struct visit *v, uint32_t node)
{
    const struct jinja_ast_node n = v->ps->b->nodes[node];
    struct visit soft = *v;

    soft.soft = true;
    switch (n.kind) {
    case JN_NAME:
        return bind_name(v, node);
    case JN_TEST:
    case JN_FILTER:
        return bind_table(v, node) && visit_children(v, n);
    case JN_COND:
    case JN_IF:
        return visit_children(&soft, n);
    case JN_SETBLOCK:
        return bind(v, n.a) && bind_block(v, node, n.b, 0);
    case JN_FOR:
        return bind_for(v, node);
    case JN_MACRO:
    case JN_CALLBLOCK:
        return bind_macro(v, n) && bind(v, n.b);
    case JN_GENERATION:
        return bind_macro(v, n);
    case JN_FILTERBLOCK:
        return bind_block(v, node, n.a, 0);
    case JN_WITH:
        return visit_list(v, n.b) && bind_block(v, node, 0, n.a);
    default:
        return visit_children(v, n);
    }
}

static bool bind(const struct visit *v, uint32_t node)
{
    bool ok = enter(v->ps, node_at(v->ps, node)->line) && bind_kind(v, node);

    v->ps->depth--;
    return ok;
}

bool jinja_resolve(struct jinja_build *b)
{
    struct pass ps = {.b = b};
    struct scope root = {.parent = NULL};
    struct visit v = {.ps = &ps}, s = scanning(&v, &root), w = binding(&v, &root);
    bool ok;

    ok = visit_list(&s, b->root_body);
    number_slots(&root);
    ok = ok && visit_list(&w, b->root_body) && scope_record(&ps, &root, &b->root_scope);
    free(root.syms.v);
    return ok;
}
