#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a tiny language model that can chat and a tiny encoder, both random, with tokenizers: for the suite `lm`.

usage: make_model.py FOLDER      FOLDER/chat.gguf, FOLDER/encoder.gguf, FOLDER/ranker.gguf, FOLDER/judge.gguf, FOLDER/vectors.gguf; the first also as big.gguf (big-endian), parts-N-of-3
                                 blocks.gguf, a model like it with block-quantised weights, and heads.gguf, one with larger heads

The text is nonsense; what the suite looks at is that commands, options and caches do what they say.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "gguf"))
import make_tiny as tiny  # noqa: E402

TEMPLATE = ("{% for m in messages %}{% if m.role not in ['system', 'user', 'assistant'] %}{{ raise_exception('who?') }}{% endif %}"
            "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6


def add_tokenizer(m):
    """SentencePiece: control tokens, bytes, letters, a few words."""
    words = ["\u2581" + w for w in ("the", "a", "of", "and", "to", "in", "robot", "city", "is", "was")]
    letters = ["\u2581"] + [chr(c) for c in range(33, 127)] + ["\n"] + list("äöüéñ€中😀")
    tokens = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL), ("<|im_start|>", CONTROL), ("<|im_end|>", CONTROL)]
    tokens += [(f"<0x{b:02X}>", BYTE) for b in range(256)] + [(w, NORMAL) for w in letters + words]
    # every prefix of a word, so that merging reaches it
    known = {t for t, _ in tokens}
    for w in words:
        for n in range(2, len(w)):
            if w[:n] not in known:
                known.add(w[:n])
                tokens.append((w[:n], NORMAL))
    m.kvs += [("tokenizer.ggml.model", tiny.STR, "llama"), ("tokenizer.ggml.tokens", tiny.ARR, (tiny.STR, [t for t, _ in tokens])),
              ("tokenizer.ggml.scores", tiny.ARR, (tiny.F32, [float(len(t)) if k == NORMAL else -100.0 for t, k in tokens])),
              ("tokenizer.ggml.token_type", tiny.ARR, (tiny.I32, [k for _, k in tokens])),
              ("tokenizer.ggml.bos_token_id", tiny.U32, 1), ("tokenizer.ggml.eos_token_id", tiny.U32, 2),
              ("tokenizer.ggml.unknown_token_id", tiny.U32, 0), ("tokenizer.ggml.add_bos_token", tiny.BOOL, True),
              ("tokenizer.ggml.add_space_prefix", tiny.BOOL, False), ("tokenizer.chat_template", tiny.STR, TEMPLATE),
              ("general.sampling.temp", tiny.F32, 0.5), ("general.sampling.top_k", tiny.I32, 30)]
    return len(tokens)


def add_wordpiece(m):
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"] + ["\u2581" + chr(c) for c in range(97, 123)] + [chr(c) for c in range(97, 123)]
    pieces += ["\u2581robot", "\u2581city"] + ["\u2581" + c for c in "0123456789.,!?"] + list("0123456789")
    m.kvs += [("tokenizer.ggml.model", tiny.STR, "bert"), ("tokenizer.ggml.tokens", tiny.ARR, (tiny.STR, pieces)),
              ("tokenizer.ggml.token_type", tiny.ARR, (tiny.I32, [CONTROL] * 4 + [NORMAL] * (len(pieces) - 4))),
              ("tokenizer.ggml.bos_token_id", tiny.U32, 2), ("tokenizer.ggml.cls_token_id", tiny.U32, 2),
              ("tokenizer.ggml.eos_token_id", tiny.U32, 3), ("tokenizer.ggml.seperator_token_id", tiny.U32, 3),
              ("tokenizer.ggml.unknown_token_id", tiny.U32, 1), ("tokenizer.ggml.padding_token_id", tiny.U32, 0)]
    return len(pieces)


BLOCKS = ("q8_0", ("q4_0", "q4_1", "q8_0", "q4_1", "q4_0", "q4_0", "q4_1"), ("q8_0", "q4_0", "q4_1", "q8_0", "q4_1", "q4_1", "q5_0"))


def chat_model(name, kinds=None):
    tiny.CONTEXT = 512
    tiny.VOCAB = add_tokenizer(tiny.Model("count", "llama"))
    chat = tiny.llama_like(name, tied=True, kinds=kinds)
    add_tokenizer(chat)
    return chat


def heads_model():
    """Two query heads of 32 elements on one kv head: a tensor unit's attention takes them."""
    tiny.CONTEXT = 512
    tiny.VOCAB = add_tokenizer(tiny.Model("count", "llama"))
    m = tiny.begin("heads", "llama", heads=2, kv=1, width=64)
    m.key("rope.freq_base", tiny.F32, 1000.0)
    m.key("rope.dimension_count", tiny.U32, m.head)
    tiny.embed(m, True)
    for il in range(m.layers):
        tiny.norms(m, il)
        tiny.attention(m, il)
        tiny.ffn(m, il)
    add_tokenizer(m)
    return m


def ranker_model():
    """The encoder with a head that scores pairs."""
    m = tiny.MODELS["bert"]()
    m.kvs = [(k, t, 4 if k == "bert.pooling_type" else v) for k, t, v in m.kvs]
    m.linear("cls", m.width, m.width, bias=True)
    m.linear("cls.output", 1, m.width, bias=True)
    add_wordpiece(m)
    return m


JUDGE = ("<|im_start|>system\nyes or no<|im_end|>\n<|im_start|>user\n<Query>: {query}\n<Document>: {document}<|im_end|>\n"
         "<|im_start|>assistant\n")


def causal_model(name, pooling):
    """A causal model without logits: 3, its last row is a vector, with a token that ends texts; 4, it says yes or no of a text and a question."""
    tiny.CONTEXT = 512
    tiny.VOCAB = add_tokenizer(tiny.Model("count", "qwen3"))
    m = tiny.MODELS["qwen3"]()
    m.name = name
    m.key("pooling_type", tiny.U32, pooling)
    add_tokenizer(m)
    if pooling == 4:
        m.key("classifier.output_labels", tiny.ARR, (tiny.STR, ["yes", "no"]))
        m.linear("cls.output", 2, m.width)
        m.kvs = [kv for kv in m.kvs if kv[0] != "tokenizer.chat_template"] + [("tokenizer.chat_template.rerank", tiny.STR, JUDGE)]
    else:
        m.kvs += [("tokenizer.ggml.add_eos_token", tiny.BOOL, True)]
    return m


def main(folder):
    chat, blocks, heads = chat_model("chat"), chat_model("blocks", BLOCKS), heads_model()
    judge, vectors = causal_model("judge", 4), causal_model("vectors", 3)
    tiny.VOCAB = add_wordpiece(tiny.Model("count", "bert"))
    encoder = tiny.MODELS["bert"]()
    add_wordpiece(encoder)
    for name, m in (("chat", chat), ("blocks", blocks), ("heads", heads), ("encoder", encoder), ("ranker", ranker_model()), ("judge", judge),
                    ("vectors", vectors)):
        pathlib.Path(folder, name + ".gguf").write_bytes(m.bytes())
    pathlib.Path(folder, "big.gguf").write_bytes(chat.bytes(big=True))
    for i in range(3):
        pathlib.Path(folder, f"parts-{i + 1:05d}-of-00003.gguf").write_bytes(chat.bytes(part=i, of=3))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
