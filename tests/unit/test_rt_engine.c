// SPDX-License-Identifier: Apache-2.0
/* The runtime on a plan written by hand; expected values are computed here in another way than the
 * kernels do. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "runtime/cpu.h"
#include "runtime/session.h"
#include "tests/unit/test_rt_plan.h"

static struct test_plan plan;

static struct infr_engine *open_plan(const struct test_plan *p, int threads)
{
    struct infr_image image = {p, sizeof *p, tp_table, tp_weights, sizeof tp_weights, NULL};
    struct infr_options opt = {.threads = threads};
    struct infr_engine *e;
    struct infr_status st;
    if (infr_engine_open(&image, &opt, &e, &st)) print_error("%s\n", st.note);
    return e;
}

enum { MOST = 1000 };
static float x_data[MOST * 3], want_y[MOST * 4];

/* Integers of a few bits: every sum is exact. */
static double expect(int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < 3 * n; i++) x_data[i] = (float)((i * 37 + 11) % 17 - 8);
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < 4; j++) {
            int v = (int)tp_weights[16 + j];
            for (int64_t k = 0; k < 3; k++)
                v += (int)x_data[3 * i + k] * (int)tp_weights[4 * k + j];
            want_y[4 * i + j] = v > 0 ? (float)v : 0;
            sum += v > 0 ? v : 0;
        }
    }
    return sum;
}

static void fill_inputs(struct infr_tensor *in, int64_t n, unsigned char *flip)
{
    in[0] = (struct infr_tensor){INFR_F32, 2, {n, 3}, x_data, (uint64_t)n * 12};
    in[1] = (struct infr_tensor){INFR_BOOL, 0, {0}, flip, 1};
}

static void run_and_check(struct infr_session *s, int64_t n, unsigned char flip)
{
    struct infr_tensor in[2], out[5] = {{0}};
    struct infr_status st;
    double sum = expect(n);
    fill_inputs(in, n, &flip);
    if (infr_session_run(s, in, out, &st)) fail_msg("%s", st.note);
    assert_int_equal(out[0].rank, 2);
    assert_int_equal(out[0].dims[0], n);
    assert_int_equal(out[0].dims[1], 4);
    assert_memory_equal(out[0].data, want_y, (size_t)n * 16);
    assert_true(*(float *)out[1].data == (float)sum);
    assert_int_equal(out[2].dims[0], 4 * n);
    for (int64_t i = 0; i < 4 * n; i++) {
        float v = want_y[4 * n - 1 - i], got = ((float *)out[2].data)[i];
        assert_true(got == (flip ? -v : v));
    }
    assert_memory_equal(out[3].data, x_data, (size_t)n * 12);
    assert_memory_equal(out[4].data, want_y, (size_t)n * 16);
}

static void test_runs(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 3, 5, 64, 997, 1, 1000, 7, 3, 2};
    for (int threads = 1; threads <= 4; threads++) {
        struct infr_engine *e = open_plan(&plan, threads);
        struct infr_session *s;
        assert_non_null(e);
        assert_int_equal(infr_engine_threads(e), threads);
        assert_string_equal(infr_engine_isa(e), "v2");
        assert_int_equal(infr_session_create(e, &s, NULL), 0);
        for (int round = 0; round < 20; round++)
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
                run_and_check(s, sizes[i], (unsigned char)((i + (size_t)round) % 2));
        infr_session_destroy(s);
        infr_engine_close(e);
    }
}

