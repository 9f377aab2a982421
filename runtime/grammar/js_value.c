// SPDX-License-Identifier: Apache-2.0
/*
 * Value nodes: one for each set of literals that some place asks for. They are made in a row as
 * they are met, so recursive schemas end; afterwards a fixed point says which of them any value
 * fits at all.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/grammar/gr_slice.h"
#include "runtime/grammar/js.h"

static uint32_t literal_key(const struct js_literal *l)
{
    return (l->schema ? l->schema->id * 2 + 2 : 0) + l->opposite;
}

static int by_key(const void *pa, const void *pb)
{
    uint32_t a = literal_key(pa), b = literal_key(pb);
    return a < b ? -1 : a > b;
}

/* Sorted, each once, without "any value". */
static struct js_literals tidy(struct js *j, const struct js_literals *l)
{
    struct js_literals out = {0};
    for (uint32_t i = 0; i < l->n; i++)
        if (l->v[i].schema || l->v[i].opposite) GR_PUSH(j->b, &out, l->v[i]);
    if (!out.n) return out;
    qsort(out.v, out.n, sizeof *out.v, by_key);
    uint32_t n = 1;
    for (uint32_t i = 1; i < out.n; i++)
        if (literal_key(&out.v[i]) != literal_key(&out.v[n - 1])) out.v[n++] = out.v[i];
    out.n = n;
    return out;
}

static bool same(const struct js_literals *a, const struct js_literals *b)
{
    for (uint32_t i = 0; a->n == b->n && i < a->n; i++)
        if (literal_key(&a->v[i]) != literal_key(&b->v[i])) return false;
    return a->n == b->n;
}

static void grow_index(struct js *j)
{
    if (j->nodes.n * 2 < j->node_index_cap) return;
    j->node_index_cap = j->node_index_cap ? j->node_index_cap * 2 : 64;
    j->node_index = gr_alloc(j->b, j->node_index_cap * sizeof *j->node_index);
    for (uint32_t i = 0; i < j->nodes.n; i++) {
        uint32_t at = j->nodes.v[i].hash & (j->node_index_cap - 1);
        while (j->node_index[at]) at = (at + 1) & (j->node_index_cap - 1);
        j->node_index[at] = i + 1;
    }
}

uint32_t js_node(struct js *j, const struct js_literals *given)
{
    struct gr_grammar *g = j->b->g;
    struct js_node node = {tidy(j, given), 0};
    uint64_t h = node.literals.n;
    for (uint32_t i = 0; i < node.literals.n; i++) h = gr_mix(h ^ literal_key(&node.literals.v[i]));
    node.hash = (uint32_t)h;
    gr_work(j->b, node.literals.n + 1);
    grow_index(j);
    uint32_t at = node.hash & (j->node_index_cap - 1);
    for (; j->node_index[at]; at = (at + 1) & (j->node_index_cap - 1)) {
        const struct js_node *x = &j->nodes.v[j->node_index[at] - 1];
        if (x->hash == node.hash && same(&x->literals, &node.literals))
            return j->node_index[at] - 1;
    }
    if (g->n_values > GR_MAX_VALUES) gr_fail_limit(j->b, "it has too many kinds of values");
    GR_PUSH(j->b, &j->nodes, node);
    g->values = gr_grow(j->b, g->values, g->n_values, &g->cap_values, sizeof *g->values);
    memset(&g->values[g->n_values++], 0, sizeof *g->values);
    j->node_index[at] = j->nodes.n;
    return j->nodes.n - 1;
}

static void add_number(struct js *j, struct gr_list *l, uint32_t x)
{
    for (uint32_t i = 0; i < l->n; i++)
        if (l->v[i] == x) return;
    GR_PUSH(j->b, l, x);
}

static void build_node(struct js *j, uint32_t i)
{
    struct js_literals l = j->nodes.v[i].literals;
    const struct js_clauses *c = js_clauses_all(j, &l);
    struct gr_value v = {0};
    struct gr_list objects = {0}, arrays = {0};
    js_make_strings(j, c, &v);
    js_make_number(j, c, &v);
    for (uint32_t k = 0; k < c->n; k++) {
        const struct js_clause *x = &c->v[k];
        v.can_null |= x->types & JS_NULL;
        v.can_true |= (x->types & JS_TRUE) != 0;
        v.can_false |= (x->types & JS_FALSE) != 0;
        if (x->types & JS_OBJECT) add_number(j, &objects, js_make_object(j, x));
        if (x->types & JS_ARRAY) add_number(j, &arrays, js_make_array(j, x));
    }
    v.objects = objects.v, v.n_objects = objects.n;
    v.arrays = arrays.v, v.n_arrays = arrays.n;
    j->b->g->values[i] = v;
}

