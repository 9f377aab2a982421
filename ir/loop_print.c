// SPDX-License-Identifier: Apache-2.0
/*
 * Text of kernels. Values are numbered in the order they appear, so equal structure prints as equal text.
 *
 *   sym batch in [1, 64]
 *   kernel "relu_3" loc "net.onnx:/Relu" schedule "generic" slices batch claim 0 {
 *     arg @0 "x" : f32[batch, 384] align 4
 *     arg @1 "y" : f32[batch, 384] align 64 writable
 *     stack @2 "row" : f32[384] align 64
 *     param batch
 *     body(%0) {
 *       %1 = const 0 : i64
 *       for vector %5 in %1 .. %2 step 1 {
 *         %6 = load @0[%0, %5] : f32
 *         ...
 *
 * The canonical form leaves out all names and numbers symbols ($0, $1, ..) in the order of their first use; it also leaves out
 * what does not shape the code: loc, schedule, estimates, and the ranges of symbols, which lowering alone asks for.
 */
#include "ir/dim.h"
#include "ir/loop.h"
#include "ir/loop_rewrite.h"
#include "ir/quote.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct printer {
    struct strbuf *out;
    const struct lp_kernel *k;
    bool canonical;
    uint32_t *number; /* by value id: printed number + 1, 0 = not seen yet */
    uint32_t n_numbers;
    struct arena arena;
    VEC(const struct dim *) syms; /* in the order of first use */
};

/* ---- dims ---- */

static size_t sym_number(struct printer *p, const struct dim *d)
{
    for (size_t i = 0; i < p->syms.n; i++)
        if (p->syms.v[i] == d) return i;
    vec_push(&p->arena, &p->syms, d);
    return p->syms.n - 1;
}

static void note_syms(struct printer *p, const struct dim *d)
{
    if (d->kind == DIM_SYM) sym_number(p, d);
    for (int i = 0; d->kind == DIM_POLY && i < d->n_terms; i++)
        for (int j = 0; j < d->terms[i].n_atoms; j++) note_syms(p, d->terms[i].atoms[j]);
    if (d->a) note_syms(p, d->a);
    if (d->b) note_syms(p, d->b);
}

static void put_canonical_dim(struct printer *p, const struct dim *d)
{
    static const char *const names[] = {[DIM_FLOORDIV] = "floordiv", [DIM_MOD] = "mod", [DIM_MIN] = "min",
                                        [DIM_MAX] = "max"};
    switch (d->kind) {
    case DIM_CONST: strbuf_printf(p->out, "%lld", (long long)d->value); return;
    case DIM_SYM: strbuf_printf(p->out, "$%zu", sym_number(p, d)); return;
    case DIM_OVERFLOW: strbuf_puts(p->out, "overflow"); return;
    case DIM_POLY:
        for (int i = 0; i < d->n_terms; i++) {
            strbuf_printf(p->out, "%s%lld", i ? "+" : "", (long long)d->terms[i].coeff);
            for (int j = 0; j < d->terms[i].n_atoms; j++) {
                strbuf_putc(p->out, '*');
                put_canonical_dim(p, d->terms[i].atoms[j]);
            }
        }
        return;
    default:
        strbuf_printf(p->out, "%s(", names[d->kind]);
        put_canonical_dim(p, d->a);
        strbuf_putc(p->out, ',');
        put_canonical_dim(p, d->b);
        strbuf_putc(p->out, ')');
    }
}

static void put_dim(struct printer *p, const struct dim *d)
{
    if (p->canonical) put_canonical_dim(p, d);
    else dim_print(p->out, d);
}

static void put_bound(struct printer *p, int64_t v)
{
    if (v == DIM_INF) strbuf_puts(p->out, "inf");
    else strbuf_printf(p->out, "%lld", (long long)v);
}

static void put_range(struct printer *p, const struct dim *sym)
{
    strbuf_puts(p->out, " in [");
    put_bound(p, sym->lo);
    strbuf_puts(p->out, ", ");
    put_bound(p, sym->hi);
    strbuf_puts(p->out, "]\n");
}

static void put_dims(struct printer *p, int n, const struct dim *const *dims)
{
    strbuf_putc(p->out, '[');
    for (int i = 0; i < n; i++) {
        if (i) strbuf_puts(p->out, ", ");
        put_dim(p, dims[i]);
    }
    strbuf_putc(p->out, ']');
}

/* ---- header ---- */

static bool row_major(const struct lp_kernel *k, const struct lp_buf *b)
{
    const struct dim *s = dim_const(k->dims_ctx, 1);
    for (int i = b->rank - 1; i >= 0; i--) {
        if (b->strides[i] != s) return false;
        s = dim_mul(k->dims_ctx, s, b->dims[i]);
    }
    return true;
}

