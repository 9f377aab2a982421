// SPDX-License-Identifier: Apache-2.0
/*
 * What a compiled CPU kernel looks like from outside. A kernel owns no state, allocates nothing, and may
 * be called from any thread. The launch's slices [0, slice_count) are divided between workers; a kernel
 * call does the slices [begin, end).
 *
 *   bufs     one base address a buffer parameter, in the kernel's order; 64-byte aligned except for
 *            the user's own inputs and outputs, which are aligned to their element size only
 *   dims     the kernel's dim parameters (sizes of symbolic dims), in the kernel's order
 *   scratch  scratch_bytes of memory private to this worker, 64-byte aligned
 */
#ifndef INFC_RUNTIME_ABI_KERNEL_H
#define INFC_RUNTIME_ABI_KERNEL_H

#include <stdint.h>

typedef void infr_kernel_fn(void *const *bufs, const int64_t *dims, int64_t begin, int64_t end, void *scratch);

/* Instruction levels of an x86-64 engine, lowest first; an engine holds code for any subset. */
enum infr_isa { INFR_ISA_V2, INFR_ISA_V3, INFR_ISA_V4, INFR_ISA_VNNI, INFR_ISA_AMX, INFR_ISA_COUNT };

#endif
