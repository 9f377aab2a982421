// SPDX-License-Identifier: Apache-2.0
/*
 * Rules to automata that call each other. Afterwards:
 *   - a call reads at least one byte: calls of rules that may be empty can be left out beside them;
 *   - no rule begins with itself: direct left recursion, A = A x | y, became A = y x*; left
 *     recursion through other rules is refused;
 *   - rules that lead nowhere are not called.
 */
#include <string.h>

#include "runtime/grammar/gr_build.h"

enum { MAX_INLINE = 400, MAX_HEIGHT = 16 };

static uint32_t name_hash(const char *s, size_t n)
{
    uint64_t h = n;
    for (size_t i = 0; i < n; i++) h = (h ^ (uint8_t)s[i]) * 0x100000001b3u;
    return (uint32_t)gr_mix(h);
}

static void grow_names(struct gr_build *b, struct gr_rules *r)
{
    if (r->n * 2 < r->index_cap) return;
    r->index_cap = r->index_cap ? r->index_cap * 2 : 64;
    r->index = gr_alloc(b, r->index_cap * sizeof *r->index);
    for (uint32_t i = 0; i < r->n; i++) {
        uint32_t at = name_hash(r->v[i].name, r->v[i].n_name) & (r->index_cap - 1);
        while (r->index[at]) at = (at + 1) & (r->index_cap - 1);
        r->index[at] = i + 1;
    }
}

uint32_t gr_rules_get(struct gr_build *b, struct gr_rules *r, const char *name, size_t n,
                      size_t offset)
{
    struct gr_rule rule = {.name = name, .n_name = (uint32_t)n, .offset = offset};
    grow_names(b, r);
    uint32_t at = name_hash(name, n) & (r->index_cap - 1);
    for (; r->index[at]; at = (at + 1) & (r->index_cap - 1)) {
        const struct gr_rule *x = &r->v[r->index[at] - 1];
        if (x->n_name == n && !memcmp(x->name, name, n)) return r->index[at] - 1;
    }
    GR_PUSH(b, r, rule);
    r->index[at] = r->n;
    return r->n - 1;
}

/* ---- properties ---- */

static bool is_nullable(const struct gr_rules *r, const struct gr_node *n)
{
    for (;; n = n->right) {
        switch (n->kind) {
        case GR_EMPTY: return true;
        case GR_NEVER:
        case GR_CHARS:
        case GR_BYTES: return false;
        case GR_ALT:
            for (; n->kind == GR_ALT; n = n->left)
                if (is_nullable(r, n->right)) return true;
            return is_nullable(r, n);
        case GR_REPEAT: return n->min == 0 || is_nullable(r, n->left);
        case GR_CALL: return !(n->index & GR_CALL_JSON) && r->v[n->index].nullable;
        case GR_TABLE: return n->table->accepts[0];
        case GR_BEGIN:
        case GR_FINISH: return true;
        case GR_CAT:
            if (!is_nullable(r, n->left)) return false;
        }
    }
}

static bool is_productive(const struct gr_rules *r, const struct gr_node *n)
{
    for (;; n = n->right) {
        switch (n->kind) {
        case GR_NEVER: return false;
        case GR_ALT:
            for (; n->kind == GR_ALT; n = n->left)
                if (is_productive(r, n->right)) return true;
            return is_productive(r, n);
        case GR_REPEAT: return n->min == 0 || is_productive(r, n->left);
        case GR_CALL: return (n->index & GR_CALL_JSON) || r->v[n->index].productive;
        case GR_CAT:
            if (!is_productive(r, n->left)) return false;
            break;
        default: return true;
        }
    }
}

static void find_properties(struct gr_build *b, struct gr_rules *r)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t i = 0; i < r->n; i++) {
            struct gr_rule *x = &r->v[i];
            bool nullable = x->nullable || is_nullable(r, x->body);
            bool productive = x->productive || is_productive(r, x->body);
            changed |= nullable != x->nullable || productive != x->productive;
            x->nullable = nullable, x->productive = productive;
            gr_work(b, 8);
        }
    }
}

