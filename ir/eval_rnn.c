// SPDX-License-Identifier: Apache-2.0
/*
 * LSTM, GRU and RNN as ONNX defines them, layout 0. The state of one direction lives in f64 through all steps; only what
 * leaves is rounded. Weights are transposed once, so that the inner loops run along the gates.
 *
 *     pre[gate h] = X W^T + H R^T + biases        (gru keeps H R^T apart where it is gated first)
 */
#include <strings.h>

#include "ir/eval_impl.h"
#include "ir/eval_table.h"
#include "ir/math_ref.h"

enum activation {
    ACT_RELU, ACT_TANH, ACT_SIGMOID, ACT_AFFINE, ACT_LEAKY_RELU, ACT_THRESHOLDED_RELU, ACT_SCALED_TANH,
    ACT_HARD_SIGMOID, ACT_ELU, ACT_SOFTSIGN, ACT_SOFTPLUS, ACT_COUNT
};

/* What the functions take, and the defaults of the ONNX operators of that name. */
static const struct act_info {
    const char *name;
    bool has_alpha, has_beta;
    double alpha, beta;
} acts[ACT_COUNT] = {
    [ACT_RELU] = {"relu", false, false, 0, 0},
    [ACT_TANH] = {"tanh", false, false, 0, 0},
    [ACT_SIGMOID] = {"sigmoid", false, false, 0, 0},
    [ACT_AFFINE] = {"affine", true, true, 1, 0},
    [ACT_LEAKY_RELU] = {"leakyrelu", true, false, 0.01, 0},
    [ACT_THRESHOLDED_RELU] = {"thresholdedrelu", true, false, 1, 0},
    [ACT_SCALED_TANH] = {"scaledtanh", true, true, 1, 1},
    [ACT_HARD_SIGMOID] = {"hardsigmoid", true, true, 0.2, 0.5},
    [ACT_ELU] = {"elu", true, false, 1, 0},
    [ACT_SOFTSIGN] = {"softsign", false, false, 0, 0},
    [ACT_SOFTPLUS] = {"softplus", false, false, 0, 0},
};

struct act {
    enum activation kind;
    double alpha, beta;
};

static double apply(const struct act *a, double x)
{
    switch (a->kind) {
    case ACT_RELU: return x < 0 ? 0 : x;
    case ACT_TANH: return ref_tanh(x);
    case ACT_SIGMOID: return ref_sigmoid(x);
    case ACT_AFFINE: return a->alpha * x + a->beta;
    case ACT_LEAKY_RELU: return x < 0 ? a->alpha * x : x;
    case ACT_THRESHOLDED_RELU: return x > a->alpha ? x : 0;
    case ACT_SCALED_TANH: return a->alpha * ref_tanh(a->beta * x);
    case ACT_HARD_SIGMOID: return eval_max_f64(0, eval_min_f64(1, a->alpha * x + a->beta));
    case ACT_ELU: return x < 0 ? a->alpha * (ref_exp(x) - 1) : x;
    case ACT_SOFTSIGN: return x / (1 + (x < 0 ? -x : x));
    default: return x > 0 ? x + ref_log1p(ref_exp(-x)) : ref_log1p(ref_exp(x));
    }
}

struct rnn {
    enum ir_opcode code;
    int gates, n_acts, n_dirs;
    int64_t steps, batch, inputs, hidden, rows; /* rows: gates * hidden */
    double clip;                                /* 0: none */
    bool input_forget, linear_before_reset;
    struct act act[6]; /* n_acts a direction */
    const struct ir_tensor *x, *w, *r, *b, *lens, *h0, *c0, *p;
    /* One direction at a time: transposed weights, W's and R's biases, peepholes, state, sums of one step. */
    union eval_lane *wt, *rt, *bias, *peep, *h, *cell, *in, *pre, *rec;
};

