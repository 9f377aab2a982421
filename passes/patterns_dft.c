// SPDX-License-Identifier: Apache-2.0
/*
 * dft of constant length as products with constant matrices.
 *
 * With the transformed axis last and real and imaginary parts interleaved behind it, the transform is one matrix:
 *
 *   y[.., 2 k + q] = sum over j, p of x[.., parts * j + p] * M[parts * j + p, 2 k + q]
 *
 * M holds cos and sin of -+ 2 pi j k / n. A length n = a * b whose matrix would be large goes in two steps (Gentleman and
 * Sande): transforms of length a, twiddle factors, transforms of length b: a + b products an element instead of n.
 */
#include <string.h>

#include "ir/math_ref.h"
#include "passes/patterns.h"

#define MAX_MATRIX ((int64_t)1 << 21) /* elements of one matrix: 8 MiB of f32 */
#define DIRECT 128                    /* a length up to this is one product */

/* e^(sign * 2 pi i k / n) with exact symmetries: whole quarter turns, then at most an eighth. */
static void turn(int64_t k, int64_t n, int sign, double *re, double *im)
{
    static const double pi = 0x1.921fb54442d18p+1;
    k %= n;
    int64_t quarters = (8 * k / n + 1) / 2;
    double angle = pi / 2 * (double)(4 * k - quarters * n) / (double)n, c = ref_cos(angle), s = ref_sin(angle);
    switch (quarters & 3) {
    case 0: *re = c, *im = s; break;
    case 1: *re = -s, *im = c; break;
    case 2: *re = -c, *im = -s; break;
    default: *re = s, *im = -c; break;
    }
    *im *= sign;
}

/*
 * The matrix of a transform of length n from `rows` numbers to `cols`, divided by `scale`. Numbers lie interleaved (re, im
 * neighbours) or in planes (all re, then all im); a row for each part of an input, two columns for an output.
 */
struct shape {
    int64_t rows, cols, n;
    int parts;
    bool rows_planar, cols_planar;
    double scale;
};

static struct ir_value *matrix(struct rewriter *r, enum dtype t, const struct shape *s, int sign)
{
    int64_t dims[2] = {s->parts * s->rows, 2 * s->cols};
    int64_t row_step = s->rows_planar ? 1 : s->parts, part_step = s->rows_planar ? s->rows : 1;
    int64_t col_step = s->cols_planar ? 1 : 2, im_step = s->cols_planar ? s->cols : 1;
    double *m = ARENA_ARRAY(&r->scratch, double, dims[0] * dims[1] + 1), re, im;
    for (int64_t j = 0; j < s->rows; j++)
        for (int64_t k = 0; k < s->cols; k++) {
            turn(j * k, s->n, sign, &re, &im);
            double *at = m + j * row_step * dims[1] + k * col_step;
            at[0] = re / s->scale, at[im_step] = im / s->scale;
            if (s->parts == 1) continue;
            at += part_step * dims[1];
            at[0] = -im / s->scale, at[im_step] = re / s->scale;
        }
    return pat_constant(r, "dft", t, 2, dims, m);
}

struct plan {
    struct rewriter *r;
    const struct ir_op *op;
    enum dtype t;
    int64_t n, n_in, n_out; /* length; elements there (at most n); elements wanted */
    int parts, sign;
    const struct dim *outer[IR_MAX_RANK]; /* dims before the transformed axis in the working form */
    int n_outer;
};

/* x[outer.., n_in * parts] to [outer.., n_out * 2]. */
static struct ir_value *direct(const struct plan *p, struct ir_value *x)
{
    struct shape s = {.rows = p->n_in, .cols = p->n_out, .n = p->n, .parts = p->parts, .scale = p->sign > 0 ? (double)p->n : 1};
    return ir_build_matmul(&p->r->b, x, matrix(p->r, p->t, &s, p->sign), false, false, DT_NONE);
}

static struct ir_value *reshape(const struct plan *p, struct ir_value *x, int n, const int64_t *tail)
{
    const struct dim *dims[IR_MAX_RANK];
    int k = 0;
    for (int i = 0; i < p->n_outer; i++) dims[k++] = p->outer[i];
    for (int i = 0; i < n; i++) dims[k++] = dim_const(p->r->m->dims, tail[i]);
    return ir_build_reshape(&p->r->b, x, k, dims);
}

