// SPDX-License-Identifier: Apache-2.0
/*
 * Short names for float arithmetic of indexed expressions that compute coordinates (resampling, sampling). Constants
 * fold, because sizes are mostly constant and a division by a power of two is a multiplication.
 */
#ifndef INFC_PASSES_EXPR_NUM_H
#define INFC_PASSES_EXPR_NUM_H

#include "passes/expr.h"

/* f64 scalar constant. */
struct lp_value *num_f(struct expr_ctx *c, double v);
/* Constant behind v? */
bool num_is_const(const struct lp_value *v, double *out);
/* ADD SUB MUL DIV MIN MAX of two floats of one dtype. */
struct lp_value *num_op(struct expr_ctx *c, enum lp_opcode code, struct lp_value *a, struct lp_value *b);
struct lp_value *num_opc(struct expr_ctx *c, enum lp_opcode code, struct lp_value *a, double b);
/* An index below d as f64. */
struct lp_value *num_of_index(struct expr_ctx *c, struct lp_value *i, const struct dim *d);
/* d's value as f64. */
struct lp_value *num_of_dim(struct expr_ctx *c, const struct dim *d);
/* min(max(v, 0), d - 1) as an index: v is a whole number or is truncated. */
struct lp_value *num_to_index(struct expr_ctx *c, struct lp_value *v, const struct dim *d);
/* What sums of values of dtype t are kept in: f32 for f16 and bf16, f64 for integers (as the results of resampling are). */
enum dtype num_acc(enum dtype t);

#endif
