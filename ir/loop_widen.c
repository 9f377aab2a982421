// SPDX-License-Identifier: Apache-2.0
/* One iteration of a loop becomes W: the copying half of ir/loop_vectorize.c, which says what the classes mean. */
#include "ir/dim.h"
#include "ir/loop_rewrite.h"
#include "ir/loop_widen.h"

#include <math.h>

/* The value that changes nothing. */
static struct lp_value *identity(struct lp_builder *b, enum lp_reduce_kind kind, struct lp_type t)
{
    enum dtype d = t.dtype;
    if (dtype_is_float(d)) {
        double inf = (double)INFINITY;
        /* -0 + x is x for every x. */
        double v = kind == LP_RED_ADD ? -0.0 : kind == LP_RED_MUL ? 1 : kind == LP_RED_MIN ? inf : -inf;
        return lp_const_f(b, t, v);
    }
    int bits = (int)dtype_bytes(d) * 8;
    bool sgn = dtype_class(d) == DTC_SINT;
    int64_t ones = d == DT_BOOL ? 1 : -1, least = sgn ? (int64_t)((uint64_t)1 << (bits - 1)) : 0;
    int64_t most = sgn ? (int64_t)(((uint64_t)1 << (bits - 1)) - 1) : ones;
    switch (kind) {
    case LP_RED_ADD:
    case LP_RED_OR: return lp_const_i(b, t, 0);
    case LP_RED_MUL: return lp_const_i(b, t, 1);
    case LP_RED_AND: return lp_const_i(b, t, ones);
    case LP_RED_MIN: return lp_const_i(b, t, most);
    default: return lp_const_i(b, t, least);
    }
}

static struct lp_value *now(const struct widener *w, struct lp_value *v)
{
    struct lp_value *n = lw_fact(w, v)->now;
    return n ? n : v; /* from outside the loop */
}

static struct lp_value *lane_numbers(struct widener *w, struct lp_builder *b) { return lp_iota(b, DT_I64, w->lanes); }

/* A stepping value at one lane, or (lane < 0) as columns: the ops that lead to it, again. */
static struct lp_value *stepping_value(struct widener *w, struct lp_builder *b, struct lp_value *v, int lane);

/* As columns, or as a scalar that broadcasts. */
static struct lp_value *operand(struct widener *w, struct lp_builder *b, struct lp_value *v)
{
    const struct fact *f = lw_fact(w, v);
    struct lp_value *n = now(w, v);
    if (f->class == STEPPING) return stepping_value(w, b, v, -1);
    if (f->class != AFFINE) return n;
    struct lp_value *step = lane_numbers(w, b);
    if (f->coeff != 1) step = lp_binary(b, LP_OP_MUL, step, lp_index(b, f->coeff));
    return lp_binary(b, LP_OP_ADD, n, step);
}

static struct lp_value *stepping_value(struct widener *w, struct lp_builder *b, struct lp_value *v, int lane)
{
    const struct fact *f = lw_fact(w, v);
    if (f->class == UNIFORM) return now(w, v);
    if (f->class == AFFINE)
        return lane < 0 ? operand(w, b, v) : lp_binary(b, LP_OP_ADD, now(w, v), lp_index(b, lane * f->coeff));
    const struct lp_op *op = v->def;
    struct lp_value *x = stepping_value(w, b, op->operands[0], lane), *y = stepping_value(w, b, op->operands[1], lane);
    return lp_binary(b, op->code, x, y);
}

/* As columns in any case. */
static struct lp_value *columns(struct widener *w, struct lp_builder *b, struct lp_value *v)
{
    return lp_splat(b, operand(w, b, v), v->type.rows, w->lanes);
}

static void copy_block(struct widener *w, struct lp_builder *b, const struct lp_block *from);

/* The op again, on the values of the copy; for uniform ops and scalars of affine ones. */
static void copy_plain(struct widener *w, struct lp_builder *b, const struct lp_op *op)
{
    struct lp_value **x = ARENA_ARRAY(&w->arena, struct lp_value *, op->n_operands);
    struct lp_type *types = ARENA_ARRAY(&w->arena, struct lp_type, op->n_results);
    for (int i = 0; i < op->n_operands; i++) x[i] = now(w, op->operands[i]);
    for (int i = 0; i < op->n_results; i++) types[i] = op->results[i]->type;
    struct lp_op *n = lp_op_create(w->k, op->code, op->n_operands, x, op->n_results, types);
    n->imm = op->imm;
    n->fimm = op->fimm;
    n->index = op->index;
    n->buf = op->buf;
    n->row_axis = op->row_axis;
    n->col_axis = op->col_axis;
    n->has_nrows = op->has_nrows;
    n->has_ncols = op->has_ncols;
    lp_append(b->block, n);
    for (int i = 0; i < op->n_results; i++) lw_fact(w, op->results[i])->now = n->results[i];
}

