// SPDX-License-Identifier: Apache-2.0
/*
 * Loop IR: one kernel each; structured SSA over scalars and tiles. Every target consumes it.
 *
 * A kernel's body runs once a *slice*: block argument 0 of the body is the slice number in [0, slices). Slices are
 * independent (the parallel axis): a CPU divides them between threads, a GPU makes them the grid. Each output element is
 * written by one slice. Results never depend on which worker runs which slice.
 *
 * Invariants (checked by lp_verify): SSA with lexical scoping; operand types fit; indices are i64; every access is in
 * bounds or guarded (checked by lp_eval); buffers of space ARG are what the launch passes, in order; STACK buffers
 * have constant dims and are private to a slice (undefined at its start).
 *
 * Canonical text (lp_print with canonical = true) holds no names of values, buffers, kernel, locations or symbols: equal text =
 * same kernel; its hash is the kernel's identity in caches.
 *
 * Memory: everything lives in the kernel's arena.
 */
#ifndef INFC_IR_LOOP_H
#define INFC_IR_LOOP_H

#include "ir/support/diag.h"
#include "ir/type.h"

#define LP_F_PW 1u
#define LP_F_MATH 2u
#define LP_F_MEM 4u
#define LP_F_REGION 8u

enum lp_opcode {
#define LP(ID, name, n_operands, result, flags, doc) LP_OP_##ID,
#include "ir/loop_ops.def"
#undef LP
    LP_OP_COUNT
};

struct lp_type {
    enum dtype dtype;
    uint16_t rows, cols; /* 1x1 = scalar */
};

struct lp_op;
struct lp_block;

struct lp_value {
    struct lp_type type;
    struct lp_op *def; /* NULL: block argument */
    uint32_t id;
    void *aux; /* scratch of the running pass or printer */
};

enum lp_loop_kind {
    LP_LOOP_SERIAL,
    LP_LOOP_UNROLL,   /* constant bounds; the target unrolls it fully */
    LP_LOOP_VECTOR    /* iterations are independent but for carried reductions; lp_vectorize
                         widens it. A target that still sees it runs it serially. */
};

enum lp_reduce_kind { LP_RED_ADD, LP_RED_MUL, LP_RED_MIN, LP_RED_MAX, LP_RED_AND, LP_RED_OR };

struct lp_op {
    enum lp_opcode code;
    int n_operands, n_results, n_regions;
    struct lp_value **operands;
    struct lp_value **results;
    struct lp_block *regions[2];
    int64_t imm;   /* CONST integers and bool; FOR: step */
    double fimm;   /* CONST floats */
    int index;     /* DIM, EXTRACT, MMA k; DOT_BLOCKS code; FOR: enum lp_loop_kind; REDUCE: enum lp_reduce_kind */
    int buf;       /* LOAD, STORE: buffer number */
    int row_axis, col_axis;  /* LOAD, STORE */
    bool has_nrows, has_ncols;
    struct lp_op *prev, *next;
    struct lp_block *block;
};

struct lp_block {
    struct lp_op *first, *last;
    struct lp_op *parent; /* NULL: kernel body */
    int n_args;
    struct lp_value **args;
};

enum lp_space { LP_SPACE_ARG, LP_SPACE_STACK, LP_SPACE_SHARED };

struct lp_buf {
    const char *name;
    enum dtype dtype;
    enum lp_space space;
    int rank;
    const struct dim *const *dims;    /* physical shape, elements */
    const struct dim *const *strides; /* elements; row-major unless set otherwise */
    bool writable;
    int align_bytes; /* of the base address: element size at least */
    /*
     * ARG: slice s touches nothing but a part of its own, and this text, which lives as long as the module, says how the buffer is cut
     * into parts: with the same text, bytes and number of slices, the parts are the same. NULL: unknown.
     */
    const char *cut;
};

