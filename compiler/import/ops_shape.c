// SPDX-License-Identifier: Apache-2.0
/* Shapes: Shape, Size, Reshape, Flatten, Squeeze, Unsqueeze, Transpose, Expand, Tile, Concat,
 * Split, space and depth. */
#include <string.h>

#include "compiler/import/onnx_int.h"

bool onnx_shape(struct onode *n)
{
    struct ir_value *x = on_in(n, 0);
    int64_t rank = rank_of(x), start = at_int(n, "start", 0), end = at_int(n, "end", rank);
    start = start < 0 ? start + rank : start;
    end = end < 0 ? end + rank : end;
    start = start < 0 ? 0 : start > rank ? rank : start;
    end = end < start ? start : end > rank ? rank : end;
    return on_out(n, 0, ir_build_dimvec(n->b, (int)(end - start), x->type.dims + start, false));
}

bool onnx_size(struct onode *n)
{
    const struct dim *d = e_size(n, on_in(n, 0), 0, rank_of(on_in(n, 0)));
    return on_out(n, 0, ir_build_dimvec(n->b, 1, &d, true));
}

/* The dim that -1 stands for. */
static const struct dim *inferred_dim(struct onode *n, const struct dim *total,
                                      const struct dim *rest)
{
    if (dim_is(rest, 0)) {
        on_fail(n, DIAG_SHAPE_MISMATCH, "Reshape with -1 and a dim of 0");
        return NULL;
    }
    const struct dim *q = dim_exact_div(n->d, total, rest);
    if (q) return q;
    if (dim_is_const(total) && dim_is_const(rest)) {
        on_fail(n, DIAG_SHAPE_MISMATCH, "Reshape: %lld elements do not divide by %lld",
                (long long)total->value, (long long)rest->value);
        return NULL;
    }
    if (rest->lo < 1) {
        on_fail(n, DIAG_ONNX_DYNAMIC, "Reshape: the size that -1 stands for cannot be determined");
        return NULL;
    }
    return dim_floordiv(n->d, total, rest);
}

bool onnx_reshape(struct onode *n)
{
    struct ir_value *x = on_in(n, 0);
    int rank, infer = -1;
    const struct dim *const *want = on_dims(n, 1, &rank);
    bool allow_zero = at_int(n, "allowzero", 0);
    if (!want) return false;
    if (rank > IR_MAX_RANK) return on_fail(n, DIAG_ONNX_LIMIT, "more than %d dims", IR_MAX_RANK);
    const struct dim *dims[IR_MAX_RANK], *rest = dim_const(n->d, 1), *total = dim_const(n->d, 1);
    bool copied[IR_MAX_RANK] = {
        0}; /* dims taken over: they cancel on both sides, even when they may be 0 */
    for (int i = 0; i < rank; i++) {
        dims[i] = want[i];
        if (dim_is(want[i], -1)) {
            if (infer >= 0) return on_fail(n, DIAG_SHAPE_MISMATCH, "Reshape with two dims of -1");
            infer = i;
            continue;
        }
        if (dim_is(want[i], 0) && !allow_zero) {
            if (i >= rank_of(x))
                return on_fail(n, DIAG_SHAPE_MISMATCH,
                               "Reshape copies dim %d of a tensor of rank %d", i, rank_of(x));
            dims[i] = dim_of(x, i);
            copied[i] = true;
            continue;
        }
        if (want[i]->hi < 0) return on_fail(n, DIAG_SHAPE_MISMATCH, "Reshape to a negative dim");
        rest = dim_mul(n->d, rest, dims[i]);
    }
    if (infer >= 0) {
        for (int i = 0; i < rank_of(x); i++)
            if (i >= rank || !copied[i]) total = dim_mul(n->d, total, dim_of(x, i));
        if (!(dims[infer] = inferred_dim(n, total, rest))) return false;
    }
    return on_out(n, 0, e_reshape(n, x, rank, dims));
}

bool onnx_flatten(struct onode *n)
{
    struct ir_value *x = on_in(n, 0);
    int axis;
    if (!on_axis(n, at_int(n, "axis", 1), rank_of(x), true, &axis)) return false;
    const struct dim *two[2] = {e_size(n, x, 0, axis), e_size(n, x, axis, rank_of(x))};
    return on_out(n, 0, e_reshape(n, x, 2, two));
}

