// SPDX-License-Identifier: Apache-2.0
/* Between the evaluator's driver (ir/eval.c) and its calls (ir/eval_call.c). */
#ifndef INFC_IR_EVAL_DRIVER_H
#define INFC_IR_EVAL_DRIVER_H

#include "ir/eval_impl.h"

/* No tensor and no scratch block is bigger. */
#define EVAL_MAX_BYTES ((size_t)1 << 40)

void eval_scratch_free(struct eval_call *c);

#endif
