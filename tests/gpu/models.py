# SPDX-License-Identifier: Apache-2.0
"""Small models for the suite `gpu`. usage: models.py cnn OUT | conv OUT | matmul OUT K N1 N2 | cut-minilm MODEL LAYERS OUT"""
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def save(model, path):
    onnx.checker.check_model(model)
    onnx.save(model, path)


def cnn(path):
    """Convolutions with strides and padding, pools, a gate, a classifier; the batch stays open."""
    rng = np.random.default_rng(7)

    def constant(name, *shape):
        scale = np.sqrt(max(1, np.prod(shape[1:])))
        return numpy_helper.from_array((rng.standard_normal(shape) / scale).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["a"], name="/conv1", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], name="/relu1"),
        helper.make_node("MaxPool", ["b"], ["c"], name="/pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["c", "w2", "b2"], ["d"], name="/conv2", kernel_shape=[3, 3], pads=[1, 1, 1, 1],
                         strides=[2, 2]),
        helper.make_node("Sigmoid", ["d"], ["e"], name="/gate"),
        helper.make_node("Mul", ["d", "e"], ["f"], name="/mul"),
        helper.make_node("GlobalAveragePool", ["f"], ["g"], name="/mean"),
        helper.make_node("Flatten", ["g"], ["h"], name="/flat"),
        helper.make_node("Gemm", ["h", "w3", "b3"], ["i"], name="/classify", transB=1),
        helper.make_node("Softmax", ["i"], ["y"], name="/softmax", axis=-1),
    ]
    graph = helper.make_graph(
        nodes, "cnn",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 20, 20])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 10])],
        [constant("w1", 16, 3, 3, 3), constant("b1", 16), constant("w2", 24, 16, 3, 3), constant("b2", 24),
         constant("w3", 10, 24), constant("b3", 10)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    save(model, path)


def matmul(path, k, n1, n2):
    """Two matmuls by weights with a bias, a relu and a residual between and behind them; batch and length stay open."""
    rng = np.random.default_rng(3)

    def constant(name, *shape):
        return numpy_helper.from_array((rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32), name)

    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"], name="/mm1"),
        helper.make_node("Add", ["a", "b1"], ["b"], name="/bias"),
        helper.make_node("Relu", ["b"], ["c"], name="/relu"),
        helper.make_node("MatMul", ["c", "w2"], ["d"], name="/mm2"),
        helper.make_node("Add", ["d", "r"], ["y"], name="/residual"),
    ]
    shape = ["batch", "seq"]
    graph = helper.make_graph(
        nodes, "matmul",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape + [k]),
         helper.make_tensor_value_info("r", TensorProto.FLOAT, shape + [n2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape + [n2])],
        [constant("w1", k, n1), constant("b1", n1), constant("w2", n1, n2)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    save(model, path)


def conv(path):
    """A block of a residual network, and a dilated convolution whose channels fill no whole step of 64 bytes."""
    random = np.random.default_rng(1)

    def constant(name, *dims):
        return numpy_helper.from_array((random.standard_normal(dims) / np.sqrt(np.prod(dims[1:]))).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["a"], pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w2"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2], kernel_shape=[3, 3]),
        helper.make_node("Conv", ["b", "w3"], ["d"], strides=[2, 2], kernel_shape=[1, 1]),
        helper.make_node("Add", ["c", "d"], ["e"]),
        helper.make_node("Relu", ["e"], ["f"]),
        helper.make_node("Conv", ["f", "w4", "b4"], ["y"], pads=[2, 4, 2, 4], dilations=[2, 2], kernel_shape=[3, 5]),
    ]
    graph = helper.make_graph(
        nodes, "conv",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 32, "h", "w"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 24, "oh", "ow"])],
        [constant("w1", 80, 32, 3, 3), constant("b1", 80), constant("w2", 72, 80, 3, 3), constant("w3", 72, 80, 1, 1),
         constant("w4", 24, 72, 3, 5), constant("b4", 24)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    save(model, path)


def cut_minilm(source, layers, path):
    """MiniLM up to the output of its encoder layer number LAYERS."""
    model = onnx.load(source)
    weights = f"encoder.layer.{layers - 1}.output.LayerNorm.weight"
    last = next(n for n in model.graph.node if weights in n.input)
    needed, producers = set(), {o: n for n in model.graph.node for o in n.output}
    stack = [last.output[0]]
    while stack:
        node = producers.get(stack.pop())
        if node is None or id(node) in needed:
            continue
        needed.add(id(node))
        stack.extend(node.input)
    nodes = [n for n in model.graph.node if id(n) in needed]
    used = {i for n in nodes for i in n.input}
    output = helper.make_tensor_value_info(last.output[0], TensorProto.FLOAT, ["batch", "seq", 384])
    graph = helper.make_graph(nodes, "minilm-cut", [i for i in model.graph.input if i.name in used], [output],
                              [t for t in model.graph.initializer if t.name in used])
    cut = helper.make_model(graph, opset_imports=model.opset_import)
    cut.ir_version = model.ir_version
    onnx.save(cut, path)


if __name__ == "__main__":
    if sys.argv[1] == "cnn":
        cnn(sys.argv[2])
    elif sys.argv[1] == "conv":
        conv(sys.argv[2])
    elif sys.argv[1] == "matmul":
        matmul(sys.argv[2], *map(int, sys.argv[3:6]))
    else:
        cut_minilm(sys.argv[2], int(sys.argv[3]), sys.argv[4])
