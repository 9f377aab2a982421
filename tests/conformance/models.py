# SPDX-License-Identifier: Apache-2.0
"""Real models: one engine each, compared with ONNX Runtime (its optimiser off) on seeded inputs.

usage: models.py --infc=PATH [--levels=v2,v3] [--inputs=5] [--truth] [--work=FOLDER] [--page=FILE] NAME=MODEL.onnx...
       models.py --list

Every model is built once, for all levels, and run on every kind of input of cases.py, at several sizes where a dim is
symbolic; each input runs on every level. An output is right when its type and shape are ONNX Runtime's and
max|d| / max(std, 1e-3 max|ref|) is at most 1e-4; integers must be equal. The deviation of an output of a few elements (a
probability, say) is taken over all inputs of the kind: one element alone has none.

Where an output differs by more, rounding may be the reason, and not only the engine's. Then both are measured against the
model evaluated in f64. Such an input is disputed, and both errors are printed. ONNX Runtime's own error must be above half
the limit there, and the engine's no greater, on every disputed input. As many inputs as a kind has must be
undisputed, so that a wrong operator cannot hide behind its own f64 evaluation.

Prints `ok NAME-LEVEL` or `not ok NAME-LEVEL: reason`, and the worst figures met; for models with If, the branches that no
input took. --truth measures against f64 for every input. --page writes the table as a page.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime as ort

import branches
import cases
import f64

LIMIT = 1e-4


def scaled_error(got, ref, scale_of):
    """NaN and infinities must be where the reference has them. scale_of: the values whose deviation is the scale."""
    g, r = got.astype(np.float64), ref.astype(np.float64)
    finite = np.isfinite(r)
    if r.size == 0 or np.array_equal(g, r, equal_nan=True):
        return 0.0
    if not np.array_equal(np.isfinite(g), finite) or not np.array_equal(g[~finite], r[~finite], equal_nan=True):
        return float("inf")
    of = scale_of[np.isfinite(scale_of)]
    scale = max(of.std(), 1e-3 * np.abs(of).max()) if of.size else 0
    return np.abs(g - r)[finite].max() / scale if scale else float("inf")


def reference(model):
    o = ort.SessionOptions()
    o.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    o.intra_op_num_threads = 2
    o.log_severity_level = 3
    return ort.InferenceSession(str(model), o, ["CPUExecutionProvider"])


def build(infc, engine, targets, model):
    p = subprocess.run([infc, "build", "--no-golden", "--target=" + targets, "-o", str(engine), str(model)],
                       capture_output=True, text=True, check=False)
    if p.returncode:
        raise RuntimeError(f"build: exit status {p.returncode}: {' '.join(p.stderr.split())[:400]}")


def ifs_left(infc, model):
    """How many Ifs stay in a build: all others are decided by types and shapes, once for every valid input."""
    p = subprocess.run([infc, "inspect", "--json", str(model)], capture_output=True, text=True, check=False)
    return json.loads(p.stdout)["ops"].get("if", 0) if p.returncode == 0 else -1


def run_engine(engine, level, inputs, outputs, work):
    """One run; the outputs in order. Raises RuntimeError with the engine's own words."""
    words = [str(engine), "run", f"--isa={level}"]
    for i, (name, x) in enumerate(inputs.items()):
        np.save(work / f"in{i}.npy", x)
        words.append(f"--input={name}={work / f'in{i}.npy'}")
    for i, name in enumerate(outputs):
        words.append(f"--output={name}={work / f'out{i}.npy'}")
    p = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    if p.returncode:
        raise RuntimeError(f"exit status {p.returncode}: {p.stderr.strip()[:300]}")
    return [np.load(work / f"out{i}.npy") for i in range(len(outputs))]


class Truth:
    """The model in f64; built when first asked, run once an input."""

    def __init__(self, infc, model, outputs, work):
        self.infc, self.model, self.outputs, self.work, self.built = infc, model, outputs, work, False
        self.got = {}

    def run(self, key, inputs):
        if not self.built:
            wide = self.work / "f64.onnx"
            large = self.model.stat().st_size > 1 << 30
            onnx.save(f64.to_f64(onnx.load(str(self.model))), str(wide), save_as_external_data=large)
            build(self.infc, self.work / "engine64", "x86-64-v3", wide)
            os.unlink(wide)
            self.built = True
        if key not in self.got:
            wide = {k: v.astype(np.float64) if v.dtype == np.float32 else v for k, v in inputs.items()}
            self.got[key] = run_engine(self.work / "engine64", "v3", wide, self.outputs, self.work)
        return self.got[key]

    def close(self):
        if self.built:
            os.unlink(self.work / "engine64")


