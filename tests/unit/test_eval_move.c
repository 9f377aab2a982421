// SPDX-License-Identifier: Apache-2.0
/* Movement, gathers, reductions: values worked out by hand. */
#include "tests/unit/test_eval.h"

static void making(void **state)
{
    (void)state;
    struct ir_tensor none[1];
    struct ir_attr vec[] = {a_dims("dims", 3, (int64_t[]){4, 5, 6})};
    struct ir_attr one[] = {a_dims("dims", 1, (int64_t[]){7}), ir_a_int("scalar", 1)};
    struct ir_attr iota[] = {a_dims("dims", 2, (int64_t[]){2, 3}), ir_a_dtype("type", DT_F32), ir_a_int("axis", 1)};
    op_gives(__FILE__, __LINE__, IR_OP_DIMVEC, 1, vec, 0, none, 1, (struct ir_tensor[]){T(DT_I64, D(3), V(4, 5, 6))});
    op_gives(__FILE__, __LINE__, IR_OP_DIMVEC, 2, one, 0, none, 1, (struct ir_tensor[]){T(DT_I64, D0, V(7))});
    op_gives(__FILE__, __LINE__, IR_OP_IOTA, 3, iota, 0, none, 1, (struct ir_tensor[]){T(DT_F32, D(2, 3), V(0, 1, 2, 0, 1, 2))});
    iota[2].i = 0;
    op_gives(__FILE__, __LINE__, IR_OP_IOTA, 3, iota, 0, none, 1, (struct ir_tensor[]){T(DT_I32, D(2, 3), V(0, 0, 0, 1, 1, 1))});
}

static void reordering(void **state)
{
    (void)state;
    struct ir_tensor x[] = {T(DT_I32, D(2, 3), V(1, 2, 3, 4, 5, 6))};
    struct ir_attr perm[] = {a_ints("perm", 2, (int64_t[]){1, 0})};
    OP_GIVES(IR_OP_TRANSPOSE, perm, x, T(DT_I32, D(3, 2), V(1, 4, 2, 5, 3, 6)));
    struct ir_attr shape[] = {a_dims("dims", 1, (int64_t[]){6})};
    OP_GIVES(IR_OP_RESHAPE, shape, x, T(DT_I32, D(6), V(1, 2, 3, 4, 5, 6)));
    OP_FAILS(IR_OP_RESHAPE, shape, x, T(DT_I32, D(5), V(1, 2, 3, 4, 5)));
    struct ir_tensor col[] = {T(DT_F16, D(2, 1), V(1, 2))};
    struct ir_attr wide[] = {a_dims("dims", 3, (int64_t[]){2, 2, 2})};
    OP_GIVES(IR_OP_BROADCAST, wide, col, T(DT_F16, D(2, 2, 2), V(1, 1, 2, 2, 1, 1, 2, 2)));
    struct ir_tensor cube[] = {T(DT_U8, D(2, 2, 2), V(0, 1, 2, 3, 4, 5, 6, 7))};
    struct ir_attr rot[] = {a_ints("perm", 3, (int64_t[]){2, 0, 1})};
    OP_GIVES(IR_OP_TRANSPOSE, rot, cube, T(DT_U8, D(2, 2, 2), V(0, 2, 4, 6, 1, 3, 5, 7)));
}

static void slices(void **state)
{
    (void)state;
    struct ir_tensor x[] = {T(DT_F64, D(3, 4), V(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11))};
    struct ir_attr a[] = {a_dims("starts", 2, (int64_t[]){2, 1}), a_ints("steps", 2, (int64_t[]){-2, 2}),
                          a_dims("sizes", 2, (int64_t[]){2, 2})};
    OP_GIVES(IR_OP_SLICE, a, x, T(DT_F64, D(2, 2), V(9, 11, 1, 3)));
    struct ir_attr empty[] = {a_dims("starts", 2, (int64_t[]){3, 0}), a_ints("steps", 2, (int64_t[]){1, 1}),
                              a_dims("sizes", 2, (int64_t[]){0, 4})};
    OP_GIVES(IR_OP_SLICE, empty, x, T(DT_F64, D(0, 4), V0));
    struct ir_attr out[] = {a_dims("starts", 2, (int64_t[]){2, 0}), a_ints("steps", 2, (int64_t[]){1, 1}),
                            a_dims("sizes", 2, (int64_t[]){2, 1})};
    OP_FAILS(IR_OP_SLICE, out, x, T(DT_F64, D(2, 1), V(0, 0)));
}

