// SPDX-License-Identifier: Apache-2.0
/*
 * Trees to automata over bytes, and those to deterministic ones.
 *
 * Calls of rules are symbols beside the 256 bytes: a deterministic state has one target a byte
 * class and one a callee. Work and states are bounded by the build's limits.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/grammar/gr_build.h"
#include "runtime/text/unicode_utf8.h"

uint32_t gr_nfa_add(struct gr_build *b, struct gr_nfa *a, struct gr_nfa_state s)
{
    gr_work(b, 1);
    GR_PUSH(b, a, s);
    return a->n - 1;
}

static uint32_t add_range(struct gr_build *b, struct gr_nfa *a, uint32_t lo, uint32_t hi,
                          uint32_t next)
{
    return gr_nfa_add(
        b, a, (struct gr_nfa_state){GR_NFA_RANGE, (uint8_t)lo, (uint8_t)hi, next, GR_NONE});
}

static uint32_t add_split(struct gr_build *b, struct gr_nfa *a, uint32_t x, uint32_t y)
{
    return gr_nfa_add(b, a, (struct gr_nfa_state){GR_NFA_EPS, 0, 0, x, y});
}

/* ^ and $ while a pattern is taken apart: bytes that UTF-8 does not have. */
enum { BEGIN_BYTE = 0xfe, FINISH_BYTE = 0xff };

/* The trailing bytes that differ must run from 80 to bf. */
uint32_t gr_utf8_run_end(uint32_t lo, uint32_t hi)
{
    static const uint32_t last[] = {0x7f, 0x7ff, 0xffff, GR_UNICODE_MAX};
    for (int i = 0; i < 4; i++) {
        if (lo > last[i]) continue;
        if (hi > last[i]) hi = last[i];
        break;
    }
    if (lo < 0x80) return hi;
    for (uint32_t bits = 6; bits <= 18; bits += 6) {
        uint32_t m = (UINT32_C(1) << bits) - 1;
        if ((lo & ~m) == (hi & ~m)) break; /* only the last bytes differ */
        if (lo & m) return lo | m;
        if ((hi & m) != m) hi = (hi & ~m) - 1; /* which may be too much for more bytes */
    }
    return hi;
}

static uint32_t emit_set(struct gr_build *b, struct gr_nfa *a, const struct gr_set *s,
                         uint32_t next)
{
    uint32_t all = GR_NONE;
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t lo = s->v[i].lo, end;
        for (; lo <= s->v[i].hi; lo = end + 1) {
            uint8_t x[4], y[4];
            if (lo >= 0xd800 && lo <= 0xdfff) {
                end = 0xdfff;
                continue;
            }
            uint32_t hi = s->v[i].hi;
            if (lo < 0xd800 && hi > 0xd7ff) hi = 0xd7ff;
            end = gr_utf8_run_end(lo, hi);
            unsigned n = utf8_put(x, lo);
            utf8_put(y, end);
            uint32_t at = next;
            while (n-- > 0) at = add_range(b, a, x[n], y[n], at);
            all = all == GR_NONE ? at : add_split(b, a, at, all);
        }
    }
    return all;
}

static uint32_t emit_table(struct gr_build *b, struct gr_nfa *a, const struct gr_table *t,
                           uint32_t next)
{
    uint32_t first = a->n;
    for (uint32_t i = 0; i < t->n; i++) add_split(b, a, t->accepts[i] ? next : GR_NONE, GR_NONE);
    for (uint32_t i = 0; i < t->n; i++) {
        uint32_t ways = GR_NONE;
        for (unsigned c = 0, end; c < 256; c = end) {
            uint16_t to = t->target[i][c];
            for (end = c + 1; end < 256 && t->target[i][end] == to;) end++;
            if (to) ways = add_split(b, a, add_range(b, a, c, end - 1, first + to - 1), ways);
        }
        a->v[first + i].b = ways;
    }
    return first;
}

