// SPDX-License-Identifier: Apache-2.0
/*
 * mma.sync, wmma and the matrix moves.
 *
 * Fragments of mma.sync: with g = lane / 4 and t = lane % 4, a register of A, B, C or D holds
 * e = 32 / element bits neighbours (two f32 or s32 accumulators take two registers):
 *
 *   A (m16 x k)  register r: row g + 8 (r % 2), columns e t + 4 e (r / 2) + 0 .. e-1
 *   B (k x n8)   register r: column g, rows e t + 4 e r + 0 .. e-1
 *   C (m16 x n8) value v:    row g + 8 (v / 2), column 2 t + v % 2
 *
 * m8n8k4 in f64 has one value of A, B a lane. Fragments of wmma are not specified; here a lane holds what
 * the shape's elements, numbered row by row, give it when they are dealt out in runs.
 *
 * Products and sums are computed in double and rounded once: hardware keeps fewer bits in between and
 * rounds by truncation, within the error bound that tests use.
 */
#include <math.h>

#include "tests/ptx/interp/float.h"
#include "tests/ptx/interp/lanes.h"
#include "tests/ptx/interp/mma.h"

unsigned ptx_element_bits(unsigned type)
{
    switch (type) {
    case PTX_B1: return 1;
    case PTX_S4:
    case PTX_U4: return 4;
    default: return ptx_types[type].bytes * 8u;
    }
}

float ptx_element_float(unsigned type, uint32_t bits)
{
    switch (type) {
    case PTX_F16: return ptx_f16_to_f32(bits & 0xffff);
    case PTX_BF16: return ptx_bf16_to_f32(bits & 0xffff);
    case PTX_E4M3: return ptx_e4m3_to_f32(bits & 0xff);
    case PTX_E5M2: return ptx_e5m2_to_f32(bits & 0xff);
    case PTX_TF32: return ptx_tf32_in(bits);
    default: return ptx_f32(bits);
    }
}

int32_t ptx_element_int(unsigned type, uint32_t bits)
{
    switch (type) {
    case PTX_S8: return (int32_t)ptx_sign_extend(bits, 1);
    case PTX_U8: return (int32_t)(bits & 0xff);
    case PTX_S4: return (int32_t)((bits & 15) ^ 8) - 8;
    case PTX_U4: return (int32_t)(bits & 15);
    default: return (int32_t)(bits & 1);
    }
}

/* A matrix operand of a warp: M or N rows of K elements, as floats or integers. */
struct operand {
    float f[32][32];
    int32_t i[32][256];
    bool undefined[32];
};

struct accumulators {
    double f[32][32];
    int64_t i[32][32];
    bool undefined[32][32];
};

struct shape {
    unsigned m, n, k, a_type, b_type, c_type, d_type;
};

/* Element `index` of a lane's registers. */
static uint32_t element_at(struct ptx_warp *w, const struct ptx_operand *o, unsigned type, int lane, unsigned index,
                           bool *out_defined)
{
    unsigned bits = ptx_element_bits(type), per = 32 / bits;
    int reg = o->n ? o->regs[index / per] : o->reg;
    *out_defined = w->def[reg] >> lane & 1;
    return (uint32_t)ptx_get(w, reg, lane) >> (index % per * bits);
}

static void put_operand(struct operand *x, unsigned type, unsigned row, unsigned col, uint32_t bits, bool defined)
{
    if (ptx_element_is_int(type)) x->i[row][col] = ptx_element_int(type, bits);
    else x->f[row][col] = ptx_element_float(type, bits);
    if (!defined) x->undefined[row] = true;
}

/* A (rows of M) or B (rows of N: its columns) of mma.sync. */
static void read_fragment(struct ptx_warp *w, const struct ptx_operand *o, unsigned type, bool is_a, unsigned k,
                          struct operand *out)
{
    unsigned per = 32 / ptx_element_bits(type), n = (is_a ? 16 : 8) * k / 32;
    memset(out->undefined, 0, sizeof out->undefined);
    for (int l = 0; l < 32; l++) {
        unsigned g = (unsigned)l / 4, t = (unsigned)l % 4;
        for (unsigned i = 0; i < n; i++) {
            unsigned r = i / per, e = i % per;
            unsigned row = is_a ? g + 8 * (r % 2) : g;
            unsigned col = per * t + 4 * per * (is_a ? r / 2 : r) + e;
            bool defined;
            uint32_t bits = element_at(w, o, type, l, i, &defined);
            put_operand(out, type, row, col, bits, defined);
        }
    }
}