class Row:
    """What is known of one kind of inputs of one model."""

    def __init__(self, name, kind, sizes):
        self.name, self.kind, self.sizes = name, kind, sizes
        self.worst = {}          # level: error against ONNX Runtime
        self.ort = self.engine = 0.0   # worst errors against f64, where measured
        self.measured = False
        self.inputs, self.disputed = 0, set()
        self.ratios = {}         # level: {input: log(engine's error / ONNX Runtime's) of each disputed output}
        self.wrong = {}          # level: reason


    def farther(self, level):
        """Why the engine counts as less accurate than ONNX Runtime on the disputed inputs, or None."""
        logs = np.array([np.max(v) for v in self.ratios.get(level, {}).values()])
        if not logs.size or logs.max() <= 0:
            return None
        return (f"{logs.size} disputed inputs, the engine up to {np.exp(logs.max()):.2f} times as far from f64 as ONNX Runtime "
                f"(at most {self.engine:.2g}, ONNX Runtime {self.ort:.2g})")

    def nearer(self):
        """On how many disputed inputs the engine is no farther from f64 than ONNX Runtime, on every level."""
        return sum(all(np.max(r.get(k, [0.0])) <= 0 for r in self.ratios.values()) for k in self.disputed)


def case(make, seed, size, needed):
    made = make(np.random.default_rng(seed), size)
    return {k or next(iter(needed)): v for k, v in made.items() if k in needed or k is None}


class Model:
    def __init__(self, name, path, args):
        self.name, self.path, self.args, self.work = name, path, args, args.work
        session = reference(path)
        self.session = session
        self.outputs = [o.name for o in session.get_outputs()]
        self.needed = {i.name for i in session.get_inputs()}
        self.branches = branches.Branches(path, args.work)
        self.truth = Truth(args.infc, path, self.outputs, args.work)

    def judge(self, row, level, key, inputs, i, got, ref, scale_of):
        """Why output i is wrong, or None; errors go into the row."""
        if got.dtype != ref.dtype or got.shape != ref.shape:
            return f"output {self.outputs[i]}: {got.dtype}{list(got.shape)}, expected {ref.dtype}{list(ref.shape)}"
        if ref.dtype.kind != "f":
            return None if np.array_equal(got, ref) else f"output {self.outputs[i]}: integers differ"
        e = scaled_error(got, ref, scale_of)
        row.worst[level] = max(row.worst.get(level, 0.0), e)
        if e <= LIMIT and not self.args.truth:
            return None
        true = self.truth.run(key, inputs)[i]
        ours, theirs = scaled_error(got, true, scale_of), scaled_error(ref, true, scale_of)
        row.ort, row.engine, row.measured = max(row.ort, theirs), max(row.engine, ours), True
        if e <= LIMIT:
            return None
        row.disputed.add(key)
        if theirs > LIMIT / 2 and np.isfinite(ours):
            row.ratios.setdefault(level, {}).setdefault(key, []).append(np.log(max(ours, 1e-300) / theirs))
            return None
        return (f"output {self.outputs[i]}: scaled error {e:.3g}; against f64 the engine's is {ours:.3g}, "
                f"ONNX Runtime's {theirs:.3g}")

    def try_kind(self, kind, sizes, make):
        row = Row(self.name, kind, sizes)
        runs = []
        for seed in range(self.args.inputs):
            size = sizes[seed % len(sizes)]
            inputs = case(make, seed, size, self.needed)
            self.branches.run(inputs)
            runs.append((seed, size, inputs, self.session.run(self.outputs, inputs)))
        pools = [np.concatenate([r[3][i].ravel().astype(np.float64) for r in runs]) for i in range(len(self.outputs))]
        for seed, size, inputs, refs in runs:
            row.inputs += 1
            for level in self.args.levels:
                try:
                    got = run_engine(self.work / "engine", level, inputs, self.outputs, self.work)
                    why = [self.judge(row, level, (kind, seed), inputs, i, g, refs[i],
                                      refs[i].astype(np.float64) if refs[i].size >= 16 else pools[i])
                           for i, g in enumerate(got)]
                except (RuntimeError, subprocess.TimeoutExpired) as e:
                    why = [str(e)]
                for w in filter(None, why):
                    row.wrong.setdefault(level, f"{kind}, seed {seed}, size {size}: {w}")
        for level in self.args.levels:
            w = row.farther(level)
            if w:
                row.wrong.setdefault(level, f"{kind}: {w}")
        return row

    def run(self):
        """A row for each kind of inputs."""
        self.ifs = ifs_left(self.args.infc, self.path) if self.branches.names else 0
        build(self.args.infc, self.work / "engine", ",".join(f"x86-64-{v}" for v in self.args.levels), self.path)
        rows = [self.try_kind(kind, *made) for kind, made in cases.CASES[self.name].items()]
        self.truth.close()
        os.unlink(self.work / "engine")
        disputed, inputs = sum(len(r.disputed) for r in rows), sum(r.inputs for r in rows)
        both = sum(n.endswith(".then") and n.removesuffix(".then") + ".else" in self.branches.taken for n in self.branches.taken)
        if both < self.ifs:
            for level in self.args.levels:
                rows[0].wrong.setdefault(level, f"{self.ifs} If stay in the engine, both branches taken of {both}")
        if inputs - disputed < self.args.inputs:
            for level in self.args.levels:
                rows[0].wrong.setdefault(level, f"{disputed} of {inputs} inputs differ by more than {LIMIT}")
        return rows


