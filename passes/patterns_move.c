// SPDX-License-Identifier: Apache-2.0
/* Moves that follow one another, and reductions in steps. Laws and list: passes/patterns.c. */
#include "passes/patterns.h"

#include <string.h>

/* ---- slices ---- */

static struct ir_value *build_slice(struct rewriter *r, struct ir_value *x, const struct dim *const *starts, const int64_t *steps,
                                    const struct dim *const *sizes)
{
    bool whole = true;
    for (int i = 0; i < x->type.rank; i++) whole = whole && steps[i] == 1 && dim_is(starts[i], 0) && sizes[i] == x->type.dims[i];
    return whole ? x : ir_build_slice(&r->b, x, starts, steps, sizes);
}

/* slice(slice(x)): start + start2 * step, step * step2. */
static bool slice_of_slice(struct rewriter *r, struct ir_op *op, struct ir_op *inner)
{
    struct dim_ctx *dc = r->m->dims;
    int n;
    const struct dim *const *s2 = ir_attr_dims(op, "starts", &n), *const *s1 = ir_attr_dims(inner, "starts", &n);
    const struct dim *const *sizes = ir_attr_dims(op, "sizes", &n), *starts[IR_MAX_RANK];
    const int64_t *t2 = ir_attr_ints(op, "steps", &n), *t1 = ir_attr_ints(inner, "steps", &n);
    int64_t steps[IR_MAX_RANK];
    for (int i = 0; i < op->results[0].type.rank; i++) {
        if (!i64_mul(t1[i], t2[i], &steps[i])) return false;
        starts[i] = dim_add(dc, s1[i], dim_mulc(dc, s2[i], t1[i]));
        if (starts[i]->kind == DIM_OVERFLOW) return false;
    }
    struct ir_value *v = build_slice(r, ir_operand(inner, 0), starts, steps, sizes);
    if (!v) return false;
    rewrite_replace1(r, op, v);
    return true;
}

/* slice(concat(..)) that provably stays within one operand. */
static bool slice_of_concat(struct rewriter *r, struct ir_op *op, struct ir_op *concat)
{
    struct dim_ctx *dc = r->m->dims;
    int n, axis = (int)ir_attr_int(concat, "axis", 0), rank = op->results[0].type.rank;
    const struct dim *const *old = ir_attr_dims(op, "starts", &n), *const *sizes = ir_attr_dims(op, "sizes", &n);
    const int64_t *steps = ir_attr_ints(op, "steps", &n);
    const struct dim *begin = dim_const(dc, 0), *starts[IR_MAX_RANK];
    if (steps[axis] < 1) return false;
    const struct dim *last = dim_add(dc, old[axis], dim_mulc(dc, dim_addc(dc, sizes[axis], -1), steps[axis]));
    for (int i = 0; i < concat->n_operands; i++) {
        struct ir_value *x = ir_operand(concat, i);
        const struct dim *end = dim_add(dc, begin, x->type.dims[axis]);
        if (dim_known_le(dc, begin, old[axis]) && dim_known_le(dc, dim_addc(dc, last, 1), end)) {
            memcpy(starts, old, (size_t)rank * sizeof *starts);
            starts[axis] = dim_sub(dc, old[axis], begin);
            struct ir_value *v = build_slice(r, x, starts, steps, sizes);
            if (!v) return false;
            rewrite_replace1(r, op, v);
            return true;
        }
        begin = end;
    }
    return false;
}

bool pat_slice(struct rewriter *r, struct ir_op *op)
{
    struct ir_value *x = ir_operand(op, 0);
    struct ir_op *slice = pat_def(x, IR_OP_SLICE), *concat = pat_def(x, IR_OP_CONCAT);
    int n;
    const struct dim *const *starts = ir_attr_dims(op, "starts", &n), *const *sizes = ir_attr_dims(op, "sizes", &n);
    const int64_t *steps = ir_attr_ints(op, "steps", &n);
    bool whole = true;
    for (int i = 0; i < x->type.rank; i++) whole = whole && steps[i] == 1 && dim_is(starts[i], 0) && sizes[i] == x->type.dims[i];
    if (whole) {
        rewrite_replace1(r, op, x);
        return true;
    }
    if (slice) return slice_of_slice(r, op, slice);
    return concat && slice_of_concat(r, op, concat);
}

/* ---- concat ---- */