static uint32_t emit_repeat(struct gr_build *b, struct gr_nfa *a, const struct gr_node *n,
                            uint32_t next)
{
    uint32_t at = next;
    if (n->max == GR_MANY) {
        at = add_split(b, a, next, GR_NONE);
        uint32_t body = gr_nfa_emit(b, a, n->left, at);
        a->v[at].b = body;
    } else {
        for (uint32_t i = n->min; i < n->max; i++)
            at = add_split(b, a, gr_nfa_emit(b, a, n->left, at), next);
    }
    for (uint32_t i = 0; i < n->min; i++) at = gr_nfa_emit(b, a, n->left, at);
    return at;
}

static uint32_t emit_call(struct gr_build *b, struct gr_nfa *a, const struct gr_node *n,
                          uint32_t next)
{
    const struct gr_rule *r = n->index & GR_CALL_JSON ? NULL : &b->rules->v[n->index];
    if (r && !r->productive) return add_split(b, a, GR_NONE, GR_NONE);
    if (r && r->inlined) return gr_nfa_emit(b, a, r->body, next);
    uint32_t at = gr_nfa_add(b, a, (struct gr_nfa_state){GR_NFA_CALL, 0, 0, next, n->index});
    return r && r->nullable ? add_split(b, a, at, next) : at;
}

uint32_t gr_nfa_emit(struct gr_build *b, struct gr_nfa *a, const struct gr_node *n, uint32_t next)
{
    switch (n->kind) {
    case GR_EMPTY: return next;
    case GR_NEVER: return add_split(b, a, GR_NONE, GR_NONE);
    case GR_CHARS: return emit_set(b, a, &n->set, next);
    case GR_BYTES: return add_range(b, a, n->min, n->max, next);
    case GR_ALT: {
        /* a loop: long alternatives lean to one side */
        uint32_t all = GR_NONE;
        for (; n->kind == GR_ALT; n = n->left) {
            uint32_t x = gr_nfa_emit(b, a, n->right, next);
            all = all == GR_NONE ? x : add_split(b, a, x, all);
        }
        return add_split(b, a, gr_nfa_emit(b, a, n, next), all);
    }
    case GR_REPEAT: return emit_repeat(b, a, n, next);
    case GR_TABLE: return emit_table(b, a, n->table, next);
    case GR_CALL: return emit_call(b, a, n, next);
    case GR_BEGIN: return add_range(b, a, BEGIN_BYTE, BEGIN_BYTE, next);
    case GR_FINISH: return add_range(b, a, FINISH_BYTE, FINISH_BYTE, next);
    case GR_CAT: break;
    }
    /* From the end; long sequences lean to the right, so they are put in a row first. */
    struct {
        const struct gr_node **v;
        uint32_t n, cap;
    } row = {0};
    for (; n->kind == GR_CAT; n = n->right) GR_PUSH(b, &row, n->left);
    next = gr_nfa_emit(b, a, n, next);
    while (row.n > 0) next = gr_nfa_emit(b, a, row.v[--row.n], next);
    return next;
}

/* ---- words ---- */

static int by_bytes(const void *pa, const void *pb)
{
    const struct gr_word *a = pa, *b = pb;
    uint32_t n = a->n < b->n ? a->n : b->n;
    int c = n ? memcmp(a->s, b->s, n) : 0;
    return c ? c : a->n < b->n ? -1 : a->n > b->n;
}

/* One step of the words lo..hi that share their first `at` bytes. */
struct shared {
    uint32_t lo, hi, at, state; /* the state to be filled in */
};

