// SPDX-License-Identifier: Apache-2.0
/*
 * Matmul by constant weights on a GPU's tensor units: a slice is a tile of 64 rows and 64 columns of the result, which the
 * threads of a CTA make together. K goes by in steps of 64 bytes; the epilogue works on the tile before it is stored.
 *
 *   result[.., M, N] = a[.., M, K] b[K, N]
 *
 * or a convolution, channels-last and padded before, as an implicit matmul: rows are the output's pixels and K the taps and channels.
 * The address of a row's first element is the row's own (op LOAD, an index a row), how far K goes from there is the same for
 * all rows; the taps of the image's last axis are one run where their channels fill whole steps.
 *
 * b is packed at build time as [N/64][64][taps..][K], zero-filled: both operands of the tensor units then run along K. Batch axes of a
 * count as rows. Which rows share a tile does not show in any of them, and K is summed in one order for every M.
 *
 * Where the tiles of few rows leave most of a GPU idle, K is summed in parts, as many as the weights' shape alone asks for: each from
 * zero, then added in order. Few rows: a slice a tile and part, whose sums go to scratch memory, and a kernel that adds them up. Many rows:
 * a slice makes all parts of its tile, with the same bits.
 */
#include <math.h>

#include "passes/flops.h"
#include "passes/gpu_predict.h"
#include "passes/lower.h"

#define TILE 64
#define STEP_BYTES 64
#define CTA_THREADS 128

#define MAX_AXES 3

/* Parts of K, steps of the loop over a part, and row tiles that are few, at most or at least. */
enum { MAX_PARTS = 32, LEAST_STEPS = 4, MAX_FEW = 32 };
#define LEAST_GAIN 0.9 /* of the predicted time; else one kernel is simpler */

struct dot {
    struct lower_ctx *l;
    /* a convolution: */
    bool conv, merged;                /* merged: taps of the last axis and channels are one run */
    int axes, bias;                   /* spatial axes; buffer, -1: none */
    int64_t taps[MAX_AXES], strides[MAX_AXES], dilations[MAX_AXES];
    const struct ir_op *op;
    int a, b;
    enum dtype da, db, acc;
    const struct dim *m, *n, *k;
    int64_t step; /* elements of K */
    int64_t run;  /* K of the loop that steps; around it are taps that are apart */
    /* parts of the run: 1, or what the weights' shape asks for; rows that have a slice a part, at most */
    int64_t parts, few;
    const struct dim *many, *few_rows; /* 1: more rows than that, else 0; rows, 0 when many */
};

/* Every other operand has the result's shape, one row, or one column: then flattened rows serve in the epilogue. */
static bool epilogue_is_flat(const struct dot *t)
{
    const struct lower_ctx *l = t->l;
    const struct ir_type *rt = &t->op->results[0].type;
    for (int i = 0; i < l->body->n_args; i++) {
        const struct ir_type *v = &l->body->args[i]->type;
        if (i == t->a || i == t->b || i == t->bias) continue;
        bool one_row = true, all_rows = v->rank == rt->rank;
        for (int k = 0; k < v->rank - 1; k++) {
            one_row = one_row && dim_is(v->dims[k], 1);
            all_rows = all_rows && v->dims[k] == rt->dims[k];
        }
        if (one_row) continue;
        if (!all_rows || (rt->rank > 2 && dim_is(rt->dims[rt->rank - 2], 1))) return false; /* rows would look like one */
    }
    return true;
}

static bool types_fit(const struct dot *t)
{
    unsigned mma = t->l->level->gpu->mma;
    if (t->acc == DT_I32) return (t->da == DT_I8 || t->da == DT_U8) && t->db == DT_I8 && (mma >> DT_I8 & 1);
    bool wide = t->da == DT_F16 || t->da == DT_BF16, narrow = t->da == DT_F8E4M3FN || t->da == DT_F8E5M2;
    if (t->da == DT_F32 && !ir_attr_int(t->op, "tf32", 0)) return false;
    return t->acc == DT_F32 && t->da == t->db && (t->da == DT_F32 || wide || narrow) && (mma >> t->da & 1);
}