/* Several schemas of one grammar share what is made; references stay inside each. */
uint32_t gr_schema(struct gr_build *b, const struct jinja_value *schema)
{
    struct js *j = b->g->schemas;
    struct js_literals l = {0};
    if (!j) b->g->schemas = j = gr_alloc(b, sizeof *j);
    j->b = b;
    j->resources.n = 0;
    j->annotated = false;
    struct js_literal root = {js_schema_root(j, schema), false};
    GR_PUSH(b, &l, root);
    uint32_t node = js_node(j, &l);
    for (; j->n_built < j->nodes.n; j->n_built++) build_node(j, j->n_built);
    return node;
}

/* ---- what is possible ---- */

static bool is_possible(const struct gr_grammar *g, const struct gr_value *v)
{
    if (v->can_null || v->can_true || v->can_false || v->number || v->n_strings) return true;
    for (uint32_t i = 0; i < v->n_objects; i++)
        if (g->objects[v->objects[i]].possible) return true;
    for (uint32_t i = 0; i < v->n_arrays; i++)
        if (g->arrays[v->arrays[i]].possible) return true;
    return false;
}

static void find_possible(struct gr_build *b)
{
    struct gr_grammar *g = b->g;
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t i = 0; i < g->n_objects; i++)
            if (!g->objects[i].possible && js_object_possible(g, &g->objects[i]))
                g->objects[i].possible = changed = true;
        for (uint32_t i = 0; i < g->n_arrays; i++)
            if (!g->arrays[i].possible && js_array_possible(g, &g->arrays[i]))
                g->arrays[i].possible = changed = true;
        for (uint32_t i = 0; i < g->n_values; i++)
            if (!g->values[i].possible && is_possible(g, &g->values[i]))
                g->values[i].possible = changed = true;
        gr_work(b, g->n_objects + g->n_arrays + g->n_values);
    }
}

static void find_first(const struct gr_grammar *g, struct gr_value *v)
{
    if (v->can_null) gr_bit_set(v->first, 'n');
    if (v->can_true) gr_bit_set(v->first, 't');
    if (v->can_false) gr_bit_set(v->first, 'f');
    if (v->n_strings) gr_bit_set(v->first, '"');
    for (uint32_t i = 0; i < v->n_objects; i++)
        if (g->objects[v->objects[i]].possible) gr_bit_set(v->first, '{');
    for (uint32_t i = 0; i < v->n_arrays; i++)
        if (g->arrays[v->arrays[i]].possible) gr_bit_set(v->first, '[');
    for (unsigned c = 0; c < 256 && v->number; c++)
        if (gr_next(g, v->number, (uint8_t)c)) gr_bit_set(v->first, c);
}

/* Keys have their own (js_object.c). */
static void find_room_of(struct js *j, struct gr_string *x)
{
    struct gr_string *same = &j->b->g->strings[x->first];
    if (x->has_room) return;
    if (!same->has_room) same->room = js_find_room(j, same, NULL);
    x->room = same->room;
    x->has_room = same->has_room = true;
    for (uint32_t k = 0; k < x->n && x->shortest; k++) {
        bool endless = x->room && x->room[k] == GR_ROOM_ALL; /* the first slice is in the others */
        if (endless && x->shortest[k] > x->spare) x->spare = x->shortest[k];
        if (x->shortest[k] > x->far) x->far = x->shortest[k];
    }
}

void gr_schema_finish(struct gr_build *b)
{
    struct gr_grammar *g = b->g;
    struct js *j = g->schemas;
    if (!j) return;
    find_possible(b);
    for (uint32_t i = 0; i < g->n_values; i++)
        for (uint32_t k = 0; k < g->values[i].n_strings; k++)
            find_room_of(j, &g->strings[g->values[i].strings[k]]);
    for (uint32_t i = 0; i < g->n_objects; i++) js_object_finish(j, &g->objects[i]);
    for (uint32_t i = 0; i < g->n_arrays; i++) js_array_finish(j, &g->arrays[i]);
    for (uint32_t i = 0; i < g->n_values; i++) find_first(g, &g->values[i]);
    if (g->root_value != GR_NO_ROOT && !g->values[g->root_value].possible)
        js_fail(j, j->schemas.v[0], NULL, "no value at all fits the schema");
    g->needs_text = j->unique;
    for (uint32_t i = 0; i < g->n_objects; i++) g->needs_text |= g->objects[i].distinct;
    g->schemas = NULL;
}
