#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Engines with a wrong scale in a deep layer: a selftest must find each, and where it is, however coarse the model's roundings are.

usage: mutants.py model FILE                     a random llama of 12 layers, with weights in blocks
       mutants.py damage ENGINE NAME FACTOR OUT  the engine with the scales of a tensor's first rows, or a norm's weights, times FACTOR
"""
import pathlib
import struct
import sys

import make_model  # beside this file
from make_model import tiny

LAYERS, WIDTH = 12, 64


def deep():
    tiny.CONTEXT = 512
    tiny.VOCAB = make_model.add_tokenizer(tiny.Model("count", "llama"))
    m = tiny.begin("deep", "llama", layers=LAYERS, heads=4, kv=2, width=WIDTH, ff=2 * WIDTH)
    m.key("rope.dimension_count", tiny.U32, m.head)
    tiny.embed(m, True, kind="q8_0")
    for il in range(LAYERS):
        tiny.norms(m, il)
        tiny.attention(m, il, kinds=("q4_1", "q4_1", "q4_1", "q4_1"))
        tiny.ffn(m, il, kinds=("q4_1", "q4_1", "q4_1"))
    make_model.add_tokenizer(m)
    return m


def damage(engine, name, factor, out):
    data = bytearray(pathlib.Path(engine).read_bytes())
    (dims, number, raw), = [t[1:] for t in deep().tensors if t[0] == name]
    if number == 0:  # f32: as it is
        kind, old = "f", raw
    else:  # the scales of 32 rows, one behind another (ir/blocks.h)
        kind, size = "e", dims[1] // 32 * 20
        old = b"".join(raw[row * size:row * size + 2] for row in range(32))
    values = struct.unpack(f"<{len(old) // struct.calcsize(kind)}{kind}", old)
    new = struct.pack(f"<{len(values)}{kind}", *(v * factor for v in values))
    at = data.find(old)
    if at < 0 or data.find(old, at + 1) >= 0:
        sys.exit(f"{name}: its scales are not there once")
    data[at:at + len(new)] = new
    pathlib.Path(out).write_bytes(data)
    pathlib.Path(out).chmod(0o755)


if __name__ == "__main__":
    if sys.argv[1:2] == ["model"] and len(sys.argv) == 3:
        pathlib.Path(sys.argv[2]).write_bytes(deep().bytes())
    elif sys.argv[1:2] == ["damage"] and len(sys.argv) == 6:
        damage(sys.argv[2], sys.argv[3], float(sys.argv[4]), sys.argv[5])
    else:
        sys.exit(__doc__)
