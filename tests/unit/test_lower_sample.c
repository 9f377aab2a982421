// SPDX-License-Identifier: Apache-2.0
/* Ops that resample, gather by coordinates or transform: their indexed expressions against the reference evaluator. */
#include "test_equiv.h"

struct sample_case {
    const char *args, *out, *body;
    double scale;       /* of the inputs, 0: 1 */
    const char *before; /* ops before it */
};

#define IMG "%x: f32[n, 2, h, 7]"

static const struct sample_case cases[] = {
    /* symbolic and constant sizes, up and down, every mode and coordinate rule */
    {IMG, "f32[n, 2, 2*h, 14]", "resize %x sizes=(n, 2, 2*h, 14) scales=f[1.0, 1.0, 2.0, 2.0] mode=\"nearest\" coord=\"half_pixel\"", 0, NULL},
    {IMG, "f32[n, 2, 3*h, 21]", "resize %x sizes=(n, 2, 3*h, 21) scales=f[1.0, 1.0, 3.0, 3.0] mode=\"nearest\" coord=\"asymmetric\" nearest=\"floor\"", 0, NULL},
    {IMG, "f32[n, 2, 3*h, 21]", "resize %x sizes=(n, 2, 3*h, 21) scales=f[1.0, 1.0, 3.0, 3.0] mode=\"nearest\" coord=\"asymmetric\" nearest=\"round_prefer_ceil\"", 0, NULL},
    {IMG, "f32[n, 2, 5, 3]", "resize %x sizes=(n, 2, 5, 3) mode=\"nearest\" coord=\"pytorch_half_pixel\" nearest=\"ceil\"", 0, NULL},
    {IMG, "f32[n, 2, 2*h, 21]", "resize %x sizes=(n, 2, 2*h, 21) scales=f[1.0, 1.0, 2.0, 3.0] mode=\"nearest\" coord=\"half_pixel_symmetric\"", 0, NULL},
    {IMG, "f32[n, 2, 2*h, 5]", "resize %x sizes=(n, 2, 2*h, 5) mode=\"linear\" coord=\"half_pixel\"", 0, NULL},
    {IMG, "f32[n, 2, 1, 15]", "resize %x sizes=(n, 2, 1, 15) mode=\"linear\" coord=\"align_corners\"", 0, NULL},
    {IMG, "f32[n, 2, w, 15]", "resize %x sizes=(n, 2, w, 15) mode=\"linear\" coord=\"align_corners\"", 0, NULL},
    {IMG, "f32[n, 2, w, 15]", "resize %x sizes=(n, 2, w, 15) mode=\"linear\" coord=\"pytorch_half_pixel\" exclude_outside=1", 0, NULL},
    {IMG, "f32[n, 2, w, 9]", "resize %x sizes=(n, 2, w, 9) mode=\"linear\" coord=\"half_pixel_symmetric\" antialias=1", 0, NULL},
    {IMG, "f32[n, 2, w, 3]", "resize %x sizes=(n, 2, w, 3) scales=f[1.0, 1.0, 0.0, 0.5] mode=\"cubic\" coord=\"half_pixel\" antialias=1", 0, NULL},
    {IMG, "f32[n, 2, w, 3]", "resize %x sizes=(n, 2, w, 3) mode=\"cubic\" coord=\"half_pixel\" antialias=1 exclude_outside=1", 0, NULL},
    {IMG, "f32[n, 2, h, 19]", "resize %x sizes=(n, 2, h, 19) mode=\"cubic\" coord=\"asymmetric\" cubic_a=-0.5 exclude_outside=1", 0, NULL},
    {IMG, "f32[n, 2, 2*h, 19]", "resize %x sizes=(n, 2, 2*h, 19) mode=\"cubic\" coord=\"half_pixel\"", 0, NULL},
    {IMG, "f32[n, 2, 6, 9]", "resize %x sizes=(n, 2, 6, 9) mode=\"linear\" coord=\"tf_crop_and_resize\" extrapolation=7.0 roi=f[0.0, 0.0, 0.25, -0.2, 1.0, 1.0, 0.75, 1.5]", 0, NULL},
    {IMG, "f32[n, 2, 1, 9]", "resize %x sizes=(n, 2, 1, 9) mode=\"nearest\" coord=\"tf_crop_and_resize\" roi=f[0.0, 0.0, 0.25, 0.2, 1.0, 1.0, 0.75, 0.8]", 0, NULL},
    {"%x: f16[n, 2, h, 7]", "f16[n, 2, 5, 13]", "resize %x sizes=(n, 2, 5, 13) mode=\"linear\" coord=\"half_pixel\"", 0, NULL},
    {"%x: u8[n, 2, h, 7]", "u8[n, 2, 2*h, 13]", "resize %x sizes=(n, 2, 2*h, 13) mode=\"linear\" coord=\"align_corners\"", 0, NULL},
    {"%x: i64[n, 2, h, 7]", "i64[n, 2, 2*h, 13]", "resize %x sizes=(n, 2, 2*h, 13) mode=\"nearest\" coord=\"align_corners\" nearest=\"ceil\"", 0, NULL},
    {"%x: f64[3, h]", "f64[5, 4]", "resize %x sizes=(5, 4) mode=\"cubic\" coord=\"half_pixel\"", 0, NULL},
#define GRID IMG ", %g: f32[n, 5, w, 2]", "f32[n, 2, 5, w]", "grid_sample %x, %g "
    {GRID "mode=\"linear\" padding=\"zeros\"", 1.3, NULL},
    {GRID "mode=\"linear\" padding=\"border\" align_corners=1", 1.3, NULL},
    {GRID "mode=\"linear\" padding=\"reflection\"", 5, NULL},
    {GRID "mode=\"linear\" padding=\"reflection\" align_corners=1", 5, NULL},
    {GRID "mode=\"nearest\" padding=\"zeros\" align_corners=1", 1.3, NULL},
    {GRID "mode=\"nearest\" padding=\"reflection\"", 9, NULL},
    {GRID "mode=\"cubic\" padding=\"zeros\"", 1.3, NULL},
    {GRID "mode=\"cubic\" padding=\"border\"", 1.3, NULL},
    {GRID "mode=\"cubic\" padding=\"reflection\" align_corners=1", 6, NULL},
    {"%x: f32[n, 2, h, 7, 1], %g: f32[n, 3, 2, w, 3]", "f32[n, 2, 3, 2, w]", "grid_sample %x, %g mode=\"linear\" padding=\"reflection\" align_corners=1", 2, NULL},
    {"%x: f64[n, 2, w], %g: f64[n, 3, 1]", "f64[n, 2, 3]", "grid_sample %x, %g mode=\"cubic\" padding=\"zeros\"", 1, NULL},
#define ZERO "%z = constant value=@zero\n %zero = broadcast %z dims=(w)\n"
    {IMG ", %r: f32[w, 4]", "f32[w, 2, 3, 5]", "roi_align %x, %r, %zero output_height=3 output_width=5 sampling_ratio=2 spatial_scale=0.5", 20, ZERO},
    {IMG ", %r: f32[w, 4]", "f32[w, 2, 3, 5]", "roi_align %x, %r, %zero output_height=3 output_width=5 mode=\"max\" coord=\"output_half_pixel\"", 8, ZERO},
    {IMG ", %r: f32[w, 4]", "f32[w, 2, 3, 5]", "roi_align %x, %r, %zero output_height=3 output_width=5 spatial_scale=2.0 coord=\"half_pixel\"", 4, ZERO},
    {IMG ", %r: f32[w, 4]", "f32[w, 2, 3, 5]", "roi_align %x, %r, %zero output_height=3 output_width=5 mode=\"max\" coord=\"half_pixel\"", 4, ZERO},
    {"%x: f32[n, 12, 4]", "f32[n, 2, 5, 6]", "col2im %x image=(5, 6) block=[2, 3] strides=[2, 2] dilations=[2, 1]", 0, NULL},
    {"%x: f32[n, 12, 12]", "f32[n, 2, 5, 6]", "col2im %x image=(5, 6) block=[2, 3] strides=[2, 2] dilations=[1, 1] pads=[1, 1, 1, 2]", 0, NULL},
    {"%x: i32[n, 6, w]", "i32[n, 3, w + 1]", "col2im %x image=(w + 1) block=[2]", 0, NULL},
    {"%x: f32[n, h, 1]", "f32[n, h, 2]", "dft %x axis=1", 0, NULL},
    {"%x: f32[n, h, 3, 1]", "f32[n, 9, 3, 2]", "dft %x axis=1 length=(16) onesided=1", 0, NULL},
    {"%x: f32[n, h, 3, 2]", "f32[n, 16, 3, 2]", "dft %x axis=1 length=(16)", 0, NULL},
    {"%x: f32[n, h, 2]", "f32[n, h, 2]", "dft %x axis=1 inverse=1", 0, NULL},
    {"%x: f64[h, n, 2]", "f64[h, 5, 2]", "dft %x axis=1 length=(5)", 0, NULL},
    {"%x: f32[n, w, w]", "f32[n]", "det %x", 0, NULL},
    {"%x: f32[3, 3]", "f32[]", "det %x", 0, NULL},
    {"%x: f64[n, 1, 1]", "f64[n]", "det %x", 0, NULL},
};

