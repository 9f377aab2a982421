// SPDX-License-Identifier: Apache-2.0
/*
 * Multi-head latent attention. Keys and values of all heads come from one latent of kv_rank elements a token, which is
 * normed, and a rotated part that the heads share. Two forms, by the tensors of the file:
 *
 *   attn_kv_b             latent to keys and values of each head, cached as such
 *   attn_k_b, attn_v_b    only latent and rotated part are cached: q goes through attn_k_b into the latent's space, the
 *                         result through attn_v_b out of it
 */
#include "compiler/import/arch.h"

/* x [T, H, k] times one matrix a head, w [H, n, k]: [T, H, n]. */
static struct ir_value *per_head(struct arch *a, const char *name, struct ir_value *x, int64_t n)
{
    static const int64_t swap[3] = {1, 0, 2};
    if (!x) return NULL;
    int64_t dims[3] = {x->type.dims[1]->value, n, x->type.dims[2]->value};
    struct ir_value *w = arch_tensor(a, name, 3, dims, false);
    if (!w) return NULL;
    return ir_build_transpose(&a->b, ir_build_matmul(&a->b, ir_build_transpose(&a->b, x, swap), w, false, true, DT_NONE), swap);
}

static struct ir_value *queries(struct arch *a, int il, struct ir_value *x)
{
    const struct arch_layer *l = &a->h.layer[il];
    int64_t n = l->heads * a->h.head_k, dims[2] = {l->heads, a->h.head_k}, rank;
    if (arch_has(a, arch_name(a, il, "attn_q_a"), ".weight")) {
        if (!arch_int(a, "attention.q_lora_rank", 1, INT64_C(1) << 20, 0, &rank)) return NULL;
        x = arch_norm(a, arch_name(a, il, "attn_q_a_norm"), arch_linear(a, arch_name(a, il, "attn_q_a"), x, rank), rank);
        x = arch_linear(a, arch_name(a, il, "attn_q_b"), x, n);
    } else {
        x = arch_linear(a, arch_name(a, il, "attn_q"), x, n);
    }
    return arch_reshape(a, x, 2, dims);
}

static struct ir_value *join(struct arch *a, struct ir_value *x, struct ir_value *y)
{
    struct ir_value *both[2] = {x, y};
    return x && y ? ir_build_concat(&a->b, 2, both, 2) : NULL;
}

/* [T, 1, D] for each of n heads. */
static struct ir_value *for_heads(struct arch *a, struct ir_value *x, int64_t n)
{
    if (!x) return NULL;
    const struct dim *dims[3] = {x->type.dims[0], dim_const(a->m->dims, n), x->type.dims[2]};
    return ir_build_broadcast(&a->b, x, 3, dims);
}

struct ir_value *arch_latent(struct arch *a, int il, struct ir_value *x)
{
    const struct arch_hparams *h = &a->h;
    const struct arch_layer *l = &h->layer[il];
    int64_t nope = h->head_k - h->rot, shared[2] = {1, h->rot}, latent[2] = {1, h->kv_rank}, out = l->heads * h->head_v;
    struct ir_value *q = queries(a, il, x);
    struct ir_value *kv = q ? arch_linear(a, arch_name(a, il, "attn_kv_a_mqa"), x, h->kv_rank + h->rot) : NULL;
    struct ir_value *c = arch_norm(a, arch_name(a, il, "attn_kv_a_norm"), arch_part(a, kv, 0, h->kv_rank), h->kv_rank);
    struct ir_value *k_rot = arch_rotate(a, arch_reshape(a, arch_part(a, kv, h->kv_rank, h->rot), 2, shared), l);
    struct ir_value *q_rot = arch_rotate(a, arch_part(a, q, nope, h->rot), l);
    q = arch_part(a, q, 0, nope);
    if (!a->v_cache[il].rows) {
        arch_at_part(a, arch_name(a, il, "attn_k_b"));
        q = join(a, per_head(a, arch_name(a, il, "attn_k_b.weight"), q, h->kv_rank), q_rot);
        struct ir_value *k = join(a, arch_reshape(a, c, 2, latent), k_rot);
        struct ir_value *y = arch_attend(a, il, q, k, NULL, h->attn_scale);
        arch_at_part(a, arch_name(a, il, "attn_v_b"));
        return arch_reshape(a, per_head(a, arch_name(a, il, "attn_v_b.weight"), y, h->head_v), 1, &out);
    }
    int64_t dims[2] = {l->heads, nope + h->head_v};
    struct ir_value *b = arch_reshape(a, arch_linear(a, arch_name(a, il, "attn_kv_b"), c, l->heads * dims[1]), 2, dims);
    struct ir_value *k = arch_part(a, b, 0, nope);
    k = join(a, k, for_heads(a, k_rot, l->heads));
    struct ir_value *v = arch_part(a, b, nope, h->head_v);
    q = join(a, q, q_rot);
    return arch_reshape(a, arch_attend(a, il, q, k, v, h->attn_scale), 1, &out);
}
