// SPDX-License-Identifier: Apache-2.0
/*
 * Strings: automata over the text that a string means, after its escapes.
 *
 * One automaton reads for all clauses at once; which atoms' patterns have matched says which
 * clauses hold. Lengths are not in it: a clause with a length has an automaton of its own, and the
 * characters are counted beside it.
 */
#include <string.h>

#include "runtime/grammar/js.h"

/* ---- atoms to states ---- */

static struct gr_node *any_text(struct gr_build *b)
{
    return gr_node_repeat(b, gr_node_any(b), 0, GR_MANY);
}

static void emit(struct js *j, struct gr_nfa *a, const struct gr_node *n, uint32_t tag, bool search,
                 struct gr_list *start)
{
    gr_pattern_emit(j->b, a, n, tag, search, start);
}

static void emit_texts(struct js *j, struct gr_nfa *a, const struct js_atom *x, uint32_t tag,
                       struct gr_list *start)
{
    struct gr_word *words = gr_alloc(j->b, x->n_texts * sizeof *words);
    for (uint32_t i = 0; i < x->n_texts; i++)
        words[i] = (struct gr_word){x->texts[i].s, x->texts[i].n, tag};
    uint32_t first = gr_nfa_words(j->b, a, words, x->n_texts);
    GR_PUSH(j->b, start, first);
}

void js_emit_atom(struct js *j, struct gr_nfa *a, const struct js_atom *x, uint32_t tag,
                  struct gr_list *start)
{
    switch (x->kind) {
    case JS_PATTERN: emit(j, a, x->tree, tag, x->search, start); break;
    case JS_STRINGS: emit_texts(j, a, x, tag, start); break;
    default: {
        uint32_t max = x->max == GR_LEN_MANY ? GR_MANY : x->max;
        emit(j, a, gr_node_repeat(j->b, gr_node_any(j->b), x->min, max), tag, false, start);
    }
    }
}

/* ---- formulas ---- */

struct formula {
    const struct js_atoms *v; /* one of these clauses must hold */
    uint32_t n;
    const struct js_atom **atoms; /* atom of tag i + 1 */
    uint32_t n_atoms;
};

static uint32_t tag_of(const struct formula *f, const struct js_atom *a)
{
    uint32_t i = 0;
    while (f->atoms[i] != a) i++;
    return i + 1;
}

static bool has(const uint32_t *tags, uint32_t n, uint32_t tag)
{
    for (uint32_t i = 0; i < n; i++)
        if (tags[i] == tag) return true;
    return false;
}

/* Tag 0 is any text: without it the bytes are not whole characters. */
static uint32_t label_formula(void *user, struct gr_build *b, const uint32_t *tags, uint32_t n)
{
    const struct formula *f = user;
    if (!has(tags, n, 0)) return 0;
    for (uint32_t i = 0; i < f->n; i++) {
        bool all = true;
        for (uint32_t k = 0; k < f->v[i].n && all; k++) {
            const struct js_atom *a = f->v[i].v[k];
            all = has(tags, n, tag_of(f, a)) != a->opposite;
            gr_work(b, 1);
        }
        if (all) return 1;
    }
    return 0;
}

static uint32_t build(struct js *j, const struct js_atoms *clauses, uint32_t n, uint32_t *out_n)
{
    struct formula f = {clauses, n, NULL, 0};
    struct js_atoms atoms = {0};
    struct gr_nfa a = {0};
    struct gr_list start = {0};
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < clauses[i].n; k++) {
            bool known = false;
            for (uint32_t m = 0; m < atoms.n; m++) known |= atoms.v[m] == clauses[i].v[k];
            if (!known) GR_PUSH(j->b, &atoms, clauses[i].v[k]);
        }
    }
    f.atoms = atoms.v, f.n_atoms = atoms.n;
    emit(j, &a, any_text(j->b), 0, false, &start);
    for (uint32_t i = 0; i < atoms.n; i++) js_emit_atom(j, &a, atoms.v[i], i + 1, &start);
    return gr_fsa_build(j->b, &a, start.v, start.n, label_formula, &f, out_n);
}

/* ---- lengths that remain ---- */

/* The ways on from a state: each different target once, with whether a character begins. Bytes that
 * are not continuations begin one; in a state either kind alone is possible. */
struct ways {
    const struct gr_grammar *g;
    uint8_t begins[256]; /* by column */
    uint32_t n_cols;
};

static struct ways ways_of(const struct gr_grammar *g, uint32_t start)
{
    struct ways w = {.g = g};
    const uint8_t *class_of = g->classes[g->states[start].classes];
    for (unsigned c = 256; c-- > 0;) w.begins[class_of[c]] = (c & 0xc0) != 0x80;
    w.n_cols = class_of[255] + 1u;
    return w;
}

static void shortest(struct js *j, struct gr_string *s)
{
    const struct gr_grammar *g = j->b->g;
    struct ways w = ways_of(g, s->start);
    for (uint32_t i = 0; i < s->n; i++)
        s->shortest[i] = g->states[s->start + i].label ? 0 : GR_LEN_MANY;
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t i = s->n; i-- > 0;) {
            const uint32_t *row = g->trans + g->states[s->start + i].row;
            for (unsigned c = 0; c < w.n_cols; c++) {
                uint32_t len = row[c] ? s->shortest[row[c] - s->start] : GR_LEN_MANY;
                if (len < GR_LEN_MANY) len += w.begins[c];
                if (len < s->shortest[i]) s->shortest[i] = len, changed = true;
            }
        }
        gr_work(j->b, (uint64_t)s->n * w.n_cols / 4);
    }
}

/* States on or before a cycle have no longest text; the others are done from the ends on. Every
 * state leads to an accepting one. */
