// SPDX-License-Identifier: Apache-2.0
/*
 * Layout choice: convolutions and pools run channels-last ([N, D.., C]), where a pixel's channels are one vector for every
 * image size.
 *
 * One forward walk keeps, for values computed channels-last, the *twin*: the value that holds the same elements in that
 * order. Convolutions and pools start twins; pointwise ops, concat, pad, slice, resize, reductions, reshapes of pixels and
 * channel shuffles carry them on; whoever needs the original order reads a transpose of the twin, which dies when nobody does.
 *
 *   y = conv(x, w, b) pads strides       x' = transpose(x)                 (or x's twin)
 *   z = max(y, 0)                   ->   y' = conv(pad(x'), w, b) channels_last
 *                                        z' = max(y', 0);  z = transpose(z')
 *
 * A transposed convolution becomes an ordinary one over an image with zeros between its pixels, or, when its taps do not
 * overlap, a matmul. A 1x1 convolution without groups becomes a matmul with a constant right side (strided: of a slice). Requires verified IR
 * without groups; establishes: conv with channels_last has no padding. Cost: linear.
 */
#include <string.h>

#include "ir/build.h"
#include "ir/op.h"
#include "passes/pass.h"

struct layout {
    struct ir_module *m;
    struct arena scratch;
    struct map twins; /* value id -> twin */
    struct ir_builder b;
};

static struct ir_value *find_twin(struct layout *l, const struct ir_value *v)
{
    return v ? map_find(&l->twins, &v->id, sizeof v->id) : NULL;
}

static void set_twin(struct layout *l, const struct ir_value *v, struct ir_value *twin)
{
    map_put(&l->twins, &v->id, sizeof v->id, twin);
}

/* Axis of the original order as an axis of the channels-last order. */
static int last_axis_of(int axis, int rank) { return axis == 0 ? 0 : axis == 1 ? rank - 1 : axis - 1; }

static void perm_to_last(int rank, int64_t *perm)
{
    for (int i = 0; i < rank; i++) perm[last_axis_of(i, rank)] = i;
}

static void perm_to_first(int rank, int64_t *perm)
{
    for (int i = 0; i < rank; i++) perm[i] = last_axis_of(i, rank);
}

/* v in channels-last order, of rank `rank` (a lower rank gets leading ones); made before the op being converted. */
static struct ir_value *get_twin(struct layout *l, struct ir_value *v, int rank)
{
    struct ir_value *t = find_twin(l, v);
    if (t && t->type.rank == rank) return t;
    struct ir_value *full = v;
    if (v->type.rank < rank) {
        const struct dim *dims[IR_MAX_RANK];
        for (int i = 0; i < rank; i++) {
            int k = i - (rank - v->type.rank);
            dims[i] = k < 0 ? dim_const(l->m->dims, 1) : v->type.dims[k];
        }
        full = ir_build_reshape(&l->b, v, rank, dims);
    }
    int64_t perm[IR_MAX_RANK];
    perm_to_last(rank, perm);
    t = ir_build_transpose(&l->b, full, perm);
    if (full == v) set_twin(l, v, t);
    return t;
}

/* op's result i is now computed by twin: users of the original get a transpose. */
static void replace(struct layout *l, struct ir_op *op, int i, struct ir_value *twin)
{
    int64_t perm[IR_MAX_RANK];
    perm_to_first(twin->type.rank, perm);
    struct ir_value *orig = ir_build_transpose(&l->b, twin, perm);
    orig->name = op->results[i].name;
    ir_value_replace_uses(&op->results[i], orig);
    set_twin(l, orig, twin);
}

/* ---- convolutions and pools ---- */

static bool all_zero(int n, const struct dim *const *d)
{
    for (int i = 0; i < n; i++)
        if (!dim_is(d[i], 0)) return false;
    return true;
}

