// SPDX-License-Identifier: Apache-2.0
/* Inference for language models: cache writes, paged attention, experts. */
#include <float.h>

#include "ir/blocks.h"
#include "ir/infer.h"

bool infer_kv_write(struct ir_module *m, struct ir_op *op)
{
    const struct ir_type *state = infer_type(op, 0), *rows = infer_type(op, 1), *slots = infer_type(op, 2);
    if (!infer_rank(m, op, 0, 4) || !infer_rank(m, op, 1, 3) || !infer_rank(m, op, 2, 1) ||
        !infer_class(m, op, 0, INFER_NUMBER) || !infer_class(m, op, 1, dtype_is_int(state->dtype) ? INFER_INT : INFER_FLOAT) ||
        (dtype_is_int(state->dtype) && !infer_dtype(m, op, 1, state->dtype)) || !infer_dtype(m, op, 2, DT_I64) ||
        !infer_eq(m, op, rows->dims[0], slots->dims[0], "rows and slots") ||
        !infer_eq(m, op, rows->dims[1], state->dims[2], "heads of rows and state") ||
        !infer_eq(m, op, rows->dims[2], state->dims[3], "width of rows and state"))
        return false;
    if (!dim_is_const(state->dims[1]) || state->dims[1]->value < 1)
        return infer_fail(m, op, DIAG_SHAPE_MISMATCH, "the page size must be a positive constant");
    return infer_set(m, op, 0, state->dtype, 4, state->dims);
}

/* Elements of a row of operand i, a cache; operand `scale` holds the scales of its blocks when it stores integers. */
static const struct dim *cache_width(struct ir_module *m, struct ir_op *op, int i, int scale)
{
    const struct ir_type *t = infer_type(op, i);
    if (!infer_class(m, op, i, INFER_NUMBER)) return NULL;
    bool given = scale < op->n_operands && ir_operand(op, scale);
    if (dtype_is_float(t->dtype)) {
        if (given) infer_fail(m, op, DIAG_SHAPE_MISMATCH, "operand %d scales a cache of floats", scale);
        return given ? NULL : t->dims[3];
    }
    if (!infer_dtype(m, op, i, t->dtype == DT_U8 ? DT_U8 : DT_I8)) return NULL;
    if (!given) infer_fail(m, op, DIAG_SHAPE_MISMATCH, "operand %d stores integers: it has no scale", i);
    if (!given || !infer_rank(m, op, scale, 4) || !infer_class(m, op, scale, INFER_FLOAT)) return NULL;
    const struct ir_type *s = infer_type(op, scale);
    for (int d = 0; d < 3; d++)
        if (!infer_eq(m, op, t->dims[d], s->dims[d], "a cache and its scales")) return NULL;
    if (!dim_is_const(t->dims[3]) || !dim_is_const(s->dims[3]) || s->dims[3]->value < 1 || t->dims[3]->value % s->dims[3]->value) {
        infer_fail(m, op, DIAG_SHAPE_MISMATCH, "the rows of operand %d are not whole blocks", i);
        return NULL;
    }
    return t->dtype == DT_U8 ? dim_mulc(m->dims, t->dims[3], 2) : t->dims[3];
}

/* Shapes of the two caches and of the vectors that say where things are. */
static bool check_cache(struct ir_module *m, struct ir_op *op, const struct dim **out_v_width)
{
    const struct ir_type *q = infer_type(op, 0), *k = infer_type(op, 1), *v = infer_type(op, 2);
    if (!infer_rank(m, op, 0, 3) || !infer_rank(m, op, 1, 4) || !infer_rank(m, op, 2, 4) ||
        !infer_rank(m, op, 3, 1) || !infer_rank(m, op, 4, 1) || !infer_rank(m, op, 5, 2))
        return false;
    const struct dim *k_width = cache_width(m, op, 1, 6);
    *out_v_width = k_width ? cache_width(m, op, 2, 7) : NULL;
    if (!*out_v_width || !infer_class(m, op, 0, INFER_FLOAT)) return false;
    for (int i = 3; i < 6; i++)
        if (!infer_dtype(m, op, i, DT_I32)) return false;
    if (!dim_is_const(k->dims[1]) || k->dims[1]->value < 1)
        return infer_fail(m, op, DIAG_SHAPE_MISMATCH, "the page size must be a positive constant");
    for (int i = 0; i < 3; i++)
        if (!infer_eq(m, op, k->dims[i], v->dims[i], "pages, page sizes and heads of K and V")) return false;
    return infer_eq(m, op, q->dims[2], k_width, "width of q and K") &&
           infer_eq(m, op, infer_type(op, 3)->dims[0], q->dims[0], "positions and rows of q") &&
           infer_eq(m, op, infer_type(op, 4)->dims[0], q->dims[0], "seq_of and rows of q");
}

