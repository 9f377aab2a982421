// SPDX-License-Identifier: Apache-2.0
/*
 * Activation functions. f16 and bf16 are computed in f32 and rounded once (e_wide), which is at
 * least as exact as rounding after every step.
 */
#include <math.h>

#include "compiler/import/onnx_int.h"

typedef struct ir_value *activation_fn(struct onode *n, struct ir_value *x);

static bool wide(struct onode *n, activation_fn *fn)
{
    struct ir_value *x = e_wide(n, on_in(n, 0)), *y = fn(n, x);
    return on_out(n, 0, e_cast(n, y, on_in(n, 0)->type.dtype));
}

static struct ir_value *at_f(struct onode *n, struct ir_value *x, const char *name, double dflt)
{
    return e_like(n, x, at_float(n, name, dflt));
}

static struct ir_value *less_zero(struct onode *n, struct ir_value *x)
{
    return e_bin(n, IR_OP_LT, x, e_like(n, x, 0));
}

bool onnx_relu(struct onode *n)
{
    return on_out(n, 0, e_max(n, on_in(n, 0), e_like(n, on_in(n, 0), 0)));
}

static struct ir_value *leaky(struct onode *n, struct ir_value *x)
{
    return e_sel(n, less_zero(n, x), e_mul(n, x, at_f(n, x, "alpha", 0.01)), x);
}
bool onnx_leakyrelu(struct onode *n) { return wide(n, leaky); }

bool onnx_prelu(struct onode *n)
{
    struct ir_value *x = on_in(n, 0);
    return on_out(n, 0, e_sel(n, less_zero(n, x), e_mul(n, x, on_in(n, 1)), x));
}

/* exp(x) - 1 for x <= 0 without cancellation: with u = tanh(x/2) it is 2u / (1 - u). */
static struct ir_value *exp_less_one(struct onode *n, struct ir_value *x)
{
    struct ir_value *u = e_un(n, IR_OP_TANH, e_mul(n, x, e_like(n, x, 0.5)));
    return e_div(n, e_mul(n, u, e_like(n, x, 2)), e_sub(n, e_like(n, x, 1), u));
}

static struct ir_value *below(struct onode *n, struct ir_value *x)
{
    return exp_less_one(n, e_min(n, x, e_like(n, x, 0)));
}

static struct ir_value *elu(struct onode *n, struct ir_value *x)
{
    return e_sel(n, less_zero(n, x), e_mul(n, at_f(n, x, "alpha", 1), below(n, x)), x);
}
bool onnx_elu(struct onode *n) { return wide(n, elu); }

static struct ir_value *selu(struct onode *n, struct ir_value *x)
{
    struct ir_value *alpha = at_f(n, x, "alpha", 1.67326319217681884765625);
    struct ir_value *y = e_sel(n, less_zero(n, x), e_mul(n, alpha, below(n, x)), x);
    return e_mul(n, at_f(n, x, "gamma", 1.05070102214813232421875), y);
}
bool onnx_selu(struct onode *n) { return wide(n, selu); }

static struct ir_value *celu(struct onode *n, struct ir_value *x)
{
    struct ir_value *alpha = at_f(n, x, "alpha", 1), *zero = e_like(n, x, 0);
    struct ir_value *neg = e_mul(n, alpha, exp_less_one(n, e_div(n, e_min(n, x, zero), alpha)));
    return e_add(n, e_max(n, x, zero), neg);
}
bool onnx_celu(struct onode *n) { return wide(n, celu); }

static struct ir_value *gelu_erf(struct onode *n, struct ir_value *x)
{
    struct ir_value *e = e_un(n, IR_OP_ERF, e_mul(n, x, e_like(n, x, 0.70710678118654752440)));
    return e_mul(n, e_mul(n, e_like(n, x, 0.5), x), e_add(n, e, e_like(n, x, 1)));
}

static struct ir_value *gelu_tanh(struct onode *n, struct ir_value *x)
{
    struct ir_value *x3 = e_mul(n, e_mul(n, x, x), x);
    struct ir_value *in = e_mul(n, e_like(n, x, 0.79788456080286535588),
                                e_add(n, x, e_mul(n, e_like(n, x, 0.044715), x3)));
    return e_mul(n, e_mul(n, e_like(n, x, 0.5), x),
                 e_add(n, e_un(n, IR_OP_TANH, in), e_like(n, x, 1)));
}

bool onnx_gelu(struct onode *n)
{
    static const char *const names[] = {"none", "tanh"};
    int approximate = at_choice(n, "approximate", 0, 2, names);
    return approximate >= 0 && wide(n, approximate ? gelu_tanh : gelu_erf);
}

/* com.microsoft: FastGelu(x, bias) */
bool onnx_fastgelu(struct onode *n)
{
    struct ir_value *x = on_in(n, 0);
    if (on_in(n, 1)) x = e_add(n, x, on_in(n, 1));
    return x && on_out(n, 0, e_cast(n, gelu_tanh(n, e_wide(n, x)), x->type.dtype));
}

/* log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|)), log1p(y) = 2 atanh(y / (2 + y)) */
static struct ir_value *softplus(struct onode *n, struct ir_value *x)
{
    struct ir_value *y = e_un(n, IR_OP_EXP, e_un(n, IR_OP_NEG, e_un(n, IR_OP_ABS, x)));
    struct ir_value *t = e_un(n, IR_OP_ATANH, e_div(n, y, e_add(n, y, e_like(n, x, 2))));
    return e_add(n, e_max(n, x, e_like(n, x, 0)), e_mul(n, t, e_like(n, x, 2)));
}
bool onnx_softplus(struct onode *n) { return wide(n, softplus); }

