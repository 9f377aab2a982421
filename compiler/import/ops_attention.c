// SPDX-License-Identifier: Apache-2.0
/* Attention, RotaryEmbedding, LinearAttention, CausalConvWithState, SwiGLU. */
#include <math.h>

#include "compiler/import/onnx_int.h"

struct heads {
    struct ir_value *q, *k, *v; /* [batch, heads, sequence, size]; k and v with the kv heads */
    const struct dim *past;     /* length of the past, or NULL */
    bool packed;                /* the node's operands have rank 3 */
    int64_t groups;             /* query heads for each kv head */
};

/* [batch, sequence, heads * size] -> [batch, heads, sequence, size] */
static struct ir_value *unpack(struct onode *n, struct ir_value *x, int64_t heads)
{
    static const int64_t perm[4] = {0, 2, 1, 3};
    if (x && !on_rank(n, x, 3, 3, "an operand")) return NULL;
    const struct dim *size =
        x && heads > 0 ? dim_exact_div(n->d, dim_of(x, 2), dim_const(n->d, heads)) : NULL;
    if (!size) {
        if (x)
            on_fail(n, DIAG_SHAPE_MISMATCH, "%s: %lld heads do not divide the hidden size",
                    n->row->op, (long long)heads);
        return NULL;
    }
    const struct dim *dims[4] = {dim_of(x, 0), dim_of(x, 1), dim_const(n->d, heads), size};
    return e_perm(n, e_reshape(n, x, 4, dims), perm);
}

static struct ir_value *pack(struct onode *n, struct ir_value *x)
{
    static const int64_t perm[4] = {0, 2, 1, 3};
    if (!x) return NULL;
    const struct dim *dims[3] = {dim_of(x, 0), dim_of(x, 2),
                                 dim_mul(n->d, dim_of(x, 1), dim_of(x, 3))};
    return e_reshape(n, e_perm(n, x, perm), 3, dims);
}

static bool read_heads(struct onode *n, struct heads *h)
{
    struct ir_value *in[3] = {on_in(n, 0), on_in(n, 1), on_in(n, 2)};
    int64_t heads_q = at_int(n, "q_num_heads", 0), heads_kv = at_int(n, "kv_num_heads", 0);
    h->packed = rank_of(in[0]) == 3;
    for (int i = 0; i < 3; i++) {
        if (!on_rank(n, in[i], h->packed ? 3 : 4, h->packed ? 3 : 4, "an operand")) return false;
        if (h->packed) in[i] = unpack(n, in[i], i ? heads_kv : heads_q);
        if (!in[i]) return false;
    }
    h->q = in[0], h->k = in[1], h->v = in[2];
    h->past = NULL;
    if ((on_in(n, 4) == NULL) != (on_in(n, 5) == NULL))
        return on_fail(n, DIAG_ONNX_INPUT, "past_key and past_value go together");
    if (on_in(n, 4)) {
        struct ir_value *k[2] = {on_in(n, 4), h->k}, *v[2] = {on_in(n, 5), h->v};
        if (!on_rank(n, k[0], 4, 4, "past_key") || !on_rank(n, v[0], 4, 4, "past_value"))
            return false;
        h->past = dim_of(k[0], 2);
        h->k = ir_build_concat(n->b, 2, k, 2);
        h->v = ir_build_concat(n->b, 2, v, 2);
    }
    if (!h->k || !h->v) return false;
    const struct dim *a = dim_of(h->q, 1), *b = dim_of(h->k, 1), *g = dim_exact_div(n->d, a, b);
    if (!g || !dim_is_const(g) || g->value < 1)
        return on_fail(n, DIAG_SHAPE_MISMATCH,
                       "Attention: the query's heads are no multiple of the key's");
    h->groups = g->value;
    return true;
}

/* Repeats each head: [b, h, s, d] -> [b, h * groups, s, d] */
static struct ir_value *repeat_heads(struct onode *n, struct ir_value *x, int64_t groups)
{
    if (!x || groups == 1) return x;
    const struct dim *g = dim_const(n->d, groups), *one = dim_const(n->d, 1);
    const struct dim *in[5] = {dim_of(x, 0), dim_of(x, 1), one, dim_of(x, 2), dim_of(x, 3)};
    const struct dim *out[5] = {in[0], in[1], g, in[3], in[4]},
                     *flat[4] = {in[0], dim_mul(n->d, in[1], g), in[3], in[4]};
    return e_reshape(n, e_broadcast(n, e_reshape(n, x, 5, in), 5, out), 4, flat);
}

