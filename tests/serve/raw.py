#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The server without a client library: framing, limits, floods, answers, books. usage: raw.py ENGINE EMBEDDER"""
import concurrent.futures
import hashlib
import http.client
import json
import os
import random
import re
import signal
import socket
import sys
import threading
import time

from common import Server, events, read_all, run_all, status_of, test

ENGINE, EMBEDDER = sys.argv[1:3]
S = Server(ENGINE, "--parallel", "4", "--queue", "8", "--log", "access.log")
POST = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
PROMPT = "the robot was in a city and the robot is in the city of a robot and to the city in the robot"


def completion(**fields):
    return S.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 8, "temperature": 0, **fields})


def refused(field, status=400, path="/v1/completions", **fields):
    body = {"prompt": "a", **fields} if path == "/v1/completions" else fields
    e = S.post(path, body, status)["error"]
    assert e["param"] == field, e
    assert field in e["message"] or status == 404, e
    return e


# ---- framing ----

@test
def framing_that_two_could_read_differently_is_refused():
    body = b'{"prompt":"a","max_tokens":1}'
    n = len(body)
    for head, want in [
        (b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n" % n, 400),
        (b"Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n", 400),
        (b"Content-Length: %d\r\nContent-Length: %d\r\n\r\n" % (n, n), 400),
        (b"Content-Length: +%d\r\n\r\n" % n, 400), (b"Content-Length: 99999999999999999999\r\n\r\n", 400),
        (b"Transfer-Encoding: chunked, gzip\r\n\r\n", 501), (b"Transfer-Encoding: gzip\r\n\r\n", 501),
        (b"Transfer-Encoding : chunked\r\n\r\n", 400), (b"Content-Length: %d\r\n continued\r\n\r\n" % n, 400),
        (b"X: a\rb\r\n\r\n", 400), (b"X: a\x00b\r\n\r\n", 400), (b"Host: y\r\n\r\n", 400), (b"Expect: tea\r\n\r\n", 417),
        (b"Content-Length: 99999999999\r\n\r\n", 413),
    ]:
        # what follows could be taken for a second request: there must be one reply alone
        reply = S.raw(POST + head + body + b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert status_of(reply) == want, (head, reply)
        assert reply.count(b"HTTP/1.1") == 1 and b"Connection: close" in reply, reply
    for bad in [b"g\r\n", b"5\nabcde\n", b"-5\r\n", b"0x5\r\nabcde\r\n", b"5\r\nabcdefg\r\n", b"00000000000000005\r\nabcde\r\n", b"5;\r\nabcde\r\n"]:
        reply = S.raw(POST + b"Transfer-Encoding: chunked\r\n\r\n" + bad + b"0\r\n\r\n")
        assert status_of(reply) == 400 and reply.count(b"HTTP/1.1") == 1, (bad, reply)
    assert status_of(S.raw(POST + b"Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFF\r\n")) == 413
    assert status_of(S.raw(b"GET / HTTP/1.1\r\n\r\n")) == 400
    assert status_of(S.raw(b"ANNOUNCE / HTTP/1.1\r\nHost: x\r\n\r\n")) == 501
    assert status_of(S.raw(b"GET / HTTP/3.0\r\nHost: x\r\n\r\n")) == 505
    assert status_of(S.raw(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n")) == 400  # TLS on a plain port


@test
def heads_are_bounded():
    assert status_of(S.raw(b"GET /" + b"a" * 10000 + b" HTTP/1.1\r\nHost: x\r\n\r\n")) == 414
    assert status_of(S.raw(b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 70000 + b"\r\n\r\n")) == 431
    assert status_of(S.raw(b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 200 + b"\r\n")) == 431


@test
def one_connection_many_requests():
    get = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    reply = S.raw(get * 100)
    assert reply.count(b"HTTP/1.1 200 OK") == 100, reply.count(b"HTTP/1.1 200 OK")
    body = b'{"prompt":"a","max_tokens":2,"temperature":0}'
    with S.connect() as s:  # in pieces of one byte, chunked, then a second one behind it
        data = POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(b"1\r\n%c\r\n" % x for x in body) + b"0\r\nT: x\r\n\r\n"
        data += POST + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body
        for i in range(len(data)):
            s.sendall(data[i:i + 1])
        reply = read_all(s)
    assert reply.count(b"HTTP/1.1 200 OK") == 2, reply
    one, two = [json.loads(x[x.index(b"{"):x.rindex(b"}") + 1]) for x in reply.split(b"HTTP/1.1 200 OK")[1:]]
    assert one["choices"] == two["choices"]


@test
def http_1_0_and_expect():
    reply = S.raw(b"GET /health HTTP/1.0\r\n\r\n")
    assert status_of(reply) == 200 and b"Connection: close" in reply
    body = b'{"prompt":"a","max_tokens":2,"stream":true}'
    reply = S.raw(b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body) + body, end=False)
    assert b"chunked" not in reply and reply.endswith(b"data: [DONE]\n\n"), reply
    with S.connect() as s:
        s.sendall(POST + b"Content-Length: 29\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n")
        assert s.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        s.sendall(b'{"prompt":"a","max_tokens":1}')
        assert status_of(read_all(s)) == 200
    reply = S.raw(b"HEAD /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert status_of(reply) == 200 and reply.endswith(b"\r\n\r\n"), reply


@test
def routes_and_methods():
    assert S.request("GET", "/nothing")[0] == 404
    status, headers, _ = S.request("GET", "/v1/completions")
    assert status == 405 and headers["allow"] == "POST"
    assert S.request("POST", "/health", "{}")[0] == 405
    assert S.request("GET", "/health?x=1")[0] == 200
    _, headers, _ = S.request("GET", "/health", headers={"X-Request-Id": "abc"})
    assert headers["x-request-id"] == "abc"
    _, headers, _ = S.request("GET", "/health", headers={"X-Request-Id": 'a"b'})
    assert headers["x-request-id"].startswith("req-")


@test
def bodies_that_are_not_json():
    for body in [b"", b"{", b"[]", b"null", b'{"prompt": NaN}', b'{"prompt":"\xff"}', b'{"prompt":"a",}', b'{"prompt":"\\ud800"}',
                 b'{"prompt":"a"} x', b"[" * 100000, b'{"a":' * 50000, b'{"prompt":"\n"}']:
        status, _, text = S.request("POST", "/v1/completions", body)
        assert status == 400, (body[:30], status, text)
        assert json.loads(text)["error"]["message"]
    deep = "[" * 60000 + "]" * 60000
    assert S.request("POST", "/v1/chat/completions", '{"messages":%s}' % deep)[0] == 400


# ---- fields ----

@test
def fields_are_honoured_or_named():
    refused("max_tokenz", max_tokenz=1)
    refused("temperature", temperature=999999)
    refused("temperature", temperature="hot")
    refused("top_p", top_p=-1)
    refused("n", n=0)
    refused("n", n=100000)
    refused("max_tokens", max_tokens=-1)
    refused("max_tokens", max_tokens=1.5)
    refused("max_tokens", max_tokens=10**30)
    refused("logit_bias", logit_bias={"999999": 1})
    refused("logit_bias", logit_bias={str(i): 1 for i in range(70000)})
    refused("logit_bias", logit_bias={"5": "x"})
    refused("stop", stop=[""])
    refused("stop", stop=["x"] * 200)
    refused("stop", stop=5)
    refused("stop_token_ids", stop_token_ids=[-1])
    refused("suffix", suffix="x")
    refused("best_of", best_of=1, n=2)
    refused("stream_options", stream_options={"include_usage": True})
    refused("response_format", response_format={"type": "xml"})
    refused("seed", seed=2**70)
    refused("model", 404, model="gpt-4")
    refused("n_discard", n_discard=-1)
    completion(model=None, stop=None, seed=None, logit_bias={}, user="me", metadata={"a": "b"}, best_of=1, suffix=None)


@test
def prompts_that_do_not_fit_are_refused_with_counts():
    e = S.post("/v1/completions", {"prompt": [5] * 1000}, 400)["error"]
    assert "1000" in e["message"] and "512" in e["message"], e
    e = S.post("/v1/completions", {"prompt": []}, 400)["error"]
    assert e["param"] == "prompt", e
    assert S.post("/v1/completions", {"prompt": [5, -1]}, 400)["error"]["param"] == "prompt"
    assert S.post("/v1/completions", {"prompt": [5, 100000]}, 400)["error"]["param"] == "prompt"
    assert S.post("/v1/completions", {}, 400)["error"]["param"] == "prompt"
    full = S.post("/v1/completions", {"prompt": [5] * 510, "max_tokens": 100, "ignore_eos": True})
    assert full["usage"]["completion_tokens"] == 2 and full["choices"][0]["finish_reason"] == "length", full


@test
def templates_errors_are_the_clients():
    e = S.post("/v1/chat/completions", {"messages": [{"role": "pirate", "content": "x"}]}, 400)["error"]
    assert "who?" in e["message"], e
    for bad in [None, [], "x", [1], [{}], [{"role": "user", "content": 5}], [{"role": "user", "content": [{"type": "image_url"}]}],
                [{"role": "assistant", "content": "x", "tool_calls": [{"function": {"arguments": "{"}}]}]]:
        assert S.post("/v1/chat/completions", {"messages": bad}, 400)["error"]["param"].startswith("messages"), bad
    one = S.post("/apply-template", {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]})
    assert one["prompt"] == "<|im_start|>user\na\nb<|im_end|>\n<|im_start|>assistant\n", one
    ended = S.post("/apply-template", {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "I say ", "tool_calls": []}],
                                       "continue_final_message": True})
    assert ended["prompt"] == "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nI say", ended
    null = S.post("/apply-template", {"messages": [{"role": "user", "content": None}], "add_generation_prompt": False})
    assert null["prompt"] == "<|im_start|>user\nNone<|im_end|>\n", null  # as jinja writes it


# ---- answers ----

@test
def streamed_is_whole():
    fields = {"prompt": PROMPT, "max_tokens": 60, "seed": 7, "temperature": 1.5, "logprobs": 3}
    whole = S.post("/v1/completions", fields)
    parts = S.stream("/v1/completions", {**fields, "stream_options": {"include_usage": True}})
    assert parts[-1] == "[DONE]"
    assert parts[-2]["usage"] == {**whole["usage"], "prompt_tokens_details": parts[-2]["usage"]["prompt_tokens_details"]}
    assert parts[-2]["choices"] == []
    chunks = [p["choices"][0] for p in parts[:-2]]
    assert all("usage" not in p for p in parts[:-2])
    assert "".join(c["text"] for c in chunks) == whole["choices"][0]["text"]
    assert [c["finish_reason"] for c in chunks if c["finish_reason"]] == [whole["choices"][0]["finish_reason"]]
    for key in ("tokens", "token_logprobs", "text_offset", "top_logprobs"):
        got = sum((c["logprobs"][key] for c in chunks if c["logprobs"]), [])
        assert got == whole["choices"][0]["logprobs"][key], key
    for path, body in (("/v1/completions", fields), ("/v1/chat/completions", {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 9, "n": 2})):
        parts = S.stream(path, {**body, "ignore_eos": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}})[:-1]
        so_far = [p["usage"]["completion_tokens"] for p in parts]  # vLLM's: what there is with every part, in the end what the last one says
        assert so_far == sorted(so_far) and so_far[-2] == so_far[-1] == (60 if path == "/v1/completions" else 18), so_far
        assert {p["usage"]["prompt_tokens"] for p in parts} == {parts[-1]["usage"]["prompt_tokens"]}
    refused("stream_options", stream=True, stream_options={"include_usages": True})
    chat = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 60, "seed": 7, "temperature": 1.5}
    whole = S.post("/v1/chat/completions", chat)
    parts = S.stream("/v1/chat/completions", {**chat, "stream_options": {}})
    assert all("usage" not in p for p in parts[:-1])  # asked for by include_usage alone
    assert parts[0]["choices"][0]["delta"]["role"] == "assistant"
    assert "".join(p["choices"][0]["delta"].get("content") or "" for p in parts[:-1]) == whole["choices"][0]["message"]["content"]


