// SPDX-License-Identifier: Apache-2.0
/* The sliding window of conv and the pools over the spatial axes of x[N, C, D..]. */
#ifndef INFC_IR_EVAL_WINDOW_H
#define INFC_IR_EVAL_WINDOW_H

#include "ir/eval_impl.h"

struct eval_window {
    int rank; /* spatial axes */
    int64_t kernel[IR_MAX_RANK], strides[IR_MAX_RANK], dilations[IR_MAX_RANK];
    int64_t lo[IR_MAX_RANK], hi[IR_MAX_RANK]; /* pads */
    int64_t in[IR_MAX_RANK], out[IR_MAX_RANK];
    int64_t taps, positions, image; /* products of kernel, out and in */
};

/*
 * Reads strides, dilations and pads. The result's sizes come from attribute `output` when has_output (pools, which may
 * round up), else from the window. Limits are such that positions cannot overflow. kernel has rank - 2 entries.
 */
bool eval_window(struct eval_call *c, const struct ir_tensor *x, const int64_t *kernel, bool has_output,
                 struct eval_window *w);

/* run on the image in [N, C, D..] order: for ops with channels_last, whose x and results are [N, D.., C]. */
bool eval_channels_last(struct eval_call *c, eval_fn run);
static inline bool eval_is_channels_last(const struct eval_call *c) { return ir_attr_int(c->op, "channels_last", 0) != 0; }

#endif
