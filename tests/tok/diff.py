#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the tokenizer with PyPI `tokenizers` (and `sentencepiece`, `unicodedata2` where they are installed).

usage: diff.py --tool TOK_TOOL [--count N] [--seed S] [KIND]...

TOK_TOOL is tests/tok/tok_tool.c, compiled. Each kind makes a vocabulary, encodes N random strings (gen_text.py) with
both and prints `ok KIND`, `skip KIND: why` or `not ok KIND: ...` with the first differences. Made for tokenizers 0.23.3.

  split        every pattern of every named pre-tokenizer, against Split(Regex), N strings each / 10
  bpe          byte-level byte-pair encoding with six pre-tokenizers and special tokens
  chars        byte-pair encoding on characters with byte fallback
  spm          scores instead of merges
  unigram, unigram-bytes
  wordpiece, wordpiece-cased
  sp-bpe, sp-unigram   against SentencePiece itself, the second with its nmt_nfkc map
  norm         NFC, NFD, NFKC, NFKD against unicodedata2 16.0.0
"""
import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import gguf_writer as gguf
from gen_text import Strings, WORDS, SPACES


class Skip(Exception):
    pass


class Context:
    def __init__(self, args, folder):
        self.tool, self.count, self.seed, self.folder = args.tool, args.count, args.seed, folder

    def run(self, command, records):
        """Length-prefixed byte records through the tool."""
        data = b''.join(struct.pack('<I', len(r)) + r for r in records)
        p = subprocess.run([self.tool] + command, input=data, capture_output=True)
        if p.returncode != 0:
            raise RuntimeError('tok_tool %s: %s' % (command, p.stderr.decode()))
        return p.stdout

    def encode(self, path, strings, *flags):
        out, at, result = self.run(['encode', path] + list(flags), [s.encode() for s in strings]), 0, []
        for _ in strings:
            n = struct.unpack_from('<I', out, at)[0]
            result.append(list(struct.unpack_from('<%dI' % n, out, at + 4)))
            at += 4 + 4 * n
        return result

    def texts(self, command, strings):
        out, at, result = self.run(command, [s.encode() for s in strings]), 0, []
        for _ in strings:
            n = struct.unpack_from('<I', out, at)[0]
            result.append(out[at + 4:at + 4 + n])
            at += 4 + n
        return result


def compare(strings, got, want):
    bad = [i for i in range(len(strings)) if got[i] != want[i]]
    return ['%d of %d differ' % (len(bad), len(strings))] + [
        '%r\n    ours   %s\n    theirs %s' % (strings[i][:200], got[i][:60], want[i][:60]) for i in bad[:5]] if bad else []


def plain(strings, words=('<0x', '<s>', '</s>', '<unk>', '<pad>')):
    """Without the texts of control and byte tokens: `tokenizers` takes them for the tokens, SentencePiece does not."""
    return [s for s in strings if not any(w in s for w in words)]


def ids_of(tokenizer, strings):
    return [e.ids for e in tokenizer.encode_batch(strings, add_special_tokens=False)]


def corpus(seed, n=4000):
    g = Strings(seed)
    return [' '.join(g.r.choice(WORDS) + g.r.choice(('', '', 'ing', 'ed', 's')) for _ in range(12)) + g.r.choice(SPACES)
            for _ in range(n)] + g.many(n)


# ---- byte-pair encoding ------------------------------------------------------------------------------------------

def pre_tokenizers(ctx):
    """name -> patterns, as the compiler has them."""
    return json.loads(subprocess.run([ctx.tool, 'patterns'], capture_output=True, check=True).stdout)


def splitter(patterns, byte_level=True):
    from tokenizers import Regex, pre_tokenizers as pre
    parts = [pre.Split(Regex(p), 'isolated') for p in patterns]
    if byte_level:
        parts.append(pre.ByteLevel(add_prefix_space=False, use_regex=False))
    return pre.Sequence(parts)


def kind_split(ctx):
    problems = []
    done = {}
    for name, patterns in pre_tokenizers(ctx).items():
        key = tuple(patterns)
        if key in done or name == 'whitespace':
            continue
        done[key] = name
        strings = [s for s in Strings(ctx.seed + len(done)).many(max(200, ctx.count // 10)) if s]
        theirs = splitter(patterns, byte_level=False)
        want = [[len(p.encode()) for p, _ in theirs.pre_tokenize_str(s)] for s in strings]
        out, at, got = ctx.run(['split', name], [s.encode() for s in strings]), 0, []
        for _ in strings:
            n = struct.unpack_from('<I', out, at)[0]
            got.append(list(struct.unpack_from('<%dI' % n, out, at + 4)))
            at += 4 + 4 * n
        problems += ['%s: %s' % (name, p) for p in compare(strings, got, want)]
    return problems


def train_bpe(ctx, pre, normalizer, size=3000):
    from tokenizers import Tokenizer, models, trainers, pre_tokenizers as pt
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre
    if normalizer:
        t.normalizer = normalizer
    t.train_from_iterator(corpus(ctx.seed), trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=pt.ByteLevel.alphabet(), show_progress=False))
    return t


def kind_bpe(ctx):
    from tokenizers import AddedToken, normalizers
    problems = []
    names = ('gpt-2', 'llama-bpe', 'qwen2', 'tekken', 'deepseek-v3', 'smollm')
    patterns = pre_tokenizers(ctx)
    for k, name in enumerate(names):
        t = train_bpe(ctx, splitter(patterns[name]), normalizers.NFC() if name == 'qwen2' else None)
        model = json.loads(t.to_str())['model']
        specials = ['<|a|>', '<|ab|>', '<|a|><', '<pad>']
        t.add_special_tokens([AddedToken(s, normalized=False, special=True) for s in specials])
        vocab = t.get_vocab()
        tokens = sorted(vocab, key=vocab.get)
        types = [3 if x in specials else 1 for x in tokens]
        merges = [' '.join(m) if isinstance(m, list) else m for m in model['merges']]
        path = os.path.join(ctx.folder, 'bpe-%s.gguf' % name)
        gguf.write(path, [('model', gguf.STRING, 'gpt2'), ('pre', gguf.STRING, name),
                          ('tokens', gguf.ARRAY, (gguf.STRING, tokens)), ('token_type', gguf.ARRAY, (gguf.I32, types)),
                          ('merges', gguf.ARRAY, (gguf.STRING, merges))])
        pieces = [t.decode([i], skip_special_tokens=False) for i in range(len(tokens))] + specials * 20
        strings = Strings(ctx.seed + k, pieces).many(ctx.count // len(names))
        problems += ['%s: %s' % (name, p)
                     for p in compare(strings, ctx.encode(path, strings, 'special'), ids_of(t, strings))]
    return problems


BYTES = ['<0x%02X>' % b for b in range(256)]


def kind_chars(ctx):
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers as pt, trainers
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.Replace(' ', '\u2581')
    t.pre_tokenizer = pt.Split(Regex('[^\\n]+|[\\n]+'), 'isolated')
    t.train_from_iterator(corpus(ctx.seed), trainers.BpeTrainer(vocab_size=2000, limit_alphabet=300, show_progress=False))
    model = json.loads(t.to_str())['model']
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(' ')) for m in model['merges']]
    merges = [m for m in merges if '\n' not in m[0] + m[1] and ' ' not in m[0] + m[1]]
    tokens = ['<unk>'] + BYTES + [x for x in sorted(model['vocab'], key=model['vocab'].get) if x not in BYTES]
    made = {a + b for a, b in merges}
    tokens = [x for x in tokens if len(x) == 1 or x in BYTES or x == '<unk>' or x in made]
    vocab = {x: i for i, x in enumerate(tokens)}
    ref = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token='<unk>', fuse_unk=True, byte_fallback=True))
    ref.normalizer, ref.pre_tokenizer = t.normalizer, t.pre_tokenizer
    path = os.path.join(ctx.folder, 'chars.gguf')
    gguf.write(path, [('model', gguf.STRING, 'gpt2'), ('pre', gguf.STRING, 'sarvam-moe'),
                      ('tokens', gguf.ARRAY, (gguf.STRING, tokens)),
                      ('token_type', gguf.ARRAY, (gguf.I32, [2] + [6] * 256 + [1] * (len(tokens) - 257))),
                      ('merges', gguf.ARRAY, (gguf.STRING, [' '.join(m) for m in merges])),
                      ('unknown_token_id', gguf.U32, 0)])
    strings = plain(Strings(ctx.seed, [x.replace('\u2581', ' ') for x in tokens[257:]]).many(ctx.count))
    return compare(strings, ctx.encode(path, strings), ids_of(ref, strings))


# ---- SentencePiece's kinds ----------------------------------------------------------------------------------------

def splits(token, vocab):
    return [(token[:k], token[k:]) for k in range(1, len(token)) if token[:k] in vocab and token[k:] in vocab]


def kind_spm(ctx):
    """`tokenizers` gives each split of a token a rank of its own where SentencePiece has one score for all of them; they
    agree where each token has one split, so the others are left out here (sp-bpe has them)."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers as pt, trainers
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.Replace(' ', '\u2581')
    t.pre_tokenizer = pt.Metaspace(prepend_scheme='never')
    t.train_from_iterator(corpus(ctx.seed), trainers.BpeTrainer(vocab_size=3000, limit_alphabet=300, show_progress=False))
    trained = json.loads(t.to_str())['model']['vocab']
    vocab = {x for x in trained if ' ' not in x and x not in BYTES and x not in ('<s>', '</s>', '<unk>')}
    while True:
        bad = {x for x in vocab if len(x) > 1 and len(splits(x, vocab)) != 1}
        if not bad:
            break
        vocab -= bad
    chars = sorted(x for x in vocab if len(x) == 1)
    longer = sorted((x for x in vocab if len(x) > 1), key=trained.get)
    tokens = ['<unk>', '<s>', '</s>'] + BYTES + longer + chars
    scores = [0.0] * 259 + [-float(k) for k in range(len(longer) + len(chars))]
    ids = {x: i for i, x in enumerate(tokens)}
    ref = Tokenizer(models.BPE(vocab=ids, merges=[splits(x, vocab)[0] for x in longer], unk_token='<unk>', fuse_unk=True,
                               byte_fallback=True))
    ref.normalizer = normalizers.Sequence([normalizers.Prepend('\u2581'), normalizers.Replace(' ', '\u2581')])
    path = os.path.join(ctx.folder, 'spm.gguf')
    gguf.write(path, [('model', gguf.STRING, 'llama'), ('tokens', gguf.ARRAY, (gguf.STRING, tokens)),
                      ('scores', gguf.ARRAY, (gguf.F32, scores)),
                      ('token_type', gguf.ARRAY, (gguf.I32, [2, 3, 3] + [6] * 256 + [1] * (len(tokens) - 259)))])
    strings = plain(Strings(ctx.seed, [x.replace('\u2581', ' ') for x in longer]).many(ctx.count))
    return compare(strings, ctx.encode(path, strings), ids_of(ref, strings))


