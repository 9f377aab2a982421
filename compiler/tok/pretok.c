// SPDX-License-Identifier: Apache-2.0
/*
 * What the names in GGUF's tokenizer.ggml.pre mean: patterns and settings of the models' own
 * tokenizers. A pattern splits its input into matches and the text between them; the next pattern
 * splits each of these pieces.
 */
#include <string.h>

#include "compiler/tok/tok_build.h"

#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WORD_BEFORE "[^\\r\\n\\p{L}\\p{N}]?"
#define LINES_AND_SPACES "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define UPPER_NOT_HAN "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define LOWER_NOT_HAN "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define PUNCTUATED_WORD "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
/* Symbols after an optional space, and what may follow them. */
#define SYMBOLS(tail) "| ?[^\\s\\p{L}\\p{N}]+" tail

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define LLAMA3 \
    CONTRACTION "|" WORD_BEFORE "\\p{L}+|\\p{N}{1,3}" SYMBOLS("[\\r\\n]*") LINES_AND_SPACES
#define QWEN2 CONTRACTION "|" WORD_BEFORE "\\p{L}+|\\p{N}" SYMBOLS("[\\r\\n]*") LINES_AND_SPACES
/* Words of one case, capitals first, with or without a contraction behind. */
#define CASED(upper, lower, tail) \
    WORD_BEFORE upper "*" lower "+" tail "|" WORD_BEFORE upper "+" lower "*" tail
#define GPT4O \
    CASED(UPPER, LOWER, CONTRACTION "?") "|\\p{N}{1,3}" SYMBOLS("[\\r\\n/]*") LINES_AND_SPACES
#define DEEPSEEK3_WORDS \
    PUNCTUATED_WORD \
    "|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*" LINES_AND_SPACES
#define CJK "[一-龥\\u3040-ゟ゠-ヿ]+"
/* The cased letters that DeepSeek LLM lists. */
#define DEEPSEEK_LETTERS \
    "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-" \
    "ᏽᲐ-" \
    "ᲺᲽ-" \
    "Ჿᴀ-" \
    "ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅ" \
    "ὐ-ὗὙὛὝὟ-\\u1f7dᾀ-ᾴᾶ-ᾼ\\u1fbeῂ-ῄῆ-ῌῐ-\\u1fd3ῖ-\\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\\u2126ℨ\\u212a-ℭℯ-" \
    "ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻ" \
    "Ȿ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎ\\uab70-\\uabbfﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-" \
    "𐓓𐓘-" \
    "𐓻𐲀-" \
    "𐲲𐳀-" \
    "𐳲𑢠-𑣟𞤀-𞥃]+"
#define DEEPSEEK_PUNCTUATION "\\s?[!-/:-~！-／：-～‘-‟\\u3000-。]+"
#define DEEPSEEK_CJK "[一-龥\\u0800-一가-\\ud7ff]+"
#define BLOOM " ?[^(\\s|.,!?…。，、।۔،)]+"
#define LONG_SPACES \
    "|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)|\\s{64}(?!\\S)|\\s{32}(?!\\S)|\\s{16}(?!" \
    "\\S)|\\s{8}(?!\\S)" \
    "|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{1}"
/* Digits in groups of three from the right. */
#define THREES(digit) digit "{1,3}(?=(?:" digit "{3})*(?!" digit "))"

#define IGNORE TOK_F_IGNORE_MERGES
#define BOS TOK_F_ADD_BOS
#define SEP TOK_F_ADD_SEP
#define SPM_LIKE (TOK_F_CHARS | TOK_F_ESCAPE_SPACES | TOK_F_BYTE_FALLBACK)
#define NFC TOK_NORMALIZER_NFC

struct pre_kind {
    const char *names; /* separated by spaces */
    uint32_t flags;
    enum tok_normalizer normalizer;
    const char *patterns[TOK_MAX_PASSES];
};