uint32_t gr_nfa_words(struct gr_build *b, struct gr_nfa *a, struct gr_word *words, uint32_t n)
{
    struct {
        struct shared *v;
        uint32_t n, cap;
    } todo = {0};
    uint32_t first = add_split(b, a, GR_NONE, GR_NONE);
    struct shared all = {0, n, 0, first};
    if (n > 1) qsort(words, n, sizeof *words, by_bytes);
    if (n) GR_PUSH(b, &todo, all);
    while (todo.n > 0) {
        struct shared x = todo.v[--todo.n];
        uint32_t ways = GR_NONE;
        for (uint32_t i = x.lo, end; i < x.hi; i = end) {
            const struct gr_word *w = &words[i];
            end = i + 1;
            if (w->n == x.at) {
                uint32_t accept =
                    gr_nfa_add(b, a, (struct gr_nfa_state){GR_NFA_ACCEPT, 0, 0, GR_NONE, w->tag});
                ways = add_split(b, a, accept, ways);
                continue;
            }
            while (end < x.hi && words[end].s[x.at] == w->s[x.at]) end++;
            struct shared next = {i, end, x.at + 1, add_split(b, a, GR_NONE, GR_NONE)};
            uint8_t byte = (uint8_t)w->s[x.at];
            ways = add_split(b, a, add_range(b, a, byte, byte, next.state), ways);
            GR_PUSH(b, &todo, next);
        }
        a->v[x.state].a = ways;
    }
    return first;
}

/* ---- patterns ---- */

static bool is_mark(const struct gr_nfa_state *s, unsigned byte)
{
    return s->kind == GR_NFA_RANGE && s->lo == byte;
}

/* Can x reach the end without reading, where `mark` counts as not reading? Visits states. */
static bool reaches(struct gr_build *b, const struct gr_nfa *a, uint32_t x, unsigned mark,
                    uint32_t end, struct gr_list *seen, uint8_t *was_seen)
{
    bool found = false;
    seen->n = 0;
    GR_PUSH(b, seen, x);
    for (uint32_t i = 0; i < seen->n; i++) {
        x = seen->v[i];
        if (x == GR_NONE || was_seen[x]) continue;
        was_seen[x] = 1;
        const struct gr_nfa_state *s = &a->v[x];
        found |= x == end;
        if (s->kind == GR_NFA_EPS || is_mark(s, mark)) GR_PUSH(b, seen, s->a);
        if (s->kind == GR_NFA_EPS) GR_PUSH(b, seen, s->b);
    }
    gr_work(b, seen->n);
    for (uint32_t i = 0; i < seen->n; i++)
        if (seen->v[i] != GR_NONE) was_seen[seen->v[i]] = 0;
    return found;
}

/*
 * $ is a step that only the end of the text allows: a state before it accepts if the end is
 * reached by such steps alone. ^ is a step at the beginning: the states behind it are first states,
 * too. Both are gone afterwards.
 */
void gr_pattern_emit(struct gr_build *b, struct gr_nfa *a, const struct gr_node *n, uint32_t tag,
                     bool search, struct gr_list *start)
{
    uint32_t from = a->n;
    uint32_t end = gr_nfa_add(b, a, (struct gr_nfa_state){GR_NFA_ACCEPT, 0, 0, GR_NONE, tag});
    struct gr_node any = {.kind = GR_REPEAT, .max = GR_MANY};
    if (search) any.left = gr_node_any(b);
    uint32_t at = search ? gr_nfa_emit(b, a, &any, end) : end;
    at = gr_nfa_emit(b, a, n, at);
    if (search) at = gr_nfa_emit(b, a, &any, at);
    struct gr_list seen = {0};
    uint8_t *was_seen = gr_alloc(b, a->n);
    reaches(b, a, at, BEGIN_BYTE, end, &seen, was_seen);
    GR_PUSH(b, start, at);
    for (uint32_t i = 0; i < seen.n; i++)
        if (seen.v[i] != GR_NONE && is_mark(&a->v[seen.v[i]], BEGIN_BYTE))
            GR_PUSH(b, start, a->v[seen.v[i]].a);
    for (uint32_t i = from; i < a->n; i++)
        if (is_mark(&a->v[i], BEGIN_BYTE))
            a->v[i] = (struct gr_nfa_state){GR_NFA_EPS, 0, 0, GR_NONE, GR_NONE};
    for (uint32_t i = from; i < a->n; i++) {
        if (!is_mark(&a->v[i], FINISH_BYTE)) continue;
        bool ends = reaches(b, a, i, FINISH_BYTE, end, &seen, was_seen);
        a->v[i].hi = ends; /* decided for all before any is replaced */
    }
    for (uint32_t i = from; i < a->n; i++) {
        if (!is_mark(&a->v[i], FINISH_BYTE)) continue;
        struct gr_nfa_state dead = {GR_NFA_EPS, 0, 0, GR_NONE, GR_NONE};
        struct gr_nfa_state accept = {GR_NFA_ACCEPT, 0, 0, GR_NONE, tag};
        a->v[i] = a->v[i].hi ? accept : dead;
    }
}

