// SPDX-License-Identifier: Apache-2.0
/*
 * Random modules: every pass's output must evaluate like its input, and what lowering makes of the last one must too, on every
 * level. Fixed seeds; a failure prints the seed and the module. INFC_RANDOM_MODULES=N tries N modules instead,
 * INFC_RANDOM_FIRST=N starts at another one.
 *
 * Generated values stay well conditioned (bounded, no steps at computed floats), so that another order of rounding is the
 * only difference there may be.
 */
#include "test_equiv.h"

#include "ir/build.h"
#include "passes/group.h"

#define MAX_ELEMS 1500
#define DEFAULT_MODULES 600

struct gen {
    struct ir_module *m;
    struct ir_func *f;
    struct ir_builder b;
    uint64_t seed, at;
    int64_t sizes[2];
    const struct dim *syms[2];
    struct ir_value *pool[256]; /* values of this block and enclosing ones */
    int n;
    int depth;
};

static int64_t rnd(struct gen *g, int64_t n) { return infr_random_int(g->seed, 77, g->at++, n); }

static const struct dim *cst(struct gen *g, int64_t v) { return dim_const(g->m->dims, v); }

static int64_t size_of(struct gen *g, const struct dim *d)
{
    int64_t v = 0;
    assert_true(dim_eval(g->m->dims, d, g->sizes, &v));
    return v;
}

static int64_t elems_of(struct gen *g, const struct ir_type *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= size_of(g, t->dims[i]);
    return n;
}

static struct ir_value *put(struct gen *g, struct ir_value *v)
{
    if (!v || g->n == 256 || elems_of(g, &v->type) > MAX_ELEMS) return NULL;
    return g->pool[g->n++] = v;
}

/* A value of that dtype, later ones more likely. */
static struct ir_value *pick(struct gen *g, enum dtype t)
{
    for (int tries = 0; tries < 12; tries++) {
        int64_t back = rnd(g, rnd(g, 2) ? g->n : (g->n < 4 ? g->n : 4));
        struct ir_value *v = g->pool[g->n - 1 - back];
        if (v->type.dtype == t) return v;
    }
    return NULL;
}

static struct ir_value *pick_rank(struct gen *g, enum dtype t, int least)
{
    for (int tries = 0; tries < 8; tries++) {
        struct ir_value *v = pick(g, t);
        if (v && v->type.rank >= least) return v;
    }
    return NULL;
}

static const struct dim *random_dim(struct gen *g)
{
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 17};
    int64_t k = rnd(g, 14);
    if (k < 9) return cst(g, sizes[k]);
    if (k < 11) return g->syms[0];
    if (k < 13) return g->syms[1];
    return dim_addc(g->m->dims, g->syms[0], 1);
}

static struct ir_value *new_input(struct gen *g, enum dtype t, int rank)
{
    const struct dim *dims[IR_MAX_RANK];
    int64_t n = 1;
    for (int i = 0; i < rank; i++) {
        dims[i] = random_dim(g);
        if (n * size_of(g, dims[i]) > 400) dims[i] = cst(g, 2);
        n *= size_of(g, dims[i]);
    }
    char name[16];
    snprintf(name, sizeof name, "in%d", g->f->n_inputs);
    return put(g, ir_func_add_input(g->f, name, ir_type_make(g->m, t, rank, dims)));
}

/* A constant of multiples of 1/16 in [-2, 2). */
static struct ir_value *weight(struct gen *g, int rank, const int64_t *dims)
{
    int64_t n = 1;
    for (int i = 0; i < rank; i++) n *= dims[i];
    float *data = ARENA_ARRAY(&g->m->arena, float, n + 1);
    for (int64_t i = 0; i < n; i++) data[i] = (float)(rnd(g, 64) - 32) / 16;
    return ir_build_constant(&g->b, ir_const_make(g->m, "w", ir_type_static(g->m, DT_F32, rank, dims), data, (size_t)n * 4, false));
}

static struct ir_value *scalar(struct gen *g, double v) { return ir_build_scalar_f(&g->b, DT_F32, v); }

static struct ir_value *bin(struct gen *g, enum ir_opcode code, struct ir_value *x, struct ir_value *y)
{
    return ir_build_binary(&g->b, code, x, y);
}

/* Into [-1, 1], so that values do not grow. */
static struct ir_value *tame(struct gen *g, struct ir_value *x) { return ir_build_unary(&g->b, IR_OP_TANH, x); }

/* ---- pointwise ---- */