/* Operand i goes on where operand i - 1 ends: slices of one value along the axis, all else equal. */
static bool meets(struct dim_ctx *dc, const struct ir_op *a, const struct ir_op *b, int axis)
{
    int n;
    const struct dim *const *sa = ir_attr_dims(a, "starts", &n), *const *sb = ir_attr_dims(b, "starts", &n);
    const struct dim *const *za = ir_attr_dims(a, "sizes", &n), *const *zb = ir_attr_dims(b, "sizes", &n);
    const int64_t *ta = ir_attr_ints(a, "steps", &n), *tb = ir_attr_ints(b, "steps", &n);
    if (ir_operand(a, 0) != ir_operand(b, 0)) return false;
    for (int i = 0; i < n; i++) {
        if (ta[i] != tb[i]) return false;
        if (i != axis && (sa[i] != sb[i] || za[i] != zb[i])) return false;
    }
    return dim_add(dc, sa[axis], dim_mulc(dc, za[axis], ta[axis])) == sb[axis];
}

/* Slices a and b, which meet, as one. */
static struct ir_value *joined(struct rewriter *r, const struct ir_op *a, const struct ir_op *b, int axis)
{
    int n;
    const struct dim *sizes[IR_MAX_RANK], *const *za = ir_attr_dims(a, "sizes", &n), *const *zb = ir_attr_dims(b, "sizes", &n);
    memcpy(sizes, za, (size_t)n * sizeof *sizes);
    sizes[axis] = dim_add(r->m->dims, za[axis], zb[axis]);
    return build_slice(r, ir_operand(a, 0), ir_attr_dims(a, "starts", &n), ir_attr_ints(a, "steps", &n), sizes);
}

bool pat_concat(struct rewriter *r, struct ir_op *op)
{
    int axis = (int)ir_attr_int(op, "axis", 0), n = 0, total = 0;
    bool changed = false;
    for (int i = 0; i < op->n_operands; i++) {
        struct ir_op *inner = pat_def(ir_operand(op, i), IR_OP_CONCAT);
        total += inner ? inner->n_operands : 1;
    }
    struct ir_value **v = ARENA_ARRAY(&r->scratch, struct ir_value *, total);
    for (int i = 0; i < op->n_operands; i++) { /* nested ones that nothing else reads are written out */
        struct ir_value *x = ir_operand(op, i);
        struct ir_op *inner = pat_def(x, IR_OP_CONCAT);
        if (!inner || ir_attr_int(inner, "axis", 0) != axis || !ir_value_has_one_use(x)) {
            v[n++] = x;
            continue;
        }
        for (int k = 0; k < inner->n_operands; k++) v[n++] = ir_operand(inner, k);
        changed = true;
    }
    int kept = 0;
    for (int i = 0; i < n; i++) {
        struct ir_op *a = kept ? pat_def(v[kept - 1], IR_OP_SLICE) : NULL, *b = pat_def(v[i], IR_OP_SLICE);
        struct ir_value *one = a && b && meets(r->m->dims, a, b, axis) ? joined(r, a, b, axis) : NULL;
        if (one) v[kept - 1] = one, changed = true;
        else v[kept++] = v[i];
    }
    if (!changed && kept > 1) return false;
    struct ir_value *result = kept == 1 ? v[0] : ir_build_concat(&r->b, kept, v, axis);
    if (!result || !ir_type_equal(&result->type, &op->results[0].type)) return false;
    rewrite_replace1(r, op, result);
    return true;
}

/* ---- pad ---- */

/* The number that fills a constant padding; false for other modes. */
static bool fill_of(const struct ir_op *pad, double *out)
{
    *out = 0;
    return !strcmp(ir_attr_string(pad, "mode", "constant"), "constant") && (!ir_operand(pad, 1) || pat_splat(ir_operand(pad, 1), out));
}

bool pat_pad(struct rewriter *r, struct ir_op *op)
{
    struct ir_value *x = ir_operand(op, 0);
    struct ir_op *inner = pat_def(x, IR_OP_PAD);
    double f, g;
    int n;
    const struct dim *const *lo = ir_attr_dims(op, "lo", &n), *const *hi = ir_attr_dims(op, "hi", &n);
    bool none = true;
    for (int i = 0; i < n; i++) none = none && dim_is(lo[i], 0) && dim_is(hi[i], 0);
    if (none) {
        rewrite_replace1(r, op, x);
        return true;
    }
    if (!inner || !fill_of(op, &f) || !fill_of(inner, &g) || f != g) return false;
    const struct dim *const *lo1 = ir_attr_dims(inner, "lo", &n), *const *hi1 = ir_attr_dims(inner, "hi", &n);
    const struct dim *los[IR_MAX_RANK], *his[IR_MAX_RANK];
    for (int i = 0; i < n; i++) { /* cropping what was padded is not the sum */
        if (lo[i]->lo < 0 || hi[i]->lo < 0 || lo1[i]->lo < 0 || hi1[i]->lo < 0) return false;
        los[i] = dim_add(r->m->dims, lo[i], lo1[i]);
        his[i] = dim_add(r->m->dims, hi[i], hi1[i]);
    }
    struct ir_value *operands[2] = {ir_operand(inner, 0), ir_operand(op, 1)};
    struct ir_attr attrs[2] = {ir_a_dims("lo", n, los), ir_a_dims("hi", n, his)};
    struct ir_op *pad = ir_build(&r->b, IR_OP_PAD, operands[1] ? 2 : 1, operands, 2, attrs, 1);
    if (!pad) return false;
    rewrite_replace1(r, op, &pad->results[0]);
    return true;
}

