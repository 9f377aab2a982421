// SPDX-License-Identifier: Apache-2.0
/* Constant factors and terms next to convolutions and matmuls become part of their weights. Laws: passes/patterns.c. */
#include "passes/patterns.h"

#include <math.h>
#include <string.h>

/*
 * A constant operand as one number for each of n channels at axis `axis` of a value of type t (every other axis of it
 * has size 1), or one number for all. NULL when v is something else.
 */
static double *channel_values(struct rewriter *r, const struct ir_value *v, const struct ir_type *t, int axis, int64_t n)
{
    int64_t count;
    double *f = pat_floats(r, v, &count);
    if (!f || v->type.rank > t->rank || v->type.dtype != t->dtype) return NULL;
    int shift = t->rank - v->type.rank;
    for (int i = 0; i < v->type.rank; i++)
        if (i + shift != axis && !dim_is(v->type.dims[i], 1)) return NULL;
    if (count != 1 && count != n) return NULL;
    double *out = ARENA_ARRAY(&r->scratch, double, n + 1);
    for (int64_t i = 0; i < n; i++) out[i] = count == 1 ? f[0] : f[i];
    return out;
}

/* A convolution whose weights (and bias) are constants of one float type, plain and used once. */
struct conv {
    struct ir_op *op;
    const struct ir_const *w;
    int64_t groups, out, per_out; /* channels of the result; weights of one of them (conv) */
    bool transposed;
    double *weights, *bias; /* bias NULL: none */
    int64_t n_weights;
};

static bool read_conv(struct rewriter *r, const struct ir_value *v, bool need_one_use, struct conv *c)
{
    memset(c, 0, sizeof *c);
    c->op = pat_def(v, IR_OP_CONV);
    if (!c->op) c->op = pat_def(v, IR_OP_CONV_TRANSPOSE), c->transposed = c->op != NULL;
    if (!c->op || (need_one_use && !ir_value_has_one_use(v))) return false;
    if (ir_attr_find(c->op, "acc") || ir_attr_int(c->op, "channels_last", 0)) return false;
    const struct ir_value *w = ir_operand(c->op, 1), *b = ir_operand(c->op, 2);
    enum dtype t = v->type.dtype;
    int64_t n;
    c->w = ir_value_const(w);
    if (!c->w || w->type.dtype != t || (b && b->type.dtype != t)) return false;
    c->groups = ir_attr_int(c->op, "groups", 1);
    c->out = c->transposed ? w->type.dims[1]->value * c->groups : w->type.dims[0]->value;
    if (b && (!(c->bias = pat_floats(r, b, &n)) || n != c->out)) return false;
    return c->out > 0;
}

static bool read_weights(struct rewriter *r, struct conv *c)
{
    c->weights = pat_floats(r, ir_operand(c->op, 1), &c->n_weights);
    c->per_out = c->n_weights / c->out;
    return c->weights != NULL;
}

static struct ir_value *weights_value(struct rewriter *r, const struct conv *c)
{
    int64_t dims[IR_MAX_RANK];
    for (int i = 0; i < c->w->type.rank; i++) dims[i] = c->w->type.dims[i]->value;
    return pat_constant(r, c->w->name, c->w->type.dtype, c->w->type.rank, dims, c->weights);
}

/* The convolution again with these operands, instead of op. */
static bool replace_conv(struct rewriter *r, struct ir_op *op, const struct conv *c, struct ir_value *x, struct ir_value *w)
{
    struct ir_value *operands[3] = {x, w, ir_operand(c->op, 2)};
    const struct ir_value *old = ir_operand(c->op, 2);
    if (c->bias) operands[2] = pat_constant(r, old ? ir_value_const(old)->name : "bias", c->w->type.dtype, 1, &c->out, c->bias);
    struct ir_op *n = ir_build(&r->b, c->op->code, operands[2] ? 3 : 2, operands, c->op->n_attrs, c->op->attrs, 1);
    if (!n) return false;
    n->loc = ir_loc_join(r->m, c->op->loc, op->loc);
    rewrite_replace1(r, op, &n->results[0]);
    return true;
}

