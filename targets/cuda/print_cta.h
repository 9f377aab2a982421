// SPDX-License-Identifier: Apache-2.0
/* Kernels whose slices are the work of a CTA: tiles of 64 x 64 in the registers of 128 threads. */
#ifndef INFC_TARGETS_CUDA_PRINT_CTA_H
#define INFC_TARGETS_CUDA_PRINT_CTA_H

#include "targets/cuda/print.h"

#define CTA_TILE 64
#define CTA_STEP_BYTES 64

/* Device functions of these kernels, behind the prelude; by wgmma (prelude_wgmma.c) or mma.sync. NULL behind the last. */
const char *cta_prelude(int i, const struct printer *p);
extern const char cta_wgmma_places[], cta_wgmma_loop[], cta_warp_tiles[], cta_warp_stage[], cta_warp_dot[];
extern const char cta_blocks_places[], cta_blocks_shape[], cta_blocks_fetch[], cta_blocks_loop[];

/* The loop over K that adds DOTs to its carried tile; false when the loop is none. */
bool cta_is_dot_loop(const struct lp_op *op);
void cta_print_dot_loop(struct printer *p, const struct lp_op *op);
void cta_load(struct printer *p, const struct lp_op *op);
void cta_store(struct printer *p, const struct lp_op *op);
/* The loop over groups of blocks (LP_OP_DOT_BLOCKS); print_blocks.c. Does the kernel have one? */
bool cta_is_block_loop(const struct lp_op *op);
bool cta_has_block_loop(const struct lp_kernel *k);
void cta_print_block_loop(struct printer *p, const struct lp_op *op);
/* Elements of t that a thread has: of the tile 32, of a row 8 (by rows: 16), of a column 4 (2). By rows a tile has as many columns as it likes. */
int cta_elems(struct lp_type t, enum cta_order order);
/* Opens the loop over them: e with ri and ci, ci, or ri; nothing for one. */
void cta_loop_begin(struct printer *p, struct lp_type t);

/* Tiles by rows without a loop over K (print_warp.c). Is the op part of an operand of DOT that is brought to shared memory, or one that lies there? */
bool warp_is_staged(const struct printer *p, const struct lp_op *op);
bool warp_is_held(const struct printer *p, const struct lp_op *op);
void warp_stage(struct printer *p, const struct lp_op *op);
/* At the end of a block. */
void warp_staging_ends(struct printer *p);
void warp_dot(struct printer *p, const struct lp_op *op);
void warp_reduce(struct printer *p, const struct lp_op *op);
bool warp_print_stack(struct printer *p);

#endif