static bool read_matmul(struct dot *t)
{
    const struct ir_type *at = &ir_operand(t->op, 0)->type, *bt = &ir_operand(t->op, 1)->type;
    if (ir_attr_int(t->op, "trans_a", 0) || bt->rank != 2) return false;
    t->k = at->dims[at->rank - 1], t->n = bt->dims[ir_attr_int(t->op, "trans_b", 0) ? 0 : 1];
    t->bias = -1;
    return true;
}

/* Weights w[O, C, taps..] without groups; no padding. */
static bool read_conv(struct dot *t)
{
    const struct ir_type *at = &ir_operand(t->op, 0)->type, *bt = &ir_operand(t->op, 1)->type;
    int n, n_pads;
    const int64_t *s = ir_attr_ints(t->op, "strides", &n), *d = ir_attr_ints(t->op, "dilations", &n);
    const struct dim *const *pads = ir_attr_dims(t->op, "pads", &n_pads);
    t->axes = at->rank - 2;
    if (!ir_attr_int(t->op, "channels_last", 0) || ir_attr_int(t->op, "groups", 1) != 1 || t->axes < 1 || t->axes > MAX_AXES) return false;
    for (int i = 0; i < n_pads; i++)
        if (!dim_is(pads[i], 0)) return false;
    for (int i = 0; i < t->axes; i++) {
        if (!dim_is_const(bt->dims[2 + i])) return false;
        t->taps[i] = bt->dims[2 + i]->value;
        t->strides[i] = s ? s[i] : 1, t->dilations[i] = d ? d[i] : 1;
    }
    t->bias = ir_operand(t->op, 2) ? lower_operand_of(t->l, ir_operand(t->op, 2)) : -1;
    t->k = bt->dims[1], t->n = bt->dims[0];
    return t->bias >= 0 || !ir_operand(t->op, 2);
}

static bool is_mine(struct dot *t)
{
    struct lower_ctx *l = t->l;
    const struct ir_op *op = l->anchor;
    if (!l->level->gpu || !op || (op->code != IR_OP_MATMUL && op->code != IR_OP_CONV) || l->yield->n_operands != 1) return false;
    t->op = op;
    t->conv = op->code == IR_OP_CONV;
    t->a = lower_operand_of(l, ir_operand(op, 0)), t->b = lower_operand_of(l, ir_operand(op, 1));
    if (t->a < 0 || t->b < 0 || t->a == t->b || !l->operand_consts[t->b]) return false;
    const struct ir_type *rt = &op->results[0].type;
    t->da = ir_operand(op, 0)->type.dtype, t->db = ir_operand(op, 1)->type.dtype, t->acc = rt->dtype;
    if (!types_fit(t) || !(t->conv ? read_conv(t) : read_matmul(t)) || !lower_tile_epilogue_ok(l) || !epilogue_is_flat(t)) return false;
    if (!dim_is_const(t->k) || !dim_is_const(t->n)) return false;
    t->m = dim_const(l->m->dims, 1);
    for (int i = 0; i < rt->rank - 1; i++) t->m = dim_mul(l->m->dims, t->m, rt->dims[i]);
    int64_t bytes = (int64_t)dtype_bytes(t->da);
    t->step = STEP_BYTES / bytes;
    t->merged = t->conv && t->dilations[t->axes - 1] == 1 && t->k->value % t->step == 0;
    t->run = t->k->value * (t->merged ? t->taps[t->axes - 1] : 1);
    return t->k->value * bytes % 16 == 0; /* rows of a are read in pieces of 16 bytes */
}

static void set_2d(struct lower_ctx *l, int buf, const struct dim *rows, const struct dim *cols)
{
    struct lp_buf *b = &l->k->bufs.v[buf];
    const struct dim **dims = ARENA_ARRAY(&l->k->arena, const struct dim *, 2);
    const struct dim **strides = ARENA_ARRAY(&l->k->arena, const struct dim *, 2);
    dims[0] = rows, dims[1] = cols;
    strides[0] = cols, strides[1] = dim_const(l->m->dims, 1);
    b->rank = 2, b->dims = dims, b->strides = strides;
}

