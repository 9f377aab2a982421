// SPDX-License-Identifier: Apache-2.0
/* Rows in and out: an operation computes all 32 lanes into a local row, then the lanes of the mask are
 * committed. Computing lanes for nothing is cheaper than asking for each. */
#ifndef INFC_TESTS_PTX_INTERP_LANES_H
#define INFC_TESTS_PTX_INTERP_LANES_H

#include <string.h>

#include "tests/ptx/interp/machine.h"

static inline void ptx_commit32(struct ptx_warp *w, const struct ptx_operand *o, const uint32_t *v,
                                uint32_t mask)
{
    uint32_t *d = ptx_row32(w, o);
    if (o->reg < 0) return;
    if (mask == UINT32_MAX) {
        memcpy(d, v, 32 * sizeof *v);
        return;
    }
    for (int l = 0; l < 32; l++)
        if (mask >> l & 1) d[l] = v[l];
}

static inline void ptx_commit64(struct ptx_warp *w, const struct ptx_operand *o, const uint64_t *v,
                                uint32_t mask)
{
    uint64_t *d = ptx_row64(w, o);
    if (o->reg < 0) return;
    if (mask == UINT32_MAX) {
        memcpy(d, v, 32 * sizeof *v);
        return;
    }
    for (int l = 0; l < 32; l++)
        if (mask >> l & 1) d[l] = v[l];
}

static inline void ptx_commit_pred(struct ptx_warp *w, int reg, uint32_t bits, uint32_t mask)
{
    if (reg < 0) return;
    uint32_t *d = ptx_pred(w, reg);
    *d = (*d & ~mask) | (bits & mask);
}

/* The bits of a predicate operand, `!` applied; a constant counts by being non-zero. */
static inline uint32_t ptx_pred_bits(struct ptx_warp *w, const struct ptx_operand *o)
{
    const struct ptx_reg *r = &w->k->regs[o->reg];
    uint32_t bits = r->predicate ? *ptx_pred(w, o->reg) : r->value ? UINT32_MAX : 0;
    return o->negated ? ~bits : bits;
}

static inline uint64_t ptx_zero_extend(uint64_t v, unsigned bytes)
{
    return bytes >= 8 ? v : v & ((UINT64_C(1) << (bytes * 8)) - 1);
}
static inline int64_t ptx_sign_extend(uint64_t v, unsigned bytes)
{
    unsigned drop = 64 - bytes * 8;
    uint64_t up = v << drop;
    return up >> 63 ? (int64_t)~(~up >> drop) : (int64_t)(up >> drop);
}
static inline bool ptx_is_signed(unsigned type) { return ptx_types[type].cls == PTX_CLASS_S; }
static inline bool ptx_is_float(unsigned type)
{
    return ptx_types[type].cls == PTX_CLASS_F || type == PTX_F16X2 || type == PTX_BF16X2 || type == PTX_F32X2;
}

#endif