bool infer_paged_attention(struct ir_module *m, struct ir_op *op)
{
    const struct ir_type *q = infer_type(op, 0), *k = infer_type(op, 1);
    const struct dim *width = NULL;
    int64_t window, v_dim;
    if (!check_cache(m, op, &width) || !infer_real(m, op, "scale", -DBL_MAX, DBL_MAX) ||
        !infer_real(m, op, "softcap", 0.0, DBL_MAX) ||
        !infer_int(m, op, "window", 0, INT32_MAX, 0, &window) ||
        !infer_int(m, op, "v_dim", 0, INT32_MAX, 0, &v_dim))
        return false;
    const struct dim *heads = q->dims[1], *kv_heads = k->dims[2];
    if (!dim_is_const(heads) || !dim_is_const(kv_heads) || kv_heads->value < 1 ||
        heads->value % kv_heads->value)
        return infer_fail(m, op, DIAG_SHAPE_MISMATCH, "heads of q must be a multiple of the caches' heads");
    if (v_dim) {
        if (!infer_le(m, op, dim_const(m->dims, v_dim), width, "v_dim and width of V")) return false;
        width = dim_const(m->dims, v_dim);
    }
    const struct dim *dims[3] = {q->dims[0], heads, width};
    return infer_set(m, op, 0, q->dtype, 3, dims);
}

bool infer_matmul_experts(struct ir_module *m, struct ir_op *op)
{
    const struct ir_type *x = infer_type(op, 0), *w = infer_type(op, 1), *ids = infer_type(op, 2);
    if (x->rank != 2 && x->rank != 3)
        return infer_fail(m, op, DIAG_SHAPE_MISMATCH, "operand 0 must have rank 2 or 3");
    if (!infer_rank(m, op, 1, 3) || !infer_rank(m, op, 2, 2) || !infer_class(m, op, 0, INFER_FLOAT) ||
        !infer_dtype(m, op, 1, x->dtype) || !infer_class(m, op, 2, INFER_INT) ||
        !infer_eq(m, op, x->dims[x->rank - 1], w->dims[2], "the dims that are summed over") ||
        !infer_eq(m, op, x->dims[0], ids->dims[0], "rows and ids") ||
        !infer_le(m, op, dim_const(m->dims, 1), w->dims[0], "number of experts"))
        return false;
    if (x->rank == 3 && !infer_eq(m, op, x->dims[1], ids->dims[1], "choices of x and of ids")) return false;
    const struct dim *dims[3] = {x->dims[0], ids->dims[1], w->dims[1]};
    return infer_set(m, op, 0, x->dtype, 3, dims);
}

/*
 * Parts q and, where given, scale and min of operand `first` on: [batch * N/64, groups, k a group, 64] and
 * [batch * N/64, groups, 64].
 */
static bool check_parts(struct ir_module *m, struct ir_op *op, int first, int64_t batch, int64_t n, int64_t *out_k)
{
    const struct ir_type *q = infer_type(op, first);
    bool nibbles;
    if (!infer_rank(m, op, first, 4) || !infer_flag(m, op, "nibbles", false, &nibbles)) return false;
    for (int i = 0; i < 4; i++)
        if (!dim_is_const(q->dims[i])) return infer_fail(m, op, DIAG_SHAPE_MISMATCH, "parts have constant dims");
    if (q->dims[0]->value != batch * ((n + 63) / 64) || q->dims[3]->value != 64)
        return infer_fail(m, op, DIAG_SHAPE_MISMATCH, "part q must be in panels of 64 columns");
    *out_k = q->dims[1]->value * q->dims[2]->value * (nibbles ? 2 : 1);
    for (int i = first + 1; i < op->n_operands; i++) {
        if (!ir_operand(op, i)) continue;
        if (!infer_rank(m, op, i, 3) || !infer_class(m, op, i, INFER_FLOAT)) return false;
        const struct ir_type *t = infer_type(op, i);
        if (t->dims[0] != q->dims[0] || t->dims[1] != q->dims[1] || t->dims[2] != q->dims[3])
            return infer_fail(m, op, DIAG_SHAPE_MISMATCH, "parts do not fit together");
    }
    return true;
}

