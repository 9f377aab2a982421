// SPDX-License-Identifier: Apache-2.0
/*
 * Conversions between f64 and the narrow float types, on bit patterns. Narrowing rounds once, to nearest even; as every
 * f32 is an f64, these serve f32 sources too. They follow ONNX Cast in what they do beyond the range.
 */
#ifndef INFC_IR_SUPPORT_FLOAT_H
#define INFC_IR_SUPPORT_FLOAT_H

#include "ir/support/compiler.h"
#include "runtime/abi/dtype.h"

/* How a value becomes a power of two in f8e8m0 (ONNX round_mode). */
enum float_round { FLOAT_ROUND_NEAREST, FLOAT_ROUND_UP, FLOAT_ROUND_DOWN };

uint16_t f16_from_f64(double v);
double f16_to_f64(uint16_t bits);
uint16_t bf16_from_f64(double v);
double bf16_to_f64(uint16_t bits);
/*
 * The f8 kinds with sign and f4e2m1 (one nibble in a byte). Beyond the range, infinities included: the greatest finite
 * value when saturate, else infinity where the type has one, else NaN. f4e2m1 always saturates; its NaN is -0.
 */
uint8_t f8_from_f64(enum dtype kind, double v, bool saturate);
double f8_to_f64(enum dtype kind, uint8_t bits);
/* Powers of two 2^-127 .. 2^127 and NaN (255). Zero and what is below gives 2^-127; infinite and negative values NaN. */
uint8_t e8m0_from_f64(double v, bool saturate, enum float_round mode);
double e8m0_to_f64(uint8_t bits);

/* Any float dtype of at most 16 bits; dtype's bits in the low end. Saturates, f8e8m0 rounds up. */
uint16_t float_narrow(enum dtype kind, double v);
double float_widen(enum dtype kind, uint16_t bits);

#endif
