#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The request vectors of llhttp's public tests: what it refuses must be refused here too; being stricter is fine.

usage: llhttp_vectors.py REPOSITORY ENGINE        a checkout of nodejs/llhttp, of which nothing is kept

Vectors of its lenient modes are left out: those are about what its users may allow. A refusal is a reply of a status of framing with
Connection: close, or a connection that is closed without a reply; a 404 or 405 is none: such a request was understood. What llhttp
refuses because it stands behind a request with Connection: close is never read here: one reply, then the end, is as strict. Its pauses (at
CONNECT and upgrades) are no refusals.
"""
import glob
import json
import os
import re
import sys

from common import Server

FRAMING = {400, 408, 413, 414, 417, 431, 501, 505}


def vectors(folder):
    """(file, title, bytes, llhttp refuses)"""
    for path in sorted(glob.glob(os.path.join(folder, "test/request/*.md"))):
        for part in re.split(r"^#+ ", open(path, encoding="utf-8").read(), flags=re.M)[1:]:
            meta = re.search(r"<!-- meta=(.*?) -->", part)
            http, log = re.search(r"```http\n(.*?)```", part, re.S), re.search(r"```log\n(.*?)```", part, re.S)
            if not meta or not http or not log or json.loads(meta.group(1))["type"] != "request":
                continue
            text = re.sub(r"\\\n", "", re.sub(r"\n\Z", "", http.group(1))).replace("\n", "\r\n")
            for escape, byte in (("\\r", "\r"), ("\\n", "\n"), ("\\t", "\t"), ("\\f", "\f")):
                text = text.replace(escape, byte)
            text = re.sub(r"\\x([0-9a-fA-F]{2})", lambda m: chr(int(m.group(1), 16)), text)
            yield os.path.basename(path), part.split("\n")[0], text.encode("latin-1", "replace"), set(re.findall(r"error code=(\d+)", log.group(1))) - {"21", "22", "23", "31"}


def verdict(s, data):
    """True: refused. The replies' statuses beside it."""
    reply = s.raw(data)
    heads = re.findall(rb"HTTP/1\.[01] (\d+) (.*?)\r\n\r\n", reply, re.S)
    refused = any(int(status) in FRAMING and b"Connection: close" in head for status, head in heads)
    unread = len(heads) == 1 and b"Connection: close" in heads[0][1] and len(re.findall(rb"HTTP/1\.[01](?:\r\n|$)", data)) > 1
    return refused or unread or not heads, [int(x) for x, _ in heads]


def main(folder, engine):
    s = Server(engine, name="llhttp")
    counts, wrong = {}, []
    try:
        for name, title, data, refuses in vectors(folder):
            refused, statuses = verdict(s, data)
            kind = "same" if refused == bool(refuses) else "stricter" if refused else "laxer"
            counts[kind] = counts.get(kind, 0) + 1
            if kind == "laxer":
                wrong.append(f"{name}: {title}: {statuses} for {data!r}")
            assert s.process.poll() is None, (name, title)
    finally:
        code = s.stop()
    print("\n".join(wrong))
    print(f"{sum(counts.values())} vectors: {counts}")
    return 1 if wrong or code or not counts else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
