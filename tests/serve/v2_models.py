#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Open Inference protocol on engines of real models, JSON and binary, against `ENGINE run` on the same tensors.

usage: v2_models.py ENGINE...        engines of ONNX models, built with --serve

Inputs are made from the metadata that the server itself gives: open dims are 3, then 16 (sequences), floats are normal, integers 0 or 1.
A JSON number has 9 digits or more, so that both forms must have the bits of `run`. Needs numpy.
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

from common import Server

TYPES = {"FP32": np.float32, "FP64": np.float64, "FP16": np.float16, "INT64": np.int64, "INT32": np.int32, "INT8": np.int8, "UINT8": np.uint8, "BOOL": np.bool_}


def make(meta, sizes, r):
    out = {}
    for i in meta["inputs"]:
        dims = [sizes[k] if d < 0 else d for k, d in enumerate(i["shape"])]
        dtype = TYPES[i["datatype"]]
        out[i["name"]] = (r.standard_normal(dims) if np.issubdtype(dtype, np.floating) else r.integers(0, 2, dims)).astype(dtype)
    return out


def ran(engine, meta, tensors, folder):
    """{output: array} of `ENGINE run`"""
    args = [engine, "run"]
    for k, (name, x) in enumerate(tensors.items()):
        np.save(f"{folder}/in{k}.npy", x)
        args += ["--input", f"{name}={folder}/in{k}.npy"]
    for k, o in enumerate(meta["outputs"]):
        args += ["--output", f"{o['name']}={folder}/out{k}.npy"]
    subprocess.run(args, check=True, stdout=subprocess.DEVNULL)
    return {o["name"]: np.load(f"{folder}/out{k}.npy") for k, o in enumerate(meta["outputs"])}


def by_json(s, url, types, tensors):
    body = {"inputs": [{"name": n, "datatype": types[n], "shape": list(x.shape), "data": x.ravel().tolist()} for n, x in tensors.items()]}
    r = s.post(url, body)
    return {o["name"]: np.array(o["data"], TYPES[o["datatype"]]).reshape(o["shape"]) for o in r["outputs"]}


def by_bytes(s, url, types, tensors):
    head = json.dumps({"inputs": [{"name": n, "datatype": types[n], "shape": list(x.shape), "parameters": {"binary_data_size": x.nbytes}}
                                  for n, x in tensors.items()], "parameters": {"binary_data_output": True}}).encode()
    status, h, text = s.request("POST", url, head + b"".join(x.tobytes() for x in tensors.values()), {"Inference-Header-Content-Length": str(len(head))})
    assert status == 200, text[:500]
    at = int(h["inference-header-content-length"])
    out = {}
    for o in json.loads(text[:at])["outputs"]:
        n = o["parameters"]["binary_data_size"]
        out[o["name"]] = np.frombuffer(text[at:at + n], TYPES[o["datatype"]]).reshape(o["shape"])
        at += n
    assert at == len(text)
    return out


def main():
    r = np.random.default_rng(1)
    bad = 0
    for engine in map(os.path.abspath, sys.argv[1:]):
        with tempfile.TemporaryDirectory() as folder:
            s = Server(engine, "--model-name", "m", name=folder + "/server")
            name = "m"
            meta = s.get(f"/v2/models/{name}")
            types = {i["name"]: i["datatype"] for i in meta["inputs"]}
            assert s.get("/v2/health/ready")["ready"] and s.get(f"/v2/models/{name}/ready")["ready"]
            checks = 0
            for sizes in ([3, 16, 16, 16], [1, 7, 7, 7]):
                tensors = make(meta, sizes, r)
                want = ran(engine, meta, tensors, folder)
                for how in (by_json, by_bytes):
                    got = how(s, f"/v2/models/{name}/infer", types, tensors)
                    same = set(got) == set(want) and all(got[o].dtype == want[o].dtype and got[o].shape == want[o].shape and
                                                         np.array_equal(got[o], want[o]) for o in want)
                    bad += not same
                    checks += 1
                    if not same:
                        print(f"not ok {os.path.basename(engine)} {how.__name__} {sizes}")
            wrong = next(iter(types))
            assert s.request("POST", f"/v2/models/{name}/infer", {"inputs": [{"name": wrong, "datatype": types[wrong], "shape": [0, 0, 0, 0, 0], "data": []}]})[0] == 400
            assert s.stop() == 0
            print(f"{os.path.basename(engine)}: {checks} requests, {'all have the bits of run' if not bad else 'differ'}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main()
