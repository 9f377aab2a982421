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
 * Every value of the body is in one of four classes:
 *   uniform   the same for all iterations: stays as it is
 *   affine    i64, its first lane plus lane * a constant: stays scalar (the first lane) while it only feeds addresses
 *   stepping  i64, grows by 0 or 1 a lane, such as min(max(%i - 2, 0), 9) or floordiv(%i, 2): made where it is used
 *   varying   becomes W columns; columns (Rx1) become RxW tiles
 * An access whose varying indices are one affine index with coefficient 1 becomes a tile access along that axis. A load
 * whose only varying index is stepping looks at its first and last lane first: W - 1 apart it is a tile access too, equal
 * it is one element (padding, the other operands of a concatenation). Any other access is a gather or scatter.
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
#include "ir/loop_widen.h"

#define MAX_LANES 256

/* ---- classes ---- */

/* A value of a class at least cls; says whether that is news. */
static void raise(struct widener *w, const struct lp_value *v, enum lane_class cls, int64_t coeff)
{
    struct fact *f = lw_fact(w, v);
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
    const struct fact *f = lw_fact(w, v);
    *out = f->class == AFFINE ? f->coeff : 0;
    return f->class <= AFFINE && is_i64_scalar(v);
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

static bool steps(const struct widener *w, const struct lp_value *v)
{
    const struct fact *f = lw_fact(w, v);
    return f->class == STEPPING || (f->class == AFFINE && f->coeff == 1);
}

/* x stepping, the other operand uniform, and the op keeps steps of 0 or 1. *x: which operand. */
static bool stepping_result(const struct widener *w, const struct lp_op *op, int *x)
{
    int64_t c;
    if (op->n_operands != 2 || !is_i64_scalar(op->operands[0]) || !is_i64_scalar(op->operands[1])) return false;
    *x = steps(w, op->operands[0]) ? 0 : 1;
    if (!steps(w, op->operands[*x]) || lw_fact(w, op->operands[1 - *x])->class != UNIFORM) return false;
    switch (op->code) {
    case LP_OP_ADD:
    case LP_OP_MIN:
    case LP_OP_MAX: return true;
    case LP_OP_SUB: return *x == 0;
    case LP_OP_FLOORDIV: return *x == 0 && lp_is_const(op->operands[1], &c) && c > 0;
    default: return false;
    }
}

static enum lane_class worst_operand(const struct widener *w, const struct lp_op *op)
{
    enum lane_class worst = UNIFORM;
    for (int i = 0; i < op->n_operands; i++)
        if (lw_fact(w, op->operands[i])->class > worst) worst = lw_fact(w, op->operands[i])->class;
    return worst;
}

/* Ends of regions: what they yield against the results (and, of a loop, the carried arguments). */
static void classify_yields(struct widener *w, const struct lp_op *op)
{
    for (int r = 0; r < op->n_regions; r++)
        for (int i = 0; i < op->n_results; i++) {
            bool uniform = lw_fact(w, op->regions[r]->last->operands[i])->class == UNIFORM;
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
    enum lane_class head = op->code == LP_OP_IF ? lw_fact(w, op->operands[0])->class : UNIFORM;
    if (op->code == LP_OP_FOR) {
        if (op->index == LP_LOOP_VECTOR) return false;
        for (int i = 0; i < 2; i++)
            if (lw_fact(w, op->operands[i])->class != UNIFORM) return false;
        for (int i = 0; i < op->n_results; i++) {
            if (lw_fact(w, op->operands[i + 2])->class == UNIFORM) continue;
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
        if (lw_fact(w, op->results[i])->class == VARYING && !widens_type(op->results[i]->type)) return false;
    return true;
}

enum access lw_access_kind(const struct widener *w, const struct lp_op *op, int *axis)
{
    enum access kind = ACCESS_UNIFORM;
    int first = lp_first_index(op);
    *axis = -1;
    for (int i = 0; i < w->k->bufs.v[op->buf].rank; i++) {
        const struct lp_value *v = op->operands[first + i];
        if (lw_fact(w, v)->class == UNIFORM) continue;
        if (kind != ACCESS_UNIFORM || !steps(w, v)) return ACCESS_GATHER;
        kind = lw_fact(w, v)->class == AFFINE ? ACCESS_TILE : ACCESS_STEPPING;
        *axis = i;
    }
    return kind == ACCESS_STEPPING && op->code == LP_OP_STORE ? ACCESS_GATHER : kind;
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
    int first = lp_first_index(op), rank = w->k->bufs.v[op->buf].rank, axis;
    enum access kind = lw_access_kind(w, op, &axis);
    for (int i = first + rank; i < op->n_operands; i++)
        if (lw_fact(w, op->operands[i])->class != UNIFORM) return false;
    struct lp_type t = store ? op->operands[0]->type : op->results[0]->type;
    /* All lanes would write one element: not independent. */
    if (kind == ACCESS_UNIFORM) return !store;
    if (!widens_type(t) || op->has_ncols || (kind == ACCESS_TILE && axis == op->row_axis)) return false;
    if (kind != ACCESS_TILE && t.rows > 1) return false;
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
    if (op->code == LP_OP_PREFETCH) return false; /* schedules that prefetch are vectors already */
    if (lp_op_flags(op->code) & LP_F_MEM) return classify_access(w, op);
    if (worst_operand(w, op) == UNIFORM) return true;
    int64_t coeff = 0, c;
    if (affine_result(w, op, &coeff)) {
        raise(w, op->results[0], AFFINE, coeff);
        if (lw_fact(w, op->results[0])->class != VARYING) return true;
    }
    int x;
    if (stepping_result(w, op, &x)) {
        raise(w, op->results[0], STEPPING, 0);
        return true;
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
        for (int i = 0; i < op->n_operands; i++) lw_fact(w, op->operands[i])->uses++;
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
    if (lw_fact(w, arg)->uses != 1 || lw_fact(w, next)->uses != 1) return false;
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

/* ---- can it be done? ---- */

static bool analyse(struct widener *w, struct lp_op *loop)
{
    struct lp_block *body = loop->regions[0];
    w->loop = loop;
    w->facts = ARENA_ARRAY(&w->arena, struct fact, w->k->next_id);
    w->reductions = ARENA_ARRAY(&w->arena, struct reduction, loop->n_results);
    w->widest_bytes = 0;
    w->float_sum = w->guarded_only = false;
    if (loop->imm != 1) return false;
    count_uses(w, body);
    lw_fact(w, body->args[0])->class = AFFINE;
    lw_fact(w, body->args[0])->coeff = 1;
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
        if (lw_fact(w, w->reductions[i].op->results[0])->class != VARYING) return false;
    return w->widest_bytes > 0;
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
        if (left >= w->lanes) lw_main_loop(w, &b, &lo, hi, total);
        if (trip >= 0) trip %= w->lanes;
    }
    w->lanes = lanes;
    bool rest = trip != 0;
    if (rest && masked) lw_masked_rest(w, &b, lo, hi, total);
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
