#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Products by block-quantised weights on a GPU target's engines, in the stand-in for the driver, against float64 in numpy.

usage: blocks.py INFC FOLDER_OF_LIBCUDA ARCHITECTURE [FORMAT]

Every format is a line, ok or not ok: products of several shapes and row counts, whose bits must be those of a CPU's engine, and those
of the last row those that it has alone. Counted, not timed: tensor instructions, shared memory without bank conflicts."""
import os
import subprocess
import sys

import numpy as np

# name: group, nibbles, wide, min, zero, high (ir/blocks.h), as passes/quant.c describes the formats
FORMATS = {"q4_0": (32, 1, 0, 0, 8, 0), "q4_1": (32, 1, 0, 1, 0, 0), "q8_0": (32, 0, 0, 0, 0, 0), "q5_1": (32, 1, 0, 1, 0, 1), "q4_K": (32, 1, 1, 1, 0, 0),
           "q5_K": (32, 1, 1, 1, 0, 1), "q6_K": (16, 1, 1, 0, 32, 2), "q2_K": (16, 1, 1, 1, 0, 0), "q3_K": (16, 1, 1, 0, 4, 0), "b16": (16, 0, 1, 0, 0, 0),
           "g64": (64, 1, 0, 0, 8, 0), "b64": (64, 0, 0, 1, 0, 0), "g128": (128, 1, 1, 1, 0, 0)}
# K in groups, N: less than a stage, whole stages, a rest; less than a panel, whole panels, a rest
SHAPES = [(3, 24), (16, 96), (11, 70)]
ROWS = [1, 2, 8, 9, 16, 17, 33, 64, 65, 130]


def run(command, env):
    r = subprocess.run(command, env=env, capture_output=True, text=True)
    if r.returncode:
        raise RuntimeError(f"exit status {r.returncode} of {' '.join(command)}: {r.stderr.strip()[-600:]}")
    return r.stderr


def units_of(f):
    group, nibbles, wide, has_min, _, high = f
    return 32 * (2 if wide else 1) * (2 if has_min else 1) + (64 if high else 0) + group // (8 if nibbles else 4) * 64


def text_of(f):
    group, nibbles, wide, has_min, zero, high = f
    args, body, outs, names = [], [], [], []
    for i, (groups, n) in enumerate(SHAPES):
        args += [f"%w{i}: i16[t, {groups * group}]", f"%s{i}: f32[t, {groups}]", f"%d{i}: f32[t, 1]", f"%b{i}: u16[{-(-n // 32)}, {groups}, {units_of(f)}]",
                 f"%r{i}: f32[t, {n}]"]
        body.append(f"%p{i} = qmatmul_int %w{i}, %s{i}, %d{i}, %b{i} n={n} group={group} nibbles={nibbles} wide={wide} min={has_min} zero={zero} high={high} "
                    f"max=2032 : f32[t, {n}]\n%y{i} = add %p{i}, %r{i} : f32[t, {n}]\n")
        outs.append(f"y{i}: f32[t, {n}]")
        names.append(f"%y{i}")
    return f'model "m" {{ sym t in [1, 512]\nfunc @main({", ".join(args)}) -> ({", ".join(outs)}) {{\n{"".join(body)}return {", ".join(names)} }} }}\n'


def blocks(f, groups, n, r):
    """The stream, and the weights that it stands for: q, scale and minimum, [groups, group, N] and [groups, N]."""
    group, nibbles, wide, has_min, zero, high = f
    cols, step = -(-n // 32) * 32, 8 if nibbles else 4
    q = r.integers(0, 16 << high, (groups, group, cols)) if nibbles else r.integers(-128, 128, (groups, group, cols))
    scale = (r.standard_normal((groups, cols)) * 0.01).astype(np.float32 if wide else np.float16)
    least = (r.standard_normal((groups, cols)) * 0.02).astype(scale.dtype)
    out = np.zeros((cols // 32, groups, units_of(f)), np.uint16)
    for p in range(cols // 32):
        c = slice(p * 32, p * 32 + 32)
        at = 0
        for x in (scale, least)[:2 if has_min else 1]:
            bits = x[:, c].view(np.uint32 if wide else np.uint16).astype(np.uint64)
            out[p, :, at:at + 32] = bits & 0xffff
            if wide:
                out[p, :, at + 32:at + 64] = bits >> 16
            at += 64 if wide else 32
        if high:
            above = np.zeros((groups, 32, 2), np.uint16)
            for k in range(group):
                above[:, :, k % 2] |= (q[:, k, c] >> 4 << k // 2 * high).astype(np.uint16)
            out[p, :, at:at + 64] = above.reshape(groups, 64)
            at += 64
        rows = np.zeros((groups, group // step, 32, 2), np.uint16)
        for k in range(group):
            bits = (q[:, k, c] & 15) << k % step // 2 * 4 if nibbles else (q[:, k, c] & 255) << k % step // 2 * 8
            rows[:, k // step, :, k % 2] |= bits.astype(np.uint16)
        out[p, :, at:] = rows.reshape(groups, -1)
    return out, (q[:, :, :n] - zero).astype(np.float64), scale[:, :n].astype(np.float64), least[:, :n].astype(np.float64)


def make(f, t, r):
    inputs, want = {}, []
    for i, (groups, n) in enumerate(SHAPES):
        group, has_min = f[0], f[3]
        words = r.integers(-2032, 2033, (t, groups, group)).astype(np.int16)
        words[:, 0], words[0, -1] = 2032, -2032 # the greatest sums there are
        sums = words.astype(np.float64).sum(axis=2)
        step = (0.001 * (1 + r.random((t, 1)))).astype(np.float32)
        stream, q, scale, least = blocks(f, groups, n, np.random.default_rng(i))
        res = r.standard_normal((t, n)).astype(np.float32)
        y = (np.einsum("tgk,gkn->tgn", words.astype(np.float64), q) * scale).sum(axis=1)
        if has_min:
            y += sums @ least
        inputs.update({f"w{i}": words.reshape(t, -1), f"s{i}": sums.astype(np.float32), f"d{i}": step, f"b{i}": stream, f"r{i}": res})
        want.append(y * step + res)
    return inputs, want


def launch(inputs, env, device):
    args = []
    for name, x in inputs.items():
        np.save(f"in_{name}.npy", x)
        args += ["--input", f"{name}=in_{name}.npy"]
    for i in range(len(SHAPES)):
        args += ["--output", f"y{i}=y{i}.npy"]
    err = run(["./blocks", "run", f"--device={device}", *args], env)
    counts = [line.split() for line in err.splitlines() if line.startswith("launches")]
    return [np.load(f"y{i}.npy") for i in range(len(SHAPES))], {k: int(v) for c in counts for k, v in zip(c[::2], c[1::2])}


def same(a, b):
    return all(np.array_equal(x.view(np.uint32), y.view(np.uint32)) for x, y in zip(a, b))


def main():
    infc, fake, arch = sys.argv[1:4]
    env = {**os.environ, "INFC_FAKE_CC": arch, "INFC_FAKE_COUNTERS": "1", "LD_LIBRARY_PATH": fake}
    failed = 0
    for name, f in FORMATS.items():
        if len(sys.argv) > 4 and sys.argv[4] != name:
            continue
        with open("blocks.ir", "w") as out:
            out.write(text_of(f))
        bad, worst = [], 0.0
        run([infc, "build", "blocks.ir", f"--target=sm{arch},x86-64-v3", "-o", "blocks"], os.environ)
        for t in ROWS:
            inputs, want = make(f, t, np.random.default_rng(t))
            try:
                got, counts = launch(inputs, env, "cuda")
                cpu, _ = launch(inputs, env, "cpu")
                alone, _ = launch({k: x if k[0] == "b" else x[-1:] for k, x in inputs.items()}, env, "cuda")
            except RuntimeError as e:
                bad.append(f"{t} rows: {e}")
                continue
            e = max(np.abs(g - w).max() / np.abs(w).max() for g, w in zip(got, want))
            worst = max(worst, e)
            if not e <= 2e-6:
                bad.append(f"{t} rows differ by {e}")
            if not same(got, cpu):
                bad.append(f"{t} rows: not the bits of the CPU")
            if not same([x[-1:] for x in got], alone):
                bad.append(f"{t} rows: the last row depends on the others")
            # a fragment of 16 rows by 8 columns takes an instruction for 16 of K
            mma = sum(-(-t // 16) * -(-n // 32) * 4 * (groups * f[0] // 16) for groups, n in SHAPES)
            if counts["mma"] != mma:
                bad.append(f"{t} rows: {counts['mma']} tensor instructions, not {mma}")
            if counts["phases"] != counts["wavefronts"]:
                bad.append(f"{t} rows: bank conflicts, {counts['wavefronts']} wavefronts in {counts['phases']} phases")
        failed += bool(bad)
        print(f"not ok blocks-{name}-sm{arch}: {'; '.join(bad)}" if bad else
              f"ok blocks-{name}-sm{arch} # {len(ROWS) * len(SHAPES)} shapes, greatest difference {worst:.1e}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
