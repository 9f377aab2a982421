// SPDX-License-Identifier: Apache-2.0
/* One group to one kernel a level: the choice of schedule, and what schedules share. */
#include "passes/lower.h"

#include <string.h>

#include "passes/flops.h"
#include "passes/lower_group.h"

static lower_fn *const lower_table[] = {lower_attention_dense, lower_matmul, lower_qmatmul, lower_quant_rows, lower_winograd, lower_depthwise, lower_conv, lower_pool, lower_rows, lower_attention_rows, lower_kv_write, lower_scatter, lower_topk,
                                       lower_rnn, lower_pad, lower_shuffle, lower_generic, NULL};
/* GPUs: register tiles made for CPUs only where there is no other way to the op. */
static lower_fn *const gpu_table[] = {lower_dot, lower_dot_blocks, lower_rows, lower_flash, lower_attention, lower_kv_write, lower_scatter, lower_topk, lower_rnn, lower_generic, lower_matmul, lower_quant_rows, lower_qmatmul, NULL};

int lower_operand_of(const struct lower_ctx *l, const struct ir_value *v)
{
    return v && v->block == l->body && !v->def ? v->index : -1;
}

int lower_operand_buf(const struct lower_ctx *l, const struct ir_value *v) { return lower_operand_of(l, v); }

int lower_result_buf(const struct lower_ctx *l, int i) { return l->body->n_args + i; }

void lower_set_pack(struct lower_ctx *l, int operand, const struct plan_pack *pack, int align_bytes)
{
    struct lp_kernel *k = l->k;
    l->packs[operand] = *pack;
    struct lp_buf *b = &k->bufs.v[operand];
    const struct dim **dims = ARENA_ARRAY(&k->arena, const struct dim *, pack->rank);
    const struct dim **strides = ARENA_ARRAY(&k->arena, const struct dim *, pack->rank);
    int64_t stride = 1;
    for (int i = pack->rank - 1; i >= 0; i--) {
        dims[i] = dim_const(l->m->dims, pack->dims[i]);
        strides[i] = dim_const(l->m->dims, stride);
        stride *= pack->dims[i];
    }
    b->rank = pack->rank, b->dims = dims, b->strides = strides, b->align_bytes = align_bytes;
}

struct lp_value *lower_slice(struct lower_ctx *l) { return l->k->body->args[0]; }

void lower_set_slices(struct lower_ctx *l, const struct dim *slices) { l->k->slices = slices; }

/* ---- tile epilogues ---- */

static bool same_dims(const struct ir_type *a, const struct ir_type *b)
{
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i]) return false;
    return true;
}

bool lower_tile_epilogue_ok(const struct lower_ctx *l)
{
    if (l->yield->n_operands != 1) return false;
    const struct ir_type *t = &l->anchor->results[0].type;
    for (const struct ir_op *op = l->body->first; op != l->yield; op = op->next) {
        if (op == l->anchor) continue;
        if (op->code == IR_OP_CONSTANT) continue;
        if (op->code == IR_OP_BROADCAST && lower_operand_of(l, ir_operand(op, 0)) >= 0) continue;
        if (!(ir_op_traits(op) & IR_T_PW) || !same_dims(&op->results[0].type, t)) return false;
    }
    return same_dims(&ir_operand(l->yield, 0)->type, t);
}

struct tile_memo {
    const struct ir_value *v;
    struct lp_value *tile;
};

struct tile_epilogue {
    struct lower_ctx *l;
    struct lp_value *const *idx;
    struct lp_value *nrows, *ncols;
    int rank, row_axis, col_axis, rows, cols;
    VEC(struct tile_memo) memo;
};

