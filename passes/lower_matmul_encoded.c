// SPDX-License-Identifier: Apache-2.0
/*
 * Encoded constants as b of a matmul (quantised blocks, taken into parts by pass quant): q * scale + min, apart in registers where
 * few rows use a weight, once into a stack buffer where many do.
 */
#include "passes/lower_matmul.h"

#define MAX_UNPACKED_BYTES (8 << 20) /* of an encoded panel taken apart in a worker's scratch memory */

/* Stored q of the panel at k (or the pair k, k + 1 when nibbles) as f32 rows w[0], w[1]. */
static void load_q(struct mm *t, struct lp_value *panel, int col, struct lp_value *g, struct lp_value *i, struct lp_value **w)
{
    struct lp_builder *b = &t->l->e.b;
    struct lp_value *idx[4] = {panel, g, i, lp_index(b, col)};
    struct lp_value *q = lp_load_tile(b, t->b, idx, 1, t->nr, 0, 3, NULL, NULL);
    int n = 1;
    w[0] = q;
    if (t->nibbles) { /* widened first: the load itself does that, and no lane has to cross over */
        struct lp_type wide = lp_vector(DT_I32, t->nr);
        q = lp_cast(b, q, DT_I32);
        w[0] = lp_binary(b, LP_OP_AND, q, lp_const_i(b, wide, 15));
        w[1] = lp_binary(b, LP_OP_SHR, q, lp_const_i(b, wide, 4));
        n = 2;
    }
    for (int k = 0; k < n; k++) {
        w[k] = lp_cast(b, w[k], DT_F32);
        if (t->zero) w[k] = lp_binary(b, LP_OP_SUB, w[k], lp_const_f(b, lp_vector(DT_F32, t->nr), t->zero));
    }
}

static struct lp_value *load_group(struct mm *t, int buf, struct lp_value *panel, int col, struct lp_value *g)
{
    struct lp_builder *b = &t->l->e.b;
    struct lp_value *idx[3] = {panel, g, lp_index(b, col)};
    return lp_cast(b, lp_load_tile(b, buf, idx, 1, t->nr, 0, 2, NULL, NULL), DT_F32);
}

static struct lp_value *decode(struct mm *t, struct lp_value *q, struct lp_value *scale, struct lp_value *min)
{
    struct lp_builder *b = &t->l->e.b;
    if (!scale) return q;
    return min ? lp_fma(b, q, scale, min) : lp_binary(b, LP_OP_MUL, q, scale);
}

/* Number of a matrix's panel in b. */
static struct lp_value *panel_in_b(struct mm *t, struct lp_value *panel)
{
    struct expr_ctx *e = &t->l->e;
    return t->matrix ? lp_binary(&e->b, LP_OP_ADD, expr_imul(e, t->matrix, lp_index(&e->b, t->matrix_panels)), panel) : panel;
}

void matmul_encoded_buffer(struct mm *t)
{
    int64_t dims[] = {t->k->value, t->panel};
    if (dims[0] * t->panel * 4 <= MAX_UNPACKED_BYTES) t->copy_buf = lp_add_stack(t->l->k, "unpacked", DT_F32, 2, dims);
}

/* The same operations as in contract_panel, so the same bits. */
void matmul_encoded_unpack(struct mm *t, struct lp_value *panel)
{
    struct expr_ctx *e = &t->l->e;
    struct lp_builder *b = &e->b;
    const struct ir_type *q = t->qt;
    panel = panel_in_b(t, panel);
    struct lp_op *pieces = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, lp_index(b, q->dims[1]->value), 1, 0, NULL);
    struct lp_value *g = pieces->regions[0]->args[0];
    for (int col = 0; col < t->panel; col += t->nr) {
        struct lp_value *scale = t->scale >= 0 ? load_group(t, t->scale, panel, col, g) : NULL, *w[2];
        struct lp_value *min = t->min >= 0 ? load_group(t, t->min, panel, col, g) : NULL;
        struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, lp_index(b, q->dims[2]->value), 1, 0, NULL);
        struct lp_value *i = loop->regions[0]->args[0], *base = expr_imul(e, g, lp_index(b, t->group));
        load_q(t, panel, col, g, i, w);
        for (int k = 0; k < (t->nibbles ? 2 : 1); k++) {
            struct lp_value *at = t->nibbles ? lp_binary(b, LP_OP_MUL, i, lp_index(b, 2)) : i;
            if (k) at = lp_binary(b, LP_OP_ADD, at, e->one);
            struct lp_value *idx[2] = {lp_binary(b, LP_OP_ADD, base, at), lp_index(b, col)};
            lp_store_tile(b, t->copy_buf, idx, decode(t, w[k], scale, min), 0, 1, NULL, NULL);
        }
        expr_for_end(e, loop, NULL);
    }
    expr_for_end(e, pieces, NULL);
}

