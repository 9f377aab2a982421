// SPDX-License-Identifier: Apache-2.0
/*
 * Random kernels: chains of pointwise ops over mixed dtypes, inside loops, ifs and reductions, on each level of this
 * machine against the loop-IR evaluator, bit for bit. What single ops cannot show: what LLVM makes of two of them.
 *
 * Left out, because the results are not defined to the bit: FMA (fused or not), float MIN and MAX of zeros of both
 * signs followed by a division, bits of NaNs.
 */
#include "tests/unit/cpu_kernel.h"

#include <math.h>

#include "ir/loop_cell.h"

#define N_IN 4
#define N_OUT 6
#define ROWS 5
#define COLS 32
#define N_KERNELS 40

static uint64_t rng;
static uint64_t next_random(void)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return rng >> 11;
}
static int pick(int n) { return (int)(next_random() % (uint64_t)n); }

static enum dtype random_dtype(void)
{
    for (;;) {
        enum dtype d = (enum dtype)(DT_F64 + pick(DT_BOOL - DT_F64 + 1));
        if (d != DT_F8E8M0) return d;
    }
}

struct pool {
    struct lp_value *v[64];
    int n;
};

static void keep(struct pool *p, struct lp_value *v)
{
    if (p->n < 64) p->v[p->n++] = v;
    else p->v[pick(64)] = v;
}

static struct lp_value *any(struct pool *p) { return p->v[pick(p->n)]; }

/* A value of the pool as dtype d. */
static struct lp_value *as(struct lp_builder *b, struct pool *p, enum dtype d) { return lp_cast(b, any(p), d); }

static struct lp_value *random_op(struct lp_builder *b, struct pool *p)
{
    static const enum lp_opcode on_any[] = {LP_OP_EQ, LP_OP_NE, LP_OP_LT, LP_OP_LE, LP_OP_GT, LP_OP_GE};
    static const enum lp_opcode on_float[] = {LP_OP_ADD, LP_OP_SUB, LP_OP_MUL, LP_OP_MIN, LP_OP_MAX, LP_OP_REM, LP_OP_MOD,
                                              LP_OP_NEG, LP_OP_ABS, LP_OP_FLOOR, LP_OP_CEIL, LP_OP_ROUND, LP_OP_SQRT};
    static const enum lp_opcode on_int[] = {LP_OP_ADD, LP_OP_SUB, LP_OP_MUL, LP_OP_DIV, LP_OP_REM, LP_OP_MOD, LP_OP_MIN,
                                            LP_OP_MAX, LP_OP_AND, LP_OP_OR, LP_OP_XOR, LP_OP_SHL, LP_OP_SHR,
                                            LP_OP_NEG, LP_OP_ABS, LP_OP_NOT};
    static const enum lp_opcode on_bool[] = {LP_OP_AND, LP_OP_OR, LP_OP_XOR, LP_OP_MIN, LP_OP_MAX, LP_OP_NOT};
    struct lp_value *x = any(p);
    enum dtype d = x->type.dtype;
    switch (pick(8)) {
    case 0:
    case 1: return lp_cast(b, x, random_dtype());
    case 2: return lp_binary(b, on_any[pick(6)], x, as(b, p, d));
    case 3: return lp_select(b, as(b, p, DT_BOOL), x, as(b, p, d));
    default: break;
    }
    enum lp_opcode c = dtype_is_float(d) ? on_float[pick((int)ARRAY_LEN(on_float))]
                       : d == DT_BOOL    ? on_bool[pick((int)ARRAY_LEN(on_bool))]
                                         : on_int[pick((int)ARRAY_LEN(on_int))];
    return c < LP_OP_POW ? lp_unary(b, c, x) : lp_binary(b, c, x, as(b, p, d));
}

static struct lp_value *constant(struct lp_builder *b)
{
    static const double values[] = {0, 1, -1, 0.5, 3, 255, -129, 1e5, 3e9};
    enum dtype d = random_dtype();
    if (dtype_is_float(d)) return lp_const_f(b, lp_scalar(d), values[pick(9)]);
    return lp_const_i(b, lp_scalar(d), (int64_t)values[pick(9)]);
}

static void ops(struct lp_builder *b, struct pool *p, int n)
{
    for (int i = 0; i < n; i++) {
        keep(p, random_op(b, p));
        if (pick(6) == 0) keep(p, constant(b));
    }
}

/* A loop that carries one value through a few ops, or an IF between two results. */
static void control(struct lp_builder *b, struct pool *p, struct lp_value *slice, int cols)
{
    struct lp_value *x = lp_splat(b, any(p), 1, cols), *y;
    struct pool inner = *p;
    if (pick(2)) {
        struct lp_op *loop = lp_for_begin(b, pick(2) ? LP_LOOP_UNROLL : LP_LOOP_SERIAL, lp_index(b, 0), lp_index(b, 3), 1, 1, &x);
        keep(&inner, loop->regions[0]->args[1]);
        keep(&inner, loop->regions[0]->args[0]);
        ops(b, &inner, 3);
        y = lp_splat(b, as(b, &inner, x->type.dtype), 1, cols);
        lp_for_end(b, loop, &y);
        keep(p, loop->results[0]);
        return;
    }
    struct lp_value *cond = lp_binary(b, LP_OP_LT, slice, lp_index(b, pick(ROWS)));
    struct lp_op *op = lp_if_begin(b, cond, 1, &x->type);
    lp_if_else(b, op, &x);
    y = lp_splat(b, as(b, p, x->type.dtype), 1, cols);
    lp_if_end(b, op, &y);
    keep(p, op->results[0]);
}

