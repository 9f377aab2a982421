# SPDX-License-Identifier: Apache-2.0
"""Unicode properties in regular expressions: grammar_tool's verdicts against Python's unicodedata, at both sides of every place where a
category begins or ends.

usage: properties.py GRAMMAR_TOOL
"""
import json
import subprocess
import sys
import unicodedata

LETTERS = {"Lu", "Ll", "Lt", "Lm", "Lo"}
PROPERTIES = {
    "\\p{L}": LETTERS, "\\p{Letter}": LETTERS, "[\\p{gc=LC}]": {"Lu", "Ll", "Lt"}, "\\p{General_Category=Lu}": {"Lu"},
    "\\p{Lowercase_Letter}": {"Ll"}, "\\p{Lt}": {"Lt"}, "\\p{Lm}": {"Lm"}, "\\p{Lo}": {"Lo"}, "\\p{N}": {"Nd", "Nl", "No"},
    "\\p{Nd}": {"Nd"}, "\\p{digit}": {"Nd"}, "[\\p{Lu}\\p{Ll}\\d]": {"Lu", "Ll"},
}


def main():
    if unicodedata.unidata_version != "14.0.0":
        print("skipped: this Python has Unicode %s, the tables are of 14.0.0" % unicodedata.unidata_version)
        return
    edges = [c for c in range(1, 0x110000) if unicodedata.category(chr(c)) != unicodedata.category(chr(c - 1))]
    chars = sorted({x for c in edges for x in (c - 1, c, c + 1) if x < 0x110000 and not 0xd800 <= x < 0xe000})
    wrong = 0
    for pattern, wanted in PROPERTIES.items():
        for p, opposite in ((pattern, False), (pattern.replace("p{", "P{", 1), True)):
            if opposite and p.startswith("["):
                continue
            text = "regex\t%s\t%s\n" % (json.dumps(p), json.dumps([chr(c) for c in chars]))
            run = subprocess.run([sys.argv[1], "--batch", "-"], input=text.encode(), capture_output=True, check=True)
            out = run.stdout.decode().split(" ")[0]
            ascii_digits = "\\d" in p
            want = [((unicodedata.category(chr(c)) in wanted) or (ascii_digits and 48 <= c <= 57)) != opposite for c in chars]
            bad = [hex(c) for c, w, got in zip(chars, want, out) if w != (got == "1")]
            wrong += len(bad) + (len(out) != len(chars))
            if bad or len(out) != len(chars):
                print(p, len(out), len(bad), bad[:10])
    print("%d characters, %d patterns, %d wrong" % (len(chars), len(PROPERTIES), wrong))
    sys.exit(wrong > 0)


main()