static void read_accumulator(struct ptx_warp *w, const struct ptx_operand *o, unsigned type, int lane, unsigned v,
                             unsigned row, unsigned col, struct accumulators *acc)
{
    bool defined;
    uint32_t bits = element_at(w, o, type, lane, v, &defined);
    if (type == PTX_S32) acc->i[row][col] = (int32_t)bits;
    else acc->f[row][col] = ptx_widen(type, bits);
    acc->undefined[row][col] = !defined;
}

static uint32_t accumulator_bits(const struct ptx_insn *in, const struct shape *s, const struct accumulators *acc,
                                 unsigned row, unsigned col)
{
    if (s->d_type == PTX_S32) {
        int64_t v = acc->i[row][col];
        if (in->flags & PTX_F_SATFINITE) v = v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : v;
        return (uint32_t)v;
    }
    return ptx_narrow(s->d_type, acc->f[row][col], PTX_ROUND_RN, false);
}

static void multiply(const struct ptx_insn *in, const struct shape *s, const struct operand *a, const struct operand *b,
                     struct accumulators *acc)
{
    bool ints = ptx_element_is_int(s->a_type);
    for (unsigned i = 0; i < s->m; i++)
        for (unsigned j = 0; j < s->n; j++) {
            if (a->undefined[i] || b->undefined[j]) acc->undefined[i][j] = true;
            if (ints) {
                int64_t sum = acc->i[i][j];
                for (unsigned k = 0; k < s->k; k++)
                    sum += s->a_type != PTX_B1       ? (int64_t)a->i[i][k] * b->i[j][k]
                           : in->sub == PTX_SUB_AND ? a->i[i][k] & b->i[j][k]
                                                    : a->i[i][k] ^ b->i[j][k];
                acc->i[i][j] = sum;
            } else {
                double sum = acc->f[i][j];
                for (unsigned k = 0; k < s->k; k++) sum += (double)a->f[i][k] * (double)b->f[j][k];
                acc->f[i][j] = sum;
            }
        }
}

/* Packs 16-bit results in pairs. */
static void write_value(struct ptx_warp *w, const struct ptx_operand *o, unsigned type, int lane, unsigned v,
                        uint32_t bits, bool defined)
{
    unsigned per = 32 / ptx_element_bits(type);
    int reg = o->n ? o->regs[v / per] : o->reg;
    if (reg < 0) return;
    if (per == 1) {
        ptx_set(w, reg, lane, bits);
        if (!defined) w->def[reg] &= ~(1u << lane);
        return;
    }
    uint32_t old = (uint32_t)ptx_get(w, reg, lane), at = v % 2 * 16;
    bool low_defined = at == 0 || w->def[reg] >> lane & 1;
    ptx_set(w, reg, lane, (old & ~(0xffffu << at)) | (bits & 0xffff) << at);
    if (!defined || !low_defined) w->def[reg] &= ~(1u << lane);
}

static void mma_f64(struct ptx_warp *w, const struct ptx_insn *in)
{
    double a[8][4], b[8][4];
    uint32_t defined = ptx_sources_defined(w, in, 1, UINT32_MAX);
    for (int l = 0; l < 32; l++) {
        a[l / 4][l % 4] = ptx_f64(ptx_get(w, in->ops[1].n ? in->ops[1].regs[0] : in->ops[1].reg, l));
        b[l / 4][l % 4] = ptx_f64(ptx_get(w, in->ops[2].n ? in->ops[2].regs[0] : in->ops[2].reg, l));
    }
    double d[32][2];
    for (int l = 0; l < 32; l++)
        for (int v = 0; v < 2; v++) {
            double sum = ptx_f64(ptx_get(w, in->ops[3].regs[v], l));
            for (int k = 0; k < 4; k++) sum = fma(a[l / 4][k], b[l % 4 * 2 + v][k], sum);
            d[l][v] = sum;
        }
    for (int l = 0; l < 32; l++)
        for (int v = 0; v < 2; v++) ptx_set(w, in->ops[0].regs[v], l, ptx_bits64(d[l][v]));
    for (int v = 0; v < 2; v++)
        if (defined != UINT32_MAX) w->def[in->ops[0].regs[v]] = 0;
}

