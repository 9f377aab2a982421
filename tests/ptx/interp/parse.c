// SPDX-License-Identifier: Apache-2.0
/*
 * PTX text to a module: tokens, declarations, blocks and labels. Names are in names.c, instructions
 * go to decode.c.
 */
#include "tests/ptx/interp/parse.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/ptx/interp/machine.h"

/* A text beyond these is hostile: real kernels stay two orders of magnitude below. */
enum { MAX_REGS = PTX_MAX_REGS, MAX_DEPTH = 64, MAX_VAR_BYTES = 1 << 28 };

const struct ptx_type_info ptx_types[PTX_N_TYPES] = {
#define PTX_TYPE(e, s, b, c) {s, b, PTX_CLASS_##c},
#include "tests/ptx/interp/types.def"
#undef PTX_TYPE
};

struct ptx_block {
    struct ptx_block *next;
    size_t used, cap;
    uint64_t data[];
};

void *ptx_module_alloc(struct ptx_module *mod, size_t bytes)
{
    size_t need = (bytes + 15) & ~(size_t)15;
    struct ptx_block *b = mod->blocks;
    if (need < bytes) return NULL;
    if (!b || b->cap - b->used < need) {
        size_t cap = need > 65536 ? need : 65536;
        b = calloc(1, sizeof *b + cap);
        if (!b) return NULL;
        b->cap = cap;
        b->next = mod->blocks;
        mod->blocks = b;
    }
    void *p = (char *)b->data + b->used;
    b->used += need;
    return p;
}

void ptx_module_free(struct ptx_module *mod)
{
    while (mod->blocks) {
        struct ptx_block *b = mod->blocks;
        mod->blocks = b->next;
        free(b);
    }
    free(mod);
}

bool ptx_parse_fail(struct ptx_parser *ps, int line, const char *format, ...)
{
    char text[400];
    va_list ap;
    if (ps->failed) return false;
    ps->failed = true;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    ptx_fault_at(ps->m, PTX_FAULT_PARSE, line, "PTX line %d: %s", line, text);
    return false;
}

void *ptx_parse_grow(struct ptx_parser *ps, void *array, int n, int *cap, size_t bytes)
{
    if (n < *cap) return array;
    int new_cap = *cap ? *cap * 2 : 16;
    void *copy = new_cap > MAX_REGS ? NULL : ptx_module_alloc(ps->mod, (size_t)new_cap * bytes);
    if (!copy) {
        ptx_parse_fail(ps, ps->line, "out of memory");
        return NULL;
    }
    if (n) memcpy(copy, array, (size_t)n * bytes);
    *cap = new_cap;
    return copy;
}

/* ---- tokens ---- */

static bool word_char(const char *p, const char *end)
{
    return isalnum((unsigned char)*p) || *p == '_' || *p == '$' || *p == '%' ||
           (*p == '.' && p + 1 < end && (isalnum((unsigned char)p[1]) || p[1] == '_')) ||
           (*p == '-' && end - p > 4 && !strncmp(p, "-src", 4)); /* .ignore-src */
}

static void skip_space(struct ptx_parser *ps)
{
    while (ps->p < ps->end) {
        if (*ps->p == '\n') ps->line++;
        if (isspace((unsigned char)*ps->p)) {
            ps->p++;
        } else if (ps->end - ps->p > 1 && ps->p[0] == '/' && ps->p[1] == '/') {
            while (ps->p < ps->end && *ps->p != '\n') ps->p++;
        } else if (ps->end - ps->p > 1 && ps->p[0] == '/' && ps->p[1] == '*') {
            for (ps->p += 2; ps->p < ps->end; ps->p++) {
                if (*ps->p == '\n') ps->line++;
                if (ps->end - ps->p > 1 && ps->p[0] == '*' && ps->p[1] == '/') break;
            }
            ps->p += ps->end - ps->p > 1 ? 2 : 0;
        } else {
            break;
        }
    }
}

