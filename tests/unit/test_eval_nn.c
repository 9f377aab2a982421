// SPDX-License-Identifier: Apache-2.0
/*
 * Pools, conv_transpose, norms, recurrent layers, resampling, dft, det. By hand where that is short; values marked ORT are
 * what ONNX Runtime 1.32 gives for these inputs.
 */
#include "tests/unit/test_eval.h"

static void pools(void **state)
{
    (void)state;
    struct ir_tensor x[] = {T(DT_F32, D(1, 2, 2, 3), V(1, 5, 2, 4, 3, 6, -1, -2, -3, -4, -5, -6))};
    struct ir_attr k[] = {a_ints("kernel", 2, (int64_t[]){2, 2}), a_dims("output", 2, (int64_t[]){1, 2}), ir_a_int("column_major", 0)};
    OP_GIVES(IR_OP_POOL_MAX, k, x, T(DT_F32, D(1, 2, 1, 2), V(5, 6, -1, -2)), T(DT_I64, D(1, 2, 1, 2), V(1, 5, 6, 7)));
    k[2].i = 1;
    OP_GIVES(IR_OP_POOL_MAX, k, x, T(DT_F32, D(1, 2, 1, 2), V(5, 6, -1, -2)), T(DT_I64, D(1, 2, 1, 2), V(2, 5, 6, 8)));
    OP_GIVES(IR_OP_POOL_AVG, k, x, T(DT_F32, D(1, 2, 1, 2), V(3.25, 4, -3, -4)));
    OP_GIVES(IR_OP_POOL_SUM, k, x, T(DT_F32, D(1, 2, 1, 2), V(13, 16, -12, -16)));
    /* pads 1 all around one row of 3: padding never wins, and counts only if asked to */
    struct ir_tensor row[] = {T(DT_F32, D(1, 1, 3), V(-3, -6, -9))};
    struct ir_attr p[] = {a_ints("kernel", 1, (int64_t[]){3}), a_dims("pads", 2, (int64_t[]){1, 1}), a_ints("strides", 1, (int64_t[]){2}),
                          a_dims("output", 1, (int64_t[]){3}), ir_a_int("count_include_pad", 0)};
    struct ir_attr p2[] = {p[0], p[1], p[2], a_dims("output", 1, (int64_t[]){2})};
    OP_GIVES(IR_OP_POOL_MAX, p2, row, T(DT_F32, D(1, 1, 2), V(-3, -6)), T(DT_I64, D(1, 1, 2), V(0, 1)));
    p[3] = p2[3];
    OP_GIVES(IR_OP_POOL_AVG, p, row, T(DT_F32, D(1, 1, 2), V(-4.5, -7.5)));
    p[4].i = 1;
    OP_GIVES(IR_OP_POOL_AVG, p, row, T(DT_F32, D(1, 1, 2), V(-3, -5)));
    /* a window that reaches beyond the pads: only the pads within count */
    struct ir_attr over[] = {p[0], a_dims("pads", 2, (int64_t[]){0, 1}), p[2], p2[3], ir_a_int("count_include_pad", 1)};
    OP_GIVES(IR_OP_POOL_AVG, over, row, T(DT_F32, D(1, 1, 2), V(-6, -4.5)));
    struct ir_tensor nan[] = {T(DT_F32, D(1, 1, 3), V(1, NAN, 2))};
    struct ir_attr three[] = {a_ints("kernel", 1, (int64_t[]){3}), a_dims("output", 1, (int64_t[]){1})};
    OP_GIVES(IR_OP_POOL_MAX, three, nan, T(DT_F32, D(1, 1, 1), V(NAN)), T(DT_I64, D(1, 1, 1), V(1)));
    struct ir_tensor bytes[] = {T(DT_U8, D(1, 1, 3), V(7, 200, 7))};
    OP_GIVES(IR_OP_POOL_MAX, three, bytes, T(DT_U8, D(1, 1, 1), V(200)), T(DT_I64, D(1, 1, 1), V(1)));
}

