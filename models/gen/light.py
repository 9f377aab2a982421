#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gives one of the onnx wheel's `light` networks real weights. usage: light.py OUTDIR NAME

The wheel ships nine classic image networks (onnx/backend/test/data/light/light_NAME.onnx) whose
every weight is ConstantOfShape(0.02). Their output is then a constant vector, which a badly wrong
compiler gets right too. Here each weight becomes an initialiser with seeded values: He-scaled for
convolutions and matrices, batch norm statistics near one. Activations then keep their size through
the network and every logit differs. A final softmax saturates, so its input is made an output too.
"""

import os
import sys

import numpy as np
import onnx
from onnx import helper, numpy_helper


def first_real_use(graph, value):
    """(op type, operand index) of the node that `value` feeds, looking through Unsqueeze."""
    while True:
        for node in graph.node:
            if value in node.input:
                break
        else:
            return "", 0
        if node.op_type != "Unsqueeze":
            return node.op_type, list(node.input).index(value)
        value = node.output[0]


def weight(rng, shape, op, operand):
    if op in ("Conv", "Gemm") and operand == 1:
        fan_in = max(1, int(np.prod(shape[1:])))
        return rng.standard_normal(shape) * np.sqrt(2 / fan_in)
    if op == "BatchNormalization":  # operands: x, scale, bias, mean, variance
        if operand == 1:
            return rng.uniform(0.5, 1.0, shape)
        if operand == 4:
            return rng.uniform(0.5, 1.5, shape)
        return rng.standard_normal(shape) * 0.1
    if op == "Mul":
        return rng.uniform(0.5, 1.0, shape)
    return rng.standard_normal(shape) * 0.1


def main(out, name):
    data = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data", "light")
    model = onnx.load(os.path.join(data, f"light_{name}.onnx"))
    graph = model.graph
    rng = np.random.default_rng(1)
    shapes = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    nodes, weights = [], []
    for node in graph.node:
        if node.op_type != "ConstantOfShape":
            nodes.append(node)
            continue
        shape = [int(d) for d in shapes[node.input[0]]]
        value = weight(rng, shape, *first_real_use(graph, node.output[0]))
        weights.append(numpy_helper.from_array(value.astype(np.float32), node.output[0]))

    used = {i for node in nodes for i in node.input}
    initializers = [i for i in list(graph.initializer) + weights if i.name in used]
    constant = set(shapes) | {i.name for i in initializers}
    inputs = [i for i in graph.input if i.name not in constant]
    for field, values in ((graph.node, nodes), (graph.initializer, initializers),
                          (graph.input, inputs)):
        values = list(values)
        del field[:]
        field.extend(values)
    model.ir_version = 4  # from here on initialisers need not be inputs

    if graph.node[-1].op_type == "Softmax":
        dims = [d.dim_value for d in graph.output[0].type.tensor_type.shape.dim]
        logits = graph.node[-1].input[0]
        graph.output.append(helper.make_tensor_value_info(logits, onnx.TensorProto.FLOAT, dims))
    with open(os.path.join(out, "model.onnx"), "wb") as f:
        f.write(model.SerializeToString(deterministic=True))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
