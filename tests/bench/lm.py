# SPDX-License-Identifier: Apache-2.0
"""Language model engines against llama.cpp on this machine, in one run, interleaved.

usage: lm.py --infc=PATH --src=FOLDER --peer=FOLDER [--work=FOLDER] [--page=FILE] [--only=NAME,..] [--rounds=5]
             [--threads=1,2] [--model=NAME=FILE]...

--peer holds llama-bench, llama-completion, llama-batched-bench and llama-quantize of a native release build. In each round
the engine, the peer and a loop that reads a buffer of the same size run one after the other, at real-time priority where
the system permits that. The buffer holds as many bytes as a generated token reads (the weights of the file without its
metadata, and the keys and values of the middle of the run), so that the share of its rate is the share of what the machine gives.
A figure is the median of the rounds, a ratio the median of the rounds' ratios.
"""
import argparse
import json
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import run as bench  # machine(), priority

READ_C = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
typedef uint64_t v8 __attribute__((vector_size(64), aligned(64)));
static char *buf;
static size_t n_bytes;
static int n_threads, rounds;
static volatile uint64_t sink;
static pthread_barrier_t gate;
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static void *work(void *arg)
{
    size_t i = (size_t)(intptr_t)arg, each = n_bytes / (size_t)n_threads / 512 * 512;
    const char *from = buf + i * each;
    v8 a = {0}, b = a, c = a, d = a;
    for (int r = 0; r < rounds; r++) {
        pthread_barrier_wait(&gate);
        for (size_t k = 0; k < each; k += 256) {
            const v8 *p = (const v8 *)(from + k);
            __builtin_prefetch(from + k + 8192), __builtin_prefetch(from + k + 8256);
            __builtin_prefetch(from + k + 8320), __builtin_prefetch(from + k + 8384);
            a ^= p[0], b ^= p[1], c ^= p[2], d ^= p[3];
        }
    }
    a ^= b ^ c ^ d;
    sink = a[0];
    return NULL;
}
/* read BYTES THREADS ROUNDS: GB/s over ordinary pages, then over huge pages. */
int main(int argc, char **argv)
{
    if (argc < 4) return 2;
    n_bytes = strtoull(argv[1], NULL, 10), n_threads = atoi(argv[2]), rounds = atoi(argv[3]);
    for (int huge = 0; huge < 2; huge++) {
        pthread_t t[64];
        size_t room = n_bytes + (8u << 20);
        buf = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (buf == MAP_FAILED) return 1;
        buf = (char *)(((uintptr_t)buf + (2u << 20) - 1) & ~(uintptr_t)((2u << 20) - 1));
        madvise(buf, n_bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
        for (size_t k = 0; k < n_bytes; k += 64) buf[k] = (char)k;
        int measured = rounds;
        rounds = 2; /* warm */
        double best = 0;
        for (int pass = 0; pass < 2; pass++) {
            pthread_barrier_init(&gate, NULL, (unsigned)n_threads);
            double start = now();
            for (int i = 1; i < n_threads; i++) pthread_create(&t[i], NULL, work, (void *)(intptr_t)i);
            work((void *)0);
            for (int i = 1; i < n_threads; i++) pthread_join(t[i], NULL);
            best = (double)n_bytes * rounds / (now() - start) * 1e-9;
            rounds = measured;
        }
        printf("%.3f ", best);
        munmap(buf, n_bytes);
    }
    printf("\n");
    return 0;
}
"""

PROMPT = "The capital of France is a city that many people would"


def gguf_bytes(path):
    """Bytes of a GGUF file's tensors: the file without header, metadata and names."""
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
    with open(path, "rb") as f:
        def number(fmt="<Q"):
            return struct.unpack(fmt, f.read(struct.calcsize(fmt)))[0]

        def skip(kind):
            if kind == 8:
                f.seek(number(), 1)
            elif kind == 9:
                kind, n = number("<I"), number()
                if kind in sizes:
                    f.seek(sizes[kind] * n, 1)
                else:
                    for _ in range(n):
                        skip(kind)
            else:
                f.seek(sizes[kind], 1)

        f.seek(8)
        tensors, pairs = number(), number()
        for _ in range(pairs):
            skip(8)
            skip(number("<I"))
        for _ in range(tensors):
            skip(8)
            f.seek(8 * number("<I") + 4 + 8, 1)
        return os.path.getsize(path) - (f.tell() + 31) // 32 * 32


class Bench:
    def __init__(self, args):
        self.a, self.work, self.peer = args, pathlib.Path(args.work), pathlib.Path(args.peer)
        self.work.mkdir(parents=True, exist_ok=True)
        self.real_time = not subprocess.run(["chrt", "-f", str(bench.PRIORITY), "true"], stderr=subprocess.DEVNULL).returncode
        self.first = ["chrt", "-f", str(bench.PRIORITY)] if self.real_time else []
        (self.work / "read.c").write_text(READ_C)
        subprocess.run(["gcc", "-O3", "-march=native", "-pthread", "-o", self.work / "read", self.work / "read.c"], check=True)

    def out(self, *words, error=subprocess.DEVNULL):
        words = [str(w) for w in words]
        if self.a.lock:  # one who measures at a time, where several share a machine
            words = ["flock", self.a.lock, *words]
        return subprocess.run(words, check=True, stdout=subprocess.PIPE, stderr=error, text=True).stdout

    def engine(self, name, model):
        e = self.work / f"{name}.engine"
        t = time.perf_counter()
        subprocess.run([self.a.infc, "build", str(model), "-o", str(e), *self.a.build.split()], check=True, stdout=subprocess.DEVNULL)
        return e, time.perf_counter() - t

    def ours(self, e, threads, *words):
        return json.loads(self.out(*self.first, e, "bench", "--json", f"--threads={threads}", "--repeat=1", *words))

    def llama(self, model, threads, *words):
        text = self.out(*self.first, self.peer / "llama-bench", "-m", model, "-t", threads, "-r", 1, "-o", "jsonl", *words)
        return json.loads(text.strip().split("\n")[-1])["avg_ts"]

    def read(self, n_bytes, threads):
        return [float(x) for x in self.out(*self.first, self.work / "read", int(n_bytes), threads, max(4, int(4e9 / n_bytes))).split()]

    def decode(self, e, model, weights, threads, context, n):
        """Tokens a second after `context` tokens, of both; GB/s of the loop over the bytes that a token reads."""
        row = {"infc": [], "peer": [], "read4k": [], "readhuge": []}
        for _ in range(self.a.rounds):
            r = self.ours(e, threads, f"--prompt-tokens={max(context, 1)}", f"--predict={n}")
            row["infc"].append(r["decode_tok_s"])
            row["peer"].append(self.llama(model, threads, "-p", 0, "-n", n, "-d", context))
            row["bytes"] = weights + r["kv_bytes_a_token"] * (context + n / 2)
            small, huge = self.read(row["bytes"], threads)
            row["read4k"].append(small)
            row["readhuge"].append(huge)
            row["level"] = r["level"]
        return row

    def prefill(self, e, model, threads, n):
        row = {"infc": [], "peer": []}
        for _ in range(self.a.rounds):
            row["infc"].append(self.ours(e, threads, f"--prompt-tokens={n}", "--predict=1")["prefill_tok_s"])
            row["peer"].append(self.llama(model, threads, "-p", n, "-n", 0))
        return row

    def batch(self, e, model, threads, n):
        row = {"infc": [], "peer": []}
        for _ in range(self.a.rounds):
            row["infc"].append(self.ours(e, threads, f"--batch={n}", "--prompt-tokens=32", "--predict=64")["decode_tok_s"])
            text = self.out(*self.first, self.peer / "llama-batched-bench", "-m", model, "-t", threads, "-tb", threads, "-c",
                            n * 128, "-npp", 32, "-ntg", 64, "-npl", n, "--output-format", "jsonl")
            row["peer"].append([json.loads(x) for x in text.split("\n") if x.startswith("{")][-1]["speed_tg"])
        return row

    def start(self, e, model, threads):
        row = {"infc": [], "peer": []}
        for _ in range(self.a.rounds + 2):
            t = time.perf_counter()
            self.out(*self.first, e, "generate", "-p", PROMPT, "--predict=1", "--temp=0", f"--threads={threads}")
            mid = time.perf_counter()
            self.out(*self.first, self.peer / "llama-completion", "-m", model, "-t", threads, "-c", 1024, "-no-cnv", "--temp", 0,
                     "-p", PROMPT, "-n", 1, "--no-warmup")
            row["infc"].append(1e3 * (mid - t))
            row["peer"].append(1e3 * (time.perf_counter() - mid))
        return {k: v[2:] for k, v in row.items()}


def mid(x):
    return statistics.median(x)


def ratio(row):
    return mid([a / b for a, b in zip(row["infc"], row["peer"])])


def rate_table(rows, what):
    out = [f"| model | {what} | threads | infc, tok/s | llama.cpp, tok/s | infc / llama.cpp |", "|---|---|--:|--:|--:|--:|"]
    for r in rows:
        x = ratio(r)
        out.append(f"| {r['name']} | {r['what']} | {r['threads']} | {mid(r['infc']):.1f} | {mid(r['peer']):.1f} | "
                   f"{f'**{x:.2f}**' if x < 1 else f'{x:.2f}'} |")
    return "\n".join(out)


def decode_table(rows):
    out = ["| model | tokens before | threads | infc, tok/s | llama.cpp, tok/s | infc / llama.cpp | MB a token | infc, GB/s | read, GB/s | "
           "share | of huge pages | llama.cpp's share |", "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"]
    for r in rows:
        x = ratio(r)
        gb = [t * r["bytes"] * 1e-9 for t in r["infc"]]
        share = mid([a / b for a, b in zip(gb, r["read4k"])])
        huge = mid([a / b for a, b in zip(gb, r["readhuge"])])
        peer = mid([t * r["bytes"] * 1e-9 / b for t, b in zip(r["peer"], r["read4k"])])
        out.append(f"| {r['name']} | {r['what']} | {r['threads']} | {mid(r['infc']):.1f} | {mid(r['peer']):.1f} | "
                   f"{f'**{x:.2f}**' if x < 1 else f'{x:.2f}'} | {r['bytes'] * 1e-6:.0f} | {mid(gb):.1f} | {mid(r['read4k']):.1f} | "
                   f"{share:.0%} | {huge:.0%} | {peer:.0%} |")
    return "\n".join(out)


def start_table(rows):
    out = ["| model | threads | infc, ms | llama.cpp, ms | llama.cpp / infc |", "|---|--:|--:|--:|--:|"]
    for r in rows:
        out.append(f"| {r['name']} | {r['threads']} | {mid(r['infc']):.0f} | {mid(r['peer']):.0f} | {1 / ratio(r):.1f} |")
    return "\n".join(out)


def page(b, rows, builds, level, started):
    version = subprocess.run([b.a.infc, "--version"], capture_output=True, text=True).stdout.split("\n")[0]
    peer = subprocess.run([b.peer / "llama-bench", "--version"], capture_output=True, text=True)
    peer = next((x for x in (peer.stderr + peer.stdout).split("\n") if "version" in x), "llama.cpp")
    how = f"real-time priority (SCHED_FIFO {bench.PRIORITY})" if b.real_time else "normal priority, so other jobs on this machine count"
    losses = [f"- {k} of {r['name']} ({r['what']}), {r['threads']} thread{'s' * (r['threads'] > 1)}: {ratio(r):.2f} of llama.cpp's rate"
              for k in ("decode", "prefill", "batch") for r in rows[k] if ratio(r) < 1]
    flags = f" with `{b.a.build}`" if b.a.build else " with default flags"
    return f"""# Benchmarks of language models

Written by `make bench-lm LLAMA_CPP_BIN=FOLDER` (tests/bench/lm.py); do not edit. Rates are tokens a second of one warm process;
**bold** ratios are losses.

- Machine: {bench.machine()}. Load average at the start: {started:.1f}.
- {version}, engines built{flags} ({', '.join(f'{n} in {s:.1f} s' for n, s in builds.items())}), running at level {level}.
- Peer: {peer.strip()}, native release build, all weights in memory that it may repack.
- {b.a.rounds} rounds; in each, engine, peer and the reading loop one after the other; medians. Scheduling: {how}.
- KV cache f16 on both sides. The peer's flash attention and batch sizes are its defaults.

## Decoding

`infc, GB/s` is tok/s times the bytes a token reads: the tensors of the file and the keys and values at the middle of the run.
`read` is a loop that reads a buffer of that size with as many threads, on 4 KiB pages; `of huge pages` is the share of the same loop's
rate on 2 MiB pages, which is the right one where the file system keeps an engine that was just written in large folios (ext4 since
Linux 6.16; `FilePmdMapped` in smaps tells).

{decode_table(rows['decode'])}

## Prefill

{rate_table(rows['prefill'], 'prompt')}

## Several sequences at once

{rate_table(rows['batch'], 'sequences')}

## Process start to the first token

Wall time of the whole command, a prompt of ten tokens or so, page cache warm (`generate -n 1`, `llama-completion -n 1 --no-warmup`).

{start_table(rows['start'])}

## Slower than the peer

{chr(10).join(losses) if losses else 'Nothing above.'}
"""


def models(b):
    """Name, file: the recipe's model, what llama-quantize makes of it, gemma if it was fetched (its licence has terms), and files
    given on the command line."""
    got = subprocess.run([b.a.src + "/models/fetch", "smollm2-gguf"], capture_output=True, text=True)
    if got.returncode:
        sys.exit(f"bench: {got.stderr.strip()}")
    q4_1 = pathlib.Path(got.stdout.strip())
    yield "SmolLM2-135M Q4_1", q4_1
    for kind in ("Q8_0", "Q4_0"):
        to = b.work / f"smollm2-{kind}.gguf"
        if not to.exists():
            subprocess.run([b.peer / "llama-quantize", "--allow-requantize", q4_1, to, kind, "2"], check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        yield f"SmolLM2-135M {kind}", to
    gemma = subprocess.run([b.a.src + "/models/fetch", "--offline", "gemma3-270m"], capture_output=True, text=True)
    if gemma.returncode == 0:
        yield "gemma-3-270m Q4_K_M", pathlib.Path(gemma.stdout.strip())
    for m in b.a.model:
        name, _, path = m.partition("=")
        yield name, pathlib.Path(path)


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("--infc", required=True)
    p.add_argument("--src", required=True)
    p.add_argument("--peer", required=True)
    p.add_argument("--work", default="bench-lm")
    p.add_argument("--page")
    p.add_argument("--only", default="")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", default="1,2")
    p.add_argument("--model", action="append", default=[])
    p.add_argument("--build", default="")
    p.add_argument("--lock", default="")
    a = p.parse_args()
    b, started = Bench(a), os.getloadavg()[0]
    threads = [int(t) for t in a.threads.split(",") if int(t) <= len(os.sched_getaffinity(0))]
    only = [n for n in a.only.split(",") if n]
    rows, builds, level = {"decode": [], "prefill": [], "batch": [], "start": []}, {}, "?"
    for i, (name, path) in enumerate(models(b)):
        if only and not any(n in name for n in only):
            continue
        e, builds[name] = b.engine(f"m{i}", path)
        weights = gguf_bytes(path)

        def add(kind, what, t, row):
            row.update(name=name, what=what, threads=t)
            rows[kind].append(row)
            print(f"{kind} {name} {what} x{t}: infc {mid(row['infc']):.1f}, llama.cpp {mid(row['peer']):.1f}, ratio {ratio(row):.2f}", flush=True)

        for t in threads:
            add("decode", "0", t, b.decode(e, path, weights, t, 0, 128))
            level = rows["decode"][-1]["level"]
            add("prefill", "512", t, b.prefill(e, path, t, 512))
        if i == 0:
            add("decode", "4096", threads[-1], b.decode(e, path, weights, threads[-1], 4096, 32))
            for n in (4, 16):
                add("batch", str(n), threads[-1], b.batch(e, path, threads[-1], n))
        add("start", "", threads[-1], b.start(e, path, threads[-1]))
        if a.page:  # after each model: a long run that is cut off leaves what it has
            pathlib.Path(a.page).write_text(page(b, rows, builds, level, started), encoding="utf-8")
            print(f"wrote {a.page}", flush=True)


if __name__ == "__main__":
    main()
