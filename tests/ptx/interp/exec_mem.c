// SPDX-License-Identifier: Apache-2.0
/* Loads, stores, atomics and fences. */
#include <math.h>

#include "tests/ptx/interp/float.h"
#include "tests/ptx/interp/lanes.h"

static void count(struct ptx_warp *w, const struct ptx_insn *in, const uint64_t *address, uint32_t mask, uint32_t bytes)
{
    unsigned space = in->n_spaces ? in->spaces[0] : PTX_SPACE_GENERIC;
    uint64_t shared[32];
    uint32_t shared_mask = 0, global_mask = 0;
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        bool is_shared = space == PTX_SPACE_SHARED || space == PTX_SPACE_CLUSTER ||
                         (space == PTX_SPACE_GENERIC && address[l] >> 48 << 48 == PTX_SHARED_WINDOW);
        bool is_global = space == PTX_SPACE_GLOBAL || (space == PTX_SPACE_GENERIC && address[l] >> 48 == 1);
        shared[l] = address[l] & UINT32_MAX;
        if (is_shared) shared_mask |= 1u << l;
        if (is_global) global_mask |= 1u << l;
    }
    if (shared_mask) ptx_count_shared(w->m, shared, shared_mask, bytes);
    if (global_mask) ptx_count_global(w->m, address, global_mask, bytes);
}

/* The registers of a value operand: one, or a vector's. */
static int value_regs(const struct ptx_operand *o, const int **out)
{
    if (o->n) {
        *out = o->regs;
        return o->n;
    }
    *out = &o->reg;
    return 1;
}

/* Accesses that are more than plain ones carry order between CTAs. */
static void order_of_access(struct ptx_warp *w, const struct ptx_insn *in, bool reads, bool writes)
{
    bool gpu = in->flags & PTX_F_GPU;
    ptx_gpu_access(w, reads, writes, gpu && in->flags & PTX_F_RELEASE, gpu && in->flags & PTX_F_ACQUIRE);
}

/* A loop that waits for what it reads must let others run. */
static void poll(struct ptx_warp *w)
{
    w->status = PTX_W_YIELD;
    w->m->polled = true;
}

void ptx_x_ld(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    const int *regs;
    int n = value_regs(&in->ops[0], &regs);
    unsigned bytes = ptx_types[in->types[0]].bytes, total = bytes * (unsigned)n;
    enum ptx_space space = in->n_spaces ? (enum ptx_space)in->spaces[0] : PTX_SPACE_GENERIC;
    bool atomic = in->flags & (PTX_F_ACQUIRE | PTX_F_RELAXED | PTX_F_VOLATILE);
    uint64_t address[32];
    if (!ptx_need_defined(w, in, in->ops[1].reg, mask, "an address")) return;
    if (atomic) order_of_access(w, in, true, false);
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        struct ptx_place p;
        bool defined;
        address[l] = ptx_address(w, &in->ops[1], l);
        if (!ptx_place(w, in, l, space, address[l], total, total, &p)) return;
        if (!ptx_place_read(w, in, l, &p, total, atomic, &defined)) return;
        for (int i = 0; i < n; i++) {
            uint64_t v = 0;
            if (regs[i] < 0) continue;
            memcpy(&v, p.data + (unsigned)i * bytes, bytes);
            if (ptx_is_signed(in->types[0]))
                v = ptx_zero_extend((uint64_t)ptx_sign_extend(v, bytes), w->k->regs[regs[i]].width);
            ptx_set(w, regs[i], l, v);
            if (!defined && p.state) {
                bool ok = true;
                for (unsigned b = 0; b < bytes; b++) ok &= p.state[(unsigned)i * bytes + b] == PTX_BYTE_DEFINED;
                if (!ok) w->def[regs[i]] &= ~(1u << l);
            }
        }
    }
    count(w, in, address, mask, total);
    if (atomic) poll(w); /* it may be waiting for another's store */
}

void ptx_x_st(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    const int *regs;
    int n = value_regs(&in->ops[1], &regs);
    unsigned bytes = ptx_types[in->types[0]].bytes, total = bytes * (unsigned)n;
    enum ptx_space space = in->n_spaces ? (enum ptx_space)in->spaces[0] : PTX_SPACE_GENERIC;
    bool atomic = in->flags & (PTX_F_RELEASE | PTX_F_RELAXED | PTX_F_VOLATILE);
    uint64_t address[32];
    if (!ptx_need_defined(w, in, in->ops[0].reg, mask, "an address")) return;
    if (atomic) order_of_access(w, in, false, true);
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        struct ptx_place p;
        address[l] = ptx_address(w, &in->ops[0], l);
        if (!ptx_place(w, in, l, space, address[l], total, total, &p)) return;
        if (!ptx_place_write(w, in, l, &p, total, atomic, true)) return;
        for (int i = 0; i < n; i++) {
            uint64_t v = regs[i] < 0 ? 0 : ptx_get(w, regs[i], l);
            memcpy(p.data + (unsigned)i * bytes, &v, bytes);
            if (regs[i] >= 0 && !(w->def[regs[i]] >> l & 1))
                memset(p.state + (unsigned)i * bytes, PTX_BYTE_UNDEFINED, bytes);
        }
    }
    count(w, in, address, mask, total);
}

/* ---- atomics ---- */

