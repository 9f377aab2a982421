// SPDX-License-Identifier: Apache-2.0
/*
 * One launch of a kernel in a file: written by the stand-in for the driver (INFC_FAKE_TRACE), run again by
 * tests/ptx/mutate_printed.c. Numbers are the machine's own; a file does not travel.
 *
 *   struct trace_head, the parameters (head.param_bytes), and regions (head.n_regions):
 *   struct trace_region, then three times region.bytes: what was there before, TRACE_ bits a byte, what is there now
 *
 * A region is what the kernel touches behind one of its pointers, from the first byte to the last: the bytes of a device allocation up
 * to the next pointer are taken to be this one's. Bytes in a region that the kernel does not touch have no bits. The PTX lies beside the
 * file, as <head.ptx, 16 hex digits>.ptx.
 */
#ifndef INFC_TESTS_PTX_TRACE_H
#define INFC_TESTS_PTX_TRACE_H

#include <stdint.h>

#define TRACE_MAGIC UINT64_C(0x3143525443464e49)

enum { TRACE_READ = 1, TRACE_WRITTEN = 2, TRACE_DEFINED = 4, TRACE_DEFINED_AFTER = 8, TRACE_KERNEL = 128 };

struct trace_head {
    uint64_t magic, ptx;
    char kernel[TRACE_KERNEL];
    uint32_t sm, grid[3], block[3], dynamic_shared_bytes, param_bytes, n_regions;
};

struct trace_region {
    uint64_t pointer; /* as it stands in the parameters */
    uint64_t begin, bytes;
};

#endif
