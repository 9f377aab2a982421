// SPDX-License-Identifier: Apache-2.0
/* Pointwise ops: values worked out by hand, or known constants of mathematics. */
#include "tests/unit/test_eval.h"

#define PI 3.14159265358979323846
#define F32V(...) T(DT_F32, D(ARRAY_LEN(((double[]){__VA_ARGS__}))), V(__VA_ARGS__))
#define TV(t, ...) T(t, D(ARRAY_LEN(((double[]){__VA_ARGS__}))), V(__VA_ARGS__))

static void unary_float(void **state)
{
    (void)state;
    UN(IR_OP_NEG, F32V(1, -2, 0), F32V(-1, 2, -0.0));
    UN(IR_OP_ABS, F32V(-1.5, 2, -0.0), F32V(1.5, 2, 0));
    UN(IR_OP_SIGN, F32V(-3, 0, 7, NAN), F32V(-1, 0, 1, NAN));
    UN(IR_OP_FLOOR, F32V(1.5, -1.5, -0.0, INFINITY), F32V(1, -2, -0.0, INFINITY));
    UN(IR_OP_CEIL, F32V(1.5, -1.5, -0.5), F32V(2, -1, -0.0));
    UN(IR_OP_ROUND, F32V(0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 2.4, -2.6, 8388609), F32V(0, 2, 2, -0.0, -2, -2, 2, -3, 8388609));
    UN(IR_OP_SQRT, F32V(4, 2, -1, 0), F32V(2, 1.41421356237309515, NAN, 0));
    UN(IR_OP_ISNAN, F32V(1, NAN, INFINITY), TV(DT_BOOL, 0, 1, 0));
    UN(IR_OP_ISINF, F32V(1, NAN, INFINITY, -INFINITY), TV(DT_BOOL, 0, 0, 1, 1));
    struct ir_attr neg_only[] = {ir_a_int("positive", 0)};
    struct ir_tensor in[] = {F32V(INFINITY, -INFINITY)};
    OP_GIVES(IR_OP_ISINF, neg_only, in, TV(DT_BOOL, 0, 1));
}

static void transcendental(void **state)
{
    (void)state;
    /* f32 results are correctly rounded: compared exactly with the rounded constants. */
    UN(IR_OP_EXP, F32V(0, 1, -1, 1000, -1000), F32V(1, 2.718281828459045, 0.36787944117144233, INFINITY, 0));
    UN(IR_OP_LOG, F32V(1, 2, 0, -1), F32V(0, 0.6931471805599453, -INFINITY, NAN));
    UN(IR_OP_SIN, F32V(0, 1, 1e30, INFINITY), F32V(0, 0.8414709848078965, -0.7911634385219837, NAN));
    UN(IR_OP_COS, F32V(0, 1), F32V(1, 0.5403023058681398));
    UN(IR_OP_TAN, F32V(0, 1), F32V(0, 1.5574077246549023));
    UN(IR_OP_ASIN, F32V(0, 1, -1, 0.5, 2), F32V(0, PI / 2, -PI / 2, 0.5235987755982989, NAN));
    UN(IR_OP_ACOS, F32V(1, -1, 0, 0.5), F32V(0, PI, PI / 2, 1.0471975511965979));
    UN(IR_OP_ATAN, F32V(1, -1, INFINITY), F32V(PI / 4, -PI / 4, PI / 2));
    UN(IR_OP_SINH, F32V(0, 1, -1), F32V(0, 1.1752011936438014, -1.1752011936438014));
    UN(IR_OP_COSH, F32V(0, 1), F32V(1, 1.5430806348152437));
    UN(IR_OP_TANH, F32V(0, 1, -50, INFINITY), F32V(0, 0.7615941559557649, -1, 1));
    UN(IR_OP_ASINH, F32V(0, 1), F32V(0, 0.881373587019543));
    UN(IR_OP_ACOSH, F32V(1, 2, 0), F32V(0, 1.3169578969248166, NAN));
    UN(IR_OP_ATANH, F32V(0, 0.5, 1, 2), F32V(0, 0.5493061443340548, INFINITY, NAN));
    UN(IR_OP_ERF, F32V(0, 0.5, 1, -2, 10), F32V(0, 0.5204998778130465, 0.8427007929497149, -0.9953222650189527, 1));
    UN(IR_OP_SIGMOID, F32V(0, 1, -1, 200, -200), F32V(0.5, 0.7310585786300049, 0.2689414213699951, 1, 1.3838965267367376e-87));
    g_tol = 4e-16;
    UN(IR_OP_EXP, TV(DT_F64, 1, 700), TV(DT_F64, 2.718281828459045, 1.0142320547350045e304));
    UN(IR_OP_ERF, TV(DT_F64, 1), TV(DT_F64, 0.8427007929497149));
}