/* The part of an operand that a tile sees: its row and column axes may be broadcast. */
static struct lp_value *tile_operand(struct tile_epilogue *t, const struct ir_value *v)
{
    struct lower_ctx *l = t->l;
    int rank = v->type.rank, shift = t->rank - rank;
    int row_axis = t->row_axis - shift, col_axis = t->col_axis - shift;
    bool has_rows = row_axis >= 0 && !dim_is(v->type.dims[row_axis], 1) && t->rows > 1;
    bool has_cols = col_axis >= 0 && !dim_is(v->type.dims[col_axis], 1);
    struct lp_value *idx[IR_MAX_RANK];
    for (int i = 0; i < rank; i++) idx[i] = dim_is(v->type.dims[i], 1) ? l->e.zero : t->idx[i + shift];
    int buf = lower_operand_buf(l, v);
    return lp_load_tile(&l->e.b, buf, idx, has_rows ? t->rows : 1, has_cols ? t->cols : 1, has_rows ? row_axis : 0,
                        col_axis > 0 ? col_axis : 0, has_rows ? t->nrows : NULL, has_cols ? t->ncols : NULL);
}

static struct lp_value *tile_value(struct tile_epilogue *t, const struct ir_value *v)
{
    for (size_t i = 0; i < t->memo.n; i++)
        if (t->memo.v[i].v == v) return t->memo.v[i].tile;
    struct tile_memo e = {v, NULL};
    struct expr_ctx *x = &t->l->e;
    if (lower_operand_of(t->l, v) >= 0) e.tile = tile_operand(t, v);
    else if (v->def->code == IR_OP_CONSTANT) e.tile = expr_constant(x, v->def, 0, NULL);
    else if (v->def->code == IR_OP_BROADCAST) e.tile = tile_value(t, ir_operand(v->def, 0));
    else {
        struct lp_value *args[4];
        for (int i = 0; i < v->def->n_operands; i++) args[i] = tile_value(t, ir_operand(v->def, i));
        e.tile = expr_pointwise(x, v->def, args);
    }
    vec_push(&t->l->k->arena, &t->memo, e);
    return e.tile;
}

struct lp_value *lower_tile_between(struct lower_ctx *l, const struct ir_value *from, struct lp_value *v, const struct ir_value *to,
                                    struct lp_value *const *idx, int row_axis, int col_axis, struct lp_value *nrows, struct lp_value *ncols)
{
    struct tile_epilogue t = {.l = l, .idx = idx, .nrows = nrows, .ncols = ncols, .rank = from->type.rank, .row_axis = row_axis,
                              .col_axis = col_axis, .rows = v->type.rows, .cols = v->type.cols};
    struct tile_memo first = {from, v};
    vec_push(&l->k->arena, &t.memo, first);
    struct lp_value *r = tile_value(&t, to);
    if (r->type.rows != v->type.rows || r->type.cols != v->type.cols) r = lp_splat(&l->e.b, r, v->type.rows, v->type.cols);
    return r;
}

struct lp_value *lower_tile_epilogue(struct lower_ctx *l, struct lp_value *v, struct lp_value *const *idx, int row_axis,
                                     struct lp_value *nrows, struct lp_value *ncols)
{
    const struct ir_value *from = &l->anchor->results[0];
    return lower_tile_between(l, from, v, ir_operand(l->yield, 0), idx, row_axis, from->type.rank - 1, nrows, ncols);
}

/* ---- order of slices ---- */

#define WALK_PIXELS 168 /* at least, of a walk: its weights are read once for so many */
#define CACHED_BYTES (1 << 20) /* of weights that stay in the second-level cache */

const struct dim *lower_walks(struct lower_ctx *l, const struct dim *units, int64_t pixels, int64_t bytes, int64_t like_pixels)
{
    struct dim_ctx *dc = l->m->dims;
    int64_t least = bytes > CACHED_BYTES && like_pixels > WALK_PIXELS ? like_pixels : WALK_PIXELS;
    int64_t each = pixels < 1 ? least : (least + pixels - 1) / pixels;
    return dim_max(dc, dim_floordiv(dc, units, dim_const(dc, each)), dim_const(dc, 1));
}

