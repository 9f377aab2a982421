// SPDX-License-Identifier: Apache-2.0
/*
 * Lowering against the reference evaluator: graphs are evaluated as tensor IR, then grouped, lowered for three levels, run
 * with the loop-IR evaluator (which checks every access), and compared. The two sides share no code.
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
#include "ir/plan_eval.h"
#include "ir/text.h"
#include "passes/group.h"
#include "passes/lower.h"
#include "passes/pass.h"
#include "runtime/abi/random.h"
#include "test_equiv.h"
#include "tests/unit/plan_races.h"

static const struct target_level levels[] = {
    {.name = "v2", .isa = INFR_ISA_V2, .vector_bytes = 16, .n_vector_regs = 16},
    {.name = "v3", .isa = INFR_ISA_V3, .vector_bytes = 32, .n_vector_regs = 16, .has_fma = true},
    {.name = "v4", .isa = INFR_ISA_V4, .vector_bytes = 64, .n_vector_regs = 32, .has_fma = true, .has_masks = true},
};
static const struct target test_target = {.name = "test", .levels = levels, .n_levels = 3};

struct graph {
    struct diag_sink diag;
    struct ir_module *m;
    struct ir_func *f;
    struct ir_builder b;
};

static void graph_init(struct graph *g)
{
    diag_init(&g->diag);
    g->m = ir_module_create("test", &g->diag);
    g->f = ir_func_create(g->m, "main");
    g->b = (struct ir_builder){.m = g->m, .block = g->f->body, .loc = ir_loc_make(g->m, "test:/node")};
}

static const struct dim *sym(struct graph *g, const char *name) { return dim_sym(g->m->dims, name, 1, 512); }
static const struct dim *cst(struct graph *g, int64_t v) { return dim_const(g->m->dims, v); }

static struct ir_value *input(struct graph *g, enum dtype t, int rank, const struct dim *const *dims)
{
    char name[16];
    snprintf(name, sizeof name, "in%d", g->f->n_inputs);
    return ir_func_add_input(g->f, name, ir_type_make(g->m, t, rank, dims));
}

static struct ir_value *weight(struct graph *g, int rank, const int64_t *dims)
{
    int64_t n = 1;
    for (int i = 0; i < rank; i++) n *= dims[i];
    float *data = ARENA_ARRAY(&g->m->arena, float, n);
    for (int64_t i = 0; i < n; i++) data[i] = (float)infr_random_float(7, (uint32_t)g->m->consts.n, (uint64_t)i);
    struct ir_const *c = ir_const_make(g->m, "w", ir_type_static(g->m, DT_F32, rank, dims), data, (size_t)n * 4, false);
    return ir_build_constant(&g->b, c);
}

static void random_fill(struct ir_tensor *t, uint32_t stream)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->dims[i];
    for (int64_t i = 0; i < n; i++) {
        if (t->dtype == DT_F32) ((float *)t->data)[i] = (float)infr_random_float(1, stream, (uint64_t)i);
        else if (t->dtype == DT_I64) ((int64_t *)t->data)[i] = infr_random_int(1, stream, (uint64_t)i, 5);
        else if (t->dtype == DT_BOOL) ((unsigned char *)t->data)[i] = infr_random_int(1, stream, (uint64_t)i, 2) != 0;
        else fail();
    }
}

static void compare(const struct ir_tensor *want, const struct ir_tensor *got)
{
    assert_int_equal(want->dtype, got->dtype);
    assert_int_equal(want->rank, got->rank);
    int64_t n = 1;
    for (int i = 0; i < want->rank; i++) {
        assert_int_equal(want->dims[i], got->dims[i]);
        n *= want->dims[i];
    }
    for (int64_t i = 0; i < n; i++) {
        if (want->dtype != DT_F32) {
            size_t e = dtype_bytes(want->dtype);
            assert_memory_equal((const char *)want->data + (size_t)i * e, (const char *)got->data + (size_t)i * e, e);
            continue;
        }
        float a = ((const float *)want->data)[i], b = ((const float *)got->data)[i];
        if (isnan(a) && isnan(b)) continue;
        if (!(fabsf(a - b) <= 2e-5f * (1 + fabsf(a)))) fail_msg("element %lld: want %g, got %g", (long long)i, (double)a, (double)b);
    }
}

static void read_const(const struct plan_buf *b, void *dst, size_t n)
{
    struct weight w = {.cst = b->cst, .pack = b->pack, .n_bytes = n};
    weight_read(&w, 0, dst, n);
}

/* Evaluates, lowers, runs on every level, compares. n_sizes values are given to the symbols in order. */
static void check_graph(struct graph *g, int n_out, struct ir_value *const *out, const int64_t *sizes, const char *schedule)
{
    if (g->diag.error_count) diag_print_text(&g->diag, stderr);
    for (int i = 0; i < n_out; i++) assert_non_null(out[i]);
    static const char *const names[] = {"out0", "out1", "out2", "out3"};
    ir_func_set_outputs(g->f, n_out, out, names);
    struct arena a;
    arena_init(&a);
    struct ir_tensor in[8] = {{0}}, want[4] = {{0}}, got[4] = {{0}};
    for (int i = 0; i < g->f->n_inputs; i++) {
        const struct ir_type *t = &g->f->body->args[i]->type;
        in[i].dtype = t->dtype, in[i].rank = t->rank, in[i].n_bytes = dtype_bytes(t->dtype);
        for (int k = 0; k < t->rank; k++) {
            assert_true(dim_eval(g->m->dims, t->dims[k], sizes, &in[i].dims[k]));
            in[i].n_bytes *= (size_t)in[i].dims[k];
        }
        in[i].data = arena_alloc(&a, in[i].n_bytes);
        random_fill(&in[i], (uint32_t)i);
    }
    bool ok = ir_eval_func(g->f, in, want, &a, &g->diag);
    if (!ok) diag_print_text(&g->diag, stderr);
    assert_true(ok);
    assert_true(pass_group(g->m, &g->diag));
    struct plan *p = lower_module(g->m, &test_target, 7, &g->diag);
    if (!p) diag_print_text(&g->diag, stderr);
    assert_non_null(p);
    if (schedule) assert_string_equal(p->kernels.v[0].schedule, schedule);
    char note[512];
    for (int l = 0; l < 3; l++)
        if (plan_races(p, levels[l].isa, sizes, note, sizeof note)) fail_msg("%s", note);
    for (int l = 0; l < 3; l++) {
        ok = plan_eval(p, levels[l].isa, in, got, read_const, &a, &g->diag);
        if (!ok) diag_print_text(&g->diag, stderr);
        assert_true(ok);
        for (int i = 0; i < n_out; i++) compare(&want[i], &got[i]);
    }
    plan_destroy(p);
    arena_deinit(&a);
    ir_module_destroy(g->m);
    diag_deinit(&g->diag);
}

