// SPDX-License-Identifier: Apache-2.0
/*
 * Objects: the automaton of keys, and what the value of each kind of key may be.
 *
 * Keys of one kind have the same name (or none of those that matter) and match the same patterns.
 * "Some member fits" is a wish: each key that could fulfil it may be taken as the one that does.
 */
#include <string.h>

#include "runtime/grammar/js.h"

enum { MAX_NAMES = 4000, MAX_PATTERNS = 60, MAX_FEW = 256, MAX_FEW_BYTES = 256 };

struct names {
    struct js_text *v;
    uint32_t n, cap;
    uint32_t *index, index_cap; /* hash: number + 1 */
};

struct keys {
    struct js *j;
    const struct js_clause *c;
    struct names names;
    struct {
        struct gr_node **v;
        uint32_t n, cap;
    } patterns;
    struct js_atoms wishes;
    /* Keys must fit one clause of each of these; the last ones are of wishes about names. */
    struct {
        struct js_clauses **v;
        uint32_t n, cap;
    } of_names;
    uint32_t n_wanted; /* of of_names, those that every key must fit */
    struct js_atoms texts; /* atoms about keys: tags behind names and patterns */
    struct {
        struct gr_key_class *v;
        uint32_t n, cap;
    } classes;
    struct {
        uint64_t *v;
        uint32_t n, cap;
    } signs; /* of each class: patterns that match, wishes by name */
    struct {
        bool *v;
        uint32_t n, cap;
    } never; /* of each class: certainly no value, so no key is of it */
};

static uint32_t text_hash(struct js_text t)
{
    uint64_t h = t.n;
    for (uint32_t i = 0; i < t.n; i++) h = (h ^ (uint8_t)t.s[i]) * 0x100000001b3u;
    return (uint32_t)gr_mix(h);
}

static uint32_t name_slot(const struct names *n, struct js_text t)
{
    uint32_t at = text_hash(t) & (n->index_cap - 1);
    while (n->index[at] && !js_same(n->v[n->index[at] - 1], t)) at = (at + 1) & (n->index_cap - 1);
    return at;
}

static void add_name(struct js *j, struct names *n, struct js_text t)
{
    if (n->n * 2 >= n->index_cap) {
        n->index_cap = n->index_cap ? 2 * n->index_cap : 16;
        n->index = gr_alloc(j->b, n->index_cap * sizeof *n->index);
        for (uint32_t i = 0; i < n->n; i++) n->index[name_slot(n, n->v[i])] = i + 1;
    }
    uint32_t at = name_slot(n, t);
    gr_work(j->b, 2);
    if (n->index[at]) return;
    if (n->n >= MAX_NAMES) gr_fail_limit(j->b, "an object with more than 4000 names");
    GR_PUSH(j->b, n, t);
    n->index[at] = n->n;
}

/* Trees are the same where their atoms are the same. */
static uint32_t pattern_number(struct keys *k, struct gr_node *tree)
{
    for (uint32_t i = 0; i < k->patterns.n; i++)
        if (k->patterns.v[i] == tree) return i;
    if (k->patterns.n >= MAX_PATTERNS) gr_fail_limit(k->j->b, "an object with many patterns");
    GR_PUSH(k->j->b, &k->patterns, tree);
    return k->patterns.n - 1;
}

static void add_of_names(struct keys *k, struct js_literal fits)
{
    struct js_literals one = {&fits, 1, 1};
    struct js_clauses *c = js_clauses_all(k->j, &one);
    GR_PUSH(k->j->b, &k->of_names, c);
    for (uint32_t i = 0; i < c->n; i++) {
        struct js_atoms a = js_atoms_of(k->j, &c->v[i], JS_PATTERN, JS_STRINGS);
        for (uint32_t m = 0; m < a.n; m++) {
            bool known = false;
            for (uint32_t t = 0; t < k->texts.n; t++) known |= k->texts.v[t] == a.v[m];
            if (!known) GR_PUSH(k->j->b, &k->texts, a.v[m]);
        }
    }
}

static bool is_wish(const struct js_atom *a)
{
    return a->kind == JS_SOME_MEMBERS || a->kind == JS_SOME_REST || a->kind == JS_SOME_NAME;
}

