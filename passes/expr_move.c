// SPDX-License-Identifier: Apache-2.0
/* Indexed expressions of the ops that move elements. */
#include <string.h>

#include "passes/expr.h"

struct lp_value *expr_reshape(struct expr_ctx *c, const struct ir_op *op, int r, struct lp_value *const *idx)
{
    (void)r;
    const struct ir_value *x = ir_operand(op, 0);
    const struct ir_type *t = &op->results[0].type, *s = &x->type;
    struct lp_value *sub[IR_MAX_RANK];
    /* Leading and trailing axes that agree keep their coordinates; only the middle is renumbered. */
    int head = 0, tail = 0;
    while (head < t->rank && head < s->rank && t->dims[head] == s->dims[head]) head++;
    while (tail < t->rank - head && tail < s->rank - head && t->dims[t->rank - 1 - tail] == s->dims[s->rank - 1 - tail])
        tail++;
    for (int i = 0; i < head; i++) sub[i] = idx[i];
    for (int i = 0; i < tail; i++) sub[s->rank - 1 - i] = idx[t->rank - 1 - i];
    struct lp_value *lin = expr_linear(c, t->rank - head - tail, t->dims + head, idx + head);
    expr_delinear(c, lin, s->rank - head - tail, s->dims + head, sub + head);
    return expr_at(c, x, sub);
}

struct lp_value *expr_transpose(struct expr_ctx *c, const struct ir_op *op, int r, struct lp_value *const *idx)
{
    (void)r;
    int n;
    const int64_t *perm = ir_attr_ints(op, "perm", &n);
    struct lp_value *sub[IR_MAX_RANK];
    for (int i = 0; i < n; i++) sub[perm[i]] = idx[i];
    return expr_at(c, ir_operand(op, 0), sub);
}

struct lp_value *expr_broadcast(struct expr_ctx *c, const struct ir_op *op, int r, struct lp_value *const *idx)
{
    (void)r;
    const struct ir_type *t = &op->results[0].type;
    struct lp_value *sub[IR_MAX_RANK];
    expr_broadcast_idx(c, &ir_operand(op, 0)->type, t->rank, t->dims, idx, sub);
    return expr_at(c, ir_operand(op, 0), sub);
}

struct lp_value *expr_slice(struct expr_ctx *c, const struct ir_op *op, int r, struct lp_value *const *idx)
{
    (void)r;
    int n;
    const struct dim *const *starts = ir_attr_dims(op, "starts", &n);
    const int64_t *steps = ir_attr_ints(op, "steps", &n);
    struct lp_value *sub[IR_MAX_RANK];
    for (int i = 0; i < n; i++)
        sub[i] = expr_iadd(c, expr_dim(c, starts[i]), expr_imul(c, idx[i], steps[i] == 1 ? c->one : lp_index(&c->b, steps[i])));
    return expr_at(c, ir_operand(op, 0), sub);
}

/* Source coordinate of a padded one along an axis of size d, for the modes that copy elements. */
static struct lp_value *pad_source(struct expr_ctx *c, const char *mode, struct lp_value *x, const struct dim *d)
{
    struct lp_builder *b = &c->b;
    if (!strcmp(mode, "edge")) return expr_clamp(c, x, d);
    if (!strcmp(mode, "wrap")) return lp_binary(b, LP_OP_MOD, x, expr_dim(c, d));
    /* reflect without repeating the edge; pads are below d, so that one turn at each end does */
    struct lp_value *twice = lp_dim(b, dim_mulc(c->m->dims, dim_addc(c->m->dims, d, -1), 2));
    x = lp_binary(b, LP_OP_MAX, x, lp_binary(b, LP_OP_SUB, c->zero, x));
    return expr_clamp(c, lp_binary(b, LP_OP_MIN, x, lp_binary(b, LP_OP_SUB, twice, x)), d);
}

