#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/gguf/smollm2.txt: logits of SmolLM2-135M-Instruct (Q4_1) for ten tokens, in f64 on the dequantised weights.

  tokens T T T ...
  row POS LOGSUMEXP ID LOGIT ID LOGIT ...      the greatest 8 logits, then 24 spread over the vocabulary

Made with numpy and gguf 0.19.0. usage: smollm2_reference.py MODEL.gguf > tests/gguf/smollm2.txt
"""
import sys

import gguf
import numpy as np

TOKENS = [504, 3575, 282, 4649, 314, 253, 1839, 42, 12, 339]
reader = gguf.GGUFReader(sys.argv[1])
W = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float64) for t in reader.tensors}
key = lambda k: reader.fields["llama." + k].contents()
heads, kv_heads, layers = key("attention.head_count"), key("attention.head_count_kv"), key("block_count")
eps, base, d = key("attention.layer_norm_rms_epsilon"), key("rope.freq_base"), key("rope.dimension_count")


def rms(x, name):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * W[name + ".weight"]


def rope(x):  # pairs of neighbours
    a = np.arange(len(x))[:, None, None] * base ** (-np.arange(0, d, 2) / d)
    y = np.empty_like(x)
    y[..., 0::2] = x[..., 0::2] * np.cos(a) - x[..., 1::2] * np.sin(a)
    y[..., 1::2] = x[..., 0::2] * np.sin(a) + x[..., 1::2] * np.cos(a)
    return y


x = W["token_embd.weight"][TOKENS]
n = len(x)
for il in range(layers):
    lin = lambda v, name: v @ W[f"blk.{il}.{name}.weight"].T
    h = rms(x, f"blk.{il}.attn_norm")
    q, k, v = (lin(h, "attn_" + c).reshape(n, -1, d) for c in "qkv")
    k, v = (np.repeat(t, heads // kv_heads, axis=1) for t in (rope(k), v))
    s = np.einsum("ihd,jhd->hij", rope(q), k) / np.sqrt(d)
    s = np.where(np.tri(n, dtype=bool), s, -np.inf)
    s = np.exp(s - s.max(-1, keepdims=True))
    x = x + lin(np.einsum("hij,jhd->ihd", s / s.sum(-1, keepdims=True), v).reshape(n, -1), "attn_output")
    h = rms(x, f"blk.{il}.ffn_norm")
    g = lin(h, "ffn_gate")
    x = x + lin(g / (1 + np.exp(-g)) * lin(h, "ffn_up"), "ffn_down")
logits = rms(x, "output_norm") @ W["token_embd.weight"].T
print("tokens", *TOKENS)
for pos in range(n):
    top = list(np.argsort(-logits[pos])[:8])
    ids = top + [int(i) for i in np.linspace(0, logits.shape[1] - 1, 24)]
    lse = logits[pos].max() + np.log(np.exp(logits[pos] - logits[pos].max()).sum())
    print("row", pos, f"{lse:.8g}", *(f"{i} {logits[pos][i]:.8g}" for i in ids))
