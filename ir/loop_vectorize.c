// SPDX-License-Identifier: Apache-2.0
/*
 * lp_vectorize: a LP_LOOP_VECTOR loop takes W iterations at once, W = vector_bytes / the widest element it computes with.
 *
 *   for vector %i in 0 .. %n step 1 {        for serial %i in 0 .. floordiv(%n, W) * W step W {
 *     %x = load @0[%i] : f32           ->      %x = load @0[%i] cols 0 : f32<1xW>
 *     store @1[%i], exp(%x)                    store @1[%i], exp(%x) cols 0
 *                                            }  and the rest
 *
 * Requires: a verified kernel; iterations independent but for reductions, as LP_LOOP_VECTOR promises. Establishes: no
 * LP_LOOP_VECTOR is left; one that cannot be widened is serial. k->n_vectorized counts the widened ones.
 *
 * Every value of the body is in one of three classes:
 *   uniform   the same for all iterations: stays as it is
 *   affine    i64, its first lane plus lane * a constant: stays scalar (the first lane) while it only feeds addresses
 *   varying   becomes W columns; columns (Rx1) become RxW tiles
 * An access whose varying indices are one affine index with coefficient 1 becomes a tile access along that axis; any
 * other is a gather or scatter.
 *
 * Carried values must be reductions (x = x op f, op one of add sub mul min max and or fma). They become W partial
 * results that REDUCE joins by halving: another order than the serial one, but always the same one. A loop with a float
 * sum goes through 4 W columns first, to have several sums in flight.
 *
 * The rest (fewer than W iterations) is one more step with `ncols` bounds when masked, else the old loop.
 */
#include "ir/dim.h"
#include "ir/loop.h"
#include "ir/loop_rewrite.h"

#include <math.h>

#define MAX_LANES 256

enum lane_class { UNIFORM, AFFINE, VARYING };

struct fact {
    enum lane_class class;
    int64_t coeff; /* AFFINE: never 0 */
    uint32_t uses;
    struct lp_value *now; /* the value in the copy being made */
};

struct reduction {
    enum lp_reduce_kind kind;
    struct lp_op *op;  /* that yields the next value */
    int carried;       /* which operand of it is the carried value */
};

struct widener {
    struct lp_kernel *k;
    struct arena arena;
    struct fact *facts; /* by id of the values of the loop being looked at */
    size_t n_facts;
    struct lp_op *loop;
    struct reduction *reductions;
    int lanes;
    bool masked;
    bool float_sum;
    int widest_bytes;
    bool guarded_only; /* something in the body must not run for lanes that do not exist */
    /* while copying */
    struct lp_value *ncols;
    int changed;
};

static struct fact *fact(const struct widener *w, const struct lp_value *v) { return &w->facts[v->id]; }

/* ---- classes ---- */

/* A value of a class at least cls; says whether that is news. */
static void raise(struct widener *w, const struct lp_value *v, enum lane_class cls, int64_t coeff)
{
    struct fact *f = fact(w, v);
    if (cls == AFFINE && coeff == 0) cls = UNIFORM;
    if (cls == AFFINE && f->class == AFFINE && f->coeff != coeff) cls = VARYING;
    if (cls < f->class || (cls == f->class && (cls != AFFINE || f->coeff == coeff))) return;
    f->class = cls;
    f->coeff = coeff;
    w->changed = 1;
}

static bool widens_type(struct lp_type t) { return t.cols == 1; }

static bool is_i64_scalar(const struct lp_value *v)
{
    return v->type.dtype == DT_I64 && v->type.rows == 1 && v->type.cols == 1;
}

/* The coefficient of an i64 scalar, 0 when uniform; false when varying. */
static bool coeff_of(const struct widener *w, const struct lp_value *v, int64_t *out)
{
    const struct fact *f = fact(w, v);
    *out = f->class == AFFINE ? f->coeff : 0;
    return f->class != VARYING && is_i64_scalar(v);
}

