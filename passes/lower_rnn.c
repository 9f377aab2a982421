// SPDX-License-Identifier: Apache-2.0
/*
 * Recurrent layers (LSTM: Hochreiter and Schmidhuber 1997 with peepholes; GRU: Cho et al. 2014; plain RNN) with ONNX's
 * gate orders (iofc, zrh), clipping and activations. A slice is one direction of one batch element; its state lives in
 * stack buffers; each gate is a vectorised dot product over the input and the previous state.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "passes/lower.h"

#define MAX_HIDDEN 16384 /* stack buffers: gates and state */

struct rnn {
    struct lower_ctx *l;
    struct expr_ctx *e;
    const struct ir_op *op;
    const struct ir_value *x, *w, *r, *bias, *lens, *h0, *c0, *peephole;
    enum dtype t;
    int gates;        /* 4 LSTM, 3 GRU, 1 RNN */
    int64_t hidden;
    struct lp_value *dir, *batch, *step;
    int h_buf, c_buf, g_buf; /* stack */
    bool both;        /* two directions */
    double clip;
    bool has_clip;
};

/* ---- activations ---- */

static struct lp_value *num(struct rnn *r, double v) { return lp_const_f(&r->e->b, lp_scalar(r->t), v); }

struct activation_defaults {
    const char *name;
    double alpha, beta;
};

/* Element-wise activation by ONNX name; alpha and beta as given or by default. */
static struct lp_value *activate(struct rnn *r, const char *name, double alpha, double beta, struct lp_value *x)
{
    struct lp_builder *b = &r->e->b;
#define BIN(op, p, q) lp_binary(b, LP_OP_##op, p, q)
    struct lp_value *zero = num(r, 0), *one = num(r, 1);
    if (!strcasecmp(name, "Tanh")) return lp_unary(b, LP_OP_TANH, x);
    if (!strcasecmp(name, "Relu")) return BIN(MAX, x, zero);
    if (!strcasecmp(name, "Affine")) return BIN(ADD, BIN(MUL, num(r, alpha), x), num(r, beta));
    if (!strcasecmp(name, "LeakyRelu")) return lp_select(b, BIN(GE, x, zero), x, BIN(MUL, num(r, alpha), x));
    if (!strcasecmp(name, "ThresholdedRelu")) return lp_select(b, BIN(GE, x, num(r, alpha)), x, zero);
    if (!strcasecmp(name, "ScaledTanh")) return BIN(MUL, num(r, alpha), lp_unary(b, LP_OP_TANH, BIN(MUL, num(r, beta), x)));
    if (!strcasecmp(name, "HardSigmoid"))
        return BIN(MIN, BIN(MAX, BIN(ADD, BIN(MUL, num(r, alpha), x), num(r, beta)), zero), one);
    if (!strcasecmp(name, "Elu"))
        return lp_select(b, BIN(GE, x, zero), x, BIN(MUL, num(r, alpha), BIN(SUB, lp_unary(b, LP_OP_EXP, x), one)));
    if (!strcasecmp(name, "Softsign")) return BIN(DIV, x, BIN(ADD, one, lp_unary(b, LP_OP_ABS, x)));
    if (!strcasecmp(name, "Softplus")) return lp_unary(b, LP_OP_LOG, BIN(ADD, one, lp_unary(b, LP_OP_EXP, x)));
    return lp_unary(b, LP_OP_SIGMOID, x);
#undef BIN
}

static void activation_params(const char *name, double *alpha, double *beta)
{
    static const struct activation_defaults table[] = {{"Affine", 1, 0}, {"LeakyRelu", 0.01, 0}, {"ThresholdedRelu", 1, 0},
                                                       {"ScaledTanh", 1, 1}, {"HardSigmoid", 0.2, 0.5}, {"Elu", 1, 0}};
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (!strcasecmp(table[i].name, name)) *alpha = table[i].alpha, *beta = table[i].beta;
}

