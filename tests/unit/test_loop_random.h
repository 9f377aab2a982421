// SPDX-License-Identifier: Apache-2.0
/*
 * Random kernels for tests of rewrites and targets: one vector loop over [lo, hi) with branches, nested loops, gathers and
 * two reductions. Buffers: x f32[1000], y f32[1000, 3], z f32[1000] writable, a i64[1000] with values in [0, 1000), t f32[]
 * writable. Every access is in bounds for any seed.
 */
#ifndef INFC_TESTS_UNIT_TEST_LOOP_RANDOM_H
#define INFC_TESTS_UNIT_TEST_LOOP_RANDOM_H

#include "ir/dim.h"
#include "ir/loop.h"

static inline void fill(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] = (float)((int)(i * 37 % 101) - 50) / 8;
}

/* The buffers of a random kernel; z has t behind it. */
static inline void fill_random(float *x, float *y, float *z, int64_t *a)
{
    fill(x, 1000);
    fill(y, 3000);
    for (int i = 0; i < 1000; i++) {
        z[i] = -1;
        a[i] = i * 7 % 1000;
    }
    z[1000] = -1;
}

struct gen {
    struct lp_builder b;
    uint64_t seed;
    struct lp_value *f[64], *i[64], *c[64]; /* visible f32, i64 and bool scalars */
    int nf, ni, nc;
    struct lp_value *counter; /* of the vector loop; NULL outside */
    struct lp_value *inner;   /* a counter in [0, 3), or NULL */
    int depth;
};

static inline uint32_t pick(struct gen *g, uint32_t n)
{
    g->seed = g->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((g->seed >> 33) % n);
}