static void transposed_convs(void **state)
{
    (void)state;
    struct ir_tensor x[] = {T(DT_F32, D(1, 1, 2), V(1, 2)), T(DT_F32, D(1, 1, 3), V(1, 10, 100)), T(DT_F32, D(1), V(0.5))};
    struct ir_attr a[] = {a_ints("strides", 1, (int64_t[]){2}), a_dims("output", 1, (int64_t[]){5})};
    OP_GIVES(IR_OP_CONV_TRANSPOSE, a, x, T(DT_F32, D(1, 1, 5), V(1.5, 10.5, 102.5, 20.5, 200.5)));
    struct ir_attr cut[] = {a[0], a_dims("output", 1, (int64_t[]){4}), a_dims("pads", 2, (int64_t[]){1, 0})};
    OP_GIVES(IR_OP_CONV_TRANSPOSE, cut, x, T(DT_F32, D(1, 1, 4), V(10.5, 102.5, 20.5, 200.5)));
    struct ir_attr groups[] = {ir_a_int("groups", 2), a_dims("output", 1, (int64_t[]){1})};
    struct ir_tensor g[] = {T(DT_F32, D(1, 2, 1), V(3, 4)), T(DT_F32, D(2, 2, 1), V(1, 2, 10, 20))};
    OP_GIVES(IR_OP_CONV_TRANSPOSE, groups, g, T(DT_F32, D(1, 4, 1), V(3, 6, 40, 80)));
}

static void norms(void **state)
{
    (void)state;
    struct ir_attr last[] = {ir_a_int("axis", 1), ir_a_float("eps", 0)}, first[] = {ir_a_int("axis", 0)};
    g_tol = 1e-6;
    struct ir_tensor x[] = {T(DT_F32, D(2, 2), V(0, 0.6931471805599453, 1000, 1000))};
    OP_GIVES(IR_OP_SOFTMAX, last, x, T(DT_F32, D(2, 2), V(1.0 / 3, 2.0 / 3, 0.5, 0.5)));
    OP_GIVES(IR_OP_LOG_SOFTMAX, last, x, T(DT_F32, D(2, 2), V(-1.0986122886681098, -0.40546510810816444, -0.6931471805599453, -0.6931471805599453)));
    struct ir_tensor col[] = {T(DT_F32, D(2, 1), V(0, 0.6931471805599453))};
    OP_GIVES(IR_OP_SOFTMAX, first, col, T(DT_F32, D(2, 1), V(1.0 / 3, 2.0 / 3)));
    struct ir_tensor n[] = {T(DT_F32, D(2, 2), V(1, 3, -5, 5)), T(DT_F32, D(2), V(2, 10)), T(DT_F32, D(1), V(1))};
    OP_GIVES(IR_OP_LAYER_NORM, last, n, T(DT_F32, D(2, 2), V(-1, 11, -1, 11)));
    struct ir_tensor r[] = {T(DT_F32, D(2, 2), V(1, 7, -5, 5)), T(DT_F32, D(2), V(2, 10))};
    OP_GIVES(IR_OP_RMS_NORM, last, r, T(DT_F32, D(2, 2), V(0.4, 14, -2, 10)));
}

#define RAMP(t, first, step, ...) ramp(t, first, step, D(__VA_ARGS__))
static struct ir_tensor ramp(enum dtype t, double first, double step, int rank, const int64_t *dims)
{
    int64_t n = 1;
    for (int i = 0; i < rank; i++) n *= dims[i];
    double *v = ARENA_ARRAY(&g_arena, double, n);
    for (int64_t i = 0; i < n; i++) v[i] = first + step * (double)i;
    return T(t, rank, dims, (int)n, v);
}

