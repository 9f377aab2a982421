// SPDX-License-Identifier: Apache-2.0
/*
 * Library kernels: ops that no loop nest expresses, as C functions of runtime/ops with the same
 * shape as compiled kernels (runtime/abi/kernel.h). The compiler launches them by symbol; only
 * those that are named are linked. They use no scratch memory and may be called by any number of
 * workers with disjoint slices.
 *
 * Tensors are dense and row-major. "outer, n, inner" are products of dims: those before an axis,
 * the axis itself, those behind it.
 *
 * infr_op_topk_T
 *     bufs    x, values, indices
 *     dims    outer, n, inner, k, largest
 *     slices  outer * inner
 * infr_op_scatter_elements_T_R
 *     bufs    x, indices, updates, out
 *     dims    index_bytes, rank, axis, x's dims, the indices' dims
 *     slices  product of x's dims before the axis
 * infr_op_scatter_nd_T_R
 *     bufs    x, indices, updates, out
 *     dims    index_bytes, depth, tuples, inner, x's first `depth` dims
 *     slices  ceil(inner / 16)
 * infr_op_det_T
 *     bufs    x, out, work
 *     dims    count, n
 *     slices  count
 *
 * T: a dtype of INFR_LIB_DTYPES by its name (det: f64 f32 f16 bf16); other types of one byte that
 *    are only ordered or moved go by the one with the same order (bool, u4, u2: u8; i4, i2: i8).
 * R: none add mul min max.
 *
 * topk: the k first of each row in the order greatest (largest = 1) or least first; a NaN counts
 *    as the greatest, equal values go by their index. values has x's type, indices is i64, both
 *    [outer, k, inner]. 0 <= k <= n. O(n log k) a row.
 * scatter_elements, scatter_nd: ONNX's. out is x, then updates in row-major order of the indices.
 *    index_bytes is 4 or 8 (i32, i64). A negative index counts from the end; an update whose index
 *    is out of range is left out. Sums and products of integers wrap; floats are rounded to T at
 *    each step; with min and max a NaN wins. x and out may be the same buffer.
 *    scatter_nd: `depth` is the last dim of the indices, `tuples` the product of its others, inner
 *    the product of x's dims from depth on. Few slices where the work is one axis: conflicting
 *    updates must stay in order.
 * det: of count matrices [n, n], by elimination with row pivots in f64. work is f64[count, n, n],
 *    contents undefined.
 */
#ifndef INFC_RUNTIME_ABI_LIBRARY_H
#define INFC_RUNTIME_ABI_LIBRARY_H

#include <stdbool.h>
#include <stdio.h>

#include "runtime/abi/dtype.h"
#include "runtime/abi/kernel.h"

/* X(name, DT_ id) */
#define INFR_LIB_DTYPES(X)                                                 \
    X(f64, DT_F64) X(f32, DT_F32) X(f16, DT_F16) X(bf16, DT_BF16)          \
    X(i8, DT_I8) X(u8, DT_U8) X(i16, DT_I16) X(u16, DT_U16)                \
    X(i32, DT_I32) X(u32, DT_U32) X(i64, DT_I64) X(u64, DT_U64)

/* X(name) */
#define INFR_LIB_REDUCTIONS(X) X(none) X(add) X(mul) X(min) X(max)

enum infr_lib_op { INFR_LIB_TOPK, INFR_LIB_SCATTER_ELEMENTS, INFR_LIB_SCATTER_ND, INFR_LIB_DET };

enum { INFR_LIB_SCATTER_ND_COLUMNS = 16 };

/* The dtype whose kernel serves d, DT_NONE where none does. moves_only: the op orders or moves
 * elements but computes none. */
static inline enum dtype infr_lib_dtype(enum dtype d, bool moves_only)
{
    switch (d) {
#define INFR_LIB_CASE(name, id) case id: return id;
    INFR_LIB_DTYPES(INFR_LIB_CASE)
#undef INFR_LIB_CASE
    case DT_BOOL: case DT_U4: case DT_U2: return moves_only ? DT_U8 : DT_NONE;
    case DT_I4: case DT_I2: return moves_only ? DT_I8 : DT_NONE;
    default: return DT_NONE;
    }
}

/* Symbol of the kernel into out; reduction: "none" .. for scatters, else ignored. False where there
 * is no such kernel. */
static inline bool infr_lib_symbol(enum infr_lib_op op, enum dtype d, const char *reduction,
                                   char *out, size_t out_bytes)
{
    static const char *const names[] = {"topk", "scatter_elements", "scatter_nd", "det"};
    static const char *const reductions[] = {
#define INFR_LIB_NAME(name) #name,
        INFR_LIB_REDUCTIONS(INFR_LIB_NAME)
#undef INFR_LIB_NAME
    };
    bool scatter = op == INFR_LIB_SCATTER_ELEMENTS || op == INFR_LIB_SCATTER_ND, known = !scatter;
    for (size_t i = 0; scatter && i < sizeof reductions / sizeof *reductions; i++)
        known = known || !strcmp(reductions[i], reduction);
    d = infr_lib_dtype(d, op == INFR_LIB_TOPK || (scatter && !strcmp(reduction, "none")));
    if (!known || !d || (op == INFR_LIB_DET && !dtype_is_float(d))) return false;
    snprintf(out, out_bytes, "infr_op_%s_%s%s%s", names[op], dtype_name(d), scatter ? "_" : "",
             scatter ? reduction : "");
    return true;
}

#define INFR_LIB_DECLARE_R(op, t, r) infr_kernel_fn infr_op_##op##_##t##_##r;
#define INFR_LIB_DECLARE_ALL(op, t)                                \
    INFR_LIB_DECLARE_R(op, t, none) INFR_LIB_DECLARE_R(op, t, add)  \
    INFR_LIB_DECLARE_R(op, t, mul) INFR_LIB_DECLARE_R(op, t, min)   \
    INFR_LIB_DECLARE_R(op, t, max)
#define INFR_LIB_DECLARE(t, id)                                    \
    infr_kernel_fn infr_op_topk_##t;                                \
    INFR_LIB_DECLARE_ALL(scatter_elements, t)                       \
    INFR_LIB_DECLARE_ALL(scatter_nd, t)
INFR_LIB_DTYPES(INFR_LIB_DECLARE)
#undef INFR_LIB_DECLARE
#undef INFR_LIB_DECLARE_ALL
#undef INFR_LIB_DECLARE_R
infr_kernel_fn infr_op_det_f64, infr_op_det_f32, infr_op_det_f16, infr_op_det_bf16;

#endif