/* Activation number i (f, g, h of direction 0, then of direction 1) of the op, with its default. */
static struct lp_value *activation_no(struct rnn *r, int i, const char *dflt, struct lp_value *x)
{
    const char *list = ir_attr_string(r->op, "activations", "");
    int na, nb;
    const double *alpha = ir_attr_floats(r->op, "alpha", &na), *beta = ir_attr_floats(r->op, "beta", &nb);
    char name[32];
    snprintf(name, sizeof name, "%s", dflt);
    for (int k = 0; *list; k++) {
        size_t len = strcspn(list, " ");
        if (k == i && len < sizeof name) memcpy(name, list, len), name[len] = 0;
        list += len + (list[len] == ' ');
    }
    double a = 1, b = 0;
    activation_params(name, &a, &b);
    if (i < na) a = alpha[i];
    if (i < nb) b = beta[i];
    return activate(r, name, a, b, x);
}

/* Both directions may have activations of their own: chosen by the direction at run time only when they differ. */
static struct lp_value *act(struct rnn *r, int i, const char *dflt, struct lp_value *x)
{
    struct lp_value *first = activation_no(r, i, dflt, x);
    if (!r->both || !ir_attr_string(r->op, "activations", "")[0]) return first;
    int per = r->gates == 4 ? 3 : r->gates == 3 ? 2 : 1;
    struct lp_value *second = activation_no(r, i + per, dflt, x);
    return lp_select(&r->e->b, lp_binary(&r->e->b, LP_OP_EQ, r->dir, r->e->zero), first, second);
}

static struct lp_value *clip(struct rnn *r, struct lp_value *x)
{
    if (!r->has_clip) return x;
    struct lp_builder *b = &r->e->b;
    return lp_binary(b, LP_OP_MIN, lp_binary(b, LP_OP_MAX, x, num(r, -r->clip)), num(r, r->clip));
}

/* ---- pieces ---- */

static struct lp_value *stack_load(struct rnn *r, int buf, struct lp_value *i)
{
    struct lp_value *idx[1] = {i};
    return lp_load(&r->e->b, buf, idx);
}

static void stack_store(struct rnn *r, int buf, struct lp_value *i, struct lp_value *v)
{
    struct lp_value *idx[1] = {i};
    lp_store(&r->e->b, buf, idx, v);
}

static struct lp_value *plus(struct rnn *r, struct lp_value *a, int64_t n)
{
    return n ? lp_binary(&r->e->b, LP_OP_ADD, a, lp_index(&r->e->b, n)) : a;
}

/* b[dir][row + half * gates * hidden]; NULL without bias. */
static struct lp_value *bias_at(struct rnn *r, struct lp_value *row, int half)
{
    if (!r->bias) return NULL;
    struct lp_value *idx[2] = {r->dir, plus(r, row, half * r->gates * r->hidden)};
    return expr_at(r->e, r->bias, idx);
}

/* sum over i of x[t, batch, i] * W[dir, row, i] */
static struct lp_value *dot_input(struct rnn *r, struct lp_value *t, struct lp_value *row)
{
    struct expr_ctx *e = r->e;
    struct lp_value *acc = num(r, 0);
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_VECTOR, e->zero, expr_dim(e, r->x->type.dims[2]), 1, 1, &acc);
    struct lp_value *i = loop->regions[0]->args[0];
    struct lp_value *xi[3] = {t, r->batch, i}, *wi[3] = {r->dir, row, i};
    struct lp_value *v = lp_fma(&e->b, expr_at(e, r->x, xi), expr_at(e, r->w, wi), loop->regions[0]->args[1]);
    expr_for_end(e, loop, &v);
    return loop->results[0];
}

/* sum over j of state[j] * R[dir, row, j] */
static struct lp_value *dot_state(struct rnn *r, int state, struct lp_value *row)
{
    struct expr_ctx *e = r->e;
    struct lp_value *acc = num(r, 0);
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_VECTOR, e->zero, lp_index(&e->b, r->hidden), 1, 1, &acc);
    struct lp_value *j = loop->regions[0]->args[0], *ri[3] = {r->dir, row, j};
    struct lp_value *v = lp_fma(&e->b, stack_load(r, state, j), expr_at(e, r->r, ri), loop->regions[0]->args[1]);
    expr_for_end(e, loop, &v);
    return loop->results[0];
}

