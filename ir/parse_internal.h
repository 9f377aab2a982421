// SPDX-License-Identifier: Apache-2.0
/* Shared by ir/parse.c (modules, constants, functions) and ir/parse_op.c (blocks and ops). */
#ifndef INFC_IR_PARSE_INTERNAL_H
#define INFC_IR_PARSE_INTERNAL_H

#include "ir/lex.h"
#include "ir/op.h"

/* Nested regions; deeper text is hostile. */
#define IR_PARSE_MAX_DEPTH 32

/* Names visible in a block. A group's block does not see its surroundings. */
struct scope {
    struct map values;
    struct scope *outer;
    bool isolated;
    int depth;
};

struct parser {
    struct lexer x;
    struct ir_module *m;
    struct map consts; /* name -> struct ir_const */
    const char *resources;
    size_t resource_bytes;
};

/* `%name`: sets *name to it and *hint to NULL when it is a number. */
bool parse_value_name(struct parser *p, const char **name, const char **hint);
bool parse_define(struct parser *p, struct scope *s, const char *name, struct ir_value *v);
struct ir_const *parse_const_ref(struct parser *p);
/* Ops up to the closing brace, which is consumed. */
bool parse_block(struct parser *p, struct ir_block *b, struct scope *s);
/* Equal after both are made again: a range may have narrowed since one of them was made. */
bool parse_same_type(struct ir_module *m, const struct ir_type *a, const struct ir_type *b);

#endif