static struct ir_value *gen_unary(struct gen *g)
{
    static const enum ir_opcode codes[] = {IR_OP_NEG, IR_OP_ABS, IR_OP_TANH, IR_OP_SIGMOID, IR_OP_ERF, IR_OP_SIN, IR_OP_COS};
    struct ir_value *x = pick(g, DT_F32);
    return x ? ir_build_unary(&g->b, codes[rnd(g, 7)], x) : NULL;
}

/* A value that broadcasts to x: x itself, one of its type, or a constant with some axes of 1 and leading ones left out. */
static struct ir_value *companion(struct gen *g, struct ir_value *x)
{
    int64_t dims[IR_MAX_RANK];
    int skip = (int)rnd(g, x->type.rank + 1);
    for (int tries = 0; tries < 4; tries++) {
        struct ir_value *y = pick(g, DT_F32);
        if (y && y->type.rank == x->type.rank && !memcmp(y->type.dims, x->type.dims, (size_t)x->type.rank * sizeof *x->type.dims)) return y;
    }
    if (rnd(g, 3) == 0) return scalar(g, (double)rnd(g, 9) - 4);
    for (int i = skip; i < x->type.rank; i++) {
        const struct dim *d = x->type.dims[i];
        dims[i - skip] = dim_is_const(d) && rnd(g, 3) ? d->value : 1;
    }
    return weight(g, x->type.rank - skip, dims);
}

static struct ir_value *gen_binary(struct gen *g)
{
    static const enum ir_opcode codes[] = {IR_OP_ADD, IR_OP_SUB, IR_OP_MUL, IR_OP_MIN, IR_OP_MAX, IR_OP_ADD, IR_OP_MUL};
    struct ir_value *x = pick(g, DT_F32);
    if (!x) return NULL;
    struct ir_value *y = companion(g, x), *r = rnd(g, 2) ? bin(g, codes[rnd(g, 7)], x, y) : bin(g, codes[rnd(g, 7)], y, x);
    return rnd(g, 3) ? r : tame(g, r);
}

static struct ir_value *gen_divide(struct gen *g)
{
    struct ir_value *x = pick(g, DT_F32);
    if (!x) return NULL;
    if (rnd(g, 2)) return bin(g, IR_OP_DIV, x, scalar(g, (double)(1 + rnd(g, 6))));
    struct ir_value *y = bin(g, IR_OP_ADD, ir_build_unary(&g->b, IR_OP_ABS, companion(g, x)), scalar(g, 1));
    return bin(g, IR_OP_DIV, x, rnd(g, 2) ? y : ir_build_unary(&g->b, IR_OP_SQRT, y));
}

static struct ir_value *gen_identity(struct gen *g)
{
    struct ir_value *x = pick(g, DT_F32);
    if (!x) return NULL;
    switch (rnd(g, 4)) {
    case 0: return bin(g, IR_OP_ADD, x, scalar(g, 0));
    case 1: return bin(g, IR_OP_MUL, scalar(g, 1), x);
    case 2: return bin(g, IR_OP_DIV, x, scalar(g, 1));
    default: return bin(g, IR_OP_POW, x, scalar(g, (double)(1 + rnd(g, 3))));
    }
}

static struct ir_value *gen_int(struct gen *g)
{
    static const enum ir_opcode codes[] = {IR_OP_ADD, IR_OP_SUB, IR_OP_MUL, IR_OP_DIV, IR_OP_MOD, IR_OP_REM, IR_OP_MIN, IR_OP_MAX, IR_OP_XOR, IR_OP_SHR};
    struct ir_value *x = pick(g, DT_I64);
    if (!x) return NULL;
    return bin(g, codes[rnd(g, 10)], x, rnd(g, 3) ? ir_build_scalar_i(&g->b, DT_I64, rnd(g, 7) - 2) : x);
}

static struct ir_value *gen_select(struct gen *g)
{
    struct ir_value *i = pick(g, DT_I64), *c, *x;
    if (!i) return NULL;
    c = bin(g, rnd(g, 2) ? IR_OP_LT : IR_OP_NE, i, ir_build_scalar_i(&g->b, DT_I64, rnd(g, 5)));
    x = ir_build_cast(&g->b, i, DT_F32);
    return ir_build_select(&g->b, c, x, rnd(g, 2) ? scalar(g, -1) : companion(g, x));
}

/* ---- moves ---- */