static struct lp_op *for_hidden(struct rnn *r, int64_t rows)
{
    return expr_for_begin(r->e, LP_LOOP_SERIAL, r->e->zero, lp_index(&r->e->b, rows), 1, 0, NULL);
}

static struct lp_value *add_if(struct rnn *r, struct lp_value *v, struct lp_value *more)
{
    return more ? lp_binary(&r->e->b, LP_OP_ADD, v, more) : v;
}

/* g[row] = W x + R h + both biases, for rows [0, rows). */
static void all_gates(struct rnn *r, struct lp_value *t, int64_t rows)
{
    struct lp_op *loop = for_hidden(r, rows);
    struct lp_value *row = loop->regions[0]->args[0];
    struct lp_value *v = lp_binary(&r->e->b, LP_OP_ADD, dot_input(r, t, row), dot_state(r, r->h_buf, row));
    v = add_if(r, add_if(r, v, bias_at(r, row, 0)), bias_at(r, row, 1));
    stack_store(r, r->g_buf, row, v);
    expr_for_end(r->e, loop, NULL);
}

static struct lp_value *peephole_at(struct rnn *r, int gate, struct lp_value *j, struct lp_value *c)
{
    if (!r->peephole) return NULL;
    struct lp_value *idx[2] = {r->dir, plus(r, j, gate * r->hidden)};
    return lp_binary(&r->e->b, LP_OP_MUL, expr_at(r->e, r->peephole, idx), c);
}

/* ---- cells: read g, h (and c); write the new h into g[0..hidden) and c ---- */

static void lstm_cell(struct rnn *r)
{
    struct lp_builder *b = &r->e->b;
    struct lp_op *loop = for_hidden(r, r->hidden);
    struct lp_value *j = loop->regions[0]->args[0], *c = stack_load(r, r->c_buf, j);
    struct lp_value *gi = add_if(r, stack_load(r, r->g_buf, j), peephole_at(r, 0, j, c));
    struct lp_value *gf = add_if(r, stack_load(r, r->g_buf, plus(r, j, 2 * r->hidden)), peephole_at(r, 2, j, c));
    struct lp_value *gc = stack_load(r, r->g_buf, plus(r, j, 3 * r->hidden));
    struct lp_value *i = act(r, 0, "Sigmoid", clip(r, gi));
    struct lp_value *f = ir_attr_int(r->op, "input_forget", 0) ? lp_binary(b, LP_OP_SUB, num(r, 1), i) : act(r, 0, "Sigmoid", clip(r, gf));
    struct lp_value *fresh = lp_binary(b, LP_OP_MUL, i, act(r, 1, "Tanh", clip(r, gc)));
    struct lp_value *nc = lp_binary(b, LP_OP_ADD, lp_binary(b, LP_OP_MUL, f, c), fresh);
    struct lp_value *go = add_if(r, stack_load(r, r->g_buf, plus(r, j, r->hidden)), peephole_at(r, 1, j, nc));
    struct lp_value *h = lp_binary(b, LP_OP_MUL, act(r, 0, "Sigmoid", clip(r, go)), act(r, 2, "Tanh", nc));
    stack_store(r, r->c_buf, j, nc);
    stack_store(r, r->g_buf, j, h);
    expr_for_end(r->e, loop, NULL);
}

/*
 * GRU: z and r first; the candidate needs r for all j before any h changes, so it is computed into g[2 hidden ..).
 * linear_before_reset: r * (R h + b), else R (r * h) with r * h kept in c_buf.
 */