/* The two operands of a binary op: the constant one's number; division only by constants. */
static bool split(const struct ir_op *op, int constant, struct ir_value **x, struct ir_value **k)
{
    if (constant == 0 && (op->code == IR_OP_DIV || op->code == IR_OP_SUB)) return false;
    *x = ir_operand(op, 1 - constant), *k = ir_operand(op, constant);
    return ir_value_const(*k) != NULL && pat_same_dims(&(*x)->type, &op->results[0].type);
}

static double apply(enum ir_opcode code, double x, double k)
{
    switch (code) {
    case IR_OP_MUL: return x * k;
    case IR_OP_DIV: return x / k;
    case IR_OP_ADD: return x + k;
    default: return x - k;
    }
}

/* Channel of the result that weight number i belongs to. */
static int64_t out_channel(const struct conv *c, int64_t i)
{
    if (!c->transposed) return i / c->per_out;
    int64_t og = c->out / c->groups, taps = 1, in = c->w->type.dims[0]->value;
    for (int k = 2; k < c->w->type.rank; k++) taps *= c->w->type.dims[k]->value;
    return i / taps / og / (in / c->groups) * og + i / taps % og; /* [in, og, taps]: in tells the group */
}

bool pat_scale_weights(struct rewriter *r, struct ir_op *op)
{
    struct ir_value *x, *k;
    struct conv c;
    for (int constant = 0; constant < 2; constant++) {
        if (!split(op, constant, &x, &k) || !read_conv(r, x, true, &c)) continue;
        double *f = channel_values(r, k, &x->type, 1, c.out);
        if (!f || !read_weights(r, &c)) continue;
        for (int64_t i = 0; i < c.n_weights; i++) c.weights[i] = apply(op->code, c.weights[i], f[out_channel(&c, i)]);
        for (int64_t i = 0; c.bias && i < c.out; i++) c.bias[i] = apply(op->code, c.bias[i], f[i]);
        return replace_conv(r, op, &c, ir_operand(c.op, 0), weights_value(r, &c));
    }
    return false;
}

bool pat_shift_bias(struct rewriter *r, struct ir_op *op)
{
    struct ir_value *x, *k;
    struct conv c;
    for (int constant = 0; constant < 2; constant++) {
        if (!split(op, constant, &x, &k) || !read_conv(r, x, true, &c)) continue;
        double *f = channel_values(r, k, &x->type, 1, c.out);
        if (!f || !dtype_is_float(x->type.dtype)) continue;
        if (!c.bias) c.bias = ARENA_ARRAY(&r->scratch, double, c.out);
        for (int64_t i = 0; i < c.out; i++) c.bias[i] = apply(op->code, c.bias[i], f[i]);
        return replace_conv(r, op, &c, ir_operand(c.op, 0), ir_operand(c.op, 1));
    }
    return false;
}

/* conv(x * k, w): padding stays zero, so that only the weights change. */
bool pat_scale_input(struct rewriter *r, struct ir_op *op)
{
    struct ir_value *in = ir_operand(op, 0), *x, *k;
    struct ir_op *scaled = pat_def(in, IR_OP_MUL);
    struct conv c;
    if (!scaled || !ir_value_has_one_use(in)) return false;
    for (int constant = 0; constant < 2; constant++) {
        if (!split(scaled, constant, &x, &k) || !read_conv(r, &op->results[0], false, &c)) continue;
        int64_t cg = c.w->type.dims[1]->value, channels = cg * c.groups, taps = 1;
        double *f = channel_values(r, k, &in->type, 1, channels);
        if (!f || !read_weights(r, &c)) continue;
        for (int i = 2; i < c.w->type.rank; i++) taps *= c.w->type.dims[i]->value;
        int64_t og = c.out / c.groups;
        for (int64_t i = 0; i < c.n_weights; i++) { /* [out, cg, taps] */
            int64_t group = i / taps / cg / og, channel = group * cg + i / taps % cg;
            c.weights[i] *= f[channel];
        }
        return replace_conv(r, op, &c, x, weights_value(r, &c));
    }
    return false;
}