/* Stopped wherever that is possible, with whole runs of another session in between, the results are the same. */
static void test_pauses(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 3, 64, 1000};
    for (int threads = 1; threads <= 4; threads++) {
        struct infr_engine *e = open_plan(&plan, threads);
        struct infr_session *a, *b;
        assert_int_equal(infr_session_create(e, &a, NULL), 0);
        assert_int_equal(infr_session_create(e, &b, NULL), 0);
        for (int i = 0; i < 10; i++) {
            int64_t n = sizes[i / 2];
            unsigned char flip = (unsigned char)(i % 2);
            struct infr_tensor in[2], out[5] = {{0}};
            struct infr_status st;
            float x[MOST * 3];
            int pauses = 0, code;
            expect(n);
            memcpy(x, x_data, sizeof x);
            fill_inputs(in, n, &flip);
            in[0].data = x;
            a->until = 1; /* long ago */
            for (code = infr_session_run(a, in, out, &st); code == RT_PAUSED; code = rt_session_go_on(a, out, &st)) {
                pauses++;
                run_and_check(b, 1 + (i * 37 + pauses) % 90, !flip);
            }
            assert_int_equal(code, INFR_OK);
            assert_true(pauses >= (n >= 64 ? 4 : 1));
            double sum = expect(n);
            assert_memory_equal(out[0].data, want_y, (size_t)n * 16);
            assert_true(*(float *)out[1].data == (float)sum);
            for (int64_t k = 0; k < 4 * n; k++) {
                float v = want_y[4 * n - 1 - k];
                assert_true(((float *)out[2].data)[k] == (flip ? -v : v));
            }
            assert_int_equal(rt_session_go_on(a, out, &st), INFR_BAD_INPUT);
            assert_int_equal(infr_session_run(a, in, out, &st), RT_PAUSED);
            a->until = 0;
            run_and_check(a, n, flip); /* another run drops the paused one */
        }
        infr_session_destroy(a);
        infr_session_destroy(b);
        infr_engine_close(e);
    }
}

static void test_two_sessions(void **state)
{
    (void)state;
    struct infr_engine *e = open_plan(&plan, 2);
    struct infr_session *a, *b;
    assert_int_equal(infr_session_create(e, &a, NULL), 0);
    assert_int_equal(infr_session_create(e, &b, NULL), 0);
    for (int i = 1; i < 20; i++) {
        run_and_check(a, i, 1);
        run_and_check(b, 40 - i, 0);
    }
    infr_session_destroy(a);
    infr_session_destroy(b);
    infr_engine_close(e);
}

/* Memory of the caller for outputs, and too little of it. */
static void test_own_outputs(void **state)
{
    (void)state;
    struct infr_engine *e = open_plan(&plan, 2);
    struct infr_session *s;
    struct infr_tensor in[2], out[5] = {{0}};
    struct infr_status st;
    float y[8];
    unsigned char flip = 0;
    assert_int_equal(infr_session_create(e, &s, NULL), 0);
    expect(2);
    fill_inputs(in, 2, &flip);
    assert_int_equal(infr_session_shapes(s, in, out, &st), 0);
    assert_int_equal(out[0].bytes, 32);
    assert_int_equal(out[2].dims[0], 8);
    out[0].data = y;
    assert_int_equal(infr_session_run(s, in, out, &st), 0);
    assert_ptr_equal(out[0].data, y);
    assert_memory_equal(y, want_y, sizeof y);
    out[0].bytes = 31;
    assert_int_equal(infr_session_run(s, in, out, &st), INFR_BAD_INPUT);
    assert_string_equal(st.note, "output 'y' takes 32 bytes; there is room for 31");
    infr_session_destroy(s);
    infr_engine_close(e);
}

static void check_note(struct infr_session *s, const struct infr_tensor *in, const char *note)
{
    struct infr_tensor out[5] = {{0}};
    struct infr_status st;
    assert_int_equal(infr_session_run(s, in, out, &st), INFR_BAD_INPUT);
    assert_int_equal(st.code, INFR_BAD_INPUT);
    assert_string_equal(st.note, note);
}