void ptx_parse_next(struct ptx_parser *ps)
{
    skip_space(ps);
    struct ptx_token *t = &ps->tok;
    *t = (struct ptx_token){.start = ps->p, .line = ps->line};
    if (ps->p >= ps->end) return;
    char c = *ps->p;
    if (isdigit((unsigned char)c)) {
        t->kind = PTX_TOK_NUMBER;
        while (ps->p < ps->end && (isalnum((unsigned char)*ps->p) || *ps->p == '.')) ps->p++;
    } else if (c == '"') {
        t->kind = PTX_TOK_STRING;
        for (ps->p++; ps->p < ps->end && *ps->p != '"'; ps->p++)
            if (*ps->p == '\n') ps->line++;
        if (ps->p < ps->end) ps->p++;
    } else if (word_char(ps->p, ps->end)) {
        t->kind = PTX_TOK_WORD;
        while (ps->p < ps->end) {
            if (word_char(ps->p, ps->end)) ps->p++;
            else if (ps->end - ps->p > 2 && ps->p[0] == ':' && ps->p[1] == ':') ps->p += 2;
            else break;
        }
    } else {
        t->kind = PTX_TOK_PUNCT;
        ps->p++;
    }
    t->len = (int)(ps->p - t->start);
}

bool ptx_parse_is(const struct ptx_parser *ps, const char *text)
{
    return ps->tok.kind != PTX_TOK_END && strlen(text) == (size_t)ps->tok.len &&
           !memcmp(ps->tok.start, text, (size_t)ps->tok.len);
}

bool ptx_parse_accept(struct ptx_parser *ps, const char *text)
{
    if (!ptx_parse_is(ps, text)) return false;
    ptx_parse_next(ps);
    return true;
}

bool ptx_parse_expect(struct ptx_parser *ps, const char *text)
{
    if (ptx_parse_accept(ps, text)) return true;
    int len = ps->tok.len > 40 ? 40 : ps->tok.len;
    return ptx_parse_fail(ps, ps->tok.line, "'%s' expected, found '%.*s'", text, len, ps->tok.start);
}

bool ptx_parse_number(struct ptx_parser *ps, enum ptx_type type, uint64_t *out)
{
    bool negative = ptx_parse_accept(ps, "-");
    char text[64];
    if (ps->tok.kind != PTX_TOK_NUMBER || ps->tok.len >= (int)sizeof text)
        return ptx_parse_fail(ps, ps->tok.line, "number expected, found '%.*s'",
                              ps->tok.len > 40 ? 40 : ps->tok.len, ps->tok.start);
    memcpy(text, ps->tok.start, (size_t)ps->tok.len);
    text[ps->tok.len] = 0;
    char *end, *digits = text;
    errno = 0;
    if (text[0] == '0' && strchr("fFdD", text[1]) && text[1]) {
        *out = strtoull(text + 2, &end, 16);
        if (negative) *out ^= tolower((unsigned char)text[1]) == 'f' ? UINT64_C(1) << 31 : UINT64_C(1) << 63;
    } else if (strchr(text, '.')) {
        double d = strtod(text, &end);
        float f = (float)(negative ? -d : d);
        uint32_t bits;
        memcpy(&bits, &f, 4);
        *out = bits;
        if (ptx_types[type].bytes == 8) {
            if (negative) d = -d;
            memcpy(out, &d, 8);
        }
    } else {
        bool binary = text[0] == '0' && (text[1] == 'b' || text[1] == 'B');
        *out = strtoull(binary ? digits + 2 : digits, &end, binary ? 2 : 0);
        if (*end == 'U') end++;
        if (negative) *out = 0 - *out;
    }
    if (*end || errno) return ptx_parse_fail(ps, ps->tok.line, "bad number '%s'", text);
    ptx_parse_next(ps);
    return true;
}

