// SPDX-License-Identifier: Apache-2.0
/*
 * Resampling as an indexed expression. Separable: each axis that changes has taps, a source index and a weight each,
 * that depend on its own coordinate alone (an outer axis's taps are hoisted out of the loop over the last one).
 *
 *   out[i0, i1] = sum over t1 of w1[t1](i1) * (sum over t0 of w0[t0](i0) * x[p0[t0](i0), p1[t1](i1)])
 *
 * Nearest has one tap, linear two, cubic four: written out. Antialiasing has as many as the scale says: loops.
 * Coordinates are f64: that of a large image has no f32 fraction worth the name. Sums nest with axis 0 innermost, the
 * order in which the op is defined to contract.
 */
#include <math.h>
#include <string.h>

#include "passes/expr_num.h"

enum coord { HALF_PIXEL, HALF_PIXEL_SYMMETRIC, PYTORCH_HALF_PIXEL, ALIGN_CORNERS, ASYMMETRIC, CROP_AND_RESIZE };
enum mode { NEAREST, LINEAR, CUBIC };
enum nearest { ROUND_PREFER_FLOOR, ROUND_PREFER_CEIL, FLOOR, CEIL };

#define MAX_TAPS 4

/* One axis of the source. */
struct axis {
    bool same;                       /* goes through unchanged */
    const struct dim *in, *out;
    struct lp_value *scale, *length; /* f64; length: scale * in */
    struct lp_value *at, *base;      /* f64: source coordinate, in (base, base + 1] */
    struct lp_value *outside;        /* tf_crop_and_resize: bool, else NULL */
    int n;                           /* taps written out, 0: a loop */
    struct lp_value *index[MAX_TAPS], *weight[MAX_TAPS]; /* weight NULL: 1 */
    /* antialiasing */
    struct lp_value *shrink, *first, *n_loop, *total;
};

struct resize {
    struct expr_ctx *c;
    const struct ir_op *op;
    const struct ir_value *x;
    enum coord coord;
    enum mode mode;
    enum nearest nearest;
    double cubic_a;
    bool exclude_outside, antialias;
    enum dtype acc;
    struct axis axes[IR_MAX_RANK];
    struct lp_value *sub[IR_MAX_RANK];
};

static int word_of(const struct ir_op *op, const char *name, const char *const *words)
{
    const char *w = ir_attr_string(op, name, words[0]);
    for (int i = 0; words[i]; i++)
        if (!strcmp(w, words[i])) return i;
    return 0; /* the verifier knows the words */
}

static struct lp_value *bin(struct resize *r, enum lp_opcode code, struct lp_value *a, struct lp_value *b)
{
    return num_op(r->c, code, a, b);
}

static struct lp_value *binc(struct resize *r, enum lp_opcode code, struct lp_value *a, double b)
{
    return num_opc(r->c, code, a, b);
}

/* v where d is at least 2, else other. */
static struct lp_value *when_many(struct resize *r, const struct dim *d, struct lp_value *v, struct lp_value *other)
{
    struct expr_ctx *c = r->c;
    if (d->lo > 1) return v;
    if (d->hi <= 1) return other;
    return lp_select(&c->b, lp_binary(&c->b, LP_OP_GT, expr_dim(c, d), c->one), v, other);
}

static struct lp_value *align_corners(struct resize *r, const struct axis *a, struct lp_value *x)
{
    struct expr_ctx *c = r->c;
    struct lp_value *last = binc(r, LP_OP_SUB, num_of_dim(c, a->in), 1), *gaps = binc(r, LP_OP_SUB, a->length, 1);
    double k;
    if (num_is_const(gaps, &k)) return k == 0 ? num_f(c, 0) : bin(r, LP_OP_DIV, bin(r, LP_OP_MUL, x, last), gaps);
    struct lp_value *none = lp_binary(&c->b, LP_OP_EQ, gaps, num_f(c, 0));
    struct lp_value *v = bin(r, LP_OP_DIV, bin(r, LP_OP_MUL, x, last), lp_select(&c->b, none, num_f(c, 1), gaps));
    return lp_select(&c->b, none, num_f(c, 0), v);
}