bool onnx_squeeze(struct onode *n)
{
    struct ir_value *x = on_in(n, 0);
    int64_t axes[IR_MAX_RANK];
    int count, r = 0;
    bool given;
    if (!on_axes(n, 13, 1, rank_of(x), &count, axes, &given)) return false;
    const struct dim *dims[IR_MAX_RANK];
    for (int i = 0, a = 0; i < rank_of(x); i++) {
        const struct dim *d = dim_of(x, i);
        if (given) {
            bool drop = a < count && axes[a] == i;
            if (!drop) dims[r++] = d;
            else if (!ir_require_equal(n->m, n->b->loc, d, dim_const(n->d, 1), "a squeezed dim"))
                return false;
            a += drop;
        } else if (!dim_is(d, 1)) {
            if (!dim_known_ne(n->d, d, dim_const(n->d, 1)))
                return on_fail(
                    n, DIAG_ONNX_DYNAMIC,
                    "Squeeze without axes: whether dim %d is 1 depends on the input's shape", i);
            dims[r++] = d;
        }
    }
    return on_out(n, 0, e_reshape(n, x, r, dims));
}

bool onnx_unsqueeze(struct onode *n)
{
    struct ir_value *x = on_in(n, 0);
    int count;
    const int64_t *axes = n->version >= 13 ? on_ints(n, 1, &count) : at_ints(n, "axes", &count);
    if (n->failed) return false;
    int rank = count > IR_MAX_RANK ? IR_MAX_RANK + 1 : rank_of(x) + count;
    if (rank > IR_MAX_RANK) return on_fail(n, DIAG_ONNX_LIMIT, "more than %d dims", IR_MAX_RANK);
    bool is_new[IR_MAX_RANK] = {0};
    for (int i = 0; i < count; i++) {
        int a;
        if (!on_axis(n, axes[i], rank, false, &a)) return false;
        if (is_new[a]) return on_fail(n, DIAG_ONNX_ATTR, "axis %d is given twice", a);
        is_new[a] = true;
    }
    const struct dim *dims[IR_MAX_RANK];
    for (int i = 0, from = 0; i < rank; i++)
        dims[i] = is_new[i] ? dim_const(n->d, 1) : dim_of(x, from++);
    return on_out(n, 0, e_reshape(n, x, rank, dims));
}

bool onnx_transpose(struct onode *n)
{
    struct ir_value *x = on_in(n, 0);
    int count, rank = rank_of(x);
    int64_t perm[IR_MAX_RANK];
    const int64_t *given = at_ints(n, "perm", &count);
    if (n->failed) return false;
    if (given && count != rank)
        return on_fail(n, DIAG_ONNX_ATTR, "perm has %d entries for rank %d", count, rank);
    unsigned seen = 0;
    for (int i = 0; i < rank; i++) {
        int a = rank - 1 - i;
        if (given && !on_axis(n, given[i], rank, false, &a)) return false;
        if (seen & 1u << a) return on_fail(n, DIAG_ONNX_ATTR, "perm names axis %d twice", a);
        seen |= 1u << a;
        perm[i] = a;
    }
    return on_out(n, 0, e_perm(n, x, perm));
}

/* Two-way broadcasting with a shape: a dim that is 1 on one side takes the other's. */
bool onnx_expand(struct onode *n)
{
    struct ir_value *x = on_in(n, 0);
    int count;
    const struct dim *const *want = on_dims(n, 1, &count);
    if (!want) return false;
    if (count > IR_MAX_RANK) return on_fail(n, DIAG_ONNX_LIMIT, "more than %d dims", IR_MAX_RANK);
    struct ir_type shape = ir_type_make(n->m, x->type.dtype, count, want);
    const struct dim *dims[IR_MAX_RANK];
    int rank;
    if (!ir_broadcast_dims(n->m, n->b->loc, &x->type, &shape, dims, &rank)) return false;
    return on_out(n, 0, e_broadcast(n, x, rank, dims));
}

