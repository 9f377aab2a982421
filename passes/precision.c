// SPDX-License-Identifier: Apache-2.0
/*
 * --prec: matmuls by constant weights, and convolutions, in a narrower format. Only their operands are rounded; products are exact and sums f32 (i32
 * for int8), which is what tensor units compute, so that every target gives the same numbers but for the order of sums.
 *
 *   tf32        matmul(x', w') in f32, x' = x to 11 significant bits
 *   f16, bf16   matmul(cast x, cast w, acc f32)
 *   fp8         s = max|x| of each row / 448, sw = max|w| of each column / 448
 *               matmul(cast(x / s), w / sw, acc f32) * s * sw              (e4m3)
 *   int8        the same with 127 and rounding to integers
 *   int4, w8a16 matmul(x', blocks of w) in f32, x' = x rounded to f16: weights rounded to the nearest step of their group of
 *               32, 64 or 128 along K. Blocks of a GGUF file that take no more bits than these stay as they are.
 *
 * Requires: folded constants. Establishes: nothing that later passes rely on. A layer whose weights leave the format's range or hold
 * a NaN stays as it is and is named in a warning.
 */
#include <math.h>
#include <string.h>

#include "ir/build.h"
#include "ir/encoding.h"
#include "ir/smallfloat.h"
#include "passes/pass.h"

#define SPLIT 8193.0f
#define SPLIT_MOST 1.0e30f

struct precision {
    struct ir_module *m;
    struct diag_sink *diag;
    enum dtype to;
    double most; /* greatest magnitude of the format; 0: rows are not scaled */
    const struct ir_encoding *blocks; /* what weights are stored as; NULL: as `to` */
};

/* The rounded weights [K, N] (or [N, K]) and, where columns are scaled, their scales f32[N]. */
struct weights {
    struct ir_value *w, *scale;
};

static int64_t column_of(int64_t i, int64_t k, int64_t n, bool trans) { return trans ? i / k : i % n; }

/* A weight beyond it keeps its layer as it is. */
static float greatest(enum dtype to) { return to == DT_F16 ? 65504.0f : to == DT_F32 ? SPLIT_MOST : 3.0e38f; }

static void encode(enum dtype to, double v, void *p)
{
    signed char q;
    if (to == DT_F32) {
        float c = (float)v * SPLIT, f = c - (c - (float)v); /* as round_tf32 */
        memcpy(p, &f, sizeof f);
        return;
    }
    if (to != DT_I8) {
        float_encode(to, v, true, p);
        return;
    }
    q = (signed char)fmax(-127, fmin(127, nearbyint(v)));
    memcpy(p, &q, 1);
}

/* The weights as f32, block formats taken apart. */
static const float *unpacked(struct precision *z, const struct ir_const *c, int64_t count)
{
    if (!c->type.enc) return c->data;
    float *w = arena_alloc(&z->m->arena, (size_t)count * sizeof *w);
    encoding_unpack(ir_const_encoding(c), c->data, count, w);
    return w;
}

/* A block format that stays in f32: no later pass reads it as it is. */
static void keep_unpacked(struct precision *z, struct ir_op *op, const struct ir_const *c, int64_t count)
{
    struct ir_builder b = {.m = z->m, .block = op->block, .before = op, .loc = op->loc};
    int64_t dims[2] = {c->type.dims[0]->value, c->type.dims[1]->value};
    const float *w = unpacked(z, c, count);
    ir_op_set_operand(op, 1, ir_build_constant(&b, ir_const_make(z->m, c->name, ir_type_static(z->m, DT_F32, 2, dims), w,
                                                                 (size_t)count * sizeof *w, false)));
}

/* False when a weight does not fit the format. */
static bool round_weights(struct precision *z, struct ir_builder *b, const struct ir_const *c, bool trans, struct weights *out)
{
    int64_t d0 = c->type.dims[0]->value, d1 = c->type.dims[1]->value, k = trans ? d1 : d0, n = trans ? d0 : d1, count = d0 * d1;
    size_t elem = dtype_bytes(z->to);
    char *data = arena_alloc(&z->m->arena, (size_t)count * elem);
    float *scale = ARENA_ARRAY(&z->m->arena, float, n);
    const float *w = unpacked(z, c, count);
    for (int64_t i = 0; i < count; i++) {
        float a = fabsf(w[i]), *s = &scale[column_of(i, k, n, trans)];
        if (!(a <= greatest(z->to))) return false;
        if (a > *s) *s = a;
    }
    for (int64_t i = 0; i < n; i++) scale[i] = z->most > 0 && scale[i] > 0 ? scale[i] / (float)z->most : 1;
    for (int64_t i = 0; i < count; i++) encode(z->to, (double)(w[i] / scale[column_of(i, k, n, trans)]), data + (size_t)i * elem);
    int64_t dims[2] = {d0, d1};
    out->w = ir_build_constant(b, ir_const_make(z->m, c->name, ir_type_static(z->m, z->to, 2, dims), data, (size_t)count * elem, false));
    out->scale = z->most > 0 ? ir_build_constant(b, ir_const_make(z->m, "scale", ir_type_static(z->m, DT_F32, 1, &n), scale, (size_t)n * sizeof *scale, false)) : NULL;
    return true;
}