bool infer_qmatmul(struct ir_module *m, struct ir_op *op)
{
    const struct ir_type *x = infer_type(op, 0);
    const struct dim *dims[IR_MAX_RANK];
    int64_t n, k, batch;
    if (x->rank < 1 || !infer_class(m, op, 0, INFER_FLOAT) || !infer_int(m, op, "n", 1, INT32_MAX, 1, &n) ||
        !infer_int(m, op, "batch", 1, INT32_MAX, 1, &batch) || !check_parts(m, op, 1, batch, n, &k) ||
        !infer_eq(m, op, x->dims[x->rank - 1], dim_const(m->dims, k), "the dims that are summed over"))
        return false;
    if (batch > 1 && (!infer_rank(m, op, 0, 3) || !infer_eq(m, op, x->dims[0], dim_const(m->dims, batch), "planes of x and matrices"))) return false;
    for (int i = 0; i < x->rank - 1; i++) dims[i] = x->dims[i];
    dims[x->rank - 1] = dim_const(m->dims, n);
    return infer_set(m, op, 0, x->dtype, x->rank, dims);
}

bool infer_qmatmul_experts(struct ir_module *m, struct ir_op *op)
{
    const struct ir_type *x = infer_type(op, 0), *ids = infer_type(op, 1);
    int64_t n, k, experts;
    if (x->rank != 2 && x->rank != 3) return infer_fail(m, op, DIAG_SHAPE_MISMATCH, "operand 0 must have rank 2 or 3");
    if (!infer_class(m, op, 0, INFER_FLOAT) || !infer_rank(m, op, 1, 2) || !infer_class(m, op, 1, INFER_INT) ||
        !infer_int(m, op, "n", 1, INT32_MAX, 1, &n) || !infer_int(m, op, "experts", 1, INT32_MAX, 1, &experts) ||
        !check_parts(m, op, 2, experts, n, &k) ||
        !infer_eq(m, op, x->dims[x->rank - 1], dim_const(m->dims, k), "the dims that are summed over") ||
        !infer_eq(m, op, x->dims[0], ids->dims[0], "rows and ids"))
        return false;
    if (x->rank == 3 && !infer_eq(m, op, x->dims[1], ids->dims[1], "choices of x and of ids")) return false;
    const struct dim *dims[3] = {x->dims[0], ids->dims[1], dim_const(m->dims, n)};
    return infer_set(m, op, 0, x->dtype, 3, dims);
}

bool infer_qgather(struct ir_module *m, struct ir_op *op)
{
    const struct ir_type *i = infer_type(op, 0);
    const struct dim *dims[IR_MAX_RANK];
    int64_t n, k, have;
    if (!infer_class(m, op, 0, INFER_INT) || !infer_int(m, op, "n", 1, INT32_MAX, 1, &n) ||
        !infer_int(m, op, "k", 1, INT32_MAX, 1, &k) || !check_parts(m, op, 1, 1, n, &have))
        return false;
    if (have != k || i->rank + 1 > IR_MAX_RANK) return infer_fail(m, op, DIAG_SHAPE_MISMATCH, "k is not the parts'");
    for (int a = 0; a < i->rank; a++) dims[a] = i->dims[a];
    dims[i->rank] = dim_const(m->dims, k);
    return infer_set(m, op, 0, DT_F32, i->rank + 1, dims);
}

bool infer_round_rows(struct ir_module *m, struct ir_op *op)
{
    const struct ir_type *x = infer_type(op, 0);
    int64_t max;
    if (x->rank < 1 || !infer_dtype(m, op, 0, DT_F32) || !infer_int(m, op, "max", 1, INT16_MAX, 1, &max)) return false;
    return infer_set(m, op, 0, DT_F32, x->rank, x->dims);
}

bool infer_quant_rows(struct ir_module *m, struct ir_op *op)
{
    const struct ir_type *x = infer_type(op, 0);
    int64_t max, group;
    const struct dim *dims[IR_MAX_RANK];
    if (x->rank < 1 || !infer_dtype(m, op, 0, DT_F32) || !infer_int(m, op, "max", 1, INT16_MAX, 1, &max) ||
        !infer_int(m, op, "group", 4, 256, 4, &group))
        return false;
    const struct dim *k = x->dims[x->rank - 1];
    if (!dim_is_const(k) || k->value < 1 || k->value % group || group % 4)
        return infer_fail(m, op, DIAG_SHAPE_MISMATCH, "a row must be whole groups of a multiple of four");
    for (int i = 0; i < x->rank - 1; i++) dims[i] = x->dims[i];
    dims[x->rank - 1] = dim_const(m->dims, k->value / group);
    if (!infer_set(m, op, 0, DT_I16, x->rank, x->dims) || !infer_set(m, op, 1, DT_F32, x->rank, dims)) return false;
    dims[x->rank - 1] = dim_const(m->dims, 1);
    return infer_set(m, op, 2, DT_F32, x->rank, dims);
}

