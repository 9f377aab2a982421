// SPDX-License-Identifier: Apache-2.0
/* A bulk copy in flight. */
#ifndef INFC_TESTS_PTX_INTERP_BULK_H
#define INFC_TESTS_PTX_INTERP_BULK_H

#include "tests/ptx/interp/machine.h"

enum ptx_bulk_kind {
    PTX_BULK_IN,      /* global to shared memory, of one or several CTAs */
    PTX_BULK_OUT,     /* shared to global memory */
    PTX_BULK_ACROSS,  /* shared memory to that of another CTA */
    PTX_BULK_VALUE    /* st.async */
};

struct ptx_bulk {
    struct ptx_bulk *next;
    enum ptx_bulk_kind kind;
    struct ptx_warp *warp;
    const struct ptx_insn *in;
    int lane;
    bool tensor, performed;
    uint64_t global;
    uint32_t shared, bytes, mbarrier;
    uint32_t ranks;           /* destination CTAs */
    struct ptx_cta *source;   /* of OUT and ACROSS */
    uint32_t source_offset;
    unsigned group;
    uint32_t clock;
    struct ptx_seen *seen;    /* what its completion tells: that it happened */
    uint64_t hash, hash_now;  /* of its source in shared memory */
    struct ptx_tensor_map map;
    int32_t coord[5];
    uint8_t value[16];
};

uint64_t ptx_hash_shared(const struct ptx_cta *cta, uint32_t offset, uint32_t bytes, uint64_t h);

#endif
