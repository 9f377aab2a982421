// SPDX-License-Identifier: Apache-2.0
/*
 * Sums that a logarithm follows are made in f64.
 *
 * log x turns a relative error of x into an absolute one of the result. A sum whose terms cancel (a convolution by a wave,
 * say, whose square is a power near zero) has no relative accuracy in f32: its error is in proportion to its terms. So:
 *
 *   relative  is wanted of the operand of every f32 log, and carried backwards through what keeps it: products, quotients, powers,
 *             roots, maxima, moves, and sums of what is never negative;
 *   wide      is wanted where it cannot be had in f32: a sum of terms of either sign (conv, matmul, reduce_sum, add, sub, ..)
 *             is computed in f64 from operands that are wide themselves, through everything linear, back to inputs,
 *             constants and other ops, whose f32 values are taken as they are. The result is rounded to f32 once.
 *
 *   conv x, w  (f32; then squared, summed, log)   ->   cast (conv (cast x to f64), (cast w to f64)) to f32
 *
 * Operands are cast once, before the loops of a product: `acc` would have each element converted at every use.
 *
 * x + c with a constant c of 1 and more ends it: the logarithm's slope is at most 1 there. Other singular functions
 * (1/x, rsqrt) are not asked for: an error relative to their result stays relative to it. An add of two f32 values is as exact in f32.
 *
 * Requires: verified IR without groups; behind the rules that fold factors into weights, before layout. Cost: linear.
 */
#include <math.h>

#include "ir/build.h"
#include "passes/pass.h"

enum want { RELATIVE = 1, WIDE = 2 };

struct sums {
    struct ir_module *m;
    size_t n;                 /* ids of values that there were before */
    unsigned char *nonneg;    /* by id: never below zero (NaN aside) */
    unsigned char *want;      /* by id: enum want */
    struct map wide;          /* id of an f32 rounding -> what was rounded */
    struct map cast;          /* id of an f32 value -> its cast, in this block */
};

static bool is_f32(const struct ir_value *v) { return v && v->type.dtype == DT_F32; }

/* Are all elements of a float constant at least `least`? */
static bool const_at_least(const struct ir_value *v, double least)
{
    const struct ir_const *c = v ? ir_value_const(v) : NULL;
    int64_t n;
    double x;
    if (!c || c->type.enc || !ir_type_static_elems(&c->type, &n)) return false;
    for (int64_t i = 0; i < (c->splat && n ? 1 : n); i++)
        if (!ir_const_get_float(c, i, &x) || !(x >= least)) return false;
    return true;
}

/* An even constant exponent. */
static bool even_power(const struct ir_value *v)
{
    const struct ir_const *c = ir_value_const(v);
    double x;
    int64_t n;
    return c && ir_type_static_elems(&c->type, &n) && (c->splat || n == 1) && ir_const_get_float(c, 0, &x) && fmod(x, 2) == 0;
}

/* ---- signs ---- */

static bool nonneg(const struct sums *s, const struct ir_value *v) { return v && v->id < s->n && s->nonneg[v->id]; }

static bool all_nonneg(const struct sums *s, const struct ir_op *op, int from)
{
    for (int i = from; i < op->n_operands; i++)
        if (ir_operand(op, i) && !nonneg(s, ir_operand(op, i))) return false;
    return true;
}

static bool result_nonneg(const struct sums *s, const struct ir_op *op)
{
    const struct ir_value *x = ir_operand(op, 0), *y = ir_operand(op, 1);
    switch (op->code) {
    case IR_OP_CONSTANT: return dtype_is_float(op->results[0].type.dtype) && const_at_least(&op->results[0], 0);
    case IR_OP_ABS: case IR_OP_EXP: case IR_OP_SQRT: case IR_OP_SIGMOID: case IR_OP_SOFTMAX: return true;
    case IR_OP_MUL: return x == y || all_nonneg(s, op, 0);
    case IR_OP_POW: return nonneg(s, x) || even_power(y);
    case IR_OP_MAX: return nonneg(s, x) || nonneg(s, y);
    case IR_OP_SELECT: return all_nonneg(s, op, 1);
    case IR_OP_GATHER: case IR_OP_GATHER_ELEMENTS: case IR_OP_GATHER_ND: case IR_OP_REVERSE_SEQUENCE: case IR_OP_FLOOR: case IR_OP_CEIL:
    case IR_OP_ROUND: case IR_OP_CAST: case IR_OP_TANH: return nonneg(s, x) && dtype_is_float(x->type.dtype);
    case IR_OP_RESHAPE: case IR_OP_TRANSPOSE: case IR_OP_BROADCAST: case IR_OP_SLICE: case IR_OP_PAD: case IR_OP_CONCAT:
    case IR_OP_REDUCE_SUM: case IR_OP_REDUCE_PROD: case IR_OP_REDUCE_MAX: case IR_OP_REDUCE_MIN: case IR_OP_CUM_SUM: case IR_OP_MIN:
    case IR_OP_POOL_MAX: case IR_OP_POOL_AVG: case IR_OP_POOL_SUM: case IR_OP_ADD: case IR_OP_DIV: case IR_OP_MATMUL: case IR_OP_CONV:
    case IR_OP_CONV_TRANSPOSE: return all_nonneg(s, op, 0);
    default: return false;
    }
}

