// SPDX-License-Identifier: Apache-2.0
/*
 * Blocks: an encoded [N, K] constant as one stream of 16-bit units, in the order in which integer products read it: panels
 * of 32 columns, in each the groups of K in order, in each
 *
 *   scale[32]                f16, or f32 (wide): first the low halves of all, then the high halves
 *   min[32]                  the same, where the format has one
 *   high[32][2]              where elements have bits above a nibble (`high` of them): unit h holds those of k = 2 p + h from bit high * p on
 *   q[group / 8][32][2]      nibbles: unit h of a pair holds k = 8 t + 2 s + h in bits 4 s .. 4 s + 3, plus `zero`
 *   q[group / 4][32][2]      else: unit h holds k = 4 t + h in its low and k = 4 t + 2 + h in its high byte, signed
 *
 * so that shifting and masking a pair of units gives two neighbouring k as signed words, what the pairwise multiply-adds of
 * all levels take. Columns beyond N are zero.
 */
#ifndef INFC_IR_BLOCKS_H
#define INFC_IR_BLOCKS_H

#include <stdbool.h>

#define BLOCKS_COLS 32

struct blocks {
    int group; /* k of one scale */
    bool nibbles, wide, has_min;
    int zero;
    int high; /* bits of an element above its nibble: 16 in a unit, so group / 2 * high is 16 or 0 */
};

static inline int blocks_min_at(const struct blocks *b) { return BLOCKS_COLS * (b->wide ? 2 : 1); }
static inline int blocks_high_at(const struct blocks *b) { return blocks_min_at(b) * (b->has_min ? 2 : 1); }
static inline int blocks_q_at(const struct blocks *b) { return blocks_high_at(b) + (b->high ? 2 * BLOCKS_COLS : 0); }
static inline int blocks_step(const struct blocks *b) { return b->nibbles ? 8 : 4; } /* k a row of q */
/* A description in one number, and back; group is at most 256. */
static inline int blocks_code(const struct blocks *b)
{
    return b->group | b->nibbles << 9 | b->wide << 10 | b->has_min << 11 | b->zero << 12 | b->high << 20;
}
static inline struct blocks blocks_decode(int code)
{
    return (struct blocks){.group = code & 511, .nibbles = code >> 9 & 1, .wide = code >> 10 & 1, .has_min = code >> 11 & 1, .zero = code >> 12 & 255,
                           .high = code >> 20};
}
/* Units of a panel's group. */
static inline int blocks_units(const struct blocks *b) { return blocks_q_at(b) + b->group / blocks_step(b) * 2 * BLOCKS_COLS; }

#endif