static struct lp_value *crop(struct resize *r, const struct axis *a, struct lp_value *x, double from, double to)
{
    struct expr_ctx *c = r->c;
    struct lp_value *last = binc(r, LP_OP_SUB, num_of_dim(c, a->in), 1);
    struct lp_value *step = bin(r, LP_OP_MUL, binc(r, LP_OP_MUL, x, to - from), last);
    struct lp_value *gaps = binc(r, LP_OP_SUB, a->length, 1);
    double k;
    if (num_is_const(gaps, &k)) /* a length of 1 with several results comes from a scale: as the op says, infinite */
        step = k == 0 && a->out->hi > 1 ? lp_binary(&c->b, LP_OP_DIV, step, num_f(c, 0)) : k == 0 ? step : bin(r, LP_OP_DIV, step, gaps);
    else step = bin(r, LP_OP_DIV, step, gaps);
    struct lp_value *many = bin(r, LP_OP_ADD, binc(r, LP_OP_MUL, last, from), step);
    return when_many(r, a->out, many, binc(r, LP_OP_MUL, last, 0.5 * (from + to)));
}

/* Source coordinate of result coordinate i of axis number k. */
static struct lp_value *source(struct resize *r, int k, struct lp_value *i)
{
    struct expr_ctx *c = r->c;
    struct axis *a = &r->axes[k];
    struct lp_value *x = num_of_index(c, i, a->out);
    int n_roi, rank = r->x->type.rank;
    const double *roi = ir_attr_floats(r->op, "roi", &n_roi);
    switch (r->coord) {
    case ALIGN_CORNERS: return align_corners(r, a, x);
    case ASYMMETRIC: return bin(r, LP_OP_DIV, x, a->scale);
    case CROP_AND_RESIZE: return crop(r, a, x, n_roi ? roi[k] : 0, n_roi ? roi[rank + k] : 1);
    default: break;
    }
    struct lp_value *half = binc(r, LP_OP_SUB, bin(r, LP_OP_DIV, binc(r, LP_OP_ADD, x, 0.5), a->scale), 0.5);
    if (r->coord == HALF_PIXEL) return half;
    if (r->coord == PYTORCH_HALF_PIXEL) return when_many(r, a->out, half, num_f(c, 0));
    struct lp_value *cut = bin(r, LP_OP_SUB, num_f(c, 1), bin(r, LP_OP_DIV, num_of_dim(c, a->out), a->length));
    return bin(r, LP_OP_ADD, bin(r, LP_OP_MUL, binc(r, LP_OP_DIV, num_of_dim(c, a->in), 2), cut), half);
}

/*
 * Whole-number upsampling with a nearest rule that keeps blocks of k equal elements: index = i / k, no floats. Holds for
 * half_pixel with either rounding (|(rest + 0.5) / k - 0.5| < 0.5: never a tie) and for asymmetric floor.
 */
static struct lp_value *block_index(struct resize *r, struct axis *a, struct lp_value *i)
{
    double s, len;
    if (r->mode != NEAREST || !num_is_const(a->scale, &s) || s != floor(s) || s < 2 || s > 1 << 20) return NULL;
    bool rounds = r->nearest == ROUND_PREFER_FLOOR || r->nearest == ROUND_PREFER_CEIL;
    bool half = r->coord == HALF_PIXEL || r->coord == PYTORCH_HALF_PIXEL;
    if (r->coord == HALF_PIXEL_SYMMETRIC) /* the same when nothing is cut off */
        half = num_is_const(a->length, &len) && dim_is_const(a->out) && len == (double)a->out->value;
    if (!(half && rounds) && !(r->coord == ASYMMETRIC && r->nearest == FLOOR)) return NULL;
    /* A size cut down to 1 puts pytorch_half_pixel to coordinate 0, where i = 0 is too. */
    struct expr_ctx *c = r->c;
    return expr_clamp(c, lp_binary(&c->b, LP_OP_FLOORDIV, i, lp_index(&c->b, (int64_t)s)), a->in);
}