/* matmul(x, w) * k and (matmul(x, w) + b) * k, w [K, N] and b constant, k a number or one a column. */
bool pat_scale_matmul(struct rewriter *r, struct ir_op *op)
{
    for (int constant = 0; constant < 2; constant++) {
        struct ir_value *x, *k, *bias = NULL;
        if (!split(op, constant, &x, &k) || !ir_value_has_one_use(x)) continue;
        struct ir_op *add = pat_def(x, IR_OP_ADD), *mm = pat_def(x, IR_OP_MATMUL);
        for (int i = 0; add && !mm && i < 2; i++) {
            mm = pat_def(ir_operand(add, i), IR_OP_MATMUL);
            bias = ir_operand(add, 1 - i);
            if (mm && (!ir_value_has_one_use(&mm->results[0]) || !pat_same_dims(&mm->results[0].type, &x->type))) mm = NULL;
        }
        if (!mm || ir_attr_find(mm, "acc")) continue;
        struct ir_value *w = ir_operand(mm, 1);
        bool tb = ir_attr_int(mm, "trans_b", 0);
        if (!ir_value_const(w) || w->type.rank != 2 || w->type.dtype != x->type.dtype) continue;
        int64_t n = w->type.dims[tb ? 0 : 1]->value, kk = w->type.dims[tb ? 1 : 0]->value, count;
        int last = x->type.rank - 1;
        double *f = channel_values(r, k, &x->type, last, n), *b = bias ? channel_values(r, bias, &x->type, last, n) : NULL;
        double *weights = f && (b || !bias) ? pat_floats(r, w, &count) : NULL;
        if (!weights) continue;
        for (int64_t i = 0; i < count; i++) weights[i] = apply(op->code, weights[i], f[tb ? i / kk : i % n]);
        for (int64_t i = 0; b && i < n; i++) b[i] = apply(op->code, b[i], f[i]);
        int64_t dims[2] = {w->type.dims[0]->value, w->type.dims[1]->value};
        struct ir_value *operands[2] = {ir_operand(mm, 0), pat_constant(r, ir_value_const(w)->name, w->type.dtype, 2, dims, weights)};
        struct ir_op *new_mm = ir_build(&r->b, IR_OP_MATMUL, 2, operands, mm->n_attrs, mm->attrs, 1);
        if (!new_mm) return false;
        new_mm->loc = ir_loc_join(r->m, mm->loc, op->loc);
        struct ir_value *y = &new_mm->results[0];
        if (b) y = ir_build_binary(&r->b, IR_OP_ADD, y, pat_constant(r, "bias", w->type.dtype, 1, &n, b));
        if (!y) return false;
        rewrite_replace1(r, op, y);
        return true;
    }
    return false;
}

/* i, where x[.., k] is 1 for k = i[.., 0] and else 0, k in [0, n) */
static struct ir_value *one_hot_index(const struct ir_value *x, int64_t n)
{
    const struct ir_op *op = pat_def(x, IR_OP_CAST), *eq;
    double one, zero;
    if (op) {
        eq = pat_def(ir_operand(op, 0), IR_OP_EQ);
    } else {
        op = pat_def(x, IR_OP_SELECT);
        if (!op || !pat_splat(ir_operand(op, 1), &one) || !pat_splat(ir_operand(op, 2), &zero) || one != 1 || zero != 0) return NULL;
        eq = pat_def(ir_operand(op, 0), IR_OP_EQ);
    }
    if (!eq || !pat_same_dims(&eq->results[0].type, &x->type)) return NULL;
    int rank = x->type.rank;
    for (int side = 0; side < 2; side++) {
        struct ir_value *i = ir_operand(eq, side);
        const struct ir_value *numbers = ir_operand(eq, 1 - side);
        const struct ir_const *c = ir_value_const(numbers);
        int64_t count, v;
        if (!c || c->splat || !dtype_is_int(c->type.dtype) || !ir_type_static_elems(&c->type, &count) || count != n || i->type.rank != rank) continue;
        bool fits = dim_is(i->type.dims[rank - 1], 1) && dim_is(numbers->type.dims[numbers->type.rank - 1], n);
        for (int k = 0; k < rank - 1; k++) fits = fits && i->type.dims[k] == x->type.dims[k];
        for (int64_t k = 0; fits && k < n; k++) fits = ir_const_get_int(c, k, &v) && v == k;
        if (fits) return i;
    }
    return NULL;
}

