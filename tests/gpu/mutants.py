#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mutants of the kernels that infc prints (tests/ptx/mutate_printed.c): engines of every family are built and run in the stand-in for the
driver, which records their launches, and each recorded kernel is run again with faults put into it by rule.

usage: mutants.py INFC FOLDER_OF_LIBCUDA MUTATE_PRINTED EVERY LEAST [FAMILY..]

EVERY takes one mutant of so many; LEAST is the percentage that must be caught of those that tests/gpu/equivalent.txt does not argue to mean
the same. What survives is a line each, a family a line with its figures. Works in the current folder; JOBS processes at once (1)."""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

import numpy as np

import attention
import blocks
import models

COUNTED = r"^all: (\d+) mutants, (\d+) invalid, (\d+) caught .*, (\d+) argued .*, (\d+) survived, (\d+) of them unreached$"
MOST_EQUIVALENT = 15 # percent of all; a sample may have twice as many
HERE = pathlib.Path(__file__).resolve().parent


def run(command, **env):
    r = subprocess.run(list(map(str, command)), env={**os.environ, **env}, capture_output=True, text=True)
    if r.returncode:
        raise RuntimeError(f"exit status {r.returncode} of {' '.join(map(str, command))}: {r.stderr.strip()[-600:]}")


class Family:
    """A folder of traces, and how an engine's runs get there."""

    def __init__(self, infc, fake, name, arch):
        self.infc, self.fake, self.arch, self.name = infc, fake, arch, name
        self.folder = pathlib.Path("traces", name)
        self.folder.mkdir(parents=True)

    def build(self, model, *options):
        self.engine = pathlib.Path(f"{self.name}.engine").resolve()
        run([self.infc, "build", model, f"--target=sm{self.arch}", "-o", self.engine, *options])

    def text(self, body):
        path = pathlib.Path(f"{self.name}.ir")
        path.write_text(body)
        self.build(path)

    def launch(self, **inputs):
        args = []
        for name, x in inputs.items():
            np.save(f"{self.name}-{name}.npy", x)
            args += ["--input", f"{name}={self.name}-{name}.npy"]
        run([self.engine, "run", *args], INFC_FAKE_CC=str(self.arch), LD_LIBRARY_PATH=self.fake,
            INFC_FAKE_TRACE=str(self.folder))


def without(f, *kernels):
    """Leaves out kernels that another family has."""
    for path in f.folder.glob("*.trace"):
        with open(path, "rb") as g:
            if g.read(144)[16:].rstrip(b"\0").decode() in kernels:
                path.unlink()


def numbers(r, *shape):
    """Normal ones, rows of other sizes, and what floats have beside numbers: zeros of both signs, infinities, NaN, each in a row of its own."""
    x = r.standard_normal(shape).astype(np.float32)
    rows = x.reshape(-1, shape[-1])
    for i, special in enumerate((0.0, -0.0, np.inf, -np.inf, np.nan, 3e38, -1e-41, 1e5)):
        if len(rows) > i + 2:
            rows[i + 2, (5 * i + 1) % shape[-1]] = special
    if len(rows) > 11:
        rows[10], rows[11] = 0, rows[11] * 90
    return x


# ---- families ----

ROWS = (1, 5, 130)


def softmax(f):
    for n in (7, 32, 130):
        f.text(f'model "m" {{ sym n in [1, 300] func @main(%x: f32[n, {n}]) -> (y: f32[n, {n}]) {{ %y = softmax %x axis=1 : f32[n, {n}] return %y }} }}')
        for rows in ROWS:
            f.launch(x=numbers(np.random.default_rng(rows), rows, n))


def norm(f):
    for n in (7, 32, 130):
        ones = ", ".join(f"{1 + i / 64}" for i in range(n))
        f.text(f"""model "m" {{ sym n in [1, 300] const @g: f32[{n}] = [{ones}] func @main(%x: f32[n, {n}]) -> (y: f32[n, {n}]) {{
%g = constant value=@g : f32[{n}]
%a = layer_norm %x, %g, %g axis=1 eps=1e-5 : f32[n, {n}]
%y = rms_norm %a, %g axis=1 eps=1e-6 : f32[n, {n}] return %y }} }}""")
        for rows in ROWS:
            f.launch(x=numbers(np.random.default_rng(rows), rows, n))


def pointwise(f):
    for n in (7, 32, 130):
        t = f": f32[n, {n}]"
        f.text(f"""model "m" {{ sym n in [1, 300] func @main(%x: f32[n, {n}], %z: f32[1, {n}]) -> (y: f32[{n}, n]) {{
%a = tanh %x {t} %b = sigmoid %x {t} %c = mul %a, %b {t} %d = add %c, %z {t} %e = max %d, %x {t}
%h = cast %e to=f16 : f16[n, {n}] %i = cast %h to=f32 {t} %s = reduce_sum %i axes=[1] keepdims=1 : f32[n, 1] %k = sub %i, %s {t}
%y = transpose %k perm=[1, 0] : f32[{n}, n] return %y }} }}""")
        for rows in ROWS:
            f.launch(x=numbers(np.random.default_rng(rows), rows, n), z=numbers(np.random.default_rng(9), 1, n))