/* ---- deterministic ---- */

struct subset {
    uint32_t at, n; /* sorted states that are not EPS, in members */
    uint32_t hash;
};

struct pending_call {
    uint32_t from, callee, to;
};

/* Where states lead before what needs no reading is added: few of them mean the same set again and again. */
enum { MAX_KEYED = 6 };
struct keyed {
    uint32_t n, to[MAX_KEYED];
    uint32_t hash, set; /* set: its number + 1 */
};

/* Its lists keep their memory for the next automaton of the grammar. */
struct gr_maker {
    struct gr_build *b;
    const struct gr_nfa *a;
    struct {
        struct subset *v;
        uint32_t n, cap;
    } sets;
    struct gr_list members, kernel, stack;
    struct {
        struct gr_nfa_state *v;
        uint32_t n, cap;
    } ways; /* bytes that the set expanded now reads */
    struct {
        struct pending_call *v;
        uint32_t n, cap;
    } calls;
    uint32_t *mark, stamp, n_marks;
    uint32_t steps; /* not yet counted as work */
    uint64_t *bits; /* of the kernel's states, while it is sorted */
    uint32_t *index, index_cap;
    struct {
        struct keyed *v;
        uint32_t n, cap;
    } keyed;
    uint32_t *keyed_index, keyed_cap;
    struct gr_list targets;
    uint8_t class_of[256], sample[256]; /* sample: a byte of each class */
    uint32_t n_cols;
    struct gr_list target, label; /* target: [sets][n_cols] set + 1 */
};

static void find_classes(struct gr_maker *m)
{
    bool begins[257] = {true};
    for (uint32_t i = 0; i < m->a->n; i++) {
        const struct gr_nfa_state *s = &m->a->v[i];
        if (s->kind != GR_NFA_RANGE) continue;
        begins[s->lo] = true;
        begins[s->hi + 1] = true;
    }
    m->n_cols = 0;
    for (unsigned c = 0; c < 256; c++) {
        if (begins[c]) m->sample[m->n_cols++] = (uint8_t)c;
        m->class_of[c] = (uint8_t)(m->n_cols - 1);
    }
}

/* Adds what is reached from x without reading to the kernel. */
static void close_over(struct gr_maker *m, uint32_t x)
{
    GR_PUSH(m->b, &m->stack, x);
    while (m->stack.n > 0) {
        x = m->stack.v[--m->stack.n];
        if (x == GR_NONE || m->mark[x] == m->stamp) continue;
        m->mark[x] = m->stamp;
        m->steps++;
        const struct gr_nfa_state *s = &m->a->v[x];
        if (s->kind != GR_NFA_EPS) {
            GR_PUSH(m->b, &m->kernel, x);
            continue;
        }
        GR_PUSH(m->b, &m->stack, s->b);
        GR_PUSH(m->b, &m->stack, s->a);
    }
}

