// SPDX-License-Identifier: Apache-2.0
/* MatMul and its relatives, Gemm. */
#include <string.h>

#include "compiler/import/onnx_int.h"

struct ir_value *onnx_matmul_value(struct onode *n, struct ir_value *a, struct ir_value *b);

/* numpy's rule: a vector gains a dim that is dropped again. */
struct ir_value *onnx_matmul_value(struct onode *n, struct ir_value *a, struct ir_value *b)
{
    if (!a || !b) return NULL;
    if (rank_of(a) == 0 || rank_of(b) == 0) {
        on_fail(n, DIAG_SHAPE_MISMATCH, "%s of a scalar", n->p->op_type);
        return NULL;
    }
    bool va = rank_of(a) == 1, vb = rank_of(b) == 1;
    if (va) a = e_unsqueeze(n, a, 0);
    if (vb) b = e_unsqueeze(n, b, 1);
    struct ir_value *y = ir_build_matmul(n->b, a, b, false, false, DT_NONE);
    if (y && vb) y = e_squeeze(n, y, rank_of(y) - 1);
    if (y && va) y = e_squeeze(n, y, rank_of(y) - (vb ? 1 : 2));
    return y;
}

bool onnx_matmul(struct onode *n)
{
    return on_out(n, 0, onnx_matmul_value(n, on_in(n, 0), on_in(n, 1)));
}

bool onnx_gemm(struct onode *n)
{
    struct ir_value *a = on_in(n, 0), *b = on_in(n, 1), *c = on_in(n, 2);
    if (!on_rank(n, a, 2, 2, "A") || !on_rank(n, b, 2, 2, "B")) return false;
    double alpha = at_float(n, "alpha", 1), beta = at_float(n, "beta", 1);
    struct ir_value *y = ir_build_matmul(n->b, a, b, at_int(n, "transA", 0) != 0,
                                         at_int(n, "transB", 0) != 0, DT_NONE);
    bool ints = !dtype_is_float(a->type.dtype);
    if (ints && ((alpha != 1 && alpha != (double)(int64_t)alpha) ||
                 (beta != 1 && beta != (double)(int64_t)beta)))
        return on_fail(n, DIAG_ONNX_ATTR, "Gemm of integers with a fractional alpha or beta");
    if (alpha != 1) y = e_mul(n, y, e_like(n, y, alpha));
    if (c && beta != 0) {
        if (beta != 1) c = e_mul(n, c, e_like(n, c, beta));
        struct ir_value *sum = e_add(n, y, c);
        if (sum && rank_of(sum) != 2)
            return on_fail(n, DIAG_SHAPE_MISMATCH, "Gemm: C does not broadcast to the product");
        y = sum;
    }
    return on_out(n, 0, y);
}

/* com.microsoft: FusedMatMul */
bool onnx_fusedmatmul(struct onode *n)
{
    struct ir_value *a = on_in(n, 0), *b = on_in(n, 1);
    double alpha = at_float(n, "alpha", 1);
    bool ta = at_int(n, "transA", 0), tb = at_int(n, "transB", 0);
    if (at_int(n, "transBatchA", 0) || at_int(n, "transBatchB", 0))
        return on_fail(n, DIAG_ONNX_ATTR,
                       "FusedMatMul with transBatchA or transBatchB is not supported");
    struct ir_value *y;
    if (!ta && !tb) {
        y = onnx_matmul_value(n, a, b);
    } else {
        if (!on_rank(n, a, 2, IR_MAX_RANK, "A") || !on_rank(n, b, 2, IR_MAX_RANK, "B"))
            return false;
        y = ir_build_matmul(n->b, a, b, ta, tb, DT_NONE);
    }
    return on_out(n, 0, alpha == 1 ? y : e_mul(n, y, e_like(n, y, alpha)));
}
