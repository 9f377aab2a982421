#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tiny language models with random weights as GGUF files: the same bytes on every machine, no package needed.

usage: make_tiny.py MODEL OUT.gguf        one model
       make_tiny.py --all FOLDER          all of them, as FOLDER/MODEL.gguf
       make_tiny.py --list
"""
import random
import struct
import sys

U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARR, U64, I64, F64 = range(13)
CODE = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q", I64: "q", F64: "d"}
# tensor types: number, elements and bytes a block, and where its f16 fields lie
TYPES = {"f32": (0, 1, 4, ()), "f16": (1, 1, 2, ()), "bf16": (30, 1, 2, ()), "q4_0": (2, 32, 18, (0,)), "q4_1": (3, 32, 20, (0, 2)),
         "q5_0": (6, 32, 22, (0,)), "q5_1": (7, 32, 24, (0, 2)), "q8_0": (8, 32, 34, (0,)), "iq4_nl": (20, 32, 18, (0,)),
         "mxfp4": (39, 32, 17, ()), "tq2_0": (35, 256, 66, (64,)), "q6_K": (14, 256, 210, (208,)), "q4_K": (12, 256, 144, (0, 2))}
VOCAB, WIDTH, HEADS, KV_HEADS, FF, CONTEXT = 48, 32, 4, 2, 64, 64


ORDER = "<"  # of the file that is being written


def string(s):
    b = s.encode()
    return struct.pack(ORDER + "Q", len(b)) + b


def value(kind, v):
    if kind == STR:
        return string(v)
    if kind == ARR:
        return struct.pack(ORDER + "IQ", v[0], len(v[1])) + b"".join(value(v[0], x) for x in v[1])
    return struct.pack(ORDER + CODE[kind], v)


class Model:
    """Metadata and tensors as they are added; dims are given outermost first."""

    def __init__(self, name, arch):
        self.name, self.arch, self.kvs, self.tensors = name, arch, [("general.architecture", STR, arch)], []

    def key(self, name, kind, v):
        self.kvs.append((f"{self.arch}.{name}", kind, v))

    def add(self, name, *dims, kind="f32", mean=0.0, spread=None):
        """Uniform around mean; the default spread keeps sums over the last dim near 1."""
        rng = random.Random(f"{self.name}/{name}")
        n = 1
        for d in dims:
            n *= d
        spread = spread if spread is not None else (3.0 / dims[-1]) ** 0.5
        number, block, size, fields = TYPES[kind]
        draw = lambda: mean + spread * (2 * rng.random() - 1)
        if kind == "f32":
            data = struct.pack(f"<{n}f", *(draw() for _ in range(n)))
        elif kind == "f16":
            data = struct.pack(f"<{n}e", *(draw() for _ in range(n)))
        elif kind == "bf16":
            data = b"".join(struct.pack("<f", draw())[2:] for _ in range(n))
        else:
            data = bytearray()
            for _ in range(n // block):
                b = bytearray(rng.getrandbits(8) for _ in range(size))
                for i, at in enumerate(fields):  # a step, then a minimum below zero
                    b[at:at + 2] = struct.pack("<e", spread / 8 * (0.5 + rng.random()) * (1 if i == 0 else -7))
                if kind == "q8_0":
                    b[0:2] = struct.pack("<e", spread / 128)
                if kind == "q6_K":
                    b[208:210] = struct.pack("<e", spread / 2000)
                if kind == "q4_K":
                    b[0:4] = struct.pack("<ee", spread / 300, spread / 300)
                if kind == "mxfp4":
                    b[0] = 124
                data += b
        self.tensors.append((name, dims, number, bytes(data)))

    def norm(self, name, n, bias=False):
        self.add(name + ".weight", n, mean=1.0, spread=0.3)
        if bias:
            self.add(name + ".bias", n, spread=0.2)

    def linear(self, name, rows, cols, bias=False, kind="f32"):
        self.add(name + ".weight", rows, cols, kind=kind)
        if bias:
            self.add(name + ".bias", rows, spread=0.2)

    def bytes(self, big=False, part=None, of=1):
        """The file, or one of several parts: tensors in turn; metadata in the first, but for the numbers of the parts. Big-endian only for f32."""
        global ORDER
        ORDER = ">" if big else "<"
        mine = [t for i, t in enumerate(self.tensors) if part is None or i * of // len(self.tensors) == part]
        kvs = self.kvs if not part else []
        if part is not None:
            kvs = kvs + [("split.no", U16, part), ("split.count", U16, of), ("split.tensors.count", I32, len(self.tensors))]
        head = b"GGUF" + struct.pack(ORDER + "IQQ", 3, len(mine), len(kvs))
        for k, t, v in kvs:
            head += string(k) + struct.pack(ORDER + "I", t) + value(t, v)
        blob = b""
        for name, dims, number, data in mine:
            head += string(name) + struct.pack(ORDER + "I", len(dims)) + b"".join(struct.pack(ORDER + "Q", d) for d in reversed(dims))
            head += struct.pack(ORDER + "IQ", number, len(blob))
            if big:
                assert number == 0
                data = struct.pack(f">{len(data) // 4}f", *struct.unpack(f"<{len(data) // 4}f", data))
            blob += data + b"\0" * (-len(data) % 32)
        return head + b"\0" * (-len(head) % 32) + blob


def begin(name, arch, layers=2, eps_rms=True, heads=HEADS, kv=KV_HEADS, ff=FF, width=WIDTH, eps=1e-5):
    m = Model(name, arch)
    m.layers, m.heads, m.kv, m.ff, m.width, m.head = layers, heads, kv, ff, width, width // heads
    m.key("block_count", U32, layers)
    m.key("context_length", U32, CONTEXT)
    m.key("embedding_length", U32, width)
    m.key("feed_forward_length", U32, ff)
    m.key("attention.head_count", U32, heads)
    m.key("attention.head_count_kv", U32, kv)
    m.key("attention.layer_norm_rms_epsilon" if eps_rms else "attention.layer_norm_epsilon", F32, eps)
    return m


def embed(m, tied=False, bias=False, kind="f32", norm_bias=False):
    # With tied embeddings the head's rows are these: smaller, or the last token would always win.
    m.add("token_embd.weight", VOCAB, m.width, kind=kind, spread=0.5)
    m.norm("output_norm", m.width, norm_bias)
    if not tied:
        m.linear("output", VOCAB, m.width, bias, kind)


def attention(m, il, bias=False, out_bias=None, head_norm=None, fused=False, kinds=("f32",) * 4):
    p, q, k, v = f"blk.{il}.", m.heads * m.head, m.kv * m.head, m.kv * m.head
    if fused:
        m.linear(p + "attn_qkv", q + k + v, m.width, bias, kinds[0])
    else:
        for name, rows, kind in (("attn_q", q, kinds[0]), ("attn_k", k, kinds[1]), ("attn_v", v, kinds[2])):
            m.linear(p + name, rows, m.width, bias, kind)
    if head_norm == "head":
        m.norm(p + "attn_q_norm", m.head)
        m.norm(p + "attn_k_norm", m.head)
    if head_norm == "row":
        m.norm(p + "attn_q_norm", q)
        m.norm(p + "attn_k_norm", k)
    m.linear(p + "attn_output", m.width, q, bias if out_bias is None else out_bias, kinds[3])


def ffn(m, il, gate=True, bias=False, fused=False, kinds=("f32",) * 3):
    p = f"blk.{il}."
    if gate and not fused:
        m.linear(p + "ffn_gate", m.ff, m.width, bias, kinds[0])
    m.linear(p + "ffn_up", m.ff * (2 if fused else 1), m.width, bias, kinds[1])
    m.linear(p + "ffn_down", m.width, m.ff, bias, kinds[2])


def moe(m, il, n, used, ff, shared=0, shared_gate=False, bias=False, kind="f32"):
    p = f"blk.{il}."
    m.linear(p + "ffn_gate_inp", n, m.width)
    m.add(p + "ffn_gate_exps.weight", n, ff, m.width, kind=kind)
    m.add(p + "ffn_up_exps.weight", n, ff, m.width, kind=kind)
    m.add(p + "ffn_down_exps.weight", n, m.width, ff, kind=kind)
    if shared:
        m.linear(p + "ffn_gate_shexp", shared, m.width)
        m.linear(p + "ffn_up_shexp", shared, m.width)
        m.linear(p + "ffn_down_shexp", m.width, shared)
    if shared_gate:
        m.add(p + "ffn_gate_inp_shexp.weight", m.width)
    if bias:
        m.add(p + "exp_probs_b.bias", n, spread=0.2)


def moe_keys(m, n, used, ff):
    m.key("expert_count", U32, n)
    m.key("expert_used_count", U32, used)
    m.key("expert_feed_forward_length", U32, ff)


def norms(m, il, bias=False, names=("attn_norm", "ffn_norm")):
    for n in names:
        m.norm(f"blk.{il}.{n}", m.width, bias)


# ---- the models ----

MODELS = {}


def model(f):
    MODELS[f.__name__.replace("_", "-")] = f
    return f


def llama_like(name, arch="llama", tied=False, kinds=None, experts=0, **more):
    m = begin(name, arch)
    m.key("rope.freq_base", F32, 1000.0)
    m.key("rope.dimension_count", U32, m.head)
    embed(m, tied, kind=kinds[0] if kinds else "f32")
    for il in range(m.layers):
        norms(m, il)
        k = kinds[1 + il] if kinds else ("f32",) * 7
        attention(m, il, kinds=k[:4], **more)
        if experts:
            moe(m, il, experts, 2, m.ff)
        else:
            ffn(m, il, kinds=k[4:])
    return m


@model
def llama():
    return llama_like("llama", tied=True)


@model
def llama_quantised():
    return llama_like("llama-quantised", kinds=("q8_0", ("q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl", "mxfp4", "f16"),
                                                ("bf16", "q8_0", "q4_1", "q4_0", "q8_0", "q5_1", "q5_0")))


@model
def llama_k():  # rows of 256 elements
    m = begin("llama-k", "llama", layers=1, heads=8, kv=2, width=256, ff=256)
    m.key("rope.dimension_count", U32, m.head)
    embed(m, True, kind="q6_K")
    norms(m, 0)
    attention(m, 0, kinds=("q4_K", "q6_K", "tq2_0", "q4_K"))
    ffn(m, 0, kinds=("tq2_0", "q4_K", "q6_K"))
    return m


@model
def llama_wide():  # heads of 64 elements: two blocks of a cache in q8 and q4
    m = begin("llama-wide", "llama", heads=4, kv=2, width=256)
    m.key("rope.freq_base", F32, 1000.0)
    m.key("rope.dimension_count", U32, m.head)
    embed(m, True)
    for il in range(m.layers):
        norms(m, il)
        attention(m, il)
        ffn(m, il)
    return m


@model
def llama_linear():
    m = llama_like("llama-linear")
    m.key("rope.scaling.type", STR, "linear")
    m.key("rope.scaling.factor", F32, 2.5)
    return m


@model
def llama_3():
    m = llama_like("llama-3")
    m.add("rope_freqs.weight", m.head // 2, mean=3.0, spread=2.0)
    return m


@model
def llama_yarn():
    m = llama_like("llama-yarn")
    m.key("rope.scaling.type", STR, "yarn")
    m.key("rope.scaling.factor", F32, 4.0)
    m.key("rope.scaling.original_context_length", U32, 32)
    return m


@model
def mixtral():
    m = llama_like("mixtral", experts=4)
    moe_keys(m, 4, 2, m.ff)
    return m


@model
def smollm3():
    m = begin("smollm3", "smollm3", layers=4)
    m.key("rope.dimension_count", U32, m.head)
    embed(m, True)
    for il in range(m.layers):
        norms(m, il)
        attention(m, il)
        ffn(m, il)
    return m


@model
def qwen2():
    return llama_like("qwen2", "qwen2", bias=True, out_bias=False)


@model
def qwen3():
    m = begin("qwen3", "qwen3")
    m.head = 16
    m.key("attention.key_length", U32, 16)
    m.key("attention.value_length", U32, 16)
    embed(m)
    for il in range(m.layers):
        norms(m, il)
        attention(m, il, head_norm="head")
        ffn(m, il)
    return m


@model
def qwen2moe():
    m = begin("qwen2moe", "qwen2moe")
    moe_keys(m, 6, 3, 40)
    m.key("expert_shared_feed_forward_length", U32, 56)
    embed(m)
    for il in range(m.layers):
        norms(m, il)
        attention(m, il, bias=True, out_bias=False)
        moe(m, il, 6, 3, 40, shared=56, shared_gate=True)
    return m


@model
def qwen3moe():
    m = begin("qwen3moe", "qwen3moe")
    moe_keys(m, 6, 3, 32)
    embed(m)
    for il in range(m.layers):
        norms(m, il)
        attention(m, il, head_norm="head")
        moe(m, il, 6, 3, 32, kind="q8_0")
    return m


def gemma_like(name, arch, layers=2, post=False, window=0, **more):
    m = begin(name, arch, layers=layers)
    m.head = 16
    m.key("attention.key_length", U32, 16)
    m.key("attention.value_length", U32, 16)
    if window:
        m.key("attention.sliding_window", U32, window)
    m.add("token_embd.weight", VOCAB, m.width, spread=0.3)
    m.norm("output_norm", m.width)
    for il in range(layers):
        norms(m, il)
        attention(m, il, **more)
        if post:
            norms(m, il, names=("post_attention_norm", "post_ffw_norm"))
        ffn(m, il)
    return m


@model
def gemma():
    return gemma_like("gemma", "gemma")


@model
def gemma2():
    m = gemma_like("gemma2", "gemma2", 3, True, 7)
    m.key("attn_logit_softcapping", F32, 5.0)
    m.key("final_logit_softcapping", F32, 3.0)
    return m


@model
def gemma3():
    m = gemma_like("gemma3", "gemma3", 7, True, 7, head_norm="head")
    m.key("rope.freq_base", F32, 1000000.0)
    m.key("rope.scaling.type", STR, "linear")
    m.key("rope.scaling.factor", F32, 2.0)
    return m


def phi3_like(name):
    m = begin(name, "phi3")
    m.key("attention.sliding_window", U32, 11)
    m.key("rope.dimension_count", U32, m.head)
    embed(m)
    for il in range(m.layers):
        norms(m, il)
        attention(m, il, fused=True)
        ffn(m, il, fused=True)
    return m


@model
def phi3():
    return phi3_like("phi3")


@model
def phi3_longrope():
    m = phi3_like("phi3-longrope")
    m.key("rope.scaling.original_context_length", U32, 16)
    m.key("rope.scaling.attn_factor", F32, 1.224744871391589)
    m.add("rope_factors_long.weight", m.head // 2, mean=4.0, spread=2.0)
    m.add("rope_factors_short.weight", m.head // 2, mean=1.2, spread=0.2)
    return m


@model
def gpt2():
    m = begin("gpt2", "gpt2", eps_rms=False, kv=HEADS)
    embed(m, True, norm_bias=True)
    m.add("position_embd.weight", CONTEXT, m.width, spread=0.3)
    for il in range(m.layers):
        norms(m, il, True)
        attention(m, il, bias=True, fused=True)
        ffn(m, il, gate=False, bias=True)
    return m


def neox_like(name, parallel):
    m = begin(name, "gptneox", eps_rms=False, kv=HEADS)
    m.key("rope.dimension_count", U32, m.head // 2)
    m.key("use_parallel_residual", BOOL, parallel)
    embed(m, norm_bias=True)
    for il in range(m.layers):
        norms(m, il, True)
        attention(m, il, bias=True, fused=True)
        ffn(m, il, gate=False, bias=True)
    return m


@model
def gptneox():
    return neox_like("gptneox", True)


@model
def gptneox_serial():
    return neox_like("gptneox-serial", False)


@model
def starcoder2():
    m = begin("starcoder2", "starcoder2", eps_rms=False)
    m.key("attention.sliding_window", U32, 9)
    embed(m, True, norm_bias=True)
    for il in range(m.layers):
        norms(m, il, True)
        attention(m, il, bias=True)
        ffn(m, il, gate=False, bias=True)
    return m


@model
def olmo2():
    m = begin("olmo2", "olmo2")
    embed(m)
    for il in range(m.layers):
        attention(m, il, head_norm="row")
        norms(m, il, names=("post_attention_norm", "post_ffw_norm"))
        ffn(m, il)
    return m


@model
def olmoe():
    m = begin("olmoe", "olmoe", kv=HEADS)
    moe_keys(m, 6, 3, FF)
    embed(m)
    for il in range(m.layers):
        norms(m, il)
        attention(m, il, head_norm="row")
        moe(m, il, 6, 3, FF)
    return m


def granite_keys(m):
    m.key("attention.scale", F32, 0.2)
    m.key("embedding_scale", F32, 3.0)
    m.key("residual_scale", F32, 0.4)
    m.key("logit_scale", F32, 1.5)


@model
def granite():
    m = llama_like("granite", "granite", tied=True)
    granite_keys(m)
    return m


@model
def granitemoe():
    m = llama_like("granitemoe", "granitemoe", tied=True, experts=4)
    moe_keys(m, 4, 2, m.ff)
    granite_keys(m)
    return m


def deepseek_like(name, lora, absorbed):
    m = begin(name, "deepseek2", layers=3, kv=1 if absorbed else HEADS, eps=1e-6)
    nope, rot, v, rank = 8, 4, 6, 20
    m.key("attention.kv_lora_rank", U32, rank)
    m.key("rope.dimension_count", U32, rot)
    m.key("attention.key_length", U32, rank + rot if absorbed else nope + rot)
    m.key("attention.value_length", U32, rank if absorbed else v)
    if absorbed:
        m.key("attention.key_length_mla", U32, nope + rot)
        m.key("attention.value_length_mla", U32, v)
    if lora:
        m.key("attention.q_lora_rank", U32, lora)
    m.key("leading_dense_block_count", U32, 1)
    moe_keys(m, 8, 3, 24)
    m.key("expert_shared_count", U32, 2)
    embed(m)
    for il in range(m.layers):
        p = f"blk.{il}."
        norms(m, il)
        if lora:
            m.linear(p + "attn_q_a", lora, m.width)
            m.norm(p + "attn_q_a_norm", lora)
            m.linear(p + "attn_q_b", m.heads * (nope + rot), lora)
        else:
            m.linear(p + "attn_q", m.heads * (nope + rot), m.width)
        m.linear(p + "attn_kv_a_mqa", rank + rot, m.width)
        m.norm(p + "attn_kv_a_norm", rank)
        if absorbed:
            m.add(p + "attn_k_b.weight", m.heads, rank, nope)
            m.add(p + "attn_v_b.weight", m.heads, v, rank)
        else:
            m.linear(p + "attn_kv_b", m.heads * (nope + v), rank)
        m.linear(p + "attn_output", m.width, m.heads * v)
        if il == 0:
            ffn(m, il)
        else:
            moe(m, il, 8, 3, 24, shared=48, bias=lora > 0)
    return m


@model
def deepseek2_lite():
    m = deepseek_like("deepseek2-lite", 0, False)
    m.key("expert_weights_scale", F32, 1.0)
    return m


@model
def deepseek2():
    m = deepseek_like("deepseek2", 12, True)
    m.key("expert_gating_func", U32, 2)
    m.key("expert_weights_norm", BOOL, True)
    m.key("expert_weights_scale", F32, 2.5)
    m.key("expert_group_count", U32, 4)
    m.key("expert_group_used_count", U32, 2)
    m.key("rope.scaling.type", STR, "yarn")
    m.key("rope.scaling.factor", F32, 4.0)
    m.key("rope.scaling.original_context_length", U32, 16)
    m.key("rope.scaling.yarn_log_multiplier", F32, 0.1)
    return m


@model
def bitnet():
    m = begin("bitnet", "bitnet", width=256, ff=256, heads=8, layers=1)
    m.key("hidden_act", STR, "relu2")
    embed(m, True, kind="f16")
    p = "blk.0."
    norms(m, 0)
    for name, rows in (("attn_q", 256), ("attn_k", 64), ("attn_v", 64)):
        m.linear(p + name, rows, 256, kind="tq2_0")
        m.add(p + name + ".scale", 1, mean=1.2, spread=0.4)
    m.norm(p + "attn_sub_norm", 256)
    m.linear(p + "attn_output", 256, 256, kind="tq2_0")
    for name in ("ffn_gate", "ffn_up"):
        m.linear(p + name, 256, 256, kind="tq2_0")
    m.norm(p + "ffn_sub_norm", 256)
    m.linear(p + "ffn_down", 256, 256, kind="tq2_0")
    return m


def bert_like(name, arch, bias, fused, positions, gate):
    m = begin(name, arch, eps_rms=False, kv=HEADS, eps=1e-12)
    m.key("attention.causal", BOOL, False)
    m.key("pooling_type", U32, 1)
    m.add("token_embd.weight", VOCAB, m.width, spread=0.5)
    m.add("token_types.weight", 2, m.width, spread=0.3)
    if positions:
        m.add("position_embd.weight", CONTEXT, m.width, spread=0.3)
    m.norm("token_embd_norm", m.width, True)
    for il in range(m.layers):
        attention(m, il, bias=bias, fused=fused)
        m.norm(f"blk.{il}.attn_output_norm", m.width, True)
        ffn(m, il, gate=gate, bias=bias)
        m.norm(f"blk.{il}.layer_output_norm", m.width, True)
    return m


@model
def bert():
    return bert_like("bert", "bert", True, False, True, False)


@model
def nomic_bert():
    m = bert_like("nomic-bert", "nomic-bert", False, True, False, True)
    m.key("rope.freq_base", F32, 1000.0)
    return m


def main(argv):
    if argv == ["--list"]:
        print("\n".join(MODELS))
    elif len(argv) == 2:
        for name in MODELS if argv[0] == "--all" else [argv[0]]:
            with open(f"{argv[1]}/{name}.gguf" if argv[0] == "--all" else argv[1], "wb") as f:
                f.write(MODELS[name]().bytes())
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
