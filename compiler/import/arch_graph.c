// SPDX-License-Identifier: Apache-2.0
/* The whole graph: inputs, embedding, layers, head. */
#include <string.h>

#include "compiler/import/arch.h"

#define NAME(base) arch_name(a, il, base)

/* ---- inputs ---- */

static struct ir_value *input(struct arch *a, const char *name, enum dtype dtype, int rank, const struct dim *d0, const struct dim *d1)
{
    const struct dim *dims[2] = {d0, d1};
    return ir_func_add_input(a->f, name, ir_type_make(a->m, dtype, rank, dims));
}

static bool add_inputs(struct arch *a)
{
    struct dim_ctx *c = a->m->dims;
    a->t = dim_sym(c, "T", 1, 65536);
    const struct dim *s = dim_sym(c, "S", 1, 65536), *mp = dim_sym(c, "MP", 1, INT64_C(1) << 22);
    dim_sym(c, "NP", 1, INT64_C(1) << 24);
    a->r = dim_sym(c, "R", 0, 65536);
    a->tokens = input(a, "tokens", DT_I32, 1, a->t, NULL);
    a->positions = input(a, "positions", DT_I32, 1, a->t, NULL);
    a->seq_of = input(a, "seq_of", DT_I32, 1, a->t, NULL);
    a->slots = input(a, "slots", DT_I64, 1, a->t, NULL);
    a->page_table = input(a, "page_table", DT_I32, 2, s, mp);
    a->logit_rows = input(a, "logit_rows", DT_I32, 1, a->r, NULL);
    return arch_add_caches(a);
}

/* [1, T] or [T, 1] of a vector of the batch. */
static struct ir_value *vector_as(struct arch *a, struct ir_value *x, bool column)
{
    const struct dim *one = dim_const(a->m->dims, 1), *dims[2] = {column ? a->t : one, column ? one : a->t};
    return ir_build_reshape(&a->b, x, 2, dims);
}

/* An encoder's rows see up to the greatest position of their sequence in the batch, which holds all of it. */
static struct ir_value *ends_of_sequences(struct arch *a)
{
    struct ir_builder *b = &a->b;
    int64_t axis = 1;
    struct ir_value *column = vector_as(a, a->seq_of, true), *row = vector_as(a, a->seq_of, false);
    struct ir_value *same = ir_build_binary(b, IR_OP_EQ, column, row), *at = vector_as(a, a->positions, false);
    at = ir_build_select(b, same, at, ir_build_scalar_i(b, DT_I32, -1));
    return ir_build_reduce(b, IR_OP_REDUCE_MAX, at, 1, &axis, false);
}

/*
 * cos and sin of the batch's positions, for each of n pairs: angles in f64, because positions are large. Shapes for pairs:
 * [T, 1, n, 1] and [T, 1, n, 2], the second with its sign; for halves the last two axes change places.
 */
static bool tables(struct arch *a, const struct arch_freqs *f, struct ir_value **cos, struct ir_value **sin)
{
    struct ir_builder *b = &a->b;
    int64_t dims[2] = {1, f->n};
    if (f->n == 0) return true;
    struct ir_type type = ir_type_static(a->m, DT_F64, 2, dims);
    size_t bytes = (size_t)f->n * sizeof *f->inv_freq;
    struct ir_const *c = ir_const_make(a->m, "inv_freq", type, arena_dup(&a->m->arena, f->inv_freq, bytes), bytes, false);
    struct ir_value *angle = vector_as(a, ir_build_cast(b, a->positions, DT_F64), true);
    arch_at_part(a, "rope");
    angle = ir_build_binary(b, IR_OP_MUL, angle, ir_build_constant(b, c));
    *cos = arch_scaled(a, ir_build_cast(b, ir_build_unary(b, IR_OP_COS, angle), DT_F32), f->scale);
    *sin = arch_scaled(a, ir_build_cast(b, ir_build_unary(b, IR_OP_SIN, angle), DT_F32), f->scale);
    bool pairs = a->row->rope == ARCH_ROPE_PAIRS;
    int64_t each[3] = {1, pairs ? f->n : 1, pairs ? 1 : f->n}, two[2] = {pairs ? 1 : 2, pairs ? 2 : 1};
    static const float signs[2] = {-1, 1};
    struct ir_const *k = ir_const_make(a->m, "rope_signs", ir_type_static(a->m, DT_F32, 2, two), signs, sizeof signs, false);
    *cos = arch_reshape(a, *cos, 3, each);
    *sin = arch_reshape(a, *sin, 3, each);
    *sin = ir_build_binary(b, IR_OP_MUL, *sin, ir_build_constant(b, k));
    return *cos && *sin;
}

/* ---- embedding and head ---- */

/*
 * A pair of texts, whose first ends with a separator: rows behind the first separator of their sequence are of type 1, as
 * transformers' tokenizers say; all others of type 0.
 */
