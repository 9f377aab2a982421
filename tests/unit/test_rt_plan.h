// SPDX-License-Identifier: Apache-2.0
/*
 * A plan written by hand for tests of the runtime, with kernels in C:
 *
 *     launch 0   t[n,4] = x[n,3] * w + b      n slices
 *     launch 1   y = relu(t)                  n slices, no barrier: slices agree
 *     launch 2   s[] = sum of y               1 slice
 *     if flip
 *       launch 3 u = -y                       4n slices, claimed 3 at a time
 *     else
 *       launch 4 u = y
 *     launch 5   z = u reversed               4n slices
 *
 * Inputs x f32[n,3] (n from 1 to 1000), flip bool[]; outputs y f32[n,4], s f32[], z f32[4*n], x
 * again, y again.
 */
#ifndef INFC_TESTS_UNIT_TEST_RT_PLAN_H
#define INFC_TESTS_UNIT_TEST_RT_PLAN_H

#include <stdlib.h>
#include <string.h>

#include "runtime/abi/engine_format.h"
#include "runtime/abi/kernel.h"

static const float tp_weights[] = {
    1, 2, 3, 4, 5, -6, 7, 8, 9, 10, -11, 12, /* w: [3,4] */
    0, 0, 0, 0,                              /* to 64 bytes */
    1, 2, -3, -4,                            /* b */
};

static void tp_affine(void *const *bufs, const int64_t *dims, int64_t begin, int64_t end,
                      void *scratch)
{
    const float *x = bufs[0], *w = bufs[1], *b = bufs[2];
    float *t = bufs[3];
    (void)dims;
    (void)scratch;
    for (int64_t i = begin; i < end; i++)
        for (int j = 0; j < 4; j++)
            t[4 * i + j] =
                x[3 * i] * w[j] + x[3 * i + 1] * w[4 + j] + x[3 * i + 2] * w[8 + j] + b[j];
}

static void tp_relu(void *const *bufs, const int64_t *dims, int64_t begin, int64_t end,
                    void *scratch)
{
    const float *t = bufs[0];
    float *y = bufs[1];
    (void)dims;
    memset(scratch, 1, 100); /* it is ours */
    for (int64_t i = 4 * begin; i < 4 * end; i++) y[i] = t[i] > 0 ? t[i] : 0;
}

static void tp_sum(void *const *bufs, const int64_t *dims, int64_t begin, int64_t end,
                   void *scratch)
{
    const float *y = bufs[0];
    double sum = 0;
    (void)scratch;
    if (begin == end) return;
    for (int64_t i = 0; i < 4 * dims[0]; i++) sum += (double)y[i];
    *(float *)bufs[1] = (float)sum;
}

static void tp_negate(void *const *bufs, const int64_t *dims, int64_t begin, int64_t end,
                      void *scratch)
{
    (void)dims;
    (void)scratch;
    for (int64_t i = begin; i < end; i++) ((float *)bufs[1])[i] = -((const float *)bufs[0])[i];
}

static void tp_copy(void *const *bufs, const int64_t *dims, int64_t begin, int64_t end,
                    void *scratch)
{
    (void)dims;
    (void)scratch;
    for (int64_t i = begin; i < end; i++) ((float *)bufs[1])[i] = ((const float *)bufs[0])[i];
}

static void tp_reverse(void *const *bufs, const int64_t *dims, int64_t begin, int64_t end,
                       void *scratch)
{
    (void)scratch;
    for (int64_t i = begin; i < end; i++)
        ((float *)bufs[1])[i] = ((const float *)bufs[0])[4 * dims[0] - 1 - i];
}

enum { TP_KERNELS = 6, TP_ROWS = 32 };

/* Row numbers of the dim program. */
enum { TP_N, TP_C1, TP_C3, TP_C4, TP_C12, TP_C16, TP_C48, TP_4N, TP_12N, TP_16N, TP_DIMS };

struct test_plan {
    struct infr_header h;
    struct infr_dim dims[TP_ROWS];
    struct infr_symbol symbols[1];
    struct infr_io inputs[2], outputs[5];
    struct infr_check checks[3];
    struct infr_buf bufs[9];
    struct infr_arg args[TP_ROWS];
    struct infr_launch launches[6];
    struct infr_step steps[8];
    struct infr_block blocks[3];
    struct infr_kernel kernels[TP_KERNELS];
    struct infr_golden goldens[1];
    struct infr_golden_output golden_outputs[5];
    uint32_t pool_u32[TP_ROWS];
    int64_t pool_i64[1];
    double pool_f64[TP_ROWS];
    char strings[1024];
};

