// SPDX-License-Identifier: Apache-2.0
/* The models on small vocabularies, special tokens, decoding, long texts and hostile input. */
#include "tests/tok/fixture.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define SPECIAL TOK_ENCODE_SPECIAL
#define BOTH (TOK_ENCODE_BOS | TOK_ENCODE_EOS)

static void ids_of(const struct fixture *f, const char *text, unsigned flags, const char *expected)
{
    expect_ids(&f->tok, text, strlen(text), flags, expected);
}

/* ---- byte-pair encoding
 * ----------------------------------------------------------------------------- */

/* Tokens 0-255 are the bytes in GPT-2's alphabet. */
static char byte_names[256][4];

static const char *const *byte_tokens(size_t *n, const char *const *more, size_t n_more)
{
    static const char *all[512];
    unsigned next = 256;
    for (unsigned b = 0; b < 256; b++) {
        bool plain = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        unsigned c = plain ? b : next++;
        if (c < 0x80) {
            byte_names[b][0] = (char)c;
        } else {
            byte_names[b][0] = (char)(0xc0 | c >> 6);
            byte_names[b][1] = (char)(0x80 | (c & 0x3f));
        }
        all[b] = byte_names[b];
    }
    memcpy(all + 256, more, n_more * sizeof more[0]);
    *n = 256 + n_more;
    return all;
}

static const char *const bpe_more[] = {"he",    "ll",     "hell", "hello", "\xc4\xa0hello",
                                       "<|a|>", "<|ab|>", "<u>"};
static const char *const bpe_merges[] = {"h e", "l l", "he ll", "hell o", "\xc4\xa0 hello"};
static int32_t bpe_types[256 + COUNT(bpe_more)];

static void begin_bpe(struct fixture *f)
{
    size_t n;
    const char *const *tokens = byte_tokens(&n, bpe_more, COUNT(bpe_more));
    for (size_t i = 0; i < n; i++) bpe_types[i] = TOK_TYPE_NORMAL;
    bpe_types[261] = bpe_types[262] = TOK_TYPE_CONTROL;
    bpe_types[263] = TOK_TYPE_USER_DEFINED;
    fixture_begin(f, "gpt2", "gpt-2");
    fixture_tokens(f, tokens, n);
    fixture_merges(f, bpe_merges, COUNT(bpe_merges));
    f->desc.types = bpe_types;
}

static void bpe_words(void **state)
{
    (void)state;
    struct fixture f;
    begin_bpe(&f);
    fixture_build(&f);
    ids_of(&f, "", 0, "");
    ids_of(&f, "hello", 0, "259");
    ids_of(&f, " hello hello", 0, "260 260");
    ids_of(&f, "hellol", 0, "259 108");
    ids_of(&f, "\xc3\xa9", 0, "195 169");
    expect_ids(&f.tok, "\0hello", 6, 0, "0 259");
    fixture_end(&f);
}

static void special_tokens(void **state)
{
    (void)state;
    struct fixture f;
    begin_bpe(&f);
    fixture_build(&f);
    ids_of(&f, "<|a|>", SPECIAL, "261");
    ids_of(&f, "x<|ab|>hello<|a|>", SPECIAL, "120 262 259 261");
    ids_of(&f, "<|a|>", 0, "60 124 97 124 62"); /* a user's text stays text */
    ids_of(&f, "a<u>b", 0, "97 263 98");        /* user-defined tokens are always cut out */
    ids_of(&f, "<|a<|a|>", SPECIAL, "60 124 97 261");
    assert_int_equal(tok_find_added(&f.tok, "<|ab|>", 6), 262);
    assert_int_equal(tok_find_added(&f.tok, "<|ab|", 5), TOK_NONE);
    assert_int_equal(tok_find_added(&f.tok, "hello", 5), TOK_NONE);
    fixture_end(&f);
}

