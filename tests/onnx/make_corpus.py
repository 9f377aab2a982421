# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of tests/fuzz/corpus/onnx: small models that reach every part of the importer."""
import sys

import numpy as np
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

OUT = sys.argv[1]


def model(name, nodes, inputs, outputs, inits=(), opset=18, functions=(), extra=(), ir=8):
    g = h.make_graph(nodes, "g", inputs, outputs, list(inits))
    opsets = [h.make_opsetid("", opset)] + [h.make_opsetid(d, v) for d, v in extra]
    m = h.make_model(g, opset_imports=opsets, functions=list(functions), ir_version=ir)
    with open(f"{OUT}/{name}", "wb") as f:
        f.write(m.SerializeToString())


def vi(name, t, shape):
    return h.make_tensor_value_info(name, t, shape)


def const(name, array):
    return numpy_helper.from_array(np.asarray(array), name)


F, I, B = T.FLOAT, T.INT64, T.BOOL
n = h.make_node

model("shapes", [
    n("Shape", ["x"], ["s"]), n("Gather", ["s", "zero"], ["b"], axis=0), n("Unsqueeze", ["b", "zero1"], ["b1"]),
    n("Concat", ["b1", "minus"], ["t"], axis=0), n("Reshape", ["x", "t"], ["y"]),
    n("Slice", ["y", "zero1", "minus", "one1"], ["z"]), n("Expand", ["z", "s2"], ["w"]),
    n("Cast", ["s"], ["sf"], to=F), n("Mul", ["sf", "half"], ["sh"]), n("Floor", ["sh"], ["fl"]),
    n("Cast", ["fl"], ["si"], to=I), n("ConstantOfShape", ["si"], ["c"], value=const("v", np.array([2.5], np.float32))),
    n("Range", ["zero", "b", "one"], ["r"]), n("Tile", ["x", "s2"], ["tl"])],
    [vi("x", F, ["n", 6])], [vi("w", F, None), vi("c", F, None), vi("r", I, None), vi("tl", F, None)],
    [const("zero", np.int64(0)), const("one", np.int64(1)), const("zero1", np.array([0])), const("one1", np.array([1])),
     const("minus", np.array([-1])), const("half", np.float32(0.5)), const("s2", np.array([2, 1]))])

then = h.make_graph([n("Add", ["x", "k"], ["p"])], "t", [], [vi("p", F, None)], [const("k", np.float32([1, 2, 3]))])
inner = h.make_graph([n("Neg", ["x"], ["q2"])], "i", [], [vi("q2", F, None)])
inner2 = h.make_graph([n("Identity", ["x"], ["q3"])], "i2", [], [vi("q3", F, None)])
other = h.make_graph([n("If", ["d"], ["q"], then_branch=inner, else_branch=inner2)], "e", [], [vi("q", F, None)])
model("if", [n("If", ["c"], ["y"], then_branch=then, else_branch=other)],
      [vi("x", F, [2, 3]), vi("c", B, []), vi("d", B, [1])], [vi("y", F, None)])

squeeze = h.make_graph([n("Squeeze", ["x", "a"], ["p"])], "t", [], [vi("p", F, None)])
ident = h.make_graph([n("Identity", ["x"], ["q"])], "e", [], [vi("q", F, None)])
model("if_shape", [n("Shape", ["x"], ["s"]), n("Gather", ["s", "one"], ["d"]), n("Equal", ["d", "one"], ["c"]),
                   n("If", ["c"], ["y"], then_branch=squeeze, else_branch=ident)],
      [vi("x", F, ["n", "m"])], [vi("y", F, None)], [const("one", np.int64(1)), const("a", np.array([1]))])

fn = h.make_function("local", "F", ["a", "b"], ["c"], [n("Mul", ["a", "b"], ["t"]), n("LeakyRelu", ["t"], ["c"])],
                     [h.make_opsetid("", 18)], ["alpha"])
ref = fn.node[1].attribute.add()
ref.name, ref.ref_attr_name, ref.type = "alpha", "alpha", 1
model("function", [n("F", ["x", "x"], ["y"], domain="local", alpha=0.25)], [vi("x", F, ["n"])], [vi("y", F, None)],
      functions=[fn], extra=[("local", 1)])

