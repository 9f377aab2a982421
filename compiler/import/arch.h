// SPDX-License-Identifier: Apache-2.0
/*
 * Architectures of GGUF language models as data, their hyper-parameters as read from a file, and the builder that makes
 * tensor IR of both. arch.def is the table; arch_hparams.c reads; arch_rope.c makes the frequencies; arch_build.c has
 * what layers are made of, arch_attention.c, arch_latent.c, arch_ffn.c and arch_graph.c the layers.
 *
 * The module that results is described in docs/gguf.md: entry @main takes a ragged batch and paged caches.
 */
#ifndef INFC_COMPILER_IMPORT_ARCH_H
#define INFC_COMPILER_IMPORT_ARCH_H

#include "compiler/import/gguf.h"
#include "compiler/import/import.h"
#include "ir/build.h"
#include "runtime/abi/text_format.h"

enum arch_norm { ARCH_NORM_RMS, ARCH_NORM_LAYER };
enum arch_rope { ARCH_ROPE_NONE, ARCH_ROPE_PAIRS, ARCH_ROPE_HALVES };
enum arch_act { ARCH_ACT_SILU, ARCH_ACT_GELU, ARCH_ACT_GELU_TANH, ARCH_ACT_RELU2 };

#define ARCH_EMBED_SQRT 0x01u      /* embeddings times sqrt(width) */
#define ARCH_POSITIONS 0x02u       /* a learned embedding of the position is added */
#define ARCH_NO_PRE_NORM 0x04u     /* attention and feed-forward network take the residual stream as it is */
#define ARCH_ENCODER 0x08u         /* sees both sides, norms behind the residual sums, gives embeddings */
#define ARCH_EXPERTS_NORMED 0x10u  /* the chosen experts' weights are made to sum to 1, unless the file says otherwise */
#define ARCH_LATENT 0x20u          /* multi-head latent attention */
#define ARCH_LOCAL_ROPE 0x40u      /* sliding layers: rope.freq_base_swa (default as others) and no scaling */
#define ARCH_ROPE_SKIPS_4TH 0x80u  /* layers 3, 7, 11 ... are not rotated */

#define ARCH_LOCAL_10K 0x100u      /* with ARCH_LOCAL_ROPE: the default is 10000 */

#define ARCH_MAX_LAYERS 1024
#define ARCH_PAGE 32 /* positions a page of the caches */

struct arch_row {
    const char *name;
    enum arch_norm norm;
    enum arch_rope rope;
    enum arch_act act;
    int period, local;
    unsigned flags;
    const char *doc;
};

/* NULL when unknown, or past the end. */
const struct arch_row *arch_find(const char *name, size_t len);
const struct arch_row *arch_at(size_t i);

/* How far the angles turn a position, and what cos and sin are multiplied by. */
struct arch_freqs {
    int n; /* pairs; 0: no rope */
    double *inv_freq;
    double scale;
};

struct arch_layer {
    int64_t heads, kv_heads, ff;
    int64_t window; /* 0: none */
    bool local;     /* takes the frequencies of sliding layers */
    bool rope;
};

struct arch_hparams {
    int64_t layers, width, vocab, ctx_train, ctx;
    int64_t head_k, head_v, rot; /* rot: rotated elements of a head */
    double eps, attn_scale, attn_softcap, logit_softcap;
    double embed_scale, residual_scale, logit_div; /* 1: none */
    bool parallel, causal;
    enum arch_act act;
    enum infr_text_pooling pooling;
    bool odds; /* of pooling rank: scores are log odds */
    int64_t experts, experts_used, expert_groups, expert_groups_used, dense_layers;
    bool experts_normed, experts_sigmoid;
    double experts_scale;
    int64_t kv_rank; /* of the latent */
    struct arch_layer layer[ARCH_MAX_LAYERS];
};

/* A state and, where it stores blocks of integers, their scales. */
struct arch_cache {
    struct ir_value *rows, *scale; /* scale NULL: floats */
    int64_t width;                 /* elements of a head */
};

/* Everything that one import passes around. */
struct arch {
    const struct arch_row *row;
    struct gguf *g;
    struct diag_sink *diag;
    const char *loc;           /* the file's name */
    struct arch_hparams h;
    struct arch_freqs freqs, local_freqs;
    struct map used;           /* tensors that were asked for, by name, to struct ir_value or a note */
    struct ir_module *m;
    struct ir_func *f;
    struct ir_builder b;
    enum dtype kv_dtype;       /* of the caches; I8 and I4: blocks with a scale (arch_cache.c) */
    const struct dim *t, *r;   /* rows of the batch, rows whose results are wanted */
    struct ir_value *tokens, *positions, *seq_of, *slots, *page_table, *logit_rows;
    struct ir_value *last;     /* the last position that a row sees: positions, or of its sequence in an encoder */
    struct ir_value *cos, *sin, *local_cos, *local_sin; /* f32, see arch_rotate */
    int n_probes, n_sums, last_sum; /* arch_probe */
    struct arch_cache *k_cache, *v_cache; /* a layer; v_cache[il].rows NULL where V is part of the K cache */
};