@test
def logprobs_are_of_the_text():
    c = completion(logprobs=2, max_tokens=20)["choices"][0]
    lp = c["logprobs"]
    assert len(lp["tokens"]) == len(lp["token_logprobs"]) == len(lp["top_logprobs"]) == 20
    for t, p, top in zip(lp["tokens"], lp["token_logprobs"], lp["top_logprobs"]):
        assert p <= 0 and max(top.values()) == p  # temperature 0: the best one
        assert 1 <= len(top) <= 2
    e = completion(logprobs=0, echo=True, max_tokens=0)
    ids = S.post("/tokenize", {"prompt": PROMPT})["tokens"]
    lp = e["choices"][0]["logprobs"]
    assert len(lp["tokens"]) == len(ids) and lp["token_logprobs"][0] is None
    assert e["choices"][0]["text"] == PROMPT and e["usage"]["completion_tokens"] == 0
    m = S.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 5, "logprobs": True, "top_logprobs": 3})
    content = m["choices"][0]["logprobs"]["content"]
    assert len(content) == 5 and all(len(t["top_logprobs"]) == 3 for t in content)
    assert b"".join(bytes(t["bytes"]) for t in content).decode(errors="replace") == m["choices"][0]["message"]["content"]


@test
def n_best_of_and_seeds():
    three = completion(n=3, seed=5, temperature=1, max_tokens=20, ignore_eos=True)
    assert [c["index"] for c in three["choices"]] == [0, 1, 2]
    texts = [c["text"] for c in three["choices"]]
    assert len(set(texts)) == 3 and three["usage"]["completion_tokens"] == 60
    assert completion(seed=5, temperature=1, max_tokens=20, ignore_eos=True)["choices"][0]["text"] == texts[0]
    scored = completion(n=3, seed=5, temperature=1, max_tokens=20, logprobs=0, ignore_eos=True)["choices"]
    mean = [sum(c["logprobs"]["token_logprobs"]) / len(c["logprobs"]["token_logprobs"]) for c in scored]
    best = completion(best_of=3, n=1, seed=5, temperature=1, max_tokens=20, ignore_eos=True)
    assert best["choices"][0]["text"] == texts[mean.index(max(mean))]
    assert best["usage"]["completion_tokens"] == 60
    two = S.post("/v1/completions", {"prompt": ["the robot", [5, 6, 7]], "n": 2, "max_tokens": 4})
    assert [c["index"] for c in two["choices"]] == [0, 1, 2, 3]
    assert len({completion(temperature=1.5, max_tokens=20)["choices"][0]["text"] for _ in range(4)}) > 1


