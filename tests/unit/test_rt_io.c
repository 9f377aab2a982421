// SPDX-License-Identifier: Apache-2.0
/* Readers on files that numpy, ml_dtypes and onnx wrote (tests/fuzz/corpus), and the writers
 * through the readers. */
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/abi/random.h"
#include "runtime/io.h"
#include "runtime/xxh64.h"

static struct rt_bytes load(const char *kind, const char *name)
{
    char path[512];
    struct rt_bytes b;
    struct infr_status st;
    const char *src = getenv("INFC_SRC");
    snprintf(path, sizeof path, "%s/tests/fuzz/corpus/%s/%s.%s", src ? src : ".", kind, name, kind);
    if (rt_file_read(path, &b, &st)) fail_msg("%s", st.note);
    return b;
}

static void check(const struct infr_tensor *t, enum dtype d, uint32_t rank, const int64_t *dims,
                  const double *values)
{
    uint64_t n = 1;
    assert_int_equal(t->dtype, d);
    assert_int_equal(t->rank, rank);
    for (uint32_t i = 0; i < rank; i++) {
        assert_int_equal(t->dims[i], dims[i]);
        n *= (uint64_t)dims[i];
    }
    assert_int_equal(rt_tensor_elems(t), n);
    for (uint64_t i = 0; i < n; i++)
        if (rt_tensor_get(t, i) != values[i])
            fail_msg("element %d is %g, expected %g", (int)i, rt_tensor_get(t, i), values[i]);
}

static void npy(const char *name, enum dtype want, enum dtype d, uint32_t rank, const int64_t *dims,
                const double *values)
{
    struct rt_bytes b = load("npy", name);
    struct infr_tensor t;
    struct infr_status st;
    size_t used;
    if (rt_npy_read(b.data, b.n, want, &t, &used, &st)) fail_msg("%s: %s", name, st.note);
    assert_int_equal(used, b.n);
    check(&t, d, rank, dims, values);
    rt_tensor_free(&t);
    for (size_t n = 0; n < b.n; n++) { /* every cut is seen */
        unsigned char *cut = malloc(n + 1);
        memcpy(cut, b.data, n);
        assert_int_not_equal(rt_npy_read(cut, n, want, &t, &used, &st), 0);
        assert_null(t.data);
        free(cut);
    }
    free(b.data);
}

#define DIMS(...) (const int64_t[]){__VA_ARGS__}
#define VALUES(...) (const double[]){__VA_ARGS__}

static void test_npy(void **state)
{
    (void)state;
    npy("f32_2x3", DT_NONE, DT_F32, 2, DIMS(2, 3), VALUES(1.5, -2, 3, 4, 5, 6.25));
    npy("f64_fortran_2x3", DT_F64, DT_F64, 2, DIMS(2, 3), VALUES(0, 1, 2, 3, 4, 5));
    npy("i16_big_endian", DT_I16, DT_I16, 1, DIMS(3), VALUES(1, -2, 300));
    npy("bool_4", DT_BOOL, DT_BOOL, 1, DIMS(4), VALUES(1, 0, 1, 1));
    npy("f16_scalar", DT_F16, DT_F16, 0, DIMS(0), VALUES(0.3330078125));
    npy("bf16_2", DT_BF16, DT_BF16, 1, DIMS(2), VALUES(1.5, -3));
    npy("f8e4m3fn_3", DT_F8E4M3FN, DT_F8E4M3FN, 1, DIMS(3), VALUES(1.5, -448, 0.015625));
    npy("i4_3", DT_I4, DT_I4, 1, DIMS(3), VALUES(-8, 7, 3));
    npy("i4_3", DT_I8, DT_I8, 1, DIMS(3), VALUES(-8, 7, 3));
    npy("v2_i64", DT_I64, DT_I64, 2, DIMS(2, 1), VALUES(1, -5));
    struct rt_bytes b = load("npy", "u64_0x3");
    struct infr_tensor t;
    size_t used;
    assert_int_equal(rt_npy_read(b.data, b.n, DT_U64, &t, &used, NULL), 0);
    assert_int_equal(t.bytes, 0);
    assert_int_equal(t.dims[1], 3);
    assert_non_null(t.data);
    rt_tensor_free(&t);
    free(b.data);
}

