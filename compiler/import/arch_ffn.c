// SPDX-License-Identifier: Apache-2.0
/* Feed-forward networks: plain, gated, with gate and up in one matrix, and mixtures of experts. */
#include <math.h>

#include "compiler/import/arch.h"

#define NAME(base) arch_name(a, il, base)

static struct ir_value *sub_norm(struct arch *a, int il, struct ir_value *x, int64_t n)
{
    return x && arch_has(a, NAME("ffn_sub_norm"), ".weight") ? arch_norm(a, NAME("ffn_sub_norm"), x, n) : x;
}

static struct ir_value *gated(struct arch *a, struct ir_value *gate, struct ir_value *up)
{
    gate = arch_activation(a, a->h.act, gate);
    return ir_build_binary(&a->b, IR_OP_MUL, gate, up);
}

static struct ir_value *dense(struct arch *a, int il, struct ir_value *x)
{
    int64_t n = a->h.layer[il].ff;
    const struct gguf_tensor *t = gguf_find_tensor(a->g, NAME("ffn_up.weight"));
    struct ir_value *y;
    if (arch_has(a, NAME("ffn_gate"), ".weight")) {
        struct ir_value *gate = arch_linear(a, NAME("ffn_gate"), x, n);
        y = gate ? gated(a, gate, arch_linear(a, NAME("ffn_up"), x, n)) : NULL;
    } else if (t && t->rank == 2 && n && t->dims[1] == 2 * n) {
        struct ir_value *both = arch_linear(a, NAME("ffn_up"), x, 2 * n);
        struct ir_value *gate = arch_part(a, both, 0, n);
        y = gated(a, gate, arch_part(a, both, n, n));
    } else {
        y = arch_activation(a, a->h.act, arch_linear(a, NAME("ffn_up"), x, n));
    }
    return arch_linear(a, NAME("ffn_down"), sub_norm(a, il, y, n), a->h.width);
}

/* ---- experts ---- */

static struct ir_value *op1(struct arch *a, enum ir_opcode code, int n, struct ir_value *const *operands, int n_attrs,
                            const struct ir_attr *attrs, int result)
{
    struct ir_op *op = ir_build(&a->b, code, n, operands, n_attrs, attrs, code == IR_OP_TOPK ? 2 : 1);
    return op ? ir_result(op, result) : NULL;
}

static struct ir_value *topk(struct arch *a, struct ir_value *x, int64_t k, int result)
{
    if (!x) return NULL;
    const struct dim *d = dim_const(a->m->dims, k);
    struct ir_attr attrs[2] = {ir_a_dims("k", 1, &d), ir_a_int("axis", x->type.rank - 1)};
    return op1(a, IR_OP_TOPK, 1, &x, 2, attrs, result);
}

/*
 * Scores [T, E] with those outside of the best groups at minus infinity. A group is as good as its two best experts
 * together (scores of a sigmoid) or as its best one (a softmax).
 */
static struct ir_value *best_groups(struct arch *a, struct ir_value *scores)
{
    struct ir_builder *b = &a->b;
    int64_t e = a->h.experts, g = a->h.expert_groups;
    if (!g || !scores) return scores;
    int64_t apart[2] = {g, e / g}, third[2] = {g, 1}, chosen_dims[2] = {a->h.expert_groups_used, 1}, last = 2;
    struct ir_value *by_group = arch_reshape(a, scores, 2, apart);
    struct ir_value *good = a->h.experts_sigmoid ? ir_build_reduce(b, IR_OP_REDUCE_SUM, topk(a, by_group, 2, 0), 1, &last, false)
                                                 : ir_build_reduce(b, IR_OP_REDUCE_MAX, by_group, 1, &last, false);
    struct ir_value *chosen = arch_reshape(a, topk(a, good, a->h.expert_groups_used, 1), 2, chosen_dims); /* i64 [T, used, 1] */
    const struct dim *gd = dim_const(a->m->dims, g);
    struct ir_value *is = ir_build_binary(b, IR_OP_EQ, chosen, ir_build_iota(b, DT_I64, 1, &gd, 0));      /* [T, used, G] */
    int64_t used_axis = 1;
    struct ir_value *mask = ir_build_reduce(b, IR_OP_REDUCE_MAX, ir_build_cast(b, is, DT_I32), 1, &used_axis, false);
    mask = arch_reshape(a, ir_build_cast(b, mask, DT_BOOL), 2, third);
    struct ir_value *kept = ir_build_select(b, mask, by_group, ir_build_scalar_f(b, DT_F32, (double)-INFINITY));
    return arch_reshape(a, kept, 1, &e);
}

