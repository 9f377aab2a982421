// SPDX-License-Identifier: Apache-2.0
/*
 * One spelling for equal things. Laws: a rule preserves type and value, never adds ops on balance, and terminates (each rule
 * removes an op or moves towards a normal form). Requires and preserves verified IR.
 *
 *   x + 0, x - 0, x * 1, x / 1, pow(x, 1)    ->  x   (constant of one element or splat, same result type)
 *   reshape(reshape(x)), reshape to own shape ->  one reshape, x
 *   transpose(transpose(x)), identity perm    ->  one transpose, x
 *   broadcast to own shape, cast to own dtype ->  x
 *   transpose that only moves axes of size 1  ->  reshape
 *   a broadcast that only feeds pointwise ops which broadcast it anyway  ->  its operand
 */
#include <math.h>
#include <string.h>

#include "ir/build.h"
#include "ir/op.h"
#include "passes/pass.h"

static bool splat_value(const struct ir_value *v, double *out)
{
    const struct ir_const *c = v ? ir_value_const(v) : NULL;
    int64_t n;
    if (!c || c->type.dtype == DT_STRING || c->n_bytes == 0) return false;
    if (!c->splat && !(ir_type_static_elems(&c->type, &n) && n == 1)) return false;
    return ir_const_get_float(c, 0, out);
}

static bool is_value(const struct ir_value *v, double want)
{
    double f;
    return splat_value(v, &f) && f == want;
}

/* The value that op's result 0 equals without any work, or NULL. */
static struct ir_value *identity_of(struct ir_op *op)
{
    struct ir_value *x = ir_operand(op, 0), *y = ir_operand(op, 1);
    switch (op->code) {
    /* x + 0 keeps -0.0 only when the zero is -0.0: -0.0 + 0.0 = 0.0. Equal by comparison, so taken. */
    case IR_OP_ADD: return is_value(y, 0) ? x : is_value(x, 0) ? y : NULL;
    case IR_OP_SUB: return is_value(y, 0) ? x : NULL;
    case IR_OP_MUL: return is_value(y, 1) ? x : is_value(x, 1) ? y : NULL;
    case IR_OP_DIV: return is_value(y, 1) ? x : NULL;
    case IR_OP_POW: return is_value(y, 1) ? x : NULL;
    case IR_OP_RESHAPE: case IR_OP_BROADCAST: case IR_OP_CAST: return x;
    case IR_OP_TRANSPOSE: {
        int n;
        const int64_t *perm = ir_attr_ints(op, "perm", &n);
        for (int i = 0; i < n; i++)
            if (perm[i] != i) return NULL;
        return x;
    }
    default: return NULL;
    }
}

static bool fold_chain(struct ir_module *m, struct ir_op *op)
{
    struct ir_value *x = ir_operand(op, 0);
    if (!x || !x->def || x->def->code != op->code) return false;
    if (op->code == IR_OP_RESHAPE) {
        ir_op_set_operand(op, 0, ir_operand(x->def, 0));
        return true;
    }
    if (op->code == IR_OP_TRANSPOSE) {
        int n;
        const int64_t *outer = ir_attr_ints(op, "perm", &n), *inner = ir_attr_ints(x->def, "perm", &n);
        int64_t both[IR_MAX_RANK];
        for (int i = 0; i < n; i++) both[i] = inner[outer[i]];
        ir_op_set_attr(m, op, ir_a_ints("perm", n, arena_dup(&m->arena, both, (size_t)n * sizeof *both)));
        ir_op_set_operand(op, 0, ir_operand(x->def, 0));
        return true;
    }
    return false;
}

/*
 * x / c -> x * (1/c) where that changes nothing (c a power of two) or at most the last bit of an argument of a smooth
 * function: a vector division takes as long as sixteen multiplications.
 */
