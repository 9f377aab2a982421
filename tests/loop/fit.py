#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fits the polynomials of ir/loop_math*.c: minimax by Remez exchange in multiple precision.

usage: tests/loop/fit.py [NAME]...     (needs mpmath; prints C tables and the error reached)

A row of FITS gives a function g on [a, b], a degree and a weight w: the polynomial minimises max |w * (p - g)|.
Coefficients are printed lowest first, rounded to the type they are used in; the error printed is that of the
rounded polynomial evaluated exactly.
"""
import struct
import sys

from mpmath import mp, mpf
import mpmath as m

mp.prec = 300


def remez(g, a, b, degree, w):
    """Coefficients of the minimax polynomial, lowest first."""
    n = degree + 2
    a, b = mpf(a), mpf(b)
    x = [(a + b) / 2 + (b - a) / 2 * m.cos(m.pi * (2 * (n - 1 - i) + 1) / (2 * n)) for i in range(n)]
    coeffs = None
    for _ in range(30):
        rows, rhs = [], []
        for i, xi in enumerate(x):
            rows.append([xi**j for j in range(degree + 1)] + [(-1) ** i / w(xi)])
            rhs.append(g(xi))
        sol = m.lu_solve(m.matrix(rows), m.matrix(rhs))
        coeffs = [sol[j] for j in range(degree + 1)]
        level = abs(sol[degree + 1])

        def err(t):
            return w(t) * (m.polyval(coeffs[::-1], t) - g(t))

        # Extrema: the largest sample between sign changes, on a grid that is dense at the ends.
        grid = [(a + b) / 2 - (b - a) / 2 * m.cos(m.pi * i / (40 * n)) for i in range(40 * n + 1)]
        vals = [err(t) for t in grid]
        groups, best = [], 0
        for i in range(1, len(grid)):
            if (vals[i] > 0) != (vals[best] > 0):
                groups.append(best)
                best = i
            elif abs(vals[i]) > abs(vals[best]):
                best = i
        groups.append(best)
        while len(groups) > n:
            groups.pop(0 if abs(vals[groups[0]]) < abs(vals[groups[-1]]) else -1)
        if len(groups) < n:
            break
        x = [grid[i] for i in groups]
        worst = max(abs(vals[i]) for i in groups)
        if worst < level * mpf("1.01"):
            break
    return coeffs


def to_f32(v):
    return mpf(struct.unpack("f", struct.pack("f", float(v)))[0])


def to_f64(v):
    return mpf(float(v))


def one(_):
    return mpf(1)


def series(g, at0):
    """g with its limit near 0, where the formula cancels."""
    return lambda x: mpf(at0) if abs(x) < mpf("1e-25") else g(x)


def relative(g):
    return lambda x: 1 / abs(g(x))


q_exp = series(lambda r: (m.exp(r) - 1 - r) / r**2, 0.5)
q_log = series(lambda f: (m.log(1 + f) - f + f * f / 2) / f**3, mpf(1) / 3)
q_erf = series(lambda u: m.erf(m.sqrt(u)) / m.sqrt(u) - 1, 2 / m.sqrt(m.pi) - 1)
q_sin = series(lambda u: (m.sin(m.sqrt(u)) / m.sqrt(u) - 1) / u, mpf(-1) / 6)
q_cos = series(lambda u: (m.cos(m.sqrt(u)) - 1 + u / 2) / u**2, mpf(1) / 24)
# log((1+s)/(1-s)) = 2 s + s^3 q(s^2)
q_log_s = series(lambda u: (m.log((1 + m.sqrt(u)) / (1 - m.sqrt(u))) / m.sqrt(u) - 2) / u, mpf(2) / 3)
# .. = 2 s + 2/3 s^3 + s^5 q(s^2)
q_log_5 = series(lambda u: (q_log_s(u) - mpf(2) / 3) / u, mpf(2) / 5)
q_asin = series(lambda u: (m.asin(m.sqrt(u)) / m.sqrt(u) - 1) / u, mpf(1) / 6)
q_atan = series(lambda u: (m.atan(m.sqrt(u)) / m.sqrt(u) - 1) / u, mpf(-1) / 3)

q_tanh = series(lambda u: (m.tanh(m.sqrt(u)) / m.sqrt(u) - 1) / u, mpf(-1) / 3)


def erf_over_x(u):
    x = m.sqrt(8 * (u + 1))
    return m.erf(x) / x if x > mpf("1e-25") else 2 / m.sqrt(m.pi)


def end_at_quarter(coeffs):
    """The constant term for which Horner's rule in f32 gives exactly 1/4 at 1."""
    total = mpf(0)
    for c in coeffs[:0:-1]:
        total = to_f32(total + c)
    return [to_f32(mpf("0.25") - total)] + coeffs[1:]


