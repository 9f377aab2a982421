// SPDX-License-Identifier: Apache-2.0
/* Values from nothing: Constant, ConstantOfShape, Range, EyeLike, OneHot, Trilu, windows. */
#include <string.h>

#include "compiler/import/onnx_int.h"

static struct ir_value *constant(struct onode *n, enum dtype t, int count, bool scalar,
                                 const void *data)
{
    int64_t d = count;
    size_t bytes = (size_t)count * dtype_bytes(t);
    struct ir_type type = ir_type_static(n->m, t, scalar ? 0 : 1, &d);
    return ir_build_constant(
        n->b, ir_const_make(n->m, "", type, arena_dup(&n->m->arena, data, bytes), bytes, false));
}

bool onnx_constant(struct onode *n)
{
    int count;
    if (at_has(n, "value")) {
        struct ir_const *c = at_tensor(n, "value");
        return c && on_out(n, 0, ir_build_constant(n->b, c));
    }
    if (at_has(n, "value_float")) {
        float f = (float)at_float(n, "value_float", 0);
        return on_out(n, 0, constant(n, DT_F32, 1, true, &f));
    }
    if (at_has(n, "value_int")) {
        int64_t i = at_int(n, "value_int", 0);
        return on_out(n, 0, constant(n, DT_I64, 1, true, &i));
    }
    if (at_has(n, "value_floats")) {
        const double *v = at_floats(n, "value_floats", &count);
        float *f = on_alloc(n, (size_t)count, sizeof *f);
        for (int i = 0; i < count; i++) f[i] = (float)v[i];
        return !n->failed && on_out(n, 0, constant(n, DT_F32, count, false, f));
    }
    if (at_has(n, "value_ints")) {
        const int64_t *v = at_ints(n, "value_ints", &count);
        return !n->failed && on_out(n, 0, constant(n, DT_I64, count, false, v));
    }
    if (at_has(n, "sparse_value")) {
        const Onnx__Attribute *a = at_find(n, "sparse_value");
        struct ir_const *c =
            a->sparse_tensor ? onnx_sparse_tensor(n->im, a->sparse_tensor, n->loc) : NULL;
        return c && on_out(n, 0, ir_build_constant(n->b, c));
    }
    if (at_has(n, "value_string") || at_has(n, "value_strings"))
        return on_fail(n, DIAG_DTYPE_UNSUPPORTED, "a constant string; strings come later");
    return on_fail(n, DIAG_ONNX_ATTR, "Constant without a value");
}

bool onnx_constantofshape(struct onode *n)
{
    int rank;
    const struct dim *const *dims = on_dims(n, 0, &rank);
    struct ir_const *c = at_tensor(n, "value");
    if (!dims || n->failed) return false;
    if (rank > IR_MAX_RANK) return on_fail(n, DIAG_ONNX_LIMIT, "more than %d dims", IR_MAX_RANK);
    for (int i = 0; i < rank; i++)
        if (dims[i]->hi < 0)
            return on_fail(n, DIAG_SHAPE_MISMATCH, "a dim of ConstantOfShape is negative");
    struct ir_value *v;
    if (c) {
        int64_t elems;
        if (!ir_type_static_elems(&c->type, &elems) || elems != 1)
            return on_fail(n, DIAG_ONNX_ATTR, "attribute 'value' does not hold one element");
        v = e_reshape(n, ir_build_constant(n->b, c), 0, NULL);
    } else {
        v = e_scalar(n, DT_F32, 0);
    }
    return on_out(n, 0, e_broadcast(n, v, rank, dims));
}

/* A number known symbolically: input i's only element. */
static bool element_of(struct onode *n, int i, struct kelem *out)
{
    const struct known *k = known_of(n->im, on_in(n, i));
    if (k && k->n == 1 && k->e[0].num) {
        *out = k->e[0];
        return true;
    }
    return on_dynamic(n, i, "decides the result's shape, but is not known before the engine runs");
}

/* ceil((limit - start) / delta), at least 0; den NULL stands for 1 */
bool onnx_range(struct onode *n)
{
    struct kelem s, l, d;
    if (!element_of(n, 0, &s) || !element_of(n, 1, &l) || !element_of(n, 2, &d)) return false;
    const struct dim *one = dim_const(n->d, 1);
    const struct dim *sd = s.den ? s.den : one, *ld = l.den ? l.den : one,
                     *dd = d.den ? d.den : one;
    /* (l/ld - s/sd) / (d/dd) = (l*sd - s*ld) * dd / (ld * sd * d) */
    const struct dim *num =
        dim_mul(n->d, dim_sub(n->d, dim_mul(n->d, l.num, sd), dim_mul(n->d, s.num, ld)), dd);
    const struct dim *den = dim_mul(n->d, dim_mul(n->d, ld, sd), d.num);
    if (den->hi < 0) {
        num = dim_mulc(n->d, num, -1);
        den = dim_mulc(n->d, den, -1);
    }
    if (den->lo < 1)
        return on_fail(n, DIAG_ONNX_DYNAMIC, "the step of Range may be 0 or has no known sign");
    const struct dim *count = dim_max(n->d, dim_ceildiv(n->d, num, den), dim_const(n->d, 0));
    enum dtype t = on_in(n, 0)->type.dtype;
    struct ir_value *start = e_reshape(n, on_in(n, 0), 0, NULL),
                    *delta = e_reshape(n, on_in(n, 2), 0, NULL);
    return on_out(n, 0, e_add(n, e_mul(n, e_iota(n, t, count), delta), start));
}

