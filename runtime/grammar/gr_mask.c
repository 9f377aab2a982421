// SPDX-License-Identifier: Apache-2.0
/*
 * Masks: one walk over the vocabulary's trie for each configuration.
 *
 * Most of a vocabulary is words, and most of an answer is inside strings. So a vocabulary knows for
 * each length which tokens are nothing but plain characters (no quote, backslash or control
 * character, whole in UTF-8), and has a second trie of all other tokens: inside a string that any
 * characters may go on, the plain ones are a copy of bits, and only the second trie is walked. The
 * same for letters and digits, with which most of an address or an identifier may go on.
 *
 * During a walk an automaton alone is stepped as a number; configurations are made only where
 * something else happens (a quote, a call, an end), and dropped on the way back. The masks of the
 * last sets are kept: inside a string the set stays the same.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/abi/trie_format.h"
#include "runtime/grammar/gr_internal.h"

enum { SLICE_MAX = 32, KEPT = 8, MAX_SEPARATE = 24, KEPT_SET = 32 };

/* Tokens of plain characters, and of ASCII letters and digits alone. */
enum slice { PLAIN, WORDS, N_SLICES };

struct nodes {
    const struct trie_node *v;
    uint32_t n;
};

struct gr_vocab {
    struct trie_header h;
    struct nodes all;
    const uint32_t *same;
    uint32_t n_words;
    struct slice_of {
        uint64_t *bits; /* [SLICE_MAX + 1][n_words]: its tokens of at most so many characters */
        struct nodes rest;
        struct trie_node *memory;
    } slice[N_SLICES];
};

/* ---- vocabularies ---- */

/* Every node's subtree lies inside its parent's, depths and ids are possible. */
static bool is_sound(const struct gr_vocab *v)
{
    uint32_t end[TRIE_MAX_DEPTH + 1], depth = 0;
    for (uint32_t i = 0; i < v->all.n; i++) {
        const struct trie_node *x = &v->all.v[i];
        uint32_t size = trie_size(x), t = x->token;
        while (depth && end[depth - 1] == i) depth--;
        uint32_t limit = depth ? end[depth - 1] : v->all.n;
        if (!size || size > limit - i || depth >= v->h.max_depth) return false;
        end[depth++] = i + size;
        if (t == TRIE_NO_TOKEN) continue;
        if (!(t & TRIE_SAME)) {
            if (t >= v->h.n_tokens) return false;
            continue;
        }
        t &= ~TRIE_SAME;
        if (t >= v->h.n_same || v->same[t] > v->h.n_same - t - 1) return false;
        for (uint32_t k = 1; k <= v->same[t]; k++)
            if (v->same[t + k] >= v->h.n_tokens) return false;
    }
    return true;
}

static void set_tokens(const struct gr_vocab *v, uint32_t token, uint64_t *bits)
{
    if (token == TRIE_NO_TOKEN) return;
    if (!(token & TRIE_SAME)) {
        gr_bit_set(bits, token);
        return;
    }
    const uint32_t *same = v->same + (token & ~TRIE_SAME);
    for (uint32_t k = 1; k <= same[0]; k++) gr_bit_set(bits, same[k]);
}

/* UTF-8 as far as it matters here: what is left of a character, and its next byte's range. */
struct utf8 {
    uint8_t left, lo, hi;
};

static bool utf8_step(struct utf8 *u, uint8_t c)
{
    if (u->left) {
        if (c < u->lo || c > u->hi) return false;
        *u = (struct utf8){(uint8_t)(u->left - 1), 0x80, 0xbf};
        return true;
    }
    *u = (struct utf8){0, 0x80, 0xbf};
    if (c < 0x80) return c >= 0x20 && c != '"' && c != '\\';
    if (c < 0xc2 || c > 0xf4) return false;
    u->left = c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
    if (c == 0xe0) u->lo = 0xa0;
    if (c == 0xed) u->hi = 0x9f;
    if (c == 0xf0) u->lo = 0x90;
    if (c == 0xf4) u->hi = 0x8f;
    return true;
}

static bool is_word(uint8_t c)
{
    return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
}

