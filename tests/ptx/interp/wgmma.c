// SPDX-License-Identifier: Apache-2.0
/*
 * wgmma: a warpgroup's asynchronous matrix product from shared memory.
 *
 * Warp i of the group computes rows 16 i .. 16 i + 15; value v of a lane (g = lane / 4, t = lane % 4) is at row
 * g + 8 (v / 2 % 2), column 8 (v / 4) + 2 t + v % 2. From issue to wait the accumulators are undefined to
 * everybody else and neither they, nor A in registers, nor the operands in shared memory may change.
 *
 * It is one operation of four warps: it runs when all have issued it, and a wait of any of them that succeeds
 * means that it has read its operands for all. So the group is an agent of its own (race.c) whose clock is the
 * number of the operation.
 *
 * Shared operands are described by 64 bits: start address / 16 in bits 0-13, leading offset / 16 in 16-29, stride
 * offset / 16 in 32-45, swizzle in 62-63 (1: 128 bytes, 2: 64, 3: 32). Bits 4.. of an address are changed by
 * its bits 7.. as bulk tensor copies do it.
 */
#include <math.h>
#include <stdlib.h>

#include "tests/ptx/interp/bulk.h"
#include "tests/ptx/interp/float.h"
#include "tests/ptx/interp/lanes.h"
#include "tests/ptx/interp/mma.h"

enum { MAX_N = 256, MAX_K = 256 };

struct ptx_wgmma {
    struct ptx_wgmma *next;
    const struct ptx_insn *in;
    uint64_t a, b;         /* descriptors */
    bool accumulate;
    unsigned group, number; /* number: counted from 1 in each warp */
    bool done;
    uint64_t hash;         /* of the bytes it reads */
    uint64_t a_hash;       /* of A in registers */
};

struct form {
    unsigned a_type, b_type, d_type;
    bool a_regs, trans_a, trans_b;
    int scale_a, scale_b;
};

static int64_t constant(struct ptx_warp *w, const struct ptx_operand *o) { return (int32_t)ptx_get(w, o->reg, 0); }

static bool has_transpose(const struct ptx_insn *in) { return in->types[1] == PTX_F16 || in->types[1] == PTX_BF16; }

/* D, A, B, scale-d [, scale-a, scale-b] [, trans-a, trans-b]; an A in registers has no trans-a. */
static struct form form_of(struct ptx_warp *w, const struct ptx_insn *in)
{
    struct form f = {.d_type = in->types[0], .a_type = in->types[1], .b_type = in->types[2], .scale_a = 1, .scale_b = 1};
    f.a_regs = in->ops[1].n > 0;
    int at = 4;
    if (!ptx_element_is_int(f.a_type) && in->n_ops >= 6) {
        f.scale_a = (int)constant(w, &in->ops[at++]);
        f.scale_b = (int)constant(w, &in->ops[at++]);
    }
    if (has_transpose(in)) {
        if (!f.a_regs && at < in->n_ops) f.trans_a = constant(w, &in->ops[at++]) != 0;
        if (at < in->n_ops) f.trans_b = constant(w, &in->ops[at]) != 0;
    }
    return f;
}

/* Where element (mn, k) of a shared operand lies. */
static uint32_t element_address(uint64_t desc, bool transposed, unsigned element_bytes, unsigned mn, unsigned k)
{
    uint32_t start = (uint32_t)(desc & 0x3fff) << 4, lead = (uint32_t)(desc >> 16 & 0x3fff) << 4;
    uint32_t stride = (uint32_t)(desc >> 32 & 0x3fff) << 4, mode = (uint32_t)(desc >> 62), at;
    uint32_t span = mode == 1 ? 128 : mode == 2 ? 64 : mode == 3 ? 32 : 16;
    if (!transposed) {
        uint32_t kb = k * element_bytes;
        at = mode ? start + mn / 8 * stride + mn % 8 * span + kb : start + mn / 8 * stride + mn % 8 * 16 + kb / 16 * lead + kb % 16;
    } else {
        unsigned per = 16 / element_bytes, chunks = span / 16, group = mn / (per * chunks);
        at = start + mn % per * element_bytes + mn / per % chunks * 16 + k % 8 * span;
        at += mode ? group * lead + k / 8 * stride : group * stride + k / 8 * lead;
    }
    return at ^ ((at >> 7 & (span / 16 - 1)) << 4);
}

