// SPDX-License-Identifier: Apache-2.0
/*
 * One instruction: the opcode by its longest known beginning, the words after it by tables, the
 * operands by the opcode's signature (ops.def). A word or operand that the tables do not foresee is an
 * error here, so that no modifier is ever ignored by mistake.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "tests/ptx/interp/machine.h"
#include "tests/ptx/interp/parse.h"

enum { MAX_OPERANDS = 12, MAX_VECTOR = 512 };

static const struct {
    const char *name, *sig;
    ptx_exec exec;
} op_table[PTX_N_OPS] = {
#define PTX_OP(e, name, sig, fn) {name, sig, fn},
#include "tests/ptx/interp/ops.def"
#undef PTX_OP
};

const char *ptx_op_name(unsigned op) { return op < PTX_N_OPS ? op_table[op].name : "?"; }

/* ---- words of the opcode ---- */

enum mod_what { MOD_cmp, MOD_sub, MOD_sub2, MOD_role, MOD_round, MOD_FLAG, MOD_IGNORE, MOD_LAYOUT };

static const struct {
    const char *name;
    enum mod_what what;
    uint32_t value;
} mod_table[] = {
#define PTX_MOD(name, what, value) {name, MOD_##what, value},
#include "tests/ptx/interp/mods.def"
#undef PTX_MOD
};

static const struct {
    const char *name;
    enum ptx_space space;
} space_table[] = {
    {"global", PTX_SPACE_GLOBAL}, {"const", PTX_SPACE_CONST}, {"shared", PTX_SPACE_SHARED},
    {"shared::cta", PTX_SPACE_SHARED}, {"shared::cluster", PTX_SPACE_CLUSTER},
    {"local", PTX_SPACE_LOCAL}, {"param", PTX_SPACE_PARAM}, {"param::entry", PTX_SPACE_PARAM},
};

static bool word_is(const char *w, int len, const char *text)
{
    return strlen(text) == (size_t)len && !memcmp(w, text, (size_t)len);
}

static bool decode_shape(const char *w, int len, struct ptx_insn *in)
{
    char text[24], *p = text;
    if (len >= (int)sizeof text || w[0] != 'm' || !isdigit((unsigned char)w[1])) return false;
    memcpy(text, w, (size_t)len);
    text[len] = 0;
    in->m = (uint16_t)strtoul(p + 1, &p, 10);
    if (*p != 'n') return false;
    in->n = (uint16_t)strtoul(p + 1, &p, 10);
    if (*p == 'k') in->k = (uint16_t)strtoul(p + 1, &p, 10);
    return !*p;
}

static bool decode_mod(const char *w, int len, struct ptx_insn *in)
{
    for (size_t i = 0; i < ARRAY_LEN(mod_table); i++) {
        if (!word_is(w, len, mod_table[i].name)) continue;
        uint32_t v = mod_table[i].value;
        switch (mod_table[i].what) {
        case MOD_cmp: in->cmp = (uint8_t)v; break;
        case MOD_sub: in->sub = (uint8_t)v; break;
        case MOD_sub2: in->sub2 = (uint8_t)v; break;
        case MOD_role: in->role = (uint8_t)v; break;
        case MOD_round: in->round = (uint8_t)v; break;
        case MOD_FLAG: in->flags |= v; break;
        case MOD_IGNORE: break;
        case MOD_LAYOUT:
            if (in->n_layouts == 2) return false;
            in->layouts[in->n_layouts++] = (uint8_t)v;
            break;
        }
        return true;
    }
    return false;
}

static bool decode_word(struct ptx_parser *ps, const char *w, int len, struct ptx_insn *in)
{
    enum ptx_type type;
    if (ptx_parse_type(w, len, &type)) {
        if (in->n_types == 4) return ptx_parse_fail(ps, in->line, "more than four types");
        in->types[in->n_types++] = (uint8_t)type;
        return true;
    }
    for (size_t i = 0; i < ARRAY_LEN(space_table); i++)
        if (word_is(w, len, space_table[i].name)) {
            if (in->n_spaces == 2) return ptx_parse_fail(ps, in->line, "more than two spaces");
            in->spaces[in->n_spaces++] = (uint8_t)space_table[i].space;
            return true;
        }
    if (len == 2 && (w[0] == 'v' || w[0] == 'x') && isdigit((unsigned char)w[1])) {
        *(w[0] == 'v' ? &in->vec : &in->count) = (uint8_t)(w[1] - '0');
        return true;
    }
    if (len == 2 && w[1] == 'd' && w[0] >= '1' && w[0] <= '5') {
        in->count = (uint8_t)(w[0] - '0');
        return true;
    }
    if (decode_shape(w, len, in) || decode_mod(w, len, in)) return true;
    return ptx_parse_fail(ps, in->line, "unsupported word '.%.*s' in '%.*s'", len, w, in->text_len,
                          in->text);
}