static struct ir_value *gen_transpose(struct gen *g)
{
    struct ir_value *x = pick_rank(g, rnd(g, 4) ? DT_F32 : DT_I64, 2);
    int64_t perm[IR_MAX_RANK];
    if (!x) return NULL;
    for (int i = 0; i < x->type.rank; i++) perm[i] = i;
    for (int i = x->type.rank - 1; i > 0; i--) {
        int64_t k = rnd(g, i + 1), t = perm[i];
        perm[i] = perm[k], perm[k] = t;
    }
    return ir_build_transpose(&g->b, x, perm);
}

static struct ir_value *gen_reshape(struct gen *g)
{
    struct ir_value *x = pick(g, rnd(g, 4) ? DT_F32 : DT_I64);
    const struct dim *dims[IR_MAX_RANK];
    if (!x || x->type.rank > 5) return NULL;
    int n = 0, at = x->type.rank ? (int)rnd(g, x->type.rank) : 0;
    switch (rnd(g, 3)) {
    case 0: /* an axis of 1 */
        for (int i = 0; i < x->type.rank; i++) {
            if (i == at) dims[n++] = cst(g, 1);
            dims[n++] = x->type.dims[i];
        }
        break;
    case 1: /* two axes become one */
        if (x->type.rank < 2 || at + 1 == x->type.rank) return NULL;
        for (int i = 0; i < x->type.rank; i++) {
            if (i == at + 1) continue;
            dims[n++] = i == at ? dim_mul(g->m->dims, x->type.dims[i], x->type.dims[i + 1]) : x->type.dims[i];
        }
        break;
    default: /* one becomes two */
        if (!x->type.rank || !dim_is_const(x->type.dims[at])) return NULL;
        for (int i = 0; i < x->type.rank; i++) {
            int64_t v = i == at ? x->type.dims[i]->value : 1, f = v % 2 == 0 ? 2 : v % 3 == 0 ? 3 : 1;
            if (f > 1) dims[n++] = cst(g, f), dims[n++] = cst(g, v / f);
            else dims[n++] = x->type.dims[i];
        }
    }
    return ir_build_reshape(&g->b, x, n, dims);
}

static struct ir_value *gen_broadcast(struct gen *g)
{
    struct ir_value *x = pick(g, DT_F32);
    const struct dim *dims[IR_MAX_RANK];
    if (!x || x->type.rank > 4) return NULL;
    int extra = (int)rnd(g, 2);
    for (int i = 0; i < extra; i++) dims[i] = cst(g, 1 + rnd(g, 3));
    for (int i = 0; i < x->type.rank; i++) dims[extra + i] = dim_is(x->type.dims[i], 1) ? random_dim(g) : x->type.dims[i];
    return ir_build_broadcast(&g->b, x, extra + x->type.rank, dims);
}

static struct ir_value *gen_slice(struct gen *g)
{
    struct ir_value *x = pick_rank(g, rnd(g, 4) ? DT_F32 : DT_I64, 1);
    const struct dim *starts[IR_MAX_RANK], *sizes[IR_MAX_RANK];
    int64_t steps[IR_MAX_RANK];
    if (!x) return NULL;
    for (int i = 0; i < x->type.rank; i++) {
        const struct dim *d = x->type.dims[i];
        starts[i] = cst(g, 0), sizes[i] = d, steps[i] = 1;
        if (rnd(g, 2)) continue;
        if (!dim_is_const(d)) { /* backwards */
            starts[i] = dim_addc(g->m->dims, d, -1), steps[i] = -1;
            continue;
        }
        int64_t n = d->value, from = rnd(g, n), step = 1 + rnd(g, 2), down = rnd(g, 4) == 0;
        int64_t most = down ? from / step + 1 : (n - 1 - from) / step + 1;
        starts[i] = cst(g, from), steps[i] = down ? -step : step, sizes[i] = cst(g, 1 + rnd(g, most));
    }
    return ir_build_slice(&g->b, x, starts, steps, sizes);
}

/* Two neighbouring parts of x, joined. */
static struct ir_value *gen_split_join(struct gen *g)
{
    struct ir_value *x = pick_rank(g, DT_F32, 1), *parts[2];
    const struct dim *starts[IR_MAX_RANK], *sizes[IR_MAX_RANK];
    int64_t steps[IR_MAX_RANK];
    if (!x) return NULL;
    int axis = (int)rnd(g, x->type.rank);
    const struct dim *d = x->type.dims[axis];
    if (!dim_is_const(d) || d->value < 2) return NULL;
    int64_t cut = 1 + rnd(g, d->value - 1);
    for (int i = 0; i < x->type.rank; i++) starts[i] = cst(g, 0), sizes[i] = x->type.dims[i], steps[i] = 1;
    for (int p = 0; p < 2; p++) {
        starts[axis] = cst(g, p ? cut : 0), sizes[axis] = cst(g, p ? d->value - cut : cut);
        parts[p] = ir_build_slice(&g->b, x, starts, steps, sizes);
    }
    if (rnd(g, 2)) parts[rnd(g, 2)] = bin(g, IR_OP_MUL, parts[0], scalar(g, 2));
    if (size_of(g, parts[0]->type.dims[axis]) != cut && rnd(g, 2)) return parts[0];
    return ir_build_concat(&g->b, 2, parts, axis);
}