static void copy_pointwise(struct widener *w, struct lp_builder *b, const struct lp_op *op)
{
    struct lp_value *x[3] = {NULL, NULL, NULL}, *r;
    if (op->code == LP_OP_SPLAT) {
        r = lp_splat(b, operand(w, b, op->operands[0]), op->results[0]->type.rows, w->lanes);
        lw_fact(w, op->results[0])->now = r;
        return;
    }
    for (int i = 0; i < op->n_operands; i++) x[i] = operand(w, b, op->operands[i]);
    if (op->code == LP_OP_CAST) r = lp_cast(b, x[0], op->results[0]->type.dtype);
    else if (op->code == LP_OP_BITCAST) r = lp_bitcast(b, x[0], op->results[0]->type.dtype);
    else if (op->code == LP_OP_SELECT) r = lp_select(b, x[0], x[1], x[2]);
    else if (op->code == LP_OP_FMA) r = lp_fma(b, x[0], x[1], x[2]);
    else r = op->n_operands == 1 ? lp_unary(b, op->code, x[0]) : lp_binary(b, op->code, x[0], x[1]);
    /* A select of uniform values by a uniform condition is not here, but one that folded may be narrow. */
    lw_fact(w, op->results[0])->now = lp_splat(b, r, op->results[0]->type.rows, w->lanes);
}

/* The access over all lanes: along `axis` from `at` on, or (axis < 0) a gather or scatter. */
static struct lp_op *wide_access(struct widener *w, struct lp_builder *b, const struct lp_op *op, int axis,
                                 struct lp_value *at)
{
    bool store = op->code == LP_OP_STORE;
    int first = lp_first_index(op), rank = w->k->bufs.v[op->buf].rank, n = 0;
    struct lp_value **x = ARENA_ARRAY(&w->arena, struct lp_value *, op->n_operands + 1);
    struct lp_type t = store ? op->operands[0]->type : op->results[0]->type;
    t.cols = (uint16_t)w->lanes;
    if (store) x[n++] = columns(w, b, op->operands[0]);
    for (int i = 0; i < rank; i++) x[n++] = i == axis ? at : operand(w, b, op->operands[first + i]);
    if (op->has_nrows) x[n++] = now(w, lp_nrows(w->k, op));
    if (w->ncols) x[n++] = w->ncols;
    struct lp_op *o = lp_op_create(w->k, op->code, n, x, store ? 0 : 1, store ? NULL : &t);
    o->buf = op->buf;
    o->row_axis = axis < 0 ? -1 : op->row_axis;
    o->col_axis = axis;
    o->has_nrows = op->has_nrows;
    o->has_ncols = w->ncols != NULL;
    lp_append(b->block, o);
    return o;
}

/*
 * first = index at lane 0, last = index at lane W - 1:
 *   last - first == W - 1  one tile      first == last  one element      else  a gather
 */
static struct lp_value *load_stepping(struct widener *w, struct lp_builder *b, const struct lp_op *op, int axis)
{
    struct lp_value *v = op->operands[axis];
    struct lp_value *first = stepping_value(w, b, v, 0), *last = stepping_value(w, b, v, w->lanes - 1);
    struct lp_value *apart = lp_binary(b, LP_OP_SUB, last, first);
    struct lp_type t = lp_vector(op->results[0]->type.dtype, w->lanes);
    struct lp_op *along = lp_if_begin(b, lp_binary(b, LP_OP_EQ, apart, lp_index(b, w->lanes - 1)), 1, &t);
    struct lp_value *r = wide_access(w, b, op, axis, first)->results[0];
    lp_if_else(b, along, &r);
    struct lp_op *still = lp_if_begin(b, lp_binary(b, LP_OP_EQ, apart, lp_index(b, 0)), 1, &t);
    struct lp_value *idx[IR_MAX_RANK];
    for (int i = 0; i < w->k->bufs.v[op->buf].rank; i++) idx[i] = i == axis ? first : now(w, op->operands[i]);
    r = lp_splat(b, lp_load(b, op->buf, idx), 1, w->lanes);
    lp_if_else(b, still, &r);
    r = wide_access(w, b, op, -1, NULL)->results[0];
    lp_if_end(b, still, &r);
    lp_if_end(b, along, still->results);
    return along->results[0];
}

