#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/gguf/kv.txt: outputs of tiny llama models whose KV cache is stored in other forms, simulated in f32 by numpy.

Made with numpy and gguf 0.19.0; written from the description of the forms in docs/gguf.md. Attention sees K and V as stored.

usage: kv_reference.py FOLDER-OF-GGUF > tests/gguf/kv.txt
"""
import random
import sys

import gguf
import ml_dtypes
import numpy as np

VOCAB = 48


def blocks(x):
    d = x.shape[-1]
    return x.reshape(*x.shape[:-1], -1, d if d % 32 else 32)


def q8(x):
    b = blocks(x)
    d = np.minimum(np.abs(b).max(-1, keepdims=True) / np.float32(127), np.float32(65504)).astype(np.float16).astype(np.float32)
    with np.errstate(divide="ignore", invalid="ignore"):
        inv = np.where(d == 0, np.float32(0), np.float32(1) / d)
    return (np.clip(np.rint(b * inv), -127, 127) * d).reshape(x.shape)


def q4(x):
    b = blocks(x)
    top, low = b.max(-1, keepdims=True), b.min(-1, keepdims=True)
    d = np.clip(np.where(top > -low, top, low) / np.float32(-8), -65504, 65504).astype(np.float16).astype(np.float32)
    with np.errstate(divide="ignore", invalid="ignore"):
        inv = np.where(d == 0, np.float32(0), np.float32(1) / d)
    return (np.clip(np.rint(b * inv), -8, 7) * d).reshape(x.shape)


def f8(x):
    return np.clip(x, -448, 448).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)


FORMS = {"f32": lambda x: x, "bf16": lambda x: x.astype(ml_dtypes.bfloat16).astype(np.float32), "q8": q8, "q4": q4, "f8": f8}


class Model:
    def __init__(self, path):
        r = gguf.GGUFReader(path)
        self.w = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32) for t in r.tensors}
        key = lambda k, default=None: r.fields["llama." + k].contents() if "llama." + k in r.fields else default  # noqa: E731
        self.layers, self.heads, self.kv = key("block_count"), key("attention.head_count"), key("attention.head_count_kv")
        self.eps, self.base, self.d = np.float32(key("attention.layer_norm_rms_epsilon")), key("rope.freq_base"), key("rope.dimension_count")

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.w[name + ".weight"]

    def rope(self, x):  # pairs of neighbours
        a = (np.arange(len(x))[:, None, None] * self.base ** (-np.arange(0, self.d, 2) / self.d)).astype(np.float32)
        y = np.empty_like(x)
        y[..., 0::2] = x[..., 0::2] * np.cos(a) - x[..., 1::2] * np.sin(a)
        y[..., 1::2] = x[..., 0::2] * np.sin(a) + x[..., 1::2] * np.cos(a)
        return y

    def run(self, tokens, form):
        n, x = len(tokens), self.w["token_embd.weight"][tokens]
        for il in range(self.layers):
            lin = lambda v, name: v @ self.w[f"blk.{il}.{name}.weight"].T  # noqa: B023,E731
            h = self.norm(x, f"blk.{il}.attn_norm")
            q, k, v = (lin(h, "attn_" + c).reshape(n, -1, self.d) for c in "qkv")
            k, v = (np.repeat(form(t), self.heads // self.kv, axis=1) for t in (self.rope(k), v))
            s = np.einsum("ihd,jhd->hij", self.rope(q), k) / np.sqrt(np.float32(self.d))
            s = np.where(np.tri(n, dtype=bool), s, -np.inf)
            s = np.exp(s - s.max(-1, keepdims=True))
            x = x + lin(np.einsum("hij,jhd->ihd", s / s.sum(-1, keepdims=True), v).reshape(n, -1), "attn_output")
            h = self.norm(x, f"blk.{il}.ffn_norm")
            g = lin(h, "ffn_gate")
            x = x + lin(g / (1 + np.exp(-g)) * lin(h, "ffn_up"), "ffn_down")
        out = self.w.get("output.weight", self.w["token_embd.weight"])
        return self.norm(x, "output_norm") @ out.T


def main():
    for name in ("llama", "llama-wide"):
        m = Model(f"{sys.argv[1]}/{name}.gguf")
        rng = random.Random(name)
        seqs = [[rng.randrange(2, VOCAB) for _ in range(n)] for n in (40, 6)]
        for form, fn in FORMS.items():
            print(f"model {name}:{form}")
            for i, tokens in enumerate(seqs):
                print("tokens", i, *tokens)
            for seq, pos in ((0, 39), (0, 2), (0, 33), (1, 5)):
                logits = m.run(seqs[seq], fn)
                print("row", seq, pos, *(f"{v:.7g}" for v in logits[pos]))


main()
