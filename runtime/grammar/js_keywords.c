// SPDX-License-Identifier: Apache-2.0
/* One function a keyword: its clauses, and those of its opposite. */
#include <string.h>

#include "runtime/grammar/js.h"
#include "runtime/text/jinja_number.h"

struct keyword {
    struct js *j;
    struct js_schema *s;
    const char *name;
    const struct jinja_value *v;
    bool opposite;
};

typedef struct js_clauses *keyword_fn(const struct keyword *k);

bool js_is_text(struct js_text name, const char *s)
{
    return strlen(s) == name.n && !memcmp(s, name.s, name.n);
}

GR_NORETURN static void bad(const struct keyword *k, const char *what)
{
    js_fail(k->j, k->s, k->name, "%s %s", k->name, what);
}

static struct js_text text_of(const struct jinja_value *v)
{
    return (struct js_text){v->u.s, v->len};
}

static struct js_clauses *none(const struct keyword *k) { return js_clauses_new(k->j); }
static struct js_clauses *any(const struct keyword *k)
{
    return js_clauses_atom(k->j, JS_ALL, NULL, false);
}
static struct js_clauses *both(const struct keyword *k, const struct js_clauses *x,
                               const struct js_clauses *y)
{
    return js_clauses_and(k->j, x, y, k->s, k->name);
}
static void or(const struct keyword *k, struct js_clauses *c, const struct js_clauses *x)
{
    js_clauses_or(k->j, c, x, k->s, k->name);
}

static struct js_atom *atom(const struct keyword *k, enum js_atom_kind kind)
{
    struct js_atom *a = gr_alloc(k->j->b, sizeof *a);
    a->kind = kind, a->at = k->s, a->keyword = k->name;
    return a;
}

/* Every value of other types fits; an opposite atom is for the type alone. */
static struct js_clauses *of_type(const struct keyword *k, uint32_t type, struct js_atom *a,
                                  bool seen)
{
    return js_clauses_atom(k->j, k->opposite ? type : JS_ALL, a, seen && !k->opposite);
}

static uint32_t count_of(const struct keyword *k, const struct jinja_value *v)
{
    struct js_decimal d;
    uint32_t n;
    if (v->kind != JINJA_INT && v->kind != JINJA_FLOAT && v->kind != JINJA_BIGINT)
        bad(k, "is not a number");
    d = js_decimal_of(k->j, v);
    if (d.negative || d.n_frac) bad(k, "is not a whole number of at least 0");
    if (!js_decimal_small(&d, &n) || n >= GR_LEN_MANY) n = GR_LEN_MANY;
    return n;
}

static struct js_schema *child(const struct keyword *k, const struct jinja_value *v,
                               struct js_text key, uint32_t index)
{
    struct js_schema *m = js_schema_member(k->j, k->s, k->name);
    return js_schema_child(k->j, m, v, key, index);
}

static const struct js_clauses *clauses(const struct keyword *k, struct js_schema *s, bool opposite)
{
    return js_clauses_of(k->j, s, opposite);
}

/* ---- any type ---- */

static struct js_clauses *one_type(const struct keyword *k, const struct jinja_value *v)
{
    static const struct {
        const char *name;
        uint32_t types;
    } known[] = {{"null", JS_NULL},     {"boolean", JS_TRUE | JS_FALSE}, {"number", JS_NUMBER},
                 {"string", JS_STRING}, {"array", JS_ARRAY},             {"object", JS_OBJECT},
                 {"integer", JS_NUMBER}};
    if (v->kind != JINJA_STR) bad(k, "is not a string or a list of strings");
    for (size_t i = 0; i < 7; i++) {
        if (!js_is_text(text_of(v), known[i].name)) continue;
        struct js_atom *a = i == 6 ? atom(k, JS_INTEGER) : NULL;
        if (a) a->strict = k->s->draft == JS_DRAFT4;
        struct js_clauses *c = js_clauses_atom(k->j, known[i].types, a, false);
        if (!k->opposite) return c;
        c = js_clauses_atom(k->j, JS_ALL & ~known[i].types, NULL, false);
        if (a) a->opposite = true, or(k, c, js_clauses_atom(k->j, JS_NUMBER, a, false));
        return c;
    }
    bad(k, "names an unknown type");
}

