// SPDX-License-Identifier: Apache-2.0
/*
 * Schemas to clauses.
 *
 * requires     places and references are known
 * establishes  one of the clauses holds exactly where the schema (or its opposite) does
 * cost         the product of the alternatives; more than JS_MAX_CLAUSES are refused
 *
 *   {anyOf: [A, B], minimum: 3}   ->   A & least 3 | B & least 3
 *   opposite of {type: string, minLength: 2}   ->   not a string | a string of at most 1
 */
#include <string.h>

#include "runtime/grammar/js.h"

struct js_clauses *js_clauses_new(struct js *j) { return gr_alloc(j->b, sizeof(struct js_clauses)); }

static bool has_atom(const struct js_atoms *a, const struct js_atom *x)
{
    for (uint32_t i = 0; i < a->n; i++)
        if (a->v[i] == x) return true;
    return false;
}

static bool all_atoms(const struct js_atoms *a, const struct js_atoms *b)
{
    for (uint32_t i = 0; i < a->n; i++)
        if (!has_atom(b, a->v[i])) return false;
    return true;
}

static uint64_t sign_of(const struct js_atoms *a)
{
    uint64_t sign = 0;
    for (uint32_t i = 0; i < a->n; i++) sign |= UINT64_C(1) << (gr_mix((uintptr_t)a->v[i]) & 63);
    return sign;
}

/* Everything that fits x fits y. */
static bool implies(const struct js_clause *x, const struct js_clause *y)
{
    return !(x->types & ~y->types) && !(y->sign & ~x->sign) && all_atoms(&y->atoms, &x->atoms);
}

void js_clauses_add(struct js *j, struct js_clauses *c, struct js_clause x, struct js_schema *at,
                    const char *keyword)
{
    gr_work(j->b, c->n + x.atoms.n + 1);
    if (!x.types) return;
    x.sign = sign_of(&x.atoms);
    for (uint32_t i = 0; i < c->n && !j->annotated; i++)
        if (implies(&x, &c->v[i])) return;
    if (c->n >= JS_MAX_CLAUSES)
        js_fail(j, at, keyword, "too many combinations of alternatives (more than %d)",
                JS_MAX_CLAUSES);
    GR_PUSH(j->b, c, x);
}

void js_clauses_or(struct js *j, struct js_clauses *c, const struct js_clauses *x,
                   struct js_schema *at, const char *keyword)
{
    for (uint32_t i = 0; i < x->n; i++) js_clauses_add(j, c, x->v[i], at, keyword);
}

static struct js_atoms join_atoms(struct js *j, const struct js_atoms *a, const struct js_atoms *b)
{
    struct js_atoms out = {0};
    if (!a->n) return *b;
    if (!b->n) return *a;
    for (uint32_t i = 0; i < a->n; i++) GR_PUSH(j->b, &out, a->v[i]);
    for (uint32_t i = 0; i < b->n; i++)
        if (!has_atom(a, b->v[i])) GR_PUSH(j->b, &out, b->v[i]);
    gr_work(j->b, (uint64_t)a->n * b->n / 4 + out.n);
    return out;
}

struct js_clauses *js_clauses_and(struct js *j, const struct js_clauses *x,
                                  const struct js_clauses *y, struct js_schema *at,
                                  const char *keyword)
{
    struct js_clauses *out = js_clauses_new(j);
    for (uint32_t i = 0; i < x->n; i++) {
        for (uint32_t k = 0; k < y->n; k++) {
            struct js_clause c = {.types = x->v[i].types & y->v[k].types};
            if (!c.types) continue;
            c.atoms = join_atoms(j, &x->v[i].atoms, &y->v[k].atoms);
            c.seen = join_atoms(j, &x->v[i].seen, &y->v[k].seen);
            js_clauses_add(j, out, c, at, keyword);
        }
    }
    return out;
}

struct js_clauses *js_clauses_atom(struct js *j, uint32_t types, const struct js_atom *a, bool seen)
{
    struct js_clauses *out = js_clauses_new(j);
    struct js_clause c = {.types = types};
    if (a) GR_PUSH(j->b, &c.atoms, a);
    if (a && seen) GR_PUSH(j->b, &c.seen, a);
    GR_PUSH(j->b, out, c);
    return out;
}