/* w[O, C, taps..] as [O/64][64][taps..][C], C rounded up to whole steps. */
static void pack_weights(struct dot *t)
{
    const struct ir_type *bt = &ir_operand(t->op, 1)->type;
    struct plan_pack p = {.in_rank = bt->rank};
    p.dims[0] = (t->n->value + TILE - 1) / TILE, p.in_axis[0] = 0, p.stride[0] = TILE;
    p.dims[1] = TILE, p.in_axis[1] = 0, p.stride[1] = 1;
    for (int i = 0; i < t->axes; i++) p.dims[2 + i] = t->taps[i], p.in_axis[2 + i] = 2 + i, p.stride[2 + i] = 1;
    p.dims[2 + t->axes] = (t->k->value + t->step - 1) / t->step * t->step, p.in_axis[2 + t->axes] = 1, p.stride[2 + t->axes] = 1;
    p.rank = 3 + t->axes;
    for (int i = 0; i < bt->rank; i++) p.in_dims[i] = bt->dims[i]->value;
    lower_set_pack(t->l, t->b, &p, 64);
    if (!t->merged) return;
    /* the reader sees the last taps and C as one axis: same bytes, one rank less */
    struct lp_buf *b = &t->l->k->bufs.v[t->b];
    const struct dim **dims = arena_dup(&t->l->k->arena, b->dims, (size_t)b->rank * sizeof *dims);
    const struct dim **strides = arena_dup(&t->l->k->arena, b->strides, (size_t)b->rank * sizeof *strides);
    dims[p.rank - 2] = dim_const(t->l->m->dims, p.dims[p.rank - 2] * p.dims[p.rank - 1]);
    strides[p.rank - 2] = strides[p.rank - 1];
    b->rank = p.rank - 1, b->dims = dims, b->strides = strides;
}

static void pack_b(struct dot *t)
{
    const struct ir_type *bt = &ir_operand(t->op, 1)->type;
    bool tb = ir_attr_int(t->op, "trans_b", 0);
    int n_axis = tb ? 0 : 1, k_axis = tb ? 1 : 0;
    int64_t steps = (t->k->value + t->step - 1) / t->step;
    struct plan_pack p = {.rank = 3, .dims = {(t->n->value + TILE - 1) / TILE, TILE, steps * t->step}, .in_axis = {n_axis, n_axis, k_axis},
                          .stride = {TILE, 1, 1}, .in_rank = 2, .in_dims = {bt->dims[0]->value, bt->dims[1]->value}};
    lower_set_pack(t->l, t->b, &p, 64);
}

/* The image as [pixel, tap a spatial axis.., channel]: views that overlap. Merged: what follows the last axis' first tap. */
static void view_image(struct dot *t)
{
    struct lower_ctx *l = t->l;
    struct dim_ctx *dc = l->m->dims;
    struct lp_buf *b = &l->k->bufs.v[t->a];
    const struct ir_type *x = &ir_operand(t->op, 0)->type;
    const struct dim **dims = ARENA_ARRAY(&l->k->arena, const struct dim *, 2 + MAX_AXES);
    const struct dim **strides = ARENA_ARRAY(&l->k->arena, const struct dim *, 2 + MAX_AXES);
    const struct dim *pixels = dim_const(dc, 1), *step[MAX_AXES]; /* elements between neighbours */
    for (int i = t->axes - 1; i >= 0; i--) step[i] = dim_mul(dc, pixels, t->k), pixels = dim_mul(dc, pixels, x->dims[1 + i]);
    int at = 0, apart = t->axes - (t->merged ? 1 : 0);
    dims[at] = dim_mul(dc, pixels, x->dims[0]), strides[at++] = t->k;
    for (int i = 0; i < apart; i++) dims[at] = dim_const(dc, t->taps[i]), strides[at++] = dim_mulc(dc, step[i], t->dilations[i]);
    dims[at] = t->merged ? dim_mulc(dc, t->k, t->taps[t->axes - 1]) : t->k, strides[at++] = dim_const(dc, 1);
    b->rank = at, b->dims = dims, b->strides = strides;
    for (int i = 0; i < at; i++)
        if (!dim_is_const(strides[i])) lp_dim_param(l->k, strides[i]);
}

