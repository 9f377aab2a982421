// SPDX-License-Identifier: Apache-2.0
/* Normalisations. */
#include "compiler/import/onnx_int.h"

static struct ir_value *rsqrt_eps(struct onode *n, struct ir_value *var, double eps)
{
    return e_div(n, e_like(n, var, 1), e_un(n, IR_OP_SQRT, e_add(n, var, e_like(n, var, eps))));
}

bool onnx_batchnorm(struct onode *n)
{
    struct ir_value *x = on_in(n, 0), *w = e_wide(n, x), *p[4];
    double eps = at_float(n, "epsilon", 1e-5), momentum = at_float(n, "momentum", 0.9);
    bool training = n->version >= 14 && at_int(n, "training_mode", 0);
    if (!on_rank(n, x, 2, IR_MAX_RANK, "the input") && !(rank_of(x) == 1)) return false;
    int axis = rank_of(x) > 1 ? 1 : 0, rank = rank_of(x);
    for (int i = 0; i < 4; i++) {
        if (!on_rank(n, on_in(n, i + 1), 1, 1, "a parameter")) return false;
        p[i] = e_cast(n, on_in(n, i + 1), w->type.dtype);
    }
    struct ir_value *mean = p[2], *var = p[3];
    if (training) {
        int64_t axes[IR_MAX_RANK];
        int c = 0;
        for (int i = 0; i < rank; i++)
            if (i != axis) axes[c++] = i;
        mean = e_mean(n, w, c, axes, false);
        struct ir_value *diff = e_sub(n, w, e_channel(n, mean, axis, rank));
        var = e_mean(n, e_mul(n, diff, diff), c, axes, false);
        struct ir_value *m = e_like(n, mean, momentum), *rest = e_like(n, mean, 1 - momentum);
        for (int i = 0; i < 2; i++) {
            struct ir_value *running =
                e_add(n, e_mul(n, p[2 + i], m), e_mul(n, i ? var : mean, rest));
            if (on_wants_out(n, 1 + i) &&
                !on_out(n, 1 + i, e_cast(n, running, on_in(n, 3 + i)->type.dtype)))
                return false;
        }
    }
    struct ir_value *scale = e_mul(n, p[0], rsqrt_eps(n, var, eps));
    struct ir_value *shift = e_sub(n, p[1], e_mul(n, mean, scale));
    struct ir_value *y =
        e_add(n, e_mul(n, w, e_channel(n, scale, axis, rank)), e_channel(n, shift, axis, rank));
    return on_out(n, 0, e_cast(n, y, x->type.dtype));
}

/* (x - mean) / sqrt(var + eps) over axes first..rank-1; mean and 1/sqrt also given. */
static struct ir_value *standardise(struct onode *n, struct ir_value *x, int first, double eps,
                                    struct ir_value **mean, struct ir_value **inv)
{
    int64_t axes[IR_MAX_RANK];
    int c = 0;
    if (!x) return NULL;
    for (int i = first; i < rank_of(x); i++) axes[c++] = i;
    *mean = e_mean(n, x, c, axes, true);
    struct ir_value *diff = e_sub(n, x, *mean);
    *inv = rsqrt_eps(n, e_mean(n, e_mul(n, diff, diff), c, axes, true), eps);
    return e_mul(n, diff, *inv);
}

static struct ir_value *layer_norm(struct onode *n, struct ir_value *x, struct ir_value *scale,
                                   struct ir_value *bias, int axis, double eps)
{
    struct ir_attr a[2] = {ir_a_int("axis", axis), ir_a_float("eps", eps)};
    struct ir_value *operands[3] = {x, scale, bias};
    return x ? e_op(n, IR_OP_LAYER_NORM, bias ? 3 : scale ? 2 : 1, operands, 2, a, 1, 0) : NULL;
}

bool onnx_layernorm(struct onode *n)
{
    struct ir_value *x = on_in(n, 0), *scale = on_in(n, 1), *bias = on_in(n, 2);
    enum dtype t = x->type.dtype, stash = at_dtype(n, "stash_type", DT_F32);
    double eps = at_float(n, "epsilon", 1e-5);
    int axis;
    if (!on_axis(n, at_int(n, "axis", -1), rank_of(x), false, &axis)) return false;
    if (n->failed || !dtype_is_float(stash))
        return on_fail(n, DIAG_ONNX_ATTR, "attribute 'stash_type' is no float type");
    if (t == DT_F64) stash = DT_F64;
    struct ir_value *w = e_cast(n, x, stash), *mean, *inv, *y;
    if (on_wants_out(n, 1) || on_wants_out(n, 2)) {
        y = standardise(n, w, axis, eps, &mean, &inv);
        if (!y) return false;
        if (!on_out(n, 1, mean) || !on_out(n, 2, inv)) return false;
    } else if (t == stash) {
        return on_out(n, 0, layer_norm(n, w, scale, bias, axis, eps));
    } else {
        y = layer_norm(n, w, NULL, NULL, axis, eps);
    }
    y = e_mul(n, e_cast(n, y, t), scale);
    return on_out(n, 0, bias ? e_add(n, y, bias) : y);
}