static void pads(void **state)
{
    (void)state;
    struct ir_tensor x[] = {T(DT_F32, D(3), V(1, 2, 3))};
    struct ir_attr a[] = {a_dims("lo", 1, (int64_t[]){2}), a_dims("hi", 1, (int64_t[]){4}), ir_a_string("mode", "reflect")};
    OP_GIVES(IR_OP_PAD, a, x, T(DT_F32, D(9), V(3, 2, 1, 2, 3, 2, 1, 2, 3)));
    a[2].s = "edge";
    OP_GIVES(IR_OP_PAD, a, x, T(DT_F32, D(9), V(1, 1, 1, 2, 3, 3, 3, 3, 3)));
    a[2].s = "wrap";
    OP_GIVES(IR_OP_PAD, a, x, T(DT_F32, D(9), V(2, 3, 1, 2, 3, 1, 2, 3, 1)));
    a[2].s = "constant";
    OP_GIVES(IR_OP_PAD, a, x, T(DT_F32, D(9), V(0, 0, 1, 2, 3, 0, 0, 0, 0)));
    struct ir_tensor m[] = {T(DT_F32, D(2, 2), V(1, 2, 3, 4)), T(DT_F32, D0, V(9))};
    struct ir_attr crop[] = {a_dims("lo", 2, (int64_t[]){-1, 1}), a_dims("hi", 2, (int64_t[]){1, 0})};
    OP_GIVES(IR_OP_PAD, crop, m, T(DT_F32, D(2, 3), V(9, 3, 4, 9, 9, 9)));
}

static void joins(void **state)
{
    (void)state;
    struct ir_tensor x[] = {T(DT_I64, D(2, 1), V(1, 2)), T(DT_I64, D(2, 0), V0), T(DT_I64, D(2, 2), V(3, 4, 5, 6))};
    struct ir_attr a[] = {ir_a_int("axis", 1)};
    OP_GIVES(IR_OP_CONCAT, a, x, T(DT_I64, D(2, 3), V(1, 3, 4, 2, 5, 6)));
    struct ir_tensor r[] = {T(DT_F32, D(3, 2), V(1, 2, 3, 4, 5, 6)), T(DT_I64, D(2), V(2, 3))};
    struct ir_attr rev[] = {ir_a_int("time_axis", 0), ir_a_int("batch_axis", 1)};
    OP_GIVES(IR_OP_REVERSE_SEQUENCE, rev, r, T(DT_F32, D(3, 2), V(3, 6, 1, 4, 5, 2)));
}

static void reductions(void **state)
{
    (void)state;
    struct ir_tensor x[] = {T(DT_F32, D(2, 3), V(1, 2, 3, 4, 5, 6))};
    struct ir_attr rows[] = {a_ints("axes", 1, (int64_t[]){1})};
    struct ir_attr cols[] = {a_ints("axes", 1, (int64_t[]){0}), ir_a_int("keepdims", 1)};
    struct ir_attr all[] = {a_ints("axes", 2, (int64_t[]){0, 1})};
    OP_GIVES(IR_OP_REDUCE_SUM, rows, x, T(DT_F32, D(2), V(6, 15)));
    OP_GIVES(IR_OP_REDUCE_PROD, cols, x, T(DT_F32, D(1, 3), V(4, 10, 18)));
    OP_GIVES(IR_OP_REDUCE_MAX, all, x, T(DT_F32, D0, V(6)));
    OP_GIVES(IR_OP_REDUCE_MIN, rows, x, T(DT_F32, D(2), V(1, 4)));
    struct ir_tensor nan[] = {T(DT_F32, D(1, 3), V(1, NAN, 3))};
    OP_GIVES(IR_OP_REDUCE_MAX, rows, nan, T(DT_F32, D(1), V(NAN)));
    OP_GIVES(IR_OP_REDUCE_MIN, rows, nan, T(DT_F32, D(1), V(NAN)));
    struct ir_tensor none[] = {T(DT_F32, D(2, 0), V0)}, none_i[] = {T(DT_I8, D(1, 0), V0)};
    OP_GIVES(IR_OP_REDUCE_SUM, rows, none, T(DT_F32, D(2), V(0, 0)));
    OP_GIVES(IR_OP_REDUCE_PROD, rows, none, T(DT_F32, D(2), V(1, 1)));
    OP_GIVES(IR_OP_REDUCE_MAX, rows, none, T(DT_F32, D(2), V(-INFINITY, -INFINITY)));
    OP_GIVES(IR_OP_REDUCE_MAX, rows, none_i, T(DT_I8, D(1), V(-128)));
    OP_GIVES(IR_OP_REDUCE_MIN, rows, none_i, T(DT_I8, D(1), V(127)));
    struct ir_tensor wrap[] = {T(DT_I8, D(1, 2), V(100, 100))};
    OP_GIVES(IR_OP_REDUCE_SUM, rows, wrap, T(DT_I8, D(1), V(-56)));
    /* f32 sums in f64: 2^24 + 1 + 1 is not 2^24. */
    struct ir_tensor big[] = {T(DT_F32, D(1, 3), V(16777216, 1, 1))};
    OP_GIVES(IR_OP_REDUCE_SUM, rows, big, T(DT_F32, D(1), V(16777218)));
}