static void put_buf(struct printer *p, int n)
{
    static const char *const spaces[] = {"arg", "stack", "shared"};
    const struct lp_buf *b = &p->k->bufs.v[n];
    strbuf_printf(p->out, "  %s @%d ", spaces[b->space], n);
    if (!p->canonical) {
        ir_put_quoted(p->out, b->name);
        strbuf_putc(p->out, ' ');
    }
    strbuf_printf(p->out, ": %s", dtype_name(b->dtype));
    put_dims(p, b->rank, b->dims);
    if (!row_major(p->k, b)) {
        strbuf_puts(p->out, " strides ");
        put_dims(p, b->rank, b->strides);
    }
    strbuf_printf(p->out, " align %d%s\n", b->align_bytes,
                  b->writable && b->space == LP_SPACE_ARG ? " writable" : "");
}

static void put_header(struct printer *p)
{
    const struct lp_kernel *k = p->k;
    strbuf_puts(p->out, "kernel ");
    if (!p->canonical) {
        ir_put_quoted(p->out, k->name);
        strbuf_puts(p->out, " loc ");
        ir_put_quoted(p->out, k->loc);
        strbuf_puts(p->out, " schedule ");
        ir_put_quoted(p->out, k->schedule);
        strbuf_putc(p->out, ' ');
    }
    strbuf_puts(p->out, "slices ");
    put_dim(p, k->slices);
    strbuf_printf(p->out, " claim %lld", (long long)k->claim);
    if (k->cta_threads) strbuf_printf(p->out, " cta %d", k->cta_threads);
    if (!p->canonical && k->flops) {
        strbuf_puts(p->out, " flops ");
        put_dim(p, k->flops);
    }
    if (!p->canonical && k->bytes) {
        strbuf_puts(p->out, " bytes ");
        put_dim(p, k->bytes);
    }
    strbuf_puts(p->out, " {\n");
    for (size_t i = 0; i < k->bufs.n; i++) put_buf(p, (int)i);
    for (size_t i = 0; i < k->dims.n; i++) {
        strbuf_puts(p->out, "  param ");
        put_dim(p, k->dims.v[i]);
        strbuf_putc(p->out, '\n');
    }
}

static void collect_syms(struct printer *p)
{
    const struct lp_kernel *k = p->k;
    note_syms(p, k->slices);
    if (k->flops) note_syms(p, k->flops);
    if (k->bytes) note_syms(p, k->bytes);
    for (size_t i = 0; i < k->bufs.n; i++)
        for (int a = 0; a < k->bufs.v[i].rank; a++) {
            note_syms(p, k->bufs.v[i].dims[a]);
            note_syms(p, k->bufs.v[i].strides[a]);
        }
    for (size_t i = 0; i < k->dims.n; i++) note_syms(p, k->dims.v[i]);
}

/* ---- body ---- */

static void put_value(struct printer *p, const struct lp_value *v)
{
    if (!p->number[v->id]) p->number[v->id] = ++p->n_numbers;
    strbuf_putc(p->out, '%');
    strbuf_putu(p->out, p->number[v->id] - 1);
}

static void put_values(struct printer *p, int n, struct lp_value *const *v)
{
    for (int i = 0; i < n; i++) {
        if (i) strbuf_puts(p->out, ", ");
        put_value(p, v[i]);
    }
}

static void put_type(struct printer *p, struct lp_type t)
{
    strbuf_puts(p->out, dtype_name(t.dtype));
    if (t.rows == 1 && t.cols == 1) return;
    strbuf_putc(p->out, '<');
    strbuf_putu(p->out, t.rows);
    strbuf_putc(p->out, 'x');
    strbuf_putu(p->out, t.cols);
    strbuf_putc(p->out, '>');
}

static void put_float(struct printer *p, enum dtype d, double v)
{
    char text[40];
    if (v != v || isinf(v)) {
        strbuf_puts(p->out, v != v ? "nan" : v < 0 ? "-inf" : "inf");
        return;
    }
    /* The shortest of a few that reads back as the same value. */
    static const int digits[] = {6, 9, 17};
    for (size_t i = 0; i < ARRAY_LEN(digits); i++) {
        snprintf(text, sizeof text, "%.*g", digits[i], v);
        double back = strtod(text, NULL);
        if ((d == DT_F64 ? back : (double)(float)back) == v) break;
    }
    strbuf_puts(p->out, text);
}

static void indent(struct printer *p, int depth)
{
    for (int i = 0; i < depth; i++) strbuf_puts(p->out, "  ");
}

static void put_block(struct printer *p, const struct lp_block *b, int depth);

static void put_axis(struct printer *p, const char *what, int axis)
{
    if (axis < 0) return;
    strbuf_puts(p->out, what);
    strbuf_putu(p->out, (uint64_t)axis);
}

static void put_access(struct printer *p, const struct lp_op *op)
{
    int first = lp_first_index(op), rank = p->k->bufs.v[op->buf].rank;
    strbuf_puts(p->out, " @");
    strbuf_putu(p->out, (uint64_t)op->buf);
    strbuf_putc(p->out, '[');
    put_values(p, rank, op->operands + first);
    strbuf_putc(p->out, ']');
    if (op->code == LP_OP_STORE) {
        strbuf_puts(p->out, ", ");
        put_value(p, op->operands[0]);
    }
    if (op->code == LP_OP_PREFETCH && op->index) strbuf_puts(p->out, " far");
    put_axis(p, " rows ", op->row_axis);
    put_axis(p, " cols ", op->col_axis);
    const struct lp_value *nrows = lp_nrows(p->k, op), *ncols = lp_ncols(p->k, op);
    if (nrows) {
        strbuf_puts(p->out, " nrows ");
        put_value(p, nrows);
    }
    if (ncols) {
        strbuf_puts(p->out, " ncols ");
        put_value(p, ncols);
    }
}

