// SPDX-License-Identifier: Apache-2.0
/* Inference for convolutions, pools and recurrent layers. */
#include <float.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "ir/infer.h"

/* Attributes that conv, conv_transpose and pools share, checked. */
struct window {
    int n; /* spatial axes */
    int first, channel; /* first spatial axis and channel axis of x and of the result */
    int64_t strides[2 * IR_MAX_RANK], dilations[2 * IR_MAX_RANK];
    const struct dim *pads[2 * IR_MAX_RANK];
    const struct dim *kernel[IR_MAX_RANK];
};

static bool read_window(struct ir_module *m, struct ir_op *op, int spatial, struct window *w)
{
    bool last;
    if (!infer_flag(m, op, "channels_last", false, &last)) return false;
    w->n = spatial;
    w->first = last ? 1 : 2;
    w->channel = last ? 1 + spatial : 1;
    return infer_ints(m, op, "strides", spatial, 1, INT32_MAX, 1, w->strides) &&
           infer_ints(m, op, "dilations", spatial, 1, INT32_MAX, 1, w->dilations) &&
           infer_dims(m, op, "pads", 2 * spatial, w->pads, NULL);
}

/* dilation * (kernel - 1) + 1. */
static const struct dim *window_extent(struct ir_module *m, const struct window *w, int k)
{
    return dim_addc(m->dims,
                    dim_mulc(m->dims, dim_addc(m->dims, w->kernel[k], -1), w->dilations[k]), 1);
}

/* x is [N, C, D...] with at least one spatial axis. */
static bool image_rank(struct ir_module *m, struct ir_op *op)
{
    if (infer_type(op, 0)->rank >= 3) return true;
    return infer_fail(m, op, DIAG_SHAPE_MISMATCH,
                      "operand 0 must be [N, C, D...] of rank 3 or more");
}

static bool check_bias(struct ir_module *m, struct ir_op *op, enum dtype acc,
                       const struct dim *channels)
{
    if (!ir_operand(op, 2)) return true;
    return infer_dtype(m, op, 2, acc) && infer_rank(m, op, 2, 1) &&
           infer_eq(m, op, infer_type(op, 2)->dims[0], channels, "bias and output channels");
}

static bool check_kernel(struct ir_module *m, struct ir_op *op, struct window *w)
{
    for (int k = 0; k < w->n; k++) {
        w->kernel[k] = infer_type(op, 1)->dims[2 + k];
        if (!infer_le(m, op, dim_const(m->dims, 1), w->kernel[k], "size of a kernel")) return false;
    }
    return true;
}

bool infer_conv(struct ir_module *m, struct ir_op *op)
{
    const struct ir_type *x = infer_type(op, 0), *f = infer_type(op, 1);
    const struct dim *dims[IR_MAX_RANK], *zero = dim_const(m->dims, 0);
    struct window w;
    enum dtype acc;
    int64_t groups, tile;
    if (!image_rank(m, op) || !infer_acc(m, op, &acc) || !infer_rank(m, op, 1, x->rank) ||
        !infer_int(m, op, "groups", 1, INT32_MAX, 1, &groups) || !infer_int(m, op, "winograd", 0, 4, 0, &tile) ||
        !read_window(m, op, x->rank - 2, &w) || !check_kernel(m, op, &w))
        return false;
    const struct dim *out_channels = f->dims[0], *g = dim_const(m->dims, groups);
    if (!infer_eq(m, op, dim_mulc(m->dims, f->dims[1], groups), x->dims[w.channel],
                  "input channels by weights and by x") ||
        !infer_eq(m, op, dim_mod(m->dims, out_channels, g), zero,
                  "output channels modulo groups") ||
        !check_bias(m, op, acc, out_channels))
        return false;
    dims[0] = x->dims[0];
    dims[w.channel] = out_channels;
    for (int k = 0; k < w.n; k++) {
        const struct dim *padded =
            dim_add(m->dims, x->dims[w.first + k], dim_add(m->dims, w.pads[k], w.pads[w.n + k]));
        const struct dim *extent = window_extent(m, &w, k);
        if (!infer_le(m, op, extent, padded, "size of a kernel and of the padded input"))
            return false;
        const struct dim *free = dim_sub(m->dims, padded, extent);
        dims[w.first + k] =
            dim_addc(m->dims, dim_floordiv(m->dims, free, dim_const(m->dims, w.strides[k])), 1);
    }
    return infer_set(m, op, 0, acc, x->rank, dims);
}