@test
def stops_bias_and_bounds():
    text = completion(max_tokens=60)["choices"][0]["text"]
    stop = text[20:24]
    at = text.index(stop)
    got = completion(max_tokens=60, stop=[stop])["choices"][0]
    assert got["text"] == text[:at] and got["finish_reason"] == "stop"
    kept = completion(max_tokens=60, stop=stop, include_stop_str_in_output=True)["choices"][0]["text"]
    assert kept == text[:at] + stop
    streamed = S.stream("/v1/completions", {"prompt": PROMPT, "max_tokens": 60, "temperature": 0, "stop": [stop]})
    assert "".join(p["choices"][0]["text"] for p in streamed[:-1]) == text[:at]
    ids = S.post("/tokenize", {"content": "z", "add_special": False})["tokens"]
    assert len(ids) == 1
    assert completion(logit_bias={str(ids[0]): 1000}, max_tokens=10)["choices"][0]["text"] == "z" * 10
    assert "z" not in completion(logit_bias={str(ids[0]): -100}, max_tokens=60)["choices"][0]["text"]
    got = completion(stop_token_ids=ids, logit_bias={str(ids[0]): 1000}, min_tokens=0)["choices"][0]
    assert got["text"] == "" and got["finish_reason"] == "stop"


@test
def same_answer_in_a_crowd():
    """One hash a request: alone, beside 7 others, with its prompt known and new, streamed or not."""
    bodies = [{"prompt": PROMPT[:20 + 7 * i], "max_tokens": 30, "seed": i, "temperature": 1.0, "logprobs": 1} for i in range(8)]

    def answer(b, salt):
        r = S.post("/v1/completions", {**b, "cache_salt": salt})
        return json.dumps(r["choices"])

    alone = [answer(b, "first") for b in bodies]
    assert alone == [answer(b, "first") for b in bodies]  # prefixes are found now
    for round_ in range(3):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert list(pool.map(lambda b: answer(b, f"crowd{round_}"), bodies)) == alone