static bool affine_result(const struct widener *w, const struct lp_op *op, int64_t *coeff)
{
    int64_t a, b, c;
    if (op->n_operands != 2 || !coeff_of(w, op->operands[0], &a) || !coeff_of(w, op->operands[1], &b)) return false;
    switch (op->code) {
    case LP_OP_ADD: return i64_add(a, b, coeff);
    case LP_OP_SUB: return i64_sub(a, b, coeff);
    case LP_OP_MUL:
        if (lp_is_const(op->operands[1], &c)) return i64_mul(a, c, coeff);
        return lp_is_const(op->operands[0], &c) && i64_mul(b, c, coeff);
    default: return false;
    }
}

static enum lane_class worst_operand(const struct widener *w, const struct lp_op *op)
{
    enum lane_class worst = UNIFORM;
    for (int i = 0; i < op->n_operands; i++)
        if (fact(w, op->operands[i])->class > worst) worst = fact(w, op->operands[i])->class;
    return worst;
}

/* Ends of regions: what they yield against the results (and, of a loop, the carried arguments). */
static void classify_yields(struct widener *w, const struct lp_op *op)
{
    for (int r = 0; r < op->n_regions; r++)
        for (int i = 0; i < op->n_results; i++) {
            bool uniform = fact(w, op->regions[r]->last->operands[i])->class == UNIFORM;
            if (uniform) continue;
            raise(w, op->results[i], VARYING, 0);
            if (op->code == LP_OP_FOR) raise(w, op->regions[0]->args[i + 1], VARYING, 0);
        }
}

static bool classify_block(struct widener *w, const struct lp_block *b);

static bool is_plain(const struct lp_op *op)
{
    return (lp_op_flags(op->code) & LP_F_PW) || op->code == LP_OP_SPLAT || op->code == LP_OP_CONST;
}

/* Both regions hold only arithmetic that may run in any case. */
static bool becomes_select(const struct lp_op *op)
{
    int64_t c;
    for (int r = 0; r < 2; r++)
        for (const struct lp_op *o = op->regions[r]->first; o != op->regions[r]->last; o = o->next) {
            if (!is_plain(o) && o->code != LP_OP_DIM) return false;
            if (o->code == LP_OP_FLOORDIV && (!lp_is_const(o->operands[1], &c) || !c)) return false;
        }
    return true;
}

static bool classify_region_op(struct widener *w, const struct lp_op *op)
{
    enum lane_class head = op->code == LP_OP_IF ? fact(w, op->operands[0])->class : UNIFORM;
    if (op->code == LP_OP_FOR) {
        if (op->index == LP_LOOP_VECTOR) return false;
        for (int i = 0; i < 2; i++)
            if (fact(w, op->operands[i])->class != UNIFORM) return false;
        for (int i = 0; i < op->n_results; i++) {
            if (fact(w, op->operands[i + 2])->class == UNIFORM) continue;
            raise(w, op->results[i], VARYING, 0);
            raise(w, op->regions[0]->args[i + 1], VARYING, 0);
        }
    }
    if (head != UNIFORM) {
        if (!becomes_select(op)) return false;
        for (int i = 0; i < op->n_results; i++) raise(w, op->results[i], VARYING, 0);
    }
    for (int r = 0; r < op->n_regions; r++)
        if (!classify_block(w, op->regions[r])) return false;
    classify_yields(w, op);
    for (int i = 0; i < op->n_results; i++)
        if (fact(w, op->results[i])->class == VARYING && !widens_type(op->results[i]->type)) return false;
    return true;
}

/* The axis along which W lanes are W elements; -1: no varying index; -2: a gather. */
static int lane_axis(const struct widener *w, const struct lp_op *op)
{
    int axis = -1, first = lp_first_index(op);
    for (int i = 0; i < w->k->bufs.v[op->buf].rank; i++) {
        const struct fact *f = fact(w, op->operands[first + i]);
        if (f->class == UNIFORM) continue;
        if (axis != -1 || f->class != AFFINE || f->coeff != 1) return -2;
        axis = i;
    }
    return axis;
}