static struct lp_value *contract_unpacked(struct mm *t, struct lp_value *row, int rows, struct lp_value *nrows, int col)
{
    struct expr_ctx *e = &t->l->e;
    struct lp_builder *b = &e->b;
    struct lp_value *acc = matmul_zero_tile(t, rows);
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, expr_dim(e, t->k), 1, 1, &acc);
    struct lp_value *k = loop->regions[0]->args[0], *idx[2] = {k, lp_index(b, col)};
    struct lp_value *w = lp_load_tile(b, t->copy_buf, idx, 1, t->nr, 0, 1, NULL, NULL);
    struct lp_value *next = lp_mma(b, loop->regions[0]->args[1], matmul_load_a(t, row, k, rows, nrows), w, 1);
    expr_for_end(e, loop, &next);
    return loop->results[0];
}

/*
 * K loop over an encoded b: groups, then their k; each weight is taken apart in registers (q * scale + min) and used once a
 * tile. The chain of every output element is over k in order, for every number of rows.
 */
static struct lp_value *contract_panel(struct mm *t, struct lp_value *row, int rows, struct lp_value *nrows, struct lp_value *panel, int col)
{
    struct expr_ctx *e = &t->l->e;
    struct lp_builder *b = &e->b;
    const struct ir_type *q = t->qt;
    struct lp_value *acc = matmul_zero_tile(t, rows), *scale = NULL, *min = NULL, *w[2];
    panel = panel_in_b(t, panel);
    struct lp_op *groups = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, lp_index(b, q->dims[1]->value), 1, 1, &acc);
    struct lp_value *g = groups->regions[0]->args[0];
    if (t->scale >= 0) scale = load_group(t, t->scale, panel, col, g);
    if (t->min >= 0) min = load_group(t, t->min, panel, col, g);
    acc = groups->regions[0]->args[1];
    struct lp_op *loop = expr_for_begin(e, LP_LOOP_SERIAL, e->zero, lp_index(b, q->dims[2]->value), 1, 1, &acc);
    struct lp_value *i = loop->regions[0]->args[0];
    acc = loop->regions[0]->args[1];
    int elem = (int)dtype_bytes(q->dtype);
    struct lp_value *ahead[4] = {panel, g, lp_binary(b, LP_OP_ADD, i, lp_index(b, t->prefetch / (64 * elem))), lp_index(b, col)};
    if (t->prefetch) lp_prefetch(b, t->b, ahead);
    load_q(t, panel, col, g, i, w);
    struct lp_value *base = expr_imul(e, g, lp_index(b, t->group));
    for (int k = 0; k < (t->nibbles ? 2 : 1); k++) {
        struct lp_value *x = decode(t, w[k], scale, min);
        struct lp_value *at = t->nibbles ? lp_binary(b, LP_OP_MUL, i, lp_index(b, 2)) : i;
        if (k) at = lp_binary(b, LP_OP_ADD, at, e->one);
        at = lp_binary(b, LP_OP_ADD, base, at);
        acc = lp_mma(b, acc, matmul_load_a(t, row, at, rows, nrows), x, 1);
    }
    expr_for_end(e, loop, &acc);
    expr_for_end(e, groups, loop->results);
    return groups->results[0];
}

struct lp_value *matmul_encoded_contract(struct mm *t, struct lp_value *row, int rows, struct lp_value *nrows, struct lp_value *panel, int col)
{
    return t->copied ? contract_unpacked(t, row, rows, nrows, col) : contract_panel(t, row, rows, nrows, panel, col);
}

bool matmul_encoded_parts(struct mm *t, int first)
{
    struct lower_ctx *l = t->l;
    const struct ir_op *op = l->anchor;
    for (int i = 0; i < op->n_operands; i++)
        if (ir_operand(op, i) && lower_operand_of(l, ir_operand(op, i)) < 0) return false;
    const struct ir_type *xt = &ir_operand(op, 0)->type;
    if (xt->dtype != DT_F32 || xt->rank < 2) return false;
    t->a = lower_operand_of(l, ir_operand(op, 0)), t->b = lower_operand_of(l, ir_operand(op, first));
    t->scale = lower_operand_of(l, ir_operand(op, first + 1)), t->min = lower_operand_of(l, ir_operand(op, first + 2));
    t->qt = &ir_operand(op, first)->type;
    t->rank = op->results[0].type.rank, t->acc = DT_F32;
    t->quant = t->packed = true;
    t->nibbles = ir_attr_int(op, "nibbles", 0);
    t->zero = (int)ir_attr_int(op, "zero", 0);
    t->group = t->qt->dims[2]->value * (t->nibbles ? 2 : 1);
    t->k = dim_const(l->m->dims, t->qt->dims[1]->value * t->group);
    t->n = op->results[0].type.dims[t->rank - 1];
    t->matrix_panels = (t->n->value + 63) / 64;
    return true;
}

bool matmul_encoded_setup(struct mm *t)
{
    struct lower_ctx *l = t->l;
    const struct ir_op *op = l->anchor;
    if (!op || op->code != IR_OP_QMATMUL || !lower_tile_epilogue_ok(l)) return false;
    t->flat = ir_attr_int(op, "batch", 1) == 1;
    if (t->flat && !lower_epilogue_is_flat(l)) return false;
    if (!matmul_encoded_parts(t, 1)) return false;
    t->m = op->results[0].type.dims[t->rank - 2];
    return true;
}