/* The input pixel below the first tap of each row's output pixel, i64[64, 1]. */
static struct lp_value *first_pixels(struct dot *t, struct lp_value *row)
{
    struct expr_ctx *e = &t->l->e;
    struct lp_builder *b = &e->b;
    const struct ir_type *x = &ir_operand(t->op, 0)->type, *out = &t->op->results[0].type;
    struct lp_value *last = lp_binary(b, LP_OP_SUB, expr_dim(e, t->m), e->one), *o[MAX_AXES];
    struct lp_value *r = lp_binary(b, LP_OP_MIN, lp_binary(b, LP_OP_ADD, lp_iota_rows(b, DT_I64, TILE), row), last);
    for (int i = t->axes - 1; i >= 0; i--) {
        struct lp_value *size = expr_dim(e, out->dims[1 + i]);
        o[i] = lp_binary(b, LP_OP_MOD, r, size);
        r = lp_binary(b, LP_OP_FLOORDIV, r, size);
    }
    for (int i = 0; i < t->axes; i++) {
        r = lp_binary(b, LP_OP_MUL, r, expr_dim(e, x->dims[1 + i]));
        r = lp_binary(b, LP_OP_ADD, r, t->strides[i] == 1 ? o[i] : lp_binary(b, LP_OP_MUL, o[i], lp_index(b, t->strides[i])));
    }
    return r;
}

/* Rows of a and the result in one axis; what the epilogue reads keeps its rank, with all rows on the last axis but one. */
static void flatten(struct dot *t)
{
    struct lower_ctx *l = t->l;
    const struct ir_type *rt = &t->op->results[0].type;
    if (t->conv) view_image(t);
    else set_2d(l, t->a, t->m, t->k);
    set_2d(l, lower_result_buf(l, 0), t->m, t->n);
    for (int i = 0; i < l->body->n_args; i++) {
        struct lp_buf *b = &l->k->bufs.v[i];
        if (i == t->a || i == t->b || i == t->bias || b->rank != rt->rank || rt->rank < 3 || dim_is(b->dims[rt->rank - 2], 1)) continue;
        const struct dim **dims = arena_dup(&l->k->arena, b->dims, (size_t)b->rank * sizeof *dims);
        for (int k = 0; k < rt->rank - 2; k++) dims[k] = dim_const(l->m->dims, 1);
        dims[rt->rank - 2] = t->m;
        b->dims = dims;
    }
}

static struct lp_value *zeros(struct dot *t)
{
    struct lp_type ty = lp_tile(t->acc, TILE, TILE);
    return t->acc == DT_F32 ? lp_const_f(&t->l->e.b, ty, 0) : lp_const_i(&t->l->e.b, ty, 0);
}

/* The last axis of a buffer, which runs along K, as [part, within the part]. */
static void cut_run(struct dot *t, int buf)
{
    struct lower_ctx *l = t->l;
    struct lp_buf *b = &l->k->bufs.v[buf];
    int last = b->rank - 1;
    int64_t part = t->run / t->parts;
    const struct dim **dims = ARENA_ARRAY(&l->k->arena, const struct dim *, b->rank + 1);
    const struct dim **strides = ARENA_ARRAY(&l->k->arena, const struct dim *, b->rank + 1);
    for (int i = 0; i < last; i++) dims[i] = b->dims[i], strides[i] = b->strides[i];
    dims[last] = dim_const(l->m->dims, t->parts), strides[last] = dim_const(l->m->dims, part);
    dims[last + 1] = dim_const(l->m->dims, part), strides[last + 1] = b->strides[last];
    b->rank++, b->dims = dims, b->strides = strides;
}

/* Packs the weights and views the buffers, in each kernel of the group. */
static void set_buffers(struct dot *t)
{
    if (t->conv) pack_weights(t);
    else pack_b(t);
    flatten(t);
    if (t->parts > 1) cut_run(t, t->a), cut_run(t, t->b);
}

struct place {
    struct lp_value *row, *panel, *col, *part; /* part NULL: K has one */
    struct lp_value *nrows, *ncols;            /* what is left from there */
};