/* Pads the spatial axes of a channels-last image with zeros. */
static struct ir_value *pad_image(struct layout *l, struct ir_value *x, int n, const struct dim *const *pads)
{
    if (all_zero(2 * n, pads)) return x;
    const struct dim *lo[IR_MAX_RANK], *hi[IR_MAX_RANK], *zero = dim_const(l->m->dims, 0);
    for (int i = 0; i < x->type.rank; i++) {
        bool spatial = i >= 1 && i <= n;
        lo[i] = spatial ? pads[i - 1] : zero;
        hi[i] = spatial ? pads[n + i - 1] : zero;
    }
    struct ir_attr attrs[] = {ir_a_dims("lo", x->type.rank, lo), ir_a_dims("hi", x->type.rank, hi)};
    struct ir_op *pad = ir_build(&l->b, IR_OP_PAD, 1, &x, 2, attrs, 1);
    return pad ? &pad->results[0] : NULL;
}

/* Every strides-th pixel: what a 1x1 convolution with strides reads. */
static struct ir_value *subsample(struct layout *l, struct ir_value *x, int n, const int64_t *strides,
                                  const struct dim *const *out_dims)
{
    bool strided = false;
    int64_t steps[IR_MAX_RANK];
    const struct dim *starts[IR_MAX_RANK], *sizes[IR_MAX_RANK];
    for (int i = 0; i < x->type.rank; i++) {
        bool spatial = i >= 1 && i <= n;
        steps[i] = spatial ? strides[i - 1] : 1;
        starts[i] = dim_const(l->m->dims, 0);
        sizes[i] = spatial ? out_dims[i + 1] : x->type.dims[i];
        strided = strided || steps[i] != 1;
    }
    return strided ? ir_build_slice(&l->b, x, starts, steps, sizes) : x;
}

static struct ir_value *conv_1x1(struct layout *l, struct ir_op *op, struct ir_value *x)
{
    int n = x->type.rank - 2, unused;
    int64_t ones[IR_MAX_RANK];
    for (int i = 0; i < n; i++) ones[i] = 1;
    const int64_t *strides = ir_attr_ints(op, "strides", &unused);
    struct ir_value *w = ir_operand(op, 1);
    x = subsample(l, x, n, strides ? strides : ones, op->results[0].type.dims);
    const struct dim *wd[] = {w->type.dims[0], w->type.dims[1]};
    struct ir_value *y = ir_build_matmul(&l->b, x, ir_build_reshape(&l->b, w, 2, wd), false, true, (enum dtype)ir_attr_int(op, "acc", DT_NONE));
    return ir_operand(op, 2) ? ir_build_binary(&l->b, IR_OP_ADD, y, ir_operand(op, 2)) : y;
}

static bool convert_conv(struct layout *l, struct ir_op *op)
{
    struct ir_value *x = ir_operand(op, 0), *w = ir_operand(op, 1);
    int n = x->type.rank - 2, n_pads;
    if (!dtype_is_float(x->type.dtype) || !ir_value_const(w)) return false;
    const struct dim *const *pads = ir_attr_dims(op, "pads", &n_pads);
    if (pads) /* a negative pad crops: left to the generic lowering */
        for (int i = 0; i < n_pads; i++)
            if (pads[i]->lo < 0) return false;
    bool is_1x1 = ir_attr_int(op, "groups", 1) == 1;
    for (int i = 0; i < n; i++) is_1x1 = is_1x1 && dim_is(w->type.dims[2 + i], 1);
    struct ir_value *t = get_twin(l, x, x->type.rank);
    if (pads) t = pad_image(l, t, n, pads);
    if (!t) return false;
    if (is_1x1) {
        replace(l, op, 0, conv_1x1(l, op, t));
        return true;
    }
    struct ir_value *operands[] = {t, w, ir_operand(op, 2)};
    struct ir_attr attrs[8];
    int n_attrs = 0;
    for (int i = 0; i < op->n_attrs; i++)
        if (strcmp(op->attrs[i].name, "pads")) attrs[n_attrs++] = op->attrs[i];
    attrs[n_attrs++] = ir_a_int("channels_last", 1);
    struct ir_op *c = ir_build(&l->b, IR_OP_CONV, ir_operand(op, 2) ? 3 : 2, operands, n_attrs, attrs, 1);
    if (!c) return false;
    replace(l, op, 0, &c->results[0]);
    return true;
}