bool ptx_parse_type(const char *word, int len, enum ptx_type *out)
{
    for (int i = 1; i < PTX_N_TYPES; i++)
        if (strlen(ptx_types[i].name) == (size_t)len && !memcmp(ptx_types[i].name, word, (size_t)len)) {
            *out = (enum ptx_type)i;
            return true;
        }
    return false;
}

/* ---- declarations ---- */

static char *token_name(struct ptx_parser *ps)
{
    char *s = ptx_module_alloc(ps->mod, (size_t)ps->tok.len + 1);
    if (!s) ptx_parse_fail(ps, ps->line, "out of memory");
    else memcpy(s, ps->tok.start, (size_t)ps->tok.len);
    return s;
}

/* After `.reg`: [.vN] .type name<count>, name ... ; */
static bool parse_regs(struct ptx_parser *ps)
{
    enum ptx_type type;
    if (ps->tok.kind != PTX_TOK_WORD || !ptx_parse_type(ps->tok.start + 1, ps->tok.len - 1, &type))
        return ptx_parse_fail(ps, ps->tok.line, "unsupported register type '%.*s'", ps->tok.len,
                              ps->tok.start);
    do {
        ptx_parse_next(ps);
        if (ps->tok.kind != PTX_TOK_WORD) return ptx_parse_fail(ps, ps->tok.line, "register name expected");
        struct ptx_reg_range r = {.name = ps->tok.start, .len = ps->tok.len, .count = -1,
                                  .first = ps->fn->n_regs};
        ptx_parse_next(ps);
        uint64_t count = 1;
        if (ptx_parse_accept(ps, "<")) {
            if (!ptx_parse_number(ps, PTX_U32, &count) || !ptx_parse_expect(ps, ">")) return false;
            if (count > MAX_REGS) return ptx_parse_fail(ps, ps->tok.line, "too many registers");
            r.count = (int)count;
        }
        for (uint64_t i = 0; i < count; i++)
            if (ptx_parse_new_reg(ps, ptx_types[type].bytes, type == PTX_PRED) < 0) return false;
        struct ptx_scope *s = ps->scope;
        struct ptx_reg_range *grown = ptx_parse_grow(ps, s->ranges, s->n_ranges, &s->cap_ranges, sizeof r);
        if (!grown) return false;
        s->ranges = grown;
        s->ranges[s->n_ranges++] = r;
    } while (ptx_parse_is(ps, ","));
    return ptx_parse_expect(ps, ";");
}

/* `= {1, 2, ...}` or `= 1`: into the variable's memory, the rest zero. */
static bool parse_initializer(struct ptx_parser *ps, const struct ptx_var *v, enum ptx_type type)
{
    unsigned bytes = ptx_types[type].bytes;
    uint64_t at = 0, value;
    bool list = ptx_parse_accept(ps, "{");
    do {
        if (ps->tok.kind == PTX_TOK_WORD)
            return ptx_parse_fail(ps, ps->tok.line, "initialisers with names are not supported");
        if (!ptx_parse_number(ps, type, &value)) return false;
        if (at + bytes > v->bytes) return ptx_parse_fail(ps, ps->tok.line, "too many initial values");
        if (!ptx_mem_write(ps->m, v->off + at, &value, bytes)) return false;
        at += bytes;
    } while (list && ptx_parse_accept(ps, ","));
    return !list || ptx_parse_expect(ps, "}");
}