struct lp_value *expr_pad(struct expr_ctx *c, const struct ir_op *op, int r, struct lp_value *const *idx)
{
    (void)r;
    struct lp_builder *b = &c->b;
    const struct ir_value *x = ir_operand(op, 0), *fill = ir_operand(op, 1);
    const char *mode = ir_attr_string(op, "mode", "constant");
    int n;
    const struct dim *const *lo = ir_attr_dims(op, "lo", &n), *const *hi = ir_attr_dims(op, "hi", &n);
    struct lp_value *sub[IR_MAX_RANK], *inside = NULL;
    bool constant = !strcmp(mode, "constant");
    for (int i = 0; i < n; i++) {
        if (dim_is(lo[i], 0) && dim_is(hi[i], 0)) {
            sub[i] = idx[i];
            continue;
        }
        struct lp_value *p = lp_binary(b, LP_OP_SUB, idx[i], expr_dim(c, lo[i]));
        if (!constant) {
            sub[i] = pad_source(c, mode, p, x->type.dims[i]);
            continue;
        }
        struct lp_value *in = expr_in_bounds(c, p, x->type.dims[i]);
        inside = inside ? lp_binary(b, LP_OP_AND, inside, in) : in;
        sub[i] = expr_clamp(c, p, x->type.dims[i]);
    }
    if (!inside) return expr_at(c, x, sub);
    struct lp_value *other;
    if (fill) {
        struct lp_value *fidx[IR_MAX_RANK];
        for (int i = 0; i < fill->type.rank; i++) fidx[i] = c->zero;
        other = expr_at(c, fill, fidx);
    } else {
        struct lp_type t = lp_scalar(x->type.dtype);
        other = dtype_is_float(t.dtype) ? lp_const_f(b, t, 0) : lp_const_i(b, t, 0);
    }
    /* An operand that may be empty must not be read at its clamped coordinate: guard the load. */
    bool may_be_empty = false;
    for (int i = 0; i < n; i++) may_be_empty = may_be_empty || x->type.dims[i]->lo < 1;
    if (!may_be_empty) return lp_select(b, inside, expr_at(c, x, sub), other);
    struct lp_type t = other->type;
    struct lp_op *branch = lp_if_begin(b, inside, 1, &t);
    size_t mark = expr_scope_push(c);
    struct lp_value *v = expr_at(c, x, sub);
    expr_scope_pop(c, mark);
    lp_if_else(b, branch, &v);
    lp_if_end(b, branch, &other);
    return branch->results[0];
}

struct lp_value *expr_concat(struct expr_ctx *c, const struct ir_op *op, int r, struct lp_value *const *idx)
{
    (void)r;
    struct lp_builder *b = &c->b;
    int axis = (int)ir_attr_int(op, "axis", 0), rank = op->results[0].type.rank;
    const struct dim *start = dim_const(c->m->dims, 0);
    struct lp_value *result = NULL;
    /* Operands with an empty axis give nothing; the others are read at a clamped coordinate and selected. */
    for (int i = 0; i < op->n_operands; i++) {
        const struct ir_value *x = ir_operand(op, i);
        const struct dim *d = x->type.dims[axis];
        if (dim_is(d, 0)) continue;
        struct lp_value *sub[IR_MAX_RANK];
        if (rank) memcpy(sub, idx, (size_t)rank * sizeof *idx);
        struct lp_value *p = lp_binary(b, LP_OP_SUB, idx[axis], expr_dim(c, start));
        sub[axis] = expr_clamp(c, p, d);
        struct lp_value *v;
        if (d->lo < 1) { /* may be empty at run time: never read it then */
            struct lp_type t = lp_scalar(x->type.dtype);
            struct lp_op *branch = lp_if_begin(b, expr_in_bounds(c, p, d), 1, &t);
            size_t mark = expr_scope_push(c);
            v = expr_at(c, x, sub);
            expr_scope_pop(c, mark);
            lp_if_else(b, branch, &v);
            struct lp_value *other = result;
            if (!other) other = dtype_is_float(t.dtype) ? lp_const_f(b, t, 0) : lp_const_i(b, t, 0);
            lp_if_end(b, branch, &other);
            result = branch->results[0];
        } else {
            v = expr_at(c, x, sub);
            result = result ? lp_select(b, lp_binary(b, LP_OP_GE, p, c->zero), v, result) : v;
        }
        start = dim_add(c->m->dims, start, d);
    }
    if (result) return result;
    struct lp_type t = lp_scalar(op->results[0].type.dtype);
    return dtype_is_float(t.dtype) ? lp_const_f(b, t, 0) : lp_const_i(b, t, 0);
}

