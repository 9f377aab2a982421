#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Grammars and schemas that engines were reported to get wrong, and what is right.

usage: cases.py GRAMMAR_TOOL FILE...

A file (tests/grammar/cases) has items: `grammar` or `gbnf` (GBNF), or `schema`; `parts` are texts to repeat, `chain` a chain of so many
rules. `accept` and `reject` are texts in and not in the language, worked out by hand or with PyPI jsonschema. `verdict` refuse: no text is
in it, or it is no grammar; refuse-or-handle: either, but in the end one of them, and never a wrong verdict.
"""
import json
import subprocess
import sys


def source(item):
    """(kind, text)"""
    if "schema" in item:
        return "schema", json.dumps(item["schema"], ensure_ascii=False)
    if "parts" in item:
        return "gbnf", "".join(text * times for text, times in item["parts"])
    if "chain" in item:
        rules = ["r%d ::= r%d" % (i, i + 1) for i in range(item["chain"])]
        return "gbnf", "\n".join(["root ::= r0", *rules, 'r%d ::= "a"' % item["chain"]])
    return "gbnf", item.get("grammar") or item["gbnf"]


def judge(item, line):
    """Why the line of output is wrong, or None."""
    accept, reject = item.get("accept", []), item.get("reject", [])
    verdict = item.get("verdict", "handle")
    if line.startswith("refused "):
        return None if verdict != "handle" or item.get("may_refuse_schema") else line
    if verdict == "refuse":
        return "not refused"
    want = "1" * len(accept) + "0" * len(reject)
    got = line.rsplit(" ", 1)[0]
    wrong = [t for t, g, w in zip(accept + reject, got, want) if g != w]
    return None if got == want else "wrong for %r" % wrong[:5]


def main():
    tool, files = sys.argv[1], sys.argv[2:]
    items = [(path, i, item) for path in files for i, item in enumerate(json.load(open(path))["items"])]
    lines = []
    for _, _, item in items:
        kind, text = source(item)
        lines.append("%s\t%s\t%s\n" % (kind, json.dumps(text), json.dumps(item.get("accept", []) + item.get("reject", []))))
    run = subprocess.run([tool, "--batch", "-"], input="".join(lines).encode(), capture_output=True, check=False)
    out = run.stdout.decode().splitlines()
    if run.returncode or len(out) != len(items):
        sys.exit("grammar_tool: exit %d after %d of %d: %s" % (run.returncode, len(out), len(items), run.stderr.decode()[-2000:]))
    bad = 0
    for (path, i, item), line in zip(items, out):
        why = judge(item, line)
        bad += why is not None
        if why is not None:
            print("%s %s: %s" % (path, item.get("name") or item.get("from") or i, why))
    print("%d cases, %d wrong" % (len(items), bad))
    sys.exit(bad > 0)


main()