static bool read_activations(struct eval_call *c, struct rnn *n)
{
    static const char *const defaults[] = {"sigmoid tanh tanh", "sigmoid tanh", "tanh"};
    const char *dflt = defaults[n->code == IR_OP_LSTM ? 0 : n->code == IR_OP_GRU ? 1 : 2];
    const char *text = ir_attr_string(c->op, "activations", ""), *at = *text ? text : dflt;
    int n_alpha, n_beta, used_alpha = 0, used_beta = 0, count = n->n_acts * n->n_dirs;
    const double *alpha = ir_attr_floats(c->op, "alpha", &n_alpha), *beta = ir_attr_floats(c->op, "beta", &n_beta);
    for (int i = 0; i < count; i++) {
        if (!*text && i == n->n_acts) at = dflt;
        at += strspn(at, " ");
        size_t len = strcspn(at, " ");
        enum activation k = 0;
        while (k < ACT_COUNT && (strlen(acts[k].name) != len || strncasecmp(acts[k].name, at, len))) k++;
        if (k == ACT_COUNT) return eval_fail(c, DIAG_IR_VERIFY, "activation %d of \"%.80s\" is not known", i, text);
        at += len;
        n->act[i] = (struct act){k, acts[k].alpha, acts[k].beta};
        /* Each value goes to the next function that takes one. */
        if (acts[k].has_alpha && used_alpha < n_alpha) n->act[i].alpha = alpha[used_alpha++];
        if (acts[k].has_beta && used_beta < n_beta) n->act[i].beta = beta[used_beta++];
    }
    return true;
}

/* Operand i: absent, or a float tensor of exactly these dims. */
static bool operand(struct eval_call *c, int i, int rank, const int64_t *dims, const struct ir_tensor **out)
{
    const struct ir_tensor *t = *out = eval_in(c, i);
    if (!t) return true;
    if (!eval_need(c, i, EVAL_FLOAT, rank)) return false;
    for (int d = 0; d < rank; d++)
        if (t->dims[d] != dims[d])
            return eval_fail(c, DIAG_SHAPE_MISMATCH, "dim %d of operand %d is %lld, not %lld", d, i, (long long)t->dims[d],
                             (long long)dims[d]);
    return true;
}

static bool read_shapes(struct eval_call *c, struct rnn *n)
{
    const char *dir = ir_attr_string(c->op, "direction", "forward");
    if (strcmp(dir, "forward") && strcmp(dir, "reverse") && strcmp(dir, "bidirectional"))
        return eval_fail(c, DIAG_IR_VERIFY, "unknown direction %.40s", dir);
    n->n_dirs = !strcmp(dir, "bidirectional") ? 2 : 1;
    if (!eval_need(c, 0, EVAL_FLOAT, 3) || !eval_need(c, 1, EVAL_FLOAT, 3) || !eval_need(c, 2, EVAL_FLOAT, 3)) return false;
    n->x = &c->in[0];
    n->steps = n->x->dims[0];
    n->batch = n->x->dims[1];
    n->inputs = n->x->dims[2];
    n->hidden = c->in[2].dims[2];
    n->rows = n->gates * n->hidden;
    int64_t d = n->n_dirs;
    int64_t w[3] = {d, n->rows, n->inputs}, r[3] = {d, n->rows, n->hidden}, b[2] = {d, 2 * n->rows}, lens[1] = {n->batch};
    int64_t state[3] = {d, n->batch, n->hidden}, p[2] = {d, 3 * n->hidden}, y[4] = {n->steps, d, n->batch, n->hidden};
    if (!operand(c, 1, 3, w, &n->w) || !operand(c, 2, 3, r, &n->r) || !operand(c, 3, 2, b, &n->b) ||
        !operand(c, 5, 3, state, &n->h0) || !eval_expect(c, 0, n->x->dtype, 4, y) || !eval_expect(c, 1, n->x->dtype, 3, state))
        return false;
    n->lens = eval_in(c, 4);
    if (n->lens && (!eval_need(c, 4, EVAL_INT, 1) || n->lens->dims[0] != lens[0]))
        return eval_fail(c, DIAG_SHAPE_MISMATCH, "sequence_lens must have one entry a batch row");
    for (int64_t i = 0; n->lens && i < n->batch; i++)
        if (eval_get_i(n->lens, i) < 0 || eval_get_i(n->lens, i) > n->steps)
            return eval_fail(c, DIAG_SHAPE_MISMATCH, "sequence length %lld of %lld", (long long)eval_get_i(n->lens, i),
                             (long long)n->steps);
    if (n->code != IR_OP_LSTM) return true;
    return operand(c, 6, 3, state, &n->c0) && operand(c, 7, 2, p, &n->p) && eval_expect(c, 2, n->x->dtype, 3, state);
}

