// SPDX-License-Identifier: Apache-2.0
/* Sliding windows over spatial axes: attributes that Conv, ConvTranspose and the pools share. */
#ifndef INFC_COMPILER_IMPORT_ONNX_WINDOW_H
#define INFC_COMPILER_IMPORT_ONNX_WINDOW_H

#include "compiler/import/onnx_int.h"

enum auto_pad { PAD_NOTSET, PAD_SAME_UPPER, PAD_SAME_LOWER, PAD_VALID };

struct window {
    int n; /* spatial axes */
    enum auto_pad auto_pad;
    int64_t kernel[IR_MAX_RANK], strides[IR_MAX_RANK], dilations[IR_MAX_RANK];
    const struct dim *pads[2 * IR_MAX_RANK]; /* lo, then hi */
};

/*
 * Reads kernel_shape, strides, dilations, auto_pad and pads for x[N,C,D..]. w gives the kernel when
 * it is not NULL (its axes from 2 on). SAME pads are for an output of ceil(in / stride).
 */
bool window_read(struct onode *n, struct ir_value *x, struct ir_value *w, bool has_dilations,
                 struct window *out);
/* floor or ceil of the number of window positions; a window that would begin beyond the input does
 * not count. */
const struct dim *window_positions(struct onode *n, const struct window *w, struct ir_value *x,
                                   int axis, bool ceil_mode);
/* Elements a dilated kernel spans. */
static inline int64_t window_span(const struct window *w, int i)
{
    return (w->kernel[i] - 1) * w->dilations[i] + 1;
}

#endif