static void bos_and_eos(void **state)
{
    (void)state;
    struct fixture f;
    begin_bpe(&f);
    assert_true(tok_desc_key(&f.desc, "tokenizer.ggml.bos_token_id", 261));
    assert_true(tok_desc_key(&f.desc, "tokenizer.ggml.eos_token_id", 262));
    assert_true(tok_desc_key(&f.desc, "tokenizer.ggml.add_bos_token", 1));
    assert_true(tok_desc_key(&f.desc, "tokenizer.ggml.add_eos_token", 1));
    assert_false(tok_desc_key(&f.desc, "general.name", 1));
    fixture_build(&f);
    ids_of(&f, "hello", 0, "259");
    ids_of(&f, "hello", BOTH, "261 259 262");
    ids_of(&f, "", BOTH, "261 262");
    struct tok_info info;
    assert_int_equal(tok_token_info(&f.tok, 262, &info), TOK_OK);
    assert_true(info.ends_generation && info.type == TOK_TYPE_CONTROL);
    assert_int_equal(tok_token_info(&f.tok, 260, &info), TOK_OK);
    assert_int_equal(info.n_bytes, 6);
    assert_memory_equal(info.bytes, " hello", 6);
    assert_int_equal(tok_token_info(&f.tok, 264, &info), TOK_ERR_ID);
    assert_int_equal(tok_special_id(&f.tok, TOK_SPECIAL_BOS), 261);
    assert_int_equal(tok_special_id(&f.tok, TOK_SPECIAL_PAD), TOK_NONE);
    fixture_end(&f);
}

/* A token may swallow white space around it. */
static void stripping_tokens(void **state)
{
    (void)state;
    struct fixture f;
    begin_bpe(&f);
    f.desc.model_name = "Phi-3-mini";
    fixture_build(&f);
    ids_of(&f, "hello <|a|> \n hello", SPECIAL, "259 32 261 259");
    fixture_end(&f);
}

/* Merges that would make a control token make text that looks like it. */
static void merges_never_make_control_tokens(void **state)
{
    (void)state;
    static const char *const more[] = {"<s", "<s>"}, *const merges[] = {"< s", "<s >"};
    struct fixture f;
    size_t n;
    begin_bpe(&f);
    fixture_tokens(&f, byte_tokens(&n, more, 2), 258);
    fixture_merges(&f, merges, 2);
    for (size_t i = 0; i < 258; i++) bpe_types[i] = i == 257 ? TOK_TYPE_CONTROL : TOK_TYPE_NORMAL;
    static const char *const whole[] = {".+"};
    f.desc.patterns = whole;
    f.desc.n_patterns = 1;
    f.desc.flags |= TOK_F_IGNORE_MERGES;
    fixture_build(&f);
    ids_of(&f, "<s>", 0, "60 115 62");
    ids_of(&f, "<s>", SPECIAL, "257");
    fixture_end(&f);
}

/* Whatever the pieces' length, the heap and the short loop agree with merging by hand. */
static uint32_t merge_rank(uint32_t a, uint32_t b, uint32_t *result)
{
    static const uint32_t table[][3] = {{97, 97, 256},   {256, 97, 257}, {97, 98, 258},
                                        {256, 256, 259}, {98, 98, 260},  {259, 98, 261},
                                        {258, 258, 262}};
    for (uint32_t i = 0; i < COUNT(table); i++)
        if (table[i][0] == a && table[i][1] == b) return *result = table[i][2], i;
    return TOK_NONE;
}

static size_t merge_naively(uint32_t *v, size_t n)
{
    for (;;) {
        uint32_t best = TOK_NONE, made = 0, r;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            uint32_t rank = merge_rank(v[i], v[i + 1], &r);
            if (rank < best) best = rank, at = i, made = r;
        }
        if (best == TOK_NONE) return n;
        v[at] = made;
        memmove(v + at + 1, v + at + 2, (n - at - 2) * sizeof v[0]);
        n--;
    }
}

static void bpe_long_and_short_agree(void **state)
{
    (void)state;
    static const char *const more[] = {"aa", "aaa", "ab", "aaaa", "bb", "aaaab", "abab"};
    static const char *const merges[] = {"a a", "aa a", "a b", "aa aa", "b b", "aaaa b", "ab ab"};
    struct fixture f;
    size_t n;
    fixture_begin(&f, "gpt2", "gpt-2");
    fixture_tokens(&f, byte_tokens(&n, more, COUNT(more)), 256 + COUNT(more));
    fixture_merges(&f, merges, COUNT(merges));
    fixture_build(&f);
    uint32_t seed = 7;
    for (unsigned i = 0; i < 5000; i++) {
        char text[128];
        uint32_t want[128];
        size_t len = i % 100 + 1, count;
        for (size_t k = 0; k < len; k++) {
            seed = seed * 1664525u + 1013904223u;
            text[k] = seed >> 24 & 3 ? 'a' : 'b';
            want[k] = (uint8_t)text[k];
        }
        uint32_t *got = encode_bytes(&f.tok, text, len, 0, &count);
        assert_int_equal(count, merge_naively(want, len));
        assert_memory_equal(got, want, count * sizeof *got);
        free(got);
    }
    fixture_end(&f);
}