/* After the space: [.align N] .type name [dims] [= initial]. In a body: into the scope. */
static bool parse_var(struct ptx_parser *ps, enum ptx_space space, bool external)
{
    enum ptx_type type = PTX_NONE;
    uint64_t align = 0;
    while (ps->tok.kind == PTX_TOK_WORD && ps->tok.start[0] == '.') {
        if (ptx_parse_accept(ps, ".align")) {
            if (!ptx_parse_number(ps, PTX_U32, &align)) return false;
            if (!align || align > 1024 || (align & (align - 1)))
                return ptx_parse_fail(ps, ps->tok.line, "bad alignment");
        } else if (ptx_parse_type(ps->tok.start + 1, ps->tok.len - 1, &type)) {
            ptx_parse_next(ps);
        } else {
            return ptx_parse_fail(ps, ps->tok.line, "unsupported in a declaration: '%.*s'", ps->tok.len,
                                  ps->tok.start);
        }
    }
    if (type == PTX_NONE || !ptx_types[type].bytes || ps->tok.kind != PTX_TOK_WORD)
        return ptx_parse_fail(ps, ps->tok.line, "type and name of a variable expected");
    struct ptx_var v = {.space = (uint8_t)space, .bytes = ptx_types[type].bytes, .name = token_name(ps)};
    if (!v.name) return false;
    v.align = align ? (uint32_t)align : ptx_types[type].bytes;
    ptx_parse_next(ps);
    while (ptx_parse_accept(ps, "[")) {
        uint64_t n = 0;
        if (ptx_parse_is(ps, "]")) v.dynamic = true;
        else if (!ptx_parse_number(ps, PTX_U32, &n)) return false;
        if (!v.dynamic && n > MAX_VAR_BYTES / v.bytes)
            return ptx_parse_fail(ps, ps->tok.line, "variable too large");
        v.bytes *= n;
        if (!ptx_parse_expect(ps, "]")) return false;
    }
    if (v.dynamic && (space != PTX_SPACE_SHARED || !external))
        return ptx_parse_fail(ps, ps->tok.line, "array without a size");
    if (space == PTX_SPACE_GLOBAL || space == PTX_SPACE_CONST) {
        v.off = ptx_mem_alloc(ps->m, v.bytes ? v.bytes : 1);
        if (!v.off || !ptx_mem_fill(ps->m, v.off, 0, 1, v.bytes)) return false;
        if (ptx_parse_accept(ps, "=") && !parse_initializer(ps, &v, type)) return false;
    }
    if (ps->fn) {
        if (!ptx_parse_place_var(ps, &v) || !ptx_parse_add_var(ps, ps->scope, &v)) return false;
    } else {
        struct ptx_module *mod = ps->mod;
        struct ptx_var *grown = ptx_parse_grow(ps, mod->vars, mod->n_vars, &ps->cap_vars, sizeof v);
        if (!grown) return false;
        mod->vars = grown;
        mod->vars[mod->n_vars++] = v;
    }
    return ptx_parse_expect(ps, ";");
}

/* `(.param .u64 a, .param .align 8 .b8 b[16])`: a list of parameters with their offsets. */
static bool parse_params(struct ptx_parser *ps, struct ptx_param **out, int *out_n, uint32_t *out_bytes)
{
    int cap = 0;
    uint32_t at = 0;
    if (!ptx_parse_expect(ps, "(")) return false;
    while (!ptx_parse_is(ps, ")")) {
        enum ptx_type type = PTX_NONE;
        uint64_t align = 0, n = 1, ignored;
        bool pointer = false;
        while (ps->tok.kind == PTX_TOK_WORD && ps->tok.start[0] == '.') {
            if (ptx_parse_accept(ps, ".align")) {
                if (!ptx_parse_number(ps, PTX_U32, pointer ? &ignored : &align)) return false;
                continue;
            }
            if (ptx_parse_is(ps, ".ptr")) pointer = true;
            else ptx_parse_type(ps->tok.start + 1, ps->tok.len - 1, &type);
            ptx_parse_next(ps);
        }
        if (type == PTX_NONE || ps->tok.kind != PTX_TOK_WORD)
            return ptx_parse_fail(ps, ps->tok.line, "parameter expected");
        struct ptx_param p = {.name = token_name(ps)};
        ptx_parse_next(ps);
        if (ptx_parse_accept(ps, "[") && (!ptx_parse_number(ps, PTX_U32, &n) || !ptx_parse_expect(ps, "]")))
            return false;
        if (n > 32764) return ptx_parse_fail(ps, ps->tok.line, "parameter too large");
        p.bytes = (uint32_t)(n * ptx_types[type].bytes);
        p.align = align && align <= 256 ? (uint32_t)align : ptx_types[type].bytes;
        if (!p.align) return ptx_parse_fail(ps, ps->tok.line, "unsupported parameter type");
        p.off = at = (at + p.align - 1) / p.align * p.align;
        at += p.bytes;
        if (at > 32764) return ptx_parse_fail(ps, ps->tok.line, "more than 32764 bytes of parameters");
        struct ptx_param *grown = ptx_parse_grow(ps, *out, *out_n, &cap, sizeof p);
        if (!grown || !p.name) return false;
        *out = grown;
        (*out)[(*out_n)++] = p;
        if (!ptx_parse_accept(ps, ",")) break;
    }
    *out_bytes = at;
    return ptx_parse_expect(ps, ")");
}

