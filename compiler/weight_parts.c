// SPDX-License-Identifier: Apache-2.0
#include "compiler/weight_parts.h"

#include <stdlib.h>
#include <string.h>

#include "ir/blocks.h"
#include "ir/encoding.h"
#include "ir/smallfloat.h"
#include "ir/support/float.h"

#define PANEL 64

/* One panel of a part being filled. */
struct panel {
    const struct ir_const *c, *from;
    const struct ir_encoding *enc;
    int cols;
    int64_t n, k, matrix, first_row; /* matrix: of several, each of n rows in whole panels */
    unsigned char *out;
};

static void put_float(const struct panel *p, int64_t group, int col, float v)
{
    size_t elem = dtype_bytes(p->c->type.dtype);
    unsigned char *at = p->out + (size_t)(group * PANEL + col) * elem;
    float_encode(p->c->type.dtype, (double)v, false, at);
    INFC_ASSERT(float_decode(p->c->type.dtype, at) == (double)v); /* the format's scales fit the part's type */
}

static void put_q(const struct panel *p, int64_t k, int col, int q)
{
    if (!p->c->part->nibbles) {
        p->out[(size_t)(k * PANEL + col)] = (unsigned char)(int8_t)q;
        return;
    }
    int stored = q + p->c->part->zero;
    INFC_ASSERT(stored >= 0 && stored < 16);
    unsigned char *b = &p->out[(size_t)(k / 2 * PANEL + col)];
    *b = (unsigned char)(k % 2 ? *b | stored << 4 : *b | stored);
}

/* ---- blocks ---- */

static struct blocks blocks_of_part(const struct panel *p)
{
    const struct ir_const_part *x = p->c->part;
    return (struct blocks){.group = p->enc->group_elems, .nibbles = x->nibbles, .high = x->high, .wide = x->wide, .has_min = x->has_min, .zero = x->zero};
}

static void put_block_float(const struct blocks *b, uint16_t *to, int col, float v)
{
    if (b->wide) {
        uint32_t bits;
        memcpy(&bits, &v, 4);
        to[col] = (uint16_t)bits, to[BLOCKS_COLS + col] = (uint16_t)(bits >> 16);
        return;
    }
    to[col] = f16_from_f64((double)v);
    INFC_ASSERT(f16_to_f64(to[col]) == (double)v);
}

/* The q of a column's group, unit by unit: adding to a unit in memory element by element waits for each store. */
static void put_nibbles(const struct blocks *b, uint16_t *to, int col, const int8_t *q)
{
    unsigned high[2] = {0, 0};
    for (int k = 0; k < b->group; k += 8) {
        unsigned unit[2] = {0, 0};
        for (int i = 0; i < 8; i++) {
            int stored = q[k + i] + b->zero;
            INFC_ASSERT(stored >= 0 && stored < 16 << b->high);
            unit[i % 2] |= (unsigned)(stored & 15) << i / 2 * 4;
            if (b->high) high[i % 2] |= (unsigned)(stored >> 4) << (k + i) / 2 * b->high;
        }
        uint16_t *at = &to[blocks_q_at(b) + (k / 8 * BLOCKS_COLS + col) * 2];
        at[0] = (uint16_t)unit[0], at[1] = (uint16_t)unit[1];
    }
    uint16_t *at = &to[blocks_high_at(b) + col * 2];
    if (b->high) at[0] = (uint16_t)high[0], at[1] = (uint16_t)high[1];
}

static void put_bytes(const struct blocks *b, uint16_t *to, int col, const int8_t *q)
{
    for (int k = 0; k < b->group; k += 4) {
        uint16_t *at = &to[blocks_q_at(b) + (k / 4 * BLOCKS_COLS + col) * 2];
        for (int h = 0; h < 2; h++) at[h] = (uint16_t)((q[k + h] & 255) | (q[k + 2 + h] & 255) << 8);
    }
}

