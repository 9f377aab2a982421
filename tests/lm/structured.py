# SPDX-License-Identifier: Apache-2.0
"""Answers under random JSON Schemas, at temperature 1.5, validated by PyPI's jsonschema.

usage: structured.py ENGINE COUNT SEED

An answer that ends within its tokens must be valid JSON that fits; one that does not (the length is
the limit) must be the beginning of one, which the run itself shows: the engine reports no error.
"""
import json
import random
import subprocess
import sys

import jsonschema


def scalar(r):
    kind = r.randrange(8)
    if kind == 0:
        lo = r.randrange(-50, 50)
        return {"type": "integer", "minimum": lo, "maximum": lo + r.randrange(200)}
    if kind == 1:
        return {"type": "number", "exclusiveMinimum": -1, "maximum": 10, "multipleOf": 0.5}
    if kind == 2:
        return {"type": "string", "maxLength": r.randrange(1, 12)}
    if kind == 3:
        return {"type": "string", "pattern": r.choice(["^[a-c]{2,4}$", "^\\d+$", "^x?y*z{1,3}$"]),
                "maxLength": 12}
    if kind == 4:
        return {"enum": r.sample(["red", "green", "blue", 1, 2.5, None, True, [1], {"a": 1}], 3)}
    if kind == 5:
        return {"type": "boolean"}
    if kind == 6:
        return {"type": "string", "format": r.choice(["date", "ipv4", "uuid"])}
    return {"const": r.choice(["fixed", 7, False])}


def schema(r, depth):
    kind = r.randrange(7) if depth else 0
    if kind <= 1:
        return scalar(r)
    if kind == 2:
        n = r.randrange(4)
        return {"type": "array", "items": schema(r, depth - 1), "minItems": r.randrange(n + 1),
                "maxItems": n}
    if kind == 3:
        return {r.choice(["anyOf", "oneOf"]): [schema(r, depth - 1), schema(r, depth - 1)]}
    names = r.sample(["a", "b", "name", "value", "items", "x\"y", "\u00e9"], r.randrange(1, 5))
    out = {"type": "object", "properties": {n: schema(r, depth - 1) for n in names},
           "required": [n for n in names if r.random() < .6], "additionalProperties": False}
    if kind == 5:
        out["additionalProperties"] = {"type": "integer"}
        out["maxProperties"] = len(names) + 2
    if kind == 6:
        out["if"] = {"required": [names[0]]}
        out["then"] = {"required": [names[-1]]}
    return out


def main():
    engine, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    r = random.Random(seed)
    valid = cut = refused = 0
    for i in range(count):
        s = schema(r, 3)
        with open("schema.json", "w") as f:
            json.dump(s, f)
        run = subprocess.run([engine, "generate", "-p", "the robot", "-n", "800", "--ctx", "1000", "--temp", "1.5",
                              "--top-k", "0", "--top-p", "1", "--min-p", "0", "--seed", str(seed * 100000 + i),
                              "--json-schema", "schema.json", "--json"], capture_output=True, check=False)
        if run.returncode == 2 and b"the schema, #" in run.stderr:
            refused += 1
            continue
        if run.returncode:
            sys.exit("schema %s: exit %d: %s" % (json.dumps(s), run.returncode, run.stderr.decode()))
        choice = json.loads(run.stdout)["choices"][0]
        if choice["finish_reason"] != "stop":
            cut += 1
            continue
        try:
            jsonschema.Draft202012Validator(s, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER).validate(
                json.loads(choice["text"]))
        except (ValueError, jsonschema.ValidationError) as e:
            sys.exit("schema %s\nanswer %s\n%s" % (json.dumps(s), choice["text"], e))
        valid += 1
    print("%d answers: %d valid, %d cut by their length, %d schemas refused" %
          (count, valid, cut, refused))
    sys.exit(valid < count * .6)


main()