@test
def prefixes_are_found_and_salted():
    body = {"prompt": PROMPT + " of the " + PROMPT, "max_tokens": 1, "cache_salt": "one"}
    S.post("/v1/completions", body)
    assert S.post("/v1/completions", body)["usage"]["prompt_tokens_details"]["cached_tokens"] >= 32
    assert S.post("/v1/completions", {**body, "cache_salt": "two"})["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


@test
def tokens_and_back():
    text = "a robot  caf\u00e9 \u4e2d \U0001f600 <|im_end|>"
    ids = S.post("/tokenize", {"content": text})["tokens"]
    assert S.post("/detokenize", {"tokens": ids})["content"] == text
    pieces = S.post("/tokenize", {"content": text, "with_pieces": True})["tokens"]
    assert [p["id"] for p in pieces] == ids
    assert 4 in ids and 4 not in S.post("/tokenize", {"content": text, "parse_special": False})["tokens"]
    assert S.post("/tokenize", {"prompt": "a"})["tokens"][0] == 1
    assert S.post("/detokenize", {"tokens": [10**9]}, 400)["error"]["param"] == "tokens"


@test
def vectors():
    e = Server(EMBEDDER, name="embedder")
    try:
        r = e.post("/v1/embeddings", {"input": ["robot city", "city"]})
        assert [d["index"] for d in r["data"]] == [0, 1]
        for d in r["data"]:
            assert abs(sum(x * x for x in d["embedding"]) - 1) < 1e-3
        assert r["usage"]["prompt_tokens"] == 4 + 3
        import base64
        import struct
        b = e.post("/v1/embeddings", {"input": "city", "encoding_format": "base64"})["data"][0]["embedding"]
        raw = base64.b64decode(b, validate=True)
        got = struct.unpack("<%df" % (len(raw) // 4), raw)
        assert all(abs(x - y) < 1e-6 for x, y in zip(got, r["data"][1]["embedding"]))
        assert e.post("/v1/embeddings", {"input": "x y " * 1000}, 400)["error"]["param"] == "input"
        for bad in [None, [], {}, 5, ["a", 10**9], ["a", -1], ["a", None], [[5, -1]], [[]]]:
            assert e.post("/v1/embeddings", {"input": bad}, 400)["error"]["param"] == "input", bad
        # an empty text has the vector of what stands around every text
        around = e.post("/tokenize", {"content": "", "add_special": True})["tokens"]
        none = [e.post("/v1/embeddings", {"input": x}) for x in ("", [""], around)]
        assert around and all(x["data"] == none[2]["data"] and x["usage"]["prompt_tokens"] == len(around) for x in none), around
        # ids and strings in one list are one text
        ids = e.post("/tokenize", {"content": "robot city", "add_special": False})["tokens"]
        one = [e.post("/v1/embeddings", {"input": x})["data"] for x in (ids + [7], ["robot city", 7], [["robot city", 7]])]
        assert all(len(x) == 1 and x[0]["embedding"] == one[0][0]["embedding"] for x in one)
        assert len(e.post("/v1/embeddings", {"input": [[5, "city"], "a", [6]]})["data"]) == 3
        # llama-server's objects
        text = e.post("/v1/embeddings", {"input": "robot city"})["data"][0]["embedding"]
        parts = {"content": [{"type": "text", "text": "robot "}, {"type": "text", "text": "city"}]}
        for x in ({"prompt_string": "robot city"}, parts, ["a", parts]):
            assert e.post("/v1/embeddings", {"input": x})["data"][-1]["embedding"] == text, x
        for bad in ({"content": "a"}, {"content": []}, {"content": [{"type": "image_url", "image_url": {"url": "x"}}]}, {"prompt_string": 5},
                    {"prompt_string": "a", "multimodal_data": ["x"]}, [[{"prompt_string": "a"}]]):
            assert e.post("/v1/embeddings", {"input": bad}, 400)["error"]["param"] == "input", bad
        assert e.post("/v1/embeddings", {"input": "a", "dimensions": 3}, 400)["error"]["param"] == "dimensions"
        e.post("/v1/completions", {"prompt": "a"}, 501)
        S.post("/v1/embeddings", {"input": "a"}, 501)
    finally:
        assert e.stop() == 0


@test
def llama_server_s_endpoints():
    body = {"prompt": PROMPT, "n_predict": 12, "temperature": 0, "return_tokens": True, "n_probs": 2, "ignore_eos": True}
    r = S.post("/completion", body)
    same = completion(max_tokens=12, ignore_eos=True)
    assert r["content"] == same["choices"][0]["text"] and r["tokens_predicted"] == 12 and r["stop_type"] == "limit"
    assert len(r["tokens"]) == 12 == len(r["completion_probabilities"])
    assert S.post("/detokenize", {"tokens": r["tokens"]})["content"] == r["content"]
    parts = S.stream("/completion", body)
    assert "".join(p["content"] for p in parts) == r["content"] and [p["stop"] for p in parts].index(True) == len(parts) - 1
    assert sum((p["tokens"] for p in parts), []) == r["tokens"]
    word = S.post("/completion", {**body, "stop": [r["content"][5:8]]})
    assert word["stop_type"] == "word" and word["stopping_word"] == r["content"][5:8]
    refused("n_discard", path="/completion", prompt="a", n_discard=-1)
    refused("id_slot", path="/completion", prompt="a", id_slot=4)  # there are 4 places
    assert S.post("/infill", {"input_prefix": "a", "input_suffix": "b"}, 501)
    p = S.get("/props")
    assert p["total_slots"] == 4 and "im_start" in p["chat_template"] and p["default_generation_settings"]["n_ctx"] == 512
    assert len(S.get("/slots")) == 4


@test
def messages():
    body = {"model": "chat.gguf", "max_tokens": 30, "temperature": 0, "system": "the city",
            "messages": [{"role": "user", "content": [{"type": "text", "text": "a robot"}]}]}
    r = S.post("/v1/messages", body)
    chat = S.post("/v1/chat/completions", {"messages": [{"role": "system", "content": "the city"}, {"role": "user", "content": "a robot"}],
                                           "max_tokens": 30, "temperature": 0})
    text = r["content"][0]["text"]
    assert text == chat["choices"][0]["message"]["content"]
    assert r["usage"]["input_tokens"] == chat["usage"]["prompt_tokens"] == S.post("/v1/messages/count_tokens", body)["input_tokens"]
    assert r["usage"]["output_tokens"] == chat["usage"]["completion_tokens"] and r["stop_reason"] in ("max_tokens", "end_turn")
    parts = S.stream("/v1/messages", body)
    kinds = [p["type"] for p in parts]
    assert kinds[:2] == ["message_start", "content_block_start"] and kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert "".join(p["delta"]["text"] for p in parts if p["type"] == "content_block_delta") == text
    assert parts[-2]["usage"] == r["usage"] and parts[-2]["delta"]["stop_reason"] == r["stop_reason"]
    stopped = S.post("/v1/messages", {**body, "stop_sequences": ["\x00", text[3:6]]})
    assert stopped["stop_reason"] == "stop_sequence" and stopped["stop_sequence"] == text[3:6]
    e = S.post("/v1/messages", {"messages": body["messages"]}, 400)
    assert e["type"] == "error" and e["error"]["type"] == "invalid_request_error" and "max_tokens" in e["error"]["message"]
    assert S.post("/v1/messages", {**body, "thinking": {"type": "enabled"}}, 400)["error"]["param"] == "thinking"


@test
def responses():
    body = {"model": "chat.gguf", "max_output_tokens": 30, "temperature": 0, "input": "a robot", "instructions": "the city"}
    r = S.post("/v1/responses", body)
    chat = S.post("/v1/chat/completions", {"messages": [{"role": "system", "content": "the city"}, {"role": "user", "content": "a robot"}],
                                           "max_tokens": 30, "temperature": 0})
    text = r["output"][0]["content"][0]["text"]
    assert text == chat["choices"][0]["message"]["content"]
    assert r["usage"]["output_tokens"] == chat["usage"]["completion_tokens"]
    items = S.post("/v1/responses", {**body, "instructions": None, "input": [
        {"role": "developer", "content": "the city"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a robot"}]}]})
    assert items["output"][0]["content"][0]["text"] == text
    parts = S.stream("/v1/responses", body)
    assert [p["sequence_number"] for p in parts] == list(range(len(parts)))
    assert "".join(p["delta"] for p in parts if p["type"] == "response.output_text.delta") == text
    assert parts[-1]["response"]["output"][0]["content"][0]["text"] == text and parts[-1]["response"]["usage"] == {
        **r["usage"], "input_tokens_details": parts[-1]["response"]["usage"]["input_tokens_details"]}
    refused("previous_response_id", path="/v1/responses", input="a", previous_response_id="resp_1")
    refused("store", path="/v1/responses", input="a", store=True)


@test
def the_openapi_document_is_what_the_server_does():
    doc = S.get("/openapi.json")
    assert doc["openapi"].startswith("3.1") and "/v1/chat/completions" in doc["paths"]
    for path, methods in doc["paths"].items():
        for method, op in methods.items():
            assert op["summary"] and op["responses"]
            status, _, _ = S.request(method.upper(), path.replace("{name}", "chat.gguf"), "{}" if method == "post" else None)
            assert status in (200, 400, 501), (method, path, status)
    for path in ("/v1/completions", "/v1/chat/completions", "/v1/messages", "/v1/responses", "/completion"):
        fields = doc["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
        assert len(fields) >= 10
        status, _, text = S.request("POST", path, {k: None for k in fields})  # null is absent; no field is unknown
        assert status == 400 and b"does not support" not in text, (path, text)


@test
def a_page_without_anything_from_elsewhere():
    status, headers, text = S.request("GET", "/")
    assert status == 200 and headers["content-type"].startswith("text/html") and b"v1/chat/completions" in text
    assert "default-src 'none'" in headers["content-security-policy"] and b"http://" not in text and b"https://" not in text
# ---- structure ----

CITY = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
        "required": ["city", "days"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "d", "parameters": CITY}},
         {"type": "function", "function": {"name": "now"}}]
# a random model likes white space and escapes: without them it comes to an end
PLAIN = [[chr(c), -100] for c in (9, 10, 13, 32, 92)] + [[5 + c, -100] for c in (9, 10, 13, 32, 92)]


def chat(status=200, **fields):
    return S.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "a robot"}], "max_tokens": 200, "seed": 1,
                                           "temperature": 1, "logit_bias": PLAIN, **fields}, status)


def fits_city(text):
    v = json.loads(text)
    assert set(v) == {"city", "days"} and v["city"] in ("Paris", "Rome") and v["days"] in range(1, 8), v


@test
def structured_answers():
    schema = {"type": "json_schema", "json_schema": {"name": "c", "strict": True, "schema": CITY}}
    for seed in range(5):
        r = chat(response_format=schema, seed=seed)["choices"][0]
        assert r["finish_reason"] == "stop"
        fits_city(r["message"]["content"])
    for field in ({"structured_outputs": {"json": CITY}}, {"guided_json": CITY}, {"json_schema": CITY}, {"guided_json": json.dumps(CITY)},
                  {"response_format": {"type": "json_object", "schema": CITY}}):
        fits_city(chat(**field)["choices"][0]["message"]["content"])
    text = "".join(p["choices"][0]["delta"].get("content") or "" for p in S.stream("/v1/chat/completions", {
        "messages": [{"role": "user", "content": "a"}], "max_tokens": 200, "response_format": schema, "logit_bias": PLAIN})[:-1])
    fits_city(text)
    assert chat(structured_outputs={"choice": ["yes", "no"]})["choices"][0]["message"]["content"] in ("yes", "no")
    import re
    assert re.fullmatch("[ab]{4}c+", S.post("/v1/completions", {"prompt": "a", "max_tokens": 20, "guided_regex": "[ab]{4}c{1,3}"})["choices"][0]["text"])
    assert S.post("/completion", {"prompt": "a", "grammar": 'root ::= "x" [0-9] "y"'})["content"][::2] == "xy"
    r = S.post("/v1/responses", {"input": "a", "max_output_tokens": 200, "temperature": 0, "text": {"format": {"type": "json_schema", "name": "c",
               "schema": {"enum": ["left", "right"]}}}})
    assert json.loads(r["output"][0]["content"][0]["text"]) in ("left", "right")
    n = S.post("/v1/completions", {"prompt": "a", "n": 4, "temperature": 2, "max_tokens": 9, "structured_outputs": {"choice": ["aa", "ab", "ba"]}})
    assert all(c["text"] in ("aa", "ab", "ba") for c in n["choices"])


@test
def structures_that_cannot_be_enforced_are_named():
    for bad in [{"type": 5}, {"type": "strin"}, {"properties": {"a": {"pattern": "^(a$"}}}, {"$ref": "#/$defs/no"}, {"minimum": 2, "maximum": 1, "type": "integer"}]:
        e = chat(400, response_format={"type": "json_schema", "json_schema": {"name": "c", "schema": bad}})["error"]
        assert e["param"] == "response_format" and "#" in e["message"], e
    for field in ("guided_regex", "grammar"):
        assert chat(400, **{field: "(("})["error"]["param"] == field
    assert chat(400, response_format={"type": "json_schema"})["error"]["param"] == "response_format"
    assert chat(400, response_format={"type": "json_object"}, guided_regex="a")["error"]["param"] == "guided_regex"
    deep = {"schema": json.loads('{"anyOf":[' * 150 + "true" + "]}" * 150)}
    status = S.request("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 2,
                                                        "response_format": {"type": "json_schema", "json_schema": deep}})[0]
    assert status in (200, 400)


@test
def reported_requests():
    """tests/serve/cases: requests that servers were reported to answer wrongly, with the right status and value."""
    right = {"v == 'hi there!'": lambda v: v == "hi there!", "v matches ^a+$": lambda v: set(v) == {"a"}, "v in ('foo','bar')": lambda v: v in ("foo", "bar")}
    case = json.load(open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "cases", "B038.json")))
    for item in case["items"]:
        body = {**item["body"], "model": "chat.gguf"}
        if "response_format" in body and body["response_format"]:
            body["logit_bias"] = PLAIN  # the tiny model would write white space until its tokens are used up
            if item.get("if_200", "").endswith("there!'"):
                body["logit_bias"] = [b for b in PLAIN if b[0] not in (" ", 5 + 32)]
        status, _, text = S.request(case["method"], case["path"], body)
        want = item["status"] if isinstance(item["status"], list) else [item["status"]]
        assert status in want, (item["name"], status, text)
        if status == 400:
            assert json.loads(text)["error"]["message"], item["name"]
        elif "if_200" in item:
            choice = json.loads(text)["choices"][0]
            if choice["finish_reason"] == "stop":
                assert right[item["if_200"]](json.loads(choice["message"]["content"])["v"]), (item["name"], text)


