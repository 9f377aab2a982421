#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Open Inference protocol by hand, JSON and binary. usage: v2.py ENGINE      (of v2.ir)"""
import json
import struct
import sys
import threading

from common import Server, run_all, test

S = Server(sys.argv[1], "--queue", "4", "--log", "v2-access.log", name="v2")
INFER = "/v2/models/tensors/infer"


def inputs(**changes):
    """x = [[1, 2, 3, 4]], i = [2^62 - 1, -5], b = [true, false], h = [0.5]"""
    rows = {"x": ("FP32", [1, 4], [1, 2, 3, 4]), "i": ("INT64", [2], [2**62 - 1, -5]), "b": ("BOOL", [2], [True, False]), "h": ("FP16", [1], [0.5])}
    rows.update(changes)
    return [{"name": n, "datatype": r[0], "shape": r[1], "data": r[2]} for n, r in rows.items() if r]


def refused(word, body):
    status, _, text = S.request("POST", INFER, body)
    e = json.loads(text)["error"]
    assert status == 400 and word in e["message"], (status, e)


@test
def v2_metadata():
    m = S.get("/v2/models/tensors")
    assert m["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}, {"name": "i", "datatype": "INT64", "shape": [-1]},
                           {"name": "b", "datatype": "BOOL", "shape": [2]}, {"name": "h", "datatype": "FP16", "shape": [-1]}], m
    assert [o["name"] for o in m["outputs"]] == ["y", "j", "c", "r"] and m["versions"] == ["1"]
    assert S.get("/v2/models/tensors/versions/1") == m
    assert S.get("/v2")["extensions"] == ["binary_tensor_data"]
    assert S.get("/v2/health/live")["live"] and S.get("/v2/health/ready")["ready"] and S.get("/v2/models/tensors/ready")["ready"]
    S.get("/v2/models/other", 404)
    S.get("/v2/models/tensorsx", 404)
    S.get("/v2/models/tensors/nothing", 404)
    assert S.request("POST", "/v1/completions", "{}")[0] == 404