static struct js_clauses *kw_type(const struct keyword *k)
{
    if (k->v->kind != JINJA_LIST) return one_type(k, k->v);
    struct js_clauses *c = k->opposite ? any(k) : none(k);
    for (uint32_t i = 0; i < k->v->u.list->count; i++) {
        struct js_clauses *x = one_type(k, &k->v->u.list->items[i]);
        if (k->opposite)
            c = both(k, c, x);
        else
            or(k, c, x);
    }
    return c;
}

/* ---- const and enum ---- */

static struct jinja_value make_dict(const struct keyword *k)
{
    struct jinja_value v;
    if (!jinja_dict_init(k->j->b->arena, 0, &v)) gr_fail_limit(k->j->b, "out of memory");
    return v;
}

static void put_member(const struct keyword *k, struct jinja_value d, const char *key,
                       struct jinja_value v)
{
    if (!jinja_dict_put_name(k->j->b->arena, d.u.dict, key, v))
        gr_fail_limit(k->j->b, "out of memory");
}

static struct jinja_value list_of(const struct keyword *k, uint32_t n)
{
    struct jinja_value v;
    if (!jinja_list_init(k->j->b->arena, n, &v)) gr_fail_limit(k->j->b, "out of memory");
    return v;
}

static struct jinja_value const_schema(const struct keyword *k, struct jinja_value v)
{
    struct jinja_value d = make_dict(k);
    put_member(k, d, "const", v);
    return d;
}

/* A schema that only this object or array fits. */
static struct js_schema *spelled_out(const struct keyword *k, const struct jinja_value *v)
{
    struct jinja_value *d = gr_alloc(k->j->b, sizeof *d), inner;
    struct jinja_arena *arena = k->j->b->arena;
    bool ok = true;
    *d = make_dict(k);
    if (v->kind == JINJA_LIST) {
        inner = list_of(k, v->u.list->count);
        for (uint32_t i = 0; i < v->u.list->count && ok; i++)
            ok = jinja_list_append(arena, inner.u.list, const_schema(k, v->u.list->items[i]));
        put_member(k, *d, "type", jinja_str_trusted("array", 5));
        if (v->u.list->count) put_member(k, *d, "prefixItems", inner);
        put_member(k, *d, "minItems", jinja_int(v->u.list->count));
        put_member(k, *d, "maxItems", jinja_int(v->u.list->count));
    } else {
        struct jinja_value names = list_of(k, v->u.dict->count);
        inner = make_dict(k);
        for (uint32_t i = 0; i < v->u.dict->count && ok; i++) {
            const struct jinja_pair *p = &v->u.dict->pairs[i];
            ok = jinja_dict_put(arena, inner.u.dict, p->key, const_schema(k, p->value)) &&
                 jinja_list_append(arena, names.u.list, p->key);
        }
        put_member(k, *d, "type", jinja_str_trusted("object", 6));
        put_member(k, *d, "properties", inner);
        put_member(k, *d, "required", names);
        put_member(k, *d, "additionalProperties", jinja_bool(false));
    }
    if (!ok) gr_fail_limit(k->j->b, "out of memory");
    struct js_schema *s = js_schema_made(k->j, js_schema_member(k->j, k->s, k->name), d);
    s->draft = JS_DRAFT2020;
    return s;
}

/* What is not an object or array goes into two lists and a set of types. */
static struct js_clauses *one_of_values(const struct keyword *k, const struct jinja_value *v,
                                        uint32_t n)
{
    struct js_atom *texts = atom(k, JS_STRINGS), *numbers = atom(k, JS_NUMBERS);
    uint32_t types = 0;
    texts->texts = gr_alloc(k->j->b, n * sizeof *texts->texts);
    numbers->numbers = gr_alloc(k->j->b, n * sizeof *numbers->numbers);
    texts->opposite = numbers->opposite = k->opposite;
    struct js_clauses *out = k->opposite ? any(k) : none(k);
    for (uint32_t i = 0; i < n; i++) {
        switch (v[i].kind) {
        case JINJA_NONE: types |= JS_NULL; break;
        case JINJA_BOOL: types |= v[i].u.b ? JS_TRUE : JS_FALSE; break;
        case JINJA_STR: texts->texts[texts->n_texts++] = text_of(&v[i]); break;
        case JINJA_INT:
        case JINJA_BIGINT:
        case JINJA_FLOAT: numbers->numbers[numbers->n_numbers++] = js_decimal_of(k->j, &v[i]); break;
        default: {
            const struct js_clauses *c = clauses(k, spelled_out(k, &v[i]), k->opposite);
            if (k->opposite)
                out = both(k, out, c);
            else
                or(k, out, c);
        }
        }
    }
    struct js_clause c = {.types = k->opposite ? JS_ALL & ~types : types};
    if (!k->opposite) c.types |= (texts->n_texts ? JS_STRING : 0) | (numbers->n_numbers ? JS_NUMBER : 0);
    if (texts->n_texts) GR_PUSH(k->j->b, &c.atoms, texts);
    if (numbers->n_numbers) GR_PUSH(k->j->b, &c.atoms, numbers);
    struct js_clauses one = {&c, 1, 1};
    if (k->opposite) return both(k, out, &one);
    or(k, out, &one);
    return out;
}