static void test_pointwise_flat(void **state)
{
    (void)state;
    struct graph g;
    graph_init(&g);
    const struct dim *d[] = {sym(&g, "n"), cst(&g, 37)};
    struct ir_value *x = input(&g, DT_F32, 2, d), *y = input(&g, DT_F32, 2, d);
    struct ir_value *s = ir_build_binary(&g.b, IR_OP_ADD, ir_build_binary(&g.b, IR_OP_MUL, x, y), ir_build_scalar_f(&g.b, DT_F32, 0.5));
    struct ir_value *out = ir_build_binary(&g.b, IR_OP_MAX, s, ir_build_scalar_f(&g.b, DT_F32, 0));
    int64_t sizes[] = {101};
    check_graph(&g, 1, &out, sizes, "pointwise");
}

static void test_broadcast_diamond(void **state)
{
    (void)state;
    struct graph g;
    graph_init(&g);
    const struct dim *d[] = {sym(&g, "n"), cst(&g, 3), cst(&g, 29)}, *row[] = {cst(&g, 29)}, *col[] = {cst(&g, 3), cst(&g, 1)};
    struct ir_value *x = input(&g, DT_F32, 3, d), *r = input(&g, DT_F32, 1, row), *c = input(&g, DT_F32, 2, col);
    struct ir_value *s = ir_build_binary(&g.b, IR_OP_ADD, x, r);
    struct ir_value *t = ir_build_binary(&g.b, IR_OP_MUL, s, ir_build_unary(&g.b, IR_OP_SIGMOID, s)); /* diamond */
    struct ir_value *out = ir_build_binary(&g.b, IR_OP_SUB, t, c);
    int64_t sizes[] = {5};
    check_graph(&g, 1, &out, sizes, NULL);
}