static void note_width(struct widener *w, enum dtype d)
{
    int bytes = (int)dtype_bytes(d);
    if (bytes > w->widest_bytes) w->widest_bytes = bytes;
}

static bool classify_access(struct widener *w, const struct lp_op *op)
{
    if (op->code == LP_OP_BARRIER) return false;
    bool store = op->code == LP_OP_STORE;
    int first = lp_first_index(op), rank = w->k->bufs.v[op->buf].rank, axis = lane_axis(w, op);
    for (int i = first + rank; i < op->n_operands; i++)
        if (fact(w, op->operands[i])->class != UNIFORM) return false;
    struct lp_type t = store ? op->operands[0]->type : op->results[0]->type;
    /* All lanes would write one element: not independent. */
    if (axis == -1) return !store;
    if (!widens_type(t) || op->has_ncols || (axis >= 0 && axis == op->row_axis)) return false;
    if (axis == -2 && t.rows > 1) return false;
    for (int i = 0; i < rank; i++)
        if (op->operands[first + i]->type.cols > 1) return false;
    if (!store) raise(w, op->results[0], VARYING, 0);
    note_width(w, t.dtype);
    return true;
}

static bool classify_op(struct widener *w, const struct lp_op *op)
{
    if (op->code == LP_OP_YIELD) return true;
    if (op->n_regions) return classify_region_op(w, op);
    if (lp_op_flags(op->code) & LP_F_MEM) return classify_access(w, op);
    if (worst_operand(w, op) == UNIFORM) return true;
    int64_t coeff = 0, c;
    if (affine_result(w, op, &coeff)) {
        raise(w, op->results[0], AFFINE, coeff);
        if (fact(w, op->results[0])->class != VARYING) return true;
    }
    if (!is_plain(op)) return false;
    for (int i = 0; i < op->n_operands; i++)
        if (!widens_type(op->operands[i]->type)) return false;
    if (!widens_type(op->results[0]->type)) return false;
    raise(w, op->results[0], VARYING, 0);
    /* Integers of 64 bits are mostly indices of a gather: those that are data were loaded. */
    if (op->results[0]->type.dtype != DT_I64) note_width(w, op->results[0]->type.dtype);
    if (op->code == LP_OP_FLOORDIV && (!lp_is_const(op->operands[1], &c) || !c)) w->guarded_only = true;
    return true;
}

static bool classify_block(struct widener *w, const struct lp_block *b)
{
    for (const struct lp_op *op = b->first; op; op = op->next)
        if (!classify_op(w, op)) return false;
    return true;
}

/* ---- reductions ---- */

static void count_uses(struct widener *w, const struct lp_block *b)
{
    for (const struct lp_op *op = b->first; op; op = op->next) {
        for (int i = 0; i < op->n_operands; i++) fact(w, op->operands[i])->uses++;
        for (int i = 0; i < op->n_regions; i++) count_uses(w, op->regions[i]);
    }
}

static bool reduction_kind(const struct lp_op *op, int carried, enum lp_reduce_kind *out)
{
    switch (op->code) {
    case LP_OP_SUB: *out = LP_RED_ADD; return carried == 0;
    case LP_OP_FMA: *out = LP_RED_ADD; return carried == 2;
    case LP_OP_ADD: *out = LP_RED_ADD; return true;
    case LP_OP_MUL: *out = LP_RED_MUL; return true;
    case LP_OP_MIN: *out = LP_RED_MIN; return true;
    case LP_OP_MAX: *out = LP_RED_MAX; return true;
    case LP_OP_AND: *out = LP_RED_AND; return true;
    case LP_OP_OR: *out = LP_RED_OR; return true;
    default: return false;
    }
}

