// SPDX-License-Identifier: Apache-2.0
/* Internal to lowering: one group to one kernel of one level. */
#ifndef INFC_PASSES_LOWER_GROUP_H
#define INFC_PASSES_LOWER_GROUP_H

#include "passes/lower.h"

/*
 * like: the kernel of an earlier level whose dim parameters this one repeats first (NULL for the first level).
 * operand_consts: one an operand, the constant it is (may be packed) or NULL. packs: out, one an operand.
 * knobs: values given in, choices recorded out; NULL: neither. NULL after a diagnostic.
 */
struct lp_kernel *lower_group(struct ir_module *m, struct ir_op *group, const struct target_level *level,
                              const struct lp_kernel *like, const struct ir_const **operand_consts, struct plan_pack *packs,
                              struct knob_uses *knobs, struct diag_sink *diag);

#endif
