// SPDX-License-Identifier: Apache-2.0
/* Moves, packing and conversions. */
#include <math.h>

#include "tests/ptx/interp/float.h"
#include "tests/ptx/interp/lanes.h"

/* Bits of each part when a value of this many bytes is split into n. */
static unsigned part_bits(const struct ptx_insn *in, int n) { return ptx_types[in->types[0]].bytes * 8u / (unsigned)n; }

static void unpack(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    const struct ptx_operand *d = &in->ops[0];
    unsigned bits = part_bits(in, d->n);
    uint32_t defined = w->def[in->ops[1].reg];
    for (int i = 0; i < d->n; i++) {
        if (d->regs[i] < 0) continue;
        for (int l = 0; l < 32; l++)
            if (mask >> l & 1)
                ptx_set(w, d->regs[i], l, ptx_get(w, in->ops[1].reg, l) >> (bits * (unsigned)i) &
                                              ((UINT64_C(1) << bits) - 1));
        ptx_mark(w, d->regs[i], mask, defined);
    }
}

static void pack(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    const struct ptx_operand *s = &in->ops[1];
    unsigned bits = part_bits(in, s->n);
    uint32_t defined = mask;
    for (int i = 0; i < s->n; i++) defined &= w->def[s->regs[i]];
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        uint64_t v = 0;
        for (int i = 0; i < s->n; i++)
            v |= (ptx_get(w, s->regs[i], l) & ((UINT64_C(1) << bits) - 1)) << (bits * (unsigned)i);
        ptx_set(w, in->ops[0].reg, l, v);
    }
    ptx_mark(w, in->ops[0].reg, mask, defined);
}

/* Counters move on, so they are read when asked for. */
static bool clock_register(struct ptx_warp *w, const struct ptx_operand *o, uint64_t *out)
{
    const struct ptx_reg *r = &w->k->regs[o->reg];
    if (r->fill != PTX_FILL_SPECIAL) return false;
    switch (r->value) {
    case PTX_SREG_CLOCK:
    case PTX_SREG_CLOCK64:
    case PTX_SREG_GLOBALTIMER: *out = w->m->steps; return true;
    case PTX_SREG_CLOCK_HI: *out = w->m->steps >> 32; return true;
    default: return false;
    }
}

void ptx_x_mov(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    const struct ptx_operand *d = &in->ops[0], *s = &in->ops[1];
    uint64_t clock;
    if (d->n) {
        unpack(w, in, mask);
        return;
    }
    if (s->n) {
        pack(w, in, mask);
        return;
    }
    if (d->reg < 0) return;
    if (in->types[0] == PTX_PRED) {
        ptx_commit_pred(w, d->reg, ptx_pred_bits(w, s), mask);
    } else if (clock_register(w, s, &clock)) {
        for (int l = 0; l < 32; l++)
            if (mask >> l & 1) ptx_set(w, d->reg, l, clock);
    } else if (d->bytes == s->bytes && d->bytes == 4) {
        uint32_t v[32];
        memcpy(v, ptx_row32(w, s), sizeof v);
        ptx_commit32(w, d, v, mask);
    } else if (d->bytes == s->bytes) {
        uint64_t v[32];
        memcpy(v, ptx_row64(w, s), sizeof v);
        ptx_commit64(w, d, v, mask);
    } else { /* an address of shared memory into 32 bits */
        for (int l = 0; l < 32; l++)
            if (mask >> l & 1) ptx_set(w, d->reg, l, ptx_get(w, s->reg, l));
    }
    ptx_mark(w, d->reg, mask, w->def[s->reg]);
}

/* ---- cvt ---- */

static double round_integral(double x, enum ptx_round round)
{
    switch (round) {
    case PTX_ROUND_RNI: return nearbyint(x);
    case PTX_ROUND_RMI: return floor(x);
    case PTX_ROUND_RPI: return ceil(x);
    default: return trunc(x);
    }
}

/* A float to an integer type: NaN is 0, values outside are clamped. */
static uint64_t float_to_int(double x, unsigned type, enum ptx_round round)
{
    unsigned bytes = ptx_types[type].bytes, bits = bytes * 8u;
    if (isnan(x)) return bytes == 8 ? UINT64_C(1) << 63 : 0;
    x = round_integral(x, round);
    if (ptx_is_signed(type)) {
        double top = ldexp(1, (int)bits - 1);
        if (x >= top) return ptx_zero_extend((UINT64_C(1) << (bits - 1)) - 1, bytes);
        if (x < -top) return UINT64_C(1) << (bits - 1);
        return ptx_zero_extend((uint64_t)(int64_t)x, bytes);
    }
    if (x >= ldexp(1, (int)bits)) return ptx_zero_extend(UINT64_MAX, bytes);
    return x < 0 ? 0 : (uint64_t)x;
}

