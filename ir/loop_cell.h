// SPDX-License-Identifier: Apache-2.0
/*
 * One element of a loop-IR value on the host, and what every op does to it. Used by the evaluator and by folding;
 * shares nothing with the targets. A float of any width is held as the f64 of the same value, rounded to its type after
 * every op; an integer as its wrapped value (u64: the same bits); bool as 0 or 1.
 */
#ifndef INFC_IR_LOOP_CELL_H
#define INFC_IR_LOOP_CELL_H

#include "ir/loop.h"

union lp_cell {
    int64_t i;
    double f;
};

/* The element's bits in memory, zero extended; and back. */
uint64_t lp_cell_bits(enum dtype d, union lp_cell c);
union lp_cell lp_cell_from_bits(enum dtype d, uint64_t bits);
double lp_cell_round(enum dtype d, double v);

union lp_cell lp_cell_cast(enum dtype from, enum dtype to, union lp_cell c);
/* Pointwise ops; d is the operands' dtype (SELECT: of b and c). An integer FLOORDIV by 0 gives 0. */
union lp_cell lp_cell_unary(enum lp_opcode code, enum dtype d, union lp_cell x);
union lp_cell lp_cell_binary(enum lp_opcode code, enum dtype d, union lp_cell x, union lp_cell y);
union lp_cell lp_cell_fma(enum dtype d, union lp_cell x, union lp_cell y, union lp_cell z);
union lp_cell lp_cell_reduce(enum lp_reduce_kind kind, enum dtype d, union lp_cell x, union lp_cell y);

#endif
