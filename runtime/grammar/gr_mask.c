// SPDX-License-Identifier: Apache-2.0
/*
 * Masks: one walk over the vocabulary's trie for each configuration.
 *
 * Most of a vocabulary is words, and most of an answer is inside strings. So a vocabulary knows
 * which tokens are made of letters, of marks, of plain characters (gr_vocab.h), and a string's
 * automaton how many of those may follow in a state (js_room.c). Where that is enough for all
 * tokens, or for all below a node of the trie, they are a copy of bits or a list, and only the
 * other tokens are walked.
 *
 * During a walk an automaton alone is stepped as a number; configurations are made only where
 * something else happens (a quote, a call, an end), and dropped on the way back. The masks of the
 * last sets are kept: inside a string the set stays the same.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/grammar/gr_vocab.h"

enum { KEPT = 8, MAX_SEPARATE = 24, KEPT_SET = 32 };

/* ---- walks ---- */

enum how { A_SET, A_STRING, A_KEY, A_RULE };

/* What the text up to a node of the trie has led to. */
struct level {
    enum how how;
    uint32_t end;     /* of its nodes */
    uint32_t whole;   /* where in the path the last whole character ends */
    uint32_t at, n;   /* A_SET: in s->levels */
    uint32_t where, parent, state, count; /* else */
    struct gr_mark mark;
    uint32_t n_levels;
};

struct walk {
    struct gr_state *s;
    const struct gr_vocab *v;
    uint64_t *bits;
    struct level path[TRIE_MAX_DEPTH + 4]; /* and two roots */
};

/* A configuration as a number, where it is an automaton alone. */
static bool simplify(const struct gr_state *s, uint32_t c, struct level *l)
{
    const struct gr_config *x = &s->configs[c];
    enum gr_where kind = gr_kind_of(x->where);
    l->where = x->where, l->parent = x->parent;
    if (kind == GR_AT_RULE) {
        l->how = A_RULE, l->state = gr_number_of(x->where);
        return x->data == 0;
    }
    if (kind != GR_AT_STRING && kind != GR_AT_KEY) return false;
    struct gr_text_at t = gr_text_unpack(x->data);
    l->how = kind == GR_AT_STRING ? A_STRING : A_KEY;
    l->state = t.state, l->count = t.count;
    return t.phase == GR_TEXT_PLAIN;
}

static uint32_t config_of(struct gr_state *s, const struct level *l)
{
    struct gr_text_at t = {.state = l->state, .count = l->count};
    if (l->how == A_RULE)
        return gr_config_get(s, gr_where_of(GR_AT_RULE, l->state), 0, l->parent);
    return gr_config_get(s, l->where, gr_text_pack(t), l->parent);
}

/* By configurations. */
static bool step_set(struct walk *w, const struct level *from, uint8_t byte, struct level *to)
{
    struct gr_state *s = w->s;
    struct gr_list set = {s->levels.v + from->at, from->n, from->n}, *out = &s->scratch[0];
    uint32_t one;
    if (from->how != A_SET) {
        one = config_of(s, from);
        if (one == GR_NONE) return false;
        set = (struct gr_list){&one, 1, 1};
    }
    out->n = 0;
    s->text[s->n_text] = byte;
    gr_step(s, &set, byte, out);
    if (s->failed || !out->n) return false;
    if (out->n == 1 && simplify(s, out->v[0], to)) return true;
    to->how = A_SET, to->at = s->levels.n, to->n = out->n;
    for (uint32_t i = 0; i < out->n; i++)
        if (!gr_list_push(s, &s->levels, out->v[i])) return false;
    return true;
}

static bool length_fits(const struct gr_string *str, uint32_t state, uint32_t count)
{
    return count + str->shortest[state] <= str->max_len &&
           (str->longest[state] == GR_LEN_MANY || count + str->longest[state] >= str->min_len);
}

