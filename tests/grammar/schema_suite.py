# SPDX-License-Identifier: Apache-2.0
"""Holds grammars of JSON Schemas to the verdicts of JSON-Schema-Test-Suite files.

usage: schema_suite.py GRAMMAR_TOOL FOLDER [--verbose] [--least=PERCENT] [--dialect=URI]

A schema is right when every instance gets its verdict, or refused (which names a keyword). An
invalid instance that is accepted is a false accept: there may be none.
"""
import glob
import json
import subprocess
import sys


def main():
    tool, folder = sys.argv[1:3]
    verbose = "--verbose" in sys.argv
    least = next((float(a[8:]) for a in sys.argv if a.startswith("--least=")), 0)
    dialect = next((a[10:] for a in sys.argv if a.startswith("--dialect=")), None)
    cases = []
    for path in sorted(glob.glob(folder + "/*.json")):
        for group in json.load(open(path)):
            cases.append((path.rsplit("/", 1)[1], group))
    lines = []
    for _, group in cases:
        texts = [json.dumps(t["data"], ensure_ascii=False) for t in group["tests"]]
        schema = group["schema"]
        if dialect and isinstance(schema, dict):
            schema = dict({"$schema": dialect}, **schema)
        schema = json.dumps(schema, ensure_ascii=False)
        lines.append("schema\t%s\t%s\n" % (json.dumps(schema), json.dumps(texts)))
    run = subprocess.run([tool, "--batch", "-", "--annotate"], input="".join(lines).encode(),
                         capture_output=True, check=False)
    out = run.stdout.decode().splitlines()
    if run.returncode or len(out) != len(cases):
        sys.exit("grammar_tool: exit %d after %d of %d schemas: %s" %
                 (run.returncode, len(out), len(cases), run.stderr.decode()[-2000:]))
    right = refused = false_accepts = false_rejects = 0
    for (name, group), line in zip(cases, out):
        label = "%s: %s" % (name, group["description"])
        if line.startswith("refused "):
            refused += 1
            pointer = line.split(" ")[1]
            if not pointer.startswith("#"):
                sys.exit("%s: refused without a pointer: %s" % (label, line))
            if verbose:
                print("refused %s: %s" % (label, line[8:]))
            continue
        bad = 0
        for test, verdict in zip(group["tests"], line.split(" ")[0]):
            if test["valid"] != (verdict == "1"):
                bad += 1
                if test["valid"]:
                    false_rejects += 1
                else:
                    false_accepts += 1
                if verbose or not test["valid"]:
                    print("%s %s: %s: %s" % ("REJECTS" if test["valid"] else "ACCEPTS", label,
                                             test["description"], json.dumps(test["data"])[:200]))
        right += bad == 0
    n = len(cases)
    print("%d schemas: %d right (%.1f%%), %d refused, %d wrong; %d false accepts, %d false rejects" %
          (n, right, 100.0 * right / n, refused, n - right - refused, false_accepts, false_rejects))
    sys.exit(false_accepts > 0 or right + refused < n or 100.0 * right / n < least)


main()