static void nearest_tap(struct resize *r, struct axis *a)
{
    struct expr_ctx *c = r->c;
    struct lp_builder *b = &c->b;
    struct lp_value *up;
    switch (r->nearest) {
    case ROUND_PREFER_FLOOR: /* base + (ratio > 1/2) */
    case ROUND_PREFER_CEIL: {
        struct lp_value *ratio = bin(r, LP_OP_SUB, a->at, a->base);
        up = lp_binary(b, r->nearest == ROUND_PREFER_FLOOR ? LP_OP_GT : LP_OP_GE, ratio, num_f(c, 0.5));
        up = lp_select(b, up, binc(r, LP_OP_ADD, a->base, 1), a->base);
        break;
    }
    case FLOOR: up = lp_unary(b, LP_OP_FLOOR, a->at); break;
    default: up = lp_unary(b, LP_OP_CEIL, a->at); break;
    }
    a->n = 1;
    a->index[0] = num_to_index(c, up, a->in);
    a->weight[0] = NULL;
}

/* |d| < 1 for linear and |d| <= 2 for cubic at written-out taps; antialiasing reaches further: checked there. */
static struct lp_value *kernel(struct resize *r, struct lp_value *d, bool checked)
{
    struct expr_ctx *c = r->c;
    struct lp_builder *b = &c->b;
    d = lp_unary(b, LP_OP_ABS, d);
    struct lp_value *zero = num_f(c, 0), *one = num_f(c, 1);
    if (r->mode == LINEAR) {
        struct lp_value *w = lp_binary(b, LP_OP_SUB, one, d);
        return checked ? lp_binary(b, LP_OP_MAX, w, zero) : w;
    }
    double a = r->cubic_a;
    struct lp_value *near = binc(r, LP_OP_SUB, binc(r, LP_OP_MUL, d, a + 2), a + 3);
    near = binc(r, LP_OP_ADD, bin(r, LP_OP_MUL, bin(r, LP_OP_MUL, near, d), d), 1);
    struct lp_value *far = binc(r, LP_OP_SUB, binc(r, LP_OP_MUL, d, a), 5 * a);
    far = binc(r, LP_OP_ADD, bin(r, LP_OP_MUL, far, d), 8 * a);
    far = binc(r, LP_OP_SUB, bin(r, LP_OP_MUL, far, d), 4 * a);
    far = lp_select(b, lp_binary(b, LP_OP_LT, d, num_f(c, 2)), far, zero);
    return lp_select(b, lp_binary(b, LP_OP_LE, d, one), near, far);
}

/* Weight of position pos, 0 outside when those are excluded. */
static struct lp_value *weight_at(struct resize *r, struct axis *a, struct lp_value *pos, bool checked)
{
    struct expr_ctx *c = r->c;
    struct lp_builder *b = &c->b;
    struct lp_value *d = lp_binary(b, LP_OP_SUB, pos, a->at);
    if (a->shrink) d = bin(r, LP_OP_MUL, d, a->shrink);
    struct lp_value *w = kernel(r, d, checked);
    if (!r->exclude_outside) return w;
    struct lp_value *last = binc(r, LP_OP_SUB, num_of_dim(c, a->in), 1), *zero = num_f(c, 0);
    struct lp_value *in = lp_binary(b, LP_OP_AND, lp_binary(b, LP_OP_GE, pos, zero), lp_binary(b, LP_OP_LE, pos, last));
    return lp_select(b, in, w, zero);
}

/* total, or 1 where it is 0: the divisor. */
static struct lp_value *divisor(struct resize *r, struct lp_value *total)
{
    struct lp_builder *b = &r->c->b;
    return lp_select(b, lp_binary(b, LP_OP_EQ, total, num_f(r->c, 0)), num_f(r->c, 1), total);
}

static void written_taps(struct resize *r, struct axis *a)
{
    struct expr_ctx *c = r->c;
    int first = r->mode == LINEAR ? 0 : -1;
    struct lp_value *total = NULL;
    a->n = r->mode == LINEAR ? 2 : 4;
    for (int t = 0; t < a->n; t++) {
        struct lp_value *pos = binc(r, LP_OP_ADD, a->base, first + t);
        a->weight[t] = weight_at(r, a, pos, false);
        a->index[t] = num_to_index(c, pos, a->in);
        total = total ? bin(r, LP_OP_ADD, total, a->weight[t]) : a->weight[t];
    }
    if (!r->exclude_outside) return;
    total = divisor(r, total);
    for (int t = 0; t < a->n; t++) a->weight[t] = bin(r, LP_OP_DIV, a->weight[t], total);
}

