// SPDX-License-Identifier: Apache-2.0
/* Ops on whole tiles: IOTA, SPLAT, EXTRACT, REDUCE, MMA. */
#include <stdio.h>

#include "targets/cuda/print_cta.h"

static void declare(struct printer *p, const struct lp_value *v)
{
    struct strbuf s = {0};
    pr_declare(p, &s, v);
    pr_line(p, "%s;", strbuf_get(&s));
    strbuf_deinit(&s);
}

/* y = expr for every element, expr in r and c. */
static void each(struct printer *p, const struct lp_value *y, const char *expr)
{
    struct strbuf dst = {0};
    pr_element(p, &dst, y, "r", "c");
    declare(p, y);
    pr_loops_begin(p, y->type);
    pr_line(p, "%s = %s;", strbuf_get(&dst), expr);
    pr_loops_end(p, y->type);
    strbuf_deinit(&dst);
}

static void print_reduce(struct printer *p, const struct lp_op *op)
{
    static const enum lp_opcode ops[] = {LP_OP_ADD, LP_OP_MUL, LP_OP_MIN, LP_OP_MAX, LP_OP_AND, LP_OP_OR};
    const struct lp_value *x = op->operands[0], *y = op->results[0];
    struct strbuf src = {0}, dst = {0}, expr = {0};
    int n = x->type.cols;
    if (n & (n - 1)) {
        pr_fail(p, DIAG_CODEGEN, "not a power of two of columns in", "reduce");
        return;
    }
    pr_element(p, &src, x, "r", "e");
    pr_element(p, &dst, y, "r", "0");
    declare(p, y);
    pr_loops_begin(p, (struct lp_type){x->type.dtype, x->type.rows, 1});
    pr_line(p, "{");
    pr_line(p, "    %s h[%d];", pr_type(x->type.dtype), n);
    pr_line(p, "    #pragma unroll");
    pr_line(p, "    for (int e = 0; e < %d; e++) h[e] = %s;", n, strbuf_get(&src));
    /* a loop over n would not be unrolled, and h would lie in memory */
    for (int half = n / 2; half > 0; half /= 2) {
        char other[32];
        snprintf(other, sizeof other, "h[e + %d]", half);
        strbuf_deinit(&expr);
        pr_binary(p, &expr, ops[op->index], x->type.dtype, "h[e]", other);
        pr_line(p, "    #pragma unroll");
        pr_line(p, "    for (int e = 0; e < %d; e++) h[e] = %s;", half, strbuf_get(&expr));
    }
    pr_line(p, "    %s = h[0];", strbuf_get(&dst));
    pr_line(p, "}");
    pr_loops_end(p, (struct lp_type){x->type.dtype, x->type.rows, 1});
    strbuf_deinit(&src);
    strbuf_deinit(&dst);
    strbuf_deinit(&expr);
}

/* Product number i of the k that each element adds. */
static void put_product(const struct printer *p, struct strbuf *s, const struct lp_op *op, int i)
{
    char column[32], inner[16];
    struct strbuf a = {0}, b = {0};
    snprintf(column, sizeof column, op->index == 1 ? "c" : "c * %d + %d", op->index, i);
    snprintf(inner, sizeof inner, "%d", i);
    pr_element(p, &a, op->operands[1], "r", inner);
    pr_element(p, &b, op->operands[2], "0", column);
    if (op->index == 2 && op->operands[1]->type.dtype == DT_BF16) strbuf_printf(s, "s = __fmaf_rn(f32_of_bf16(%s), f32_of_bf16(%s), s);", strbuf_get(&a), strbuf_get(&b));
    else strbuf_printf(s, "s += (int)%s * (int)%s;", strbuf_get(&a), strbuf_get(&b));
    strbuf_deinit(&a);
    strbuf_deinit(&b);
}

static void print_mma(struct printer *p, const struct lp_op *op)
{
    const struct lp_value *y = op->results[0];
    struct strbuf acc = {0}, dst = {0}, a = {0}, b = {0};
    enum dtype d = y->type.dtype;
    pr_element(p, &acc, op->operands[0], "r", "c");
    pr_element(p, &dst, y, "r", "c");
    declare(p, y);
    pr_loops_begin(p, y->type);
    if (op->index == 1) {
        pr_element(p, &a, op->operands[1], "r", "c");
        pr_element(p, &b, op->operands[2], "r", "c");
        if (d == DT_F32 || d == DT_F64)
            pr_line(p, "%s = %s(%s, %s, %s);", strbuf_get(&dst), d == DT_F64 ? "__fma_rn" : "__fmaf_rn", strbuf_get(&a), strbuf_get(&b), strbuf_get(&acc));
        else if (pr_is_soft(d))
            pr_line(p, "%s = %s_of_f32(__fmaf_rn(f32_of_%s(%s), f32_of_%s(%s), f32_of_%s(%s)));", strbuf_get(&dst), dtype_name(d), dtype_name(d),
                    strbuf_get(&a), dtype_name(d), strbuf_get(&b), dtype_name(d), strbuf_get(&acc));
        else pr_line(p, "%s = (%s)((u64)%s * (u64)%s + (u64)%s);", strbuf_get(&dst), pr_type(d), strbuf_get(&a), strbuf_get(&b), strbuf_get(&acc));
    } else {
        pr_line(p, "{");
        pr_line(p, "    %s s = %s;", pr_type(d), strbuf_get(&acc));
        for (int i = 0; i < op->index; i++) {
            struct strbuf product = {0};
            put_product(p, &product, op, i);
            pr_line(p, "    %s", strbuf_get(&product));
            strbuf_deinit(&product);
        }
        pr_line(p, "    %s = s;", strbuf_get(&dst));
        pr_line(p, "}");
    }
    pr_loops_end(p, y->type);
    strbuf_deinit(&acc);
    strbuf_deinit(&dst);
    strbuf_deinit(&a);
    strbuf_deinit(&b);
}

void pr_tile_op(struct printer *p, const struct lp_op *op)
{
    const struct lp_value *x = op->n_operands ? op->operands[0] : NULL;
    struct strbuf s = {0};
    char index[16];
    snprintf(index, sizeof index, "%d", op->index);
    if (p->k->cta_threads && op->code == LP_OP_IOTA) {
        struct lp_type t = op->results[0]->type;
        each(p, op->results[0], t.rows > 1 ? "cta_row(ri)" : t.cols > 1 ? "cta_col(ci)" : "0");
        return;
    }
    if (p->k->cta_warp_rows && (op->code == LP_OP_DOT || op->code == LP_OP_REDUCE)) {
        if (op->code == LP_OP_DOT) warp_dot(p, op);
        else warp_reduce(p, op);
        return;
    }
    if (p->k->cta_threads && op->code != LP_OP_SPLAT) {
        pr_fail(p, DIAG_NO_LOWERING, "no code for a CTA's tiles for", lp_op_name(op->code));
        return;
    }
    switch (op->code) {
    case LP_OP_IOTA: each(p, op->results[0], op->results[0]->type.cols > 1 ? "c" : op->results[0]->type.rows > 1 ? "r" : "0"); break;
    case LP_OP_SPLAT:
        pr_element(p, &s, x, "r", "c");
        each(p, op->results[0], strbuf_get(&s));
        break;
    case LP_OP_EXTRACT:
        if (x->type.rows > 1) pr_element(p, &s, x, index, "c");
        else pr_element(p, &s, x, "0", index);
        each(p, op->results[0], strbuf_get(&s));
        break;
    case LP_OP_REDUCE: print_reduce(p, op); break;
    default: print_mma(p, op); break;
    }
    strbuf_deinit(&s);
}