static void integer(void **state)
{
    (void)state;
    UN(IR_OP_NEG, TV(DT_I8, -128, 5), TV(DT_I8, -128, -5));
    UN(IR_OP_NEG, TV(DT_U8, 1), TV(DT_U8, 255));
    UN(IR_OP_ABS, TV(DT_I8, -128, -5), TV(DT_I8, -128, 5));
    UN(IR_OP_SIGN, TV(DT_I32, -9, 0, 9), TV(DT_I32, -1, 0, 1));
    UN(IR_OP_NOT, TV(DT_BOOL, 0, 1), TV(DT_BOOL, 1, 0));
    UN(IR_OP_NOT, TV(DT_U8, 0x0F), TV(DT_U8, 0xF0));
    UN(IR_OP_NOT, TV(DT_I4, 3), TV(DT_I4, -4));
    BIN(IR_OP_ADD, TV(DT_I8, 127, -128), TV(DT_I8, 1, -1), TV(DT_I8, -128, 127));
    BIN(IR_OP_MUL, TV(DT_I4, 7), TV(DT_I4, 2), TV(DT_I4, -2));
    BIN(IR_OP_SUB, TV(DT_U8, 1), TV(DT_U8, 2), TV(DT_U8, 255));
    BIN(IR_OP_DIV, TV(DT_I32, 7, -7, 7, 1), TV(DT_I32, 2, 2, -2, 0), TV(DT_I32, 3, -3, -3, 0));
    BIN(IR_OP_DIV, TV(DT_I32, -2147483648.0), TV(DT_I32, -1), TV(DT_I32, -2147483648.0));
    BIN(IR_OP_DIV, TV(DT_U64, 18446744073709549568.0), TV(DT_U64, 2), TV(DT_U64, 9223372036854774784.0));
    BIN(IR_OP_REM, TV(DT_I32, 7, -7, 7, 3), TV(DT_I32, 3, 3, -3, 0), TV(DT_I32, 1, -1, 1, 0));
    BIN(IR_OP_MOD, TV(DT_I32, 7, -7, 7, 3), TV(DT_I32, 3, 3, -3, 0), TV(DT_I32, 1, 2, -2, 0));
    BIN(IR_OP_MIN, TV(DT_U64, 18446744073709549568.0), TV(DT_U64, 1), TV(DT_U64, 1));
    BIN(IR_OP_MAX, TV(DT_I8, -3), TV(DT_I8, -7), TV(DT_I8, -3));
    BIN(IR_OP_SHL, TV(DT_U8, 1, 1, 255), TV(DT_U8, 7, 8, 4), TV(DT_U8, 128, 0, 240));
    BIN(IR_OP_SHR, TV(DT_I8, -8, -8, 64), TV(DT_I8, 1, 8, 9), TV(DT_I8, -4, -1, 0));
    BIN(IR_OP_SHR, TV(DT_U8, 255, 255), TV(DT_U8, 4, 8), TV(DT_U8, 15, 0));
    BIN(IR_OP_XOR, TV(DT_BOOL, 0, 1, 1), TV(DT_BOOL, 1, 1, 0), TV(DT_BOOL, 1, 0, 1));
    BIN(IR_OP_AND, TV(DT_U8, 12), TV(DT_U8, 10), TV(DT_U8, 8));
    BIN(IR_OP_OR, TV(DT_I8, -128), TV(DT_I8, 1), TV(DT_I8, -127));
    BIN(IR_OP_LT, TV(DT_U64, 18446744073709549568.0), TV(DT_U64, 1), TV(DT_BOOL, 0));
    BIN(IR_OP_LT, TV(DT_I64, -1), TV(DT_I64, 1), TV(DT_BOOL, 1));
}

