#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes ir/encoding_grid.def: the codebooks of the IQ formats, as numbers, read from the `gguf` package (0.19.0).

usage: make_grids.py > ir/encoding_grid.def
"""
import gguf.quants as q
import numpy as np

print("/*")
print(" * GRID(name, entries, numbers...): the codebooks that define the IQ formats. Made by tests/gguf/make_grids.py.")
print(" * An entry holds eight 2-bit digits (four 4-bit ones for iq3), first element in the lowest bits.")
print(" */")
for name, cls in (("iq2_xxs", q.IQ2_XXS), ("iq2_xs", q.IQ2_XS), ("iq2_s", q.IQ2_S), ("iq3_xxs", q.IQ3_XXS),
                  ("iq3_s", q.IQ3_S), ("iq1", q.IQ1_S)):
    cls.init_grid()
    grid = cls.grid.reshape(cls.grid_shape)
    digits = np.searchsorted(np.array(cls.grid_map, np.float32), grid).astype(np.int64)
    bits = 16 // grid.shape[1]
    words = (digits << (bits * np.arange(grid.shape[1]))).sum(axis=1)
    print(f"GRID({name}, {len(words)},")
    for i in range(0, len(words), 16):
        tail = ")" if i + 16 >= len(words) else ","
        print("    " + ", ".join(f"{w}" for w in words[i:i + 16]) + tail)