bool onnx_rmsnorm(struct onode *n)
{
    struct ir_value *x = on_in(n, 0), *scale = on_in(n, 1);
    enum dtype t = x->type.dtype, stash = at_dtype(n, "stash_type", DT_F32);
    double eps = at_float(n, "epsilon", 1e-5);
    int axis;
    if (!on_axis(n, at_int(n, "axis", -1), rank_of(x), false, &axis) || n->failed) return false;
    if (t == DT_F64) stash = DT_F64;
    struct ir_attr a[2] = {ir_a_int("axis", axis), ir_a_float("eps", eps)};
    if (t == stash && scale->type.dtype == t) {
        struct ir_value *operands[2] = {x, scale};
        return on_out(n, 0, e_op(n, IR_OP_RMS_NORM, 2, operands, 2, a, 1, 0));
    }
    struct ir_value *y =
        e_cast(n, e_op1(n, IR_OP_RMS_NORM, e_cast(n, x, stash), 2, a), scale->type.dtype);
    return on_out(n, 0, e_mul(n, y, scale));
}

/* scale and bias of each channel stand at axis 1 */
static bool scale_channels(struct onode *n, struct ir_value *y, struct ir_value *like,
                           struct ir_value *scale, struct ir_value *bias)
{
    if (!y) return false;
    enum dtype w = y->type.dtype;
    y = e_mul(n, y, e_channel(n, e_cast(n, scale, w), 1, rank_of(like)));
    y = e_add(n, y, e_channel(n, e_cast(n, bias, w), 1, rank_of(like)));
    return on_out(n, 0, e_cast(n, y, like->type.dtype));
}

bool onnx_instancenorm(struct onode *n)
{
    struct ir_value *x = on_in(n, 0), *mean, *inv;
    double eps = at_float(n, "epsilon", 1e-5);
    if (!on_rank(n, x, 3, IR_MAX_RANK, "the input")) return false;
    return scale_channels(n, standardise(n, e_wide(n, x), 2, eps, &mean, &inv), x, on_in(n, 1),
                          on_in(n, 2));
}

/* From 18 scale and bias are per group, from 21 per channel. */
bool onnx_groupnorm(struct onode *n)
{
    struct ir_value *x = on_in(n, 0), *scale = on_in(n, 1), *bias = on_in(n, 2), *mean, *inv;
    double eps = at_float(n, "epsilon", 1e-5);
    int64_t groups = at_int(n, "num_groups", 0);
    if (n->version >= 21) at_ignore(n, "stash_type"); /* computed in f32 or wider in any case */
    if (!on_rank(n, x, 3, IR_MAX_RANK, "the input")) return false;
    const struct dim *g = dim_const(n->d, groups < 1 ? 1 : groups),
                     *per = dim_exact_div(n->d, dim_of(x, 1), g);
    if (groups < 1 || !per)
        return on_fail(n, DIAG_ONNX_ATTR, "num_groups does not divide the number of channels");
    const struct dim *grouped[3] = {dim_of(x, 0), g,
                                    dim_mul(n->d, per, e_size(n, x, 2, rank_of(x)))};
    struct ir_value *y =
        standardise(n, e_reshape(n, e_wide(n, x), 3, grouped), 2, eps, &mean, &inv);
    if (n->version < 21) {
        y = y ? e_mul(n, y, e_channel(n, e_cast(n, scale, y->type.dtype), 1, 3)) : NULL;
        y = y ? e_add(n, y, e_channel(n, e_cast(n, bias, y->type.dtype), 1, 3)) : NULL;
        return on_out(n, 0, e_cast(n, e_reshape(n, y, rank_of(x), x->type.dims), x->type.dtype));
    }
    return scale_channels(n, e_reshape(n, y, rank_of(x), x->type.dims), x, scale, bias);
}

