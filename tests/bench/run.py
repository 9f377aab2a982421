# SPDX-License-Identifier: Apache-2.0
"""Engines against other runtimes on this machine, in one run, interleaved.

usage: run.py --infc=PATH --src=FOLDER [--work=FOLDER] [--page=FILE] [--only=NAME,..] [--rounds=5]
              [--seconds=0.5] [--threads=1,2]

Each case is measured in rounds; in each round the engine (its own `bench`) and every peer run for some tenths of a
second, one after the other, so that whatever else the machine does meets all of them. Where the system permits, what is
measured runs at real-time priority (SCHED_FIFO), else at normal priority, and the page says which. A figure is the
median of the rounds' medians. Peers: ONNX Runtime, and OpenVINO (told to compute in f32) when it is installed. Matrix products are also
compared with the FMA peak, which a C loop compiled here measures in the same rounds.
"""
import argparse
import json
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import time

import numpy as np

PRIORITY = 5
FEATURES = ("sse4_2 avx avx2 fma f16c avx_vnni avx512f avx512bw avx512vl avx512_vnni avx512_bf16 avx512_fp16 amx_tile "
            "amx_bf16 amx_int8").split()


# ---- what is measured ----

def image(name, *shape):
    return lambda rng: {name: rng.uniform(-1, 1, shape).astype(np.float32)}


def tokens(batch, length):
    return lambda rng: {"input_ids": rng.integers(1, 30000, (batch, length)),
                        "attention_mask": np.ones((batch, length), np.int64),
                        "token_type_ids": np.zeros((batch, length), np.int64)}


def voice(rng):
    return {"input": (0.1 * rng.standard_normal((1, 576))).astype(np.float32), "sr": np.array(16000, np.int64),
            "state": np.zeros((2, 1, 128), np.float32)}


def file_bytes(rng):
    return {"bytes": rng.integers(0, 256, (1, 2048)).astype(np.int32)}


# Name of the recipe, what is given, the inputs.
CASES = [
    ("light-resnet50", "1x3x224x224", image("gpu_0/data_0", 1, 3, 224, 224)),
    ("light-squeezenet", "1x3x224x224", image("data_0", 1, 3, 224, 224)),
    ("light-densenet121", "1x3x224x224", image("data_0", 1, 3, 224, 224)),
    ("light-shufflenet", "1x3x224x224", image("gpu_0/data_0", 1, 3, 224, 224)),
    ("light-vgg19", "1x3x224x224", image("data_0", 1, 3, 224, 224)),
    ("minilm-f32", "1x16 tokens", tokens(1, 16)),
    ("minilm-f32", "1x128 tokens", tokens(1, 128)),
    ("minilm-f32", "8x128 tokens", tokens(8, 128)),
    ("ppocr-det", "640x640", image("x", 1, 3, 640, 640)),
    ("ppocr-rec", "48x320", image("x", 1, 3, 48, 320)),
    ("magika", "2048 bytes", file_bytes),
    ("silero-vad-op18", "32 ms", voice),
]

# m, k, n, and whether the second matrix is a weight.
PRODUCTS = [(513, 383, 769, True), (513, 383, 769, False), (128, 384, 1536, True)]


def product_model(path, m, k, n, weight):
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    f32 = TensorProto.FLOAT
    b = np.random.default_rng(1).standard_normal((k, n)).astype(np.float32)
    inputs = [helper.make_tensor_value_info("a", f32, [m, k])]
    if not weight:
        inputs.append(helper.make_tensor_value_info("b", f32, [k, n]))
    graph = helper.make_graph([helper.make_node("MatMul", ["a", "b"], ["c"])], "product", inputs,
                              [helper.make_tensor_value_info("c", f32, [m, n])],
                              [numpy_helper.from_array(b, "b")] if weight else [])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))


def product_inputs(m, k, n, weight):
    def make(rng):
        x = {"a": rng.standard_normal((m, k)).astype(np.float32)}
        return x if weight else {**x, "b": rng.standard_normal((k, n)).astype(np.float32)}
    return make