static void put_for(struct printer *p, const struct lp_op *op, int depth)
{
    static const char *const kinds[] = {"serial", "unroll", "vector"};
    const struct lp_block *body = op->regions[0];
    strbuf_printf(p->out, " %s ", kinds[op->index]);
    put_value(p, body->args[0]);
    strbuf_puts(p->out, " in ");
    put_value(p, op->operands[0]);
    strbuf_puts(p->out, " .. ");
    put_value(p, op->operands[1]);
    strbuf_printf(p->out, " step %lld", (long long)op->imm);
    for (int i = 0; i < op->n_results; i++) {
        strbuf_puts(p->out, i ? ", " : " carry (");
        put_value(p, body->args[i + 1]);
        strbuf_puts(p->out, " = ");
        put_value(p, op->operands[i + 2]);
    }
    strbuf_puts(p->out, op->n_results ? ") {\n" : " {\n");
    put_block(p, body, depth + 1);
    indent(p, depth);
    strbuf_puts(p->out, "}\n");
}

static void put_if(struct printer *p, const struct lp_op *op, int depth)
{
    strbuf_putc(p->out, ' ');
    put_value(p, op->operands[0]);
    for (int i = 0; i < op->n_results; i++) {
        strbuf_puts(p->out, i ? ", " : " -> (");
        put_type(p, op->results[i]->type);
    }
    strbuf_puts(p->out, op->n_results ? ") {\n" : " {\n");
    put_block(p, op->regions[0], depth + 1);
    indent(p, depth);
    strbuf_puts(p->out, "} else {\n");
    put_block(p, op->regions[1], depth + 1);
    indent(p, depth);
    strbuf_puts(p->out, "}\n");
}

/* What stands between the op's name and its result type. */
static void put_operands(struct printer *p, const struct lp_op *op)
{
    static const char *const reductions[] = {"add", "mul", "min", "max", "and", "or"};
    switch (op->code) {
    case LP_OP_CONST:
        strbuf_putc(p->out, ' ');
        if (dtype_is_float(op->results[0]->type.dtype)) put_float(p, op->results[0]->type.dtype, op->fimm);
        else strbuf_printf(p->out, "%lld", (long long)op->imm);
        return;
    case LP_OP_DIM: strbuf_printf(p->out, " #%d", op->index); return;
    case LP_OP_LOAD:
    case LP_OP_PREFETCH:
    case LP_OP_STORE: put_access(p, op); return;
    case LP_OP_REDUCE: strbuf_printf(p->out, " %s", reductions[op->index]); break;
    case LP_OP_EXTRACT:
    case LP_OP_DOT_BLOCKS:
    case LP_OP_MMA: strbuf_printf(p->out, " %d,", op->index); break;
    default: break;
    }
    if (op->n_operands) strbuf_putc(p->out, ' ');
    put_values(p, op->n_operands, op->operands);
}

static void put_op(struct printer *p, const struct lp_op *op, int depth)
{
    indent(p, depth);
    put_values(p, op->n_results, op->results);
    if (op->n_results) strbuf_puts(p->out, " = ");
    strbuf_puts(p->out, lp_op_name(op->code));
    if (op->code == LP_OP_FOR) {
        put_for(p, op, depth);
        return;
    }
    if (op->code == LP_OP_IF) {
        put_if(p, op, depth);
        return;
    }
    put_operands(p, op);
    if (op->n_results) {
        strbuf_puts(p->out, " : ");
        put_type(p, op->results[0]->type);
    }
    strbuf_putc(p->out, '\n');
}

static void put_block(struct printer *p, const struct lp_block *b, int depth)
{
    for (const struct lp_op *op = b->first; op; op = op->next) {
        if (op->code == LP_OP_YIELD && op->n_operands == 0 && !op->next) continue;
        put_op(p, op, depth);
    }
}

void lp_print(struct strbuf *out, const struct lp_kernel *k, bool canonical)
{
    struct printer p = {.out = out, .k = k, .canonical = canonical};
    arena_init(&p.arena);
    p.number = ARENA_ARRAY(&p.arena, uint32_t, k->next_id);
    if (!canonical) {
        collect_syms(&p);
        for (size_t i = 0; i < p.syms.n; i++) {
            strbuf_puts(out, "sym ");
            dim_print(out, p.syms.v[i]);
            put_range(&p, p.syms.v[i]);
        }
    }
    put_header(&p);
    strbuf_puts(out, "  body(");
    put_value(&p, k->body->args[0]);
    strbuf_puts(out, ") {\n");
    put_block(&p, k->body, 2);
    strbuf_puts(out, "  }\n}\n");
    arena_deinit(&p.arena);
}