struct lp_kernel {
    struct arena arena;
    const char *name;     /* symbol-like, for people: matmul_bias_gelu_7 */
    const char *loc;      /* the user's nodes */
    const char *schedule; /* "generic", "matmul", "rows", ...: what the report says */
    struct dim_ctx *dims_ctx;
    VEC(struct lp_buf) bufs; /* ARG buffers first, in the launch's order */
    int n_arg_bufs;
    VEC(const struct dim *) dims; /* dim parameters, in the launch's order */
    const struct dim *slices;
    /* A worker claims this many slices at a time when slices are uneven; 0 = one contiguous share each. */
    int64_t claim;
    /* GPUs: a slice is the work of so many threads together, over the tiles of DOT; 0: of one. */
    int cta_threads;
    /* Each of its warps has 16 rows of a tile and all its columns (tiles of attention); else as DOT over tiles of 64 x 64 wants. */
    bool cta_warp_rows;
    const struct dim *flops, *bytes; /* estimates a launch, for profiles; NULL = unknown */
    struct lp_block *body;
    uint32_t next_id;
    int n_vectorized; /* loops that lp_vectorize widened, for reports */
    /*
     * The next kernel of a chain: a group that is several launches, one behind the other. All have the group's operands and results; ARG buffers
     * behind them are scratch memory, the n-th of one kernel being the n-th of the others.
     */
    struct lp_kernel *then;
};

struct lp_kernel *lp_kernel_create(struct dim_ctx *ctx, const char *name, const char *loc, const char *schedule);
void lp_kernel_destroy(struct lp_kernel *k);
/* Adds an ARG buffer (before any STACK buffer), row-major; its non-constant strides become dim parameters. */
int lp_add_arg(struct lp_kernel *k, const char *name, enum dtype dtype, int rank, const struct dim *const *dims,
               bool writable, int align_bytes);
int lp_add_stack(struct lp_kernel *k, const char *name, enum dtype dtype, int rank, const int64_t *dims);
/* The number of d among the dim parameters, added when new. */
int lp_dim_param(struct lp_kernel *k, const struct dim *d);

struct lp_builder {
    struct lp_kernel *k;
    struct lp_block *block; /* appends here */
};

static inline struct lp_type lp_scalar(enum dtype d) { return (struct lp_type){d, 1, 1}; }
static inline struct lp_type lp_vector(enum dtype d, int cols) { return (struct lp_type){d, 1, (uint16_t)cols}; }
static inline struct lp_type lp_tile(enum dtype d, int rows, int cols) { return (struct lp_type){d, (uint16_t)rows, (uint16_t)cols}; }

struct lp_block *lp_block_create(struct lp_kernel *k, struct lp_op *parent);
struct lp_value *lp_block_arg(struct lp_kernel *k, struct lp_block *b, struct lp_type t);

/* Constants and dims. Index arithmetic (i64 ADD SUB MUL FLOORDIV MOD MIN MAX of constants and x+0, x*1, x*0) folds. */
struct lp_value *lp_const_i(struct lp_builder *b, struct lp_type t, int64_t v);
struct lp_value *lp_const_f(struct lp_builder *b, struct lp_type t, double v);
struct lp_value *lp_index(struct lp_builder *b, int64_t v); /* i64 scalar */
struct lp_value *lp_dim(struct lp_builder *b, const struct dim *d); /* constant or LP_DIM */
struct lp_value *lp_iota(struct lp_builder *b, enum dtype dtype, int cols);
struct lp_value *lp_iota_rows(struct lp_builder *b, enum dtype dtype, int rows); /* a column */
bool lp_is_const(const struct lp_value *v, int64_t *out);

struct lp_value *lp_unary(struct lp_builder *b, enum lp_opcode code, struct lp_value *x);
struct lp_value *lp_binary(struct lp_builder *b, enum lp_opcode code, struct lp_value *x, struct lp_value *y);
struct lp_value *lp_select(struct lp_builder *b, struct lp_value *c, struct lp_value *x, struct lp_value *y);
struct lp_value *lp_fma(struct lp_builder *b, struct lp_value *x, struct lp_value *y, struct lp_value *z);
struct lp_value *lp_cast(struct lp_builder *b, struct lp_value *x, enum dtype to); /* x when same */
struct lp_value *lp_bitcast(struct lp_builder *b, struct lp_value *x, enum dtype to);
struct lp_value *lp_splat(struct lp_builder *b, struct lp_value *x, int rows, int cols);
struct lp_value *lp_extract(struct lp_builder *b, struct lp_value *x, int index);
struct lp_value *lp_interleave(struct lp_builder *b, struct lp_value *x);
/* to: DT_I8 or DT_U8 */
struct lp_value *lp_bytes(struct lp_builder *b, struct lp_value *x, enum dtype to);
struct lp_value *lp_reduce(struct lp_builder *b, enum lp_reduce_kind kind, struct lp_value *x);
struct lp_value *lp_mma(struct lp_builder *b, struct lp_value *acc, struct lp_value *x, struct lp_value *y, int k);