static struct ir_value *and_maybe(struct onode *n, struct ir_value *a, struct ir_value *b)
{
    return !a ? b : !b ? a : e_bin(n, IR_OP_AND, a, b);
}

/* A mask whose last dim is shorter than the keys is padded with "not allowed". */
static struct ir_value *full_mask(struct onode *n, struct ir_value *mask, const struct dim *keys)
{
    int last = rank_of(mask) - 1;
    if (last < 0 || dim_of(mask, last) == keys || dim_is(dim_of(mask, last), 1)) return mask;
    const struct dim *lo[IR_MAX_RANK], *hi[IR_MAX_RANK];
    for (int i = 0; i <= last; i++) lo[i] = hi[i] = dim_const(n->d, 0);
    hi[last] = dim_sub(n->d, keys, dim_of(mask, last));
    struct ir_attr a[3] = {ir_a_dims("lo", last + 1, lo), ir_a_dims("hi", last + 1, hi),
                           ir_a_string("mode", "constant")};
    bool is_bool = mask->type.dtype == DT_BOOL;
    struct ir_value *m = is_bool ? e_cast(n, mask, DT_U8) : mask;
    struct ir_value *operands[2] = {m, is_bool ? e_like(n, m, 0) : e_like(n, m, -INFINITY)};
    struct ir_value *y = e_op(n, IR_OP_PAD, 2, operands, 3, a, 1, 0);
    return is_bool ? e_cast(n, y, DT_BOOL) : y;
}

/* Which keys a query may see by position: causal order, sliding window, valid length. NULL: all. */
static struct ir_value *allowed_keys(struct onode *n, const struct heads *h)
{
    int64_t left = n->version >= 25 ? at_int(n, "left_window_size", -1) : -1,
            right = n->version >= 25 ? at_int(n, "right_window_size", -1) : -1;
    bool causal = at_int(n, "is_causal", 0);
    struct ir_value *valid = on_in(n, 6), *allowed = NULL;
    const struct dim *two[2] = {dim_of(h->q, 2), dim_of(h->k, 2)}, *one = dim_const(n->d, 1);
    struct ir_value *key = ir_build_iota(n->b, DT_I64, 2, two, 1),
                    *query = ir_build_iota(n->b, DT_I64, 2, two, 0);
    if (valid) {
        const struct dim *column[4] = {dim_of(h->q, 0), one, one, one};
        valid = e_reshape(n, e_cast(n, valid, DT_I64), 4, column);
    }
    if (h->past) query = e_add(n, query, e_dim(n, h->past, DT_I64));
    else if (valid) query = e_add(n, query, e_sub(n, valid, e_dim(n, two[0], DT_I64)));
    if (causal) allowed = e_bin(n, IR_OP_LE, key, query);
    if (left >= 0)
        allowed =
            and_maybe(n, allowed,
                      e_bin(n, IR_OP_GE, key, e_sub(n, query, e_scalar(n, DT_I64, (double)left))));
    if (right >= 0)
        allowed =
            and_maybe(n, allowed,
                      e_bin(n, IR_OP_LE, key, e_add(n, query, e_scalar(n, DT_I64, (double)right))));
    if (valid) allowed = and_maybe(n, allowed, e_bin(n, IR_OP_LT, key, valid));
    return allowed;
}

/* Everything that is added to the scores, -inf where a key is not allowed. NULL: nothing. */
static struct ir_value *bias_of(struct onode *n, const struct heads *h)
{
    struct ir_value *mask = on_in(n, 3), *allowed = allowed_keys(n, h);
    struct ir_value *zero = e_like(n, h->q, 0), *never = e_like(n, h->q, -INFINITY);
    if (mask) mask = full_mask(n, mask, dim_of(h->k, 2));
    if (mask && mask->type.dtype == DT_BOOL) {
        allowed = and_maybe(n, allowed, mask);
        mask = NULL;
    }
    if (!allowed) return mask;
    if (!mask) return e_sel(n, allowed, zero, never);
    return e_sel(n, allowed, e_cast(n, mask, h->q->type.dtype), never);
}

/* Softmax whose rows without any allowed key are zero. */
static struct ir_value *masked_softmax(struct onode *n, struct ir_value *scores,
                                       struct ir_value *bias)
{
    if (!scores) return NULL;
    struct ir_attr axis = ir_a_int("axis", rank_of(scores) - 1);
    if (!bias) return e_op1(n, IR_OP_SOFTMAX, scores, 1, &axis);
    struct ir_value *top = e_red1(n, IR_OP_REDUCE_MAX, bias, rank_of(bias) - 1, true);
    struct ir_value *dead = e_bin(n, IR_OP_EQ, top, e_like(n, bias, -INFINITY)),
                    *zero = e_like(n, scores, 0);
    return e_sel(n, dead, zero, e_op1(n, IR_OP_SOFTMAX, e_sel(n, dead, zero, scores), 1, &axis));
}

