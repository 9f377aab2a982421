#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Products and a convolution whose K is summed in parts, on the stand-in for the driver.

usage: parts.py INFC FOLDER_OF_LIBCUDA ARCHITECTURE

Operands are exact in f16, so that float64 in numpy is the reference of every element: what is left is the rounding of f32 sums. Each batch is
run whole, and its last row (image) alone: the bits must be the same, whether slices are parts of tiles (few rows) or tiles (many).
Shared memory has no bank conflicts; the machine stops at races and out of bounds."""
import os
import subprocess
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# K, N of products: tails of columns, fewer than a piece of four, panels that fill a GPU with a few tiles
PRODUCTS = [(2304, 72), (1536, 10), (1536, 576)]
CHANNELS, OUT, IMAGE = 256, 70, (4, 5)
ROWS = [1, 3, 63, 64, 65, 130]
LIMIT = 2e-6 # of the greatest element


def exact(r, *shape):
    return r.standard_normal(shape).astype(np.float16).astype(np.float32)


def model(path):
    """relu(x w + bias) + residual, products and convolution; all weights but their own constants."""
    r = np.random.default_rng(1)
    weights, nodes, inputs, outputs = {}, [], [], []

    def add(i, op, w, shape, out, **attrs):
        weights[f"w{i}"] = exact(r, *w)
        bias = out[-1] if op == "MatMul" else out[1]
        weights[f"b{i}"] = exact(r, bias).reshape([1] * (len(out) - 1) + [-1] if op == "MatMul" else [1, -1, 1, 1])
        nodes.extend([helper.make_node(op, [f"x{i}", f"w{i}"], [f"p{i}"], name=f"/{op}{i}", **attrs), helper.make_node("Add", [f"p{i}", f"b{i}"], [f"q{i}"], name=f"/bias{i}"),
                      helper.make_node("Relu", [f"q{i}"], [f"s{i}"], name=f"/relu{i}"), helper.make_node("Add", [f"s{i}", f"r{i}"], [f"y{i}"], name=f"/add{i}")])
        inputs.extend([helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, shape), helper.make_tensor_value_info(f"r{i}", TensorProto.FLOAT, out)])
        outputs.append(helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, out))

    for i, (k, n) in enumerate(PRODUCTS):
        add(i, "MatMul", (k, n), ["rows", k], ["rows", n])
    add(len(PRODUCTS), "Conv", (OUT, CHANNELS, 3, 3), ["images", CHANNELS, *IMAGE], ["images", OUT, *IMAGE], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    graph = helper.make_graph(nodes, "parts", inputs, outputs, [numpy_helper.from_array(w, name) for name, w in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return weights


def convolution(x, w):
    n, _, h, v = x.shape
    wide = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    return sum(np.einsum("nchw,oc->nohw", wide[:, :, i:i + h, j:j + v], w[:, :, i, j].astype(np.float64)) for i in range(3) for j in range(3))


def batch(weights, rows):
    r = np.random.default_rng(rows)
    inputs, want = {}, []
    for i, (k, n) in enumerate(PRODUCTS):
        inputs[f"x{i}"], inputs[f"r{i}"] = exact(r, rows, k), exact(r, rows, n)
        want.append(inputs[f"x{i}"].astype(np.float64) @ weights[f"w{i}"])
    i, images = len(PRODUCTS), 1 + rows % 5
    inputs[f"x{i}"], inputs[f"r{i}"] = exact(r, images, CHANNELS, *IMAGE), exact(r, images, OUT, *IMAGE)
    want.append(convolution(inputs[f"x{i}"], weights[f"w{i}"]))
    return inputs, [np.maximum(y + weights[f"b{i}"], 0) + inputs[f"r{i}"] for i, y in enumerate(want)]


def run(command, env):
    r = subprocess.run(command, env=env, capture_output=True, text=True)
    if r.returncode:
        raise RuntimeError(f"exit status {r.returncode} of {' '.join(command)}: {r.stderr.strip()[-600:]}")
    return r


def launch(inputs, env, n):
    args = []
    for name, x in inputs.items():
        np.save(f"in_{name}.npy", x)
        args += ["--input", f"{name}=in_{name}.npy"]
    for i in range(n):
        args += ["--output", f"y{i}=y{i}.npy"]
    err = run(["./parts", "run", "--device=cuda", *args], env).stderr
    counts = [line.split() for line in err.splitlines() if line.startswith("launches")]
    return [np.load(f"y{i}.npy") for i in range(n)], {k: int(v) for c in counts for k, v in zip(c[::2], c[1::2])}


def main():
    infc, fake, arch = sys.argv[1:4]
    env = {**os.environ, "INFC_FAKE_CC": arch, "INFC_FAKE_COUNTERS": "1", "LD_LIBRARY_PATH": fake}
    weights = model("parts.onnx")
    bad, worst, launches = [], 0.0, set()
    report = run([infc, "build", "parts.onnx", f"--target=sm{arch}", "--prec=f16", "-o", "parts", "--report"], os.environ).stdout
    for kernel in ["dot-parts"] * 3 + ["dot-conv-parts"]:
        if report.count(f"  {kernel} ") != (3 if kernel == "dot-parts" else 1):
            bad.append(f"{report.count(kernel)} kernels {kernel}")
    for rows in ROWS:
        inputs, want = batch(weights, rows)
        try:
            got, counts = launch(inputs, env, len(want))
            alone, _ = launch({k: x[-1:] for k, x in inputs.items()}, env, len(want))
        except RuntimeError as e:
            bad.append(f"{rows} rows: {e}")
            continue
        launches.add(counts["launches"])
        e = max(np.abs(g - w).max() / np.abs(w).max() for g, w in zip(got, want))
        worst = max(worst, e)
        if not e <= LIMIT:
            bad.append(f"{rows} rows differ by {e}")
        for i, (g, a) in enumerate(zip(got, alone)):
            if not np.array_equal(g[-1:].view(np.uint32), a.view(np.uint32)):
                bad.append(f"{rows} rows: the last row of {i} depends on the others")
        if counts["phases"] != counts["wavefronts"]:
            bad.append(f"{rows} rows: bank conflicts, {counts['wavefronts']} wavefronts in {counts['phases']} phases")
    if len(launches) < 2:
        bad.append("no batch is of many rows to any product: both ways were to be compared")
    print(f"not ok parts-sm{arch}: {'; '.join(bad)}" if bad else f"ok parts-sm{arch} # {len(ROWS) * (len(PRODUCTS) + 1)} shapes, greatest difference {worst:.1e}")
    sys.exit(bool(bad))


main()