bool infer_conv_transpose(struct ir_module *m, struct ir_op *op)
{
    const struct ir_type *x = infer_type(op, 0), *f = infer_type(op, 1);
    const struct dim *dims[IR_MAX_RANK], *zero = dim_const(m->dims, 0);
    struct window w;
    int64_t groups;
    if (!image_rank(m, op) || !infer_class(m, op, 0, INFER_NUMBER) ||
        !infer_dtype(m, op, 1, x->dtype) || !infer_rank(m, op, 1, x->rank) ||
        !infer_int(m, op, "groups", 1, INT32_MAX, 1, &groups) ||
        !read_window(m, op, x->rank - 2, &w) || !check_kernel(m, op, &w) ||
        !infer_dims(m, op, "output", w.n, dims + 2, NULL))
        return false;
    dims[0] = x->dims[0];
    dims[1] = dim_mulc(m->dims, f->dims[1], groups);
    return infer_eq(m, op, f->dims[0], x->dims[1], "input channels by weights and by x") &&
           infer_eq(m, op, dim_mod(m->dims, x->dims[1], dim_const(m->dims, groups)), zero,
                    "input channels modulo groups") &&
           check_bias(m, op, x->dtype, dims[1]) && infer_set(m, op, 0, x->dtype, x->rank, dims);
}

/* Window attributes of a pool and its result dims. */
static bool pool_dims(struct ir_module *m, struct ir_op *op, const struct dim **dims)
{
    const struct ir_type *x = infer_type(op, 0);
    const struct dim *output[2 * IR_MAX_RANK];
    int64_t kernel[2 * IR_MAX_RANK];
    struct window w;
    if (!image_rank(m, op) || !read_window(m, op, x->rank - 2, &w) ||
        !infer_ints(m, op, "kernel", w.n, 1, INT32_MAX, 1, kernel) ||
        !infer_dims(m, op, "output", w.n, output, NULL))
        return false;
    dims[0] = x->dims[0];
    dims[w.channel] = x->dims[w.channel];
    for (int k = 0; k < w.n; k++) dims[w.first + k] = output[k];
    for (int k = 0; k < 2 * w.n; k++)
        if (!infer_le(m, op, dim_const(m->dims, 0), w.pads[k], "pads of a pool")) return false;
    return true;
}

bool infer_pool_max(struct ir_module *m, struct ir_op *op)
{
    const struct ir_type *x = infer_type(op, 0);
    const struct dim *dims[IR_MAX_RANK];
    bool flag;
    return infer_class(m, op, 0, INFER_NUMBER) && infer_flag(m, op, "column_major", false, &flag) &&
           pool_dims(m, op, dims) && infer_set(m, op, 0, x->dtype, x->rank, dims) &&
           infer_set(m, op, 1, DT_I64, x->rank, dims);
}

bool infer_pool_avg(struct ir_module *m, struct ir_op *op)
{
    const struct ir_type *x = infer_type(op, 0);
    const struct dim *dims[IR_MAX_RANK];
    bool flag;
    return infer_class(m, op, 0, op->code == IR_OP_POOL_SUM ? INFER_NUMBER : INFER_FLOAT) &&
           (op->code == IR_OP_POOL_SUM || infer_flag(m, op, "count_include_pad", false, &flag)) &&
           pool_dims(m, op, dims) && infer_set(m, op, 0, x->dtype, x->rank, dims);
}

/* ---- recurrent layers ---- */

static bool known_activation(const char *word, size_t len)
{
    static const char *const names[] = {
        "relu",       "tanh",        "sigmoid", "affine",   "leakyrelu", "thresholdedrelu",
        "scaledtanh", "hardsigmoid", "elu",     "softsign", "softplus"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strlen(names[i]) == len && !strncasecmp(names[i], word, len)) return true;
    return false;
}

static bool check_activations(struct ir_module *m, struct ir_op *op, int want)
{
    const char *p = ir_attr_string(op, "activations", NULL);
    int n = 0;
    for (const char *at = p; at && *at; n++) {
        size_t len = strcspn(at, " ");
        if (!known_activation(at, len))
            return infer_fail(m, op, DIAG_IR_VERIFY, "activation \"%.*s\" is unknown",
                              len > 40 ? 40 : (int)len, at);
        at += len;
        at += *at == ' ';
    }
    if (p && n != want)
        return infer_fail(m, op, DIAG_IR_VERIFY, "needs %d activations, not %d", want, n);
    for (int k = 0; k < 2; k++) {
        const char *name = k ? "beta" : "alpha";
        int n_floats;
        const double *v = ir_attr_floats(op, name, &n_floats);
        if (n_floats > want)
            return infer_fail(m, op, DIAG_IR_VERIFY, "attribute `%s` has too many entries", name);
        for (int i = 0; i < n_floats; i++)
            if (!isfinite(v[i]))
                return infer_fail(m, op, DIAG_IR_VERIFY, "attribute `%s`[%d] is not finite", name,
                                  i);
    }
    return true;
}