static struct ir_value *gen_pad(struct gen *g)
{
    static const char *const modes[] = {"constant", "constant", "edge", "wrap"};
    struct ir_value *x = pick_rank(g, DT_F32, 1);
    const struct dim *lo[IR_MAX_RANK], *hi[IR_MAX_RANK];
    if (!x) return NULL;
    for (int i = 0; i < x->type.rank; i++) lo[i] = cst(g, rnd(g, 3)), hi[i] = cst(g, rnd(g, 2));
    struct ir_attr a[3] = {ir_a_dims("lo", x->type.rank, lo), ir_a_dims("hi", x->type.rank, hi), ir_a_string("mode", modes[rnd(g, 4)])};
    struct ir_op *op = ir_build(&g->b, IR_OP_PAD, 1, &x, 3, a, 1);
    return op ? &op->results[0] : NULL;
}

static struct ir_value *gen_concat(struct gen *g)
{
    struct ir_value *x = pick_rank(g, DT_F32, 1), *y = x ? companion(g, x) : NULL;
    if (!x) return NULL;
    if (y->type.rank != x->type.rank || memcmp(y->type.dims, x->type.dims, (size_t)x->type.rank * sizeof *x->type.dims)) y = tame(g, x);
    struct ir_value *xs[3] = {x, y, x};
    return ir_build_concat(&g->b, 2 + (int)rnd(g, 2), xs, (int)rnd(g, x->type.rank));
}

static struct ir_value *gen_gather(struct gen *g)
{
    struct ir_value *x = pick_rank(g, DT_F32, 1), *i = pick(g, DT_I64);
    if (!x || !i || x->type.rank + i->type.rank > 6) return NULL;
    return ir_build_gather(&g->b, x, i, (int)rnd(g, x->type.rank));
}

/* ---- reductions and norms ---- */

static int random_axes(struct gen *g, int rank, int64_t *axes)
{
    int n = 0;
    for (int i = 0; i < rank; i++)
        if (rnd(g, 2)) axes[n++] = i;
    if (!n) axes[n++] = rnd(g, rank);
    return n;
}

static struct ir_value *gen_reduce(struct gen *g)
{
    static const enum ir_opcode codes[] = {IR_OP_REDUCE_SUM, IR_OP_REDUCE_MAX, IR_OP_REDUCE_MIN, IR_OP_REDUCE_SUM};
    struct ir_value *x = pick_rank(g, rnd(g, 4) ? DT_F32 : DT_I64, 1);
    int64_t axes[IR_MAX_RANK];
    if (!x) return NULL;
    int n = random_axes(g, x->type.rank, axes);
    struct ir_value *r = ir_build_reduce(&g->b, codes[rnd(g, 4)], x, n, axes, rnd(g, 2));
    return r && r->type.dtype == DT_F32 && rnd(g, 2) ? bin(g, IR_OP_DIV, r, scalar(g, (double)(1 + rnd(g, 8)))) : r;
}

static struct ir_value *gen_arg(struct gen *g)
{
    struct ir_value *x = pick_rank(g, DT_I64, 1); /* exact, so that ties are ties */
    if (!x) return NULL;
    struct ir_attr a[3] = {ir_a_int("axis", rnd(g, x->type.rank)), ir_a_int("keepdims", rnd(g, 2)), ir_a_int("last", rnd(g, 2))};
    struct ir_op *op = ir_build(&g->b, rnd(g, 2) ? IR_OP_ARG_MAX : IR_OP_ARG_MIN, 1, &x, 3, a, 1);
    return op ? &op->results[0] : NULL;
}

static struct ir_value *one_axis_op(struct gen *g, enum ir_opcode code, struct ir_value *x, int64_t axis, bool eps)
{
    struct ir_attr a[2] = {ir_a_int("axis", axis), ir_a_float("eps", 0.015625)};
    struct ir_op *op = ir_build(&g->b, code, 1, &x, eps ? 2 : 1, a, 1);
    return op ? &op->results[0] : NULL;
}

