#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes runtime/text/jinja_unicode.def: what Python's str knows about characters, as compact tables.

    make_unicode.py > runtime/text/jinja_unicode.def

Uses only the Unicode data of the Python that runs it, whose version is noted in the file.
"""
import sys
import unicodedata

LAST = 0x110000
OTHER, PRINT, IGNORABLE, FORMAT, UPPER, LOWER, TITLE, MODIFIER, LETTER, DECIMAL, NUMBER = range(11)
EVEN_UPPER, ODD_UPPER = 11, 12  # upper and lower case take turns
SMALL_MODIFIER, SMALL_LETTER = 13, 14  # letters of other categories that count as lower case
NUMBER_LETTER = 15  # Han numerals


def ignorable(c):
    """Case_Ignorable: the rule for final sigma looks through it. Seen through that very rule."""
    return ("a" + c + "\u03a3").lower()[-1] == "\u03c2" != ("." + c + "\u03a3").lower()[-1]


def class_of(cp):
    c = chr(cp)
    cat = unicodedata.category(c)
    if cat in ("Lm", "Lo") and c.islower():
        return SMALL_MODIFIER if ignorable(c) else SMALL_LETTER
    if ignorable(c):
        if cat == "Lm":
            return MODIFIER
        assert cat[0] != "L" and cat[0] != "N"
        return IGNORABLE if c.isprintable() else FORMAT
    if cat == "Lo" and c.isnumeric():
        return NUMBER_LETTER
    if cat in ("Lu", "Ll", "Lt", "Lo", "Nd"):
        return {"Lu": UPPER, "Ll": LOWER, "Lt": TITLE, "Lo": LETTER, "Nd": DECIMAL}[cat]
    if cat == "Lm":
        return LETTER
    if cat in ("Nl", "No"):
        return NUMBER
    return PRINT if c.isprintable() else OTHER


def runs():
    """(first, class) of runs of one class, with alternating cases as one run."""
    classes = [OTHER if 0xD800 <= cp < 0xE000 else class_of(cp) for cp in range(LAST)]
    out = []
    cp = 0
    while cp < LAST:
        end = cp
        if classes[cp] in (UPPER, LOWER):
            while end + 1 < LAST and {classes[end], classes[end + 1]} == {UPPER, LOWER}:
                end += 1
        if end - cp >= 3:
            even = (classes[cp] == UPPER) == (cp % 2 == 0)
            out.append((cp, EVEN_UPPER if even else ODD_UPPER))
            cp = end + 1
            continue
        if not out or out[-1][1] != classes[cp]:
            out.append((cp, classes[cp]))
        cp += 1
    return out


def mapping(convert):
    """(first, last, step, delta) of one-to-one case mappings."""
    pairs = []
    for cp in range(0x80, LAST):
        if 0xD800 <= cp < 0xE000:
            continue
        to = convert(chr(cp))
        if len(to) == 1 and ord(to) != cp:
            pairs.append((cp, ord(to) - cp))
    out = []
    for cp, delta in pairs:
        if out and out[-1][3] == delta:
            first, last, step, _ = out[-1]
            gap = cp - last
            if gap in (1, 2) and (first == last or gap == step):
                out[-1] = (first, cp, gap, delta)
                continue
        out.append((cp, cp, 1, delta))
    return out


def main():
    w = sys.stdout.write
    w("// SPDX-License-Identifier: Apache-2.0\n")
    w("/*\n * Facts of Unicode %s, written by tests/jinja/make_unicode.py from Python's own tables.\n"
      % unicodedata.unidata_version)
    w(" *   RUN(first, class)                     a run of characters of one class, up to the next\n"
      " *   UPPER, LOWER, TITLE(first, last, step, delta)  one-to-one case mappings outside ASCII\n"
      " *   SPECIAL(character, upper 1, 2, 3, title 1, 2, 3)  mappings to several, 0 ends one\n"
      " * Each sorted by character.\n */\n")
    line = ""
    for first, cls in runs():
        item = "RUN(0x%X, %d)" % (first, cls)
        if len(line) + len(item) > 99:
            w(line + "\n")
            line = ""
        line += (" " if line else "") + item
    w(line + "\n")
    for name, convert in (("UPPER", str.upper), ("LOWER", str.lower), ("TITLE", str.title)):
        line = ""
        for row in mapping(convert):
            item = "%s(0x%X, 0x%X, %d, %d)" % ((name,) + row)
            if len(line) + len(item) > 99:
                w(line + "\n")
                line = ""
            line += (" " if line else "") + item
        w(line + "\n")
    line = ""
    for cp in range(LAST):
        if 0xD800 <= cp < 0xE000:
            continue
        upper, title = chr(cp).upper(), chr(cp).title()
        if len(upper) == 1 and len(title) == 1:
            continue
        cells = [ord(c) for c in upper] + [0] * (3 - len(upper))
        cells += [ord(c) for c in title] + [0] * (3 - len(title))
        item = "SPECIAL(0x%X, %s)" % (cp, ", ".join("0x%X" % c if c else "0" for c in cells))
        if len(line) + len(item) > 99:
            w(line + "\n")
            line = ""
        line += (" " if line else "") + item
    w(line + "\n")


if __name__ == "__main__":
    main()