model("conv", [n("Conv", ["x", "w", "b"], ["c"], auto_pad="SAME_UPPER", strides=[2, 2]), n("Relu", ["c"], ["r"]),
               n("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], ceil_mode=1), n("GlobalAveragePool", ["p"], ["g"]),
               n("Flatten", ["g"], ["f"]), n("Gemm", ["f", "m"], ["y"], transB=1), n("Softmax", ["y"], ["z"])],
      [vi("x", F, ["n", 2, "h", "h"])], [vi("z", F, None)],
      [const("w", np.ones((3, 2, 3, 3), np.float32)), const("b", np.zeros(3, np.float32)), const("m", np.ones((4, 3), np.float32))])

model("old", [n("Add", ["x", "w"], ["y"]), n("Pad", ["y"], ["p"], pads=[0, 1, 0, 1]), n("Slice", ["p"], ["s"], starts=[0], ends=[2], axes=[1]),
              n("Softmax", ["s"], ["z"])], [vi("x", F, [2, 3]), vi("w", F, [3])], [vi("z", F, None)],
      [const("w", np.float32([1, 2, 3]))], opset=9, ir=3)

typed = [h.make_tensor("f", F, [2], [1.0, 2.0]), h.make_tensor("h", T.FLOAT16, [2], [1.0, 2.0]), h.make_tensor("i", T.INT32, [2], [1, -2]),
         h.make_tensor("d", T.DOUBLE, [2], [1.0, 2.0]), h.make_tensor("u", T.UINT64, [2], [1, 2]), h.make_tensor("q", T.INT4, [3], [1, -2, 3])]
model("typed", [n("Cast", [t.name], ["o" + t.name], to=F) for t in typed], [], [vi("o" + t.name, F, None) for t in typed], typed, opset=21)

model("default", [n("Mul", ["x", "k"], ["y"])], [vi("x", F, ["n", 2]), vi("k", F, [2])], [vi("y", F, None)], [const("k", np.float32([2, 3]))])

model("rnn", [n("LSTM", ["x", "w", "r"], ["y", "h"], hidden_size=2, direction="bidirectional", activations=["Sigmoid", "Tanh", "Tanh"] * 2)],
      [vi("x", F, ["t", 1, 3])], [vi("y", F, None), vi("h", F, None)],
      [const("w", np.ones((2, 8, 3), np.float32)), const("r", np.ones((2, 8, 2), np.float32))])

model("quant", [n("QuantizeLinear", ["x", "s", "z"], ["q"]), n("DequantizeLinear", ["q", "s", "z"], ["y"]), n("DynamicQuantizeLinear", ["x"], ["a", "b", "c"]),
                n("MatMulInteger", ["a", "w", "c"], ["m"])], [vi("x", F, [2, 3])], [vi("y", F, None), vi("m", T.INT32, None)],
      [const("s", np.float32(0.1)), const("z", np.uint8(3)), const("w", np.ones((3, 2), np.int8))])

model("einsum", [n("Einsum", ["x", "y"], ["z"], equation="...ij,...jk->...ik"), n("ReduceSum", ["z", "a"], ["r"], keepdims=0),
                 n("TopK", ["r", "k"], ["v", "i"]), n("CumSum", ["v", "zero"], ["c"])],
      [vi("x", F, ["n", 2, 3]), vi("y", F, [1, 3, 4]), vi("a", I, [1])], [vi("c", F, None), vi("i", I, None)],
      [const("k", np.array([1])), const("zero", np.int64(0))])

model("resize", [n("Resize", ["x", "", "s"], ["y"], mode="linear"), n("Resize", ["x", "", "", "z"], ["w"], mode="nearest")],
      [vi("x", F, [1, 1, "h", 4])], [vi("y", F, None), vi("w", F, None)],
      [const("s", np.float32([1, 1, 2, 0.5])), const("z", np.array([1, 1, 3, 7]))])

tree = h.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1, nodes_falsenodeids=[2, 0, 0], nodes_featureids=[0, 0, 0],
                   nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"], nodes_nodeids=[0, 1, 2], nodes_treeids=[0, 0, 0], nodes_truenodeids=[1, 0, 0],
                   nodes_values=[0.5, 0.0, 0.0], target_ids=[0, 0], target_nodeids=[1, 2], target_treeids=[0, 0], target_weights=[1.0, 2.0])
model("tree", [tree], [vi("x", F, ["n", 2])], [vi("y", F, None)], extra=[("ai.onnx.ml", 3)])