# K, N of the first and the second product: an edge at many columns of a tile, in rows of whole 16-byte pieces and in others.
PRODUCTS = ((96, 144, 72), (208, 80, 67), (112, 96, 90), (48, 112, 101), (176, 128, 125), (144, 176, 119))


def product(f, prec):
    for k, n1, n2 in PRODUCTS:
        models.matmul(f"{f.name}.onnx", k, n1, n2)
        f.build(f"{f.name}.onnx", f"--prec={prec}")
        for rows in (1, 34, 130)[:3 if k == 96 else 2]:
            f.launch(x=numbers(np.random.default_rng(rows), 1, rows, k), r=numbers(np.random.default_rng(1), 1, rows, n2))
    without(f, "k_cast")


def conv(f, prec):
    models.conv(f"{f.name}.onnx")
    f.build(f"{f.name}.onnx", f"--prec={prec}")
    for shape in ((1, 32, 5, 7), (2, 32, 9, 8), (3, 32, 12, 17)):
        f.launch(x=np.random.default_rng(1).standard_normal(shape).astype(np.float32))
    without(f, "k_cast")


def generic(f):
    models.cnn(f"{f.name}.onnx")
    f.build(f"{f.name}.onnx")
    for batch in (1, 3):
        f.launch(x=np.random.default_rng(batch).standard_normal((batch, 3, 20, 20)).astype(np.float32))


# K in groups, N: two stages of the stream and more, with rests of several lengths, so that one text has what the next one lacks.
BLOCK_SHAPES = [(24, 96), (33, 70), (45, 33)]


def block(f, name):
    blocks.SHAPES = BLOCK_SHAPES
    f.text(blocks.text_of(blocks.FORMATS[name]))
    for rows in (1, 33, 66):
        f.launch(**blocks.make(blocks.FORMATS[name], rows, np.random.default_rng(rows))[0])


def attend(f, cache):
    for i, shape in enumerate(attention.SHAPES):
        f.text(attention.text_of(shape, cache))
        for b in (1, 6, 8):
            f.launch(**attention.make(shape, attention.BATCHES[b], cache, np.random.default_rng(b))[0])


FAMILIES = {"softmax": (80, softmax), "norm": (80, norm), "pointwise": (80, pointwise), "generic": (80, generic)}
for prec, arch in [(p, a) for p in ("f16", "bf16", "tf32", "int8") for a in (80, 90)] + [("fp8", 89), ("fp8", 90)]:
    FAMILIES[f"product-{prec}-sm{arch}"] = (arch, lambda f, prec=prec: product(f, prec))
for prec, arch in (("f16", 80), ("tf32", 80), ("bf16", 90)):
    FAMILIES[f"conv-{prec}-sm{arch}"] = (arch, lambda f, prec=prec: conv(f, prec))
for fmt in ("q4_0", "q8_0", "q5_1", "q4_K", "q6_K", "q2_K", "g128"):
    FAMILIES[f"blocks-{fmt}"] = (80, lambda f, fmt=fmt: block(f, fmt))
for cache, arch in (("f16", 80), ("i8", 80), ("u4", 80), ("f8", 89), ("bf16", 90)):
    FAMILIES[f"attention-{cache}-sm{arch}"] = (arch, lambda f, cache=cache: attend(f, cache))


def work(infc, fake, mutate, every, name):
    arch, collect = FAMILIES[name]
    try:
        f = Family(infc, fake, name, arch)
        collect(f)
    except RuntimeError as e:
        return name, 2, f"{name}: {e}\n"
    r = subprocess.run([mutate, str(HERE / "equivalent.txt"), str(every), "1", str(f.folder)], capture_output=True, text=True)
    return name, r.returncode, r.stdout + r.stderr


def main():
    infc, fake, mutate = (os.path.abspath(p) for p in sys.argv[1:4])
    every, least, names = int(sys.argv[4]), int(sys.argv[5]), sys.argv[6:] or list(FAMILIES)
    unknown = [n for n in names if n not in FAMILIES]
    if unknown:
        sys.exit(f"no family {unknown[0]}; there are {', '.join(FAMILIES)}")
    failed, sums = False, [0] * 6
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS", "1"))) as pool:
        for _, rc, text in pool.map(lambda n: work(infc, fake, mutate, every, n), names):
            print(re.sub(r"^all: .*\n", "", text, flags=re.M), end="", flush=True)
            failed |= rc > 1
            for counted in re.findall(COUNTED, text, flags=re.M):
                sums = [a + int(b) for a, b in zip(sums, counted)]
    made, invalid, caught, argued, survived, unreached = sums
    judged = max(1, caught + survived)
    print(f"all: {made} mutants, {invalid} invalid, {caught} caught, {argued} argued equivalent "
          f"({100 * argued / (judged + argued):.1f}% of all), {survived} survived, "
          f"{unreached} of them in lines that no launch reaches: "
          f"{100 * caught / judged:.1f}% of those not argued equivalent are caught")
    sys.exit(failed or 100 * caught < least * judged or 100 * argued > (1 if every == 1 else 2) * MOST_EQUIVALENT * (judged + argued))


if __name__ == "__main__":
    main()
