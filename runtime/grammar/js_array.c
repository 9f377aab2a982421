// SPDX-License-Identifier: Apache-2.0
/* Arrays: what stands at each place, how many there are, what must be contained. */
#include <string.h>

#include "runtime/grammar/js.h"

enum { MAX_PLACES = 1000 };

static bool is_contains(const struct js_atom *a)
{
    return a->kind == JS_CONTAINS && !(a->min == 0 && a->max == GR_LEN_MANY);
}

/* Literals of the item at a place, with the contains in `set` counting it. */
static uint32_t item_node(struct js *j, const struct js_atoms *atoms,
                          const struct js_atom *const *contains, uint32_t n, uint32_t place,
                          uint32_t set)
{
    struct js_literals l = {0};
    for (uint32_t i = 0; i < atoms->n; i++) {
        const struct js_atom *a = atoms->v[i];
        if (a->kind == JS_ITEMS && a->min <= place && place < a->max) GR_PUSH(j->b, &l, a->fits);
    }
    for (uint32_t i = 0; i < n; i++) {
        struct js_literal fits = contains[i]->fits;
        bool counts = set >> i & 1;
        if (counts && place < contains[i]->from)
            fits = (struct js_literal){NULL, true}; /* before its first place nothing counts */
        else if (!counts && (contains[i]->max == GR_LEN_MANY || place < contains[i]->from))
            continue;
        if (!counts) fits.opposite = !fits.opposite;
        GR_PUSH(j->b, &l, fits);
    }
    return js_node(j, &l);
}

static uint32_t places_of(struct js *j, const struct js_atoms *atoms)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < atoms->n; i++) {
        const struct js_atom *a = atoms->v[i];
        uint32_t most = a->kind == JS_ITEMS && a->max != GR_LEN_MANY ? a->max : 0;
        if (a->kind == JS_ITEMS && a->min > most) most = a->min;
        if (a->kind == JS_CONTAINS) most = a->from;
        if (most > MAX_PLACES) js_fail(j, a->at, a->keyword, "more than 1000 places");
        if (most > n) n = most;
    }
    return n + 1;
}

uint32_t js_make_array(struct js *j, const struct js_clause *c)
{
    struct gr_grammar *g = j->b->g;
    struct js_atoms atoms = js_atoms_of(j, c, JS_ITEMS, JS_UNIQUE);
    const struct js_atom *contains[GR_MAX_CONTAINS];
    struct gr_array a = {.max = GR_LEN_MANY};
    gr_work(j->b, j->arrays.n / 4 + 1);
    for (uint32_t i = 0; i < j->arrays.n; i++) {
        const struct js_made *m = &j->arrays.v[i];
        if (m->n == atoms.n && (!atoms.n || !memcmp(m->atoms, atoms.v, atoms.n * sizeof *atoms.v)))
            return m->number;
    }
    for (uint32_t i = 0; i < atoms.n; i++) {
        const struct js_atom *x = atoms.v[i];
        if (x->kind == JS_COUNT && x->min > a.min) a.min = x->min;
        if (x->kind == JS_COUNT && x->max < a.max) a.max = x->max;
        a.unique |= x->kind == JS_UNIQUE;
        if (!is_contains(x)) continue;
        if (a.n_contains == GR_MAX_CONTAINS)
            js_fail(j, x->at, x->keyword, "more than two conditions of this kind on one array");
        contains[a.n_contains] = x;
        a.contains[a.n_contains++] = (struct gr_contains){x->min, x->max};
    }
    a.n_places = places_of(j, &atoms);
    a.items = gr_alloc(j->b, (a.n_places << a.n_contains) * sizeof *a.items);
    for (uint32_t p = 0; p < a.n_places; p++)
        for (uint32_t set = 0; set < 1u << a.n_contains; set++)
            a.items[(p << a.n_contains) + set] =
                item_node(j, &atoms, contains, a.n_contains, p, set);
    g->arrays = gr_grow(j->b, g->arrays, g->n_arrays, &g->cap_arrays, sizeof *g->arrays);
    g->arrays[g->n_arrays] = a;
    struct js_made made = {atoms.v, atoms.n, g->n_arrays};
    GR_PUSH(j->b, &j->arrays, made);
    return g->n_arrays++;
}

/* ---- what is possible ---- */

/* Places from the first one that nothing can fill on do not exist. */
static uint32_t most_items(const struct gr_grammar *g, const struct gr_array *a)
{
    for (uint32_t p = 0; p < a->n_places; p++) {
        bool some = false;
        for (uint32_t set = 0; set < 1u << a->n_contains; set++)
            some |= g->values[a->items[(p << a->n_contains) + set]].possible;
        if (!some) return p < a->max ? p : a->max;
    }
    return a->max;
}

/* Can this many items count for contains number i? */
static bool enough(const struct gr_grammar *g, const struct gr_array *a, uint32_t most, uint32_t i)
{
    uint32_t n = 0;
    for (uint32_t p = 0; p < a->n_places && p < most; p++) {
        bool some = false;
        for (uint32_t set = 0; set < 1u << a->n_contains; set++)
            some |= (set >> i & 1) && g->values[a->items[(p << a->n_contains) + set]].possible;
        if (!some) continue;
        if (p + 1 == a->n_places) return most == GR_LEN_MANY || n + (most - p) >= a->contains[i].min;
        n++;
    }
    return n >= a->contains[i].min;
}

bool js_array_possible(const struct gr_grammar *g, const struct gr_array *a)
{
    uint32_t most = most_items(g, a);
    if (a->min > most) return false;
    for (uint32_t i = 0; i < a->n_contains; i++)
        if (a->contains[i].min > a->contains[i].max || !enough(g, a, most, i)) return false;
    return true;
}

void js_array_finish(struct js *j, struct gr_array *a) { a->max = most_items(j->b->g, a); }