static void gru_cell(struct rnn *r, struct lp_value *t)
{
    struct lp_builder *b = &r->e->b;
    bool linear = ir_attr_int(r->op, "linear_before_reset", 0);
    struct lp_op *loop = for_hidden(r, 2 * r->hidden);
    struct lp_value *row = loop->regions[0]->args[0];
    stack_store(r, r->g_buf, row, act(r, 0, "Sigmoid", clip(r, stack_load(r, r->g_buf, row))));
    expr_for_end(r->e, loop, NULL);
    if (!linear) {
        loop = for_hidden(r, r->hidden);
        struct lp_value *j = loop->regions[0]->args[0];
        stack_store(r, r->c_buf, j, lp_binary(b, LP_OP_MUL, stack_load(r, r->g_buf, plus(r, j, r->hidden)), stack_load(r, r->h_buf, j)));
        expr_for_end(r->e, loop, NULL);
    }
    loop = for_hidden(r, r->hidden);
    struct lp_value *j = loop->regions[0]->args[0], *g = plus(r, j, 2 * r->hidden);
    struct lp_value *rec = dot_state(r, linear ? r->h_buf : r->c_buf, g);
    rec = add_if(r, rec, bias_at(r, g, 1));
    if (linear) rec = lp_binary(b, LP_OP_MUL, stack_load(r, r->g_buf, plus(r, j, r->hidden)), rec);
    struct lp_value *v = lp_binary(b, LP_OP_ADD, add_if(r, dot_input(r, t, g), bias_at(r, g, 0)), rec);
    v = act(r, 1, "Tanh", clip(r, v));
    stack_store(r, r->g_buf, g, v);
    expr_for_end(r->e, loop, NULL);
    loop = for_hidden(r, r->hidden);
    j = loop->regions[0]->args[0];
    struct lp_value *z = stack_load(r, r->g_buf, j), *cand = stack_load(r, r->g_buf, plus(r, j, 2 * r->hidden));
    struct lp_value *keep = lp_binary(b, LP_OP_MUL, z, stack_load(r, r->h_buf, j));
    v = lp_binary(b, LP_OP_ADD, lp_binary(b, LP_OP_MUL, lp_binary(b, LP_OP_SUB, num(r, 1), z), cand), keep);
    stack_store(r, r->g_buf, j, v);
    expr_for_end(r->e, loop, NULL);
}

static void rnn_cell(struct rnn *r)
{
    struct lp_op *loop = for_hidden(r, r->hidden);
    struct lp_value *j = loop->regions[0]->args[0];
    stack_store(r, r->g_buf, j, act(r, 0, "Tanh", clip(r, stack_load(r, r->g_buf, j))));
    expr_for_end(r->e, loop, NULL);
}

/* ---- the walk over time ---- */

static void init_state(struct rnn *r, int buf, const struct ir_value *from)
{
    struct lp_op *loop = for_hidden(r, r->hidden);
    struct lp_value *j = loop->regions[0]->args[0], *idx[3] = {r->dir, r->batch, j};
    stack_store(r, buf, j, from ? expr_at(r->e, from, idx) : num(r, 0));
    expr_for_end(r->e, loop, NULL);
}

/* Y[t, dir, batch, :] = h (or 0), h = new h kept in g. */
static void finish_step(struct rnn *r, struct lp_value *t, bool zero)
{
    struct lp_op *loop = for_hidden(r, r->hidden);
    struct lp_value *j = loop->regions[0]->args[0], *idx[4] = {t, r->dir, r->batch, j};
    struct lp_value *v = zero ? num(r, 0) : stack_load(r, r->g_buf, j);
    if (!zero) stack_store(r, r->h_buf, j, v);
    lp_store(&r->e->b, lower_result_buf(r->l, 0), idx, v);
    expr_for_end(r->e, loop, NULL);
}

static void final_state(struct rnn *r, int result, int buf)
{
    struct lp_op *loop = for_hidden(r, r->hidden);
    struct lp_value *j = loop->regions[0]->args[0], *idx[3] = {r->dir, r->batch, j};
    lp_store(&r->e->b, lower_result_buf(r->l, result), idx, stack_load(r, buf, j));
    expr_for_end(r->e, loop, NULL);
}