static void collect(struct keys *k)
{
    const struct js_atoms *atoms = &k->c->atoms;
    for (uint32_t i = 0; i < atoms->n; i++) {
        const struct js_atom *a = atoms->v[i];
        if (a->kind < JS_MEMBER) continue;
        for (uint32_t m = 0; m < a->n_texts; m++) add_name(k->j, &k->names, a->texts[m]);
        if (a->tree) pattern_number(k, a->tree);
        for (uint32_t m = 0; m < a->n_trees; m++) pattern_number(k, a->trees[m]);
        if (a->kind == JS_NAMES) add_of_names(k, a->fits);
        if (is_wish(a)) GR_PUSH(k->j->b, &k->wishes, a);
    }
    k->n_wanted = k->of_names.n;
    for (uint32_t i = 0; i < k->wishes.n; i++)
        if (k->wishes.v[i]->kind == JS_SOME_NAME) add_of_names(k, k->wishes.v[i]->fits);
    if (k->wishes.n > GR_MAX_WISHES)
        js_fail(k->j, k->wishes.v[0]->at, k->wishes.v[0]->keyword,
                "more than three conditions that some member must fulfil are not supported");
}

/* ---- kinds of keys ---- */

static bool has_tag(const uint32_t *tags, uint32_t n, uint32_t tag)
{
    for (uint32_t i = 0; i < n; i++)
        if (tags[i] == tag) return true;
    return false;
}

/* Tags: 0 any text, 1.. names, then patterns, then texts. */
static bool name_fits(const struct keys *k, const struct js_clauses *c, const uint32_t *tags,
                      uint32_t n)
{
    uint32_t first = 1 + k->names.n + k->patterns.n;
    for (uint32_t i = 0; i < c->n; i++) {
        const struct js_clause *x = &c->v[i];
        bool all = x->types & JS_STRING;
        for (uint32_t m = 0; m < x->atoms.n && all; m++) {
            const struct js_atom *a = x->atoms.v[m];
            uint32_t t = 0;
            if (a->kind < JS_PATTERN || a->kind > JS_STRINGS) continue;
            while (k->texts.v[t] != a) t++;
            all = has_tag(tags, n, first + t) != a->opposite;
        }
        if (all) return true;
    }
    return false;
}

static bool excluded(const struct keys *k, const struct js_atom *a, uint32_t name, uint64_t sign)
{
    for (uint32_t i = 0; i < a->n_texts; i++)
        if (name != GR_NO_NAME && js_same(a->texts[i], k->names.v[name])) return true;
    for (uint32_t i = 0; i < a->n_trees; i++)
        for (uint32_t p = 0; p < k->patterns.n; p++)
            if (k->patterns.v[p] == a->trees[i] && sign >> p & 1) return true;
    return false;
}

static bool matches(const struct keys *k, const struct js_atom *a, uint64_t sign)
{
    for (uint32_t p = 0; p < k->patterns.n; p++)
        if (k->patterns.v[p] == a->tree) return sign >> p & 1;
    return false;
}

/* The atom says something about the values of such keys. */
static bool concerns(const struct keys *k, const struct js_atom *a, uint32_t name, uint64_t sign)
{
    switch (a->kind) {
    case JS_MEMBER: return name != GR_NO_NAME && js_same(a->texts[0], k->names.v[name]);
    case JS_MEMBERS:
    case JS_SOME_MEMBERS: return matches(k, a, sign);
    case JS_REST:
    case JS_SOME_REST: return !excluded(k, a, name, sign);
    default: return false;
    }
}

static void push_literal(struct js *j, struct js_literals *l, struct js_literal x)
{
    GR_PUSH(j->b, l, x);
}

static uint32_t make_class(struct keys *k, uint32_t name, uint64_t sign, uint32_t by_name)
{
    struct gr_key_class c = {.name = name};
    struct js_literals all = {0};
    for (uint32_t i = 0; i < k->c->atoms.n; i++) {
        const struct js_atom *a = k->c->atoms.v[i];
        if (!is_wish(a) && concerns(k, a, name, sign)) push_literal(k->j, &all, a->fits);
        gr_work(k->j->b, 1 + a->n_texts / 4);
    }
    for (uint32_t w = 0; w < k->wishes.n; w++)
        if ((by_name >> w & 1) || concerns(k, k->wishes.v[w], name, sign)) c.wants |= 1u << w;
    c.values = gr_alloc(k->j->b, sizeof *c.values << GR_MAX_WISHES);
    uint32_t at = 0;
    for (uint32_t set = 0; set < 1u << GR_MAX_WISHES; set++) {
        struct js_literals l = {0};
        if (set & ~c.wants) continue;
        for (uint32_t i = 0; i < all.n; i++) push_literal(k->j, &l, all.v[i]);
        for (uint32_t w = 0; w < k->wishes.n; w++)
            if ((set >> w & 1) && k->wishes.v[w]->kind != JS_SOME_NAME)
                push_literal(k->j, &l, k->wishes.v[w]->fits);
        c.values[at++] = js_node(k->j, &l);
    }
    bool never = name == GR_NO_NAME && !c.wants &&
                 js_is_empty(k->j, js_clauses_all(k->j, &all), 0);
    GR_PUSH(k->j->b, &k->classes, c);
    GR_PUSH(k->j->b, &k->signs, sign << GR_MAX_WISHES | by_name);
    GR_PUSH(k->j->b, &k->never, never);
    return never ? 0 : k->classes.n;
}