/* Permutes three axes behind the outer ones. */
static struct ir_value *permute(const struct plan *p, struct ir_value *x, int i, int j, int k)
{
    int64_t perm[IR_MAX_RANK];
    int at = p->n_outer;
    for (int o = 0; o < at; o++) perm[o] = o;
    perm[at] = at + i, perm[at + 1] = at + j, perm[at + 2] = at + k;
    return ir_build_transpose(&p->r->b, x, perm);
}

/* y * e^(sign 2 pi i j2 k1 / n) for y[.., a (k1), 2, b (j2)]. */
static struct ir_value *twiddle(const struct plan *p, struct ir_value *y, int64_t a, int64_t b)
{
    struct ir_builder *bl = &p->r->b;
    int64_t dims[3] = {a, 2, b}, count = a * 2 * b;
    double *same = ARENA_ARRAY(&p->r->scratch, double, count), *cross = ARENA_ARRAY(&p->r->scratch, double, count), re, im;
    for (int64_t k = 0; k < a; k++)
        for (int64_t j = 0; j < b; j++) {
            turn(j * k, p->n, p->sign, &re, &im);
            double *s = same + 2 * k * b + j, *c = cross + 2 * k * b + j;
            s[0] = s[b] = re;
            c[0] = -im, c[b] = im;
        }
    /* re and im change places by a slice that steps backwards */
    int rank = y->type.rank;
    const struct dim *starts[IR_MAX_RANK];
    int64_t steps[IR_MAX_RANK];
    for (int i = 0; i < rank; i++) starts[i] = dim_const(p->r->m->dims, i == rank - 2), steps[i] = i == rank - 2 ? -1 : 1;
    struct ir_value *flipped = ir_build_slice(bl, y, starts, steps, y->type.dims);
    struct ir_value *u = ir_build_binary(bl, IR_OP_MUL, y, pat_constant(p->r, "twiddle", p->t, 3, dims, same));
    struct ir_value *v = ir_build_binary(bl, IR_OP_MUL, flipped, pat_constant(p->r, "twiddle", p->t, 3, dims, cross));
    return u && v ? ir_build_binary(bl, IR_OP_ADD, u, v) : NULL;
}

/*
 * j = j1 * b + j2, k = k2 * a + k1:
 *   y[j2, k1] = sum over j1 of x[j1, j2] e(j1 k1 / a);  z[k1, k2] = sum over j2 of y[j2, k1] e(j2 k1 / n) e(j2 k2 / b)
 */
static struct ir_value *two_steps(const struct plan *p, struct ir_value *x, int64_t a, int64_t b)
{
    struct rewriter *r = p->r;
    struct ir_builder *bl = &r->b;
    struct shape first = {.rows = a, .cols = a, .n = a, .parts = p->parts, .cols_planar = true, .scale = p->sign > 0 ? (double)p->n : 1};
    struct shape second = {.rows = b, .cols = b, .n = b, .parts = 2, .rows_planar = true, .scale = 1};
    int64_t split[3] = {a, b, p->parts}, rows[2] = {b, a * p->parts}, planes[3] = {b, 2, a}, again[2] = {a, 2 * b}, out[3] = {a, b, 2};
    x = reshape(p, x, 3, split);
    x = x ? permute(p, x, 1, 0, 2) : NULL; /* [b, a, parts] */
    x = x ? reshape(p, x, 2, rows) : NULL;
    x = x ? ir_build_matmul(bl, x, matrix(r, p->t, &first, p->sign), false, false, DT_NONE) : NULL;
    x = x ? reshape(p, x, 3, planes) : NULL;
    x = x ? permute(p, x, 2, 1, 0) : NULL; /* [a, 2, b] */
    x = x ? twiddle(p, x, a, b) : NULL;
    x = x ? reshape(p, x, 2, again) : NULL;
    x = x ? ir_build_matmul(bl, x, matrix(r, p->t, &second, p->sign), false, false, DT_NONE) : NULL;
    x = x ? reshape(p, x, 3, out) : NULL;
    x = x ? permute(p, x, 1, 0, 2) : NULL; /* [b (k2), a (k1), 2] */
    int64_t flat[1] = {2 * p->n};
    x = x ? reshape(p, x, 1, flat) : NULL;
    if (!x || p->n_out == p->n) return x;
    const struct dim *starts[IR_MAX_RANK], *sizes[IR_MAX_RANK];
    int64_t steps[IR_MAX_RANK];
    for (int i = 0; i < x->type.rank; i++) starts[i] = dim_const(r->m->dims, 0), steps[i] = 1, sizes[i] = x->type.dims[i];
    sizes[p->n_outer] = dim_const(r->m->dims, 2 * p->n_out);
    return ir_build_slice(bl, x, starts, steps, sizes);
}

