// SPDX-License-Identifier: Apache-2.0
/*
 * JSON Schema to value nodes (gr_internal.h), in four steps:
 *
 *   js_schema.c   where subschemas are, what references mean
 *   js_clauses.c  a schema, or its opposite, to a list of clauses of which one must hold;
 *                 js_keywords.c has a function for each keyword
 *   js_value.c    the clauses of a place to automata and frames: js_text.c strings, js_number.c
 *                 numbers, js_object.c, js_array.c
 *   js_value.c    what is possible at all, so that nothing leads into a dead end
 *
 * A clause is a set of types and a list of atoms that must all hold. An atom speaks of one type
 * and holds for every value of another one. Opposites are pushed down to the atoms, so
 * `not`, `oneOf`, `if` need no machinery of their own; what grows too large on the way is refused
 * at the keyword where it happens.
 */
#ifndef INFC_RUNTIME_GRAMMAR_JS_H
#define INFC_RUNTIME_GRAMMAR_JS_H

#include "runtime/grammar/gr_build.h"
#include "runtime/text/jinja_value.h"

struct js_text {
    const char *s;
    uint32_t n;
};

enum js_draft { JS_DRAFT4, JS_DRAFT6, JS_DRAFT7, JS_DRAFT2019, JS_DRAFT2020 };

/* "The value fits the schema", or the opposite. schema NULL: any value fits. */
struct js_schema;
struct js_literal {
    struct js_schema *schema;
    bool opposite;
};

struct js_literals {
    struct js_literal *v;
    uint32_t n, cap;
};

/* A place in the document. */
struct js_schema {
    const struct jinja_value *v;
    struct js_schema *parent;
    struct js_text key; /* in the parent, or index */
    uint32_t index;     /* GR_NONE: key */
    uint32_t id;
    uint32_t scope; /* what dynamic references mean here: number of j->scopes + 1; 0: what they say */
    struct js_text base; /* URI of the resource it belongs to, without fragment */
    enum js_draft draft;
    struct js_clauses *clauses[2]; /* of the schema and of its opposite */
    bool busy[2];                  /* being made: a schema that is itself, without end */
    struct js_literals either;     /* some: made up here; one of them holds */
};

enum {
    JS_NULL = 1,
    JS_TRUE = 2,
    JS_FALSE = 4,
    JS_NUMBER = 8,
    JS_STRING = 16,
    JS_ARRAY = 32,
    JS_OBJECT = 64,
    JS_ALL = 127
};

struct js_decimal {
    bool negative;
    const uint8_t *digits; /* 0..9; no zero at either end of the number */
    uint32_t n_int, n_frac;
};

enum js_atom_kind {
    /* numbers */
    JS_INTEGER,  /* strict: written without a point, as draft 4 has it */
    JS_LEAST,    /* at least number; strict: more */
    JS_MOST,     /* at most number; strict: less */
    JS_MULTIPLE, /* of number */
    JS_NUMBERS,  /* one of numbers */
    /* strings */
    JS_PATTERN, /* matches tree; search: anywhere */
    JS_LENGTH,  /* min to max code points */
    JS_STRINGS, /* one of texts */
    /* arrays */
    JS_ITEMS,    /* items number min to max (not included) fit */
    JS_COUNT,    /* min to max items */
    JS_CONTAINS, /* of the items from `from` on, min to max fit */
    JS_UNIQUE,
    /* objects */
    JS_MEMBER,   /* the member texts[0], if it is there, fits */
    JS_REQUIRED, /* the member texts[0] is there */
    JS_MEMBERS,  /* members whose key matches tree fit */
    JS_REST,     /* members that are neither in texts nor match trees fit */
    JS_NAMES,    /* keys fit */
    JS_SIZE,     /* min to max members */
    JS_SOME_MEMBERS, /* some member whose key matches tree fits */
    JS_SOME_REST,
    JS_SOME_NAME, /* some key fits */
};

