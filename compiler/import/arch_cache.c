// SPDX-License-Identifier: Apache-2.0
/*
 * The KV cache as state inputs of the function, and what stores into it. With --kv=q8 and q4 a state holds small integers
 * and a second one beside it the scales, in f16, of blocks of 32 elements of a head (one block a head whose width is no
 * multiple of 32):
 *
 *   q8   d = max|x| / 127              q = round(x / d) in [-127, 127]     a byte each
 *   q4   d = x of greatest |x| / -8    q = round(x / d) in [-8, 7]         q + 8, two in a byte: elements i and i + half a block
 *
 * x is divided by d as it is stored. These are plain ops here, so that the IR says what a cache holds; attention reads
 * the blocks (paged_attention in ir/ops.def). f8 is f8e4m3fn without scales.
 */
#include "compiler/import/arch.h"

#define BLOCK 32
#define F16_MAX 65504.0

static struct ir_value *add_state(struct arch *a, const char *name, enum dtype dtype, int64_t heads, int64_t width)
{
    struct dim_ctx *c = a->m->dims;
    const struct dim *dims[4] = {dim_find_sym(c, "NP"), dim_const(c, ARCH_PAGE), dim_const(c, heads), dim_const(c, width)};
    struct ir_value *v = ir_func_add_input(a->f, name, ir_type_make(a->m, dtype, 4, dims));
    a->f->input_state[a->f->n_inputs - 1] = true;
    return v;
}

static int64_t blocks_of(int64_t width) { return width % BLOCK ? 1 : width / BLOCK; }

static bool add_cache(struct arch *a, struct arch_cache *c, const char *what, int il, int64_t heads, int64_t width)
{
    const char *name = arena_printf(&a->g->arena, "%s.%d", what, il);
    bool nibbles = a->kv_dtype == DT_I4;
    if (nibbles && width % 2)
        return diag_report(a->diag, DIAG_GGUF_METADATA, a->loc, "--kv=q4 stores pairs of elements; the heads of layer %d have %lld: use --kv=q8", il,
                           (long long)width);
    c->width = width;
    c->rows = add_state(a, name, nibbles ? DT_U8 : a->kv_dtype, heads, nibbles ? width / 2 : width);
    if (nibbles || a->kv_dtype == DT_I8)
        c->scale = add_state(a, arena_printf(&a->g->arena, "%s.scale", name), DT_F16, heads, blocks_of(width));
    return true;
}

/* With a latent, K holds it and the rotated part, for all heads; V is the latent. */
static bool absorbs(struct arch *a, int il) { return (a->row->flags & ARCH_LATENT) && arch_has(a, arch_name(a, il, "attn_k_b"), ".weight"); }

bool arch_add_caches(struct arch *a)
{
    const struct arch_hparams *h = &a->h;
    bool ok = true;
    a->k_cache = ARENA_ARRAY(&a->m->arena, struct arch_cache, h->layers);
    a->v_cache = ARENA_ARRAY(&a->m->arena, struct arch_cache, h->layers);
    for (int il = 0; ok && il < h->layers; il++) {
        int64_t heads = a->row->flags & ARCH_LATENT ? h->layer[il].heads : h->layer[il].kv_heads;
        if (absorbs(a, il))
            ok = add_cache(a, &a->k_cache[il], "k_cache", il, 1, h->kv_rank + h->rot);
        else
            ok = add_cache(a, &a->k_cache[il], "k_cache", il, heads, h->head_k) && add_cache(a, &a->v_cache[il], "v_cache", il, heads, h->head_v);
    }
    return ok;
}

/* ---- rows to blocks ---- */

static struct ir_value *constant(struct arch *a, double v) { return ir_build_scalar_f(&a->b, DT_F32, v); }

static struct ir_value *binary(struct arch *a, enum ir_opcode code, struct ir_value *x, struct ir_value *y) { return ir_build_binary(&a->b, code, x, y); }