/* One loop a tap axis that is apart, around the loop over the run or a part of it. */
static struct lp_value *product(struct dot *t, const struct place *p)
{
    struct expr_ctx *e = &t->l->e;
    struct lp_builder *b = &e->b;
    int apart = t->conv ? t->axes - (t->merged ? 1 : 0) : 0, n = 0, in_a = 1, in_b = 2;
    struct lp_value *acc = zeros(t), *at_a[3 + MAX_AXES] = {t->conv ? first_pixels(t, p->row) : p->row}, *at_b[4 + MAX_AXES] = {p->panel, e->zero};
    struct lp_op *loops[MAX_AXES];
    for (; n < apart; n++) {
        loops[n] = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, lp_index(b, t->taps[n]), 1, 1, &acc);
        at_a[in_a++] = at_b[in_b++] = loops[n]->regions[0]->args[0];
        acc = loops[n]->regions[0]->args[1];
    }
    if (p->part) at_a[in_a++] = at_b[in_b++] = p->part;
    int64_t run = t->run / t->parts;
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, lp_index(b, run), t->step, 1, &acc);
    struct lp_value *k = loop->regions[0]->args[0], *left = run % t->step ? lp_binary(b, LP_OP_SUB, lp_index(b, run), k) : NULL;
    at_a[in_a] = at_b[in_b] = k;
    struct lp_value *x = lp_load_tile(b, t->a, at_a, TILE, (int)t->step, 0, in_a, t->conv ? NULL : p->nrows, left);
    struct lp_value *y = lp_load_tile(b, t->b, at_b, (int)t->step, TILE, in_b, 1, NULL, NULL);
    struct lp_value *next = lp_dot(b, loop->regions[0]->args[1], x, y);
    expr_for_end(e, loop, &next);
    acc = loop->results[0];
    while (n) {
        expr_for_end(e, loops[--n], &acc);
        acc = loops[n]->results[0];
    }
    return acc;
}

/* All parts, one after the other. */
static struct lp_value *whole_product(struct dot *t, struct place *p)
{
    struct expr_ctx *e = &t->l->e;
    struct lp_value *sum = zeros(t);
    if (t->parts == 1) return product(t, p);
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, lp_index(&e->b, t->parts), 1, 1, &sum);
    p->part = loop->regions[0]->args[0];
    sum = lp_binary(&e->b, LP_OP_ADD, loop->regions[0]->args[1], product(t, p));
    expr_for_end(e, loop, &sum);
    return loop->results[0];
}

/* Bias and epilogue of v, rows x cols of the sums at the place, and its store. */
static void finish(struct dot *t, const struct place *p, struct lp_value *v, int cols)
{
    struct lower_ctx *l = t->l;
    struct lp_builder *b = &l->e.b;
    int rank = t->op->results[0].type.rank;
    struct lp_value *at[2] = {p->row, p->col}, *wide[IR_MAX_RANK];
    if (t->bias >= 0) {
        struct lp_value *bias = lp_load_tile(b, t->bias, &p->col, 1, cols, 0, 0, NULL, p->ncols);
        v = lp_binary(b, LP_OP_ADD, v, bias);
    }
    for (int i = 0; i < rank - 2; i++) wide[i] = l->e.zero;
    wide[rank - 2] = p->row, wide[rank - 1] = p->col;
    v = lower_tile_epilogue(l, v, wide, rank - 2, p->nrows, p->ncols);
    lp_store_tile(b, lower_result_buf(l, 0), at, v, 0, 1, p->nrows, p->ncols);
}

static int64_t n_panels(const struct dot *t) { return (t->n->value + TILE - 1) / TILE; }

/* The tile of tile number s. */
static struct place tile_place(struct dot *t, struct lp_value *s)
{
    struct expr_ctx *e = &t->l->e;
    struct lp_builder *b = &e->b;
    struct lp_value *panels = lp_index(b, n_panels(t)), *tile = lp_index(b, TILE);
    struct place p = {.row = lp_binary(b, LP_OP_MUL, lp_binary(b, LP_OP_FLOORDIV, s, panels), tile), .panel = lp_binary(b, LP_OP_MOD, s, panels)};
    p.col = lp_binary(b, LP_OP_MUL, p.panel, tile);
    p.nrows = lp_binary(b, LP_OP_SUB, expr_dim(e, t->m), p.row);
    if (t->n->value % TILE) p.ncols = lp_binary(b, LP_OP_SUB, lp_index(b, t->n->value), p.col);
    return p;
}

