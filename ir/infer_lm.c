// SPDX-License-Identifier: Apache-2.0
/* Inference for language models: cache writes, paged attention, experts. */
#include <float.h>

#include "ir/infer.h"

bool infer_kv_write(struct ir_module *m, struct ir_op *op)
{
    const struct ir_type *state = infer_type(op, 0), *rows = infer_type(op, 1), *slots = infer_type(op, 2);
    if (!infer_rank(m, op, 0, 4) || !infer_rank(m, op, 1, 3) || !infer_rank(m, op, 2, 1) ||
        !infer_class(m, op, 0, INFER_FLOAT) || !infer_class(m, op, 1, INFER_FLOAT) ||
        !infer_dtype(m, op, 2, DT_I64) ||
        !infer_eq(m, op, rows->dims[0], slots->dims[0], "rows and slots") ||
        !infer_eq(m, op, rows->dims[1], state->dims[2], "heads of rows and state") ||
        !infer_eq(m, op, rows->dims[2], state->dims[3], "width of rows and state"))
        return false;
    if (!dim_is_const(state->dims[1]) || state->dims[1]->value < 1)
        return infer_fail(m, op, DIAG_SHAPE_MISMATCH, "the page size must be a positive constant");
    return infer_set(m, op, 0, state->dtype, 4, state->dims);
}

/* Shapes of the two caches and of the vectors that say where things are. */
static bool check_cache(struct ir_module *m, struct ir_op *op)
{
    const struct ir_type *q = infer_type(op, 0), *k = infer_type(op, 1), *v = infer_type(op, 2);
    if (!infer_rank(m, op, 0, 3) || !infer_rank(m, op, 1, 4) || !infer_rank(m, op, 2, 4) ||
        !infer_rank(m, op, 3, 1) || !infer_rank(m, op, 4, 1) || !infer_rank(m, op, 5, 2))
        return false;
    for (int i = 0; i < 3; i++)
        if (!infer_class(m, op, i, INFER_FLOAT)) return false;
    for (int i = 3; i < 6; i++)
        if (!infer_dtype(m, op, i, DT_I32)) return false;
    if (!dim_is_const(k->dims[1]) || k->dims[1]->value < 1)
        return infer_fail(m, op, DIAG_SHAPE_MISMATCH, "the page size must be a positive constant");
    for (int i = 0; i < 3; i++)
        if (!infer_eq(m, op, k->dims[i], v->dims[i], "pages, page sizes and heads of K and V")) return false;
    return infer_eq(m, op, q->dims[2], k->dims[3], "width of q and K") &&
           infer_eq(m, op, infer_type(op, 3)->dims[0], q->dims[0], "positions and rows of q") &&
           infer_eq(m, op, infer_type(op, 4)->dims[0], q->dims[0], "seq_of and rows of q");
}

bool infer_paged_attention(struct ir_module *m, struct ir_op *op)
{
    const struct ir_type *q = infer_type(op, 0), *k = infer_type(op, 1), *v = infer_type(op, 2);
    int64_t window, v_dim;
    if (!check_cache(m, op) || !infer_real(m, op, "scale", -DBL_MAX, DBL_MAX) ||
        !infer_real(m, op, "softcap", 0.0, DBL_MAX) ||
        !infer_int(m, op, "window", 0, INT32_MAX, 0, &window) ||
        !infer_int(m, op, "v_dim", 0, INT32_MAX, 0, &v_dim))
        return false;
    const struct dim *heads = q->dims[1], *kv_heads = k->dims[2], *width = v->dims[3];
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