static void longest(struct js *j, struct gr_string *s)
{
    const struct gr_grammar *g = j->b->g;
    struct ways w = ways_of(g, s->start);
    uint8_t *done = gr_alloc(j->b, s->n + 1);
    for (uint32_t i = 0; i < s->n; i++) s->longest[i] = GR_LEN_MANY;
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t i = s->n; i-- > 0;) {
            const uint32_t *row = g->trans + g->states[s->start + i].row;
            uint32_t most = 0;
            bool known = !done[i];
            for (unsigned c = 0; c < w.n_cols && known; c++) {
                if (!row[c]) continue;
                known = done[row[c] - s->start];
                uint32_t len = s->longest[row[c] - s->start] + w.begins[c];
                if (len > most) most = len;
            }
            if (!known) continue;
            done[i] = 1, changed = true;
            s->longest[i] = most < GR_LEN_MANY ? most : GR_LEN_MANY - 1;
        }
        gr_work(j->b, (uint64_t)s->n * w.n_cols / 4);
    }
}

uint32_t js_add_string(struct js *j, uint32_t start, uint32_t n, uint32_t min, uint32_t max)
{
    struct gr_grammar *g = j->b->g;
    struct gr_string s = {.start = start, .n = n, .min_len = min, .max_len = max};
    bool lengths = min || max != GR_LEN_MANY;
    if (n > GR_MAX_STRING_STATES) gr_fail_limit(j->b, "a string's automaton");
    gr_work(j->b, g->n_strings / 2 + 1);
    s.first = g->n_strings;
    for (uint32_t i = 0; i < g->n_strings; i++) {
        const struct gr_string *x = &g->strings[i];
        if (x->start != start) continue;
        s.first = x->first;
        if (x->min_len == min && x->max_len == max) return i;
        if (x->shortest) s.shortest = x->shortest, s.longest = x->longest;
    }
    if (lengths && !s.shortest) {
        s.shortest = gr_alloc(j->b, n * sizeof *s.shortest);
        s.longest = gr_alloc(j->b, n * sizeof *s.longest);
        shortest(j, &s);
        longest(j, &s);
    }
    g->strings = gr_grow(j->b, g->strings, g->n_strings, &g->cap_strings, sizeof *g->strings);
    g->strings[g->n_strings] = s;
    return g->n_strings++;
}

/* ---- strings of a place ---- */

/* What the same atoms made before. */
static const struct js_made *find_made(struct js *j, const struct js_atoms *all)
{
    for (uint32_t i = 0; i < j->texts.n; i++) {
        const struct js_made *m = &j->texts.v[i];
        gr_work(j->b, 1);
        if (m->n == all->n && (!all->n || !memcmp(m->atoms, all->v, all->n * sizeof *all->v)))
            return m;
    }
    return NULL;
}

static void add(struct js *j, const struct js_atoms *clauses, uint32_t n, uint32_t min,
                uint32_t max, struct gr_list *out)
{
    struct js_atoms all = {0};
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < clauses[i].n; k++) GR_PUSH(j->b, &all, clauses[i].v[k]);
        if (i + 1 < n) GR_PUSH(j->b, &all, NULL);
    }
    const struct js_made *m = find_made(j, &all);
    uint32_t start = m ? m->number : 0, states = 0;
    if (!m) {
        start = build(j, clauses, n, &states);
        struct js_made made = {all.v, all.n, start};
        GR_PUSH(j->b, &j->texts, made);
        if (start) js_add_string(j, start, states, 0, GR_LEN_MANY);
    }
    if (!start || min > max) return;
    for (uint32_t i = 0; i < j->b->g->n_strings && !states; i++)
        if (j->b->g->strings[i].start == start) states = j->b->g->strings[i].n;
    uint32_t s = js_add_string(j, start, states, min, max);
    const struct gr_string *str = &j->b->g->strings[s];
    bool lengths = min || max != GR_LEN_MANY;
    if (lengths &&
        (str->shortest[0] > max || (str->longest[0] != GR_LEN_MANY && str->longest[0] < min)))
        return;
    for (uint32_t i = 0; i < out->n; i++)
        if (out->v[i] == s) return;
    GR_PUSH(j->b, out, s);
}

void js_make_strings(struct js *j, const struct js_clauses *c, struct gr_value *v)
{
    struct {
        struct js_atoms *v;
        uint32_t n, cap;
    } free_ones = {0};
    struct gr_list out = {0};
    bool any = false;
    for (uint32_t i = 0; i < c->n; i++) {
        if (!(c->v[i].types & JS_STRING)) continue;
        struct js_atoms a = js_atoms_of(j, &c->v[i], JS_PATTERN, JS_STRINGS), rest = {0};
        uint32_t min = 0, max = GR_LEN_MANY;
        for (uint32_t k = 0; k < a.n; k++) {
            if (a.v[k]->kind != JS_LENGTH) {
                GR_PUSH(j->b, &rest, a.v[k]);
                continue;
            }
            if (a.v[k]->min > min) min = a.v[k]->min;
            if (a.v[k]->max < max) max = a.v[k]->max;
        }
        if (min || max != GR_LEN_MANY)
            add(j, &rest, 1, min, max, &out);
        else
            GR_PUSH(j->b, &free_ones, rest);
        any |= !a.n;
    }
    if (any) { /* everything else is part of it */
        struct js_atoms nothing = {0};
        out.n = 0;
        add(j, &nothing, 1, 0, GR_LEN_MANY, &out);
    } else if (free_ones.n) {
        add(j, free_ones.v, free_ones.n, 0, GR_LEN_MANY, &out);
    }
    v->strings = out.v, v->n_strings = out.n;
}
