#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the all-MiniLM-L6-v2 encoder as ONNX. usage: minilm.py OUTDIR WEIGHTS

WEIGHTS is a folder with model.safetensors and config.json. The result, OUTDIR/model.onnx, is f32,
opset 17, standard operators only, with symbolic `batch` and `sequence`; pooling is the caller's.
"""

import json
import math
import os
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def read_safetensors(path):
    """name -> array. The format: u64 header length, JSON header, raw little-endian data."""
    with open(path, "rb") as f:
        size = int.from_bytes(f.read(8), "little")
        header = json.loads(f.read(size))
        data = f.read()
    tensors = {}
    for name, t in header.items():
        if name == "__metadata__":
            continue
        dtype = {"F32": np.float32, "I64": np.int64}[t["dtype"]]
        begin, end = t["data_offsets"]
        tensors[name] = np.frombuffer(data[begin:end], dtype).reshape(t["shape"])
    return tensors


class Builder:
    """Collects nodes and constants; every method returns the name of the value it made."""

    def __init__(self, weights):
        self.weights, self.nodes, self.constants, self.count = weights, [], [], 0

    def constant(self, array, name=None):
        self.count += 1
        name = name or f"c{self.count}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def ints(self, *values):
        return self.constant(np.array(values, np.int64))

    def scalar(self, value):
        return self.constant(np.float32(value))

    def weight(self, name):
        return self.constant(self.weights[name], name)

    def op(self, kind, *inputs, out=None, **attributes):
        self.count += 1
        out = out or f"{kind}_{self.count}"
        self.nodes.append(helper.make_node(kind, inputs, [out], name=f"n{self.count}", **attributes))
        return out

    def linear(self, x, prefix):
        w = self.constant(self.weights[prefix + ".weight"].T, prefix + ".weight")
        return self.op("Add", self.op("MatMul", x, w), self.weight(prefix + ".bias"))

    def layer_norm(self, x, prefix, epsilon):
        return self.op("LayerNormalization", x, self.weight(prefix + ".weight"),
                       self.weight(prefix + ".bias"), axis=-1, epsilon=epsilon)


def embeddings(b, epsilon):
    sequence = b.op("Slice", b.op("Shape", "input_ids"), b.ints(1), b.ints(2))
    position = b.op("Slice", b.weight("embeddings.position_embeddings.weight"), b.ints(0), sequence)
    word = b.op("Gather", b.weight("embeddings.word_embeddings.weight"), "input_ids")
    kind = b.op("Gather", b.weight("embeddings.token_type_embeddings.weight"), "token_type_ids")
    x = b.op("Add", b.op("Add", word, kind), position)
    return b.layer_norm(x, "embeddings.LayerNorm", epsilon)


def attention_mask(b):
    keep = b.op("Cast", b.op("Unsqueeze", "attention_mask", b.ints(1, 2)), to=TensorProto.FLOAT)
    return b.op("Mul", b.op("Sub", b.scalar(1), keep), b.scalar(-1e9))


def layer(b, x, mask, index, width, heads, epsilon):
    depth = width // heads
    prefix = f"encoder.layer.{index}."
    attention = prefix + "attention."

    def split_heads(t):
        return b.op("Transpose", b.op("Reshape", t, b.ints(0, 0, heads, depth)), perm=[0, 2, 1, 3])

    q, k, v = (split_heads(b.linear(x, attention + "self." + s)) for s in ("query", "key", "value"))
    scores = b.op("MatMul", q, b.op("Transpose", k, perm=[0, 1, 3, 2]))
    scores = b.op("Add", b.op("Div", scores, b.scalar(math.sqrt(depth))), mask)
    mixed = b.op("MatMul", b.op("Softmax", scores, axis=-1), v)
    mixed = b.op("Reshape", b.op("Transpose", mixed, perm=[0, 2, 1, 3]), b.ints(0, 0, width))
    x = b.op("Add", b.linear(mixed, attention + "output.dense"), x)
    x = b.layer_norm(x, attention + "output.LayerNorm", epsilon)

    hidden = b.linear(x, prefix + "intermediate.dense")
    erf = b.op("Erf", b.op("Div", hidden, b.scalar(math.sqrt(2))))
    gelu = b.op("Mul", b.op("Mul", hidden, b.op("Add", erf, b.scalar(1))), b.scalar(0.5))
    x = b.op("Add", b.linear(gelu, prefix + "output.dense"), x)
    return b.layer_norm(x, prefix + "output.LayerNorm", epsilon)


def main(out, weights):
    with open(os.path.join(weights, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    width, epsilon = config["hidden_size"], config["layer_norm_eps"]
    b = Builder(read_safetensors(os.path.join(weights, "model.safetensors")))
    x = embeddings(b, epsilon)
    mask = attention_mask(b)
    for i in range(config["num_hidden_layers"]):
        x = layer(b, x, mask, i, width, config["num_attention_heads"], epsilon)
    b.op("Identity", x, out="last_hidden_state")

    def info(name, dtype, shape):
        return helper.make_tensor_value_info(name, dtype, shape)

    inputs = [info(n, TensorProto.INT64, ["batch", "sequence"])
              for n in ("input_ids", "attention_mask", "token_type_ids")]
    outputs = [info("last_hidden_state", TensorProto.FLOAT, ["batch", "sequence", width])]
    graph = helper.make_graph(b.nodes, "minilm", inputs, outputs, b.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8,
                              producer_name="infc models/gen/minilm.py")
    onnx.checker.check_model(model)
    with open(os.path.join(out, "model.onnx"), "wb") as f:
        f.write(model.SerializeToString(deterministic=True))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