static uint32_t label_key(void *user, struct gr_build *b, const uint32_t *tags, uint32_t n)
{
    struct keys *k = user;
    uint64_t sign = 0;
    uint32_t name = GR_NO_NAME, by_name = 0, at = 0;
    if (!has_tag(tags, n, 0)) return 0;
    for (uint32_t i = 0; i < n; i++) {
        if (tags[i] >= 1 && tags[i] <= k->names.n) name = tags[i] - 1;
        if (tags[i] > k->names.n && tags[i] <= k->names.n + k->patterns.n)
            sign |= UINT64_C(1) << (tags[i] - 1 - k->names.n);
    }
    for (uint32_t i = 0; i < k->n_wanted; i++)
        if (!name_fits(k, k->of_names.v[i], tags, n)) return 0;
    for (uint32_t w = 0; w < k->wishes.n; w++)
        if (k->wishes.v[w]->kind == JS_SOME_NAME &&
            name_fits(k, k->of_names.v[k->n_wanted + at++], tags, n))
            by_name |= 1u << w;
    gr_work(b, k->classes.n / 8 + 1);
    for (uint32_t i = 0; i < k->classes.n; i++)
        if (k->classes.v[i].name == name &&
            k->signs.v[i] == (sign << GR_MAX_WISHES | by_name))
            return k->never.v[i] ? 0 : i + 1;
    return make_class(k, name, sign, by_name);
}

static void build_keys(struct keys *k, struct gr_object *o)
{
    struct gr_build *b = k->j->b;
    struct gr_nfa a = {0};
    struct gr_list start = {0};
    uint32_t tag = 0, n;
    gr_pattern_emit(b, &a, gr_node_repeat(b, gr_node_any(b), 0, GR_MANY), tag++, false, &start);
    struct gr_word *words = gr_alloc(b, k->names.n * sizeof *words);
    for (uint32_t i = 0; i < k->names.n; i++)
        words[i] = (struct gr_word){k->names.v[i].s, k->names.v[i].n, tag++};
    uint32_t names = gr_nfa_words(b, &a, words, k->names.n);
    GR_PUSH(b, &start, names);
    for (uint32_t i = 0; i < k->patterns.n; i++)
        gr_pattern_emit(b, &a, k->patterns.v[i], tag++, true, &start);
    for (uint32_t i = 0; i < k->texts.n; i++) js_emit_atom(k->j, &a, k->texts.v[i], tag++, &start);
    uint32_t first = gr_fsa_build(b, &a, start.v, start.n, label_key, k, &n);
    if (!first) { /* no key at all: an automaton that accepts nothing is none */
        o->max = 0;
        k->classes.n = 0;
        first = b->g->strings[o->key].start, n = b->g->strings[o->key].n;
    }
    o->key = js_add_string(k->j, first, n, 0, GR_LEN_MANY);
}

/* ---- few keys ---- */

struct few {
    struct keys *k;
    uint32_t n;
    uint8_t text[MAX_FEW_BYTES];
    struct {
        struct js_text *v;
        uint32_t n, cap;
    } words;
};

/* Every text from the state on that is a key without a name; false: they are many. */
static bool find_few(struct few *f, uint32_t state)
{
    const struct gr_grammar *g = f->k->j->b->g;
    uint32_t label = g->states[state].label;
    gr_work(f->k->j->b, 256);
    if (label && f->k->classes.v[label - 1].name == GR_NO_NAME) {
        if (f->words.n == MAX_FEW) return false;
        char *copy = gr_alloc(f->k->j->b, f->n + 1);
        memcpy(copy, f->text, f->n);
        GR_PUSH(f->k->j->b, &f->words, ((struct js_text){copy, f->n}));
    }
    for (unsigned byte = 0; byte < 256; byte++) {
        uint32_t next = gr_next(g, state, (uint8_t)byte);
        if (!next) continue;
        if (f->n == MAX_FEW_BYTES) return false; /* or it goes round in circles */
        f->text[f->n++] = (uint8_t)byte;
        bool few = find_few(f, next);
        f->n--;
        if (!few) return false;
    }
    return true;
}

