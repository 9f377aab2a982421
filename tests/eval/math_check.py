#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures ir/math_ref against mpmath: usage: math_check.py [POINTS]

Not part of the regular check (mpmath may be missing): run it after a change of ir/math_*.c. Compiles the sources to a
shared object, samples each function over its whole range, prints the greatest error in ulp of f64 and fails beyond LIMIT.
"""
import ctypes
import math
import os
import random
import struct
import subprocess
import sys
import tempfile

try:
    import mpmath
except ImportError:
    print("math_check: mpmath is not installed; nothing checked")
    sys.exit(0)

LIMIT = 3  # ulp
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
mp = mpmath.mp
mp.prec = 200


def build(folder):
    out = os.path.join(folder, "math_ref.so")
    sources = [os.path.join(ROOT, "ir", n) for n in ("math_ref.c", "math_trig.c")]
    subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-O2", "-ffp-contract=off", "-fPIC", "-shared",
                    "-I" + ROOT, "-o", out, *sources, "-lm"], check=True)
    return ctypes.CDLL(out)


def ulp_error(got, exact):
    if exact == 0:
        return 0.0 if got == 0 else math.inf
    exponent = max(int(mpmath.floor(mpmath.log(abs(exact), 2))), -1022)
    if abs(exact) >= mpmath.mpf(2) ** 1024 * (1 - mpmath.mpf(2) ** -54):
        return 0.0 if math.isinf(got) else math.inf
    return float(abs(mpmath.mpf(got) - exact) / mpmath.mpf(2) ** (exponent - 52))


def log_uniform(lo, hi):
    return lambda: random.choice((-1, 1)) * math.exp(random.uniform(math.log(lo), math.log(hi)))


def positive(lo, hi):
    return lambda: math.exp(random.uniform(math.log(lo), math.log(hi)))


def any_bits():
    while True:
        x = struct.unpack("<d", struct.pack("<Q", random.getrandbits(64)))[0]
        if math.isfinite(x):
            return x


def near_multiple_of_half_pi():
    n = random.randint(1, 1 << random.randint(1, 40))
    return float(n * mp.pi / 2)


U = random.uniform
CASES = [
    ("exp", mpmath.exp, [lambda: U(-745, 709.7), lambda: U(-1, 1), log_uniform(1e-300, 1)]),
    ("log", mpmath.log, [positive(1e-307, 1e308), lambda: U(0.5, 2), lambda: 1 + U(-1, 1) * 2.0 ** -U(1, 52),
                         lambda: U(1, 1e4) * 5e-324]),
    ("log1p", mpmath.log1p, [lambda: U(-1, 3), log_uniform(1e-300, 0.9), positive(1e-3, 1e300)]),
    ("sin", mpmath.sin, [lambda: U(-10, 10), lambda: U(-2e6, 2e6), any_bits, near_multiple_of_half_pi,
                         log_uniform(1e-300, 1)]),
    ("cos", mpmath.cos, [lambda: U(-10, 10), lambda: U(-2e6, 2e6), any_bits, near_multiple_of_half_pi]),
    ("tan", mpmath.tan, [lambda: U(-10, 10), lambda: U(-2e6, 2e6), any_bits, near_multiple_of_half_pi]),
    ("asin", mpmath.asin, [lambda: U(-1, 1), log_uniform(1e-300, 1), lambda: 1 - 2.0 ** -U(1, 53)]),
    ("acos", mpmath.acos, [lambda: U(-1, 1), lambda: 1 - 2.0 ** -U(1, 53), lambda: -1 + 2.0 ** -U(1, 53)]),
    ("atan", mpmath.atan, [lambda: U(-3, 3), log_uniform(1e-300, 1e300)]),
    ("sinh", mpmath.sinh, [lambda: U(-710.4, 710.4), lambda: U(-2, 2), log_uniform(1e-300, 1)]),
    ("cosh", mpmath.cosh, [lambda: U(-710.4, 710.4), lambda: U(-2, 2)]),
    ("tanh", mpmath.tanh, [lambda: U(-25, 25), lambda: U(-2, 2), log_uniform(1e-300, 1)]),
    ("asinh", mpmath.asinh, [lambda: U(-3, 3), log_uniform(1e-300, 1e300)]),
    ("acosh", mpmath.acosh, [lambda: U(1, 3), positive(1, 1e300), lambda: 1 + 2.0 ** -U(1, 52)]),
    ("atanh", mpmath.atanh, [lambda: U(-1, 1), log_uniform(1e-300, 0.99), lambda: 1 - 2.0 ** -U(1, 53)]),
    ("erf", mpmath.erf, [lambda: U(-7, 7), lambda: U(-1, 1), log_uniform(1e-300, 1)]),
    ("sigmoid", lambda x: 1 / (1 + mpmath.exp(-x)), [lambda: U(-40, 40), lambda: U(-700, 700)]),
]
POW = [
    lambda: (positive(1e-300, 1e300)(), U(-1, 1)),
    lambda: (U(0, 10), U(-300, 300)),
    lambda: (1 + U(-1, 1) * 2.0 ** -U(1, 40), U(-1, 1) * 2.0 ** U(0, 45)),
    lambda: (U(-50, 50), float(random.randint(-100, 100))),
    lambda: (any_bits(), float(random.randint(-2, 3))),
]


def main():
    points = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
    random.seed(1)
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        lib = build(folder)
        for name, exact, samplers in CASES:
            fn = getattr(lib, "ref_" + name)
            fn.restype, fn.argtypes = ctypes.c_double, [ctypes.c_double]
            top, where = 0.0, 0.0
            for sample in samplers:
                for _ in range(points):
                    x = sample()
                    mp.prec = 1300 if abs(x) > 1e15 else 200
                    err = ulp_error(fn(x), exact(mpmath.mpf(x)))
                    if not err <= top:
                        top, where = err, x
            print(f"{name:8} {top:8.3f} ulp at {where!r}")
            worst = max(worst, top)
        mp.prec = 300
        lib.ref_pow.restype, lib.ref_pow.argtypes = ctypes.c_double, [ctypes.c_double] * 2
        top, where = 0.0, None
        for sample in POW:
            for _ in range(points):
                x, y = sample()
                if x == 0:
                    continue
                err = ulp_error(lib.ref_pow(x, y), mpmath.power(mpmath.mpf(x), mpmath.mpf(y)))
                if not err <= top:
                    top, where = err, (x, y)
        print(f"{'pow':8} {top:8.3f} ulp at {where!r}")
        worst = max(worst, top)
    print(f"worst {worst:.3f} ulp, limit {LIMIT}")
    return 0 if worst <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
