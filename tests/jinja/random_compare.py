#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random templates, rendered by our engine and by jinja2: the output must be the same bytes, or both
must fail. Where ours says `unsupported` or `limit`, it refuses what jinja2 can do; that is allowed
and counted.

    random_compare.py RENDER COUNT SEED [-v]
"""
import copy
import json
import random
import subprocess
import sys

import oracle

NOW = 1769904000

CONTEXT = {
    "s": "Hello, Wörld", "t": "  a\tb\n c  ", "e": "", "u": "ǅ ß ﬁ Σας İ 😀 中", "q": "it's \"q\" \\ <&>",
    "i": 7, "n": -3, "z": 0, "f": 2.5, "g": -0.1, "h": 1e22, "b": True, "o": False, "x": None,
    "big": 123456789012345678901234567890,
    "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "le": [], "lm": [1, "a", None, 2.0, [1]],
    "d": {"k": 1, "items": 2, "z": {"y": [1, 2]}, "A": "v"}, "de": {},
    "ld": [{"n": 2, "g": "x", "s": "Q"}, {"n": 1, "g": "Y", "s": "p"}, {"n": 3, "g": "x"}],
    "m": [{"role": "system", "content": "S"}, {"role": "user", "content": "U\nu"},
          {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}],
}

STRINGS = ["''", "'a'", "'abc'", "'aXbXc'", "' x '", "'12'", "'-4.5'", "'h\\u00e9\\U0001F600'", "'%s-%d'", "'{}{}'",
           "'a,b,,c'", "'<b>'", "','", "'\\n'", "'A b-c'", "'k'", "'items'", "'0x1F'", "'1_000'", "'1e3'"]
NUMBERS = ["0", "1", "2", "3", "-1", "10", "255", "2.5", "0.1", "-7", "1e3", "100000", "3.0"]
NAMES = list(CONTEXT) + ["undef"]
SUBSCRIPTS = ["[0]", "[-1]", "[5]", "['k']", "['nope']", ".k", ".nope", ".z.y", "[1:]", "[:-1]", "[::-1]", "[::2]",
              "[-2:]", "[1:3]", "[3:0:-1]", ".items", "[-100:100]", "[none:2]", "[n:i]", ".role", ".content"]
METHODS = ["strip()", "lstrip()", "rstrip('c')", "upper()", "lower()", "title()", "capitalize()", "swapcase()",
           "split()", "split(',')", "split(',', 1)", "rsplit(',', 1)", "rsplit()", "splitlines()", "splitlines(true)",
           "replace('a', 'Z')", "replace('', '.')", "replace('X', '', 1)", "startswith('a')", "endswith(('c', 'd'))",
           "find('b')", "rfind('b')", "index('b')", "count('a')", "count('')", "join(ls)", "join(['x', 'y'])",
           "isdigit()", "isalpha()", "isalnum()", "isspace()", "isupper()", "islower()", "istitle()", "isnumeric()",
           "zfill(6)", "center(9, '*')", "ljust(6)", "rjust(6, '-')", "partition('X')", "rpartition(',')",
           "removeprefix('a')", "removesuffix('c')", "expandtabs()", "casefold()", "format(1, 2)", "format(s, k=i)",
           "get('k')", "get('nope')", "get('nope', 5)", "items()", "keys()", "values()", "copy()", "append(1)",
           "pop()", "update({})", "index(1)", "encode()", "nope()", "__len__()", "find('b', 2)", "find('b', -2, 3)",
           "startswith('b', 1)", "isprintable()", "isdecimal()", "isascii()"]
FILTERS = ["abs", "capitalize", "center(9)", "default('D')", "default('D', true)", "dictsort", "dictsort(by='value')",
           "dictsort(true)", "escape", "first", "float", "float(1.5)", "forceescape", "format(1)", "format(1, 2)",
           "groupby('g')|list", "groupby('g', case_sensitive=true)|list", "indent", "indent(2, true)",
           "indent(2, blank=true)", "int", "int(9)", "int(base=16)", "items|list", "join", "join(', ')",
           "join('-', attribute='n')", "last", "length", "list", "lower", "map('upper')|list",
           "map(attribute='n')|list", "map(attribute='s', default='?')|list", "map('int')|list", "max", "min",
           "max(attribute='n')", "reject('odd')|list", "rejectattr('n', 'equalto', 1)|list", "replace('a', 'b')",
           "replace('a', 'b', 1)", "reverse", "reverse|list", "round", "round(1)", "round(1, 'floor')", "round(2, 'ceil')",
           "safe", "select|list", "select('string')|list", "selectattr('n')|list", "selectattr('n', 'gt', 1)|list",
           "slice(2)|list", "batch(2)|list", "batch(2, 0)|list", "sort", "sort(reverse=true)", "sort(attribute='n')",
           "sort(attribute='g,n')", "sort(case_sensitive=true)", "string", "sum", "sum(attribute='n')", "title",
           "tojson", "tojson(indent=2)", "tojson(ensure_ascii=true)", "tojson(sort_keys=true)", "trim", "trim('a')",
           "truncate(5)", "truncate(5, true, '~', 0)", "unique|list", "unique(true)|list", "upper", "urlencode",
           "wordcount", "attr('k')", "attr('upper')", "count", "d(3)", "tojson(separators=(',', ':'))"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "sequence",
         "iterable", "callable", "odd", "even", "divisibleby 3", "true", "false", "lower", "upper", "in l", "eq 1",
         "equalto 'a'", "gt 2", "sameas none", "escaped", "lessthan 3", "ne 0"]
# For expressions that mostly succeed: what gives each type from each type.
TYPED = {
    "str": ["s", "t", "q", "u", "e", "d.A", "m[0].role", "m[1]['content']"] + STRINGS,
    "int": ["i", "n", "z", "l[0]", "d.k", "l|length", "s|length", "ns.a"] + NUMBERS[:7],
    "list": ["l", "ls", "le", "lm", "d.z.y", "[1, 2, 3]", "['x', 'Y']", "range(5)|list", "(1, 'a', none)", "d|list"],
    "dicts": ["ld", "m"],
}
STR_TO_STR = (["." + m for m in METHODS[:8]] + ["." + m for m in METHODS[15:18]] +
              ["." + m for m in METHODS if m.split("(")[0] in
               ("zfill", "center", "ljust", "rjust", "removeprefix", "removesuffix", "expandtabs", "casefold",
                "replace", "join", "format")] +
              ["|" + f for f in ("capitalize", "center(9)", "default('D', true)", "escape", "indent(2, true)",
                                 "indent(2, blank=true)", "lower", "replace('a', 'b')", "reverse", "safe", "string",
                                 "title", "tojson", "tojson(ensure_ascii=true)", "trim", "truncate(5)",
                                 "truncate(5, true, '~', 0)", "upper", "urlencode", "join('.')", "first", "last")] +
              ["[0]", "[1:]", "[::-1]", "[1:3]", "[-2:]", "[:-1:2]"])
STR_TO_INT = [".find('b')", ".rfind('b')", ".count('a')", "|length", "|int", "|wordcount", "|int(base=16)"]
STR_TO_LIST = [".split()", ".split(',')", ".split(',', 1)", ".rsplit(',', 1)", ".rsplit(none, 2)", ".splitlines()",
               ".splitlines(true)", ".partition('X')", "|list", "|batch(2)|list", "|unique|list", "|sort"]
LIST_TO_LIST = ["|reverse|list", "[1:]", "[::-1]", "[:2]", "|batch(2)|list", "|slice(2)|list", "|select|list",
                "|map('string')|list", "|unique|list", "|list", " + [1]", " * 2", "|select('string')|list",
                "|reject('none')|list", "|map('upper')|sort"]
DICTS_TO_LIST = ["|map(attribute='n')|list", "|map(attribute='s', default='?')|list", "|selectattr('n', 'defined')|list",
                 "|rejectattr('n')|list", "|groupby('g', default='z')|list", "|map(attribute='role')|list",
                 "|selectattr('role', 'equalto', 'user')|list", "|map('items')|map('list')|list", "[1:]", "[::-1]"]
ANY_TO_STR = ["|string", "|tojson", "|tojson(indent=2)", "|tojson(sort_keys=true)", " ~ ''", "|join(', ')", "|list|string"]
BINARY = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]


class Maker:
    def __init__(self, rng):
        self.r = rng

    def atom(self):
        k = self.r.random()
        if k < 0.5:
            return self.r.choice(NAMES + ["v"] * 3)
        if k < 0.7:
            return self.r.choice(STRINGS)
        if k < 0.85:
            return self.r.choice(NUMBERS)
        return self.r.choice(["true", "false", "none", "[]", "{}", "()", "range(4)", "loop.index", "loop.last",
                              "loop.length", "loop.previtem", "ns.a", "f1(1)", "f2(i, b=3)", "f1()", "dict(a=1)"])

    def typed(self, kind, depth):
        c = self.r.choice
        if depth <= 0 or self.r.random() < 0.1:
            return c(TYPED[kind])
        sub = lambda k: "(%s)" % self.typed(k, depth - 1)
        k = self.r.random()
        if kind == "str":
            if k < 0.5:
                return sub("str") + c(STR_TO_STR)
            if k < 0.7:
                return sub(c(["list", "dicts", "int"])) + c(ANY_TO_STR)
            if k < 0.85:
                return "%s %s %s" % (sub("str"), c(["+", "~"]), sub("str"))
            if k < 0.93:
                return "%s if %s else %s" % (sub("str"), sub(c(["str", "int", "list"])), sub("str"))
            return "'%s' %% (%s,)" % (c(["%s", "%r", "%10s", "%-5s|", "%.2s"]), sub(c(["str", "int", "list"])))
        if kind == "int":
            if k < 0.3:
                return sub("str") + c(STR_TO_INT)
            if k < 0.8:
                return "%s %s %s" % (sub("int"), c(["+", "-", "*", "//", "%", "/"]), sub("int"))
            return sub("int") + c(["|abs", "|float", "|round", "|round(1)", "|int", "|string|length", " is odd"])
        if kind == "list":
            if k < 0.4:
                return sub("str") + c(STR_TO_LIST)
            if k < 0.55:
                return sub("dicts") + c(DICTS_TO_LIST)
            return sub("list") + c(LIST_TO_LIST)
        return c(TYPED["dicts"]) + c(["", "[1:]", "[::-1]", "|list"])

    def expr(self, depth):
        if depth > 1 and self.r.random() < 0.6:
            return self.typed(self.r.choice(["str", "str", "int", "list", "dicts"]), depth)
        if depth <= 0:
            return self.atom()
        k = self.r.random()
        e = lambda: self.expr(depth - 1)
        if k < 0.15:
            return self.atom()
        if k < 0.27:
            # Not on literals: jinja2 folds those by other rules than it applies when it renders.
            return "%s%s" % (self.r.choice(NAMES + ["v", "w", "range(9)", "ns"]), self.r.choice(SUBSCRIPTS))
        if k < 0.40:
            return "%s.%s" % (self.paren(depth), self.r.choice(METHODS))
        if k < 0.62:
            return "%s|%s" % (self.paren(depth), self.r.choice(FILTERS))
        if k < 0.70:
            return "%s is %s%s" % (self.paren(depth), self.r.choice(["", "", "not "]), self.r.choice(TESTS))
        if k < 0.84:
            return "%s %s %s" % (self.paren(depth), self.r.choice(BINARY), self.paren(depth))
        if k < 0.88:
            return "%s if %s else %s" % (e(), e(), e())
        if k < 0.91:
            return "not %s" % self.paren(depth)
        if k < 0.93:
            return "-%s" % self.paren(depth)
        if k < 0.96:
            return "[%s]" % ", ".join(e() for _ in range(self.r.randrange(4)))
        if k < 0.98:
            return "{%s}" % ", ".join("%s: %s" % (self.r.choice(STRINGS + NUMBERS), e())
                                      for _ in range(self.r.randrange(3)))
        return "(%s,)" % e()

    def paren(self, depth):
        e = self.expr(depth - 1)
        return e if e.replace("_", "").isalnum() and not e[0].isdigit() else "(%s)" % e

    def body(self, depth, loop):
        return "".join(self.statement(depth, loop) for _ in range(self.r.randrange(1, 4)))

    def tag(self, text):
        return "{%%%s %s %s%%}" % (self.r.choice(["", "", "-", "+"]), text, self.r.choice(["", "", "-"]))

    def statement(self, depth, loop):
        k = self.r.random()
        if depth <= 0 or k < 0.35:
            return "{{ %s }}" % self.expr(2)
        if k < 0.45:
            return self.r.choice(["text", " \n", "\n  ", "  ", "a\n", "{# c #}\n", "  {# c -#} "])
        if k < 0.60:
            loop_filter = " if %s" % self.expr(1) if self.r.random() < 0.25 else ""
            target = self.r.choice(["v", "v", "v", "w", "v, w"])
            other = self.tag("else") + self.body(depth - 1, loop) if self.r.random() < 0.3 else ""
            return (self.tag("for %s in %s%s" % (target, self.paren(2), loop_filter)) +
                    self.body(depth - 1, True) + other + self.tag("endfor"))
        if k < 0.75:
            elif_ = self.tag("elif " + self.expr(1)) + self.body(depth - 1, loop) if self.r.random() < 0.3 else ""
            else_ = self.tag("else") + self.body(depth - 1, loop) if self.r.random() < 0.4 else ""
            return self.tag("if " + self.expr(2)) + self.body(depth - 1, loop) + elif_ + else_ + self.tag("endif")
        if k < 0.85:
            return self.tag("set %s = %s" % (self.r.choice(["v", "w", "i", "ns.a", "s", "v, w"]), self.expr(2)))
        if k < 0.88:
            return self.tag("set v") + self.body(depth - 1, loop) + self.tag("endset")
        if k < 0.90:
            return self.tag("filter upper|trim") + self.body(depth - 1, loop) + self.tag("endfilter")
        if k < 0.92:
            return self.tag("with v = " + self.expr(1)) + self.body(depth - 1, loop) + self.tag("endwith")
        if k < 0.94:
            return self.tag("call f3()") + self.body(depth - 1, False) + self.tag("endcall")
        if k < 0.96 and loop:
            return self.tag(self.r.choice(["break", "continue"]))
        if k < 0.98:
            return (self.tag("macro f1(v, w=%s)" % self.expr(1)) + self.body(depth - 1, False) +
                    self.tag("endmacro"))
        return self.tag("generation") + self.body(depth - 1, False) + self.tag("endgeneration")

    def template(self):
        head = ("{% set ns = namespace(a=1) %}{% macro f1(a) %}<{{ a }}>{% endmacro %}"
                "{% macro f2(a, b=2) %}{{ a }}{{ b }}{{ kwargs }}{% endmacro %}"
                "{% macro f3() %}[{{ caller() }}]{% endmacro %}")
        if self.r.random() < 0.6:
            return head + "{{ %s }}" % self.expr(3)
        return head + self.body(3, False)


def no_text_in_python(text):
    """Addresses of objects differ from run to run and are no expectation."""
    return " at 0x" in text


def main():
    count, seed = int(sys.argv[2]), int(sys.argv[3])
    maker = Maker(random.Random(seed))
    env = oracle.environment(NOW)
    items = [{"template": maker.template(), "context": CONTEXT} for _ in range(count)]
    done = subprocess.run([sys.argv[1], str(NOW)], input=json.dumps({"items": items}).encode(),
                          stdout=subprocess.PIPE, check=True)
    equal = failing = refused = addresses = differ = 0
    for item, ours in zip(items, json.loads(done.stdout)):
        # A copy: some filters of jinja2 change lists that they are given.
        theirs = oracle.render(env, item["template"], copy.deepcopy(CONTEXT))
        if "error" in ours and "error" in theirs:
            failing += 1
        elif "output" in theirs and no_text_in_python(theirs["output"]):
            addresses += 1
        elif ours.get("output") == theirs.get("output"):
            equal += 1
        elif ours.get("code") in ("unsupported", "limit"):
            refused += 1
            if "-v" in sys.argv:
                print("refused: %s: %s" % (ours["error"], item["template"][-200:]))
        else:
            differ += 1
            print("differs: %s\n  ours:   %s\n  jinja2: %s" %
                  (item["template"].split("endmacro %}", 3)[-1], json.dumps(ours)[:600], json.dumps(theirs)[:600]))
    print("%d equal, %d fail on both sides, %d refused by ours, %d with addresses, %d differ" %
          (equal, failing, refused, addresses, differ))
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
