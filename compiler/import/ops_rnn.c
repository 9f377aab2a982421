// SPDX-License-Identifier: Apache-2.0
/* LSTM, GRU, RNN: layout 1 (batch first) becomes layout 0 with transposes around the core op. */
#include <ctype.h>
#include <string.h>

#include "compiler/import/onnx_int.h"

static const int64_t swap3[3] = {1, 0, 2}, y_batch_first[4] = {2, 0, 1, 3};

/* The activations attribute as one string of lower-case names. */
static const char *activations(struct onode *n)
{
    int count;
    const char *const *names = at_strings(n, "activations", &count);
    if (!names) return NULL;
    struct strbuf s = {0};
    for (int i = 0; i < count; i++) {
        if (i) strbuf_putc(&s, ' ');
        for (const char *p = names[i]; *p; p++) strbuf_putc(&s, (char)tolower((unsigned char)*p));
    }
    const char *out = arena_strdup(&n->m->arena, strbuf_get(&s));
    strbuf_deinit(&s);
    return out;
}

static int common_attrs(struct onode *n, struct ir_attr *a)
{
    static const char *const directions[] = {"forward", "reverse", "bidirectional"};
    int k = 0, count, dir = at_choice(n, "direction", 0, 3, directions);
    if (dir >= 0) a[k++] = ir_a_string("direction", directions[dir]);
    if (at_has(n, "hidden_size")) a[k++] = ir_a_int("hidden_size", at_int(n, "hidden_size", 0));
    const char *act = activations(n);
    if (act && *act) a[k++] = ir_a_string("activations", act);
    const double *v = at_floats(n, "activation_alpha", &count);
    if (count) a[k++] = ir_a_floats("alpha", count, v);
    v = at_floats(n, "activation_beta", &count);
    if (count) a[k++] = ir_a_floats("beta", count, v);
    if (at_has(n, "clip")) a[k++] = ir_a_float("clip", at_float(n, "clip", 0));
    return k;
}

bool onnx_rnn(struct onode *n)
{
    enum ir_opcode op = (enum ir_opcode)n->row->arg;
    bool lstm = op == IR_OP_LSTM, batch_first = n->version >= 14 && at_int(n, "layout", 0);
    int n_states = lstm ? 2 : 1, n_operands = lstm ? 8 : 6;
    struct ir_value *in[8] = {0};
    for (int i = 0; i < n_operands; i++) in[i] = on_in(n, i);
    for (int i = 0; i < 3; i++)
        if (!on_rank(n, in[i], 3, 3, "X, W or R")) return false;
    if (batch_first) {
        in[0] = e_perm(n, in[0], swap3);
        for (int i = 5; i < 5 + n_states; i++)
            if (in[i] && on_rank(n, in[i], 3, 3, "an initial state"))
                in[i] = e_perm(n, in[i], swap3);
    }
    struct ir_attr a[8];
    int k = common_attrs(n, a);
    if (lstm) a[k++] = ir_a_int("input_forget", at_int(n, "input_forget", 0) != 0);
    if (op == IR_OP_GRU)
        a[k++] = ir_a_int("linear_before_reset", at_int(n, "linear_before_reset", 0) != 0);
    if (n->failed) return false;
    while (n_operands > 3 && !in[n_operands - 1]) n_operands--;
    struct ir_op *r = ir_build(n->b, op, n_operands, in, k, a, 1 + n_states);
    if (!r) return false;
    for (int i = 0; i <= n_states; i++) {
        struct ir_value *v = ir_result(r, i);
        if (batch_first) v = e_perm(n, v, i ? swap3 : y_batch_first);
        if (!on_out(n, i, v)) return false;
    }
    return true;
}

/*
 * com.microsoft: DynamicQuantizeLSTM(X, W, R, B, lens, h0, c0, P, W_scale, W_zero, R_scale, R_zero)
 * with 8-bit W[D, I, 4H] and R[D, H, 4H]. The weights are dequantised and the layer is computed in
 * f32: the operator's own rounding of activations to 8 bits at every step is not imitated.
 */
static struct ir_value *weight(struct onode *n, int i, int scale_at)
{
    static const int64_t perm[3] = {0, 2, 1};
    struct ir_value *w = on_in(n, i), *s = on_in(n, scale_at), *z = on_in(n, scale_at + 1);
    if (!w || !s || !on_rank(n, w, 3, 3, "W or R")) return NULL;
    struct ir_value *p[2] = {s, z};
    for (int k = 0; k < 2; k++) {
        if (!p[k]) continue;
        if (rank_of(p[k]) == 2) p[k] = e_unsqueeze(n, p[k], 1); /* [D, 4H] */
        else if (rank_of(p[k]) == 1) p[k] = e_unsqueeze(n, e_unsqueeze(n, p[k], 1), 2);
    }
    struct ir_value *q = e_cast(n, w, DT_I32);
    if (p[1]) q = e_sub(n, q, e_cast(n, p[1], DT_I32));
    return e_perm(n, e_mul(n, e_cast(n, q, DT_F32), p[0]), perm);
}

bool onnx_dynamicquantizelstm(struct onode *n)
{
    struct ir_value *in[8] = {0};
    for (int i = 0; i < 8; i++) in[i] = on_in(n, i);
    in[1] = weight(n, 1, 8);
    in[2] = weight(n, 2, 10);
    if (!in[1] || !in[2]) return false;
    struct ir_attr a[8];
    int k = common_attrs(n, a), n_operands = 8;
    a[k++] = ir_a_int("input_forget", at_int(n, "input_forget", 0) != 0);
    if (n->failed) return false;
    while (n_operands > 3 && !in[n_operands - 1]) n_operands--;
    struct ir_op *r = ir_build(n->b, IR_OP_LSTM, n_operands, in, k, a, 3);
    return r && on_out(n, 0, ir_result(r, 0)) && on_out(n, 1, ir_result(r, 1)) &&
           on_out(n, 2, ir_result(r, 2));
}