static void test_contract(void **state)
{
    (void)state;
    struct infr_engine *e = open_plan(&plan, 1);
    struct infr_session *s;
    struct infr_tensor in[2];
    unsigned char flip = 0;
    assert_int_equal(infr_session_create(e, &s, NULL), 0);
    fill_inputs(in, 2, &flip);
    in[0].dtype = INFR_F64;
    check_note(s, in, "input 'x': element type f32 expected (f32[n,3]), got f64 (f64[2,3])");
    fill_inputs(in, 2, &flip);
    in[0].rank = 1;
    check_note(s, in, "input 'x': 2 dims expected (f32[n,3]), got 1 (f32[2])");
    fill_inputs(in, 2, &flip);
    in[0].dims[1] = 5, in[0].bytes = 40;
    check_note(s, in, "input 'x': dim 1 is 5; expected 3");
    fill_inputs(in, 1001, &flip);
    check_note(s, in, "input 'x': dim 0 ('n') is 1001; expected 1 to 1000");
    fill_inputs(in, 0, &flip);
    check_note(s, in, "input 'x': dim 0 ('n') is 0; expected 1 to 1000");
    fill_inputs(in, 2, &flip);
    in[0].dims[0] = -1;
    check_note(s, in, "input 'x': f32[n,3] expected, got impossible dims f32[-1,3]");
    fill_inputs(in, 2, &flip);
    in[0].dims[0] = INT64_MAX / 2;
    check_note(s, in,
               "input 'x': f32[n,3] expected, got impossible dims f32[4611686018427387903,3]");
    fill_inputs(in, 2, &flip);
    in[0].bytes = 23;
    check_note(s, in, "input 'x': f32[2,3] takes 24 bytes, got 23");
    fill_inputs(in, 2, &flip);
    in[0].data = (char *)x_data + 1;
    check_note(s, in, "input 'x': its data is not aligned to its elements");
    fill_inputs(in, 2, &flip);
    in[1].data = NULL;
    check_note(s, in, "input 'flip' is missing");
    run_and_check(s, 3, 1); /* a failed call leaves the session usable */
    infr_session_destroy(s);
    infr_engine_close(e);
}

static void test_checks(void **state)
{
    (void)state;
    struct test_plan p = plan;
    p.checks[0].a = TP_4N, p.checks[0].b = TP_C16;
    struct infr_engine *e = open_plan(&p, 1);
    struct infr_session *s;
    struct infr_tensor in[2];
    unsigned char flip = 0;
    assert_int_equal(infr_session_create(e, &s, NULL), 0);
    run_and_check(s, 4, 0);
    fill_inputs(in, 5, &flip);
    check_note(s, in,
               "the inputs' shapes do not fit: n*4 <= 16 expected, got 20 and 16 with n = 5: n is "
               "not negative");
    infr_session_destroy(s);
    infr_engine_close(e);
}

/* A plan whose first branch needs n*4 <= 16 and whose second needs n == 3, each only when taken. */
static void branch_checks(struct test_plan *p)
{
    static const struct infr_step steps[8] = {
        {INFR_STEP_CHECK, 1, 0, 0}, {INFR_STEP_LAUNCH, 3, 0, 0},
        {INFR_STEP_CHECK, 2, 0, 0}, {INFR_STEP_LAUNCH, 4, 0, 0},
        {INFR_STEP_LAUNCH, 0, 0, 0},            {INFR_STEP_LAUNCH, 1, 0, 0},
        {INFR_STEP_LAUNCH, 2, 0, 0},            {INFR_STEP_IF, 1, 0, 1}};
    *p = plan;
    memcpy(p->steps, steps, sizeof steps);
    p->checks[1] = (struct infr_check){TP_4N, TP_C16, 1, p->checks[0].message};
    p->checks[2] = (struct infr_check){TP_N, TP_C3, 0, p->checks[0].message};
    p->h.checks.count = 3, p->h.branch_checks = 2;
    p->blocks[0] = (struct infr_block){0, 2}, p->blocks[1] = (struct infr_block){2, 2};
    p->blocks[2] = (struct infr_block){4, 4};
    p->outputs[2].buf = 8; /* u is z: no launch 5 */
    p->bufs[8] = (struct infr_buf){INFR_BUF_OUTPUT, DT_F32, TP_16N, 2, 0, 0, 0, 0};
    p->bufs[4] = (struct infr_buf){INFR_BUF_ARENA, DT_F32, TP_16N, 0, 0, 0, 0, 1};
}