/* An integer as a double that a later rounding may be applied to: 64-bit values rounded to odd. */
static double int_to_double(uint64_t v, unsigned type)
{
    unsigned bytes = ptx_types[type].bytes;
    double high, low;
    if (ptx_is_signed(type)) {
        int64_t s = ptx_sign_extend(v, bytes);
        uint64_t magnitude = s < 0 ? 0 - (uint64_t)s : (uint64_t)s;
        high = (double)(magnitude >> 32) * 0x1p32;
        low = (double)(magnitude & UINT32_MAX);
        double d = ptx_add_odd(high, low);
        return s < 0 ? -d : d;
    }
    v = ptx_zero_extend(v, bytes);
    high = (double)(v >> 32) * 0x1p32;
    low = (double)(v & UINT32_MAX);
    return ptx_add_odd(high, low);
}

static uint64_t int_to_int(uint64_t v, unsigned dt, unsigned st, bool sat)
{
    unsigned sb = ptx_types[st].bytes, db = ptx_types[dt].bytes;
    bool ss = ptx_is_signed(st), ds = ptx_is_signed(dt);
    uint64_t wide = ss ? (uint64_t)ptx_sign_extend(v, sb) : ptx_zero_extend(v, sb);
    if (sat) {
        bool negative = ss && (int64_t)wide < 0;
        uint64_t top = ds ? (UINT64_C(1) << (db * 8 - 1)) - 1 : ptx_zero_extend(UINT64_MAX, db);
        if (!negative && wide > top) return top;
        if (negative && !ds) return 0;
        if (negative && (int64_t)wide < -(int64_t)top - 1) return UINT64_C(1) << (db * 8 - 1);
    }
    return wide;
}

static uint64_t to_float(double x, unsigned dt, const struct ptx_insn *in)
{
    enum ptx_round r = (enum ptx_round)in->round;
    if (in->flags & PTX_F_SAT) x = isnan(x) || x < 0 ? 0 : x > 1 ? 1 : x;
    if (in->flags & PTX_F_RELU && x < 0) x = 0;
    if (dt == PTX_F64) return ptx_bits64(x);
    bool satfinite = in->flags & PTX_F_SATFINITE;
    uint32_t v = ptx_narrow(dt, x, r, satfinite);
    if (in->flags & PTX_F_FTZ && dt == PTX_F32 && !(v & 0x7f800000)) v &= 1u << 31;
    return v;
}

static double from_float(uint64_t v, unsigned st, const struct ptx_insn *in)
{
    double x = ptx_widen(st, v);
    if (in->flags & PTX_F_FTZ && st == PTX_F32 && fabs(x) < 0x1p-126) x = copysign(0, x);
    return x;
}

static uint64_t convert(const struct ptx_insn *in, uint64_t v)
{
    unsigned dt = in->types[0], st = in->types[1];
    bool df = ptx_is_float(dt), sf = ptx_is_float(st);
    if (sf && !df) return float_to_int(from_float(v, st, in), dt, (enum ptx_round)in->round);
    if (!sf && !df) return int_to_int(v, dt, st, in->flags & PTX_F_SAT);
    if (!sf) {
        double x = int_to_double(v, st);
        if (dt == PTX_F64) return ptx_bits64(ptx_is_signed(st) ? (double)ptx_sign_extend(v, ptx_types[st].bytes)
                                                               : (double)v);
        return to_float(x, dt, in);
    }
    double x = from_float(v, st, in);
    if (in->round >= PTX_ROUND_RNI && in->round <= PTX_ROUND_RPI && !isnan(x) && !isinf(x)) {
        double whole = round_integral(x, (enum ptx_round)in->round);
        struct ptx_insn nearest = *in;
        nearest.round = PTX_ROUND_RN;
        return to_float(whole == 0 ? copysign(0, x) : whole, dt, &nearest);
    }
    return to_float(x, dt, in);
}

static unsigned element_of(unsigned type)
{
    return type == PTX_F16X2    ? PTX_F16
           : type == PTX_BF16X2 ? PTX_BF16
           : type == PTX_E4M3X2 ? PTX_E4M3
           : type == PTX_E5M2X2 ? PTX_E5M2
                                : PTX_NONE;
}

/* Two values into one word: from two floats (first source in the upper half), or element by element. */
static uint64_t convert_packed(const struct ptx_insn *in, uint64_t a, uint64_t b)
{
    unsigned de = element_of(in->types[0]), se = element_of(in->types[1]);
    unsigned bits = ptx_types[de].bytes * 8u;
    double hi, lo;
    if (se != PTX_NONE) {
        unsigned sbits = ptx_types[se].bytes * 8u;
        lo = ptx_widen(se, a);
        hi = ptx_widen(se, a >> sbits);
    } else {
        hi = from_float(a, in->types[1], in);
        lo = from_float(b, in->types[1], in);
    }
    return (to_float(hi, de, in) << bits) | to_float(lo, de, in);
}