def f32(x):
    return struct.unpack('<f', struct.pack('<f', x))[0]


def unigram(ctx, byte_fallback):
    from tokenizers import Tokenizer, models, normalizers
    g = Strings(ctx.seed)
    words = sorted({w for s in corpus(ctx.seed, 1500) for w in s.replace('\u2581', ' ').split() if len(w) < 16})
    parts = {}
    for w in words:
        w = '\u2581' + w
        for k in range(6):
            i = g.r.randrange(len(w))
            parts[w[i:i + g.r.randrange(1, 8)]] = 1
    vocab = [('<pad>', 0.0), ('</s>', 0.0), ('<unk>', 0.0)] + ([(b, 0.0) for b in BYTES] if byte_fallback else [])
    fixed = len(vocab)
    taken = {x for x, _ in vocab}
    vocab += [(p, f32(-g.r.random() * 12 - 1)) for p in sorted(parts) if p not in taken]
    # Scores of a coarse grid make equal sums likely.
    vocab = [(p, f32(round(s))) if i % 3 == 0 and i >= fixed else (p, s) for i, (p, s) in enumerate(vocab)]
    ref = Tokenizer(models.Unigram(vocab, 2, byte_fallback))
    ref.normalizer = normalizers.Sequence([normalizers.Prepend('\u2581'), normalizers.Replace(' ', '\u2581')])
    path = os.path.join(ctx.folder, 'unigram%d.gguf' % byte_fallback)
    types = [3, 3, 2] + ([6] * 256 if byte_fallback else [])
    gguf.write(path, [('model', gguf.STRING, 't5'), ('tokens', gguf.ARRAY, (gguf.STRING, [p for p, _ in vocab])),
                      ('scores', gguf.ARRAY, (gguf.F32, [s for _, s in vocab])),
                      ('token_type', gguf.ARRAY, (gguf.I32, types + [1] * (len(vocab) - fixed)))])
    strings = plain(Strings(ctx.seed, [p.replace('\u2581', ' ') for p, _ in vocab[fixed:]]).many(ctx.count))
    return compare(strings, ctx.encode(path, strings), ids_of(ref, strings))


