// SPDX-License-Identifier: Apache-2.0
//
// Tokenizers. An input that begins with "GGUF" is a vocabulary file: it is compiled, used, and its
// compiled form damaged in a way that depends on the input and used again. "R" and a pattern: the
// pattern is compiled and splits a text. Any other first byte chooses a small vocabulary, the rest
// is text: ids must decode to the repaired text, at once and as a stream.

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/text/tok_internal.h"
#include "tests/tok/gguf_vocab.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char sample[] =
    "Hello  world's <|a|> caf\xc3\xa9 \xe4\xb8\xad\xe6\x96\x87 12345 \xf0\x9f\x98\x80\xff\n\n x";

static void require(int condition)
{
    if (!condition) abort();
}

// Encodes and decodes; exact: the text must come back.
static void round_trip(const struct tok *t, const uint8_t *p, size_t n, unsigned flags, int exact)
{
    size_t work_bytes, max_ids, count, len, at = 0, cap;
    if (tok_encode_plan(t, (const char *)p, n, &work_bytes, &max_ids) != TOK_OK) return;
    if (work_bytes > 64 << 20 || max_ids > 8 << 20) return;
    void *work = malloc(work_bytes);
    uint32_t *ids = malloc((max_ids + 1) * sizeof *ids);
    enum tok_status st =
        tok_encode(t, (const char *)p, n, flags, work, work_bytes, ids, max_ids, &count);
    require(st == TOK_OK || !exact);
    if (st == TOK_OK && count < 1 << 16) {
        struct tok_stream s;
        char *chunk = malloc(tok_stream_max(t)), *out, *text;
        require(tok_decode(t, ids, count, TOK_DECODE_SPECIAL, NULL, 0, &len) != TOK_ERR_ID);
        cap = len + tok_stream_max(t);
        out = malloc(cap);
        text = malloc(cap);
        require(tok_decode(t, ids, count, TOK_DECODE_SPECIAL, out, cap, &len) == TOK_OK);
        tok_stream_init(&s, t, TOK_DECODE_SPECIAL);
        for (size_t i = 0; i <= count; i++) {
            size_t k =
                i < count ? tok_stream_push(&s, ids[i], chunk) : tok_stream_finish(&s, chunk);
            require(k <= tok_stream_max(t) && k <= cap - at && utf8_is_valid((uint8_t *)chunk, k));
            memcpy(text + at, chunk, k);
            at += k;
        }
        require(at == len && memcmp(out, text, len) == 0 && utf8_is_valid((uint8_t *)out, len));
        if (exact) {
            uint8_t *repaired = malloc(utf8_repaired_size(p, n) + 1);
            require(utf8_repair(p, n, repaired) == len && memcmp(repaired, out, len) == 0);
            free(repaired);
        }
        free(chunk);
        free(out);
        free(text);
    }
    free(work);
    free(ids);
}

static void use_vocabulary(const uint8_t *data, size_t size)
{
    struct arena a;
    struct diag_sink sink;
    const uint8_t *blob;
    size_t n_blob;
    struct tok t;
    arena_init(&a);
    diag_init(&sink);
    if (gguf_build_vocab(&a, data, size, &sink, &blob, &n_blob)) {
        uint64_t h = 1469598103934665603u;
        uint8_t *copy = arena_dup(&a, blob, n_blob);
        require(tok_open(blob, n_blob, &t) == TOK_OK);
        round_trip(&t, (const uint8_t *)sample, sizeof sample - 1, TOK_ENCODE_SPECIAL, 0);
        for (size_t i = 0; i < size; i++) h = (h ^ data[i]) * 1099511628211u;
        for (unsigned i = 0; i < 8; i++) {
            h = h * 6364136223846793005u + 1442695040888963407u;
            copy[(h >> 20) % (i & 1 ? n_blob : sizeof(struct tok_header))] ^=
                (uint8_t)(1u << (h >> 61));
            if (tok_open(copy, n_blob, &t) == TOK_OK)
                round_trip(&t, (const uint8_t *)sample, sizeof sample - 1, TOK_ENCODE_SPECIAL, 0);
        }
    }
    diag_deinit(&sink);
    arena_deinit(&a);
}