static bool may_call(const struct gr_grammar *g, uint32_t call, uint8_t byte)
{
    uint32_t callee = g->calls[call].callee, n = callee & ~GR_CALL_JSON;
    return gr_bit(callee & GR_CALL_JSON ? g->values[n].first : g->rules[n].first, byte);
}

/* By numbers where that is possible. */
static bool step(struct walk *w, const struct level *from, uint8_t byte, struct level *to)
{
    const struct gr_state *s = w->s;
    const struct gr_grammar *g = s->g;
    if (from->how == A_RULE) {
        const struct gr_fsa_state *f = &g->states[from->state];
        bool alone = !f->label || from->parent == GR_END;
        for (uint32_t i = 0; i < f->n_calls && alone; i++) alone = !may_call(g, f->calls + i, byte);
        if (!alone) return step_set(w, from, byte, to);
        *to = *from;
        return (to->state = gr_next(g, from->state, byte)) != 0;
    }
    if (from->how == A_SET || byte < 0x20 || byte == '"' || byte == '\\')
        return step_set(w, from, byte, to);
    const struct gr_object *o = &g->objects[gr_number_of(from->where)];
    const struct gr_string *str =
        &g->strings[from->how == A_KEY ? o->key : gr_number_of(from->where)];
    uint32_t next = gr_next(g, str->start + from->state, byte);
    if (!next) return false;
    *to = *from;
    to->state = next -= str->start;
    if (from->how == A_KEY) {
        to->count += o->distinct;
        w->s->text[s->n_text] = byte;
        return gr_key_alive(w->s, o, from->parent, next, s->n_text + 1, to->count);
    }
    if (!str->shortest) return true;
    to->count += (byte & 0xc0) != 0x80;
    return length_fits(str, next, to->count);
}

static void leave(struct walk *w, const struct level *l)
{
    gr_mark_drop(w->s, l->mark);
    w->s->levels.n = l->n_levels;
}

/* ---- tokens of a slice, all at once ---- */

/* How many characters of a slice may follow, whichever they are; GR_ROOM_ALL: any number. */
static uint32_t room_of(const struct gr_state *s, const struct level *l, enum gr_slice which)
{
    const struct gr_grammar *g = s->g;
    uint32_t number = gr_number_of(l->where);
    if (l->how == A_KEY) {
        const struct gr_object *o = &g->objects[number];
        const struct gr_string *key = &g->strings[o->key];
        if (!o->room || !o->room[which * key->n + l->state]) return 0;
        return gr_key_open(s, o, l->parent) ? o->room[which * key->n + l->state] : 0;
    }
    if (l->how != A_STRING || !g->strings[number].room) return 0;
    const struct gr_string *str = &g->strings[number];
    uint32_t room = str->room[which * str->n + l->state];
    if (!room || !str->shortest) return room;
    /* Where there is no end to them there is no longest text either. */
    bool endless = room == GR_ROOM_ALL;
    uint32_t spare = endless ? str->spare : str->far;
    if (!endless && l->count < str->min_len) return 0;
    if (str->max_len == GR_LEN_MANY) return room;
    if (l->count + spare >= str->max_len) return 0;
    uint32_t left = str->max_len - l->count - spare;
    return left < room ? left : room;
}

static void walk_nodes(struct walk *w, const struct gr_nodes *nodes, uint32_t from, uint32_t end,
                       const struct level *root, uint32_t base);
static void walk_automaton(struct walk *w, const struct gr_nodes *nodes, uint32_t from,
                           uint32_t end, const struct level *root, uint32_t base);

static void walk_from(struct walk *w, const struct gr_nodes *nodes, uint32_t from, uint32_t end,
                      const struct level *root, uint32_t base)
{
    if (root->how != A_SET)
        walk_automaton(w, nodes, from, end, root, base);
    else
        walk_nodes(w, nodes, from, end, root, base);
}

/* All that is below the k-th large node of the whole trie, where a slice has room. l: behind the
 * node, whole: behind the last whole character. The levels from base on are free. */