#define ANY(kind) g->kind[pick(g, (uint32_t)g->n##kind)]
#define KEEP(kind, v)                                                                                                 \
    do {                                                                                                              \
        struct lp_value *kept_ = (v);                                                                                 \
        g->kind[g->n##kind < 64 ? g->n##kind++ : (int)pick(g, 64)] = kept_;                                           \
    } while (0)

/* An index in [0, 1000): the counter, one of a's elements, or clamped arithmetic. */
static inline struct lp_value *gen_index(struct gen *g)
{
    struct lp_builder *b = &g->b;
    if (g->counter && pick(g, 2)) return g->counter;
    struct lp_value *v = lp_binary(b, LP_OP_MOD, ANY(i), lp_index(b, 1000));
    if (g->counter && pick(g, 2)) {
        v = lp_binary(b, LP_OP_SUB, g->counter, lp_index(b, pick(g, 40)));
        if (pick(g, 3) == 0) v = lp_binary(b, LP_OP_FLOORDIV, v, lp_index(b, 1 + pick(g, 3)));
        return lp_binary(b, LP_OP_MIN, lp_binary(b, LP_OP_MAX, v, lp_index(b, 0)), lp_index(b, pick(g, 60)));
    }
    return pick(g, 2) ? v : lp_binary(b, LP_OP_MAX, lp_binary(b, LP_OP_MIN, ANY(i), lp_index(b, 999)), lp_index(b, 0));
}

static inline void gen_block(struct gen *g, int n);

static inline void gen_region(struct gen *g)
{
    struct lp_builder *b = &g->b;
    int nf = g->nf, ni = g->ni, nc = g->nc;
    g->depth++;
    if (pick(g, 2)) {
        struct lp_type t = lp_scalar(DT_F32);
        struct lp_op *op = lp_if_begin(b, ANY(c), 1, &t);
        gen_block(g, 3);
        struct lp_value *y = ANY(f);
        lp_if_else(b, op, &y);
        g->nf = nf, g->ni = ni, g->nc = nc;
        gen_block(g, 2);
        y = ANY(f);
        lp_if_end(b, op, &y);
        g->nf = nf, g->ni = ni, g->nc = nc;
        KEEP(f, op->results[0]);
    } else {
        struct lp_value *init = ANY(f), *old = g->inner;
        struct lp_op *op = lp_for_begin(b, LP_LOOP_SERIAL, lp_index(b, 0), lp_index(b, pick(g, 4)), 1, 1, &init);
        g->inner = op->regions[0]->args[0];
        KEEP(i, g->inner);
        KEEP(f, op->regions[0]->args[1]);
        gen_block(g, 4);
        struct lp_value *y = ANY(f);
        lp_for_end(b, op, &y);
        g->nf = nf, g->ni = ni, g->nc = nc;
        g->inner = old;
        KEEP(f, op->results[0]);
    }
    g->depth--;
}

static inline void gen_op(struct gen *g)
{
    static const enum lp_opcode fops[] = {LP_OP_ADD, LP_OP_SUB, LP_OP_MUL, LP_OP_MIN, LP_OP_MAX};
    static const enum lp_opcode iops[] = {LP_OP_ADD, LP_OP_SUB, LP_OP_MUL, LP_OP_MIN, LP_OP_MAX, LP_OP_MOD, LP_OP_XOR,
                                          LP_OP_SHR, LP_OP_DIV, LP_OP_REM};
    static const enum lp_opcode cops[] = {LP_OP_EQ, LP_OP_NE, LP_OP_LT, LP_OP_LE, LP_OP_GT, LP_OP_GE};
    struct lp_builder *b = &g->b;
    struct lp_value *idx[2] = {NULL, NULL};
    switch (pick(g, 14)) {
    case 0: KEEP(f, lp_const_f(b, lp_scalar(DT_F32), (double)pick(g, 5) / 2 - 1)); break;
    case 1: KEEP(i, lp_index(b, (int64_t)pick(g, 7) - 3)); break;
    case 2:
    case 3: KEEP(f, lp_binary(b, fops[pick(g, 5)], ANY(f), ANY(f))); break;
    case 4:
    case 5: KEEP(i, lp_binary(b, iops[pick(g, 10)], ANY(i), ANY(i))); break;
    case 6: KEEP(c, lp_binary(b, cops[pick(g, 6)], ANY(f), ANY(f))); break;
    case 7: KEEP(c, lp_binary(b, cops[pick(g, 6)], ANY(i), ANY(i))); break;
    case 8: KEEP(f, lp_select(b, ANY(c), ANY(f), ANY(f))); break;
    case 9: KEEP(f, lp_cast(b, lp_binary(b, LP_OP_MOD, ANY(i), lp_index(b, 64)), DT_F32)); break;
    case 10:
        idx[0] = gen_index(g);
        KEEP(f, lp_load(b, 0, idx));
        break;
    case 11:
        idx[0] = gen_index(g);
        idx[1] = g->inner && pick(g, 2) ? g->inner : lp_index(b, pick(g, 3));
        KEEP(f, lp_load(b, 1, idx));
        break;
    case 12:
        idx[0] = gen_index(g);
        KEEP(i, lp_load(b, 3, idx));
        break;
    default:
        if (g->depth < 3) gen_region(g);
    }
}

static inline void gen_block(struct gen *g, int n)
{
    for (int i = 0; i < n; i++) gen_op(g);
}

static inline struct lp_kernel *gen_kernel(struct dim_ctx *ctx, uint64_t seed, int64_t lo, int64_t hi)
{
    struct lp_kernel *k = lp_kernel_create(ctx, "random", "", "");
    struct gen gen = {.b = {.k = k, .block = k->body}, .seed = seed}, *g = &gen;
    struct lp_builder *b = &g->b;
    const struct dim *n = dim_const(ctx, 1000), *y[2] = {n, dim_const(ctx, 3)};
    lp_add_arg(k, "x", DT_F32, 1, &n, false, 4);
    lp_add_arg(k, "y", DT_F32, 2, y, false, 4);
    lp_add_arg(k, "z", DT_F32, 1, &n, true, 4);
    lp_add_arg(k, "a", DT_I64, 1, &n, false, 8);
    lp_add_arg(k, "t", DT_F32, 0, NULL, true, 4);
    KEEP(f, lp_const_f(b, lp_scalar(DT_F32), 1.5));
    KEEP(i, k->body->args[0]);
    KEEP(i, lp_index(b, 2));
    KEEP(c, lp_const_i(b, lp_scalar(DT_BOOL), 1));
    gen_block(g, 4);
    /* Reductions whose result does not depend on their order. */
    struct lp_value *init[2] = {ANY(f), ANY(f)};
    int nf = g->nf, ni = g->ni, nc = g->nc;
    struct lp_op *loop = lp_for_begin(b, LP_LOOP_VECTOR, lp_index(b, lo), lp_index(b, hi), 1, 2, init);
    struct lp_value **args = loop->regions[0]->args, *yields[2];
    g->counter = args[0];
    KEEP(i, args[0]);
    gen_block(g, 14);
    struct lp_value *v = ANY(f), *w = ANY(f);
    lp_store(b, 2, &args[0], v);
    yields[0] = lp_binary(b, LP_OP_MAX, w, args[1]);
    yields[1] = lp_binary(b, LP_OP_MIN, args[2], v);
    lp_for_end(b, loop, yields);
    g->nf = nf, g->ni = ni, g->nc = nc;
    lp_store(b, 4, NULL, lp_binary(b, LP_OP_SUB, loop->results[0], loop->results[1]));
    return k;
}

#endif
