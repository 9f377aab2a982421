// SPDX-License-Identifier: Apache-2.0
/*
 * A compiled grammar, and the configurations of a state.
 *
 * A configuration is (where, data, parent): where is a kind and a number, data is the kind's, and
 * parent is the configuration that goes on when this one is done. Parents make a stack; equal
 * configurations are one (hash-consing), so a set of stacks shares its tails.
 */
#ifndef INFC_RUNTIME_GRAMMAR_INTERNAL_H
#define INFC_RUNTIME_GRAMMAR_INTERNAL_H

#include "runtime/grammar/grammar.h"

/* ---- automata ---- */

struct gr_fsa_state {
    uint32_t row;     /* in trans[], one column a byte class */
    uint32_t classes; /* number of the byte classes' map */
    uint32_t label;   /* 0: does not accept */
    uint32_t calls, n_calls;
};

struct gr_call {
    uint32_t callee; /* rule number, or GR_CALL_JSON and a value node */
    uint32_t target; /* state that goes on; GR_CALL_LAST: the callee's end is this rule's end */
};
#define GR_CALL_JSON 0x80000000u
#define GR_CALL_LAST 0u

struct gr_rule_start {
    uint32_t state;
    uint64_t first[4]; /* bytes that a text of the rule may begin with */
};

/* ---- JSON ---- */

/* What a value may be. */
struct gr_value {
    bool can_null, can_true, can_false;
    uint32_t number; /* first state, 0: none */
    uint32_t *strings, n_strings;
    uint32_t *objects, n_objects;
    uint32_t *arrays, n_arrays;
    uint64_t first[4];
    bool possible; /* there is such a value */
};

struct gr_string {
    uint32_t start, n;         /* automaton of the decoded text */
    uint32_t first;            /* the first string with this automaton */
    uint32_t min_len, max_len; /* code points; GR_LEN_MANY: no end */
    uint32_t *shortest, *longest; /* [n] code points from a state to an accepting one; NULL: any
                                     length will do */
    uint8_t *room; /* [GR_SLICES][n] characters of the slice that may follow; NULL: none anywhere */
    bool has_room; /* while it is compiled: room is what it will be */
    uint32_t spare, far; /* the most that shortest is in states of endless room, in any state */
};
#define GR_LEN_MANY 0xfffffu

/* What the key read so far may become. */
struct gr_key_class {
    uint32_t name; /* number of the named key, GR_NO_NAME: any other key */
    uint32_t *values; /* [1 << popcount(wants)] value nodes by fulfilled wishes */
    uint32_t wants;   /* bit set of the wishes that such a key may fulfil */
    bool possible;
};
#define GR_NO_NAME UINT32_MAX
#define GR_MAX_WISHES 3u
#define GR_AHEAD_MANY 0xffffu /* or without end */

struct gr_object {
    uint32_t key;        /* number of the automaton of keys in strings[] */
    uint32_t n_names, n_words;
    uint64_t *required, *allowed; /* [n_words] */
    struct gr_key_class *classes; /* by label - 1 */
    uint32_t n_classes;
    uint64_t *reach; /* [states of key][n_words] names that a key may become */
    uint8_t *open;   /* [states of key] it may become a key without a name */
    uint8_t *room;   /* [GR_SLICES][states of key] as of strings: it stays open */
    uint32_t n_required, min, max;
    uint32_t n_wishes; /* each must be fulfilled by some key */
    bool distinct;     /* keys without a name are remembered, so that none counts twice */
    uint16_t *ahead;   /* with distinct, [states of key] keys without a name from there on */
    uint16_t least;    /* the least of these in an open state */
    bool possible;
};

struct gr_contains {
    uint32_t min, max; /* GR_LEN_MANY: no end */
};
#define GR_MAX_CONTAINS 2u

struct gr_array {
    uint32_t min, max;
    uint32_t n_places;  /* items 0..n_places-2 have nodes of their own, the last is for the rest */
    uint32_t *items;    /* [n_places][1 << n_contains]: by which contains it counts for */
    struct gr_contains contains[GR_MAX_CONTAINS];
    uint32_t n_contains;
    bool unique;
    bool possible;
};

/* ---- the whole ---- */

struct gr_grammar {
    struct jinja_arena *arena;
    struct gr_options o;

    struct gr_fsa_state *states;
    uint32_t n_states, cap_states;
    uint32_t *trans;
    uint32_t n_trans, cap_trans;
    uint8_t (*classes)[256];
    uint32_t n_classes, cap_classes;
    struct gr_call *calls;
    uint32_t n_calls, cap_calls;

