// SPDX-License-Identifier: Apache-2.0
/*
 * Loop IR -> LLVM IR, one kernel at a time. A value of R rows and C columns is R LLVM values: scalars when C is 1,
 * else <C x T> (LLVM splits or widens them to the level's registers). In registers bool is i1, floats below 32 bits
 * are their bits in i16 or i8 (arithmetic goes through f32 and rounds), sub-byte integers are sign- or zero-extended i8.
 *
 * Nothing here may leave a call to a library function: engines link none of compiler-rt.
 *
 * Address arithmetic is placed in the outermost region where its operands exist, because scheduled kernels run no
 * LLVM pass at all. `depth` counts regions: 0 is the function's entry, 1 the slice loop's body.
 */
#ifndef INFC_TARGETS_CPU_EMIT_H
#define INFC_TARGETS_CPU_EMIT_H

#include <stdlib.h>

#include "ir/dim.h"
#include "ir/target.h"
#include "targets/cpu/llvm_compat.h"

#define CG_MAX_DEPTH 64
#define CG_STACK_LIMIT_BYTES (256 * 1024)
#define CG_OP_LIMIT 200000 /* emitted ops after unrolling: beyond is a schedule gone wrong */

struct cg_value {
    LLVMValueRef *rows;
    int depth; /* innermost region its value depends on */
};

struct cg_buf {
    LLVMValueRef base;
    LLVMValueRef scope, noalias; /* metadata lists, NULL without */
    LLVMValueRef *strides;       /* one an axis, i64 elements */
    bool invariant;
};

struct cg {
    const struct target_level *level;
    struct lp_kernel *k;
    struct diag_sink *diag;
    struct arena arena;
    LLVMContextRef c;
    LLVMModuleRef m;
    LLVMBuilderRef b;
    LLVMValueRef fn;
    LLVMBasicBlockRef entry;
    LLVMTypeRef i1, i8, i16, i32, i64, f32, f64, ptr;
    struct cg_buf *bufs;
    LLVMValueRef *dims;
    LLVMValueRef fmod64; /* helper function, made on first use */
    LLVMBasicBlockRef pre[CG_MAX_DEPTH]; /* pre[d]: last block of depth d - 1 before region d, ends in a branch */
    int depth;
    size_t n_ops;
    size_t scratch_bytes;
    unsigned md_alias_scope, md_noalias, md_invariant;
    bool failed;
};

/* Builds the function `symbol` for the kernel; false after a diagnostic. */
bool cg_kernel(struct cg *g, const char *symbol);
bool cg_fail(struct cg *g, enum diag_id id, const char *what, const char *name);

/* ---- small helpers (emit.c) ---- */
struct cg_value *cg_get(struct cg *g, const struct lp_value *v);
LLVMTypeRef cg_elem_type(struct cg *g, enum dtype d); /* in registers */
LLVMTypeRef cg_mem_type(struct cg *g, enum dtype d);
LLVMTypeRef cg_vec(LLVMTypeRef elem, int n); /* elem when n is 1 */
LLVMValueRef cg_i64(struct cg *g, int64_t v);
LLVMValueRef cg_int(LLVMTypeRef elem, int n, int64_t v);  /* splat */
LLVMValueRef cg_real(LLVMTypeRef elem, int n, double v); /* splat */
LLVMValueRef cg_splat(struct cg *g, LLVMValueRef x, int n); /* scalar to n columns */
LLVMValueRef cg_call(struct cg *g, const char *intrinsic, LLVMTypeRef overload, LLVMValueRef *args, int n);
LLVMValueRef cg_select(struct cg *g, LLVMValueRef c, LLVMValueRef x, LLVMValueRef y);
LLVMValueRef cg_icmp(struct cg *g, LLVMIntPredicate p, LLVMValueRef x, LLVMValueRef y);
LLVMValueRef cg_fcmp(struct cg *g, LLVMRealPredicate p, LLVMValueRef x, LLVMValueRef y);
LLVMValueRef cg_alloca(struct cg *g, size_t n_bytes, unsigned align);
LLVMBasicBlockRef cg_block(struct cg *g);
/* Row r of v, as wide as cols. */
LLVMValueRef cg_row(struct cg *g, const struct lp_value *v, int r, int cols);
/* Sets the insertion point to the end of what region `depth` has run before the current region; and back. */
LLVMBasicBlockRef cg_enter_depth(struct cg *g, int depth);
void cg_leave_depth(struct cg *g, LLVMBasicBlockRef saved);
struct cg_value *cg_set(struct cg *g, struct lp_value *v, int depth);

