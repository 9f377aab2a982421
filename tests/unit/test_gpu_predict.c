// SPDX-License-Identifier: Apache-2.0
/* Predicted times of launches on a GPU against sums done by hand from an H100's data sheet. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "passes/gpu_predict.h"

#define CLOSE(a, b) assert_true(fabs((a) - (double)(b)) <= 1e-6 * (1 + fabs((double)(b))))
#define LAUNCH 1.3 /* us, of every kernel of a graph */
#define F32 (1ull << DT_F32)
#define F16 (1ull << DT_F16)

/* 132 multiprocessors of 2,048 threads, 65,536 registers and 228 KiB; 3,352 GB/s; TFLOP/s 66.9 f32, 494.7 tf32, 989.4 f16. */
static const struct target_gpu *h100(void) { return target_find("sm90")->levels[0].gpu; }

static void test_memory(void **state)
{
    (void)state;
    struct gpu_prediction g;
    const struct target_gpu_code code = {.threads = 128, .slices_cta = 128, .regs = 32};
    /* 32,768 CTAs, 16 a multiprocessor: 132 x 64 warps x 512 bytes are 4.3 MB in flight, more than 3,352 GB/s x 700 ns = 2.3 MB. */
    gpu_predict(h100(), &code, &(struct gpu_work){.slices = 1 << 22, .flops = 1e6, .bytes = 3352e6}, F32, &g);
    CLOSE(g.us, 1000 + LAUNCH);
    CLOSE(g.ideal_us, 1000);
    CLOSE(g.occupancy, 1);
    CLOSE(g.ctas, 32768);
    assert_string_equal(g.bound, "memory");
    /* A single CTA has 4 warps x 512 bytes in flight: 2,048 bytes each 700 ns. */
    gpu_predict(h100(), &code, &(struct gpu_work){.slices = 1, .bytes = 1e6}, F32, &g);
    CLOSE(g.us, 1e6 / (2048 / 0.7) + LAUNCH);
    /* Elements of 4 bytes at a time: a quarter of it. */
    gpu_predict(h100(), &code, &(struct gpu_work){.slices = 1, .bytes = 1e6, .is_generic = true}, F32, &g);
    CLOSE(g.us, 4e6 / (2048 / 0.7) + LAUNCH);
    /* 4 KB: the launch is what takes time. */
    gpu_predict(h100(), &code, &(struct gpu_work){.slices = 1 << 14, .bytes = 4096}, F32, &g);
    assert_string_equal(g.bound, "launch");
}

static void test_arithmetic(void **state)
{
    (void)state;
    struct gpu_prediction g;
    const struct target_gpu_code code = {.threads = 128, .slices_cta = 1, .regs = 64, .unit = TARGET_GPU_HALF};
    /* 132 CTAs are one a multiprocessor; with one more, one of them has two and all wait for it. */
    gpu_predict(h100(), &code, &(struct gpu_work){.slices = 132, .flops = 989.4e9, .bytes = 1e6}, F16, &g);
    CLOSE(g.us, 1000 + LAUNCH);
    assert_string_equal(g.bound, "tensor");
    gpu_predict(h100(), &code, &(struct gpu_work){.slices = 133, .flops = 989.4e9, .bytes = 1e6}, F16, &g);
    CLOSE(g.us, 1000 * 2 * 132.0 / 133 + LAUNCH);
    CLOSE(g.ideal_us, 1000);
    /* The same opcode on f32 operands is tf32. */
    gpu_predict(h100(), &code, &(struct gpu_work){.slices = 132, .flops = 494.7e9, .bytes = 1e6}, F32, &g);
    CLOSE(g.us, 1000 + LAUNCH);
    /* Without tensor units 4 warps keep a quarter of the 16 that FMAs need. */
    const struct target_gpu_code plain = {.threads = 128, .slices_cta = 1, .regs = 64};
    gpu_predict(h100(), &plain, &(struct gpu_work){.slices = 132, .flops = 66.9e9, .bytes = 1e6}, F32, &g);
    CLOSE(g.us, 4000 + LAUNCH);
    assert_string_equal(g.bound, "fma");
}

static void test_occupancy(void **state)
{
    (void)state;
    struct gpu_prediction g;
    const struct gpu_work work = {.slices = 1 << 20, .flops = 1e9, .bytes = 1e9};
    /* 100 KiB and 1 KiB that every CTA takes: two of 228 KiB. */
    gpu_predict(h100(), &(struct target_gpu_code){.threads = 128, .slices_cta = 1, .regs = 32, .shared_bytes = 100 << 10}, &work, F32, &g);
    CLOSE(g.occupancy, 2 * 128.0 / 2048);
    /* 255 registers x 32 lanes round up to 8,192 a warp: 8 warps of 65,536 registers, two CTAs. */
    gpu_predict(h100(), &(struct target_gpu_code){.threads = 128, .slices_cta = 1, .regs = 255}, &work, F32, &g);
    CLOSE(g.occupancy, 2 * 128.0 / 2048);
    /* 32 CTAs at most, of one warp each. */
    gpu_predict(h100(), &(struct target_gpu_code){.threads = 32, .slices_cta = 1, .regs = 16}, &work, F32, &g);
    CLOSE(g.occupancy, 32 * 32.0 / 2048);
}

static void test_code(void **state)
{
    (void)state;
    struct target_gpu_code c;
    bool (*read)(const void *, size_t, struct target_gpu_code *) = target_find("sm90")->read_code;
    char bytes[512] = "not machine code";
    assert_false(read(bytes, sizeof bytes, &c));
    assert_false(read(bytes, 3, &c));
    assert_int_equal(c.threads, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_memory), cmocka_unit_test(test_arithmetic), cmocka_unit_test(test_occupancy),
                                       cmocka_unit_test(test_code)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
