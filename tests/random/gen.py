# SPDX-License-Identifier: Apache-2.0
"""Random ONNX graphs: engines against ONNX Runtime with its optimiser off.

usage: gen.py --infc=PATH [--graphs=40] [--seed=1] [--levels=v3] [--work=FOLDER] [--keep=FOLDER] [--only=SEED]

Graph number i has the seed SEED + i: an operator set of 13 to 22, some inputs (with symbolic dims), some nodes.
Each node is tried alone in ONNX Runtime at both sizes before it is added; one that is not valid, or gives NaN, infinity
or large numbers, is drawn again. So a generator below may be generous. What decides (comparisons, floor, casts to
integers, ...) is only applied to values without rounding error. Every output of the built engine must have ONNX Runtime's
type and shape and be close to it, at both sizes. Prints `ok NAME` for ten graphs, `not ok graph-SEED: why`
for each failure; its model and inputs are saved in FOLDER.
"""
import argparse
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

import ops

EXACT_BITS = 20
MAX_ELEMS = 20000
MAX_ABS = 1e4
LIMITS = {"float16": 2e-2, "float32": 1e-4, "float64": 1e-7}


class Value:
    """A tensor of the graph: its data at both sizes; bits: significant bits while it is without rounding error, else 0."""

    def __init__(self, name, data, bits, const=False):
        self.name, self.data, self.bits, self.const = name, data, bits, const
        self.loose = LIMITS.get(data[0].dtype.name, 0)  # relative error of the least precise step so far
        self.used = False

    @property
    def dtype(self):
        return self.data[0].dtype

    @property
    def rank(self):
        return self.data[0].ndim

    @property
    def shape(self):
        """One number a dim, None where the sizes differ."""
        return [a if a == b else None for a, b in zip(self.data[0].shape, self.data[1].shape)]