static bool find_reduction(struct widener *w, int i)
{
    const struct lp_block *body = w->loop->regions[0];
    struct lp_value *arg = body->args[i + 1], *next = body->last->operands[i];
    struct reduction *r = &w->reductions[i];
    if (!next->def || next->def->block != body || !widens_type(arg->type)) return false;
    if (fact(w, arg)->uses != 1 || fact(w, next)->uses != 1) return false;
    r->op = next->def;
    for (r->carried = 0; r->carried < r->op->n_operands; r->carried++)
        if (r->op->operands[r->carried] == arg) break;
    if (r->carried == r->op->n_operands || !reduction_kind(r->op, r->carried, &r->kind)) return false;
    /* The other operands must not make the result's shape bigger than the carried one's, which verify ensures. */
    enum dtype d = arg->type.dtype;
    if ((r->kind == LP_RED_AND || r->kind == LP_RED_OR) ? dtype_is_float(d) : d == DT_BOOL) return false;
    if (dtype_is_float(d) && (r->kind == LP_RED_ADD || r->kind == LP_RED_MUL)) w->float_sum = true;
    return true;
}

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

/* ---- can it be done? ---- */

static bool analyse(struct widener *w, struct lp_op *loop)
{
    struct lp_block *body = loop->regions[0];
    w->loop = loop;
    w->n_facts = w->k->next_id;
    w->facts = ARENA_ARRAY(&w->arena, struct fact, w->n_facts);
    w->reductions = ARENA_ARRAY(&w->arena, struct reduction, loop->n_results);
    w->widest_bytes = 0;
    w->float_sum = w->guarded_only = false;
    if (loop->imm != 1) return false;
    count_uses(w, body);
    fact(w, body->args[0])->class = AFFINE;
    fact(w, body->args[0])->coeff = 1;
    for (int i = 0; i < loop->n_results; i++) {
        if (!find_reduction(w, i)) return false;
        raise(w, body->args[i + 1], VARYING, 0);
        note_width(w, body->args[i + 1]->type.dtype);
    }
    /* Classes only rise, so this ends; one more round a loop nested in the body is the rule. */
    do {
        w->changed = 0;
        if (!classify_block(w, body)) return false;
    } while (w->changed);
    /* A reduction's step must have been seen as such: its other operands may be uniform, its result varies. */
    for (int i = 0; i < loop->n_results; i++)
        if (fact(w, w->reductions[i].op->results[0])->class != VARYING) return false;
    return w->widest_bytes > 0;
}

/* ---- the copy ---- */

static struct lp_value *now(const struct widener *w, struct lp_value *v)
{
    struct lp_value *n = fact(w, v)->now;
    return n ? n : v; /* from outside the loop */
}

static struct lp_value *lane_numbers(struct widener *w, struct lp_builder *b) { return lp_iota(b, DT_I64, w->lanes); }

/* As columns, or as a scalar that broadcasts. */
static struct lp_value *operand(struct widener *w, struct lp_builder *b, struct lp_value *v)
{
    const struct fact *f = fact(w, v);
    struct lp_value *n = now(w, v);
    if (f->class != AFFINE) return n;
    struct lp_value *step = lane_numbers(w, b);
    if (f->coeff != 1) step = lp_binary(b, LP_OP_MUL, step, lp_index(b, f->coeff));
    return lp_binary(b, LP_OP_ADD, n, step);
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
    for (int i = 0; i < op->n_results; i++) fact(w, op->results[i])->now = n->results[i];
}