/* ---- transposed convolutions ---- */

/* w[C, O, K..] as an ordinary convolution's w'[O, C, K..] with the taps in reverse: constant, so folded later. */
static struct ir_value *flip_weights(struct layout *l, struct ir_value *w)
{
    int rank = w->type.rank;
    int64_t perm[IR_MAX_RANK], steps[IR_MAX_RANK];
    const struct dim *starts[IR_MAX_RANK];
    for (int i = 0; i < rank; i++) perm[i] = i < 2 ? 1 - i : i;
    w = ir_build_transpose(&l->b, w, perm);
    for (int i = 0; w && i < rank; i++) {
        steps[i] = i < 2 ? 1 : -1;
        starts[i] = i < 2 ? dim_const(l->m->dims, 0) : dim_addc(l->m->dims, w->type.dims[i], -1);
    }
    return w ? ir_build_slice(&l->b, w, starts, steps, w->type.dims) : NULL;
}

/* Channels-last x with stride - 1 zeros between neighbours: [N, H, W, C] -> [N, (H - 1) s + 1, .., C]. */
static struct ir_value *insert_zeros(struct layout *l, struct ir_value *x, int n, const int64_t *strides)
{
    struct dim_ctx *dc = l->m->dims;
    const struct dim *zero = dim_const(dc, 0), *one = dim_const(dc, 1);
    const struct dim *split[IR_MAX_RANK], *lo[IR_MAX_RANK], *hi[IR_MAX_RANK], *merged[IR_MAX_RANK], *cut[IR_MAX_RANK];
    int64_t steps[IR_MAX_RANK];
    int at = 0, rank = x->type.rank;
    for (int i = 0; i < rank; i++) {
        bool spatial = i >= 1 && i <= n;
        split[at] = x->type.dims[i], lo[at] = hi[at] = zero, at++;
        steps[i] = 1;
        merged[i] = cut[i] = x->type.dims[i];
        if (!spatial) continue;
        split[at] = one, lo[at] = zero, hi[at] = dim_const(dc, strides[i - 1] - 1), at++;
        merged[i] = dim_mulc(dc, x->type.dims[i], strides[i - 1]);
        cut[i] = dim_addc(dc, merged[i], 1 - strides[i - 1]);
    }
    x = ir_build_reshape(&l->b, x, at, split);
    if (!x) return NULL;
    struct ir_attr attrs[] = {ir_a_dims("lo", at, lo), ir_a_dims("hi", at, hi)};
    struct ir_op *pad = ir_build(&l->b, IR_OP_PAD, 1, &x, 2, attrs, 1);
    x = pad ? ir_build_reshape(&l->b, &pad->results[0], rank, merged) : NULL;
    for (int i = 0; i < rank; i++) lo[i] = zero;
    return x ? ir_build_slice(&l->b, x, lo, steps, cut) : NULL;
}

/*
 * Kernel as large as the stride and no padding: no two taps meet, so it is a matmul over pixels whose columns (taps,
 * channels) are then put side by side.
 */