static unsigned k_of(const struct ptx_insn *in) { return in->k; }

/* Calls a check for every 16-byte chunk of a warp's operand: rows first..first + n of mn. The offsets of chunks along k
 * (or along mn when transposed) cover each byte once. */
typedef bool (*chunk_fn)(struct ptx_warp *w, const struct ptx_insn *in, uint32_t offset, uint64_t *h);

static unsigned group_agent(const struct ptx_warp *w)
{
    return w->m->wgmma_agents + w->cta->rank * (((unsigned)w->cta->n_warps + 3) / 4) + (unsigned)w->id / 4;
}

static bool for_each_chunk(struct ptx_warp *w, const struct ptx_insn *in, uint64_t desc, bool transposed, unsigned type,
                           unsigned first, unsigned n, chunk_fn fn, uint64_t *h)
{
    unsigned bytes = ptx_element_bits(type) / 8, per = 16 / bytes;
    unsigned step_mn = transposed ? per : 1, step_k = transposed ? 1 : per;
    for (unsigned mn = first; mn < first + n; mn += step_mn)
        for (unsigned k = 0; k < k_of(in); k += step_k)
            if (!fn(w, in, element_address(desc, transposed, bytes, mn, k), h)) return false;
    return true;
}

static bool check_chunk(struct ptx_warp *w, const struct ptx_insn *in, uint32_t offset, uint64_t *h)
{
    const uint8_t *state = w->cta->shared_state;
    if (!ptx_shared_range(w, in, -1, w->cta, offset, 16)) return false;
    for (uint32_t i = offset; i < offset + 16; i++)
        if (state[i] == PTX_BYTE_IN_FLIGHT) {
            ptx_fault_warp(w, in, -1, PTX_FAULT_ASYNC, "wgmma reads shared address %u while a copy to it is not waited for", i);
            return false;
        }
    *h = ptx_hash_shared(w->cta, offset, 16, *h);
    return ptx_race_read_as(w, in, ptx_lowest(w->live), w->cta, offset, 16, group_agent(w), w->wgmma_issued);
}

static bool hash_chunk(struct ptx_warp *w, const struct ptx_insn *in, uint32_t offset, uint64_t *h)
{
    (void)in;
    *h = ptx_hash_shared(w->cta, offset, 16, *h);
    return true;
}

static bool visit_operands(struct ptx_warp *w, const struct ptx_wgmma *g, chunk_fn fn, uint64_t *h)
{
    struct form f = form_of(w, g->in);
    unsigned first = (unsigned)w->id % 4 * 16;
    if (!f.a_regs && !for_each_chunk(w, g->in, g->a, f.trans_a, f.a_type, first, 16, fn, h)) return false;
    return for_each_chunk(w, g->in, g->b, f.trans_b, f.b_type, 0, g->in->n, fn, h);
}

static uint64_t hash_registers(struct ptx_warp *w, const struct ptx_operand *o)
{
    uint64_t h = 0;
    for (int i = 0; i < o->n; i++) {
        const uint32_t *row = (const uint32_t *)(const void *)(w->regs + w->k->regs[o->regs[i]].off);
        for (int l = 0; l < 32; l++) h = (h ^ row[l]) * UINT64_C(1099511628211);
    }
    return h;
}

/* ---- the product ---- */

struct rows {
    float f[MAX_N][32];
    int32_t i[MAX_N][32];
    bool undefined[MAX_N];
};