/* ---- what is wanted ---- */

static void ask(struct sums *s, const struct ir_op *op, int from, int to, unsigned want)
{
    for (int i = from; i < to && i < op->n_operands; i++) {
        const struct ir_value *v = ir_operand(op, i);
        if (is_f32(v) && v->id < s->n) s->want[v->id] |= (unsigned char)want;
    }
}

/* Operands [from, to) of an op that moves or scales: they are asked for what its result is. */
static bool moves(const struct ir_op *op, int *to)
{
    switch (op->code) {
    case IR_OP_GATHER: case IR_OP_GATHER_ELEMENTS: case IR_OP_GATHER_ND: case IR_OP_REVERSE_SEQUENCE: *to = 1; return true;
    case IR_OP_RESHAPE: case IR_OP_TRANSPOSE: case IR_OP_BROADCAST: case IR_OP_SLICE: case IR_OP_NEG: case IR_OP_ABS: *to = 1; return true;
    case IR_OP_PAD: case IR_OP_MUL: case IR_OP_DIV: *to = 2; return true;
    case IR_OP_CONCAT: *to = op->n_operands; return true;
    default: return false;
    }
}

static bool sums_up(enum ir_opcode c)
{
    return c == IR_OP_ADD || c == IR_OP_SUB || c == IR_OP_REDUCE_SUM || c == IR_OP_CUM_SUM || c == IR_OP_POOL_AVG || c == IR_OP_POOL_SUM ||
           c == IR_OP_MATMUL || c == IR_OP_CONV || c == IR_OP_CONV_TRANSPOSE || c == IR_OP_DFT;
}

static bool has_encoded_operand(const struct ir_op *op)
{
    for (int i = 0; i < op->n_operands; i++)
        if (ir_operand(op, i) && ir_operand(op, i)->type.enc) return true;
    return false;
}

/* Asks the operands of op for what its result needs. True: op itself is to be computed in f64. */
static bool visit(struct sums *s, const struct ir_op *op)
{
    const struct ir_value *r = &op->results[0];
    if (op->code == IR_OP_LOG && is_f32(r)) ask(s, op, 0, 1, RELATIVE);
    if (op->n_results != 1 || !is_f32(r) || r->id >= s->n || !s->want[r->id]) return false;
    unsigned want = s->want[r->id];
    int to;
    if (moves(op, &to)) {
        ask(s, op, 0, to, want);
        return want & WIDE;
    }
    if (sums_up(op->code) && !has_encoded_operand(op) && !ir_attr_find(op, "acc")) {
        bool cancels = op->code == IR_OP_SUB || op->code == IR_OP_DFT || !all_nonneg(s, op, 0);
        bool shifted = op->code == IR_OP_ADD && !cancels && (const_at_least(ir_operand(op, 0), 1) || const_at_least(ir_operand(op, 1), 1));
        if (want & WIDE || cancels) {
            ask(s, op, 0, op->n_operands, WIDE);
            return true;
        }
        if (!shifted) ask(s, op, 0, op->n_operands, RELATIVE);
        return false;
    }
    switch (op->code) { /* from here on f32 */
    case IR_OP_SQRT: case IR_OP_POW: case IR_OP_REDUCE_MAX: case IR_OP_REDUCE_MIN: case IR_OP_REDUCE_PROD: ask(s, op, 0, 1, RELATIVE); break;
    case IR_OP_MAX: case IR_OP_MIN: ask(s, op, 0, 2, RELATIVE); break;
    case IR_OP_SELECT: ask(s, op, 1, 3, RELATIVE); break;
    default: break;
    }
    return false;
}

