// SPDX-License-Identifier: Apache-2.0
/* What a group costs, for reports and profiles. */
#ifndef INFC_PASSES_FLOPS_H
#define INFC_PASSES_FLOPS_H

#include "ir/module.h"

/*
 * Floating-point operations of all ops in a group's region as a dim: a multiply-add counts two, a transcendental one. It
 * is the mathematics that is counted, once an element of each op's result, not what a kernel recomputes.
 */
const struct dim *group_flops(struct ir_module *m, const struct ir_block *body);

#endif