    struct gr_rule_start *rules;
    uint32_t n_rules;
    uint32_t root_rule, root_value; /* one of them; GR_NO_ROOT: the other */

    struct gr_value *values;
    uint32_t n_values, cap_values;
    struct gr_string *strings;
    uint32_t n_strings, cap_strings;
    struct gr_object *objects;
    uint32_t n_objects, cap_objects;
    struct gr_array *arrays;
    uint32_t n_arrays, cap_arrays;
    void *schemas; /* while it is compiled: what the JSON front end remembers */

    bool needs_text; /* what may follow depends on the text so far beside the configurations */
};
#define GR_NO_ROOT UINT32_MAX
#define GR_NONE UINT32_MAX

static inline uint32_t gr_next(const struct gr_grammar *g, uint32_t state, uint8_t byte)
{
    const struct gr_fsa_state *s = &g->states[state];
    return g->trans[s->row + g->classes[s->classes][byte]];
}

static inline bool gr_bit(const uint64_t *bits, uint32_t i) { return bits[i / 64] >> i % 64 & 1; }
static inline void gr_bit_set(uint64_t *bits, uint32_t i) { bits[i / 64] |= UINT64_C(1) << i % 64; }

/* ---- configurations ---- */

enum gr_where {
    GR_AT_END,    /* the text is complete */
    GR_AT_RULE,   /* a state of a rule's automaton */
    GR_AT_VALUE,  /* before a JSON value; data: white space so far */
    GR_AT_WORD,   /* inside null, true, false; data: bytes so far */
    GR_AT_NUMBER, /* a state of a number's automaton */
    GR_AT_STRING, /* data: struct gr_text_at, packed */
    GR_AT_KEY,    /* the same; the number is the object's */
    GR_AT_OBJECT, /* data: phase, white space, value node, record */
    GR_AT_ARRAY,
    GR_AT_OUTSIDE, /* stands for an unknown parent while masks are prepared */
};

struct gr_config {
    uint32_t where; /* kind << 28 | number */
    uint32_t parent;
    uint64_t data;
    uint32_t stamp, added; /* steps that looked at it and that led to it last */
    uint32_t hash;
};
static inline uint32_t gr_where_of(enum gr_where kind, uint32_t n)
{
    return (uint32_t)kind << 28 | n;
}
static inline enum gr_where gr_kind_of(uint32_t where) { return (enum gr_where)(where >> 28); }
static inline uint32_t gr_number_of(uint32_t where) { return where & 0x0fffffffu; }

/* Inside a string: the automaton's state, how far an escape has come, characters so far. Keys count
 * the bytes of their text instead. */
struct gr_text_at {
    uint32_t state; /* from the automaton's first one: 18 bits */
    uint32_t phase; /* 4 bits */
    uint32_t hex;   /* digits so far: 12 bits */
    uint32_t high;  /* a high surrogate's 10 bits */
    uint32_t count; /* 20 bits */
};
enum gr_text_phase {
    GR_TEXT_PLAIN,
    GR_TEXT_BACKSLASH,
    GR_TEXT_HEX, /* .. GR_TEXT_HEX + 3: digits so far */
    GR_TEXT_LOW_BACKSLASH = GR_TEXT_HEX + 4,
    GR_TEXT_LOW_U,
    GR_TEXT_LOW_HEX, /* .. + 3 */
};
static inline uint64_t gr_text_pack(struct gr_text_at t)
{
    return (uint64_t)t.state | (uint64_t)t.phase << 18 | (uint64_t)t.hex << 22 |
           (uint64_t)t.high << 34 | (uint64_t)t.count << 44;
}
static inline struct gr_text_at gr_text_unpack(uint64_t d)
{
    return (struct gr_text_at){d & 0x3ffff, d >> 18 & 15, d >> 22 & 0xfff, d >> 34 & 0x3ff,
                               (uint32_t)(d >> 44)};
}
#define GR_MAX_STRING_STATES 0x3ffffu

/* Inside an object or array. */
enum gr_phase { GR_FIRST, GR_NEXT, GR_COLON, GR_AFTER };
struct gr_frame_at {
    uint32_t record; /* of gr_state.records */
    uint32_t phase;  /* 4 bits */
    uint32_t space;  /* 8 bits */
    uint32_t value;  /* 20 bits: the node behind the colon */
};
static inline uint64_t gr_frame_pack(struct gr_frame_at f)
{
    return (uint64_t)f.record | (uint64_t)f.phase << 32 | (uint64_t)f.space << 36 |
           (uint64_t)f.value << 44;
}
static inline struct gr_frame_at gr_frame_unpack(uint64_t d)
{
    return (struct gr_frame_at){(uint32_t)d, d >> 32 & 15, d >> 36 & 255, (uint32_t)(d >> 44)};
}
#define GR_MAX_VALUES 0xfffffu