def neg_log_erfc(x):
    return -m.log(m.erfc(x))


half_ln2 = m.log(2) / 2 * mpf("1.001")
sqrt2 = m.sqrt(2)
tan8 = m.tan(m.pi / 8) * mpf("1.0001")

FITS = {
    # name: (g, a, b, degree, weight, rounding)
    "exp_f32": (q_exp, -half_ln2, half_ln2, 4, lambda r: r**2 + mpf("1e-3"), to_f32),
    "log_f32": (q_log, 1 / sqrt2 - 1, sqrt2 - 1, 8, lambda f: abs(f) ** 2 + mpf("1e-4"), to_f32),
    "erf_small_f32": (q_erf, 0, mpf("0.93") ** 2, 5, one, to_f32),
    "erf_large_f32": (neg_log_erfc, mpf("0.92"), mpf("4"), 8, m.erfc, to_f32),
    # erf(x) / x of u = x^2 / 8 - 1, |x| <= 4, for sums with 1
    "erf_wide_f32": (erf_over_x, -1, 1, 16, lambda u: m.sqrt(8 * (u + 1)) + mpf("1e-6"), to_f32),
    "tanh_f32": (q_tanh, 0, mpf("0.5505") ** 2, 4, lambda u: u + mpf("1e-4"), to_f32),
    "sin_f32": (q_sin, 0, (m.pi / 4) ** 2, 3, lambda u: u + mpf("1e-6"), to_f32),
    "cos_f32": (q_cos, 0, (m.pi / 4) ** 2, 2, lambda u: u**2 + mpf("1e-6"), to_f32),
    "exp_f64": (q_exp, -half_ln2, half_ln2, 9, lambda r: r**2 + mpf("1e-3"), to_f64),
    "log_f64": (q_log_s, 0, (sqrt2 - 1) ** 2 / (sqrt2 + 1) ** 2 * mpf("1.001"), 6, lambda u: u + mpf("1e-6"), to_f64),
    "log_5_f64": (q_log_5, 0, (sqrt2 - 1) ** 2 / (sqrt2 + 1) ** 2 * mpf("1.001"), 7, lambda u: u**2 + mpf("1e-7"), to_f64),
    "sin_f64": (q_sin, 0, (m.pi / 4) ** 2, 6, lambda u: u + mpf("1e-6"), to_f64),
    "cos_f64": (q_cos, 0, (m.pi / 4) ** 2, 6, lambda u: u**2 + mpf("1e-6"), to_f64),
    "asin_f64": (q_asin, 0, mpf("0.25"), 12, lambda u: u + mpf("1e-6"), to_f64),
    "atan_f64": (q_atan, 0, tan8**2, 10, lambda u: u + mpf("1e-6"), to_f64),
    "erf_small_f64": (q_erf, 0, mpf("1"), 12, one, to_f64),
    "erf_large_f64": (neg_log_erfc, mpf("1"), mpf("6"), 22, m.erfc, to_f64),
}


def main():
    names = sys.argv[1:] or list(FITS)
    for name in names:
        g, a, b, degree, w, rounding = FITS[name]
        a, b = mpf(a), mpf(b)
        exact = remez(g, a, b, degree, w)
        coeffs = [rounding(c) for c in exact]
        if name == "erf_wide_f32":
            coeffs = end_at_quarter(coeffs)
        worst = exact_worst = mpf(0)
        for i in range(2001):
            x = a + (b - a) * i / 2000
            worst = max(worst, abs(w(x) * (m.polyval(coeffs[::-1], x) - g(x))))
            exact_worst = max(exact_worst, abs(w(x) * (m.polyval(exact[::-1], x) - g(x))))
        print(f"/* {name}: weighted error {m.nstr(worst, 3)} = 2^{m.nstr(m.log(worst, 2), 4)}"
              f" (before rounding 2^{m.nstr(m.log(exact_worst, 2), 4)}) */")
        print(f"static const double fit_{name}[] = {{")
        line = "   "
        for c in coeffs:
            text = f" {float(c).hex()},"
            if len(line) + len(text) > 100:
                print(line)
                line = "   "
            line += text
        print(line)
        print("};")


if __name__ == "__main__":
    main()
