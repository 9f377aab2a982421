// SPDX-License-Identifier: Apache-2.0
/*
 * Lowering: grouped tensor IR to a plan of kernels.
 *
 * Each group becomes one kernel a level. The group's anchor (its op that is neither pointwise nor moving) chooses the
 * schedule: lower_table in lower.c asks each family in turn; the generic lowering takes what none wants. A schedule must
 * give the kernel's ARG buffers in the order group operands, then results, and the same packing of constants on every
 * level.
 */
#ifndef INFC_PASSES_LOWER_H
#define INFC_PASSES_LOWER_H

#include "ir/plan.h"
#include "ir/target.h"
#include "passes/expr.h"
#include "passes/knobs.h"

/* One group on its way to a kernel for one level. */
struct lower_ctx {
    struct ir_module *m;
    struct ir_op *group;
    struct ir_block *body;
    struct ir_op *yield;
    struct ir_op *anchor; /* NULL: pointwise and moving ops only */
    const struct target_level *level;
    struct diag_sink *diag;
    struct lp_kernel *k;
    struct expr_ctx e;
    struct plan_pack *packs; /* one an operand: schedules fill in those of constant operands */
    const struct ir_const **operand_consts; /* one an operand: NULL when it is no constant */
    struct lp_kernel *chain; /* kernels already built, the last one first (lower_next) */
    const struct lp_kernel *like; /* this kernel at an earlier level, whose dim parameters are repeated first; NULL */
    struct knob_uses *knobs; /* NULL: the cost model decides, nothing is recorded */
    const struct dim *pitch; /* of result 0, whose rows are parts of longer ones: elements from row to row; NULL: none */
};

enum lower_result { LOWER_DONE, LOWER_NOT_MINE, LOWER_FAILED };

/* A schedule family: builds l->k (created, buffers bound) or says that the group is not its. */
typedef enum lower_result lower_fn(struct lower_ctx *l);
lower_fn lower_matmul, lower_qmatmul, lower_quant_rows, lower_winograd, lower_conv, lower_pool, lower_rows, lower_attention, lower_attention_rows, lower_kv_write;
lower_fn lower_attention_dense, lower_depthwise, lower_shuffle, lower_scatter, lower_topk, lower_rnn, lower_pad, lower_generic, lower_dot, lower_dot_blocks, lower_flash;

/* A tile epilogue over flattened rows serves when every other operand has the result's shape or no row axes. */
bool lower_epilogue_is_flat(const struct lower_ctx *l);
/* Views buffer buf as rows x cols. */
void lower_set_2d(struct lower_ctx *l, int buf, const struct dim *rows, const struct dim *cols);
/* The result as rows x columns; epilogue operands of its shape keep their rank, with all rows on the row axis. The rows. */
const struct dim *lower_flatten(struct lower_ctx *l);

/*
 * Ends the kernel l->k, whose name gets the suffix, and starts another one of the same group, launched behind it (struct lp_kernel, then).
 */
void lower_next(struct lower_ctx *l, const char *suffix);
const char *lower_part_name(struct lower_ctx *l, const char *suffix);

/* Helpers for schedules. */
int lower_operand_buf(const struct lower_ctx *l, const struct ir_value *block_arg); /* buffer number */
int lower_result_buf(const struct lower_ctx *l, int i);
/* Operand number of a block argument, -1 when v is none. */
int lower_operand_of(const struct lower_ctx *l, const struct ir_value *v);
/* The buffer takes the packed shape; readers index the packed form. */
void lower_set_pack(struct lower_ctx *l, int operand, const struct plan_pack *pack, int align_bytes);
/* i64: the slice number. */
struct lp_value *lower_slice(struct lower_ctx *l);
void lower_set_slices(struct lower_ctx *l, const struct dim *slices);
/* true when all ops from anchor's result 0 to the root are pointwise on the anchor's shape, so that a tile epilogue serves. */
bool lower_tile_epilogue_ok(const struct lower_ctx *l);
/*
 * The root's tile: v is the tile of the anchor's result at coordinates idx (the tile's first row along row_axis, first
 * column along the last axis); rows/cols of v; nrows/ncols bound it (NULL = full). Operands of the epilogue are loaded
 * with the broadcast they need.
 */