static void binary_float(void **state)
{
    (void)state;
    BIN(IR_OP_DIV, F32V(1, 1, -1, 0), F32V(3, 0, 0, 0), F32V(1.0 / 3, INFINITY, -INFINITY, NAN));
    BIN(IR_OP_REM, F32V(5.5, -5.5, 1), F32V(2, 2, 0), F32V(1.5, -1.5, NAN));
    BIN(IR_OP_MOD, F32V(5.5, -5.5, 5.5, -6), F32V(2, 2, -2, 3), F32V(1.5, 0.5, -0.5, 0));
    BIN(IR_OP_MIN, F32V(1, NAN, 2, 0), F32V(2, 1, NAN, -0.0), F32V(1, NAN, NAN, -0.0));
    BIN(IR_OP_MAX, F32V(1, NAN, 2, -0.0), F32V(2, 1, NAN, 0), F32V(2, NAN, NAN, 0));
    BIN(IR_OP_EQ, F32V(1, NAN, 0), F32V(1, NAN, -0.0), TV(DT_BOOL, 1, 0, 1));
    BIN(IR_OP_NE, F32V(1, NAN), F32V(1, NAN), TV(DT_BOOL, 0, 1));
    BIN(IR_OP_GE, F32V(1, 2, NAN), F32V(1, 3, 0), TV(DT_BOOL, 1, 0, 0));
    BIN(IR_OP_GT, F32V(1, 2), F32V(1, 1), TV(DT_BOOL, 0, 1));
    BIN(IR_OP_LE, F32V(1, 2), F32V(1, 1), TV(DT_BOOL, 1, 0));
    /* f16: 2048 + 1 is a tie, to even; bf16: 256 + 1 likewise. */
    BIN(IR_OP_ADD, TV(DT_F16, 2048, 2050, 65504), TV(DT_F16, 1, 1, 65504), TV(DT_F16, 2048, 2052, INFINITY));
    BIN(IR_OP_ADD, TV(DT_BF16, 256, 258), TV(DT_BF16, 1, 1), TV(DT_BF16, 256, 260));
}

static void power(void **state)
{
    (void)state;
    BIN(IR_OP_POW, F32V(2, -2, -2, 0, 4, -8), F32V(10, 3, 0.5, -1, 0.5, 1.0 / 3), F32V(1024, -8, NAN, INFINITY, 2, NAN));
    BIN(IR_OP_POW, F32V(NAN, 1, -1, 2), F32V(0, NAN, INFINITY, -INFINITY), F32V(1, 1, 1, 0));
    BIN(IR_OP_POW, TV(DT_I32, 3, -2, 2, 0), TV(DT_I32, 4, 31, -1, 0), TV(DT_I32, 81, -2147483648.0, 0, 1));
    BIN(IR_OP_POW, TV(DT_I64, 3), TV(DT_F32, 2), TV(DT_I64, 9));
    BIN(IR_OP_POW, F32V(2), TV(DT_I64, -2), F32V(0.25));
    BIN(IR_OP_POW, TV(DT_I8, 2), TV(DT_I8, 7), TV(DT_I8, -128));
    g_tol = 3e-16;
    BIN(IR_OP_POW, TV(DT_F64, 1.0000000001, 10), TV(DT_F64, 1e10, -300), TV(DT_F64, 2.7182820532347876, 1e-300));
}

static void broadcasting(void **state)
{
    (void)state;
    BIN(IR_OP_ADD, T(DT_F32, D(2, 1), V(10, 20)), T(DT_F32, D(3), V(1, 2, 3)), T(DT_F32, D(2, 3), V(11, 12, 13, 21, 22, 23)));
    BIN(IR_OP_MUL, T(DT_I32, D0, V(3)), T(DT_I32, D(1, 2), V(1, 2)), T(DT_I32, D(1, 2), V(3, 6)));
    BIN(IR_OP_ADD, T(DT_F32, D(0, 1), V0), T(DT_F32, D(3), V(1, 2, 3)), T(DT_F32, D(0, 3), V0));
    BIN(IR_OP_SUB, T(DT_F32, D0, V(3)), T(DT_F32, D0, V(1)), T(DT_F32, D0, V(2)));
    struct ir_tensor in[] = {T(DT_BOOL, D(2, 1), V(1, 0)), T(DT_F32, D(2), V(1, NAN)), T(DT_F32, D0, V(9))};
    OP_GIVES(IR_OP_SELECT, NO_ATTRS, in, T(DT_F32, D(2, 2), V(1, NAN, 9, 9)));
    struct ir_tensor bad[] = {T(DT_F32, D(2), V(1, 2)), T(DT_F32, D(3), V(1, 2, 3))};
    OP_FAILS(IR_OP_ADD, NO_ATTRS, bad, T(DT_F32, D(3), V(0, 0, 0)));
    OP_FAILS(IR_OP_ADD, NO_ATTRS, bad, T(DT_F32, D(2), V(0, 0)));
    struct ir_tensor mixed[] = {T(DT_F32, D(2), V(1, 2)), T(DT_F64, D(2), V(1, 2))};
    OP_FAILS(IR_OP_ADD, NO_ATTRS, mixed, T(DT_F32, D(2), V(0, 0)));
    struct ir_tensor ints[] = {T(DT_I32, D(1), V(1))};
    OP_FAILS(IR_OP_EXP, NO_ATTRS, ints, T(DT_I32, D(1), V(0)));
}