/* Operand i is the blocks that the attributes describe; K and N of the constant. */
static bool check_blocks(struct ir_module *m, struct ir_op *op, int i, int64_t *out_n, int64_t *out_k, int64_t *out_group)
{
    const struct ir_type *w = infer_type(op, i);
    int64_t zero, high;
    struct blocks b = {0};
    if (!infer_rank(m, op, i, 3) || !infer_dtype(m, op, i, DT_U16) || !infer_int(m, op, "n", 1, INT32_MAX, 1, out_n) ||
        !infer_int(m, op, "group", 4, 256, 4, out_group) || !infer_int(m, op, "zero", 0, 128, 0, &zero) ||
        !infer_flag(m, op, "nibbles", false, &b.nibbles) || !infer_flag(m, op, "wide", false, &b.wide) ||
        !infer_flag(m, op, "min", false, &b.has_min) || !infer_int(m, op, "high", 0, 2, 0, &high))
        return false;
    b.group = (int)*out_group, b.high = (int)high;
    if (b.high && (!b.nibbles || b.group / 2 * b.high != 16)) return infer_fail(m, op, DIAG_SHAPE_MISMATCH, "high bits of a group are 16 a unit, above nibbles");
    for (int k = 0; k < 3; k++)
        if (!dim_is_const(w->dims[k])) return infer_fail(m, op, DIAG_SHAPE_MISMATCH, "blocks have constant dims");
    if (b.group % blocks_step(&b) || w->dims[0]->value != (*out_n + BLOCKS_COLS - 1) / BLOCKS_COLS || w->dims[2]->value != blocks_units(&b))
        return infer_fail(m, op, DIAG_SHAPE_MISMATCH, "blocks do not fit their description");
    *out_k = w->dims[1]->value * *out_group;
    return true;
}

bool infer_qmatmul_int(struct ir_module *m, struct ir_op *op)
{
    const struct ir_type *q = infer_type(op, 0), *sum = infer_type(op, 1), *step = infer_type(op, 2);
    const struct dim *dims[IR_MAX_RANK];
    int64_t n, k, group, max;
    if (q->rank < 1 || !infer_int(m, op, "max", 1, INT16_MAX, INT16_MAX, &max) || !infer_dtype(m, op, 0, DT_I16) || !infer_dtype(m, op, 1, DT_F32) || !infer_dtype(m, op, 2, DT_F32) ||
        !infer_rank(m, op, 1, q->rank) || !infer_rank(m, op, 2, q->rank) || !check_blocks(m, op, 3, &n, &k, &group) ||
        !infer_eq(m, op, q->dims[q->rank - 1], dim_const(m->dims, k), "the dims that are summed over") ||
        !infer_eq(m, op, sum->dims[q->rank - 1], dim_const(m->dims, k / group), "sums and groups") ||
        !infer_eq(m, op, step->dims[q->rank - 1], dim_const(m->dims, 1), "steps of a row"))
        return false;
    for (int i = 0; i < q->rank - 1; i++) {
        if (!infer_eq(m, op, q->dims[i], sum->dims[i], "rows and sums") || !infer_eq(m, op, q->dims[i], step->dims[i], "rows and steps"))
            return false;
        dims[i] = q->dims[i];
    }
    dims[q->rank - 1] = dim_const(m->dims, n);
    return infer_set(m, op, 0, DT_F32, q->rank, dims);
}

bool infer_qgather_blocks(struct ir_module *m, struct ir_op *op)
{
    const struct ir_type *i = infer_type(op, 0);
    const struct dim *dims[IR_MAX_RANK];
    int64_t n, k, have, group;
    if (!infer_class(m, op, 0, INFER_INT) || !infer_int(m, op, "k", 1, INT32_MAX, 1, &k) || !check_blocks(m, op, 1, &n, &have, &group))
        return false;
    if (have != k || i->rank + 1 > IR_MAX_RANK) return infer_fail(m, op, DIAG_SHAPE_MISMATCH, "k is not the blocks'");
    for (int a = 0; a < i->rank; a++) dims[a] = i->dims[a];
    dims[i->rank] = dim_const(m->dims, k);
    return infer_set(m, op, 0, DT_F32, i->rank + 1, dims);
}
