// SPDX-License-Identifier: Apache-2.0
/* Exchanges between the lanes of a warp. None of them orders memory accesses, except bar.warp.sync. */
#include <math.h>

#include "tests/ptx/interp/lanes.h"

/* The membermask operand: the same in every lane that executes. */
static bool member_mask(struct ptx_warp *w, const struct ptx_insn *in, const struct ptx_operand *o, uint32_t mask,
                        uint32_t *out)
{
    if (!mask || !ptx_need_defined(w, in, o->reg, mask, "a member mask")) return false;
    int first = ptx_lowest(mask);
    *out = (uint32_t)ptx_get(w, o->reg, first);
    for (int l = first; l < 32; l++)
        if (mask >> l & 1 && (uint32_t)ptx_get(w, o->reg, l) != *out) {
            ptx_fault_warp(w, in, l, PTX_FAULT_DIVERGENCE, "lanes name different member masks: %#x and %#x", *out,
                           (unsigned)ptx_get(w, o->reg, l));
            return false;
        }
    return ptx_converged(w, in, mask, *out);
}

static int shfl_source(const struct ptx_insn *in, int lane, uint32_t b, uint32_t c, bool *out_valid)
{
    int clamp = (int)(c & 31), segment = (int)(c >> 8 & 31), by = (int)(b & 31);
    int low = lane & segment, high = low | (clamp & ~segment), from;
    switch (in->sub) {
    case PTX_SUB_UP:
        from = lane - by;
        *out_valid = from >= high;
        break;
    case PTX_SUB_DOWN:
        from = lane + by;
        *out_valid = from <= high;
        break;
    case PTX_SUB_BFLY:
        from = lane ^ by;
        *out_valid = from <= high;
        break;
    default:
        from = low | (by & ~segment);
        *out_valid = from <= high;
        break;
    }
    return *out_valid ? from : lane;
}

void ptx_x_shfl(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    uint32_t members, valid_bits = 0, defined = 0;
    if (!member_mask(w, in, &in->ops[4], mask, &members)) return;
    uint32_t v[32] = {0};
    const uint32_t *a = ptx_row32(w, &in->ops[1]);
    uint32_t source_defined = w->def[in->ops[1].reg];
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        bool valid;
        int from = shfl_source(in, l, (uint32_t)ptx_get(w, in->ops[2].reg, l), (uint32_t)ptx_get(w, in->ops[3].reg, l),
                               &valid);
        v[l] = a[from];
        valid_bits |= (uint32_t)valid << l;
        /* Reading a lane that does not take part gives an undefined value. */
        bool ok = from == l || mask >> from & 1;
        defined |= (uint32_t)(ok && source_defined >> from & 1) << l;
    }
    uint32_t inputs = w->def[in->ops[2].reg] & w->def[in->ops[3].reg];
    ptx_commit32(w, &in->ops[0], v, mask);
    ptx_commit_pred(w, in->ops[0].reg2, valid_bits, mask);
    ptx_mark(w, in->ops[0].reg, mask, defined & inputs);
    ptx_mark(w, in->ops[0].reg2, mask, inputs);
}

static void set_all(struct ptx_warp *w, const struct ptx_operand *d, uint32_t mask, uint64_t v)
{
    if (d->reg < 0) return;
    for (int l = 0; l < 32; l++)
        if (mask >> l & 1) ptx_set(w, d->reg, l, v);
}

void ptx_x_vote(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    uint32_t members;
    if (!member_mask(w, in, &in->ops[2], mask, &members)) return;
    if (!ptx_need_defined(w, in, in->ops[1].reg, mask, "a vote")) return;
    uint32_t bits = ptx_pred_bits(w, &in->ops[1]) & mask;
    uint64_t v;
    if (in->sub == PTX_SUB_BALLOT) v = bits;
    else if (in->sub == PTX_SUB_ANY) v = bits != 0;
    else if (in->sub == PTX_SUB_ALL) v = bits == mask;
    else v = bits == mask || bits == 0; /* uni */
    set_all(w, &in->ops[0], mask, v);
}

void ptx_x_match(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    uint32_t members;
    if (!member_mask(w, in, &in->ops[2], mask, &members)) return;
    if (!ptx_need_defined(w, in, in->ops[1].reg, mask, "a value to match")) return;
    uint64_t first = ptx_get(w, in->ops[1].reg, ptx_lowest(mask));
    bool all = true;
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        uint64_t x = ptx_get(w, in->ops[1].reg, l);
        uint32_t same = 0;
        for (int j = 0; j < 32; j++)
            if (mask >> j & 1 && ptx_get(w, in->ops[1].reg, j) == x) same |= 1u << j;
        all &= x == first;
        if (in->sub == PTX_SUB_ANY) ptx_set(w, in->ops[0].reg, l, same);
    }
    if (in->sub != PTX_SUB_ALL) return;
    set_all(w, &in->ops[0], mask, all ? mask : 0);
    ptx_commit_pred(w, in->ops[0].reg2, all ? mask : 0, mask);
    ptx_mark(w, in->ops[0].reg2, mask, mask);
}

static uint32_t redux_float(const struct ptx_insn *in, float a, float b)
{
    if (in->flags & PTX_F_ABS) {
        a = fabsf(a);
        b = fabsf(b);
    }
    if (isnan(a) || isnan(b)) return in->flags & PTX_F_NAN ? 0x7fffffff : ptx_bits32(isnan(a) ? b : a);
    return ptx_bits32((in->sub == PTX_SUB_MIN) == (a < b) ? a : b);
}

void ptx_x_redux(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    uint32_t members, acc = 0;
    if (!member_mask(w, in, &in->ops[2], mask, &members)) return;
    if (!ptx_need_defined(w, in, in->ops[1].reg, mask, "a value to reduce")) return;
    const uint32_t *a = ptx_row32(w, &in->ops[1]);
    bool first = true;
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        uint32_t x = a[l];
        bool less = in->types[0] == PTX_S32 ? (int32_t)x < (int32_t)acc : x < acc;
        if (in->types[0] == PTX_F32) acc = first ? redux_float(in, ptx_f32(x), ptx_f32(x))
                                                 : redux_float(in, ptx_f32(acc), ptx_f32(x));
        else if (first) acc = x;
        else if (in->sub == PTX_SUB_ADD) acc += x;
        else if (in->sub == PTX_SUB_AND) acc &= x;
        else if (in->sub == PTX_SUB_OR) acc |= x;
        else if (in->sub == PTX_SUB_XOR) acc ^= x;
        else if ((in->sub == PTX_SUB_MIN) == less) acc = x;
        first = false;
    }
    set_all(w, &in->ops[0], mask, acc);
}

void ptx_x_activemask(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    set_all(w, &in->ops[0], mask, mask);
}

/* One lane of the members is chosen: always the same one, of which programs may know nothing. */
void ptx_x_elect(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    uint32_t members;
    if (!member_mask(w, in, &in->ops[1], mask, &members)) return;
    int leader = ptx_lowest(mask);
    set_all(w, &in->ops[0], mask, (uint64_t)leader);
    ptx_commit_pred(w, in->ops[0].reg2, 1u << leader, mask);
    ptx_mark(w, in->ops[0].reg2, mask, mask);
}

void ptx_x_bar_warp(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    uint32_t members;
    if (!member_mask(w, in, &in->ops[0], mask, &members)) return;
    ptx_warp_barrier(w, mask);
}