def kind_unigram(ctx):
    return unigram(ctx, False)


def kind_unigram_bytes(ctx):
    return unigram(ctx, True)


def sentencepiece_model(ctx, kind, **options):
    try:
        import sentencepiece
        from sentencepiece import sentencepiece_model_pb2
    except ImportError as e:
        raise Skip(str(e))
    path = os.path.join(ctx.folder, 'sp-' + kind)
    lines = [s.replace('\n', ' ').replace('\r', ' ').replace('\0', ' ') for s in corpus(ctx.seed)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=path, model_type=kind, minloglevel=2, num_threads=1,
        character_coverage=0.98, max_sentence_length=100000, **options)
    proto = sentencepiece_model_pb2.ModelProto()
    with open(path + '.model', 'rb') as f:
        proto.ParseFromString(f.read())
    return sentencepiece.SentencePieceProcessor(model_file=path + '.model'), proto


def write_sentencepiece(path, model, proto):
    flags = proto.normalizer_spec
    pairs = [('model', gguf.STRING, model),
             ('tokens', gguf.ARRAY, (gguf.STRING, [p.piece for p in proto.pieces])),
             ('scores', gguf.ARRAY, (gguf.F32, [p.score for p in proto.pieces])),
             ('token_type', gguf.ARRAY, (gguf.I32, [p.type for p in proto.pieces])),
             ('unknown_token_id', gguf.U32, proto.trainer_spec.unk_id),
             ('bos_token_id', gguf.U32, proto.trainer_spec.bos_id),
             ('eos_token_id', gguf.U32, proto.trainer_spec.eos_id),
             ('add_space_prefix', gguf.BOOL, flags.add_dummy_prefix),
             ('remove_extra_whitespaces', gguf.BOOL, flags.remove_extra_whitespaces)]
    if flags.precompiled_charsmap:
        pairs.append(('precompiled_charsmap', gguf.ARRAY, (gguf.U8, flags.precompiled_charsmap)))
    gguf.write(path, pairs)