/* Bounds and total weight of the tap loop: positions base + first + 0 .. n_loop. */
static void looped_taps(struct resize *r, struct axis *a)
{
    struct expr_ctx *c = r->c;
    struct lp_builder *b = &c->b;
    a->shrink = bin(r, LP_OP_MIN, a->scale, num_f(c, 1));
    struct lp_value *reach = bin(r, LP_OP_DIV, num_f(c, r->mode == CUBIC ? 2 : 1), a->shrink);
    double k;
    if (num_is_const(reach, &k)) {
        a->first = num_f(c, floor(-k) + 1);
        a->n_loop = lp_index(b, 2 - 2 * ((int64_t)floor(-k) + 1));
    } else {
        a->first = binc(r, LP_OP_ADD, lp_unary(b, LP_OP_FLOOR, lp_unary(b, LP_OP_NEG, reach)), 1);
        a->n_loop = lp_cast(b, bin(r, LP_OP_SUB, num_f(c, 2), binc(r, LP_OP_MUL, a->first, 2)), DT_I64);
    }
    struct lp_value *total = num_f(c, 0);
    struct lp_op *loop = expr_for_begin(c, LP_LOOP_SERIAL, c->zero, a->n_loop, 1, 1, &total);
    struct lp_value *t = lp_cast(b, loop->regions[0]->args[0], DT_F64);
    struct lp_value *pos = bin(r, LP_OP_ADD, bin(r, LP_OP_ADD, a->base, a->first), t);
    struct lp_value *next = bin(r, LP_OP_ADD, loop->regions[0]->args[1], weight_at(r, a, pos, true));
    expr_for_end(c, loop, &next);
    a->total = divisor(r, loop->results[0]);
    a->n = 0;
}

static void setup_axis(struct resize *r, int k, struct lp_value *i)
{
    struct expr_ctx *c = r->c;
    struct lp_builder *b = &c->b;
    struct axis *a = &r->axes[k];
    int n_scales, n_roi, rank = r->x->type.rank;
    const double *scales = ir_attr_floats(r->op, "scales", &n_scales), *roi = ir_attr_floats(r->op, "roi", &n_roi);
    double given = n_scales ? scales[k] : 0;
    a->in = r->x->type.dims[k];
    a->out = r->op->results[0].type.dims[k];
    bool whole = r->coord != CROP_AND_RESIZE || !n_roi || (roi[k] == 0 && roi[rank + k] == 1);
    a->same = a->in == a->out && (given <= 0 || given == 1) && whole;
    if (a->same) {
        r->sub[k] = i;
        return;
    }
    struct lp_value *in = num_of_dim(c, a->in), *out = num_of_dim(c, a->out);
    a->scale = given > 0 ? num_f(c, given) : bin(r, LP_OP_DIV, out, in);
    a->length = given > 0 ? bin(r, LP_OP_MUL, num_f(c, given), in) : out;
    struct lp_value *block = block_index(r, a, i);
    if (block) {
        a->n = 1, a->index[0] = block, a->weight[0] = NULL;
        return;
    }
    a->at = source(r, k, i);
    if (r->coord == CROP_AND_RESIZE) {
        struct lp_value *inside = lp_binary(b, LP_OP_AND, lp_binary(b, LP_OP_GE, a->at, num_f(c, 0)),
                                            lp_binary(b, LP_OP_LE, a->at, binc(r, LP_OP_SUB, in, 1)));
        a->outside = lp_unary(b, LP_OP_NOT, inside);
        a->at = lp_select(b, inside, a->at, num_f(c, 0)); /* the value is not used: keep the arithmetic finite */
    }
    a->base = binc(r, LP_OP_SUB, lp_unary(b, LP_OP_CEIL, a->at), 1);
    if (r->mode == NEAREST) nearest_tap(r, a);
    else if (r->antialias) looped_taps(r, a);
    else written_taps(r, a);
}