void ptx_x_mma(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    if (!ptx_converged(w, in, mask, UINT32_MAX & w->initial)) return;
    if (mask != UINT32_MAX) {
        ptx_fault_warp(w, in, -1, PTX_FAULT_DIVERGENCE, "a tensor instruction in a warp of fewer than 32 lanes");
        return;
    }
    w->m->counters.mma++;
    if (in->types[0] == PTX_F64) {
        mma_f64(w, in);
        return;
    }
    struct shape s = {in->m, in->n, in->k, in->types[1], in->types[2], in->types[3], in->types[0]};
    struct operand a, b;
    struct accumulators acc;
    memset(acc.undefined, 0, sizeof acc.undefined);
    read_fragment(w, &in->ops[1], s.a_type, true, s.k, &a);
    read_fragment(w, &in->ops[2], s.b_type, false, s.k, &b);
    for (int l = 0; l < 32; l++)
        for (unsigned v = 0; v < 4; v++)
            read_accumulator(w, &in->ops[3], s.c_type, l, v, (unsigned)l / 4 + 8 * (v / 2), (unsigned)l % 4 * 2 + v % 2,
                             &acc);
    multiply(in, &s, &a, &b, &acc);
    for (int l = 0; l < 32; l++)
        for (unsigned v = 0; v < 4; v++) {
            unsigned row = (unsigned)l / 4 + 8 * (v / 2), col = (unsigned)l % 4 * 2 + v % 2;
            write_value(w, &in->ops[0], s.d_type, l, v, accumulator_bits(in, &s, &acc, row, col),
                        !acc.undefined[row][col]);
        }
}

/* ---- wmma ---- */

/* How a matrix of wmma is dealt out to lanes: element x of the row-major order goes to lane
 * x / per_lane. No program may rely on it. Hardware holds A and B twice in some types, so that
 * a fragment has more registers than it needs: the rest repeats it. */
struct deal {
    unsigned rows, cols, type, per_lane;
};

static struct deal deal_of(const struct ptx_insn *in, char role, unsigned type)
{
    struct deal d = {.type = type};
    d.rows = role == 'a' ? in->m : role == 'b' ? in->k : in->m;
    d.cols = role == 'a' ? in->k : role == 'b' ? in->n : in->n;
    d.per_lane = d.rows * d.cols / 32;
    return d;
}

static int fragment_reg(const struct ptx_operand *o, unsigned index)
{
    return o->n ? o->regs[index] : o->reg;
}

static void wmma_move(struct ptx_warp *w, const struct ptx_insn *in, const struct ptx_operand *frag,
                      const struct ptx_operand *mem, const struct ptx_operand *stride, struct deal d, bool store)
{
    enum ptx_space space = in->n_spaces ? (enum ptx_space)in->spaces[0] : PTX_SPACE_GENERIC;
    unsigned bits = ptx_element_bits(d.type), bytes = bits / 8, per = 32 / bits;
    bool col = in->layouts[0];
    uint64_t ld = col ? d.rows : d.cols;
    if (d.type == PTX_F64 || bits < 8) {
        ptx_unsupported(w, in);
        return;
    }
    if (!ptx_need_defined(w, in, mem->reg, UINT32_MAX, "an address") ||
        (stride && !ptx_need_defined(w, in, stride->reg, UINT32_MAX, "the stride of a matrix")))
        return;
    if (stride) ld = (uint32_t)ptx_get(w, stride->reg, 0);
    for (int l = 0; l < 32; l++)
        for (unsigned i = 0; i < d.per_lane; i++) {
            unsigned x = (unsigned)l * d.per_lane + i, row = x / d.cols, c = x % d.cols;
            uint64_t at = ptx_address(w, mem, l) + (col ? c * ld + row : row * ld + c) * bytes;
            struct ptx_place p;
            int reg = fragment_reg(frag, i / per);
            unsigned shift = i % per * bits;
            bool defined;
            if (!ptx_place(w, in, l, space, at, bytes, bytes, &p)) return;
            if (store) {
                uint32_t v = (uint32_t)ptx_get(w, reg, l) >> shift;
                if (!ptx_place_write(w, in, l, &p, bytes, false, w->def[reg] >> l & 1)) return;
                memcpy(p.data, &v, bytes);
                continue;
            }
            uint32_t v = 0, old = i % per ? (uint32_t)ptx_get(w, reg, l) : 0;
            bool before = i % per == 0 || w->def[reg] >> l & 1;
            if (!ptx_place_read(w, in, l, &p, bytes, false, &defined)) return;
            memcpy(&v, p.data, bytes);
            ptx_set(w, reg, l, old | v << shift);
            if (!defined || !before) w->def[reg] &= ~(1u << l);
        }
    /* Registers beyond: the same again. */
    unsigned used = d.per_lane / per;
    for (unsigned i = used; !store && frag->n && i < (unsigned)frag->n; i++)
        for (int l = 0; l < 32; l++) {
            ptx_set(w, frag->regs[i], l, ptx_get(w, frag->regs[i - used], l));
            ptx_mark(w, frag->regs[i], 1u << l, w->def[frag->regs[i - used]]);
        }
}

