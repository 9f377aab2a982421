#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How far engines of a language model are from a float reference on the same dequantised weights.

usage: accuracy.py MODEL.gguf --text FILE... [--positions N] [limits] ENGINE...

The reference is numpy in f32, written for llama and gemma3. Each text is one window of N / texts tokens (2,000 positions in
all without --positions). For each engine a line: mean and greatest KL divergence from the reference, positions whose most probable
token is the same, and perplexity against the reference's. Limits (--kl, --top1, --ppl, the last in percent) make the exit
status; without them it is 0.

Needs numpy and gguf; nothing of the compiler.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import gguf
import numpy as np

ROWS = 64  # of logits at a time


class Model:
    def __init__(self, path):
        r = gguf.GGUFReader(path)
        self.raw = {t.name: t for t in r.tensors}
        self.arch = r.fields["general.architecture"].contents()
        self.key = lambda k, d=None: r.fields[f"{self.arch}.{k}"].contents() if f"{self.arch}.{k}" in r.fields else d
        if self.arch not in ("llama", "gemma3"):
            sys.exit(f"no reference for {self.arch}")
        if self.key("rope.scaling.type", "none") != "none" or "rope_freqs.weight" in self.raw:
            sys.exit("no reference for scaled rotations")
        self.gemma = self.arch == "gemma3"
        self.heads, self.kv = self.key("attention.head_count"), self.key("attention.head_count_kv")
        self.width, self.layers = self.key("embedding_length"), self.key("block_count")
        self.d = self.key("attention.key_length", self.width // self.heads)
        self.eps = np.float32(self.key("attention.layer_norm_rms_epsilon"))
        self.window = self.key("attention.sliding_window", 0)

    def w(self, name):
        t = self.raw[name + ".weight"]
        return gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32)

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.w(name)

    def rope(self, x, base):
        i = np.arange(0, self.d, 2) / self.d
        a = np.arange(len(x))[:, None, None] * float(base) ** -i
        c, s = np.cos(a).astype(np.float32), np.sin(a).astype(np.float32)
        y = np.empty_like(x)
        lo, hi = (slice(0, self.d // 2), slice(self.d // 2, None)) if self.gemma else (slice(0, None, 2), slice(1, None, 2))
        y[..., lo] = x[..., lo] * c - x[..., hi] * s
        y[..., hi] = x[..., lo] * s + x[..., hi] * c
        return y

    def attend(self, q, k, v, window, scale):
        """A head at a time: 2,000 positions squared are enough."""
        n = len(q)
        see = np.tri(n, dtype=bool)
        if window:
            see &= ~np.tri(n, k=-window, dtype=bool)
        out = np.empty_like(q)
        for h in range(self.heads):
            g = h // (self.heads // self.kv)
            s = np.where(see, q[:, h] @ k[:, g].T * np.float32(scale), np.float32(-np.inf))
            s = np.exp(s - s.max(-1, keepdims=True))
            out[:, h] = s @ v[:, g] / s.sum(-1, keepdims=True)
        return out.reshape(n, -1)

    def hidden(self, tokens):
        """Rows before the output matrix."""
        n, x = len(tokens), self.w("token_embd")[tokens]
        if self.gemma:
            x = x * np.float32(self.width ** 0.5)
        for il in range(self.layers):
            p = f"blk.{il}."
            lin = lambda v, name: v @ self.w(p + name).T  # noqa: B023,E731
            local = self.gemma and self.window and (il + 1) % 6 != 0
            base = 10000.0 if local else self.key("rope.freq_base", 10000.0)
            h = self.norm(x, p + "attn_norm")
            q, k, v = (lin(h, "attn_" + c).reshape(n, -1, self.d) for c in "qkv")
            if self.gemma:
                q, k = self.norm(q, p + "attn_q_norm"), self.norm(k, p + "attn_k_norm")
            a = self.attend(self.rope(q, base), self.rope(k, base), v, self.window if local else 0, self.d ** -0.5)
            a = lin(a, "attn_output")
            x = x + (self.norm(a, p + "post_attention_norm") if self.gemma else a)
            h = self.norm(x, p + "ffn_norm")
            g = lin(h, "ffn_gate")
            if self.gemma:
                act = 0.5 * g * (1 + np.tanh(np.float32((2 / np.pi) ** 0.5) * (g + np.float32(0.044715) * g ** 3)))
            else:
                act = g / (1 + np.exp(-g))
            f = lin(act * lin(h, "ffn_up"), "ffn_down")
            x = x + (self.norm(f, p + "post_ffw_norm") if self.gemma else f)
        return self.norm(x, "output_norm")

    def head(self):
        return self.w("output" if "output.weight" in self.raw else "token_embd")


def log_softmax(x):
    x = x.astype(np.float64)
    x -= x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def tokens_of(engine, text):
    out = subprocess.run([engine, "tokenize", "--json", "--no-eos", "--file", text], stdout=subprocess.PIPE, check=True).stdout
    return json.loads(out)["tokens"]


def judge(engine, options, windows, head):
    """One engine against the reference's rows: sums over all positions."""
    kls, same, nll, ref_nll = [], 0, [], []
    for tokens, hidden in windows:
        with tempfile.NamedTemporaryFile("w", suffix=".ids") as f:
            f.write(" ".join(map(str, tokens)) + "\n")
            f.flush()
            args = [engine, "logits", f.name, "--all", "--raw", "--quiet", "--ctx", str(len(tokens) + 1), *options]
            run = subprocess.Popen(args, stdout=subprocess.PIPE)
            for at in range(0, len(tokens), ROWS):
                ref = log_softmax(hidden[at:at + ROWS] @ head.T)
                want = ref.shape[0] * ref.shape[1] * 4
                data = run.stdout.read(want)
                if len(data) != want:
                    sys.exit(f"{engine}: {run.wait()}: {len(data)} bytes in place of {want}")
                got = log_softmax(np.frombuffer(data, np.float32).reshape(ref.shape))
                p = np.exp(ref)
                kls += list((p * (ref - got)).sum(-1))
                same += int((ref.argmax(-1) == got.argmax(-1)).sum())
                for i in range(len(ref)):
                    if at + i + 1 < len(tokens):
                        nll.append(-got[i, tokens[at + i + 1]])
                        ref_nll.append(-ref[i, tokens[at + i + 1]])
            if run.stdout.read(1) or run.wait():
                sys.exit(f"{engine}: more output than rows, or exit status {run.returncode}")
    return {"positions": len(kls), "mean_kl": float(np.mean(kls)), "max_kl": float(np.max(kls)), "top1": same / len(kls),
            "ppl": float(np.exp(np.mean(nll))), "reference_ppl": float(np.exp(np.mean(ref_nll)))}


def kept(a, key, compute):
    """The reference's rows from the file of --reference, if they are of the same model and texts; else computed and put there."""
    if a.reference and os.path.exists(a.reference):
        with np.load(a.reference) as f:
            if str(f["key"]) == key:
                return [(f[f"tokens{i}"].tolist(), f[f"hidden{i}"]) for i in range(len(a.text))]
    windows = compute()
    if a.reference:
        parts = {f"{name}{i}": v for i, w in enumerate(windows) for name, v in zip(("tokens", "hidden"), w)}
        np.savez(a.reference, key=key, **parts)
    return windows


def references(a):
    m = Model(a.model)
    key = json.dumps([os.path.realpath(a.model), os.path.getsize(a.model), a.text, a.positions])
    return kept(a, key, lambda: compute_references(a, m)), m.head()


def compute_references(a, m):
    each, windows = a.positions // len(a.text), []
    for path in a.text:
        tokens = tokens_of(a.engine[0], path)[:each]
        if len(tokens) < each:
            print(f"note: {path} has {len(tokens)} tokens, not {each}", file=sys.stderr)
        start = time.time()
        windows.append((tokens, m.hidden(np.array(tokens))))
        print(f"reference of {len(tokens)} tokens: {time.time() - start:.1f} s", file=sys.stderr)
    return windows


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("engine", nargs="+")
    p.add_argument("--text", action="append", required=True)
    p.add_argument("--positions", type=int, default=2000)
    p.add_argument("--reference", help="a file that keeps the reference for other engines of the model (.npz)")
    p.add_argument("--kl", type=float, default=np.inf)
    p.add_argument("--top1", type=float, default=0)
    p.add_argument("--ppl", type=float, default=np.inf, help="percent")
    p.add_argument("--option", action="append", default=[], help="of the engine, such as --option=--isa=v3")
    a = p.parse_args()
    a.engine = [os.path.abspath(e) for e in a.engine]
    windows, head = references(a)
    ok = True
    for engine in a.engine:
        r = judge(engine, a.option, windows, head)
        off = 100 * abs(r["ppl"] / r["reference_ppl"] - 1)
        good = r["mean_kl"] <= a.kl and r["top1"] >= a.top1 and off <= a.ppl
        ok = ok and good
        print(f"{os.path.basename(engine)}: {r['positions']} positions, mean KL {r['mean_kl']:.3g}, greatest {r['max_kl']:.3g}, top-1 {100 * r['top1']:.2f}%, "
              f"perplexity {r['ppl']:.4f} (reference {r['reference_ppl']:.4f}, {off:.4f}% off){'' if good else '  MISSES'}", flush=True)
    sys.exit(not ok)


if __name__ == "__main__":
    main()