static bool allocate(struct eval_call *c, struct rnn *n)
{
    n->wt = eval_scratch(c, n->rows * n->inputs, sizeof *n->wt);
    n->rt = eval_scratch(c, n->rows * n->hidden, sizeof *n->rt);
    n->bias = eval_scratch(c, 2 * n->rows, sizeof *n->bias);
    n->peep = eval_scratch(c, 3 * n->hidden, sizeof *n->peep);
    n->h = eval_scratch(c, n->hidden, sizeof *n->h);
    n->cell = eval_scratch(c, n->hidden, sizeof *n->cell);
    n->in = eval_scratch(c, n->inputs, sizeof *n->in);
    n->pre = eval_scratch(c, n->rows, sizeof *n->pre);
    n->rec = eval_scratch(c, n->rows, sizeof *n->rec);
    return n->wt && n->rt && n->bias && n->peep && n->h && n->cell && n->in && n->pre && n->rec;
}

/* Weights of one direction: t[dir, rows, cols] as out[cols][rows]. */
static void transpose(const struct ir_tensor *t, int64_t dir, int64_t rows, int64_t cols, union eval_lane *out)
{
    for (int64_t k = 0; k < cols; k++)
        for (int64_t at = 0; at < rows; at += EVAL_BLOCK) {
            int64_t n = rows - at < EVAL_BLOCK ? rows - at : EVAL_BLOCK;
            eval_load(t->dtype, t->data, (dir * rows + at) * cols + k, cols, n, out + k * rows + at);
        }
}

/* out[r] += sum over k of v[k] * wt[k][r], for rows from .. to. */
static void accumulate(const struct rnn *n, int64_t cols, const union eval_lane *v, const union eval_lane *wt, int64_t from,
                       int64_t to, union eval_lane *out)
{
    for (int64_t k = 0; k < cols; k++) {
        double a = v[k].f;
        const union eval_lane *row = wt + k * n->rows;
        for (int64_t r = from; r < to; r++) out[r].f += a * row[r].f;
    }
}

static double clipped(const struct rnn *n, double v)
{
    if (n->clip <= 0) return v;
    return v > n->clip ? n->clip : v < -n->clip ? -n->clip : v;
}

static void lstm_step(struct rnn *n, const struct act *act)
{
    int64_t h = n->hidden;
    for (int64_t i = 0; i < n->rows; i++) n->pre[i].f += n->rec[i].f;
    for (int64_t i = 0; i < h; i++) { /* gates i, o, f, c; peepholes i, o, f */
        double old = n->cell[i].f;
        double in = apply(&act[0], clipped(n, n->pre[i].f + n->peep[i].f * old));
        double forget = n->input_forget ? 1 - in : apply(&act[0], clipped(n, n->pre[2 * h + i].f + n->peep[2 * h + i].f * old));
        double fresh = apply(&act[1], clipped(n, n->pre[3 * h + i].f));
        double cell = forget * old + in * fresh;
        double out = apply(&act[0], clipped(n, n->pre[h + i].f + n->peep[h + i].f * cell));
        n->cell[i].f = cell;
        n->h[i].f = out * apply(&act[2], cell); /* clip is for the sums of gates */
    }
}

static void gru_step(struct rnn *n, const struct act *act)
{
    int64_t h = n->hidden; /* gates z, r, h */
    for (int64_t i = 0; i < 2 * h; i++) n->pre[i].f = apply(&act[0], clipped(n, n->pre[i].f + n->rec[i].f));
    if (!n->linear_before_reset) {
        /* The candidate takes r (.) H instead of H; a gru has no cell, whose place holds it. */
        for (int64_t i = 0; i < h; i++) n->cell[i].f = n->pre[h + i].f * n->h[i].f;
        for (int64_t i = 0; i < h; i++) n->rec[2 * h + i].f = n->bias[n->rows + 2 * h + i].f;
        accumulate(n, h, n->cell, n->rt, 2 * h, 3 * h, n->rec);
    } else {
        for (int64_t i = 0; i < h; i++) n->rec[2 * h + i].f *= n->pre[h + i].f;
    }
    for (int64_t i = 0; i < h; i++) {
        double z = n->pre[i].f, fresh = apply(&act[1], clipped(n, n->pre[2 * h + i].f + n->rec[2 * h + i].f));
        n->h[i].f = (1 - z) * fresh + z * n->h[i].f;
    }
}