/* A slice: a tile. rows: all, or 0 where there are few. */
static void emit_whole(struct dot *t, const struct dim *rows)
{
    struct lower_ctx *l = t->l;
    l->k->cta_threads = CTA_THREADS;
    set_buffers(t);
    lower_set_slices(l, dim_mulc(l->m->dims, dim_ceildiv(l->m->dims, rows, dim_const(l->m->dims, TILE)), n_panels(t)));
    struct place p = tile_place(t, lower_slice(l));
    finish(t, &p, whole_product(t, &p), TILE);
    l->k->schedule = t->conv ? "dot-conv" : "dot";
}

/* ---- parts ---- */

/* Sums of whole tiles: columns beyond the last one are zeros. */
static int add_sums(struct dot *t)
{
    struct dim_ctx *dc = t->l->m->dims;
    const struct dim *dims[3] = {dim_const(dc, t->parts), t->few_rows, dim_const(dc, n_panels(t) * TILE)};
    return lp_add_arg(t->l->k, "parts", t->acc, 3, dims, true, 16);
}

static const struct dim *sums_bytes(struct dot *t)
{
    return dim_mulc(t->l->m->dims, t->few_rows, t->parts * n_panels(t) * TILE * (int64_t)dtype_bytes(t->acc));
}

/* A slice: a part of a tile; neighbours are the panels of one part, which read the same of a. */
static void emit_parts(struct dot *t)
{
    struct lower_ctx *l = t->l;
    struct dim_ctx *dc = l->m->dims;
    struct lp_builder *b = &l->e.b;
    l->k->cta_threads = CTA_THREADS;
    set_buffers(t);
    int sums = add_sums(t);
    const struct dim *tiles = dim_mulc(dc, dim_ceildiv(dc, t->few_rows, dim_const(dc, TILE)), n_panels(t));
    lower_set_slices(l, dim_mulc(dc, tiles, t->parts));
    struct lp_value *s = lower_slice(l), *n = expr_dim(&l->e, tiles);
    struct place p = tile_place(t, lp_binary(b, LP_OP_MOD, s, n));
    p.part = lp_binary(b, LP_OP_FLOORDIV, s, n);
    struct lp_value *at[3] = {p.part, p.row, p.col};
    lp_store_tile(b, sums, at, product(t, &p), 1, 2, p.nrows, NULL);
    l->k->schedule = t->conv ? "dot-conv-parts" : "dot-parts";
    int64_t elem = (int64_t)dtype_bytes(t->da), weights = t->k->value * t->n->value * elem;
    for (int i = 0; i < t->axes; i++) weights *= t->taps[i];
    const struct dim *reads = dim_addc(dc, dim_mulc(dc, t->few_rows, t->k->value * elem), weights);
    l->k->bytes = dim_add(dc, reads, sums_bytes(t));
}

/* A slice: an element, whose parts are all on their way at once; a warp reads and writes neighbours. */
static void emit_merge(struct dot *t)
{
    struct lower_ctx *l = t->l;
    struct dim_ctx *dc = l->m->dims;
    struct lp_builder *b = &l->e.b;
    set_buffers(t);
    int sums = add_sums(t);
    lower_set_slices(l, dim_mul(dc, t->few_rows, t->n));
    struct lp_value *s = lower_slice(l), *n = lp_index(b, t->n->value), *part[MAX_PARTS];
    struct place p = {.row = lp_binary(b, LP_OP_FLOORDIV, s, n), .col = lp_binary(b, LP_OP_MOD, s, n)};
    for (int i = 0; i < t->parts; i++) {
        struct lp_value *at[3] = {lp_index(b, i), p.row, p.col};
        part[i] = lp_load(b, sums, at);
    }
    struct lp_type ty = lp_scalar(t->acc);
    struct lp_value *v = t->acc == DT_F32 ? lp_const_f(b, ty, 0) : lp_const_i(b, ty, 0);
    for (int i = 0; i < t->parts; i++) v = lp_binary(b, LP_OP_ADD, v, part[i]);
    finish(t, &p, v, 1);
    l->k->schedule = "dot-merge";
    int64_t out = (int64_t)dtype_bytes(ir_operand(l->yield, 0)->type.dtype);
    l->k->bytes = dim_add(dc, sums_bytes(t), dim_mulc(dc, t->few_rows, t->n->value * out));
    l->k->flops = dim_const(dc, 0);
}