static struct ir_value *gen_row_op(struct gen *g)
{
    static const enum ir_opcode codes[] = {IR_OP_SOFTMAX, IR_OP_LOG_SOFTMAX, IR_OP_LAYER_NORM, IR_OP_RMS_NORM, IR_OP_CUM_SUM};
    struct ir_value *x = pick_rank(g, DT_F32, 1);
    int64_t k = rnd(g, 5);
    return x ? one_axis_op(g, codes[k], x, rnd(g, 2) ? x->type.rank - 1 : rnd(g, x->type.rank), k == 2 || k == 3) : NULL;
}

/* The count of the elements of trailing axes, as an exporter writes it. */
static struct ir_value *mean(struct gen *g, struct ir_value *x, int axis, bool keep)
{
    const struct dim *count = x->type.dims[axis];
    int64_t axes[1] = {axis};
    struct ir_value *n = dim_is_const(count) ? scalar(g, (double)count->value) : ir_build_cast(&g->b, ir_build_dimvec(&g->b, 1, &count, true), DT_F32);
    return bin(g, IR_OP_DIV, ir_build_reduce(&g->b, IR_OP_REDUCE_SUM, x, 1, axes, keep), n);
}

static struct ir_value *gen_norm_written_out(struct gen *g)
{
    struct ir_value *x = pick_rank(g, DT_F32, 1);
    if (!x) return NULL;
    int axis = rnd(g, 4) ? x->type.rank - 1 : (int)rnd(g, x->type.rank);
    struct ir_value *d = rnd(g, 3) ? bin(g, IR_OP_SUB, x, mean(g, x, axis, true)) : x;
    struct ir_value *sq = rnd(g, 2) ? bin(g, IR_OP_MUL, d, d) : bin(g, IR_OP_POW, d, scalar(g, 2));
    struct ir_value *ve = bin(g, IR_OP_ADD, mean(g, sq, axis, true), scalar(g, 0.015625)), *y;
    switch (rnd(g, 3)) {
    case 0: y = bin(g, IR_OP_DIV, d, ir_build_unary(&g->b, IR_OP_SQRT, ve)); break;
    case 1: y = bin(g, IR_OP_MUL, d, bin(g, IR_OP_DIV, scalar(g, 1), ir_build_unary(&g->b, IR_OP_SQRT, ve))); break;
    default: y = bin(g, IR_OP_MUL, bin(g, IR_OP_POW, ve, scalar(g, -0.5)), d); break;
    }
    if (rnd(g, 2)) y = bin(g, IR_OP_MUL, y, companion(g, y));
    if (rnd(g, 2)) y = bin(g, IR_OP_ADD, companion(g, y), y);
    return y;
}

static struct ir_value *gen_softmax_written_out(struct gen *g)
{
    struct ir_value *x = pick_rank(g, DT_F32, 1);
    if (!x) return NULL;
    int64_t axes[1] = {rnd(g, x->type.rank)};
    struct ir_value *d = bin(g, IR_OP_SUB, x, ir_build_reduce(&g->b, IR_OP_REDUCE_MAX, x, 1, axes, true));
    struct ir_value *e = ir_build_unary(&g->b, IR_OP_EXP, d), *s = ir_build_reduce(&g->b, IR_OP_REDUCE_SUM, e, 1, axes, true);
    return rnd(g, 2) ? bin(g, IR_OP_DIV, e, s) : bin(g, IR_OP_SUB, d, ir_build_unary(&g->b, IR_OP_LOG, s));
}

/* ---- contractions ---- */

static struct ir_value *gen_matmul(struct gen *g)
{
    struct ir_value *x = pick_rank(g, DT_F32, 2);
    if (!x) return NULL;
    int r = x->type.rank;
    const struct dim *k = x->type.dims[r - 1];
    if (!dim_is_const(k) || rnd(g, 4) == 0) { /* with itself, turned */
        int64_t perm[IR_MAX_RANK];
        for (int i = 0; i < r; i++) perm[i] = i;
        perm[r - 1] = r - 2, perm[r - 2] = r - 1;
        struct ir_value *y = rnd(g, 2) ? ir_build_matmul(&g->b, x, x, false, true, DT_NONE)
                                       : ir_build_matmul(&g->b, x, ir_build_transpose(&g->b, x, perm), false, false, DT_NONE);
        return tame(g, y);
    }
    bool tb = rnd(g, 2);
    int64_t n = 1 + rnd(g, 20), dims[2] = {tb ? n : k->value, tb ? k->value : n}, last[1] = {n};
    struct ir_value *y = ir_build_matmul(&g->b, x, weight(g, 2, dims), false, tb, DT_NONE);
    if (y && rnd(g, 2)) y = bin(g, IR_OP_ADD, y, weight(g, 1, last));
    if (y && rnd(g, 2)) y = bin(g, IR_OP_MUL, y, rnd(g, 2) ? scalar(g, 0.5) : weight(g, 1, last));
    return y ? bin(g, IR_OP_DIV, y, scalar(g, 4)) : NULL;
}