def against_sentencepiece(ctx, kind, model, **options):
    sp, proto = sentencepiece_model(ctx, kind, **options)
    path = os.path.join(ctx.folder, 'sp-%s.gguf' % kind)
    write_sentencepiece(path, model, proto)
    pieces = [p.piece.replace('\u2581', ' ') for p in proto.pieces if p.type == 1]
    strings = Strings(ctx.seed, pieces, exclude={0}).many(ctx.count)
    got, want = ctx.encode(path, strings), [sp.encode(s) for s in strings]
    if kind == 'unigram':
        # SentencePiece adds scores up in single precision, `tokenizers` and we in double: paths of equal sum may differ.
        score = [p.score for p in proto.pieces]
        for i, (g, w) in enumerate(zip(got, want)):
            if g != w and sorted(map(str, g)) == sorted(map(str, w)) or \
                    abs(sum(score[x] for x in g) - sum(score[x] for x in w)) < 1e-4 * max(1, len(w)):
                got[i] = w
    return compare(strings, got, want)


def kind_sp_bpe(ctx):
    return against_sentencepiece(ctx, 'bpe', 'llama', vocab_size=2500, byte_fallback=True,
                                 normalization_rule_name='identity', remove_extra_whitespaces=False)


def kind_sp_unigram(ctx):
    return against_sentencepiece(ctx, 'unigram', 't5', vocab_size=2000, normalization_rule_name='nmt_nfkc')