/* Provably no element of v is below 0: index arithmetic from iota and sizes. */
static bool never_negative(const struct ir_value *v, int depth)
{
    const struct ir_op *op = v->def;
    int n;
    if (!op || depth == 0) return false;
    switch (op->code) {
    case IR_OP_IOTA: return true;
    case IR_OP_CONSTANT: {
        const struct ir_const *k = ir_attr_const(op, "value");
        int64_t i;
        return (k->splat || k->n_bytes == dtype_bytes(k->type.dtype)) && dtype_is_int(k->type.dtype) && ir_const_get_int(k, 0, &i) && i >= 0;
    }
    case IR_OP_DIMVEC: {
        const struct dim *const *d = ir_attr_dims(op, "dims", &n);
        for (int i = 0; i < n; i++)
            if (d[i]->lo < 0) return false;
        return true;
    }
    case IR_OP_ADD: case IR_OP_MUL: case IR_OP_MIN: case IR_OP_DIV: case IR_OP_REM: /* of sizes: far from overflow */
        return never_negative(ir_operand(op, 0), depth - 1) && never_negative(ir_operand(op, 1), depth - 1);
    case IR_OP_BROADCAST: case IR_OP_RESHAPE: case IR_OP_TRANSPOSE: case IR_OP_SLICE: return never_negative(ir_operand(op, 0), depth - 1);
    default: return false;
    }
}

struct lp_value *expr_gather(struct expr_ctx *c, const struct ir_op *op, int r, struct lp_value *const *idx)
{
    (void)r;
    const struct ir_value *x = ir_operand(op, 0), *indices = ir_operand(op, 1);
    int axis = (int)ir_attr_int(op, "axis", 0), q = indices->type.rank;
    struct lp_value *sub[IR_MAX_RANK];
    for (int i = 0; i < axis; i++) sub[i] = idx[i];
    struct lp_value *at = expr_at(c, indices, idx + axis);
    if (never_negative(indices, 8)) sub[axis] = expr_clamp(c, lp_cast(&c->b, at, DT_I64), x->type.dims[axis]);
    else sub[axis] = expr_wrap_index(c, at, x->type.dims[axis]);
    for (int i = axis + 1; i < x->type.rank; i++) sub[i] = idx[i + q - 1];
    return expr_at(c, x, sub);
}

struct lp_value *expr_gather_elements(struct expr_ctx *c, const struct ir_op *op, int r, struct lp_value *const *idx)
{
    (void)r;
    const struct ir_value *x = ir_operand(op, 0);
    int axis = (int)ir_attr_int(op, "axis", 0);
    struct lp_value *sub[IR_MAX_RANK];
    memcpy(sub, idx, (size_t)x->type.rank * sizeof *idx);
    sub[axis] = expr_wrap_index(c, expr_at(c, ir_operand(op, 1), idx), x->type.dims[axis]);
    return expr_at(c, x, sub);
}

struct lp_value *expr_gather_nd(struct expr_ctx *c, const struct ir_op *op, int r, struct lp_value *const *idx)
{
    (void)r;
    const struct ir_value *x = ir_operand(op, 0), *indices = ir_operand(op, 1);
    int batch = (int)ir_attr_int(op, "batch_dims", 0), q = indices->type.rank;
    int64_t depth = indices->type.dims[q - 1]->value; /* constant: infer requires it */
    struct lp_value *sub[IR_MAX_RANK], *at[IR_MAX_RANK];
    for (int i = 0; i < batch; i++) sub[i] = idx[i];
    for (int i = 0; i < q - 1; i++) at[i] = idx[i];
    for (int64_t i = 0; i < depth; i++) {
        at[q - 1] = i == 0 ? c->zero : lp_index(&c->b, i);
        sub[batch + i] = expr_wrap_index(c, expr_at(c, indices, at), x->type.dims[batch + i]);
    }
    for (int i = batch + (int)depth; i < x->type.rank; i++) sub[i] = idx[q - 1 + i - batch - (int)depth];
    return expr_at(c, x, sub);
}