static struct ir_value *deconv_apart(struct layout *l, struct ir_op *op, struct ir_value *x, int n, const int64_t *strides)
{
    struct dim_ctx *dc = l->m->dims;
    struct ir_value *w = ir_operand(op, 1);
    int rank = x->type.rank;
    int64_t wperm[IR_MAX_RANK], perm[IR_MAX_RANK];
    const struct dim *flat[2] = {w->type.dims[0], dim_const(dc, 1)}, *wide[IR_MAX_RANK], *out[IR_MAX_RANK];
    for (int i = 0; i < rank; i++) wperm[i] = i == 0 ? 0 : i < rank - 1 ? i + 1 : 1; /* C, K.., O */
    for (int i = 1; i < rank; i++) flat[1] = dim_mul(dc, flat[1], w->type.dims[i]);
    w = ir_build_transpose(&l->b, w, wperm);
    w = w ? ir_build_reshape(&l->b, w, 2, flat) : NULL;
    struct ir_value *y = w ? ir_build_matmul(&l->b, x, w, false, false, DT_NONE) : NULL; /* [N, D.., (K.., O)] */
    int at = 0;
    for (int i = 0; i <= n; i++) wide[at++] = x->type.dims[i];
    for (int i = 0; i < n; i++) wide[at++] = dim_const(dc, strides[i]);
    wide[at++] = ir_operand(op, 1)->type.dims[1];
    y = y ? ir_build_reshape(&l->b, y, at, wide) : NULL;
    perm[0] = 0, perm[2 * n + 1] = 2 * n + 1;
    for (int i = 0; i < n; i++) perm[1 + 2 * i] = 1 + i, perm[2 + 2 * i] = 1 + n + i;
    y = y ? ir_build_transpose(&l->b, y, perm) : NULL;
    out[0] = x->type.dims[0], out[rank - 1] = wide[at - 1];
    for (int i = 0; i < n; i++) out[1 + i] = dim_mulc(dc, x->type.dims[1 + i], strides[i]);
    return y ? ir_build_reshape(&l->b, y, rank, out) : NULL;
}

/* An ordinary convolution over x with zeros between its pixels, padded so that the output has the wanted size. */
static struct ir_value *deconv_general(struct layout *l, struct ir_op *op, struct ir_value *x, int n, const int64_t *strides,
                                       const int64_t *dilations, const struct dim *const *pads)
{
    struct dim_ctx *dc = l->m->dims;
    int unused, rank = x->type.rank;
    const struct dim *const *output = ir_attr_dims(op, "output", &unused), *lo[IR_MAX_RANK], *hi[IR_MAX_RANK];
    struct ir_value *w = flip_weights(l, ir_operand(op, 1));
    x = insert_zeros(l, x, n, strides);
    if (!w || !x) return NULL;
    for (int i = 0; i < rank; i++) lo[i] = hi[i] = dim_const(dc, 0);
    for (int i = 0; i < n; i++) {
        const struct dim *reach = dim_mulc(dc, dim_addc(dc, w->type.dims[2 + i], -1), dilations[i]);
        lo[1 + i] = dim_sub(dc, reach, pads[i]);
        hi[1 + i] = dim_sub(dc, dim_add(dc, output[i], reach), dim_add(dc, x->type.dims[1 + i], lo[1 + i]));
    }
    struct ir_attr pa[] = {ir_a_dims("lo", rank, lo), ir_a_dims("hi", rank, hi)};
    struct ir_op *pad = ir_build(&l->b, IR_OP_PAD, 1, &x, 2, pa, 1);
    if (!pad) return NULL;
    struct ir_value *operands[] = {&pad->results[0], w};
    struct ir_attr ca[] = {ir_a_ints("dilations", n, dilations), ir_a_int("channels_last", 1)};
    struct ir_op *c = ir_build(&l->b, IR_OP_CONV, 2, operands, 2, ca, 1);
    return c ? &c->results[0] : NULL;
}

static bool convert_conv_transpose(struct layout *l, struct ir_op *op)
{
    struct ir_value *x = ir_operand(op, 0), *w = ir_operand(op, 1);
    int n = x->type.rank - 2, unused;
    if (!dtype_is_float(x->type.dtype) || !ir_value_const(w) || ir_attr_int(op, "groups", 1) != 1 || n > 3) return false;
    const int64_t *s = ir_attr_ints(op, "strides", &unused), *d = ir_attr_ints(op, "dilations", &unused);
    const struct dim *const *p = ir_attr_dims(op, "pads", &unused), *const *output = ir_attr_dims(op, "output", &unused), *pads[IR_MAX_RANK];
    int64_t strides[IR_MAX_RANK], dilations[IR_MAX_RANK];
    bool apart = true;
    for (int i = 0; i < n; i++) {
        strides[i] = s ? s[i] : 1, dilations[i] = d ? d[i] : 1;
        pads[i] = p ? p[i] : dim_const(l->m->dims, 0);
        apart = apart && dim_is(w->type.dims[2 + i], strides[i]) && dilations[i] == 1 && dim_is(pads[i], 0) &&
                output[i] == dim_mulc(l->m->dims, x->type.dims[2 + i], strides[i]);
        if (x->type.dims[2 + i]->lo < 1) return false; /* (H - 1) s + 1 has no meaning for no pixels */
    }
    struct ir_value *t = get_twin(l, x, x->type.rank);
    struct ir_value *y = apart ? deconv_apart(l, op, t, n, strides) : deconv_general(l, op, t, n, strides, dilations, pads);
    if (y && ir_operand(op, 2)) y = ir_build_binary(&l->b, IR_OP_ADD, y, ir_operand(op, 2));
    if (!y) return false;
    replace(l, op, 0, y);
    return true;
}