/* ---- bodies ---- */

static struct ptx_label *find_label(struct ptx_scope *s, const char *name, int len)
{
    for (; s; s = s->up)
        for (int i = 0; i < s->n_labels; i++)
            if (s->labels[i].len == len && !memcmp(s->labels[i].name, name, (size_t)len))
                return &s->labels[i];
    return NULL;
}

static bool parse_branch_targets(struct ptx_parser *ps, struct ptx_label *label)
{
    struct ptx_token names[1024];
    int n = 0;
    do {
        ptx_parse_next(ps);
        if (n == 1024) return ptx_parse_fail(ps, ps->tok.line, "more than 1024 branch targets");
        names[n++] = ps->tok;
        ptx_parse_next(ps);
    } while (ptx_parse_is(ps, ","));
    uint32_t *table = ptx_module_alloc(ps->mod, (size_t)n * sizeof *table);
    if (!table) return ptx_parse_fail(ps, ps->line, "out of memory");
    label->table = table;
    label->n_table = (uint32_t)n;
    for (int i = 0; i < n; i++) {
        struct ptx_fixup f = {.where = &table[i], .scope = ps->scope, .name = names[i].start,
                              .len = names[i].len, .line = names[i].line};
        struct ptx_fixup *grown = ptx_parse_grow(ps, ps->fixups, ps->n_fixups, &ps->cap_fixups, sizeof f);
        if (!grown) return false;
        ps->fixups = grown;
        ps->fixups[ps->n_fixups++] = f;
    }
    return ptx_parse_expect(ps, ";");
}

static bool parse_label(struct ptx_parser *ps, const struct ptx_token *name)
{
    struct ptx_scope *s = ps->scope;
    struct ptx_label *grown = ptx_parse_grow(ps, s->labels, s->n_labels, &s->cap_labels, sizeof *grown);
    if (!grown) return false;
    s->labels = grown;
    struct ptx_label *l = &s->labels[s->n_labels++];
    *l = (struct ptx_label){.name = name->start, .len = name->len, .pc = (uint32_t)ps->fn->n_insns};
    if (ptx_parse_is(ps, ".branchtargets")) return parse_branch_targets(ps, l);
    return true;
}

static bool parse_body_directive(struct ptx_parser *ps)
{
    if (ptx_parse_accept(ps, ".reg")) return parse_regs(ps);
    if (ptx_parse_accept(ps, ".shared")) return parse_var(ps, PTX_SPACE_SHARED, false);
    if (ptx_parse_accept(ps, ".local")) return parse_var(ps, PTX_SPACE_LOCAL, false);
    if (ptx_parse_accept(ps, ".param")) return parse_var(ps, PTX_SPACE_LOCAL, false);
    if (ptx_parse_is(ps, ".loc")) {
        while (ps->p < ps->end && *ps->p != '\n') ps->p++;
        ptx_parse_next(ps);
        return true;
    }
    if (ptx_parse_accept(ps, ".pragma")) {
        while (ps->tok.kind == PTX_TOK_STRING || ptx_parse_is(ps, ",")) ptx_parse_next(ps);
        return ptx_parse_expect(ps, ";");
    }
    return ptx_parse_fail(ps, ps->tok.line, "unsupported directive '%.*s'", ps->tok.len, ps->tok.start);
}

