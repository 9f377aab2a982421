// SPDX-License-Identifier: Apache-2.0
/*
 * Integer contractions in floats. Integers up to 2^24 are exact in f32, sums of them too as long as no partial sum exceeds
 * that. With constant weights the largest one is known: max|x| * sum|w| of a result channel. Below the bound
 *
 *   conv(x: i32, w)  ->  cast(conv(cast(x, f32), cast(w, f32)), i32)
 *
 * has the same bits in any order of summation, and the schedules of f32.
 */
#include "passes/patterns.h"

#include <string.h>

#define EXACT ((int64_t)1 << 24)

struct range {
    int64_t lo, hi;
};

static struct range dtype_range(enum dtype t)
{
    unsigned bits = t == DT_BOOL ? 1 : dtype_bits(t);
    if (bits > 32) return (struct range){-((int64_t)1 << 40), (int64_t)1 << 40}; /* as good as unknown */
    if (dtype_class(t) == DTC_SINT) return (struct range){-((int64_t)1 << (bits - 1)), ((int64_t)1 << (bits - 1)) - 1};
    return (struct range){0, ((int64_t)1 << bits) - 1};
}

static struct range join(struct range a, struct range b) { return (struct range){a.lo < b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi}; }

static struct range const_range(const struct ir_const *c)
{
    int64_t n = 1, v;
    if (!c->splat && !ir_type_static_elems(&c->type, &n)) return dtype_range(c->type.dtype);
    struct range r = {INT64_MAX, INT64_MIN};
    for (int64_t i = 0; i < n; i++) {
        if (!ir_const_get_int(c, i, &v)) return dtype_range(c->type.dtype);
        r = join(r, (struct range){v, v});
    }
    return n ? r : (struct range){0, 0};
}

/* Bounds of the elements of an integer value; arithmetic that might wrap gives the dtype's. */
static struct range range_of(const struct ir_value *v, int depth)
{
    struct range all = dtype_range(v->type.dtype), a, b, r;
    const struct ir_op *op = v->def;
    if (!op || depth == 0 || dtype_is_float(v->type.dtype)) return all;
    const struct ir_value *x = ir_operand(op, 0), *y = ir_operand(op, 1);
    switch (op->code) {
    case IR_OP_CONSTANT: return const_range(ir_attr_const(op, "value"));
    case IR_OP_CAST:
        if (dtype_is_float(x->type.dtype)) return all;
        r = range_of(x, depth - 1);
        break;
    case IR_OP_RESHAPE: case IR_OP_TRANSPOSE: case IR_OP_BROADCAST: case IR_OP_SLICE: case IR_OP_GATHER: return range_of(x, depth - 1);
    case IR_OP_PAD: return join(range_of(x, depth - 1), y ? range_of(y, depth - 1) : (struct range){0, 0});
    case IR_OP_ADD: case IR_OP_SUB: case IR_OP_MIN: case IR_OP_MAX:
        a = range_of(x, depth - 1), b = range_of(y, depth - 1);
        if (op->code == IR_OP_ADD) r = (struct range){a.lo + b.lo, a.hi + b.hi};
        else if (op->code == IR_OP_SUB) r = (struct range){a.lo - b.hi, a.hi - b.lo};
        else if (op->code == IR_OP_MIN) r = (struct range){a.lo < b.lo ? a.lo : b.lo, a.hi < b.hi ? a.hi : b.hi};
        else r = (struct range){a.lo > b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi};
        break;
    default: return all;
    }
    return r.lo < all.lo || r.hi > all.hi ? all : r;
}

/* The largest sum of |w| over the weights of one result channel: runs of `run` elements. */
static int64_t largest_sum(const struct ir_const *w, int64_t n, int64_t run)
{
    int64_t most = 0, v;
    for (int64_t i = 0; i < n; i += run) {
        int64_t sum = 0;
        for (int64_t k = i; k < i + run; k++) {
            if (!ir_const_get_int(w, k, &v)) return INT64_MAX;
            sum += v < 0 ? -v : v;
            if (sum > EXACT) return INT64_MAX;
        }
        if (sum > most) most = sum;
    }
    return most;
}

bool pat_int_conv(struct rewriter *r, struct ir_op *op)
{
    struct ir_value *x = ir_operand(op, 0), *wv = ir_operand(op, 1);
    const struct ir_const *w = ir_value_const(wv);
    enum dtype t = op->results[0].type.dtype;
    int64_t n;
    if (t != DT_I32 || !w || w->splat || ir_operand(op, 2) || dtype_is_float(x->type.dtype) || !ir_type_static_elems(&w->type, &n) || !n) return false;
    struct range rx = range_of(x, 12);
    int64_t most = -rx.lo > rx.hi ? -rx.lo : rx.hi, sum = most < EXACT ? largest_sum(w, n, n / w->type.dims[0]->value) : INT64_MAX;
    if (sum == INT64_MAX || (most && sum > EXACT / most)) return false;
    double *data = ARENA_ARRAY(&r->scratch, double, n);
    int64_t dims[IR_MAX_RANK], v;
    for (int64_t i = 0; i < n; i++) data[i] = ir_const_get_int(w, i, &v) ? (double)v : 0;
    for (int i = 0; i < w->type.rank; i++) dims[i] = w->type.dims[i]->value;
    struct ir_value *operands[2] = {ir_build_cast(&r->b, x, DT_F32), pat_constant(r, w->name, DT_F32, w->type.rank, dims, data)};
    struct ir_attr attrs[16];
    int n_attrs = 0;
    for (int i = 0; i < op->n_attrs && n_attrs < 16; i++)
        if (strcmp(op->attrs[i].name, "acc")) attrs[n_attrs++] = op->attrs[i];
    struct ir_op *conv = ir_build(&r->b, IR_OP_CONV, 2, operands, n_attrs, attrs, 1);
    struct ir_value *y = conv ? ir_build_cast(&r->b, &conv->results[0], t) : NULL;
    if (!y) return false;
    rewrite_replace1(r, op, y);
    return true;
}