static struct ir_value *within(struct arch *a, struct ir_value *x, double lo, double hi)
{
    return binary(a, IR_OP_MAX, binary(a, IR_OP_MIN, x, constant(a, hi)), constant(a, lo));
}

/* The element of each block that the scale is made from: its magnitude, or itself (the negative one of two equals). */
static struct ir_value *extreme(struct arch *a, struct ir_value *x, bool with_sign)
{
    static const int64_t axis[1] = {3};
    if (!with_sign) return ir_build_reduce(&a->b, IR_OP_REDUCE_MAX, ir_build_unary(&a->b, IR_OP_ABS, x), 1, axis, true);
    struct ir_value *top = ir_build_reduce(&a->b, IR_OP_REDUCE_MAX, x, 1, axis, true);
    struct ir_value *low = ir_build_reduce(&a->b, IR_OP_REDUCE_MIN, x, 1, axis, true);
    return ir_build_select(&a->b, binary(a, IR_OP_GT, top, ir_build_unary(&a->b, IR_OP_NEG, low)), top, low);
}

/* u8 [T, H, B, n] of 0..15 to bytes [T, H, B, n / 2]. */
static struct ir_value *join_nibbles(struct arch *a, struct ir_value *q, int64_t n)
{
    struct ir_value *high = arch_part(a, q, n / 2, n / 2);
    return binary(a, IR_OP_ADD, arch_part(a, q, 0, n / 2), binary(a, IR_OP_MUL, high, ir_build_scalar_i(&a->b, DT_U8, 16)));
}

/* rows [T, H, D] as the cache stores them, and their scales [T, H, B]. */
static struct ir_value *to_blocks(struct arch *a, const struct arch_cache *c, struct ir_value *rows, struct ir_value **out_scale)
{
    bool nibbles = a->kv_dtype == DT_I4;
    int64_t heads = rows->type.dims[1]->value, blocks = blocks_of(c->width), n = c->width / blocks;
    int64_t apart[3] = {heads, blocks, n}, whole[2] = {heads, nibbles ? c->width / 2 : c->width}, scales[2] = {heads, blocks};
    struct ir_value *x = arch_reshape(a, rows, 3, apart);
    struct ir_value *d = binary(a, IR_OP_DIV, extreme(a, x, nibbles), constant(a, nibbles ? -8 : 127));
    d = ir_build_cast(&a->b, within(a, d, -F16_MAX, F16_MAX), DT_F16);
    struct ir_value *used = ir_build_cast(&a->b, d, DT_F32), *none = constant(a, 0);
    /* a block of zeros has no scale; and what is no number leaves zeros with a scale that is none */
    struct ir_value *inv = ir_build_select(&a->b, binary(a, IR_OP_EQ, used, none), none, binary(a, IR_OP_DIV, constant(a, 1), used));
    struct ir_value *q = ir_build_unary(&a->b, IR_OP_ROUND, binary(a, IR_OP_MUL, x, inv));
    if (nibbles)
        q = join_nibbles(a, ir_build_cast(&a->b, binary(a, IR_OP_ADD, within(a, q, -8, 7), constant(a, 8)), DT_U8), n);
    else
        q = ir_build_cast(&a->b, within(a, q, -127, 127), DT_I8);
    *out_scale = arch_reshape(a, d, 2, scales);
    return arch_reshape(a, q, 2, whole);
}

static bool write(struct arch *a, struct ir_value **state, struct ir_value *rows)
{
    struct ir_value *operands[3] = {*state, rows, a->slots};
    struct ir_op *op = rows ? ir_build(&a->b, IR_OP_KV_WRITE, 3, operands, 0, NULL, 1) : NULL;
    if (op) *state = ir_result(op, 0);
    return op != NULL;
}

bool arch_cache_write(struct arch *a, struct arch_cache *c, struct ir_value *rows)
{
    if (!arch_probe(a, rows, false)) return false;
    if (!c->scale) return write(a, &c->rows, rows);
    struct ir_value *scale, *q = to_blocks(a, c, rows, &scale);
    return write(a, &c->rows, q) && write(a, &c->scale, scale);
}