struct lp_value *expr_reverse_sequence(struct expr_ctx *c, const struct ir_op *op, int r, struct lp_value *const *idx)
{
    (void)r;
    struct lp_builder *b = &c->b;
    const struct ir_value *x = ir_operand(op, 0);
    int ta = (int)ir_attr_int(op, "time_axis", 0), ba = (int)ir_attr_int(op, "batch_axis", 1);
    struct lp_value *sub[IR_MAX_RANK], *lens_idx[1] = {idx[ba]};
    memcpy(sub, idx, (size_t)x->type.rank * sizeof *idx);
    struct lp_value *len = lp_cast(b, expr_at(c, ir_operand(op, 1), lens_idx), DT_I64);
    struct lp_value *mirror = lp_binary(b, LP_OP_SUB, lp_binary(b, LP_OP_SUB, len, c->one), idx[ta]);
    sub[ta] = lp_select(b, lp_binary(b, LP_OP_LT, idx[ta], len), mirror, idx[ta]);
    sub[ta] = expr_clamp(c, sub[ta], x->type.dims[ta]);
    return expr_at(c, x, sub);
}

/* Element e of row i of an encoded constant, from its parts: product and sum each rounded, as the format's decoder does. */
struct lp_value *expr_qgather(struct expr_ctx *c, const struct ir_op *op, int r, struct lp_value *const *idx)
{
    (void)r;
    struct lp_builder *b = &c->b;
    const struct ir_value *q = ir_operand(op, 1), *scale = ir_operand(op, 2), *min = ir_operand(op, 3);
    int rank = op->results[0].type.rank;
    bool nibbles = ir_attr_int(op, "nibbles", 0);
    int64_t zero = ir_attr_int(op, "zero", 0), stored = q->type.dims[2]->value, group = nibbles ? 2 * stored : stored;
    const struct dim *n = dim_const(c->m->dims, ir_attr_int(op, "n", 1));
    struct lp_value *row = expr_wrap_index(c, expr_at(c, ir_operand(op, 0), idx), n), *e = idx[rank - 1], *at[4];
    at[0] = lp_binary(b, LP_OP_FLOORDIV, row, lp_index(b, 64)), at[3] = lp_binary(b, LP_OP_MOD, row, lp_index(b, 64));
    at[1] = lp_binary(b, LP_OP_FLOORDIV, e, lp_index(b, group));
    struct lp_value *k = lp_binary(b, LP_OP_MOD, e, lp_index(b, group)), *v;
    at[2] = nibbles ? lp_binary(b, LP_OP_FLOORDIV, k, lp_index(b, 2)) : k;
    v = expr_at(c, q, at);
    if (nibbles) {
        struct lp_type t = lp_scalar(DT_U8);
        struct lp_value *odd = lp_binary(b, LP_OP_NE, lp_binary(b, LP_OP_MOD, k, lp_index(b, 2)), c->zero);
        v = lp_select(b, odd, lp_binary(b, LP_OP_SHR, v, lp_const_i(b, t, 4)), lp_binary(b, LP_OP_AND, v, lp_const_i(b, t, 15)));
    }
    v = lp_cast(b, v, DT_F32);
    if (zero) v = lp_binary(b, LP_OP_SUB, v, lp_const_f(b, lp_scalar(DT_F32), (double)zero));
    struct lp_value *group_at[3] = {at[0], at[1], at[3]};
    if (scale) v = lp_binary(b, LP_OP_MUL, v, lp_cast(b, expr_at(c, scale, group_at), DT_F32));
    if (min) v = lp_binary(b, LP_OP_ADD, v, lp_cast(b, expr_at(c, min, group_at), DT_F32));
    return v;
}