/* x cut or zero padded to n elements along axis. */
static struct ir_value *fit(struct rewriter *r, struct ir_value *x, int axis, int64_t n, bool pad)
{
    struct dim_ctx *dc = r->m->dims;
    const struct dim *lo[IR_MAX_RANK], *hi[IR_MAX_RANK], *sizes[IR_MAX_RANK];
    int64_t steps[IR_MAX_RANK], have = x->type.dims[axis]->value;
    int rank = x->type.rank;
    for (int i = 0; i < rank; i++) lo[i] = hi[i] = dim_const(dc, 0), steps[i] = 1, sizes[i] = x->type.dims[i];
    if (have > n) {
        sizes[axis] = dim_const(dc, n);
        return ir_build_slice(&r->b, x, lo, steps, sizes);
    }
    if (have == n || !pad) return x;
    hi[axis] = dim_const(dc, n - have);
    struct ir_attr attrs[2] = {ir_a_dims("lo", rank, lo), ir_a_dims("hi", rank, hi)};
    struct ir_op *op = ir_build(&r->b, IR_OP_PAD, 1, &x, 2, attrs, 1);
    return op ? &op->results[0] : NULL;
}

/* The factor of n nearest to its root, 1 for primes. */
static int64_t factor_of(int64_t n)
{
    int64_t best = 1;
    for (int64_t f = 2; f * f <= n; f++)
        if (n % f == 0) best = f;
    return best;
}

bool pat_dft(struct rewriter *r, struct ir_op *op)
{
    struct ir_value *x = ir_operand(op, 0);
    int rank = x->type.rank, axis = (int)ir_attr_int(op, "axis", rank - 2), n_len;
    const struct dim *const *length = ir_attr_dims(op, "length", &n_len), *n = n_len ? length[0] : x->type.dims[axis];
    if (!dim_is_const(n) || !dim_is_const(x->type.dims[axis]) || rank + 1 > IR_MAX_RANK) return false;
    if (x->type.dtype != DT_F32 && x->type.dtype != DT_F64) return false;
    struct plan p = {.r = r, .op = op, .t = x->type.dtype, .n = n->value, .parts = dim_is(x->type.dims[rank - 1], 1) ? 1 : 2};
    p.sign = ir_attr_int(op, "inverse", 0) ? 1 : -1;
    p.n_out = op->results[0].type.dims[axis]->value;
    p.n_in = x->type.dims[axis]->value < p.n ? x->type.dims[axis]->value : p.n;
    int64_t a = p.n > DIRECT ? factor_of(p.n) : 1;
    bool whole = a == 1 || p.n_in * p.parts * p.n_out * 2 <= 4 * DIRECT * DIRECT;
    if (p.n > 1 << 20 || (whole ? p.n_in * p.parts * p.n_out * 2 : 2 * (p.n / a) * (p.n / a) * 2) > MAX_MATRIX) return false;
    /* the axis goes next to the parts: [outer.., n, parts] */
    int64_t perm[IR_MAX_RANK], back[IR_MAX_RANK];
    int k = 0;
    for (int i = 0; i < rank - 1; i++)
        if (i != axis) p.outer[k] = x->type.dims[i], perm[k++] = i;
    p.n_outer = k;
    perm[k] = axis, perm[k + 1] = rank - 1;
    for (int i = 0; i < rank; i++) back[perm[i]] = i;
    struct ir_value *v = fit(r, x, axis, p.n, !whole);
    if (!whole) p.n_in = p.n;
    v = v ? ir_build_transpose(&r->b, v, perm) : NULL;
    int64_t flat[1] = {p.n_in * p.parts}, pairs[2] = {p.n_out, 2};
    if (p.n_outer == 0) { /* a matmul needs two axes */
        p.outer[p.n_outer++] = dim_const(r->m->dims, 1);
    }
    v = v ? reshape(&p, v, 1, flat) : NULL;
    v = !v ? NULL : whole ? direct(&p, v) : two_steps(&p, v, a, p.n / a);
    if (rank == 2) p.n_outer = 0;
    v = v ? reshape(&p, v, 2, pairs) : NULL;
    v = v ? ir_build_transpose(&r->b, v, back) : NULL;
    if (!v) return false;
    rewrite_replace1(r, op, v);
    return true;
}