static void recurrent(void **state)
{
    (void)state;
    g_tol = 1e-6;
    struct ir_tensor x = T(DT_F32, D(3, 1, 2), V(1, 2, 3, -1, .5, 0));
    struct ir_attr none[] = {ir_a_int("hidden_size", 2)}, reverse[] = {ir_a_string("direction", "reverse")};
    struct ir_tensor lstm[] = {x, RAMP(DT_F32, -.5, .1, 1, 8, 2), RAMP(DT_F32, -.3, .05, 1, 8, 2), RAMP(DT_F32, 0, .02, 1, 16),
                               T(DT_I32, D(1), V(2)), NONE, NONE, RAMP(DT_F32, .1, .1, 1, 6)};
    /* ORT */
    OP_GIVES(IR_OP_LSTM, none, lstm, T(DT_F32, D(3, 1, 1, 2), V(0.1302588, 0.2580112, 0.2056352, 0.3928651, 0, 0)),
             T(DT_F32, D(1, 1, 2), V(0.2056352, 0.3928651)), T(DT_F32, D(1, 1, 2), V(0.4269635, 0.6846716)));
    struct ir_tensor plain[] = {lstm[0], lstm[1], lstm[2]};
    OP_GIVES(IR_OP_LSTM, reverse, plain, T(DT_F32, D(3, 1, 1, 2), V(0.1886621, 0.3779719, 0.1245, 0.2209039, 0.0712814, 0.0987672)),
             T(DT_F32, D(1, 1, 2), V(0.1886621, 0.3779719)), T(DT_F32, D(1, 1, 2), V(0.4261788, 0.7005318)));
    struct ir_tensor gru[] = {x, RAMP(DT_F32, -.5, .1, 1, 6, 2), RAMP(DT_F32, -.3, .05, 1, 6, 2), RAMP(DT_F32, 0, .02, 1, 12), NONE,
                              T(DT_F32, D(1, 1, 2), V(.5, -.5))};
    struct ir_attr before[] = {ir_a_int("linear_before_reset", 1)};
    OP_GIVES(IR_OP_GRU, none, gru, T(DT_F32, D(3, 1, 1, 2), V(0.7888088, 0.4329269, 0.7131503, 0.734517, 0.5701016, 0.678661)),
             T(DT_F32, D(1, 1, 2), V(0.5701016, 0.678661)));
    OP_GIVES(IR_OP_GRU, before, gru, T(DT_F32, D(3, 1, 1, 2), V(0.7723789, 0.4301497, 0.6564665, 0.7212836, 0.4952258, 0.6412005)),
             T(DT_F32, D(1, 1, 2), V(0.4952258, 0.6412005)));
    struct ir_attr relu[] = {ir_a_string("activations", "Relu")};
    struct ir_tensor rnn[] = {x, T(DT_F32, D(1, 2, 2), V(.5, -.5, .25, 1)), T(DT_F32, D(1, 2, 2), V(.1, .2, .3, .4))};
    OP_GIVES(IR_OP_RNN, relu, rnn, T(DT_F32, D(3, 1, 1, 2), V(0, 2.25, 2.45, 0.65, 0.625, 1.12)), T(DT_F32, D(1, 1, 2), V(0.625, 1.12)));
}