def print_rows(model, rows, levels):
    for level in levels:
        wrong = [r.wrong[level] for r in rows if level in r.wrong]
        worst = max(r.worst.get(level, 0.0) for r in rows)
        if wrong:
            print(f"not ok {model.name}-{level}: {' '.join(wrong[0].split())}")
            continue
        disputed = [r for r in rows if r.disputed]
        more = "".join(f"; {len(r.disputed)} {r.kind} disputed (engine nearer on {r.nearer()}): against f64 the engine's {r.engine:.2g}, "
                       f"ONNX Runtime's {r.ort:.2g}" for r in disputed)
        print(f"ok {model.name}-{level}: scaled error {worst:.2g}, {sum(r.inputs for r in rows)} inputs{more}")
    left = model.branches.left()
    if model.branches.names:
        print(f"# {model.name}: {len(model.branches.taken)} of {len(model.branches.names)} branches of If taken; "
              f"{model.ifs} If stay in the engine; not taken: {'; '.join(left) or 'none'}")
    sys.stdout.flush()


PAGE = """# Real ONNX models

Written by `make models` (tests/conformance/models.py); do not edit. One engine a model for all its sizes, on levels {levels};
the reference is ONNX Runtime {ort} with its optimiser off. Error: the greatest of max|d| / max(std, 1e-3 max|ref|) over
outputs, inputs and levels; the limit is 1e-4. Each kind of inputs has {inputs} seeded ones. The last columns are the errors of
the engine and of ONNX Runtime against the same model evaluated in f64, where they were measured. An input is *disputed*
where the two differ by more than the limit (in brackets: on how many of them the engine is the nearer to f64 on every
level). It passes only if ONNX Runtime is farther than half the limit from f64 and the engine no farther: the head of
tests/conformance/models.py states it in full.

| model | inputs | sizes | error | | disputed | engine to f64 | ONNX Runtime to f64 |
|---|---|---|--:|---|--:|--:|--:|
"""


BRANCHES = """
## Branches of If

Taken, by ONNX Runtime's profile, over the inputs above. Both branches of an If that stays in the engine must be among
them; conditions of the others follow from types and shapes that every valid call has, or the branch that is not
taken cannot run: ONNX Runtime refuses the call, and so does the engine.
"""


def write_page(path, args, done):
    with open(path, "w", encoding="utf-8") as f:
        f.write(PAGE.format(levels=", ".join(args.levels), ort=ort.__version__, inputs=args.inputs))
        for _, rows in done:
            for r in rows:
                sizes = ", ".join("x".join(map(str, s)) if isinstance(s, tuple) else str(s) for s in dict.fromkeys(r.sizes))
                e = max(r.worst.values(), default=float("inf"))
                f64s = (f"{r.engine:.1e}", f"{r.ort:.1e}") if r.measured else ("", "")
                f.write(f"| {r.name} | {r.kind} | {sizes} | {e:.1e} | {'**misses**' if r.wrong else 'holds'} | "
                        f"{f'{len(r.disputed)} ({r.nearer()})' if r.disputed else ''} | {f64s[0]} | {f64s[1]} |\n")
        f.write(BRANCHES)
        for m, _ in done:
            if m.branches.names:
                left = m.branches.left()
                f.write(f"\n{m.name}: {len(m.branches.taken)} of {len(m.branches.names)}; {m.ifs} If in the engine."
                        f"{' Not taken:' if left else ''}\n" + ("\n" if left else ""))
                f.writelines(f"- `{n}`\n" for n in left)


def machine_levels():
    flags = pathlib.Path("/proc/cpuinfo").read_text().split()
    return ",".join(["v2"] + [level for level, flag in (("v3", "avx2"), ("v4", "avx512vl"), ("vnni", "avx512_vnni"))
                              if flag in flags])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--infc")
    p.add_argument("--levels", default=machine_levels())
    p.add_argument("--inputs", type=int, default=5)
    p.add_argument("--truth", action="store_true")
    p.add_argument("--work", default=".", type=pathlib.Path)
    p.add_argument("--page")
    p.add_argument("--list", action="store_true")
    p.add_argument("models", nargs="*")
    args = p.parse_args()
    if args.list:
        print("\n".join(cases.CASES))
        return 0
    args.levels = args.levels.split(",")
    args.work.mkdir(parents=True, exist_ok=True)
    done, ok = [], True
    for m in args.models:
        name, path = m.split("=", 1)
        try:
            model = Model(name, pathlib.Path(path), args)
            rows = model.run()
        except RuntimeError as e:
            print(f"not ok {name}: {' '.join(str(e).split())[:400]}", flush=True)
            ok = False
            continue
        print_rows(model, rows, args.levels)
        ok = ok and not any(r.wrong for r in rows)
        model.session = model.branches.model = None
        done.append((model, rows))
    if args.page:
        write_page(args.page, args, done)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
