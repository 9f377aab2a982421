#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Looks at what text commands print; the suite `lm` says how it is called. Exits with 1 when something is wrong."""
import json
import math
import sys


def load(path=None):
    if path is None:
        return json.load(sys.stdin)
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def near(a, b, tolerance=1e-5):
    assert abs(a - b) <= tolerance * max(1, abs(b)), (a, b)


def answers():
    """A line a choice: everything but times. The books must balance."""
    d = load()
    total = sum(len(c["tokens"]) for c in d["choices"])
    assert d["usage"]["completion_tokens"] == total, d["usage"]
    assert d["usage"]["total_tokens"] == d["usage"]["prompt_tokens"] + total
    assert d["timings"]["ttft_ms"] > 0
    for c in d["choices"]:
        for t in c.get("logprobs", []):
            tops = [x["logprob"] for x in t["top"]]
            assert tops == sorted(tops, reverse=True) and all(t["logprob"] <= tops[0] for _ in tops)
            assert t["logprob"] <= 0
        if "logprobs" in c:
            assert [t["id"] for t in c["logprobs"]] == c["tokens"]
        del c["index"]
        print(json.dumps(c, sort_keys=True))


def perplexity(a, b):
    rows = load(a)["choices"][0]["prompt_logprobs"]
    d = load(b)
    assert d["tokens"] == len(rows), (d["tokens"], len(rows))
    near(d["nll"], -sum(r["logprob"] for r in rows) / len(rows))
    near(d["perplexity"], math.exp(d["nll"]))
    assert d["windows"] == 1


def count():
    d = load()
    assert d["count"] == len(d["tokens"]) == len(d["pieces"])
    print(d["count"])


def counted(n):
    d = load()
    assert d["tokens"] == int(n), (d["tokens"], n)


def text(line, plain):
    with open(line, encoding="utf-8") as f:
        want = json.loads(f.readline())["text"]
    with open(plain, encoding="utf-8", newline="") as f:
        assert f.read() == want + "\n"


def stop(plain):
    with open(plain, encoding="utf-8", newline="") as f:
        s = f.read()[:-1]
    parts = (s[i:i + 3] for i in range(len(s) // 3, len(s) - 3))
    print(next(p for p in parts if p.isprintable() and p.strip() == p and "\ufffd" not in p), end="")


def stopped(plain, stop_file, short):
    texts = []
    for path in (plain, stop_file, short):
        with open(path, encoding="utf-8", newline="") as f:
            texts.append(f.read())
    whole, end, got = texts
    assert got == whole[:whole.index(end)] + "\n", (got, whole, end)


def tokens(*ids):
    assert load()["choices"][0]["tokens"] == [int(i) for i in ids]


def without(*ids):
    got = load()["choices"][0]["tokens"]
    assert len(got) == 30 and not set(got) & {int(i) for i in ids}


def embeddings(a, b, c):
    one = load(a)["data"]
    raw = load(b)["data"]
    with open(c, encoding="utf-8") as f:
        lines = [[float(x) for x in row.split()] for row in f]
    assert len(one) == 1 and len(raw) == 3 and len(lines) == 3
    near(sum(x * x for x in one[0]["embedding"]), 1)
    assert one[0]["embedding"] == lines[0]
    for d, row in zip(raw, lines):
        length = math.sqrt(sum(x * x for x in d["embedding"]))
        for x, y in zip(d["embedding"], row):
            near(x / length, y)
    assert raw[0]["tokens"] == 4 and raw[1]["tokens"] == 3 and raw[2]["tokens"] == 2  # with [CLS] and [SEP]


def bench(batch, prompt, generated):
    d = load()
    assert (d["batch"], d["prompt_tokens"], d["generated_tokens"]) == (int(batch), int(prompt), int(generated))
    assert all(d[k] > 0 for k in ("prefill_tok_s", "decode_tok_s", "ttft_ms", "kv_bytes_a_token"))
    # pages of 32 tokens: every answer at its longest
    assert d["most_pages"] == int(batch) * -(-(int(prompt) + int(generated)) // 32), d["most_pages"]


def profile(runs):
    d = load()
    assert d["runs"] == int(runs), d["runs"]
    assert all(x["calls"] in (0, int(runs)) for x in d["launches"]) and any(x["calls"] for x in d["launches"])


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
