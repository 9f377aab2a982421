// SPDX-License-Identifier: Apache-2.0
/*
 * Lowering for GPUs against the reference evaluator: the plan of a GPU target runs in the loop-IR evaluator. Matmuls in every
 * precision, with tails in every direction and with what an epilogue may read.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "compiler/emit_plan.h"
#include "ir/build.h"
#include "ir/eval.h"
#include "ir/plan_eval.h"
#include "passes/group.h"
#include "passes/lower.h"
#include "passes/pass.h"
#include "runtime/abi/random.h"

struct graph {
    struct diag_sink diag;
    struct ir_module *m;
    struct ir_func *f;
    struct ir_builder b;
    struct arena a;
};

static void graph_init(struct graph *g)
{
    diag_init(&g->diag);
    arena_init(&g->a);
    g->m = ir_module_create("test", &g->diag);
    g->f = ir_func_create(g->m, "main");
    g->b = (struct ir_builder){.m = g->m, .block = g->f->body, .loc = ir_loc_make(g->m, "test:/node")};
}

static float *random_floats(struct graph *g, uint32_t stream, int64_t n)
{
    float *v = ARENA_ARRAY(&g->a, float, n);
    for (int64_t i = 0; i < n; i++) v[i] = (float)infr_random_float(11, stream, (uint64_t)i);
    return v;
}

static struct ir_value *weight(struct graph *g, uint32_t stream, int rank, const int64_t *dims)
{
    int64_t n = 1;
    for (int i = 0; i < rank; i++) n *= dims[i];
    struct ir_const *c = ir_const_make(g->m, "w", ir_type_static(g->m, DT_F32, rank, dims), random_floats(g, stream, n), (size_t)n * 4, false);
    return ir_build_constant(&g->b, c);
}

static struct ir_value *input(struct graph *g, const char *name, int rank, const struct dim *const *dims)
{
    return ir_func_add_input(g->f, name, ir_type_make(g->m, DT_F32, rank, dims));
}

static void read_const(const struct plan_buf *b, void *dst, size_t n)
{
    struct weight w = {.cst = b->cst, .pack = b->pack, .n_bytes = n};
    weight_read(&w, 0, dst, n);
}

static bool has_schedule(const struct plan *p, const char *name)
{
    for (size_t i = 0; i < p->kernels.n; i++)
        if (!strcmp(p->kernels.v[i].schedule, name)) return true;
    return false;
}

/* The module in its precision: evaluator against the GPU's plan. */
static void check(struct graph *g, struct ir_value *out, const int64_t *sizes, const char *target, const char *schedule)
{
    static const char *const names[] = {"y"};
    struct ir_tensor in[4] = {{0}}, want[1] = {{0}}, got[1] = {{0}};
    assert_non_null(out);
    ir_func_set_outputs(g->f, 1, &out, names);
    for (int i = 0; i < g->f->n_inputs; i++) {
        const struct ir_type *t = &g->f->body->args[i]->type;
        int64_t n = 1;
        in[i].dtype = t->dtype, in[i].rank = t->rank;
        for (int k = 0; k < t->rank; k++) {
            assert_true(dim_eval(g->m->dims, t->dims[k], sizes, &in[i].dims[k]));
            n *= in[i].dims[k];
        }
        in[i].n_bytes = (size_t)n * 4;
        in[i].data = random_floats(g, 100 + (uint32_t)i, n);
    }
    assert_true(pass_precision(g->m, &g->diag));
    assert_true(ir_eval_func(g->f, in, want, &g->a, &g->diag));
    assert_true(pass_cse(g->m, &g->diag));
    assert_true(pass_group(g->m, &g->diag));
    const struct target *t = target_find(target);
    assert_non_null(t);
    struct plan *p = lower_module(g->m, t, 1, &g->diag);
    if (!p) diag_print_text(&g->diag, stderr);
    assert_non_null(p);
    if (schedule && !has_schedule(p, schedule)) fail_msg("no kernel is of the schedule %s", schedule);
    for (size_t i = 0; i < p->kernels.n; i++) assert_true(lp_verify(p->kernels.v[i].levels[0], &g->diag));
    bool ok = plan_eval(p, 0, in, got, read_const, &g->a, &g->diag);
    if (!ok) diag_print_text(&g->diag, stderr);
    assert_true(ok);
    assert_int_equal(want[0].n_bytes, got[0].n_bytes);
    for (size_t i = 0; i < want[0].n_bytes / 4; i++) {
        float a = ((const float *)want[0].data)[i], b = ((const float *)got[0].data)[i];
        if (!(fabsf(a - b) <= 2e-5f * (1 + fabsf(a)))) fail_msg("element %zu: want %g, got %g", i, (double)a, (double)b);
    }
    plan_destroy(p);
    ir_module_destroy(g->m);
    arena_deinit(&g->a);
    diag_deinit(&g->diag);
}

