// SPDX-License-Identifier: Apache-2.0
/*
 * Which 3x3 convolutions are made of tiles (ir/winograd.h), and of which size: a cost model over bytes and products, or what
 * --winograd asks for. Such a convolution keeps its op, its weights and its meaning; attribute winograd=m says how to make it.
 * It takes its padding back, since tiles at the image's border read zeros anyway.
 *
 *   %p = pad %x lo=(0, 1, 1, 0) hi=(0, 1, 1, 0)                          (no other use)
 *   %y = conv %p, %w channels_last=1        ->   %y = conv %x, %w channels_last=1 pads=(1, 1, 1, 1) winograd=4
 *
 * The rounding errors of each are measured on random pixels with the layer's own weights, for `infc build --report`. Requires:
 * layout, folded constants. Cost: some 10^6 products a chosen convolution.
 */
#include "passes/winograd.h"

#include <string.h>

#include "ir/build.h"
#include "ir/op.h"
#include "passes/depthwise.h"

#define NOMINAL 512               /* of a symbol */
#define MANY_TILES 1e12           /* for costs as good as more */
#define CACHE_BYTES (1 << 20)     /* of a block: what leaves room for weights in a second-level cache of 2 MB */
#define MAX_BLOCK_BYTES (8 << 20) /* a worker's memory for a block */
#define MAX_BLOCK_TILES 14        /* register tiles of a block */
#define LIKE_MR 14
#define GAIN 0.92                 /* of the direct time, at most, to be chosen */

static int64_t int_at(const struct ir_op *op, const char *name, int i)
{
    int n;
    const int64_t *v = ir_attr_ints(op, name, &n);
    return i < n ? v[i] : 1;
}

bool winograd_fits(const struct ir_op *op)
{
    const struct ir_value *x = ir_operand(op, 0), *w = ir_operand(op, 1), *bias = ir_operand(op, 2);
    if (op->code != IR_OP_CONV || x->type.rank != 4 || !ir_attr_int(op, "channels_last", 0) || ir_attr_int(op, "groups", 1) != 1) return false;
    if (x->type.dtype != DT_F32 || w->type.dtype != DT_F32 || op->results[0].type.dtype != DT_F32 || (bias && bias->type.dtype != DT_F32)) return false;
    if (ir_attr_int(op, "tf32", 0) || !dim_is_const(w->type.dims[0]) || !dim_is_const(w->type.dims[1])) return false;
    for (int i = 0; i < 2; i++) {
        if (!dim_is(w->type.dims[2 + i], 3) || int_at(op, "strides", i) != 1 || int_at(op, "dilations", i) != 1) return false;
        if (x->type.dims[1 + i]->lo < 1) return false;
    }
    int n;
    const struct dim *const *pads = ir_attr_dims(op, "pads", &n);
    for (int i = 0; i < n; i++)
        if (pads[i]->lo < 0) return false;
    return w->type.dims[0]->value > 0 && w->type.dims[1]->value > 0;
}

int64_t winograd_tiles(struct ir_module *m, const struct ir_op *conv, int size)
{
    size_t n = dim_sym_count(m->dims);
    int64_t *syms = ARENA_ARRAY(&m->arena, int64_t, n + 1);
    double tiles = 1;
    for (size_t i = 0; i < n; i++) {
        const struct dim *s = dim_sym_at(m->dims, i);
        syms[i] = s->lo > NOMINAL ? s->lo : s->hi < NOMINAL ? s->hi : NOMINAL;
    }
    const struct ir_type *out = &conv->results[0].type;
    for (int i = 1; i < 3; i++) {
        int64_t v = 1;
        if (!dim_eval(m->dims, out->dims[i], syms, &v) || v < 1) v = 1;
        tiles *= (double)((v + size - 1) / size);
    }
    if (dim_is_const(out->dims[0])) tiles *= (double)out->dims[0]->value;
    return tiles < MANY_TILES ? (int64_t)tiles : (int64_t)MANY_TILES;
}

int winograd_panel(int64_t o) { return o > 16 ? 32 : 16; }

static int64_t points(int size) { return (int64_t)(size + 2) * (size + 2); }

int64_t winograd_block(int size, int64_t c, int64_t o, int64_t mr)
{
    int64_t most = CACHE_BYTES / (4 * points(size) * (c + winograd_panel(o))) / mr;
    return (most < 1 ? 1 : most > MAX_BLOCK_TILES ? MAX_BLOCK_TILES : most) * mr;
}

/*
 * ---- costs, in products of f32 at the machine's peak: the figures are those of one core of a server with AVX-512 ----
 */

#define BYTE 4.0      /* read or written beyond the second-level cache, while others compute ... */
#define NEAR_BYTE 2.0 /* ... of what is as small as CACHE_BYTES and read in a row ... */
#define WARM_BYTE 0.5 /* ... and of what was written just before and stayed there */
#define PRODUCT 1.15