static bool decode_opcode(struct ptx_parser *ps, const char *w, int len, struct ptx_insn *in)
{
    int best = -1;
    size_t best_len = 0;
    for (int i = 0; i < PTX_N_OPS; i++) {
        size_t n = strlen(op_table[i].name);
        if (n > best_len && n <= (size_t)len && !memcmp(op_table[i].name, w, n) &&
            (n == (size_t)len || w[n] == '.')) {
            best = i;
            best_len = n;
        }
    }
    if (best < 0) return ptx_parse_fail(ps, in->line, "unsupported instruction '%.*s'", len, w);
    in->op = (uint16_t)best;
    in->exec = op_table[best].exec;
    for (const char *p = w + best_len, *end = w + len; p < end;) {
        const char *q = ++p; /* past the dot */
        while (q < end && *q != '.') q++;
        if (!decode_word(ps, p, (int)(q - p), in)) return false;
        p = q;
    }
    if (in->n_types == 0) in->types[0] = PTX_B32;
    if (in->n_types < 2) in->types[1] = in->types[0];
    return true;
}

/* ---- operands ---- */

/* Bytes of a constant that stands for an operand of this letter. */
static unsigned letter_bytes(const struct ptx_insn *in, char letter)
{
    unsigned first = ptx_types[in->types[0]].bytes > 4 ? 8 : 4;
    switch (letter) {
    case 'D':
    case 'A': return in->sub == PTX_SUB_WIDE && ptx_types[in->types[0]].bytes == 4 ? 8 : first;
    case 'S':
    case 'V': return first;
    case 'J': return ptx_types[in->types[1]].bytes > 4 ? 8 : 4;
    case 'Z': return 8;
    default: return 4;
    }
}

/* The address of a variable as a constant row. */
static int var_reg(struct ptx_parser *ps, const struct ptx_var *v, int64_t plus)
{
    uint64_t at = v->off;
    if (v->space == PTX_SPACE_SHARED && v->dynamic) {
        struct ptx_kernel *k = ps->fn;
        for (int i = 0; i < k->n_regs; i++)
            if (k->regs[i].fill == PTX_FILL_DYNAMIC_SHARED && k->regs[i].value == (uint64_t)plus) return i;
        int reg = ptx_parse_new_reg(ps, 8, false);
        if (reg < 0) return -1;
        k->regs[reg].fill = PTX_FILL_DYNAMIC_SHARED;
        k->regs[reg].value = (uint64_t)plus;
        return reg;
    }
    if (v->space == PTX_SPACE_SHARED) at += PTX_SHARED_BASE;
    return ptx_parse_const_reg(ps, at + (uint64_t)plus, 8);
}

static int param_reg(struct ptx_parser *ps, const char *name, int len)
{
    struct ptx_kernel *k = ps->fn;
    for (int i = 0; i < k->n_params; i++)
        if (word_is(name, len, k->params[i].name)) return ptx_parse_const_reg(ps, k->params[i].off, 8);
    return -1;
}

/* `+4`, `+-4`, `-4` after a name. */
static bool parse_offset(struct ptx_parser *ps, int64_t *out)
{
    uint64_t v;
    *out = 0;
    bool plus = ptx_parse_accept(ps, "+");
    if (!plus && !ptx_parse_is(ps, "-")) return true;
    if (!ptx_parse_number(ps, PTX_B64, &v)) return false;
    *out = (int64_t)v;
    return true;
}