bool onnx_attention(struct onode *n)
{
    struct heads h = {0};
    int64_t mode = at_int(n, "qk_matmul_output_mode", 0);
    double softcap = at_float(n, "softcap", 0), scale = at_float(n, "scale", 0);
    if (!read_heads(n, &h)) return false;
    enum dtype t = h.q->type.dtype, precise = at_dtype(n, "softmax_precision", t);
    if (n->failed) return false;
    /* Both factors of the scores get the root of the scale. */
    struct ir_value *root;
    if (scale > 0) root = e_like(n, h.q, sqrt(scale));
    else if (dim_is_const(dim_of(h.q, 3)))
        root = e_like(n, h.q, sqrt(1 / sqrt((double)dim_of(h.q, 3)->value)));
    else
        root = e_cast(n,
                      e_un(n, IR_OP_SQRT,
                           e_div(n, e_scalar(n, DT_F32, 1),
                                 e_un(n, IR_OP_SQRT, e_dim(n, dim_of(h.q, 3), DT_F32)))),
                      t);
    struct ir_value *k = e_mul(n, repeat_heads(n, h.k, h.groups), root),
                    *v = repeat_heads(n, h.v, h.groups);
    struct ir_value *raw = ir_build_matmul(n->b, e_mul(n, h.q, root), k, false, true, DT_NONE),
                    *scores = raw, *shown = raw;
    if (softcap > 0) {
        struct ir_value *cap = e_like(n, raw, softcap);
        scores = e_mul(n, e_un(n, IR_OP_TANH, e_div(n, raw, cap)), cap);
    }
    if (mode == 1) shown = scores;
    struct ir_value *bias = bias_of(n, &h);
    if (bias) scores = e_add(n, scores, e_cast(n, bias, t));
    if (mode == 2) shown = scores;
    struct ir_value *p =
        masked_softmax(n, e_cast(n, scores, precise), bias ? e_cast(n, bias, precise) : NULL);
    p = e_cast(n, p, t);
    if (mode == 3) shown = p;
    struct ir_value *y =
        p && v ? ir_build_matmul(n->b, p, e_cast(n, v, t), false, false, DT_NONE) : NULL;
    if (!on_out(n, 0, h.packed ? pack(n, y) : y)) return false;
    return on_out(n, 1, h.k) && on_out(n, 2, h.v) && on_out(n, 3, shown);
}

/* ---- RotaryEmbedding(X, cos_cache, sin_cache, position_ids) ---- */

static struct ir_value *slice_step(struct onode *n, struct ir_value *x, int64_t start, int64_t step,
                                   const struct dim *size)
{
    const struct dim *starts[4], *sizes[4];
    int64_t steps[4] = {1, 1, 1, step};
    if (!x) return NULL;
    for (int i = 0; i < 4; i++)
        starts[i] = dim_const(n->d, i == 3 ? start : 0), sizes[i] = i == 3 ? size : dim_of(x, i);
    return ir_build_slice(n->b, x, starts, steps, sizes);
}

