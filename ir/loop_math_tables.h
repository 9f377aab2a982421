// SPDX-License-Identifier: Apache-2.0
/* Polynomials of ir/loop_math*.c, lowest coefficient first: printed by tests/loop/fit.py, which says what they fit. */
#ifndef INFC_IR_LOOP_MATH_TABLES_H
#define INFC_IR_LOOP_MATH_TABLES_H

/* exp_f32: weighted error 4.28e-9 = 2^-27.8 (before rounding 2^-28.21) */
static const double fit_exp_f32[] = {
    0x1.0000000000000p-1, 0x1.5554900000000p-3, 0x1.55545e0000000p-5, 0x1.123b4c0000000p-7,
    0x1.6db4960000000p-10,
};
/* log_f32: weighted error 9.11e-10 = 2^-30.03 (before rounding 2^-30.35) */
static const double fit_log_f32[] = {
    0x1.5555460000000p-2, -0x1.ffffee0000000p-3, 0x1.99a53c0000000p-3, -0x1.5562d80000000p-3,
    0x1.2333500000000p-3, -0x1.fb44e20000000p-4, 0x1.e64ad20000000p-4, -0x1.e2dee20000000p-4,
    0x1.1b42880000000p-4,
};
/* erf_small_f32: weighted error 2.16e-8 = 2^-25.46 (before rounding 2^-25.8) */
static const double fit_erf_small_f32[] = {
    0x1.06eba60000000p-3, -0x1.8126e60000000p-2, 0x1.ce1a460000000p-4, -0x1.b686ea0000000p-6,
    0x1.4716b40000000p-8, -0x1.395c520000000p-11,
};
/* erf_large_f32: weighted error 3.4e-9 = 2^-28.13 (before rounding 2^-34.86) */
static const double fit_erf_large_f32[] = {
    -0x1.55f4c60000000p-13, 0x1.21238a0000000p+0, 0x1.445b6a0000000p-1, 0x1.ba988c0000000p-4,
    -0x1.9873f80000000p-6, 0x1.0ac8600000000p-8, -0x1.a57dfa0000000p-12, 0x1.fe30200000000p-17,
    0x1.eab9b80000000p-22,
};
/* erf_wide_f32: weighted error 3.99e-8 = 2^-24.58 (before rounding 2^-27.24) */
static const double fit_erf_wide_f32[] = {
    0x1.6a04080000000p-2, -0x1.69a0c80000000p-3, 0x1.0dabbe0000000p-3, -0x1.b9308a0000000p-4,
    0x1.717ca80000000p-4, -0x1.31f8d60000000p-4, 0x1.eab85c0000000p-5, -0x1.7867d00000000p-5,
    0x1.0e7c420000000p-5, -0x1.65d1c60000000p-6, 0x1.d6cc340000000p-7, -0x1.42448a0000000p-7,
    0x1.47303e0000000p-8, -0x1.4991e60000000p-10, 0x1.06bea80000000p-10, -0x1.5a5f820000000p-10,
    0x1.02c5020000000p-11,
};
/* tanh_f32: weighted error 5.58e-9 = 2^-27.42 (before rounding 2^-29.89) */
static const double fit_tanh_f32[] = {
    -0x1.55554c0000000p-2, 0x1.110d360000000p-3, -0x1.b92aca0000000p-5, 0x1.594dd40000000p-6,
    -0x1.9b84400000000p-8,
};
/* sin_f32: weighted error 3.32e-9 = 2^-28.17 (before rounding 2^-37.57) */
static const double fit_sin_f32[] = {
    -0x1.5555560000000p-3, 0x1.1111080000000p-7, -0x1.a00f9e0000000p-13, 0x1.6cd8820000000p-19,
};
/* cos_f32: weighted error 5.08e-10 = 2^-30.87 (before rounding 2^-33.29) */
static const double fit_cos_f32[] = {
    0x1.55554a0000000p-5, -0x1.6c0c8c0000000p-10, 0x1.9a02680000000p-16,
};
/* exp_f64: weighted error 7.56e-18 = 2^-56.88 (before rounding 2^-57.92) */
static const double fit_exp_f64[] = {
    0x1.000000000000bp-1, 0x1.5555555555561p-3, 0x1.5555555550358p-5, 0x1.111111110d5b8p-7,
    0x1.6c16c1852187bp-10, 0x1.a01a01bb209f7p-13, 0x1.a01997b3446e6p-16, 0x1.71dddf287647cp-19,
    0x1.28af70cae3e0bp-22, 0x1.af86a17b90656p-26,
};
/* log_f64: weighted error 3.26e-18 = 2^-58.09 (before rounding 2^-58.48) */
static const double fit_log_f64[] = {
    0x1.5555555555593p-1, 0x1.999999997fb53p-2, 0x1.249249421653dp-2, 0x1.c71c51e8c4616p-3,
    0x1.7466460b2acfep-3, 0x1.39a0f7c0d1b67p-3, 0x1.2f0d77af85acep-3,
};
/* log_5_f64: weighted error 2.05e-20 = 2^-65.41 (before rounding 2^-72.52) */
static const double fit_log_5_f64[] = {
    0x1.9999999999996p-2, 0x1.249249249302bp-2, 0x1.c71c71c580f44p-3, 0x1.745d1832460a1p-3,
    0x1.3b1362aeb5cddp-3, 0x1.1120b7f921006p-3, 0x1.de32e9993ed93p-4, 0x1.eb16957c86f97p-4,
};
/* sin_f64: weighted error 5.54e-18 = 2^-57.32 (before rounding 2^-68.81) */
static const double fit_sin_f64[] = {
    -0x1.5555555555555p-3, 0x1.111111111110bp-7, -0x1.a01a01a018ae9p-13, 0x1.71de3a5339de2p-19,
    -0x1.ae645298d58efp-26, 0x1.61209311e6f76p-33, -0x1.aaa57519f224bp-41,
};
/* cos_f64: weighted error 8.61e-19 = 2^-60.01 (before rounding 2^-75.24) */
static const double fit_cos_f64[] = {
    0x1.5555555555555p-5, -0x1.6c16c16c16c10p-10, 0x1.a01a01a018deep-16, -0x1.27e4fb75fdc80p-22,
    0x1.1eed8ca407063p-29, -0x1.939338ac91d06p-37, 0x1.aac5ddce99020p-45,
};
/* asin_f64: weighted error 2.1e-18 = 2^-58.72 (before rounding 2^-59.83) */
static const double fit_asin_f64[] = {
    0x1.5555555555578p-3, 0x1.333333332df85p-4, 0x1.6db6db7225c7ap-5, 0x1.f1c71a8dd985bp-6,
    0x1.6e8bdfa43aef3p-6, 0x1.1c49e2dfdfc04p-6, 0x1.ca20cad903952p-7, 0x1.757b93398eb7ap-7,
    0x1.61736a889e0e1p-7, 0x1.e2c683cc2313ap-9, 0x1.649048f186bb4p-6, -0x1.5951210aae4d6p-6,
    0x1.0baf549baea7bp-5,
};
/* atan_f64: weighted error 2.31e-18 = 2^-58.58 (before rounding 2^-59.48) */
static const double fit_atan_f64[] = {
    -0x1.555555555553dp-2, 0x1.99999999958dep-3, -0x1.24924922b0c7cp-3, 0x1.c71c70e77d9c4p-4,
    -0x1.745cf906c73d6p-4, 0x1.3b111c142e3c8p-4, -0x1.10ebd9e8bc63fp-4, 0x1.df112f973dec3p-5,
    -0x1.9cdb22d536fd1p-5, 0x1.37ea983b4186cp-5, -0x1.25974fe0fa124p-6,
};
/* erf_small_f64: weighted error 1.52e-17 = 2^-55.87 (before rounding 2^-62.78) */
static const double fit_erf_small_f64[] = {
    0x1.06eba8214db69p-3, -0x1.812746b0379e6p-2, 0x1.ce2f21a042b34p-4, -0x1.b82ce31284f38p-6,
    0x1.565bcd0dbd939p-8, -0x1.c02db3db49dc3p-11, 0x1.f9a321e4c735fp-14, -0x1.f4d1e43610b26p-17,
    0x1.b9df30701769ep-20, -0x1.5f1f41b08e97bp-23, 0x1.f7b9a5ba9e68dp-27, -0x1.38ac3da44fd28p-30,
    0x1.0627a6a8e5918p-34,
};
/* erf_large_f64: weighted error 1.7e-17 = 2^-55.71 (before rounding 2^-68.46) */
static const double fit_erf_large_f64[] = {
    -0x1.d5ff48d7cffccp-26, 0x1.20dd7ac712d79p+0, 0x1.45f2c2509d616p-1, 0x1.a4fceb767ca59p-4,
    -0x1.39bbcfcd0a5f8p-6, -0x1.618bfe61a812ap-13, 0x1.ac0aff9eb04e4p-10, -0x1.0bf297c87591cp-11,
    -0x1.c6d3a7e7f07a6p-15, 0x1.128551dd560c1p-13, -0x1.39cf408bfa6d8p-14, 0x1.da4eb41576f9dp-16,
    -0x1.0ceba52935648p-17, 0x1.d5adac83a7e45p-20, -0x1.35a0cf2114fa0p-22, 0x1.1a32c344df51cp-25,
    -0x1.d212e1741ad0dp-30, -0x1.d5ba04cf64d8ap-33, 0x1.1407783f6b3efp-34, -0x1.11474548eb0a3p-37,
    0x1.4339a41ee8b73p-41, -0x1.bc9c1d3231f9dp-46, 0x1.1485e272d2582p-51,
};

#endif