/* A register, constant or variable; -1 in *out for `_`. */
static bool parse_scalar(struct ptx_parser *ps, unsigned bytes, enum ptx_type type, int *out)
{
    struct ptx_token t = ps->tok;
    if (t.kind == PTX_TOK_NUMBER || ptx_parse_is(ps, "-")) {
        uint64_t v;
        if (!ptx_parse_number(ps, type, &v)) return false;
        *out = ptx_parse_const_reg(ps, v, bytes);
        return *out >= 0;
    }
    if (t.kind != PTX_TOK_WORD)
        return ptx_parse_fail(ps, t.line, "operand expected, found '%.*s'", t.len > 40 ? 40 : t.len, t.start);
    ptx_parse_next(ps);
    if (word_is(t.start, t.len, "_")) {
        *out = -1;
        return true;
    }
    if (word_is(t.start, t.len, "WARP_SZ")) {
        *out = ptx_parse_const_reg(ps, 32, bytes);
        return *out >= 0;
    }
    *out = ptx_parse_find_reg(ps, t.start, t.len);
    if (*out >= 0) return true;
    struct ptx_var *v = ptx_parse_find_var(ps, t.start, t.len);
    int64_t plus;
    if (v) {
        if (!parse_offset(ps, &plus)) return false;
        *out = var_reg(ps, v, plus);
    } else {
        *out = param_reg(ps, t.start, t.len);
        if (*out < 0 && !ps->failed)
            return ptx_parse_fail(ps, t.line, "unknown name '%.*s'", t.len, t.start);
    }
    return *out >= 0;
}

static bool parse_list(struct ptx_parser *ps, unsigned bytes, enum ptx_type type, struct ptx_operand *o)
{
    int list[MAX_VECTOR], n = 0;
    if (!ptx_parse_expect(ps, "{")) return false;
    do {
        if (n == MAX_VECTOR) return ptx_parse_fail(ps, ps->tok.line, "vector too long");
        if (!parse_scalar(ps, bytes, type, &list[n])) return false;
        n++;
    } while (ptx_parse_accept(ps, ","));
    if (!ptx_parse_expect(ps, "}")) return false;
    int *copy = ptx_module_alloc(ps->mod, (size_t)n * sizeof *copy);
    if (!copy) return ptx_parse_fail(ps, ps->line, "out of memory");
    memcpy(copy, list, (size_t)n * sizeof *copy);
    o->regs = copy;
    o->n = n;
    return true;
}

/* `[base+offset]`, `[map, {x, y}]`. */
static bool parse_memory(struct ptx_parser *ps, struct ptx_operand *o)
{
    o->kind = PTX_OPERAND_MEM;
    o->reg2 = -1;
    if (!ptx_parse_expect(ps, "[") || !parse_scalar(ps, 8, PTX_B64, &o->reg)) return false;
    if (o->reg < 0) return ptx_parse_fail(ps, ps->tok.line, "address expected");
    if (!parse_offset(ps, &o->imm)) return false;
    if (ptx_parse_accept(ps, ",") && !parse_list(ps, 4, PTX_B32, o)) return false;
    return ptx_parse_expect(ps, "]");
}

static bool parse_operand(struct ptx_parser *ps, const struct ptx_insn *in, char letter,
                          struct ptx_operand *o)
{
    unsigned bytes = letter_bytes(in, letter);
    enum ptx_type type = letter == 'J' ? in->types[1] : in->types[0];
    *o = (struct ptx_operand){.reg = -1, .reg2 = -1};
    if (letter == 'M') return parse_memory(ps, o);
    if (ptx_parse_is(ps, "{")) {
        /* Halves of a mov or of a packed operand are as wide as they are declared. */
        unsigned part = in->op == PTX_OP_MOV ? 4 : bytes;
        return parse_list(ps, part, type, o);
    }
    if (letter == 'L') {
        o->kind = PTX_OPERAND_LABEL;
        struct ptx_fixup f = {.insn = ps->fn->n_insns, .scope = ps->scope, .name = ps->tok.start,
                              .len = ps->tok.len, .line = ps->tok.line};
        struct ptx_fixup *grown = ptx_parse_grow(ps, ps->fixups, ps->n_fixups, &ps->cap_fixups, sizeof f);
        if (!grown) return false;
        ps->fixups = grown;
        ps->fixups[ps->n_fixups++] = f;
        ptx_parse_next(ps);
        return true;
    }
    o->negated = ptx_parse_accept(ps, "!");
    if (!parse_scalar(ps, bytes, type, &o->reg)) return false;
    if (ptx_parse_accept(ps, "|") && !parse_scalar(ps, 4, PTX_PRED, &o->reg2)) return false;
    return true;
}