/* x[m, k] w[k, n] + bias, erf; sizes with every kind of tail. */
static void matmul_case(int64_t m, int64_t k, int64_t n, bool symbolic)
{
    struct graph g;
    graph_init(&g);
    const struct dim *d[] = {symbolic ? sym(&g, "m") : cst(&g, m), cst(&g, k)};
    int64_t wd[] = {k, n}, bd[] = {n};
    struct ir_value *x = input(&g, DT_F32, 2, d);
    struct ir_value *y = ir_build_matmul(&g.b, x, weight(&g, 2, wd), false, false, DT_NONE);
    y = ir_build_binary(&g.b, IR_OP_ADD, y, weight(&g, 1, bd));
    y = ir_build_unary(&g.b, IR_OP_ERF, y);
    int64_t sizes[] = {m};
    check_graph(&g, 1, &y, sizes, "matmul");
}

static void test_matmul(void **state)
{
    (void)state;
    matmul_case(1, 5, 70, false);
    matmul_case(7, 16, 64, false);
    matmul_case(25, 3, 33, true);
    matmul_case(97, 8, 17, true);
    matmul_case(200, 2, 5, true);
    matmul_case(4, 9, 130, true);
    matmul_case(300, 5, 96, true);
    matmul_case(61, 7, 85, false);
    matmul_case(489, 3, 130, true); /* several walks over the panels, of unlike length */
    matmul_case(620, 4, 70, false);
}

static void test_matmul_batch_flat(void **state)
{
    (void)state;
    struct graph g;
    graph_init(&g);
    const struct dim *d[] = {sym(&g, "b"), sym(&g, "s"), cst(&g, 12)}, *e[] = {d[0], d[1], cst(&g, 40)};
    int64_t wd[] = {12, 40}, bd[] = {40};
    struct ir_value *x = input(&g, DT_F32, 3, d), *res = input(&g, DT_F32, 3, e);
    struct ir_value *y = ir_build_matmul(&g.b, x, weight(&g, 2, wd), false, false, DT_NONE);
    y = ir_build_binary(&g.b, IR_OP_ADD, ir_build_binary(&g.b, IR_OP_ADD, y, weight(&g, 1, bd)), res);
    int64_t sizes[] = {3, 11};
    check_graph(&g, 1, &y, sizes, "matmul");
}

static void test_matmul_dynamic(void **state)
{
    (void)state;
    struct graph g;
    graph_init(&g);
    const struct dim *a[] = {sym(&g, "b"), cst(&g, 2), sym(&g, "s"), cst(&g, 8)}, *b[] = {a[0], cst(&g, 2), cst(&g, 8), a[2]};
    struct ir_value *x = input(&g, DT_F32, 4, a), *y = input(&g, DT_F32, 4, b);
    struct ir_value *z = ir_build_matmul(&g.b, x, y, false, false, DT_NONE);
    z = ir_build_binary(&g.b, IR_OP_MUL, z, ir_build_scalar_f(&g.b, DT_F32, 0.125));
    int64_t sizes[] = {2, 19};
    check_graph(&g, 1, &z, sizes, "matmul-dynamic");
}