/* ---- rules that are written out where they are called ---- */

/* Nodes of the tree with its rules written out, MAX_INLINE + 1 when they are too many or not all
 * of its rules can be. A rule being looked at has size GR_NONE: it calls itself. */
static uint32_t full_size(struct gr_build *b, struct gr_rules *r, const struct gr_node *n,
                          unsigned height);

static uint32_t rule_size(struct gr_build *b, struct gr_rules *r, uint32_t i, unsigned height)
{
    struct gr_rule *x = &r->v[i];
    if (x->size == GR_NONE || height > MAX_HEIGHT) return MAX_INLINE + 1;
    if (x->size) return x->size;
    x->size = GR_NONE;
    uint32_t size = full_size(b, r, x->body, height);
    r->v[i].size = size;
    return size;
}

static uint32_t full_size(struct gr_build *b, struct gr_rules *r, const struct gr_node *n,
                          unsigned height)
{
    uint64_t sum = 0;
    for (; n->kind == GR_CAT || n->kind == GR_ALT; n = n->kind == GR_CAT ? n->right : n->left) {
        sum += 1 + full_size(b, r, n->kind == GR_CAT ? n->left : n->right, height);
        if (sum > MAX_INLINE) return MAX_INLINE + 1;
    }
    gr_work(b, 1);
    if (n->kind == GR_REPEAT) {
        uint64_t times = n->max == GR_MANY ? (uint64_t)n->min + 1 : n->max;
        sum += 1 + times * full_size(b, r, n->left, height);
    } else if (n->kind == GR_CALL) {
        sum += n->index & GR_CALL_JSON ? 1 : rule_size(b, r, n->index, height + 1);
    } else {
        sum += n->kind == GR_CHARS   ? 1 + n->set.n / 4
               : n->kind == GR_TABLE ? 2 * (uint64_t)n->table->n
                                     : 1;
    }
    return sum > MAX_INLINE ? MAX_INLINE + 1 : (uint32_t)sum;
}

static void choose_inlined(struct gr_build *b, struct gr_rules *r, uint32_t root)
{
    for (uint32_t i = 0; i < r->n; i++)
        r->v[i].inlined = rule_size(b, r, i, 0) <= MAX_INLINE && i != root;
}

/* ---- automata ---- */

/* States that read or call, reached from `at` without reading. */
static void closure(struct gr_build *b, const struct gr_nfa *a, uint32_t at, struct gr_list *out)
{
    uint8_t *seen = gr_alloc(b, a->n);
    struct gr_list stack = {0};
    GR_PUSH(b, &stack, at);
    while (stack.n > 0) {
        at = stack.v[--stack.n];
        if (at == GR_NONE || seen[at]) continue;
        seen[at] = 1;
        if (a->v[at].kind != GR_NFA_EPS) {
            GR_PUSH(b, out, at);
            continue;
        }
        GR_PUSH(b, &stack, a->v[at].b);
        GR_PUSH(b, &stack, a->v[at].a);
    }
    gr_work(b, a->n / 8);
}

/* A = A x | y: the first states are those of y, and behind the end x may follow. */
static void resolve_left_recursion(struct gr_build *b, struct gr_nfa *a, uint32_t rule,
                                   uint32_t first, uint32_t end, struct gr_list *start)
{
    struct gr_list all = {0}, again = {0};
    closure(b, a, first, &all);
    for (uint32_t i = 0; i < all.n; i++) {
        const struct gr_nfa_state *s = &a->v[all.v[i]];
        if (s->kind == GR_NFA_CALL && s->b == rule)
            GR_PUSH(b, &again, s->a);
        else
            GR_PUSH(b, start, all.v[i]);
    }
    if (!again.n) return;
    uint32_t accept = gr_nfa_add(b, a, (struct gr_nfa_state){.kind = GR_NFA_ACCEPT, .a = GR_NONE});
    for (uint32_t i = 0; i < again.n; i++)
        accept = gr_nfa_add(b, a, (struct gr_nfa_state){GR_NFA_EPS, 0, 0, accept, again.v[i]});
    a->v[end] = (struct gr_nfa_state){GR_NFA_EPS, 0, 0, accept, GR_NONE};
    /* a first state that was the end itself stands for what the end has become */
}

