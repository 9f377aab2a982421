// SPDX-License-Identifier: Apache-2.0
/* What the files of the matmul schedule share: lower_matmul.c (tiles, slices), lower_matmul_encoded.c, lower_matmul_experts.c. */
#ifndef INFC_PASSES_LOWER_MATMUL_H
#define INFC_PASSES_LOWER_MATMUL_H

#include "passes/lower.h"

struct mm {
    struct lower_ctx *l;
    int a, b;                        /* operand numbers */
    bool packed, flat;               /* b is packed; batch axes are rows */
    int rank;                        /* of the result */
    const struct dim *m, *n, *k;     /* m: all rows when flat */
    int panel;                       /* P, or NR when b is not packed */
    int width;                       /* columns of a panel that are computed: P, fewer in the last panel of an N that it exceeds by far */
    bool quant, nibbles;             /* b is an encoded constant's parts (qmatmul, qmatmul_experts) */
    int scale, min, zero;            /* buffers of the parts, -1: none */
    int64_t group;                   /* k of one scale */
    const struct ir_type *qt;        /* type of part q */
    int64_t matrix_panels;           /* panels of one matrix, when b holds several ... */
    struct lp_value *matrix;         /* ... and which one to read, else NULL */
    int ids;                         /* buffer of the choices (op qmatmul_experts), -1: none */
    int copy_buf;                    /* stack buffer [K, panel]: a panel's weights, or columns of a b that is no constant, while many
                                      * rows use them; -1: b is only read where it lies */
    bool copied;                     /* they are in it */
    bool whole;                      /* all columns of the panels at hand are there */
    int mr, nr;
    int64_t prefetch;                /* bytes ahead, 0: none */
    enum dtype acc;
    struct lp_value *walk_row;       /* first row of the walk over the panels that the slice belongs to, NULL: 0 */
    struct lp_value *batch[IR_MAX_RANK]; /* coordinates of the batch axes, when not flat */
};

/* ---- tiles ---- */

struct lp_value *matmul_zero_tile(struct mm *t, int rows);
/* Tile of a: rows x 1 at [row.., k]. */
struct lp_value *matmul_load_a(struct mm *t, struct lp_value *row, struct lp_value *k, int rows, struct lp_value *nrows);
/* The tiles of these rows by a panel: K loops, epilogues, stores. nrows NULL: all rows are there. */
void matmul_emit_columns(struct mm *t, struct lp_value *row, int rows, struct lp_value *nrows, struct lp_value *panel);
/* The knob: how far ahead of the K loop a packed panel is asked for. */
int64_t matmul_prefetch_bytes(struct mm *t);

/* ---- encoded constants (ops qmatmul, qmatmul_experts) ---- */

/* A qmatmul: flat, unless each plane of x has a matrix of its own. False: the group is none. */
bool matmul_encoded_setup(struct mm *t);
/* Operands `first` on are an encoded constant's parts, in panels of 64 columns. */
bool matmul_encoded_parts(struct mm *t, int first);
/* The stack buffer for a panel taken apart; copy_buf stays -1 where that would be too large. */
void matmul_encoded_buffer(struct mm *t);
/* The panel's weights as f32 into the stack buffer: the same bits as matmul_encoded_contract makes in registers. */
void matmul_encoded_unpack(struct mm *t, struct lp_value *panel);
/* K loop of a tile, over the panel or what is in the stack buffer. */
struct lp_value *matmul_encoded_contract(struct mm *t, struct lp_value *row, int rows, struct lp_value *nrows, struct lp_value *panel, int col);

enum lower_result matmul_experts(struct mm *t);

#endif