struct js_atoms js_atoms_of(struct js *j, const struct js_clause *c, enum js_atom_kind first,
                            enum js_atom_kind last)
{
    struct js_atoms out = {0};
    for (uint32_t i = 0; i < c->atoms.n; i++)
        if (c->atoms.v[i]->kind >= first && c->atoms.v[i]->kind <= last)
            GR_PUSH(j->b, &out, c->atoms.v[i]);
    return out;
}

/* ---- what is certainly empty ---- */

static bool text_in(struct js_text t, const struct js_atom *x)
{
    for (uint32_t i = 0; i < x->n_texts; i++)
        if (js_same(t, x->texts[i])) return true;
    return false;
}

static bool number_in(const struct js_decimal *d, const struct js_atom *x)
{
    for (uint32_t i = 0; i < x->n_numbers; i++)
        if (js_decimal_equal(d, &x->numbers[i])) return true;
    return false;
}

/* Some list of allowed texts or numbers of which the other lists leave none. */
static bool lists_disagree(struct js *j, const struct js_clause *c, enum js_atom_kind kind)
{
    struct js_atoms a = js_atoms_of(j, c, kind, kind);
    for (uint32_t i = 0; i < a.n; i++) {
        const struct js_atom *x = a.v[i];
        uint32_t n = kind == JS_STRINGS ? x->n_texts : x->n_numbers, left = 0;
        if (x->opposite) continue;
        for (uint32_t k = 0; k < n; k++) {
            bool in = true;
            for (uint32_t m = 0; m < a.n && in; m++)
                in = (kind == JS_STRINGS ? text_in(x->texts[k], a.v[m])
                                         : number_in(&x->numbers[k], a.v[m])) != a.v[m]->opposite;
            left += in;
            gr_work(j->b, a.n);
        }
        if (!left) return true;
    }
    return false;
}

static void collect_member(struct js *j, const struct js_clause *c, struct js_text name,
                           struct js_literals *out)
{
    for (uint32_t i = 0; i < c->atoms.n; i++) {
        const struct js_atom *x = c->atoms.v[i];
        bool about = x->kind == JS_MEMBER && js_same(x->texts[0], name);
        about |= x->kind == JS_REST && !x->n_trees && !text_in(name, x);
        if (about) GR_PUSH(j->b, out, x->fits);
    }
}

static bool object_is_empty(struct js *j, const struct js_clause *c, unsigned depth)
{
    for (uint32_t i = 0; i < c->atoms.n; i++) {
        struct js_literals l = {0};
        if (c->atoms.v[i]->kind != JS_REQUIRED) continue;
        collect_member(j, c, c->atoms.v[i]->texts[0], &l);
        if (l.n && depth && js_is_empty(j, js_clauses_all(j, &l), depth - 1)) return true;
    }
    return false;
}

static bool array_is_empty(struct js *j, const struct js_clause *c)
{
    uint32_t min = 0, max = GR_LEN_MANY;
    struct js_atoms a = js_atoms_of(j, c, JS_COUNT, JS_COUNT);
    for (uint32_t i = 0; i < a.n; i++) {
        if (a.v[i]->min > min) min = a.v[i]->min;
        if (a.v[i]->max < max) max = a.v[i]->max;
    }
    return min > max;
}

bool js_is_empty(struct js *j, const struct js_clauses *c, unsigned depth)
{
    for (uint32_t i = 0; i < c->n; i++) {
        const struct js_clause *x = &c->v[i];
        gr_work(j->b, x->atoms.n + 1);
        if (x->types & (JS_NULL | JS_TRUE | JS_FALSE)) return false;
        if (x->types & JS_NUMBER && !lists_disagree(j, x, JS_NUMBERS)) return false;
        if (x->types & JS_STRING && !lists_disagree(j, x, JS_STRINGS)) return false;
        if (x->types & JS_ARRAY && !array_is_empty(j, x)) return false;
        if (x->types & JS_OBJECT && !object_is_empty(j, x, depth)) return false;
    }
    return true;
}

/* ---- schemas ---- */

static struct js_text key_of(const struct jinja_pair *p)
{
    return (struct js_text){p->key.u.s, p->key.len};
}