// Bytes in GPT-2's alphabet, a few merges, two control tokens.
static void describe_bytes(struct arena *a, struct tok_vocab_desc *d)
{
    static const struct tok_text merges[] = {
        {"h e", 3}, {"l l", 3}, {"he ll", 5}, {"a a", 3}, {"aa a", 4}};
    static const char *const more[] = {"he", "ll", "hell", "aa", "aaa", "<|a|>", "<|ab|>"};
    struct tok_text *tokens = arena_calloc(a, 263, sizeof *tokens);
    int32_t *types = arena_calloc(a, 263, sizeof *types);
    unsigned next = 256;
    for (unsigned b = 0; b < 256; b++) {
        int plain = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        char *text = arena_alloc(a, 4);
        tokens[b] = (struct tok_text){text, utf8_put((uint8_t *)text, plain ? b : next++)};
    }
    for (unsigned i = 0; i < 7; i++) tokens[256 + i] = (struct tok_text){more[i], strlen(more[i])};
    for (unsigned i = 0; i < 263; i++) types[i] = i < 261 ? TOK_TYPE_NORMAL : TOK_TYPE_CONTROL;
    d->tokens = tokens;
    d->n_tokens = 263;
    d->types = types;
    d->merges = merges;
    d->n_merges = 5;
}

static void describe_pieces(struct tok_vocab_desc *d)
{
    static const struct tok_text tokens[] = {{"<unk>", 5},
                                             {"<s>", 3},
                                             {"</s>", 4},
                                             {"\xe2\x96\x81", 3},
                                             {"a", 1},
                                             {"b", 1},
                                             {"ab", 2},
                                             {"\xe2\x96\x81"
                                              "a",
                                              4},
                                             {"aa", 2},
                                             {"!", 1}};
    static const int32_t types[] = {2, 3, 3, 1, 1, 1, 1, 1, 1, 1};
    static const float scores[] = {0, 0, 0, -5, -6, -6, -2, -1, -3, -4};
    d->tokens = tokens;
    d->n_tokens = 10;
    d->types = types;
    d->scores = scores;
    tok_desc_key(d, "tokenizer.ggml.unknown_token_id", 0);
}

// The small vocabularies are compiled once: they do not depend on the input.
static const struct tok *vocabulary(unsigned which)
{
    static const char *const models[] = {"gpt2", "gpt2", "gpt2", "llama", "t5", "bert"};
    static const char *const pres[] = {"gpt-2", "qwen2", "deepseek-llm", "", "", ""};
    static struct arena arenas[6];
    static struct tok toks[6];
    struct arena *a = &arenas[which];
    struct tok *t = &toks[which];
    struct diag_sink sink;
    struct tok_vocab_desc d;
    const uint8_t *blob;
    size_t n_blob;
    if (t->blob != NULL) return t;
    arena_init(a);
    diag_init(&sink);
    require(tok_desc_init(&d, models[which], pres[which], &sink, "fuzz"));
    if (which < 3)
        describe_bytes(a, &d);
    else
        describe_pieces(&d);
    require(tok_build(a, &d, &sink, "fuzz", &blob, &n_blob));
    require(tok_open(blob, n_blob, t) == TOK_OK);
    diag_deinit(&sink);
    return t;
}

static void use_text(const uint8_t *data, size_t size)
{
    unsigned which = data[0] % 6;
    round_trip(vocabulary(which), data + 1, size - 1, data[0] & 8 ? TOK_ENCODE_SPECIAL : 0,
               which == 0 || which == 2);
}

static void use_pattern(const uint8_t *data, size_t size)
{
    struct arena a;
    struct diag_sink sink;
    struct tok_vocab_desc d;
    const uint8_t *blob;
    size_t n_blob;
    struct tok t;
    arena_init(&a);
    diag_init(&sink);
    const char *pattern = arena_strndup(&a, (const char *)data, size);
    require(tok_desc_init(&d, "gpt2", "gpt-2", &sink, "fuzz"));
    describe_bytes(&a, &d);
    d.patterns = &pattern;
    d.n_patterns = 1;
    if (size < 200 && tok_build(&a, &d, &sink, "fuzz", &blob, &n_blob)) {
        require(tok_open(blob, n_blob, &t) == TOK_OK);
        round_trip(&t, (const uint8_t *)sample, sizeof sample - 1, 0, 1);
    }
    diag_deinit(&sink);
    arena_deinit(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    if (size >= 4 && memcmp(data, "GGUF", 4) == 0)
        use_vocabulary(data, size);
    else if (data[0] == 'R')
        use_pattern(data + 1, size - 1);
    else
        use_text(data, size);
    return 0;
}