static uint32_t lowest_bit(uint64_t x)
{
    /* by a de Bruijn sequence: its top six bits, shifted by each place, are all different */
    static const uint8_t place[64] = {0, 1, 48, 2, 57, 49, 28, 3, 61, 58, 50, 42, 38, 29, 17, 4, 62, 55, 59, 36, 53, 51,
                                      43, 22, 45, 39, 33, 30, 24, 18, 12, 5, 63, 47, 56, 27, 60, 41, 37, 16, 54, 35, 52, 21,
                                      44, 32, 23, 11, 46, 26, 40, 15, 34, 20, 31, 10, 25, 14, 19, 9, 13, 8, 7, 6};
    return place[(x & (0 - x)) * 0x03f79d71b4cb0a89u >> 58];
}

static int by_number(const void *pa, const void *pb)
{
    uint32_t a = *(const uint32_t *)pa, b = *(const uint32_t *)pb;
    return a < b ? -1 : a > b;
}

static void sort_kernel(struct gr_maker *m)
{
    uint32_t *v = m->kernel.v, n = m->kernel.n, words = m->a->n / 64 + 1;
    if (n > 24 && n > words / 16) { /* fewer words than steps of a sort */
        for (uint32_t i = 0; i < n; i++) gr_bit_set(m->bits, v[i]);
        for (uint32_t w = 0, i = 0; w < words; w++) {
            for (uint64_t x = m->bits[w]; x; x &= x - 1) v[i++] = 64 * w + lowest_bit(x);
            m->bits[w] = 0;
        }
        gr_work(m->b, words / 8);
        return;
    }
    if (n > 24) {
        qsort(v, n, sizeof *v, by_number);
        return;
    }
    for (uint32_t i = 1; i < n; i++) {
        uint32_t x = v[i], k = i;
        for (; k && v[k - 1] > x; k--) v[k] = v[k - 1];
        v[k] = x;
    }
}

static void grow_index(struct gr_maker *m)
{
    if (m->sets.n * 2 < m->index_cap) return;
    m->index_cap = m->index_cap ? m->index_cap * 2 : 64;
    m->index = gr_alloc(m->b, m->index_cap * sizeof *m->index);
    for (uint32_t i = 0; i < m->sets.n; i++) {
        uint32_t at = m->sets.v[i].hash & (m->index_cap - 1);
        while (m->index[at]) at = (at + 1) & (m->index_cap - 1);
        m->index[at] = i + 1;
    }
}

/* The number of the set in the kernel, + 1; 0 for the empty one. */
static uint32_t intern(struct gr_maker *m)
{
    struct gr_list *k = &m->kernel;
    if (!k->n) return 0;
    sort_kernel(m);
    uint64_t h = k->n;
    for (uint32_t i = 0; i < k->n; i++) h = (h ^ k->v[i]) * 0x9e3779b97f4a7c15u;
    uint32_t hash = (uint32_t)gr_mix(h);
    gr_work(m->b, k->n + m->steps);
    m->steps = 0;
    grow_index(m);
    uint32_t at = hash & (m->index_cap - 1);
    for (; m->index[at]; at = (at + 1) & (m->index_cap - 1)) {
        const struct subset *s = &m->sets.v[m->index[at] - 1];
        if (s->hash == hash && s->n == k->n &&
            !memcmp(m->members.v + s->at, k->v, k->n * sizeof *k->v))
            return m->index[at];
    }
    struct subset s = {m->members.n, k->n, hash};
    for (uint32_t i = 0; i < k->n; i++) GR_PUSH(m->b, &m->members, k->v[i]);
    GR_PUSH(m->b, &m->sets, s);
    if (m->sets.n + m->b->g->n_states > m->b->o.max_states)
        gr_fail_limit(m->b, "it takes too many states");
    return m->index[at] = m->sets.n;
}

static void begin_kernel(struct gr_maker *m)
{
    m->kernel.n = 0;
    m->stamp++;
}