/* max|x| of each row / the format's greatest value; 1 for a row of zeros. */
static struct ir_value *row_scale(struct precision *z, struct ir_builder *b, struct ir_value *x)
{
    int64_t axis = x->type.rank - 1;
    struct ir_value *most = ir_build_reduce(b, IR_OP_REDUCE_MAX, ir_build_unary(b, IR_OP_ABS, x), 1, &axis, true);
    struct ir_value *s = ir_build_binary(b, IR_OP_MUL, most, ir_build_scalar_f(b, DT_F32, 1 / z->most));
    struct ir_value *zero = ir_build_binary(b, IR_OP_EQ, most, ir_build_scalar_f(b, DT_F32, 0));
    return ir_build_select(b, zero, ir_build_scalar_f(b, DT_F32, 1), s);
}

/*
 * x to its 11 leading bits (Dekker's splitting): c = x (2^13 + 1), x' = c - (c - x). A number so large that c would overflow
 * stays: the unit drops its low bits.
 */
static struct ir_value *round_tf32(struct ir_builder *b, struct ir_value *x)
{
    struct ir_value *c = ir_build_binary(b, IR_OP_MUL, x, ir_build_scalar_f(b, DT_F32, SPLIT));
    struct ir_value *high = ir_build_binary(b, IR_OP_SUB, c, ir_build_binary(b, IR_OP_SUB, c, x));
    struct ir_value *fits = ir_build_binary(b, IR_OP_LT, ir_build_unary(b, IR_OP_ABS, x), ir_build_scalar_f(b, DT_F32, SPLIT_MOST));
    return ir_build_select(b, fits, high, x);
}

/* x rounded; scale NULL: as it is. */
static struct ir_value *round_rows(struct precision *z, struct ir_builder *b, struct ir_value *x, struct ir_value *scale)
{
    if (scale) x = ir_build_binary(b, IR_OP_DIV, x, scale);
    if (z->to == DT_I8) x = ir_build_unary(b, IR_OP_ROUND, x);
    if (z->to == DT_F32) return round_tf32(b, x);
    return ir_build_cast(b, x, z->to);
}

static double bits_a_weight(const struct ir_encoding *e) { return 8.0 * e->block_bytes / e->block_elems; }

/* The weights in blocks, as rows of K; NULL when K is no whole number of blocks, or a weight has no place in one. */
static struct ir_value *to_blocks(struct precision *z, struct ir_builder *b, struct ir_op *op, const struct ir_const *c, bool trans)
{
    int64_t d0 = c->type.dims[0]->value, d1 = c->type.dims[1]->value, k = trans ? d1 : d0, n = trans ? d0 : d1;
    size_t bytes;
    if (c->type.enc && trans && bits_a_weight(c->type.enc) <= bits_a_weight(z->blocks)) return ir_operand(op, 1);
    if (!encoding_bytes(z->blocks, n, k, &bytes)) return NULL;
    const float *w = unpacked(z, c, n * k);
    for (int64_t i = 0; i < n * k; i++)
        if (!(fabsf(w[i]) <= greatest(DT_F16))) return NULL; /* scales and minima are f16 */
    char *data = arena_alloc(&z->m->arena, bytes);
    float *row = arena_alloc(&z->m->arena, (size_t)k * sizeof *row);
    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = 0; i < k; i++) row[i] = trans ? w[j * k + i] : w[i * n + j];
        if (!encoding_pack(z->blocks, row, k, data + bytes / (size_t)n * (size_t)j)) return NULL;
    }
    int64_t dims[2] = {n, k};
    struct ir_type type = ir_type_static(z->m, DT_F32, 2, dims);
    type.enc = z->blocks;
    return ir_build_constant(b, ir_const_make(z->m, c->name, type, data, bytes, false));
}

/* The product by weights in blocks; NULL when they have no place in them. */
static struct ir_value *by_blocks(struct precision *z, struct ir_builder *b, struct ir_op *op, const struct ir_const *c, bool trans)
{
    struct ir_value *w = to_blocks(z, b, op, c, trans);
    return w ? ir_build_matmul(b, ir_build_cast(b, ir_build_cast(b, ir_operand(op, 0), z->to), DT_F32), w, false, true, DT_NONE) : NULL;
}