static infr_str tp_string(struct test_plan *p, uint32_t *at, const char *s)
{
    infr_str offset = (infr_str)(offsetof(struct test_plan, strings) + *at);
    strcpy(p->strings + *at, s);
    *at += (uint32_t)strlen(s) + 1;
    return offset;
}

static void tp_launch(struct test_plan *p, uint32_t i, uint32_t slices, uint32_t claim,
                      uint32_t barrier, uint32_t first_arg, uint32_t n_args)
{
    struct infr_launch *l = &p->launches[i];
    l->kernel = i, l->args = first_arg, l->n_args = n_args, l->dims = 0, l->n_dims = 1;
    for (int v = 0; v < INFR_ISA_COUNT; v++) l->slices[v] = v == INFR_ISA_V2 ? slices : INFR_NONE;
    l->claim = claim, l->barrier = barrier, l->flops = TP_4N, l->bytes = INFR_NONE;
}

#define TP_TABLE(field)                                                                         \
    (struct infr_table)                                                                         \
    {                                                                                           \
        offsetof(struct test_plan, field), sizeof p->field / sizeof *p->field, sizeof *p->field \
    }

/* The whole struct is the blob. */
static void tp_init(struct test_plan *p)
{
    static const struct infr_dim dims[TP_DIMS] = {
        [TP_N] = {INFR_DIM_SYM, 0, 0, 0, 0},
        [TP_C1] = {INFR_DIM_CONST, 0, 0, 0, 1},
        [TP_C3] = {INFR_DIM_CONST, 0, 0, 0, 3},
        [TP_C4] = {INFR_DIM_CONST, 0, 0, 0, 4},
        [TP_C12] = {INFR_DIM_CONST, 0, 0, 0, 12},
        [TP_C16] = {INFR_DIM_CONST, 0, 0, 0, 16},
        [TP_C48] = {INFR_DIM_CONST, 0, 0, 0, 48},
        [TP_4N] = {INFR_DIM_MUL, TP_N, TP_C4, 0, 0},
        [TP_12N] = {INFR_DIM_MUL, TP_N, TP_C12, 0, 0},
        [TP_16N] = {INFR_DIM_MUL, TP_N, TP_C16, 0, 0},
    };
    /* x flip y s z w b t u */
    static const struct infr_buf bufs[9] = {
        {INFR_BUF_INPUT, DT_F32, TP_12N, 0, 0, 0, 0, 0},
        {INFR_BUF_INPUT, DT_BOOL, TP_C1, 1, 0, 0, 0, 0},
        {INFR_BUF_OUTPUT, DT_F32, TP_16N, 0, 0, 0, 0, 0},
        {INFR_BUF_OUTPUT, DT_F32, TP_C4, 1, 0, 0, 0, 0},
        {INFR_BUF_OUTPUT, DT_F32, TP_16N, 2, 0, 0, 0, 0},
        {INFR_BUF_CONST, DT_F32, TP_C48, 0, 0, 48, 0, 0},
        {INFR_BUF_CONST, DT_F32, TP_C16, 0, 64, 16, 0, 0},
        {INFR_BUF_ARENA, DT_F32, TP_16N, 0, 0, 0, 0, 1},
        {INFR_BUF_ARENA, DT_F32, TP_16N, 0, 0, 0, 3, 5},
    };
    static const uint32_t args[] = {
        0, 5, 6, 7, /**/ 7, 2, /**/ 2, 3, /**/ 2, 8, /**/ 2, 8, /**/ 8, 4,
    };
    static const uint32_t pool[] = {TP_N, TP_N, TP_C3, TP_N, TP_C4, TP_4N};
    static const struct infr_step steps[8] = {
        {INFR_STEP_LAUNCH, 3, 0, 0}, {INFR_STEP_LAUNCH, 4, 0, 0}, {INFR_STEP_LAUNCH, 0, 0, 0},
        {INFR_STEP_LAUNCH, 1, 0, 0}, {INFR_STEP_LAUNCH, 2, 0, 0}, {INFR_STEP_IF, 1, 0, 1},
        {INFR_STEP_LAUNCH, 5, 0, 0}, {INFR_STEP_LAUNCH, 0, 0, 0}};
    static const struct infr_block blocks[3] = {{0, 1}, {1, 1}, {2, 5}};
    static const char *const names[] = {"affine", "relu", "sum", "negate", "copy", "reverse"};
    uint32_t at = 0;
    memset(p, 0, sizeof *p);
    memcpy(p->dims, dims, sizeof dims);
    memcpy(p->bufs, bufs, sizeof bufs);
    for (size_t i = 0; i < sizeof args / sizeof *args; i++)
        p->args[i] = (struct infr_arg){args[i], INFR_NONE};
    memcpy(p->pool_u32, pool, sizeof pool);
    memcpy(p->steps, steps, sizeof steps);
    memcpy(p->blocks, blocks, sizeof blocks);
    tp_launch(p, 0, TP_N, 0, 0, 0, 4);
    tp_launch(p, 1, TP_N, 0, 0, 4, 2);
    tp_launch(p, 2, TP_C1, 0, 1, 6, 2);
    tp_launch(p, 3, TP_4N, 3, 1, 8, 2);
    tp_launch(p, 4, TP_4N, 0, 1, 10, 2);
    tp_launch(p, 5, TP_4N, 0, 1, 12, 2);
    p->symbols[0] = (struct infr_symbol){tp_string(p, &at, "n"), 0, 0, 0, 1, 1000};
    p->inputs[0] = (struct infr_io){tp_string(p, &at, "x"), DT_F32, 2, 1, 0, 0, 0, 0};
    p->inputs[1] = (struct infr_io){tp_string(p, &at, "flip"), DT_BOOL, 0, 0, 1, 0, 0, 0};
    p->outputs[0] = (struct infr_io){tp_string(p, &at, "y"), DT_F32, 2, 3, 2, 0, 0, 0};
    p->outputs[1] = (struct infr_io){tp_string(p, &at, "s"), DT_F32, 0, 0, 3, 0, 0, 0};
    p->outputs[2] = (struct infr_io){tp_string(p, &at, "z"), DT_F32, 1, 5, 4, 0, 0, 0};
    p->outputs[3] = (struct infr_io){tp_string(p, &at, "x_again"), DT_F32, 2, 1, 0, 0, 0, 0};
    p->outputs[4] = (struct infr_io){tp_string(p, &at, "y_again"), DT_F32, 2, 3, 2, 0, 0, 0};
    p->checks[0] = (struct infr_check){TP_N, TP_4N, 1, tp_string(p, &at, "n is not negative")};
    for (uint32_t k = 0; k < TP_KERNELS; k++) {
        p->kernels[k] = (struct infr_kernel){.symbol = tp_string(p, &at, names[k]),
                                             .isa_mask = 1,
                                             .scratch_bytes = k == 1 ? 100 : 0};
        p->launches[k].name = p->kernels[k].symbol;
        p->launches[k].loc = tp_string(p, &at, "hand:/node");
    }
    p->h = (struct infr_header){.magic = INFR_MAGIC,
                                .header_bytes = sizeof p->h,
                                .major = INFR_VERSION_MAJOR,
                                .minor = INFR_VERSION_MINOR,
                                .blob_bytes = sizeof *p,
                                .weights_bytes = sizeof tp_weights,
                                .isa_mask = 1,
                                .entry_block = 2};
    p->h.model_name = tp_string(p, &at, "hand");
    p->h.compiler_version = tp_string(p, &at, "0.0");
    p->h.manifest = tp_string(p, &at, "{}");
    p->h.dims = TP_TABLE(dims), p->h.dims.count = TP_DIMS;
    p->h.symbols = TP_TABLE(symbols), p->h.inputs = TP_TABLE(inputs),
    p->h.outputs = TP_TABLE(outputs), p->h.checks = TP_TABLE(checks), p->h.checks.count = 1;
    p->h.bufs = TP_TABLE(bufs), p->h.launches = TP_TABLE(launches), p->h.steps = TP_TABLE(steps),
    p->h.blocks = TP_TABLE(blocks);
    p->h.args = TP_TABLE(args), p->h.args.count = sizeof args / sizeof *args;
    p->h.kernels = TP_TABLE(kernels), p->h.pool_u32 = TP_TABLE(pool_u32),
    p->h.pool_u32.count = sizeof pool / sizeof *pool;
    p->h.goldens = TP_TABLE(goldens), p->h.golden_outputs = TP_TABLE(golden_outputs);
    p->h.pool_i64 = TP_TABLE(pool_i64), p->h.pool_f64 = TP_TABLE(pool_f64);
    p->pool_i64[0] = 1;
    p->goldens[0] = (struct infr_golden){.seed = 7, .n_rows = 5};
    for (int i = 0; i < 5; i++) p->golden_outputs[i].tolerance = 1e-6, p->golden_outputs[i].input = INFR_NONE;
    struct infr_golden_output *one = &p->golden_outputs[1];
    one->elems = one->step = one->n_values = 1, one->scale = 1;
}

static infr_kernel_fn *const tp_table[TP_KERNELS * INFR_ISA_COUNT] = {
    [0] = tp_affine,  [5] = tp_relu,  [10] = tp_sum,
    [15] = tp_negate, [20] = tp_copy, [25] = tp_reverse,
};

#endif