#define CAST(x, y)                                                                                 \
    do {                                                                                           \
        struct ir_tensor in_[] = {x}, out_ = y;                                                    \
        struct ir_attr to_[] = {ir_a_dtype("to", out_.dtype)};                                     \
        OP_GIVES(IR_OP_CAST, to_, in_, out_);                                                      \
    } while (0)

static void casts(void **state)
{
    (void)state;
    CAST(F32V(1.9, -1.9, NAN, 300), TV(DT_I8, 1, -1, 0, 44));
    CAST(F32V(1.9, -1, 256), TV(DT_U8, 1, 255, 0));
    CAST(F32V(0, -0.0, 0.5, NAN), TV(DT_BOOL, 0, 0, 1, 1));
    CAST(TV(DT_I32, 300, -1), TV(DT_U8, 44, 255));
    CAST(TV(DT_U8, 200), TV(DT_I8, -56));
    CAST(TV(DT_I8, -1), TV(DT_U32, 4294967295.0));
    CAST(TV(DT_U64, 18446744073709549568.0), TV(DT_F64, 18446744073709549568.0));
    CAST(TV(DT_F64, 1e19), TV(DT_U64, 1e19));
    CAST(TV(DT_I32, 7, 8, -9), TV(DT_I4, 7, -8, 7));
    CAST(TV(DT_F64, 0.1), F32V((double)0.1f));
    CAST(F32V(65519, 65520, 1e-8), TV(DT_F16, 65504, INFINITY, 0));
    CAST(TV(DT_I64, 16777217), F32V(16777216));
    CAST(TV(DT_BOOL, 0, 1), F32V(0, 1));
    /* Saturating f8: the greatest value also for infinity; 0x44 is 3 * 2 / 2 and so on by the format's definition. */
    CAST(F32V(1000, -INFINITY, 464, 3), TV(DT_F8E4M3FN, 448, -448, 448, 3));
    CAST(F32V(1e9, INFINITY), TV(DT_F8E5M2, 57344, 57344));
    CAST(F32V(5, 0.25, -7, 2.5), TV(DT_F4E2M1, 4, 0, -6, 2));
    CAST(F32V(3, 4), TV(DT_F8E8M0, 4, 4));
    struct ir_tensor in[] = {F32V(1000, INFINITY)};
    struct ir_attr e5[] = {ir_a_dtype("to", DT_F8E5M2), ir_a_int("saturate", 0)};
    struct ir_attr e4[] = {ir_a_dtype("to", DT_F8E4M3FN), ir_a_int("saturate", 0)};
    struct ir_tensor inf_bits = {.dtype = DT_F8E5M2, .rank = 1, .dims = {2}, .data = (uint8_t[]){0x64, 0x7C}, .n_bytes = 2};
    OP_GIVES(IR_OP_CAST, e5, in, inf_bits);
    struct ir_tensor nan_bits = {.dtype = DT_F8E4M3FN, .rank = 1, .dims = {2}, .data = (uint8_t[]){0x7F, 0x7F}, .n_bytes = 2};
    OP_GIVES(IR_OP_CAST, e4, in, nan_bits);
}

static void bitcasts(void **state)
{
    (void)state;
    struct ir_attr to_i32[] = {ir_a_dtype("to", DT_I32)};
    struct ir_tensor one[] = {F32V(1)};
    OP_GIVES(IR_OP_BITCAST, to_i32, one, TV(DT_I32, 0x3F800000));
    struct ir_attr to_u4[] = {ir_a_dtype("to", DT_U4)};
    struct ir_tensor nibble[] = {TV(DT_I4, -1, 3)};
    OP_GIVES(IR_OP_BITCAST, to_u4, nibble, TV(DT_U4, 15, 3));
    struct ir_attr to_i4[] = {ir_a_dtype("to", DT_I4)};
    struct ir_tensor back[] = {TV(DT_U4, 15, 3)};
    OP_GIVES(IR_OP_BITCAST, to_i4, back, TV(DT_I4, -1, 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(unary_float), TEST(transcendental), TEST(integer),  TEST(binary_float),
        TEST(power),       TEST(broadcasting),   TEST(casts),    TEST(bitcasts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