@test
def tools():
    for seed in range(4):
        c = chat(tools=TOOLS, tool_choice="required", seed=seed, parallel_tool_calls=False)["choices"][0]
        assert c["finish_reason"] == "tool_calls" and c["message"]["content"] is None, c
        call = c["message"]["tool_calls"][0]
        assert call["type"] == "function" and call["id"].startswith("call_") and call["function"]["name"] in ("weather", "now")
        args = json.loads(call["function"]["arguments"])
        if call["function"]["name"] == "weather":
            fits_city(call["function"]["arguments"])
        assert isinstance(args, dict)
    named = {"type": "function", "function": {"name": "weather"}}
    c = chat(tools=TOOLS, tool_choice=named)["choices"][0]
    assert [x["function"]["name"] for x in c["message"]["tool_calls"]] == ["weather"]
    fits_city(c["message"]["tool_calls"][0]["function"]["arguments"])
    parts = S.stream("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 200, "tools": TOOLS,
                                              "tool_choice": named, "logit_bias": PLAIN})[:-1]
    deltas = [t for p in parts for t in p["choices"][0]["delta"].get("tool_calls", [])]
    assert parts[-1]["choices"][0]["finish_reason"] == "tool_calls" and {t["index"] for t in deltas} == {0}
    fits_city("".join(t["function"]["arguments"] for t in deltas))
    free = chat(tools=TOOLS, max_tokens=20)["choices"][0]["message"]  # a random model calls nothing
    assert free["content"] and "tool_calls" not in free
    streamed = S.stream("/v1/chat/completions", {"messages": [{"role": "user", "content": "a robot"}], "max_tokens": 20, "seed": 1, "temperature": 1,
                                                 "logit_bias": PLAIN, "tools": TOOLS})[:-1]
    assert "".join(p["choices"][0]["delta"].get("content") or "" for p in streamed) == free["content"]
    for bad, param in [({"tools": 5}, "tools"), ({"tools": [{}]}, "tools"), ({"tool_choice": "required"}, "tool_choice"),
                       ({"tools": TOOLS, "tool_choice": "sometimes"}, "tool_choice"),
                       ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice"),
                       ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools")]:
        assert chat(400, **bad)["error"]["param"] == param, bad
    chat(tools=[], tool_choice=None)
    chat(tools=TOOLS, tool_choice="none", max_tokens=3)


@test
def calls_in_the_ways_of_model_families():
    """What a model writes is forced by a choice of one text; auto finds the calls in it."""
    roomy = Server(ENGINE, "--ctx", "2048", name="roomy")  # the template does not show tools: they are text in front
    args = {"city": "Rome", "days": 2}
    call = json.dumps({"name": "weather", "arguments": args})
    for text, content, n in [
        ("<tool_call>\n" + call + "\n</tool_call>", None, 1), ("I look.\n<tool_call>" + call + "</tool_call>\n<tool_call>" + call + "</tool_call>", "I look.", 2),
        ("<function=weather>" + json.dumps(args) + "</function>", None, 1), (json.dumps({"name": "weather", "parameters": args}), None, 1),
        ("[" + call + ", " + call + "]", None, 2), ("<tool_call>" + call, None, 1),
        ("<tool_call>{broken</tool_call>", "<tool_call>{broken</tool_call>", 0), ('{"name": "unknown", "arguments": {}}', '{"name": "unknown", "arguments": {}}', 0),
        ("a < b <tool", "a < b <tool", 0), ("[1, 2]", "[1, 2]", 0),
    ]:
        body = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 300, "tools": TOOLS, "guided_choice": [text]}
        m = roomy.post("/v1/chat/completions", body)["choices"][0]
        assert m["message"]["content"] == content, (text, m)
        calls = m["message"].get("tool_calls", [])
        assert len(calls) == n and m["finish_reason"] == ("tool_calls" if n else "stop"), (text, m)
        assert all(json.loads(c["function"]["arguments"]) == args and c["function"]["name"] == "weather" for c in calls)
        parts = roomy.stream("/v1/chat/completions", body)[:-1]
        assert "".join(p["choices"][0]["delta"].get("content") or "" for p in parts) == (content or ""), text
        deltas = [t for p in parts for t in p["choices"][0]["delta"].get("tool_calls", [])]
        told = {}  # a delta has the name, or more of the arguments
        for t in deltas:
            f = told.setdefault(t["index"], {"name": "", "arguments": ""})
            f["name"] += t["function"].get("name") or ""
            f["arguments"] += t["function"]["arguments"]
            assert ("id" in t) == bool(t["function"].get("name"))
        assert [told[i] for i in sorted(told)] == [c["function"] for c in calls]
    assert roomy.stop() == 0