void ptx_x_cvt(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    unsigned dt = in->types[0], st = in->types[1];
    bool packed = element_of(dt) != PTX_NONE;
    if (dt == PTX_F32 && st == PTX_F16) { /* the hot one */
        const uint32_t *a = ptx_row32(w, &in->ops[1]);
        uint32_t v[32];
        for (int l = 0; l < 32; l++) v[l] = ptx_bits32(ptx_f16_to_f32(a[l] & 0xffff));
        if (!in->flags) {
            ptx_commit32(w, &in->ops[0], v, mask);
            return;
        }
    }
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        uint64_t a = ptx_get(w, in->ops[1].reg, l), b = in->n_ops > 2 ? ptx_get(w, in->ops[2].reg, l) : 0, v;
        v = packed ? convert_packed(in, a, b) : convert(in, a);
        /* A register wider than the type shows its extension: by sign for signed types. */
        if (ptx_is_signed(dt)) v = (uint64_t)ptx_sign_extend(v, ptx_types[dt].bytes);
        else v = ptx_zero_extend(v, ptx_types[dt].bytes);
        v = ptx_zero_extend(v, w->k->regs[in->ops[0].reg].width);
        ptx_set(w, in->ops[0].reg, l, v);
    }
}

/* Two integers saturated to small ones, packed, above them the lower part of c. */
void ptx_x_cvt_pack(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    unsigned dt = in->types[0], bits = ptx_types[dt].bytes * 8u;
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        uint64_t a = int_to_int(ptx_get(w, in->ops[1].reg, l), dt, PTX_S32, true) & ((1u << bits) - 1);
        uint64_t b = int_to_int(ptx_get(w, in->ops[2].reg, l), dt, PTX_S32, true) & ((1u << bits) - 1);
        uint64_t c = in->n_ops > 3 ? ptx_get(w, in->ops[3].reg, l) : 0;
        ptx_set(w, in->ops[0].reg, l, (uint32_t)(a << bits | b | (bits == 8 ? c << 16 : 0)));
    }
}

/* ---- address spaces ---- */

static uint64_t window_of(unsigned space)
{
    switch (space) {
    case PTX_SPACE_SHARED:
    case PTX_SPACE_CLUSTER: return PTX_SHARED_WINDOW;
    case PTX_SPACE_LOCAL: return PTX_LOCAL_WINDOW;
    case PTX_SPACE_PARAM: return PTX_PARAM_WINDOW;
    default: return 0;
    }
}

void ptx_x_cvta(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    uint64_t window = window_of(in->spaces[0]);
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        uint64_t a = ptx_get(w, in->ops[1].reg, l);
        ptx_set(w, in->ops[0].reg, l, in->flags & PTX_F_TO ? a - window : a + window);
    }
}

void ptx_x_isspacep(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    uint32_t bits = 0;
    uint64_t window = window_of(in->spaces[0]);
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        uint64_t a = ptx_get(w, in->ops[1].reg, l), top = a >> 48 << 48;
        bool own = (a & UINT32_MAX) >> PTX_RANK_SHIFT == 0;
        bool in_space = window ? top == window && (in->spaces[0] != PTX_SPACE_SHARED || own) : top == PTX_GLOBAL_BASE;
        bits |= (uint32_t)in_space << l;
    }
    ptx_commit_pred(w, in->ops[0].reg, bits, mask);
}

/* The address that means the same place in another CTA of the cluster. */
void ptx_x_mapa(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        uint64_t a = ptx_get(w, in->ops[1].reg, l), rank = ptx_get(w, in->ops[2].reg, l);
        if (rank >= w->cta->cluster->n_ctas) {
            ptx_fault_warp(w, in, l, PTX_FAULT_BOUNDS, "mapa names CTA %u of a cluster of %u", (unsigned)rank,
                           w->cta->cluster->n_ctas);
            return;
        }
        uint64_t low = a & ((1u << PTX_RANK_SHIFT) - 1);
        ptx_set(w, in->ops[0].reg, l, (a >> 32 << 32) | (rank + 1) << PTX_RANK_SHIFT | low);
    }
}

void ptx_x_getctarank(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        uint32_t rank = (uint32_t)ptx_get(w, in->ops[1].reg, l) >> PTX_RANK_SHIFT;
        ptx_set(w, in->ops[0].reg, l, rank ? rank - 1 : w->cta->rank);
    }
}

void ptx_x_createpolicy(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    for (int l = 0; l < 32; l++)
        if (mask >> l & 1) ptx_set(w, in->ops[0].reg, l, 0);
}