static struct lp_kernel *build(struct dim_ctx *ctx, int cols, enum dtype *types)
{
    const struct dim *dims[2] = {dim_const(ctx, ROWS), dim_const(ctx, COLS)};
    struct lp_kernel *k = lp_kernel_create(ctx, "random", "", "g");
    struct pool p = {.n = 0};
    for (int i = 0; i < N_IN; i++) lp_add_arg(k, "x", types[i] = random_dtype(), 2, dims, false, 8);
    for (int i = 0; i < N_OUT; i++) lp_add_arg(k, "y", types[N_IN + i] = random_dtype(), 2, dims, true, 8);
    k->slices = dims[0];
    struct lp_builder b = {k, k->body};
    enum lp_loop_kind kind = cols == 1 && pick(3) ? LP_LOOP_VECTOR : LP_LOOP_SERIAL;
    struct lp_op *loop = lp_for_begin(&b, kind, lp_index(&b, 0), lp_index(&b, COLS - pick(3)), cols, 0, NULL);
    struct lp_value *at[2] = {k->body->args[0], loop->regions[0]->args[0]};
    for (int i = 0; i < N_IN; i++) keep(&p, lp_load_tile(&b, i, at, 1, cols, -1, cols > 1 ? 1 : -1, NULL, NULL));
    ops(&b, &p, 10);
    control(&b, &p, at[0], cols);
    ops(&b, &p, 6);
    for (int i = 0; i < N_OUT; i++) {
        struct lp_value *v = as(&b, &p, types[N_IN + i]);
        lp_store_tile(&b, N_IN + i, at, lp_splat(&b, v, 1, cols), -1, cols > 1 ? 1 : -1, NULL, NULL);
    }
    lp_for_end(&b, loop, NULL);
    return k;
}

static uint64_t element(enum dtype d, const char *p, size_t i)
{
    uint64_t v = 0;
    memcpy(&v, p + i * dtype_bytes(d), dtype_bytes(d));
    return v;
}

static bool same(enum dtype d, uint64_t a, uint64_t b)
{
    if (a == b || !dtype_is_float(d)) return a == b;
    double x = lp_cell_from_bits(d, a).f, y = lp_cell_from_bits(d, b).f;
    return x == y || (x != x && y != y);
}

static void fill(enum dtype d, char *p)
{
    for (size_t i = 0; i < ROWS * COLS; i++) {
        union lp_cell c;
        double scale = pick(3) ? 4.0 : 1e6;
        c.f = ((double)pick(2001) - 1000.0) / 500.0 * scale;
        c = lp_cell_cast(DT_F64, d, c);
        uint64_t bits = lp_cell_bits(d, c);
        if (pick(8) == 0 && dtype_bits(d) >= 8 && d != DT_BOOL) bits = next_random() * 0x9e3779b97f4a7c15u;
        memcpy(p + i * dtype_bytes(d), &bits, dtype_bytes(d));
    }
}

static void run(struct dim_ctx *ctx, uint64_t seed, int cols, const struct target_level *level)
{
    struct diag_sink diag;
    enum dtype types[N_IN + N_OUT];
    static char native[N_IN + N_OUT][ROWS * COLS * 8], oracle[N_IN + N_OUT][ROWS * COLS * 8];
    void *a[N_IN + N_OUT], *b[N_IN + N_OUT];
    diag_init(&diag);
    rng = seed;
    for (int i = 0; i < 8; i++) next_random();
    struct lp_kernel *k = build(ctx, cols, types);
    for (int i = 0; i < N_IN + N_OUT; i++) {
        fill(types[i], native[i]);
        memcpy(oracle[i], native[i], sizeof oracle[i]);
        a[i] = native[i];
        b[i] = oracle[i];
    }
    struct strbuf text = {0};
    lp_print(&text, k, false);
    struct target_object o = {0};
    bool ok = lp_verify(k, &diag) && lp_eval(k, b, NULL, &diag) &&
              target_find("x86-64")->emit(target_find("x86-64"), level, k, "f", &o, &diag);
    if (!ok) diag_print_text(&diag, stderr);
    assert_true(ok);
    struct loaded l = load_object(&o, "f");
    l.fn(a, NULL, 0, ROWS, NULL);
    for (int i = 0; i < N_IN + N_OUT; i++)
        for (size_t j = 0; j < ROWS * COLS; j++)
            if (!same(types[i], element(types[i], native[i], j), element(types[i], oracle[i], j)))
                fail_msg("seed %llu, %d columns, %s: buffer %d (%s) element %zu: got %#llx, want %#llx\n%s",
                         (unsigned long long)seed, cols, level->name, i, dtype_name(types[i]), j,
                         (unsigned long long)element(types[i], native[i], j),
                         (unsigned long long)element(types[i], oracle[i], j), strbuf_get(&text));
    strbuf_deinit(&text);
    munmap(l.mem, l.n_bytes + 1);
    free(o.data);
    lp_kernel_destroy(k);
    diag_deinit(&diag);
}

static void test_random_kernels(void **state)
{
    const struct target *t = target_find("x86-64");
    const char *seeds = getenv("INFC_SEEDS"); /* "FIRST COUNT", to look further */
    unsigned long first = 1, count = N_KERNELS;
    static const int columns[] = {1, 4, 16};
    struct dim_ctx *ctx = dim_ctx_create();
    (void)state;
    if (seeds) sscanf(seeds, "%lu %lu", &first, &count);
    for (unsigned long s = first; s < first + count; s++)
        for (int i = 0; i < t->n_levels && t->levels[i].isa <= INFR_ISA_V4; i++)
            if (machine_has(t->levels[i].isa)) run(ctx, s, columns[s % 3], &t->levels[i]);
    dim_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_kernels)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