struct walk_place lower_walk_place(struct lower_ctx *l, struct lp_value *s, const struct dim *panels, const struct dim *units,
                                   const struct dim *walks)
{
    struct expr_ctx *e = &l->e;
    struct lp_builder *b = &e->b;
    struct lp_value *n_units = expr_dim(e, units), *count = n_units;
    struct walk_place p = {.first = e->zero};
    if (!dim_is(walks, 1)) {
        /* walk w has the units from floor(w units / walks) on: the one that holds unit q is ((q + 1) walks - 1) / units */
        struct lp_value *n_walks = expr_dim(e, walks), *n_panels = expr_dim(e, panels);
        struct lp_value *q = lp_binary(b, LP_OP_ADD, lp_binary(b, LP_OP_FLOORDIV, s, n_panels), e->one);
        struct lp_value *w = lp_binary(b, LP_OP_SUB, lp_binary(b, LP_OP_MUL, q, n_walks), e->one);
        w = lp_binary(b, LP_OP_FLOORDIV, w, n_units);
        struct lp_value *end = lp_binary(b, LP_OP_MUL, lp_binary(b, LP_OP_ADD, w, e->one), n_units);
        p.first = lp_binary(b, LP_OP_FLOORDIV, lp_binary(b, LP_OP_MUL, w, n_units), n_walks);
        count = lp_binary(b, LP_OP_SUB, lp_binary(b, LP_OP_FLOORDIV, end, n_walks), p.first);
        s = lp_binary(b, LP_OP_SUB, s, lp_binary(b, LP_OP_MUL, p.first, n_panels));
    }
    p.panel = lp_binary(b, LP_OP_FLOORDIV, s, count);
    p.unit = lp_binary(b, LP_OP_ADD, p.first, lp_binary(b, LP_OP_MOD, s, count));
    return p;
}

/* ---- prefetching ---- */

struct lp_value *lower_half_row(struct lp_builder *b, struct lp_value *pass, struct lp_value *k, int64_t rows)
{
    struct lp_value *first = lp_binary(b, LP_OP_MUL, lp_binary(b, LP_OP_MOD, pass, lp_index(b, 2)), lp_index(b, (rows + 1) / 2));
    return lp_binary(b, LP_OP_ADD, first, lp_binary(b, LP_OP_SHR, k, lp_index(b, 1)));
}

struct lp_value *lower_half_line(struct lp_builder *b, struct lp_value *pass, int elem_bytes)
{
    return lp_binary(b, LP_OP_MUL, lp_binary(b, LP_OP_FLOORDIV, pass, lp_index(b, 2)), lp_index(b, 64 / elem_bytes));
}

/* ---- groups ---- */

/* Name such as matmul_add_erf, from the first ops of the group. */
static const char *kernel_name(struct arena *a, const struct ir_block *body)
{
    struct strbuf s = {0};
    int n = 0;
    for (const struct ir_op *op = body->first; op && n < 4; op = op->next) {
        if (op->code == IR_OP_CONSTANT || op->code == IR_OP_YIELD) continue;
        strbuf_printf(&s, "%s%s", n++ ? "_" : "", ir_op_name(op->code));
    }
    char *name = arena_strdup(a, n ? strbuf_get(&s) : "copy");
    strbuf_deinit(&s);
    return name;
}

/* Rows of result 0 as far apart as the whole's that they are parts of. */
static void set_pitch(struct lower_ctx *l)
{
    struct lp_buf *b = &l->k->bufs.v[lower_result_buf(l, 0)];
    const struct dim **strides = ARENA_ARRAY(&l->k->arena, const struct dim *, b->rank);
    const struct dim *stride = l->pitch;
    strides[b->rank - 1] = dim_const(l->m->dims, 1);
    for (int i = b->rank - 2; i >= 0; i--) {
        strides[i] = stride;
        if (!dim_is_const(stride)) lp_dim_param(l->k, stride);
        stride = dim_mul(l->m->dims, stride, b->dims[i]);
    }
    b->strides = strides;
}

