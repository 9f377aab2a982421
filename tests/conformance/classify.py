# SPDX-License-Identifier: Apache-2.0
"""Writes a first list for engine_suite: every node test with its tag, expected to pass.

usage: classify.py SUITE_FOLDER > list

`union`: all operators of the test (subgraphs included) occur in the real models listed in models/, and
nothing is left for later: strings, sequences, optionals, Loop and Scan, results whose size depends on the
data, 8-, 4- and 2-bit floats and 2-bit integers.
"""
import pathlib
import sys

import onnx

UNION = """Add Reshape Cast Transpose Unsqueeze Slice Shape Mul Concat Div Conv MatMul Squeeze Sub ConstantOfShape
Gather Sqrt Equal Pad Relu Sigmoid Constant ReduceMean Softmax Where Pow Identity Clip Max ReduceMax ReduceSum MaxPool
Expand Tanh Range Log LSTM DynamicQuantizeLinear Gemm MatMulInteger GreaterOrEqual Resize Less STFT Cos Sin
DequantizeLinear If BatchNormalization Erf And ConvInteger ConvTranspose Exp Floor LayerNormalization LeakyRelu Neg
Split ReduceSumSquare Flatten HardSigmoid Not Size Scaler GatherElements GlobalAveragePool ScatterElements ArgMax Atan
AveragePool CumSum DFT GatherND GlobalMaxPool Greater IsNaN Mod NonZero Reciprocal ReduceMin Round Scan ScatterND
TreeEnsembleClassifier LessOrEqual""".split()
LATER_OPS = {"Loop", "Scan", "NonZero"}
T = onnx.TensorProto
LATER_TYPES = {T.STRING, T.FLOAT8E4M3FN, T.FLOAT8E4M3FNUZ, T.FLOAT8E5M2, T.FLOAT8E5M2FNUZ, T.FLOAT4E2M1,
               getattr(T, "FLOAT8E8M0", -1), getattr(T, "INT2", -1), getattr(T, "UINT2", -1)}


def nodes(graph):
    for n in graph.node:
        yield n
        for a in n.attribute:
            if a.type == onnx.AttributeProto.GRAPH:
                yield from nodes(a.g)


def later(model):
    for v in list(model.graph.input) + list(model.graph.output):
        if not v.type.HasField("tensor_type") or v.type.tensor_type.elem_type in LATER_TYPES:
            return True
    for n in nodes(model.graph):
        if n.op_type in LATER_OPS:
            return True
        for a in n.attribute:
            if (n.op_type, a.name) == ("Cast", "to") and a.i in LATER_TYPES:
                return True
            if a.type == onnx.AttributeProto.TENSOR and a.t.data_type in LATER_TYPES:
                return True
    return False


def tag(model):
    ops = {n.op_type for n in nodes(model.graph)}
    for f in model.functions:
        ops |= {n.op_type for n in f.node}
    if not ops <= set(UNION):
        return "-"
    return "later" if later(model) else "union"


for folder in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    if (folder / "model.onnx").is_file():
        print(folder.name, tag(onnx.load(folder / "model.onnx", load_external_data=False)), "pass")
