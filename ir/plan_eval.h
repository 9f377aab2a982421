// SPDX-License-Identifier: Apache-2.0
/*
 * Runs a plan with the loop-IR evaluator, one level, serially: lowering and schedules are tested by it without a target, with
 * every access checked against its buffer.
 */
#ifndef INFC_IR_PLAN_EVAL_H
#define INFC_IR_PLAN_EVAL_H

#include "ir/eval.h"
#include "ir/plan.h"

/* read_const fills n_bytes of a CONST buffer (compiler/emit_plan.h: weight_read). outputs' data is allocated in arena. */
bool plan_eval(const struct plan *p, enum infr_isa level, const struct ir_tensor *inputs, struct ir_tensor *outputs,
               void (*read_const)(const struct plan_buf *b, void *dst, size_t n_bytes), struct arena *arena,
               struct diag_sink *diag);

#endif