/* unevaluatedProperties: a JS_REST beside what the clause has seen. NULL: nothing is left. */
static const struct js_atom *rest_of_members(struct js *j, struct js_schema *s,
                                             const struct js_clause *c, struct js_literal fits,
                                             enum js_atom_kind kind)
{
    struct js_atom *a = gr_alloc(j->b, sizeof *a);
    struct {
        struct js_text *v;
        uint32_t n, cap;
    } names = {0};
    struct {
        struct gr_node **v;
        uint32_t n, cap;
    } trees = {0};
    for (uint32_t i = 0; i < c->seen.n; i++) {
        const struct js_atom *x = c->seen.v[i];
        if (x->kind == JS_REST) return NULL;
        if (x->kind == JS_MEMBER) GR_PUSH(j->b, &names, x->texts[0]);
        if (x->kind == JS_MEMBERS) GR_PUSH(j->b, &trees, x->tree);
    }
    *a = (struct js_atom){.kind = kind, .fits = fits, .at = s, .keyword = "unevaluatedProperties"};
    a->texts = names.v, a->n_texts = names.n, a->trees = trees.v, a->n_trees = trees.n;
    return a;
}

/* The same for items; those that a contains has found are no rest. */
static const struct js_atom *rest_of_items(struct js *j, struct js_schema *s,
                                           const struct js_clause *c, struct js_literal fits,
                                           enum js_atom_kind kind)
{
    struct js_atom *a = gr_alloc(j->b, sizeof *a);
    struct js_literals either = {0};
    uint32_t from = 0;
    GR_PUSH(j->b, &either, fits);
    for (uint32_t i = 0; i < c->seen.n; i++) {
        const struct js_atom *x = c->seen.v[i];
        if (x->kind == JS_ITEMS && x->max == GR_LEN_MANY) return NULL;
        if (x->kind == JS_ITEMS && x->max > from) from = x->max;
        if (x->kind == JS_CONTAINS) GR_PUSH(j->b, &either, x->fits);
    }
    if (either.n > 1) {
        bool opposite = fits.opposite;
        either.v[0].opposite = false;
        fits = (struct js_literal){js_schema_either(j, s, either), opposite};
    }
    *a = (struct js_atom){.kind = kind, .fits = fits, .at = s, .keyword = "unevaluatedItems"};
    a->from = from, a->min = kind == JS_ITEMS ? from : 1, a->max = GR_LEN_MANY;
    return a;
}

/* Adds the unevaluated... keyword to each clause that the rest of the schema makes. */
static struct js_clauses *add_unevaluated(struct js *j, struct js_schema *s,
                                          const struct js_clauses *c, bool items, bool opposite)
{
    const char *name = items ? "unevaluatedItems" : "unevaluatedProperties";
    struct js_literal fits = {js_schema_member(j, s, name), opposite};
    struct js_clauses *out = js_clauses_new(j);
    uint32_t type = items ? JS_ARRAY : JS_OBJECT;
    for (uint32_t i = 0; i < c->n; i++) {
        struct js_clause x = c->v[i];
        enum js_atom_kind kind = items ? opposite ? JS_CONTAINS : JS_ITEMS
                                       : opposite ? JS_SOME_REST : JS_REST;
        const struct js_atom *a = !(x.types & type) ? NULL
                                  : items           ? rest_of_items(j, s, &x, fits, kind)
                                                    : rest_of_members(j, s, &x, fits, kind);
        if (!a && opposite) continue;
        struct js_clause one = {.types = opposite ? type : JS_ALL};
        if (a) GR_PUSH(j->b, &one.atoms, a);
        if (a && !opposite) GR_PUSH(j->b, &one.seen, a);
        struct js_clauses left = {&x, 1, 1}, right = {&one, 1, 1};
        js_clauses_or(j, out, js_clauses_and(j, &left, &right, s, name), s, name);
    }
    return out;
}

static bool is_unevaluated(struct js_text name)
{
    return js_is_text(name, "unevaluatedItems") || js_is_text(name, "unevaluatedProperties");
}

/* Before draft 2019-09 a $ref stands alone. */
static bool counts(const struct js_schema *s, struct js_text name)
{
    return s->draft >= JS_DRAFT2019 || !js_get(s, "$ref") || js_is_text(name, "$ref");
}