# Independent chains of fused multiply-adds on registers alone; prints GFLOP/s of all threads together.
PEAK_C = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#if defined __AVX512F__
#define BYTES 64
#elif defined __AVX__
#define BYTES 32
#else
#define BYTES 16
#endif
typedef float vec __attribute__((vector_size(BYTES)));
enum { CHAINS = 12, STEPS = 100000 };
static double seconds;
static volatile float sink;
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static void *work(void *out)
{
    vec a[CHAINS], x = {0}, y = {0};
    x += 0.999f, y += 0.001f;
    for (int i = 0; i < CHAINS; i++) a[i] = x * (float)i;
    double best = 0, start = now();
    while (now() - start < seconds) {
        double t = now();
        for (int s = 0; s < STEPS; s++)
            for (int i = 0; i < CHAINS; i++) a[i] = a[i] * x + y;
        double rate = 2.0 * CHAINS * STEPS * (BYTES / 4) / (now() - t) * 1e-9;
        if (rate > best) best = rate;
    }
    for (int i = 1; i < CHAINS; i++) a[0] += a[i];
    sink = a[0][0];
    *(double *)out = best;
    return NULL;
}
int main(int argc, char **argv)
{
    int n = argc > 2 ? atoi(argv[1]) : 1;
    pthread_t t[64];
    double rate[64], sum = 0;
    seconds = argc > 2 ? atof(argv[2]) : 1;
    for (int i = 0; i < n && i < 64; i++) pthread_create(&t[i], NULL, work, &rate[i]);
    for (int i = 0; i < n && i < 64; i++) pthread_join(t[i], NULL), sum += rate[i];
    printf("%.2f\n", sum);
    return 0;
}
"""


# ---- peers: a child process that measures when told to ----

def priority(on):
    """Of every thread of this process. Loading and building run at normal priority."""
    policy, level = (os.SCHED_FIFO, PRIORITY) if on else (os.SCHED_OTHER, 0)
    for task in os.listdir("/proc/self/task"):
        try:
            os.sched_setscheduler(int(task), policy, os.sched_param(level))
        except (PermissionError, ProcessLookupError):
            pass


def onnxruntime_call(model, inputs, threads):
    import onnxruntime as ort
    o = ort.SessionOptions()
    o.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    o.intra_op_num_threads, o.inter_op_num_threads, o.log_severity_level = threads, 1, 3
    s = ort.InferenceSession(model, o, ["CPUExecutionProvider"])
    inputs = {i.name: inputs[i.name] for i in s.get_inputs()}
    return lambda: s.run(None, inputs)


def openvino_call(model, inputs, threads):
    import openvino as ov
    core = ov.Core()
    m = core.read_model(model)
    m.reshape({name: list(x.shape) for name, x in inputs.items()})
    compiled = core.compile_model(m, "CPU", {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY",
                                             "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"})
    request = compiled.create_infer_request()
    for i in compiled.inputs:  # bound once, as memory that is shared
        request.set_tensor(i, ov.Tensor(inputs[i.get_any_name()], shared_memory=True))
    return lambda: request.infer() and [request.get_output_tensor(i).data for i in range(len(compiled.outputs))]


PEERS = {"ONNX Runtime": ("onnxruntime", onnxruntime_call), "OpenVINO": ("openvino", openvino_call)}


def peer_main(name, model, folder, threads, real_time):
    inputs = dict(np.load(folder + "/inputs.npz"))
    call = PEERS[name][1](model, inputs, threads)
    np.savez(folder + "/reference.npz", *call())
    print("ready", flush=True)
    for line in sys.stdin:
        seconds, times = float(line), []
        priority(real_time)
        start = time.perf_counter()
        while time.perf_counter() - start < seconds / 10:
            call()
        start = time.perf_counter()
        while not times or time.perf_counter() - start < seconds:
            t = time.perf_counter()
            call()
            times.append(time.perf_counter() - t)
        priority(False)
        print(1e3 * statistics.median(times), flush=True)


class Peer:
    def __init__(self, name, model, folder, threads, real_time):
        self.child = subprocess.Popen([sys.executable, __file__, "--peer", name, str(model), str(folder), str(threads),
                                       str(int(real_time))], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.child.stdout.readline().strip() != "ready":
            raise RuntimeError(f"{name} cannot run {model}")

    def burst(self, seconds):
        print(seconds, file=self.child.stdin, flush=True)
        return float(self.child.stdout.readline())

    def close(self):
        self.child.stdin.close()
        self.child.wait()


# ---- measuring ----

class Bench:
    def __init__(self, args):
        self.args, self.work = args, pathlib.Path(args.work)
        self.work.mkdir(parents=True, exist_ok=True)
        self.real_time = bool(shutil.which("chrt")) and not subprocess.run(
            ["chrt", "-f", str(PRIORITY), "true"], stderr=subprocess.DEVNULL).returncode
        self.first = ["chrt", "-f", str(PRIORITY)] if self.real_time else []
        self.peers = [n for n, (module, _) in PEERS.items() if module_version(module)]
        self.built = {}

    def build(self, name, model):
        if name not in self.built:
            engine = self.work / f"{name}.engine"
            t = time.perf_counter()
            subprocess.run([self.args.infc, "build", str(model), "-o", str(engine)], check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            print(f"{name}: built in {time.perf_counter() - t:.1f} s", flush=True)
            self.built[name] = engine
        return self.built[name]

    def engine_words(self, inputs):
        words = []
        for i, (name, x) in enumerate(inputs.items()):
            np.save(self.work / f"in{i}.npy", x)
            words.append(f"--input={name}={self.work}/in{i}.npy")
        return words

    def error(self, engine, words):
        """Against the first peer: max|d| / max|ref|, the worst output. Makes sure that all compute the same."""
        info = json.loads(subprocess.run([engine, "info", "--json"], check=True, capture_output=True).stdout)
        names = [o["name"] for o in info["outputs"]]
        out = [f"--output={n}={self.work}/out{i}.npy" for i, n in enumerate(names)]
        subprocess.run([engine, "run", *words, *out], check=True, stdout=subprocess.DEVNULL)
        ref, worst = np.load(self.work / "reference.npz"), 0.0
        for i in range(len(names)):
            r, g = ref[f"arr_{i}"].astype(np.float64), np.load(self.work / f"out{i}.npy").astype(np.float64)
            scale = np.abs(r).max()
            worst = max(worst, np.abs(g - r).max() / scale if scale else float((g != r).any()))
        return worst

    def case(self, name, what, model, make, threads, peak=None):
        engine = self.build(name, model)
        inputs = make(np.random.default_rng(0))
        np.savez(self.work / "inputs.npz", **inputs)
        words = self.engine_words(inputs)
        a = self.args
        peers = {p: Peer(p, model, self.work, threads, self.real_time) for p in reversed(self.peers)}
        row = {"name": name, "what": what, "threads": threads, "ms": [], "peak": [], "error": self.error(engine, words),
               **{p: [] for p in self.peers}}
        for _ in range(a.rounds):
            out = subprocess.run([*self.first, engine, "bench", "--json", f"--seconds={a.seconds}", f"--threads={threads}",
                                  *words], check=True, capture_output=True).stdout
            row["ms"].append(json.loads(out)["latency_ms"]["p50"])
            row["level"] = json.loads(out)["level"]
            for p in self.peers:
                row[p].append(peers[p].burst(a.seconds))
            if peak:
                out = subprocess.run([*self.first, peak, str(threads), str(a.seconds / 2)], check=True, capture_output=True)
                row["peak"].append(float(out.stdout))
        for p in peers.values():
            p.close()
        print(f"{name} {what} x{threads}: {statistics.median(row['ms']):.3f} ms" +
              "".join(f", {p} {statistics.median(row[p]):.3f} ms" for p in self.peers) +
              (f", peak {statistics.median(row['peak']):.0f} GFLOP/s" if peak else "") +
              f", error {row['error']:.1e}", flush=True)
        return row


def module_version(name):
    from importlib import metadata
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


# ---- the page ----

def ms(x):
    return f"{x:.3f}" if x < 10 else f"{x:.1f}"


def ratio(row, peer):
    """Round by round, because the rounds' conditions differ: median, least and greatest."""
    r = [a / b for a, b in zip(row["ms"], row[peer])]
    return statistics.median(r), min(r), max(r)