static void read_shared(struct ptx_warp *w, const struct ptx_insn *in, uint64_t desc, bool transposed, unsigned type,
                        unsigned first, unsigned n, int scale, struct rows *out)
{
    unsigned bytes = ptx_element_bits(type) / 8;
    for (unsigned r = 0; r < n; r++) {
        out->undefined[r] = false;
        for (unsigned k = 0; k < k_of(in); k++) {
            uint32_t at = element_address(desc, transposed, bytes, first + r, k), v = 0;
            memcpy(&v, w->cta->shared + at, bytes);
            for (unsigned b = 0; b < bytes; b++)
                if (w->cta->shared_state[at + b] != PTX_BYTE_DEFINED) out->undefined[r] = true;
            if (ptx_element_is_int(type)) out->i[r][k] = ptx_element_int(type, v);
            else out->f[r][k] = (float)scale * ptx_element_float(type, v);
        }
    }
}

static void read_registers(struct ptx_warp *w, const struct ptx_insn *in, unsigned type, int scale, struct rows *out)
{
    unsigned bits = ptx_element_bits(type), per = 32 / bits;
    memset(out->undefined, 0, 16);
    for (int l = 0; l < 32; l++)
        for (int r = 0; r < in->ops[1].n; r++)
            for (unsigned e = 0; e < per; e++) {
                int reg = in->ops[1].regs[r];
                unsigned row = (unsigned)l / 4 + 8 * ((unsigned)r % 2);
                unsigned col = per * ((unsigned)l % 4) + 4 * per * ((unsigned)r / 2) + e;
                uint32_t v = (uint32_t)ptx_get(w, reg, l) >> (e * bits);
                if (ptx_element_is_int(type)) out->i[row][col] = ptx_element_int(type, v);
                else out->f[row][col] = (float)scale * ptx_element_float(type, v);
                if (!(w->def[reg] >> l & 1)) out->undefined[row] = true;
            }
}

/* The sum as Hopper's fp8 units keep it: everything is aligned to the largest term and cut 13 bits below it. */
static double narrow_sum(double c, const float *a, const float *b, unsigned k)
{
    double largest = fabs(c), sum = 0;
    int e;
    for (unsigned i = 0; i < k; i++) largest = fmax(largest, fabs((double)a[i] * (double)b[i]));
    if (largest == 0 || !isfinite(largest)) {
        sum = c;
        for (unsigned i = 0; i < k; i++) sum += (double)a[i] * (double)b[i];
        return sum;
    }
    frexp(largest, &e);
    double unit = ldexp(1, e - 1 - 13);
    sum = trunc(c / unit);
    for (unsigned i = 0; i < k; i++) sum += trunc((double)a[i] * (double)b[i] / unit);
    return sum * unit;
}

static double float_sum(const struct form *f, double c, const float *a, const float *b, unsigned k)
{
    if (f->a_type == PTX_E4M3 || f->a_type == PTX_E5M2) return narrow_sum(c, a, b, k);
    for (unsigned i = 0; i < k; i++) c += (double)a[i] * (double)b[i];
    return c;
}

static void store_value(struct ptx_warp *w, const struct ptx_insn *in, unsigned type, int lane, unsigned v, uint32_t bits)
{
    if (type != PTX_F16) {
        ptx_set(w, in->ops[0].regs[v], lane, bits);
        return;
    }
    uint32_t old = (uint32_t)ptx_get(w, in->ops[0].regs[v / 2], lane), at = v % 2 * 16;
    ptx_set(w, in->ops[0].regs[v / 2], lane, (old & ~(0xffffu << at)) | (bits & 0xffff) << at);
}