/* arch_hparams.c. Keys are given without the architecture's name in front: "attention.head_count". */
bool arch_read_hparams(struct arch *a, int64_t ctx);
const struct gguf_value *arch_key(struct arch *a, const char *key);
/* dflt when the key is absent; false after a diagnostic when its value is unfit. */
bool arch_int(struct arch *a, const char *key, int64_t lo, int64_t hi, int64_t dflt, int64_t *out);
bool arch_real(struct arch *a, const char *key, double dflt, double *out);

/* arch_rope.c */
bool arch_make_freqs(struct arch *a);

/*
 * arch_build.c: NULL in, NULL out; NULL after a diagnostic. Tensors are named by arch_name(a, il, "attn_q"), which gives
 * "blk.IL.attn_q" (il < 0: the name alone); ".weight", ".bias" and ".scale" are added by those that take a base.
 */
const char *arch_name(struct arch *a, int il, const char *base);
/* Ops that follow belong to that part of the file. */
void arch_at_part(struct arch *a, const char *name);
bool arch_has(struct arch *a, const char *base, const char *ending);
/* The constant of a tensor with exactly these dims (outermost first). As f32: unpacked if it is encoded. */
struct ir_value *arch_tensor(struct arch *a, const char *name, int rank, const int64_t *dims, bool as_f32);
/* x times the matrix [n, k] at base, times its scale, plus its bias, where the file has them. k is x's width. */
struct ir_value *arch_linear(struct arch *a, const char *base, struct ir_value *x, int64_t n);
/* The row's norm over the last axis of x (n elements), with its weight and bias. */
struct ir_value *arch_norm(struct arch *a, const char *base, struct ir_value *x, int64_t n);
struct ir_value *arch_scaled(struct arch *a, struct ir_value *x, double by); /* x itself when by is 1 */
struct ir_value *arch_activation(struct arch *a, enum arch_act act, struct ir_value *x);
/* softcap * tanh(x / softcap); x itself when it is 0 */
struct ir_value *arch_softcap(struct arch *a, struct ir_value *x, double softcap);
/* rank dims, the first of which is x's own first dim. */
struct ir_value *arch_reshape(struct arch *a, struct ir_value *x, int n, const int64_t *inner);
/* Elements [from, from + n) of the last axis. */
struct ir_value *arch_part(struct arch *a, struct ir_value *x, int64_t from, int64_t n);
/* Rotates the first h.rot elements of each head of x [T, H, D]. */
struct ir_value *arch_rotate(struct arch *a, struct ir_value *x, const struct arch_layer *l);
struct ir_value *arch_rows_wanted(struct arch *a, struct ir_value *x);
/*
 * x, with a place where a selftest compares and puts in values of its own: before each half of a layer, behind the last, and before
 * rows go into a cache. sum: the residual stream, a sum with what its last probe saw.
 */
struct ir_value *arch_probe(struct arch *a, struct ir_value *x, bool sum);

/* Layers. x is [T, width]; the attention's result is before the output matrix. */
bool arch_add_caches(struct arch *a);
struct ir_value *arch_attention(struct arch *a, int il, struct ir_value *x);
struct ir_value *arch_latent(struct arch *a, int il, struct ir_value *x);
struct ir_value *arch_ffn(struct arch *a, int il, struct ir_value *x);
/* arch_cache.c: rows [T, H, D] stored at their slots; the states afterwards take the cache's place. */
bool arch_cache_write(struct arch *a, struct arch_cache *cache, struct ir_value *rows);
/* Stores k and v and attends. */
struct ir_value *arch_attend(struct arch *a, int il, struct ir_value *q, struct ir_value *k, struct ir_value *v, double scale);

/* Rows are pooled to a vector or a score; there are no logits. */
static inline bool arch_is_pooled(const struct arch *a)
{
    return a->row->flags & ARCH_ENCODER || a->h.pooling != INFR_POOLING_NONE;
}

/* Builds @main; false after diagnostics. */
bool arch_build(struct arch *a);
/* gguf_text.c: the module's text section, when the file has a tokenizer. */
bool arch_add_text(struct arch *a);

#endif
