# SPDX-License-Identifier: Apache-2.0
"""The same model in double precision, for a third opinion where two f32 answers differ. Weights keep their f32 (or smaller)
values; only arithmetic changes.
"""
import copy

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper


def _tensor(t):
    if t.data_type == TensorProto.FLOAT:
        wide = numpy_helper.from_array(numpy_helper.to_array(t).astype(np.float64), t.name)
        t.Clear()
        t.CopyFrom(wide)


def _value(v):
    t = v.type.tensor_type
    if t.elem_type == TensorProto.FLOAT:
        t.elem_type = TensorProto.DOUBLE


def _constant(node):
    """A Constant of a plain number or list, or a ConstantOfShape with its default, is f32 by definition."""
    for a in list(node.attribute):
        if a.name in ("value_float", "value_floats"):
            x = np.array(a.f if a.name == "value_float" else list(a.floats), np.float64)
            node.attribute.remove(a)
            node.attribute.append(onnx.helper.make_attribute("value", numpy_helper.from_array(x)))
    if node.op_type == "ConstantOfShape" and not node.attribute:
        node.attribute.append(onnx.helper.make_attribute("value", numpy_helper.from_array(np.zeros(1))))


def _graph(g):
    for t in g.initializer:
        _tensor(t)
    for v in [*g.input, *g.output, *g.value_info]:
        _value(v)
    for node in g.node:
        if node.op_type in ("Constant", "ConstantOfShape"):
            _constant(node)
        for a in node.attribute:
            if a.type == onnx.AttributeProto.TENSOR:
                _tensor(a.t)
            elif a.type == onnx.AttributeProto.GRAPH:
                _graph(a.g)
            elif node.op_type == "Cast" and a.name == "to" and a.i == TensorProto.FLOAT:
                a.i = TensorProto.DOUBLE


def to_f64(model):
    """A copy of `model` (a ModelProto) with double in place of float."""
    if model.functions:
        raise ValueError("models with functions of their own are not converted")
    m = copy.deepcopy(model)
    _graph(m.graph)
    return m