struct gr_list {
    uint32_t *v;
    uint32_t n, cap;
};

/* A row of words: what an object or array has had so far. */
struct gr_record {
    uint32_t at, n;
    uint32_t hash;
};

struct gr_state {
    struct gr_grammar *g;
    struct gr_config *configs; /* [0] is the end, [1] the outside */
    uint32_t n_configs, cap_configs;
    uint32_t *index; /* hash: number + 1 */
    uint32_t index_cap;
    struct gr_record *records;
    uint32_t n_records, cap_records;
    uint64_t *words;
    uint32_t n_words, cap_words;
    uint32_t *record_index;
    uint32_t record_index_cap;
    struct gr_list now;
    uint32_t stamp;
    uint8_t *text; /* so far, where the grammar needs it */
    uint32_t n_text, cap_text;
    bool failed;  /* memory or a limit ran out in this step */
    bool outside; /* a step reached an unknown parent */
    struct gr_list scratch[2];
    struct gr_list levels; /* of a walk over the trie: sets one after the other */
    struct gr_masks *masks; /* of sets that were there before */
};

enum { GR_END = 0, GR_OUTSIDE = 1 };

/* Appends what becomes of `from` with this byte to *to. */
void gr_step(struct gr_state *s, const struct gr_list *from, uint8_t byte, struct gr_list *to);
void gr_step_config(struct gr_state *s, uint32_t c, uint8_t byte, struct gr_list *to);
/* The JSON kinds (gr_json.c). */
void gr_step_json(struct gr_state *s, uint32_t c, uint8_t byte, struct gr_list *to);
/* What is left of the parent p when an item of an array of different items has ended: `more` bytes
 * behind the text so far. GR_NONE when the item was there before. */
uint32_t gr_settle(struct gr_state *s, uint32_t p, uint32_t more);
/* Adds a configuration that there is. */
void gr_add_config(struct gr_state *s, uint32_t c, struct gr_list *to);
/* Steps the parent of c, which may end before this byte. */
void gr_step_parent(struct gr_state *s, uint32_t c, uint8_t byte, struct gr_list *to);
void gr_add(struct gr_state *s, uint32_t where, uint64_t data, uint32_t parent,
            struct gr_list *to);
/* The number of the configuration; GR_NONE without memory. */
uint32_t gr_config_get(struct gr_state *s, uint32_t where, uint64_t data, uint32_t parent);
uint32_t gr_record_get(struct gr_state *s, const uint64_t *words, uint32_t n);
bool gr_list_push(struct gr_state *s, struct gr_list *l, uint32_t x);
/* May the configuration end here? */
bool gr_may_end(struct gr_state *s, uint32_t c);

/* What was made after a mark is dropped: the trie is walked without leaving traces. */
struct gr_mark {
    uint32_t n_configs, n_records, n_words, n_text;
};
struct gr_mark gr_mark_get(const struct gr_state *s);
void gr_mark_drop(struct gr_state *s, struct gr_mark m);

/* Room for more bytes behind the text so far. */
bool gr_text_reserve(struct gr_state *s, uint32_t more);
/* Where a run of code points from lo on ends whose UTF-8 bytes are ranges independent of each
 * other; at most hi. Neither end is a surrogate. */
uint32_t gr_utf8_run_end(uint32_t lo, uint32_t hi);
/* Hash of a JSON value, equal for equal values: of 1, 1.0 and 10e-1, of members in any order. */
uint64_t gr_json_hash(const uint8_t *text, size_t n);
/* Of the text behind a string's opening quote: of what it means. */
uint64_t gr_string_hash(const uint8_t *text, size_t n);

/* Can a key whose automaton is in this state still become one that fits the frame's object? */
/* Its text so far are the n bytes before text[end]; what lies behind is overwritten. */
bool gr_key_alive(struct gr_state *s, const struct gr_object *o, uint32_t frame, uint32_t state,
                  uint32_t end, uint32_t n);
/* Keys of the frame's object may still have names that it does not know, wherever they are open. */
bool gr_key_open(const struct gr_state *s, const struct gr_object *o, uint32_t frame);
void gr_masks_destroy(struct gr_masks *m);

static inline uint64_t gr_mix(uint64_t h)
{
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93u;
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93u;
    return h ^ h >> 32;
}

#endif