static void walk_time(struct rnn *r)
{
    struct expr_ctx *e = r->e;
    struct lp_builder *b = &e->b;
    struct lp_value *total = expr_dim(e, r->x->type.dims[0]), *len = total;
    if (r->lens) {
        struct lp_value *idx[1] = {r->batch};
        len = lp_cast(b, expr_at(e, r->lens, idx), DT_I64);
        len = lp_binary(b, LP_OP_MIN, lp_binary(b, LP_OP_MAX, len, e->zero), total);
    }
    const char *direction = ir_attr_string(r->op, "direction", "forward");
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, len, 1, 0, NULL);
    struct lp_value *s = loop->regions[0]->args[0], *mirror = lp_binary(b, LP_OP_SUB, lp_binary(b, LP_OP_SUB, len, e->one), s), *t = s;
    if (!strcmp(direction, "reverse")) t = mirror;
    if (r->both) t = lp_select(b, lp_binary(b, LP_OP_EQ, r->dir, e->zero), s, mirror);
    all_gates(r, t, r->gates == 3 ? 2 * r->hidden : r->gates * r->hidden);
    if (r->gates == 4) lstm_cell(r);
    else if (r->gates == 3) gru_cell(r, t);
    else rnn_cell(r);
    finish_step(r, t, false);
    expr_for_end(e, loop, NULL);
    if (!r->lens) return;
    loop = expr_for_begin(e, LP_LOOP_SERIAL, len, total, 1, 0, NULL);
    finish_step(r, loop->regions[0]->args[0], true);
    expr_for_end(e, loop, NULL);
}

enum lower_result lower_rnn(struct lower_ctx *l)
{
    const struct ir_op *op = l->anchor;
    if (!op || (op->code != IR_OP_LSTM && op->code != IR_OP_GRU && op->code != IR_OP_RNN)) return LOWER_NOT_MINE;
    if (l->yield->n_operands != op->n_results || ir_operand(l->yield, 0) != &op->results[0]) return LOWER_NOT_MINE;
    struct rnn r = {.l = l, .e = &l->e, .op = op, .x = ir_operand(op, 0), .w = ir_operand(op, 1), .r = ir_operand(op, 2),
                    .bias = ir_operand(op, 3), .lens = ir_operand(op, 4), .h0 = ir_operand(op, 5),
                    .gates = op->code == IR_OP_LSTM ? 4 : op->code == IR_OP_GRU ? 3 : 1, .hidden = ir_attr_int(op, "hidden_size", 0)};
    r.t = r.x->type.dtype;
    if (r.gates == 4) r.c0 = ir_operand(op, 6), r.peephole = ir_operand(op, 7);
    if (r.hidden < 1 || r.hidden > MAX_HIDDEN || !dtype_is_float(r.t)) return LOWER_NOT_MINE;
    r.has_clip = ir_attr_find(op, "clip") != NULL;
    r.clip = ir_attr_float(op, "clip", 0);
    const struct dim *dirs = r.w->type.dims[0], *batch = r.x->type.dims[1];
    r.both = dim_is(dirs, 2);
    int64_t sizes[] = {r.hidden}, gate_sizes[] = {r.gates * r.hidden};
    r.h_buf = lp_add_stack(l->k, "h", r.t, 1, sizes);
    r.c_buf = lp_add_stack(l->k, "c", r.t, 1, sizes);
    r.g_buf = lp_add_stack(l->k, "gates", r.t, 1, gate_sizes);
    lower_set_slices(l, dim_mul(l->m->dims, dirs, batch));
    const struct dim *axes[] = {dirs, batch};
    struct lp_value *coord[2];
    expr_delinear(&l->e, lower_slice(l), 2, axes, coord);
    r.dir = coord[0], r.batch = coord[1];
    init_state(&r, r.h_buf, r.h0);
    init_state(&r, r.c_buf, r.c0);
    walk_time(&r);
    final_state(&r, 1, r.h_buf);
    if (r.gates == 4) final_state(&r, 2, r.c_buf);
    l->k->schedule = "recurrent";
    return LOWER_DONE;
}
