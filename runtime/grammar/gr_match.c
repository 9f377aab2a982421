// SPDX-License-Identifier: Apache-2.0
/*
 * States: sets of configurations, stepped byte by byte.
 *
 * A step marks every configuration that it has looked at, so each is looked at once, however many
 * alternatives lead to it: cost is the number of different configurations, which max_configs
 * bounds. Stacks are shared; what no configuration reaches any more is dropped when the table has
 * grown large.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/grammar/gr_internal.h"

enum { TABLE_SOFT = 4096 };

/* ---- memory ---- */

static bool grow(struct gr_state *s, void **v, uint32_t need, uint32_t *cap, size_t size)
{
    if (need <= *cap) return true;
    uint32_t more = *cap ? *cap : 64;
    while (more < need) more *= 2;
    void *w = need > UINT32_MAX / 4 ? NULL : realloc(*v, more * size);
    if (!w) {
        s->failed = true;
        return false;
    }
    *v = w, *cap = more;
    return true;
}

bool gr_list_push(struct gr_state *s, struct gr_list *l, uint32_t x)
{
    if (!grow(s, (void **)&l->v, l->n + 1, &l->cap, sizeof *l->v)) return false;
    l->v[l->n++] = x;
    return true;
}

bool gr_text_reserve(struct gr_state *s, uint32_t more)
{
    return grow(s, (void **)&s->text, s->n_text + more, &s->cap_text, 1);
}

static uint32_t config_hash(uint32_t where, uint64_t data, uint32_t parent)
{
    return (uint32_t)gr_mix(gr_mix(data ^ (uint64_t)where << 32) + parent);
}

static bool index_configs(struct gr_state *s, uint32_t cap)
{
    uint32_t *index = calloc(cap, sizeof *index);
    if (!index) {
        s->failed = true;
        return false;
    }
    free(s->index);
    s->index = index, s->index_cap = cap;
    for (uint32_t i = 0; i < s->n_configs; i++) {
        uint32_t at = s->configs[i].hash & (cap - 1);
        while (index[at]) at = (at + 1) & (cap - 1);
        index[at] = i + 1;
    }
    return true;
}

uint32_t gr_config_get(struct gr_state *s, uint32_t where, uint64_t data, uint32_t parent)
{
    uint32_t hash = config_hash(where, data, parent);
    if ((s->n_configs + 1) * 2 > s->index_cap &&
        !index_configs(s, s->index_cap ? s->index_cap * 2 : 128))
        return GR_NONE;
    uint32_t at = hash & (s->index_cap - 1);
    for (; s->index[at]; at = (at + 1) & (s->index_cap - 1)) {
        const struct gr_config *c = &s->configs[s->index[at] - 1];
        if (c->hash == hash && c->where == where && c->data == data && c->parent == parent)
            return s->index[at] - 1;
    }
    if (!grow(s, (void **)&s->configs, s->n_configs + 1, &s->cap_configs, sizeof *s->configs))
        return GR_NONE;
    s->configs[s->n_configs] = (struct gr_config){where, parent, data, 0, 0, hash};
    s->index[at] = ++s->n_configs;
    return s->n_configs - 1;
}

static uint32_t record_hash(const uint64_t *words, uint32_t n)
{
    uint64_t h = n;
    for (uint32_t i = 0; i < n; i++) h = gr_mix(h ^ words[i]);
    return (uint32_t)h;
}

static bool index_records(struct gr_state *s, uint32_t cap)
{
    uint32_t *index = calloc(cap, sizeof *index);
    if (!index) {
        s->failed = true;
        return false;
    }
    free(s->record_index);
    s->record_index = index, s->record_index_cap = cap;
    for (uint32_t i = 0; i < s->n_records; i++) {
        uint32_t at = s->records[i].hash & (cap - 1);
        while (index[at]) at = (at + 1) & (cap - 1);
        index[at] = i + 1;
    }
    return true;
}

/* words may lie inside the state's own: they are copied before those move. */
uint32_t gr_record_get(struct gr_state *s, const uint64_t *words, uint32_t n)
{
    uint32_t hash = record_hash(words, n);
    if ((s->n_records + 1) * 2 > s->record_index_cap &&
        !index_records(s, s->record_index_cap ? s->record_index_cap * 2 : 64))
        return GR_NONE;
    uint32_t at = hash & (s->record_index_cap - 1);
    for (; s->record_index[at]; at = (at + 1) & (s->record_index_cap - 1)) {
        const struct gr_record *r = &s->records[s->record_index[at] - 1];
        if (r->hash == hash && r->n == n && !memcmp(s->words + r->at, words, n * sizeof *words))
            return s->record_index[at] - 1;
    }
    if (!grow(s, (void **)&s->words, s->n_words + n, &s->cap_words, sizeof *s->words) ||
        !grow(s, (void **)&s->records, s->n_records + 1, &s->cap_records, sizeof *s->records))
        return GR_NONE;
    memcpy(s->words + s->n_words, words, n * sizeof *words);
    s->records[s->n_records] = (struct gr_record){s->n_words, n, hash};
    s->n_words += n;
    s->record_index[at] = ++s->n_records;
    return s->n_records - 1;
}