/* An image from x: its last axes, with constant channels. */
static struct ir_value *image(struct gen *g, int64_t *channels)
{
    struct ir_value *x = pick_rank(g, DT_F32, 1);
    const struct dim *dims[4];
    if (!x || elems_of(g, &x->type) > 300) return NULL;
    if (x->type.rank == 4 && dim_is_const(x->type.dims[1])) {
        *channels = x->type.dims[1]->value;
        return x;
    }
    const struct dim *all = ir_type_elems(g->m, &x->type);
    *channels = 1;
    dims[0] = dims[1] = cst(g, 1), dims[2] = x->type.dims[0], dims[3] = dim_exact_div(g->m->dims, all, x->type.dims[0]);
    return dims[3] ? ir_build_reshape(&g->b, x, 4, dims) : NULL;
}

static struct ir_value *gen_conv(struct gen *g)
{
    int64_t c, strides[2] = {1 + rnd(g, 2), 1 + rnd(g, 2)}, dilations[2] = {1, 1 + rnd(g, 2)};
    struct ir_value *x = image(g, &c);
    if (!x) return NULL;
    int64_t groups = rnd(g, 3) ? 1 : c, kernel[2] = {1 + rnd(g, 3), 1 + rnd(g, 2)};
    const struct dim *pads[4];
    for (int i = 0; i < 4; i++) pads[i] = cst(g, rnd(g, 2) + (i % 2 ? kernel[1] * 2 : kernel[0]) - 1);
    int64_t out = groups * (1 + rnd(g, 3)), wd[4] = {out, c / groups, kernel[0], kernel[1]}, channel[3] = {out, 1, 1}, in_channel[4] = {1, c, 1, 1};
    if (rnd(g, 3) == 0) x = bin(g, IR_OP_MUL, x, rnd(g, 2) ? weight(g, 4, in_channel) : scalar(g, 0.25));
    if (rnd(g, 3) == 0) {
        const struct dim *lo[4] = {cst(g, 0), cst(g, 0), cst(g, 1), cst(g, 0)}, *hi[4] = {cst(g, 0), cst(g, 0), cst(g, 0), cst(g, 2)};
        struct ir_attr pa[2] = {ir_a_dims("lo", 4, lo), ir_a_dims("hi", 4, hi)};
        struct ir_op *pad = ir_build(&g->b, IR_OP_PAD, 1, &x, 2, pa, 1);
        x = &pad->results[0];
    }
    struct ir_value *ops[3] = {x, weight(g, 4, wd), weight(g, 1, &out)};
    struct ir_attr a[4] = {ir_a_ints("strides", 2, strides), ir_a_ints("dilations", 2, dilations), ir_a_dims("pads", 4, pads), ir_a_int("groups", groups)};
    struct ir_op *op = ir_build(&g->b, IR_OP_CONV, rnd(g, 2) ? 3 : 2, ops, 4, a, 1);
    struct ir_value *y = op ? &op->results[0] : NULL;
    if (y && rnd(g, 2)) y = bin(g, IR_OP_MUL, y, weight(g, 3, channel));
    if (y && rnd(g, 2)) y = bin(g, IR_OP_ADD, y, weight(g, 3, channel));
    if (y && rnd(g, 2)) y = bin(g, IR_OP_MAX, y, scalar(g, 0));
    return y ? bin(g, IR_OP_DIV, y, scalar(g, 4)) : NULL;
}

