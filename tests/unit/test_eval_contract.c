// SPDX-License-Identifier: Apache-2.0
/* Contractions and pools. Small cases by hand; bigger ones against a naive loop written here, exact on integers. */
#include "tests/unit/test_eval.h"

static void matmuls(void **state)
{
    (void)state;
    struct ir_tensor x[] = {T(DT_F32, D(2, 3), V(1, 2, 3, 4, 5, 6)), T(DT_F32, D(3, 2), V(1, 0, 0, 1, 1, 1))};
    OP_GIVES(IR_OP_MATMUL, NO_ATTRS, x, T(DT_F32, D(2, 2), V(4, 5, 10, 11)));
    struct ir_attr both[] = {ir_a_int("trans_a", 1), ir_a_int("trans_b", 1)};
    struct ir_tensor t[] = {T(DT_F32, D(3, 2), V(1, 4, 2, 5, 3, 6)), T(DT_F32, D(2, 3), V(1, 0, 1, 0, 1, 1))};
    OP_GIVES(IR_OP_MATMUL, both, t, T(DT_F32, D(2, 2), V(4, 5, 10, 11)));
    /* batch dims [2, 1] and [3] broadcast to [2, 3] */
    struct ir_tensor b[] = {T(DT_F64, D(2, 1, 1, 2), V(1, 2, 3, 4)), T(DT_F64, D(3, 2, 1), V(1, 0, 0, 1, 1, 1))};
    OP_GIVES(IR_OP_MATMUL, NO_ATTRS, b, T(DT_F64, D(2, 3, 1, 1), V(1, 2, 3, 3, 4, 7)));
    struct ir_attr acc[] = {ir_a_dtype("acc", DT_I32)};
    struct ir_tensor q[] = {T(DT_U8, D(1, 2), V(255, 200)), T(DT_I8, D(2, 1), V(-128, 127))};
    OP_GIVES(IR_OP_MATMUL, acc, q, T(DT_I32, D(1, 1), V(-7240)));
    OP_GIVES(IR_OP_MATMUL, NO_ATTRS, q, T(DT_U8, D(1, 1), V(184))); /* -7240 mod 256 */
    struct ir_tensor wrap[] = {T(DT_I64, D(1, 2), V(4611686018427387904.0, 1)), T(DT_I64, D(2, 1), V(4, 5))};
    OP_GIVES(IR_OP_MATMUL, NO_ATTRS, wrap, T(DT_I64, D(1, 1), V(5)));
    struct ir_tensor none[] = {T(DT_F32, D(2, 0), V0), T(DT_F32, D(0, 1), V0)};
    OP_GIVES(IR_OP_MATMUL, NO_ATTRS, none, T(DT_F32, D(2, 1), V(0, 0)));
    struct ir_attr wide[] = {ir_a_dtype("acc", DT_F32)};
    struct ir_tensor half[] = {T(DT_F16, D(1, 2), V(256, 1)), T(DT_F16, D(2, 1), V(256, 1))};
    OP_GIVES(IR_OP_MATMUL, wide, half, T(DT_F32, D(1, 1), V(65537)));
    struct ir_tensor bad[] = {T(DT_F32, D(1, 2), V(1, 2)), T(DT_F32, D(3, 1), V(1, 2, 3))};
    OP_FAILS(IR_OP_MATMUL, NO_ATTRS, bad, T(DT_F32, D(1, 1), V(0)));
}

static struct ir_tensor ints(enum dtype t, int rank, const int64_t *dims, uint32_t seed)
{
    int64_t n = 1;
    for (int i = 0; i < rank; i++) n *= dims[i];
    double *v = ARENA_ARRAY(&g_arena, double, n);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        v[i] = (double)(seed >> 28) - 8;
    }
    return T(t, rank, dims, (int)n, v);
}

/* All edges of the blocking: sizes around its steps. */
static void big_matmul(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{5, 259, 300}, {257, 3, 256}, {300, 7, 513}, {1, 1000, 2}};
    for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
        int64_t m = sizes[s][0], k = sizes[s][1], n = sizes[s][2];
        struct ir_tensor x[] = {ints(DT_F32, D(m, k), 1), ints(DT_F32, D(k, n), 2)};
        double *want = ARENA_ARRAY(&g_arena, double, m * n);
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++)
                for (int64_t l = 0; l < k; l++) want[i * n + j] += get(&x[0], (size_t)(i * k + l)) * get(&x[1], (size_t)(l * n + j));
        struct ir_tensor out = T(DT_F32, D(m, n), (int)(m * n), want);
        OP_GIVES(IR_OP_MATMUL, NO_ATTRS, x, out);
        struct ir_tensor xi[] = {ints(DT_I64, D(m, k), 1), ints(DT_I64, D(k, n), 2)};
        ((int64_t *)xi[0].data)[0] += INT64_C(1) << 60; /* forces whole words: only the first row changes, by multiples */
        double *wi = ARENA_ARRAY(&g_arena, double, m * n);
        for (int64_t i = 0; i < m * n; i++) wi[i] = want[i];
        struct ir_tensor outi = T(DT_I64, D(m, n), (int)(m * n), wi);
        for (int64_t j = 0; j < n; j++)
            ((uint64_t *)outi.data)[j] += (uint64_t)((int64_t *)xi[1].data)[j] << 60;
        OP_GIVES(IR_OP_MATMUL, NO_ATTRS, xi, outi);
    }
}

