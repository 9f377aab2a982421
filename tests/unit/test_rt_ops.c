// SPDX-License-Identifier: Apache-2.0
/* Library kernels against straightforward computations on numbers held in doubles. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "runtime/abi/library.h"
#include "runtime/abi/random.h"
#include "runtime/ops/element.h"
#include "runtime/tensor.h"

enum { SIZE = 4096 };

static void put(enum dtype d, void *p, int64_t i, double v)
{
    if (op_is_float(d)) store_float(d, p, i, v);
    else store_int(d, p, i, (uint64_t)(int64_t)v);
}

static double get(enum dtype d, const void *p, int64_t i)
{
    struct infr_tensor t = {.dtype = d, .data = (void *)(uintptr_t)p};
    return rt_tensor_get(&t, (uint64_t)i);
}

/* Every f16 and bf16 code and the midpoints between them, against the runtime's other conversion.
 */
static void test_conversions(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < 65536; c++) {
        double v = rt_small_decode(DT_F16, c), w = rt_small_decode(DT_BF16, c);
        float f = f16_to_f32((uint16_t)c), g = bf16_to_f32((uint16_t)c);
        if (isnan(v)) assert_true(isnan(f));
        else assert_true((double)f == v && f32_to_f16(f) == c);
        if (isnan(w)) assert_true(isnan(g));
        else assert_true((double)g == w && f32_to_bf16(g) == c);
        for (int step = -1; step <= 1 && isfinite(v); step++) {
            float mid = f32_of_bits(
                bits_of_f32((float)((v + rt_small_decode(DT_F16, c + 1 < 65536 ? c + 1 : c)) / 2)) +
                (uint32_t)step);
            if (isfinite(mid))
                assert_int_equal(f32_to_f16(mid), rt_small_encode(DT_F16, (double)mid));
        }
    }
}

/* ---- topk ---- */

/* Rank of element i: how many of its row come before it. */
static int64_t rank_of(const double *row, int64_t n, int64_t stride, int64_t i, bool largest)
{
    int64_t rank = 0;
    double v = row[i * stride];
    for (int64_t j = 0; j < n; j++) {
        double w = row[j * stride];
        bool before = isnan(v) ? isnan(w) && false : isnan(w) || w > v; /* greater, NaN greatest */
        bool equal = isnan(v) ? isnan(w) : w == v;
        if (!largest && !equal) before = !before;
        if (equal ? j < i : before) rank++;
    }
    return rank;
}

static void topk_case(infr_kernel_fn *fn, enum dtype d, int64_t outer, int64_t n, int64_t inner,
                      int64_t k, bool largest, int few)
{
    static double x[SIZE];
    static uint64_t xs[SIZE], values[SIZE];
    static int64_t indices[SIZE];
    const int64_t dims[] = {outer, n, inner, k, largest};
    void *bufs[] = {xs, values, indices};
    for (int64_t i = 0; i < outer * n * inner; i++) {
        double v = (double)infr_random_int(1, (uint32_t)d, (uint64_t)i, few) -
                   (op_is_unsigned(d) ? 0 : few / 2);
        if (op_is_float(d) && infr_random_int(2, 0, (uint64_t)i, 9) == 0)
            v = infr_random_int(3, 0, (uint64_t)i, 2) ? NAN : -0.0;
        put(d, xs, i, v);
        x[i] = get(d, xs, i);
    }
    int64_t rows = outer * inner, half = rows / 2;
    fn(bufs, dims, half, rows, NULL);
    fn(bufs, dims, 0, half, NULL);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t c = 0; c < inner; c++)
            for (int64_t i = 0; i < n; i++) {
                const double *row = x + o * n * inner + c;
                int64_t rank = rank_of(row, n, inner, i, largest), at = (o * k + rank) * inner + c;
                if (rank >= k) continue;
                assert_int_equal(indices[at], i);
                double got = get(d, values, at), want = row[i * inner];
                assert_true(got == want || (isnan(got) && isnan(want)));
            }
}

