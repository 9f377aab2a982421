#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/gguf/encodings.txt: blocks of every tensor type and what the `gguf` package (0.19.0) unpacks them to.

  unpack TYPE NUMBER HEX-OF-BLOCKS FNV1A64 FIRST-VALUES...   random blocks; the hash runs over the f32 bits
  pack TYPE HEX-OF-F32 HEX-OF-BLOCKS                         what gguf.quantize makes of floats

-0 counts as 0 and every NaN as one, in the hash.
usage: make_encodings.py > tests/gguf/encodings.txt
"""
import gguf
import numpy as np

TYPES = """F32 F16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ2_XXS IQ2_XS IQ3_XXS IQ1_S IQ4_NL IQ3_S IQ2_S
IQ4_XS IQ1_M BF16 TQ1_0 TQ2_0 MXFP4 NVFP4""".split()
PLAIN = {"I8": np.int8, "I16": np.int16, "I32": np.int32, "I64": np.int64, "F64": np.float64}


def fnv(x):
    bits = np.where(np.isnan(x), np.float32("nan"), x + np.float32(0)).astype(np.float32).view(np.uint32)
    bits = np.where(np.isnan(x), np.uint32(0x7FC00000), bits)
    h = 0xCBF29CE484222325
    for b in bits.astype("<u4").tobytes():
        h = (h ^ b) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


def unpack_line(name, number, raw, values):
    first = " ".join(f"{v:.9g}" for v in values.reshape(-1)[:4])
    print(f"unpack {name} {number} {raw.tobytes().hex()} {fnv(values.reshape(-1)):016x} {first}")


rng = np.random.default_rng(20)
np.seterr(all="ignore")
for t in TYPES:
    kind = gguf.GGMLQuantizationType[t]
    elems, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = 3 if elems >= 32 else 24
    raw = rng.integers(0, 256, blocks * size, dtype=np.uint8)
    unpack_line(t.lower().replace("_k", "_K"), int(kind), raw, gguf.quants.dequantize(raw.reshape(1, -1), kind))
for t, dtype in PLAIN.items():
    kind = gguf.GGMLQuantizationType[t]
    raw = rng.integers(0, 256, 8 * np.dtype(dtype).itemsize, dtype=np.uint8)
    unpack_line(t.lower(), int(kind), raw, raw.view(dtype).astype(np.float32))
for t in "F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 TQ2_0".split():
    kind = gguf.GGMLQuantizationType[t]
    elems = max(32, gguf.GGML_QUANT_SIZES[kind][0])
    x = rng.standard_normal((4, elems)).astype(np.float32)
    x[1] = 0
    x[2] *= 1e-3
    x[3, ::3] = np.round(x[3, ::3])
    packed = gguf.quants.quantize(x, kind)
    print(f"pack {t.lower()} {x.tobytes().hex()} {packed.tobytes().hex()}")