/* One group of a column; the panel was zeroed. */
static void put_block(const struct panel *p, const struct blocks *b, int64_t group, int col, const int8_t *q, float scale, float min)
{
    uint16_t *to = (uint16_t *)(void *)p->out + group * blocks_units(b);
    put_block_float(b, to, col, scale);
    if (b->has_min) put_block_float(b, to + blocks_min_at(b), col, min);
    (b->nibbles ? put_nibbles : put_bytes)(b, to, col, q);
}

static void fill_row(const struct panel *p, int col, const uint8_t *row)
{
    int8_t q[ENCODING_MAX_BLOCK];
    float scale[ENCODING_MAX_BLOCK], min[ENCODING_MAX_BLOCK];
    const struct ir_encoding *e = p->enc;
    for (int64_t b = 0; b < p->k / e->block_elems; b++) {
        e->split(row + b * e->block_bytes, q, scale, min);
        int64_t k0 = b * e->block_elems;
        int groups = e->block_elems / e->group_elems;
        switch (p->c->part->part) {
        case IR_PART_Q:
            for (int i = 0; i < e->block_elems; i++) put_q(p, k0 + i, col, q[i]);
            break;
        case IR_PART_SCALE:
            for (int g = 0; g < groups; g++) put_float(p, k0 / e->group_elems + g, col, scale[g]);
            break;
        case IR_PART_MIN:
            for (int g = 0; g < groups; g++) put_float(p, k0 / e->group_elems + g, col, min[g]);
            break;
        case IR_PART_BLOCKS: {
            struct blocks d = blocks_of_part(p);
            for (int g = 0; g < groups; g++) put_block(p, &d, k0 / d.group + g, col, q + g * d.group, scale[g], d.has_min ? min[g] : 0);
            break;
        }
        }
    }
}

/* Plain elements: the row is transposed into the panel. */
static void fill_plain(const struct panel *p, int col, const uint8_t *row)
{
    size_t elem = dtype_bytes(p->enc->plain);
    for (int64_t k = 0; k < p->k; k++) memcpy(p->out + (size_t)(k * PANEL + col) * elem, row + (size_t)k * elem, elem);
}

static void fill_panel(struct panel *p)
{
    size_t block_bytes = p->enc->group_elems ? (size_t)p->enc->block_bytes : dtype_bytes(p->enc->plain);
    size_t row_bytes = (size_t)(p->k / p->enc->block_elems) * block_bytes;
    for (int col = 0; col < p->cols && p->first_row + col < p->n; col++) {
        const uint8_t *row = (const uint8_t *)p->from->data + (size_t)(p->matrix * p->n + p->first_row + col) * row_bytes;
        if (p->enc->group_elems) fill_row(p, col, row);
        else fill_plain(p, col, row);
    }
}

void weight_part_read(const struct ir_const *c, uint64_t at, void *dst, size_t n_bytes)
{
    const struct ir_const *from = c->part->from;
    int rank = from->type.rank;
    struct panel p = {.c = c, .from = from, .enc = ir_const_encoding(from), .n = from->type.dims[rank - 2]->value,
                      .k = from->type.dims[rank - 1]->value};
    p.cols = c->part->part == IR_PART_BLOCKS ? BLOCKS_COLS : PANEL;
    int64_t panels = (p.n + p.cols - 1) / p.cols;
    uint64_t panel_bytes = c->n_bytes / (uint64_t)c->type.dims[0]->value, done = 0;
    p.out = malloc(panel_bytes);
    INFC_ASSERT(p.out != NULL);
    while (done < n_bytes) {
        uint64_t panel = (at + done) / panel_bytes, skip = (at + done) % panel_bytes, take = panel_bytes - skip;
        if (take > n_bytes - done) take = n_bytes - done;
        memset(p.out, 0, panel_bytes);
        p.matrix = (int64_t)panel / panels, p.first_row = (int64_t)panel % panels * p.cols;
        fill_panel(&p);
        memcpy((char *)dst + done, p.out + skip, take);
        done += take;
    }
    free(p.out);
}
