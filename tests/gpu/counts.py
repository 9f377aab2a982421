#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What kernels of one launch do, counted by the PTX machine, against numbers worked out here by hand.

usage: counts.py INFC FOLDER_OF_LIBCUDA ARCHITECTURE

A case is a line, ok or not ok:
  memory   32-byte sectors, each once a launch: what device memory moves when the second-level cache holds what tiles read again.
           At most 1.1 times the operands and results.
  tensor   instructions: as many as tiles have, at most 1.05 times the products over those of an instruction where the shape fills tiles
  shared   wavefronts: as many as accesses have phases"""
import os
import subprocess
import sys

import numpy as np

LIMIT_BYTES, LIMIT_TENSOR = 1.10, 1.05


def ceil(a, b):
    return -(-a // b)


def halves(n):
    return ", ".join(["0.5"] * n)


def matmul(m, k, n):
    """x[m, k] w[k, n] in f16: tiles of 64 x 64, K in steps of 32."""
    text = (f"const @w: f16[{k}, {n}] = [{halves(k * n)}] func @main(%x: f16[{m}, {k}]) -> (y: f32[{m}, {n}]) {{ %w = constant value=@w : f16[{k}, {n}]\n"
            f"%y = matmul %x, %w acc=f32 : f32[{m}, {n}] return %y }}")
    tiles = ceil(m, 64) * ceil(n, 64)
    return {"text": text, "inputs": {"x": np.full((m, k), 0.25, np.float16)}, "value": 0.125 * k,
            "bytes": m * k * 2 + k * n * 2 + m * n * 4, "steps": tiles * ceil(k, 32), "products": m * n * k}


def conv(n, h, w, c, o, taps):
    """An image padded before, 64 pixels by 64 channels a tile, taps and channels in steps of 32."""
    oh, ow = h - taps + 1, w - taps + 1
    text = (f"const @w: f16[{o}, {c}, {taps}, {taps}] = [{halves(o * c * taps * taps)}] func @main(%x: f16[{n}, {h}, {w}, {c}]) -> (y: f32[{n}, {oh}, {ow}, {o}]) {{\n"
            f"%w = constant value=@w : f16[{o}, {c}, {taps}, {taps}]\n"
            f"%y = conv %x, %w pads=(0, 0, 0, 0) channels_last=1 acc=f32 : f32[{n}, {oh}, {ow}, {o}] return %y }}")
    m, k = n * oh * ow, taps * taps * c
    return {"text": text, "inputs": {"x": np.full((n, h, w, c), 0.25, np.float16)}, "value": 0.125 * k,
            "bytes": n * h * w * c * 2 + k * o * 2 + m * o * 4, "steps": ceil(m, 64) * ceil(o, 64) * ceil(k, 32), "products": m * o * k}


def blocks(m, k, n, has_min):
    """Blocks of 32 in nibbles, a scale (and minimum) of 16 bits: words of x, their sums and steps. A fragment of 16 x 8 a warp; 16 of K an instruction."""
    units, groups = 32 * (2 if has_min else 1) + 4 * 64, k // 32
    text = (f"func @main(%w: i16[{m}, {k}], %s: f32[{m}, {groups}], %d: f32[{m}, 1], %b: u16[{n // 32}, {groups}, {units}]) -> (y: f32[{m}, {n}]) {{\n"
            f"%y = qmatmul_int %w, %s, %d, %b n={n} group=32 nibbles=1 min={int(has_min)} max=2032 : f32[{m}, {n}] return %y }}")
    stream = np.zeros((n // 32, groups, units), np.uint16)
    stream[:, :, :32] = 0x3800                   # scales 0.5
    stream[:, :, units - 256:] = 0x3333          # q = 3
    inputs = {"w": np.ones((m, k), np.int16), "s": np.full((m, groups), 32, np.float32), "d": np.full((m, 1), 0.25, np.float32), "b": stream}
    size = sum(x.nbytes for name, x in inputs.items() if has_min or name != "s") + m * n * 4
    return {"text": text, "inputs": inputs, "value": 0.375 * k, "bytes": size, "mma": ceil(m, 16) * n // 8 * (k // 16), "products": m * n * k}


def decode(context, heads, kv, d):
    """One row of paged attention: pages of 32, chunks of 8 pages; q in two parts, and the weights. The four launches read tables more than once."""
    pages = context // 32
    text = (f"func @main(%q: f32[1, {heads}, {d}], %k: f16[{pages}, 32, {kv}, {d}], %v: f16[{pages}, 32, {kv}, {d}], %p: i32[1], %s: i32[1], %t: i32[1, {pages}]) "
            f"-> (y: f32[1, {heads}, {d}]) {{ %y = paged_attention %q, %k, %v, %p, %s, %t scale=0.125 : f32[1, {heads}, {d}] return %y }}")
    inputs = {"q": np.full((1, heads, d), 0.5, np.float32), "k": np.full((pages, 32, kv, d), 0.5, np.float16), "v": np.full((pages, 32, kv, d), 0.75, np.float16),
              "p": np.array([context - 1], np.int32), "s": np.zeros(1, np.int32), "t": np.arange(pages, dtype=np.int32)[None]}
    # a kv head's tile of 16 rows, a page: q k is 32 positions over d, w v is d columns over 32 positions, twice each
    mma = kv * pages * 2 * (32 // 8 * (d // 16) + d // 8 * (32 // 16))
    return {"text": text, "inputs": inputs, "value": 0.75, "bytes": sum(x.nbytes for x in inputs.values()) + heads * d * 4, "mma": mma, "products": 0}


# Pieces of layers, with all of K: MiniLM's and SmolLM2's products, a convolution of ResNet-50, an 8B llama's heads and down projection.
CASES = {
    "matmul-minilm": lambda: matmul(128, 384, 128), "matmul-smollm": lambda: matmul(64, 576, 192), "matmul-1": lambda: matmul(1, 576, 64),
    "conv-resnet": lambda: conv(1, 58, 58, 64, 64, 3), "blocks-1": lambda: blocks(1, 1536, 576, True), "blocks-64": lambda: blocks(64, 576, 192, False),
    "blocks-8b": lambda: blocks(1, 14336, 64, True), "decode-8b": lambda: decode(1024, 32, 8, 128),
}


def run(command, env):
    r = subprocess.run(command, env=env, capture_output=True, text=True)
    if r.returncode:
        raise RuntimeError(f"exit status {r.returncode} of {' '.join(command)}: {r.stderr.strip()[-600:]}")
    return r.stderr


def count(infc, case, arch, env):
    with open("counts.ir", "w") as f:
        f.write(f'model "m" {{ {case["text"]} }}\n')
    run([infc, "build", "counts.ir", f"--target=sm{arch}", "-o", "counts"], os.environ)
    args = []
    for name, x in case["inputs"].items():
        np.save(f"in_{name}.npy", x)
        args += ["--input", f"{name}=in_{name}.npy"]
    err = run(["./counts", "run", *args, "--output", "y=y.npy"], env)
    line = next(line for line in err.splitlines() if line.startswith("launches")).split()
    return np.load("y.npy"), {k: int(v) for k, v in zip(line[::2], line[1::2])}


def check(case, got, n, wgmma):
    bad = []
    if not np.allclose(got, case["value"], rtol=1e-5):
        bad.append("wrong numbers")
    ratio = n["distinct"] * 32 / case["bytes"]
    if ratio > LIMIT_BYTES:
        bad.append(f"{n['distinct'] * 32} bytes of memory, {ratio:.3f} times {case['bytes']}")
    if n["phases"] != n["wavefronts"]:
        bad.append(f"{n['wavefronts']} wavefronts of {n['phases']} phases")
    by_wgmma = wgmma and "steps" in case
    # a step of 32 in a tile: 2 wgmma of 64 x 64 x 16, or 64 mma of 16 x 8 x 16
    want = case["mma"] if "mma" in case else case["steps"] * (2 if by_wgmma else 64)
    had = n["wgmma"] if by_wgmma else n["mma"]
    if had != want:
        bad.append(f"{had} tensor instructions, not {want}")
    least = case["products"] / (64 * 64 * 16 if by_wgmma else 16 * 8 * 16)
    full = case["products"] and got.size // got.shape[-1] % (64 if "steps" in case else 16) == 0
    if full and had > LIMIT_TENSOR * least:
        bad.append(f"{had} tensor instructions, {had / least:.3f} times {least}")
    return bad, f"memory {ratio:.3f}, tensor {had / least if full else 0:.3f}, shared 1.000"


def main():
    infc, fake, arch = sys.argv[1:4]
    env = {**os.environ, "INFC_FAKE_CC": arch, "INFC_FAKE_COUNTERS": "1", "LD_LIBRARY_PATH": fake}
    failed = 0
    for name, make in CASES.items():
        if len(sys.argv) > 4 and sys.argv[4] != name:
            continue
        case = make()
        try:
            bad, line = check(case, *count(infc, case, arch, env), arch == "90")
        except RuntimeError as e:
            bad = [str(e)]
        failed += bool(bad)
        print(f"not ok counts-{name}-sm{arch}: {'; '.join(bad)}" if bad else f"ok counts-{name}-sm{arch} # {line}")
    sys.exit(failed > 0)


main()