/* i64 [T, used] in *ids, f32 [T, used] returned. */
static struct ir_value *route(struct arch *a, int il, struct ir_value *x, struct ir_value **ids)
{
    struct ir_builder *b = &a->b;
    int64_t e = a->h.experts, axis = 1;
    struct ir_value *scores = arch_linear(a, NAME("ffn_gate_inp"), x, e);
    struct ir_attr last = ir_a_int("axis", 1);
    if (!scores) return NULL;
    struct ir_value *probs = a->h.experts_sigmoid ? ir_build_unary(b, IR_OP_SIGMOID, scores) : op1(a, IR_OP_SOFTMAX, 1, &scores, 1, &last, 0);
    struct ir_value *choice = probs;
    if (arch_has(a, NAME("exp_probs_b"), ".bias"))
        choice = ir_build_binary(b, IR_OP_ADD, probs, arch_tensor(a, NAME("exp_probs_b.bias"), 1, &e, true));
    choice = best_groups(a, choice);
    *ids = topk(a, choice, a->h.experts_used, 1);
    if (!*ids) return NULL;
    struct ir_value *pick[2] = {probs, *ids};
    struct ir_value *weights = op1(a, IR_OP_GATHER_ELEMENTS, 2, pick, 1, &last, 0);
    if (a->h.experts_normed) {
        struct ir_value *sum = ir_build_reduce(b, IR_OP_REDUCE_SUM, weights, 1, &axis, true);
        if (a->h.experts_sigmoid) sum = ir_build_binary(b, IR_OP_ADD, sum, ir_build_scalar_f(b, DT_F32, 1e-20));
        weights = ir_build_binary(b, IR_OP_DIV, weights, sum);
    }
    return arch_scaled(a, weights, a->h.experts_scale);
}

/* x [T, K] or [T, A, K] by the chosen ones of w [E, n, K]. */
static struct ir_value *by_experts(struct arch *a, const char *base, struct ir_value *x, struct ir_value *ids, int64_t n)
{
    if (!x || !ids) return NULL;
    int64_t dims[3] = {a->h.experts, n, x->type.dims[x->type.rank - 1]->value};
    struct ir_value *w = arch_tensor(a, arena_printf(&a->g->arena, "%s.weight", base), 3, dims, false);
    struct ir_value *operands[3] = {x, w, ids};
    arch_at_part(a, base);
    return w ? op1(a, IR_OP_MATMUL_EXPERTS, 3, operands, 0, NULL, 0) : NULL;
}

/* Rows of a matrix or of each expert's, as the tensor itself says; 0 when there is none. */
static int64_t rows_of(struct arch *a, const char *name)
{
    const struct gguf_tensor *t = gguf_find_tensor(a->g, name);
    return t && t->rank >= 2 ? t->dims[1] : 0;
}

static struct ir_value *shared_expert(struct arch *a, int il, struct ir_value *x)
{
    int64_t n = rows_of(a, NAME("ffn_up_shexp.weight")), k = a->h.width;
    struct ir_value *gate = arch_linear(a, NAME("ffn_gate_shexp"), x, n);
    struct ir_value *y = gate ? gated(a, gate, arch_linear(a, NAME("ffn_up_shexp"), x, n)) : NULL;
    y = arch_linear(a, NAME("ffn_down_shexp"), y, k);
    if (!y || !arch_has(a, NAME("ffn_gate_inp_shexp"), ".weight")) return y;
    int64_t one_row[2] = {1, k};
    struct ir_value *w = arch_tensor(a, NAME("ffn_gate_inp_shexp.weight"), 2, one_row, true); /* the file has it as a vector */
    struct ir_value *open = ir_build_unary(&a->b, IR_OP_SIGMOID, ir_build_matmul(&a->b, x, w, false, true, DT_NONE));
    return ir_build_binary(&a->b, IR_OP_MUL, y, open);
}

static struct ir_value *experts(struct arch *a, int il, struct ir_value *x)
{
    struct ir_builder *b = &a->b;
    struct ir_value *ids = NULL, *weights = route(a, il, x, &ids), *y;
    int64_t n = rows_of(a, NAME("ffn_up_exps.weight")), each[2] = {a->h.experts_used, 1}, used_axis = 1;
    if (!weights) return NULL;
    if (arch_has(a, NAME("ffn_gate_up_exps"), ".weight")) {
        n = rows_of(a, NAME("ffn_gate_up_exps.weight")) / 2;
        y = by_experts(a, NAME("ffn_gate_up_exps"), x, ids, 2 * n);
        struct ir_value *gate = arch_part(a, y, 0, n);
        y = gated(a, gate, arch_part(a, y, n, n));
    } else {
        struct ir_value *gate = by_experts(a, NAME("ffn_gate_exps"), x, ids, n);
        y = gate ? gated(a, gate, by_experts(a, NAME("ffn_up_exps"), x, ids, n)) : NULL;
    }
    y = by_experts(a, NAME("ffn_down_exps"), y, ids, a->h.width);
    y = ir_build_binary(b, IR_OP_MUL, y, arch_reshape(a, weights, 2, each));
    y = ir_build_reduce(b, IR_OP_REDUCE_SUM, y, 1, &used_axis, false);
    if (y && rows_of(a, NAME("ffn_up_shexp.weight"))) y = ir_build_binary(b, IR_OP_ADD, y, shared_expert(a, il, x));
    return y;
}

struct ir_value *arch_ffn(struct arch *a, int il, struct ir_value *x)
{
    if (!x) return NULL;
    return a->h.experts && arch_has(a, NAME("ffn_gate_inp"), ".weight") ? experts(a, il, x) : dense(a, il, x);
}