/* a[2, m, k] b[2 or 1, k, n], both inputs: a panel of b is copied where enough rows use it. A symbol is worth what stands for it. */
static void staged_case(int64_t m, int64_t k, int64_t n, bool symbolic_m, bool symbolic_n, bool one_b)
{
    struct graph g;
    graph_init(&g);
    const struct dim *a[] = {cst(&g, 2), symbolic_m ? sym(&g, "m") : cst(&g, m), cst(&g, k)};
    const struct dim *b[] = {cst(&g, one_b ? 1 : 2), cst(&g, k), symbolic_n ? sym(&g, "n") : cst(&g, n)};
    struct ir_value *x = input(&g, DT_F32, 3, a), *y = input(&g, DT_F32, 3, b);
    struct ir_value *z = ir_build_unary(&g.b, IR_OP_NEG, ir_build_matmul(&g.b, x, y, false, false, DT_NONE));
    int64_t sizes[] = {symbolic_m ? m : n, n};
    check_graph(&g, 1, &z, sizes, "matmul-dynamic");
}

static void test_matmul_staged(void **state)
{
    (void)state;
    staged_case(100, 90, 130, false, false, false); /* a narrow last panel */
    staged_case(49, 128, 100, false, false, true);
    staged_case(290, 66, 128, false, false, false); /* two blocks of rows */
    staged_case(300, 130, 70, true, false, false);
    staged_case(20, 130, 70, true, false, true); /* too few rows */
    staged_case(60, 128, 37, false, true, false);
    staged_case(60, 128, 37, true, true, true);
}

static void test_matmul_trans_b_const(void **state)
{
    (void)state;
    struct graph g;
    graph_init(&g);
    const struct dim *d[] = {sym(&g, "m"), cst(&g, 11)};
    int64_t wd[] = {21, 11};
    struct ir_value *x = input(&g, DT_F32, 2, d);
    struct ir_value *y = ir_build_matmul(&g.b, x, weight(&g, 2, wd), false, true, DT_NONE);
    int64_t sizes[] = {13};
    check_graph(&g, 1, &y, sizes, "matmul");
}

static void row_case(enum ir_opcode code, bool epilogue)
{
    struct graph g;
    graph_init(&g);
    const struct dim *d[] = {sym(&g, "b"), cst(&g, 3), sym(&g, "n")};
    struct ir_value *x = input(&g, DT_F32, 3, d);
    x = ir_build_binary(&g.b, IR_OP_MUL, x, ir_build_scalar_f(&g.b, DT_F32, 3));
    struct ir_attr attrs[] = {ir_a_int("axis", 2), ir_a_float("eps", 1e-5)};
    struct ir_op *op = ir_build(&g.b, code, 1, &x, code == IR_OP_SOFTMAX || code == IR_OP_LOG_SOFTMAX ? 1 : 2, attrs, 1);
    struct ir_value *y = &op->results[0];
    if (epilogue) y = ir_build_unary(&g.b, IR_OP_NEG, y);
    int64_t sizes[] = {2, 21};
    check_graph(&g, 1, &y, sizes, "rows");
}

static void test_rows(void **state)
{
    (void)state;
    row_case(IR_OP_SOFTMAX, false);
    row_case(IR_OP_SOFTMAX, true);
    row_case(IR_OP_LOG_SOFTMAX, false);
    row_case(IR_OP_LAYER_NORM, true);
    row_case(IR_OP_RMS_NORM, false);
}

static void test_moves(void **state)
{
    (void)state;
    struct graph g;
    graph_init(&g);
    const struct dim *d[] = {sym(&g, "b"), sym(&g, "s"), cst(&g, 6)};
    struct ir_value *x = input(&g, DT_F32, 3, d);
    const int64_t perm[] = {1, 0, 2};
    struct ir_value *t = ir_build_transpose(&g.b, ir_build_unary(&g.b, IR_OP_EXP, x), perm);
    const struct dim *flat[] = {dim_mul(g.m->dims, d[0], d[1]), cst(&g, 3), cst(&g, 2)};
    struct ir_value *r = ir_build_reshape(&g.b, t, 3, flat);
    struct ir_value *two[] = {r, r};
    struct ir_value *c = ir_build_concat(&g.b, 2, two, 1);
    const int64_t axes[] = {0, 2};
    struct ir_value *red = ir_build_reduce(&g.b, IR_OP_REDUCE_MAX, c, 2, axes, false);
    struct ir_value *outs[] = {c, red, r};
    int64_t sizes[] = {4, 9};
    check_graph(&g, 3, outs, sizes, NULL);
}

