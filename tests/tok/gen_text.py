# SPDX-License-Identifier: Apache-2.0
"""Random strings that are hard for tokenizers; the same seed gives the same strings."""
import random

SPACES = [' ', '  ', '   ', '\n', '\n\n', '\r\n', '\t', '\r', '\x0b', '\x0c', '\x85', '\u00a0', '\u1680', '\u2003',
          '\u2028', '\u3000', '\u200b', '\ufeff', ' \n ', '\n ', ' \t', '    ', '\t\t', '\n\n\n']
WORDS = ("the and ing er hello Hello HELLO world don't I'll we've they're it's you'd I'm 'S 'LL 'rE caf\u00e9 na\u00efve "
         "\u0130stanbul stra\u00dfe \u01c5 \u212a \u017f fi\ufb01 \u00bd \u0665\u0664 3.14 1,234,567 0x1F 2024-01-02 10\u00b2 "
         "foo_bar fooBar FooBAR a.b.c x=y; {}[]() !? ... --- \u2014 \u2018q\u2019 \u201cq\u201d $5 \u20ac9 #a @b &amp; <b> </s> <s> "
         "\u4e2d\u6587 \u65e5\u672c\u8a9e \u3042\u3044 \u30ab\u30bf \ud55c\uad6d\uc5b4 \u0421\u043b\u043e\u0432\u043e \u0627\u0644\u0639 "
         "\u05e9\u05dc\u05d5\u05dd \u0e44\u0e17\u0e22 \u0939\u093f\u0928\u094d\u0926\u0940 \U0001f600 \U0001f469\u200d\U0001f467 "
         "\U0001f1e9\U0001f1ea e\u0301 a\u0308\u0323 \u1100\u1161\u11a8 \u2581 \u2581a <0x41> \ufffd").split(' ')
CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'RE", "'\u017f", "'", "''", "'x"]
BLOCKS = [(0x20, 0x7f), (0xa0, 0x180), (0x300, 0x370), (0x370, 0x530), (0x590, 0x700), (0x900, 0xa00), (0xe00, 0xe80),
          (0x1100, 0x1200), (0x1e00, 0x2000), (0x2000, 0x2070), (0x2070, 0x2c00), (0x3000, 0x3100), (0x4e00, 0x4f00),
          (0xac00, 0xae00), (0xf900, 0xfb00), (0xfe00, 0x10000), (0x1f300, 0x1f700)]


class Strings:
    """pieces: strings of the vocabulary, from which borders of merges are made; exclude: code points not to use."""

    def __init__(self, seed, pieces=(), exclude=()):
        self.r = random.Random(seed)
        self.pieces = [p for p in pieces if p and '\ufffd' not in p]
        self.exclude = frozenset(exclude)

    def char(self):
        while True:
            k = self.r.random()
            if k < 0.5:
                c = self.r.randrange(*self.r.choice(BLOCKS))
            elif k < 0.8:
                c = self.r.randrange(0x10000)
            else:
                c = self.r.randrange(17) << 16 | self.r.randrange(0x10000)  # any plane
            if not 0xD800 <= c < 0xE000 and c not in self.exclude:
                return chr(c)

    def part(self):
        r, k = self.r, self.r.random()
        if k < 0.30:
            return r.choice(SPACES) * r.choice((1, 1, 1, 2, 3, 7, 20))
        if k < 0.55 and self.pieces:  # a token cut short, doubled or run into the next
            p = r.choice(self.pieces)
            p = p[:r.randrange(len(p)) + 1] if r.random() < 0.4 else p
            return p * r.choice((1, 1, 1, 2, 3))
        if k < 0.75:
            return r.choice(WORDS)
        if k < 0.80:
            return r.choice(CONTRACTIONS)
        if k < 0.85:
            return str(r.randrange(10 ** r.randrange(1, 12)))
        if k < 0.88:
            return self.char() * r.randrange(1, 40)
        return ''.join(self.char() for _ in range(r.randrange(1, 6)))

    def string(self):
        n = self.r.choice((0, 1, 1, 2, 3, 4, 5, 6, 8, 10, 15))
        s = ''.join(self.part() for _ in range(n))
        return ''.join(c for c in s if ord(c) not in self.exclude) if self.exclude else s

    def many(self, n):
        return [self.string() for _ in range(n)]
