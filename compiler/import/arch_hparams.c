// SPDX-License-Identifier: Apache-2.0
/* Hyper-parameters from a file's metadata, every one within bounds. */
#include <math.h>
#include <string.h>

#include "compiler/import/arch.h"

#define MAX_WIDTH (INT64_C(1) << 20)
#define MAX_COUNT (INT64_C(1) << 31)

static const struct arch_row table[] = {
#define ARCH(ID, name, norm, rope, act, period, local, flags, doc)                                                             \
    {name, ARCH_NORM_##norm, ARCH_ROPE_##rope, ARCH_ACT_##act, period, local, flags, doc},
#include "compiler/import/arch.def"
#undef ARCH
};

const struct arch_row *arch_at(size_t i) { return i < ARRAY_LEN(table) ? &table[i] : NULL; }

const struct arch_row *arch_find(const char *name, size_t len)
{
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (strlen(table[i].name) == len && !memcmp(table[i].name, name, len)) return &table[i];
    return NULL;
}

/* ---- keys ---- */

static const char *full_name(struct arch *a, const char *key) { return arena_printf(&a->g->arena, "%s.%s", a->row->name, key); }

const struct gguf_value *arch_key(struct arch *a, const char *key) { return gguf_find(a->g, full_name(a, key)); }

static bool bad_key(struct arch *a, const char *key, const char *what)
{
    return diag_report(a->diag, DIAG_GGUF_METADATA, a->loc, "%s.%s %s", a->row->name, key, what);
}

static bool bad_int(struct arch *a, const char *key, int64_t lo, int64_t hi)
{
    return bad_key(a, key, arena_printf(&a->g->arena, "must be an integer from %lld to %lld", (long long)lo, (long long)hi));
}

bool arch_int(struct arch *a, const char *key, int64_t lo, int64_t hi, int64_t dflt, int64_t *out)
{
    const struct gguf_value *v = arch_key(a, key);
    *out = dflt;
    return !v || (gguf_get_int(v, out) && *out >= lo && *out <= hi) || bad_int(a, key, lo, hi);
}

static bool need_int(struct arch *a, const char *key, int64_t lo, int64_t hi, int64_t *out)
{
    return arch_key(a, key) ? arch_int(a, key, lo, hi, 0, out) : bad_key(a, key, "is missing");
}

bool arch_real(struct arch *a, const char *key, double dflt, double *out)
{
    const struct gguf_value *v = arch_key(a, key);
    *out = dflt;
    return !v || (gguf_get_float(v, out) && isfinite(*out)) || bad_key(a, key, "must be a finite number");
}

static bool read_flag(struct arch *a, const char *key, bool dflt, bool *out)
{
    int64_t v;
    bool ok = arch_int(a, key, 0, 1, dflt, &v);
    *out = v != 0;
    return ok;
}

/* One integer, or an array of one for each layer. */
static bool int_of_layer(struct arch *a, const char *key, int il, int64_t lo, int64_t hi, int64_t dflt, int64_t *out)
{
    const struct gguf_value *v = arch_key(a, key);
    if (!v || v->kind != GGUF_ARRAY) return arch_int(a, key, lo, hi, dflt, out);
    if (v->count != (uint64_t)a->h.layers) return bad_key(a, key, "does not have one entry for each layer");
    return (gguf_array_int(v, (uint64_t)il, out) && *out >= lo && *out <= hi) || bad_int(a, key, lo, hi);
}

/* ---- groups of keys ---- */

static bool read_sizes(struct arch *a)
{
    struct arch_hparams *h = &a->h;
    const struct gguf_tensor *e = gguf_find_tensor(a->g, "token_embd.weight");
    if (!need_int(a, "block_count", 1, ARCH_MAX_LAYERS, &h->layers) || !need_int(a, "embedding_length", 1, MAX_WIDTH, &h->width) ||
        !arch_int(a, "context_length", 1, MAX_COUNT, 0, &h->ctx_train))
        return false;
    if (!e || e->rank != 2 || e->dims[1] > MAX_COUNT)
        return diag_report(a->diag, DIAG_GGUF_TENSOR, a->loc, "tensor `token_embd.weight` is missing or no matrix");
    h->vocab = e->dims[1];
    for (int il = 0; il < h->layers; il++) {
        struct arch_layer *l = &h->layer[il];
        if (!int_of_layer(a, "attention.head_count", il, 1, MAX_WIDTH, 0, &l->heads) ||
            !int_of_layer(a, "attention.head_count_kv", il, 1, MAX_WIDTH, l->heads, &l->kv_heads) ||
            !int_of_layer(a, "feed_forward_length", il, 0, MAX_WIDTH, 0, &l->ff))
            return false;
        if (l->heads == 0) return bad_key(a, "attention.head_count", "is missing");
        if (l->heads % l->kv_heads) return bad_key(a, "attention.head_count", "is not a multiple of head_count_kv");
    }
    int64_t head = h->width / h->layer[0].heads;
    return arch_int(a, "attention.key_length", 1, MAX_WIDTH, head, &h->head_k) &&
           arch_int(a, "attention.value_length", 1, MAX_WIDTH, head, &h->head_v) &&
           (!arch_key(a, "attention.key_length_mla") || arch_int(a, "attention.key_length_mla", 1, MAX_WIDTH, 0, &h->head_k)) &&
           (!arch_key(a, "attention.value_length_mla") || arch_int(a, "attention.value_length_mla", 1, MAX_WIDTH, 0, &h->head_v)) &&
           ((h->head_k > 0 && h->head_v > 0) || bad_key(a, "attention.head_count", "is greater than the width")) &&
           arch_int(a, "rope.dimension_count", 1, MAX_WIDTH, h->head_k, &h->rot) &&
           (a->row->rope == ARCH_ROPE_NONE || (h->rot <= h->head_k && h->rot % 2 == 0) ||
            bad_key(a, "rope.dimension_count", "must be even and at most the size of a head"));
}

static bool read_scales(struct arch *a)
{
    struct arch_hparams *h = &a->h;
    const char *eps = a->row->norm == ARCH_NORM_RMS ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon";
    double logit_scale;
    bool rope_on;
    if (!arch_key(a, eps)) return bad_key(a, eps, "is missing");
    if (!arch_real(a, eps, 0, &h->eps) || !arch_real(a, "attention.scale", 0, &h->attn_scale) ||
        !arch_real(a, "attn_logit_softcapping", 0, &h->attn_softcap) || !arch_real(a, "final_logit_softcapping", 0, &h->logit_softcap) ||
        !arch_real(a, "embedding_scale", 1, &h->embed_scale) || !arch_real(a, "residual_scale", 1, &h->residual_scale) ||
        !arch_real(a, "logit_scale", 1, &logit_scale) || !read_flag(a, "use_parallel_residual", false, &h->parallel) ||
        !read_flag(a, "attention.causal", !(a->row->flags & ARCH_ENCODER), &h->causal) ||
        !read_flag(a, "rope.scaling.finetuned", true, &rope_on))
        return false;
    if (h->eps < 0) return bad_key(a, eps, "is negative");
    if (h->attn_softcap < 0 || h->logit_softcap < 0) return bad_key(a, "final_logit_softcapping", "is negative");
    if (logit_scale == 0) return bad_key(a, "logit_scale", "is zero");
    h->logit_div = logit_scale;
    if (a->row->flags & ARCH_EMBED_SQRT) h->embed_scale = sqrt((double)h->width);
    /* The biggest Gemmas divide by the width a head would have; no key says so. */
    bool big = (!strcmp(a->row->name, "gemma2") && h->layers == 46) || (!strcmp(a->row->name, "gemma3") && h->layers == 62);
    if (h->attn_scale == 0) h->attn_scale = 1 / sqrt(big ? (double)(h->width / h->layer[0].heads) : (double)h->head_k);
    for (int il = 0; il < h->layers; il++)
        h->layer[il].rope = a->row->rope != ARCH_ROPE_NONE && !(a->row->flags & ARCH_ROPE_SKIPS_4TH && il % 4 == 3) &&
                            !(!strcmp(a->row->name, "granite") && !rope_on);
    return true;
}

static bool read_windows(struct arch *a)
{
    int64_t window, period = a->row->period, local = a->row->local;
    const char *key = "attention.sliding_window_pattern";
    const struct gguf_value *pattern = arch_key(a, key);
    if (!arch_int(a, "attention.sliding_window", 0, MAX_COUNT, 0, &window)) return false;
    if (window >= MAX_COUNT || period == 0) window = 0;
    if (pattern && pattern->kind != GGUF_ARRAY) {
        if (!arch_int(a, key, 1, ARCH_MAX_LAYERS, 1, &period)) return false;
        local = period - 1;
    }
    for (int il = 0; il < a->h.layers && window; il++) {
        int64_t is_local = period && il % period < local;
        if (pattern && pattern->kind == GGUF_ARRAY &&
            (pattern->count != (uint64_t)a->h.layers || !gguf_array_int(pattern, (uint64_t)il, &is_local)))
            return bad_key(a, key, "does not have one entry for each layer");
        a->h.layer[il].window = is_local ? window : 0;
        a->h.layer[il].local = is_local != 0;
    }
    return true;
}

static bool read_experts(struct arch *a)
{
    struct arch_hparams *h = &a->h;
    int64_t gating;
    if (!arch_int(a, "expert_count", 0, 65536, 0, &h->experts) || !arch_int(a, "expert_used_count", 0, 65536, 0, &h->experts_used) ||
        !arch_int(a, "expert_group_count", 0, 65536, 0, &h->expert_groups) ||
        !arch_int(a, "expert_group_used_count", 0, 65536, 0, &h->expert_groups_used) ||
        !arch_int(a, "leading_dense_block_count", 0, ARCH_MAX_LAYERS, 0, &h->dense_layers) ||
        !read_flag(a, "expert_weights_norm", (a->row->flags & ARCH_EXPERTS_NORMED) != 0, &h->experts_normed) ||
        !arch_real(a, "expert_weights_scale", 1, &h->experts_scale) || !arch_int(a, "expert_gating_func", 0, 3, 0, &gating))
        return false;
    if (h->experts_scale == 0) h->experts_scale = 1;
    if (gating == 3) return diag_report(a->diag, DIAG_GGUF_FEATURE, a->loc, "%s.expert_gating_func 3 is not supported", a->row->name);
    h->experts_sigmoid = gating == 2;
    if (h->experts && (h->experts_used < 1 || h->experts_used > h->experts)) return bad_int(a, "expert_used_count", 1, h->experts);
    if (h->expert_groups <= 1) h->expert_groups = h->expert_groups_used = 0;
    if (h->expert_groups && (h->experts % h->expert_groups || h->expert_groups_used < 1 || h->expert_groups_used > h->expert_groups ||
                             h->experts / h->expert_groups < 2))
        return bad_key(a, "expert_group_count", "does not divide the experts");
    return true;
}

static bool read_other(struct arch *a)
{
    struct arch_hparams *h = &a->h;
    struct gguf_string act;
    int64_t pooling;
    h->act = a->row->act;
    if (gguf_get_string(arch_key(a, "hidden_act"), &act)) {
        if (act.len == 5 && !memcmp(act.data, "relu2", 5)) h->act = ARCH_ACT_RELU2;
        else if (act.len != 4 || memcmp(act.data, "silu", 4))
            return diag_report(a->diag, DIAG_GGUF_FEATURE, a->loc, "activation `%.*s` is not supported", act.len > 40 ? 40 : (int)act.len, act.data);
    }
    if (!arch_int(a, "pooling_type", 0, INFR_POOLING_COUNT - 1, INFR_POOLING_NONE, &pooling) ||
        !arch_int(a, "attention.kv_lora_rank", 1, MAX_WIDTH, 0, &h->kv_rank))
        return false;
    h->pooling = (enum infr_text_pooling)pooling;
    if ((a->row->flags & ARCH_LATENT) && (h->kv_rank == 0 || h->rot >= h->head_k))
        return bad_key(a, "attention.kv_lora_rank", "and the other sizes of latent attention are missing or do not fit");
    return true;
}

bool arch_read_hparams(struct arch *a, int64_t ctx)
{
    if (!read_sizes(a) || !read_scales(a) || !read_windows(a) || !read_experts(a) || !read_other(a)) return false;
    a->h.ctx = ctx ? ctx : a->h.ctx_train;
    return true;
}
