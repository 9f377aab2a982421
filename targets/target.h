// SPDX-License-Identifier: Apache-2.0
/* The rows of targets.def as declarations: what a target's own file defines and registry.c lists. */
#ifndef INFC_TARGETS_TARGET_H
#define INFC_TARGETS_TARGET_H

#include "ir/target.h"

#define TARGET(symbol) extern const struct target symbol;
#include "targets/targets.def"
#undef TARGET

#endif
