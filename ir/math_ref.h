// SPDX-License-Identifier: Apache-2.0
/*
 * Elementary functions of the reference evaluator. Built from + - * / sqrt floor only, so that every machine computes
 * the same bits (given -ffp-contract=off). Accuracy: within 3 ulp of f64 (tests/eval/math_check.py measures it), hence
 * a result rounded to f32 is within 0.5000001 ulp. Special values are IEEE's and C Annex F's. No errno, no flags.
 */
#ifndef INFC_IR_MATH_REF_H
#define INFC_IR_MATH_REF_H

double ref_exp(double x);
double ref_log(double x);
double ref_log1p(double x);
double ref_pow(double x, double y);
double ref_sin(double x);
double ref_cos(double x);
double ref_tan(double x);
double ref_asin(double x);
double ref_acos(double x);
double ref_atan(double x);
double ref_sinh(double x);
double ref_cosh(double x);
double ref_tanh(double x);
double ref_asinh(double x);
double ref_acosh(double x);
double ref_atanh(double x);
double ref_erf(double x);
double ref_sigmoid(double x);

#endif