/* Predicted time of `tiles` row tiles in so many parts. */
static double time_of(const struct dot *t, int64_t parts, int64_t tiles)
{
    const struct target_gpu *gpu = t->l->level->gpu;
    enum target_gpu_unit unit = t->acc == DT_I32 ? TARGET_GPU_INT8 : dtype_bytes(t->da) == 1 ? TARGET_GPU_FP8 : TARGET_GPU_HALF;
    const struct target_gpu_code dot = {.threads = CTA_THREADS, .slices_cta = 1, .shared_bytes = 3 * 2 * TILE * STEP_BYTES, .regs = 96, .unit = unit};
    const struct target_gpu_code merge = {.threads = CTA_THREADS, .slices_cta = CTA_THREADS, .regs = 64};
    double rows = (double)tiles * TILE, n = (double)t->n->value, k = (double)t->k->value, elem = (double)dtype_bytes(t->da), all = k;
    for (int i = 0; i < t->axes; i++) all *= (double)t->taps[i];
    uint64_t types = 1ull << t->da;
    struct gpu_work work = {(double)(tiles * n_panels(t) * parts), 2 * rows * n * all, elem * (rows * k + n * all) + 4 * rows * n * (double)parts, false};
    struct gpu_prediction p, q = {0};
    gpu_predict(gpu, &dot, &work, types, &p);
    work = (struct gpu_work){rows * n, 0, 4 * rows * n * (double)(parts + 1), false};
    if (parts > 1) gpu_predict(gpu, &merge, &work, 1ull << DT_F32, &q);
    return p.us + q.us;
}

/* By what one row tile takes; the row count has no say. */
static void choose_parts(struct dot *t)
{
    struct dim_ctx *dc = t->l->m->dims;
    double best = LEAST_GAIN * time_of(t, 1, 1);
    t->parts = 1;
    for (int64_t parts = 2; parts <= MAX_PARTS; parts++) {
        if (t->run % (t->step * parts) || t->run / (t->step * parts) < LEAST_STEPS) continue;
        double us = time_of(t, parts, 1);
        if (us < best) best = us, t->parts = parts;
    }
    if (t->parts == 1) return;
    int64_t tiles = 1;
    while (tiles < MAX_FEW && time_of(t, t->parts, tiles + 1) < time_of(t, 1, tiles + 1)) tiles++;
    t->few = tiles * TILE;
    const struct dim *one = dim_const(dc, 1);
    t->many = dim_max(dc, dim_const(dc, 0), dim_min(dc, one, dim_addc(dc, t->m, -t->few)));
    t->few_rows = dim_mul(dc, dim_min(dc, t->m, dim_const(dc, t->few)), dim_sub(dc, one, t->many));
}

static void emit_in_parts(struct dot *t)
{
    struct lower_ctx *l = t->l;
    struct dim_ctx *dc = l->m->dims;
    const struct dim *flops = group_flops(l->m, l->body);
    if (t->m->hi > t->few) {
        emit_whole(t, dim_mul(dc, t->m, t->many));
        l->k->flops = dim_mul(dc, flops, t->many);
        lower_next(l, "whole");
    }
    emit_parts(t);
    l->k->flops = dim_mul(dc, flops, dim_sub(dc, dim_const(dc, 1), t->many));
    lower_next(l, "parts");
    emit_merge(t);
    l->k->name = lower_part_name(l, "merge");
}

enum lower_result lower_dot(struct lower_ctx *l)
{
    struct dot t = {.l = l};
    if (!is_mine(&t) || t.op->results[0].type.rank < 2) return LOWER_NOT_MINE;
    choose_parts(&t);
    if (t.parts > 1 && t.m->lo <= t.few) emit_in_parts(&t);
    else emit_whole(&t, t.m);
    return LOWER_DONE;
}