static void copy_pointwise(struct widener *w, struct lp_builder *b, const struct lp_op *op)
{
    struct lp_value *x[3] = {NULL, NULL, NULL}, *r;
    if (op->code == LP_OP_SPLAT) {
        r = lp_splat(b, operand(w, b, op->operands[0]), op->results[0]->type.rows, w->lanes);
        fact(w, op->results[0])->now = r;
        return;
    }
    for (int i = 0; i < op->n_operands; i++) x[i] = operand(w, b, op->operands[i]);
    if (op->code == LP_OP_CAST) r = lp_cast(b, x[0], op->results[0]->type.dtype);
    else if (op->code == LP_OP_BITCAST) r = lp_bitcast(b, x[0], op->results[0]->type.dtype);
    else if (op->code == LP_OP_SELECT) r = lp_select(b, x[0], x[1], x[2]);
    else if (op->code == LP_OP_FMA) r = lp_fma(b, x[0], x[1], x[2]);
    else r = op->n_operands == 1 ? lp_unary(b, op->code, x[0]) : lp_binary(b, op->code, x[0], x[1]);
    /* A select of uniform values by a uniform condition is not here, but one that folded may be narrow. */
    fact(w, op->results[0])->now = lp_splat(b, r, op->results[0]->type.rows, w->lanes);
}

static void copy_access(struct widener *w, struct lp_builder *b, const struct lp_op *op)
{
    bool store = op->code == LP_OP_STORE;
    int axis = lane_axis(w, op), first = lp_first_index(op), rank = w->k->bufs.v[op->buf].rank, n = 0;
    if (axis == -1) {
        copy_plain(w, b, op);
        return;
    }
    struct lp_value **x = ARENA_ARRAY(&w->arena, struct lp_value *, op->n_operands + 1);
    struct lp_type t = store ? op->operands[0]->type : op->results[0]->type;
    t.cols = (uint16_t)w->lanes;
    if (store) x[n++] = columns(w, b, op->operands[0]);
    for (int i = 0; i < rank; i++) {
        struct lp_value *v = op->operands[first + i];
        x[n++] = axis == -2 ? operand(w, b, v) : now(w, v);
    }
    if (op->has_nrows) x[n++] = now(w, lp_nrows(w->k, op));
    if (w->ncols) x[n++] = w->ncols;
    struct lp_op *o = lp_op_create(w->k, op->code, n, x, store ? 0 : 1, store ? NULL : &t);
    o->buf = op->buf;
    o->row_axis = axis == -2 ? -1 : op->row_axis;
    o->col_axis = axis == -2 ? -1 : axis;
    o->has_nrows = op->has_nrows;
    o->has_ncols = w->ncols != NULL;
    lp_append(b->block, o);
    if (!store) fact(w, op->results[0])->now = o->results[0];
}

/* What a region yields, in the form of the op's results. */
static struct lp_value **region_yields(struct widener *w, struct lp_builder *b, const struct lp_op *op, int region)
{
    struct lp_value **y = ARENA_ARRAY(&w->arena, struct lp_value *, op->n_results);
    for (int i = 0; i < op->n_results; i++) {
        struct lp_value *v = op->regions[region]->last->operands[i];
        y[i] = fact(w, op->results[i])->class == VARYING ? columns(w, b, v) : now(w, v);
    }
    return y;
}

static void copy_for(struct widener *w, struct lp_builder *b, const struct lp_op *op)
{
    struct lp_value **init = ARENA_ARRAY(&w->arena, struct lp_value *, op->n_results);
    for (int i = 0; i < op->n_results; i++) {
        struct lp_value *v = op->operands[i + 2];
        init[i] = fact(w, op->results[i])->class == VARYING ? columns(w, b, v) : now(w, v);
    }
    struct lp_op *n = lp_for_begin(b, (enum lp_loop_kind)op->index, now(w, op->operands[0]), now(w, op->operands[1]),
                                   op->imm, op->n_results, init);
    for (int i = 0; i < op->regions[0]->n_args; i++) fact(w, op->regions[0]->args[i])->now = n->regions[0]->args[i];
    copy_block(w, b, op->regions[0]);
    lp_for_end(b, n, region_yields(w, b, op, 0));
    for (int i = 0; i < op->n_results; i++) fact(w, op->results[i])->now = n->results[i];
}