/* relu(x[b, s, K] w[K, N] + bias) + residual[b, s, N] */
static void matmul_case(enum dtype precision, int64_t rows, int64_t k, int64_t n, bool trans, const char *target, const char *schedule)
{
    struct graph g;
    graph_init(&g);
    const struct dim *s = dim_sym(g.m->dims, "s", 1, 512), *two = dim_const(g.m->dims, 2);
    const struct dim *xd[] = {two, s, dim_const(g.m->dims, k)}, *rd[] = {two, s, dim_const(g.m->dims, n)};
    int64_t wd[] = {trans ? n : k, trans ? k : n};
    g.m->precision = precision;
    struct ir_value *x = input(&g, "x", 3, xd), *r = input(&g, "r", 3, rd);
    struct ir_value *y = ir_build_matmul(&g.b, x, weight(&g, 1, 2, wd), false, trans, DT_NONE);
    y = ir_build_binary(&g.b, IR_OP_ADD, y, weight(&g, 2, 1, &n));
    y = ir_build_binary(&g.b, IR_OP_MAX, y, ir_build_scalar_f(&g.b, DT_F32, 0));
    check(&g, ir_build_binary(&g.b, IR_OP_ADD, y, r), &rows, target, schedule);
}

static void test_precisions(void **state)
{
    static const enum dtype all[] = {DT_F16, DT_BF16, DT_F8E4M3FN, DT_I8, DT_F32 /* tf32 */};
    (void)state;
    for (size_t i = 0; i < 5; i++) {
        matmul_case(all[i], 33, 96, 72, false, "sm89", "dot");  /* tails of rows and columns, whole steps or not */
        matmul_case(all[i], 32, 64, 64, true, "sm89", "dot");   /* none */
        matmul_case(all[i], 1, 16, 8, false, "sm90", "dot");    /* less than a tile in all directions */
        matmul_case(all[i], 70, 208, 130, false, "sm90", "dot");
    }
}

struct conv_case {
    int axes;
    int64_t batch, size[3], channels, out, taps[3], strides[3], dilations[3];
    bool bias;
};

/* relu(conv(x, w) + bias) + residual, channels-last, no padding */
static void conv_case(enum dtype precision, const struct conv_case *c, const char *target, const char *schedule)
{
    struct graph g;
    graph_init(&g);
    const struct dim *xd[5] = {dim_sym(g.m->dims, "n", 1, 64)}, *zero[6];
    int64_t sizes[4] = {c->batch}, wd[5] = {c->out, c->channels};
    const char *const names[] = {"h", "w", "d"};
    for (int i = 0; i < c->axes; i++) xd[1 + i] = dim_sym(g.m->dims, names[i], 16, 64), sizes[1 + i] = c->size[i], wd[2 + i] = c->taps[i];
    for (int i = 0; i < 6; i++) zero[i] = dim_const(g.m->dims, 0);
    xd[1 + c->axes] = dim_const(g.m->dims, c->channels);
    g.m->precision = precision;
    struct ir_value *operands[3] = {input(&g, "x", 2 + c->axes, xd), weight(&g, 1, 2 + c->axes, wd), c->bias ? weight(&g, 2, 1, &c->out) : NULL};
    struct ir_attr attrs[] = {ir_a_ints("strides", c->axes, c->strides), ir_a_ints("dilations", c->axes, c->dilations),
                              ir_a_dims("pads", 2 * c->axes, zero), ir_a_int("channels_last", 1)};
    struct ir_op *op = ir_build(&g.b, IR_OP_CONV, c->bias ? 3 : 2, operands, 4, attrs, 1);
    assert_non_null(op);
    struct ir_value *y = ir_build_binary(&g.b, IR_OP_MAX, &op->results[0], ir_build_scalar_f(&g.b, DT_F32, 0));
    struct ir_value *r = input(&g, "r", op->results[0].type.rank, op->results[0].type.dims);
    check(&g, ir_build_binary(&g.b, IR_OP_ADD, y, r), sizes, target, schedule);
}