def table(rows, peers):
    out = ["| model | input | threads | infc, ms |" + "".join(f" {p}, ms | infc / {p} (rounds) |" for p in peers),
           "|---|---|--:|--:|" + "--:|--:|" * len(peers)]
    for r in rows:
        line = f"| {r['name']} | {r['what']} | {r['threads']} | {ms(statistics.median(r['ms']))} |"
        for p in peers:
            mid, low, high = ratio(r, p)
            line += f" {ms(statistics.median(r[p]))} | {f'**{mid:.2f}**' if mid > 1 else f'{mid:.2f}'} ({low:.2f} to {high:.2f}) |"
        out.append(line)
    return "\n".join(out)


def product_table(rows, peers):
    out = ["| product | second matrix | threads | infc, GFLOP/s | of the FMA peak |" + "".join(f" {p} |" for p in peers) +
           " FMA peak, GFLOP/s |", "|---|---|--:|--:|--:|" + "--:|" * len(peers) + "--:|"]
    for r in rows:
        m, k, n, weight = r["dims"]
        rate = [2e-6 * m * k * n / x for x in r["ms"]]
        part = statistics.median(a / b for a, b in zip(rate, r["peak"]))
        out.append(f"| {m}x{k}x{n} | {'weight' if weight else 'input'} | {r['threads']} | {statistics.median(rate):.0f} | {part:.0%} |" +
                   "".join(f" {2e-6 * m * k * n / statistics.median(r[p]):.0f} |" for p in peers) +
                   f" {statistics.median(r['peak']):.0f} |")
    return "\n".join(out)