static bool convert_pool(struct layout *l, struct ir_op *op)
{
    struct ir_value *x = ir_operand(op, 0);
    if (op->n_results == 2 && op->results[1].uses) return false; /* flat indices count in the original order */
    struct ir_value *t = get_twin(l, x, x->type.rank);
    struct ir_attr attrs[12];
    int n = 0;
    for (int i = 0; i < op->n_attrs && n < 11; i++) attrs[n++] = op->attrs[i];
    attrs[n++] = ir_a_int("channels_last", 1);
    struct ir_op *p = ir_build(&l->b, op->code, 1, &t, n, attrs, op->n_results);
    if (!p) return false;
    replace(l, op, 0, &p->results[0]);
    return true;
}

/* ---- carrying twins on ---- */

static bool one_element(const struct ir_type *t)
{
    for (int i = 0; i < t->rank; i++)
        if (!dim_is(t->dims[i], 1)) return false;
    return true;
}

static bool has_twin_operand(struct layout *l, const struct ir_op *op)
{
    for (int i = 0; i < op->n_operands; i++) {
        struct ir_value *t = find_twin(l, ir_operand(op, i));
        if (t && t->type.rank == op->results[0].type.rank && !(t->def && t->def->code == IR_OP_TRANSPOSE)) return true;
    }
    return false;
}

/* Same op on twins; attrs already in channels-last order. */
static bool rebuild(struct layout *l, struct ir_op *op, int n_attrs, const struct ir_attr *attrs)
{
    int rank = op->results[0].type.rank, n = op->n_operands;
    struct ir_value **t = ARENA_ARRAY(&l->scratch, struct ir_value *, n);
    for (int i = 0; i < n; i++) {
        struct ir_value *v = ir_operand(op, i);
        bool as_is = !v || one_element(&v->type) || (op->code == IR_OP_PAD && i == 1);
        t[i] = as_is ? v : get_twin(l, v, rank);
        if (v && !t[i]) return false;
    }
    struct ir_op *c = ir_build(&l->b, op->code, n, t, n_attrs, attrs, op->n_results);
    if (!c) return false;
    replace(l, op, 0, &c->results[0]);
    return true;
}

/* Attributes with one entry an axis, or two blocks of them, go to the other order; `axis` too. */
static int permuted_attrs(struct layout *l, const struct ir_op *op, struct ir_attr *out)
{
    int rank = op->results[0].type.rank;
    for (int i = 0; i < op->n_attrs; i++) {
        struct ir_attr a = op->attrs[i];
        if (!strcmp(a.name, "axis")) a.i = last_axis_of((int)a.i, rank);
        bool list = a.kind == IR_ATTR_DIMS || a.kind == IR_ATTR_INTS || a.kind == IR_ATTR_FLOATS;
        if (list && a.count && a.count % rank == 0 && strcmp(a.name, "axes")) {
            int64_t *buf = ARENA_ARRAY(&l->scratch, int64_t, a.count); /* all three element types are 8 bytes */
            for (int k = 0; k < a.count; k++) {
                int to = k / rank * rank + last_axis_of(k % rank, rank);
                memcpy(&buf[to], (const char *)a.ints + (size_t)k * 8, 8);
            }
            a.ints = buf;
        } else if (list && !strcmp(a.name, "axes")) {
            int64_t *buf = ARENA_ARRAY(&l->scratch, int64_t, a.count);
            for (int k = 0; k < a.count; k++) buf[k] = last_axis_of((int)a.ints[k], rank);
            for (int k = 1; k < a.count; k++) /* axes ascend */
                for (int j = k; j > 0 && buf[j - 1] > buf[j]; j--) {
                    int64_t x = buf[j];
                    buf[j] = buf[j - 1], buf[j - 1] = x;
                }
            a.ints = buf;
        }
        out[i] = a;
    }
    return op->n_attrs;
}