bool onnx_tile(struct onode *n)
{
    struct ir_value *x = on_in(n, 0);
    int count, rank = rank_of(x), wide = 0;
    const struct dim *const *reps = on_dims(n, 1, &count);
    if (!reps) return false;
    if (count != rank)
        return on_fail(n, DIAG_SHAPE_MISMATCH, "Tile of rank %d with %d repeats", rank, count);
    const struct dim *in[2 * IR_MAX_RANK], *out[2 * IR_MAX_RANK], *flat[IR_MAX_RANK];
    for (int i = 0; i < rank; i++) {
        if (reps[i]->hi < 0) return on_fail(n, DIAG_SHAPE_MISMATCH, "Tile with a negative repeat");
        if (!dim_is(reps[i], 1)) {
            in[wide] = dim_const(n->d, 1);
            out[wide++] = reps[i];
        }
        in[wide] = out[wide] = dim_of(x, i);
        wide++;
        flat[i] = dim_mul(n->d, reps[i], dim_of(x, i));
    }
    if (wide > IR_MAX_RANK) return on_fail(n, DIAG_ONNX_LIMIT, "Tile of so many dims");
    if (wide == rank) return on_out(n, 0, x);
    return on_out(n, 0,
                  e_reshape(n, e_broadcast(n, e_reshape(n, x, wide, in), wide, out), rank, flat));
}

bool onnx_concat(struct onode *n)
{
    int axis;
    if (!at_has(n, "axis") && n->version >= 4)
        return on_fail(n, DIAG_ONNX_ATTR, "attribute 'axis' is missing");
    if (!on_axis(n, at_int(n, "axis", 1), rank_of(on_in(n, 0)), false, &axis)) return false;
    for (int i = 0; i < n->n_in; i++)
        if (!n->in[i]) return on_fail(n, DIAG_ONNX_INPUT, "Concat: input %d is missing", i);
    return on_out(n, 0, n->n_in == 1 ? on_in(n, 0) : ir_build_concat(n->b, n->n_in, n->in, axis));
}

/* Sizes of the parts: given, or chunks of ceil(size / parts) with a smaller last one (18), or equal
 * ones. */
static bool split_sizes(struct onode *n, const struct dim *size, int parts, const struct dim **out)
{
    int count = 0;
    const struct dim *const *given = NULL;
    if (n->version >= 13) {
        if (on_in(n, 1) && !(given = on_dims(n, 1, &count))) return false;
    } else {
        const int64_t *ints = at_ints(n, "split", &count);
        const struct dim **d = on_alloc(n, (size_t)count, sizeof *d);
        for (int i = 0; i < count; i++) d[i] = dim_const(n->d, ints[i]);
        given = ints ? d : NULL;
    }
    if (n->failed) return false;
    if (n->version >= 18) {
        int64_t num = at_int(n, "num_outputs", parts);
        if (num != parts)
            return on_fail(n, DIAG_ONNX_ATTR, "num_outputs is %lld, but the node has %d outputs",
                           (long long)num, parts);
    }
    if (given) {
        if (count != parts)
            return on_fail(n, DIAG_ONNX_ATTR, "%d sizes for %d outputs", count, parts);
        const struct dim *sum = dim_const(n->d, 0);
        for (int i = 0; i < parts; i++) {
            if (given[i]->hi < 0)
                return on_fail(n, DIAG_ONNX_ATTR, "a part of Split has a negative size");
            sum = dim_add(n->d, sum, out[i] = given[i]);
        }
        return ir_require_equal(n->m, n->b->loc, sum, size, "the sum of the parts");
    }
    const struct dim *chunk = dim_ceildiv(n->d, size, dim_const(n->d, parts)), *left = size;
    for (int i = 0; i < parts; i++) {
        out[i] =
            i + 1 < parts ? dim_max(n->d, dim_const(n->d, 0), dim_min(n->d, chunk, left)) : left;
        left = dim_sub(n->d, left, out[i]);
    }
    return true;
}

