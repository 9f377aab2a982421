// SPDX-License-Identifier: Apache-2.0
/* What the rules of passes/patterns*.c share: matching and constants. */
#ifndef INFC_PASSES_PATTERNS_H
#define INFC_PASSES_PATTERNS_H

#include "ir/rewrite.h"

typedef bool pat_rule(struct rewriter *r, struct ir_op *op);

/* patterns_norm.c */
pat_rule pat_norm, pat_norm_scale, pat_norm_bias, pat_softmax, pat_log_softmax;
/* patterns_weights.c */
pat_rule pat_scale_weights, pat_shift_bias, pat_scale_input, pat_scale_matmul, pat_one_hot, pat_pad_into_conv;
/* patterns_move.c */
pat_rule pat_slice, pat_concat, pat_pad, pat_reduce_chain, pat_reduce_of_scaled, pat_div_div;
/* patterns_int.c */
pat_rule pat_int_conv;
/* patterns_dft.c */
pat_rule pat_dft;

/* The op of that code behind v, NULL when v is something else. */
struct ir_op *pat_def(const struct ir_value *v, enum ir_opcode code);
/* A constant whose elements are all one number. */
bool pat_splat(const struct ir_value *v, double *out);
bool pat_same_dims(const struct ir_type *a, const struct ir_type *b);
/* v behind a reshape that only adds or drops axes of size 1. */
struct ir_value *pat_strip(struct ir_value *v);
/* Axes of a reduction (attribute `axes`) as a mask. */
unsigned pat_axes(const struct ir_op *op);

/* A float constant as f64: n elements, splats expanded; NULL when v is no f32 or f64 constant. */
double *pat_floats(struct rewriter *r, const struct ir_value *v, int64_t *n);
/* A new constant of v's type family. */
struct ir_value *pat_constant(struct rewriter *r, const char *name, enum dtype t, int rank, const int64_t *dims, const double *data);

#endif