struct js_atom {
    enum js_atom_kind kind;
    bool opposite; /* numbers and strings only */
    bool strict, search;
    uint32_t min, max, from; /* GR_LEN_MANY: no end */
    struct js_decimal number, *numbers;
    uint32_t n_numbers;
    struct js_text *texts;
    uint32_t n_texts;
    struct gr_node *tree, **trees;
    uint32_t n_trees;
    struct js_literal fits;
    struct js_schema *at; /* for messages */
    const char *keyword;
};

struct js_atoms {
    const struct js_atom **v;
    uint32_t n, cap;
};

struct js_clause {
    uint32_t types;
    struct js_atoms atoms;
    struct js_atoms seen; /* of them, those that "unevaluated" asks about */
    uint64_t sign;        /* in a list: a bit for each atom, by its address; several may share one */
};

struct js_clauses {
    struct js_clause *v;
    uint32_t n, cap;
};
enum { JS_MAX_CLAUSES = 300, JS_MAX_DEPTH = 1000 /* of schemas that refer to each other: a bound on the stack */ };

struct js_resource {
    struct js_text uri, anchor; /* anchor empty: the resource itself */
    struct js_schema *schema;
    bool dynamic, twice; /* twice: another schema has the same names */
};

struct js_node {
    struct js_literals literals;
    uint32_t hash;
};

struct js {
    struct gr_build *b;
    struct {
        struct js_schema **v;
        uint32_t n, cap;
    } schemas;
    struct js_schema **by_value; /* hash by address */
    uint32_t by_value_cap;
    struct {
        struct js_resource *v;
        uint32_t n, cap;
    } resources;
    struct {
        struct js_text *v;
        uint32_t n, cap;
    } names; /* dynamic anchors of which there are several */
    struct {
        struct js_schema ***v; /* for each name the schema that it means, or NULL: the one that is asked for */
        uint32_t n, cap, first; /* first: of this document */
    } scopes;
    uint32_t n_ids;
    uint32_t depth; /* schemas in whose middle js_clauses_of is */
    bool annotated; /* the document has unevaluated...: which branches hold must be known */
    struct {
        struct js_node *v;
        uint32_t n, cap;
    } nodes; /* beside the grammar's values */
    uint32_t *node_index, node_index_cap;
    uint32_t n_built;
    bool unique; /* some array's items must differ: keys of all objects are told apart */
    struct {
        struct js_made {
            const struct js_atom **atoms;
            uint32_t n, number;
        } * v;
        uint32_t n, cap;
    } texts, objects, arrays, numbers; /* what was made of which atoms */
    struct {
        struct js_pattern {
            struct js_text text;
            bool format;
            struct js_atom *atom;
        } * v;
        uint32_t n, cap;
    } patterns; /* equal ones are one atom, so that their automata are made once */
    uint32_t any_number;
};

GR_NORETURN void js_fail(struct js *j, const struct js_schema *at, const char *keyword,
                         const char *fmt, ...) GR_PRINTF(4, 5);

static inline bool js_same(struct js_text a, struct js_text b)
{
    bool same = a.n == b.n;
    for (uint32_t i = 0; same && i < a.n; i++) same = a.s[i] == b.s[i];
    return same;
}

/* Where a regular expression that is refused stands. */
void js_pattern_place(struct js *j, const struct js_schema *at, const char *keyword);

/* ---- js_schema.c ---- */

struct js_schema *js_schema_root(struct js *j, const struct jinja_value *v);
/* The place of a value inside that of its parent; key or index. */
struct js_schema *js_schema_child(struct js *j, struct js_schema *parent,
                                  const struct jinja_value *v, struct js_text key, uint32_t index);
