# SPDX-License-Identifier: Apache-2.0
"""MaskBench's schemas and instances (guidance-ai/jsonschemabench, folder maskbench/data) through
grammar_tool: passing schemas, false accepts, compile times.

usage: maskbench.py GRAMMAR_TOOL FOLDER [--list] [--reasons]

A schema passes when it compiles and every instance gets its verdict. --list prints schemas that are
wrong, --reasons counts why schemas are refused.
"""
import collections
import glob
import json
import re
import subprocess
import sys


def read(path):
    data = json.load(open(path))
    return path.rsplit("/", 1)[1], data["schema"], data["tests"]


def main():
    tool, folder = sys.argv[1:3]
    cases = [read(p) for p in sorted(glob.glob(folder + "/*.json"))]
    lines = []
    for _, schema, tests in cases:
        texts = [json.dumps(t["data"], ensure_ascii=False, indent=None) for t in tests]
        lines.append("schema\t%s\t%s\n" % (json.dumps(json.dumps(schema)), json.dumps(texts)))
    run = subprocess.run([tool, "--batch", "-"], input="".join(lines).encode(), capture_output=True,
                         check=False)
    out = run.stdout.decode().splitlines()
    if len(out) != len(cases):
        print("grammar_tool ended with %d at schema %s: %s" %
              (run.returncode, cases[len(out)][0], run.stderr.decode()[-2000:]))
        sys.exit(1)
    counts = collections.Counter()
    reasons = collections.Counter()
    times = []
    for (name, _, tests), line in zip(cases, out):
        times.append((int(line.rsplit(" ", 1)[1]), name))
        if line.startswith("refused "):
            counts["refused"] += 1
            pointer, message = line[8:].rsplit(" ", 1)[0].split(" ", 1)
            reasons["%s: %s" % (pointer.rsplit("/", 1)[-1], re.sub(r"'[^']*'|\d+", "*", message))] += 1
            if "--list" in sys.argv:
                print("refused %s %s %s" % (name, pointer, message))
            continue
        wrong = False
        for i, (test, verdict) in enumerate(zip(tests, line.split(" ")[0])):
            if test["valid"] != (verdict == "1"):
                wrong = True
                counts["false reject" if test["valid"] else "false accept"] += 1
                if "--list" in sys.argv:
                    print("%s %s %d" % ("REJECTS" if test["valid"] else "ACCEPTS", name, i))
        counts["wrong" if wrong else "passing"] += 1
    times.sort()
    print("%d schemas: %s" % (len(cases), dict(counts)))
    print("compile us: p50 %d, p90 %d, p99 %d, p99.9 %d, max %d (%s)" % tuple(
        [times[min(len(times) - 1, int(len(times) * q))][0] for q in (.5, .9, .99, .999)] +
        list(times[-1])))
    if "--reasons" in sys.argv:
        for reason, n in reasons.most_common(40):
            print("%6d %s" % (n, reason))


main()
