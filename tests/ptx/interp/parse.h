// SPDX-License-Identifier: Apache-2.0
/* The parser's state, shared by parse.c (declarations, blocks) and decode.c (instructions). */
#ifndef INFC_TESTS_PTX_INTERP_PARSE_H
#define INFC_TESTS_PTX_INTERP_PARSE_H

#include "ir/support/compiler.h"
#include "tests/ptx/interp/module.h"

/* Real kernels stay two orders of magnitude below: a text with more is hostile. */
enum { PTX_MAX_REGS = 4000000 };

enum ptx_token_kind { PTX_TOK_END, PTX_TOK_WORD, PTX_TOK_NUMBER, PTX_TOK_STRING, PTX_TOK_PUNCT };

struct ptx_token {
    enum ptx_token_kind kind;
    const char *start;
    int len, line;
};

/* `%r<18>` declares a range, `.reg .pred p` one name (count -1). */
struct ptx_reg_range {
    const char *name;
    int len, first, count;
};

struct ptx_label {
    const char *name;
    int len;
    uint32_t pc;
    const uint32_t *table; /* .branchtargets */
    uint32_t n_table;
};

struct ptx_scope {
    struct ptx_scope *up;
    struct ptx_reg_range *ranges;
    int n_ranges, cap_ranges;
    struct ptx_label *labels;
    int n_labels, cap_labels;
    struct ptx_var *vars;
    int n_vars, cap_vars;
};

struct ptx_fixup {
    uint32_t *where;       /* an entry of a branch table, or NULL: the target of instruction insn */
    int insn;              /* index: the array still moves while it grows */
    struct ptx_scope *scope;
    const char *name;
    int len, line;
};

struct ptx_parser {
    struct ptx_machine *m;
    struct ptx_module *mod;
    const char *p, *end;
    int line;
    struct ptx_token tok;
    bool failed;
    struct ptx_kernel *fn;
    struct ptx_scope *scope;
    int cap_insns, cap_regs, cap_funcs, cap_vars;
    struct ptx_fixup *fixups;
    int n_fixups, cap_fixups;
    /* Tables of brx.idx are found by label when the function ends. */
    struct ptx_fixup *tables;
    int n_tables, cap_tables;
};

bool ptx_parse_fail(struct ptx_parser *ps, int line, const char *format, ...)
    INFC_PRINTF(3, 4);
void ptx_parse_next(struct ptx_parser *ps);
bool ptx_parse_is(const struct ptx_parser *ps, const char *text);
bool ptx_parse_accept(struct ptx_parser *ps, const char *text);
bool ptx_parse_expect(struct ptx_parser *ps, const char *text);
/* An integer or float constant, sign included, as bits of a value of this type. */
bool ptx_parse_number(struct ptx_parser *ps, enum ptx_type type, uint64_t *out);
bool ptx_parse_type(const char *word, int len, enum ptx_type *out);

/* Makes room for one more element of an array that lives in the module. */
void *ptx_parse_grow(struct ptx_parser *ps, void *array, int n, int *cap, size_t bytes);

int ptx_parse_new_reg(struct ptx_parser *ps, unsigned bytes, bool predicate);
int ptx_parse_const_reg(struct ptx_parser *ps, uint64_t value, unsigned bytes);
int ptx_parse_find_reg(struct ptx_parser *ps, const char *name, int len);
/* A variable of a block, and where it lies in the kernel that is being parsed. */
struct ptx_var *ptx_parse_add_var(struct ptx_parser *ps, struct ptx_scope *s, const struct ptx_var *v);
bool ptx_parse_place_var(struct ptx_parser *ps, struct ptx_var *v);
struct ptx_var *ptx_parse_find_var(struct ptx_parser *ps, const char *name, int len);

/* One instruction, its guard already read; the token is the opcode. */
bool ptx_parse_insn(struct ptx_parser *ps, int guard, bool guard_negated);

#endif