static void convs(void **state)
{
    (void)state;
    struct ir_tensor x[] = {T(DT_F32, D(1, 1, 3, 3), V(1, 2, 3, 4, 5, 6, 7, 8, 9)), T(DT_F32, D(1, 1, 2, 2), V(1, 0, 0, 1)),
                            T(DT_F32, D(1), V(10))};
    OP_GIVES(IR_OP_CONV, NO_ATTRS, x, T(DT_F32, D(1, 1, 2, 2), V(16, 18, 22, 24)));
    struct ir_attr pads[] = {a_dims("pads", 4, (int64_t[]){1, 0, 0, 1}), a_ints("strides", 2, (int64_t[]){2, 1})};
    /* rows -1..0 and 1..2, columns 0..1, 1..2, 2..3 */
    OP_GIVES(IR_OP_CONV, pads, x, T(DT_F32, D(1, 1, 2, 3), V(12, 13, 10, 22, 24, 16)));
    struct ir_attr crop[] = {a_dims("pads", 4, (int64_t[]){-1, 0, 0, 0})};
    OP_GIVES(IR_OP_CONV, crop, x, T(DT_F32, D(1, 1, 1, 2), V(22, 24)));
    struct ir_attr dil[] = {a_ints("dilations", 2, (int64_t[]){2, 2})};
    OP_GIVES(IR_OP_CONV, dil, x, T(DT_F32, D(1, 1, 1, 1), V(20)));
    struct ir_attr groups[] = {ir_a_int("groups", 2)};
    struct ir_tensor g[] = {T(DT_F32, D(1, 2, 2), V(1, 2, 3, 4)), T(DT_F32, D(2, 1, 1), V(10, 100))};
    OP_GIVES(IR_OP_CONV, groups, g, T(DT_F32, D(1, 2, 2), V(10, 20, 300, 400)));
    struct ir_attr acc[] = {ir_a_dtype("acc", DT_I32)};
    struct ir_tensor q[] = {T(DT_U8, D(1, 1, 2), V(255, 1)), T(DT_I8, D(1, 1, 2), V(-128, 2))};
    OP_GIVES(IR_OP_CONV, acc, q, T(DT_I32, D(1, 1, 1), V(-32638)));
}

struct conv_case {
    int64_t n, c, h, w, o, kh, kw, sh, sw, dh, dw, top, left, bottom, right, groups;
};

/* Output element by the definition of cross-correlation. */
static double naive_conv(const struct conv_case *p, const struct ir_tensor *x, const struct ir_tensor *w, int64_t n, int64_t o,
                         int64_t y, int64_t z)
{
    int64_t cg = p->c / p->groups, g = o / (p->o / p->groups);
    double sum = 0;
    for (int64_t c = 0; c < cg; c++)
        for (int64_t i = 0; i < p->kh; i++)
            for (int64_t j = 0; j < p->kw; j++) {
                int64_t iy = y * p->sh - p->top + i * p->dh, iz = z * p->sw - p->left + j * p->dw;
                if (iy < 0 || iz < 0 || iy >= p->h || iz >= p->w) continue;
                sum += get(x, (size_t)(((n * p->c + g * cg + c) * p->h + iy) * p->w + iz)) *
                       get(w, (size_t)(((o * cg + c) * p->kh + i) * p->kw + j));
            }
    return sum;
}

static void many_convs(void **state)
{
    (void)state;
    static const struct conv_case cases[] = {
        {2, 4, 9, 11, 6, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1},  {1, 4, 9, 11, 6, 3, 2, 2, 3, 1, 1, 0, 2, 1, 0, 2},
        {1, 3, 17, 19, 5, 7, 7, 2, 2, 1, 1, 3, 3, 3, 3, 1}, {2, 6, 8, 8, 6, 3, 3, 1, 2, 2, 3, 2, 3, 2, 3, 6},
        {1, 2, 4, 40, 3, 1, 5, 1, 7, 1, 4, 0, 9, 0, 9, 1},  {1, 2, 20, 20, 2, 3, 3, 1, 1, 1, 1, -2, 5, 4, -3, 1},
    };
    for (size_t s = 0; s < ARRAY_LEN(cases); s++) {
        const struct conv_case *p = &cases[s];
        int64_t oh = (p->h + p->top + p->bottom - (p->kh - 1) * p->dh - 1) / p->sh + 1;
        int64_t ow = (p->w + p->left + p->right - (p->kw - 1) * p->dw - 1) / p->sw + 1;
        struct ir_tensor x[] = {ints(DT_F32, D(p->n, p->c, p->h, p->w), 3), ints(DT_F32, D(p->o, p->c / p->groups, p->kh, p->kw), 4)};
        double *want = ARENA_ARRAY(&g_arena, double, p->n * p->o * oh * ow), *v = want;
        for (int64_t n = 0; n < p->n; n++)
            for (int64_t o = 0; o < p->o; o++)
                for (int64_t y = 0; y < oh; y++)
                    for (int64_t z = 0; z < ow; z++) *v++ = naive_conv(p, &x[0], &x[1], n, o, y, z);
        struct ir_attr a[] = {a_ints("strides", 2, (int64_t[]){p->sh, p->sw}), a_ints("dilations", 2, (int64_t[]){p->dh, p->dw}),
                              a_dims("pads", 4, (int64_t[]){p->top, p->left, p->bottom, p->right}), ir_a_int("groups", p->groups)};
        struct ir_tensor out = T(DT_F32, D(p->n, p->o, oh, ow), (int)(p->n * p->o * oh * ow), want);
        OP_GIVES(IR_OP_CONV, a, x, out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(matmuls), TEST(big_matmul), TEST(convs), TEST(many_convs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