struct lp_value *lower_tile_epilogue(struct lower_ctx *l, struct lp_value *v, struct lp_value *const *idx, int row_axis,
                                     struct lp_value *nrows, struct lp_value *ncols);

/*
 * The tile of `to` from v, the tile of `from`, which pointwise ops of one shape lead to. idx: where the tile begins; its rows go along row_axis, its
 * columns along col_axis.
 */
struct lp_value *lower_tile_between(struct lower_ctx *l, const struct ir_value *from, struct lp_value *v, const struct ir_value *to,
                                    struct lp_value *const *idx, int row_axis, int col_axis, struct lp_value *nrows, struct lp_value *ncols);

/*
 * Length of the partial sums that a long sum of `steps` products is made of. Rounding errors (rms) of a network's logits: parts
 * of 256 1.35 times ONNX Runtime's, 64 0.82. A part's end costs the time of some 4 steps, since its accumulators go through
 * the stack: sums so long that the number of parts counts, too, have longer ones.
 */
enum { PART = 64, LONG_PART = 128, LONG_SUM = 2048 };
static inline int64_t lower_part(int64_t steps) { return steps >= LONG_SUM ? LONG_PART : PART; }

/*
 * Slices are `units` (row blocks of a matmul, rows of an image) by `panels` of weights. They are numbered in walks: each goes
 * over all panels for some of the units, for one panel after the other. Few units a walk: a thread's share of the slices is
 * a part of the image, which the launches before and after divide the same way, so that what one core wrote need not come
 * out of its cache for another. Many: the weights are read less often. Weights that stay in the second-level cache cost
 * nothing to read again; of others no more is read than of the input.
 *
 * walks: how many that makes, where a unit has `pixels` pixels and the weights have `bytes`, as many as like_pixels pixels.
 */
const struct dim *lower_walks(struct lower_ctx *l, const struct dim *units, int64_t pixels, int64_t bytes, int64_t like_pixels);

struct walk_place {
    struct lp_value *panel, *unit;
    struct lp_value *first; /* unit of the walk */
};

/* Of slice number s in [0, units * panels). */
struct walk_place lower_walk_place(struct lower_ctx *l, struct lp_value *s, const struct dim *panels, const struct dim *units,
                                   const struct dim *walks);

/*
 * Prefetching a panel of `rows` rows in passes of half of its rows: pass number `pass` asks at step k for this row and for
 * this first element of the row. Every row comes up twice, at neighbouring steps.
 */
struct lp_value *lower_half_row(struct lp_builder *b, struct lp_value *pass, struct lp_value *k, int64_t rows);
struct lp_value *lower_half_line(struct lp_builder *b, struct lp_value *pass, int elem_bytes);

/*
 * A choice of the schedule: what was decided from outside, else dflt, the cost model's. alternatives: what else is worth a
 * measurement. The kernel's bits and packing must be the same for every value (passes/knobs.h).
 */
int64_t lower_knob(struct lower_ctx *l, enum knob k, int64_t dflt, const int64_t *alternatives, int n);
/* tile_shape as a knob. */
void lower_tile(struct lower_ctx *l, int elem_bytes, int panel, const struct dim *n_rows, bool pairwise, int *mr, int *nr);

/* Lowers all of m (after pass_group) for the levels wanted (mask of 1 << isa). NULL after diagnostics. */
struct plan *lower_module(struct ir_module *m, const struct target *t, unsigned isa_mask, struct diag_sink *diag);
/* The same with a say in the knobs; chooser NULL: none. */
struct plan *lower_module_tuned(struct ir_module *m, const struct target *t, unsigned isa_mask, const struct knob_chooser *chooser,
                                struct diag_sink *diag);

#endif