static struct js_clauses *kw_const(const struct keyword *k) { return one_of_values(k, k->v, 1); }
static struct js_clauses *kw_enum(const struct keyword *k)
{
    if (k->v->kind != JINJA_LIST) bad(k, "is not a list");
    return one_of_values(k, k->v->u.list->items, k->v->u.list->count);
}

/* ---- combinations ---- */

static struct js_clauses *kw_ref(const struct keyword *k)
{
    if (k->v->kind != JINJA_STR) bad(k, "is not a string");
    bool dynamic = strcmp(k->name, "$ref") != 0;
    if (!strcmp(k->name, "$recursiveRef") && !js_is_text(text_of(k->v), "#")) bad(k, "is not \"#\"");
    const struct js_clauses *c =
        clauses(k, js_resolve(k->j, k->s, k->name, text_of(k->v), dynamic), k->opposite);
    struct js_clauses *copy = none(k);
    *copy = *c;
    return copy;
}

static struct js_clauses *join(const struct keyword *k, bool conjunction, bool opposite)
{
    struct js_clauses *c = conjunction ? any(k) : none(k);
    for (uint32_t i = 0; i < k->v->u.list->count; i++) {
        struct js_schema *s = child(k, &k->v->u.list->items[i], (struct js_text){"", 0}, i);
        if (conjunction)
            c = both(k, c, clauses(k, s, opposite));
        else
            or(k, c, clauses(k, s, opposite));
    }
    return c;
}

static void want_list(const struct keyword *k)
{
    if (k->v->kind != JINJA_LIST || !k->v->u.list->count) bad(k, "is not a list, or empty");
}

static struct js_clauses *kw_all_of(const struct keyword *k)
{
    want_list(k);
    return join(k, !k->opposite, k->opposite);
}

static struct js_clauses *kw_any_of(const struct keyword *k)
{
    want_list(k);
    if (k->opposite) return join(k, true, true);
    if (!k->j->annotated) return join(k, false, false);
    /* Every branch that holds has evaluated something: each way in which some hold is its own. */
    uint32_t n = k->v->u.list->count;
    struct js_clauses *out = none(k);
    if (n > 6) bad(k, "has more than 6 branches in a schema with unevaluated...");
    for (uint32_t set = 1; set < 1u << n; set++) {
        struct js_clauses *c = any(k);
        for (uint32_t i = 0; i < n; i++)
            c = both(k, c, clauses(k, child(k, &k->v->u.list->items[i], (struct js_text){"", 0}, i),
                                   !(set >> i & 1)));
        or(k, out, c);
    }
    return out;
}

/* Clauses of x that may have something in common with y. */
static bool may_meet(const struct keyword *k, const struct js_clauses *x, const struct js_clauses *y)
{
    for (uint32_t a = 0; a < x->n; a++) {
        for (uint32_t b = 0; b < y->n; b++) {
            struct js_clauses left = {&x->v[a], 1, 1}, right = {&y->v[b], 1, 1};
            if (!js_is_empty(k->j, both(k, &left, &right), 3)) return true;
        }
    }
    return false;
}

static struct js_clauses *without_empty(const struct keyword *k, const struct js_clauses *c)
{
    struct js_clauses *out = none(k);
    for (uint32_t i = 0; i < c->n; i++) {
        struct js_clauses one = {&c->v[i], 1, 1};
        if (!js_is_empty(k->j, &one, 3)) or(k, out, &one);
    }
    return out;
}