static struct ir_value *mish(struct onode *n, struct ir_value *x)
{
    return e_mul(n, x, e_un(n, IR_OP_TANH, softplus(n, x)));
}
bool onnx_mish(struct onode *n) { return wide(n, mish); }

static struct ir_value *softsign(struct onode *n, struct ir_value *x)
{
    return e_div(n, x, e_add(n, e_un(n, IR_OP_ABS, x), e_like(n, x, 1)));
}
bool onnx_softsign(struct onode *n) { return wide(n, softsign); }

static struct ir_value *clamp01(struct onode *n, struct ir_value *x)
{
    return e_max(n, e_min(n, x, e_like(n, x, 1)), e_like(n, x, 0));
}

static struct ir_value *hardsigmoid(struct onode *n, struct ir_value *x)
{
    return clamp01(n, e_add(n, e_mul(n, x, at_f(n, x, "alpha", 0.2)), at_f(n, x, "beta", 0.5)));
}
bool onnx_hardsigmoid(struct onode *n) { return wide(n, hardsigmoid); }

static struct ir_value *hardswish(struct onode *n, struct ir_value *x)
{
    return e_mul(n, x, clamp01(n, e_add(n, e_mul(n, x, e_like(n, x, 1.0 / 6)), e_like(n, x, 0.5))));
}
bool onnx_hardswish(struct onode *n) { return wide(n, hardswish); }

static struct ir_value *swish(struct onode *n, struct ir_value *x)
{
    return e_mul(n, x, e_un(n, IR_OP_SIGMOID, e_mul(n, x, at_f(n, x, "alpha", 1))));
}
bool onnx_swish(struct onode *n) { return wide(n, swish); }

static struct ir_value *thresholded(struct onode *n, struct ir_value *x)
{
    return e_sel(n, e_bin(n, IR_OP_GT, x, at_f(n, x, "alpha", 1)), x, e_like(n, x, 0));
}
bool onnx_thresholdedrelu(struct onode *n) { return wide(n, thresholded); }

bool onnx_shrink(struct onode *n)
{
    struct ir_value *x = on_in(n, 0);
    double lambd = at_float(n, "lambd", 0.5), bias = at_float(n, "bias", 0);
    if (!dtype_is_float(x->type.dtype)) { /* thresholds of an integer are compared as numbers */
        lambd = floor(lambd);
        if (bias != floor(bias))
            return on_fail(n, DIAG_ONNX_ATTR, "Shrink of integers with the bias %g", bias);
    }
    struct ir_value *low = e_bin(n, IR_OP_LT, x, e_like(n, x, -lambd)),
                    *high = e_bin(n, IR_OP_GT, x, e_like(n, x, lambd));
    struct ir_value *b = e_like(n, x, bias);
    return on_out(n, 0,
                  e_sel(n, low, e_add(n, x, b), e_sel(n, high, e_sub(n, x, b), e_like(n, x, 0))));
}

/* ---- softmax family ---- */

struct ir_value *onnx_hardmax_value(struct onode *n, struct ir_value *x, int axis);

struct ir_value *onnx_hardmax_value(struct onode *n, struct ir_value *x, int axis)
{
    struct ir_attr a[2] = {ir_a_int("axis", axis), ir_a_int("keepdims", 1)};
    struct ir_value *top = e_op1(n, IR_OP_ARG_MAX, x, 2, a);
    struct ir_value *pos = ir_build_iota(n->b, DT_I64, rank_of(x), x->type.dims, axis);
    return e_cast(n, e_bin(n, IR_OP_EQ, pos, top), x->type.dtype);
}

static struct ir_value *softmax_along(struct onode *n, struct ir_value *x, int axis)
{
    if (!x) return NULL;
    if (n->row->arg == IR_OP_ARG_MAX) return onnx_hardmax_value(n, x, axis);
    struct ir_attr a = ir_a_int("axis", axis);
    return e_op1(n, (enum ir_opcode)n->row->arg, x, 1, &a);
}

/* Softmax, LogSoftmax, Hardmax from operator set 13: one axis, default the last. */
bool onnx_softmax(struct onode *n)
{
    struct ir_value *x = on_in(n, 0);
    int axis;
    if (rank_of(x) == 0) return on_fail(n, DIAG_SHAPE_MISMATCH, "%s of a scalar", n->row->op);
    if (!on_axis(n, at_int(n, "axis", -1), rank_of(x), false, &axis)) return false;
    if (n->row->arg == IR_OP_ARG_MAX) return on_out(n, 0, onnx_hardmax_value(n, x, axis));
    return on_out(n, 0, e_cast(n, softmax_along(n, e_wide(n, x), axis), x->type.dtype));
}

/* Before 13: over all axes from `axis` (default 1) on, as if the tensor were two-dimensional. */
bool onnx_softmax_flat(struct onode *n)
{
    struct ir_value *x = on_in(n, 0);
    int axis;
    if (!on_axis(n, at_int(n, "axis", 1), rank_of(x), true, &axis)) return false;
    const struct dim *two[2] = {e_size(n, x, 0, axis), e_size(n, x, axis, rank_of(x))};
    struct ir_value *y = softmax_along(n, e_reshape(n, e_wide(n, x), 2, two), 1);
    return on_out(n, 0, e_cast(n, e_reshape(n, y, rank_of(x), x->type.dims), x->type.dtype));
}
