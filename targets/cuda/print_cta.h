// SPDX-License-Identifier: Apache-2.0
/* Kernels whose slices are the work of a CTA: tiles of 64 x 64 in the registers of 128 threads. */
#ifndef INFC_TARGETS_CUDA_PRINT_CTA_H
#define INFC_TARGETS_CUDA_PRINT_CTA_H

#include "targets/cuda/print.h"

#define CTA_TILE 64
#define CTA_STEP_BYTES 64

/* Device functions of these kernels, behind the prelude. */
extern const char *const cta_prelude[];

/* The loop over K that adds DOTs to its carried tile; false when the loop is none. */
bool cta_is_dot_loop(const struct lp_op *op);
void cta_print_dot_loop(struct printer *p, const struct lp_op *op);
void cta_load(struct printer *p, const struct lp_op *op);
void cta_store(struct printer *p, const struct lp_op *op);
/* Elements of t that a thread has: of the tile 32, of a row 8, of a column 4. */
int cta_elems(struct lp_type t);

#endif