# ---- load ----

def long_body():
    return json.dumps({"prompt": PROMPT, "max_tokens": 400, "ignore_eos": True, "stream": True}).encode()


@test
def cancelled_requests_leave_nothing():
    random.seed(1)
    data = POST + b"Content-Length: %d\r\n\r\n" % len(long_body()) + long_body()
    before = S.wait_idle()
    for i in range(60):
        s = S.connect()
        s.sendall(data[:random.randrange(len(data))] if i % 4 == 0 else data)
        if i % 2:
            s.recv(random.randrange(1, 2000))
        if i % 3 == 0:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
        s.close()
    m = S.wait_idle()
    assert m["infc_pages_held"] == 0
    assert m["vllm:generation_tokens_total"] - before["vllm:generation_tokens_total"] < 60 * 400


@test
def overload_is_refused_at_once():
    """4 places and 8 that wait: of 30 at once some are refused with 429, all others are answered in full."""
    body = {"prompt": PROMPT, "max_tokens": 100, "ignore_eos": True}

    def one(_):
        status, headers, text = S.request("POST", "/v1/completions", body)
        return status, headers, json.loads(text)

    with concurrent.futures.ThreadPoolExecutor(30) as pool:
        got = list(pool.map(one, range(30)))
    counts = {s: sum(1 for g in got if g[0] == s) for s in {g[0] for g in got}}
    assert set(counts) <= {200, 429} and counts[200] >= 12, counts
    for status, headers, r in got:
        if status == 200:
            assert r["usage"]["completion_tokens"] == 100
        else:
            assert headers["retry-after"] and r["error"]["type"] == "rate_limit_error"
    assert S.post("/v1/completions", {**body, "n": 64}, 429)