static void test_branch_checks(void **state)
{
    (void)state;
    static struct test_plan p;
    branch_checks(&p);
    for (int threads = 1; threads <= 4; threads++) {
        struct infr_engine *e = open_plan(&p, threads);
        struct infr_session *s;
        assert_non_null(e);
        assert_int_equal(infr_session_create(e, &s, NULL), 0);
        for (int round = 0; round < 40; round++) {
            int64_t n = round % 8 + 1;
            unsigned char flip = (unsigned char)(round / 8 % 2);
            struct infr_tensor in[2], out[5] = {{0}};
            struct infr_status st;
            char note[200];
            expect(n);
            fill_inputs(in, n, &flip);
            int code = infr_session_run(s, in, out, &st);
            if (flip ? n <= 4 : n == 3) {
                assert_int_equal(code, 0);
                for (int64_t i = 0; i < 4 * n; i++)
                    assert_true(((float *)out[2].data)[i] == (flip ? -want_y[i] : want_y[i]));
                continue;
            }
            snprintf(note, sizeof note,
                     flip ? "the inputs' shapes do not fit: n*4 <= 16 expected, got %d and 16 "
                            "with n = %d: n is not negative"
                          : "the inputs' shapes do not fit: n == 3 expected, got %d and 3 "
                            "with n = %d: n is not negative",
                     (int)(flip ? 4 * n : n), (int)n);
            assert_int_equal(code, INFR_BAD_INPUT);
            assert_string_equal(st.note, note);
        }
        infr_session_destroy(s);
        infr_engine_close(e);
    }
}

static void test_cancel(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        struct infr_engine *e = open_plan(&plan, threads);
        struct infr_session *s;
        struct infr_tensor in[2], out[5] = {{0}};
        struct infr_status st;
        unsigned char flip = 0;
        assert_int_equal(infr_session_create(e, &s, NULL), 0);
        fill_inputs(in, 50, &flip);
        infr_session_cancel(s);
        assert_int_equal(infr_session_run(s, in, out, &st), INFR_CANCELLED);
        run_and_check(s, 50, 1);
        infr_session_destroy(s);
        infr_engine_close(e);
    }
}

static void test_optional(void **state)
{
    (void)state;
    struct test_plan p = plan;
    struct infr_tensor in[2], out[5] = {{0}};
    struct infr_status st;
    p.inputs[1].optional = 1, p.inputs[1].default_offset = 0,
    p.inputs[1].default_bytes = 1; /* low byte of 1.0f: false */
    struct infr_engine *e = open_plan(&p, 2);
    struct infr_session *s;
    assert_int_equal(infr_session_create(e, &s, NULL), 0);
    expect(3);
    fill_inputs(in, 3, NULL);
    if (infr_session_run(s, in, out, &st)) fail_msg("%s", st.note);
    assert_true(((float *)out[2].data)[11] == want_y[0]);
    p.inputs[1].default_offset = 2; /* 0x80: true */
    if (infr_session_run(s, in, out, &st)) fail_msg("%s", st.note);
    assert_true(((float *)out[2].data)[11] == -want_y[0]);
    infr_session_destroy(s);
    infr_engine_close(e);
}

/* State must be given, and its values have no default. */
static void test_state(void **state)
{
    (void)state;
    struct test_plan p = plan;
    struct infr_tensor in[2], out[5] = {{0}};
    struct infr_status st;
    struct infr_io_info info;
    unsigned char flip = 1;
    p.inputs[1].optional = INFR_IO_STATE, p.inputs[1].default_offset = UINT64_MAX;
    struct infr_engine *e = open_plan(&p, 1);
    struct infr_session *s;
    infr_engine_input(e, 1, &info);
    assert_true(info.state);
    assert_false(info.optional);
    assert_int_equal(infr_session_create(e, &s, NULL), 0);
    run_and_check(s, 3, 1);
    fill_inputs(in, 3, NULL);
    assert_int_equal(infr_session_run(s, in, out, &st), INFR_BAD_INPUT);
    assert_string_equal(st.note, "input 'flip' is missing");
    fill_inputs(in, 3, &flip);
    assert_int_equal(infr_session_run(s, in, out, &st), 0);
    infr_session_destroy(s);
    infr_engine_close(e);
}