/* A warp's part of the product, into its accumulators. Undefined operands leave them undefined. */
static void multiply(struct ptx_warp *w, const struct ptx_wgmma *g, struct rows *a, struct rows *b)
{
    const struct ptx_insn *in = g->in;
    struct form f = form_of(w, in);
    if (f.a_regs) read_registers(w, in, f.a_type, f.scale_a, a);
    else read_shared(w, in, g->a, f.trans_a, f.a_type, (unsigned)w->id % 4 * 16, 16, f.scale_a, a);
    read_shared(w, in, g->b, f.trans_b, f.b_type, 0, in->n, f.scale_b, b);
    for (int l = 0; l < 32; l++)
        for (unsigned v = 0; v < in->n / 2; v++) {
            unsigned row = (unsigned)l / 4 + 8 * (v / 2 % 2), col = v / 4 * 8 + (unsigned)l % 4 * 2 + v % 2;
            uint32_t old = f.d_type == PTX_F16 ? (uint32_t)ptx_get(w, in->ops[0].regs[v / 2], l) >> (v % 2 * 16)
                                               : (uint32_t)ptx_get(w, in->ops[0].regs[v], l);
            uint32_t bits;
            if (f.d_type == PTX_S32) {
                int64_t sum = g->accumulate ? (int32_t)old : 0;
                for (unsigned k = 0; k < k_of(in); k++) sum += (int64_t)a->i[row][k] * b->i[col][k];
                if (in->flags & PTX_F_SATFINITE) sum = sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum;
                bits = (uint32_t)sum;
            } else {
                double c = g->accumulate ? ptx_widen(f.d_type, old) : 0;
                bits = ptx_narrow(f.d_type, float_sum(&f, c, a->f[row], b->f[col], k_of(in)), PTX_ROUND_RN, false);
            }
            store_value(w, in, f.d_type, l, v, bits);
            if (a->undefined[row] || b->undefined[col]) w->wgmma_undefined = true;
        }
}

static bool run_product(struct ptx_warp *w, const struct ptx_wgmma *g)
{
    struct rows *a = malloc(2 * sizeof *a);
    if (!a) {
        ptx_fault_at(w->m, PTX_FAULT_MEMORY, 0, "out of host memory");
        return false;
    }
    multiply(w, g, a, a + 1);
    free(a);
    return true;
}

/* ---- issue, commit, wait ---- */

/* The registers of an instruction, as they were at the last wgmma.fence. */
static bool same_since_fence(struct ptx_warp *w, const struct ptx_operand *o)
{
    for (int i = 0; i < o->n; i++) {
        const struct ptx_reg *r = &w->k->regs[o->regs[i]];
        if (memcmp(w->regs + r->off, w->fenced_regs + r->off, r->bytes * 32u)) return false;
    }
    return true;
}

static bool in_flight(const struct ptx_warp *w, int reg)
{
    for (const struct ptx_wgmma *g = w->wgmma; g; g = g->next)
        for (int i = 0; i < g->in->ops[0].n; i++)
            if (g->in->ops[0].regs[i] == reg) return true;
    return false;
}

bool ptx_wgmma_check_use(struct ptx_warp *w, const struct ptx_insn *in)
{
    if (in->op >= PTX_OP_WGMMA) return true;
    for (int i = 0; i < in->n_ops; i++) {
        const struct ptx_operand *o = &in->ops[i];
        for (int j = o->n ? 0 : -1; j < o->n; j++) {
            int reg = j < 0 ? o->reg : o->regs[j];
            if (reg < 0 || w->k->regs[reg].fill != PTX_FILL_NONE || !in_flight(w, reg)) continue;
            ptx_fault_warp(w, in, -1, PTX_FAULT_ASYNC, "an accumulator of a wgmma that is not waited for");
            return false;
        }
    }
    return true;
}

void ptx_x_wgmma_fence(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    if (!ptx_converged(w, in, mask, w->live)) return;
    if (!w->fenced_regs) w->fenced_regs = malloc(w->k->reg_bytes + 256u);
    if (!w->fenced_regs) {
        ptx_fault_at(w->m, PTX_FAULT_MEMORY, 0, "out of host memory");
        return;
    }
    memcpy(w->fenced_regs, w->regs, w->k->reg_bytes);
    w->wgmma_fenced = true;
}

static bool check_issue(struct ptx_warp *w, const struct ptx_insn *in, const struct form *f, bool accumulate)
{
    const struct ptx_operand *d = &in->ops[0];
    bool chained = d->n && in_flight(w, d->regs[0]);
    if (!w->wgmma_fenced || (!chained && accumulate && !same_since_fence(w, d)) || (f->a_regs && !same_since_fence(w, &in->ops[1]))) {
        ptx_fault_warp(w, in, -1, PTX_FAULT_ASYNC, "registers of a wgmma were written after the last wgmma.fence");
        return false;
    }
    for (int i = 0; i < d->n && accumulate && !chained; i++)
        if (!ptx_need_defined(w, in, d->regs[i], UINT32_MAX, "an accumulator")) return false;
    return true;
}