static struct ir_value *gen_pool(struct gen *g)
{
    static const enum ir_opcode codes[] = {IR_OP_POOL_MAX, IR_OP_POOL_AVG, IR_OP_POOL_SUM};
    int64_t c, kernel[2] = {1 + rnd(g, 2), 1 + rnd(g, 3)}, ones[2] = {1, 1};
    struct ir_value *x = image(g, &c);
    if (!x) return NULL;
    const struct dim *pads[4], *output[2];
    for (int i = 0; i < 4; i++) pads[i] = cst(g, (kernel[i % 2] - (i < 2)) / 2);
    for (int i = 0; i < 2; i++)
        output[i] = dim_addc(g->m->dims, x->type.dims[2 + i], 1 - kernel[i] + pads[i]->value + pads[2 + i]->value);
    int64_t k = rnd(g, 3);
    struct ir_attr a[6] = {ir_a_ints("kernel", 2, kernel), ir_a_ints("strides", 2, ones), ir_a_ints("dilations", 2, ones), ir_a_dims("pads", 4, pads),
                           ir_a_dims("output", 2, output), ir_a_int("count_include_pad", rnd(g, 2))};
    struct ir_op *op = ir_build(&g->b, codes[k], 1, &x, k == 1 ? 6 : 5, a, k == 0 ? 2 : 1);
    return op ? &op->results[0] : NULL;
}

static struct ir_value *gen_resize(struct gen *g)
{
    int64_t c;
    struct ir_value *x = image(g, &c);
    if (!x) return NULL;
    const struct dim *sizes[4] = {x->type.dims[0], x->type.dims[1], dim_mulc(g->m->dims, x->type.dims[2], 2), dim_mulc(g->m->dims, x->type.dims[3], 2)};
    double scales[4] = {1, 1, 2, 2};
    struct ir_attr a[4] = {ir_a_dims("sizes", 4, sizes), ir_a_floats("scales", 4, scales), ir_a_string("mode", rnd(g, 2) ? "nearest" : "linear"),
                           ir_a_string("coord", rnd(g, 2) ? "half_pixel" : "asymmetric")};
    struct ir_op *op = ir_build(&g->b, IR_OP_RESIZE, 1, &x, 4, a, 1);
    return op ? &op->results[0] : NULL;
}

static struct ir_value *gen_dft(struct gen *g)
{
    struct ir_value *x = pick_rank(g, DT_F32, 1);
    const struct dim *dims[IR_MAX_RANK];
    if (!x || x->type.rank > 4) return NULL;
    for (int i = 0; i < x->type.rank; i++) dims[i] = x->type.dims[i];
    dims[x->type.rank] = cst(g, 1);
    x = ir_build_reshape(&g->b, x, x->type.rank + 1, dims);
    struct ir_value *y = x ? one_axis_op(g, IR_OP_DFT, x, rnd(g, x->type.rank - 1), false) : NULL;
    return y ? tame(g, y) : NULL;
}

/* ---- control ---- */

static void steps(struct gen *g, int n);

/* Two branches that compute some more and yield a value of one type. */
static struct ir_value *gen_if(struct gen *g)
{
    struct ir_value *x = pick(g, DT_F32), *c = pick(g, DT_BOOL);
    if (!x || !c || g->depth) return NULL;
    struct ir_builder outer = g->b;
    struct ir_op *op = ir_op_create(g->m, IR_OP_IF, 1, &c, 1, outer.loc);
    int n = g->n;
    g->depth++;
    for (int r = 0; r < 2; r++) {
        struct ir_block *body = ir_block_create(g->m, g->f, op);
        g->b = (struct ir_builder){.m = g->m, .block = body, .loc = outer.loc};
        ir_op_add_region(g->m, op, body);
        steps(g, 2);
        struct ir_value *last = g->n > n ? g->pool[g->n - 1] : x, *y = r ? tame(g, x) : bin(g, IR_OP_MUL, x, scalar(g, 0.5));
        if (last->type.dtype == DT_F32 && last->type.rank == x->type.rank && ir_type_equal(&last->type, &x->type)) y = bin(g, IR_OP_ADD, y, last);
        ir_block_append(body, ir_op_create(g->m, IR_OP_YIELD, 1, &y, 0, outer.loc));
        g->n = n; /* its values end with it */
    }
    g->depth--;
    g->b = outer;
    op->results[0].type = x->type;
    ir_block_append(outer.block, op);
    return &op->results[0];
}

static struct ir_value *(*const makers[])(struct gen *) = {
    gen_unary, gen_unary, gen_binary, gen_binary, gen_binary, gen_divide, gen_identity, gen_int, gen_select, gen_transpose, gen_transpose,
    gen_reshape, gen_reshape, gen_broadcast, gen_slice, gen_slice, gen_split_join, gen_pad, gen_concat, gen_gather, gen_reduce, gen_reduce,
    gen_arg, gen_row_op, gen_norm_written_out, gen_softmax_written_out, gen_matmul, gen_matmul, gen_conv, gen_conv, gen_pool, gen_resize,
    gen_dft, gen_if,
};