/* Branch i holds and no other one; those that cannot hold beside it need no opposite. */
static struct js_clauses *only_branch(const struct keyword *k, uint32_t i)
{
    const struct jinja_list *l = k->v->u.list;
    struct js_text no_key = {"", 0};
    struct js_clauses *out = none(k);
    const struct js_clauses *mine = clauses(k, child(k, &l->items[i], no_key, i), false);
    for (uint32_t m = 0; m < mine->n; m++) {
        struct js_clauses one = {&mine->v[m], 1, 1}, *c = &one;
        for (uint32_t o = 0; o < l->count; o++) {
            struct js_schema *other = child(k, &l->items[o], no_key, o);
            if (o == i || !may_meet(k, c, clauses(k, other, false))) continue;
            c = without_empty(k, both(k, c, clauses(k, other, true)));
        }
        or(k, out, c);
    }
    return out;
}

static struct js_clauses *kw_one_of(const struct keyword *k)
{
    want_list(k);
    const struct jinja_list *l = k->v->u.list;
    struct js_text no_key = {"", 0};
    struct js_clauses *out = k->opposite ? join(k, true, true) : none(k);
    for (uint32_t i = 0; i < l->count; i++) {
        if (!k->opposite) or(k, out, only_branch(k, i));
        for (uint32_t o = 0; k->opposite && o < i; o++)
            or(k, out, both(k, clauses(k, child(k, &l->items[i], no_key, i), false),
                            clauses(k, child(k, &l->items[o], no_key, o), false)));
    }
    return out;
}

static struct js_clauses *kw_not(const struct keyword *k)
{
    struct js_clauses *c = none(k);
    *c = *clauses(k, js_schema_member(k->j, k->s, k->name), !k->opposite);
    if (k->j->annotated) { /* what it has evaluated does not count */
        struct js_clauses *copy = none(k);
        for (uint32_t i = 0; i < c->n; i++) {
            struct js_clause x = c->v[i];
            x.seen.n = 0;
            GR_PUSH(k->j->b, copy, x);
        }
        return copy;
    }
    return c;
}

static struct js_clauses *kw_if(const struct keyword *k)
{
    struct js_schema *condition = js_schema_member(k->j, k->s, "if");
    struct js_schema *yes = js_schema_member(k->j, k->s, "then");
    struct js_schema *no = js_schema_member(k->j, k->s, "else");
    if (!yes && !no && !k->j->annotated) return NULL;
    struct js_clauses *c = none(k);
    if (yes || !k->opposite)
        or(k, c, both(k, clauses(k, condition, false), clauses(k, yes, k->opposite)));
    if (no || !k->opposite)
        or(k, c, both(k, clauses(k, condition, true), clauses(k, no, k->opposite)));
    return c;
}

/* ---- numbers ---- */

static struct js_clauses *limit(const struct keyword *k, enum js_atom_kind kind, bool strict)
{
    struct js_atom *a = atom(k, kind);
    if (k->v->kind != JINJA_INT && k->v->kind != JINJA_FLOAT && k->v->kind != JINJA_BIGINT)
        bad(k, "is not a number");
    a->number = js_decimal_of(k->j, k->v);
    a->strict = strict, a->opposite = k->opposite;
    return of_type(k, JS_NUMBER, a, false);
}

static bool draft4_flag(const struct keyword *k, const char *name)
{
    const struct jinja_value *v = js_get(k->s, name);
    return v && v->kind == JINJA_BOOL && v->u.b && k->s->draft == JS_DRAFT4;
}

static struct js_clauses *kw_minimum(const struct keyword *k)
{
    return limit(k, JS_LEAST, draft4_flag(k, "exclusiveMinimum"));
}
static struct js_clauses *kw_maximum(const struct keyword *k)
{
    return limit(k, JS_MOST, draft4_flag(k, "exclusiveMaximum"));
}
static struct js_clauses *kw_exclusive(const struct keyword *k)
{
    if (k->v->kind == JINJA_BOOL && k->s->draft == JS_DRAFT4) return NULL;
    return limit(k, !strcmp(k->name, "exclusiveMinimum") ? JS_LEAST : JS_MOST, true);
}

static struct js_clauses *kw_multiple(const struct keyword *k)
{
    struct js_clauses *c = limit(k, JS_MULTIPLE, false);
    const struct js_decimal *d = &c->v[0].atoms.v[0]->number;
    if (d->negative || !(d->n_int + d->n_frac)) bad(k, "is not more than 0");
    return c;
}

/* ---- strings ---- */