static uint64_t atomic_float(unsigned type, unsigned sub, uint64_t old, uint64_t v)
{
    if (type == PTX_F16X2 || type == PTX_BF16X2) {
        unsigned half = type == PTX_F16X2 ? PTX_F16 : PTX_BF16;
        return (atomic_float(half, sub, old >> 16 & 0xffff, v >> 16 & 0xffff) << 16) |
               atomic_float(half, sub, old & 0xffff, v & 0xffff);
    }
    double a = ptx_widen(type, old), b = ptx_widen(type, v), r;
    if (sub == PTX_SUB_ADD) r = ptx_add_odd(a, b);
    else r = (sub == PTX_SUB_MIN) == (a < b) ? a : b;
    if (type == PTX_F64) return ptx_bits64(sub == PTX_SUB_ADD ? a + b : r);
    return ptx_narrow(type, r, PTX_ROUND_RN, false);
}

static bool atomic_int(unsigned type, unsigned sub, uint64_t old, uint64_t v, uint64_t v2, uint64_t *out)
{
    unsigned bytes = ptx_types[type].bytes;
    bool less = ptx_is_signed(type) ? ptx_sign_extend(old, bytes) < ptx_sign_extend(v, bytes) : old < v;
    switch (sub) {
    case PTX_SUB_AND: *out = old & v; return true;
    case PTX_SUB_OR: *out = old | v; return true;
    case PTX_SUB_XOR: *out = old ^ v; return true;
    case PTX_SUB_ADD: *out = old + v; return true;
    case PTX_SUB_MIN: *out = less ? old : v; return true;
    case PTX_SUB_MAX: *out = less ? v : old; return true;
    case PTX_SUB_INC: *out = old >= v ? 0 : old + 1; return true;
    case PTX_SUB_DEC: *out = old == 0 || old > v ? v : old - 1; return true;
    case PTX_SUB_CAS: *out = old == v ? v2 : old; return true;
    case PTX_SUB_EXCH: *out = v; return true;
    default: return false;
    }
}

bool ptx_atomic_value(unsigned type, unsigned sub, uint64_t old, uint64_t v, uint64_t v2, uint64_t *out)
{
    if (!ptx_is_float(type)) return atomic_int(type, sub, old, v, v2, out);
    if (sub != PTX_SUB_EXCH && sub != PTX_SUB_ADD && sub != PTX_SUB_MIN && sub != PTX_SUB_MAX) return false;
    *out = sub == PTX_SUB_EXCH ? v : atomic_float(type, sub, old, v);
    return true;
}

/* One atomic operation of one lane; `at` is the index of the address operand. */
static bool atomic_lane(struct ptx_warp *w, const struct ptx_insn *in, int lane, int at, const int *dst, int n)
{
    unsigned type = in->types[0], bytes = ptx_types[type].bytes, total = bytes * (unsigned)n;
    enum ptx_space space = in->n_spaces ? (enum ptx_space)in->spaces[0] : PTX_SPACE_GENERIC;
    const int *src, *src2 = NULL;
    struct ptx_place p;
    bool defined;
    value_regs(&in->ops[at + 1], &src);
    if (in->n_ops > at + 2) value_regs(&in->ops[at + 2], &src2);
    if (!ptx_place(w, in, lane, space, ptx_address(w, &in->ops[at], lane), total, total, &p)) return false;
    if (!ptx_place_read(w, in, lane, &p, total, true, &defined)) return false;
    if (!defined && in->sub != PTX_SUB_EXCH) {
        ptx_fault_warp(w, in, lane, PTX_FAULT_UNDEFINED, "atomic operation on memory that nobody has written");
        return false;
    }
    if (!ptx_place_write(w, in, lane, &p, total, true, true)) return false;
    for (int i = 0; i < n; i++) {
        uint64_t old = 0, v, next;
        memcpy(&old, p.data + (unsigned)i * bytes, bytes);
        v = ptx_get(w, src[i], lane);
        if (!ptx_atomic_value(type, in->sub, old, v, src2 ? ptx_get(w, src2[i], lane) : 0, &next)) {
            ptx_unsupported(w, in);
            return false;
        }
        memcpy(p.data + (unsigned)i * bytes, &next, bytes);
        if (next != old) w->m->progress++;
        if (dst && dst[i] >= 0) ptx_set(w, dst[i], lane, old);
    }
    return true;
}

static void atomics(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask, int at)
{
    const int *dst = NULL, *src;
    int n = value_regs(&in->ops[at + 1], &src);
    uint64_t address[32];
    if (at) value_regs(&in->ops[0], &dst);
    if (!ptx_need_defined(w, in, in->ops[at].reg, mask, "an address")) return;
    for (int i = 0; i < n; i++)
        if (!ptx_need_defined(w, in, src[i], mask, "the value of an atomic operation")) return;
    order_of_access(w, in, at == 1, true);
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        address[l] = ptx_address(w, &in->ops[at], l);
        if (!atomic_lane(w, in, l, at, dst, n)) return;
    }
    count(w, in, address, mask, ptx_types[in->types[0]].bytes * (unsigned)n);
    if (at && !ptx_is_float(in->types[0])) poll(w);
}
void ptx_x_atom(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask) { atomics(w, in, mask, 1); }
void ptx_x_red(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask) { atomics(w, in, mask, 0); }

void ptx_x_fence(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    if (in->op == PTX_OP_FENCE_MBARRIER_INIT || in->flags & PTX_F_ASYNC) ptx_mbarriers_fenced(w, mask);
    if (in->flags & PTX_F_ASYNC) {
        for (int l = 0; l < 32; l++)
            if (mask >> l & 1) w->proxy_clock[l] = w->clock;
        w->clock++;
        w->proxy_fresh |= mask;
    }
    if (in->flags & PTX_F_GPU) ptx_gpu_fence(w);
}

void ptx_x_nop(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    (void)w;
    (void)in;
    (void)mask;
}
