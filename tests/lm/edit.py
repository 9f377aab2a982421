#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""silu becomes gelu in the text of an imported model, and an engine's logits follow; for the suite `lm`.

usage: edit.py text IN.ir OUT.ir          the edit: both occurrences of x * sigmoid(x)
       edit.py ids                        a line of token ids
       edit.py check silu|gelu LOGITS     `logits --all --raw` of these ids against numpy in f64
"""
import math
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "gguf"))
import make_tiny as tiny  # noqa: E402
import make_model  # noqa: E402

IDS = [1, 300, 17, 264, 333, 280, 280, 9, 351, 310, 299, 302, 5, 370, 371, 388]


def text(source, target):
    """x * sigmoid(x) -> x * (0.5 * (1 + erf(x / sqrt 2)))"""
    lines, n = [], 0
    with open(source, encoding="utf-8") as f:
        for line in f:
            m = re.match(r"( *)(%\S+) = sigmoid (%\S+) : (f32\[.*?\])", line)
            if not m:
                lines.append(line)
                continue
            pad, y, x, kind = m.groups()
            n += 1
            for name, op, a, b in ((f"%s{n}", "mul", x, "%root_half"), (f"%e{n}", "erf", f"%s{n}", ""), (f"%p{n}", "add", f"%e{n}", "%unit"),
                                   (y, "mul", f"%p{n}", "%half")):
                lines.append(f"{pad}{name} = {op} {a}{', ' + b if b else ''} : {kind}\n")
    assert n == 2, n
    first = next(i for i, line in enumerate(lines) if " = constant " in line and line.startswith("    "))
    indent = re.match(" *", lines[first]).group()
    lines[first:first] = [f"{indent}%{k} = constant value=@{k} : f32[]\n" for k in ("root_half", "unit", "half")]
    func = next(i for i, line in enumerate(lines) if "func @main" in line)
    lines[func:func] = [f"  const @{k}: f32[] = [{v!r}]\n" for k, v in (("root_half", 0.5 ** 0.5), ("unit", 1.0), ("half", 0.5))]
    with open(target, "w", encoding="utf-8") as f:
        f.writelines(lines)


def reference(act):
    import numpy as np

    m = make_model.chat_model("chat")
    w = {name: np.frombuffer(data, np.float32).astype(np.float64).reshape(dims) for name, dims, number, data in m.tensors}
    n, d = len(IDS), m.head
    norm = lambda x, name: x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-5)) * w[name + ".weight"]  # noqa: E731
    angle = np.arange(n)[:, None, None] * 1000.0 ** (-np.arange(0, d, 2) / d)

    def rope(x):
        y = np.empty_like(x)
        y[..., 0::2] = x[..., 0::2] * np.cos(angle) - x[..., 1::2] * np.sin(angle)
        y[..., 1::2] = x[..., 0::2] * np.sin(angle) + x[..., 1::2] * np.cos(angle)
        return y

    x = w["token_embd.weight"][IDS]
    for il in range(m.layers):
        lin = lambda v, name: v @ w[f"blk.{il}.{name}.weight"].T  # noqa: B023,E731
        h = norm(x, f"blk.{il}.attn_norm")
        q, k, v = (lin(h, "attn_" + c).reshape(n, -1, d) for c in "qkv")
        k, v = (np.repeat(t, m.heads // m.kv, axis=1) for t in (rope(k), v))
        s = np.where(np.tri(n, dtype=bool), np.einsum("ihd,jhd->hij", rope(q), k) / d ** 0.5, -np.inf)
        s = np.exp(s - s.max(-1, keepdims=True))
        x = x + lin(np.einsum("hij,jhd->ihd", s / s.sum(-1, keepdims=True), v).reshape(n, -1), "attn_output")
        h = norm(x, f"blk.{il}.ffn_norm")
        g = lin(h, "ffn_gate")
        g = g / (1 + np.exp(-g)) if act == "silu" else g * 0.5 * (1 + np.vectorize(math.erf)(g / 2 ** 0.5))
        x = x + lin(g * lin(h, "ffn_up"), "ffn_down")
    return norm(x, "output_norm") @ w["token_embd.weight"].T


def check(act, path):
    import numpy as np

    want = reference(act)
    got = np.fromfile(path, np.float32).reshape(want.shape)
    worst = abs(got - want).max() / want.std()
    print(f"{act}: greatest difference {worst:.2e} of the spread")
    sys.exit(not worst <= 1e-4)


if __name__ == "__main__":
    if sys.argv[1] == "ids":
        print(*IDS)
    else:
        {"text": text, "check": check}[sys.argv[1]](*sys.argv[2:])