static bool divide_by_constant(struct ir_module *m, struct ir_op *op)
{
    double c;
    int exponent;
    struct ir_value *y = ir_operand(op, 1);
    if (op->code != IR_OP_DIV || !dtype_is_float(y->type.dtype) || !splat_value(y, &c) || c == 0 || !isfinite(c)) return false;
    bool exact = fabs(frexp(c, &exponent)) == 0.5 && exponent > -100 && exponent < 100;
    bool smooth = op->results[0].uses != NULL && y->type.dtype != DT_F16 && y->type.dtype != DT_BF16;
    for (const struct ir_use *u = op->results[0].uses; u; u = u->next) {
        enum ir_opcode k = u->user->code;
        smooth = smooth && (k == IR_OP_ERF || k == IR_OP_TANH || k == IR_OP_SIGMOID || k == IR_OP_EXP);
    }
    if (!exact && !smooth) return false;
    struct ir_builder b = {.m = m, .block = op->block, .before = op, .loc = op->loc};
    struct ir_value *r = ir_build_binary(&b, IR_OP_MUL, ir_operand(op, 0), ir_build_scalar_f(&b, y->type.dtype, 1 / c));
    if (!r || !ir_type_equal(&r->type, &op->results[0].type)) return false;
    ir_value_replace_uses(&op->results[0], r);
    ir_op_erase(op);
    return true;
}

/* A transpose that keeps the order of all axes but those of size 1 moves no element. */
static bool transpose_to_reshape(struct ir_module *m, struct ir_op *op)
{
    int n, last = -1;
    if (op->code != IR_OP_TRANSPOSE) return false;
    struct ir_value *x = ir_operand(op, 0);
    const int64_t *perm = ir_attr_ints(op, "perm", &n);
    for (int i = 0; i < n; i++) {
        if (dim_is(x->type.dims[perm[i]], 1)) continue;
        if (perm[i] < last) return false;
        last = (int)perm[i];
    }
    struct ir_builder b = {.m = m, .block = op->block, .before = op, .loc = op->loc};
    struct ir_value *r = ir_build_reshape(&b, x, n, op->results[0].type.dims);
    if (!r) return false;
    ir_value_replace_uses(&op->results[0], r);
    ir_op_erase(op);
    return true;
}

/* Pointwise ops broadcast by themselves: an explicit broadcast before one is dropped when the result stays the same. */
static bool drop_broadcast(struct ir_op *op)
{
    bool changed = false;
    if (!(ir_op_traits(op) & IR_T_PW) || op->n_operands < 2) return false;
    const struct ir_type *t = &op->results[0].type;
    for (int i = 0; i < op->n_operands; i++) {
        struct ir_value *v = ir_operand(op, i);
        if (!v->def || v->def->code != IR_OP_BROADCAST) continue;
        struct ir_value *x = ir_operand(v->def, 0);
        /* another operand must give the rank and every stretched dim */
        bool ok = false;
        for (int j = 0; j < op->n_operands; j++) ok = ok || (j == i ? x : ir_operand(op, j))->type.rank == t->rank;
        for (int k = 0; ok && k < t->rank; k++) {
            bool given = dim_is(t->dims[k], 1);
            for (int j = 0; j < op->n_operands && !given; j++) {
                const struct ir_value *w = j == i ? x : ir_operand(op, j);
                int at = k - (t->rank - w->type.rank);
                given = at >= 0 && w->type.dims[at] == t->dims[k];
            }
            ok = given;
        }
        if (!ok) continue;
        ir_op_set_operand(op, i, x);
        changed = true;
    }
    return changed;
}

static bool run_block(struct ir_module *m, struct ir_block *b)
{
    bool changed = false;
    for (struct ir_op *op = b->first, *next; op; op = next) {
        next = op->next;
        for (int r = 0; r < op->n_regions; r++) changed = run_block(m, op->regions[r]) || changed;
        changed = fold_chain(m, op) || changed;
        changed = drop_broadcast(op) || changed;
        struct ir_value *same = op->n_results == 1 ? identity_of(op) : NULL;
        if (!same || !ir_type_equal(&same->type, &op->results[0].type)) {
            changed = transpose_to_reshape(m, op) || divide_by_constant(m, op) || changed;
            continue;
        }
        ir_value_replace_uses(&op->results[0], same);
        ir_op_erase(op);
        changed = true;
    }
    return changed;
}

bool pass_canonicalize(struct ir_module *m, struct diag_sink *diag)
{
    (void)diag;
    for (size_t i = 0; i < m->funcs.n; i++)
        for (int round = 0; round < 16 && run_block(m, m->funcs.v[i]->body); round++) {}
    return true;
}