/* The four warps of a group issue the same: each is compared with what the first of them issued as number n. */
static bool check_group(struct ptx_warp *w, const struct ptx_wgmma *g)
{
    struct ptx_wgmma_log *log = &w->cta->wgmma_logs[w->id / 4];
    unsigned n = g->number - 1, at = n % PTX_WGMMA_LOG;
    w->wgmma_issued++;
    if (n >= log->n) {
        log->n = n + 1;
        log->entry[at].in = g->in;
        log->entry[at].a = g->a;
        log->entry[at].b = g->b;
        return true;
    }
    if (log->n - n > PTX_WGMMA_LOG) return true; /* too long ago */
    if (log->entry[at].in == g->in && log->entry[at].b == g->b && (g->in->ops[1].n || log->entry[at].a == g->a)) return true;
    ptx_fault_warp(w, g->in, -1, PTX_FAULT_DIVERGENCE, "the warps of a warpgroup issue different wgmma");
    return false;
}

static bool uniform64(struct ptx_warp *w, const struct ptx_insn *in, const struct ptx_operand *o, uint64_t *out)
{
    if (!ptx_need_defined(w, in, o->reg, UINT32_MAX, "a matrix descriptor")) return false;
    *out = ptx_get(w, o->reg, 0);
    for (int l = 1; l < 32; l++)
        if (ptx_get(w, o->reg, l) != *out) {
            ptx_fault_warp(w, in, l, PTX_FAULT_DIVERGENCE, "lanes name different matrix descriptors");
            return false;
        }
    return true;
}

void ptx_x_wgmma(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    struct ptx_wgmma g = {.in = in, .group = w->wgmma_group, .number = w->wgmma_issued + 1};
    if (!ptx_converged(w, in, mask, w->initial)) return;
    if (mask != UINT32_MAX || w->cta->n_warps < w->id / 4 * 4 + 4) {
        ptx_fault_warp(w, in, -1, PTX_FAULT_DIVERGENCE, "wgmma in a warpgroup of fewer than 128 threads");
        return;
    }
    struct form f = form_of(w, in);
    const struct ptx_operand *scale = &in->ops[3];
    if (!ptx_need_defined(w, in, scale->reg, mask, "scale-d")) return;
    g.accumulate = ptx_pred_bits(w, scale) & 1;
    if (!f.a_regs && !uniform64(w, in, &in->ops[1], &g.a)) return;
    if (!uniform64(w, in, &in->ops[2], &g.b) || !check_issue(w, in, &f, g.accumulate) || !check_group(w, &g)) return;
    if (!visit_operands(w, &g, check_chunk, &g.hash)) return;
    g.a_hash = hash_registers(w, &in->ops[1]);
    if (w->id % 4 == 0) w->m->counters.wgmma++;
    struct ptx_wgmma *copy = malloc(sizeof *copy), **end = &w->wgmma;
    if (!copy) {
        ptx_fault_at(w->m, PTX_FAULT_MEMORY, 0, "out of host memory");
        return;
    }
    *copy = g;
    copy->next = NULL;
    while (*end) end = &(*end)->next;
    *end = copy;
    if (w->m->options.early && !run_product(w, &g)) return;
    for (int i = 0; i < in->ops[0].n; i++) w->def[in->ops[0].regs[i]] = 0;
}

void ptx_x_wgmma_commit(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    if (ptx_converged(w, in, mask, w->live)) w->wgmma_group++;
}