static void resampling(void **state)
{
    (void)state;
    struct ir_tensor x[] = {RAMP(DT_F32, 1, 1, 1, 1, 4, 4)}, row[] = {T(DT_F32, D(3), V(1, 2, 3))}, two[] = {T(DT_F32, D(2), V(1, 2))};
    struct ir_attr five[] = {a_dims("sizes", 1, (int64_t[]){6})};
    OP_GIVES(IR_OP_RESIZE, five, row, T(DT_F32, D(6), V(1, 1, 2, 2, 3, 3)));
    /* asymmetric, 2 to 4: 0, .5, 1, 1.5 */
    struct ir_attr near[] = {a_dims("sizes", 1, (int64_t[]){4}), ir_a_string("coord", "asymmetric"), ir_a_string("nearest", "round_prefer_floor")};
    OP_GIVES(IR_OP_RESIZE, near, two, T(DT_F32, D(4), V(1, 1, 2, 2)));
    near[2].s = "round_prefer_ceil";
    OP_GIVES(IR_OP_RESIZE, near, two, T(DT_F32, D(4), V(1, 2, 2, 2)));
    near[2].s = "floor";
    OP_GIVES(IR_OP_RESIZE, near, two, T(DT_F32, D(4), V(1, 1, 2, 2)));
    near[2].s = "ceil";
    OP_GIVES(IR_OP_RESIZE, near, two, T(DT_F32, D(4), V(1, 2, 2, 2)));
    g_tol = 1e-6;
    struct ir_attr a[] = {a_dims("sizes", 4, (int64_t[]){1, 1, 3, 2}), ir_a_string("mode", "linear"), ir_a_string("coord", "half_pixel")};
    /* ORT */
    OP_GIVES(IR_OP_RESIZE, a, x, T(DT_F32, D(1, 1, 3, 2), V(2.1666667, 4.166667, 7.5, 9.5, 12.833333, 14.833333)));
    a[1].s = "cubic";
    OP_GIVES(IR_OP_RESIZE, a, x, T(DT_F32, D(1, 1, 3, 2), V(1.9108795, 4.0983801, 7.40625, 9.59375, 12.9016228, 15.0891228)));
    a[2].s = "align_corners";
    OP_GIVES(IR_OP_RESIZE, a, x, T(DT_F32, D(1, 1, 3, 2), V(1, 4, 7, 10, 13, 16)));
    struct ir_attr aa[] = {a_dims("sizes", 4, (int64_t[]){1, 1, 2, 2}), ir_a_string("mode", "linear"), ir_a_int("antialias", 1)};
    OP_GIVES(IR_OP_RESIZE, aa, x, T(DT_F32, D(1, 1, 2, 2), V(4.125, 5.875, 11.125, 12.875)));
    struct ir_attr crop[] = {a_dims("sizes", 4, (int64_t[]){1, 1, 2, 3}), ir_a_string("mode", "linear"), ir_a_string("coord", "tf_crop_and_resize"),
                             a_floats("roi", 8, (double[]){0, 0, .4, .6, 1, 1, .6, 1.2}), ir_a_float("extrapolation", 99)};
    OP_GIVES(IR_OP_RESIZE, crop, x, T(DT_F32, D(1, 1, 2, 3), V(7.6, 8.5, 99, 10, 10.9, 99)));
}

static void sampling(void **state)
{
    (void)state;
    /* ORT, all nine */
    static const double want[3][3][4] = {
        {{0, 11, 15, 0}, {1, 11, 15, 12}, {1, 11, 15, 12}},
        {{0.05, 8.5, 10.85, 0}, {1, 8.5, 15.5, 11.6}, {1, 8.5, 15.5, 11.5}},
        {{0.0068749, 8.5, 12.806942, -0.6959496}, {0.61825, 8.5, 16.0347519, 11.4560041}, {0.1825001, 8.5, 16.2237511, 11.3807535}},
    };
    static const char *const modes[] = {"nearest", "linear", "cubic"}, *const pads[] = {"zeros", "border", "reflection"};
    struct ir_tensor x[] = {RAMP(DT_F32, 1, 1, 1, 1, 4, 4), T(DT_F32, D(1, 2, 2, 2), V(-1.2, -1, 0, 0, .5, .9, 1.3, .2))};
    g_tol = 2e-6;
    for (int m = 0; m < 3; m++)
        for (int p = 0; p < 3; p++) {
            struct ir_attr a[] = {ir_a_string("mode", modes[m]), ir_a_string("padding", pads[p])};
            OP_GIVES(IR_OP_GRID_SAMPLE, a, x, T(DT_F32, D(1, 1, 2, 2), 4, want[m][p]));
        }
    struct ir_tensor rois[] = {x[0], T(DT_F32, D(2, 4), V(0, 0, 3, 3, 1, 1, 2.5, 3.5)), T(DT_I64, D(2), V(0, 0))};
    struct ir_attr a[] = {ir_a_int("output_height", 2), ir_a_int("output_width", 2), ir_a_int("sampling_ratio", 2)};
    OP_GIVES(IR_OP_ROI_ALIGN, a, rois, T(DT_F32, D(2, 1, 2, 2), V(2.5625, 4.0, 8.3125, 9.75, 6.375, 7.125, 11.375, 12.125)));
    struct ir_attr max[] = {a[0], a[1], ir_a_int("sampling_ratio", 1), ir_a_string("mode", "max"), ir_a_string("coord", "output_half_pixel")};
    struct ir_tensor one[] = {x[0], T(DT_F32, D(1, 4), V(0, 0, 3, 3)), T(DT_I64, D(1), V(0))};
    OP_GIVES(IR_OP_ROI_ALIGN, max, one, T(DT_F32, D(1, 1, 2, 2), V(3.375, 3.9375, 5.625, 6.1875)));
    one[2] = T(DT_I64, D(1), V(1));
    OP_FAILS(IR_OP_ROI_ALIGN, max, one, T(DT_F32, D(1, 1, 2, 2), V(0, 0, 0, 0)));
}