def best_ratio(row, peers):
    """Against whoever is fastest on this row, round by round."""
    return statistics.median(a / min(row[p][i] for p in peers) for i, a in enumerate(row["ms"]))


def losses(rows, peers):
    out = []
    if len(peers) > 1:
        r = [best_ratio(x, peers) for x in rows]
        out.append(f"Against the best of {' and '.join(peers)} in each row: the geometric mean is {statistics.geometric_mean(r):.2f}, the "
                   f"greatest ratio {max(r):.2f}; {sum(x <= 1 for x in r)} of {len(rows)} rows are at least as fast.\n")
    for p in peers:
        slow = sorted((r for r in rows if ratio(r, p)[0] > 1), key=lambda r: -ratio(r, p)[0])
        out.append(f"Against {p}: {len(rows) - len(slow)} of {len(rows)} rows are at least as fast, the geometric mean of "
                   f"infc / {p} is {statistics.geometric_mean([ratio(r, p)[0] for r in rows]):.2f}" +
                   ("; slower on:" if slow else "; slower on none."))
        if slow:
            out.append("\n" + "\n".join(f"- {r['name']}, {r['what']}, {r['threads']} thread{'s' * (r['threads'] > 1)}: "
                                        f"{ratio(r, p)[0]:.2f} times the time" for r in slow))
    return "\n".join(out)


def machine():
    fields = {}
    for line in open("/proc/cpuinfo", encoding="utf-8"):
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    flags = set(fields.get("flags", "").split())
    return (f"{fields.get('model name', platform.machine())}, {len(os.sched_getaffinity(0))} cores for this run; "
            f"features: {' '.join(f for f in FEATURES if f in flags)}")