static void copy_if(struct widener *w, struct lp_builder *b, const struct lp_op *op)
{
    struct lp_value *cond = operand(w, b, op->operands[0]), **yes, **no;
    struct lp_type *types = ARENA_ARRAY(&w->arena, struct lp_type, op->n_results);
    if (fact(w, op->operands[0])->class != UNIFORM) {
        copy_block(w, b, op->regions[0]);
        yes = region_yields(w, b, op, 0);
        copy_block(w, b, op->regions[1]);
        no = region_yields(w, b, op, 1);
        for (int i = 0; i < op->n_results; i++) fact(w, op->results[i])->now = lp_select(b, cond, yes[i], no[i]);
        return;
    }
    for (int i = 0; i < op->n_results; i++) {
        types[i] = op->results[i]->type;
        if (fact(w, op->results[i])->class == VARYING) types[i].cols = (uint16_t)w->lanes;
    }
    struct lp_op *n = lp_if_begin(b, cond, op->n_results, types);
    copy_block(w, b, op->regions[0]);
    lp_if_else(b, n, region_yields(w, b, op, 0));
    copy_block(w, b, op->regions[1]);
    lp_if_end(b, n, region_yields(w, b, op, 1));
    for (int i = 0; i < op->n_results; i++) fact(w, op->results[i])->now = n->results[i];
}

static void copy_block(struct widener *w, struct lp_builder *b, const struct lp_block *from)
{
    for (const struct lp_op *op = from->first; op; op = op->next) {
        if (op->code == LP_OP_YIELD) continue;
        if (op->code == LP_OP_FOR) copy_for(w, b, op);
        else if (op->code == LP_OP_IF) copy_if(w, b, op);
        else if (lp_op_flags(op->code) & LP_F_MEM) copy_access(w, b, op);
        else if (fact(w, op->results[0])->class == VARYING) copy_pointwise(w, b, op);
        else copy_plain(w, b, op);
    }
}

