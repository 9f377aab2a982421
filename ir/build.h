// SPDX-License-Identifier: Apache-2.0
/*
 * Builder: creates an op, infers its result types, inserts it at the insertion point. Every function returns
 * NULL after a diagnostic when types do not fit; NULL operands then propagate (NULL in, NULL out), so that a caller may check
 * once at the end of a chain.
 */
#ifndef INFC_IR_BUILD_H
#define INFC_IR_BUILD_H

#include "ir/op.h"

struct ir_builder {
    struct ir_module *m;
    struct ir_block *block;     /* append here ... */
    struct ir_op *before;       /* ... or insert before this op when not NULL */
    const struct ir_loc *loc;   /* given to new ops */
};

/* General form: operands may hold NULL for optional ones left out (allow_null), attrs are copied. */
struct ir_op *ir_build(struct ir_builder *b, enum ir_opcode code, int n_operands,
                       struct ir_value *const *operands, int n_attrs, const struct ir_attr *attrs, int n_results);
struct ir_value *ir_build_unary(struct ir_builder *b, enum ir_opcode code, struct ir_value *x);
struct ir_value *ir_build_binary(struct ir_builder *b, enum ir_opcode code, struct ir_value *x, struct ir_value *y);
struct ir_value *ir_build_select(struct ir_builder *b, struct ir_value *c, struct ir_value *x, struct ir_value *y);
struct ir_value *ir_build_cast(struct ir_builder *b, struct ir_value *x, enum dtype to); /* x itself when same */
struct ir_value *ir_build_constant(struct ir_builder *b, struct ir_const *c);
/* Scalar (rank 0) constants, rounded to dtype. */
struct ir_value *ir_build_scalar_f(struct ir_builder *b, enum dtype dtype, double v);
struct ir_value *ir_build_scalar_i(struct ir_builder *b, enum dtype dtype, int64_t v);
struct ir_value *ir_build_ints(struct ir_builder *b, int n, const int64_t *v); /* i64[n] constant */
struct ir_value *ir_build_dimvec(struct ir_builder *b, int n, const struct dim *const *dims, bool scalar);
struct ir_value *ir_build_iota(struct ir_builder *b, enum dtype dtype, int rank, const struct dim *const *dims, int axis);
struct ir_value *ir_build_reshape(struct ir_builder *b, struct ir_value *x, int rank, const struct dim *const *dims);
struct ir_value *ir_build_transpose(struct ir_builder *b, struct ir_value *x, const int64_t *perm);
struct ir_value *ir_build_broadcast(struct ir_builder *b, struct ir_value *x, int rank, const struct dim *const *dims);
struct ir_value *ir_build_slice(struct ir_builder *b, struct ir_value *x, const struct dim *const *starts,
                                const int64_t *steps, const struct dim *const *sizes);
struct ir_value *ir_build_concat(struct ir_builder *b, int n, struct ir_value *const *xs, int axis);
struct ir_value *ir_build_gather(struct ir_builder *b, struct ir_value *x, struct ir_value *indices, int axis);
struct ir_value *ir_build_reduce(struct ir_builder *b, enum ir_opcode code, struct ir_value *x, int n_axes,
                                 const int64_t *axes, bool keepdims);
struct ir_value *ir_build_matmul(struct ir_builder *b, struct ir_value *x, struct ir_value *y, bool trans_a,
                                 bool trans_b, enum dtype acc /* DT_NONE = default */);

/*
 * What infer could not prove is checked at every call (ir_module.checks); what a branch of `if` needs, only when it is taken. So
 * the checks that arose since there were `first` move from the module to the front of the branch: nothing in it may run on
 * shapes that it does not fit. One that stands there already is not repeated.
 */
void ir_build_branch_checks(struct ir_builder *b, size_t first);

/* Attribute literals for ir_build. The arrays are copied by ir_build. */
static inline struct ir_attr ir_a_int(const char *n, int64_t v) { return (struct ir_attr){.name = n, .kind = IR_ATTR_INT, .i = v}; }
static inline struct ir_attr ir_a_float(const char *n, double v) { return (struct ir_attr){.name = n, .kind = IR_ATTR_FLOAT, .f = v}; }
static inline struct ir_attr ir_a_string(const char *n, const char *v) { return (struct ir_attr){.name = n, .kind = IR_ATTR_STRING, .s = v}; }
static inline struct ir_attr ir_a_dtype(const char *n, enum dtype v) { return (struct ir_attr){.name = n, .kind = IR_ATTR_DTYPE, .i = v}; }
static inline struct ir_attr ir_a_ints(const char *n, int c, const int64_t *v) { return (struct ir_attr){.name = n, .kind = IR_ATTR_INTS, .count = c, .ints = v}; }
static inline struct ir_attr ir_a_floats(const char *n, int c, const double *v) { return (struct ir_attr){.name = n, .kind = IR_ATTR_FLOATS, .count = c, .floats = v}; }
static inline struct ir_attr ir_a_dims(const char *n, int c, const struct dim *const *v) { return (struct ir_attr){.name = n, .kind = IR_ATTR_DIMS, .count = c, .dims = v}; }
static inline struct ir_attr ir_a_const(const char *n, struct ir_const *v) { return (struct ir_attr){.name = n, .kind = IR_ATTR_CONST, .c = v}; }

#endif
