// SPDX-License-Identifier: Apache-2.0
/*
 * What the front ends share: memory that ends with the compilation, one way to fail, syntax trees
 * of regular expressions and rules, and their automata.
 *
 * Failing: gr_fail() does not return; it goes back to gr_compile(), which frees everything. That
 * is why nothing here holds memory outside the arena.
 */
#ifndef INFC_RUNTIME_GRAMMAR_BUILD_H
#define INFC_RUNTIME_GRAMMAR_BUILD_H

#include <setjmp.h>

#include "runtime/grammar/gr_internal.h"

struct jinja_arena;

struct gr_build {
    jmp_buf out_of_here;
    struct jinja_arena *arena; /* of the compilation */
    struct gr_grammar *g;
    struct gr_options o;
    struct gr_error *error;
    uint64_t work;
    const struct gr_rules *rules; /* those that calls mean, while automata are made */
    struct gr_maker *maker;       /* of gr_fsa.c, which makes one automaton at a time */
};

#if defined(__GNUC__)
#define GR_PRINTF(a, b) __attribute__((format(printf, a, b)))
#define GR_NORETURN __attribute__((noreturn))
#else
#define GR_PRINTF(a, b)
#define GR_NORETURN
#endif

GR_NORETURN void gr_fail(struct gr_build *b, size_t offset, const char *fmt, ...) GR_PRINTF(3, 4);
/* Memory or a limit ran out. */
GR_NORETURN void gr_fail_limit(struct gr_build *b, const char *what);
/* Counts steps; fails when there are too many. */
void gr_work(struct gr_build *b, uint64_t steps);
/* Zeroed, 8-byte aligned, never NULL. */
void *gr_alloc(struct gr_build *b, size_t bytes);
/* Makes room for one more in a growing array of the compilation. */
void *gr_grow(struct gr_build *b, void *v, uint32_t n, uint32_t *cap, size_t size);
#define GR_PUSH(b, list, item)                                                                     \
    ((void)((list)->n < (list)->cap ||                                                             \
            ((list)->v = gr_grow((b), (list)->v, (list)->n, &(list)->cap, sizeof *(list)->v),      \
             true)),                                                                               \
     (list)->v[(list)->n++] = (item))

/* ---- sets of code points ---- */

struct gr_range {
    uint32_t lo, hi;
};
struct gr_set {
    struct gr_range *v;
    uint32_t n, cap;
};
#define GR_UNICODE_MAX 0x10ffffu

void gr_set_add(struct gr_build *b, struct gr_set *s, uint32_t lo, uint32_t hi);
/* Sorts and joins. */
void gr_set_tidy(struct gr_set *s);
/* Everything else but surrogates. */
void gr_set_invert(struct gr_build *b, struct gr_set *s);
/* Both cases of ASCII letters. */
void gr_set_fold(struct gr_build *b, struct gr_set *s);

/* ---- trees ---- */

enum gr_node_kind {
    GR_EMPTY,  /* the empty text */
    GR_NEVER,  /* no text at all */
    GR_CHARS,  /* one code point of set */
    GR_BYTES,  /* one byte lo..hi */
    GR_CAT,    /* left right */
    GR_ALT,    /* left | right */
    GR_REPEAT, /* left{min,max} */
    GR_CALL,   /* rule `index`; with GR_CALL_JSON set a JSON value */
    GR_TABLE,  /* what the automaton in table accepts */
    GR_BEGIN,  /* ^ and $: only in patterns */
    GR_FINISH,
};
#define GR_MANY UINT32_MAX

struct gr_node {
    enum gr_node_kind kind;
    struct gr_node *left, *right;
    struct gr_set set;
    uint32_t min, max; /* of a repetition; of bytes */
    uint32_t index;
    const struct gr_table *table;
};

/* A deterministic automaton over bytes, from state 0; target 0 is nowhere, else a state + 1. */
struct gr_table {
    uint32_t n;
    uint16_t (*target)[256];
    bool *accepts;
};

struct gr_node *gr_node_new(struct gr_build *b, enum gr_node_kind kind);
struct gr_node *gr_node_cat(struct gr_build *b, struct gr_node *l, struct gr_node *r);
struct gr_node *gr_node_alt(struct gr_build *b, struct gr_node *l, struct gr_node *r);
struct gr_node *gr_node_repeat(struct gr_build *b, struct gr_node *l, uint32_t min, uint32_t max);
struct gr_node *gr_node_literal(struct gr_build *b, const char *s, size_t n, bool fold);
struct gr_node *gr_node_set(struct gr_build *b, const struct gr_set *s);
struct gr_node *gr_node_any(struct gr_build *b); /* any code point */

/* ---- regular expressions ---- */

