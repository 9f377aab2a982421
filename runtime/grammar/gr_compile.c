// SPDX-License-Identifier: Apache-2.0
/* gr_compile: limits, the front ends, and what is known only when all of a grammar is there. */
#include <stdlib.h>
#include <string.h>

#include "runtime/grammar/gr_build.h"
#include "runtime/text/json_read.h"
#include "runtime/text/unicode_utf8.h"

enum { MAX_TEXT_BYTES = 1 << 20, MAX_SPACE = 200, MAX_GRAMMAR_BYTES = 16 << 20 };

static struct gr_options with_defaults(const struct gr_options *given)
{
    struct gr_options o = {0};
    if (given) o = *given;
    if (!o.max_memory_bytes) o.max_memory_bytes = (size_t)64 << 20;
    if (!o.max_states) o.max_states = 200000;
    if (!o.max_work) o.max_work = 20000000;
    if (!o.max_configs) o.max_configs = 2000;
    if (!o.max_text_bytes || o.max_text_bytes > MAX_TEXT_BYTES) o.max_text_bytes = MAX_TEXT_BYTES;
    if (!o.max_space) o.max_space = 32;
    if (o.max_space > MAX_SPACE) o.max_space = MAX_SPACE;
    if (o.space == GR_SPACE_NONE) o.max_space = 0;
    return o;
}

/* ---- small front ends ---- */

const struct jinja_value *gr_read_json(struct gr_build *b, const char *text, size_t n, size_t base)
{
    struct jinja_value *v = gr_alloc(b, sizeof *v);
    struct json_read_error e;
    if (!json_read(b->arena, text, n, v, &e)) 
        gr_fail(b, base + e.offset_bytes, "JSON: %s", e.message);
    return v;
}

static void finish_single(struct gr_build *b, struct gr_node *body)
{
    struct gr_rules rules = {0};
    uint32_t root = gr_rules_get(b, &rules, "root", 4, 0);
    rules.v[root].body = body;
    gr_rules_finish(b, &rules, root);
}

static void compile_choice(struct gr_build *b, const char *text, size_t n)
{
    const struct jinja_value *v = gr_read_json(b, text, n, 0);
    struct gr_node *all = NULL;
    if (v->kind != JINJA_LIST || !v->u.list->count)
        gr_fail(b, 0, "a choice is a JSON array of strings, at least one");
    for (uint32_t i = 0; i < v->u.list->count; i++) {
        const struct jinja_value *x = &v->u.list->items[i];
        if (x->kind != JINJA_STR) gr_fail(b, 0, "choice number %u is not a string", i);
        all = gr_node_alt(b, all, gr_node_literal(b, x->u.s, x->len, false));
    }
    finish_single(b, all);
}

/* One automaton without calls: the pattern's marks are resolved while it is made. */
static void compile_regex(struct gr_build *b, const char *text, size_t n)
{
    struct gr_regex_flags f = {.anchors = true};
    struct gr_node *tree = gr_regex_parse(b, text, n, 0, f);
    struct gr_nfa a = {0};
    struct gr_list start = {0};
    uint32_t count;
    gr_pattern_emit(b, &a, tree, 0, false, &start);
    struct gr_grammar *g = b->g;
    g->rules = gr_alloc(b, sizeof *g->rules);
    g->n_rules = 1, g->root_rule = 0;
    g->rules[0].state = gr_fsa_build(b, &a, start.v, start.n, gr_label_any, NULL, &count);
    if (!g->rules[0].state) gr_fail(b, 0, "no text matches the regular expression");
}

/* ---- what rules begin with ---- */

static bool add_first(uint64_t *to, const uint64_t *from)
{
    bool changed = false;
    for (int i = 0; i < 4; i++) {
        changed |= (from[i] & ~to[i]) != 0;
        to[i] |= from[i];
    }
    return changed;
}

static void find_first(struct gr_build *b)
{
    struct gr_grammar *g = b->g;
    for (uint32_t i = 0; i < g->n_rules; i++)
        for (unsigned c = 0; c < 256 && g->rules[i].state; c++)
            if (gr_next(g, g->rules[i].state, (uint8_t)c)) gr_bit_set(g->rules[i].first, c);
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t i = 0; i < g->n_rules; i++) {
            const struct gr_fsa_state *s = &g->states[g->rules[i].state];
            for (uint32_t k = 0; k < s->n_calls; k++) {
                uint32_t callee = g->calls[s->calls + k].callee, n = callee & ~GR_CALL_JSON;
                changed |= add_first(g->rules[i].first, callee & GR_CALL_JSON ? g->values[n].first
                                                                              : g->rules[n].first);
            }
            gr_work(b, 1);
        }
    }
}