static const struct pre_kind kinds[] = {
    {"default", 0, 0, {"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
    {"gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert jais "
     "trillion "
     "granite-docling exaone4",
     0,
     0,
     {GPT2}},
    {"mpt olmo", 0, NFC, {GPT2}},
    {"jina-v1-en jina-v2-code roberta-bpe", SEP, 0, {GPT2}},
    {"llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
     IGNORE | BOS,
     0,
     {LLAMA3}},
    {"dbrx smaug-bpe glm4 chatglm-bpe", 0, 0, {LLAMA3}},
    {"qwen2 megrez", 0, NFC, {QWEN2}},
    {"deepseek-r1-qwen kormo f2llmv2 stablelm2 hunyuan solar-open grok-2", 0, 0, {QWEN2}},
    {"qwen35",
     0,
     NFC,
     {CONTRACTION "|" WORD_BEFORE
                  "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" LINES_AND_SPACES}},
    {"ufakzeka", 0, 0, {WORD_BEFORE "\\p{L}+|\\p{N}" SYMBOLS("[\\r\\n]*") LINES_AND_SPACES}},
    {"starcoder refact smollm codeshell exaone minerva-7b mellum2", 0, 0, {"\\p{N}", GPT2}},
    {"command-r", 0, NFC, {"\\p{N}", GPT2}},
    {"falcon", 0, 0, {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]"}},
    {"deepseek-llm",
     0,
     0,
     {"[\\r\\n]", DEEPSEEK_LETTERS, DEEPSEEK_PUNCTUATION, "\\s+$", DEEPSEEK_CJK, "\\p{N}+"}},
    {"deepseek-coder", 0, 0, {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", DEEPSEEK_CJK, "\\p{N}"}},
    {"deepseek-v3 hunyuan-dense joyai-llm hy_v4", 0, 0, {"\\p{N}{1,3}", CJK, DEEPSEEK3_WORDS}},
    {"spark2_5",
     0,
     0,
     {"\\p{N}{1,3}", CJK,
      PUNCTUATED_WORD
      "|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+|[\\r\\n]|\\s+(?!\\S)|\\s+",
      "\\p{N}"}},
    {"youtu",
     IGNORE,
     0,
     {"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-"
      "龥\\u3040-"
      "ゟ゠-"
      "ヿ]"
      "+",
      CASED(UPPER, LOWER, CONTRACTION "?") "|\\p{N}" SYMBOLS("[\\r\\n/]*") LINES_AND_SPACES}},
    {"jais-2",
     0,
     0,
     {CONTRACTION "|" WORD_BEFORE
                  "\\p{L}+|\\p{N}{1,3}" SYMBOLS("[\\r\\n]*") "|\\s*[\\r\\n]+" LONG_SPACES}},
    {"poro-chat bloom gpt3-finnish", 0, 0, {BLOOM}},
    {"viking", 0, 0, {BLOOM, "\\p{N}"}},
    {"tekken",
     IGNORE | BOS,
     0,
     {CASED(UPPER, LOWER, "") "|\\p{N}" SYMBOLS("[\\r\\n/]*") LINES_AND_SPACES}},
    {"gpt-4o llama4 kanana2 talkie minimax-m2", 0, 0, {GPT4O}},
    {"granite-embed-multi-97m", IGNORE, 0, {GPT4O}},
    {"tiny_aya cohere2moe", 0, 0, {"\\d{1,3}(?=(?:\\d{3})*\\b)", GPT4O}},
    {"chameleon",
     BOS,
     0,
     {"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\\t\\n]|    |  )", "\\p{N}",
      "[\\p{P}!-/:-@\\[-`{-~]", GPT2}},
    {"kimi-k2",
     0,
     0,
     {"[\\p{Han}]+|" CASED(UPPER_NOT_HAN, LOWER_NOT_HAN,
                           CONTRACTION "?") "|\\p{N}{1,3}" SYMBOLS("[\\r\\n]*") LINES_AND_SPACES}},
    {"superbpe", 0, 0, {"\\p{N}+", "(?=(\\d{3})+(?!\\d))"}},
    {"bailingmoe bailingmoe2 llada-moe",
     0,
     0,
     {"'(?i:[sdmt]|ll|ve|re)|" WORD_BEFORE
      "\\p{L}+|\\p{N}" SYMBOLS("[\\r\\n]*") "|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
    {"seed-coder",
     0,
     0,
     {CONTRACTION "|" WORD_BEFORE
                  "\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+" LINES_AND_SPACES}},
    {"afmoe",
     0,
     0,
     {THREES("\\p{N}"),
      "[一-鿿㐀-䶿豈-\\ufaff\\u3040-ゟ゠-ヿ･-ﾟ⼀-⿟เ-\\u0e7f\\u0e80-\\u0effក-"
      "\\u17ffက-"
      "႟ꩠ-"
      "ꩿꧠ-"
      "\\ua9ff가-\\ud7afᄀ-ᇿ]+",
      DEEPSEEK3_WORDS}},
    {"laguna", 0, 0, {"[^\\n]+|[\\n]+", QWEN2}},
    {"exaone-moe",
     0,
     0,
     {CONTRACTION "|" WORD_BEFORE "(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}" SYMBOLS(
         "[\\r\\n/]?") "|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
    {"minicpm5",
     IGNORE,
     0,
     {"\\p{N}{1,3}",
      CONTRACTION "|" WORD_BEFORE "\\p{L}+|\\p{N}+" SYMBOLS("[\\r\\n]*") LINES_AND_SPACES}},
    {"gemma4 granite-embed-multi-311m",
     SPM_LIKE | BOS | TOK_F_NEWLINE_WHOLE,
     0,
     {"[^\\n]+|[\\n]+"}},
    {"sarvam-moe", SPM_LIKE, 0, {"[^\\n]+|[\\n]+"}},
    {"whitespace", TOK_F_CHARS | TOK_F_BYTE_FALLBACK | TOK_F_KEEP_MATCHES, 0, {"\\S+"}},
};

/* Is word one of the words of list? */
static bool listed(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list; n > 0 && (at = strstr(at, word)) != NULL; at += n)
        if ((at == list || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0')) return true;
    return false;
}

const char *tok_pre_name(size_t i, size_t *len)
{
    for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
        for (const char *at = kinds[k].names; *at != '\0'; at += *len + (at[*len] == ' ')) {
            *len = strcspn(at, " ");
            if (i-- == 0) return at;
        }
    }
    return NULL;
}

static const struct pre_kind *find_pre(const char *pre)
{
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (listed(kinds[i].names, pre)) return &kinds[i];
    return NULL;
}

static void set_special(struct tok_vocab_desc *d, uint32_t bos, uint32_t eos, uint32_t unk,
                        uint32_t sep, uint32_t pad, uint32_t mask)
{
    for (size_t i = 0; i < TOK_SPECIAL_COUNT; i++) d->special[i] = TOK_NONE;
    d->special[TOK_SPECIAL_BOS] = bos;
    d->special[TOK_SPECIAL_EOS] = eos;
    d->special[TOK_SPECIAL_UNK] = unk;
    d->special[TOK_SPECIAL_SEP] = sep;
    d->special[TOK_SPECIAL_PAD] = pad;
    d->special[TOK_SPECIAL_MASK] = mask;
}

static bool init_bpe(struct tok_vocab_desc *d, const char *model, const char *pre,
                     struct diag_sink *sink, const char *loc)
{
    if (strcmp(model, "gemma4") == 0) pre = "gemma4";
    if (strcmp(model, "whitespace") == 0 && *pre == '\0') pre = "whitespace";
    if (*pre == '\0') {
        diag_warn(sink, DIAG_TOKENIZER, loc,
                  "the file names no pre-tokenizer (tokenizer.ggml.pre): `default` is used, and "
                  "ids may differ "
                  "from the model's own");
        pre = "default";
    }
    const struct pre_kind *k = find_pre(pre);
    if (k == NULL)
        return diag_report(sink, DIAG_TOKENIZER_UNSUPPORTED, loc, "unknown pre-tokenizer `%s`",
                           pre);
    d->model = TOK_MODEL_BPE;
    d->flags = k->flags;
    d->normalizer = k->normalizer;
    d->patterns = k->patterns;
    while (d->n_patterns < TOK_MAX_PASSES && k->patterns[d->n_patterns] != NULL) d->n_patterns++;
    d->byte_form = k->flags & TOK_F_CHARS ? TOK_BYTES_NONE : TOK_BYTES_GPT2;
    set_special(d, TOK_NONE, TOK_NONE, TOK_NONE, TOK_NONE, TOK_NONE, TOK_NONE);
    if (strcmp(model, "whitespace") ==
        0) { /* words are what lies between white space, lower-cased by default */
        d->flags |= TOK_F_KEEP_MATCHES;
        d->normalizer = TOK_NORMALIZER_LOWER;
        d->lower = strcmp(pre, "whitespace") != 0;
    }
    return true;
}

bool tok_desc_init(struct tok_vocab_desc *d, const char *model, const char *pre,
                   struct diag_sink *sink, const char *loc)
{
    *d = (struct tok_vocab_desc){.lower = true, .strip_accents = true, .pre = pre ? pre : ""};
    pre = d->pre;
    if (listed("gpt2 gemma4 whitespace", model)) return init_bpe(d, model, pre, sink, loc);
    if (strcmp(model, "llama") == 0) {
        d->model = TOK_MODEL_SPM;
        d->flags = TOK_F_ADD_BOS | TOK_F_SPACE_PREFIX | TOK_F_ESCAPE_SPACES | TOK_F_BYTE_FALLBACK;
        set_special(d, 1, 2, 0, TOK_NONE, TOK_NONE, TOK_NONE);
    } else if (strcmp(model, "bert") == 0) {
        d->model = TOK_MODEL_WORDPIECE;
        d->flags = TOK_F_ADD_BOS | TOK_F_ADD_SEP | TOK_F_ESCAPE_SPACES;
        d->normalizer = TOK_NORMALIZER_BERT;
        d->max_word_chars = 100;
        set_special(d, 101, TOK_NONE, 100, 102, 0, 103);
    } else if (strcmp(model, "t5") == 0) {
        d->model = TOK_MODEL_UNIGRAM;
        d->flags = TOK_F_ADD_EOS | TOK_F_SPACE_PREFIX | TOK_F_ESCAPE_SPACES;
        set_special(d, TOK_NONE, 1, 2, TOK_NONE, 0, TOK_NONE);
    } else if (strcmp(model, "rwkv") == 0) {
        d->model = TOK_MODEL_GREEDY;
        d->byte_form = TOK_BYTES_RWKV;
        set_special(d, TOK_NONE, TOK_NONE, TOK_NONE, TOK_NONE, TOK_NONE, TOK_NONE);
    } else {
        return diag_report(sink, DIAG_TOKENIZER_UNSUPPORTED, loc, "unknown tokenizer model `%s`",
                           model);
    }
    return true;
}

bool tok_desc_key(struct tok_vocab_desc *d, const char *key, uint64_t value)
{
    static const struct {
        const char *key;
        enum tok_special id;
    } ids[] = {
        {"bos_token_id", TOK_SPECIAL_BOS},         {"eos_token_id", TOK_SPECIAL_EOS},
        {"eot_token_id", TOK_SPECIAL_EOT},         {"eom_token_id", TOK_SPECIAL_EOM},
        {"unknown_token_id", TOK_SPECIAL_UNK},     {"seperator_token_id", TOK_SPECIAL_SEP},
        {"separator_token_id", TOK_SPECIAL_SEP},   {"padding_token_id", TOK_SPECIAL_PAD},
        {"mask_token_id", TOK_SPECIAL_MASK},       {"fim_pre_token_id", TOK_SPECIAL_FIM_PRE},
        {"fim_suf_token_id", TOK_SPECIAL_FIM_SUF}, {"fim_mid_token_id", TOK_SPECIAL_FIM_MID},
        {"fim_pad_token_id", TOK_SPECIAL_FIM_PAD}, {"fim_rep_token_id", TOK_SPECIAL_FIM_REP},
        {"fim_sep_token_id", TOK_SPECIAL_FIM_SEP}, {"prefix_token_id", TOK_SPECIAL_FIM_PRE},
        {"suffix_token_id", TOK_SPECIAL_FIM_SUF},  {"middle_token_id", TOK_SPECIAL_FIM_MID},
    };
    static const struct {
        const char *key;
        uint32_t flag;
    } flags[] = {
        {"add_bos_token", TOK_F_ADD_BOS},
        {"add_eos_token", TOK_F_ADD_EOS},
        {"add_sep_token", TOK_F_ADD_SEP},
        {"add_space_prefix", TOK_F_SPACE_PREFIX},
        {"remove_extra_whitespaces", TOK_F_MERGE_SPACES},
        {"escape_whitespaces", TOK_F_ESCAPE_SPACES},
        {"treat_whitespace_as_suffix", TOK_F_SPACE_SUFFIX},
    };
    static const char prefix[] = "tokenizer.ggml.";
    if (strncmp(key, prefix, sizeof prefix - 1) != 0) return false;
    key += sizeof prefix - 1;
    for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
        if (strcmp(key, ids[i].key) != 0) continue;
        d->special[ids[i].id] = value < TOK_NONE ? (uint32_t)value : TOK_NONE - 1;
        d->given |= 1u << ids[i].id;
        return true;
    }
    for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
        if (strcmp(key, flags[i].key) != 0) continue;
        d->flags = value ? d->flags | flags[i].flag : d->flags & ~flags[i].flag;
        return true;
    }
    if (strcmp(key, "normalizer.lowercase") == 0)
        d->lower = d->strip_accents = value != 0;
    else if (strcmp(key, "normalizer.strip_accents") == 0)
        d->strip_accents = value != 0;
    else
        return false;
    return true;
}