bool onnx_rotaryembedding(struct onode *n)
{
    struct ir_value *x = on_in(n, 0), *tables[2] = {on_in(n, 1), on_in(n, 2)};
    int64_t heads = at_int(n, "num_heads", 0), partial = at_int(n, "rotary_embedding_dim", 0);
    bool interleaved = at_int(n, "interleaved", 0), packed = rank_of(x) == 3;
    if (!on_rank(n, x, 3, 4, "X")) return false;
    if (packed) x = unpack(n, x, heads);
    if (!x) return false;
    const struct dim *size = dim_of(x, 3), *rot = partial > 0 ? dim_const(n->d, partial) : size,
                     *two = dim_const(n->d, 2);
    const struct dim *half = dim_exact_div(n->d, rot, two), *zero = dim_const(n->d, 0);
    if (!half || dim_known_ne(n->d, rot, dim_min(n->d, rot, size)))
        return on_fail(n, DIAG_SHAPE_MISMATCH,
                       "RotaryEmbedding: the rotated size is odd or too large");
    for (int i = 0; i < 2; i++) {
        if (on_in(n, 3)) tables[i] = ir_build_gather(n->b, tables[i], on_in(n, 3), 0);
        if (!on_rank(n, tables[i], 3, 3, "the table of angles")) return false;
        tables[i] = e_unsqueeze(n, tables[i], 1); /* [batch, 1, sequence, half] */
    }
    struct ir_value *turned = rot == size ? x : e_slice1(n, x, 3, zero, rot), *a, *b;
    if (interleaved) a = slice_step(n, turned, 0, 2, half), b = slice_step(n, turned, 1, 2, half);
    else a = e_slice1(n, turned, 3, zero, half), b = e_slice1(n, turned, 3, half, half);
    struct ir_value *re = e_sub(n, e_mul(n, tables[0], a), e_mul(n, tables[1], b));
    struct ir_value *im = e_add(n, e_mul(n, tables[1], a), e_mul(n, tables[0], b));
    struct ir_value *parts[2] = {re, im}, *y;
    if (interleaved) {
        const struct dim *flat[4] = {dim_of(x, 0), dim_of(x, 1), dim_of(x, 2), rot};
        parts[0] = e_unsqueeze(n, re, 4);
        parts[1] = e_unsqueeze(n, im, 4);
        y = parts[0] && parts[1] ? e_reshape(n, ir_build_concat(n->b, 2, parts, 4), 4, flat) : NULL;
    } else {
        y = re && im ? ir_build_concat(n->b, 2, parts, 3) : NULL;
    }
    if (y && rot != size) {
        struct ir_value *all[2] = {y, e_slice1(n, x, 3, rot, dim_sub(n->d, size, rot))};
        y = all[1] ? ir_build_concat(n->b, 2, all, 3) : NULL;
    }
    return on_out(n, 0, packed ? pack(n, y) : y);
}

/* ---- LinearAttention: a recurrence over time, unrolled ---- */

#define UNROLL_MAX 64

struct linear {
    struct ir_value *q, *k, *v, *decay, *beta, *state;
};

static struct ir_value *at_time(struct onode *n, struct ir_value *x, int64_t t)
{
    return x ? e_slice1(n, x, 2, dim_const(n->d, t), dim_const(n->d, 1)) : NULL;
}

/* One step; gives q's read of the new state: [batch, heads, 1, d_v] */
static struct ir_value *linear_step(struct onode *n, struct linear *s, int64_t t, int64_t groups)
{
    static const int64_t last_two[4] = {0, 1, 3, 2};
    struct ir_value *k = at_time(n, s->k, t), *v = at_time(n, s->v, t),
                    *column = k ? e_perm(n, k, last_two) : NULL;
    if (s->decay) {
        struct ir_value *g = e_un(n, IR_OP_EXP, at_time(n, s->decay, t));
        s->state = e_mul(n, s->state, g ? e_perm(n, g, last_two) : NULL);
    }
    if (s->beta) {
        struct ir_value *seen =
            s->state && k ? ir_build_matmul(n->b, k, s->state, false, false, DT_NONE) : NULL;
        v = e_mul(n, at_time(n, s->beta, t), e_sub(n, v, seen));
    }
    s->state = e_add(n, s->state, e_mul(n, column, v));
    struct ir_value *q = at_time(n, s->q, t), *read = repeat_heads(n, s->state, groups);
    return q && read ? ir_build_matmul(n->b, q, read, false, false, DT_NONE) : NULL;
}