/* Do a register's width and kind suit the letter? Memory and cvt take wider registers as well. */
static bool check_operand(struct ptx_parser *ps, const struct ptx_insn *in, char letter,
                          const struct ptx_operand *o)
{
    if (o->kind != PTX_OPERAND_REG || o->n || o->reg < 0) return true;
    const struct ptx_reg *r = &ps->fn->regs[o->reg];
    bool pred = in->types[0] == PTX_PRED && strchr("DSV", letter);
    if (letter == 'P' || letter == 'Q' || pred) {
        if (r->predicate || (pred && r->fill == PTX_FILL_CONST)) return true;
        /* A predicate may be a constant where it is a source. */
        if (letter == 'P' && r->fill == PTX_FILL_CONST) return true;
        return ptx_parse_fail(ps, in->line, "predicate expected in '%.*s'", in->text_len, in->text);
    }
    if (letter == 'X') return true;
    if (r->predicate) return ptx_parse_fail(ps, in->line, "a predicate where a value belongs");
    if (strchr("DASI", letter) && r->bytes != letter_bytes(in, letter) && r->fill != PTX_FILL_SPECIAL &&
        !(letter == 'I' && r->bytes == 8 && r->fill == PTX_FILL_CONST))
        return ptx_parse_fail(ps, in->line, "operand width does not suit '%.*s'", in->text_len, in->text);
    return true;
}

/* The letter for the next operand; optional ones that do not fit are passed over. 0: no more. */
static char next_letter(const char **sig, bool memory)
{
    for (;;) {
        const char *s = *sig;
        bool optional = *s == '[';
        char letter = s[optional];
        if (!letter) return 0;
        bool fits = (letter == 'M') == memory;
        if (!optional && s[1] == '*') return letter;
        *sig = s + (optional ? 3 : 1);
        if (fits || !optional) return letter;
    }
}

static bool sig_complete(const char *sig)
{
    while (*sig) {
        if (sig[0] == '[') sig += 3;
        else if (sig[1] == '*') sig += 2;
        else return false;
    }
    return true;
}

static bool parse_operands(struct ptx_parser *ps, struct ptx_insn *in)
{
    struct ptx_operand list[MAX_OPERANDS];
    const char *sig = op_table[in->op].sig;
    while (!ptx_parse_is(ps, ";")) {
        if (in->n_ops && !ptx_parse_expect(ps, ",")) return false;
        char letter = next_letter(&sig, ptx_parse_is(ps, "["));
        if (!letter || in->n_ops == MAX_OPERANDS)
            return ptx_parse_fail(ps, in->line, "too many operands in '%.*s'", in->text_len, in->text);
        struct ptx_operand *o = &list[in->n_ops];
        if (!parse_operand(ps, in, letter, o) || !check_operand(ps, in, letter, o)) return false;
        in->n_ops++;
    }
    if (!sig_complete(sig))
        return ptx_parse_fail(ps, in->line, "operands missing in '%.*s'", in->text_len, in->text);
    in->ops = ptx_module_alloc(ps->mod, (in->n_ops ? in->n_ops : 1u) * sizeof *in->ops);
    if (!in->ops) return ptx_parse_fail(ps, ps->line, "out of memory");
    if (in->n_ops) memcpy(in->ops, list, in->n_ops * sizeof *in->ops);
    return true;
}

/* Row offsets are known only now that every register of the instruction exists. */
static void bind_rows(struct ptx_parser *ps, struct ptx_insn *in)
{
    for (int i = 0; i < in->n_ops; i++) {
        struct ptx_operand *o = &in->ops[i];
        if (o->reg < 0 || o->kind == PTX_OPERAND_LABEL) continue;
        o->off = ps->fn->regs[o->reg].off;
        o->bytes = ps->fn->regs[o->reg].bytes;
    }
}

bool ptx_parse_insn(struct ptx_parser *ps, int guard, bool guard_negated)
{
    struct ptx_kernel *k = ps->fn;
    struct ptx_token t = ps->tok;
    if (t.kind != PTX_TOK_WORD) return ptx_parse_fail(ps, t.line, "instruction expected");
    struct ptx_insn in = {.guard = guard, .guard_negated = guard_negated, .line = t.line, .text = t.start};
    const char *semi = memchr(t.start, ';', (size_t)(ps->end - t.start));
    long text_len = (semi ? semi : ps->end) - t.start;
    in.text_len = text_len > 160 ? 160 : (int)text_len;
    ptx_parse_next(ps);
    if (!decode_opcode(ps, t.start, t.len, &in) || !parse_operands(ps, &in)) return false;
    bind_rows(ps, &in);
    struct ptx_insn *grown = ptx_parse_grow(ps, k->insns, k->n_insns, &ps->cap_insns, sizeof in);
    if (!grown) return false;
    k->insns = grown;
    k->insns[k->n_insns++] = in;
    const char *problem = ptx_check_insn(&k->insns[k->n_insns - 1], k);
    if (problem) return ptx_parse_fail(ps, in.line, "%s in '%.*s'", problem, in.text_len, in.text);
    return ptx_parse_expect(ps, ";");
}