struct gr_mark gr_mark_get(const struct gr_state *s)
{
    return (struct gr_mark){s->n_configs, s->n_records, s->n_words, s->n_text};
}

/* Taken out in the opposite order, entries leave no holes that a probe would need. */
void gr_mark_drop(struct gr_state *s, struct gr_mark m)
{
    while (s->n_configs > m.n_configs) {
        uint32_t i = --s->n_configs, at = s->configs[i].hash & (s->index_cap - 1);
        while (s->index[at] != i + 1) at = (at + 1) & (s->index_cap - 1);
        s->index[at] = 0;
    }
    while (s->n_records > m.n_records) {
        uint32_t i = --s->n_records, at = s->records[i].hash & (s->record_index_cap - 1);
        while (s->record_index[at] != i + 1) at = (at + 1) & (s->record_index_cap - 1);
        s->record_index[at] = 0;
    }
    s->n_words = m.n_words;
    s->n_text = m.n_text;
}

/* ---- steps ---- */

void gr_add(struct gr_state *s, uint32_t where, uint64_t data, uint32_t parent,
            struct gr_list *to)
{
    uint32_t c = gr_config_get(s, where, data, parent);
    if (c != GR_NONE) gr_add_config(s, c, to);
}

void gr_add_config(struct gr_state *s, uint32_t c, struct gr_list *to)
{
    if (to->n > s->g->o.max_configs) {
        s->failed = true;
        return;
    }
    if (s->configs[c].added == s->stamp && s->stamp) return;
    s->configs[c].added = s->stamp;
    gr_list_push(s, to, c);
}

/* Nobody else has looked at c in this step. */
static bool visit(struct gr_state *s, uint32_t c)
{
    if (s->configs[c].stamp == s->stamp) return false;
    s->configs[c].stamp = s->stamp;
    return true;
}

static void step_calls(struct gr_state *s, uint32_t state, uint32_t parent, uint8_t byte,
                       struct gr_list *to)
{
    const struct gr_grammar *g = s->g;
    const struct gr_fsa_state *f = &g->states[state];
    for (uint32_t i = 0; i < f->n_calls && !s->failed; i++) {
        const struct gr_call *call = &g->calls[f->calls + i];
        bool json = call->callee & GR_CALL_JSON;
        uint32_t n = call->callee & ~GR_CALL_JSON;
        if (!gr_bit(json ? g->values[n].first : g->rules[n].first, byte)) continue;
        uint32_t up = parent;
        if (call->target != GR_CALL_LAST)
            up = gr_config_get(s, gr_where_of(GR_AT_RULE, call->target), 0, parent);
        /* A configuration of its own kind stands for "the rule, nothing read": data 1. */
        uint32_t c = up == GR_NONE ? GR_NONE
                     : json        ? gr_config_get(s, gr_where_of(GR_AT_VALUE, n), 0, up)
                                   : gr_config_get(s, gr_where_of(GR_AT_RULE, g->rules[n].state), 1, up);
        if (c != GR_NONE) gr_step_config(s, c, byte, to);
    }
}

void gr_step_parent(struct gr_state *s, uint32_t c, uint8_t byte, struct gr_list *to)
{
    uint32_t p = s->configs[c].parent;
    if (p == GR_OUTSIDE)
        s->outside = true;
    else if (p != GR_END && (p = gr_settle(s, p, 0)) != GR_NONE)
        gr_step_config(s, p, byte, to);
}

void gr_step_config(struct gr_state *s, uint32_t c, uint8_t byte, struct gr_list *to)
{
    if (s->failed || !visit(s, c)) return;
    uint32_t where = s->configs[c].where, parent = s->configs[c].parent;
    bool untouched = s->configs[c].data == 1;
    if (gr_kind_of(where) != GR_AT_RULE) {
        gr_step_json(s, c, byte, to);
        return;
    }
    uint32_t state = gr_number_of(where), next = gr_next(s->g, state, byte);
    if (next) gr_add(s, gr_where_of(GR_AT_RULE, next), 0, parent, to);
    if (s->g->states[state].n_calls) step_calls(s, state, parent, byte, to);
    if (s->g->states[state].label && !untouched) gr_step_parent(s, c, byte, to);
}