bool onnx_linearattention(struct onode *n)
{
    static const char *const rules[] = {"linear", "gated", "delta", "gated_delta"};
    int rule = at_choice(n, "update_rule", 3, 4, rules);
    int64_t hq = at_int(n, "q_num_heads", 0), hkv = at_int(n, "kv_num_heads", 0);
    double scale = at_float(n, "scale", 0);
    at_ignore(n, "chunk_size"); /* a hint */
    for (int i = 0; i < 3; i++)
        if (!on_rank(n, on_in(n, i), 3, 3, "an operand")) return false;
    if (rule < 0 || hq < 1 || hkv < 1 || hq % hkv)
        return n->failed
                   ? false
                   : on_fail(n, DIAG_ONNX_ATTR, "LinearAttention: the numbers of heads do not fit");
    bool gated = rule & 1, delta = rule & 2;
    if (gated != (on_in(n, 4) != NULL) || delta != (on_in(n, 5) != NULL))
        return on_fail(n, DIAG_ONNX_INPUT,
                       "LinearAttention: decay and beta do not fit the update rule");
    struct ir_value *x = on_in(n, 0);
    enum dtype t = x->type.dtype, w = t == DT_F64 ? DT_F64 : DT_F32;
    const struct dim *steps = dim_of(x, 1);
    if (!dim_is_const(steps) || steps->value < 1 || steps->value > UNROLL_MAX)
        return on_fail(n, DIAG_ONNX_DYNAMIC,
                       "LinearAttention is supported for a fixed length of 1 to %d", UNROLL_MAX);
    struct linear s = {.q = unpack(n, e_cast(n, x, w), hq),
                       .k = unpack(n, e_cast(n, on_in(n, 1), w), hkv),
                       .v = unpack(n, e_cast(n, on_in(n, 2), w), hkv)};
    if (delta && !on_rank(n, on_in(n, 5), 3, 3, "beta")) return false;
    if (on_in(n, 3) && !on_rank(n, on_in(n, 3), 4, 4, "past_state")) return false;
    if (gated) s.decay = unpack(n, e_cast(n, on_in(n, 4), w), hkv);
    if (delta)
        s.beta = unpack(n, e_cast(n, on_in(n, 5), w), dim_is(dim_of(on_in(n, 5), 2), 1) ? 1 : hkv);
    if (!s.q || !s.k || !s.v) return false;
    const struct dim *dims[4] = {dim_of(x, 0), dim_const(n->d, hkv), dim_of(s.k, 3),
                                 dim_of(s.v, 3)};
    s.state = on_in(n, 3) ? e_cast(n, on_in(n, 3), w) : e_broadcast(n, e_scalar(n, w, 0), 4, dims);
    struct ir_value *out[UNROLL_MAX];
    for (int64_t i = 0; i < steps->value; i++)
        if (!(out[i] = linear_step(n, &s, i, hq / hkv))) return false;
    struct ir_value *y =
        steps->value == 1 ? out[0] : ir_build_concat(n->b, (int)steps->value, out, 2);
    struct ir_value *factor = e_scalar(n, w, scale != 0 ? scale : 1);
    if (scale == 0) factor = e_div(n, factor, e_un(n, IR_OP_SQRT, e_dim(n, dims[2], w)));
    y = e_cast(n, pack(n, e_mul(n, y, factor)), t);
    return on_out(n, 0, y) &&
           on_out(n, 1, e_cast(n, s.state, on_in(n, 3) ? on_in(n, 3)->type.dtype : t));
}

/* CausalConvWithState(input, weight, bias, past_state) -> output, present_state */
bool onnx_causalconv(struct onode *n)
{
    static const char *const names[] = {"none", "silu", "swish"};
    struct ir_value *x = on_in(n, 0), *w = on_in(n, 1), *past = on_in(n, 3);
    int act = at_choice(n, "activation", 0, 3, names);
    if (act < 0 || !on_rank(n, x, 3, 3, "the input") || !on_rank(n, w, 3, 3, "the weight"))
        return false;
    const struct dim *kernel = dim_of(w, 2), *channels = dim_of(x, 1);
    if (!dim_is_const(channels) || !dim_is_const(kernel))
        return on_fail(n, DIAG_ONNX_DYNAMIC,
                       "CausalConvWithState: channels and kernel have to be fixed");
    const struct dim *keep = dim_addc(n->d, kernel, -1), *state[3] = {dim_of(x, 0), channels, keep};
    struct ir_value *parts[2] = {past ? past : e_broadcast(n, e_like(n, x, 0), 3, state), x};
    struct ir_value *all = parts[0] ? ir_build_concat(n->b, 2, parts, 2) : NULL;
    struct ir_attr a = ir_a_int("groups", channels->value);
    struct ir_value *operands[3] = {all, w, on_in(n, 2)};
    struct ir_value *y =
        all ? e_op(n, IR_OP_CONV, operands[2] ? 3 : 2, operands, 1, &a, 1, 0) : NULL;
    if (act && y)
        y = e_cast(n, e_mul(n, e_wide(n, y), e_un(n, IR_OP_SIGMOID, e_wide(n, y))), x->type.dtype);
    return on_out(n, 0, y) && on_out(n, 1, e_slice1(n, all, 2, dim_of(x, 2), keep));
}

bool onnx_swiglu(struct onode *n)
{
    struct ir_value *a = e_wide(n, on_in(n, 0)), *b = e_wide(n, on_in(n, 1));
    struct ir_value *gate =
        e_mul(n, a, e_un(n, IR_OP_SIGMOID, e_mul(n, a, e_like(n, a, at_float(n, "alpha", 1)))));
    return on_out(n, 0, e_cast(n, e_mul(n, gate, b), on_in(n, 0)->type.dtype));
}