def page(bench, rows, products, started):
    a, peers = bench.args, bench.peers
    version = subprocess.run([a.infc, "--version"], capture_output=True, text=True).stdout.split("\n")[0]
    how = (f"real-time priority (SCHED_FIFO {PRIORITY}) for whoever is being measured, so that other jobs do not count"
           if bench.real_time else "normal priority: real-time priority is not permitted here, so other jobs on this machine count")
    return f"""# Benchmarks

Written by `make bench` (tests/bench/run.py); do not edit. Times are of one inference in a warm process, batch and size as
stated; smaller is better, and so is a smaller ratio. **Bold** ratios are losses.

- Machine: {machine()}. Load average at the start: {started:.1f}.
- {version} (engine level {rows[0]['level'] if rows else products[0]['level']}); {'; '.join(f'{p} {module_version(PEERS[p][0])}, all its optimisations' for p in peers)}.
  f32 throughout; one engine per model for all its sizes (OpenVINO: compiled for each size).
- Each row: {a.rounds} rounds; in each, the engine (`bench --seconds={a.seconds}`) and then each peer (the same time, its own
  process) with the same inputs. Times are medians of the rounds' medians; the ratio is the median of the rounds' ratios, with the
  least and the greatest behind it.
- Scheduling: {how}.
- Before measuring, outputs are compared with the first peer's: the greatest difference of all rows is
  {max(r['error'] for r in rows + products):.1e} of the output's greatest value.

## Models

{table(rows, peers)}

{losses(rows, peers)}

## Matrix products

The FMA peak is what a loop of independent fused multiply-adds on registers reaches, compiled with `gcc -O3 -march=native`
and run in the same rounds, with as many threads; the part is the median of the rounds' parts.

{product_table(products, peers)}
"""


def main():
    if len(sys.argv) > 1 and sys.argv[1] == "--peer":
        name, model, folder, threads, real_time = sys.argv[2:]
        return peer_main(name, model, folder, int(threads), real_time == "1")
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("--infc", required=True)
    p.add_argument("--src", required=True)
    p.add_argument("--work", default="bench")
    p.add_argument("--page")
    p.add_argument("--only", default="")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=float, default=0.5)
    p.add_argument("--threads", default="1,2")
    a = p.parse_args()
    b, started = Bench(a), os.getloadavg()[0]
    only = [n for n in a.only.split(",") if n]
    threads = [int(t) for t in a.threads.split(",") if int(t) <= len(os.sched_getaffinity(0))]
    if not b.peers:
        sys.exit("bench: no peer is installed (./configure --install-deps makes an environment with onnxruntime)")
    rows, products = [], []
    for name, what, make in CASES:
        if only and name not in only:
            continue
        got = subprocess.run([a.src + "/models/fetch", name], capture_output=True, text=True)
        if got.returncode:
            print(f"{name}: left out: {got.stderr.strip()}", flush=True)
            continue
        rows += [b.case(name, what, got.stdout.strip(), make, t) for t in threads]
    if not only or "product" in only:
        (b.work / "peak.c").write_text(PEAK_C)
        subprocess.run(["gcc", "-O3", "-march=native", "-ffp-contract=fast", "-pthread", "-o", b.work / "peak", b.work / "peak.c"],
                       check=True)
        for dims in PRODUCTS:
            name = "product-" + "x".join(map(str, dims[:3])) + ("" if dims[3] else "-inputs")
            product_model(b.work / f"{name}.onnx", *dims)
            for t in threads:
                row = b.case(name, "f32", b.work / f"{name}.onnx", product_inputs(*dims), t, str((b.work / "peak").resolve()))
                products.append({**row, "dims": dims})
    if a.page and rows and products:
        pathlib.Path(a.page).write_text(page(b, rows, products, started), encoding="utf-8")
        print(f"wrote {a.page}")


if __name__ == "__main__":
    main()
