#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/gguf/cases/*.gguf, small files that must be taken or refused, and their list, cases.txt:

  NAME CODE                     refused with that diagnostic
  NAME ok TENSOR=V,V,... ...    taken, with these values

usage: make_cases.py tests/gguf/cases
"""
import struct
import sys

OUT = sys.argv[1]
U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARR, U64, I64, F64 = range(13)
CODE = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q", I64: "q", F64: "d"}
T_F32, T_F16, T_Q4_0, T_Q8_0, T_I8 = 0, 1, 2, 8, 24
ARCH = ("general.architecture", STR, "none")
lines = []


def pack(order, code, v):
    return struct.pack(order + code, v)


def string(o, s):
    b = s if isinstance(s, bytes) else s.encode()
    return pack(o, "Q", len(b)) + b


def value(o, t, v):
    if isinstance(v, bytes) and t != STR:
        return v
    if t == STR:
        return string(o, v)
    if t == ARR:
        return pack(o, "I", v[0]) + pack(o, "Q", len(v[1])) + b"".join(value(o, v[0], x) for x in v[1])
    return pack(o, CODE[t], v)


def gguf(kvs, tensors=(), align=32, version=3, n_tensors=None, n_kv=None, o="<"):
    head = b"GGUF" + pack(o, "I", version)
    head += pack(o, "Q", len(tensors) if n_tensors is None else n_tensors)
    head += pack(o, "Q", len(kvs) if n_kv is None else n_kv)
    for k, t, v in kvs:
        head += string(o, k) + pack(o, "I", t) + value(o, t, v)
    blob = b""
    for name, dims, kind, at, data in tensors:
        offset = len(blob) if at is None else at
        head += string(o, name) + pack(o, "I", len(dims)) + b"".join(struct.pack(o + ("q" if d < 0 else "Q"), d) for d in dims)
        head += pack(o, "I", kind) + pack(o, "Q", offset)
        blob = blob.ljust(offset, b"\0") + data if at is not None else blob + data + b"\0" * (-len(data) % align)
    return head + b"\0" * (-len(head) % align) + blob


def f32(*v, o="<"):
    return struct.pack(f"{o}{len(v)}f", *v)


def case(name, data, verdict):
    with open(f"{OUT}/{name}.gguf", "wb") as f:
        f.write(data)
    if verdict:
        lines.append(f"{name} {verdict}")


def align_cases():
    two = [("t", [4], T_F32, None, f32(1, 2, 3, 4)), ("u", [2], T_F32, None, f32(5, 6))]
    good = "ok t=1,2,3,4 u=5,6"
    case("align_absent", gguf([ARCH], two), good)
    case("align_64", gguf([ARCH, ("general.alignment", U32, 64)], two, align=64), good)
    for name, kind, v in (("0", U32, 0), ("33", U32, 33), ("4", U32, 4), ("huge", U32, 0x80000000), ("i32", I32, 32), ("string", STR, "32"),
                          ("array", ARR, (U32, [32]))):
        case("align_" + name, gguf([ARCH, ("general.alignment", kind, v)], two), "E303")
    case("align_offset", gguf([ARCH], [two[0], ("u", [2], T_F32, 20, f32(5, 6))]), "E304")


def name_cases():
    w = ("w", [2], T_F32, None, f32(1, 2))
    case("name_same_tensor", gguf([ARCH], [w, ("w", [2], T_F32, None, f32(3, 4))]), "E304")
    case("name_same_key", gguf([ARCH, ("a.n", U32, 1), ("a.n", U32, 2)]), "E301")
    case("name_prefix", gguf([ARCH], [w, ("w.bias", [2], T_F32, None, f32(3, 4))]), "ok w=1,2 w.bias=3,4")
    n = "n" * 64
    case("name_65", gguf([ARCH], [(n, [2], T_F32, None, f32(1, 2)), (n + "x", [2], T_F32, None, f32(3, 4))]), f"ok {n}=1,2 {n}x=3,4")
    case("name_256", gguf([ARCH], [("n" * 256, [2], T_F32, None, f32(1, 2))]), "E301")
    case("name_empty", gguf([ARCH], [("", [2], T_F32, None, f32(1, 2))]), "E301")
    case("name_nul", gguf([ARCH], [("w\0x", [2], T_F32, None, f32(1, 2))]), "E301")
    case("key_nul", gguf([("a\0b", U32, 1)]), "E301")
    case("key_empty", gguf([("", U32, 1)]), "E301")


def shape_cases():
    for name, dims, kind in (("overflow_elements", [2**63 - 1, 2], T_I8), ("wrap_to_0", [2**32, 2**32, 1, 4], T_F32),
                             ("wrap_to_4_bytes", [2**62 + 1], T_F32), ("negative", [-1, 4], T_F32), ("rank_5", [1] * 5, T_F32),
                             ("rank_0", [], T_F32), ("zero", [4, 0], T_F32), ("zero_row", [0, 4], T_Q4_0), ("type_9999", [4], 9999),
                             ("type_removed", [32], 4), ("q4_0_row_33", [33], T_Q4_0), ("q4_0_row_48", [48], T_Q4_0), ("past_end", [1000], T_F32)):
        case("shape_" + name, gguf([ARCH], [("t", dims, kind, None, f32(1, 2, 3, 4))]), "E304")
    far = gguf([ARCH], [("t", [4], T_F32, None, f32(1, 2, 3, 4))])
    case("offset_huge", far.replace(struct.pack("<IQ", T_F32, 0), struct.pack("<IQ", T_F32, 2**64 - 32)), "E304")
    case("overlap", gguf([ARCH], [("t", [8], T_F32, 0, f32(*range(8))), ("u", [8], T_F32, 0, b"")]), "E304")


def count_cases():
    case("count_tensors", gguf([ARCH], n_tensors=2**61), "E301")
    case("count_keys", gguf([ARCH], n_kv=2**62), "E301")
    case("count_string", b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**64 - 1) + b"abc", "E301")
    case("count_array", gguf([("a", ARR, struct.pack("<IQ", U64, 2**61))]), "E301")
    case("count_array_strings", gguf([("a", ARR, struct.pack("<IQ", STR, 2**60))]), "E301")
    nested = b""
    for _ in range(64):
        nested += struct.pack("<IQ", ARR, 1)
    case("nested_64", gguf([("a", ARR, nested + struct.pack("<IQ", U8, 0))]), "E301")
    case("kind_13", gguf([("a", 13, b"\0" * 8)]), "E301")
    case("element_13", gguf([("a", ARR, struct.pack("<IQ", 13, 1) + b"\0" * 8)]), "E301")
    case("bool_2", gguf([("a", BOOL, b"\2")]), "E301")
    case("version_1", gguf([ARCH], version=1), "E302")
    case("version_4", gguf([ARCH], version=4), "E302")
    case("version_0", gguf([ARCH], version=0), "E302")
    case("empty_but_magic", b"GGUF", "E301")


def good_cases():
    kinds = [("k.u8", U8, 200), ("k.i8", I8, -100), ("k.u16", U16, 60000), ("k.i16", I16, -30000), ("k.u32", U32, 4000000000), ("k.i32", I32, -2000000000),
             ("k.f32", F32, 1.5), ("k.bool", BOOL, True), ("k.string", STR, "gr\u00fc\u00dfe\0x"), ("k.u64", U64, 2**64 - 1), ("k.i64", I64, -2**62),
             ("k.f64", F64, -0.1), ("k.ints", ARR, (I16, [1, -2, 3])), ("k.strings", ARR, (STR, ["a", "", "cde"])),
             ("k.nested", ARR, (ARR, [(U8, [1, 2]), (F32, [])])), ("k.none", ARR, (STR, []))]
    for name, version, o in (("little_3", 3, "<"), ("little_2", 2, "<"), ("big_3", 3, ">"), ("big_2", 2, ">")):
        half = struct.pack(o + "e", 0.5)
        tensors = [("t", [2, 2], T_F32, None, f32(1, -2, 3, 4, o=o)), ("h", [2], T_F16, None, struct.pack(o + "2e", 0.25, -8)),
                   ("q", [32], T_Q8_0, None, half + bytes(range(32)))]
        q = ",".join(str(i / 2) for i in range(32))
        case("all_" + name, gguf([ARCH] + kinds, tensors, version=version, o=o), f"ok t=1,-2,3,4 h=0.25,-8 q={q}")


def split_cases():
    def part(i, n, tensors, count=None, arch=True, all_=3):
        kv = [("split.no", U16, i), ("split.count", U16, n if count is None else count), ("split.tensors.count", I32, all_)]
        return gguf(([ARCH] if arch else []) + kv, tensors)

    t = [(c, [2], T_F32, None, f32(i, i + 0.5)) for i, c in enumerate("abc")]
    for i in range(3):
        case(f"split-{i + 1:05d}-of-00003", part(i, 3, [t[i]], arch=i == 0), "ok a=0,0.5 b=1,1.5 c=2,2.5" if i == 0 else "E305")
    case("lone-00001-of-00002", part(0, 2, [t[0]]), "E101")
    case("unnamed", part(0, 2, [t[0]]), "E305")
    case("other-00001-of-00002", part(0, 2, [t[0]]), "E305")
    case("other-00002-of-00002", part(0, 2, [t[1]]), None)
    case("twice-00001-of-00002", part(0, 2, [t[0]], all_=2), "E304")
    case("twice-00002-of-00002", part(1, 2, [t[0]], all_=2), None)
    case("few-00001-of-00002", part(0, 2, [t[0]]), "E305")
    case("few-00002-of-00002", part(1, 2, [t[1]]), None)


for f in (align_cases, name_cases, shape_cases, count_cases, good_cases, split_cases):
    f()
with open(f"{OUT}/cases.txt", "w") as out:
    out.write("\n".join(lines) + "\n")