static struct ir_value *token_types(struct arch *a)
{
    struct ir_builder *b = &a->b;
    int64_t axis = 1, separator;
    if (!gguf_get_int(gguf_find(a->g, "tokenizer.ggml.seperator_token_id"), &separator)) { /* so is it spelt */
        diag_report(a->diag, DIAG_GGUF_METADATA, a->loc, "tokenizer.ggml.seperator_token_id is missing: it divides the texts that are to be ranked");
        return NULL;
    }
    struct ir_value *never = ir_build_scalar_i(b, DT_I32, INT32_MAX);
    struct ir_value *same = ir_build_binary(b, IR_OP_EQ, vector_as(a, a->seq_of, true), vector_as(a, a->seq_of, false));
    struct ir_value *is = ir_build_binary(b, IR_OP_EQ, a->tokens, ir_build_scalar_i(b, DT_I32, separator));
    struct ir_value *at = vector_as(a, ir_build_select(b, is, a->positions, never), false);
    struct ir_value *first = ir_build_reduce(b, IR_OP_REDUCE_MIN, ir_build_select(b, same, at, never), 1, &axis, false);
    struct ir_value *second = ir_build_binary(b, IR_OP_LT, first, a->positions);
    return ir_build_select(b, second, ir_build_scalar_i(b, DT_I32, 1), ir_build_scalar_i(b, DT_I32, 0));
}

static struct ir_value *embedding(struct arch *a)
{
    struct ir_builder *b = &a->b;
    int64_t dims[2] = {a->h.vocab, a->h.width};
    arch_at_part(a, "token_embd");
    struct ir_value *x = ir_build_gather(b, arch_tensor(a, "token_embd.weight", 2, dims, false), a->tokens, 0);
    x = arch_scaled(a, x, a->h.embed_scale);
    if (x && a->row->flags & ARCH_ENCODER && arch_has(a, "token_types", ".weight")) {
        const struct gguf_tensor *t = gguf_find_tensor(a->g, "token_types.weight");
        int64_t types[2] = {t->rank > 1 ? t->dims[1] : 1, a->h.width};
        struct ir_value *table = arch_tensor(a, "token_types.weight", 2, types, false);
        bool pairs = a->h.pooling == INFR_POOLING_RANK && types[0] > 1;
        struct ir_value *type = pairs ? token_types(a) : ir_build_scalar_i(b, DT_I32, 0); /* one text is all of type 0 */
        x = type ? ir_build_binary(b, IR_OP_ADD, x, ir_build_gather(b, table, type, 0)) : NULL;
    }
    if (x && a->row->flags & ARCH_POSITIONS) {
        const struct gguf_tensor *t = gguf_find_tensor(a->g, "position_embd.weight");
        int64_t rows[2] = {t && t->rank > 1 ? t->dims[1] : 1, a->h.width};
        x = ir_build_binary(b, IR_OP_ADD, x, ir_build_gather(b, arch_tensor(a, "position_embd.weight", 2, rows, false), a->positions, 0));
    }
    if (x && arch_has(a, "token_embd_norm", ".weight")) x = arch_norm(a, "token_embd_norm", x, a->h.width);
    return x;
}

/* Are there two labels, yes and no? */
static bool says_yes_or_no(struct arch *a)
{
    const struct gguf_value *v = arch_key(a, "classifier.output_labels");
    struct gguf_cursor at = {0};
    struct gguf_string yes, no;
    return v && v->kind == GGUF_ARRAY && v->element == GGUF_STRING && v->count == 2 && gguf_next_string(v, &at, &yes) &&
           gguf_next_string(v, &at, &no) && yes.len == 3 && !memcmp(yes.data, "yes", 3) && no.len == 2 && !memcmp(no.data, "no", 2);
}

/*
 * The score of each row, of which the first one's is asked for, or the last one's of a causal model. A matrix for all rows costs
 * what 1/12 of a layer does. Of yes and no: how much larger the logit of yes is.
 */
static struct ir_value *scores(struct arch *a, struct ir_value *x)
{
    const struct gguf_tensor *t = gguf_find_tensor(a->g, "cls.output.weight");
    int64_t n = !t ? 0 : t->rank > 1 ? t->dims[1] : 1;
    a->h.odds = n == 2 && says_yes_or_no(a);
    if (n != 1 && !a->h.odds) {
        diag_report_remedy(a->diag, DIAG_GGUF_FEATURE, a->loc, "convert a model that scores with one number, or one for yes and one for no",
                           t ? "cls.output.weight has several labels" : "pooling_type is rank, but there is no cls.output.weight");
        return NULL;
    }
    if (arch_has(a, "cls", ".weight")) x = arch_linear(a, "cls", x, a->h.width);
    if (x && arch_has(a, "cls", ".weight")) x = ir_build_unary(&a->b, IR_OP_TANH, x);
    x = arch_linear(a, "cls.output", x, n);
    return x && a->h.odds ? ir_build_binary(&a->b, IR_OP_SUB, arch_part(a, x, 0, 1), arch_part(a, x, 1, 1)) : x;
}