/* Rows of a table chosen by products with 0 and 1: those rows, and a row of zeros for what is none of their numbers. */
bool pat_one_hot(struct rewriter *r, struct ir_op *op)
{
    struct ir_value *x = ir_operand(op, 0), *w = ir_operand(op, 1);
    int rank = x->type.rank;
    if (ir_attr_int(op, "trans_a", 0) || ir_attr_int(op, "trans_b", 0) || ir_attr_find(op, "acc") || w->type.rank != 2 || !ir_value_const(w)) return false;
    if (w->type.dtype != x->type.dtype || op->results[0].type.dtype != x->type.dtype) return false;
    int64_t n = w->type.dims[0]->value, cols = w->type.dims[1]->value, count;
    struct ir_value *i = n > 1 ? one_hot_index(x, n) : NULL;
    double *rows = i ? pat_floats(r, w, &count) : NULL;
    if (!rows) return false;
    double *table = ARENA_ARRAY(&r->scratch, double, (n + 1) * cols + 1);
    for (int64_t k = 0; k < n * cols; k++) {
        if (!isfinite(rows[k])) return false; /* times 0 it is no 0 */
        table[k] = rows[k];
    }
    const int64_t dims[2] = {n + 1, cols};
    struct ir_builder *b = &r->b;
    i = ir_build_reshape(b, i, rank - 1, i->type.dims);
    if (!i) return false;
    i = ir_build_cast(b, i, DT_I64);
    struct ir_value *least = ir_build_binary(b, IR_OP_GE, i, ir_build_scalar_i(b, DT_I64, 0)), *last = ir_build_scalar_i(b, DT_I64, n);
    struct ir_value *there = ir_build_binary(b, IR_OP_AND, least, ir_build_binary(b, IR_OP_LT, i, last));
    i = ir_build_select(b, there, i, last);
    struct ir_value *y = ir_build_gather(b, pat_constant(r, ir_value_const(w)->name, w->type.dtype, 2, dims, table), i, 0);
    if (!y || !ir_type_equal(&y->type, &op->results[0].type)) return false;
    rewrite_replace1(r, op, y);
    return true;
}

/* Zero padding of spatial axes before a convolution is the convolution's own. */
bool pat_pad_into_conv(struct rewriter *r, struct ir_op *op)
{
    struct ir_value *in = ir_operand(op, 0);
    struct ir_op *pad = pat_def(in, IR_OP_PAD);
    double fill = 0;
    int n, n_pads, rank = in->type.rank;
    if (!pad || strcmp(ir_attr_string(pad, "mode", "constant"), "constant") || ir_attr_int(op, "channels_last", 0)) return false;
    if (ir_operand(pad, 1) && (!pat_splat(ir_operand(pad, 1), &fill) || fill != 0)) return false;
    const struct dim *const *lo = ir_attr_dims(pad, "lo", &n), *const *hi = ir_attr_dims(pad, "hi", &n);
    const struct dim *const *old = ir_attr_dims(op, "pads", &n_pads), *pads[2 * IR_MAX_RANK];
    for (int i = 0; i < rank; i++) {
        if (lo[i]->lo < 0 || hi[i]->lo < 0) return false;
        if (i < 2 && (!dim_is(lo[i], 0) || !dim_is(hi[i], 0))) return false;
    }
    int sp = rank - 2;
    for (int i = 0; i < 2 * sp; i++) {
        if (n_pads && old[i]->lo < 0) return false;
        pads[i] = i < sp ? lo[2 + i] : hi[2 + i - sp];
        if (n_pads) pads[i] = dim_add(r->m->dims, pads[i], old[i]);
    }
    struct ir_value *operands[3] = {ir_operand(pad, 0), ir_operand(op, 1), ir_operand(op, 2)};
    struct ir_attr attrs[16];
    int n_attrs = 0;
    for (int i = 0; i < op->n_attrs && n_attrs < 15; i++)
        if (strcmp(op->attrs[i].name, "pads")) attrs[n_attrs++] = op->attrs[i];
    attrs[n_attrs++] = ir_a_dims("pads", 2 * sp, pads);
    struct ir_op *conv = ir_build(&r->b, IR_OP_CONV, operands[2] ? 3 : 2, operands, n_attrs, attrs, 1);
    if (!conv) return false;
    if (!ir_type_equal(&conv->results[0].type, &op->results[0].type)) {
        ir_op_erase(conv);
        return false;
    }
    conv->loc = ir_loc_join(r->m, pad->loc, op->loc);
    rewrite_replace1(r, op, &conv->results[0]);
    return true;
}
