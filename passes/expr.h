// SPDX-License-Identifier: Apache-2.0
/*
 * Indexed expressions: every tensor op as "the element at these coordinates", written once in loop IR. The generic
 * lowering asks a group's root for its element and thereby inlines all producers of the group; schedules use the same
 * expressions for their prologues and epilogues.
 *
 * Written from the op table's semantics, independently of the evaluator (ir/eval.c), which tests them.
 */
#ifndef INFC_PASSES_EXPR_H
#define INFC_PASSES_EXPR_H

#include "ir/loop.h"
#include "ir/op.h"
#include "ir/target.h"

#define EXPR_TINY 8 /* a constant axis shorter than this makes no vector loop: reductions and whoever walks a result agree on it */

struct expr_memo; /* one element already computed in the current scope */

/*
 * A value whose elements come from somewhere else than its op: a schedule's accumulator, a row statistic. fn gets the
 * coordinates and emits the element.
 */
struct expr_override {
    const struct ir_value *value;
    struct lp_value *(*fn)(void *ctx, struct lp_value *const *idx);
    void *ctx;
};

struct expr_ctx {
    struct ir_module *m;
    struct lp_kernel *k;
    struct lp_builder b;
    struct diag_sink *diag;
    const struct target_level *level;
    struct map bufs;               /* ir_value id -> buffer number + 1 (group arguments and results) */
    VEC(struct expr_memo) memo;    /* by scope: loops push and pop */
    VEC(struct expr_override) overrides;
    struct lp_value *zero, *one;   /* index constants made in the kernel's first block */
    bool failed;                   /* an op had no expression: a diagnostic was reported */
};

void expr_init(struct expr_ctx *c, struct ir_module *m, struct lp_kernel *k, const struct target_level *level,
               struct diag_sink *diag);
/* Value v is stored in buffer number buf (v's dims are the buffer's). */
void expr_bind(struct expr_ctx *c, const struct ir_value *v, int buf);
int expr_buf(const struct expr_ctx *c, const struct ir_value *v); /* -1 when not bound */
void expr_override(struct expr_ctx *c, const struct ir_value *v,
                   struct lp_value *(*fn)(void *, struct lp_value *const *), void *ctx);

/*
 * The element of v at idx (v's rank of i64 scalars, in bounds). Emits at c->b. Never NULL: after a failure (c->failed)
 * a zero of the right type.
 */
struct lp_value *expr_at(struct expr_ctx *c, const struct ir_value *v, struct lp_value *const *idx);

/* Loops with the memo's scope kept right; use these instead of lp_for_* wherever expr_at is called inside. */
struct lp_op *expr_for_begin(struct expr_ctx *c, enum lp_loop_kind kind, struct lp_value *lo, struct lp_value *hi,
                             int64_t step, int n_carried, struct lp_value *const *init);
void expr_for_end(struct expr_ctx *c, struct lp_op *loop, struct lp_value *const *yields);
size_t expr_scope_push(struct expr_ctx *c);
void expr_scope_pop(struct expr_ctx *c, size_t mark);

/* Index helpers. */
struct lp_value *expr_dim(struct expr_ctx *c, const struct dim *d);
struct lp_value *expr_iadd(struct expr_ctx *c, struct lp_value *a, struct lp_value *b);
struct lp_value *expr_imul(struct expr_ctx *c, struct lp_value *a, struct lp_value *b);
/* Row-major number of coordinates, and back. */
struct lp_value *expr_linear(struct expr_ctx *c, int rank, const struct dim *const *dims, struct lp_value *const *idx);
void expr_delinear(struct expr_ctx *c, struct lp_value *linear, int rank, const struct dim *const *dims,
                   struct lp_value **idx);
/* min(max(x, 0), d - 1) */
struct lp_value *expr_clamp(struct expr_ctx *c, struct lp_value *x, const struct dim *d);
/* 0 <= x < d as bool */
struct lp_value *expr_in_bounds(struct expr_ctx *c, struct lp_value *x, const struct dim *d);
/* i < 0 ? i + d : i, clamped into [0, d): the index rule of the gather ops. */
struct lp_value *expr_wrap_index(struct expr_ctx *c, struct lp_value *i, const struct dim *d);
/* Coordinates of a broadcast operand: idx of the result (rank r) seen by an operand of type t. */
void expr_broadcast_idx(struct expr_ctx *c, const struct ir_type *t, int r, const struct dim *const *rdims,
                        struct lp_value *const *idx, struct lp_value **out);

/* One pointwise op on values that are already there (scalars or tiles); used by tile epilogues too. */
struct lp_value *expr_pointwise(struct expr_ctx *c, const struct ir_op *op, struct lp_value *const *args);

/* An op's expression: result number r at idx. NULL rows in the table = no generic expression. */
typedef struct lp_value *expr_fn(struct expr_ctx *c, const struct ir_op *op, int r, struct lp_value *const *idx);
expr_fn *expr_find(enum ir_opcode code);

#define EXPR(ID, name) expr_fn expr_##name;
#include "passes/expr.def"
#undef EXPR

#endif