/* The atom of a pattern or format; *known: its tree is there. Messages name the first place. */
static struct js_atom *pattern_atom(const struct keyword *k, bool format, bool *known)
{
    struct js *j = k->j;
    struct js_pattern new = {text_of(k->v), format, NULL};
    for (uint32_t i = 0; i < j->patterns.n; i++) {
        const struct js_pattern *p = &j->patterns.v[i];
        gr_work(j->b, 1);
        if (p->format != format || p->atom->opposite != k->opposite || p->text.n != new.text.n ||
            memcmp(p->text.s, new.text.s, new.text.n))
            continue;
        *known = p->atom->tree != NULL;
        return p->atom;
    }
    new.atom = atom(k, JS_PATTERN);
    new.atom->opposite = k->opposite;
    GR_PUSH(j->b, &j->patterns, new);
    *known = false;
    return new.atom;
}

static struct js_clauses *kw_pattern(const struct keyword *k)
{
    bool known;
    struct gr_regex_flags f = {.anchors = true};
    if (k->v->kind != JINJA_STR) bad(k, "is not a string");
    struct js_atom *a = pattern_atom(k, false, &known);
    if (!known) {
        js_pattern_place(k->j, k->s, k->name);
        a->tree = gr_regex_parse(k->j->b, k->v->u.s, k->v->len, 0, f);
        k->j->b->error->pointer[0] = '\0';
        a->search = true;
    }
    return of_type(k, JS_STRING, a, false);
}

static struct js_clauses *kw_format(const struct keyword *k)
{
    bool known;
    if (k->v->kind != JINJA_STR) bad(k, "is not a string");
    if (k->j->b->o.formats_annotate) return NULL;
    struct js_text name = text_of(k->v);
    /* OpenAPI's, which say how to store a number or to show a text, and draft 3's name of a unit: any value fits. */
    static const char *const hints[] = {"int32", "int64", "float", "double", "password", "utc-millisec"};
    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++)
        if (js_is_text(name, hints[i])) return k->opposite ? none(k) : NULL;
    struct js_atom *a = pattern_atom(k, true, &known);
    if (!known) a->tree = js_format(k->j->b, name, k->opposite);
    if (!a->tree)
        js_fail(k->j, k->s, k->name, "format '%.*s' is not supported",
                (int)(name.n < 60 ? name.n : 60), name.s);
    return of_type(k, JS_STRING, a, false);
}

/* min..max of something that is counted; the opposite is below or above. */
static struct js_clauses *counted(const struct keyword *k, uint32_t type, enum js_atom_kind kind,
                                  bool is_max)
{
    uint32_t n = count_of(k, k->v);
    struct js_atom *a = atom(k, kind);
    a->min = 0, a->max = GR_LEN_MANY;
    if (is_max && n == GR_LEN_MANY) return k->opposite ? none(k) : NULL;
    if (!is_max && !n) return k->opposite ? none(k) : NULL;
    if (is_max != k->opposite)
        a->max = is_max ? n : n - 1;
    else
        a->min = is_max ? n + 1 : n;
    return of_type(k, type, a, false);
}

static struct js_clauses *kw_min_length(const struct keyword *k)
{
    return counted(k, JS_STRING, JS_LENGTH, false);
}
static struct js_clauses *kw_max_length(const struct keyword *k)
{
    return counted(k, JS_STRING, JS_LENGTH, true);
}

/* ---- arrays ---- */

static struct js_clauses *kw_min_items(const struct keyword *k)
{
    return counted(k, JS_ARRAY, JS_COUNT, false);
}
static struct js_clauses *kw_max_items(const struct keyword *k)
{
    return counted(k, JS_ARRAY, JS_COUNT, true);
}

/* Items from..to fit. The opposite: there is one that does not. */
static struct js_clauses *items_fit(const struct keyword *k, struct js_schema *s, uint32_t from,
                                    uint32_t to)
{
    struct js_atom *a = atom(k, JS_ITEMS);
    a->fits = (struct js_literal){s, k->opposite};
    a->min = a->from = from, a->max = to;
    if (!k->opposite) return of_type(k, JS_ARRAY, a, true);
    if (to == GR_LEN_MANY) {
        a->kind = JS_CONTAINS, a->min = 1;
        return of_type(k, JS_ARRAY, a, false);
    }
    struct js_atom *count = atom(k, JS_COUNT);
    count->min = from + 1, count->max = GR_LEN_MANY;
    return both(k, of_type(k, JS_ARRAY, a, false), of_type(k, JS_ARRAY, count, false));
}

