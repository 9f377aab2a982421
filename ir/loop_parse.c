// SPDX-License-Identifier: Apache-2.0
/*
 * Reads the readable form that lp_print writes (see ir/loop_print.c). Nothing is trusted: every op is checked with
 * lp_check_op as it is read, and the whole with lp_verify. No folding: the ops are those of the text.
 */
#include "ir/dim.h"
#include "ir/loop.h"
#include "ir/loop_rewrite.h"
#include "ir/quote.h"
#include "ir/support/map.h"

#include <ctype.h>
#include <stdlib.h>

#define MAX_NESTING 64
#define MAX_OPERANDS 4096

struct parser {
    const char *begin, *p, *end, *file;
    struct dim_ctx *ctx;
    struct lp_kernel *k;
    struct diag_sink *diag;
    struct arena arena; /* of this parse */
    struct map values;  /* number as written (uint64_t) -> struct lp_value * */
    int depth;
};

/* One op being read. */
struct draft {
    enum lp_opcode code;
    VEC(uint64_t) names; /* of the results */
    VEC(struct lp_value *) operands;
    VEC(struct lp_type) types;
    int64_t imm;
    double fimm;
    int index, buf, row_axis, col_axis;
    bool has_nrows, has_ncols;
};

static bool fail(struct parser *s, const char *what)
{
    unsigned line = 1, column = 1;
    for (const char *q = s->begin; q < s->p && q < s->end; q++) {
        column = *q == '\n' ? 1 : column + 1;
        line += *q == '\n';
    }
    char *loc = arena_printf(&s->arena, "%s:%u:%u", s->file, line, column);
    return diag_report(s->diag, DIAG_IR_SYNTAX, loc, "%s", what);
}

/* ---- tokens ---- */

static void skip(struct parser *s)
{
    while (s->p < s->end) {
        if (isspace((unsigned char)*s->p)) {
            s->p++;
        } else if (s->end - s->p > 1 && s->p[0] == '/' && s->p[1] == '/') {
            while (s->p < s->end && *s->p != '\n') s->p++;
        } else {
            return;
        }
    }
}

