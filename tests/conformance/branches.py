# SPDX-License-Identifier: Apache-2.0
"""Which branches of a model's Ifs are there, and which does ONNX Runtime take?

A copy of the model gets an Identity of a known name behind the first output of every branch; the profile of a session
names what ran.
"""
import json
import os
import pathlib

import onnx
import onnxruntime as ort

MARK = "branch taken: "


def _mark(graph, found, prefix=""):
    for i, node in enumerate(graph.node):
        for a in node.attribute:
            if node.op_type != "If" or a.type != onnx.AttributeProto.GRAPH:
                continue
            name = f"{prefix}{node.name or f'If {i}'}.{a.name.removesuffix('_branch')}"
            found.append(name)
            _mark(a.g, found, name + " > ")
            out = a.g.output[0]
            a.g.node.append(onnx.helper.make_node("Identity", [out.name], [out.name + MARK], name=MARK + name))
            out.name += MARK


class Branches:
    """names: all branches. run(inputs) adds to `taken`."""

    def __init__(self, path, work):
        model = onnx.load(str(path))
        self.names, self.taken, self.work = [], set(), pathlib.Path(work)
        _mark(model.graph, self.names)
        self.model = model.SerializeToString() if self.names else None

    def run(self, inputs):
        if not self.names:
            return
        o = ort.SessionOptions()
        o.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        o.enable_profiling, o.log_severity_level = True, 4
        o.profile_file_prefix = str(self.work / "profile")
        session = ort.InferenceSession(self.model, o, ["CPUExecutionProvider"])
        session.run(None, inputs)
        path = session.end_profiling()
        for event in json.loads(pathlib.Path(path).read_text()):
            name = event.get("name", "")
            if MARK in name:
                self.taken.add(name.split(MARK)[1].removesuffix("_kernel_time"))
        os.unlink(path)

    def left(self):
        """Branches not taken; what lies inside one of them is counted with it."""
        left = [n for n in self.names if n not in self.taken]
        outer = [n for n in left if not any(n.startswith(o + " > ") for o in left)]
        inside = {o: sum(n.startswith(o + " > ") for n in left) for o in outer}
        return [o + (f" (and {inside[o]} inside)" if inside[o] else "") for o in outer]
