// SPDX-License-Identifier: Apache-2.0
/* Kernels whose slices are the work of a CTA: tiles of 64 x 64 in the registers of 128 threads. */
#ifndef INFC_TARGETS_CUDA_PRINT_CTA_H
#define INFC_TARGETS_CUDA_PRINT_CTA_H

#include "targets/cuda/print.h"

#define CTA_TILE 64
#define CTA_STEP_BYTES 64

/* Device functions of these kernels, behind the prelude; by wgmma (prelude_wgmma.c) or mma.sync. NULL behind the last. */
const char *cta_prelude(int i, bool wgmma);
extern const char cta_wgmma_places[], cta_wgmma_loop[];

/* The loop over K that adds DOTs to its carried tile; false when the loop is none. */
bool cta_is_dot_loop(const struct lp_op *op);
void cta_print_dot_loop(struct printer *p, const struct lp_op *op);
void cta_load(struct printer *p, const struct lp_op *op);
void cta_store(struct printer *p, const struct lp_op *op);
/* Elements of t that a thread has: of the tile 32, of a row 8 (wgmma: 16), of a column 4 (2). */
int cta_elems(struct lp_type t, bool wgmma);
/* Opens the loop over them: e with ri and ci, ci, or ri; nothing for one. */
void cta_loop_begin(struct printer *p, struct lp_type t);

#endif