static void rnn_step(struct rnn *n, const struct act *act)
{
    for (int64_t i = 0; i < n->hidden; i++) n->h[i].f = apply(&act[0], clipped(n, n->pre[i].f + n->rec[i].f));
}

/* One batch row through time, in one direction. */
static void run_row(struct eval_call *c, struct rnn *n, int dir, int64_t b, bool backward)
{
    int64_t h = n->hidden, len = n->lens ? eval_get_i(n->lens, b) : n->steps, state_at = (dir * n->batch + b) * h;
    enum dtype t = n->x->dtype;
    memset(n->h, 0, sizeof *n->h * (size_t)h);
    memset(n->cell, 0, sizeof *n->cell * (size_t)h);
    if (n->h0) eval_load(n->h0->dtype, n->h0->data, state_at, 1, h, n->h);
    if (n->c0) eval_load(n->c0->dtype, n->c0->data, state_at, 1, h, n->cell);
    for (int64_t s = 0; s < len; s++) {
        int64_t step = backward ? len - 1 - s : s;
        eval_load(t, n->x->data, (step * n->batch + b) * n->inputs, 1, n->inputs, n->in);
        memcpy(n->pre, n->bias, sizeof *n->pre * (size_t)n->rows);
        memcpy(n->rec, n->bias + n->rows, sizeof *n->rec * (size_t)n->rows);
        accumulate(n, n->inputs, n->in, n->wt, 0, n->rows, n->pre);
        accumulate(n, h, n->h, n->rt, 0, n->rows, n->rec);
        const struct act *act = n->act + dir * n->n_acts;
        if (n->code == IR_OP_LSTM)
            lstm_step(n, act);
        else if (n->code == IR_OP_GRU)
            gru_step(n, act);
        else
            rnn_step(n, act);
        eval_store(t, c->out[0].data, ((step * n->n_dirs + dir) * n->batch + b) * h, 1, h, n->h);
    }
    for (int64_t step = len; step < n->steps; step++)
        for (int64_t i = 0; i < h; i++) eval_set_f(&c->out[0], ((step * n->n_dirs + dir) * n->batch + b) * h + i, 0);
    eval_store(t, c->out[1].data, state_at, 1, h, n->h);
    if (n->code == IR_OP_LSTM) eval_store(t, c->out[2].data, state_at, 1, h, n->cell);
}

bool eval_rnn(struct eval_call *c)
{
    struct rnn n = {.code = c->op->code, .clip = ir_attr_float(c->op, "clip", 0)};
    n.gates = n.code == IR_OP_LSTM ? 4 : n.code == IR_OP_GRU ? 3 : 1;
    n.n_acts = n.code == IR_OP_LSTM ? 3 : n.code == IR_OP_GRU ? 2 : 1;
    n.input_forget = ir_attr_int(c->op, "input_forget", 0) != 0;
    n.linear_before_reset = ir_attr_int(c->op, "linear_before_reset", 0) != 0;
    if (!read_shapes(c, &n) || !read_activations(c, &n) || !allocate(c, &n)) return false;
    bool reverse = !strcmp(ir_attr_string(c->op, "direction", "forward"), "reverse");
    for (int dir = 0; dir < n.n_dirs; dir++) {
        transpose(n.w, dir, n.rows, n.inputs, n.wt);
        transpose(n.r, dir, n.rows, n.hidden, n.rt);
        if (n.b) eval_load(n.b->dtype, n.b->data, dir * 2 * n.rows, 1, 2 * n.rows, n.bias);
        if (n.p) eval_load(n.p->dtype, n.p->data, dir * 3 * n.hidden, 1, 3 * n.hidden, n.peep);
        for (int64_t b = 0; b < n.batch; b++) run_row(c, &n, dir, b, reverse || dir == 1);
    }
    return true;
}