struct gr_regex_flags {
    bool fold;     /* ASCII letters match both cases */
    bool dot_all;  /* . matches line feeds too */
    bool extended; /* Lark's x flag: white space and # comments mean nothing */
    bool anchors;  /* ^ and $ are possible: the tree is for gr_pattern_emit */
};

/* ECMA-262's syntax without look-around, back-references and most Unicode properties, with Python's
 * inline groups (?i:...). base: offset of the text for messages. */
struct gr_node *gr_regex_parse(struct gr_build *b, const char *text, size_t n, size_t base,
                               struct gr_regex_flags flags);

/* ---- automata ---- */

enum gr_nfa_kind { GR_NFA_EPS, GR_NFA_RANGE, GR_NFA_CALL, GR_NFA_ACCEPT };
struct gr_nfa_state {
    uint8_t kind, lo, hi;
    uint32_t a, b; /* EPS: both targets; RANGE: a; CALL: a target, b rule; ACCEPT: b tag */
};

struct gr_nfa {
    struct gr_nfa_state *v;
    uint32_t n, cap;
};

uint32_t gr_nfa_add(struct gr_build *b, struct gr_nfa *a, struct gr_nfa_state s);
/* States for the tree that go on at next; returns the first one. */
uint32_t gr_nfa_emit(struct gr_build *b, struct gr_nfa *a, const struct gr_node *n, uint32_t next);

/* States for one of n words; word i ends with tag tags[i], or at next where tags is NULL. Common
 * beginnings are shared, so a state has no more ways on than there are different bytes. */
struct gr_word {
    const char *s;
    uint32_t n, tag;
};
uint32_t gr_nfa_words(struct gr_build *b, struct gr_nfa *a, struct gr_word *words, uint32_t n);

/* The same for a pattern that may have ^ and $; with search a match anywhere in the text will do.
 * Its end has the tag; its first states are added to *start. */
void gr_pattern_emit(struct gr_build *b, struct gr_nfa *a, const struct gr_node *n, uint32_t tag,
                     bool search, struct gr_list *start);

/* What a deterministic state means by the tags of the accepting states inside it: 0 rejects. */
typedef uint32_t gr_label_fn(void *user, struct gr_build *b, const uint32_t *tags, uint32_t n);
/* Label 1 where any tag is there. */
uint32_t gr_label_any(void *user, struct gr_build *b, const uint32_t *tags, uint32_t n);

/* Adds the deterministic automaton of the states reachable from start[] to the grammar; states
 * from which nothing can be accepted are left out. Returns its first state, or 0 when it accepts
 * nothing. *out_n: how many states, numbered from the first one on. label must not make automata. */
uint32_t gr_fsa_build(struct gr_build *b, const struct gr_nfa *a, const uint32_t *start,
                      uint32_t n_start, gr_label_fn *label, void *user, uint32_t *out_n);
/* A table made elsewhere: n states, columns given by class_of[256]; target[i * n_cols + c] is a
 * state's number + 1, or 0. As gr_fsa_build otherwise. */
uint32_t gr_fsa_table(struct gr_build *b, uint32_t n, const uint8_t *class_of, uint32_t n_cols,
                      const uint32_t *target, const uint32_t *label, uint32_t *out_n);

/* ---- rules ---- */

struct gr_rule {
    const char *name;
    uint32_t n_name;
    struct gr_node *body; /* NULL: used and not defined */
    size_t offset;        /* where it was used or defined */
    bool nullable, productive;
    bool inlined;  /* calls are replaced by the body */
    uint32_t size; /* nodes with inlined rules written out */
};
struct gr_rules {
    struct gr_rule *v;
    uint32_t n, cap;
    uint32_t *index; /* hash of names: number + 1 */
    uint32_t index_cap;
};

/* The rule of this name, made when there is none. */
uint32_t gr_rules_get(struct gr_build *b, struct gr_rules *r, const char *name, size_t n,
                      size_t offset);
/* Turns the rules into the grammar's automata; the text is what rule root says. */
void gr_rules_finish(struct gr_build *b, struct gr_rules *r, uint32_t root);

/* ---- front ends ---- */

void gr_gbnf(struct gr_build *b, const char *text, size_t n);
void gr_lark(struct gr_build *b, const char *text, size_t n);
void gr_structural_tag(struct gr_build *b, const char *text, size_t n);
/* Parses; fails with the place. */
struct jinja_value;
const struct jinja_value *gr_read_json(struct gr_build *b, const char *text, size_t n, size_t base);
/* A value of the schema; the number of a value node. */
uint32_t gr_schema(struct gr_build *b, const struct jinja_value *schema);
/* After the last schema: what every node can still be, laid out for use. */
void gr_schema_finish(struct gr_build *b);

#endif