static struct js_clauses *prefix_items(const struct keyword *k)
{
    want_list(k);
    struct js_clauses *c = k->opposite ? none(k) : any(k);
    for (uint32_t i = 0; i < k->v->u.list->count; i++) {
        struct js_schema *s = child(k, &k->v->u.list->items[i], (struct js_text){"", 0}, i);
        struct js_clauses *x = items_fit(k, s, i, i + 1);
        if (k->opposite)
            or(k, c, x);
        else
            c = both(k, c, x);
    }
    return c;
}

static struct js_clauses *kw_items(const struct keyword *k)
{
    if (k->v->kind == JINJA_LIST) {
        if (k->s->draft == JS_DRAFT2020) bad(k, "is a list; since 2020-12 that is prefixItems");
        return k->v->u.list->count ? prefix_items(k) : NULL;
    }
    const struct jinja_value *p = k->s->draft == JS_DRAFT2020 ? js_get(k->s, "prefixItems") : NULL;
    uint32_t from = p && p->kind == JINJA_LIST ? p->u.list->count : 0;
    return items_fit(k, js_schema_member(k->j, k->s, k->name), from, GR_LEN_MANY);
}

static struct js_clauses *kw_additional_items(const struct keyword *k)
{
    const struct jinja_value *p = js_get(k->s, "items");
    if (k->s->draft == JS_DRAFT2020 || !p || p->kind != JINJA_LIST) return NULL;
    return items_fit(k, js_schema_member(k->j, k->s, k->name), p->u.list->count, GR_LEN_MANY);
}

static struct js_clauses *contains_count(const struct keyword *k, uint32_t min, uint32_t max)
{
    struct js_atom *a = atom(k, JS_CONTAINS);
    a->fits = (struct js_literal){js_schema_member(k->j, k->s, "contains"), false};
    a->min = min, a->max = max;
    return of_type(k, JS_ARRAY, a, k->s->draft == JS_DRAFT2020); /* items that fit were evaluated, since then */
}

static struct js_clauses *kw_contains(const struct keyword *k)
{
    const struct jinja_value *lo = js_get(k->s, "minContains"), *hi = js_get(k->s, "maxContains");
    bool counts = k->s->draft >= JS_DRAFT2019;
    uint32_t min = lo && counts ? count_of(k, lo) : 1;
    uint32_t max = hi && counts ? count_of(k, hi) : GR_LEN_MANY;
    if (!k->opposite) return contains_count(k, min, max);
    struct js_clauses *c = none(k);
    if (min) or(k, c, contains_count(k, 0, min - 1));
    if (max != GR_LEN_MANY) or(k, c, contains_count(k, max + 1, GR_LEN_MANY));
    return c;
}

static struct js_clauses *kw_unique(const struct keyword *k)
{
    if (k->v->kind != JINJA_BOOL) bad(k, "is not a boolean");
    if (!k->v->u.b) return k->opposite ? none(k) : NULL;
    if (k->opposite) bad(k, "is not supported under not, oneOf or if");
    k->j->unique = true;
    return of_type(k, JS_ARRAY, atom(k, JS_UNIQUE), false);
}

/* ---- objects ---- */

static struct js_clauses *member_fits(const struct keyword *k, struct js_text name,
                                      struct js_literal fits, uint32_t types, bool seen)
{
    struct js_atom *a = atom(k, JS_MEMBER);
    a->texts = gr_alloc(k->j->b, sizeof *a->texts);
    a->texts[0] = name, a->n_texts = 1, a->fits = fits;
    return js_clauses_atom(k->j, types, a, seen);
}

static struct js_clauses *is_there(const struct keyword *k, struct js_text name, uint32_t types)
{
    struct js_atom *a = atom(k, JS_REQUIRED);
    a->texts = gr_alloc(k->j->b, sizeof *a->texts);
    a->texts[0] = name, a->n_texts = 1;
    return js_clauses_atom(k->j, types, a, false);
}

/* An object with the member, or what is not that. */
static struct js_clauses *has_member(const struct keyword *k, struct js_text name, bool opposite)
{
    if (!opposite) return is_there(k, name, JS_OBJECT);
    return member_fits(k, name, (struct js_literal){NULL, true}, JS_ALL, false);
}

