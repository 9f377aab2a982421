# SPDX-License-Identifier: Apache-2.0
"""Makes test folders of a real model: the model, seeded inputs, and ONNX Runtime's outputs with its optimiser off.

    make_cases.py MODEL.onnx OUT [--dim NAME=N,N,...]... [--input NAME=lo:hi]... [--sets N]

One test_data_set_<i> per seed and per size of the symbolic dims (the i-th size of each). eval_suite --scaled=1e-4 OUT
then compares importer and evaluator with them.
"""
import argparse
import os
import shutil

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper


def dims_of(info, sizes, k):
    out = []
    for i, d in enumerate(info.type.tensor_type.shape.dim):
        name = d.dim_param if any(c.isalnum() for c in d.dim_param) else f"{info.name}_d{i}"
        if d.HasField("dim_value") and d.dim_value >= 0:
            out.append(d.dim_value)
        else:
            choice = sizes.get(name, [2, 3])
            out.append(choice[min(k, len(choice) - 1)])
    return out


def make_input(info, shape, rng, bounds):
    t = onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
    if info.name in bounds:
        lo, hi = bounds[info.name]
        if np.issubdtype(t, np.integer):
            return rng.integers(int(lo), int(hi) + 1, shape).astype(t)
        return rng.uniform(lo, hi, shape).astype(t)
    if np.issubdtype(t, np.integer):
        return rng.integers(0, 2, shape).astype(t)
    if t == np.bool_:
        return rng.integers(0, 2, shape).astype(t)
    return rng.standard_normal(shape).astype(t)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("model")
    ap.add_argument("out")
    ap.add_argument("--dim", action="append", default=[])
    ap.add_argument("--input", action="append", default=[])
    ap.add_argument("--sets", type=int, default=2)
    args = ap.parse_args()
    sizes = {d.split("=")[0]: [int(x) for x in d.split("=")[1].split(",")] for d in args.dim}
    bounds = {i.rsplit("=", 1)[0]: tuple(float(x) for x in i.rsplit("=", 1)[1].split(":")) for i in args.input}
    shutil.rmtree(args.out, ignore_errors=True)
    os.makedirs(args.out)
    os.symlink(os.path.realpath(args.model), os.path.join(args.out, "model.onnx"))
    model = onnx.load(args.model)
    initialised = {t.name for t in model.graph.initializer}
    so = ort.SessionOptions()
    so.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    so.intra_op_num_threads = 1
    so.log_severity_level = 3
    session = ort.InferenceSession(args.model, so, providers=["CPUExecutionProvider"])
    for k in range(args.sets):
        rng = np.random.default_rng(k)
        feeds = {}
        folder = os.path.join(args.out, f"test_data_set_{k}")
        os.makedirs(folder)
        file = 0
        for info in model.graph.input:
            if info.name in initialised:
                file += 1
                continue
            x = make_input(info, dims_of(info, sizes, k), rng, bounds)
            feeds[info.name] = x
            with open(os.path.join(folder, f"input_{file}.pb"), "wb") as f:
                f.write(numpy_helper.from_array(x, info.name).SerializeToString())
            file += 1
        for i, y in enumerate(session.run(None, feeds)):
            with open(os.path.join(folder, f"output_{i}.pb"), "wb") as f:
                f.write(numpy_helper.from_array(y).SerializeToString())


if __name__ == "__main__":
    main()