static void lower_start(struct lower_ctx *l)
{
    struct arena *a = &l->m->arena;
    l->k = lp_kernel_create(l->m->dims, kernel_name(a, l->body), l->group->loc ? l->group->loc->text : "", "generic");
    memset(l->packs, 0, (size_t)l->body->n_args * sizeof *l->packs);
    for (int i = 0; i < l->body->n_args + l->yield->n_operands; i++) {
        bool result = i >= l->body->n_args;
        const struct ir_value *v = result ? ir_operand(l->yield, i - l->body->n_args) : l->body->args[i];
        int elem = (int)dtype_bytes(v->type.dtype);
        lp_add_arg(l->k, v->name, v->type.dtype, v->type.rank, v->type.dims, result, elem);
    }
    if (l->pitch) set_pitch(l);
    for (size_t d = 0; l->like && d < l->like->dims.n; d++) lp_dim_param(l->k, l->like->dims.v[d]);
    expr_init(&l->e, l->m, l->k, l->level, l->diag);
    for (int i = 0; i < l->body->n_args; i++) expr_bind(&l->e, l->body->args[i], i);
}

const char *lower_part_name(struct lower_ctx *l, const char *suffix) { return arena_printf(&l->m->arena, "%s_%s", l->k->name, suffix); }

void lower_next(struct lower_ctx *l, const char *suffix)
{
    struct lp_kernel *done = l->k;
    done->name = lower_part_name(l, suffix);
    done->then = l->chain;
    l->chain = done;
    l->like = l->like ? l->like->then : NULL;
    bool failed = l->e.failed;
    lower_start(l);
    l->e.failed = failed;
}

/* The kernels of the group in the order of their launches. */
static struct lp_kernel *chained(struct lower_ctx *l)
{
    struct lp_kernel *first = l->k;
    while (l->chain) {
        struct lp_kernel *k = l->chain;
        l->chain = k->then;
        k->then = first;
        first = k;
    }
    return first;
}

/* Anchor: the last op that is neither pointwise nor moving (there is at most one hot one by construction). */
static struct ir_op *find_anchor(const struct ir_block *body)
{
    struct ir_op *anchor = NULL;
    for (struct ir_op *op = body->first; op; op = op->next) {
        if (op->code == IR_OP_YIELD || op->code == IR_OP_CONSTANT || op->code == IR_OP_IOTA || op->code == IR_OP_DIMVEC) continue;
        if (!(ir_op_traits(op) & (IR_T_PW | IR_T_MOVE))) anchor = op;
    }
    return anchor;
}

struct lp_kernel *lower_group(struct ir_module *m, struct ir_op *group, const struct target_level *level,
                              const struct lp_kernel *like, const struct ir_const **operand_consts, struct plan_pack *packs,
                              struct knob_uses *knobs, struct diag_sink *diag)
{
    struct lower_ctx l = {.m = m, .group = group, .body = group->regions[0], .yield = group->regions[0]->last,
                          .level = level, .diag = diag, .packs = packs, .operand_consts = operand_consts, .knobs = knobs};
    l.anchor = find_anchor(l.body);
    int64_t pitch = ir_attr_int(group, "x_pitch", 0);
    if (pitch) l.pitch = dim_const(m->dims, pitch);
    lower_fn *const *table = level->gpu ? gpu_table : lower_table;
    for (size_t i = 0; table[i]; i++) {
        l.like = like;
        lower_start(&l);
        if (knobs) knobs->n = 0;
        enum lower_result r = table[i](&l);
        bool failed = l.e.failed;
        l.k = chained(&l);
        if (r == LOWER_DONE && !failed) {
            if (!l.k->flops) l.k->flops = group_flops(m, l.body);
            return l.k;
        }
        lp_kernel_destroy(l.k);
        if (r != LOWER_NOT_MINE) return NULL;
    }
    diag_report(diag, DIAG_NO_LOWERING, group->loc ? group->loc->text : NULL, "operation '%s' has no lowering for this target",
                l.anchor ? ir_op_name(l.anchor->code) : "group");
    return NULL;
}