static uint32_t make_rule(struct gr_build *b, const struct gr_rules *r, uint32_t i)
{
    struct gr_nfa a = {0};
    struct gr_list start = {0};
    uint32_t n;
    if (!r->v[i].productive) return 0;
    uint32_t end = gr_nfa_add(b, &a, (struct gr_nfa_state){.kind = GR_NFA_ACCEPT, .a = GR_NONE});
    uint32_t first = gr_nfa_emit(b, &a, r->v[i].body, end);
    resolve_left_recursion(b, &a, i, first, end, &start);
    return gr_fsa_build(b, &a, start.v, start.n, gr_label_any, NULL, &n);
}

/* Rules that others begin with, depth first; a rule met on its own path is left-recursive. */
static void refuse_left_recursion(struct gr_build *b, const struct gr_rules *r)
{
    struct gr_grammar *g = b->g;
    uint8_t *color = gr_alloc(b, r->n + 1);
    struct gr_list path = {0}, at = {0};
    for (uint32_t i = 0; i < r->n; i++) {
        if (color[i] || !g->rules[i].state) continue;
        GR_PUSH(b, &path, i);
        GR_PUSH(b, &at, 0);
        color[i] = 1;
        while (path.n > 0) {
            const struct gr_fsa_state *s = &g->states[g->rules[path.v[path.n - 1]].state];
            uint32_t k = at.v[at.n - 1]++;
            if (k >= s->n_calls) {
                color[path.v[--path.n]] = 2;
                at.n--;
                continue;
            }
            uint32_t callee = g->calls[s->calls + k].callee;
            if (callee & GR_CALL_JSON || color[callee] == 2) continue;
            if (color[callee] == 1)
                gr_fail(b, r->v[callee].offset,
                        "rule '%.*s' begins with itself through other rules; write it with a "
                        "repetition",
                        (int)(r->v[callee].n_name < 60 ? r->v[callee].n_name : 60),
                        r->v[callee].name);
            color[callee] = 1;
            GR_PUSH(b, &path, callee);
            GR_PUSH(b, &at, 0);
        }
    }
}

/* Calls whose target does nothing but end: the callee's parent is the caller's. */
static void mark_last_calls(struct gr_grammar *g)
{
    for (uint32_t i = 0; i < g->n_calls; i++) {
        const struct gr_fsa_state *s = &g->states[g->calls[i].target];
        bool goes_on = s->n_calls || !s->label;
        const uint8_t *class_of = g->classes[s->classes];
        uint32_t n_cols = class_of[255] + 1u;
        for (uint32_t c = 0; c < n_cols; c++) goes_on |= g->trans[s->row + c] != 0;
        if (!goes_on) g->calls[i].target = GR_CALL_LAST;
    }
}

/* Bytes that rules begin with; the JSON values' are known only later (gr_first in gr_compile.c). */
void gr_rules_finish(struct gr_build *b, struct gr_rules *r, uint32_t root)
{
    struct gr_grammar *g = b->g;
    for (uint32_t i = 0; i < r->n; i++)
        if (!r->v[i].body)
            gr_fail(b, r->v[i].offset, "rule '%.*s' is used and not defined",
                    (int)(r->v[i].n_name < 60 ? r->v[i].n_name : 60), r->v[i].name);
    find_properties(b, r);
    if (!r->v[root].productive)
        gr_fail(b, r->v[root].offset, "no text at all fits the grammar: its rules never end");
    choose_inlined(b, r, root);
    b->rules = r;
    g->rules = gr_alloc(b, (r->n + 1) * sizeof *g->rules);
    g->n_rules = r->n;
    for (uint32_t i = 0; i < r->n; i++)
        if (!r->v[i].inlined) g->rules[i].state = make_rule(b, r, i);
    refuse_left_recursion(b, r);
    mark_last_calls(g);
    g->root_rule = root;
}