struct js_schema *js_schema_member(struct js *j, struct js_schema *s, const char *keyword);
/* A schema made up here, which stands where s stands. */
struct js_schema *js_schema_made(struct js *j, struct js_schema *s, const struct jinja_value *v);
/* One that fits where one of the literals holds; it stands where s stands. */
struct js_schema *js_schema_either(struct js *j, struct js_schema *s, struct js_literals l);
const struct jinja_value *js_get(const struct js_schema *s, const char *keyword);
/* dynamic: a dynamic anchor means the outermost one of its name on the way here. */
struct js_schema *js_resolve(struct js *j, struct js_schema *s, const char *keyword,
                             struct js_text ref, bool dynamic);

/* ---- js_clauses.c ---- */

const struct js_clauses *js_clauses_of(struct js *j, struct js_schema *s, bool opposite);
/* All of the literals. */
struct js_clauses *js_clauses_all(struct js *j, const struct js_literals *l);
struct js_clauses *js_clauses_new(struct js *j); /* none: nothing fits */
void js_clauses_add(struct js *j, struct js_clauses *c, struct js_clause x, struct js_schema *at,
                    const char *keyword);
void js_clauses_or(struct js *j, struct js_clauses *c, const struct js_clauses *x,
                   struct js_schema *at, const char *keyword);
struct js_clauses *js_clauses_and(struct js *j, const struct js_clauses *x,
                                  const struct js_clauses *y, struct js_schema *at,
                                  const char *keyword);
/* One clause of one atom; types: those that it leaves. seen: it counts as evaluated. */
struct js_clauses *js_clauses_atom(struct js *j, uint32_t types, const struct js_atom *a,
                                   bool seen);
/* Certainly no value; the other answer may be wrong. */
bool js_is_empty(struct js *j, const struct js_clauses *c, unsigned depth);

/* ---- js_keywords.c ---- */

/* The clauses of one keyword, or of its opposite; NULL: it says nothing. */
struct js_clauses *js_keyword(struct js *j, struct js_schema *s, struct js_text name,
                              const struct jinja_value *v, bool opposite);
bool js_is_text(struct js_text name, const char *s);

/* ---- js_format.c ---- */

/* The tree of a format, or NULL when it is unknown. No text that is in it is not in the format; opposite: none of
 * the format is not in it. */
struct gr_node *js_format(struct gr_build *b, struct js_text name, bool opposite);

/* ---- numbers ---- */

/* The decimal of a JSON number. */
struct js_decimal js_decimal_of(struct js *j, const struct jinja_value *v);
bool js_decimal_equal(const struct js_decimal *a, const struct js_decimal *b);
/* A whole number of at least 0 that fits, else false. */
bool js_decimal_small(const struct js_decimal *d, uint32_t *out);

/* ---- what is made of clauses ---- */

uint32_t js_node(struct js *j, const struct js_literals *l);
/* Automata of the clauses' strings, as numbers of strings[]. */
void js_make_strings(struct js *j, const struct js_clauses *c, struct gr_value *v);
void js_make_number(struct js *j, const struct js_clauses *c, struct gr_value *v);
uint32_t js_make_object(struct js *j, const struct js_clause *c);
uint32_t js_make_array(struct js *j, const struct js_clause *c);
/* The states of the automata of an and of atoms about strings: their tags, from *n_tags on. */
void js_emit_atom(struct js *j, struct gr_nfa *a, const struct js_atom *x, uint32_t tag,
                  struct gr_list *start);
/* strings[] entry for an automaton. */
uint32_t js_add_string(struct js *j, uint32_t start, uint32_t n, uint32_t min, uint32_t max);
/* gr_string.room; possible: states that count as ones to go on in, NULL: all. */
uint8_t *js_find_room(struct js *j, const struct gr_string *s, const uint8_t *possible);
void js_object_finish(struct js *j, struct gr_object *o);
bool js_object_possible(const struct gr_grammar *g, const struct gr_object *o);
void js_array_finish(struct js *j, struct gr_array *a);
bool js_array_possible(const struct gr_grammar *g, const struct gr_array *a);
/* Atoms of the kinds first..last. */
struct js_atoms js_atoms_of(struct js *j, const struct js_clause *c, enum js_atom_kind first,
                            enum js_atom_kind last);

#endif