@test
def slow_peers_do_not_stop_others():
    slow = [S.connect() for _ in range(20)]
    for s in slow:
        s.sendall(POST + b"Content-Len")
    reader = S.connect()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    body = json.dumps({"prompt": "a", "max_tokens": 500, "ignore_eos": True, "stream": True, "logprobs": 50}).encode()
    reader.sendall(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)  # and reads nothing
    completion()
    for s in slow + [reader]:
        s.close()
    assert S.wait_idle()["infc_pages_held"] == 0


@test
def a_head_has_ten_seconds():
    with S.connect() as s:
        s.sendall(b"GET / HTT")
        assert status_of(read_all(s)) == 408


@test
def exact_books():
    """What usage says, summed, is what the counters count, whatever the requests were."""
    random.seed(3)
    before = S.wait_idle()
    sums = [0, 0, 0]
    lock = threading.Lock()

    def one(i):
        r = random.Random(i)
        body = {"prompt": PROMPT[:r.randrange(1, 90)], "max_tokens": r.randrange(1, 20), "temperature": 1, "n": r.randrange(1, 3)}
        if r.random() < 0.3:
            usage = [p for p in S.stream("/v1/completions", {**body, "stream_options": {"include_usage": True}}) if p != "[DONE]"][-1]["usage"]
        else:
            usage = S.post("/v1/completions", body)["usage"]
        with lock:
            sums[0] += usage["prompt_tokens"]
            sums[1] += usage["completion_tokens"]
            sums[2] += usage["prompt_tokens_details"]["cached_tokens"]

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(200)))
    after = S.wait_idle()
    for got, name in zip(sums, ("vllm:prompt_tokens_total", "vllm:generation_tokens_total", "llamacpp:prompt_tokens_cached_total")):
        assert after[name] - before[name] == got, (name, after[name] - before[name], got)
    assert not any(x != x for x in after.values())
    assert sum(1 for k in after if k.startswith("vllm:")) >= 25 and sum(1 for k in after if k.startswith("llamacpp:")) >= 11