static void test_convolutions(void **state)
{
    static const struct conv_case cases[] = {
        {2, 1, {16, 17}, 32, 64, {3, 3}, {1, 1}, {1, 1}, true},  /* taps of a row and channels are one run */
        {2, 2, {19, 16}, 64, 70, {3, 3}, {2, 2}, {1, 1}, false},
        {2, 1, {16, 16}, 8, 24, {5, 5}, {1, 1}, {1, 1}, true},   /* channels fill no step */
        {2, 3, {17, 16}, 40, 8, {3, 3}, {1, 2}, {1, 1}, true},
        {2, 1, {18, 20}, 32, 32, {3, 3}, {1, 1}, {2, 2}, true},  /* dilated: taps apart */
        {2, 1, {18, 20}, 32, 32, {3, 3}, {1, 1}, {2, 1}, false}, /* along the outer axis alone */
        {2, 1, {16, 16}, 16, 130, {1, 1}, {1, 1}, {1, 1}, true},
        {2, 1, {16, 16}, 32, 16, {16, 16}, {1, 1}, {1, 1}, true}, /* one pixel */
        {2, 1, {16, 33}, 96, 64, {1, 7}, {1, 3}, {1, 1}, false},
        {2, 1, {33, 16}, 32, 64, {7, 1}, {3, 1}, {1, 1}, false},
        {1, 2, {40}, 32, 64, {3}, {1}, {1}, true},
        {1, 1, {64}, 24, 20, {5}, {2}, {3}, true},
        {3, 1, {16, 16, 16}, 8, 16, {14, 3, 3}, {1, 4, 5}, {1, 1, 1}, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        conv_case(DT_F16, &cases[i], "sm80", "dot-conv");
        conv_case(DT_BF16, &cases[i], "sm90", "dot-conv");
        conv_case(DT_F32, &cases[i], "sm90", "dot-conv");
    }
    conv_case(DT_I8, &cases[1], "sm80", "dot-conv"); /* in f16: there is no row to scale */
    static const struct conv_case odd = {2, 1, {16, 16}, 3, 16, {3, 3}, {1, 1}, {1, 1}, true};
    conv_case(DT_F16, &odd, "sm80", "generic"); /* pixels of 6 bytes cannot be read in pieces of 16 */
}

/* K in parts: few rows by a slice a part, more rows with the same sums by a slice a tile. */
static void test_parts(void **state)
{
    (void)state;
    matmul_case(DT_F16, 1, 1536, 10, false, "sm90", "dot-merge");    /* fewer columns than a tile has */
    matmul_case(DT_BF16, 33, 1536, 72, true, "sm80", "dot-parts");   /* tails of rows and columns */
    matmul_case(DT_F8E4M3FN, 3, 2048, 64, false, "sm89", "dot-parts"); /* scales of rows and columns behind the sum */
    matmul_case(DT_I8, 2, 2048, 66, false, "sm80", "dot-parts");
    matmul_case(DT_F32, 5, 1024, 65, false, "sm80", "dot-parts");
    matmul_case(DT_F16, 2, 1536, 576, false, "sm90", "dot-parts");
    matmul_case(DT_F16, 33, 1536, 576, false, "sm90", "dot");        /* 66 rows are many to 9 panels */
    static const struct conv_case merged = {2, 1, {17, 16}, 256, 70, {3, 3}, {3, 3}, {1, 1}, true}, apart = {2, 1, {18, 16}, 512, 24, {3, 3}, {4, 4}, {2, 2}, false};
    conv_case(DT_F16, &merged, "sm90", "dot-conv-parts");
    conv_case(DT_BF16, &apart, "sm80", "dot-conv-parts");
    /* what a part has no room in, or what fills the GPU, is one product */
    matmul_case(DT_F16, 2, 208, 72, false, "sm90", "dot");
}

static bool lowers_in_parts(int64_t k, int64_t n, int64_t most_rows)
{
    struct graph g;
    graph_init(&g);
    const struct dim *xd[] = {dim_sym(g.m->dims, "s", 1, most_rows), dim_const(g.m->dims, k)};
    int64_t wd[] = {k, n};
    static const char *const names[] = {"y"};
    g.m->precision = DT_F16;
    struct ir_value *y = ir_build_matmul(&g.b, input(&g, "x", 2, xd), weight(&g, 1, 2, wd), false, false, DT_NONE);
    ir_func_set_outputs(g.f, 1, &y, names);
    assert_true(pass_precision(g.m, &g.diag) && pass_cse(g.m, &g.diag) && pass_group(g.m, &g.diag));
    struct plan *p = lower_module(g.m, target_find("sm90"), 1, &g.diag);
    assert_non_null(p);
    bool parts = has_schedule(p, "dot-parts");
    assert_int_equal(parts, has_schedule(p, "dot-merge"));
    assert_int_equal(has_schedule(p, "dot"), !parts || most_rows > 2048);
    plan_destroy(p);
    ir_module_destroy(g.m);
    arena_deinit(&g.a);
    diag_deinit(&g.diag);
    return parts;
}

/* The weights decide: a panel or few with a long K, whatever rows there may be; not enough K for two parts, or panels that fill the GPU. */
static void test_parts_chosen(void **state)
{
    (void)state;
    assert_true(lowers_in_parts(1536, 64, 1));
    assert_true(lowers_in_parts(1536, 64, 100000));
    assert_false(lowers_in_parts(96, 64, 1));
    assert_false(lowers_in_parts(224, 64, 1));    /* 7 steps */
    assert_false(lowers_in_parts(1520, 64, 1));   /* K ends within a step */
    assert_false(lowers_in_parts(512, 8448, 1));  /* 132 panels, one a multiprocessor */
}

static void test_refused_shapes(void **state)
{
    (void)state;
    matmul_case(DT_F16, 5, 20, 30, false, "sm80", "generic"); /* rows of 40 bytes cannot be read in pieces of 16 */
    matmul_case(DT_NONE, 5, 32, 30, false, "sm80", "generic");
}

/* A format that the architecture has no instruction for is computed without one. */
static void test_no_instruction(void **state)
{
    (void)state;
    matmul_case(DT_F8E4M3FN, 9, 64, 64, false, "sm80", "generic");
}

/* A weight beyond f16's range keeps its layer in f32. */
static void test_kept_wide(void **state)
{
    (void)state;
    struct graph g;
    graph_init(&g);
    int64_t wd[] = {16, 8}, rows = 3;
    const struct dim *xd[] = {dim_sym(g.m->dims, "n", 1, 64), dim_const(g.m->dims, 16)};
    g.m->precision = DT_F16;
    struct ir_value *x = input(&g, "x", 2, xd), *w = weight(&g, 1, 2, wd);
    ((float *)(uintptr_t)ir_value_const(w)->data)[5] = 70000;
    struct ir_value *y = ir_build_matmul(&g.b, x, w, false, false, DT_NONE);
    check(&g, y, &rows, "sm80", "generic");
}

/* Weights and activations of tf32 have 11 significant bits and are the nearest such number; what is too large stays as it is. */
static void test_tf32(void **state)
{
    (void)state;
    struct graph g;
    graph_init(&g);
    int64_t wd[] = {64, 8};
    const struct dim *xd[] = {dim_const(g.m->dims, 3), dim_const(g.m->dims, 64)};
    static const float hard[] = {0, 1e-42f, 1.00048828125f, 1.00048840045928955f, -3.0000002f, 1e38f, INFINITY, 65504};
    static const char *const names[] = {"y"};
    float data[3 * 64] = {0};
    memcpy(data, hard, sizeof hard);
    g.m->precision = DT_F32;
    struct ir_value *x = input(&g, "x", 2, xd), *w = weight(&g, 1, 2, wd);
    const float *before = ir_value_const(w)->data;
    struct ir_value *y = ir_build_matmul(&g.b, x, w, false, false, DT_NONE);
    ir_func_set_outputs(g.f, 1, &y, names);
    assert_true(pass_precision(g.m, &g.diag));
    const struct ir_op *mm = g.f->body->first;
    while (mm && mm->code != IR_OP_MATMUL) mm = mm->next;
    assert_non_null(mm);
    const float *after = ir_value_const(ir_operand(mm, 1))->data;
    for (int i = 0; i < 64 * 8; i++) {
        uint32_t bits;
        memcpy(&bits, &after[i], 4);
        assert_int_equal(bits & 0x1fff, 0);
        assert_true(fabsf(after[i] - before[i]) <= ldexpf(fabsf(before[i]), -11));
    }
    struct ir_value *rounded = ir_operand(mm, 0);
    ir_op_set_operand(g.f->body->last, 0, rounded); /* the result now */
    struct ir_tensor in = {.dtype = DT_F32, .rank = 2, .dims = {3, 64}, .data = data, .n_bytes = sizeof data}, out = {0};
    assert_true(ir_eval_func(g.f, &in, &out, &g.a, &g.diag));
    const float *got = out.data;
    static const float want[] = {0, 1e-42f, 1, 1.0009765625f, -3, 1e38f, INFINITY, 65504};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) assert_memory_equal(&got[i], &want[i], 4);
    ir_module_destroy(g.m);
    arena_deinit(&g.a);
    diag_deinit(&g.diag);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_precisions), cmocka_unit_test(test_convolutions), cmocka_unit_test(test_parts),
        cmocka_unit_test(test_parts_chosen), cmocka_unit_test(test_refused_shapes), cmocka_unit_test(test_no_instruction),
        cmocka_unit_test(test_kept_wide), cmocka_unit_test(test_tf32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