static bool whole_warp(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    if (!ptx_converged(w, in, mask, w->initial)) return false;
    if (mask == UINT32_MAX) return true;
    ptx_fault_warp(w, in, -1, PTX_FAULT_DIVERGENCE, "a tensor instruction in a warp of fewer than 32 lanes");
    return false;
}

/* tf32 fragments are loaded by wmma.load in type tf32: 32-bit elements. */
void ptx_x_wmma_load(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    if (!whole_warp(w, in, mask)) return;
    wmma_move(w, in, &in->ops[0], &in->ops[1], in->n_ops > 2 ? &in->ops[2] : NULL,
              deal_of(in, (char)in->role, in->types[0]), false);
}

void ptx_x_wmma_store(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    if (!whole_warp(w, in, mask)) return;
    wmma_move(w, in, &in->ops[1], &in->ops[0], in->n_ops > 2 ? &in->ops[2] : NULL, deal_of(in, 'd', in->types[0]), true);
}

static void gather(struct ptx_warp *w, const struct ptx_operand *o, struct deal d, bool by_column, struct operand *out)
{
    memset(out->undefined, 0, sizeof out->undefined);
    for (int l = 0; l < 32; l++)
        for (unsigned i = 0; i < d.per_lane; i++) {
            unsigned x = (unsigned)l * d.per_lane + i, row = x / d.cols, col = x % d.cols;
            bool defined;
            uint32_t bits = element_at(w, o, d.type, l, i, &defined);
            put_operand(out, d.type, by_column ? col : row, by_column ? row : col, bits, defined);
        }
}

void ptx_x_wmma_mma(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    if (!whole_warp(w, in, mask)) return;
    /* Types: d, c for f16 operands; d, a, b, c otherwise. */
    bool halves = in->n_types == 2;
    struct shape s = {in->m, in->n, in->k, halves ? PTX_F16 : in->types[1], halves ? PTX_F16 : in->types[2],
                      halves ? in->types[1] : in->types[3], in->types[0]};
    struct operand a, b;
    struct accumulators acc;
    struct deal c = deal_of(in, 'c', s.c_type), d = deal_of(in, 'd', s.d_type);
    w->m->counters.mma++;
    gather(w, &in->ops[1], deal_of(in, 'a', s.a_type), false, &a);
    gather(w, &in->ops[2], deal_of(in, 'b', s.b_type), true, &b);
    memset(acc.undefined, 0, sizeof acc.undefined);
    for (int l = 0; l < 32; l++)
        for (unsigned i = 0; i < c.per_lane; i++) {
            unsigned x = (unsigned)l * c.per_lane + i;
            read_accumulator(w, &in->ops[3], s.c_type, l, i, x / c.cols, x % c.cols, &acc);
        }
    multiply(in, &s, &a, &b, &acc);
    for (int l = 0; l < 32; l++)
        for (unsigned i = 0; i < d.per_lane; i++) {
            unsigned x = (unsigned)l * d.per_lane + i, row = x / d.cols, col = x % d.cols;
            write_value(w, &in->ops[0], s.d_type, l, i, accumulator_bits(in, &s, &acc, row, col), !acc.undefined[row][col]);
        }
}