static void expand_calls(struct gr_maker *m, uint32_t i)
{
    const struct subset s = m->sets.v[i];
    uint32_t first = m->calls.n;
    for (uint32_t k = 0; k < s.n; k++) {
        const struct gr_nfa_state *x = &m->a->v[m->members.v[s.at + k]];
        bool known = false;
        if (x->kind != GR_NFA_CALL) continue;
        for (uint32_t j = first; j < m->calls.n; j++) known |= m->calls.v[j].callee == x->b;
        if (known) continue;
        uint32_t callee = x->b;
        begin_kernel(m);
        for (uint32_t j = k; j < s.n; j++) {
            const struct gr_nfa_state *y = &m->a->v[m->members.v[s.at + j]];
            if (y->kind == GR_NFA_CALL && y->b == callee) close_over(m, y->a);
        }
        uint32_t to = intern(m);
        struct pending_call c = {i, callee, to};
        if (to) GR_PUSH(m->b, &m->calls, c);
    }
}

static void grow_keyed(struct gr_maker *m)
{
    if (m->keyed.n * 2 < m->keyed_cap) return;
    m->keyed_cap = m->keyed_cap ? m->keyed_cap * 2 : 64;
    m->keyed_index = gr_alloc(m->b, m->keyed_cap * sizeof *m->keyed_index);
    for (uint32_t i = 0; i < m->keyed.n; i++) {
        uint32_t at = m->keyed.v[i].hash & (m->keyed_cap - 1);
        while (m->keyed_index[at]) at = (at + 1) & (m->keyed_cap - 1);
        m->keyed_index[at] = i + 1;
    }
}

static uint32_t close_targets(struct gr_maker *m)
{
    begin_kernel(m);
    for (uint32_t i = 0; i < m->targets.n; i++) close_over(m, m->targets.v[i]);
    return intern(m);
}

/* The set behind the targets, as intern has it. */
static uint32_t behind_targets(struct gr_maker *m)
{
    const struct gr_list *t = &m->targets;
    struct keyed x = {.n = t->n};
    uint64_t h = t->n;
    if (!t->n) return 0;
    if (t->n > MAX_KEYED) return close_targets(m);
    for (uint32_t i = 0; i < t->n; i++) {
        x.to[i] = t->v[i];
        h = (h ^ t->v[i]) * 0x9e3779b97f4a7c15u;
    }
    x.hash = (uint32_t)gr_mix(h);
    m->steps += t->n;
    grow_keyed(m);
    uint32_t at = x.hash & (m->keyed_cap - 1);
    for (; m->keyed_index[at]; at = (at + 1) & (m->keyed_cap - 1)) {
        const struct keyed *y = &m->keyed.v[m->keyed_index[at] - 1];
        if (y->hash == x.hash && y->n == x.n && !memcmp(y->to, x.to, x.n * sizeof *x.to)) return y->set;
    }
    x.set = close_targets(m);
    GR_PUSH(m->b, &m->keyed, x);
    m->keyed_index[at] = m->keyed.n;
    return x.set;
}

/* A class that is read by the same members as the one before leads to the same set. */
static void expand_bytes(struct gr_maker *m, uint32_t i)
{
    const struct subset s = m->sets.v[i];
    uint32_t to = 0;
    bool changed[257] = {true};
    m->ways.n = 0;
    for (uint32_t k = 0; k < s.n; k++) {
        const struct gr_nfa_state *x = &m->a->v[m->members.v[s.at + k]];
        if (x->kind != GR_NFA_RANGE) continue;
        GR_PUSH(m->b, &m->ways, *x);
        changed[m->class_of[x->lo]] = changed[m->class_of[x->hi] + 1] = true;
    }
    gr_work(m->b, (uint64_t)m->n_cols * (m->ways.n + 4) / 8);
    for (uint32_t c = 0; c < m->n_cols; c++) {
        uint8_t byte = m->sample[c];
        if (changed[c]) {
            m->targets.n = 0;
            for (uint32_t k = 0; k < m->ways.n; k++) {
                const struct gr_nfa_state *x = &m->ways.v[k];
                if (x->lo <= byte && byte <= x->hi) GR_PUSH(m->b, &m->targets, x->a);
            }
            to = behind_targets(m);
        }
        GR_PUSH(m->b, &m->target, to);
    }
}