/* Engines of format 1.0 have a header without the text section. */
static void test_first_header(void **state)
{
    (void)state;
    struct test_plan p = plan;
    p.h.header_bytes = offsetof(struct infr_header, text_offset), p.h.minor = 0;
    p.h.text_offset = 1, p.h.text_bytes = UINT32_MAX; /* not part of it */
    struct infr_engine *e = open_plan(&p, 1);
    assert_non_null(e);
    assert_int_equal(e->h.text_bytes, 0);
    infr_engine_close(e);
}

/* A later minor version appends fields to rows; tables may then lie anywhere. */
static void test_longer_rows(void **state)
{
    (void)state;
    static unsigned char blob[sizeof(struct test_plan) + 4096];
    struct infr_header h = plan.h;
    struct infr_image image = {blob, sizeof blob, tp_table, tp_weights, sizeof tp_weights, NULL};
    struct infr_options opt = {.threads = 2};
    struct infr_engine *e;
    struct infr_session *s;
    memcpy(blob, &plan, sizeof plan);
    h.minor = 9, h.blob_bytes = sizeof blob;
    h.launches.offset = sizeof plan + 4, h.launches.stride += 12;
    for (size_t i = 0; i < 6; i++)
        memcpy(blob + h.launches.offset + i * h.launches.stride, &plan.launches[i],
               sizeof plan.launches[i]);
    memcpy(blob, &h, sizeof h);
    assert_int_equal(infr_engine_open(&image, &opt, &e, NULL), 0);
    assert_int_equal(infr_session_create(e, &s, NULL), 0);
    run_and_check(s, 33, 1);
    infr_session_destroy(s);
    infr_engine_close(e);
}

static void test_levels(void **state)
{
    (void)state;
    struct infr_image image = {&plan, sizeof plan, tp_table, tp_weights, sizeof tp_weights, NULL};
    struct infr_engine *e;
    struct infr_status st;
    struct infr_options opt = {.threads = 1, .isa = "v3"};
    assert_int_equal(infr_engine_open(&image, &opt, &e, &st), INFR_BAD_INPUT);
    assert_null(e);
    assert_string_equal(st.note, "this engine has no code for level v3; it has v2");
    opt.isa = "v9";
    assert_int_equal(infr_engine_open(&image, &opt, &e, &st), INFR_BAD_INPUT);
    opt.isa = "v2";
    assert_int_equal(infr_engine_open(&image, &opt, &e, &st), 0);
    infr_engine_close(e);
    assert_true(rt_cpu_levels() & 1);
    assert_true(rt_cpu_count() >= 1);
}

/* ---- damage ---- */

static bool opens(const struct test_plan *p)
{
    struct infr_image image = {p, sizeof *p, tp_table, tp_weights, sizeof tp_weights, NULL};
    struct infr_options opt = {.threads = 1};
    struct infr_engine *e;
    struct infr_status st;
    int code = infr_engine_open(&image, &opt, &e, &st);
    infr_engine_close(e);
    if (code) assert_int_equal(code, INFR_ENVIRONMENT);
    return !code;
}

#define REFUSED(change)            \
    {                              \
        struct test_plan p = plan; \
        change;                    \
        assert_false(opens(&p));   \
    }