/* Keys that must differ and are few: each gets a name, so that what is left of them is known. */
static bool name_few(struct keys *k, const struct gr_object *o)
{
    struct few f = {.k = k};
    if (!k->classes.n || !find_few(&f, k->j->b->g->strings[o->key].start) || !f.words.n)
        return false;
    if (k->names.n + f.words.n > MAX_NAMES) return false;
    for (uint32_t i = 0; i < f.words.n; i++) add_name(k->j, &k->names, f.words.v[i]);
    k->classes.n = k->signs.n = k->never.n = 0;
    return true;
}

/* ---- the frame ---- */

static void sizes(struct keys *k, struct gr_object *o)
{
    o->max = GR_LEN_MANY;
    for (uint32_t i = 0; i < k->c->atoms.n; i++) {
        const struct js_atom *a = k->c->atoms.v[i];
        if (a->kind == JS_SIZE && a->min > o->min) o->min = a->min;
        if (a->kind == JS_SIZE && a->max < o->max) o->max = a->max;
        if (a->kind != JS_REQUIRED) continue;
        uint32_t name = k->names.index[name_slot(&k->names, a->texts[0])] - 1;
        if (!gr_bit(o->required, name)) o->n_required++;
        gr_bit_set(o->required, name);
    }
    o->n_wishes = k->wishes.n;
    o->distinct = o->n_wishes || o->min > o->n_required;
}

static struct gr_object frame(struct keys *k)
{
    struct js *j = k->j;
    struct gr_object o = {.n_names = k->names.n, .n_words = (k->names.n + 63) / 64};
    o.required = gr_alloc(j->b, o.n_words * sizeof *o.required);
    o.allowed = gr_alloc(j->b, o.n_words * sizeof *o.allowed);
    sizes(k, &o);
    /* Any text, for the automaton of an object that can have no key. */
    struct gr_value any = {0};
    struct js_clauses *all = js_clauses_atom(j, JS_STRING, NULL, false);
    js_make_strings(j, all, &any);
    o.key = any.strings[0];
    build_keys(k, &o);
    return o;
}

static struct js_atoms about_objects(struct js *j, const struct js_clause *c)
{
    return js_atoms_of(j, c, JS_MEMBER, JS_SOME_NAME);
}

uint32_t js_make_object(struct js *j, const struct js_clause *c)
{
    struct gr_grammar *g = j->b->g;
    struct keys k = {.j = j, .c = c};
    struct js_atoms mine = about_objects(j, c);
    gr_work(j->b, j->objects.n / 4 + 1);
    for (uint32_t i = 0; i < j->objects.n; i++) {
        const struct js_made *m = &j->objects.v[i];
        if (m->n == mine.n && (!mine.n || !memcmp(m->atoms, mine.v, mine.n * sizeof *mine.v)))
            return m->number;
    }
    collect(&k);
    struct gr_object o = frame(&k);
    if (o.distinct && name_few(&k, &o)) o = frame(&k);
    o.classes = k.classes.v, o.n_classes = k.classes.n;
    g->objects = gr_grow(j->b, g->objects, g->n_objects, &g->cap_objects, sizeof *g->objects);
    g->objects[g->n_objects] = o;
    struct js_made made = {mine.v, mine.n, g->n_objects};
    GR_PUSH(j->b, &j->objects, made);
    return g->n_objects++;
}

/* ---- what is possible ---- */

static bool class_possible(const struct gr_grammar *g, const struct gr_key_class *k, uint32_t wish)
{
    uint32_t at = 0;
    for (uint32_t set = 0; set < 1u << GR_MAX_WISHES; set++) {
        if (set & ~k->wants) continue;
        uint32_t value = k->values[at++];
        if ((wish == GR_NONE || set >> wish & 1) && g->values[value].possible) return true;
    }
    return false;
}

bool js_object_possible(const struct gr_grammar *g, const struct gr_object *o)
{
    uint32_t named = 0, required = 0;
    bool open = false;
    if (o->min > o->max || o->n_required > o->max || (o->n_wishes && !o->max)) return false;
    for (uint32_t i = 0; i < o->n_classes; i++) {
        const struct gr_key_class *k = &o->classes[i];
        if (!class_possible(g, k, GR_NONE)) continue;
        open |= k->name == GR_NO_NAME;
        named += k->name != GR_NO_NAME;
        required += k->name != GR_NO_NAME && gr_bit(o->required, k->name);
    }
    for (uint32_t w = 0; w < o->n_wishes; w++) {
        bool some = false;
        for (uint32_t i = 0; i < o->n_classes && !some; i++)
            some = class_possible(g, &o->classes[i], w);
        if (!some) return false;
    }
    return required >= o->n_required && (open || named >= o->min);
}