/* ---- reductions ---- */

/* reduce(reduce(x)) of one kind: one reduction over the union of the axes, and a reshape when the kept ones differ. */
bool pat_reduce_chain(struct rewriter *r, struct ir_op *op)
{
    struct ir_value *mid = ir_operand(op, 0);
    struct ir_op *inner = pat_def(mid, op->code);
    if (!inner || !ir_value_has_one_use(mid)) return false;
    struct ir_value *x = ir_operand(inner, 0);
    unsigned in = pat_axes(inner), out = pat_axes(op), all = in;
    bool keep = ir_attr_int(inner, "keepdims", 0);
    for (int i = 0, k = 0; i < x->type.rank; i++) { /* k: axis i in the middle */
        if (!keep && (in >> i & 1)) continue;
        if (out >> k & 1) all |= 1u << i;
        k++;
    }
    int64_t axes[IR_MAX_RANK];
    int n = 0;
    for (int i = 0; i < x->type.rank; i++)
        if (all >> i & 1) axes[n++] = i;
    bool keep_out = ir_attr_int(op, "keepdims", 0);
    struct ir_value *v = ir_build_reduce(&r->b, op->code, x, n, axes, keep || keep_out);
    const struct ir_type *t = &op->results[0].type;
    if (v && !pat_same_dims(&v->type, t)) v = ir_build_reshape(&r->b, v, t->rank, t->dims);
    if (!v) return false;
    rewrite_replace1(r, op, v);
    return true;
}

static bool wide_float(const struct ir_value *v) { return v->type.dtype == DT_F32 || v->type.dtype == DT_F64; }

/* sum(x * c), sum(x / c) with a number c: once behind the sum. */
bool pat_reduce_of_scaled(struct rewriter *r, struct ir_op *op)
{
    struct ir_value *in = ir_operand(op, 0);
    struct ir_op *scaled = pat_def(in, IR_OP_MUL);
    if (!scaled) scaled = pat_def(in, IR_OP_DIV);
    if (!scaled || !wide_float(in) || !ir_value_has_one_use(in)) return false;
    double c;
    int k = pat_splat(ir_operand(scaled, 1), &c) ? 1 : scaled->code == IR_OP_MUL && pat_splat(ir_operand(scaled, 0), &c) ? 0 : -1;
    if (k < 0 || ir_operand(scaled, k)->type.rank) return false; /* a scalar, so that it broadcasts to any shape */
    struct ir_value *x = ir_operand(scaled, 1 - k);
    if (!pat_same_dims(&x->type, &in->type)) return false;
    int n;
    const int64_t *axes = ir_attr_ints(op, "axes", &n);
    struct ir_value *sum = ir_build_reduce(&r->b, op->code, x, n, axes, ir_attr_int(op, "keepdims", 0));
    struct ir_value *v = sum ? ir_build_binary(&r->b, scaled->code, sum, ir_operand(scaled, k)) : NULL;
    if (!v) return false;
    rewrite_replace1(r, op, v);
    return true;
}

/* x / c / d with whole numbers c and d whose product is exact. */
bool pat_div_div(struct rewriter *r, struct ir_op *op)
{
    struct ir_value *in = ir_operand(op, 0);
    struct ir_op *inner = pat_def(in, IR_OP_DIV);
    double c, d;
    if (!inner || !wide_float(in) || !ir_value_has_one_use(in)) return false;
    if (!pat_splat(ir_operand(op, 1), &d) || !pat_splat(ir_operand(inner, 1), &c)) return false;
    if (c != (double)(int64_t)c || d != (double)(int64_t)d || c < 1 || d < 1 || c > 4096 || d > 4096) return false;
    if (ir_operand(op, 1)->type.rank || ir_operand(inner, 1)->type.rank) return false;
    struct ir_value *v = ir_build_binary(&r->b, IR_OP_DIV, ir_operand(inner, 0), ir_build_scalar_f(&r->b, in->type.dtype, c * d));
    if (!v) return false;
    rewrite_replace1(r, op, v);
    return true;
}