struct lp_value *lp_dot(struct lp_builder *b, struct lp_value *acc, struct lp_value *x, struct lp_value *y);
/* code: blocks_code of ir/blocks.h */
struct lp_value *lp_dot_blocks(struct lp_builder *b, struct lp_value *acc, struct lp_value *words, struct lp_value *sum, struct lp_value *units, int code);

struct lp_value *lp_load(struct lp_builder *b, int buf, struct lp_value *const *idx); /* scalar, or gather */
struct lp_value *lp_load_tile(struct lp_builder *b, int buf, struct lp_value *const *idx, int rows, int cols,
                              int row_axis, int col_axis, struct lp_value *nrows, struct lp_value *ncols);
void lp_store(struct lp_builder *b, int buf, struct lp_value *const *idx, struct lp_value *v);
/* A hint: the line of that element will be read soon. The index may lie past the end. */
void lp_prefetch(struct lp_builder *b, int buf, struct lp_value *const *idx);
/* The same for what is read later: into the second-level cache only. */
void lp_prefetch_far(struct lp_builder *b, int buf, struct lp_value *const *idx);
void lp_store_tile(struct lp_builder *b, int buf, struct lp_value *const *idx, struct lp_value *v, int row_axis,
                   int col_axis, struct lp_value *nrows, struct lp_value *ncols);

/*
 * Loops: lp_for_begin returns the op and moves the builder into its body (counter = regions[0]->args[0], carried =
 * args[1..]); lp_for_end(b, op, yields) closes it and moves back; results are op->results.
 */
struct lp_op *lp_for_begin(struct lp_builder *b, enum lp_loop_kind kind, struct lp_value *lo, struct lp_value *hi,
                           int64_t step, int n_carried, struct lp_value *const *init);
void lp_for_end(struct lp_builder *b, struct lp_op *loop, struct lp_value *const *yields);
/* lp_if_begin -> then-block; lp_if_else(b, op, then yields) -> else-block; lp_if_end(b, op, else yields). */
struct lp_op *lp_if_begin(struct lp_builder *b, struct lp_value *cond, int n_results, const struct lp_type *types);
void lp_if_else(struct lp_builder *b, struct lp_op *op, struct lp_value *const *then_yields);
void lp_if_end(struct lp_builder *b, struct lp_op *op, struct lp_value *const *else_yields);

/* Text; parse reads what print writes (not the canonical form). */
void lp_print(struct strbuf *out, const struct lp_kernel *k, bool canonical);
struct lp_kernel *lp_parse(const char *text, size_t len, const char *file, struct dim_ctx *ctx,
                           struct diag_sink *diag);
bool lp_verify(const struct lp_kernel *k, struct diag_sink *diag);

/*
 * Evaluator: runs all slices serially in slice order, checks every access against the buffer's dims, and that no
 * element is written by two slices. sym_values as in dim_eval. bufs[i]: dense storage of ARG buffer i by its strides.
 */
bool lp_eval(const struct lp_kernel *k, void *const *bufs, const int64_t *sym_values, struct diag_sink *diag);

/* Loop-to-loop rewrites that every target shares. */
void lp_expand_math(struct lp_kernel *k);              /* MATH ops -> polynomials; ulp bounds stated in the file */
void lp_vectorize(struct lp_kernel *k, int vector_bytes); /* widens LP_LOOP_VECTOR loops */
/* masked: what is left of a loop is one step with bounds (for targets with mask registers), else a scalar loop. */
void lp_vectorize_as(struct lp_kernel *k, int vector_bytes, bool masked);
void lp_simplify(struct lp_kernel *k);                 /* CSE, loop-invariant code out, dead code away */

const char *lp_op_name(enum lp_opcode code);
unsigned lp_op_flags(enum lp_opcode code);
enum lp_opcode lp_opcode_find(const char *name, size_t len);

#endif