static void test_sampling(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{2, 6, 4}, {1, 5, 9}, {3, 9, 1}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct sample_case *s = &cases[i];
        char text[2048];
        snprintf(text, sizeof text,
                 "model \"t\" { sym n in [1, 4] sym h in [2, 64] sym w in [1, 16]\n const @zero: i64[] = [0]\n"
                 "func @main(%s, %%unused: f32[w]) -> (y: %s) {\n %s %%y = %s\n return %%y\n} }\n",
                 s->args, s->out, s->before ? s->before : "", s->body);
        for (size_t k = 0; k < ARRAY_LEN(sizes); k++) {
            struct equiv e;
            equiv_init(&e);
            if (s->scale != 0) e.scale = s->scale;
            e.int_limit = 100;
            equiv_start_text(&e, text, 3, sizes[k]);
            assert_true(pass_group(e.m, &e.diag));
            equiv_check_plan(&e, NULL);
            equiv_end(&e);
        }
    }
}

/* Rows that repeat: elimination meets a pivot of 0. */
static void test_singular(void **state)
{
    (void)state;
    struct equiv e;
    equiv_init(&e);
    equiv_start_text(&e,
                     "model \"t\" { func @main(%x: f32[2, 1, 4]) -> (y: f32[2]) {\n"
                     " %b = broadcast %x dims=(2, 4, 4)\n %y = det %b\n return %y\n} }\n", 0, NULL);
    assert_true(((float *)e.want[0].data)[0] == 0);
    assert_true(pass_group(e.m, &e.diag));
    equiv_check_plan(&e, NULL);
    equiv_end(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sampling), cmocka_unit_test(test_singular)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