/* Sets the slice's tokens' bits in the row of their length; marks the nodes that lead to others. */
static void find_slice(struct gr_vocab *v, enum slice which, uint8_t *needed)
{
    struct path {
        struct utf8 u;
        uint32_t end, chars;
        bool good;
    } path[TRIE_MAX_DEPTH + 1] = {{{0, 0x80, 0xbf}, v->all.n, 0, true}};
    uint32_t at[TRIE_MAX_DEPTH + 1], depth = 0;
    for (uint32_t i = 0; i < v->all.n; i++) {
        const struct trie_node *x = &v->all.v[i];
        while (depth && path[depth].end == i) depth--;
        struct path next = path[depth];
        uint8_t c = trie_byte(x);
        next.chars += (c & 0xc0) != 0x80;
        next.good = next.good && (which == WORDS ? is_word(c) : utf8_step(&next.u, c));
        next.end = i + trie_size(x);
        at[depth] = i;
        path[++depth] = next;
        if (x->token == TRIE_NO_TOKEN) continue;
        if (next.good && !next.u.left && next.chars <= SLICE_MAX)
            set_tokens(v, x->token, v->slice[which].bits + (size_t)next.chars * v->n_words);
        else
            for (uint32_t k = depth; k-- > 0 && !needed[at[k]];) needed[at[k]] = 1;
    }
}

/* The slice's trie: nodes that lead to other tokens, without the slice's ids. */
static void make_rest(struct gr_vocab *v, struct slice_of *s, const uint8_t *needed)
{
    struct trie_node *out = s->memory;
    uint32_t n = 0, depth = 0, end[TRIE_MAX_DEPTH + 1], at[TRIE_MAX_DEPTH + 1];
    const uint64_t *all = s->bits + (size_t)SLICE_MAX * v->n_words;
    for (uint32_t i = 0; i <= v->all.n; i++) {
        while (depth && end[depth - 1] == i) {
            depth--;
            out[at[depth]].size_byte |= (n - at[depth]) << 8;
        }
        if (i == v->all.n) break;
        const struct trie_node *x = &v->all.v[i];
        if (!needed[i]) {
            i += trie_size(x) - 1;
            continue;
        }
        uint32_t t = x->token, id = t;
        if (t != TRIE_NO_TOKEN && t & TRIE_SAME) id = v->same[(t & ~TRIE_SAME) + 1];
        bool known = t != TRIE_NO_TOKEN && gr_bit(all, id);
        end[depth] = i + trie_size(x);
        at[depth++] = n;
        out[n++] = (struct trie_node){trie_byte(x), known ? TRIE_NO_TOKEN : t};
    }
    s->rest = (struct nodes){out, n};
}

static bool derive(struct gr_vocab *v, enum slice which)
{
    struct slice_of *s = &v->slice[which];
    uint8_t *needed = calloc(v->all.n + 1, 1);
    s->bits = calloc((size_t)(SLICE_MAX + 1) * v->n_words + 1, sizeof *s->bits);
    s->memory = calloc(v->all.n + 1, sizeof *s->memory);
    bool ok = needed && s->bits && s->memory;
    if (ok) {
        find_slice(v, which, needed);
        for (size_t i = v->n_words; i < (size_t)(SLICE_MAX + 1) * v->n_words; i++)
            s->bits[i] |= s->bits[i - v->n_words];
        make_rest(v, s, needed);
    }
    free(needed);
    return ok;
}