bool onnx_eyelike(struct onode *n)
{
    struct ir_value *x = on_in(n, 0);
    enum dtype t = at_dtype(n, "dtype", x->type.dtype);
    int64_t k = at_int(n, "k", 0);
    if (n->failed || !on_rank(n, x, 2, 2, "the input")) return false;
    struct ir_value *row = ir_build_iota(n->b, DT_I64, 2, x->type.dims, 0),
                    *col = ir_build_iota(n->b, DT_I64, 2, x->type.dims, 1);
    return on_out(n, 0,
                  e_cast(n, e_bin(n, IR_OP_EQ, col, e_add(n, row, e_like(n, row, (double)k))), t));
}

bool onnx_trilu(struct onode *n)
{
    struct ir_value *x = on_in(n, 0), *k = on_in(n, 1);
    if (!on_rank(n, x, 2, IR_MAX_RANK, "the input")) return false;
    bool upper = at_int(n, "upper", 1);
    const struct dim *const *last = x->type.dims + rank_of(x) - 2;
    struct ir_value *row = ir_build_iota(n->b, DT_I64, 2, last, 0),
                    *col = ir_build_iota(n->b, DT_I64, 2, last, 1);
    if (k) row = e_add(n, row, e_reshape(n, k, 0, NULL));
    struct ir_value *keep = e_bin(n, upper ? IR_OP_GE : IR_OP_LE, col, row);
    return on_out(n, 0, e_sel(n, keep, x, e_like(n, x, 0)));
}

bool onnx_onehot(struct onode *n)
{
    struct ir_value *ix = on_in(n, 0), *values = on_in(n, 2);
    struct kelem depth;
    if (!on_rank(n, values, 1, 1, "the values") || !element_of(n, 1, &depth)) return false;
    if (depth.den) depth.num = dim_floordiv(n->d, depth.num, depth.den);
    int axis, rank = rank_of(ix) + 1;
    if (!on_axis(n, at_int(n, "axis", -1), rank, false, &axis)) return false;
    ix = e_unsqueeze(n, e_cast(n, ix, DT_I64), axis);
    struct ir_value *d = e_dim(n, depth.num, DT_I64);
    ix = e_sel(n, e_bin(n, IR_OP_LT, ix, e_like(n, ix, 0)), e_add(n, ix, d), ix);
    if (!ix) return false;
    const struct dim *dims[IR_MAX_RANK];
    for (int i = 0; i < rank; i++) dims[i] = i == axis ? depth.num : dim_of(ix, i);
    struct ir_value *hit = e_bin(n, IR_OP_EQ, ir_build_iota(n->b, DT_I64, rank, dims, axis), ix);
    const struct dim *zero = dim_const(n->d, 0), *one = dim_const(n->d, 1);
    struct ir_value *off = e_reshape(n, e_slice1(n, values, 0, zero, one), 0, NULL);
    struct ir_value *on = e_reshape(n, e_slice1(n, values, 0, one, one), 0, NULL);
    return on_out(n, 0, e_sel(n, hit, on, off));
}

/* Hann, Hamming, Blackman: a0 - a1 cos(2 pi i / m) + a2 cos(4 pi i / m), m = size (periodic) or
 * size - 1 */
bool onnx_window(struct onode *n)
{
    struct kelem size;
    if (!element_of(n, 0, &size)) return false;
    enum dtype t = at_dtype(n, "output_datatype", DT_F32);
    bool periodic = at_int(n, "periodic", 1);
    if (n->failed) return false;
    static const double coeff[3][3] = {
        {0.5, 0.5, 0}, {25.0 / 46, 1 - 25.0 / 46, 0}, {0.42, 0.5, 0.08}};
    const double *a = coeff[n->row->arg];
    const double pi = 3.14159265358979323846;
    struct ir_value *i = e_iota(n, DT_F64, size.num);
    struct ir_value *m = e_dim(n, periodic ? size.num : dim_addc(n->d, size.num, -1), DT_F64);
    struct ir_value *angle = e_div(n, e_mul(n, i, e_scalar(n, DT_F64, 2 * pi)), m);
    struct ir_value *w = e_sub(n, e_scalar(n, DT_F64, a[0]),
                               e_mul(n, e_un(n, IR_OP_COS, angle), e_scalar(n, DT_F64, a[1])));
    if (a[2] != 0) {
        struct ir_value *c2 = e_un(n, IR_OP_COS, e_mul(n, angle, e_scalar(n, DT_F64, 2)));
        w = e_add(n, w, e_mul(n, c2, e_scalar(n, DT_F64, a[2])));
    }
    return on_out(n, 0, e_cast(n, w, t));
}
