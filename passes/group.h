// SPDX-License-Identifier: Apache-2.0
/*
 * Fusion: wraps the ops of every block into `group` ops, each of which becomes one kernel.
 *
 * Requires: verified tensor IR without groups. Establishes: blocks hold only constant, reshape, if, group and terminators;
 * a group's region sees only its block arguments (and constants of one element, iota, dimvec and broadcasts cloned into it);
 * terminators use values that a kernel of the same block writes (else a copying group is inserted).
 * Cost: O(ops * window), window = 64.
 *
 *   %1 = matmul %x, @w            %3 = group(%x, @w, @b) {
 *   %2 = add %1, @b         ->       %1 = matmul; %2 = add; %3 = erf; yield %3
 *   %3 = erf %2                   }
 *
 * Which ops meet in a group. Forward: a pointwise op of the same shape joins its producer's group when the region so
 * formed has one value that is used outside (diamonds such as x * sigmoid(x) included). Backward: a group of
 * pointwise and moving ops whose only use is in another group is inlined there when each of its elements is read once:
 * by a pointwise op of the same shape, a moving op, or a reduction. Before all that, attention in plain ops becomes one group
 * each where the module asks for it (passes/attention.h).
 *
 * A depthwise convolution takes the padding in front of it back (passes/depthwise.h).
 *
 * Behind all that, a concat whose every part is some kernel's result that nothing else reads needs no kernel: attribute x_in_place=1
 * of its group says that lowering lets the parts be written where they belong. Where they are columns, x_pitch of a part's
 * group is the whole's number of them.
 */
#ifndef INFC_PASSES_GROUP_H
#define INFC_PASSES_GROUP_H

#include "ir/module.h"

bool pass_group(struct ir_module *m, struct diag_sink *diag);

#endif
