// SPDX-License-Identifier: Apache-2.0
/* Elements of constants given as blocks (ir/blocks.h). */
#include "passes/blocks.h"
#include "passes/expr.h"

static struct lp_value *unit(struct expr_ctx *c, const struct ir_value *w, struct lp_value *const *at, struct lp_value *i, int64_t from)
{
    struct lp_builder *b = &c->b;
    struct lp_value *idx[3] = {at[0], at[1], from ? lp_binary(b, LP_OP_ADD, i, lp_index(b, from)) : i};
    return expr_at(c, w, idx);
}

static struct lp_value *block_float(struct expr_ctx *c, const struct ir_value *w, const struct blocks *d, struct lp_value *const *at,
                                    struct lp_value *lane, int64_t from)
{
    struct lp_builder *b = &c->b;
    struct lp_value *low = unit(c, w, at, lane, from);
    if (!d->wide) return lp_cast(b, lp_bitcast(b, low, DT_F16), DT_F32);
    struct lp_type u32 = lp_scalar(DT_U32);
    struct lp_value *high = lp_cast(b, unit(c, w, at, lane, from + BLOCKS_COLS), DT_U32);
    high = lp_binary(b, LP_OP_SHL, high, lp_const_i(b, u32, 16));
    return lp_bitcast(b, lp_binary(b, LP_OP_OR, lp_cast(b, low, DT_U32), high), DT_F32);
}

struct lp_value *expr_qgather_blocks(struct expr_ctx *c, const struct ir_op *op, int r, struct lp_value *const *idx)
{
    (void)r;
    struct lp_builder *b = &c->b;
    struct blocks d = blocks_of(op);
    const struct ir_value *w = ir_operand(op, 1);
    const struct dim *n = dim_const(c->m->dims, ir_attr_int(op, "n", 1));
    struct lp_value *row = expr_wrap_index(c, expr_at(c, ir_operand(op, 0), idx), n), *e = idx[op->results[0].type.rank - 1];
    struct lp_value *cols = lp_index(b, BLOCKS_COLS), *group = lp_index(b, d.group), *step = lp_index(b, blocks_step(&d)), *two = lp_index(b, 2);
    struct lp_value *at[2] = {lp_binary(b, LP_OP_FLOORDIV, row, cols), lp_binary(b, LP_OP_FLOORDIV, e, group)};
    struct lp_value *lane = lp_binary(b, LP_OP_MOD, row, cols), *k = lp_binary(b, LP_OP_MOD, e, group);
    /* unit ((k / step) * 32 + lane) * 2 + k % 2; field (k % step) / 2 of it */
    struct lp_value *i = lp_binary(b, LP_OP_ADD, lp_binary(b, LP_OP_MUL, lp_binary(b, LP_OP_FLOORDIV, k, step), cols), lane);
    i = lp_binary(b, LP_OP_ADD, lp_binary(b, LP_OP_MUL, i, two), lp_binary(b, LP_OP_MOD, k, two));
    struct lp_value *field = lp_binary(b, LP_OP_FLOORDIV, lp_binary(b, LP_OP_MOD, k, step), two);
    struct lp_value *u = lp_cast(b, unit(c, w, at, i, blocks_q_at(&d)), DT_I32), *v;
    struct lp_type i32 = lp_scalar(DT_I32);
    if (d.nibbles) {
        struct lp_value *by = lp_cast(b, lp_binary(b, LP_OP_MUL, field, lp_index(b, 4)), DT_I32);
        v = lp_binary(b, LP_OP_AND, lp_binary(b, LP_OP_SHR, u, by), lp_const_i(b, i32, 15));
        if (d.high) { /* from bit high * (k / 2) of the plane */
            struct lp_value *pair = lp_binary(b, LP_OP_FLOORDIV, k, two), *at_high = lp_binary(b, LP_OP_ADD, lp_binary(b, LP_OP_MUL, lane, two), lp_binary(b, LP_OP_MOD, k, two));
            struct lp_value *plane = lp_cast(b, unit(c, w, at, at_high, blocks_high_at(&d)), DT_I32);
            struct lp_value *high = lp_binary(b, LP_OP_SHR, plane, lp_cast(b, lp_binary(b, LP_OP_MUL, pair, lp_index(b, d.high)), DT_I32));
            high = lp_binary(b, LP_OP_AND, high, lp_const_i(b, i32, (1 << d.high) - 1));
            v = lp_binary(b, LP_OP_OR, v, lp_binary(b, LP_OP_SHL, high, lp_const_i(b, i32, 4)));
        }
        if (d.zero) v = lp_binary(b, LP_OP_SUB, v, lp_const_i(b, i32, d.zero));
    } else { /* the byte to the top, and down again with its sign */
        struct lp_value *by = lp_cast(b, lp_binary(b, LP_OP_SUB, lp_index(b, 24), lp_binary(b, LP_OP_MUL, field, lp_index(b, 8))), DT_I32);
        v = lp_binary(b, LP_OP_SHR, lp_binary(b, LP_OP_SHL, u, by), lp_const_i(b, i32, 24));
    }
    v = lp_binary(b, LP_OP_MUL, lp_cast(b, v, DT_F32), block_float(c, w, &d, at, lane, 0));
    if (d.has_min) v = lp_binary(b, LP_OP_ADD, v, block_float(c, w, &d, at, lane, blocks_min_at(&d)));
    return v;
}