static bool word_char(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* Takes text when it comes next; a word must end there. */
static bool accept(struct parser *s, const char *text)
{
    size_t n = strlen(text);
    skip(s);
    if ((size_t)(s->end - s->p) < n || memcmp(s->p, text, n) != 0) return false;
    if (word_char(text[n - 1]) && s->p + n < s->end && word_char(s->p[n])) return false;
    s->p += n;
    return true;
}

static bool expect(struct parser *s, const char *text)
{
    if (accept(s, text)) return true;
    return fail(s, arena_printf(&s->arena, "expected `%s`", text));
}

static size_t word(struct parser *s, const char **out)
{
    skip(s);
    *out = s->p;
    while (s->p < s->end && word_char(*s->p)) s->p++;
    return (size_t)(s->p - *out);
}

static bool read_int(struct parser *s, int64_t lo, int64_t hi, int64_t *out)
{
    skip(s);
    bool negative = s->p < s->end && *s->p == '-';
    const char *q = s->p + negative;
    if (q >= s->end || !isdigit((unsigned char)*q)) return fail(s, "expected an integer");
    int64_t v = 0;
    for (; q < s->end && isdigit((unsigned char)*q); q++) {
        int digit = *q - '0';
        if (!i64_mul(v, 10, &v) || !i64_add(v, negative ? -digit : digit, &v))
            return fail(s, "the integer is too big");
    }
    s->p = q;
    if (v < lo || v > hi) return fail(s, "the integer is out of range");
    *out = v;
    return true;
}

static bool read_small(struct parser *s, int lo, int hi, int *out)
{
    int64_t v;
    if (!read_int(s, lo, hi, &v)) return false;
    *out = (int)v;
    return true;
}

static bool read_float(struct parser *s, double *out)
{
    char text[64];
    size_t n = 0;
    skip(s);
    while (s->p + n < s->end && n < sizeof text - 1 &&
           (isalnum((unsigned char)s->p[n]) || (s->p[n] && strchr("+-.", s->p[n]))))
        n++;
    memcpy(text, s->p, n);
    text[n] = 0;
    char *stop;
    *out = strtod(text, &stop);
    if (!n || *stop) return fail(s, "expected a number");
    s->p += n;
    return true;
}

static bool read_string(struct parser *s, const char **out)
{
    skip(s);
    *out = ir_read_quoted(&s->arena, &s->p, s->end);
    return *out ? true : fail(s, "expected a quoted string");
}

static bool read_dim(struct parser *s, const struct dim **out)
{
    skip(s);
    *out = dim_parse(s->ctx, &s->p, s->end);
    return *out ? true : fail(s, "expected a dim");
}

static bool read_dtype(struct parser *s, enum dtype *out)
{
    const char *w;
    size_t n = word(s, &w);
    *out = dtype_find(w, n);
    return dtype_bytes(*out) ? true : fail(s, "expected an element type");
}

static bool read_type(struct parser *s, struct lp_type *out)
{
    enum dtype d;
    int rows = 1, cols = 1;
    if (!read_dtype(s, &d)) return false;
    if (accept(s, "<")) {
        if (!read_small(s, 1, UINT16_MAX, &rows)) return false;
        /* `6x16` reads as a number, a letter and a number */
        if (s->p >= s->end || *s->p != 'x') return fail(s, "expected `x`");
        s->p++;
        if (!read_small(s, 1, UINT16_MAX, &cols) || !expect(s, ">")) return false;
    }
    *out = lp_tile(d, rows, cols);
    return true;
}

/* ---- values ---- */

static bool read_name(struct parser *s, uint64_t *out)
{
    int64_t n;
    if (!expect(s, "%") || !read_int(s, 0, UINT32_MAX, &n)) return false;
    *out = (uint64_t)n;
    return true;
}

static bool define(struct parser *s, uint64_t name, struct lp_value *v)
{
    if (map_put(&s->values, &name, sizeof name, v))
        return fail(s, arena_printf(&s->arena, "%%%llu is defined twice", (unsigned long long)name));
    return true;
}

static bool read_value(struct parser *s, struct lp_value **out)
{
    uint64_t name;
    if (!read_name(s, &name)) return false;
    *out = map_find(&s->values, &name, sizeof name);
    if (*out) return true;
    return fail(s, arena_printf(&s->arena, "%%%llu is not defined", (unsigned long long)name));
}

static bool read_operand(struct parser *s, struct draft *d)
{
    struct lp_value *v;
    if (!read_value(s, &v)) return false;
    if (d->operands.n >= MAX_OPERANDS) return fail(s, "too many operands");
    vec_push(&s->arena, &d->operands, v);
    return true;
}

/* ---- header ---- */

static bool read_bound(struct parser *s, int64_t *out)
{
    if (accept(s, "inf")) {
        *out = DIM_INF;
        return true;
    }
    return read_int(s, INT64_MIN, INT64_MAX, out);
}

static bool read_sym(struct parser *s)
{
    const struct dim *d;
    int64_t lo, hi;
    if (!read_dim(s, &d)) return false;
    if (d->kind != DIM_SYM) return fail(s, "expected a symbol");
    if (!expect(s, "in") || !expect(s, "[") || !read_bound(s, &lo) || !expect(s, ",") || !read_bound(s, &hi) ||
        !expect(s, "]"))
        return false;
    if (lo > hi || lo > d->hi || hi < d->lo) return fail(s, "the symbol's range is empty");
    dim_sym(s->ctx, d->name, lo, hi);
    return true;
}

static bool read_dims(struct parser *s, int *rank, const struct dim **dims)
{
    int n = 0;
    if (!expect(s, "[")) return false;
    while (!accept(s, "]")) {
        if (n && !expect(s, ",")) return false;
        if (n == IR_MAX_RANK) return fail(s, "too many axes");
        if (!read_dim(s, &dims[n])) return false;
        n++;
    }
    *rank = n;
    return true;
}

static bool read_buf(struct parser *s, enum lp_space space)
{
    struct lp_kernel *k = s->k;
    const struct dim *dims[IR_MAX_RANK], *strides[IR_MAX_RANK];
    const char *name;
    enum dtype dtype;
    int number, rank, n_strides, align;
    if (!expect(s, "@") || !read_small(s, 0, INT16_MAX, &number) || !read_string(s, &name) || !expect(s, ":") ||
        !read_dtype(s, &dtype) || !read_dims(s, &rank, dims))
        return false;
    if ((size_t)number != k->bufs.n) return fail(s, "buffers are not numbered in order");
    if (space == LP_SPACE_ARG && (size_t)k->n_arg_bufs != k->bufs.n) return fail(s, "arguments come first");
    bool has_strides = accept(s, "strides");
    if (has_strides && !read_dims(s, &n_strides, strides)) return false;
    if (has_strides && n_strides != rank) return fail(s, "one stride an axis is needed");
    if (!expect(s, "align") || !read_small(s, 1, 1 << 20, &align)) return false;
    struct lp_buf b = {.dtype = dtype, .space = space, .rank = rank, .align_bytes = align};
    b.name = arena_strdup(&k->arena, name);
    b.writable = space != LP_SPACE_ARG || accept(s, "writable");
    const struct dim *stride = dim_const(s->ctx, 1);
    for (int i = rank - 1; !has_strides && i >= 0; i--) {
        strides[i] = stride;
        stride = dim_mul(s->ctx, stride, dims[i]);
    }
    b.dims = arena_dup(&k->arena, dims, (size_t)rank * sizeof *dims);
    b.strides = arena_dup(&k->arena, strides, (size_t)rank * sizeof *strides);
    vec_push(&k->arena, &k->bufs, b);
    k->n_arg_bufs += space == LP_SPACE_ARG;
    return true;
}

static bool read_param(struct parser *s)
{
    const struct dim *d;
    if (!read_dim(s, &d)) return false;
    if (dim_is_const(d)) return fail(s, "a dim parameter is not constant");
    size_t n = s->k->dims.n;
    return (size_t)lp_dim_param(s->k, d) == n ? true : fail(s, "a dim parameter is repeated");
}

static bool read_header(struct parser *s)
{
    const char *name, *loc, *schedule;
    while (accept(s, "sym"))
        if (!read_sym(s)) return false;
    if (!expect(s, "kernel") || !read_string(s, &name) || !expect(s, "loc") || !read_string(s, &loc) ||
        !expect(s, "schedule") || !read_string(s, &schedule))
        return false;
    struct lp_kernel *k = s->k = lp_kernel_create(s->ctx, name, loc, schedule);
    if (!expect(s, "slices") || !read_dim(s, &k->slices) || !expect(s, "claim") ||
        !read_int(s, 0, INT64_MAX, &k->claim))
        return false;
    if (accept(s, "cta") && !read_small(s, 32, 1024, &k->cta_threads)) return false;
    if (accept(s, "flops") && !read_dim(s, &k->flops)) return false;
    if (accept(s, "bytes") && !read_dim(s, &k->bytes)) return false;
    if (!expect(s, "{")) return false;
    for (;;) {
        bool good;
        if (accept(s, "arg")) good = read_buf(s, LP_SPACE_ARG);
        else if (accept(s, "stack")) good = read_buf(s, LP_SPACE_STACK);
        else if (accept(s, "shared")) good = read_buf(s, LP_SPACE_SHARED);
        else if (accept(s, "param")) good = read_param(s);
        else return true;
        if (!good) return false;
    }
}

/* ---- ops ---- */

static bool read_block(struct parser *s, struct lp_block *b);

/* Creates the op of a draft, checks it and names its results. */
static struct lp_op *finish(struct parser *s, struct draft *d, struct lp_block *b)
{
    if (d->names.n != d->types.n) {
        fail(s, "the number of results does not fit");
        return NULL;
    }
    struct lp_op *op = lp_op_create(s->k, d->code, (int)d->operands.n, d->operands.v, (int)d->types.n, d->types.v);
    op->imm = d->imm;
    bool rounds = d->code == LP_OP_CONST && dtype_is_float(d->types.v[0].dtype) && d->types.v[0].dtype != DT_F64;
    op->fimm = rounds ? (double)(float)d->fimm : d->fimm;
    op->index = d->index;
    op->buf = d->buf;
    op->row_axis = d->row_axis;
    op->col_axis = d->col_axis;
    op->has_nrows = d->has_nrows;
    op->has_ncols = d->has_ncols;
    lp_append(b, op);
    for (size_t i = 0; i < d->names.n; i++)
        if (!define(s, d->names.v[i], op->results[i])) return NULL;
    return op;
}

static bool check(struct parser *s, const struct lp_op *op)
{
    const char *why = lp_check_op(s->k, op);
    return !why || fail(s, arena_printf(&s->arena, "%s: %s", lp_op_name(op->code), why));
}

static bool read_region(struct parser *s, struct lp_op *op, struct lp_block *b)
{
    if (++s->depth > MAX_NESTING) return fail(s, "regions are nested too deeply");
    if (!expect(s, "{") || !read_block(s, b) || !expect(s, "}")) return false;
    s->depth--;
    if (b->last && b->last->code == LP_OP_YIELD) return true;
    if (op->n_results) return fail(s, "the region does not end in yield");
    lp_append(b, lp_op_create(s->k, LP_OP_YIELD, 0, NULL, 0, NULL));
    return true;
}

static bool read_for(struct parser *s, struct draft *d, struct lp_block *b)
{
    static const char *const kinds[] = {"serial", "unroll", "vector"};
    VEC(uint64_t) args = {0};
    uint64_t name;
    for (d->index = 0; d->index < 3 && !accept(s, kinds[d->index]);) d->index++;
    if (d->index == 3) return fail(s, "expected serial, unroll or vector");
    if (!read_name(s, &name) || !expect(s, "in") || !read_operand(s, d) || !expect(s, "..") ||
        !read_operand(s, d) || !expect(s, "step") || !read_int(s, 1, INT64_MAX, &d->imm))
        return false;
    vec_push(&s->arena, &args, name);
    bool carries = accept(s, "carry");
    if (carries && !expect(s, "(")) return false;
    while (carries && !accept(s, ")")) {
        if (args.n > 1 && !expect(s, ",")) return false;
        if (!read_name(s, &name) || !expect(s, "=") || !read_operand(s, d)) return false;
        vec_push(&s->arena, &args, name);
        vec_push(&s->arena, &d->types, d->operands.v[d->operands.n - 1]->type);
    }
    struct lp_op *op = finish(s, d, b);
    if (!op) return false;
    struct lp_block *body = lp_block_create(s->k, op);
    op->n_regions = 1;
    op->regions[0] = body;
    body->n_args = (int)args.n;
    body->args = ARENA_ARRAY(&s->k->arena, struct lp_value *, args.n);
    for (size_t i = 0; i < args.n; i++) {
        body->args[i] = lp_value_create(s->k, i ? d->types.v[i - 1] : lp_scalar(DT_I64), NULL);
        if (!define(s, args.v[i], body->args[i])) return false;
    }
    return check(s, op) && read_region(s, op, body);
}

static bool read_if(struct parser *s, struct draft *d, struct lp_block *b)
{
    if (!read_operand(s, d)) return false;
    if (accept(s, "->")) {
        if (!expect(s, "(")) return false;
        do {
            struct lp_type t;
            if (!read_type(s, &t)) return false;
            vec_push(&s->arena, &d->types, t);
        } while (accept(s, ","));
        if (!expect(s, ")")) return false;
    }
    struct lp_op *op = finish(s, d, b);
    if (!op) return false;
    op->n_regions = 2;
    op->regions[0] = lp_block_create(s->k, op);
    op->regions[1] = lp_block_create(s->k, op);
    return check(s, op) && read_region(s, op, op->regions[0]) && expect(s, "else") &&
           read_region(s, op, op->regions[1]);
}

static bool read_access(struct parser *s, struct draft *d)
{
    d->row_axis = d->col_axis = -1;
    if (!expect(s, "@") || !read_small(s, 0, INT16_MAX, &d->buf) || !expect(s, "[")) return false;
    size_t first = d->operands.n;
    while (!accept(s, "]")) {
        if (d->operands.n > first && !expect(s, ",")) return false;
        if (!read_operand(s, d)) return false;
    }
    if (d->code == LP_OP_STORE) {
        if (!expect(s, ",") || !read_operand(s, d)) return false;
        /* The value is written last but comes first among the operands. */
        struct lp_value *v = d->operands.v[d->operands.n - 1];
        memmove(d->operands.v + 1, d->operands.v, (d->operands.n - 1) * sizeof(struct lp_value *));
        d->operands.v[0] = v;
    }
    if (d->code == LP_OP_PREFETCH) d->index = accept(s, "far");
    if (accept(s, "rows") && !read_small(s, 0, IR_MAX_RANK, &d->row_axis)) return false;
    if (accept(s, "cols") && !read_small(s, 0, IR_MAX_RANK, &d->col_axis)) return false;
    d->has_nrows = accept(s, "nrows");
    if (d->has_nrows && !read_operand(s, d)) return false;
    d->has_ncols = accept(s, "ncols");
    return !d->has_ncols || read_operand(s, d);
}

static bool read_operand_list(struct parser *s, struct draft *d)
{
    skip(s);
    if (s->p >= s->end || *s->p != '%') return true;
    /* After a yield without operands the next line may begin with a result's name, but nothing follows a yield. */
    do {
        if (!read_operand(s, d)) return false;
    } while (accept(s, ","));
    return true;
}

static bool read_const(struct parser *s, struct draft *d, struct lp_type *t)
{
    /* The type, which says how to read the number, comes after it. */
    const char *number = s->p;
    while (s->p < s->end && *s->p != ':' && *s->p != '\n') s->p++;
    if (!expect(s, ":") || !read_type(s, t)) return false;
    const char *after = s->p;
    s->p = number;
    bool good = dtype_is_float(t->dtype) ? read_float(s, &d->fimm) : read_int(s, INT64_MIN, INT64_MAX, &d->imm);
    if (!good || !expect(s, ":")) return false;
    s->p = after;
    return true;
}

static bool read_plain(struct parser *s, struct draft *d, struct lp_block *b)
{
    static const char *const reductions[] = {"add", "mul", "min", "max", "and", "or"};
    bool good = true, typed = false;
    struct lp_type t;
    switch (d->code) {
    case LP_OP_CONST:
        good = read_const(s, d, &t);
        typed = true;
        break;
    case LP_OP_DIM: good = expect(s, "#") && read_small(s, 0, INT16_MAX, &d->index); break;
    case LP_OP_IOTA:
    case LP_OP_BARRIER: break;
    case LP_OP_LOAD:
    case LP_OP_PREFETCH:
    case LP_OP_STORE: good = read_access(s, d); break;
    case LP_OP_REDUCE:
        for (d->index = 0; d->index < 6 && !accept(s, reductions[d->index]);) d->index++;
        good = read_operand_list(s, d);
        break;
    case LP_OP_EXTRACT:
    case LP_OP_DOT_BLOCKS:
    case LP_OP_MMA: good = read_small(s, 0, d->code == LP_OP_DOT_BLOCKS ? 1 << 22 : UINT16_MAX, &d->index) && expect(s, ",") && read_operand_list(s, d); break;
    default: good = read_operand_list(s, d);
    }
    if (!good) return false;
    if (d->names.n && !typed && (!expect(s, ":") || !read_type(s, &t))) return false;
    if (d->names.n) vec_push(&s->arena, &d->types, t);
    struct lp_op *op = finish(s, d, b);
    return op && check(s, op);
}

static bool read_op(struct parser *s, struct lp_block *b)
{
    struct draft d = {.row_axis = 0};
    skip(s);
    if (s->p < s->end && *s->p == '%') {
        do {
            uint64_t name;
            if (!read_name(s, &name)) return false;
            vec_push(&s->arena, &d.names, name);
        } while (accept(s, ","));
        if (!expect(s, "=")) return false;
    }
    const char *w;
    size_t n = word(s, &w);
    d.code = lp_opcode_find(w, n);
    if (d.code == LP_OP_COUNT) return fail(s, "expected an op");
    if (d.code == LP_OP_FOR) return read_for(s, &d, b);
    if (d.code == LP_OP_IF) return read_if(s, &d, b);
    return read_plain(s, &d, b);
}

static bool read_block(struct parser *s, struct lp_block *b)
{
    for (;;) {
        skip(s);
        if (s->p >= s->end || *s->p == '}') return true;
        if (!read_op(s, b)) return false;
    }
}

static bool read_kernel(struct parser *s)
{
    uint64_t name;
    if (!read_header(s) || !expect(s, "body") || !expect(s, "(") || !read_name(s, &name) || !expect(s, ")") ||
        !expect(s, "{"))
        return false;
    if (!define(s, name, s->k->body->args[0])) return false;
    if (!read_block(s, s->k->body) || !expect(s, "}") || !expect(s, "}")) return false;
    skip(s);
    return s->p == s->end || fail(s, "something follows the kernel");
}

struct lp_kernel *lp_parse(const char *text, size_t len, const char *file, struct dim_ctx *ctx,
                           struct diag_sink *diag)
{
    struct parser s = {.begin = text, .p = text, .end = text + len, .file = file, .ctx = ctx, .diag = diag};
    arena_init(&s.arena);
    map_init(&s.values, &s.arena);
    bool good = read_kernel(&s) && lp_verify(s.k, diag);
    arena_deinit(&s.arena);
    if (good) return s.k;
    lp_kernel_destroy(s.k);
    return NULL;
}