static bool rewrite(struct precision *z, struct ir_op *op)
{
    if (op->code != IR_OP_MATMUL || ir_operand(op, 0)->type.dtype != DT_F32 || ir_attr_find(op, "acc") || ir_attr_int(op, "trans_a", 0)) return true;
    const struct ir_const *c = ir_value_const(ir_operand(op, 1));
    bool trans = ir_attr_int(op, "trans_b", 0);
    int64_t n;
    if (!c || c->splat || c->part || !c->data || c->type.rank != 2 || c->type.dtype != DT_F32 || !ir_type_static_elems(&c->type, &n) || n < 1) return true;
    struct ir_builder b = {.m = z->m, .block = op->block, .before = op, .loc = op->loc};
    struct weights w;
    struct ir_value *y = z->blocks ? by_blocks(z, &b, op, c, trans) : NULL;
    if (y) {
        ir_value_replace_uses(&op->results[0], y);
        ir_op_erase(op);
        return true;
    }
    if (z->blocks)
        diag_warn(z->diag, DIAG_PRECISION, op->loc ? op->loc->text : NULL, "kept in f16: weights of '%s' are no whole number of groups of %d, or do not fit",
                  c->name ? c->name : "?", z->blocks->group_elems);
    if (!round_weights(z, &b, c, trans, &w)) {
        if (c->type.enc) keep_unpacked(z, op, c, n);
        diag_warn(z->diag, DIAG_PRECISION, op->loc ? op->loc->text : NULL, "kept in f32: weights of '%s' do not fit the precision", c->name ? c->name : "?");
        return true;
    }
    struct ir_value *x = ir_operand(op, 0), *s = z->most > 0 ? row_scale(z, &b, x) : NULL;
    y = ir_build_matmul(&b, round_rows(z, &b, x, s), w.w, false, trans, z->to == DT_I8 ? DT_I32 : DT_F32);
    if (z->to == DT_F32) ir_op_set_attr(z->m, y->def, ir_a_int("tf32", 1));
    if (z->to == DT_I8) y = ir_build_cast(&b, y, DT_F32);
    if (s) y = ir_build_binary(&b, IR_OP_MUL, ir_build_binary(&b, IR_OP_MUL, y, s), w.scale);
    if (!y) return false;
    ir_value_replace_uses(&op->results[0], y);
    ir_op_erase(op);
    return true;
}

/* Dense channels-last convolutions: f16 or bf16 as asked, f16 for the formats that scale rows, which a convolution has none of. */
static bool rewrite_conv(struct precision *z, struct ir_op *op)
{
    const struct ir_const *c = ir_value_const(ir_operand(op, 1));
    int64_t n;
    if (ir_operand(op, 0)->type.dtype != DT_F32 || ir_attr_find(op, "acc") || !ir_attr_int(op, "channels_last", 0) || ir_attr_int(op, "groups", 1) != 1) return true;
    if (!c || c->splat || c->part || !c->data || c->type.enc || c->type.dtype != DT_F32 || !ir_type_static_elems(&c->type, &n) || n < 1) return true;
    enum dtype to = z->most > 0 ? DT_F16 : z->to;
    const float *w = c->data;
    size_t elem = dtype_bytes(to);
    char *data = arena_alloc(&z->m->arena, (size_t)n * elem);
    for (int64_t i = 0; i < n; i++) {
        if (!(fabsf(w[i]) <= greatest(to))) {
            diag_warn(z->diag, DIAG_PRECISION, op->loc ? op->loc->text : NULL, "kept in f32: weights of '%s' do not fit the precision", c->name ? c->name : "?");
            return true;
        }
        encode(to, (double)w[i], data + (size_t)i * elem);
    }
    struct ir_builder b = {.m = z->m, .block = op->block, .before = op, .loc = op->loc};
    struct ir_type type = c->type;
    type.dtype = to;
    struct ir_value *operands[3] = {to == DT_F32 ? round_tf32(&b, ir_operand(op, 0)) : ir_build_cast(&b, ir_operand(op, 0), to),
                                    ir_build_constant(&b, ir_const_make(z->m, c->name, type, data, (size_t)n * elem, false)), ir_operand(op, 2)};
    struct ir_attr attrs[16];
    int n_attrs = 0;
    for (; n_attrs < op->n_attrs && n_attrs < (int)ARRAY_LEN(attrs) - 2; n_attrs++) attrs[n_attrs] = op->attrs[n_attrs];
    attrs[n_attrs++] = ir_a_dtype("acc", DT_F32);
    if (to == DT_F32) attrs[n_attrs++] = ir_a_int("tf32", 1);
    struct ir_op *conv = ir_build(&b, IR_OP_CONV, ir_operand(op, 2) ? 3 : 2, operands, n_attrs, attrs, 1);
    if (!conv) return false;
    ir_value_replace_uses(&op->results[0], &conv->results[0]);
    ir_op_erase(op);
    return true;
}

static bool run_block(struct precision *z, struct ir_block *b)
{
    bool ok = true;
    for (struct ir_op *op = b->first, *next; op; op = next) {
        next = op->next;
        for (int r = 0; r < op->n_regions; r++) ok = run_block(z, op->regions[r]) && ok;
        ok = (op->code == IR_OP_CONV ? rewrite_conv(z, op) : rewrite(z, op)) && ok;
    }
    return ok;
}

bool pass_precision(struct ir_module *m, struct diag_sink *diag)
{
    struct precision z = {.m = m, .diag = diag, .to = m->precision, .most = m->precision == DT_F8E4M3FN ? 448 : m->precision == DT_I8 ? 127 : 0,
                          .blocks = m->weight_blocks};
    bool ok = true;
    if (m->precision == DT_NONE) return true;
    for (size_t i = 0; i < m->funcs.n; i++) ok = run_block(&z, m->funcs.v[i]->body) && ok;
    m->is_rounded = true;
    return ok && pass_dce(m, diag);
}