static void test_conv_pool(void **state)
{
    (void)state;
    struct graph g;
    graph_init(&g);
    const struct dim *d[] = {sym(&g, "b"), cst(&g, 4), sym(&g, "h"), cst(&g, 9)};
    int64_t wd[] = {6, 2, 3, 3}, bd[] = {6}, strides[] = {2, 1}, dil[] = {1, 2}, kernel[] = {2, 2}, one[] = {1, 1};
    const struct dim *pads[] = {cst(&g, 1), cst(&g, 2), cst(&g, 1), cst(&g, 0)};
    struct ir_value *ops[] = {input(&g, DT_F32, 4, d), weight(&g, 4, wd), weight(&g, 1, bd)};
    struct ir_attr attrs[] = {ir_a_ints("strides", 2, strides), ir_a_ints("dilations", 2, dil), ir_a_dims("pads", 4, pads), ir_a_int("groups", 2)};
    struct ir_op *conv = ir_build(&g.b, IR_OP_CONV, 3, ops, 4, attrs, 1);
    assert_non_null(conv);
    struct ir_value *y = ir_build_binary(&g.b, IR_OP_MAX, &conv->results[0], ir_build_scalar_f(&g.b, DT_F32, 0));
    const struct dim *zero[] = {cst(&g, 0), cst(&g, 0), cst(&g, 0), cst(&g, 0)};
    const struct dim *out[] = {dim_addc(g.m->dims, y->type.dims[2], -1), dim_addc(g.m->dims, y->type.dims[3], -1)};
    struct ir_attr pa[] = {ir_a_ints("kernel", 2, kernel), ir_a_ints("strides", 2, one), ir_a_ints("dilations", 2, one), ir_a_dims("pads", 4, zero), ir_a_dims("output", 2, out)};
    struct ir_op *mp = ir_build(&g.b, IR_OP_POOL_MAX, 1, &y, 5, pa, 2), *ap = ir_build(&g.b, IR_OP_POOL_AVG, 1, &y, 5, pa, 1);
    struct ir_value *outs[] = {&mp->results[0], &mp->results[1], &ap->results[0]};
    int64_t sizes[] = {2, 10};
    check_graph(&g, 3, outs, sizes, NULL);
}

struct conv_shape {
    int64_t x[4], w[4], stride; /* x: channels last; 0: a symbol */
};

/* relu(conv + bias) over a channels-last image; a symbol is worth 9. */
static void conv_case(const struct conv_shape *s)
{
    struct graph g;
    graph_init(&g);
    const struct dim *d[4], *h = NULL;
    for (int i = 0; i < 4; i++) {
        if (!s->x[i] && !h) h = sym(&g, "h");
        d[i] = s->x[i] ? cst(&g, s->x[i]) : h;
    }
    int64_t strides[] = {s->stride, s->stride}, bd[] = {s->w[0]};
    struct ir_value *ops[] = {input(&g, DT_F32, 4, d), weight(&g, 4, s->w), weight(&g, 1, bd)};
    struct ir_attr attrs[] = {ir_a_ints("strides", 2, strides), ir_a_int("groups", s->x[3] / s->w[1]), ir_a_int("channels_last", 1)};
    struct ir_op *conv = ir_build(&g.b, IR_OP_CONV, 3, ops, 3, attrs, 1);
    assert_non_null(conv);
    struct ir_value *y = ir_build_binary(&g.b, IR_OP_MAX, &conv->results[0], ir_build_scalar_f(&g.b, DT_F32, 0));
    int64_t sizes[] = {9};
    bool depthwise = s->w[1] == 1 && s->w[0] == s->x[3];
    check_graph(&g, 1, &y, sizes, depthwise ? "conv-depthwise" : "conv");
}

