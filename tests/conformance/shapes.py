# SPDX-License-Identifier: Apache-2.0
"""Operators that cut dims apart whose sizes only a call knows, against ONNX Runtime (its optimiser off).

usage: shapes.py --infc=PATH [--work=FOLDER]

One engine per model for all its sizes. Where a size does not divide, ONNX Runtime refuses the call, and so must the engine, with
exit status 2.
"""
import argparse
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

F32 = TensorProto.FLOAT


def model(nodes, dims, out_rank, consts=()):
    x = helper.make_tensor_value_info("x", F32, dims)
    y = helper.make_tensor_value_info("y", F32, [None] * out_rank)
    init = [helper.make_tensor(k, TensorProto.INT64, [len(v)], v) for k, v in consts]
    m = helper.make_model(helper.make_graph(nodes, "g", [x], [y], init), opset_imports=[helper.make_opsetid("", 17)])
    m.ir_version = 8
    onnx.checker.check_model(m)
    return m


def node(op, *more, **attrs):
    return [helper.make_node(op, ["x", *more], ["y"], **attrs)]


# name: model, sizes that fit, sizes that do not
CASES = {
    "space-to-depth": (model(node("SpaceToDepth", blocksize=2), ["n", 3, "h", "w"], 4),
                       [(1, 3, 2, 2), (2, 3, 6, 34), (1, 3, 14, 10)], [(1, 3, 5, 4), (1, 3, 4, 7), (1, 3, 3, 3)]),
    "space-to-depth-3": (model(node("SpaceToDepth", blocksize=3), [1, "c", "h", 9], 4),
                         [(1, 1, 3, 9), (1, 5, 21, 9)], [(1, 5, 20, 9)]),
    "depth-to-space-dcr": (model(node("DepthToSpace", blocksize=2, mode="DCR"), ["n", "c", "h", 5], 4),
                           [(1, 4, 3, 5), (3, 12, 7, 5)], [(1, 6, 3, 5), (1, 3, 1, 5)]),
    "depth-to-space-crd": (model(node("DepthToSpace", blocksize=2, mode="CRD"), ["n", "c", "h", 5], 4),
                           [(1, 4, 3, 5), (3, 12, 7, 5)], [(1, 6, 3, 5)]),
    "reshape-pairs": (model(node("Reshape", "s"), ["n", "h"], 3, [("s", [0, -1, 2])]), [(1, 2), (3, 14)], [(3, 13), (1, 1)]),
    "reshape-flat": (model(node("Reshape", "s"), ["n", "h", 3], 2, [("s", [-1, 6])]),
                     [(1, 2, 3), (5, 4, 3), (2, 7, 3)], [(1, 1, 3), (5, 3, 3)]),
}


def session(m):
    o = ort.SessionOptions()
    o.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    o.log_severity_level = 4
    return ort.InferenceSession(m.SerializeToString(), o, ["CPUExecutionProvider"])


def run(work, shape):
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    np.save(work / "x.npy", x)
    p = subprocess.run([work / "engine", "run", f"--input=x={work / 'x.npy'}", f"--output=y={work / 'y.npy'}"],
                       capture_output=True, text=True, timeout=60, check=False)
    return x, p


def try_case(infc, work, m, fits, refused):
    """None, or what is wrong."""
    onnx.save(m, work / "m.onnx")
    p = subprocess.run([infc, "build", "-o", work / "engine", work / "m.onnx"], capture_output=True, text=True, check=False)
    if p.returncode:
        return "build: " + p.stderr
    s = session(m)
    for shape in fits:
        x, p = run(work, shape)
        want = s.run(None, {"x": x})[0]
        if p.returncode:
            return f"{shape}: {p.stderr}"
        got = np.load(work / "y.npy")
        if got.dtype != want.dtype or got.shape != want.shape or not np.array_equal(got, want):
            return f"{shape}: another result, {got.shape} for {want.shape}"
    for shape in refused:
        x, p = run(work, shape)
        try:
            s.run(None, {"x": x})
            return f"{shape}: ONNX Runtime takes it"
        except Exception:  # its exceptions have no public base class
            pass
        if p.returncode != 2 or "do not fit" not in p.stderr:
            return f"{shape}: exit status {p.returncode}, expected 2: {p.stderr}"
    return None


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--infc", required=True)
    p.add_argument("--work", default=".", type=pathlib.Path)
    args = p.parse_args()
    args.work = args.work.absolute()
    args.work.mkdir(parents=True, exist_ok=True)
    wrong = 0
    for name, case in CASES.items():
        why = try_case(args.infc, args.work, *case)
        wrong += why is not None
        print(f"not ok {name}: {' '.join(why.split())[:300]}" if why else f"ok {name}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