static void test_refused(void **state)
{
    (void)state;
    assert_true(opens(&plan));
    REFUSED(p.h.magic++)
    REFUSED(p.h.major++)
    REFUSED(p.h.header_bytes = 8)
    REFUSED((p.h.text_offset = 0, p.h.text_bytes = UINT32_MAX))
    REFUSED((p.h.text_offset = UINT32_MAX - 63, p.h.text_bytes = 1))
    REFUSED((p.h.text_offset = 8, p.h.text_bytes = 8))
    REFUSED(p.h.blob_bytes++)
    REFUSED(p.h.weights_bytes = sizeof tp_weights + 1)
    REFUSED(p.h.dims.offset = sizeof plan)
    REFUSED(p.h.dims.count = UINT32_MAX)
    REFUSED(p.h.dims.stride = 8)
    REFUSED(p.h.entry_block = 3)
    REFUSED(p.h.model_name = sizeof plan)
    REFUSED(memset(p.strings, 1, sizeof p.strings))
    REFUSED(p.dims[TP_4N].a = TP_4N)
    REFUSED(p.dims[TP_4N].b = TP_12N)
    REFUSED(p.dims[TP_4N].op = INFR_DIM_MAX + 1)
    REFUSED(p.dims[TP_N].a = 1)
    REFUSED(p.symbols[0].bind_input = 2)
    REFUSED(p.symbols[0].bind_input = INFR_NONE)
    REFUSED(p.symbols[0].bind_axis = 1)
    REFUSED(p.symbols[0].bind_axis = 2)
    REFUSED(p.symbols[0].lo = 1001)
    REFUSED(p.inputs[0].dtype = DT_STRING)
    REFUSED(p.inputs[0].dtype = DT_COUNT)
    REFUSED(p.inputs[0].dtype = DT_F64)
    REFUSED(p.inputs[0].rank = INFR_MAX_RANK + 1)
    REFUSED(p.inputs[0].dims = 5)
    REFUSED(p.inputs[0].dims = UINT32_MAX)
    REFUSED(p.inputs[0].buf = 9)
    REFUSED(p.inputs[0].buf = 2)
    REFUSED(p.inputs[0].name = 0)
    REFUSED((p.inputs[0].optional = 1, p.inputs[0].default_bytes = 1000))
    REFUSED(p.inputs[0].optional = 3)
    REFUSED((p.inputs[0].optional = 1, p.inputs[0].default_offset = UINT64_MAX,
             p.inputs[0].default_bytes = 2))
    REFUSED(p.outputs[1].buf = 9)
    REFUSED(p.bufs[0].kind = 4)
    REFUSED(p.bufs[0].bytes = TP_DIMS)
    REFUSED(p.bufs[2].io = 1)
    REFUSED(p.bufs[5].const_offset = 40)
    REFUSED(p.bufs[5].const_offset = UINT64_MAX)
    REFUSED(p.bufs[8].first = 6)
    REFUSED(p.args[0].buf = 9)
    REFUSED(p.args[0].offset = TP_DIMS)
    REFUSED(p.launches[0].kernel = TP_KERNELS)
    REFUSED(p.launches[0].args = 14)
    REFUSED(p.launches[0].n_args = 15)
    REFUSED(p.launches[0].dims = 6)
    REFUSED(p.launches[0].slices[0] = INFR_NONE)
    REFUSED(p.launches[0].slices[3] = TP_DIMS)
    REFUSED(p.launches[0].name = sizeof plan + 9)
    REFUSED(p.launches[0].flops = TP_DIMS)
    REFUSED(p.pool_u32[2] = TP_DIMS)
    REFUSED(p.steps[0].kind = INFR_STEP_PROBE + 1)
    REFUSED(p.steps[0] = ((struct infr_step){INFR_STEP_PROBE, 0, 0, 0})) /* an input */
    REFUSED(p.steps[0] = ((struct infr_step){INFR_STEP_PROBE, 1000, 0, 0}))
    REFUSED((branch_checks(&p), p.steps[0].a = 3))
    REFUSED((branch_checks(&p), p.checks[2].b = TP_DIMS))
    REFUSED((branch_checks(&p), p.h.branch_checks = 4))
    REFUSED(p.steps[0].a = 6)
    REFUSED(p.steps[0].a = 4) /* a launch twice */
    REFUSED(p.steps[5].a = 0) /* not a bool */
    REFUSED(p.steps[5].b = 3)
    REFUSED(p.steps[5].b = 1) /* a block twice */
    REFUSED(p.steps[5].b = 2) /* a cycle */
    REFUSED(p.blocks[0].first = 9)
    REFUSED(p.blocks[2].count = 7)
    REFUSED(p.kernels[0].symbol = 0)
    REFUSED(p.kernels[0].isa_mask = 0)
    REFUSED(p.kernels[0].isa_mask = 2)
    REFUSED(p.kernels[0].isa_mask = 32)
    REFUSED(p.goldens[0].symbols = 1)
    REFUSED(p.goldens[0].outputs = 1)
    REFUSED(p.goldens[0].n_rows = 4)
    REFUSED(p.goldens[0].n_rows = 6)
    REFUSED(p.golden_outputs[1].input = 0)
    REFUSED(p.golden_outputs[1].input = 9)
    REFUSED(p.golden_outputs[1].tolerance = -1)
    REFUSED(p.golden_outputs[1].tolerance = NAN)
    REFUSED(p.golden_outputs[1].step = 0)
    REFUSED((p.golden_outputs[1].probe = 2, p.golden_outputs[1].step = 2)) /* begins behind the end */
    REFUSED(p.golden_outputs[1].n_values = 2)
    REFUSED(p.golden_outputs[1].values = TP_ROWS)
}