static void transforms(void **state)
{
    (void)state;
    struct ir_attr axis[] = {ir_a_int("axis", 1), ir_a_int("onesided", 0), ir_a_int("inverse", 0)};
    struct ir_tensor x[] = {T(DT_F64, D(1, 4, 1), V(1, 2, 3, 4))};
    g_tol = 1e-15;
    OP_GIVES(IR_OP_DFT, axis, x, T(DT_F64, D(1, 4, 2), V(10, 0, -2, 2, -2, 0, -2, -2)));
    axis[1].i = 1;
    OP_GIVES(IR_OP_DFT, axis, x, T(DT_F64, D(1, 3, 2), V(10, 0, -2, 2, -2, 0)));
    struct ir_attr longer[] = {ir_a_int("axis", 1), a_dims("length", 1, (int64_t[]){2})};
    OP_GIVES(IR_OP_DFT, longer, x, T(DT_F64, D(1, 2, 2), V(3, 0, -1, 0)));
    struct ir_tensor y[] = {T(DT_F64, D(1, 4, 2), V(10, 0, -2, 2, -2, 0, -2, -2))}, half[] = {T(DT_F64, D(1, 3, 2), V(10, 0, -2, 2, -2, 0))};
    struct ir_attr back[] = {ir_a_int("axis", 1), ir_a_int("inverse", 1)}, real[] = {back[0], back[1], ir_a_int("onesided", 1)};
    OP_GIVES(IR_OP_DFT, back, y, T(DT_F64, D(1, 4, 2), V(1, 0, 2, 0, 3, 0, 4, 0)));
    OP_GIVES(IR_OP_DFT, real, half, T(DT_F64, D(1, 4, 1), V(1, 2, 3, 4)));
    struct ir_tensor m[] = {T(DT_F64, D(2, 3, 3), V(0, 1, 2, 1, 0, 3, 4, -3, 8, 1, 2, 3, 4, 5, 6, 7, 8, 9))};
    OP_GIVES(IR_OP_DET, NO_ATTRS, m, T(DT_F64, D(2), V(-2, 0)));
    struct ir_tensor none[] = {T(DT_F64, D(0, 0), V0)};
    OP_GIVES(IR_OP_DET, NO_ATTRS, none, T(DT_F64, D0, V(1)));
    /* blocks of 2 at 3 places of a row of 4: the inner elements meet twice */
    struct ir_attr col[] = {a_dims("image", 1, (int64_t[]){4}), a_ints("block", 1, (int64_t[]){2})};
    struct ir_tensor c[] = {T(DT_I32, D(1, 2, 3), V(1, 2, 3, 10, 20, 30))};
    OP_GIVES(IR_OP_COL2IM, col, c, T(DT_I32, D(1, 1, 4), V(1, 12, 23, 30)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(pools), TEST(transposed_convs), TEST(norms), TEST(recurrent), TEST(resampling), TEST(sampling), TEST(transforms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
