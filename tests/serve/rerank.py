#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""/v1/rerank against BERT computed here, in double precision from the model file: rerank.py RANKER ENCODER RANKER.gguf"""
import math
import sys

from common import Server, read_tensors, run_all, test

HEADS, EPS = 4, 1e-12
QUERY = "robot"
TEXTS = ["city", "a robot is in the city", "robot robot", "", "quite another thing", "city"]


W = read_tensors(sys.argv[3])
R, E = Server(sys.argv[1], "--any-model", name="ranker"), Server(sys.argv[2], "--any-model", name="no-ranker")


def rows(name):
    (n, k), v = W[name]
    return [v[i * k:(i + 1) * k] for i in range(n)]


def linear(x, name):
    bias = W[name + ".bias"][1]
    return [[sum(a * b for a, b in zip(r, w)) + c for w, c in zip(rows(name + ".weight"), bias)] for r in x]


def norm(x, name):
    g, b = W[name + ".weight"][1], W[name + ".bias"][1]
    out = []
    for r in x:
        mean = sum(r) / len(r)
        scale = 1 / math.sqrt(sum((v - mean) ** 2 for v in r) / len(r) + EPS)
        out.append([(v - mean) * scale * p + q for v, p, q in zip(r, g, b)])
    return out


def add(x, y):
    return [[a + b for a, b in zip(r, s)] for r, s in zip(x, y)]


def attend(x, p):
    q, k, v = (linear(x, p + n) for n in ("attn_q", "attn_k", "attn_v"))
    size, out = len(q[0]) // HEADS, [[] for _ in x]
    for h in range(HEADS):
        part = slice(h * size, (h + 1) * size)
        for i, r in enumerate(q):
            s = [math.exp(sum(a * b for a, b in zip(r[part], c[part])) / math.sqrt(size)) for c in k]
            out[i] += [sum(a * c[j] for a, c in zip(s, v)) / sum(s) for j in range(*part.indices(len(r)))]
    return linear(out, p + "attn_output")


def score(ids, types):
    """BertForSequenceClassification: embeddings, layers with norms behind the sums, pooler, classifier."""
    word, kind, place = rows("token_embd.weight"), rows("token_types.weight"), rows("position_embd.weight")
    x = norm([[a + b + c for a, b, c in zip(word[t], kind[y], place[i])] for i, (t, y) in enumerate(zip(ids, types))], "token_embd_norm")
    for il in range(2):
        p = f"blk.{il}."
        x = norm(add(x, attend(x, p)), p + "attn_output_norm")
        up = [[v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in r] for r in linear(x, p + "ffn_up")]
        x = norm(add(x, linear(up, p + "ffn_down")), p + "layer_output_norm")
    return linear([[math.tanh(v) for v in linear(x[:1], "cls")[0]]], "cls.output")[0][0]


def pair(query, text):
    """[CLS] query [SEP] text [SEP], of types 0 and 1."""
    a, b = (R.post("/tokenize", {"content": t})["tokens"] for t in (query, text))
    return [2] + a + [3] + b + [3], [0] * (len(a) + 2) + [1] * (len(b) + 1)


def expected():
    return [score(*pair(QUERY, t)) for t in TEXTS]


@test
def scores_are_the_models():
    want = expected()
    assert len({round(x, 3) for x in want}) == len(TEXTS) - 1  # they differ, but for the text that is there twice
    r = R.post("/v1/rerank", {"model": "any", "query": QUERY, "documents": TEXTS})
    got = {x["index"]: x["relevance_score"] for x in r["results"]}
    worst = max(abs(got[i] - x) for i, x in enumerate(want))
    print(f"| scores differ from the computation by {worst:.1e} at most")
    assert worst < 2e-6, (got, want)  # the engine keeps keys and values in f32
    order = sorted(range(len(TEXTS)), key=lambda i: (-got[i], i))
    assert [x["index"] for x in r["results"]] == order and got[0] == got[5]
    tokens = sum(len(pair(QUERY, t)[0]) for t in TEXTS)
    assert r["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens} and r["object"] == "list" and r["model"], r
    # types matter: with all of type 0 the scores would be others
    assert all(abs(score(p[0], [0] * len(p[0])) - want[i]) > 1e-3 for i, p in enumerate(pair(QUERY, t) for t in TEXTS))


@test
def every_way_of_asking():
    whole = R.post("/v1/rerank", {"query": QUERY, "documents": TEXTS})["results"]
    for path in ("/rerank", "/v2/rerank", "/reranking", "/v1/reranking"):
        assert R.post(path, {"query": QUERY, "documents": [{"text": t} for t in TEXTS]})["results"] == whole
    top = R.post("/v1/rerank", {"query": QUERY, "documents": TEXTS, "top_n": 2, "return_documents": True})["results"]
    assert [{k: x[k] for k in ("index", "relevance_score")} for x in top] == whole[:2]
    assert [x["document"]["text"] for x in top] == [TEXTS[x["index"]] for x in whole[:2]]
    bare = R.post("/rerank", {"query": QUERY, "texts": TEXTS, "return_text": True})
    assert bare == [{"index": x["index"], "score": x["relevance_score"], "text": TEXTS[x["index"]]} for x in whole]
    soft = R.post("/v1/rerank", {"query": QUERY, "documents": TEXTS, "use_activation": True})["results"]
    assert all(abs(a["relevance_score"] - 1 / (1 + math.exp(-b["relevance_score"]))) < 1e-6 for a, b in zip(soft, whole))
    # neighbours change nothing
    for x in whole:
        assert R.post("/v1/rerank", {"query": QUERY, "documents": [TEXTS[x["index"]]]})["results"][0]["relevance_score"] == x["relevance_score"]


@test
def what_is_refused():
    good = {"query": QUERY, "documents": TEXTS}
    for more, param in (({"query": None}, "query"), ({"query": 3}, "query"), ({"documents": []}, "documents"), ({"documents": "a"}, "documents"),
                        ({"documents": [3]}, "documents"), ({"documents": [{"txt": "a"}]}, "documents"), ({"top_n": 0}, "top_n"),
                        ({"top_n": "2"}, "top_n"), ({"return_documents": 1}, "return_documents"), ({"best": 1}, "best"),
                        ({"documents": ["a b " * 1000]}, "documents"), ({"documents": ["a"] * 3000}, "documents")):
        assert R.post("/v1/rerank", {**good, **more}, 400)["error"]["param"] == param, more
    assert "rerank" in R.post("/v1/embeddings", {"input": "a"}, 501)["error"]["message"]
    assert "embeddings" in E.post("/v1/rerank", good, 501)["error"]["message"]


@test
def it_is_counted():
    before = R.metrics()["vllm:prompt_tokens_total"]
    n = R.post("/v1/rerank", {"query": QUERY, "documents": TEXTS})["usage"]["total_tokens"]
    assert R.metrics()["vllm:prompt_tokens_total"] == before + n
    assert R.stop() == 0 and E.stop() == 0


if __name__ == "__main__":
    sys.exit(run_all("rerank-"))
