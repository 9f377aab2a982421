// SPDX-License-Identifier: Apache-2.0
/* Attention of heads that have keys and values of their own (or share them in groups). */
#include "compiler/import/arch.h"

struct ir_value *arch_attend(struct arch *a, int il, struct ir_value *q, struct ir_value *k, struct ir_value *v, double scale)
{
    const struct arch_layer *l = &a->h.layer[il];
    struct arch_cache *kc = &a->k_cache[il], *vc = a->v_cache[il].rows ? &a->v_cache[il] : kc;
    if (!q || !k || (!v && vc != kc)) return NULL;
    arch_at_part(a, arch_name(a, il, "attention"));
    if (!arch_cache_write(a, kc, k) || (vc != kc && !arch_cache_write(a, vc, v))) return NULL;
    struct ir_value *operands[8] = {q, kc->rows, vc->rows, a->last, a->seq_of, a->page_table, kc->scale, vc->scale};
    struct ir_attr attrs[4] = {ir_a_float("scale", scale)};
    int n = 1;
    if (l->window) attrs[n++] = ir_a_int("window", l->window);
    if (a->h.attn_softcap > 0) attrs[n++] = ir_a_float("softcap", a->h.attn_softcap);
    if (vc == kc) attrs[n++] = ir_a_int("v_dim", a->h.kv_rank);
    struct ir_op *op = ir_build(&a->b, IR_OP_PAGED_ATTENTION, kc->scale ? 8 : 6, operands, n, attrs, 1);
    return op ? ir_result(op, 0) : NULL;
}

/* The norm of q or k, if the layer has one: over each head, or over the whole row, as its weight says. */
static struct ir_value *head_norm(struct arch *a, const char *base, struct ir_value *x, int64_t heads, int64_t width)
{
    const struct gguf_tensor *t = gguf_find_tensor(a->g, arena_printf(&a->g->arena, "%s.weight", base));
    int64_t row = heads * width, apart[2] = {heads, width};
    if (!t || !x) return x;
    if (t->dims[0] == width) return arch_norm(a, base, x, width);
    return arch_reshape(a, arch_norm(a, base, arch_reshape(a, x, 1, &row), row), 2, apart);
}

struct ir_value *arch_attention(struct arch *a, int il, struct ir_value *x)
{
    const struct arch_hparams *h = &a->h;
    const struct arch_layer *l = &h->layer[il];
    int64_t qn = l->heads * h->head_k, kn = l->kv_heads * h->head_k, vn = l->kv_heads * h->head_v;
    int64_t q_dims[2] = {l->heads, h->head_k}, k_dims[2] = {l->kv_heads, h->head_k}, v_dims[2] = {l->kv_heads, h->head_v};
    struct ir_value *q, *k, *v;
    if (arch_has(a, arch_name(a, il, "attn_qkv"), ".weight")) {
        struct ir_value *all = arch_linear(a, arch_name(a, il, "attn_qkv"), x, qn + kn + vn);
        q = arch_part(a, all, 0, qn);
        k = arch_part(a, all, qn, kn);
        v = arch_part(a, all, qn + kn, vn);
    } else {
        q = arch_linear(a, arch_name(a, il, "attn_q"), x, qn);
        k = q ? arch_linear(a, arch_name(a, il, "attn_k"), x, kn) : NULL;
        v = k ? arch_linear(a, arch_name(a, il, "attn_v"), x, vn) : NULL;
    }
    arch_at_part(a, arch_name(a, il, "attention"));
    q = head_norm(a, arch_name(a, il, "attn_q_norm"), arch_reshape(a, q, 2, q_dims), l->heads, h->head_k);
    k = head_norm(a, arch_name(a, il, "attn_k_norm"), arch_reshape(a, k, 2, k_dims), l->kv_heads, h->head_k);
    arch_at_part(a, arch_name(a, il, "rope"));
    q = arch_rotate(a, q, l);
    k = arch_rotate(a, k, l);
    v = arch_reshape(a, v, 2, v_dims);
    int64_t out = l->heads * h->head_v;
    return arch_reshape(a, arch_attend(a, il, q, k, v, h->attn_scale), 1, &out);
}
