#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Receipts of answers, and the answers again from them: receipts.py ENGINE OTHER_ENGINE"""
import json
import os
import struct
import subprocess
import sys

from common import Server, run_all, test

ENGINE, OTHER = (os.path.abspath(x) for x in sys.argv[1:3])
MASK = (1 << 64) - 1
P1, P2, P3, P4, P5 = 11400714785074694791, 14029467366897019727, 1609587929392839161, 9650029242287828579, 2870177450012600261


def rotate(x, n):
    return (x << n | x >> 64 - n) & MASK


def xxh64_12(data):
    """XXH64 of 12 bytes, after the specification."""
    a, b = struct.unpack("<QI", data)
    h = P5 + 12
    h ^= rotate(a * P2 & MASK, 31) * P1 & MASK
    h = (rotate(h, 27) * P1 + P4) & MASK
    h ^= b * P1 & MASK
    h = (rotate(h, 23) * P2 + P3) & MASK
    for shift, prime in ((33, P2), (29, P3), (32, 1)):
        h = (h ^ h >> shift) * prime & MASK
    return h


def chain(tokens):
    h = 0
    for t in tokens:
        h = xxh64_12(struct.pack("<QI", h, t))
    return "%016x" % h


S = Server(ENGINE, "--receipts", "--temp", "0.9", "--on-full", "slide", "--ctx", "256", name="receipts")
CHAT = [{"role": "user", "content": "the robot was in a city"}]
BASE = {"prompt": "the robot was in a", "max_tokens": 30, "temperature": 1.3}


def replay(what, *args, engine=ENGINE):
    with open("receipt.json", "w") as f:
        json.dump(what, f)
    return subprocess.run([engine, "replay", "receipt.json", *args], capture_output=True)


def check(reply, text):
    for args in ((), ("--threads", "1", "--chunk", "1")):
        r = replay(reply, *args)
        assert r.returncode == 0, (r, reply)
        assert r.stdout.decode() == text, (r.stdout, text)


def texts(reply):
    return "".join(c["text"] for c in reply["choices"])


@test
def hashes_are_those_of_the_tokens():
    r = S.post("/completion", {"prompt": "the robot", "n_predict": 20, "return_tokens": True, "seed": 4})
    assert len(r["tokens"]) == r["receipt"]["answers"][0]["tokens"] and chain(r["tokens"]) == r["receipt"]["answers"][0]["hash"]
    assert r["receipt"]["request"]["seed"] == 4 and r["receipt"]["engine"].startswith("b")
    check(r, r["content"])


@test
def answers_come_again():
    for more in ({}, {"seed": 77}, {"n": 3, "prompt": ["the robot", "a city is"]}, {"ignore_eos": True, "max_tokens": 400}, {"temperature": 0},
                 {"logit_bias": {"5": 3.5, "9": -100}, "top_k": 9, "top_p": 0.8}, {"stop": ["e", "zz"], "include_stop_str_in_output": True},
                 {"stop_token_ids": [3, 4, 5, 6]}, {"mirostat": 2, "mirostat_tau": 3.3}, {"dry_multiplier": 0.7, "dry_sequence_breakers": ["a", "\n"]},
                 {"xtc_probability": 0.5, "xtc_threshold": 0.05}, {"repetition_penalty": 1.1, "repeat_last_n": 7, "presence_penalty": 0.1}, {"min_tokens": 9},
                 {"typical_p": 0.7, "min_p": 0.01, "top_n_sigma": 1.5}, {"skip_special_tokens": False}):
        r = S.post("/v1/completions", {**BASE, **more})
        check(r, texts(r))


@test
def answers_of_a_form_come_again():
    for form in ({"json": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}, {"regex": "[a-c]{5,9}x"}, {"choice": ["yes", "no", "don't"]},
                 {"grammar": 'root ::= "a" [0-9]+ "z"'}, {"json_object": True}):
        r = S.post("/v1/completions", {**BASE, "max_tokens": 60, "structured_outputs": form})
        check(r, texts(r))


@test
def every_endpoint_has_them():
    r = S.post("/v1/chat/completions", {"messages": CHAT, "max_tokens": 20})
    check(r, r["choices"][0]["message"]["content"])
    r = S.post("/v1/messages", {"messages": CHAT, "max_tokens": 20})
    check(r, r["content"][0]["text"])
    r = S.post("/v1/responses", {"input": "hello", "max_output_tokens": 20})
    check(r, r["output"][0]["content"][0]["text"])
    parts = S.stream("/v1/chat/completions", {"messages": CHAT, "max_tokens": 20})
    check(parts[-2], "".join(p["choices"][0]["delta"].get("content") or "" for p in parts[:-2]))
    parts = S.stream("/v1/completions", {**BASE, "stream_options": {"include_usage": True}})
    assert parts[-2]["usage"]
    check(parts[-2], "".join(p["choices"][0]["text"] for p in parts[:-2]))
    parts = S.stream("/v1/messages", {"messages": CHAT, "max_tokens": 20})
    check(next(p for p in parts if p["type"] == "message_delta"), "".join(p["delta"]["text"] for p in parts if p["type"] == "content_block_delta"))


@test
def what_is_not_so_is_said():
    r = S.post("/v1/completions", {**BASE, "seed": 1})["receipt"]
    answer = r["answers"][0]
    for wrong, code, word in ((dict(r, answers=[dict(answer, hash="0" * 16)]), 4, b"not that of the receipt"), (dict(r, answers=[dict(answer, tokens=1)]), 4, b"not that"),
                              (dict(r, answers=[]), 4, b"not that"), (dict(r, request=dict(r["request"], seed=2)), 4, b"not that"),
                              (dict(r, engine="b0"), 2, b"another engine"), (dict(r, isa="x9"), 2, b"--isa"),
                              (dict(r, request=dict(r["request"], nonsense=2)), 2, b"nonsense"), ({"a": 1}, 2, b"no receipt"), ([], 2, b"not a JSON object")):
        got = replay(wrong)
        assert got.returncode == code and word in got.stderr, (wrong, got)
    assert replay(r, engine=OTHER).returncode == 2


@test
def without_the_option_there_are_none():
    s = Server(ENGINE, name="plain-receipts")
    assert "receipt" not in s.post("/v1/completions", BASE) and s.stop() == 0
    assert S.stop() == 0


if __name__ == "__main__":
    sys.exit(run_all("receipts-"))