static void copy_access(struct widener *w, struct lp_builder *b, const struct lp_op *op)
{
    int axis;
    enum access kind = lw_access_kind(w, op, &axis);
    struct lp_value *r = NULL;
    struct lp_op *o = NULL;
    if (kind == ACCESS_UNIFORM) {
        copy_plain(w, b, op);
        return;
    }
    if (kind == ACCESS_STEPPING) r = load_stepping(w, b, op, axis);
    else if (kind == ACCESS_TILE) o = wide_access(w, b, op, axis, now(w, op->operands[lp_first_index(op) + axis]));
    else o = wide_access(w, b, op, -1, NULL);
    if (op->code == LP_OP_LOAD) lw_fact(w, op->results[0])->now = r ? r : o->results[0];
}

/* What a region yields, in the form of the op's results. */
static struct lp_value **region_yields(struct widener *w, struct lp_builder *b, const struct lp_op *op, int region)
{
    struct lp_value **y = ARENA_ARRAY(&w->arena, struct lp_value *, op->n_results);
    for (int i = 0; i < op->n_results; i++) {
        struct lp_value *v = op->regions[region]->last->operands[i];
        y[i] = lw_fact(w, op->results[i])->class == VARYING ? columns(w, b, v) : now(w, v);
    }
    return y;
}

static void copy_for(struct widener *w, struct lp_builder *b, const struct lp_op *op)
{
    struct lp_value **init = ARENA_ARRAY(&w->arena, struct lp_value *, op->n_results);
    for (int i = 0; i < op->n_results; i++) {
        struct lp_value *v = op->operands[i + 2];
        init[i] = lw_fact(w, op->results[i])->class == VARYING ? columns(w, b, v) : now(w, v);
    }
    struct lp_op *n = lp_for_begin(b, (enum lp_loop_kind)op->index, now(w, op->operands[0]), now(w, op->operands[1]),
                                   op->imm, op->n_results, init);
    for (int i = 0; i < op->regions[0]->n_args; i++) lw_fact(w, op->regions[0]->args[i])->now = n->regions[0]->args[i];
    copy_block(w, b, op->regions[0]);
    lp_for_end(b, n, region_yields(w, b, op, 0));
    for (int i = 0; i < op->n_results; i++) lw_fact(w, op->results[i])->now = n->results[i];
}

static void copy_if(struct widener *w, struct lp_builder *b, const struct lp_op *op)
{
    struct lp_value *cond = operand(w, b, op->operands[0]), **yes, **no;
    struct lp_type *types = ARENA_ARRAY(&w->arena, struct lp_type, op->n_results);
    if (lw_fact(w, op->operands[0])->class != UNIFORM) {
        copy_block(w, b, op->regions[0]);
        yes = region_yields(w, b, op, 0);
        copy_block(w, b, op->regions[1]);
        no = region_yields(w, b, op, 1);
        for (int i = 0; i < op->n_results; i++) lw_fact(w, op->results[i])->now = lp_select(b, cond, yes[i], no[i]);
        return;
    }
    for (int i = 0; i < op->n_results; i++) {
        types[i] = op->results[i]->type;
        if (lw_fact(w, op->results[i])->class == VARYING) types[i].cols = (uint16_t)w->lanes;
    }
    struct lp_op *n = lp_if_begin(b, cond, op->n_results, types);
    copy_block(w, b, op->regions[0]);
    lp_if_else(b, n, region_yields(w, b, op, 0));
    copy_block(w, b, op->regions[1]);
    lp_if_end(b, n, region_yields(w, b, op, 1));
    for (int i = 0; i < op->n_results; i++) lw_fact(w, op->results[i])->now = n->results[i];
}