/* Operand i, when given, has exactly these dims and X's dtype. */
static bool check_operand(struct ir_module *m, struct ir_op *op, int i, int rank,
                          const struct dim *const *dims)
{
    if (!ir_operand(op, i)) return true;
    if (!infer_rank(m, op, i, rank) || !infer_dtype(m, op, i, infer_type(op, 0)->dtype))
        return false;
    for (int k = 0; k < rank; k++)
        if (!infer_eq(m, op, infer_type(op, i)->dims[k], dims[k],
                      "dims of a recurrent layer's operand"))
            return false;
    return true;
}

/* gates: 4 lstm, 3 gru, 1 rnn; activations a direction; operands 0..5 and the results Y and Y_h are
 * checked and set. */
static bool recurrent(struct ir_module *m, struct ir_op *op, int gates, int activations,
                      const struct dim **state)
{
    const struct ir_type *x = infer_type(op, 0);
    struct dim_ctx *c = m->dims;
    int64_t hidden;
    const char *direction = ir_attr_string(op, "direction", "forward");
    if (!infer_class(m, op, 0, INFER_FLOAT) || !infer_rank(m, op, 0, 3) ||
        !infer_rank(m, op, 1, 3) || !infer_rank(m, op, 2, 3) ||
        !infer_word(m, op, "direction", "forward reverse bidirectional") ||
        !infer_real(m, op, "clip", 0.0, DBL_MAX))
        return false;
    int n_dirs = !strcmp(direction, "bidirectional") ? 2 : 1;
    const struct dim *h = infer_type(op, 2)->dims[2], *dirs = dim_const(c, n_dirs);
    if (ir_attr_find(op, "hidden_size")) {
        if (!infer_int(m, op, "hidden_size", 1, INT32_MAX, 1, &hidden) ||
            !infer_eq(m, op, h, dim_const(c, hidden), "hidden size by weights and by attribute"))
            return false;
        h = dim_const(c, hidden);
    }
    if (!check_activations(m, op, activations * n_dirs)) return false;
    const struct dim *batch = x->dims[1], *rows = dim_mulc(c, h, gates);
    const struct dim *w_dims[3] = {dirs, rows, x->dims[2]}, *r_dims[3] = {dirs, rows, h};
    const struct dim *b_dims[2] = {dirs, dim_mulc(c, h, 2 * gates)},
                     *y_dims[4] = {x->dims[0], dirs, batch, h};
    state[0] = dirs;
    state[1] = batch;
    state[2] = h;
    if (!check_operand(m, op, 1, 3, w_dims) || !check_operand(m, op, 2, 3, r_dims) ||
        !check_operand(m, op, 3, 2, b_dims) || !check_operand(m, op, 5, 3, state))
        return false;
    if (ir_operand(op, 4) &&
        (!infer_class(m, op, 4, INFER_INT) || !infer_rank(m, op, 4, 1) ||
         !infer_eq(m, op, infer_type(op, 4)->dims[0], batch, "sequence lengths and batch")))
        return false;
    return infer_set(m, op, 0, x->dtype, 4, y_dims) && infer_set(m, op, 1, x->dtype, 3, state);
}

bool infer_lstm(struct ir_module *m, struct ir_op *op)
{
    const struct dim *state[3];
    bool flag;
    if (!infer_flag(m, op, "input_forget", false, &flag) || !recurrent(m, op, 4, 3, state))
        return false;
    const struct dim *peepholes[2] = {state[0], dim_mulc(m->dims, state[2], 3)};
    return check_operand(m, op, 6, 3, state) && check_operand(m, op, 7, 2, peepholes) &&
           infer_set(m, op, 2, infer_type(op, 0)->dtype, 3, state);
}

bool infer_gru(struct ir_module *m, struct ir_op *op)
{
    const struct dim *state[3];
    bool flag;
    if (op->code == IR_OP_RNN) return recurrent(m, op, 1, 1, state);
    return infer_flag(m, op, "linear_before_reset", false, &flag) && recurrent(m, op, 3, 2, state);
}