@test
def deadlines():
    e = S.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 450, "ignore_eos": True, "timeout": 0.002}, 504)["error"]
    assert e["type"] == "timeout_error", e
    assert S.wait_idle()["infc_pages_held"] == 0


@test
def keys():
    with open("keys", "w") as f:
        f.write("# a comment\nsecret-1\nsecret-2\n")
    k = Server(ENGINE, "--api-key-file", "keys", name="keys")
    try:
        assert k.request("GET", "/health")[0] == 200
        for path in ("/v1/models", "/metrics", "/version", "/nothing"):
            assert k.request("GET", path)[0] == 401, path
        assert k.request("POST", "/v1/completions", {"prompt": "a"})[0] == 401
        assert k.request("POST", "/v1/completions", {"prompt": "a"}, {"Authorization": "Bearer secret-3"})[0] == 401
        for h in ({"Authorization": "Bearer secret-1"}, {"x-api-key": "secret-2"}):
            assert k.request("POST", "/v1/completions", {"prompt": "a", "max_tokens": 1}, h)[0] == 200
        with open("keys", "w") as f:
            f.write("secret-4\n")
        k.process.send_signal(signal.SIGHUP)
        for _ in range(200):
            if k.request("GET", "/v1/models", headers={"Authorization": "Bearer secret-4"})[0] == 200:
                break
            time.sleep(0.01)
        assert k.request("GET", "/v1/models", headers={"Authorization": "Bearer secret-1"})[0] == 401
    finally:
        assert k.stop() == 0


@test
def unix_sockets():
    u = Server(ENGINE, "--listen", "unix:" + os.path.abspath("s.sock"), name="unix")
    with socket.socket(socket.AF_UNIX) as s:
        s.connect("s.sock")
        s.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert status_of(read_all(s)) == 200
    assert u.stop() == 0 and not os.path.exists("s.sock")


@test
def terminated_servers_finish_what_they_took():
    for round_ in range(5):
        d = Server(ENGINE, name="drain")
        got = []

        sent = threading.Semaphore(0)

        def one():
            body = json.dumps({"prompt": PROMPT, "max_tokens": 300, "ignore_eos": True, "seed": 1, "stream": True}).encode()
            with d.connect() as c:
                c.sendall(POST + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                sent.release()
                data = read_all(c)
            got.append(hashlib.sha256(b"".join(x[x.index(b'"text"'):] for x in data.split(b"\n\n") if b'"text"' in x)).digest())

        threads = [threading.Thread(target=one) for _ in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            sent.acquire()
        d.get("/health")  # connections are accepted in order: the six are
        d.process.send_signal(signal.SIGTERM)
        assert d.process.wait(60) == 0
        for t in threads:
            t.join(30)
        assert len(got) == 6 and len(set(got)) == 1, len(got)
        try:
            d.connect()
            raise AssertionError("it listens still")
        except ConnectionRefusedError:
            pass


@test
def a_second_signal_stops():
    d = Server(ENGINE, name="stop")
    s = d.connect()
    s.sendall(POST + b"Content-Length: %d\r\n\r\n" % len(long_body()) + long_body())
    s.recv(1)
    d.process.send_signal(signal.SIGTERM)
    time.sleep(0.01)
    d.process.send_signal(signal.SIGTERM)
    assert d.process.wait(20) == 0


@test
def health_within_a_moment():
    """Not a clock test: the process must answer before it has read anything of its weights."""
    c = http.client.HTTPConnection("127.0.0.1", S.port)
    c.request("GET", "/health")
    assert c.getresponse().read() == b'{"status":"ok"}'


@test
def the_dashboard_asks_for_what_there_is():
    """Every series that docs/serve/grafana.json names is exported, with the labels that it selects by."""
    page = S.request("GET", "/metrics")[2].decode()
    text = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/serve/grafana.json")).read()
    asked = set(re.findall(r"([a-z][a-z0-9_]*(?::[a-z0-9_]+)?)\{([^}]*)\}", "\n".join(x["expr"] for p in json.loads(text)["panels"] for x in p["targets"])))
    asked.add(("vllm:num_requests_running", "job,model_name="))
    assert len({name for name, _ in asked}) > 20
    for name, labels in asked:
        lines = [x for x in page.splitlines() if re.match(re.escape(name) + r"[{ ]", x)]
        assert lines, name
        assert "model_name" not in labels or all("model_name=" in x for x in lines), name
    assert set(re.findall(r"by \(([a-z_, ]+)\)", text)) <= {"le", "status", "finished_reason"}


@test
def the_log_has_every_request():
    lines = [json.loads(x) for x in open("access.log")]
    assert all({"time", "id", "method", "path", "status", "ms"} <= set(x) for x in lines)
    assert {200, 400, 404, 405, 413, 429, 431, 499} <= {x["status"] for x in lines}


@test
def goodbye():
    assert S.stop() == 0
    log = open("server.log").read()
    assert "ERROR" not in log and "rror:" not in log, log[-500:]


if __name__ == "__main__":
    code = run_all("")
    if S.process.poll() is None:
        S.process.kill()
    sys.exit(code)