static bool parse_guarded(struct ptx_parser *ps)
{
    bool negated = ptx_parse_accept(ps, "!");
    int reg = ps->tok.kind == PTX_TOK_WORD ? ptx_parse_find_reg(ps, ps->tok.start, ps->tok.len) : -1;
    if (reg < 0 || !ps->fn->regs[reg].predicate)
        return ptx_parse_fail(ps, ps->tok.line, "predicate register expected");
    ptx_parse_next(ps);
    return ptx_parse_insn(ps, reg, negated);
}

static bool parse_body(struct ptx_parser *ps)
{
    int depth = 0;
    if (!ptx_parse_is(ps, "{")) return ptx_parse_expect(ps, "{");
    for (;;) {
        if (ps->failed) return false;
        if (ptx_parse_is(ps, "{")) {
            struct ptx_scope *s = ptx_module_alloc(ps->mod, sizeof *s);
            if (!s || ++depth > MAX_DEPTH) return ptx_parse_fail(ps, ps->tok.line, "blocks nest too deep");
            s->up = ps->scope;
            ps->scope = s;
            ptx_parse_next(ps);
        } else if (ptx_parse_accept(ps, "}")) {
            ps->scope = ps->scope->up;
            if (--depth == 0) return true;
        } else if (ptx_parse_accept(ps, "@")) {
            if (!parse_guarded(ps)) return false;
        } else if (ptx_parse_accept(ps, ";")) {
            continue;
        } else if (ps->tok.kind == PTX_TOK_WORD && ps->tok.start[0] == '.') {
            if (!parse_body_directive(ps)) return false;
        } else if (ps->tok.kind == PTX_TOK_WORD) {
            const char *q = ps->p;
            while (q < ps->end && (*q == ' ' || *q == '\t')) q++;
            if (q < ps->end && *q == ':') {
                struct ptx_token name = ps->tok;
                ptx_parse_next(ps);
                ptx_parse_next(ps);
                if (!parse_label(ps, &name)) return false;
            } else if (!ptx_parse_insn(ps, -1, false)) {
                return false;
            }
        } else {
            return ptx_parse_fail(ps, ps->tok.line, "instruction expected, found '%.*s'",
                                  ps->tok.len > 40 ? 40 : ps->tok.len, ps->tok.start);
        }
    }
}

static bool resolve_labels(struct ptx_parser *ps)
{
    struct ptx_kernel *k = ps->fn;
    for (int i = 0; i < ps->n_fixups; i++) {
        struct ptx_fixup *f = &ps->fixups[i];
        struct ptx_label *l = find_label(f->scope, f->name, f->len);
        if (!l) return ptx_parse_fail(ps, f->line, "no label '%.*s'", f->len, f->name);
        if (f->where) {
            *f->where = l->pc;
        } else {
            k->insns[f->insn].target = l->pc;
            k->insns[f->insn].table = l->table;
            k->insns[f->insn].n_table = l->n_table;
        }
    }
    ps->n_fixups = 0;
    /* Running off the end returns, so that a label may stand there. */
    struct ptx_insn *grown = ptx_parse_grow(ps, k->insns, k->n_insns, &ps->cap_insns, sizeof *grown);
    if (!grown) return false;
    k->insns = grown;
    k->insns[k->n_insns++] = (struct ptx_insn){.exec = ptx_x_ret, .op = PTX_OP_RET, .guard = -1,
                                               .line = ps->line, .text = "ret", .text_len = 3};
    return true;
}

