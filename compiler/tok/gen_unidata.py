#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes unidata.inc: the Unicode 16.0.0 properties that tokenizers are compiled with.

usage: gen_unidata.py > unidata.inc      (pip install unicodedata2==16.0.0 regex tokenizers==0.23.3)

The version is pinned because a tokenizer must give the same ids on every machine. unicodedata2 has
categories, combining classes and decompositions; scripts and Alphabetic come from `regex`, whose
newer data is cut down to what is assigned in 16.0.0; case mappings come from Python itself (14.0.0)
and the short list below of what came later (up to 17.0, as lower-casing in `tokenizers` has it).

BERT's normalizer in `tokenizers` classifies by Unicode 8.0. The models were trained with that, so the code
points that it treats otherwise than 16.0.0 would are asked from it and written down here.
"""
import sys
import regex
import unicodedata2 as ud

assert ud.unidata_version == '16.0.0', ud.unidata_version
CPS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CATS = ('Cn Cc Cf Co Cs Ll Lm Lo Lt Lu Mc Me Mn Nd Nl No Pc Pd Pe Pf Pi Po Ps Sc Sk Sm So Zl Zp Zs').split()
# Cased letters that Unicode 15.0 to 17.0 added: upper -> lower.
NEW_CASE = {0x1C89: 0x1C8A, 0xA7CB: 0x264, 0xA7CC: 0xA7CD, 0xA7DA: 0xA7DB, 0xA7DC: 0x19B}
NEW_CASE.update({c: c + 0x20 for c in range(0x10D50, 0x10D66)})
NEW_CASE.update({c: c + 1 for c in (0xA7CE, 0xA7D2, 0xA7D4)})
NEW_CASE.update({c: c + 0x1B for c in range(0x16EA0, 0x16EB9)})


def emit(name, comment, numbers):
    print('/* %s */' % comment)
    print('static const uint32_t %s[] = {' % name)
    line = ''
    for n in numbers:
        word = ('%d' % n if n < 10 else '0x%x' % n) + ','
        if len(line) + len(word) > 100:
            print(line)
            line = ''
        line += word
    print(line)
    print('};')


def runs(value):
    """[(first, value)] of maximal runs over all code points."""
    out = []
    for c in range(0x110000):
        v = value(c)
        if not out or out[-1][1] != v:
            out.append((c, v))
    return out


def ranges(member):
    flat, inside = [], False
    for c in range(0x110001):
        m = c < 0x110000 and member(c)
        if m != inside:
            flat.append(c if m else c - 1)
            inside = m
    return flat


def deltas(mapping):
    """Mappings c -> m as runs (first, count << 8 | step, (m - c) mod 2**32)."""
    out, left = [], sorted(mapping.items())
    i = 0
    while i < len(left):
        c, m = left[i]
        best = 1
        best_step = 1
        for step in (1, 2):
            n = 1
            while i + n < len(left) and left[i + n] == (c + n * step, m + n * step):
                n += 1
            if n > best:
                best, best_step = n, step
        out += [c, best << 8 | best_step, (m - c) & 0xFFFFFFFF]
        i += best
    return out


def bert_differences():
    """(code points without any property for BERT, those that are punctuation only there, those stripped only there)"""
    from tokenizers import normalizers, pre_tokenizers
    clean = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    strip = normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False)
    words = pre_tokenizers.BertPreTokenizer()
    plain, punctuation, stripped = set(), set(), set()
    for c in CPS:
        x, cat = chr(c), ud.category(chr(c))
        white = c in (9, 10, 13, 32) or cat[0] == 'Z'
        dropped = c in (0, 0xFFFD) or (cat in ('Cc', 'Cf', 'Co') and not white)
        punct = not white and not dropped and len(words.pre_tokenize_str('a' + x + 'a')) == 3
        gone = strip.normalize_str(x) == ''
        if punct and cat[0] != 'P' and c > 127:
            punctuation.add(c)
        elif gone and cat != 'Mn':
            stripped.add(c)
        elif ((dropped and clean.normalize_str(x) == x) or (cat == 'Mn' and not gone) or (cat[0] == 'P' and not punct)
              or (ud.normalize('NFD', x) != x and strip.normalize_str(x) == x)):
            plain.add(c)
    return plain | punctuation, punctuation, stripped


def main():
    print('/* Unicode %s properties, written by gen_unidata.py: do not edit. */' % ud.unidata_version)
    cat = {c: ud.category(chr(c)) for c in CPS}
    cat.update({c: 'Cs' for c in range(0xD800, 0xE000)})
    emit('uni_cat_runs', 'first << 5 | category', [c << 5 | CATS.index(v) for c, v in runs(lambda c: cat[c])])
    white = [c for c in CPS if regex.match(r'\p{White_Space}', chr(c)) and cat[c] != 'Cn']
    emit('uni_white', 'White_Space: first, last', ranges(set(white).__contains__))
    for script in ('Han', 'Hiragana', 'Katakana', 'Hangul'):
        members = {c for c in CPS if cat[c] != 'Cn' and regex.match(r'\p{Script=%s}' % script, chr(c))}
        emit('uni_' + script.lower(), 'script %s: first, last' % script, ranges(members.__contains__))
    alpha = {c for c in CPS if cat[c] != 'Cn' and regex.match(r'\p{Alphabetic}', chr(c))}
    emit('uni_alphabetic', 'Alphabetic: first, last', ranges(alpha.__contains__))
    emit('uni_ccc_runs', 'first << 8 | canonical combining class',
         [c << 8 | v for c, v in runs(lambda c: 0 if 0xD800 <= c < 0xE000 else ud.combining(chr(c)))])

    flat, excluded = [], []
    for c in CPS:
        d = ud.decomposition(chr(c))
        if not d or 0xAC00 <= c < 0xD7A4:
            continue
        parts = d.split()
        compat = parts[0].startswith('<')
        seq = [int(p, 16) for p in parts if not p.startswith('<')]
        flat += [c | (1 << 21 if compat else 0) | len(seq) << 22] + seq
        if not compat and len(seq) == 2 and ud.normalize('NFC', ''.join(map(chr, seq))) != chr(c):
            excluded.append(c)
    emit('uni_decomp', 'code point | compatibility << 21 | length << 22, then one step of decomposition; '
         'Hangul syllables left out', flat)
    emit('uni_comp_excluded', 'code points that canonical composition does not make', excluded)

    for name, members in zip(('plain', 'punct', 'strip'), bert_differences()):
        emit('uni_bert_' + name, 'what BERT treats otherwise: first, last', ranges(members.__contains__))
    lower = {c: chr(c).lower() for c in CPS if cat[c] != 'Cn' and chr(c).lower() != chr(c)}
    lower.update({c: chr(m) for c, m in NEW_CASE.items()})
    emit('uni_lower', 'lower case: first, count << 8 | step, difference',
         deltas({c: ord(m) for c, m in lower.items() if len(m) == 1}))
    special = []
    for c, m in sorted(lower.items()):
        if len(m) > 1:
            special += [c | len(m) << 22] + [ord(x) for x in m]
    emit('uni_lower_special', 'code point | length << 22, then its lower case', special)
    fold = {c: ord(chr(c).casefold()) for c in CPS if cat[c] != 'Cn' and len(chr(c).casefold()) == 1}
    fold.update(NEW_CASE)
    emit('uni_fold_runs', 'simple case folding: first, count << 8 | step, difference',
         deltas({c: m for c, m in fold.items() if c != m}))


if __name__ == '__main__':
    sys.exit(main())
