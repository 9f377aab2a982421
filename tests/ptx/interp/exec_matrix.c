// SPDX-License-Identifier: Apache-2.0
/*
 * ldmatrix, stmatrix, movmatrix: 8x8 matrices of 16-bit elements between shared memory and lanes.
 *
 * Lane 8 i + r holds the address of row r of matrix i. Register i of lane l holds elements 2 (l % 4) and
 * + 1 of row l / 4, or of column l / 4 with .trans.
 */
#include "tests/ptx/interp/lanes.h"

static bool whole_warp(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    if (!ptx_converged(w, in, mask, w->initial)) return false;
    if (mask == UINT32_MAX) return true;
    ptx_fault_warp(w, in, -1, PTX_FAULT_DIVERGENCE, "a matrix move in a warp of fewer than 32 lanes");
    return false;
}

static int matrix_reg(const struct ptx_operand *o, int i) { return o->n ? o->regs[i] : o->reg; }

struct matrix {
    uint16_t e[8][8];
    bool undefined[8][8];
};

static bool row_place(struct ptx_warp *w, const struct ptx_insn *in, const struct ptx_operand *mem, int lane,
                      struct ptx_place *out)
{
    enum ptx_space space = in->n_spaces ? (enum ptx_space)in->spaces[0] : PTX_SPACE_GENERIC;
    if (!ptx_need_defined(w, in, mem->reg, 1u << lane, "an address")) return false;
    if (!ptx_place(w, in, lane, space, ptx_address(w, mem, lane), 16, 16, out)) return false;
    if (out->space == PTX_SPACE_SHARED) return true;
    ptx_fault_warp(w, in, lane, PTX_FAULT_BOUNDS, "a matrix row that is not in shared memory");
    return false;
}

static void count_rows(struct ptx_warp *w, const struct ptx_operand *mem, int matrices)
{
    uint64_t address[32];
    for (int l = 0; l < 32; l++) address[l] = ptx_address(w, mem, l) & UINT32_MAX;
    ptx_count_shared(w->m, address, matrices == 4 ? UINT32_MAX : (1u << (8 * matrices)) - 1, 16);
}

/* A row is read for every lane of the warp: races are those of the lane that names it. */
static bool read_matrix(struct ptx_warp *w, const struct ptx_insn *in, int index, struct matrix *out)
{
    for (int r = 0; r < 8; r++) {
        struct ptx_place p;
        bool defined;
        int lane = index * 8 + r;
        if (!row_place(w, in, &in->ops[1], lane, &p) || !ptx_place_read(w, in, lane, &p, 16, false, &defined)) return false;
        memcpy(out->e[r], p.data, 16);
        for (int c = 0; c < 8; c++)
            out->undefined[r][c] = p.state[2 * c] != PTX_BYTE_DEFINED || p.state[2 * c + 1] != PTX_BYTE_DEFINED;
    }
    return true;
}

void ptx_x_ldmatrix(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    struct matrix x[4];
    bool trans = in->flags & PTX_F_TRANS;
    if (!whole_warp(w, in, mask)) return;
    for (int i = 0; i < in->count; i++)
        if (!read_matrix(w, in, i, &x[i])) return;
    count_rows(w, &in->ops[1], in->count);
    for (int i = 0; i < in->count; i++) {
        int reg = matrix_reg(&in->ops[0], i);
        for (int l = 0; l < 32; l++) {
            int r = l / 4, c = l % 4 * 2;
            uint32_t low = trans ? x[i].e[c][r] : x[i].e[r][c], high = trans ? x[i].e[c + 1][r] : x[i].e[r][c + 1];
            bool undefined = trans ? x[i].undefined[c][r] || x[i].undefined[c + 1][r]
                                   : x[i].undefined[r][c] || x[i].undefined[r][c + 1];
            ptx_set(w, reg, l, low | high << 16);
            if (undefined && reg >= 0) w->def[reg] &= ~(1u << l);
        }
    }
}

void ptx_x_stmatrix(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    bool trans = in->flags & PTX_F_TRANS;
    if (!whole_warp(w, in, mask)) return;
    for (int i = 0; i < in->count; i++) {
        int reg = matrix_reg(&in->ops[1], i);
        for (int r = 0; r < 8; r++) {
            struct ptx_place p;
            int lane = i * 8 + r;
            if (!row_place(w, in, &in->ops[0], lane, &p) || !ptx_place_write(w, in, lane, &p, 16, false, true)) return;
            for (int c = 0; c < 8; c++) {
                int from = trans ? c * 4 + r / 2 : r * 4 + c / 2, half = trans ? r & 1 : c & 1;
                uint16_t v = (uint16_t)(ptx_get(w, reg, from) >> (16 * half));
                memcpy(p.data + 2 * c, &v, 2);
                if (!(w->def[reg] >> from & 1)) memset(p.state + 2 * c, PTX_BYTE_UNDEFINED, 2);
            }
        }
    }
    count_rows(w, &in->ops[0], in->count);
}

/* The transpose of a matrix that lies across the warp. */
void ptx_x_movmatrix(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    uint16_t e[8][8];
    if (!whole_warp(w, in, mask)) return;
    uint32_t defined = w->def[in->ops[1].reg] == UINT32_MAX ? UINT32_MAX : 0;
    for (int l = 0; l < 32; l++) {
        uint32_t v = (uint32_t)ptx_get(w, in->ops[1].reg, l);
        e[l / 4][l % 4 * 2] = (uint16_t)v;
        e[l / 4][l % 4 * 2 + 1] = (uint16_t)(v >> 16);
    }
    for (int l = 0; l < 32; l++)
        ptx_set(w, in->ops[0].reg, l, e[l % 4 * 2][l / 4] | (uint32_t)e[l % 4 * 2 + 1][l / 4] << 16);
    ptx_mark(w, in->ops[0].reg, UINT32_MAX, defined);
}