/* ---- SentencePiece's models, WordPiece, RWKV
 * ---------------------------------------------------------- */

#define SP "\xe2\x96\x81"

static void spm_scores(void **state)
{
    (void)state;
    static const char *const tokens[] = {"<unk>", "<s>", "</s>", SP,      "a",
                                         "b",     "ab",  SP "a", SP "ab", "bb"};
    static const float scores[] = {0, 0, 0, -10, -11, -12, -3, -2, -1, -2.5f};
    static const int32_t types[] = {2, 3, 3, 1, 1, 1, 1, 1, 1, 1};
    struct fixture f;
    fixture_begin(&f, "llama", "");
    fixture_tokens(&f, tokens, COUNT(tokens));
    f.desc.scores = scores;
    f.desc.types = types;
    fixture_build(&f);
    ids_of(&f, "", 0, "");
    ids_of(&f, "ab", 0, "8");
    ids_of(&f, "abb", 0, "8 5"); /* "_a" at -2, then "_ab" at -1 before "bb" at -2.5 */
    ids_of(&f, "ab", TOK_ENCODE_CONTINUED, "6");
    ids_of(&f, " ab", 0, "3 8");
    ids_of(&f, SP "ab", 0, "3 8");
    ids_of(&f, "axyb", 0, "7 0 5"); /* unknown characters in a row are one unknown token */
    ids_of(&f, "ab", BOTH, "1 8");
    ids_of(&f, "<s>ab", SPECIAL, "1 8");
    expect_text(&f.tok, (const uint32_t[]){8, 8}, 2, 0, "ab ab");
    expect_text(&f.tok, (const uint32_t[]){1, 8, 2, 8}, 4, 0, "ab ab");
    expect_text(&f.tok, (const uint32_t[]){8}, 1, TOK_DECODE_CONTINUED, " ab");
    expect_text(&f.tok, (const uint32_t[]){1, 8, 2}, 3, TOK_DECODE_SPECIAL, "<s> ab</s>");
    fixture_end(&f);
}

static void unigram_best_path(void **state)
{
    (void)state;
    static const char *const tokens[] = {"<pad>", "</s>", "<unk>", SP,     "a",  "b",
                                         "c",     "ab",   "bc",    SP "a", "abc"};
    static const float scores[] = {0, 0, 0, -2, -3, -3, -3, -4, -3.5f, -2.5f, -7};
    static const int32_t types[] = {3, 3, 2, 1, 1, 1, 1, 1, 1, 1, 1};
    struct fixture f;
    fixture_begin(&f, "t5", "");
    fixture_tokens(&f, tokens, COUNT(tokens));
    f.desc.scores = scores;
    f.desc.types = types;
    tok_desc_key(&f.desc, "tokenizer.ggml.remove_extra_whitespaces", 1);
    fixture_build(&f);
    ids_of(&f, "abc", 0, "9 8");          /* -2.5 - 3.5 beats -2 - 7 and -2 - 4 - 3 */
    ids_of(&f, "  abc   a ", 0, "9 8 9"); /* spaces merged and cut */
    ids_of(&f,
           "axx\xe4\xb8\xad"
           "c",
           0, "9 2 6");
    ids_of(&f, "   ", 0, "");
    ids_of(&f, "a", BOTH, "9 1");
    fixture_end(&f);
}