/* Every byte changed in several ways: the plan is refused, or binding inputs to it is safe (with
 * ASan: touches nothing outside). */
static void test_mutations(void **state)
{
    (void)state;
    static const unsigned char change[] = {0x01, 0x80, 0xff};
    static struct test_plan p;
    struct infr_tensor in[2], out[5];
    unsigned char flip = 0;
    size_t n_open = 0, end = offsetof(struct test_plan, strings) + 64;
    for (size_t at = 0; at < end; at++) {
        for (size_t c = 0; c < sizeof change; c++) {
            struct infr_image image = {&p, sizeof p, tp_table, tp_weights, sizeof tp_weights, NULL};
            struct infr_options opt = {.threads = 1};
            struct infr_engine *e;
            struct infr_session *s;
            p = plan;
            ((unsigned char *)&p)[at] ^= change[c];
            if (infr_engine_open(&image, &opt, &e, NULL)) continue;
            n_open++;
            assert_int_equal(infr_session_create(e, &s, NULL), 0);
            fill_inputs(in, 3, &flip);
            if (infr_engine_inputs(e) == 2 && infr_engine_outputs(e) == 5)
                infr_session_shapes(s, in, out, NULL);
            for (uint32_t i = 0; i < infr_engine_inputs(e); i++) {
                struct infr_io_info info;
                infr_engine_input(e, i, &info);
            }
            infr_session_destroy(s);
            infr_engine_close(e);
        }
    }
    assert_true(n_open > 100);
}

int main(int argc, char **argv)
{
    tp_init(&plan);
    if (argc == 2) { /* for linking an engine from it by hand */
        FILE *f = fopen(argv[1], "wb");
        return !f || fwrite(&plan, sizeof plan, 1, f) != 1 || fclose(f);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs),        cmocka_unit_test(test_pauses),
        cmocka_unit_test(test_two_sessions),
        cmocka_unit_test(test_own_outputs), cmocka_unit_test(test_contract),
        cmocka_unit_test(test_checks),      cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_optional),    cmocka_unit_test(test_longer_rows),
        cmocka_unit_test(test_levels),      cmocka_unit_test(test_refused),
        cmocka_unit_test(test_mutations),   cmocka_unit_test(test_state),
        cmocka_unit_test(test_first_header), cmocka_unit_test(test_branch_checks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
