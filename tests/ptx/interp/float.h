// SPDX-License-Identifier: Apache-2.0
/*
 * Small float formats in integers, exactly rounded: f16, bf16, tf32, e4m3, e5m2, and f32 with directed
 * rounding. Arithmetic of narrow formats is done in double and rounded to odd when it is inexact,
 * after which one rounding to the narrow format gives the right bits.
 */
#ifndef INFC_TESTS_PTX_INTERP_FLOAT_H
#define INFC_TESTS_PTX_INTERP_FLOAT_H

#include "tests/ptx/interp/module.h"

/* Any float type of types.def below 64 bits to double; bits above the value are ignored. */
double ptx_widen(unsigned type, uint64_t bits);
/* The nearest (or directed) value of the type. Values too large become infinity, or the largest finite one
 * when `satfinite` (or the format has no infinity); NaN becomes the format's canonical NaN. */
uint32_t ptx_narrow(unsigned type, double x, enum ptx_round round, bool satfinite);
/* The value of a 32-bit register as the tensor cores read tf32: low 13 bits dropped. */
float ptx_tf32_in(uint32_t bits);

/* Exact results rounded to odd. */
double ptx_add_odd(double a, double b);
double ptx_div_odd(double a, double b);
double ptx_sqrt_odd(double a);

/* Fast ways for tensor instructions. */
float ptx_f16_to_f32(uint32_t h);
float ptx_bf16_to_f32(uint32_t h);
float ptx_e4m3_to_f32(uint32_t v);
float ptx_e5m2_to_f32(uint32_t v);

#endif