static bool take_below(struct walk *w, uint32_t k, const struct level *l,
                       const struct level *whole, uint32_t base)
{
    for (unsigned i = GR_SLICES; i-- > 0;) {
        const struct gr_slice_of *slice = &w->v->slice[i];
        const struct gr_below *b = &slice->below[k];
        uint32_t room = b->chars > GR_ROOM_MAX ? 0 : room_of(w->s, whole, (enum gr_slice)i);
        if (!room || room < b->chars) continue;
        for (uint32_t t = 0; t < b->n_tokens; t++)
            gr_set_tokens(w->v, slice->tokens[b->tokens + t], w->bits);
        if (b->n_rest) walk_from(w, &slice->rest, b->rest, b->rest + b->n_rest, l, base);
        return true;
    }
    return false;
}

/* ---- walks over nodes ---- */

/* The nodes from..end, which are one node's children or the whole; levels from base on are free. */
static void walk_nodes(struct walk *w, const struct gr_nodes *nodes, uint32_t from, uint32_t end,
                       const struct level *root, uint32_t base)
{
    struct gr_state *s = w->s;
    struct level *path = w->path + base;
    uint32_t depth = 0, size;
    path[0] = *root;
    path[0].end = end, path[0].whole = 0;
    for (uint32_t i = from; i < end && !s->failed; i += size) {
        const struct trie_node *x = &nodes->v[i];
        while (path[depth].end == i) leave(w, &path[depth--]);
        struct level *to = &path[depth + 1];
        struct gr_mark mark = gr_mark_get(s);
        uint32_t n_levels = s->levels.n;
        size = trie_size(x);
        bool fits = s->n_text < s->g->o.max_text_bytes && step(w, &path[depth], trie_byte(x), to);
        to->mark = mark, to->n_levels = n_levels;
        if (fits) gr_set_tokens(w->v, x->token, w->bits);
        if (!fits || size == 1) {
            leave(w, to);
            continue;
        }
        s->text[s->n_text++] = trie_byte(x);
        if (size >= GR_LARGE && nodes == &w->v->all) {
            uint32_t k = gr_large_number(w->v, i);
            to->whole = w->v->slice[GR_PLAIN].below[k].inside ? path[depth].whole : depth + 1;
            if (take_below(w, k, to, &path[to->whole], base + depth + 2)) {
                leave(w, to);
                continue;
            }
        }
        to->end = i + size;
        depth++;
        size = 1;
    }
    while (depth) leave(w, &path[depth--]);
}

/* Is there more to this byte than the automaton's next state? */
static bool needs_config(const struct gr_grammar *g, const struct level *root, uint32_t state,
                         uint8_t byte)
{
    if (root->how != A_RULE) return byte < 0x20 || byte == '"' || byte == '\\';
    const struct gr_fsa_state *f = &g->states[state];
    if (f->label && root->parent != GR_END) return true;
    for (uint32_t i = 0; i < f->n_calls; i++)
        if (may_call(g, f->calls + i, byte)) return true;
    return false;
}

