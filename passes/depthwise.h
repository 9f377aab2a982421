// SPDX-License-Identifier: Apache-2.0
/*
 * Depthwise convolutions that read an image without padding as if it had some (passes/lower_depthwise.c): the pad in front
 * of them, a copy of the image, is left out.
 */
#ifndef INFC_PASSES_DEPTHWISE_H
#define INFC_PASSES_DEPTHWISE_H

#include "ir/module.h"

/* The padding in front of a convolution of images [N, H, W, C] that has none of its own and could take it: lo, then hi. */
bool conv_padding(const struct ir_op *conv, const struct dim **pads);
/* It becomes the convolution's. */
void conv_take_padding(struct ir_module *m, struct ir_op *conv, const struct dim *const *pads);

/* Is this a depthwise convolution for the schedule, if these are its pads? */
bool depthwise_fits(const struct ir_op *conv, const struct dim *const *pads);

#endif