/* A version 1 file with this dict and n data bytes. */
static int read_dict(const char *dict, size_t n, enum dtype want, struct infr_tensor *t)
{
    size_t len = strlen(dict), used;
    unsigned char *p = malloc(10 + len + n);
    memcpy(p, "\x93NUMPY\1\0", 8);
    p[8] = (unsigned char)len, p[9] = (unsigned char)(len >> 8);
    memcpy(p + 10, dict, len);
    memset(p + 10 + len, 9, n);
    int code = rt_npy_read(p, 10 + len + n, want, t, &used, NULL);
    free(p);
    return code;
}

static void test_npy_hostile(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "{",
        "{}",
        "{'descr': '<f4', 'fortran_order': False}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'x': 1}",
        "{'descr': '<f4', 'descr': '<f4', 'shape': (2,)}",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1,1,1,1,1)}",
        "{'descr': '<f3', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '|O', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x",
        "{'descr': '<U4', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}",
    };
    struct infr_tensor t;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (!read_dict(bad[i], 8, DT_NONE, &t)) fail_msg("%s", bad[i]);
        assert_null(t.data);
    }
    assert_int_equal(
        read_dict("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }  \n", 8, DT_NONE, &t),
        0);
    rt_tensor_free(&t);
    assert_int_not_equal(
        read_dict("{'descr': '|i1', 'fortran_order': False, 'shape': (8,), }", 8, DT_I4, &t),
        0); /* 9 is no i4 */
}

/* ---- npz ---- */

static const char *member(const struct rt_npz *z, size_t i)
{
    static char name[64];
    snprintf(name, sizeof name, "%.*s", (int)z->members[i].name_len, z->members[i].name);
    return name;
}