/* Tiles over several short rows, with and without rows left over; images of one column, in blocks; one pixel. */
static void test_conv_tiles(void **state)
{
    (void)state;
    static const struct conv_shape shapes[] = {
        {{1, 9, 9, 5}, {40, 5, 3, 3}, 1}, {{2, 8, 9, 4}, {20, 4, 3, 3}, 1},  {{1, 7, 5, 8}, {12, 4, 3, 3}, 1},
        {{1, 0, 6, 3}, {35, 3, 3, 3}, 1}, {{1, 15, 9, 3}, {8, 3, 3, 3}, 2},  {{1, 300, 1, 3}, {33, 3, 4, 1}, 1},
        {{2, 0, 1, 6}, {10, 3, 2, 1}, 1},  {{2, 0, 1, 6}, {10, 3, 7, 1}, 1}, {{1, 1, 260, 2}, {17, 2, 1, 3}, 2}, {{1, 3, 3, 7}, {10, 7, 3, 3}, 1},
        {{1, 5, 4, 600}, {18, 600, 2, 3}, 1}, {{2, 20, 60, 2}, {40, 2, 3, 3}, 1}, {{1, 0, 70, 4}, {66, 2, 3, 3}, 1},
    };
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) conv_case(&shapes[i]);
}

/* One channel a group: whole vectors of channels, some left over, taps in a row that are too many to unroll. */
static void test_conv_depthwise(void **state)
{
    (void)state;
    static const struct conv_shape shapes[] = {
        {{1, 6, 9, 64}, {64, 1, 3, 3}, 1}, {{2, 0, 12, 40}, {40, 1, 2, 3}, 2}, {{1, 5, 20, 7}, {7, 1, 3, 9}, 1},
        {{1, 9, 8, 96}, {96, 1, 7, 7}, 1}, {{1, 300, 1, 17}, {17, 1, 5, 1}, 1},
    };
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) conv_case(&shapes[i]);
}

/* Padded images: a copy, what lies between copy and image, an empty image, sizes that a call knows. */
static void test_pad(void **state)
{
    (void)state;
    static const char *const values[] = {"%x", "%e", "%t", "%c"};
    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        char text[1024];
        snprintf(text, sizeof text,
                 "model \"t\" { sym n in [1, 4]\n sym h in [0, 9]\n"
                 "func @main(%%x: f32[n, h, 3, 5], %%u: f32[n, 3, h, 5]) -> (y: f32[n, h + 3, 5, 5]) {\n"
                 " %%e = exp %%x\n %%t = transpose %%u perm=[0, 2, 1, 3]\n %%a = abs %%t\n %%c = add %%a, %%x\n"
                 " %%y = pad %s lo=(0, 1, 2, 0) hi=(0, 2, 0, 0)\n return %%y\n} }\n", values[i]);
        for (int64_t h = 0; h < 8; h += 7) {
            struct equiv e;
            equiv_init(&e);
            int64_t sizes[] = {2, h};
            equiv_start_text(&e, text, 2, sizes);
            assert_true(pass_dce(e.m, &e.diag) && pass_group(e.m, &e.diag) && pass_dce(e.m, &e.diag));
            equiv_check_plan(&e, "pad");
            equiv_end(&e);
        }
    }
}

static void test_output_is_input_and_twice(void **state)
{
    (void)state;
    struct graph g;
    graph_init(&g);
    const struct dim *d[] = {sym(&g, "n")};
    struct ir_value *x = input(&g, DT_F32, 1, d), *y = ir_build_unary(&g.b, IR_OP_ABS, x);
    struct ir_value *outs[] = {x, y, y};
    int64_t sizes[] = {6};
    check_graph(&g, 3, outs, sizes, NULL);
}