/* ---- entry ---- */

static void compile(struct gr_build *b, enum gr_kind kind, const char *text, size_t n)
{
    if (n > MAX_GRAMMAR_BYTES) gr_fail(b, 0, "the grammar's text is longer than 16 MiB");
    if (!utf8_is_valid((const uint8_t *)text, n)) gr_fail(b, 0, "not valid UTF-8");
    switch (kind) {
    case GR_REGEX: compile_regex(b, text, n); break;
    case GR_CHOICE: compile_choice(b, text, n); break;
    case GR_GBNF: gr_gbnf(b, text, n); break;
    case GR_LARK: gr_lark(b, text, n); break;
    case GR_STRUCTURAL_TAG: gr_structural_tag(b, text, n); break;
    case GR_JSON_SCHEMA: b->g->root_value = gr_schema(b, gr_read_json(b, text, n, 0)); break;
    case GR_JSON_OBJECT: {
        static const char any[] = "{\"type\": \"object\"}";
        b->g->root_value = gr_schema(b, gr_read_json(b, any, sizeof any - 1, 0));
        break;
    }
    }
    gr_schema_finish(b);
    find_first(b);
}

static bool start(struct gr_build *b, struct jinja_arena *arena)
{
    b->arena = arena;
    b->g = jinja_arena_alloc(arena, sizeof *b->g, 8);
    if (!b->g) return false;
    memset(b->g, 0, sizeof *b->g);
    b->g->arena = arena;
    b->g->o = b->o;
    b->g->root_rule = b->g->root_value = GR_NO_ROOT;
    return true;
}

/* Has no variables of its own: nothing that a jump could spoil. */
static bool try_compile(struct gr_build *b, enum gr_kind kind, const char *text, size_t n)
{
    if (setjmp(b->out_of_here)) return false;
    b->g->states = gr_alloc(b, sizeof *b->g->states); /* state 0 is "nowhere" */
    b->g->n_states = b->g->cap_states = 1;
    compile(b, kind, text, n);
    return true;
}

bool gr_compile(enum gr_kind kind, const char *text, size_t n, const struct gr_options *options,
                struct gr_grammar **out, struct gr_error *out_error)
{
    struct gr_build *b = calloc(1, sizeof *b);
    struct jinja_arena *arena = NULL;
    bool ok = false;
    *out = NULL;
    memset(out_error, 0, sizeof *out_error);
    memcpy(out_error->message, "out of memory", sizeof "out of memory");
    if (b) {
        b->o = with_defaults(options);
        b->error = out_error;
        arena = jinja_arena_create(b->o.max_memory_bytes);
    }
    ok = arena && start(b, arena) && try_compile(b, kind, text, n);
    if (ok) {
        *out = b->g;
        memset(out_error, 0, sizeof *out_error);
    } else if (arena) {
        jinja_arena_destroy(arena);
    }
    free(b);
    return ok;
}

void gr_destroy(struct gr_grammar *g)
{
    if (!g) return;
    jinja_arena_destroy(g->arena);
}

void gr_hash(enum gr_kind kind, const char *text, size_t n, const struct gr_options *options,
             uint64_t out[2])
{
    struct gr_options o = with_defaults(options);
    uint64_t words[] = {(uint64_t)kind, o.max_memory_bytes, o.max_states,  o.max_work,
                        o.max_configs,  o.max_text_bytes,   o.max_space, (uint64_t)o.space,
                        o.formats_annotate, o.few_escapes, n};
    for (int lane = 0; lane < 2; lane++) {
        uint64_t h = lane ? 0x243f6a8885a308d3u : 0x13198a2e03707344u, word = 0;
        for (size_t i = 0; i < sizeof words / sizeof *words; i++) h = gr_mix(h ^ words[i]);
        for (size_t i = 0; i < n; i++) {
            word = word << 8 | (uint8_t)text[i];
            if (i % 8 == 7 || i + 1 == n) h = gr_mix(h ^ word) + (uint64_t)lane, word = 0;
        }
        out[lane] = h;
    }
}
