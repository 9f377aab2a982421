// SPDX-License-Identifier: Apache-2.0
/*
 * Regular expressions of pre-tokenizers, compiled to DFAs over classes of code points.
 *
 * Dialect: what tokenizer.json files use. Leftmost, alternatives in order, greedy and lazy
 * repetition, classes with negation, nesting and &&, \p{...}, (?i:...), lookahead, one-character
 * lookbehind, ^ $ \A \z \b \B. Back-references, possessive repetition, atomic groups and longer
 * lookbehind are refused.
 *
 * How: pattern -> syntax tree -> program of split/set/assert instructions -> DFA whose states are
 * ordered lists of instructions (order is priority, so the first alternative wins as in a
 * backtracking matcher, in linear time). An assertion on the next character needs no backtracking
 * either, because a state is expanded only when the next character's class is known. A longer
 * lookahead is a DFA of its own that runs backwards over the text beforehand and leaves one bit a
 * position.
 */
#ifndef INFC_COMPILER_TOK_REGEX_H
#define INFC_COMPILER_TOK_REGEX_H

#include "compiler/tok/unidata.h"
#include "runtime/abi/tok_format.h"

#define RX_MAX_CLASSES 250u
#define RX_MAX_INSTS 20000u
#define RX_MAX_STATES 12000u
#define RX_MAX_DEPTH 100u

enum rx_node_kind {
    RX_EMPTY,
    RX_SET,    /* one code point of sets[index] */
    RX_CAT,    /* kid[0] kid[1] */
    RX_ALT,    /* kid[0] | kid[1] */
    RX_REPEAT, /* kid[0]{min,max}; max RX_MANY has no end */
    RX_ASSERT,
};
#define RX_MANY 0xffffffffu

enum rx_assert_kind {
    RX_NEXT_IN,   /* next code point is in the set; at_edge: or there is none */
    RX_PREV_IN,   /* the same for the one before */
    RX_WORD_EDGE, /* \b; negate: \B */
    RX_LOOK,      /* lookahead number index; negate: it fails */
};

struct rx_node {
    enum rx_node_kind kind;
    struct rx_node *kid[2];
    uint32_t index; /* set or lookahead */
    uint32_t min, max;
    bool lazy;
    enum rx_assert_kind assertion;
    bool negate, at_edge;
};

/* What the patterns of one tokenizer share. */
struct rx {
    struct arena *arena;
    VEC(struct uniset) sets; /* each different set once */
    char *error;             /* first problem found; NULL while there is none */
    uint32_t word_set;       /* index of \w when some pattern has \b, else RX_MANY */
    /* Set by rx_partition: */
    uint32_t n_classes;
    uint16_t *stage1; /* [0x1100] */
    uint8_t *stage2;
    uint32_t n_blocks;
    uint8_t *members; /* [sets.n * n_classes]: is the class inside the set? */
};

struct rx_pattern {
    struct rx_node *root;
    struct rx_node *look[TOK_MAX_LOOKS];
    uint32_t n_looks;
};

struct rx_dfa {
    uint32_t n_states, n_cols;
    uint16_t *trans, *start;
};

struct rx_compiled {
    struct rx_dfa match, filter, look[TOK_MAX_LOOKS];
    uint32_t n_looks;
};

/* Parses every pattern first (rx_parse), then rx_partition once, then rx_compile each. False after
 * an error. */
bool rx_parse(struct rx *rx, const char *text, size_t len, struct rx_pattern *out);
bool rx_partition(struct rx *rx);
bool rx_compile(struct rx *rx, const struct rx_pattern *p, struct rx_compiled *out);
/* Records the first error; always false. */
bool rx_fail(struct rx *rx, const char *fmt, ...) INFC_PRINTF(2, 3);

#endif