@test
def v2_infer():
    r = S.post(INFER, {"id": "42", "inputs": inputs()})
    out = {o["name"]: o for o in r["outputs"]}
    assert r["id"] == "42" and r["model_name"] == "tensors" and [o["name"] for o in r["outputs"]] == ["y", "j", "c", "r"]
    assert out["y"] == {"name": "y", "datatype": "FP32", "shape": [1, 3], "data": [9, 10, 5]}
    assert out["j"]["data"] == [2**63 - 2, -10] and out["c"]["data"] == [False, True] and out["r"]["data"] == [1]
    nested = S.post(INFER, {"inputs": inputs(x=("FP32", [2, 4], [[1, 2, 3, 4], [0.25, 0, 0, 0]]), h=("FP16", [2], [1, 65504])),
                            "outputs": [{"name": "y"}]})
    assert nested["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [2, 3], "data": [9, 10, 5, 0.25, 0, 0.125]}]
    empty = S.post(INFER, {"inputs": inputs(i=("INT64", [0], [])), "outputs": [{"name": "j"}]})
    assert empty["outputs"][0]["shape"] == [0] and empty["outputs"][0]["data"] == []


@test
def v2_binary():
    raw = struct.pack("<4f", 1, 2, 3, 4) + struct.pack("<2q", 7, -5) + b"\1\0" + struct.pack("<e", 0.5)
    sizes = {"x": 16, "i": 16, "b": 2, "h": 2}
    head = json.dumps({"inputs": [{**{k: v for k, v in i.items() if k != "data"}, "parameters": {"binary_data_size": sizes[i["name"]]}} for i in inputs()],
                       "parameters": {"binary_data_output": True}, "outputs": [{"name": "y"}, {"name": "c", "parameters": {"binary_data": False}}, {"name": "j"}]}).encode()
    status, h, text = S.request("POST", INFER, head + raw, {"Inference-Header-Content-Length": str(len(head))})
    assert status == 200, text
    n = int(h["inference-header-content-length"])
    r, rest = json.loads(text[:n]), text[n:]
    assert [o["name"] for o in r["outputs"]] == ["y", "j", "c"]
    assert [o.get("parameters") for o in r["outputs"]] == [{"binary_data_size": 12}, {"binary_data_size": 16}, None]
    assert struct.unpack("<3f2q", rest) == (9, 10, 5, 14, -10) and r["outputs"][2]["data"] == [False, True]
    for cut in (head + raw[:-1], head + raw + b"x"):
        assert S.request("POST", INFER, cut, {"Inference-Header-Content-Length": str(len(head))})[0] == 400
    for length in ("x", "", "-1", "99999999", "18446744073709551617"):
        assert S.request("POST", INFER, head + raw, {"Inference-Header-Content-Length": length})[0] == 400, length


@test
def v2_refuses():
    refused("missing", {"inputs": inputs(x=None)})
    refused("has no input", {"inputs": inputs() + [{"name": "z", "datatype": "FP32", "shape": [1], "data": [1]}]})
    refused("twice", {"inputs": inputs() + inputs()[:1]})
    refused("FP32", {"inputs": inputs(x=("FP64", [1, 4], [1, 2, 3, 4]))})
    refused("shape", {"inputs": inputs(x=("FP32", [1, -4], [1, 2, 3, 4]))})
    refused("shape", {"inputs": inputs(x=("FP32", [2**40, 4], [1]))})
    refused("fewer", {"inputs": inputs(x=("FP32", [1, 4], [1, 2, 3]))})
    refused("fit", {"inputs": inputs(x=("FP32", [1, 4], [1, 2, 3, 4, 5]))})
    refused("fit", {"inputs": inputs(x=("FP32", [1, 4], ["1", 2, 3, 4]))})
    refused("fit", {"inputs": inputs(i=("INT64", [1], [1.5]))})
    refused("fit", {"inputs": inputs(b=("BOOL", [2], [2, 0]))})
    refused("fit", {"inputs": inputs(x=("FP32", [1, 4], json.loads("[" * 40 + "]" * 40)))})
    refused("x", {"inputs": inputs(x=("FP32", [1, 5], [1, 2, 3, 4, 5]))})
    refused("x", {"inputs": inputs(x=("FP32", [2, 4], [0] * 8))})  # h has another n
    refused("", {"inputs": inputs(x=("FP32", [10**6, 10**6], [1]))})
    refused("not one of", {"inputs": inputs(), "model": "x"})
    refused("output", {"inputs": inputs(), "outputs": [{"name": "z"}]})
    refused("classification", {"inputs": inputs(), "outputs": [{"name": "y", "parameters": {"classification": 1}}]})
    refused("list", {})
    refused("JSON", "x")
    big = S.post(INFER, {"inputs": inputs(x=("FP32", [1, 4], [3e38, 0, 0, 3e38]))}, 500)["error"]
    assert "binary_data" in big["message"], big


@test
def v2_many_at_once():
    got = []

    def one(i):
        status, _, text = S.request("POST", INFER, {"inputs": inputs(x=("FP32", [1, 4], [i, 0, 0, 0])), "outputs": [{"name": "y"}]})
        got.append((i, status, json.loads(text)))

    threads = [threading.Thread(target=one, args=(i,)) for i in range(40)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert {s for _, s, _ in got} <= {200, 429}
    for i, status, r in got:
        assert status == 429 or r["outputs"][0]["data"] == [i, 0, i / 2]
    m = S.metrics()
    assert m["infc_runs_total"] >= sum(1 for g in got if g[1] == 200) and m["infc_run_failures_total"] >= 2


@test
def v2_goodbye():
    assert S.stop() == 0
    assert len(open("v2-access.log").read().splitlines()) > 60


if __name__ == "__main__":
    code = run_all("")
    if S.process.poll() is None:
        S.process.kill()
    sys.exit(code)