static void wordpiece_words(void **state)
{
    (void)state;
    static const char *const tokens[] = {"[UNK]", "[CLS]", "[SEP]", SP "un",          "aff",
                                         "able",  SP "!",  SP "a",  SP "\xe4\xb8\xad"};
    static const int32_t types[] = {3, 3, 3, 1, 1, 1, 1, 1, 1};
    struct fixture f;
    fixture_begin(&f, "bert", "");
    fixture_tokens(&f, tokens, COUNT(tokens));
    f.desc.types = types;
    tok_desc_key(&f.desc, "tokenizer.ggml.unknown_token_id", 0);
    tok_desc_key(&f.desc, "tokenizer.ggml.bos_token_id", 1);
    tok_desc_key(&f.desc, "tokenizer.ggml.seperator_token_id", 2);
    fixture_build(&f);
    ids_of(&f, "unaffable", 0, "3 4 5");
    ids_of(&f,
           "UNAFF\xc3\x84"
           "BLE!",
           0, "3 4 5 6"); /* accents and case fall away */
    ids_of(&f,
           "a\xe4\xb8\xad"
           "a",
           0, "7 8 7");
    ids_of(&f, "unaffx a", 0, "0 7");
    ids_of(&f, "a", BOTH, "1 7 2");
    char word[202];
    memset(word, 'a', 201);
    expect_ids(&f.tok, word, 101, 0, "0"); /* too long to be a word */
    expect_text(&f.tok, (const uint32_t[]){1, 3, 4, 5, 6, 2}, 6, 0, "unaffable !");
    fixture_end(&f);
}

static void rwkv_longest_match(void **state)
{
    (void)state;
    static const char *const tokens[] = {"a", "ab", "abc", "\\n", "\\x00", "\\\\", "b"};
    struct fixture f;
    fixture_begin(&f, "rwkv", "");
    fixture_tokens(&f, tokens, COUNT(tokens));
    fixture_build(&f);
    expect_ids(&f.tok, "abcab\n\0\\b", 9, 0, "2 1 3 4 5 6");
    fixture_end(&f);
}

/* A token of the type byte whose text names none is its own text; a byte without a token is the unknown one. */
static void byte_tokens_that_name_no_byte(void **state)
{
    (void)state;
    static const char *const tokens[] = {"<unk>", "<0x-1>", "<0xGG>", "<0x100>", "<0x7", "<0x41>", "a"};
    static const int32_t types[] = {TOK_TYPE_UNKNOWN, TOK_TYPE_BYTE, TOK_TYPE_BYTE, TOK_TYPE_BYTE, TOK_TYPE_BYTE, TOK_TYPE_BYTE, TOK_TYPE_NORMAL};
    static const float scores[COUNT(tokens)] = {0};
    struct fixture f;
    fixture_begin(&f, "llama", "");
    fixture_tokens(&f, tokens, COUNT(tokens));
    f.desc.types = types;
    f.desc.scores = scores;
    tok_desc_key(&f.desc, "tokenizer.ggml.unknown_token_id", 0);
    fixture_build(&f);
    expect_text(&f.tok, (const uint32_t[]){5, 6, 1, 2}, 4, 0, "Aa<0x-1><0xGG>");
    fixture_end(&f);
}

/* Characters instead of bytes, spaces as U+2581, bytes as a last resort. */
static void bpe_on_characters(void **state)
{
    (void)state;
    static char names[256][8];
    const char *tokens[300];
    for (unsigned b = 0; b < 256; b++) {
        snprintf(names[b], sizeof names[b], "<0x%02X>", b);
        tokens[b] = names[b];
    }
    static const char *const more[] = {SP, "a", "b", SP "a", SP "ab", "\n\n", "\n"},
                             *const merges[] = {SP " a", SP "a b"};
    static int32_t types[300];
    for (size_t i = 0; i < 300; i++) types[i] = i < 256 ? TOK_TYPE_BYTE : TOK_TYPE_NORMAL;
    memcpy(tokens + 256, more, sizeof more);
    struct fixture f;
    fixture_begin(&f, "gemma4", "");
    fixture_tokens(&f, tokens, 256 + COUNT(more));
    fixture_merges(&f, merges, COUNT(merges));
    f.desc.types = types;
    fixture_build(&f);
    ids_of(&f, " ab", 0, "260");
    ids_of(&f, "ab a", 0, "257 258 259");
    ids_of(&f, "a\n\nb", 0, "257 261 258");
    ids_of(&f, "\xc3\xa9", 0, "195 169");
    expect_text(&f.tok, (const uint32_t[]){260, 195, 169, 261}, 4, 0, " ab\xc3\xa9\n\n");
    fixture_end(&f);
}

/* ---- text that is long or not UTF-8
 * ---------------------------------------------------------------------- */

