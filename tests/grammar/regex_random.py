# SPDX-License-Identifier: Apache-2.0
"""Random regular expressions: grammar_tool's verdicts against Python's re.

usage: regex_random.py GRAMMAR_TOOL COUNT SEED

Patterns as a whole (kind regex), and as JSON Schema's `pattern`, which searches, and its opposite.
"""
import json
import random
import re
import subprocess
import sys

ALPHABET = "abc1"


def pattern(r, depth):
    kind = r.randrange(12 if depth else 5)
    if kind < 3:
        return r.choice(ALPHABET)
    if kind == 3:
        return r.choice(["[ab]", "[^a]", "[a-c]", "\\d", "\\w", ".", "[^\\d]", "\u00e9"])
    if kind == 4:
        return ""
    if kind < 8:
        return pattern(r, depth - 1) + pattern(r, depth - 1)
    if kind == 8:
        return "(" + pattern(r, depth - 1) + "|" + pattern(r, depth - 1) + ")"
    return "(?:" + pattern(r, depth - 1) + ")" + r.choice(["*", "+", "?", "{2}", "{1,3}", "{0,2}"])


def texts(r):
    return ["".join(r.choice(ALPHABET + "\u00e9") for _ in range(r.randrange(8))) for _ in range(12)]


def main():
    tool, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    r = random.Random(seed)
    lines, wanted = [], []
    for i in range(count):
        p = pattern(r, 4)
        t = texts(r)
        mode = i % 3
        if mode == 0:
            want = [re.fullmatch(p, x, re.A) is not None for x in t]
            lines.append(("regex", p, t))
        else:
            p = r.choice(["", "^"]) + "(?:" + p + ")" + r.choice(["", "$"])
            want = [re.search(p.replace("$", "\\Z"), x, re.A) is not None for x in t]
            schema = {"type": "string", "pattern": p}
            if mode == 2:
                schema = {"type": "string", "not": {"pattern": p}}
                want = [not w for w in want]
            lines.append(("schema", json.dumps(schema), [json.dumps(x, ensure_ascii=i % 2) for x in t]))
        wanted.append(want)
    text = "".join("%s\t%s\t%s\n" % (k, json.dumps(g), json.dumps(t)) for k, g, t in lines)
    run = subprocess.run([tool, "--batch", "-"], input=text.encode(), capture_output=True, check=False)
    out = run.stdout.decode().splitlines()
    if run.returncode or len(out) != count:
        sys.exit("exit %d after %d lines: %s" % (run.returncode, len(out), run.stderr.decode()[-1000:]))
    empty = wrong = 0
    for (kind, g, t), want, line in zip(lines, wanted, out):
        if line.startswith("refused"):
            # a language that is empty, which no text can contradict
            empty += 1
            if any(want) or ("no value" not in line and "no text" not in line):
                wrong += 1
                print("refused: %s %s: %s" % (kind, g, line))
            continue
        got = [c == "1" for c in line.split(" ")[0]]
        if got != want:
            wrong += 1
            bad = [x for x, a, b in zip(t, got, want) if a != b]
            print("wrong: %s %s on %s" % (kind, g, json.dumps(bad)))
    print("%d patterns, %d empty, %d wrong" % (count, empty, wrong))
    sys.exit(wrong > 0)


main()