/* .maxntid and the like, between the parameters and the body. */
static bool parse_performance(struct ptx_parser *ps)
{
    struct ptx_kernel_info *info = &ps->fn->info;
    while (ps->tok.kind == PTX_TOK_WORD && ps->tok.start[0] == '.') {
        bool exact = ptx_parse_is(ps, ".reqntid"), limit = ptx_parse_is(ps, ".maxntid");
        bool cluster = ptx_parse_is(ps, ".reqnctapercluster");
        bool known = exact || limit || cluster || ptx_parse_is(ps, ".minnctapersm") ||
                     ptx_parse_is(ps, ".maxnreg") || ptx_parse_is(ps, ".explicitcluster") ||
                     ptx_parse_is(ps, ".noreturn") || ptx_parse_is(ps, ".maxclusterrank") ||
                     ptx_parse_is(ps, ".blocksareclusters");
        if (!known)
            return ptx_parse_fail(ps, ps->tok.line, "unsupported directive '%.*s'", ps->tok.len,
                                  ps->tok.start);
        ptx_parse_next(ps);
        uint64_t v[3] = {1, 1, 1};
        for (int i = 0; i < 3 && ps->tok.kind == PTX_TOK_NUMBER; i++) {
            if (!ptx_parse_number(ps, PTX_U32, &v[i])) return false;
            if (v[i] > 65535) return ptx_parse_fail(ps, ps->tok.line, "bad size");
            if (!ptx_parse_accept(ps, ",")) break;
        }
        if (exact || limit) info->max_threads = (unsigned)(v[0] * v[1] * v[2]);
        info->exact_threads |= exact;
        if (cluster) info->cluster = (struct ptx_dim){(unsigned)v[0], (unsigned)v[1], (unsigned)v[2]};
    }
    return true;
}

static bool parse_function(struct ptx_parser *ps, bool entry)
{
    struct ptx_module *mod = ps->mod;
    struct ptx_kernel *k = ptx_module_alloc(mod, sizeof *k);
    uint32_t unused;
    if (!k) return ptx_parse_fail(ps, ps->line, "out of memory");
    k->module = mod;
    k->entry = entry;
    k->dynamic_align = 16;
    k->shared_align = 16;
    snprintf(k->target, sizeof k->target, "%s", mod->target);
    ps->fn = k;
    ps->cap_regs = ps->cap_insns = 0;
    ps->scope = ptx_module_alloc(mod, sizeof *ps->scope);
    if (!ps->scope) return ptx_parse_fail(ps, ps->line, "out of memory");
    if (!entry && ptx_parse_is(ps, "(") && !parse_params(ps, &k->returns, &k->n_returns, &unused))
        return false;
    if (ps->tok.kind != PTX_TOK_WORD) return ptx_parse_fail(ps, ps->tok.line, "function name expected");
    k->name = token_name(ps);
    ptx_parse_next(ps);
    if (ptx_parse_is(ps, "(") && !parse_params(ps, &k->params, &k->n_params, &k->param_bytes)) return false;
    if (!k->name || !parse_performance(ps)) return false;
    if (!ptx_parse_accept(ps, ";")) {
        if (!parse_body(ps) || !resolve_labels(ps)) return false;
        k->defined = true;
    }
    k->info.name = k->name;
    k->info.n_params = (unsigned)k->n_params;
    k->info.param_bytes = k->param_bytes;
    k->info.static_shared_bytes = k->shared_bytes;
    k->info.n_regs = (unsigned)k->n_regs;
    k->info.local_bytes = k->local_bytes;
    struct ptx_kernel **grown = ptx_parse_grow(ps, mod->funcs, mod->n_funcs, &ps->cap_funcs, sizeof k);
    if (!grown) return false;
    mod->funcs = grown;
    mod->funcs[mod->n_funcs++] = k;
    ps->fn = NULL;
    ps->scope = NULL;
    return true;
}