class Graph:
    """What is drawn so far. Operators (ops.py) use pick, const and the random generator."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.opset = int(self.rng.integers(13, 23))
        self.values, self.nodes, self.inits, self.inputs, self.infos = [], [], [], [], []
        self.init_names = set()
        self.count = 0
        self.symbols = {"n": (3, 7), "m": (4, 5), "k": (6, 2)}

    def name(self, prefix):
        self.count += 1
        return f"{prefix}{self.count}"

    # ---- inputs ----

    def data(self, dtype, shape):
        """Values with few bits: multiples of 1/8 up to 2, small integers."""
        kind = np.dtype(dtype).kind
        if kind == "f":
            return (self.rng.integers(-16, 17, shape) / 8).astype(dtype)
        if kind == "b":
            return self.rng.integers(0, 2, shape).astype(bool)
        return self.rng.integers(0 if kind == "u" else -8, 9, shape).astype(dtype)

    def add_input(self, dtype, dims):
        name = self.name("x")
        shapes = [[self.symbols[d][i] if isinstance(d, str) else d for d in dims] for i in range(2)]
        v = Value(name, [self.data(dtype, s) for s in shapes], 5)
        self.inputs.append(v)
        self.values.append(v)
        self.infos.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), dims))
        return v

    # ---- for operators ----

    def const(self, array, bits=0):
        """An initialiser; it joins the graph when a node that reads it does."""
        a = np.asarray(array)
        return Value(self.name("c"), [a, a], bits, True)

    def weights(self, shape, dtype=np.float32, exact=False):
        if exact:
            return self.const(self.data(dtype, shape), 5)
        return self.const((self.rng.standard_normal(shape) * 0.5).astype(dtype))

    def ints(self, values):
        return self.const(np.array(values, np.int64), 8)

    def pick(self, kinds="f", ranks=(0, 8), exact=False, dtype=None, test=None):
        """A value of the graph, newer ones more often; None when none fits."""
        fit = [v for v in self.values if v.dtype.kind in kinds and ranks[0] <= v.rank <= ranks[1]
               and (not exact or v.bits) and (dtype is None or v.dtype == dtype) and (test is None or test(v))]
        if not fit:
            return None
        i = len(fit) - 1 - min(int(self.rng.exponential(3)), len(fit) - 1)
        return fit[i]

    def chance(self, p):
        return self.rng.random() < p

    # ---- nodes ----

    def try_node(self, op, inputs, n_out=1, bits=0, domain="", steady=False, **attrs):
        """Adds the node when ONNX Runtime takes it at both sizes; its outputs, or None. steady: not where a rounding of an inexact
        input by one unit of its last place changes a result beyond what is allowed (tan beside a pole of numbers in 16 bits)."""
        outs = [self.name("v") for _ in range(n_out)]
        names = [v.name if v else "" for v in inputs]
        node = helper.make_node(op, names, outs, name=self.name(op.lower() + "_"), domain=domain, **attrs)
        unique = {v.name: v for v in inputs if v}
        model = self.model([node], [], [n for n, v in unique.items() if not v.const], outs, unique)
        consts = {v.name for v in unique.values() if v.const}
        results = []
        try:
            s = session(model)
            for i in range(2):
                results.append(s.run(outs, {n: v.data[i] for n, v in unique.items() if n not in consts}))
                if steady and not self.is_steady(s, outs, {n: v for n, v in unique.items() if n not in consts}, i, results[-1]):
                    return None
        except Exception:  # whatever ONNX Runtime says: not this node
            return None
        for pair in zip(*results):
            for a in pair:
                if not isinstance(a, np.ndarray) or a.size > MAX_ELEMS or a.size == 0:
                    return None
                if not np.isfinite(a).all() or np.abs(a.astype(np.float64)).max() > (MAX_ABS if a.dtype.kind == "f" else 1e8):
                    return None
            if pair[0].ndim != pair[1].ndim:
                return None
        for v in unique.values():
            v.used = True
            if v.const and v.name not in self.init_names:
                self.init_names.add(v.name)
                self.inits.append(numpy_helper.from_array(v.data[0], v.name))
        self.nodes.append(node)
        added = [Value(n, list(pair), min(bits, EXACT_BITS + 1) if bits <= EXACT_BITS else 0)
                 for n, pair in zip(outs, zip(*results))]
        for v in added:
            v.loose = max([v.loose] + [w.loose for w in unique.values()])
        self.values += added
        return added

    def is_steady(self, s, outs, fed, i, results):
        for away in (-np.inf, np.inf):
            moved = {n: v.data[i] if v.bits or v.data[i].dtype.kind != "f" else np.nextafter(v.data[i], v.data[i].dtype.type(away))
                     for n, v in fed.items()}
            for was, now in zip(results, s.run(outs, moved)):
                if differs("", now, was, LIMITS[was.dtype.name] / 2):
                    return False
        return True

    def model(self, nodes, inits, inputs, outputs, known):
        """A model of these nodes; inputs with known values get their types, constants become initialisers."""
        infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(known[n].dtype), [None] * known[n].rank)
                 for n in inputs]
        outs = [onnx.ValueInfoProto(name=n) for n in outputs]
        inits = inits + [numpy_helper.from_array(v.data[0], v.name) for v in known.values() if v.const]
        g = helper.make_graph(nodes, "g", infos, outs, inits)
        return helper.make_model(g, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)

    def finish(self):
        """The whole model. Outputs: everything that nothing reads, and now and then something that is read."""
        outs = [v for v in self.values if v not in self.inputs and (not v.used or self.chance(0.1))]
        infos = [helper.make_tensor_value_info(v.name, helper.np_dtype_to_tensor_dtype(v.dtype), [None] * v.rank) for v in outs]
        read = {n for node in self.nodes for n in node.input} | ops.captured(self.nodes)
        ins = [i for i in self.infos if i.name in read]
        g = helper.make_graph(self.nodes, "g", ins, infos, self.inits)
        m = helper.make_model(g, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        return m, [v for v in self.inputs if v.name in read], outs


def session(model):
    o = ort.SessionOptions()
    o.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    o.intra_op_num_threads = 1
    o.log_severity_level = 4
    return ort.InferenceSession(model.SerializeToString(), o, ["CPUExecutionProvider"])


def draw(seed):
    g = Graph(seed)
    dims = [1, 2, 3, 4, 5, 8, "n", "m", "k"]
    for _ in range(int(g.rng.integers(1, 4))):
        rank = int(g.rng.choice([1, 2, 3, 3, 4, 4, 5]))
        dtype = g.rng.choice([np.float32] * 6 + [np.float64, np.float16, np.int32, np.int64, np.uint8, np.int8, bool])
        g.add_input(dtype, [dims[i] for i in g.rng.integers(0, len(dims), rank)])
    wanted = int(g.rng.integers(4, 16))
    for _ in range(wanted * 6):
        if len(g.nodes) >= wanted:
            break
        ops.draw(g)
    return g


# ---- comparing ----

def differs(name, got, want, limit):
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{name}: {got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
    if want.dtype.kind != "f":
        bad = got != want
    else:
        g, w = got.astype(np.float64), want.astype(np.float64)
        finite = np.isfinite(w)
        top = max(np.abs(w[finite]).max(initial=0), 0.05)  # what cancels to 0 keeps its error
        with np.errstate(invalid="ignore"):
            bad = np.abs(g - w) > limit * (np.abs(w) + top)
        bad = np.where(finite, bad | ~np.isfinite(g), ~((g == w) | (np.isnan(g) & np.isnan(w))))
    if not bad.any():
        return None
    at = tuple(int(i) for i in np.argwhere(bad)[0])
    return f"{name}{list(at)}: {got[at]}, expected {want[at]} ({bad.sum()} of {bad.size} differ)"


def run(words, seconds=120):
    return subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=seconds, check=False)


def save(array, path):
    np.save(path, array)
    return path


def try_graph(g, args):
    """None, or why the engine is wrong."""
    model, inputs, outputs = g.finish()
    work = args.work
    if not g.nodes or not outputs or not inputs:
        return None
    path, engine = work / "model.onnx", work / "engine"
    onnx.save(model, path)
    try:
        s = session(model)
    except Exception as e:
        return None if "NOT_IMPLEMENTED" in str(e) else f"ONNX Runtime refuses the model: {e}"
    names = [v.name for v in outputs]
    targets = ",".join("x86-64-" + v for v in args.levels)
    p = run([args.infc, "build", "--no-golden", "--target=" + targets, "-o", engine, path])
    if p.returncode:
        return f"build: exit status {p.returncode}: {' '.join(p.stderr.split())[:400]}"
    for i in range(2):
        want = s.run(names, {v.name: v.data[i] for v in inputs})
        files = ["--input=%s=%s" % (v.name, save(v.data[i], work / f"in{i}_{v.name}.npy")) for v in inputs]
        for level in args.levels:
            outs = ["--output=%s=%s" % (n, work / f"out_{n}.npy") for n in names]
            p = run([engine, "run", "--isa=" + level, "--threads=2", *files, *outs])
            if p.returncode:
                return f"size {i}, {level}: exit status {p.returncode}: {' '.join(p.stderr.split())[:300]}"
            for v, w in zip(outputs, want):
                why = differs(v.name, np.load(work / f"out_{v.name}.npy"), w, v.loose)
                if why:
                    return f"size {i}, {level}: {why}"
    return None


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--infc", required=True)
    p.add_argument("--graphs", type=int, default=40)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--levels", default="v3")
    p.add_argument("--work", default="work", type=pathlib.Path)
    p.add_argument("--keep", type=pathlib.Path)
    p.add_argument("--only", type=int)
    args = p.parse_args()
    args.levels = args.levels.split(",")
    args.work.mkdir(parents=True, exist_ok=True)
    seeds = [args.only] if args.only is not None else range(args.seed, args.seed + args.graphs)
    failures, in_group, counts = 0, 0, {}
    for i, seed in enumerate(seeds):
        g = draw(seed)
        for node in g.nodes:
            counts[node.op_type] = counts.get(node.op_type, 0) + 1
        try:
            why = try_graph(g, args)
        except subprocess.TimeoutExpired as e:
            why = f"does not end: {e.cmd[1]}"
        if why:
            failures += 1
            in_group += 1
            print(f"not ok graph-{seed}: {' '.join(why.split())}", flush=True)
            if failures == 20:
                print("# (no more: 20 wrong)")
                return 1
            if args.keep:
                shutil.copytree(args.work, args.keep / f"graph-{seed}", dirs_exist_ok=True)
        if i % 10 == 9 or i == len(seeds) - 1:
            if not in_group:
                print(f"ok {seeds[i - i % 10]}-{seed}", flush=True)
            in_group = 0
        for f in args.work.iterdir():
            f.unlink()
    print(f"# {len(seeds)} graphs, {sum(counts.values())} nodes of {len(counts)} operators, {failures} wrong")
    if args.only is not None:
        print("#", counts)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
