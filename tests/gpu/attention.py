#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attention over pages on a GPU target's engines, in the stand-in for the driver, against float64 in numpy.

usage: attention.py INFC FOLDER_OF_LIBCUDA ARCHITECTURE CACHE [SHAPE]

CACHE: f16, bf16, f8, i8, u4. Every batch of every shape is a line, ok or not ok. Slots that no row may see hold NaN; the last row of a
batch must be the same bits when it is alone."""
import os
import subprocess
import sys

import numpy as np

# query heads, kv heads, d, dv, page, window, softcap
# the last one: more query heads a kv head than half a tile has rows
SHAPES = [(8, 2, 64, 64, 32, 0, 0.0), (3, 1, 96, 32, 16, 37, 2.0), (11, 1, 32, 32, 16, 0, 3.0)]
# (rows, first position) of each sequence: prompts, single rows, prompts that begin late, both; ends of pages and chunks
BATCHES = [[(1, 0)], [(1, 31)], [(1, 32), (1, 300)], [(3, 0)], [(16, 0)], [(17, 5)], [(33, 0), (1, 70)], [(5, 250), (12, 3)],
           [(1, 255), (1, 256), (1, -1), (2, 9)], [(21, 240)], [(64, 0)], [(4, 2)] * 5]


def run(command, env):
    r = subprocess.run(command, env=env, capture_output=True, text=True)
    if r.returncode:
        raise RuntimeError(f"exit status {r.returncode} of {' '.join(command)}: {r.stderr.strip()[-600:]}")
    return r.stderr


def text_of(shape, cache):
    h, g, d, dv, page, window, cap = shape
    kind = "f32" if cache in ("bf16", "f8") else "u8" if cache == "u4" else cache
    width = {"u4": 2}.get(cache, 1)
    extra, args, casts, k, v = "", "", "", "%k", "%v"
    if cache in ("i8", "u4"):
        extra = f", %ks: f16[pages, {page}, {g}, {d // 32}], %vs: f16[pages, {page}, {g}, {dv // 32}]"
        args = ", %ks, %vs"
    if kind == "f32":
        to = "bf16" if cache == "bf16" else "f8e4m3fn"
        casts = (f"%kb = cast %k to={to} : {to}[pages, {page}, {g}, {d}]\n%vb = cast %v to={to} : {to}[pages, {page}, {g}, {dv}]\n")
        k, v = "%kb", "%vb"
    attrs = f"scale=0.2 {f'window={window} ' if window else ''}{f'softcap={cap} ' if cap else ''}"
    return f"""model "m" {{ sym n in [1, 512] sym pages in [1, 512] sym seqs in [1, 64] sym width in [1, 512]
func @main(%q: f32[n, {h}, {d}], %k: {kind}[pages, {page}, {g}, {d // width}], %v: {kind}[pages, {page}, {g}, {dv // width}], %p: i32[n], %s: i32[n],
  %t: i32[seqs, width]{extra}) -> (y: f32[n, {h}, {dv}]) {{
{casts}%y = paged_attention %q, {k}, {v}, %p, %s, %t{args} {attrs} return %y }} }}
"""


def bf16(x):
    u = x.astype(np.float32).view(np.uint32)
    return ((u + 0x7fff + (u >> 16 & 1)) & 0xffff0000).view(np.float32)


def e4m3(x):
    """The nearest of the format's numbers: 3 bits behind the first, 2^-9 apart at least, 448 at most."""
    step = 2.0 ** np.maximum(np.floor(np.log2(np.maximum(np.abs(x), 1e-30))) - 3, -9)
    return np.clip(np.rint(x / step) * step, -448, 448)


def make(shape, batch, cache, r):
    """The inputs, and K and V of each sequence in float64."""
    h, g, d, dv, page, _, _ = shape
    pos = np.concatenate([np.arange(n) + first for n, first in batch]).astype(np.int32)
    seq = np.concatenate([np.full(n, i) for i, (n, _) in enumerate(batch)]).astype(np.int32)
    lengths = [n + first for n, first in batch]
    need = [-(-n // page) for n in lengths]
    order, table = r.permutation(sum(need) + 1), np.zeros((len(batch), 24), np.int32)
    states = {}
    for name, width in (("k", d), ("v", dv)):
        full = (len(order), page, g, width)
        if cache in ("i8", "u4"):
            states[name] = np.full(full, -127, np.int8) if cache == "i8" else np.full(full[:3] + (width // 2,), 0xf0, np.uint8)
            states[name + "s"] = np.full(full[:3] + (width // 32,), np.nan, np.float16)
        else:
            states[name] = np.full(full, np.nan, np.float16 if cache == "f16" else np.float32)
    seen, at = [], 0
    for i, n in enumerate(lengths):
        table[i, :need[i]] = order[at:at + need[i]]
        at += need[i]
        slots = np.arange(max(n, 0))
        where = (table[i, slots // page], slots % page)
        rows = []
        for name, width in (("k", d), ("v", dv)):
            x = r.standard_normal((len(slots), g, width))
            if cache == "i8":
                s = np.abs(r.standard_normal((len(slots), g, width // 32)) * 0.02).astype(np.float16)
                q = np.clip(np.rint(x * 40), -127, 127).astype(np.int8)
                states[name][where], states[name + "s"][where] = q, s
                x = q.astype(np.float64) * np.repeat(s.astype(np.float64), 32, axis=2)
            elif cache == "u4": # the first half of a block's 32 elements in the low halves of its bytes
                s = np.abs(r.standard_normal((len(slots), g, width // 32)) * 0.2).astype(np.float16)
                q = np.clip(np.rint(x * 4), -8, 7).astype(np.int8)
                halves = (q + 8).astype(np.uint8).reshape(len(slots), g, width // 32, 2, 16)
                states[name][where] = (halves[..., 0, :] | halves[..., 1, :] << 4).reshape(len(slots), g, width // 2)
                states[name + "s"][where] = s
                x = q.astype(np.float64) * np.repeat(s.astype(np.float64), 32, axis=2)
            else:
                x = bf16(x) if cache == "bf16" else e4m3(x) if cache == "f8" else x.astype(np.float16)
                states[name][where] = x
            rows.append(x.astype(np.float64))
        seen.append(rows)
    q = (r.standard_normal((len(pos), h, d)) * 2).astype(np.float32)
    return {"q": q, "p": pos, "s": seq, "t": table, **states}, seen


def reference(shape, inputs, seen):
    h, g, _, dv, _, window, cap = shape
    out = np.zeros((len(inputs["p"]), h, dv))
    for t, (p, s) in enumerate(zip(inputs["p"], inputs["s"])):
        lo = max(0, p - window + 1) if window else 0
        if p < 0:
            continue
        for head in range(h):
            k, v = (x[lo:p + 1, head // (h // g)] for x in seen[s])
            x = k @ inputs["q"][t, head].astype(np.float64) * 0.2
            if cap:
                x = cap * np.tanh(x / cap)
            w = np.exp(x - x.max())
            out[t, head] = (w / w.sum()) @ v
    return out


def launch(engine, inputs, env, out):
    args = []
    for name, x in inputs.items():
        np.save(f"in_{name}.npy", x)
        args += ["--input", f"{name}=in_{name}.npy"]
    err = run([engine, "run", *args, "--output", f"y={out}"], env)
    counts = next(line for line in err.splitlines() if line.startswith("launches")).split()
    return np.load(out), {counts[i]: counts[i + 1] for i in range(0, len(counts) - 1, 2)}, counts


def main():
    infc, fake, arch, cache = sys.argv[1:5]
    env = {**os.environ, "INFC_FAKE_CC": arch, "INFC_FAKE_COUNTERS": "1", "LD_LIBRARY_PATH": fake}
    failed = 0
    for i, shape in enumerate(SHAPES):
        if len(sys.argv) > 5 and int(sys.argv[5]) != i:
            continue
        name = f"attention-{cache}-sm{arch}-{i}"
        with open("attention.ir", "w") as f:
            f.write(text_of(shape, cache))
        run([infc, "build", "attention.ir", f"--target=sm{arch}", "-o", "attention"], os.environ)
        bad, worst, conflicts = [], 0.0, False
        batches = BATCHES if i < 2 else BATCHES[1::3]
        for b, batch in enumerate(batches):
            inputs, seen = make(shape, batch, cache, np.random.default_rng(b))
            try:
                got, _, counts = launch("./attention", inputs, env, "y.npy")
                one = {k: x[-1:] if k in "qps" else x for k, x in inputs.items()}
                alone, _, _ = launch("./attention", one, env, "y1.npy")
            except RuntimeError as e:
                bad.append(f"batch {b}: {e}")
                continue
            e = np.abs(got - reference(shape, inputs, seen)).max()
            worst = max(worst, e)
            conflicts |= counts[7] != counts[9] and shape[2] % 64 == 0
            if not e <= 1e-5:
                bad.append(f"batch {b} differs by {e}")
            if not np.array_equal(alone.view(np.uint32), got[-1:].view(np.uint32)):
                bad.append(f"batch {b}: the last row depends on the batch")
        if conflicts:
            bad.append("bank conflicts in shared memory")
        failed += bool(bad)
        print(f"not ok {name}: {'; '.join(bad)}" if bad else f"ok {name} # {len(batches)} batches, greatest difference {worst:.1e}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