static void label_set(struct gr_maker *m, uint32_t i, gr_label_fn *label, void *user)
{
    const struct subset s = m->sets.v[i];
    begin_kernel(m); /* its memory holds the tags */
    for (uint32_t k = 0; k < s.n; k++) {
        const struct gr_nfa_state *x = &m->a->v[m->members.v[s.at + k]];
        if (x->kind == GR_NFA_ACCEPT) GR_PUSH(m->b, &m->kernel, x->b);
    }
    uint32_t l = m->kernel.n ? label(user, m->b, m->kernel.v, m->kernel.n) : 0;
    GR_PUSH(m->b, &m->label, l);
}

/* ---- into the grammar ---- */

static uint32_t class_map(struct gr_build *b, const uint8_t *class_of)
{
    struct gr_grammar *g = b->g;
    uint32_t look = g->n_classes > 16 ? g->n_classes - 16 : 0;
    for (uint32_t i = g->n_classes; i-- > look;)
        if (!memcmp(g->classes[i], class_of, 256)) return i;
    g->classes = gr_grow(b, g->classes, g->n_classes, &g->cap_classes, 256);
    memcpy(g->classes[g->n_classes], class_of, 256);
    return g->n_classes++;
}

/* Ways on, but those of neighbours that lead to the same place. */
static uint32_t count_edges(uint32_t n, uint32_t n_cols, const uint32_t *target)
{
    uint32_t edges = 0;
    for (uint32_t i = 0; i < n; i++, target += n_cols) {
        uint32_t last = 0;
        for (uint32_t c = 0; c < n_cols; c++) {
            if (!target[c] || target[c] == last) continue;
            last = target[c];
            edges++;
        }
    }
    return edges;
}

/* Which sets lead to an accepting one: backwards until nothing changes, over lists of
 * predecessors. */
static bool *find_useful(struct gr_build *b, uint32_t n, uint32_t n_cols, const uint32_t *target,
                         const uint32_t *label, const struct pending_call *calls, uint32_t n_calls)
{
    bool *useful = gr_alloc(b, n);
    uint32_t *head = gr_alloc(b, (n + 1) * sizeof *head), n_edges = 0, top = 0;
    struct edge {
        uint32_t from, next;
    } *edges = gr_alloc(b, ((size_t)count_edges(n, n_cols, target) + n_calls + 1) * sizeof *edges);
    uint32_t *stack = gr_alloc(b, (n + 1) * sizeof *stack);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t last = 0;
        for (uint32_t c = 0; c < n_cols; c++) {
            uint32_t t = target[(size_t)i * n_cols + c];
            if (!t || t == last) continue;
            last = t;
            edges[++n_edges] = (struct edge){i, head[t - 1]};
            head[t - 1] = n_edges;
        }
    }
    for (uint32_t i = 0; i < n_calls; i++) {
        edges[++n_edges] = (struct edge){calls[i].from, head[calls[i].to - 1]};
        head[calls[i].to - 1] = n_edges;
    }
    for (uint32_t i = 0; i < n; i++)
        if (label[i]) useful[i] = true, stack[top++] = i;
    while (top > 0) {
        for (uint32_t e = head[stack[--top]]; e; e = edges[e].next) {
            if (useful[edges[e].from]) continue;
            useful[edges[e].from] = true;
            stack[top++] = edges[e].from;
        }
    }
    gr_work(b, n_edges / 4);
    return useful;
}