bool onnx_meanvariancenorm(struct onode *n)
{
    static const int64_t usual[] = {0, 2, 3};
    struct ir_value *x = on_in(n, 0), *w = e_wide(n, x);
    int64_t axes[IR_MAX_RANK];
    int c;
    const int64_t *given = at_ints(n, "axes", &c);
    if (!given) given = usual, c = 3;
    if (n->failed || c > rank_of(x))
        return on_fail(n, DIAG_ONNX_ATTR, "attribute 'axes' does not fit the rank");
    for (int i = 0; i < c; i++) {
        int a;
        if (!on_axis(n, given[i], rank_of(x), false, &a)) return false;
        axes[i] = a;
    }
    struct ir_value *diff = e_sub(n, w, e_mean(n, w, c, axes, true));
    struct ir_value *std = e_un(n, IR_OP_SQRT, e_mean(n, e_mul(n, diff, diff), c, axes, true));
    return on_out(n, 0,
                  e_cast(n, e_div(n, diff, e_add(n, std, e_like(n, w, 1e-9))), x->type.dtype));
}

bool onnx_lpnorm(struct onode *n)
{
    struct ir_value *x = on_in(n, 0), *w = e_wide(n, x), *norm;
    int64_t p = at_int(n, "p", 2);
    int axis;
    if (!on_axis(n, at_int(n, "axis", -1), rank_of(x), false, &axis)) return false;
    if (p == 1) norm = e_red1(n, IR_OP_REDUCE_SUM, e_un(n, IR_OP_ABS, w), axis, true);
    else if (p == 2)
        norm = e_un(n, IR_OP_SQRT, e_red1(n, IR_OP_REDUCE_SUM, e_mul(n, w, w), axis, true));
    else return on_fail(n, DIAG_ONNX_ATTR, "attribute 'p' has to be 1 or 2");
    /* A vector of zeros stays one. */
    struct ir_value *zero = e_like(n, w, 0),
                    *y = e_sel(n, e_bin(n, IR_OP_EQ, norm, zero), zero, e_div(n, w, norm));
    return on_out(n, 0, e_cast(n, y, x->type.dtype));
}

/* com.microsoft: SkipLayerNormalization(input, skip, gamma, beta, bias) -> output, mean, inv_std,
 * input + skip + bias */
bool onnx_skiplayernorm(struct onode *n)
{
    struct ir_value *sum = e_add(n, on_in(n, 0), on_in(n, 1));
    if (on_in(n, 4)) sum = e_add(n, sum, on_in(n, 4));
    if (!sum) return false;
    enum dtype t = sum->type.dtype;
    double eps = at_float(n, "epsilon", 1e-12);
    if (on_wants_out(n, 1) || on_wants_out(n, 2))
        return on_fail(n, DIAG_ONNX_OP,
                       "SkipLayerNormalization: outputs 1 and 2 are not supported");
    struct ir_value *gamma = e_wide(n, on_in(n, 2)),
                    *beta = on_in(n, 3) ? e_wide(n, on_in(n, 3)) : NULL;
    struct ir_value *y = layer_norm(n, e_wide(n, sum), gamma, beta, rank_of(sum) - 1, eps);
    if (!on_out(n, 0, e_cast(n, y, t))) return false;
    return !on_wants_out(n, 3) || on_out(n, 3, sum);
}

/* Dropout outside training is the identity with a mask of ones. */
bool onnx_dropout(struct onode *n)
{
    struct ir_value *x = on_in(n, 0);
    at_ignore(n, "ratio");
    at_ignore(n, "seed");
    if (on_in(n, 2)) {
        const struct known *k = known_of(n->im, on_in(n, 2));
        if (!k || k->n != 1 || !k->e[0].num || !dim_is_const(k->e[0].num))
            return on_dynamic(
                n, 2,
                "says whether it is in training mode, which is not known before the engine runs");
        double ratio = 0.5;
        if (k->e[0].num->value && on_in(n, 1) && !on_const_float(n, 1, &ratio)) return false;
        if (k->e[0].num->value && ratio != 0)
            return on_fail(n, DIAG_ONNX_OP, "Dropout in training mode needs random numbers");
    }
    if (!on_out(n, 0, x)) return false;
    if (!on_wants_out(n, 1)) return true;
    struct ir_value *one = n->version < 10 ? e_like(n, x, 1) : ir_build_scalar_i(n->b, DT_BOOL, 1);
    return on_out(n, 1, e_broadcast(n, one, rank_of(x), x->type.dims));
}