/* Transforms of a tile's pixels and outputs, for a channel each. */
static double input_cost(int size) { return size == 2 ? 170 : 750; }
static double output_cost(int size) { return size == 2 ? 110 : 400; }

static double up_to_lanes(int64_t n) { return (double)((n + 15) / 16 * 16); }

/* Of a tile, without what goes through memory. */
static double tile_cost(int size, int64_t c, int64_t o)
{
    double products = (double)points(size) * (double)c * up_to_lanes(o) * PRODUCT;
    return products + input_cost(size) * up_to_lanes(c) + output_cost(size) * up_to_lanes(o);
}

static double weight_bytes(int size, int64_t c, int64_t o) { return 4.0 * (double)points(size) * (double)c * up_to_lanes(o); }

static double read_cost(double bytes) { return bytes * (bytes > CACHE_BYTES ? BYTE : NEAR_BYTE); }

static double in_blocks_cost(int size, int64_t tiles, int64_t c, int64_t o)
{
    int64_t block = winograd_block(size, c, o, LIKE_MR), blocks = (tiles + block - 1) / block;
    double bytes = weight_bytes(size, c, o);
    double again = bytes > CACHE_BYTES ? bytes * (double)(blocks - 1) * BYTE : 0;
    double alone = blocks < 2 ? 2 : 1; /* one slice: nothing for another thread */
    return ((double)tiles * tile_cost(size, c, o) + read_cost(bytes) + again) * alone;
}

static double whole_cost(int size, int64_t tiles, int64_t c, int64_t o)
{
    double moved = 4.0 * (double)points(size) * (double)(c + o) * (double)tiles;
    double through = 2 * moved * (moved > CACHE_BYTES ? BYTE : WARM_BYTE);
    return (double)tiles * tile_cost(size, c, o) + read_cost(weight_bytes(size, c, o)) + through;
}

bool winograd_in_blocks(int size, int64_t tiles, int64_t c, int64_t o)
{
    if (4 * points(size) * (c + winograd_panel(o)) * LIKE_MR > MAX_BLOCK_BYTES) return false; /* so many channels in */
    return in_blocks_cost(size, tiles, c, o) <= whole_cost(size, tiles, c, o);
}

static double cost(int size, int64_t tiles, int64_t c, int64_t o)
{
    return winograd_in_blocks(size, tiles, c, o) ? in_blocks_cost(size, tiles, c, o) : whole_cost(size, tiles, c, o);
}

/* The size for which the model expects the least time; 0: the direct way. */
static int choose(struct ir_module *m, const struct ir_op *op)
{
    const struct ir_type *w = &ir_operand(op, 1)->type;
    int64_t o = w->dims[0]->value, c = w->dims[1]->value;
    double pixels = (double)winograd_tiles(m, op, 1);
    double direct = pixels * 9 * (double)c * up_to_lanes(o) * PRODUCT + read_cost(36 * (double)c * up_to_lanes(o));
    int best = 0;
    double least = direct * GAIN;
    for (int size = 2; size <= 4; size += 2) {
        double t = cost(size, winograd_tiles(m, op, size), c, o);
        if (t < least) least = t, best = size;
    }
    return best;
}

/* ---- the pass ---- */

static void record(struct ir_module *m, const struct ir_op *op, int size)
{
    const struct ir_const *c = ir_value_const(ir_operand(op, 1));
    const struct ir_type *w = &ir_operand(op, 1)->type;
    struct ir_tiled t = {.loc = op->loc, .size = size};
    winograd_error(size, c->data, w->dims[0]->value, w->dims[1]->value, &t.error, &t.direct);
    vec_push(&m->arena, &m->tiled, t);
}

static void run_block(struct ir_module *m, struct ir_block *b)
{
    for (struct ir_op *op = b->first; op; op = op->next) {
        for (int r = 0; r < op->n_regions; r++) run_block(m, op->regions[r]);
        if (op->code != IR_OP_CONV || !winograd_fits(op) || ir_attr_find(op, "winograd")) continue;
        const struct ir_const *c = ir_value_const(ir_operand(op, 1));
        if (!c || c->splat || c->part || !c->data || c->type.enc || !ir_value_has_one_use(ir_operand(op, 1))) continue;
        int size = m->winograd < 0 ? choose(m, op) : m->winograd;
        if (!size) continue;
        ir_op_set_attr(m, op, ir_a_int("winograd", size));
        const struct dim *pads[4];
        if (conv_padding(op, pads)) conv_take_padding(m, op, pads);
        record(m, op, size);
    }
}

bool pass_winograd(struct ir_module *m, struct diag_sink *diag)
{
    (void)diag;
    if (m->winograd == 0) return true;
    for (size_t i = 0; i < m->funcs.n; i++) run_block(m, m->funcs.v[i]->body);
    return true;
}