/* A warp's part of an operation: its operands must be what they were. */
static bool perform(struct ptx_warp *w, struct ptx_wgmma *g)
{
    uint64_t h = 0;
    if (g->done) return true;
    g->done = true;
    visit_operands(w, g, hash_chunk, &h);
    if (h != g->hash) {
        ptx_fault_warp(w, g->in, -1, PTX_FAULT_ASYNC, "the operands of a wgmma in shared memory changed before it was waited for");
        return false;
    }
    if (hash_registers(w, &g->in->ops[1]) != g->a_hash) {
        ptx_fault_warp(w, g->in, -1, PTX_FAULT_ASYNC, "the registers of a wgmma changed before it was waited for");
        return false;
    }
    for (int i = 0; i < g->in->ops[0].n; i++)
        if (w->def[g->in->ops[0].regs[i]]) {
            ptx_fault_warp(w, g->in, -1, PTX_FAULT_ASYNC, "an accumulator was written while a wgmma was in flight");
            return false;
        }
    if (!w->m->options.early && !run_product(w, g)) return false;
    for (int i = 0; i < g->in->ops[0].n; i++) {
        int reg = g->in->ops[0].regs[i];
        const struct ptx_reg *r = &w->k->regs[reg];
        memcpy(w->fenced_regs + r->off, w->regs + r->off, r->bytes * 32u);
        w->def[reg] = 0;
    }
    return true;
}

/* All warps of the group have issued operations up to `number`, and perform them. */
static bool perform_group(struct ptx_warp *w, unsigned number, bool *out_waits)
{
    struct ptx_warp *first = &w->cta->warps[w->id / 4 * 4];
    *out_waits = false;
    for (int i = 0; i < 4; i++)
        if (first[i].wgmma_issued < number) {
            *out_waits = true;
            return true;
        }
    for (int i = 0; i < 4; i++)
        for (struct ptx_wgmma *g = first[i].wgmma; g && g->number <= number; g = g->next)
            if (!perform(&first[i], g)) return false;
    return true;
}

void ptx_x_wgmma_wait(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    unsigned keep = (unsigned)ptx_get(w, in->ops[0].reg, 0);
    bool waits;
    if (!ptx_converged(w, in, mask, w->live)) return;
    while (w->wgmma && w->wgmma_group >= keep && w->wgmma->group < w->wgmma_group - keep) {
        struct ptx_wgmma *g = w->wgmma;
        if (!perform_group(w, g->number, &waits)) return;
        if (waits) { /* for the other warps: this instruction again */
            w->next = (uint32_t)(in - w->k->insns);
            w->status = PTX_W_YIELD;
            return;
        }
        w->wgmma = g->next;
        for (int i = 0; i < g->in->ops[0].n; i++)
            if (!in_flight(w, g->in->ops[0].regs[i]))
                w->def[g->in->ops[0].regs[i]] = w->wgmma_undefined ? 0 : UINT32_MAX;
        struct ptx_seen *seen = &w->seen[group_agent(w)];
        if (seen->full < g->number) seen->full = g->number;
        free(g);
        if (!w->wgmma) w->wgmma_undefined = false;
        w->m->progress++;
    }
}

void ptx_wgmma_check_exit(struct ptx_warp *w, const struct ptx_insn *in)
{
    struct ptx_cta *cta = w->cta;
    int first = w->id / 4 * 4;
    for (int i = first; i < first + 4 && i < cta->n_warps; i++)
        if (cta->warps[i].live) return;
    for (int i = first + 1; i < first + 4 && i < cta->n_warps; i++)
        if (cta->warps[i].wgmma_issued != cta->warps[first].wgmma_issued) {
            ptx_fault_warp(w, in, -1, PTX_FAULT_DIVERGENCE, "the warps of a warpgroup issued different numbers of wgmma");
            return;
        }
}

void ptx_wgmma_reset(struct ptx_warp *w)
{
    while (w->wgmma) {
        struct ptx_wgmma *next = w->wgmma->next;
        free(w->wgmma);
        w->wgmma = next;
    }
    w->wgmma_group = w->wgmma_issued = 0;
    w->wgmma_fenced = w->wgmma_undefined = false;
    w->cta->wgmma_logs[w->id / 4].n = 0;
}
