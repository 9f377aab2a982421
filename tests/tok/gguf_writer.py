# SPDX-License-Identifier: Apache-2.0
"""Writes the tokenizer's part of a GGUF file (version 3, little endian)."""
import struct

U32, I32, F32, BOOL, STRING, ARRAY, U8 = 4, 5, 6, 7, 8, 9, 0


def _string(s):
    b = s if isinstance(s, bytes) else s.encode('utf-8')
    return struct.pack('<Q', len(b)) + b


def _value(kind, v):
    if kind == STRING:
        return _string(v)
    if kind == ARRAY:
        elem, items = v
        if elem == U8:
            return struct.pack('<IQ', elem, len(items)) + bytes(items)
        return struct.pack('<IQ', elem, len(items)) + b''.join(_value(elem, x) for x in items)
    return struct.pack({U32: '<I', I32: '<i', F32: '<f', BOOL: '<?', U8: '<B'}[kind], v)


def write(path, pairs):
    """pairs: (key, kind, value); keys without a dot get `tokenizer.ggml.` in front."""
    with open(path, 'wb') as f:
        f.write(b'GGUF' + struct.pack('<IQQ', 3, 0, len(pairs)))
        for key, kind, v in pairs:
            f.write(_string(key if '.' in key else 'tokenizer.ggml.' + key) + struct.pack('<I', kind) + _value(kind, v))
