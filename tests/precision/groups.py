#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--prec=int4, int4-g64, int4-g128 and w8a16 against the format computed here. usage: groups.py model OUT.ir X.npy | compare PREC Y.npy

The model: y = (x w) and z = (x v^T), x: f32[n, 256] with columns of very different size. Weights are rounded to the nearest step of their
group along K, activations to f16, products and sums are those of f64 here and of f32 in the engine.
  int4:   step d = (greatest - least) / 15, q = (w - least) / d rounded, w' = f16(d) q + f16(least)
  w8a16:  d = greatest magnitude / 127, q = w / d rounded (halves away from zero), w' = f16(d) q
"""
import math
import random
import struct
import sys

N, K, W, V = 5, 256, 24, 7
GROUP = {"int4": 32, "int4-g64": 64, "int4-g128": 128, "w8a16": 32}


def f32(v):
    return struct.unpack("<f", struct.pack("<f", v))[0]


def f16(v):
    return struct.unpack("<e", struct.pack("<e", v))[0]


def data():
    r = random.Random(5)
    w = [[f32(r.gauss(0.01, 0.06) * (20 if r.random() < 0.01 else 1)) for _ in range(W)] for _ in range(K)]
    v = [[f32(r.gauss(-0.02, 0.06)) for _ in range(K)] for _ in range(V)]
    x = [[f32(r.gauss(0, 1) * 2 ** (k % 7 - 3)) for k in range(K)] for _ in range(N)]
    return w, v, x


def write_npy(path, rows):
    head = "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }" % (len(rows), len(rows[0]))
    head += " " * (-(len(head) + 11) % 64) + "\n"
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
        for row in rows:
            f.write(struct.pack(f"<{len(row)}f", *row))


def read_npy(path):
    raw = open(path, "rb").read()
    body = raw[10 + struct.unpack("<H", raw[8:10])[0]:]
    v = struct.unpack(f"<{len(body) // 4}f", body)
    return [v[i:i + W + V] for i in range(0, len(v), W + V)]


def rounded(column, prec):
    """A column of K weights as the format keeps it; f32 arithmetic, as it is written in a file."""
    out = []
    for at in range(0, K, GROUP[prec]):
        g = column[at:at + GROUP[prec]]
        if prec == "w8a16":
            d = f32(max(abs(v) for v in g) / 127)
            q = [math.floor(abs(f32(v * f32(1 / d))) + 0.5) * (1 if v > 0 else -1) for v in g]
            out += [f32(f16(d) * i) for i in q]
        else:
            d = f32(f32(max(g) - min(g)) / 15)
            q = [min(15, int(f32(f32(f32(v - min(g)) * f32(1 / d)) + 0.5))) for v in g]
            out += [f32(f32(f16(d) * i) + f16(min(g))) for i in q]
    return out


def model(path, inputs):
    w, v, x = data()

    def text(rows):
        return ", ".join(repr(a) for row in rows for a in row)
    with open(path, "w") as f:
        f.write(f'''model "m" {{
  sym n in [1, 100]
  const @w: f32[{K}, {W}] = [{text(w)}]
  const @v: f32[{V}, {K}] = [{text(v)}]
  func @main(%x as "x": f32[n, {K}]) -> (y: f32[n, {W + V}]) {{
    %0 = constant value=@w
    %1 = matmul %x, %0
    %2 = constant value=@v
    %3 = matmul %x, %2 trans_b=1
    %4 = concat %1, %3 axis=1
    return %4
  }}
}}
''')
    write_npy(inputs, x)


def compare(prec, path):
    w, v, x = data()
    columns = [rounded([w[k][j] for k in range(K)], prec) for j in range(W)] + [rounded(row, prec) for row in v]
    plain = [[w[k][j] for k in range(K)] for j in range(W)] + v
    got = read_npy(path)
    worst = loss = 0
    for i in range(N):
        for j, c in enumerate(columns):
            # Sums of 256 f32 products, each rounded: less than 256 halves of the last bit of the sum of magnitudes.
            size = sum(abs(f16(a) * b) for a, b in zip(x[i], c))
            worst = max(worst, abs(got[i][j] - sum(f16(a) * b for a, b in zip(x[i], c))) / (size * 2 ** -24 * K))
            loss = max(loss, abs(got[i][j] - sum(a * b for a, b in zip(x[i], plain[j]))) / size)
    print(f"{prec}: {worst:.3f} of the bound, loss of the format {loss:.5f}")
    # What the format loses says that it was used at all.
    return worst <= 1 and loss > (1e-4 if prec == "w8a16" else 2e-3)


if sys.argv[1] == "model":
    model(sys.argv[2], sys.argv[3])
else:
    sys.exit(not compare(sys.argv[2], sys.argv[3]))
