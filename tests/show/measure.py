# SPDX-License-Identifier: Apache-2.0
"""The measurements of tests/show/onnx.sh. usage: measure.py --infc=PATH --fetch=PATH [--work=FOLDER] [--static=N] [PART]..."""
import argparse
import json
import os
import pathlib
import re
import resource
import shutil
import statistics
import subprocess
import sys
import time

import numpy as np
import onnx

MODELS = {"magika": "magika", "minilm": "minilm-f32", "resnet50": "light-resnet50"}
LEVELS = "x86-64-v2,x86-64-v3,x86-64-v4"
SIZES = [(1, 2), (1, 3), (2, 5), (1, 7), (3, 11), (1, 13), (2, 16), (1, 17), (5, 19), (1, 23), (2, 29), (1, 31), (4, 37), (1, 41),
         (3, 43), (1, 53), (2, 61), (1, 64), (1, 67), (2, 79), (1, 83), (1, 97), (2, 101), (1, 113), (1, 127), (1, 128), (2, 131),
         (1, 157), (1, 191), (1, 199)]


class Show:
    def __init__(self, args):
        self.args, self.work, self.missed = args, args.work, 0
        self.paths = {}

    def line(self, what, value, limit, ok):
        self.missed += not ok
        print(f"{'holds ' if ok else 'MISSES'}  {what}: {value}; {limit}", flush=True)

    def model(self, name):
        if name not in self.paths:
            p = subprocess.run([self.args.fetch, MODELS.get(name, name)], capture_output=True, text=True, check=True)
            self.paths[name] = p.stdout.strip()
        return self.paths[name]

    def build(self, name, out, *more, **kw):
        words = [self.args.infc, "build", "--target=" + LEVELS, "-o", str(out), *more, self.model(name)]
        return subprocess.run(words, capture_output=True, text=True, check=True, **kw)

    def engine(self, name):
        path = self.work / name
        if not path.exists():
            self.build(name, path)
        return path

    # ---- parts ----

    def sizes(self):
        for name in MODELS:
            full, bare = self.engine(name), self.work / (name + "-bare")
            self.build(name, bare, "--no-golden")
            text = subprocess.run(["readelf", "-SW", bare], capture_output=True, text=True, check=True).stdout
            found = re.search(r"\.infc\.weights\s+\S+\s+\S+\s+\S+\s+([0-9a-f]+)", text)
            weights = int(found[1], 16) if found else 0
            rest = bare.stat().st_size - weights
            self.line(f"{name}: engine of three levels without weights and goldens", f"{rest:,} bytes", "at most 1,500,000", rest <= 1.5e6)
            info = json.loads(subprocess.run([full, "info", "--json"], capture_output=True, text=True, check=True).stdout)
            goldens = full.stat().st_size - bare.stat().st_size + len(json.dumps(info.get("manifest", {})))
            self.line(f"{name}: goldens and manifest", f"{goldens:,} bytes", "at most 262,144", goldens <= 256 << 10)
            bare.unlink()
            out = self.work / "report.json"
        for name in ("resnet50", "minilm", "ppocr-det"):
            out = self.work / "report.json"
            self.build(name, self.work / "reported", f"--report={out}", "--json")
            share = json.loads(out.read_text())["generic_flops_share"]
            self.line(f"{name}: FLOPs in generic kernels", f"{100 * share:.3f}%", "at most 1%", share <= 0.01)

    def works(self, engine, *prefix):
        p = subprocess.run([*prefix, str(engine), "run", "--random=1"], capture_output=True, text=True, check=False)
        return p.returncode == 0

    def files(self):
        e = self.engine("magika")
        text = subprocess.run(["readelf", "-d", e], capture_output=True, text=True, check=True).stdout
        self.line("magika: readelf -d", f"{text.count('NEEDED')} NEEDED", "none", "NEEDED" not in text)
        for tool in ("strip", "llvm-strip-22", "llvm-strip-19", "llvm-strip"):
            if not shutil.which(tool):
                continue
            s = self.work / "stripped"
            shutil.copy(e, s)
            ok = subprocess.run([tool, s], check=False).returncode == 0 and self.works(s)
            self.line(f"magika: after {tool}", "runs" if ok else "fails", "runs", ok)
        if os.getuid() == 0:
            root = self.work / "root"
            shutil.rmtree(root, ignore_errors=True)
            root.mkdir()
            shutil.copy(e, root / "engine")
            self.line("magika: in an empty chroot without /proc", "runs" if self.works("/engine", "chroot", root) else "fails", "runs",
                      self.works("/engine", "chroot", root))

    def build_times(self):
        for name in MODELS:
            largest = max((np.prod(t.dims) * 4 for t in onnx.load(self.model(name), load_external_data=False).graph.initializer), default=0)
            words = [self.args.infc, "build", "--no-cache", "--target=" + LEVELS, "-o", str(self.work / "timed"), self.model(name)]
            before, begin, peak = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic(), 0
            with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as p:
                while p.poll() is None:
                    peak = max(peak, anonymous(p.pid))
                    time.sleep(0.005)
            wall, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            self.line(f"{name}: build without a cache", f"{wall:.2f} s ({cpu:.2f} s of CPU time)", "under 5 s on two free cores",
                      p.returncode == 0 and wall < 5)
            limit = 300e6 + float(largest)
            self.line(f"{name}: peak RssAnon of the process tree", f"{peak / 1e6:.0f} MB", f"under {limit / 1e6:.0f} MB", peak < limit)

    def bytes(self):
        a, b = self.work / "a", self.work / "b" / "deeper"
        for d in (a, b):
            d.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.model("magika"), d / "m.onnx")
        ways = [(a, "-j1", {"TZ": "Asia/Tokyo", "LC_ALL": "C"}, 0o077, True), (b, "-j3", {"TZ": "UTC", "LC_ALL": "C.UTF-8"}, 0o022, False),
                (b, "-j2", {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA"}, 0o002, False), (b, "-j2", {}, 0o022, False)]
        made = []
        for d, jobs, env, mask, no_cache in ways:
            words = [self.args.infc, "build", jobs, "--target=" + LEVELS, "-o", "e", "m.onnx"] + (["--no-cache"] if no_cache else [])
            full = {**os.environ, "XDG_CACHE_HOME": str(self.work / "cache"), **env}
            subprocess.run(words, cwd=d, env=full, umask=mask, check=True, capture_output=True)
            made.append((d / "e").read_bytes())
        same = all(m == made[0] for m in made)
        self.line("magika: four builds (folder, -j, locale, umask, TZ, cache, GLIBC_TUNABLES)", "equal" if same else "different", "equal bytes", same)

    def run_times(self):
        e = self.engine("minilm")
        size = ["--shape=batch:1", "--shape=sequence:128"]
        inputs = self.inputs(1, 128)
        extra = []
        for _ in range(9):
            begin = time.monotonic()
            subprocess.run([e, "run", *inputs, f"--output=last_hidden_state={self.work / 'o.npy'}"], check=True, capture_output=True)
            whole = time.monotonic() - begin
            extra.append(1e3 * whole - bench(e, *size, seconds=0.2))
        v = statistics.median(extra)
        self.line("minilm: a `run` process beyond one warm inference", f"{v:.1f} ms", "at most 15 ms", v <= 15)

    def inputs(self, batch, length):
        rng = np.random.default_rng(batch * 1000 + length)
        made = {"input_ids": rng.integers(0, 30522, (batch, length)), "attention_mask": np.ones((batch, length), np.int64),
                "token_type_ids": np.zeros((batch, length), np.int64)}
        for k, v in made.items():
            np.save(self.work / (k + ".npy"), v)
        self.feed = made
        return [f"--input={k}={self.work / (k + '.npy')}" for k in made]

    def shapes(self):
        import onnxruntime as ort
        o = ort.SessionOptions()
        o.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = ort.InferenceSession(self.model("minilm"), o, ["CPUExecutionProvider"])
        e, worst, ratios, arena = self.engine("minilm"), 0.0, [], []
        for i, (b, n) in enumerate(SIZES):
            words = [e, "run", *self.inputs(b, n), f"--output=last_hidden_state={self.work / 'o.npy'}"]
            subprocess.run(words, check=True, capture_output=True)
            ref, got = session.run(None, self.feed)[0], np.load(self.work / "o.npy")
            worst = max(worst, np.abs(got - ref).max() / max(ref.std(), 1e-3 * np.abs(ref).max()))
            size = [f"--shape=batch:{b}", f"--shape=sequence:{n}"]
            p = subprocess.run([e, "profile", "--repeat=1", *size, "--json"], capture_output=True, text=True, check=True)
            shape = json.loads(p.stdout)
            arena.append(shape["arena_bytes"] / shape["arena_sum_bytes"])
            if i % max(1, len(SIZES) // max(1, self.args.static)):
                continue
            fixed = self.work / "static"
            self.build("minilm", fixed, "--no-golden", "--target=x86-64-v4,x86-64-v3,x86-64-v2",
                       *(f"--shape={k}:{b},{n}" for k in self.feed))
            pairs = [(bench(e, *size, seconds=0.3), bench(fixed, seconds=0.3)) for _ in range(3)]
            ratios.append(statistics.median(x / y for x, y in pairs))
        self.line(f"minilm: {len(SIZES)} shapes from one engine, scaled error", f"{worst:.2g}", "at most 1e-4", worst <= 1e-4)
        self.line(f"minilm: time of the one engine to {len(ratios)} static builds", f"{max(ratios):.2f} at most", "at most 1.3", max(ratios) <= 1.3)
        self.line("minilm: arena, as a share of the shape's tensors together", f"{100 * min(arena):.1f}% to {100 * max(arena):.1f}%",
                  "grows with them: shares within a factor of 2", max(arena) <= 2 * min(arena))


def bench(engine, *size, seconds):
    p = subprocess.run([engine, "bench", f"--seconds={seconds}", "--json", *size], capture_output=True, text=True, check=True)
    return json.loads(p.stdout)["latency_ms"]["p50"]


def anonymous(root):
    """RssAnon of a process and its descendants, in bytes."""
    parents, rss = {}, {}
    for d in os.listdir("/proc"):
        if not d.isdigit():
            continue
        try:
            text = pathlib.Path("/proc", d, "status").read_text()
        except OSError:
            continue
        parents[int(d)] = int(re.search(r"PPid:\s+(\d+)", text)[1])
        found = re.search(r"RssAnon:\s+(\d+)", text)
        rss[int(d)] = 1024 * int(found[1]) if found else 0
    total, todo = 0, [root]
    while todo:
        p = todo.pop()
        total += rss.get(p, 0)
        todo += [c for c, q in parents.items() if q == p]
    return total


PARTS = {"sizes": Show.sizes, "files": Show.files, "build": Show.build_times, "bytes": Show.bytes, "run": Show.run_times,
         "shapes": Show.shapes}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--infc", required=True)
    p.add_argument("--fetch", required=True)
    p.add_argument("--work", default="show", type=pathlib.Path)
    p.add_argument("--static", type=int, default=30, help="how many of the shapes are also built on their own")
    p.add_argument("parts", nargs="*", default=list(PARTS))
    args = p.parse_args()
    args.work = args.work.absolute()
    shutil.rmtree(args.work, ignore_errors=True)
    args.work.mkdir(parents=True)
    show = Show(args)
    for part in args.parts or PARTS:
        PARTS[part](show)
    shutil.rmtree(args.work)
    return 1 if show.missed else 0


if __name__ == "__main__":
    sys.exit(main())