/* acc + w * v; a tap of weight 0 does not count, whatever lies there. */
static struct lp_value *add_tap(struct resize *r, struct lp_value *acc, struct lp_value *w, struct lp_value *v)
{
    struct lp_builder *b = &r->c->b;
    struct lp_value *zero = lp_const_f(b, lp_scalar(r->acc), 0), *used = lp_binary(b, LP_OP_NE, w, num_f(r->c, 0));
    w = lp_cast(b, w, r->acc);
    v = lp_select(b, used, lp_binary(b, LP_OP_MUL, w, v), zero);
    return acc ? lp_binary(b, LP_OP_ADD, acc, v) : v;
}

/* Sum over the taps of axes 0 .. k. */
static struct lp_value *sum(struct resize *r, int k)
{
    struct expr_ctx *c = r->c;
    struct lp_builder *b = &c->b;
    while (k >= 0 && r->axes[k].same) k--;
    if (k < 0) {
        struct lp_value *v = expr_at(c, r->x, r->sub);
        return r->mode == NEAREST ? v : lp_cast(b, v, r->acc);
    }
    struct axis *a = &r->axes[k];
    struct lp_value *acc = NULL;
    for (int t = 0; t < a->n; t++) {
        r->sub[k] = a->index[t];
        struct lp_value *v = sum(r, k - 1);
        acc = a->weight[t] ? add_tap(r, acc, a->weight[t], v) : v;
    }
    if (a->n) return acc;
    struct lp_value *init = lp_const_f(b, lp_scalar(r->acc), 0);
    struct lp_op *loop = expr_for_begin(c, LP_LOOP_SERIAL, c->zero, a->n_loop, 1, 1, &init);
    struct lp_value *t = lp_cast(b, loop->regions[0]->args[0], DT_F64);
    struct lp_value *pos = bin(r, LP_OP_ADD, bin(r, LP_OP_ADD, a->base, a->first), t);
    struct lp_value *w = bin(r, LP_OP_DIV, weight_at(r, a, pos, true), a->total);
    r->sub[k] = num_to_index(c, pos, a->in);
    struct lp_value *next = add_tap(r, loop->regions[0]->args[1], w, sum(r, k - 1));
    expr_for_end(c, loop, &next);
    return loop->results[0];
}

struct lp_value *expr_resize(struct expr_ctx *c, const struct ir_op *op, int res, struct lp_value *const *idx)
{
    static const char *const coords[] = {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
                                         "asymmetric", "tf_crop_and_resize", NULL};
    static const char *const modes[] = {"nearest", "linear", "cubic", NULL};
    static const char *const nearests[] = {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil", NULL};
    (void)res;
    struct lp_builder *b = &c->b;
    enum dtype t = op->results[0].type.dtype;
    int rank = op->results[0].type.rank;
    struct resize r = {.c = c, .op = op, .x = ir_operand(op, 0), .acc = num_acc(t), .cubic_a = ir_attr_float(op, "cubic_a", -0.75),
                       .exclude_outside = ir_attr_int(op, "exclude_outside", 0), .antialias = ir_attr_int(op, "antialias", 0)};
    r.coord = (enum coord)word_of(op, "coord", coords);
    r.mode = (enum mode)word_of(op, "mode", modes);
    r.nearest = (enum nearest)word_of(op, "nearest", nearests);
    struct lp_value *outside = NULL;
    for (int k = 0; k < rank; k++) {
        setup_axis(&r, k, idx[k]);
        struct lp_value *o = r.axes[k].outside;
        outside = outside && o ? lp_binary(b, LP_OP_OR, outside, o) : o ? o : outside;
    }
    struct lp_value *v = lp_cast(b, sum(&r, rank - 1), t);
    if (!outside) return v;
    double e = ir_attr_float(op, "extrapolation", 0);
    struct lp_type st = lp_scalar(t);
    return lp_select(b, outside, dtype_is_float(t) ? lp_const_f(b, st, e) : lp_const_i(b, st, (int64_t)e), v);
}
