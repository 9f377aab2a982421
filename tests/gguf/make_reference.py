#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/gguf/tiny.txt: outputs of the tiny models of make_tiny.py by other implementations, in f32 on the CPU.

Made with torch 2.8.0, transformers 4.57.1, gguf 0.19.0 and numpy. Architectures that transformers does not have (nomic-bert,
and bitnet without rounding of activations) are computed here, in f64. The models' weights are taken from the GGUF files
and put into the classes of transformers, undoing what converters do to them.

usage: make_reference.py FOLDER-OF-GGUF > tests/gguf/tiny.txt
"""
import os
import random
import sys

import gguf
import numpy as np
import torch
import transformers as tf

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import make_tiny  # noqa: E402


class File:
    def __init__(self, path):
        r = gguf.GGUFReader(path)
        self.t = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32).reshape(t.shape[::-1]) for t in r.tensors}
        self.k = {n: f.contents() for n, f in r.fields.items()}
        self.arch = self.k["general.architecture"]

    def key(self, name, dflt=None):
        return self.k.get(f"{self.arch}.{name}", dflt)

    def __getitem__(self, name):
        return self.t[name]


def unpermute(w, heads):
    """Rows of pairs (2i, 2i + 1) to rows of halves (i, i + n/2)."""
    d = w.shape[0] // heads
    return w.reshape(heads, d // 2, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def common(f):
    heads = f.key("attention.head_count")
    return dict(vocab_size=make_tiny.VOCAB, hidden_size=f.key("embedding_length"), intermediate_size=f.key("feed_forward_length"),
                num_hidden_layers=f.key("block_count"), num_attention_heads=heads, num_key_value_heads=f.key("attention.head_count_kv", heads),
                max_position_embeddings=f.key("context_length"), rms_norm_eps=f.key("attention.layer_norm_rms_epsilon", 1e-5),
                rope_theta=f.key("rope.freq_base", 10000.0), tie_word_embeddings="output.weight" not in f.t, attention_dropout=0.0,
                attn_implementation="eager", bos_token_id=None, eos_token_id=None, pad_token_id=None)


def decoder(f, permuted=False, minus_one=False, norm2="post_attention_layernorm", post=None, fused=False):
    """State of the usual layout: model.layers.N.self_attn.q_proj and so on; feed-forward networks come from elsewhere."""
    one = 1 if minus_one else 0
    s = {"model.embed_tokens.weight": f["token_embd.weight"], "model.norm.weight": f["output_norm.weight"] - one}
    if "output.weight" in f.t:
        s["lm_head.weight"] = f["output.weight"]
    for il in range(f.key("block_count")):
        p, o = f"blk.{il}.", f"model.layers.{il}."
        if p + "attn_norm.weight" in f.t:
            s[o + "input_layernorm.weight"] = f[p + "attn_norm.weight"] - one
        if p + "ffn_norm.weight" in f.t:
            s[o + norm2 + ".weight"] = f[p + "ffn_norm.weight"] - one
        for g, h in (post or {}).items():
            s[o + h + ".weight"] = f[p + g + ".weight"] - one
        names = {"attn_qkv": "qkv_proj"} if fused else {"attn_q": "q_proj", "attn_k": "k_proj", "attn_v": "v_proj"}
        names["attn_output"] = "o_proj"
        for g, h in names.items():
            for part in (".weight", ".bias"):
                if p + g + part in f.t:
                    w = f[p + g + part]
                    if permuted and g in ("attn_q", "attn_k"):
                        w = unpermute(w, f.key("attention.head_count" if g == "attn_q" else "attention.head_count_kv"))
                    s[f"{o}self_attn.{h}{part}"] = w
        for n in "qk":
            if f"{p}attn_{n}_norm.weight" in f.t:
                s[f"{o}self_attn.{n}_norm.weight"] = f[f"{p}attn_{n}_norm.weight"] - one
    return s


def mlp(f, s, gate=True):
    for il in range(f.key("block_count")):
        for n in ("gate", "up", "down") if gate else ("up", "down"):
            name = f"blk.{il}.ffn_{n}.weight"
            if name in f.t:
                s[f"model.layers.{il}.mlp.{n}_proj.weight"] = f[name]
    return s


def experts(f, s, gate="mlp.gate", names=("mlp.experts.{}.gate_proj", "mlp.experts.{}.up_proj", "mlp.experts.{}.down_proj")):
    for il in range(f.key("block_count")):
        p, o = f"blk.{il}.", f"model.layers.{il}."
        if p + "ffn_gate_inp.weight" not in f.t:
            continue
        s[f"{o}{gate}.weight"] = f[p + "ffn_gate_inp.weight"]
        for kind, name in zip(("gate", "up", "down"), names):
            for e in range(f.key("expert_count")):
                s[f"{o}{name.format(e)}.weight"] = f[f"{p}ffn_{kind}_exps.weight"][e]
    return s


def load(cls, config, s):
    model = cls(config).eval().float()
    own = model.state_dict()
    tied = {"lm_head.weight"} if config.tie_word_embeddings else set()
    missing = {k for k in own if k not in s} - tied
    missing = {k for k in missing if not any(x in k for x in ("inv_freq", "masked_bias", "attn.bias", "attention.bias", "position_ids"))}
    extra = set(s) - set(own)
    assert not missing and not extra, (cls.__name__, sorted(missing), sorted(extra))
    model.load_state_dict({k: torch.from_numpy(np.ascontiguousarray(v)).reshape(own[k].shape) for k, v in s.items()}, strict=False)
    if config.tie_word_embeddings:
        model.tie_weights()
    return lambda ids: model(torch.tensor([ids])).logits[0].detach().numpy()


# ---- one function an architecture, by make_tiny's names ----


def llama(f):
    c = common(f)
    kind = f.key("rope.scaling.type")
    if kind == "linear":
        c["rope_scaling"] = {"rope_type": "linear", "factor": f.key("rope.scaling.factor")}
    if kind == "yarn":
        c["rope_scaling"] = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
        c["max_position_embeddings"] = 128
    if "rope_freqs.weight" in f.t:
        factors = [float(v) for v in f["rope_freqs.weight"]]
        c["rope_scaling"] = {"rope_type": "longrope", "long_factor": factors, "short_factor": factors, "attention_factor": 1.0, "factor": 1.0}
    return load(tf.LlamaForCausalLM, tf.LlamaConfig(**c), mlp(f, decoder(f, True)))


def mixtral(f):
    c = tf.MixtralConfig(**common(f), num_local_experts=f.key("expert_count"), num_experts_per_tok=f.key("expert_used_count"), sliding_window=None)
    e = "block_sparse_moe.experts.{}."
    return load(tf.MixtralForCausalLM, c, experts(f, decoder(f, True), "block_sparse_moe.gate", (e + "w1", e + "w3", e + "w2")))


def smollm3(f):
    return load(tf.SmolLM3ForCausalLM, tf.SmolLM3Config(**common(f), use_sliding_window=False), mlp(f, decoder(f, True)))


def qwen2(f):
    return load(tf.Qwen2ForCausalLM, tf.Qwen2Config(**common(f)), mlp(f, decoder(f)))


def qwen3(f):
    return load(tf.Qwen3ForCausalLM, tf.Qwen3Config(**common(f), head_dim=f.key("attention.key_length")), mlp(f, decoder(f)))


def qwen2moe(f):
    c = tf.Qwen2MoeConfig(**common(f), num_experts=f.key("expert_count"), num_experts_per_tok=f.key("expert_used_count"),
                          moe_intermediate_size=f.key("expert_feed_forward_length"), norm_topk_prob=False,
                          shared_expert_intermediate_size=f.key("expert_shared_feed_forward_length"))
    s = experts(f, decoder(f))
    for il in range(f.key("block_count")):
        for n in ("gate", "up", "down"):
            s[f"model.layers.{il}.mlp.shared_expert.{n}_proj.weight"] = f[f"blk.{il}.ffn_{n}_shexp.weight"]
        s[f"model.layers.{il}.mlp.shared_expert_gate.weight"] = f[f"blk.{il}.ffn_gate_inp_shexp.weight"]
    return load(tf.Qwen2MoeForCausalLM, c, s)


def qwen3moe(f):
    c = tf.Qwen3MoeConfig(**common(f), num_experts=f.key("expert_count"), num_experts_per_tok=f.key("expert_used_count"), head_dim=8,
                          moe_intermediate_size=f.key("expert_feed_forward_length"), norm_topk_prob=True)
    return load(tf.Qwen3MoeForCausalLM, c, experts(f, decoder(f)))


def gemma(f):
    return load(tf.GemmaForCausalLM, tf.GemmaConfig(**common(f), head_dim=16, hidden_activation="gelu_pytorch_tanh"), mlp(f, decoder(f, minus_one=True)))


GEMMA_POST = {"post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}


def gemma2(f):
    c = tf.Gemma2Config(**common(f), head_dim=16, query_pre_attn_scalar=16, sliding_window=f.key("attention.sliding_window"),
                        attn_logit_softcapping=f.key("attn_logit_softcapping"), final_logit_softcapping=f.key("final_logit_softcapping"))
    return load(tf.Gemma2ForCausalLM, c, mlp(f, decoder(f, minus_one=True, norm2="pre_feedforward_layernorm", post=GEMMA_POST)))


def gemma3(f):
    c = tf.Gemma3TextConfig(**common(f), head_dim=16, query_pre_attn_scalar=16, sliding_window=f.key("attention.sliding_window"),
                            rope_local_base_freq=10000.0, rope_scaling={"rope_type": "linear", "factor": 2.0})
    return load(tf.Gemma3ForCausalLM, c, mlp(f, decoder(f, minus_one=True, norm2="pre_feedforward_layernorm", post=GEMMA_POST)))


def phi3(f):
    c = common(f)
    if "rope_factors_long.weight" in f.t:  # the engine is built for the long context, whatever a prompt's length
        factors = [float(v) for v in f["rope_factors_long.weight"]]
        c |= dict(original_max_position_embeddings=16, rope_scaling={"type": "longrope", "long_factor": factors, "short_factor": factors})
    s = decoder(f, fused=True)
    for il in range(f.key("block_count")):
        s[f"model.layers.{il}.mlp.gate_up_proj.weight"] = f[f"blk.{il}.ffn_up.weight"]
        s[f"model.layers.{il}.mlp.down_proj.weight"] = f[f"blk.{il}.ffn_down.weight"]
    return load(tf.Phi3ForCausalLM, tf.Phi3Config(**c, sliding_window=f.key("attention.sliding_window")), s)


def gpt2(f):
    c = tf.GPT2Config(vocab_size=make_tiny.VOCAB, n_positions=make_tiny.CONTEXT, n_embd=32, n_layer=2, n_head=4, n_inner=f.key("feed_forward_length"),
                      layer_norm_epsilon=f.key("attention.layer_norm_epsilon"), attn_implementation="eager", resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
    s = {"transformer.wte.weight": f["token_embd.weight"], "transformer.wpe.weight": f["position_embd.weight"],
         "transformer.ln_f.weight": f["output_norm.weight"], "transformer.ln_f.bias": f["output_norm.bias"]}
    names = {"attn_norm": "ln_1", "ffn_norm": "ln_2", "attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj", "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"}
    for il in range(2):
        for g, h in names.items():
            s[f"transformer.h.{il}.{h}.weight"] = f[f"blk.{il}.{g}.weight"].T
            s[f"transformer.h.{il}.{h}.bias"] = f[f"blk.{il}.{g}.bias"]
    return load(tf.GPT2LMHeadModel, c, s)


def gptneox(f):
    c = tf.GPTNeoXConfig(vocab_size=make_tiny.VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=f.key("feed_forward_length"),
                         rotary_pct=0.5, max_position_embeddings=64, layer_norm_eps=f.key("attention.layer_norm_epsilon"),
                         use_parallel_residual=f.key("use_parallel_residual"), hidden_act="gelu", attn_implementation="eager", hidden_dropout=0,
                         attention_dropout=0, tie_word_embeddings=False)
    s = {"gpt_neox.embed_in.weight": f["token_embd.weight"], "embed_out.weight": f["output.weight"]}
    names = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_output": "attention.dense",
             "ffn_up": "mlp.dense_h_to_4h", "ffn_down": "mlp.dense_4h_to_h", "attn_qkv": "attention.query_key_value"}
    for part in (".weight", ".bias"):
        s["gpt_neox.final_layer_norm" + part] = f["output_norm" + part]
        for il in range(2):
            for g, h in names.items():
                w = f[f"blk.{il}.{g}{part}"]
                if g == "attn_qkv":  # [3, heads, head] to [heads, 3, head]
                    w = w.reshape(3, 4, 8, *w.shape[1:]).swapaxes(0, 1).reshape(w.shape)
                s[f"gpt_neox.layers.{il}.{h}{part}"] = w
    return load(tf.GPTNeoXForCausalLM, c, s)


def starcoder2(f):
    c = common(f) | dict(norm_epsilon=f.key("attention.layer_norm_epsilon"), sliding_window=f.key("attention.sliding_window"), use_bias=True,
                         embedding_dropout=0, residual_dropout=0)
    c.pop("rms_norm_eps")
    s = decoder(f)
    s["model.norm.bias"] = f["output_norm.bias"]
    for il in range(2):
        o = f"model.layers.{il}."
        s[o + "input_layernorm.bias"] = f[f"blk.{il}.attn_norm.bias"]
        s[o + "post_attention_layernorm.bias"] = f[f"blk.{il}.ffn_norm.bias"]
        for part in (".weight", ".bias"):
            s[o + "mlp.c_fc" + part] = f[f"blk.{il}.ffn_up{part}"]
            s[o + "mlp.c_proj" + part] = f[f"blk.{il}.ffn_down{part}"]
    return load(tf.Starcoder2ForCausalLM, tf.Starcoder2Config(**c), s)


def olmo2(f):
    return load(tf.Olmo2ForCausalLM, tf.Olmo2Config(**common(f)), mlp(f, decoder(f, post=GEMMA_POST)))


def olmoe(f):
    c = tf.OlmoeConfig(**common(f), num_experts=f.key("expert_count"), num_experts_per_tok=f.key("expert_used_count"), norm_topk_prob=False)
    return load(tf.OlmoeForCausalLM, c, experts(f, decoder(f)))


def granite_scales(f):
    return dict(attention_multiplier=f.key("attention.scale"), embedding_multiplier=f.key("embedding_scale"),
                residual_multiplier=f.key("residual_scale"), logits_scaling=f.key("logit_scale"))


def granite(f):
    return load(tf.GraniteForCausalLM, tf.GraniteConfig(**common(f), **granite_scales(f)), mlp(f, decoder(f, True)))


def granitemoe(f):
    c = tf.GraniteMoeConfig(**common(f), **granite_scales(f), num_local_experts=f.key("expert_count"), num_experts_per_tok=f.key("expert_used_count"))
    s = decoder(f, True)
    for il in range(2):
        p, o = f"blk.{il}.ffn_", f"model.layers.{il}.block_sparse_moe."
        s[o + "input_linear.weight"] = np.concatenate([f[p + "gate_exps.weight"], f[p + "up_exps.weight"]], axis=1)
        s[o + "output_linear.weight"] = f[p + "down_exps.weight"]
        s[o + "router.layer.weight"] = f[p + "gate_inp.weight"]
    return load(tf.GraniteMoeForCausalLM, c, s)


def deepseek(f):
    c = common(f) | dict(kv_lora_rank=20, q_lora_rank=f.key("attention.q_lora_rank"), qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=6,
                         n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=2, moe_intermediate_size=24, first_k_dense_replace=1,
                         num_key_value_heads=4, routed_scaling_factor=f.key("expert_weights_scale"))
    v3 = f.key("expert_gating_func") == 2
    if v3:
        c |= dict(n_group=4, topk_group=2, norm_topk_prob=True)
        c["rope_scaling"] = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "mscale": 1.0, "mscale_all_dim": 1.0}
    else:
        c |= dict(topk_method="greedy", norm_topk_prob=False)
    s = experts(f, mlp(f, decoder(f)))
    for il in range(3):
        p, o = f"blk.{il}.", f"model.layers.{il}."
        names = {"attn_kv_a_mqa": "kv_a_proj_with_mqa", "attn_kv_a_norm": "kv_a_layernorm", "attn_kv_b": "kv_b_proj", "attn_q_a": "q_a_proj",
                 "attn_q_a_norm": "q_a_layernorm", "attn_q_b": "q_b_proj"}
        for g, h in names.items():
            if p + g + ".weight" in f.t:
                s[f"{o}self_attn.{h}.weight"] = f[p + g + ".weight"]
        if p + "attn_k_b.weight" in f.t:
            s[o + "self_attn.kv_b_proj.weight"] = np.concatenate([f[p + "attn_k_b.weight"].swapaxes(1, 2), f[p + "attn_v_b.weight"]], axis=1)
        if il:
            for n in ("gate", "up", "down"):
                s[f"{o}mlp.shared_experts.{n}_proj.weight"] = f[f"{p}ffn_{n}_shexp.weight"]
            if v3:
                s[o + "mlp.gate.e_score_correction_bias"] = f[p + "exp_probs_b.bias"]
    if v3:
        return load(tf.DeepseekV3ForCausalLM, tf.DeepseekV3Config(**c), s)
    return load(tf.DeepseekV2ForCausalLM, tf.DeepseekV2Config(**c), s)


def bert(f):
    c = tf.BertConfig(vocab_size=make_tiny.VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=f.key("feed_forward_length"),
                      max_position_embeddings=64, type_vocab_size=2, layer_norm_eps=f.key("attention.layer_norm_epsilon"), hidden_act="gelu",
                      attn_implementation="eager", hidden_dropout_prob=0, attention_probs_dropout_prob=0)
    s = {"embeddings.word_embeddings.weight": f["token_embd.weight"], "embeddings.position_embeddings.weight": f["position_embd.weight"],
         "embeddings.token_type_embeddings.weight": f["token_types.weight"]}
    names = {"attn_q": "attention.self.query", "attn_k": "attention.self.key", "attn_v": "attention.self.value", "attn_output": "attention.output.dense",
             "attn_output_norm": "attention.output.LayerNorm", "ffn_up": "intermediate.dense", "ffn_down": "output.dense",
             "layer_output_norm": "output.LayerNorm"}
    for part in (".weight", ".bias"):
        s["embeddings.LayerNorm" + part] = f["token_embd_norm" + part]
        for il in range(2):
            for g, h in names.items():
                s[f"encoder.layer.{il}.{h}{part}"] = f[f"blk.{il}.{g}{part}"]
    model = tf.BertModel(c, add_pooling_layer=False).eval()
    own = model.state_dict()
    model.load_state_dict({k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in s.items()}, strict=True)
    assert set(own) == set(s)
    return lambda ids: model(torch.tensor([ids])).last_hidden_state[0].detach().numpy()


# ---- by hand, in f64 ----


def rope_halves(x, base):
    n, _, d = x.shape
    a = np.arange(n)[:, None, None] * base ** (-np.arange(0, d, 2) / d)
    u, v = x[..., :d // 2], x[..., d // 2:]
    return np.concatenate([u * np.cos(a) - v * np.sin(a), v * np.cos(a) + u * np.sin(a)], axis=-1)


def attend(q, k, v, causal):
    n, heads, d = q.shape
    k, v = (np.repeat(x, heads // k.shape[1], axis=1) for x in (k, v))
    s = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(d)
    if causal:
        s = np.where(np.tri(n, dtype=bool), s, -np.inf)
    s = np.exp(s - s.max(-1, keepdims=True))
    return np.einsum("hij,jhd->ihd", s / s.sum(-1, keepdims=True), v).reshape(n, -1)


def bitnet(f):
    w = {n: t.astype(np.float64) for n, t in f.t.items()}
    eps = f.key("attention.layer_norm_rms_epsilon")

    def rms(x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w[name + ".weight"]

    def lin(x, name):
        return x @ w[name + ".weight"].T * w.get(name + ".scale", 1.0)

    def run(ids):
        x = w["token_embd.weight"][ids]
        n = len(ids)
        h = rms(x, "blk.0.attn_norm")
        q, k, v = (lin(h, f"blk.0.attn_{c}").reshape(n, -1, 32) for c in "qkv")
        y = attend(rope_halves(q, 10000.0), rope_halves(k, 10000.0), v, True)
        x = x + lin(rms(y, "blk.0.attn_sub_norm"), "blk.0.attn_output")
        h = rms(x, "blk.0.ffn_norm")
        y = np.maximum(lin(h, "blk.0.ffn_gate"), 0) ** 2 * lin(h, "blk.0.ffn_up")
        x = x + lin(rms(y, "blk.0.ffn_sub_norm"), "blk.0.ffn_down")
        return rms(x, "output_norm") @ w["token_embd.weight"].T
    return run


def nomic(f):
    w = {n: t.astype(np.float64) for n, t in f.t.items()}
    eps = f.key("attention.layer_norm_epsilon")

    def norm(x, name):
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w[name + ".weight"] + w[name + ".bias"]

    def run(ids):
        x = norm(w["token_embd.weight"][ids] + w["token_types.weight"][0], "token_embd_norm")
        n = len(ids)
        for il in range(2):
            p = f"blk.{il}."
            q, k, v = (a.reshape(n, 4, 8) for a in np.split(x @ w[p + "attn_qkv.weight"].T, 3, axis=-1))
            base = f.key("rope.freq_base")
            y = attend(rope_halves(q, base), rope_halves(k, base), v, False) @ w[p + "attn_output.weight"].T
            x = norm(x + y, p + "attn_output_norm")
            g = x @ w[p + "ffn_gate.weight"].T
            y = (g / (1 + np.exp(-g)) * (x @ w[p + "ffn_up.weight"].T)) @ w[p + "ffn_down.weight"].T
            x = norm(x + y, p + "layer_output_norm")
        return x
    return run


MAKERS = {"llama": llama, "llama-quantised": llama, "llama-k": llama, "llama-linear": llama, "llama-3": llama, "llama-yarn": llama, "mixtral": mixtral,
          "smollm3": smollm3, "qwen2": qwen2, "qwen3": qwen3, "qwen2moe": qwen2moe, "qwen3moe": qwen3moe, "gemma": gemma, "gemma2": gemma2,
          "gemma3": gemma3, "phi3": phi3, "phi3-longrope": phi3, "gpt2": gpt2, "gptneox": gptneox, "gptneox-serial": gptneox,
          "starcoder2": starcoder2, "olmo2": olmo2, "olmoe": olmoe, "granite": granite, "granitemoe": granitemoe, "deepseek2-lite": deepseek,
          "deepseek2": deepseek, "bitnet": bitnet, "bert": bert, "nomic-bert": nomic}


def main():
    torch.manual_seed(0)
    rng = random.Random(7)
    for name in make_tiny.MODELS:
        seqs = [[rng.randrange(make_tiny.VOCAB) for _ in range(n)] for n in (40, 5)]
        try:
            run = MAKERS[name](File(f"{sys.argv[1]}/{name}.gguf"))
            out = [run(ids) for ids in seqs]
        except Exception as e:  # the others are still worth having
            print(f"{name}: {type(e).__name__}: {e}", file=sys.stderr)
            continue
        print("model", name)
        for i, ids in enumerate(seqs):
            print("tokens", i, *ids)
        for i, pos in ((0, 39), (0, 2), (0, 33), (1, 4)):
            print("row", i, pos, *(f"{v:.7g}" for v in out[i][pos]))


main()