static bool head(struct arch *a, struct ir_value *x)
{
    static const char *const logits = "logits", *const embeddings = "embeddings";
    bool encoder = a->row->flags & ARCH_ENCODER, pooled = arch_is_pooled(a), normed = !encoder || arch_has(a, "output_norm", ".weight");
    if (normed) x = arch_norm(a, "output_norm", arch_probe(a, x, !encoder), a->h.width);
    if (!pooled) {
        x = arch_linear(a, arch_has(a, "output", ".weight") ? "output" : "token_embd", x, a->h.vocab);
        x = arch_softcap(a, arch_scaled(a, x, 1 / a->h.logit_div), a->h.logit_softcap);
    }
    if (a->h.pooling == INFR_POOLING_RANK) x = scores(a, x);
    if (!x) return false;
    ir_func_set_outputs(a->f, 1, &x, pooled ? &embeddings : &logits);
    return true;
}

/* ---- layers ---- */

static struct ir_value *add(struct arch *a, struct ir_value *x, struct ir_value *y)
{
    return x && y ? ir_build_binary(&a->b, IR_OP_ADD, x, y) : NULL;
}

static struct ir_value *norm_if(struct arch *a, const char *base, struct ir_value *x)
{
    return x && arch_has(a, base, ".weight") ? arch_norm(a, base, x, a->h.width) : x;
}

/* A norm that the recipe cannot do without. */
static struct ir_value *pre_norm(struct arch *a, const char *base, struct ir_value *x)
{
    return a->row->flags & ARCH_NO_PRE_NORM ? x : arch_norm(a, base, x, a->h.width);
}

/* From the layer's normed input to its attention's result; in the last layer only for the rows that are wanted, as *x then is, too. */
static struct ir_value *attention(struct arch *a, int il, struct ir_value *in, struct ir_value **x)
{
    struct ir_value *y = a->row->flags & ARCH_LATENT ? arch_latent(a, il, in) : arch_attention(a, il, in);
    if (il + 1 == a->h.layers) {
        y = arch_rows_wanted(a, y);
        *x = arch_rows_wanted(a, *x);
    }
    if (y && arch_has(a, NAME("attn_sub_norm"), ".weight")) y = arch_norm(a, NAME("attn_sub_norm"), y, y->type.dims[1]->value);
    return arch_linear(a, NAME("attn_output"), y, a->h.width);
}

static struct ir_value *decoder_layer(struct arch *a, int il, struct ir_value *x)
{
    double scale = a->h.residual_scale;
    arch_probe(a, x, true);
    struct ir_value *y = attention(a, il, pre_norm(a, NAME("attn_norm"), x), &x);
    y = arch_scaled(a, norm_if(a, NAME("post_attention_norm"), y), scale);
    struct ir_value *sum = add(a, x, y), *from = a->h.parallel ? x : sum;
    if (!a->h.parallel) arch_probe(a, sum, true);
    struct ir_value *f = sum ? arch_ffn(a, il, pre_norm(a, NAME("ffn_norm"), from)) : NULL;
    f = arch_scaled(a, norm_if(a, NAME("post_ffw_norm"), f), scale);
    return add(a, sum, f);
}

static struct ir_value *encoder_layer(struct arch *a, int il, struct ir_value *x)
{
    struct ir_value *y = attention(a, il, arch_probe(a, x, false), &x);
    x = arch_probe(a, arch_norm(a, NAME("attn_output_norm"), add(a, x, y), a->h.width), false);
    return arch_norm(a, NAME("layer_output_norm"), add(a, x, arch_ffn(a, il, x)), a->h.width);
}

/* ---- all of it ---- */

static bool all_used(struct arch *a)
{
    size_t n = 0;
    for (size_t i = 0; i < a->g->tensors.n; i++) {
        const char *name = a->g->tensors.v[i]->name;
        if (map_finds(&a->used, name) || (arch_is_pooled(a) && !strcmp(name, "output.weight"))) continue; /* no logits are asked for */
        if (n++ < 3)
            diag_report(a->diag, DIAG_GGUF_FEATURE, a->loc, "tensor `%s` is not part of architecture %s as it is known here", name, a->row->name);
    }
    if (n > 3) diag_report(a->diag, DIAG_GGUF_FEATURE, a->loc, "so are %zu more tensors", n - 3);
    return n == 0;
}

bool arch_build(struct arch *a)
{
    a->f = ir_func_create(a->m, "main");
    a->b = (struct ir_builder){.m = a->m, .block = a->f->body, .loc = ir_loc_make(a->m, a->loc)};
    if (!arch_make_freqs(a) || !add_inputs(a)) return false;
    a->last = a->h.causal ? a->positions : ends_of_sequences(a);
    if (!a->last || !tables(a, &a->freqs, &a->cos, &a->sin) || !tables(a, &a->local_freqs, &a->local_cos, &a->local_sin)) return false;
    struct ir_value *x = embedding(a);
    for (int il = 0; x && il < a->h.layers; il++) x = a->row->flags & ARCH_ENCODER ? encoder_layer(a, il, x) : decoder_layer(a, il, x);
    return x && head(a, x) && all_used(a);
}