bool onnx_split(struct onode *n)
{
    struct ir_value *x = on_in(n, 0);
    int axis, parts = (int)n->p->n_output;
    if (!on_axis(n, at_int(n, "axis", 0), rank_of(x), false, &axis)) return false;
    if (parts > 4096) return on_fail(n, DIAG_ONNX_LIMIT, "Split into %d parts", parts);
    const struct dim **sizes = on_alloc(n, (size_t)parts, sizeof *sizes),
                     *start = dim_const(n->d, 0);
    if (parts == 0 || !split_sizes(n, dim_of(x, axis), parts, sizes)) return false;
    for (int i = 0; i < parts; i++) {
        if (on_wants_out(n, i) && !on_out(n, i, e_slice1(n, x, axis, start, sizes[i])))
            return false;
        start = dim_add(n->d, start, sizes[i]);
    }
    return true;
}

/* ---- space and depth ---- */

/* d / by; where only the call can tell that it divides, the reshape that follows checks it. */
static const struct dim *parts_of(struct onode *n, const struct dim *d, int64_t by)
{
    const struct dim *b = dim_const(n->d, by), *q = dim_exact_div(n->d, d, b);
    return q || dim_is_const(d) ? q : dim_floordiv(n->d, d, b);
}

bool onnx_depthtospace(struct onode *n)
{
    struct ir_value *x = on_in(n, 0);
    static const char *const names[] = {"DCR", "CRD"};
    int crd = at_choice(n, "mode", 0, 2, names);
    int64_t b = at_int(n, "blocksize", 0);
    if (crd < 0 || !on_rank(n, x, 4, 4, "the input")) return false;
    if (b < 1 || b > 1 << 15)
        return on_fail(n, DIAG_ONNX_ATTR, "attribute 'blocksize' is missing or out of range");
    const struct dim *bd = dim_const(n->d, b),
                     *c = parts_of(n, dim_of(x, 1), b * b);
    if (!c)
        return on_fail(n, DIAG_SHAPE_MISMATCH,
                       "DepthToSpace: channels do not divide by blocksize squared");
    const struct dim *dcr[6] = {dim_of(x, 0), bd, bd, c, dim_of(x, 2), dim_of(x, 3)};
    const struct dim *crd_dims[6] = {dim_of(x, 0), c, bd, bd, dim_of(x, 2), dim_of(x, 3)};
    static const int64_t dcr_perm[6] = {0, 3, 4, 1, 5, 2}, crd_perm[6] = {0, 1, 4, 2, 5, 3};
    struct ir_value *y =
        e_perm(n, e_reshape(n, x, 6, crd ? crd_dims : dcr), crd ? crd_perm : dcr_perm);
    const struct dim *out[4] = {dim_of(x, 0), c, dim_mulc(n->d, dim_of(x, 2), b),
                                dim_mulc(n->d, dim_of(x, 3), b)};
    return on_out(n, 0, e_reshape(n, y, 4, out));
}

bool onnx_spacetodepth(struct onode *n)
{
    struct ir_value *x = on_in(n, 0);
    static const char *const names[] = {"DCR", "CRD"};
    int crd = n->version >= 26 ? at_choice(n, "mode", 0, 2, names) : 0;
    int64_t b = at_int(n, "blocksize", 0);
    if (crd < 0 || !on_rank(n, x, 4, 4, "the input")) return false;
    if (b < 1 || b > 1 << 15)
        return on_fail(n, DIAG_ONNX_ATTR, "attribute 'blocksize' is missing or out of range");
    const struct dim *bd = dim_const(n->d, b), *h = parts_of(n, dim_of(x, 2), b),
                     *w = parts_of(n, dim_of(x, 3), b);
    if (!h || !w)
        return on_fail(n, DIAG_SHAPE_MISMATCH,
                       "SpaceToDepth: height and width do not divide by blocksize");
    const struct dim *split[6] = {dim_of(x, 0), dim_of(x, 1), h, bd, w, bd};
    static const int64_t dcr_perm[6] = {0, 3, 5, 1, 2, 4}, crd_perm[6] = {0, 1, 3, 5, 2, 4};
    struct ir_value *y = e_perm(n, e_reshape(n, x, 6, split), crd ? crd_perm : dcr_perm);
    const struct dim *out[4] = {dim_of(x, 0), dim_mulc(n->d, dim_of(x, 1), b * b), h, w};
    return on_out(n, 0, e_reshape(n, y, 4, out));
}