static bool convert_reduce(struct layout *l, struct ir_op *op)
{
    struct ir_value *x = ir_operand(op, 0), *t = find_twin(l, x);
    if (!t || (t->def && t->def->code == IR_OP_TRANSPOSE)) return false;
    int rank = x->type.rank, n;
    const int64_t *axes = ir_attr_ints(op, "axes", &n);
    int64_t mapped[IR_MAX_RANK];
    bool channels = false;
    for (int i = 0; i < n; i++) channels = channels || axes[i] == 1;
    int k = 0;
    for (int a = 0; a < rank; a++) /* ascending in the new order */
        for (int i = 0; i < n; i++)
            if (last_axis_of((int)axes[i], rank) == a) mapped[k++] = a;
    if (ir_attr_int(op, "keepdims", 0)) {
        struct ir_value *r = ir_build_reduce(&l->b, op->code, t, n, mapped, true);
        if (r) replace(l, op, 0, r);
        return r != NULL;
    }
    if (channels || n != rank - 2) return false; /* what is left is [N, C] in both orders */
    for (int i = 0; i < n; i++)
        if (axes[i] < 2) return false;
    struct ir_value *r = ir_build_reduce(&l->b, op->code, t, n, mapped, false);
    if (r) ir_value_replace_uses(&op->results[0], r);
    return r != NULL;
}

/* v's twin when it was computed channels-last: no mere transpose. */
static struct ir_value *computed_twin(struct layout *l, const struct ir_value *v)
{
    struct ir_value *t = find_twin(l, v);
    return t && t->type.rank == v->type.rank && !(t->def && t->def->code == IR_OP_TRANSPOSE) ? t : NULL;
}

/* [N, C, D..] -> [N, C, E..]: images and channels stay what they are, so the twin's pixels are reshaped. */
static struct ir_value *reshape_pixels(struct layout *l, const struct ir_value *x, const struct ir_type *to)
{
    struct ir_value *t = computed_twin(l, x);
    if (!t || to->rank < 3 || to->dims[0] != x->type.dims[0] || to->dims[1] != x->type.dims[1]) return NULL;
    const struct dim *dims[IR_MAX_RANK];
    for (int i = 0; i < to->rank; i++) dims[last_axis_of(i, to->rank)] = to->dims[i];
    return ir_build_reshape(&l->b, t, to->rank, dims);
}

/*
 * The channel shuffle [N, C, D..] -> [N, a, b, D..] -> [N, b, a, D..] -> [N, C, D..], seen at its last reshape: a
 * transpose of the twin's last axis, split in two.
 */