/* A counted loop over i64 [0, n) with body between begin and end; n may be 0 or less. */
struct cg_count {
    LLVMBasicBlockRef head, exit;
    LLVMValueRef i, n;
};
void cg_count_begin(struct cg *g, struct cg_count *l, LLVMValueRef n);
void cg_count_end(struct cg *g, struct cg_count *l);

/* ---- arithmetic on one row of n columns (emit_math.c, emit_div.c, emit_cast.c) ---- */
LLVMValueRef cg_unary(struct cg *g, enum lp_opcode op, enum dtype d, int n, LLVMValueRef x);
/* a_num, b_num: the operand is known not to be NaN. */
LLVMValueRef cg_binary(struct cg *g, enum lp_opcode op, enum dtype d, int n, LLVMValueRef a, LLVMValueRef b,
                       bool a_num, bool b_num);
LLVMValueRef cg_fma(struct cg *g, enum dtype d, int n, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c);
/* DIV REM MOD FLOORDIV of integers; REM and MOD of f32 and f64. */
LLVMValueRef cg_int_div(struct cg *g, enum lp_opcode op, enum dtype d, int n, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef cg_float_rem(struct cg *g, enum lp_opcode op, enum dtype d, int n, LLVMValueRef a, LLVMValueRef b);
/* Sign- or zero-extends a sub-byte integer after arithmetic; other dtypes pass. */
LLVMValueRef cg_wrap(struct cg *g, enum dtype d, int n, LLVMValueRef x);
/* small_range: the float is known to lie within (-2^31, 2^31) or to be NaN. */
LLVMValueRef cg_cast(struct cg *g, enum dtype from, enum dtype to, int n, LLVMValueRef x, bool small_range);
LLVMValueRef cg_to_f32(struct cg *g, enum dtype d, int n, LLVMValueRef x);   /* any float but f64 */
LLVMValueRef cg_from_f32(struct cg *g, enum dtype d, int n, LLVMValueRef x); /* any float but f64 */
static inline bool cg_is_soft(enum dtype d) { return dtype_is_float(d) && d != DT_F32 && d != DT_F64; }

/* ---- whole ops ---- */
/* May take the ops that follow along: *last is the last one that has its code. */
bool cg_pointwise(struct cg *g, struct lp_op *op, struct lp_op **last);
/* Code of one op, or of some that follow one another. */
bool cg_op(struct cg *g, struct lp_op *op, struct lp_op **last);
bool cg_count_op(struct cg *g, const struct lp_op *op); /* false after a diagnostic: too much, too large, no code */
bool cg_tile_op(struct cg *g, struct lp_op *op); /* IOTA SPLAT EXTRACT BYTES REDUCE MMA (emit_tile.c) */
bool cg_mma_tiles(struct cg *g, struct lp_op *op); /* MMA of 8-bit integers by the tiles of AMX; false: does not fit them (emit_amx.c) */
bool cg_memory(struct cg *g, struct lp_op *op);  /* LOAD STORE (emit_mem.c) */
/* Where row 0 of a LOAD lies and the bytes from row to row; false when rows are not whole and contiguous. */
bool cg_load_place(struct cg *g, struct lp_op *load, LLVMValueRef *at, LLVMValueRef *row_bytes);
void cg_prefetch(struct cg *g, struct lp_op *op);

#endif