static void test_topk(void **state)
{
    (void)state;
#define RUN(t, id)                                               \
    for (int largest = 0; largest < 2; largest++) {              \
        topk_case(infr_op_topk_##t, id, 3, 17, 1, 5, largest, 100); \
        topk_case(infr_op_topk_##t, id, 2, 9, 4, 9, largest, 4);  \
        topk_case(infr_op_topk_##t, id, 1, 300, 2, 1, largest, 50); \
        topk_case(infr_op_topk_##t, id, 2, 1, 3, 1, largest, 5);  \
        topk_case(infr_op_topk_##t, id, 2, 6, 3, 0, largest, 5);  \
    }
    INFR_LIB_DTYPES(RUN)
#undef RUN
    uint64_t x[3] = {UINT64_MAX, 1, (uint64_t)INT64_MAX + 1}, v[2];
    int64_t i[2];
    infr_op_topk_u64((void *[]){x, v, i}, (const int64_t[]){1, 3, 1, 2, 1}, 0, 1, NULL);
    assert_true(i[0] == 0 && i[1] == 2);
    infr_op_topk_i64((void *[]){x, v, i}, (const int64_t[]){1, 3, 1, 2, 1}, 0, 1, NULL);
    assert_true(i[0] == 1 && i[1] == 0);
}

/* ---- scatters ---- */

static double reduce(enum dtype d, int r, double a, double b)
{
    uint64_t out = 0;
    double v = r == 0                 ? b
               : r == 1               ? a + b
               : r == 2               ? a * b
               : isnan(a) || isnan(b) ? NAN
               : r == 3               ? fmin(a, b)
                                      : fmax(a, b);
    if (op_is_float(d)) put(d, &out, 0, v); /* rounds */
    else out = (uint64_t)(int64_t)v;        /* wraps */
    return get(d, &out, 0);
}

static void check_same(enum dtype d, const void *got, const double *want, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double g = get(d, got, i);
        if (g != want[i] && !(isnan(g) && isnan(want[i])))
            fail_msg("%s element %d is %g, expected %g", dtype_name(d), (int)i, g, want[i]);
    }
}

static double some_value(enum dtype d, uint32_t stream, int64_t i)
{
    if (op_is_float(d) && infr_random_int(9, stream, (uint64_t)i, 20) == 0) return NAN;
    return (double)infr_random_int(8, stream, (uint64_t)i, 9) - (op_is_unsigned(d) ? 0 : 4);
}

static void elements_case(infr_kernel_fn *fn, enum dtype d, int r, int axis, bool wide)
{
    static const int64_t x_dims[3] = {3, 5, 4}, i_dims[3] = {2, 4, 3};
    static uint64_t xs[SIZE], us[SIZE], outs[SIZE];
    static double want[SIZE];
    int64_t index64[24], dims[9] = {wide ? 8 : 4, 3, axis, 3, 5, 4, 2, 4, 3}, slices = 1;
    int32_t index32[24];
    for (int64_t i = 0; i < 60; i++) {
        put(d, xs, i, some_value(d, 1, i));
        want[i] = get(d, xs, i);
    }
    for (int64_t i = 0; i < 24; i++) {
        put(d, us, i, some_value(d, 2, i));
        index64[i] = infr_random_int(4, (uint32_t)axis, (uint64_t)i, 2 * x_dims[axis] + 2) -
                     x_dims[axis] - 1; /* two of them out of range */
        index32[i] = (int32_t)index64[i];
        int64_t at[3] = {i / 12, i / 3 % 4, i % 3},
                v = index64[i] < 0 ? index64[i] + x_dims[axis] : index64[i];
        if (v < 0 || v >= x_dims[axis]) continue;
        at[axis] = v;
        int64_t to = (at[0] * 5 + at[1]) * 4 + at[2];
        want[to] = reduce(d, r, want[to], get(d, us, i));
    }
    (void)i_dims;
    for (int a = 0; a < axis; a++) slices *= x_dims[a];
    void *bufs[] = {xs, wide ? (void *)index64 : (void *)index32, us, outs};
    for (int64_t s = slices; s-- > 0;) fn(bufs, dims, s, s + 1, NULL);
    check_same(d, outs, want, 60);
    bufs[0] = memcpy(outs, xs, sizeof xs); /* in place */
    fn(bufs, dims, 0, slices, NULL);
    check_same(d, outs, want, 60);
}

static void nd_case(infr_kernel_fn *fn, enum dtype d, int r, int64_t inner, bool wide)
{
    static uint64_t xs[SIZE], us[SIZE], outs[SIZE];
    static double want[SIZE];
    int64_t index64[14], dims[] = {wide ? 8 : 4, 2, 7, inner, 3, 4}, slices = (inner + 15) / 16;
    int32_t index32[14];
    for (int64_t i = 0; i < 12 * inner; i++) {
        put(d, xs, i, some_value(d, 3, i));
        want[i] = get(d, xs, i);
    }
    for (int64_t t = 0; t < 7; t++) {
        int64_t a = infr_random_int(5, 0, (uint64_t)t, 7) - 3,
                b = infr_random_int(5, 1, (uint64_t)t, 10) - 5; /* -5, 3 and 4 are out of range */
        index64[2 * t] = a, index64[2 * t + 1] = b;
        index32[2 * t] = (int32_t)a, index32[2 * t + 1] = (int32_t)b;
        for (int64_t c = 0; c < inner; c++) {
            put(d, us, t * inner + c, some_value(d, 4, t * inner + c));
            int64_t row = (a < 0 ? a + 3 : a) * 4 + (b < 0 ? b + 4 : b), to = row * inner + c;
            if (a < -3 || a > 2 || b < -4 || b > 3) continue;
            want[to] = reduce(d, r, want[to], get(d, us, t * inner + c));
        }
    }
    void *bufs[] = {xs, wide ? (void *)index64 : (void *)index32, us, outs};
    for (int64_t s = slices; s-- > 0;) fn(bufs, dims, s, s + 1, NULL);
    check_same(d, outs, want, 12 * inner);
}

static void test_scatters(void **state)
{
    (void)state;
#define R(t, id, r, number)                                                             \
    for (int axis = 0; axis < 3; axis++)                                                \
        elements_case(infr_op_scatter_elements_##t##_##r, id, number, axis, axis != 1); \
    nd_case(infr_op_scatter_nd_##t##_##r, id, number, 1, true);                         \
    nd_case(infr_op_scatter_nd_##t##_##r, id, number, 37, false);
#define RUN(t, id) \
    R(t, id, none, 0) R(t, id, add, 1) R(t, id, mul, 2) R(t, id, min, 3) R(t, id, max, 4)
    INFR_LIB_DTYPES(RUN)
#undef RUN
#undef R
}

/* ---- det, names ---- */

static void test_det(void **state)
{
    (void)state;
    double m[] = {3, /**/ 0, /**/ 7}, m2[] = {1, 2, 3, 4, /**/ 0, 1, 1, 0}, out[3], work[32];
    infr_op_det_f64((void *[]){m, out, work}, (const int64_t[]){3, 1}, 0, 3, NULL);
    assert_true(out[0] == 3 && out[1] == 0 && out[2] == 7);
    infr_op_det_f64((void *[]){m2, out, work}, (const int64_t[]){2, 2}, 0, 2, NULL);
    assert_true(fabs(out[0] + 2) < 1e-12 && out[1] == -1);
    /* a triangular matrix with its rows rotated twice (an even permutation): the product of the
     * diagonal */
    float t[16] = {0, 0, 3, 8, 0, 0, 0, 4, 1, 5, 6, 7, 0, 2, 9, 1}, f;
    infr_op_det_f32((void *[]){t, &f, work}, (const int64_t[]){1, 4}, 0, 1, NULL);
    assert_true(fabsf(f - 24) < 1e-4f);
    infr_op_det_f32((void *[]){t, &f, work}, (const int64_t[]){1, 0}, 0, 1, NULL); /* of nothing */
    assert_true(f == 1);
}

static void test_symbols(void **state)
{
    (void)state;
    char s[64];
    assert_true(infr_lib_symbol(INFR_LIB_TOPK, DT_F16, NULL, s, sizeof s));
    assert_string_equal(s, "infr_op_topk_f16");
    assert_true(infr_lib_symbol(INFR_LIB_SCATTER_ND, DT_BOOL, "none", s, sizeof s));
    assert_string_equal(s, "infr_op_scatter_nd_u8_none");
    assert_true(infr_lib_symbol(INFR_LIB_SCATTER_ELEMENTS, DT_I64, "max", s, sizeof s));
    assert_string_equal(s, "infr_op_scatter_elements_i64_max");
    assert_false(infr_lib_symbol(INFR_LIB_SCATTER_ND, DT_BOOL, "add", s, sizeof s));
    assert_false(infr_lib_symbol(INFR_LIB_SCATTER_ND, DT_F32, "xor", s, sizeof s));
    assert_false(infr_lib_symbol(INFR_LIB_DET, DT_I32, NULL, s, sizeof s));
    assert_false(infr_lib_symbol(INFR_LIB_TOPK, DT_STRING, NULL, s, sizeof s));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conversions), cmocka_unit_test(test_topk),
        cmocka_unit_test(test_scatters),    cmocka_unit_test(test_det),
        cmocka_unit_test(test_symbols),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
