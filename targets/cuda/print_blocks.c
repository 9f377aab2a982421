// SPDX-License-Identifier: Apache-2.0
/*
 * The loop whose step is DOT_BLOCKS as a call of block_loop (prelude_blocks.c): the loop says what is computed, the function how. What
 * the function takes for granted about the loop is looked up here.
 */
#include "ir/blocks.h"
#include "ir/dim.h"
#include "ir/loop_rewrite.h"
#include "targets/cuda/print_cta.h"

static const struct lp_op *step_of(const struct lp_op *op)
{
    const struct lp_op *yield = op->code == LP_OP_FOR ? op->regions[0]->last : NULL;
    if (!yield || op->n_results != 1 || yield->code != LP_OP_YIELD || yield->n_operands != 1) return NULL;
    const struct lp_op *dot = yield->operands[0]->def;
    return dot && dot->code == LP_OP_DOT_BLOCKS && dot->operands[0] == op->regions[0]->args[1] ? dot : NULL;
}

bool cta_is_block_loop(const struct lp_op *op) { return step_of(op) != NULL; }

bool cta_has_block_loop(const struct lp_kernel *k)
{
    for (const struct lp_op *op = k->body->first; op; op = op->next)
        if (cta_is_block_loop(op)) return true;
    return false;
}

static const struct lp_op *load_of(const struct lp_value *v, int rank, const struct printer *p)
{
    const struct lp_op *op = v->def;
    return op && op->code == LP_OP_LOAD && p->k->bufs.v[op->buf].rank == rank ? op : NULL;
}

/* The load's first index, and what follows it, begin at 0 with the loop: &b[first, 0 ..]. */
static void put_first(struct printer *p, struct strbuf *s, const struct lp_op *load)
{
    strbuf_printf(s, "b%d + ", load->buf);
    pr_scalar(s, load->operands[0]);
    strbuf_puts(s, " * ");
    pr_stride(p, s, p->k->bufs.v[load->buf].strides[0]);
}

/* Is v n times the counter? */
static bool is_times(const struct lp_value *v, const struct lp_value *counter, int64_t n)
{
    int64_t c;
    const struct lp_op *op = v->def;
    if (v == counter) return n == 1;
    if (!op || op->code != LP_OP_MUL) return false;
    return (op->operands[0] == counter && lp_is_const(op->operands[1], &c) && c == n) || (op->operands[1] == counter && lp_is_const(op->operands[0], &c) && c == n);
}

static bool is_row_major(const struct lp_buf *b)
{
    for (int i = b->rank - 2; i >= 0; i--)
        if (!dim_is_const(b->strides[i]) || b->strides[i]->value != b->strides[i + 1]->value * b->dims[i + 1]->value) return false;
    return dim_is(b->strides[b->rank - 1], 1);
}

void cta_print_block_loop(struct printer *p, const struct lp_op *op)
{
    const struct lp_op *dot = step_of(op), *words = load_of(dot->operands[1], 2, p), *sum = load_of(dot->operands[2], 2, p), *units = load_of(dot->operands[3], 3, p);
    const struct lp_value *g = op->regions[0]->args[0];
    struct blocks d = blocks_decode(dot->index);
    struct strbuf w = {0}, s = {0}, u = {0}, rows = {0}, declare = {0};
    int64_t lo = 0, hi = 0;
    bool ok = words && sum && units && lp_is_const(op->operands[0], &lo) && lp_is_const(op->operands[1], &hi) && lo == 0 && op->imm == 1 &&
              dot->results[0]->type.rows == 64 && p->k->cta_threads == 128 && words->operands[0] == sum->operands[0] && lp_nrows(p->k, words) &&
              is_times(words->operands[1], g, d.group) && is_times(sum->operands[1], g, 1) && units->operands[1] == g && is_row_major(&p->k->bufs.v[words->buf]) &&
              is_row_major(&p->k->bufs.v[sum->buf]) && is_row_major(&p->k->bufs.v[units->buf]) && hi <= INT32_MAX / 128 &&
              (d.group == 16 || d.group == 32 || d.group == 64 || d.group == 128);
    if (ok) {
        put_first(p, &w, words);
        put_first(p, &s, sum);
        put_first(p, &u, units);
        pr_scalar(&rows, lp_nrows(p->k, words));
        pr_declare(p, &declare, op->results[0]);
        pr_line(p, "%s;", strbuf_get(&declare));
        pr_line(p, "#pragma unroll");
        pr_line(p, "for (int e = 0; e < 16; e++) v%u[e] = v%u[e];", op->results[0]->id, op->operands[2]->id);
        pr_line(p, "block_loop<blocks<%d, %d, %d, %d, %d, %d>>(v%u, (const char *)(%s), %s, (const char *)(%s), %lld, %s);", d.group, d.nibbles, d.wide, d.has_min,
                d.zero, d.high, op->results[0]->id, strbuf_get(&w), strbuf_get(&s), strbuf_get(&u), (long long)hi, strbuf_get(&rows));
    } else {
        pr_fail(p, DIAG_CODEGEN, "no code on this target for this shape of", "dot_blocks");
    }
    strbuf_deinit(&w);
    strbuf_deinit(&s);
    strbuf_deinit(&u);
    strbuf_deinit(&rows);
    strbuf_deinit(&declare);
}