/* `.section .debug_info { ... }`: skipped, braces balanced. */
static bool skip_section(struct ptx_parser *ps)
{
    int depth = 0;
    while (ps->tok.kind != PTX_TOK_END) {
        if (ptx_parse_is(ps, "{")) depth++;
        if (ptx_parse_is(ps, "}") && --depth == 0) {
            ptx_parse_next(ps);
            return true;
        }
        ptx_parse_next(ps);
    }
    return ptx_parse_fail(ps, ps->line, "section without an end");
}

static bool parse_toplevel(struct ptx_parser *ps)
{
    bool external = false;
    while (ptx_parse_is(ps, ".visible") || ptx_parse_is(ps, ".extern") || ptx_parse_is(ps, ".weak") ||
           ptx_parse_is(ps, ".common")) {
        external |= ptx_parse_is(ps, ".extern");
        ptx_parse_next(ps);
    }
    if (ptx_parse_accept(ps, ".entry")) return parse_function(ps, true);
    if (ptx_parse_accept(ps, ".func")) return parse_function(ps, false);
    if (ptx_parse_accept(ps, ".shared")) return parse_var(ps, PTX_SPACE_SHARED, external);
    if (ptx_parse_accept(ps, ".global")) return parse_var(ps, PTX_SPACE_GLOBAL, external);
    if (ptx_parse_accept(ps, ".const")) return parse_var(ps, PTX_SPACE_CONST, external);
    if (ptx_parse_is(ps, ".version") || ptx_parse_is(ps, ".address_size")) {
        ptx_parse_next(ps);
        ptx_parse_next(ps);
        return true;
    }
    if (ptx_parse_accept(ps, ".target")) {
        int len = ps->tok.len < 15 ? ps->tok.len : 15;
        memcpy(ps->mod->target, ps->tok.start, (size_t)len);
        ptx_parse_next(ps);
        while (ptx_parse_accept(ps, ",")) ptx_parse_next(ps);
        return true;
    }
    if (ptx_parse_is(ps, ".file")) {
        while (ps->p < ps->end && *ps->p != '\n') ps->p++;
        ptx_parse_next(ps);
        return true;
    }
    if (ptx_parse_accept(ps, ".section")) return skip_section(ps);
    if (ptx_parse_is(ps, ".pragma")) return parse_body_directive(ps);
    return ptx_parse_fail(ps, ps->tok.line, "unsupported at module level: '%.*s'",
                          ps->tok.len > 40 ? 40 : ps->tok.len, ps->tok.start);
}

struct ptx_module *ptx_module_load(struct ptx_machine *m, const char *text)
{
    struct ptx_module *mod = calloc(1, sizeof *mod);
    size_t len = strlen(text);
    if (!mod) return NULL;
    mod->machine = m;
    mod->text = ptx_module_alloc(mod, len + 1);
    if (!mod->text) {
        ptx_module_free(mod);
        ptx_fault_at(m, PTX_FAULT_MEMORY, 0, "out of memory");
        return NULL;
    }
    memcpy(mod->text, text, len + 1);
    struct ptx_parser ps = {.m = m, .mod = mod, .p = mod->text, .end = mod->text + len, .line = 1};
    ptx_parse_next(&ps);
    while (!ps.failed && ps.tok.kind != PTX_TOK_END)
        if (!parse_toplevel(&ps)) ps.failed = true;
    if (!ps.failed && !mod->target[0]) ptx_parse_fail(&ps, 1, "no .target: not PTX");
    if (ps.failed) {
        for (int i = 0; i < mod->n_vars; i++)
            if (mod->vars[i].space != PTX_SPACE_SHARED) ptx_mem_free(m, mod->vars[i].off);
        ptx_module_free(mod);
        return NULL;
    }
    ptx_machine_add_module(m, mod);
    return mod;
}
