#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes every ONNX backend node test as files. usage: node_suite.py OUTDIR

The onnx package builds these tests in memory (numpy's generator is seeded for each), so the files
depend on the pinned versions of onnx, numpy, ml_dtypes and protobuf alone. Layout:

    OUTDIR/TEST/model.onnx
    OUTDIR/TEST/data.json                       {"rtol": ..., "atol": ...}
    OUTDIR/TEST/test_data_set_N/{input,output}_I.pb
"""

import json
import os
import sys
import warnings

import numpy as np
from onnx import TensorProto, numpy_helper
from onnx.backend.test.loader import load_model_tests


def encode(value, info):
    kind = info.type.WhichOneof("value")
    if kind == "map_type":
        proto = numpy_helper.from_dict(value, info.name)
    elif kind == "sequence_type":
        proto = numpy_helper.from_list(value, info.name)
    elif kind == "optional_type":
        proto = numpy_helper.from_optional(value, info.name)
    elif isinstance(value, TensorProto):
        proto = TensorProto()
        proto.CopyFrom(value)
        proto.name = info.name
    else:
        proto = numpy_helper.from_array(np.asarray(value), info.name)
    return proto.SerializeToString()


def write_case(folder, case):
    os.makedirs(folder)
    with open(os.path.join(folder, "model.onnx"), "wb") as f:
        f.write(case.model.SerializeToString(deterministic=True))
    with open(os.path.join(folder, "data.json"), "w", encoding="ascii") as f:
        json.dump({"rtol": case.rtol, "atol": case.atol}, f)
    graph = case.model.graph
    for i, (inputs, outputs) in enumerate(case.data_sets):
        data = os.path.join(folder, f"test_data_set_{i}")
        os.mkdir(data)
        for kind, values, infos in (("input", inputs, graph.input), ("output", outputs, graph.output)):
            if len(values) != len(infos):
                sys.exit(f"{case.name}: {len(values)} {kind} values for {len(infos)} {kind}s")
            for j, value in enumerate(values):
                with open(os.path.join(data, f"{kind}_{j}.pb"), "wb") as f:
                    f.write(encode(value, infos[j]))


def main(out):
    warnings.simplefilter("ignore")
    cases = sorted(load_model_tests(kind="node"), key=lambda case: case.name)
    for case in cases:
        write_case(os.path.join(out, case.name), case)
    print(f"{len(cases)} node tests")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