static void want_dict(const struct keyword *k)
{
    if (k->v->kind != JINJA_DICT) bad(k, "is not an object");
}

static struct js_clauses *kw_properties(const struct keyword *k)
{
    want_dict(k);
    struct js_clauses *c = k->opposite ? none(k) : any(k);
    for (uint32_t i = 0; i < k->v->u.dict->count; i++) {
        const struct jinja_pair *p = &k->v->u.dict->pairs[i];
        struct js_text name = text_of(&p->key);
        struct js_literal fits = {child(k, &p->value, name, GR_NONE), k->opposite};
        if (k->opposite)
            or(k, c, both(k, member_fits(k, name, fits, JS_OBJECT, false),
                          is_there(k, name, JS_OBJECT)));
        else
            c = both(k, c, member_fits(k, name, fits, JS_ALL, true));
    }
    return c;
}

static struct gr_node *key_pattern(const struct keyword *k, const struct jinja_value *key)
{
    struct gr_regex_flags f = {.anchors = true};
    js_pattern_place(k->j, k->s, "patternProperties");
    struct gr_node *tree = gr_regex_parse(k->j->b, key->u.s, key->len, 0, f);
    k->j->b->error->pointer[0] = '\0';
    return tree;
}

static struct js_clauses *kw_pattern_properties(const struct keyword *k)
{
    want_dict(k);
    struct js_clauses *c = k->opposite ? none(k) : any(k);
    for (uint32_t i = 0; i < k->v->u.dict->count; i++) {
        const struct jinja_pair *p = &k->v->u.dict->pairs[i];
        struct js_atom *a = atom(k, k->opposite ? JS_SOME_MEMBERS : JS_MEMBERS);
        a->tree = key_pattern(k, &p->key);
        a->fits = (struct js_literal){child(k, &p->value, text_of(&p->key), GR_NONE), k->opposite};
        if (k->opposite)
            or(k, c, of_type(k, JS_OBJECT, a, false));
        else
            c = both(k, c, of_type(k, JS_OBJECT, a, true));
    }
    return c;
}

static struct js_clauses *kw_additional_properties(const struct keyword *k)
{
    const struct jinja_value *names = js_get(k->s, "properties");
    const struct jinja_value *patterns = js_get(k->s, "patternProperties");
    struct js_atom *a = atom(k, k->opposite ? JS_SOME_REST : JS_REST);
    a->fits = (struct js_literal){js_schema_member(k->j, k->s, k->name), k->opposite};
    if (names && names->kind == JINJA_DICT) {
        a->texts = gr_alloc(k->j->b, names->u.dict->count * sizeof *a->texts);
        for (uint32_t i = 0; i < names->u.dict->count; i++)
            a->texts[a->n_texts++] = text_of(&names->u.dict->pairs[i].key);
    }
    if (patterns && patterns->kind == JINJA_DICT) {
        a->trees = gr_alloc(k->j->b, patterns->u.dict->count * sizeof *a->trees);
        for (uint32_t i = 0; i < patterns->u.dict->count; i++)
            a->trees[a->n_trees++] = key_pattern(k, &patterns->u.dict->pairs[i].key);
    }
    return of_type(k, JS_OBJECT, a, true);
}

static struct js_clauses *kw_property_names(const struct keyword *k)
{
    struct js_atom *a = atom(k, k->opposite ? JS_SOME_NAME : JS_NAMES);
    a->fits = (struct js_literal){js_schema_member(k->j, k->s, k->name), k->opposite};
    return of_type(k, JS_OBJECT, a, false);
}

static struct js_clauses *kw_min_properties(const struct keyword *k)
{
    return counted(k, JS_OBJECT, JS_SIZE, false);
}
static struct js_clauses *kw_max_properties(const struct keyword *k)
{
    return counted(k, JS_OBJECT, JS_SIZE, true);
}

static struct js_clauses *all_there(const struct keyword *k, const struct jinja_value *v)
{
    struct js_clauses *c = k->opposite ? none(k) : any(k);
    if (v->kind != JINJA_LIST) bad(k, "is not a list of strings");
    for (uint32_t i = 0; i < v->u.list->count; i++) {
        const struct jinja_value *x = &v->u.list->items[i];
        if (x->kind != JINJA_STR) bad(k, "is not a list of strings");
        if (k->opposite)
            or(k, c, member_fits(k, text_of(x), (struct js_literal){NULL, true}, JS_OBJECT, false));
        else
            c = both(k, c, is_there(k, text_of(x), JS_ALL));
    }
    return c;
}