/* A branch's ops become groups of the branch, once. */
static void test_if(void **state)
{
    (void)state;
    static const char text[] =
        "model \"t\" { sym n in [1, 64]\n func @main(%x: f32[n, 3], %c: bool[]) -> (y: f32[n, 3], z: f32[n]) {\n"
        " %e = exp %x\n"
        " %a, %b = if %c {\n %s = reduce_sum %e axes=[1]\n %t = sub %e, %x\n yield %t, %s\n } {\n"
        " %m = reduce_max %x axes=[1]\n yield %e, %m\n }\n return %a, %b\n} }\n";
    for (int c = 0; c < 2; c++) {
        struct equiv e;
        equiv_init(&e);
        e.seed = 3 + (uint64_t)c; /* the condition differs */
        int64_t sizes[] = {5};
        equiv_start_text(&e, text, 1, sizes);
        assert_true(pass_group(e.m, &e.diag));
        equiv_check_plan(&e, NULL);
        equiv_end(&e);
    }
}

/*
 * A branch's check holds no matter where it stands and what else is dead or equal; it reaches the plan, ahead of the branch's
 * launches, and fails the run only when its branch is taken.
 */
static void test_branch_check(void **state)
{
    (void)state;
    static const char text[] =
        "model \"t\" { sym n in [1, 64]\n func @main(%x: f32[n, 3], %c: bool[]) -> (y: f32[n, 3]) {\n"
        " %a = if %c {\n %t = exp %x\n check a=(n) b=(5) is_le=1 message=\"at most five\"\n yield %t\n } {\n"
        " check a=(2 * n) b=(12) message=\"six\"\n %m = abs %x\n yield %m\n }\n return %a\n} }\n";
    for (int run = 0; run < 6; run++) {
        struct diag_sink diag;
        struct arena a;
        diag_init(&diag);
        arena_init(&a);
        struct ir_module *m = ir_parse_module(text, strlen(text), "t.ir", NULL, 0, &diag);
        assert_non_null(m);
        assert_true(pass_cse(m, &diag) && pass_dce(m, &diag) && pass_group(m, &diag) && pass_dce(m, &diag));
        struct plan *p = lower_module(m, &test_target, 7, &diag);
        assert_non_null(p);
        const struct plan_step *branch = &p->entry->steps.v[0];
        assert_int_equal(branch->kind, INFR_STEP_IF);
        assert_int_equal(branch->then_block->steps.v[0].kind, INFR_STEP_CHECK);
        assert_int_equal(branch->else_block->steps.v[0].kind, INFR_STEP_CHECK);
        float x[3 * 7] = {0};
        unsigned char c = run < 3;
        int n = run % 3 + 5; /* 5, 6, 7 */
        struct ir_tensor in[2] = {{.dtype = DT_F32, .rank = 2, .dims = {n, 3}, .data = x, .n_bytes = (size_t)n * 12},
                                  {.dtype = DT_BOOL, .data = &c, .n_bytes = 1}};
        struct ir_tensor out[1] = {{0}};
        assert_int_equal(plan_eval(p, INFR_ISA_V2, in, out, read_const, &a, &diag), c ? n <= 5 : n == 6);
        plan_destroy(p);
        ir_module_destroy(m);
        arena_deinit(&a);
        diag_deinit(&diag);
    }
}

/* A group made by hand whose results have different shapes. */
static void test_group_of_shapes(void **state)
{
    (void)state;
    static const char text[] =
        "model \"t\" { sym n in [1, 64]\n func @main(%x: f32[n, 3]) -> (y: f32[3, n], z: f32[n], s: f32[]) {\n"
        " %a, %b, %c = group %x {(%v: f32[n, 3])\n %t = transpose %v perm=[1, 0]\n %s = reduce_sum %v axes=[1]\n"
        " %r = reduce_max %v axes=[0, 1]\n yield %t, %s, %r\n }\n return %a, %b, %c\n} }\n";
    struct equiv e;
    equiv_init(&e);
    int64_t sizes[] = {7};
    equiv_start_text(&e, text, 1, sizes);
    equiv_check_plan(&e, "generic");
    equiv_end(&e);
}