# ---- WordPiece ------------------------------------------------------------------------------------------------------

def wordpiece(ctx, lower):
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers as pt, trainers
    # GGUF writes a word's beginning as U+2581, so that character itself cannot be told from it.
    exclude = {0x2581}
    t = Tokenizer(models.WordPiece(unk_token='[UNK]', max_input_chars_per_word=100))
    t.normalizer = normalizers.BertNormalizer(lowercase=lower)
    t.pre_tokenizer = pt.BertPreTokenizer()
    t.train_from_iterator(corpus(ctx.seed), trainers.WordPieceTrainer(
        vocab_size=3000, limit_alphabet=400, special_tokens=['[PAD]', '[UNK]', '[CLS]', '[SEP]'], show_progress=False))
    vocab = t.get_vocab()
    tokens = sorted(vocab, key=vocab.get)
    # GGUF's spelling: a word's beginning is marked, what continues it is not.
    names = [x if i < 4 else x[2:] if x.startswith('##') and len(x) > 2 else '\u2581' + x for i, x in enumerate(tokens)]
    path = os.path.join(ctx.folder, 'wordpiece%d.gguf' % lower)
    gguf.write(path, [('model', gguf.STRING, 'bert'), ('tokens', gguf.ARRAY, (gguf.STRING, names)),
                      ('token_type', gguf.ARRAY, (gguf.I32, [3] * 4 + [1] * (len(tokens) - 4))),
                      ('unknown_token_id', gguf.U32, 1), ('bos_token_id', gguf.U32, 2),
                      ('seperator_token_id', gguf.U32, 3), ('tokenizer.ggml.normalizer.lowercase', gguf.BOOL, lower)])
    strings = Strings(ctx.seed, [x.replace('##', '') for x in tokens[4:]], exclude).many(ctx.count)
    if ctx.count >= 100000:  # every code point once
        strings += ['a%cb' % c for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000 and c not in exclude]
    # The specials' names in text are text here and special tokens there.
    strings = [s for s in strings if '[' not in s]
    return compare(strings, ctx.encode(path, strings), ids_of(t, strings))


def kind_wordpiece(ctx):
    return wordpiece(ctx, True)


def kind_wordpiece_cased(ctx):
    return wordpiece(ctx, False)


# ---- normal forms ---------------------------------------------------------------------------------------------------

def kind_norm(ctx):
    try:
        import unicodedata2 as ud
    except ImportError as e:
        raise Skip(str(e))
    if ud.unidata_version != '16.0.0':
        raise Skip('unicodedata2 is %s, not 16.0.0' % ud.unidata_version)
    strings = [s for s in Strings(ctx.seed).many(ctx.count) if s]
    every = [chr(c) for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000]
    strings += [''.join(every[i:i + 50]) for i in range(0, len(every), 50)]
    problems = []
    for form in ('NFC', 'NFD', 'NFKC', 'NFKD'):
        want = [ud.normalize(form, s).encode() for s in strings]
        problems += ['%s: %s' % (form, p) for p in compare(strings, ctx.texts(['normalize', form], strings), want)]
    return problems


def main():
    kinds = {k[5:].replace('_', '-'): f for k, f in globals().items() if k.startswith('kind_')}
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--tool', required=True)
    p.add_argument('--count', type=int, default=100000)
    p.add_argument('--seed', type=int, default=1)
    p.add_argument('kind', nargs='*', choices=[[]] + list(kinds))
    args = p.parse_args()
    failed = 0
    os.environ['TOKENIZERS_PARALLELISM'] = 'false'
    with tempfile.TemporaryDirectory() as folder:
        ctx = Context(args, folder)
        for name in args.kind or kinds:
            try:
                problems = kinds[name](ctx)
            except Skip as e:
                print('skip %s: %s' % (name, e))
                continue
            if problems:
                failed += 1
                print('not ok %s: %s' % (name, problems[0]))
                for x in problems[1:]:
                    print('  ' + x)
            else:
                print('ok %s' % name)
            sys.stdout.flush()
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