/* An automaton alone, in a loop of its own: most nodes are visited here. */
static void walk_automaton(struct walk *w, const struct gr_nodes *nodes, uint32_t from,
                           uint32_t end, const struct level *root, uint32_t base)
{
    struct gr_state *s = w->s;
    const struct gr_grammar *g = s->g;
    const struct gr_object *o = root->how == A_KEY ? &g->objects[gr_number_of(root->where)] : NULL;
    const struct gr_string *str = o                       ? &g->strings[o->key]
                                  : root->how == A_STRING ? &g->strings[gr_number_of(root->where)]
                                                          : NULL;
    bool key_open = o && gr_key_open(s, o, root->parent);
    uint32_t start = str ? str->start : 0, depth = 0, before = s->n_text;
    const uint8_t *class_of = g->classes[g->states[start + root->state].classes];
    bool may_take = nodes == &w->v->all && (o ? o->room : str ? str->room : NULL);
    struct {
        uint32_t state, count, end, whole;
    } path[TRIE_MAX_DEPTH + 2] = {{start + root->state, root->count, end, 0}};
    for (uint32_t i = from, size; i < end && !s->failed; i += size) {
        const struct trie_node *x = &nodes->v[i];
        while (path[depth].end == i) depth--;
        uint32_t state = path[depth].state, count = path[depth].count;
        uint8_t byte = trie_byte(x);
        struct level l = *root;
        size = trie_size(x);
        if (needs_config(g, root, state, byte)) {
            l.state = state - start, l.count = count;
            s->n_text = before + depth;
            walk_nodes(w, nodes, i, i + size, &l, base);
            s->n_text = before;
            continue;
        }
        uint32_t next = g->trans[g->states[state].row + class_of[byte]];
        if (!next || before + depth >= g->o.max_text_bytes) continue;
        if (o) {
            count += o->distinct;
            s->text[before + depth] = byte;
            if (!(key_open && o->open[next - start]) &&
                !gr_key_alive(s, o, root->parent, next - start, before + depth + 1, count))
                continue;
        } else if (str && str->shortest) {
            count += (byte & 0xc0) != 0x80;
            if (!length_fits(str, next - start, count)) continue;
        }
        gr_set_tokens(w->v, x->token, w->bits);
        if (size == 1) continue;
        s->text[before + depth] = byte;
        depth++;
        path[depth].state = next, path[depth].count = count, path[depth].end = i + size;
        if (may_take && size >= GR_LARGE) {
            uint32_t k = gr_large_number(w->v, i);
            bool inside = w->v->slice[GR_PLAIN].below[k].inside;
            uint32_t at = path[depth].whole = inside ? path[depth - 1].whole : depth;
            struct level whole = *root;
            whole.state = path[at].state - start, whole.count = path[at].count;
            l.state = next - start, l.count = count;
            s->n_text = before + depth;
            bool taken = take_below(w, k, &l, &whole, base);
            s->n_text = before;
            if (taken) {
                depth--;
                continue;
            }
        }
        size = 1;
    }
}

/* The bits of the plain tokens that may follow, where no other plain ones do. */
static const uint64_t *whole_plain(const struct walk *w, const struct level *root)
{
    if (root->how != A_STRING && root->how != A_KEY) return NULL;
    uint32_t room = room_of(w->s, root, GR_PLAIN);
    /* Of an endless room that a length cuts, longer tokens fit nowhere: unless the text may need
     * more characters behind some of them than behind others. */
    const struct gr_string *str = &w->s->g->strings[gr_number_of(root->where)];
    bool exact = room >= GR_ROOM_MAX;
    if (!exact && room && root->how == A_STRING)
        exact = !str->spare && str->room[GR_PLAIN * str->n + root->state] == GR_ROOM_ALL;
    if (!exact) return NULL;
    if (room > GR_ROOM_MAX) room = GR_ROOM_MAX;
    return w->v->plain + (size_t)room * w->v->n_words;
}

static void walk_config(struct walk *w, uint32_t c)
{
    struct gr_state *s = w->s;
    struct level root = {.how = A_SET};
    const struct gr_nodes *nodes = &w->v->all;
    if (!simplify(s, c, &root)) {
        root.how = A_SET, root.at = s->levels.n, root.n = 1;
        if (!gr_list_push(s, &s->levels, c)) return;
    }
    const uint64_t *plain = whole_plain(w, &root);
    for (uint32_t k = 0; plain && k < w->v->n_words; k++) w->bits[k] |= plain[k];
    if (plain) nodes = &w->v->slice[GR_PLAIN].rest;
    walk_from(w, nodes, 0, nodes->n, &root, 0);
    s->levels.n = 0;
}

/* Many configurations at once. Where one of them takes every plain token, only the others of the
 * vocabulary are walked. */