static void copy_block(struct widener *w, struct lp_builder *b, const struct lp_block *from)
{
    for (const struct lp_op *op = from->first; op; op = op->next) {
        if (op->code == LP_OP_YIELD) continue;
        if (op->code == LP_OP_FOR) copy_for(w, b, op);
        else if (op->code == LP_OP_IF) copy_if(w, b, op);
        else if (lp_op_flags(op->code) & LP_F_MEM) copy_access(w, b, op);
        else if (lw_fact(w, op->results[0])->class == VARYING) copy_pointwise(w, b, op);
        else if (lw_fact(w, op->results[0])->class != STEPPING) copy_plain(w, b, op);
    }
}

/* One step of the loop at `counter` with partial results `acc`; returns the next ones. */
static struct lp_value **copy_step(struct widener *w, struct lp_builder *b, struct lp_value *counter,
                                   struct lp_value *const *acc)
{
    const struct lp_block *body = w->loop->regions[0];
    int n = w->loop->n_results;
    struct lp_value **next = ARENA_ARRAY(&w->arena, struct lp_value *, n);
    lw_fact(w, body->args[0])->now = counter;
    for (int i = 0; i < n; i++) lw_fact(w, body->args[i + 1])->now = acc[i];
    copy_block(w, b, body);
    for (int i = 0; i < n; i++) next[i] = columns(w, b, body->last->operands[i]);
    return next;
}

/* Partial results joined and put onto what was there before. */
static void join(struct widener *w, struct lp_builder *b, struct lp_value *const *acc, struct lp_value **total)
{
    static const enum lp_opcode ops[] = {LP_OP_ADD, LP_OP_MUL, LP_OP_MIN, LP_OP_MAX, LP_OP_AND, LP_OP_OR};
    for (int i = 0; i < w->loop->n_results; i++) {
        enum lp_reduce_kind kind = w->reductions[i].kind;
        total[i] = lp_binary(b, ops[kind], total[i], lp_reduce(b, kind, acc[i]));
    }
}

static struct lp_value **identities(struct widener *w, struct lp_builder *b)
{
    int n = w->loop->n_results;
    struct lp_value **acc = ARENA_ARRAY(&w->arena, struct lp_value *, n);
    for (int i = 0; i < n; i++) {
        struct lp_type t = w->loop->results[i]->type;
        t.cols = (uint16_t)w->lanes;
        acc[i] = identity(b, w->reductions[i].kind, t);
    }
    return acc;
}

void lw_main_loop(struct widener *w, struct lp_builder *b, struct lp_value **lo, struct lp_value *hi,
                      struct lp_value **total)
{
    struct lp_value *width = lp_index(b, w->lanes);
    struct lp_value *count = lp_binary(b, LP_OP_SUB, hi, *lo);
    count = lp_binary(b, LP_OP_MAX, count, lp_index(b, 0));
    count = lp_binary(b, LP_OP_MUL, lp_binary(b, LP_OP_FLOORDIV, count, width), width);
    struct lp_value *end = lp_binary(b, LP_OP_ADD, *lo, count);
    struct lp_op *n = lp_for_begin(b, LP_LOOP_SERIAL, *lo, end, w->lanes, w->loop->n_results, identities(w, b));
    w->ncols = NULL;
    struct lp_value **next = copy_step(w, b, n->regions[0]->args[0], n->regions[0]->args + 1);
    lp_for_end(b, n, next);
    join(w, b, n->results, total);
    *lo = end;
}

/* Lanes that do not exist keep their partial result. */
void lw_masked_rest(struct widener *w, struct lp_builder *b, struct lp_value *lo, struct lp_value *hi,
                        struct lp_value **total)
{
    int n = w->loop->n_results;
    struct lp_type *types = ARENA_ARRAY(&w->arena, struct lp_type, n);
    for (int i = 0; i < n; i++) types[i] = total[i]->type;
    struct lp_op *branch = lp_if_begin(b, lp_binary(b, LP_OP_LT, lo, hi), n, types);
    struct lp_value **old = arena_dup(&w->arena, total, (size_t)n * sizeof *total);
    w->ncols = lp_binary(b, LP_OP_SUB, hi, lo);
    struct lp_value **acc = identities(w, b), **next = copy_step(w, b, lo, acc);
    if (n) {
        struct lp_value *exists = lp_binary(b, LP_OP_LT, lane_numbers(w, b), w->ncols);
        for (int i = 0; i < n; i++) next[i] = lp_select(b, exists, next[i], acc[i]);
    }
    join(w, b, next, total);
    lp_if_else(b, branch, total);
    lp_if_end(b, branch, old);
    for (int i = 0; i < n; i++) total[i] = branch->results[i];
}