static void steps(struct gen *g, int n)
{
    for (int i = 0; i < n; i++) put(g, makers[rnd(g, (int64_t)ARRAY_LEN(makers))](g));
}

static struct ir_module *make_module(uint64_t seed, struct diag_sink *diag, int64_t *sizes)
{
    struct gen g = {.seed = seed};
    static const char *const names[] = {"o0", "o1", "o2", "o3", "o4", "o5", "o6", "o7", "o8"};
    g.m = ir_module_create("random", diag);
    g.f = ir_func_create(g.m, "main");
    g.b = (struct ir_builder){.m = g.m, .block = g.f->body, .loc = ir_loc_make(g.m, "random:/op")};
    g.syms[0] = dim_sym(g.m->dims, "n", 1, 64);
    g.syms[1] = dim_sym(g.m->dims, "k", 2, 16);
    sizes[0] = g.sizes[0] = 1 + rnd(&g, 6);
    sizes[1] = g.sizes[1] = 2 + rnd(&g, 4);
    const struct dim *both[2] = {g.syms[0], g.syms[1]};
    put(&g, ir_func_add_input(g.f, "sizes", ir_type_make(g.m, DT_F32, 2, both))); /* gives the symbols their values */
    put(&g, ir_func_add_input(g.f, "flag", ir_type_make(g.m, DT_BOOL, 0, NULL)));
    new_input(&g, DT_F32, 2 + (int)rnd(&g, 3));
    new_input(&g, DT_F32, 1 + (int)rnd(&g, 4));
    new_input(&g, DT_I64, (int)rnd(&g, 3));
    int first = g.n;
    steps(&g, 4 + (int)rnd(&g, 20));
    /* The last value, and some others: what is an output is also used elsewhere now and then. */
    struct ir_value *out[9];
    int n = 0;
    for (int i = g.n - 1; i >= first && n < 8; i--)
        if (i == g.n - 1 || rnd(&g, 2) == 0) out[n++] = g.pool[i];
    if (!n) out[n++] = g.pool[0];
    ir_func_set_outputs(g.f, n, out, names);
    return g.m;
}

static void scale_tolerance(struct equiv *e)
{
    double most = 1;
    for (int o = 0; o < e->m->funcs.v[0]->n_outputs; o++) {
        const struct ir_tensor *t = &e->want[o];
        for (int64_t i = 0; t->dtype == DT_F32 && i < (int64_t)(t->n_bytes / 4); i++) {
            double v = fabs((double)((const float *)t->data)[i]);
            if (v > most) most = v;
        }
    }
    e->tolerance = 1e-4 * most;
}

static int64_t env_number(const char *name, int64_t dflt)
{
    const char *s = getenv(name);
    return s ? strtoll(s, NULL, 10) : dflt;
}

static void run_module(uint64_t seed)
{
    struct equiv e;
    int64_t sizes[2];
    char what[128];
    equiv_init(&e);
    e.seed = seed;
    struct ir_module *m = make_module(seed, &e.diag, sizes);
    if (e.diag.error_count) {
        e.m = m;
        equiv_fail(&e, "the generator made what inference refuses");
    }
    equiv_start(&e, m, 2, sizes);
    scale_tolerance(&e);
    struct strbuf text = {0};
    for (int i = 0; i < pass_count(); i++) {
        const struct pass_info *p = pass_at(i);
        text.len = 0;
        ir_print_module(&text, m, NULL);
        size_t n_checks = m->checks.n;
        snprintf(what, sizeof what, "module %llu, pass %s", (unsigned long long)seed, p->name);
        if (!p->run(m, &e.diag)) equiv_fail(&e, what);
        m->checks.n = n_checks;
        if (getenv("INFC_RANDOM_TRACE")) fprintf(stderr, "// before %s\n%s", what, strbuf_get(&text));
        equiv_check_module(&e, what);
    }
    strbuf_deinit(&text);
    fflush(stderr);
    equiv_check_plan(&e, NULL);
    equiv_end(&e);
}

static void test_random_modules(void **state)
{
    (void)state;
    uint64_t first = (uint64_t)env_number("INFC_RANDOM_FIRST", 0), n = (uint64_t)env_number("INFC_RANDOM_MODULES", DEFAULT_MODULES);
    for (uint64_t i = 0; i < n; i++) {
        if (getenv("INFC_RANDOM_TRACE")) fprintf(stderr, "// module %llu\n", (unsigned long long)(first + i));
        run_module(first + i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_modules)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