static uint32_t install(struct gr_build *b, uint32_t n, const uint8_t *class_of, uint32_t n_cols,
                        const uint32_t *target, const uint32_t *label,
                        const struct pending_call *calls, uint32_t n_calls, uint32_t *out_n)
{
    struct gr_grammar *g = b->g;
    bool *useful = find_useful(b, n, n_cols, target, label, calls, n_calls);
    uint32_t *number = gr_alloc(b, (n + 1) * sizeof *number), classes = class_map(b, class_of);
    uint32_t base = g->n_states, count = 0, call = 0;
    *out_n = 0;
    if (!n || !useful[0]) return 0;
    for (uint32_t i = 0; i < n; i++)
        if (useful[i]) number[i + 1] = base + count++;
    if (base + count > b->o.max_states) gr_fail_limit(b, "it takes too many states");
    for (uint32_t i = 0; i < n; i++) {
        if (!useful[i]) continue;
        struct gr_fsa_state s = {g->n_trans, classes, label[i], g->n_calls, 0};
        while (g->cap_trans - g->n_trans < n_cols) /* what has grown is copied up to its cap */
            g->trans = gr_grow(b, g->trans, g->cap_trans, &g->cap_trans, sizeof *g->trans);
        for (uint32_t c = 0; c < n_cols; c++)
            g->trans[g->n_trans++] = number[target[(size_t)i * n_cols + c]];
        while (call < n_calls && calls[call].from < i) call++;
        for (; call < n_calls && calls[call].from == i; call++) {
            if (!number[calls[call].to]) continue;
            g->calls = gr_grow(b, g->calls, g->n_calls, &g->cap_calls, sizeof *g->calls);
            g->calls[g->n_calls++] = (struct gr_call){calls[call].callee, number[calls[call].to]};
            s.n_calls++;
        }
        g->states = gr_grow(b, g->states, g->n_states, &g->cap_states, sizeof *g->states);
        g->states[g->n_states++] = s;
    }
    *out_n = count;
    return base;
}

static void make_ready(struct gr_maker *m, struct gr_build *b, const struct gr_nfa *a)
{
    m->b = b, m->a = a;
    m->sets.n = m->members.n = m->calls.n = m->target.n = m->label.n = m->keyed.n = 0;
    m->index_cap = m->keyed_cap = 0;
    if (m->n_marks >= a->n + 1) return;
    m->n_marks = 2 * a->n + 64;
    m->mark = gr_alloc(b, m->n_marks * sizeof *m->mark);
    m->bits = gr_alloc(b, (m->n_marks / 64 + 1) * sizeof *m->bits);
}

uint32_t gr_fsa_build(struct gr_build *b, const struct gr_nfa *a, const uint32_t *start,
                      uint32_t n_start, gr_label_fn *label, void *user, uint32_t *out_n)
{
    if (!b->maker) b->maker = gr_alloc(b, sizeof *b->maker);
    struct gr_maker *m = b->maker;
    make_ready(m, b, a);
    find_classes(m);
    begin_kernel(m);
    for (uint32_t i = 0; i < n_start; i++) close_over(m, start[i]);
    intern(m);
    for (uint32_t i = 0; i < m->sets.n; i++) {
        label_set(m, i, label, user);
        expand_bytes(m, i);
        expand_calls(m, i);
    }
    return install(b, m->sets.n, m->class_of, m->n_cols, m->target.v, m->label.v, m->calls.v, m->calls.n,
                   out_n);
}

uint32_t gr_fsa_table(struct gr_build *b, uint32_t n, const uint8_t *class_of, uint32_t n_cols,
                      const uint32_t *target, const uint32_t *label, uint32_t *out_n)
{
    return install(b, n, class_of, n_cols, target, label, NULL, 0, out_n);
}

uint32_t gr_label_any(void *user, struct gr_build *b, const uint32_t *tags, uint32_t n)
{
    (void)user, (void)b, (void)tags;
    return n > 0;
}
