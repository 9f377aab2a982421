// SPDX-License-Identifier: Apache-2.0
/*
 * Shape and dtype inference: one function for each name in the infer column of ir/ops.def, and what
 * they share. Contract of an infer function: infer_check has passed; it validates every attribute
 * value, sets all result types, and never trusts a number: hostile attributes give a diagnostic.
 * Calling it again changes nothing. Used by ir/op.c (which puts infer_check in front) and
 * ir/infer*.c only.
 */
#ifndef INFC_IR_INFER_H
#define INFC_IR_INFER_H

#include "ir/op.h"

#define INFER_LIST(X)                                                                 \
    X(none) X(probe) X(check_op) X(constant) X(dimvec) X(iota) X(if) X(group)         \
    X(same) X(float) X(test) X(cast) X(bitcast) X(binary) X(pow) X(compare) X(select) \
    X(reshape) X(transpose) X(broadcast) X(slice) X(pad) X(concat)                    \
    X(gather) X(gather_elements) X(gather_nd) X(scatter_elements) X(scatter_nd)       \
    X(resize) X(reverse_sequence) X(grid_sample) X(roi_align) X(col2im)               \
    X(reduce) X(arg) X(topk) X(matmul) X(conv) X(conv_transpose) X(pool_max) X(pool_avg) \
    X(qmatmul) X(qmatmul_experts) X(qgather) X(round_rows) X(quant_rows) X(qmatmul_int) X(qgather_blocks) X(layer_norm) X(lstm) X(gru) X(dft) X(det)                                         \
    X(kv_write) X(paged_attention) X(matmul_experts)
#define X(name) bool infer_##name(struct ir_module *m, struct ir_op *op);
INFER_LIST(X)
#undef X

/* Counts of operands and results, required operands, names and kinds of attributes, number of
 * regions. */
bool infer_check(struct ir_module *m, struct ir_op *op);

/* "matmul(f32[2, 3], f32[4, 5]): message", at op->loc; returns false. */
bool infer_fail(struct ir_module *m, const struct ir_op *op, enum diag_id id, const char *fmt, ...)
    INFC_PRINTF(4, 5);

/* Attribute `name` within [lo, hi]. */
bool infer_int(struct ir_module *m, const struct ir_op *op, const char *name, int64_t lo,
               int64_t hi, int64_t dflt, int64_t *out);
/* An axis: 0 <= axis < rank. */
bool infer_axis(struct ir_module *m, const struct ir_op *op, const char *name, int rank, int *out);
/* 0 or 1. */
bool infer_flag(struct ir_module *m, const struct ir_op *op, const char *name, bool dflt,
                bool *out);
/* Finite float within [lo, hi]. */
bool infer_real(struct ir_module *m, const struct ir_op *op, const char *name, double lo,
                double hi);
/* One word of a space-separated list; the first is the default. */
bool infer_word(struct ir_module *m, const struct ir_op *op, const char *name, const char *words);
/* count ints within [lo, hi]; absent: all dflt (when dflt is within the bounds). out has room for 2
 * * IR_MAX_RANK. */
bool infer_ints(struct ir_module *m, const struct ir_op *op, const char *name, int count,
                int64_t lo, int64_t hi, int64_t dflt, int64_t *out);
/* count dims (-1: any up to IR_MAX_RANK, given back in *out_count); none overflows; absent: all
 * zero. */
bool infer_dims(struct ir_module *m, const struct ir_op *op, const char *name, int count,
                const struct dim **out, int *out_count);

/* a <= b: true when proved or added as a run-time check; false with a diagnostic when provably not.
 */
bool infer_le(struct ir_module *m, const struct ir_op *op, const struct dim *a, const struct dim *b,
              const char *what);
bool infer_eq(struct ir_module *m, const struct ir_op *op, const struct dim *a, const struct dim *b,
              const char *what);
/* ir_broadcast_dims with the op in the message. */
bool infer_join(struct ir_module *m, const struct ir_op *op, const struct ir_type *a,
                const struct ir_type *b, const struct dim **out, int *out_rank);
/* Element type of a contraction's sum and result: attribute `acc`, or operand 0's. */
bool infer_acc(struct ir_module *m, struct ir_op *op, enum dtype *out);
/* Sets result i; every dim must be free of overflow and not provably negative. */
bool infer_set(struct ir_module *m, struct ir_op *op, int i, enum dtype dtype, int rank,
               const struct dim *const *dims);

bool infer_rank(struct ir_module *m, const struct ir_op *op, int operand, int rank);
bool infer_dtype(struct ir_module *m, const struct ir_op *op, int operand, enum dtype dtype);

enum infer_class { INFER_NUMBER = 1, INFER_FLOAT = 2, INFER_INT = 4, INFER_BOOL = 8 };
/* Operand i's dtype is of one of the classes (bit set; NUMBER = FLOAT or INT). */
bool infer_class(struct ir_module *m, const struct ir_op *op, int operand, unsigned classes);

static inline const struct ir_type *infer_type(const struct ir_op *op, int i)
{
    return &op->operands[i].value->type;
}

#endif