static void extremes(void **state)
{
    (void)state;
    struct ir_tensor x[] = {T(DT_F32, D(2, 3), V(1, 3, 3, 2, 2, 0))};
    struct ir_attr a[] = {ir_a_int("axis", 1), ir_a_int("last", 0)};
    OP_GIVES(IR_OP_ARG_MAX, a, x, T(DT_I64, D(2), V(1, 0)));
    a[1].i = 1;
    OP_GIVES(IR_OP_ARG_MAX, a, x, T(DT_I64, D(2), V(2, 1)));
    OP_GIVES(IR_OP_ARG_MIN, a, x, T(DT_I64, D(2), V(0, 2)));
    struct ir_attr keep[] = {ir_a_int("axis", 0), ir_a_int("keepdims", 1)};
    OP_GIVES(IR_OP_ARG_MIN, keep, x, T(DT_I64, D(1, 3), V(0, 1, 1)));
    struct ir_tensor u[] = {T(DT_U64, D(2), V(1, 18446744073709549568.0))};
    struct ir_attr v[] = {ir_a_int("axis", 0)};
    OP_GIVES(IR_OP_ARG_MAX, v, u, T(DT_I64, D0, V(1)));
    struct ir_tensor k[] = {T(DT_F32, D(5), V(3, 1, 3, 2, NAN))};
    struct ir_attr top[] = {ir_a_int("axis", 0), a_dims("k", 1, (int64_t[]){3}), ir_a_int("largest", 0)};
    OP_GIVES(IR_OP_TOPK, top, k, T(DT_F32, D(3), V(1, 2, 3)), T(DT_I64, D(3), V(1, 3, 0)));
    top[2].i = 1;
    OP_GIVES(IR_OP_TOPK, top, k, T(DT_F32, D(3), V(NAN, 3, 3)), T(DT_I64, D(3), V(4, 0, 2)));
    struct ir_tensor col[] = {T(DT_I8, D(3, 2), V(1, 6, 5, 4, 3, -2))};
    struct ir_attr top1[] = {ir_a_int("axis", 0), a_dims("k", 1, (int64_t[]){2})};
    OP_GIVES(IR_OP_TOPK, top1, col, T(DT_I8, D(2, 2), V(5, 6, 3, 4)), T(DT_I64, D(2, 2), V(1, 0, 2, 1)));
}

static void running(void **state)
{
    (void)state;
    struct ir_tensor x[] = {T(DT_F32, D(2, 3), V(1, 2, 3, 4, 5, 6))};
    struct ir_attr a[] = {ir_a_int("axis", 1), ir_a_int("exclusive", 0), ir_a_int("reverse", 0)};
    OP_GIVES(IR_OP_CUM_SUM, a, x, T(DT_F32, D(2, 3), V(1, 3, 6, 4, 9, 15)));
    OP_GIVES(IR_OP_CUM_PROD, a, x, T(DT_F32, D(2, 3), V(1, 2, 6, 4, 20, 120)));
    a[1].i = 1;
    OP_GIVES(IR_OP_CUM_SUM, a, x, T(DT_F32, D(2, 3), V(0, 1, 3, 0, 4, 9)));
    a[2].i = 1;
    OP_GIVES(IR_OP_CUM_SUM, a, x, T(DT_F32, D(2, 3), V(5, 3, 0, 11, 6, 0)));
    struct ir_attr col[] = {ir_a_int("axis", 0), ir_a_int("reverse", 1)};
    OP_GIVES(IR_OP_CUM_SUM, col, x, T(DT_F32, D(2, 3), V(5, 7, 9, 4, 5, 6)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(making), TEST(reordering), TEST(slices), TEST(pads), TEST(joins), TEST(reductions), TEST(extremes), TEST(running),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