static void damaged_utf8(void **state)
{
    (void)state;
    struct fixture f;
    begin_bpe(&f);
    fixture_build(&f);
    expect_ids(&f.tok,
               "a\xff"
               "b",
               3, 0, "97 239 191 189 98");
    expect_ids(&f.tok, "\xf0\x9f\x98", 3, 0, "239 191 189"); /* cut short: one part */
    expect_ids(&f.tok, "\xed\xa0\x80", 3, 0,
               "239 191 189 239 191 189 239 191 189");               /* surrogate: three */
    expect_ids(&f.tok, "\xc0\xaf", 2, 0, "239 191 189 239 191 189"); /* overlong */
    expect_ids(&f.tok, "\x80<|a|>", 6, SPECIAL, "239 191 189 261");
    /* Bytes of a character come one id at a time; a cut character ends as U+FFFD. */
    expect_text(&f.tok, (const uint32_t[]){0xf0, 0x9f, 0x98, 0x80}, 4, 0, "\xf0\x9f\x98\x80");
    expect_text(&f.tok, (const uint32_t[]){0xf0, 0x9f, 'A'}, 3, 0,
                "\xef\xbf\xbd"
                "A");
    expect_text(&f.tok, (const uint32_t[]){0xed, 0xa0, 0x80}, 3, 0,
                "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
    expect_text(&f.tok, (const uint32_t[]){0xe4, 0xb8, 0xe4, 0xb8, 0xad}, 5, 0,
                "\xef\xbf\xbd\xe4\xb8\xad");
    fixture_end(&f);
}

static void encode_and_decode_long(struct fixture *f, const char *unit, size_t n)
{
    size_t k = strlen(unit), count, len;
    char *text = malloc(n + 8);
    for (size_t i = 0; i < n; i++) text[i] = unit[i % k];
    n = n / k * k;
    uint32_t *ids = encode_bytes(&f->tok, text, n, TOK_ENCODE_CONTINUED, &count);
    char *back = malloc(n + 8);
    assert_int_equal(tok_decode(&f->tok, ids, count, TOK_DECODE_CONTINUED | TOK_DECODE_SPECIAL,
                                back, n + 8, &len),
                     TOK_OK);
    assert_int_equal(len, n);
    assert_memory_equal(back, text, n);
    free(text);
    free(back);
    free(ids);
}

/* A quadratic step anywhere would make a megabyte take hours. */
static void one_megabyte_of_one_character(void **state)
{
    (void)state;
    static const char *const tokens[] = {"<unk>", "<s>",  "</s>", SP,     "a",
                                         "aa",    "aaaa", SP SP,  SP "a", "\xe4\xb8\xad"};
    static const float scores[] = {0, 0, 0, -9, -9, -3, -2, -4, -5, -9};
    static const int32_t types[] = {2, 3, 3, 1, 1, 1, 1, 1, 1, 1};
    static const char *const units[] = {"a", " ", "a ", "\xe4\xb8\xad"}, *const models[] = {"llama",
                                                                                            "t5"};
    enum { MEGABYTE = 1 << 20 };
    struct fixture f;
    for (size_t m = 0; m < 2; m++) {
        fixture_begin(&f, models[m], "");
        fixture_tokens(&f, tokens, COUNT(tokens));
        f.desc.scores = scores;
        f.desc.types = types;
        tok_desc_key(&f.desc, "tokenizer.ggml.unknown_token_id", 0);
        fixture_build(&f);
        for (size_t u = 0; u < COUNT(units); u++) encode_and_decode_long(&f, units[u], MEGABYTE);
        fixture_end(&f);
    }
    static const char *const bpe_units[] = {"l",  "hello", " ",       "\n", "\xe4\xb8\xad",
                                            "he", "7",     "\xcc\x81"};
    begin_bpe(&f);
    f.desc.normalizer = TOK_NORMALIZER_NFC;
    fixture_build(&f);
    for (size_t u = 0; u < COUNT(bpe_units); u++)
        encode_and_decode_long(&f, bpe_units[u], MEGABYTE);
    fixture_end(&f);
}

static void too_little_room(void **state)
{
    (void)state;
    struct fixture f;
    uint32_t ids[4];
    size_t work_bytes, max_ids, count, len;
    char work[4096], out[4];
    begin_bpe(&f);
    fixture_build(&f);
    assert_int_equal(tok_encode_plan(&f.tok, "hello hello", 11, &work_bytes, &max_ids), TOK_OK);
    assert_true(work_bytes <= sizeof work);
    assert_int_equal(tok_encode(&f.tok, "hello hello", 11, 0, work + 1, work_bytes, ids, 1, &count),
                     TOK_ERR_SPACE);
    assert_int_equal(count, 2);
    assert_int_equal(ids[0], 259);
    char text[200];
    memset(text, 'l', sizeof text);
    assert_int_equal(tok_encode(&f.tok, text, sizeof text, 0, work, 64, ids, 4, &count),
                     TOK_ERR_WORK);
    assert_int_equal(tok_decode(&f.tok, (const uint32_t[]){259}, 1, 0, out, 4, &len),
                     TOK_ERR_SPACE);
    assert_int_equal(len, 5);
    assert_memory_equal(out, "hell", 4);
    assert_int_equal(tok_decode(&f.tok, (const uint32_t[]){9999}, 1, 0, out, 4, &len), TOK_ERR_ID);
    fixture_end(&f);
}

/* ---- hostile descriptions and blocks
 * ------------------------------------------------------------------------ */

static void expect_refused(struct fixture *f, enum diag_id id)
{
    assert_false(tok_build(&f->arena, &f->desc, &f->sink, "test", &f->blob, &f->n_blob));
    assert_int_equal(f->sink.items.v[f->sink.items.n - 1].id, id);
    fixture_end(f);
}

static void hostile_descriptions(void **state)
{
    (void)state;
    struct fixture f;
    struct tok_vocab_desc d;
    static const char *const one[] = {"a"}, *const two[] = {"a", "a"},
                             *const odd[] = {"a", " a", "a ", "", " "};
    static const float bad_score[] = {0.0f / 1.0f, 1e38f};
    begin_bpe(&f);
    assert_false(tok_desc_init(&d, "nonsense", "", &f.sink, "test"));
    assert_false(tok_desc_init(&d, "gpt2", "nonsense", &f.sink, "test"));
    assert_int_equal(f.sink.error_count, 2);
    f.desc.n_tokens = 0;
    expect_refused(&f, DIAG_TOKENIZER);
    fixture_begin(&f, "gpt2", "gpt-2");
    fixture_tokens(&f, one, 1);
    expect_refused(&f, DIAG_TOKENIZER); /* no merges */
    fixture_begin(&f, "llama", "");
    fixture_tokens(&f, one, 1);
    expect_refused(&f, DIAG_TOKENIZER); /* no scores */
    fixture_begin(&f, "llama", "");
    fixture_tokens(&f, two, 2);
    f.desc.scores = bad_score;
    expect_refused(&f, DIAG_TOKENIZER);
    char *big = calloc(1, 70000);
    memset(big, 'a', 70000 - 1);
    fixture_begin(&f, "rwkv", "");
    fixture_tokens(&f, (const char *const[]){big}, 1);
    expect_refused(&f, DIAG_TOKENIZER);
    free(big);
    begin_bpe(&f); /* merges that are no pairs are left out; equal tokens: the first counts */
    fixture_merges(&f, odd, COUNT(odd));
    tok_desc_key(&f.desc, "tokenizer.ggml.bos_token_id", 1u << 30);
    fixture_build(&f);
    ids_of(&f, "aa", BOTH, "97 97");
    fixture_end(&f);
    fixture_begin(&f, "rwkv", "");
    fixture_tokens(&f, two, 2);
    fixture_build(&f);
    ids_of(&f, "aa", 0, "0 0");
    fixture_end(&f);
}

/* A damaged charsmap: cut short, with cycles, with replacements outside. */
static void hostile_charsmap(void **state)
{
    (void)state;
    static const char *const tokens[] = {"<pad>", "</s>", "<unk>", "a"};
    static const float scores[] = {0, 0, 0, -1};
    uint8_t map[4 + 1024 + 4];
    uint32_t seed = 1;
    for (unsigned i = 0; i < 2000; i++) {
        struct fixture f;
        fixture_begin(&f, "t5", "");
        fixture_tokens(&f, tokens, COUNT(tokens));
        f.desc.scores = scores;
        for (size_t k = 0; k < sizeof map; k++) {
            seed = seed * 1664525u + 1013904223u;
            map[k] = (uint8_t)(seed >> 24 & (i % 2 ? 0xff : 0x13));
        }
        map[0] = 0;
        map[1] = 4;
        map[2] = map[3] = 0;
        map[sizeof map - 1] = 0;
        f.desc.charsmap = map;
        f.desc.charsmap_bytes = i % 5 ? sizeof map : i % sizeof map;
        if (tok_build(&f.arena, &f.desc, &f.sink, "test", &f.blob, &f.n_blob)) {
            assert_int_equal(tok_open(f.blob, f.n_blob, &f.tok), TOK_OK);
            size_t count;
            free(encode_bytes(&f.tok, "a\x01\x10 b", 5, 0, &count));
        }
        fixture_end(&f);
    }
}

static void use_damaged(const struct tok *t)
{
    static const char text[] =
        "hello <|a|> \xc3\xa9\xe4\xb8\xad hellooooooooooooooooooooooooooooooooooooooooooooo 123";
    size_t work_bytes, max_ids, count, len;
    if (tok_encode_plan(t, text, sizeof text - 1, &work_bytes, &max_ids) != TOK_OK) return;
    if (work_bytes > 1 << 20 || max_ids > 1 << 20) return;
    void *work = malloc(work_bytes);
    uint32_t *ids = malloc(max_ids * 4 + 4);
    char out[512];
    enum tok_status st = tok_encode(t, text, sizeof text - 1, SPECIAL | BOTH, work, work_bytes, ids,
                                    max_ids, &count);
    if (st == TOK_OK) tok_decode(t, ids, count, TOK_DECODE_SPECIAL, out, sizeof out, &len);
    free(work);
    free(ids);
}

/* Every byte of a block in turn and at random; nothing may be read outside it. Run with sanitizers
 * to be sure. */
static void damaged_blocks(void **state)
{
    (void)state;
    struct fixture f;
    struct tok t;
    begin_bpe(&f);
    f.desc.normalizer = TOK_NORMALIZER_NFC;
    fixture_build(&f);
    uint8_t *copy = malloc(f.n_blob);
    uint32_t seed = 99;
    for (unsigned i = 0; i < 6000; i++) {
        memcpy(copy, f.blob, f.n_blob);
        size_t span = i % 3 == 0 ? sizeof(struct tok_header) : f.n_blob;
        for (unsigned k = 0; k <= i % 4; k++) {
            seed = seed * 1664525u + 1013904223u;
            size_t at = (size_t)((uint64_t)(seed >> 4) * span >> 28);
            seed = seed * 1664525u + 1013904223u;
            copy[at] = i % 2 ? (uint8_t)(seed >> 24) : 0xff;
        }
        if (tok_open(copy, f.n_blob, &t) == TOK_OK) use_damaged(&t);
    }
    for (size_t n = 0; n < f.n_blob; n += n < 512 ? 1 : 997)
        assert_int_not_equal(tok_open(f.blob, n, &t), TOK_OK);
    memcpy(copy, f.blob, f.n_blob);
    ((struct tok_header *)(void *)copy)->version_major++;
    assert_int_equal(tok_open(copy, f.n_blob, &t), TOK_ERR_VERSION);
    free(copy);
    fixture_end(&f);
}

/* The same description gives the same bytes. */
static void builds_are_equal(void **state)
{
    (void)state;
    struct fixture f, g;
    begin_bpe(&f);
    fixture_build(&f);
    begin_bpe(&g);
    fixture_build(&g);
    assert_int_equal(f.n_blob, g.n_blob);
    assert_memory_equal(f.blob, g.blob, f.n_blob);
    fixture_end(&f);
    fixture_end(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bpe_words),
        cmocka_unit_test(special_tokens),
        cmocka_unit_test(bos_and_eos),
        cmocka_unit_test(stripping_tokens),
        cmocka_unit_test(merges_never_make_control_tokens),
        cmocka_unit_test(bpe_long_and_short_agree),
        cmocka_unit_test(spm_scores),
        cmocka_unit_test(unigram_best_path),
        cmocka_unit_test(wordpiece_words),
        cmocka_unit_test(rwkv_longest_match),
        cmocka_unit_test(byte_tokens_that_name_no_byte), cmocka_unit_test(bpe_on_characters),
        cmocka_unit_test(damaged_utf8),
        cmocka_unit_test(one_megabyte_of_one_character),
        cmocka_unit_test(too_little_room),
        cmocka_unit_test(hostile_descriptions),
        cmocka_unit_test(hostile_charsmap),
        cmocka_unit_test(damaged_blocks),
        cmocka_unit_test(builds_are_equal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