/* ---- rewriting ---- */

/* v in f64 if it is known beyond f32, else NULL. */
static struct ir_value *wide_of(const struct sums *s, const struct ir_value *v) { return v ? map_find(&s->wide, &v->id, sizeof v->id) : NULL; }

/* f64 has nothing to add: f32 operands are only moved, or their sum is rounded once and wanted in f32. */
static bool exact_enough(const struct sums *s, const struct ir_op *op)
{
    bool one = op->code == IR_OP_ADD || op->code == IR_OP_SUB;
    if (!(ir_op_traits(op) & IR_T_MOVE) && op->code != IR_OP_NEG && op->code != IR_OP_ABS && !one) return false;
    for (int i = 0; i < op->n_operands; i++)
        if (wide_of(s, ir_operand(op, i))) return false;
    return !one || !(s->want[op->results[0].id] & WIDE);
}

/* v in f64 at b; one cast a block. */
static struct ir_value *wide_at(struct sums *s, struct ir_builder *b, struct ir_value *v)
{
    struct ir_value *w = wide_of(s, v);
    if (!w) w = map_find(&s->cast, &v->id, sizeof v->id);
    if (w) return w;
    w = ir_build_cast(b, v, DT_F64);
    if (w) map_put(&s->cast, &v->id, sizeof v->id, w);
    return w;
}

/* op in f64 before it, then rounded; what read op reads the rounding. */
static bool widen(struct sums *s, struct ir_op *op)
{
    struct ir_builder b = {.m = s->m, .block = op->block, .before = op, .loc = op->loc};
    struct ir_value *operands[IR_MAX_RANK + 4], **at = operands;
    if (op->n_operands > (int)ARRAY_LEN(operands)) at = ARENA_ARRAY(&s->m->arena, struct ir_value *, op->n_operands);
    for (int i = 0; i < op->n_operands; i++) {
        struct ir_value *v = ir_operand(op, i);
        at[i] = is_f32(v) ? wide_at(s, &b, v) : v;
    }
    struct ir_op *wide = ir_build(&b, op->code, op->n_operands, at, op->n_attrs, op->attrs, 1);
    struct ir_value *r = wide ? ir_build_cast(&b, &wide->results[0], DT_F32) : NULL;
    if (!r) return false;
    if (sums_up(op->code)) vec_push(&s->m->arena, &s->m->wide_sums, op->loc ? op->loc : ir_loc_make(s->m, ir_op_name(op->code)));
    map_put(&s->wide, &r->id, sizeof r->id, &wide->results[0]);
    ir_value_replace_uses(&op->results[0], r);
    ir_op_erase(op);
    return true;
}

static bool run_block(struct sums *s, struct ir_block *b, struct arena *scratch)
{
    VEC(struct ir_op *) wide = {0};
    for (struct ir_op *op = b->first; op; op = op->next)
        if (op->n_results == 1 && op->results[0].id < s->n) s->nonneg[op->results[0].id] = result_nonneg(s, op);
    for (struct ir_op *op = b->last; op; op = op->prev)
        if (visit(s, op)) vec_push(scratch, &wide, op);
    for (struct ir_op *op = b->first; op; op = op->next) /* regions see what the block around them found, before it changes */
        for (int r = 0; r < op->n_regions; r++)
            if (!run_block(s, op->regions[r], scratch)) return false;
    map_init(&s->cast, scratch);
    for (size_t i = wide.n; i-- > 0;)
        if (!exact_enough(s, wide.v[i]) && !widen(s, wide.v[i])) return false;
    return true;
}

bool pass_sums(struct ir_module *m, struct diag_sink *diag)
{
    (void)diag;
    if (m->plain_sums) return true;
    struct arena scratch;
    arena_init(&scratch);
    struct sums s = {.m = m, .n = m->next_id};
    s.nonneg = ARENA_ARRAY(&scratch, unsigned char, s.n + 1), s.want = ARENA_ARRAY(&scratch, unsigned char, s.n + 1);
    map_init(&s.wide, &scratch);
    bool ok = true;
    for (size_t i = 0; ok && i < m->funcs.n; i++) ok = run_block(&s, m->funcs.v[i]->body, &scratch);
    arena_deinit(&scratch);
    return ok;
}