/* The same op in both layouts, by evaluator and kernels: outputs 0 and 1, 2 and 3, .. are equal. */
static void test_channels_last(void **state)
{
    (void)state;
    static const char *const ops[] = {
        "conv %%%s, %%wc strides=[1, 2] dilations=[2, 1] groups=2 pads=(1, 0, 0, 1)%s",
        "pool_avg %%%s kernel=[2, 3] strides=[1, 1] dilations=[1, 1] pads=(1, 0, 0, 0) output=(3, 2) count_include_pad=1%s",
    };
    for (size_t k = 0; k < ARRAY_LEN(ops); k++) {
        char text[2048], first[256], last[256];
        static const char *const types[] = {"f32[n, 6, 2, 2]", "f32[n, 4, 3, 2]"};
        snprintf(first, sizeof first, ops[k], "x", "");
        snprintf(last, sizeof last, ops[k], "t", " channels_last=1");
        snprintf(text, sizeof text,
                 "model \"t\" { sym n in [1, 4]\n"
                 "func @main(%%x: f32[n, 4, 3, 4], %%wc: f32[6, 2, 2, 2]) -> (y: %s, z: %s) {\n"
                 " %%t = transpose %%x perm=[0, 2, 3, 1]\n %%c = %s\n %%y = transpose %%c perm=[0, 3, 1, 2]\n %%z = %s\n return %%y, %%z\n} }\n",
                 types[k], types[k], last, first);
        struct equiv e;
        equiv_init(&e);
        int64_t sizes[] = {2};
        equiv_start_text(&e, text, 1, sizes);
        assert_memory_equal(e.want[0].data, e.want[1].data, e.want[0].n_bytes);
        assert_true(pass_group(e.m, &e.diag));
        equiv_check_plan(&e, NULL);
        equiv_end(&e);
    }
}

static void test_channels_last_index(void **state)
{
    (void)state;
    static const char text[] =
        "model \"t\" { func @main(%x: f32[2, 3, 4, 5]) -> (y: i64[2, 3, 3, 4], z: i64[2, 3, 3, 4], u: f32[2, 3, 3, 4], v: f32[2, 3, 3, 4]) {\n"
        " %t = transpose %x perm=[0, 2, 3, 1]\n"
        " %a, %i = pool_max %t kernel=[2, 2] strides=[1, 1] dilations=[1, 1] output=(3, 4) channels_last=1\n"
        " %y = transpose %i perm=[0, 3, 1, 2]\n %u = transpose %a perm=[0, 3, 1, 2]\n"
        " %v, %z = pool_max %x kernel=[2, 2] strides=[1, 1] dilations=[1, 1] output=(3, 4)\n return %y, %z, %u, %v\n} }\n";
    struct equiv e;
    equiv_init(&e);
    equiv_start_text(&e, text, 0, NULL);
    assert_memory_equal(e.want[0].data, e.want[1].data, e.want[0].n_bytes);
    assert_memory_equal(e.want[2].data, e.want[3].data, e.want[2].n_bytes);
    assert_true(pass_group(e.m, &e.diag));
    equiv_check_plan(&e, NULL);
    equiv_end(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pointwise_flat), cmocka_unit_test(test_broadcast_diamond), cmocka_unit_test(test_matmul),
        cmocka_unit_test(test_matmul_batch_flat), cmocka_unit_test(test_matmul_dynamic), cmocka_unit_test(test_matmul_staged), cmocka_unit_test(test_matmul_trans_b_const),
        cmocka_unit_test(test_rows), cmocka_unit_test(test_moves), cmocka_unit_test(test_conv_pool), cmocka_unit_test(test_conv_tiles), cmocka_unit_test(test_conv_depthwise), cmocka_unit_test(test_pad),
        cmocka_unit_test(test_output_is_input_and_twice), cmocka_unit_test(test_if), cmocka_unit_test(test_branch_check), cmocka_unit_test(test_group_of_shapes),
        cmocka_unit_test(test_channels_last), cmocka_unit_test(test_channels_last_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