struct gr_vocab *gr_vocab_create(const void *trie, size_t n_bytes)
{
    struct gr_vocab *v = calloc(1, sizeof *v);
    if (!v) return NULL;
    bool ok = n_bytes >= sizeof v->h;
    if (ok) memcpy(&v->h, trie, sizeof v->h);
    size_t nodes = (size_t)v->h.n_nodes * sizeof(struct trie_node), same = 4 * (size_t)v->h.n_same;
    ok = ok && v->h.magic == TRIE_MAGIC && v->h.max_depth <= TRIE_MAX_DEPTH &&
         v->h.n_nodes < 1u << 24 && v->h.n_tokens < 1u << 30 &&
         n_bytes - sizeof v->h >= nodes && n_bytes - sizeof v->h - nodes >= same;
    if (ok) {
        const uint8_t *p = trie;
        v->all = (struct nodes){(const struct trie_node *)(const void *)(p + sizeof v->h), v->h.n_nodes};
        v->same = (const uint32_t *)(const void *)(p + sizeof v->h + nodes);
        v->n_words = (v->h.n_tokens + 63) / 64;
        ok = is_sound(v) && derive(v, PLAIN) && derive(v, WORDS);
    }
    if (ok) return v;
    gr_vocab_destroy(v);
    return NULL;
}

void gr_vocab_destroy(struct gr_vocab *v)
{
    if (!v) return;
    for (int i = 0; i < N_SLICES; i++) {
        free(v->slice[i].bits);
        free(v->slice[i].memory);
    }
    free(v);
}

uint32_t gr_vocab_tokens(const struct gr_vocab *v) { return v->h.n_tokens; }

/* ---- walks ---- */

enum how { A_SET, A_STRING, A_KEY, A_RULE };

/* What the text up to a node of the trie has led to. */
struct level {
    enum how how;
    uint32_t end;     /* of its nodes */
    uint32_t at, n;   /* A_SET: in s->levels */
    uint32_t where, parent, state, count; /* else */
    struct gr_mark mark;
    uint32_t n_levels;
};

