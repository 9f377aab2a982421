// SPDX-License-Identifier: Apache-2.0
/*
 * Rotation frequencies with every scaling folded in: position p turns pair i by p * inv_freq[i], and cos and sin are
 * multiplied by one factor. Scalings, by rope.scaling.type:
 *
 *   linear    all frequencies divided by the factor
 *   (llama3)  no type: the tensor rope_freqs.weight holds a divisor for each frequency
 *   yarn      high frequencies kept, low ones divided by the factor, a ramp between; factor of cos and sin
 *   longrope  divisors from rope_factors_long.weight when the engine's context is longer than the original one, else
 *             from rope_factors_short.weight; factor of cos and sin
 */
#include <math.h>
#include <string.h>

#include "compiler/import/arch.h"

#define TWO_PI 6.28318530717958647692

static void plain(struct arch *a, double base, struct arch_freqs *f)
{
    f->n = (int)(a->h.rot / 2);
    f->inv_freq = ARENA_ARRAY(&a->g->arena, double, f->n);
    f->scale = 1;
    for (int i = 0; i < f->n; i++) f->inv_freq[i] = pow(base, -2.0 * i / (double)a->h.rot);
}

/* Divides the frequencies by a tensor's elements; true also when the file has no such tensor. */
static bool divide_by_tensor(struct arch *a, const char *name, bool apply, struct arch_freqs *f)
{
    const struct gguf_tensor *t = gguf_find_tensor(a->g, name);
    if (!t) return true;
    map_puts(&a->used, name, a);
    if (t->enc->plain != DT_F32 || t->rank != 1 || t->dims[0] != f->n)
        return diag_report(a->diag, DIAG_GGUF_TENSOR, a->loc, "tensor `%s` does not hold one f32 for each of %d frequencies", name, f->n);
    for (int i = 0; i < f->n && apply; i++) {
        float v;
        encoding_unpack(t->enc, (const char *)t->data + 4 * i, 1, &v);
        if (!(v > 0) || !isfinite(v))
            return diag_report(a->diag, DIAG_GGUF_TENSOR, a->loc, "tensor `%s` has an element that is not positive", name);
        f->inv_freq[i] /= (double)v;
    }
    return true;
}

/* The pair that turns `turns` times within the original context. */
static double pair_of(double turns, double ctx, double base, double rot)
{
    return rot * log(ctx / (turns * TWO_PI)) / (2 * log(base));
}

static bool yarn(struct arch *a, double base, double factor, double ctx, struct arch_freqs *f)
{
    double fast, slow, ext, attn, log_mul;
    if (!arch_real(a, "rope.scaling.yarn_beta_fast", 32, &fast) || !arch_real(a, "rope.scaling.yarn_beta_slow", 1, &slow) ||
        !arch_real(a, "rope.scaling.yarn_ext_factor", 1, &ext) || !arch_real(a, "rope.scaling.attn_factor", 1, &attn) ||
        !arch_real(a, "rope.scaling.yarn_log_multiplier", 0, &log_mul))
        return false;
    if (fast <= 0 || slow <= 0 || base <= 1 || ctx < 1)
        return diag_report(a->diag, DIAG_GGUF_METADATA, a->loc, "the yarn scaling's parameters are not positive");
    double low = floor(pair_of(fast, ctx, base, (double)a->h.rot)), high = ceil(pair_of(slow, ctx, base, (double)a->h.rot));
    low = low < 0 ? 0 : low;
    high = high > (double)a->h.rot - 1 ? (double)a->h.rot - 1 : high;
    for (int i = 0; i < f->n; i++) {
        double y = (i - low) / (high - low > 0.001 ? high - low : 0.001), keep = ext * (1 - (y < 0 ? 0 : y > 1 ? 1 : y));
        f->inv_freq[i] *= keep + (1 - keep) / factor;
    }
    double grow = factor > 1 ? log(factor) : 0;
    f->scale = attn;
    if (a->row->flags & ARCH_LATENT) { /* there the factor goes into the scores, squared, times its own multiplier */
        double m = attn * (1 + log_mul * grow);
        a->h.attn_scale *= m * m;
    } else if (ext != 0) {
        f->scale *= 1 + 0.1 * grow;
    }
    return true;
}

static bool longrope(struct arch *a, double ctx, struct arch_freqs *f)
{
    bool is_long = (double)a->h.ctx > ctx;
    double dflt = 1, ratio = (double)a->h.ctx_train / ctx;
    if (ratio > 1 && ctx > 1) dflt = sqrt(1 + log(ratio) / log(ctx));
    return divide_by_tensor(a, "rope_factors_long.weight", is_long, f) && divide_by_tensor(a, "rope_factors_short.weight", !is_long, f) &&
           arch_real(a, "rope.scaling.attn_factor", dflt, &f->scale);
}

static bool scaled(struct arch *a, double base, struct arch_freqs *f)
{
    struct gguf_string type = {"", 0};
    double factor, ctx;
    plain(a, base, f);
    const struct gguf_value *v = arch_key(a, "rope.scaling.type");
    if (v && !gguf_get_string(v, &type))
        return diag_report(a->diag, DIAG_GGUF_METADATA, a->loc, "%s.rope.scaling.type is no string", a->row->name);
    if (!arch_real(a, "rope.scaling.factor", 0, &factor) || (factor == 0 && !arch_real(a, "rope.scale_linear", 1, &factor)) ||
        !arch_real(a, "rope.scaling.original_context_length", (double)a->h.ctx_train, &ctx) ||
        !divide_by_tensor(a, "rope_freqs.weight", true, f))
        return false;
    if (factor <= 0) return diag_report(a->diag, DIAG_GGUF_METADATA, a->loc, "%s.rope.scaling.factor is not positive", a->row->name);
    bool any_long = gguf_find_tensor(a->g, "rope_factors_long.weight") != NULL;
#define IS(s) (type.len == sizeof(s) - 1 && !memcmp(type.data, s, sizeof(s) - 1))
    if (IS("yarn")) return yarn(a, base, factor, ctx, f);
    if (IS("longrope") || any_long) return longrope(a, ctx, f);
    if (IS("none") || IS("llama3") || (type.len == 0 && !arch_key(a, "rope.scale_linear"))) return true;
    if (!IS("linear") && type.len != 0)
        return diag_report(a->diag, DIAG_GGUF_FEATURE, a->loc, "rope scaling `%.*s` is not supported", type.len > 40 ? 40 : (int)type.len,
                           type.data);
#undef IS
    for (int i = 0; i < f->n; i++) f->inv_freq[i] /= factor;
    return true;
}

bool arch_make_freqs(struct arch *a)
{
    double base, local_base;
    if (a->row->rope == ARCH_ROPE_NONE) return true;
    if (!arch_real(a, "rope.freq_base", 10000, &base) || !arch_real(a, "rope.freq_base_swa", a->row->flags & ARCH_LOCAL_10K ? 10000 : base, &local_base))
        return false;
    if (base <= 0 || local_base <= 0) return diag_report(a->diag, DIAG_GGUF_METADATA, a->loc, "%s.rope.freq_base is not positive", a->row->name);
    if (!scaled(a, base, &a->freqs)) return false;
    if (a->row->flags & ARCH_LOCAL_ROPE) plain(a, local_base, &a->local_freqs);
    return true;
}
