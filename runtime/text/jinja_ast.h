// SPDX-License-Identifier: Apache-2.0
/*
 * The compiled template: arrays of nodes, lists and strings that refer to each other by index, so
 * the bytes can be embedded anywhere. Layout (host byte order, every part 4-byte aligned):
 *
 *   struct jinja_ast_header | nodes | lists (uint32_t) | strs (offset, length) | text bytes
 *
 * Invariants that jinja_template_open checks and the evaluator relies on:
 *   - a node refers only to nodes before it, so there is no cycle; node 0 is unused;
 *   - a list reference is the index of a count that is followed by that many words, all inside;
 *     lists[0] is 0, the empty list;
 *   - lists and strings do not overlap, strings are in range and valid UTF-8.
 * Slots and frame hops of names are checked when used.
 *
 * Records (all are lists):
 *   A  positional count, keyword count, *args node or 0, **kwargs node or 0,
 *      positional nodes..., then string, node per keyword
 *   P  operator (enum jinja_cmp), node, ...
 *   F  body list, else list, test node or 0, test target node or 0,
 *      body scope, else scope, test scope, loop slot + 1 or 0
 *   M  argument names (NAME nodes) list, defaults list, body list, scope,
 *      caller slot + 1 or 0, kwargs slot + 1 or 0, varargs slot + 1 or 0
 *   C  slot count, then per initial load: slot, enum jinja_load, name string or hops, 0 or slot
 */
#ifndef INFC_RUNTIME_TEXT_JINJA_AST_H
#define INFC_RUNTIME_TEXT_JINJA_AST_H

#include <stdint.h>

enum jinja_node_kind {
    JN_INVALID = 0,
#define NODE(kind, fields, what) JN_##kind,
#include "runtime/text/jinja_nodes.def"
#undef NODE
    JN_COUNT
};

enum jinja_cmp {
    JINJA_CMP_EQ,
    JINJA_CMP_NE,
    JINJA_CMP_LT,
    JINJA_CMP_LE,
    JINJA_CMP_GT,
    JINJA_CMP_GE,
    JINJA_CMP_IN,
    JINJA_CMP_NOTIN,
    JINJA_CMP_COUNT
};

/* How a scope's slot gets its first value. */
enum jinja_load { JINJA_LOAD_MISSING, JINJA_LOAD_RESOLVE, JINJA_LOAD_ALIAS, JINJA_LOAD_COUNT };

struct jinja_ast_node {
    uint32_t kind;
    uint32_t line;
    uint32_t a, b, c, d;
};

struct jinja_ast_str {
    uint32_t offset, len;
};

#define JINJA_AST_MAGIC 0x4a4e4a41u
#define JINJA_AST_VERSION 1u
#define JINJA_NO_STR 0xffffffffu

struct jinja_ast_header {
    uint32_t magic, version;
    uint32_t node_count, list_count, str_count, byte_count;
    uint32_t root_body;  /* list of statements */
    uint32_t root_scope; /* record C */
};

enum { JINJA_REC_A = 4, JINJA_REC_F = 8, JINJA_REC_M = 7, JINJA_REC_C = 1 };

#endif