struct walk {
    struct gr_state *s;
    const struct gr_vocab *v;
    uint64_t *bits;
    struct level path[TRIE_MAX_DEPTH + 2];
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
        return gr_key_alive(s, o, from->parent, next);
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

/* The nodes from..to, which are one node's children or the whole. */
static void walk_nodes(struct walk *w, const struct nodes *nodes, uint32_t from, uint32_t to_node,
                       const struct level *root)
{
    struct gr_state *s = w->s;
    uint32_t depth = 0, size;
    w->path[0] = *root;
    w->path[0].end = to_node;
    for (uint32_t i = from; i < to_node && !s->failed; i += size) {
        const struct trie_node *x = &nodes->v[i];
        while (w->path[depth].end == i) leave(w, &w->path[depth--]);
        struct level *to = &w->path[depth + 1];
        struct gr_mark mark = gr_mark_get(s);
        uint32_t n_levels = s->levels.n;
        size = trie_size(x);
        bool fits = s->n_text < s->g->o.max_text_bytes &&
                    step(w, &w->path[depth], trie_byte(x), to);
        to->mark = mark, to->n_levels = n_levels;
        if (fits) set_tokens(w->v, x->token, w->bits);
        if (!fits || size == 1) {
            leave(w, to);
            continue;
        }
        to->end = i + size;
        s->text[s->n_text++] = trie_byte(x);
        depth++;
        size = 1;
    }
    while (depth) leave(w, &w->path[depth--]);
}

/* Is there more to this byte than the automaton's next state? */
static bool needs_config(const struct gr_grammar *g, const struct level *root, uint32_t state,
                         uint8_t byte)
{
    if (root->how == A_STRING) return byte < 0x20 || byte == '"' || byte == '\\';
    const struct gr_fsa_state *f = &g->states[state];
    if (f->label && root->parent != GR_END) return true;
    for (uint32_t i = 0; i < f->n_calls; i++)
        if (may_call(g, f->calls + i, byte)) return true;
    return false;
}

/* An automaton alone, in a loop of its own: most nodes are visited here. */
static void walk_automaton(struct walk *w, const struct nodes *nodes, const struct level *root)
{
    struct gr_state *s = w->s;
    const struct gr_grammar *g = s->g;
    const struct gr_string *str =
        root->how == A_STRING ? &g->strings[gr_number_of(root->where)] : NULL;
    uint32_t base = str ? str->start : 0, depth = 0, before = s->n_text;
    const uint8_t *class_of = g->classes[g->states[base + root->state].classes];
    struct {
        uint32_t state, count, end;
    } path[TRIE_MAX_DEPTH + 2] = {{base + root->state, root->count, nodes->n}};
    for (uint32_t i = 0, size; i < nodes->n && !s->failed; i += size) {
        const struct trie_node *x = &nodes->v[i];
        while (path[depth].end == i) depth--;
        uint32_t state = path[depth].state, count = path[depth].count;
        uint8_t byte = trie_byte(x);
        size = trie_size(x);
        if (needs_config(g, root, state, byte)) {
            struct level l = *root;
            l.state = state - base, l.count = count;
            s->n_text = before + depth;
            walk_nodes(w, nodes, i, i + size, &l);
            s->n_text = before;
            continue;
        }
        uint32_t next = g->trans[g->states[state].row + class_of[byte]];
        if (!next || before + depth >= g->o.max_text_bytes) continue;
        if (str && str->shortest) {
            count += (byte & 0xc0) != 0x80;
            if (!length_fits(str, next - base, count)) continue;
        }
        set_tokens(w->v, x->token, w->bits);
        if (size == 1) continue;
        s->text[before + depth] = byte;
        path[++depth].state = next;
        path[depth].count = count, path[depth].end = i + size;
        size = 1;
    }
}

/* How many characters of a slice may follow, whichever they are. */
static uint32_t slice_room(const struct gr_state *s, const struct level *l, enum slice which)
{
    const struct gr_grammar *g = s->g;
    uint32_t number = gr_number_of(l->where), bit = 1u << which;
    if (l->how == A_KEY) {
        const struct gr_object *o = &g->objects[number];
        return o->plain[l->state] & bit && gr_key_open(s, o, l->parent) ? SLICE_MAX : 0;
    }
    if (l->how != A_STRING || !(g->strings[number].plain[l->state] & bit)) return 0;
    const struct gr_string *str = &g->strings[number];
    if (!str->shortest || str->max_len == GR_LEN_MANY) return SLICE_MAX;
    if (l->count + str->spare >= str->max_len) return 0;
    uint32_t left = str->max_len - l->count - str->spare;
    return left < SLICE_MAX ? left : SLICE_MAX;
}

static void walk_config(struct walk *w, uint32_t c)
{
    struct gr_state *s = w->s;
    struct level root = {.how = A_SET};
    const struct nodes *nodes = &w->v->all;
    uint32_t n_words = w->v->n_words;
    if (!simplify(s, c, &root)) {
        root.how = A_SET, root.at = s->levels.n, root.n = 1;
        if (!gr_list_push(s, &s->levels, c)) return;
    }
    for (int i = 0; i < N_SLICES && root.how != A_SET; i++) {
        uint32_t room = slice_room(s, &root, (enum slice)i);
        if (!room) continue;
        const uint64_t *bits = w->v->slice[i].bits + (size_t)room * n_words;
        for (uint32_t k = 0; k < n_words; k++) w->bits[k] |= bits[k];
        nodes = &w->v->slice[i].rest;
        break;
    }
    if (root.how == A_STRING || root.how == A_RULE)
        walk_automaton(w, nodes, &root);
    else
        walk_nodes(w, nodes, 0, nodes->n, &root);
    s->levels.n = 0;
}

/* Many configurations at once. Where one of them takes every plain token, only the others of the
 * vocabulary are walked. */
static void walk_many(struct walk *w)
{
    struct gr_state *s = w->s;
    struct level root = {.how = A_SET, .n = s->now.n}, one;
    const struct slice_of *plain = &w->v->slice[PLAIN];
    const uint64_t *bits = plain->bits + (size_t)SLICE_MAX * w->v->n_words;
    bool all = false;
    for (uint32_t i = 0; i < s->now.n; i++) {
        if (!gr_list_push(s, &s->levels, s->now.v[i])) return;
        all = all || (simplify(s, s->now.v[i], &one) && slice_room(s, &one, PLAIN) == SLICE_MAX);
    }
    for (uint32_t k = 0; all && k < w->v->n_words; k++) w->bits[k] |= bits[k];
    const struct nodes *nodes = all ? &plain->rest : &w->v->all;
    walk_nodes(w, nodes, 0, nodes->n, &root);
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