/* Which names a state of the keys' automaton leads to: backwards until nothing changes. */
static void find_reach(struct js *j, struct gr_object *o)
{
    const struct gr_grammar *g = j->b->g;
    const struct gr_string *s = &g->strings[o->key];
    uint32_t n_cols = g->classes[g->states[s->start].classes][255] + 1u;
    o->reach = gr_alloc(j->b, (size_t)s->n * o->n_words * sizeof *o->reach);
    o->open = gr_alloc(j->b, s->n);
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t label = o->n_classes ? g->states[s->start + i].label : 0;
        if (!label || !o->classes[label - 1].possible) continue;
        uint32_t name = o->classes[label - 1].name;
        if (name == GR_NO_NAME)
            o->open[i] = 1;
        else
            gr_bit_set(o->reach + (size_t)i * o->n_words, name);
    }
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t i = s->n; i-- > 0;) {
            uint64_t *mine = o->reach + (size_t)i * o->n_words;
            const uint32_t *row = g->trans + g->states[s->start + i].row;
            uint32_t last = 0;
            for (unsigned c = 0; c < n_cols; c++) {
                if (!row[c] || row[c] == last) continue;
                last = row[c];
                uint32_t next = last - s->start;
                const uint64_t *from = o->reach + (size_t)next * o->n_words;
                for (uint32_t w = 0; w < o->n_words; w++) {
                    changed |= (from[w] & ~mine[w]) != 0;
                    mine[w] |= from[w];
                }
                changed |= o->open[next] && !o->open[i];
                o->open[i] |= o->open[next];
            }
        }
        gr_work(j->b, (uint64_t)s->n * (16 + o->n_words));
    }
}

/* Keys without a name from each state on: those behind it, once they are known. What leads round in
 * circles has no end of them. */
static void count_ahead(struct js *j, struct gr_object *o)
{
    const struct gr_grammar *g = j->b->g;
    const struct gr_string *s = &g->strings[o->key];
    const uint8_t *class_of = g->classes[g->states[s->start].classes];
    uint32_t n_cols = class_of[255] + 1u, width[256] = {0};
    uint8_t *done = gr_alloc(j->b, s->n);
    o->ahead = gr_alloc(j->b, s->n * sizeof *o->ahead);
    o->least = GR_AHEAD_MANY;
    for (unsigned c = 0; c < 256; c++) width[class_of[c]]++;
    for (uint32_t i = 0; i < s->n; i++) o->ahead[i] = GR_AHEAD_MANY;
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t i = s->n; i-- > 0;) {
            const uint32_t *row = g->trans + g->states[s->start + i].row;
            uint32_t label = g->states[s->start + i].label;
            bool known = !done[i] && o->open[i];
            uint64_t sum = label && o->classes[label - 1].possible &&
                           o->classes[label - 1].name == GR_NO_NAME;
            for (uint32_t c = 0; c < n_cols && known; c++) {
                if (!row[c] || !o->open[row[c] - s->start]) continue;
                known = done[row[c] - s->start];
                sum += (uint64_t)width[c] * o->ahead[row[c] - s->start];
            }
            if (!known) continue;
            done[i] = 1, changed = true;
            o->ahead[i] = (uint16_t)(sum < GR_AHEAD_MANY ? sum : GR_AHEAD_MANY);
            if (o->ahead[i] < o->least) o->least = o->ahead[i];
        }
        gr_work(j->b, (uint64_t)s->n * n_cols / 16);
    }
}

void js_object_finish(struct js *j, struct gr_object *o)
{
    o->distinct |= j->unique; /* values that are compared have no key twice */
    for (uint32_t i = 0; i < o->n_classes; i++) {
        struct gr_key_class *k = &o->classes[i];
        k->possible = class_possible(j->b->g, k, GR_NONE);
        if (k->possible && k->name != GR_NO_NAME) gr_bit_set(o->allowed, k->name);
    }
    find_reach(j, o);
    const struct gr_string *keys = &j->b->g->strings[o->key];
    if (o->open[0] && o->distinct) count_ahead(j, o);
    if (o->open[0]) o->room = js_find_room(j, keys, o->open);
}