static struct ir_value *shuffle_channels(struct layout *l, const struct ir_value *swapped, const struct ir_type *to)
{
    const struct ir_op *swap = swapped->def, *split = swap && swap->code == IR_OP_TRANSPOSE ? ir_operand(swap, 0)->def : NULL;
    int rank = to->rank, n;
    if (!split || split->code != IR_OP_RESHAPE || rank < 3 || rank == IR_MAX_RANK || swapped->type.rank != rank + 1) return NULL;
    const int64_t *perm = ir_attr_ints(swap, "perm", &n);
    for (int i = 0; i <= rank; i++)
        if (perm[i] != (i == 1 ? 2 : i == 2 ? 1 : i)) return NULL;
    const struct ir_value *x = ir_operand(split, 0);
    const struct dim *const *parts = split->results[0].type.dims;
    struct ir_value *t = computed_twin(l, x);
    if (!t || x->type.rank != rank || dim_mul(l->m->dims, parts[1], parts[2]) != x->type.dims[1]) return NULL;
    for (int i = 0; i < rank; i++)
        if (x->type.dims[i] != to->dims[i] || (i != 1 && parts[i ? i + 1 : 0] != to->dims[i])) return NULL;
    const struct dim *dims[IR_MAX_RANK];
    int64_t order[IR_MAX_RANK];
    for (int i = 0; i < rank - 1; i++) dims[i] = t->type.dims[i], order[i] = i;
    dims[rank - 1] = parts[1], dims[rank] = parts[2];
    order[rank - 1] = rank, order[rank] = rank - 1;
    struct ir_value *v = ir_build_reshape(&l->b, t, rank + 1, dims);
    v = v ? ir_build_transpose(&l->b, v, order) : NULL;
    return v ? ir_build_reshape(&l->b, v, rank, t->type.dims) : NULL;
}

static bool convert_reshape(struct layout *l, struct ir_op *op)
{
    const struct ir_type *to = &op->results[0].type;
    struct ir_value *v = reshape_pixels(l, ir_operand(op, 0), to);
    if (!v) v = shuffle_channels(l, ir_operand(op, 0), to);
    if (!v) return false;
    replace(l, op, 0, v);
    return true;
}

static bool convert(struct layout *l, struct ir_op *op)
{
    struct ir_attr attrs[24];
    if (op->n_attrs > 24) return false;
    switch (op->code) {
    case IR_OP_CONV: return !ir_attr_int(op, "channels_last", 0) && convert_conv(l, op);
    case IR_OP_CONV_TRANSPOSE: return convert_conv_transpose(l, op);
    case IR_OP_POOL_MAX: case IR_OP_POOL_AVG: case IR_OP_POOL_SUM:
        return !ir_attr_int(op, "channels_last", 0) && convert_pool(l, op);
    case IR_OP_REDUCE_SUM: case IR_OP_REDUCE_PROD: case IR_OP_REDUCE_MAX: case IR_OP_REDUCE_MIN: return convert_reduce(l, op);
    case IR_OP_RESHAPE: return convert_reshape(l, op);
    case IR_OP_CONCAT: case IR_OP_PAD: case IR_OP_SLICE: case IR_OP_RESIZE: case IR_OP_SOFTMAX: case IR_OP_LOG_SOFTMAX:
        return has_twin_operand(l, op) && rebuild(l, op, permuted_attrs(l, op, attrs), attrs);
    default: break;
    }
    if (!(ir_op_traits(op) & IR_T_PW) || op->results[0].type.rank < 3 || !has_twin_operand(l, op)) return false;
    return rebuild(l, op, op->n_attrs, op->attrs);
}

static void run_block(struct layout *l, struct ir_block *b)
{
    for (struct ir_op *op = b->first, *next; op; op = next) {
        next = op->next;
        for (int r = 0; r < op->n_regions; r++) { /* a branch's twins are not defined outside it */
            struct map outer = l->twins;
            map_init(&l->twins, &l->scratch);
            run_block(l, op->regions[r]);
            l->twins = outer;
        }
        if (op->n_regions || (ir_op_traits(op) & IR_T_TERM)) continue;
        l->b.block = b, l->b.before = op, l->b.loc = op->loc;
        if (convert(l, op)) ir_op_erase(op);
    }
}

bool pass_layout(struct ir_module *m, struct diag_sink *diag)
{
    struct layout l = {.m = m, .b = {.m = m}};
    size_t errors = diag->error_count;
    arena_init(&l.scratch);
    map_init(&l.twins, &l.scratch);
    for (size_t i = 0; i < m->funcs.n; i++) run_block(&l, m->funcs.v[i]->body);
    arena_deinit(&l.scratch);
    return diag->error_count == errors;
}