static struct js_clauses *positive(struct js *j, struct js_schema *s)
{
    struct js_clauses *all = js_clauses_atom(j, JS_ALL, NULL, false);
    const struct jinja_dict *d = s->v->u.dict;
    for (uint32_t i = 0; i < d->count; i++) {
        struct js_text name = key_of(&d->pairs[i]);
        if (is_unevaluated(name) || !counts(s, name)) continue;
        struct js_clauses *c = js_keyword(j, s, name, &d->pairs[i].value, false);
        if (c) all = js_clauses_and(j, all, c, s, NULL);
    }
    if (s->draft < JS_DRAFT2019) return all;
    if (js_get(s, "unevaluatedItems")) all = add_unevaluated(j, s, all, true, false);
    if (js_get(s, "unevaluatedProperties")) all = add_unevaluated(j, s, all, false, false);
    return all;
}

static struct js_clauses *negative(struct js *j, struct js_schema *s)
{
    struct js_clauses *any = js_clauses_new(j);
    struct js_clauses *all = js_clauses_atom(j, JS_ALL, NULL, false);
    const struct jinja_dict *d = s->v->u.dict;
    bool unevaluated = s->draft >= JS_DRAFT2019 &&
                       (js_get(s, "unevaluatedItems") || js_get(s, "unevaluatedProperties"));
    for (uint32_t i = 0; i < d->count; i++) {
        struct js_text name = key_of(&d->pairs[i]);
        if (is_unevaluated(name) || !counts(s, name)) continue;
        struct js_clauses *c = js_keyword(j, s, name, &d->pairs[i].value, true);
        if (c) js_clauses_or(j, any, c, s, NULL);
        struct js_clauses *p = unevaluated ? js_keyword(j, s, name, &d->pairs[i].value, false) : NULL;
        if (p) all = js_clauses_and(j, all, p, s, NULL);
    }
    for (int items = 0; unevaluated && items < 2; items++)
        if (js_get(s, items ? "unevaluatedItems" : "unevaluatedProperties"))
            js_clauses_or(j, any, add_unevaluated(j, s, all, items, true), s, NULL);
    for (uint32_t i = 0; i < any->n; i++) any->v[i].seen.n = 0; /* a failure evaluates nothing */
    return any;
}

static struct js_clauses *either(struct js *j, struct js_schema *s, bool opposite)
{
    struct js_clauses *c = opposite ? js_clauses_atom(j, JS_ALL, NULL, false) : js_clauses_new(j);
    for (uint32_t i = 0; i < s->either.n; i++) {
        const struct js_literal *l = &s->either.v[i];
        const struct js_clauses *x = js_clauses_of(j, l->schema, l->opposite != opposite);
        if (opposite) c = js_clauses_and(j, c, x, s, NULL);
        else js_clauses_or(j, c, x, s, NULL);
    }
    return c;
}

const struct js_clauses *js_clauses_of(struct js *j, struct js_schema *s, bool opposite)
{
    if (!s) return opposite ? js_clauses_new(j) : js_clauses_atom(j, JS_ALL, NULL, false);
    if (s->clauses[opposite]) return s->clauses[opposite];
    if (s->busy[opposite]) js_fail(j, s, NULL, "the schema refers to itself without end");
    if (++j->depth > JS_MAX_DEPTH)
        js_fail(j, s, NULL, "more than %d schemas that lead from one to the next", JS_MAX_DEPTH);
    s->busy[opposite] = true;
    gr_work(j->b, 4);
    struct js_clauses *c;
    if (s->either.n)
        c = either(j, s, opposite);
    else if (s->v->kind == JINJA_BOOL)
        c = s->v->u.b != opposite ? js_clauses_atom(j, JS_ALL, NULL, false) : js_clauses_new(j);
    else if (s->v->kind == JINJA_DICT)
        c = opposite ? negative(j, s) : positive(j, s);
    else
        js_fail(j, s, NULL, "a schema is an object or a boolean");
    s->busy[opposite] = false;
    j->depth--;
    return s->clauses[opposite] = c;
}

struct js_clauses *js_clauses_all(struct js *j, const struct js_literals *l)
{
    struct js_clauses *all = js_clauses_atom(j, JS_ALL, NULL, false);
    for (uint32_t i = 0; i < l->n; i++) {
        const struct js_clauses *c = js_clauses_of(j, l->v[i].schema, l->v[i].opposite);
        all = js_clauses_and(j, all, c, l->v[i].schema ? l->v[i].schema : j->schemas.v[0], NULL);
    }
    return all;
}
