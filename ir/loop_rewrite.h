// SPDX-License-Identifier: Apache-2.0
/*
 * What the loop-to-loop rewrites share: raw op creation and surgery on blocks. A rewrite builds new ops with the
 * ordinary builder into a block of its own (`struct lp_block tmp = {0}`), then splices them where they belong.
 */
#ifndef INFC_IR_LOOP_REWRITE_H
#define INFC_IR_LOOP_REWRITE_H

#include "ir/loop.h"

struct lp_value *lp_value_create(struct lp_kernel *k, struct lp_type t, struct lp_op *def);
/* An op in no block yet; operands are copied, results made. */
struct lp_op *lp_op_create(struct lp_kernel *k, enum lp_opcode code, int n_operands,
                           struct lp_value *const *operands, int n_results, const struct lp_type *types);
void lp_append(struct lp_block *b, struct lp_op *op);
void lp_unlink(struct lp_op *op);
/* Moves all ops of `from` before `at`; `from` is empty afterwards. */
void lp_splice_before(struct lp_op *at, struct lp_block *from);

/* Value of an i64 op of two constants; false when it does not fold (overflow, division by 0, other ops). */
bool lp_fold_int(enum lp_opcode code, int64_t x, int64_t y, int64_t *out);

/* NULL, or what is wrong with one op's operands, attributes and results (not its regions' contents). */
const char *lp_check_op(const struct lp_kernel *k, const struct lp_op *op);
/* Shape of a pointwise result; false when a and b do not broadcast. */
bool lp_broadcast(struct lp_type a, struct lp_type b, struct lp_type *out);
/* Value of an integer constant of dtype d: wrapped to its width, sign or zero extended. */
int64_t lp_wrap_int(enum dtype d, int64_t v);
/* LOAD and STORE: number of the first index operand, and the bounds (NULL when absent). */
static inline int lp_first_index(const struct lp_op *op) { return op->code == LP_OP_STORE ? 1 : 0; }
struct lp_value *lp_nrows(const struct lp_kernel *k, const struct lp_op *op);
struct lp_value *lp_ncols(const struct lp_kernel *k, const struct lp_op *op);

#endif