void gr_step(struct gr_state *s, const struct gr_list *from, uint8_t byte, struct gr_list *to)
{
    if (++s->stamp == 0) {
        for (uint32_t i = 0; i < s->n_configs; i++) s->configs[i].stamp = s->configs[i].added = 0;
        s->stamp = 1;
    }
    for (uint32_t i = 0; i < from->n && !s->failed; i++) gr_step_config(s, from->v[i], byte, to);
}

bool gr_may_end(struct gr_state *s, uint32_t c)
{
    for (unsigned depth = 0; depth < 1u << 20; depth++) {
        const struct gr_config *x = &s->configs[c];
        switch (gr_kind_of(x->where)) {
        case GR_AT_END: return true;
        case GR_AT_RULE:
        case GR_AT_NUMBER:
            if (!s->g->states[gr_number_of(x->where)].label) return false;
            break;
        default: return false;
        }
        c = x->parent;
    }
    return false;
}

/* ---- states ---- */

static bool put_root(struct gr_state *s)
{
    const struct gr_grammar *g = s->g;
    gr_config_get(s, gr_where_of(GR_AT_END, 0), 0, 0);
    gr_config_get(s, gr_where_of(GR_AT_OUTSIDE, 0), 0, 0);
    if (g->root_value != GR_NO_ROOT)
        gr_add(s, gr_where_of(GR_AT_VALUE, g->root_value), 0, GR_END, &s->now);
    else
        gr_add(s, gr_where_of(GR_AT_RULE, g->rules[g->root_rule].state), 0, GR_END, &s->now);
    return !s->failed && s->n_configs == 3;
}

struct gr_state *gr_state_create(struct gr_grammar *g)
{
    struct gr_state *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->g = g;
    if (put_root(s)) return s;
    gr_state_destroy(s);
    return NULL;
}

void gr_state_destroy(struct gr_state *s)
{
    if (!s) return;
    free(s->configs);
    free(s->index);
    free(s->records);
    free(s->words);
    free(s->record_index);
    free(s->now.v);
    free(s->text);
    free(s->scratch[0].v);
    free(s->scratch[1].v);
    free(s->levels.v);
    gr_masks_destroy(s->masks);
    free(s);
}

/* Copies what the configurations of `from` reach into the empty state `to`. */
static bool copy_reached(const struct gr_state *from, struct gr_state *to)
{
    uint32_t *number = calloc(from->n_configs, sizeof *number);
    uint8_t *reached = calloc(from->n_configs, 1);
    bool ok = number && reached;
    for (uint32_t i = 0; ok && i < from->now.n; i++)
        for (uint32_t c = from->now.v[i]; !reached[c]; c = from->configs[c].parent) reached[c] = 1;
    if (ok) reached[GR_END] = reached[GR_OUTSIDE] = 1;
    /* Parents are older than what stands on them. */
    for (uint32_t i = 0; ok && i < from->n_configs; i++) {
        const struct gr_config *c = &from->configs[i];
        enum gr_where kind = gr_kind_of(c->where);
        uint64_t data = c->data;
        if (!reached[i]) continue;
        if (kind == GR_AT_OBJECT || kind == GR_AT_ARRAY) {
            struct gr_frame_at f = gr_frame_unpack(data);
            const struct gr_record *r = &from->records[f.record];
            f.record = gr_record_get(to, from->words + r->at, r->n);
            data = gr_frame_pack(f);
        }
        number[i] = gr_config_get(to, c->where, data, number[c->parent]);
        ok = !to->failed;
    }
    for (uint32_t i = 0; ok && i < from->now.n; i++)
        ok = gr_list_push(to, &to->now, number[from->now.v[i]]);
    if (ok && from->n_text && (ok = grow(to, (void **)&to->text, from->n_text, &to->cap_text, 1)))
        memcpy(to->text, from->text, from->n_text);
    to->n_text = from->n_text;
    free(number);
    free(reached);
    return ok;
}

struct gr_state *gr_state_copy(const struct gr_state *s)
{
    struct gr_state *x = calloc(1, sizeof *x);
    if (!x) return NULL;
    x->g = s->g;
    if (copy_reached(s, x)) return x;
    gr_state_destroy(x);
    return NULL;
}

static void compact(struct gr_state *s)
{
    if (s->n_configs < TABLE_SOFT && s->n_records < TABLE_SOFT) return;
    struct gr_state *x = gr_state_copy(s);
    if (!x) return;
    struct gr_state old = *s;
    *s = *x;
    *x = old;
    gr_state_destroy(x);
}

/* Steps *set, whose memory may be exchanged with the scratch lists; returns how many bytes fit. */
static size_t walk(struct gr_state *s, struct gr_list *set, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct gr_list *to = &s->scratch[0];
        to->n = 0;
        if (s->n_text >= s->g->o.max_text_bytes) return i;
        if (!gr_text_reserve(s, 1)) return i;
        s->text[s->n_text] = (uint8_t)bytes[i];
        gr_step(s, set, (uint8_t)bytes[i], to);
        if (s->failed || !to->n) return i;
        s->n_text++;
        struct gr_list swap = *set;
        *set = *to;
        *to = swap;
    }
    return n;
}