/* One step of the loop at `counter` with partial results `acc`; returns the next ones. */
static struct lp_value **copy_step(struct widener *w, struct lp_builder *b, struct lp_value *counter,
                                   struct lp_value *const *acc)
{
    const struct lp_block *body = w->loop->regions[0];
    int n = w->loop->n_results;
    struct lp_value **next = ARENA_ARRAY(&w->arena, struct lp_value *, n);
    fact(w, body->args[0])->now = counter;
    for (int i = 0; i < n; i++) fact(w, body->args[i + 1])->now = acc[i];
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

/* Whole steps from lo on; *lo and *total move to what is left. */
static void main_loop(struct widener *w, struct lp_builder *b, struct lp_value **lo, struct lp_value *hi,
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
static void masked_rest(struct widener *w, struct lp_builder *b, struct lp_value *lo, struct lp_value *hi,
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

/* ---- the pass ---- */

/* Iterations when known, else -1. */
static int64_t trip_count(const struct lp_op *loop)
{
    int64_t lo, hi, n;
    if (!lp_is_const(loop->operands[0], &lo) || !lp_is_const(loop->operands[1], &hi)) return -1;
    return i64_sub(hi, lo, &n) && n > 0 ? n : 0;
}

static int round_down_pow2(int64_t n)
{
    int p = 1;
    while (p <= n / 2 && p < MAX_LANES) p *= 2;
    return p;
}

static void widen(struct widener *w, int vector_bytes, bool masked)
{
    struct lp_op *loop = w->loop;
    int n = loop->n_results, lanes = vector_bytes / w->widest_bytes;
    int64_t trip = trip_count(loop);
    if (lanes < 2) lanes = 2;
    if (w->guarded_only) masked = false;
    if (trip >= 0 && trip < lanes) {
        int less = round_down_pow2(trip);
        lanes = masked && less < trip ? 2 * less : less;
        if (lanes < 2) return;
    }
    struct lp_block fresh = {0};
    struct lp_builder b = {.k = w->k, .block = &fresh};
    struct lp_value *lo = loop->operands[0], *hi = loop->operands[1];
    struct lp_value **total = ARENA_ARRAY(&w->arena, struct lp_value *, n);
    for (int i = 0; i < n; i++) total[i] = loop->operands[i + 2];
    bool deep = w->float_sum && lanes * 4 <= MAX_LANES && (trip < 0 || trip >= 8 * lanes);
    for (int wide = deep ? 4 : 1; wide; wide = wide == 4) {
        w->lanes = lanes * wide;
        int64_t left = trip >= 0 ? trip : w->lanes;
        if (left >= w->lanes) main_loop(w, &b, &lo, hi, total);
        if (trip >= 0) trip %= w->lanes;
    }
    w->lanes = lanes;
    bool rest = trip != 0;
    if (rest && masked) masked_rest(w, &b, lo, hi, total);
    lp_splice_before(loop, &fresh);
    w->k->n_vectorized++;
    if (rest && !masked) {
        loop->operands[0] = lo;
        for (int i = 0; i < n; i++) loop->operands[i + 2] = total[i];
        return;
    }
    for (int i = 0; i < n; i++) loop->results[i]->aux = total[i];
    lp_unlink(loop);
}

static bool vectorize_block(struct lp_kernel *k, struct lp_block *b, int vector_bytes, bool masked);

/* Returns whether a loop inside was widened: then this one stays as it is. */
static bool vectorize_loop(struct lp_kernel *k, struct lp_op *op, int vector_bytes, bool masked)
{
    bool inner = false, vector = op->code == LP_OP_FOR && op->index == LP_LOOP_VECTOR;
    for (int i = 0; i < op->n_regions; i++) inner |= vectorize_block(k, op->regions[i], vector_bytes, masked);
    if (!vector) return inner;
    op->index = LP_LOOP_SERIAL;
    if (inner) return true;
    struct widener w = {.k = k};
    arena_init(&w.arena);
    int before = k->n_vectorized;
    if (analyse(&w, op)) widen(&w, vector_bytes, masked);
    arena_deinit(&w.arena);
    return k->n_vectorized > before;
}

static bool vectorize_block(struct lp_kernel *k, struct lp_block *b, int vector_bytes, bool masked)
{
    bool any = false;
    for (struct lp_op *op = b->first, *next; op; op = next) {
        next = op->next;
        if (op->n_regions) any |= vectorize_loop(k, op, vector_bytes, masked);
    }
    return any;
}

/* aux of a value: what stands in its place; it may be replaced itself. */
static struct lp_value *resolve(struct lp_value *v)
{
    while (v->aux) v = v->aux;
    return v;
}

static void clear_aux(struct lp_block *b)
{
    for (int i = 0; i < b->n_args; i++) b->args[i]->aux = NULL;
    for (struct lp_op *op = b->first; op; op = op->next) {
        for (int i = 0; i < op->n_results; i++) op->results[i]->aux = NULL;
        for (int i = 0; i < op->n_regions; i++) clear_aux(op->regions[i]);
    }
}

static void replace_uses(struct lp_block *b)
{
    for (struct lp_op *op = b->first; op; op = op->next) {
        for (int i = 0; i < op->n_operands; i++) op->operands[i] = resolve(op->operands[i]);
        for (int i = 0; i < op->n_regions; i++) replace_uses(op->regions[i]);
    }
}

void lp_vectorize_as(struct lp_kernel *k, int vector_bytes, bool masked)
{
    clear_aux(k->body);
    vectorize_block(k, k->body, vector_bytes, masked);
    replace_uses(k->body);
}

void lp_vectorize(struct lp_kernel *k, int vector_bytes) { lp_vectorize_as(k, vector_bytes, false); }