static void test_npz(void **state)
{
    (void)state;
    static const double a[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    static const char *const files[] = {"stored", "deflated"};
    struct rt_npz z;
    struct infr_tensor t;
    double sum = 0;
    for (int f = 0; f < 2; f++) {
        struct rt_bytes b = load("npz", files[f]);
        assert_int_equal(rt_npz_open(b.data, b.n, &z, NULL), 0);
        assert_int_equal(z.n_members, f ? 3 : 2);
        assert_string_equal(member(&z, 0), "a");
        assert_int_equal(rt_npz_read(&z, 0, DT_F32, &t, NULL), 0);
        check(&t, DT_F32, 2, DIMS(3, 4), a);
        rt_tensor_free(&t);
        assert_int_equal(rt_npz_read(&z, 1, DT_NONE, &t, NULL), 0);
        assert_int_equal(rt_tensor_elems(&t), 200);
        for (uint64_t i = 0; i < 200; i++)
            sum +=
                (f ? -1 : 1) * rt_tensor_get(&t, i) * (double)(i + 1); /* the same array in both */
        rt_tensor_free(&t);
        rt_npz_close(&z);
        free(b.data);
    }
    assert_true(sum == 0);
    struct rt_bytes b = load("npz", "fixed_code");
    assert_int_equal(rt_npz_open(b.data, b.n, &z, NULL), 0);
    assert_int_equal(rt_npz_read(&z, 0, DT_U8, &t, NULL), 0);
    check(&t, DT_U8, 1, DIMS(3), VALUES(7, 7, 7));
    rt_tensor_free(&t);
    rt_npz_close(&z);
    free(b.data);
    b = load("npz", "comment");
    assert_int_equal(rt_npz_open(b.data, b.n, &z, NULL), 0);
    assert_string_equal(member(&z, 0), "c");
    assert_int_equal(rt_npz_read(&z, 0, DT_NONE, &t, NULL), 0);
    check(&t, DT_I32, 1, DIMS(1), VALUES(9));
    rt_tensor_free(&t);
    rt_npz_close(&z);
    free(b.data);
}

static void test_npz_damaged(void **state)
{
    (void)state;
    struct rt_bytes b = load("npz", "deflated");
    struct rt_npz z;
    struct infr_tensor t;
    for (size_t i = 0; i < b.n; i++) {
        b.data[i] ^= 0x55;
        if (!rt_npz_open(b.data, b.n, &z, NULL)) {
            for (size_t m = 0; m < z.n_members; m++)
                if (!rt_npz_read(&z, m, DT_NONE, &t, NULL)) rt_tensor_free(&t);
            rt_npz_close(&z);
        }
        b.data[i] ^= 0x55;
    }
    free(b.data);
}

static void test_npz_write(void **state)
{
    (void)state;
    float x[4] = {1, 2, 3, -4};
    signed char y[3] = {1, -8, 7};
    struct infr_tensor in[2] = {{DT_F32, 2, {2, 2}, x, 16}, {DT_I4, 1, {3}, y, 3}}, t;
    const char *names[2] = {"first", "a/b"};
    struct rt_npz z;
    char *text;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    assert_int_equal(rt_npz_write(f, 2, names, in, NULL), 0);
    fclose(f);
    assert_int_equal(rt_npz_open((unsigned char *)text, n, &z, NULL), 0);
    assert_int_equal(z.n_members, 2);
    assert_string_equal(member(&z, 1), "a/b");
    assert_int_equal(rt_npz_read(&z, 0, DT_NONE, &t, NULL), 0);
    check(&t, DT_F32, 2, DIMS(2, 2), VALUES(1, 2, 3, -4));
    rt_tensor_free(&t);
    assert_int_equal(rt_npz_read(&z, 1, DT_I4, &t, NULL), 0);
    check(&t, DT_I4, 1, DIMS(3), VALUES(1, -8, 7));
    rt_tensor_free(&t);
    rt_npz_close(&z);
    free(text);
}

static void test_hashes(void **state)
{
    (void)state;
    assert_int_equal(rt_crc32(0, "123456789", 9), 0xcbf43926u); /* the check value of CRC-32 */
    /* test values of the xxHash specification's reference: empty input, and 'a' */
    assert_true(rt_xxh64("", 0) == 0xef46db3751d8e999ull);
    assert_true(rt_xxh64("a", 1) == 0xd24ec4f1a98c6e5bull);
    assert_true(rt_xxh64("Nobody inspects the spammish repetition", 39) == 0xfbcea83c8a378bf1ull);
}

/* ---- pb ---- */

static void pb(const char *name, enum dtype d, uint32_t rank, const int64_t *dims,
               const double *values)
{
    struct rt_bytes b = load("pb", name);
    struct infr_tensor t, again;
    struct infr_status st;
    char *text;
    size_t n;
    if (rt_pb_read(b.data, b.n, &t, &st)) fail_msg("%s: %s", name, st.note);
    check(&t, d, rank, dims, values);
    FILE *f = open_memstream(&text, &n);
    assert_int_equal(rt_pb_write(f, "n", &t), 0);
    fclose(f);
    assert_int_equal(rt_pb_read((unsigned char *)text, n, &again, &st), 0);
    check(&again, d, rank, dims, values);
    rt_tensor_free(&again);
    rt_tensor_free(&t);
    free(text);
    for (size_t i = 0; i < b.n; i++) {
        unsigned char *cut = malloc(i + 1);
        memcpy(cut, b.data, i);
        if (!rt_pb_read(cut, i, &t, NULL))
            rt_tensor_free(&t); /* a cut name at the end is no damage */
        memcpy(cut, b.data, i);
        free(cut);
        b.data[i] ^= 0x7f;
        if (!rt_pb_read(b.data, b.n, &t, NULL)) rt_tensor_free(&t);
        b.data[i] ^= 0x7f;
    }
    free(b.data);
}

static void test_pb(void **state)
{
    (void)state;
    pb("f32_raw", DT_F32, 2, DIMS(3, 4), VALUES(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
    pb("f32_typed", DT_F32, 2, DIMS(2, 2), VALUES(1, 2, 3, 4.5));
    pb("i64_typed", DT_I64, 1, DIMS(3), VALUES(-1, 2, 0x1p60));
    pb("bool_typed", DT_BOOL, 1, DIMS(2), VALUES(1, 0));
    pb("f16_typed", DT_F16, 1, DIMS(2), VALUES(0.5, -2));
    pb("i8_typed", DT_I8, 1, DIMS(2), VALUES(-128, 127));
    pb("u64_typed", DT_U64, 1, DIMS(2), VALUES(1, 0x1p64));
    pb("f64_typed", DT_F64, 1, DIMS(1), VALUES(2.5));
    pb("i4_typed", DT_I4, 1, DIMS(3), VALUES(-8, 7, -1));
    pb("i4_raw", DT_I4, 1, DIMS(3), VALUES(-8, 7, -1));
    pb("u4_raw", DT_U4, 1, DIMS(3), VALUES(1, 15, 3));
    pb("bf16_raw", DT_BF16, 1, DIMS(2), VALUES(1.5, -3));
    pb("f8_raw", DT_F8E4M3FN, 1, DIMS(2), VALUES(1.5, -448));
}

static void test_pb_refused(void **state)
{
    (void)state;
    struct infr_tensor t;
    struct infr_status st;
    struct rt_bytes b = load("pb", "external");
    assert_int_equal(rt_pb_read(b.data, b.n, &t, &st), INFR_BAD_INPUT);
    assert_non_null(strstr(st.note, "another file"));
    free(b.data);
    b = load("pb", "string");
    assert_int_equal(rt_pb_read(b.data, b.n, &t, &st), INFR_BAD_INPUT);
    free(b.data);
    /* dims 2^40, no data; dims beyond 12; a field longer than the file */
    static const unsigned char big[] = {8, 0x80, 0x80, 0x80, 0x80, 0x80, 0x20, 16, 1},
                               many[] = {10, 13, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 16, 1},
                               lone[] = {16,   1,    74,   0xff, 0xff, 0xff, 0xff,
                                         0xff, 0xff, 0xff, 0xff, 0xff, 1};
    assert_int_equal(rt_pb_read(big, sizeof big, &t, &st), INFR_BAD_INPUT);
    assert_int_equal(rt_pb_read(many, sizeof many, &t, &st), INFR_BAD_INPUT);
    assert_int_equal(rt_pb_read(lone, sizeof lone, &t, &st), INFR_BAD_INPUT);
}

/* ---- npy writer, small floats, random ---- */

static void test_npy_write(void **state)
{
    (void)state;
    for (enum dtype d = DT_F64; d < DT_STRING; d++) {
        struct infr_tensor t, back;
        char *text;
        size_t n, used;
        assert_int_equal(rt_tensor_alloc(d, 2, DIMS(5, 7), 10000, &t, NULL), 0);
        rt_tensor_random(&t, 3, (uint32_t)d);
        FILE *f = open_memstream(&text, &n);
        assert_int_equal(rt_npy_write(f, &t), 0);
        fclose(f);
        assert_int_equal((n - t.bytes) % 64, 0);
        if (rt_npy_read((unsigned char *)text, n, d, &back, &used, NULL))
            fail_msg("%s", dtype_name(d));
        assert_int_equal(back.dtype, d);
        assert_memory_equal(back.data, t.data, t.bytes);
        rt_tensor_free(&back);
        rt_tensor_free(&t);
        free(text);
    }
}

static void test_small_floats(void **state)
{
    (void)state;
    static const struct {
        enum dtype d;
        double v;
        uint32_t code;
        double back;
    } rows[] = {
        {DT_F16, 1, 0x3c00, 1},
        {DT_F16, 65504, 0x7bff, 65504},
        {DT_F16, 65520, 0x7c00, INFINITY},
        {DT_F16, 0x1p-24, 1, 0x1p-24},
        {DT_F16, 0x1p-25, 0, 0},
        {DT_F16, 0x1.8p-24, 2, 0x1p-23},
        {DT_F16, -0.0, 0x8000, 0},
        {DT_F16, 2049, 0x6800, 2048},
        {DT_BF16, 1.00390625, 0x3f80, 1},
        {DT_BF16, -2, 0xc000, -2},
        {DT_F8E4M3FN, 448, 0x7e, 448},
        {DT_F8E4M3FN, 0x1p-9, 1, 0x1p-9},
        {DT_F8E5M2, 57344, 0x7b, 57344},
        {DT_F8E4M3FNUZ, 1, 0x40, 1},
        {DT_F8E5M2FNUZ, 1, 0x40, 1},
        {DT_F4E2M1, 6, 7, 6},
        {DT_F4E2M1, 0.5, 1, 0.5},
        {DT_F4E2M1, 2.5, 4, 2},
        {DT_F8E8M0, 1, 127, 1},
        {DT_F8E8M0, 0x1p-127, 0, 0x1p-127},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(rt_small_encode(rows[i].d, rows[i].v), rows[i].code);
        assert_true(rt_small_decode(rows[i].d, rows[i].code) == rows[i].back);
    }
    for (enum dtype d = DT_F16; d <= DT_F4E2M1;
         d++) /* decoding and encoding again changes no number */
        for (uint32_t code = 0; code < 1u << dtype_bits(d); code++) {
            double v = rt_small_decode(d, code);
            if (isnan(v)) assert_true(isnan(rt_small_decode(d, rt_small_encode(d, v))));
            else assert_int_equal(rt_small_encode(d, v), code);
        }
}

static void test_random(void **state)
{
    (void)state;
    struct infr_tensor t;
    /* SplitMix64 of seed 0: the generator's published first outputs */
    assert_true(infr_random_u64(0, 0, 0) == 0xe220a8397b1dcdafull);
    assert_true(infr_random_u64(0, 0, 1) == 0x6e789e6aa1b965f4ull);
    assert_int_equal(rt_tensor_alloc(DT_F32, 1, DIMS(1000), 10000, &t, NULL), 0);
    rt_tensor_random(&t, 0, 0);
    /* top 21 bits of the first output, less one half of the range */
    assert_true(((float *)t.data)[0] ==
                (float)((double)(0xe220a8397b1dcdafull >> 43) / 1048576 - 1));
    double sum = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        double v = rt_tensor_get(&t, i);
        assert_true(v >= -1 && v < 1 && v * 1048576 == floor(v * 1048576));
        sum += v;
    }
    assert_true(fabs(sum) < 100);
    rt_tensor_free(&t);
    static const struct {
        enum dtype d;
        double limit;
    } limits[] = {{DT_BOOL, 2}, {DT_I4, 8},    {DT_U4, 16},  {DT_I2, 2},
                  {DT_U2, 4},   {DT_I64, 128}, {DT_U8, 128}, {DT_I8, 128}};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        double most = 0;
        assert_int_equal(rt_tensor_alloc(limits[i].d, 1, DIMS(4000), 100000, &t, NULL), 0);
        rt_tensor_random(&t, 5, 1);
        for (uint64_t k = 0; k < 4000; k++) {
            double v = rt_tensor_get(&t, k);
            assert_true(v >= 0 && v < limits[i].limit);
            if (v > most) most = v;
        }
        assert_true(most == limits[i].limit - 1);
        rt_tensor_free(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_npy),       cmocka_unit_test(test_npy_hostile),
        cmocka_unit_test(test_npz),       cmocka_unit_test(test_npz_damaged),
        cmocka_unit_test(test_npz_write), cmocka_unit_test(test_hashes),
        cmocka_unit_test(test_pb),        cmocka_unit_test(test_pb_refused),
        cmocka_unit_test(test_npy_write), cmocka_unit_test(test_small_floats),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
