// SPDX-License-Identifier: Apache-2.0
/*
 * Inside of the evaluator (ir/eval*.c only). An op's function gets its operands as dense tensors, its results allocated
 * with the shapes that the IR declares, and checks that these shapes agree before it touches any element.
 *
 * Elements are computed in blocks: floats of every width as f64, integers and bool as sign- or zero-extended 64-bit
 * words; a store rounds or truncates to the element type. +, -, *, / and sqrt of f32 done in f64 and rounded once more
 * are correctly rounded (53 >= 2 * 24 + 2).
 */
#ifndef INFC_IR_EVAL_IMPL_H
#define INFC_IR_EVAL_IMPL_H

#include "ir/eval.h"
#include "ir/op.h"

#define EVAL_BLOCK 256

/* One element being computed: f for floats, i / u for the rest (bool: 0 or 1). */
union eval_lane {
    double f;
    int64_t i;
    uint64_t u;
};

struct eval_scratch;

struct eval_call {
    const struct ir_op *op;
    struct ir_module *m;
    const int64_t *syms; /* NULL: no symbol has a value */
    const bool *bound;   /* NULL: all of syms have one */
    struct diag_sink *diag;
    int n_threads;
    int n_in, n_out;
    const struct ir_tensor *in; /* data NULL: left out */
    struct ir_tensor *out;
    struct eval_scratch *scratch;
};

typedef bool (*eval_fn)(struct eval_call *c);
/* NULL for ops that the driver handles itself (constant, return, regions). */
eval_fn eval_find(enum ir_opcode code);

/* Always false, after a diagnostic at the op that starts with its name. */
bool eval_fail(struct eval_call *c, enum diag_id id, const char *fmt, ...) INFC_PRINTF(3, 4);
/* Zeroed memory until the op is done; NULL after a diagnostic. */
void *eval_scratch(struct eval_call *c, int64_t count, size_t elem_bytes);
bool eval_dim(struct eval_call *c, const struct dim *d, int64_t *out);
/* Attribute `name` of exactly n dims; absent: filled with dflt. */
bool eval_dims(struct eval_call *c, const char *name, int n, int64_t dflt, int64_t *out);
/* Attribute `name` of exactly n ints; absent: filled with dflt. */
bool eval_ints(struct eval_call *c, const char *name, int n, int64_t dflt, int64_t *out);
/* Attribute `name`, normalised or negative, as an axis of a tensor of that rank. */
bool eval_axis(struct eval_call *c, const char *name, int64_t dflt, int rank, int *out);
static inline const struct ir_tensor *eval_in(const struct eval_call *c, int i)
{
    return i < c->n_in && c->in[i].data ? &c->in[i] : NULL;
}

/* Does this operand of the op read encoded constants? */
bool eval_takes_encoding(enum ir_opcode code, int operand);

/* Product of dims[from .. to); the driver has checked that whole tensors do not overflow. */
int64_t eval_product(const int64_t *dims, int from, int to);
static inline int64_t eval_count(const struct ir_tensor *t) { return eval_product(t->dims, 0, t->rank); }
/* Checks result i's shape (and dtype unless DT_NONE). */
bool eval_expect(struct eval_call *c, int i, enum dtype dtype, int rank, const int64_t *dims);
/* Operand i exists, has one of the classes in the mask (1 << DTC_x) and, if rank >= 0, that rank. */
bool eval_need(struct eval_call *c, int i, unsigned classes, int rank);
#define EVAL_FLOAT (1u << DTC_FLOAT)
#define EVAL_INT (1u << DTC_SINT | 1u << DTC_UINT)
#define EVAL_BOOL (1u << DTC_BOOL)
#define EVAL_ANY (EVAL_FLOAT | EVAL_INT | EVAL_BOOL)

/* A strided look at a tensor's elements; strides and offset in elements, strides may be 0 or negative. */
struct eval_view {
    enum dtype dtype;
    int esize;
    char *data;
    int64_t offset;
    int rank;
    int64_t dims[2 * IR_MAX_RANK], strides[2 * IR_MAX_RANK];
};

struct eval_view eval_view_dense(const struct ir_tensor *t);
/* The numpy way to a bigger shape; false when that does not work. */
bool eval_view_broadcast(struct eval_view *v, int rank, const int64_t *dims);
void eval_view_permute(struct eval_view *v, const int *perm);
/* Moves axis to the end. */
void eval_view_axis_last(struct eval_view *v, int axis);
/* Joins axes that are walked as one. Enumeration order stays. */
void eval_view_collapse(struct eval_view *v);
int64_t eval_view_count(const struct eval_view *v);
/* Elements [start, start + n) in row-major order of the view. Floats to .f, everything else to .i. */
void eval_view_load(const struct eval_view *v, int64_t start, int64_t n, union eval_lane *out);
/* The elements' bits, zero-extended. */
void eval_view_load_bits(const struct eval_view *v, int64_t start, int64_t n, union eval_lane *out);
void eval_view_store(const struct eval_view *v, int64_t start, int64_t n, const union eval_lane *in);
void eval_view_store_bits(const struct eval_view *v, int64_t start, int64_t n, const union eval_lane *in);
/* Copies all elements densely to dst. */
void eval_view_copy(const struct eval_view *v, void *dst);

/* n elements at data[(offset + i * stride)]. */
void eval_load(enum dtype dtype, const void *data, int64_t offset, int64_t stride, int64_t n, union eval_lane *out);
void eval_store(enum dtype dtype, void *data, int64_t offset, int64_t stride, int64_t n, const union eval_lane *in);
/* Like eval_load, but the value as f64 whatever the class. */
void eval_load_f(enum dtype dtype, const void *data, int64_t offset, int64_t stride, int64_t n, union eval_lane *out);
double eval_get_f(const struct ir_tensor *t, int64_t i);
int64_t eval_get_i(const struct ir_tensor *t, int64_t i);
void eval_set_f(struct ir_tensor *t, int64_t i, double v);
void eval_set_i(struct ir_tensor *t, int64_t i, int64_t v);
/* f64 to int64 by truncation, NaN 0, out of range: INT64_MIN; values in [2^63, 2^64) keep their bits for u64. */
int64_t eval_trunc(double v);
/* NaN wins; -0 counts as less than +0, so that both commute. */
double eval_min_f64(double a, double b);
double eval_max_f64(double a, double b);

/*
 * Runs fn(arg, from, to) over [0, n) in contiguous shares, on up to c->n_threads threads when n >= 2 * grain. fn must
 * not report or allocate scratch, and each item must write only what is its own.
 */
void eval_parallel(struct eval_call *c, int64_t n, int64_t grain, void (*fn)(void *arg, int64_t from, int64_t to),
                   void *arg);

#endif