static void walk_many(struct walk *w)
{
    struct gr_state *s = w->s;
    struct level root = {.how = A_SET, .n = s->now.n}, one;
    const uint64_t *bits = w->v->plain + (size_t)GR_ROOM_MAX * w->v->n_words;
    bool all = false;
    for (uint32_t i = 0; i < s->now.n; i++) {
        if (!gr_list_push(s, &s->levels, s->now.v[i])) return;
        all = all || (simplify(s, s->now.v[i], &one) && room_of(s, &one, GR_PLAIN) >= GR_ROOM_MAX);
    }
    for (uint32_t k = 0; all && k < w->v->n_words; k++) w->bits[k] |= bits[k];
    const struct gr_nodes *nodes = all ? &w->v->slice[GR_PLAIN].rest : &w->v->all;
    walk_nodes(w, nodes, 0, nodes->n, &root, 0);
    s->levels.n = 0;
}

/* ---- masks that were made before ---- */

struct gr_masks {
    struct {
        uint32_t set[KEPT_SET], n;
        uint64_t *bits;
        const struct gr_vocab *v;
        uint64_t age;
    } kept[KEPT];
    uint64_t age;
};

void gr_masks_destroy(struct gr_masks *m)
{
    for (int i = 0; m && i < KEPT; i++) free(m->kept[i].bits);
    free(m);
}

static bool find_kept(struct gr_state *s, const struct gr_vocab *v, uint64_t *bits)
{
    struct gr_masks *m = s->masks;
    size_t bytes = s->now.n * sizeof *s->now.v;
    for (int i = 0; m && i < KEPT; i++) {
        if (m->kept[i].v != v || m->kept[i].n != s->now.n || !m->kept[i].bits ||
            memcmp(m->kept[i].set, s->now.v, bytes))
            continue;
        memcpy(bits, m->kept[i].bits, v->n_words * sizeof *bits);
        m->kept[i].age = ++m->age;
        return true;
    }
    return false;
}

/* Nothing is lost where there is no memory. */
static void keep(struct gr_state *s, const struct gr_vocab *v, const uint64_t *bits)
{
    int oldest = 0;
    if (s->now.n > KEPT_SET || s->g->needs_text) return;
    if (!s->masks && !(s->masks = calloc(1, sizeof *s->masks))) return;
    struct gr_masks *m = s->masks;
    for (int i = 1; i < KEPT; i++)
        if (m->kept[i].age < m->kept[oldest].age) oldest = i;
    if (m->kept[oldest].v != v) {
        free(m->kept[oldest].bits);
        m->kept[oldest].bits = malloc((v->n_words + 1) * sizeof *bits);
        m->kept[oldest].v = m->kept[oldest].bits ? v : NULL;
    }
    if (!m->kept[oldest].bits) return;
    memcpy(m->kept[oldest].bits, bits, v->n_words * sizeof *bits);
    memcpy(m->kept[oldest].set, s->now.v, s->now.n * sizeof *s->now.v);
    m->kept[oldest].n = s->now.n;
    m->kept[oldest].age = ++m->age;
}

bool gr_mask(struct gr_state *s, struct gr_vocab *v, uint64_t *bits)
{
    struct walk *w;
    memset(bits, 0, v->n_words * sizeof *bits);
    if (find_kept(s, v, bits)) return true;
    if (!(w = malloc(sizeof *w))) return false;
    w->s = s, w->v = v, w->bits = bits;
    if (!gr_text_reserve(s, TRIE_MAX_DEPTH + 2)) {
        free(w);
        return false;
    }
    s->failed = false;
    s->levels.n = 0;
    if (s->now.n <= MAX_SEPARATE) {
        for (uint32_t i = 0; i < s->now.n && !s->failed; i++) walk_config(w, s->now.v[i]);
    } else {
        walk_many(w);
    }
    free(w);
    bool ok = !s->failed;
    s->failed = false;
    if (ok) keep(s, v, bits);
    return ok;
}