bool gr_advance(struct gr_state *s, const char *bytes, size_t n)
{
    struct gr_mark m = gr_mark_get(s);
    struct gr_list *set = &s->scratch[1];
    s->failed = false;
    set->n = 0;
    for (uint32_t i = 0; i < s->now.n; i++)
        if (!gr_list_push(s, set, s->now.v[i])) return false;
    if (walk(s, set, bytes, n) < n) {
        gr_mark_drop(s, m);
        s->failed = false;
        return false;
    }
    struct gr_list swap = s->now;
    s->now = *set;
    *set = swap;
    compact(s);
    return true;
}

size_t gr_try(struct gr_state *s, const char *bytes, size_t n)
{
    struct gr_mark m = gr_mark_get(s);
    struct gr_list *set = &s->scratch[1];
    size_t fit = 0;
    s->failed = false;
    set->n = 0;
    for (uint32_t i = 0; i < s->now.n; i++)
        if (!gr_list_push(s, set, s->now.v[i])) return 0;
    fit = walk(s, set, bytes, n);
    gr_mark_drop(s, m);
    s->failed = false;
    return fit;
}

bool gr_is_accepting(struct gr_state *s)
{
    for (uint32_t i = 0; i < s->now.n; i++)
        if (gr_may_end(s, s->now.v[i])) return true;
    return false;
}

/* False where the configuration's automaton alone says that the byte does not fit. */
static bool may_follow(const struct gr_state *s, uint32_t c, uint8_t byte)
{
    const struct gr_config *x = &s->configs[c];
    enum gr_where kind = gr_kind_of(x->where);
    uint32_t number = gr_number_of(x->where);
    if (kind == GR_AT_RULE) {
        const struct gr_fsa_state *f = &s->g->states[number];
        return f->label || f->n_calls || gr_next(s->g, number, byte);
    }
    if (kind != GR_AT_STRING && kind != GR_AT_KEY) return true;
    struct gr_text_at t = gr_text_unpack(x->data);
    if (t.phase != GR_TEXT_PLAIN || byte == '"' || byte == '\\') return true;
    if (kind == GR_AT_KEY) number = s->g->objects[number].key;
    return byte >= 0x20 && gr_next(s->g, s->g->strings[number].start + t.state, byte);
}

/* The one byte that can follow, or -1. */
static int only_byte(struct gr_state *s, const struct gr_list *set)
{
    static const char often[] = "\"a0 ,"; /* most sets are told by two of these */
    int only = -1;
    for (unsigned i = 0; i < 256 + sizeof often - 1; i++) {
        unsigned c = i < sizeof often - 1 ? (uint8_t)often[i] : i - (unsigned)(sizeof often - 1);
        bool may = false;
        for (uint32_t k = 0; k < set->n && !may; k++) may = may_follow(s, set->v[k], (uint8_t)c);
        if (!may || (int)c == only) continue;
        struct gr_mark m = gr_mark_get(s);
        struct gr_list *to = &s->scratch[0];
        to->n = 0;
        if (!gr_text_reserve(s, 1)) return -1;
        s->text[s->n_text] = (uint8_t)c;
        gr_step(s, set, (uint8_t)c, to);
        bool fits = to->n > 0 && !s->failed;
        gr_mark_drop(s, m);
        if (!fits) continue;
        if (only >= 0) return -1;
        only = (int)c;
    }
    return only;
}

bool gr_is_finished(struct gr_state *s)
{
    if (!gr_is_accepting(s)) return false;
    for (unsigned c = 0; c < 256; c++) {
        char byte = (char)c;
        if (gr_try(s, &byte, 1)) return false;
    }
    return true;
}

size_t gr_forced(struct gr_state *s, char *out, size_t cap)
{
    struct gr_mark m = gr_mark_get(s);
    struct gr_list *set = &s->scratch[1];
    size_t n = 0;
    s->failed = false;
    set->n = 0;
    for (uint32_t i = 0; i < s->now.n; i++)
        if (!gr_list_push(s, set, s->now.v[i])) return 0;
    while (n < cap) {
        bool ends = false;
        for (uint32_t i = 0; i < set->n; i++) ends |= gr_may_end(s, set->v[i]);
        int byte = ends ? -1 : only_byte(s, set);
        char c = (char)byte;
        if (byte < 0 || walk(s, set, &c, 1) < 1) break;
        out[n++] = c;
    }
    gr_mark_drop(s, m);
    s->failed = false;
    return n;
}