static struct js_clauses *kw_required(const struct keyword *k)
{
    if (k->v->kind == JINJA_BOOL) return NULL; /* draft 3's, an annotation since */
    return all_there(k, k->v);
}

/* dependentRequired, dependentSchemas, and dependencies, which is either. */
static struct js_clauses *kw_dependent(const struct keyword *k)
{
    want_dict(k);
    if (!strcmp(k->name, "dependencies") && k->s->draft >= JS_DRAFT2019) return NULL;
    struct js_clauses *c = k->opposite ? none(k) : any(k);
    for (uint32_t i = 0; i < k->v->u.dict->count; i++) {
        const struct jinja_pair *p = &k->v->u.dict->pairs[i];
        struct js_text name = text_of(&p->key);
        bool list = p->value.kind == JINJA_LIST;
        const struct js_clauses *then =
            list ? all_there(k, &p->value) : clauses(k, child(k, &p->value, name, GR_NONE), k->opposite);
        if (k->opposite) {
            or(k, c, both(k, has_member(k, name, false), then));
            continue;
        }
        struct js_clauses *x = has_member(k, name, true);
        or(k, x, k->j->annotated ? both(k, has_member(k, name, false), then) : then);
        c = both(k, c, x);
    }
    return c;
}

/* ---- table ---- */

static const struct {
    const char *name;
    keyword_fn *fn;
    enum js_draft since;
} keywords[] = {
    {"type", kw_type, JS_DRAFT4},
    {"const", kw_const, JS_DRAFT6},
    {"enum", kw_enum, JS_DRAFT4},
    {"$ref", kw_ref, JS_DRAFT4},
    {"$dynamicRef", kw_ref, JS_DRAFT2020},
    {"$recursiveRef", kw_ref, JS_DRAFT2019},
    {"allOf", kw_all_of, JS_DRAFT4},
    {"anyOf", kw_any_of, JS_DRAFT4},
    {"oneOf", kw_one_of, JS_DRAFT4},
    {"not", kw_not, JS_DRAFT4},
    {"if", kw_if, JS_DRAFT7},
    {"minimum", kw_minimum, JS_DRAFT4},
    {"maximum", kw_maximum, JS_DRAFT4},
    {"exclusiveMinimum", kw_exclusive, JS_DRAFT4},
    {"exclusiveMaximum", kw_exclusive, JS_DRAFT4},
    {"multipleOf", kw_multiple, JS_DRAFT4},
    {"pattern", kw_pattern, JS_DRAFT4},
    {"format", kw_format, JS_DRAFT4},
    {"minLength", kw_min_length, JS_DRAFT4},
    {"maxLength", kw_max_length, JS_DRAFT4},
    {"minItems", kw_min_items, JS_DRAFT4},
    {"maxItems", kw_max_items, JS_DRAFT4},
    {"prefixItems", prefix_items, JS_DRAFT2020},
    {"items", kw_items, JS_DRAFT4},
    {"additionalItems", kw_additional_items, JS_DRAFT4},
    {"contains", kw_contains, JS_DRAFT6},
    {"uniqueItems", kw_unique, JS_DRAFT4},
    {"properties", kw_properties, JS_DRAFT4},
    {"patternProperties", kw_pattern_properties, JS_DRAFT4},
    {"additionalProperties", kw_additional_properties, JS_DRAFT4},
    {"propertyNames", kw_property_names, JS_DRAFT6},
    {"minProperties", kw_min_properties, JS_DRAFT4},
    {"maxProperties", kw_max_properties, JS_DRAFT4},
    {"required", kw_required, JS_DRAFT4},
    {"dependentRequired", kw_dependent, JS_DRAFT2019},
    {"dependentSchemas", kw_dependent, JS_DRAFT2019},
    {"dependencies", kw_dependent, JS_DRAFT4},
};

struct js_clauses *js_keyword(struct js *j, struct js_schema *s, struct js_text name,
                              const struct jinja_value *v, bool opposite)
{
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++) {
        if (!js_is_text(name, keywords[i].name) || s->draft < keywords[i].since) continue;
        struct keyword k = {j, s, keywords[i].name, v, opposite};
        return keywords[i].fn(&k);
    }
    return NULL; /* an annotation, or nobody's */
}
